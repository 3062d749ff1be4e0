//! Two ends of a connection, and the part of an engine that carries messages between them.
#![allow(dead_code, reason = "each test binary uses only a part of this module")]

use std::collections::VecDeque;

use bytes::Bytes;
use onc_rpc::{BulkItem, Extras, Message, Position, padded};
use rpcrdma_ext_continuation::{Config, Features, Report, Transmit, XMTERR, register};
use rpcrdma_ext_xchar::{BackwardSupport, Config as Exchanged, Exchange, Registry};
use rpcrdma_extension::layout::BufferStructure;
use rpcrdma_extension::{
    Action, CallCandidate, CallToPlan, Extensions, IncomingCall, IncomingReply, OutgoingMessage,
    ReplyCandidate, ReplyCandidates, ReplyToPlan, Transferred, Transmission, Transmissions,
};
use rpcrdma_v2::operations::{self, Routed};
use rpcrdma_v2::{Body, Chunks, Direction, Header, Optional, ReadSegment, Segment, Side, fill};
use transfer_plan::{ChunkCounts, ChunkLimits, Limits, ReplyNeed, Shape};

pub(crate) const MAX_MESSAGE: u64 = 4 << 20;
pub(crate) const CREDITS: u32 = 32;

pub(crate) fn words(words: &[u32]) -> Bytes {
    words.iter().flat_map(|word| word.to_be_bytes()).collect()
}

/// Returns bytes that differ from offset to offset.
pub(crate) fn pattern(len: usize, seed: u8) -> Bytes {
    let byte = |at: usize| (at as u8) ^ ((at >> 8) as u8).wrapping_mul(31) ^ seed;
    (0..len).map(byte).collect()
}

pub(crate) fn config(features: &str) -> Config {
    let features: Features = features.parse().expect("features");
    Config {
        features,
        takes_calls: true,
        structure: match features.ddp.receive {
            true => BufferStructure::with_placement(1024, 1, 65_536),
            false => BufferStructure::plain(16 << 10),
        },
        request_limit: 20,
        response_limit: 20,
        min_placed: 256,
        max_message: MAX_MESSAGE,
        max_send: 1 << 20,
    }
}

/// One end of a connection.
pub(crate) struct End {
    pub(crate) side: Side,
    pub(crate) extensions: Extensions,
    pub(crate) structure: BufferStructure,
    /// Messages and reports delivered by the extension and not examined yet.
    pub(crate) arrived: VecDeque<Transferred>,
    /// Operations that the extension has queued for sending.
    pub(crate) operations: VecDeque<OutgoingMessage>,
}

impl End {
    pub(crate) fn new(side: Side, config: &Config) -> Self {
        let mut registry = Registry::default();
        register(&mut registry).expect("numbers of their own");
        let exchange = Exchange::new(Exchanged {
            registry,
            receive_size: config.structure.len(),
            max_receive_size: config.structure.len(),
            max_send: 1 << 20,
            accept_invalidation: true,
            can_invalidate: true,
            backward: BackwardSupport::General,
        });
        let transmit = Transmit::new(config.clone());
        let first_xid = match side {
            Side::Client => 1000,
            Side::Server => 2000,
        };
        let list: Vec<Box<dyn rpcrdma_extension::Extension>> = match config.features.is_none() {
            true => vec![Box::new(exchange)],
            false => vec![Box::new(exchange), Box::new(transmit)],
        };
        Self {
            side,
            extensions: Extensions::new(side, first_xid, list).expect("operations of their own"),
            structure: config.structure.clone(),
            arrived: VecDeque::new(),
            operations: VecDeque::new(),
        }
    }

    pub(crate) fn limits(&self) -> Limits {
        let now = self.extensions.limits();
        Limits {
            inline_send: u64::from(now.inline_send),
            inline_receive: u64::from(now.inline_receive),
            max_segment: 1 << 20,
            max_message: MAX_MESSAGE,
            chunks: ChunkLimits::default(),
            call_chunk: false,
            header_len: |chunks: &ChunkCounts| {
                let segments = chunks.read_segments * 24 + chunks.write_segments * 16;
                32 + segments + chunks.write_chunks * 8
            },
        }
    }

    pub(crate) fn transmit(&self) -> &Transmit {
        self.extensions.find().expect("it is there")
    }

