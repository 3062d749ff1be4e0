//! A memory budget that all connections of a process share.
//!
//! Every connection has an [`Account`]. A buffer of a pool that is charged to the account
//! (`Pool::charged_to` of the device model) counts from its allocation until its last user releases it,
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
//! # Loops
//!
//! The connections of one loop of a server are in one *part* of the budget ([`Budget::part`]). A
//! part takes the common memory from the budget in quanta, and counts what its connections hold of
//! it by itself. So a call writes to memory that only its own loop and that loop's workers write
//! to: with one counter for all, each call of each loop moved its cache line from one processor to
//! another, several times. A part takes more as its use grows, so the limits hold. It keeps
//! at most two unused quanta, each at most one part in [`QUANTA`] of the common memory. Connections
//! of other parts cannot use those; connections of the same part can. (The check and the charge are
//! separate steps, so two threads can together exceed a share for a moment.)
//!
//! Because a buffer is counted where it is allocated and released, workers, queues and devices need
//! no accounting of their own; other memory is charged explicitly. Dynamic thresholds, which
//! switches use for their packet buffers, need neither a queue of waiters nor a lock.

use std::sync::atomic::{
    AtomicBool, AtomicIsize, AtomicUsize,
    Ordering::{Relaxed, SeqCst},
};
use std::sync::{Arc, Mutex, PoisonError, Weak};

use bytes::Bytes;

/// Bytes that every connection may hold whatever the others hold, unless the budget is too small
/// for its number of connections.
pub const GUARANTEED: usize = 64 << 10;
/// Bytes reserved for a call while it is executed. A reply of up to this length is always possible;
/// longer ones (READ, READDIR) are shortened if there is no memory for more.
pub const PER_CALL: usize = 32 << 10;
/// Overhead in bytes of a shared piece ([`Account::hold`]), in addition to its contents.
const PIECE: usize = 128;
/// At most 1/`GUARANTEED_PART` of the budget is guaranteed to connections.
const GUARANTEED_PART: usize = 2;
/// 1/`PROVEN_PART` of the common memory is reserved for proven connections ([`Account::prove`]).
const PROVEN_PART: usize = 4;
/// Memory is short when more than 1/`SHORT_PART` of the common memory is taken.
const SHORT_PART: usize = 2;
/// The minimum number of quanta of the common memory, and the maximum length of one, bytes.
const QUANTA: usize = 512;
const MAX_QUANTUM: usize = 1 << 20;
/// Limit in bytes and number of connections of the default budget.
const DEFAULT_LIMIT: usize = 1 << 30;
const DEFAULT_CONNECTIONS: usize = 1024;

/// The memory budget for calls and replies of all connections together. Clones are handles to the
/// same part of the same budget.
#[derive(Clone, Debug)]
pub struct Budget {
    part: Arc<Part>,
}

#[derive(Debug)]
struct Shared {
    limit: usize,
    /// Bytes guaranteed to each connection.
    guaranteed: usize,
    /// Bytes that all connections together may take beyond the guaranteed ones.
    common_limit: usize,
    /// Bytes that a part takes or gives back at once.
    quantum: usize,
    /// All parts, for sums.
    parts: Mutex<Vec<Weak<Part>>>,
    reserved: Reserved,
}

/// Bytes of the common memory that all parts together have taken. They change rarely, and have a
/// cache line of their own, so that all processors can keep a copy of it.
#[derive(Debug)]
#[repr(align(64))]
struct Reserved(AtomicUsize);

/// The part of the budget that one loop and its workers use.
#[derive(Debug)]
#[repr(align(64))]
struct Part {
    shared: Arc<Shared>,
    /// Bytes of the common memory that connections of this part hold. While threads change the same
    /// account, a release may be counted before the charge that it follows, so the number can be
    /// negative for a moment ([`Part::used`]).
    used: AtomicIsize,
    /// Bytes of the common memory that the part has taken from the budget. They are fewer than those
    /// used only while a thread is about to take more.
    reserved: AtomicUsize,
    /// How often the part has taken quanta or given some back.
    #[cfg(test)]
    moves: AtomicUsize,
}

impl Budget {
    /// Creates a budget of `limit` bytes for at most `connections` connections.
    #[must_use]
    pub fn new(limit: usize, connections: usize) -> Self {
        let connections = connections.max(1);
        let guaranteed = GUARANTEED.min(limit / GUARANTEED_PART / connections);
        let common_limit = limit - guaranteed * connections;
        let shared = Arc::new(Shared {
            limit,
            guaranteed,
            common_limit,
            quantum: (common_limit / QUANTA).clamp(1, MAX_QUANTUM),
            parts: Mutex::default(),
            reserved: Reserved(AtomicUsize::new(0)),
        });
        Self {
            part: Part::new(shared),
        }
    }

