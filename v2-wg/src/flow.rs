//! Flow control (version-two-07, section 4.2.1).
//!
//! Each end counts the messages that it has sent and received, of every header type, from the start
//! of the connection. The credit field of a message tells its receiver up to which count that end
//! may send. Counts and limits are 32-bit numbers that wrap; differences below 2^31 tell which of
//! two is ahead.
//!
//! The draft has the credit field "set to the sum of the connection's 'Sent message count' and
//! 'Advertised credits' values". The peer compares it with *its* count of sent messages, which is
//! this end's count of *received* ones, so that is what is added here. With any other count the
//! limit would have nothing to do with the receives that are posted.
//!
//! An ordinary message needs a count of sent messages that is below the limit. A grant may also be
//! sent when the two are equal: the receiver keeps one receive more than it advertises for it
//! (section 4.2.1.1). Two ends that have both used their credits up can open each other that way.
//!
//! Two rules keep that sound, which the draft does not have:
//!
//! - A limit that was told is never taken back, though the draft lets the limit of the "most
//!   recently received message" be any value. If both ends lowered each other's limits while
//!   messages are on the way, both would have sent more than their limits, and neither could send
//!   even a grant. An end that wants fewer messages lets the peer use up what it was told.
//! - An end advertises [`MIN_CREDITS`] or more, less one for each call in progress. A grant uses a
//!   credit itself; with fewer, a grant alone brings the peer to half of its limit, so that it has to
//!   answer with a grant of its own, and two idle ends would send each other grants for ever. For the
//!   same reason, the credits that grants have used count as left, unless the peer has used up all
//!   and at least [`MIN_CREDITS`] can be advertised. Otherwise calls are in progress, whose replies
//!   will tell the peer.

use crate::limits::{MAX_CREDITS, MIN_CREDITS};

/// The peer sent more messages than it was allowed to. The connection cannot be continued.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("message {count} received, where the limit told to the peer is {limit}")]
pub struct Overrun {
    /// Number of the message, counted from 1 modulo 2^32.
    pub count: u32,
    /// Limit that the peer was told.
    pub limit: u32,
}

/// The state of flow control at one end of a connection, for both directions of messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FlowControl {
    sent: u32,
    received: u32,
    /// "Received credits": up to which count this end may send, from the peer's last message.
    limit: u32,
    /// The limit that the peer was told last, which is the highest one.
    told: u32,
    /// The number of grants received since then.
    grants: u32,
}

impl Default for FlowControl {
    fn default() -> Self {
        Self::new()
    }
}

impl FlowControl {
    /// Creates the state of a new connection: nothing has been sent or received, and each end may
    /// send one message until it is told more (sections 4.2.1 and 4.3).
    #[must_use]
    pub fn new() -> Self {
        Self::starting_at(0)
    }

    /// Creates the state of a connection on which `count` messages have been sent and received in
    /// each direction, and each end may send one more. With a count near 2^32 a test soon sees the
    /// counts wrap.
    #[must_use]
    pub fn starting_at(count: u32) -> Self {
        let one_more = count.wrapping_add(1);
        Self {
            sent: count,
            received: count,
            limit: one_more,
            told: one_more,
            grants: 0,
        }
    }

    /// Returns the number of messages sent, modulo 2^32.
    #[must_use]
    pub fn sent(&self) -> u32 {
        self.sent
    }

    /// Returns the number of messages received, modulo 2^32.
    #[must_use]
    pub fn received(&self) -> u32 {
        self.received
    }

    /// Returns the number of ordinary messages that may be sent now.
    #[must_use]
    pub fn may_send(&self) -> u32 {
        u32::try_from(ahead(self.limit, self.sent)).unwrap_or(0)
    }

    /// Returns whether a grant may be sent now. One more of them than of ordinary messages can be.
    #[must_use]
    pub fn may_grant(&self) -> bool {
        ahead(self.limit, self.sent) >= 0
    }

    /// Counts an ordinary message as sent, if it may be. Returns `false`, without counting it, if
    /// it must not be sent.
    #[must_use]
    pub fn take_send(&mut self) -> bool {
        self.count_sent(self.may_send() > 0)
    }

