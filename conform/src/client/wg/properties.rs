//! Properties of both ends (version-two-07, 5).

use crate::client::rules::{Findings, Rule};
use crate::wire::Reader;
use crate::wire::wg::{INLINE, parse_properties};

/// The numbers of properties.
const RBSIZ: u32 = 2;
const RSSIZ: u32 = 3;
const RCSIZ: u32 = 4;
const BRS: u32 = 5;
const HOSTAUTH: u32 = 6;
/// The highest level of support for the reverse direction (version-two-07, 5.2.5).
const GENL: u32 = 3;

/// The sizes that an end has announced.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sizes {
    /// The longest message that it receives, bytes.
    pub(super) receive: usize,
    /// The longest segment, bytes.
    pub(super) segment: u32,
    /// The most segments in a header.
    pub(super) segments: usize,
}

impl Sizes {
    /// Returns the sizes of an end that has announced nothing. The text has no default for segments that a peer
    /// could break (version-two-07, 5.2).
    pub(super) fn defaults() -> Self {
        Self {
            receive: INLINE,
            segment: u32::MAX,
            segments: usize::MAX,
        }
    }

    /// Takes the properties of a message.
    pub(super) fn take(&mut self, properties: &[(u32, Vec<u8>)]) {
        let defaults = Self::defaults();
        for (which, value) in properties {
            let word = word(value);
            let size = |default: usize| match word {
                Some(word) => usize::try_from(word).unwrap_or(usize::MAX),
                None => default,
            };
            match *which {
                RBSIZ => self.receive = size(defaults.receive),
                RSSIZ => self.segment = word.unwrap_or(defaults.segment),
                RCSIZ => self.segments = size(defaults.segments),
                _ => {}
            }
        }
    }
}

/// Returns a value of one word.
fn word(value: &[u8]) -> Option<u32> {
    Reader(value).word().filter(|_| value.len() == 4)
}

/// Looks at the properties of a message. Returns them if they can be decoded.
pub(super) fn looked_at(findings: &mut Findings, message: &[u8]) -> Option<Vec<(u32, Vec<u8>)>> {
    let properties = parse_properties(message);
    findings.look(Rule::Header, properties.is_some(), || {
        "properties that cannot be decoded".to_owned()
    });
    let properties = properties?;
    for (which, value) in &properties {
        findings.look(Rule::Properties, is_valid(*which, value), || {
            let shown = &value[..value.len().min(16)];
            let length = value.len();
            format!("property {which} of {length} bytes: {shown:02x?}")
        });
    }
    Some(properties)
}

/// Returns whether a value is one of its property. An empty one is the default (version-two-07, 5.1).
fn is_valid(which: u32, value: &[u8]) -> bool {
    match which {
        _ if value.is_empty() => true,
        1..BRS => value.len() == 4,
        BRS => word(value).is_some_and(|level| level <= GENL),
        HOSTAUTH => {
            let mut from = Reader(value);
            let length = from.word().map(|it| it as usize);
            length.is_some_and(|it| it.checked_next_multiple_of(4) == Some(from.0.len()))
        }
        _ => true,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::wg;

    #[test]
    fn a_value_has_the_type_of_its_property() {
        for which in 1..=4 {
            assert!(is_valid(which, &[0; 4]) && is_valid(which, &[]));
            assert!(!is_valid(which, &[0; 3]) && !is_valid(which, &[0; 8]));
        }
        assert!(is_valid(5, &[0, 0, 0, 3]) && !is_valid(5, &[0, 0, 0, 4]));
        assert!(is_valid(6, &[0, 0, 0, 1, b'a', 0, 0, 0]) && !is_valid(6, b"host"));
        assert!(!is_valid(6, &[0xff; 8]));
        assert!(is_valid(7, &[1; 7]));
    }

    #[test]
    fn sizes_are_those_announced_last() {
        let mut sizes = Sizes::defaults();
        let announced = wg::introduction(&wg::set(&[(2, 1024), (3, 4096), (4, 1)]));
        sizes.take(&parse_properties(&announced).unwrap());
        assert_eq!(
            (sizes.receive, sizes.segment, sizes.segments),
            (1024, 4096, 1)
        );
        let empty = wg::introduction(&[1, 2, 0]);
        sizes.take(&parse_properties(&empty).unwrap());
        assert_eq!((sizes.receive, sizes.segments), (4096, 1));
    }
}
