//! Bytes of RPC messages, by the way in which they moved.

use std::ops::AddAssign;

use onc_rpc::{BulkItem, Message};

/// Bytes of RPC messages that moved in one direction, by the way in which they moved. Headers of
/// RPC-over-RDMA, padding, and the round-up of items are not included.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MovedBytes {
    /// Bytes in the Sends of messages that took one Send each.
    pub inline: u64,
    /// Bytes in chunks, which RDMA Reads and Writes moved.
    pub chunk: u64,
    /// Bytes of items that Sends placed in the receiver's memory.
    pub placed: u64,
    /// Bytes in the Sends of messages that took several, without those that were placed.
    pub continued: u64,
}

impl AddAssign for MovedBytes {
    fn add_assign(&mut self, other: Self) {
        self.inline += other.inline;
        self.chunk += other.chunk;
        self.placed += other.placed;
        self.continued += other.continued;
    }
}

/// Bytes of RPC messages that one end has sent and received, calls and replies together. They never
/// decrease.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Moved {
    /// Bytes that this end sent, or offered in chunks that the peer has to read.
    pub sent: MovedBytes,
    /// Bytes that this end received, those included that the peer wrote.
    pub received: MovedBytes,
}

impl AddAssign for Moved {
    fn add_assign(&mut self, other: Self) {
        self.sent += other.sent;
        self.received += other.received;
    }
}

impl Moved {
    /// Counts the payload of a message that has arrived in one Send or, if it was `continued`, in several.
    #[inline]
    pub(crate) fn arrived(&mut self, payload: u64, continued: bool) {
        match continued {
            false => self.received.inline += payload,
            true => self.received.continued += payload,
        }
    }

    /// Counts a message that an extension has received in this number of transmissions. What it has
    /// in chunks is counted when it has been fetched or written.
    pub(crate) fn carried(&mut self, message: &Message, transmissions: u32) {
        let items = message
            .items()
            .iter()
            .map(|item: &BulkItem| item.data.len());
        self.received.placed += items.map(|len| len as u64).sum::<u64>();
        let bytes = match transmissions {
            0 | 1 => &mut self.received.inline,
            _ => &mut self.received.continued,
        };
        *bytes += message.payload_len();
    }
}
