//! The responder of a connection: it accepts calls and sends their replies.
//!
//! A call arrives, its read chunks are fetched, and it is delivered. Then its reply is planned, the
//! items are written to the write chunks and the payload is sent. The queue pair keeps that order,
//! so nothing waits for the RDMA Writes before the Send that announces them (RFC 8166, section
//! 2.2.2).

mod answer;
mod batch;
mod carried;
mod fetch;
mod place;
mod work;

use std::collections::VecDeque;
use std::ops::AddAssign;

use bytes::Bytes;
use onc_rpc::{AcceptStatus, Message, ReplyHeader as RpcReply, Segments};
use rdma::trace::Event;
use rdma::{Buf, Stag};
use rpcrdma_chunks::{Direction, ReadChunk, WriteChunk};
use rpcrdma_host::{Account, Charge, PER_CALL};
use slab::Slab;
use transfer_plan::Limits;

use self::carried::CarriedCall;
use self::fetch::Fetch;
use crate::action::ReadId;
use crate::dialect::{BadMessage, CallHeader, ErrorMessage, PeerError, Plain};
use crate::plan::LastReply;
use crate::shared::{Shared, shrink_slab};
use crate::{Action, CallId};

/// Length of the longest reply payload that is not charged to the connection's account, bytes. The
/// credits bound the number of such replies.
const SHORT_REPLY: u64 = 512;

/// A call that arrived.
#[derive(Debug)]
struct InCall {
    xid: u32,
    /// Distinguishes the call from earlier ones with the same key.
    generation: u32,
    writes: Vec<WriteChunk>,
    reply: Option<WriteChunk>,
    /// The handle to invalidate with the reply.
    handle: Option<Stag>,
    /// The number of bytes of fetched chunks that the call holds.
    fetched: u64,
    /// The number of bytes that are charged to the connection while the call waits for memory or for its chunks.
    kept: usize,
    /// The payload and chunks until the call is delivered; `None` also for a call without chunks.
    fetch: Option<Box<Fetch>>,
    /// The number of messages that the call took, each of them one credit where credits count calls.
    /// A further call of a message that carries several has 0.
    messages: u32,
    /// Set if the extension that received the call also plans its reply (rtrext-00).
    carried: Option<CarriedCall>,
}

impl InCall {
    /// Returns a call without chunks.
    fn plain(xid: u32) -> Self {
        Self {
            xid,
            generation: 0,
            writes: Vec::new(),
            reply: None,
            handle: None,
            fetched: 0,
            kept: 0,
            fetch: None,
            messages: 1,
            carried: None,
        }
    }
}

/// An RDMA Read that waits until fewer others are outstanding.
#[derive(Debug)]
struct QueuedRead {
    id: ReadId,
    sink: Buf,
    stag: Stag,
    offset: u64,
}

/// Counters of a responder.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ResponderCounters {
    /// Messages that were answered with RDMA_ERROR.
    pub errors_sent: u64,
    /// Messages that were discarded silently (RFC 8166, section 4.5).
    pub discarded: u64,
    /// The maximum number of calls that were in progress at the same time.
    pub most_outstanding: u32,
}

impl AddAssign for ResponderCounters {
    /// Adds the counters of another connection. The greatest number of calls is that of one connection.
    fn add_assign(&mut self, other: Self) {
        self.errors_sent += other.errors_sent;
        self.discarded += other.discarded;
        self.most_outstanding = self.most_outstanding.max(other.most_outstanding);
    }
}

/// The settings of a responder, in addition to the limits of the connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ReplyTerms {
    /// Whether replies may invalidate a handle of their calls (RFC 8797, section 4.1; xcharext-02,
    /// section 3.2).
    pub(crate) may_invalidate: bool,
    /// The maximum length in bytes of an inline reply that exceeds the inline threshold and for
    /// which the call offered no chunk, because the threshold was higher when the call was sent.
    /// `None` while this is being settled with the requester; such a reply then waits (xcharext-02,
    /// section 3.1).
    pub(crate) last_resort: Option<u64>,
    /// Whether calls with chunks are executed (RFC 8167, section 5.3).
    pub(crate) chunks: bool,
}

