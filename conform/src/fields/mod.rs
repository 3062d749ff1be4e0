//! Places in headers, by the names of their fields.
//!
//! A place is written `rdma_reads[0].rdma_entry.rdma_target.rdma_handle`. Structures on the way may be left out where
//! the rest is clear: `rdma_reads[0].rdma_handle`. A linked list is an array of its elements.

mod decode;
mod encode;
mod word;

use crate::vocabulary::{FIXED, HeaderType, Vocabulary};
use crate::xdr::{Arm, Body, Declaration, Shape, Type};

pub use decode::{Decoded, Leaf, decode, words, words_of};
pub use encode::{NotEncoded, Setting, Values, encode};
pub(crate) use encode::{encode_within, is_below};
pub use word::{Kind, Limits, Word, changes};

/// The field that stands for the beginning of the RPC message, which follows the header.
const FIRST_WORD: &str = "rdma_rpc_first_word";
/// The longest message, bytes.
const LONGEST: usize = 1 << 20;
/// The most elements of a list whose fields are set.
const MOST_ELEMENTS: usize = 4096;
/// The most structures within each other.
const DEEPEST: usize = 32;
/// The most steps of an encoding or a decoding, and of a search. Each field takes one at least.
const MOST_STEPS: usize = 1 << 18;
const MOST_SEARCHED: usize = 1 << 14;

