//! An honest client (the bystander).

use std::cell::RefCell;
use std::net::SocketAddr;
use std::rc::Rc;

use bytes::Bytes;
use iwarp::{Iwarp, Options};
use nfs_binding::client::{AttachOptions, Mount};
use nfs_binding::proto::{FileHandle, SetAttributes, Stable};
use onc_rpc::{AuthSys, Credential};
use rdma::Pool;
use rpc_transport::rdma::{Choice, RdmaClient, RdmaClientOptions};
use rpc_transport::{Client, ClientOptions, ClientTransport, Retry, Runtime};

use super::{BYSTANDER_POOL, EXPORT, Form, content, features};
use crate::stream::PATIENCE;
use crate::{Wrong, wrong};

/// The bytes of each WRITE and READ: too many for inline data.
const LEN: usize = 8192;
/// The name of its file.
const FILE: &[u8] = b"file";

/// A client that mounts, writes and reads, and checks the results.
pub struct Bystander {
    runtime: Runtime,
    client: Client,
    mount: Mount<Client>,
    file: FileHandle,
    /// The memory pool of the bystander.
    pub pool: Pool,
    serial: u32,
}

impl std::fmt::Debug for Bystander {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Bystander").finish_non_exhaustive()
    }
}

/// Returns the credential of root.
pub(crate) fn root() -> Credential {
    Credential::Sys(AuthSys::default())
}

impl Bystander {
    /// Connects, mounts, and creates its file.
    ///
    /// # Errors
    /// The server refuses.
    pub fn connect(runtime: Runtime, server: SocketAddr, form: Form) -> Result<Self, Wrong> {
        let pool = Pool::new(BYSTANDER_POOL);
        let device = Iwarp::new(Options::default(), pool.clone()).map_err(wrong)?;
        let mut options = RdmaClientOptions {
            version: Choice::Only(form.version()),
            ..RdmaClientOptions::new(rpcrdma_protocols::base())
        };
        options.common.credits = 8;
        options.common.protocols = rpcrdma_protocols::standard(&features(form));
        let port = RdmaClient::new(Box::new(device), options);
        let port: Rc<RefCell<dyn ClientTransport>> = Rc::new(RefCell::new(port));
        let options = ClientOptions {
            credential: root(),
            timeout: PATIENCE,
            retry: Retry::Soft { retransmissions: 1 },
            ..ClientOptions::default()
        };
        let attach_options = AttachOptions::default();
        let (client, mount, file) = runtime.block_on(async {
            let client = Client::connect(&runtime, server, port, options).await;
            let client = client.map_err(wrong)?;
            let path = EXPORT.as_bytes();
            let attached = Mount::attach(client.clone(), client.clone(), path, &attach_options);
            let (mount, _) = attached.await.map_err(wrong)?;
            let attributes = SetAttributes::default();
            let made = mount.create(mount.root(), FILE, attributes, FILE).await;
            let file = made.map_err(wrong)?.handle;
            Ok::<_, Wrong>((client, mount, file))
        })?;
        Ok(Self {
            runtime,
            client,
            mount,
            file,
            pool,
            serial: 0,
        })
    }

    /// Returns the runtime that drives the client.
    #[must_use]
    pub fn runtime(&self) -> &Runtime {
        &self.runtime
    }

    /// Returns the handle of its file, for use in hostile calls.
    #[must_use]
    pub fn file(&self) -> Vec<u8> {
        self.file.as_bytes().to_vec()
    }

    /// Returns the number of reconnects.
    #[must_use]
    pub fn reconnects(&self) -> u64 {
        self.client.stats().reconnects
    }

    /// Makes a round trip.
    ///
    /// # Errors
    /// The call failed.
    pub fn null(&self) -> Result<(), Wrong> {
        let null = self.runtime.block_on(self.mount.nfs().null(&()));
        null.map_err(|error| wrong(format!("the bystander's NULL: {error}")))
    }

    /// Makes NULL, WRITE with a Read chunk and READ with a Write chunk, with new content each time.
    ///
    /// # Errors
    /// A call failed, or returned other data.
    pub fn works(&mut self) -> Result<(), Wrong> {
        self.null()?;
        self.serial += 1;
        let data: Bytes = content(self.serial, LEN).into();
        let offset = u64::from(self.serial % 7) * 4096;
        let (mount, file) = (&self.mount, self.file);
        let read = self.runtime.block_on(async {
            let write = mount.write(file, offset, data.clone(), Stable::FileSync, FILE);
            let written = write.await.map_err(wrong)?.count;
            if written as usize != LEN {
                return Err(wrong(format!(
                    "the bystander wrote {written} of {LEN} bytes"
                )));
            }
            mount
                .read(file, offset, LEN as u32, FILE)
                .await
                .map_err(wrong)
        })?;
        match read.data.0 == data {
            true => Ok(()),
            false => Err(wrong("the bystander read what it did not write")),
        }
    }
}
