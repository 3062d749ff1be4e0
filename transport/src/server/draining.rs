//! The orderly end of a server: calls that have begun are answered, and no others begin.
//!
//! A client makes each call that was not answered again, at the next server. That executes a call twice
//! which this server has executed without answering it, and one that is not idempotent, such as MKDIR,
//! then fails although it has done its work: the next server has another reply cache.

use std::time::Duration;

use rdma::{Ending, Time};

use super::{Origin, Server, TransportFailed};
use crate::poll_loop::earlier;

/// The maximum time that clients have to close their connections after the last reply.
const CLOSING: Duration = Duration::from_secs(1);

impl Server {
    /// Ends in order, after [`Server::run`] has returned: answers the calls that have begun, begins no
    /// others, and closes each connection when its last reply has left. New connections are refused.
    /// Takes at most `within`, or a second after the last reply has left if a client does not close its
    /// connection. Returns whether all calls that had begun were answered, and the replies have left.
    ///
    /// # Errors
    /// [`TransportFailed`] if a transport fails for good.
    pub fn drain(&mut self, within: Duration) -> Result<bool, TransportFailed> {
        let mut until = self.poll_loop.clock().now() + within;
        self.begin_drain();
        loop {
            let progress = self.step();
            if let Some(lost) = self.lost.take() {
                return Err(lost);
            }
            let now = self.poll_loop.clock().now();
            let rest = self.close_answered(now);
            let done = self.has_answered() && rest != Ending::Sending;
            if done {
                until = until.min(now + CLOSING);
            }
            if now >= until || rest == Ending::Ended {
                return Ok(done);
            }
            if !progress {
                let deadline = earlier(Some(until), self.next_deadline());
                self.poll_loop.wait(deadline);
            }
        }
    }

    /// Begins the end that [`Server::drain`] waits for: no further call begins. For a simulation.
    pub fn begin_drain(&mut self) {
        self.draining = true;
        // Over RDMA, a client whose connection is refused for lack of room tries again. One whose connection is
        // closed might conclude that this server lacks the version that it asks for.
        self.member.shared.places.filed.lock().closed = true;
        let now = self.poll_loop.clock().now();
        while let Some((origin, ..)) = self.held.pop_front() {
            self.call_ended(origin, now);
            self.drop_call(origin, now);
        }
    }

    /// Returns whether all calls that had begun have been answered.
    #[must_use]
    pub fn has_answered(&self) -> bool {
        self.running.is_empty() && self.waiting.is_empty()
    }

    /// Closes the connections without calls in progress, each when what was sent on it has left.
    /// Returns whether replies are on their way still, or connections are left whose clients have to close
    /// them. Called after each step of a server that is draining.
    pub fn close_answered(&self, now: Time) -> Ending {
        let (mut left, mut sending) = (false, false);
        for served in &self.transports {
            let mut transport = served.transport.borrow_mut();
            for (conn, peer) in &served.peers {
                left = true;
                if !peer.place.standing().is_busy() {
                    sending |= !transport.finish(*conn, now);
                }
            }
            let device = transport.ending();
            left |= device != Ending::Ended;
            sending |= device == Ending::Sending;
        }
        match (sending, left) {
            (true, _) => Ending::Sending,
            (false, true) => Ending::WaitsForPeers,
            (false, false) => Ending::Ended,
        }
    }

    /// Drops a call that has arrived too late. Its client makes it again when its connection has ended.
    #[cold]
    pub(super) fn drop_call(&mut self, origin: Origin, now: Time) {
        tracing::debug!("this server is ending: a call is dropped");
        self.reply(origin, None, now);
    }
}
