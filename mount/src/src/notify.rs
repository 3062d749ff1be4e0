//! Waking futures that wait for something on the same thread.

use std::cell::RefCell;
use std::future::poll_fn;
use std::task::{Poll, Waker};

/// Futures that wait until something has happened. They check what they wait for again when woken.
#[derive(Debug, Default)]
pub(crate) struct Notify {
    waiting: RefCell<Vec<Waker>>,
}

impl Notify {
    /// Wakes all futures that wait.
    pub(crate) fn wake(&self) {
        for waker in self.waiting.take() {
            waker.wake();
        }
    }

    /// Waits until `done` returns something. It is called at once, and after each [`Notify::wake`].
    pub(crate) async fn until<T>(&self, mut done: impl FnMut() -> Option<T>) -> T {
        poll_fn(|context| match done() {
            Some(value) => Poll::Ready(value),
            None => {
                self.waiting.borrow_mut().push(context.waker().clone());
                Poll::Pending
            }
        })
        .await
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use futures_util::{FutureExt, poll};

    use super::*;

    #[test]
    fn a_future_waits_until_its_condition_holds() {
        let outcome = async {
            let (notify, value) = (Notify::default(), Cell::new(0));
            let mut waiting = Box::pin(notify.until(|| (value.get() > 1).then(|| value.get())));
            assert!(poll!(&mut waiting).is_pending());
            value.set(1);
            notify.wake();
            assert!(poll!(&mut waiting).is_pending());
            value.set(2);
            notify.wake();
            assert_eq!(poll!(&mut waiting), Poll::Ready(2));
        };
        outcome.now_or_never().expect("nothing waits");
    }
}
