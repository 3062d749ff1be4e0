//! Extensions that carry RPC messages (version-two-01, section 4.2.1: an optional operation may be
//! followed by all, part or none of the payload).
//!
//! An RPC message is sent in three steps. The engine asks each [`TransferMode`] for its candidates
//! and compares their costs with each other and with those of the base protocol. It registers the
//! memory that the chosen candidate needs. Then it has the message divided into [`Transmissions`],
//! which are sent back to back. A message without bulk items in either direction that fits one
//! plain transmission without chunks is offered to those extensions alone that claim such messages
//! ([`TransferMode::claims_small_calls`]): no other transfer mode costs less.
//!
//! On receipt the extension collects its messages by itself and delivers a [`Transferred`].

use std::any::Any;
use std::fmt;
use std::sync::Arc;

use bytes::Bytes;
use onc_rpc::{Extras, Message, Segments};
use rpcrdma_chunks::{CallChunks, Chunks, Direction, WriteChunk};
use smallvec::SmallVec;
use transfer_plan::{ChunkCounts, Limits, ReplyNeed, Shape};

use crate::{PeerError, ReceivedMessage};

/// A call for which a transfer mode is to be planned.
#[derive(Clone, Copy, Debug)]
pub struct CallToPlan<'a> {
    /// Lengths of the call's payload and bulk items.
    pub shape: &'a Shape,
    /// Upper bounds for the lengths of the reply.
    pub need: &'a ReplyNeed,
    /// The values that its caller attached to the call, for extensions that carry them. Calls that have
    /// some are planned each time, and never sent together with others.
    pub extras: &'a Extras,
    /// Limits of the connection.
    pub limits: &'a Limits,
    /// Credits that the peer grants; an upper bound for the number of transmissions of a call,
    /// unless it may wait in between ([`Cost::may_wait`]).
    pub credits: u32,
    /// Number of messages that this end can receive as replies now, where each takes a credit of
    /// its own. A longer reply waits in between.
    pub reply_credits: u32,
    /// Maximum number of additional receives that can be posted for the reply.
    pub reservable: u32,
}

impl CallToPlan<'_> {
    /// Returns a candidate with one message for the call, behind a header of `header` bytes, and a
    /// reply of the base protocol. Returns `None` if one of them has items or is too long for that.
    #[must_use]
    pub fn in_one_message(&self, header: u64, plan: Arc<dyn Planned>) -> Option<CallCandidate> {
        let limits = self.limits;
        let len = header.checked_add(self.shape.stream_len())?;
        let reply_header = (limits.header_len)(&ChunkCounts::default());
        let reply = reply_header.checked_add(self.need.stream_len())?;
        let fits = self.shape.items().is_empty()
            && self.need.items.is_empty()
            && len <= limits.inline_send
            && reply <= limits.inline_receive;
        fits.then(|| CallCandidate {
            cost: Cost {
                transmissions: 1,
                wire_bytes: len,
                reply_transmissions: 1,
                reply_wire_bytes: reply,
                ..Cost::default()
            },
            reads: SmallVec::new(),
            write_chunks: SmallVec::new(),
            reply_chunk: None,
            plan,
        })
    }
}

/// A reply for which a transfer mode is to be planned.
#[derive(Clone, Copy, Debug)]
pub struct ReplyToPlan<'a> {
    /// Lengths of the reply's payload and bulk items.
    pub shape: &'a Shape,
    /// Number of messages that the requester can receive now, where each takes a credit of its own.
    pub credits: u32,
    /// Limits of the connection.
    pub limits: &'a Limits,
    /// The data that the extension stored with the call when it arrived
    /// ([`IncomingCall::context`]).
    pub context: &'a (dyn Any + Send),
}

/// The cost of a candidate, apart from the explicit RDMA operations and registrations, which follow
/// from the candidate's lists.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cost {
    /// Number of messages to the peer. A call takes as many credits.
    pub transmissions: u32,
    /// Whether the first transmissions of a call may be sent before the peer can receive all of
    /// them. Otherwise the call is planned again if it turns out that the peer can receive fewer.
    pub may_wait: bool,
    /// Length in bytes of all transmissions, headers and padding included.
    pub wire_bytes: u64,
    /// Bytes of bulk items that arrive inside a payload stream, so that the receiver has to copy
    /// them: of the message and of the longest reply to it.
    pub unplaced: u64,
    /// Number of RPC messages whose bulk items are placed by transmissions without a copy: this
    /// message, and the longest reply to it.
    pub placed: u32,
    /// For a call: number of additional receives to post before it is sent, so that its reply may
    /// come in several transmissions.
    pub receives: u32,
    /// For a call: maximum number of messages in which its reply arrives.
    pub reply_transmissions: u32,
    /// For a call: maximum length in bytes of all transmissions of its reply.
    pub reply_wire_bytes: u64,
}

