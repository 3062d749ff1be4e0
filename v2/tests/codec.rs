//! Encoding and decoding of headers: every header type byte by byte, and arbitrary input from a
//! peer.

mod common;

use bytes::{BufMut, Bytes, BytesMut};
use common::{AnyHeader, XID, chunk, flip, header, optional, read, words};
use quickcheck::quickcheck;
use rpcrdma_v2::limits::{
    MAX_CHUNK_SEGMENTS, MAX_READ_SEGMENTS, MAX_WRITE_CHUNKS, NO_CHUNKS_LEN, OPTIONAL_LEN,
};
use rpcrdma_v2::{
    Body, Chunks, Direction, ErrorBody, Header, HeaderError, Malformed, Role, Side, check_call,
    check_returned,
};

/// Returns whether a header that decodes is encoded to the same bytes.
fn is_canonical(bytes: &Bytes) -> bool {
    match Header::decode(bytes) {
        Ok((header, at)) => header.encode() == bytes[..at] && header.encoded_len() == at,
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
        let start = [XID, 2, 8, procedure % 7];
        let rest = rest.into_iter().enumerate().map(|(i, word)| if i % 6 == 0 { word % 2 } else { word % 4 });
        is_canonical(&words(&start.into_iter().chain(rest).collect::<Vec<_>>()))
    }

    fn an_error_says_which_message_it_is_about(any: AnyHeader, flips: Vec<usize>) -> bool {
        let bytes = flip(&any.0.encode(), &flips);
        let Err(error) = Header::decode(&bytes) else { return true };
        let xid = u32::from_be_bytes(bytes[..4].try_into().unwrap());
        let version = u32::from_be_bytes(bytes[4..8].try_into().unwrap());
        let answers = [Side::Client, Side::Server].map(|side| error.answer(side));
        error.xid() == (bytes.len() >= 28 || bytes[12..16] == [0, 0, 0, 4]).then_some(xid)
            && answers.into_iter().flatten().all(|a| (a.xid, a.version) == (xid, version))
    }

    fn whatever_decodes_can_be_checked(any: AnyHeader, flips: Vec<usize>, inline: u16) -> bool {
        let Ok((header, _)) = Header::decode(&flip(&any.0.encode(), &flips)) else { return true };
        let is_call = header.direction().receiver() == Role::Responder;
        if let Body::Msg(_, chunks) | Body::NoMsg(_, chunks) = &header.body {
            let long = matches!(header.body, Body::NoMsg(..));
            let _ = check_returned(chunks, long, u64::from(inline), chunks);
        }
        let call = check_call(header, u64::from(inline), 1 << 20);
        call.is_err() || is_call
    }
}

/// Returns a version 2 message with 32 credits, this procedure and these further words.
fn message(procedure: u32, rest: &[u32]) -> Bytes {
    words(&[&[XID, 2, 32, procedure], rest].concat())
}

#[test]
fn v2_s4_2_rdma2_msg_has_these_bytes() {
    let none = header(Body::Msg(Direction::Call, Chunks::default()));
    assert_eq!(none.encode(), message(0, &[0, 0, 0, 0]));
    assert_eq!(none.encoded_len(), NO_CHUNKS_LEN);
    let reply = header(Body::Msg(Direction::Reply, Chunks::default()));
    assert_eq!(reply.encode(), message(0, &[1, 0, 0, 0]));
    let all = Chunks {
        reads: vec![read(60, 1, 7), read(60, 2, 8), read(100, 3, 9)],
        writes: vec![chunk(&[7, 8]), chunk(&[])],
        reply: Some(chunk(&[5])),
    };
    let reads = [
        1, 60, 1, 7, 1, 0x40, 1, 60, 2, 8, 2, 0x40, 1, 100, 3, 9, 3, 0x40, 0,
    ];
    let writes = [1, 2, 1, 7, 1, 0x40, 2, 8, 2, 0x40, 1, 0, 0];
    let rest = [&[0], &reads[..], &writes, &[1, 1, 1, 5, 1, 0x40]].concat();
    let all = header(Body::Msg(Direction::Call, all));
    assert_eq!(all.encode(), message(0, &rest));
}

