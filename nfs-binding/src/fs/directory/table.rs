//! What is remembered of the export: open objects, and where objects were last seen.

use std::sync::Arc;
use std::time::Instant;

use super::node::Node;
use crate::fs::FileId;
use crate::fs::lru::Lru;

/// Objects whose place is remembered: some 200 bytes each.
const PLACES: usize = 256 << 10;
/// Objects that are remembered as gone, and objects that are being looked for.
const GONE: usize = 16 << 10;

/// Where an object was last seen.
#[derive(Clone)]
pub(super) struct Place {
    pub(super) parent: FileId,
    pub(super) name: Box<[u8]>,
}

/// An object that is being looked for.
#[derive(Clone, Copy)]
pub(super) struct Wanted {
    /// Since when.
    pub(super) since: Instant,
    /// When the last index was begun that does not have it.
    last: Option<Instant>,
    /// Indexes that were begun since then and do not have it: those of everything, and others.
    pub(super) complete: u32,
    pub(super) incomplete: u32,
}

/// Bounded memory of the export; nothing in it is needed to be right, only to be fast.
///
/// Places, and what is gone, are remembered only where the kernel does not find objects by their
/// handles.
pub(super) struct Table {
    open: Lru<FileId, Arc<Node>>,
    places: Lru<FileId, Place>,
    gone: Lru<FileId, ()>,
    /// Objects that are being looked for.
    wanted: Lru<FileId, Wanted>,
    /// The present round of the keeper.
    round: u64,
}

impl Table {
    /// Nothing yet; keeps at most `open` objects open.
    pub(super) fn new(open: usize) -> Self {
        Self {
            open: Lru::new(open),
            places: Lru::new(PLACES),
            gone: Lru::new(GONE),
            wanted: Lru::new(GONE),
            round: 0,
        }
    }

    /// An object that is open.
    pub(super) fn open(&mut self, id: &FileId) -> Option<Arc<Node>> {
        let node = self.open.get(id)?;
        node.use_in(self.round);
        Some(Arc::clone(node))
    }

    /// Whether an object is known to be gone.
    pub(super) fn is_gone(&mut self, id: &FileId) -> bool {
        self.gone.get(id).is_some()
    }

    /// An object is being looked for, `now` or since earlier.
    pub(super) fn wanted(&mut self, id: FileId, now: Instant) -> Wanted {
        if let Some(wanted) = self.wanted.get(&id) {
            return *wanted;
        }
        let wanted = Wanted {
            since: now,
            last: None,
            complete: 0,
            incomplete: 0,
        };
        self.wanted.insert(id, wanted);
        wanted
    }

    /// An index that was begun then does not have an object that is being looked for.
    pub(super) fn missed(&mut self, id: &FileId, begun: Instant, complete: bool) -> Option<Wanted> {
        let wanted = self.wanted.get(id)?;
        if begun >= wanted.since && wanted.last.is_none_or(|last| last < begun) {
            wanted.last = Some(begun);
            match complete {
                true => wanted.complete += 1,
                false => wanted.incomplete += 1,
            }
        }
        Some(*wanted)
    }

    /// Where an object was last seen.
    pub(super) fn place(&mut self, id: &FileId) -> Option<Place> {
        self.places.get(id).cloned()
    }

    /// Remembers that `id` is the entry `name` of `parent`.
    pub(super) fn saw(&mut self, id: FileId, parent: FileId, name: &[u8]) {
        self.gone.remove(&id);
        self.wanted.remove(&id);
        if let Some(place) = self.places.get(&id)
            && place.parent == parent
            && *place.name == *name
        {
            return;
        }
        let name = name.into();
        self.places.insert(id, Place { parent, name });
    }

    /// Keeps an object open. Gives back the one to use (another thread may have opened it before),
    /// and one to be closed after the table's lock was let go of.
    pub(super) fn keep_open(&mut self, node: Node) -> (Arc<Node>, Option<Arc<Node>>) {
        if let Some(open) = self.open(&node.id) {
            return (open, Some(Arc::new(node)));
        }
        node.use_in(self.round);
        let node = Arc::new(node);
        let closed = self.open.insert(node.id, Arc::clone(&node));
        (node, closed)
    }

    /// Forgets a place, if it still is that of the entry `name` of `parent`.
    pub(super) fn left(&mut self, id: &FileId, parent: &FileId, name: &[u8]) {
        if let Some(place) = self.places.get(id)
            && place.parent == *parent
            && *place.name == *name
        {
            self.places.remove(id);
        }
    }

    /// Lets go of an object that is gone. Gives it back to be closed.
    pub(super) fn remove(&mut self, id: &FileId) -> Option<Arc<Node>> {
        self.places.remove(id);
        self.wanted.remove(id);
        self.open.remove(id)
    }

    /// Remembers that an object that nobody can find by its handle is gone.
    pub(super) fn remember_gone(&mut self, id: FileId) {
        self.gone.insert(id, ());
    }

    /// Whether no object is open.
    pub(super) fn is_empty(&self) -> bool {
        self.open.is_empty()
    }

    /// Begins another round, and takes out what was not used for the last `rounds` before it, but
    /// for what `keeps`. To be closed after the table's lock was let go of.
    pub(super) fn next_round(
        &mut self,
        rounds: u64,
        keeps: impl Fn(&Node) -> bool,
    ) -> Vec<Arc<Node>> {
        self.round += 1;
        let Some(newest) = self.round.checked_sub(rounds + 1) else {
            return Vec::new();
        };
        let mut old = Vec::new();
        while let Some((id, node)) = self.open.oldest()
            && node.last_used() <= newest
        {
            let (id, kept) = (*id, Arc::strong_count(node) > 1 || keeps(node));
            match kept {
                // As if it had been used just now, so that others are looked at.
                true => drop(self.open(&id)),
                false => old.extend(self.open.remove(&id)),
            }
        }
        old
    }
}
