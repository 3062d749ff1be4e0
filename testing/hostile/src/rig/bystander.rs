//! An honest client.

use std::cell::RefCell;
use std::net::SocketAddr;
use std::rc::Rc;

use bytes::Bytes;
use iwarp::{Iwarp, Options};
use nfs_binding::client::{AttachOptions, Mount};
use nfs_binding::proto::{FileHandle, SetAttributes, Stable};
use onc_rpc::{AuthSys, Credential};
use rdma::Pool;
use rpc_transport::rdma::{Choice, RdmaClient, RdmaClientOptions, Version};
use rpc_transport::{Client, ClientOptions, ClientPort, Retry, Runtime};

use super::{BYSTANDER_POOL, EXPORT, Form, features};
use crate::stream::PATIENCE;
use crate::{Wrong, wrong};

/// Bytes of each WRITE and READ: too many to go inline.
const LEN: usize = 8192;
/// The file that it works on.
const FILE: &[u8] = b"file";

/// A client that mounts, writes and reads, and knows what it must see.
pub struct Bystander {
    runtime: Runtime,
    client: Client,
    mount: Mount<Client>,
    file: FileHandle,
    /// Where its memory comes from.
    pub pool: Pool,
    serial: u32,
}

impl std::fmt::Debug for Bystander {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Bystander").finish_non_exhaustive()
    }
}

/// Who calls.
pub(crate) fn root() -> Credential {
    Credential::Sys(AuthSys::default())
}

impl Bystander {
    /// Connects, mounts, and makes its file.
    ///
    /// # Errors
    /// The server does not let it.
    pub fn connect(runtime: Runtime, server: SocketAddr, form: Form) -> Result<Self, Wrong> {
        let pool = Pool::new(BYSTANDER_POOL);
        let device = Iwarp::new(Options::default(), pool.clone()).map_err(wrong)?;
        let mut options = RdmaClientOptions {
            version: Choice::Only(match form {
                Form::First => Version::One,
                Form::Translated | Form::Second => Version::Two,
            }),
            ..RdmaClientOptions::default()
        };
        options.common.credits = 8;
        options.common.features = features(form);
        let port = RdmaClient::new(Box::new(device), options);
        let port: Rc<RefCell<dyn ClientPort>> = Rc::new(RefCell::new(port));
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

    /// The runtime that drives it.
    #[must_use]
    pub fn runtime(&self) -> &Runtime {
        &self.runtime
    }

    /// The handle of its file, for others to lie about.
    #[must_use]
    pub fn file(&self) -> Vec<u8> {
        self.file.as_bytes().to_vec()
    }

    /// Connections that it had to make again.
    #[must_use]
    pub fn reconnects(&self) -> u64 {
        self.client.stats().reconnects
    }

    /// A round trip.
    ///
    /// # Errors
    /// There is none.
    pub fn null(&self) -> Result<(), Wrong> {
        let null = self.runtime.block_on(self.mount.nfs().null(&()));
        null.map_err(|error| wrong(format!("the bystander's NULL: {error}")))
    }

    /// NULL, WRITE by read chunk, READ by write chunk: with content that was never there before.
    ///
    /// # Errors
    /// One of them failed, or other data came back.
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

/// Bytes that depend on a seed and on their place.
#[must_use]
pub fn content(seed: u32, len: usize) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b1) | 1;
    let byte = |_| {
        // xorshift32
        state ^= state << 13;
        state ^= state >> 17;
        state ^= state << 5;
        state as u8
    };
    (0..len).map(byte).collect()
}
