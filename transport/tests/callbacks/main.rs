//! Calls from server to client over the connection that the client made (RFC 8167), in both
//! versions, over devices in one process and over the software iWARP device. Tests that are named
//! after a section are in v2/MUSTS.md.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

#[path = "../rdma_support/mod.rs"]
mod rdma_support;

mod both_ways;
mod ends;
mod rules;

use std::cell::RefCell;
use std::net::Ipv4Addr;
use std::rc::Rc;

use bytes::Bytes;
use iwarp::{Iwarp, Options};
use onc_rpc::Message;
use rdma::Pool;
use rdma_support::fabric::{Traffic, World, attributes};
use rdma_support::{End, POOL, Pair, open, reply, speaking};
use rpc_transport::rdma::{
    CallbackOptions, Choice, RdmaClientOptions, RdmaServerOptions, Version, Versions,
};
use rpc_transport::{CallError, ConnectionId, PollSource, ReplyRoom, ServerTransport};

const CLIENT: usize = 0;
const SERVER: usize = 1;
const VERSIONS: [Version; 2] = [Version::ONE, Version::TWO];

/// Returns the options of both ends for one version, `credits` callbacks at a time, and callbacks
/// with or without chunks.
fn options(version: Version, credits: u32, chunks: bool) -> (RdmaClientOptions, RdmaServerOptions) {
    let (mut client, mut server) = speaking(Choice::Only(version), Versions::only(version));
    client.common.callbacks = CallbackOptions { credits, chunks };
    server.common.callbacks = CallbackOptions { credits, chunks };
    (client, server)
}

fn fakes(options: (RdmaClientOptions, RdmaServerOptions)) -> (Rc<RefCell<World>>, Pair) {
    let (client, server) = options;
    Pair::fake_with(client, server, attributes())
}

fn iwarp((client, server): (RdmaClientOptions, RdmaServerOptions)) -> Pair {
    let device = || Box::new(Iwarp::new(Options::default(), Pool::new(POOL)).unwrap());
    let address = (Ipv4Addr::LOCALHOST, 0).into();
    let mut pair = Pair::new(device(), client, device(), server, address);
    pair.client.set_busy_poll(true);
    pair.server.set_busy_poll(true);
    pair
}

/// Returns all messages that one side sent.
fn sent(world: &Rc<RefCell<World>>, by: usize) -> Vec<Bytes> {
    let world = world.borrow();
    let sends = world.traffic.iter().filter_map(|(from, what)| match what {
        Traffic::Send(bytes, _) if *from == by => Some(bytes.clone()),
        _ => None,
    });
    sends.collect()
}

impl Pair {
    /// Returns the server's identifier of the only connection.
    fn at_server(&self) -> ConnectionId {
        self.server_up[0]
    }

    fn try_call_back(&mut self, message: Message, room: &ReplyRoom) -> Result<(), CallError> {
        let (xid, ..) = open(&message);
        let (conn, now) = (self.at_server(), self.now());
        self.server.call(conn, xid, message, room, now)
    }

    #[track_caller]
    fn submit_back(&mut self, message: Message, room: &ReplyRoom) {
        self.try_call_back(message, room).unwrap();
    }

    /// Makes a callback and waits for its end.
    #[track_caller]
    fn call_back(&mut self, message: Message, room: &ReplyRoom) -> End {
        let (xid, ..) = open(&message);
        let conn = self.at_server();
        self.submit_back(message, room);
        self.until(|pair| pair.called_back.contains_key(&(conn, xid)));
        self.called_back.remove(&(conn, xid)).unwrap()
    }

    /// Makes the client answer callbacks with their own content.
    fn echo_back(&mut self) {
        self.answer_back = Some(Box::new(|call| {
            let (xid, words, items) = open(call);
            Some(reply(xid, words, &items))
        }));
    }

    /// Connects and completes one call; afterwards the server may make callbacks and has its
    /// credits.
    fn ready(&mut self) -> ConnectionId {
        let conn = self.connect();
        self.echo();
        self.echo_back();
        let none = ReplyRoom::default();
        self.call(conn, rdma_support::message(1 << 20, 0, &[]), &none)
            .reply();
        self.call_back(rdma_support::message(1 << 20, 0, &[]), &none)
            .reply();
        conn
    }
}
