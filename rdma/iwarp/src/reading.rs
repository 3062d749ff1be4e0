//! Chooses where the next bytes of a stream are received, and leads those that have been received to
//! [`Receiver::step`]. No I/O.
//!
//! Payload is received in its destination. Only headers, trailers and the bytes that arrive with
//! them pass through a small staging buffer, from which their payload is copied:
//! - while payload is expected, the socket is read into the destination and then into staging, or,
//!   in the middle of a message, into the places of several segments ([`super::ahead`]);
//! - between segments the socket is read into staging alone, so a short message costs one read and
//!   a short copy, and a long one the copy of its first bytes. For a receive of several buffers, no
//!   more is read there than the first buffer holds, unless whole messages are predicted
//!   ([`super::pattern`]). After a read that ended with several short messages, the next one takes a
//!   burst of them; if a long message comes instead, some more of its first bytes are copied, once. Messages of one
//!   length that come one by one and are only a little longer than the first buffer are read there as a whole;
//! - after RDMA Writes that follow one another at equal distances, the socket is read into the rest of
//!   the current one, into the regions of the next ones, and into the gaps between them
//!   ([`super::train`]).

use std::io::IoSliceMut;

use smallvec::SmallVec;

use super::ahead::Piece;
use super::ddp;
use super::fault::Fault;
use super::memory::{Memory, Target};
use super::mpa;
use super::pattern::{self, Lengths};
use super::rdmap::SEND_QUEUE;
use super::receive::{BETWEEN_MESSAGES, Receiver, Stage};
use super::regions::Writable;
use super::shared_queue::SharedQueues;
use super::terminate::Code;
use super::train;
use rdma::{Places, Scatter};

/// Number of bytes that are read into the staging buffer while short messages come in bursts: many of them in one read.
const BURST: usize = 4096;
/// Number of short Sends in a row at the end of one read from which on the next read is for a burst. One fewer is
/// enough if the read filled all its buffers.
const MANY: usize = 3;
/// The maximum length in bytes of a Send that may be a part of a burst.
const SHORT: usize = 512;
/// A predicted message with fewer bytes than these behind the first buffer of its receive is read into the staging
/// buffer as a whole if no other one is behind it: the copy is cheaper than a read into several buffers (0.4 of 10 us
/// are saved).
const LITTLE: usize = 512;
/// The longest first buffer whose messages are read so: with a longer one, a single message would fill the staging buffer,
/// which looks like several messages.
const LONGEST_HEAD: usize = BETWEEN_MESSAGES - mpa::LENGTH_FIELD - ddp::UNTAGGED - LITTLE - TRAILER;
/// Maximum length in bytes of padding and CRC.
const TRAILER: usize = 3 + mpa::CRC_FIELD;
/// Buffers of one read.
pub(super) type Buffers<'a> = SmallVec<[IoSliceMut<'a>; 64]>;
/// The receives of the Sends that are predicted.
type Upcoming<'a> = SmallVec<[&'a mut Scatter; 16]>;

impl Receiver {
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

    /// Returns the place for the next bytes if no payload is expected and the next read is into the staging buffer
    /// alone: no message is predicted, or one that is only a little longer than the first buffer.
    pub(super) fn between_segments(&mut self, memory: &Memory) -> Option<&mut [u8]> {
        match self.direct() {
            None if self.reads_staging_alone(memory) && !self.train.is_due() => {
                let room = self.room(memory);
                self.offered = room - self.end;
                Some(&mut self.staging[self.end..room])
            }
            None | Some(_) => None,
        }
    }

    /// Returns whether the next read between segments is into the staging buffer alone.
    #[inline]
    fn reads_staging_alone(&self, memory: &Memory) -> bool {
        let expected = self.pattern.expected();
        expected.is_none_or(|lengths| self.is_little_longer(lengths, memory))
    }

