//! The optional operations of a connection: messages that its extensions own.

use std::fmt;

use bytes::{BufMut as _, Bytes, BytesMut};
use onc_rpc::Segments;
use rdma::Stag;
use rpcrdma_chunks::Direction;
use rpcrdma_extension::layout::pad;
use rpcrdma_extension::{
    DuplicateNumber, Extension, Extensions, Heard, PeerError, ReceivedMessage, Refusal,
    Transmissions,
};

use super::{BadMessage, Dialect, ErrorMessage, Incoming};
use crate::Config;
use crate::shared::Shared;

/// The header of an operation to send.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OperationHeader {
    /// The XID: that of the RPC message that the operation carries or refers to, or one of its own.
    pub xid: u32,
    /// The credits that a call requests or a reply grants.
    pub credits: u32,
    /// Whether the operation is a call or a reply.
    pub direction: Direction,
    /// The number of the operation, one of [`Extension::numbers`].
    pub number: u32,
    /// The fields of the operation as XDR.
    pub fields: Bytes,
}

/// The operations of a dialect that has any ([`Dialect::operations`]).
///
/// An operation is a message with a number, a direction and fields of its own, which an extension
/// owns ([`rpcrdma_extension`]). The extension says what the operation means; this trait says
/// which extensions a connection has, and how the header of an operation is written. The opposite,
/// reading a header, is a part of [`Dialect::decode`], which passes every message to the
/// [`OperationRouter`].
///
/// In version 2 an operation is a message with the procedure RDMA2_OPTIONAL. A version that numbers
/// its control messages by header types uses those as numbers.
///
/// With operations, a connection learns the peer's properties from its extensions alone:
/// [`Extension::limits`] changes the limits with which messages are planned, and private data has
/// no effect. An extension sends the properties of this end when it is told that the connection
/// begins ([`Extension::connected`]), and reports new limits with
/// [`Outbox::limits_changed`](rpcrdma_extension::Outbox::limits_changed). An extension that
/// carries RPC messages in operations, in one Send or in several, has a
/// [`TransferMode`](rpcrdma_extension::TransferMode).
pub trait Operations: fmt::Debug + Send + Sync {
    /// Returns the extensions of a new connection with this configuration. A message may have one
    /// owner only, so no two of them may own the same number.
    fn extensions(&self, config: &Config) -> Vec<Box<dyn Extension>>;

    /// Appends the header of an operation. The payload of the operation, if it has one, follows.
    fn encode_operation(&self, out: &mut BytesMut, header: OperationHeader);
}

/// The extensions of one connection, to which its dialect passes every message that was received.
#[derive(Debug)]
pub struct OperationRouter {
    pub(crate) extensions: Extensions,
    /// The format of operations.
    format: &'static dyn Operations,
    /// The version number in error messages.
    version: u32,
    /// Whether the extensions know that the connection has begun.
    begun: bool,
    /// Whether a part of a message has arrived and the rest has not.
    pub(crate) collecting: bool,
    /// Whether any extension carries RPC messages.
    pub(crate) carries_messages: bool,
}

impl OperationRouter {
    /// Returns the extensions that `config` asks for, or `None` if the dialect has no operations.
    /// Operations that the extensions begin have XIDs from `first_xid` downwards.
    ///
    /// # Errors
    /// [`DuplicateNumber`]: two extensions own the same operation.
    pub(crate) fn new(
        config: &Config,
        dialect: &'static dyn Dialect,
        first_xid: u32,
    ) -> Result<Option<Box<Self>>, DuplicateNumber> {
        let Some(format) = dialect.operations() else {
            return Ok(None);
        };
        let list = format.extensions(config);
        let mut extensions = Extensions::new(config.role.side(), first_xid, list)?;
        let carries_messages = extensions.transfer_modes().next().is_some();
        Ok(Some(Box::new(Self {
            extensions,
            format,
            version: dialect.version().number(),
            begun: false,
            collecting: false,
            carries_messages,
        })))
    }

    /// Tells the extensions that the connection begins. `opened_by` is the peer's message, or `None`
    /// if this end sends first. Later calls have no effect.
    pub(crate) fn begin(&mut self, opened_by: Option<Heard>) {
        if !std::mem::replace(&mut self.begun, true) {
            self.extensions.connected(opened_by);
        }
    }

