//! Bounded caches: open objects, and the last known places of objects. They are divided by object
//! into parts, each with a lock of its own, so that calls for different objects rarely wait for one
//! another.

use std::sync::{Arc, MutexGuard};
use std::time::Instant;

use rpcrdma_host::{CountedMutex, LockCounter};

use super::node::Node;
use crate::fs::FileId;
use crate::fs::lru::Lru;

/// The maximum number of objects whose place is remembered, at about 200 bytes each.
const PLACES: usize = 256 << 10;
/// The maximum numbers of objects that are remembered as gone, and of objects being searched for.
const GONE: usize = 16 << 10;

/// The maximum number of parts.
const MOST_PARTS: usize = 32;
/// The minimum number of open objects that a part can hold, unless there is only one.
const LEAST_OPEN: usize = 64;

/// The maximum number of objects that are passed over, because they are in use or must stay open, in
/// search of one to evict. After that, the next one is evicted in any case.
const MOST_SPARED: usize = 16;

/// Counts how often a call waited for a part.
static CONTENDED: LockCounter = LockCounter::new("open objects of a directory");

/// The last known place of an object.
#[derive(Clone)]
pub(super) struct Place {
    pub(super) parent: FileId,
    pub(super) name: Box<[u8]>,
}

/// An object that is being searched for.
#[derive(Clone, Copy)]
pub(super) struct Wanted {
    /// The time at which the search began.
    pub(super) since: Instant,
    /// The start of the latest index that does not contain the object.
    last: Option<Instant>,
    /// The numbers of complete and of incomplete indexes, begun since then, that do not contain the
    /// object.
    pub(super) complete: u32,
    pub(super) incomplete: u32,
}

/// Bounded caches about the export. Losing an entry costs only time, with two exceptions. A file that
/// cannot be reopened (`Served::must_stay_open`) can then no longer be written by its owner. An object
/// that a full index does not contain is found again only when it is looked up by name.
pub(super) struct Tables {
    parts: Box<[CountedMutex<Table>]>,
}

impl Tables {
    /// Creates empty caches that keep at most `open` objects open.
    pub(super) fn new(open: usize) -> Self {
        let parts = (open / LEAST_OPEN).clamp(1, MOST_PARTS);
        let part = |_| CountedMutex::new(&CONTENDED, Table::new(open / parts, parts));
        Self {
            parts: (0..parts).map(part).collect(),
        }
    }

    /// Locks the part that holds all about an object.
    pub(super) fn of(&self, id: &FileId) -> MutexGuard<'_, Table> {
        self.parts[id.spread(self.parts.len())].lock()
    }

    /// Locks the part that holds all about an object, if that need not wait for a call that may be
    /// waiting itself.
    pub(super) fn soon(&self, id: &FileId) -> Option<MutexGuard<'_, Table>> {
        self.parts[id.spread(self.parts.len())].lock_soon()
    }

    /// Returns whether no object is open.
    pub(super) fn is_empty(&self) -> bool {
        self.parts.iter().all(|part| part.lock().is_empty())
    }

    /// Begins another round; see [`Table::next_round`].
    pub(super) fn next_round(&self, rounds: u64, keeps: impl Fn(&Node) -> bool) -> Vec<Arc<Node>> {
        let parts = self.parts.iter();
        let old = parts.map(|part| part.lock().next_round(rounds, &keeps));
        old.flatten().collect()
    }
}

/// Returns whether an object is in use or `keeps` returns true for it. `keeps` is not called for an
/// object in use: it waits for a call that is opening the content.
fn is_kept(node: &Arc<Node>, keeps: impl Fn(&Node) -> bool) -> bool {
    Arc::strong_count(node) > 1 || keeps(node)
}

/// A part of the caches.
///
/// Places and gone objects are remembered only if the kernel cannot open objects by their handles.
pub(super) struct Table {
    open: Lru<FileId, Arc<Node>>,
    places: Lru<FileId, Place>,
    gone: Lru<FileId, ()>,
    /// Objects that are being searched for.
    wanted: Lru<FileId, Wanted>,
    /// The present round of the idle closer.
    round: u64,
}

impl Table {
    /// Creates one of `parts` empty parts, which keeps at most `open` objects open.
    fn new(open: usize, parts: usize) -> Self {
        Self {
            open: Lru::new(open),
            places: Lru::new(PLACES / parts),
            gone: Lru::new(GONE / parts),
            wanted: Lru::new(GONE / parts),
            round: 0,
        }
    }

    /// Returns an object if it is open.
    pub(super) fn open(&mut self, id: &FileId) -> Option<Arc<Node>> {
        let node = self.open.get(id)?;
        node.record_use(self.round);
        Some(Arc::clone(node))
    }

    /// Returns whether an object is known to be gone.
    pub(super) fn is_gone(&mut self, id: &FileId) -> bool {
        self.gone.get(id).is_some()
    }

    /// Records that a search for an object began `now`, or returns the earlier search.
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

