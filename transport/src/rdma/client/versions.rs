//! Versions at a client: the version and features of each connection, and reconnecting in another
//! version.
//!
//! A connection on which the server stays silent while the version is being negotiated is made again in
//! the version that needs no question: version 1. One that is lost then is made again once as it was,
//! since a server that makes room for another client, or is being stopped, drops connections too; if
//! that is lost as well, version 1 follows. Calls that were made meanwhile move to the new connection,
//! and the user sees only one connection.

use onc_rpc::Message;
use rdma::QpId;
use rpcrdma_connection::{AgreedFeatures, ConsideredMode, NotChanged, Properties};
use rpcrdma_negotiation::{Shown, Version, VersionAction, VersionDecision, VersionReason};
use transfer_plan::{ReplyNeed, Shape};

use super::RdmaClient;
use crate::rdma::end::End;
use crate::{ClientTransportEvent, ConnectionId, ConnectionLost, ReplyRoom};

impl RdmaClient {
    /// Returns the version that a connection speaks, and why, once that is known.
    #[must_use]
    pub fn decision(&self, conn: ConnectionId) -> Option<VersionDecision> {
        self.link(conn)?.connection.decision()
    }

    /// Returns the features that may be used on a connection at present, and why, once its version
    /// is known.
    #[must_use]
    pub fn features(&self, conn: ConnectionId) -> Option<AgreedFeatures> {
        self.link(conn)?.connection.features()
    }

    /// Returns the properties of this end, and those of the server once they have arrived, on a
    /// connection of the working group's version 2 (version-two-07, section 5).
    #[must_use]
    pub fn properties(&self, conn: ConnectionId) -> Option<(Properties, Option<Properties>)> {
        self.link(conn)?.connection.properties()
    }

    /// Returns every transfer mode that is possible at present for a call of this shape with a
    /// reply of up to `need`, that of the base protocol first. The list is empty before the version
    /// of the connection is known and after the connection has ended.
    #[must_use]
    pub fn considered(
        &mut self,
        conn: ConnectionId,
        shape: &Shape,
        need: &ReplyNeed,
    ) -> Vec<ConsideredMode> {
        match self.link_mut(conn) {
            Some(link) => link.connection.considered(shape, need),
            None => Vec::new(),
        }
    }

    /// Returns the possible transfer modes of a call, RPC header included, over the first
    /// connection.
    #[must_use]
    pub fn considered_call(&mut self, message: &Message, room: &ReplyRoom) -> Vec<ConsideredMode> {
        let first = self.connections().next();
        first.map_or_else(Vec::new, |conn| {
            self.considered_call_of(conn, message, room)
        })
    }

    /// Returns the possible transfer modes of a call, RPC header included, over a connection.
    #[must_use]
    pub fn considered_call_of(
        &mut self,
        conn: ConnectionId,
        message: &Message,
        room: &ReplyRoom,
    ) -> Vec<ConsideredMode> {
        match Shape::of(message) {
            Ok(shape) => self.considered(conn, &shape, &room.need()),
            Err(_) => Vec::new(),
        }
    }

    /// Replaces the receives of a connection by longer ones, of `size` bytes, as they are consumed,
    /// and announces the new size to the server when all are replaced (xcharext-02, section 3.1).
    ///
    /// # Errors
    /// [`NotChanged`]: the reason why the size cannot be changed.
    pub fn raise_receive_size(&mut self, conn: ConnectionId, size: u32) -> Result<(), NotChanged> {
        let qp = self.qp_of(conn).ok_or(NotChanged::NotSettled)?;
        let link = self.link_mut(conn).ok_or(NotChanged::NotSettled)?;
        let changed = link.connection.raise_receive_size(size);
        self.run(qp);
        changed
    }

