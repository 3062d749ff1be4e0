//! Words of a header, each with what its type says of it, and the values that a case tries in its place.

use super::Node;
use crate::vocabulary::Vocabulary;
use crate::xdr::{Body, Type};

/// The meaning of a word by its type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind<'a> {
    /// A number of 32 bits, or the lower half of one of 64 bits.
    Number,
    /// The upper half of a number of 64 bits.
    Upper,
    /// FALSE or TRUE.
    Truth,
    /// One of these values of an enumeration, with their names.
    Choice(&'a [(String, u32)]),
    /// The number of an array's elements.
    Count,
    /// Whether optional data, or an element of a linked list, follows: 0 or 1.
    Follows,
    /// The length of opaque data, bytes.
    Length,
}

/// A word of a header.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Word<'a> {
    /// The whole name of its place. The upper half of a number of 64 bits is a part of it, `upper`; the word that says
    /// whether an element of a linked list follows has the name of that element.
    pub place: String,
    /// The position in the message, bytes.
    pub at: usize,
    /// The value.
    pub value: u32,
    /// The meaning.
    pub kind: Kind<'a>,
}

impl Word<'_> {
    /// Returns the name without the structures around it.
    #[must_use]
    pub fn field(&self) -> &str {
        self.place.rsplit('.').next().unwrap_or_default()
    }

    /// Returns whether a name means this word. Structures on the way may be left out, as in
    /// `rdma_reads[0].rdma_handle`.
    #[must_use]
    pub fn is_called(&self, name: &str) -> bool {
        let mut inner = name.rsplit('.');
        if inner.next() != Some(self.field()) {
            return false;
        }
        let mut outer = self.place.rsplit('.').skip(1);
        inner.all(|wanted| outer.any(|part| part == wanted))
    }

    /// Returns the values that a case tries in its place: those at the ends of its type, those beside the one that it
    /// has, and those that its type does not have. They are in increasing order.
    #[must_use]
    pub fn others(&self) -> Vec<u32> {
        let beside = |step: u32| {
            let both = [self.value.checked_sub(step), self.value.checked_add(step)];
            both.into_iter().flatten()
        };
        let mut all: Vec<u32> = match self.kind {
            Kind::Number | Kind::Length => beside(1).chain(beside(4)).chain([1]).collect(),
            Kind::Upper => Vec::new(),
            Kind::Truth | Kind::Follows => vec![1, 2],
            Kind::Count => beside(1).collect(),
            Kind::Choice(values) => {
                let numbers = values.iter().map(|(_, number)| *number);
                let behind = numbers.clone().max().and_then(|last| last.checked_add(1));
                numbers.chain(behind).collect()
            }
        };
        all.extend([0, u32::MAX]);
        all.retain(|value| *value != self.value);
        all.sort_unstable();
        all.dedup();
        all
    }
}

/// Fields by their names, with values that are tried besides those of their types, because of the limits of the end
/// under test.
pub type Limits<'a> = &'a [(&'a str, &'a [u32])];

/// Returns each of these words with each value that is tried in its place: those of its type ([`Word::others`]), and
/// those of the limits, in increasing order.
///
/// # Errors
/// A limit has this name, which no word has.
pub fn changes<'w, 'x, 'n>(
    words: &'w [Word<'x>],
    limits: Limits<'n>,
) -> Result<Vec<(&'w Word<'x>, u32)>, &'n str> {
    let is_unknown = |name: &str| !words.iter().any(|word| word.is_called(name));
    if let Some((name, _)) = limits.iter().find(|(name, _)| is_unknown(name)) {
        return Err(name);
    }
    let values = |word: &Word<'_>| {
        let mut all = word.others();
        let own = limits.iter().filter(|(name, _)| word.is_called(name));
        all.extend(own.flat_map(|(_, values)| *values));
        all.retain(|value| *value != word.value);
        all.sort_unstable();
        all.dedup();
        all
    };
    let pairs = |word: &'w Word<'x>| values(word).into_iter().map(move |value| (word, value));
    Ok(words.iter().flat_map(pairs).collect())
}

