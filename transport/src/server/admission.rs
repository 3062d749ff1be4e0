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
//! and was established or used within [`super::places::FRESH`]. Otherwise a client that wants more connections
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

use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};

use rdma::Time;
use smallvec::SmallVec;

use super::group::Shared;
use super::places::{NO_CONNECTION, Standing};
use crate::ConnectionId;
use crate::host::Host;

/// The maximum number of connections beyond the limit at a time. Each has replaced a connection
/// that is still being closed. Transports and devices should accept this many connections more than
/// the server's limit.
pub const SPARE: usize = 32;

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

    /// Returns whether no connection is admitted any more, because the server is ending.
    #[must_use]
    pub fn is_closed(&self) -> bool {
        self.shared.places.filed.lock().closed
    }

    /// Admits a connection from this address, if there is room or if another connection can be
    /// closed for it. Returns `None` if it is to be refused.
    #[must_use]
    pub fn admit(&self, peer: IpAddr, now: Time) -> Option<Place> {
        let (limit, host) = (self.shared.places.limit, Host::new(peer));
        let mut filed = self.shared.places.filed.lock();
        if filed.closed {
            return None;
        }
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

/// The admission of one connection: it counts towards the limit on connections until this value is
/// dropped.
pub struct Place {
    shared: Arc<Shared>,
    standing: Arc<Standing>,
}

impl Place {
    /// Names the connection that was admitted. From then on the server may close it to admit
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
