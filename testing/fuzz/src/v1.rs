//! Transport headers of version 1, and the checks of their chunk lists by a responder and a
//! requester (RFC 8166, sections 3.4, 3.5 and 4).

use bytes::Bytes;
use onc_rpc::padded;
use rpcrdma_v1::{
    Answer, Body, Chunks, ErrorBody, Header, HeaderError, ReturnedChunks, Role, WriteChunk,
    check_call, check_returned, chunk_len, fill, unused,
};

use crate::chunks::{MAX_CALL, fetchable, most, within_limits};

/// Checks the decoder. The first byte chooses the lengths of returned chunks; the rest is a
/// message.
pub fn check(data: &[u8]) {
    let Some((&choice, bytes)) = data.split_first() else {
        return;
    };
    let message = Bytes::copy_from_slice(bytes);
    match crate::within(most(bytes.len()), || Header::decode(&message)) {
        Ok((header, at)) => {
            // Nothing in a header is optional, so that it can be written in one way only.
            assert_eq!(header.encode(), message[..at]);
            assert_eq!(header.encoded_len(), at);
            let inline = (message.len() - at) as u64;
            if let Body::Msg(chunks) | Body::NoMsg(chunks) = &header.body {
                within_limits(chunks);
                returned(chunks, choice);
            }
            call(&header, inline, bytes.len());
        }
        Err(error) => refused(&error, bytes),
    }
}

/// Checks the header as a responder does.
fn call(header: &Header, inline: u64, len: usize) {
    let checked = crate::within(most(len), || check_call(header.clone(), inline, MAX_CALL));
    let call = match checked {
        Ok(call) => call,
        Err(violation) => {
            assert_eq!(
                Answer::to_violation(&violation, header.xid, Role::Requester),
                None
            );
            if let Some(answer) = Answer::to_violation(&violation, header.xid, Role::Responder) {
                assert_eq!(answer.error, ErrorBody::Chunk);
                answered(&answer, header.xid);
            }
            return;
        }
    };
    let long = matches!(header.body, Body::NoMsg(_));
    assert_eq!(call.payload.is_some(), long);
    assert!(!long || inline == 0);
    fetchable(&call);
}

/// Checks that a requester accepts the chunks that a responder returns, with the same lengths, and
/// rejects changed ones.
fn returned(offered: &Chunks, choice: u8) {
    let used = |chunk: &WriteChunk| chunk_len(chunk).saturating_mul(u64::from(choice)) / 255;
    let place = |chunk: &WriteChunk| {
        let capacity = chunk_len(chunk);
        assert!(fill(chunk, capacity + 1).is_err());
        let filled = fill(chunk, used(chunk)).expect("it is not longer than the chunk");
        assert_eq!(chunk_len(&filled), used(chunk));
        filled
    };
    let chunks = Chunks {
        reads: Vec::new(),
        writes: offered.writes.iter().map(place).collect(),
        reply: offered.reply.as_ref().map(|chunk| unused(chunk)),
    };
    let lengths: Vec<u64> = offered.writes.iter().map(used).collect();
    let checked = check_returned(&chunks, false, 4, offered);
    let Ok(ReturnedChunks { writes, long: None }) = checked else {
        panic!("a reply as it should be: {checked:?}");
    };
    assert_eq!(writes[..], lengths[..]);

    let Some(chunk) = &offered.reply else {
        return;
    };
    let long = padded(used(chunk)).min(chunk_len(chunk)) & !3;
    let filled = fill(chunk, long).expect("it is not longer than the chunk");
    let chunks = Chunks {
        reply: Some(filled),
        ..chunks
    };
    let checked = check_returned(&chunks, true, 0, offered);
    match checked {
        Ok(ReturnedChunks {
            long: Some(len), ..
        }) => assert_eq!(len, long),
        Err(_) => assert_eq!(long, 0),
        other => panic!("a long reply: {other:?}"),
    }
    // Two payloads, or one in no place.
    assert!(check_returned(&chunks, false, 4, offered).is_err() == (long > 0));
    let none = Chunks::default();
    assert!(check_returned(&chunks, true, 0, &none).is_err());
}

fn refused(error: &HeaderError, bytes: &[u8]) {
    assert_eq!(error.answer(Role::Requester), None);
    let xid = bytes.first_chunk().map(|xid| u32::from_be_bytes(*xid));
    assert!(error.xid().is_none() || error.xid() == xid);
    if let Some(answer) = error.answer(Role::Responder) {
        answered(&answer, xid.expect("an answer needs an XID"));
    }
}

/// Checks that the answer to a bad header is a valid RDMA_ERROR.
fn answered(answer: &Answer, xid: u32) {
    let bytes = answer.encode(7);
    assert_eq!(bytes[..4], xid.to_be_bytes());
    match Header::decode(&bytes) {
        Ok((header, at)) => {
            assert_eq!((header.xid, header.credits, at), (xid, 7, bytes.len()));
            assert_eq!(header.body, Body::Error(answer.error));
        }
        Err(HeaderError::Version {
            version, is_error, ..
        }) => {
            assert!(is_error && version == answer.version);
        }
        Err(error) => panic!("an answer of ours: {error}"),
    }
}