/// The responder of a connection.
#[derive(Debug)]
pub(crate) struct Responder {
    terms: ReplyTerms,
    calls: Slab<InCall>,
    generation: u32,
    /// Calls that wait for the memory of their chunks, oldest first.
    no_memory: VecDeque<usize>,
    /// Calls without chunks to fetch that wait until there is memory for replies, oldest first.
    put_off: VecDeque<usize>,
    /// Bytes of fetched chunks that calls hold.
    fetched: u64,
    /// Memory of the calls that came in several messages, and wait for memory or for their chunks, as far as the driver
    /// does not count it: at most as much as one connection can ever have.
    kept: Charge,
    /// The part of `kept` that belongs to calls whose chunks are being fetched.
    kept_fetching: usize,
    /// Memory reserved for the replies to delivered calls.
    delivered: Charge,
    /// Whether an extension is offered short replies to send together
    /// ([`Batching`](rpcrdma_extension::Batching)).
    batches: bool,
    /// Short replies that are sent with the next actions, together if possible, with their calls.
    gathered: VecDeque<(InCall, Message)>,
    /// Replies that wait until their maximum length is settled, oldest first, with their calls.
    held: Vec<(InCall, Message)>,
    reads: VecDeque<QueuedRead>,
    /// The number of RDMA Reads in progress.
    reading: u32,
    /// Whether a call has been answered.
    has_answered: bool,
    /// The last choice of a transfer mode for a reply in messages of an extension.
    last_reply: LastReply,
    pub(crate) counters: ResponderCounters,
}

impl Responder {
    /// Returns a responder whose memory is charged to `account`.
    pub(crate) fn new(terms: ReplyTerms, account: Option<Account>) -> Self {
        Self {
            terms,
            calls: Slab::new(),
            generation: 0,
            no_memory: VecDeque::new(),
            put_off: VecDeque::new(),
            fetched: 0,
            kept: Charge::new(account.clone()),
            kept_fetching: 0,
            delivered: Charge::new(account),
            batches: false,
            gathered: VecDeque::new(),
            held: Vec::new(),
            reads: VecDeque::new(),
            reading: 0,
            has_answered: false,
            last_reply: LastReply::default(),
            counters: ResponderCounters::default(),
        }
    }

    /// Shrinks queues and tables to the calls that are unanswered now. Returns the number of bytes
    /// freed.
    pub(crate) fn shrink(&mut self) -> usize {
        shrink_slab(&mut self.calls)
            + rdma::shrink(&mut self.no_memory)
            + rdma::shrink(&mut self.put_off)
            + rdma::shrink(&mut self.gathered)
            + rdma::shrink(&mut self.reads)
    }

    /// Applies new limits and settings, and sends replies that waited for them.
    pub(crate) fn limits_changed(&mut self, shared: &mut Shared, terms: ReplyTerms) {
        self.terms = terms;
        // A reply that has to wait even now is held again.
        for (call, message) in std::mem::take(&mut self.held) {
            self.answer(shared, call, message);
        }
    }

    /// Returns the limits for replies without chunks or in messages of extensions: the size of the
    /// requester's receives, because its call may have offered no chunk.
    fn last_resort_limits(&self, shared: &Shared) -> Limits {
        let limits = shared.limits;
        let most = self.terms.last_resort.unwrap_or(0);
        Limits {
            inline_send: limits.inline_send.max(most),
            ..limits
        }
    }

    /// Returns the number of calls that arrived and have not been answered.
    pub(crate) fn unanswered_calls(&self) -> usize {
        self.calls.len() + self.gathered.len() + self.held.len()
    }

    /// Returns whether replies wait to be sent together, or for their maximum length.
    pub(crate) fn has_unsent_replies(&self) -> bool {
        !self.gathered.is_empty() || !self.held.is_empty()
    }

    /// Returns whether a call waits for memory.
    pub(crate) fn waits_for_memory(&self) -> bool {
        !self.no_memory.is_empty() || !self.put_off.is_empty()
    }

    /// Handles a call without chunks.
    pub(crate) fn plain_call_received(
        &mut self,
        shared: &mut Shared,
        header: Plain,
        payload: Segments,
    ) {
        let call = InCall::plain(header.xid);
        if let Some(key) = self.admit(shared, call, header.credits) {
            let message = Message::without_items(payload);
            match self.may_deliver(shared) {
                true => self.deliver(shared, key, message),
                false => self.deliver_later(shared, key, message),
            }
        }
    }

