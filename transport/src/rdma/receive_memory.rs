//! The memory for a server's receives, and the share of a connection in it.
//!
//! All receives of a server share one limit. As their memory comes near it, connections get fewer
//! credits. Receives that bulk data can be placed in are long, and calls in several transmissions hold
//! the receives that they arrived in, so both are allowed only within the first half of the limit.

use rpcrdma_connection::{BEYOND_CREDITS, Protocols, ReceiveStructure, Versions, receive_memory};

/// A new connection gets at most the remaining memory divided by this number. So the more
/// connections there are, the fewer credits the next one has, before any is rejected.
const PARTS: usize = 4;

/// The part of the memory for receives that a new connection gets, and what it may do with it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Share {
    /// The maximum number of outstanding calls.
    pub(super) credits: u32,
    /// The maximum number of outstanding callbacks.
    pub(super) callbacks: u32,
    /// Whether bulk data may be placed in the receives.
    pub(super) placing: bool,
    /// Whether calls may come in several transmissions.
    pub(super) groups: bool,
    /// Whether the peer may ask for longer receives.
    pub(super) longer: bool,
    /// Bytes of the pool that are counted for its receives.
    pub(super) memory: usize,
}

/// The receives that a new connection gets if there is enough memory.
#[derive(Clone, Copy, Debug)]
pub(super) struct Wish<'a> {
    /// The maximum number of outstanding calls.
    pub(super) credits: u32,
    /// The maximum number of outstanding callbacks.
    pub(super) callbacks: u32,
    /// The protocols of this end. If calls may arrive in several transmissions, an incomplete call
    /// holds the receives of its parts, and others are posted in their place.
    pub(super) protocols: &'a Protocols,
    /// The versions that the connection may speak.
    pub(super) versions: &'a Versions,
}

/// Returns the share of a new connection in `limit` bytes, of which `taken` belong to other connections,
/// or `None` if not even one credit fits. `plain` is the structure of receives without placement, and
/// `placing` the one with it, if this end has such. `longest` is the length that the peer may ask for
/// longer receives. Placement, longer receives, and calls in several transmissions are allowed only if
/// the total stays within half of `limit`, so that they never cause a connection to be rejected.
/// Placement is not allowed either if the connection would have fewer credits or callbacks with it.
pub(super) fn share(
    limit: usize,
    taken: usize,
    plain: &ReceiveStructure,
    placing: Option<&ReceiveStructure>,
    longest: u32,
    wish: Wish<'_>,
) -> Option<Share> {
    let plain = share_of(limit, taken, plain, longest, wish)?;
    let placing = placing
        .and_then(|placing| share_of(limit, taken, placing, longest, wish))
        .filter(|share| {
            taken.saturating_add(share.memory) <= limit / 2
                && share.credits == plain.credits
                && share.callbacks == plain.callbacks
        });
    Some(placing.map_or(plain, |share| Share {
        placing: true,
        ..share
    }))
}

/// Returns the share of a new connection whose receives have the structure `receives`.
fn share_of(
    limit: usize,
    taken: usize,
    receives: &ReceiveStructure,
    longest: u32,
    wish: Wish<'_>,
) -> Option<Share> {
    let Wish {
        credits,
        callbacks,
        protocols,
        versions,
    } = wish;
    let each = receive_memory(receives);
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
    let spared = |memory: usize| taken.saturating_add(memory) <= limit / 2;
    let count = (credits + callbacks).saturating_add(BEYOND_CREDITS) as usize;
    let held = protocols.held_by_a_call(|version| versions.contains(version), credits) as usize;
    let groups = held > 0 && spared(each.saturating_mul(count + held));
    let count = if groups { count + held } else { count };
    let larger = receive_memory(&receives.resized(longest)).max(each);
    let larger = larger.saturating_mul(count);
    let longer = spared(larger);
    Some(Share {
        credits,
        callbacks,
        placing: false,
        groups,
        longer,
        memory: match longer {
            true => larger,
            false => each.saturating_mul(count),
        },
    })
}

/// Returns the bytes of receives that a connection with one credit takes.
pub(super) fn least(receives: &ReceiveStructure) -> usize {
    receive_memory(receives).saturating_mul(BEYOND_CREDITS as usize + 1)
}

#[cfg(test)]
mod tests {
    use quickcheck::quickcheck;
    use rpcrdma_connection::Options;

    use super::*;

    /// Receives that bulk data can be placed in.
    fn placing() -> ReceiveStructure {
        Options::server(protocols("ddp").0).receives(|_| true)
    }

