//! The messages in several parts of which one was refused.

use std::collections::VecDeque;

use rpcrdma_chunks::Direction;

/// The maximum number of messages that are remembered. A peer that leaves more of them unfinished gets a
/// further error for one of them.
const MOST: usize = 8;

/// The owner of a header type: the base protocol or an extension. All parts of a message have the
/// same owner.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Owner {
    /// The base protocol.
    Base,
    /// The extension with this index.
    Extension(usize),
}

/// A message that may have several parts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MessageId {
    /// The owner of its header types.
    pub owner: Owner,
    /// Its direction.
    pub direction: Direction,
    /// Its XID.
    pub xid: u32,
}

/// Messages of which a part was refused. Their further parts are discarded silently (section 7.1.4). An entry
/// ends when the last part of its message arrives. All entries end when another message begins, because from
/// then on the peer may use the XID for a repeated call.
#[derive(Debug, Default)]
pub struct RefusedMessages(VecDeque<MessageId>);

impl RefusedMessages {
    /// Returns whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Adds a message, of which further parts may follow.
    pub fn add(&mut self, message: MessageId) {
        if self.0.len() == MOST {
            self.0.pop_front();
        }
        self.0.push_back(message);
    }

    /// Returns whether a part belongs to one of the messages. The `last` part of a message ends its entry.
    pub fn discard(&mut self, message: MessageId, last: bool) -> bool {
        let Some(at) = self.0.iter().position(|&bad| bad == message) else {
            return false;
        };
        if last {
            self.0.remove(at);
        }
        true
    }

    /// Removes a message whose last part has arrived.
    pub fn end(&mut self, message: MessageId) {
        self.0.retain(|&bad| bad != message);
    }

    /// Removes the messages of one owner, because it has begun another one, which was refused as
    /// well: no further parts of the earlier ones follow.
    pub fn end_of(&mut self, owner: Owner) {
        self.0.retain(|bad| bad.owner != owner);
    }

    /// Removes all messages, because another one begins.
    pub fn clear(&mut self) {
        self.0.clear();
    }
}
