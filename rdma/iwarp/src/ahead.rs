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
//! ahead, or a whole message that is like the ones before it ([`super::pattern`]).

use smallvec::SmallVec;

use super::ddp;
use super::memory::{Memory, Target};
use super::mpa;
use super::pattern::Lengths;
use super::terminate::Code;
use rdma::{Places, Scatter};

/// Maximum number of segments read ahead.
const MOST: usize = 7;
/// Maximum length in bytes of a gap: pad, CRC, `ULPDU_Length`, header.
const LONGEST_GAP: usize = 3 + mpa::CRC_FIELD + mpa::LENGTH_FIELD + ddp::UNTAGGED;
/// Room in bytes behind the last predicted segment if its message is likely to end there, because a
/// short message may follow.
const AFTER_MESSAGE: usize = 2048;

/// A piece of the received bytes, in the order of the stream.
pub(super) enum Piece {
    /// A few bytes to be parsed.
    Look(SmallVec<[u8; 64]>),
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
    buffer: Box<[u8; MOST * LONGEST_GAP + AFTER_MESSAGE]>,
    /// Place of the first predicted payload.
    target: Target,
    /// If the plan begins inside a segment, so that no gap comes first: the number of payload bytes of that segment
    /// that are received elsewhere. Otherwise `None`.
    begun: Option<usize>,
    /// Lengths of the predicted payloads.
    sizes: SmallVec<[usize; MOST]>,
    /// Length of each gap but the last, bytes.
    gap: usize,
    /// Length of the last buffer, bytes: a gap, or more if the message is likely to end there.
    last_room: usize,
    /// Number of segments to predict at present: doubled after a success and reset to one after a
    /// failure, so that a peer with irregular messages costs little.
    depth: usize,
    /// Number of received bytes that have not been returned to a caller.
    left: usize,
    /// Index of the next piece: even numbers are gaps, odd ones payloads.
    next: usize,
}

impl Ahead {
    pub(super) fn new() -> Self {
        Self {
            buffer: Box::new([0; MOST * LONGEST_GAP + AFTER_MESSAGE]),
            target: Target::Nowhere,
            begun: None,
            sizes: SmallVec::new(),
            gap: 0,
            last_room: 0,
            depth: 1,
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
        self.sizes.clear();
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
        (self.left, self.next) = (0, 0);
        self.sizes.iter().sum()
    }

    /// Plans a read of a whole Send, of which the first `head` bytes of payload are received
    /// elsewhere, and of `behind` bytes after its end. Returns the number of payload bytes predicted.
    pub(super) fn plan_message(&mut self, head: usize, of: Lengths, behind: usize) -> usize {
        self.target = Target::Receive { at: head };
        self.begun = Some(head);
        self.gap = mpa::padding(ddp::UNTAGGED + of.first)
            + mpa::CRC_FIELD
            + mpa::LENGTH_FIELD
            + ddp::UNTAGGED;
        self.sizes.clear();
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
        (self.left, self.next) = (0, 1);
        self.sizes.iter().sum()
    }

    /// Passes the buffers of the read to `push`: the gaps, and `payloads`, the predicted memory.
    pub(super) fn push<'a>(
        &'a mut self,
        mut payloads: Places<'a>,
        mut push: impl FnMut(&'a mut [u8]),
    ) {
        let mut gaps = &mut self.buffer[..];
        for (index, size) in self.sizes.iter().enumerate() {
            let (gap, other_gaps) = gaps.split_at_mut(self.gap);
            if index > 0 || self.begun.is_none() {
                push(gap);
            }
            payloads.take(*size, &mut push);
            gaps = other_gaps;
        }
        push(&mut gaps[..self.last_room]);
    }

    /// Records that `n` bytes were received into the buffers.
    pub(super) fn filled(&mut self, n: usize) {
        self.left = n;
        self.next = usize::from(self.begun.is_some());
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
            if index == self.depth && self.begun.is_none() {
                self.depth = MOST.min(self.depth * 2);
            }
            return Some(Piece::Rest);
        }
        let len = self.gap.min(self.left);
        let at = index * self.gap;
        self.left -= len;
        self.next += 1;
        Some(Piece::Look(SmallVec::from_slice(
            &self.buffer[at..at + len],
        )))
    }

    /// Returns whether another payload piece follows.
    pub(super) fn has_payload(&self) -> bool {
        self.left > 0 && self.next / 2 < self.sizes.len()
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
            let mut places = memory.places(target, 0, len)?;
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
                Piece::Look(gap) => bytes.extend_from_slice(&gap),
                Piece::Placed { target, len, .. } => append(target, len, &mut bytes)?,
                Piece::Rest => {
                    let at = self.sizes.len() * self.gap;
                    bytes.extend_from_slice(&self.buffer[at..at + self.left]);
                    self.left = 0;
                }
            }
        }
        self.depth = 1;
        Ok(bytes)
    }
}
