//! Tests of the shared memory limit: it holds for all connections together, and well-behaved
//! clients continue to work.

use std::io::{ErrorKind, Write};
use std::net::{Ipv4Addr, SocketAddr};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use onc_rpc::{Message, record};
use rdma::Pool;
use rpc_transport::{Runtime, ServerOptions, TcpOptions};
use rpcrdma_host::Budget;

use crate::raw::{framed, raw};
use crate::service::*;

const MIB: usize = 1 << 20;
const LIMIT: usize = 8 * MIB;
/// The time-out of peers that block nobody.
const TIMEOUT: Duration = Duration::from_secs(1);

fn server() -> (Running, Pool, Budget) {
    let (pool, budget) = (Pool::new(64 * MIB), Budget::new(LIMIT, 32));
    let tcp = TcpOptions {
        pool: pool.clone(),
        budget: budget.clone(),
        record_timeout: TIMEOUT,
        reply_timeout: TIMEOUT,
        ..TcpOptions::default()
    };
    let address = (Ipv4Addr::LOCALHOST, 0).into();
    let running = Running::with(address, Default::default(), tcp, ServerOptions::default());
    (running, pool, budget)
}

/// Starts a client that sends `said` repeatedly and reads nothing, until the server closes the
/// connection.
fn hog(address: SocketAddr, said: Vec<u8>) -> JoinHandle<()> {
    thread::spawn(move || {
        let mut socket = raw(address);
        socket.set_write_timeout(Some(TIMEOUT / 10)).unwrap();
        let start = Instant::now();
        let mut at = 0;
        loop {
            match socket.write(&said[at..]) {
                Ok(n) => at = (at + n) % said.len(),
                Err(error)
                    if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) =>
                {
                    assert!(start.elapsed() < Duration::from_secs(60), "it is not ended");
                }
                Err(_) => return,
            }
        }
    })
}

/// Makes calls until the server has closed all connections of `crowd`. Returns the maximum pool
/// memory in use meanwhile.
fn calls_beside(crowd: &[JoinHandle<()>], address: SocketAddr, pool: &Pool) -> usize {
    let runtime = Runtime::new().unwrap();
    let (client, _) = connect(&runtime, address, options()).unwrap();
    let mut most = 0;
    while !crowd.iter().all(JoinHandle::is_finished) {
        let start = Instant::now();
        runtime
            .block_on(client.call(call(NULL, Message::default())))
            .unwrap();
        let data = pattern(1, 10_000);
        let reply = runtime.block_on(client.call(echo(data.clone()))).unwrap();
        assert_eq!(echoed(&reply), data);
        assert!(
            start.elapsed() < Duration::from_secs(1),
            "{:?}",
            start.elapsed()
        );
        most = most.max(pool.in_use());
    }
    assert_eq!(client.stats().reconnects, 0);
    most
}

/// Regression test: one connection could hold 255 MiB of unread replies, and 150 connections 5 GiB.
#[test]
fn replies_that_nobody_takes_have_a_share_and_an_end() {
    let (server, pool, budget) = server();
    let said = framed(&called(7, echo(pattern(1, 300_000))));
    let crowd: Vec<_> = (0..24).map(|_| hog(server.address, said.clone())).collect();
    let most = calls_beside(&crowd, server.address, &pool);
    assert!(most > MIB, "they held something: {most}");
    // A call that is taken alone may pass the limit by what is set aside for it.
    assert!(most <= LIMIT + MIB, "{most}");
    for hog in crowd {
        hog.join().unwrap();
    }
    server.stop();
    assert_eq!((pool.in_use(), budget.common_in_use()), (0, 0));
}

#[test]
fn records_that_are_not_finished_have_a_share_and_an_end() {
    let (server, pool, budget) = server();
    // All but the end of a long record, in one fragment and in many; then nothing.
    let record = called(7, echo(pattern(1, MIB)));
    let mut fragments = Vec::new();
    for fragment in record.chunks(2000) {
        fragments.extend((fragment.len() as u32).to_be_bytes());
        fragments.extend(fragment);
    }
    let mut whole = record::header(record.len() as u64 + 9).unwrap().to_vec();
    whole.extend(&record);
    let crowd: Vec<_> = (0..24)
        .map(|at| {
            let (address, said) = (server.address, [&whole, &fragments][at % 2].clone());
            thread::spawn(move || {
                let mut socket = raw(address);
                socket.set_write_timeout(Some(10 * TIMEOUT)).unwrap();
                // What the server does not take before it ends the connection is lost.
                drop(socket.write_all(&said));
                assert!(crate::raw::is_closed(&mut socket));
            })
        })
        .collect();
    let most = calls_beside(&crowd, server.address, &pool);
    assert!(most <= LIMIT + MIB, "{most}");
    for half in crowd {
        half.join().unwrap();
    }
    server.stop();
    assert_eq!((pool.in_use(), budget.common_in_use()), (0, 0));
}

#[test]
fn a_peer_that_reads_slowly_keeps_its_connection() {
    let (server, _, _) = server();
    let mut socket = raw(server.address);
    let data = pattern(1, MIB);
    let said = framed(&called(7, echo(data.clone())));
    let mut writing = socket.try_clone().unwrap();
    let writer = thread::spawn(move || {
        for _ in 0..12 {
            writing.write_all(&said).unwrap();
        }
    });
    let start = Instant::now();
    // It takes several times as long as a peer may do nothing.
    for _ in 0..12 {
        thread::sleep(TIMEOUT / 4);
        let mut reply = vec![0; 32 + data.len()];
        std::io::Read::read_exact(&mut socket, &mut reply).unwrap();
        assert_eq!(reply[32..], data);
    }
    assert!(start.elapsed() > 2 * TIMEOUT);
    writer.join().unwrap();
}
