//! The honest client beside the crowd: its operations, and their results.

use std::cell::RefCell;
use std::fs::File;
use std::io::Read;
use std::net::SocketAddr;
use std::path::Path;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use bytes::Bytes;
use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use hostile::rig::content;
use hostile::{Wrong, wrong};
use iwarp::{Iwarp, Options};
use nfs_binding::client::{AttachOptions, Mount};
use nfs_binding::proto::{FileHandle, SetAttributes, Stable};
use onc_rpc::{AuthSys, Credential};
use rdma::Pool;
use rpc_transport::rdma::{RdmaClient, RdmaClientOptions};
use rpc_transport::{
    Client, ClientOptions, ClientTransport, Retry, Runtime, TcpClient, TcpOptions,
};

use crate::served::{Addresses, EXPORT};

/// The bytes of each WRITE.
const PIECE: usize = 1 << 20;
/// The number of outstanding WRITEs.
const WINDOW: usize = 8;
/// The names of the file that is copied and of the one that the crowd reads.
const COPIED: &str = "copied";
const READ: &str = "read";
/// The length of the file that the crowd reads, bytes.
const READ_LEN: usize = 8 * PIECE;
/// The pause between two GETATTRs.
const PAUSE: Duration = Duration::from_millis(2);
/// The path in error messages.
const AT: &[u8] = COPIED.as_bytes();
/// The time-out of a call.
const PATIENCE: Duration = Duration::from_secs(60);

/// A mounted export with its runtime.
struct Mounted {
    runtime: Runtime,
    mount: Mount<Client>,
}

impl Mounted {
    fn over_tcp(address: SocketAddr) -> Result<Self, Wrong> {
        let port = TcpClient::new(TcpOptions::default());
        Self::new(address, Rc::new(RefCell::new(port)))
    }

    fn over_rdma(address: SocketAddr) -> Result<Self, Wrong> {
        let device = Iwarp::new(Options::default(), Pool::new(256 << 20)).map_err(wrong)?;
        let port = RdmaClient::new(
            Box::new(device),
            RdmaClientOptions::new(rpcrdma_protocols::base()),
        );
        Self::new(address, Rc::new(RefCell::new(port)))
    }

    fn new(address: SocketAddr, port: Rc<RefCell<dyn ClientTransport>>) -> Result<Self, Wrong> {
        let runtime = Runtime::new().map_err(wrong)?;
        let options = ClientOptions {
            credential: Credential::Sys(AuthSys::default()),
            timeout: PATIENCE,
            retry: Retry::Soft { retransmissions: 1 },
            ..ClientOptions::default()
        };
        let attach_options = AttachOptions::default();
        let mount = runtime.block_on(async {
            let client = Client::connect(&runtime, address, port, options).await;
            let client = client.map_err(wrong)?;
            let path = EXPORT.as_bytes();
            let attached = Mount::attach(client.clone(), client, path, &attach_options).await;
            attached.map(|(mount, _)| mount).map_err(wrong)
        })?;
        Ok(Self { runtime, mount })
    }

    fn create(&self, name: &str) -> Result<FileHandle, Wrong> {
        let (mount, name) = (&self.mount, name.as_bytes());
        let made = mount.create(mount.root(), name, SetAttributes::default(), name);
        self.runtime
            .block_on(made)
            .map(|made| made.handle)
            .map_err(wrong)
    }

    /// Writes a file, several pieces at a time.
    fn fill(&self, file: FileHandle, len: usize) -> Result<(), Wrong> {
        let mount = &self.mount;
        let write = |at: usize| async move {
            let mut left = piece(at);
            let mut offset = (at * PIECE) as u64;
            while !left.is_empty() {
                let write = mount.write(file, offset, left.clone(), Stable::Unstable, AT);
                let count = write.await.map_err(wrong)?.count;
                left = left.slice(count as usize..);
                offset += u64::from(count);
            }
            Ok::<(), Wrong>(())
        };
        self.runtime.block_on(async {
            let mut pieces = 0..len / PIECE;
            let mut under_way: FuturesUnordered<_> =
                pieces.by_ref().take(WINDOW).map(write).collect();
            while let Some(done) = under_way.next().await {
                done?;
                under_way.extend(pieces.next().map(write));
            }
            mount.commit(file, AT).await.map_err(wrong)
        })?;
        Ok(())
    }
}

