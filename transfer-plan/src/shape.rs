//! The lengths and positions of a message's parts, which are all that a plan needs to know of it.

use onc_rpc::{Message, Position, padded};
use smallvec::SmallVec;

/// A DDP-eligible item of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Item {
    /// Offset of its first byte in the whole, unreduced stream (RFC 8166, section 3.4.5).
    pub position: u32,
    /// Length in bytes, without XDR round-up.
    pub len: u64,
}

impl Item {
    /// Returns the number of bytes that the item takes in the stream, round-up included.
    #[must_use]
    pub const fn in_stream(&self) -> u64 {
        padded(self.len)
    }
}

/// The lengths and positions of a message's parts.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Shape {
    payload: u64,
    items: SmallVec<[Item; 1]>,
}

/// A message has an item without a position. Such a message was received, and the item came in a
/// write chunk; only the upper layer knows its position, so the message cannot be sent on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("bulk item {0} has no position in the stream")]
pub struct UnpositionedItem(
    /// Index of the item.
    pub usize,
);

impl Shape {
    /// Creates a shape from the length of the reduced payload (RPC header included) and the items.
    #[must_use]
    pub fn new(payload: u64, items: impl IntoIterator<Item = Item>) -> Self {
        Self {
            payload,
            items: items.into_iter().collect(),
        }
    }

    /// Returns the shape of `message`.
    ///
    /// # Errors
    /// [`UnpositionedItem`] if an item has no position.
    pub fn of(message: &Message) -> Result<Self, UnpositionedItem> {
        if message.items().is_empty() {
            return Ok(Self {
                payload: message.payload_len(),
                items: SmallVec::new(),
            });
        }
        let items = message.items().iter().enumerate().map(|(index, item)| {
            let Position::At(position) = item.position else {
                return Err(UnpositionedItem(index));
            };
            let len = item.data.len() as u64;
            Ok(Item { position, len })
        });
        Ok(Self {
            payload: message.payload_len(),
            items: items.collect::<Result<_, _>>()?,
        })
    }

    /// Returns the length in bytes of the reduced stream.
    #[must_use]
    pub fn payload(&self) -> u64 {
        self.payload
    }

    /// Returns the items, in stream order.
    #[must_use]
    pub fn items(&self) -> &[Item] {
        &self.items
    }

    /// Returns the length in bytes of the whole stream.
    #[must_use]
    pub fn stream_len(&self) -> u64 {
        self.payload + self.items.iter().map(Item::in_stream).sum::<u64>()
    }
}

/// Upper bounds for the lengths of a reply's parts.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ReplyNeed {
    /// Length in bytes of the reduced payload, RPC reply header included.
    pub payload: u64,
    /// Length in bytes of each DDP-eligible result item, without round-up, in the order in which
    /// they are decoded.
    pub items: SmallVec<[u64; 1]>,
}

impl ReplyNeed {
    /// Creates the bounds from the payload length and the item lengths in bytes.
    #[must_use]
    pub fn new(payload: u64, items: impl IntoIterator<Item = u64>) -> Self {
        Self {
            payload,
            items: items.into_iter().collect(),
        }
    }

    /// Returns the maximum length in bytes of the whole stream.
    #[must_use]
    pub fn stream_len(&self) -> u64 {
        self.payload + self.items.iter().map(|&len| padded(len)).sum::<u64>()
    }
}
