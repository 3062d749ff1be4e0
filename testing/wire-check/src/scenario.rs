//! A server and its clients, over devices whose requests are recorded.

use std::cell::RefCell;
use std::net::{Ipv4Addr, SocketAddr};
use std::rc::Rc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use iwarp::{CrcPolicy, Iwarp, Options};
use nfs_binding::proto::{FileHandle, NFS_PROGRAM, NFS_VERSION, Procedure, ReadArgs, Xdr, nfs};
use onc_rpc::{AuthSys, CallHeader, Credential, Encoder, Verifier};
use rdma::middleware::{Posted, Tapped};
use rdma::{Device, Pool};
use rpc_transport::rdma::{
    Choice, RdmaClient, RdmaClientOptions, RdmaServer, RdmaServerOptions, Version,
};
use rpc_transport::{
    Client, ClientOptions, ClientTransport, Runtime, Server, ServerOptions, ServerTransport, Stop,
    TcpClient, TcpOptions, TcpServer,
};
use rpcrdma_protocols::RoundTripFeatures;
use rpcrdma_v1::{Body, Chunks, ErrorBody, Header};

use crate::calls;
use crate::columns::Direction;
use crate::error::Error;
use crate::expect::Connection;
use crate::own::Own;
use crate::raw::Raw;
use crate::service;

/// The time limit. All calls together take a second; more indicates a hang.
const PATIENCE: Duration = Duration::from_secs(60);

/// The memory of one device, bytes.
const POOL: usize = 256 << 20;

/// A request that was posted to a device.
pub(crate) struct Seen {
    pub(crate) direction: Direction,
    pub(crate) connection: Connection,
    pub(crate) posted: Posted,
}

/// The record of requests.
type Log = Arc<Mutex<Vec<Seen>>>;

/// The transport of a scenario.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Form {
    /// TCP, for comparison.
    Tcp,
    /// RPC-over-RDMA with these features at both ends.
    Rdma(Version, RoundTripFeatures),
}

/// The records that the devices of a scenario write.
#[derive(Clone)]
struct Records {
    /// The requests that are posted.
    log: Log,
    /// The files that the devices write.
    own: Option<Own>,
}

/// Returns an iwarp device that records its requests and is captured. `number` identifies the
/// device.
fn tapped(records: &Records, direction: Direction, number: u32) -> Result<Box<dyn Device>, Error> {
    let options = Options {
        crc: CrcPolicy::Request,
        ..Options::default()
    };
    let device = Iwarp::new(options, Pool::new(POOL)).map_err(Error::ours("an iwarp device"))?;
    let device: Box<dyn Device> = match &records.own {
        Some(own) => Box::new(own.capture(direction, device)),
        None => Box::new(device),
    };
    let log = Arc::clone(&records.log);
    Ok(Box::new(Tapped::new(device, move |qp, posted| {
        let seen = Seen {
            direction,
            connection: (number, qp),
            posted,
        };
        log.lock()
            .unwrap_or_else(PoisonError::into_inner)
            .push(seen);
    })))
}

/// A running server before the first call.
pub(crate) struct Stage {
    address: SocketAddr,
    stop: Stop,
    thread: JoinHandle<()>,
    records: Records,
    form: Form,
}

/// The record of the whole scenario.
pub(crate) struct Scenario {
    /// All requests of all devices, in order for each device.
    pub(crate) seen: Vec<Seen>,
    /// The number of connections.
    pub(crate) connections: usize,
}

impl Stage {
    /// Starts the server on a free port.
    pub(crate) fn set(form: Form, own: Option<&Own>) -> Result<Self, Error> {
        let stop = Stop::new();
        let records = Records {
            log: Log::default(),
            own: own.cloned(),
        };
        let (tell, told) = channel();
        let thread = {
            let (stop, records) = (stop.clone(), records.clone());
            // A device must stay on the thread that created it.
            thread::spawn(move || serve(form, &records, &stop, &tell))
        };
        let address = started(&told)?;
        Ok(Self {
            address,
            stop,
            thread,
            records,
            form,
        })
    }

    /// Returns the server's address.
    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    /// Makes the calls that stock tshark is checked by, and stops the server.
    pub(crate) fn play(self) -> Result<Scenario, Error> {
        self.run(clients)
    }

    /// Makes calls of all procedures on one connection, and stops the server.
    pub(crate) fn play_all(self) -> Result<Scenario, Error> {
        self.run(|records, form, address| {
            with_client(records, form, address, true)?;
            Ok(1)
        })
    }

    fn run(
        self,
        calls: impl FnOnce(&Records, Form, SocketAddr) -> Result<usize, Error>,
    ) -> Result<Scenario, Error> {
        let outcome = calls(&self.records, self.form, self.address);
        self.stop.stop();
        let ended = self.thread.join();
        let connections = outcome?;
        ended.map_err(|_| Error::ours("the server")("it panicked"))?;
        let mut log = self
            .records
            .log
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        Ok(Scenario {
            seen: std::mem::take(&mut log),
            connections,
        })
    }
}

fn started(told: &Receiver<Result<SocketAddr, Error>>) -> Result<SocketAddr, Error> {
    let address = told.recv_timeout(PATIENCE);
    address.map_err(Error::ours("starting the server"))?
}