    pub(crate) fn plan_call(&mut self, call: &CallToPlan<'_>) -> Vec<CallCandidate> {
        let mut modes = self.extensions.transfer_modes();
        modes
            .next()
            .map_or_else(Vec::new, |(_, c)| c.plan_call(call))
    }

    pub(crate) fn plan_reply(&mut self, reply: &ReplyToPlan<'_>) -> ReplyCandidates {
        let mut modes = self.extensions.transfer_modes();
        modes
            .next()
            .map_or_else(ReplyCandidates::new, |(_, c)| c.plan_reply(reply))
    }

    /// Delivers a message as if it came from the wire, divided into the segments of a receive
    /// buffer.
    pub(crate) fn receive(&mut self, bytes: &Bytes) -> Routed {
        assert!(
            bytes.len() <= self.structure.len() as usize,
            "it meets its receive"
        );
        let (mut pieces, mut rest) = (Vec::new(), bytes.clone());
        for group in self.structure.groups() {
            for _ in 0..group.count {
                let take = rest.len().min(group.segment.length as usize);
                if take > 0 {
                    pieces.push(Bytes::copy_from_slice(&rest.split_to(take)));
                }
            }
        }
        let (header, at) = Header::decode(bytes).expect("a header");
        let routed = operations::route(&mut self.extensions, &header, &pieces, at);
        self.look();
        routed
    }

    /// Executes the requests of the extensions, except sending.
    pub(crate) fn look(&mut self) {
        while let Some(action) = self.extensions.next_action() {
            match action {
                Action::Transferred { transferred, .. } => self.arrived.push_back(transferred),
                Action::Send(operation) => self.operations.push_back(operation),
                _ => {}
            }
        }
    }

    /// Returns the next delivery, which must be a call.
    pub(crate) fn take_call(&mut self) -> IncomingCall {
        match self.arrived.pop_front() {
            Some(Transferred::Call(call)) => call,
            other => panic!("no call: {other:?}"),
        }
    }

    pub(crate) fn take_reply(&mut self) -> IncomingReply {
        match self.arrived.pop_front() {
            Some(Transferred::Reply(reply)) => reply,
            other => panic!("no reply: {other:?}"),
        }
    }

    /// Returns XID and direction of the message that the peer could not use.
    pub(crate) fn take_rejected(&mut self) -> (u32, Direction) {
        match self.arrived.pop_front() {
            Some(Transferred::Rejected { xid, direction, .. }) => (xid, direction),
            other => panic!("not rejected: {other:?}"),
        }
    }

    /// Removes the next operation that the extension has queued for sending, which must be
    /// ROPT_XMTERR, and decodes it. Returns `None` if none is queued.
    pub(crate) fn take_report(&mut self) -> Option<Report> {
        let operation = self.operations.pop_front()?;
        assert_eq!(operation.number, XMTERR);
        let report = Report::decode(&operation.fields).expect("it is well-formed");
        assert_eq!(operation.xid, report.bad.xid);
        assert_ne!(operation.direction, report.bad.direction);
        Some(report)
    }
}

/// Returns a header with an operation.
pub(crate) fn operation(xid: u32, direction: Direction, opttype: u32, info: Bytes) -> Header {
    let optional = Optional {
        direction,
        opttype,
        info,
    };
    Header {
        xid,
        credits: CREDITS,
        body: Body::Optional(optional),
    }
}

/// Encodes a transmission.
pub(crate) fn encode(xid: u32, direction: Direction, sent: &Transmission) -> Bytes {
    let header = operation(xid, direction, sent.number, sent.fields.clone());
    let bytes = [&header.encode()[..], &sent.content()].concat();
    bytes.into()
}

/// Sends all operations of both ends until there are none left.
pub(crate) fn settle(a: &mut End, b: &mut End) {
    a.look();
    b.look();
    while let Some(operation) = a.operations.pop_front() {
        let _ = b.receive(&operations::header(operation, CREDITS).encode());
    }
    while let Some(operation) = b.operations.pop_front() {
        let _ = a.receive(&operations::header(operation, CREDITS).encode());
    }
}

