//! Version 1 (RFC 8166).

use bytes::BytesMut;
use conveyance::ChunkCounts;
use onc_rpc::{Message, Segments};
use rpcrdma_negotiation::Version;
use rpcrdma_v1::{Body, Chunks, ErrorBody, Header, Role, Violation, check_call, check_xid, limits};

use super::{
    Answer, BadCall, BadReply, FromRequester, FromResponder, PeerError, ReplyBody, chunks_len,
    pieces, preferred_handle,
};

pub(super) fn header_len(chunks: &ChunkCounts) -> u64 {
    limits::MIN_HEADER_LEN as u64 + chunks_len(chunks)
}

pub(super) fn encode(
    room: &mut BytesMut,
    xid: u32,
    credits: u32,
    inline: bool,
    chunks: Chunks,
) -> Chunks {
    let body = match inline {
        true => Body::Msg(chunks),
        false => Body::NoMsg(chunks),
    };
    let header = Header { xid, credits, body };
    header.encode_into(room);
    match header.body {
        Body::Msg(chunks) | Body::NoMsg(chunks) => chunks,
        Body::Error(_) => Chunks::default(),
    }
}

pub(super) fn from_responder(mut payload: Segments) -> Result<FromResponder, BadReply> {
    let decoded = pieces::decode_header(&payload, Header::decode);
    let (header, at) = decoded.map_err(|error| BadReply::Header(error.to_string()))?;
    pieces::advance(&mut payload, at);
    let body = match header.body {
        Body::Msg(chunks) => ReplyBody::Reply {
            chunks,
            long: false,
        },
        Body::NoMsg(chunks) => ReplyBody::Reply { chunks, long: true },
        Body::Error(ErrorBody::Chunk) => ReplyBody::Error(PeerError::Chunk),
        Body::Error(ErrorBody::Version { low, high }) => {
            ReplyBody::Error(PeerError::Version { low, high })
        }
    };
    Ok(FromResponder {
        version: Version::One,
        xid: header.xid,
        granted: header.credits,
        body,
        payload,
    })
}

/// Version 1 does not say in the header which way a message goes.
pub(super) fn check_payload(xid: u32, message: &Message) -> Result<(), BadReply> {
    check_xid(xid, message).map_err(|violation| BadReply::Payload(violation.to_string()))
}

pub(super) fn from_requester(
    mut payload: Segments,
    max_call: u64,
) -> Result<FromRequester, BadCall> {
    let decoded = pieces::decode_header(&payload, Header::decode);
    let (header, at) = decoded.map_err(|error| BadCall {
        answer: error.answer(Role::Responder).map(Answer::V1),
        reason: error.to_string(),
    })?;
    pieces::advance(&mut payload, at);
    let (xid, requested) = (header.xid, header.credits);
    let bad = |violation: Violation| BadCall {
        answer: rpcrdma_v1::Answer::to_violation(&violation, xid, Role::Responder).map(Answer::V1),
        reason: violation.to_string(),
    };
    let handle = match &header.body {
        Body::Msg(chunks) | Body::NoMsg(chunks) => preferred_handle(chunks),
        Body::Error(_) => None,
    };
    let chunks = check_call(header, pieces::length(&payload), max_call).map_err(bad)?;
    let message = Message::without_items(payload);
    if chunks.payload.is_none() {
        check_xid(xid, &message).map_err(bad)?;
    }
    Ok(FromRequester {
        xid,
        requested,
        chunks,
        handle,
        payload: message.into_payload(),
    })
}
