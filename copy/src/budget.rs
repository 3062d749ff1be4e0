//! Limits the resources of operations in flight.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};

/// A resource limit that futures of one thread share. Requests are served in order, so that small
/// ones do not starve a large one.
#[derive(Debug)]
pub(super) struct Budget {
    total: usize,
    free: Cell<usize>,
    queue: RefCell<VecDeque<(u64, Waker)>>,
    next_ticket: Cell<u64>,
}

impl Budget {
    pub(super) fn new(total: usize) -> Self {
        Self {
            total,
            free: Cell::new(total),
            queue: RefCell::default(),
            next_ticket: Cell::new(0),
        }
    }

    /// Takes `amount`, or the whole budget if that is less, as soon as it is free.
    pub(super) fn take(&self, amount: usize) -> Take<'_> {
        Take {
            budget: self,
            amount: amount.min(self.total),
            ticket: None,
        }
    }

    fn wake_first(&self) {
        let first = self.queue.borrow().front().map(|(_, waker)| waker.clone());
        if let Some(waker) = first {
            waker.wake();
        }
    }

    fn leave(&self, ticket: u64) {
        self.queue
            .borrow_mut()
            .retain(|(other, _)| *other != ticket);
    }
}

/// The future of [`Budget::take`].
#[derive(Debug)]
#[must_use = "nothing is taken unless awaited"]
pub(super) struct Take<'b> {
    budget: &'b Budget,
    amount: usize,
    /// The place in the queue.
    ticket: Option<u64>,
}

impl<'b> Future for Take<'b> {
    type Output = Part<'b>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Part<'b>> {
        let budget = self.budget;
        let mut queue = budget.queue.borrow_mut();
        let first = queue
            .front()
            .is_none_or(|(ticket, _)| Some(*ticket) == self.ticket);
        if !first || budget.free.get() < self.amount {
            match queue
                .iter_mut()
                .find(|(ticket, _)| Some(*ticket) == self.ticket)
            {
                Some((_, waker)) => waker.clone_from(context.waker()),
                None => {
                    let ticket = budget.next_ticket.get();
                    budget.next_ticket.set(ticket + 1);
                    queue.push_back((ticket, context.waker().clone()));
                    self.ticket = Some(ticket);
                }
            }
            return Poll::Pending;
        }
        drop(queue);
        if let Some(ticket) = self.ticket.take() {
            budget.leave(ticket);
        }
        budget.free.set(budget.free.get() - self.amount);
        // The rest may suffice for the next request.
        budget.wake_first();
        Poll::Ready(Part {
            budget,
            amount: self.amount,
        })
    }
}

impl Drop for Take<'_> {
    fn drop(&mut self) {
        if let Some(ticket) = self.ticket {
            self.budget.leave(ticket);
            self.budget.wake_first();
        }
    }
}

/// A part of a budget. It is returned on drop.
#[derive(Debug)]
pub(super) struct Part<'b> {
    budget: &'b Budget,
    amount: usize,
}

impl Drop for Part<'_> {
    fn drop(&mut self) {
        self.budget.free.set(self.budget.free.get() + self.amount);
        self.budget.wake_first();
    }
}

#[cfg(test)]
mod tests {
    use futures_util::{FutureExt, poll};

    use super::*;

    #[test]
    fn parts_are_given_in_order_and_come_back() {
        let outcome = async {
            let budget = Budget::new(10);
            let all = budget.take(50).await;
            let mut large = budget.take(8);
            let mut small = budget.take(2);
            assert!(poll!(&mut large).is_pending());
            assert!(poll!(&mut small).is_pending());
            drop(all);
            // The small part is available at once, but its request is second.
            assert!(poll!(&mut small).is_pending());
            let Poll::Ready(first) = poll!(&mut large) else {
                panic!("there is room for it");
            };
            let Poll::Ready(second) = poll!(&mut small) else {
                panic!("there is room for both");
            };
            assert_eq!(budget.free.get(), 0);
            drop((first, second));
            assert_eq!(budget.free.get(), 10);
            assert!(budget.queue.borrow().is_empty());
        };
        outcome.now_or_never().expect("nothing waits");
    }

    #[test]
    fn who_leaves_the_queue_lets_the_next_one_go() {
        let outcome = async {
            let budget = Budget::new(4);
            let held = budget.take(2).await;
            let mut first = budget.take(4);
            let mut second = budget.take(2);
            assert!(poll!(&mut first).is_pending());
            assert!(poll!(&mut second).is_pending());
            drop(first);
            assert!(poll!(&mut second).is_ready());
            drop(held);
            assert_eq!(budget.free.get(), 4);
        };
        outcome.now_or_never().expect("nothing waits");
    }
}
