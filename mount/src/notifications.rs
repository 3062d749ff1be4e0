//! The threads that tell the kernel that pages or attributes are out of date.

use std::future::ready;
use std::io;
use std::ops::Range;
use std::sync::Arc;

use rpc_transport::Client;

use crate::engine::Queue;
use crate::invalidations::Invalidations;
use crate::kernel::{Kernel, WHOLE};

/// Sends invalidations to the kernel.
///
/// Separate threads do this, because the calls block: an invalidation of pages waits for READs that
/// the file system's own thread has yet to answer. An unmount waits for that invalidation, and an
/// invalidation of attributes waits for the unmount.
pub(crate) struct Notify {
    pages: Invalidations,
    /// A separate queue, because invalidations of pages may block.
    attributes: Invalidations,
}

impl Notify {
    /// Starts the threads. `invalidate` makes the kernel forget the attributes of an inode, and,
    /// unless the offset is negative, its pages from there: this many bytes, or all if that is 0.
    pub(crate) fn start(
        invalidate: impl Fn(u64, i64, i64) -> io::Result<()> + Clone + Send + Sync + 'static,
        queue: &Arc<Queue<Client>>,
    ) -> io::Result<Self> {
        let start = |pages: bool| {
            let (invalidate, queue) = (invalidate.clone(), Arc::clone(queue));
            let forget = move |ino, range: Range<u64>| {
                let (offset, len) = match pages {
                    true => signed(&range),
                    false => (-1, 0),
                };
                if let Err(error) = invalidate(ino, offset, len) {
                    tracing::debug!(ino, offset, %error, "the kernel could not forget an inode");
                }
            };
            let done = move || {
                queue.push(Box::new(|core| {
                    core.invalidated.wake();
                    Box::pin(ready(()))
                }));
            };
            Invalidations::start(forget, done)
        };
        let (pages, attributes) = (start(true)?, start(false)?);
        Ok(Self { pages, attributes })
    }
}

/// Returns the offset and the length of a range, as the kernel is told them. No length means
/// everything behind the offset.
fn signed(range: &Range<u64>) -> (i64, i64) {
    let offset = i64::try_from(range.start).unwrap_or(i64::MAX);
    (offset, i64::try_from(range.end - range.start).unwrap_or(0))
}

impl Kernel for Notify {
    fn invalidate_pages(&self, ino: u64, range: Range<u64>) -> u64 {
        self.pages.begin(ino, range)
    }

    fn has_invalidated_pages(&self, number: u64) -> bool {
        self.pages.is_done(number)
    }

    fn invalidate_attributes(&self, ino: u64) -> u64 {
        self.attributes.begin(ino, WHOLE)
    }

    fn has_invalidated_attributes(&self, number: u64) -> bool {
        self.attributes.is_done(number)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;
    use std::sync::mpsc::channel;
    use std::thread;
    use std::time::{Duration, Instant};

    use super::*;

    /// The pause between two looks.
    const LOOK_AGAIN: Duration = Duration::from_millis(20);

    /// Regression test: the kernel lets no invalidation begin while an unmount waits for one of
    /// pages, which ends only with the answer to a READ. The thread that answers waited in an
    /// invalidation of attributes.
    #[test]
    fn an_invalidation_that_waits_in_the_kernel_holds_up_nobody_who_begins_one() {
        const LONG: Duration = Duration::from_secs(20);
        let (go_on, gate) = channel();
        let gate = Arc::new(Mutex::new(gate));
        let invalidate = move |_, _, _| {
            let _ = gate.lock().unwrap().recv_timeout(LONG);
            Ok(())
        };
        let start = Instant::now();
        let kernel = Notify::start(invalidate, &Arc::new(Queue::new())).unwrap();
        let (pages, attributes) = (
            kernel.invalidate_pages(7, WHOLE),
            kernel.invalidate_attributes(7),
        );
        assert!(start.elapsed() < LONG);
        assert!(
            !kernel.has_invalidated_pages(pages) && !kernel.has_invalidated_attributes(attributes)
        );
        (0..2).for_each(|_| go_on.send(()).unwrap());
        while !kernel.has_invalidated_pages(pages) || !kernel.has_invalidated_attributes(attributes)
        {
            assert!(start.elapsed() < LONG);
            thread::sleep(LOOK_AGAIN);
        }
    }
}
