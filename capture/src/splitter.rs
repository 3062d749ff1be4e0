//! Finds the units of an iWARP stream, set-up frames and FPDUs (RFC 5044), so that each is captured
//! in a segment of its own.
//!
//! Devices write several FPDUs with one system call, and read parts of one. FPDUs that are aligned
//! with segments are what RFC 5044, section 5.1 wants of a sender, and are easiest to read.

use crate::checksum::Sum;
use crate::packet::MAX_PAYLOAD;

/// Length in bytes of a set-up frame without its private data (RFC 5044, section 7.1.1).
const SETUP_HEADER: usize = 20;
/// Length in bytes of the field `ULPDU_Length` (RFC 5044, section 4).
const LENGTH: usize = 2;
/// The beginning of the keys of both set-up frames.
const KEY: &[u8; 9] = b"MPA ID Re";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Setup,
    Fpdus,
    /// Something else than MPA: units are as they come.
    Unknown,
}

/// A unit, or the next part of one that is longer than a segment.
pub(crate) struct Unit<'a> {
    /// The first bytes, as many as are to be kept.
    pub(crate) kept: &'a [u8],
    /// Length of the whole part in bytes.
    pub(crate) len: usize,
    pub(crate) sum: Sum,
    /// Whether the unit ends with them.
    pub(crate) ends: bool,
}

/// The state of one direction of a stream.
pub(crate) struct Splitter {
    stage: Stage,
    /// The beginning of the present unit, up to its length field.
    head: [u8; SETUP_HEADER],
    head_len: usize,
    /// Number of bytes of the present unit that are missing, once its length is known.
    left: usize,
    /// The bytes since the last segment.
    kept: Vec<u8>,
    len: usize,
    sum: Sum,
}

impl Splitter {
    pub(crate) fn new() -> Self {
        Self {
            stage: Stage::Setup,
            head: [0; SETUP_HEADER],
            head_len: 0,
            left: 0,
            kept: Vec::new(),
            len: 0,
            sum: Sum::default(),
        }
    }

    /// Takes the next bytes of the stream. Passes each complete unit to `each`, of which it keeps
    /// the first `keep` bytes.
    pub(crate) fn feed(&mut self, mut bytes: &[u8], keep: usize, mut each: impl FnMut(Unit<'_>)) {
        while !bytes.is_empty() {
            let wanted = self.wanted(bytes.len());
            let (now, later) = bytes.split_at(bytes.len().min(wanted).min(MAX_PAYLOAD - self.len));
            bytes = later;
            let room = keep.saturating_sub(self.kept.len()).min(now.len());
            self.kept.extend_from_slice(&now[..room]);
            self.len += now.len();
            self.sum.add(now);
            let ends = self.advance(now);
            if ends || self.len == MAX_PAYLOAD {
                self.part(ends, &mut each);
            }
        }
        if self.stage == Stage::Unknown {
            self.end(&mut each);
        }
    }

    /// Passes what there is of the last unit.
    pub(crate) fn end(&mut self, each: &mut impl FnMut(Unit<'_>)) {
        self.part(true, each);
    }

    fn part(&mut self, ends: bool, each: &mut impl FnMut(Unit<'_>)) {
        if self.len > 0 {
            each(Unit {
                kept: &self.kept,
                len: self.len,
                sum: self.sum,
                ends,
            });
        }
        self.kept.clear();
        self.len = 0;
        self.sum = Sum::default();
    }

    /// Returns how many bytes belong to the present part of a unit, of `available` bytes.
    fn wanted(&self, available: usize) -> usize {
        match self.stage {
            Stage::Unknown => available,
            _ if self.left > 0 => self.left,
            Stage::Setup => SETUP_HEADER - self.head_len,
            Stage::Fpdus => LENGTH - self.head_len,
        }
    }

    /// Returns whether the present unit ends with `bytes`.
    fn advance(&mut self, bytes: &[u8]) -> bool {
        if self.stage == Stage::Unknown {
            return false;
        }
        if self.left > 0 {
            self.left -= bytes.len();
        } else {
            self.head[self.head_len..][..bytes.len()].copy_from_slice(bytes);
            self.head_len += bytes.len();
            let word = |at| usize::from(u16::from_be_bytes([self.head[at], self.head[at + 1]]));
            match self.stage {
                Stage::Setup => {
                    let seen = self.head_len.min(KEY.len());
                    if self.head[..seen] != KEY[..seen] {
                        self.stage = Stage::Unknown;
                        return false;
                    }
                    if self.head_len < SETUP_HEADER {
                        return false;
                    }
                    self.left = word(SETUP_HEADER - 2);
                }
                _ if self.head_len < LENGTH => return false,
                _ => self.left = after_length(word(0)),
            }
        }
        if self.left > 0 {
            return false;
        }
        (self.stage, self.head_len) = (Stage::Fpdus, 0);
        true
    }
}

/// Returns the number of bytes that follow the length field of an FPDU with a ULPDU of this length:
/// the ULPDU, padding to a multiple of four, and the CRC (RFC 5044, section 4).
fn after_length(ulpdu: usize) -> usize {
    (LENGTH + ulpdu).next_multiple_of(4) - LENGTH + 4
}

#[cfg(test)]
mod tests {
    use super::*;

    fn units(stream: &[u8], step: usize, keep: usize) -> Vec<(usize, usize)> {
        let mut splitter = Splitter::new();
        let mut found = Vec::new();
        for piece in stream.chunks(step) {
            splitter.feed(piece, keep, |unit| {
                let (kept, rest) = stream[found.iter().map(|(len, _)| len).sum::<usize>()..]
                    .split_at(unit.kept.len());
                assert_eq!(kept, unit.kept);
                assert!(rest.len() + kept.len() >= unit.len);
                found.push((unit.len, unit.kept.len()));
            });
        }
        found
    }

    #[test]
    fn units_are_found_in_pieces_of_any_length() {
        let mut stream = b"MPA ID Rep Frame\0\x01\0\x03abc".to_vec();
        for ulpdu in [0u16, 1, 18, 1000] {
            stream.extend_from_slice(&ulpdu.to_be_bytes());
            stream.extend(vec![0x5a; after_length(ulpdu.into())]);
        }
        for step in [1, 2, 3, 19, 20, 21, 500, 5000] {
            let lens: Vec<usize> = units(&stream, step, 5000)
                .iter()
                .map(|unit| unit.0)
                .collect();
            assert_eq!(lens, [23, 8, 8, 24, 1008], "{step}");
            let kept: Vec<usize> = units(&stream, step, 10).iter().map(|unit| unit.1).collect();
            assert_eq!(kept, [10, 8, 8, 10, 10], "{step}");
        }
    }

    #[test]
    fn the_longest_fpdu_takes_two_segments() {
        let mut stream = b"MPA ID Req Frame\0\x01\0\0".to_vec();
        stream.extend_from_slice(&u16::MAX.to_be_bytes());
        stream.extend(vec![1; after_length(u16::MAX.into())]);
        let lens: Vec<usize> = units(&stream, 4096, 1).iter().map(|unit| unit.0).collect();
        assert_eq!(lens, [20, MAX_PAYLOAD, 2 + 65535 + 3 + 4 - MAX_PAYLOAD]);
    }

    #[test]
    fn what_is_not_mpa_is_captured_as_it_comes() {
        let lens: Vec<usize> = units(b"GET / HTTP/1.0", 6, 99)
            .iter()
            .map(|u| u.0)
            .collect();
        assert_eq!(lens, [6, 6, 2]);
    }
}
