//! From a byte stream to placed segments: where the next bytes are to be received, and what they
//! turn out to be. No I/O.
//!
//! Payload is received where it belongs. Only headers, trailers and what arrives in one go with
//! them pass through a small staging buffer, and what payload is among that is copied out:
//! - while payload is expected, the socket is read into [target memory][staging], or, in the
//!   middle of a message, into the places of several segments ([`super::ahead`]);
//! - between segments it is read into staging alone, so a short message costs one read and a
//!   short copy, and a long one the copy of its first bytes. Of a message for a receive in several
//!   pieces no more is read there than its first piece holds.
//!
//! # Placement before the CRC
//!
//! RFC 5044, section 6 has MPA verify an FPDU before DDP gets it; DDP then places it (RFC 5041,
//! section 5.3), and delivers the message later. With CRCs on, a header here chooses the place of
//! its payload before the CRC at the FPDU's end has come: the alternative is a copy of everything.
//! What the rule protects is kept by other means:
//! - *Nothing is delivered* that was not verified: a segment leaves [`Receiver::step`] after its
//!   CRC, and only then completes, invalidates, is answered or counts for the next one's order. The
//!   first wrong CRC ends the stream, with a Terminate that says so and no headers.
//! - *Nobody sees what was placed*: a posted receive, the sink of a Read and a registered region
//!   belong to the device until it gives them back. A receive or sink comes back as failed; a
//!   region's content means something only through a message that says so, which is behind the
//!   wrong CRC in the stream.
//! - *No other memory is touched*: the place is checked against what the peer may write, whatever
//!   damage made of the header. An error found there is held back until the CRC is known, as it may
//!   be the damage's.
//!
//! What remains: damage that TCP's checksum misses, and that turns one valid handle into another,
//! could change a region whose message was delivered and that was not reclaimed yet. A handle is 32
//! random bits.

use std::io::IoSliceMut;

use smallvec::SmallVec;

use super::ahead::{Ahead, Piece};
use super::ddp::{self, Header, HeaderView};
use super::fault::Fault;
use super::memory::{Memory, Target};
use super::mpa;
use super::rdmap::{Opcode, READ_REQUEST, ReadRequest};
use super::terminate::{Code, Culprit, HeaderBytes, Terminate};

/// Staging between messages: a short message arrives whole, and the copy stays short.
const BETWEEN_MESSAGES: usize = 2048;
/// Buffers of one read.
pub(super) type Buffers<'a> = SmallVec<[IoSliceMut<'a>; 18]>;

/// A segment that has arrived, been checked and been placed.
pub(super) struct Segment {
    pub(super) header: Header,
    pub(super) opcode: Opcode,
    pub(super) target: Target,
    pub(super) payload: usize,
}

/// What one step found.
pub(super) enum Step {
    /// More bytes are needed.
    More,
    /// An FPDU without a ULPDU, where the peer may send one (RFC 6581, section 5).
    Empty,
    /// A segment.
    Segment(Segment),
}

pub(super) enum Stage {
    /// Expecting `ULPDU_Length` and the DDP header.
    Head,
    /// Expecting `left` of the payload.
    Body { arriving: Arriving, left: usize },
    /// Expecting padding and CRC.
    Tail { arriving: Arriving },
}

/// An FPDU whose header has been seen.
pub(super) struct Arriving {
    segment: Segment,
    /// Bytes of its ULPDU.
    ulpdu: usize,
    /// The CRC of what has come of it, if CRCs are checked.
    crc: u32,
    /// The error in the header, which is reported only if the CRC is right.
    suspicion: Option<Code>,
}

impl Stage {
    /// The FPDU at hand, from its header on.
    fn arriving(&self) -> Option<&Arriving> {
        match self {
            Self::Head => None,
            Self::Body { arriving, .. } | Self::Tail { arriving } => Some(arriving),
        }
    }

    /// The segment at hand, likewise.
    fn segment(&self) -> Option<&Segment> {
        self.arriving().map(|arriving| &arriving.segment)
    }

    /// Bytes from the end of the payload at hand to the end of its FPDU.
    fn trailer_len(&self) -> usize {
        let ulpdu = self.arriving().map_or(0, |arriving| arriving.ulpdu);
        mpa::padding(ulpdu) + mpa::CRC_FIELD
    }
}

