//! Tests of calls over TCP from end to end: client, transports, server, workers.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod client_loops;
mod idle;
mod limits;
mod loops;
mod raw;
mod service;
mod shares;
mod trouble;

use std::cell::RefCell;
use std::rc::Rc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use onc_rpc::{AcceptStatus, Credential, Message};
use rdma::middleware::Shaper;
use rpc_transport::{
    CallError, Client, ClientOptions, ErrorReply, Runtime, ServerOptions, TcpClient, TcpOptions,
};

use service::*;

#[test]
fn many_sizes_come_back_over_one_connection_and_over_four() {
    let server = Running::start();
    for nconnect in [1, 4] {
        let runtime = Runtime::new().unwrap();
        let options = ClientOptions {
            nconnect,
            ..options()
        };
        let (client, port) = connect(&runtime, server.address, options).unwrap();
        let sizes = [
            0,
            1,
            3,
            4,
            100,
            4095,
            8192,
            8193,
            65_536,
            1_000_003,
            1 << 20,
        ];
        runtime.block_on(async {
            let mut calls: FuturesUnordered<_> = (0..80)
                .map(|seed| {
                    let data = pattern(seed, sizes[seed % sizes.len()]);
                    let call = client.call(echo(data.clone()));
                    async move { assert_eq!(echoed(&call.await.unwrap()), data) }
                })
                .collect();
            while calls.next().await.is_some() {}
        });
        let stats = client.stats();
        assert_eq!((stats.calls, stats.replies), (80, 80));
        assert_eq!((stats.retransmissions, stats.stray_replies), (0, 0));
        let counters = port.borrow().counters();
        assert_eq!((counters.sends, counters.receives), (80, 80));
        // Of long records the beginning is copied, of short ones all: what one receive stages.
        assert!(counters.copied_bytes <= 80 * 8192, "{counters:?}");
        assert!(counters.wire_bytes_received > 12 << 20);
    }
    assert_eq!(server.stop().calls, 160);
}

#[test]
fn a_small_call_costs_one_send_one_receive_and_one_interrupt() {
    let server = Running::start();
    let runtime = Runtime::new().unwrap();
    let (client, port) = connect(&runtime, server.address, options()).unwrap();
    let null = || runtime.block_on(client.call(call(NULL, Message::default())));
    null().unwrap();
    let before = port.borrow().counters();
    for _ in 0..100 {
        null().unwrap();
    }
    let after = port.borrow().counters();
    assert_eq!(after.sends - before.sends, 100);
    assert_eq!(after.send_calls - before.send_calls, 100);
    // Once a second it looks whether the connection has ended meanwhile.
    let receives = after.receive_calls - before.receive_calls;
    assert!((100..=102).contains(&receives), "{receives}");
    // A reply may be there before the client sleeps.
    assert!(after.interrupts - before.interrupts <= 100);
    assert_eq!(after.wire_bytes_sent - before.wire_bytes_sent, 100 * 44);
    assert_eq!(
        after.wire_bytes_received - before.wire_bytes_received,
        100 * 28
    );
}

#[test]
fn slow_calls_do_not_hold_up_fast_ones() {
    let server = Running::start();
    let runtime = Runtime::new().unwrap();
    let (client, _) = connect(&runtime, server.address, options()).unwrap();
    let slow: Vec<_> = (0..4).map(|_| client.call(number(SLEEP, 500))).collect();
    let start = Instant::now();
    let fast = runtime
        .block_on(client.call(echo(pattern(1, 100))))
        .unwrap();
    assert!(start.elapsed() < Duration::from_millis(450));
    assert!(fast.round_trip() < Duration::from_millis(450));
    for call in slow {
        let reply = runtime.block_on(call).unwrap();
        assert!(reply.round_trip() >= Duration::from_millis(500));
    }
}

