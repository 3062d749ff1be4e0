//! The messages of traced calls, from the decision to send them until they are in the send queue.
//!
//! A driver takes a message as an action, and lets it wait if the send queue is full. So a call is said to be
//! sent, and a reply to have left, when its last message no longer waits.

use std::collections::VecDeque;

use rpcrdma_chunks::Direction;

use crate::Action;

/// The calls and replies of a trace whose last message is not known to be in the send queue.
#[derive(Debug, Default)]
pub(crate) struct Given {
    /// The number of messages that the driver has taken.
    taken: u64,
    /// Calls and replies that wait, in order, with the number of the last message of each.
    last: VecDeque<(u64, Direction, u32)>,
    /// The number of the first of them that are known to wait for room.
    told: usize,
}

impl Given {
    /// Adds a call or reply whose last message is in `actions`, with `behind` messages behind it.
    pub(crate) fn add(
        &mut self,
        actions: &VecDeque<Action>,
        behind: u64,
        direction: Direction,
        xid: u32,
    ) {
        let number = self.taken + messages(actions).saturating_sub(behind);
        self.last.push_back((number, direction, xid));
    }

    /// Counts an action that the driver takes.
    pub(crate) fn take(&mut self, action: &Action) {
        self.taken += u64::from(ends_message(action));
    }

    /// Returns a call or reply that has left, if `waiting` messages that the driver has taken wait for room, and
    /// whether it had to wait.
    pub(crate) fn next_left(&mut self, waiting: usize) -> Option<(Direction, u32, bool)> {
        let left = self.taken.saturating_sub(waiting as u64);
        let &(number, direction, xid) = self.last.front()?;
        if number > left {
            return None;
        }
        self.last.pop_front();
        let waited = self.told > 0;
        self.told = self.told.saturating_sub(1);
        Some((direction, xid, waited))
    }

    /// Returns a call or reply that the driver has taken, that has not left, and that was not returned before.
    pub(crate) fn next_waiting(&mut self) -> Option<(Direction, u32)> {
        let &(number, direction, xid) = self.last.get(self.told)?;
        if number > self.taken {
            return None;
        }
        self.told += 1;
        Some((direction, xid))
    }
}

/// Returns whether this is the last or only Send of a message.
fn ends_message(action: &Action) -> bool {
    matches!(action, Action::Send { more: false, .. })
}

/// Returns the number of messages whose last or only Send is among these actions.
pub(crate) fn messages(actions: &VecDeque<Action>) -> u64 {
    actions.iter().filter(|action| ends_message(action)).count() as u64
}
