//! The real client, which is under attack.

use std::cell::RefCell;
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::Duration;

use bytes::Bytes;
use iwarp::{Iwarp, Options};
use nfs_binding::client::{AttachOptions, Mount, NfsError};
use nfs_binding::proto::{FileHandle, Stable};
use rdma::Pool;
use rpc_transport::rdma::{CallbackOptions, Choice, RdmaClient, RdmaClientOptions};
use rpc_transport::{
    CallError, Client, ClientOptions, ClientTransport, ProgramVersions, Request, Retry, Runtime,
    Service, ServiceOutcome, TcpClient, TcpOptions,
};
use rpcrdma_protocols::RoundTripFeatures;

use super::honest::EXPORT;
use super::{Ask, Case, DATA_SEED, LEN, Outcome, Step};
use crate::cases::CALLED;
use crate::rig::{CALLBACKS, CREDITS, Form, SEGMENT, VICTIM_POOL, content, features, root};
use crate::stream::PATIENCE;
use crate::{End, Wrong, wrong};

/// The time-out of a client that waits for a silent server. It suffices for mounting on a busy
/// machine.
const SHORT: Duration = Duration::from_millis(1500);
/// The number of retransmissions after short time-outs until the hostile server has begun to be honest, which takes
/// three seconds after a flood.
const SEVERAL: u32 = 20;
/// The time-out of a client that waits for a connection.
const HASTY: Duration = Duration::from_millis(500);

/// The service for callbacks.
struct Nothing;

impl Service for Nothing {
    fn programs(&self) -> &[ProgramVersions] {
        &[ProgramVersions {
            prog: CALLED,
            low: 1,
            high: 1,
        }]
    }

    fn call(&mut self, _: Request) -> ServiceOutcome {
        ServiceOutcome::Done(Ok(onc_rpc::Message::default()))
    }

    fn remember_reply(&self, _: u32, _: u32, _: u32) -> bool {
        false
    }
}

/// A client of the hostile server.
pub(super) struct Victim {
    runtime: Runtime,
    pub(super) pool: Pool,
    port: Rc<RefCell<dyn ClientTransport>>,
    /// The port, if it is of RDMA.
    rdma: Option<Rc<RefCell<RdmaClient>>>,
    client: Option<Client>,
}

impl Victim {
    pub(super) fn new(runtime: &Runtime, case: &Case, form: Form) -> Result<Self, Wrong> {
        let pool = Pool::new(VICTIM_POOL);
        let device = Iwarp::new(Options::default(), pool.clone()).map_err(wrong)?;
        let mut options = RdmaClientOptions {
            version: Choice::Only(form.version()),
            ..RdmaClientOptions::new(rpcrdma_protocols::base())
        };
        if case.outcome == Outcome::NoAnswer {
            options.connect_timeout = HASTY;
        }
        options.common.credits = CREDITS;
        let features = match case.plain {
            true => RoundTripFeatures::default(),
            false => features(form),
        };
        options.common.protocols = rpcrdma_protocols::standard(&features);
        if case.called {
            options.common.callbacks = CallbackOptions {
                credits: CALLBACKS,
                chunks: false,
            };
        }
        if !matches!(case.ask, Ask::LongWrite(_)) && !case.plain {
            options.common.max_segment = SEGMENT;
        }
        let port = RdmaClient::new(Box::new(device), options);
        let port = Rc::new(RefCell::new(port));
        Ok(Self {
            runtime: runtime.clone(),
            pool,
            rdma: Some(port.clone()),
            port,
            client: None,
        })
    }

    /// Returns a client that comes to the hostile server by TCP to a gateway.
    pub(super) fn behind_gateway(runtime: &Runtime, case: &Case) -> Self {
        let pool = Pool::new(VICTIM_POOL);
        let options = TcpOptions {
            pool: pool.clone(),
            callbacks: case.called,
            ..TcpOptions::default()
        };
        Self {
            runtime: runtime.clone(),
            pool,
            rdma: None,
            port: Rc::new(RefCell::new(TcpClient::new(options))),
            client: None,
        }
    }

    /// Connects, mounts, and performs the case's operation.
    pub(super) fn act(&mut self, server: SocketAddr, case: &Case) -> Outcome {
        let runtime = self.runtime.clone();
        runtime.block_on(async {
            match self.mounted(server, case).await {
                Ok(mount) => act(&mount, case.ask).await,
                Err(outcome) => outcome,
            }
        })
    }

    async fn mounted(&mut self, server: SocketAddr, case: &Case) -> Result<Mount<Client>, Outcome> {
        let port = Rc::clone(&self.port);
        let mut options = ClientOptions {
            credential: root(),
            timeout: PATIENCE,
            retry: Retry::Soft { retransmissions: 1 },
            ..ClientOptions::default()
        };
        if case.outcome == Outcome::TimedOut {
            options.timeout = SHORT;
            options.retry = Retry::Soft { retransmissions: 0 };
        } else if is_flooded(case) {
            options.timeout = SHORT;
            options.retry = Retry::Soft {
                retransmissions: SEVERAL,
            };
        }
        let client = match case.called {
            false => Client::connect(&self.runtime, server, port, options).await,
            true => {
                let service = Box::new(Nothing);
                Client::connect_with_callbacks(&self.runtime, server, port, options, service).await
            }
        };
        let client = client.map_err(|error| outcome_of(&error))?;
        self.client = Some(client.clone());
        let options = AttachOptions {
            readdirplus: false,
            ..AttachOptions::default()
        };
        let attached = Mount::attach(client.clone(), client, EXPORT, &options).await;
        let (mount, _) = attached.map_err(|error| outcome(&error))?;
        Ok(mount)
    }

