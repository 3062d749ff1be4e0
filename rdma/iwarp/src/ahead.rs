//! Reading ahead: prediction of the places of the next segments of a long message, so that one
//! system call receives several segments in place.
//!
//! Receiving segment by segment makes TCP send an acknowledgement or two for each, which more than
//! doubles the receiver's work on a fast path. Senders divide a message into equal segments, so the
//! places of the next ones can be predicted: [gap][payload][gap][payload]..., where a gap is the
//! trailer of one FPDU and the header of the next. Headers are checked as usual when they have
//! arrived. If one differs from the prediction, the bytes that were received in the wrong place are
//! moved out again.
//!
//! Only memory whose content is still undefined is used for this: the rest of an RDMA Read's sink,
//! the rest of a posted receive, and the part of a region above everything that the peer has
//! written since it was registered. For a receive of several buffers only the next header is read
//! ahead, or whole messages that are like the ones before them ([`super::pattern`]). The beginnings of other regions
//! are used where RDMA Writes are predicted ([`super::train`]).

use std::ops::Range;

use smallvec::SmallVec;

use super::ddp;
use super::memory::{Memory, Target};
use super::mpa;
use super::pattern::{self, Lengths};
use super::terminate::Code;
use super::train::Expected;
use rdma::{Places, Scatter};

/// Maximum number of segments of one message read ahead.
const MOST: usize = 7;
/// Maximum number of whole messages read ahead, and of their bytes.
const MOST_MESSAGES: usize = 15;
const MOST_MESSAGE_BYTES: usize = 256 << 10;
/// Number of reads in a row with much less than was predicted after which fewer whole messages are predicted. Groups of
/// calls differ in size, and what is left of a large one is small.
const FEW: u8 = 8;
/// Maximum number of gaps.
const MOST_GAPS: usize = MOST_MESSAGES + 1;
/// Maximum length in bytes of a gap: pad, CRC, `ULPDU_Length`, header.
const LONGEST_GAP: usize = 3 + mpa::CRC_FIELD + mpa::LENGTH_FIELD + ddp::UNTAGGED;
/// Length in bytes of `ULPDU_Length` and the header of a Send.
const HEADER: usize = mpa::LENGTH_FIELD + ddp::UNTAGGED;
/// Room in bytes behind the last predicted segment if its message is likely to end there, because a
/// short message may follow.
const AFTER_MESSAGE: usize = 2048;
/// Length in bytes of all gaps without Sends.
const USUAL_BUFFER: usize = MOST_GAPS * LONGEST_GAP + AFTER_MESSAGE;

/// A piece of the received bytes, in the order of the stream.
pub(super) enum Piece {
    /// A few bytes to be parsed: those of [`Ahead::gap`].
    Look(Range<usize>),
    /// Many bytes to be parsed: all that are left.
    Rest,
    /// Payload that was received in its predicted place.
    Placed {
        /// Predicted place of the payload.
        target: Target,
        /// Predicted payload length of the whole segment, bytes, including what was received
        /// elsewhere.
        segment: usize,
        /// Number of its bytes that were received.
        len: usize,
    },
}

/// The plan for one read, and the received bytes.
pub(super) struct Ahead {
    /// The gaps. It is longer once RDMA Writes were predicted, as there are Sends between these.
    buffer: Vec<u8>,
    /// Place of the first predicted payload.
    target: Target,
    /// If the plan begins inside a segment, so that no gap comes first: the number of payload bytes of that segment
    /// that are received elsewhere. Otherwise `None`.
    begun: Option<usize>,
    /// Lengths of the predicted payloads.
    sizes: SmallVec<[usize; MOST]>,
    /// Index of the first predicted payload that is a whole message with memory of its own, as all behind it are.
    /// There is none if it is the number of payloads.
    whole: usize,
    /// Places of the payloads if these are whole RDMA Writes. Otherwise there are none, and whole messages are Sends.
    writes: Vec<Target>,
    /// Length of the first gap and of each other one but the last, bytes.
    first_gap: usize,
    gap: usize,
    /// Length of the last buffer, bytes: a gap, or more if the message is likely to end there.
    last_room: usize,
    /// Number of segments to predict at present: doubled after a success and reset to one after a
    /// failure, so that a peer with irregular messages costs little.
    depth: usize,
    /// Number of whole messages to predict at present: more after a read that filled all its buffers, fewer after
    /// [`FEW`] reads in a row that filled less than a quarter of them. So one call in flight has none.
    messages: usize,
    /// Number of such reads.
    few: u8,
    /// Number of received bytes that have not been returned to a caller.
    left: usize,
    /// Index of the next piece: even numbers are gaps, odd ones payloads.
    next: usize,
}

