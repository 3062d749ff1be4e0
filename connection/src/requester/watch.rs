//! Calls for whose answers an extension waits: a limit can change only after the calls that were
//! planned with the old one have been answered.

use std::collections::VecDeque;

use rpcrdma_extension::Calls;

/// Watches groups of calls until all of a group are answered. Calls are identified by their keys.
#[derive(Debug, Default)]
pub(super) struct AnswerWatch {
    /// The groups, each with the calls that are not answered yet.
    groups: Vec<(Calls, Vec<usize>)>,
    /// Whether the next call to be sent is a group of its own.
    next: bool,
    /// Groups that are answered and have not been reported yet.
    answered: VecDeque<Calls>,
}

impl AnswerWatch {
    /// Starts to watch these calls. `unanswered` are the keys of those that are planned or sent.
    pub(super) fn start(&mut self, calls: Calls, unanswered: impl Iterator<Item = usize>) {
        match calls {
            Calls::Next => self.next = true,
            Calls::Earlier => {
                let keys: Vec<usize> = unanswered.collect();
                match keys.is_empty() {
                    // Nothing is outstanding that could rely on the old limit.
                    true => self.answered.push_back(calls),
                    false => self.groups.push((calls, keys)),
                }
            }
        }
    }

    /// Records that a call is sent.
    pub(super) fn call_sent(&mut self, key: usize) {
        if std::mem::take(&mut self.next) {
            self.groups.push((Calls::Next, vec![key]));
        }
    }

    /// Records that a call is answered, or that it will not be sent.
    pub(super) fn call_answered(&mut self, key: usize) {
        // A call may be in several groups, as each was formed from all calls of its time.
        let answered = &mut self.answered;
        self.groups.retain_mut(|(calls, keys)| {
            keys.retain(|&other| other != key);
            if keys.is_empty() {
                answered.push_back(*calls);
            }
            !keys.is_empty()
        });
    }

    /// Returns whether there is a group of which all calls are answered, for
    /// [`AnswerWatch::next_answered_group`].
    pub(super) fn has_answered_group(&self) -> bool {
        !self.answered.is_empty()
    }

    /// Removes and returns the next group of which all calls are answered.
    pub(super) fn next_answered_group(&mut self) -> Option<Calls> {
        self.answered.pop_front()
    }
}
