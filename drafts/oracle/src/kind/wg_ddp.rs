//! Headers and properties of send-based data placement, an extension of the working group's
//! version 2 (version-two-07, appendix B).
//!
//! A header here is a whole one, prefix included, as in the XDR file.

use bytes::{BufMut, Bytes, BytesMut};
use quickcheck::{Arbitrary, Gen};
use rpcrdma_ext_wg_ddp::{
    CallPlaced, PlacedItem, PlacedMiddle, ReplyPlaced, Support, header_type, smallest_result_from,
    smallest_result_value, structure_from, structure_value, support_from, support_value,
};
use rpcrdma_extension::layout::{BufferSegment, BufferStructure, SegmentFlags, SegmentGroup};
use rpcrdma_v2_wg::limits::PREFIX_LEN;
use rpcrdma_v2_wg::{Prefix, Reader, VERSION};

use super::any::{few, number, one_of};
use super::chunks::{any_chunk, any_chunks, show_chunk, show_reads, show_writes};
use super::{Codec, Kind, Refused, kind};
use crate::show::{Fields, Json};

pub(crate) const KINDS: &[Kind] = &[
    kind!("wg-ddp-call-placed-middle", Header, |g| header(g, |g| Body::CallMiddle(any_middle(g))), payload: true),
    kind!("wg-ddp-call-placed", Header, |g| header(g, |g| Body::Call(any_call(g))), payload: true),
    kind!("wg-ddp-reply-placed-middle", Header, |g| header(g, |g| Body::ReplyMiddle(any_middle(g))), payload: true),
    kind!("wg-ddp-reply-placed", Header, |g| header(g, |g| Body::Reply(any_reply(g))), payload: true),
    kind!("wg-ddp-rbstruct", Structure, any_structure, payload: false),
    kind!("wg-ddp-placement", Abilities, |g| Support::from_bits_retain(number(g)), payload: false),
    kind!("wg-ddp-resmin", SmallestResult, number, payload: false),
];

/// A whole header.
#[derive(PartialEq)]
struct Whole {
    xid: u32,
    credit: u32,
    body: Body,
}

/// The fields after the prefix.
#[derive(PartialEq)]
enum Body {
    CallMiddle(PlacedMiddle),
    Call(CallPlaced),
    ReplyMiddle(PlacedMiddle),
    Reply(ReplyPlaced),
}

/// The type `rpcrdma2_placed_msg`.
enum Header {}

/// The type `rpcrdma2_prop_rbstruct`.
enum Structure {}

/// The type `rpcrdma2_prop_placement`.
enum Abilities {}

/// The type `rpcrdma2_prop_resmin`.
enum SmallestResult {}

fn header(g: &mut Gen, body: fn(&mut Gen) -> Body) -> Whole {
    Whole {
        xid: u32::arbitrary(g),
        credit: u32::arbitrary(g),
        body: body(g),
    }
}

fn any_middle(g: &mut Gen) -> PlacedMiddle {
    PlacedMiddle {
        messages: number(g),
        remaining: number(g),
        payload: number(g),
    }
}

fn any_item(g: &mut Gen) -> PlacedItem {
    PlacedItem {
        position: number(g),
        length: number(g),
        segment: number(g),
        offset: number(g),
    }
}

fn any_call(g: &mut Gen) -> CallPlaced {
    let mut chunks = any_chunks(g);
    chunks.reads.sort_by_key(|read| read.position);
    for read in &mut chunks.reads {
        read.position = read.position.max(1);
    }
    let handles: Vec<_> = chunks.handles().chain([0]).collect();
    CallPlaced {
        inv_handle: one_of(g, &handles).unwrap_or(0),
        chunks,
        items: few(g, 4, any_item).into(),
        payload: number(g),
    }
}

fn any_reply(g: &mut Gen) -> ReplyPlaced {
    ReplyPlaced {
        writes: few(g, 3, any_chunk),
        items: few(g, 6, any_item).into(),
        payload: number(g),
    }
}

fn any_structure(g: &mut Gen) -> BufferStructure {
    let group = |g: &mut Gen| SegmentGroup {
        count: number(g),
        segment: BufferSegment {
            length: number(g),
            align: number(g),
            flags: SegmentFlags::from_bits_retain(number(g)),
        },
    };
    BufferStructure::new(few(g, 6, group))
}

impl Codec for Header {
    type Value = Whole;
    const XDR: &'static str = "rpcrdma2_placed_msg";

    fn encode(value: &Whole) -> Bytes {
        let (header_type, fields) = match &value.body {
            Body::CallMiddle(middle) => (header_type::CALL_PLACED_MIDDLE, middle.encode()),
            Body::Call(call) => (header_type::CALL_PLACED, call.encode()),
            Body::ReplyMiddle(middle) => (header_type::REPLY_PLACED_MIDDLE, middle.encode()),
            Body::Reply(reply) => (header_type::REPLY_PLACED, reply.encode()),
        };
        let mut out = BytesMut::new();
        for word in [value.xid, VERSION, value.credit, header_type] {
            out.put_u32(word);
        }
        out.put_slice(&fields);
        out.freeze()
    }