/// An extension's own description of the layout of a message, printed in logs and by `explain`.
/// Messages that are alike share one.
pub trait Planned: Any + fmt::Debug + fmt::Display + Send + Sync {}

impl<T: Any + fmt::Debug + fmt::Display + Send + Sync> Planned for T {}

impl dyn Planned {
    /// Returns the plan as `P`, the type of the extension that made it.
    ///
    /// # Errors
    /// [`NotTransferred`]: the plan is of another type.
    pub fn of<P: Any>(&self) -> Result<&P, NotTransferred> {
        let any: &dyn Any = self;
        any.downcast_ref()
            .ok_or_else(|| NotTransferred("a plan that is not this extension's".to_owned()))
    }
}

/// A transfer mode for a call, offered by an extension.
#[derive(Clone, Debug)]
pub struct CallCandidate {
    /// Cost of this transfer mode.
    pub cost: Cost,
    /// Indexes of the items that the peer fetches by RDMA Read.
    pub reads: SmallVec<[usize; 1]>,
    /// Length in bytes of each write chunk to register for the reply.
    pub write_chunks: SmallVec<[u64; 1]>,
    /// Length in bytes of the reply chunk to register, if any.
    pub reply_chunk: Option<u64>,
    /// Layout of the message.
    pub plan: Arc<dyn Planned>,
}

impl CallCandidate {
    /// Returns the number of messages in which the call is sent: one at least, as a call without messages
    /// would take no credit.
    #[must_use]
    pub fn messages(&self) -> u32 {
        self.cost.transmissions.max(1)
    }

    /// Returns whether the call can be sent as it is: no memory is registered, and no further receives are
    /// posted for its reply.
    #[must_use]
    pub fn needs_no_preparation(&self) -> bool {
        self.reads.is_empty()
            && self.write_chunks.is_empty()
            && self.reply_chunk.is_none()
            && self.cost.receives == 0
    }
}

/// A transfer mode for a reply, offered by an extension.
#[derive(Clone, Debug)]
pub struct ReplyCandidate {
    /// Cost of this transfer mode.
    pub cost: Cost,
    /// Items to be placed by RDMA Write: the index of each item, and the index of its write chunk
    /// in [`IncomingCall::chunks`].
    pub writes: SmallVec<[(usize, usize); 1]>,
    /// Layout of the message. If all candidates have the same `Arc`s as those for the previous reply, the
    /// engine repeats its choice without comparing costs. A reused `Arc` must therefore come with the same
    /// `cost` and `writes`.
    pub plan: Arc<dyn Planned>,
}

/// The transfer modes for a reply. There is rarely more than one.
pub type ReplyCandidates = SmallVec<[ReplyCandidate; 1]>;

/// One message to the peer. The engine adds XID, credits and direction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Transmission {
    /// Number of the message.
    pub number: u32,
    /// The fields of the message as XDR.
    pub fields: Bytes,
    /// Payload that follows the header.
    pub payload: Segments,
    /// Number of zero bytes between `payload` and `placed`, so that `placed` begins at a segment of the
    /// peer's receive.
    pub padding: u32,
    /// Bulk data behind the padding.
    pub placed: Segments,
}

impl Transmission {
    /// Creates a message with nothing but payload behind its header.
    #[must_use]
    pub fn new(number: u32, fields: Bytes, payload: Segments) -> Self {
        Self {
            number,
            fields,
            payload,
            padding: 0,
            placed: Segments::new(),
        }
    }

    /// Returns all bytes that follow the header. Copies them, so this is for tests.
    #[must_use]
    pub fn content(&self) -> Vec<u8> {
        let padding = vec![0; self.padding as usize];
        [self.payload.concat(), padding, self.placed.concat()].concat()
    }
}

/// The messages that carry one RPC message, or several in one, in order. No other message may be
/// sent between them.
pub type Transmissions = SmallVec<[Transmission; 1]>;

/// A message cannot be sent as planned; another transfer mode is used instead.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct NotTransferred(
    /// The reason, for the log.
    pub String,
);

