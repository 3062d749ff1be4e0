//! The interface between the code that is common to all transports (calls, retransmission,
//! dispatch, reply cache) and each transport (TCP, RDMA). A *transport* holds connections and
//! transfers whole RPC messages over them.

use std::net::SocketAddr;

use onc_rpc::Message;
use rdma::Time;
use rdma::trace::{Trace, Tracer};

use crate::{ConnectionId, PollSource, ReducedArguments, ReplyRoom, TransportStatistics};

/// The reason why a connection could not be established, or ended.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{reason}")]
pub struct ConnectionLost {
    /// The reason, in words for the user.
    pub reason: String,
    /// Whether another attempt may succeed. It cannot if, for example, the peer speaks another
    /// protocol.
    pub retry: bool,
    /// Whether the peer has no room for a connection at present. A client then repeats even its
    /// first attempt, which otherwise is final.
    pub busy: bool,
    /// Whether the connection had been established.
    pub was_established: bool,
}

/// An event on a client's transport.
#[derive(Debug)]
pub enum ClientTransportEvent {
    /// The connection is established.
    Connected(ConnectionId),
    /// A whole RPC reply arrived. Its first word, the XID, is `xid`.
    Reply {
        /// The connection that it arrived on.
        conn: ConnectionId,
        /// The XID of the call that it answers.
        xid: u32,
        /// The reply, starting with its XID.
        message: Message,
    },
    /// The call has failed for good. The connection may live on.
    Failed {
        /// The call's connection.
        conn: ConnectionId,
        /// The call's XID.
        xid: u32,
        /// The reason.
        error: crate::CallError,
    },
    /// The server calls (RFC 8167). Reported only by a transport that was configured to accept
    /// calls.
    Call {
        /// The connection that the call arrived on.
        conn: ConnectionId,
        /// The id of the call, for [`ClientTransport::reply`].
        token: u64,
        /// The call, starting with its XID.
        message: Message,
    },
    /// The connection has ended, and with it every outstanding call on it. The transport has
    /// released the memory of those calls. The transport does not reconnect; its user may call
    /// `open`.
    Disconnected {
        /// The connection.
        conn: ConnectionId,
        /// The reason.
        lost: ConnectionLost,
    },
}

impl ClientTransportEvent {
    /// Returns the connection that the event is about.
    pub(crate) fn conn(&self) -> ConnectionId {
        match self {
            Self::Connected(conn)
            | Self::Reply { conn, .. }
            | Self::Failed { conn, .. }
            | Self::Call { conn, .. }
            | Self::Disconnected { conn, .. } => *conn,
        }
    }

    /// Replaces the connection that the event is about.
    pub(crate) fn set_conn(&mut self, new: ConnectionId) {
        match self {
            Self::Connected(conn)
            | Self::Reply { conn, .. }
            | Self::Failed { conn, .. }
            | Self::Call { conn, .. }
            | Self::Disconnected { conn, .. } => *conn = new,
        }
    }
}

/// The connections of a client to servers over one transport.
pub trait ClientTransport: PollSource {
    /// Starts to connect. The attempt ends with [`ClientTransportEvent::Connected`] or
    /// [`ClientTransportEvent::Disconnected`]. `next_xid` is the XID of the next call: messages of the
    /// transport's own have XIDs far from it.
    fn open(&mut self, remote: SocketAddr, next_xid: u32, now: Time) -> ConnectionId;

    /// Sets the observer of calls on connections that are opened from now on. A transport that knows no
    /// parts of a call ignores it.
    fn set_tracer(&mut self, _tracer: Option<Tracer>) {}

    /// Sends a call, now or as soon as credits, queue space and the connection allow. `message`
    /// starts with `xid`, which no other outstanding call of this connection has.
    fn submit(
        &mut self,
        conn: ConnectionId,
        xid: u32,
        message: Message,
        room: &ReplyRoom,
        now: Time,
    );

    /// Cancels a call. Its memory is released as soon as the peer cannot access it any more. A late
    /// reply is dropped.
    fn cancel(&mut self, conn: ConnectionId, xid: u32);

    /// Sends the reply to a call from the server, or drops the call if `message` is `None`. Every
    /// call ends with this function or with [`ClientTransportEvent::Disconnected`].
    fn reply(&mut self, conn: ConnectionId, token: u64, message: Option<Message>, now: Time);

    /// Returns the memory pool for results that this transport can send without a copy.
    fn pool(&self) -> &rdma::Pool;

    /// Closes a connection gracefully. No event follows.
    fn close(&mut self, conn: ConnectionId);

    /// Returns the next event.
    fn next_event(&mut self) -> Option<ClientTransportEvent>;
}

