//! Expected messages by their fields, of cases in files.

use std::ops::RangeInclusive;
use std::sync::Arc;

use crate::difference::difference;
use crate::fields::{Leaf, decode};
use crate::vocabulary::{HeaderType, Vocabulary};
use crate::wire::{Reader, v1};

/// A condition on a field.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Wanted {
    /// A number in this range.
    Number(RangeInclusive<u64>),
    /// Opaque data with these bytes.
    Octets(Vec<u8>),
    /// A list without elements, or optional data that is not there.
    None,
}

/// The bytes behind a header.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Payload {
    /// The first bytes.
    pub begins: Vec<u8>,
    /// Whether more may follow these.
    pub more: bool,
}

/// A message of one type, of which some fields are compared.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pattern {
    /// The names of the version.
    pub vocabulary: Arc<Vocabulary>,
    /// The header type.
    pub header: HeaderType,
    /// The whole names of places, with what must be there.
    pub fields: Vec<(String, Wanted)>,
    /// The bytes that must follow the header. `None` compares nothing.
    pub payload: Option<Payload>,
}

impl Pattern {
    /// Returns whether a message has this header type.
    #[must_use]
    pub fn is_of(&self, message: &[u8]) -> bool {
        fourth_word(message) == Some(self.header.number)
    }

    /// Compares a message. `rpc` has the RPC message of all parts that came, if it was understood.
    ///
    /// # Errors
    /// The first difference.
    pub fn check(&self, rpc: Option<&[u8]>, message: &[u8]) -> Result<(), String> {
        if !self.is_of(message) {
            let other = self.other(message);
            return Err(format!("{other}, not {}", self.header.name));
        }
        let name = &self.header.name;
        let decoded = decode(&self.vocabulary, &self.header, message);
        let decoded = decoded.map_err(|what| format!("{name} that cannot be read: {what}"))?;
        for (place, wanted) in &self.fields {
            let is = decoded.get(place);
            let difference = match (is, wanted) {
                (None, Wanted::None) => None,
                (None, _) => Some("is not there".to_owned()),
                (Some(Leaf::Number(is)), Wanted::Number(range)) if range.contains(is) => None,
                (Some(Leaf::Number(is)), Wanted::Number(range)) => {
                    let (least, most) = (*range.start(), *range.end());
                    let wanted = match least == most {
                        true => self.number(place, least),
                        false => format!("{least} to {most}"),
                    };
                    Some(format!("is {}, not {wanted}", self.number(place, *is)))
                }
                (Some(Leaf::Count(0)), Wanted::None) => None,
                (Some(Leaf::Count(count)), Wanted::None) => Some(format!("has {count} elements")),
                (Some(Leaf::Octets(is)), Wanted::Octets(wanted)) if is == wanted => None,
                (Some(is), wanted) => Some(format!("is {is:x?}, not {wanted:x?}")),
            };
            if let Some(difference) = difference {
                return Err(format!("{name}: {place} {difference}"));
            }
        }
        let Some(wanted) = &self.payload else {
            return Ok(());
        };
        let payload = rpc.unwrap_or(&decoded.rest);
        match difference(payload, &wanted.begins, wanted.more) {
            None => Ok(()),
            Some(difference) => Err(format!("{name} with {difference}")),
        }
    }

    /// Describes a message of another type.
    fn other(&self, message: &[u8]) -> String {
        let dialect = self.vocabulary.dialect();
        match fourth_word(message) {
            None => format!("a message of {} bytes", message.len()),
            Some(v1::ERROR) => {
                let mut from = Reader(&message[16..]);
                let words: Vec<u32> = std::iter::from_fn(|| from.word()).collect();
                let name = dialect.error_name(&words);
                format!("an {} of {name}", dialect.error_kind())
            }
            Some(number) => match self.vocabulary.header_of(number) {
                Some(header) => header.name.clone(),
                None => format!("a message of header type {number:#x}"),
            },
        }
    }

    /// Returns a number, with its name if it is that of an error.
    fn number(&self, place: &str, number: u64) -> String {
        let mut constants = self.vocabulary.all.constants.iter();
        let name = constants.find(|(name, value)| name.contains("ERR_") && **value == number);
        match name.filter(|_| place.ends_with("rdma_err")) {
            Some((name, _)) => format!("{number} ({name})"),
            None => number.to_string(),
        }
    }
}

fn fourth_word(message: &[u8]) -> Option<u32> {
    Reader(message.get(12..)?).word()
}
