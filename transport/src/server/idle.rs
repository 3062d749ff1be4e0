//! Closes idle connections.
//!
//! A client that vanished silently (its machine lost power, its network a cable) leaves a
//! connection that looks like any other. The connection takes one of the server's slots and, over
//! RDMA, receive buffers that other clients could use. TCP keep-alive finds most such connections.
//! This module finds the rest, including clients that are alive but idle or never finish a message.
//! A client whose connection was closed reconnects with its next call.

use std::net::SocketAddr;
use std::time::Duration;

use rdma::Time;

use super::traced::Traced;
use super::{Place, Server};
use crate::{Backchannel, PeerOrigin};

/// The default idle time-out: the same as in Linux's NFS server.
pub(super) const DEFAULT_IDLE: Duration = Duration::from_secs(6 * 60);

/// The minimum time between two searches for idle connections.
const LOOK_AGAIN: Duration = Duration::from_secs(1);

/// The server's state of a connected client.
pub(super) struct Peer {
    pub(super) address: SocketAddr,
    /// The client's origin: host and, if it is on this host, its user.
    pub(super) origin: PeerOrigin,
    /// The time of the last call, or of the last job that ended or check that found a call in progress. Initially
    /// the time of the connection.
    pub(super) last_call: Time,
    /// The handle for callbacks, if this server makes them.
    pub(super) callee: Option<Backchannel>,
    /// The observer of its calls, if they are traced.
    pub(super) traced: Option<Traced>,
    /// Its admission, by which it counts towards the limit on connections.
    pub(super) place: Place,
}

impl Peer {
    /// Returns whether somebody holds a callback handle.
    fn may_be_called(&self) -> bool {
        self.callee.as_ref().is_some_and(Backchannel::is_held)
    }
}

impl Server {
    /// Schedules [`Server::close_idle`] for a new connection, unless that is scheduled already,
    /// which is early enough.
    pub(super) fn expect_idle(&mut self, now: Time) {
        // Earlier connections are due no later.
        self.idle_at.get_or_insert(now + self.options.idle_timeout);
    }

    /// Closes connections that have been idle for too long and schedules the next search. Searching
    /// only now and then keeps the cost of a call down to storing its time.
    #[cold]
    pub(super) fn close_idle(&mut self, now: Time) {
        let limit = self.options.idle_timeout;
        // At the job limit, calls may wait in the transports, and it is not known whose. Then no connection is
        // closed; TCP keep-alive still finds peers that are gone.
        let is_known = !self.takes_nothing();
        self.idle_at = None;
        let mut expired = Vec::new();
        for (at, transport) in self.transports.iter_mut().enumerate() {
            for (conn, peer) in &mut transport.peers {
                if peer.place.standing().is_busy() || peer.may_be_called() {
                    peer.last_call = now;
                }
                let due = peer.last_call + limit;
                if due <= now && is_known {
                    expired.push((at, *conn));
                    continue;
                }
                let next = due.max(now + LOOK_AGAIN);
                self.idle_at = Some(self.idle_at.map_or(next, |at| at.min(next)));
            }
        }
        for (at, conn) in expired {
            let found = self.transports[at].peers.get(&conn);
            if let Some(address) = found.map(|peer| peer.address) {
                tracing::info!(peer = %address, idle = ?limit, "idle: closing the connection");
                self.stats.idle += 1;
                self.close((at, conn), "idle for too long");
            }
        }
    }
}
