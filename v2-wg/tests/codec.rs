//! Encoding and decoding of headers: every header type byte by byte, and arbitrary input from a
//! peer.

mod common;

use bytes::Bytes;
use common::{
    AnyHeader, CREDIT, XID, call, chunk, flip, header, message, read, reads, wire, words,
};
use quickcheck::quickcheck;
use rpcrdma_v2_wg::limits::{
    CALL_INLINE_LEN, MAX_CHUNK_SEGMENTS, MAX_PROPERTIES, MAX_PROPERTY_LEN, MAX_READ_SEGMENTS,
    MAX_WRITE_CHUNKS, MIDDLE_LEN, PREFIX_LEN, REPLY_INLINE_LEN,
};
use rpcrdma_v2_wg::{
    Body, Chunks, DecodeError, Direction, ErrorBody, Header, HeaderError, Malformed, Prefix,
    Property, check_call, check_returned,
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
        let payload = [&[0; 4], &payload[..]].concat();
        let len = any.0.encoded_len();
        any.0.encode().len() == len
            && Header::decode(&message(&any.0, &payload)) == Ok((any.0, len))
    }

    fn flipped_bits_do_not_panic(any: AnyHeader, flips: Vec<usize>) -> bool {
        is_canonical(&flip(&message(&any.0, &[0; 4]), &flips))
    }

    // Only an error with an unknown code may be cut short: to a code that is known.
    fn a_message_cut_short_is_an_error(any: AnyHeader) -> bool {
        let bytes = message(&any.0, &[0; 4]);
        (0..bytes.len()).all(|at| {
            Header::decode(&bytes.slice(..at)).is_err_and(|error| {
                error.xid == (at >= PREFIX_LEN).then_some(any.0.xid)
                    && (error.answer().is_none() || any.0.body.direction() != Some(Direction::Reply))
            })
        })
    }

    fn arbitrary_bytes_do_not_panic(bytes: Vec<u8>) -> bool {
        is_canonical(&Bytes::from(bytes))
    }

    // Small words are more likely to be valid field values.
    fn arbitrary_words_do_not_panic(header_type: u32, rest: Vec<u32>) -> bool {
        let start = [XID, 2, 8, header_type % 15];
        let rest = rest.into_iter().enumerate().map(|(i, word)| if i % 6 == 0 { word % 2 } else { word % 4 });
        is_canonical(&words(&start.into_iter().chain(rest).collect::<Vec<_>>()))
    }

    fn an_error_says_which_message_it_is_about(any: AnyHeader, flips: Vec<usize>) -> bool {
        let bytes = flip(&message(&any.0, &[0; 4]), &flips);
        let Err(error) = Header::decode(&bytes) else { return true };
        let xid = u32::from_be_bytes(bytes[..4].try_into().unwrap());
        error.xid == Some(xid) && error.answer().is_none_or(|answer| (answer.xid, answer.version) == (xid, 2))
    }

    fn whatever_decodes_can_be_checked(any: AnyHeader, flips: Vec<usize>, inline: u16) -> bool {
        let Ok((header, _)) = Header::decode(&flip(&message(&any.0, &[0; 4]), &flips)) else { return true };
        if let Body::Reply { external, chunks } = &header.body {
            let _ = check_returned(chunks, *external, u64::from(inline), chunks);
        }
        let is_call = matches!(header.body, Body::Call { .. });
        check_call(header.body, u64::from(inline), 1 << 20).is_err() || is_call
    }

    fn the_prefix_is_that_of_the_header(any: AnyHeader) -> bool {
        let prefix = Prefix { xid: any.0.xid, version: 2, credit: any.0.credit, header_type: any.0.body.header_type() };
        Prefix::peek(&any.0.encode()) == Some(prefix)
    }
}

#[test]
fn wg_s6_2_1_every_header_begins_with_these_four_words() {
    let bytes = words(&[7, 2, 9, 5]);
    let prefix = Prefix {
        xid: 7,
        version: 2,
        credit: 9,
        header_type: 5,
    };
    assert_eq!(Prefix::peek(&bytes), Some(prefix));
    for len in 0..PREFIX_LEN {
        assert_eq!(Prefix::peek(&bytes[..len]), None);
    }
}

