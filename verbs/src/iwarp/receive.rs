//! From a byte stream to placed segments: where the next bytes are to be received, and what they
//! turn out to be. No I/O.
//!
//! Payload is received where it belongs. Only headers, trailers and what arrives in one go with
//! them pass through a small staging buffer, and what payload is among that is copied out:
//! - while payload is expected, the socket is read into [target memory][staging];
//! - between segments it is read into staging alone, so a short message costs one read and a
//!   short copy, and a long one the copy of its first bytes.

use std::io::IoSliceMut;

use smallvec::SmallVec;

use super::ddp::{self, Header, HeaderView};
use super::fault::Fault;
use super::memory::{Memory, Target};
use super::mpa;
use super::rdmap::{Opcode, READ_REQUEST, ReadRequest};
use super::terminate::{Code, Culprit, HeaderBytes, Terminate};

/// Staging between messages: a short message arrives whole, and the copy stays short.
const BETWEEN_MESSAGES: usize = 2048;
/// Staging between the segments of one message: the longest trailer (pad and CRC) and the next
/// header, so that hardly any payload falls in there.
const BETWEEN_SEGMENTS: usize = 3 + mpa::CRC_FIELD + mpa::LENGTH_FIELD + ddp::UNTAGGED;

/// A segment that has arrived, been checked and been placed.
pub(super) struct Segment {
    pub(super) header: Header,
    pub(super) opcode: Opcode,
    pub(super) target: Target,
    pub(super) payload: usize,
    /// For a Terminate about it.
    pub(super) culprit: Culprit,
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

enum Stage {
    /// Expecting `ULPDU_Length` and the DDP header.
    Head,
    /// Expecting `left` of the payload.
    Body { left: usize },
    /// Expecting padding and CRC.
    Tail,
}

/// The receiving half of a stream.
pub(super) struct Receiver {
    stage: Stage,
    staging: Box<[u8; BETWEEN_MESSAGES]>,
    /// The part of `staging` that holds bytes.
    start: usize,
    end: usize,
    /// Whether CRCs are checked.
    check_crc: bool,
    crc: u32,
    ulpdu: usize,
    /// The segment at hand, from its header on.
    segment: Option<Segment>,
    /// What is wrong with it, when that is reported only if its CRC is right.
    suspicion: Option<Code>,
    /// Payload of a segment for the device itself.
    control: HeaderBytes,
}

impl Receiver {
    pub(super) fn new() -> Self {
        Self {
            stage: Stage::Head,
            staging: Box::new([0; BETWEEN_MESSAGES]),
            start: 0,
            end: 0,
            check_crc: false,
            crc: 0,
            ulpdu: 0,
            segment: None,
            suspicion: None,
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
        let Stage::Body { left } = self.stage else {
            return None;
        };
        let segment = self.segment.as_ref()?;
        match segment.target {
            Target::Control | Target::Nowhere => None,
            target => Some((target, segment.payload - left, left)),
        }
    }

    /// Where the next bytes go, in this order. Never empty.
    pub(super) fn buffers<'a>(
        &'a mut self,
        memory: &'a mut Memory,
    ) -> Result<SmallVec<[IoSliceMut<'a>; 2]>, Fault> {
        let mut buffers = SmallVec::new();
        let mut room = BETWEEN_MESSAGES;
        if let Some((target, skip, left)) = self.direct() {
            let slice = memory
                .slice(target, skip, left)
                .map_err(|code| self.fault(code))?;
            buffers.push(IoSliceMut::new(slice));
            if !self
                .segment
                .as_ref()
                .is_some_and(|segment| segment.header.last)
            {
                room = BETWEEN_SEGMENTS;
            }
        }
        buffers.push(IoSliceMut::new(&mut self.staging[self.end..room]));
        Ok(buffers)
    }

    /// `n` bytes were received into [`Receiver::buffers`].
    pub(super) fn filled(&mut self, n: usize, memory: &mut Memory) -> Result<(), Fault> {
        let mut staged = n;
        if let Some((target, skip, left)) = self.direct() {
            let placed = n.min(left);
            if self.check_crc {
                let bytes = memory
                    .slice(target, skip, placed)
                    .map_err(|code| self.fault(code))?;
                self.crc = crc32c::crc32c_append(self.crc, bytes);
            }
            self.stage = Stage::Body {
                left: left - placed,
            };
            staged -= placed;
        }
        self.end += staged;
        Ok(())
    }

