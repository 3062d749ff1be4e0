//! Decoding of a header into its fields, by their places.

use super::encode::arm;
use super::word::{Kind, Word, kind};
use super::{DEEPEST, FIRST_WORD, Form, MOST_STEPS, Node, body_name, within};
use crate::vocabulary::{FIXED, HeaderType, Vocabulary};
use crate::wire::Reader;
use crate::xdr::Body;

/// The value of a field.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Leaf {
    /// A number.
    Number(u64),
    /// Opaque data.
    Octets(Vec<u8>),
    /// The number of elements of a list; of optional data 0 or 1.
    Count(u32),
}

/// A header.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Decoded {
    /// The fields in their order, with the whole names of their places.
    pub fields: Vec<(String, Leaf)>,
    /// The bytes after the header.
    pub rest: Vec<u8>,
}

impl Decoded {
    /// Returns the value at a place, if it is there.
    #[must_use]
    pub fn get(&self, place: &str) -> Option<&Leaf> {
        let mut all = self.fields.iter();
        all.find(|(name, _)| name == place).map(|(_, leaf)| leaf)
    }
}

/// Decodes a header of this type.
///
/// # Errors
/// The place that is not there, or whose value its type does not have.
pub fn decode(
    vocabulary: &Vocabulary,
    header: &HeaderType,
    message: &[u8],
) -> Result<Decoded, String> {
    let mut decoder = Decoder::new(vocabulary, message);
    decoder.header(header)?;
    Ok(Decoded {
        fields: decoder.fields,
        rest: decoder.from.0.to_vec(),
    })
}

/// Returns the words of the header of a message of this type, in their order. Bytes of opaque data are in none of them.
///
/// # Errors
/// The errors of [`decode`].
pub fn words<'a>(
    vocabulary: &'a Vocabulary,
    header: &'a HeaderType,
    message: &[u8],
) -> Result<Vec<Word<'a>>, String> {
    let mut decoder = Decoder::recording(vocabulary, message);
    decoder.header(header)?;
    Ok(decoder.words.unwrap_or_default())
}

/// Returns the words of the structure with this name at the beginning of these bytes.
///
/// # Errors
/// There is no such structure, or the errors of [`decode`].
pub fn words_of<'a>(
    vocabulary: &'a Vocabulary,
    name: &str,
    bytes: &[u8],
) -> Result<Vec<Word<'a>>, String> {
    let node = match vocabulary.all.body(name) {
        Some(Body::Struct(fields)) => Node::Entry(fields),
        Some(Body::Typedef(other)) => Node::Field(other),
        _ => return Err(format!("{name} is no structure")),
    };
    let mut decoder = Decoder::recording(vocabulary, bytes);
    decoder.node(node, "", 0)?;
    Ok(decoder.words.unwrap_or_default())
}

struct Decoder<'a, 'm> {
    vocabulary: &'a Vocabulary,
    from: Reader<'m>,
    fields: Vec<(String, Leaf)>,
    /// The words, if these are wanted.
    words: Option<Vec<Word<'a>>>,
    /// The length of the whole message, bytes.
    whole: usize,
    steps: usize,
}

impl<'a, 'm> Decoder<'a, 'm> {
    fn new(vocabulary: &'a Vocabulary, message: &'m [u8]) -> Self {
        Self {
            vocabulary,
            from: Reader(message),
            fields: Vec::new(),
            words: None,
            whole: message.len(),
            steps: MOST_STEPS,
        }
    }

    fn recording(vocabulary: &'a Vocabulary, message: &'m [u8]) -> Self {
        Self {
            words: Some(Vec::new()),
            ..Self::new(vocabulary, message)
        }
    }

    fn header(&mut self, header: &'a HeaderType) -> Result<(), String> {
        for name in FIXED.into_iter().chain([self.vocabulary.selector()]) {
            self.node(Node::Word, name, 0)?;
        }
        match &header.fields {
            Some(fields) => {
                let name = body_name(self.vocabulary, fields);
                self.node(Node::Field(fields), name, 0)
            }
            None => Ok(()),
        }
    }

    fn word(&mut self, place: &str, kind: Kind<'a>) -> Result<u32, String> {
        let at = self.whole - self.from.0.len();
        let missing = || format!("the message ends before {place}");
        let value = self.from.word().ok_or_else(missing)?;
        if let Some(words) = &mut self.words {
            words.push(Word {
                place: place.to_owned(),
                at,
                value,
                kind,
            });
        }
        Ok(value)
    }

    fn octets(&mut self, length: u32, place: &str) -> Result<(), String> {
        let missing = || format!("the message ends within {place}");
        let length = length as usize;
        let bytes = self.from.take(length).ok_or_else(missing)?.to_vec();
        self.from
            .take(length.wrapping_neg() % 4)
            .ok_or_else(missing)?;
        self.fields.push((place.to_owned(), Leaf::Octets(bytes)));
        Ok(())
    }

