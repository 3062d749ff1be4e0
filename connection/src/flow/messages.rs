//! Counted messages (version-two-07, section 4.2.1): the Sends for which the peer has posted receives,
//! and those that wait for it.
//!
//! Messages leave in the order in which they were queued. A grant overtakes queued messages,
//! because the peer keeps a receive for it. A credit value counts as sent when its message leaves,
//! not when the message is encoded. Otherwise two ends that block each other would both count
//! the credits in their queued messages as sent, and neither would send a grant.

use std::collections::VecDeque;

use bytes::Bytes;
use onc_rpc::Segments;
use rdma::Stag;
use rpcrdma_chunks::{Direction, Side};

use super::counts::{MIN_CREDITS, MessageCounts, Overrun};
use super::{CallOverrun, CreditFields, GrantPolicy, MaySend};
use crate::Action;
use crate::given::messages;

/// The queue limit that a message counts against while it waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Counted {
    /// The last message of a reply: its call has not ended yet for the peer.
    ReplyEnd,
    /// An error or a message of an extension, which no call of the peer accounts for.
    Answer,
    /// A call of this end, or another message of a reply.
    Not,
}

/// A message that waits until the peer can receive it.
#[derive(Debug)]
struct BlockedSend {
    gather: Segments,
    invalidate: Option<Stag>,
    more: bool,
    /// Whether it is a call of this end, or a part of one.
    is_call: bool,
    /// The number of calls of this end that the message completes.
    calls: u32,
    counted: Counted,
    /// The calls of which a trace is told that this message has left. Empty without one.
    traced: Vec<u32>,
}

impl BlockedSend {
    /// Returns the XID and the header type of a call or of a part of one.
    fn call_type(&self, fields: &dyn CreditFields) -> Option<(u32, u32)> {
        self.is_call.then(|| fields.xid_and_type(&self.gather))?
    }
}

/// Too many errors and messages of extensions wait because the peer grants no credits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0} errors or messages of extensions wait for credits of the peer")]
pub(crate) struct TooManyAnswers(u32);

/// Calls that are counted one by one, whatever the number of their messages.
#[derive(Clone, Copy, Debug)]
struct CountedCalls {
    /// The maximum number of calls in progress.
    most: u32,
    /// The number of calls in progress.
    now: u32,
}

/// The state of flow control of a connection that counts messages, for both directions.
#[derive(Debug)]
pub(super) struct MessageFlow {
    side: Side,
    counts: MessageCounts,
    fields: &'static dyn CreditFields,
    /// The number of messages that this end can receive while no call is in progress in either
    /// direction.
    capacity: u32,
    /// The maximum number of calls from server to client in progress.
    callbacks: u32,
    /// The maximum number of messages to grant credits for; below `capacity` while the host is short of
    /// receives.
    grant_limit: u32,
    /// The number of messages that the policy has chosen to grant credits for.
    chosen: u32,
    /// The least number of messages that credits are granted for, whatever the policy has chosen.
    least: u32,
    /// The calls of this end that are outstanding.
    own: CountedCalls,
    /// The number of calls in `own` whose last message has not been queued or sent yet.
    unqueued_calls: u32,
    /// The number of calls in `own` whose last message waits in `blocked`. The credits for their replies are not
    /// advertised yet: a client that has not seen a call might spend its credit on a call of its own, and then could
    /// not reply.
    blocked_calls: u32,
    /// Sends reserved for calls of this end that are planned and not sent yet.
    reserved: u32,
    /// The calls of the peer in progress. Each lowers the number of messages that this end
    /// advertises, so that the peer's calls do not pile up here.
    peer: CountedCalls,
    /// The number of calls of the peer in progress that came in a message with another one, and are
    /// not in `peer`, where each call stands for a message.
    further: u32,
    /// The number of replies in `blocked`, by their last messages. Each lowers the number of
    /// messages that this end advertises like a call in progress: otherwise a peer that grants
    /// nothing and goes on calling would fill the memory of this end with replies.
    blocked_replies: u32,
    /// The credit value of the last message that had one.
    peer_credit: u32,
    blocked: VecDeque<BlockedSend>,
    /// The number of answers in `blocked`: errors and messages of extensions. They have a limit of
    /// their own, because an answer does not lower the number of messages that this end advertises,
    /// and so nothing else bounds them.
    blocked_answers: u32,
    /// The number of messages that have left `blocked` for the peer.
    released: u64,
    /// The calls and replies of a trace ([`BlockedSend::traced`]) that have left `blocked`, each with the number
    /// of messages in the actions then, its last one included.
    traced: Vec<(u64, Direction, u32)>,
    /// The number of messages sent that only grant credits.
    grants_sent: u64,
}