impl Ahead {
    pub(super) fn new() -> Self {
        Self {
            buffer: vec![0; USUAL_BUFFER],
            target: Target::Nowhere,
            begun: None,
            sizes: SmallVec::new(),
            whole: 0,
            writes: Vec::new(),
            first_gap: 0,
            gap: 0,
            last_room: 0,
            depth: 1,
            messages: 0,
            few: 0,
            left: 0,
            next: 0,
        }
    }

    /// Plans a read behind a segment of `payload` bytes at `target` that is not the last of its
    /// message. If the message will fill its memory, at most `behind` bytes after its end are read.
    /// Returns the number of payload bytes predicted.
    pub(super) fn plan(
        &mut self,
        memory: &Memory,
        target: Target,
        payload: usize,
        behind: usize,
    ) -> usize {
        let header = match target {
            Target::Receive { .. } => ddp::UNTAGGED,
            _ => ddp::TAGGED,
        };
        self.target = target.shifted(payload);
        self.begun = None;
        self.gap = mpa::padding(header + payload) + mpa::CRC_FIELD + mpa::LENGTH_FIELD + header;
        self.first_gap = self.gap;
        self.clear();
        let mut room = memory.room_at(self.target);
        // For a receive of several buffers it is not known where a message ends, and data of the
        // next message for later buffers must not be copied. So only the next header is read ahead.
        let depth = match target {
            Target::Receive { .. } if memory.copyable(false).is_some() => 0,
            _ => self.depth,
        };
        while room > 0 && self.sizes.len() < depth {
            let size = payload.min(room);
            self.sizes.push(size);
            room -= size;
        }
        // A message that fills its memory ends there.
        let fills = room == 0 && !self.sizes.is_empty();
        self.last_room = if fills {
            AFTER_MESSAGE.min(behind)
        } else {
            self.gap
        };
        self.whole = self.sizes.len();
        (self.left, self.next) = (0, 0);
        self.sizes.iter().sum()
    }

    /// Forgets what was predicted.
    fn clear(&mut self) {
        self.sizes.clear();
        self.writes.clear();
    }

    /// Returns how many Sends of these lengths to predict behind another one.
    #[inline]
    pub(super) fn further(&self, of: Lengths) -> usize {
        match of.first == of.total {
            true => self.further_of(of.total),
            false => 0,
        }
    }

    /// Returns how many messages with this payload to predict behind another one.
    #[inline]
    pub(super) fn further_of(&self, payload: usize) -> usize {
        self.messages.min(MOST_MESSAGE_BYTES / payload.max(1))
    }

    /// Plans a read of whole RDMA Writes to `places`, and of `behind` bytes after their end. `first_gap` is the number of
    /// bytes before the payload of the first one.
    pub(super) fn plan_writes(
        &mut self,
        of: Expected,
        first_gap: usize,
        places: impl Iterator<Item = Target>,
        behind: usize,
    ) {
        self.begun = None;
        (self.first_gap, self.gap) = (first_gap, of.gap);
        self.clear();
        self.writes.extend(places);
        let count = self.writes.len();
        self.sizes
            .extend(std::iter::repeat_n(of.last.payload, count));
        self.whole = 0;
        self.last_room = AFTER_MESSAGE.min(behind);
        (self.left, self.next) = (0, 0);
        let needed = count * self.gap + self.last_room;
        if self.buffer.len() < needed {
            self.buffer.resize(needed, 0);
        }
    }