    fn decode(bytes: &Bytes) -> Result<(Whole, usize), Refused> {
        let prefix = Prefix::peek(bytes).ok_or(Refused::Form)?;
        if prefix.version != VERSION {
            return Err(Refused::Version);
        }
        let fields = bytes.get(PREFIX_LEN..).ok_or(Refused::Form)?;
        let mut from = Reader::new(fields);
        let body = match prefix.header_type {
            header_type::CALL_PLACED_MIDDLE => Body::CallMiddle(PlacedMiddle::decode(&mut from)?),
            header_type::CALL_PLACED => Body::Call(CallPlaced::decode(&mut from)?),
            header_type::REPLY_PLACED_MIDDLE => Body::ReplyMiddle(PlacedMiddle::decode(&mut from)?),
            header_type::REPLY_PLACED => Body::Reply(ReplyPlaced::decode(&mut from)?),
            _ => return Err(Refused::Form),
        };
        let whole = Whole {
            xid: prefix.xid,
            credit: prefix.credit,
            body,
        };
        Ok((whole, bytes.len() - from.left()))
    }

    fn show(value: &Whole, json: &mut Json) {
        json.object(|to| {
            to.number("rdma_xid", value.xid)
                .number("rdma_vers", VERSION)
                .number("rdma_credit", value.credit)
                .field("rdma_hdr", |json| {
                    json.object(|to| show_body(to, &value.body));
                });
        });
    }
}

fn show_body(to: &mut Fields<'_>, body: &Body) {
    let (number, name) = match body {
        Body::CallMiddle(_) => (header_type::CALL_PLACED_MIDDLE, "rdma_call_placed_middle"),
        Body::Call(_) => (header_type::CALL_PLACED, "rdma_call_placed"),
        Body::ReplyMiddle(_) => (header_type::REPLY_PLACED_MIDDLE, "rdma_reply_placed_middle"),
        Body::Reply(_) => (header_type::REPLY_PLACED, "rdma_reply_placed"),
    };
    to.number("rdma_htype", number).field(name, |json| {
        json.object(|to| match body {
            Body::CallMiddle(middle) | Body::ReplyMiddle(middle) => {
                to.number("rdma_messages", middle.messages)
                    .number("rdma_remaining", middle.remaining)
                    .number("rdma_payload_length", middle.payload);
            }
            Body::Call(call) => show_call(to, call),
            Body::Reply(reply) => {
                to.field("rdma_writes", |json| show_writes(json, &reply.writes));
                show_placed(to, &reply.items, reply.payload);
            }
        });
    });
}

fn show_call(to: &mut Fields<'_>, call: &CallPlaced) {
    let chunks = &call.chunks;
    to.number("rdma_inv_handle", call.inv_handle)
        .field("rdma_reads", |json| show_reads(json, &chunks.reads))
        .field("rdma_provisional_writes", |json| {
            show_writes(json, &chunks.writes);
        })
        .field("rdma_provisional_reply", |json| {
            json.option(chunks.reply.as_ref(), show_chunk);
        });
    show_placed(to, &call.items, call.payload);
}

fn show_placed(to: &mut Fields<'_>, items: &[PlacedItem], payload: u32) {
    to.field("rdma_placed", |json| {
        json.list(items, |json, item| {
            json.object(|to| {
                to.number("rdma_position", item.position)
                    .number("rdma_length", item.length)
                    .number("rdma_segment", item.segment)
                    .number("rdma_offset", item.offset);
            });
        });
    })
    .number("rdma_payload_length", payload);
}

impl Codec for Structure {
    type Value = BufferStructure;
    const XDR: &'static str = "rpcrdma2_prop_rbstruct";

    fn encode(value: &BufferStructure) -> Bytes {
        structure_value(value)
    }

    fn decode(bytes: &Bytes) -> Result<(BufferStructure, usize), Refused> {
        Ok((structure_from(bytes)?, bytes.len()))
    }

    fn show(value: &BufferStructure, json: &mut Json) {
        json.list(value.groups(), |json, group| {
            json.object(|to| {
                to.number("rdma_count", group.count)
                    .number("rdma_length", group.segment.length)
                    .number("rdma_align", group.segment.align)
                    .number("rdma_flags", group.segment.flags.bits());
            });
        });
    }
}

impl Codec for Abilities {
    type Value = Support;
    const XDR: &'static str = "rpcrdma2_prop_placement";

    fn encode(value: &Support) -> Bytes {
        support_value(*value)
    }

    fn decode(bytes: &Bytes) -> Result<(Support, usize), Refused> {
        Ok((support_from(bytes)?, bytes.len()))
    }

    fn show(value: &Support, json: &mut Json) {
        json.number(value.bits());
    }
}

impl Codec for SmallestResult {
    type Value = u32;
    const XDR: &'static str = "rpcrdma2_prop_resmin";

    fn encode(value: &u32) -> Bytes {
        smallest_result_value(*value)
    }

    fn decode(bytes: &Bytes) -> Result<(u32, usize), Refused> {
        Ok((smallest_result_from(bytes)?, bytes.len()))
    }

    fn show(value: &u32, json: &mut Json) {
        json.number(*value);
    }
}
