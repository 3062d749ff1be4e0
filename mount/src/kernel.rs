//! Notifications that the kernel gets without a request: that pages or attributes are out of date.

use std::future::ready;
use std::io;
use std::ops::Range;
use std::sync::Arc;

use rpc_transport::Client;

use crate::core::{Connect, Core};
use crate::engine::Queue;
use crate::invalidations::Invalidations;
use crate::node::{Node, Permissions};

/// The range of a whole file.
pub(crate) const WHOLE: Range<u64> = 0..u64::MAX;

/// Notifications that the file system sends to the kernel without a request.
pub(crate) trait Kernel {
    /// Begins to make the kernel forget the pages of a range of a file, which differ from what the
    /// server has. Returns the number of this invalidation, which is never 0.
    fn invalidate_pages(&self, ino: u64, range: Range<u64>) -> u64;
    /// Returns whether an invalidation of pages has ended, with or without success; true for 0.
    /// [`Core::invalidated`] is woken when one ends.
    fn has_invalidated_pages(&self, number: u64) -> bool;
    /// Begins to make the kernel ask for the attributes of an object again. Returns the number of
    /// this invalidation, which is never 0. Invalidations of pages are numbered separately.
    fn invalidate_attributes(&self, ino: u64) -> u64;
    /// Returns whether an invalidation of attributes has ended, as
    /// [`Kernel::has_invalidated_pages`] does for one of pages.
    fn has_invalidated_attributes(&self, number: u64) -> bool;
}

impl<C: Connect> Core<C> {
    /// Invalidates cached state of an object, here and in the kernel: the names of a directory, or,
    /// with `data`, the content of a file. Called when another client has changed the object, when
    /// written data was lost, and when the kernel has not learnt of a change.
    pub(crate) fn forget_cached(&self, node: &Node<C::As>, data: bool) {
        if node.is_directory() {
            node.names_version.set(node.names_version.get() + 1);
        } else if data {
            node.data_version.set(node.data_version.get() + 1);
            if node.paged.get().is_some() {
                node.page_invalidation
                    .set(self.kernel.invalidate_pages(node.ino, WHOLE));
            }
        }
        self.forget_attributes(node);
    }

    /// Begins to make the kernel ask for the attributes of an object again.
    pub(crate) fn forget_attributes(&self, node: &Node<C::As>) {
        node.shown_permissions.set(None);
        let number = self.kernel.invalidate_attributes(node.ino);
        node.attribute_invalidation.set(number);
    }

    /// Makes the kernel fetch the attributes of a file again if their owner or mode differs from
    /// what it was told. The server clears set-id bits when somebody writes to a file. The kernel
    /// leaves that to the file system (`FUSE_HANDLE_KILLPRIV`), and executes a file with the mode
    /// that it was told last.
    pub(crate) fn check_permissions(&self, node: &Node<C::As>) {
        let now = Permissions::of(node.attributes.borrow().get());
        if node
            .shown_permissions
            .get()
            .is_some_and(|shown| shown != now)
        {
            self.forget_attributes(node);
        }
    }

    /// Waits until the kernel has dropped the attributes of an object that are known to be out of
    /// date. Any request may wait for this. The kernel drops attributes at once, except while an
    /// unmount waits; but nothing can be unmounted while a request for an open file is in progress.
    pub(crate) async fn until_attributes_invalidated(&self, node: &Node<C::As>) {
        let number = node.attribute_invalidation.get();
        let gone = || self.kernel.has_invalidated_attributes(number).then_some(());
        if number != 0 {
            self.invalidated.until(gone).await;
        }
    }

    /// Waits until the kernel has dropped the pages of a file, and the attributes of an object,
    /// that are known to be out of date. Otherwise a program that has learnt of a change could
    /// still get the old state.
    ///
    /// The kernel cannot drop pages before its requests to read or write them are answered, nor
    /// before a SETATTR of the file's size is. While an unmount waits for that, the kernel drops
    /// nothing of any object. So READ, WRITE and a SETATTR of the size must not call this: they
    /// would deadlock. ([`crate::direct`] explains why a WRITE with O_DIRECT may wait for pages.)
    /// Any other SETATTR may call it: during it, as during a LINK, the kernel holds back writes by
    /// programs, but not the write-back of mapped pages.
    pub(crate) async fn until_invalidated(&self, node: &Node<C::As>) {
        // Only the changes known now: with later ones, the wait might never end.
        let (pages, attributes) = (
            node.page_invalidation.get(),
            node.attribute_invalidation.get(),
        );
        let gone = || {
            let pages_gone = pages == 0 || self.kernel.has_invalidated_pages(pages);
            let attributes_gone =
                attributes == 0 || self.kernel.has_invalidated_attributes(attributes);
            (pages_gone && attributes_gone).then_some(())
        };
        self.invalidated.until(gone).await;
    }

    /// Returns whether the kernel may have pages of a file that are known to be out of date.
    /// Replies that cannot wait ([`Core::until_invalidated`]) then omit the attributes, or let the
    /// kernel cache them for no time.
    pub(crate) fn has_old_pages(&self, node: &Node<C::As>) -> bool {
        let latest = node.page_invalidation.get();
        latest != 0 && !self.kernel.has_invalidated_pages(latest)
    }
}

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
