//! Version 2 of the working group (draft-ietf-nfsv4-rpcrdma-version-two-07).
//!
//! Here is how its headers are written, and the state on one connection. `session` reads headers;
//! `parts` has the rules for messages in several parts. The messages that are sent are divided by the
//! transfer mode of [`Base`].

mod errors;
mod negotiation;
mod parts;
mod plain;
mod properties;
mod receive;
mod session;

use bytes::{Bytes, BytesMut};
use onc_rpc::{Message, Position, Segments, put_words};
use rpcrdma_chunks::{Chunks, Direction, Side, WriteChunk, unused};
use rpcrdma_extension::{DuplicateNumber, EndConfig, Extension, Extensions, Heard, Kind};
use rpcrdma_v2_wg::base::{Base, Config as BaseConfig, preferred_handle};
use rpcrdma_v2_wg::limits::{CALL_INLINE_LEN, PREFIX_LEN};
use rpcrdma_v2_wg::{
    Answer, Body, EXPERIMENTAL, Header, Prefix, Properties, RefusedMessages, ReverseSupport,
    VERSION, check_payload, header_type,
};
use transfer_plan::ChunkCounts;

use self::errors::error_body;
use super::{
    BadReply, Dialect, ErrorMessage, ExtensionHeader, Outgoing, PeerError, Plain, Session,
    chunks_len, pieces,
};
use crate::flow::{Accounting, CreditFields, ReceivedCredit};

/// Version 2 of the working group (draft-ietf-nfsv4-rpcrdma-version-two-07).
#[derive(Clone, Copy, Debug)]
pub struct VersionTwoWg;

/// The state of version 2 of the working group on one connection.
#[derive(Debug)]
struct WgSession {
    base: Base,
    extensions: Extensions,
    /// Messages of which a part was refused, and further parts may follow.
    refused: RefusedMessages,
}

impl Dialect for VersionTwoWg {
    fn has_extensions(&self) -> bool {
        true
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

    /// Section 7.1.1 is for a version that nobody here speaks, and section 7.1.2 for one that is not this
    /// connection's.
    fn version_error(&self, received: u32, own: u32) -> PeerError {
        match (1..=VERSION).contains(&received) {
            true => PeerError::VersionMismatch,
            false => PeerError::Version {
                low: own,
                high: own,
            },
        }
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
    fn sends_again(&self, first_type: u32, error: PeerError) -> bool {
        match (first_type, error) {
            (header_type::CALL_MIDDLE, error) => error == PeerError::UnsupportedType,
            // Every peer must know this type. A peer that does not know it has no other type in
            // which the call could be sent.
            (header_type::CALL_INLINE, PeerError::UnsupportedType) => false,
            (_, error) => matches!(error, PeerError::UnsupportedType | PeerError::Chunk),
        }
    }

    /// The last message of a continued call has a type that every responder knows, so the error about it is another one.
    fn refuses_by_type_alone(&self, first_type: u32) -> bool {
        first_type != header_type::CALL_MIDDLE
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

    fn session(
        &self,
        end: &EndConfig<'_>,
        extensions: Vec<Box<dyn Extension>>,
        first_xid: u32,
    ) -> Result<Box<dyn Session>, DuplicateNumber> {
        Ok(Box::new(WgSession {
            base: Base::new(base(end)),
            extensions: Extensions::new(end.side, first_xid, extensions)?,
            refused: RefusedMessages::default(),
        }))
    }

    /// The header types tell the direction.
    fn encode_extension(&self, out: &mut BytesMut, header: ExtensionHeader) {
        let ExtensionHeader {
            xid,
            credits,
            number,
            fields,
            ..
        } = header;
        put_words(out, [xid, VERSION, credits, number]);
        out.extend_from_slice(&fields);
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

    fn xid_and_type(&self, message: &Segments) -> Option<(u32, u32)> {
        prefix(message).map(|prefix| (prefix.xid, prefix.header_type))
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

/// Returns the configuration of the base protocol.
fn base(end: &EndConfig<'_>) -> BaseConfig {
    let reverse = match end.side {
        Side::Server => ReverseSupport::None,
        Side::Client if end.callbacks == 0 => ReverseSupport::None,
        Side::Client if end.callback_chunks => ReverseSupport::General,
        Side::Client => ReverseSupport::Continued,
    };
    BaseConfig {
        side: end.side,
        properties: Properties {
            send_size: end.max_send,
            receive_size: end.receives.len(),
            segment_size: end.max_segment,
            segment_count: end.max_segments,
            reverse,
            host_auth: None,
        },
        offer_invalidation: end.remote_invalidation,
        can_invalidate: end.remote_invalidation,
        max_message: u64::from(end.max_message),
    }
}

/// Returns the prefix of a message, wherever its pieces end.
fn prefix(message: &Segments) -> Option<Prefix> {
    match message.first() {
        Some(first) if first.len() >= PREFIX_LEN => Prefix::peek(first),
        Some(_) => Prefix::peek(&pieces::joined(message)),
        None => None,
    }
}

/// Returns what extensions may know of a plain message.
fn heard_plain(direction: Direction, plain: Plain) -> Heard {
    Heard {
        xid: plain.xid,
        direction,
        credits: plain.credits,
        kind: Kind::Base(match direction {
            Direction::Call => header_type::CALL_INLINE,
            Direction::Reply => header_type::REPLY_INLINE,
        }),
    }
}

/// Returns what extensions may know of a message. One whose header type does not tell the direction
/// counts as a call.
fn heard(prefix: Prefix, direction: Option<Direction>) -> Heard {
    let Prefix {
        xid,
        credit: credits,
        header_type: number,
        ..
    } = prefix;
    Heard {
        xid,
        direction: direction.unwrap_or(Direction::Call),
        credits,
        kind: match EXPERIMENTAL.contains(&number) {
            true => Kind::Extension(number),
            false => Kind::Base(number),
        },
    }
}
