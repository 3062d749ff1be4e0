//! The choice of features, from the properties of both ends.

pub(crate) mod round_trips;

use std::fmt;

use rpcrdma_ext_xchar::{
    BackwardRequestSupport, Peer, ReceiveBufferSize, RequesterRemoteInvalidation,
};
use rpcrdma_extension::ReverseDirection;
use rpcrdma_v1::PrivateData;
use rpcrdma_v2::Side;
use rpcrdma_v2::limits::{DEFAULT_INLINE, FIRST_MESSAGE_MAX};

use crate::{RoundTrips, Version};

/// The properties and wishes of this end.
#[derive(Clone, Copy, Debug)]
pub struct OwnProperties {
    /// The side of the connection that this end is: client or server.
    pub side: Side,
    /// Maximum length in bytes of a message that it sends.
    pub max_send: u32,
    /// Maximum length in bytes of a message that it receives.
    pub receive_size: u32,
    /// Whether replies may invalidate the handles of its calls.
    pub accept_invalidation: bool,
    /// Whether its replies can use Send With Invalidate.
    pub can_invalidate: bool,
    /// The private data that it sent through the connection manager (RFC 8797), if any.
    pub private_data: Option<PrivateData>,
    /// Whether this end exchanges transport characteristics, in version 2.
    pub characteristics: bool,
}

/// The peer's announcements.
#[derive(Clone, Copy, Debug)]
pub enum PeerProperties<'a> {
    /// Version 1: the private data that the peer sent, if any.
    PrivateData(Option<PrivateData>),
    /// Version 2: the peer has not sent its characteristics yet.
    NotSaidYet,
    /// Version 2: the peer does not exchange transport characteristics.
    NoCharacteristics,
    /// Version 2: the characteristics that the peer sent.
    Characteristics(&'a Peer),
}

/// The reason for a value in [`Features`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FeatureReason {
    /// Both ends support it.
    Both,
    /// This end limits the feature or does not support it.
    Here,
    /// The peer limits or does not support it.
    Peer,
    /// The peer did not mention it, so the default applies.
    NotAnnounced,
    /// The peer has not announced it yet.
    NotSaidYet,
    /// The peer does not exchange the characteristics that would announce it.
    NotExchanged,
    /// The extensions of the version settle it, by operations of their own.
    Extensions,
    /// Each call says it for itself (version-two-07, section 6.5).
    EachCall,
    /// Every peer of this version does.
    Version,
    /// The upper layer must find out (RFC 8167, section 6).
    UpperLayer,
    /// The feature does not apply to this end.
    NotApplicable,
}

/// A value with the reason for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WithReason<T> {
    /// The value.
    pub value: T,
    /// The reason.
    pub reason: FeatureReason,
}

/// The features in use on a connection. Formatted with one line for each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Features {
    /// Protocol version.
    pub version: Version,
    /// Whether both ends exchange transport characteristics (2016) or transport properties (the
    /// working group's version 2).
    pub characteristics: WithReason<bool>,
    /// Maximum length in bytes of a message to the peer.
    pub inline_send: WithReason<u32>,
    /// Maximum length in bytes of a message from the peer.
    pub inline_receive: WithReason<u32>,
    /// Whether the peer's replies may invalidate the handles of this end's calls.
    pub invalidated_here: WithReason<bool>,
    /// Whether this end's replies may invalidate the handles of the peer's calls.
    pub invalidated_there: WithReason<bool>,
    /// Support for reverse-direction calls, if this end is the server.
    pub backward: WithReason<ReverseDirection>,
    /// Extensions in use that save round trips, if this end supports any.
    pub round_trips: Option<RoundTrips>,
}

impl Features {
    /// Returns these features with `round_trips`.
    #[must_use]
    pub fn with_round_trips(self, round_trips: Option<RoundTrips>) -> Self {
        Self {
            round_trips,
            ..self
        }
    }
}

/// Chooses the features from the properties of this end and the announcements of the peer.
#[must_use]
pub fn decide_features(have: &OwnProperties, peer: PeerProperties<'_>) -> Features {
    match peer {
        PeerProperties::PrivateData(said) => version_1(have, said),
        PeerProperties::NotSaidYet => version_2(have, None, FeatureReason::NotSaidYet),
        PeerProperties::NoCharacteristics => version_2(have, None, FeatureReason::NotExchanged),
        PeerProperties::Characteristics(peer) => version_2(have, Some(peer), FeatureReason::Both),
    }
}

pub(crate) fn decided<T>(value: T, why: FeatureReason) -> WithReason<T> {
    WithReason { value, reason: why }
}

/// Returns the smaller of two limits, with the reason.
fn smaller(here: u32, peer: u32, peer_why: FeatureReason) -> WithReason<u32> {
    match here < peer {
        true => decided(here, FeatureReason::Here),
        false => decided(peer, peer_why),
    }
}

/// Returns whether both ends support something, and if not, which end does not.
pub(crate) fn both(here: bool, peer: bool, peer_why: FeatureReason) -> WithReason<bool> {
    match (here, peer) {
        (true, true) => decided(true, FeatureReason::Both),
        (false, _) => decided(false, FeatureReason::Here),
        (true, false) => decided(false, peer_why),
    }
}

