//! The places of the connections of a server, and the order in which they make room for others, which
//! [`super::admission`] describes.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use rdma::Time;
use rpcrdma_host::{CountedMutex, LockCounter};

use crate::host::Host;

/// The time after its establishment or last use for which a connection is not closed for another
/// one of the same host. The client that is refused instead tries again within a second.
pub(super) const FRESH: Duration = Duration::from_millis(500);

/// Counts how often a loop waited for another one that admitted or forgot a connection.
static CONTENDED: LockCounter = LockCounter::new("admission of connections");

/// The value of [`Standing::conn`] before the transport has a connection.
pub(super) const NO_CONNECTION: u64 = u64::MAX;

/// The position of a connection in the order in which connections are closed to admit others.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Rank {
    had_use: bool,
    /// The time of the last use or, without any, of the establishment, nanoseconds.
    at: u64,
    serial: u64,
}

/// The state of a connection that its loop, its calls and the admission share.
#[derive(Debug)]
pub(super) struct Standing {
    pub(super) serial: u64,
    pub(super) host: Host,
    pub(super) established: u64,
    /// The loop and the transport of the connection.
    pub(super) member: usize,
    pub(super) transport: usize,
    pub(super) conn: AtomicU64,
    /// The time of the last use in nanoseconds, or 0 if there was none.
    pub(super) used: AtomicU64,
    /// The number of calls in progress: jobs, attempts, held calls, and those that wait for another
    /// loop's reply. Changed by the loop of the connection alone.
    pub(super) calls: AtomicU32,
    /// The value of `used` for which the connection is filed. Changed only under the lock.
    pub(super) filed: AtomicU64,
    /// Whether the connection was told to make room: 0 or 1. Changed only under the lock.
    pub(super) leaving: AtomicU32,
}

impl Standing {
    fn rank(&self, used: u64) -> Rank {
        Rank {
            had_use: used != 0,
            at: if used != 0 { used } else { self.established },
            serial: self.serial,
        }
    }

    /// Returns whether the connection must not be closed to admit another one: calls are in
    /// progress on it, or it is still being admitted.
    pub(super) fn is_busy(&self) -> bool {
        self.calls.load(Relaxed) > 0 || self.conn.load(Relaxed) == NO_CONNECTION
    }

    pub(super) fn is_fresh(&self, now: Time) -> bool {
        let last = self.used.load(Relaxed).max(self.established);
        now.since(Time::from_nanos(last)) < FRESH
    }

    /// Counts a call in progress that begins.
    pub(super) fn call_begins(&self) {
        self.calls.store(self.calls.load(Relaxed) + 1, Relaxed);
    }

    /// Counts a call in progress that has ended.
    pub(super) fn call_ended(&self) {
        let calls = self.calls.load(Relaxed);
        self.calls.store(calls.saturating_sub(1), Relaxed);
    }
}

/// Handed to the service with a call, which reports by it that the call counts as a use of its
/// connection ([`crate::Request::count_as_use`]).
#[derive(Clone, Debug)]
pub(crate) struct Use {
    standing: Arc<Standing>,
    now: Time,
}

impl Use {
    pub(super) fn new(standing: &Arc<Standing>, now: Time) -> Self {
        let standing = Arc::clone(standing);
        Self { standing, now }
    }

    pub(crate) fn count(&self) {
        let now = self.now.as_nanos().max(1);
        self.standing.used.store(now, Relaxed);
    }
}

/// The connections of a server, in the order in which they are closed to admit others.
#[derive(Default)]
pub(super) struct Filed {
    /// All connections but those that make room, in the order of their ranks.
    pub(super) order: BTreeMap<Rank, Arc<Standing>>,
    hosts: HashMap<Host, BTreeSet<Rank>>,
    /// The hosts by their number of connections.
    by_count: BTreeSet<(usize, Host)>,
    /// The number of connections that were told to make room and have not ended.
    pub(super) leaving: usize,
    pub(super) serial: u64,
    /// Whether the server is ending, and admits no connection any more.
    pub(super) closed: bool,
}

impl Filed {
    pub(super) fn insert(&mut self, standing: Arc<Standing>) {
        let (rank, host) = (standing.rank(standing.filed.load(Relaxed)), standing.host);
        self.order.insert(rank, standing);
        let ranks = self.hosts.entry(host).or_default();
        self.by_count.remove(&(ranks.len(), host));
        ranks.insert(rank);
        self.by_count.insert((ranks.len(), host));
    }

    pub(super) fn remove(&mut self, standing: &Standing) {
        let (rank, host) = (standing.rank(standing.filed.load(Relaxed)), standing.host);
        self.order.remove(&rank);
        let Some(ranks) = self.hosts.get_mut(&host) else {
            return;
        };
        self.by_count.remove(&(ranks.len(), host));
        ranks.remove(&rank);
        match ranks.len() {
            0 => drop(self.hosts.remove(&host)),
            count => drop(self.by_count.insert((count, host))),
        }
    }

    /// Returns the host that has more than half of all connections.
    fn majority(&self) -> Option<Host> {
        let (count, host) = self.by_count.last()?;
        (count * 2 > self.order.len()).then_some(*host)
    }

    /// Returns the connection to close, so that another one can be admitted.
    pub(super) fn first_to_go(&mut self) -> Option<Arc<Standing>> {
        let majority = self.majority();
        [false, true].into_iter().find_map(|had_use| {
            majority
                .and_then(|host| self.longest_unused(had_use, Some(host)))
                .or_else(|| self.longest_unused(had_use, None))
        })
    }

    /// Returns the connection without calls in progress, of this host or of any, whose last use is the longest
    /// ago.
    fn longest_unused(&mut self, had_use: bool, of: Option<Host>) -> Option<Arc<Standing>> {
        let mut from = Rank {
            had_use,
            at: 0,
            serial: 0,
        };
        loop {
            let rank = match of {
                Some(host) => self.hosts.get(&host)?.range(from..).next().copied(),
                None => self.order.range(from..).next().map(|(rank, _)| *rank),
            };
            let rank = rank.filter(|rank| rank.had_use == had_use)?;
            let standing = Arc::clone(self.order.get(&rank)?);
            let used = standing.used.load(Relaxed);
            if used != standing.filed.load(Relaxed) {
                // It was used since it was filed, and belongs further back.
                self.remove(&standing);
                standing.filed.store(used, Relaxed);
                self.insert(standing);
            } else if standing.is_busy() {
                from.at = rank.at;
                from.serial = rank.serial + 1;
            } else {
                return Some(standing);
            }
        }
    }
}

/// The places of all connections of a server.
pub(super) struct Places {
    pub(super) limit: usize,
    pub(super) filed: CountedMutex<Filed>,
}

impl Places {
    pub(super) fn new(limit: usize) -> Self {
        Self {
            limit,
            filed: CountedMutex::new(&CONTENDED, Filed::default()),
        }
    }

    /// Returns the number of connections, those included that are being closed to make room.
    pub(super) fn taken(&self) -> usize {
        let filed = self.filed.lock();
        filed.order.len() + filed.leaving
    }
}
