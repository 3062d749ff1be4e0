//! Writes with O_DIRECT, beside the kernel's page cache.
//!
//! The kernel drops the pages of the range before such a write, and after it once more, but not if
//! the write is asynchronous (io_submit(2), io_uring(7)). A page that is read meanwhile then keeps
//! the data from before the write, also for files that are opened later. So this file system has
//! the range dropped before it answers the request. This costs nothing where no program reads the
//! file through the page cache.
//!
//! The request waits for that, although the kernel drops a page only after the requests that have
//! it locked are answered. This cannot deadlock, because none of these requests waits here for the
//! reply to another. However, the kernel sends at most [`BACKGROUND`](crate::kernel::BACKGROUND)
//! background requests at a time, such as read-ahead and the parts of asynchronous writes, and
//! queues the rest. If all of them were writes that wait, the kernel could not send the READ of the
//! page that they wait for. So only half as many writes wait. Any further write starts the
//! invalidation, and is answered without waiting for its end.

use std::cell::Cell;
use std::ops::Range;
use std::rc::Rc;

use crate::core::files::OpenFile;
use crate::core::{Connect, Core, NodeOf};
use crate::direct_run::DirectRun;
use crate::kernel::BACKGROUND;
use crate::node::Node;

/// The maximum number of writes with O_DIRECT that wait until the kernel has dropped pages.
const WAITING: u32 = BACKGROUND as u32 / 2;
/// The pages that a write with O_DIRECT makes out of date. Dropping this value tells the kernel to
/// drop the pages, so that it also happens if the writing process is killed.
pub(crate) struct OldPages<C: Connect> {
    core: Rc<Core<C>>,
    node: NodeOf<C>,
    range: Range<u64>,
}

impl<C: Connect> OldPages<C> {
    /// Returns the pages of a range, which is being written.
    pub(crate) fn of(core: &Rc<Core<C>>, node: &NodeOf<C>, range: &Range<u64>) -> Self {
        Self {
            core: Rc::clone(core),
            node: Rc::clone(node),
            range: range.clone(),
        }
    }

    /// Waits until the kernel has dropped the pages, now that the data is written.
    pub(crate) async fn are_gone(mut self) {
        let Some(number) = self.forget() else {
            return;
        };
        let core = &self.core;
        let Some(_waiting) = Waiting::begin(&core.direct_waiting) else {
            return;
        };
        let gone = || core.kernel.has_invalidated_pages(number).then_some(());
        core.invalidated.until(gone).await;
    }

    /// Begins to have the pages dropped, if there may be any. Returns the number of the
    /// invalidation.
    fn forget(&mut self) -> Option<u64> {
        let (node, range) = (&self.node, std::mem::take(&mut self.range));
        if !node.cached.get().overlaps(&range) {
            return None;
        }
        let number = self.core.kernel.invalidate_pages(node.ino, range);
        node.page_invalidation.set(number);
        Some(number)
    }
}

impl<C: Connect> Drop for OldPages<C> {
    fn drop(&mut self) {
        self.forget();
    }
}

/// One of the writes that wait; see the module documentation.
struct Waiting<'c>(&'c Cell<u32>);

impl<'c> Waiting<'c> {
    /// Counts a write, unless enough of them wait already.
    fn begin(count: &'c Cell<u32>) -> Option<Self> {
        (count.get() < WAITING).then(|| {
            count.set(count.get() + 1);
            Self(count)
        })
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.set(self.0.get() - 1);
    }
}

/// A part of a write with O_DIRECT that is in flight.
pub(crate) struct DirectPart<A> {
    node: Rc<Node<A>>,
    run: Rc<DirectRun>,
    end: u64,
    succeeded: bool,
}

impl<A> DirectPart<A> {
    pub(crate) fn begin(file: &OpenFile<A>, start: u64, len: u32) -> Self {
        let (node, mut run) = (&file.node, file.direct.borrow_mut());
        if run.end.get() != Some(start) {
            // This part begins a new write. The kernel sends none while another write extends the
            // file.
            if !run.failed.get() {
                node.sure_size.set(node.shown_size.get());
            }
            *run = Rc::default();
        }
        let end = start.saturating_add(len.into());
        run.end.set(Some(end));
        run.beyond.set(end > node.sure_size.get());
        Self {
            node: Rc::clone(node),
            run: Rc::clone(&run),
            end,
            succeeded: false,
        }
    }

    pub(crate) fn succeed(mut self) {
        self.succeeded = true;
    }
}

impl<A> Drop for DirectPart<A> {
    fn drop(&mut self) {
        match self.succeeded {
            // The kernel considers the whole write failed.
            true if self.run.failed.get() => {}
            true => shows(&self.node, self.end),
            false => self.run.failed.set(true),
        }
    }
}

/// Raises the size that the kernel takes the file to have, after a successful write up to `end`.
pub(crate) fn shows<A>(node: &Node<A>, end: u64) {
    node.shown_size.set(node.shown_size.get().max(end));
}
