//! Connections of RoCE version 2.
//!
//! A packet names the queue pair that it goes to, not the one that it comes from. Which two
//! directions are one connection follows from the messages of the connection manager; where the
//! capture lacks these, from what is in the packets: an XID or a handle that the other direction named.

mod packet;

use std::collections::{HashMap, VecDeque};
use std::net::IpAddr;

pub(crate) use self::packet::PORT;
use self::packet::{Kind, Managed, Packet, Parsed};
use crate::call::{At, Carrier, EndName};
use crate::conversation::{Conversation, Data, Out, Sent, speaks};
use crate::limits::{MAX_READS, MAX_SEND, MAX_STREAMS};
use crate::link::Datagram;
use crate::rules;
use crate::span::Span;

/// Packet numbers have 24 bits.
const NUMBERS: u32 = 1 << 24;

/// Returns how far a packet number is ahead of another, or behind it if negative.
fn ahead(number: u32, of: u32) -> i32 {
    let distance = number.wrapping_sub(of) % NUMBERS;
    match distance < NUMBERS / 2 {
        true => distance.cast_signed(),
        false => distance.cast_signed() - NUMBERS.cast_signed(),
    }
}

/// A Send that is put together.
#[derive(Debug)]
struct Assembly {
    bytes: Vec<u8>,
    known: u64,
    length: u64,
    span: Span,
}

/// An RDMA Read that waits for its data.
#[derive(Debug)]
struct Outstanding {
    id: u64,
    number: u32,
    /// The number of the next packet with data.
    next: u32,
    length: u32,
    arrived: u64,
}

/// State of the packets that one end sends.
#[derive(Debug, Default)]
struct Direction {
    /// The number of the next request, if it is known. After an RDMA Read it depends on the packets of
    /// its response.
    next: Option<u32>,
    /// The number of the last request.
    last: Option<u32>,
    assembly: Option<Assembly>,
    /// Where the next packet of an RDMA Write goes.
    target: Option<(u32, u64)>,
    /// The RDMA Reads that this end requested.
    reads: VecDeque<Outstanding>,
}

#[derive(Debug)]
struct Pair {
    conversation: Conversation,
    directions: [Direction; 2],
    next_read: u64,
    repeated: u64,
}

/// Where packets come from and go to.
type Way = (IpAddr, IpAddr, u32);

/// A connection that was requested.
#[derive(Debug)]
struct Requested {
    way: (IpAddr, IpAddr),
    number: u32,
    queue_pair: u32,
    private_data: Vec<u8>,
    at: At,
}

/// All queue pairs of a capture.
#[derive(Debug, Default)]
pub(crate) struct QueuePairs {
    pairs: Vec<Pair>,
    /// The pair and the end that sends.
    ways: HashMap<Way, (usize, usize)>,
    /// Pairs of which one direction is known, by its addresses.
    unpaired: HashMap<(IpAddr, IpAddr), Vec<usize>>,
    requested: VecDeque<Requested>,
    /// Packets of connections that are none of RPC-over-RDMA, or too many.
    pub(crate) skipped: u64,
}

impl QueuePairs {
    /// Takes a datagram to the port of RoCE.
    pub(crate) fn datagram(&mut self, datagram: &Datagram<'_>, at: At, out: &mut Out<'_>) {
        match packet::parse(datagram) {
            Parsed::Manager(bytes) => self.managed(datagram, bytes, at, out),
            Parsed::Packet(packet) => match self.way(&packet, at) {
                Some((pair, from)) => self.pairs[pair].packet(from, &packet, at, out),
                None => self.skipped += 1,
            },
            Parsed::Other => self.skipped += 1,
        }
    }

    pub(crate) fn finish(&mut self, out: &mut Out<'_>) {
        self.pairs
            .iter_mut()
            .for_each(|pair| pair.conversation.finish(out));
    }

    /// Returns the number of packets that were sent again.
    pub(crate) fn repeated(&self) -> u64 {
        self.pairs.iter().map(|pair| pair.repeated).sum()
    }

    fn add(&mut self, ends: [EndName; 2], at: At) -> Option<usize> {
        if self.pairs.len() >= MAX_STREAMS {
            return None;
        }
        self.pairs.push(Pair {
            conversation: Conversation::new(Carrier::Roce, ends, at),
            directions: Default::default(),
            next_read: 0,
            repeated: 0,
        });
        Some(self.pairs.len() - 1)
    }

