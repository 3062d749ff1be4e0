//! The requester's side of one connection, without I/O and without a clock.
//!
//! A call is *waiting* until a credit is free; then its memory is registered, it is *sent*, its
//! reply arrives, every registration that the responder's Send With Invalidate has not ended is
//! ended locally, and only then the reply is delivered (RFC 8166, section 4.4.1): nobody looks at
//! memory that the responder can still reach, and nothing stays registered after its call.

mod action;
mod awaited;
mod call;

use std::collections::VecDeque;

use bytes::{Bytes, BytesMut};
use conveyance::{Limits, ReplyNeed, Shape, plan_call};
use onc_rpc::{Message, Segments};
use rpcrdma_chunks::{RequesterCredits, ReturnedChunks};
use rpcrdma_negotiation::Version;
use rpcrdma_v2::extension::Calls;
use slab::Slab;
use verbs::{Region, RemoteSegment, Stag};

pub use self::action::{RegId, RequesterAction, RequesterConfig, RequesterCounters};
use self::awaited::Awaited;
use self::call::{Ended, Outstanding, Phase, Prepared, Registration, Waiting, prepare};
use super::wire::{BadReply, FromResponder, PeerError, Returned};
use crate::id_map::IdMap;
use crate::options::HEADER_ROOM;
use crate::{CallError, ReplyRoom};

/// XID, message type, reply status, an empty verifier, accept status (RFC 5531, section 9).
const REPLY_HEADER: u64 = 24;
/// The longest reply without results: PROG_MISMATCH and its two numbers.
const SHORTEST_NEED: u64 = REPLY_HEADER + 8;

/// The requester's side of one connection.
#[derive(Debug)]
pub struct Requester {
    config: RequesterConfig,
    /// Nothing until the connection is made.
    limits: Option<Limits>,
    version: Version,
    credits: RequesterCredits,
    /// Every call that has a registration, or a credit.
    calls: Slab<Outstanding>,
    /// Those of them that somebody waits for.
    by_xid: IdMap<u32, usize>,
    /// Those that were sent and then cancelled, until their replies come.
    cancelled: Vec<usize>,
    waiting: VecDeque<Waiting>,
    /// Registered and not sent yet.
    ready: VecDeque<usize>,
    /// Calls whose registration is under way.
    registering: u32,
    /// The pool had no memory for the first waiting call.
    starved: bool,
    /// Calls whose answers somebody wants to know of.
    awaited: Awaited,
    /// See [`Requester::version_refused`].
    version_refused: Option<(u32, u32)>,
    /// Room for the headers of further calls.
    headers: BytesMut,
    actions: VecDeque<RequesterAction>,
    counters: RequesterCounters,
}

impl Requester {
    /// For a connection that is not made yet.
    #[must_use]
    pub fn new(config: RequesterConfig) -> Self {
        Self {
            credits: RequesterCredits::new(config.credits),
            config,
            limits: None,
            version: Version::One,
            calls: Slab::new(),
            by_xid: IdMap::default(),
            cancelled: Vec::new(),
            waiting: VecDeque::new(),
            ready: VecDeque::new(),
            registering: 0,
            starved: false,
            awaited: Awaited::default(),
            version_refused: None,
            headers: BytesMut::with_capacity(HEADER_ROOM),
            actions: VecDeque::new(),
            counters: RequesterCounters::default(),
        }
    }

    /// The connection is made, and speaks this version with these limits.
    pub fn connected(&mut self, version: Version, limits: Limits) {
        self.version = version;
        self.limits = Some(limits);
        self.pump();
    }

    /// The limits are others from now on (version-two-01, section 5.2). Calls that were planned with
    /// the earlier ones and would be too long now are planned again; those that were sent are
    /// the business of who changed the limits: see [`Requester::await_replies`].
    pub fn limits_changed(&mut self, limits: Limits) {
        self.limits = Some(limits);
        let mut outgrown = Vec::new();
        for (key, call) in &mut self.calls {
            if let Phase::Ready(ready) = &mut call.phase
                && let Some(source) = ready.outgrown(limits.inline_send)
            {
                outgrown.push((key, source));
            }
        }
        for (key, source) in outgrown {
            self.ready.retain(|&ready| ready != key);
            self.end(key, Ended::Again(source));
        }
        self.pump();
    }

    /// Has [`Requester::next_answered`] say when these calls are answered.
    pub fn await_replies(&mut self, calls: Calls) {
        let unanswered = self.calls.iter();
        let unanswered = unanswered.filter(|(_, call)| !matches!(call.phase, Phase::Ended(_)));
        self.awaited.wait(calls, unanswered.map(|(key, _)| key));
    }

