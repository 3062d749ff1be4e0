//! A client's connection and the one to the server that belongs to it.

use std::collections::VecDeque;
use std::net::SocketAddr;

use bytes::Bytes;
use onc_rpc::{BulkItem, Message};
use rdma::{Pool, Time};
use rpc_transport::{ConnectionId, ReplyRoom};
use rpcrdma_host::{Account, Charge};

use crate::calls::{Arrived, Calls};
use crate::outgoing::Origin;
use crate::reduction::{ReducedCall, Reducer};
use crate::traced::Traced;

/// Length in bytes from which pieces of a reply are charged to the client's account until they have left.
const CHARGED: usize = 4096;
/// Bytes of a reply beside its results: the RPC header with the longest verifier.
const REPLY_HEADER: usize = 424;

/// The addresses of a client's TCP connection: that of this end, and the client's. A client may come from one
/// port to several ports here, so its own address does not tell its connections apart.
pub(crate) type Ends = (SocketAddr, SocketAddr);

/// A call that is prepared and waits for memory for its reply.
#[derive(Debug)]
pub(crate) struct Ready {
    pub(crate) xid: u32,
    pub(crate) token: u64,
    pub(crate) reduced: ReducedCall,
}

/// A client's connection, and the one to the server. Each belongs to the other until it has ended.
#[derive(Debug)]
pub(crate) struct Pair {
    /// The index of the transport that the client has come by.
    pub(crate) transport: usize,
    pub(crate) origin: Origin,
    /// The ends of the client's connection, if it has come by TCP.
    pub(crate) ends: Option<Ends>,
    /// The client's connection, until it has ended.
    pub(crate) client: Option<ConnectionId>,
    /// The connection to the server, until it has ended.
    pub(crate) server: Option<ConnectionId>,
    pub(crate) reducer: Reducer,
    /// Calls of the client that have arrived and were not passed on, oldest first.
    pub(crate) waiting: VecDeque<Arrived>,
    /// The first of them, if it waits for memory.
    pub(crate) ready: Option<Ready>,
    /// Calls of the client that the server has not answered.
    pub(crate) forward: Calls,
    /// Calls of the server that the client has not answered.
    pub(crate) backward: Calls,
    /// Whether the client has made a call.
    pub(crate) has_called: bool,
    /// The time of its last call or, without any, of its connection.
    pub(crate) used: Time,
    /// Whether a reply to the server may still be on its way.
    pub(crate) replied_to_server: bool,
    /// The tracks of its calls.
    pub(crate) traced: Traced,
    /// The memory account of the client's connection.
    account: Option<Account>,
    /// Memory that is set aside for replies.
    reserved: Charge,
    /// When what is left of the pair is closed, once one side has ended.
    pub(crate) until: Option<Time>,
    /// The time of its entry among the timers.
    pub(crate) timer: Option<Time>,
}

impl Pair {
    pub(crate) fn new(
        (transport, client): (usize, ConnectionId),
        origin: Origin,
        reducer: Reducer,
        account: Option<Account>,
        now: Time,
    ) -> Self {
        Self {
            transport,
            origin,
            ends: None,
            client: Some(client),
            server: None,
            reducer,
            waiting: VecDeque::new(),
            ready: None,
            forward: Calls::default(),
            backward: Calls::default(),
            has_called: false,
            used: now,
            replied_to_server: false,
            traced: Traced::default(),
            reserved: Charge::new(account.clone()),
            account,
            until: None,
            timer: None,
        }
    }

    /// Returns the client's address.
    pub(crate) fn address(&self) -> SocketAddr {
        self.origin.address
    }

    /// Returns whether every call that arrived from the client was passed on and answered.
    pub(crate) fn has_answered(&self) -> bool {
        self.forward.is_empty() && self.ready.is_none() && self.waiting.is_empty()
    }

    /// Returns whether its client must not be closed to make room for another: calls are in progress.
    pub(crate) fn is_busy(&self) -> bool {
        self.client.is_some() && !(self.has_answered() && self.backward.is_empty())
    }

    /// Removes the calls of the client that were not passed on, oldest first. Returns the XID and the token of
    /// each.
    fn take_waiting(&mut self) -> Vec<(u32, u64)> {
        let ready = self.ready.take().map(|ready| (ready.xid, ready.token));
        let waiting = self.waiting.drain(..).map(|call| (call.xid, call.token));
        ready.into_iter().chain(waiting).collect()
    }

    /// Ends the calls of the client that are not answered. Returns the tokens of all their transmissions.
    pub(crate) fn end_forward(&mut self) -> Vec<u64> {
        let mut tokens = Vec::new();
        for (xid, of_call) in self.forward.take() {
            self.traced.replied(xid, true);
            self.traced.dropped(xid);
            tokens.extend(of_call);
        }
        tokens.extend(self.end_waiting());
        tokens
    }

    /// Ends the calls of the client that were not passed on. Returns the tokens of all their transmissions.
    pub(crate) fn end_waiting(&mut self) -> Vec<u64> {
        let mut tokens = Vec::new();
        for (xid, token) in self.take_waiting() {
            self.traced.dropped(xid);
            tokens.push(token);
        }
        tokens.extend(self.forward.take_later());
        tokens
    }

    /// Ends the calls of the server that are not answered. Returns the XID of each, and the tokens of its transmissions.
    pub(crate) fn end_backward(&mut self) -> Vec<(u32, Vec<u64>)> {
        let ended: Vec<_> = self.backward.take().collect();
        for &(xid, _) in &ended {
            self.traced.replied_back(xid, true);
            self.traced.dropped_back(xid);
        }
        ended
    }

    /// Sets memory for a reply aside, of so many bytes. Returns whether there is room for it. If nothing
    /// else is in progress, there always is: otherwise the call would wait for ever.
    pub(crate) fn reserve(&mut self, bytes: usize) -> bool {
        let room = self.account.as_ref().map_or(usize::MAX, Account::room);
        if !self.forward.is_empty() && room < bytes {
            return false;
        }
        self.reserved.add(bytes);
        true
    }

    /// Releases memory that was set aside.
    pub(crate) fn release(&mut self, bytes: usize) {
        self.reserved.sub(bytes);
    }

    /// Releases all memory that was set aside.
    pub(crate) fn release_all(&mut self) {
        self.reserved = Charge::new(self.account.clone());
    }

    /// Charges a reply to the client's connection until it has left. Nothing is copied.
    pub(crate) fn charged(&self, reply: Message) -> Message {
        let Some(account) = &self.account else {
            return reply;
        };
        let is_long = |piece: &Bytes| piece.len() >= CHARGED;
        let pieces = reply.items().iter().flat_map(|item| item.data.pieces());
        if !reply.payload().iter().chain(pieces).any(is_long) {
            return reply;
        }
        let charge = |piece: &Bytes| match is_long(piece) {
            true => account.hold(piece.clone()),
            false => piece.clone(),
        };
        let items = reply.items().iter().map(|item| BulkItem {
            position: item.position,
            data: item.data.pieces().iter().map(charge).collect(),
        });
        Message::new(reply.payload().iter().map(charge).collect(), items)
            .with_extras(reply.extras().clone())
    }
}

/// Returns the memory that a reply takes at most, bytes.
pub(crate) fn reply_bytes(room: &ReplyRoom) -> usize {
    let items = room.items.iter().map(|len| Pool::block_size(*len as usize));
    let items = items.sum::<usize>();
    Pool::block_size(REPLY_HEADER + room.payload as usize) + items
}
