//! Reading ahead: where the following segments of a long message would go if they are like the
//! one at hand, so that one system call receives several of them in place.
//!
//! Receiving segment by segment costs TCP an acknowledgement or two for each, which more than
//! doubles the receiver's work on a fast path. Senders cut a message into equal segments, so the
//! places of the next ones can be foreseen: [gap][payload][gap][payload]..., where a gap is the
//! trailer of one FPDU and the header of the next. Headers are checked as ever when they are
//! there. If one differs, the bytes that were received at the wrong place are taken out again.
//!
//! Only memory whose content does not matter yet is used for this: the rest of an RDMA Read's
//! sink, the rest of a posted receive, and the part of a region above everything that the peer has
//! written since it was registered. For receives in several pieces nothing is foreseen but headers.

use smallvec::SmallVec;

use super::ddp;
use super::memory::{Memory, Target};
use super::mpa;
use super::terminate::Code;
use rdma::Places;

/// Segments read ahead, at most.
const MOST: usize = 7;
/// Longest gap: pad, CRC, `ULPDU_Length`, header.
const LONGEST_GAP: usize = 3 + mpa::CRC_FIELD + mpa::LENGTH_FIELD + ddp::UNTAGGED;
/// Room behind the last segment read ahead when its message is likely to end there: what follows
/// may be a short message.
const AFTER_MESSAGE: usize = 2048;

/// A piece of what was received, in the stream's order.
pub(super) enum Piece {
    /// Bytes to be looked at.
    Look(SmallVec<[u8; 64]>),
    /// Bytes to be looked at, many.
    Rest,
    /// Payload that is in its foreseen place: that place, and how many bytes of it came.
    Placed {
        /// Foreseen target and length of the segment.
        target: Target,
        segment: usize,
        /// Bytes that are there.
        len: usize,
    },
}

/// The plan for one read, and what it brought.
pub(super) struct Ahead {
    buffer: Box<[u8; MOST * LONGEST_GAP + AFTER_MESSAGE]>,
    /// Where the first foreseen payload starts.
    target: Target,
    /// Lengths of the foreseen payloads.
    sizes: SmallVec<[usize; MOST]>,
    gap: usize,
    last_room: usize,
    /// Segments to foresee at present: doubled by success, back to one by failure, so that a peer
    /// whose messages are not what they seem costs little.
    depth: usize,
    /// Bytes that were received and not handed out.
    left: usize,
    /// The next piece: even numbers are gaps, odd ones payloads.
    next: usize,
}

impl Ahead {
    pub(super) fn new() -> Self {
        Self {
            buffer: Box::new([0; MOST * LONGEST_GAP + AFTER_MESSAGE]),
            target: Target::Nowhere,
            sizes: SmallVec::new(),
            gap: 0,
            last_room: 0,
            depth: 1,
            left: 0,
            next: 0,
        }
    }

    /// Plans a read behind a segment that is not its message's last, has `payload` bytes and goes
    /// to `target`. Behind the message that ends where it fills its memory, `behind` bytes are read
    /// at most. Returns how many bytes of payload are foreseen.
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
        self.gap = mpa::padding(header + payload) + mpa::CRC_FIELD + mpa::LENGTH_FIELD + header;
        self.sizes.clear();
        let mut room = memory.room_at(self.target);
        // Where a message ends is not known, and what the next one has for other pieces of a receive
        // than the first is not to be copied: only the next header is read ahead then.
        let depth = match target {
            Target::Receive { .. } if memory.copyable(false).is_some() => 0,
            _ => self.depth,
        };
        while room > 0 && self.sizes.len() < depth {
            let size = payload.min(room);
            self.sizes.push(size);
            room -= size;
        }
        // A message that fills its memory ends with it.
        let fills = room == 0 && !self.sizes.is_empty();
        self.last_room = if fills {
            AFTER_MESSAGE.min(behind)
        } else {
            self.gap
        };
        (self.left, self.next) = (0, 0);
        self.sizes.iter().sum()
    }

    /// The plan's buffers around `payloads`, the memory foreseen.
    pub(super) fn push<'a>(
        &'a mut self,
        mut payloads: Places<'a>,
        mut push: impl FnMut(&'a mut [u8]),
    ) {
        let mut gaps = &mut self.buffer[..];
        for size in &self.sizes {
            let (gap, other_gaps) = gaps.split_at_mut(self.gap);
            push(gap);
            payloads.take(*size, &mut push);
            gaps = other_gaps;
        }
        push(&mut gaps[..self.last_room]);
    }

    /// `n` bytes were received into them.
    pub(super) fn filled(&mut self, n: usize) {
        self.left = n;
        self.next = 0;
    }

    /// Whether everything that was received has been handed out.
    pub(super) fn is_empty(&self) -> bool {
        self.left == 0
    }

    /// The next piece of what was received.
    pub(super) fn next(&mut self) -> Option<Piece> {
        if self.left == 0 {
            return None;
        }
        let (index, is_payload) = (self.next / 2, self.next % 2 == 1);
        if is_payload {
            let segment = self.sizes[index];
            let len = segment.min(self.left);
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
            // Everything was where it was foreseen.
            if index == self.depth {
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

    /// Whether another payload piece follows.
    pub(super) fn has_payload(&self) -> bool {
        self.left > 0 && self.next / 2 < self.sizes.len()
    }

    /// Moves the bytes behind the last foreseen segment to `out`, as many as fit.
    pub(super) fn take_rest(&mut self, out: &mut [u8]) -> usize {
        let at = self.sizes.len() * self.gap;
        let bytes = &self.buffer[at..at + self.left];
        let n = bytes.len().min(out.len());
        out[..n].copy_from_slice(&bytes[..n]);
        // What did not fit goes on at the front of the same place.
        self.buffer.copy_within(at + n..at + self.left, at);
        self.left -= n;
        n
    }

    /// The plan was wrong: everything that was received and not handed out, as plain bytes.
    pub(super) fn spill(&mut self, memory: &mut Memory) -> Result<Vec<u8>, Code> {
        let mut bytes = Vec::with_capacity(self.left);
        while let Some(piece) = self.next() {
            match piece {
                Piece::Look(gap) => bytes.extend_from_slice(&gap),
                Piece::Placed { target, len, .. } => {
                    let mut places = memory.places(target, 0, len)?;
                    places.take(len, |piece| bytes.extend_from_slice(piece));
                }
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
