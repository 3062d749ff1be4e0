//! The requirements of RFC 8166, section 4. See MUSTS.md.

mod common;

use bytes::Bytes;
use common::{AnyHeader, XID, check_reply, chunk, header, msg, nomsg, read, reads, words};
use onc_rpc::{Encoder, Message};
use quickcheck::quickcheck;
use rpcrdma_v1::{
    Answer, Body, Chunks, ErrorBody, Header, HeaderError, ReplyViolation, ReturnedChunks, Role,
    Violation, check_call, check_xid,
};

const MAX_CALL: u64 = 1 << 20;

fn error_of(message: &[u32]) -> HeaderError {
    Header::decode(&words(message)).expect_err("the header is bad")
}

/// Returns the answers that a responder and a requester send.
fn answers(message: &[u32]) -> (Option<Answer>, Option<Answer>) {
    let error = error_of(message);
    (error.answer(Role::Responder), error.answer(Role::Requester))
}

const ERR_CHUNK: Answer = Answer {
    xid: XID,
    version: 1,
    error: ErrorBody::Chunk,
};

quickcheck! {
    fn s4_a_header_is_whole_xdr_units(any: AnyHeader) -> bool {
        any.0.encode().len().is_multiple_of(4)
    }

    fn s4_2_2_the_version_is_one(any: AnyHeader) -> bool {
        any.0.encode()[4..8] == [0, 0, 0, 1]
    }

    fn s4_6_rdma_msgp_and_rdma_done_are_never_sent(any: AnyHeader) -> bool {
        matches!(any.0.encode()[12..16], [0, 0, 0, 0 | 1 | 4])
    }
}

#[test]
fn s4_2_1_the_xid_is_that_of_the_rpc_message() {
    let message = |words: &[u32]| {
        let mut out = Encoder::new();
        for word in words {
            out.u32(*word);
        }
        out.finish()
    };
    assert_eq!(check_xid(XID, &message(&[XID, 0])), Ok(()));
    let other = Violation::Xid {
        header: XID,
        payload: Some(7),
    };
    assert_eq!(check_xid(XID, &message(&[7, 0])), Err(other));
    let missing = Violation::Xid {
        header: XID,
        payload: None,
    };
    assert_eq!(check_xid(XID, &Message::default()), Err(missing));
    for violation in [other, missing] {
        assert_eq!(
            Answer::to_violation(&violation, XID, Role::Responder),
            Some(ERR_CHUNK)
        );
    }
}

#[test]
fn s4_2_4_an_rdma_nomsg_call_has_its_payload_in_a_position_zero_chunk() {
    let offered = Chunks {
        reply: Some(chunk(&[4096])),
        ..Chunks::default()
    };
    for chunks in [
        Chunks::default(),
        offered,
        reads(&[read(4, 1, 4)]),
        reads(&[read(0, 1, 0)]),
    ] {
        let violation = check_call(nomsg(chunks), 0, MAX_CALL).unwrap_err();
        assert_eq!(violation, Violation::NoPayload);
        assert_eq!(
            Answer::to_violation(&violation, XID, Role::Responder),
            Some(ERR_CHUNK)
        );
    }
    let chunks = reads(&[read(0, 1, 100)]);
    let inline_too = check_call(nomsg(chunks.clone()), 4, MAX_CALL);
    assert_eq!(inline_too, Err(Violation::PayloadAfterNoMsg(4)));
    assert_eq!(
        check_call(msg(chunks), 100, MAX_CALL),
        Err(Violation::TwoPayloads)
    );
}

