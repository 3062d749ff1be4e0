//! Version 2 of the working group (draft-ietf-nfsv4-rpcrdma-version-two-07).
//!
//! The parts of a continued message are joined here, so the rest of the crate sees one message. The
//! messages that it sends are divided by the transfer mode of [`Base`].

use bytes::{Bytes, BytesMut};
use onc_rpc::{Message, Position, Segments, put_words};
use rpcrdma_chunks::{Chunks, Direction, Side, WriteChunk, unused};
use rpcrdma_ext_wg_ddp::Placement;
use rpcrdma_extension::{
    Extension, Extensions, Fields, Heard, Kind, Property as Announced, ReceivedMessage,
};
use rpcrdma_negotiation::Version;
use rpcrdma_v2_wg::base::{Base, Config as BaseConfig, Refused, preferred_handle};
use rpcrdma_v2_wg::limits::{CALL_INLINE_LEN, PREFIX_LEN};
use rpcrdma_v2_wg::{
    Answer, Body, DecodeError, EXPERIMENTAL, ErrorBody, Header, HeaderError, Prefix, Properties,
    Property, ReverseSupport, VERSION, check_call, check_payload, header_type,
};
use transfer_plan::ChunkCounts;

use super::{
    BadMessage, BadReply, CallHeader, Dialect, ErrorMessage, Incoming, OperationHeader,
    OperationRouter, Operations, Outgoing, PeerError, Plain, Receiver, ReplyBody, ReplyHeader,
    chunks_len, pieces,
};
use crate::flow::{Accounting, CreditFields, ReceivedCredit};
use crate::{CallbackOptions, Config};

/// The maximum number of segments in a header that this end accepts (section 5.2.4).
pub(crate) const MAX_SEGMENTS: u32 = 256;

/// Version 2 of the working group (draft-ietf-nfsv4-rpcrdma-version-two-07).
#[derive(Clone, Copy, Debug)]
pub struct VersionTwoWg;

impl Dialect for VersionTwoWg {
    fn version(&self) -> Version {
        Version::TwoWg
    }

    /// Returns a function for the length of the header of a call. The call chunk of an external
    /// call is a list of its own, and the end of this list takes one word. Replies have shorter
    /// headers, by three words if inline and two if external.
    fn header_len(&self) -> fn(&ChunkCounts) -> u64 {
        |chunks| {
            let call_chunk = if chunks.position_zero { 4 } else { 0 };
            CALL_INLINE_LEN as u64 + chunks_len(chunks) + call_chunk
        }
    }

    fn has_call_chunk(&self) -> bool {
        true
    }

    #[inline]
    fn encode_plain(&self, out: &mut BytesMut, direction: Direction, header: Plain) {
        let Plain { xid, credits } = header;
        match direction {
            Direction::Call => {
                let htype = header_type::CALL_INLINE;
                put_words(out, [xid, VERSION, credits, htype, 0, 0, 0, 0]);
            }
            Direction::Reply => {
                put_words(out, [xid, VERSION, credits, header_type::REPLY_INLINE, 0]);
            }
        }
    }

    fn encode(&self, out: &mut BytesMut, header: Outgoing) -> Chunks {
        let external = !header.inline;
        let mut chunks = header.chunks;
        let body = match header.direction {
            Direction::Call => {
                // The call chunk comes first, and positions never decrease (section 4.5.1.1).
                chunks.reads.sort_by_key(|read| read.position);
                let offered = header.may_be_invalidated.then(|| preferred_handle(&chunks));
                Body::Call {
                    external,
                    inv_handle: offered.flatten().unwrap_or_default(),
                    chunks,
                }
            }
            Direction::Reply => {
                if !external {
                    // An inline reply cannot return a reply chunk, which is unused then.
                    chunks.reply = None;
                }
                Body::Reply { external, chunks }
            }
        };
        let header = Header {
            xid: header.xid,
            credit: header.credits,
            body,
        };
        header.encode_into(out);
        match header.body {
            Body::Call { chunks, .. } | Body::Reply { chunks, .. } => chunks,
            _ => Chunks::default(),
        }
    }

    fn encode_error(&self, error: &ErrorMessage, credits: u32) -> Bytes {
        let answer = Answer {
            xid: error.xid,
            version: error.version,
            error: error_body(error.error),
        };
        answer.encode(credits)
    }

