//! Transport headers of version 2 (draft-cel-nfsv4-rpcrdma-version-two-01, section 4).

use bytes::Bytes;
use onc_rpc::pad;
use rpcrdma_v2::{
    Answer, Body, Direction, Header, HeaderError, Role, Side, check_call, check_returned,
};

use crate::chunks::{MAX_CALL, fetchable, most, within_limits};

/// Checks the decoder. The first byte chooses the receiver's side; the rest is a message.
pub fn check(data: &[u8]) {
    let Some((&choice, bytes)) = data.split_first() else {
        return;
    };
    let side = match choice & 1 {
        0 => Side::Client,
        _ => Side::Server,
    };
    let message = Bytes::copy_from_slice(bytes);
    match crate::within(most(bytes.len()), || Header::decode(&message)) {
        Ok((header, at)) => decoded(&header, &message, at),
        Err(error) => {
            let xid = bytes.first_chunk().map(|xid| u32::from_be_bytes(*xid));
            assert!(error.xid().is_none() || error.xid() == xid);
            if let Some(answer) = error.answer(side) {
                answered(&answer, xid.expect("an answer needs an XID"));
            }
        }
    }
}

fn decoded(header: &Header, message: &Bytes, at: usize) {
    let again = header.encode();
    assert_eq!((again.len(), header.encoded_len()), (at, at));
    // The round-up of an optional operation's bytes is the one thing that may be otherwise.
    let round_up = match &header.body {
        Body::Optional(optional) => pad(optional.info.len() as u64) as usize,
        _ => 0,
    };
    assert_eq!(again[..at - round_up], message[..at - round_up]);
    if let Some(chunks) = header.chunks() {
        within_limits(chunks);
    }

    let inline = (message.len() - at) as u64;
    let call = crate::within(2 * most(message.len()), || {
        if let Body::Msg(_, chunks) | Body::NoMsg(_, chunks) = &header.body {
            let long = matches!(header.body, Body::NoMsg(..));
            let _ = check_returned(chunks, long, inline, chunks);
        }
        check_call(header.clone(), inline, MAX_CALL)
    });
    let is_call = match &header.body {
        Body::Msg(direction, _) | Body::NoMsg(direction, _) => *direction == Direction::Call,
        Body::Error(_) | Body::Optional(_) => false,
    };
    match call {
        Ok(call) => {
            assert!(is_call);
            assert_eq!(
                call.payload.is_some(),
                matches!(header.body, Body::NoMsg(..))
            );
            fetchable(&call);
        }
        Err(violation) => {
            assert_eq!(
                Answer::to_violation(&violation, header.xid, Role::Requester),
                None
            );
            if let Some(answer) = Answer::to_violation(&violation, header.xid, Role::Responder) {
                assert!(is_call);
                answered(&answer, header.xid);
            }
        }
    }
}

/// Checks that the answer to a bad header is a valid RDMA2_ERROR.
fn answered(answer: &Answer, xid: u32) {
    let bytes = answer.encode(7);
    match Header::decode(&bytes) {
        Ok((header, at)) => {
            assert_eq!((header.xid, header.credits, at), (xid, 7, bytes.len()));
            assert_eq!(header.body, Body::Error(answer.error));
        }
        Err(HeaderError::Version { version, .. }) => assert_eq!(version, answer.version),
        Err(error) => panic!("an answer of ours: {error}"),
    }
}
