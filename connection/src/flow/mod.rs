//! Flow control: what may be sent, and what the peer is granted.
//!
//! *Accounting* keeps the safety invariant of the protocol: messages in flight never exceed posted
//! receives. There are two kinds ([`Accounting`]). Versions 1 and 2 of 2016 count calls: a call takes
//! a credit for each of its Sends, and its reply returns them ([`RequesterCredits`],
//! [`ResponderCredits`]). The working group's version 2 counts messages, in both directions
//! ([`MessageCounts`]). A dialect says which of the two its version has, and for counted messages,
//! where the numbers are in a message ([`CreditFields`]); all else is here.
//!
//! A *policy* decides how much of what is safe the peer is granted, and when it is told
//! ([`GrantPolicy`]). [`Options::grants`](crate::Options::grants) makes one for each connection;
//! by default all is granted. `tests/grant_policy.rs` has one that follows the depth of the queue,
//! `tests/shared_grants.rs` one that shares a queue among connections.
//!
//! The rest of the crate asks one set of questions, whichever kind it is: may this call be sent, how
//! many Sends may a reply take, what is the value of the credit field, is a grant due, what waits.

mod calls;
mod counts;
mod credits;
mod messages;
mod policy;

use std::collections::VecDeque;
use std::fmt;

use bytes::Bytes;
use onc_rpc::Segments;
use rdma::{Stag, Time};
use rpcrdma_chunks::{Direction, Side};
use rpcrdma_extension::EndConfig;

use self::calls::CallFlow;
use self::messages::{MessageFlow, TooManyAnswers};
use crate::{Action, EXTRA_RECEIVES};

pub use self::counts::{MAX_CREDITS, MIN_CREDITS, MessageCounts, Overrun};
pub use self::credits::{CallOverrun, RequesterCredits, ResponderCredits};
pub use self::policy::{
    AskAgain, Demand, GrantAll, GrantEvent, GrantPolicy, MakeGrantPolicy, for_another_end,
};

/// A message of an extension may carry several calls, of which only the first takes a credit. This
/// is the maximum number of the other calls in progress, for each message that the peer may have on
/// its way: as many short calls of NFS as a message of 4 KiB has room for. A peer that has more in
/// progress loses the connection, because nothing else bounds them.
pub const FURTHER_CALLS: u32 = 64;

/// The unit in which a version counts credits.
#[derive(Clone, Copy, Debug)]
pub enum Accounting<'a> {
    /// Calls, each of which takes credits until its reply arrives (RFC 8166, section 3.3.1). The
    /// credit field of a call requests credits, that of a reply grants them.
    Calls,
    /// Every message, in both directions (version-two-07, section 4.2.1). The credit field is the
    /// number of messages that its receiver may have sent. The credits in an
    /// [`Incoming`](crate::dialect::Incoming) message are ignored.
    Messages(&'a dyn CreditFields),
}

/// The places of credit values in the messages of a version that counts messages: in their first 16 bytes, with the
/// XID, the version number and the header type.
pub trait CreditFields: fmt::Debug + Send + Sync {
    /// Returns the credit value of a message that was received, and whether the message only grants
    /// credits. `None` if the message is too short to tell.
    fn credit(&self, message: &Segments) -> Option<ReceivedCredit>;

    /// Returns a message that only grants credits.
    fn encode_grant(&self, credit: u32) -> Bytes;

    /// Returns the XID and the header type of a call of this end, or of a part of one. The type may be an
    /// extension's.
    fn xid_and_type(&self, message: &Segments) -> Option<(u32, u32)>;

    /// Returns the start of a message with another credit value, and the number of bytes that it
    /// replaces. `message` is a message of this end that waited until the peer could receive it. Its version
    /// number stays, whatever version that is.
    fn with_credit(&self, message: &Bytes, credit: u32) -> Option<(Bytes, usize)>;
}

/// The part of a received message that flow control looks at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReceivedCredit {
    /// The credit value.
    pub credit: u32,
    /// Whether the message has no other purpose than to grant credits.
    pub only_grants: bool,
}

