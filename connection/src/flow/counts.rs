//! The counts of messages by which both ends know what may be sent (version-two-07, section 4.2.1).
//!
//! Each end counts the messages that it has sent and received, of every header type, from the start
//! of the connection. The credit field of a message is a limit for its receiver: the receiver may
//! send until its count of sent messages reaches the limit. Counts and limits are 32-bit numbers
//! that wrap: `a` is ahead of `b` if `a - b` modulo 2^32 is between 1 and 2^31 - 1.
//!
//! In the draft, the credit field is "set to the sum of the connection's 'Sent message count' and
//! 'Advertised credits' values". The peer compares the field with its own count of sent messages,
//! which corresponds to this end's count of *received* messages. This implementation therefore adds
//! the advertised credits to the received count. With the sent count, the limit would have no
//! relation to the posted receives.
//!
//! An ordinary message may be sent while the count of sent messages is below the limit. A grant may
//! also be sent when the count equals the limit, because the receiver keeps one more receive posted
//! than it advertises (section 4.2.1.1). So two ends without credits can still grant each other new
//! ones.
//!
//! The printed rule for sending ("MUST NOT post this message if [the] 'Sent message counter' is
//! greater than the connection's current 'Received credits' value") allows one ordinary message
//! more than there are advertised receives. This implementation does not send that message, but a
//! peer may. So this end accepts one surplus message, and needs a receive for it in addition to the
//! one for a grant. A peer that follows the printed rule sends one message beyond every limit. If
//! each surplus message raised the limit of an end that advertises nothing, the peer could send
//! without end. So while nothing is advertised, a surplus message does not raise the limit; only a
//! grant beyond the limit does.
//!
//! Two rules keep that sound, which the draft does not have:
//!
//! - An end never lowers a limit that it has sent, although the draft allows the "most recently
//!   received message" to have any limit. If both ends lowered the limits while messages are in
//!   flight, both could have sent more than their new limits allow, and neither could send even a
//!   grant. An end that wants fewer messages repeats its last limit until the peer has sent enough
//!   messages.
//! - An end advertises at least [`MIN_CREDITS`], minus one for each call of the peer whose reply has
//!   not left yet. A grant itself uses a credit. With a lower minimum, one grant would use half of
//!   the credits that the other end advertises. The other end would answer with a grant, and two
//!   idle ends would exchange grants for ever. For the same reason, [`MessageCounts::limit_is_due`] does not
//!   count credits that grants have used. There is one exception: a peer without any credit left is
//!   due a new limit if at least [`MIN_CREDITS`] can be advertised. If fewer can be advertised,
//!   replies have not left yet, and they will carry the new limit. But the replies may themselves wait for the
//!   peer's reply to a callback. So a server with a callback outstanding sends a GRANT at once, if it can
//!   advertise any credit.

use super::{GrantAll, GrantPolicy as _};

/// Maximum number of advertised credits (section 4.2.1: less than 2^31 - 1).
pub const MAX_CREDITS: u32 = (1 << 31) - 2;
/// Minimum number of credits to advertise while messages can be taken. With fewer, two idle ends that
/// keep to section 4.2.1.1 would answer each other's grants with grants for ever.
pub const MIN_CREDITS: u32 = 3;

/// The peer sent more messages than it was allowed to. The connection cannot be continued.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("message {count} received, where the limit told to the peer is {limit}")]
pub struct Overrun {
    /// Number of the message, counted from 1 modulo 2^32.
    pub count: u32,
    /// Limit that the peer was told.
    pub limit: u32,
}

/// The messages that one end of a connection has sent and received, and the limits of both directions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MessageCounts {
    sent: u32,
    received: u32,
    /// "Received credits": up to which count this end may send, from the peer's last message.
    limit: u32,
    /// The limit that the peer was told last, which is the highest one.
    told: u32,
    /// The number of grants received since then.
    grants: u32,
    /// Whether one of the messages received beyond `told` is a grant.
    grant_beyond: bool,
}

/// The number of messages that a peer may send beyond the limit that it was told: a grant, and an
/// ordinary message.
const BEYOND: i64 = 2;

impl Default for MessageCounts {
    fn default() -> Self {
        Self::new()
    }
}

