//! A short Send when nothing else is under way: framed in one piece and handed to TCP at once, past
//! the queues. Real RNICs take short messages "inline" for the same reason.

use bytes::Bytes;

use super::conn::{Conn, Cx};
use super::ddp;
use super::endpoint::{Current, Endpoint};
use super::mpa;
use super::outbound::finishes;
use super::rdmap::Opcode;
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
    fn push(&mut self, bytes: &[u8]) {
        self.bytes[self.len..self.len + bytes.len()].copy_from_slice(bytes);
        self.len += bytes.len();
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

    fn frame_short(&mut self, gather: &[Bytes], payload: usize, invalidate: Option<Stag>) -> Fpdu {
        let (opcode, word) = match invalidate {
            Some(stag) => (Opcode::SendInvalidate, stag.0),
            None => (Opcode::Send, 0),
        };
        let header = self.untagged(opcode, word);
        let mut fpdu = Fpdu {
            bytes: [0; socket::SHORT],
            len: mpa::LENGTH_FIELD,
        };
        fpdu.len += header.emit(&mut fpdu.bytes[mpa::LENGTH_FIELD..]);
        for bytes in gather {
            fpdu.push(bytes);
        }
        // Far below 2^16, as `payload` is short.
        let ulpdu = ddp::UNTAGGED + payload;
        fpdu.bytes[..mpa::LENGTH_FIELD].copy_from_slice(&(ulpdu as u16).to_be_bytes());
        fpdu.len += mpa::padding(ulpdu);
        let crc = match self.transmitter.has_crc() {
            true => crc32c::crc32c(&fpdu.bytes[..fpdu.len]),
            false => 0,
        };
        fpdu.push(&crc.to_le_bytes());
        fpdu
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
        let fpdu = self.endpoint.frame_short(gather, payload, *invalidate);
        cx.counters.sends += 1;
        cx.counters.sends_with_invalidate += u64::from(invalidate.is_some());
        cx.counters.copied_bytes += payload as u64;
        let bytes = &fpdu.bytes[..fpdu.len];
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
