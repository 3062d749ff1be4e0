//! One direction of an MPA stream (RFC 5044): its set-up frame, and then FPDUs without markers.

use std::collections::VecDeque;
use std::ops::Range;

use ::iwarp::mpa::{CRC_FIELD, Frame, FrameView, Kind, LENGTH_FIELD};
use ::iwarp::rdmap::Opcode;
use ::iwarp::{ddp, mpa};
use bytes::{Bytes, BytesMut};

use crate::call::At;
use crate::limits::{MAX_HOLE, MAX_HOLES, MAX_SEARCH};
use crate::span::Span;
use crate::tcp::Piece;

/// The distance of markers in bytes, and their length (section 4.3).
const MARKER_DISTANCE: u64 = 512;
const MARKER: usize = 4;
/// The common beginning of the keys of both set-up frames.
const KEY: &[u8] = b"MPA ID Re";
/// Reserved bits of the control fields of DDP and RDMAP.
const DDP_RESERVED: u8 = 0x3c;
const RDMAP_RESERVED: u8 = 0x30;

/// A unit of the stream.
#[derive(Debug)]
pub(super) enum Unit {
    Setup(Frame),
    Fpdu(Fpdu),
    /// Bytes were skipped.
    Lost(&'static str, At),
}

#[derive(Debug)]
pub(super) struct Fpdu {
    pub(super) ulpdu: Bytes,
    /// Number of bytes of `ulpdu` in front of the first that the capture lacks.
    pub(super) known: usize,
    pub(super) is_damaged: bool,
    pub(super) span: Span,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// Nothing has arrived yet. It must be a set-up frame if the beginning of the stream is there.
    Start {
        is_beginning: bool,
    },
    Setup(Kind),
    Fpdus,
    /// An FPDU is looked for.
    Search,
    /// This is not MPA, or is given up.
    Off,
}

#[derive(Debug)]
pub(super) struct Mpa {
    stage: Stage,
    buffer: BytesMut,
    /// Offset of the first byte of `buffer` in the stream, markers left out.
    start: u64,
    holes: VecDeque<Range<u64>>,
    /// The sum of the lengths of `holes`.
    hole_bytes: u64,
    /// Where the bytes of each packet begin.
    packets: VecDeque<(u64, At)>,
    /// Whether FPDUs have CRCs; `None` as long as that is not known.
    pub(super) crc: Option<bool>,
    /// Number of bytes since the first FPDU, markers included, if there are markers.
    markers: Option<u64>,
    /// The markers that were left out, by the offset of the byte behind them.
    left_out: VecDeque<(u64, [u8; MARKER])>,
    searched: usize,
}

impl Mpa {
    pub(super) fn new(is_beginning: bool) -> Self {
        Self {
            stage: Stage::Start { is_beginning },
            buffer: BytesMut::new(),
            start: 0,
            holes: VecDeque::new(),
            hole_bytes: 0,
            packets: VecDeque::new(),
            crc: None,
            markers: None,
            left_out: VecDeque::new(),
            searched: 0,
        }
    }

    pub(super) fn is_off(&self) -> bool {
        self.stage == Stage::Off
    }

    /// Says that the receiver wants markers. No FPDU has been taken yet.
    pub(super) fn use_markers(&mut self) {
        if self.markers.is_none() && self.stage != Stage::Off {
            self.markers = Some(0);
            self.leave_markers_out();
        }
    }

    /// Goes through the bytes that came with the set-up frame.
    fn leave_markers_out(&mut self) {
        if self.markers == Some(0) && self.stage == Stage::Fpdus {
            let before = self.buffer.split();
            self.append(&before);
        }
    }

    fn end(&self) -> u64 {
        self.start + self.buffer.len() as u64
    }

