//! Extensions: optional operations that this crate carries without knowing them (version-two-01,
//! section 3).
//!
//! An extension is a crate of its own. It implements [`Extension`] for its state on one connection,
//! names the `rdma_opttype` values it owns, and is put into an [`Extensions`], which the connection
//! engine asks about every message. Everything is sans-IO: an extension is told what happened and
//! writes what is to be done into an [`Outbox`]. An extension that can also carry RPC messages in
//! its operations says so with [`Extension::conveyor`].
//!
//! A complete extension, which tells the peer how long this side has been up and wants to know the
//! same, once:
//!
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

mod action;
mod convey;
mod set;

use std::any::Any;
use std::fmt;

use bytes::Bytes;
use rpcrdma_chunks::Malformed;

pub use self::action::{Action, Calls, Outbox, OutgoingOperation};
pub use self::convey::{
    CallCandidate, CallToPlan, Conveyed, Conveyor, Cost, IncomingCall, IncomingReply, NotConveyed,
    Planned, ReplyCandidate, ReplyToPlan, Transmission, Transmissions, Written,
};
pub use self::set::{Extensions, OpttypeTaken, Routed};
use crate::limits::DEFAULT_INLINE;
use crate::{Direction, ErrorBody, Header, Side};

/// A property of one end of a connection that the other should know. What the numbers mean is
/// assigned by the documents that define them; the base only hands them from extension to
/// extension.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Property {
    /// Which.
    pub id: u32,
    /// Its value as XDR.
    pub value: Bytes,
}

/// A connection begins to speak version 2.
#[derive(Clone, Copy, Debug)]
pub struct Start<'a> {
    /// Which end this is.
    pub side: Side,
    /// The header of the message that opened the conversation, at the end that did not: a
    /// [`Side::Server`] speaks version 2 from the first message that the client sent in it.
    pub opened_by: Option<&'a Header>,
    /// This side's properties, of all its extensions.
    pub properties: &'a [Property],
}

/// An optional operation that arrived.
#[derive(Clone, Copy, Debug)]
pub struct Operation<'a> {
    /// `rdma_xid`.
    pub xid: u32,
    /// `rdma_optdir`.
    pub direction: Direction,
    /// `rdma_credit`: asked for or granted, as its direction says.
    pub credits: u32,
    /// `rdma_opttype`, one of the extension's own.
    pub opttype: u32,
    /// `rdma_optinfo`.
    pub info: &'a Bytes,
    /// The whole message, header included, in the pieces of the receive buffer that it was placed
    /// in. One piece, unless this side built its buffers otherwise.
    pub message: &'a [Bytes],
    /// Where in `message` the payload starts, counted over all pieces.
    pub payload_at: usize,
}

impl Operation<'_> {
    /// Bytes that follow the header.
    #[must_use]
    pub fn payload_len(&self) -> usize {
        let len: usize = self.message.iter().map(Bytes::len).sum();
        len.saturating_sub(self.payload_at)
    }
}

/// Why an operation is not acted upon.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// It is not what its XDR definition says. The answer is RDMA2_ERR_BAD_HEADER.
    #[error("malformed operation: {0}")]
    Malformed(#[from] Malformed),
    /// The extension knows it and does not support it (section 3.1). The answer is
    /// RDMA2_ERR_INVAL_OPTION.
    #[error("operation not supported")]
    Unsupported,
    /// It is discarded silently, as what is wrong with replies is (RFC 8166, section 4.5).
    #[error("operation discarded: {0}")]
    Discard(&'static str),
}

/// What the peer takes in calls that a server sends to a client (RFC 8167).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Backward {
    /// None.
    None,
    /// Calls and replies without chunks.
    Inline,
    /// The same as in the forward direction.
    General,
}

/// What the base and the extensions know of both ends: what conveyance plans go by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConnectionLimits {
    /// Longest message to send, transport header included, bytes.
    pub inline_send: u32,
    /// Longest reply, bytes, where a call left no other way than to send more than
    /// [`ConnectionLimits::inline_send`]. Nothing while that is being settled with the peer: such a
    /// reply waits.
    pub reply_last_resort: Option<u32>,
    /// Longest message that the peer knows it may send, bytes.
    pub inline_receive: u32,
    /// Whether replies sent here may invalidate a handle of their calls.
    pub may_invalidate: bool,
    /// What a client that is the peer takes in backward calls.
    pub backward: Backward,
}

impl Default for ConnectionLimits {
    /// Without any extension (sections 2.3 and 4.2.2; RFC 8167, section 5.3).
    fn default() -> Self {
        Self {
            inline_send: DEFAULT_INLINE,
            reply_last_resort: Some(DEFAULT_INLINE),
            inline_receive: DEFAULT_INLINE,
            may_invalidate: false,
            backward: Backward::Inline,
        }
    }
}

/// One extension's state on one connection.
pub trait Extension: Any + fmt::Debug + Send {
    /// Its name, for logs and reasons.
    fn name(&self) -> &'static str;

    /// The `rdma_opttype` values that it owns. They never change.
    fn opttypes(&self) -> &[u32];

    /// What the peer should know of this side on behalf of this extension. Asked for once, before
    /// the connection begins; the extension that exchanges properties, if there is one, sends them.
    fn properties(&self) -> Vec<Property> {
        Vec::new()
    }

    /// The connection begins to speak version 2. What is sent now comes before any RPC message of
    /// this side, in the order in which the extensions were given. A client's first message must
    /// fit [`crate::limits::FIRST_MESSAGE_MAX`].
    fn connected(&mut self, start: &Start<'_>, out: &mut Outbox<'_>) {
        let _ = (start, out);
    }

    /// One of its operations arrived.
    ///
    /// # Errors
    /// [`Refusal`]: it is not acted upon, and the refusal says what the sender is told.
    fn received(&mut self, op: &Operation<'_>, out: &mut Outbox<'_>) -> Result<(), Refusal>;

    /// Any other message arrived, and is about to be acted upon by whoever is in charge of it.
    fn overheard(&mut self, header: &Header, out: &mut Outbox<'_>) {
        let _ = (header, out);
    }

    /// The peer answered with an error to something sent with [`Outbox::call`].
    fn refused(&mut self, xid: u32, error: ErrorBody, out: &mut Outbox<'_>) {
        let _ = (xid, error, out);
    }

    /// Another extension learnt this of the peer: at the beginning, or because it changed.
    fn learnt(&mut self, property: &Property, out: &mut Outbox<'_>) {
        let _ = (property, out);
    }

    /// What [`Outbox::replace_receives`] asked for is done: every receive that is posted is of this
    /// size at least.
    fn receives_replaced(&mut self, size: u32, out: &mut Outbox<'_>) {
        let _ = (size, out);
    }

    /// What [`Outbox::await_replies`] asked for is done: these calls are answered.
    fn replies_arrived(&mut self, calls: Calls, out: &mut Outbox<'_>) {
        let _ = (calls, out);
    }

    /// Changes the limits to what it knows.
    fn limits(&self, limits: &mut ConnectionLimits) {
        let _ = limits;
    }

    /// Whether it knows by now what the peer supports. A request that needs to know is held back
    /// until then; no other is.
    fn settled(&self) -> bool {
        true
    }

    /// Whether it keeps a part of an RPC message until the rest of it arrives. The engine closes a
    /// connection on which that lasts for too long.
    fn is_collecting(&self) -> bool {
        false
    }

    /// Its way of carrying RPC messages, if it has one.
    fn conveyor(&mut self) -> Option<&mut dyn Conveyor> {
        None
    }

    /// The connection has ended. Nothing can be sent any more.
    fn closed(&mut self) {}
}
