//! From a byte stream to placed segments: chooses where the next bytes are received, and parses
//! them. No I/O.
//!
//! Payload is received in its destination. Only headers, trailers and the bytes that arrive with
//! them pass through a small staging buffer, from which their payload is copied:
//! - while payload is expected, the socket is read into the destination and then into staging, or,
//!   in the middle of a message, into the places of several segments ([`super::ahead`]);
//! - between segments the socket is read into staging alone, so a short message costs one read and
//!   a short copy, and a long one the copy of its first bytes. For a receive of several buffers, no
//!   more is read there than the first buffer holds, unless whole messages are predicted
//!   ([`super::pattern`]). After a read that ended with several short messages, the next one takes a
//!   burst of them; if a long message comes instead, some more of its first bytes are copied, once.
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

use std::io::IoSliceMut;

use smallvec::SmallVec;

use super::ahead::{Ahead, Piece};
use super::ddp::{self, Header, HeaderView};
use super::fault::Fault;
use super::memory::{Memory, Target, Unplaced};
use super::mpa;
use super::pattern::{self, Lengths, Pattern};
use super::rdmap::{Opcode, READ_REQUEST, ReadRequest, SEND_QUEUE};
use super::shared_queue::SharedQueues;
use super::terminate::{Code, FaultySegment, HeaderBytes, Terminate};
use rdma::{Places, Scatter};

