//! Tests of servers with several loops, each on a thread of its own.

use std::cell::RefCell;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::rc::Rc;
use std::sync::atomic::AtomicU32;
use std::sync::{Arc, Barrier};
use std::thread::{self, JoinHandle};

use bytes::Bytes;
use iwarp::{Iwarp, Options};
use rdma::Pool;
use rpc_transport::rdma::{RdmaClient, RdmaClientOptions, RdmaServer, RdmaServerOptions};
use rpc_transport::{
    Client, Runtime, Server, ServerGroup, ServerOptions, ServerStats, Stop, TcpOptions, TcpServer,
};

use crate::service::*;

const LOOPS: usize = 3;

/// A server with several loops that listen over TCP and over the iwarp device.
struct Group {
    group: ServerGroup,
    tcp: SocketAddr,
    rdma: SocketAddr,
    stop: Stop,
    threads: Vec<JoinHandle<ServerStats>>,
}

fn listening() -> Arc<TcpListener> {
    let socket = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    socket.set_nonblocking(true).unwrap();
    Arc::new(socket)
}

impl Group {
    fn start() -> Self {
        let (tcp, rdma, stop) = (listening(), listening(), Stop::new());
        let group = ServerGroup::new(LOOPS, &ServerOptions::default());
        let (count, ready) = (
            Arc::<AtomicU32>::default(),
            Arc::new(Barrier::new(LOOPS + 1)),
        );
        let run = |index: usize| {
            let (tcp, rdma, stop) = (tcp.try_clone().unwrap(), Arc::clone(&rdma), stop.clone());
            let (group, ready) = (group.clone(), Arc::clone(&ready));
            let service = Echo {
                count: Arc::clone(&count),
            };
            move || {
                let options = ServerOptions::default();
                let mut server =
                    Server::in_group(&group, index, Box::new(service), options).unwrap();
                let options = TcpOptions {
                    seat: Some(group.seat(index)),
                    ..TcpOptions::default()
                };
                let port = TcpServer::listening(tcp, options).unwrap();
                server.add_transport(Rc::new(RefCell::new(port))).unwrap();
                let options = Options {
                    sockets: vec![Arc::clone(&rdma)],
                    seat: Some(group.seat(index)),
                    ..Options::default()
                };
                let device = Iwarp::new(options, Pool::new(64 << 20)).unwrap();
                let mut port = RdmaServer::new(
                    Box::new(device),
                    RdmaServerOptions::new(rpcrdma_protocols::base()),
                );
                port.listen(rdma.local_addr().unwrap()).unwrap();
                server.add_transport(Rc::new(RefCell::new(port))).unwrap();
                ready.wait();
                server.run(&stop).unwrap();
                server.stats()
            }
        };
        let threads = (0..LOOPS).map(|index| thread::spawn(run(index))).collect();
        ready.wait();
        Self {
            group,
            tcp: tcp.local_addr().unwrap(),
            rdma: rdma.local_addr().unwrap(),
            stop,
            threads,
        }
    }

    /// Returns the number of connections of each loop.
    fn connections(&self) -> Vec<usize> {
        let seats = (0..LOOPS).map(|index| self.group.seat(index));
        seats.map(|seat| seat.connections()).collect()
    }

    fn stop(self) -> Vec<ServerStats> {
        self.stop.stop();
        let threads = self.threads.into_iter();
        threads.map(|thread| thread.join().unwrap()).collect()
    }
}

/// Connects over RDMA.
fn connect_rdma(runtime: &Runtime, address: SocketAddr) -> Client {
    let device = Iwarp::new(Options::default(), Pool::new(64 << 20)).unwrap();
    let port = RdmaClient::new(
        Box::new(device),
        RdmaClientOptions::new(rpcrdma_protocols::base()),
    );
    let connecting = Client::connect(runtime, address, Rc::new(RefCell::new(port)), options());
    runtime.block_on(connecting).unwrap()
}

#[test]
fn few_connections_over_both_transports_are_spread_evenly_and_all_are_served() {
    let server = Group::start();
    let runtime = Runtime::new().unwrap();
    let mut clients = Vec::new();
    for number in 1..=2 * LOOPS {
        let client = match number % 2 {
            0 => connect(&runtime, server.tcp, options()).unwrap().0,
            _ => connect_rdma(&runtime, server.rdma),
        };
        // After a call the connection has been accepted.
        let data = Bytes::from(vec![number as u8; 10_000]);
        let reply = runtime.block_on(client.call(echo(data.clone()))).unwrap();
        assert_eq!(echoed(&reply), data);
        clients.push(client);
        let (connections, all) = (server.connections(), number);
        assert_eq!(connections.iter().sum::<usize>(), all, "{connections:?}");
        let even = |count: &usize| (all / LOOPS..=all.div_ceil(LOOPS)).contains(count);
        assert!(connections.iter().all(even), "{connections:?}");
    }
    drop(clients);
    let stats = server.stop();
    assert!(stats.iter().all(|stats| stats.calls == 2), "{stats:?}");
}

#[test]
fn jobs_of_all_loops_run_side_by_side_and_each_once() {
    let server = Group::start();
    let calls = 40;
    // All are connected before any goes on: a loop whose clients have ended would get the others'.
    let connected = Arc::new(Barrier::new(4));
    let work = |address: SocketAddr, over_rdma: bool| {
        let connected = Arc::clone(&connected);
        move || {
            let runtime = Runtime::new().unwrap();
            let client = match over_rdma {
                false => connect(&runtime, address, options()).unwrap().0,
                true => connect_rdma(&runtime, address),
            };
            connected.wait();
            let counted = |_| {
                let reply = runtime.block_on(client.call(number(COUNT, 1))).unwrap();
                reply.results().u32().unwrap()
            };
            (0..calls).map(counted).collect::<Vec<u32>>()
        }
    };
    let threads: Vec<_> = [(server.tcp, false), (server.rdma, true)]
        .iter()
        .cycle()
        .take(4)
        .map(|&(address, over_rdma)| thread::spawn(work(address, over_rdma)))
        .collect();
    let threads = threads.into_iter();
    let mut numbers: Vec<u32> = threads.flat_map(|thread| thread.join().unwrap()).collect();
    numbers.sort_unstable();
    assert!(numbers.into_iter().eq(1..=4 * calls));
    let stats = server.stop();
    assert_eq!(
        stats.iter().map(|stats| stats.jobs).sum::<u64>(),
        u64::from(4 * calls)
    );
    assert!(stats.iter().all(|stats| stats.jobs > 0), "{stats:?}");
}
