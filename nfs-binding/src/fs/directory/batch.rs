//! What a thread remembers of an object from one operation of a batch to the next ones.
//!
//! All calls of a batch had arrived before its first operation began. So what was true at any time since
//! then is a right answer to each of them, and the kernel need not be asked again: with sixteen READs of a
//! file in flight, its attributes are read once. What is remembered ends with the batch, because
//! later calls may follow a change whose reply their client has seen.

use std::cell::RefCell;

use crate::fs::FileId;
use crate::proto::Attributes;

/// The last object of an operation.
struct Last {
    /// The address of the file system.
    served: usize,
    id: FileId,
    /// The attributes at some time in this batch.
    attributes: Option<Attributes>,
    /// Whether the kernel allowed this thread's present identity to read it.
    readable: bool,
}

thread_local! {
    /// What this thread remembers in the batch that it executes, if it executes one.
    static LAST: RefCell<Option<Last>> = const { RefCell::new(None) };
}

/// Runs `change` on what is remembered of the object `id` of the file system at the address `served`.
fn remember(served: usize, id: &FileId, change: impl FnOnce(&mut Last)) {
    if !super::keeps::is_in_batch() {
        return;
    }
    LAST.with_borrow_mut(|last| {
        if last.as_ref().is_none_or(|last| !last.is(served, id)) {
            *last = Some(Last {
                served,
                id: *id,
                attributes: None,
                readable: false,
            });
        }
        if let Some(last) = last {
            change(last);
        }
    });
}

impl Last {
    fn is(&self, served: usize, id: &FileId) -> bool {
        self.served == served && self.id == *id
    }
}

/// Records that the kernel allows this thread's present identity to read an object.
pub(super) fn remember_readable(served: usize, id: &FileId) {
    remember(served, id, |last| last.readable = true);
}

/// Returns whether the kernel allowed this thread's present identity to read an object, in an operation of
/// this batch.
pub(super) fn is_readable(served: usize, id: &FileId) -> bool {
    LAST.with_borrow(|last| {
        let last = last.as_ref().filter(|last| last.is(served, id));
        last.is_some_and(|last| last.readable)
    })
}

/// Records that this thread has another identity.
pub(super) fn forget_readable() {
    LAST.with_borrow_mut(|last| {
        if let Some(last) = last {
            last.readable = false;
        }
    });
}

/// Records the attributes of an object.
pub(super) fn remember_attributes(served: usize, id: &FileId, attributes: &Attributes) {
    let attributes = attributes.clone();
    remember(served, id, |last| last.attributes = Some(attributes));
}

/// Returns the attributes that an object had at some time since the last call of this batch arrived.
pub(super) fn attributes(served: usize, id: &FileId) -> Option<Attributes> {
    LAST.with_borrow(|last| {
        let last = last.as_ref().filter(|last| last.is(served, id));
        last.and_then(|last| last.attributes.clone())
    })
}

/// Records that this thread is about to change an object.
pub(super) fn forget_attributes() {
    LAST.with_borrow_mut(|last| {
        if let Some(last) = last {
            last.attributes = None;
        }
    });
}

/// Forgets everything, at the end of the batch.
pub(super) fn end() {
    LAST.take();
}
