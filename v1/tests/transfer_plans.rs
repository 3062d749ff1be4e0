//! Requirements that the transfer plan and this crate's rules meet together: a call is planned and
//! offers its chunks, its reply is planned and placed, and the requester checks the returned
//! chunks. See MUSTS.md.

mod common;

use common::{XID, check_reply, chunk, segment};
use quickcheck::quickcheck;
use rpcrdma_v1::{
    Body, Chunks, Header, ReadSegment, ReplyViolation, ReturnedChunks, WriteChunk, check_call,
    chunk_len, fill, unused,
};
use transfer_plan::{
    CallError, CallItem, CallPayload, ChunkCounts, ChunkLimits, Item, Limits, Offer, Offers,
    ReplyError, ReplyItem, ReplyNeed, ReplyPayload, ReplyPlan, Shape, plan_call, plan_reply,
};

const INLINE: u64 = 1024;

fn limits(max_segment: u64) -> Limits {
    Limits {
        inline_send: INLINE,
        inline_receive: INLINE,
        max_segment,
        max_message: 1 << 24,
        chunks: ChunkLimits::default(),
        call_chunk: false,
        header_len: |chunks: &ChunkCounts| {
            28 + 24 * chunks.read_segments
                + 8 * chunks.write_chunks
                + 16 * chunks.write_segments
                + chunks.reply_segments.map_or(0, |n| 4 + 16 * n)
        },
    }
}

/// Returns a chunk of `len` bytes in segments of at most `max` bytes.
fn offer(len: u64, max: u64) -> WriteChunk {
    let count = len.div_ceil(max).max(1);
    let lens = (0..count).map(|i| (len - i * max).min(max) as u32);
    chunk(&lens.collect::<Vec<_>>())
}

/// Plans a reply, and decodes its header as the requester would.
fn reply(shape: &Shape, offered: &Chunks) -> Result<(ReplyPlan, Header), ReplyError> {
    let size = |chunk: &WriteChunk| Offer {
        segments: chunk.len() as u64,
        capacity: chunk_len(chunk),
    };
    let offers = Offers {
        writes: offered.writes.iter().map(size).collect(),
        reply: offered.reply.as_ref().map(size),
    };
    let plan = plan_reply(shape, &offers, &limits(1 << 30))?;
    let place = |chunk: &WriteChunk, len| fill(chunk, len).expect("the plan has seen its length");
    let writes = offered.writes.iter().enumerate();
    let chunks = Chunks {
        writes: writes
            .map(|(i, chunk)| place(chunk, plan.written(i)))
            .collect(),
        reply: offered.reply.as_ref().map(|chunk| match plan.payload {
            ReplyPayload::Inline => unused(chunk),
            ReplyPayload::ReplyChunk => place(chunk, plan.payload_len),
        }),
        ..Chunks::default()
    };
    let body = match plan.payload {
        ReplyPayload::Inline => Body::Msg(chunks),
        ReplyPayload::ReplyChunk => Body::NoMsg(chunks),
    };
    let header = Header {
        xid: XID,
        credits: 1,
        body,
    };
    let sent = header.encode();
    assert_eq!(sent.len() as u64, plan.header_len);
    let (received, _) = Header::decode(&sent).expect("what was sent can be received");
    Ok((plan, received))
}

fn lengths(header: &Header) -> Vec<Vec<u32>> {
    let (Body::Msg(chunks) | Body::NoMsg(chunks)) = &header.body else {
        return Vec::new();
    };
    let lengths = |chunk: &WriteChunk| chunk.iter().map(|segment| segment.length).collect();
    chunks.writes.iter().map(lengths).collect()
}

fn writes(list: &[WriteChunk]) -> Chunks {
    Chunks {
        writes: list.into(),
        ..Chunks::default()
    }
}

/// Returns a reply with a payload of 100 bytes and items of these lengths.
fn items(lens: &[u64]) -> Shape {
    Shape::new(100, lens.iter().map(|&len| Item { position: 60, len }))
}

