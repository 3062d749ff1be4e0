//! Credits per call (RFC 8166, section 3.3.1), by which versions 1 and 2 of 2016 count.
//!
//! A call takes a credit for each of its Sends, and returns all with its reply. A responder may
//! refuse a call that takes several Sends by its answer to one of them. The others may still be on
//! their way then, and each consumes a receive when it arrives, so their credits stay taken until a
//! later call is answered: a connection keeps the order of Sends, so they have arrived by then.

use super::credits::{CallOverrun, RequesterCredits, ResponderCredits};
use super::{MaySend, SentCall};

/// The credits of a connection that counts calls: those of each direction.
#[derive(Debug)]
pub(super) struct CallFlow {
    own: RequesterCredits,
    /// Credits reserved for calls of this end that are planned and not sent yet.
    reserved: u32,
    unconfirmed: UnconfirmedSends,
    /// The number of receives that are kept for the replies to calls sent.
    expected_replies: u32,
    peer: ResponderCredits,
    /// The maximum number of messages of the peer's calls that may be on their way.
    expected_calls: u32,
}

impl CallFlow {
    /// Returns the state of a new connection on which this end requests `own` credits for its calls
    /// and grants at most `peer` for those of the peer. Either is 0 if there are no such calls.
    pub(super) fn new(own: u32, peer: u32) -> Self {
        Self {
            own: RequesterCredits::new(own),
            reserved: 0,
            unconfirmed: UnconfirmedSends::default(),
            expected_replies: 0,
            peer: ResponderCredits::new(peer),
            expected_calls: peer,
        }
    }

    /// Returns the credits of this end's calls.
    pub(super) fn own(&self) -> &RequesterCredits {
        &self.own
    }

    /// Returns the credits of this end's calls, to record the grant of a message.
    pub(super) fn own_mut(&mut self) -> &mut RequesterCredits {
        &mut self.own
    }

    /// Returns the credits of the peer's calls.
    pub(super) fn peer(&self) -> &ResponderCredits {
        &self.peer
    }

    /// Returns the credits of the peer's calls, to change what is granted.
    pub(super) fn peer_mut(&mut self) -> &mut ResponderCredits {
        &mut self.peer
    }

    /// Returns the number of messages with credits that may arrive.
    pub(super) fn expected_messages(&self) -> u32 {
        self.expected_calls.saturating_add(self.expected_replies)
    }

    /// Returns the maximum number of messages of the peer's calls that may be on their way.
    pub(super) fn expected_calls(&self) -> u32 {
        self.expected_calls
    }

    /// Returns the number of messages that this end may have to send: calls and replies.
    pub(super) fn most_to_send(&self) -> u32 {
        self.own.requested().saturating_add(self.expected_calls)
    }

    /// Returns the number of credits that are free and not reserved.
    pub(super) fn unreserved(&self) -> u32 {
        self.own.available().saturating_sub(self.reserved)
    }

    /// Reserves credits for a planned call.
    pub(super) fn reserve(&mut self, sends: u32) {
        self.reserved += sends;
    }

    /// Releases the reservation of a planned call.
    pub(super) fn release_reserved(&mut self, sends: u32) {
        self.reserved -= sends;
    }

    /// Returns whether a call that takes `sends` Sends can be sent.
    pub(super) fn may_send(&self, sends: u32) -> MaySend {
        // Credits that are held come back with the answer to a call that is still to be sent, which
        // may be this one.
        if sends > self.own.limit() - self.own.held() {
            MaySend::Never
        } else if sends > self.own.available() {
            MaySend::Later
        } else {
            MaySend::Now
        }
    }

    /// Takes the credits of a call that is sent now. Returns its number in the order of calls.
    pub(super) fn call_sent(&mut self, sends: u32, replies: u32) -> u64 {
        let taken = self.own.take_group(sends);
        debug_assert!(taken, "a call is sent only with all its credits");
        self.expected_replies += replies;
        self.unconfirmed.sent()
    }

