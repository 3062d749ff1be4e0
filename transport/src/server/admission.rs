//! The admission of connections: the limit on connections of all loops and transports of a server,
//! and the choice of the connection that is closed for a new one at that limit.
//!
//! Below the limit this module closes nothing. At the limit a new connection replaces another one,
//! so that idle clients, however many, cannot keep others out. The connection to close is searched
//! for in this order, and within each group the one whose last use is the longest ago comes first:
//!
//! 1. connections without use from the host that has more than half of all connections, if there is
//!    one;
//! 2. connections without use from any host;
//! 3. connections with use from that host;
//! 4. connections with use from any host.
//!
//! A *use* is a call that the service counts ([`crate::Request::count_as_use`]): one that reached
//! what the service offers, by a client that it admits. A connection without any use is ranked by
//! the time of its establishment, not of its last call, so calls that anybody can make (NULL) do
//! not help it. A connection with a call in progress is never closed. Such a call is executed by a
//! worker, waits for its attempt ([`crate::ServiceOutcome::Attempt`]), is held until a worker is free,
//! or gets its reply from another loop. If no connection can be closed, the new one is refused; over RDMA, its client is told that there is no room at present,
//! and tries again. The new connection is also refused if the one to close is from the same host
//! and was established or used within [`FRESH`]. Otherwise a client that wants more connections
//! than there can be (`nconnect`) would close its own in turn. (Also, a connection that ends before
//! its first answer looks like one to a server that lacks the version.)
//!
//! A host is an IPv4 address or the first 64 bits of an IPv6 address, of which every subscriber has
//! as many addresses as it wants.
//!
//! The transport requests a place before it answers a connection request, so that it can still
//! refuse. The loop of the connection to close closes it in its next step. Until then the server
//! has more connections than its limit, by at most [`SPARE`].
//!
//! Connections are sorted by the last use that was known when they were inserted. The search
//! compares that with the actual last use of the first connection, and inserts it again if it has
//! been used since. So a call costs only a store of the time and no lock, and a search takes
//! logarithmic time for each connection used since the last search. The lock is taken when a
//! connection begins or ends.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use rdma::Time;
use rpcrdma_host::{CountedMutex, LockCounter};
use smallvec::SmallVec;

use super::group::Shared;
use crate::ConnectionId;
use crate::host::Host;

/// The maximum number of connections beyond the limit at a time. Each has replaced a connection
/// that is still being closed. Transports and devices should accept this many connections more than
/// the server's limit.
pub const SPARE: usize = 32;

/// The time for which a connection does not make room for another one of the same host. A client
/// that is refused because of it has tried again within a second.
const FRESH: Duration = Duration::from_millis(500);

/// Counts how often a loop waited for another one that admitted or forgot a connection.
static CONTENDED: LockCounter = LockCounter::new("admission of connections");

/// The value of [`Standing::conn`] before the transport has a connection.
const NO_CONNECTION: u64 = u64::MAX;

/// The place of a connection in the order in which connections make room.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Rank {
    had_use: bool,
    /// The time of the last use or, without any, of the establishment, nanoseconds.
    at: u64,
    serial: u64,
}

/// The state of a connection that its loop, its calls and the admission share.
#[derive(Debug)]
pub(super) struct Standing {
    serial: u64,
    host: Host,
    established: u64,
    /// The loop and the transport of the connection.
    member: usize,
    transport: usize,
    conn: AtomicU64,
    /// The time of the last use in nanoseconds, or 0 if there was none.
    used: AtomicU64,
    /// The number of calls in progress: jobs, attempts, held calls, and those that wait for another
    /// loop's reply. Changed by the loop of the connection alone.
    calls: AtomicU32,
    /// The value of `used` for which the connection is filed. Changed only under the lock.
    filed: AtomicU64,
    /// Whether the connection was told to make room: 0 or 1. Changed only under the lock.
    leaving: AtomicU32,
}

impl Standing {
    fn rank(&self, used: u64) -> Rank {
        Rank {
            had_use: used != 0,
            at: if used != 0 { used } else { self.established },
            serial: self.serial,
        }
    }

    /// Returns whether the connection must not make room: it has calls in progress, or is not there
    /// yet.
    pub(super) fn is_busy(&self) -> bool {
        self.calls.load(Relaxed) > 0 || self.conn.load(Relaxed) == NO_CONNECTION
    }

