//! Lists of entries in order of use, whose links are in the entries.

use slab::Slab;

/// No entry.
const NONE: u32 = u32::MAX;

/// An entry that is in `N` lists.
pub(super) trait Linked<const N: usize> {
    /// Returns the entry's links, one for each list.
    fn links(&mut self) -> &mut [Link; N];
}

/// The neighbours of an entry in a list.
#[derive(Clone, Copy, Debug)]
pub(super) struct Link {
    before: u32,
    after: u32,
}

impl Link {
    pub(super) const NONE: Self = Self {
        before: NONE,
        after: NONE,
    };
}

/// A list of entries, the least recently used first. `WHICH` is the number of the link that it
/// uses.
#[derive(Debug)]
pub(super) struct Order<const WHICH: usize> {
    first: u32,
    last: u32,
}

impl<const WHICH: usize> Default for Order<WHICH> {
    fn default() -> Self {
        Self {
            first: NONE,
            last: NONE,
        }
    }
}

impl<const WHICH: usize> Order<WHICH> {
    /// Returns the entry that has not been used for longest.
    pub(super) fn first(&self) -> Option<usize> {
        (self.first != NONE).then_some(self.first as usize)
    }

    /// Appends an entry that is not in the list.
    pub(super) fn push<T: Linked<N>, const N: usize>(&mut self, all: &mut Slab<T>, at: usize) {
        let at = at as u32;
        let before = std::mem::replace(&mut self.last, at);
        link::<T, N, WHICH>(all, at).before = before;
        match before {
            NONE => self.first = at,
            before => link::<T, N, WHICH>(all, before).after = at,
        }
    }

    /// Removes an entry that is in the list.
    pub(super) fn remove<T: Linked<N>, const N: usize>(&mut self, all: &mut Slab<T>, at: usize) {
        let own = link::<T, N, WHICH>(all, at as u32);
        let Link { before, after } = std::mem::replace(own, Link::NONE);
        match before {
            NONE => self.first = after,
            before => link::<T, N, WHICH>(all, before).after = after,
        }
        match after {
            NONE => self.last = before,
            after => link::<T, N, WHICH>(all, after).before = before,
        }
    }
}

fn link<T: Linked<N>, const N: usize, const WHICH: usize>(all: &mut Slab<T>, at: u32) -> &mut Link {
    &mut all[at as usize].links()[WHICH]
}