/// Returns the features in version 1 (RFC 8797, sections 4.1 and 4.2).
fn version_1(have: &OwnProperties, said: Option<PrivateData>) -> Features {
    let why = match said {
        Some(_) => FeatureReason::Peer,
        None => FeatureReason::NotAnnounced,
    };
    let here = have.private_data.unwrap_or_default();
    let peer = said.unwrap_or_default();
    let invalidation = both(here.remote_invalidation(), peer.remote_invalidation(), why);
    // Only the client makes calls and so registers memory.
    let (invalidated_here, invalidated_there) = match have.side {
        Side::Client => (invalidation, decided(false, FeatureReason::NotApplicable)),
        Side::Server => (decided(false, FeatureReason::NotApplicable), invalidation),
    };
    Features {
        version: Version::ONE,
        characteristics: decided(false, FeatureReason::NotExchanged),
        inline_send: smaller(here.send_size(), peer.receive_size(), why),
        inline_receive: smaller(here.receive_size(), peer.send_size(), why),
        invalidated_here,
        invalidated_there,
        backward: match have.side {
            Side::Client => decided(ReverseDirection::None, FeatureReason::NotApplicable),
            Side::Server => decided(ReverseDirection::Inline, FeatureReason::UpperLayer),
        },
        round_trips: None,
    }
}

/// Returns the features in version 2 (xcharext-02, section 3). `why` is the reason to give if the
/// peer's characteristics are unknown.
fn version_2(have: &OwnProperties, peer: Option<&Peer>, why: FeatureReason) -> Features {
    let peer = peer.filter(|_| have.characteristics);
    let why = match have.characteristics {
        true => why,
        false => FeatureReason::Here,
    };
    let Some(peer) = peer else {
        let unknown = decided(false, why);
        return Features {
            version: Version::TWO,
            characteristics: unknown,
            inline_send: smaller(have.max_send, DEFAULT_INLINE, why),
            inline_receive: decided(DEFAULT_INLINE, why),
            invalidated_here: unknown,
            invalidated_there: unknown,
            backward: match have.side {
                Side::Client => decided(ReverseDirection::None, FeatureReason::NotApplicable),
                Side::Server => decided(ReverseDirection::Inline, why),
            },
            round_trips: None,
        };
    };
    let said = |said: bool| match said {
        true => FeatureReason::Peer,
        false => FeatureReason::NotAnnounced,
    };
    let size = peer.said::<ReceiveBufferSize>();
    let invalidation = peer.said::<RequesterRemoteInvalidation>();
    let backward = peer.said::<BackwardRequestSupport>();
    let receives = peer.get::<ReceiveBufferSize>().max(FIRST_MESSAGE_MAX);
    Features {
        version: Version::TWO,
        characteristics: decided(true, FeatureReason::Both),
        inline_send: smaller(have.max_send, receives, said(size.is_some())),
        // A peer that does not announce its own receive size may not have understood this end's.
        inline_receive: match size {
            Some(_) => decided(have.receive_size, FeatureReason::Here),
            None => decided(DEFAULT_INLINE, FeatureReason::NotAnnounced),
        },
        // The peer does not announce whether it will invalidate.
        invalidated_here: decided(have.accept_invalidation, FeatureReason::Here),
        invalidated_there: both(
            have.can_invalidate,
            peer.get::<RequesterRemoteInvalidation>(),
            said(invalidation.is_some()),
        ),
        backward: match have.side {
            Side::Client => decided(ReverseDirection::None, FeatureReason::NotApplicable),
            Side::Server => decided(
                peer.get::<BackwardRequestSupport>().limit(),
                said(backward.is_some()),
            ),
        },
        round_trips: None,
    }
}

impl fmt::Display for FeatureReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Both => "both ends have it",
            Self::Here => "this end's choice",
            Self::Peer => "the peer's choice",
            Self::NotAnnounced => "the peer said nothing of it, which means this",
            Self::NotSaidYet => "the peer has not said yet",
            Self::NotExchanged => "the peer cannot say",
            Self::Extensions => "the extensions say so",
            Self::EachCall => "each call says which handle",
            Self::Version => "every peer of this version does",
            Self::UpperLayer => "for the upper layer to find out",
            Self::NotApplicable => "not for this end",
        })
    }
}

pub(crate) fn yes(value: bool) -> &'static str {
    match value {
        true => "yes",
        false => "no",
    }
}

impl fmt::Display for Features {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let WithReason { value, reason: why } = self.inline_send;
        write!(f, "inline, to the peer: {value} B ({why})")?;
        let WithReason { value, reason: why } = self.inline_receive;
        write!(f, "\ninline, from the peer: {value} B ({why})")?;
        let bools = [
            ("transport characteristics", self.characteristics),
            ("remote invalidation, by the peer", self.invalidated_here),
            ("remote invalidation, by this end", self.invalidated_there),
        ];
        for (name, WithReason { value, reason: why }) in bools {
            if why != FeatureReason::NotApplicable {
                write!(f, "\n{name}: {} ({why})", yes(value))?;
            }
        }
        let WithReason { value, reason: why } = self.backward;
        let value = match value {
            ReverseDirection::None => "no",
            ReverseDirection::Inline => "without chunks",
            ReverseDirection::General => "yes",
        };
        if why != FeatureReason::NotApplicable {
            write!(f, "\nbackward calls: {value} ({why})")?;
        }
        match self.round_trips {
            Some(round_trips) => write!(f, "\n{round_trips}"),
            None => Ok(()),
        }
    }
}
