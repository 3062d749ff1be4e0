//! Version 2 of 2016 (draft-cel-nfsv4-rpcrdma-version-two-01).
//!
//! Each header is decoded once and passed to the extensions first, which handle their own
//! operations.

use bytes::{Bytes, BytesMut};
use onc_rpc::{Message, Segments, put_words, total_len};
use rpcrdma_chunks::proc;
use rpcrdma_extension::{
    DuplicateNumber, EndConfig, Extension, Extensions, Heard, Kind, OutgoingMessage, Refusal,
};
use rpcrdma_negotiation::{Beginning, Negotiable, Recognition, Version};
use rpcrdma_v2::operations::{self, Routed};
use rpcrdma_v2::{
    Answer, Body, Chunks, Direction, ErrorBody, Header, OPTIONAL, Role, VERSION, Violation,
    check_call, check_payload, limits,
};
use transfer_plan::ChunkCounts;

use super::{
    BadMessage, BadReply, CallHeader, Dialect, ErrorMessage, ExtensionHeader, Incoming, Outgoing,
    PeerError, Plain, Receiver, ReplyBody, ReplyHeader, Session, chunks_len, incoming_of_extension,
    pieces,
};

/// Version 2 of 2016 (draft-cel-nfsv4-rpcrdma-version-two-01).
#[derive(Clone, Copy, Debug)]
pub struct VersionTwo;

/// RDMA2_ERR_BAD_HEADER. In version-two-07 this is the number of RDMA2_ERR_BAD_XDR, which is no
/// answer to a valid first message.
const BAD_HEADER: u32 = 2;

impl Negotiable for VersionTwo {
    fn version(&self) -> Version {
        Version::TWO
    }

    fn recognize_first(&self, first: &Beginning<'_>) -> Recognition {
        let is_whole = !first.is_error() && first.len() >= limits::MIN_HEADER_LEN;
        match is_whole && has_header_of_2016(first) {
            true => Recognition::Mine,
            false => Recognition::No,
        }
    }

    /// After this error, a client of version-two-07 may send a message of this version on the same
    /// connection, which then counts as the first.
    fn refusal(&self, first: &Beginning<'_>) -> Option<u32> {
        let answers = !first.is_error() && first.len() >= limits::MIN_HEADER_LEN;
        answers.then_some(BAD_HEADER)
    }

    fn is_asked_for(&self) -> bool {
        true
    }

    /// An error tells by its code: a server answers a header type that it does not know with
    /// RDMA2_ERR_BAD_HEADER, one of version-two-07 with RDMA2_ERR_INVAL_HTYPE.
    fn recognize_answer(&self, answer: &Beginning<'_>, to_question: bool) -> Recognition {
        let code = answer.error_code().filter(|_| to_question);
        match answer.is_error() {
            _ if answer.fixed().version != VERSION => Recognition::No,
            true if code == Some(BAD_HEADER) => Recognition::Mine,
            true => Recognition::Maybe,
            false if has_header_of_2016(answer) => Recognition::Mine,
            false => Recognition::No,
        }
    }
}

/// Returns whether a message that is no error has a header type of 2016. The procedures of 2016 are
/// 0, 1, 4 and 5, the header types of version-two-07 are 4 to 13 and those of its extensions. Both
/// have 5: RDMA2_OPTIONAL of 2016 has 28 bytes at least, RDMA2_GRANT of version-two-07 has 16.
pub(super) fn has_header_of_2016(message: &Beginning<'_>) -> bool {
    let fixed = message.fixed();
    fixed.version == VERSION
        && match fixed.procedure {
            OPTIONAL => message.len() >= limits::MIN_HEADER_LEN,
            procedure => procedure < OPTIONAL,
        }
}

impl Dialect for VersionTwo {
    fn has_extensions(&self) -> bool {
        true
    }

    fn header_len(&self) -> fn(&ChunkCounts) -> u64 {
        |chunks| limits::NO_CHUNKS_LEN as u64 + chunks_len(chunks)
    }

    #[inline]
    fn encode_plain(&self, out: &mut BytesMut, direction: Direction, header: Plain) {
        let Plain { xid, credits } = header;
        let direction = direction.number();
        put_words(out, [xid, VERSION, credits, proc::MSG, direction, 0, 0, 0]);
    }

    fn encode(&self, out: &mut BytesMut, header: Outgoing) -> Chunks {
        let body = match header.inline {
            true => Body::Msg(header.direction, header.chunks),
            false => Body::NoMsg(header.direction, header.chunks),
        };
        let header = Header {
            xid: header.xid,
            credits: header.credits,
            body,
        };
        header.encode_into(out);
        match header.body {
            Body::Msg(_, chunks) | Body::NoMsg(_, chunks) => chunks,
            Body::Error(_) | Body::Optional(_) => Chunks::default(),
        }
    }

    fn encode_error(&self, error: &ErrorMessage, credits: u32) -> Bytes {
        let answer = Answer {
            xid: error.xid,
            version: error.version,
            error: error.error.into(),
        };
        answer.encode(credits)
    }

    fn error_name(&self, error: PeerError) -> String {
        ErrorBody::from(error).to_string()
    }

    fn session(
        &self,
        end: &EndConfig<'_>,
        extensions: Vec<Box<dyn Extension>>,
        first_xid: u32,
    ) -> Result<Box<dyn Session>, DuplicateNumber> {
        let extensions = Extensions::new(end.side, first_xid, extensions)?;
        Ok(Box::new(VersionTwoSession { extensions }))
    }

    fn encode_extension(&self, out: &mut BytesMut, header: ExtensionHeader) {
        let message = OutgoingMessage {
            xid: header.xid,
            direction: header.direction,
            number: header.number,
            fields: header.fields,
        };
        operations::encode_header(&message, header.credits, out);
    }

