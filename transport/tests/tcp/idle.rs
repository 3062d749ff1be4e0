//! Tests of clients that vanish or are idle: the server releases their resources, and idle clients
//! are served when they call again.

use std::cell::RefCell;
use std::io::{ErrorKind, Write};
use std::net::{Ipv4Addr, SocketAddr};
use std::rc::Rc;
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use iwarp::{Iwarp, Options};
use onc_rpc::{Message, record};
use rdma::Pool;
use rpc_transport::rdma::{RdmaClient, RdmaClientOptions, RdmaServer, RdmaServerOptions};
use rpc_transport::{Client, ClientStats, Runtime, Server, ServerOptions, Stop, TcpOptions};

use crate::raw::{framed, is_closed, raw};
use crate::service::*;

/// The idle time-out. It is long, so that a pause of a quarter of it does not exceed it on a busy
/// machine.
const IDLE: Duration = Duration::from_millis(500);

fn impatient() -> ServerOptions {
    ServerOptions {
        idle_timeout: IDLE,
        ..ServerOptions::default()
    }
}

fn server(tcp: TcpOptions, options: ServerOptions) -> Running {
    Running::with(
        (Ipv4Addr::LOCALHOST, 0).into(),
        Default::default(),
        tcp,
        options,
    )
}

/// Calls, does nothing until the server has closed the connections, and calls again.
fn call_idle_and_call(runtime: &Runtime, client: &Client, pool: &Pool) -> ClientStats {
    let null = || call(NULL, Message::default());
    runtime.block_on(client.call(null())).unwrap();
    // Shorter pauses do no harm.
    for _ in 0..6 {
        runtime.block_on(runtime.sleep(IDLE / 4));
        runtime.block_on(client.call(null())).unwrap();
        assert_eq!(client.stats().reconnects, 0);
    }
    // A call that takes longer is no idleness.
    let long = client.call(number(SLEEP, 2 * IDLE.as_millis() as u32));
    runtime.block_on(long).unwrap();
    assert_eq!(client.stats().reconnects, 0);
    let start = Instant::now();
    runtime.block_on(async {
        runtime.sleep(2 * IDLE).await;
        while pool.in_use() > 0 {
            assert!(start.elapsed() < Duration::from_secs(10), "{pool:?}");
            runtime.sleep(IDLE / 10).await;
        }
    });
    runtime.block_on(client.call(null())).unwrap();
    client.stats()
}

#[test]
fn an_idle_tcp_connection_is_closed_and_made_again_by_the_next_call() {
    let pool = Pool::new(64 << 20);
    let tcp = TcpOptions {
        pool: pool.clone(),
        ..TcpOptions::default()
    };
    let server = server(tcp, impatient());
    let runtime = Runtime::new().unwrap();
    let (client, _) = connect(&runtime, server.address, options()).unwrap();
    let stats = call_idle_and_call(&runtime, &client, &pool);
    assert_eq!((stats.reconnects, stats.retransmissions), (1, 0));
    assert_eq!(stats.replies, stats.calls);
    drop(client);
    assert_eq!(server.stop().idle, 1);
}

#[test]
fn an_idle_rdma_connection_is_closed_in_order_and_its_memory_comes_back() {
    let pool = Pool::new(64 << 20);
    let (theirs, stop) = (pool.clone(), Stop::new());
    let (tell, address) = mpsc::channel::<SocketAddr>();
    let stopped = stop.clone();
    let thread = thread::spawn(move || {
        let device = Iwarp::new(Options::default(), theirs).unwrap();
        let mut port = RdmaServer::new(
            Box::new(device),
            RdmaServerOptions::new(rpcrdma_protocols::base()),
        );
        let address = port.listen((Ipv4Addr::LOCALHOST, 0).into()).unwrap();
        let service = Echo {
            count: Default::default(),
        };
        let mut server = Server::new(Box::new(service), impatient()).unwrap();
        server.add_transport(Rc::new(RefCell::new(port))).unwrap();
        tell.send(address).unwrap();
        server.run(&stopped).unwrap();
        server.stats()
    });
    let runtime = Runtime::new().unwrap();
    let device = Iwarp::new(Options::default(), Pool::new(64 << 20)).unwrap();
    let port = RdmaClient::new(
        Box::new(device),
        RdmaClientOptions::new(rpcrdma_protocols::base()),
    );
    let port = Rc::new(RefCell::new(port));
    let address = address.recv().unwrap();
    let connecting = Client::connect(&runtime, address, port, options());
    let client = runtime.block_on(connecting).unwrap();
    let stats = call_idle_and_call(&runtime, &client, &pool);
    assert_eq!((stats.reconnects, stats.retransmissions), (1, 0));
    assert!(pool.in_use() > 0, "receives of the new connection");
    drop(client);
    stop.stop();
    assert_eq!(thread.join().unwrap().idle, 1);
}

