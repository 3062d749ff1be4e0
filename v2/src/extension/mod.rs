//! Extensions: optional operations, which this crate routes without knowing their meaning
//! (version-two-01, section 3).
//!
//! An extension is a crate of its own. It implements [`Extension`] for its state on one connection,
//! lists the `rdma_opttype` values that it owns, and is added to an [`Extensions`], which the
//! connection engine calls for every message. Everything is sans-IO: the extension is called when
//! something happens, and writes its requests to an [`Outbox`]. An extension that can also carry
//! RPC messages in its operations returns a [`TransferMode`] from [`Extension::transfer_mode`].
//!
//! The following is a complete extension. It sends this side's uptime to the peer and asks for the
//! peer's, once:
//! ```
//! use bytes::Bytes;
//! use rpcrdma_v2::{Direction, Header, Malformed, Reader, Side};
//! use rpcrdma_v2::extension::{
//!     Action, Extension, Extensions, Operation, Outbox, Refusal, Routed, Start,
//! };
//!
//! /// From the range that nobody has assigned.
//! const UPTIME: u32 = 0x7fff_0001;
//!
//! #[derive(Debug, Default)]
//! struct Uptime {
//!     ours: u32,
//!     peers: Option<u32>,
//! }
//!
//! impl Extension for Uptime {
//!     fn name(&self) -> &'static str {
//!         "uptime"
//!     }
//!
//!     fn opttypes(&self) -> &[u32] {
//!         &[UPTIME]
//!     }
//!
//!     fn connected(&mut self, start: &Start<'_>, out: &mut Outbox<'_>) {
//!         if start.side == Side::Client {
//!             out.call(UPTIME, Bytes::copy_from_slice(&self.ours.to_be_bytes()));
//!         }
//!     }
//!
//!     fn received(&mut self, op: &Operation<'_>, out: &mut Outbox<'_>) -> Result<(), Refusal> {
//!         let mut info = Reader::new(op.info);
//!         self.peers = Some(info.u32()?);
//!         info.end()?;
//!         if op.direction == Direction::Call {
//!             out.reply(op.xid, UPTIME, Bytes::copy_from_slice(&self.ours.to_be_bytes()));
//!         }
//!         Ok(())
//!     }
//! }
//!
//! let mut client = Extensions::new(Side::Client, 100, vec![Box::new(Uptime::default())])?;
//! let up = Uptime { ours: 7, peers: None };
//! let mut server = Extensions::new(Side::Server, 900, vec![Box::new(up)])?;
//!
//! client.connected(None);
//! let Some(Action::Send(operation)) = client.next_action() else { panic!() };
//! // The engine fills in the credits and sends it. At the other end:
//! let message = operation.header(32).encode();
//! let (header, at) = Header::decode(&message)?;
//! server.connected(Some(&header));
//! assert_eq!(server.received(&header, &[message], at), Routed::Taken);
//! assert!(matches!(server.next_action(), Some(Action::Send(op)) if op.xid == header.xid));
//!
//! // A peer without it answers RDMA2_ERR_INVAL_OPTION.
//! let mut without = Extensions::new(Side::Server, 900, vec![])?;
//! assert!(matches!(without.received(&header, &[], at), Routed::Refused(_)));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! An extension sees every message and is asked for limits and for candidates to carry a message.
//! What one extension learns of the peer is passed to the others, so that crates that do not know
//! each other can rely on the same exchange of properties. A plan of an extension ([`Planned`]) is
//! a value that only this extension looks into. Extensions are not asked about messages that one plain
//! Send carries.

mod action;
mod extensions;
mod transfer_mode;

use std::any::Any;
use std::fmt;

use bytes::Bytes;
use rpcrdma_chunks::Malformed;

pub use self::action::{Action, Calls, Outbox, OutgoingOperation};
pub use self::extensions::{DuplicateOpttype, Extensions, Routed};
pub use self::transfer_mode::{
    CallCandidate, CallToPlan, Cost, IncomingCall, IncomingReply, NotTransferred, Planned,
    ReplyCandidate, ReplyCandidates, ReplyToPlan, TransferMode, Transferred, Transmission,
    Transmissions, Written,
};
use crate::limits::DEFAULT_INLINE;
use crate::{Direction, ErrorBody, Header, Optional, Side};

/// A property of one end of a connection that the other end should know. The meaning of `id` and
/// `value` is defined by the specification that assigns the number; the base protocol only passes
/// properties between extensions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Property {
    /// Assigned number of the property.
    pub id: u32,
    /// Value of the property as XDR.
    pub value: Bytes,
}

