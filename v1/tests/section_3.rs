//! The requirements of RFC 8166, section 3. See MUSTS.md.

mod common;

use bytes::Bytes;
use common::{AnyChunk, check_reply, chunk, msg, nomsg, read, reads, segment};
use onc_rpc::{Decoder, Encoder, Message, Position};
use quickcheck::quickcheck;
use rpcrdma_v1::{
    Agreed, ChunkTooSmall, Chunks, PrivateData, ReplyViolation, ReturnedChunks, Violation,
    WriteChunk, check_call, chunk_len, fill,
};

const MAX_CALL: u64 = 1 << 20;

fn lengths(chunk: &[rpcrdma_v1::Segment]) -> Vec<u32> {
    chunk.iter().map(|segment| segment.length).collect()
}

quickcheck! {
    fn s3_4_6_a_chunk_is_filled_contiguously_and_in_order(offered: AnyChunk, len: u64) -> bool {
        let offered = offered.0;
        let len = len % (chunk_len(&offered) + 1);
        let filled = fill(&offered, len).unwrap();
        let chunks = |writes: &WriteChunk| Chunks {
            writes: std::iter::once(writes.clone()).collect(),
            ..Chunks::default()
        };
        let returned = check_reply(&msg(chunks(&filled)), 4, &chunks(&offered));
        returned == Ok(ReturnedChunks { writes: [len].into_iter().collect(), long: None })
    }
}

#[test]
fn s3_3_3_without_private_data_both_inline_thresholds_are_1024() {
    let agreed = Agreed::new(None, None);
    assert_eq!((agreed.call_inline, agreed.reply_inline), (1024, 1024));
}

#[test]
fn s3_3_3_no_inline_threshold_is_under_1024() {
    let smallest = Some(PrivateData::new(0, 0, false));
    let agreed = Agreed::new(smallest, smallest);
    assert_eq!((agreed.call_inline, agreed.reply_inline), (1024, 1024));
}

/// Returns a stream with a word, an item of five bytes and another word.
fn reduced() -> Message {
    let mut out = Encoder::new();
    out.u32(7).bulk(Bytes::from_static(b"abcde")).u32(9);
    out.finish()
}

#[test]
fn s3_4_4_1_the_count_stays_in_the_payload_and_the_elements_leave_it() {
    let message = reduced();
    assert_eq!(message.payload().concat(), common::words(&[7, 5, 9]));
    assert_eq!(message.items()[0].data, &b"abcde"[..]);
}

#[test]
fn s3_4_4_4_an_items_round_up_leaves_the_payload_with_it() {
    let message = reduced();
    assert_eq!(message.payload_len(), 12);
    assert_eq!(message.stream_len(), 12 + 8);
}

#[test]
fn s3_4_4_4_a_chunk_holds_one_item() {
    // Two items are two chunks, even if only a length word lies between them.
    let list = [read(8, 1, 5), read(20, 2, 4)];
    let call = check_call(msg(reads(&list)), 12, MAX_CALL).unwrap();
    assert_eq!(call.items.len(), 2);
    let lens: Vec<u32> = call.items.iter().map(|item| item.length).collect();
    assert_eq!(lens, [5, 4]);
}

#[test]
fn s3_4_5_positions_are_in_the_unreduced_stream() {
    let mut out = Encoder::new();
    out.u32(7).bulk(Bytes::from_static(b"abcde"));
    out.bulk(Bytes::from_static(b"fgh"));
    let message = out.finish();
    let positions: Vec<_> = message.items().iter().map(|item| item.position).collect();
    assert_eq!(positions, [Position::At(8), Position::At(20)]);
    // The responder's check counts the same way: 12 bytes are left inline.
    let list = [read(8, 1, 5), read(20, 2, 3)];
    assert!(check_call(msg(reads(&list)), 12, MAX_CALL).is_ok());
    let beyond = check_call(msg(reads(&list)), 8, MAX_CALL);
    assert_eq!(beyond, Err(Violation::BeyondPayload(20)));
}

