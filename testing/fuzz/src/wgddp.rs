//! Placement by Sends in the working group's version 2: every decoder, an end that receives
//! arbitrary parts, and messages that a receiver must put together as they were sent.

use arbitrary::{Arbitrary, Unstructured};
use bytes::{BufMut as _, Bytes, BytesMut};
use onc_rpc::{BulkItem, Extras, Message, Position, padded};
use rpcrdma_ext_wg_ddp::header_type::{
    CALL_PLACED, CALL_PLACED_MIDDLE, REPLY_PLACED, REPLY_PLACED_MIDDLE,
};
use rpcrdma_ext_wg_ddp::{
    CallPlaced, Config, PlacedItem, PlacedMiddle, Placement, ReplyPlaced, Support, limits,
    property_id, smallest_result_from, smallest_result_value, structure_from, structure_value,
    support_from, support_value,
};
use rpcrdma_extension::layout::{
    BufferSegment, BufferStructure, Frame, SegmentFlags, SegmentGroup,
};
use rpcrdma_extension::{
    Action, CallCandidate, CallToPlan, Extension, Extensions, Outbox, Property, ReceivedMessage,
    Refusal, ReplyToPlan, Transferred, Transmissions,
};
use rpcrdma_v2::{Chunks, Direction, Malformed, Reader, Segment, Side, WriteChunk};
use rpcrdma_v2_wg::limits::PREFIX_LEN;
use rpcrdma_v2_wg::{Header, VERSION, header_type as base, property_id as base_property};
use transfer_plan::{ChunkCounts, ChunkLimits, Limits, ReplyNeed, Shape};

use crate::chunks::{most, within_limits};

const MAX_MESSAGE: u64 = 1 << 14;
const XID: u32 = 7;
/// Longer segments and items take more time and find nothing more.
const MAX_SEGMENT: u16 = 512;
const MAX_ITEM: u16 = 1200;
/// A header type of the peer in these tests.
const ANNOUNCE: u32 = 99;

/// Checks one part of the extension. The first byte chooses the part; the rest is its input.
pub fn check(data: &[u8]) {
    let Some((&choice, bytes)) = data.split_first() else {
        return;
    };
    let mut input = Unstructured::new(bytes);
    match choice % 3 {
        0 => decoders(bytes),
        1 => drop(end(&mut input)),
        _ => drop(exchange(&mut input)),
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
    let whole = |bytes: &[u8]| Reader::whole(bytes, PlacedMiddle::decode);
    one(bytes, whole, PlacedMiddle::encode);
    let whole = |bytes: &[u8]| Reader::whole(bytes, CallPlaced::decode);
    one(bytes, whole, |call| {
        assert!(call.items.len() <= limits::MAX_ITEMS);
        within_limits(&call.chunks);
        call.encode()
    });
    let whole = |bytes: &[u8]| Reader::whole(bytes, ReplyPlaced::decode);
    one(bytes, whole, |reply| {
        let len = ReplyPlaced::header_len(&reply.writes, reply.items.len());
        assert_eq!(len, (PREFIX_LEN + bytes.len()) as u64);
        assert!(reply.items.len() <= limits::MAX_ITEMS);
        reply.encode()
    });
    one(bytes, structure_from, |structure| {
        let frame = crate::within(1 << 13, || Frame::new(structure));
        if let Ok(frame) = frame {
            assert_eq!(frame.len(), structure.sum());
        }
        structure_value(structure)
    });
    one(bytes, support_from, |support| support_value(*support));
    one(bytes, smallest_result_from, |length| {
        smallest_result_value(*length)
    });
}

/// An extension that announces the properties of a peer.
#[derive(Debug)]
struct Peer(Vec<Property>);

impl Extension for Peer {
    fn name(&self) -> &'static str {
        "a peer"
    }

    fn numbers(&self) -> &[u32] {
        &[ANNOUNCE]
    }

    fn received(&mut self, _: &ReceivedMessage<'_>, out: &mut Outbox<'_>) -> Result<(), Refusal> {
        self.0
            .drain(..)
            .for_each(|property| out.share_property(property));
        Ok(())
    }
}