impl MessageFlow {
    /// Returns the state of a new connection at an end that has at most `own` calls outstanding and
    /// for which `capacity` receives are posted, one for a message that only grants credits, and one
    /// for a surplus message. At most `callbacks` calls go from server to client. Both ends count
    /// their messages from `count` on.
    pub(super) fn new(
        fields: &'static dyn CreditFields,
        side: Side,
        own: u32,
        callbacks: u32,
        capacity: u32,
        count: u32,
    ) -> Self {
        // The peer may use all of its credits for calls, including those meant for its replies, and
        // one surplus message (drafts/errata-07.md, 2).
        let peer = capacity.saturating_add(callbacks).saturating_add(1);
        let calls = |most: u32| CountedCalls { most, now: 0 };
        // Calls of the server may wait here for a call of the client to it. If they used up all
        // credits, the reply to that would wait for theirs.
        let least = match side {
            Side::Client => MIN_CREDITS.saturating_add(callbacks),
            Side::Server => MIN_CREDITS,
        };
        Self {
            side,
            counts: MessageCounts::starting_at(count),
            fields,
            capacity,
            callbacks,
            grant_limit: capacity,
            chosen: u32::MAX,
            least,
            own: calls(own.max(1)),
            unqueued_calls: 0,
            blocked_calls: 0,
            reserved: 0,
            peer: calls(peer),
            further: 0,
            blocked_replies: 0,
            peer_credit: count.wrapping_add(1),
            blocked: VecDeque::new(),
            blocked_answers: 0,
            released: 0,
            traced: Vec::new(),
            grants_sent: 0,
        }
    }

    /// Records how many messages were sent and received before the version of the connection was
    /// known. All Sends and Receives count (version-two-07, section 4.2.1).
    pub(super) fn count_earlier(&mut self, sent: u32, received: u32) {
        let sent = self.counts.sent().wrapping_add(sent);
        let received = self.counts.received().wrapping_add(received);
        self.counts = MessageCounts::continuing(sent, received);
        self.peer_credit = sent.wrapping_add(1);
    }

    /// Returns the number of messages that can be sent at once.
    pub(super) fn available(&self) -> u32 {
        match self.blocked.is_empty() {
            true => self.counts.may_send(),
            false => 0,
        }
    }

    /// Returns the number of messages that calls may take now. A client leaves one for the reply to
    /// each call of its server in progress: the server may wait for it before it replies to the
    /// client's calls, and grant nothing more until it has. (A server needs no such rule: its
    /// clients' credits cover all their calls.)
    fn available_for_calls(&self) -> u32 {
        match self.side {
            Side::Client => {
                let replies = self.peer.now.saturating_add(self.further);
                self.available().saturating_sub(replies)
            }
            Side::Server => self.available(),
        }
    }

    /// Returns the maximum number of calls of this end that may be outstanding.
    pub(super) fn most_calls(&self) -> u32 {
        self.own.most
    }

    /// Returns the number of calls of this end that are outstanding.
    pub(super) fn own_calls(&self) -> u32 {
        self.own.now
    }

    /// Returns the number of calls of the peer in progress.
    pub(super) fn peer_calls(&self) -> u32 {
        self.peer.now
    }