    fn managed(&mut self, datagram: &Datagram<'_>, bytes: &[u8], at: At, out: &mut Out<'_>) {
        let way = (datagram.from, datagram.to);
        match packet::managed(bytes) {
            Managed::Request(number, queue_pair, private_data) => {
                // It is sent again until it is answered.
                self.requested
                    .retain(|it| (it.way, it.number) != (way, number));
                if self.requested.len() >= MAX_STREAMS {
                    self.requested.pop_front();
                }
                self.requested.push_back(Requested {
                    way,
                    number,
                    queue_pair,
                    private_data: private_data.to_vec(),
                    at,
                });
            }
            Managed::Reply(_, number, queue_pair, private_data) => {
                let back = (way.1, way.0);
                let index = self
                    .requested
                    .iter()
                    .position(|it| (it.way, it.number) == (back, number));
                let Some(request) = index.and_then(|index| self.requested.remove(index)) else {
                    return;
                };
                let (client, server) = request.way;
                let ends = [
                    EndName::QueuePair(client, Some(request.queue_pair)),
                    EndName::QueuePair(server, Some(queue_pair)),
                ];
                let Some(pair) = self.add(ends, request.at) else {
                    return;
                };
                // Queue pair numbers are used again.
                for (way, end) in [
                    ((client, server, queue_pair), 0),
                    ((server, client, request.queue_pair), 1),
                ] {
                    if let Some((old, _)) = self.ways.insert(way, (pair, end)) {
                        self.pairs[old].conversation.finish(out);
                    }
                }
                let conversation = &mut self.pairs[pair].conversation;
                conversation.set_up(0, true, &request.private_data, out);
                conversation.set_up(1, false, private_data, out);
            }
            Managed::Other => {}
        }
    }

    /// Returns the pair of a packet and which of its ends sends it.
    fn way(&mut self, packet: &Packet<'_>, at: At) -> Option<(usize, usize)> {
        let Packet {
            from,
            to,
            queue_pair,
            ..
        } = *packet;
        if let Some(&found) = self.ways.get(&(from, to, queue_pair)) {
            return Some(found);
        }
        let speaks = packet.kind == Kind::Send && packet.is_first && speaks(packet.payload);
        let waiting = self.unpaired.get(&(to, from));
        let answered = waiting.and_then(|waiting| {
            let mut known = waiting.iter().copied();
            let answers = known.find(|&pair| self.pairs[pair].is_answered_by(packet));
            // Only one connection can have spoken first and got no answer yet.
            answers.or((speaks && waiting.len() == 1).then(|| waiting[0]))
        });
        let found = match answered {
            Some(pair) => {
                if let Some(waiting) = self.unpaired.get_mut(&(to, from)) {
                    waiting.retain(|&other| other != pair);
                }
                self.pairs[pair]
                    .conversation
                    .name_end(0, EndName::QueuePair(to, Some(queue_pair)));
                (pair, 1)
            }
            None if speaks => {
                let ends = [
                    EndName::QueuePair(from, None),
                    EndName::QueuePair(to, Some(queue_pair)),
                ];
                let pair = self.add(ends, at)?;
                self.unpaired.entry((from, to)).or_default().push(pair);
                (pair, 0)
            }
            None => return None,
        };
        self.ways.insert((from, to, queue_pair), found);
        Some(found)
    }
}

impl Pair {
    /// Returns whether a packet belongs to the direction of this pair that is not known yet.
    fn is_answered_by(&self, packet: &Packet<'_>) -> bool {
        match packet.kind {
            Kind::Send => {
                let xid = packet
                    .payload
                    .first_chunk()
                    .map(|it| u32::from_be_bytes(*it));
                xid.is_some_and(|xid| self.conversation.has_call(0, xid))
            }
            Kind::ReadResponse => !self.directions[0].reads.is_empty(),
            Kind::Write | Kind::ReadRequest => packet
                .target
                .is_some_and(|(_, key, _)| self.conversation.offers(0, key)),
            Kind::Acknowledge => self.directions[0].last == Some(packet.number),
        }
    }

    fn packet(&mut self, from: usize, packet: &Packet<'_>, at: At, out: &mut Out<'_>) {
        let span = Span::of(at);
        match packet.kind {
            Kind::ReadResponse => return self.read_response(from, packet, span, out),
            Kind::Acknowledge => return self.acknowledge(packet, at, out),
            Kind::Send | Kind::Write | Kind::ReadRequest => {}
        }
        if !self.is_next(from, packet, at, out) {
            return;
        }
        match packet.kind {
            Kind::Send => self.send(from, packet, span, out),
            Kind::Write => self.write(from, packet, span, out),
            _ => self.read_request(from, packet, span, out),
        }
    }

    /// Returns whether a request comes for the first time.
    fn is_next(&mut self, from: usize, packet: &Packet<'_>, at: At, out: &mut Out<'_>) -> bool {
        let direction = &mut self.directions[from];
        if direction
            .last
            .is_some_and(|last| ahead(packet.number, last) <= 0)
        {
            self.repeated += 1;
            return false;
        }
        let is_missing = direction.next.is_some_and(|next| next != packet.number);
        direction.last = Some(packet.number);
        direction.next = match packet.kind {
            Kind::ReadRequest => None,
            _ => Some((packet.number + 1) % NUMBERS),
        };
        if is_missing {
            direction.assembly = None;
            direction.target = None;
            self.conversation.lose("the capture lacks packets", at, out);
        }
        true
    }

