//! Framing of messages as FPDUs in a byte stream, gathered without copying their payload. No I/O.
//!
//! Requests that the owner of the device posts in one turn are written to TCP at its end, that is at the
//! next poll, arm or flush, with one system call for each connection.

use std::collections::VecDeque;
use std::io::IoSlice;

use bytes::Bytes;
use smallvec::SmallVec;

use super::ddp::{self, Header};
use super::mpa;
use super::terminate::MAX_TERMINATE;
use rdma::{Gather, WrId};

/// Maximum number of FPDUs framed ahead of the socket: enough for one large gathered write on a
/// path with small segments.
const MAX_FRAMED: usize = 128;
/// Approximate maximum number of bytes framed ahead of the socket: a large write on a path with
/// large segments.
const MAX_FRAMED_BYTES: usize = 1 << 20;
/// Maximum number of elements of one gathered write; below the limit of every system (`IOV_MAX`).
const MAX_SLICES: usize = 512;
/// Length in bytes of `ULPDU_Length`, DDP header and the longest RDMAP header, that of a Terminate.
const MAX_HEAD: usize = mpa::LENGTH_FIELD + ddp::UNTAGGED + MAX_TERMINATE;

/// Elements of a gathered write.
pub(super) type Slices<'a> = SmallVec<[IoSlice<'a>; 64]>;

/// The request that is done when an FPDU has been written to TCP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Finishes {
    /// A Send or an RDMA Write.
    Work {
        id: WrId,
        signaled: bool,
        write: bool,
    },
    /// The response to a Read Request.
    Response,
    /// No request.
    Nothing,
}

struct Fpdu {
    head: [u8; MAX_HEAD],
    head_len: usize,
    payload: SmallVec<[Bytes; 2]>,
    /// Padding and CRC.
    tail: [u8; 3 + mpa::CRC_FIELD],
    tail_len: usize,
    len: usize,
    finishes: Finishes,
}

impl Fpdu {
    fn pieces(&self) -> impl Iterator<Item = &[u8]> {
        std::iter::once(&self.head[..self.head_len])
            .chain(self.payload.iter().map(|bytes| &bytes[..]))
            .chain(std::iter::once(&self.tail[..self.tail_len]))
    }

    /// Returns the number of payload bytes. A frame that came as a whole has none to count: it is a
    /// set-up frame, or its payload was counted when it was copied into the frame.
    fn carried(&self) -> usize {
        match self.head_len {
            0 => 0,
            _ => self.payload.iter().map(Bytes::len).sum(),
        }
    }
}

/// The sending half of a stream: FPDUs that are framed and not yet written to TCP.
pub(super) struct Transmitter {
    framed: VecDeque<Fpdu>,
    framed_bytes: usize,
    /// Number of bytes of the first FPDU that have been written to TCP.
    written: usize,
    crc: bool,
    max_ulpdu: usize,
}

impl Transmitter {
    pub(super) fn new() -> Self {
        Self {
            framed: VecDeque::new(),
            framed_bytes: 0,
            written: 0,
            crc: false,
            max_ulpdu: mpa::max_ulpdu(0),
        }
    }

    pub(super) fn set_crc(&mut self, on: bool) {
        self.crc = on;
    }

    pub(super) fn has_crc(&self) -> bool {
        self.crc
    }

    /// Returns whether this is another value than before.
    pub(super) fn set_max_ulpdu(&mut self, max: usize) -> bool {
        std::mem::replace(&mut self.max_ulpdu, max) != max
    }

    /// Returns the maximum payload in bytes of a segment with a header of `header` bytes.
    pub(super) fn max_payload(&self, header: usize) -> usize {
        self.max_ulpdu - header
    }

    /// Returns whether more segments should be framed now.
    pub(super) fn has_room(&self) -> bool {
        self.framed.len() < MAX_FRAMED && self.framed_bytes < MAX_FRAMED_BYTES
    }

