//! Tests of the shortcut for messages without chunks: it sends exactly the bytes that a plan would
//! give, and applies to no other messages.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test may panic")]

mod support;

use bytes::Bytes;
use onc_rpc::{BulkItem, Message, Position, Segments};
use quickcheck::{Arbitrary, Gen, quickcheck};
use rpcrdma_chunks::{Chunks, Segment, WriteChunk, chunk_len, fill, unused};
use rpcrdma_connection::ReplyRoom;
use rpcrdma_connection::dialect::{Dialect, VersionOne, VersionTwo};
use rpcrdma_negotiation::Version;
use rpcrdma_v1::PrivateData;
use rpcrdma_v2::limits::DEFAULT_INLINE;
use rpcrdma_v2::{Answer, Direction, ErrorBody};
use support::{Endpoint, Seen, configs_with, data};
use transfer_plan::{
    ChunkCounts, ChunkLimits, Limits, Offer, Offers, ReplyNeed, ReplyPayload, ReplyPlan, Shape,
    plan_call, plan_reply,
};

const XID: u32 = 0x1234_5678;
/// The credits that calls request and replies grant.
const CREDITS: u32 = 5;
/// The length of an RPC reply header in bytes, for which a requester adds room by itself.
const REPLY_HEADER: u64 = 24;

/// A call, a reply to it, and the inline limits of both ends. The lengths are often close to the
/// limits.
#[derive(Clone, Debug)]
struct Case {
    version: Version,
    /// The maximum length of an inline message to send, in bytes. In version 1 also of one to
    /// receive.
    inline: u32,
    max_message: u32,
    /// The number of bytes after the XID and the message type.
    len: usize,
    items: Vec<usize>,
    /// The room for the results and their items.
    room: ReplyRoom,
    writes: Vec<WriteChunk>,
    reply: Option<WriteChunk>,
}

/// Returns a function that computes the length in bytes of a header with the given numbers of
/// chunks.
fn header_len(version: Version) -> fn(&ChunkCounts) -> u64 {
    match version {
        Version::ONE => VersionOne.header_len(),
        _ => VersionTwo.header_len(),
    }
}

impl Arbitrary for Case {
    fn arbitrary(g: &mut Gen) -> Self {
        let version = *g.choose(&[Version::ONE, Version::TWO]).unwrap();
        let header = header_len(version)(&Default::default());
        let inline = *g.choose(&[1024, 2048, 4096]).unwrap();
        let bytes = u64::from(inline);
        // Within a few words of the longest that fits, or any length.
        let near = |g: &mut Gen, of: u64| match bool::arbitrary(g) {
            true => (of + u64::from(u8::arbitrary(g) % 24)).saturating_sub(header + 8 + 12),
            false => u64::arbitrary(g) % (2 * of),
        };
        let lens = |g: &mut Gen, most: u64| -> Vec<usize> {
            let count = [0, 0, 0, 1, 2][usize::arbitrary(g) % 5];
            (0..count)
                .map(|_| (u64::arbitrary(g) % most) as usize)
                .collect()
        };
        let chunk = |g: &mut Gen| -> WriteChunk {
            (0..u32::arbitrary(g) % 3)
                .map(|n| Segment {
                    handle: 0x100 + n,
                    length: u32::arbitrary(g) % 3000,
                    offset: u64::from(n) << 20,
                })
                .collect()
        };
        let count = [0, 0, 0, 1, 2][usize::arbitrary(g) % 5];
        Self {
            version,
            inline,
            max_message: *g.choose(&[inline, 1 << 20]).unwrap(),
            len: near(g, bytes) as usize / 4 * 4,
            items: lens(g, 3 * bytes),
            room: ReplyRoom {
                payload: near(g, bytes).saturating_sub(16) as u32,
                items: lens(g, bytes).iter().map(|&len| len as u32).collect(),
                idempotent: false,
            },
            writes: (0..count).map(|_| chunk(g)).collect(),
            reply: (u8::arbitrary(g) % 3 == 0).then(|| chunk(g)),
        }
    }
}