/// A field, or a part of one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Node<'a> {
    /// A number of 32 bits.
    Word,
    /// A field.
    Field(&'a Declaration),
    /// An element of an array, or optional data that is there.
    Element(&'a Type),
    /// An element of a linked list, with its fields.
    Entry(&'a [Declaration]),
}

/// The form of a field, without the typedefs that lead to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Form<'a> {
    /// A number of 32 bits.
    Word,
    /// A number of 64 bits.
    Long,
    /// Bytes, with their number.
    Opaque,
    /// Bytes, of this number.
    Fixed(u32),
    /// A structure, with its fields.
    Struct(&'a [Declaration]),
    /// A union: the field that selects an arm, and the arms.
    Union(&'a Declaration, &'a [Arm]),
    /// Any number of these, with their count in front.
    Array(&'a Type),
    /// A linked list of structures with these fields.
    List(&'a [Declaration]),
    /// One of this type, or none.
    Optional(&'a Type),
}

impl<'a> Node<'a> {
    pub(crate) fn form(self, vocabulary: &'a Vocabulary) -> Form<'a> {
        let (mut of, mut shape) = match self {
            Self::Word => return Form::Word,
            Self::Entry(fields) => return Form::Struct(fields),
            Self::Field(field) => (&field.of, field.shape),
            Self::Element(of) => (of, Shape::One),
        };
        loop {
            match (shape, of) {
                (Shape::Optional, Type::Named(name)) => {
                    return match vocabulary.all.linked(name) {
                        Some((fields, _)) => Form::List(fields),
                        None => Form::Optional(of),
                    };
                }
                (Shape::Optional, _) => return Form::Optional(of),
                (Shape::Array | Shape::One, Type::Opaque) => return Form::Opaque,
                (Shape::Array, _) => return Form::Array(of),
                (Shape::Fixed(length), _) => return Form::Fixed(length),
                (Shape::One, Type::UnsignedHyper) => return Form::Long,
                (Shape::One, Type::UnsignedInt | Type::Bool) => return Form::Word,
                (Shape::One, Type::Named(name)) => match vocabulary.all.body(name) {
                    // A type is defined before it is used, so that this ends.
                    Some(Body::Typedef(other)) => (of, shape) = (&other.of, other.shape),
                    Some(Body::Struct(fields)) => return Form::Struct(fields),
                    Some(Body::Union(tag, arms)) => return Form::Union(tag, arms),
                    Some(Body::Enum(_)) | None => return Form::Word,
                },
            }
        }
    }

    /// Returns the fields in it, by their names.
    pub(crate) fn members(self, vocabulary: &'a Vocabulary) -> Vec<(&'a str, Self)> {
        let named = |field: &'a Declaration| (field.name.as_str(), Self::Field(field));
        match self.form(vocabulary) {
            Form::Struct(fields) => fields.iter().map(named).collect(),
            Form::Union(tag, arms) => {
                let fields = arms.iter().filter_map(|(_, field)| field.as_ref());
                std::iter::once(tag).chain(fields).map(named).collect()
            }
            Form::Optional(of) => Self::Element(of).members(vocabulary),
            _ => Vec::new(),
        }
    }

    /// Returns whether its fields can be named without it.
    fn is_transparent(self, vocabulary: &'a Vocabulary) -> bool {
        matches!(self.form(vocabulary), Form::Struct(_) | Form::Union(..))
    }
}

/// A place that a header type has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Place<'a> {
    /// The whole name.
    pub(crate) name: String,
    /// The field.
    pub(crate) node: Node<'a>,
}

/// Text that names no place: what is wrong, and what to write instead.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct NoPlace {
    pub(crate) what: String,
    pub(crate) instead: String,
}

/// Returns a place within another.
pub(crate) fn within(place: &str, name: &str) -> String {
    match place {
        "" => name.to_owned(),
        place => format!("{place}.{name}"),
    }
}

/// Returns the name of the fields of a header type as a whole. Where they are a structure or a union, these are named
/// alone: the name of the arm says nothing more than the header type.
fn body_name<'a>(vocabulary: &'a Vocabulary, fields: &'a Declaration) -> &'a str {
    match Node::Field(fields).is_transparent(vocabulary) {
        true => "",
        false => &fields.name,
    }
}

/// Returns the fields of a whole header, by their names.
fn top<'a>(vocabulary: &'a Vocabulary, header: &'a HeaderType) -> Vec<(&'a str, Node<'a>)> {
    let fixed = FIXED.into_iter().chain([vocabulary.selector()]);
    let mut all: Vec<(&str, Node<'_>)> = fixed.map(|name| (name, Node::Word)).collect();
    if let Some(fields) = &header.fields {
        match body_name(vocabulary, fields) {
            "" => all.extend(Node::Field(fields).members(vocabulary)),
            name => all.push((name, Node::Field(fields))),
        }
    }
    all
}

/// Finds the place that a text names.
pub(crate) fn find<'a>(
    vocabulary: &'a Vocabulary,
    header: &'a HeaderType,
    text: &str,
) -> Result<Place<'a>, NoPlace> {
    let mut members = top(vocabulary, header);
    let mut place = Place {
        name: String::new(),
        node: Node::Word,
    };
    for part in text.split('.') {
        let (name, index) = indexed(part)?;
        // The RPC message is set by itself.
        let known = name != FIRST_WORD;
        let found = known.then(|| search(vocabulary, &members, name)).flatten();
        let Some((inner, node)) = found else {
            let mut known: Vec<&str> = members.iter().map(|(name, _)| *name).collect();
            known.retain(|it| !it.is_empty() && *it != FIRST_WORD);
            return Err(NoPlace {
                what: format!("{} has no field {part} here", header.name),
                instead: match known.is_empty() {
                    true => "the field before it alone".into(),
                    false => format!("one of {}", known.join(", ")),
                },
            });
        };
        place.name = within(&place.name, &inner);
        place.node = node;
        if let Some(index) = index {
            place.name = format!("{}[{index}]", place.name);
            place.node = match node.form(vocabulary) {
                Form::Array(of) => Node::Element(of),
                Form::List(fields) => Node::Entry(fields),
                _ => {
                    return Err(NoPlace {
                        what: format!("{name} is no list"),
                        instead: format!("{name} without [{index}]"),
                    });
                }
            };
        }
        members = place.node.members(vocabulary);
    }
    Ok(place)
}

/// Splits `name[index]`.
fn indexed(part: &str) -> Result<(&str, Option<usize>), NoPlace> {
    let Some((name, rest)) = part.split_once('[') else {
        return Ok((part, None));
    };
    let index = rest.strip_suffix(']').and_then(|it| it.parse().ok());
    match index.filter(|it| *it < MOST_ELEMENTS) {
        Some(index) => Ok((name, Some(index))),
        None => Err(NoPlace {
            what: format!("{part} names no element of a list"),
            instead: format!("{name}[0] to {name}[{}]", MOST_ELEMENTS - 1),
        }),
    }
}

/// Finds a field by its name among these, and then in the structures and unions among these, level by level.
fn search<'a>(
    vocabulary: &'a Vocabulary,
    members: &[(&'a str, Node<'a>)],
    name: &str,
) -> Option<(String, Node<'a>)> {
    let mut steps = MOST_SEARCHED;
    let mut level: Vec<(String, Node<'a>)> = members
        .iter()
        .map(|(name, node)| ((*name).to_owned(), *node))
        .collect();
    for _ in 0..DEEPEST {
        let last = |place: &str| place.rsplit('.').next() == Some(name);
        if let Some(found) = level.iter().find(|(place, _)| last(place)) {
            return Some(found.clone());
        }
        let mut next = Vec::new();
        for (place, node) in level {
            if !node.is_transparent(vocabulary) {
                continue;
            }
            for (name, inner) in node.members(vocabulary) {
                steps = steps.checked_sub(1)?;
                next.push((within(&place, name), inner));
            }
        }
        level = next;
    }
    None
}

/// Returns the shortest text that names a place.
pub(crate) fn shortest(vocabulary: &Vocabulary, header: &HeaderType, place: &str) -> String {
    let mut parts: Vec<&str> = place.split('.').collect();
    let mut at = 0;
    while at + 1 < parts.len() {
        let without: Vec<&str> = [&parts[..at], &parts[at + 1..]].concat();
        let found = find(vocabulary, header, &without.join("."));
        // An element must be named: another one has the same fields.
        match !parts[at].contains('[') && found.is_ok_and(|it| it.name == place) {
            true => parts = without,
            false => at += 1,
        }
    }
    parts.join(".")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dialect::Dialect;

    #[test]
    fn structures_on_the_way_may_be_left_out() {
        let vocabulary = Vocabulary::new(Dialect::Wg).unwrap();
        let header = vocabulary.header("RDMA2_CALL_INLINE").unwrap();
        let name = |text| find(&vocabulary, header, text).map(|it| it.name);
        let whole = "rdma_reads[0].rdma_entry.rdma_target.rdma_handle";
        assert_eq!(name("rdma_reads[0].rdma_handle").unwrap(), whole);
        assert_eq!(name(whole).unwrap(), whole);
        assert_eq!(
            shortest(&vocabulary, header, whole),
            "rdma_reads[0].rdma_handle"
        );
        let reply = "rdma_provisional_reply.rdma_target[2].rdma_length";
        assert_eq!(name(reply).unwrap(), reply);
        assert_eq!(shortest(&vocabulary, header, reply), reply);
        let error = vocabulary.header("RDMA2_ERROR").unwrap();
        let low = find(&vocabulary, error, "rdma_vers_low").unwrap();
        assert_eq!(low.name, "rdma_vrange.rdma_vers_low");
    }

    #[test]
    fn what_is_no_place_is_said_with_what_there_is() {
        let vocabulary = Vocabulary::new(Dialect::One).unwrap();
        let header = vocabulary.header("RDMA_MSG").unwrap();
        let error = |text| find(&vocabulary, header, text).unwrap_err();
        assert_eq!(
            error("rdma_raeds").what,
            "RDMA_MSG has no field rdma_raeds here"
        );
        assert_eq!(
            error("rdma_raeds").instead,
            "one of rdma_xid, rdma_vers, rdma_credit, rdma_proc, rdma_reads, rdma_writes, rdma_reply"
        );
        assert_eq!(error("rdma_xid[0]").what, "rdma_xid is no list");
        for text in [
            "",
            ".",
            "rdma_reads[",
            "rdma_reads[-1]",
            "rdma_reads[99999]",
            "rdma_xid.x",
        ] {
            error(text);
        }
    }

    /// Each structure has two of the one before it: a search that followed all of them would not end.
    #[test]
    fn types_that_double_take_no_time() {
        let mut text = "const RDMA2_BOMB = 99; struct s0 { };".to_owned();
        for n in 0..60 {
            text += &format!("struct s{} {{ s{n} a; s{n} b; }};", n + 1);
        }
        text += "struct rpcrdma2_hdr_bomb { s60 rdma_bomb; };";
        let mut vocabulary = Vocabulary::new(Dialect::Wg).unwrap();
        vocabulary.add(&text).unwrap();
        let header = vocabulary.header("RDMA2_BOMB").unwrap();
        assert!(find(&vocabulary, header, "nothing").is_err());
        assert!(encode(&vocabulary, header, &Values::default()).is_err());
        let message = [0, 0, 0, 1, 0, 0, 0, 2, 0, 0, 0, 1, 0, 0, 0, 99];
        assert!(decode(&vocabulary, header, &message).is_err());
    }
}