    /// Calls that somebody waited for, and that are answered.
    pub fn next_answered(&mut self) -> Option<Calls> {
        self.awaited.next_answered()
    }

    /// A message that answers no call granted so many credits.
    pub fn granted(&mut self, granted: u32) {
        self.credits.granted(granted);
        self.pump();
    }

    /// Credits that its messages ask for.
    #[must_use]
    pub fn requested(&self) -> u32 {
        self.credits.requested()
    }

    /// The next thing to do.
    pub fn next_action(&mut self) -> Option<RequesterAction> {
        self.actions.pop_front()
    }

    /// Counts so far.
    #[must_use]
    pub fn counters(&self) -> RequesterCounters {
        self.counters
    }

    /// Calls outstanding: sent, and not replied to.
    #[must_use]
    pub fn in_flight(&self) -> u32 {
        self.credits.in_flight()
    }

    /// Calls that have not ended, cancelled ones that still hold a credit included.
    #[must_use]
    pub fn unfinished(&self) -> usize {
        self.calls.len() + self.waiting.len()
    }

    /// A call waits for memory, and nothing here will say when there is some: call
    /// [`Requester::retry`] after a while.
    #[must_use]
    pub fn starved(&self) -> bool {
        self.starved
    }

    /// There may be memory now.
    pub fn retry(&mut self) {
        self.starved = false;
        self.pump();
    }

    /// A call to send when credits allow. `message` starts with `xid`.
    pub fn submit(&mut self, xid: u32, message: Message, room: &ReplyRoom) {
        let need = ReplyNeed {
            payload: (REPLY_HEADER + u64::from(room.payload)).max(SHORTEST_NEED),
            items: room.items.iter().map(|&len| u64::from(len)).collect(),
        };
        let call = Waiting { xid, message, need };
        match self.limits {
            // Nothing is before it: past the queues.
            Some(limits)
                if self.waiting.is_empty() && self.ready.is_empty() && self.may_prepare() =>
            {
                self.admit(call, &limits);
            }
            _ => self.waiting.push_back(call),
        }
        self.pump();
    }

    /// Nobody waits for this call any more. Its memory is fenced off at once; its credit stays
    /// taken until the reply comes, for the responder still works on it.
    pub fn cancel(&mut self, xid: u32) {
        if let Some(at) = self.waiting.iter().position(|call| call.xid == xid) {
            self.waiting.remove(at);
            return;
        }
        let Some(key) = self.by_xid.remove(&xid) else {
            return;
        };
        match &self.calls[key].phase {
            Phase::Registering(_) => self.calls[key].cancelled = true,
            Phase::Ready(_) => {
                self.ready.retain(|&ready| ready != key);
                self.end(key, Ended::Dropped);
            }
            Phase::Sent(_) => {
                self.calls[key].cancelled = true;
                self.cancelled.push(key);
                self.invalidate_all(key);
            }
            Phase::Ended(_) => self.calls[key].phase = Phase::Ended(Ended::Dropped),
        }
        self.pump();
    }

    /// Answers [`RequesterAction::Register`].
    pub fn registered(&mut self, id: RegId, result: Result<RemoteSegment, String>) {
        let Some(call) = self.calls.get_mut(id.call) else {
            return;
        };
        let Phase::Registering(prepared) = &mut call.phase else {
            return;
        };
        match result {
            Ok(segment) => call.registrations[id.index].valid(segment),
            Err(reason) => {
                call.registrations[id.index].gone(None);
                prepared.failed = Some(reason);
            }
        }
        prepared.left -= 1;
        if prepared.left > 0 {
            return;
        }
        self.registering -= 1;
        let inline_send = self.limits.map_or(u64::MAX, |limits| limits.inline_send);
        let outgrown = prepared.outgrown(inline_send);
        match (prepared.failed.take(), outgrown) {
            _ if call.cancelled => self.end(id.call, Ended::Dropped),
            (Some(reason), _) => self.end(id.call, Ended::Failed(CallError::TooLarge(reason))),
            (None, Some(source)) => self.end(id.call, Ended::Again(source)),
            (None, None) => {
                call.ready();
                self.ready.push_back(id.call);
            }
        }
        self.pump();
    }

    /// Answers [`RequesterAction::Invalidate`] and [`RequesterAction::Reclaim`]: the peer can no
    /// longer reach the memory.
    pub fn reclaimed(&mut self, id: RegId, region: Region) {
        let Some(call) = self.calls.get_mut(id.call) else {
            return;
        };
        // Nobody wants what a cancelled call brought: the memory goes back to the pool here.
        let region = (!call.cancelled).then_some(region);
        call.registrations[id.index].gone(region);
        self.settle(id.call);
        self.pump();
    }

