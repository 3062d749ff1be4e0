//! The requirements of version-two-01 and the requirements of RFC 8167 about headers. See MUSTS.md.

mod common;

use bytes::{BufMut, Bytes};
use common::{AnyHeader, XID, check_reply, chunk, flip, header, optional, read, reads, rpc, words};
use quickcheck::quickcheck;
use rpcrdma_extension::{ConnectionLimits, Extensions, ReverseDirection};
use rpcrdma_v2::limits::DEFAULT_INLINE;
use rpcrdma_v2::operations::{self, Routed};
use rpcrdma_v2::{
    Answer, Body, Chunks, Direction, ErrorBody, Header, HeaderError, ReplyViolation,
    ReturnedChunks, Role, Side, Violation, check_call, check_payload, check_xid,
};

const MAX_CALL: u64 = 1 << 20;
const SIDES: [Side; 2] = [Side::Client, Side::Server];

fn error_of(message: &[u32]) -> HeaderError {
    Header::decode(&words(message)).expect_err("the header is bad")
}

/// Returns the answers that a client and a server send.
fn answers(message: &[u32]) -> [Option<Answer>; 2] {
    SIDES.map(|side| error_of(message).answer(side))
}

const BAD_HEADER: Answer = Answer {
    xid: XID,
    version: 2,
    error: ErrorBody::BadHeader,
};

#[test]
fn v2_s2_3_without_more_knowledge_the_inline_threshold_is_4096() {
    assert_eq!(DEFAULT_INLINE, 4096);
    let limits = Extensions::new(Side::Client, 0, vec![]).unwrap().limits();
    let inline = (limits.inline_send, limits.inline_receive);
    assert_eq!(inline, (4096, 4096));
    assert_eq!(limits, ConnectionLimits::default());
}

#[test]
fn v2_s3_1_an_unknown_operation_is_answered_with_inval_option() {
    for (side, direction) in SIDES
        .into_iter()
        .flat_map(|side| [(side, Direction::Call), (side, Direction::Reply)])
    {
        let mut none = Extensions::new(side, 0, vec![]).unwrap();
        for opttype in [0, 1, 4, 5, 8, 9, 0x7fff_ffff, u32::MAX] {
            let header = optional(direction, opttype, b"whatever");
            let message = [header.encode()];
            let Routed::Refused(error) = operations::route(&mut none, &header, &message, 36) else {
                panic!("{side:?} {direction} {opttype}");
            };
            let answer = Answer::invalid_option(XID);
            assert_eq!(answer.error, error.into());
            assert_eq!((answer.xid, answer.version), (XID, 2));
            assert_eq!(answer.encode(9), words(&[XID, 2, 9, 4, 3]));
        }
        assert!(none.next_action().is_none(), "one error and nothing else");
    }
}

#[test]
fn v2_s3_2_every_header_says_which_way_it_goes() {
    for direction in [Direction::Call, Direction::Reply] {
        let chunks = Chunks::default;
        let msg = header(Body::Msg(direction, chunks()));
        let nomsg = header(Body::NoMsg(direction, chunks()));
        for header in [msg, nomsg, optional(direction, 9, b"")] {
            assert_eq!(header.direction(), direction);
        }
    }
    for number in [2, 3, u32::MAX] {
        assert_eq!(Direction::from_number(number), None);
    }
}

#[test]
fn v2_s4_2_the_version_is_two_and_the_procedures_are_0_1_4_and_5() {
    fn property(any: AnyHeader) -> bool {
        let bytes = any.0.encode();
        bytes[4..8] == [0, 0, 0, 2] && matches!(bytes[12..16], [0, 0, 0, 0 | 1 | 4 | 5])
    }
    quickcheck(property as fn(AnyHeader) -> bool);
}

#[test]
fn v2_s4_2_headers_are_whole_xdr_units() {
    fn property(any: AnyHeader) -> bool {
        any.0.encode().len().is_multiple_of(4)
    }
    quickcheck(property as fn(AnyHeader) -> bool);
}

#[test]
fn v2_s4_2_1_a_payload_follows_rdma2_msg() {
    let missing = check_payload(XID, Direction::Call, &rpc(&[]));
    assert!(missing.is_err());
    let violation = missing.unwrap_err();
    let answer = Answer::to_violation(&violation, XID, Role::Responder);
    assert_eq!(answer, Some(BAD_HEADER));
}

#[test]
fn v2_s4_2_1_no_payload_follows_rdma2_error() {
    for error in [
        ErrorBody::BadHeader,
        ErrorBody::InvalidOption,
        ErrorBody::Version { low: 2, high: 2 },
    ] {
        let answer = Answer {
            xid: XID,
            version: 2,
            error,
        };
        let bytes = answer.encode(1);
        let (decoded, at) = Header::decode(&bytes).unwrap();
        assert_eq!((decoded.body, at), (Body::Error(error), bytes.len()));
    }
    // Bytes that follow an error are ignored, because the call has ended anyway.
    let (_, at) = Header::decode(&words(&[XID, 2, 1, 4, 2, 7, 7])).unwrap();
    assert_eq!(at, 20);
}

