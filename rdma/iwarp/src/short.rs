//! Short Sends. If no other request is in progress, a short Send is framed when it is posted, bypassing
//! the queues, like the "inline" messages of hardware RNICs. Those of one turn of the owner are
//! framed one behind the other, and written to TCP in one piece. A short Send that arrives completely
//! is taken from the staging buffer in one step, bypassing the stages of an FPDU that arrives in parts.

use bytes::Bytes;

use super::conn::{Conn, Cx};
use super::ddp;
use super::endpoint::{Endpoint, Out};
use super::memory::Receive;
use super::mpa;
use super::rdmap::{self, Opcode};
use super::receive::Stage;
use super::socket;
use super::tap::Direction;
use rdma::{Counters, QpId, SendWr, Stag, Success, WrId};

/// Maximum number of bytes in an FPDU that are not payload.
const FRAMING: usize = mpa::LENGTH_FIELD + ddp::UNTAGGED + 3 + mpa::CRC_FIELD;

/// Number of bytes before a Send's payload.
const HEAD: usize = mpa::LENGTH_FIELD + ddp::UNTAGGED;

/// Control fields of the Sends that are taken in one step.
const SEND: u8 = Opcode::Send.control();
const SEND_INVALIDATE: u8 = Opcode::SendInvalidate.control();

impl Endpoint {
    /// Returns whether a Send of `payload` bytes would be sent next, behind other short ones, and fit one short FPDU.
    fn is_short(&self, payload: usize) -> bool {
        self.open
            && payload <= socket::SHORT - FRAMING
            && payload <= self.transmitter.max_payload(ddp::UNTAGGED)
            && self.outstanding < self.limits.send_wr
            && self.short.has_room()
            && self.has_only_short()
    }

    /// Frames `wr` if it is a short Send and only such come before it. Returns false if it must be queued.
    #[inline]
    pub(super) fn post_short(
        &mut self,
        id: WrId,
        wr: &SendWr,
        signaled: bool,
        counters: &mut Counters,
    ) -> bool {
        let SendWr::Send { gather, invalidate } = wr else {
            return false;
        };
        let payload = gather.iter().map(Bytes::len).sum();
        if gather.len() > self.limits.gather || !self.is_short(payload) {
            return false;
        }
        self.frame_short(gather, payload, *invalidate);
        self.short.framed(id, signaled);
        self.outstanding += 1;
        counters.sends += 1;
        counters.sends_with_invalidate += u64::from(invalidate.is_some());
        counters.copied_bytes += payload as u64;
        true
    }

    fn frame_short(&mut self, gather: &[Bytes], payload: usize, invalidate: Option<Stag>) {
        let (opcode, word) = match invalidate {
            Some(stag) => (Opcode::SendInvalidate, stag.0),
            None => (Opcode::Send, 0),
        };
        // Far below 2^16, because `payload` is short.
        let ulpdu = ddp::UNTAGGED + payload;
        let header = self.untagged(opcode, word);
        let has_crc = self.transmitter.has_crc();
        let covered = HEAD + payload + mpa::padding(ulpdu);
        let fpdu = self.short.add(covered + mpa::CRC_FIELD);
        fpdu[..mpa::LENGTH_FIELD].copy_from_slice(&(ulpdu as u16).to_be_bytes());
        header.emit(&mut fpdu[mpa::LENGTH_FIELD..]);
        let mut at = HEAD;
        for bytes in gather {
            fpdu[at..at + bytes.len()].copy_from_slice(bytes);
            at += bytes.len();
        }
        if has_crc {
            let crc = crc32c::crc32c(&fpdu[..covered]);
            fpdu[covered..].copy_from_slice(&crc.to_le_bytes());
        }
    }

    /// Records that TCP took `n` bytes. Returns how many of them are behind the short Sends.
    #[inline]
    pub(super) fn short_sent(&mut self, n: usize, out: &mut Out<'_>) -> usize {
        let Self {
            qp,
            short,
            outstanding,
            ..
        } = self;
        if short.is_empty() {
            return n;
        }
        short.sent(n, |id, signaled| {
            *outstanding -= 1;
            if signaled {
                out.complete(*qp, id, Ok(Success::Send));
            }
        })
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
    /// Writes the short Sends that are framed, if nothing else is to be sent. Returns false if anything is left that
    /// could be.
    #[inline]
    pub(super) fn flush_short(&mut self, cx: &mut Cx<'_>) -> bool {
        let Some(socket) = &self.socket else {
            return true;
        };
        if !self.endpoint.has_only_short() {
            return false;
        }
        let bytes = self.endpoint.short.unsent();
        if bytes.is_empty() || !self.writable {
            return true;
        }
        // An error will occur again when the rest is sent, and is reported then.
        let sent = socket::send_one(socket, bytes).unwrap_or(0);
        cx.counters.wire_bytes_sent += sent as u64;
        cx.show(Direction::Sent, (QpId(self.id), socket), sent, [bytes]);
        let whole = sent == bytes.len();
        self.endpoint.short_sent(sent, &mut cx.out());
        whole
    }
}
