//! The requirements of version-two-07 that a header shows: its rules, and the errors that answer it.
//! See MUSTS.md.

mod common;

use bytes::Bytes;
use common::{AnyHeader, CREDIT, XID, call, chunk, header, message, read, reads, rpc, wire, words};
use quickcheck::quickcheck;
use rpcrdma_v2_wg::limits::{DEFAULT_INLINE, FIRST_MESSAGE_MAX, PREFIX_LEN};
use rpcrdma_v2_wg::{
    Answer, Body, Chunks, Direction, ErrorBody, Header, HeaderError, Properties, ReplyViolation,
    VERSION, Violation, check_call, check_payload, check_returned, fill,
};

const MAX_CALL: u64 = 1 << 20;

/// Returns the error code of the answer to a message that cannot be decoded.
fn answer(message: &Bytes) -> Option<ErrorBody> {
    let error = Header::decode(message).expect_err("the header is bad");
    let answer = error.answer()?;
    assert_eq!((answer.xid, answer.version), (XID, 2));
    Some(answer.error)
}

/// Checks that a receiver refuses a call with these chunks, and that it would take it without
/// `wrong`.
fn bad_xdr(external: bool, wrong: Chunks) {
    let bytes = message(&header(call(external, wrong)), &[0; 4]);
    assert_eq!(answer(&bytes), Some(ErrorBody::BadXdr));
}

fn decodes(body: Body) {
    let header = header(body);
    let bytes = message(&header, &[0; 4]);
    let len = header.encoded_len();
    assert_eq!(Header::decode(&bytes), Ok((header, len)));
}

#[test]
fn wg_s4_2_2_without_properties_both_inline_thresholds_are_4096() {
    let default = Properties::default();
    assert_eq!((default.send_size, default.receive_size), (4096, 4096));
    assert_eq!(DEFAULT_INLINE, 4096);
}

#[test]
fn wg_s4_3_properties_of_a_client_fit_its_first_message() {
    let header = header(Body::Properties {
        last: true,
        properties: Properties::default().encode(),
    });
    assert_eq!(FIRST_MESSAGE_MAX, 1024);
    assert!(header.encoded_len() <= FIRST_MESSAGE_MAX as usize);
}

#[test]
fn wg_s4_5_1_positions_are_multiples_of_four() {
    for position in [1, 2, 3, 5, u32::MAX] {
        let violation = check_call(call(false, reads(&[read(position, 1, 8)])), 64, MAX_CALL);
        let unaligned = rpcrdma_chunks::Violation::UnalignedPosition(position);
        assert_eq!(violation, Err(Violation::Chunks(unaligned)));
        assert_eq!(
            violation.unwrap_err().error(),
            Some(ErrorBody::BadXdr),
            "{position}"
        );
    }
}

#[test]
fn wg_s4_5_1_segments_with_one_position_are_one_chunk() {
    let chunks = reads(&[read(60, 1, 7), read(60, 2, 8), read(76, 3, 9)]);
    let call = check_call(call(false, chunks), 64, MAX_CALL).unwrap();
    let lengths: Vec<_> = call.items.iter().map(|chunk| chunk.length).collect();
    assert_eq!(lengths, [15, 9]);
    assert_eq!(call.read_len(), 24);
}

#[test]
fn wg_s4_5_1_1_positions_that_decrease_are_bad_xdr() {
    decodes(call(
        false,
        reads(&[read(4, 1, 8), read(4, 2, 8), read(12, 3, 8)]),
    ));
    bad_xdr(false, reads(&[read(12, 1, 8), read(4, 2, 8)]));
    bad_xdr(
        false,
        reads(&[read(4, 1, 8), read(12, 2, 8), read(8, 3, 8)]),
    );
    bad_xdr(true, reads(&[read(0, 1, 8), read(12, 2, 8), read(8, 3, 8)]));
}

#[test]
fn wg_s4_5_2_1_write_chunks_are_returned_with_the_lengths_written() {
    let offered = chunk(&[100, 200, 300]);
    let returned = fill(&offered, 150).unwrap();
    let of = |chunk: &rpcrdma_v2_wg::WriteChunk| {
        let segments = chunk.iter();
        segments
            .map(|segment| (segment.handle, segment.offset))
            .collect::<Vec<_>>()
    };
    assert_eq!(of(&offered), of(&returned));
    let lengths: Vec<_> = returned.iter().map(|segment| segment.length).collect();
    assert_eq!(lengths, [100, 50, 0]);
}

#[test]
fn wg_s6_3_7_the_read_list_has_no_position_zero_chunk() {
    bad_xdr(false, reads(&[read(0, 1, 8)]));
    // In an external call the first list is the call chunk: one with another position, and a second
    // list with position zero.
    let call_chunk = [1, 0, 1, 8, 1, 0x40, 0];
    let elsewhere = [1, 4, 1, 8, 1, 0x40, 0];
    let lists = |call: &[u32], reads: &[u32]| {
        let rest = [&[0], call, reads, &[0, 0]].concat();
        wire(8, &rest)
    };
    assert!(Header::decode(&lists(&call_chunk, &elsewhere)).is_ok());
    assert_eq!(
        answer(&lists(&call_chunk, &call_chunk)),
        Some(ErrorBody::BadXdr)
    );
    assert_eq!(
        answer(&lists(&elsewhere, &elsewhere)),
        Some(ErrorBody::BadXdr)
    );
}