    fn send(&mut self, from: usize, packet: &Packet<'_>, span: Span, out: &mut Out<'_>) {
        let direction = &mut self.directions[from];
        let begun = direction.assembly.take();
        let mut message = match (packet.is_first, begun) {
            (true, _) => Assembly {
                bytes: Vec::new(),
                known: 0,
                length: 0,
                span,
            },
            (false, Some(mut message)) => {
                message.span.extend(span);
                message
            }
            // Its beginning is not in the capture.
            (false, None) => return,
        };
        if message.known == message.length {
            message.known += packet.payload.len() as u64;
        }
        message.length += packet.length as u64;
        if message.bytes.len() + packet.payload.len() <= MAX_SEND {
            message.bytes.extend_from_slice(packet.payload);
        }
        if !packet.is_last {
            direction.assembly = Some(message);
            return;
        }
        let Assembly {
            bytes,
            known,
            length,
            span,
        } = message;
        let known = usize::try_from(known)
            .unwrap_or(usize::MAX)
            .min(bytes.len());
        let sent = Sent {
            bytes: bytes.into(),
            known,
            length,
            invalidates: packet.invalidates,
            span,
        };
        self.conversation.send(from, sent, out);
    }

    fn write(&mut self, from: usize, packet: &Packet<'_>, span: Span, out: &mut Out<'_>) {
        let direction = &mut self.directions[from];
        if let Some((address, key, _)) = packet.target {
            direction.target = Some((key, address));
        }
        let Some((key, address)) = direction.target else {
            return;
        };
        direction.target = Some((key, address.wrapping_add(packet.length as u64)));
        let padded;
        let data = match packet.payload.len() == packet.length {
            true => packet.payload,
            false => {
                padded = filled(packet);
                &padded
            }
        };
        let data = Data {
            bytes: data,
            known: packet.payload.len(),
            is_last: packet.is_last,
        };
        self.conversation
            .write(from, (key, address), &data, span, out);
    }

    fn read_request(&mut self, from: usize, packet: &Packet<'_>, span: Span, out: &mut Out<'_>) {
        let Some((address, key, length)) = packet.target.filter(|(_, _, length)| *length > 0)
        else {
            return;
        };
        let id = self.next_read;
        self.next_read += 1;
        let reads = &mut self.directions[from].reads;
        if reads.len() >= MAX_READS {
            reads.pop_front();
        }
        reads.push_back(Outstanding {
            id,
            number: packet.number,
            next: packet.number,
            length,
            arrived: 0,
        });
        self.conversation
            .read_request(from, id, (key, address), length, span, out);
    }

    fn read_response(&mut self, from: usize, packet: &Packet<'_>, span: Span, out: &mut Out<'_>) {
        let reads = &mut self.directions[1 - from].reads;
        // The first response has the number of its request, and the others follow.
        let index = reads
            .iter()
            .rposition(|read| ahead(packet.number, read.number) >= 0);
        let Some(index) = index else {
            // A read that is complete is asked for again where a response was lost on its way.
            self.repeated += 1;
            return;
        };
        let read = &mut reads[index];
        let distance = ahead(packet.number, read.next);
        if distance < 0 {
            self.repeated += 1;
            return;
        }
        if distance > 0 {
            // All but the last response are equally long, so that the place of this one is known only
            // if it is the last.
            reads.remove(index);
            self.conversation
                .lose("the capture lacks data of an RDMA Read", span.last, out);
            return;
        }
        let (id, at) = (read.id, read.arrived);
        read.arrived += packet.length as u64;
        read.next = (packet.number + 1) % NUMBERS;
        if packet.is_last || read.arrived >= u64::from(read.length) {
            reads.remove(index);
        }
        let padded = filled(packet);
        let data = Data {
            bytes: &padded,
            known: packet.payload.len(),
            is_last: packet.is_last,
        };
        self.conversation.read_data(1 - from, id, at, &data, span);
    }

    fn acknowledge(&mut self, packet: &Packet<'_>, at: At, out: &mut Out<'_>) {
        let syndrome = packet.syndrome.unwrap_or(0);
        match (syndrome >> 5 & 3, syndrome & 0x1f) {
            (1, _) => {
                let detail = format!("packet {:#08x}", packet.number);
                self.conversation
                    .breach(&rules::RECEIVER_NOT_READY, at, None, detail, out);
            }
            (3, code @ 1..=4) => {
                let reason = match code {
                    1 => "invalid request",
                    2 => "remote access error",
                    3 => "remote operational error",
                    _ => "invalid RD request",
                };
                let detail = format!("packet {:#08x}: {reason}", packet.number);
                self.conversation.breach(&rules::NAK, at, None, detail, out);
            }
            _ => {}
        }
    }
}

/// Returns the payload with zeros for what the capture has cut off.
fn filled(packet: &Packet<'_>) -> Vec<u8> {
    let mut bytes = packet.payload.to_vec();
    bytes.resize(packet.length, 0);
    bytes
}