#[test]
fn wg_s6_1_header_types_have_these_numbers() {
    let chunks = Chunks::default;
    let middle = |direction| Body::Middle {
        direction,
        remaining: 0,
    };
    let properties = |last| Body::Properties {
        last,
        properties: vec![],
    };
    let reply = |external| Body::Reply {
        external,
        chunks: chunks(),
    };
    let table = [
        (Body::Error(ErrorBody::System), 4, false),
        (Body::Grant, 5, false),
        (properties(false), 6, false),
        (properties(true), 7, false),
        (call(true, chunks()), 8, false),
        (middle(Direction::Call), 9, true),
        (call(false, chunks()), 10, true),
        (reply(true), 11, false),
        (middle(Direction::Reply), 12, true),
        (reply(false), 13, true),
    ];
    for (body, number, payload) in table {
        assert_eq!(
            (body.header_type(), body.has_payload()),
            (number, payload),
            "{body:?}"
        );
        let direction = match number {
            8..=10 => Some(Direction::Call),
            4 | 11..=13 => Some(Direction::Reply),
            _ => None,
        };
        assert_eq!(body.direction(), direction);
    }
}

#[test]
fn wg_s6_3_1_rdma2_error_has_these_bytes() {
    let table: [(ErrorBody, &[u32]); 13] = [
        (ErrorBody::Version { low: 1, high: 2 }, &[1, 1, 2]),
        (ErrorBody::BadXdr, &[2]),
        (ErrorBody::BadPropertyValue, &[3]),
        (ErrorBody::InvalidHeaderType, &[4]),
        (ErrorBody::InvalidContinuation, &[5]),
        (ErrorBody::ReadChunks { max: 8 }, &[6, 8]),
        (ErrorBody::WriteChunks { max: 9 }, &[7, 9]),
        (ErrorBody::Segments { max: 10 }, &[8, 10]),
        (
            ErrorBody::WriteResource {
                chunk: 2,
                needed: 8192,
            },
            &[9, 2, 8192],
        ),
        (ErrorBody::ReplyResource { needed: 4096 }, &[10, 4096]),
        (ErrorBody::VersionMismatch, &[11]),
        (ErrorBody::System, &[100]),
        (ErrorBody::Other(12), &[12]),
    ];
    for (error, fields) in table {
        let bytes = wire(4, fields);
        assert_eq!(header(Body::Error(error)).encode(), bytes);
        // Bytes after the error are ignored: of an unknown code they may be fields.
        for after in [&[][..], &[0, 1]] {
            let (decoded, at) = Header::decode(&wire(4, &[fields, after].concat())).unwrap();
            assert_eq!((decoded.body, at), (Body::Error(error), bytes.len()));
        }
    }
}

#[test]
fn wg_s6_3_2_rdma2_grant_is_the_prefix_alone() {
    assert_eq!(header(Body::Grant).encode(), wire(5, &[]));
    assert_eq!(header(Body::Grant).encoded_len(), PREFIX_LEN);
    // RDMA2_OPTIONAL of the 2016 draft: direction, operation, and no information.
    let optional = Header::decode(&wire(5, &[0, 7, 0])).unwrap_err();
    assert_eq!(malformed(&optional), Malformed::Trailing(12));
}

#[test]
fn wg_s6_3_2_a_grant_has_xid_zero_and_any_other_is_taken() {
    assert_eq!(Header::grant(9).encode(), words(&[0, 2, 9, 5]));
    for xid in [0, XID] {
        let (header, _) = Header::decode(&words(&[xid, 2, 9, 5])).unwrap();
        assert_eq!((header.credit, header.body), (9, Body::Grant));
    }
}

#[test]
fn wg_s6_3_3_and_s6_3_4_connprop_has_these_bytes() {
    let properties = vec![
        Property {
            id: 2,
            value: words(&[8192]),
        },
        Property {
            id: 0xffff_ff00,
            value: Bytes::from_static(b"abcde"),
        },
        Property {
            id: 1,
            value: Bytes::new(),
        },
    ];
    let fields = [
        3,
        2,
        4,
        8192,
        0xffff_ff00,
        5,
        0x6162_6364,
        0x6500_0000,
        1,
        0,
    ];
    for (last, header_type) in [(false, 6), (true, 7)] {
        let properties = properties.clone();
        let header = header(Body::Properties { last, properties });
        assert_eq!(header.encode(), wire(header_type, &fields));
        let trailing = Header::decode(&wire(header_type, &[&fields[..], &[0]].concat()));
        assert_eq!(malformed(&trailing.unwrap_err()), Malformed::Trailing(4));
    }
}

