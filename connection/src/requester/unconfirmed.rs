//! Sends of refused calls that may not have arrived yet.
//!
//! A responder refuses a call that takes several Sends by its answer to one of them. The others may
//! still be on their way, and each consumes a receive when it arrives. A connection keeps the order of
//! Sends, so they have arrived when any later call is answered.

/// Counts the Sends of refused calls that may not have arrived yet. Calls are named by the order in
/// which they were sent, from 1.
#[derive(Debug, Default)]
pub(super) struct UnconfirmedSends {
    /// Number of calls sent so far.
    sent: u64,
    /// Unconfirmed Sends after which no call has been sent.
    latest: u32,
    /// Calls that were sent next after unconfirmed Sends, each with the number of those Sends.
    before: Vec<(u64, u32)>,
}

impl UnconfirmedSends {
    /// Records that a call was refused, of whose Sends so many may not have arrived.
    pub(super) fn refused(&mut self, sends: u32) {
        self.latest += sends;
    }

    /// Records that a call is sent. Returns its number.
    pub(super) fn sent(&mut self) -> u64 {
        self.sent += 1;
        if self.latest > 0 {
            let count = std::mem::take(&mut self.latest);
            self.before.push((self.sent, count));
        }
        self.sent
    }

    /// Records that the call with this number is answered, by a reply or an error. Returns how many
    /// unconfirmed Sends are known by that to have arrived.
    pub(super) fn answered(&mut self, number: u64) -> u32 {
        // Sends before an earlier call were also sent before this one, whether or not the earlier call
        // has been answered.
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
