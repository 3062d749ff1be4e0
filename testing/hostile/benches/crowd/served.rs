//! The server, in a process of its own that counts its allocations.

use std::cell::RefCell;
use std::ffi::OsStr;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::mpsc;
use std::thread;

use hostile::process::{ServerProcess, answer_lines};
use hostile::{Wrong, wrong};
use iwarp::{Iwarp, Options};
use nfs_binding::fs::DirectoryFs;
use nfs_binding::fs::directory::DirectoryOptions;
use nfs_binding::server::{Export, ExportOptions, HandleKey, NfsServer};
use peak_alloc::PeakAlloc;
use rdma::Pool;
use rpc_transport::limits::{self, Limits};
use rpc_transport::rdma::{RdmaServer, RdmaServerOptions};
use rpc_transport::{Server, ServerOptions, Stop, TcpOptions, TcpServer};
use rpcrdma_protocols::RoundTripFeatures;

/// The argument that makes this program the server.
pub(crate) const SERVE: &str = "--serve";
/// The export.
pub(crate) const EXPORT: &str = "/crowded";

/// The addresses that the server listens on.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Addresses {
    pub(crate) rdma: SocketAddr,
    pub(crate) tcp: SocketAddr,
}

/// The memory of the server, bytes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Figures {
    /// The maximum allocated at any time.
    pub(crate) peak: usize,
    /// The part in the device's pool. It consists of receives until the first call.
    pub(crate) receives: usize,
}

/// Serves a directory until standard input ends, and answers each line of it with the memory
/// figures.
pub(crate) fn serve(directory: &Path, limit: usize, memory: &PeakAlloc) -> Result<(), Wrong> {
    let (descriptors, raised) = limits::raise_descriptors();
    raised.map_err(wrong)?;
    let receives = RdmaServerOptions::new(rpcrdma_protocols::base()).max_receive_memory;
    let limits = Limits::new(limit, receives, limits::connections(descriptors));
    let pool = Pool::keeping(limits.budget.limit() + limits.receives, limits.kept / 2);
    let (stop, its_pool) = (Stop::new(), pool.clone());
    let (ready, addresses) = mpsc::channel();
    let (stopped, path) = (stop.clone(), directory.to_owned());
    let thread = thread::spawn(move || {
        let (mut server, addresses) = listen(&path, its_pool, &limits)?;
        ready.send(addresses).map_err(wrong)?;
        server.run(&stopped).map_err(wrong)
    });
    if let Ok(Addresses { rdma, tcp }) = addresses.recv() {
        answer_lines(&format!("{rdma} {tcp}"), || {
            let (peak, receives) = (memory.peak_usage(), pool.in_use());
            Ok(format!("{peak} {receives}"))
        })?;
    }
    stop.stop();
    thread.join().map_err(|_| wrong("the server panicked"))?
}

/// Creates a server like `rpcrdma serve --threads 1`.
fn listen(path: &Path, pool: Pool, limits: &Limits) -> Result<(Server, Addresses), Wrong> {
    let files = DirectoryFs::open(
        path,
        DirectoryOptions {
            sync: false,
            ..DirectoryOptions::default()
        },
    )
    .map_err(wrong)?;
    let export = Export {
        path: EXPORT.to_owned(),
        backend: Arc::new(files),
        options: ExportOptions::default(),
    };
    let key = HandleKey::random().map_err(wrong)?;
    let service = NfsServer::new(vec![export], key).map_err(wrong)?;
    let options = ServerOptions {
        max_connections: limits.connections,
        reply_cache_bytes: limits.reply_cache,
        ..ServerOptions::default()
    };
    let mut server = Server::new(Box::new(service), options).map_err(wrong)?;
    let anywhere = (Ipv4Addr::LOCALHOST, 0).into();
    let tcp = TcpOptions {
        pool: Pool::keeping(limits.budget.limit(), limits.kept / 2),
        budget: limits.budget.clone(),
        max_connections: limits.accepted(),
        ..TcpOptions::default()
    };
    let tcp = TcpServer::bind(anywhere, tcp).map_err(wrong)?;
    let options = Options {
        max_connections: limits.accepted(),
        ..Options::default()
    };
    let device = Iwarp::new(options, pool).map_err(wrong)?;
    let mut options = RdmaServerOptions {
        budget: limits.budget.clone(),
        max_receive_memory: limits.receives,
        max_connections: limits.accepted(),
        ..RdmaServerOptions::new(rpcrdma_protocols::base())
    };
    options.common.protocols = rpcrdma_protocols::standard(&RoundTripFeatures::ALL);
    let mut rdma = RdmaServer::new(Box::new(device), options);
    let addresses = Addresses {
        rdma: rdma.listen(anywhere).map_err(wrong)?,
        tcp: tcp.local_addr(),
    };
    server
        .add_transport(Rc::new(RefCell::new(rdma)))
        .map_err(wrong)?;
    server
        .add_transport(Rc::new(RefCell::new(tcp)))
        .map_err(wrong)?;
    Ok((server, addresses))
}

/// The server process.
pub(crate) struct Child {
    pub(crate) addresses: Addresses,
    process: ServerProcess,
}

impl Child {
    pub(crate) fn start(directory: &Path) -> Result<Self, Wrong> {
        let mut process = ServerProcess::start([OsStr::new(SERVE), directory.as_os_str()])?;
        let [rdma, tcp] = process.values()?;
        Ok(Self {
            addresses: Addresses { rdma, tcp },
            process,
        })
    }

    pub(crate) fn figures(&mut self) -> Result<Figures, Wrong> {
        let [peak, receives] = self.process.ask()?;
        Ok(Figures { peak, receives })
    }
}