#[test]
fn wg_s6_3_5_rdma2_call_external_has_these_bytes() {
    let chunks = Chunks {
        reads: vec![read(0, 1, 4096), read(0, 2, 512), read(60, 3, 8192)],
        writes: vec![chunk(&[7, 8]), chunk(&[])],
        reply: Some(chunk(&[5])),
    };
    let body = Body::Call {
        external: true,
        inv_handle: 3,
        chunks,
    };
    let call = [1, 0, 1, 4096, 1, 0x40, 1, 0, 2, 512, 2, 0x40, 0];
    let reads = [1, 60, 3, 8192, 3, 0x40, 0];
    let writes = [1, 2, 1, 7, 1, 0x40, 2, 8, 2, 0x40, 1, 0, 0];
    let rest = [&[3], &call[..], &reads, &writes, &[1, 1, 1, 5, 1, 0x40]].concat();
    assert_eq!(header(body).encode(), wire(8, &rest));
}

#[test]
fn wg_s6_3_6_and_s6_3_9_middle_has_these_bytes() {
    for (direction, header_type) in [(Direction::Call, 9), (Direction::Reply, 12)] {
        let middle = header(Body::Middle {
            direction,
            remaining: 8192,
        });
        assert_eq!(middle.encode(), wire(header_type, &[8192]));
        assert_eq!(middle.encoded_len(), MIDDLE_LEN);
    }
}

#[test]
fn wg_s6_3_7_rdma2_call_inline_has_these_bytes() {
    let none = header(call(false, Chunks::default()));
    assert_eq!(none.encode(), wire(10, &[0, 0, 0, 0]));
    assert_eq!(none.encoded_len(), CALL_INLINE_LEN);
    let chunks = Chunks {
        reads: vec![read(60, 1, 7), read(60, 2, 8), read(100, 3, 9)],
        writes: vec![chunk(&[7])],
        reply: Some(chunk(&[5])),
    };
    let body = Body::Call {
        external: false,
        inv_handle: 2,
        chunks,
    };
    let reads = [
        1, 60, 1, 7, 1, 0x40, 1, 60, 2, 8, 2, 0x40, 1, 100, 3, 9, 3, 0x40, 0,
    ];
    let writes = [1, 1, 1, 7, 1, 0x40, 0];
    let rest = [&[2], &reads[..], &writes, &[1, 1, 1, 5, 1, 0x40]].concat();
    assert_eq!(header(body).encode(), wire(10, &rest));
}

#[test]
fn wg_s6_3_8_and_s6_3_10_replies_have_these_bytes() {
    let chunks = Chunks {
        writes: vec![chunk(&[7])],
        reply: Some(chunk(&[5])),
        ..Chunks::default()
    };
    let writes = [1, 1, 1, 7, 1, 0x40, 0];
    let external = header(Body::Reply {
        external: true,
        chunks: chunks.clone(),
    });
    let rest = [&writes[..], &[1, 1, 1, 5, 1, 0x40]].concat();
    assert_eq!(external.encode(), wire(11, &rest));
    let inline = header(Body::Reply {
        external: false,
        chunks: Chunks {
            reply: None,
            ..chunks
        },
    });
    assert_eq!(inline.encode(), wire(13, &writes));
    let none = header(Body::Reply {
        external: false,
        chunks: Chunks::default(),
    });
    assert_eq!(none.encode(), wire(13, &[0]));
    assert_eq!(none.encoded_len(), REPLY_INLINE_LEN);
}

fn malformed(error: &DecodeError) -> Malformed {
    match error.error {
        HeaderError::Malformed { reason, .. } => reason,
        other => panic!("{other:?}"),
    }
}

/// Returns the error for the message, and the error code of the answer.
fn refused(message: &Bytes) -> (HeaderError, Option<ErrorBody>) {
    let error = Header::decode(message).expect_err("the header is bad");
    assert_eq!(error.xid, Some(XID));
    (error.error, error.answer().map(|answer| answer.error))
}

#[test]
fn values_of_properties_are_not_copied() {
    let bytes = wire(7, &[1, 9, 4, 0x6162_6364]);
    let (header, _) = Header::decode(&bytes).unwrap();
    let Body::Properties { properties, .. } = header.body else {
        panic!("properties");
    };
    assert_eq!(properties[0].value.as_ptr(), bytes[28..].as_ptr());
}