    /// Returns the shares of connections until one is rejected.
    fn shares(limit: usize, placing: Option<&ReceiveStructure>, wish: Wish) -> Vec<Share> {
        let plain = ReceiveStructure::plain(4096);
        let mut taken = 0;
        let mut shares = Vec::new();
        while let Some(share) = share(limit, taken, &plain, placing, 32 << 10, wish) {
            taken += share.memory;
            assert!(taken <= limit);
            shares.push(share);
        }
        assert!(limit - taken < (BEYOND_CREDITS as usize + 1) * receive_memory(&plain));
        shares
    }

    /// Returns protocols with these features, all of whose versions may be spoken.
    fn protocols(features: &str) -> (Protocols, Versions) {
        let protocols = rpcrdma_protocols::standard(&features.parse().unwrap());
        (protocols, Versions::default())
    }

    fn wish<'a>(
        credits: u32,
        callbacks: u32,
        (protocols, versions): &'a (Protocols, Versions),
    ) -> Wish<'a> {
        Wish {
            credits,
            callbacks,
            protocols,
            versions,
        }
    }

    #[test]
    fn later_connections_have_fewer_credits_before_none_is_taken() {
        let shares = shares(512 << 20, None, wish(64, 0, &protocols("ddp:send+cont")));
        assert!(shares.is_sorted_by(|a, b| a.credits >= b.credits));
        assert_eq!(shares[500].credits, 64);
        assert_eq!(shares.last().unwrap().credits, 1);
        assert!(!shares.iter().any(|share| share.placing));
    }

    #[test]
    fn placed_data_takes_half_of_the_memory_and_no_credits() {
        let both = protocols("ddp+cont");
        let calls = wish(64, 0, &both);
        let placed = shares(512 << 20, Some(&placing()), calls);
        let none = shares(512 << 20, None, calls);
        let number = placed.iter().filter(|share| share.placing).count();
        assert!((20..60).contains(&number), "{number} with placed data");
        let begin = &placed[..number];
        assert!(
            begin
                .iter()
                .all(|share| share.placing && share.credits == 64)
        );
        assert!(
            placed.len() > none.len() / 2,
            "{} and {}",
            placed.len(),
            none.len()
        );
        let groups = placed.iter().filter(|share| share.groups).count();
        assert!((20..40).contains(&groups), "{groups} with groups");
        // Enough for all credits of one connection, but not if they are for placed data.
        let few = shares(4 << 20, Some(&placing()), calls);
        assert!(!few.iter().any(|share| share.placing));
        // The same for callbacks.
        let first = shares(24 << 20, Some(&placing()), wish(64, 32, &both))[0];
        assert_eq!((first.callbacks, first.placing), (32, false));
    }

    #[test]
    fn longer_receives_leave_room_for_a_thousand_plain_connections() {
        let receives = ReceiveStructure::plain(4096);
        let (limit, mut taken, mut longer) = (512 << 20, 0, 0);
        let protocols = protocols("ddp:send+cont");
        for n in 0..1000 {
            let wish = wish(64, 0, &protocols);
            let share = share(limit, taken, &receives, None, 32 << 10, wish).unwrap();
            taken += share.memory;
            longer += usize::from(share.longer);
            assert!(
                share.credits >= 8,
                "connection {n} has {} credits",
                share.credits
            );
        }
        assert!(
            (50..1000).contains(&longer),
            "{longer} may have longer receives"
        );
    }

    quickcheck! {
        fn the_least_lets_one_connection_in_and_less_lets_none(len: u16, cont: bool) -> bool {
            let receives = ReceiveStructure::plain(usize::from(len) + 64);
            let features = if cont { "ddp+cont" } else { "none" };
            let protocols = protocols(features);
            let wish = wish(64, 32, &protocols);
            let least = least(&receives);
            let given = |limit| share(limit, 0, &receives, None, 32 << 10, wish).map(|share| share.credits);
            given(least) == Some(1) && given(least - 1).is_none()
        }

        fn no_share_passes_the_limit(
            limit: u32, taken: u32, len: u16, longest: u16, credits: u8, callbacks: u8, cont: bool
        ) -> bool {
            let (limit, taken) = (limit as usize, taken as usize);
            let receives = ReceiveStructure::plain(usize::from(len) + 64);
            let features = if cont { "cont" } else { "cont:send" };
            let protocols = protocols(features);
            let wish = wish(u32::from(credits) + 1, u32::from(callbacks), &protocols);
            let share = share(limit, taken, &receives, Some(&placing()), u32::from(longest), wish);
            share.is_none_or(|share| {
                // A call of as many parts as there are credits, up to the longest that is taken.
                let held = if share.groups { share.credits.min(64) } else { 0 };
                let count = share.credits + share.callbacks + held + BEYOND_CREDITS;
                let receives = if share.placing { placing() } else { receives };
                (cont || !share.groups)
                    && taken + share.memory <= limit
                    && share.memory >= receive_memory(&receives) * count as usize
                    && (1..=wish.credits).contains(&share.credits)
            })
        }
    }
}
