//! What a responder does with the items of its reply (sections 6.2 and 7.4).

use rpcrdma_v2::chunk_len;
use smallvec::SmallVec;

use crate::{DirectedItem, Direction};

/// What is done with an item of a reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Handling {
    /// It stays in the payload stream: no direction was left for it, or it is shorter than its
    /// direction wants it, or can be dealt with.
    InStream,
    /// It is placed in the transmissions.
    Placed,
    /// It is written into the memory of its direction.
    Written,
}

/// What a responder can and likes to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ability {
    /// It can place items in its transmissions.
    pub place: bool,
    /// Where it may choose, it rather writes.
    pub prefer_written: bool,
}

/// The only memory that may be used for an item is too short for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("item {item} of {len} bytes does not fit {capacity}")]
pub struct DoesNotFit {
    /// Which item.
    pub item: usize,
    /// Its bytes.
    pub len: u64,
    /// Bytes that were offered.
    pub capacity: u64,
}

/// What is done with each item of a reply, by lengths, with the directions of its request in order:
/// each item uses one up.
///
/// # Errors
/// [`DoesNotFit`]: the reply cannot be sent.
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

/// The error is the capacity of the only memory there is.
fn handle(len: u64, direction: &DirectedItem, ability: Ability) -> Result<Handling, u64> {
    if len == 0 || len < u64::from(direction.min_len) {
        return Ok(Handling::InStream);
    }
    let placed = match ability.place {
        true => Handling::Placed,
        // Nothing is long enough for who cannot place at all.
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
