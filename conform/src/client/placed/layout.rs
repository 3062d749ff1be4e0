//! Receive buffers of segments, and their targets (send-placement-00, 3.1 and 5.1).

use crate::wire::Reader;

/// RDMA2_RBUF_TARGET.
const TARGET: u32 = 1;
/// The most targets of a buffer that are kept.
const MOST: usize = 4096;

/// An element of a structure: `rdma_count`, `rdma_length`, `rdma_align`, `rdma_flags`.
pub(in crate::client) type Element = [u32; 4];

/// A usable target: its first octet in the buffer, and its length, octets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::client) struct Target {
    pub(in crate::client) start: usize,
    pub(in crate::client) length: usize,
}

/// Decodes the value of RDMA2_PROPID_RBSTRUCT. Returns `None` if it cannot be decoded.
pub(super) fn elements(value: &[u8]) -> Option<Vec<Element>> {
    let mut from = Reader(value);
    let count = from.word()?;
    let element =
        |from: &mut Reader<'_>| Some([from.word()?, from.word()?, from.word()?, from.word()?]);
    let elements: Option<Vec<_>> = (0..count).map(|_| element(&mut from)).collect();
    elements.filter(|_| from.0.is_empty())
}

/// Returns the octets of all segments.
pub(super) fn octets(elements: &[Element]) -> u128 {
    let product = |it: &Element| u128::from(it[0]) * u128::from(it[1]);
    elements.iter().map(product).sum()
}

/// Returns whether a structure has a target that is not empty.
pub(super) fn has_target(elements: &[Element]) -> bool {
    let is_target = |it: &Element| it[0] > 0 && it[1] > 0 && it[3] & TARGET != 0;
    elements.iter().any(is_target)
}

/// Returns the usable targets of a buffer within its first `limit` octets.
pub(in crate::client) fn targets(elements: &[Element], limit: usize) -> Vec<Target> {
    let mut targets = Vec::new();
    let mut start = 0_usize;
    for &[count, length, _, flags] in elements.iter().filter(|it| it[1] > 0) {
        let length = length as usize;
        for _ in 0..count {
            let Some(end) = start.checked_add(length).filter(|end| *end <= limit) else {
                return targets;
            };
            if flags & TARGET != 0 {
                targets.push(Target { start, length });
            }
            if targets.len() >= MOST {
                return targets;
            }
            start = end;
        }
    }
    targets
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::v2;

    #[test]
    fn targets_are_usable_within_the_limit() {
        let structure = [[1, 1024, 1, 0], [16, 4096, 4096, 1]];
        assert_eq!(octets(&structure), 66_560);
        assert_eq!(targets(&structure, 66_560).len(), 16);
        // The example of send-placement-00, 5.6.
        let some = targets(&structure, 40_000);
        assert_eq!(some.len(), 9);
        let first = Target {
            start: 1024,
            length: 4096,
        };
        assert_eq!(some[0], first);
        assert_eq!(targets(&structure, 5119), []);
        let endless = [[u32::MAX, 0, 0, 1], [u32::MAX, u32::MAX, 0, 1]];
        assert_eq!(targets(&endless, 1 << 20), []);
        assert!(has_target(&endless) && !has_target(&endless[..1]));
        assert!(octets(&endless) > u128::from(u64::MAX) / 2);
    }

    #[test]
    fn a_structure_is_decoded_whole() {
        let words = [2, 1, 1024, 1, 0, 1, 65_536, 4096, 1];
        let expected = vec![[1, 1024, 1, 0], [1, 65_536, 4096, 1]];
        assert_eq!(elements(&v2::bytes(&words)), Some(expected));
        for wrong in [&words[..8], &[0, 1], &[u32::MAX], &[]] {
            assert_eq!(elements(&v2::bytes(wrong)), None, "{wrong:?}");
        }
    }
}