    /// Returns whether a call may be begun: there is room for one more, and the peer can receive a
    /// message.
    pub(super) fn may_begin_call(&self) -> bool {
        self.own.now < self.own.most && self.available_for_calls() > 0
    }

    /// Returns the number of Sends that one more call may take. It may be less than there are
    /// credits for, because reserved Sends are subtracted from the number of further calls as well
    /// as from the credits. It is never more.
    pub(super) fn unreserved(&self) -> u32 {
        let calls = self.own.most.saturating_sub(self.own.now);
        let free = calls.min(self.available_for_calls());
        free.saturating_sub(self.reserved)
    }

    /// Returns the number of calls that one more message may carry. The number may be too low, like
    /// that of [`MessageFlow::unreserved`].
    pub(super) fn unreserved_calls(&self) -> u32 {
        match self.unreserved() {
            0 => 0,
            _ => {
                // The peer takes no more further calls for each message that it has room for.
                let calls = self.own.most.saturating_sub(self.own.now + self.reserved);
                calls.min(1 + super::FURTHER_CALLS)
            }
        }
    }

    /// Reserves Sends for a planned call.
    pub(super) fn reserve(&mut self, sends: u32) {
        self.reserved += sends;
    }

    /// Releases the reservation of a planned call.
    pub(super) fn release_reserved(&mut self, sends: u32) {
        self.reserved -= sends;
    }

    /// Returns whether a call that takes `sends` Sends can be sent. One that may wait is sent before
    /// the peer can receive all of them.
    pub(super) fn may_send_call(&self, sends: u32, may_wait: bool) -> MaySend {
        if self.own.now >= self.own.most {
            MaySend::Later
        } else if !may_wait && sends > self.available_for_calls() {
            // Other messages, such as replies, have used credits that were free when the call was
            // planned. How long that lasts is not known.
            MaySend::Never
        } else {
            MaySend::Now
        }
    }

    /// Records that a call of this end is sent. Its messages are queued next.
    pub(super) fn call_sent(&mut self) {
        self.own.now += 1;
        self.unqueued_calls += 1;
    }

    /// Records that a call of this end has been answered, by a reply or an error.
    pub(super) fn call_answered(&mut self) {
        self.own.now = self.own.now.saturating_sub(1);
    }

    /// Returns the number of credits for replies that are advertised beyond the field `capacity`: at a server, one for
    /// each callback in progress; at a client none, because its capacity includes them. They are advertised however
    /// many calls of the peer are in progress. A peer that spends them on calls gets new ones, until
    /// [`MessageFlow::capacity`] is reached.
    fn replies_beyond_capacity(&self) -> u32 {
        match self.side {
            Side::Client => 0,
            // The peer learns of a credit with the call for whose reply it is, not before; or with the first message
            // of the call, if that comes in several, and the others have to wait.
            Side::Server => self.own.now.saturating_sub(self.blocked_calls),
        }
    }

    /// Returns the number of messages that may still arrive.
    pub(super) fn expected_messages(&self) -> u32 {
        self.counts.receives_needed()
    }

    /// Returns the number of messages that the peer may send when it has received the next message.
    pub(super) fn receivable(&self) -> u32 {
        // A surplus message and a grant may have arrived beyond the limit.
        let left = self.credit().wrapping_sub(self.counts.received());
        u32::try_from(left.cast_signed()).unwrap_or(0)
    }

    /// Returns the maximum number of messages that may be on their way to this end, together with the calls of the
    /// peer that are in progress.
    pub(super) fn capacity(&self) -> u32 {
        match self.side {
            Side::Client => self.capacity,
            Side::Server => self.capacity.saturating_add(self.callbacks),
        }
    }

    /// Returns the number of messages sent that only granted credits.
    pub(super) fn grants_sent(&self) -> u64 {
        self.grants_sent
    }