/// Whether a call that was planned earlier can be sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum MaySend {
    /// The call can be sent now.
    Now,
    /// Not before credits are free.
    Later,
    /// Not as it was planned: the peer takes fewer Sends than it did then.
    Never,
}

/// The messages of a call that was sent.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SentCall {
    /// The number of the call in the order of sending, from 1.
    pub(crate) number: u64,
    /// The number of Sends of the call.
    pub(crate) sends: u32,
    /// The number of receives that are kept for its reply.
    pub(crate) replies: u32,
}

/// Flow control of an open connection, for both directions.
#[derive(Debug)]
pub(crate) struct FlowControl {
    side: Side,
    kind: Kind,
    policy: Box<dyn GrantPolicy>,
    /// Whether the policy is asked when calls of the peer begin and end.
    follows_calls: bool,
    /// The time of the last event.
    now: Time,
    /// The number of calls of the peer that have arrived and are not answered.
    calls: u32,
    /// The number of those that came in a message with another one, and hold no credit.
    further: u32,
    /// Whether there were any of those on this connection.
    had_further: bool,
    /// The most credits that the host lets this connection grant.
    limit: u32,
}

/// The state of one kind of accounting.
#[derive(Debug)]
enum Kind {
    Calls(CallFlow),
    Messages(Box<MessageFlow>),
}

impl FlowControl {
    /// Returns the state of a new connection, which counts as `accounting` says; messages from
    /// `count` on, which is 0 but in tests.
    pub(crate) fn new(
        end: &EndConfig<'_>,
        accounting: Accounting<'static>,
        count: u32,
        policy: Box<dyn GrantPolicy>,
    ) -> Self {
        let side = end.side;
        // A client's own calls go from client to server, those of a server the other way.
        let (own, peer) = match side {
            Side::Client => (end.credits, end.callbacks),
            Side::Server => (end.callbacks, end.credits),
        };
        let kind = match accounting {
            Accounting::Calls => Kind::Calls(CallFlow::new(own, peer)),
            Accounting::Messages(fields) => {
                let (most, callbacks) = (most_messages(end), end.callbacks);
                let flow = MessageFlow::new(fields, side, own, callbacks, most, count);
                Kind::Messages(Box::new(flow))
            }
        };
        let mut flow = Self {
            side,
            kind,
            follows_calls: policy.follows_calls(),
            policy,
            now: Time::ZERO,
            calls: 0,
            further: 0,
            had_further: false,
            limit: u32::MAX,
        };
        flow.ask_policy(GrantEvent::Opened);
        flow
    }

    /// Records the time of an event.
    #[inline]
    pub(crate) fn set_now(&mut self, now: Time) {
        self.now = now;
    }

    /// Asks the policy again because it wanted that.
    pub(crate) fn ask_policy_again(&mut self) {
        self.ask_policy(GrantEvent::AskedAgain);
    }

    /// Lets the policy choose how many credits are granted from now on.
    #[inline(never)]
    fn ask_policy(&mut self, event: GrantEvent) {
        let (least, most) = match &self.kind {
            Kind::Calls(flow) => (1, flow.peer().grantable()),
            Kind::Messages(flow) => (flow.least_grantable(), flow.grantable()),
        };
        let demand = Demand::new(self.now, self.calls, most).with_least(least);
        let credits = self.policy.credits(event, &demand);
        match &mut self.kind {
            Kind::Calls(flow) => flow.peer_mut().set_policy_choice(credits),
            Kind::Messages(flow) => flow.set_policy_choice(credits),
        }
    }

    fn messages(&self) -> Option<&MessageFlow> {
        match &self.kind {
            Kind::Calls(_) => None,
            Kind::Messages(flow) => Some(flow),
        }
    }

    /// Records how many messages were sent and received before the version of the connection was
    /// known.
    pub(crate) fn count_earlier(&mut self, sent: u32, received: u32) {
        if let Kind::Messages(flow) = &mut self.kind {
            flow.count_earlier(sent, received);
        }
    }
}

