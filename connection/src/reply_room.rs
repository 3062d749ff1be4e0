//! The maximum lengths of the reply to a call.

use smallvec::SmallVec;
use transfer_plan::ReplyNeed;

/// Bytes of the RPC reply header with an empty verifier: XID, message type, reply status, verifier,
/// accept status (RFC 5531, section 9).
const REPLY_HEADER: u64 = 24;
/// Bytes of the longest reply without results: PROG_MISMATCH with its two version numbers.
const LONGEST_WITHOUT_RESULTS: u64 = REPLY_HEADER + 8;

/// The room that the reply to a call needs, which the upper-layer binding knows before the reply
/// exists (RFC 8166, section 6; RFC 8267, section 3). The default is that of a procedure without
/// results. A longer reply ends the call with [`CallError::Chunk`](crate::CallError::Chunk).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ReplyRoom {
    /// The maximum length of the results, in bytes of XDR, without the data and round-up of
    /// DDP-eligible items. The length word before each item counts; the RPC reply header, which is
    /// not part of the results, does not.
    pub payload: u32,
    /// The maximum length of each DDP-eligible result item, in bytes, in the order in which the
    /// items are decoded.
    pub items: SmallVec<[u32; 1]>,
    /// Whether the call is idempotent: executing it twice has the same effect as executing it once.
    /// If its reply turns out to be longer than this room, such a call is made again with more; any
    /// other ends with [`CallError::Chunk`](crate::CallError::Chunk), because the responder has
    /// executed it (version-two-07, sections 6.6.4, 7.3.4 and 7.3.5). Versions that do not say how
    /// much more is needed do not make use of this.
    pub idempotent: bool,
}

impl ReplyRoom {
    /// Creates the room for results with up to `payload` bytes and items of these lengths. The call
    /// counts as one that is not idempotent.
    #[must_use]
    pub fn new(payload: u32, items: impl IntoIterator<Item = u32>) -> Self {
        Self {
            payload,
            items: items.into_iter().collect(),
            idempotent: false,
        }
    }

    /// Returns the same lengths including the RPC reply header, in the form that plans need.
    #[must_use]
    pub fn need(&self) -> ReplyNeed {
        ReplyNeed {
            payload: (REPLY_HEADER + u64::from(self.payload)).max(LONGEST_WITHOUT_RESULTS),
            // Most calls have none, for which collecting costs more than all else here.
            items: match self.items.is_empty() {
                true => SmallVec::new(),
                false => self.items.iter().map(|&len| u64::from(len)).collect(),
            },
        }
    }
}
