//! The interface between versions of RPC-over-RDMA and their extensions: messages of extensions,
//! properties of the two ends, and transfer modes for RPC messages. No I/O and no clock.
//!
//! Both versions 2 have messages that belong to extensions: optional operations with a number
//! (`rdma_opttype`; version-two-01, section 3), and header types with a number (`rdma_htype`;
//! version-two-07, section 6). A version routes them by number, without knowing what they mean, and
//! reads and writes its own header. An extension gets and sends the fields after that, and knows no
//! version's header.
//!
//! An extension is a crate of its own. It implements [`Extension`] for its state on one connection,
//! lists the numbers that it owns, and is added to an [`Extensions`], which the connection engine
//! calls for every message. Everything is sans-IO: the extension is called when something happens,
//! and writes its requests to an [`Outbox`]. An extension that can also carry RPC messages in its
//! messages returns a [`TransferMode`] from [`Extension::transfer_mode`].
//!
//! The following is a complete extension. It sends this side's uptime to the peer and asks for the
//! peer's, once:
//! ```
//! use bytes::Bytes;
//! use rpcrdma_chunks::{Direction, Side};
//! use rpcrdma_extension::{
//!     Action, Extension, Extensions, Fields, Outbox, ReceivedMessage, Refusal, Start,
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
//!     fn numbers(&self) -> &[u32] {
//!         &[UPTIME]
//!     }
//!
//!     fn connected(&mut self, start: &Start<'_>, out: &mut Outbox<'_>) {
//!         if start.side == Side::Client {
//!             out.call(UPTIME, Bytes::copy_from_slice(&self.ours.to_be_bytes()));
//!         }
//!     }
//!
//!     fn received(
//!         &mut self,
//!         message: &ReceivedMessage<'_>,
//!         out: &mut Outbox<'_>,
//!     ) -> Result<(), Refusal> {
//!         let (uptime, _) = message.read(|fields| fields.u32())?;
//!         self.peers = Some(uptime);
//!         if message.direction == Direction::Call {
//!             out.reply(message.xid, UPTIME, Bytes::copy_from_slice(&self.ours.to_be_bytes()));
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
//! let Some(Action::Send(sent)) = client.next_action() else { panic!() };
//! // The version writes its header with the credits, and the number and the fields in it. At the
//! // other end it reads them from there:
//! let received = ReceivedMessage {
//!     number: sent.number,
//!     xid: sent.xid,
//!     direction: sent.direction,
//!     credits: 32,
//!     message: &[],
//!     fields: Fields::Delimited { fields: &sent.fields, payload_at: 0 },
//! };
//! server.connected(Some(received.heard()));
//! assert_eq!(server.received(&received), Ok(()));
//! assert!(matches!(server.next_action(), Some(Action::Send(reply)) if reply.xid == sent.xid));
//!
//! // A peer without it says that it does not support the message.
//! let mut without = Extensions::new(Side::Server, 900, vec![])?;
//! assert_eq!(without.received(&received), Err(Refusal::Unsupported));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! An extension is asked for limits, and for candidates to carry a message. It sees the headers of all
//! messages, unless it says that it need not ([`Extension::observes`]). Properties of the peer that
//! one extension learns are passed to the others, so that crates that do not know each other can rely on
//! the same exchange of properties. A plan of an extension ([`Planned`]) is a value that only this
//! extension looks into. Messages that one plain Send carries are offered only to an extension that
//! claims small calls ([`TransferMode::claims_small_calls`]); [`CallToPlan::in_one_message`] and
//! [`IncomingCall::in_one_message`] spare it the details. One that sends several of them together
//! returns a [`Batching`] from [`Extension::batching`]. Fields are written once, with their codec
//! ([`xdr`]).

#![forbid(unsafe_code)]

mod action;
pub mod agreed;
mod batch;
mod error;
mod factory;
pub mod layout;
mod limits;
mod message;
mod reassembly;
mod set;
mod transfer_mode;
pub mod xdr;

