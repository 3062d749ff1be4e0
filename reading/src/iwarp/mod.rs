//! Connections of iWARP: TCP, MPA, DDP and RDMAP (RFC 5044, 5041 and 5040).

mod mpa;

use std::collections::VecDeque;
use std::net::SocketAddr;

use ::iwarp::ddp::{self, Placement};
use ::iwarp::mpa::Kind;
use ::iwarp::rdmap::{self, Opcode, ReadRequest};

use self::mpa::{Fpdu, Mpa, Unit};
use crate::call::{At, Carrier, EndName};
use crate::conversation::{Conversation, Data, Out, Sent};
use crate::limits::{MAX_READS, MAX_SEND};
use crate::link::Segment;
use crate::rules;

use crate::span::Span;
use crate::tcp::Stream;

/// The port of NFS over RDMA (RFC 8267, section 9).
const NFS_RDMA_PORT: u16 = 20049;

/// A Send that is put together.
#[derive(Debug)]
struct Assembly {
    bytes: Vec<u8>,
    /// Bytes in front of the first that is missing.
    known: u64,
    length: u64,
    span: Span,
}

/// An RDMA Read that waits for its data.
#[derive(Debug)]
struct Outstanding {
    id: u64,
    stag: u32,
    offset: u64,
    length: u32,
    arrived: u64,
}

#[derive(Debug)]
struct Direction {
    stream: Stream,
    mpa: Mpa,
    /// The number of the next message of each queue, once one was seen.
    next: [Option<u32>; 3],
    /// The message of each queue that has begun.
    assembly: [Option<Assembly>; 3],
    /// The RDMA Reads of the end that sends in this direction.
    reads: VecDeque<Outstanding>,
    is_finished: bool,
}

impl Direction {
    fn new(is_beginning: bool) -> Self {
        Self {
            stream: Stream::default(),
            mpa: Mpa::new(is_beginning),
            next: [None; 3],
            assembly: Default::default(),
            reads: VecDeque::new(),
            is_finished: false,
        }
    }

    /// Forgets what messages were in progress, as some of the stream is missing.
    fn forget(&mut self) {
        self.assembly = Default::default();
        self.next = [None; 3];
    }
}

/// A TCP connection that may be one of iWARP.
#[derive(Debug)]
pub(crate) struct Connection {
    ends: [SocketAddr; 2],
    directions: [Direction; 2],
    conversation: Conversation,
    next_read: u64,
    crc: bool,
    began: At,
}

impl Connection {
    /// Creates a connection from its first segment.
    pub(crate) fn new(segment: &Segment<'_>, at: At) -> Self {
        let ends = [segment.from, segment.to];
        let is_beginning = segment.syn;
        let names = ends.map(EndName::Tcp);
        let mut conversation = Conversation::new(Carrier::Iwarp, names, at);
        // A SYN with an acknowledgement is the server's.
        let client = match (segment.syn, segment.acknowledged) {
            (true, answered) => Some(usize::from(answered.is_some())),
            (false, _) => ends
                .iter()
                .position(|end| end.port() == NFS_RDMA_PORT)
                .map(|it| 1 - it),
        };
        if let Some(client) = client {
            conversation.set_client(client);
        }
        Self {
            ends,
            directions: [Direction::new(is_beginning), Direction::new(is_beginning)],
            conversation,
            next_read: 0,
            crc: false,
            began: at,
        }
    }

    /// Returns the first packet.
    pub(crate) fn began(&self) -> At {
        self.began
    }

    /// Returns the number of segments that repeat others.
    pub(crate) fn repeated(&self) -> u64 {
        self.directions.iter().map(|it| it.stream.repeated).sum()
    }

    /// Returns whether nothing more is to come: it ended, or it is something else than iWARP.
    pub(crate) fn is_over(&self) -> bool {
        self.directions
            .iter()
            .all(|it| it.is_finished || it.mpa.is_off())
    }

    /// Returns whether a segment begins another connection between the same ends.
    pub(crate) fn is_replaced_by(&self, segment: &Segment<'_>) -> bool {
        let from = usize::from(segment.from != self.ends[0]);
        segment.syn
            && segment.acknowledged.is_none()
            && (self.is_over() || self.directions[from].stream.has_data())
    }

