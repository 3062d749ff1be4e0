//! The requester's side of one connection, without I/O and without a clock.
//!
//! A call is *waiting* until a credit is free; then its memory is registered, it is *sent*, its
//! reply arrives, every registration that the responder's Send With Invalidate has not ended is
//! ended locally, and only then the reply is delivered (RFC 8166, section 4.4.1): nobody looks at
//! memory that the responder can still reach, and nothing stays registered after its call.

mod action;
mod admit;
mod awaited;
mod call;
mod convey;
mod in_doubt;
mod memory;
mod outcome;
mod prepared;
mod registration;

use std::collections::VecDeque;

use bytes::BytesMut;
use conveyance::{Limits, ReplyNeed};
use onc_rpc::Message;
use rdma::PoolExhausted;
use rpcrdma_chunks::RequesterCredits;
use rpcrdma_negotiation::Version;
use rpcrdma_v2::extension::Calls;
use slab::Slab;

pub use self::action::{RegId, RequesterAction, RequesterConfig, RequesterCounters, ReservationId};
use self::awaited::Awaited;
use self::call::{Ended, Outstanding, Phase, Waiting};
use self::convey::Conveying;
pub(crate) use self::convey::{Asked, Chosen, Notice};
use self::in_doubt::InDoubt;
use crate::id_map::IdMap;
use crate::options::HEADER_ROOM;
use crate::{CallError, ReplyRoom};

/// XID, message type, reply status, an empty verifier, accept status (RFC 5531, section 9).
const REPLY_HEADER: u64 = 24;
/// The longest reply without results: PROG_MISMATCH and its two numbers.
const SHORTEST_NEED: u64 = REPLY_HEADER + 8;

/// Calls that were submitted, and that nothing has been done about.
#[derive(Debug)]
pub(crate) struct Submitted(VecDeque<Waiting>);

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
    /// See [`Requester::set_room`].
    room: usize,
    /// Credits set aside for calls that are planned and not sent.
    preparing: u32,
    /// Messages that replies to the calls that were sent may come in.
    expected: u32,
    /// The pool had no memory for the first waiting call.
    starved: Option<PoolExhausted>,
    /// Whether calls may have chunks.
    chunks: bool,
    /// Calls whose answers somebody wants to know of.
    awaited: Awaited,
    /// Transmissions of refused calls that may not have arrived.
    in_doubt: InDoubt,
    /// See [`Requester::version_refused`].
    version_refused: Option<(u32, u32)>,
    /// The responder may invalidate handles.
    may_be_invalidated: bool,
    /// What it does with extensions that convey messages, where there are any.
    conveying: Option<Box<Conveying>>,
    /// Room for the headers of further calls.
    headers: BytesMut,
    actions: VecDeque<RequesterAction>,
    counters: RequesterCounters,
}