/// The receiving half of a stream.
pub(super) struct Receiver {
    pub(super) stage: Stage,
    pub(super) staging: Box<[u8; BETWEEN_MESSAGES]>,
    /// The part of `staging` that holds bytes.
    pub(super) start: usize,
    pub(super) end: usize,
    /// What was read beyond the segment at hand.
    ahead: Ahead,
    /// Bytes read ahead into wrong places, from `spilled` on.
    spill: Vec<u8>,
    spilled: usize,
    /// Whether CRCs are checked.
    pub(super) check_crc: bool,
    /// Length field and DDP header, as they came, of the last segment whose header was seen.
    pub(super) raw: [u8; mpa::LENGTH_FIELD + ddp::UNTAGGED],
    pub(super) raw_len: usize,
    /// Payload of a segment for the device itself. It is read after the segment has been taken.
    control: HeaderBytes,
}

impl Receiver {
    pub(super) fn new() -> Self {
        Self {
            stage: Stage::Head,
            staging: Box::new([0; BETWEEN_MESSAGES]),
            start: 0,
            end: 0,
            ahead: Ahead::new(),
            spill: Vec::new(),
            spilled: 0,
            check_crc: false,
            raw: [0; mpa::LENGTH_FIELD + ddp::UNTAGGED],
            raw_len: 0,
            control: HeaderBytes::new(),
        }
    }

    pub(super) fn set_check_crc(&mut self, on: bool) {
        self.check_crc = on;
    }

    /// Whether the stream is between two FPDUs: the only place where it may end in order.
    pub(super) fn is_between(&self) -> bool {
        matches!(self.stage, Stage::Head) && self.start == self.end
    }

    /// The payload that can be received in place: target, bytes of it that are there, bytes left.
    fn direct(&self) -> Option<(Target, usize, usize)> {
        let Stage::Body { arriving, left } = &self.stage else {
            return None;
        };
        match arriving.segment.target {
            Target::Control | Target::Nowhere => None,
            target => Some((target, arriving.segment.payload - left, *left)),
        }
    }

    /// Where the next bytes go when no payload is expected.
    pub(super) fn between_segments(&mut self, memory: &Memory) -> Option<&mut [u8]> {
        match self.direct() {
            None => {
                let room = self.room(memory);
                Some(&mut self.staging[self.end..room])
            }
            Some(_) => None,
        }
    }

    /// Where the part of staging ends that is read into when no payload is expected. At least what
    /// the header or trailer at hand still needs is in it.
    #[inline]
    fn room(&self, memory: &Memory) -> usize {
        match memory.copyable(false) {
            None => BETWEEN_MESSAGES,
            Some(len) => self.room_for(len),
        }
    }

    /// The same when `len` bytes may be copied of what follows the header.
    #[cold]
    fn room_for(&self, len: usize) -> usize {
        let needed = match self.stage {
            Stage::Head => mpa::LENGTH_FIELD + ddp::UNTAGGED + len,
            // For the device itself, or for nobody.
            Stage::Body { left, .. } => left,
            Stage::Tail { .. } => self.stage.trailer_len(),
        };
        BETWEEN_MESSAGES.min((self.start + needed).max(self.end + 1))
    }

    /// Where the next bytes go, in this order. Never empty.
    pub(super) fn buffers<'a>(&'a mut self, memory: &'a mut Memory) -> Result<Buffers<'a>, Fault> {
        let mut buffers = Buffers::new();
        let Some((target, skip, left)) = self.direct() else {
            let room = self.room(memory);
            buffers.push(IoSliceMut::new(&mut self.staging[self.end..room]));
            return Ok(buffers);
        };
        let behind = match memory.copyable(matches!(target, Target::Receive { .. })) {
            None => BETWEEN_MESSAGES,
            Some(len) => {
                let next = mpa::LENGTH_FIELD + ddp::UNTAGGED + len;
                BETWEEN_MESSAGES.min(self.stage.trailer_len() + next)
            }
        };
        let foreseen = match self.is_last() {
            true => 0,
            false => self.ahead.plan(memory, target, skip + left, behind),
        };
        let mut places = memory
            .places(target, skip, left + foreseen)
            .map_err(|code| self.fault(code))?;
        places.take(left, |now| buffers.push(IoSliceMut::new(now)));
        if self.is_last() {
            buffers.push(IoSliceMut::new(&mut self.staging[..behind]));
        } else {
            self.ahead
                .push(places, |bytes| buffers.push(IoSliceMut::new(bytes)));
        }
        Ok(buffers)
    }