    /// Returns the number of reconnects.
    pub(super) fn reconnects(&self) -> u64 {
        self.client
            .as_ref()
            .map_or(0, |client| client.stats().reconnects)
    }

    /// Makes a round trip on the present connection.
    pub(super) fn null(&self) -> Result<(), Wrong> {
        let Some(client) = &self.client else {
            return Err(wrong("there is no client"));
        };
        let nfs = nfs_binding::client::Nfs3::new(client);
        let null = self.runtime.block_on(nfs.null(&()));
        null.map_err(|error| wrong(format!("the victim's NULL: {error}")))
    }

    /// Returns the number of registrations that were not invalidated. Meaningful only while no
    /// connection has ended. 0 behind a gateway, whose memory the fixture looks at.
    pub(super) fn registered(&self) -> u64 {
        let counters = self.rdma.as_ref().map(|port| port.borrow().counters());
        counters.map_or(0, |counters| {
            counters.registrations - counters.local_invalidations - counters.remote_invalidations
        })
    }
}

/// Returns whether both ends may wait for each other until a time-out of the client, whatever it is: the server neither
/// reads nor replies, and the client reads no more while its answers cannot be sent. It depends on timing whether the
/// connection ends before. The longer this takes, the rarer are the probes by which the server's TCP learns that the
/// client has left (RFC 9293, 3.8.6.1): with 30 seconds, the server waits for 51.
fn is_flooded(case: &Case) -> bool {
    let is_flood = |step: &Step| matches!(step, Step::Flood(..));
    case.end == End::Left && case.script.iter().any(is_flood)
}

async fn act(mount: &Mount<Client>, ask: Ask) -> Outcome {
    let Some(file) = FileHandle::new(&[0xf1; 16]) else {
        return Outcome::Protocol;
    };
    let at = b"file".as_slice();
    let result = match ask {
        Ask::Null => match mount.nfs().null(&()).await {
            Ok(()) => Ok(()),
            Err(error) => return outcome_of(&error),
        },
        Ask::Nulls(count) => return nulls(mount, count).await,
        Ask::Room(len) => {
            let call = rpc_transport::Call {
                reply: rpc_transport::ReplyRoom {
                    payload: len,
                    ..rpc_transport::ReplyRoom::default()
                },
                ..null()
            };
            return match mount.nfs().rpc().call(call).await {
                Ok(_) => Outcome::Right,
                Err(error) => outcome_of(&error),
            };
        }
        Ask::Read => return read(mount, file, LEN).await,
        Ask::LongRead(len) => return read(mount, file, len).await,
        Ask::Write => write(mount, file, LEN).await,
        Ask::LongWrite(len) => write(mount, file, len).await,
        Ask::List => mount.list_all(file, at).await.map(drop),
    };
    result.map_or_else(|error| outcome(&error), |()| Outcome::Right)
}

async fn write(mount: &Mount<Client>, file: FileHandle, len: u32) -> Result<(), NfsError> {
    let data: Bytes = content(DATA_SEED, len as usize).into();
    let written = mount.write(file, 0, data, Stable::FileSync, b"file".as_slice());
    written.await.map(drop)
}

async fn read(mount: &Mount<Client>, file: FileHandle, len: u32) -> Outcome {
    match mount.read(file, 0, len, b"file".as_slice()).await {
        Ok(read) if read.data.0 != content(DATA_SEED, len as usize) => Outcome::Nonsense,
        Ok(_) => Outcome::Right,
        Err(error) => outcome(&error),
    }
}

async fn nulls(mount: &Mount<Client>, count: usize) -> Outcome {
    // All are sent, as far as credits allow, before the first reply is awaited.
    let calls: Vec<_> = (0..count).map(|_| mount.nfs().rpc().call(null())).collect();
    for call in calls {
        if let Err(error) = call.await {
            return outcome_of(&error);
        }
    }
    Outcome::Right
}

fn null() -> rpc_transport::Call {
    rpc_transport::Call {
        prog: nfs_binding::proto::NFS_PROGRAM,
        vers: nfs_binding::proto::NFS_VERSION,
        proc: 0,
        args: onc_rpc::Message::default(),
        reply: rpc_transport::ReplyRoom::default(),
    }
}

fn outcome(error: &NfsError) -> Outcome {
    match error {
        NfsError::Status { status, .. } => Outcome::Status(status.0),
        NfsError::Call { source, .. } => outcome_of(source),
        _ => Outcome::Nonsense,
    }
}

fn outcome_of(error: &CallError) -> Outcome {
    match error {
        CallError::TimedOut { .. } => Outcome::TimedOut,
        CallError::Connect { .. } => Outcome::NoConnection,
        CallError::Unanswered { .. } => Outcome::Unanswered,
        CallError::Refused(_) => Outcome::Refused,
        CallError::Chunk(_) => Outcome::Chunk,
        _ => Outcome::Protocol,
    }
}