    /// Asks the server of a connection for receives of `size` bytes. [`RdmaClient::features`] shows
    /// the result.
    ///
    /// # Errors
    /// [`NotChanged`]: the reason why the request cannot be sent.
    pub fn request_receive_size(
        &mut self,
        conn: ConnectionId,
        size: u32,
    ) -> Result<(), NotChanged> {
        let qp = self.qp_of(conn).ok_or(NotChanged::NotSettled)?;
        let link = self.link_mut(conn).ok_or(NotChanged::NotSettled)?;
        let changed = link.connection.request_receive_size(size);
        self.run(qp);
        changed
    }

    /// Handles the outcome of a connection's version negotiation.
    pub(super) fn decided(&mut self, qp: QpId, decision: &VersionDecision) {
        let Some(link) = self.driver.links.get(&qp) else {
            return;
        };
        let (conn, remote, asked_again) = (link.conn, link.peer, link.asked_again);
        if is_drop(decision) && !asked_again && !link.phase.is_closing() {
            tracing::info!(server = %remote, "the connection was lost before the version was found: asking again");
            if let Some(gone) = self.remove(qp) {
                let tracer = gone.tracer.clone();
                let calls = gone.connection.into_pending_calls();
                self.connect((conn, remote), calls, true, tracer);
            }
            return;
        }
        tracing::info!(server = %remote, %decision, "version found");
        self.options.fallback_warning.warn_once(remote, decision);
        self.known_servers.decided(remote, decision);
        match decision.action {
            _ if link.phase.is_closing() => {}
            VersionAction::Use(_) => {
                if decision.reason == VersionReason::Answered {
                    self.have_answered.insert(remote);
                }
                self.driver
                    .events
                    .push_back(ClientTransportEvent::Connected(conn));
            }
            VersionAction::Reconnect(_) => {
                // Calls that were handed in before wait for the next connection. If there is none,
                // the event that says so ends them.
                if let Some(gone) = self.remove(qp) {
                    let tracer = gone.tracer.clone();
                    let calls = gone.connection.into_pending_calls();
                    self.connect((conn, remote), calls, asked_again, tracer);
                }
            }
            VersionAction::GiveUp => {
                let shown = decision.reason.evidence();
                // A server that answered before has rather been stopped than replaced.
                let is_loss = shown.is_some_and(|evidence| evidence.is_loss());
                // A server that has no room for a client may accept its connection and close it.
                let dropped = shown.is_some_and(|evidence| evidence.shown == Shown::Dropped);
                let lost = ConnectionLost {
                    reason: decision.to_string(),
                    retry: is_loss && self.have_answered.contains(&remote),
                    busy: dropped,
                    was_established: false,
                };
                if let Some(gone) = self.remove(qp) {
                    self.disconnected(&gone, lost);
                }
            }
        }
    }

    /// Reconnects to a server that was assumed to lack the version that it was asked for, and has
    /// reported that it speaks that one and not the one assumed. It must have been unavailable when
    /// it was asked. The calls are made again.
    pub(super) fn misjudged(&mut self, qp: QpId) {
        let Some(gone) = self.remove(qp) else {
            return;
        };
        self.known_servers.forget(&gone.peer);
        let evidence = gone
            .connection
            .decision()
            .and_then(|it| it.reason.evidence());
        let reason = evidence.map_or_else(String::new, |evidence| {
            format!(
                "the server refuses version {}, which was spoken as it had not answered in version {}",
                evidence.speaks.map_or("", Version::name),
                evidence.asked.number(),
            )
        });
        let lost = ConnectionLost {
            reason,
            retry: true,
            busy: false,
            was_established: true,
        };
        self.disconnected(&gone, lost);
    }
}

/// Returns whether a decision is to reconnect in another version only because the connection was lost.
fn is_drop(decision: &VersionDecision) -> bool {
    let evidence = decision.reason.evidence();
    matches!(decision.action, VersionAction::Reconnect(_))
        && evidence.is_some_and(|evidence| evidence.shown == Shown::Dropped)
}