    /// Records that a call of the peer is in progress.
    ///
    /// # Errors
    /// [`CallOverrun`]: more calls are in progress than counted messages allow.
    pub(super) fn call_began(&mut self) -> Result<(), CallOverrun> {
        let outstanding = self.peer.now.saturating_add(1);
        let capacity = self.peer.most;
        if outstanding > capacity {
            return Err(CallOverrun {
                outstanding,
                capacity,
            });
        }
        self.peer.now = outstanding;
        Ok(())
    }

    /// Records the number of calls of the peer in progress that came in a message with another one.
    pub(super) fn set_further_calls(&mut self, calls: u32) {
        self.further = calls;
    }

    /// Returns the maximum number of messages of the peer that may be on their way, apart from
    /// replies to calls of this end.
    pub(super) fn expected_calls(&self) -> u32 {
        self.capacity
    }

    /// Returns the number of replies that wait for credits of the peer.
    pub(super) fn blocked_replies(&self) -> u32 {
        self.blocked_replies
    }

    /// Returns whether a reply waits for credits of the peer.
    pub(super) fn replies_wait(&self) -> bool {
        self.blocked_replies > 0
    }

    /// Returns the number of messages that had to wait for credits, and have left since.
    pub(super) fn released(&self) -> u64 {
        self.released
    }

    /// Records that a call of the peer has ended: its reply, if there is one, is queued next. The
    /// messages of the reply, encoded next, already return the credit of the call. If the first leaves
    /// and the last must wait, the peer has that credit before the reply is complete. Messages leave in
    /// order, so the peer gets at most one call more than replies have left.
    pub(super) fn call_ended(&mut self) {
        self.peer.now = self.peer.now.saturating_sub(1);
    }

    /// Limits the credits granted from now on, in messages, not counting replies to calls of this end.
    /// Credits already granted are never revoked, so the limit takes effect once the peer has used them up.
    pub(super) fn limit_grant(&mut self, messages: u32) {
        // Fewer than MIN_CREDITS would make two idle ends answer grants with grants for ever.
        self.grant_limit = messages.max(MIN_CREDITS).min(self.capacity);
    }

    /// Returns the maximum number of messages that credits can be granted for, not counting replies
    /// to calls of this end.
    pub(super) fn grantable(&self) -> u32 {
        self.grant_limit
    }

    /// Returns the fewest messages that credits are granted for, whatever the policy chooses.
    pub(super) fn least_grantable(&self) -> u32 {
        self.least.min(self.grant_limit)
    }

    /// Sets the number of messages that the policy wants credits to be granted for from now on. The
    /// accounting grants the nearest number that it allows.
    pub(super) fn set_policy_choice(&mut self, messages: u32) {
        self.chosen = messages;
    }

    fn advertised(&self) -> u32 {
        let granted = self.chosen.max(self.least).min(self.grant_limit);
        let used = self.peer.now.saturating_add(self.blocked_replies);
        let left = granted.saturating_sub(used);
        // Further calls hold the peer up like others. There may be more of them than messages.
        let for_calls = left.saturating_sub(self.further);
        // The peer must be able to reply to the calls of this end all the same.
        match self.side {
            Side::Client => for_calls.max(left.min(self.own.now)),
            // More calls may be in progress than are granted, as the limit may have been lowered.
            Side::Server => for_calls
                .saturating_add(self.replies_beyond_capacity())
                .min(self.capacity().saturating_sub(used)),
        }
    }

    /// Returns the credit value of a message that is encoded now.
    pub(super) fn credit(&self) -> u32 {
        self.counts.next_credit(self.advertised())
    }

    /// Queues a message of a call or reply: adds it to `actions` if the peer can receive it. `more`
    /// says that the next message of the same call or reply follows.
    pub(super) fn send(
        &mut self,
        actions: &mut VecDeque<Action>,
        direction: Direction,
        gather: Segments,
        invalidate: Option<Stag>,
        more: bool,
    ) {
        let is_call = direction == Direction::Call;
        let calls = match is_call && !more {
            true => std::mem::take(&mut self.unqueued_calls),
            false => 0,
        };
        let message = BlockedSend {
            gather,
            invalidate,
            more,
            is_call,
            calls,
            traced: Vec::new(),
            counted: match direction {
                Direction::Reply if !more => Counted::ReplyEnd,
                Direction::Reply | Direction::Call => Counted::Not,
            },
        };
        self.send_or_block(actions, message);
    }