/// Calls of this end.
impl FlowControl {
    /// Returns the maximum number of calls of this end that may be outstanding, which is the number
    /// of credits that they request.
    pub(crate) fn requested(&self) -> u32 {
        match &self.kind {
            Kind::Calls(flow) => flow.own().requested(),
            Kind::Messages(flow) => flow.most_calls(),
        }
    }

    /// Returns the number of credits that calls of this end hold: one for each Send of an
    /// outstanding call, or where messages are counted, one for each outstanding call.
    pub(crate) fn in_flight(&self) -> u32 {
        match &self.kind {
            Kind::Calls(flow) => flow.own().in_flight(),
            Kind::Messages(flow) => flow.own_calls(),
        }
    }

    /// Returns the number of credits that calls of this end may hold at present: those that they hold
    /// and those that are free. Where messages are counted, these are messages.
    pub(crate) fn limit(&self) -> u32 {
        match &self.kind {
            Kind::Calls(flow) => flow.own().limit(),
            Kind::Messages(flow) => flow.own_calls().saturating_add(flow.available()),
        }
    }

    /// Returns the number of credits that calls of this end hold, and the number that they may.
    pub(crate) fn in_use_and_granted(&self) -> (u32, u32) {
        (self.in_flight(), self.limit())
    }

    /// Returns whether a call of one Send may be sent now. Reserved Sends of other calls do not
    /// count.
    #[inline]
    pub(crate) fn may_begin_call(&self) -> bool {
        match &self.kind {
            Kind::Calls(flow) => flow.own().available() > 0,
            Kind::Messages(flow) => flow.may_begin_call(),
        }
    }

    /// Returns the number of Sends that one more call may take, beside those that are planned.
    #[inline]
    pub(crate) fn unreserved(&self) -> u32 {
        match &self.kind {
            Kind::Calls(flow) => flow.unreserved(),
            Kind::Messages(flow) => flow.unreserved(),
        }
    }

    /// Returns the number of calls that one message may carry, beside those that are planned. Where
    /// calls are counted, each takes a credit. Where messages are, all of them take one together.
    pub(crate) fn unreserved_calls(&self) -> u32 {
        match &self.kind {
            Kind::Calls(flow) => flow.unreserved(),
            Kind::Messages(flow) => flow.unreserved_calls(),
        }
    }

    /// Reserves the Sends of a planned call.
    pub(crate) fn reserve(&mut self, sends: u32) {
        match &mut self.kind {
            Kind::Calls(flow) => flow.reserve(sends),
            Kind::Messages(flow) => flow.reserve(sends),
        }
    }

    /// Releases the reservation of a planned call that is sent now, or that will not be sent.
    pub(crate) fn release_reserved(&mut self, sends: u32) {
        match &mut self.kind {
            Kind::Calls(flow) => flow.release_reserved(sends),
            Kind::Messages(flow) => flow.release_reserved(sends),
        }
    }

    /// Returns whether a planned call that takes `sends` Sends can be sent. Where messages are
    /// counted, a call that `may_wait` is sent before the peer can receive all of it.
    pub(crate) fn may_send_call(&self, sends: u32, may_wait: bool) -> MaySend {
        match &self.kind {
            Kind::Calls(flow) => flow.may_send(sends),
            Kind::Messages(flow) => flow.may_send_call(sends, may_wait),
        }
    }

    /// Records that a call is sent, with `replies` receives for its reply. Returns its number in the
    /// order of calls.
    #[inline]
    pub(crate) fn call_sent(&mut self, sends: u32, replies: u32) -> u64 {
        match &mut self.kind {
            Kind::Calls(flow) => flow.call_sent(sends, replies),
            Kind::Messages(flow) => {
                flow.call_sent();
                0
            }
        }
    }

    /// Records the reply to a call. `granted` is the grant of the reply, if it has one.
    #[inline]
    pub(crate) fn call_replied(&mut self, call: SentCall, granted: Option<u32>) {
        match &mut self.kind {
            Kind::Calls(flow) => flow.call_replied(call, granted),
            Kind::Messages(flow) => flow.call_answered(),
        }
    }

