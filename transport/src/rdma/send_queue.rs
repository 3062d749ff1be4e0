//! The requests in a send queue that are not known to be done.
//!
//! Most requests are unsignaled, and thousands may be posted before a signaled one. So only signaled requests
//! have an entry, and the unsignaled ones between them are counted.

use std::collections::VecDeque;

/// A signaled request, with the unsignaled ones that were posted between it and the signaled one before.
#[derive(Debug)]
struct Signaled<T> {
    number: u64,
    /// Number of those unsignaled requests that are not known to be done: the last ones, directly before this.
    silent: usize,
    /// The context that its completion returns. `None` once it is done; the entry is removed when it is the oldest.
    context: Option<T>,
}

/// The requests in a send queue that are not known to be done. Each has a sequence number. `T` is the context
/// of a signaled one.
#[derive(Debug)]
pub(super) struct SendQueue<T> {
    /// The sequence number of the next request.
    next: u64,
    /// The signaled requests, oldest first.
    signaled: VecDeque<Signaled<T>>,
    /// Number of unsignaled requests since the last signaled one that are not known to be done.
    silent: usize,
    busy: usize,
    /// Number of signaled requests that have not completed, and of those that have.
    awaited: usize,
    completed: u64,
}

impl<T> Default for SendQueue<T> {
    fn default() -> Self {
        Self {
            next: 0,
            signaled: VecDeque::new(),
            silent: 0,
            busy: 0,
            awaited: 0,
            completed: 0,
        }
    }
}

impl<T> SendQueue<T> {
    /// Returns the sequence number of the next request, which is how many have been posted.
    pub(super) fn next(&self) -> u64 {
        self.next
    }

    /// Returns the number of requests that are not known to be done.
    pub(super) fn busy(&self) -> usize {
        self.busy
    }

    /// Returns the number of unsignaled requests since the last signaled one that are not known to be done.
    pub(super) fn silent(&self) -> usize {
        self.silent
    }

    /// Returns the number of signaled requests that have not completed.
    pub(super) fn awaited(&self) -> usize {
        self.awaited
    }

    /// Returns the number of signaled requests that have completed.
    pub(super) fn completed(&self) -> u64 {
        self.completed
    }

    /// Frees memory that more signaled requests needed than there are now, and returns the number of bytes freed.
    pub(super) fn give_back(&mut self) -> usize {
        rdma::shrink(&mut self.signaled)
    }

    /// Adds a request: signaled, with this context, or unsignaled.
    #[inline]
    pub(super) fn push(&mut self, signaled: Option<T>) {
        match signaled {
            None => self.silent += 1,
            context => {
                self.signaled.push_back(Signaled {
                    number: self.next,
                    silent: std::mem::take(&mut self.silent),
                    context,
                });
                self.awaited += 1;
            }
        }
        self.next += 1;
        self.busy += 1;
    }

    /// Records that the request with this number is done, and returns its context, if it was signaled and not
    /// done. As requests start in order, all unsignaled ones before it are done as well.
    pub(super) fn complete(&mut self, number: u64) -> Option<T> {
        if number >= self.next {
            return None;
        }
        let index = self.signaled.partition_point(|one| one.number < number);
        for earlier in self.signaled.range_mut(..index) {
            self.busy -= std::mem::take(&mut earlier.silent);
        }
        let mut context = None;
        let (end, silent) = match self.signaled.get_mut(index) {
            Some(one) => {
                if one.number == number {
                    context = one.context.take();
                }
                (one.number, &mut one.silent)
            }
            None => (self.next, &mut self.silent),
        };
        // An unsignaled request completes by itself only when it fails. Those behind it are not done.
        let behind = usize::try_from(end.saturating_sub(number + 1)).unwrap_or(usize::MAX);
        let left = behind.min(*silent);
        self.busy -= std::mem::replace(silent, left) - left;
        if context.is_some() {
            self.busy -= 1;
            self.awaited -= 1;
            self.completed += 1;
        }
        while matches!(
            self.signaled.front(),
            Some(Signaled {
                context: None,
                silent: 0,
                ..
            })
        ) {
            self.signaled.pop_front();
        }
        context
    }
}

#[cfg(test)]
mod tests {
    use quickcheck::quickcheck;

    use super::*;

    #[test]
    fn unsignaled_requests_take_no_memory() {
        let mut queue = SendQueue::<u64>::default();
        for _ in 0..100_000 {
            queue.push(None);
        }
        assert_eq!((queue.busy(), queue.signaled.capacity()), (100_000, 0));
        queue.push(Some(7));
        assert_eq!(queue.complete(100_000), Some(7));
        assert_eq!(
            (queue.busy(), queue.awaited(), queue.completed()),
            (0, 0, 1)
        );
        assert!(queue.signaled.is_empty());
    }

    /// The state of a request in the model.
    #[derive(Clone, Copy, PartialEq)]
    enum Work {
        Done,
        Silent,
        Signaled,
    }

    quickcheck! {
        /// Whatever completes in whatever order, the counts are those of a list with an entry for each request.
        fn counts_are_those_of_a_list_of_all_requests(steps: Vec<(u8, u8)>) -> bool {
            let mut queue = SendQueue::<usize>::default();
            let mut model = Vec::new();
            let mut last_signaled = None;
            steps.into_iter().all(|(what, which)| {
                match what % 4 {
                    0 | 1 => {
                        queue.push(None);
                        model.push(Work::Silent);
                    }
                    2 => {
                        queue.push(Some(model.len()));
                        last_signaled = Some(model.len());
                        model.push(Work::Signaled);
                    }
                    _ => {
                        // Sometimes one that was not posted.
                        let number = usize::from(which) % (model.len() + 1);
                        let signaled = model.get(number) == Some(&Work::Signaled);
                        if queue.complete(number as u64) != signaled.then_some(number) {
                            return false;
                        }
                        if let Some(earlier) = model.get_mut(..=number) {
                            earlier[number] = Work::Done;
                            for work in earlier.iter_mut().filter(|work| **work == Work::Silent) {
                                *work = Work::Done;
                            }
                        }
                    }
                }
                let count = |wanted| model.iter().filter(|work| **work == wanted).count();
                let (silent, signaled) = (count(Work::Silent), count(Work::Signaled));
                let since = last_signaled.map_or(0, |last| last + 1);
                let silent_since = model[since..].iter().filter(|work| **work == Work::Silent);
                (queue.busy(), queue.awaited()) == (silent + signaled, signaled)
                    && queue.next() == model.len() as u64
                    && queue.silent() == silent_since.count()
            })
        }
    }
}
