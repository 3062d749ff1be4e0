//! Tests of the limits of memory, queues and connections: excess work waits or is rejected.

use std::cell::RefCell;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use onc_rpc::Message;
use rdma::Pool;
use rpc_transport::{
    CallError, Client, ClientOptions, Runtime, ServerOptions, TcpClient, TcpOptions,
};

use crate::raw::framed;
use crate::service::{
    Echo, NULL, Running, SLEEP, call, called, connect, echo, echoed, number, options, pattern,
};

fn server(tcp: TcpOptions, options: ServerOptions) -> Running {
    Running::with(([127, 0, 0, 1], 0).into(), Default::default(), tcp, options)
}

#[test]
fn a_full_set_of_workers_holds_back_and_loses_nothing() {
    let tcp = TcpOptions {
        max_calls: 5,
        ..TcpOptions::default()
    };
    let limited = ServerOptions {
        workers: 2,
        max_jobs: 3,
        ..ServerOptions::default()
    };
    let server = server(tcp, limited);
    let runtime = Runtime::new().unwrap();
    let four = ClientOptions {
        nconnect: 4,
        ..options()
    };
    let (client, _) = connect(&runtime, server.address, four).unwrap();
    let calls: Vec<_> = (0..100).map(|_| client.call(number(SLEEP, 1))).collect();
    for call in calls {
        runtime.block_on(call).unwrap();
    }
    drop(client);
    assert_eq!(server.stop().jobs, 100);
}

#[test]
fn a_pool_that_is_too_small_for_all_makes_them_wait() {
    let pool = Pool::new(2 << 20);
    let tcp = TcpOptions {
        pool: pool.clone(),
        ..TcpOptions::default()
    };
    let server = server(tcp, ServerOptions::default());
    let runtime = Runtime::new().unwrap();
    let four = ClientOptions {
        nconnect: 4,
        ..options()
    };
    let (client, _) = connect(&runtime, server.address, four).unwrap();
    let data = pattern(3, 900_000);
    let calls: Vec<_> = (0..24).map(|_| client.call(echo(data.clone()))).collect();
    for call in calls {
        assert_eq!(echoed(&runtime.block_on(call).unwrap()), data);
    }
    assert_eq!(client.stats().retransmissions, 0);
    drop(client);
    server.stop();
    assert_eq!(pool.in_use(), 0, "all of it came back");
}

#[test]
fn a_client_that_takes_no_replies_is_not_read_from_and_loses_none() {
    const CALLS: u32 = 200;
    let pool = Pool::new(1 << 30);
    let tcp = TcpOptions {
        pool: pool.clone(),
        max_calls: 4,
        ..TcpOptions::default()
    };
    let server = server(tcp, ServerOptions::default());
    let mut socket = TcpStream::connect(server.address).unwrap();
    let limit = Some(Duration::from_secs(20));
    socket.set_read_timeout(limit).unwrap();
    let mut writing = socket.try_clone().unwrap();
    let data = pattern(1, 200_000);
    let sent = data.clone();
    let writer = std::thread::spawn(move || {
        for xid in 0..CALLS {
            let call = framed(&called(xid, echo(sent.clone())));
            writing.write_all(&call).unwrap();
        }
    });
    std::thread::sleep(Duration::from_millis(300));
    assert!(!writer.is_finished(), "everything was read: {pool:?}");
    // What is queued, what is being worked on, and what the record sizes round up to.
    assert!(pool.in_use() <= 16 << 20, "{pool:?}");
    for xid in 0..CALLS {
        let mut reply = vec![0; 32 + data.len()];
        socket.read_exact(&mut reply).unwrap();
        assert_eq!(reply[4..8], xid.to_be_bytes());
        assert_eq!(reply[32..], data);
    }
    writer.join().unwrap();
}

#[test]
fn a_connection_over_the_limit_is_closed_and_the_others_stay() {
    let limited = ServerOptions {
        max_connections: 1,
        ..ServerOptions::default()
    };
    let server = server(TcpOptions::default(), limited);
    let runtime = Runtime::new().unwrap();
    let (first, _) = connect(&runtime, server.address, options()).unwrap();
    let null = || call(NULL, Message::default());
    // The connection does not have to make room while a job is in progress.
    let job = first.call(number(SLEEP, 1000));
    runtime.block_on(first.call(null())).unwrap();
    let impatient = ClientOptions {
        give_up_after: Duration::from_millis(100),
        ..options()
    };
    let (second, _) = connect(&runtime, server.address, impatient).unwrap();
    let error = runtime.block_on(second.call(null())).unwrap_err();
    assert!(matches!(error, CallError::Connect { .. }), "{error:?}");
    runtime.block_on(first.call(null())).unwrap();
    runtime.block_on(job).unwrap();
    assert_eq!(first.stats().reconnects, 0);
    // Then it makes room.
    let (patient, _) = connect(&runtime, server.address, options()).unwrap();
    runtime.block_on(patient.call(null())).unwrap();
    // The first client is refused while the other connection is fresh, and tries again until it is not.
    runtime.block_on(first.call(null())).unwrap();
    assert!(first.stats().reconnects > 0);
    assert_eq!(server.stop().made_room, 2);
}

/// Regression test: a client that takes callbacks stopped reading because of the calls that it had queued, and
/// the server because of its replies.
#[test]
fn many_long_calls_and_replies_pass_a_client_that_takes_callbacks() {
    let server = server(TcpOptions::default(), ServerOptions::default());
    let runtime = Runtime::new().unwrap();
    let tcp = TcpOptions {
        callbacks: true,
        ..TcpOptions::default()
    };
    let port = Rc::new(RefCell::new(TcpClient::new(tcp)));
    let service = Box::new(Echo {
        count: Arc::default(),
    });
    let connecting =
        Client::connect_with_callbacks(&runtime, server.address, port, options(), service);
    let client = runtime.block_on(connecting).unwrap();
    let data = pattern(3, 1 << 20);
    let calls: Vec<_> = (0..40).map(|_| client.call(echo(data.clone()))).collect();
    for call in calls {
        let limited = runtime.timeout(Duration::from_secs(20), call);
        let reply = runtime.block_on(limited).expect("neither end reads");
        assert_eq!(echoed(&reply.unwrap()), data);
    }
    assert_eq!(client.stats().retransmissions, 0);
}
