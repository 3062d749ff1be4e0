//! How much memory a server's receives may take, and what part of it a connection gets.

use super::link::BEYOND_CREDITS;
use super::{ReceiveStructure, round_trips};

/// A new connection gets at most one part in this many of what is left: the more there are, the
/// fewer credits the next one has, before any is turned away.
const PARTS: usize = 4;

/// What a connection may have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Share {
    /// Calls outstanding.
    pub(super) credits: u32,
    /// Callbacks outstanding.
    pub(super) callbacks: u32,
    /// Receives may be made longer, to what was asked about.
    pub(super) longer: bool,
    /// Bytes of the pool that are counted for it.
    pub(super) memory: usize,
}

/// Shares out `limit` bytes, of which `taken` are counted for other connections. Longer receives are
/// allowed out of half of it alone, so that they turn nobody away. Nothing when there is not enough
/// for a credit.
pub(super) fn share(
    limit: usize,
    taken: usize,
    receives: &ReceiveStructure,
    longest: u32,
    (credits, callbacks): (u32, u32),
) -> Option<Share> {
    let each = receives.memory();
    let left = limit.saturating_sub(taken);
    let room = |bytes: usize| u32::try_from(bytes / each).unwrap_or(u32::MAX);
    let wanted = credits
        .saturating_add(callbacks)
        .saturating_add(BEYOND_CREDITS);
    let (credits, callbacks) = if wanted <= room(left / PARTS) {
        (credits, callbacks)
    } else if room(left) > BEYOND_CREDITS {
        let fewer = room(left / PARTS).saturating_sub(BEYOND_CREDITS);
        (credits.min(fewer).max(1), 0)
    } else {
        return None;
    };
    let count = (credits + callbacks).saturating_add(BEYOND_CREDITS) as usize;
    let memory = each.saturating_mul(count);
    let larger = round_trips::resized(receives, longest).memory().max(each);
    let larger = larger.saturating_mul(count);
    let longer = taken.saturating_add(larger) <= limit / 2;
    Some(Share {
        credits,
        callbacks,
        longer,
        memory: if longer { larger } else { memory },
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use quickcheck::quickcheck;

    #[test]
    fn later_connections_have_fewer_credits_before_none_is_taken() {
        let receives = round_trips::placing(4096);
        let (limit, mut taken) = (512 << 20, 0);
        let mut credits = Vec::new();
        while let Some(share) = share(limit, taken, &receives, 32 << 10, (64, 0)) {
            taken += share.memory;
            credits.push(share.credits);
        }
        assert!(taken <= limit);
        assert!(credits.is_sorted_by(|a, b| a >= b), "{credits:?}");
        let whole = credits.iter().filter(|&&credits| credits == 64).count();
        assert!(whole >= 100, "{whole} with all credits");
        assert_eq!(credits.last(), Some(&1));
        assert!(limit - taken < (BEYOND_CREDITS as usize + 1) * receives.memory());
    }

    #[test]
    fn longer_receives_leave_room_for_a_thousand_plain_connections() {
        let receives = ReceiveStructure::plain(4096);
        let (limit, mut taken, mut longer) = (512 << 20, 0, 0);
        for n in 0..1000 {
            let share = share(limit, taken, &receives, 32 << 10, (64, 0)).unwrap();
            taken += share.memory;
            longer += usize::from(share.longer);
            assert!(
                share.credits >= 8,
                "connection {n} has {} credits",
                share.credits
            );
        }
        assert!(
            (100..1000).contains(&longer),
            "{longer} may have longer receives"
        );
    }

    quickcheck! {
        fn no_share_passes_the_limit(
            limit: u32, taken: u32, len: u16, longest: u16, credits: u8, callbacks: u8
        ) -> bool {
            let (limit, taken) = (limit as usize, taken as usize);
            let receives = ReceiveStructure::plain(usize::from(len) + 64);
            let wanted = (u32::from(credits) + 1, u32::from(callbacks));
            let share = share(limit, taken, &receives, u32::from(longest), wanted);
            share.is_none_or(|share| {
                let count = share.credits + share.callbacks + BEYOND_CREDITS;
                taken + share.memory <= limit
                    && share.memory >= receives.memory() * count as usize
                    && (1..=wanted.0).contains(&share.credits)
            })
        }
    }
}
