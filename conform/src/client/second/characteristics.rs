//! The characteristics of an end (xcharext-02, 2 and 3; rtrext-00, 8).

use crate::client::placed::{Element, Target, targets};
use crate::client::rules::{Findings, Rule};

/// XCHAR_RBSIZ, XCHAR_REQREMINV, XCHAR_BRS, XCHAR_RTRSUPP, XCHAR_RBSTRUCT, XCHAR_REQRXLIM, XCHAR_RESPSXLIM.
const RBSIZ: u32 = 1;
const REQREMINV: u32 = 2;
const BRS: u32 = 3;
const RTRSUPP: u32 = 4;
const RBSTRUCT: u32 = 5;
const REQRXLIM: u32 = 6;
const RESPSXLIM: u32 = 7;
/// RTRS_XREQ.
const XREQ: u32 = 1;
/// The size of receives of an end that has not told it, bytes.
const DEFAULT: u32 = 4096;
/// The longest message that this server makes for a target, bytes.
const LONGEST: usize = 1 << 20;

/// The characteristics that an end has told.
#[derive(Clone, Debug)]
pub(in crate::client) struct Characteristics {
    /// The size of its receives, bytes.
    pub(in crate::client) receive: u32,
    support: Option<u32>,
    structure: Vec<Element>,
    /// The most transmissions of a call that it takes.
    pub(in crate::client) most: u32,
}

/// Removes the first of some words, and returns it.
fn word(from: &mut &[u32]) -> Option<u32> {
    let (first, rest) = from.split_first()?;
    *from = rest;
    Some(*first)
}

impl Characteristics {
    /// Returns those of an end that has told nothing.
    pub(in crate::client) fn nothing() -> Self {
        Self {
            receive: DEFAULT,
            support: None,
            structure: Vec::new(),
            most: 1,
        }
    }

    /// Takes the words of ROPT_INITXCH, and returns whether they can be decoded. Values that are not of their types are
    /// looked at.
    pub(in crate::client) fn take(&mut self, findings: &mut Findings, info: &[u32]) -> bool {
        let decoded = self.taken(findings, info);
        findings.look(Rule::Header, decoded.is_some(), || {
            "ROPT_INITXCH that cannot be decoded".to_owned()
        });
        decoded.is_some()
    }

    fn taken(&mut self, findings: &mut Findings, mut info: &[u32]) -> Option<()> {
        let mut has_size = false;
        for _ in 0..word(&mut info)? {
            let (which, length) = (word(&mut info)?, word(&mut info)?);
            let words = usize::try_from(length.div_ceil(4)).ok()?;
            let (value, rest) = info.split_at_checked(words)?;
            info = rest;
            findings.look(
                Rule::Characteristics,
                is_valid(which, length, value),
                || format!("characteristic {which} of {length} bytes: {value:x?}"),
            );
            match (which, value) {
                (RBSIZ, [size]) => {
                    self.receive = *size;
                    has_size = true;
                }
                (RTRSUPP, [bits]) => self.support = Some(*bits),
                (REQRXLIM, [most]) => self.most = *most,
                (RBSTRUCT, [length, _, groups @ ..]) => {
                    if !has_size {
                        self.receive = *length;
                    }
                    let (elements, _) = groups.as_chunks::<4>();
                    self.structure = elements.to_vec();
                }
                _ => {}
            }
        }
        let subset = word(&mut info)?;
        (info.len() == usize::try_from(subset).ok()?).then_some(())
    }

    /// Returns whether the end has told anything of rtrext-00.
    pub(in crate::client) fn knows_transmissions(&self) -> bool {
        self.support.is_some()
    }

    /// Returns whether the end takes calls by ROPT_XMTREQ.
    pub(in crate::client) fn takes_requests(&self) -> bool {
        self.support.is_some_and(|it| it & XREQ != 0)
    }

    /// Returns the targets of each of its receives. Those behind the longest message of this server are left out.
    pub(in crate::client) fn targets(&self) -> Vec<Target> {
        let limit = usize::try_from(self.receive).unwrap_or(usize::MAX);
        targets(&self.structure, limit.min(LONGEST))
    }
}

/// Returns whether a value is one of its characteristic. Others are not known.
fn is_valid(which: u32, length: u32, value: &[u32]) -> bool {
    match (which, value) {
        (RBSIZ | RTRSUPP | REQRXLIM | RESPSXLIM, [_]) => length == 4,
        (REQREMINV, [word]) => length == 4 && *word <= 1,
        (BRS, [word]) => length == 4 && *word <= 2,
        (RBSTRUCT, [_, count, groups @ ..]) => {
            groups.len() as u64 == 4 * u64::from(*count)
                && u64::from(length) == 4 * value.len() as u64
        }
        (RBSIZ..=RESPSXLIM, _) => false,
        _ => true,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::v2::{HEAD, TARGET, everything};

    fn told(info: &[u32]) -> (Characteristics, bool, bool) {
        let (mut told, mut findings) = (Characteristics::nothing(), Findings::default());
        let is_decoded = told.take(&mut findings, info);
        let is_valid = findings.broken(Rule::Characteristics).is_none();
        (told, is_decoded, is_valid)
    }

    #[test]
    fn what_an_end_tells_is_decoded() {
        let (all, is_decoded, is_valid) = told(&everything());
        assert!(is_decoded && is_valid);
        let target = Target {
            start: HEAD,
            length: TARGET,
        };
        assert_eq!((all.targets(), all.most), (vec![target], 16));
        assert!(all.takes_requests());
        assert!(!Characteristics::nothing().knows_transmissions());
        assert!(matches!(told(&[0, 0]), (_, true, true)));
        for wrong in [&[][..], &[1, 1, 4], &[0], &[0, 1], &[1, 1, u32::MAX, 0]] {
            assert!(!told(wrong).1, "{wrong:?}");
        }
        for invalid in [
            &[1, 1, 8, 0, 0, 0][..],
            &[1, 2, 4, 2, 0],
            &[1, 3, 4, 3, 0],
            &[1, 5, 8, 4096, 1, 0],
        ] {
            assert!(!told(invalid).2, "{invalid:?}");
        }
        assert!(matches!(told(&[1, 99, 4, 1, 0]), (_, true, true)));
    }
}