    pub(super) fn push(&mut self, piece: Piece<'_>, at: At) {
        if self.stage == Stage::Off {
            return;
        }
        if self
            .packets
            .back()
            .is_none_or(|(_, last)| last.packet != at.packet)
        {
            self.packets.push_back((self.end(), at));
        }
        match piece {
            Piece::Bytes(bytes) => self.append(bytes),
            Piece::Hole(len) => {
                let end = self.end();
                let is_long = len > MAX_HOLE || self.hole_bytes + len > MAX_HOLES;
                if is_long || self.markers.is_some() || self.stage != Stage::Fpdus {
                    self.drop_all();
                    self.searching();
                    return;
                }
                // At most MAX_HOLE.
                self.buffer.resize(self.buffer.len() + len as usize, 0);
                self.holes.push_back(end..end + len);
                self.hole_bytes += len;
            }
        }
    }

    fn append(&mut self, mut bytes: &[u8]) {
        let Some(mut raw) = self.markers.filter(|_| self.stage == Stage::Fpdus) else {
            self.buffer.extend_from_slice(bytes);
            return;
        };
        while !bytes.is_empty() {
            let within = raw % MARKER_DISTANCE;
            let is_marker = within < MARKER as u64;
            let until = if is_marker {
                MARKER as u64
            } else {
                MARKER_DISTANCE
            };
            // At most MARKER_DISTANCE.
            let (now, later) = bytes.split_at(bytes.len().min((until - within) as usize));
            if is_marker {
                if within == 0 {
                    self.left_out.push_back((self.end(), [0; MARKER]));
                }
                if let Some((_, marker)) = self.left_out.back_mut() {
                    marker[within as usize..][..now.len()].copy_from_slice(now);
                }
            } else {
                self.buffer.extend_from_slice(now);
            }
            raw += now.len() as u64;
            bytes = later;
        }
        self.markers = Some(raw);
    }

    fn searching(&mut self) {
        self.stage = Stage::Search;
        self.searched = 0;
    }

    fn drop_all(&mut self) {
        self.start = self.end();
        self.buffer.clear();
        self.holes.clear();
        self.hole_bytes = 0;
        self.left_out.clear();
        // The last packet may go on.
        self.packets.drain(..self.packets.len().saturating_sub(1));
    }

    /// Gives the stream up.
    pub(super) fn give_up(&mut self) {
        self.drop_all();
        self.buffer = BytesMut::new();
        self.packets.clear();
        self.stage = Stage::Off;
    }

    /// Returns the packets of a range of the stream.
    fn span(&self, range: Range<u64>) -> Span {
        let mut span = Span::of(At::default());
        for (index, (from, at)) in self.packets.iter().enumerate() {
            if index == 0 || *from <= range.start {
                span = Span::of(*at);
            } else if *from < range.end {
                span.extend(Span::of(*at));
            }
        }
        span
    }

    /// Takes bytes from the front.
    fn take(&mut self, len: usize) -> Bytes {
        let taken = self.buffer.split_to(len).freeze();
        self.start += len as u64;
        while self
            .packets
            .get(1)
            .is_some_and(|(from, _)| *from <= self.start)
        {
            self.packets.pop_front();
        }
        while let Some(hole) = self.holes.front().filter(|hole| hole.end <= self.start) {
            self.hole_bytes -= hole.end - hole.start;
            self.holes.pop_front();
        }
        while self
            .left_out
            .front()
            .is_some_and(|(at, _)| *at < self.start)
        {
            self.left_out.pop_front();
        }
        taken
    }

    fn last_at(&self) -> At {
        self.packets.back().map_or_else(At::default, |(_, at)| *at)
    }