#[test]
fn s3_4_5_a_position_is_a_multiple_of_four() {
    for position in [1, 2, 3, 41, 102] {
        let call = check_call(msg(reads(&[read(position, 1, 4)])), 200, MAX_CALL);
        assert_eq!(call, Err(Violation::UnalignedPosition(position)));
    }
}

#[test]
fn s3_4_5_segments_with_one_position_are_one_chunk_in_list_order() {
    // Their lengths need not be multiples of four, and other chunks may stand between them.
    let list = [
        read(40, 1, 3),
        read(8, 2, 4),
        read(40, 3, 6),
        read(40, 4, 0),
    ];
    let call = check_call(msg(reads(&list)), 100, MAX_CALL).unwrap();
    let positions: Vec<u32> = call.items.iter().map(|item| item.position).collect();
    assert_eq!(positions, [8, 40]);
    assert_eq!(call.items[1].length, 9);
    let handles: Vec<u32> = call.items[1].segments.iter().map(|s| s.handle).collect();
    assert_eq!(handles, [1, 3], "the empty segment is not read");
    assert_eq!(call.read_len(), 13);
}

#[test]
fn s3_4_5_chunks_do_not_overlap() {
    let overlap = |list: &[_]| check_call(msg(reads(list)), 200, MAX_CALL);
    let list = [read(8, 1, 9), read(16, 2, 4)];
    assert_eq!(overlap(&list), Err(Violation::Overlap(16)));
    // The round-up counts, whether it was sent or not.
    let list = [read(8, 1, 9), read(20, 2, 4)];
    assert!(overlap(&list).is_ok());
}

#[test]
fn s3_4_5_lengths_and_offsets_do_not_wrap() {
    let mut wrapping = segment(1, 2);
    wrapping.offset = u64::MAX - 1;
    let list = reads(&[rpcrdma_v1::ReadSegment {
        position: 4,
        segment: wrapping,
    }]);
    let error = Err(Violation::SegmentWraps(wrapping));
    assert_eq!(check_call(msg(list), 100, MAX_CALL), error);
    for chunks in [
        Chunks {
            writes: [WriteChunk::from_iter([wrapping])].into_iter().collect(),
            ..Chunks::default()
        },
        Chunks {
            reply: Some(WriteChunk::from_iter([wrapping])),
            ..Chunks::default()
        },
    ] {
        assert_eq!(check_call(msg(chunks), 100, MAX_CALL), error);
    }
    // The lengths of two segments of one chunk must not wrap when added.
    let list = [read(4, 1, u32::MAX), read(4, 2, 4)];
    let call = check_call(msg(reads(&list)), 100, u64::MAX);
    assert!(matches!(
        call,
        Err(Violation::TooLong {
            len: 0x1_0000_0003,
            ..
        })
    ));
    // The length of the whole message must not wrap either.
    let list = [read(4, 1, u32::MAX)];
    let len = 100 + (1 << 32);
    let call = check_call(msg(reads(&list)), 100, len - 1);
    assert_eq!(call, Err(Violation::TooLong { len, max: len - 1 }));
    assert!(check_call(msg(reads(&list)), 100, len).is_ok());
}

#[test]
fn s3_4_5_2_a_read_chunk_comes_with_its_round_up_or_without() {
    for (data, ok) in [
        (&b"abcde"[..], true),
        (b"abcde\0\0\0", true),
        (b"abcde\0", false),
        (b"abcd", false),
    ] {
        let chunk = [read(8, 1, data.len() as u32)];
        let call = check_call(msg(reads(&chunk)), 12, MAX_CALL).unwrap();
        let item = onc_rpc::BulkItem {
            position: Position::At(call.items[0].position),
            data: onc_rpc::Bulk::copy_from(data),
        };
        let message = Message::new(reduced().payload().clone(), [item]);
        let mut from = Decoder::new(&message);
        assert_eq!(from.u32(), Ok(7));
        let item = from.bulk(100);
        assert_eq!(item.ok(), ok.then(|| b"abcde".into()));
        assert_eq!(
            from.u32()
                .is_ok_and(|word| word == 9 && from.finish() == Ok(())),
            ok
        );
    }
}

