//! Parses the byte stream: from FPDUs to placed segments. No I/O. Where its bytes are received is chosen in
//! `reading`.
//!
//! # Placement before the CRC
//!
//! RFC 5044, section 6 has MPA verify an FPDU before DDP gets it; DDP then places it (RFC 5041,
//! section 5.3), and delivers the message later. With CRCs enabled, a header here selects the place
//! of its payload before the CRC at the end of the FPDU has arrived, because the alternative is a
//! copy of everything. The purpose of the rule is met by other means:
//! - *Only verified segments are delivered*: a segment leaves [`Receiver::step`] after its CRC was
//!   verified, and only then completes, invalidates, is answered, or counts for the order of the
//!   next one. The first wrong CRC ends the stream, with a Terminate that says so and carries no
//!   headers.
//! - *Nobody sees unverified data*: a posted receive, the sink of a Read and a registered region
//!   belong to the device until it returns them. A receive or sink is returned as failed; the
//!   contents of a region are defined only by a later message, which would be behind the wrong CRC
//!   in the stream.
//! - *No other memory is touched*: the place is checked against the memory that the peer may write,
//!   however the header was damaged. An error found there is reported only when the CRC has been
//!   verified, because the damage may have caused it.
//!
//! One risk remains: damage that TCP's checksum misses, and that turns one valid handle into
//! another, could change a region whose message was delivered and that was not reclaimed yet. A
//! handle is 32 random bits.

use smallvec::SmallVec;

use super::ahead::Ahead;
use super::ddp::{self, Header, HeaderView};
use super::fault::Fault;
use super::memory::{Memory, Target, Unplaced};
use super::mpa;
use super::pattern::Pattern;
use super::rdmap::{Opcode, READ_REQUEST, ReadRequest};
use super::terminate::{Code, FaultySegment, HeaderBytes, Terminate};
use super::train::{Train, Write};

/// Number of bytes that are usually read into the staging buffer: a short message fits as a whole, and the copy stays
/// short.
pub(super) const BETWEEN_MESSAGES: usize = 2048;

/// A segment that was received, checked and placed.
pub(super) struct Segment {
    pub(super) header: Header,
    pub(super) opcode: Opcode,
    pub(super) target: Target,
    pub(super) payload: usize,
}

/// The result of one step.
pub(super) enum Step {
    /// More bytes are needed.
    More,
    /// An FPDU without a ULPDU, at a point where the peer may send one (RFC 6581, section 9.2).
    Empty,
    /// A segment.
    Segment(Segment),
    /// The next segment begins a message, and its receive must be taken from the shared receive
    /// queue first. Nothing of it has been used.
    NoReceive,
}

pub(super) enum Stage {
    /// Expecting `ULPDU_Length` and the DDP header.
    Head,
    /// Expecting `left` bytes of the payload.
    Body { arriving: Arriving, left: usize },
    /// Expecting padding and CRC.
    Tail { arriving: Arriving },
}

/// An FPDU whose header has been parsed.
pub(super) struct Arriving {
    pub(super) segment: Segment,
    /// Length in bytes of its ULPDU.
    ulpdu: usize,
    /// CRC of the bytes received so far, if CRCs are checked.
    pub(super) crc: u32,
    /// An error in the header, which is reported only if the CRC is right.
    suspicion: Option<Code>,
}

impl Stage {
    /// Returns the current FPDU, if its header has been parsed.
    fn arriving(&self) -> Option<&Arriving> {
        match self {
            Self::Head => None,
            Self::Body { arriving, .. } | Self::Tail { arriving } => Some(arriving),
        }
    }

    /// Returns the current segment, if its header has been parsed.
    pub(super) fn segment(&self) -> Option<&Segment> {
        self.arriving().map(|arriving| &arriving.segment)
    }

    /// Returns the number of bytes from the end of the current payload to the end of its FPDU.
    pub(super) fn trailer_len(&self) -> usize {
        let ulpdu = self.arriving().map_or(0, |arriving| arriving.ulpdu);
        mpa::padding(ulpdu) + mpa::CRC_FIELD
    }
}

/// The receiving half of a stream.
pub(super) struct Receiver {
    pub(super) stage: Stage,
    pub(super) staging: Vec<u8>,
    /// The range of `staging` that holds bytes.
    pub(super) start: usize,
    pub(super) end: usize,
    /// Bytes read ahead of the current segment.
    pub(super) ahead: Ahead,
    /// Bytes that were read ahead into wrong places, from `spilled` on.
    pub(super) spill: Vec<u8>,
    pub(super) spilled: usize,
    /// Length of the part of staging that was offered for the current read (zero if the read is for predicted RDMA
    /// Writes alone), and of all its buffers.
    pub(super) offered: usize,
    pub(super) asked: usize,
    /// Number of short Sends in a row at the end of the last read.
    pub(super) short: usize,
    /// Whether that read filled all its buffers.
    pub(super) full: bool,
    /// Whether whole Sends or RDMA Writes behind the current one are predicted.
    pub(super) further: bool,
    /// The last RDMA Writes.
    pub(super) train: Train,
    /// Lengths of the last Sends, and payload of the current one's first segment in bytes.
    pub(super) pattern: Pattern,
    pub(super) first: usize,
    /// Whether CRCs are checked.
    pub(super) check_crc: bool,
    /// Length field and DDP header, as received, of the last segment whose header was parsed.
    pub(super) raw: [u8; mpa::LENGTH_FIELD + ddp::UNTAGGED],
    pub(super) raw_len: usize,
    /// Payload of a segment for the device itself, which is used after the segment has been
    /// returned.
    control: HeaderBytes,
}