    /// Records the reply to a call, which frees all its credits. `granted` is the grant of the reply.
    pub(super) fn call_replied(&mut self, call: SentCall, granted: Option<u32>) {
        self.free_arrived_sends(call);
        self.own.replied_group(call.sends, granted);
    }

    /// Records an error for a call, which may answer its first Send while others are still in
    /// transit. `granted` is the grant of the answer, which an error does not have.
    pub(super) fn call_refused(&mut self, call: SentCall, granted: Option<u32>) {
        self.free_arrived_sends(call);
        // The error answers one Send. Where the others are is known when a later call is answered.
        let held = self.own.refused_group(call.sends, granted);
        self.unconfirmed.refused(held);
    }

    /// Frees the credits of Sends that have arrived, as a call is answered, and the receives for its
    /// reply.
    fn free_arrived_sends(&mut self, call: SentCall) {
        self.own
            .release_held(self.unconfirmed.confirmed_by_answer(call.number));
        self.expected_replies = self.expected_replies.saturating_sub(call.replies);
    }

    /// Records the arrival of `sends` messages of a call that requests `requested` credits.
    ///
    /// # Errors
    /// [`CallOverrun`]: the peer exceeds its grant.
    pub(super) fn call_arrived(&mut self, requested: u32, sends: u32) -> Result<(), CallOverrun> {
        self.peer.called_group(requested, sends)
    }
}

/// Sends of refused calls that may not have arrived yet. Calls are numbered in the order in which
/// they were sent, from 1.
#[derive(Debug, Default)]
struct UnconfirmedSends {
    /// Number of calls sent so far.
    sent: u64,
    /// Unconfirmed Sends since the last call.
    latest: u32,
    /// Calls that were sent after unconfirmed Sends: the number of the call, and the number of those Sends.
    before: Vec<(u64, u32)>,
}

impl UnconfirmedSends {
    /// Records that a call was refused, of which `sends` Sends may not have arrived yet.
    fn refused(&mut self, sends: u32) {
        self.latest += sends;
    }

    /// Records that a call is sent. Returns its number.
    fn sent(&mut self) -> u64 {
        self.sent += 1;
        if self.latest > 0 {
            let count = std::mem::take(&mut self.latest);
            self.before.push((self.sent, count));
        }
        self.sent
    }

    /// Records that the call with this number is answered, by a reply or an error. Returns the
    /// number of unconfirmed Sends that must therefore have arrived.
    fn confirmed_by_answer(&mut self, number: u64) -> u32 {
        // Sends before an earlier call were also sent before this one, whether or not the earlier
        // call has been answered.
        let known = self.before.partition_point(|&(sent, _)| sent <= number);
        self.before.drain(..known).map(|(_, count)| count).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_answer_to_a_later_call_says_that_all_before_it_have_arrived() {
        let mut unconfirmed = UnconfirmedSends::default();
        let first = unconfirmed.sent();
        unconfirmed.refused(7);
        assert_eq!(
            unconfirmed.confirmed_by_answer(first),
            0,
            "it was sent before"
        );
        let (second, third) = (unconfirmed.sent(), unconfirmed.sent());
        unconfirmed.refused(4);
        let fourth = unconfirmed.sent();
        assert_eq!(
            unconfirmed.confirmed_by_answer(third),
            7,
            "it came after the seven"
        );
        assert_eq!(unconfirmed.confirmed_by_answer(second), 0, "known already");
        assert_eq!(unconfirmed.confirmed_by_answer(fourth), 4);
        unconfirmed.refused(2);
        unconfirmed.refused(3);
        let unanswered = unconfirmed.sent();
        let last = unconfirmed.sent();
        assert_eq!(unconfirmed.confirmed_by_answer(last), 5);
        assert_eq!(unconfirmed.confirmed_by_answer(unanswered), 0);
    }
}
