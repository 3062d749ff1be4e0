//! What a plan needs to know of a message: lengths and positions, no bytes.

use onc_rpc::{Message, Position, padded};
use smallvec::SmallVec;

/// A DDP-eligible item of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Item {
    /// Offset of its first byte in the whole, unreduced stream (RFC 8166, section 3.4.5).
    pub position: u32,
    /// Its bytes, without XDR round-up.
    pub len: u64,
}

impl Item {
    /// Bytes that it takes in the stream, round-up included.
    #[must_use]
    pub const fn in_stream(&self) -> u64 {
        padded(self.len)
    }
}

/// Lengths and positions of a message's parts.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Shape {
    payload: u64,
    items: SmallVec<[Item; 1]>,
}

/// The message has an item without a position. Such a message was received (its items came in
/// write chunks); where they belong is known to the upper layer only, so it cannot be sent on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("bulk item {0} has no position in the stream")]
pub struct Unplaced(
    /// Which item.
    pub usize,
);

impl Shape {
    /// From the length of the reduced payload (RPC header included) and the items held apart.
    #[must_use]
    pub fn new(payload: u64, items: impl IntoIterator<Item = Item>) -> Self {
        Self {
            payload,
            items: items.into_iter().collect(),
        }
    }

    /// Of `message`.
    ///
    /// # Errors
    /// [`Unplaced`].
    pub fn of(message: &Message) -> Result<Self, Unplaced> {
        if message.items().is_empty() {
            return Ok(Self {
                payload: message.payload_len(),
                items: SmallVec::new(),
            });
        }
        let items = message.items().iter().enumerate().map(|(index, item)| {
            let Position::At(position) = item.position else {
                return Err(Unplaced(index));
            };
            let len = item.data.len() as u64;
            Ok(Item { position, len })
        });
        Ok(Self {
            payload: message.payload_len(),
            items: items.collect::<Result<_, _>>()?,
        })
    }

    /// Bytes of the stream with every item taken out.
    #[must_use]
    pub fn payload(&self) -> u64 {
        self.payload
    }

    /// The items, in stream order.
    #[must_use]
    pub fn items(&self) -> &[Item] {
        &self.items
    }

    /// Bytes of the whole stream.
    #[must_use]
    pub fn stream_len(&self) -> u64 {
        self.payload + self.items.iter().map(Item::in_stream).sum::<u64>()
    }
}

/// The longest that a reply can be.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ReplyNeed {
    /// The reduced payload, RPC reply header included, bytes.
    pub payload: u64,
    /// Each DDP-eligible result item, bytes without round-up, in the order in which they are
    /// decoded.
    pub items: SmallVec<[u64; 1]>,
}

impl ReplyNeed {
    /// From the two.
    #[must_use]
    pub fn new(payload: u64, items: impl IntoIterator<Item = u64>) -> Self {
        Self {
            payload,
            items: items.into_iter().collect(),
        }
    }

    /// The longest that the whole stream can be, bytes.
    #[must_use]
    pub fn stream_len(&self) -> u64 {
        self.payload + self.items.iter().map(|&len| padded(len)).sum::<u64>()
    }
}
