//! Closing connections that nobody uses.
//!
//! A client that vanished without a word (its machine lost power, its network a cable) leaves a
//! connection that looks like any other, and holds a slot, and over RDMA receive buffers, that
//! other clients could have. TCP's keep-alive finds most such; this finds the rest, among them
//! clients that are there and do nothing, or never finish what they began to send. A client whose
//! connection was closed connects again with its next call.

use std::collections::HashSet;
use std::net::SocketAddr;
use std::time::Duration;

use rdma::Time;

use super::Server;
use crate::{Callee, ConnId, PeerOrigin};

/// How long a connection may go without a call by default: what Linux's NFS server allows.
pub(super) const DEFAULT_IDLE: Duration = Duration::from_secs(6 * 60);

/// A client's end of a connection.
pub(super) struct Peer {
    pub(super) address: SocketAddr,
    /// Where it is, and which user of this host it belongs to if it is here.
    pub(super) origin: PeerOrigin,
    /// When its last call arrived, or was seen in progress, or without any when it connected.
    pub(super) last_call: Time,
    /// The handle by which it can be called, if this server makes callbacks.
    pub(super) callee: Option<Callee>,
}

impl Peer {
    /// Whether somebody may want to call it.
    fn may_be_called(&self) -> bool {
        self.callee.as_ref().is_some_and(Callee::is_held)
    }
}

impl Server {
    /// Has [`Server::close_idle`] called in time for a new connection.
    pub(super) fn expect_idle(&mut self, now: Time) {
        // Those that were here before are due no later.
        self.idle_at.get_or_insert(now + self.options.idle_timeout);
    }

    /// Closes connections that have been idle for too long, and finds out when to look again. They
    /// are looked through once in a while, so that a call costs no more than a note of the time.
    #[cold]
    pub(super) fn close_idle(&mut self, now: Time) {
        let limit = self.options.idle_timeout;
        let busy: HashSet<(usize, ConnId)> = self
            .running
            .iter()
            .map(|(_, running)| (running.origin.port, running.origin.conn))
            .collect();
        self.idle_at = None;
        let mut expired = Vec::new();
        for (at, port) in self.ports.iter_mut().enumerate() {
            for (conn, peer) in &mut port.peers {
                if busy.contains(&(at, *conn)) || peer.may_be_called() {
                    peer.last_call = now;
                }
                let due = peer.last_call + limit;
                if due <= now {
                    expired.push((at, *conn));
                } else {
                    self.idle_at = Some(self.idle_at.map_or(due, |at| at.min(due)));
                }
            }
        }
        for (at, conn) in expired {
            let found = self.ports[at].peers.get(&conn);
            if let Some(address) = found.map(|peer| peer.address) {
                tracing::info!(peer = %address, idle = ?limit, "idle: closing the connection");
                self.stats.idle += 1;
                self.close((at, conn), "it was idle");
            }
        }
    }
}
