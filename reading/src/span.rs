//! Packets from one to another.

use crate::call::At;

/// The first and the last packet of something.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Span {
    pub(crate) first: At,
    pub(crate) last: At,
    pub(crate) packets: u32,
}

impl Span {
    pub(crate) fn of(at: At) -> Self {
        Self {
            first: at,
            last: at,
            packets: 1,
        }
    }

    /// Adds what follows.
    pub(crate) fn extend(&mut self, next: Self) {
        // The packet in which one ends and the next begins counts once.
        let shared = u32::from(self.last.packet == next.first.packet);
        self.packets = self
            .packets
            .saturating_add(next.packets - shared.min(next.packets));
        self.last = self.last.max(next.last);
    }
}
