//! Short Sends. When nothing else is under way, one is framed in one piece and handed to TCP at once,
//! past the queues: real RNICs take short messages "inline" for the same reason. One that arrived
//! whole is taken out of the staging buffer in one go, past the stages of an FPDU that comes in parts.

use bytes::Bytes;

use super::conn::{Conn, Cx};
use super::ddp::{self, HeaderView};
use super::endpoint::{Current, Endpoint};
use super::memory::{Memory, Target};
use super::mpa;
use super::outbound::finishes;
use super::rdmap::Opcode;
use super::receive::{Receiver, Segment};
use super::socket;
use crate::{SendWr, Stag, Success, WrId};

/// Bytes of an FPDU that are not payload, at most.
const FRAMING: usize = mpa::LENGTH_FIELD + ddp::UNTAGGED + 3 + mpa::CRC_FIELD;

/// What became of a Send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Short {
    /// It is not short, or not the only thing to do: post it.
    Not,
    /// TCP has it.
    Sent,
    /// TCP has a part of it or nothing; the rest is queued.
    Queued,
}

/// An FPDU in one piece.
struct Fpdu {
    bytes: [u8; socket::SHORT],
    len: usize,
}

impl Fpdu {
    const fn new() -> Self {
        Self {
            bytes: [0; socket::SHORT],
            len: 0,
        }
    }

    #[inline]
    fn push(&mut self, bytes: &[u8]) {
        let end = self.len + bytes.len();
        self.bytes[self.len..end].copy_from_slice(bytes);
        self.len = end;
    }

    fn bytes(&self) -> &[u8] {
        &self.bytes[..self.len]
    }
}

impl Endpoint {
    /// Whether a Send of `payload` bytes would be next, and alone in one short FPDU.
    fn is_short(&self, payload: usize) -> bool {
        self.open
            && payload <= socket::SHORT - FRAMING
            && payload <= self.transmitter.max_payload(ddp::UNTAGGED)
            && self.outstanding < self.limits.send_wr
            && self.work.is_empty()
            && self.responses.is_empty()
            && matches!(self.current, Current::Nothing)
            && self.transmitter.is_empty()
    }

    fn frame_short(
        &mut self,
        fpdu: &mut Fpdu,
        gather: &[Bytes],
        payload: usize,
        invalidate: Option<Stag>,
    ) {
        let (opcode, word) = match invalidate {
            Some(stag) => (Opcode::SendInvalidate, stag.0),
            None => (Opcode::Send, 0),
        };
        // Far below 2^16, as `payload` is short.
        let ulpdu = ddp::UNTAGGED + payload;
        fpdu.push(&(ulpdu as u16).to_be_bytes());
        let header = self.untagged(opcode, word);
        fpdu.len += header.emit(&mut fpdu.bytes[mpa::LENGTH_FIELD..]);
        for bytes in gather {
            fpdu.push(bytes);
        }
        fpdu.len += mpa::padding(ulpdu);
        let crc = match self.transmitter.has_crc() {
            true => crc32c::crc32c(fpdu.bytes()),
            false => 0,
        };
        fpdu.push(&crc.to_le_bytes());
    }
}

impl Receiver {
    /// The Send at the front of what is staged, if all of it is there, in one FPDU, and nothing is
    /// wrong with it. If not, the stages are to look at it.
    pub(super) fn short(&mut self, memory: &mut Memory) -> Option<Segment> {
        let staged = &self.staging[self.start..self.end];
        let (length, rest) = staged.split_first_chunk::<{ mpa::LENGTH_FIELD }>()?;
        let ulpdu = usize::from(u16::from_be_bytes(*length));
        let payload = ulpdu.checked_sub(ddp::UNTAGGED)?;
        let covered = mpa::LENGTH_FIELD + ulpdu + mpa::padding(ulpdu);
        let (fpdu, crc) = staged
            .get(..covered + mpa::CRC_FIELD)?
            .split_at_checked(covered)?;
        let header = HeaderView::new(rest)?.to_header().ok()?;
        if !header.last {
            return None;
        }
        let (opcode, target) = memory.place(&header, payload).ok()?;
        if !matches!(target, Target::Receive { .. })
            || (self.check_crc && crc32c::crc32c(fpdu).to_le_bytes() != crc)
        {
            return None;
        }
        let (head, mut bytes) =
            fpdu.split_first_chunk::<{ mpa::LENGTH_FIELD + ddp::UNTAGGED }>()?;
        let mut places = memory.places(target, 0, payload).ok()?;
        places.take(payload, |place| {
            let (now, later) = bytes.split_at(place.len());
            place.copy_from_slice(now);
            bytes = later;
        });
        (self.raw, self.raw_len) = (*head, head.len());
        self.start += covered + mpa::CRC_FIELD;
        Some(Segment {
            header,
            opcode,
            target,
            payload,
        })
    }
}

impl Conn {
    /// Sends `wr` at once if it is a short Send and nothing is before it.
    pub(super) fn send_short(
        &mut self,
        id: WrId,
        wr: &SendWr,
        signaled: bool,
        cx: &mut Cx<'_>,
    ) -> Short {
        let (SendWr::Send { gather, invalidate }, Some(socket)) = (wr, &self.socket) else {
            return Short::Not;
        };
        let payload = gather.iter().map(Bytes::len).sum();
        if !self.writable
            || gather.len() > self.endpoint.limits.gather
            || !self.endpoint.is_short(payload)
        {
            return Short::Not;
        }
        let mut fpdu = Fpdu::new();
        self.endpoint
            .frame_short(&mut fpdu, gather, payload, *invalidate);
        cx.counters.sends += 1;
        cx.counters.sends_with_invalidate += u64::from(invalidate.is_some());
        cx.counters.copied_bytes += payload as u64;
        let bytes = fpdu.bytes();
        // An error is met again when the rest is sent, and reported then.
        let sent = socket::send_one(socket, bytes).unwrap_or(0);
        cx.counters.wire_bytes_sent += sent as u64;
        if sent < bytes.len() {
            self.endpoint.outstanding += 1;
            let rest = Bytes::copy_from_slice(bytes);
            let finishes = finishes(id, signaled, false);
            self.endpoint.transmitter.raw(rest, sent, finishes);
            return Short::Queued;
        }
        if signaled {
            let qp = self.qp();
            cx.out().complete(qp, id, Ok(Success::Send));
        }
        Short::Sent
    }
}
