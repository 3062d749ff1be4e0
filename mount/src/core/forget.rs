//! What the kernel is made to forget, and when that has to be waited for.

use crate::core::{Connect, Core};
use crate::kernel::WHOLE;
use crate::node::{Node, Permissions};

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
    /// would deadlock. ([`crate::core::direct`] explains why a WRITE with O_DIRECT may wait for pages.)
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