/// Returns the content of the file at an offset.
fn piece(at: usize) -> Bytes {
    content(at as u32 + 1, PIECE).into()
}

/// Creates the file that the crowd reads. Returns its handle.
pub(crate) fn prepare(addresses: Addresses) -> Result<Vec<u8>, Wrong> {
    let mounted = Mounted::over_tcp(addresses.tcp)?;
    let file = mounted.create(READ)?;
    mounted.fill(file, READ_LEN)?;
    Ok(file.as_bytes().to_vec())
}

/// A copy that is ready to begin.
pub(crate) struct Copying {
    mounted: Mounted,
    file: FileHandle,
    len: usize,
}

/// Connects for a copy of `len` bytes.
pub(crate) fn copy_connected(addresses: Addresses, len: usize) -> Result<Copying, Wrong> {
    let mounted = Mounted::over_rdma(addresses.rdma)?;
    let file = mounted.create(COPIED)?;
    Ok(Copying { mounted, file, len })
}

impl Copying {
    /// Makes the copy. Returns its duration.
    pub(crate) fn run(self) -> Result<Duration, Wrong> {
        let start = Instant::now();
        self.mounted.fill(self.file, self.len)?;
        Ok(start.elapsed())
    }
}

/// Returns whether the file in the exported directory has the copied content.
pub(crate) fn is_intact(directory: &Path, len: usize) -> Result<bool, Wrong> {
    let mut file = File::open(directory.join(COPIED)).map_err(wrong)?;
    let mut bytes = vec![0; PIECE];
    for at in 0..len / PIECE {
        file.read_exact(&mut bytes).map_err(wrong)?;
        if bytes != piece(at) {
            return Ok(false);
        }
    }
    Ok(file.read(&mut bytes).map_err(wrong)? == 0)
}

/// The durations of GETATTRs.
pub(crate) struct Waits {
    pub(crate) calls: usize,
    pub(crate) median: Duration,
    pub(crate) p99: Duration,
    pub(crate) longest: Duration,
}

/// A connected client on a thread of its own.
pub(crate) struct Looking {
    begin: mpsc::Sender<()>,
    stop: Arc<AtomicBool>,
    thread: JoinHandle<Result<Waits, Wrong>>,
}

/// Connects for GETATTRs.
pub(crate) fn look_connected(addresses: Addresses) -> Result<Looking, Wrong> {
    let (begin, begun) = mpsc::channel();
    let (connected, is_connected) = mpsc::channel();
    let stop = Arc::new(AtomicBool::new(false));
    let stopped = Arc::clone(&stop);
    let thread = thread::spawn(move || {
        let mounted = Mounted::over_tcp(addresses.tcp)?;
        connected.send(()).map_err(wrong)?;
        begun.recv().map_err(wrong)?;
        let (mount, runtime) = (&mounted.mount, &mounted.runtime);
        let mut took = Vec::new();
        while !stopped.load(Ordering::Relaxed) {
            let start = Instant::now();
            let getattr = mount.getattr(mount.root(), b"root".as_slice());
            runtime.block_on(getattr).map_err(wrong)?;
            took.push(start.elapsed());
            runtime.block_on(runtime.sleep(PAUSE));
        }
        took.sort();
        let part = |percent: usize| took.get(took.len() * percent / 100).copied();
        Ok(Waits {
            calls: took.len(),
            median: part(50).unwrap_or(Duration::MAX),
            p99: part(99).unwrap_or(Duration::MAX),
            longest: took.last().copied().unwrap_or(Duration::MAX),
        })
    });
    // A client that did not connect reports the reason when it is asked for its durations.
    let _ = is_connected.recv();
    Ok(Looking {
        begin,
        stop,
        thread,
    })
}

impl Looking {
    pub(crate) fn begin(self) -> Self {
        let _ = self.begin.send(());
        self
    }

    pub(crate) fn end(self) -> Result<Waits, Wrong> {
        self.stop.store(true, Ordering::Relaxed);
        self.thread
            .join()
            .map_err(|_| wrong("the client panicked"))?
    }
}