/// Returns a client and a server that have exchanged their characteristics.
pub(crate) fn pair(client: &Config, server: &Config) -> (End, End) {
    let mut client = End::new(Side::Client, client);
    let mut server = End::new(Side::Server, server);
    client.extensions.connected(None);
    client.look();
    let first = client.operations.pop_front().expect("INITXCH");
    let header = operations::header(first, CREDITS);
    server
        .extensions
        .connected(Some(operations::heard(&header)));
    assert_eq!(server.receive(&header.encode()), Routed::Taken);
    for _ in 0..4 {
        settle(&mut client, &mut server);
    }
    (client, server)
}

pub(crate) fn pair_of(client: &str, server: &str) -> (End, End) {
    pair(&config(client), &config(server))
}

/// Returns an RPC message (its first words are an XID and a `msg_type`) with `payload` bytes of
/// payload and items of these lengths, each preceded by its length word.
pub(crate) fn message(xid: u32, direction: Direction, payload: usize, items: &[usize]) -> Message {
    assert!(payload >= 8 + 4 * items.len() && payload.is_multiple_of(4));
    let mut stream = words(&[xid, direction.number()]).to_vec();
    // All payload but the last four bytes precedes the items.
    let tail = usize::from(payload > 8 + 4 * items.len()) * 4;
    let filling = payload - 8 - 4 * items.len() - tail;
    stream.extend_from_slice(&pattern(filling, 7));
    let mut bulk = Vec::new();
    let mut taken = 0;
    for (seed, &len) in items.iter().enumerate() {
        stream.extend_from_slice(&(len as u32).to_be_bytes());
        let position = (stream.len() as u64 + taken) as u32;
        taken += padded(len as u64);
        bulk.push(BulkItem {
            position: Position::At(position),
            data: pattern(len, seed as u8).into(),
        });
    }
    stream.extend_from_slice(&pattern(tail, 9));
    // The message has two pieces, as after prepending a header.
    let stream = Bytes::from(stream);
    let middle = stream.len() / 8 * 4;
    let pieces = [stream.slice(..middle), stream.slice(middle..)];
    Message::new(pieces.into_iter().collect(), bulk)
}

/// Returns the whole stream of a message.
pub(crate) fn stream(message: &Message) -> Vec<u8> {
    message.gather(|_| true).concat()
}

/// Returns the chunks registered for a call, each of two segments if it is long enough.
pub(crate) fn register_chunks(candidate: &CallCandidate, shape: &Shape) -> Chunks {
    let mut handle = 100;
    let mut chunk = |len: u64| {
        handle += 1;
        let first = if len > 100 { len / 2 } else { len } as u32;
        let mut segments = vec![Segment {
            handle,
            length: first,
            offset: 0x1_0000_0000,
        }];
        if u64::from(first) < len {
            segments.push(Segment {
                handle,
                length: len as u32 - first,
                offset: 0x2_0000_0000,
            });
        }
        segments
    };
    let mut chunks = Chunks::default();
    for &item in &candidate.reads {
        let item = shape.items()[item];
        let segments = chunk(item.len);
        chunks
            .reads
            .extend(segments.into_iter().map(|segment| ReadSegment {
                position: item.position,
                segment,
            }));
    }
    for &len in &candidate.write_chunks {
        chunks.writes.push(chunk(len).into());
    }
    chunks
}

/// Returns a message with additional items inserted by position.
pub(crate) fn with_items(message: &Message, more: Vec<BulkItem>) -> Message {
    let mut items: Vec<BulkItem> = message.items().to_vec();
    items.extend(more);
    let position = |item: &BulkItem| match item.position {
        Position::At(position) => position,
        Position::InOrder | Position::InOrderOrInline => panic!("it has a position"),
    };
    items.sort_by_key(position);
    Message::new(message.payload().clone(), items)
}

/// Sends a call with this candidate. Returns the received call, with its read chunks fetched, and
/// the transmissions.
pub(crate) fn carry_call(
    from: &mut End,
    to: &mut End,
    xid: u32,
    message: &Message,
    candidate: CallCandidate,
) -> (IncomingCall, Message, Chunks, Transmissions) {
    let shape = Shape::of(message).expect("items have positions");
    let chunks = register_chunks(&candidate, &shape);
    let cost = candidate.cost;
    let mode = from.extensions.transfer_mode(1).expect("it carries calls");
    let sent = mode
        .send_call(xid, &*candidate.plan, message, &chunks)
        .expect("as planned");
    let wire: Vec<Bytes> = sent
        .iter()
        .map(|sent| encode(xid, Direction::Call, sent))
        .collect();
    assert_eq!(cost.transmissions as usize, wire.len());
    for bytes in &wire {
        assert!(bytes.len() as u64 <= from.limits().inline_send);
        assert_eq!(to.receive(bytes), Routed::Taken);
    }
    assert!(to.operations.is_empty(), "{:?}", to.operations);
    let call = to.take_call();
    assert_eq!((call.xid, call.requested), (xid, CREDITS));
    assert_eq!(call.transmissions, cost.transmissions);
    let fetched = call.chunks.items.iter().map(|chunk| {
        let mut items = message.items().iter();
        let at = Position::At(chunk.position);
        let item = items
            .find(|item| item.position == at)
            .expect("an item is there");
        assert_eq!(u64::from(chunk.length), item.data.len() as u64);
        item.clone()
    });
    let whole = with_items(&call.message, fetched.collect());
    (call, whole, chunks, sent)
}

