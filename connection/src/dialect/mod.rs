//! Dialects: how each version writes, reads and checks its headers.
//!
//! The rest of this crate works with chunks, credits and plans, which all versions have. A
//! [`Dialect`] writes the headers that are sent, and its [`Session`] on a connection turns each
//! header that was received into an [`Incoming`].
//!
//! The dialect hides where a version has its information: version 1 determines the direction of a
//! message from its payload, version 2 from its header, and the rest of the crate gets a
//! [`Direction`] in both cases. Properties of the peer come from private data in version 1, and
//! from messages in version 2.
//!
//! # How to write a dialect
//!
//! A version is one implementation of the trait and one entry in [`Protocols`](crate::Protocols). The
//! number of the version must be the second word of each of its headers.
//!
//! *Negotiation.* [`Negotiable::version`] is the version's identifier, and is enough for a version that
//! both ends are configured for ([`Config::with_version`](crate::Config::with_version)). Servers
//! recognize its first message by its number then. A version that shares its number with another
//! one, or is asked for, implements the other methods of [`Negotiable`] too. A client asks by the
//! first message that the version's extensions send when the connection begins
//! ([`Extension::connected`]), and goes on in the next
//! version if the server does not answer in this one.
//!
//! *Sending.* A message without chunks has the header of [`Dialect::encode_plain`], any other call
//! or reply that of [`Dialect::encode`]. Plans count on [`Dialect::header_len`] for the room that
//! is left for the payload, so it must not be less than what these write.
//!
//! *Receiving.* [`Dialect::session`] makes the state of the version on one connection. Its
//! [`Session::decode`] gets each message as it arrived, and returns one of these:
//!
//! | message | returned |
//! |---|---|
//! | a header that cannot be read, or that breaks a rule | [`Incoming::Bad`], with the error message that the version prescribes, if any |
//! | a call or reply for an end that takes none ([`Receiver`]) | [`Incoming::Bad`] |
//! | a reply that breaks a rule, where that ends its call | [`Incoming::Unusable`] |
//! | a message of an extension | what [`incoming_of_extension`] makes of it |
//! | a call or reply without chunks, whose XID and direction are those of the RPC message | [`Incoming::Plain`] |
//! | any other call | [`Incoming::Call`], with its chunk lists checked ([`rpcrdma_v1::check_call`], [`rpcrdma_v2::check_call`]) |
//! | any other reply, or an error message for a call | [`Incoming::Reply`]; the connection checks it against its call |
//!
//! [`decode_header`] and [`advance`] find the header in a message that lies in several pieces and
//! remove it. No function may panic, whatever the message contains.
//!
//! *Extensions.* A version with messages of extensions has an [`Extensions`] in its session, to which
//! it passes each message whose header it can read: those of extensions to [`Extensions::received`],
//! errors to [`Extensions::failed`], and all others to [`Extensions::heard`]. It writes their headers
//! in [`Dialect::encode_extension`]. [`Session::agreed`] lists what it has agreed on with its peer by
//! itself.
//!
//! [`Extensions`]: rpcrdma_extension::Extensions
//! [`Extensions::received`]: rpcrdma_extension::Extensions::received
//! [`Extensions::failed`]: rpcrdma_extension::Extensions::failed
//! [`Extensions::heard`]: rpcrdma_extension::Extensions::heard
//!
//! *Like another version.* A version that has most of another one implements [`Derived`]: it says which,
//! and what it does differently.
//!
//! `tests/dialect.rs` has a dialect without extensions; `tests/negotiated.rs` has a version that is
//! negotiated; `tests/operations.rs` has one with header
//! types of its own, properties that are exchanged once, and calls in several Sends.

mod derived;
mod incoming;
pub(crate) mod pieces;
mod plain;
mod session;
mod v1;
mod v1_direction;
mod v2;
mod wg;

use bytes::{Bytes, BytesMut};
use onc_rpc::{Message, Position};
use rpcrdma_chunks::{Chunks, Direction, Side};
use transfer_plan::ChunkCounts;