/// Returns one end, to which the peer has announced its properties: receives of this structure,
/// Sends of up to `send_size` bytes, and all abilities. With `both`, it makes calls and takes them.
fn new_end(
    side: Side,
    both: bool,
    structure: &BufferStructure,
    send_size: u32,
    min_placed: u32,
) -> Extensions {
    let config = Config {
        makes_calls: both || side == Side::Client,
        takes_calls: both || side == Side::Server,
        send: true,
        receive: true,
        offer_invalidation: true,
        structure: structure.clone(),
        min_placed,
        max_message: MAX_MESSAGE,
        max_segments: 256,
    };
    let word = |word: u32| Bytes::copy_from_slice(&word.to_be_bytes());
    // A longer one is a structure of no receive.
    let receive_size = u32::try_from(structure.sum()).unwrap_or(u32::MAX);
    let property = |id, value| Property { id, value };
    let said = vec![
        property(base_property::SEND_SIZE, word(send_size)),
        property(base_property::RECEIVE_SIZE, word(receive_size)),
        property(property_id::STRUCTURE, structure_value(structure)),
        property(property_id::SUPPORT, support_value(Support::all())),
        property(
            property_id::SMALLEST_RESULT,
            smallest_result_value(min_placed),
        ),
    ];
    let list: Vec<Box<dyn Extension>> =
        vec![Box::new(Peer(said)), Box::new(Placement::new(config))];
    let mut end = Extensions::new(side, 1000, list).expect("header types of their own");
    received(&mut end, XID, ANNOUNCE, &[Bytes::new()]).expect("properties are taken");
    while end.next_action().is_some() {}
    end
}

/// Passes a message to an end.
fn received(
    end: &mut Extensions,
    xid: u32,
    header_type: u32,
    message: &[Bytes],
) -> Result<(), Refusal> {
    end.received(&ReceivedMessage {
        number: header_type,
        xid,
        direction: match header_type {
            REPLY_PLACED | REPLY_PLACED_MIDDLE => Direction::Reply,
            _ => Direction::Call,
        },
        credits: 1,
        message,
        fields: rpcrdma_extension::Fields::Open { at: PREFIX_LEN },
    })
}

/// The fields of a header.
#[derive(Debug, Arbitrary)]
enum Fields {
    /// Any bytes.
    Raw(Vec<u8>),
    Middle {
        messages: u8,
        remaining: u16,
        payload: u16,
    },
    Last {
        handle: Option<u8>,
        reads: bool,
        /// Position in words, length, segment, and offset in words of each item.
        items: Vec<(u16, u16, u8, u8)>,
        payload: u16,
    },
}

/// A message that an end receives.
#[derive(Debug, Arbitrary)]
struct Sent {
    header_type: u8,
    xid: u8,
    fields: Fields,
    /// Whether the payload begins as an RPC message of this direction and XID.
    rpc: bool,
    len: u16,
    /// Length of the first receive segment.
    first: u16,
}

impl Fields {
    fn encode(self, is_call: bool) -> Bytes {
        match self {
            Self::Raw(bytes) => bytes.into(),
            Self::Middle {
                messages,
                remaining,
                payload,
            } => PlacedMiddle {
                messages: u32::from(messages),
                remaining: u32::from(remaining),
                payload: u32::from(payload),
            }
            .encode(),
            Self::Last {
                handle,
                reads,
                items,
                payload,
            } => {
                let item = |(position, length, segment, offset)| PlacedItem {
                    position: 4 * u32::from(position),
                    length: u32::from(length),
                    segment: u32::from(segment),
                    offset: 4 * u32::from(offset),
                };
                let items = items.into_iter().map(item).collect();
                let payload = u32::from(payload);
                let segment = Segment {
                    handle: u32::from(handle.unwrap_or_default()),
                    length: 8,
                    offset: 0,
                };
                let writes = vec![[segment].into_iter().collect()];
                if !is_call {
                    let writes = if reads { writes } else { Vec::new() };
                    return ReplyPlaced {
                        writes,
                        items,
                        payload,
                    }
                    .encode();
                }
                let read = rpcrdma_v2::ReadSegment {
                    position: 8,
                    segment,
                };
                CallPlaced {
                    inv_handle: u32::from(handle.unwrap_or_default()),
                    chunks: Chunks {
                        reads: reads.then_some(read).into_iter().collect(),
                        writes,
                        reply: None,
                    },
                    items,
                    payload,
                }
                .encode()
            }
        }
    }
}

