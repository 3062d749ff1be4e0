//! How long threads keep identities.

use std::cell::Cell;

thread_local! {
    /// How long this thread keeps the identity that it has.
    pub(super) static KEEPS: Cell<Keeps> = const { Cell::new(Keeps::Operation) };
}

/// How long a thread keeps the identity of a caller.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Keeps {
    /// Until the operation ends.
    Operation,
    /// Until [`super::return_to_server`]: for some operations whose calls had all arrived before.
    Batch,
    /// Until an operation of another caller.
    Always,
}

/// Returns whether this thread executes a batch of operations whose calls have all arrived.
pub(super) fn is_in_batch() -> bool {
    KEEPS.get() == Keeps::Batch
}
