//! Gateways on threads of their own, and a client and a server that are played by a test, record by record.

use std::cell::RefCell;
use std::io::{ErrorKind, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::rc::Rc;
use std::sync::mpsc;
use std::thread::JoinHandle;
use std::time::Duration;

use iwarp::{Iwarp, Options};
use rdma::middleware::{Linked, Shaper};
use rdma::{Counters, Device, Pool};
use rpc_transport::rdma::{
    CallbackOptions, Choice, RdmaClient, RdmaClientOptions, RdmaServer, RdmaServerOptions, Version,
    Versions,
};
use rpc_transport::{ServerTransport, Stop, TcpClient, TcpOptions, TcpServer};
use rpcrdma_gateway::{Outgoing, Relay, RelayOptions, RelayStats, Treatment};
use rpcrdma_protocols::RoundTripFeatures;

/// The time for which a test waits for what must come.
pub(crate) const PATIENCE: Duration = Duration::from_secs(20);

/// The transport of one face of a gateway.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Over {
    Tcp,
    Rdma(Version, RoundTripFeatures),
}

impl Over {
    /// Every version between gateways, those of version 2 with all features and with none.
    pub(crate) fn all_rdma() -> Vec<Self> {
        let none = RoundTripFeatures::default();
        vec![
            Self::Rdma(Version::ONE, none),
            Self::Rdma(Version::TWO, RoundTripFeatures::ALL),
            Self::Rdma(Version::TWO_WG, RoundTripFeatures::ALL),
            Self::Rdma(Version::TWO_WG, none),
        ]
    }
}

pub(crate) const CALLBACKS: CallbackOptions = CallbackOptions {
    credits: 32,
    chunks: true,
};

pub(crate) fn local() -> SocketAddr {
    (Ipv4Addr::LOCALHOST, 0).into()
}

/// The remains of a gateway that has ended.
#[derive(Debug)]
pub(crate) struct Rest {
    pub(crate) stats: RelayStats,
    /// Pairs that had not ended.
    pub(crate) pairs: usize,
    /// Bytes of the pool that were in use.
    pub(crate) in_use: usize,
    /// Bytes that were copied, by the devices and transports of both faces.
    pub(crate) copied: u64,
    /// The counters of the device of each face: of clients, and of the server.
    pub(crate) counters: [Counters; 2],
    /// The kinds of calls by name, and what was done with each.
    pub(crate) kinds: Vec<(String, Treatment)>,
}

/// A gateway on a thread of its own.
pub(crate) struct Gateway {
    pub(crate) address: SocketAddr,
    stop: Stop,
    thread: JoinHandle<Rest>,
}

fn device(pool: &Pool, delay: Duration) -> Box<dyn Device> {
    let device = Iwarp::new(Options::default(), pool.clone()).unwrap();
    match delay.is_zero() {
        true => Box::new(device),
        false => Box::new(Linked::new(device, Shaper::new(delay, None))),
    }
}

impl Gateway {
    /// Starts a gateway from one transport to a server at the other.
    pub(crate) fn start(from: Over, to: Over, server: SocketAddr) -> Self {
        Self::start_with(from, to, RelayOptions::new(server))
    }

    pub(crate) fn start_with(from: Over, to: Over, options: RelayOptions) -> Self {
        Self::start_delayed(from, to, options, Duration::ZERO)
    }

