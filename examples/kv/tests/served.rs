//! The program at a server of its own: over TCP and by each version, with deadlines, and when the server ends.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::cell::RefCell;
use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::rc::Rc;
use std::time::Duration;

use bytes::Bytes;
use iwarp::{Iwarp, Options};
use kv::{MAX_VALUE, get, put};
use rdma::Pool;
use rpc_transport::rdma::{Choice, RdmaClient, RdmaClientOptions, Version};
use rpc_transport::{
    Call, CallError, Client, ClientOptions, ClientTransport, ErrorReply, Reply, Runtime, TcpClient,
    TcpOptions,
};
use rustix::process::{Pid, Signal, kill_process};

/// TCP, and the versions.
const WAYS: [Option<Version>; 4] = [
    None,
    Some(Version::ONE),
    Some(Version::TWO),
    Some(Version::TWO_WG),
];
const LONG: Duration = Duration::from_secs(30);

/// A server, which ends with the test.
struct Server {
    process: Child,
    rdma: SocketAddr,
    tcp: SocketAddr,
}

impl Server {
    fn start(words: &[&str]) -> Self {
        let mut command = Command::new(env!("CARGO_BIN_EXE_kv"));
        let served = "serve --memory --program kv --threads 2 --port 0 --tcp-port 0";
        command.args(served.split(' ')).args(words);
        command.env_remove("RUST_LOG").stdin(Stdio::null());
        let mut process = command.stdout(Stdio::piped()).spawn().unwrap();
        let mut lines = BufReader::new(process.stdout.take().unwrap()).lines();
        let mut listening = |by: &str| {
            loop {
                let line = lines.next().unwrap().unwrap();
                if let Some(place) = line.strip_prefix(by) {
                    break place.split(' ').next().unwrap().parse().unwrap();
                }
            }
        };
        let (rdma, tcp) = (listening("listening rdma "), listening("listening tcp "));
        Self { process, rdma, tcp }
    }

    fn connect(&self, runtime: &Runtime, way: Option<Version>) -> Result<Client, CallError> {
        let (address, port): (_, Rc<RefCell<dyn ClientTransport>>) = match way {
            None => {
                let tcp = TcpClient::new(TcpOptions::default());
                (self.tcp, Rc::new(RefCell::new(tcp)))
            }
            Some(version) => {
                let device = Iwarp::new(Options::default(), Pool::new(64 << 20)).unwrap();
                let mut options = RdmaClientOptions::new(rpcrdma_protocols::base());
                options.version = Choice::Only(version);
                let rdma = RdmaClient::new(Box::new(device), options);
                (self.rdma, Rc::new(RefCell::new(rdma)))
            }
        };
        // A client does not wait for another server.
        let options = ClientOptions {
            give_up_after: Duration::from_millis(50),
            first_reply_within: Duration::from_millis(500),
            ..ClientOptions::default()
        };
        runtime.block_on(Client::connect(runtime, address, port, options))
    }

    fn terminate(&self) {
        kill_process(Pid::from_child(&self.process), Signal::TERM).unwrap();
    }

    fn ended(mut self) -> ExitStatus {
        self.process.wait().unwrap()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ended = self.process.kill();
        let _status = self.process.wait();
    }
}

fn null() -> Call {
    Call {
        proc: 0,
        ..get("", 0, Duration::ZERO)
    }
}

/// Returns the value in the reply to a GET, if there is one.
fn found(reply: Result<Reply, CallError>) -> Option<Bytes> {
    let reply = reply.unwrap();
    let mut results = reply.results();
    let is_there = results.bool().unwrap();
    is_there.then(|| results.bulk(MAX_VALUE).unwrap().to_bytes())
}

