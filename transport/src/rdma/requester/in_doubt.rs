//! Transmissions of refused calls, of which nobody knows whether they have arrived.
//!
//! A responder refuses a call by an answer to one of its transmissions; the others are still on their
//! way, and each takes a receive when it arrives. A connection keeps the order of what is sent, so they
//! have arrived when anything that was sent after them is answered.

/// See the module. Calls are known by the order in which they are sent.
#[derive(Debug, Default)]
pub(super) struct InDoubt {
    /// Calls sent so far.
    sent: u64,
    /// Nothing was sent after these.
    latest: u32,
    /// The call that was sent next, and how many were in doubt before it.
    before: Vec<(u64, u32)>,
}

impl InDoubt {
    /// A call is refused, and so many of its transmissions may not have arrived.
    pub(super) fn refused(&mut self, transmissions: u32) {
        self.latest += transmissions;
    }

    /// A call is sent: gives its place in the order.
    pub(super) fn sent(&mut self) -> u64 {
        self.sent += 1;
        if self.latest > 0 {
            let count = std::mem::take(&mut self.latest);
            self.before.push((self.sent, count));
        }
        self.sent
    }

    /// The call of this place is answered, in whatever way: gives how many transmissions are known by
    /// that to have arrived.
    pub(super) fn answered(&mut self, place: u64) -> u32 {
        // Whatever was in doubt before an earlier call was so before this one, too, whether that call
        // is answered or not.
        let known = self.before.partition_point(|&(sent, _)| sent <= place);
        self.before.drain(..known).map(|(_, count)| count).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_answer_to_a_later_call_says_that_all_before_it_have_arrived() {
        let mut in_doubt = InDoubt::default();
        let first = in_doubt.sent();
        in_doubt.refused(7);
        assert_eq!(in_doubt.answered(first), 0, "it was sent before");
        let (second, third) = (in_doubt.sent(), in_doubt.sent());
        in_doubt.refused(4);
        let fourth = in_doubt.sent();
        assert_eq!(in_doubt.answered(third), 7, "it came after the seven");
        assert_eq!(in_doubt.answered(second), 0, "known already");
        assert_eq!(in_doubt.answered(fourth), 4);
        in_doubt.refused(2);
        in_doubt.refused(3);
        let unanswered = in_doubt.sent();
        let last = in_doubt.sent();
        assert_eq!(in_doubt.answered(last), 5);
        assert_eq!(in_doubt.answered(unanswered), 0);
    }
}