    pub(crate) fn segment(&mut self, segment: &Segment<'_>, at: At, out: &mut Out<'_>) {
        let from = usize::from(segment.from != self.ends[0]);
        if segment.syn {
            self.directions[from]
                .stream
                .begin(segment.sequence.wrapping_add(1));
        }
        if let Some(number) = segment.acknowledged {
            let Direction { stream, mpa, .. } = &mut self.directions[1 - from];
            if stream.has_begun() {
                stream.acknowledge(number, &mut |piece, at| mpa.push(piece, at));
            }
        }
        let Direction { stream, mpa, .. } = &mut self.directions[from];
        if !mpa.is_off() {
            let bytes = (segment.sequence, segment.payload, segment.missing);
            stream.segment(bytes, at, &mut |piece, at| mpa.push(piece, at));
        }
        let is_behind = self.directions.iter().any(|it| it.stream.is_behind());
        self.conversation.set_behind(is_behind);
        self.units(1 - from, out);
        self.units(from, out);
        if segment.fin || segment.rst {
            let ends: &[usize] = if segment.rst { &[0, 1] } else { &[from] };
            ends.iter()
                .for_each(|&end| self.directions[end].is_finished = true);
            if self.directions.iter().all(|it| it.is_finished) {
                self.finish(out);
            }
        }
    }

    /// Ends the connection, or the capture.
    pub(crate) fn finish(&mut self, out: &mut Out<'_>) {
        for end in [0, 1] {
            let Direction { stream, mpa, .. } = &mut self.directions[end];
            stream.finish(&mut |piece, at| mpa.push(piece, at));
        }
        self.units(0, out);
        self.units(1, out);
        self.directions.iter_mut().for_each(|it| it.mpa.give_up());
        self.conversation.finish(out);
    }

    fn units(&mut self, from: usize, out: &mut Out<'_>) {
        while let Some(unit) = self.directions[from].mpa.next() {
            match unit {
                Unit::Setup(frame) => {
                    let is_request = frame.kind == Kind::Request;
                    if frame.markers {
                        self.directions[1 - from].mpa.use_markers();
                    }
                    self.crc |= frame.crc;
                    if !is_request {
                        let crc = Some(self.crc);
                        self.directions.iter_mut().for_each(|it| it.mpa.crc = crc);
                    }
                    self.conversation
                        .set_up(from, is_request, &frame.private_data, out);
                }
                Unit::Lost(what, at) => {
                    self.directions[from].forget();
                    self.conversation
                        .lose(&format!("the capture lacks {what}"), at, out);
                }
                Unit::Fpdu(fpdu) => self.fpdu(from, &fpdu, out),
            }
            if self.conversation.is_foreign() {
                self.directions.iter_mut().for_each(|it| it.mpa.give_up());
            }
        }
    }

    fn fpdu(&mut self, from: usize, fpdu: &Fpdu, out: &mut Out<'_>) {
        let at = fpdu.span.last;
        // The first message of an initiator may be empty (RFC 6581, section 9.2).
        if fpdu.ulpdu.is_empty() {
            return;
        }
        if fpdu.is_damaged {
            let detail = format!("FPDU of {} bytes", fpdu.ulpdu.len());
            self.conversation.breach(&rules::CRC, at, None, detail, out);
            self.conversation.lose("an FPDU is damaged", at, out);
            self.directions[from].forget();
            return;
        }
        let view = ddp::HeaderView::new(&fpdu.ulpdu).filter(|it| it.bytes().len() <= fpdu.known);
        let Some(view) = view else {
            self.conversation
                .lose("the header of a segment is cut off", at, out);
            return;
        };
        let header = match view.to_header() {
            Ok(header) => header,
            Err(bad) => {
                self.conversation
                    .breach(&rules::DDP_VERSION, at, None, bad.to_string(), out);
                return;
            }
        };
        let opcode = match Opcode::from_control(header.ulp_control) {
            Ok(opcode) => opcode,
            Err(bad) => {
                self.conversation
                    .breach(&rules::RDMAP_CONTROL, at, None, bad.to_string(), out);
                return;
            }
        };
        let start = view.bytes().len();
        let (payload, known) = (&fpdu.ulpdu[start..], fpdu.known - start);
        match header.placement {
            Placement::Tagged { stag, offset } if opcode.queue().is_none() => {
                let data = Data {
                    bytes: payload,
                    known,
                    is_last: header.last,
                };
                self.tagged(from, opcode, (stag, offset), &data, fpdu.span, out);
            }
            Placement::Untagged {
                ulp_word,
                queue,
                msn,
                offset,
            } if opcode.queue() == Some(queue) => {
                let message = (queue as usize, msn, offset);
                if let Some(whole) =
                    self.untagged(from, message, (payload, known, header.last), fpdu.span, out)
                {
                    let invalidates = opcode.invalidates().then_some(ulp_word);
                    self.message(from, opcode, whole, invalidates, out);
                }
            }
            _ => {
                let detail = format!("{opcode:?} in another queue, or tagged");
                self.conversation
                    .breach(&rules::RDMAP_CONTROL, at, None, detail, out);
            }
        }
    }

