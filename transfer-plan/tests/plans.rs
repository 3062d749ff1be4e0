//! Plans for example messages, and properties of all plans.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

use onc_rpc::padded;
use quickcheck::{Arbitrary, Gen, quickcheck};
use transfer_plan::{
    CallError, CallItem, CallPayload, ChunkCounts, ChunkLimits, Item, Limits, Offer, Offers,
    ReplyError, ReplyItem, ReplyNeed, ReplyPayload, Shape, needs_no_chunks, plan_call, plan_reply,
};

/// The header length of version 1 (RFC 8166, section 4.7).
fn header_len(chunks: &ChunkCounts) -> u64 {
    28 + 24 * chunks.read_segments
        + 8 * chunks.write_chunks
        + 16 * chunks.write_segments
        + chunks
            .reply_segments
            .map_or(0, |segments| 4 + 16 * segments)
}

fn limits(inline: u64) -> Limits {
    Limits {
        inline_send: inline,
        inline_receive: inline,
        max_segment: 1 << 30,
        max_message: 1 << 24,
        chunks: ChunkLimits::default(),
        call_chunk: false,
        header_len,
    }
}

fn item(position: u32, len: u64) -> Item {
    Item { position, len }
}

fn explain(inline: u64, shape: &Shape, need: &ReplyNeed) -> String {
    match plan_call(shape, need, &limits(inline)) {
        Ok(plan) => plan.to_string(),
        Err(error) => error.to_string(),
    }
}

#[test]
fn the_chunk_with_the_payload_is_a_call_chunk_where_the_version_has_one() {
    let limits = Limits {
        call_chunk: true,
        ..limits(4096)
    };
    let plan = plan_call(&Shape::new(5000, []), &ReplyNeed::new(24, []), &limits).unwrap();
    let text = "call: payload by call chunk (5000 B), as all inline is 5028 B of 4096 B; \
                reply: inline (<= 24 B)";
    assert_eq!(plan.to_string(), text);
}

#[test]
fn calls_by_table() {
    let null = Shape::new(40, []);
    let write = |len| Shape::new(156, [item(156, len)]);
    let short = ReplyNeed::new(24, []);
    let read = |len| ReplyNeed::new(132, [len]);
    let table: &[(Shape, ReplyNeed, &str)] = &[
        (
            null.clone(),
            short.clone(),
            "call: payload inline (40 B); reply: inline (<= 24 B)",
        ),
        (
            write(1001),
            short.clone(),
            "call: payload inline (1160 B), item 0 in it (1001 B); reply: inline (<= 24 B)",
        ),
        (
            write(8192),
            short.clone(),
            "call: payload inline (156 B), item 0 by read chunk at 156 (8192 B), \
             as all inline is 8376 B of 4096 B; reply: inline (<= 24 B)",
        ),
        (
            null.clone(),
            read(1024),
            "call: payload inline (40 B); reply: inline (<= 1156 B)",
        ),
        (
            null.clone(),
            read(8192),
            "call: payload inline (40 B); reply: inline (<= 132 B), \
             item 0 by write chunk (<= 8192 B), as all inline is 8352 B of 4096 B",
        ),
        (
            null.clone(),
            ReplyNeed::new(65536, []),
            "call: payload inline (40 B); reply: reply chunk (<= 65536 B), \
             as all inline is 65564 B of 4096 B",
        ),
        (
            Shape::new(5000, []),
            short.clone(),
            "call: payload by position-zero read chunk (5000 B), \
             as all inline is 5028 B of 4096 B; reply: inline (<= 24 B)",
        ),
        (
            Shape::new(5000, [item(100, 30), item(200, 8192)]),
            short,
            "call: payload by position-zero read chunk (5032 B), item 0 in it (30 B), \
             item 1 by read chunk at 200 (8192 B), as all inline is 13252 B of 4096 B; \
             reply: inline (<= 24 B)",
        ),
        (
            null.clone(),
            ReplyNeed::new(1 << 25, []),
            "its reply can be 33554432 bytes long, the limit is 16777216",
        ),
        (
            Shape::new(1 << 25, []),
            ReplyNeed::new(0, []),
            "the call is 33554432 bytes long, the limit is 16777216",
        ),
    ];
    for (shape, need, expected) in table {
        assert_eq!(explain(4096, shape, need), *expected);
    }
}

