//! Objects with several names: the first name is copied, the others become links to it.

use std::cell::RefCell;
use std::collections::HashMap;
use std::hash::Hash;

/// What has become of objects with several names. `K` tells objects apart, `P` is where an
/// object's first name was copied to, `T` the task for a further name.
#[derive(Debug)]
pub(super) struct Links<K, P, T> {
    known: RefCell<HashMap<K, Known<P, T>>>,
}

#[derive(Debug)]
struct Known<P, T> {
    /// Names that may still become links, by the object's link count: at none it is forgotten.
    left: u64,
    state: State<P, T>,
}

#[derive(Debug)]
enum State<P, T> {
    /// The first name is being copied; these wait for it.
    UnderWay(Vec<T>),
    /// It was copied to there.
    At(P),
}

/// What to do with a name.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Turn<P, T> {
    /// Copy the object, and say so with [`Links::done`] or [`Links::failed`].
    Copy(T),
    /// Link to this.
    Link(T, P),
    /// Nothing now: the task will come back from [`Links::done`] or [`Links::failed`].
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
    /// A name of an object that has `nlink` names was found.
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

    /// The first name was copied. Gives back who waited.
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

    /// The first name could not be copied. Gives back who waited: the first of them tries anew.
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