    /// Plans a read of `count` Sends of these lengths, of one segment each, and of `behind` bytes after their end.
    pub(super) fn plan_messages(&mut self, of: Lengths, count: usize, behind: usize) {
        self.begun = None;
        self.set_gap(of);
        self.first_gap = self.gap;
        self.clear();
        self.whole = 0;
        self.sizes.extend(std::iter::repeat_n(of.total, count));
        self.last_room = AFTER_MESSAGE.min(behind);
        (self.left, self.next) = (0, 0);
    }

    /// Sets the length of the gap behind a segment of a Send of these lengths.
    fn set_gap(&mut self, of: Lengths) {
        self.gap = mpa::padding(ddp::UNTAGGED + of.first) + mpa::CRC_FIELD + HEADER;
    }

    /// Plans a read of a whole Send, of which the first `head` bytes of payload are received
    /// elsewhere, of `further` Sends like it if it has one segment, and of `behind` bytes after their end.
    pub(super) fn plan_message(&mut self, head: usize, of: Lengths, further: usize, behind: usize) {
        self.target = Target::Receive { at: head };
        self.begun = Some(head);
        self.set_gap(of);
        self.first_gap = 0;
        self.clear();
        self.sizes.push(of.first - head);
        let mut left = of.total - of.first;
        while left > 0 && self.sizes.len() < MOST {
            let size = of.first.min(left);
            self.sizes.push(size);
            left -= size;
        }
        self.last_room = if left == 0 {
            AFTER_MESSAGE.min(behind)
        } else {
            self.gap
        };
        self.whole = self.sizes.len();
        if further > 0 {
            self.sizes.extend(std::iter::repeat_n(of.total, further));
        }
        (self.left, self.next) = (0, 1);
    }

    /// Passes the buffers of the read to `push`: the gaps, and the predicted memory. `payloads` is that of the
    /// message in progress, or of the one that begins, and `others` are those of whole messages.
    pub(super) fn push<'a>(
        &'a mut self,
        mut payloads: Places<'a>,
        others: impl IntoIterator<Item = Places<'a>>,
        mut push: impl FnMut(&'a mut [u8]),
    ) {
        let mut others = others.into_iter();
        let mut gaps = &mut self.buffer[..];
        for (index, size) in self.sizes.iter().enumerate() {
            let (gap, other_gaps) = gaps.split_at_mut(self.gap);
            match index {
                0 if self.begun.is_some() => {}
                0 => push(&mut gap[..self.first_gap]),
                _ => push(gap),
            }
            if index < self.whole {
                payloads.take(*size, &mut push);
            } else if let Some(mut places) = others.next() {
                places.take(*size, &mut push);
            }
            gaps = other_gaps;
        }
        push(&mut gaps[..self.last_room]);
    }

    /// Records that `n` bytes were received into the buffers.
    pub(super) fn filled(&mut self, n: usize) {
        self.left = n;
        self.next = usize::from(self.begun.is_some());
    }

    /// Returns the length of all buffers of the plan.
    pub(super) fn asked(&self) -> usize {
        let gaps = match self.sizes.len() {
            0 => 0,
            payloads => self.first_gap + (payloads - 1) * self.gap,
        };
        let payload: usize = self.sizes.iter().sum();
        payload + gaps + self.last_room
    }

    /// Returns what follows the payload if the plan is a message in one segment that begins elsewhere, and exactly
    /// that and these `trailer` bytes were received.
    #[inline]
    pub(super) fn only_message(&self, trailer: usize) -> Option<&[u8]> {
        let is_only = self.begun.is_some() && self.sizes.len() == 1;
        let is_whole = is_only && self.left == self.sizes[0] + trailer;
        is_whole.then(|| &self.buffer[self.gap..][..trailer])
    }

    /// Drops the received bytes that have not been returned, as they were used.
    #[inline]
    pub(super) fn drop_received(&mut self) {
        self.left = 0;
    }

    /// Returns the length of the gap before a payload, bytes.
    #[inline]
    fn gap_before(&self, index: usize) -> usize {
        match index {
            0 => self.first_gap,
            _ => self.gap,
        }
    }

