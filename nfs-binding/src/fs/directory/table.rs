//! What is remembered of the export: open objects, and where objects were last seen.

use std::sync::Arc;

use super::key::{Key, Trail};
use super::node::Node;
use crate::fs::lru::Lru;

/// Objects whose place is remembered: some 150 bytes each.
const PLACES: usize = 256 << 10;
/// Removed objects that are remembered as such.
const GONE: usize = 16 << 10;

/// Where an object was last seen.
#[derive(Clone)]
pub(super) struct Place {
    pub(super) parent: Key,
    pub(super) name: Box<[u8]>,
    /// The trail in its handles: kept from the first time it was seen, even if it is moved, so that
    /// an object has one handle as long as it is remembered.
    pub(super) trail: Trail,
}

/// Bounded memory of the export; nothing in it is needed to be right, only to be fast.
pub(super) struct Table {
    open: Lru<Key, Arc<Node>>,
    places: Lru<Key, Place>,
    gone: Lru<Key, ()>,
}

impl Table {
    /// Nothing yet; keeps at most `open` objects open.
    pub(super) fn new(open: usize) -> Self {
        Self {
            open: Lru::new(open),
            places: Lru::new(PLACES),
            gone: Lru::new(GONE),
        }
    }

    /// An object that is open.
    pub(super) fn open(&mut self, key: &Key) -> Option<Arc<Node>> {
        self.open.get(key).cloned()
    }

    /// Whether an object is known to be gone.
    pub(super) fn is_gone(&mut self, key: &Key) -> bool {
        self.gone.get(key).is_some()
    }

    /// Where an object was last seen.
    pub(super) fn place(&mut self, key: &Key) -> Option<Place> {
        self.places.get(key).cloned()
    }

    /// Remembers that `key` is the entry `name` of `parent`; `trail` is that of the entry if it is
    /// new. Returns the trail that its handles have.
    pub(super) fn saw(&mut self, key: Key, parent: Key, name: &[u8], trail: Trail) -> Trail {
        self.gone.remove(&key);
        if let Some(place) = self.places.get(&key) {
            if place.parent != parent || *place.name != *name {
                place.parent = parent;
                place.name = name.into();
            }
            return place.trail;
        }
        let place = Place {
            parent,
            name: name.into(),
            trail,
        };
        self.places.insert(key, place);
        trail
    }

    /// Keeps an object open. Gives back the one to use (another thread may have opened it before),
    /// and one to be closed after the table's lock was let go of.
    pub(super) fn keep_open(&mut self, node: Node) -> (Arc<Node>, Option<Arc<Node>>) {
        if let Some(open) = self.open(&node.key) {
            return (open, Some(Arc::new(node)));
        }
        let node = Arc::new(node);
        let closed = self.open.insert(node.key, Arc::clone(&node));
        (node, closed)
    }

    /// Forgets a place, if it still is that of the entry `name` of `parent`.
    pub(super) fn left(&mut self, key: &Key, parent: &Key, name: &[u8]) {
        if let Some(place) = self.places.get(key)
            && place.parent == *parent
            && *place.name == *name
        {
            self.places.remove(key);
        }
    }

    /// Remembers that an object is gone. Gives it back to be closed.
    pub(super) fn remove(&mut self, key: Key) -> Option<Arc<Node>> {
        self.places.remove(&key);
        self.gone.insert(key, ());
        self.open.remove(&key)
    }
}
