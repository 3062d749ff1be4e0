//! The messages in several parts of which one was refused.

use std::collections::VecDeque;

use rpcrdma_chunks::Direction;

/// The maximum number of messages that are remembered. A peer that leaves more of them unfinished gets a
/// further error for one of them.
const MOST: usize = 4;

/// Messages of which a part was refused. Their further parts are discarded silently (section 7.1.4). An entry
/// ends when the last part of its message arrives. All entries end when another message begins, because from
/// then on the peer may use the XID for a repeated call.
#[derive(Debug, Default)]
pub struct RefusedMessages(VecDeque<(Direction, u32)>);

impl RefusedMessages {
    /// Adds a message, of which further parts may follow.
    pub fn add(&mut self, direction: Direction, xid: u32) {
        if self.0.len() == MOST {
            self.0.pop_front();
        }
        self.0.push_back((direction, xid));
    }

    /// Returns whether a part belongs to one of the messages. The `last` part of a message ends its entry.
    pub fn discard(&mut self, direction: Direction, xid: u32, last: bool) -> bool {
        let Some(at) = self.0.iter().position(|&bad| bad == (direction, xid)) else {
            return false;
        };
        if last {
            self.0.remove(at);
        }
        true
    }

    /// Removes a message whose last part has arrived.
    pub fn end(&mut self, direction: Direction, xid: u32) {
        self.0.retain(|&bad| bad != (direction, xid));
    }

    /// Removes all messages, because another one begins.
    pub fn clear(&mut self) {
        self.0.clear();
    }
}