    /// Starts a gateway whose RDMA devices delay what they send.
    fn start_delayed(from: Over, to: Over, options: RelayOptions, delay: Duration) -> Self {
        let stop = Stop::new();
        let stopped = stop.clone();
        let (tell, told) = mpsc::channel();
        let thread = std::thread::spawn(move || {
            let pool = Pool::new(1 << 28);
            let tcp = TcpOptions {
                pool: pool.clone(),
                callbacks: true,
                ..TcpOptions::default()
            };
            let outgoing: Rc<RefCell<dyn Outgoing>> = match to {
                Over::Tcp => Rc::new(RefCell::new(TcpClient::new(tcp.clone()))),
                Over::Rdma(version, features) => {
                    let protocols = rpcrdma_protocols::standard(&features);
                    let mut options = RdmaClientOptions {
                        version: Choice::Only(version),
                        ..RdmaClientOptions::new(protocols)
                    };
                    options.common.callbacks = CALLBACKS;
                    Rc::new(RefCell::new(RdmaClient::new(device(&pool, delay), options)))
                }
            };
            let counters: Box<dyn Fn() -> Counters>;
            let (incoming, address): (Rc<RefCell<dyn ServerTransport>>, _) = match from {
                Over::Tcp => {
                    let port = TcpServer::bind(local(), tcp).unwrap();
                    let address = port.local_addr();
                    let port = Rc::new(RefCell::new(port));
                    let kept = Rc::clone(&port);
                    counters = Box::new(move || Counters {
                        copied_bytes: kept.borrow().counters().copied_bytes,
                        ..Counters::default()
                    });
                    (port, address)
                }
                Over::Rdma(version, features) => {
                    let protocols = rpcrdma_protocols::standard(&features);
                    let mut options = RdmaServerOptions {
                        versions: Versions::only(version),
                        ..RdmaServerOptions::new(protocols)
                    };
                    options.common.callbacks = CALLBACKS;
                    let mut port = RdmaServer::new(device(&pool, delay), options);
                    let address = port.listen(local()).unwrap();
                    let port = Rc::new(RefCell::new(port));
                    let kept = Rc::clone(&port);
                    counters = Box::new(move || kept.borrow().counters());
                    (port, address)
                }
            };
            let mut relay = Relay::new(options, Rc::clone(&outgoing)).unwrap();
            relay.listen(incoming).unwrap();
            relay.explain(Box::new(|_, _, _| {}));
            tell.send(address).unwrap();
            relay.run(&stopped).unwrap();
            relay.drain(Duration::from_secs(5)).unwrap();
            let counters = [counters(), outgoing.borrow().counters()];
            let (stats, pairs) = (relay.stats(), relay.pairs());
            let kinds = relay.kinds().unwrap().by_calls().into_iter();
            let kinds = kinds.map(|(_, kind, what)| (kind.to_string(), what.clone()));
            let kinds = kinds.collect();
            drop((relay, outgoing));
            Rest {
                stats,
                pairs,
                in_use: pool.in_use(),
                copied: counters.iter().map(|each| each.copied_bytes).sum(),
                counters,
                kinds,
            }
        });
        Self {
            address: told.recv().unwrap(),
            stop,
            thread,
        }
    }

    pub(crate) fn end(self) -> Rest {
        self.stop.stop();
        self.thread.join().unwrap()
    }
}

/// Gateways one behind the other.
pub(crate) struct Chain(Vec<Gateway>);

impl Chain {
    /// Two gateways between TCP and TCP, with `between` between them, or one if that is TCP.
    pub(crate) fn of(between: Over, server: SocketAddr) -> Self {
        Self::delayed(between, server, Duration::ZERO)
    }

    /// Returns the chain of [`Self::of`], with a delay in each direction between the two gateways.
    pub(crate) fn delayed(between: Over, server: SocketAddr, delay: Duration) -> Self {
        let start =
            |from, to, server| Gateway::start_delayed(from, to, RelayOptions::new(server), delay);
        if let Over::Tcp = between {
            return Self(vec![start(Over::Tcp, Over::Tcp, server)]);
        }
        let last = start(between, Over::Tcp, server);
        let first = start(Over::Tcp, between, last.address);
        Self(vec![first, last])
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.0[0].address
    }

    /// Ends all, the first one first. Nothing may be left of them.
    pub(crate) fn end(self) -> Vec<Rest> {
        let rests: Vec<Rest> = self.0.into_iter().map(Gateway::end).collect();
        for rest in &rests {
            assert_eq!((rest.pairs, rest.in_use), (0, 0), "{rest:?}");
        }
        rests
    }
}