    /// Reads whether something follows.
    fn follows(&mut self, place: &str) -> Result<bool, String> {
        match self.word(place, Kind::Follows)? {
            0 => Ok(false),
            1 => Ok(true),
            other => Err(format!("{place}: {other} where 0 or 1 must be")),
        }
    }

    fn count(&mut self, at: usize, place: &str, count: u32) {
        let count = (place.to_owned(), Leaf::Count(count));
        self.fields.insert(at, count);
    }

    fn node(&mut self, node: Node<'a>, place: &str, depth: usize) -> Result<(), String> {
        let deeper = depth + 1;
        self.steps = match self.steps.checked_sub(1).filter(|_| depth < DEEPEST) {
            Some(steps) => steps,
            None => return Err(format!("{place}: the header has too many fields")),
        };
        let at = self.fields.len();
        match node.form(self.vocabulary) {
            Form::Word => {
                let number = self.word(place, kind(self.vocabulary, node))?.into();
                self.fields.push((place.to_owned(), Leaf::Number(number)));
            }
            Form::Long => {
                let upper = self.word(&within(place, "upper"), Kind::Upper)?;
                let lower = self.word(place, Kind::Number)?;
                let number = u64::from(upper) << 32 | u64::from(lower);
                self.fields.push((place.to_owned(), Leaf::Number(number)));
            }
            Form::Opaque => {
                let length = self.word(place, Kind::Length)?;
                self.octets(length, place)?;
            }
            Form::Fixed(length) => self.octets(length, place)?,
            Form::Struct(fields) => {
                for field in fields {
                    if field.name == FIRST_WORD {
                        break;
                    }
                    self.node(Node::Field(field), &within(place, &field.name), deeper)?;
                }
            }
            Form::Union(tag, arms) => {
                self.node(Node::Field(tag), &within(place, &tag.name), deeper)?;
                let number = match self.fields.get(at) {
                    Some((_, Leaf::Number(number))) => *number,
                    _ => 0,
                };
                match arm(self.vocabulary, arms, number) {
                    Some(Some(field)) => {
                        self.node(Node::Field(field), &within(place, &field.name), deeper)?;
                    }
                    Some(None) => {}
                    None => return Err(format!("{} selects nothing: {number}", tag.name)),
                }
            }
            Form::Array(of) => {
                let count = self.word(place, Kind::Count)?;
                for index in 0..count {
                    self.node(Node::Element(of), &format!("{place}[{index}]"), deeper)?;
                }
                self.count(at, place, count);
            }
            Form::List(fields) => {
                let mut count = 0;
                loop {
                    let element = format!("{place}[{count}]");
                    if !self.follows(&element)? {
                        break;
                    }
                    self.node(Node::Entry(fields), &element, deeper)?;
                    count += 1;
                }
                self.count(at, place, count);
            }
            Form::Optional(of) => {
                let is_there = self.follows(place)?;
                if is_there {
                    self.node(Node::Element(of), place, deeper)?;
                }
                self.count(at, place, u32::from(is_there));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Setting, Values, encode};
    use super::*;
    use crate::dialect::Dialect;

    #[test]
    fn what_was_encoded_is_decoded_by_the_same_names() {
        let vocabulary = Vocabulary::new(Dialect::Wg).unwrap();
        let header = vocabulary.header("RDMA2_CONNPROP_FINAL").unwrap();
        let mut values = Values::new();
        let number = |number| Setting::Number(number);
        values.insert("rdma_htype".into(), number(7));
        values.insert("rdma_props[0].rdma_which".into(), number(2));
        let size = vec![0, 0, 16, 0];
        values.insert(
            "rdma_props[0].rdma_data".into(),
            Setting::Octets(size.clone()),
        );
        let mut message = encode(&vocabulary, header, &values).unwrap();
        message.extend([1, 2, 3, 4]);
        let decoded = decode(&vocabulary, header, &message).unwrap();
        assert_eq!(decoded.get("rdma_props"), Some(&Leaf::Count(1)));
        assert_eq!(
            decoded.get("rdma_props[0].rdma_which"),
            Some(&Leaf::Number(2))
        );
        assert_eq!(
            decoded.get("rdma_props[0].rdma_data"),
            Some(&Leaf::Octets(size))
        );
        assert_eq!(decoded.rest, [1, 2, 3, 4]);
        for length in 0..message.len() - 4 {
            assert!(
                decode(&vocabulary, header, &message[..length]).is_err(),
                "{length}"
            );
        }
    }
}
