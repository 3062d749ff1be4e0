//! A memory budget that all connections of a process share.
//!
//! Every connection has an [`Account`]. A buffer of a pool that is charged to the account
//! ([`crate::Pool::charged_to`]) counts from its allocation until its last user releases it,
//! wherever it is: in a call, at a worker thread, or in a reply that waits for its peer.
//!
//! The first [`GUARANTEED`] bytes are reserved for each connection, whatever the others hold, which
//! is enough for short calls. Everything beyond comes from a common part that is shared with
//! dynamic thresholds: a connection may take more as long as it holds no more of the common part
//! than is still free. A single connection thus ends up with half of the common part, and two with
//! a third each. A connection that holds nothing of the common part may take all that is free. A
//! quarter of the common part is reserved for connections whose peers have shown that they make
//! progress ([`Account::prove`]); the others share the remaining three quarters.
//!
//! Because a buffer is counted where it is allocated and released, workers, queues and devices need
//! no accounting of their own; other memory is charged explicitly. Dynamic thresholds, which
//! switches use for their packet buffers, need neither a queue of waiters nor a lock.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};

use bytes::Bytes;

/// Bytes that every connection may hold whatever the others hold, unless the budget is too small
/// for its number of connections.
pub const GUARANTEED: usize = 64 << 10;
/// Bytes reserved for a call while it is executed. A reply of up to this length is always possible;
/// longer ones (READ, READDIR) are shortened if there is no memory for more.
pub const PER_CALL: usize = 32 << 10;
/// Overhead in bytes of a shared piece ([`Account::hold`]), in addition to its contents.
const PIECE: usize = 128;
/// At most one part in this many of the budget is guaranteed to connections.
const GUARANTEED_PART: usize = 2;
/// One part in this many of the common part is reserved for proven connections
/// ([`Account::prove`]).
const PROVEN_PART: usize = 4;
/// Memory is short when more than one part in this many of the common part is taken.
const SHORT_PART: usize = 2;
/// Limit in bytes and number of connections of the default budget.
const DEFAULT_LIMIT: usize = 1 << 30;
const DEFAULT_CONNECTIONS: usize = 1024;

/// The memory budget for calls and replies of all connections together. Clones are handles to the
/// same budget.
#[derive(Clone, Debug)]
pub struct Budget {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    limit: usize,
    /// Bytes guaranteed to each connection.
    guaranteed: usize,
    /// Bytes that all connections together may take beyond the guaranteed ones, and the bytes
    /// taken.
    common_limit: usize,
    common: AtomicUsize,
}

impl Budget {
    /// Creates a budget of `limit` bytes for at most `connections` connections.
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

    /// Opens the account of a new connection.
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

    /// Returns the limit of the budget in bytes.
    #[must_use]
    pub fn limit(&self) -> usize {
        self.shared.limit
    }

    /// Returns the number of bytes guaranteed to each connection.
    #[must_use]
    pub fn guaranteed(&self) -> usize {
        self.shared.guaranteed
    }

    /// Returns the number of bytes that connections hold beyond those guaranteed to each.
    #[must_use]
    pub fn common_in_use(&self) -> usize {
        self.shared.common.load(Relaxed)
    }

    /// Returns the maximum number of bytes that any connection can get at once.
    #[must_use]
    pub fn largest(&self) -> usize {
        self.shared.largest()
    }

    /// Returns whether memory is so short that connections that hold memory without making progress
    /// obstruct others.
    #[must_use]
    pub fn is_short(&self) -> bool {
        self.shared.is_short()
    }
}

impl Default for Budget {
    /// Returns a budget of 1 GiB for 1024 connections.
    fn default() -> Self {
        Self::new(DEFAULT_LIMIT, DEFAULT_CONNECTIONS)
    }
}

