//! Tests of clients whose connections are driven by several threads.

use std::cell::RefCell;
use std::collections::HashSet;
use std::io::{self, ErrorKind, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use futures_util::StreamExt;
use futures_util::future::{join, join_all};
use futures_util::stream::FuturesUnordered;
use iwarp::{Iwarp, Options};
use onc_rpc::Message;
use rdma::{Poller, Pool, Time};
use rpc_transport::rdma::{RdmaClient, RdmaClientOptions, RdmaServer, RdmaServerOptions};
use rpc_transport::{
    CallError, Client, ClientLoops, ClientOptions, ClientTransport, ClientTransportEvent,
    ConnectionId, PollSource, ReplyRoom, Runtime, Server, ServerOptions, Stop, TcpClient,
    TcpOptions,
};

use crate::service::*;

const LOOPS: usize = 2;
const CONNECTIONS: usize = 4;
const CALLS: usize = 80;

type Loops<T> = Rc<RefCell<ClientLoops<T>>>;

fn tcp_loops() -> Loops<TcpClient> {
    let options = TcpOptions::default();
    let make = move || Ok::<_, io::Error>(TcpClient::new(options.clone()));
    Rc::new(RefCell::new(ClientLoops::start(LOOPS, make).unwrap()))
}

fn rdma_loops() -> Loops<RdmaClient> {
    let pool = Pool::new(64 << 20);
    let make = move || {
        let device = Iwarp::new(Options::default(), pool.clone())?;
        let options = RdmaClientOptions::new(rpcrdma_protocols::base());
        Ok::<_, io::Error>(RdmaClient::new(Box::new(device), options))
    };
    Rc::new(RefCell::new(ClientLoops::start(LOOPS, make).unwrap()))
}

fn over<T: ClientTransport + 'static>(
    runtime: &Runtime,
    address: SocketAddr,
    loops: &Loops<T>,
) -> Result<Client, CallError> {
    let options = ClientOptions {
        nconnect: CONNECTIONS,
        ..options()
    };
    runtime.block_on(Client::connect(runtime, address, loops.clone(), options))
}

/// Makes calls of many sizes at once, and checks that each reply is that of its call.
fn call_all(runtime: &Runtime, client: &Client) {
    let sizes = [0, 1, 4095, 8192, 65_536, 1_000_003];
    runtime.block_on(async {
        let mut calls: FuturesUnordered<_> = (0..CALLS)
            .map(|seed| {
                let data = pattern(seed, sizes[seed % sizes.len()]);
                let call = client.call(echo(data.clone()));
                async move { assert_eq!(echoed(&call.await.unwrap()), data) }
            })
            .collect();
        while calls.next().await.is_some() {}
    });
}

/// Makes calls, and checks that each loop is on a thread of its own, that none is this one, and that
/// each has its part of the connections and of the calls. `sends` counts the messages that a transport
/// has sent. Returns the number of calls.
fn are_shared<T: ClientTransport + 'static>(
    runtime: &Runtime,
    client: &Client,
    loops: &Loops<T>,
    sends: impl Fn(&T) -> u64 + Clone + Send + 'static,
) -> u64 {
    // The first call opens all connections, and calls go in turn over those that are established.
    let start = Instant::now();
    let sent = || loops.borrow().ask(sends.clone());
    loop {
        let before = sent();
        for _ in 0..2 * CONNECTIONS {
            let null = client.call(call(NULL, Message::default()));
            runtime.block_on(null).unwrap();
        }
        let grown = sent().into_iter().zip(before);
        let part = (2 * CONNECTIONS / LOOPS) as u64;
        if grown
            .into_iter()
            .all(|(after, before)| after - before >= part)
        {
            break;
        }
        assert!(start.elapsed() < Duration::from_secs(20), "one loop only");
    }
    let before = sent();
    call_all(runtime, client);
    let loops = loops.borrow();
    assert_eq!(loops.connections(), [CONNECTIONS / LOOPS; LOOPS]);
    let threads = loops.ask(|_| thread::current().id());
    let mut distinct: HashSet<_> = threads.into_iter().collect();
    assert!(distinct.insert(thread::current().id()), "this thread");
    assert_eq!(distinct.len(), LOOPS + 1);
    let grown = loops.ask(sends).into_iter().zip(before);
    let grown: Vec<u64> = grown.map(|(after, before)| after - before).collect();
    let part = (CALLS / LOOPS) as u64;
    assert!(grown.iter().all(|grown| *grown >= part), "{grown:?}");
    client.stats().calls
}

