//! Objects with several names: the first name is copied, the others become hard links.

use std::cell::RefCell;
use std::collections::HashMap;
use std::hash::Hash;

/// The state of objects with several names. `K` identifies an object, `P` is the place that its
/// first name was copied to, `T` is the task for a further name.
#[derive(Debug)]
pub(super) struct Links<K, P, T> {
    known: RefCell<HashMap<K, Known<P, T>>>,
}

#[derive(Debug)]
struct Known<P, T> {
    /// The number of names that may still come, by the object's link count. At 0 the object is
    /// forgotten.
    left: u64,
    state: State<P, T>,
}

#[derive(Debug)]
enum State<P, T> {
    /// The first name is being copied. These tasks wait for it.
    UnderWay(Vec<T>),
    /// The first name was copied to this place.
    At(P),
}

/// The action for a name.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Turn<P, T> {
    /// Copy the object, and report the result with [`Links::done`] or [`Links::failed`].
    Copy(T),
    /// Link to this place.
    Link(T, P),
    /// Wait: [`Links::done`] or [`Links::failed`] will return the task.
    Wait,
}

impl<K, P, T> Default for Links<K, P, T> {
    fn default() -> Self {
        Self {
            known: RefCell::default(),
        }
    }
}

impl<K: Hash + Eq + Copy, P: Clone, T> Links<K, P, T> {
    /// Records a name of an object with `nlink` names.
    pub(super) fn found(&self, key: K, nlink: u64, task: T) -> Turn<P, T> {
        let mut known = self.known.borrow_mut();
        let Some(object) = known.get_mut(&key) else {
            let left = nlink.saturating_sub(1);
            let state = State::UnderWay(Vec::new());
            known.insert(key, Known { left, state });
            return Turn::Copy(task);
        };
        match &mut object.state {
            State::UnderWay(waiting) => {
                waiting.push(task);
                Turn::Wait
            }
            State::At(place) => {
                let place = place.clone();
                object.left = object.left.saturating_sub(1);
                if object.left == 0 {
                    known.remove(&key);
                }
                Turn::Link(task, place)
            }
        }
    }

    /// Records that the first name was copied. Returns the tasks that waited for it.
    pub(super) fn done(&self, key: K, place: P) -> Vec<T> {
        let mut known = self.known.borrow_mut();
        let Some(object) = known.get_mut(&key) else {
            return Vec::new();
        };
        match std::mem::replace(&mut object.state, State::At(place)) {
            State::UnderWay(waiting) => waiting,
            State::At(_) => Vec::new(),
        }
    }

    /// Records that the first name could not be copied. Returns the tasks that waited for it; the
    /// first of them copies the object again.
    pub(super) fn failed(&self, key: K) -> Vec<T> {
        match self
            .known
            .borrow_mut()
            .remove(&key)
            .map(|object| object.state)
        {
            Some(State::UnderWay(waiting)) => waiting,
            _ => Vec::new(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn further_names_wait_for_the_first_and_then_link_to_it() {
        let links = Links::<u32, &str, char>::default();
        assert_eq!(links.found(1, 3, 'a'), Turn::Copy('a'));
        assert_eq!(links.found(1, 3, 'b'), Turn::Wait);
        assert_eq!(links.found(2, 2, 'x'), Turn::Copy('x'));
        assert_eq!(links.done(1, "place"), ['b']);
        assert_eq!(links.found(1, 3, 'b'), Turn::Link('b', "place"));
        assert_eq!(links.found(1, 3, 'c'), Turn::Link('c', "place"));
        assert_eq!(links.known.borrow().len(), 1, "all names found: forgotten");
    }

    #[test]
    fn when_the_first_name_fails_the_next_is_copied() {
        let links = Links::<u32, &str, char>::default();
        assert_eq!(links.found(1, 3, 'a'), Turn::Copy('a'));
        assert_eq!(links.found(1, 3, 'b'), Turn::Wait);
        assert_eq!(links.found(1, 3, 'c'), Turn::Wait);
        assert_eq!(links.failed(1), ['b', 'c']);
        assert_eq!(links.found(1, 3, 'b'), Turn::Copy('b'));
        assert_eq!(links.found(1, 3, 'c'), Turn::Wait);
    }
}
