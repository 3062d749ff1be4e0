//! Transmissions of refused calls, of which nobody knows whether they have arrived.
//!
//! A responder refuses a call by an answer to one of its transmissions; the others are still on their
//! way, and each takes a receive when it arrives. A connection keeps the order of what is sent, so they
//! have arrived when anything that was sent after them is answered.

/// See the module. Calls are named by their keys, each for as long as it is not answered.
#[derive(Debug, Default)]
pub(super) struct InDoubt {
    /// Nothing was sent after these.
    latest: u32,
    /// The call that was sent next, and how many were in doubt before it.
    before: Vec<(usize, u32)>,
}

impl InDoubt {
    /// A call is refused, and so many of its transmissions may not have arrived.
    pub(super) fn refused(&mut self, transmissions: u32) {
        self.latest += transmissions;
    }

    /// A call is sent.
    pub(super) fn sent(&mut self, key: usize) {
        if self.latest > 0 {
            self.before.push((key, std::mem::take(&mut self.latest)));
        }
    }

    /// A sent call is answered, in whatever way: gives how many transmissions are known by that to have
    /// arrived.
    pub(super) fn answered(&mut self, key: usize) -> u32 {
        // What was in doubt before an earlier call was so before this one, too.
        let Some(at) = self.before.iter().rposition(|(sent, _)| *sent == key) else {
            return 0;
        };
        self.before.drain(..=at).map(|(_, count)| count).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_answer_to_a_later_call_says_that_all_before_it_have_arrived() {
        let mut in_doubt = InDoubt::default();
        in_doubt.sent(1);
        in_doubt.refused(7);
        assert_eq!(in_doubt.answered(1), 0, "it was sent before");
        in_doubt.sent(2);
        in_doubt.sent(3);
        in_doubt.refused(4);
        in_doubt.sent(5);
        assert_eq!(in_doubt.answered(3), 0, "the call after the seven is 2");
        assert_eq!(in_doubt.answered(5), 11, "5 came after all of them");
        assert_eq!(in_doubt.answered(2), 0);
        in_doubt.refused(2);
        in_doubt.refused(3);
        in_doubt.sent(2);
        assert_eq!(in_doubt.answered(2), 5);
    }
}
