//! What a client does about versions: which one is found, and what may be used with it.

use std::time::Duration;

use conveyance::{ReplyNeed, Shape};
use onc_rpc::{Message, Segments};
use rdma::{Device, Time};
use rpcrdma_ext_xchar::NotChanged;
use rpcrdma_negotiation::{Decision, Features, Reason, Verdict, Version};

use super::{Connection, RdmaClient};
use crate::poll_loop::earlier;
use crate::rdma::conversation::{Considered, Wanted};
use crate::rdma::requester::need;
use crate::{ClientEvent, ConnId, Down, ReplyRoom};

impl RdmaClient {
    /// The version that a connection speaks, and why, once that is known.
    #[must_use]
    pub fn decision(&self, conn: ConnId) -> Option<Decision> {
        self.connections[self.find(conn)?].talk.decision()
    }

    /// The same, and what may be used at present, of every connection whose version is known.
    pub fn conversations(&self) -> impl Iterator<Item = (Decision, Features)> {
        let connections = self.connections.iter().map(|connection| &connection.talk);
        connections.filter_map(|talk| Some((talk.decision()?, talk.features()?)))
    }

    /// What may be used on a connection at present, and why, once its version is known.
    #[must_use]
    pub fn features(&self, conn: ConnId) -> Option<Features> {
        self.connections[self.find(conn)?].talk.features()
    }

    /// All ways in which a call of this shape, with a reply of up to `need`, could go over a
    /// connection at present, the base's own first, and which one it is that would be taken.
    /// Nothing once the connection is gone or before its version is known.
    #[must_use]
    pub fn considered(&mut self, conn: ConnId, shape: &Shape, need: &ReplyNeed) -> Vec<Considered> {
        match self.find(conn) {
            Some(at) => self.connections[at].talk.considered(shape, need),
            None => Vec::new(),
        }
    }

    /// The same for a call as it is handed in, its RPC header included, over the first connection.
    #[must_use]
    pub fn considered_call(&mut self, message: &Message, room: &ReplyRoom) -> Vec<Considered> {
        let shape = Shape::of(message).ok();
        let first = self.connections.iter_mut().next();
        let both = first.zip(shape);
        both.map_or_else(Vec::new, |(connection, shape)| {
            connection.talk.considered(&shape, &need(room))
        })
    }

    /// Makes the receives of a connection longer, as they are used, and lets the server know when
    /// all are (xcharext-02, section 3.1).
    ///
    /// # Errors
    /// [`NotChanged`].
    pub fn raise_receive_size(&mut self, conn: ConnId, size: u32) -> Result<(), NotChanged> {
        let at = self.find(conn).ok_or(NotChanged::NotSettled)?;
        let changed = self.connections[at].talk.raise_receive_size(size);
        self.run(at);
        changed
    }

    /// Asks the server of a connection for receives of another size. What becomes of it shows in
    /// [`RdmaClient::features`].
    ///
    /// # Errors
    /// [`NotChanged`]; nothing is asked.
    pub fn request_receive_size(&mut self, conn: ConnId, size: u32) -> Result<(), NotChanged> {
        let at = self.find(conn).ok_or(NotChanged::NotSettled)?;
        let changed = self.connections[at].talk.request_receive_size(size);
        self.run(at);
        changed
    }

    /// The version of a connection is known, or that there is none.
    pub(super) fn decided(&mut self, at: usize, decision: &Decision) {
        let connection = &self.connections[at];
        let (conn, qp, remote) = (connection.id, connection.link.qp(), connection.remote);
        tracing::info!(server = %remote, %decision, "version found");
        self.memory.decided(remote, decision);
        match decision.verdict {
            _ if connection.closing => {}
            Verdict::Speak(version) => {
                if version == Version::Two {
                    self.speak_two.insert(remote);
                }
                self.events.push_back(ClientEvent::Up(conn));
                self.run(at);
            }
            Verdict::Reconnect(_) => {
                let calls = self.remove(at).talk.requester.into_waiting();
                self.device.destroy(qp);
                self.make(conn, remote);
                // What was submitted before the version was known waits for the next connection. If
                // there is none, the event that says so ends it.
                if let Some(at) = self.find(conn) {
                    self.connections[at].talk.requester.resume(calls);
                }
            }
            Verdict::GiveUp => {
                let gone = self.remove(at);
                self.device.destroy(qp);
                // One that spoke version 2 before has rather been stopped than replaced.
                let only_one = matches!(decision.reason, Reason::OnlyOne(why) if why.is_loss());
                let down = Down {
                    reason: decision.to_string(),
                    retry: only_one && self.speak_two.contains(&remote),
                    was_up: false,
                };
                self.down(&gone, down);
            }
        }
    }

    /// A server that was taken for one that speaks version 1 only speaks version 2, and not 1: it must
    /// have been away when it was asked. It is asked anew, and its calls are sent again.
    pub(super) fn misjudged(&mut self, at: usize) {
        let gone = self.remove(at);
        self.device.destroy(gone.link.qp());
        self.memory.forget(&gone.remote);
        let down = Down {
            reason: "the server refuses version 1, which was spoken as it had not answered in \
                     version 2"
                .to_owned(),
            retry: true,
            was_up: true,
        };
        self.down(&gone, down);
    }

    /// Servers that were asked for their version and have kept silent for too long.
    #[cold]
    pub(super) fn expire(&mut self) {
        self.expires_at = None;
        let now = since_start(self.now);
        let mut at = 0;
        while at < self.connections.len() {
            let connection = &mut self.connections[at];
            if let Some(decision) = connection.talk.expired(now) {
                // Another is at this place now.
                self.decided(at, &decision);
                continue;
            }
            let deadline = connection.talk.deadline().map(at_time);
            self.expires_at = earlier(self.expires_at, deadline);
            at += 1;
        }
    }
}

/// Does what the conversation wants done, until the requester has decided upon something: that is posted
/// first. Nothing in version 1.
#[inline]
pub(super) fn converse(device: &mut dyn Device, connection: &mut Connection) {
    if !connection.talk.is_silent() {
        talk(device, connection);
    }
}

#[inline(never)]
fn talk(device: &mut dyn Device, connection: &mut Connection) {
    loop {
        if let Some(receives) = connection.link.receives_replaced() {
            connection.talk.receives_replaced(receives);
        }
        connection.talk.requester.set_room(connection.link.room());
        match connection.talk.next() {
            None => return,
            Some(Wanted::Send(message)) => {
                let gather = Segments::from_iter([message]);
                if let Err(error) = connection.link.send(device, gather, None) {
                    tracing::warn!(%error, "message not sent, closing the connection");
                    device.abort(connection.link.qp());
                }
            }
            Some(Wanted::ReplaceReceives(receives)) => connection.link.set_receives(receives),
        }
    }
}

/// A time as the negotiation sees it.
pub(super) fn since_start(now: Time) -> Duration {
    now.since(Time::ZERO)
}

pub(super) fn at_time(since_start: Duration) -> Time {
    Time::ZERO + since_start
}