    pub(super) fn is_empty(&self) -> bool {
        self.framed.is_empty()
    }

    /// Discards all that is framed, as its stream has ended.
    pub(super) fn clear(&mut self) {
        self.framed.clear();
        (self.framed_bytes, self.written) = (0, 0);
    }

    /// Frees memory that more FPDUs needed than are framed now, and returns the number of bytes freed.
    pub(super) fn give_back(&mut self) -> usize {
        rdma::shrink(&mut self.framed)
    }

    /// Frames a segment: header, RDMAP header if it is a Read Request or a Terminate, payload.
    pub(super) fn frame(
        &mut self,
        header: &Header,
        rdmap: &[u8],
        payload: SmallVec<[Bytes; 2]>,
        finishes: Finishes,
    ) {
        let mut head = [0; MAX_HEAD];
        let header_len = header.emit(&mut head[mpa::LENGTH_FIELD..]);
        let head_len = mpa::LENGTH_FIELD + header_len + rdmap.len();
        head[mpa::LENGTH_FIELD + header_len..head_len].copy_from_slice(rdmap);
        let carried: usize = payload.iter().map(Bytes::len).sum();
        let ulpdu = head_len - mpa::LENGTH_FIELD + carried;
        debug_assert!(ulpdu <= usize::from(u16::MAX), "ULPDU of {ulpdu} bytes");
        let length = u16::try_from(ulpdu).unwrap_or(u16::MAX);
        head[..mpa::LENGTH_FIELD].copy_from_slice(&length.to_be_bytes());
        let pad = mpa::padding(ulpdu);
        let mut tail = [0; 3 + mpa::CRC_FIELD];
        if self.crc {
            let mut crc = crc32c::crc32c(&head[..head_len]);
            for bytes in &payload {
                crc = crc32c::crc32c_append(crc, bytes);
            }
            crc = crc32c::crc32c_append(crc, &tail[..pad]);
            tail[pad..pad + mpa::CRC_FIELD].copy_from_slice(&crc.to_le_bytes());
        }
        let tail_len = pad + mpa::CRC_FIELD;
        self.push(Fpdu {
            head,
            head_len,
            payload,
            tail,
            tail_len,
            len: head_len + carried + tail_len,
            finishes,
        });
    }

    /// Queues bytes that are already framed: a set-up frame, or an FPDU of which `written` bytes
    /// have been written to TCP, before which nothing may be queued then.
    pub(super) fn raw(&mut self, bytes: Bytes, written: usize, finishes: Finishes) {
        debug_assert!(written == 0 || self.is_empty(), "what is begun comes first");
        let len = bytes.len();
        let mut payload = SmallVec::new();
        payload.push(bytes);
        self.push(Fpdu {
            head: [0; MAX_HEAD],
            head_len: 0,
            payload,
            tail: [0; 3 + mpa::CRC_FIELD],
            tail_len: 0,
            len,
            finishes,
        });
        self.written += written;
        self.framed_bytes -= written;
    }

    fn push(&mut self, fpdu: Fpdu) {
        self.framed_bytes += fpdu.len;
        self.framed.push_back(fpdu);
    }