use std::any::Any;
use std::fmt;

use bytes::Bytes;
use rpcrdma_chunks::{Direction, Side};

pub use self::action::{Action, Calls, Outbox, OutgoingMessage};
pub use self::agreed::{AgreedFeature, AgreedFeatures, FeatureReason, FeatureValue};
pub use self::batch::{Batch, Batching, SmallMessages};
pub use self::error::PeerError;
pub use self::factory::{EndConfig, ExtensionFactory, made_by};
pub use self::limits::{
    ConnectionLimits, DEFAULT_INLINE, FIRST_MESSAGE_MAX, NotChanged, ReceiveChange,
    ReverseDirection,
};
pub use self::message::{Fields, Heard, Kind, ReceivedMessage, Refusal};
pub use self::reassembly::{
    BadItem, BadPayload, Following, ItemEntry, Miscounted, Part, Reassembly, Whole,
};
pub use self::set::{DuplicateNumber, ErrorAbout, Extensions, InProgress};
pub use self::transfer_mode::{
    CallCandidate, CallToPlan, Cost, IncomingCall, IncomingReply, NotTransferred, Planned,
    ReplyCandidate, ReplyCandidates, ReplyToPlan, TransferMode, Transferred, Transmission,
    Transmissions, Written,
};

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

/// Information for an extension when its connection begins to use the version.
#[derive(Clone, Copy, Debug)]
pub struct Start<'a> {
    /// The end of the connection that this is.
    pub side: Side,
    /// The client's first message in the version. `None` at the client, and if that message cannot be
    /// read; a [`Side::Server`] begins to use the version when that message arrives.
    pub opened_by: Option<Heard>,
    /// Properties of this side, from all its extensions.
    pub properties: &'a [Property],
}

/// The state of one extension on one connection.
pub trait Extension: Any + fmt::Debug + Send {
    /// Returns the extension's name, for logs and error texts.
    fn name(&self) -> &'static str;

    /// Returns the numbers of the messages that the extension owns: `rdma_opttype` in version 2 of
    /// 2016, `rdma_htype` in that of the working group. They never change.
    fn numbers(&self) -> &[u32];

    /// Returns the direction of messages with this number, if the number tells it. Needed where
    /// headers do not say it otherwise.
    fn direction(&self, number: u32) -> Option<Direction> {
        let _ = number;
        None
    }

    /// Returns whether a message with this number ends the RPC message that it is a part of. An
    /// extension that sends an RPC message in several parts tells the last one by its number, so
    /// that a version can discard the others of one that was refused.
    fn is_last_part(&self, number: u32) -> bool {
        let _ = number;
        true
    }

    /// Returns the properties of this side that the extension wants the peer to know. Called once,
    /// before the connection begins. The extension that exchanges properties, if there is one,
    /// sends them.
    fn properties(&self) -> Vec<Property> {
        Vec::new()
    }

    /// Called when the connection begins to use the version. Messages sent now precede every RPC
    /// message of this side, in the order of the extensions. A client's first message must fit the
    /// receives of version 1, 1024 bytes; if it asks the server for the version, those that follow
    /// wait for the answer.
    fn connected(&mut self, start: &Start<'_>, out: &mut Outbox<'_>) {
        let _ = (start, out);
    }

    /// Called when one of the extension's messages was received. An extension that keeps the message
    /// as a part of a longer one, and waits for the rest, calls [`Outbox::parts_follow`].
    ///
    /// # Errors
    /// [`Refusal`] if the message is not executed. Its variant decides which error is sent. If parts
    /// of the same message are held, the extension is told next that they are given up.
    fn received(
        &mut self,
        message: &ReceivedMessage<'_>,
        out: &mut Outbox<'_>,
    ) -> Result<(), Refusal>;