    /// Records the end of a call without a reply, such as by an error.
    pub(crate) fn call_refused(&mut self, call: SentCall, granted: Option<u32>) {
        match &mut self.kind {
            Kind::Calls(flow) => flow.call_refused(call, granted),
            Kind::Messages(flow) => flow.call_answered(),
        }
    }

    /// Applies the credits in an error, which may lower the number of calls that may be sent, and
    /// never raise it.
    pub(crate) fn lower_grant(&mut self, granted: u32) {
        if let Kind::Calls(flow) = &mut self.kind {
            flow.own_mut().lower_grant(granted);
        }
    }

    /// Applies the grant of a message of an extension, in a version that counts calls.
    pub(crate) fn apply_grant(&mut self, granted: u32) {
        if let Kind::Calls(flow) = &mut self.kind {
            flow.own_mut().apply_grant(granted);
        }
    }

    /// Returns the number of messages that a reply to the next call may take without waiting: those
    /// that the peer may send when it has received that call. Where calls are counted, there is no
    /// limit.
    pub(crate) fn receivable_in_reply(&self) -> u32 {
        self.messages().map_or(u32::MAX, MessageFlow::receivable)
    }

    /// Removes the queued messages of every call that has a queued message with this header type.
    /// Returns the XID of each removed message.
    pub(crate) fn withdraw_calls(&mut self, header_type: u32) -> Vec<u32> {
        match &mut self.kind {
            Kind::Calls(_) => Vec::new(),
            Kind::Messages(flow) => flow.withdraw_calls(header_type),
        }
    }

    /// Returns whether a message of the call with this XID waits for credits.
    pub(crate) fn has_queued_message(&self, xid: u32) -> bool {
        self.messages()
            .is_some_and(|flow| flow.has_queued_message(xid))
    }
}

/// Calls of the peer.
impl FlowControl {
    /// Records the arrival of a call in `sends` messages, which requests `requested` credits. `sends`
    /// is 0 for a further call of a message that carries several: the message took its credit already.
    ///
    /// # Errors
    /// [`CallOverrun`]: the peer has more calls outstanding than it was granted, or more further ones
    /// than [`FURTHER_CALLS`] allows.
    #[inline]
    pub(crate) fn call_arrived(&mut self, requested: u32, sends: u32) -> Result<(), CallOverrun> {
        match &mut self.kind {
            _ if sends == 0 => self.further_call_began()?,
            Kind::Calls(flow) => flow.call_arrived(requested, sends)?,
            Kind::Messages(flow) => flow.call_began()?,
        }
        self.calls += 1;
        if self.follows_calls {
            self.ask_policy(GrantEvent::CallBegan);
        }
        Ok(())
    }

    /// Records that a call that arrived in `sends` messages is answered or dropped. Its reply, if
    /// there is one, is encoded next.
    #[inline]
    pub(crate) fn call_ended(&mut self, sends: u32) {
        match &mut self.kind {
            _ if sends == 0 => self.set_further_calls(self.further.saturating_sub(1)),
            Kind::Calls(flow) => flow.peer_mut().ended_group(sends),
            Kind::Messages(flow) => flow.call_ended(),
        }
        self.calls = self.calls.saturating_sub(1);
        if self.follows_calls {
            self.ask_policy(GrantEvent::CallEnded);
        }
    }

    /// Records the arrival of a further call of a message. Replies that wait for credits count as
    /// well, as their calls have ended.
    #[cold]
    fn further_call_began(&mut self) -> Result<(), CallOverrun> {
        let waiting = self.messages().map_or(0, MessageFlow::blocked_replies);
        let capacity = self.most_further_calls();
        let outstanding = self.further.saturating_add(1);
        if outstanding.saturating_add(waiting) > capacity {
            return Err(CallOverrun {
                outstanding,
                capacity,
            });
        }
        self.had_further = true;
        self.set_further_calls(outstanding);
        Ok(())
    }

