//! What a responder and its driver say to each other.

use conveyance::Limits;
use onc_rpc::{Message, Segments};
use rdma::{Buf, Pool, Stag};
use rpcrdma_negotiation::Version;

/// An RDMA Read: which piece of which chunk of which call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ReadId {
    pub(super) call: usize,
    pub(super) chunk: usize,
    pub(super) piece: usize,
}

/// What the responder's driver must do, in the order given.
#[derive(Debug)]
pub enum ResponderAction {
    /// Start an RDMA Read; [`Responder::read_done`](super::Responder::read_done) answers.
    Read {
        /// For the answer.
        id: ReadId,
        /// Where the bytes go.
        sink: Buf,
        /// The requester's handle.
        stag: Stag,
        /// Tagged offset of the first byte.
        offset: u64,
    },
    /// Start an RDMA Write.
    Write {
        /// The bytes.
        gather: Segments,
        /// The requester's handle.
        stag: Stag,
        /// Tagged offset of the first byte.
        offset: u64,
    },
    /// Send this message.
    Send {
        /// Header and payload.
        gather: Segments,
        /// The requester's handle to invalidate with it.
        invalidate: Option<Stag>,
        /// It is a part of a reply, and more Sends for that follow.
        more: bool,
    },
    /// A call for the upper layer; [`Responder::reply`](super::Responder::reply) answers.
    Deliver {
        /// For the answer.
        token: u64,
        /// From its XID on.
        message: Message,
    },
    /// End the connection.
    Close {
        /// Why, for the log.
        reason: String,
    },
}

/// What a responder is made with.
#[derive(Clone, Debug)]
pub struct ResponderConfig {
    /// Version of the connection's headers.
    pub version: Version,
    /// Credits to grant at most; receives for as many calls are posted.
    pub credits: u32,
    /// Bytes that calls which are not answered may hold in fetched chunks together. Calls beyond
    /// that wait.
    pub max_fetched: u64,
    /// RDMA Reads outstanding at most.
    pub outbound_reads: u32,
    /// Whether both sides agreed on remote invalidation (RFC 8797, section 4.1).
    pub remote_invalidation: bool,
    /// Limits of the connection; `max_message` is the longest call taken.
    pub limits: Limits,
    /// Where memory for chunks comes from.
    pub pool: Pool,
}

/// Things worth counting.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ResponderCounters {
    /// Calls that were answered with RDMA_ERROR.
    pub errors_sent: u64,
    /// Messages that had to be discarded silently (RFC 8166, section 4.5).
    pub discarded: u64,
    /// Most calls in process at the same time.
    pub most_outstanding: u32,
}
