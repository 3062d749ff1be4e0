//! Short Sends. If no other request is in progress, a short Send is framed when it is posted, bypassing
//! the queues, like the "inline" messages of hardware RNICs. Those of one turn of the owner are
//! framed one behind the other, and written to TCP in one piece. A short Send that arrives completely
//! is taken from the staging buffer in one step, bypassing the stages of an FPDU that arrives in parts. So is a
//! longer one that was predicted.

use bytes::Bytes;

use super::conn::{Conn, Cx};
use super::ddp;
use super::endpoint::{Endpoint, Out};
use super::memory::{Memory, Receive};
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
        let gather: &[Bytes] = gather;
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
        let msn = &mut self.msn[rdmap::SEND_QUEUE as usize];
        let header = ddp::first_of_one(opcode.control(), word, rdmap::SEND_QUEUE, *msn);
        *msn = msn.wrapping_add(1);
        let covered = HEAD + payload + mpa::padding(ulpdu);
        let fpdu = self.short.add(covered + mpa::CRC_FIELD);
        let (length, rest) = fpdu.split_at_mut(mpa::LENGTH_FIELD);
        length.copy_from_slice(&(ulpdu as u16).to_be_bytes());
        let (head, mut rest) = rest.split_at_mut(ddp::UNTAGGED);
        head.copy_from_slice(&header);
        for bytes in gather {
            let (here, behind) = rest.split_at_mut(bytes.len());
            here.copy_from_slice(bytes);
            rest = behind;
        }
        if self.transmitter.has_crc() {
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

/// The header of a Send in one FPDU that is next in order.
struct NextSend {
    head: [u8; HEAD],
    ulpdu: usize,
    /// The handle to invalidate, if it is a Send with Invalidate.
    invalidated: Option<u32>,
}

impl NextSend {
    /// Returns the header with which `staged` begins. It is compared with the only one that such a Send can
    /// have. Returns `None` for anything else.
    #[inline]
    fn of(staged: &[u8], memory: &Memory) -> Option<Self> {
        let head = staged.first_chunk::<HEAD>()?;
        let ulpdu = usize::from(u16::from_be_bytes([head[0], head[1]]));
        let queue = rdmap::SEND_QUEUE;
        // All fields except the length, the opcode, and the four bytes that have a meaning only in
        // a Send with Invalidate.
        let next = ddp::first_of_one(head[3], 0, queue, memory.msn[queue as usize]);
        if head[2] != next[0] || head[8..HEAD] != next[6..] || ulpdu < ddp::UNTAGGED {
            return None;
        }
        let invalidated = match head[3] {
            SEND => None,
            SEND_INVALIDATE => Some(u32::from_be_bytes([head[4], head[5], head[6], head[7]])),
            _ => return None,
        };
        Some(Self {
            head: *head,
            ulpdu,
            invalidated,
        })
    }

    /// Returns whether the handle that it invalidates, if it does, is valid.
    #[inline]
    fn may_invalidate(&self, memory: &Memory) -> bool {
        let invalidated = self.invalidated;
        invalidated.is_none_or(|stag| memory.regions.is_valid(stag))
    }
}

impl Endpoint {
    /// Takes the most common kind of message: a Send, with or without Invalidate, in one FPDU that
    /// is completely staged, is next in order, and fits the next receive. Returns false, without
    /// effect, for anything else and for any error; the regular stages then parse it.
    pub(super) fn take_send(&mut self, out: &mut Out<'_>) -> bool {
        let Self {
            receiver, memory, ..
        } = self;
        if !(matches!(receiver.stage, Stage::Head) && memory.is_between_messages()) {
            return false;
        }
        let staged = &receiver.staging[receiver.start..receiver.end];
        let Some(next) = NextSend::of(staged, memory) else {
            return false;
        };
        let covered = mpa::LENGTH_FIELD + next.ulpdu + mpa::padding(next.ulpdu);
        let Some(fpdu) = staged.get(..covered + mpa::CRC_FIELD) else {
            return false;
        };
        let (payload, crc) = (
            &fpdu[HEAD..mpa::LENGTH_FIELD + next.ulpdu],
            &fpdu[covered..],
        );
        if receiver.check_crc && crc32c::crc32c(&fpdu[..covered]).to_le_bytes() != crc {
            return false;
        }
        if !next.may_invalidate(memory) {
            return false;
        }
        if memory.receives.is_empty() && !memory.take_shared(out) {
            return false;
        }
        let copied = payload.len();
        let Some(receive) = memory.receives.front_mut() else {
            return false;
        };
        let beyond = receive.buf.beyond_head(copied);
        if !receive.buf.fill(payload) {
            return false;
        }
        receiver.start += fpdu.len();
        receiver.note_short(copied, beyond);
        self.complete_send(&next, copied, out);
        true
    }

    /// Takes a predicted message that has arrived as a whole, with nothing behind it: a Send in one FPDU,
    /// of which only the header and what belongs into the first buffer of the receive are staged. Returns
    /// false, without effect, for anything else and for any error, as [`Endpoint::take_send`] does.
    pub(super) fn take_predicted(&mut self, out: &mut Out<'_>) -> bool {
        let Self {
            receiver, memory, ..
        } = self;
        let staged = &receiver.staging[receiver.start..receiver.end];
        let next = NextSend::of(staged, memory).filter(|next| next.may_invalidate(memory));
        let Some((next, receive)) = next.zip(memory.receives.front_mut()) else {
            return false;
        };
        let Some(copied) = receiver.take_message(next.ulpdu, &mut receive.buf) else {
            return false;
        };
        self.complete_send(&next, copied, out);
        true
    }

    /// Completes the first receive, in which the message with this header has arrived. `copied` bytes of it
    /// came from the staging buffer.
    #[inline]
    fn complete_send(&mut self, next: &NextSend, copied: usize, out: &mut Out<'_>) {
        let Self {
            receiver, memory, ..
        } = self;
        (receiver.raw, receiver.raw_len) = (next.head, HEAD);
        let msn = &mut memory.msn[rdmap::SEND_QUEUE as usize];
        *msn = msn.wrapping_add(1);
        out.counters.copied_bytes += copied as u64;
        out.counters.receives += 1;
        if let Some(stag) = next.invalidated {
            memory.regions.invalidate(stag);
            out.counters.remote_invalidations += 1;
        }
        (self.open, self.heard) = (true, true);
        if let Some(Receive { id, buf }) = self.memory.receives.pop_front() {
            let invalidated = next.invalidated.map(Stag);
            out.complete(self.qp, id, Ok(Success::Receive { buf, invalidated }));
        }
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
        cx.counters.system_calls += 1;
        cx.counters.wire_bytes_sent += sent as u64;
        cx.show(Direction::Sent, (QpId(self.id), socket), sent, [bytes]);
        let whole = sent == bytes.len();
        self.endpoint.short_sent(sent, &mut cx.out());
        whole
    }
}
