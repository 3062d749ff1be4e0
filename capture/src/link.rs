//! Connections of a device behind an emulated link ([`rdma::middleware::Linked`]), with the times
//! at which this side's end of the link carries their FPDUs.
//!
//! The tap of a device that shows its streams is below the link: it sees a message of this side one
//! delay after it was posted, and the response to an RDMA Read, or the request for a connection,
//! one delay before this side gets it. So a call and its reply seem to be half a round trip apart,
//! or one and a half instead of two. Here, each FPDU gets the time that a packet capture at this
//! end would give it. As that changes their order, FPDUs wait until none can precede them any more,
//! and become segments only then.

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use rdma::middleware::Shaper;
use rdma::{QpId, Time};

use crate::checksum::Sum;
use crate::file::{Comment, Sink};
use crate::flow::{Flow, LOCAL};
use crate::packet::Ends;
use crate::splitter::{Splitter, Unit};

/// The place of the RDMAP opcode in an FPDU, behind its length and DDP's control byte, and its bits
/// (RFC 5040, section 4.1).
const OPCODE_AT: usize = 3;
const OPCODE_BITS: u8 = 0x0f;
/// Opcodes of messages that cross the link in their own way.
const READ_RESPONSE: u8 = 2;
const TERMINATE: u8 = 7;

/// The beginnings of the keys of set-up frames (RFC 5044, section 7.1.1): the initiator sends the
/// Request Frame.
pub(crate) const REQUEST: &[u8] = b"MPA ID Req";
const REPLY: &[u8] = b"MPA ID Rep";

/// The kind of a unit, by which its time differs from the one that the tap sees.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Request,
    Reply,
    ReadResponse,
    /// Sent by the device itself, past the link.
    Immediate,
    /// Any other message, which its sender's end of the link holds back for the delay.
    Message,
}

impl Kind {
    fn of(unit: &[u8]) -> Self {
        if unit.starts_with(REQUEST) {
            return Self::Request;
        }
        if unit.starts_with(REPLY) {
            return Self::Reply;
        }
        match unit.get(OPCODE_AT).map(|byte| byte & OPCODE_BITS) {
            Some(READ_RESPONSE) => Self::ReadResponse,
            Some(TERMINATE) | None => Self::Immediate,
            Some(_) => Self::Message,
        }
    }
}

/// A unit, or a part of one.
struct Part {
    kept: Vec<u8>,
    len: usize,
    sum: Sum,
}

/// A connection of the device.
struct Connection {
    splitters: [Splitter; 2],
    /// The parts of the units of both directions that are not complete.
    parts: [Vec<Part>; 2],
    /// Whether there was a unit.
    opened: bool,
    /// The time at which the connection was set up, as the tap saw it. Nothing was posted earlier.
    set_up: Time,
    /// The time of the latest unit.
    last: Time,
}

impl Connection {
    fn new() -> Self {
        Self {
            splitters: [Splitter::new(), Splitter::new()],
            parts: [Vec::new(), Vec::new()],
            opened: false,
            set_up: Time::ZERO,
            last: Time::ZERO,
        }
    }
}

/// Something that waits for its place in the file.
enum Item {
    /// The beginning of a connection between these ends, of which the second value is the
    /// initiator.
    Open(Ends, usize),
    /// What an end sent.
    Part(usize, Part),
    Close,
}

/// The connections of a device behind a link, and what of them waits to be written.
pub(crate) struct Link {
    interface: u32,
    comment: Comment,
    delay: Duration,
    /// The direction to this side, for what the link delays after its arrival.
    inbound: Shaper,
    connections: HashMap<QpId, Connection>,
    /// The connections of which the beginning is written.
    flows: HashMap<QpId, Flow>,
    /// In the order of their times, and at the same time in that in which they came.
    waiting: BTreeMap<(Time, u64), (QpId, Item)>,
    /// The number of the next item.
    next: u64,
    /// Kept bytes of the parts that wait.
    bytes: u64,
}

impl Link {
    pub(crate) fn new(interface: u32, comment: Comment, link: Shaper) -> Self {
        Self {
            interface,
            comment,
            delay: link.delay(),
            inbound: link,
            connections: HashMap::new(),
            flows: HashMap::new(),
            waiting: BTreeMap::new(),
            next: 0,
            bytes: 0,
        }
    }

    pub(crate) fn interface(&self) -> u32 {
        self.interface
    }