    /// Adapts the number of whole messages to predict to the last read. `full` says whether it filled all buffers.
    #[inline]
    pub(super) fn adapt(&mut self, full: bool) {
        if full {
            self.messages = MOST_MESSAGES.min(2 * self.messages + 1);
            self.few = 0;
        } else if self.messages > 0 {
            match self.left < self.asked() / 4 {
                true => self.few += 1,
                false => self.few = 0,
            }
            if self.few == FEW {
                (self.messages, self.few) = (self.messages / 2, 0);
            }
        }
    }

    /// Checks the headers that have arrived of whole Sends, of which the first has this sequence number; with `None`,
    /// none is as predicted. What begins with the first that is not is moved out of `receives`, which are theirs, and
    /// returned, to be parsed behind everything else.
    pub(super) fn check_messages<'a>(
        &mut self,
        number: Option<u32>,
        of: Lengths,
        receives: impl IntoIterator<Item = &'a mut Scatter>,
    ) -> Vec<u8> {
        let mut before = 0;
        for index in 0..self.sizes.len() {
            let gap = self.gap_before(index);
            if self.left < before + gap {
                break;
            }
            if let Some(ahead) = index.checked_sub(self.whole) {
                let header = &self.buffer[(index + 1) * self.gap - HEADER..][..HEADER];
                let number = number.map(|number| number.wrapping_add(ahead as u32));
                let begins = |number| pattern::begins_send(header, number, of.first);
                if !number.is_some_and(begins) {
                    return self.spill_messages(index, before, receives.into_iter().skip(ahead));
                }
            }
            before += gap + self.sizes[index];
        }
        Vec::new()
    }

    /// Returns the received bytes from the gap before the payload with this index on, `before` bytes from the first
    /// one. Its receive is the first of `receives`.
    #[cold]
    fn spill_messages<'a>(
        &mut self,
        index: usize,
        before: usize,
        receives: impl Iterator<Item = &'a mut Scatter>,
    ) -> Vec<u8> {
        let mut left = self.left - before;
        let mut bytes = Vec::with_capacity(left);
        for ((index, size), receive) in (self.sizes.iter().enumerate().skip(index)).zip(receives) {
            let gap = self.gap.min(left);
            bytes.extend_from_slice(&self.buffer[index * self.gap..][..gap]);
            left -= gap;
            let here = left.min(*size);
            let mut places = receive.places(0);
            places.take(here, |piece| bytes.extend_from_slice(piece));
            left -= here;
        }
        let last = self.sizes.len() * self.gap;
        bytes.extend_from_slice(&self.buffer[last..][..left]);
        self.left = before;
        self.messages = 0;
        bytes
    }

    /// Returns the number of whole Sends in the plan.
    #[inline]
    pub(super) fn planned_messages(&self) -> usize {
        self.sizes.len() - self.whole
    }

    /// Returns whether all received bytes have been returned to callers.
    pub(super) fn is_empty(&self) -> bool {
        self.left == 0
    }

    /// Returns the next piece of the received bytes.
    pub(super) fn next(&mut self) -> Option<Piece> {
        if self.left == 0 {
            return None;
        }
        let (index, is_payload) = (self.next / 2, self.next % 2 == 1);
        if is_payload {
            let size = self.sizes[index];
            if index >= self.whole {
                let len = size.min(self.left);
                self.left -= len;
                self.next += 1;
                let write = self.writes.get(index).copied();
                return Some(Piece::Placed {
                    target: write.unwrap_or(Target::Receive { at: 0 }),
                    segment: size,
                    len,
                });
            }
            let elsewhere = self.begun.filter(|_| index == 0).unwrap_or(0);
            let segment = elsewhere + size;
            let len = size.min(self.left);
            let before: usize = self.sizes[..index].iter().sum();
            let target = self.target.shifted(before);
            self.left -= len;
            self.next += 1;
            return Some(Piece::Placed {
                target,
                segment,
                len,
            });
        }
        if index == self.sizes.len() {
            // All predictions were right.
            if index == self.depth && self.begun.is_none() && self.planned_messages() == 0 {
                self.depth = MOST.min(self.depth * 2);
            }
            return Some(Piece::Rest);
        }
        let len = self.gap_before(index).min(self.left);
        let at = index * self.gap;
        self.left -= len;
        self.next += 1;
        Some(Piece::Look(at..at + len))
    }

    /// Returns the bytes of a [`Piece::Look`].
    pub(super) fn gap(&self, bytes: Range<usize>) -> &[u8] {
        &self.buffer[bytes]
    }

    /// Returns whether the plan is of RDMA Writes.
    #[inline]
    pub(super) fn is_of_writes(&self) -> bool {
        !self.writes.is_empty()
    }

    /// Returns whether the next piece is the payload of an RDMA Write of this length to `target`.
    #[inline]
    pub(super) fn is_next_write(&self, target: Target, payload: usize) -> bool {
        let (index, is_payload) = (self.next / 2, self.next % 2 == 1);
        is_payload
            && self.writes.get(index) == Some(&target)
            && self.sizes.get(index) == Some(&payload)
    }

    /// Frees memory that the prediction of RDMA Writes needed, and returns the number of bytes freed.
    pub(super) fn give_back(&mut self) -> usize {
        if self.left > 0 || self.buffer.len() <= USUAL_BUFFER {
            return 0;
        }
        let freed = self.buffer.len() - USUAL_BUFFER + self.writes.capacity() * size_of::<Target>();
        self.buffer = vec![0; USUAL_BUFFER];
        self.writes = Vec::new();
        // `sizes` described a plan with the old gaps; nothing of it is left to be parsed.
        self.sizes.clear();
        freed
    }

    /// Returns whether another payload piece of the same message follows.
    pub(super) fn has_payload(&self) -> bool {
        self.left > 0 && self.next / 2 < self.whole
    }

    /// Moves the bytes behind the last predicted segment to `out`, as many as fit.
    pub(super) fn take_rest(&mut self, out: &mut [u8]) -> usize {
        let at = self.sizes.len() * self.gap;
        let bytes = &self.buffer[at..at + self.left];
        let n = bytes.len().min(out.len());
        out[..n].copy_from_slice(&bytes[..n]);
        // Bytes that did not fit move to the front of the same place.
        self.buffer.copy_within(at + n..at + self.left, at);
        self.left -= n;
        n
    }

    /// Returns all remaining received bytes, because a prediction was wrong.
    pub(super) fn spill(&mut self, memory: &mut Memory) -> Result<Vec<u8>, Code> {
        self.spill_from(|target, len, bytes| {
            let mut places = memory.read_ahead(target, 0, len)?;
            places.take(len, |piece| bytes.extend_from_slice(piece));
            Ok(())
        })
    }

    /// Returns all received bytes, because the message that began is not the predicted one.
    /// `receive` is the memory that they were received into.
    pub(super) fn spill_message(&mut self, receive: &mut Scatter) -> Result<Vec<u8>, Code> {
        self.spill_from(|target, len, bytes| {
            let Target::Receive { at } = target else {
                return Err(Code::STREAM_CATASTROPHIC);
            };
            let mut places = receive.places(at);
            places.take(len, |piece| bytes.extend_from_slice(piece));
            Ok(())
        })
    }

    fn spill_from(
        &mut self,
        mut append: impl FnMut(Target, usize, &mut Vec<u8>) -> Result<(), Code>,
    ) -> Result<Vec<u8>, Code> {
        let mut bytes = Vec::with_capacity(self.left);
        while let Some(piece) = self.next() {
            match piece {
                Piece::Look(gap) => bytes.extend_from_slice(self.gap(gap)),
                Piece::Placed { target, len, .. } => append(target, len, &mut bytes)?,
                Piece::Rest => {
                    let at = self.sizes.len() * self.gap;
                    bytes.extend_from_slice(&self.buffer[at..at + self.left]);
                    self.left = 0;
                }
            }
        }
        match self.is_of_writes() {
            true => self.messages = 0,
            false => self.depth = 1,
        }
        Ok(bytes)
    }
}
