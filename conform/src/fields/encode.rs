//! Encoding of a header whose fields are set by their places.

use std::collections::{BTreeMap, BTreeSet};

use super::{DEEPEST, FIRST_WORD, Form, LONGEST, MOST_STEPS, Node, body_name, within};
use crate::vocabulary::{HeaderType, Vocabulary};
use crate::xdr::Declaration;

/// A value of a field.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Setting {
    /// A number.
    Number(u64),
    /// The bytes of opaque data.
    Octets(Vec<u8>),
    /// The octets that are sent in the place of the field, whatever its type is.
    Raw(Vec<u8>),
}

/// The fields that are set, by the whole names of their places. All others are zero, empty or absent.
pub type Values = BTreeMap<String, Setting>;

/// The reason why a header cannot be encoded.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{what}")]
pub struct NotEncoded {
    /// The place of the field.
    pub place: String,
    /// The description, which names the field.
    pub what: String,
}

/// Encodes a header up to the RPC message.
///
/// # Errors
/// The header is too long, its types are too deep, or a field that is set is none of this header: it is in an arm of a
/// union that is not selected, or other octets are sent in the place of the field that it belongs to.
pub fn encode(
    vocabulary: &Vocabulary,
    header: &HeaderType,
    values: &Values,
) -> Result<Vec<u8>, NotEncoded> {
    let mut steps = MOST_STEPS;
    encode_within(vocabulary, header, values, &mut steps)
}

/// Encodes a header in at most so many steps, of which those that it takes are subtracted. Each field takes one.
///
/// # Errors
/// The errors of [`encode`].
pub(crate) fn encode_within(
    vocabulary: &Vocabulary,
    header: &HeaderType,
    values: &Values,
    steps: &mut usize,
) -> Result<Vec<u8>, NotEncoded> {
    let mut encoder = Encoder {
        vocabulary,
        values,
        sent: BTreeSet::new(),
        out: Vec::new(),
        steps,
    };
    let selector = vocabulary.selector();
    for name in crate::vocabulary::FIXED.into_iter().chain([selector]) {
        encoder.node(Node::Word, name, 0)?;
    }
    if let Some(fields) = &header.fields {
        let name = body_name(vocabulary, fields);
        encoder.node(Node::Field(fields), name, 0)?;
    }
    let sent = &encoder.sent;
    match values.keys().find(|place| !sent.contains(place.as_str())) {
        None => Ok(encoder.out),
        Some(place) => Err(not_sent(values, place)),
    }
}

/// Returns the error of a field that is set and is not sent.
fn not_sent(values: &Values, place: &str) -> NotEncoded {
    let is_above = |(other, setting): &(&String, &Setting)| {
        matches!(setting, Setting::Raw(_)) && *other != place && is_below(place, other)
    };
    let what = match values.iter().find(is_above) {
        Some((above, _)) => format!("{place} is not sent: {above} has other octets in its place"),
        None => format!("{place} is not sent: other fields select another arm of its union"),
    };
    NotEncoded {
        place: place.to_owned(),
        what,
    }
}

/// Returns whether a place is another one, or is within it.
pub(crate) fn is_below(place: &str, other: &str) -> bool {
    let rest = place.strip_prefix(other);
    rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(['.', '[']))
}

struct Encoder<'a> {
    vocabulary: &'a Vocabulary,
    values: &'a Values,
    /// The places that are set and are in the header.
    sent: BTreeSet<&'a str>,
    out: Vec<u8>,
    steps: &'a mut usize,
}

impl<'a> Encoder<'a> {
    fn put(&mut self, place: &str, bytes: &[u8]) -> Result<(), NotEncoded> {
        if self.out.len() + bytes.len() > LONGEST {
            let what = format!("{place}: the header has more than {LONGEST} bytes");
            return Err(wrong(place, what));
        }
        self.out.extend_from_slice(bytes);
        Ok(())
    }

    fn word(&mut self, place: &str, value: u32) -> Result<(), NotEncoded> {
        self.put(place, &value.to_be_bytes())
    }

