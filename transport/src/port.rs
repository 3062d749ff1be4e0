//! The seam between what is the same for every transport (calls, retransmission, dispatch, the
//! reply cache) and each transport (TCP, RDMA): a *port* holds connections and moves whole RPC
//! messages over them.

use std::io;
use std::net::SocketAddr;

use onc_rpc::Message;
use rdma::{Poller, Time};

use crate::ReplyRoom;

/// Something that takes part in a `Runtime`'s or server's poll loop.
pub trait Source {
    /// Joins the poll loop. Once, before anything is waited for.
    ///
    /// # Errors
    /// What the operating system refused.
    fn attach(&mut self, poller: Poller) -> io::Result<()>;

    /// A readiness event whose token is `first_token + local`; `closed` as for
    /// [`rdma::Device::ready`].
    fn ready(&mut self, local: usize, closed: bool);

    /// Makes progress. Returns whether anything happened that its user may want to look at.
    fn poll(&mut self, now: Time) -> bool;

    /// Asks to be woken through the poll loop. False: there is something to poll already.
    fn arm(&mut self) -> bool;

    /// When to poll next even if nothing becomes ready.
    fn next_deadline(&self) -> Option<Time>;

    /// Whether `poll` should look for arrivals without waiting to be told of them.
    fn set_busy_poll(&mut self, on: bool);
}

/// A connection of one port. Not reused while the port lives.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ConnId(pub u64);

/// Why a connection could not be made, or ended.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{reason}")]
pub struct Down {
    /// For the user.
    pub reason: String,
    /// False when trying again cannot help (the peer speaks another protocol).
    pub retry: bool,
    /// Whether the connection had been established.
    pub was_up: bool,
}

/// What happens on a client's port.
#[derive(Debug)]
pub enum ClientEvent {
    /// The connection is made.
    Up(ConnId),
    /// A whole RPC reply arrived. Its first word, the XID, is `xid`.
    Reply {
        /// Where.
        conn: ConnId,
        /// Of which call.
        xid: u32,
        /// The reply, from its XID on.
        message: Message,
    },
    /// This call failed for good; the connection may live on.
    Failed {
        /// Where.
        conn: ConnId,
        /// Which call.
        xid: u32,
        /// Why.
        error: crate::CallError,
    },
    /// The server calls (RFC 8167). Only where the port was told that calls are taken.
    Call {
        /// Where.
        conn: ConnId,
        /// Its mark, for [`ClientPort::reply`].
        token: u64,
        /// The call, from its XID on.
        message: Message,
    },
    /// The connection is gone, and with it every call on it that has not ended: the port has let
    /// go of their memory. Calling `open` again is up to the port's user.
    Down {
        /// Which.
        conn: ConnId,
        /// Why.
        down: Down,
    },
}

/// Connections to servers over one transport.
pub trait ClientPort: Source {
    /// Starts a connection; ends in [`ClientEvent::Up`] or [`ClientEvent::Down`].
    fn open(&mut self, remote: SocketAddr, now: Time) -> ConnId;

    /// Sends a call, now or when credits, queue space and the connection allow. `message` starts
    /// with `xid`, which no other call of this connection that has not ended has.
    fn submit(&mut self, conn: ConnId, xid: u32, message: Message, room: &ReplyRoom, now: Time);

    /// Nobody waits for this call any more. Its memory is let go of as soon as the peer cannot
    /// reach it; a late reply is dropped.
    fn cancel(&mut self, conn: ConnId, xid: u32);

    /// Sends the reply to a call of the server's, or drops the call when there is none to send.
    /// Every call is ended by this or by [`ClientEvent::Down`].
    fn reply(&mut self, conn: ConnId, token: u64, message: Option<Message>, now: Time);

    /// Memory for results that this transport can send without a copy.
    fn pool(&self) -> &rdma::Pool;

    /// Ends a connection in order. No event follows.
    fn close(&mut self, conn: ConnId);

    /// The next event.
    fn next_event(&mut self) -> Option<ClientEvent>;
}

/// What happens on a server's port.
#[derive(Debug)]
pub enum ServerEvent {
    /// A client connected.
    Up {
        /// Its connection.
        conn: ConnId,
        /// Its address.
        peer: SocketAddr,
    },
    /// A whole RPC call arrived, bulk items included.
    Call {
        /// Where.
        conn: ConnId,
        /// Its mark, for [`ServerPort::reply`]. (Not the XID: a peer can send that twice.)
        token: u64,
        /// The call, from its XID on.
        message: Message,
    },
    /// A client replied to a call made with [`ServerPort::call`].
    Reply {
        /// Where.
        conn: ConnId,
        /// Of which call.
        xid: u32,
        /// The reply, from its XID on.
        message: Message,
    },
    /// A call made with [`ServerPort::call`] failed; the connection may live on.
    Failed {
        /// Where.
        conn: ConnId,
        /// Which call.
        xid: u32,
        /// Why.
        error: crate::CallError,
    },
    /// The client is gone; replies to its calls are dropped from here on, and calls to it that have
    /// not ended, end with this.
    Down {
        /// Which connection.
        conn: ConnId,
        /// Why, for the log.
        reason: String,
    },
    /// The port hears of nobody any more, for good. Its connections have ended.
    Lost {
        /// Why.
        reason: String,
    },
}

/// A server's listeners and connections over one transport.
pub trait ServerPort: Source {
    /// Sends the reply to a call, or drops the call when there is none to send (a call that
    /// cannot be answered). Every call is ended by this or by [`ServerEvent::Down`].
    fn reply(&mut self, conn: ConnId, token: u64, message: Option<Message>, now: Time);

    /// Calls a client over the connection that it made (RFC 8167), now or when credits, queue space
    /// and the connection allow. `message` starts with `xid`, which no other call to this client
    /// that has not ended has, and which is not 0. The call ends with [`ServerEvent::Reply`],
    /// [`ServerEvent::Failed`], [`ServerEvent::Down`], [`ServerPort::close`] or
    /// [`ServerPort::cancel_call`].
    ///
    /// # Errors
    /// Why it is not made: it has ended with that.
    fn call(
        &mut self,
        conn: ConnId,
        xid: u32,
        message: Message,
        room: &ReplyRoom,
        now: Time,
    ) -> Result<(), crate::CallError>;

    /// Nobody waits for this call to a client any more. A late reply is dropped.
    fn cancel_call(&mut self, conn: ConnId, xid: u32);

    /// Ends a connection.
    fn close(&mut self, conn: ConnId);

    /// Memory for results that this transport can send without a copy. It counts for the connection.
    fn pool(&self, conn: ConnId) -> rdma::Pool;

    /// The lower-layer connection beneath a connection now; [`rdma::Carrier::Ended`] if there is none.
    fn carrier(&self, conn: ConnId) -> rdma::Carrier;

    /// Whether its connections are RDMA connections.
    fn is_rdma(&self) -> bool;

    /// The next event.
    fn next_event(&mut self) -> Option<ServerEvent>;
}
