//! Memory that all connections of a process share, and the part of it that each may take.
//!
//! Every connection has an [`Account`]. Buffers of a pool that is charged to it
//! ([`crate::Pool::charged_to`]) count from their allocation until the last user lets go of them,
//! wherever they are then: in a call, at a worker, in a reply that waits for its peer.
//!
//! The first [`GUARANTEED`] bytes are every connection's own, whatever others do: that is enough for
//! short calls. Everything beyond comes out of a common part, shared with dynamic thresholds: a connection
//! may take more as long as it holds no more of the common part than is still free. A single connection
//! thus ends up with half of what it may use, and two with a third each. A connection that holds nothing of
//! the common part may take all that is free. A quarter of the common part is reserved for connections
//! whose peers have shown that they make progress ([`Account::prove`]); others share the remaining three
//! quarters.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};

use bytes::Bytes;

/// Bytes that every connection may hold whatever others hold, unless the budget is too small for so
/// many connections.
pub const GUARANTEED: usize = 64 << 10;
/// Bytes that are set aside for a call while it is being worked on: a reply of up to this length can be
/// made in any case, and longer ones (READ, READDIR) are made shorter if there is no room for more.
pub const PER_CALL: usize = 32 << 10;
/// Overhead of a shared piece beside its bytes ([`Account::hold`]).
const PIECE: usize = 128;
/// At most one part in so many of a budget is guaranteed.
const GUARANTEED_PART: usize = 2;
/// One part in so many of the common part is for connections that have proven themselves.
const PROVEN_PART: usize = 4;
/// Memory is short when more than one part in so many of the common part is taken.
const SHORT_PART: usize = 2;
/// Limit and connections of a budget that nobody has chosen.
const DEFAULT_LIMIT: usize = 1 << 30;
const DEFAULT_CONNECTIONS: usize = 1024;

/// Memory for calls and replies of all connections together. Cloning it gives another handle.
#[derive(Clone, Debug)]
pub struct Budget {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    limit: usize,
    /// Bytes that each connection has to itself.
    guaranteed: usize,
    /// Bytes that connections may take beyond that, together, and what they have taken.
    common_limit: usize,
    common: AtomicUsize,
}

impl Budget {
    /// `limit` bytes for at most `connections` connections.
    #[must_use]
    pub fn new(limit: usize, connections: usize) -> Self {
        let connections = connections.max(1);
        let guaranteed = GUARANTEED.min(limit / GUARANTEED_PART / connections);
        Self {
            shared: Arc::new(Shared {
                limit,
                guaranteed,
                common_limit: limit - guaranteed * connections,
                common: AtomicUsize::new(0),
            }),
        }
    }

    /// For a new connection.
    #[must_use]
    pub fn account(&self) -> Account {
        Account {
            shared: Arc::new(Held {
                budget: Arc::clone(&self.shared),
                bytes: AtomicUsize::new(0),
                proven: AtomicBool::new(false),
            }),
        }
    }

    /// Bytes of the whole.
    #[must_use]
    pub fn limit(&self) -> usize {
        self.shared.limit
    }

    /// Bytes that each connection has to itself.
    #[must_use]
    pub fn guaranteed(&self) -> usize {
        self.shared.guaranteed
    }

    /// Bytes that connections hold beyond what is guaranteed to each.
    #[must_use]
    pub fn common_in_use(&self) -> usize {
        self.shared.common.load(Relaxed)
    }

    /// The most that any connection can ever get at once, bytes.
    #[must_use]
    pub fn largest(&self) -> usize {
        self.shared.largest()
    }

    /// Whether so much is taken that those who hold memory and do nothing with it are in the way.
    #[must_use]
    pub fn is_short(&self) -> bool {
        self.shared.is_short()
    }
}

impl Default for Budget {
    /// A gibibyte, for a thousand connections.
    fn default() -> Self {
        Self::new(DEFAULT_LIMIT, DEFAULT_CONNECTIONS)
    }
}

impl Shared {
    fn over(&self, held: usize) -> usize {
        held.saturating_sub(self.guaranteed)
    }

    fn largest(&self) -> usize {
        self.guaranteed + self.common_limit - self.common_limit / PROVEN_PART
    }

    fn is_short(&self) -> bool {
        self.common.load(Relaxed) > self.common_limit / SHORT_PART
    }
}