#[test]
fn wg_s5_1_a_value_longer_than_the_message_is_bad_propval() {
    for len in [5, 9, u32::MAX - 2, u32::MAX] {
        for id in [1, 77] {
            let (error, answer) = refused(&wire(7, &[1, id, len, 0]));
            assert_eq!(error, HeaderError::Property { id, len });
            assert_eq!(answer, Some(ErrorBody::BadPropertyValue));
        }
    }
    let (error, answer) = refused(&wire(6, &[1, 1, 3, 1]));
    let reason = Malformed::RoundUp;
    let header_type = 6;
    let round_up = HeaderError::Malformed {
        header_type,
        reason,
    };
    assert_eq!((error, answer), (round_up, Some(ErrorBody::BadXdr)));
}

#[test]
fn the_number_and_length_of_properties_is_limited() {
    let with = |properties| {
        let header = header(Body::Properties {
            last: true,
            properties,
        });
        Header::decode(&header.encode())
    };
    let property = |len| Property {
        id: 9,
        value: Bytes::from(vec![0; len]),
    };
    assert!(with(vec![property(0); MAX_PROPERTIES]).is_ok());
    let too_many = with(vec![property(0); MAX_PROPERTIES + 1]).unwrap_err();
    assert_eq!(malformed(&too_many), Malformed::TooMany("properties"));
    assert!(with(vec![property(MAX_PROPERTY_LEN)]).is_ok());
    let too_long = with(vec![property(MAX_PROPERTY_LEN + 1)]).unwrap_err();
    let (id, len) = (9, MAX_PROPERTY_LEN as u32 + 1);
    assert_eq!(too_long.error, HeaderError::Property { id, len });
}

#[test]
fn wg_s7_3_2_and_s7_3_3_headers_beyond_the_limits_are_answered_with_the_limits() {
    let with = |chunks| Header::decode(&message(&header(call(false, chunks)), &[0; 4]));
    let answer = |chunks| {
        with(chunks)
            .unwrap_err()
            .answer()
            .map(|answer| answer.error)
    };
    let many = |n| reads(&vec![read(4, 1, 1); n]);
    assert!(with(many(MAX_READ_SEGMENTS)).is_ok());
    let max = MAX_READ_SEGMENTS as u32;
    let segments = Some(ErrorBody::Segments { max });
    assert_eq!(answer(many(MAX_READ_SEGMENTS + 1)), segments);

    let writes = |n| Chunks {
        writes: vec![chunk(&[1]); n],
        ..Chunks::default()
    };
    assert!(with(writes(MAX_WRITE_CHUNKS)).is_ok());
    let max = MAX_WRITE_CHUNKS as u32;
    let write_chunks = Some(ErrorBody::WriteChunks { max });
    assert_eq!(answer(writes(MAX_WRITE_CHUNKS + 1)), write_chunks);

    // The count is checked before memory is allocated for the segments.
    let max = MAX_CHUNK_SEGMENTS as u32;
    let segments = Some(ErrorBody::Segments { max });
    for count in [u32::MAX, max + 1] {
        assert_eq!(refused(&wire(10, &[0, 0, 1, count, 0])).1, segments);
        assert_eq!(refused(&wire(10, &[0, 0, 0, 1, count])).1, segments);
        assert_eq!(refused(&wire(11, &[0, 1, count])).1, None, "a reply");
    }
    let promised = Header::decode(&wire(10, &[0, 0, 0, 1, max])).unwrap_err();
    assert_eq!(malformed(&promised), Malformed::Truncated);

    // The call chunk and the other read chunks have the limit together.
    let external = |n| {
        let mut reads = vec![read(0, 1, 1); MAX_READ_SEGMENTS / 2];
        reads.extend(vec![read(4, 1, 1); n]);
        header(call(true, common::reads(&reads))).encode()
    };
    assert!(Header::decode(&external(MAX_READ_SEGMENTS / 2)).is_ok());
    assert!(Header::decode(&external(MAX_READ_SEGMENTS / 2 + 1)).is_err());
}

#[test]
fn credit_and_xid_are_any_number() {
    for value in [0, 1, CREDIT, u32::MAX] {
        let header = Header {
            xid: value,
            credit: value,
            body: Body::Grant,
        };
        let len = PREFIX_LEN;
        assert_eq!(Header::decode(&header.encode()), Ok((header, len)));
    }
}