    /// Whether nothing waits to be written.
    pub(crate) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// Takes bytes that `from` sent, which the tap saw at time `at`. `ends` says which ends the
    /// connection has if its initiator is that one.
    pub(crate) fn bytes(
        &mut self,
        sink: &mut Sink<'_>,
        (at, qp, from): (Time, QpId, usize),
        pieces: &[&[u8]],
        ends: impl Fn(&mut Sink<'_>, usize) -> Ends,
    ) {
        let mut connection = self.connections.remove(&qp).unwrap_or_else(Connection::new);
        let mut splitter = std::mem::replace(&mut connection.splitters[from], Splitter::new());
        for piece in pieces {
            splitter.feed(piece, sink.keeps(), |unit| {
                self.part(sink, &mut connection, (at, qp, from), &unit, &ends);
            });
        }
        connection.splitters[from] = splitter;
        self.connections.insert(qp, connection);
        self.release(sink, at);
    }

    /// Takes the end of a connection.
    pub(crate) fn ended(&mut self, sink: &mut Sink<'_>, at: Time, qp: QpId) {
        // A unit that is not complete has no time of its own.
        if let Some(connection) = self.connections.get(&qp) {
            self.wait(qp, at.max(connection.last), Item::Close);
            self.release(sink, at);
        }
    }

    /// Writes what nothing can precede any more at time `now`.
    pub(crate) fn release(&mut self, sink: &mut Sink<'_>, now: Time) {
        // Beyond the limit of the file nothing is written anyway, so there is no need to wait.
        while let Some(entry) = self.waiting.first_entry()
            && (entry.key().0 + self.delay <= now || self.bytes > sink.most())
        {
            let ((at, _), (qp, item)) = entry.remove_entry();
            self.write(sink, at, qp, item);
        }
    }

    /// Writes everything, because the capture or the device ends.
    pub(crate) fn release_all(&mut self, sink: &mut Sink<'_>) {
        while let Some(((at, _), (qp, item))) = self.waiting.pop_first() {
            self.write(sink, at, qp, item);
        }
    }

    /// Takes a part of a unit. All parts of a unit have the time of the last one.
    fn part(
        &mut self,
        sink: &mut Sink<'_>,
        connection: &mut Connection,
        (at, qp, from): (Time, QpId, usize),
        unit: &Unit<'_>,
        ends: impl Fn(&mut Sink<'_>, usize) -> Ends,
    ) {
        let parts = &mut connection.parts[from];
        parts.push(Part {
            kept: unit.kept.to_vec(),
            len: unit.len,
            sum: unit.sum,
        });
        if !unit.ends {
            return;
        }
        let parts = std::mem::take(parts);
        let kind = parts
            .first()
            .map_or(Kind::Immediate, |part| Kind::of(&part.kept));
        let len = parts.iter().map(|part| part.len as u64).sum();
        let time = match (kind, from == LOCAL) {
            (Kind::Message | Kind::Reply, true) => {
                let posted = Time::ZERO + at.since(Time::ZERO + self.delay);
                posted.max(connection.set_up)
            }
            (Kind::Request | Kind::ReadResponse, false) => self.inbound.release(at, len),
            _ => at,
        };
        if kind == Kind::Reply {
            connection.set_up = at;
        }
        connection.last = connection.last.max(time);
        if !std::mem::replace(&mut connection.opened, true) {
            let initiator = match kind {
                Kind::Request => from,
                _ => 1 - from,
            };
            self.wait(qp, time, Item::Open(ends(sink, initiator), initiator));
        }
        for part in parts {
            self.wait(qp, time, Item::Part(from, part));
        }
    }

    fn wait(&mut self, qp: QpId, at: Time, item: Item) {
        if let Item::Part(_, part) = &item {
            self.bytes += part.kept.len() as u64;
        }
        self.waiting.insert((at, self.next), (qp, item));
        self.next += 1;
    }

    fn write(&mut self, sink: &mut Sink<'_>, at: Time, qp: QpId, item: Item) {
        match item {
            Item::Open(ends, initiator) => {
                let flow = Flow::open(sink, at, ends, initiator, self.comment);
                self.flows.insert(qp, flow);
            }
            Item::Part(from, Part { kept, len, sum }) => {
                self.bytes -= kept.len() as u64;
                if let Some(flow) = self.flows.get_mut(&qp) {
                    let (kept, ends) = (&kept[..], true);
                    let unit = Unit {
                        kept,
                        len,
                        sum,
                        ends,
                    };
                    flow.data(sink, at, from, &unit);
                }
            }
            Item::Close => {
                self.connections.remove(&qp);
                if let Some(flow) = self.flows.remove(&qp) {
                    flow.close(sink, at);
                }
            }
        }
    }
}