#[test]
fn wg_s6_3_5_an_external_call_has_a_call_chunk() {
    bad_xdr(true, Chunks::default());
    bad_xdr(true, reads(&[read(4, 1, 8)]));
    decodes(call(true, reads(&[read(0, 1, 8), read(4, 1, 8)])));
    let empty = check_call(call(true, reads(&[read(0, 1, 0)])), 0, MAX_CALL);
    let no_payload = Violation::Chunks(rpcrdma_chunks::Violation::NoPayload);
    assert_eq!(empty, Err(no_payload));
}

#[test]
fn wg_s6_3_8_an_external_reply_has_one_reply_chunk() {
    assert!(Header::decode(&wire(11, &[0, 1, 0])).is_ok());
    let none = Header::decode(&wire(11, &[0, 0])).unwrap_err();
    assert!(matches!(none.error, HeaderError::Malformed { .. }));
    assert_eq!(
        none.answer(),
        None,
        "what is wrong with a reply is not answered"
    );
}

#[test]
fn wg_s6_5_the_handle_to_invalidate_is_one_of_the_header() {
    let all = Chunks {
        reads: vec![read(4, 11, 8)],
        writes: vec![vec![common::segment(12, 8), common::segment(13, 8)].into()],
        reply: Some(vec![common::segment(14, 8)].into()),
    };
    let with = |inv_handle, chunks| Body::Call {
        external: false,
        inv_handle,
        chunks,
    };
    for inv_handle in [0, 11, 12, 13, 14] {
        decodes(with(inv_handle, all.clone()));
    }
    for (inv_handle, chunks) in [(15, all), (1, Chunks::default())] {
        let bytes = message(&header(with(inv_handle, chunks)), &[0; 4]);
        assert_eq!(answer(&bytes), Some(ErrorBody::BadXdr));
    }
}

#[test]
fn wg_s6_1_the_first_word_of_the_payload_is_a_part_of_the_header() {
    for (header_type, fields) in [(9, &[8][..]), (10, &[0; 4]), (12, &[8]), (13, &[0])] {
        let with = |payload: usize| {
            let mut bytes = wire(header_type, fields).to_vec();
            bytes.extend(vec![0; payload]);
            Bytes::from(bytes)
        };
        assert!(Header::decode(&with(4)).is_ok());
        for payload in 0..4 {
            let expected = (header_type < 11).then_some(ErrorBody::BadXdr);
            assert_eq!(answer(&with(payload)), expected, "{header_type}, {payload}");
        }
    }
}

#[test]
fn wg_s6_1_no_payload_follows_external_messages() {
    let external = call(true, reads(&[read(0, 1, 64)]));
    assert!(check_call(external.clone(), 0, MAX_CALL).is_ok());
    let violation = check_call(external, 4, MAX_CALL).unwrap_err();
    let payload = rpcrdma_chunks::Violation::PayloadAfterNoMsg(4);
    assert_eq!(violation, Violation::Chunks(payload));
    let offered = Chunks {
        reply: Some(chunk(&[64])),
        ..Chunks::default()
    };
    assert!(check_returned(&offered, true, 0, &offered).is_ok());
    let violation = check_returned(&offered, true, 4, &offered);
    assert_eq!(violation, Err(ReplyViolation::PayloadAfterNoMsg(4)));
}

#[test]
fn wg_s6_1_and_s7_1_3_an_unknown_header_type_is_inval_htype() {
    for header_type in [0, 1, 2, 3, 14, 100, 0xffff_ff00, u32::MAX] {
        for rest in [&[][..], &[0; 8]] {
            let error = answer(&wire(header_type, rest));
            assert_eq!(error, Some(ErrorBody::InvalidHeaderType));
        }
    }
}

#[test]
fn wg_s7_a_message_shorter_than_the_prefix_is_discarded() {
    for header_type in 0..15 {
        let bytes = wire(header_type, &[0; 8]);
        for len in 0..PREFIX_LEN {
            let error = Header::decode(&bytes.slice(..len)).unwrap_err();
            assert_eq!(error.error, HeaderError::TooShort(len));
            assert_eq!((error.xid, error.answer()), (None, None));
        }
        let whole = Header::decode(&bytes.slice(..PREFIX_LEN));
        assert!(whole.is_ok() || whole.unwrap_err().xid == Some(XID));
    }
}

