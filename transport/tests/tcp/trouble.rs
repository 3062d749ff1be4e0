//! Tests of servers that die, hang or do not exist, and of calls that must not be executed twice.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use onc_rpc::Message;
use rpc_transport::{CallError, ClientOptions, Retry, Runtime, ServerOptions, TcpOptions};

use crate::service::*;

#[test]
fn a_refused_connection_is_told_at_once() {
    let unused = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = unused.local_addr().unwrap();
    drop(unused);
    let runtime = Runtime::new().unwrap();
    let start = Instant::now();
    let error = connect(&runtime, address, options()).unwrap_err();
    assert!(start.elapsed() < Duration::from_secs(2));
    let CallError::Connect { server, reason } = error else {
        panic!("{error:?}");
    };
    assert_eq!(server, address.to_string());
    assert!(reason.contains("refused"), "{reason}");
}

#[test]
fn calls_survive_servers_that_are_killed_and_started_again() {
    let count = Arc::new(AtomicU32::new(0));
    let start = |address| {
        let (tcp, options) = (TcpOptions::default(), ServerOptions::default());
        Running::with(address, Arc::clone(&count), tcp, options)
    };
    let mut server = start(([127, 0, 0, 1], 0).into());
    let address = server.address;
    let runtime = Runtime::new().unwrap();
    let options = ClientOptions {
        nconnect: 4,
        ..options()
    };
    let (client, _) = connect(&runtime, address, options).unwrap();
    for round in 0..3 {
        let mut calls: FuturesUnordered<_> = (0..40)
            .map(|at| {
                let data = pattern(at + round, at * 10_000);
                let call = client.call(echo(data.clone()));
                async move { assert_eq!(echoed(&call.await.unwrap()), data) }
            })
            .collect();
        // Some are answered, some are under way, some not sent when the server dies.
        runtime.block_on(async {
            for _ in 0..5 {
                calls.next().await;
            }
        });
        drop(server);
        let waiting = runtime.timeout(Duration::from_millis(30), async {
            while calls.next().await.is_some() {}
        });
        // Over, or not: what is not answered by now is made again.
        let _ = runtime.block_on(waiting);
        server = start(address);
        runtime.block_on(async { while calls.next().await.is_some() {} });
    }
    let stats = client.stats();
    assert_eq!((stats.calls, stats.replies), (120, 120));
    assert!(stats.reconnects >= 3, "{stats:?}");
}

#[test]
fn a_server_that_stays_away_ends_every_call() {
    let server = Running::start();
    let runtime = Runtime::new().unwrap();
    let options = ClientOptions {
        give_up_after: Duration::from_millis(200),
        ..options()
    };
    let (client, _) = connect(&runtime, server.address, options).unwrap();
    let calls: Vec<_> = (0..10).map(|_| client.call(number(SLEEP, 50))).collect();
    runtime.block_on(runtime.sleep(Duration::from_millis(5)));
    drop(server);
    for call in calls {
        let error = runtime.block_on(call).unwrap_err();
        assert!(matches!(&error, CallError::Connect { .. }), "{error:?}");
        assert!(error.to_string().contains("given up"), "{error}");
    }
}

/// Starts a TCP proxy that drops all its connections after each `lifetime`. The server sees one
/// address and new ports.
fn unreliable_proxy(server: SocketAddr, lifetime: Duration) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let pump = |mut from: TcpStream, mut to: TcpStream, until: Instant| {
        let tick = Some(Duration::from_millis(1));
        from.set_read_timeout(tick).unwrap();
        let mut buffer = [0; 4096];
        while Instant::now() < until {
            match from.read(&mut buffer) {
                Ok(0) => break,
                Ok(n) if to.write_all(&buffer[..n]).is_err() => break,
                Ok(_) => {}
                Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {}
                Err(_) => break,
            }
        }
        let _ = from.shutdown(std::net::Shutdown::Both);
        let _ = to.shutdown(std::net::Shutdown::Both);
    };
    std::thread::spawn(move || {
        for client in listener.incoming() {
            let client = client.unwrap();
            let server = TcpStream::connect(server).unwrap();
            // Small writes would wait for acknowledgements longer than the connections live.
            client.set_nodelay(true).unwrap();
            server.set_nodelay(true).unwrap();
            let until = Instant::now() + lifetime;
            let (back_from, back_to) = (server.try_clone().unwrap(), client.try_clone().unwrap());
            std::thread::spawn(move || pump(back_from, back_to, until));
            std::thread::spawn(move || pump(client, server, until));
        }
    });
    address
}

