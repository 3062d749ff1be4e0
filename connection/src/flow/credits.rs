//! Credits (RFC 8166, section 3.3.1): the number of transmissions of calls for which the responder has receives.

/// The requester's side of flow control. One credit stands for one receive of the responder: one for
/// each transmission of a call, so one for a call of version 1. The reply returns them all. A call that
/// was cancelled locally still holds its credits until its reply arrives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RequesterCredits {
    requested: u32,
    granted: u32,
    in_flight: u32,
    /// The part of `in_flight` that stands for transmissions of refused calls that may not have
    /// reached the responder yet.
    held: u32,
}

impl RequesterCredits {
    /// Creates the account of a new connection: one credit until a reply grants more (RFC
    /// 8166, section 3.3.3). `requested`, at least 1, is the value that every call requests: the maximum number
    /// of outstanding calls, for whose replies this side posts receives.
    #[must_use]
    pub fn new(requested: u32) -> Self {
        Self {
            requested: requested.max(1),
            granted: 1,
            in_flight: 0,
            held: 0,
        }
    }

    /// Returns the value of `rdma_credit` in a call.
    #[must_use]
    pub fn requested(&self) -> u32 {
        self.requested
    }

    /// Returns the number of credits that may be in use now. At least one more than those held is
    /// always allowed, whatever has been granted since: only the reply to a further call can
    /// release the held credits. The held credits and that call together are within the earlier
    /// grant, for which the responder has posted receives.
    #[must_use]
    pub fn limit(&self) -> u32 {
        self.requested
            .min(self.granted)
            .max(self.held.saturating_add(1))
    }

    /// Returns the number of credits held for transmissions of refused calls (see
    /// [`RequesterCredits::refused_group`]). They are included in [`RequesterCredits::in_flight`].
    #[must_use]
    pub fn held(&self) -> u32 {
        self.held
    }

    /// Returns the number of credits in use, one for each transmission of an outstanding call. It
    /// may exceed the limit for a while after the responder has lowered its grant.
    #[must_use]
    pub fn in_flight(&self) -> u32 {
        self.in_flight
    }

    /// Returns the number of transmissions of calls that may be sent now.
    #[must_use]
    pub fn available(&self) -> u32 {
        self.limit().saturating_sub(self.in_flight)
    }

    /// Takes a credit for a call that is about to be sent. Returns false if none is left; the call
    /// must then wait.
    #[must_use]
    pub fn take(&mut self) -> bool {
        self.take_group(1)
    }

    /// Takes a credit for each of the `transmissions` of a call. Returns false, and takes none, if
    /// there are not enough.
    #[must_use]
    pub fn take_group(&mut self, transmissions: u32) -> bool {
        let free = self.available() >= transmissions;
        if free {
            self.in_flight += transmissions;
        }
        free
    }

    /// Records the arrival of a reply to an outstanding call, with `granted` in its `rdma_credit`.
    /// Returns the call's credit and applies the new grant. A grant of zero would be a deadlock and
    /// counts as one. An RDMA_ERROR is no valid reply (RFC 8166, section 3.3.3): it returns the credit by
    /// [`RequesterCredits::replied_group`], without a grant, and may lower the limit by
    /// [`RequesterCredits::lower_grant`].
    pub fn replied(&mut self, granted: u32) {
        self.replied_group(1, Some(granted));
    }

    /// Records the answer to a call that was sent in `transmissions` messages, and returns all its
    /// credits. `granted` is `None` if the answer's `rdma_credit` must be ignored.
    pub fn replied_group(&mut self, transmissions: u32, granted: Option<u32>) {
        if let Some(granted) = granted {
            self.apply_grant(granted);
        }
        self.in_flight = self.in_flight.saturating_sub(transmissions);
    }

    /// Records that a call sent in `transmissions` messages was refused by an answer to one of
    /// them. The other messages may still be in flight and use up receives when they arrive. One
    /// credit is returned, for sending the call with another transfer mode; the others are held
    /// until [`RequesterCredits::release_held`]. Returns the number of credits held.
    #[must_use]
    pub fn refused_group(&mut self, transmissions: u32, granted: Option<u32>) -> u32 {
        // The answer shows that one of the messages has arrived, and nothing of the others.
        let held = transmissions.saturating_sub(1);
        self.held = self.held.saturating_add(held);
        self.replied_group(transmissions.min(1), granted);
        held
    }

    /// Releases held credits for `transmissions` messages of refused calls. They have arrived if a
    /// call that was sent after them has been answered.
    pub fn release_held(&mut self, transmissions: u32) {
        self.held = self.held.saturating_sub(transmissions);
        self.in_flight = self.in_flight.saturating_sub(transmissions);
    }