#[test]
fn s4_2_4_an_rdma_nomsg_reply_has_its_payload_in_the_reply_chunk() {
    let with = |len| Chunks {
        reply: Some(chunk(&[len])),
        ..Chunks::default()
    };
    let offered = with(4096);
    let long = |len| {
        Ok(ReturnedChunks {
            writes: [].into_iter().collect(),
            long: len,
        })
    };
    assert_eq!(check_reply(&nomsg(with(100)), 0, &offered), long(Some(100)));
    assert_eq!(check_reply(&msg(with(0)), 100, &offered), long(None));
    for unused in [with(0), Chunks::default()] {
        let no_payload = Err(ReplyViolation::NoPayload);
        assert_eq!(check_reply(&nomsg(unused), 0, &offered), no_payload);
    }
    let inline_too = Err(ReplyViolation::PayloadAfterNoMsg(8));
    assert_eq!(check_reply(&nomsg(with(100)), 8, &offered), inline_too);
    let two = Err(ReplyViolation::TwoPayloads);
    assert_eq!(check_reply(&msg(with(100)), 100, &offered), two);
    let not_offered = Err(ReplyViolation::ReplyChunkNotOffered);
    assert_eq!(
        check_reply(&nomsg(with(100)), 0, &Chunks::default()),
        not_offered
    );
}

#[test]
fn s4_2_4_a_requester_never_answers_with_rdma_error() {
    for message in [
        &[XID, 2, 32, 0, 0, 0, 0][..],
        &[XID, 1, 32, 9, 0, 0, 0],
        &[XID, 1, 32, 2, 0, 0, 0],
        &[XID, 1, 32, 0, 5, 0, 0],
    ] {
        assert_eq!(
            error_of(message).answer(Role::Requester),
            None,
            "{message:?}"
        );
    }
    assert_eq!(
        Answer::to_violation(&Violation::NoPayload, XID, Role::Requester),
        None
    );
}

#[test]
fn s4_2_4_a_responder_discards_rdma_error() {
    for error in [ErrorBody::Chunk, ErrorBody::Version { low: 1, high: 1 }] {
        let violation = check_call(header(Body::Error(error)), 0, MAX_CALL).unwrap_err();
        assert_eq!(violation, Violation::ErrorProcedure);
        assert_eq!(Answer::to_violation(&violation, XID, Role::Responder), None);
    }
    // RDMA_ERROR has the same number in every version, so that errors never answer each other.
    assert_eq!(answers(&[XID, 2, 32, 4, 1, 2, 2]), (None, None));
}

#[test]
fn s4_3_1_a_reply_has_no_read_list() {
    let reply = msg(reads(&[read(4, 1, 4)]));
    let error = Err(ReplyViolation::ReadList);
    assert_eq!(check_reply(&reply, 100, &Chunks::default()), error);
}

#[test]
fn s4_5_messages_that_are_too_short_are_discarded() {
    let whole = words(&[XID, 1, 32, 9, 0, 0, 0]);
    for len in 0..28 {
        let error = Header::decode(&whole.slice(..len)).unwrap_err();
        assert_eq!(error, HeaderError::TooShort(len));
        assert_eq!(error.answer(Role::Responder), None);
        assert_eq!(error.xid(), None, "it cannot be trusted");
    }
    let error = Header::decode(&whole).unwrap_err();
    assert_eq!(error.answer(Role::Responder), Some(ERR_CHUNK));
}

#[test]
fn s4_5_err_chunk_is_shorter_than_that_and_is_taken() {
    let bytes = header(Body::Error(ErrorBody::Chunk)).encode();
    assert_eq!(bytes.len(), 20);
    let (decoded, _) = Header::decode(&bytes).unwrap();
    assert_eq!(decoded.body, Body::Error(ErrorBody::Chunk));
}

#[test]
fn s4_5_an_rdma_error_has_the_xid_and_version_of_what_it_answers() {
    let answer = answers(&[XID, 7, 32, 0, 0, 0, 0]).0.unwrap();
    assert_eq!(answer.encode(5), words(&[XID, 7, 5, 4, 1, 1, 1]));
    let answer = answers(&[XID, 1, 32, 8, 0, 0, 0]).0.unwrap();
    assert_eq!(answer.encode(5), words(&[XID, 1, 5, 4, 2]));
}

