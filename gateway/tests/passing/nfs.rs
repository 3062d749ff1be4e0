//! This project's own clients of NFSv3 and of callbacks, through gateways.

use std::cell::RefCell;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::{Arc, mpsc};
use std::thread::JoinHandle;

use bytes::Bytes;
use futures_util::future::join;
use iwarp::Iwarp;
use nfs_binding::client::{AttachOptions, Mount};
use nfs_binding::fs::MemoryFs;
use nfs_binding::proto::{LinkText, SetAttributes, Stable};
use nfs_binding::server::{Export, ExportOptions, HandleKey, NfsServer};
use onc_rpc::{AcceptStatus, AuthSys, BulkItem, Credential, Encoder, Message, Position};
use rdma::Pool;
use rpc_transport::rdma::{Choice, RdmaClient, RdmaClientOptions, Version};
use rpc_transport::{
    Call, CallError, Client, ClientOptions, ErrorReply, ReplyRoom, Runtime, Server, ServerOptions,
    ServerStats, Service, Stop, TcpClient, TcpOptions, TcpServer,
};
use rpcrdma_programs::callbacks::{Answers, Order, Orders, echo, run};
use rpcrdma_protocols::RoundTripFeatures;

use crate::support::{Chain, Gateway, Over, local};

/// A server over TCP on a thread of its own.
pub(crate) struct Served {
    pub(crate) address: SocketAddr,
    stop: Stop,
    thread: JoinHandle<ServerStats>,
}

impl Served {
    pub(crate) fn start(service: impl FnOnce() -> Box<dyn Service> + Send + 'static) -> Self {
        let stop = Stop::new();
        let (stopped, (tell, told)) = (stop.clone(), mpsc::channel());
        let thread = std::thread::spawn(move || {
            let options = ServerOptions {
                callbacks: true,
                ..ServerOptions::default()
            };
            let mut server = Server::new(service(), options).unwrap();
            let tcp = TcpOptions {
                callbacks: true,
                ..TcpOptions::default()
            };
            let port = TcpServer::bind(local(), tcp).unwrap();
            tell.send(port.local_addr()).unwrap();
            server.add_transport(Rc::new(RefCell::new(port))).unwrap();
            server.run(&stopped).unwrap();
            server.stats()
        });
        Self {
            address: told.recv().unwrap(),
            stop,
            thread,
        }
    }

    pub(crate) fn nfs() -> Self {
        Self::start(|| {
            let export = Export {
                path: "/data".into(),
                backend: Arc::new(MemoryFs::new(1 << 28).unwrap()),
                options: ExportOptions::for_server(false),
            };
            let key = HandleKey::from_bytes([3; 16]);
            Box::new(NfsServer::new(vec![export], key).unwrap())
        })
    }

    pub(crate) fn end(self) -> ServerStats {
        self.stop.stop();
        self.thread.join().unwrap()
    }
}

fn options() -> ClientOptions {
    ClientOptions {
        credential: Credential::Sys(AuthSys {
            uid: rustix::process::geteuid().as_raw(),
            gid: rustix::process::getegid().as_raw(),
            ..AuthSys::default()
        }),
        ..ClientOptions::default()
    }
}

fn data(len: usize) -> Bytes {
    (0..len)
        .map(|n| (n * 31 + len) as u8)
        .collect::<Vec<_>>()
        .into()
}

/// Works on an export, checks every result, and returns the number of calls.
async fn work(client: Client) -> u64 {
    let attach = AttachOptions::default();
    let attaching = Mount::attach(client.clone(), client.clone(), b"/data", &attach);
    let (mount, _) = attaching.await.unwrap();
    let none = SetAttributes::default;
    let directory = mount
        .mkdir(mount.root(), b"directory", none(), &b"mkdir"[..])
        .await
        .unwrap();
    for len in [0, 1, 1000, 8192, 65_537, 1 << 20] {
        let name = format!("file-{len}").into_bytes();
        let file = mount
            .create(directory.handle, &name, none(), &name[..])
            .await
            .unwrap()
            .handle;
        let content = data(len);
        let write = mount.write(file, 0, content.clone(), Stable::FileSync, &name[..]);
        assert_eq!(write.await.unwrap().count as usize, len);
        let read = mount
            .read(file, 0, (len as u32).max(1), &name[..])
            .await
            .unwrap();
        assert_eq!(read.data.0.to_bytes(), content);
    }
    let text = LinkText(Bytes::from_static(b"file-1000"));
    let link = mount
        .symlink(directory.handle, b"link", text, &b"link"[..])
        .await
        .unwrap();
    let text = mount.readlink(link.handle, &b"link"[..]).await.unwrap();
    assert_eq!(text, b"file-1000"[..]);
    let entries = mount
        .list_all(directory.handle, &b"list"[..])
        .await
        .unwrap();
    assert_eq!(
        entries
            .iter()
            .filter(|entry| !entry.name.0.starts_with(b"."))
            .count(),
        7
    );
    mount
        .remove(directory.handle, b"link", &b"remove"[..])
        .await
        .unwrap();
    client.stats().calls
}

fn over_tcp(runtime: &Runtime, address: SocketAddr) -> Client {
    let tcp = Rc::new(RefCell::new(TcpClient::new(TcpOptions::default())));
    let connecting = Client::connect(runtime, address, tcp, options());
    runtime.block_on(connecting).unwrap()
}