    /// Applies the credits of an RDMA_ERROR. They never raise the limit, because only a valid reply
    /// reports it (RFC 8166, section 3.3.3). They may lower it: a responder that grants less in an error may
    /// have fewer receives from then on.
    pub fn lower_grant(&mut self, granted: u32) {
        self.granted = self.granted.min(granted.max(1));
    }

    /// Applies the grant of a message that answers no call.
    pub fn apply_grant(&mut self, granted: u32) {
        self.granted = granted.max(1);
    }
}

/// A requester has more outstanding calls than the maximum number of receives that this responder
/// has posted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{outstanding} calls outstanding where {capacity} were granted at most")]
pub struct CallOverrun {
    /// Calls that have arrived and are not answered.
    pub outstanding: u32,
    /// The largest number of credits granted so far, or for calls that take no credit, their largest
    /// number ([`FURTHER_CALLS`](super::FURTHER_CALLS)).
    pub capacity: u32,
}

/// The responder's side of flow control: the credits that it grants, and the calls that hold some.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ResponderCredits {
    capacity: u32,
    /// The maximum that is granted at present. It is never more than the capacity in effect.
    limit: u32,
    /// The number of credits that the policy has chosen.
    chosen: u32,
    requested: u32,
    outstanding: u32,
}

impl ResponderCredits {
    /// Creates the account of a new connection. Receives for `capacity` calls, at least 1, must be
    /// posted before the connection is accepted.
    #[must_use]
    pub fn new(capacity: u32) -> Self {
        Self {
            capacity: capacity.max(1),
            limit: u32::MAX,
            chosen: u32::MAX,
            requested: 1,
            outstanding: 0,
        }
    }

    /// Raises the capacity, after the receives for it have been posted. The next reply grants it to
    /// the requester (RFC 8166, section 3.3.1). A lower value has no effect, because the requester may
    /// already have used the earlier grant.
    pub fn raise(&mut self, capacity: u32) {
        self.capacity = self.capacity.max(capacity);
    }

    /// Limits the credits that answers grant from now on, to one at least. The capacity stays, because
    /// the requester may already have used an earlier grant.
    pub fn limit(&mut self, credits: u32) {
        self.limit = credits.max(1);
    }

    /// Sets the number of credits that the policy wants to be granted from now on. Replies grant
    /// the nearest number that can be granted.
    pub fn set_policy_choice(&mut self, credits: u32) {
        self.chosen = credits;
    }

    /// Records the arrival of a call that requests `requested` credits.
    ///
    /// # Errors
    /// [`CallOverrun`] if the requester exceeds its grant.
    pub fn called(&mut self, requested: u32) -> Result<(), CallOverrun> {
        self.called_group(requested, 1)
    }

    /// Records the arrival of `transmissions` messages of a call that requests `requested` credits.
    /// Each message takes one credit.
    ///
    /// # Errors
    /// [`CallOverrun`] if the requester exceeds its grant.
    pub fn called_group(&mut self, requested: u32, transmissions: u32) -> Result<(), CallOverrun> {
        let outstanding = self.outstanding.saturating_add(transmissions);
        let capacity = self.capacity;
        if outstanding > capacity {
            return Err(CallOverrun {
                outstanding,
                capacity,
            });
        }
        // The latest request counts: a requester may ask for fewer than before.
        self.requested = requested;
        self.outstanding = outstanding;
        Ok(())
    }

    /// Records that a call in one message was answered or dropped. A receive for the next call must
    /// already be posted.
    pub fn ended(&mut self) {
        self.ended_group(1);
    }

    /// Records that a call in `transmissions` messages was answered or dropped. A receive for the
    /// next call must already be posted.
    pub fn ended_group(&mut self, transmissions: u32) {
        self.outstanding = self.outstanding.saturating_sub(transmissions);
    }

    /// Returns the most credits that can be granted at present: the number last requested, limited
    /// to the number of posted receives, and never zero.
    #[must_use]
    pub fn grantable(&self) -> u32 {
        self.requested.clamp(1, self.capacity.min(self.limit))
    }

    /// Returns the number of credits granted at present, the `rdma_credit` of a reply: the number
    /// chosen, if that can be granted, and never zero.
    #[must_use]
    pub fn grant(&self) -> u32 {
        self.chosen.clamp(1, self.grantable())
    }

    /// Returns the number of calls that have arrived and are not answered.
    #[must_use]
    pub fn outstanding(&self) -> u32 {
        self.outstanding
    }
}