    /// Whether the segment at hand is the last of its message.
    fn is_last(&self) -> bool {
        self.stage
            .segment()
            .is_some_and(|segment| segment.header.last)
    }

    /// `n` bytes were received into [`Receiver::buffers`].
    pub(super) fn filled(&mut self, n: usize, memory: &mut Memory) -> Result<(), Fault> {
        let Some((target, _, left)) = self.direct() else {
            self.end += n;
            return Ok(());
        };
        let placed = n.min(left);
        self.placed(target, placed, memory)?;
        if self.is_last() {
            self.end += n - placed;
        } else {
            self.ahead.filled(n - placed);
        }
        Ok(())
    }

    /// The next `len` bytes of the payload are where they belong.
    fn placed(&mut self, target: Target, len: usize, memory: &mut Memory) -> Result<(), Fault> {
        let Some((_, skip, _)) = self.direct() else {
            return Ok(());
        };
        let places = match self.check_crc {
            true => Some(memory.places(target, skip, len)),
            false => None,
        };
        let places = places.transpose().map_err(|code| self.fault(code))?;
        if let Stage::Body { arriving, left } = &mut self.stage {
            if let Some(mut places) = places {
                places.take(len, |bytes| {
                    arriving.crc = crc32c::crc32c_append(arriving.crc, bytes);
                });
            }
            *left -= len;
        }
        Ok(())
    }

    /// Staged bytes are used up, but for a part of a header or trailer: goes on with what was read
    /// ahead. False: there is nothing of that.
    fn refill(&mut self, memory: &mut Memory) -> Result<bool, Fault> {
        self.compact();
        if self.spilled < self.spill.len() {
            let rest = &self.spill[self.spilled..];
            let n = rest.len().min(self.staging.len() - self.end);
            self.staging[self.end..self.end + n].copy_from_slice(&rest[..n]);
            (self.spilled, self.end) = (self.spilled + n, self.end + n);
            return Ok(true);
        }
        self.spill = Vec::new();
        self.spilled = 0;
        match self.ahead.next() {
            None => return Ok(false),
            Some(Piece::Look(bytes)) => {
                self.staging[self.end..self.end + bytes.len()].copy_from_slice(&bytes);
                self.end += bytes.len();
            }
            Some(Piece::Rest) => {
                self.end += self.ahead.take_rest(&mut self.staging[self.end..]);
            }
            Some(Piece::Placed {
                target,
                segment,
                len,
            }) => {
                // A segment that is shorter than foreseen, as the last of a message is, begins where it
                // was foreseen all the same.
                let here = len.min(self.foreseen(target));
                let mut beyond = Vec::new();
                if here < len {
                    let places = memory.places(target, here, len - here);
                    let mut places = places.map_err(|code| self.fault(code))?;
                    places.take(len - here, |piece| beyond.extend_from_slice(piece));
                }
                if here > 0 {
                    self.placed(target, here, memory)?;
                }
                // Behind the end of a message nothing is where it was foreseen; and its memory may
                // leave with it.
                let moved = here < len || (self.is_last() && self.ahead.has_payload());
                if moved || self.foreseen_length() != segment {
                    let rest = self.ahead.spill(memory);
                    beyond.extend(rest.map_err(|code| self.fault(code))?);
                    self.spill = beyond;
                }
            }
        }
        Ok(true)
    }

    /// Bytes of the segment at hand, of which only the header has been seen, that go to that place.
    fn foreseen(&self, target: Target) -> usize {
        match self.direct() {
            Some((place, 0, left)) if place == target && self.start == self.end => left,
            _ => 0,
        }
    }

    /// Bytes of the segment at hand.
    fn foreseen_length(&self) -> usize {
        self.stage.segment().map_or(0, |segment| segment.payload)
    }