#[test]
fn values_of_all_lengths_are_stored_and_found_by_clients_of_all_kinds() {
    let server = Server::start(&[]);
    let runtime = Runtime::new().unwrap();
    for (number, way) in WAYS.into_iter().enumerate() {
        let client = server.connect(&runtime, way).unwrap();
        let other = server
            .connect(&runtime, WAYS[(number + 1) % WAYS.len()])
            .unwrap();
        for len in [0, 1, 1023, 4096, 65_535, MAX_VALUE] {
            let (key, content) = (format!("{number} {len}"), vec![number as u8; len as usize]);
            let content = Bytes::from(content);
            runtime.block_on(async {
                assert_eq!(
                    found(client.call(get(&key, len, Duration::ZERO)).await),
                    None
                );
                let stored = client.call(put(&key, content.clone())).await.unwrap();
                assert!(stored.results().bool().unwrap());
                for reader in [&client, &other] {
                    let got = reader.call(get(&key, MAX_VALUE, Duration::ZERO)).await;
                    assert_eq!(found(got), Some(content.clone()), "{way:?} {len}");
                }
            });
        }
        let too_long = put("long", vec![0; MAX_VALUE as usize + 1].into());
        let unknown = Call { proc: 3, ..null() };
        for (wrong, said) in [(too_long, "GarbageArgs"), (unknown, "ProcUnavail")] {
            let refused = runtime.block_on(client.call(wrong)).unwrap_err();
            let CallError::Refused(error @ ErrorReply::Accepted(_)) = refused else {
                panic!("{refused:?}");
            };
            assert!(format!("{error:?}").contains(said), "{error:?}");
        }
    }
}

/// The service sees the deadline that a call names. A client may have an earlier one of its own: it gives up, its
/// connection stays, and the reply that comes after all is dropped.
#[test]
fn a_call_has_a_deadline_at_both_ends() {
    let server = Server::start(&[]);
    let runtime = Runtime::new().unwrap();
    for way in WAYS {
        let client = server.connect(&runtime, way).unwrap();
        runtime.block_on(async {
            let (short, key) = (Duration::from_millis(20), format!("{way:?}"));
            let none = client.call(get(&key, MAX_VALUE, short)).await.unwrap();
            assert!(none.round_trip() >= short);
            assert_eq!(found(Ok(none)), None);
            // Two that wait longer: one has a client that gives up.
            let patient = client.call(get(&key, MAX_VALUE, LONG));
            let hasty = client.call(get(&key, MAX_VALUE, LONG));
            runtime.timeout(short, hasty).await.unwrap_err();
            let content = Bytes::from_static(b"at last");
            client.call(put(&key, content.clone())).await.unwrap();
            assert_eq!(found(patient.await), Some(content.clone()));
            // The other reply has arrived as well by the time that this one does, or will be dropped later.
            let again = client.call(get(&key, MAX_VALUE, Duration::ZERO)).await;
            assert_eq!(found(again), Some(content), "{way:?}");
            let stats = client.stats();
            assert_eq!((stats.reconnects, stats.retransmissions), (0, 0), "{way:?}");
        });
    }
}

/// When the server ends, a call that has begun is answered, though it takes a while. New ones are not begun.
#[test]
fn a_server_that_ends_answers_what_has_begun() {
    for way in WAYS {
        let server = Server::start(&["--drain", "10s"]);
        let runtime = Runtime::new().unwrap();
        let client = server.connect(&runtime, way).unwrap();
        let idle = server.connect(&runtime, way).unwrap();
        for client in [&client, &idle] {
            runtime.block_on(client.call(null())).unwrap();
        }
        let begun = client.call(get("nothing", MAX_VALUE, Duration::from_millis(1500)));
        // Calls of a connection begin in order.
        runtime.block_on(client.call(null())).unwrap();
        server.terminate();
        // The signal has arrived when a connection without a call in progress ends.
        let ended = async { while idle.call(null()).await.is_ok() {} };
        runtime.block_on(runtime.timeout(LONG, ended)).unwrap();
        let late = async { client.call(put("late", Bytes::from_static(b"x"))).await };
        let (late, begun) = runtime.block_on(async { futures_util::join!(late, begun) });
        assert_eq!(found(begun), None, "{way:?}");
        late.unwrap_err();
        assert!(server.connect(&runtime, way).is_err());
        assert!(server.ended().success(), "{way:?}");
    }
}

#[test]
fn a_server_that_has_no_time_to_drain_ends_without_the_answer() {
    let server = Server::start(&["--drain", "0"]);
    let runtime = Runtime::new().unwrap();
    let client = server.connect(&runtime, None).unwrap();
    let begun = client.call(get("nothing", MAX_VALUE, Duration::from_millis(300)));
    runtime.block_on(client.call(null())).unwrap();
    server.terminate();
    runtime.block_on(begun).unwrap_err();
    assert!(server.ended().success());
}