    /// Returns what is set at a place, which is in the header.
    fn setting(&mut self, place: &str) -> Option<&'a Setting> {
        let (place, setting) = self.values.get_key_value(place)?;
        self.sent.insert(place);
        Some(setting)
    }

    fn number(&mut self, place: &str) -> u64 {
        match self.setting(place) {
            Some(Setting::Number(number)) => *number,
            _ => 0,
        }
    }

    fn node(&mut self, node: Node<'a>, place: &str, depth: usize) -> Result<(), NotEncoded> {
        let deeper = depth + 1;
        *self.steps = match self.steps.checked_sub(1).filter(|_| depth < DEEPEST) {
            Some(steps) => steps,
            None => {
                let what = format!("{place}: its types are too deep, or there are too many fields");
                return Err(wrong(place, what));
            }
        };
        if let Some(Setting::Raw(bytes)) = self.setting(place) {
            return self.put(place, bytes);
        }
        match node.form(self.vocabulary) {
            Form::Word => {
                // The setting was checked against the type.
                let number = self.number(place) as u32;
                self.word(place, number)
            }
            Form::Long => {
                let number = self.number(place);
                self.put(place, &number.to_be_bytes())
            }
            Form::Opaque => {
                let bytes = self.octets(place);
                self.word(place, bytes.len() as u32)?;
                self.padded(place, bytes)
            }
            Form::Fixed(length) => {
                let length = length as usize;
                let mut bytes = self.octets(place).to_vec();
                if length > LONGEST || bytes.len() > length {
                    return Err(wrong(place, format!("{place} has {length} bytes")));
                }
                bytes.resize(length, 0);
                self.padded(place, &bytes)
            }
            Form::Struct(fields) => self.fields(fields, place, deeper),
            Form::Union(tag, arms) => {
                let at = within(place, &tag.name);
                self.node(Node::Field(tag), &at, deeper)?;
                let number = self.number(&at);
                match arm(self.vocabulary, arms, number) {
                    Some(Some(field)) => {
                        self.node(Node::Field(field), &within(place, &field.name), deeper)
                    }
                    // A number that selects nothing has no fields.
                    Some(None) | None => Ok(()),
                }
            }
            Form::Array(of) => {
                let count = self.count(place);
                self.word(place, count)?;
                for index in 0..count {
                    self.node(Node::Element(of), &format!("{place}[{index}]"), deeper)?;
                }
                Ok(())
            }
            Form::List(fields) => {
                for index in 0..self.count(place) {
                    self.word(place, 1)?;
                    let place = format!("{place}[{index}]");
                    self.node(Node::Entry(fields), &place, deeper)?;
                }
                self.word(place, 0)
            }
            Form::Optional(of) => {
                let is_there = self.below(place).next().is_some();
                self.word(place, u32::from(is_there))?;
                match is_there {
                    true => self.node(Node::Element(of), place, deeper),
                    false => Ok(()),
                }
            }
        }
    }

    fn fields(
        &mut self,
        fields: &'a [Declaration],
        place: &str,
        depth: usize,
    ) -> Result<(), NotEncoded> {
        for field in fields {
            // The RPC message follows the header, and begins with this word.
            if field.name == FIRST_WORD {
                return Ok(());
            }
            self.node(Node::Field(field), &within(place, &field.name), depth)?;
        }
        Ok(())
    }

    fn octets(&mut self, place: &str) -> &'a [u8] {
        match self.setting(place) {
            Some(Setting::Octets(bytes)) => bytes,
            _ => &[],
        }
    }

    fn padded(&mut self, place: &str, bytes: &[u8]) -> Result<(), NotEncoded> {
        self.put(place, bytes)?;
        self.put(place, &[0; 3][..bytes.len().wrapping_neg() % 4])
    }

    /// Returns the places at or below this one that are set.
    fn below(&self, place: &str) -> impl Iterator<Item = &'a str> {
        let from = self.values.range(place.to_owned()..);
        let place = place.to_owned();
        let all = from.map_while(move |(it, _)| it.strip_prefix(&place));
        all.filter(|rest| rest.is_empty() || rest.starts_with(['.', '[']))
    }

    /// Returns the number of elements: one more than the greatest index that is set.
    fn count(&self, place: &str) -> u32 {
        let indices = self.below(place).filter_map(|rest| {
            let (index, _) = rest.strip_prefix('[')?.split_once(']')?;
            index.parse::<u32>().ok()
        });
        indices
            .max()
            .map_or(0, |greatest| greatest.saturating_add(1))
    }
}

fn wrong(place: &str, what: String) -> NotEncoded {
    NotEncoded {
        place: place.to_owned(),
        what,
    }
}