#[test]
fn a_client_of_nfs_has_the_results_that_it_has_directly() {
    let runtime = Runtime::new().unwrap();
    let direct = {
        let server = Served::nfs();
        let calls = runtime.block_on(work(over_tcp(&runtime, server.address)));
        assert_eq!(server.end().calls, calls);
        calls
    };
    for between in Over::all_rdma() {
        let server = Served::nfs();
        let chain = Chain::of(between, server.address);
        let calls = runtime.block_on(work(over_tcp(&runtime, chain.address())));
        assert_eq!(calls, direct, "{between:?}");
        for rest in chain.end() {
            let stats = rest.stats;
            assert_eq!(
                (stats.calls, stats.replies, stats.failed),
                (calls, calls, 0),
                "{between:?}"
            );
        }
        assert_eq!(server.end().calls, calls);
    }
}

#[test]
fn callbacks_of_a_program_come_through() {
    for between in Over::all_rdma() {
        let server = Served::start(|| Box::new(Orders::new()));
        let chain = Chain::of(between, server.address);
        let runtime = Runtime::new().unwrap();
        let answers = Answers::new();
        let tcp = TcpOptions {
            callbacks: true,
            ..TcpOptions::default()
        };
        let connecting = Client::connect_with_callbacks(
            &runtime,
            chain.address(),
            Rc::new(RefCell::new(TcpClient::new(tcp))),
            ClientOptions::default(),
            Box::new(answers.clone()),
        );
        let client = runtime.block_on(connecting).unwrap();
        let order = Order {
            count: 50,
            at_a_time: 8,
            call_len: 20_000,
            reply_len: 3000,
            ..Order::default()
        };
        let (tally, echoed) =
            runtime.block_on(join(run(&client, 7, order), echo(&client, data(5000))));
        let tally = tally.unwrap();
        assert_eq!(
            (tally.made, tally.answered, tally.wrong),
            (50, 50, 0),
            "{between:?}"
        );
        assert_eq!(echoed.unwrap(), data(5000));
        let seen = answers.seen();
        assert_eq!((seen.count(), seen.repeated(), seen.wrong), (50, 0, 0));
        drop(client);
        chain.end();
        assert_eq!(server.end().callback_replies, 50);
    }
}

fn over_rdma(
    runtime: &Runtime,
    address: SocketAddr,
    version: Version,
    features: RoundTripFeatures,
) -> Client {
    let device = Iwarp::new(iwarp::Options::default(), Pool::new(1 << 28)).unwrap();
    let rdma = RdmaClientOptions {
        version: Choice::Only(version),
        ..RdmaClientOptions::new(rpcrdma_protocols::standard(&features))
    };
    let rdma = Rc::new(RefCell::new(RdmaClient::new(Box::new(device), rdma)));
    let connecting = Client::connect(runtime, address, rdma, options());
    runtime.block_on(connecting).unwrap()
}

/// Clients of every version by one gateway to a server that knows TCP alone, and from version 1 to every version.
#[test]
fn a_client_over_rdma_has_the_results_that_it_has_directly() {
    let runtime = Runtime::new().unwrap();
    for from in Over::all_rdma() {
        let Over::Rdma(version, features) = from else {
            continue;
        };
        let server = Served::nfs();
        let gateway = Gateway::start(from, Over::Tcp, server.address);
        let client = over_rdma(&runtime, gateway.address, version, features);
        let calls = runtime.block_on(work(client));
        let rest = gateway.end();
        assert_eq!(
            (rest.stats.calls, rest.stats.failed),
            (calls, 0),
            "{from:?}"
        );
        assert_eq!((rest.pairs, rest.in_use), (0, 0), "{from:?}");
        assert_eq!(server.end().calls, calls);
    }
    for to in Over::all_rdma() {
        let none = RoundTripFeatures::default();
        let one = Over::Rdma(Version::ONE, none);
        let server = Served::nfs();
        let last = Gateway::start(to, Over::Tcp, server.address);
        let first = Gateway::start(one, to, last.address);
        let client = over_rdma(&runtime, first.address, Version::ONE, none);
        let calls = runtime.block_on(work(client));
        for rest in [first.end(), last.end()] {
            assert_eq!((rest.stats.calls, rest.stats.failed), (calls, 0), "{to:?}");
            assert_eq!((rest.pairs, rest.in_use), (0, 0), "{to:?}");
        }
        assert_eq!(server.end().calls, calls);
    }
}

/// A chunk with data that is not DDP-eligible is refused, as a server must (RFC 8166, section 6.1). The connection
/// goes on.
#[test]
fn a_chunk_with_what_is_not_eligible_is_refused() {
    let runtime = Runtime::new().unwrap();
    let (none, all) = (RoundTripFeatures::default(), RoundTripFeatures::ALL);
    // Those that put the item into a chunk, or have it placed.
    for (version, features) in [
        (Version::ONE, none),
        (Version::TWO, none),
        (Version::TWO, all),
        (Version::TWO_WG, all),
    ] {
        let from = Over::Rdma(version, features);
        let server = Served::nfs();
        let gateway = Gateway::start(from, Over::Tcp, server.address);
        let client = over_rdma(&runtime, gateway.address, version, features);
        // The tag of a COMPOUND, which has no operations.
        let mut words = Encoder::new();
        words.u32(70_000).u32(0).u32(0);
        let words = words.finish();
        let tag = BulkItem {
            position: Position::At(4),
            data: data(70_000).into(),
        };
        let call = Call {
            prog: 100_003,
            vers: 4,
            proc: 1,
            args: Message::new(words.payload().clone(), [tag]),
            reply: ReplyRoom::new(1000, []),
        };
        let refused = runtime.block_on(client.call(call));
        assert!(
            matches!(
                refused,
                Err(CallError::Refused(ErrorReply::Accepted(
                    AcceptStatus::GarbageArgs
                )))
            ),
            "{from:?}: {refused:?}"
        );
        let calls = runtime.block_on(work(client));
        let stats = gateway.end().stats;
        assert_eq!((stats.misplaced, stats.calls), (1, calls - 1), "{from:?}");
        assert_eq!(server.end().calls, calls - 1);
    }
}
