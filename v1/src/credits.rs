//! Credits (RFC 8166, section 3.3.1): how many calls may be outstanding on a connection.

/// A requester's account. One credit is one call that was sent and not answered yet; a call that
/// nobody waits for any more still holds its credit until its reply arrives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RequesterCredits {
    requested: u32,
    granted: u32,
    in_flight: u32,
}

impl RequesterCredits {
    /// For a new connection: one credit, until a reply says how many there are (section 3.3.3).
    /// `requested` is what every call asks for, at least 1: the most calls this side wants to have
    /// outstanding, and keeps receive buffers for.
    #[must_use]
    pub fn new(requested: u32) -> Self {
        Self {
            requested: requested.max(1),
            granted: 1,
            in_flight: 0,
        }
    }

    /// The value of `rdma_credit` in a call.
    #[must_use]
    pub fn requested(&self) -> u32 {
        self.requested
    }

    /// Calls that may be outstanding at present.
    #[must_use]
    pub fn limit(&self) -> u32 {
        self.requested.min(self.granted)
    }

    /// Calls outstanding. May be over the limit for a while, after the responder lowered it.
    #[must_use]
    pub fn in_flight(&self) -> u32 {
        self.in_flight
    }

    /// Calls that may be sent now.
    #[must_use]
    pub fn available(&self) -> u32 {
        self.limit().saturating_sub(self.in_flight)
    }

    /// Takes a credit for a call that is to be sent. False: none is left, and it must wait.
    #[must_use]
    pub fn take(&mut self) -> bool {
        let free = self.available() > 0;
        self.in_flight += u32::from(free);
        free
    }

    /// A message for an outstanding call arrived, a reply or an RDMA_ERROR, with `granted` in its
    /// `rdma_credit`: the call's credit is free again, and the limit is the new one. A grant of
    /// zero would be a deadlock and is taken for one.
    pub fn replied(&mut self, granted: u32) {
        self.granted = granted.max(1);
        self.in_flight = self.in_flight.saturating_sub(1);
    }
}

/// A requester has more calls outstanding than this responder ever had receives for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{outstanding} calls outstanding where {capacity} were granted at most")]
pub struct CreditOverrun {
    /// Calls that arrived and are not answered.
    pub outstanding: u32,
    /// The most it was granted.
    pub capacity: u32,
}

/// A responder's account.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ResponderCredits {
    capacity: u32,
    requested: u32,
    outstanding: u32,
}

impl ResponderCredits {
    /// For a new connection, with receives for `capacity` calls (at least 1) posted before the
    /// connection was accepted.
    #[must_use]
    pub fn new(capacity: u32) -> Self {
        Self {
            capacity: capacity.max(1),
            requested: 1,
            outstanding: 0,
        }
    }

    /// Raises the capacity, after the receives for it have been posted: the next reply tells the
    /// requester (section 3.3.1). A lower value has no effect, as the requester may have used the
    /// earlier grant already.
    pub fn raise(&mut self, capacity: u32) {
        self.capacity = self.capacity.max(capacity);
    }

    /// A call arrived that asks for `requested` credits.
    ///
    /// # Errors
    /// The requester does not keep to its grant.
    pub fn called(&mut self, requested: u32) -> Result<(), CreditOverrun> {
        let (outstanding, capacity) = (self.outstanding + 1, self.capacity);
        if outstanding > capacity {
            return Err(CreditOverrun {
                outstanding,
                capacity,
            });
        }
        self.requested = requested;
        self.outstanding = outstanding;
        Ok(())
    }

    /// A call is answered, or dropped: a receive for the next one must be posted by now. Returns
    /// the `rdma_credit` of the answer: what was asked for last, as far as there are receives,
    /// and never zero.
    #[must_use]
    pub fn answered(&mut self) -> u32 {
        self.outstanding = self.outstanding.saturating_sub(1);
        self.grant()
    }

    /// What is granted at present.
    #[must_use]
    pub fn grant(&self) -> u32 {
        self.requested.clamp(1, self.capacity)
    }

    /// Calls that arrived and are not answered.
    #[must_use]
    pub fn outstanding(&self) -> u32 {
        self.outstanding
    }
}