/// A message of exactly the inline threshold goes inline, and one byte more does not, in both
/// directions.
#[test]
fn thresholds_are_exact() {
    let call = |payload, inline| {
        plan_call(
            &Shape::new(payload, []),
            &ReplyNeed::new(24, []),
            &limits(inline),
        )
        .unwrap()
        .payload
    };
    assert_eq!(call(1024 - 28, 1024), CallPayload::Inline);
    assert_eq!(call(1024 - 24, 1024), CallPayload::PositionZero);
    let offers = Offers {
        writes: [].into_iter().collect(),
        reply: Some(one(4096)),
    };
    let reply = |payload| plan_reply(&Shape::new(payload, []), &offers, &limits(1024)).unwrap();
    assert_eq!(reply(1024 - 48).payload, ReplyPayload::Inline);
    assert_eq!(reply(1024 - 44).payload, ReplyPayload::ReplyChunk);
}

/// Only as many items are moved to chunks as needed, the longest first.
#[test]
fn the_longest_items_are_reduced_first() {
    let shape = Shape::new(200, [item(40, 900), item(1000, 3000), item(4100, 500)]);
    let plan = plan_call(&shape, &ReplyNeed::new(24, []), &limits(4096)).unwrap();
    let hows: Vec<_> = plan.items.iter().map(|(_, how)| *how).collect();
    assert_eq!(
        hows,
        [
            CallItem::InPayload,
            CallItem::ReadChunk,
            CallItem::InPayload
        ]
    );
    assert_eq!(plan.send_len(), 28 + 24 + 200 + 900 + 500);
}

/// An item that takes fewer bytes than its chunk would take in the header stays in the payload.
#[test]
fn tiny_items_are_never_reduced() {
    let shape = Shape::new(4096, [item(40, 20)]);
    let plan = plan_call(&shape, &ReplyNeed::new(24, []), &limits(4096)).unwrap();
    assert_eq!(plan.payload, CallPayload::PositionZero);
    assert_eq!(plan.items[0].1, CallItem::InPayload);
    assert_eq!(plan.payload_len, 4096 + 20);
}

/// A chunk list that is too long for the header is replaced by one chunk for everything; if that is
/// still too long, the call is refused.
#[test]
fn too_many_segments_collapse_or_are_refused() {
    let mut limits = limits(1024);
    limits.max_segment = 4096;
    let many = Shape::new(2000, (0..42).map(|n| item(n * 4096, 2048)));
    let plan = plan_call(&many, &ReplyNeed::new(24, []), &limits).unwrap();
    assert_eq!(plan.payload, CallPayload::PositionZero);
    assert_eq!(plan.payload_len, many.stream_len());
    assert!(
        plan.items
            .iter()
            .all(|(_, how)| *how == CallItem::InPayload)
    );
    let refused = plan_call(&Shape::new(1 << 20, []), &ReplyNeed::new(24, []), &limits);
    assert!(
        matches!(refused, Err(CallError::TooManySegments { .. })),
        "{refused:?}"
    );
    let refused = plan_call(&Shape::new(40, []), &ReplyNeed::new(24, [1 << 20]), &limits);
    assert!(
        matches!(refused, Err(CallError::TooManySegments { .. })),
        "{refused:?}"
    );
}

/// RFC 8166, section 4.3.2.2: if an item is missing, the next item takes its chunk.
#[test]
fn write_chunks_have_room_for_any_later_item() {
    let need = ReplyNeed::new(200, [100, 9000, 0, 5000, 0]);
    let plan = plan_call(&Shape::new(40, []), &need, &limits(4096)).unwrap();
    assert_eq!(plan.write_chunks[..], [9000, 9000, 5000, 5000]);
    assert_eq!(plan.reply_chunk, None);
}

fn one(capacity: u64) -> Offer {
    Offer {
        segments: 1,
        capacity,
    }
}

fn offers(writes: &[Offer], reply: Option<Offer>) -> Offers {
    Offers {
        writes: writes.iter().copied().collect(),
        reply,
    }
}

