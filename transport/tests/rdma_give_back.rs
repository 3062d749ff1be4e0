//! Memory that connections needed for a burst of calls, and that a server gives back when they are quiet again.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod rdma_support;

use std::net::Ipv4Addr;
use std::time::Duration;

use iwarp::{Iwarp, Options};
use peak_alloc::PeakAlloc;
use rdma::Pool;
use rdma_support::{POOL, Pair, message, open, options, reply, room};
use rpc_transport::rdma::receive_memory;
use rpc_transport::{PollSource, ServerTransport};

#[global_allocator]
static ALLOCATED: PeakAlloc = PeakAlloc;

const CONNECTIONS: usize = 20;
const CALLS: u32 = 100;
const INTERVAL: Duration = Duration::from_secs(10);

/// Returns a device whose pool returns free memory at once.
fn device() -> Box<Iwarp> {
    Box::new(Iwarp::new(Options::default(), Pool::keeping(POOL, 0)).unwrap())
}

#[test]
fn what_a_burst_of_calls_needed_is_given_back_when_connections_are_quiet() {
    let (mut client, mut server) = options();
    client.common.credits = CALLS;
    server.common.credits = CALLS;
    server.give_back_after = Some(INTERVAL);
    let receive = receive_memory(&server.common.longest_receives(|_| true));
    let anywhere = (Ipv4Addr::LOCALHOST, 0).into();
    let mut pair = Pair::new(device(), client, device(), server, anywhere);
    pair.client.set_busy_poll(true);
    pair.server.set_busy_poll(true);
    let connections: Vec<_> = (0..CONNECTIONS).map(|_| pair.connect()).collect();
    // The first reply grants the credits.
    pair.echo();
    for conn in &connections {
        pair.call(*conn, message(CALLS, 2, &[]), &room(2, &[]))
            .reply();
    }
    pair.answer = None;
    for conn in &connections {
        for xid in 0..CALLS {
            pair.submit(*conn, message(xid, 2, &[]), &room(2, &[]));
        }
    }
    let calls = CONNECTIONS * CALLS as usize;
    pair.until(|pair| pair.held.len() == calls);
    let now = pair.now();
    for (conn, token, call) in std::mem::take(&mut pair.held) {
        let (xid, ..) = open(&call);
        let answer = Some(reply(xid, 0, &[]));
        pair.server.reply(conn, token, answer, now);
    }
    pair.until(|pair| pair.ended.len() == calls);
    pair.ended.clear();
    // Without the receives that all connections share.
    let pool = pair.server_pool.clone();
    let used = |receives| ALLOCATED.current_usage() - receives;
    let with = used(pool.in_use());
    let mut now = pair.now();
    // Only the server is polled from now on, so that what changes is its memory. The number of receives is halved after
    // each second.
    for _ in 0..30 {
        now = now + Duration::from_secs(1);
        pair.server.poll(now);
    }
    assert!(pool.in_use() <= 16 * receive, "{pool:?}");
    let freed = with.saturating_sub(used(pool.in_use())) / CONNECTIONS;
    assert!(freed >= 24 << 10, "{freed} bytes of each connection");
    // Nobody looks any more: there is nothing to free.
    let next = pair.server.next_deadline();
    assert!(
        next.is_none_or(|next| next > now + 2 * INTERVAL),
        "{next:?} at {now:?}"
    );
}