/// Returns the server's side of the transport, and its address.
fn server_port(
    form: Form,
    records: &Records,
) -> Result<(SocketAddr, Rc<RefCell<dyn ServerTransport>>), Error> {
    let any_port = (Ipv4Addr::LOCALHOST, 0).into();
    match form {
        Form::Tcp => {
            let port = TcpServer::bind(any_port, TcpOptions::default());
            let port = port.map_err(Error::ours("listening"))?;
            Ok((port.local_addr(), Rc::new(RefCell::new(port))))
        }
        Form::Rdma(_, features) => {
            let device = tapped(records, Direction::Reply, 0)?;
            let mut options = RdmaServerOptions::new(rpcrdma_protocols::base());
            options.common.protocols = rpcrdma_protocols::standard(&features);
            let mut port = RdmaServer::new(device, options);
            let address = port.listen(any_port).map_err(Error::ours("listening"))?;
            Ok((address, Rc::new(RefCell::new(port))))
        }
    }
}

fn serve(form: Form, records: &Records, stop: &Stop, tell: &Sender<Result<SocketAddr, Error>>) {
    let started = || {
        let (address, port) = server_port(form, records)?;
        let server = Server::new(service::nfs()?, ServerOptions::default());
        let mut server = server.map_err(Error::ours("a server"))?;
        server
            .add_transport(port)
            .map_err(Error::ours("a server"))?;
        Ok((server, address))
    };
    // The starting thread waits for this message, so the receiver still exists.
    match started() {
        Ok((mut server, address)) => {
            let _ = tell.send(Ok(address));
            if let Err(error) = server.run(stop) {
                let _ = tell.send(Err(Error::ours("serving")(error)));
            }
        }
        Err(error) => {
            let _ = tell.send(Err(error));
        }
    }
}

/// Returns the client's side of the transport.
fn client_port(form: Form, records: &Records) -> Result<Rc<RefCell<dyn ClientTransport>>, Error> {
    match form {
        Form::Tcp => Ok(Rc::new(RefCell::new(TcpClient::new(TcpOptions::default())))),
        Form::Rdma(version, features) => {
            let device = tapped(records, Direction::Call, 1)?;
            let mut options = RdmaClientOptions {
                version: Choice::Only(version),
                ..RdmaClientOptions::new(rpcrdma_protocols::base())
            };
            options.common.protocols = rpcrdma_protocols::standard(&features);
            Ok(Rc::new(RefCell::new(RdmaClient::new(device, options))))
        }
    }
}

/// Makes the calls of one client: those of all procedures, if `all`. Returns the handle of a long
/// file.
fn with_client(
    records: &Records,
    form: Form,
    server: SocketAddr,
    all: bool,
) -> Result<FileHandle, Error> {
    let runtime = Runtime::new().map_err(Error::ours("a client"))?;
    let port = client_port(form, records)?;
    let options = ClientOptions {
        credential: credential(),
        ..ClientOptions::default()
    };
    let file = runtime.block_on(runtime.timeout(PATIENCE, async {
        let client = Client::connect(&runtime, server, port, options).await;
        let client = client.map_err(Error::ours("connecting"))?;
        let file = calls::make(&client, service::EXPORT).await?;
        if all {
            calls::make_others(&client, service::EXPORT).await?;
        }
        Ok(file)
    }));
    file.map_err(Error::ours("the calls"))?
}

/// Runs the clients. Returns the number of connections.
fn clients(records: &Records, form: Form, server: SocketAddr) -> Result<usize, Error> {
    let file = with_client(records, form, server, false)?;
    let mut raw = Raw::new(tapped(records, Direction::Call, 2)?)?;
    let answers = raw.exchange(server, &[hopeless(file)])?;
    let answer = answers.first().map(Header::decode);
    match answer {
        Some(Ok((
            Header {
                body: Body::Error(ErrorBody::Chunk),
                ..
            },
            _,
        ))) => Ok(2),
        other => Err(Error::ours("a READ without chunks")(format!("{other:?}"))),
    }
}

fn credential() -> Credential {
    Credential::Sys(AuthSys {
        machine_name: Bytes::from_static(b"wire-check"),
        ..AuthSys::default()
    })
}

/// Encodes a READ whose results fit neither inline nor in a chunk, because there is none: the
/// server must answer with ERR_CHUNK (RFC 8166, section 4.5.3).
fn hopeless(file: FileHandle) -> Bytes {
    let xid = 0x7eed_1e55;
    let header = Header {
        xid,
        credits: 1,
        body: Body::Msg(Chunks::default()),
    };
    let call = CallHeader {
        xid,
        prog: NFS_PROGRAM,
        vers: NFS_VERSION,
        proc: nfs::Read::NUMBER,
        cred: credential(),
        verf: Verifier::default(),
    };
    let read = ReadArgs {
        file,
        offset: 0,
        count: 64 << 10,
    };
    let mut args = Encoder::new();
    read.encode(&mut args);
    let mut message = BytesMut::new();
    header.encode_into(&mut message);
    message.extend_from_slice(&call.encode());
    message.extend_from_slice(&args.into_bytes());
    message.freeze()
}