#[test]
fn v2_s4_2_rdma2_nomsg_has_these_bytes() {
    let chunks = common::reads(&[read(0, 9, 8192)]);
    let long = header(Body::NoMsg(Direction::Call, chunks));
    let rest = [0, 1, 0, 9, 8192, 9, 0x40, 0, 0, 0];
    assert_eq!(long.encode(), message(1, &rest));
}

#[test]
fn v2_s4_2_rdma2_error_has_these_bytes() {
    let error = |error| header(Body::Error(error)).encode();
    let versions = ErrorBody::Version { low: 1, high: 2 };
    assert_eq!(error(versions), message(4, &[1, 1, 2]));
    assert_eq!(error(ErrorBody::BadHeader), message(4, &[2]));
    assert_eq!(error(ErrorBody::InvalidOption), message(4, &[3]));
}

#[test]
fn v2_s4_2_rdma2_optional_has_these_bytes() {
    let call = optional(Direction::Call, 7, b"abcdef");
    let rest = [0, 7, 6, u32::from_be_bytes(*b"abcd"), 0x6566_0000];
    assert_eq!(call.encode(), message(5, &rest));
    let reply = optional(Direction::Reply, u32::MAX, b"");
    assert_eq!(reply.encode(), message(5, &[1, u32::MAX, 0]));
    assert_eq!(reply.encoded_len(), OPTIONAL_LEN);
}

fn malformed(message: &Bytes) -> Malformed {
    match Header::decode(message) {
        Err(HeaderError::Malformed { reason, .. }) => reason,
        other => panic!("{other:?}"),
    }
}

#[test]
fn the_information_of_an_operation_is_not_copied_and_its_length_is_checked() {
    let bytes = optional(Direction::Call, 7, b"abcd").encode();
    let Ok((header, _)) = Header::decode(&bytes) else {
        panic!("decodes");
    };
    let Body::Optional(op) = header.body else {
        panic!("optional");
    };
    assert_eq!(op.info.as_ptr(), bytes[28..].as_ptr());
    for len in [5, 9, u32::MAX - 2, u32::MAX] {
        assert_eq!(
            malformed(&message(5, &[0, 7, len, 0])),
            Malformed::Truncated
        );
    }
    assert_eq!(malformed(&message(5, &[0, 7, 3, 1])), Malformed::RoundUp);
}

#[test]
fn a_segment_count_is_checked_before_memory_is_allocated() {
    let too_many = Malformed::TooMany("segments in a write chunk");
    for count in [u32::MAX, MAX_CHUNK_SEGMENTS as u32 + 1] {
        assert_eq!(malformed(&message(0, &[0, 0, 1, count, 0])), too_many);
        assert_eq!(malformed(&message(0, &[0, 0, 0, 1, count])), too_many);
    }
    let promised = message(0, &[0, 0, 0, 1, MAX_CHUNK_SEGMENTS as u32]);
    assert_eq!(malformed(&promised), Malformed::Truncated);
}

#[test]
fn lists_are_limited() {
    let decode = |chunks| Header::decode(&header(Body::Msg(Direction::Call, chunks)).encode());
    let reads = |n| common::reads(&vec![read(4, 1, 1); n]);
    assert!(decode(reads(MAX_READ_SEGMENTS)).is_ok());
    assert!(decode(reads(MAX_READ_SEGMENTS + 1)).is_err());
    let writes = |n| Chunks {
        writes: vec![chunk(&[1]); n],
        ..Chunks::default()
    };
    assert!(decode(writes(MAX_WRITE_CHUNKS)).is_ok());
    assert!(decode(writes(MAX_WRITE_CHUNKS + 1)).is_err());
}