    /// Appendix A.1 requires an RDMA2_ERROR, but defines no error code for this.
    /// RDMA2_ERR_READ_CHUNKS is the nearest: it says how many Read chunks "the Responder can
    /// process", and zero if it "cannot handle any Read chunks for a request" (section 7.3.1;
    /// drafts/errata-07.md, 67).
    fn too_many_reduced(&self, max: u32) -> Option<PeerError> {
        Some(PeerError::ReadChunks { max })
    }

    fn error_name(&self, error: PeerError) -> String {
        error_body(error).to_string()
    }

    /// A result may be inline although the call offers a write chunk for it: a reply that does not
    /// fit the offered chunks is continued (section 6.6.4).
    fn result_position(&self) -> Position {
        Position::InOrderOrInline
    }

    fn bad_replies_end_calls(&self) -> bool {
        true
    }

    /// Returns whether a refused call is sent again in another transfer mode. The new call has the
    /// XID of the old one. A continued call is therefore sent again only if the errors about its
    /// messages can be counted (drafts/errata-07.md, 56). They can if the peer does not know
    /// RDMA2_CALL_MIDDLE, because such a peer answers every message of the call with an error.
    fn sends_again(&self, opttype: u32, error: PeerError) -> bool {
        match (opttype, error) {
            (header_type::CALL_MIDDLE, error) => error == PeerError::Option,
            // Every peer must know this type. A peer that does not know it has no other type in
            // which the call could be sent.
            (header_type::CALL_INLINE, PeerError::Option) => false,
            (_, error) => matches!(error, PeerError::Option | PeerError::Chunk),
        }
    }

    /// Chunks that are empty, and chunks that are missing at the end of the list, are not used
    /// (drafts/errata-07.md).
    fn complete_returned(&self, returned: &mut Chunks, offered: &Chunks) {
        let missing = offered.writes.len().saturating_sub(returned.writes.len());
        let missing = std::iter::repeat_n(WriteChunk::new(), missing);
        returned.writes.extend(missing);
        for (returned, offered) in returned.writes.iter_mut().zip(&offered.writes) {
            if returned.is_empty() {
                *returned = unused(offered);
            }
        }
    }

