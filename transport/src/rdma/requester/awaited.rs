//! Calls whose answers somebody wants to know of: limits that calls went by can only change when
//! those are answered.

use std::collections::VecDeque;

use rpcrdma_v2::extension::Calls;

/// See the module. Calls are named by their keys, each for as long as it is not answered.
#[derive(Debug, Default)]
pub(super) struct Awaited {
    waits: Vec<(Calls, Vec<usize>)>,
    /// The next call to be sent is waited for.
    next: bool,
    answered: VecDeque<Calls>,
}

impl Awaited {
    /// `unanswered`: calls that are planned or sent.
    pub(super) fn wait(&mut self, calls: Calls, unanswered: impl Iterator<Item = usize>) {
        match calls {
            Calls::Next => self.next = true,
            Calls::Earlier => {
                let keys: Vec<usize> = unanswered.collect();
                match keys.is_empty() {
                    true => self.answered.push_back(calls),
                    false => self.waits.push((calls, keys)),
                }
            }
        }
    }

    /// A call is sent.
    pub(super) fn sent(&mut self, key: usize) {
        if std::mem::take(&mut self.next) {
            self.waits.push((Calls::Next, vec![key]));
        }
    }

    /// A call is answered, or will not be sent.
    pub(super) fn answered(&mut self, key: usize) {
        let answered = &mut self.answered;
        self.waits.retain_mut(|(calls, keys)| {
            keys.retain(|&other| other != key);
            if keys.is_empty() {
                answered.push_back(*calls);
            }
            !keys.is_empty()
        });
    }

    pub(super) fn next_answered(&mut self) -> Option<Calls> {
        self.answered.pop_front()
    }
}