impl Shared {
    fn beyond_guaranteed(&self, held: usize) -> usize {
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
    /// Adds bytes to those that the connection holds. Does not check whether there is room: see
    /// [`Account::room`].
    pub fn charge(&self, bytes: usize) {
        let Held { budget, .. } = &*self.shared;
        let before = self.shared.bytes.fetch_add(bytes, Relaxed);
        let more = budget.beyond_guaranteed(before + bytes) - budget.beyond_guaranteed(before);
        if more > 0 {
            budget.common.fetch_add(more, Relaxed);
        }
    }

    /// Subtracts bytes from those that the connection holds.
    pub fn release(&self, bytes: usize) {
        let Held { budget, .. } = &*self.shared;
        let before = self.shared.bytes.fetch_sub(bytes, Relaxed);
        let less = budget.beyond_guaranteed(before)
            - budget.beyond_guaranteed(before.saturating_sub(bytes));
        if less > 0 {
            budget.common.fetch_sub(less, Relaxed);
        }
    }

    /// Returns the number of bytes that the connection holds.
    #[must_use]
    pub fn held(&self) -> usize {
        self.shared.bytes.load(Relaxed)
    }

    /// Returns the number of bytes that the connection holds beyond the guaranteed ones.
    #[must_use]
    pub fn beyond_guaranteed(&self) -> usize {
        self.shared.budget.beyond_guaranteed(self.held())
    }

    /// Returns how many more bytes the connection may take now.
    #[must_use]
    pub fn room(&self) -> usize {
        self.room_without(0)
    }

    /// Returns how many bytes the connection could take after releasing `own` of its bytes, for
    /// example to replace a buffer by a larger one.
    #[must_use]
    pub fn room_without(&self, own: usize) -> usize {
        let budget = &*self.shared.budget;
        let all = self.held();
        let held = all.saturating_sub(own);
        let over = budget.beyond_guaranteed(held);
        let common = budget.common.load(Relaxed) + over;
        let taken = common.saturating_sub(budget.beyond_guaranteed(all));
        let limit = match self.shared.proven.load(Relaxed) {
            true => budget.common_limit,
            false => budget.common_limit - budget.common_limit / PROVEN_PART,
        };
        let free = limit.saturating_sub(taken);
        let share = match over {
            0 => free,
            // Afterwards the connection must not hold more of the common part than is left.
            _ => free.saturating_sub(over) / 2,
        };
        budget.guaranteed.saturating_sub(held) + share
    }

    /// Returns the number of bytes guaranteed to the connection.
    #[must_use]
    pub fn guaranteed(&self) -> usize {
        self.shared.budget.guaranteed
    }

    /// Returns the maximum number of bytes that the connection can get at once.
    #[must_use]
    pub fn largest(&self) -> usize {
        self.shared.budget.largest()
    }

    /// Marks the connection as proven: it may use the part of the common memory that is reserved
    /// for proven connections. Callers do so when its peer has received a long reply, sent a
    /// complete long call, or (RDMA) let an awaited work request complete.
    pub fn prove(&self) {
        self.shared.proven.store(true, Relaxed);
    }

    /// Returns whether the connection obstructs others unless it makes progress: memory is short,
    /// and it holds some of the common part.
    #[must_use]
    pub fn blocks_others(&self) -> bool {
        self.beyond_guaranteed() > 0 && self.shared.budget.is_short()
    }

    /// Returns `bytes` as a value that is charged to the account until its last slice is dropped.
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

/// An amount charged to an account, which is released when this value is dropped. Without an
/// account, nothing is charged.
#[derive(Debug, Default)]
pub struct Charge {
    account: Option<Account>,
    bytes: usize,
}

impl Charge {
    /// Creates an empty charge.
    #[must_use]
    pub fn new(account: Option<Account>) -> Self {
        Self { account, bytes: 0 }
    }

    /// Adds bytes to the charge.
    pub fn add(&mut self, bytes: usize) {
        self.bytes += bytes;
        if let Some(account) = &self.account {
            account.charge(bytes);
        }
    }

    /// Subtracts bytes from the charge, at most all of them.
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

    /// Takes as much as the account allows, in pieces.
    fn grab(account: &Account, piece: usize) -> usize {
        let mut taken = 0;
        while account.room() >= piece {
            account.charge(piece);
            taken += piece;
        }
        taken
    }

    #[test]
    fn a_single_connection_gets_half_and_leaves_room_for_later_ones() {
        let budget = Budget::new(128 * MIB, 1024);
        assert_eq!(budget.guaranteed(), GUARANTEED);
        let accounts: Vec<Account> = (0..20).map(|_| budget.account()).collect();
        let taken: Vec<usize> = accounts
            .iter()
            .map(|account| grab(account, 64 << 10))
            .collect();
        // 64 MiB are common, of which unproven connections may have 48.
        assert!((23 * MIB..25 * MIB).contains(&taken[0]), "{taken:?}");
        assert!(taken.is_sorted_by(|a, b| a >= b), "{taken:?}");
        assert!(taken[19] >= GUARANTEED, "{taken:?}");
        assert!(budget.is_short() && accounts[0].blocks_others());
        // A connection that holds nothing may have all that is left, and a proven one more than
        // that.
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
    fn many_connections_cannot_take_the_guaranteed_memory_of_others() {
        let budget = Budget::new(8 * MIB, 16);
        let crowd: Vec<Account> = (0..15).map(|_| budget.account()).collect();
        for account in &crowd {
            account.prove();
        }
        let taken: usize = crowd.iter().map(|account| grab(account, 4096)).sum();
        let last = budget.account();
        assert!(last.room() >= GUARANTEED);
        assert!(taken + GUARANTEED <= budget.limit());
        // A buffer that is about to be replaced does not count.
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
        fn common_memory_is_the_sum_of_all_holdings_beyond_the_guarantee(steps: Vec<(u8, u32, bool)>) -> bool {
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
            let over: usize = charges.iter().map(|(account, _)| account.beyond_guaranteed()).sum();
            let right = budget.common_in_use() == over;
            drop(charges);
            right && budget.common_in_use() == 0
        }
    }
}
