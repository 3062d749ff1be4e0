//! A responder's choice of what to do with the items of its reply (sections 6.2 and 7.4).

use rpcrdma_v2::chunk_len;
use smallvec::SmallVec;

use crate::{DirectedItem, Direction};

/// The treatment of an item of a reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Handling {
    /// The item stays in the payload stream: no direction is left for it, it is shorter than the
    /// minimum in its direction, or the responder cannot do what the direction asks for.
    InStream,
    /// The item is placed in buffer segments by the transmissions of the reply.
    Placed,
    /// The item is written by RDMA Write into the memory of its direction.
    Written,
}

/// The responder's abilities and preference.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ability {
    /// Whether the responder can place items in its transmissions.
    pub place: bool,
    /// Whether the responder prefers RDMA Write if the direction allows both.
    pub prefer_written: bool,
}

/// An item is too long for the only memory that may be used for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("item {item} of {len} bytes does not fit its memory of {capacity} bytes")]
pub struct DoesNotFit {
    /// Index of the item.
    pub item: usize,
    /// Length of the item in bytes.
    pub len: u64,
    /// Length of the memory in bytes.
    pub capacity: u64,
}

/// Chooses the treatment of each item of a reply from its length in bytes. `directions` are those
/// of the call, in order; each item uses up one.
///
/// # Errors
/// [`DoesNotFit`] if an item must be written and its memory is too short. The reply cannot be sent
/// then.
pub fn choose<'a>(
    items: impl IntoIterator<Item = u64>,
    directions: impl IntoIterator<Item = &'a DirectedItem>,
    ability: Ability,
) -> Result<SmallVec<[Handling; 1]>, DoesNotFit> {
    let mut directions = directions.into_iter();
    let one = |(item, len)| {
        let Some(direction) = directions.next() else {
            return Ok(Handling::InStream);
        };
        handle(len, direction, ability).map_err(|capacity| DoesNotFit {
            item,
            len,
            capacity,
        })
    };
    items.into_iter().enumerate().map(one).collect()
}

/// Chooses the treatment of one item. The error is the length in bytes of the only memory there is.
fn handle(len: u64, direction: &DirectedItem, ability: Ability) -> Result<Handling, u64> {
    if len == 0 || len < u64::from(direction.min_len) {
        return Ok(Handling::InStream);
    }
    let placed = match ability.place {
        true => Handling::Placed,
        // A responder that cannot place items leaves them in the payload stream.
        false => Handling::InStream,
    };
    let capacity = direction.to.chunk().map_or(0, |chunk| chunk_len(chunk));
    let fits = len <= capacity;
    let write = match &direction.to {
        // A chunk without segments asks for the item inline (RFC 8166, section 4.3.2.3).
        Direction::Explicit(chunk) if chunk.is_empty() => return Ok(Handling::InStream),
        Direction::Explicit(_) if fits => true,
        Direction::Explicit(_) => return Err(capacity),
        Direction::Placed => false,
        Direction::Choice(_) => fits && (ability.prefer_written || !ability.place),
        Direction::BySize { longest_placed, .. } => {
            fits && (len > u64::from(*longest_placed) || !ability.place)
        }
    };
    Ok(match write {
        true => Handling::Written,
        false => placed,
    })
}