impl Receiver {
    pub(super) fn new() -> Self {
        Self {
            stage: Stage::Head,
            staging: vec![0; BETWEEN_MESSAGES],
            start: 0,
            end: 0,
            ahead: Ahead::new(),
            spill: Vec::new(),
            spilled: 0,
            offered: 0,
            asked: 0,
            short: 0,
            full: false,
            further: false,
            train: Train::default(),
            pattern: Pattern::default(),
            first: 0,
            check_crc: false,
            raw: [0; mpa::LENGTH_FIELD + ddp::UNTAGGED],
            raw_len: 0,
            control: HeaderBytes::new(),
        }
    }

    pub(super) fn set_check_crc(&mut self, on: bool) {
        self.check_crc = on;
    }

    /// Returns whether the stream is between two FPDUs, which is the only place where it may end
    /// gracefully.
    pub(super) fn is_between(&self) -> bool {
        matches!(self.stage, Stage::Head) && self.start == self.end
    }

    /// Returns whether all received bytes have been parsed, up to the end of an FPDU.
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

    /// Parses staged bytes up to the end of the next FPDU. Adds the number of payload bytes copied
    /// from staging to `copied`.
    #[inline(never)]
    pub(super) fn step(&mut self, memory: &mut Memory, copied: &mut u64) -> Result<Step, Fault> {
        if self.is_used_up() {
            return Ok(Step::More);
        }
        loop {
            let advanced = match self.stage {
                Stage::Head => match self.head(memory)? {
                    Head::Partial => false,
                    Head::Empty => return Ok(Step::Empty),
                    Head::NoReceive => return Ok(Step::NoReceive),
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

    fn head(&mut self, memory: &mut Memory) -> Result<Head, Fault> {
        let staged = &self.staging[self.start..self.end];
        let Some((length, rest)) = staged.split_first_chunk::<{ mpa::LENGTH_FIELD }>() else {
            return Ok(Head::Partial);
        };
        let ulpdu = usize::from(u16::from_be_bytes(*length));
        if ulpdu == 0 && memory.empty_rtr {
            return self.empty(staged.len());
        }
        // An FPDU that is too short for its own header. No RFC defines a code for that.
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
                Unplaced::Fault(match error.tagged {
                    true => Code::TAGGED_VERSION,
                    false => Code::UNTAGGED_VERSION,
                })
            })
            .and_then(|header| Ok((header, memory.place(&header, payload)?)));
        let crc = match self.check_crc {
            true => crc32c::crc32c(&staged[..mpa::LENGTH_FIELD + header_len]),
            false => 0,
        };
        let (header, opcode, target, suspicion) = match checked {
            Ok((header, (opcode, target))) => (header, opcode, target, None),
            // With a CRC, verify first that the peer really sent this header (see the module
            // documentation).
            Err(Unplaced::Fault(code)) if self.check_crc => {
                (SUSPECT, Opcode::Write, Target::Nowhere, Some(code))
            }
            Err(Unplaced::Fault(code)) => return Err(self.fault(code)),
            Err(Unplaced::NoReceive) => return Ok(Head::NoReceive),
        };
        self.start += mpa::LENGTH_FIELD + header_len;
        let begun = memory.touch(target, payload);
        match target {
            Target::Receive { at: 0 } => self.first = payload,
            Target::Receive { .. } => {}
            _ => {
                let write = begun.filter(|_| header.last);
                self.train.arrived(write.map(|(region, room)| Write {
                    region,
                    room,
                    payload,
                }));
                // Before its payload is placed, which may be where other bytes were read ahead.
                if self.is_another_write(target, payload) {
                    self.train.wrong();
                    self.spill_ahead(Vec::new(), memory)?;
                }
            }
        }
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

    /// Parses an FPDU that consists only of length, padding and CRC.
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

    /// Consumes the staged part of the payload. Returns true if that completes it.
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
            // The byte order of the field is that of CRC32c: least significant byte first.
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

    /// Returns the Read Request header that has just been received.
    pub(super) fn read_request(&self) -> Option<ReadRequest> {
        self.control
            .first_chunk::<READ_REQUEST>()
            .map(ReadRequest::parse)
    }

    /// Returns the Terminate header that has just been received.
    pub(super) fn terminate(&self) -> Option<Terminate> {
        Terminate::parse(&self.control)
    }

    /// Makes an error about the current segment.
    pub(super) fn fault(&self, code: Code) -> Fault {
        let faulty_segment = Some(self.faulty_segment());
        Fault {
            code,
            faulty_segment,
        }
    }

    /// Returns the last segment whose header was parsed, for a Terminate about it.
    pub(super) fn faulty_segment(&self) -> FaultySegment {
        let (length, ddp) = self.raw[..self.raw_len].split_at(mpa::LENGTH_FIELD.min(self.raw_len));
        FaultySegment {
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
    NoReceive,
}

/// Stands for an invalid header while the rest of its FPDU is received.
const SUSPECT: Header = Header {
    last: true,
    ulp_control: 0,
    placement: ddp::Placement::Tagged { stag: 0, offset: 0 },
};