#[test]
fn v2_s4_2_1_payload_may_follow_an_operation() {
    let mut message = optional(Direction::Call, 9, b"abcde").encode().to_vec();
    let at = message.len();
    message.put_slice(b"payload");
    let (_, payload_at) = Header::decode(&Bytes::from(message)).unwrap();
    assert_eq!(payload_at, at);
}

#[test]
fn v2_s4_2_1_rdma2_nomsg_has_its_payload_in_a_chunk() {
    let call = |chunks| header(Body::NoMsg(Direction::Call, chunks));
    for chunks in [Chunks::default(), reads(&[read(4, 1, 4)])] {
        let violation = check_call(call(chunks), 0, MAX_CALL).unwrap_err();
        let answer = Answer::to_violation(&violation, XID, Role::Responder);
        assert_eq!(answer, Some(BAD_HEADER), "{violation}");
    }
    let chunks = reads(&[read(0, 1, 100)]);
    assert!(check_call(call(chunks.clone()), 4, MAX_CALL).is_err());
    let checked = check_call(call(chunks), 0, MAX_CALL).unwrap();
    assert_eq!(checked.payload.map(|chunk| chunk.length), Some(100));
    let reply = header(Body::NoMsg(Direction::Reply, Chunks::default()));
    let checked = check_reply(&reply, 0, &Chunks::default());
    assert_eq!(checked, Err(ReplyViolation::NoPayload));
}

#[test]
fn v2_s4_2_2_the_direction_is_the_msg_type_of_the_rpc_message() {
    let ways = [(Direction::Call, 0), (Direction::Reply, 1)];
    for (direction, number) in ways {
        assert_eq!(check_payload(XID, direction, &rpc(&[XID, number])), Ok(()));
        for other in [1 - number, 2, u32::MAX] {
            let checked = check_payload(XID, direction, &rpc(&[XID, other]));
            let expected = Violation::Direction {
                header: direction,
                payload: Some(other),
            };
            assert_eq!(checked, Err(expected));
        }
        assert!(check_payload(XID, direction, &rpc(&[XID])).is_err());
    }
    let violation = Violation::Direction {
        header: Direction::Call,
        payload: Some(1),
    };
    let to = |role| Answer::to_violation(&violation, XID, role);
    assert_eq!(to(Role::Responder), Some(BAD_HEADER));
    assert_eq!(to(Role::Requester), None);
}

#[test]
fn v2_s4_2_2_an_error_is_a_reply() {
    for error in [ErrorBody::BadHeader, ErrorBody::InvalidOption] {
        let error = header(Body::Error(error));
        assert_eq!(error.direction(), Direction::Reply);
        assert_eq!(error.direction().receiver(), Role::Requester);
        let as_call = check_call(error, 0, MAX_CALL);
        assert_eq!(as_call, Err(Violation::NotACall));
    }
}

#[test]
fn v2_s4_2_3_what_is_wrong_with_calls_is_answered_and_with_replies_is_not() {
    // Procedure and direction, then an error in the chunk lists.
    let bad_list = |direction| answers(&[XID, 2, 32, 0, direction, 5, 0, 0]);
    assert_eq!(bad_list(0), [Some(BAD_HEADER), Some(BAD_HEADER)]);
    assert_eq!(bad_list(1), [None, None]);
    let truncated = |direction| answers(&[XID, 2, 32, 5, direction, 7, 9]);
    assert_eq!(truncated(0), [Some(BAD_HEADER), Some(BAD_HEADER)]);
    assert_eq!(truncated(1), [None, None]);
}

#[test]
fn v2_s4_2_3_a_header_without_a_direction_counts_as_forward() {
    for message in [
        // Procedures that this version does not have or no longer has, and an invalid direction.
        &[XID, 2, 32, 2, 0, 0, 0, 0][..],
        &[XID, 2, 32, 3, 0, 0, 0, 0],
        &[XID, 2, 32, 6, 0, 0, 0, 0],
        &[XID, 2, 32, u32::MAX, 0, 0, 0, 0],
        &[XID, 2, 32, 0, 2, 0, 0, 0],
        &[XID, 2, 32, 5, 7, 0, 0, 0],
    ] {
        assert_eq!(answers(message), [None, Some(BAD_HEADER)], "{message:?}");
    }
}

