//! The limits of a connection, as its version and its extensions know them.

/// Inline threshold in bytes of both versions 2, in both directions, until the peer announces
/// another one (version-two-01, section 2.3; version-two-07, section 4.2.2). Every receiver takes
/// messages of this length.
pub const DEFAULT_INLINE: u32 = 4096;
/// Maximum length in bytes of a client's first message in both versions 2: the inline threshold of
/// version 1, as the server may know that version alone (version-two-01, section 5; version-two-07,
/// section 4.3).
pub const FIRST_MESSAGE_MAX: u32 = 1024;

/// The peer's support for reverse-direction calls, sent by a server to a client (RFC 8167).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ReverseDirection {
    /// No reverse-direction calls.
    None,
    /// Reverse-direction calls and replies without chunks.
    Inline,
    /// Reverse-direction calls and replies with chunks, as in the forward direction.
    General,
}

/// The connection's limits, as the base protocol and the extensions know them. Transfer plans are
/// made from them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConnectionLimits {
    /// Maximum length in bytes of a message to the peer, transport header included.
    pub inline_send: u32,
    /// Maximum length in bytes of a reply to a call that provided no means to return a reply longer
    /// than [`ConnectionLimits::inline_send`]. `None` while the size is being negotiated with the
    /// peer; such a reply waits.
    pub reply_last_resort: Option<u32>,
    /// Maximum length in bytes of a message that the peer knows it may send to this side.
    pub inline_receive: u32,
    /// Whether replies to this side may invalidate a handle of their calls (Send With Invalidate).
    pub may_invalidate: bool,
    /// The peer's support for reverse-direction calls, if the peer is the client.
    pub reverse_direction: ReverseDirection,
    /// Maximum length in bytes of a segment that the peer accepts, if it has a limit of its own.
    pub max_segment: Option<u32>,
    /// Maximum number of segments in the header of a call that the peer accepts, if it has a limit.
    pub max_segments: Option<u32>,
}

impl Default for ConnectionLimits {
    /// Returns the limits of a connection without extensions (version-two-01,
    /// sections 2.3 and 4.2.2; RFC 8167, section 5.3).
    fn default() -> Self {
        Self {
            inline_send: DEFAULT_INLINE,
            reply_last_resort: Some(DEFAULT_INLINE),
            inline_receive: DEFAULT_INLINE,
            may_invalidate: false,
            reverse_direction: ReverseDirection::Inline,
            max_segment: None,
            max_segments: None,
        }
    }
}

/// A change of the length of receives while the connection is open.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReceiveChange {
    /// This end's receives are replaced by longer ones, of so many bytes, as they are consumed, and the
    /// peer is told when all are replaced.
    Raise(u32),
    /// The peer is asked for receives of so many bytes.
    Request(u32),
}

/// The reason why a change of the length of receives was not started.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NotChanged {
    /// The peer has not announced its properties yet.
    #[error("the peer has not announced its characteristics yet")]
    NotSettled,
    /// The peer does not support the operation that the change needs.
    #[error("the peer does not support that operation")]
    NotSupported,
    /// Another change is in progress, or the value is out of bounds or already in effect.
    #[error("another change is in progress, or the size is out of range")]
    NotPossible,
    /// The peer announced that this property does not change.
    #[error("characteristic {0} does not change")]
    Fixed(u32),
}