    /// Called instead of [`Extension::received`] when only the beginning of a message is here,
    /// because this side has no memory for the rest. An extension that carries calls in its messages
    /// refuses the call if its peer sends it again in another way after that, drops what it holds of
    /// the call, and returns true. Otherwise, the connection is closed.
    fn refuse_truncated(&mut self, message: &ReceivedMessage<'_>, out: &mut Outbox<'_>) -> bool {
        let _ = (message, out);
        false
    }

    /// Called when this side has no memory for the rest of a message of which the extension holds parts. An
    /// extension whose peer sends the call again in another way after that refuses it, drops the parts, and returns
    /// true. Otherwise, the connection is closed.
    fn refuse_parts(&mut self, out: &mut Outbox<'_>) -> bool {
        let _ = out;
        false
    }

    /// Returns whether [`Extension::observed`] has to be called, as it is by default. Asked once, before
    /// the connection begins: if no extension observes messages, those of the version cost nothing.
    fn observes(&self) -> bool {
        true
    }

    /// Called when any other message was received, before its owner or the version handles it.
    fn observed(&mut self, heard: &Heard, out: &mut Outbox<'_>) {
        let _ = (heard, out);
    }

    /// Called when the peer answered a message sent with [`Outbox::call`] with an error.
    fn refused(&mut self, xid: u32, error: PeerError, out: &mut Outbox<'_>) {
        let _ = (xid, error, out);
    }

    /// Returns whether a value is one of this property. An empty value stands for the default. What
    /// the extension does not know, and does not reject, is valid.
    fn is_valid(&self, property: &Property) -> bool {
        let _ = property;
        true
    }

    /// Called when the peer refused a message with properties of this end. It has applied none of that
    /// message, and its error does not say which of several messages that was.
    fn own_properties_refused(&mut self, out: &mut Outbox<'_>) {
        let _ = out;
    }

    /// Called when this end answers a message of the peer's property exchange with an error. No property of that
    /// message takes effect; properties in other messages of the exchange stay in effect.
    fn peer_properties_refused(&mut self, out: &mut Outbox<'_>) {
        let _ = out;
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

    /// Starts a change of the length of receives, if the extension is one that negotiates it.
    ///
    /// # Errors
    /// [`NotChanged`], with the reason. [`NotChanged::NotSupported`] is the default.
    fn change_receives(
        &mut self,
        change: ReceiveChange,
        out: &mut Outbox<'_>,
    ) -> Result<(), NotChanged> {
        let _ = (change, out);
        Err(NotChanged::NotSupported)
    }

    /// Adjusts the limits to what the extension knows of the connection.
    fn limits(&self, limits: &mut ConnectionLimits) {
        let _ = limits;
    }

    /// Lists the features of the extension that may be used at present, with the reasons, for users to
    /// read ([`agreed`]). `agreed` has those of the version and of the extensions that were added before;
    /// an extension replaces what it knows better.
    fn agreed(&self, side: Side, agreed: &mut AgreedFeatures) {
        let _ = (side, agreed);
    }

    /// Returns whether the extension knows what the peer supports. A request that depends on it is
    /// held back until then; other requests are not.
    fn knows_peer(&self) -> bool {
        true
    }

    /// Called when the parts of the message with this direction and XID are given up, for which the
    /// extension waits ([`Outbox::parts_follow`]): one of them was refused, or another message came
    /// between them. The extension drops what it holds of this message, and nothing else: if the other
    /// message is its own, [`Extension::received`] has been called with that before.
    fn parts_lost(&mut self, direction: Direction, xid: u32) {
        let _ = (direction, xid);
    }

    /// Returns how many bytes of memory the parts take that the extension holds while it waits for
    /// the rest of a message. A receive that is held counts with its whole length. The engine closes
    /// a connection that holds more than there is for it, or on which the rest does not arrive.
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

    /// Returns the extension's interface for sending several RPC messages together, if it has one. That
    /// never changes.
    fn batching(&mut self) -> Option<&mut dyn Batching> {
        None
    }

    /// Called when the connection has ended. Nothing can be sent any more.
    fn closed(&mut self) {}
}