impl Case {
    /// Returns the limits of the end that sends.
    fn limits(&self) -> Limits {
        let inline = u64::from(self.inline);
        Limits {
            inline_send: inline,
            inline_receive: match self.version {
                Version::ONE => inline,
                // The peer does not exchange characteristics, so it is the default.
                _ => u64::from(DEFAULT_INLINE),
            },
            max_segment: 1 << 20,
            max_message: u64::from(self.max_message),
            chunks: ChunkLimits::default(),
            call_chunk: false,
            header_len: header_len(self.version),
        }
    }

    fn message(&self, direction: Direction, with_items: bool) -> Message {
        let start = [XID, direction.number()].map(u32::to_be_bytes).concat();
        let payload = [Bytes::from(start), data(1, self.len)];
        let end = 8 + self.len as u32;
        let item = |(at, &len): (usize, &usize)| BulkItem {
            // Each item follows the one before, at the end of the payload.
            position: Position::At(end + self.items[..at].iter().map(|l| padded(*l)).sum::<u32>()),
            data: data(2, len).into(),
        };
        let items = self.items.iter().enumerate().map(item);
        let items: Vec<BulkItem> = if with_items { items.collect() } else { vec![] };
        Message::new(payload.into_iter().collect(), items)
    }

    /// Returns the header of a message of the base protocol, with these chunks.
    fn encode(&self, direction: Direction, credits: u32, inline: bool, chunks: Chunks) -> Bytes {
        match (self.version, inline) {
            (Version::ONE, true) => one(credits, rpcrdma_v1::Body::Msg(chunks)),
            (Version::ONE, false) => one(credits, rpcrdma_v1::Body::NoMsg(chunks)),
            (_, true) => two(credits, rpcrdma_v2::Body::Msg(direction, chunks)),
            (_, false) => two(credits, rpcrdma_v2::Body::NoMsg(direction, chunks)),
        }
    }

    fn error(&self, credits: u32) -> Bytes {
        match self.version {
            Version::ONE => rpcrdma_v1::Answer::chunk(XID).encode(credits),
            _ => Answer::bad_header(XID).encode(credits),
        }
    }

    /// Returns the Send that the plan gives for the reply.
    fn planned_reply(&self, message: &Message, credits: u32) -> Bytes {
        let offer = |chunk: &WriteChunk| Offer {
            segments: chunk.len() as u64,
            capacity: chunk_len(chunk),
        };
        let offers = Offers {
            writes: self.writes.iter().map(offer).collect(),
            reply: self.reply.as_ref().map(offer),
        };
        let shape = Shape::of(message).unwrap();
        let mut limits = self.limits();
        let mut planned = plan_reply(&shape, &offers, &limits);
        if planned.is_err() && self.version == Version::TWO {
            // The call may have counted on the default of version 2, which is the last resort.
            limits.inline_send = u64::from(DEFAULT_INLINE);
            planned = plan_reply(&shape, &offers, &limits);
        }
        let Ok(plan) = planned else {
            return self.error(credits);
        };
        let ReplyPlan { payload, .. } = plan;
        let inline = payload == ReplyPayload::Inline;
        let long = |chunk: &WriteChunk| match inline {
            true => unused(chunk),
            false => fill(chunk, plan.payload_len).unwrap(),
        };
        let written = self.writes.iter().enumerate();
        let chunks = Chunks {
            reads: Vec::new(),
            writes: written
                .map(|(index, chunk)| fill(chunk, plan.written(index)).unwrap())
                .collect(),
            reply: self.reply.as_ref().map(long),
        };
        let header = self.encode(Direction::Reply, credits, inline, chunks);
        let stays = |index: usize| plan.items[index].1 == transfer_plan::ReplyItem::InPayload;
        let rest = if inline {
            message.gather(stays)
        } else {
            Segments::new()
        };
        let send = [&header[..], &rest.concat()].concat();
        assert_eq!(send.len() as u64, plan.send_len());
        send.into()
    }
}

fn padded(len: usize) -> u32 {
    onc_rpc::padded(len as u64) as u32
}

fn one(credits: u32, body: rpcrdma_v1::Body) -> Bytes {
    let xid = XID;
    rpcrdma_v1::Header { xid, credits, body }.encode()
}