    /// Returns whether a predicted message of these lengths is a single segment, exceeds the first buffer of its
    /// receive by less than [`LITTLE`], fits into the staging buffer with room for more, and no further message is
    /// expected with it.
    fn is_little_longer(&self, lengths: Lengths, memory: &Memory) -> bool {
        let head = memory.copyable(false);
        matches!(self.stage, Stage::Head)
            && lengths.first == lengths.total
            && head.is_some_and(|head| lengths.total < head + LITTLE && head <= LONGEST_HEAD)
            && self.ahead.further(lengths) == 0
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

    /// Records a Send with a payload of `total` bytes, of which `beyond` are behind the first of several buffers.
    pub(super) fn note_send(&mut self, total: usize, beyond: usize) {
        match self.first == total {
            true => self.train.sent(total),
            false => self.train.arrived(None),
        }
        match beyond {
            0 => self.pattern.broken(),
            _ => self.pattern.long(Lengths {
                first: self.first,
                total,
            }),
        }
        self.note_burst(total <= SHORT);
    }

    /// Records a Send of this length that was copied from the staging buffer as a whole, `beyond` bytes of it behind
    /// the first of several buffers.
    #[inline]
    pub(super) fn note_short(&mut self, payload: usize, beyond: usize) {
        match beyond {
            0 => self.pattern.broken(),
            _ => self.pattern.long(Lengths {
                first: payload,
                total: payload,
            }),
        }
        self.train.sent(payload);
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

    /// Frees memory that bursts and predictions needed, and returns the number of bytes freed.
    pub(super) fn give_back(&mut self) -> usize {
        let freed = self.ahead.give_back();
        if self.start < self.end || self.staging.len() <= BETWEEN_MESSAGES {
            return freed;
        }
        (self.start, self.end, self.short) = (0, 0, 0);
        self.staging = vec![0; BETWEEN_MESSAGES];
        freed + BURST - BETWEEN_MESSAGES
    }

    /// Returns the end of the part of staging that is read into if no payload is expected. It has
    /// room at least for the rest of the current header or trailer.
    #[inline]
    fn room(&mut self, memory: &Memory) -> usize {
        match memory.copyable(false) {
            _ if self.bursts() && matches!(self.stage, Stage::Head) => self.burst_room(),
            None => BETWEEN_MESSAGES,
            Some(len) => {
                let lengths = self.pattern.expected();
                let is_longer = lengths.is_some_and(|one| self.is_little_longer(one, memory));
                let more = if is_longer { LITTLE + TRAILER } else { 0 };
                self.room_for(len + more)
            }
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
        if self.is_in_train() || self.train_is_due(memory) {
            return self.train_buffers(memory, buffers);
        }
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
                        let others = receives.into_iter().map(|receive| receive.places(0));
                        self.ahead
                            .push(first, others, |bytes| buffers.push(IoSliceMut::new(bytes)));
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
        let behind = self.behind(memory, target);
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
            let receives = receives.into_iter().map(|receive| receive.places(0));
            self.ahead.push(Places::default(), receives, |bytes| {
                buffers.push(IoSliceMut::new(bytes))
            });
        }
        Ok(())
    }

    /// Returns the number of bytes behind the payload of the current segment at `target` that are read into other
    /// memory than that of the next Send.
    fn behind(&self, memory: &Memory, target: Target) -> usize {
        match memory.copyable(matches!(target, Target::Receive { .. })) {
            None => BETWEEN_MESSAGES,
            Some(len) => {
                let next = mpa::LENGTH_FIELD + ddp::UNTAGGED + len;
                BETWEEN_MESSAGES.min(self.stage.trailer_len() + next)
            }
        }
    }

    /// Returns whether the current segment is an RDMA Write behind which others like it are predicted.
    #[inline]
    fn is_in_train(&self) -> bool {
        self.train.expected().is_some()
            && matches!(self.direct(), Some((Target::Region { .. }, ..)))
    }

    /// Returns whether the next bytes are predicted to be an RDMA Write.
    #[inline]
    fn train_is_due(&self, memory: &Memory) -> bool {
        self.train.is_due()
            && matches!(self.stage, Stage::Head)
            && self.start == self.end
            && self.spill.is_empty()
            && self.ahead.is_empty()
            && memory.is_between_messages()
    }

    /// Adds the places for the next bytes while RDMA Writes are predicted: those of the rest of the current one, and of
    /// others.
    fn train_buffers<'a>(
        &'a mut self,
        memory: &'a mut Memory,
        buffers: &mut Buffers<'a>,
    ) -> Result<(), Fault> {
        let Some(of) = self.train.expected() else {
            return Ok(());
        };
        let current = self.direct();
        let (first, first_gap, room) = match current {
            Some((target, ..)) => (of.last.region, of.gap, self.behind(memory, target)),
            None => (of.last.region + 1, train::HEADER, self.room(memory)),
        };
        // Sends between them must not be longer than what may be copied.
        let further = match of.gap <= TRAILER + room + train::HEADER {
            true => self.ahead.further_of(of.last.payload),
            false => 0,
        };
        if let (Some((target, skip, left)), 0) = (current, further) {
            let places = memory.places(target, skip, left);
            let mut places = places.map_err(|code| self.fault(code))?;
            places.take(left, |now| buffers.push(IoSliceMut::new(now)));
            (self.offered, self.asked) = (room, left + room);
            buffers.push(IoSliceMut::new(&mut self.staging[..room]));
            return Ok(());
        }
        let mut regions = memory.regions.in_order(first, 1 + further);
        let alike =
            |region: &&Writable<'_>| region.is_untouched && region.bytes.len() == of.last.room;
        let begun = usize::from(current.is_some());
        let others = regions.iter().skip(begun).take_while(alike).count();
        regions.truncate(begun + others);
        let mut regions = regions.into_iter();
        let mut left = 0;
        if let Some((_, skip, rest)) = current {
            left = rest;
            let region = regions.next();
            let rest = region.and_then(|region| region.bytes.get_mut(skip..skip + rest));
            // It was invalidated in the middle of the segment.
            let rest = rest.ok_or_else(|| self.fault(Code::TAGGED_STAG))?;
            buffers.push(IoSliceMut::new(rest));
        }
        if others == 0 {
            (self.offered, self.asked) = (room, left + room);
            buffers.push(IoSliceMut::new(&mut self.staging[..room]));
            return Ok(());
        }
        self.further = true;
        self.offered = 0;
        let targets = regions.as_slice().iter().map(|region| Target::Region {
            stag: region.stag,
            offset: region.base,
        });
        self.ahead.plan_writes(of, first_gap, targets, room);
        self.asked = left + self.ahead.asked();
        let places = regions.map(|region| Places::one(region.bytes));
        self.ahead.push(Places::default(), places, |bytes| {
            buffers.push(IoSliceMut::new(bytes))
        });
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
            if n > 0 && self.offered == 0 {
                // An RDMA Write was expected.
                self.full = n == self.asked;
                self.ahead.filled(n);
                self.ahead.adapt(self.full);
                return Ok(false);
            }
            let staged = n.min(self.offered);
            self.end += staged;
            self.full = n > 0 && n == self.offered;
            return match n - staged {
                0 => {
                    let expected = self.pattern.expected().filter(|_| self.full);
                    if expected.is_some_and(|lengths| self.is_little_longer(lengths, memory)) {
                        // The read filled its room, so more messages arrive together: they are read into their places
                        // from now on.
                        self.ahead.adapt(true);
                    }
                    Ok(false)
                }
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
        } else if self.is_in_train() {
            match self.further {
                true => self.ahead.filled(beyond),
                false => self.end += beyond,
            }
            if self.further || self.full {
                self.ahead.adapt(self.full);
            }
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

    /// Takes the predicted message that has begun into its receive, if it is one FPDU with a ULPDU of this
    /// length, which has arrived as a whole with nothing behind it. Returns the number of bytes copied. `None`
    /// if it is not so, or if its CRC is wrong: then nothing has changed.
    pub(super) fn take_message(&mut self, ulpdu: usize, receive: &mut Scatter) -> Option<usize> {
        let total = ulpdu - ddp::UNTAGGED;
        let pad = mpa::padding(ulpdu);
        let trailer = self.ahead.only_message(pad + mpa::CRC_FIELD)?;
        let staged = &self.staging[self.start..self.end];
        let head = &staged[mpa::LENGTH_FIELD + ddp::UNTAGGED..];
        if self.check_crc {
            let mut crc = crc32c::crc32c(staged);
            let mut places = receive.places(head.len());
            places.take(total - head.len(), |place| {
                crc = crc32c::crc32c_append(crc, place);
            });
            crc = crc32c::crc32c_append(crc, &trailer[..pad]);
            if crc.to_le_bytes() != trailer[pad..] {
                return None;
            }
        }
        let copied = head.len();
        let mut left = head;
        receive.places(0).take(copied, |place| {
            let (now, later) = left.split_at(place.len());
            place.copy_from_slice(now);
            left = later;
        });
        receive.truncate(total);
        self.ahead.drop_received();
        (self.start, self.end) = (0, 0);
        self.first = total;
        self.note_send(total, total - copied);
        Some(copied)
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
    pub(super) fn refill(&mut self, memory: &mut Memory) -> Result<bool, Fault> {
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
            Some(Piece::Look(range)) => {
                let bytes = self.ahead.gap(range);
                self.staging[self.end..self.end + bytes.len()].copy_from_slice(bytes);
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
                    let places = memory.read_ahead(target, here, len - here);
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
                    if self.ahead.is_of_writes() {
                        self.train.wrong();
                    }
                    self.spill_ahead(beyond, memory)?;
                } else if self.ahead.is_of_writes() {
                    self.train.right();
                }
            }
        }
        Ok(true)
    }

    /// Moves all bytes that were read ahead out of their places, behind `bytes`, which come before them.
    #[cold]
    pub(super) fn spill_ahead(
        &mut self,
        mut bytes: Vec<u8>,
        memory: &mut Memory,
    ) -> Result<(), Fault> {
        let rest = self.ahead.spill(memory);
        bytes.extend(rest.map_err(|code| self.fault(code))?);
        bytes.extend_from_slice(&self.spill[self.spilled..]);
        (self.spill, self.spilled) = (bytes, 0);
        Ok(())
    }

    /// Returns whether RDMA Writes were read ahead, and the segment whose header was parsed is not the predicted one.
    #[inline]
    pub(super) fn is_another_write(&self, target: Target, payload: usize) -> bool {
        self.has_writes_ahead()
            && !(self.start == self.end && self.ahead.is_next_write(target, payload))
    }

    #[inline]
    fn has_writes_ahead(&self) -> bool {
        self.ahead.is_of_writes() && !self.ahead.is_empty()
    }

    /// Prepares for a pause, in which the program may take back memory that bytes were read ahead into.
    #[cold]
    pub(super) fn pause(&mut self, memory: &mut Memory) -> Result<(), Fault> {
        match self.has_writes_ahead() {
            true => self.spill_ahead(Vec::new(), memory),
            false => Ok(()),
        }
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

    /// Moves a partial header or trailer to the front, to make room behind it.
    fn compact(&mut self) {
        if self.start > 0 {
            self.staging.copy_within(self.start..self.end, 0);
            self.end -= self.start;
            self.start = 0;
        }
    }
}