    fn check_payload(
        &self,
        xid: u32,
        direction: Direction,
        message: &Message,
    ) -> Result<(), BadReply> {
        check_payload(xid, direction, message)
            .map_err(|violation| BadReply::Payload(violation.to_string()))
    }
}

/// Version 2 on one connection, with these extensions.
#[derive(Debug)]
struct VersionTwoSession {
    extensions: Extensions,
}

impl Session for VersionTwoSession {
    fn decode(&mut self, mut message: Segments, receiver: &Receiver) -> Incoming {
        if let Some((direction, plain)) = Plain::take_v2(&mut message, receiver) {
            let heard = Heard {
                xid: plain.xid,
                direction,
                credits: plain.credits,
                kind: Kind::Base(proc::MSG),
            };
            self.extensions.connected(Some(heard));
            operations::route_base(&mut self.extensions, &heard);
            return Incoming::Plain(direction, plain, message);
        }
        // Extensions learn that the connection begins before they see any message: the client's first one
        // begins it at a server. Later calls have no effect.
        if let Some(operation) = operations::peek(&message) {
            self.extensions.connected(Some(operation.heard()));
            let done = self.extensions.received(&operation);
            return incoming_of_extension(&operation, done, VERSION);
        }
        let (header, at) = match pieces::decode_header(&message, Header::decode) {
            Ok(decoded) => decoded,
            Err(error) => {
                // A header that cannot be read has no direction. The message counts as one of the
                // usual direction, in which a server gets calls.
                let direction = match receiver.side.role(None) {
                    Role::Requester => Direction::Reply,
                    Role::Responder => Direction::Call,
                };
                return bad_message(direction, error.answer(receiver.side), error);
            }
        };
        let direction = header.direction();
        self.extensions.connected(Some(operations::heard(&header)));
        match operations::route(&mut self.extensions, &header, &message, at) {
            Routed::Base => {}
            Routed::Taken => {
                // The credits of an error do not count (version-two-01, section 5).
                let is_error = matches!(header.body, Body::Error(_));
                return Incoming::Handled(direction, (!is_error).then_some(header.credits));
            }
            Routed::Refused(error) => {
                let error = ErrorBody::from(error);
                let (xid, version) = (header.xid, VERSION);
                return bad_message(
                    direction,
                    Some(Answer {
                        xid,
                        version,
                        error,
                    }),
                    error,
                );
            }
            Routed::Discarded(Refusal::Unusable(reason)) if direction == Direction::Reply => {
                let (xid, reason) = (header.xid, reason.to_owned());
                return Incoming::Unusable { xid, reason };
            }
            Routed::Discarded(refusal) => return bad_message(direction, None, refusal),
        }
        pieces::advance(&mut message, at);
        match direction {
            Direction::Call if !receiver.takes_calls => {
                // Servers are told by a characteristic (xcharext-02, section 3.3).
                let reason = "a call from the server, which was told that none are taken";
                bad_message(direction, Some(Answer::bad_header(header.xid)), reason)
            }
            Direction::Reply if !receiver.makes_calls => {
                bad_message(direction, None, "a reply to a server that makes no calls")
            }
            Direction::Call => checked_call(header, message, receiver.max_call),
            Direction::Reply => decoded_reply(header, message),
        }
    }

    fn begin(&mut self) {
        self.extensions.connected(None);
    }

    fn refuse_truncated(&mut self, beginning: &Segments) -> bool {
        let decoded = pieces::decode_header(beginning, Header::decode);
        decoded.is_ok_and(|(header, at)| {
            let operation = operations::received(&header, beginning, at);
            operation.is_some_and(|operation| self.extensions.refuse_truncated(&operation))
        })
    }

    fn refuse_parts(&mut self) -> bool {
        self.extensions.refuse_parts()
    }

    fn extensions(&self) -> Option<&Extensions> {
        Some(&self.extensions)
    }

    fn extensions_mut(&mut self) -> Option<&mut Extensions> {
        Some(&mut self.extensions)
    }
}

fn bad_message(direction: Direction, answer: Option<Answer>, reason: impl ToString) -> Incoming {
    let bad = BadMessage {
        answer: answer.map(error_message),
        reason: reason.to_string(),
    };
    Incoming::Bad(direction, bad)
}

fn checked_call(header: Header, payload: Segments, max_call: u64) -> Incoming {
    let (xid, requested) = (header.xid, header.credits);
    let violated = |violation: Violation| {
        let answer = Answer::to_violation(&violation, xid, Role::Responder);
        bad_message(Direction::Call, answer, violation)
    };
    let handle = header.chunks().and_then(CallHeader::preferred_handle);
    let chunks = match check_call(header, total_len(&payload), max_call) {
        Ok(chunks) => chunks,
        Err(violation) => return violated(violation),
    };
    let message = Message::without_items(payload);
    // A payload in a chunk is checked when it has been fetched.
    if chunks.payload.is_none()
        && let Err(violation) = check_payload(xid, Direction::Call, &message)
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

fn decoded_reply(header: Header, payload: Segments) -> Incoming {
    let body = match header.body {
        Body::Msg(_, chunks) => ReplyBody::Reply {
            chunks,
            long: false,
        },
        Body::NoMsg(_, chunks) => ReplyBody::Reply { chunks, long: true },
        Body::Error(error) => ReplyBody::Error(error.into()),
        // Operations never come here: no extension leaves them to the base.
        Body::Optional(_) => return bad_message(Direction::Reply, None, "not a reply"),
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
        error: answer.error.into(),
    }
}