/// Returns whether the error means that a write found no space in the socket buffer within its
/// time-out.
fn is_full(error: &std::io::Error) -> bool {
    matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut)
}

/// A client whose kernel acknowledges data, but which never reads from its socket, loses its
/// connection.
#[test]
fn a_peer_that_stops_reading_loses_its_place() {
    let pool = Pool::new(64 << 20);
    let tcp = TcpOptions {
        pool: pool.clone(),
        ..TcpOptions::default()
    };
    let limited = ServerOptions {
        max_connections: 1,
        ..impatient()
    };
    let server = server(tcp, limited);
    let mut silent = raw(server.address);
    silent.set_write_timeout(Some(IDLE / 10)).unwrap();
    let data = pattern(1, 1 << 20);
    let (start, mut waiting) = (Instant::now(), 0);
    // It calls for as long as it can, so that it does not matter how slow the server is: that takes
    // calls until their replies find no room, and then nothing goes on until the connection is
    // lost.
    let lost = 'calls: {
        for xid in 0.. {
            let call = framed(&called(xid, echo(data.clone())));
            let mut rest = &call[..];
            while !rest.is_empty() {
                match silent.write(rest) {
                    Ok(written) => rest = &rest[written..],
                    Err(error) if is_full(&error) => {
                        waiting = waiting.max(pool.in_use());
                        assert!(start.elapsed() < Duration::from_secs(60), "{pool:?}");
                    }
                    Err(error) => break 'calls error,
                }
            }
        }
        unreachable!("a server that takes everything");
    };
    let kind = lost.kind();
    assert!(
        matches!(kind, ErrorKind::ConnectionReset | ErrorKind::BrokenPipe),
        "{lost}"
    );
    assert!(
        waiting > data.len(),
        "replies wait for room in the socket: {waiting}"
    );
    let closed = Instant::now();
    while pool.in_use() > 0 {
        assert!(closed.elapsed() < Duration::from_secs(10), "{pool:?}");
        thread::sleep(IDLE / 10);
    }
    let runtime = Runtime::new().unwrap();
    let (client, _) = connect(&runtime, server.address, options()).unwrap();
    let null = call(NULL, Message::default());
    runtime.block_on(client.call(null)).unwrap();
    assert_eq!(client.stats().reconnects, 0, "the place was free");
}

#[test]
fn a_record_that_stands_still_is_given_up_and_one_that_goes_on_is_not() {
    let tcp = TcpOptions {
        record_timeout: IDLE,
        ..TcpOptions::default()
    };
    let server = server(tcp, ServerOptions::default());
    let record = framed(&called(7, echo(pattern(1, 100_000))));
    let mut slow = raw(server.address);
    for piece in record.chunks(20_000) {
        slow.write_all(piece).unwrap();
        thread::sleep(IDLE / 4);
    }
    let mut reply = vec![0; 32 + 100_000];
    std::io::Read::read_exact(&mut slow, &mut reply).unwrap();
    assert_eq!(reply[4..8], 7_u32.to_be_bytes());
    for len in [2, 4, 100, 50_000] {
        let mut still = raw(server.address);
        still.write_all(&record[..len]).unwrap();
        let start = Instant::now();
        assert!(is_closed(&mut still), "after {len} bytes");
        let after = start.elapsed();
        assert!(after > IDLE / 2 && after < 10 * IDLE, "{after:?}");
    }
    // Between records, silence is allowed for as long as the idle time-out says.
    slow.write_all(&record).unwrap();
    std::io::Read::read_exact(&mut slow, &mut reply).unwrap();
}

/// A client that sends only a record mark of four bytes does not reserve the memory of the
/// announced record, even if many clients do so.
#[test]
fn announced_records_do_not_take_up_the_pool() {
    const LONG: u32 = 1 << 20;
    let pool = Pool::new(16 << 20);
    let tcp = TcpOptions {
        pool: pool.clone(),
        ..TcpOptions::default()
    };
    let server = server(tcp, ServerOptions::default());
    let crowd: Vec<_> = (0..100)
        .map(|_| {
            let mut socket = raw(server.address);
            socket
                .write_all(&record::header(u64::from(LONG)).unwrap())
                .unwrap();
            socket
        })
        .collect();
    thread::sleep(Duration::from_millis(100));
    // A quarter on the word of the marks, and little for each of the rest.
    assert!(pool.in_use() <= 8 << 20, "{pool:?}");
    let runtime = Runtime::new().unwrap();
    let (client, _) = connect(&runtime, server.address, options()).unwrap();
    for seed in 0..4 {
        let data = pattern(seed, 1_000_000);
        let reply = runtime.block_on(client.call(echo(data.clone()))).unwrap();
        assert_eq!(echoed(&reply), data);
    }
    assert_eq!(client.stats().retransmissions, 0);
    drop((crowd, client));
    server.stop();
    assert_eq!(pool.in_use(), 0, "all of it came back");
}
