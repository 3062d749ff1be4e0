//! Tests of the callbacks program over TCP and both versions of RPC-over-RDMA, on the iwarp device.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::cell::RefCell;
use std::io::{Read, Write};
use std::net::SocketAddr;
use std::rc::Rc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use bytes::Bytes;
use futures_util::future::{join, join_all};
use iwarp::{Iwarp, Options};
use onc_rpc::Message;
use rdma::Pool;
use rpc_transport::rdma::{
    CallbackOptions, Choice, RdmaClient, RdmaClientOptions, RdmaServer, RdmaServerOptions, Version,
    Versions,
};
use rpc_transport::{
    Call, CallError, Client, ClientOptions, ClientTransport, ProgramVersions, ReplyRoom, Request,
    Runtime, Server, ServerOptions, ServerStats, Service, ServiceOutcome, Stop, TcpClient,
    TcpOptions, TcpServer,
};
use rpcrdma_programs::callbacks::{Answers, Order, Orders, echo, null, run};

#[derive(Clone, Copy, Debug, PartialEq)]
enum Over {
    Tcp,
    Rdma(Version),
}

const ALL: [Over; 3] = [
    Over::Tcp,
    Over::Rdma(Version::ONE),
    Over::Rdma(Version::TWO),
];

const CALLBACKS: CallbackOptions = CallbackOptions {
    credits: 32,
    chunks: true,
};

fn pool() -> Pool {
    Pool::new(1 << 28)
}

fn iwarp() -> Box<Iwarp> {
    Box::new(Iwarp::new(Options::default(), pool()).unwrap())
}

/// A server on a thread of its own, stopped on drop.
struct Running {
    address: SocketAddr,
    stop: Stop,
    thread: Option<JoinHandle<ServerStats>>,
}

impl Running {
    fn start(over: Over, options: ServerOptions) -> Self {
        Self::serving(over, options, || Box::new(Orders::new()))
    }

    fn serving(
        over: Over,
        options: ServerOptions,
        service: impl FnOnce() -> Box<dyn Service> + Send + 'static,
    ) -> Self {
        let stop = Stop::new();
        let (tell, told) = std::sync::mpsc::channel();
        let stopper = stop.clone();
        let thread = std::thread::spawn(move || {
            let mut server = Server::new(service(), options).unwrap();
            let local = SocketAddr::from(([127, 0, 0, 1], 0));
            let address = match over {
                Over::Tcp => {
                    let options = TcpOptions {
                        callbacks: true,
                        ..TcpOptions::default()
                    };
                    let port = TcpServer::bind(local, options).unwrap();
                    let address = port.local_addr();
                    server.add_transport(Rc::new(RefCell::new(port))).unwrap();
                    address
                }
                Over::Rdma(version) => {
                    let mut options = RdmaServerOptions {
                        versions: Versions::only(version),
                        ..RdmaServerOptions::new(rpcrdma_protocols::base())
                    };
                    options.common.callbacks = CALLBACKS;
                    let mut port = RdmaServer::new(iwarp(), options);
                    let address = port.listen(local).unwrap();
                    server.add_transport(Rc::new(RefCell::new(port))).unwrap();
                    address
                }
            };
            tell.send(address).unwrap();
            server.run(&stopper).unwrap();
            server.stats()
        });
        Self {
            address: told.recv().unwrap(),
            stop,
            thread: Some(thread),
        }
    }

    fn new(over: Over) -> Self {
        Self::start(
            over,
            ServerOptions {
                callbacks: true,
                ..ServerOptions::default()
            },
        )
    }