/// The start of version 2 on a connection.
#[derive(Clone, Copy, Debug)]
pub struct Start<'a> {
    /// Which end of the connection this is.
    pub side: Side,
    /// Header of the client's first message in version 2. `None` at the client; a [`Side::Server`]
    /// begins to use version 2 when that message arrives.
    pub opened_by: Option<&'a Header>,
    /// Properties of this side, from all its extensions.
    pub properties: &'a [Property],
}

/// An optional operation that was received.
#[derive(Clone, Copy, Debug)]
pub struct Operation<'a> {
    /// `rdma_xid`: XID of the operation.
    pub xid: u32,
    /// `rdma_optdir`: direction of the operation.
    pub direction: Direction,
    /// `rdma_credit`: requested or granted, depending on the direction.
    pub credits: u32,
    /// `rdma_opttype`, one of those that the extension owns.
    pub opttype: u32,
    /// `rdma_optinfo`: the fields of the operation as XDR.
    pub info: &'a Bytes,
    /// The whole message, header included, as slices of the receive segments in which it was
    /// placed. There is one slice unless this side posts receives of several segments.
    pub message: &'a [Bytes],
    /// Offset of the payload in `message`, counted across all slices.
    pub payload_at: usize,
}

impl<'a> Operation<'a> {
    fn new(
        header: &Header,
        optional: &'a Optional,
        message: &'a [Bytes],
        payload_at: usize,
    ) -> Self {
        Self {
            xid: header.xid,
            direction: optional.direction,
            credits: header.credits,
            opttype: optional.opttype,
            info: &optional.info,
            message,
            payload_at,
        }
    }

    /// Returns the number of bytes after the header.
    #[must_use]
    pub fn payload_len(&self) -> usize {
        let len: usize = self.message.iter().map(Bytes::len).sum();
        len.saturating_sub(self.payload_at)
    }
}

/// The reason why an operation is not executed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// The operation does not match its XDR definition. The answer is RDMA2_ERR_BAD_HEADER.
    #[error("malformed operation: {0}")]
    Malformed(#[from] Malformed),
    /// The extension knows the operation but does not support it (section 3.1). The answer is
    /// RDMA2_ERR_INVAL_OPTION.
    #[error("operation not supported")]
    Unsupported,
    /// The operation is discarded, and the engine sends no answer, as for invalid replies (RFC 8166,
    /// section 4.5). The extension may have sent one of its own.
    #[error("operation discarded: {0}")]
    Discard(&'static str),
}

/// The peer's support for reverse-direction calls, sent by a server to a client (RFC 8167).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ReverseDirection {
    /// No reverse-direction calls.
    None,
    /// Reverse-direction calls and replies without chunks.
    Inline,
    /// Reverse-direction calls and replies with chunks, as in the forward direction.
    General,
}

/// The connection's limits, as the base protocol and the extensions know them. Transfer plans are
/// made from them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConnectionLimits {
    /// Maximum length in bytes of a message to the peer, transport header included.
    pub inline_send: u32,
    /// Maximum length in bytes of a reply to a call that provided no means to return a reply longer
    /// than [`ConnectionLimits::inline_send`]. `None` while the size is being negotiated with the
    /// peer; such a reply waits.
    pub reply_last_resort: Option<u32>,
    /// Maximum length in bytes of a message that the peer knows it may send to this side.
    pub inline_receive: u32,
    /// Whether replies to this side may invalidate a handle of their calls (Send With Invalidate).
    pub may_invalidate: bool,
    /// The peer's support for reverse-direction calls, if the peer is the client.
    pub reverse_direction: ReverseDirection,
    /// Maximum length in bytes of a segment that the peer accepts, if it has a limit of its own.
    pub max_segment: Option<u32>,
    /// Maximum number of segments in the header of a call that the peer accepts, if it has a limit.
    pub max_segments: Option<u32>,
}

impl Default for ConnectionLimits {
    /// Returns the limits of a connection without extensions (sections 2.3 and 4.2.2; RFC 8167,
    /// section 5.3).
    fn default() -> Self {
        Self {
            inline_send: DEFAULT_INLINE,
            reply_last_resort: Some(DEFAULT_INLINE),
            inline_receive: DEFAULT_INLINE,
            may_invalidate: false,
            reverse_direction: ReverseDirection::Inline,
            max_segment: None,
            max_segments: None,
        }
    }
}

