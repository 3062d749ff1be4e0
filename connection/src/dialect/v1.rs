//! Version 1 (RFC 8166).

use bytes::{Bytes, BytesMut};
use onc_rpc::{Message, Segments, put_words, total_len};
use rpcrdma_chunks::{Direction, Side, proc};
use rpcrdma_extension::{DuplicateNumber, EndConfig, Extension};
use rpcrdma_negotiation::{Beginning, Negotiable, Recognition, Version};
use rpcrdma_v1::{
    Answer, Body, Chunks, ErrorBody, Header, Role, VERSION, Violation, check_call, check_xid,
    limits,
};
use transfer_plan::ChunkCounts;

use super::v1_direction::direction;
use super::{
    BadMessage, BadReply, CallHeader, Dialect, ErrorMessage, Incoming, Outgoing, PeerError, Plain,
    Receiver, ReplyBody, ReplyHeader, Session, chunks_len, pieces,
};

/// Version 1 (RFC 8166).
#[derive(Clone, Copy, Debug)]
pub struct VersionOne;

impl Negotiable for VersionOne {
    fn version(&self) -> Version {
        Version::ONE
    }

    /// Messages that are too short are discarded (section 4.5), and so are errors.
    fn recognize_first(&self, first: &Beginning<'_>) -> Recognition {
        let is_call = !first.is_error() && first.len() >= limits::MIN_HEADER_LEN;
        match first.fixed().version == VERSION && is_call {
            true => Recognition::Mine,
            false => Recognition::No,
        }
    }
}

impl Dialect for VersionOne {
    fn header_len(&self) -> fn(&ChunkCounts) -> u64 {
        |chunks| limits::MIN_HEADER_LEN as u64 + chunks_len(chunks)
    }

    #[inline]
    fn encode_plain(&self, out: &mut BytesMut, _: Direction, header: Plain) {
        let Plain { xid, credits } = header;
        put_words(out, [xid, VERSION, credits, proc::MSG, 0, 0, 0]);
    }

    fn encode(&self, out: &mut BytesMut, header: Outgoing) -> Chunks {
        let body = match header.inline {
            true => Body::Msg(header.chunks),
            false => Body::NoMsg(header.chunks),
        };
        let header = Header {
            xid: header.xid,
            credits: header.credits,
            body,
        };
        header.encode_into(out);
        match header.body {
            Body::Msg(chunks) | Body::NoMsg(chunks) => chunks,
            Body::Error(_) => Chunks::default(),
        }
    }

    fn encode_error(&self, error: &ErrorMessage, credits: u32) -> Bytes {
        let answer = Answer {
            xid: error.xid,
            version: error.version,
            error: match error.error {
                PeerError::Version { low, high } => ErrorBody::Version { low, high },
                // Version 1 has no optional operations.
                _ => ErrorBody::Chunk,
            },
        };
        answer.encode(credits)
    }

    fn session(
        &self,
        _: &EndConfig<'_>,
        _: Vec<Box<dyn Extension>>,
        _: u32,
    ) -> Result<Box<dyn Session>, DuplicateNumber> {
        Ok(Box::new(*self))
    }

    fn check_payload(&self, xid: u32, _: Direction, message: &Message) -> Result<(), BadReply> {
        check_xid(xid, message).map_err(|violation| BadReply::Payload(violation.to_string()))
    }
}

/// Version 1 keeps no state of a connection.
impl Session for VersionOne {
    fn decode(&mut self, mut message: Segments, receiver: &Receiver) -> Incoming {
        match destination(&message, receiver) {
            Ok(Direction::Call) => match Plain::take_from(&mut message, VERSION, receiver.max_call)
            {
                Some(plain) => Incoming::Plain(Direction::Call, plain, message),
                None => checked_call(message, receiver.max_call),
            },
            Ok(Direction::Reply) => match Plain::take_from(&mut message, VERSION, u64::MAX) {
                Some(plain) => Incoming::Plain(Direction::Reply, plain, message),
                None => decoded_reply(message),
            },
            Err(reason) => discarded(Direction::Reply, reason),
        }
    }
}

/// Returns the direction of a message, which decides whether this end's responder (a call) or
/// requester (a reply) handles it. The header does not contain it, so a server that makes no calls
/// treats every message as a call, and its responder rejects any other.
fn destination(message: &Segments, receiver: &Receiver) -> Result<Direction, &'static str> {
    if receiver.side == Side::Server {
        let is_reply = receiver.makes_calls && direction(message) == Some(Direction::Reply);
        return Ok(match is_reply {
            true => Direction::Reply,
            false => Direction::Call,
        });
    }
    match direction(message) {
        Some(Direction::Call) if !receiver.takes_calls => {
            Err("a call from the server, which was not told that any are taken")
        }
        Some(direction) => Ok(direction),
        // Its credits may be asked for or granted, so they count for neither (RFC 8167, section
        // 4.1).
        None => Err("a message that is neither a call nor a reply"),
    }
}

fn discarded(direction: Direction, reason: impl ToString) -> Incoming {
    let bad = BadMessage {
        answer: None,
        reason: reason.to_string(),
    };
    Incoming::Bad(direction, bad)
}

fn checked_call(mut payload: Segments, max_call: u64) -> Incoming {
    let refused = |answer: Option<Answer>, reason: String| {
        let answer = answer.map(error_message);
        Incoming::Bad(Direction::Call, BadMessage { answer, reason })
    };
    let (header, at) = match pieces::decode_header(&payload, Header::decode) {
        Ok(decoded) => decoded,
        Err(error) => return refused(error.answer(Role::Responder), error.to_string()),
    };
    pieces::advance(&mut payload, at);
    let (xid, requested) = (header.xid, header.credits);
    let violated = |violation: Violation| {
        let answer = Answer::to_violation(&violation, xid, Role::Responder);
        refused(answer, violation.to_string())
    };
    let handle = match &header.body {
        Body::Msg(chunks) | Body::NoMsg(chunks) => CallHeader::preferred_handle(chunks),
        Body::Error(_) => None,
    };
    let chunks = match check_call(header, total_len(&payload), max_call) {
        Ok(chunks) => chunks,
        Err(violation) => return violated(violation),
    };
    let message = Message::without_items(payload);
    // A payload in a chunk is checked when it has been fetched.
    if chunks.payload.is_none()
        && let Err(violation) = check_xid(xid, &message)
    {
        return violated(violation);
    }
    Incoming::Call(CallHeader {
        xid,
        requested,
        chunks,
        handle,
        payload: message.into_payload(),
    })
}

fn decoded_reply(mut payload: Segments) -> Incoming {
    let (header, at) = match pieces::decode_header(&payload, Header::decode) {
        Ok(decoded) => decoded,
        Err(error) => return discarded(Direction::Reply, error),
    };
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
    Incoming::Reply(ReplyHeader {
        xid: header.xid,
        granted: header.credits,
        body,
        payload,
    })
}

fn error_message(answer: Answer) -> ErrorMessage {
    ErrorMessage {
        xid: answer.xid,
        version: answer.version,
        error: match answer.error {
            ErrorBody::Version { low, high } => PeerError::Version { low, high },
            ErrorBody::Chunk => PeerError::Chunk,
        },
    }
}
