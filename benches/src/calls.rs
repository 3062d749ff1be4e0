//! Whole calls: a client and a server that take turns on one thread.
//!
//! So a benchmark measures the work of both for a call, including system calls, without waiting for
//! another thread. It can be counted exactly, and is meaningful on a busy machine.

use std::cell::RefCell;
use std::error::Error;
use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::pin::pin;
use std::rc::Rc;
use std::str::FromStr;

use bytes::Bytes;
use iwarp::{Iwarp, Options};
use onc_rpc::{AuthSys, Credential, Encoder, Message};
use rdma::trace::Trace;
use rdma::{Device, Pool};
use rpc_transport::rdma::{
    Choice, RdmaClient, RdmaClientOptions, RdmaOptions, RdmaServer, RdmaServerOptions, Version,
    Versions,
};
use rpc_transport::{
    Call, Client, ClientOptions, ClientTransport, ProgramVersions, ReplyRoom, Request, Runtime,
    Server, ServerOptions, ServerTransport, Service, ServiceOutcome, Stepped, TcpClient,
    TcpOptions, TcpServer,
};
use rpcrdma_protocols::{Directions, RoundTripFeatures};
use rpcrdma_setup::inline::InlineSizes;

/// The program of the calls; its number does not matter.
const PROGRAM: u32 = 100_003;
const VERSION: u32 = 3;
/// The memory of one device, bytes.
const POOL: usize = 64 << 20;
/// The bytes of a NULL call with `AUTH_SYS` credentials, and of its reply, as sent over bare TCP.
const CALL: usize = 76;
const REPLY: usize = 28;
/// The maximum number of turns of a call.
const TURNS: u32 = 1_000_000;

/// The result of a call or of creating the ends.
pub type Outcomes<T> = Result<T, Box<dyn Error + Send + Sync>>;

/// The transport of the calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Carrier {
    /// TCP.
    Tcp,
    /// RPC-over-RDMA over the iwarp device. Both ends are configured alike.
    Rdma {
        /// The version.
        version: Version,
        /// The features, in both versions that have them.
        features: RoundTripFeatures,
        /// The longest message without chunks in bytes. With placement, receives have at least 65
        /// KiB in any case.
        inline: u32,
    },
}

impl Carrier {
    /// Version 1.
    pub const V1: Self = Self::usual(Version::ONE, NONE);
    /// Version 2 of 2016 without features.
    pub const V2: Self = Self::usual(Version::TWO, NONE);
    /// Version 2 of 2016 with placement and continuation in both directions.
    pub const V2_DDP_CONT: Self = Self::usual(Version::TWO, RoundTripFeatures::ALL);

    /// Returns this version and these features with the default inline threshold.
    const fn usual(version: Version, features: RoundTripFeatures) -> Self {
        Self::Rdma {
            version,
            features,
            inline: RdmaOptions::DEFAULT_INLINE,
        }
    }

    /// Returns this version without placement, with receives as long as those with placement.
    const fn long(version: Version) -> Self {
        Self::Rdma {
            version,
            features: NONE,
            inline: LONG,
        }
    }

    /// Configures an end of a connection of this version.
    fn configure(options: &mut RdmaOptions, features: RoundTripFeatures, inline: u32) {
        InlineSizes::both(inline).apply(options);
        options.protocols = rpcrdma_protocols::standard(&features);
    }
}

/// The length in bytes of receives with a segment for bulk data.
const LONG: u32 = rpcrdma_protocols::TARGET + 1024;

const NONE: RoundTripFeatures = RoundTripFeatures {
    ddp: Directions::NONE,
    cont: Directions::NONE,
};
const CONTINUATION: RoundTripFeatures = RoundTripFeatures {
    cont: Directions::BOTH,
    ..NONE
};
const PLACEMENT: RoundTripFeatures = RoundTripFeatures {
    ddp: Directions::BOTH,
    ..NONE
};

impl FromStr for Carrier {
    type Err = String;