    /// Queues an error or a message of an extension, like [`MessageFlow::send`].
    ///
    /// # Errors
    /// [`TooManyAnswers`]: as many of them wait as messages of the peer can be on their way. The
    /// connection cannot be continued (section 7.4).
    pub(super) fn send_answer(
        &mut self,
        actions: &mut VecDeque<Action>,
        answer: Bytes,
    ) -> Result<(), TooManyAnswers> {
        if self.blocked_answers >= self.capacity {
            return Err(TooManyAnswers(self.blocked_answers));
        }
        let message = BlockedSend {
            gather: Segments::from_iter([answer]),
            invalidate: None,
            more: false,
            is_call: false,
            calls: 0,
            counted: Counted::Answer,
            traced: Vec::new(),
        };
        self.send_or_block(actions, message);
        Ok(())
    }

    fn send_or_block(&mut self, actions: &mut VecDeque<Action>, message: BlockedSend) {
        if self.available() > 0 {
            return self.emit(actions, message);
        }
        // This message is delayed, so the Send before it must not announce it with `more`: the
        // device would wait for it.
        if let Some(Action::Send { more, .. }) = actions.back_mut() {
            *more = false;
        }
        if let Some(count) = self.waiting_count(message.counted) {
            *count += 1;
        }
        self.blocked_calls += message.calls;
        self.blocked.push_back(message);
    }

    /// Has [`MessageFlow::take_traced`] return this call when the message that was queued last leaves. Returns
    /// false if it has left.
    pub(super) fn trace_last(&mut self, xid: u32) -> bool {
        match self.blocked.back_mut() {
            Some(last) => {
                last.traced.push(xid);
                true
            }
            None => false,
        }
    }

    /// Returns the calls and replies whose message for which [`MessageFlow::trace_last`] returned true is among
    /// `actions` now, each with the number of messages behind it.
    pub(super) fn take_traced(&mut self, actions: &VecDeque<Action>) -> Vec<(u64, Direction, u32)> {
        let mut traced = std::mem::take(&mut self.traced);
        if !traced.is_empty() {
            let all = messages(actions);
            for (place, ..) in &mut traced {
                *place = all.saturating_sub(*place);
            }
        }
        traced
    }

    /// Returns the number of blocked messages that are counted like this.
    fn waiting_count(&mut self, counted: Counted) -> Option<&mut u32> {
        match counted {
            Counted::ReplyEnd => Some(&mut self.blocked_replies),
            Counted::Answer => Some(&mut self.blocked_answers),
            Counted::Not => None,
        }
    }

    fn emit(&mut self, actions: &mut VecDeque<Action>, mut message: BlockedSend) {
        let credit = self.fields.credit(&message.gather);
        // Messages may leave in another order than that of their encoding. A credit value behind
        // one already sent is replaced.
        if credit.is_some_and(|credit| !self.counts.record_told(credit.credit)) {
            self.renew_credit(&mut message.gather);
        }
        let BlockedSend {
            gather,
            invalidate,
            more,
            is_call,
            calls: _,
            counted: _,
            traced,
        } = message;
        if !traced.is_empty() {
            let direction = match is_call {
                true => Direction::Call,
                false => Direction::Reply,
            };
            let place = messages(actions) + 1;
            let left = traced.into_iter().map(|xid| (place, direction, xid));
            self.traced.extend(left);
        }
        let taken = self.counts.take_send();
        debug_assert!(taken, "the peer can receive the message");
        actions.push_back(Action::Send {
            gather,
            invalidate,
            more,
        });
    }

