//! The shapes of arguments and results, as far as they are needed to pass over them and to say how
//! long they can be.

use onc_rpc::{DecodeError, Reduction, padded};
use smallvec::SmallVec;

pub(crate) use super::attributes::NO_LIMIT;
use crate::proto::MAX_PATH;

/// Values in the order of their encoding.
pub(crate) type Fields = &'static [Field];

/// A value in arguments or results.
#[derive(Clone, Copy)]
pub(crate) enum Field {
    /// A value of this many bytes.
    Fixed(u32),
    /// A `count4` in arguments that limits the results.
    Count,
    /// Variable-length opaque data or a string of at most so many bytes.
    Opaque(u32),
    /// A counted array of words, such as a bitmap, of at most so many.
    Words(u32),
    /// A counted array of at most so many structures.
    List(u32, Fields),
    /// A counted array in arguments, of which the number of elements limits the results.
    CountedList(Fields),
    /// A counted array in results with at most as many elements as the arguments say.
    ListOfCount(Fields),
    /// A linked list of optional data.
    Chain(Fields),
    /// A union: the fields of each known discriminant, and of all others.
    Union(&'static [(u32, Fields)], Fields),
    /// The bitmap in arguments of the attributes that are asked for.
    AttributesAsked,
    /// A `fattr4` with the attributes that were asked for.
    Attributes,
    /// Results that have at most so many bytes, and so many times the count in the arguments.
    UpToCount(u32, u32, Fields),
    /// DDP-eligible opaque data: arguments, or results of as many bytes as the arguments say.
    Item,
    /// The DDP-eligible text of a symbolic link in results.
    LinkItem,
}

/// The length of the results, as far as arguments tell it.
#[derive(Clone, Copy, Default)]
pub(crate) struct Asked {
    /// The last count.
    pub(crate) count: u32,
    /// The longest encoding of the attributes, [`u64::MAX`] if there is no limit.
    pub(crate) attributes: u64,
}

/// The longest possible results of one call or of one operation.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Longest {
    /// Bytes without DDP-eligible items and their round-up. [`u64::MAX`] if there is no limit.
    pub(crate) payload: u64,
    /// Bytes of each DDP-eligible item, in order.
    pub(crate) items: SmallVec<[u32; 2]>,
}

impl Longest {
    /// Adds the longest encoding of `fields`, in results whose arguments said `asked`.
    pub(crate) fn add(&mut self, fields: Fields, asked: &Asked) {
        for field in fields {
            let len = match *field {
                Field::Fixed(len) => u64::from(len),
                Field::Count => 4,
                Field::Opaque(most) => opaque(most),
                Field::Words(most) => 4 + 4 * u64::from(most),
                Field::List(most, each) => times(most, each, asked),
                Field::ListOfCount(each) => times(asked.count, each, asked),
                Field::CountedList(_) | Field::Chain(_) | Field::AttributesAsked => u64::MAX,
                Field::Union(arms, others) => {
                    // No more than one arm has an item.
                    let mut payload = 0;
                    for fields in arms.iter().map(|(_, fields)| *fields).chain([others]) {
                        let mut arm = Self::default();
                        arm.add(fields, asked);
                        payload = payload.max(arm.payload);
                        self.items.extend(arm.items);
                    }
                    payload.saturating_add(4)
                }
                Field::Attributes => asked.attributes,
                Field::UpToCount(more, times, _) => {
                    u64::from(more) + u64::from(times) * u64::from(asked.count)
                }
                Field::Item => {
                    self.items.push(asked.count);
                    4
                }
                Field::LinkItem => {
                    self.items.push(MAX_PATH);
                    4
                }
            };
            self.payload = self.payload.saturating_add(len);
        }
    }
}

/// Returns the longest encoding of opaque data of at most `most` bytes.
fn opaque(most: u32) -> u64 {
    match most {
        NO_LIMIT => u64::MAX,
        _ => 4 + padded(u64::from(most)),
    }
}

/// Returns the longest encoding of a counted array.
fn times(most: u32, each: Fields, asked: &Asked) -> u64 {
    if most == NO_LIMIT {
        return u64::MAX;
    }
    let mut longest = Longest::default();
    longest.add(each, asked);
    let all = longest.payload.saturating_mul(u64::from(most));
    all.saturating_add(4)
}

/// Passes over `fields` of a message. Items are held apart up to `max_items`; what arguments say of
/// their results is put into `asked`.
///
/// # Errors
/// [`DecodeError`] if the message ends early, or an item is where none may be. Values are not
/// checked: they are for the peer, and any union that is unknown here is passed as its default.
pub(crate) fn pass(
    from: &mut Reduction<'_>,
    fields: Fields,
    max_items: usize,
    asked: &mut Asked,
) -> Result<(), DecodeError> {
    for field in fields {
        match *field {
            Field::Fixed(len) => from.decoder().skip(u64::from(len))?,
            Field::Count => asked.count = from.decoder().u32()?,
            Field::Opaque(_) => {
                from.decoder().skip_opaque()?;
            }
            Field::Words(_) => {
                let count = from.decoder().u32()?;
                from.decoder().skip(4 * u64::from(count))?;
            }
            // Each element has at least a word, so the loop ends with the message.
            Field::List(_, each) | Field::ListOfCount(each) => {
                for _ in 0..from.decoder().u32()? {
                    pass(from, each, max_items, asked)?;
                }
            }
            Field::CountedList(each) => {
                asked.count = from.decoder().u32()?;
                for _ in 0..asked.count {
                    pass(from, each, max_items, &mut Asked::default())?;
                }
            }
            Field::Chain(each) => {
                while from.decoder().bool()? {
                    pass(from, each, max_items, asked)?;
                }
            }
            Field::Union(arms, others) => {
                let value = from.decoder().u32()?;
                let arm = arms.iter().find(|(arm, _)| *arm == value);
                pass(
                    from,
                    arm.map_or(others, |(_, fields)| fields),
                    max_items,
                    asked,
                )?;
            }
            Field::AttributesAsked => asked.attributes = super::attributes::asked(from.decoder())?,
            Field::Attributes => pass(from, ATTRIBUTES, max_items, asked)?,
            Field::UpToCount(_, _, fields) => pass(from, fields, max_items, asked)?,
            Field::Item | Field::LinkItem => {
                let apart = from.items() < max_items;
                from.eligible(apart)?;
            }
        }
    }
    Ok(())
}

/// A `fattr4`: the bitmap of the attributes and their values, which are not looked at.
pub(crate) const ATTRIBUTES: Fields = &[Field::Words(NO_LIMIT), Field::Opaque(NO_LIMIT)];