    /// Reads a name as `rpcrdma compare` has it.
    fn from_str(name: &str) -> Result<Self, Self::Err> {
        match name {
            "tcp" => Ok(Self::Tcp),
            "v1" => Ok(Self::V1),
            "v1-long" => Ok(Self::long(Version::ONE)),
            "v2" => Ok(Self::V2),
            "v2-long" => Ok(Self::long(Version::TWO)),
            "v2-ddp" => Ok(Self::usual(Version::TWO, PLACEMENT)),
            "v2-cont" => Ok(Self::usual(Version::TWO, CONTINUATION)),
            "v2-ddp-cont" => Ok(Self::V2_DDP_CONT),
            "wg" => Ok(Self::usual(Version::TWO_WG, CONTINUATION)),
            "wg-long" => Ok(Self::long(Version::TWO_WG)),
            "wg-ddp" => Ok(Self::usual(Version::TWO_WG, RoundTripFeatures::ALL)),
            other => Err(format!(
                "{other}: not tcp, v1, v2, v2-ddp, v2-cont, v2-ddp-cont, wg, wg-ddp, or with receives of 65 \
                 KiB v1-long, v2-long, wg-long"
            )),
        }
    }
}

/// A service that answers every procedure like NULL.
struct Null([ProgramVersions; 1]);

impl Service for Null {
    fn programs(&self) -> &[ProgramVersions] {
        &self.0
    }

    fn call(&mut self, _: Request) -> ServiceOutcome {
        ServiceOutcome::Done(Ok(Message::default()))
    }

    fn remember_reply(&self, _: u32, _: u32, _: u32) -> bool {
        false
    }
}

/// A client and the server that it is connected to.
pub struct Ends {
    runtime: Runtime,
    pub(crate) client: Client,
    server: Server,
}

fn device() -> io::Result<Box<dyn Device>> {
    Ok(Box::new(Iwarp::new(Options::default(), Pool::new(POOL))?))
}

impl Ends {
    /// Connects a client to a server that answers every call with empty results. Both busy-poll.
    ///
    /// # Errors
    /// The error of the operating system.
    pub fn new(carrier: Carrier) -> Outcomes<Self> {
        let programs = ProgramVersions {
            prog: PROGRAM,
            low: VERSION,
            high: VERSION,
        };
        Self::with_service(carrier, Box::new(Null([programs])))
    }

    /// Connects a client to a server of `service`. Both busy-poll.
    ///
    /// # Errors
    /// The error of the operating system.
    pub fn with_service(carrier: Carrier, service: Box<dyn Service>) -> Outcomes<Self> {
        Self::traced(carrier, service, None)
    }

    /// Does the same, with an observer of the calls at both ends.
    ///
    /// # Errors
    /// The error of the operating system.
    pub fn traced(
        carrier: Carrier,
        service: Box<dyn Service>,
        trace: Option<&Trace>,
    ) -> Outcomes<Self> {
        let any_port = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
        let options = ServerOptions {
            workers: 1,
            busy_poll: true,
            trace: trace.cloned(),
            ..ServerOptions::default()
        };
        let mut server = Server::new(service, options)?;
        let (address, port): (SocketAddr, Rc<RefCell<dyn ServerTransport>>) = match carrier {
            Carrier::Tcp => {
                let port = TcpServer::bind(any_port, TcpOptions::default())?;
                (port.local_addr(), Rc::new(RefCell::new(port)))
            }
            Carrier::Rdma {
                version,
                features,
                inline,
            } => {
                let mut options = RdmaServerOptions {
                    versions: Versions::only(version),
                    ..RdmaServerOptions::new(rpcrdma_protocols::base())
                };
                Carrier::configure(&mut options.common, features, inline);
                let mut port = RdmaServer::new(device()?, options);
                (port.listen(any_port)?, Rc::new(RefCell::new(port)))
            }
        };
        server.add_transport(port)?;
        let runtime = Runtime::new()?;
        runtime.set_busy_poll(true);
        let port: Rc<RefCell<dyn ClientTransport>> = match carrier {
            Carrier::Tcp => Rc::new(RefCell::new(TcpClient::new(TcpOptions::default()))),
            Carrier::Rdma {
                version,
                features,
                inline,
            } => {
                let mut options = RdmaClientOptions {
                    version: Choice::Only(version),
                    ..RdmaClientOptions::new(rpcrdma_protocols::base())
                };
                Carrier::configure(&mut options.common, features, inline);
                Rc::new(RefCell::new(RdmaClient::new(device()?, options)))
            }
        };
        let options = ClientOptions {
            credential: Credential::Sys(AuthSys {
                stamp: 0,
                machine_name: b"bench"[..].into(),
                uid: 0,
                gid: 0,
                gids: Default::default(),
            }),
            trace: trace.cloned(),
            ..ClientOptions::default()
        };
        let connecting = Client::connect(&runtime, address, port, options);
        let client = both(&runtime, &mut server, connecting)??;
        Ok(Self {
            runtime,
            client,
            server,
        })
    }