    /// Returns the next unit, or `None` if more bytes are needed.
    pub(super) fn next(&mut self) -> Option<Unit> {
        loop {
            match self.stage {
                Stage::Off => return None,
                Stage::Start { is_beginning } => {
                    let seen = self.buffer.len().min(KEY.len());
                    if seen == 0 {
                        return None;
                    } else if self.buffer[..seen] != KEY[..seen] {
                        match is_beginning {
                            true => self.give_up(),
                            false => self.searching(),
                        }
                    } else {
                        let kind = match self.buffer.get(KEY.len())? {
                            b'q' => Kind::Request,
                            _ => Kind::Reply,
                        };
                        self.stage = Stage::Setup(kind);
                    }
                }
                Stage::Setup(kind) => match FrameView::new(kind, &self.buffer) {
                    Err(_) => self.give_up(),
                    Ok(None) => return None,
                    Ok(Some(view)) => {
                        let (frame, len) = (view.to_frame(kind), view.frame_len());
                        self.stage = Stage::Fpdus;
                        self.take(len);
                        self.leave_markers_out();
                        return Some(Unit::Setup(frame));
                    }
                },
                Stage::Fpdus => return self.fpdu(),
                Stage::Search => {
                    if !self.search() {
                        return None;
                    }
                    self.stage = Stage::Fpdus;
                    return Some(Unit::Lost("bytes before an FPDU", self.last_at()));
                }
            }
        }
    }

    fn fpdu(&mut self) -> Option<Unit> {
        let length = *self.buffer.first_chunk::<LENGTH_FIELD>()?;
        let first_hole = self.holes.front().map_or(u64::MAX, |hole| hole.start);
        if first_hole < self.start + LENGTH_FIELD as u64 {
            // Its length is not known.
            let until = self.holes.front().map_or(self.start, |hole| hole.end);
            let skipped = (until - self.start).min(self.buffer.len() as u64);
            let at = self.last_at();
            self.take(skipped as usize);
            self.searching();
            return Some(Unit::Lost("an FPDU", at));
        }
        let ulpdu = usize::from(u16::from_be_bytes(length));
        let crc_at = LENGTH_FIELD + ulpdu + mpa::padding(ulpdu);
        if self.buffer.len() < crc_at + CRC_FIELD {
            return None;
        }
        let range = self.start..self.start + (crc_at + CRC_FIELD) as u64;
        let is_whole = first_hole >= range.end;
        let is_damaged = is_whole && !self.crc_agrees(crc_at);
        let known = first_hole.saturating_sub(self.start + LENGTH_FIELD as u64);
        let span = self.span(range);
        let bytes = self.take(crc_at + CRC_FIELD);
        Some(Unit::Fpdu(Fpdu {
            ulpdu: bytes.slice(LENGTH_FIELD..LENGTH_FIELD + ulpdu),
            known: ulpdu.min(usize::try_from(known).unwrap_or(usize::MAX)),
            is_damaged,
            span,
        }))
    }

    /// Returns whether the CRC of the FPDU at the front is right, or none is used. The first CRC of a
    /// stream without its set-up tells whether there are any.
    fn crc_agrees(&mut self, crc_at: usize) -> bool {
        if self.crc == Some(false) {
            return true;
        }
        let right = self.crc_is_right(0, crc_at);
        if self.crc.is_none() && right {
            self.crc = Some(true);
        }
        right || self.crc.is_none()
    }

    /// Checks the CRC at `to` of the FPDU that begins at `from`, markers included (section 4.3).
    fn crc_is_right(&self, from: usize, to: usize) -> bool {
        let (mut at, mut crc) = (from, 0);
        for (offset, marker) in &self.left_out {
            let Some(behind) = offset.checked_sub(self.start) else {
                continue;
            };
            let behind = behind as usize;
            if (from..=to).contains(&behind) {
                crc = crc32c::crc32c_append(crc, &self.buffer[at..behind]);
                crc = crc32c::crc32c_append(crc, marker);
                at = behind;
            }
        }
        crc = crc32c::crc32c_append(crc, &self.buffer[at..to]);
        self.buffer.get(to..to + CRC_FIELD) == Some(&crc.to_le_bytes()[..])
    }