    /// A message arrived, in one piece. `invalidated` is the handle that its sender invalidated
    /// with it.
    pub fn received(&mut self, message: Bytes, invalidated: Option<Stag>) {
        self.received_in(Segments::from_iter([message]), invalidated);
    }

    /// A message arrived, in these pieces.
    pub fn received_in(&mut self, message: Segments, invalidated: Option<Stag>) {
        self.take(FromResponder::decode(self.version, message), invalidated);
    }

    /// The same of one whose header was read, or was found to be none.
    pub(crate) fn take(
        &mut self,
        reply: Result<FromResponder, BadReply>,
        invalidated: Option<Stag>,
    ) {
        let reply = match reply {
            Ok(reply) => reply,
            Err(error) => {
                self.invalidated(None, invalidated);
                return self.discard(&error);
            }
        };
        let xid = reply.xid;
        let found = self.by_xid.get(&xid).copied();
        let sent = |key: &usize| matches!(self.calls[*key].phase, Phase::Sent(_));
        let Some(key) = found.filter(sent).or_else(|| self.cancelled_call(xid)) else {
            self.invalidated(None, invalidated);
            self.counters.unknown_xid += 1;
            tracing::debug!(xid, "reply to no call");
            return;
        };
        self.invalidated(Some(key), invalidated);
        let granted = reply.granted;
        let Phase::Sent(offered) = &self.calls[key].phase else {
            return;
        };
        let (returned, message) = match reply.check(offered) {
            Ok(checked) => checked,
            Err(error) => return self.discard(&error),
        };
        if let Returned::Error(PeerError::Version { low, high }) = returned {
            self.version_refused = Some((low, high));
        }
        self.credits.replied(granted);
        if self.calls[key].cancelled {
            self.counters.cancelled_replies += 1;
            self.cancelled.retain(|&cancelled| cancelled != key);
            self.end(key, Ended::Dropped);
        } else {
            self.end(key, ended(self.version, returned, message));
        }
        self.pump();
    }

    /// The versions that the responder said it speaks when it refused a call's, lowest and highest.
    pub(crate) fn version_refused(&self) -> Option<(u32, u32)> {
        self.version_refused
    }

    /// A message that is not to be acted upon (RFC 8166, section 4.5).
    pub(crate) fn discard(&mut self, why: &dyn std::fmt::Display) {
        self.counters.discarded += 1;
        tracing::warn!(%why, "message from the responder discarded");
    }

    fn cancelled_call(&self, xid: u32) -> Option<usize> {
        let found = self.cancelled.iter();
        found.copied().find(|&key| self.calls[key].xid == xid)
    }

    /// The responder invalidated a handle with a message that is for nobody here.
    pub(crate) fn taken(&mut self, invalidated: Option<Stag>) {
        self.invalidated(None, invalidated);
    }

    /// The responder invalidated a handle. It should be one of the call it replies to (RFC 8797,
    /// section 4.1); whichever it is, it is invalid now.
    fn invalidated(&mut self, replied: Option<usize>, stag: Option<Stag>) {
        let Some(stag) = stag else {
            return;
        };
        let in_reply = replied.and_then(|key| Some((key, self.calls[key].find(stag)?)));
        let anywhere = || {
            let mut calls = self.calls.iter();
            calls.find_map(|(key, call)| Some((key, call.find(stag)?)))
        };
        if let Some((call, index)) = in_reply.or_else(anywhere) {
            self.calls[call].registrations[index].leaving();
            let id = RegId { call, index };
            self.actions
                .push_back(RequesterAction::Reclaim { id, stag });
        }
    }

    /// The call's outcome is known: fence off its memory, then tell.
    fn end(&mut self, key: usize, ended: Ended) {
        self.awaited.answered(key);
        if self.calls[key].registrations.is_empty() {
            return self.tell(key, ended);
        }
        self.calls[key].phase = Phase::Ended(ended);
        self.invalidate_all(key);
        self.settle(key);
    }

    fn invalidate_all(&mut self, key: usize) {
        let registrations = &mut self.calls[key].registrations;
        for (index, registration) in registrations.iter_mut().enumerate() {
            if let Some(stag) = registration.stag() {
                registration.leaving();
                let id = RegId { call: key, index };
                self.actions
                    .push_back(RequesterAction::Invalidate { id, stag });
            }
        }
    }

    /// Tells a call's outcome if it has one and all its memory is back.
    fn settle(&mut self, key: usize) {
        let call = &mut self.calls[key];
        let Phase::Ended(ended) = &mut call.phase else {
            return;
        };
        if call.registrations.iter().all(Registration::is_gone) {
            let ended = std::mem::replace(ended, Ended::Dropped);
            self.tell(key, ended);
        }
    }