    /// Returns a handle to another part of the same budget, for the connections of another loop.
    #[must_use]
    pub fn part(&self) -> Self {
        Self {
            part: Part::new(Arc::clone(&self.part.shared)),
        }
    }

    /// Opens the account of a new connection.
    #[must_use]
    pub fn account(&self) -> Account {
        Account {
            shared: Arc::new(Held {
                part: Arc::clone(&self.part),
                guaranteed: self.part.shared.guaranteed,
                bytes: AtomicUsize::new(0),
                proven: Arc::new(AtomicBool::new(false)),
            }),
        }
    }

    /// Returns the limit of the budget in bytes.
    #[must_use]
    pub fn limit(&self) -> usize {
        self.part.shared.limit
    }

    /// Returns the number of bytes guaranteed to each connection.
    #[must_use]
    pub fn guaranteed(&self) -> usize {
        self.part.shared.guaranteed
    }

    /// Returns the number of bytes that connections of all parts hold beyond those guaranteed to
    /// each.
    #[must_use]
    pub fn common_in_use(&self) -> usize {
        let parts = self.part.shared.parts();
        let used = |part: Arc<Part>| part.used();
        parts.iter().filter_map(Weak::upgrade).map(used).sum()
    }

    /// Returns the maximum number of bytes that any connection can get at once.
    #[must_use]
    pub fn largest(&self) -> usize {
        self.part.shared.largest()
    }

    /// Returns whether memory is so short that connections that hold memory without making progress
    /// obstruct others.
    #[must_use]
    pub fn is_short(&self) -> bool {
        self.part.is_short()
    }
}

impl Default for Budget {
    /// Returns a budget of 1 GiB for 1024 connections.
    fn default() -> Self {
        Self::new(DEFAULT_LIMIT, DEFAULT_CONNECTIONS)
    }
}

impl Shared {
    fn largest(&self) -> usize {
        self.guaranteed + self.common_limit - self.common_limit / PROVEN_PART
    }

    fn parts(&self) -> std::sync::MutexGuard<'_, Vec<Weak<Part>>> {
        self.parts.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Part {
    fn new(shared: Arc<Shared>) -> Arc<Self> {
        let part = Arc::new(Self {
            shared: Arc::clone(&shared),
            used: AtomicIsize::new(0),
            reserved: AtomicUsize::new(0),
            #[cfg(test)]
            moves: AtomicUsize::new(0),
        });
        let mut parts = shared.parts();
        parts.retain(|part| part.strong_count() > 0);
        parts.push(Arc::downgrade(&part));
        part
    }

    fn used(&self) -> usize {
        usize::try_from(self.used.load(SeqCst)).unwrap_or(0)
    }

    fn charge(&self, bytes: usize) {
        self.used.fetch_add(bytes.cast_signed(), SeqCst);
        if self.used() > self.reserved.load(SeqCst) {
            self.settle();
        }
    }

    fn release(&self, bytes: usize) {
        self.used.fetch_sub(bytes.cast_signed(), SeqCst);
        if self.has_too_much(self.used(), self.reserved.load(SeqCst)) {
            self.settle();
        }
    }

    fn has_too_much(&self, used: usize, reserved: usize) -> bool {
        reserved.saturating_sub(used) > 2 * self.shared.quantum
    }

    /// Takes quanta from the budget until they cover what is used, or gives back unused ones beyond two.
    ///
    /// Both numbers are read again after each change. Their order is sequentially consistent, so of
    /// two threads, one that lowers what is taken and one that uses more of it, at least one sees
    /// the change of the other.
    #[cold]
    fn settle(&self) {
        let quantum = self.shared.quantum;
        loop {
            let (used, reserved) = (self.used(), self.reserved.load(SeqCst));
            let wanted = match used {
                _ if used > reserved => used.next_multiple_of(quantum),
                _ if self.has_too_much(used, reserved) => used.next_multiple_of(quantum) + quantum,
                _ => return,
            };
            // The sum is raised before the part and lowered after it, so that it never is less than all
            // parts together: another thread could take more from it than there is.
            let Reserved(all) = &self.shared.reserved;
            let more = wanted.saturating_sub(reserved);
            all.fetch_add(more, SeqCst);
            let changed = self
                .reserved
                .compare_exchange(reserved, wanted, SeqCst, SeqCst);
            let less = match changed {
                Ok(_) => reserved.saturating_sub(wanted),
                Err(_) => more,
            };
            all.fetch_sub(less, SeqCst);
            #[cfg(test)]
            self.moves.fetch_add(usize::from(changed.is_ok()), Relaxed);
        }
    }

    /// Returns the bytes of the common memory that are taken, as far as connections of this part
    /// are concerned: what other parts have taken, and what this part uses.
    fn taken(&self) -> usize {
        let Reserved(all) = &self.shared.reserved;
        let others = all
            .load(Relaxed)
            .saturating_sub(self.reserved.load(Relaxed));
        others + self.used()
    }

    fn is_short(&self) -> bool {
        self.taken() > self.shared.common_limit / SHORT_PART
    }
}

impl Drop for Part {
    fn drop(&mut self) {
        let Reserved(all) = &self.shared.reserved;
        all.fetch_sub(*self.reserved.get_mut(), SeqCst);
    }
}

#[derive(Debug)]
struct Held {
    part: Arc<Part>,
    /// Bytes that are guaranteed to this account.
    guaranteed: usize,
    bytes: AtomicUsize,
    /// Whether the connection is proven: the same for all accounts of one connection.
    proven: Arc<AtomicBool>,
}

impl Held {
    /// Returns the part of `held` bytes that comes from the common memory.
    fn beyond_guaranteed(&self, held: usize) -> usize {
        held.saturating_sub(self.guaranteed)
    }
}

/// Memory account of one connection. Clones are handles to the same account.
#[derive(Clone, Debug)]
pub struct Account {
    shared: Arc<Held>,
}

impl Account {
    /// Opens a further account of the same connection, without guaranteed memory: all that is charged
    /// to it comes from the common part. What it holds does not count against the guaranteed memory of
    /// this account. Once one of them is proven, both are.
    #[must_use]
    pub fn common(&self) -> Self {
        Self {
            shared: Arc::new(Held {
                part: Arc::clone(&self.shared.part),
                guaranteed: 0,
                bytes: AtomicUsize::new(0),
                proven: Arc::clone(&self.shared.proven),
            }),
        }
    }

