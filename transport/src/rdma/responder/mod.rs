//! The responder's side of one connection, without I/O and without a clock.
//!
//! A call arrives, its read chunks are fetched, it is delivered; the reply is planned, its items
//! are written to the write chunks and its payload is sent. The queue pair keeps that order, so
//! nothing waits for the RDMA Writes before the Send that announces them (RFC 8166, section 2.2.2).

mod action;
mod answer;
mod convey;
mod fetch;
mod place;
mod work;

use std::collections::VecDeque;

use bytes::{Bytes, BytesMut};
use conveyance::Limits;
use onc_rpc::{Message, Segments};
use rdma::{Account, Buf, Charge, PER_CALL, Stag};
use rpcrdma_chunks::{ResponderCredits, WriteChunk};
use rpcrdma_negotiation::Version;
use slab::Slab;

pub use self::action::{ReadId, ResponderAction, ResponderConfig, ResponderCounters};
use self::convey::Brought;
pub(crate) use self::convey::{AskedReply, LaidOut};
use self::fetch::Fetch;
use super::wire::{Answer, BadCall, FromRequester, Plain};
use crate::options::HEADER_ROOM;

/// Longest reply payload that is not charged to the connection's account, bytes. The number of such
/// replies is bounded by the credits.
const SHORT_REPLY: u64 = 512;

/// A call that arrived.
#[derive(Debug)]
struct InCall {
    xid: u32,
    /// Tells it from earlier calls at the same place.
    generation: u32,
    writes: Vec<WriteChunk>,
    reply: Option<WriteChunk>,
    handle: Option<Stag>,
    /// Bytes of fetched chunks that it holds.
    fetched: u64,
    /// Nothing once it is delivered, and for a call that came whole.
    fetch: Option<Box<Fetch>>,
    /// It came in operations of an extension.
    brought: Option<Box<Brought>>,
}

impl InCall {
    /// Credits that it took.
    fn transmissions(&self) -> u32 {
        self.brought
            .as_ref()
            .map_or(1, |brought| brought.transmissions)
    }
}

/// A Read that waits for its turn.
#[derive(Debug)]
struct QueuedRead {
    id: ReadId,
    sink: Buf,
    stag: Stag,
    offset: u64,
}

/// The responder's side of one connection.
#[derive(Debug)]
pub struct Responder {
    config: ResponderConfig,
    credits: ResponderCredits,
    calls: Slab<InCall>,
    generation: u32,
    /// Calls that wait for memory, oldest first.
    starved: VecDeque<usize>,
    /// Bytes of fetched chunks that calls hold.
    fetched: u64,
    /// Memory that is reserved for replies to calls that were delivered.
    delivered: Charge,
    /// Longest reply to a call that left no other way, bytes; nothing while that is being settled.
    last_resort: Option<u64>,
    /// Whether calls with chunks are executed.
    chunks: bool,
    /// Replies that wait for that, oldest first, with their calls.
    held: Vec<(InCall, Message)>,
    /// Replies for which an extension is to be asked, likewise.
    asked: VecDeque<(InCall, Message)>,
    reads: VecDeque<QueuedRead>,
    /// Reads started and not done.
    reading: u32,
    /// Room for the headers of further replies.
    headers: BytesMut,
    actions: VecDeque<ResponderAction>,
    counters: ResponderCounters,
}

impl Responder {
    /// For a new connection.
    #[must_use]
    pub fn new(config: ResponderConfig) -> Self {
        Self {
            credits: ResponderCredits::new(config.credits),
            last_resort: Some(config.limits.inline_send),
            delivered: Charge::new(config.pool.account().cloned()),
            config,
            calls: Slab::new(),
            generation: 0,
            starved: VecDeque::new(),
            fetched: 0,
            chunks: true,
            held: Vec::new(),
            asked: VecDeque::new(),
            reads: VecDeque::new(),
            reading: 0,
            headers: BytesMut::with_capacity(HEADER_ROOM),
            actions: VecDeque::new(),
            counters: ResponderCounters::default(),
        }
    }

    /// Calls with chunks are answered with ERR_CHUNK (RFC 8167, section 5.3).
    pub fn refuse_chunks(&mut self) {
        self.chunks = false;
    }

    /// The connection speaks this version, which its first message showed. Its limits come with
    /// [`Responder::limits_changed`], before the first call is taken.
    pub fn speak(&mut self, version: Version) {
        self.config.version = version;
    }