impl MessageCounts {
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
        Self::continuing(count, count)
    }

    /// Creates the state of a connection on which this many messages have been sent and received,
    /// possibly in other versions, and on which each end may send one more. The counts include all
    /// Sends and Receives since the connection was established (section 4.2.1), and so also
    /// messages that were refused before the version was known.
    #[must_use]
    pub fn continuing(sent: u32, received: u32) -> Self {
        Self {
            sent,
            received,
            limit: sent.wrapping_add(1),
            told: received.wrapping_add(1),
            grants: 0,
            grant_beyond: false,
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

    /// Returns whether a grant may be sent now. One grant may be sent when
    /// [`MessageCounts::may_send`] returns zero.
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
    /// from here on, at most [`MAX_CREDITS`]. If the last limit sent already allows the peer more
    /// messages, the value is that limit again.
    #[must_use]
    pub fn credit(&mut self, advertised: u32) -> u32 {
        let credit = self.next_credit(advertised);
        self.set_told(credit);
        credit
    }

    fn set_told(&mut self, credit: u32) {
        self.grant_beyond &= credit == self.told;
        self.told = credit;
        self.grants = 0;
    }

    /// Returns the value of [`MessageCounts::credit`] without remembering that the peer was told, for
    /// a message that is encoded now and may be sent later. [`MessageCounts::record_told`] must follow when
    /// it is sent.
    #[must_use]
    pub fn next_credit(&self, advertised: u32) -> u32 {
        let next = self.next_limit(advertised);
        match ahead(next, self.told) > 0 {
            true => next,
            // The peer may have used what it was told (see the module documentation).
            false => self.told,
        }
    }

    /// Records that a message with this value of the credit field is sent. Returns `false`, without
    /// recording it, if the value is behind what the peer was told before; the message must not be
    /// sent then.
    #[must_use]
    pub fn record_told(&mut self, credit: u32) -> bool {
        let may_be_told = ahead(credit, self.told) >= 0;
        if may_be_told {
            self.set_told(credit);
        }
        may_be_told
    }

    fn next_limit(&self, advertised: u32) -> u32 {
        match advertised {
            // The limit covers again the receive that a grant has used, but not that of a surplus
            // message.
            0 => self.told.wrapping_add(u32::from(self.grant_beyond)),
            _ => self.received.wrapping_add(advertised.min(MAX_CREDITS)),
        }
    }

    /// Counts a received message and takes over the limit in its credit field. A peer may lower it;
    /// what was sent before stays sent. Beyond the limit that the peer was told, one grant and one
    /// ordinary message are taken.
    ///
    /// # Errors
    /// [`Overrun`] if the peer was not allowed to send the message. Nothing has been taken over.
    pub fn take_received(&mut self, credit: u32, is_grant: bool) -> Result<(), Overrun> {
        let count = self.received.wrapping_add(1);
        let beyond = i64::from(ahead(count, self.told));
        let had_grant = self.grant_beyond && beyond > 1;
        // At most one grant and one ordinary message are allowed beyond the limit.
        let allowed = match is_grant == had_grant {
            true => BEYOND - 1,
            false => BEYOND,
        };
        if beyond > allowed {
            return Err(Overrun {
                count,
                limit: self.told,
            });
        }
        self.grant_beyond = beyond > 0 && (had_grant || is_grant);
        self.received = count;
        self.limit = credit;
        self.grants = match is_grant {
            true => self.grants.saturating_add(1),
            false => self.grants,
        };
        Ok(())
    }

    /// Returns the number of receives that must be posted: one for each message that the peer may
    /// send by what it was told, one for a grant (section 4.2.1.1), and one for a surplus message.
    #[must_use]
    pub fn receives_needed(&self) -> u32 {
        // The peer may have used the additional receives already.
        let needed = i64::from(ahead(self.told, self.received)) + BEYOND;
        u32::try_from(needed).unwrap_or(0)
    }

    /// Returns whether the peer may send nothing but a grant.
    #[must_use]
    pub fn peer_has_no_credit(&self) -> bool {
        ahead(self.told, self.received) <= 0
    }

    /// Returns whether a new limit should be sent to the peer, by a grant if no other message is to
    /// be sent. The limit for `advertised` credits must be ahead of the last limit sent, and the
    /// peer must have at most `advertised` / 2 credits left. A peer that gets its new limit in time
    /// never waits (section 4.2.1.1). If the peer has no credit left, a new limit is also due if
    /// `advertised` is at least [`MIN_CREDITS`].
    #[must_use]
    pub fn limit_is_due(&self, advertised: u32) -> bool {
        self.limit_is_due_by(advertised, |left, advertised| {
            GrantAll.refreshes(left, advertised)
        })
    }

    /// Returns the value of [`MessageCounts::limit_is_due`] where `refreshes` decides, by the credits that
    /// the peer has left and those to advertise, whether the peer is told while it has any. Credits
    /// that the peer's grants have used since the last limit count as left, and a limit that makes
    /// up for no more than these is not due: two idle ends would answer grants with grants for ever.
    #[must_use]
    pub fn limit_is_due_by(
        &self,
        advertised: u32,
        refreshes: impl FnOnce(u32, u32) -> bool,
    ) -> bool {
        let advertised = advertised.min(MAX_CREDITS);
        // The peer would learn nothing from a new message.
        if ahead(self.next_credit(advertised), self.told) <= 0 {
            return false;
        }
        let left = u32::try_from(ahead(self.told, self.received)).unwrap_or(0);
        let used_up = left == 0 && advertised >= MIN_CREDITS;
        let left = left.saturating_add(self.grants);
        used_up || left < advertised.max(1) && refreshes(left, advertised)
    }
}

/// Returns how far `a` is ahead of `b`; negative if it is behind.
fn ahead(a: u32, b: u32) -> i32 {
    a.wrapping_sub(b).cast_signed()
}
