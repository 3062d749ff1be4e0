//! The events that a connection handles, and the actions that it asks its driver for.
//!
//! Events and actions are kept to about 100 bytes, because they are moved by value. A call that
//! needs no registration and has no call queued before it is planned, encoded and sent in one step.

use bytes::Bytes;
use onc_rpc::{Message, Segments};
use rdma::{Buf, Region, RemoteSegment, Stag};
use rpcrdma_negotiation::VersionDecision;
use rpcrdma_v1::PrivateData;

use crate::{CallError, ReceiveStructure};

/// Names the registration that an [`Action::Register`] asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct RegistrationId {
    pub(crate) call: usize,
    pub(crate) index: usize,
}

/// Names the RDMA Read that an [`Action::Read`] asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ReadId {
    pub(crate) call: usize,
    pub(crate) chunk: usize,
    pub(crate) piece: usize,
}

/// Names the receives that an [`Action::PostReceives`] asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ReceivesId(pub(crate) ReceivesFor);

/// The purpose of posted receives.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum ReceivesFor {
    /// The credits of the connection: they are posted before it is established.
    Connection,
    /// Replies to calls in the reverse direction (RFC 8167, section 4.3.2).
    Callbacks,
    /// The second and later messages of a reply in several transmissions (rtrext-00).
    Reply(usize),
}

/// Names a call that arrived, from [`Action::Deliver`] to
/// [`Connection::reply`](crate::Connection::reply). It is not the XID, which a peer can send twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct CallId(pub u64);

/// Something that happened on a connection.
#[derive(Debug)]
pub enum Event {
    /// The connection is established at a client, or the server is about to accept it: messages may
    /// arrive from now on.
    Established {
        /// What the peer sent in the connection manager's private data (RFC 8797): its
        /// [`Options::private_data`](crate::Options::private_data). `None` if it sent none.
        peer: Option<PrivateData>,
    },
    /// A message arrived and consumed a posted receive.
    Received {
        /// The message, in pieces. If bulk data is placed by Sends, there is one piece for each
        /// segment of the receive; otherwise the message may be divided anywhere.
        message: Segments,
        /// The handle that the sender of the message invalidated with it (Send With Invalidate).
        invalidated: Option<Stag>,
    },
    /// A message arrived and consumed a posted receive, but there is no memory to keep it: only its
    /// beginning is here. If it belongs to a call in messages of an extension that can refuse it,
    /// the call is refused, and the peer sends it again by the base protocol. Otherwise, the
    /// connection is closed.
    ReceivedTruncated {
        /// The beginning of the message. It includes the header, unless that is unusually long.
        beginning: Bytes,
        /// The handle that the sender of the message invalidated with it (Send With Invalidate).
        invalidated: Option<Stag>,
    },
    /// Answers [`Action::Register`].
    Registered {
        /// The registration, as named in the action.
        id: RegistrationId,
        /// The handle and its bounds, or why there is none.
        result: Result<RemoteSegment, String>,
    },
    /// Answers [`Action::Invalidate`] and [`Action::Reclaim`]: the peer can no longer reach the
    /// memory.
    Reclaimed {
        /// The registration, as named in the action.
        id: RegistrationId,
        /// The memory.
        region: Region,
    },
    /// Answers [`Action::PostReceives`].
    ReceivesPosted {
        /// The receives, as named in the action.
        id: ReceivesId,
        /// Whether the receives were posted. If there was not enough memory for all, none was.
        posted: bool,
    },
    /// Answers [`Action::ReplaceReceives`]: every posted receive has this structure.
    ReceivesReplaced(ReceiveStructure),
    /// Answers [`Action::Read`]: the data is in place.
    ReadDone {
        /// The RDMA Read, as named in the action.
        id: ReadId,
        /// The memory that it filled.
        sink: Buf,
    },
    /// The connection is lost, and the peer can reach none of its memory any longer. A loss during version
    /// negotiation is taken as the server's answer; [`Action::Decided`] follows. Replies that had arrived
    /// follow as well, after [`Action::Reclaim`] for the memory of their calls.
    Closed,
}

