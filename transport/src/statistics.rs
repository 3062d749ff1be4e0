//! Statistics of transports, as values for other threads.

use std::ops::AddAssign;

use rdma::Counters;
use rpcrdma_connection::{Moved, RequesterCounters, ResponderCounters};

/// The counts of a transport since its creation, and what it holds.
#[derive(Clone, Debug, Default)]
pub struct TransportStatistics {
    /// Whether its connections are RDMA connections.
    pub is_rdma: bool,
    /// Its connections at present, by version and features, and their number. Version and features are
    /// empty over TCP, and while they are not known.
    pub connections: Vec<(ConnectionKind, u64)>,
    /// The counters of the device, or those of TCP where they mean the same.
    pub counters: Counters,
    /// The bytes of RPC messages that moved over RDMA connections.
    pub moved: Moved,
    /// The counters of all requesters together.
    pub requester: RequesterCounters,
    /// The counters of all responders together.
    pub responder: ResponderCounters,
    /// Messages that only granted credits.
    pub grants_sent: u64,
    /// The credits of this end's own calls: those in use, and the most that peers grant at present.
    pub own_credits: (u64, u64),
    /// The most messages that peers may send with the credits granted to them.
    pub granted_credits: u64,
    /// Calls of peers that have arrived and are not answered.
    pub unanswered: u64,
    /// Connections on which something waits for memory.
    pub waiting_for_memory: u64,
    /// Connections with requests that wait for room in their send queues.
    pub send_queues_full: u64,
    /// Receives that connections have for themselves.
    pub own_receives: u64,
    /// Receives that are posted for all connections together.
    pub shared_receives: u64,
    /// Bytes of memory of receives, of those included whose messages are in use.
    pub receive_bytes: u64,
}

/// The properties by which connections are counted.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct ConnectionKind {
    /// The name of the version.
    pub version: &'static str,
    /// The features that spare round trips, in the notation of options: `ddp+cont`, `ddp:receive`.
    pub features: String,
}

impl AddAssign for TransportStatistics {
    /// Adds the statistics of another transport of the same kind.
    fn add_assign(&mut self, other: Self) {
        for (kind, count) in other.connections {
            self.add_connections(kind, count);
        }
        self.is_rdma |= other.is_rdma;
        self.counters = [self.counters, other.counters].into_iter().sum();
        self.moved += other.moved;
        self.requester += other.requester;
        self.responder += other.responder;
        self.grants_sent += other.grants_sent;
        self.own_credits.0 += other.own_credits.0;
        self.own_credits.1 += other.own_credits.1;
        self.granted_credits += other.granted_credits;
        self.unanswered += other.unanswered;
        self.waiting_for_memory += other.waiting_for_memory;
        self.send_queues_full += other.send_queues_full;
        self.own_receives += other.own_receives;
        self.shared_receives += other.shared_receives;
        self.receive_bytes += other.receive_bytes;
    }
}

impl TransportStatistics {
    /// Counts connections.
    pub(crate) fn add_connections(&mut self, kind: ConnectionKind, more: u64) {
        match self.connections.iter_mut().find(|(it, _)| *it == kind) {
            Some((_, count)) => *count += more,
            None => self.connections.push((kind, more)),
        }
    }
}