    fn accounting(&self) -> Accounting<'_> {
        Accounting::Messages(self)
    }

    fn extensions_carry_callbacks(&self) -> bool {
        true
    }

    fn calls_offer_handles(&self) -> bool {
        true
    }

    fn decode(
        &self,
        mut message: Segments,
        receiver: &Receiver,
        operations: Option<&mut OperationRouter>,
    ) -> Incoming {
        let Some(operations) = operations else {
            return bad(
                Direction::Call,
                None,
                "a connection without its base protocol",
            );
        };
        operations.begin(None);
        if let Some(routed) = extension_message(&message, receiver, operations) {
            return routed;
        }
        let (mut header, at) = match pieces::decode_header(&message, Header::decode) {
            Ok(decoded) => decoded,
            Err(error) => return undecodable(&message, &error, receiver, operations),
        };
        let (xid, direction) = (header.xid, header.body.direction());
        let Some(base) = operations.extensions.find_mut::<Base>() else {
            return bad(
                Direction::Call,
                None,
                "a connection without its base protocol",
            );
        };
        // A message of an extension may have several parts as well.
        let inside = operations.collecting && !base.is_collecting();
        let passes = matches!(header.body, Body::Grant | Body::Error(_));
        let last = !matches!(header.body, Body::Middle { .. });
        if inside && !passes || base.admit(&header.body).is_err() {
            return refuse_misplaced(&header.body, xid, operations);
        }
        match direction {
            Some(Direction::Call) if !receiver.takes_calls => {
                // A client tells its server by a property (section 5.2.5).
                let answer = Answer::new(xid, ErrorBody::InvalidHeaderType);
                let reason = "a call from the server, which was told that none are taken";
                return bad(Direction::Call, Some(answer), reason);
            }
            Some(Direction::Reply) if !receiver.makes_calls => {
                let reason = "a reply to a server that makes no calls";
                return bad(Direction::Reply, None, reason);
            }
            _ => {}
        }
        let reverse = base.properties().reverse;
        if receiver.side == Side::Client
            && direction == Some(Direction::Call)
            && let Err(error) = limit_to_announced(&mut header.body, reverse)
        {
            // It may be the last part of a call whose other parts are here.
            lost_part(operations, direction, xid, last);
            let reason = "a call beyond the support that was announced";
            return refuse(Direction::Call, xid, Refused::Answer(error, reason));
        }
        match header.body {
            Body::Grant => Incoming::Operation(Direction::Call, None),
            Body::Error(error) => failed(xid, header.credit, error, operations),
            Body::Properties { last, properties } => {
                let taken = take_properties(last, properties, &mut operations.extensions);
                operations.collecting = operations.extensions.is_collecting();
                match taken {
                    Err(error) => {
                        let answer = Answer::new(xid, error);
                        bad(Direction::Call, Some(answer), error)
                    }
                    Ok(()) => Incoming::Operation(Direction::Call, None),
                }
            }
            Body::Middle {
                direction,
                remaining,
            } => {
                pieces::advance(&mut message, at);
                let begins = !base.is_collecting();
                let collected = base.collect(direction, xid, remaining, message);
                operations.collecting = operations.extensions.is_collecting();
                match collected {
                    Ok(()) => {
                        if begins {
                            forget_refused(operations);
                        }
                        Incoming::Operation(direction, None)
                    }
                    Err(refused) => refuse(direction, xid, refused),
                }
            }
            Body::Call { external, .. } | Body::Reply { external, .. } => {
                pieces::advance(&mut message, at);
                let direction = direction.unwrap_or(Direction::Call);
                let mut payload = message;
                let begins = !base.is_collecting();
                if !external {
                    match base.finish(direction, xid, payload) {
                        Ok(finished) => payload = finished.payload,
                        Err(refused) => {
                            operations.collecting = operations.extensions.is_collecting();
                            return refuse(direction, xid, refused);
                        }
                    }
                }
                let most = base.properties().segment_count;
                if begins {
                    forget_refused(operations);
                }
                if operations.collecting {
                    operations.collecting = operations.extensions.is_collecting();
                }
                rpc_message(header, direction, payload, receiver, most)
            }
        }
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

    fn operations(&self) -> Option<&dyn Operations> {
        Some(self)
    }
}

impl CreditFields for VersionTwoWg {
    fn credit(&self, message: &Segments) -> Option<ReceivedCredit> {
        let prefix = prefix(message).filter(|prefix| prefix.version == VERSION)?;
        Some(ReceivedCredit {
            credit: prefix.credit,
            only_grants: prefix.header_type == header_type::GRANT,
        })
    }

    fn encode_grant(&self, credit: u32) -> Bytes {
        let body = Body::Grant;
        // Section 6.3.2: the XID is zero.
        Header {
            xid: 0,
            credit,
            body,
        }
        .encode()
    }

    fn call_type(&self, message: &Segments) -> Option<(u32, u32)> {
        let Prefix {
            xid, header_type, ..
        } = prefix(message)?;
        let is_call = matches!(
            header_type,
            header_type::CALL_EXTERNAL | header_type::CALL_MIDDLE | header_type::CALL_INLINE
        );
        is_call.then_some((xid, header_type))
    }

    fn with_credit(&self, message: &Bytes, credit: u32) -> Option<(Bytes, usize)> {
        let prefix = Prefix::peek(message)?;
        let mut out = BytesMut::with_capacity(PREFIX_LEN);
        let Prefix {
            xid,
            version,
            header_type,
            ..
        } = prefix;
        put_words(&mut out, [xid, version, credit, header_type]);
        Some((out.freeze(), PREFIX_LEN))
    }
}

impl Operations for VersionTwoWg {
    fn extensions(&self, config: &Config) -> Vec<Box<dyn Extension>> {
        let mut list: Vec<Box<dyn Extension>> = vec![Box::new(Base::new(base(config)))];
        list.extend(config.options.protocols.make(Version::TwoWg, &config.end()));
        list
    }

    /// The header types tell the direction.
    fn encode_operation(&self, out: &mut BytesMut, header: OperationHeader) {
        let OperationHeader {
            xid,
            credits,
            number,
            fields,
            ..
        } = header;
        put_words(out, [xid, VERSION, credits, number]);
        out.extend_from_slice(&fields);
    }
}