    /// Whether everything that was read has been taken apart, up to the end of an FPDU.
    #[inline]
    pub(super) fn is_used_up(&mut self) -> bool {
        let used_up = matches!(self.stage, Stage::Head)
            && self.start == self.end
            && self.spill.is_empty()
            && self.ahead.is_empty();
        if used_up {
            (self.start, self.end) = (0, 0);
        }
        used_up
    }

    /// Takes staged bytes apart, up to the end of the next FPDU. `copied` grows by the payload
    /// bytes that went through staging.
    #[inline(never)]
    pub(super) fn step(&mut self, memory: &mut Memory, copied: &mut u64) -> Result<Step, Fault> {
        if matches!(self.stage, Stage::Head) {
            if let Some(segment) = self.short(memory) {
                *copied += segment.payload as u64;
                return Ok(Step::Segment(segment));
            }
            if self.is_used_up() {
                return Ok(Step::More);
            }
        }
        loop {
            let advanced = match self.stage {
                Stage::Head => match self.head(memory)? {
                    Head::Partial => false,
                    Head::Empty => return Ok(Step::Empty),
                    Head::Whole => true,
                },
                Stage::Body { .. } => self.body(memory, copied)?,
                Stage::Tail { .. } => {
                    if let Some(segment) = self.tail()? {
                        return Ok(Step::Segment(segment));
                    }
                    false
                }
            };
            if !advanced && !self.refill(memory)? {
                return Ok(Step::More);
            }
        }
    }

    /// Moves a partial header or trailer to the front, so that there is room behind it.
    fn compact(&mut self) {
        if self.start > 0 {
            self.staging.copy_within(self.start..self.end, 0);
            self.end -= self.start;
            self.start = 0;
        }
    }

    fn head(&mut self, memory: &mut Memory) -> Result<Head, Fault> {
        let staged = &self.staging[self.start..self.end];
        let Some((length, rest)) = staged.split_first_chunk::<{ mpa::LENGTH_FIELD }>() else {
            return Ok(Head::Partial);
        };
        let ulpdu = usize::from(u16::from_be_bytes(*length));
        if ulpdu == 0 && memory.empty_rtr {
            return self.empty(staged.len());
        }
        // An FPDU that cannot hold the header it starts with: no document has a code for that.
        let shortest = rest
            .first()
            .map_or(ddp::CONTROL, |control| ddp::header_len(*control));
        if ulpdu < shortest {
            return Err(Fault::bare(Code::STREAM_CATASTROPHIC));
        }
        let Some(view) = HeaderView::new(rest) else {
            return Ok(Head::Partial);
        };
        let header_len = view.bytes().len();
        let payload = ulpdu - header_len;
        self.raw_len = mpa::LENGTH_FIELD + header_len;
        self.raw[..self.raw_len].copy_from_slice(&staged[..self.raw_len]);
        let checked = view
            .to_header()
            .map_err(|error| {
                if error.tagged {
                    Code::TAGGED_VERSION
                } else {
                    Code::UNTAGGED_VERSION
                }
            })
            .and_then(|header| Ok((header, memory.place(&header, payload)?)));
        let crc = match self.check_crc {
            true => crc32c::crc32c(&staged[..mpa::LENGTH_FIELD + header_len]),
            false => 0,
        };
        let (header, opcode, target, suspicion) = match checked {
            Ok((header, (opcode, target))) => (header, opcode, target, None),
            // With a CRC, first see whether the header is what the peer sent (see the module).
            Err(code) if self.check_crc => (SUSPECT, Opcode::Write, Target::Nowhere, Some(code)),
            Err(code) => return Err(self.fault(code)),
        };
        memory.touch(target, payload);
        self.start += mpa::LENGTH_FIELD + header_len;
        self.control.clear();
        let segment = Segment {
            header,
            opcode,
            target,
            payload,
        };
        let arriving = Arriving {
            segment,
            ulpdu,
            crc,
            suspicion,
        };
        self.stage = Stage::Body {
            arriving,
            left: payload,
        };
        Ok(Head::Whole)
    }