/// Sends arbitrary messages to an end.
fn end(input: &mut Unstructured<'_>) -> arbitrary::Result<()> {
    let kind = u8::arbitrary(input)?;
    let side = match kind & 1 {
        0 => Side::Client,
        _ => Side::Server,
    };
    let both = kind & 2 != 0;
    let structure = BufferStructure::with_placement(512, 2, 4096);
    let send_size = match bool::arbitrary(input)? {
        true => 8704,
        false => 4608,
    };
    let mut end = new_end(side, both, &structure, send_size, 64);
    // The direction and XID of the message of which parts have arrived.
    let mut begun = None;
    while let Ok(sent) = Sent::arbitrary(input) {
        let calls = match both {
            true => sent.xid & 16 == 0,
            false => side == Side::Server,
        };
        let own = match calls {
            true => (CALL_PLACED, CALL_PLACED_MIDDLE),
            false => (REPLY_PLACED, REPLY_PLACED_MIDDLE),
        };
        let header_type = match (sent.header_type % 16, &sent.fields) {
            (0, _) => [CALL_PLACED, REPLY_PLACED][usize::from(sent.rpc)],
            (1, _) => CALL_PLACED_MIDDLE,
            (2, _) => REPLY_PLACED_MIDDLE,
            (3..8, Fields::Raw(_)) | (_, Fields::Middle { .. }) => own.1,
            _ => own.0,
        };
        let is_call = matches!(header_type, CALL_PLACED | CALL_PLACED_MIDDLE);
        let xid = XID + u32::from(sent.xid % 8 == 0);
        let mut rest = vec![1; usize::from(sent.len) % 8704];
        if sent.rpc && rest.len() >= 8 {
            rest[..4].copy_from_slice(&xid.to_be_bytes());
            rest[4..8].copy_from_slice(&u32::from(!is_call).to_be_bytes());
        }
        let fields = sent.fields.encode(is_call);
        let message = message(xid, header_type, &fields, &rest);
        let first = usize::from(sent.first).clamp(1, message.len());
        let pieces = [message.slice(..first), message.slice(first..)];
        let routed = received(&mut end, xid, header_type, &pieces);
        let takes = both || is_call == (side == Side::Server);
        after(&mut end, is_call, takes, xid, routed);
        let is_last = matches!(header_type, CALL_PLACED | REPLY_PLACED);
        if is_last && begun == Some((is_call, xid)) {
            assert!(end.in_progress().is_none(), "the last part has arrived");
        }
        begun = end
            .in_progress()
            .map(|it| (it.direction == Direction::Call, it.xid));
        if input.is_empty() {
            break;
        }
    }
    end.closed();
    assert!(end.in_progress().is_none(), "parts of a closed connection");
    Ok(())
}

fn message(xid: u32, header_type: u32, fields: &[u8], rest: &[u8]) -> Bytes {
    let mut out = BytesMut::new();
    for word in [xid, VERSION, 1, header_type] {
        out.put_u32(word);
    }
    out.put_slice(fields);
    out.put_slice(rest);
    out.freeze()
}

/// Checks that a message has at most one consequence: that an error is sent, about a call alone,
/// that an RPC message is delivered, or that a reply ends its call. A message of a direction that
/// the end does not take is refused.
fn after(end: &mut Extensions, is_call: bool, takes: bool, xid: u32, done: Result<(), Refusal>) {
    let answer = done.err().and_then(|refusal| refusal.answer());
    assert!(takes || answer.is_some());
    assert!(
        !takes || is_call || answer.is_none(),
        "an error about a reply"
    );
    let ends_a_call = matches!(done, Err(Refusal::Unusable(_)));
    let mut count = u32::from(answer.is_some() || ends_a_call);
    while let Some(action) = end.next_action() {
        match action {
            Action::Send(sent) => panic!("a message of its own: {sent:?}"),
            Action::Transferred { transferred, .. } => {
                assert!(takes);
                delivered(transferred, is_call, xid);
            }
            _ => continue,
        }
        count += 1;
    }
    assert!(count <= 1, "{count} consequences");
}

fn delivered(transferred: Transferred, is_call: bool, expected: u32) {
    let (xid, message, transmissions, of) = match transferred {
        Transferred::BaseCall { call, handle } => {
            let mut handles = call
                .chunks
                .writes
                .iter()
                .chain(&call.chunks.reply)
                .flatten();
            assert!(handle.is_none_or(|handle| handles.any(|known| known.handle == handle)));
            assert!(call.chunks.items.is_empty() && call.chunks.payload.is_none());
            (call.xid, call.message, call.transmissions, true)
        }
        Transferred::AnyReply(reply) => {
            assert!(reply.writes.is_empty());
            (reply.xid, reply.message, reply.transmissions, false)
        }
        Transferred::Unusable { xid, .. } => {
            assert_eq!((xid, is_call), (expected, false));
            return;
        }
        other => panic!("the extension does not deliver {other:?}"),
    };
    assert_eq!((xid, is_call), (expected, of));
    assert!((1..=limits::MAX_PARTS).contains(&transmissions));
    assert!(message.stream_len() <= MAX_MESSAGE);
    let mut end = 8;
    for item in message.items() {
        let Position::At(position) = item.position else {
            panic!("an item without a position");
        };
        assert!(u64::from(position) >= end && position % 4 == 0);
        end = u64::from(position) + padded(item.data.len() as u64);
    }
    assert!(end <= message.stream_len());
}

