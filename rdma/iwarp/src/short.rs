//! Short Sends. If no other request is in progress, a short Send is framed in one piece and written
//! to TCP at once, bypassing the queues, like the "inline" messages of hardware RNICs. A short Send
//! that arrives completely is taken from the staging buffer in one step, bypassing the stages of an
//! FPDU that arrives in parts.

use bytes::Bytes;

use super::conn::{Conn, Cx};
use super::ddp;
use super::endpoint::{Current, Endpoint, Out};
use super::memory::Receive;
use super::mpa;
use super::outbound::finishes;
use super::rdmap::{self, Opcode};
use super::receive::Stage;
use super::socket;
use super::tap::Direction;
use rdma::{QpId, SendWr, Stag, Success, WrId};

/// Maximum number of bytes in an FPDU that are not payload.
const FRAMING: usize = mpa::LENGTH_FIELD + ddp::UNTAGGED + 3 + mpa::CRC_FIELD;

/// Number of bytes before a Send's payload.
const HEAD: usize = mpa::LENGTH_FIELD + ddp::UNTAGGED;

/// Control fields of the Sends that are taken in one step.
const SEND: u8 = Opcode::Send.control();
const SEND_INVALIDATE: u8 = Opcode::SendInvalidate.control();

/// The outcome of trying a short Send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Short {
    /// The Send is not short, or other requests come first: it must be posted.
    Not,
    /// TCP accepted the whole Send.
    Sent,
    /// TCP accepted a part of the Send or nothing; the rest is queued.
    Queued,
}

impl Endpoint {
    /// Returns whether a Send of `payload` bytes would be sent next and fit one short FPDU.
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

    fn frame_short(&mut self, gather: &[Bytes], payload: usize, invalidate: Option<Stag>) {
        let (opcode, word) = match invalidate {
            Some(stag) => (Opcode::SendInvalidate, stag.0),
            None => (Opcode::Send, 0),
        };
        // Far below 2^16, because `payload` is short.
        let ulpdu = ddp::UNTAGGED + payload;
        let header = self.untagged(opcode, word);
        let fpdu = &mut self.short;
        fpdu.len = 0;
        fpdu.push(&(ulpdu as u16).to_be_bytes());
        fpdu.len += header.emit(&mut fpdu.bytes[mpa::LENGTH_FIELD..]);
        for bytes in gather {
            fpdu.push(bytes);
        }
        fpdu.push(&[0; 3][..mpa::padding(ulpdu)]);
        let crc = match self.transmitter.has_crc() {
            true => crc32c::crc32c(fpdu.bytes()),
            false => 0,
        };
        fpdu.push(&crc.to_le_bytes());
    }
}

impl Endpoint {
    /// Takes the most common kind of message: a Send, with or without Invalidate, in one FPDU that
    /// is completely staged, is next in order, and fits the next receive. Its header is compared
    /// with the only one that such a Send can have. Returns false, without effect, for anything
    /// else and for any error; the regular stages then parse it.
    pub(super) fn take_send(&mut self, out: &mut Out<'_>) -> bool {
        let Self {
            receiver, memory, ..
        } = self;
        let staged = &receiver.staging[receiver.start..receiver.end];
        let between = matches!(receiver.stage, Stage::Head) && memory.is_between_messages();
        let Some(head) = staged.first_chunk::<HEAD>().filter(|_| between) else {
            return false;
        };
        let ulpdu = usize::from(u16::from_be_bytes([head[0], head[1]]));
        let covered = mpa::LENGTH_FIELD + ulpdu + mpa::padding(ulpdu);
        let queue = rdmap::SEND_QUEUE;
        // All fields except the length, the opcode, and the four bytes that have a meaning only in
        // a Send with Invalidate.
        let next = ddp::first_of_one(head[3], queue, memory.msn[queue as usize]);
        if head[2] != next[0] || head[8..HEAD] != next[6..] || ulpdu < ddp::UNTAGGED {
            return false;
        }
        let invalidated = match head[3] {
            SEND => None,
            SEND_INVALIDATE => Some(u32::from_be_bytes([head[4], head[5], head[6], head[7]])),
            _ => return false,
        };
        let Some(fpdu) = staged.get(..covered + mpa::CRC_FIELD) else {
            return false;
        };
        let (payload, crc) = (&fpdu[HEAD..mpa::LENGTH_FIELD + ulpdu], &fpdu[covered..]);
        if receiver.check_crc && crc32c::crc32c(&fpdu[..covered]).to_le_bytes() != crc {
            return false;
        }
        if invalidated.is_some_and(|stag| !memory.regions.is_valid(stag)) {
            return false;
        }
        if memory.receives.is_empty() && !memory.take_shared(out) {
            return false;
        }
        if !memory
            .receives
            .front_mut()
            .is_some_and(|receive| receive.buf.fill(payload))
        {
            return false;
        }
        let copied = payload.len() as u64;
        (receiver.raw, receiver.raw_len) = (*head, HEAD);
        receiver.start += fpdu.len();
        receiver.note_short(copied as usize);
        memory.msn[queue as usize] = memory.msn[queue as usize].wrapping_add(1);
        out.counters.copied_bytes += copied;
        out.counters.receives += 1;
        if let Some(stag) = invalidated {
            memory.regions.invalidate(stag);
            out.counters.remote_invalidations += 1;
        }
        (self.open, self.heard) = (true, true);
        if let Some(Receive { id, buf }) = self.memory.receives.pop_front() {
            let invalidated = invalidated.map(Stag);
            out.complete(self.qp, id, Ok(Success::Receive { buf, invalidated }));
        }
        true
    }
}

impl Conn {
    /// Sends `wr` at once if it is a short Send and nothing is queued before it.
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
        self.endpoint.frame_short(gather, payload, *invalidate);
        cx.counters.sends += 1;
        cx.counters.sends_with_invalidate += u64::from(invalidate.is_some());
        cx.counters.copied_bytes += payload as u64;
        let bytes = self.endpoint.short.bytes();
        // An error will occur again when the rest is sent, and is reported then.
        let sent = socket::send_one(socket, bytes).unwrap_or(0);
        cx.counters.wire_bytes_sent += sent as u64;
        cx.show(Direction::Sent, (QpId(self.id), socket), sent, [bytes]);
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