pub use derived::Derived;
pub(crate) use incoming::Returned;
pub use incoming::{
    BadMessage, BadReply, CallHeader, ErrorMessage, Incoming, ReplyBody, ReplyHeader,
};
pub use pieces::{advance, decode_header};
pub use plain::Plain;
pub use rpcrdma_extension::PeerError;
use rpcrdma_extension::{DuplicateNumber, EndConfig, Extension};
pub use rpcrdma_negotiation::Negotiable;
pub use session::{Modes, Session, incoming_of_extension};
pub use v1::VersionOne;
pub use v2::VersionTwo;
pub use wg::VersionTwoWg;

use crate::flow::Accounting;

/// The versions that this crate speaks, in the order in which a client prefers them.
pub const STANDARD: &[&dyn Dialect] = &[&VersionTwoWg, &VersionTwo, &VersionOne];

/// A header to send, with chunk lists or with the payload in a chunk.
#[derive(Debug)]
pub struct Outgoing {
    /// The XID of the RPC message.
    pub xid: u32,
    /// The credits that a call requests or a reply grants.
    pub credits: u32,
    /// Whether the message is a call or a reply.
    pub direction: Direction,
    /// Whether the payload follows the header (RDMA_MSG) or is in a chunk (RDMA_NOMSG).
    pub inline: bool,
    /// The chunk lists.
    pub chunks: Chunks,
    /// Whether the responder may invalidate a handle of this call with its reply. Versions 1 and 2
    /// of 2016 say that once for a connection, and not in each call.
    pub may_be_invalidated: bool,
}

/// The header of a message of an extension, to be sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExtensionHeader {
    /// The XID: that of the RPC message that the message carries or refers to, or one of its own.
    pub xid: u32,
    /// The credits that a call requests or a reply grants.
    pub credits: u32,
    /// Whether the message is a call or a reply.
    pub direction: Direction,
    /// The number of the message, one of
    /// [`Extension::numbers`].
    pub number: u32,
    /// The fields of the message as XDR.
    pub fields: Bytes,
}

/// The end of the connection that received a message.
#[derive(Clone, Copy, Debug)]
pub struct Receiver {
    /// The side of this end: client or server.
    pub side: Side,
    /// Whether this end accepts calls: servers always, clients if they accept calls in the reverse
    /// direction.
    pub takes_calls: bool,
    /// Whether this end makes calls: clients always, servers if they make calls in the reverse
    /// direction.
    pub makes_calls: bool,
    /// The maximum length of a call to this end, in bytes of XDR.
    pub max_call: u64,
}

/// The header format of a version: encoding, decoding and checks.
pub trait Dialect: Negotiable {
    /// Returns the function that computes the length of a header from the numbers of its chunks, in
    /// bytes, for [`transfer_plan::Limits::header_len`].
    fn header_len(&self) -> fn(&ChunkCounts) -> u64;

    /// Returns whether the payload of a long call is in a call chunk (version-two-07, section 6.3.5) and
    /// not in a read chunk at position zero, for [`transfer_plan::Limits::call_chunk`].
    fn has_call_chunk(&self) -> bool {
        false
    }

    /// Appends the header of a message without chunks.
    fn encode_plain(&self, out: &mut BytesMut, direction: Direction, header: Plain);

    /// Appends a header of a call or reply that may have chunks. Returns its chunk lists, against
    /// which the reply is checked.
    fn encode(&self, out: &mut BytesMut, header: Outgoing) -> Chunks;

    /// Returns an error message that grants `credits`, header included. The version in `error` is
    /// that of the message that it answers, which may be another one.
    fn encode_error(&self, error: &ErrorMessage, credits: u32) -> Bytes;

    /// Returns the name of an error in this version, with its values, for logs and for the errors
    /// of calls.
    fn error_name(&self, error: PeerError) -> String {
        match error {
            PeerError::Version { low, high } => format!("ERR_VERS ({low} to {high})"),
            _ => "ERR_CHUNK".to_owned(),
        }
    }

    /// Returns the error for a message with the version number `received` on a connection of this version.
    /// `own` is the number of that, which is another one than this version's in a [`Derived`] version.
    fn version_error(&self, received: u32, own: u32) -> PeerError {
        let _ = received;
        PeerError::Version {
            low: own,
            high: own,
        }
    }

