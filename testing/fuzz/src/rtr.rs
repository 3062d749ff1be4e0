//! Placement and continuation (draft-dnoveck-nfsv4-rpcrdma-rtrext-00): every decoder, an end that
//! receives arbitrary operations, and layouts that a receiver must decode to the same message.

use arbitrary::{Arbitrary, Unstructured};
use bytes::{Bytes, BytesMut};
use onc_rpc::{Extras, Message, padded};
use rpcrdma_ext_continuation::{
    Config, Continuation, Features, Report, Request, RequestReceiveLimit, Response,
    ResponseSendLimit, Transmit,
};
use rpcrdma_ext_send_ddp::{
    ReceiveBufferStructure, RoundTripSupport, get_structure, put_structure,
};
use rpcrdma_ext_xchar::Characteristic;
use rpcrdma_extension::layout::{
    BufferSegment, BufferStructure, Frame, Headers, Layout, SegmentFlags, SegmentGroup, lay_out,
    locate, overlapping_segment,
};
use rpcrdma_extension::{
    Action, CallToPlan, Extension, Extensions, Outbox, Property, ReceivedMessage, Refusal,
    Transferred,
};
use rpcrdma_v2::operations::{self, Routed};
use rpcrdma_v2::{Chunks, Direction, Header, Malformed, Optional, Reader, Side, chunk_len};
use transfer_plan::{ChunkCounts, ChunkLimits, Limits, ReplyNeed, Shape};

use crate::chunks::most;

const MAX_MESSAGE: u64 = 1 << 20;
const XID: u32 = 7;

/// Checks one part of the extension. The first byte chooses the part; the rest is its input.
pub fn check(data: &[u8]) {
    let Some((&choice, bytes)) = data.split_first() else {
        return;
    };
    let mut input = Unstructured::new(bytes);
    match choice % 3 {
        0 => decoders(bytes),
        1 => drop(end(&mut input)),
        _ => drop(layout(&mut input)),
    }
}

/// Checks that decoded values encode to the same bytes, and that decoding takes no more memory than
/// the input justifies.
fn decoders(bytes: &[u8]) {
    fn one<T>(
        bytes: &[u8],
        decode: impl FnOnce(&[u8]) -> Result<T, Malformed>,
        encode: impl FnOnce(&T) -> Bytes,
    ) {
        let decoded = crate::within(most(bytes.len()), || decode(bytes));
        if let Ok(value) = decoded {
            assert_eq!(encode(&value), bytes);
        }
    }
    one(bytes, Request::decode, Request::encode);
    one(bytes, Response::decode, Response::encode);
    one(bytes, Continuation::decode, Continuation::encode);
    one(bytes, Report::decode, Report::encode);
    let structure = |bytes: &[u8]| Reader::whole(bytes, get_structure);
    one(bytes, structure, |structure| {
        let frame = crate::within(1 << 13, || Frame::new(structure));
        if let Ok(frame) = frame {
            assert_eq!(frame.len(), structure.sum());
        }
        let mut out = BytesMut::new();
        put_structure(&mut out, &structure);
        out.freeze()
    });
}

/// An extension that announces the characteristics of a peer with all features.
#[derive(Debug)]
struct Peer(Vec<Property>);

impl Extension for Peer {
    fn name(&self) -> &'static str {
        "a peer with everything"
    }

    fn numbers(&self) -> &[u32] {
        &[99]
    }

    fn received(&mut self, _: &ReceivedMessage<'_>, out: &mut Outbox<'_>) -> Result<(), Refusal> {
        self.0
            .drain(..)
            .for_each(|property| out.share_property(property));
        Ok(())
    }
}

/// A message that an end receives.
#[derive(Debug, Arbitrary)]
struct Sent {
    opttype: u8,
    reply: bool,
    xid: u8,
    info: Vec<u8>,
    /// Whether the first two words of the RPC message are valid.
    rpc: bool,
    len: u16,
}

