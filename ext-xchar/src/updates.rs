//! Updates that wait to be sent. At most one goes out between two messages of the peer's, so that
//! they need no credits: the peer has receives for that (drafts/errata.md).

use std::collections::VecDeque;

use rpcrdma_v2::extension::Outbox;

use crate::{UPDXCH, Update};

#[derive(Debug, Default)]
pub(crate) struct Updates {
    waiting: VecDeque<Update>,
    /// A message of the peer's has come since the last update.
    may_send: bool,
}

impl Updates {
    /// An update to send. One that waits for the same characteristic is replaced: only the last
    /// value counts, and that a request is completed is said all the same.
    pub(crate) fn push(&mut self, mut update: Update) {
        let mut waiting = self.waiting.iter_mut();
        match waiting.find(|waiting| waiting.now.id == update.now.id) {
            Some(waiting) => {
                update.pending_cleared |= waiting.pending_cleared;
                *waiting = update;
            }
            None => self.waiting.push_back(update),
        }
    }

    /// A message of the peer's arrived.
    pub(crate) fn message_received(&mut self) {
        self.may_send = true;
    }

    /// Sends the next update if it may. Gives its XID and what it was.
    pub(crate) fn send(&mut self, out: &mut Outbox<'_>) -> Option<(u32, Update)> {
        if !self.may_send {
            return None;
        }
        let update = self.waiting.pop_front()?;
        self.may_send = false;
        let xid = out.call(UPDXCH, update.encode());
        Some((xid, update))
    }
}
