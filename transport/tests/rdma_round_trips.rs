//! Tests of send-based placement and message continuation (rtrext-00) over fake devices: every
//! combination of features of both ends, at most one round trip, and no copy of bulk data.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod rdma_support;

use std::net::Ipv4Addr;

use bytes::Bytes;
use iwarp::{Iwarp, Options};
use rdma::Pool;
use rdma_support::fabric::attributes;
use rdma_support::{POOL, Pair, data, explicit, message, open, room, short, speaking};
use rpc_transport::rdma::{Choice, RdmaClientOptions, RdmaServerOptions, Version, Versions};
use rpc_transport::{ConnectionId, PollSource};
use rpcrdma_protocols::RoundTripFeatures;

const EACH: [&str; 4] = ["none", "ddp", "cont", "ddp+cont"];

fn options(client: &str, server: &str) -> (RdmaClientOptions, RdmaServerOptions) {
    let two = Version::TWO;
    let (mut ours, mut theirs) = speaking(Choice::Only(two), Versions::only(two));
    let parse = |text: &str| text.parse::<RoundTripFeatures>().unwrap();
    ours.common.protocols = rpcrdma_protocols::standard(&parse(client));
    theirs.common.protocols = rpcrdma_protocols::standard(&parse(server));
    (ours, theirs)
}

/// Makes calls with and without items, short and long in both directions.
#[track_caller]
fn every_shape(pair: &mut Pair, conn: ConnectionId) {
    pair.every_shape(conn);
    assert!(pair.down.is_empty() && pair.server_down.is_empty());
    let counters = pair.server.responder_counters(pair.server_up[0]).unwrap();
    assert_eq!(counters.errors_sent, 0, "there is room for every reply");
}

#[test]
fn all_pairings_carry_every_shape() {
    for client in EACH {
        for server in EACH {
            let (ours, theirs) = options(client, server);
            let (world, mut pair, conn) = Pair::echoing(ours, theirs);
            every_shape(&mut pair, conn);
            assert_eq!(world.borrow().overruns, 0, "{client} to {server}");
        }
    }
}

#[test]
fn all_pairings_of_one_way_each_carry_every_shape() {
    for client in [
        "ddp:send",
        "ddp:receive",
        "cont:send",
        "cont:receive+ddp:send",
    ] {
        for server in ["ddp:receive", "ddp:send+cont", "cont:receive", "ddp+cont"] {
            let (ours, theirs) = options(client, server);
            let (world, mut pair, conn) = Pair::echoing(ours, theirs);
            every_shape(&mut pair, conn);
            assert_eq!(world.borrow().overruns, 0, "{client} to {server}");
        }
    }
}

#[test]
fn pairings_work_over_iwarp() {
    for (client, server) in [
        ("ddp+cont", "ddp+cont"),
        ("ddp", "cont"),
        ("cont", "ddp+cont"),
    ] {
        let (ours, theirs) = options(client, server);
        let device = || Box::new(Iwarp::new(Options::default(), Pool::new(POOL)).unwrap());
        let address = (Ipv4Addr::LOCALHOST, 0).into();
        let mut pair = Pair::new(device(), ours, device(), theirs, address);
        pair.client.set_busy_poll(true);
        pair.server.set_busy_poll(true);
        pair.echo();
        let conn = pair.connect();
        every_shape(&mut pair, conn);
    }
}

/// Makes one call with an item of `there` bytes whose reply has an item of `back` bytes, after a
/// first call that exchanges characteristics. Returns the Sends, the other operations, and the
/// bytes copied except those of short messages.
fn one(client: &str, server: &str, there: usize, back: usize) -> (usize, usize, u64) {
    let (ours, theirs) = options(client, server);
    let (world, mut pair) = Pair::fake_with(ours, theirs, attributes());
    pair.answer_with(move |call| {
        let (xid, words, _) = open(call);
        let items = (back > 0 && xid == 2).then(|| data(xid, back));
        Some(rdma_support::reply(xid, words, items.as_slice()))
    });
    let conn = pair.connect();
    pair.call(conn, message(1, 0, &[]), &room(0, &[])).reply();
    let before = world.borrow().traffic.len();
    let items = (there > 0).then(|| data(2, there));
    let lens = (back > 0).then_some(back);
    let asked = message(2, 2, items.as_slice());
    let end = pair.call(conn, asked, &room(2, lens.as_slice())).reply();
    assert_eq!(
        open(&end).2.concat(),
        lens.map_or(Bytes::new(), |len| data(2, len))
    );
    let world = world.borrow();
    let sends = world.traffic.len() - before - explicit(&world);
    let copied = pair.client.copied_bytes() + pair.server.copied_bytes();
    let copied = copied.checked_sub(short(&world));
    (
        sends,
        explicit(&world),
        copied.expect("short ones are copied"),
    )
}

#[test]
fn a_short_item_takes_one_send_each_way_by_placement() {
    for len in [1000, 4096, 8192, 65_536] {
        assert_eq!(one("ddp", "ddp", len, 0), (2, 0, 0), "{len} bytes there");
        assert_eq!(one("ddp", "ddp", 0, len), (2, 0, 0), "{len} bytes back");
    }
}

#[test]
fn a_mebibyte_goes_in_sixteen_transmissions_and_nothing_else() {
    assert_eq!(one("ddp+cont", "ddp+cont", 1 << 20, 0), (17, 0, 0));
    assert_eq!(one("ddp+cont", "ddp+cont", 0, 1 << 20), (17, 0, 0));
}

#[test]
fn without_what_it_takes_at_the_peer_everything_goes_as_ever() {
    for (client, server) in [("none", "ddp+cont"), ("ddp+cont", "none"), ("none", "none")] {
        let (_, explicit, copied) = one(client, server, 1 << 20, 0);
        assert!(explicit > 0 && copied == 0, "{client} to {server}");
        let (_, explicit, copied) = one(client, server, 0, 1 << 20);
        assert!(explicit > 0 && copied == 0, "{client} to {server}");
    }
}