/// An event on a server's transport.
#[derive(Debug)]
pub enum ServerTransportEvent {
    /// A client connected.
    Connected {
        /// The new connection.
        conn: ConnectionId,
        /// The client's address.
        peer: SocketAddr,
    },
    /// A whole RPC call arrived, bulk data included.
    Call {
        /// The connection that it arrived on.
        conn: ConnectionId,
        /// The id of the call, for [`ServerTransport::reply`]. (The XID would not do: a peer can
        /// send the same one twice.)
        token: u64,
        /// The call, starting with its XID.
        message: Message,
    },
    /// A client replied to a call made with [`ServerTransport::call`].
    Reply {
        /// The connection that it arrived on.
        conn: ConnectionId,
        /// The XID of the call that it answers.
        xid: u32,
        /// The reply, starting with its XID.
        message: Message,
    },
    /// A call made with [`ServerTransport::call`] failed. The connection may live on.
    Failed {
        /// The call's connection.
        conn: ConnectionId,
        /// The call's XID.
        xid: u32,
        /// The reason.
        error: crate::CallError,
    },
    /// The client is gone. Replies to its calls are dropped from here on, and outstanding calls to
    /// it end with this event.
    Disconnected {
        /// The connection.
        conn: ConnectionId,
        /// The reason, for the log.
        reason: String,
    },
    /// The transport can accept no connections any more, for good. Its connections have ended.
    Lost {
        /// The reason.
        reason: String,
    },
}

/// A server's listeners and connections over one transport.
pub trait ServerTransport: PollSource {
    /// Sends the reply to a call, or drops the call if `message` is `None` (a call that cannot be
    /// answered). Every call ends with this function or with
    /// [`ServerTransportEvent::Disconnected`].
    fn reply(&mut self, conn: ConnectionId, token: u64, message: Option<Message>, now: Time);

    /// Calls a client over the connection that it established (RFC 8167), now or as soon as
    /// credits, queue space and the connection allow. `message` starts with `xid`, which is not 0
    /// and which no other outstanding call to this client has. The call ends with
    /// [`ServerTransportEvent::Reply`], [`ServerTransportEvent::Failed`],
    /// [`ServerTransportEvent::Disconnected`], [`ServerTransport::close`] or
    /// [`ServerTransport::cancel_call`].
    ///
    /// # Errors
    /// The reason why the call is not made. The call has then ended.
    fn call(
        &mut self,
        conn: ConnectionId,
        xid: u32,
        message: Message,
        room: &ReplyRoom,
        now: Time,
    ) -> Result<(), crate::CallError>;

    /// Cancels a call to a client. A late reply is dropped.
    fn cancel_call(&mut self, conn: ConnectionId, xid: u32);

    /// Closes a connection at once. No event follows.
    fn close(&mut self, conn: ConnectionId);

    /// Closes a connection in order: the replies that were made leave first. Calls that arrive
    /// meanwhile may be dropped. Calls to the client that were not sent are cancelled, those with registered memory
    /// are waited for, and all others end with the connection. A further one may be refused. The owner calls this again
    /// whenever the loop has made progress, until [`ServerTransportEvent::Disconnected`] follows, and limits the time.
    /// Returns whether the replies have left this transport: those on their way in its device are told by
    /// [`ServerTransport::ending`].
    fn finish(&mut self, conn: ConnectionId, now: Time) -> bool;

    /// Returns what the connections that were closed still do in the transport's device. `Ended` by default, for a
    /// transport that reports [`ServerTransportEvent::Disconnected`] only then.
    fn ending(&self) -> rdma::Ending {
        rdma::Ending::Ended
    }

    /// Returns the memory pool for results that this transport can send without a copy. Its buffers
    /// are charged to the connection's account.
    fn pool(&self, conn: ConnectionId) -> rdma::Pool;

    /// Returns the lower-layer connection that carries `conn` now, or [`rdma::Carrier::Ended`] if
    /// there is none.
    fn carrier(&self, conn: ConnectionId) -> rdma::Carrier;

    /// Returns whether the transport's connections are RDMA connections.
    fn is_rdma(&self) -> bool;

    /// Returns what the transport has counted since its creation, and what it holds. Empty by default,
    /// for a transport that counts nothing.
    fn statistics(&self) -> TransportStatistics {
        TransportStatistics::default()
    }

    /// Returns whether the transport works only as long as the thread of its loop never changes its
    /// credentials ([`rdma::Attributes::keeps_credentials`]).
    fn keeps_credentials(&self) -> bool {
        false
    }

    /// Sets the admission of the transport's connections, before it is first polled. A transport
    /// that can tell a client that there is no room requests a place before it accepts a
    /// connection. For other transports, the server requests the place when a connection is
    /// reported.
    fn set_admission(&mut self, _admission: crate::Admission) {}

    /// Sets the observer of calls on connections accepted from now on. A transport that knows no parts of a
    /// call ignores it.
    fn set_trace(&mut self, _trace: Option<Trace>) {}

    /// Returns the observer of a connection's calls, if the transport traces them.
    fn tracer(&self, _conn: ConnectionId) -> Option<Tracer> {
        None
    }

    /// Returns the place of a connection that was reported, if the transport has asked for one.
    fn take_place(&mut self, _conn: ConnectionId) -> Option<crate::Place> {
        None
    }

    /// Sets which arguments of calls may be reduced, on connections accepted from now on.
    fn set_reduced_arguments(&mut self, _: ReducedArguments) {}

    /// Returns the next event.
    fn next_event(&mut self) -> Option<ServerTransportEvent>;
}