/// The interface of an extension that carries RPC messages, and of a version's own way to carry
/// them in several messages.
pub trait TransferMode {
    /// Returns the transfer modes that the extension can offer for this call at present, which may
    /// be none.
    fn plan_call(&self, call: &CallToPlan<'_>) -> Vec<CallCandidate>;

    /// Returns whether the extension is offered small calls as well: those without bulk items in either
    /// direction that fit one plain transmission without chunks. No transfer mode costs less than that,
    /// so costs do not decide: the first candidate of such an extension is taken. The answer never
    /// changes. Small calls cost more work with `true`, which the default is not.
    fn claims_small_calls(&self) -> bool {
        false
    }

    /// Returns a number that changes whenever [`TransferMode::plan_call`] could answer the same
    /// question differently, and at no other time. With it, the engine remembers the transfer modes of earlier
    /// calls, and plans calls that wait to be sent again, with their memory, when it has changed. `None`,
    /// the default, means that it has to ask each time, and that plans stay valid.
    fn plan_state(&self) -> Option<u64> {
        None
    }

    /// Divides a call into transmissions as planned. `chunks` describes the memory that was
    /// registered: read segments with the positions of their items, and write chunks and reply
    /// chunk in the order of the candidate.
    ///
    /// Called when there are memory and credits for all transmissions, which are sent at once; since
    /// the call was made and planned, it may have waited for them. What depends on when a call leaves belongs
    /// here, such as a number of the calls in their order, or the time that is left before a deadline.
    ///
    /// # Errors
    /// [`NotTransferred`] if the connection has changed since the plan was made. The call is
    /// planned again.
    fn send_call(
        &mut self,
        xid: u32,
        plan: &dyn Planned,
        message: &Message,
        chunks: &Chunks,
    ) -> Result<Transmissions, NotTransferred>;

    /// Returns the transfer modes for the reply to a call that this extension received
    /// ([`Transferred::Call`]). If there is none, as by default, and the base protocol cannot send the
    /// reply without chunks either, the call is answered with [`PeerError::Chunk`].
    fn plan_reply(&mut self, reply: &ReplyToPlan<'_>) -> ReplyCandidates {
        let _ = reply;
        ReplyCandidates::new()
    }

    /// Returns whether one Send of the base protocol may answer a call with this context
    /// ([`IncomingCall::context`]) if the reply has bulk items. With `false`, it does so only if this
    /// extension has no transfer mode for the reply. The default is `true`.
    fn takes_base_reply(&self, context: &(dyn Any + Send)) -> bool {
        let _ = context;
        true
    }

    /// Returns a transfer mode for the reply to a call of the base protocol that offered these write
    /// chunks, as an alternative to the plan of the base protocol. By default there is none.
    fn plan_base_reply(
        &mut self,
        reply: &ReplyToPlan<'_>,
        offered: &[WriteChunk],
    ) -> Option<ReplyCandidate> {
        let _ = (reply, offered);
        None
    }

    /// Returns the transfer mode for the reply to a call of the base protocol that offered these
    /// write chunks, if the base protocol cannot transfer the reply. By default there is none.
    fn plan_last_resort(
        &self,
        reply: &ReplyToPlan<'_>,
        offered: &[WriteChunk],
    ) -> Option<ReplyCandidate> {
        let _ = (reply, offered);
        None
    }

    /// Divides a reply into transmissions as planned. Its explicit RDMA Writes are posted before it
    /// is sent. An extension that plans no replies need not implement it.
    ///
    /// # Errors
    /// [`NotTransferred`] if the connection has changed since the plan was made. The reply is
    /// planned again.
    fn send_reply(
        &mut self,
        xid: u32,
        plan: &dyn Planned,
        message: &Message,
    ) -> Result<Transmissions, NotTransferred> {
        let _ = (xid, plan, message);
        Err(NotTransferred(
            "the extension carries no replies".to_owned(),
        ))
    }

    /// Reports that the peer answered a call that this extension sent with an error of the base
    /// protocol. After [`PeerError::UnsupportedType`] the call is sent again with another transfer mode,
    /// and the extension should not offer this one for it again.
    fn call_refused(&mut self, xid: u32, error: PeerError) {
        let _ = (xid, error);
    }

    /// Reports that the peer could not return the reply to a call that this extension or another
    /// one sent. The call offered no Reply chunk, so the peer would have had to continue the reply,
    /// which it does not do.
    fn reply_refused(&mut self) {}

    /// Reports that a call that this extension sent has ended, with or without a reply, so that its
    /// state can be dropped.
    fn call_ended(&mut self, xid: u32) {
        let _ = xid;
    }
}

/// An RPC message that arrived in messages of an extension, or the report that one cannot be used.
#[derive(Debug)]
pub enum Transferred {
    /// A call.
    Call(IncomingCall),
    /// A reply.
    Reply(IncomingReply),
    /// A call to which the base protocol replies as to one of its own, with the chunks of the call.
    BaseCall {
        /// The call. Its context is not used.
        call: IncomingCall,
        /// The handle that the reply may invalidate, if any.
        handle: Option<u32>,
    },
    /// A reply to any call, whether or not the extension carried it.
    AnyReply(IncomingReply),
    /// The peer could not use what was sent for the message with this XID. A call must be sent with
    /// another transfer mode or fail. For a reply, the requester must be told that there will be
    /// none ([`PeerError::Chunk`]), so that it does not wait for it.
    Rejected {
        /// XID of the message.
        xid: u32,
        /// Whether the message was a call or a reply.
        direction: Direction,
        /// The reason, for the log.
        reason: String,
    },
    /// A reply arrived that cannot be used. Its call, which has been executed, fails.
    Unusable {
        /// XID of the reply.
        xid: u32,
        /// The reason.
        reason: String,
    },
}

impl Transferred {
    /// Returns an RPC message without chunks that arrived in a message with these credits: a call to which
    /// the base protocol replies as to one of its own, or a reply to any call. `transmissions` is that of
    /// [`IncomingCall`]; a reply has one.
    #[must_use]
    pub fn plain(
        direction: Direction,
        xid: u32,
        credits: u32,
        transmissions: u32,
        message: Message,
    ) -> Self {
        match direction {
            Direction::Call => Self::BaseCall {
                call: IncomingCall {
                    xid,
                    requested: credits,
                    transmissions,
                    message,
                    chunks: CallChunks::default(),
                    context: Box::new(()),
                },
                handle: None,
            },
            Direction::Reply => Self::AnyReply(IncomingReply {
                xid,
                granted: credits,
                transmissions: 1,
                message,
                writes: SmallVec::new(),
            }),
        }
    }
}

/// A call that arrived in messages of an extension.
#[derive(Debug)]
pub struct IncomingCall {
    /// XID of the call.
    pub xid: u32,
    /// Number of credits that the call requests.
    pub requested: u32,
    /// Number of messages in which the call arrived, which is the number of credits it takes until it
    /// is answered. Where a message carries several calls and takes one credit, as in a version that
    /// counts messages, this is 0 for all but one of them. The engine limits the number of such calls in
    /// progress: see `rpcrdma_connection::flow::FURTHER_CALLS`. Where calls are counted, the engine takes
    /// a credit for each call that it sends with others ([`crate::Batch`]).
    pub transmissions: u32,
    /// The RPC message from its XID on, with the items that have arrived.
    pub message: Message,
    /// The read chunks that must still be fetched, and the chunks for the reply. They have been
    /// checked.
    pub chunks: CallChunks,
    /// The extension's own data for planning the reply.
    pub context: Box<dyn Any + Send>,
}

impl IncomingCall {
    /// Returns a call that arrived in one message, which is all of it: there is nothing to fetch, and
    /// there are no chunks for its reply.
    #[must_use]
    pub fn in_one_message(received: &ReceivedMessage<'_>, message: Message) -> Self {
        Self {
            xid: received.xid,
            requested: received.credits,
            transmissions: 1,
            message,
            chunks: CallChunks::default(),
            context: Box::new(()),
        }
    }
}

/// A reply that arrived in messages of an extension.
#[derive(Debug)]
pub struct IncomingReply {
    /// XID of the reply.
    pub xid: u32,
    /// Number of credits that the reply grants.
    pub granted: u32,
    /// Number of messages in which the reply arrived. All but one of them used the receives posted
    /// for [`Cost::receives`].
    pub transmissions: u32,
    /// The RPC message from its XID on, with the items that arrived in it.
    pub message: Message,
    /// For each write chunk that the call offered, in order, the item that was placed in it, or
    /// `None` if it is unused. The engine inserts the items into the message by their positions.
    pub writes: SmallVec<[Option<Written>; 1]>,
}

/// An item of a reply that was placed by RDMA Write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Written {
    /// Position in the XDR stream: [`onc_rpc::Position::At`].
    pub position: u32,
    /// Length in bytes.
    pub len: u64,
}
