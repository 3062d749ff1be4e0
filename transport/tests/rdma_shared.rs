//! Tests of receives that connections share, over the software iWARP device, which makes senders
//! wait while there are none.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod rdma_support;

use std::net::{Ipv4Addr, SocketAddr};

use iwarp::{Iwarp, Options};
use rdma::{Attributes, Device, Pool, SharedReceives, WhenEmpty};
use rdma_support::fabric::{attributes, sharing};
use rdma_support::{POOL, Pair, data, message, open, room, speaking};
use rpc_transport::rdma::{
    Choice, RdmaClientOptions, RdmaServerOptions, Version, Versions, shares_receives,
};
use rpc_transport::{ClientTransport, PollSource};

/// Versions with placement of bulk data.
const PLACING: [Version; 2] = [Version::Two, Version::TwoWg];

fn placing(version: Version) -> (RdmaClientOptions, RdmaServerOptions) {
    let (mut client, mut server) = speaking(Choice::Only(version), Versions::default());
    client.common.features = "ddp+cont".parse().unwrap();
    server.common.features = "ddp+cont".parse().unwrap();
    (client, server)
}

fn pair((client, server): (RdmaClientOptions, RdmaServerOptions)) -> Pair {
    let device = || Box::new(Iwarp::new(Options::default(), Pool::new(POOL)).unwrap());
    let address: SocketAddr = (Ipv4Addr::LOCALHOST, 0).into();
    let mut pair = Pair::new(device(), client, device(), server, address);
    pair.client.set_busy_poll(true);
    pair.server.set_busy_poll(true);
    pair
}

#[test]
fn idle_connections_take_no_receives_and_the_last_gives_all_back() {
    for version in PLACING {
        let (client, server) = placing(version);
        let each = server.common.longest_receives(true).memory();
        let mut pair = pair((client, server));
        let mut open = vec![pair.connect()];
        pair.settle();
        let first = pair.server_pool.in_use();
        assert!(first >= each, "{version}: {first}");
        open.extend((0..30).map(|_| pair.connect()));
        pair.settle();
        assert_eq!(pair.server_pool.in_use(), first, "{version}");
        for conn in open {
            pair.client.close(conn);
        }
        pair.until(|pair| (pair.client_pool.in_use(), pair.server_pool.in_use()) == (0, 0));
    }
}

#[test]
fn a_burst_posts_more_receives_but_no_more_than_the_limit() {
    for version in PLACING {
        let (client, mut server) = placing(version);
        let each = server.common.longest_receives(true).memory();
        server.max_receive_memory = 40 * each;
        let mut pair = pair((client, server));
        let conn = pair.connect();
        pair.settle();
        let before = pair.server_pool.in_use();
        // The calls are kept, and with them the receives that their data arrived in.
        for xid in 0..64 {
            let item = [data(xid, 20_000)];
            pair.submit(conn, message(xid, 2, &item), &room(2, &[20_000]));
        }
        pair.until(|pair| pair.held.len() == 64);
        let most = pair.server_pool.in_use();
        assert!(most > before, "{version}: {most} after {before}");
        assert!(most <= 40 * each, "{version}: {most}");
        let copied = pair.server.copied_bytes();
        assert!(
            copied > 20_000,
            "{version}: the rest was copied out: {copied}"
        );
        for (_, _, call) in &pair.held {
            let (xid, _, items) = open(call);
            assert_eq!(items, [data(xid, 20_000)], "{version}");
        }
    }
}

#[test]
fn messages_that_find_no_receive_wait_and_none_is_lost() {
    for version in PLACING {
        let (client, mut server) = placing(version);
        let each = server.common.longest_receives(true).memory();
        // The least that is posted is a fraction of what three clients may send at once.
        server.max_receive_memory = 1;
        let mut pair = pair((client, server));
        pair.echo();
        let conns = [pair.connect(), pair.connect(), pair.connect()];
        for xid in 0..100 {
            for conn in conns {
                let len = (xid as usize * 997) % 60_000;
                let item = [data(xid, len)];
                pair.submit(conn, message(xid, 2, &item), &room(2, &[len]));
            }
        }
        pair.until(|pair| pair.ended.len() == 300);
        for ((_, xid), end) in std::mem::take(&mut pair.ended) {
            let len = (xid as usize * 997) % 60_000;
            assert_eq!(open(&end.reply()), (xid, 2, vec![data(xid, len)]));
        }
        pair.settle();
        assert!(pair.server_pool.in_use() <= 4 * each, "{version}");
    }
}

#[test]
fn receives_are_shared_only_where_a_sender_waits() {
    let with = |when_empty, max_wr| Attributes {
        shared_receives: Some(SharedReceives { max_wr, when_empty }),
        ..attributes()
    };
    assert!(shares_receives(&sharing()));
    assert!(!shares_receives(&attributes()));
    assert!(!shares_receives(&with(WhenEmpty::EndsConnection, 4096)));
    assert!(!shares_receives(&with(WhenEmpty::Waits, 2)), "too few");
    let device = Iwarp::new(Options::default(), Pool::new(1 << 20)).unwrap();
    assert!(shares_receives(device.attributes()));
}
