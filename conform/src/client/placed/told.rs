//! Announcements of an end about placement (send-placement-00, 3).

use super::layout::{Element, Target, elements, has_target, octets, targets};
use crate::client::rules::{Findings, Rule};
use crate::wire::Reader;
use crate::wire::wg::{SMALLEST_RESULT, STRUCTURE, SUPPORT};

/// RDMA2_PLACE_CALLS.
const CALLS: u32 = 1;
/// RDMA2_RESMIN_NONE.
const NONE: u32 = u32::MAX;
/// The number and the default of SBSIZ and of RBSIZ.
const SBSIZ: u32 = 1;
const RBSIZ: u32 = 2;
const DEFAULT: u32 = 4096;

/// The properties of an end that placement depends on.
#[derive(Clone, Debug)]
pub(in crate::client) struct Told {
    /// The Maximum Send Size, octets.
    send: u32,
    /// The Receive Buffer Size, octets.
    receive: u32,
    structure: Option<Vec<Element>>,
    support: u32,
    /// The Smallest Placed Result.
    smallest: u32,
    /// The number of announcements of each property of the extension.
    times: [u32; 3],
    /// The first property of the extension whose value is none of its type.
    invalid: Option<u32>,
}

impl Told {
    /// Returns the properties of an end that has announced nothing.
    pub(in crate::client) fn nothing() -> Self {
        Self {
            send: DEFAULT,
            receive: DEFAULT,
            structure: None,
            support: 0,
            smallest: NONE,
            times: [0; 3],
            invalid: None,
        }
    }

    /// Takes the properties of a message.
    pub(in crate::client) fn take(&mut self, properties: &[(u32, Vec<u8>)]) {
        for (which, value) in properties {
            let word = Reader(value).word().filter(|_| value.len() == 4);
            match *which {
                SBSIZ => self.send = word.unwrap_or(DEFAULT),
                RBSIZ => self.receive = word.unwrap_or(DEFAULT),
                STRUCTURE => self.structure = elements(value),
                SUPPORT => self.support = word.unwrap_or(0),
                SMALLEST_RESULT => self.smallest = word.unwrap_or(NONE),
                _ => {}
            }
            let of_extension = [STRUCTURE, SUPPORT, SMALLEST_RESULT];
            if let Some(at) = of_extension.iter().position(|it| it == which) {
                self.times[at] = self.times[at].saturating_add(1);
                let is_valid = match *which {
                    // The default (3).
                    _ if value.is_empty() => true,
                    STRUCTURE => self.structure.is_some(),
                    _ => word.is_some(),
                };
                if !is_valid {
                    self.invalid.get_or_insert(*which);
                }
            }
        }
    }

    /// Looks at the properties of a client.
    pub(in crate::client) fn looked_at(&self, findings: &mut Findings) {
        if self.times == [0; 3] {
            return;
        }
        findings.look(
            Rule::PlacementOnce,
            self.times.iter().all(|it| *it <= 1),
            || "a property of placement is announced more than once".to_owned(),
        );
        findings.look(Rule::PlacementValues, self.invalid.is_none(), || {
            let which = self.invalid.unwrap_or_default();
            format!("the value of property {which:#x} is none of its type")
        });
        let size = u128::from(self.receive);
        if let Some(structure) = &self.structure {
            let octets = octets(structure);
            findings.look(Rule::StructureSize, octets == size, || {
                format!("segments of {octets} octets, and a Receive Buffer Size of {size}")
            });
        }
        if self.support & CALLS != 0 || self.smallest != NONE {
            let has_target = self.structure.as_deref().is_some_and(has_target);
            findings.look(Rule::StructureTarget, has_target, || {
                let (support, smallest) = (self.support, self.smallest);
                format!(
                    "support {support:#x} and a Smallest Placed Result of {smallest}, and no target"
                )
            });
        }
    }