    /// The limits are others from now on, and replies may invalidate handles or not.
    ///
    /// `last_resort` is the longest reply, bytes, to a call that left no other way than to send
    /// more than `limits.inline_send`: it was sent when more was possible. Nothing while that is
    /// being settled with the requester; such a reply waits (xcharext-02, section 3.1).
    pub fn limits_changed(
        &mut self,
        limits: Limits,
        may_invalidate: bool,
        last_resort: Option<u64>,
    ) {
        self.config.limits = limits;
        self.config.remote_invalidation = may_invalidate;
        self.last_resort = last_resort;
        for (call, message) in std::mem::take(&mut self.held) {
            self.answer(call, message);
        }
    }

    /// A message that is no call asks for so many credits.
    pub fn asked(&mut self, requested: u32) {
        // None of them is used by it, so that there can be none too many.
        let _ = self.credits.called_group(requested, 0);
    }

    /// What is granted at present.
    #[must_use]
    pub fn grant(&self) -> u32 {
        self.credits.grant()
    }

    /// The next thing to do.
    pub fn next_action(&mut self) -> Option<ResponderAction> {
        self.actions.pop_front()
    }

    /// Counts so far.
    #[must_use]
    pub fn counters(&self) -> ResponderCounters {
        self.counters
    }

    /// Calls that arrived and are not answered.
    #[must_use]
    pub fn outstanding(&self) -> usize {
        self.calls.len() + self.held.len() + self.asked.len()
    }

    /// A call waits for memory: call [`Responder::retry`] after a while.
    #[must_use]
    pub fn starved(&self) -> bool {
        !self.starved.is_empty()
    }

    /// A message arrived, in one piece.
    pub fn received(&mut self, message: Bytes) {
        self.received_in(Segments::from_iter([message]));
    }

    /// A message arrived, in these pieces.
    pub fn received_in(&mut self, mut message: Segments) {
        let max_call = self.config.limits.max_message;
        if self.config.version == Version::One
            && let Some(plain) = Plain::take(&mut message, max_call)
        {
            return self.take_plain(plain, message);
        }
        self.take(FromRequester::decode(
            self.config.version,
            message,
            max_call,
        ));
    }

    /// Longest call taken, bytes of XDR.
    pub(crate) fn max_call(&self) -> u64 {
        self.config.limits.max_message
    }

    /// The same of a plain one, whose header was taken off.
    pub(crate) fn take_plain(&mut self, plain: Plain, payload: Segments) {
        let call = InCall {
            xid: plain.xid,
            generation: 0,
            writes: Vec::new(),
            reply: None,
            handle: None,
            fetched: 0,
            fetch: None,
            brought: None,
        };
        if let Some(key) = self.admit(call, plain.credits) {
            let message = Message::without_items(payload);
            match self.may_deliver() {
                true => self.deliver(key, message),
                false => self.put_off(key, message),
            }
        }
    }

    /// A call that came whole waits until its reply may take memory.
    #[cold]
    fn put_off(&mut self, key: usize, message: Message) {
        self.calls[key].fetch = Some(Box::new(Fetch::new(message, None, Vec::new())));
        self.starved.push_back(key);
    }

    /// Whether there is memory for the reply to one more call. Fetched chunks do not count against the
    /// guaranteed memory, so a connection that is fetching can still execute short calls. A connection
    /// that holds nothing but fetched chunks may always execute one call.
    fn may_deliver(&self) -> bool {
        let Some(account) = self.config.pool.account() else {
            return true;
        };
        let fetched = usize::try_from(self.fetched).unwrap_or(usize::MAX);
        let others = account.held().saturating_sub(fetched);
        others == 0 || others + PER_CALL <= account.guaranteed() || account.room() >= PER_CALL
    }

    /// The same of a message whose header was read, or was found to be none.
    pub(crate) fn take(&mut self, call: Result<FromRequester, BadCall>) {
        let call = match call {
            Ok(call) => call,
            Err(bad) => return self.refuse(&bad),
        };
        if !self.chunks && call.has_chunks() {
            return self.refuse(&BadCall {
                answer: Some(Answer::chunk(self.config.version, call.xid)),
                reason: "a call with chunks, of which none are taken".to_owned(),
            });
        }
        let message = Message::without_items(call.payload);
        let fetch = Fetch::new(message, call.chunks.payload, call.chunks.items);
        let in_call = InCall {
            xid: call.xid,
            generation: 0,
            writes: call.chunks.writes,
            reply: call.chunks.reply,
            handle: call.handle.map(Stag),
            fetched: 0,
            fetch: Some(Box::new(fetch)),
            brought: None,
        };
        self.admit_to_fetch(in_call, call.requested);
    }