#[derive(Debug)]
struct Held {
    budget: Arc<Shared>,
    bytes: AtomicUsize,
    proven: AtomicBool,
}

/// Memory account of one connection. Clones are handles to the same account.
#[derive(Clone, Debug)]
pub struct Account {
    shared: Arc<Held>,
}

impl Account {
    /// Counts bytes that the connection holds from now on. It is not asked whether there is room:
    /// see [`Account::room`].
    pub fn charge(&self, bytes: usize) {
        let Held { budget, .. } = &*self.shared;
        let before = self.shared.bytes.fetch_add(bytes, Relaxed);
        let more = budget.over(before + bytes) - budget.over(before);
        if more > 0 {
            budget.common.fetch_add(more, Relaxed);
        }
    }

    /// Counts them no longer.
    pub fn release(&self, bytes: usize) {
        let Held { budget, .. } = &*self.shared;
        let before = self.shared.bytes.fetch_sub(bytes, Relaxed);
        let less = budget.over(before) - budget.over(before.saturating_sub(bytes));
        if less > 0 {
            budget.common.fetch_sub(less, Relaxed);
        }
    }

    /// Bytes held.
    #[must_use]
    pub fn held(&self) -> usize {
        self.shared.bytes.load(Relaxed)
    }

    /// Bytes held beyond what is guaranteed.
    #[must_use]
    pub fn over(&self) -> usize {
        self.shared.budget.over(self.held())
    }

    /// How many more bytes the connection may take now.
    #[must_use]
    pub fn room(&self) -> usize {
        self.room_without(0)
    }

    /// How many bytes the connection could take if it released `own` of its bytes first. For replacing a
    /// buffer by a larger one.
    #[must_use]
    pub fn room_without(&self, own: usize) -> usize {
        let budget = &*self.shared.budget;
        let all = self.held();
        let held = all.saturating_sub(own);
        let over = budget.over(held);
        let common = budget.common.load(Relaxed) + over;
        let taken = common.saturating_sub(budget.over(all));
        let limit = match self.shared.proven.load(Relaxed) {
            true => budget.common_limit,
            false => budget.common_limit - budget.common_limit / PROVEN_PART,
        };
        let free = limit.saturating_sub(taken);
        let share = match over {
            0 => free,
            // Afterwards it is to have no more than is left.
            _ => free.saturating_sub(over) / 2,
        };
        budget.guaranteed.saturating_sub(held) + share
    }

    /// Bytes that the connection has to itself.
    #[must_use]
    pub fn guaranteed(&self) -> usize {
        self.shared.budget.guaranteed
    }

    /// The most that the connection can ever get at once, bytes.
    #[must_use]
    pub fn largest(&self) -> usize {
        self.shared.budget.largest()
    }

    /// Marks the connection as proven: it may use the part of the common memory that is reserved for
    /// proven connections. Callers do so when its peer has taken a long reply, sent a long call
    /// completely, or (RDMA) let a work request complete that was waited for.
    pub fn prove(&self) {
        self.shared.proven.store(true, Relaxed);
    }

    /// Whether the connection is in the way of others, if it makes no progress: memory is short, and it
    /// holds some of what is common.
    #[must_use]
    pub fn is_in_the_way(&self) -> bool {
        self.over() > 0 && self.shared.budget.is_short()
    }

    /// The same bytes, which count until the last slice of them is dropped.
    #[must_use]
    pub fn hold(&self, bytes: Bytes) -> Bytes {
        let mut charge = Charge::new(Some(self.clone()));
        charge.add(bytes.len() + PIECE);
        Bytes::from_owner(HeldBytes {
            bytes,
            _charge: charge,
        })
    }
}

struct HeldBytes {
    bytes: Bytes,
    _charge: Charge,
}

impl AsRef<[u8]> for HeldBytes {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

/// A part of what an account holds, given back when this is dropped. Without an account it counts for
/// nobody.
#[derive(Debug, Default)]
pub struct Charge {
    account: Option<Account>,
    bytes: usize,
}

impl Charge {
    /// Nothing yet.
    #[must_use]
    pub fn new(account: Option<Account>) -> Self {
        Self { account, bytes: 0 }
    }

    /// Counts more.
    pub fn add(&mut self, bytes: usize) {
        self.bytes += bytes;
        if let Some(account) = &self.account {
            account.charge(bytes);
        }
    }