    /// Counts a grant as sent, if it may be. Returns `false`, without counting it, if it must not
    /// be sent.
    #[must_use]
    pub fn take_grant(&mut self) -> bool {
        self.count_sent(self.may_grant())
    }

    fn count_sent(&mut self, allowed: bool) -> bool {
        self.sent = self.sent.wrapping_add(u32::from(allowed));
        allowed
    }

    /// Returns the value of the credit field of a message that is sent now, and remembers that the
    /// peer was told. `advertised` is the number of messages that this end is prepared to receive
    /// from here on, at most [`MAX_CREDITS`]. If the peer may still send more than that by what it
    /// was told before, it is told the same limit again.
    #[must_use]
    pub fn credit(&mut self, advertised: u32) -> u32 {
        let credit = self.next_credit(advertised);
        self.told = credit;
        self.grants = 0;
        credit
    }

    /// Returns the value of [`FlowControl::credit`] without remembering that the peer was told, for
    /// a message that is encoded now and may be sent later. [`FlowControl::tell`] must follow when
    /// it is sent.
    #[must_use]
    pub fn next_credit(&self, advertised: u32) -> u32 {
        let next = self.next_limit(advertised);
        match ahead(next, self.told) > 0 {
            true => next,
            false => self.told,
        }
    }

    /// Records that a message with this value of the credit field is sent. Returns `false`, without
    /// recording it, if the value is behind what the peer was told before; the message must not be
    /// sent then.
    #[must_use]
    pub fn tell(&mut self, credit: u32) -> bool {
        let may_be_told = ahead(credit, self.told) >= 0;
        if may_be_told {
            self.told = credit;
            self.grants = 0;
        }
        may_be_told
    }

    fn next_limit(&self, advertised: u32) -> u32 {
        self.received.wrapping_add(advertised.min(MAX_CREDITS))
    }

    /// Counts a received message and takes over the limit in its credit field. A peer may lower it;
    /// what was sent before stays sent.
    ///
    /// # Errors
    /// [`Overrun`] if the peer was not allowed to send the message. Nothing has been taken over.
    pub fn take_received(&mut self, credit: u32, is_grant: bool) -> Result<(), Overrun> {
        let count = self.received.wrapping_add(1);
        let beyond = ahead(count, self.told);
        if beyond > i32::from(is_grant) {
            return Err(Overrun {
                count,
                limit: self.told,
            });
        }
        self.received = count;
        self.limit = credit;
        self.grants = match is_grant {
            true => self.grants.saturating_add(1),
            false => self.grants,
        };
        Ok(())
    }

    /// Returns the number of receives that must be posted: one for each message that the peer may
    /// send by what it was told, and one for a grant (section 4.2.1.1).
    #[must_use]
    pub fn receives_needed(&self) -> u32 {
        // The peer's grant may have used the additional receive already.
        u32::try_from(ahead(self.told, self.received) + 1).unwrap_or(0)
    }

    /// Returns whether the peer should be told a new limit, by a grant if nothing else is to be
    /// sent: the limit for `advertised` credits would be ahead of what the peer was told, and the
    /// peer has at most half as many left, where those that its grants have used since it was told
    /// count as left. A peer that is told in time never waits (section 4.2.1.1). If none is left, a
    /// new limit is also due if `advertised` is at least [`MIN_CREDITS`].
    #[must_use]
    pub fn due(&self, advertised: u32) -> bool {
        let left = u64::try_from(ahead(self.told, self.received)).unwrap_or(0);
        let advertised = advertised.min(MAX_CREDITS);
        let half_used = 2 * (left + u64::from(self.grants)) <= u64::from(advertised);
        let more = ahead(self.next_limit(advertised), self.told) > 0;
        let used_up = left == 0 && advertised >= MIN_CREDITS;
        more && (half_used || used_up)
    }
}

/// Returns how far `a` is ahead of `b`; negative if it is behind.
fn ahead(a: u32, b: u32) -> i32 {
    a.wrapping_sub(b).cast_signed()
}
