//! Credits (section 3.3.1): how many calls may be outstanding on a connection.

/// A requester's account. One credit is one call that was sent and not answered yet; a call that
/// nobody waits for any more still holds its credit until its reply arrives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RequesterCredits {
    requested: u32,
    granted: u32,
    in_flight: u32,
    /// Of those, transmissions of calls that were refused before all of them can be known to have
    /// arrived.
    held: u32,
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
            held: 0,
        }
    }

    /// The value of `rdma_credit` in a call.
    #[must_use]
    pub fn requested(&self) -> u32 {
        self.requested
    }

    /// Calls that may be outstanding at present. Never fewer than one beyond what is held, whatever was
    /// granted since: the answer to one more call is what frees that, and both together are no more than
    /// what was granted when the refused calls were sent.
    #[must_use]
    pub fn limit(&self) -> u32 {
        self.requested
            .min(self.granted)
            .max(self.held.saturating_add(1))
    }

    /// Of the calls outstanding, those that stand for transmissions of refused ones.
    #[must_use]
    pub fn held(&self) -> u32 {
        self.held
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
        self.take_group(1)
    }

    /// Takes a credit for each transmission of a call that is sent in `transmissions` of them.
    /// False: there are not enough, and none is taken.
    #[must_use]
    pub fn take_group(&mut self, transmissions: u32) -> bool {
        let free = self.available() >= transmissions;
        if free {
            self.in_flight += transmissions;
        }
        free
    }

    /// A message for an outstanding call arrived, a reply or an RDMA_ERROR, with `granted` in its
    /// `rdma_credit`: the call's credit is free again, and the limit is the new one. A grant of
    /// zero would be a deadlock and is taken for one.
    pub fn replied(&mut self, granted: u32) {
        self.replied_group(1, Some(granted));
    }

    /// A call that was sent in `transmissions` of them is answered: all its credits are free again.
    /// `granted` is nothing where the answer's `rdma_credit` is not to be acted upon.
    pub fn replied_group(&mut self, transmissions: u32, granted: Option<u32>) {
        if let Some(granted) = granted {
            self.granted(granted);
        }
        self.in_flight = self.in_flight.saturating_sub(transmissions);
    }

    /// A call that was sent in `transmissions` of them is refused, by an answer to one of them: the others
    /// may still be on their way, and take receives when they arrive. One credit is free, to send the call
    /// in another way; the others are held until [`RequesterCredits::arrived`]. Gives how many these are.
    #[must_use]
    pub fn refused_group(&mut self, transmissions: u32, granted: Option<u32>) -> u32 {
        let held = transmissions.saturating_sub(1);
        self.held = self.held.saturating_add(held);
        self.replied_group(transmissions.min(1), granted);
        held
    }

    /// So many of the transmissions that were held for have arrived: the answer to a call that was sent
    /// after them says so.
    pub fn arrived(&mut self, transmissions: u32) {
        self.held = self.held.saturating_sub(transmissions);
        self.in_flight = self.in_flight.saturating_sub(transmissions);
    }

    /// A message that answers no call came with this grant: the limit is the new one.
    pub fn granted(&mut self, granted: u32) {
        self.granted = granted.max(1);
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
        self.called_group(requested, 1)
    }

    /// A transmission arrived, or `transmissions` of them, of a call that asks for `requested`
    /// credits. Each transmission takes one.
    ///
    /// # Errors
    /// Likewise.
    pub fn called_group(
        &mut self,
        requested: u32,
        transmissions: u32,
    ) -> Result<(), CreditOverrun> {
        let outstanding = self.outstanding.saturating_add(transmissions);
        let capacity = self.capacity;
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
        self.answered_group(1)
    }

    /// The same of a call that came in `transmissions` of them.
    #[must_use]
    pub fn answered_group(&mut self, transmissions: u32) -> u32 {
        self.outstanding = self.outstanding.saturating_sub(transmissions);
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
