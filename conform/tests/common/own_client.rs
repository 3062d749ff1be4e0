//! This project's own client, which performs the operations of the cases in this process.

#![allow(
    unreachable_pub,
    clippy::unwrap_used,
    reason = "helpers of tests, which clippy takes for none"
)]

use std::cell::RefCell;
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::join_all;
use iwarp::{Iwarp, Options};
use nfs_binding::client::{AttachOptions, Follow, Mount, Nfs3, NfsError};
use nfs_binding::proto::{SetAttributes, Stable};
use onc_rpc::{AuthSys, Credential};
use rdma::Pool;
use rpc_transport::rdma::{Choice, RdmaClient, RdmaClientOptions, Version};
use rpc_transport::{Client as RpcClient, ClientOptions, ClientTransport, Retry, Runtime};
use rpcrdma_conform::client::case::Operation;
use rpcrdma_conform::client::under_test::{Client, Ended, Task};
use rpcrdma_conform::dialect::Dialect;

use super::relay::Relay;

const EXPORT: &[u8] = b"/conform";
const MIB: usize = 1 << 20;
/// The length of a READ.
const PIECE: u32 = 8192;
/// The usual wait for a reply.
const TIMEOUT: Duration = Duration::from_secs(20);

/// Starts something between the client and the judge, whose address it gets, for one performance.
pub type Between = Box<dyn FnMut(SocketAddr) -> Relay + Send>;

/// The client.
pub struct Own {
    between: Option<Between>,
    /// The longest wait for a reply, on all connections.
    timeout: Duration,
    /// The longest READ, bytes.
    piece: u32,
    /// Whether a READ that returns less than it asks for is taken for the end of the file.
    stops_short: bool,
    /// The versions to be used, whatever the client is told.
    fixed: Option<Choice>,
    /// Whether a message in several Sends is estimated so high that chunks are cheaper, in version-two-07.
    chunks: bool,
    /// Whether the client has the features that save round trips.
    features: bool,
}

impl Own {
    /// Returns the client as it is.
    pub fn new() -> Self {
        Self {
            between: None,
            timeout: TIMEOUT,
            piece: PIECE,
            stops_short: false,
            fixed: None,
            chunks: false,
            features: false,
        }
    }

    /// Returns the client behind something that changes what it sends and receives.
    pub fn behind(between: Between) -> Self {
        Self {
            between: Some(between),
            ..Self::new()
        }
    }

    /// Sets the longest READ, bytes.
    pub fn reading(self, piece: u32) -> Self {
        Self { piece, ..self }
    }

    /// Takes a READ that returns less than it asks for as the end of the file.
    pub fn stopping_short(self) -> Self {
        Self {
            stops_short: true,
            ..self
        }
    }

    /// Sets the versions to be used, whatever the client is told.
    pub fn speaking(self, fixed: Choice) -> Self {
        let fixed = Some(fixed);
        Self { fixed, ..self }
    }

    /// Makes the client use chunks where it would continue calls and replies.
    pub fn preferring_chunks(self) -> Self {
        let chunks = true;
        Self { chunks, ..self }
    }

    /// Gives the client the features that save round trips: data placed by Sends, and continued messages.
    pub fn with_features(self) -> Self {
        let features = true;
        Self { features, ..self }
    }

    /// Sets how long the client waits for a reply.
    pub fn waiting(self, timeout: Duration) -> Self {
        Self { timeout, ..self }
    }
}

/// Returns the product's name of a version.
fn version(dialect: Dialect) -> Version {
    match dialect {
        Dialect::One => Version::ONE,
        Dialect::Two => Version::TWO,
        Dialect::Wg => Version::TWO_WG,
    }
}

impl Client for Own {
    fn is_told(&self, _: Operation) -> bool {
        self.fixed.is_none()
    }