/// Sends arbitrary messages to an end that has an outstanding call.
fn end(input: &mut Unstructured<'_>) -> arbitrary::Result<()> {
    let structure = BufferStructure::with_placement(512, 2, 4096);
    let config = Config {
        features: Features::ALL,
        takes_calls: true,
        structure: structure.clone(),
        request_limit: 4,
        response_limit: 4,
        min_placed: 64,
        max_message: MAX_MESSAGE,
        max_send: 1 << 16,
    };
    let said = vec![
        RoundTripSupport::property(&config.support()),
        RequestReceiveLimit::property(&4),
        ResponseSendLimit::property(&4),
        ReceiveBufferStructure::property(&structure),
    ];
    let list: Vec<Box<dyn Extension>> = vec![Box::new(Peer(said)), Box::new(Transmit::new(config))];
    let mut end = Extensions::new(Side::Client, 1000, list).expect("operations of their own");
    receive(&mut end, XID, Direction::Call, 99, Bytes::new(), &[]);
    outstanding(&mut end);
    while let Ok(sent) = Sent::arbitrary(input) {
        let direction = match sent.reply {
            true => Direction::Reply,
            false => Direction::Call,
        };
        let opttype = match sent.opttype % 16 {
            0..4 => 5,
            4..8 => 6,
            8..13 => 7,
            13 | 14 => 8,
            _ => 99,
        };
        let xid = XID + u32::from(sent.xid % 8 == 0);
        let mut rest = vec![0; usize::from(sent.len) % 8192];
        if sent.rpc && rest.len() >= 8 {
            rest[..4].copy_from_slice(&xid.to_be_bytes());
            rest[4..8].copy_from_slice(&direction.number().to_be_bytes());
        }
        receive(&mut end, xid, direction, opttype, sent.info.into(), &rest);
        if input.is_empty() {
            break;
        }
    }
    Ok(())
}

/// Sends a call whose reply may be placed in receives or written to a chunk.
fn outstanding(end: &mut Extensions) {
    let limits = Limits {
        inline_send: 8704,
        inline_receive: 8704,
        max_segment: 1 << 20,
        max_message: MAX_MESSAGE,
        chunks: ChunkLimits::default(),
        call_chunk: false,
        header_len: |_: &ChunkCounts| 32,
    };
    let message = Message::from_payload(Bytes::from_static(&[0; 64]));
    let call = CallToPlan {
        shape: &Shape::of(&message).expect("there are no items"),
        need: &ReplyNeed::new(64, [8000]),
        extras: &Extras::NONE,
        limits: &limits,
        credits: 4,
        reply_credits: u32::MAX,
        reservable: 4,
    };
    let transfer_mode = end.transfer_mode(1).expect("it carries calls");
    let candidates = transfer_mode.plan_call(&call);
    let placed = candidates.into_iter().find(|c| c.write_chunks.is_empty());
    let plan = placed.expect("the peer has everything").plan;
    let sent = transfer_mode.send_call(XID, &*plan, &message, &Chunks::default());
    assert_eq!(sent.map(|sent| sent.len()), Ok(1));
}

/// Passes one message to an end. Checks that it is answered with at most one error, plus one for a
/// group that it interrupts, and that delivered bytes are those of the message.
fn receive(
    end: &mut Extensions,
    xid: u32,
    direction: Direction,
    opttype: u32,
    info: Bytes,
    rest: &[u8],
) {
    let optional = Optional {
        direction,
        opttype,
        info,
    };
    let header = Header {
        xid,
        credits: 1,
        body: rpcrdma_v2::Body::Optional(optional),
    };
    let head = header.encode();
    let at = head.len();
    let bytes = Bytes::from([&head[..], rest].concat());
    let routed = operations::route(end, &header, std::slice::from_ref(&bytes), at);
    let mut answers = u32::from(matches!(routed, Routed::Refused(_)));
    while let Some(action) = end.next_action() {
        match action {
            Action::Send(operation) => {
                answers += 1;
                Report::decode(&operation.fields).expect("a report of ours");
            }
            Action::Transferred { transferred, .. } => delivered(transferred),
            _ => {}
        }
    }
    assert!(answers <= 1 + u32::from(opttype != 7), "{answers} answers");
}

