//! Extensions that carry RPC messages (version-two-01, section 4.2.1: all, part of or no payload
//! may follow an optional operation).
//!
//! Sending has three steps. The engine asks each [`Conveyor`] for a [`Candidate`] and compares
//! costs, with those of the base among them; it has the memory registered that the chosen one
//! wants; then it has the message cut into [`Transmissions`], which go out back to back. Nobody is
//! asked about a message that the base can send in one plain transmission without chunks: nothing
//! costs less.
//!
//! Receiving has none: the extension collects its operations and hands over a [`Conveyed`].

use std::any::Any;
use std::fmt;

use bytes::Bytes;
use conveyance::{Limits, ReplyNeed, Shape};
use onc_rpc::{Message, Segments};
use rpcrdma_chunks::{CallChunks, Chunks};
use smallvec::SmallVec;

use crate::{Direction, ErrorBody};

/// A call to be planned.
#[derive(Clone, Copy, Debug)]
pub struct CallToPlan<'a> {
    /// Its lengths.
    pub shape: &'a Shape,
    /// The longest that its reply can be.
    pub need: &'a ReplyNeed,
    /// The connection's limits.
    pub limits: &'a Limits,
    /// Credits that the peer grants: no call can have more transmissions.
    pub credits: u32,
}

/// A reply to be planned.
#[derive(Clone, Copy, Debug)]
pub struct ReplyToPlan<'a> {
    /// Its lengths.
    pub shape: &'a Shape,
    /// The connection's limits.
    pub limits: &'a Limits,
    /// What the extension kept of the call: [`IncomingCall::context`].
    pub context: &'a (dyn Any + Send),
}

/// What a plan is decided by, beside the registrations that its memory takes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cost {
    /// Messages to the peer; as many credits, if it is a call.
    pub transmissions: u32,
    /// Further receives to post before the call is sent, for a reply in several transmissions.
    pub receives: u32,
    /// Bytes of all transmissions.
    pub wire_bytes: u64,
}

/// How a message is to be laid out: an extension's own, printed in logs and by `explain`.
pub trait Planned: Any + fmt::Debug + fmt::Display + Send {}

impl<T: Any + fmt::Debug + fmt::Display + Send> Planned for T {}

/// A way to convey one message.
#[derive(Debug)]
pub struct Candidate {
    /// What it costs.
    pub cost: Cost,
    /// Of a call: items, by index, that the peer is to fetch by RDMA Read. Of a reply: items to be
    /// placed by RDMA Write, in the order of the write chunks they take.
    pub explicit: SmallVec<[usize; 1]>,
    /// Of a call: bytes of each write chunk to register for the reply.
    pub write_chunks: SmallVec<[u64; 1]>,
    /// Of a call: bytes of a reply chunk to register.
    pub reply_chunk: Option<u64>,
    /// The layout.
    pub plan: Box<dyn Planned>,
}

/// One message to the peer. The engine adds XID, credits and direction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Transmission {
    /// `rdma_opttype`.
    pub opttype: u32,
    /// `rdma_optinfo`.
    pub info: Bytes,
    /// What follows the header.
    pub payload: Segments,
}

/// The messages of a group, in order. Nothing may go between them.
pub type Transmissions = SmallVec<[Transmission; 1]>;

/// A message cannot be conveyed as planned: it is conveyed in another way.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct NotConveyed(
    /// Why, for the log.
    pub String,
);

/// An extension's way of carrying RPC messages.
pub trait Conveyor {
    /// A way to convey this call, if there is one at present.
    fn plan_call(&self, call: &CallToPlan<'_>) -> Option<Candidate>;

    /// Lays out a call as planned. `chunks` is the memory that was registered: read segments by the
    /// positions of their items, write chunks and reply chunk as the candidate had them.
    ///
    /// # Errors
    /// The connection has changed since the plan was made; the call is planned again.
    fn send_call(
        &mut self,
        xid: u32,
        plan: Box<dyn Planned>,
        message: &Message,
        chunks: &Chunks,
    ) -> Result<Transmissions, NotConveyed>;

    /// A way to convey the reply to a call that this extension brought.
    fn plan_reply(&self, reply: &ReplyToPlan<'_>) -> Option<Candidate>;

    /// Lays out a reply as planned; its explicit items are written before it is sent.
    ///
    /// # Errors
    /// As for calls.
    fn send_reply(
        &mut self,
        xid: u32,
        plan: Box<dyn Planned>,
        message: &Message,
    ) -> Result<Transmissions, NotConveyed>;

    /// The peer answered a call that this extension sent with an error of the base. After
    /// RDMA2_ERR_INVAL_OPTION the call is sent again in another way, and should not be offered this
    /// one.
    fn call_refused(&mut self, xid: u32, error: ErrorBody) {
        let _ = (xid, error);
    }

    /// A call that this extension sent has ended, answered or not: what was kept for it can go.
    fn call_ended(&mut self, xid: u32) {
        let _ = xid;
    }
}

/// An RPC message that arrived in operations, or word of one.
#[derive(Debug)]
pub enum Conveyed {
    /// A call.
    Call(IncomingCall),
    /// A reply.
    Reply(IncomingReply),
    /// The peer could not use what was sent for the message with this XID: it is to be sent in
    /// another way, or to fail.
    Rejected {
        /// Of the message.
        xid: u32,
        /// Whether it was a call or a reply.
        direction: Direction,
        /// Why, for the log.
        reason: String,
    },
}

/// A call that arrived in operations.
#[derive(Debug)]
pub struct IncomingCall {
    /// Its XID.
    pub xid: u32,
    /// Credits that it asks for.
    pub requested: u32,
    /// Messages that it came in: as many credits.
    pub transmissions: u32,
    /// From its XID on, with the items that are here.
    pub message: Message,
    /// Chunks that are still to be fetched, and those for the reply. Checked.
    pub chunks: CallChunks,
    /// What the extension needs to plan the reply.
    pub context: Box<dyn Any + Send>,
}

/// A reply that arrived in operations.
#[derive(Debug)]
pub struct IncomingReply {
    /// Its XID.
    pub xid: u32,
    /// Credits that it grants.
    pub granted: u32,
    /// From its XID on, with the items that came in it.
    pub message: Message,
    /// Bytes placed in each write chunk that its call offered, in order.
    pub writes: SmallVec<[u64; 1]>,
}