#[test]
fn what_must_not_be_executed_twice_is_not() {
    let count = Arc::new(AtomicU32::new(0));
    let server = Running::with(
        ([127, 0, 0, 1], 0).into(),
        Arc::clone(&count),
        TcpOptions::default(),
        ServerOptions::default(),
    );
    let proxy = unreliable_proxy(server.address, Duration::from_millis(20));
    let runtime = Runtime::new().unwrap();
    let options = ClientOptions {
        nconnect: 2,
        ..options()
    };
    let (client, _) = connect(&runtime, proxy, options).unwrap();
    // Each takes longer than a connection lives, so no reply is in time for the connection that
    // its call first came over.
    let mut seen = Vec::new();
    for _ in 0..5 {
        let calls: Vec<_> = (0..8)
            .map(|at| client.call(number(COUNT, 25 + at)))
            .collect();
        for call in calls {
            let reply = runtime.block_on(call).unwrap();
            seen.push(reply.results().u32().unwrap());
        }
    }
    seen.sort_unstable();
    assert_eq!(seen, (1..=40).collect::<Vec<_>>(), "each number once");
    assert_eq!(count.load(Ordering::SeqCst), 40);
    let retransmissions = client.stats().retransmissions;
    drop(client);
    let stats = server.stop();
    assert!(retransmissions >= 40);
    assert!(stats.joined > 0, "{stats:?}");
    assert!(
        stats.joined + stats.replayed <= retransmissions,
        "{stats:?}"
    );
}

/// Starts a server that accepts connections and never answers.
fn silent_server() -> (TcpListener, SocketAddr) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    (listener, address)
}

#[test]
fn a_soft_client_ends_its_calls_when_the_server_hangs() {
    let (_listener, address) = silent_server();
    let runtime = Runtime::new().unwrap();
    let options = ClientOptions {
        timeout: Duration::from_millis(40),
        retry: Retry::Soft { retransmissions: 2 },
        ..options()
    };
    let (client, _) = connect(&runtime, address, options).unwrap();
    let start = Instant::now();
    let result = runtime.block_on(client.call(call(NULL, Message::default())));
    assert!(
        matches!(result, Err(CallError::TimedOut { .. })),
        "{result:?}"
    );
    let took = start.elapsed();
    assert!(took >= Duration::from_millis(120), "{took:?}");
    assert!(took < Duration::from_secs(5), "{took:?}");
    let stats = client.stats();
    // Each time that the call is sent, its connection goes with it: three times, unless a busy machine
    // took most of a try for the next connection.
    assert_eq!(stats.overdue, stats.retransmissions + 1);
    let tries = if took < Duration::from_millis(140) {
        3..=3
    } else {
        1..=3
    };
    assert!(tries.contains(&stats.overdue), "{stats:?}");
}

#[test]
fn a_dropped_call_is_forgotten_and_its_late_reply_is_dropped() {
    let server = Running::start();
    let runtime = Runtime::new().unwrap();
    let (client, _) = connect(&runtime, server.address, options()).unwrap();
    let slow = client.call(number(SLEEP, 30));
    let waited = runtime.block_on(runtime.timeout(Duration::from_millis(5), slow));
    assert!(waited.is_err());
    let next = client.call(number(SLEEP, 60));
    assert!(runtime.block_on(next).is_ok());
    let stats = client.stats();
    assert_eq!((stats.calls, stats.replies, stats.stray_replies), (2, 1, 1));
}

#[test]
fn a_record_that_is_too_long_ends_its_calls_and_is_not_asked_for_again() {
    let server = Running::start();
    let runtime = Runtime::new().unwrap();
    let (client, _) = connect(&runtime, server.address, options()).unwrap();
    // The server takes no record of this length either, and says so by closing. The client then
    // retransmits until it gives up; here, the reply is what is too long.
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let thread = std::thread::spawn(move || {
        let (mut socket, _) = listener.accept().unwrap();
        let mut call = [0; 44];
        socket.read_exact(&mut call).unwrap();
        socket.write_all(&0xffff_ffff_u32.to_be_bytes()).unwrap();
        // Until the client closes.
        let _ = socket.read(&mut call);
    });
    let (other, _) = connect(&runtime, address, options()).unwrap();
    let result = runtime.block_on(other.call(call(NULL, Message::default())));
    assert!(matches!(result, Err(CallError::Protocol(_))), "{result:?}");
    thread.join().unwrap();
    let null = client.call(call(NULL, Message::default()));
    assert!(runtime.block_on(null).is_ok());
}