/// Returns the configuration of the base protocol.
fn base(config: &Config) -> BaseConfig {
    let options = &config.options;
    let reverse = match options.callbacks {
        _ if config.role.side() == Side::Server => ReverseSupport::None,
        // A short receive queue can leave no room for callbacks.
        _ if config.callbacks == 0 => ReverseSupport::None,
        CallbackOptions { credits: 0, .. } => ReverseSupport::None,
        CallbackOptions { chunks: false, .. } => ReverseSupport::Continued,
        CallbackOptions { chunks: true, .. } => ReverseSupport::General,
    };
    BaseConfig {
        side: config.role.side(),
        properties: Properties {
            send_size: config.max_send(),
            receive_size: config.receives.len(),
            segment_size: u32::try_from(config.max_segment).unwrap_or(u32::MAX),
            segment_count: MAX_SEGMENTS,
            reverse,
            host_auth: None,
        },
        offer_invalidation: options.remote_invalidation,
        can_invalidate: options.remote_invalidation,
        max_message: u64::from(options.max_message),
    }
}

/// Checks that a call to a client, or a part of one, needs no more support than the client has
/// announced (sections 4.6.4 and 5.2.5). A reply chunk alone is no error: it stays unused.
///
/// # Errors
/// The error to answer with.
fn limit_to_announced(body: &mut Body, announced: ReverseSupport) -> Result<(), ErrorBody> {
    if announced == ReverseSupport::General {
        return Ok(());
    }
    match body {
        Body::Middle { .. } if announced < ReverseSupport::Continued => {
            Err(ErrorBody::InvalidHeaderType)
        }
        // The call chunk of an external call is a read chunk, too (section 4.5.1.2).
        Body::Call { chunks, .. } if !chunks.reads.is_empty() => {
            Err(ErrorBody::ReadChunks { max: 0 })
        }
        Body::Call { chunks, .. } if !chunks.writes.is_empty() => {
            Err(ErrorBody::WriteChunks { max: 0 })
        }
        Body::Call { chunks, .. } => {
            chunks.reply = None;
            Ok(())
        }
        _ => Ok(()),
    }
}

/// Takes the properties of a message, of the base protocol and of extensions.
///
/// # Errors
/// The error to answer with. Nothing of the message has been applied then (section 7.2.2).
fn take_properties(
    last: bool,
    properties: Vec<Property>,
    extensions: &mut Extensions,
) -> Result<(), ErrorBody> {
    let all_valid = properties.iter().all(|Property { id, value }| {
        let (id, value) = (*id, value.clone());
        extensions.is_valid(&Announced { id, value })
    });
    let taken = extensions.with(|base: &mut Base, out| {
        if all_valid || base.peer().is_some() {
            return base.take_properties(last, properties, out);
        }
        base.lost_properties(last, out);
        Err(ErrorBody::BadPropertyValue)
    });
    taken.unwrap_or(Ok(()))
}

/// Passes a message of an extension to it. Returns `None` for messages of the base protocol.
fn extension_message(
    message: &Segments,
    receiver: &Receiver,
    operations: &mut OperationRouter,
) -> Option<Incoming> {
    let prefix = prefix(message).filter(|prefix| prefix.version == VERSION)?;
    let Prefix {
        xid,
        credit,
        header_type,
        ..
    } = prefix;
    EXPERIMENTAL.contains(&header_type).then_some(())?;
    let known = operations.extensions.direction(header_type);
    let base = operations.extensions.find::<Base>();
    if base.is_some_and(Base::is_collecting) {
        let placement = operations.extensions.find_mut::<Placement>();
        let discards = placement.is_some_and(|it| it.refuse_misplaced(header_type, xid));
        // If the parts are those of a message with this XID, it is given up (section 7.1.4). Its last part, of a type
        // of the base protocol, is still to come.
        lost_part(operations, known, xid, false);
        let reason = "message between the parts of another";
        let refused = match discards {
            true => Refused::Discard,
            false => Refused::Answer(ErrorBody::InvalidContinuation, reason),
        };
        // A message of an unknown direction is answered like a call (section 6.1): its XID need not be that of a
        // call of this end, which it would end as a reply.
        return Some(refuse(known.unwrap_or(Direction::Call), xid, refused));
    }
    let direction = known.unwrap_or(match receiver.side {
        Side::Server => Direction::Call,
        Side::Client => Direction::Reply,
    });
    let received = ReceivedMessage {
        number: header_type,
        xid,
        direction,
        credits: credit,
        message,
        fields: Fields::Open { at: PREFIX_LEN },
    };
    let begins = !operations.collecting;
    let routed = operations.route(&received);
    let placement = operations.extensions.find::<Placement>();
    if begins
        && matches!(routed, Incoming::Operation(..))
        && placement.is_some_and(|it| it.owns(header_type))
    {
        forget_refused(operations);
    }
    Some(routed)
}

