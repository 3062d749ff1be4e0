//! One captured connection: its two TCP byte streams, and the segments that carry them.
//!
//! A tap sees the streams, not the segments. Sequence numbers, acknowledgements, the handshake and
//! the end are made here, as a lossless network would have them: what one end has sent is
//! acknowledged by the next segment of the other.

use rdma::{Frame, Time};

use crate::checksum::Sum;
use crate::file::{Comment, Sink};
use crate::fpdu::Messages;
use crate::packet::{self, ACK, Ends, FIN, PSH, SYN, Segment};
use crate::splitter::{Splitter, Unit};

/// The ends: this side and the peer.
pub(crate) const LOCAL: usize = 0;
pub(crate) const PEER: usize = 1;

/// Number of bytes in one direction after which the other end acknowledges them without data.
const UNACKNOWLEDGED: u32 = 256 << 10;
/// The step between initial sequence numbers, odd and large: a connection with the addresses of an
/// earlier one must not look like its continuation.
const INITIAL_STEP: u32 = 0x9e37_79b1;

/// The payload of a segment without data.
const EMPTY: Unit<'static> = Unit {
    kept: &[],
    len: 0,
    sum: Sum::ZERO,
    ends: true,
};

/// One direction.
struct Way {
    /// Sequence number of the next byte.
    next: u32,
    /// The sequence number that this end acknowledged last.
    acknowledged: u32,
    /// Identification of the next IPv4 packet.
    id: u16,
}

/// A connection.
pub(crate) struct Flow {
    ends: Ends,
    ways: [Way; 2],
    splitters: [Splitter; 2],
    messages: Messages,
    /// Time of the last segment. Threads of a device may report slightly out of order.
    last: Time,
}

impl Flow {
    /// Begins a connection from `initiator` with TCP's handshake. The comment goes to its first
    /// segment.
    pub(crate) fn open(
        sink: &mut Sink<'_>,
        at: Time,
        ends: Ends,
        initiator: usize,
        comment: Comment,
    ) -> Self {
        let first = sink.next_connection().wrapping_mul(INITIAL_STEP);
        let way = |next| Way {
            next,
            acknowledged: 0,
            id: 1,
        };
        let mut flow = Self {
            ends,
            ways: [first, !first].map(way),
            splitters: [Splitter::new(), Splitter::new()],
            messages: Messages::new(),
            last: at,
        };
        flow.put(sink, at, (initiator, SYN), &EMPTY, Some(comment));
        flow.put(sink, at, (1 - initiator, SYN | ACK), &EMPTY, None);
        flow.put(sink, at, (initiator, ACK), &EMPTY, None);
        flow
    }

    /// Adds bytes that `from` sent.
    pub(crate) fn bytes(&mut self, sink: &mut Sink<'_>, at: Time, from: usize, bytes: &[u8]) {
        let mut splitter = std::mem::replace(&mut self.splitters[from], Splitter::new());
        splitter.feed(bytes, sink.keeps(), |unit| self.data(sink, at, from, &unit));
        self.splitters[from] = splitter;
    }

    /// Adds a message that `from` sent.
    pub(crate) fn frame(&mut self, sink: &mut Sink<'_>, at: Time, from: usize, frame: Frame<'_>) {
        let mut messages = std::mem::replace(&mut self.messages, Messages::new());
        messages.emit(from, frame, |bytes| self.bytes(sink, at, from, bytes));
        self.messages = messages;
    }

    /// Ends the connection. Both ends close it.
    pub(crate) fn close(mut self, sink: &mut Sink<'_>, at: Time) {
        for from in [LOCAL, PEER] {
            let mut splitter = std::mem::replace(&mut self.splitters[from], Splitter::new());
            splitter.end(&mut |unit| self.data(sink, at, from, &unit));
        }
        self.put(sink, at, (LOCAL, FIN | ACK), &EMPTY, None);
        self.put(sink, at, (PEER, FIN | ACK), &EMPTY, None);
        self.put(sink, at, (LOCAL, ACK), &EMPTY, None);
    }

    /// Adds a unit of the stream that `from` sent.
    pub(crate) fn data(&mut self, sink: &mut Sink<'_>, at: Time, from: usize, unit: &Unit<'_>) {
        self.put(sink, at, (from, ACK | PSH), unit, None);
        let to = 1 - from;
        let unacknowledged = self.ways[from]
            .next
            .wrapping_sub(self.ways[to].acknowledged);
        if unacknowledged >= UNACKNOWLEDGED {
            self.put(sink, at, (to, ACK), &EMPTY, None);
        }
    }

    fn put(
        &mut self,
        sink: &mut Sink<'_>,
        at: Time,
        (from, flags): (usize, u8),
        payload: &Unit<'_>,
        comment: Option<Comment>,
    ) {
        self.last = self.last.max(at);
        let acknowledged = match flags & ACK {
            0 => 0,
            _ => self.ways[1 - from].next,
        };
        let way = &mut self.ways[from];
        let segment = Segment {
            from,
            flags,
            sequence: way.next,
            acknowledged,
            id: way.id,
            payload: payload.len,
            sum: payload.sum,
        };
        way.acknowledged = acknowledged;
        way.id = way.id.wrapping_add(1);
        // SYN and FIN count like a byte (RFC 9293, section 3.4). A unit is shorter than 64 KiB.
        let counted = payload.len as u32 + u32::from(flags & (SYN | FIN) != 0);
        way.next = way.next.wrapping_add(counted);
        let headers = packet::headers(&self.ends, &segment);
        sink.packet(self.last, headers, payload.kept, payload.len, comment);
    }
}