/// A message between two ends.
#[derive(Debug, Arbitrary)]
struct Problem {
    is_call: bool,
    /// Length, alignment in words, and whether it is a target.
    segments: Vec<(u16, u8, bool)>,
    /// Number of bytes by which the longest message is shorter than a receive.
    shorter: u16,
    min_placed: u16,
    /// Words of payload before each item, and its length.
    items: Vec<(u8, u16)>,
    /// Words of payload after the last item.
    tail: u8,
    credits: u8,
    /// Whether receives are cut into their segments.
    cut: bool,
    /// Whether both ends make calls and take them, and whether the calls are the server's.
    both: bool,
    reverse: bool,
    /// Lengths of the results that a call asks for.
    results: Vec<u16>,
}

/// Checks that what one end sends fits the receives of the other, and is put together there.
fn exchange(input: &mut Unstructured<'_>) -> arbitrary::Result<()> {
    let problem = Problem::arbitrary(input)?;
    let group = |&(length, align, target): &(u16, u8, bool)| SegmentGroup {
        count: 1,
        segment: BufferSegment {
            length: u32::from(length % MAX_SEGMENT),
            align: 4 * u32::from(align),
            flags: match target {
                true => SegmentFlags::DDP,
                false => SegmentFlags::empty(),
            },
        },
    };
    let structure = BufferStructure::new(problem.segments.iter().take(16).map(group));
    let sum = structure.sum();
    let send_size = sum.saturating_sub(u64::from(problem.shorter));
    let min_placed = u32::from(problem.min_placed);
    let both = problem.both || problem.reverse;
    let (sender, receiver) = match problem.is_call != problem.reverse {
        true => (Side::Client, Side::Server),
        false => (Side::Server, Side::Client),
    };
    // At most 16 short segments.
    let send_size_told = u32::try_from(send_size).expect("a small buffer");
    let mut from = new_end(sender, both, &structure, send_size_told, min_placed);
    let mut to = new_end(receiver, both, &structure, send_size_told, min_placed);
    let sent = message_of(&problem);
    for (chunks, transmissions) in ways(&mut from, &problem, &sent, send_size) {
        match &transmissions[..] {
            [plain] if plain.number == base::CALL_INLINE => {
                let payload = plain.content();
                let bytes = message(XID, plain.number, &plain.fields, &payload);
                assert!(bytes.len() as u64 <= send_size);
                let (header, at) = Header::decode(&bytes).expect("a call");
                assert_eq!(header.body.chunks(), Some(&chunks));
                assert_eq!(bytes[at..], sent.gather(|_| true).concat());
            }
            _ => {
                assert!(transmissions.len() <= usize::from(problem.credits));
                arrives(&mut to, &sent, &chunks, transmissions, &problem, send_size);
            }
        }
    }
    Ok(())
}

/// Returns the message, in whose payload and items no byte is zero.
fn message_of(problem: &Problem) -> Message {
    let mut payload = BytesMut::new();
    payload.put_u32(XID);
    payload.put_u32(u32::from(!problem.is_call));
    let (mut items, mut position) = (Vec::new(), 8);
    for &(words, len) in problem.items.iter().take(limits::MAX_ITEMS + 1) {
        let len = len % MAX_ITEM;
        payload.put_bytes(0xaa, 4 * usize::from(words));
        position += 4 * u32::from(words);
        items.push(BulkItem {
            position: Position::At(position),
            data: Bytes::from(vec![0xbb; usize::from(len)]).into(),
        });
        position += padded(u64::from(len)) as u32;
    }
    payload.put_bytes(0xaa, 4 * usize::from(problem.tail));
    Message::new([payload.freeze()].into_iter().collect(), items)
}

/// Returns the chunks that a call offers for its reply.
fn offered(candidate: &CallCandidate) -> Chunks {
    let mut handle = 0;
    let mut chunk = |len: u64| -> WriteChunk {
        handle += 1;
        let length = u32::try_from(len).expect("a short result");
        let offset = 0;
        std::iter::once(Segment {
            handle,
            length,
            offset,
        })
        .collect()
    };
    Chunks {
        reads: Vec::new(),
        writes: candidate
            .write_chunks
            .iter()
            .map(|&len| chunk(len))
            .collect(),
        reply: candidate.reply_chunk.map(chunk),
    }
}