/// The longest reply that fits this room, its RPC header included.
pub(crate) fn need(room: &ReplyRoom) -> ReplyNeed {
    ReplyNeed {
        payload: (REPLY_HEADER + u64::from(room.payload)).max(SHORTEST_NEED),
        items: room.items.iter().map(|&len| u64::from(len)).collect(),
    }
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
            room: usize::MAX,
            preparing: 0,
            expected: 0,
            starved: None,
            chunks: true,
            awaited: Awaited::default(),
            in_doubt: InDoubt::default(),
            version_refused: None,
            may_be_invalidated: false,
            conveying: None,
            headers: BytesMut::with_capacity(HEADER_ROOM),
            actions: VecDeque::new(),
            counters: RequesterCounters::default(),
        }
    }

    /// The connection is made, and speaks this version with these limits.
    pub fn connected(&mut self, version: Version, limits: Limits) {
        self.version = version;
        self.limits = Some(limits);
    }

    /// Whether further calls may have chunks. If not, one that needs any, for itself or for its
    /// reply, ends with an error (RFC 8167, section 5.3).
    pub fn allow_chunks(&mut self, allow: bool) {
        self.chunks = allow;
    }

    /// The limits are others from now on (version-two-01, section 5.2). Calls that were planned with
    /// the earlier ones and would be too long now are planned again; those that were sent are
    /// the business of who changed the limits: see [`Requester::await_replies`].
    pub fn limits_changed(&mut self, limits: Limits) {
        self.limits = Some(limits);
        self.ask_again();
        let mut outgrown = Vec::new();
        for (key, call) in &mut self.calls {
            if let Phase::Ready(ready) = &mut call.phase
                && let Some(source) = ready.outgrown(limits.inline_send)
            {
                outgrown.push((key, source));
            }
        }
        for (key, source) in outgrown {
            self.unready(key, Ended::Again(source));
        }
    }

    /// Whether the responder may invalidate a handle of a call with its reply (RFC 8797, section
    /// 4.1; xcharext-02, section 3.2). If so, a call that is cancelled keeps its registrations
    /// until its reply comes: a device ends the connection over a handle that is none any more.
    pub fn invalidation_agreed(&mut self, agreed: bool) {
        self.may_be_invalidated = agreed;
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
    }

    /// Credits that its messages ask for.
    #[must_use]
    pub fn requested(&self) -> u32 {
        self.credits.requested()
    }

    /// The send queue has room for so many requests, before any action that is not taken yet. A call that
    /// would wait for room is not sent: the grant may be lowered meanwhile, and what is posted then must
    /// keep to that (RFC 8166, section 3.3.1). It is to be said before a call is submitted and before the
    /// [next action](Requester::next_action) is asked for; unless told otherwise, a requester takes it
    /// that there always is room.
    pub fn set_room(&mut self, room: usize) {
        self.room = room;
    }

    /// Whether there will be room for one more request when all actions are done, each of which
    /// takes one at most.
    fn has_room(&self) -> bool {
        self.room > self.actions.len()
    }

    /// The next thing to do. When nothing is decided yet, calls are looked at that wait, and sent as far
    /// as credits and room go.
    pub fn next_action(&mut self) -> Option<RequesterAction> {
        if self.actions.is_empty() {
            self.pump();
        }
        self.next_decided()
    }

    /// The next of the things that are decided: whatever else is to be posted waits for them, as there was
    /// room for them when they were.
    pub(crate) fn next_decided(&mut self) -> Option<RequesterAction> {
        let action = self.actions.pop_front();
        if let Some(RequesterAction::Send { .. } | RequesterAction::Invalidate { .. }) = action {
            self.room = self.room.saturating_sub(1);
        }
        action
    }

    /// Whether there is such a thing.
    pub(crate) fn has_decided(&self) -> bool {
        !self.actions.is_empty()
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

    /// Messages that may arrive for calls that were sent: replies, in as many transmissions as room
    /// was made for.
    #[must_use]
    pub fn expected(&self) -> u32 {
        self.expected
    }

    /// Calls that have not ended, cancelled ones that still hold a credit included.
    #[must_use]
    pub fn unfinished(&self) -> usize {
        self.calls.len() + self.waiting.len() + usize::from(self.asks())
    }

    /// A call waits for memory, and nothing here will say when there is some: call
    /// [`Requester::retry`] after a while.
    #[must_use]
    pub fn starved(&self) -> bool {
        self.starved.is_some()
    }

    /// A call is under way, and gives back its memory, if it has any, when it ends.
    #[must_use]
    pub fn under_way(&self) -> bool {
        !self.calls.is_empty()
    }

    /// Nobody is going to give back the memory that the first waiting call needs: it fails.
    pub fn give_up_waiting(&mut self) {
        if let Some(error) = self.starved.take()
            && let Some(call) = self.waiting.pop_front()
        {
            let reason = format!("{error}, and no call under way gives any back");
            self.actions.push_back(RequesterAction::Fail {
                xid: call.xid,
                error: CallError::TooLarge(reason),
            });
        }
    }

    /// Its calls that nothing has been done about: all of them, while no version is known.
    pub(crate) fn into_waiting(self) -> Submitted {
        Submitted(self.waiting)
    }

    /// Takes over calls that another was given.
    pub(crate) fn resume(&mut self, calls: Submitted) {
        self.waiting.extend(calls.0);
    }

    /// There may be memory now.
    pub fn retry(&mut self) {
        self.starved = None;
    }

    /// A call to send when credits allow. `message` starts with `xid`.
    pub fn submit(&mut self, xid: u32, message: Message, room: &ReplyRoom) {
        let need = need(room);
        let call = Waiting {
            xid,
            message,
            need,
            barred: false,
        };
        match self.limits {
            // Nothing is before it: past the queues.
            Some(limits)
                if self.waiting.is_empty() && self.ready.is_empty() && self.may_prepare() =>
            {
                self.admit(call, &limits);
            }
            _ => self.waiting.push_back(call),
        }
    }

    /// Nobody waits for this call any more. Its memory is fenced off at once, unless the responder
    /// might do it ([`Requester::invalidation_agreed`]); its credits stay taken until the reply
    /// comes, for the responder still works on it.
    pub fn cancel(&mut self, xid: u32) {
        if self.forget_sought(xid) {
            return;
        }
        if let Some(at) = self.waiting.iter().position(|call| call.xid == xid) {
            self.waiting.remove(at);
            if at == 0 {
                self.retry();
            }
            return;
        }
        let Some(key) = self.by_xid.remove(&xid) else {
            return;
        };
        match &self.calls[key].phase {
            Phase::Registering(_) => self.calls[key].cancelled = true,
            Phase::Ready(_) => self.unready(key, Ended::Dropped),
            Phase::Sent(_) => {
                self.calls[key].cancelled = true;
                self.cancelled.push(key);
                if !self.may_be_invalidated {
                    self.invalidate_all(key);
                }
            }
            Phase::Ended(_) => self.calls[key].phase = Phase::Ended(Ended::Dropped),
        }
    }

    /// The versions that the responder said it speaks when it refused a call's, lowest and highest.
    pub(crate) fn version_refused(&self) -> Option<(u32, u32)> {
        self.version_refused
    }

    /// Credits that are free, and that no call which is planned will need.
    fn unclaimed(&self) -> u32 {
        self.credits.available().saturating_sub(self.preparing)
    }

    /// Whether a credit will be left for one more call.
    fn may_prepare(&self) -> bool {
        !self.starved() && self.unclaimed() > 0 && !self.asks()
    }

    /// Sends what is ready and prepares what waits, in order, as far as credits go.
    fn pump(&mut self) {
        if self.ready.is_empty() && self.waiting.is_empty() {
            return;
        }
        let Some(limits) = self.limits else {
            return;
        };
        loop {
            while self.credits.available() > 0
                && self.has_room()
                && let Some(&key) = self.ready.front()
            {
                if self.calls[key].by_extension.is_some() {
                    if self.hold(key) {
                        return;
                    }
                    continue;
                }
                self.ready.pop_front();
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

    /// A call that was to be sent will not be.
    fn unready(&mut self, key: usize, ended: Ended) {
        self.ready.retain(|&ready| ready != key);
        self.end(key, ended);
    }

    /// A call goes out: it takes its credits.
    fn go(&mut self, key: usize) {
        let call = &self.calls[key];
        let (transmissions, replies) = (call.transmissions(), call.replies());
        let taken = self.credits.take_group(transmissions);
        debug_assert!(taken, "a call is sent only with all its credits");
        self.expected += replies;
        let most = &mut self.counters.most_in_flight;
        *most = self.credits.in_flight().max(*most);
        self.awaited.sent(key);
        self.calls[key].place = self.in_doubt.sent();
    }

    fn send(&mut self, key: usize) {
        self.preparing -= 1;
        self.go(key);
        let (version, requested) = (self.version, self.credits.requested());
        if let Some(gather) = self.calls[key].send(version, requested, &mut self.headers) {
            self.actions.push_back(RequesterAction::Send { gather });
        }
    }
}