    /// A call that asks for so many credits: it is fetched, and then delivered.
    fn admit_to_fetch(&mut self, call: InCall, requested: u32) {
        let short = call.fetch.as_ref().is_none_or(|fetch| fetch.memory() == 0);
        let may_start = short || self.starved.is_empty();
        if let Some(key) = self.admit(call, requested)
            && !(may_start && self.start(key))
        {
            self.starved.push_back(key);
        }
    }

    /// A call that asks for so many credits. Nothing: it has none, and the connection ends.
    fn admit(&mut self, mut call: InCall, requested: u32) -> Option<usize> {
        let taken = self.credits.called_group(requested, call.transmissions());
        if let Err(overrun) = taken {
            let reason = overrun.to_string();
            self.actions.push_back(ResponderAction::Close { reason });
            return None;
        }
        let most = &mut self.counters.most_outstanding;
        *most = self.credits.outstanding().max(*most);
        self.generation = self.generation.wrapping_add(1);
        call.generation = self.generation;
        Some(self.calls.insert(call))
    }

    /// Answers [`ResponderAction::Deliver`]: with the reply, or with nothing when there is none.
    pub fn reply(&mut self, token: u64, message: Option<Message>) {
        let key = (token & u64::from(u32::MAX)) as usize;
        let known = self.calls.get(key);
        if known.is_none_or(|call| call.fetch.is_some() || self.token(key) != Some(token)) {
            return;
        }
        let call = self.remove(key);
        self.delivered.sub(PER_CALL);
        match message {
            Some(message) => {
                let message = self.counted(message);
                self.answer(call, message);
            }
            None => {
                let _ = self.credits.answered_group(call.transmissions());
            }
        }
        self.retry();
    }

    /// A reply whose payload counts for the connection until the device lets go of it. Its items are in
    /// memory that is counted where it comes from.
    fn counted(&self, message: Message) -> Message {
        match self.config.pool.account() {
            Some(account) if message.payload_len() > SHORT_REPLY => hold(account, &message),
            _ => message,
        }
    }

    fn token(&self, key: usize) -> Option<u64> {
        let call = self.calls.get(key)?;
        Some(u64::from(call.generation) << 32 | key as u64)
    }

    fn remove(&mut self, key: usize) -> InCall {
        let call = self.calls.remove(key);
        self.fetched -= call.fetched;
        call
    }

    /// A message that cannot be executed.
    pub(crate) fn refuse(&mut self, bad: &BadCall) {
        match bad.answer.as_ref().is_some_and(Answer::is_version) {
            true => {
                tracing::info!(reason = %bad.reason, "the requester is told which versions there are")
            }
            false => rdma::limited!(warn, reason = %bad.reason, "bad message from the requester"),
        }
        let Some(answer) = bad.answer else {
            self.counters.discarded += 1;
            return;
        };
        self.counters.errors_sent += 1;
        let header = answer.encode(self.credits.grant());
        self.send(header, Segments::new(), None);
    }

    /// ERR_CHUNK to a call (RFC 8166, section 4.5.3).
    fn chunk_error(&mut self, xid: u32, credits: u32, why: &dyn std::fmt::Display) {
        rdma::limited!(warn, xid, %why, "answered with ERR_CHUNK");
        self.counters.errors_sent += 1;
        self.send(
            Answer::chunk(self.config.version, xid).encode(credits),
            Segments::new(),
            None,
        );
    }

    fn send(&mut self, header: Bytes, mut payload: Segments, invalidate: Option<Stag>) {
        payload.insert(0, header);
        self.actions.push_back(ResponderAction::Send {
            gather: payload,
            invalidate,
            more: false,
        });
    }
}

#[inline(never)]
fn hold(account: &Account, message: &Message) -> Message {
    let pieces = message.payload().iter();
    let payload = pieces.map(|piece| account.hold(piece.clone())).collect();
    Message::new(payload, message.items().iter().cloned())
}