    /// Returns the error for a call that has more read chunks than arguments that may be reduced,
    /// which are `max`. `None` if the version has no error for that. The call is answered with
    /// GARBAGE_ARGS then (RFC 8166, sections 6.1 and 4.5.2).
    fn too_many_reduced(&self, max: u32) -> Option<PeerError> {
        let _ = max;
        None
    }

    /// Returns the state of this version at one end of a new connection, with these extensions.
    /// Messages that the version or its extensions begin have XIDs from `first_xid` downwards.
    ///
    /// # Errors
    /// [`DuplicateNumber`]: two extensions own the same number.
    fn session(
        &self,
        end: &EndConfig<'_>,
        extensions: Vec<Box<dyn Extension>>,
        first_xid: u32,
    ) -> Result<Box<dyn Session>, DuplicateNumber>;

    /// Returns whether peers of this version send messages of extensions. Its receives are at least as
    /// long as the default of version 2 then, or as extensions want them, and private data has no
    /// effect.
    fn has_extensions(&self) -> bool {
        false
    }

    /// Appends the header of a message of an extension. The payload of the message, if it has one,
    /// follows. A version without such messages appends nothing.
    fn encode_extension(&self, out: &mut BytesMut, header: ExtensionHeader) {
        let _ = (out, header);
    }

    /// Checks that an RPC message belongs to the header that it came with (RFC 8166, section 4.2.1;
    /// version-two-01, section 4.2.2).
    ///
    /// # Errors
    /// [`BadReply::Payload`]: XID or direction differ from the header's.
    fn check_payload(
        &self,
        xid: u32,
        direction: Direction,
        message: &Message,
    ) -> Result<(), BadReply>;

    /// Returns the position to give to a result that was written to a write chunk.
    /// [`Position::InOrder`], the default, means that a result that does not fit its chunk is an
    /// error; with [`Position::InOrderOrInline`] it may also be in the payload.
    fn result_position(&self) -> Position {
        Position::InOrder
    }

    /// Returns whether a reply that breaks a rule ends its call with an error. Otherwise it is
    /// discarded silently (RFC 8166, section 4.5), and the call waits for its time-out.
    fn bad_replies_end_calls(&self) -> bool {
        false
    }

    /// Returns whether a call is sent again without extensions after this error for one of its
    /// messages. `first_type` is the number of the first of these messages: a header type, or a type
    /// of operation.
    fn sends_again(&self, first_type: u32, error: PeerError) -> bool {
        let _ = first_type;
        matches!(error, PeerError::UnsupportedType | PeerError::Chunk)
    }

    /// Returns whether a peer that does not support `first_type`, the number of the first message of a call, says of
    /// every further message of that call that its type is not supported, if it answers it at all. Errors with other
    /// codes are then about the call that is sent again.
    fn refuses_by_type_alone(&self, first_type: u32) -> bool {
        let _ = first_type;
        true
    }

    /// Completes the chunk lists of a reply before they are compared with those that the call
    /// offered, in a version in which a responder may leave out chunks that it has not used.
    fn complete_returned(&self, _returned: &mut Chunks, _offered: &Chunks) {}

    /// Returns what the version counts for flow control. Where it counts messages, the credits in
    /// [`Plain`], [`Outgoing`], [`ExtensionHeader`] and [`Dialect::encode_error`] are the sum of the
    /// messages received and the messages that this end can still receive.
    fn accounting(&self) -> Accounting<'_> {
        Accounting::Calls
    }

    /// Returns whether extensions carry calls and replies of both directions, and not only those of
    /// calls from client to server.
    fn extensions_carry_callbacks(&self) -> bool {
        false
    }

    /// Returns whether each call says which of its handles may be invalidated, so that servers that
    /// make calls may offer one as well.
    fn calls_offer_handles(&self) -> bool {
        false
    }
}

/// Returns the bytes that chunk lists add to a header, in versions 1 and 2.
fn chunks_len(chunks: &ChunkCounts) -> u64 {
    24 * chunks.read_segments
        + 8 * chunks.write_chunks
        + 16 * chunks.write_segments
        + chunks
            .reply_segments
            .map_or(0, |segments| 4 + 16 * segments)
}