    /// An FPDU of nothing but its length, padding and CRC.
    fn empty(&mut self, staged: usize) -> Result<Head, Fault> {
        let len = mpa::LENGTH_FIELD + mpa::padding(0) + mpa::CRC_FIELD;
        if staged < len {
            return Ok(Head::Partial);
        }
        let fpdu = &self.staging[self.start..self.start + len];
        let (covered, crc) = fpdu.split_at(len - mpa::CRC_FIELD);
        if self.check_crc && crc32c::crc32c(covered).to_le_bytes() != crc {
            return Err(Fault::bare(Code::CRC));
        }
        self.start += len;
        Ok(Head::Empty)
    }

    /// Takes what is staged of the payload. True: that was all of it.
    fn body(&mut self, memory: &mut Memory, copied: &mut u64) -> Result<bool, Fault> {
        let Stage::Body { arriving, left } = &mut self.stage else {
            return Ok(false);
        };
        let here = (*left).min(self.end - self.start);
        if here > 0 {
            let bytes = &self.staging[self.start..self.start + here];
            if self.check_crc {
                arriving.crc = crc32c::crc32c_append(arriving.crc, bytes);
            }
            let skip = arriving.segment.payload - *left;
            *left -= here;
            match arriving.segment.target {
                Target::Nowhere => {}
                Target::Control => self.control.extend_from_slice(bytes),
                target => {
                    let mut places = memory
                        .places(target, skip, here)
                        .map_err(|code| self.fault(code))?;
                    let mut left = bytes;
                    places.take(here, |place| {
                        let (now, later) = left.split_at(place.len());
                        place.copy_from_slice(now);
                        left = later;
                    });
                    *copied += here as u64;
                }
            }
            self.start += here;
        }
        let Stage::Body { left: 0, .. } = self.stage else {
            return Ok(false);
        };
        if let Stage::Body { arriving, .. } = std::mem::replace(&mut self.stage, Stage::Head) {
            self.stage = Stage::Tail { arriving };
        }
        Ok(true)
    }

    fn tail(&mut self) -> Result<Option<Segment>, Fault> {
        let Stage::Tail { arriving } = &self.stage else {
            return Ok(None);
        };
        let pad = mpa::padding(arriving.ulpdu);
        let staged = &self.staging[self.start..self.end];
        let Some(trailer) = staged.get(..pad + mpa::CRC_FIELD) else {
            return Ok(None);
        };
        if self.check_crc {
            let crc = crc32c::crc32c_append(arriving.crc, &trailer[..pad]);
            // The field's byte order is CRC32c's own: least significant first.
            if crc.to_le_bytes() != trailer[pad..] {
                return Err(Fault::bare(Code::CRC));
            }
        }
        if let Some(code) = arriving.suspicion {
            return Err(self.fault(code));
        }
        self.start += trailer.len();
        match std::mem::replace(&mut self.stage, Stage::Head) {
            Stage::Tail { arriving } => Ok(Some(arriving.segment)),
            Stage::Head | Stage::Body { .. } => Ok(None),
        }
    }

    /// The Read Request header that has just arrived.
    pub(super) fn read_request(&self) -> Option<ReadRequest> {
        self.control
            .first_chunk::<READ_REQUEST>()
            .map(ReadRequest::parse)
    }

    /// The Terminate header that has just arrived.
    pub(super) fn terminate(&self) -> Option<Terminate> {
        Terminate::parse(&self.control)
    }

    /// An error about the segment at hand.
    fn fault(&self, code: Code) -> Fault {
        let culprit = Some(self.culprit());
        Fault { code, culprit }
    }

    /// The last segment whose header was seen, for a Terminate about it.
    pub(super) fn culprit(&self) -> Culprit {
        let (length, ddp) = self.raw[..self.raw_len].split_at(mpa::LENGTH_FIELD.min(self.raw_len));
        Culprit {
            segment_len: length.try_into().map_or(0, u16::from_be_bytes),
            ddp: SmallVec::from_slice(ddp),
            read: None,
        }
    }
}

enum Head {
    Partial,
    Empty,
    Whole,
}

/// Stands in for a header that is not valid, while the rest of its FPDU arrives.
const SUSPECT: Header = Header {
    last: true,
    ulp_control: 0,
    placement: ddp::Placement::Tagged { stag: 0, offset: 0 },
};
