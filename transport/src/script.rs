//! A client's transport of which a test is the other side.

use std::collections::VecDeque;
use std::io;
use std::net::SocketAddr;

use onc_rpc::Message;
use rdma::{Poller, Pool, Time};

use crate::{ClientTransport, ClientTransportEvent, ConnectionId, PollSource, ReplyRoom};

/// The first connection of a [`Script`].
pub(crate) const FIRST: ConnectionId = ConnectionId(100);

/// A transport that records the requests. It does nothing by itself: a test makes its events.
#[derive(Default)]
pub(crate) struct Script {
    pub(crate) events: VecDeque<ClientTransportEvent>,
    pub(crate) opened: Vec<ConnectionId>,
    pub(crate) next_xids: Vec<u32>,
    pub(crate) submitted: Vec<(ConnectionId, u32, Message)>,
    pub(crate) cancelled: Vec<(ConnectionId, u32)>,
    pub(crate) closed: Vec<ConnectionId>,
    /// The tokens of the calls of the server that were answered.
    pub(crate) replied: Vec<u64>,
    pub(crate) pool: Option<Pool>,
}

impl PollSource for Script {
    fn attach(&mut self, _poller: Poller) -> io::Result<()> {
        Ok(())
    }

    fn ready(&mut self, _local: usize, _closed: bool) {}

    fn poll(&mut self, _now: Time) -> bool {
        !self.events.is_empty()
    }

    fn arm(&mut self) -> bool {
        self.events.is_empty()
    }

    fn next_deadline(&self) -> Option<Time> {
        None
    }

    fn set_busy_poll(&mut self, _on: bool) {}
}

impl ClientTransport for Script {
    fn open(&mut self, _remote: SocketAddr, next_xid: u32, _now: Time) -> ConnectionId {
        self.next_xids.push(next_xid);
        let conn = ConnectionId(FIRST.0 + self.opened.len() as u64);
        self.opened.push(conn);
        conn
    }

    fn submit(
        &mut self,
        conn: ConnectionId,
        xid: u32,
        message: Message,
        _: &ReplyRoom,
        _now: Time,
    ) {
        self.submitted.push((conn, xid, message));
    }

    fn cancel(&mut self, conn: ConnectionId, xid: u32) {
        self.cancelled.push((conn, xid));
    }

    fn reply(&mut self, _: ConnectionId, token: u64, _: Option<Message>, _: Time) {
        self.replied.push(token);
    }

    fn pool(&self) -> &Pool {
        self.pool.as_ref().expect("no call is answered here")
    }

    fn close(&mut self, conn: ConnectionId) {
        self.closed.push(conn);
    }

    fn next_event(&mut self) -> Option<ClientTransportEvent> {
        self.events.pop_front()
    }
}