/// The state of one extension on one connection.
pub trait Extension: Any + fmt::Debug + Send {
    /// Returns the extension's name, for logs and error texts.
    fn name(&self) -> &'static str;

    /// Returns the `rdma_opttype` values that the extension owns. They never change.
    fn opttypes(&self) -> &[u32];

    /// Returns the direction of one of these operations, if its number tells it. Needed where
    /// headers do not say it otherwise.
    fn direction(&self, opttype: u32) -> Option<Direction> {
        let _ = opttype;
        None
    }

    /// Returns the properties of this side that the extension wants the peer to know. Called once,
    /// before the connection begins. The extension that exchanges properties, if there is one,
    /// sends them.
    fn properties(&self) -> Vec<Property> {
        Vec::new()
    }

    /// Called when the connection begins to use version 2. Operations sent now precede every RPC
    /// message of this side, in the order of the extensions. A client's first message must fit
    /// [`crate::limits::FIRST_MESSAGE_MAX`]; if it asks the server for version 2, those that follow
    /// wait for the answer.
    fn connected(&mut self, start: &Start<'_>, out: &mut Outbox<'_>) {
        let _ = (start, out);
    }

    /// Called when one of the extension's operations was received.
    ///
    /// # Errors
    /// [`Refusal`] if the operation is not executed. Its variant decides which error is sent.
    fn received(&mut self, op: &Operation<'_>, out: &mut Outbox<'_>) -> Result<(), Refusal>;

    /// Called instead of [`Extension::received`] when only the beginning of an operation is here,
    /// because this side has no memory for the rest. An extension that carries calls in operations
    /// refuses the call if its peer sends it again in another way after that, drops what it holds of
    /// the call, and returns true. Otherwise, the connection is closed.
    fn refuse_truncated(&mut self, op: &Operation<'_>, out: &mut Outbox<'_>) -> bool {
        let _ = (op, out);
        false
    }

    /// Called when any other message was received, before its owner handles it.
    fn observed(&mut self, header: &Header, out: &mut Outbox<'_>) {
        let _ = (header, out);
    }

    /// Called when the peer answered an operation sent with [`Outbox::call`] with an error.
    fn refused(&mut self, xid: u32, error: ErrorBody, out: &mut Outbox<'_>) {
        let _ = (xid, error, out);
    }

    /// Returns whether a value is one of this property. An empty value stands for the default. What
    /// the extension does not know, and does not reject, is valid.
    fn is_valid(&self, property: &Property) -> bool {
        let _ = property;
        true
    }

    /// Called when another extension announced a property of the peer, either at the start or
    /// because the property changed.
    fn property_received(&mut self, property: &Property, out: &mut Outbox<'_>) {
        let _ = (property, out);
    }

    /// Called when a request of [`Outbox::replace_receives`] is completed: every posted receive now
    /// has at least this size in bytes.
    fn receives_replaced(&mut self, size: u32, out: &mut Outbox<'_>) {
        let _ = (size, out);
    }

    /// Called when a request of [`Outbox::await_replies`] is completed: these calls have been
    /// answered.
    fn replies_arrived(&mut self, calls: Calls, out: &mut Outbox<'_>) {
        let _ = (calls, out);
    }

    /// Adjusts the limits to what the extension knows of the connection.
    fn limits(&self, limits: &mut ConnectionLimits) {
        let _ = limits;
    }

    /// Returns whether the extension knows what the peer supports. A request that depends on it is
    /// held back until then; other requests are not.
    fn knows_peer(&self) -> bool {
        true
    }

    /// Returns whether the extension holds a part of an RPC message and waits for the rest. The
    /// engine closes a connection on which this lasts too long.
    fn is_collecting(&self) -> bool {
        false
    }

    /// Returns how many bytes of memory the parts take that the extension holds while it waits for
    /// the rest of an RPC message. A receive that is held counts with its whole length. The engine
    /// closes a connection that holds more than there is for it.
    fn collected_bytes(&self) -> usize {
        0
    }

    /// Returns the number of bytes of messages that the extension has copied. It never decreases.
    fn copied_bytes(&self) -> u64 {
        0
    }

    /// Returns the extension's interface for carrying RPC messages, if it has one.
    fn transfer_mode(&mut self) -> Option<&mut dyn TransferMode> {
        None
    }

    /// Called when the connection has ended. Nothing can be sent any more.
    fn closed(&mut self) {}
}