/// Returns the arm that a number selects, if there is one, with its field, if it has one.
pub(super) fn arm<'a>(
    vocabulary: &Vocabulary,
    arms: &'a [crate::xdr::Arm],
    number: u64,
) -> Option<Option<&'a Declaration>> {
    let is_it = |case: &String| vocabulary.all.constants.get(case) == Some(&number);
    let named = arms.iter().find(|(cases, _)| cases.iter().any(is_it));
    let default = || arms.iter().find(|(cases, _)| cases.is_empty());
    named.or_else(default).map(|(_, field)| field.as_ref())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dialect::Dialect;
    use crate::wire::v1::{self, segment};
    use crate::wire::wg;

    fn encoded(dialect: Dialect, name: &str, fields: &[(&str, u64)]) -> Vec<u8> {
        let vocabulary = Vocabulary::new(dialect).unwrap();
        let header = vocabulary.header(name).unwrap();
        let mut values = Values::new();
        for (place, number) in fields {
            values.insert((*place).to_owned(), Setting::Number(*number));
        }
        encode(&vocabulary, header, &values).unwrap()
    }

    /// The encoders of built-in cases are written from the figures, and share nothing with the XDR files.
    #[test]
    fn headers_by_the_files_are_those_by_the_figures() {
        let header = v1::Header {
            reads: vec![(40, segment(0x51, 8, 1 << 32))],
            writes: vec![vec![segment(1, 2, 3), segment(4, 5, 6)]],
            reply: Some(vec![segment(7, 8, 9)]),
            ..v1::header(0x77)
        };
        let target = |list: &str, [handle, length, offset]: [u64; 3]| {
            let at = |name: &str| format!("{list}.{name}");
            [
                (at("rdma_handle"), handle),
                (at("rdma_length"), length),
                (at("rdma_offset"), offset),
            ]
        };
        let chunks = |names: [&str; 3]| {
            let [reads, writes, reply] = names;
            let mut all = vec![(format!("{reads}[0].rdma_entry.rdma_position"), 40)];
            let entry = format!("{reads}[0].rdma_entry.rdma_target");
            all.extend(target(&entry, [0x51, 8, 1 << 32]));
            let entry = format!("{writes}[0].rdma_entry.rdma_target");
            all.extend(target(&format!("{entry}[0]"), [1, 2, 3]));
            all.extend(target(&format!("{entry}[1]"), [4, 5, 6]));
            all.extend(target(&format!("{reply}.rdma_target[0]"), [7, 8, 9]));
            all
        };
        let fixed = |version, credit, selector: &str, number| {
            [
                ("rdma_xid".to_owned(), 0x77),
                ("rdma_vers".to_owned(), version),
                ("rdma_credit".to_owned(), credit),
                (selector.to_owned(), number),
            ]
        };
        let check = |dialect, name, fields: Vec<(String, u64)>, expected: Vec<u8>| {
            let fields: Vec<(&str, u64)> =
                fields.iter().map(|(at, it)| (at.as_str(), *it)).collect();
            assert_eq!(encoded(dialect, name, &fields), expected, "{name}");
        };
        let lists = chunks(["rdma_reads", "rdma_writes", "rdma_reply"]);
        let all = [&fixed(1, 8, "rdma_proc", 0)[..], &lists].concat();
        check(Dialect::One, "RDMA_MSG", all, header.with(&[]));
        let lists = chunks([
            "rdma_reads",
            "rdma_provisional_writes",
            "rdma_provisional_reply",
        ]);
        let handle = [("rdma_inv_handle".to_owned(), 0x51)];
        let credit = u64::from(wg::CREDIT);
        let fixed = fixed(2, credit, "rdma_htype", 10);
        let all = [&fixed[..], &handle, &lists].concat();
        let expected = wg::call_with(&header, 0x51, &[]);
        check(Dialect::Wg, "RDMA2_CALL_INLINE", all, expected);
    }

    #[test]
    fn a_union_has_the_fields_of_its_arm() {
        let fields = [
            ("rdma_xid", 7),
            ("rdma_vers", 1),
            ("rdma_credit", 8),
            ("rdma_proc", 4),
            ("rdma_err", 1),
            ("rdma_vrange.rdma_vers_low", 3),
        ];
        let message = encoded(Dialect::One, "RDMA_ERROR", &fields);
        assert_eq!(message, v1::error(7, 1, &[1, 3, 0]));
    }

    #[test]
    fn a_field_that_is_set_and_not_sent_is_an_error_that_names_it() {
        let vocabulary = Vocabulary::new(Dialect::One).unwrap();
        let refused = |name: &str, settings: &[(&str, Setting)]| {
            let header = vocabulary.header(name).unwrap();
            let settings = settings.iter();
            let values = settings.map(|(place, it)| ((*place).to_owned(), it.clone()));
            encode(&vocabulary, header, &values.collect()).unwrap_err()
        };
        // ERR_CHUNK has no range of versions.
        let fields = [
            ("rdma_err", Setting::Number(2)),
            ("rdma_vrange.rdma_vers_low", Setting::Number(3)),
        ];
        let error = refused("RDMA_ERROR", &fields);
        assert_eq!(error.place, "rdma_vrange.rdma_vers_low");
        assert_eq!(
            error.to_string(),
            "rdma_vrange.rdma_vers_low is not sent: other fields select another arm of its union"
        );
        let fields = [
            ("rdma_reads", Setting::Raw(vec![0; 4])),
            ("rdma_reads[0].rdma_entry.rdma_position", Setting::Number(3)),
        ];
        let error = refused("RDMA_MSG", &fields);
        assert_eq!(
            error.what,
            "rdma_reads[0].rdma_entry.rdma_position is not sent: rdma_reads has other octets in its place"
        );
    }

    #[test]
    fn a_place_is_within_another_where_a_name_ends() {
        assert!(is_below("a.b", "a.b") && is_below("a.b.c", "a.b") && is_below("a.b[0]", "a.b"));
        assert!(!is_below("a.bc", "a.b") && !is_below("a", "a.b"));
    }
}