fn two(credits: u32, body: rpcrdma_v2::Body) -> Bytes {
    let xid = XID;
    rpcrdma_v2::Header { xid, credits, body }.encode()
}

/// Returns the Sends of an end, without operations of extensions.
fn sends(end: &Endpoint) -> Vec<Bytes> {
    let is_operation = |bytes: &Bytes| Seen::new(bytes).is_some_and(|seen| seen.optional);
    let sent = end.sent.iter().map(|(bytes, _)| bytes);
    sent.filter(|bytes| !is_operation(bytes)).cloned().collect()
}

/// Returns a client that speaks this case's version with a server without characteristics.
fn client(case: &Case) -> Endpoint {
    let (config, _) = configs_with(case.version, |client, _| {
        client.credits = CREDITS;
        (client.inline_send, client.inline_receive) = (case.inline, case.inline);
        client.max_message = case.max_message;
        client.max_segment = 1 << 20;
    });
    let mut client = Endpoint::new(config);
    client.establish(Some(PrivateData::new(4096, 4096, false)));
    if case.version == Version::TWO {
        let asked = Seen::new(&client.sent[0].0).unwrap();
        let answer = Answer {
            xid: asked.xid,
            version: 2,
            error: ErrorBody::InvalidOption,
        };
        client.receive(&answer.encode(1), None).unwrap();
        client.run();
        client.sent.clear();
    }
    assert_eq!(client.decisions.len(), 1);
    client
}

quickcheck! {
    /// RFC 8166, section 3.5: a responder sends what [`plan_reply`] says, by the shortcut or not.
    fn replies_are_those_of_the_plan(case: Case, with_items: bool) -> bool {
        let (_, config) = configs_with(case.version, |_, server| {
            server.credits = CREDITS;
            server.inline_send = case.inline;
            server.remote_invalidation = false;
            server.max_message = 1 << 20;
        });
        let mut server = Endpoint::new(config);
        server.establish(Some(PrivateData::new(4096, 4096, false)));
        let chunks = Chunks {
            reads: Vec::new(),
            writes: case.writes.clone(),
            reply: case.reply.clone(),
        };
        let call = case.encode(Direction::Call, CREDITS, true, chunks);
        let start = [XID, Direction::Call.number(), 7].map(u32::to_be_bytes).concat();
        server.receive(&[&call[..], &start].concat().into(), None).unwrap();
        server.run();
        let (id, _) = server.delivered.pop_front().expect("the call is right");
        let message = case.message(Direction::Reply, with_items);
        let expected = case.planned_reply(&message, CREDITS);
        server.reply(id, Some(message));
        server.run();
        sends(&server) == [expected]
    }

    /// A requester sends what [`plan_call`] says: a call without chunks in one step, any other
    /// after registration.
    fn calls_are_those_of_the_plan(case: Case, with_items: bool) -> bool {
        let mut client = client(&case);
        let limits = case.limits();
        let message = case.message(Direction::Call, with_items);
        let need = ReplyNeed::new(
            (REPLY_HEADER + u64::from(case.room.payload)).max(REPLY_HEADER + 8),
            case.room.items.iter().map(|&len| u64::from(len)),
        );
        let shape = Shape::of(&message).unwrap();
        let plan = plan_call(&shape, &need, &limits);
        let plain = plan.as_ref().is_ok_and(|plan| plan.is_plain(&need));
        let expected = plain.then(|| {
            let header = case.encode(Direction::Call, CREDITS, true, Chunks::default());
            [&header[..], &message.gather(|_| true).concat()].concat()
        });
        client.connection.call(XID, message, &case.room).unwrap();
        client.poll();
        match (&sends(&client)[..], &client.finished[..]) {
            ([sent], []) => match expected {
                Some(expected) => *sent == expected,
                // In one Send, but with room for items in the reply: as long as the plan says.
                None => plan.is_ok_and(|plan| sent.len() as u64 == plan.send_len()),
            },
            ([], [(XID, Err(_))]) => plan.is_err(),
            ([], []) => expected.is_none() && plan.is_ok() && !client.registering.is_empty(),
            _ => false,
        }
    }
}