/// Number of bytes that are usually read into the staging buffer: a short message fits as a whole, and the copy stays
/// short.
const BETWEEN_MESSAGES: usize = 2048;
/// Number of bytes that are read into it while short messages come in bursts: many of them in one read.
const BURST: usize = 4096;
/// Number of short Sends in a row at the end of one read from which on the next read is for a burst. One fewer is
/// enough if the read filled all its buffers.
const MANY: usize = 3;
/// The maximum length in bytes of a Send that may be a part of a burst.
const SHORT: usize = 512;
/// Maximum length in bytes of padding and CRC.
const TRAILER: usize = 3 + mpa::CRC_FIELD;
/// Buffers of one read.
pub(super) type Buffers<'a> = SmallVec<[IoSliceMut<'a>; 64]>;
/// The receives of the Sends that are predicted.
type Upcoming<'a> = SmallVec<[&'a mut Scatter; 16]>;

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
    segment: Segment,
    /// Length in bytes of its ULPDU.
    ulpdu: usize,
    /// CRC of the bytes received so far, if CRCs are checked.
    crc: u32,
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
    fn segment(&self) -> Option<&Segment> {
        self.arriving().map(|arriving| &arriving.segment)
    }

    /// Returns the number of bytes from the end of the current payload to the end of its FPDU.
    fn trailer_len(&self) -> usize {
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
    ahead: Ahead,
    /// Bytes that were read ahead into wrong places, from `spilled` on.
    spill: Vec<u8>,
    spilled: usize,
    /// Length of the part of staging that was offered for the current read, and of all its buffers.
    offered: usize,
    asked: usize,
    /// Number of short Sends in a row at the end of the last read.
    short: usize,
    /// Whether that read filled all its buffers.
    full: bool,
    /// Whether whole Sends behind the end of the current one are predicted.
    further: bool,
    /// Lengths of the last Sends, and payload of the current one's first segment in bytes.
    pub(super) pattern: Pattern,
    first: usize,
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

    /// Returns the payload that can be received in place: its target, the number of bytes that have
    /// arrived, and the number of bytes left.
    fn direct(&self) -> Option<(Target, usize, usize)> {
        let Stage::Body { arriving, left } = &self.stage else {
            return None;
        };
        match arriving.segment.target {
            Target::Control | Target::Nowhere => None,
            target => Some((target, arriving.segment.payload - left, *left)),
        }
    }

    /// Returns the place for the next bytes if no payload is expected, and no message predicted.
    pub(super) fn between_segments(&mut self, memory: &Memory) -> Option<&mut [u8]> {
        match self.direct() {
            None if self.pattern.expected().is_none() => {
                let room = self.room(memory);
                self.offered = room - self.end;
                Some(&mut self.staging[self.end..room])
            }
            None | Some(_) => None,
        }
    }

    /// Returns the lengths of the next message if it is predicted, and the length of the first
    /// buffer of its receive. Nothing of the message may have been received.
    fn predicted(&self, memory: &Memory, room: usize) -> Option<(Lengths, usize)> {
        let lengths = self.pattern.expected()?;
        let head = memory.copyable(false)?;
        let begins = matches!(self.stage, Stage::Head)
            && self.end == 0
            && self.spill.is_empty()
            && self.ahead.is_empty()
            && memory.is_between_messages();
        // The data behind the staging buffer is the payload behind the first buffer.
        let adjoins = room == mpa::LENGTH_FIELD + ddp::UNTAGGED + head;
        (begins && adjoins && lengths.first > head).then_some((lengths, head))
    }

    /// Records a Send with a payload of `total` bytes. `reached` says whether it reached beyond the
    /// first of several buffers.
    pub(super) fn note_send(&mut self, total: usize, reached: Option<bool>) {
        match reached {
            Some(true) => self.pattern.long(Lengths {
                first: self.first,
                total,
            }),
            Some(false) | None => self.pattern.broken(),
        }
        self.note_burst(total <= SHORT);
    }

    /// Records a Send of this length that arrived as a whole and that the first buffer of its receive holds.
    #[inline]
    pub(super) fn note_short(&mut self, payload: usize) {
        self.pattern.broken();
        self.note_burst(payload <= SHORT);
    }

    #[inline]
    fn note_burst(&mut self, short: bool) {
        self.short = match short {
            true => self.short + 1,
            false => 0,
        };
    }

    /// Records that the payload of something else than a short Send has arrived.
    #[inline]
    pub(super) fn note_other(&mut self) {
        self.short = 0;
    }

    /// Returns whether short messages come in a burst.
    #[inline]
    fn bursts(&self) -> bool {
        self.short + usize::from(self.full) >= MANY
    }

    /// Makes the staging buffer long enough for a burst. Returns its length.
    #[cold]
    fn burst_room(&mut self) -> usize {
        if self.staging.len() < BURST {
            self.staging.resize(BURST, 0);
        }
        BURST
    }

    /// Frees memory that bursts needed, and returns the number of bytes freed.
    pub(super) fn give_back(&mut self) -> usize {
        if self.start < self.end || self.staging.len() <= BETWEEN_MESSAGES {
            return 0;
        }
        (self.start, self.end, self.short) = (0, 0, 0);
        self.staging = vec![0; BETWEEN_MESSAGES];
        BURST - BETWEEN_MESSAGES
    }

    /// Returns the end of the part of staging that is read into if no payload is expected. It has
    /// room at least for the rest of the current header or trailer.
    #[inline]
    fn room(&mut self, memory: &Memory) -> usize {
        match memory.copyable(false) {
            _ if self.bursts() && matches!(self.stage, Stage::Head) => self.burst_room(),
            None => BETWEEN_MESSAGES,
            Some(len) => self.room_for(len),
        }
    }

    /// Returns the end of the part of staging that is read into if `len` bytes behind the header
    /// may be copied.
    #[cold]
    fn room_for(&self, len: usize) -> usize {
        let needed = match self.stage {
            Stage::Head => mpa::LENGTH_FIELD + ddp::UNTAGGED + len,
            // The payload is for the device itself, or is dropped.
            Stage::Body { left, .. } => left,
            Stage::Tail { .. } => self.stage.trailer_len(),
        };
        BETWEEN_MESSAGES.min((self.start + needed).max(self.end + 1))
    }

    /// Adds the places for the next bytes to `buffers`, in this order: one or more. They are not returned,
    /// because that copies the list several times.
    pub(super) fn buffers<'a>(
        &'a mut self,
        memory: &'a mut Memory,
        shared: &'a mut SharedQueues,
        buffers: &mut Buffers<'a>,
    ) -> Result<(), Fault> {
        self.further = false;
        let Some((target, skip, left)) = self.direct() else {
            let room = self.room(memory);
            self.offered = room - self.end;
            let predicted = self.predicted(memory, room);
            buffers.push(IoSliceMut::new(&mut self.staging[self.end..room]));
            if let Some((lengths, head)) = predicted {
                let fits = |receive: &&mut Scatter| {
                    receive.head() == Some(head) && receive.len() >= lengths.total
                };
                let further = self.ahead.further(lengths);
                let behind = TRAILER + mpa::LENGTH_FIELD + ddp::UNTAGGED + head;
                if further > 0 && memory.binding.is_some() {
                    let receives = memory.upcoming(shared).take_while(fits);
                    let mut receives: Upcoming<'a> = receives.take(1 + further).collect();
                    if let Some(further) = receives.len().checked_sub(1) {
                        self.ahead.plan_message(head, lengths, further, behind);
                        let first = receives.remove(0).places(head);
                        self.ahead.push(first, receives, |bytes| {
                            buffers.push(IoSliceMut::new(bytes))
                        });
                    }
                } else if let Some(receive) = memory.next_receive(shared).filter(fits) {
                    self.ahead.plan_message(head, lengths, 0, behind);
                    self.ahead.push(receive.places(head), [], |bytes| {
                        buffers.push(IoSliceMut::new(bytes));
                    });
                }
            }
            return Ok(());
        };
        let behind = match memory.copyable(matches!(target, Target::Receive { .. })) {
            None => BETWEEN_MESSAGES,
            Some(len) => {
                let next = mpa::LENGTH_FIELD + ddp::UNTAGGED + len;
                BETWEEN_MESSAGES.min(self.stage.trailer_len() + next)
            }
        };
        let mut receives = Upcoming::new();
        let mut lengths = Lengths::default();
        let mut room = behind;
        let foreseen = match self.is_last() {
            true if self.bursts() && skip + left <= SHORT => {
                room = self.burst_room();
                0
            }
            true => {
                if let Some(expected) = self.expects_another(target, skip + left) {
                    let fits = |receive: &&mut Scatter| receive.len() >= expected.total;
                    let further = self.ahead.further(expected);
                    receives.extend(memory.upcoming(shared).take_while(fits).take(further));
                    lengths = expected;
                }
                0
            }
            false => self.ahead.plan(memory, target, skip + left, behind),
        };
        let mut places = memory
            .places(target, skip, left + foreseen)
            .map_err(|code| self.fault(code))?;
        places.take(left, |now| buffers.push(IoSliceMut::new(now)));
        if !self.is_last() {
            self.ahead
                .push(places, [], |bytes| buffers.push(IoSliceMut::new(bytes)));
        } else if receives.is_empty() {
            self.asked = left + room;
            buffers.push(IoSliceMut::new(&mut self.staging[..room]));
        } else {
            self.further = true;
            self.ahead.plan_messages(lengths, receives.len(), behind);
            self.asked = left + self.ahead.asked();
            self.ahead.push(Places::default(), receives, |bytes| {
                buffers.push(IoSliceMut::new(bytes))
            });
        }
        Ok(())
    }

    /// Returns the lengths of the Send behind the current one if it is predicted to be like it. The segment at `target`
    /// with `payload` bytes is the last of the current one.
    fn expects_another(&self, target: Target, payload: usize) -> Option<Lengths> {
        let whole = matches!(target, Target::Receive { at: 0 });
        self.pattern
            .expected()
            .filter(|lengths| whole && lengths.first == payload && lengths.total == payload)
    }

    /// Returns whether the current segment is the last of its message.
    fn is_last(&self) -> bool {
        self.stage
            .segment()
            .is_some_and(|segment| segment.header.last)
    }

    /// Handles `n` bytes that were received into [`Receiver::buffers`]. Returns whether the predicted message
    /// has begun and reaches into its receive.
    pub(super) fn filled(
        &mut self,
        n: usize,
        memory: &mut Memory,
        shared: &mut SharedQueues,
    ) -> Result<bool, Fault> {
        self.short = 0;
        let Some((target, skip, left)) = self.direct() else {
            let staged = n.min(self.offered);
            self.end += staged;
            self.full = n == self.offered;
            return match n - staged {
                0 => Ok(false),
                beyond => self.filled_message(beyond, memory, shared),
            };
        };
        let alike = self.expects_another(target, skip + left);
        self.full = self.is_last() && n == self.asked;
        let placed = n.min(left);
        self.placed(placed, memory)?;
        let beyond = n - placed;
        if !self.is_last() {
            self.ahead.filled(beyond);
        } else if let Some(lengths) = alike {
            if self.further {
                self.ahead.filled(beyond);
                // The current message comes first.
                let number = memory.msn[SEND_QUEUE as usize].wrapping_add(1);
                let receives = memory.upcoming(shared);
                self.spill = self.ahead.check_messages(Some(number), lengths, receives);
            } else {
                self.end += beyond;
            }
            self.ahead.adapt(self.full);
        } else {
            self.end += beyond;
        }
        Ok(false)
    }

    /// Handles `n` bytes that were received behind the staging buffer, as a part of the predicted
    /// message. Returns whether it is that message.
    fn filled_message(
        &mut self,
        n: usize,
        memory: &mut Memory,
        shared: &mut SharedQueues,
    ) -> Result<bool, Fault> {
        let full = n == self.ahead.asked();
        self.ahead.filled(n);
        let expected = self.pattern.expected().unwrap_or_default();
        let staged = &self.staging[self.start..self.end];
        // A Send with another sequence number gets no receive, so its bytes may be in none.
        let number = memory.msn[SEND_QUEUE as usize];
        let begins = pattern::begins_send(staged, number, expected.first);
        let mut rest = Vec::new();
        if self.ahead.planned_messages() > 0 {
            let number = begins.then(|| number.wrapping_add(1));
            let receives = memory.upcoming(shared).skip(1);
            rest = self.ahead.check_messages(number, expected, receives);
        }
        if begins {
            self.ahead.adapt(full);
            self.spill = rest;
            return Ok(true);
        }
        self.pattern.broken();
        // The receive is still that into which the bytes were received: nothing was parsed since.
        let receive = memory.next_receive(shared);
        let receive = receive.ok_or_else(|| Fault::bare(Code::LOCAL_CATASTROPHIC))?;
        let bytes = self.ahead.spill_message(receive);
        self.spill = bytes.map_err(Fault::bare)?;
        self.spill.append(&mut rest);
        Ok(false)
    }

    /// Records that the next `len` bytes of the payload are in their destination.
    fn placed(&mut self, len: usize, memory: &mut Memory) -> Result<(), Fault> {
        let Some((target, skip, _)) = self.direct() else {
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

    /// Continues with the bytes that were read ahead, after all staged bytes were used except for a
    /// part of a header or trailer. Returns false if none were read ahead.
    fn refill(&mut self, memory: &mut Memory) -> Result<bool, Fault> {
        self.compact();
        match self.ahead.next() {
            None if self.spilled < self.spill.len() => {
                let rest = &self.spill[self.spilled..];
                let n = rest.len().min(self.staging.len() - self.end);
                self.staging[self.end..self.end + n].copy_from_slice(&rest[..n]);
                (self.spilled, self.end) = (self.spilled + n, self.end + n);
            }
            None => {
                self.spill = Vec::new();
                self.spilled = 0;
                return Ok(false);
            }
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
                // A segment that is shorter than predicted, such as the last of a message,
                // nevertheless begins in the predicted place.
                let here = len.min(self.foreseen(target));
                let mut beyond = Vec::new();
                if here < len {
                    let places = memory.places(target, here, len - here);
                    let mut places = places.map_err(|code| self.fault(code))?;
                    places.take(len - here, |piece| beyond.extend_from_slice(piece));
                }
                if here > 0 {
                    self.placed(here, memory)?;
                }
                // Behind the end of a message no prediction holds, and the message's memory may be
                // returned with it.
                let moved = here < len || (self.is_last() && self.ahead.has_payload());
                if moved || self.foreseen_length() != segment {
                    let rest = self.ahead.spill(memory);
                    beyond.extend(rest.map_err(|code| self.fault(code))?);
                    beyond.extend_from_slice(&self.spill[self.spilled..]);
                    (self.spill, self.spilled) = (beyond, 0);
                }
            }
        }
        Ok(true)
    }

    /// Returns the number of bytes of the current segment that go to `target`, if all staged bytes
    /// have been used and that was the prediction.
    fn foreseen(&self, target: Target) -> usize {
        match self.direct() {
            Some((place, skip, left))
                if place.shifted(skip) == target && self.start == self.end =>
            {
                left
            }
            _ => 0,
        }
    }

    /// Returns the payload length of the current segment in bytes.
    fn foreseen_length(&self) -> usize {
        self.stage.segment().map_or(0, |segment| segment.payload)
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

    /// Moves a partial header or trailer to the front, to make room behind it.
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
        memory.touch(target, payload);
        if matches!(target, Target::Receive { at: 0 }) {
            self.first = payload;
        }
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
    fn fault(&self, code: Code) -> Fault {
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