/// One end of a TCP connection of RPC.
#[derive(Debug)]
pub(crate) struct Raw(pub(crate) TcpStream);

impl Raw {
    pub(crate) fn connect(address: SocketAddr) -> Self {
        let stream = TcpStream::connect(address).unwrap();
        // A record is two writes.
        stream.set_nodelay(true).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        Self(stream)
    }

    /// Connects from this port, which is free again at once when the connection is closed.
    pub(crate) fn connect_from(port: u16, address: SocketAddr) -> Self {
        let stream = rpcrdma_host::begin_connect_from(port, address, None).unwrap();
        stream.set_nonblocking(false).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        Self(stream)
    }

    pub(crate) fn accept(listener: &TcpListener) -> Self {
        let (stream, _) = listener.accept().unwrap();
        stream.set_nodelay(true).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        Self(stream)
    }

    pub(crate) fn send(&mut self, record: &[u8]) {
        let mark = 1 << 31 | u32::try_from(record.len()).unwrap();
        self.0.write_all(&mark.to_be_bytes()).unwrap();
        self.0.write_all(record).unwrap();
    }

    /// Sends the first half of a record.
    pub(crate) fn cut(&mut self, record: &[u8]) {
        let mark = 1 << 31 | u32::try_from(record.len()).unwrap();
        self.0.write_all(&mark.to_be_bytes()).unwrap();
        self.0.write_all(&record[..record.len() / 2]).unwrap();
    }

    /// Returns the next record, or `None` at the end of the connection.
    pub(crate) fn receive(&mut self) -> Option<Vec<u8>> {
        let mut mark = [0; 4];
        match self.0.read_exact(&mut mark) {
            Ok(()) => {}
            Err(error)
                if matches!(
                    error.kind(),
                    ErrorKind::UnexpectedEof | ErrorKind::ConnectionReset
                ) =>
            {
                return None;
            }
            Err(error) => panic!("nothing came: {error}"),
        }
        let len = u32::from_be_bytes(mark) & !(1 << 31);
        let mut record = vec![0; len as usize];
        self.0.read_exact(&mut record).unwrap();
        Some(record)
    }

    #[track_caller]
    pub(crate) fn expect(&mut self, what: &[u8]) {
        let record = self.receive().expect("the connection ended");
        assert_eq!(record.len(), what.len());
        assert!(record == what, "another record");
    }
}

impl Raw {
    /// Expects these records in any order.
    #[track_caller]
    pub(crate) fn expect_all(&mut self, mut records: Vec<Vec<u8>>) {
        while !records.is_empty() {
            let record = self.receive().expect("the connection ended");
            let at = records.iter().position(|expected| *expected == record);
            records.remove(at.expect("another record"));
        }
    }
}

pub(crate) fn words(words: &[u32]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_be_bytes()).collect()
}

/// Returns a call of a program that nobody knows, with a credential and a verifier like those of RPCSEC_GSS, and
/// arguments of this length, a multiple of four.
pub(crate) fn call(xid: u32, len: usize) -> Vec<u8> {
    let mut call = words(&[xid, 0, 2, 0x3000_0000 | xid, 7, 11]);
    call.extend(words(&[6, 12, 0xaaaa_0000 | xid, 2, 3, 6, 8, 0xbbbb, xid]));
    call.extend((0..len).map(|n| (n as u32).wrapping_mul(7).wrapping_add(xid) as u8));
    call
}

/// Returns a successful reply with a verifier of RPCSEC_GSS.
pub(crate) fn reply(xid: u32, len: usize) -> Vec<u8> {
    let mut reply = words(&[xid, 1, 0, 6, 8, 0xcccc, xid, 0]);
    reply.extend((0..len).map(|n| (n as u32).wrapping_mul(13).wrapping_add(xid) as u8));
    reply
}

/// Returns a reply that says SYSTEM_ERR.
pub(crate) fn system_error(xid: u32) -> Vec<u8> {
    words(&[xid, 1, 0, 0, 0, 5])
}