    /// Records that an index that was begun at `begun` does not contain an object that is being
    /// searched for.
    pub(super) fn record_missing(
        &mut self,
        id: &FileId,
        begun: Instant,
        complete: bool,
    ) -> Option<Wanted> {
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

    /// Returns the last known place of an object.
    pub(super) fn place(&mut self, id: &FileId) -> Option<Place> {
        self.places.get(id).cloned()
    }

    /// Records that `id` is the entry `name` of `parent`.
    pub(super) fn record_place(&mut self, id: FileId, parent: FileId, name: &[u8]) {
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

    /// Keeps an object open. Returns the object to use, and an object that the caller must handle after
    /// unlocking the table: `node` itself if the object was already open; otherwise, if the table is
    /// full, the evicted object. That is the least recently used one, or one of the next few if that is
    /// in use or `keeps` returns true.
    pub(super) fn keep_open(
        &mut self,
        node: Node,
        keeps: impl Fn(&Node) -> bool,
    ) -> (Arc<Node>, Option<Arc<Node>>) {
        if let Some(open) = self.open(&node.id) {
            return (open, Some(Arc::new(node)));
        }
        self.spare_oldest(keeps);
        node.record_use(self.round);
        let node = Arc::new(node);
        let closed = self.open.insert(node.id, Arc::clone(&node));
        (node, closed)
    }

    /// Returns whether [`Table::keep_open`] of this object evicts another one.
    pub(super) fn evicts_for(&self, id: &FileId) -> bool {
        self.open.is_full() && !self.open.contains(id)
    }

    /// If the table is full, makes the least recently used objects that are in use, or for which
    /// `keeps` returns true, count as just used, so that another one is evicted.
    fn spare_oldest(&mut self, keeps: impl Fn(&Node) -> bool) {
        for _ in 0..MOST_SPARED {
            let oldest = self.open.oldest().filter(|_| self.open.is_full());
            let Some((&id, _)) = oldest.filter(|(_, node)| is_kept(node, &keeps)) else {
                return;
            };
            drop(self.open(&id));
        }
    }

    /// Forgets the place of an object if it is still the entry `name` of `parent`.
    pub(super) fn forget_place(&mut self, id: &FileId, parent: &FileId, name: &[u8]) {
        if let Some(place) = self.places.get(id)
            && place.parent == *parent
            && *place.name == *name
        {
            self.places.remove(id);
        }
    }

    /// Removes an object that is gone. Returns it for closing.
    pub(super) fn remove(&mut self, id: &FileId) -> Option<Arc<Node>> {
        self.places.remove(id);
        self.wanted.remove(id);
        self.open.remove(id)
    }

    /// Records that an object is gone that cannot be found by its handle.
    pub(super) fn remember_gone(&mut self, id: FileId) {
        self.gone.insert(id, ());
    }

    /// Returns whether no object is open.
    fn is_empty(&self) -> bool {
        self.open.is_empty()
    }

    /// Begins another round. Removes and returns the objects that were not used in the last
    /// `rounds` rounds, except those that are in use or for which `keeps` returns true; these count
    /// as just used. The caller must drop the returned objects after unlocking the table.
    fn next_round(&mut self, rounds: u64, keeps: impl Fn(&Node) -> bool) -> Vec<Arc<Node>> {
        self.round += 1;
        let Some(newest) = self.round.checked_sub(rounds + 1) else {
            return Vec::new();
        };
        let mut old = Vec::new();
        while let Some((id, node)) = self.open.oldest()
            && node.last_used() <= newest
        {
            let (id, kept) = (*id, is_kept(node, &keeps));
            match kept {
                // It counts as just used, so that others are examined.
                true => drop(self.open(&id)),
                false => old.extend(self.open.remove(&id)),
            }
        }
        old
    }
}

#[cfg(test)]
mod tests {
    use super::super::{DirectoryFs, DirectoryOptions};
    use super::*;
    use crate::fs::{Caller, FileSystem, HowToCreate};
    use crate::proto::SetAttributes;

    #[test]
    fn what_is_in_use_does_not_make_room() {
        let host = tempfile::tempdir().unwrap();
        let options = DirectoryOptions {
            most_open: Some(3),
            ..DirectoryOptions::default()
        };
        let fs = DirectoryFs::open(host.path(), options).unwrap();
        let create = |name: &[u8]| {
            let how = HowToCreate::Guarded(SetAttributes::default());
            let made = fs.create(&Caller::root(), &fs.root(), name, &how);
            made.result.unwrap().id
        };
        let (used, idle) = (create(b"used"), create(b"idle"));
        let node = fs.0.find(&used).unwrap();
        fs.0.find(&idle).unwrap();
        for name in [b"1", b"2"] {
            create(name);
        }
        let is_open = |id: &FileId| fs.0.tables.of(id).open(id).is_some();
        assert!(is_open(&used) && !is_open(&idle));
        drop(node);
    }
}
