//! Tests of the limit for the receives of all connections of a client ([`RdmaClientOptions::max_receive_memory`]).
#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod rdma_support;

use std::net::{Ipv4Addr, SocketAddr};

use iwarp::{Iwarp, Options};
use rdma::Pool;
use rdma_support::fabric::{FakeDevice, World, address, attributes};
use rdma_support::{POOL, Pair, data, message, options, room, speaking};
use rpc_transport::ClientTransport;
use rpc_transport::rdma::{
    Choice, RdmaClientOptions, RdmaServerOptions, Version, Versions, receive_memory,
};

/// Receives that fit into the limit, and calls whose replies are kept, of each connection.
const LIMITED: usize = 40;
const CALLS: u32 = 32;

fn placing() -> (RdmaClientOptions, RdmaServerOptions) {
    let (mut client, mut server) = speaking(Choice::Only(Version::TWO_WG), Versions::default());
    client.common.protocols = rpcrdma_protocols::standard(&"ddp+cont".parse().unwrap());
    server.common.protocols = rpcrdma_protocols::standard(&"ddp+cont".parse().unwrap());
    (client, server)
}

/// Returns the most bytes that the shared receives of a client with this limit take, while it keeps the replies of
/// several connections, whose data was placed in receives.
fn most_taken(limit: usize) -> usize {
    let (mut client, server) = placing();
    client.max_receive_memory = limit;
    let device = || Box::new(Iwarp::new(Options::default(), Pool::new(POOL)).unwrap());
    let address: SocketAddr = (Ipv4Addr::LOCALHOST, 0).into();
    let mut pair = Pair::new(device(), client, device(), server, address);
    pair.echo();
    let conns = [
        pair.connect(),
        pair.connect(),
        pair.connect(),
        pair.connect(),
    ];
    for xid in 0..CALLS {
        for conn in conns {
            let item = [data(xid, 20_000)];
            pair.submit(conn, message(xid, 2, &item), &room(2, &[20_000]));
        }
    }
    let all = conns.len() * CALLS as usize;
    pair.until(|pair| pair.ended.len() == all);
    pair.client.receives_taken() as usize
}

#[test]
fn shared_receives_of_a_client_stay_within_its_limit() {
    let each = receive_memory(&placing().0.common.longest_receives(|_| true));
    let limit = LIMITED * each;
    let (free, limited) = (most_taken(usize::MAX), most_taken(limit));
    assert!(free > limit, "{free} bytes without a limit of {limit}");
    assert!(limited <= limit, "{limited} bytes with a limit of {limit}");
}

#[test]
fn own_receives_of_a_client_stay_within_its_limit() {
    let (mut client, server) = options();
    client.max_receive_memory = 1 << 20;
    let world = World::new();
    let pool = Pool::new(POOL);
    let mut own = attributes();
    own.shared_receives = None;
    let device = FakeDevice::new(&world, own.clone(), pool.clone());
    let other = FakeDevice::new(&world, own, Pool::new(POOL));
    let mut pair = Pair::new(Box::new(device), client, Box::new(other), server, address());
    let mut made = 0;
    loop {
        let now = pair.now();
        let conn = pair.client.open(address(), 0, now);
        pair.settle();
        assert!(
            pair.client.receive_memory() <= 1 << 20,
            "{made} connections"
        );
        if !pair.up.contains(&conn) {
            break;
        }
        made += 1;
        assert!(made < 300, "none is refused");
    }
    assert!(made > 1, "{made} connections");
    assert!(pair.client.receive_memory() > 3 << 18, "most of it is used");
    let (_, lost) = pair.down.pop().unwrap();
    assert!(lost.retry && lost.reason.contains("receives"), "{lost:?}");
}