    fn set_further_calls(&mut self, calls: u32) {
        self.further = calls;
        if let Kind::Messages(flow) = &mut self.kind {
            flow.set_further_calls(calls);
        }
    }

    /// Returns the maximum number of calls in progress that hold no credit.
    fn most_further_calls(&self) -> u32 {
        let messages = match &self.kind {
            Kind::Calls(flow) => flow.expected_calls(),
            Kind::Messages(flow) => flow.expected_calls(),
        };
        messages.saturating_mul(FURTHER_CALLS)
    }

    /// Applies the credits that a message of an extension requests, in a version that counts calls.
    pub(crate) fn credits_requested(&mut self, requested: u32) {
        if let Kind::Calls(flow) = &mut self.kind {
            let before = flow.peer().grantable();
            // The message takes no credit, so there cannot be one too many.
            let _ = flow.call_arrived(requested, 0);
            if flow.peer().grantable() != before {
                self.ask_policy(GrantEvent::MostChanged);
            }
        }
    }

    /// Returns the number of credits that calls of the peer hold, which have arrived and are not
    /// answered.
    pub(crate) fn unanswered_credits(&self) -> u32 {
        match &self.kind {
            Kind::Calls(flow) => flow.peer().outstanding(),
            Kind::Messages(flow) => flow.peer_calls(),
        }
    }

    /// Limits what is granted from now on: calls, one at least, or messages, [`MIN_CREDITS`] at
    /// least. What was granted before is not taken back.
    pub(crate) fn limit_grants(&mut self, credits: u32) {
        // Drivers say this often, and mostly the same.
        if credits == self.limit {
            return;
        }
        self.limit = credits;
        match &mut self.kind {
            Kind::Calls(flow) => flow.peer_mut().limit(credits),
            Kind::Messages(flow) => flow.limit_grant(credits),
        }
        self.ask_policy(GrantEvent::MostChanged);
    }

    /// Returns the number of messages in which a reply can be sent at once. Where calls are
    /// counted, there is no limit.
    pub(crate) fn sendable_in_reply(&self) -> u32 {
        self.messages().map_or(u32::MAX, MessageFlow::available)
    }
}

/// Messages, whatever they carry.
impl FlowControl {
    /// Returns the value of the credit field of a message that is encoded now.
    #[inline]
    pub(crate) fn credit_field(&self, direction: Direction) -> u32 {
        match (&self.kind, direction) {
            (Kind::Calls(flow), Direction::Call) => flow.own().requested(),
            (Kind::Calls(flow), Direction::Reply) => flow.peer().grant(),
            (Kind::Messages(flow), _) => flow.credit(),
        }
    }

    /// Counts a message that was received.
    ///
    /// # Errors
    /// [`Overrun`]: the peer has sent more messages than this end advertised.
    #[inline]
    pub(crate) fn received(&mut self, message: &Segments) -> Result<(), Overrun> {
        match &mut self.kind {
            Kind::Calls(_) => Ok(()),
            Kind::Messages(flow) => flow.received(message),
        }
    }

    /// Queues a message of a call or reply: adds it to `actions` if the peer can receive it. `more`
    /// says that the next message of the same call or reply follows at once.
    #[inline]
    pub(crate) fn send(
        &mut self,
        actions: &mut VecDeque<Action>,
        direction: Direction,
        gather: Segments,
        invalidate: Option<Stag>,
        more: bool,
    ) {
        match &mut self.kind {
            Kind::Messages(flow) => flow.send(actions, direction, gather, invalidate, more),
            Kind::Calls(_) => actions.push_back(Action::Send {
                gather,
                invalidate,
                more,
            }),
        }
    }

    /// Queues an error or a message of an extension, whose number the calls in progress do not
    /// limit.
    ///
    /// # Errors
    /// [`TooManyAnswers`]: as many of them wait as messages of the peer can be on their way. The
    /// connection cannot be continued (version-two-07, section 7.4).
    pub(crate) fn send_answer(
        &mut self,
        actions: &mut VecDeque<Action>,
        answer: Bytes,
    ) -> Result<(), TooManyAnswers> {
        match &mut self.kind {
            Kind::Messages(flow) => flow.send_answer(actions, answer),
            Kind::Calls(_) => {
                actions.push_back(Action::plain_send(answer));
                Ok(())
            }
        }
    }