#[test]
fn replies_by_table() {
    let empty = Offer {
        segments: 0,
        capacity: 0,
    };
    let read = Shape::new(132, [item(132, 8192)]);
    let table: &[(Shape, Offers, &str)] = &[
        (
            Shape::new(24, []),
            offers(&[], None),
            "reply: payload inline (24 B)",
        ),
        (
            read.clone(),
            offers(&[one(8192)], None),
            "reply: payload inline (132 B), item 0 by write chunk 0 (8192 B)",
        ),
        // An item that would fit inline still goes into its write chunk (4.3.2).
        (
            Shape::new(132, [item(132, 5)]),
            offers(&[one(8192)], None),
            "reply: payload inline (132 B), item 0 by write chunk 0 (5 B)",
        ),
        (
            Shape::new(24, []),
            offers(&[one(8192), one(8192)], None),
            "reply: payload inline (24 B), 2 write chunks unused",
        ),
        // An empty chunk asks for its item inline (4.3.2.3).
        (
            Shape::new(132, [item(60, 7), item(100, 6000)]),
            offers(&[empty, one(8192)], None),
            "reply: payload inline (140 B), item 0 in it (7 B), item 1 by write chunk 1 (6000 B), \
             1 write chunks unused",
        ),
        (
            Shape::new(5000, []),
            offers(&[], Some(one(5000))),
            "reply: payload by reply chunk (5000 B), as inline it is 5048 B of 4096 B",
        ),
        (
            read.clone(),
            offers(&[], Some(one(8400))),
            "reply: payload by reply chunk (8324 B), as inline it is 8372 B of 4096 B, \
             item 0 in it (8192 B)",
        ),
        // Each of these is answered with ERR_CHUNK, without overflow or truncation.
        (
            read.clone(),
            offers(&[one(8191)], Some(one(1 << 20))),
            "result item 0 of 8192 bytes does not fit write chunk 0 of 8191",
        ),
        (
            read,
            offers(&[], Some(one(8323))),
            "reply payload of 8324 bytes fits neither inline (4048) nor the reply chunk (8323)",
        ),
        (
            Shape::new(4072, []),
            offers(&[], None),
            "reply payload of 4072 bytes fits neither inline (4068) nor a reply chunk (none was \
             offered)",
        ),
        (
            Shape::new(24, []),
            offers(
                &[Offer {
                    segments: 255,
                    capacity: 4096,
                }],
                None,
            ),
            "the offered chunk lists take 4116 bytes, the inline threshold is 4096",
        ),
    ];
    for (shape, offers, expected) in table {
        let got = match plan_reply(shape, offers, &limits(4096)) {
            Ok(plan) => plan.to_string(),
            Err(error) => error.to_string(),
        };
        assert_eq!(got, *expected);
    }
}

/// A message, a reply within `need`, and the limits of a connection.
#[derive(Clone, Debug)]
struct Case {
    call: Shape,
    need: ReplyNeed,
    reply: Shape,
    inline_send: u64,
    inline_receive: u64,
    max_segment: u64,
}

impl Case {
    fn limits(&self) -> Limits {
        Limits {
            inline_send: self.inline_send,
            inline_receive: self.inline_receive,
            max_segment: self.max_segment,
            max_message: 1 << 22,
            chunks: ChunkLimits::default(),
            call_chunk: false,
            header_len,
        }
    }

    /// Returns whether there is a plan with few segments: the call is inline or one chunk, and so is
    /// the longest reply.
    fn has_plan(&self, limits: &Limits) -> bool {
        let (call, reply) = (self.call.stream_len(), self.need.stream_len());
        let mut counts = ChunkCounts::default();
        if header_len(&counts) + reply > self.inline_receive {
            counts.reply_segments = Some(limits.segments(reply));
        }
        let zero = ChunkCounts {
            read_segments: limits.segments(call),
            position_zero: true,
            ..counts
        };
        header_len(&counts) <= self.inline_receive
            && (limits.fits(&counts, call) || limits.fits(&zero, 0))
    }
}

fn length(g: &mut Gen) -> u64 {
    let bits = *g.choose(&[3, 6, 8, 10, 11, 12, 13, 16, 20]).unwrap();
    u64::arbitrary(g) % (1 << bits)
}