/// Returns each way in which an end sends the message with items placed, or a call whose results
/// are, and the chunks that it offers.
fn ways(
    from: &mut Extensions,
    problem: &Problem,
    message: &Message,
    send_size: u64,
) -> Vec<(Chunks, Transmissions)> {
    let limits = Limits {
        inline_send: send_size,
        inline_receive: send_size,
        max_segment: 1 << 20,
        max_message: MAX_MESSAGE,
        chunks: ChunkLimits::default(),
        call_chunk: false,
        header_len: |_: &ChunkCounts| 32,
    };
    let shape = Shape::of(message).expect("items in order");
    let credits = u32::from(problem.credits);
    let mode = from.transfer_mode(1).expect("it carries messages");
    if !problem.is_call {
        let reply = ReplyToPlan {
            shape: &shape,
            credits,
            limits: &limits,
            context: &(),
        };
        let Some(candidate) = mode.plan_base_reply(&reply, &[]) else {
            return Vec::new();
        };
        let count = candidate.cost.transmissions;
        let sent = mode.send_reply(XID, &*candidate.plan, message);
        let sent = sent.expect("it was planned");
        assert_eq!(sent.len(), count as usize);
        return vec![(Chunks::default(), sent)];
    }
    let results = problem.results.iter().take(limits::MAX_ITEMS + 1);
    let results = results.map(|&len| u64::from(len % MAX_ITEM));
    let call = CallToPlan {
        shape: &shape,
        need: &ReplyNeed::new(24, results),
        extras: &Extras::NONE,
        limits: &limits,
        credits,
        reply_credits: credits,
        reservable: 0,
    };
    let mut ways = Vec::new();
    for candidate in mode.plan_call(&call) {
        let count = candidate.cost.transmissions;
        let chunks = offered(&candidate);
        let sent = mode.send_call(XID, &*candidate.plan, message, &chunks);
        let sent = sent.expect("it was planned");
        assert_eq!(sent.len(), count as usize);
        ways.push((chunks, sent));
    }
    ways
}

/// Sends the parts to the other end, which must deliver the same message with the last one.
fn arrives(
    to: &mut Extensions,
    sent: &Message,
    offered: &Chunks,
    transmissions: Transmissions,
    problem: &Problem,
    send_size: u64,
) {
    let joined = |message: &Message| message.gather(|_| true).concat();
    let filled = |bytes: &[u8]| bytes.iter().filter(|byte| **byte != 0).count();
    let (count, mut seen) = (transmissions.len(), 0);
    for (number, part) in transmissions.into_iter().enumerate() {
        let payload = part.content();
        seen += filled(&payload);
        let bytes = message(XID, part.number, &part.fields, &payload);
        assert!(bytes.len() as u64 <= send_size);
        let mut pieces = Vec::new();
        let mut left = bytes;
        for &(length, ..) in problem.segments.iter().take(16).filter(|_| problem.cut) {
            let length = usize::from(length % MAX_SEGMENT);
            pieces.push(left.split_to(length.min(left.len())));
        }
        if !left.is_empty() {
            pieces.push(left);
        }
        assert_eq!(received(to, XID, part.number, &pieces), Ok(()));
        let is_last = number + 1 == count;
        assert_eq!(to.in_progress().is_some(), !is_last);
        let mut arrived = Vec::new();
        while let Some(action) = to.next_action() {
            if let Action::Transferred { transferred, .. } = action {
                arrived.push(match transferred {
                    Transferred::BaseCall { call, handle } => {
                        assert_eq!(call.chunks.writes, offered.writes);
                        assert_eq!(call.chunks.reply, offered.reply);
                        assert_eq!(handle.is_some(), offered.handles().next().is_some());
                        (call.message, call.transmissions)
                    }
                    Transferred::AnyReply(reply) => (reply.message, reply.transmissions),
                    other => panic!("not delivered: {other:?}"),
                });
            }
        }
        match (is_last, &arrived[..]) {
            (true, [(whole, transmissions)]) => {
                assert_eq!(*transmissions as usize, count);
                assert_eq!(joined(whole), joined(sent));
                assert!(!whole.items().is_empty());
            }
            (false, []) => {}
            _ => panic!("{} messages delivered", arrived.len()),
        }
    }
    // What pads a message is zero, so that it tells nothing of other memory.
    assert_eq!(seen, filled(&joined(sent)));
}