    fn perform(&mut self, task: &Task<'_>) -> Ended {
        let between = self.between.as_mut().map(|start| start(task.address));
        let address = between.as_ref().map_or(task.address, Relay::address);
        let (piece, stops_short) = (self.piece, self.stops_short);
        let runtime = Runtime::new().unwrap();
        let device = Iwarp::new(Options::default(), Pool::new(16 * MIB)).unwrap();
        let protocols = match self.features {
            true => rpcrdma_protocols::standard(&"ddp+cont".parse().unwrap()),
            false => rpcrdma_protocols::base(),
        };
        let mut options = RdmaClientOptions::new(protocols);
        options.version = self.fixed.unwrap_or(Choice::Only(version(task.dialect)));
        if self.chunks {
            options.common.costs.group = Duration::from_millis(10);
        }
        let port = RdmaClient::new(Box::new(device), options);
        let port: Rc<RefCell<dyn ClientTransport>> = Rc::new(RefCell::new(port));
        let options = ClientOptions {
            credential: Credential::Sys(AuthSys::default()),
            timeout: self.timeout,
            retry: Retry::Soft { retransmissions: 0 },
            ..ClientOptions::default()
        };
        let performed = runtime.block_on(async {
            let client = RpcClient::connect(&runtime, address, port, options);
            let client = client.await.map_err(|error| error.to_string())?;
            match task.operation {
                Operation::Ping => {
                    let null = Nfs3::new(&client).null(&()).await;
                    null.map(|()| None).map_err(|error| error.to_string())
                }
                other => {
                    let reading = (piece, stops_short);
                    let done = operation(client, other, task.content, reading).await;
                    done.map_err(|error| error.to_string())
                }
            }
        });
        performed.map_or_else(Ended::Failed, Ended::Succeeded)
    }
}

async fn operation(
    client: RpcClient,
    operation: Operation,
    content: &[u8],
    (piece, stops_short): (u32, bool),
) -> Result<Option<Vec<u8>>, NfsError> {
    let options = AttachOptions::default();
    let attached = Mount::attach(client.clone(), client, EXPORT, &options).await;
    let (mount, _) = attached?;
    match operation {
        Operation::Ping => Ok(None),
        Operation::Read => {
            let mut parts = read(&mount, piece, stops_short).await?;
            if stops_short {
                let short = parts.iter().position(|it| it.len() < piece as usize);
                parts.truncate(short.map_or(parts.len(), |at| at + 1));
            }
            Ok(Some(parts.concat()))
        }
        Operation::Write => {
            let made = mount
                .create(mount.root(), b"new", SetAttributes::default(), &b"new"[..])
                .await?;
            let data = Bytes::copy_from_slice(content);
            let written = mount.write(made.handle, 0, data, Stable::Unstable, &b"new"[..]);
            written.await?;
            mount.commit(made.handle, &b"new"[..]).await?;
            Ok(None)
        }
        Operation::List => {
            let folder = mount.resolve(b"folder", Follow::Yes).await?.handle;
            let entries = mount.list_all(folder, &b"folder"[..]).await?;
            let names = entries
                .iter()
                .flat_map(|it| [&it.name.0[..], b"\n"].concat());
            Ok(Some(names.collect()))
        }
    }
}

/// Reads the file, all parts of this length at the same time, and each of them whole, unless `once`.
async fn read(mount: &Mount<RpcClient>, piece: u32, once: bool) -> Result<Vec<Vec<u8>>, NfsError> {
    let file = mount.resolve(b"file", Follow::Yes).await?;
    let size = mount.getattr(file.handle, &b"file"[..]).await?.size;
    let parts = (0..size).step_by(piece as usize).map(|start| async move {
        let end = size.min(start + u64::from(piece));
        let mut bytes = Vec::new();
        while start + (bytes.len() as u64) < end {
            let at = start + bytes.len() as u64;
            let read = mount.read(file.handle, at, (end - at) as u32, &b"file"[..]);
            for piece in read.await?.data.0.pieces() {
                bytes.extend_from_slice(piece);
            }
            if once {
                break;
            }
        }
        Ok::<_, NfsError>(bytes)
    });
    join_all(parts).await.into_iter().collect()
}