    /// Adds bytes to those that the connection holds. Does not check whether there is room: see
    /// [`Account::room`].
    pub fn charge(&self, bytes: usize) {
        let held = &*self.shared;
        let before = held.bytes.fetch_add(bytes, Relaxed);
        let more = held.beyond_guaranteed(before + bytes) - held.beyond_guaranteed(before);
        if more > 0 {
            held.part.charge(more);
        }
    }

    /// Subtracts bytes from those that the connection holds.
    pub fn release(&self, bytes: usize) {
        let held = &*self.shared;
        let before = held.bytes.fetch_sub(bytes, Relaxed);
        let less =
            held.beyond_guaranteed(before) - held.beyond_guaranteed(before.saturating_sub(bytes));
        if less > 0 {
            held.part.release(less);
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
        self.shared.beyond_guaranteed(self.held())
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
        let part = &*self.shared.part;
        let budget = &*part.shared;
        let all = self.held();
        let held = all.saturating_sub(own);
        let over = self.shared.beyond_guaranteed(held);
        let common = part.taken() + over;
        let taken = common.saturating_sub(self.shared.beyond_guaranteed(all));
        let limit = match self.is_proven() {
            true => budget.common_limit,
            false => budget.common_limit - budget.common_limit / PROVEN_PART,
        };
        let free = limit.saturating_sub(taken);
        let share = match over {
            0 => free,
            // Afterwards the connection must not hold more of the common part than is left.
            _ => free.saturating_sub(over) / 2,
        };
        self.guaranteed().saturating_sub(held) + share
    }

    /// Returns the number of bytes guaranteed to the connection.
    #[must_use]
    pub fn guaranteed(&self) -> usize {
        self.shared.guaranteed
    }

    /// Returns the maximum number of bytes that the connection can get at once.
    #[must_use]
    pub fn largest(&self) -> usize {
        let budget = &*self.shared.part.shared;
        budget.largest() - budget.guaranteed + self.guaranteed()
    }

    /// Marks the connection as proven: it may use the part of the common memory that is reserved
    /// for proven connections. Callers do so when its peer has received a long reply, sent a
    /// complete long call, or (RDMA) made a call after the answers to all earlier ones, or let an
    /// awaited work request complete.
    pub fn prove(&self) {
        self.shared.proven.store(true, Relaxed);
    }

    /// Returns whether the connection is proven ([`Account::prove`]).
    #[must_use]
    pub fn is_proven(&self) -> bool {
        self.shared.proven.load(Relaxed)
    }

    /// Returns whether the connection obstructs others unless it makes progress: memory is short,
    /// and it holds some of the common part.
    #[must_use]
    pub fn blocks_others(&self) -> bool {
        self.beyond_guaranteed() > 0 && self.shared.part.is_short()
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

    /// Returns the number of bytes charged.
    #[must_use]
    #[inline]
    pub fn bytes(&self) -> usize {
        self.bytes
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
mod tests;