#[test]
fn s4_5_an_rdma_error_that_cannot_be_decoded_is_discarded() {
    for message in [
        &[XID, 1, 32, 4, 1, 1][..],
        &[XID, 1, 32, 4, 3, 0, 0],
        &[XID, 1, 32, 4, 0],
    ] {
        assert!(matches!(
            error_of(message),
            HeaderError::BadError { xid: XID, .. }
        ));
        assert_eq!(answers(message), (None, None));
    }
}

#[test]
fn s4_5_1_version_mismatch_is_answered_with_err_vers() {
    for version in [0, 2, u32::MAX] {
        let expected = Answer {
            xid: XID,
            version,
            error: ErrorBody::Version { low: 1, high: 1 },
        };
        // Fields after the fixed ones do not matter, because only the fixed fields have the same
        // meaning in every version.
        assert_eq!(
            answers(&[XID, version, 32, 0, 9, 9, 9]),
            (Some(expected), None)
        );
        assert_eq!(
            answers(&[XID, version, 32, 3, 9, 9, 9]),
            (Some(expected), None)
        );
    }
}

#[test]
fn s4_5_2_xdr_errors_are_answered_with_err_chunk() {
    for message in [
        &[XID, 1, 32, 5, 0, 0, 0][..], // no such procedure
        &[XID, 1, 32, u32::MAX, 0, 0, 0],
        &[XID, 1, 32, 0, 7, 0, 0],           // not a boolean
        &[XID, 1, 32, 0, 1, 4, 1],           // cut off in the read list
        &[XID, 1, 32, 0, 0, 1, 1],           // in the write list
        &[XID, 1, 32, 1, 0, 0, 1],           // in the reply chunk
        &[XID, 1, 32, 0, 0, 1, u32::MAX, 0], // more segments than bytes
    ] {
        assert_eq!(answers(message), (Some(ERR_CHUNK), None), "{message:?}");
    }
}

#[test]
fn s4_5_2_bad_chunks_are_answered_with_err_chunk() {
    for chunks in [
        reads(&[read(3, 1, 4)]),
        reads(&[read(0, 1, 4)]),
        reads(&[read(8, 1, 8), read(12, 2, 4)]),
        reads(&[read(400, 1, 8)]),
        reads(&[read(8, 1, 1 << 30)]),
    ] {
        let violation = check_call(msg(chunks), 100, MAX_CALL).unwrap_err();
        assert_eq!(
            Answer::to_violation(&violation, XID, Role::Responder),
            Some(ERR_CHUNK),
            "{violation}"
        );
        assert_eq!(Answer::to_violation(&violation, XID, Role::Requester), None);
    }
}

#[test]
fn s4_6_1_rdma_msgp_is_refused_by_responders_and_discarded_by_requesters() {
    let message = [XID, 1, 32, 2, 4096, 1024, 0, 0, 0, XID];
    assert_eq!(error_of(&message), HeaderError::Msgp { xid: XID });
    assert_eq!(answers(&message), (Some(ERR_CHUNK), None));
}

#[test]
fn s4_6_2_rdma_done_is_discarded() {
    let message = [XID, 1, 32, 3, 0, 0, 0];
    assert_eq!(error_of(&message), HeaderError::Done { xid: XID });
    assert_eq!(answers(&message), (None, None));
    // The header in the XDR definition of RDMA_DONE is too short for any other treatment.
    let short = words(&message[..4]);
    assert_eq!(Header::decode(&short), Err(HeaderError::TooShort(16)));
}

#[test]
fn s4_5_trailing_bytes_are_the_payload() {
    let mut message = msg(Chunks::default()).encode().to_vec();
    message.extend_from_slice(&[1, 2, 3, 4]);
    let (decoded, at) = Header::decode(&Bytes::from(message)).unwrap();
    assert_eq!((decoded, at), (msg(Chunks::default()), 28));
}