    /// Gathers the next bytes of the stream, as many as one write should have. Returns their
    /// number.
    pub(super) fn gather<'a>(&'a self, slices: &mut Slices<'a>) -> usize {
        let mut skip = self.written;
        let mut total = 0;
        for piece in self.framed.iter().flat_map(Fpdu::pieces) {
            let skipped = skip.min(piece.len());
            skip -= skipped;
            let rest = &piece[skipped..];
            if rest.is_empty() {
                continue;
            }
            if slices.len() == MAX_SLICES {
                break;
            }
            total += rest.len();
            slices.push(IoSlice::new(rest));
        }
        total
    }

    /// Returns the number of payload bytes in FPDUs that have not been written to TCP.
    pub(super) fn payload(&self) -> usize {
        let framed: usize = self.framed.iter().map(Fpdu::carried).sum();
        let written = self.framed.front().map_or(0, |first| {
            let behind_head = self.written.saturating_sub(first.head_len);
            behind_head.min(first.carried())
        });
        framed - written
    }

    /// Records that `n` of the gathered bytes were written to TCP.
    pub(super) fn sent(&mut self, n: usize, mut finished: impl FnMut(Finishes)) {
        self.written += n;
        self.framed_bytes -= n;
        while let Some(first) = self.framed.front() {
            if self.written < first.len {
                break;
            }
            self.written -= first.len;
            finished(first.finishes);
            self.framed.pop_front();
        }
    }

    /// Returns how many bytes of the message at the end of the queue, of which `framed` bytes are
    /// framed, [`Transmitter::cut`] would drop.
    pub(super) fn would_cut(&self, framed: usize) -> usize {
        let keep = usize::from(self.written > 0);
        let mut dropped = 0;
        for fpdu in self.framed.iter().skip(keep).rev() {
            if dropped == framed {
                break;
            }
            dropped += fpdu.payload.iter().map(Bytes::len).sum::<usize>();
        }
        dropped
    }

    /// Drops every FPDU of which nothing was sent, so that a Terminate can follow at the next FPDU
    /// boundary. Reports the requests that they, and the partially sent FPDU, would have finished.
    pub(super) fn cut(&mut self, mut unfinished: impl FnMut(Finishes)) {
        let keep = usize::from(self.written > 0);
        for fpdu in &mut self.framed {
            unfinished(std::mem::replace(&mut fpdu.finishes, Finishes::Nothing));
        }
        self.framed.truncate(keep);
        let left: usize = self.framed.iter().map(|fpdu| fpdu.len).sum();
        self.framed_bytes = left - self.written;
    }
}

/// A message that is being divided into segments.
pub(super) struct Outgoing {
    /// Header of the first segment; `last` and offsets are set for each segment.
    pub(super) header: Header,
    pub(super) payload: Gather,
    /// Maximum payload of a segment in bytes. It is the same for all segments of the message, even
    /// if the path's MSS changes, so that a receiver can predict their places.
    pub(super) most: usize,
    /// Number of payload bytes not yet in a segment.
    pub(super) left: usize,
    /// Number of payload bytes in segments.
    pub(super) done: usize,
    pub(super) finishes: Finishes,
}

impl Outgoing {
    /// Frames the next segment. Returns true if it was the last.
    pub(super) fn frame_next(&mut self, transmitter: &mut Transmitter) -> bool {
        let len = self.left.min(self.most);
        let payload = take(&mut self.payload, len);
        self.left -= len;
        let last = self.left == 0;
        let finishes = if last {
            self.finishes
        } else {
            Finishes::Nothing
        };
        transmitter.frame(&self.header.at(self.done, last), &[], payload, finishes);
        self.done += len;
        last
    }
}

impl Header {
    /// Returns the header of the segment at offset `done` of the message that starts with this
    /// header.
    pub(super) fn at(&self, done: usize, last: bool) -> Self {
        let mut header = *self;
        header.last = last;
        match &mut header.placement {
            ddp::Placement::Tagged { offset, .. } => *offset = offset.wrapping_add(done as u64),
            ddp::Placement::Untagged { offset, .. } => *offset = done as u32,
        }
        header
    }
}

/// Removes `len` bytes from the front of a gather list, and returns them.
fn take(from: &mut Gather, mut len: usize) -> SmallVec<[Bytes; 2]> {
    let mut taken = SmallVec::new();
    let mut whole = 0;
    for bytes in from.iter_mut() {
        if bytes.len() > len {
            if len > 0 {
                taken.push(bytes.split_to(len));
            }
            break;
        }
        len -= bytes.len();
        let all = std::mem::take(bytes);
        if !all.is_empty() {
            taken.push(all);
        }
        whole += 1;
    }
    from.drain(..whole);
    taken
}
