//! Whether the other end is an RPC server at all.
//!
//! A connection says little: any TCP service accepts one, a server for RDMA as well as one for TCP,
//! and ends it, or says nothing, when it does not understand what it is sent. Only a reply shows
//! that calls go to the right place; until the first, patience is short.

use std::time::Duration;

use rdma::Time;

use crate::ClientOptions;

/// Connections in a row that may end with calls on them unanswered, before the first reply of all.
/// With the pauses between attempts by default, the last ends after three seconds: a server that
/// is being started, or replaced, is given a chance.
pub(super) const MAX_UNANSWERED: u32 = 8;

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Trust {
    /// There was a reply.
    answered: bool,
    /// Since when there are calls that were sent and not answered.
    asked: Option<Time>,
    /// Connections that ended since then.
    ended: u32,
}

impl Trust {
    /// A call was sent.
    pub(super) fn asked(&mut self, now: Time) {
        if !self.answered {
            self.asked.get_or_insert(now);
        }
    }

    /// The peer is an RPC server.
    pub(super) fn answered(&mut self) {
        *self = Self {
            answered: true,
            ..Self::default()
        };
    }

    /// Nobody waits for an answer any more.
    pub(super) fn nothing_asked(&mut self) {
        self.asked = None;
    }

    /// A connection or attempt ended. Returns whether enough have.
    pub(super) fn ended(&mut self, was_up: bool) -> bool {
        if self.answered {
            return false;
        }
        if !was_up {
            // Nothing listens there: a server that is down, which is another matter.
            (self.asked, self.ended) = (None, 0);
        } else if self.asked.is_some() {
            self.ended = self.ended.saturating_add(1);
        }
        self.asked.is_some() && self.ended >= MAX_UNANSWERED
    }

    /// When the first reply is overdue.
    pub(super) fn deadline(&self, options: &ClientOptions) -> Option<Time> {
        let limit: Duration = options.first_reply_within;
        Some(self.asked? + limit)
    }
}