    fn tagged(
        &mut self,
        from: usize,
        opcode: Opcode,
        (stag, offset): (u32, u64),
        data: &Data<'_>,
        span: Span,
        out: &mut Out<'_>,
    ) {
        if opcode == Opcode::Write {
            self.conversation
                .write(from, (stag, offset), data, span, out);
            return;
        }
        let reads = &mut self.directions[1 - from].reads;
        let length = data.bytes.len() as u64;
        let found = reads.iter().position(|read| {
            let at = offset.checked_sub(read.offset);
            let fits = at.is_some_and(|at| at.saturating_add(length) <= u64::from(read.length));
            read.stag == stag && fits
        });
        let Some(index) = found else {
            self.conversation.unrequested(stag, span, out);
            return;
        };
        let read = &mut reads[index];
        read.arrived += length;
        let (id, at) = (read.id, offset - read.offset);
        if data.is_last || read.arrived >= u64::from(read.length) {
            reads.remove(index);
        }
        self.conversation.read_data(1 - from, id, at, data, span);
    }

    /// Adds a segment to its message. Returns the message if it is complete.
    fn untagged(
        &mut self,
        from: usize,
        (queue, number, offset): (usize, u32, u32),
        (payload, known, is_last): (&[u8], usize, bool),
        span: Span,
        out: &mut Out<'_>,
    ) -> Option<Assembly> {
        let direction = &mut self.directions[from];
        let next = direction.next.get(queue).copied().flatten();
        let is_next = next.is_none_or(|next| next == number);
        if !is_next {
            let detail = format!("message {number} of queue {queue} instead of {}", next?);
            let rule = &rules::MESSAGE_NUMBER;
            self.conversation.breach(rule, span.last, None, detail, out);
        }
        let direction = &mut self.directions[from];
        direction.next[queue] = Some(if is_last {
            number.wrapping_add(1)
        } else {
            number
        });
        let begun = direction.assembly[queue].take();
        let expected = begun.as_ref().map_or(0, |it| it.length);
        if u64::from(offset) != expected {
            // The first segments may be older than the capture.
            if self.conversation.is_whole() {
                let detail = format!("offset {offset} instead of {expected}");
                let rule = &rules::MESSAGE_OFFSET;
                self.conversation.breach(rule, span.last, None, detail, out);
            }
            return None;
        }
        let mut message = begun.unwrap_or_else(|| Assembly {
            bytes: Vec::new(),
            known: 0,
            length: 0,
            span,
        });
        if message.length > 0 {
            message.span.extend(span);
        }
        if message.known == message.length {
            message.known += known as u64;
        }
        message.length += payload.len() as u64;
        if message.bytes.len() + payload.len() <= MAX_SEND {
            message.bytes.extend_from_slice(payload);
        }
        if is_last {
            return Some(message);
        }
        direction.assembly[queue] = Some(message);
        None
    }

    fn message(
        &mut self,
        from: usize,
        opcode: Opcode,
        message: Assembly,
        invalidates: Option<u32>,
        out: &mut Out<'_>,
    ) {
        let Assembly {
            bytes,
            known,
            length,
            span,
        } = message;
        match opcode {
            Opcode::ReadRequest => {
                let Some(fields) = bytes.first_chunk::<{ rdmap::READ_REQUEST }>() else {
                    let detail = format!("an RDMA Read Request of {length} bytes");
                    let rule = &rules::RDMAP_CONTROL;
                    self.conversation.breach(rule, span.last, None, detail, out);
                    return;
                };
                if known < rdmap::READ_REQUEST as u64 {
                    self.conversation
                        .lose("an RDMA Read Request is cut off", span.last, out);
                    return;
                }
                self.read_request(from, &ReadRequest::parse(fields), span, out);
            }
            Opcode::Terminate => {
                let code = bytes
                    .first_chunk::<2>()
                    .map_or(0, |it| u16::from_be_bytes(*it));
                let detail = format!("code {code:#06x}");
                let rule = &rules::TERMINATED;
                self.conversation.breach(rule, span.last, None, detail, out);
            }
            _ => {
                let known = usize::try_from(known)
                    .unwrap_or(usize::MAX)
                    .min(bytes.len());
                let sent = Sent {
                    bytes: bytes.into(),
                    known,
                    length,
                    invalidates,
                    span,
                };
                self.conversation.send(from, sent, out);
            }
        }
    }

    fn read_request(&mut self, from: usize, request: &ReadRequest, span: Span, out: &mut Out<'_>) {
        // The first message of an initiator may be a Read of nothing (RFC 6581, section 9.2).
        if request.length == 0 {
            return;
        }
        let id = self.next_read;
        self.next_read += 1;
        let reads = &mut self.directions[from].reads;
        if reads.len() >= MAX_READS {
            reads.pop_front();
        }
        reads.push_back(Outstanding {
            id,
            stag: request.sink_stag,
            offset: request.sink_offset,
            length: request.length,
            arrived: 0,
        });
        let source = (request.source_stag, request.source_offset);
        self.conversation
            .read_request(from, id, source, request.length, span, out);
    }
}
