//! The size of this side's receives, and when the peer may rely on it (section 3.1).
//!
//! Receives that are posted cannot be taken back; each is replaced when a message has used it. So
//! the size is raised in the order: replace all, then tell. It is lowered only when the peer asks,
//! who sends no more than it asked for from then on, and in the order: wait for the replies to
//! calls that counted on the old size, tell, replace.

/// What is under way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Change {
    /// Receives are being replaced by larger ones; at the peer's request or not.
    Raising { to: u32, requested: bool },
    /// The peer is to be told, or has been, and has not shown yet that it understood.
    Announced { to: u32 },
    /// Calls are outstanding whose replies may be longer than the new size.
    Lowering { to: u32 },
}

/// What becomes of a request of the peer's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Disposition {
    Done,
    Rejected,
    /// Raise: replace receives by those of this size.
    Raise(u32),
    /// Lower: wait for the replies to the calls sent so far.
    Lower,
}

#[derive(Debug)]
pub(crate) struct OwnSize {
    /// Every receive is at least this long.
    current: u32,
    /// What the peer is known to rely on.
    told: u32,
    /// Neither side makes it less or more than this.
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

    /// This side wants its receives longer. False: they are, another change is under way, or it is
    /// too long.
    pub(crate) fn raise(&mut self, to: u32) -> bool {
        let possible = self.change.is_none() && to > self.current && to <= self.bounds.1;
        if possible {
            let requested = false;
            self.change = Some(Change::Raising { to, requested });
        }
        possible
    }

    /// The peer wants another size. What is possible of it is done (section 4.4: partial
    /// satisfaction).
    pub(crate) fn requested(&mut self, size: u32) -> Disposition {
        if size == self.current && self.change.is_none() {
            // Also where the peer had not understood that it is so.
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
        // The peer keeps to it already.
        self.told = to;
        Disposition::Lower
    }

    /// Every receive is of this size. Gives the update to send: the size, and whether it completes
    /// a request.
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

    /// The calls that were outstanding when the size was to be lowered are answered. Gives the
    /// update to send; the receives may be replaced.
    pub(crate) fn earlier_answered(&mut self) -> Option<u32> {
        let Some(Change::Lowering { to }) = self.change else {
            return None;
        };
        self.current = to;
        self.change = None;
        Some(to)
    }

    /// The peer has understood what was announced.
    pub(crate) fn understood(&mut self) -> bool {
        let Some(Change::Announced { to }) = self.change else {
            return false;
        };
        self.told = to;
        self.change = None;
        true
    }

    /// The peer does not understand updates: it goes by what it was told before.
    pub(crate) fn not_understood(&mut self) {
        if let Some(Change::Announced { .. }) = self.change {
            self.change = None;
        }
    }
}