#[test]
fn calls_over_tcp_are_made_by_all_threads() {
    let server = Running::start();
    let runtime = Runtime::new().unwrap();
    let loops = tcp_loops();
    let client = over(&runtime, server.address, &loops).unwrap();
    let calls = are_shared(&runtime, &client, &loops, |port| port.counters().sends);
    let stats = client.stats();
    assert_eq!(stats.replies, calls);
    assert_eq!((stats.retransmissions, stats.stray_replies), (0, 0));
    drop((client, loops));
    assert_eq!(server.stop().calls, calls);
}

#[test]
fn calls_over_rdma_are_made_by_all_threads_with_a_device_each() {
    let stop = Stop::new();
    let (told, address) = std::sync::mpsc::channel();
    let theirs = stop.clone();
    let server = thread::spawn(move || {
        let service = Echo {
            count: Arc::default(),
        };
        let mut server = Server::new(Box::new(service), ServerOptions::default()).unwrap();
        let device = Iwarp::new(Options::default(), Pool::new(64 << 20)).unwrap();
        let mut port = RdmaServer::new(
            Box::new(device),
            RdmaServerOptions::new(rpcrdma_protocols::base()),
        );
        let any = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
        told.send(port.listen(any).unwrap()).unwrap();
        server.add_transport(Rc::new(RefCell::new(port))).unwrap();
        server.run(&theirs).unwrap();
        server.stats().calls
    });
    let runtime = Runtime::new().unwrap();
    let loops = rdma_loops();
    let client = over(&runtime, address.recv().unwrap(), &loops).unwrap();
    let calls = are_shared(&runtime, &client, &loops, |port| port.counters().sends);
    drop((client, loops));
    stop.stop();
    assert_eq!(server.join().unwrap(), calls);
}

#[test]
fn a_cancelled_call_ends_and_its_connection_goes_on() {
    let server = Running::start();
    let runtime = Runtime::new().unwrap();
    let loops = tcp_loops();
    let client = over(&runtime, server.address, &loops).unwrap();
    runtime.block_on(async {
        let slow: Vec<_> = (0..8).map(|_| client.call(number(SLEEP, 50))).collect();
        drop(slow);
        let quick = join_all((0..8).map(|_| client.call(call(NULL, Message::default()))));
        assert!(quick.await.iter().all(Result::is_ok));
        // The replies of cancelled calls come and are dropped.
        runtime.sleep(Duration::from_millis(100)).await;
        client.call(call(NULL, Message::default())).await.unwrap();
    });
    assert_eq!(client.stats().reconnects, 0);
}

#[test]
fn a_server_that_is_not_there_is_reported_as_over_one_thread() {
    let server = Running::start();
    let address = server.address;
    drop(server);
    let runtime = Runtime::new().unwrap();
    let error = over(&runtime, address, &tcp_loops()).unwrap_err();
    assert!(error.to_string().contains("connection refused"), "{error}");
}

#[test]
fn calls_survive_a_restart_of_the_server() {
    let server = Running::start();
    let (address, runtime) = (server.address, Runtime::new().unwrap());
    let loops = tcp_loops();
    let client = over(&runtime, address, &loops).unwrap();
    call_all(&runtime, &client);
    drop(server);
    let again = Running::with(
        address,
        Arc::default(),
        TcpOptions::default(),
        ServerOptions::default(),
    );
    call_all(&runtime, &client);
    assert!(client.stats().reconnects > 0);
    assert_eq!(loops.borrow().connections(), [CONNECTIONS / LOOPS; LOOPS]);
    drop(again);
}

#[test]
fn a_transport_that_cannot_be_made_is_an_error() {
    let made = Arc::new(AtomicBool::new(false));
    let now = Arc::clone(&made);
    let make = move || match now.swap(true, Ordering::SeqCst) {
        false => Ok(Panics {
            tcp: TcpClient::new(TcpOptions::default()),
            now: Arc::clone(&now),
        }),
        true => Err(io::Error::other("the second one")),
    };
    let error = ClientLoops::start(LOOPS, make).unwrap_err();
    assert_eq!(error.to_string(), "the second one");
    assert_eq!(Arc::strong_count(&made), 1, "the first thread has ended");
}

