//! Messages that go past plans and chunks: byte for byte what the plan would have made of them, and only
//! they.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod rdma_support;

use bytes::Bytes;
use conveyance::{
    Limits, Offer, Offers, ReplyNeed, ReplyPayload, ReplyPlan, Shape, plan_call, plan_reply,
};
use onc_rpc::{BulkItem, Message, Position, Segments};
use quickcheck::{Arbitrary, Gen, quickcheck};
use rdma::Pool;
use rdma_support::data;
use rpc_transport::ReplyRoom;
use rpc_transport::rdma::{
    Requester, RequesterAction, RequesterConfig, Responder, ResponderAction, ResponderConfig,
    Version, header_len,
};
use rpcrdma_chunks::{Chunks, Segment, WriteChunk, chunk_len, fill, unused};
use rpcrdma_v2::Direction;

const XID: u32 = 0x1234_5678;
/// Bytes of an RPC reply's header, for which a requester makes room itself.
const REPLY_HEADER: u64 = 24;

/// A call, a reply to it, and what both ends may send: often at the very edge.
#[derive(Clone, Debug)]
struct Case {
    version: Version,
    inline: u64,
    max_message: u64,
    /// Bytes behind the XID and the kind of the message.
    len: usize,
    items: Vec<usize>,
    /// Room for results, and for items of theirs.
    room: ReplyRoom,
    writes: Vec<WriteChunk>,
    reply: Option<WriteChunk>,
}

impl Arbitrary for Case {
    fn arbitrary(g: &mut Gen) -> Self {
        let version = *g.choose(&[Version::One, Version::Two]).unwrap();
        let header = header_len(version)(&Default::default());
        let inline = *g.choose(&[header - 1, header, 64, 1024, 4096]).unwrap();
        // Within a few words of what fits, or anywhere.
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
            len: near(g, inline) as usize / 4 * 4,
            items: lens(g, 3 * inline),
            room: ReplyRoom {
                payload: near(g, inline).saturating_sub(16) as u32,
                items: lens(g, inline).iter().map(|&len| len as u32).collect(),
            },
            writes: (0..count).map(|_| chunk(g)).collect(),
            reply: (u8::arbitrary(g) % 3 == 0).then(|| chunk(g)),
        }
    }
}

impl Case {
    fn limits(&self) -> Limits {
        Limits {
            inline_send: self.inline,
            inline_receive: self.inline,
            max_segment: 1 << 20,
            max_message: self.max_message,
            header_len: header_len(self.version),
        }
    }

    fn message(&self, direction: Direction, with_items: bool) -> Message {
        let start = [XID, direction.number()].map(u32::to_be_bytes).concat();
        let payload = [Bytes::from(start), data(1, self.len)];
        let end = 8 + self.len as u32;
        let item = |(at, &len): (usize, &usize)| BulkItem {
            // Each behind the one before, at the end of the payload.
            position: Position::At(end + self.items[..at].iter().map(|l| padded(*l)).sum::<u32>()),
            data: data(2, len).into(),
        };
        let items = self.items.iter().enumerate().map(item);
        let items: Vec<BulkItem> = if with_items { items.collect() } else { vec![] };
        Message::new(payload.into_iter().collect(), items)
    }

    /// A message of the base, with these chunks.
    fn encode(&self, direction: Direction, credits: u32, inline: bool, chunks: Chunks) -> Bytes {
        match (self.version, inline) {
            (Version::One, true) => one(credits, rpcrdma_v1::Body::Msg(chunks)),
            (Version::One, false) => one(credits, rpcrdma_v1::Body::NoMsg(chunks)),
            (Version::Two, true) => two(credits, rpcrdma_v2::Body::Msg(direction, chunks)),
            (Version::Two, false) => two(credits, rpcrdma_v2::Body::NoMsg(direction, chunks)),
        }
    }

    fn error(&self, credits: u32) -> Bytes {
        match self.version {
            Version::One => rpcrdma_v1::Answer::chunk(XID).encode(credits),
            Version::Two => rpcrdma_v2::Answer::bad_header(XID).encode(credits),
        }
    }

    /// The reply's Send, by the plan.
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
        let Ok(plan) = plan_reply(&shape, &offers, &self.limits()) else {
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
        let stays = |index: usize| plan.items[index].1 == conveyance::ReplyItem::InPayload;
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

quickcheck! {
    /// RFC 8166, section 3.5: what a responder sends is what [`plan_reply`] says, whichever way it went.
    fn replies_are_those_of_the_plan(case: Case, with_items: bool) -> bool {
        const CREDITS: u32 = 5;
        let mut responder = Responder::new(ResponderConfig {
            version: case.version,
            credits: CREDITS,
            max_fetched: 1 << 20,
            outbound_reads: 1,
            remote_invalidation: false,
            limits: Limits { max_message: 1 << 20, ..case.limits() },
            pool: Pool::new(1 << 20),
        });
        let chunks = Chunks {
            reads: Vec::new(),
            writes: case.writes.clone(),
            reply: case.reply.clone(),
        };
        let call = case.encode(Direction::Call, CREDITS, true, chunks);
        let start = [XID, Direction::Call.number(), 7].map(u32::to_be_bytes).concat();
        responder.received([&call[..], &start].concat().into());
        let Some(ResponderAction::Deliver { token, .. }) = responder.next_action() else {
            panic!("the call is right");
        };
        let message = case.message(Direction::Reply, with_items);
        let expected = case.planned_reply(&message, CREDITS);
        responder.reply(token, Some(message));
        let mut sent = Vec::new();
        while let Some(action) = responder.next_action() {
            if let ResponderAction::Send { gather, .. } = action {
                sent.push(gather.concat());
            }
        }
        sent == [expected]
    }

    /// The same of calls and [`plan_call`]: a plain one goes at once and as it is, and no other does.
    fn calls_are_those_of_the_plan(case: Case, with_items: bool) -> bool {
        const CREDITS: u32 = 5;
        let mut requester = Requester::new(RequesterConfig {
            credits: CREDITS,
            pool: Pool::new(1 << 24),
        });
        let limits = case.limits();
        requester.connected(case.version, limits);
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
        requester.submit(XID, message, &case.room);
        match requester.next_action() {
            Some(RequesterAction::Send { gather }) => {
                let sent = gather.concat();
                match expected {
                    Some(expected) => sent == expected,
                    // In one Send, but with room for items in the reply: as long as the plan says.
                    None => plan.is_ok_and(|plan| sent.len() as u64 == plan.send_len()),
                }
            }
            Some(RequesterAction::Fail { .. }) => plan.is_err(),
            _ => expected.is_none() && plan.is_ok(),
        }
    }
}