/// Returns the prefix of a message, wherever its pieces end.
fn prefix(message: &Segments) -> Option<Prefix> {
    match message.first() {
        Some(first) if first.len() >= PREFIX_LEN => Prefix::peek(first),
        Some(_) => Prefix::peek(&pieces::joined(message)),
        None => None,
    }
}

fn bad(direction: Direction, answer: Option<Answer>, reason: impl ToString) -> Incoming {
    let answer = answer.map(|answer| ErrorMessage {
        xid: answer.xid,
        version: answer.version,
        error: peer_error(answer.error).unwrap_or(PeerError::System),
    });
    let reason = reason.to_string();
    Incoming::Bad(direction, BadMessage { answer, reason })
}

/// Refuses a part of a message. A part of a call is answered with an error. A part of a reply is
/// not answered, although section 6.3.9 requires it, because an error has no direction. The refusal fails the
/// call at this end instead (drafts/errata-07.md, 54).
fn refuse(direction: Direction, xid: u32, refused: Refused) -> Incoming {
    let answer = match (refused, direction) {
        (Refused::Discard, _) => None,
        (Refused::Answer(_, reason), Direction::Reply) => {
            let reason = reason.to_owned();
            return Incoming::Unusable { xid, reason };
        }
        (Refused::Answer(error, _), Direction::Call) => Some(Answer::new(xid, error)),
    };
    bad(direction, answer, refused)
}

/// Refuses a message of the base protocol that stands between the parts of another message, or of the
/// peer's properties. One error answers all parts with its XID, whichever types they have (section
/// 7.1.4).
fn refuse_misplaced(body: &Body, xid: u32, operations: &mut OperationRouter) -> Incoming {
    if let Body::Properties { last, .. } = *body {
        lost_properties(operations, last);
    }
    let base = operations.extensions.find_mut::<Base>();
    let refused = base.map_or(Refused::Discard, |base| base.refuse_misplaced(body, xid));
    let direction = body.direction();
    // If the message that it interrupts has this XID, that is given up as well. The last part of that one is
    // still to come.
    lost_part(operations, direction, xid, false);
    refuse(direction.unwrap_or(Direction::Call), xid, refused)
}

/// Abandons the partly received message with this direction and XID, because one of its parts cannot
/// be used. `last` says that no other part comes.
fn lost_part(operations: &mut OperationRouter, direction: Option<Direction>, xid: u32, last: bool) {
    let Some(direction) = direction else {
        return;
    };
    if let Some(base) = operations.extensions.find_mut::<Base>() {
        base.lost_part(direction, xid, last);
    }
    if let Some(placement) = operations.extensions.find_mut::<Placement>() {
        placement.lost_part(direction, xid);
    }
    operations.collecting = operations.extensions.is_collecting();
}

/// Forgets refused messages of both kinds, because another message begins, of either kind
/// (drafts/errata-07.md, 38).
fn forget_refused(operations: &mut OperationRouter) {
    if let Some(base) = operations.extensions.find_mut::<Base>() {
        base.forget_refused();
    }
    if let Some(placement) = operations.extensions.find_mut::<Placement>() {
        placement.forget_refused();
    }
}

/// Records that a message with properties is refused ([`Base::lost_properties`]). `last` says that it is
/// RDMA2_CONNPROP_FINAL.
fn lost_properties(operations: &mut OperationRouter, last: bool) {
    let base = operations.extensions.find::<Base>();
    // Between the parts of a message of an extension, it begins no exchange: those parts go on.
    let inside = operations.collecting && !base.is_some_and(Base::is_collecting);
    if last || !inside {
        let _ = operations
            .extensions
            .with(|base: &mut Base, out| base.lost_properties(last, out));
    }
    operations.collecting = operations.extensions.is_collecting();
}