    /// Moves the queued messages that the peer can receive now to `actions`. The caller must handle
    /// a received message before this.
    #[inline]
    pub(crate) fn release_queued(&mut self, actions: &mut VecDeque<Action>) {
        if let Kind::Messages(flow) = &mut self.kind {
            flow.release_queued(actions);
        }
    }

    /// Has [`FlowControl::take_traced`] return this call or reply when the message that was queued last leaves.
    /// Returns false if it has left.
    pub(crate) fn trace_last(&mut self, xid: u32) -> bool {
        match &mut self.kind {
            Kind::Calls(_) => false,
            Kind::Messages(flow) => flow.trace_last(xid),
        }
    }

    /// Returns the calls and replies whose last message is among `actions` since [`FlowControl::trace_last`]
    /// returned true for them, each with the number of messages behind that.
    pub(crate) fn take_traced(&mut self, actions: &VecDeque<Action>) -> Vec<(u64, Direction, u32)> {
        match &mut self.kind {
            Kind::Calls(_) => Vec::new(),
            Kind::Messages(flow) => flow.take_traced(actions),
        }
    }

    /// Returns a message that only grants credits, if one is due and no other message is to be sent
    /// that carries them.
    #[inline]
    pub(crate) fn due_grant(&mut self) -> Option<Action> {
        match &mut self.kind {
            Kind::Calls(_) => None,
            Kind::Messages(flow) => flow.due_grant(&*self.policy),
        }
    }
}

/// The counts for drivers and their users.
impl FlowControl {
    /// Returns the number of messages with credits that may still arrive.
    pub(crate) fn expected_messages(&self) -> u32 {
        match &self.kind {
            Kind::Calls(flow) => flow.expected_messages(),
            Kind::Messages(flow) => flow.expected_messages(),
        }
    }

    /// Returns how many messages may wait for a send-queue entry. `others` is how many of them are
    /// answers to messages without credits.
    pub(crate) fn most_unsent_messages(&self, others: u32) -> u32 {
        // The reply to the first call of a message frees its credit before those to the others leave.
        let further = match self.had_further {
            true => self.most_further_calls(),
            false => 0,
        };
        let unsent = match (&self.kind, self.side) {
            // Messages that are no replies need answers in version 2.
            (Kind::Calls(flow), Side::Client) => flow.most_to_send().saturating_add(EXTRA_RECEIVES),
            // A client that has not got the answer to a call still holds the credit of that call.
            (Kind::Calls(flow), Side::Server) => {
                let unsent = flow.expected_messages().saturating_add(others);
                unsent.saturating_sub(1)
            }
            (Kind::Messages(flow), _) => flow.capacity().saturating_add(EXTRA_RECEIVES),
        };
        unsent.saturating_add(further)
    }

    /// Returns whether a reply waits for credits of the peer.
    pub(crate) fn replies_wait(&self) -> bool {
        self.messages().is_some_and(MessageFlow::replies_wait)
    }

    /// Returns the number of messages, since the connection was opened, that had to wait for
    /// credits and have been sent since.
    pub(crate) fn released(&self) -> u64 {
        self.messages().map_or(0, MessageFlow::released)
    }

    /// Returns the number of messages sent that only granted credits.
    pub(crate) fn grants_sent(&self) -> u64 {
        self.messages().map_or(0, MessageFlow::grants_sent)
    }
}

/// Returns the number of messages that an end can receive at a time, where every Send counts. More
/// receives are posted: for messages that only grant credits, and in place of consumed receives that
/// are not posted again yet.
fn most_messages(end: &EndConfig<'_>) -> u32 {
    let callbacks = match end.side {
        Side::Client => end.callbacks,
        Side::Server => 0,
    };
    let credits = end.credits.saturating_add(callbacks);
    credits.clamp(MIN_CREDITS, MAX_CREDITS)
}