fn shape(payload: u64, lens: &[u64]) -> Shape {
    let mut position = payload;
    let items: Vec<_> = lens
        .iter()
        .map(|&len| {
            let item = item(position as u32, len);
            position += padded(len);
            item
        })
        .collect();
    Shape::new(payload, items)
}

impl Arbitrary for Case {
    fn arbitrary(g: &mut Gen) -> Self {
        let lens = |g: &mut Gen| -> Vec<u64> {
            (0..*g.choose(&[0, 0, 1, 1, 1, 2, 5]).unwrap())
                .map(|_| length(g))
                .collect()
        };
        let (args, results) = (lens(g), lens(g));
        let (call, most) = (padded(40 + length(g)), padded(24 + length(g)));
        // Some results are shorter than announced and some are missing.
        let actual: Vec<u64> = results
            .iter()
            .filter_map(|&len| match u8::arbitrary(g) % 4 {
                0 => None,
                1 => Some(len / 2),
                _ => Some(len),
            })
            .filter(|&len| len > 0)
            .collect();
        let inline = |g: &mut Gen| *g.choose(&[1024, 4096, 262_144]).unwrap();
        Self {
            call: shape(call, &args),
            need: ReplyNeed::new(most, results),
            reply: shape(
                padded(24 + u64::arbitrary(g) % (most - 23)).min(most),
                &actual,
            ),
            inline_send: inline(g),
            inline_receive: inline(g),
            max_segment: *g.choose(&[1 << 12, 1 << 17, 1 << 30]).unwrap(),
        }
    }
}