    fn end(mut self) -> ServerStats {
        self.stop.stop();
        self.thread.take().unwrap().join().unwrap()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.stop.stop();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn port(over: Over, callbacks: CallbackOptions) -> Rc<RefCell<dyn ClientTransport>> {
    match over {
        Over::Tcp => Rc::new(RefCell::new(TcpClient::new(TcpOptions {
            callbacks: callbacks.credits > 0,
            ..TcpOptions::default()
        }))),
        Over::Rdma(version) => {
            let mut options = RdmaClientOptions {
                version: Choice::Only(version),
                ..RdmaClientOptions::new(rpcrdma_protocols::base())
            };
            options.common.callbacks = callbacks;
            Rc::new(RefCell::new(RdmaClient::new(iwarp(), options)))
        }
    }
}

fn connect(runtime: &Runtime, over: Over, server: SocketAddr) -> (Client, Answers) {
    let answers = Answers::new();
    let connecting = Client::connect_with_callbacks(
        runtime,
        server,
        port(over, CALLBACKS),
        ClientOptions::default(),
        Box::new(answers.clone()),
    );
    (runtime.block_on(connecting).unwrap(), answers)
}

#[test]
fn a_thousand_callbacks_against_a_thousand_calls_are_each_answered_once() {
    for over in ALL {
        let server = Running::new(over);
        let runtime = Runtime::new().unwrap();
        let (client, answers) = connect(&runtime, over, server.address);
        let order = Order {
            count: 1000,
            at_a_time: 1000,
            call_len: 200,
            reply_len: 100,
            ..Order::default()
        };
        let data = |n: u32| Bytes::from(n.to_be_bytes().repeat(50));
        let calls = join_all((0..1000).map(|n| echo(&client, data(n))));
        let (tally, echoes) = runtime.block_on(join(run(&client, 7, order), calls));
        let tally = tally.unwrap();
        assert_eq!((tally.made, tally.answered), (1000, 1000), "{over:?}");
        for (n, echo) in (0..).zip(echoes) {
            assert_eq!(echo.unwrap(), data(n));
        }
        let seen = answers.seen();
        assert_eq!((seen.count(), seen.repeated(), seen.wrong), (1000, 0, 0));
        assert_eq!(client.stats().callbacks, 1000);
        assert_eq!(client.stats().reconnects, 0);
        drop(client);
        let stats = server.end();
        assert_eq!((stats.callbacks, stats.callback_replies), (1000, 1000));
    }
}

#[test]
fn long_callbacks_and_long_replies_come_whole() {
    for over in ALL {
        let server = Running::new(over);
        let runtime = Runtime::new().unwrap();
        let (client, answers) = connect(&runtime, over, server.address);
        for (ticket, (call_len, reply_len)) in
            (0..).zip([(0, 0), (1, 300_000), (300_000, 1), (1 << 20, 1 << 20)])
        {
            let order = Order {
                count: 5,
                at_a_time: 3,
                call_len,
                reply_len,
                ..Order::default()
            };
            let tally = runtime.block_on(run(&client, ticket, order)).unwrap();
            assert_eq!((tally.answered, tally.wrong), (5, 0), "{over:?} {tally:?}");
        }
        assert_eq!(answers.seen().wrong, 0);
    }
}

/// A client that was not configured to accept calls gets none in version 2, drops them otherwise,
/// and its own calls continue to work. A server that makes none refuses the order.
#[test]
fn who_takes_or_makes_no_callbacks_has_none() {
    for over in ALL {
        let server = Running::new(over);
        let runtime = Runtime::new().unwrap();
        let connecting = Client::connect(
            &runtime,
            server.address,
            port(over, CallbackOptions::default()),
            ClientOptions::default(),
        );
        let client = runtime.block_on(connecting).unwrap();
        let order = Order {
            count: 3,
            at_a_time: 3,
            limit: Duration::from_millis(200),
            ..Order::default()
        };
        let start = Instant::now();
        let tally = runtime.block_on(run(&client, 1, order)).unwrap();
        assert_eq!((tally.made, tally.failed), (3, 3), "{over:?}");
        let at_once = over == Over::Rdma(Version::TWO);
        assert_eq!(start.elapsed() < order.limit, at_once, "{over:?}");
        runtime.block_on(null(&client)).unwrap();
        assert_eq!(client.stats().reconnects, 0);
        drop(client);
        drop(server);

        let server = Running::start(over, ServerOptions::default());
        let (client, _) = connect(&runtime, over, server.address);
        let refused = runtime.block_on(run(&client, 1, order));
        assert!(matches!(refused, Err(CallError::Refused(_))), "{refused:?}");
    }
}

/// Callbacks that are outstanding when the client goes away end.
#[test]
fn callbacks_end_with_their_connection() {
    for over in ALL {
        let server = Running::new(over);
        let runtime = Runtime::new().unwrap();
        let (client, _) = connect(&runtime, over, server.address);
        let order = Order {
            count: 100_000,
            at_a_time: 50,
            limit: Duration::from_secs(3600),
            ..Order::default()
        };
        let ordering = runtime.timeout(Duration::from_millis(100), run(&client, 9, order));
        assert!(runtime.block_on(ordering).is_err(), "it takes longer");
        drop(client);
        let (client, _) = connect(&runtime, over, server.address);
        let start = Instant::now();
        // The ticket is the same, so the order is known, and this only queries its results.
        let tally = runtime.block_on(run(&client, 9, order)).unwrap();
        assert!(tally.done && tally.failed > 0, "{tally:?}");
        assert!(start.elapsed() < Duration::from_secs(60));
        assert_eq!(tally.answered + tally.failed, tally.made, "{over:?}");
        drop(client);
        let stats = server.end();
        assert!(stats.callbacks <= u64::from(tally.made));
    }
}

/// RFC 8167, section 5.4: a client that may be called re-establishes a lost connection although it
/// has nothing to send, and a server does not close one that it holds a callback handle for.
#[test]
fn a_client_that_may_be_called_stays_connected() {
    for over in ALL {
        let server = Running::start(
            over,
            ServerOptions {
                callbacks: true,
                idle_timeout: Duration::from_millis(50),
                ..ServerOptions::default()
            },
        );
        let runtime = Runtime::new().unwrap();
        let (client, _) = connect(&runtime, over, server.address);
        runtime.block_on(null(&client)).unwrap();
        let start = Instant::now();
        // No callback handle is held: the server closes the connection, and the client reconnects.
        while client.stats().reconnects < 2 {
            runtime.block_on(runtime.sleep(Duration::from_millis(5)));
            assert!(start.elapsed() < Duration::from_secs(60), "{over:?}");
        }
        // The order is stored with its callback handle.
        let tally = runtime.block_on(run(&client, 1, Order::default())).unwrap();
        assert_eq!(tally.answered, 1);
        let before = client.stats().reconnects;
        runtime.block_on(runtime.sleep(Duration::from_millis(300)));
        assert_eq!(client.stats().reconnects, before, "{over:?}");
    }
}

/// A service whose jobs wait for a callback to their caller.
struct Waits;

/// The program of [`Waits`], and that of its callbacks; its version is 1.
const PROGRAM: u32 = 0x2000_0007;

impl Service for Waits {
    fn programs(&self) -> &[ProgramVersions] {
        const {
            &[ProgramVersions {
                prog: PROGRAM,
                low: 1,
                high: 1,
            }]
        }
    }

    fn call(&mut self, request: Request) -> ServiceOutcome {
        let client = request.backchannel().unwrap().clone();
        ServiceOutcome::Later(Box::new(move || {
            let (tell, told) = std::sync::mpsc::channel();
            let call = Call {
                prog: PROGRAM,
                vers: 1,
                proc: 1,
                args: Message::default(),
                reply: ReplyRoom::default(),
            };
            client.call(call, Duration::from_secs(3600), move |ended| {
                // The job may have been given up.
                let _ = tell.send(ended);
            });
            // Nobody answers: this is the end of the callback with the server.
            let _ = told.recv();
            Ok(Message::default())
        }))
    }

    fn remember_reply(&self, _: u32, _: u32, _: u32) -> bool {
        false
    }
}

/// Returns a server over TCP of [`Waits`], and a client that is to speak for itself.
fn waiting() -> (Running, std::net::TcpStream) {
    let options = ServerOptions {
        callbacks: true,
        ..ServerOptions::default()
    };
    let server = Running::serving(Over::Tcp, options, || Box::new(Waits));
    let client = std::net::TcpStream::connect(server.address).unwrap();
    let patience = Some(Duration::from_secs(20));
    client.set_read_timeout(patience).unwrap();
    (server, client)
}

/// Returns a call of procedure 1: record mark, XID, CALL, RPC version 2, program, version, procedure, and no
/// credential or verifier.
fn waiting_call(xid: u32) -> Vec<u8> {
    let words = [1 << 31 | 40, xid, 0, 2, PROGRAM, 1, 1, 0, 0, 0, 0];
    words.map(u32::to_be_bytes).concat()
}

/// Returns the reply to a callback: record mark, XID, REPLY, accepted, no verifier, success.
fn callback_reply(xid: u32) -> Vec<u8> {
    let words = [1 << 31 | 24, xid, 1, 0, 0, 0, 0];
    words.map(u32::to_be_bytes).concat()
}

/// Regression test: the server waited for the job, and the job for an event of the server.
#[test]
fn a_server_ends_although_a_job_waits_for_a_callback() {
    let (server, mut client) = waiting();
    client.write_all(&waiting_call(7)).unwrap();
    // The callback has come, and is not answered.
    client.read_exact(&mut [0; 44]).unwrap();
    let (tell, told) = std::sync::mpsc::channel();
    std::thread::spawn(move || tell.send(server.end().callbacks));
    assert_eq!(told.recv_timeout(Duration::from_secs(20)), Ok(1));
}

/// Regression test: after one callback, any number of replies were taken and kept.
#[test]
fn a_reply_to_no_callback_closes_the_connection() {
    let (server, mut client) = waiting();
    client.write_all(&waiting_call(7)).unwrap();
    let mut callback = [0; 44];
    client.read_exact(&mut callback).unwrap();
    let xid = u32::from_be_bytes(callback[4..8].try_into().unwrap());
    let reply = callback_reply(xid);
    client.write_all(&reply).unwrap();
    client.read_exact(&mut [0; 28]).unwrap();
    client.write_all(&reply).unwrap();
    assert_eq!(client.read(&mut [0; 1]).unwrap_or(0), 0);
    let stats = server.end();
    assert_eq!((stats.callback_replies, stats.garbage), (1, 1));
}

/// Regression test: with as many calls as are worked on at a time, the server read no more, and so no reply to
/// the callbacks that their jobs wait for.
#[test]
fn replies_to_callbacks_pass_the_calls_that_wait_for_them() {
    const CALLS: u32 = 256;
    let (server, mut client) = waiting();
    for xid in 1..=CALLS {
        client.write_all(&waiting_call(xid)).unwrap();
    }
    let mut answered = 0;
    while answered < CALLS {
        let mut start = [0; 12];
        client.read_exact(&mut start).unwrap();
        let word = |at: usize| u32::from_be_bytes(start[at..at + 4].try_into().unwrap());
        let rest = (word(0) & !(1 << 31)) as usize - 8;
        client.read_exact(&mut vec![0; rest]).unwrap();
        if word(8) == 1 {
            answered += 1;
            continue;
        }
        client.write_all(&callback_reply(word(4))).unwrap();
    }
    assert_eq!(server.end().callback_replies, u64::from(CALLS));
}