/// Something that the driver of a connection must do, in the order given.
#[derive(Debug)]
pub enum Action {
    /// Keep `count` further receives posted, or none of them if there is no memory for all;
    /// [`Event::ReceivesPosted`] answers. The driver reposts a receive after each message without
    /// another action. The structure of receives is [`Config::receives`](crate::Config::receives)
    /// until [`Action::ReplaceReceives`]. A driver whose connections share receives always answers that
    /// they are posted, and decides when to post them.
    PostReceives {
        /// Names the receives in the answer.
        id: ReceivesId,
        /// The number of receives.
        count: u32,
    },
    /// Do not repost the next `count` consumed receives, so that `count` fewer stay posted.
    ReleaseReceives {
        /// The number of receives.
        count: u32,
    },
    /// Replace each posted receive, after a message has consumed it, by one of this structure.
    /// [`Event::ReceivesReplaced`] answers when no old one is left.
    ReplaceReceives(ReceiveStructure),
    /// Register this memory for the peer; [`Event::Registered`] answers.
    Register {
        /// Names the registration in the answer.
        id: RegistrationId,
        /// The memory, and whether the peer may read or write it.
        region: Region,
    },
    /// Post a Local Invalidate of this handle, and take its memory back when that is done;
    /// [`Event::Reclaimed`] answers, with the region that was registered.
    Invalidate {
        /// Names the registration in the answer.
        id: RegistrationId,
        /// The handle.
        stag: Stag,
    },
    /// Take back the memory of this handle, which the peer has invalidated with a Send, or the end of the
    /// connection (after [`Event::Closed`], whatever was asked for before): no work request is needed. [`Event::Reclaimed`] answers, with the region that was registered.
    Reclaim {
        /// Names the registration in the answer.
        id: RegistrationId,
        /// The handle.
        stag: Stag,
    },
    /// Post a Send. Nothing answers.
    Send {
        /// The message: transport header and payload.
        gather: Segments,
        /// The peer's handle to invalidate with it.
        invalidate: Option<Stag>,
        /// Whether more Sends of the same RPC message follow. No other request may be posted
        /// between them.
        more: bool,
    },
    /// Post an RDMA Read; [`Event::ReadDone`] answers.
    Read {
        /// Names the RDMA Read in the answer.
        id: ReadId,
        /// The memory that the data is read into.
        sink: Buf,
        /// The peer's handle.
        stag: Stag,
        /// Tagged offset of the first byte.
        offset: u64,
    },
    /// Post an RDMA Write. Nothing answers.
    Write {
        /// The data.
        gather: Segments,
        /// The peer's handle.
        stag: Stag,
        /// Tagged offset of the first byte.
        offset: u64,
    },
    /// Execute this call of the peer's; [`Connection::reply`](crate::Connection::reply) answers.
    Deliver {
        /// Names the call in the answer.
        id: CallId,
        /// The RPC call from its XID on, all items in place.
        message: Message,
    },
    /// A call made with [`Connection::call`](crate::Connection::call) has ended. Nothing of it is
    /// registered any longer.
    Finished {
        /// The call's XID.
        xid: u32,
        /// The RPC reply from its XID on, or why there is none.
        result: Result<Message, CallError>,
    },
    /// The outcome of version negotiation: the version to speak, or that the connection must be
    /// closed or made again.
    Decided(VersionDecision),
    /// Version 1 was chosen because the server did not answer, or dropped the connection, in
    /// version 2. It now reports that it supports version 2 and not 1. Make the connection again,
    /// forget what was learnt about the server, and make the calls that have not ended again.
    Misjudged,
    /// Close the connection.
    Close {
        /// The reason for closing, for the log.
        reason: String,
    },
}

impl Action {
    /// Returns the action that sends a message of one buffer, which belongs to no chunk and no other
    /// message.
    pub(crate) fn plain_send(message: Bytes) -> Self {
        Self::Send {
            gather: Segments::from_iter([message]),
            invalidate: None,
            more: false,
        }
    }
}