    /// Keeps a call without chunks until there is memory for its reply, or refuses it if its parts are too long.
    #[cold]
    fn deliver_later(&mut self, shared: &mut Shared, key: usize, message: Message) {
        if self.keep_parts(shared, key) {
            self.calls[key].fetch = Some(Box::new(Fetch::new(message, None, Vec::new())));
            self.wait_for_memory(shared, key);
        }
    }

    /// Handles a call with chunks.
    pub(crate) fn call_received(&mut self, shared: &mut Shared, call: CallHeader) {
        if !self.terms.chunks && call.has_chunks() {
            let bad = BadMessage {
                answer: Some(ErrorMessage::chunk(shared.dialect, call.xid)),
                reason: "a call with chunks, of which none are taken".to_owned(),
            };
            return self.refuse_message(shared, &bad);
        }
        let message = Message::without_items(call.payload);
        let in_call = InCall {
            writes: call.chunks.writes,
            reply: call.chunks.reply,
            handle: call.handle.map(Stag),
            ..InCall::plain(call.xid)
        };
        let reads = (call.chunks.payload, call.chunks.items);
        self.admit_to_fetch(shared, in_call, call.requested, message, reads);
    }

    /// Admits a call whose header requests `requested` credits, and starts to fetch its read chunks: the
    /// payload, if that is a chunk, and the items. A call without read chunks is delivered, or put off if
    /// memory is short.
    fn admit_to_fetch(
        &mut self,
        shared: &mut Shared,
        mut call: InCall,
        requested: u32,
        message: Message,
        (payload, items): (Option<ReadChunk>, Vec<ReadChunk>),
    ) {
        if payload.is_none() && items.is_empty() {
            if let Some(key) = self.admit(shared, call, requested) {
                match self.may_deliver(shared) {
                    true => self.check_and_deliver(shared, key, message),
                    false => self.deliver_later(shared, key, message),
                }
            }
            return;
        }
        let reduced = &shared.config.reduced_arguments;
        // The procedure stands in the payload. While that is in a chunk, only the bound for all
        // procedures can be checked.
        let most = match payload {
            None => reduced.most_of(&message),
            Some(_) => reduced.most_of_any(),
        };
        if let Some(most) = most
            && items.len() > most as usize
        {
            return self.refuse_reduced(shared, call, requested, most);
        }
        let fetch = Fetch::new(message, payload, items);
        let short = fetch.memory_needed() == 0;
        call.fetch = Some(Box::new(fetch));
        // Calls that need memory get it in the order in which they arrived. Otherwise short ones
        // could pass a long one for ever.
        let may_start = short || self.no_memory.is_empty();
        if let Some(key) = self.admit(shared, call, requested)
            && self.keep_parts(shared, key)
            && !(may_start && self.start_fetch(shared, key))
        {
            self.wait_for_memory(shared, key);
        }
    }

    /// Refuses a call of which more arguments are reduced than the `most` that may be. Nothing is
    /// fetched.
    #[cold]
    fn refuse_reduced(&mut self, shared: &mut Shared, call: InCall, requested: u32, most: u32) {
        let xid = call.xid;
        // The call has taken a credit, which its answer returns, although it is not executed.
        let Some(key) = self.admit(shared, call, requested) else {
            return;
        };
        let call = self.remove_call(key);
        let why = "reduced arguments that are not DDP-eligible";
        if let Some(error) = shared.dialect.too_many_reduced(most) {
            shared.flow.call_ended(call.messages);
            return self.refuse_call(shared, xid, error, &why);
        }
        rpcrdma_host::limited!(warn, xid, why, "call answered with GARBAGE_ARGS");
        let garbage = RpcReply::accepted(xid, AcceptStatus::GarbageArgs).encode();
        self.answer(shared, call, Message::from_payload(garbage));
    }

    /// Admits a call whose header requests `requested` credits, and returns its key. A call beyond
    /// the granted credits ends the connection.
    fn admit(&mut self, shared: &mut Shared, mut call: InCall, requested: u32) -> Option<usize> {
        if let Err(overrun) = shared.flow.call_arrived(requested, call.messages) {
            let reason = overrun.to_string();
            shared.actions.push_back(Action::Close { reason });
            return None;
        }
        // All earlier calls are answered, and the peer goes on, which counts as progress. A peer that only
        // begins calls, and completes none, does not get here.
        if self.has_answered
            && self.calls.is_empty()
            && let Some(account) = shared.config.pool.account()
        {
            account.prove();
        }
        let most = &mut self.counters.most_outstanding;
        *most = shared.flow.unanswered_credits().max(*most);
        // The slab uses a key again for a later call, to which a late reply must not go.
        self.generation = self.generation.wrapping_add(1);
        shared.trace(call.xid, Event::Arrived);
        call.generation = self.generation;
        Some(self.calls.insert(call))
    }