    /// Makes a call without arguments.
    ///
    /// # Errors
    /// The call failed or took too long.
    pub fn call(&mut self) -> Outcomes<()> {
        self.call_with(Message::default())
    }

    /// Makes a call with a bulk data item that the server does not examine.
    ///
    /// # Errors
    /// The call failed or took too long.
    pub fn write(&mut self, data: &Bytes) -> Outcomes<()> {
        let mut args = Encoder::new();
        args.bulk(data.clone());
        self.call_with(args.finish())
    }

    fn call_with(&mut self, args: Message) -> Outcomes<()> {
        let call = self.client.call(Call {
            prog: PROGRAM,
            vers: VERSION,
            proc: 0,
            args,
            reply: ReplyRoom::default(),
        });
        both(&self.runtime, &mut self.server, call)??;
        Ok(())
    }

    /// Runs a future that uses a clone of the client.
    ///
    /// # Errors
    /// It took too long.
    pub(crate) fn run<F: Future>(&mut self, future: F) -> Outcomes<F::Output> {
        both(&self.runtime, &mut self.server, future)
    }
}

/// Runs a future of the client to completion, with alternating turns of client and server.
fn both<F: Future>(runtime: &Runtime, server: &mut Server, future: F) -> Outcomes<F::Output> {
    let mut future = pin!(future);
    runtime.wake();
    for _ in 0..TURNS {
        if let Stepped::Done(output) = runtime.step(future.as_mut(), 1) {
            return Ok(output);
        }
        server.step();
    }
    Err("the call takes for ever".into())
}

/// An exchange of the same number of bytes over bare TCP, also on one thread.
pub struct Bare {
    client: TcpStream,
    server: TcpStream,
    buffer: Vec<u8>,
}

impl Bare {
    /// Creates a connection.
    ///
    /// # Errors
    /// The error of the operating system.
    pub fn new() -> io::Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
        let client = TcpStream::connect(listener.local_addr()?)?;
        let (server, _) = listener.accept()?;
        for stream in [&client, &server] {
            stream.set_nodelay(true)?;
            stream.set_nonblocking(true)?;
        }
        Ok(Self {
            client,
            server,
            buffer: Vec::new(),
        })
    }

    /// Sends a request and a reply, as long as those of NULL.
    ///
    /// # Errors
    /// The connection was lost.
    pub fn call(&mut self) -> io::Result<()> {
        self.exchange(CALL, REPLY)
    }

    /// Sends a request and a reply of the given lengths in bytes.
    ///
    /// # Errors
    /// The connection was lost.
    pub fn exchange(&mut self, request: usize, reply: usize) -> io::Result<()> {
        let most = request.max(reply);
        if self.buffer.len() < most {
            self.buffer.resize(most, 0);
        }
        let buffer = &mut self.buffer;
        pass(&mut self.client, &mut self.server, &mut buffer[..request])?;
        pass(&mut self.server, &mut self.client, &mut buffer[..reply])
    }
}

/// Sends `bytes` over a connection and receives them at its other end.
fn pass(from: &mut TcpStream, to: &mut TcpStream, bytes: &mut [u8]) -> io::Result<()> {
    let (mut sent, mut received) = (0, 0);
    while received < bytes.len() {
        if sent < bytes.len() {
            sent += some(from.write(&bytes[sent..]))?;
        }
        received += some(to.read(&mut bytes[received..]))?;
    }
    Ok(())
}

/// Returns the number of bytes that were passed on: none if there is no room, or nothing there yet.
fn some(passed: io::Result<usize>) -> io::Result<usize> {
    match passed {
        Ok(0) => Err(io::ErrorKind::UnexpectedEof.into()),
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(0),
        other => other,
    }
}
