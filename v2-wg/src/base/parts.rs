//! The division of a payload into parts (section 6.6.2). The last part also has the chunk lists, so
//! its header is longer than those of the others.

use bytes::Bytes;
use onc_rpc::Segments;

use crate::limits::{MAX_PARTS, MIDDLE_LEN, MIN_PAYLOAD_LEN};

/// The division of a payload into parts: how many there are, how long each is, and how many bytes
/// they take on the wire, headers included.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Division {
    /// Length of the payload in bytes.
    len: u64,
    /// Length in bytes of the payload of each part except the last. The part before the last may be
    /// shorter, so that a word is left for the last.
    middle: u64,
    /// Number of parts.
    pub(super) count: u32,
    /// Length in bytes of all parts, headers included.
    pub(super) wire_bytes: u64,
}

impl Division {
    /// Divides a payload of `len` bytes for messages of up to `inline` bytes. The last one has a
    /// header of `header` bytes. Returns `None` if a header leaves no room, or if there would be
    /// more than [`MAX_PARTS`].
    pub(super) fn new(len: u64, inline: u64, header: u64) -> Option<Self> {
        let room = inline.checked_sub(header)?;
        if len <= room {
            return Some(Self {
                len,
                middle: 0,
                count: 1,
                wire_bytes: header + len,
            });
        }
        // XDR has units of four bytes, and no unit is divided.
        let last = room & !3;
        let middle = inline.checked_sub(MIDDLE_LEN as u64)? & !3;
        let least = MIN_PAYLOAD_LEN as u64;
        if last < least || middle < least {
            return None;
        }
        let middles = (len - last).div_ceil(middle);
        let count = u32::try_from(middles).ok()?.checked_add(1)?;
        (count <= MAX_PARTS).then_some(())?;
        Some(Self {
            len,
            middle,
            count,
            wire_bytes: len + header + middles * MIDDLE_LEN as u64,
        })
    }

    /// Cuts a payload into its parts, each with the number of bytes that follow in later ones.
    /// Returns `None` if the payload has another length.
    ///
    /// All parts are full but the last, which a device may write to its peer together with the long
    /// one before it. A short one in between took the iwarp device a system call of its own, and a
    /// WRITE of 8 KiB 4 % more time.
    pub(super) fn cut(&self, payload: &Segments) -> Option<Vec<(Segments, u64)>> {
        let mut pieces = payload.iter().cloned();
        let mut piece = Bytes::new();
        let mut left = self.len;
        let mut parts = Vec::with_capacity(self.count as usize);
        for number in 1..=self.count {
            let mut wanted = match number == self.count {
                true => left,
                false => self.middle.min(left.checked_sub(MIN_PAYLOAD_LEN as u64)?),
            };
            left -= wanted;
            let mut part = Segments::new();
            while wanted > 0 {
                if piece.is_empty() {
                    piece = pieces.next()?;
                }
                let take = wanted.min(piece.len() as u64);
                // Not longer than the piece.
                part.push(piece.split_to(take as usize));
                wanted -= take;
            }
            parts.push((part, left));
        }
        let rest = piece.len() + pieces.map(|piece| piece.len()).sum::<usize>();
        (rest == 0).then_some(parts)
    }
}

#[cfg(test)]
mod tests {
    use quickcheck::quickcheck;

    use super::*;

    quickcheck! {
        fn parts_fill_their_messages_and_are_the_whole(units: u16, inline: u16, header: u8) -> bool {
            let len = u64::from(units) * 4;
            let (inline, header) = (u64::from(inline), 20 + u64::from(header));
            let Some(division) = Division::new(len, inline, header) else {
                let room = inline.saturating_sub(20) / 4 * 4;
                return inline < header + 4 || inline < 24 || len > room * u64::from(MAX_PARTS - 1);
            };
            let whole: Vec<u8> = (0..len).map(|at| at as u8).collect();
            let (front, back) = whole.split_at(whole.len() / 3);
            let pieces = [front, back].map(Bytes::copy_from_slice);
            let Some(parts) = division.cut(&Segments::from_iter(pieces)) else {
                return false;
            };
            let count = parts.len();
            let mut follows = len;
            let mut wire = 0;
            let fits = parts.iter().enumerate().all(|(at, (part, left))| {
                let part_len: u64 = part.iter().map(|piece| piece.len() as u64).sum();
                follows -= part_len;
                let header = if at + 1 == count { header } else { 20 };
                wire += header + part_len;
                let enough = count == 1 || part_len >= 4;
                // The part before the last leaves a word for that at least.
                let full = at + 1 == count
                    || part_len == (inline - 20) & !3
                    || at + 2 == count && *left == 4;
                header + part_len <= inline && follows == *left && enough && full
            });
            // One part fewer could not hold it.
            let fewer = count < 2 || len > (inline - header) / 4 * 4 + (count as u64 - 2) * ((inline - 20) & !3);
            let joined: Vec<u8> = parts.iter().flat_map(|(part, _)| part.iter().flatten().copied()).collect();
            fits && fewer && follows == 0 && joined == whole && wire == division.wire_bytes
                && count == division.count as usize
        }
    }

    #[test]
    fn another_payload_than_the_one_that_was_planned_is_not_cut() {
        let division = Division::new(100, 64, 32).unwrap();
        for len in [96, 104] {
            let payload = Segments::from_iter([Bytes::from(vec![0; len])]);
            assert_eq!(division.cut(&payload), None, "{len}");
        }
    }
}