/// Handles a message whose header cannot be decoded.
fn undecodable(
    message: &Segments,
    error: &DecodeError,
    receiver: &Receiver,
    operations: &mut OperationRouter,
) -> Incoming {
    if let (Some(xid), HeaderError::Version { version, is_error }) = (error.xid, error.error) {
        // Section 7.1.1 for a version that nobody here speaks, and section 7.1.2 for one that is not this
        // connection's. Whether the message is a call is not known.
        let error = match (1..=VERSION).contains(&version) {
            true => ErrorBody::VersionMismatch,
            false => ErrorBody::Version {
                low: VERSION,
                high: VERSION,
            },
        };
        let answers = receiver.takes_calls && !is_error;
        let answer = answers.then_some(Answer {
            xid,
            version,
            error,
        });
        return bad(Direction::Call, answer, error);
    }
    let prefix = prefix(message).filter(|prefix| prefix.version == VERSION);
    let part_of = prefix.and_then(|prefix| match prefix.header_type {
        header_type::CALL_MIDDLE => Some((Direction::Call, prefix.xid, false)),
        header_type::CALL_EXTERNAL | header_type::CALL_INLINE => {
            Some((Direction::Call, prefix.xid, true))
        }
        header_type::REPLY_MIDDLE => Some((Direction::Reply, prefix.xid, false)),
        header_type::REPLY_EXTERNAL | header_type::REPLY_INLINE => {
            Some((Direction::Reply, prefix.xid, true))
        }
        _ => None,
    });
    if let Some((direction, xid, last)) = part_of {
        lost_part(operations, Some(direction), xid, last);
    }
    match prefix.map(|prefix| (prefix.header_type, prefix.xid)) {
        Some((header_type::CONNPROP_MIDDLE | header_type::CONNPROP_FINAL, _)) => {
            let last = prefix.is_some_and(|it| it.header_type == header_type::CONNPROP_FINAL);
            lost_properties(operations, last);
        }
        Some((
            header_type::REPLY_EXTERNAL | header_type::REPLY_MIDDLE | header_type::REPLY_INLINE,
            xid,
        )) => {
            let reason = error.to_string();
            return Incoming::Unusable { xid, reason };
        }
        _ => {}
    }
    let answer = error.answer().map(|answer| Answer {
        error: as_announced(answer.error),
        ..answer
    });
    bad(Direction::Call, answer, error)
}

/// Lowers the maximum in RDMA2_ERR_SEGMENTS to the one that this end has announced. The limit of
/// the decoder may be higher.
fn as_announced(error: ErrorBody) -> ErrorBody {
    match error {
        ErrorBody::Segments { max } => ErrorBody::Segments {
            max: max.min(MAX_SEGMENTS),
        },
        error => error,
    }
}

/// Handles an error: one about a message of an extension, or about a call.
fn failed(xid: u32, credits: u32, error: ErrorBody, operations: &mut OperationRouter) -> Incoming {
    // Section 7: a code that is not known is ignored, with its message.
    let Some(peer_error) = peer_error(error) else {
        return bad(Direction::Reply, None, error);
    };
    let heard = Heard {
        xid,
        direction: Direction::Reply,
        credits,
        kind: Kind::Base(header_type::ERROR),
    };
    if let Some(handled) = operations.failed(&heard, peer_error) {
        return handled;
    }
    Incoming::Reply(ReplyHeader {
        xid,
        granted: credits,
        body: ReplyBody::Error(peer_error),
        payload: Segments::new(),
    })
}

/// Handles a call or a reply whose payload is complete. A call may have up to `most` segments.
fn rpc_message(
    header: Header,
    direction: Direction,
    payload: Segments,
    receiver: &Receiver,
    most: u32,
) -> Incoming {
    let (xid, credits) = (header.xid, header.credit);
    let max = match direction {
        Direction::Call => receiver.max_call,
        Direction::Reply => u64::MAX,
    };
    if is_plain(&header, direction, &payload, max) {
        return Incoming::Plain(direction, Plain { xid, credits }, payload);
    }
    match header.body {
        Body::Reply { external, chunks } => Incoming::Reply(ReplyHeader {
            xid,
            granted: credits,
            body: ReplyBody::Reply {
                chunks,
                long: external,
            },
            payload,
        }),
        body => call(xid, credits, body, payload, receiver.max_call, most),
    }
}