    /// Returns whether the end has announced anything of the extension.
    pub(in crate::client) fn has_placement(&self) -> bool {
        self.times != [0; 3]
    }

    /// Returns whether the end has announced a structure of its receive buffers.
    pub(in crate::client) fn has_structure(&self) -> bool {
        self.structure.is_some()
    }

    /// Returns the longest message that the end sends, octets.
    pub(in crate::client) fn longest_sent(&self) -> usize {
        usize::try_from(self.send).unwrap_or(usize::MAX)
    }

    /// Returns the usable targets in each buffer of this end for messages of `sender`.
    pub(in crate::client) fn targets(&self, sender: &Self) -> Vec<Target> {
        let limit = usize::try_from(self.receive.min(sender.send)).unwrap_or(usize::MAX);
        let is_whole = |it: &&Vec<Element>| octets(it) == u128::from(self.receive);
        let structure = self.structure.as_ref().filter(is_whole);
        structure.map_or_else(Vec::new, |it| targets(it, limit))
    }

    /// Returns whether this end takes placed calls of `sender`.
    pub(in crate::client) fn takes_calls(&self, sender: &Self) -> bool {
        self.support & CALLS != 0 && !self.targets(sender).is_empty()
    }

    /// Returns whether a result of this length is to be placed.
    pub(in crate::client) fn wants_placed(&self, length: usize) -> bool {
        self.smallest != NONE && length > 0 && length as u64 >= u64::from(self.smallest)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::wg::{introduction, parse_properties, placing_properties, set};

    fn told(words: &[u32]) -> Told {
        let mut told = Told::nothing();
        told.take(&parse_properties(&introduction(words)).unwrap());
        told
    }

    fn broken(told: &Told) -> Vec<Rule> {
        let mut findings = Findings::default();
        told.looked_at(&mut findings);
        let rules = [
            Rule::PlacementOnce,
            Rule::PlacementValues,
            Rule::StructureSize,
            Rule::StructureTarget,
        ];
        let is_broken = |rule: &Rule| findings.broken(*rule).is_some();
        rules.into_iter().filter(is_broken).collect()
    }

    #[test]
    fn a_structure_is_as_long_as_the_receives_and_has_a_target() {
        let whole = told(&placing_properties());
        assert_eq!(broken(&whole), []);
        assert!(whole.takes_calls(&whole) && !whole.takes_calls(&Told::nothing()));
        assert!(whole.wants_placed(1024) && !whole.wants_placed(1023));
        let mut twice = whole.clone();
        twice.take(&[(SUPPORT, vec![0; 4])]);
        assert_eq!(broken(&twice), [Rule::PlacementOnce]);
        let mut other = whole.clone();
        other.take(&[(RBSIZ, vec![0, 0, 16, 0])]);
        assert_eq!(broken(&other), [Rule::StructureSize]);
        assert!(!other.takes_calls(&whole));
        let none = told(&set(&[(SMALLEST_RESULT, 0)]));
        assert_eq!(broken(&none), [Rule::StructureTarget]);
        assert!(!none.wants_placed(0) && none.wants_placed(1));
        assert_eq!(broken(&told(&set(&[(2, 64)]))), []);
    }

    #[test]
    fn a_value_that_is_none_of_its_property_is_found() {
        let word = vec![0; 4];
        let long = vec![0; 8];
        for (which, value, is_valid) in [
            (STRUCTURE, &word, true),
            (STRUCTURE, &long, false),
            (SUPPORT, &word, true),
            (SUPPORT, &long, false),
            (SMALLEST_RESULT, &long, false),
            (SMALLEST_RESULT, &Vec::new(), true),
            (STRUCTURE, &Vec::new(), true),
        ] {
            let mut told = Told::nothing();
            told.take(&[(which, value.clone())]);
            let is_found = broken(&told).contains(&Rule::PlacementValues);
            assert_eq!(is_found, !is_valid, "{which:#x} {value:?}");
        }
    }
}