fn delivered(transferred: Transferred) {
    match transferred {
        Transferred::Call(call) => {
            assert!((1..=4).contains(&call.transmissions));
            let mut len = call.message.stream_len();
            for chunk in &call.chunks.items {
                assert_eq!(chunk_len(&chunk.segments), u64::from(chunk.length));
                assert!(chunk.position > 0);
                len += padded(u64::from(chunk.length));
            }
            // Up to the round-up of an item.
            assert!(len <= MAX_MESSAGE + 64);
        }
        Transferred::Reply(reply) => {
            assert!((1..=4).contains(&reply.transmissions));
            assert!(reply.message.stream_len() <= MAX_MESSAGE);
            assert!(reply.writes.is_empty());
        }
        Transferred::Rejected { xid, .. } => assert_eq!(xid, XID),
        other => panic!("the extension does not deliver {other:?}"),
    }
}

#[derive(Debug, Arbitrary)]
struct Problem {
    segments: Vec<(u16, u8, bool)>,
    first: u8,
    next: u8,
    payload: u16,
    items: Vec<u16>,
    max: u8,
    within: u16,
}

/// Checks that every layout fits the receives, and that its receiver finds every byte.
fn layout(input: &mut Unstructured<'_>) -> arbitrary::Result<()> {
    let problem = Problem::arbitrary(input)?;
    let group = |&(length, align, target): &(u16, u8, bool)| SegmentGroup {
        count: 1,
        segment: BufferSegment {
            length: u32::from(length),
            align: u32::from(align) & !3,
            flags: match target {
                true => SegmentFlags::DDP,
                false => SegmentFlags::empty(),
            },
        },
    };
    let segments = problem.segments.iter().take(16);
    let structure = BufferStructure::new(segments.map(group));
    let frame = Frame::new(&structure).expect("a small buffer");
    let frame = frame.within(u64::from(problem.within));
    let headers = Headers {
        first: u64::from(problem.first),
        next: u64::from(problem.next),
    };
    let items: Vec<u64> = problem
        .items
        .iter()
        .take(16)
        .copied()
        .map(u64::from)
        .collect();
    let payload = u64::from(problem.payload) & !3;
    let made = lay_out(&frame, &headers, payload, &items, u32::from(problem.max));
    if let Ok(layout) = made {
        fits(&layout, &frame, &headers, payload, &items, problem.max);
    }
    Ok(())
}

fn fits(layout: &Layout, frame: &Frame, headers: &Headers, payload: u64, items: &[u64], max: u8) {
    let count = layout.parts.len();
    assert!(count >= 1 && count <= usize::from(max));
    let (mut sent, mut all) = (0, Vec::new());
    for (number, part) in layout.parts.iter().enumerate() {
        let header = match number {
            0 => layout.first_header(headers),
            _ => headers.next,
        };
        assert!(part.len(header) <= frame.len());
        assert_eq!(part.payload.start, sent);
        sent = part.payload.end;
        let mut free = header + (part.payload.end - part.payload.start);
        for run in &part.runs {
            assert!(u64::from(run.at) >= free);
            free = u64::from(run.at) + run.len;
        }
    }
    assert_eq!(sent, payload);
    for ((item, &len), spot) in items.iter().enumerate().zip(&layout.spots) {
        let places = locate(frame, count as u32, spot, len as u32).expect("it was placed");
        let runs = layout.parts.iter().enumerate().flat_map(|(number, part)| {
            let runs = part.runs.iter().filter(|run| run.item == item);
            runs.map(move |run| (number, u64::from(run.at), run.len))
        });
        let found = places.iter().map(|p| (p.transmission, p.at, p.len));
        assert!(runs.eq(found));
        all.extend(places);
    }
    assert_eq!(overlapping_segment(&all), None);
}
