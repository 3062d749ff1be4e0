//! Credits of both ends (version-two-07, 4.2.1). The field has the messages received and those for which there are
//! receives (errata-07, 1).

use crate::client::rules::{Findings, Rule};
use crate::wire::wg::{GRANT, PREFIX};

/// The bound of credit limits (version-two-07, 4.2.1).
const BOUND: u32 = (1 << 31) - 1;

/// The counts of one connection.
#[derive(Debug)]
pub(super) struct Counts {
    sent: u32,
    received: u32,
    /// The limit that the client has told.
    limit: u32,
    /// The limit that this end has told.
    told: u32,
}

impl Counts {
    pub(super) fn new() -> Self {
        Self {
            sent: 0,
            received: 0,
            limit: 1,
            told: 1,
        }
    }

    pub(super) fn has_sent(&self) -> bool {
        self.sent > 0
    }

    /// Returns the number of messages that have come.
    pub(super) fn received(&self) -> u32 {
        self.received
    }

    /// Counts a message of the client.
    pub(super) fn receive(&mut self) {
        self.received = self.received.wrapping_add(1);
    }

    /// Looks at a message that was counted, and takes its limit.
    pub(super) fn take(&mut self, findings: &mut Findings, htype: u32, credit: u32) {
        let is_grant = htype == GRANT;
        // A receive beyond the limit is for RDMA2_GRANT (4.2.1.1), and the letter allows one message more.
        let beyond = self.received.wrapping_sub(self.told).cast_signed();
        let more = i32::from(is_grant);
        let (received, told) = (self.received, self.told);
        let text = move || format!("message {received} of the connection; the limit is {told}");
        findings.look(Rule::CountedCredits, beyond <= 1 + more, text);
        findings.look(Rule::NoSurplus, beyond <= more, text);
        let is_bounded = credit < BOUND;
        findings.look(Rule::CreditLimit, is_bounded, || {
            format!("rdma_credit is {credit}")
        });
        self.limit = match is_bounded {
            true => credit,
            // Whatever it means, this end goes on.
            false => self.sent.wrapping_add(BOUND / 2),
        };
    }

    /// Returns whether the client can receive a message.
    pub(super) fn is_open(&self, message: &[u8]) -> bool {
        let more = self.limit.wrapping_sub(self.sent).cast_signed();
        more > 0 || more == 0 && is_grant(message)
    }

    /// Returns whether the client can receive so many messages.
    pub(super) fn is_open_for(&self, messages: usize) -> bool {
        let more = self.limit.wrapping_sub(self.sent).cast_signed();
        usize::try_from(more).is_ok_and(|more| more >= messages)
    }

    /// Returns the number of messages that the client may still send. It is negative if it sent more.
    pub(super) fn left(&self) -> i32 {
        self.told.wrapping_sub(self.received).cast_signed()
    }

    /// Returns a message as it is sent, with the limit for a client that may send `advertised` messages more. A limit
    /// is never taken back.
    pub(super) fn stamped(&mut self, message: &[u8], advertised: u32) -> Vec<u8> {
        let next = self.received.wrapping_add(advertised);
        if next.wrapping_sub(self.told).cast_signed() > 0 {
            self.told = next;
        }
        self.sent = self.sent.wrapping_add(1);
        let mut message = message.to_vec();
        if let Some(field) = message.get_mut(8..12) {
            field.copy_from_slice(&self.told.to_be_bytes());
        }
        message
    }
}

/// Returns whether a message is RDMA2_GRANT.
fn is_grant(message: &[u8]) -> bool {
    message.len() == PREFIX && message.ends_with(&GRANT.to_be_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::wg::{self, CALL_INLINE, credit};

    /// Has calls come, and returns which rules they break.
    fn after(calls: u32, htype: u32) -> [bool; 2] {
        let (mut counts, mut findings) = (Counts::new(), Findings::default());
        counts.receive();
        counts.take(&mut findings, CALL_INLINE, 9);
        assert_eq!(credit(&counts.stamped(&wg::grant(0), 2)), Some(3));
        for _ in 0..calls {
            counts.receive();
            counts.take(&mut findings, htype, 9);
        }
        [Rule::CountedCredits, Rule::NoSurplus].map(|rule| findings.broken(rule).is_some())
    }

    #[test]
    fn a_message_beyond_the_limit_breaks_what_is_meant_and_two_break_the_letter() {
        assert_eq!(after(2, CALL_INLINE), [false, false]);
        assert_eq!(after(3, CALL_INLINE), [false, true]);
        assert_eq!(after(4, CALL_INLINE), [true, true]);
        assert_eq!(after(3, GRANT), [false, false]);
        assert_eq!(after(5, GRANT), [true, true]);
    }

    #[test]
    fn this_end_waits_for_credits_and_never_takes_back_its_own() {
        let (mut counts, mut findings) = (Counts::new(), Findings::default());
        let reply = wg::reply(7, &[0; 4]);
        assert!(counts.is_open(&reply));
        counts.receive();
        assert_eq!(credit(&counts.stamped(&reply, 8)), Some(9));
        assert_eq!(credit(&counts.stamped(&reply, 0)), Some(9));
        assert!(!counts.is_open(&wg::grant(1)));
        counts.take(&mut findings, CALL_INLINE, 2);
        assert!(!counts.is_open(&reply) && counts.is_open(&wg::grant(1)));
        assert!(counts.is_open_for(0) && !counts.is_open_for(1));
        counts.take(&mut findings, CALL_INLINE, 4);
        assert!(counts.is_open_for(2) && !counts.is_open_for(3));
        assert_eq!(counts.left(), 8);
        counts.take(&mut findings, CALL_INLINE, u32::MAX);
        assert!(counts.is_open(&reply));
        assert!(findings.broken(Rule::CreditLimit).is_some());
        // Messages that are too short for a limit are counted.
        assert_eq!(counts.stamped(&[1, 2], 9), [1, 2]);
    }
}
