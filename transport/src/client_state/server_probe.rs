//! Detects that the peer is no RPC server for this transport.
//!
//! An established connection proves little: any TCP service accepts one, and closes it or stays
//! silent when it does not understand the data. The same happens between a server for RDMA and one
//! for TCP. Only a reply proves that calls reach an RPC server, so until the first reply the client
//! gives up early.

use std::time::Duration;

use rdma::Time;

use crate::ClientOptions;

/// The maximum number of consecutive connections that may end with calls unanswered, before the
/// first reply. With the default pauses between attempts, the last attempt of a single connection ends
/// after three seconds, so a server that is just being started or replaced gets a chance.
pub(super) const MAX_UNANSWERED: u32 = 8;

/// A client's observations of its server so far: whether a reply has ever arrived, and if not, how
/// many connections have ended without one.
#[derive(Debug, Default)]
pub(super) struct ServerProbe {
    /// Whether there was a reply.
    answered: bool,
    /// The time since which calls have been sent and not answered.
    unanswered_since: Option<Time>,
    /// The number of connections that ended since then.
    ended: u32,
}

impl ServerProbe {
    /// Records that a call was sent.
    pub(super) fn sent(&mut self, now: Time) {
        if !self.answered {
            self.unanswered_since.get_or_insert(now);
        }
    }

    /// Records a reply: the peer is an RPC server.
    pub(super) fn answered(&mut self) {
        *self = Self {
            answered: true,
            ..Self::default()
        };
    }

    /// Records that no call waits for a reply any more.
    pub(super) fn none_pending(&mut self) {
        (self.unanswered_since, self.ended) = (None, 0);
    }

    /// Records the end of an established connection with calls, or of an attempt to connect.
    /// `another_is_up` says whether another connection is established. Returns whether
    /// [`MAX_UNANSWERED`] connections have ended without a reply, so that the peer is not an RPC
    /// server.
    pub(super) fn connection_ended(&mut self, was_established: bool, another_is_up: bool) -> bool {
        if self.answered {
            return false;
        }
        if !was_established && !another_is_up {
            // The peer refused to connect: the server is down, which is a different case.
            (self.unanswered_since, self.ended) = (None, 0);
        } else if !was_established {
            // The server may admit no more connections, which says nothing about the others.
        } else if self.unanswered_since.is_some() {
            self.ended = self.ended.saturating_add(1);
        }
        self.unanswered_since.is_some() && self.ended >= MAX_UNANSWERED
    }

    /// Returns when the first reply is overdue.
    pub(super) fn deadline(&self, options: &ClientOptions) -> Option<Time> {
        let limit: Duration = options.first_reply_within;
        Some(self.unanswered_since? + limit)
    }
}
