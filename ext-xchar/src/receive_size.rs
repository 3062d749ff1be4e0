//! The size of this side's receives, and the time from which the peer may rely on it (section 3.1).
//!
//! Posted receives cannot be taken back; each is replaced after a message has consumed it. To raise
//! the size, all receives are replaced first and then the new size is announced. The size is
//! lowered only when the peer asks, which from then on sends no message longer than it asked for.
//! To lower it, this side waits for the replies to calls that relied on the old size, then
//! announces the new size and replaces the receives.
//!
//! Each of these waits has a test that fails without it (`ext-xchar/tests/resizing.rs`,
//! `exchange.rs`).

/// A change of the size in progress.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Change {
    /// Receives are being replaced by larger ones. `requested` says whether the peer asked for it.
    Raising { to: u32, requested: bool },
    /// The new size is being announced, and the peer has not shown yet that it understood.
    Announced { to: u32 },
    /// Calls are outstanding whose replies may be longer than the new size.
    Lowering { to: u32 },
}

/// The outcome of a peer's request for another size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Disposition {
    Done,
    Rejected,
    /// The size is raised: replace the receives by ones of this size in bytes.
    Raise(u32),
    /// The size is lowered: wait for the replies to the calls sent so far.
    Lower,
}

#[derive(Debug)]
pub(crate) struct OwnSize {
    /// Minimum length in bytes of every posted receive.
    current: u32,
    /// The size in bytes on which the peer is known to rely.
    told: u32,
    /// Minimum and maximum size in bytes, for changes by either side.
    bounds: (u32, u32),
    change: Option<Change>,
}

impl OwnSize {
    pub(crate) fn new(size: u32, bounds: (u32, u32)) -> Self {
        Self {
            current: size,
            told: size,
            bounds,
            change: None,
        }
    }

    pub(crate) fn current(&self) -> u32 {
        self.current
    }

    pub(crate) fn told(&self) -> u32 {
        self.told
    }

    /// Starts a raise of the size by this side. Returns false if the receives already have that
    /// size, another change is in progress, or the size is out of bounds. An announced size can be
    /// superseded: the next call, whose reply shows that the peer has understood it, may never be made.
    pub(crate) fn raise(&mut self, to: u32) -> bool {
        let is_free = matches!(self.change, None | Some(Change::Announced { .. }));
        let possible = is_free && to > self.current && to <= self.bounds.1;
        if possible {
            let requested = false;
            self.change = Some(Change::Raising { to, requested });
        }
        possible
    }

    /// Handles the peer's request for another size. The nearest possible size is used (section 4.4:
    /// partial satisfaction). A request proves that announcements sent before it were understood; one that is
    /// still `Announced` here has not been sent, and nothing else may change before it is.
    pub(crate) fn requested(&mut self, size: u32) -> Disposition {
        if size == self.current && self.change.is_none() {
            // Needed if the peer had not understood the announcement of this size.
            self.told = size;
            return Disposition::Done;
        }
        let to = size.clamp(self.bounds.0, self.bounds.1);
        if to == self.current || self.change.is_some() {
            return Disposition::Rejected;
        }
        if to > self.current {
            let requested = true;
            self.change = Some(Change::Raising { to, requested });
            return Disposition::Raise(to);
        }
        self.change = Some(Change::Lowering { to });
        // The peer already keeps to the lower size.
        self.told = to;
        Disposition::Lower
    }

    /// Records that every receive has `size` bytes. Returns the update to send: the size, and
    /// whether it completes a request.
    pub(crate) fn replaced(&mut self, size: u32) -> Option<(u32, bool)> {
        match self.change {
            Some(Change::Raising { to, requested }) if size >= to => {
                self.current = to;
                self.change = Some(Change::Announced { to });
                Some((to, requested))
            }
            _ => None,
        }
    }

    /// Records that the calls that were outstanding when the lowering began are answered. Returns
    /// the size to announce; the receives may then be replaced.
    pub(crate) fn earlier_answered(&mut self) -> Option<u32> {
        let Some(Change::Lowering { to }) = self.change else {
            return None;
        };
        self.current = to;
        self.change = None;
        Some(to)
    }

    /// Records that the peer has understood the announced size. Returns false if none was
    /// announced.
    pub(crate) fn understood(&mut self) -> bool {
        let Some(Change::Announced { to }) = self.change else {
            return false;
        };
        self.told = to;
        self.change = None;
        true
    }

    /// Records that the peer does not understand updates, so that it still relies on the size
    /// announced before.
    pub(crate) fn not_understood(&mut self) {
        if let Some(Change::Announced { .. }) = self.change {
            self.change = None;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A server that makes no callbacks never learns that its first announcement was understood.
    #[test]
    fn an_announced_size_can_be_raised_again() {
        let mut size = OwnSize::new(1024, (1024, 16384));
        assert!(size.raise(4096));
        assert!(!size.raise(8192), "the receives are still being replaced");
        assert_eq!(size.replaced(4096), Some((4096, false)));
        assert!(size.raise(8192));
        assert_eq!(size.replaced(8192), Some((8192, false)));
        assert_eq!(size.told(), 1024);
        assert!(size.understood());
        assert_eq!(size.told(), 8192);
    }
}