    fn is_fresh(&self, now: Time) -> bool {
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

/// Lets a call report that it was a use of its connection.
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

#[derive(Default)]
struct Filed {
    /// All connections but those that make room, in the order of their ranks.
    order: BTreeMap<Rank, Arc<Standing>>,
    hosts: HashMap<Host, BTreeSet<Rank>>,
    /// The hosts by their number of connections.
    by_count: BTreeSet<(usize, Host)>,
    /// The number of connections that were told to make room and have not ended.
    leaving: usize,
    serial: u64,
}

impl Filed {
    fn insert(&mut self, standing: Arc<Standing>) {
        let (rank, host) = (standing.rank(standing.filed.load(Relaxed)), standing.host);
        self.order.insert(rank, standing);
        let ranks = self.hosts.entry(host).or_default();
        self.by_count.remove(&(ranks.len(), host));
        ranks.insert(rank);
        self.by_count.insert((ranks.len(), host));
    }

    fn remove(&mut self, standing: &Standing) {
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

    /// Returns the connection that makes room for another one.
    fn first_to_go(&mut self) -> Option<Arc<Standing>> {
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
    limit: usize,
    filed: CountedMutex<Filed>,
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

/// The admission of the connections of one transport. A transport gets it when it is added to a
/// server ([`crate::ServerTransport::set_admission`]).
#[derive(Clone)]
pub struct Admission {
    shared: Arc<Shared>,
    member: usize,
    transport: usize,
}

impl Admission {
    pub(super) fn new(shared: &Arc<Shared>, member: usize, transport: usize) -> Self {
        let shared = Arc::clone(shared);
        Self {
            shared,
            member,
            transport,
        }
    }

    /// Takes a place for a connection from this address, perhaps that of another connection.
    /// Returns `None` if there is none.
    #[must_use]
    pub fn admit(&self, peer: IpAddr, now: Time) -> Option<Place> {
        let (limit, host) = (self.shared.places.limit, Host::new(peer));
        let mut filed = self.shared.places.filed.lock();
        let mut told = SmallVec::<[Arc<Standing>; 1]>::new();
        // There are several to close if some that were chosen before had to stay because of a call.
        while filed.order.len() >= limit && filed.leaving < SPARE {
            let first = filed.first_to_go();
            let Some(first) = first.filter(|first| first.host != host || !first.is_fresh(now))
            else {
                break;
            };
            filed.remove(&first);
            filed.leaving += 1;
            first.leaving.store(1, Relaxed);
            told.push(first);
        }
        if filed.order.len() >= limit && told.is_empty() {
            return None;
        }
        filed.serial += 1;
        let standing = Arc::new(Standing {
            serial: filed.serial,
            host,
            established: now.as_nanos(),
            member: self.member,
            transport: self.transport,
            conn: AtomicU64::new(NO_CONNECTION),
            used: AtomicU64::new(0),
            calls: AtomicU32::new(0),
            filed: AtomicU64::new(0),
            leaving: AtomicU32::new(0),
        });
        filed.insert(Arc::clone(&standing));
        drop(filed);
        for first in &told {
            self.tell(first);
        }
        let shared = Arc::clone(&self.shared);
        Some(Place { shared, standing })
    }

    /// Keeps a connection that was chosen to be closed, because a call has begun on it meanwhile,
    /// and chooses another one, if there is one.
    pub(super) fn tell_another(&self, stays: &Place) {
        let mut filed = self.shared.places.filed.lock();
        if stays.standing.leaving.swap(0, Relaxed) == 0 {
            return;
        }
        filed.leaving -= 1;
        let another = filed.first_to_go();
        if let Some(another) = &another {
            filed.remove(another);
            filed.leaving += 1;
            another.leaving.store(1, Relaxed);
        }
        filed.insert(Arc::clone(&stays.standing));
        drop(filed);
        if let Some(another) = &another {
            self.tell(another);
        }
    }

    fn tell(&self, first: &Standing) {
        let conn = ConnectionId(first.conn.load(Relaxed));
        let place = (first.transport, conn);
        self.shared.make_room(first.member, place);
    }
}

impl fmt::Debug for Admission {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Admission")
            .field("member", &self.member)
            .field("transport", &self.transport)
            .finish_non_exhaustive()
    }
}

/// The place of a connection among those of a server, until this value is dropped.
pub struct Place {
    shared: Arc<Shared>,
    standing: Arc<Standing>,
}

impl Place {
    /// Sets the connection that has the place. Only from then on it may have to make room for
    /// another one.
    pub fn belongs_to(&self, conn: ConnectionId) {
        self.standing.conn.store(conn.0, Relaxed);
    }

    pub(super) fn standing(&self) -> &Arc<Standing> {
        &self.standing
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut filed = self.shared.places.filed.lock();
        match self.standing.leaving.load(Relaxed) {
            0 => filed.remove(&self.standing),
            _ => filed.leaving -= 1,
        }
    }
}

impl fmt::Debug for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Place")
            .field("standing", &self.standing)
            .finish_non_exhaustive()
    }
}
