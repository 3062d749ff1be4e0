//! The credits of a requester (RFC 8166, section 3.3.1), where versions 1 and 2 count calls.
//!
//! A call takes a credit for each of its Sends, and returns all with its reply. A responder may
//! refuse a call that takes several Sends by its answer to one of them. The others may still be on
//! their way then, and each consumes a receive when it arrives, so their credits stay taken until a
//! later call is answered: a connection keeps the order of Sends, so they have arrived by then.
//!
//! Where every Send counts, in both directions ([`crate::send_window`]), this file counts the calls
//! outstanding, each as one, and the number of messages that the peer can receive limits them as
//! well. `set_aside` counts Sends in every version, so the number of unclaimed credits may be too low there,
//! and never too high.

use rpcrdma_chunks::RequesterCredits;

/// Whether a planned call can be sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum MaySend {
    /// The call can be sent now.
    Now,
    /// Not before credits are free.
    Later,
    /// Not as it was planned: the peer takes fewer Sends than it did then.
    Never,
}

/// The credits of a requester.
#[derive(Debug)]
pub(super) struct CallCredits {
    credits: RequesterCredits,
    /// Credits reserved for calls that are planned and not sent yet.
    set_aside: u32,
    unconfirmed: UnconfirmedSends,
    /// Whether the peer grants Sends and not calls. All that is requested is then granted at once.
    counts_sends: bool,
}

impl CallCredits {
    /// Returns the state of a requester that requests `requested` credits, or with `counts_sends`
    /// has at most as many calls outstanding.
    pub(super) fn new(requested: u32, counts_sends: bool) -> Self {
        let mut credits = RequesterCredits::new(requested);
        if counts_sends {
            credits.granted(requested);
        }
        Self {
            credits,
            set_aside: 0,
            unconfirmed: UnconfirmedSends::default(),
            counts_sends,
        }
    }

    /// Returns the credits that a call with so many Sends takes.
    fn taken(&self, sends: u32) -> u32 {
        match self.counts_sends {
            true => 1,
            false => sends,
        }
    }

    /// Returns the grant of a message, if it counts calls.
    fn grant(&self, granted: Option<u32>) -> Option<u32> {
        granted.filter(|_| !self.counts_sends)
    }

    /// Returns the number of credits that messages request.
    pub(super) fn requested(&self) -> u32 {
        self.credits.requested()
    }

    /// Returns the number of calls outstanding: sent and not replied to.
    pub(super) fn in_flight(&self) -> u32 {
        self.credits.in_flight()
    }

    /// Returns the number of credits that are free and not reserved. `sendable` is the number of
    /// messages that the peer can receive, where every Send counts.
    pub(super) fn unclaimed(&self, sendable: u32) -> u32 {
        let free = self.credits.available().min(sendable);
        free.saturating_sub(self.set_aside)
    }

    /// Returns whether any credit is free.
    pub(super) fn any_free(&self, sendable: u32) -> bool {
        self.credits.available() > 0 && sendable > 0
    }

    /// Reserves credits for a planned call.
    pub(super) fn set_aside(&mut self, sends: u32) {
        self.set_aside += sends;
    }

    /// Releases the reservation of a planned call that is sent now, or that will not be sent.
    pub(super) fn give_back(&mut self, sends: u32) {
        self.set_aside -= sends;
    }

    /// Returns whether a call that takes `sends` Sends can be sent.
    ///
    /// Where every Send counts, this says nothing about the Sends that the peer can receive.
    pub(super) fn may_send(&self, sends: u32) -> MaySend {
        let sends = self.taken(sends);
        // Credits that are held come back with the answer to a call that is still to be sent, which
        // may be this one.
        if sends > self.credits.limit() - self.credits.held() {
            MaySend::Never
        } else if sends > self.credits.available() {
            MaySend::Later
        } else {
            MaySend::Now
        }
    }

    /// Takes the credits of a call that is sent now. Returns its number in the order of calls.
    pub(super) fn sent(&mut self, sends: u32) -> u64 {
        let taken = self.credits.take_group(self.taken(sends));
        debug_assert!(taken, "a call is sent only with all its credits");
        self.unconfirmed.sent()
    }

    /// Records the reply to the call with this number, which frees all its credits. `granted` is
    /// the grant of the reply.
    pub(super) fn replied(&mut self, number: u64, sends: u32, granted: Option<u32>) {
        self.answered(number);
        let (sends, granted) = (self.taken(sends), self.grant(granted));
        self.credits.replied_group(sends, granted);
    }

    /// Records an error for the call with this number, which may answer its first Send while others
    /// are still in transit. `granted` is the grant of the answer, which an error does not have.
    pub(super) fn refused(&mut self, number: u64, sends: u32, granted: Option<u32>) {
        self.answered(number);
        let (sends, granted) = (self.taken(sends), self.grant(granted));
        let held = self.credits.refused_group(sends, granted);
        self.unconfirmed.refused(held);
    }

    /// Frees the credits of Sends that have arrived, as the call with this number is answered.
    fn answered(&mut self, number: u64) {
        self.credits.arrived(self.unconfirmed.answered(number));
    }

    /// Records the credits of an error, which may lower the limit and never raise it.
    pub(super) fn lowered(&mut self, granted: u32) {
        if !self.counts_sends {
            self.credits.lowered(granted);
        }
    }

    /// Records the grant of a message that answers no call.
    pub(super) fn granted(&mut self, granted: u32) {
        if !self.counts_sends {
            self.credits.granted(granted);
        }
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
    fn answered(&mut self, number: u64) -> u32 {
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
        assert_eq!(unconfirmed.answered(first), 0, "it was sent before");
        let (second, third) = (unconfirmed.sent(), unconfirmed.sent());
        unconfirmed.refused(4);
        let fourth = unconfirmed.sent();
        assert_eq!(unconfirmed.answered(third), 7, "it came after the seven");
        assert_eq!(unconfirmed.answered(second), 0, "known already");
        assert_eq!(unconfirmed.answered(fourth), 4);
        unconfirmed.refused(2);
        unconfirmed.refused(3);
        let unanswered = unconfirmed.sent();
        let last = unconfirmed.sent();
        assert_eq!(unconfirmed.answered(last), 5);
        assert_eq!(unconfirmed.answered(unanswered), 0);
    }
}
