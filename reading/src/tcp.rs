//! One direction of a TCP connection, put in order: what was sent again is left out, and what is
//! missing in the capture becomes a hole.

use std::collections::BTreeMap;

use crate::call::At;
use crate::limits::{MAX_OUT_OF_ORDER, MAX_SEGMENTS_OUT_OF_ORDER};

/// A piece of a stream.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Piece<'a> {
    Bytes(&'a [u8]),
    /// Bytes that the capture lacks.
    Hole(u64),
}

/// A segment that waits for bytes before it.
#[derive(Debug)]
struct Waiting {
    bytes: Vec<u8>,
    missing: u32,
    at: At,
}

#[derive(Debug, Default)]
pub(crate) struct Stream {
    /// Sequence number of the first byte.
    base: Option<u32>,
    /// Number of bytes that were passed on.
    next: u64,
    /// Segments by the offset of their first byte.
    waiting: BTreeMap<u64, Waiting>,
    waiting_bytes: usize,
    /// Offset up to which the receiver has acknowledged.
    acknowledged: u64,
    /// Number of segments that repeat bytes.
    pub(crate) repeated: u64,
}

impl Stream {
    /// Says with which sequence number the stream begins.
    pub(crate) fn begin(&mut self, sequence: u32) {
        self.base = Some(sequence);
    }

    pub(crate) fn has_begun(&self) -> bool {
        self.base.is_some()
    }

    pub(crate) fn has_data(&self) -> bool {
        self.next > 0 || !self.waiting.is_empty()
    }

    /// Returns whether the receiver has acknowledged bytes that the capture has not shown.
    pub(crate) fn is_behind(&self) -> bool {
        self.acknowledged > self.next
    }

    /// Returns the offset of a sequence number, which is near the next byte. `None` before the
    /// beginning.
    fn offset(&self, sequence: u32) -> Option<u64> {
        let base = self.base?;
        // The low half of the offset is what TCP counts.
        let next = base.wrapping_add(self.next as u32);
        let ahead = sequence.wrapping_sub(next).cast_signed();
        self.next.checked_add_signed(ahead.into())
    }

