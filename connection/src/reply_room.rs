//! How long the reply to a call can be.

use conveyance::ReplyNeed;
use smallvec::SmallVec;

/// Bytes of the RPC reply header with an empty verifier: XID, message type, reply status, verifier,
/// accept status (RFC 5531, section 9).
const REPLY_HEADER: u64 = 24;
/// Bytes of the longest reply without results: PROG_MISMATCH with its two version numbers.
const LONGEST_WITHOUT_RESULTS: u64 = REPLY_HEADER + 8;

/// The room that the reply to a call needs, which the upper-layer binding knows before the reply
/// exists (RFC 8166, section 6; RFC 8267, section 2.2). The default is that of a procedure without
/// results. A longer reply ends the call with [`CallError::Chunk`](crate::CallError::Chunk).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ReplyRoom {
    /// Bytes of XDR that the results take at most, without the data and round-up of DDP-eligible items.
    /// The length word before each item counts; the RPC reply header, which is not part of the results,
    /// does not.
    pub payload: u32,
    /// Bytes that each DDP-eligible result item has at most, in the order in which the items are
    /// decoded.
    pub items: SmallVec<[u32; 1]>,
}

impl ReplyRoom {
    /// Returns the same lengths with the RPC reply header added, as plans want them.
    #[must_use]
    pub fn need(&self) -> ReplyNeed {
        ReplyNeed {
            payload: (REPLY_HEADER + u64::from(self.payload)).max(LONGEST_WITHOUT_RESULTS),
            items: self.items.iter().map(|&len| u64::from(len)).collect(),
        }
    }
}
