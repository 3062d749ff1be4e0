//! Encoding and decoding of headers: the examples of RFC 8166, and arbitrary input from a peer.

mod common;

use bytes::{BufMut, Bytes, BytesMut};
use common::{AnyHeader, XID, check_reply, chunk, flip, header, msg, nomsg, read, words};
use quickcheck::quickcheck;
use rpcrdma_v1::limits::{MAX_CHUNK_SEGMENTS, MAX_READ_SEGMENTS, MAX_WRITE_CHUNKS};
use rpcrdma_v1::{
    Body, Chunks, ErrorBody, Header, HeaderError, Malformed, PrivateData, ReturnedChunks, Role,
    check_call, chunk_len,
};

/// Returns whether a header that decodes is encoded to the same bytes.
fn is_canonical(bytes: &Bytes) -> bool {
    match Header::decode(bytes) {
        Ok((header, at)) => header.encode() == bytes[..at],
        Err(_) => true,
    }
}

quickcheck! {
    fn headers_round_trip_and_the_payload_follows(any: AnyHeader, payload: Vec<u8>) -> bool {
        let mut message = BytesMut::new();
        any.0.encode_into(&mut message);
        let len = message.len();
        message.put_slice(&payload);
        len == any.0.encoded_len()
            && any.0.encode() == message[..len]
            && Header::decode(&message.freeze()) == Ok((any.0, len))
    }

    fn flipped_bits_do_not_panic(any: AnyHeader, flips: Vec<usize>) -> bool {
        is_canonical(&flip(&any.0.encode(), &flips))
    }

    fn a_header_cut_short_is_an_error(any: AnyHeader, at: usize) -> bool {
        let bytes = any.0.encode();
        Header::decode(&bytes.slice(..at % bytes.len())).is_err()
    }

    fn arbitrary_bytes_do_not_panic(bytes: Vec<u8>) -> bool {
        is_canonical(&Bytes::from(bytes))
    }

    // Small words are more likely to be valid field values.
    fn arbitrary_words_do_not_panic(procedure: u32, rest: Vec<u32>) -> bool {
        let start = [XID, 1, 8, procedure % 6];
        let rest = rest.into_iter().enumerate().map(|(i, word)| if i % 6 == 0 { word % 2 } else { word % 4 });
        is_canonical(&words(&start.into_iter().chain(rest).collect::<Vec<_>>()))
    }

    fn an_error_says_which_message_it_is_about(any: AnyHeader, flips: Vec<usize>) -> bool {
        let bytes = flip(&any.0.encode(), &flips);
        let Err(error) = Header::decode(&bytes) else { return true };
        let xid = u32::from_be_bytes(bytes[..4].try_into().unwrap());
        let version = u32::from_be_bytes(bytes[4..8].try_into().unwrap());
        error.xid() == (bytes.len() >= 28 || bytes[12..16] == [0, 0, 0, 4]).then_some(xid)
            && error.answer(Role::Requester).is_none()
            && error.answer(Role::Responder).is_none_or(|a| (a.xid, a.version) == (xid, version))
    }

    fn checked_calls_keep_to_the_rules(any: AnyHeader, inline: u16) -> bool {
        let Ok(call) = check_call(any.0, u64::from(inline), 1 << 20) else { return true };
        let mut end = 0;
        let in_order = call.items.iter().all(|item| {
            let fits = u64::from(item.position) >= end && item.position % 4 == 0;
            end = u64::from(item.position) + u64::from(item.length);
            fits && item.position > 0 && chunk_len(&item.segments) == u64::from(item.length)
        });
        let payload = call.payload.as_ref().is_none_or(|p| p.position == 0 && p.length % 4 == 0);
        in_order && payload && call.read_len() <= 1 << 20
    }

    fn checked_replies_hold_no_more_than_was_offered(offered: AnyHeader, lens: Vec<u32>, long: bool) -> bool {
        let Body::Msg(offered) = offered.0.body else { return true };
        let mut lens = lens.into_iter();
        let mut returned = Chunks { reads: [].into_iter().collect(), ..offered.clone() };
        for segment in returned.writes.iter_mut().chain(&mut returned.reply).flatten() {
            segment.length = lens.next().map_or(segment.length, |len| len % 8);
        }
        let reply = if long { nomsg(returned) } else { msg(returned) };
        match check_reply(&reply, 0, &offered) {
            Ok(ReturnedChunks { writes, long }) => {
                let fits = writes.iter().zip(&offered.writes).all(|(n, chunk)| *n <= chunk_len(chunk));
                let reply = offered.reply.as_ref().map_or(0, |chunk| chunk_len(chunk));
                fits && writes.len() == offered.writes.len() && long.unwrap_or(0) <= reply
            }
            Err(_) => true,
        }
    }

    fn private_data_round_trips(send: u32, receive: u32, invalidation: bool, before: Vec<u8>, after: Vec<u8>) -> bool {
        let data = PrivateData::new(send, receive, invalidation);
        let found = PrivateData::find(&[&before[..], &data.encode(), &after].concat());
        // Four arbitrary bytes equal the identifier only once in 2^32.
        found == Some(data)
    }

    fn arbitrary_private_data_does_not_panic(bytes: Vec<u8>, flips: Vec<usize>) -> bool {
        let good = PrivateData::new(4096, 4096, true).encode();
        let flipped = flip(&good, &flips);
        let canonical = |data: PrivateData| data.encode()[..5] == good[..5];
        PrivateData::find(&bytes).is_none_or(canonical)
            && PrivateData::find(&flipped).is_none_or(canonical)
    }
}