#[test]
fn s3_4_6_all_segments_are_returned_with_what_is_in_them() {
    let offered = chunk(&[10, 20, 30]);
    let filled = fill(&offered, 15).unwrap();
    assert_eq!(lengths(&filled), [10, 5, 0]);
    for (offered, filled) in offered.iter().zip(&filled) {
        assert_eq!(
            (offered.handle, offered.offset),
            (filled.handle, filled.offset)
        );
    }
    assert_eq!(lengths(&fill(&offered, 60).unwrap()), [10, 20, 30]);
    let small = ChunkTooSmall {
        needed: 61,
        capacity: 60,
    };
    assert_eq!(fill(&offered, 61), Err(small));
    // The total is over 4 GiB.
    let huge = chunk(&[u32::MAX, u32::MAX]);
    assert_eq!(lengths(&fill(&huge, 1 << 32).unwrap()), [u32::MAX, 1]);
}

fn returned(offered: &WriteChunk, returned: WriteChunk) -> Result<Vec<u64>, ReplyViolation> {
    let chunks = |chunk: WriteChunk| Chunks {
        writes: [chunk].into_iter().collect(),
        ..Chunks::default()
    };
    let returned = check_reply(&msg(chunks(returned)), 100, &chunks(offered.clone()))?;
    assert_eq!(returned.long, None);
    Ok(returned.writes.to_vec())
}

#[test]
fn s3_4_6_a_requester_checks_the_segments_that_come_back() {
    let offered = chunk(&[10, 20, 30]);
    let with = |lengths: &[u32]| returned(&offered, chunk(lengths));
    assert_eq!(with(&[10, 5, 0]), Ok(vec![15]));
    assert_eq!(with(&[10, 20, 30]), Ok(vec![60]));
    assert_eq!(with(&[10, 5, 1]), Err(ReplyViolation::Gap));
    assert_eq!(with(&[0, 5, 0]), Err(ReplyViolation::Gap));
    let too_long = ReplyViolation::SegmentTooLong {
        offered: 20,
        returned: 21,
    };
    assert_eq!(with(&[10, 21, 0]), Err(too_long));
    let count = |returned| ReplyViolation::SegmentCount {
        offered: 3,
        returned,
    };
    assert_eq!(with(&[10, 5]), Err(count(2)));
    assert_eq!(with(&[10, 5, 0, 0]), Err(count(4)));
    let mut other = offered.clone();
    other[2].handle += 1;
    assert_eq!(returned(&offered, other), Err(ReplyViolation::OtherSegment));
    let mut other = offered.clone();
    other[2].offset -= 1;
    assert_eq!(returned(&offered, other), Err(ReplyViolation::OtherSegment));
}

#[test]
fn s3_5_3_a_position_zero_read_chunk_is_the_payload() {
    let list = [read(0, 1, 1001), read(60, 3, 500), read(0, 2, 3)];
    let call = check_call(nomsg(reads(&list)), 0, MAX_CALL).unwrap();
    let payload = call.payload.unwrap();
    assert_eq!(
        (payload.position, payload.length, payload.segments.len()),
        (0, 1004, 2)
    );
    assert_eq!(call.items.len(), 1);
    assert_eq!(call.items[0].position, 60);
    // The positions of other chunks are checked against the payload in the position-zero chunk.
    let list = [read(0, 1, 60), read(64, 3, 500)];
    let call = check_call(nomsg(reads(&list)), 0, MAX_CALL);
    assert_eq!(call, Err(Violation::BeyondPayload(64)));
}

#[test]
fn s3_5_3_chunks_that_hold_a_payload_have_its_round_up() {
    let call = check_call(nomsg(reads(&[read(0, 1, 1001)])), 0, MAX_CALL);
    assert_eq!(call, Err(Violation::UnpaddedPayload(1001)));
    let offered = Chunks {
        reply: Some(chunk(&[2000])),
        ..Chunks::default()
    };
    let reply = nomsg(Chunks {
        reply: Some(chunk(&[1001])),
        ..Chunks::default()
    });
    let error = ReplyViolation::UnpaddedPayload(1001);
    assert_eq!(check_reply(&reply, 0, &offered), Err(error));
}