#[test]
fn wg_s7_an_error_has_xid_and_version_of_the_message() {
    let error = Header::decode(&wire(99, &[])).unwrap_err();
    let bytes = error.answer().unwrap().encode(CREDIT);
    assert_eq!(bytes, wire(4, &[4]));
    // Versions that this side does not speak are named in an error of that version.
    let answer = Answer {
        xid: 9,
        version: 3,
        error: ErrorBody::Version { low: 1, high: 2 },
    };
    assert_eq!(answer.encode(5), words(&[9, 3, 5, 4, 1, 1, 2]));
    assert_eq!(Answer::new(9, ErrorBody::System).version, VERSION);
}

#[test]
fn wg_s7_an_error_that_cannot_be_decoded_is_not_answered() {
    for fields in [
        &[][..],
        &[1],
        &[1, 1],
        &[6],
        &[7],
        &[8],
        &[9],
        &[9, 1],
        &[10],
    ] {
        let error = Header::decode(&wire(4, fields)).unwrap_err();
        assert!(matches!(error.error, HeaderError::BadError(_)));
        assert_eq!((error.xid, error.answer()), (Some(XID), None));
    }
}

#[test]
fn wg_s7_an_unknown_error_code_is_recognized_as_such() {
    for code in [0, 12, 99, 101, u32::MAX] {
        let (header, _) = Header::decode(&wire(4, &[code, 1, 2])).unwrap();
        assert_eq!(header.body, Body::Error(ErrorBody::Other(code)));
    }
}

#[test]
fn wg_s7_1_1_another_version_is_reported_to_the_caller() {
    for (version, header_type, is_error) in [(1, 0, false), (3, 10, false), (1, 4, true)] {
        let bytes = words(&[XID, version, CREDIT, header_type, 1, 2, 3]);
        let error = Header::decode(&bytes).unwrap_err();
        let expected = HeaderError::Version { version, is_error };
        assert_eq!((error.error, error.xid), (expected, Some(XID)));
        assert_eq!(error.answer(), None, "it depends on the connection");
    }
}

#[test]
fn wg_s7_2_the_payload_starts_with_the_xid_of_the_header() {
    let of_call = rpc(&[XID, 0, 2, 0, 0, 0]);
    assert_eq!(check_payload(XID, Direction::Call, &of_call), Ok(()));
    for payload in [rpc(&[XID + 1, 0, 2]), rpc(&[])] {
        let violation = check_payload(XID, Direction::Call, &payload).unwrap_err();
        assert!(matches!(violation, Violation::Chunks(_)), "{violation}");
        assert_eq!(violation.error(), Some(ErrorBody::BadXdr));
    }
}

#[test]
fn the_header_type_says_the_msg_type_of_the_rpc_message() {
    for (direction, msg_type) in [(Direction::Call, 0), (Direction::Reply, 1)] {
        assert_eq!(
            check_payload(XID, direction, &rpc(&[XID, msg_type])),
            Ok(())
        );
        for other in [1 - msg_type, 2] {
            let violation = check_payload(XID, direction, &rpc(&[XID, other])).unwrap_err();
            let payload = Some(other);
            let header = direction;
            assert_eq!(violation, Violation::Direction { header, payload });
            assert_eq!(violation.error(), Some(ErrorBody::BadXdr));
        }
    }
    let short = check_payload(XID, Direction::Reply, &rpc(&[XID])).unwrap_err();
    assert!(matches!(short, Violation::Direction { payload: None, .. }));
}

#[test]
fn a_call_longer_than_the_responder_allows_is_a_system_error() {
    let violation = check_call(call(false, reads(&[read(4, 1, 900)])), 200, 1000).unwrap_err();
    assert!(matches!(violation, Violation::Chunks(_)), "{violation}");
    assert_eq!(violation.error(), Some(ErrorBody::System));
    assert!(check_call(call(false, reads(&[read(4, 1, 900)])), 100, 1000).is_ok());
}

#[test]
fn wg_s4_4_1_segments_may_end_at_any_byte_and_chunks_anywhere() {
    let chunks = reads(&[read(8, 1, 1), read(8, 2, 0), read(8, 3, 4095)]);
    let call = check_call(call(false, chunks), 64, MAX_CALL).unwrap();
    assert_eq!((call.items.len(), call.items[0].length), (1, 4096));
}

#[test]
fn wg_s6_6_2_positions_of_a_continued_call_count_in_the_whole_payload() {
    // The last part has 100 bytes, and the parts before it had 8000.
    let chunks = reads(&[read(5000, 1, 8192)]);
    assert!(check_call(call(false, chunks.clone()), 100, MAX_CALL).is_err());
    assert!(check_call(call(false, chunks), 8100, MAX_CALL).is_ok());
}

quickcheck! {
    fn only_calls_pass_the_check_of_calls(any: AnyHeader, inline: u16) -> bool {
        let is_call = matches!(any.0.body, Body::Call { .. });
        let checked = check_call(any.0.body, u64::from(inline), MAX_CALL);
        is_call == (checked != Err(Violation::NotACall))
    }
}

#[test]
fn a_violation_of_a_reply_or_grant_is_not_answered() {
    let violation = check_call(Body::Grant, 0, MAX_CALL).unwrap_err();
    assert_eq!((violation, violation.error()), (Violation::NotACall, None));
}