#[test]
fn several_clients_and_busy_polling() {
    let server = Running::with(
        ([127, 0, 0, 1], 0).into(),
        Default::default(),
        TcpOptions::default(),
        ServerOptions {
            busy_poll: true,
            ..ServerOptions::default()
        },
    );
    let clients: Vec<_> = (0..3)
        .map(|seed| {
            let address = server.address;
            std::thread::spawn(move || {
                let runtime = Runtime::new().unwrap();
                runtime.set_busy_poll(seed == 0);
                let (client, _) = connect(&runtime, address, options()).unwrap();
                for at in 0..30 {
                    let data = pattern(seed * 100 + at, at * 3000);
                    let reply = runtime.block_on(client.call(echo(data.clone()))).unwrap();
                    assert_eq!(echoed(&reply), data);
                    if seed == 1 {
                        // What spinning leaves unwatched is watched again.
                        runtime.set_busy_poll(at % 2 == 0);
                    }
                }
            })
        })
        .collect();
    for client in clients {
        client.join().unwrap();
    }
}

#[test]
fn refusals_are_told_apart() {
    let server = Running::start();
    let runtime = Runtime::new().unwrap();
    let (client, _) = connect(&runtime, server.address, options()).unwrap();
    let refused = |call| match runtime.block_on(client.call(call)) {
        Err(CallError::Refused(denial)) => denial,
        other => panic!("{other:?}"),
    };
    let accepted = ErrorReply::Accepted;
    assert_eq!(
        refused(call(99, Message::default())),
        accepted(AcceptStatus::ProcUnavail)
    );
    assert_eq!(
        refused(call(ECHO, Message::default())),
        accepted(AcceptStatus::GarbageArgs)
    );
    let mut other = call(NULL, Message::default());
    other.vers = 9;
    let mismatch = AcceptStatus::ProgMismatch {
        low: VERS,
        high: VERS,
    };
    assert_eq!(refused(other.clone()), accepted(mismatch));
    other.prog = 1;
    assert_eq!(refused(other), accepted(AcceptStatus::ProgUnavail));
    for proc in [PANIC, PANIC_AT_ONCE] {
        let denial = refused(call(proc, Message::default()));
        assert_eq!(denial, accepted(AcceptStatus::SystemErr));
    }
    let null = client.call(call(NULL, Message::default()));
    assert!(runtime.block_on(null).is_ok(), "the server lives on");

    let foreign = ClientOptions {
        credential: Credential::Other {
            flavor: 6,
            body: Bytes::from_static(b"ticket"),
        },
        ..options()
    };
    let (client, _) = connect(&runtime, server.address, foreign).unwrap();
    let error = runtime
        .block_on(client.call(call(NULL, Message::default())))
        .unwrap_err();
    assert!(matches!(error, CallError::Refused(ErrorReply::Auth(_))));
}

/// Starts a server and connects to it, each behind a link with this delay.
fn behind_links(runtime: &Runtime, delay: Duration) -> (Running, Client) {
    let link = || TcpOptions {
        link: Some(Shaper::new(delay, None)),
        ..TcpOptions::default()
    };
    let server = Running::with(
        ([127, 0, 0, 1], 0).into(),
        Default::default(),
        link(),
        ServerOptions::default(),
    );
    let port = Rc::new(RefCell::new(TcpClient::new(link())));
    let connecting = Client::connect(runtime, server.address, port, options());
    let client = runtime.block_on(connecting).unwrap();
    (server, client)
}

#[test]
fn an_added_delay_is_a_round_trip_longer_and_no_more() {
    let delay = Duration::from_millis(5);
    let runtime = Runtime::new().unwrap();
    let (_server, client) = behind_links(&runtime, delay);
    let mut times: Vec<_> = (0..20)
        .map(|_| {
            let reply = runtime.block_on(client.call(echo(pattern(0, 50_000))));
            reply.unwrap().round_trip()
        })
        .collect();
    times.sort();
    assert!(times[0] >= 2 * delay, "{times:?}");
    // The quickest, because other processes may delay most of them.
    assert!(times[0] < 3 * delay, "{times:?}");
}

/// Regression test: a reply was delayed from the time at which its call had arrived, so that a link hid
/// what the server did meanwhile.
#[test]
fn a_delay_begins_when_a_message_is_made() {
    let (delay, work) = (Duration::from_millis(20), 30);
    let runtime = Runtime::new().unwrap();
    let (_server, client) = behind_links(&runtime, delay);
    let reply = runtime.block_on(client.call(number(STALL, work)));
    let took = reply.unwrap().round_trip();
    assert!(
        took >= 2 * delay + Duration::from_millis(work.into()),
        "{took:?}"
    );
}