    /// Lets go of a call, and tells its outcome.
    fn tell(&mut self, key: usize, ended: Ended) {
        let mut call = self.calls.remove(key);
        let xid = call.xid;
        if self.by_xid.get(&xid) == Some(&key) {
            self.by_xid.remove(&xid);
        }
        if let Ended::Again(call) = ended {
            return self.waiting.push_front(*call);
        }
        match call.finish(self.version, ended, &mut self.counters.copied_bytes) {
            None => {}
            Some(Ok(message)) => {
                self.actions
                    .push_back(RequesterAction::Deliver { xid, message });
            }
            Some(Err(error)) => self.actions.push_back(RequesterAction::Fail { xid, error }),
        }
    }

    /// Whether a credit will be left for one more call.
    fn may_prepare(&self) -> bool {
        let preparing = self.registering + self.ready.len() as u32;
        !self.starved && self.credits.available() > preparing
    }

    /// Sends what is ready and prepares what waits, in order, as far as credits go.
    fn pump(&mut self) {
        let Some(limits) = self.limits else {
            return;
        };
        loop {
            while self.credits.available() > 0
                && let Some(key) = self.ready.pop_front()
            {
                self.send(key);
            }
            if !self.may_prepare() {
                return;
            }
            let Some(call) = self.waiting.pop_front() else {
                return;
            };
            self.admit(call, &limits);
        }
    }

    /// Plans a call and takes its memory.
    fn admit(&mut self, call: Waiting, limits: &Limits) {
        let Waiting { xid, message, need } = call;
        let mut fail = |reason: String| {
            let error = CallError::TooLarge(reason);
            self.actions.push_back(RequesterAction::Fail { xid, error });
        };
        let shape = match Shape::of(&message) {
            Ok(shape) => shape,
            Err(error) => return fail(error.to_string()),
        };
        let plan = match plan_call(&shape, &need, limits) {
            Ok(plan) => plan,
            Err(error) => return fail(error.to_string()),
        };
        let (max, pool) = (limits.max_segment, &self.config.pool);
        let copied = &mut self.counters.copied_bytes;
        let mut prepared = match prepare(&message, &plan, max, pool, copied) {
            Ok(prepared) => prepared,
            Err(error) if error.wanted > error.limit => return fail(error.to_string()),
            Err(error) => {
                tracing::debug!(xid, %error, "call waits for memory");
                self.starved = true;
                return self.waiting.push_front(Waiting { xid, message, need });
            }
        };
        tracing::debug!(xid, %plan, "call");
        if self.version == Version::Two {
            prepared.keep(Waiting { xid, message, need });
        }
        self.start(xid, prepared);
    }

    fn start(&mut self, xid: u32, prepared: Prepared) {
        let (call, regions) = Outstanding::new(xid, prepared);
        let key = self.calls.insert(call);
        self.by_xid.insert(xid, key);
        if regions.is_empty() {
            // Its credit was looked for before it was taken, and nothing is ready before it.
            return self.send(key);
        }
        self.registering += 1;
        for (index, (_, region)) in regions.into_iter().enumerate() {
            let id = RegId { call: key, index };
            self.actions
                .push_back(RequesterAction::Register { id, region });
        }
    }

    fn send(&mut self, key: usize) {
        let taken = self.credits.take();
        debug_assert!(taken, "a call is sent only with a credit");
        let most = &mut self.counters.most_in_flight;
        *most = self.credits.in_flight().max(*most);
        let (version, requested) = (self.version, self.credits.requested());
        self.awaited.sent(key);
        if let Some(gather) = self.calls[key].send(version, requested, &mut self.headers) {
            self.actions.push_back(RequesterAction::Send { gather });
        }
    }
}

/// What a reply means for its call.
fn ended(version: Version, returned: Returned, message: Message) -> Ended {
    let error = match returned {
        Returned::Reply(ReturnedChunks { writes, long }) => {
            return Ended::Reply {
                message,
                writes,
                long,
            };
        }
        Returned::Error(error) => error,
    };
    Ended::Failed(match error {
        PeerError::Chunk => CallError::Chunk(
            "the header or a chunk could not be used, or the reply was longer than the room \
             offered for it"
                .to_owned(),
        ),
        PeerError::Version { low, high } => CallError::Protocol(format!(
            "the server speaks RPC-over-RDMA versions {low} to {high}, \
             this call was version {version}"
        )),
        PeerError::Option => {
            CallError::Protocol("the server took a call for an unknown operation".to_owned())
        }
    })
}
