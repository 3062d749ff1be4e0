//! Extensions that carry RPC messages (version-two-01, section 4.2.1: all, part of or no payload
//! may follow an optional operation).
//!
//! Sending has three steps. The engine asks each [`Conveyor`] for its candidates and compares costs,
//! with those of the base among them; it has the memory registered that the chosen one wants; then
//! it has the message cut into [`Transmissions`], which go out back to back. Nobody is asked about a
//! message without bulk items, either way, that the base can send in one plain transmission without
//! chunks: nothing costs less.
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
    /// Further receives that can be posted for its reply, at most.
    pub reservable: u32,
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

/// What a plan is decided by, beside the explicit RDMA operations and registrations that its lists
/// say.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cost {
    /// Messages to the peer; as many credits, if it is a call.
    pub transmissions: u32,
    /// Bytes of all transmissions, headers and padding included.
    pub wire_bytes: u64,
    /// Bytes of bulk items that arrive within a payload stream, and so not where their receiver
    /// wants them: of the message, and of the longest reply to it.
    pub unplaced: u64,
    /// Messages with bulk items that transmissions place: of this one, and of the longest reply to it.
    pub placed: u32,
    /// Of a call: further receives to post before it is sent, for a reply in several transmissions.
    pub receives: u32,
    /// Of a call: messages that its reply comes in, at most.
    pub reply_transmissions: u32,
    /// Of a call: bytes of all transmissions of its reply, at most.
    pub reply_wire_bytes: u64,
}

/// How a message is to be laid out: an extension's own, printed in logs and by `explain`.
pub trait Planned: Any + fmt::Debug + fmt::Display + Send {}

impl<T: Any + fmt::Debug + fmt::Display + Send> Planned for T {}

/// A way to convey a call.
#[derive(Debug)]
pub struct CallCandidate {
    /// What it costs.
    pub cost: Cost,
    /// Items, by index, that the peer is to fetch by RDMA Read.
    pub reads: SmallVec<[usize; 1]>,
    /// Bytes of each write chunk to register for the reply.
    pub write_chunks: SmallVec<[u64; 1]>,
    /// Bytes of a reply chunk to register.
    pub reply_chunk: Option<u64>,
    /// The layout.
    pub plan: Box<dyn Planned>,
}

/// A way to convey a reply.
#[derive(Debug)]
pub struct ReplyCandidate {
    /// What it costs.
    pub cost: Cost,
    /// Items, by index, that are to be placed by RDMA Write, each with the number of its write
    /// chunk among those of [`IncomingCall::chunks`].
    pub writes: SmallVec<[(usize, usize); 1]>,
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
    /// The ways to convey this call that there are at present, none or more.
    fn plan_call(&self, call: &CallToPlan<'_>) -> Vec<CallCandidate>;

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

    /// The ways to convey the reply to a call that this extension brought. Where there is none, and
    /// the base cannot send it without chunks either, the answer is RDMA2_ERR_BAD_HEADER.
    fn plan_reply(&self, reply: &ReplyToPlan<'_>) -> Vec<ReplyCandidate>;

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
    /// The peer could not use what was sent for the message with this XID. A call is to be sent in
    /// another way, or to fail. Of a reply, the requester is to be told that there will be none
    /// (RDMA2_ERR_BAD_HEADER), so that it does not wait for it.
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
    /// Messages that it came in: all but one were received where [`Cost::receives`] had some
    /// posted.
    pub transmissions: u32,
    /// From its XID on, with the items that came in it.
    pub message: Message,
    /// What became of each write chunk that its call offered, in order: nothing if it is unused.
    /// The items belong into the message, in the order of their positions.
    pub writes: SmallVec<[Option<Written>; 1]>,
}

/// An item of a reply that was placed by RDMA Write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Written {
    /// Where it belongs: [`onc_rpc::Position::At`].
    pub position: u32,
    /// Its bytes.
    pub len: u64,
}