    /// Looks for an FPDU. If one is found, it is at the front of the buffer.
    fn search(&mut self) -> bool {
        let len = self.buffer.len();
        // The first offset from which on more bytes are needed.
        let mut waiting = None;
        for from in 0..len {
            let Some(ulpdu) = plausible(&self.buffer[from..]) else {
                if len - from < LENGTH_FIELD + ddp::UNTAGGED {
                    waiting = waiting.or(Some(from));
                }
                continue;
            };
            let crc_at = from + LENGTH_FIELD + ulpdu + mpa::padding(ulpdu);
            if crc_at + CRC_FIELD > len {
                waiting = waiting.or(Some(from));
                continue;
            }
            let right = self.crc_is_right(from, crc_at);
            if right || self.is_one_packet(from, crc_at + CRC_FIELD) {
                if self.crc.is_none() {
                    self.crc = Some(right);
                }
                self.take(from);
                return true;
            }
        }
        let skipped = waiting.unwrap_or(len);
        self.take(skipped);
        self.searched += skipped;
        if self.searched > MAX_SEARCH {
            self.give_up();
        }
        false
    }

    /// Returns whether the bytes begin and end where packets do, which tells an FPDU without a CRC.
    fn is_one_packet(&self, from: usize, to: usize) -> bool {
        let begins = |at: usize| {
            let at = self.start + at as u64;
            self.packets.iter().any(|(from, _)| *from == at)
        };
        self.crc != Some(true) && begins(from) && (to == self.buffer.len() || begins(to))
    }
}

/// Returns the length of the ULPDU if an FPDU of RDMAP may begin here.
fn plausible(bytes: &[u8]) -> Option<usize> {
    let ulpdu = usize::from(u16::from_be_bytes(*bytes.first_chunk()?));
    let header = ddp::HeaderView::new(bytes.get(LENGTH_FIELD..)?)?;
    let control = *header.bytes().first()?;
    let parsed = header.to_header().ok()?;
    let opcode = Opcode::from_control(parsed.ulp_control).ok()?;
    let queue = match parsed.placement {
        ddp::Placement::Tagged { .. } => None,
        ddp::Placement::Untagged { queue, .. } => Some(queue),
    };
    let agrees = control & DDP_RESERVED == 0
        && parsed.ulp_control & RDMAP_RESERVED == 0
        && opcode.queue() == queue
        && ulpdu >= header.bytes().len();
    agrees.then_some(ulpdu)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns a stream whose FPDUs have begun.
    fn begun() -> Mpa {
        let mut mpa = Mpa::new(true);
        mpa.stage = Stage::Fpdus;
        mpa
    }

    #[test]
    fn zeros_for_holes_are_bounded() {
        let mut mpa = begun();
        for _ in 0..8192 {
            mpa.push(Piece::Bytes(b"x"), At::default());
            mpa.push(Piece::Hole(60_000), At::default());
            let most = MAX_HOLES as usize + 8192;
            assert!(mpa.buffer.len() <= most, "{}", mpa.buffer.len());
        }
        while mpa.next().is_some() {}
        assert_eq!(mpa.hole_bytes, 0);
    }

    /// One packet was late, and of each only the first bytes were captured.
    #[test]
    fn fpdus_that_arrive_at_once_are_read_though_all_are_cut() {
        let mut mpa = begun();
        for _ in 0..100 {
            mpa.push(Piece::Bytes(&[5, 0, 0x41, 0x43]), At::default());
            mpa.push(Piece::Hole(2 + 1280 + 2 + 4 - 4), At::default());
        }
        for number in 0..100 {
            let unit = mpa.next();
            let Some(Unit::Fpdu(fpdu)) = unit else {
                panic!("{number}: {unit:?}");
            };
            assert_eq!((fpdu.ulpdu.len(), fpdu.known), (1280, 2));
        }
        assert!(mpa.next().is_none());
        assert_eq!((mpa.buffer.len(), mpa.hole_bytes), (0, 0));
    }
}