/// Sends a reply with this candidate. Returns the received reply, with the written items inserted.
pub(crate) fn carry_reply(
    from: &mut End,
    to: &mut End,
    call: &IncomingCall,
    message: &Message,
    candidate: ReplyCandidate,
) -> (IncomingReply, Message, Transmissions) {
    let (cost, writes) = (candidate.cost, candidate.writes);
    let mode = from
        .extensions
        .transfer_mode(1)
        .expect("it carries replies");
    let sent = mode
        .send_reply(call.xid, &*candidate.plan, message)
        .expect("as planned");
    let wire: Vec<Bytes> = sent
        .iter()
        .map(|sent| encode(call.xid, Direction::Reply, sent))
        .collect();
    assert_eq!(cost.transmissions as usize, wire.len());
    let lens: u64 = wire.iter().map(|bytes| bytes.len() as u64).sum();
    assert_eq!(cost.wire_bytes, lens);
    for bytes in &wire {
        assert!(bytes.len() as u64 <= from.limits().inline_send);
        assert_eq!(to.receive(bytes), Routed::Taken);
    }
    assert!(to.operations.is_empty(), "{:?}", to.operations);
    let reply = to.take_reply();
    assert_eq!((reply.xid, reply.granted), (call.xid, CREDITS));
    assert_eq!(reply.transmissions, cost.transmissions);
    // The lengths and positions of the items that the responder would write.
    let mut expected: Vec<Option<(u32, u64)>> = vec![None; call.chunks.writes.len()];
    let mut written = Vec::new();
    for (item, chunk) in writes {
        let item = &message.items()[item];
        let len = item.data.len() as u64;
        fill(&call.chunks.writes[chunk], len).expect("it fits its chunk");
        let Position::At(position) = item.position else {
            panic!("it has a position");
        };
        expected[chunk] = Some((position, len));
        written.push(item.clone());
    }
    let found: Vec<Option<(u32, u64)>> = reply
        .writes
        .iter()
        .map(|w| w.map(|w| (w.position, w.len)))
        .collect();
    assert_eq!(found, expected);
    let whole = with_items(&reply.message, written);
    (reply, whole, sent)
}

/// The inputs for planning a call.
pub(crate) struct Planning {
    pub(crate) shape: Shape,
    pub(crate) need: ReplyNeed,
    pub(crate) limits: Limits,
    pub(crate) credits: u32,
    pub(crate) reservable: u32,
}

impl Planning {
    pub(crate) fn new(end: &End, message: &Message, need: ReplyNeed) -> Self {
        Self {
            shape: Shape::of(message).expect("items have positions"),
            need,
            limits: end.limits(),
            credits: CREDITS,
            reservable: CREDITS,
        }
    }

    pub(crate) fn candidates(&self, end: &mut End) -> Vec<CallCandidate> {
        end.plan_call(&CallToPlan {
            shape: &self.shape,
            need: &self.need,
            extras: &Extras::NONE,
            limits: &self.limits,
            credits: self.credits,
            reply_credits: u32::MAX,
            reservable: self.reservable,
        })
    }
}

/// Returns the transfer modes for a reply.
pub(crate) fn reply_candidates(
    end: &mut End,
    call: &IncomingCall,
    message: &Message,
) -> ReplyCandidates {
    let shape = Shape::of(message).expect("items have positions");
    let limits = end.limits();
    end.plan_reply(&ReplyToPlan {
        credits: u32::MAX,
        shape: &shape,
        limits: &limits,
        context: &*call.context,
    })
}
