//! Version 2 (draft-cel-nfsv4-rpcrdma-version-two-01).
//!
//! A connection of this version decodes each header once and shows it to the extensions first; what
//! is left for the base comes here with its header.

use bytes::BytesMut;
use conveyance::ChunkCounts;
use onc_rpc::{Message, Segments};
use rpcrdma_negotiation::Version;
use rpcrdma_v2::{
    Body, Chunks, Direction, ErrorBody, Header, HeaderError, Role, Side, Violation, check_call,
    check_payload, limits,
};

use super::{
    Answer, BadCall, BadReply, FromRequester, FromResponder, PeerError, ReplyBody, chunks_len,
    pieces, preferred_handle,
};

pub(super) fn header_len(chunks: &ChunkCounts) -> u64 {
    limits::NO_CHUNKS_LEN as u64 + chunks_len(chunks)
}

pub(super) fn encode(
    room: &mut BytesMut,
    xid: u32,
    credits: u32,
    direction: Direction,
    inline: bool,
    chunks: Chunks,
) -> Chunks {
    let body = match inline {
        true => Body::Msg(direction, chunks),
        false => Body::NoMsg(direction, chunks),
    };
    let header = Header { xid, credits, body };
    header.encode_into(room);
    match header.body {
        Body::Msg(_, chunks) | Body::NoMsg(_, chunks) => chunks,
        Body::Error(_) | Body::Optional(_) => Chunks::default(),
    }
}

pub(super) fn from_responder(mut payload: Segments) -> Result<FromResponder, BadReply> {
    let decoded = pieces::decode_header(&payload, Header::decode);
    let (header, at) = decoded.map_err(|error| BadReply::Header(error.to_string()))?;
    pieces::advance(&mut payload, at);
    reply(header, payload)
}

/// A message for the requester, whose header is decoded.
///
/// # Errors
/// It is neither a reply nor an error.
pub(crate) fn reply(header: Header, payload: Segments) -> Result<FromResponder, BadReply> {
    let body = match header.body {
        Body::Msg(Direction::Reply, chunks) => ReplyBody::Reply {
            chunks,
            long: false,
        },
        Body::NoMsg(Direction::Reply, chunks) => ReplyBody::Reply { chunks, long: true },
        Body::Error(error) => ReplyBody::Error(match error {
            ErrorBody::Version { low, high } => PeerError::Version { low, high },
            ErrorBody::BadHeader => PeerError::Chunk,
            ErrorBody::InvalidOption => PeerError::Option,
        }),
        Body::Msg(Direction::Call, _) | Body::NoMsg(Direction::Call, _) | Body::Optional(_) => {
            return Err(BadReply::Header("not a reply".to_owned()));
        }
    };
    Ok(FromResponder {
        version: Version::Two,
        xid: header.xid,
        granted: header.credits,
        body,
        payload,
    })
}

pub(super) fn from_requester(
    mut payload: Segments,
    max_call: u64,
) -> Result<FromRequester, BadCall> {
    let decoded = pieces::decode_header(&payload, Header::decode);
    let (header, at) = decoded.map_err(|error| bad_header(&error, Side::Server))?;
    pieces::advance(&mut payload, at);
    call(header, payload, max_call)
}

/// What is done about a header that cannot be decoded, at this end of the connection.
pub(crate) fn bad_header(error: &HeaderError, side: Side) -> BadCall {
    BadCall {
        answer: error.answer(side).map(Answer::V2),
        reason: error.to_string(),
    }
}

/// A message for the responder, whose header is decoded.
///
/// # Errors
/// [`BadCall`].
pub(crate) fn call(
    header: Header,
    payload: Segments,
    max_call: u64,
) -> Result<FromRequester, BadCall> {
    let (xid, requested) = (header.xid, header.credits);
    let bad = |violation: Violation| BadCall {
        answer: rpcrdma_v2::Answer::to_violation(&violation, xid, Role::Responder).map(Answer::V2),
        reason: violation.to_string(),
    };
    let handle = header.chunks().and_then(preferred_handle);
    let chunks = check_call(header, pieces::length(&payload), max_call).map_err(bad)?;
    let message = Message::without_items(payload);
    if chunks.payload.is_none() {
        check_payload(xid, Direction::Call, &message).map_err(bad)?;
    }
    Ok(FromRequester {
        xid,
        requested,
        chunks,
        handle,
        payload: message.into_payload(),
    })
}
