//! What a requester and its driver say to each other.

use onc_rpc::{Message, Segments};
use rdma::{Pool, Region, Stag};

use crate::CallError;

/// A registration: which of which call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct RegId {
    pub(super) call: usize,
    pub(super) index: usize,
}

/// Receives for the reply to a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ReservationId {
    pub(super) call: usize,
}

/// What the requester's driver must do, in the order given.
#[derive(Debug)]
pub enum RequesterAction {
    /// Register this memory; [`Requester::registered`](super::Requester::registered) answers.
    Register {
        /// For the answer.
        id: RegId,
        /// The memory.
        region: Region,
    },
    /// Post so many receives beyond those that there are;
    /// [`Requester::reserved`](super::Requester::reserved) answers.
    Reserve {
        /// For the answer.
        id: ReservationId,
        /// How many.
        receives: u32,
    },
    /// So many receives, of those that were posted further, need not be replaced when they are used.
    Release {
        /// How many.
        receives: u32,
    },
    /// Send this message. Those of a group stand one after the other, and nothing may come between.
    Send {
        /// Header and payload.
        gather: Segments,
    },
    /// Invalidate this handle, then take its memory back;
    /// [`Requester::reclaimed`](super::Requester::reclaimed) answers.
    Invalidate {
        /// For the answer.
        id: RegId,
        /// The handle.
        stag: Stag,
    },
    /// Take back the memory of this handle, which the responder invalidated;
    /// [`Requester::reclaimed`](super::Requester::reclaimed) answers.
    Reclaim {
        /// For the answer.
        id: RegId,
        /// The handle.
        stag: Stag,
    },
    /// A reply for the upper layer.
    Deliver {
        /// Of which call.
        xid: u32,
        /// From its XID on, items in order of their write chunks.
        message: Message,
    },
    /// A call ended without a reply.
    Fail {
        /// Which.
        xid: u32,
        /// Why.
        error: CallError,
    },
}

/// What a requester is made with.
#[derive(Clone, Debug)]
pub struct RequesterConfig {
    /// Most calls outstanding; receives for their replies are posted.
    pub credits: u32,
    /// Where memory for results comes from.
    pub pool: Pool,
}

/// Things worth counting that end no call.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RequesterCounters {
    /// Replies to calls that are not there (any more).
    pub unknown_xid: u64,
    /// Messages that had to be discarded silently (RFC 8166, section 4.5).
    pub discarded: u64,
    /// Replies to calls that had been cancelled.
    pub cancelled_replies: u64,
    /// Most calls outstanding at the same time.
    pub most_in_flight: u32,
    /// Bytes of calls and results copied to bring them into one piece: the payload of a Long Call
    /// that is in several.
    pub copied_bytes: u64,
}