quickcheck! {
    fn goes_plain_agrees_with_the_plan(
        len: u16, need: u16, items: Vec<u16>, send: u16, receive: u16, most: u16
    ) -> bool {
        let limits = Limits {
            inline_send: u64::from(send),
            inline_receive: u64::from(receive),
            max_message: u64::from(most),
            ..limits(0)
        };
        let items = items.iter().map(|&len| u64::from(len));
        let need = ReplyNeed::new(u64::from(need), items.take(usize::from(len % 3)));
        let len = u64::from(len);
        let plan = plan_call(&Shape::new(len, []), &need, &limits);
        needs_no_chunks(len, &need, &limits) == plan.is_ok_and(|plan| plan.is_plain(&need))
    }

    fn a_call_never_exceeds_its_threshold_and_loses_nothing(case: Case) -> bool {
        let Ok(plan) = plan_call(&case.call, &case.need, &case.limits()) else {
            // At these sizes only chunk lists that are too long can be refused.
            return !case.has_plan(&case.limits()) && case.call.stream_len().max(case.need.stream_len()) > case.max_segment;
        };
        let apart: u64 = plan
            .items
            .iter()
            .filter(|(_, how)| *how == CallItem::ReadChunk)
            .map(|(item, _)| item.in_stream())
            .sum();
        let items: Vec<_> = plan.items.iter().map(|(item, _)| *item).collect();
        plan.send_len() <= case.inline_send
            && plan.payload_len + apart == case.call.stream_len()
            && items == case.call.items()
    }

    /// The header of a call lists no more than its responder takes, and fewer chunks lose nothing.
    fn a_call_has_no_more_chunks_than_are_taken(
        case: Case, reads: u8, writes: u8, segments: u8
    ) -> bool {
        let chunks = ChunkLimits {
            read_chunks: u32::from(reads % 4),
            write_chunks: u32::from(writes % 4),
            segments: u32::from(segments % 16),
            ..ChunkLimits::default()
        };
        let limits = Limits { chunks, ..case.limits() };
        let plan = match plan_call(&case.call, &case.need, &limits) {
            Ok(plan) => plan,
            Err(_) if case.has_plan(&limits) => return false,
            Err(CallError::SegmentCount { count, max }) => {
                return count > u64::from(max) && max == chunks.segments;
            }
            // Otherwise, only fewer write chunks can make a plan impossible.
            Err(_) => return match plan_call(&case.call, &case.need, &case.limits()) {
                Ok(plan) => plan.write_chunks.len() > chunks.write_chunks as usize,
                Err(_) => true,
            },
        };
        let zero = (plan.payload == CallPayload::PositionZero).then_some(plan.payload_len);
        let apart = plan.items.iter().filter(|(_, how)| *how == CallItem::ReadChunk);
        let apart: Vec<u64> = apart.map(|(item, _)| item.len).collect();
        let offered = plan.write_chunks.iter().chain(&plan.reply_chunk);
        let all = apart.iter().chain(&zero).chain(offered);
        let listed: u64 = all.map(|&len| limits.segments(len)).sum();
        // What is left of the reply beside write chunks has room in the reply chunk, or goes inline.
        let room = plan.reply_chunk.unwrap_or(limits.inline_receive);
        chunks.allow(apart.len(), plan.write_chunks.len(), listed) && plan.reply_payload <= room
    }

    /// A responder that takes no payload as a chunk gets none, and every call that needs none is
    /// planned as before.
    fn a_call_has_no_position_zero_chunk_if_none_is_taken(case: Case) -> bool {
        let chunks = ChunkLimits { position_zero: false, ..ChunkLimits::default() };
        let limits = Limits { chunks, ..case.limits() };
        let any = plan_call(&case.call, &case.need, &case.limits());
        let without = plan_call(&case.call, &case.need, &limits);
        match &any {
            Ok(plan) if plan.payload == CallPayload::PositionZero => {
                matches!(without, Err(CallError::NoPositionZero { .. }))
            }
            Ok(_) => without == any,
            // A long payload is refused before the length of the chunk lists is.
            Err(_) => without.is_err(),
        }
    }

    /// Every reply within the announced bounds can be sent with the chunks that were offered for
    /// it.
    fn every_announced_reply_can_be_conveyed(case: Case) -> bool {
        let limits = case.limits();
        let Ok(call) = plan_call(&case.call, &case.need, &limits) else {
            return true;
        };
        let offer = |&capacity: &u64| Offer { segments: limits.segments(capacity), capacity };
        let offers = Offers {
            writes: call.write_chunks.iter().map(offer).collect(),
            reply: call.reply_chunk.as_ref().map(offer),
        };
        let responder = Limits {
            inline_send: case.inline_receive,
            inline_receive: case.inline_send,
            ..limits
        };
        let Ok(plan) = plan_reply(&case.reply, &offers, &responder) else {
            return false;
        };
        let written: u64 = (0..offers.writes.len()).map(|chunk| padded(plan.written(chunk))).sum();
        plan.send_len() <= case.inline_receive
            && plan.payload_len + written == case.reply.stream_len()
            && (0..offers.writes.len())
                .all(|chunk| plan.written(chunk) <= offers.writes[chunk].capacity)
    }

    /// For arbitrary offers, planning gives an error or a plan that does not exceed them.
    fn a_reply_never_exceeds_what_was_offered(
        case: Case,
        writes: Vec<(u8, u16)>,
        reply: Option<u16>
    ) -> bool {
        let offers = Offers {
            writes: writes
                .iter()
                .map(|&(segments, capacity)| Offer {
                    segments: u64::from(segments % 3),
                    capacity: u64::from(capacity) * u64::from(segments % 3),
                })
                .collect(),
            reply: reply.map(|capacity| one(u64::from(capacity))),
        };
        match plan_reply(&case.reply, &offers, &case.limits()) {
            Ok(plan) => {
                let chunks: Vec<_> = plan
                    .items
                    .iter()
                    .filter_map(|(item, how)| match how {
                        ReplyItem::WriteChunk(chunk) => Some((*chunk, item.len)),
                        ReplyItem::InPayload => None,
                    })
                    .collect();
                let in_order = chunks.windows(2).all(|two| two[0].0 < two[1].0);
                let fits = chunks.iter().all(|&(chunk, len)| len <= offers.writes[chunk].capacity);
                let reply_fits = plan.payload == ReplyPayload::Inline
                    || offers.reply.is_some_and(|offer| plan.payload_len <= offer.capacity);
                plan.send_len() <= case.inline_send && in_order && fits && reply_fits
            }
            Err(ReplyError::WriteChunkTooShort { len, capacity, .. }) => len > capacity,
            Err(ReplyError::DoesNotFit { len, inline, capacity }) => {
                len > inline && capacity.is_none_or(|capacity| len > capacity)
            }
            Err(_) => offers.writes.len() > 10,
        }
    }
}