/// Returns an RDMA_MSG header whose fixed fields are followed by `rest`.
fn after_fixed(rest: &[u32]) -> Bytes {
    words(&[&[XID, 1, 32, 0], rest].concat())
}

#[test]
fn s4_7_without_chunks_three_zeroes_follow_the_fixed_fields() {
    assert_eq!(msg(Chunks::default()).encode(), after_fixed(&[0, 0, 0]));
}

#[test]
fn s4_7_read_list() {
    let reads = [read(60, 1, 7), read(60, 2, 8), read(100, 3, 9)];
    let list = [
        1, 60, 1, 7, 1, 0x40, 1, 60, 2, 8, 2, 0x40, 1, 100, 3, 9, 3, 0x40, 0,
    ];
    let expected = after_fixed(&[&list[..], &[0, 0]].concat());
    assert_eq!(msg(common::reads(&reads)).encode(), expected);
}

#[test]
fn s4_7_write_list_of_two_chunks() {
    let chunks = Chunks {
        writes: [chunk(&[7, 8, 9]), chunk(&[5, 6])].into_iter().collect(),
        ..Chunks::default()
    };
    let first = [1, 3, 1, 7, 1, 0x40, 2, 8, 2, 0x40, 3, 9, 3, 0x40];
    let second = [1, 2, 1, 5, 1, 0x40, 2, 6, 2, 0x40];
    let expected = after_fixed(&[&[0], &first[..], &second, &[0, 0]].concat());
    assert_eq!(msg(chunks).encode(), expected);
}

#[test]
fn s4_7_reply_chunk_of_two_segments() {
    let chunks = Chunks {
        reply: Some(chunk(&[5, 6])),
        ..Chunks::default()
    };
    let expected = after_fixed(&[0, 0, 1, 2, 1, 5, 1, 0x40, 2, 6, 2, 0x40]);
    assert_eq!(msg(chunks).encode(), expected);
}

#[test]
fn s4_1_2_errors() {
    let error = |error| header(Body::Error(error)).encode();
    assert_eq!(error(ErrorBody::Chunk), words(&[XID, 1, 32, 4, 2]));
    let versions = ErrorBody::Version { low: 1, high: 2 };
    assert_eq!(error(versions), words(&[XID, 1, 32, 4, 1, 1, 2]));
}

fn malformed(message: &Bytes) -> Malformed {
    match Header::decode(message) {
        Err(HeaderError::Malformed { reason, .. }) => reason,
        other => panic!("{other:?}"),
    }
}

#[test]
fn optional_data_is_there_or_not() {
    for rest in [&[2, 0, 0][..], &[0, 2, 0], &[0, 0, 2]] {
        assert_eq!(malformed(&after_fixed(rest)), Malformed::Boolean(2));
    }
}

#[test]
fn a_segment_count_is_checked_before_memory_is_allocated() {
    let too_many = Malformed::TooMany("segments in a write chunk");
    for count in [u32::MAX, MAX_CHUNK_SEGMENTS as u32 + 1] {
        assert_eq!(malformed(&after_fixed(&[0, 1, count, 0])), too_many);
        assert_eq!(malformed(&after_fixed(&[0, 0, 1, count])), too_many);
    }
    let message = after_fixed(&[0, 0, 1, MAX_CHUNK_SEGMENTS as u32]);
    assert_eq!(malformed(&message), Malformed::Truncated);
}

#[test]
fn lists_are_limited() {
    let decode = |chunks: Chunks| Header::decode(&msg(chunks).encode()).map(|_| ());
    let reads = |n| common::reads(&vec![read(4, 1, 1); n]);
    assert_eq!(decode(reads(MAX_READ_SEGMENTS)), Ok(()));
    let message = msg(reads(MAX_READ_SEGMENTS + 1)).encode();
    assert_eq!(
        malformed(&message),
        Malformed::TooMany("segments in the read list")
    );
    let writes = |n| Chunks {
        writes: vec![chunk(&[1]); n],
        ..Chunks::default()
    };
    assert_eq!(decode(writes(MAX_WRITE_CHUNKS)), Ok(()));
    let message = msg(writes(MAX_WRITE_CHUNKS + 1)).encode();
    assert_eq!(
        malformed(&message),
        Malformed::TooMany("chunks in the write list")
    );
}
