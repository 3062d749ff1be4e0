//! The features that both ends of a connection have agreed on, each with its reason.
//!
//! The version of a connection lists the features that all versions have. After that, each extension
//! adds its own features, and replaces the values that it knows better ([`Extension::agreed`]).
//!
//! [`Extension::agreed`]: crate::Extension::agreed

use std::fmt;

use crate::ReverseDirection;

/// The maximum length of a message to the peer.
pub const INLINE_SEND: &str = "inline, to the peer";
/// The maximum length of a message from the peer.
pub const INLINE_RECEIVE: &str = "inline, from the peer";
/// Whether both ends announce their properties in messages of the version or of an extension.
pub const CHARACTERISTICS: &str = "transport characteristics";
/// Whether the peer's replies may invalidate handles of this end's calls.
pub const INVALIDATED_HERE: &str = "remote invalidation, by the peer";
/// Whether this end's replies may invalidate handles of the peer's calls.
pub const INVALIDATED_THERE: &str = "remote invalidation, by this end";
/// A client's support for calls from server to client. Only servers have this feature.
pub const BACKWARD_CALLS: &str = "backward calls";
/// Whether this end's Sends place bulk data at the peer.
pub const PLACED_THERE: &str = "bulk data placed by Sends, to the peer";
/// Whether the peer's Sends place bulk data at this end.
pub const PLACED_HERE: &str = "bulk data placed by Sends, from the peer";
/// The maximum number of messages in which a call is sent.
pub const CALL_TRANSMISSIONS: &str = "transmissions of a call";
/// The maximum number of messages in which a reply is sent.
pub const REPLY_TRANSMISSIONS: &str = "transmissions of a reply";

/// The reason for the value of an [`AgreedFeature`].
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
}

/// The value of an [`AgreedFeature`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FeatureValue {
    /// Whether the feature is in use.
    InUse(bool),
    /// A length in bytes.
    Bytes(u32),
    /// A maximum number; `u32::MAX` if there is none.
    UpTo(u32),
    /// A word, for a feature with more than two values.
    Text(&'static str),
}

impl From<bool> for FeatureValue {
    fn from(value: bool) -> Self {
        Self::InUse(value)
    }
}

impl From<ReverseDirection> for FeatureValue {
    fn from(value: ReverseDirection) -> Self {
        Self::Text(match value {
            ReverseDirection::None => "no",
            ReverseDirection::Inline => "without chunks",
            ReverseDirection::General => "yes",
        })
    }
}

/// One feature of a connection. Formatted as one line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AgreedFeature {
    /// The name, which no other feature of the connection has.
    pub name: &'static str,
    /// The value.
    pub value: FeatureValue,
    /// The reason for the value.
    pub reason: FeatureReason,
}

/// The features of a connection, each with its reason. Features that do not apply to an end are not
/// listed. Formatted with one line for each feature.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AgreedFeatures(Vec<AgreedFeature>);

impl AgreedFeatures {
    /// Replaces the feature with this name by one with this value and reason, or adds it to the end of
    /// the list.
    pub fn set(
        &mut self,
        name: &'static str,
        (value, reason): (impl Into<FeatureValue>, FeatureReason),
    ) {
        let value = value.into();
        let feature = AgreedFeature {
            name,
            value,
            reason,
        };
        match self.0.iter_mut().find(|feature| feature.name == name) {
            Some(listed) => *listed = feature,
            None => self.0.push(feature),
        }
    }

    /// Returns the features in the order in which they were added.
    pub fn iter(&self) -> impl Iterator<Item = &AgreedFeature> {
        self.0.iter()
    }

    /// Returns the value of the feature with this name and the reason for it.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<(FeatureValue, FeatureReason)> {
        let feature = self.iter().find(|feature| feature.name == name);
        feature.map(|feature| (feature.value, feature.reason))
    }

    /// Returns the value of the feature with this name.
    #[must_use]
    pub fn value(&self, name: &str) -> Option<FeatureValue> {
        self.get(name).map(|(value, _)| value)
    }

    /// Returns the reason why the properties of the peer are not known, or `None` if they are
    /// ([`CHARACTERISTICS`]).
    #[must_use]
    pub fn peer_unknown(&self) -> Option<FeatureReason> {
        match self.get(CHARACTERISTICS) {
            Some((FeatureValue::InUse(true), _)) => None,
            Some((_, reason)) => Some(reason),
            None => Some(FeatureReason::NotExchanged),
        }
    }
}

/// Returns the smaller of the limits of both ends, in bytes, with the reason. `peer_reason` is the
/// reason for the peer's limit.
#[must_use]
pub fn smaller(here: u32, peer: u32, peer_reason: FeatureReason) -> (FeatureValue, FeatureReason) {
    match here < peer {
        true => (FeatureValue::Bytes(here), FeatureReason::Here),
        false => (FeatureValue::Bytes(peer), peer_reason),
    }
}

/// Returns whether both ends support something, and if not, which end does not. `peer_reason` is the
/// reason why the peer does not.
#[must_use]
pub fn both(here: bool, peer: bool, peer_reason: FeatureReason) -> (bool, FeatureReason) {
    match (here, peer) {
        (true, true) => (true, FeatureReason::Both),
        (false, _) => (false, FeatureReason::Here),
        (true, false) => (false, peer_reason),
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
        })
    }
}

impl fmt::Display for FeatureValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::InUse(true) => f.write_str("yes"),
            Self::InUse(false) => f.write_str("no"),
            Self::Bytes(bytes) => write!(f, "{bytes} B"),
            Self::UpTo(u32::MAX) => f.write_str("any number"),
            Self::UpTo(most) => write!(f, "up to {most}"),
            Self::Text(text) => f.write_str(text),
        }
    }
}

impl fmt::Display for AgreedFeature {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            name,
            value,
            reason,
        } = self;
        write!(f, "{name}: {value} ({reason})")
    }
}

impl fmt::Display for AgreedFeatures {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, feature) in self.iter().enumerate() {
            let before = if at == 0 { "" } else { "\n" };
            write!(f, "{before}{feature}")?;
        }
        Ok(())
    }
}