    /// Takes a segment. Passes what is in order to `each`.
    pub(crate) fn segment(
        &mut self,
        (sequence, bytes, missing): (u32, &[u8], u32),
        at: At,
        each: &mut impl FnMut(Piece<'_>, At),
    ) {
        let length = bytes.len() as u64 + u64::from(missing);
        if length == 0 {
            return;
        }
        self.base.get_or_insert(sequence);
        let (skip, start) = match self.offset(sequence) {
            Some(start) => (self.next.saturating_sub(start), start),
            // It begins before the first byte that is known.
            None => {
                let base = self.base.unwrap_or(sequence);
                (u64::from(base.wrapping_sub(sequence)), 0)
            }
        };
        if skip >= length {
            self.repeated += 1;
        } else if start > self.next {
            self.wait(
                start,
                Waiting {
                    bytes: bytes.to_vec(),
                    missing,
                    at,
                },
            );
            if self.waiting_bytes > MAX_OUT_OF_ORDER
                || self.waiting.len() > MAX_SEGMENTS_OUT_OF_ORDER
            {
                self.leap(each);
            }
        } else {
            self.pass(skip, bytes, missing, at, each);
            self.pass_waiting(each);
        }
        self.leap_if_acknowledged(each);
    }

    /// Takes an acknowledgement of the other direction.
    pub(crate) fn acknowledge(&mut self, number: u32, each: &mut impl FnMut(Piece<'_>, At)) {
        if let Some(offset) = self.offset(number) {
            self.acknowledged = self.acknowledged.max(offset);
            self.leap_if_acknowledged(each);
        }
    }

    /// Passes what waits, with holes.
    pub(crate) fn finish(&mut self, each: &mut impl FnMut(Piece<'_>, At)) {
        while !self.waiting.is_empty() {
            self.leap(each);
        }
    }

    fn wait(&mut self, start: u64, segment: Waiting) {
        let len = segment.bytes.len();
        if self
            .waiting
            .get(&start)
            .is_some_and(|it| it.bytes.len() >= len)
        {
            self.repeated += 1;
            return;
        }
        self.waiting_bytes += len;
        if let Some(before) = self.waiting.insert(start, segment) {
            self.waiting_bytes -= before.bytes.len();
        }
    }

    /// Passes a segment without its first `skip` bytes.
    fn pass(
        &mut self,
        skip: u64,
        bytes: &[u8],
        missing: u32,
        at: At,
        each: &mut impl FnMut(Piece<'_>, At),
    ) {
        let there = bytes.len() as u64;
        // Less than the length of `bytes`.
        let rest = &bytes[skip.min(there) as usize..];
        let missing = u64::from(missing) - skip.saturating_sub(there).min(missing.into());
        self.next += rest.len() as u64 + missing;
        if !rest.is_empty() {
            each(Piece::Bytes(rest), at);
        }
        if missing > 0 {
            each(Piece::Hole(missing), at);
        }
    }

    fn pass_waiting(&mut self, each: &mut impl FnMut(Piece<'_>, At)) {
        while let Some(first) = self.waiting.first_entry() {
            let start = *first.key();
            if start > self.next {
                return;
            }
            let Waiting { bytes, missing, at } = first.remove();
            self.waiting_bytes -= bytes.len();
            let skip = self.next - start;
            if skip < bytes.len() as u64 + u64::from(missing) {
                self.pass(skip, &bytes, missing, at, each);
            }
        }
    }

    /// Takes the bytes in front of the first segment that waits as missing.
    fn leap(&mut self, each: &mut impl FnMut(Piece<'_>, At)) {
        let Some((&start, first)) = self.waiting.first_key_value() else {
            return;
        };
        let at = first.at;
        let hole = start.saturating_sub(self.next);
        if hole > 0 {
            self.next = start;
            each(Piece::Hole(hole), at);
        }
        self.pass_waiting(each);
    }

    /// Bytes that the receiver has acknowledged will not come again.
    fn leap_if_acknowledged(&mut self, each: &mut impl FnMut(Piece<'_>, At)) {
        while let Some((&start, _)) = self.waiting.first_key_value() {
            if self.acknowledged < start {
                return;
            }
            self.leap(each);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns what comes out: letters, and a dot for each byte that is missing.
    struct Fixture(Stream, String);

    impl Fixture {
        fn new(base: u32) -> Self {
            let mut stream = Stream::default();
            stream.begin(base);
            Self(stream, String::new())
        }

        fn all<'a>(out: &'a mut String) -> impl FnMut(Piece<'_>, At) + 'a {
            |piece, _| match piece {
                Piece::Bytes(bytes) => out.push_str(&String::from_utf8_lossy(bytes)),
                Piece::Hole(len) => out.extend((0..len).map(|_| '.')),
            }
        }

        fn segment(&mut self, sequence: u32, text: &str) -> &str {
            let Self(stream, out) = self;
            let segment = (sequence, text.as_bytes(), 0);
            stream.segment(segment, At::default(), &mut Self::all(out));
            out
        }

        fn acknowledge(&mut self, number: u32) -> &str {
            let Self(stream, out) = self;
            stream.acknowledge(number, &mut Self::all(out));
            out
        }
    }

    /// Sequence numbers wrap within the test.
    const BASE: u32 = u32::MAX - 3;

    fn at(offset: u32) -> u32 {
        BASE.wrapping_add(offset)
    }

    #[test]
    fn segments_come_in_order_and_once() {
        let mut it = Fixture::new(BASE);
        assert_eq!(it.segment(at(0), "abc"), "abc");
        assert_eq!(it.segment(at(6), "ghi"), "abc");
        assert_eq!(it.segment(at(9), "jk"), "abc");
        assert_eq!(it.segment(at(1), "bcd"), "abcd");
        assert_eq!(it.segment(at(3), "defgh"), "abcdefghijk");
        assert_eq!(it.segment(at(0), "abcdefghijk"), "abcdefghijk");
        assert_eq!(it.segment(at(11), "l"), "abcdefghijkl");
    }

    #[test]
    fn acknowledged_bytes_that_are_missing_become_a_hole() {
        let mut it = Fixture::new(BASE);
        it.segment(at(0), "abc");
        it.segment(at(6), "ghi");
        assert_eq!(it.acknowledge(at(5)), "abc");
        assert_eq!(it.acknowledge(at(9)), "abc...ghi");
        assert_eq!(it.segment(at(3), "def"), "abc...ghi");
        it.segment(at(11), "l");
        let Fixture(stream, out) = &mut it;
        stream.finish(&mut Fixture::all(out));
        assert_eq!(out, "abc...ghi..l");
    }

    #[test]
    fn cut_segments_end_with_a_hole() {
        let mut it = Fixture::new(7);
        let Fixture(stream, out) = &mut it;
        let mut each = Fixture::all(out);
        stream.segment((7, b"ab", 2), At::default(), &mut each);
        stream.segment((10, b"d", 1), At::default(), &mut each);
        stream.segment((12, b"f", 0), At::default(), &mut each);
        drop(each);
        assert_eq!(out, "ab...f");
    }

    #[test]
    fn what_waits_is_bounded() {
        let mut it = Fixture::new(0);
        let long = "x".repeat(60_000);
        for n in 0..1000 {
            it.segment(1 + n * 60_000, &long);
            assert!(it.0.waiting_bytes <= MAX_OUT_OF_ORDER);
        }
        let many = MAX_SEGMENTS_OUT_OF_ORDER as u32 + 10;
        let mut it = Fixture::new(0);
        for n in 0..many {
            it.segment(10 + 2 * n, "y");
            assert!(it.0.waiting.len() <= MAX_SEGMENTS_OUT_OF_ORDER);
        }
    }
}