    /// Counts a message that was received.
    ///
    /// # Errors
    /// [`Overrun`]: the peer has sent more messages than this end advertised.
    pub(super) fn received(&mut self, message: &Segments) -> Result<(), Overrun> {
        let credit = self.fields.credit(message);
        let only_grants = credit.is_some_and(|credit| credit.only_grants);
        // A message that is too short for a credit value leaves the last one in place.
        self.peer_credit = credit.map_or(self.peer_credit, |credit| credit.credit);
        self.counts.take_received(self.peer_credit, only_grants)
    }

    /// Moves the queued messages that the peer can receive now to `actions`. The caller must handle
    /// a received message before this: a received call lowers the number of messages that the
    /// released ones advertise.
    pub(super) fn release_queued(&mut self, actions: &mut VecDeque<Action>) {
        while self.counts.may_send() > 0
            && let Some(mut message) = self.blocked.pop_front()
        {
            // The counts are lowered before `renew_credit`, so that a reply itself returns the credit of its call, and
            // a call brings the one for its reply.
            if let Some(count) = self.waiting_count(message.counted) {
                *count -= 1;
            }
            self.blocked_calls -= message.calls;
            self.released += 1;
            self.renew_credit(&mut message.gather);
            message.more &= self.counts.may_send() > 1;
            self.emit(actions, message);
        }
    }

    /// Removes all queued messages of every call that has a queued message with this header type.
    /// Returns the XID of each removed message.
    pub(super) fn withdraw_calls(&mut self, header_type: u32) -> Vec<u32> {
        let fields = self.fields;
        let part = |message: &BlockedSend| message.call_type(fields);
        let parts = self.blocked.iter().filter_map(part);
        let parts = parts.filter(|&(_, of)| of == header_type);
        let calls: Vec<u32> = parts.map(|(xid, _)| xid).collect();
        let mut withdrawn = Vec::new();
        let mut completed = 0;
        self.blocked.retain(|message| {
            let xid = part(message).map(|(xid, _)| xid);
            let xid = xid.filter(|xid| calls.contains(xid));
            debug_assert!(xid.is_none() || message.counted == Counted::Not);
            if xid.is_some() {
                completed += message.calls;
            }
            withdrawn.extend(xid);
            xid.is_none()
        });
        self.blocked_calls -= completed;
        withdrawn
    }

    /// Returns whether a message of the call with this XID is queued.
    pub(super) fn has_queued_message(&self, xid: u32) -> bool {
        let mut queued = self.blocked.iter();
        queued.any(|message| {
            let call = message.call_type(self.fields);
            call.is_some_and(|(of, _)| of == xid)
        })
    }

    /// Sets the credit value of a message that waited.
    fn renew_credit(&mut self, message: &mut Segments) {
        let credit = self.counts.credit(self.advertised());
        let Some(first) = message.first_mut() else {
            return;
        };
        if let Some((start, len)) = self.fields.with_credit(first, credit) {
            let _: Bytes = first.split_to(len.min(first.len()));
            message.insert(0, start);
        }
    }

    /// Returns a message that grants credits, if the policy has the peer told now, or the peer has no
    /// credits left, and no other message has told it more (section 4.2.1.1).
    pub(super) fn due_grant(&mut self, policy: &dyn GrantPolicy) -> Option<Action> {
        let refreshes = |left, advertised| policy.refreshes(left, advertised);
        let advertised = self.advertised();
        let due = self.counts.limit_is_due_by(advertised, refreshes)
            // The grants of a client may have used the credit for its reply to a call of this server. The replies to
            // its own calls, which carry new credits, may have to wait for that reply.
            || self.replies_beyond_capacity() > 0
                && advertised > 0
                && self.counts.peer_has_no_credit();
        if !(due && self.counts.take_grant()) {
            return None;
        }
        let credit = self.counts.credit(advertised);
        let message = self.fields.encode_grant(credit);
        self.grants_sent += 1;
        Some(Action::plain_send(message))
    }
}

#[cfg(test)]
mod tests;
