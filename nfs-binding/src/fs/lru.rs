//! A bounded map that evicts the least recently used entry.

use std::collections::HashMap;
use std::hash::Hash;

use slab::Slab;

struct Entry<K, V> {
    key: K,
    value: V,
    /// The neighbour towards the most recently used entry.
    newer: Option<usize>,
    /// The neighbour towards the least recently used entry.
    older: Option<usize>,
}

/// A map of at most `limit` entries, ordered by use.
pub(super) struct Lru<K, V> {
    limit: usize,
    index: HashMap<K, usize>,
    entries: Slab<Entry<K, V>>,
    newest: Option<usize>,
    oldest: Option<usize>,
}

impl<K: Copy + Eq + Hash, V> Lru<K, V> {
    /// Creates an empty map. `limit` is raised to at least 1.
    pub(super) fn new(limit: usize) -> Self {
        Self {
            limit: limit.max(1),
            index: HashMap::new(),
            entries: Slab::new(),
            newest: None,
            oldest: None,
        }
    }

    fn unlink(&mut self, at: usize) {
        let (newer, older) = (self.entries[at].newer, self.entries[at].older);
        match newer {
            Some(newer) => self.entries[newer].older = older,
            None => self.newest = older,
        }
        match older {
            Some(older) => self.entries[older].newer = newer,
            None => self.oldest = newer,
        }
    }

    fn link_newest(&mut self, at: usize) {
        let older = self.newest.replace(at);
        self.entries[at].newer = None;
        self.entries[at].older = older;
        match older {
            Some(older) => self.entries[older].newer = Some(at),
            None => self.oldest = Some(at),
        }
    }

    /// Returns whether there is an entry with this key.
    pub(super) fn contains(&self, key: &K) -> bool {
        self.index.contains_key(key)
    }

    /// Returns the value of `key`, which becomes the most recently used.
    pub(super) fn get(&mut self, key: &K) -> Option<&mut V> {
        let at = *self.index.get(key)?;
        if self.newest != Some(at) {
            self.unlink(at);
            self.link_newest(at);
        }
        Some(&mut self.entries[at].value)
    }

    /// Sets the value of `key`. Returns the value that was displaced: the key's former value, or
    /// that of the evicted least recently used entry.
    pub(super) fn insert(&mut self, key: K, value: V) -> Option<V> {
        if let Some(present) = self.get(&key) {
            return Some(std::mem::replace(present, value));
        }
        let mut out = None;
        if self.is_full()
            && let Some(oldest) = self.oldest
        {
            let key = self.entries[oldest].key;
            out = self.remove(&key);
        }
        let at = self.entries.insert(Entry {
            key,
            value,
            newer: None,
            older: None,
        });
        self.index.insert(key, at);
        self.link_newest(at);
        out
    }

    /// Returns the least recently used entry.
    pub(super) fn oldest(&self) -> Option<(&K, &V)> {
        let entry = &self.entries[self.oldest?];
        Some((&entry.key, &entry.value))
    }

    /// Returns whether the next new key evicts an entry.
    pub(super) fn is_full(&self) -> bool {
        self.entries.len() >= self.limit
    }

    /// Returns whether the map is empty.
    pub(super) fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Removes `key`.
    pub(super) fn remove(&mut self, key: &K) -> Option<V> {
        let at = self.index.remove(key)?;
        self.unlink(at);
        Some(self.entries.remove(at).value)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn forgets_the_least_recently_used() {
        let mut lru = Lru::new(3);
        for key in 0..3 {
            assert_eq!(lru.insert(key, key * 10), None);
        }
        assert_eq!(lru.get(&0), Some(&mut 0));
        assert_eq!(lru.insert(3, 30), Some(10));
        assert_eq!(lru.get(&1), None);
        assert_eq!(lru.insert(0, 5), Some(0));
        assert_eq!(lru.insert(4, 40), Some(20));
        let left = [0, 1, 2, 3, 4].map(|key| lru.get(&key).copied());
        assert_eq!(left, [Some(5), None, None, Some(30), Some(40)]);
        assert_eq!(lru.oldest(), Some((&0, &5)));
    }

    #[test]
    fn removal_keeps_the_order() {
        let mut lru = Lru::new(4);
        for key in 0..4 {
            lru.insert(key, ());
        }
        assert!(lru.remove(&0).is_some());
        assert!(lru.remove(&3).is_some());
        assert!(lru.remove(&3).is_none());
        lru.insert(5, ());
        lru.insert(6, ());
        assert!(lru.insert(7, ()).is_some());
        assert!(lru.get(&1).is_none());
        assert!(lru.get(&2).is_some());
    }
}