/// Returns whether a message has no chunks, and its XID and direction are those of the RPC message.
fn is_plain(header: &Header, direction: Direction, payload: &Segments, max: u64) -> bool {
    let no_chunks = match &header.body {
        Body::Call {
            external, chunks, ..
        }
        | Body::Reply { external, chunks } => !external && chunks.is_empty(),
        _ => false,
    };
    let start = payload.first().and_then(|first| first.first_chunk::<8>());
    let own = u64::from(header.xid) << 32 | u64::from(direction.number());
    no_chunks
        && start.is_some_and(|start| u64::from_be_bytes(*start) == own)
        && pieces::length(payload) <= max
}

fn call(
    xid: u32,
    requested: u32,
    body: Body,
    payload: Segments,
    max_call: u64,
    most: u32,
) -> Incoming {
    let answered = |error: Option<ErrorBody>, reason: &dyn std::fmt::Display| {
        let answer = error.map(|error| Answer::new(xid, error));
        bad(Direction::Call, answer, reason)
    };
    let handle = match &body {
        Body::Call { inv_handle, .. } => Some(*inv_handle).filter(|&handle| handle != 0),
        _ => None,
    };
    // Section 7.3.3.
    let segments = body.chunks().map_or(0, segments);
    if segments > most as usize {
        let reason = format!("{segments} segments, where {most} are accepted");
        return answered(Some(ErrorBody::Segments { max: most }), &reason);
    }
    let chunks = match check_call(body, pieces::length(&payload), max_call) {
        Ok(chunks) => chunks,
        Err(violation) => return answered(violation.error(), &violation),
    };
    let message = Message::without_items(payload);
    if chunks.payload.is_none()
        && let Err(violation) = check_payload(xid, Direction::Call, &message)
    {
        return answered(violation.error(), &violation);
    }
    Incoming::Call(CallHeader {
        xid,
        requested,
        chunks,
        handle,
        payload: message.into_payload(),
    })
}

fn segments(chunks: &Chunks) -> usize {
    let written = chunks.writes.iter().chain(&chunks.reply);
    chunks.reads.len() + written.map(|chunk| chunk.len()).sum::<usize>()
}

/// Returns an error in the terms that all versions share, or `None` if its code is not known.
fn peer_error(error: ErrorBody) -> Option<PeerError> {
    Some(match error {
        ErrorBody::Version { low, high } => PeerError::Version { low, high },
        ErrorBody::BadXdr => PeerError::Chunk,
        ErrorBody::BadPropertyValue => PeerError::PropertyValue,
        ErrorBody::InvalidHeaderType => PeerError::Option,
        ErrorBody::InvalidContinuation => PeerError::Continuation,
        ErrorBody::ReadChunks { max } => PeerError::ReadChunks { max },
        ErrorBody::WriteChunks { max } => PeerError::WriteChunks { max },
        ErrorBody::Segments { max } => PeerError::Segments { max },
        ErrorBody::WriteResource { chunk, needed } => PeerError::WriteResource { chunk, needed },
        ErrorBody::ReplyResource { needed } => PeerError::ReplyResource { needed },
        ErrorBody::VersionMismatch => PeerError::VersionMismatch,
        ErrorBody::System => PeerError::System,
        ErrorBody::Other(_) => return None,
    })
}

fn error_body(error: PeerError) -> ErrorBody {
    match error {
        PeerError::Version { low, high } => ErrorBody::Version { low, high },
        PeerError::Chunk => ErrorBody::BadXdr,
        PeerError::PropertyValue => ErrorBody::BadPropertyValue,
        PeerError::Option => ErrorBody::InvalidHeaderType,
        PeerError::Continuation => ErrorBody::InvalidContinuation,
        PeerError::ReadChunks { max } => ErrorBody::ReadChunks { max },
        PeerError::WriteChunks { max } => ErrorBody::WriteChunks { max },
        PeerError::Segments { max } => ErrorBody::Segments { max },
        PeerError::WriteResource { chunk, needed } => ErrorBody::WriteResource { chunk, needed },
        PeerError::ReplyResource { needed } => ErrorBody::ReplyResource { needed },
        PeerError::VersionMismatch => ErrorBody::VersionMismatch,
        PeerError::System => ErrorBody::System,
    }
}
