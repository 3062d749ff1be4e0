//! Credits of versions 1 and 2016, which count calls (RFC 8166, section 3.3.1).

use std::time::Duration;

use super::{Conversation, Out};
use crate::call::At;
use crate::rules;

/// A lowered grant may meet calls that its receiver sent before it arrived. So long the one before it
/// counts as well.
const IN_FLIGHT: Duration = Duration::from_secs(1);

/// The credits of one end, as a requester.
#[derive(Debug, Default)]
pub(super) struct Credits {
    /// Credits that the other end granted; `None` if that is not known.
    granted: Option<u32>,
    /// The grant before it, and when that was replaced.
    before: Option<(u32, Duration)>,
    outstanding: u32,
}

impl Credits {
    /// Begins with the one call that is allowed before the first reply (RFC 8166, section 3.3.3).
    pub(super) fn begin(&mut self) {
        self.granted.get_or_insert(1);
    }

    pub(super) fn granted(&self) -> Option<u32> {
        self.granted
    }

    /// Takes a credit. Returns the number of credits that are taken and the limit, if that is exceeded.
    fn take(&mut self, at: Duration) -> Option<(u32, u32)> {
        self.outstanding = self.outstanding.saturating_add(1);
        let before = self
            .before
            .filter(|(_, until)| at.saturating_sub(*until) <= IN_FLIGHT);
        let limit = self.granted?.max(before.map_or(0, |(granted, _)| granted));
        (self.outstanding > limit).then_some((self.outstanding, limit))
    }

    pub(super) fn give_back(&mut self, credits: u32) {
        self.outstanding = self.outstanding.saturating_sub(credits);
    }

    /// Takes a grant. One in an error never raises the limit (RFC 8166, section 3.3.3).
    pub(super) fn grant(&mut self, credits: u32, is_error: bool, at: Duration) {
        let credits = credits.max(1);
        let credits = match (is_error, self.granted) {
            (true, Some(granted)) => granted.min(credits),
            (true, None) => return,
            (false, _) => credits,
        };
        if let Some(granted) = self.granted
            && credits < granted
        {
            self.before = Some((granted, at));
        }
        self.granted = Some(credits);
    }
}

impl Conversation {
    /// Takes a credit for a transmission of a call.
    pub(super) fn take_credit(&mut self, from: usize, xid: u32, at: At, out: &mut Out<'_>) {
        let end = &mut self.ends[from];
        if let Some(pending) = end.calls.get_mut(&xid) {
            pending.credits += 1;
        }
        if let Some((outstanding, limit)) = end.credits.take(at.time) {
            let detail = format!("{outstanding} outstanding, {limit} granted");
            self.breach(&rules::CREDITS_EXCEEDED, at, Some(xid), detail, out);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_grant_limits_calls() {
        let at = Duration::from_secs;
        let mut credits = Credits::default();
        assert_eq!(credits.take(at(0)), None, "unknown");
        credits.give_back(1);
        credits.begin();
        assert_eq!(credits.take(at(0)), None);
        assert_eq!(credits.take(at(0)), Some((2, 1)));
        credits.give_back(2);
        credits.grant(4, false, at(1));
        for _ in 0..4 {
            assert_eq!(credits.take(at(2)), None);
        }
        credits.grant(2, false, at(3));
        assert_eq!(
            credits.take(at(3)),
            Some((5, 4)),
            "sent before the grant arrived"
        );
        assert_eq!(credits.take(at(5)), Some((6, 2)));
        credits.grant(9, true, at(6));
        assert_eq!(credits.granted(), Some(2));
    }

    /// Times of a capture file can be any.
    #[test]
    fn a_grant_at_the_end_of_time_limits_calls() {
        let mut credits = Credits::default();
        credits.grant(2, false, Duration::MAX);
        credits.grant(1, false, Duration::MAX);
        assert_eq!(credits.take(Duration::MAX), None);
        assert_eq!(credits.take(Duration::MAX), None, "sent before it arrived");
        assert_eq!(credits.take(Duration::ZERO), Some((3, 2)));
    }
}