/// A server that sends replies nobody waits for, while the client's user does something else.
#[test]
fn a_server_cannot_fill_the_memory_of_a_client_that_is_elsewhere() {
    const MOST: usize = 64 << 20;
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let address = listener.local_addr().unwrap();
    let accepted = thread::spawn(move || listener.accept().unwrap().0);
    let runtime = Runtime::new().unwrap();
    let client = over(&runtime, address, &tcp_loops()).unwrap();
    let mut server = accepted.join().unwrap();
    server.set_nonblocking(true).unwrap();
    // A record with an accepted reply of an XID that was never used.
    let reply = [0x8000_0018_u32, 77, 1, 0, 0, 0, 0];
    let replies = reply.map(u32::to_be_bytes).concat().repeat(1000);
    // Writes until nothing has been taken for a while. Returns the number of bytes.
    let mut flood = || {
        let (mut written, mut last) = (0, Instant::now());
        while last.elapsed() < Duration::from_millis(500) && written < MOST {
            match server.write(&replies[written % replies.len()..]) {
                Ok(len) => (written, last) = (written + len, Instant::now()),
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    thread::sleep(Duration::from_millis(1));
                }
                Err(error) => panic!("{error}"),
            }
        }
        written
    };
    let written = flood();
    assert!(written < MOST, "the client takes all of it");
    // It goes on where the user waits for something.
    let start = Instant::now();
    while client.stats().stray_replies < (written / replies.len() * 1000) as u64 {
        assert!(start.elapsed() < Duration::from_secs(20), "it has stopped");
        runtime.block_on(runtime.sleep(Duration::from_millis(10)));
    }
}

/// A TCP transport that panics when it is told to.
struct Panics {
    tcp: TcpClient,
    now: Arc<AtomicBool>,
}

impl PollSource for Panics {
    fn attach(&mut self, poller: Poller) -> io::Result<()> {
        self.tcp.attach(poller)
    }

    fn ready(&mut self, local: usize, closed: bool) {
        self.tcp.ready(local, closed);
    }

    fn poll(&mut self, now: Time) -> bool {
        self.tcp.poll(now)
    }

    fn arm(&mut self) -> bool {
        self.tcp.arm()
    }

    fn next_deadline(&self) -> Option<Time> {
        self.tcp.next_deadline()
    }

    fn set_busy_poll(&mut self, on: bool) {
        self.tcp.set_busy_poll(on);
    }
}

impl ClientTransport for Panics {
    fn open(&mut self, remote: SocketAddr, next_xid: u32, now: Time) -> ConnectionId {
        self.tcp.open(remote, next_xid, now)
    }

    fn submit(
        &mut self,
        conn: ConnectionId,
        xid: u32,
        message: Message,
        room: &ReplyRoom,
        now: Time,
    ) {
        assert!(
            !self.now.swap(false, Ordering::SeqCst),
            "asked for by the test"
        );
        self.tcp.submit(conn, xid, message, room, now);
    }

    fn cancel(&mut self, conn: ConnectionId, xid: u32) {
        self.tcp.cancel(conn, xid);
    }

    fn reply(&mut self, conn: ConnectionId, token: u64, message: Option<Message>, now: Time) {
        self.tcp.reply(conn, token, message, now);
    }

    fn pool(&self) -> &Pool {
        self.tcp.pool()
    }

    fn close(&mut self, conn: ConnectionId) {
        self.tcp.close(conn);
    }

    fn next_event(&mut self) -> Option<ClientTransportEvent> {
        self.tcp.next_event()
    }
}

#[test]
fn calls_of_a_thread_that_panicked_go_to_another() {
    let server = Running::start();
    let runtime = Runtime::new().unwrap();
    let panics = Arc::new(AtomicBool::new(false));
    let now = Arc::clone(&panics);
    let make = move || {
        Ok::<_, io::Error>(Panics {
            tcp: TcpClient::new(TcpOptions::default()),
            now: Arc::clone(&now),
        })
    };
    let loops = Rc::new(RefCell::new(ClientLoops::start(LOOPS, make).unwrap()));
    let client = over(&runtime, server.address, &loops).unwrap();
    call_all(&runtime, &client);
    panics.store(true, Ordering::SeqCst);
    call_all(&runtime, &client);
    assert!(!panics.load(Ordering::SeqCst), "no thread has panicked");
    // Connections whose calls have moved to others are established again by the next call.
    call_all(&runtime, &client);
    let mut connections = loops.borrow().connections();
    connections.sort_unstable();
    assert_eq!(connections, [0, CONNECTIONS]);
    assert_eq!(loops.borrow().ask(|_| ()).len(), LOOPS - 1);
    // When the last one has gone, calls end with an error.
    panics.store(true, Ordering::SeqCst);
    let calls = || client.call(call(NULL, Message::default()));
    let (first, second) = runtime.block_on(async { join(calls(), calls()).await });
    assert!(first.is_err() && second.is_err(), "{first:?} {second:?}");
}