    /// Counts less, at most all of it.
    pub fn sub(&mut self, bytes: usize) {
        let bytes = bytes.min(self.bytes);
        self.bytes -= bytes;
        if let Some(account) = &self.account {
            account.release(bytes);
        }
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        self.sub(self.bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Pool;
    use quickcheck::quickcheck;

    const MIB: usize = 1 << 20;

    /// Takes as much as it may, in pieces.
    fn grab(account: &Account, piece: usize) -> usize {
        let mut taken = 0;
        while account.room() >= piece {
            account.charge(piece);
            taken += piece;
        }
        taken
    }

    #[test]
    fn a_single_connection_has_half_and_later_ones_find_something_left() {
        let budget = Budget::new(128 * MIB, 1024);
        assert_eq!(budget.guaranteed(), GUARANTEED);
        let accounts: Vec<Account> = (0..20).map(|_| budget.account()).collect();
        let taken: Vec<usize> = accounts
            .iter()
            .map(|account| grab(account, 64 << 10))
            .collect();
        // 64 MiB are common, of which newcomers may have 48.
        assert!((23 * MIB..25 * MIB).contains(&taken[0]), "{taken:?}");
        assert!(taken.is_sorted_by(|a, b| a >= b), "{taken:?}");
        assert!(taken[19] >= GUARANTEED, "{taken:?}");
        assert!(budget.is_short() && accounts[0].is_in_the_way());
        // One that has nothing may have all that is left, and one that behaves more than that.
        let late = budget.account();
        let room = late.room();
        assert!(room >= GUARANTEED);
        late.prove();
        assert_eq!(late.room(), room + 16 * MIB);
        for (account, taken) in accounts.iter().zip(taken) {
            account.release(taken);
        }
        assert_eq!(budget.common_in_use(), 0);
    }

    #[test]
    fn a_crowd_cannot_take_what_is_guaranteed_to_others() {
        let budget = Budget::new(8 * MIB, 16);
        let crowd: Vec<Account> = (0..15).map(|_| budget.account()).collect();
        for account in &crowd {
            account.prove();
        }
        let taken: usize = crowd.iter().map(|account| grab(account, 4096)).sum();
        let last = budget.account();
        assert!(last.room() >= GUARANTEED);
        assert!(taken + GUARANTEED <= budget.limit());
        // What is about to be replaced does not stand in its own way.
        last.charge(GUARANTEED);
        assert!(last.room_without(GUARANTEED) >= GUARANTEED);
    }

    #[test]
    fn buffers_and_held_bytes_count_until_their_last_slice_is_gone() {
        let (pool, budget) = (Pool::new(MIB), Budget::new(MIB, 1));
        let account = budget.account();
        let charged = pool.charged_to(&account);
        assert_eq!(pool.room(), usize::MAX, "nobody's buffers have no share");
        let mut buf = charged.alloc(5000).unwrap();
        let other = pool.alloc(5000).unwrap();
        assert_eq!(account.held(), 8192);
        let tail = buf.split_off(10).freeze();
        drop((buf, other));
        assert_eq!(account.held(), 8192);
        drop(tail);
        assert_eq!(account.held(), 0);
        let held = account.hold(Bytes::from(vec![1; 100]));
        let slice = held.slice(..1);
        drop(held);
        assert_eq!(account.held(), 100 + PIECE);
        drop(slice);
        assert_eq!((account.held(), pool.in_use()), (0, 0));
    }

    quickcheck! {
        fn what_is_common_is_what_all_hold_beyond_their_own(steps: Vec<(u8, u32, bool)>) -> bool {
            let budget = Budget::new(64 * MIB, 4);
            let mut charges: Vec<(Account, Charge)> = (0..4)
                .map(|_| {
                    let account = budget.account();
                    (account.clone(), Charge::new(Some(account)))
                })
                .collect();
            for (who, bytes, more) in steps {
                let charge = &mut charges[usize::from(who % 4)].1;
                match more {
                    true => charge.add(bytes as usize % MIB),
                    false => charge.sub(bytes as usize % MIB),
                }
            }
            let over: usize = charges.iter().map(|(account, _)| account.over()).sum();
            let right = budget.common_in_use() == over;
            drop(charges);
            right && budget.common_in_use() == 0
        }
    }
}