    /// Accepts the upper layer's reply to a delivered call, or `None` if there will be none.
    /// Replies to unknown calls are ignored.
    pub(crate) fn reply(&mut self, shared: &mut Shared, id: CallId, message: Option<Message>) {
        let key = (id.0 & u64::from(u32::MAX)) as usize;
        // A call whose chunks are still being fetched was not delivered, so no reply can be meant
        // for it.
        let known = self.calls.get(key);
        if known.is_none_or(|call| call.fetch.is_some() || self.call_id(key) != Some(id)) {
            return;
        }
        let call = self.remove_call(key);
        self.delivered.sub(PER_CALL);
        match message {
            Some(message) => {
                self.has_answered = true;
                let message = charged(shared, message);
                self.answer(shared, call, message);
            }
            None => {
                shared.trace(call.xid, Event::Dropped);
                shared.flow.call_ended(call.messages);
            }
        }
        // The reply may have been the last use of memory that other calls wait for.
        self.retry(shared);
    }

    fn call_id(&self, key: usize) -> Option<CallId> {
        let call = self.calls.get(key)?;
        Some(CallId(u64::from(call.generation) << 32 | key as u64))
    }

    /// Removes a call. Its chunks are not being fetched: until they have arrived, nothing ends the call but the end of
    /// the connection.
    fn remove_call(&mut self, key: usize) -> InCall {
        let call = self.calls.remove(key);
        self.fetched -= call.fetched;
        self.kept.sub(call.kept);
        call
    }

    /// Discards a bad message, and sends the error message that it calls for, if any.
    pub(crate) fn refuse_message(&mut self, shared: &mut Shared, bad: &BadMessage) {
        let Some(answer) = &bad.answer else {
            rpcrdma_host::limited!(warn, reason = %bad.reason, "bad message from the requester");
            self.counters.discarded += 1;
            return;
        };
        match answer.error {
            // Negotiation works like this, so nothing is wrong.
            PeerError::Version { .. } => {
                tracing::info!(reason = %bad.reason, "the requester is told which versions there are");
            }
            _ => {
                rpcrdma_host::limited!(warn, reason = %bad.reason, "bad message from the requester")
            }
        }
        self.counters.errors_sent += 1;
        shared.send_error(answer);
    }

    /// Answers a call with ERR_CHUNK (RFC 8166, section 4.5.3), RDMA2_ERR_BAD_HEADER or
    /// RDMA2_ERR_BAD_XDR, by version.
    fn chunk_error(&mut self, shared: &mut Shared, xid: u32, why: &dyn std::fmt::Display) {
        self.refuse_call(shared, xid, PeerError::Chunk, why);
    }

    /// Answers a call with an error. Versions that have fewer errors than `error` can name answer
    /// with ERR_CHUNK.
    fn refuse_call(
        &mut self,
        shared: &mut Shared,
        xid: u32,
        error: PeerError,
        why: &dyn std::fmt::Display,
    ) {
        let name = || shared.dialect.error_name(error);
        rpcrdma_host::limited!(warn, xid, %why, error = %name(), "call answered with an error");
        self.counters.errors_sent += 1;
        let version = shared.dialect.version().number();
        let answer = ErrorMessage {
            xid,
            version,
            error,
        };
        shared.send_error(&answer);
        shared.trace_queued(Direction::Reply, xid);
    }
}

/// Charges the payload of a reply to the connection until the device releases it. The memory of
/// items is charged by its pool.
fn charged(shared: &Shared, message: Message) -> Message {
    match shared.config.pool.account() {
        Some(account) if message.payload_len() > SHORT_REPLY => charge(account, &message),
        _ => message,
    }
}

#[inline(never)]
fn charge(account: &Account, message: &Message) -> Message {
    let pieces = message.payload().iter();
    let payload = pieces.map(|piece: &Bytes| account.hold(piece.clone()));
    let charged = Message::new(payload.collect(), message.items().iter().cloned());
    charged.with_extras(message.extras().clone())
}
