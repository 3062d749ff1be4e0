//! The use of rtrext-00 (send-based placement and message continuation) on a connection, and the
//! reasons for it.

use std::fmt;

use rpcrdma_ext_continuation::{
    Config, PeerAnnouncements, RequestReceiveLimit, ResponseSendLimit, decide,
};
use rpcrdma_ext_send_ddp::{ReceiveBufferStructure, RoundTripSupport};
use rpcrdma_ext_xchar::{Characteristic, Peer};
use rpcrdma_v2::Side;

use crate::features::{both, decided, yes};
use crate::{FeatureReason, PeerProperties, WithReason};

/// Placement by Sends and message continuation in use, for calls from client to server and for their
/// replies: of rtrext-00 in version 2 of 2016, and of this project's extension and the continued
/// format in the working group's version 2.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RoundTrips {
    /// Whether this end's Sends place bulk data at the peer.
    pub placed_there: WithReason<bool>,
    /// Whether the peer's Sends place bulk data at this end.
    pub placed_here: WithReason<bool>,
    /// Maximum number of transmissions of a call; `u32::MAX` if there is none.
    pub call_transmissions: WithReason<u32>,
    /// Maximum number of transmissions of a reply; `u32::MAX` if there is none.
    pub reply_transmissions: WithReason<u32>,
}

/// Chooses the features from this end's configuration and the peer's announcements. Returns `None`
/// in version 1.
#[must_use]
pub fn decide_round_trips(
    side: Side,
    own: &Config,
    peer: PeerProperties<'_>,
) -> Option<RoundTrips> {
    let nothing = |why| RoundTrips {
        placed_there: decided(false, why),
        placed_here: decided(false, why),
        call_transmissions: decided(1, why),
        reply_transmissions: decided(1, why),
    };
    match peer {
        PeerProperties::PrivateData(_) => None,
        PeerProperties::NotSaidYet => Some(nothing(FeatureReason::NotSaidYet)),
        PeerProperties::NoCharacteristics => Some(nothing(FeatureReason::NotExchanged)),
        PeerProperties::Characteristics(peer) => Some(from_both(side, own, peer)),
    }
}

fn from_both(side: Side, own: &Config, peer: &Peer) -> RoundTrips {
    let usable = decide(own, &PeerAnnouncements::of(peer));
    let (ddp, cont) = (own.features.ddp, own.features.cont);
    let up_to = |here: bool, limit: u32, why| match here {
        true => decided(limit, why),
        false => decided(1, FeatureReason::Here),
    };
    let structure = said::<ReceiveBufferStructure>(peer);
    let placed_there = both(ddp.send, usable.place, structure);
    match side {
        Side::Client => RoundTrips {
            placed_there,
            placed_here: both(
                ddp.receive,
                usable.placed_replies,
                said::<RoundTripSupport>(peer),
            ),
            call_transmissions: up_to(
                cont.send,
                usable.call_transmissions,
                said::<RequestReceiveLimit>(peer),
            ),
            reply_transmissions: up_to(
                cont.receive,
                usable.reply_transmissions,
                said::<ResponseSendLimit>(peer),
            ),
        },
        // The client chooses the transfer mode of its calls and the limits of their replies.
        Side::Server => RoundTrips {
            placed_there,
            placed_here: decided(ddp.receive, FeatureReason::Here),
            call_transmissions: decided(own.max_call_transmissions(), FeatureReason::Here),
            reply_transmissions: decided(own.max_reply_transmissions(), FeatureReason::Here),
        },
    }
}

/// Returns the reason for a value that the peer announces with the characteristic `C`.
fn said<C: Characteristic>(peer: &Peer) -> FeatureReason {
    match peer.said::<C>() {
        Some(_) => FeatureReason::Peer,
        None => FeatureReason::NotAnnounced,
    }
}

impl fmt::Display for RoundTrips {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let WithReason { value, reason: why } = self.placed_there;
        write!(
            f,
            "bulk data placed by Sends, to the peer: {} ({why})",
            yes(value)
        )?;
        let WithReason { value, reason: why } = self.placed_here;
        write!(
            f,
            "\nbulk data placed by Sends, from the peer: {} ({why})",
            yes(value)
        )?;
        let counts = [
            ("call", self.call_transmissions),
            ("reply", self.reply_transmissions),
        ];
        for (message, WithReason { value, reason: why }) in counts {
            match value {
                u32::MAX => write!(f, "\ntransmissions of a {message}: any number ({why})")?,
                value => write!(f, "\ntransmissions of a {message}: up to {value} ({why})")?,
            }
        }
        Ok(())
    }
}