    /// Takes staged bytes apart, up to the end of the next FPDU. `copied` grows by the payload
    /// bytes that went through staging.
    pub(super) fn step(&mut self, memory: &mut Memory, copied: &mut u64) -> Result<Step, Fault> {
        loop {
            let advanced = match self.stage {
                Stage::Head => match self.head(memory)? {
                    Head::Partial => false,
                    Head::Empty => return Ok(Step::Empty),
                    Head::Whole => true,
                },
                Stage::Body { left } => self.body(left, memory, copied)?,
                Stage::Tail => {
                    if let Some(segment) = self.tail()? {
                        return Ok(Step::Segment(segment));
                    }
                    false
                }
            };
            if !advanced {
                self.compact();
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

    fn head(&mut self, memory: &Memory) -> Result<Head, Fault> {
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
        let culprit = Culprit {
            segment_len: u16::from_be_bytes(*length),
            ddp: SmallVec::from_slice(view.bytes()),
            read: None,
        };
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
        if self.check_crc {
            self.crc = crc32c::crc32c(&staged[..mpa::LENGTH_FIELD + header_len]);
        }
        let (header, opcode, target) = match checked {
            Ok((header, (opcode, target))) => (header, opcode, target),
            // With a CRC, first see whether the header is what the peer sent (RFC 5044,
            // section 6: the FPDU is verified before DDP sees it).
            Err(code) if self.check_crc => {
                self.suspicion = Some(code);
                (SUSPECT, Opcode::Write, Target::Nowhere)
            }
            Err(code) => {
                let culprit = Some(culprit);
                return Err(Fault { code, culprit });
            }
        };
        self.ulpdu = ulpdu;
        self.start += mpa::LENGTH_FIELD + header_len;
        self.segment = Some(Segment {
            header,
            opcode,
            target,
            payload,
            culprit,
        });
        self.control.clear();
        self.stage = Stage::Body { left: payload };
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

    fn body(&mut self, left: usize, memory: &mut Memory, copied: &mut u64) -> Result<bool, Fault> {
        let here = left.min(self.end - self.start);
        let (target, skip) = match &self.segment {
            Some(segment) => (segment.target, segment.payload - left),
            None => (Target::Nowhere, 0),
        };
        if here > 0 {
            let bytes = &self.staging[self.start..self.start + here];
            if self.check_crc {
                self.crc = crc32c::crc32c_append(self.crc, bytes);
            }
            match target {
                Target::Nowhere => {}
                Target::Control => self.control.extend_from_slice(bytes),
                target => {
                    let slice = memory
                        .slice(target, skip, here)
                        .map_err(|code| self.fault(code))?;
                    slice.copy_from_slice(bytes);
                    *copied += here as u64;
                }
            }
            self.start += here;
        }
        self.stage = if left == here {
            Stage::Tail
        } else {
            Stage::Body { left: left - here }
        };
        Ok(left == here)
    }

    fn tail(&mut self) -> Result<Option<Segment>, Fault> {
        let pad = mpa::padding(self.ulpdu);
        let staged = &self.staging[self.start..self.end];
        let Some(trailer) = staged.get(..pad + mpa::CRC_FIELD) else {
            return Ok(None);
        };
        if self.check_crc {
            let crc = crc32c::crc32c_append(self.crc, &trailer[..pad]);
            // The field's byte order is CRC32c's own: least significant first.
            if crc.to_le_bytes() != trailer[pad..] {
                return Err(Fault::bare(Code::CRC));
            }
        }
        if let Some(code) = self.suspicion {
            return Err(self.fault(code));
        }
        self.start += trailer.len();
        self.stage = Stage::Head;
        Ok(self.segment.take())
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
        let culprit = self.segment.as_ref().map(|segment| segment.culprit.clone());
        Fault { code, culprit }
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
