//! Updates that wait to be sent. At most one is sent between two messages from the peer, so that
//! updates need no credits: the peer has a receive for it (drafts/errata.md).

use std::collections::VecDeque;

use rpcrdma_extension::Outbox;

use crate::{UPDXCH, Update};

#[derive(Debug, Default)]
pub(crate) struct Updates {
    waiting: VecDeque<Update>,
    /// Whether a message from the peer has arrived since the last update.
    may_send: bool,
}

impl Updates {
    /// Queues an update. It replaces a queued update of the same characteristic, because only the
    /// last value counts; if the replaced update completed a request, the new one does.
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

    /// Records that a message from the peer arrived.
    pub(crate) fn message_received(&mut self) {
        self.may_send = true;
    }

    /// Sends the next update if that is allowed now. Returns its XID and contents.
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