/// Returns the meaning of a number of 32 bits.
pub(super) fn kind<'a>(vocabulary: &'a Vocabulary, node: Node<'a>) -> Kind<'a> {
    let mut of = match node {
        Node::Field(field) => &field.of,
        Node::Element(of) => of,
        Node::Word | Node::Entry(_) => return Kind::Number,
    };
    loop {
        match of {
            Type::Bool => return Kind::Truth,
            Type::Named(name) => match vocabulary.all.body(name) {
                // A type is defined before it is used, so that this ends.
                Some(Body::Typedef(other)) => of = &other.of,
                Some(Body::Enum(values)) => return Kind::Choice(values),
                _ => return Kind::Number,
            },
            _ => return Kind::Number,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::{words, words_of};
    use super::*;
    use crate::dialect::Dialect;
    use crate::wire::wg;

    fn number(place: &str, value: u32, kind: Kind<'static>) -> Word<'static> {
        Word {
            place: place.to_owned(),
            at: 0,
            value,
            kind,
        }
    }

    #[test]
    fn each_kind_has_the_values_at_its_ends_and_beside_the_right_one() {
        let top = u32::MAX;
        let others = |value, kind| number("a", value, kind).others();
        assert_eq!(others(0, Kind::Number), [1, 4, top]);
        assert_eq!(others(44, Kind::Number), [0, 1, 40, 43, 45, 48, top]);
        assert_eq!(others(top, Kind::Number), [0, 1, top - 4, top - 1]);
        assert_eq!(others(5, Kind::Length), [0, 1, 4, 6, 9, top]);
        assert_eq!(others(7, Kind::Upper), [0, top]);
        assert_eq!(others(1, Kind::Truth), [0, 2, top]);
        assert_eq!(others(0, Kind::Follows), [1, 2, top]);
        assert_eq!(others(1, Kind::Count), [0, 2, top]);
        let values = [("a".to_owned(), 1), ("b".to_owned(), 3)];
        let choice = Word {
            place: String::new(),
            at: 0,
            value: 3,
            kind: Kind::Choice(&values),
        };
        assert_eq!(choice.others(), [0, 1, 4, top]);
    }

    #[test]
    fn limits_add_values_and_never_the_right_one() {
        let words = [
            number("a[0].b", 44, Kind::Upper),
            number("a[1].b", 3, Kind::Upper),
        ];
        let top = u32::MAX;
        let values = |limits: Limits<'_>| -> Vec<(usize, u32)> {
            let all = changes(&words, limits).unwrap().into_iter();
            let place = |word: &Word<'_>| words.iter().position(|other| other == word).unwrap();
            all.map(|(word, value)| (place(word), value)).collect()
        };
        assert_eq!(values(&[]), [(0, 0), (0, top), (1, 0), (1, top)]);
        assert_eq!(
            values(&[("a[0].b", &[7, 44, 0])]),
            [(0, 0), (0, 7), (0, top), (1, 0), (1, top)]
        );
        assert_eq!(
            values(&[("b", &[3])]),
            [(0, 0), (0, 3), (0, top), (1, 0), (1, top)]
        );
        assert_eq!(changes(&words, &[("b", &[]), ("c", &[1])]), Err("c"));
    }

    #[test]
    fn a_name_may_leave_out_what_is_around_a_field() {
        let word = number("reads[0].entry.target.handle", 0, Kind::Number);
        for name in ["handle", "reads[0].handle", "entry.handle", &word.place] {
            assert!(word.is_called(name), "{name}");
        }
        for name in [
            "target",
            "reads[1].handle",
            "target.entry.handle",
            "andle",
            "",
        ] {
            assert!(!word.is_called(name), "{name}");
        }
    }

    /// The words of a call with a read chunk are all of its header, in their order, and a field that a file gains does
    /// not change the names of the others.
    #[test]
    fn words_are_those_of_the_message_by_names_that_last() {
        let fields = [0, 1, 40, 0x51, 8, 1, 2, 0, 0, 0];
        let message = wg::message(7, wg::CALL_INLINE, &fields, &[0, 0, 0, 7, 9]);
        let mut vocabulary = Vocabulary::new(Dialect::Wg).unwrap();
        let header = vocabulary.header("RDMA2_CALL_INLINE").unwrap();
        let all = words(&vocabulary, header, &message).unwrap();
        assert_eq!(all.len(), 4 + fields.len());
        assert!(all.iter().enumerate().all(|(n, word)| word.at == 4 * n));
        let values: Vec<u32> = all[4..].iter().map(|word| word.value).collect();
        assert_eq!(values, fields);
        let names: Vec<&str> = all[5..].iter().map(|word| word.place.as_str()).collect();
        let target = "rdma_reads[0].rdma_entry.rdma_target";
        assert_eq!(
            names,
            [
                "rdma_reads[0]",
                "rdma_reads[0].rdma_entry.rdma_position",
                &format!("{target}.rdma_handle"),
                &format!("{target}.rdma_length"),
                &format!("{target}.rdma_offset.upper"),
                &format!("{target}.rdma_offset"),
                "rdma_reads[1]",
                "rdma_provisional_writes[0]",
                "rdma_provisional_reply",
            ]
        );
        assert_eq!((all[5].kind, all[9].kind), (Kind::Follows, Kind::Upper));
        assert!(words(&vocabulary, header, &message[..55]).is_err());
        let names: Vec<String> = names.into_iter().map(str::to_owned).collect();
        // The draft's next revision begins the header with another field.
        let gained = "struct rpcrdma2_hdr_call_later { uint32 rdma_gained; rpcrdma2_hdr_call_inline rdma_rest; };
            const RDMA2_CALL_LATER = 99;";
        vocabulary.add(gained).unwrap();
        let header = vocabulary.header("RDMA2_CALL_LATER").unwrap();
        let later = wg::message(7, 99, &[&[3][..], &fields].concat(), &[]);
        let later = words(&vocabulary, header, &later).unwrap();
        for name in names {
            assert_eq!(later.iter().filter(|word| word.is_called(&name)).count(), 1);
        }
    }

    #[test]
    fn information_of_an_operation_has_words_with_their_enumerations() {
        let vocabulary = Vocabulary::new(Dialect::Two).unwrap();
        let info = crate::wire::v2::bytes(&[1, 44, 8, 2, 0, 1, 0, 1, 44]);
        let all = words_of(&vocabulary, "optxmt_resp", &info).unwrap();
        assert_eq!(all.len(), 9);
        assert_eq!(
            (all[0].place.as_str(), all[0].kind),
            ("optxrs_ddp", Kind::Count)
        );
        assert!(all[3].is_called("xmdl_type"));
        assert!(matches!(all[3].kind, Kind::Choice(values) if values.len() == 6));
        assert_eq!(all[3].others(), [0, 1, 3, 4, 5, 6, 7, u32::MAX]);
        assert!(words_of(&vocabulary, "optxmt_none", &info).is_err());
    }
}
