//! Tests of receives that connections share, over the software iWARP device, which makes senders
//! wait while there are none.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod rdma_support;

use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use iwarp::{Iwarp, Options};
use rdma::{Attributes, Device, Pool, SharedReceives, WhenEmpty};
use rdma_support::fabric::{attributes, sharing};
use rdma_support::{POOL, Pair, data, message, open, reply, room, speaking};
use rpc_transport::rdma::{
    Choice, RdmaClientOptions, RdmaServerOptions, Version, Versions, receive_memory,
    shares_receives,
};
use rpc_transport::{ClientTransport, PollSource, ServerTransport};
use rpcrdma_host::Budget;

/// Versions with placement of bulk data.
const PLACING: [Version; 2] = [Version::TWO, Version::TWO_WG];

fn placing(version: Version) -> (RdmaClientOptions, RdmaServerOptions) {
    let (mut client, mut server) = speaking(Choice::Only(version), Versions::default());
    client.common.protocols = rpcrdma_protocols::standard(&"ddp+cont".parse().unwrap());
    server.common.protocols = rpcrdma_protocols::standard(&"ddp+cont".parse().unwrap());
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
        let each = receive_memory(&server.common.longest_receives(|_| true));
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
        let each = receive_memory(&server.common.longest_receives(|_| true));
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
fn receives_of_a_burst_are_given_back_without_traffic() {
    for version in PLACING {
        let mut pair = pair(placing(version));
        let conn = pair.connect();
        pair.settle();
        let before = pair.server_pool.in_use();
        for xid in 0..64 {
            let item = [data(xid, 20_000)];
            pair.submit(conn, message(xid, 2, &item), &room(2, &[]));
        }
        pair.until(|pair| pair.held.len() == 64);
        let most = pair.server_pool.in_use();
        assert!(most > before, "{version}: {most} after {before}");
        let now = pair.now();
        for (conn, token, call) in std::mem::take(&mut pair.held) {
            let (xid, words, _) = open(&call);
            drop(call);
            let answer = reply(xid, words, &[]);
            pair.server.reply(conn, token, Some(answer), now);
        }
        pair.until(|pair| pair.ended.len() == 64);
        for _ in 0..10 {
            pair.ahead += Duration::from_secs(1);
            pair.settle();
        }
        let left = pair.server_pool.in_use();
        assert!(left <= before, "{version}: {left}, {before} before");
    }
}

/// A connection whose messages hold more than its share of memory is closed if its version has no way to
/// refuse a call and have it sent in another transfer mode.
#[test]
fn a_connection_whose_messages_take_more_than_its_share_is_ended() {
    for version in [Version::TWO_WG] {
        let (client, mut server) = placing(version);
        server.max_receive_memory = 1;
        server.budget = Budget::new(256 << 10, 2);
        let mut pair = pair((client, server));
        pair.echo();
        let conn = pair.connect();
        pair.call(conn, message(u32::MAX, 0, &[]), &room(0, &[]))
            .reply();
        pair.answer = None;
        for xid in 0..2 {
            let item = [data(xid, 60_000)];
            pair.submit(conn, message(xid, 2, &item), &room(2, &[]));
        }
        pair.until(|pair| !pair.server_down.is_empty());
        let (_, reason) = &pair.server_down[0];
        assert!(reason.contains("share of memory"), "{version}: {reason}");
    }
}

/// The index of the server among fake devices.
const SERVER: usize = 1;

#[test]
fn messages_that_are_not_finished_are_ended_when_there_are_no_receives_for_others() {
    const LIMITED: usize = 40;
    let (client, mut server) = placing(Version::TWO);
    let each = receive_memory(&server.common.longest_receives(|_| true));
    server.max_receive_memory = LIMITED * each;
    let (world, mut pair) = Pair::fake_with(client, server, sharing(WhenEmpty::Waits));
    pair.echo();
    for _ in 0..LIMITED {
        pair.connect();
    }
    let mut rounds = 0;
    while !world.borrow_mut().begin_messages(SERVER) {
        rounds += 1;
        assert!(rounds < 10 * LIMITED, "receives are missing");
        pair.settle();
    }
    let step = Duration::from_millis(250);
    for _ in 0..7 {
        pair.ahead += step;
        pair.settle();
    }
    assert!(pair.server_down.is_empty(), "{:?}", pair.server_down);
    for _ in 0..3 {
        pair.ahead += step;
        pair.settle();
    }
    assert_eq!(pair.server_down.len(), LIMITED);
    let (_, reason) = &pair.server_down[0];
    assert!(reason.contains("not complete within"), "{reason}");
    let conn = pair.connect();
    pair.call(conn, message(1, 0, &[]), &room(0, &[])).reply();
}

#[test]
fn messages_that_find_no_receive_wait_and_none_is_lost() {
    for version in PLACING {
        let (client, mut server) = placing(version);
        let each = receive_memory(&server.common.longest_receives(|_| true));
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

/// Sends a burst of calls on each of three connections and answers them. Returns the number of messages that
/// waited for a receive, and the server's memory in use after two connections have been closed, in bytes.
fn waited_in_bursts(version: Version, when_empty: WhenEmpty) -> (usize, usize) {
    let (client, server) = placing(version);
    let (world, mut pair) = Pair::fake_with(client, server, sharing(when_empty));
    let conns = [pair.connect(), pair.connect(), pair.connect()];
    pair.settle();
    for conn in conns {
        for xid in 0..60 {
            pair.submit(conn, message(xid, 2, &[data(xid, 20_000)]), &room(2, &[]));
        }
    }
    pair.until(|pair| pair.held.len() == 180);
    let now = pair.now();
    for (conn, token, call) in std::mem::take(&mut pair.held) {
        let answer = reply(open(&call).0, 2, &[]);
        drop(call);
        pair.server.reply(conn, token, Some(answer), now);
    }
    pair.until(|pair| pair.ended.len() == 180);
    pair.client.close(conns[0]);
    pair.client.close(conns[1]);
    pair.settle();
    let waited = world.borrow().waited;
    (waited, pair.server_pool.in_use())
}

#[test]
fn no_sender_waits_where_that_may_end_its_connection() {
    for version in PLACING {
        let (waited, _) = waited_in_bursts(version, WhenEmpty::Waits);
        assert!(waited > 0, "{version}: the bursts are too small");
        let (waited, left) = waited_in_bursts(version, WhenEmpty::MayEndConnection);
        assert_eq!(waited, 0, "{version}");
        let each = receive_memory(&placing(version).1.common.longest_receives(|_| true));
        // For the last connection: its 64 credits, receives beyond them, and those of a pool without peers.
        assert!((64 * each..100 * each).contains(&left), "{version}: {left}");
    }
}

#[test]
fn lowered_grants_keep_senders_from_waiting_where_not_all_credits_can_be_covered() {
    for version in PLACING {
        let (client, mut server) = placing(version);
        // The credits of three connections are more than 192.
        server.max_receive_memory = 120 * receive_memory(&server.common.longest_receives(|_| true));
        let device = sharing(WhenEmpty::MayEndConnection);
        let (world, mut pair) = Pair::fake_with(client, server, device);
        let conns = [pair.connect(), pair.connect(), pair.connect()];
        pair.settle();
        let mut waited = Vec::new();
        for round in 1..=4 {
            for conn in conns {
                for call in 0..60 {
                    let xid = 100 * round + call;
                    pair.submit(conn, message(xid, 2, &[data(xid, 20)]), &room(2, &[]));
                }
            }
            while pair.ended.len() < 180 {
                let ended = pair.ended.len();
                pair.until(|pair| !pair.held.is_empty() || pair.ended.len() > ended);
                let now = pair.now();
                for (conn, token, call) in std::mem::take(&mut pair.held) {
                    let answer = reply(open(&call).0, 2, &[]);
                    pair.server.reply(conn, token, Some(answer), now);
                }
            }
            pair.ended.clear();
            pair.settle();
            waited.push(std::mem::take(&mut world.borrow_mut().waited));
        }
        assert!(waited[0] > 0, "{version}: the first burst is too small");
        assert_eq!(waited[3], 0, "{version}: {waited:?}");
    }
}

#[test]
fn receives_are_shared_only_where_a_sender_waits() {
    let few = Attributes {
        shared_receives: Some(SharedReceives {
            max_wr: 2,
            when_empty: WhenEmpty::Waits,
        }),
        ..attributes()
    };
    assert!(shares_receives(&sharing(WhenEmpty::Waits)));
    assert!(shares_receives(&sharing(WhenEmpty::MayEndConnection)));
    assert!(!shares_receives(&sharing(WhenEmpty::EndsConnection)));
    assert!(!shares_receives(&attributes()));
    assert!(!shares_receives(&few));
    let device = Iwarp::new(Options::default(), Pool::new(1 << 20)).unwrap();
    assert!(shares_receives(device.attributes()));
}