quickcheck! {
    /// Sections 3.4.6, 4.3.2.2 and 4.3.3: the chunks offered have room for every reply within the
    /// estimate, even with missing or short items, and the returned chunks say where everything is.
    fn s4_3_3_what_is_offered_has_room_for_every_possible_reply(
        payload: u16,
        needed: Vec<(u32, u32, bool)>,
        shorter: u16,
        max_segment: u16
    ) -> bool {
        let max_segment = 4096 + u64::from(max_segment);
        let payload = u64::from(payload) * 4;
        let needed: Vec<_> = needed.into_iter().take(4).map(|(a, b, c)| (u64::from(a) % 100_000, b, c)).collect();
        let need = ReplyNeed::new(payload, needed.iter().map(|(len, ..)| *len));
        let plan = match plan_call(&Shape::new(100, []), &need, &limits(max_segment)) {
            Ok(plan) => plan,
            // The segments do not fit the header, so nothing is sent.
            Err(CallError::TooManySegments { .. }) => return need.stream_len() > max_segment,
            Err(_) => return false,
        };
        let offered = Chunks {
            writes: plan.write_chunks.iter().map(|len| offer(*len, max_segment)).collect(),
            reply: plan.reply_chunk.map(|len| offer(len, max_segment)),
            ..Chunks::default()
        };
        let there = needed.iter().filter(|(_, _, there)| *there);
        let lens = there.map(|(max, len, _)| u64::from(*len) % (max + 1)).filter(|len| *len > 0);
        let lens: Vec<u64> = lens.collect();
        let shape = Shape::new(
            payload - payload.min(u64::from(shorter) * 4),
            lens.iter().map(|&len| Item { position: 40, len }),
        );
        let Ok((plan, header)) = reply(&shape, &offered) else { return false };
        let inline = plan.send_len() - plan.header_len;
        let mut expected = vec![0; offered.writes.len()];
        for (item, how) in &plan.items {
            if let ReplyItem::WriteChunk(index) = how {
                expected[*index] = item.len;
            }
        }
        let long = (plan.payload == ReplyPayload::ReplyChunk).then_some(plan.payload_len);
        let returned = ReturnedChunks { writes: expected.into(), long };
        plan.send_len() <= INLINE && check_reply(&header, inline, &offered) == Ok(returned)
    }

    /// Section 4.2.4: no planned Send exceeds the inline threshold. Section 3.5.3: data that is not
    /// sent inline is in read chunks, which the responder accepts.
    fn s4_2_4_no_call_is_over_the_inline_threshold(payload: u16, len: u32, max_segment: u16) -> bool {
        let max_segment = 4096 + u64::from(max_segment);
        let (payload, len) = (40 + u64::from(payload % 4096) * 4, u64::from(len) % 1_000_000);
        let item = Item { position: 40, len };
        let need = ReplyNeed::new(0, []);
        let call = Shape::new(payload, [item]);
        let plan = match plan_call(&call, &need, &limits(max_segment)) {
            Ok(plan) => plan,
            Err(CallError::TooManySegments { .. }) => return call.stream_len() > max_segment,
            Err(_) => return false,
        };
        let read = |position, len| {
            let segments = offer(len, max_segment);
            segments.into_iter().map(move |segment| ReadSegment { position, segment })
        };
        let mut reads = Vec::new();
        if plan.payload == CallPayload::PositionZero {
            reads.extend(read(0, plan.payload_len));
        }
        for (item, how) in &plan.items {
            if *how == CallItem::ReadChunk {
                reads.extend(read(item.position, item.len));
            }
        }
        let chunks = common::reads(&reads);
        let header = match plan.payload {
            CallPayload::Inline => common::msg(chunks),
            CallPayload::PositionZero => common::nomsg(chunks),
        };
        let inline = plan.send_len() - plan.header_len;
        header.encoded_len() as u64 == plan.header_len
            && plan.send_len() <= INLINE
            && check_call(header, inline, 1 << 24).is_ok()
    }
}

#[test]
fn s3_4_4_4_a_write_chunk_holds_one_item() {
    let offered = writes(&[chunk(&[100]), chunk(&[100])]);
    let (_, header) = reply(&items(&[5, 4]), &offered).unwrap();
    assert_eq!(lengths(&header), [[5], [4]]);
}

#[test]
fn s3_4_6_2_round_up_is_not_written_to_a_write_chunk() {
    // Once with room for the round-up and once without.
    for room in [8, 5] {
        let offered = writes(&[chunk(&[room])]);
        let (_, header) = reply(&items(&[5]), &offered).unwrap();
        assert_eq!(lengths(&header), [[5]]);
    }
}

#[test]
fn s3_4_5_2_round_up_is_left_out_of_a_read_chunk() {
    let plan = plan_call(&items(&[4001]), &ReplyNeed::new(0, []), &limits(1 << 30)).unwrap();
    let (item, how) = &plan.items[0];
    assert_eq!((item.len, *how), (4001, CallItem::ReadChunk));
    // The round-up is not in the payload either.
    assert_eq!(plan.payload_len, 100);
}

#[test]
fn s3_4_6_2_no_room_for_round_up_is_offered() {
    let need = ReplyNeed::new(100, [4001]);
    let plan = plan_call(&Shape::new(100, []), &need, &limits(1 << 30)).unwrap();
    assert_eq!(plan.write_chunks.as_slice(), [4001]);
}

#[test]
fn s3_5_3_what_does_not_fit_inline_is_a_long_message() {
    let need = ReplyNeed::new(0, []);
    let form = |payload| {
        let plan = plan_call(&Shape::new(payload, []), &need, &limits(1 << 30)).unwrap();
        plan.payload
    };
    assert_eq!(form(INLINE - 28), CallPayload::Inline);
    assert_eq!(form(INLINE - 24), CallPayload::PositionZero);
}