#[test]
fn v2_s4_2_3_messages_that_are_too_short_are_discarded() {
    for len in 0..7 {
        let whole = [XID, 2, 32, 0, 0, 0, 0];
        let error = error_of(&whole[..len]);
        // A message of 28 bytes would be a truncated header, and reported as such.
        assert_eq!(error.xid(), None);
        assert_eq!(SIDES.map(|side| error.answer(side)), [None, None]);
    }
    let truncated = [XID, 2, 32, 0, 0, 0, 0];
    assert_eq!(answers(&truncated), [Some(BAD_HEADER); 2]);
}

#[test]
fn v2_s4_2_3_errors_are_never_answered() {
    for message in [
        &[XID, 2, 32, 4, 9][..],
        &[XID, 2, 32, 4, 1, 1],
        &[XID, 2, 32, 4],
        &[XID, 1, 32, 4, 2],
        &[XID, 3, 32, 4, 9, 9, 9],
    ] {
        assert_eq!(answers(message), [None, None], "{message:?}");
    }
}

#[test]
fn v2_s4_2_3_another_version_is_answered_with_err_vers() {
    for version in [0, 1, 3, u32::MAX] {
        let [client, server] = answers(&[XID, version, 32, 0, 0, 0, 0]);
        let expected = Answer {
            xid: XID,
            version,
            error: ErrorBody::Version { low: 2, high: 2 },
        };
        assert_eq!((client, server), (None, Some(expected)));
        let bytes = words(&[XID, version, 7, 4, 1, 2, 2]);
        assert_eq!(expected.encode(7), bytes);
    }
}

#[test]
fn v2_s4_2_3_the_rules_for_chunks_are_those_of_version_1() {
    let call = |chunks| check_call(header(Body::Msg(Direction::Call, chunks)), 100, MAX_CALL);
    for bad in [
        reads(&[read(0, 1, 100)]),
        reads(&[read(3, 1, 4)]),
        reads(&[read(40, 1, 8), read(44, 2, 8)]),
        reads(&[read(204, 1, 8)]),
        reads(&[read(40, 1, 2 << 20)]),
    ] {
        let violation = call(bad).unwrap_err();
        let answer = Answer::to_violation(&violation, XID, Role::Responder);
        assert_eq!(answer, Some(BAD_HEADER), "{violation}");
    }
    let good = call(reads(&[read(60, 1, 8), read(40, 2, 5)])).unwrap();
    let positions: Vec<u32> = good.items.iter().map(|item| item.position).collect();
    assert_eq!((positions, good.read_len()), (vec![40, 60], 13));

    let offered = Chunks {
        writes: vec![chunk(&[100, 100])],
        ..Chunks::default()
    };
    let reply = |lengths: &[u32]| {
        let chunks = Chunks {
            writes: vec![chunk(lengths)],
            ..Chunks::default()
        };
        check_reply(&header(Body::Msg(Direction::Reply, chunks)), 40, &offered)
    };
    let returned = ReturnedChunks {
        writes: [150].into_iter().collect(),
        long: None,
    };
    assert_eq!(reply(&[100, 50]), Ok(returned));
    let gap = Err(ReplyViolation::Gap);
    assert_eq!(reply(&[50, 50]), gap);
}

#[test]
fn rfc8167_s4_1_calls_ask_for_credits_and_replies_grant_them() {
    // The meaning of the credits follows from the header alone, for every header that decodes.
    fn property(any: AnyHeader, flips: Vec<usize>) -> bool {
        let bytes = flip(&any.0.encode(), &flips);
        let Ok((header, _)) = Header::decode(&bytes) else {
            return true;
        };
        let says = u32::from_be_bytes(bytes[16..20].try_into().unwrap());
        match header.body {
            Body::Error(_) => header.direction() == Direction::Reply,
            _ => header.direction().number() == says,
        }
    }
    quickcheck(property as fn(AnyHeader, Vec<usize>) -> bool);
}

#[test]
fn rfc8167_s5_1_and_s5_2_the_payload_starts_with_the_xid_of_the_header() {
    for direction in [Direction::Call, Direction::Reply] {
        let message = rpc(&[7, direction.number()]);
        let other = check_xid(XID, &message).expect_err("another XID");
        let checked = check_payload(XID, direction, &message);
        assert_eq!(checked, Err(Violation::Chunks(other)));
    }
}

#[test]
fn rfc8167_s5_3_backward_calls_have_no_chunks_unless_more_is_known() {
    assert_eq!(
        ConnectionLimits::default().reverse_direction,
        ReverseDirection::Inline
    );
    // A responder without chunk support answers with version 1's ERR_CHUNK, which has another name
    // here.
    assert_eq!(Answer::bad_header(XID), BAD_HEADER);
    assert_eq!(BAD_HEADER.encode(1), words(&[XID, 2, 1, 4, 2]));
}