    /// Passes a message of an extension to its owner. Returns what has become of it.
    ///
    /// A dialect has to call this, [`OperationRouter::heard`] or [`OperationRouter::failed`] once for
    /// each message whose header it can read, in the order of arrival: the first message also tells
    /// a server's extensions that the connection begins.
    pub fn route(&mut self, message: &ReceivedMessage<'_>) -> Incoming {
        self.begin(Some(message.heard()));
        let done = self.extensions.received(message);
        self.collecting = self.extensions.is_collecting();
        let refusal = match done {
            Ok(()) => return Incoming::Operation(message.direction, Some(message.credits)),
            Err(refusal) => refusal,
        };
        let reason = refusal.to_string();
        if let Refusal::Unusable(_) = refusal {
            let xid = message.xid;
            return Incoming::Unusable { xid, reason };
        }
        let answer = refusal.answer().map(|error| ErrorMessage {
            xid: message.xid,
            version: self.version,
            error,
        });
        Incoming::Bad(message.direction, BadMessage { answer, reason })
    }

    /// Tells the extensions of a message that is none of theirs. The dialect goes on to decode it.
    pub fn heard(&mut self, heard: &Heard) {
        self.begin(Some(*heard));
        self.extensions.heard(heard);
        self.interrupted();
    }

    /// Passes an error to the extension that sent the message that it is about. Returns `None` if it
    /// is about a call, and the dialect goes on to decode it.
    pub fn failed(&mut self, heard: &Heard, error: PeerError) -> Option<Incoming> {
        self.begin(Some(*heard));
        let taken = self.extensions.failed(heard, error);
        self.interrupted();
        taken.then_some(Incoming::Operation(heard.direction, None))
    }

    /// Notes whether another message has ended a collection.
    fn interrupted(&mut self) {
        if self.collecting {
            self.collecting = self.extensions.is_collecting();
        }
    }

    /// Lets the owner of a truncated message refuse it. Returns false if it has no owner, or if its
    /// owner cannot refuse it.
    pub fn refuse_truncated(&mut self, message: &ReceivedMessage<'_>) -> bool {
        let is_refused = self.extensions.refuse_truncated(message);
        self.collecting = self.extensions.is_collecting();
        is_refused
    }

    /// Encodes the header of an operation.
    pub(crate) fn encode(&self, out: &mut BytesMut, header: OperationHeader) -> Bytes {
        self.format.encode_operation(out, header);
        out.split().freeze()
    }

    /// Returns the messages that an extension has divided an RPC message into, to be sent.
    pub(crate) fn group(&self, messages: Transmissions) -> Group {
        let format = self.format;
        Group { format, messages }
    }
}

/// Maximum length in bytes of a payload that is copied behind its header.
const SHORT: usize = 256;
/// Maximum length in bytes of padding that is written behind a header.
const SHORT_PADDING: u32 = 1024;

/// Returns a message whose header is in `headers`, in few pieces, because these are cheaper to send: short
/// payload and padding are put behind the header.
fn gather(
    headers: &mut BytesMut,
    mut payload: Segments,
    padding: u32,
    placed: Segments,
) -> Segments {
    if let [only] = &payload[..]
        && only.len() <= SHORT
    {
        headers.extend_from_slice(only);
        payload.clear();
    }
    if payload.is_empty() && padding <= SHORT_PADDING {
        headers.put_bytes(0, padding as usize);
    } else {
        pad(&mut payload, u64::from(padding));
    }
    payload.insert(0, headers.split().freeze());
    for piece in placed {
        payload.push(piece);
    }
    payload
}

/// The messages that carry one RPC message, in order. No other message is sent between them.
#[derive(Debug)]
pub(crate) struct Group {
    format: &'static dyn Operations,
    messages: Transmissions,
}

impl Group {
    /// Returns the number of messages.
    pub(crate) fn len(&self) -> usize {
        self.messages.len()
    }

    /// Returns the number of the first operation.
    pub(crate) fn first_type(&self) -> u32 {
        self.messages.first().map_or(0, |first| first.number)
    }

    /// Sends the messages. The last one invalidates a handle of the peer, if one is given.
    pub(crate) fn send(
        self,
        shared: &mut Shared,
        direction: Direction,
        xid: u32,
        mut invalidate: Option<Stag>,
    ) {
        let last = self.messages.len().saturating_sub(1);
        for (index, message) in self.messages.into_iter().enumerate() {
            let header = OperationHeader {
                xid,
                credits: shared.flow.credit_field(direction),
                direction,
                number: message.number,
                fields: message.fields,
            };
            self.format.encode_operation(&mut shared.headers, header);
            let gather = gather(
                &mut shared.headers,
                message.payload,
                message.padding,
                message.placed,
            );
            let invalidate = invalidate.take_if(|_| index == last);
            shared.push_send(direction, gather, invalidate, index < last);
        }
    }
}