#[test]
fn s3_5_3_a_reply_chunk_is_used_where_the_payload_does_not_fit() {
    let offered = Chunks {
        reply: Some(chunk(&[600, 600])),
        ..Chunks::default()
    };
    // The header with the reply chunk takes 64 bytes.
    let form = |payload| reply(&Shape::new(payload, []), &offered).map(|(plan, _)| plan.payload);
    assert_eq!(form(INLINE - 64), Ok(ReplyPayload::Inline));
    assert_eq!(form(INLINE - 60), Ok(ReplyPayload::ReplyChunk));
    assert_eq!(form(1200), Ok(ReplyPayload::ReplyChunk));
    // The result is neither an overflow nor a truncation, but ERR_CHUNK.
    assert!(matches!(form(1204), Err(ReplyError::DoesNotFit { .. })));
}

#[test]
fn s4_3_2_results_go_into_the_write_list_where_it_is_offered() {
    let offered = writes(&[chunk(&[100]), chunk(&[50, 50])]);
    let (plan, header) = reply(&items(&[100, 60]), &offered).unwrap();
    assert_eq!(lengths(&header), [&[100][..], &[50, 10]]);
    assert_eq!(plan.payload_len, 100);
    // An item that is too long for its chunk is not put anywhere else.
    let too_long = reply(&items(&[100, 101]), &offered);
    assert!(matches!(
        too_long,
        Err(ReplyError::WriteChunkTooShort { .. })
    ));
}

#[test]
fn s4_3_2_1_items_take_chunks_in_order_until_there_are_no_more() {
    let (plan, header) = reply(&items(&[1, 2, 3]), &writes(&[chunk(&[100])])).unwrap();
    assert_eq!(lengths(&header), [[1]]);
    let how: Vec<ReplyItem> = plan.items.iter().map(|(_, how)| *how).collect();
    let inline = ReplyItem::InPayload;
    assert_eq!(how, [ReplyItem::WriteChunk(0), inline, inline]);
}

#[test]
fn s4_3_2_2_the_next_item_takes_an_unconsumed_chunk_and_the_last_chunks_stay_unused() {
    // The reply omits an optional item, so only one item takes a chunk.
    let offered = writes(&[chunk(&[100]), chunk(&[50, 50])]);
    let (_, header) = reply(&items(&[60]), &offered).unwrap();
    assert_eq!(lengths(&header), [&[60][..], &[0, 0]]);
    let (_, header) = reply(&items(&[]), &offered).unwrap();
    assert_eq!(lengths(&header), [&[0][..], &[0, 0]]);
    // The requester sees both chunks as unused.
    let unused = ReturnedChunks {
        writes: [0, 0].into_iter().collect(),
        long: None,
    };
    assert_eq!(check_reply(&header, 100, &offered), Ok(unused.clone()));
    // It also does if the reply omits the whole list, but a partial list is an error.
    let without = common::msg(writes(&[]));
    assert_eq!(check_reply(&without, 100, &offered), Ok(unused));
    let part = common::msg(writes(&[chunk(&[0])]));
    let count = |offered| {
        Err(ReplyViolation::WriteCount {
            offered,
            returned: 1,
        })
    };
    assert_eq!(check_reply(&part, 100, &offered), count(2));
    assert_eq!(check_reply(&part, 100, &writes(&[])), count(0));
}

#[test]
fn s4_3_2_2_a_chunk_has_room_for_any_item_that_may_be_placed_in_it() {
    let need = ReplyNeed::new(100, [2000, 9000, 500]);
    let plan = plan_call(&Shape::new(100, []), &need, &limits(1 << 30)).unwrap();
    assert_eq!(plan.write_chunks.as_slice(), [9000, 9000, 500]);
}

#[test]
fn s4_3_2_3_an_item_with_an_empty_chunk_goes_inline() {
    let offered = writes(&[chunk(&[]), chunk(&[100])]);
    let (plan, header) = reply(&items(&[70, 60]), &offered).unwrap();
    assert_eq!(lengths(&header), [&[][..], &[60]]);
    assert_eq!(plan.payload_len, 100 + 72);
    let returned = ReturnedChunks {
        writes: [0, 60].into_iter().collect(),
        long: None,
    };
    assert_eq!(check_reply(&header, 172, &offered), Ok(returned));
}

#[test]
fn s4_3_3_a_reply_chunk_is_offered_when_the_reply_may_be_too_long() {
    let offered = |payload| {
        let need = ReplyNeed::new(payload, []);
        let plan = plan_call(&Shape::new(100, []), &need, &limits(1 << 30)).unwrap();
        plan.reply_chunk
    };
    assert_eq!(offered(INLINE - 28), None);
    assert_eq!(offered(INLINE - 24), Some(INLINE - 24));
    assert_eq!(offered(50_000), Some(50_000));
}

#[test]
fn s4_3_3_the_reply_chunk_is_returned_used_or_not() {
    let offered = Chunks {
        reply: Some(chunk(&[600, 600])),
        ..Chunks::default()
    };
    for (payload, lens) in [(100, [0, 0]), (1000, [600, 400])] {
        let (_, header) = reply(&Shape::new(payload, []), &offered).unwrap();
        let (Body::Msg(chunks) | Body::NoMsg(chunks)) = header.body else {
            panic!("no chunks");
        };
        let returned = chunks.reply.unwrap();
        assert_eq!(
            returned.as_slice(),
            [segment(1, lens[0]), segment(2, lens[1])]
        );
    }
}
