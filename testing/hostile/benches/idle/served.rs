//! The server, in a process of its own.

use std::cell::RefCell;
use std::net::{Ipv4Addr, SocketAddr};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use hostile::process::{ServerProcess, answer_lines};
use hostile::{Wrong, wrong};
use iwarp::{Iwarp, Options};
use nfs_binding::fs::MemoryFs;
use nfs_binding::server::{Export, ExportOptions, HandleKey, NfsServer};
use rdma::Pool;
use rpc_transport::limits;
use rpc_transport::rdma::{RdmaServer, RdmaServerOptions};
use rpc_transport::{SPARE, Server, ServerOptions, Stop, TcpOptions, TcpServer};
use rpcrdma_host::Budget;

/// The argument that makes this program the server.
pub(crate) const SERVE: &str = "--serve";
/// The memory for calls and replies, and for the exported files, bytes.
const MEMORY: usize = 2 << 30;
const FILES: u64 = 1 << 20;
/// The free memory that is kept for reuse, bytes.
const KEPT: usize = 32 << 20;
/// The time between the end of a connection and the return of free memory to the system, as in
/// `rpcrdma serve`.
const GIVE_BACK_AFTER: Duration = Duration::from_secs(10);

/// Serves until standard input ends, and answers each line of it with the resident memory of this
/// process in bytes.
pub(crate) fn serve(connections: usize) -> Result<(), Wrong> {
    limits::raise_descriptors().1.map_err(wrong)?;
    let stop = Stop::new();
    let stopped = stop.clone();
    let (ready, addresses) = mpsc::channel();
    let thread = thread::spawn(move || {
        let (mut server, addresses) = listen(connections)?;
        ready.send(addresses).map_err(wrong)?;
        server.run(&stopped).map_err(wrong)
    });
    if let Ok((rdma, tcp)) = addresses.recv() {
        answer_lines(&format!("{rdma} {tcp}"), || Ok(resident()?.to_string()))?;
    }
    stop.stop();
    thread.join().map_err(|_| wrong("the server panicked"))?
}

/// Returns the resident memory of this process, bytes (proc(5): `VmRSS` in KiB).
fn resident() -> Result<usize, Wrong> {
    let status = std::fs::read_to_string("/proc/self/status").map_err(wrong)?;
    let mut lines = status.lines();
    let found = lines.find_map(|line| line.strip_prefix("VmRSS:"));
    let found = found.and_then(|text| text.trim().strip_suffix(" kB"));
    let kib = found.ok_or_else(|| wrong("no VmRSS in /proc/self/status"))?;
    kib.parse::<usize>().map(|kib| kib * 1024).map_err(wrong)
}

/// A server, with its addresses for RDMA and for TCP.
type Listening = (Server, (SocketAddr, SocketAddr));

/// Creates a server like `rpcrdma serve --threads 1`, for this number of connections.
fn listen(connections: usize) -> Result<Listening, Wrong> {
    let export = Export {
        path: "/idle".to_owned(),
        backend: Arc::new(MemoryFs::new(FILES).map_err(wrong)?),
        options: ExportOptions::default(),
    };
    let key = HandleKey::random().map_err(wrong)?;
    let service = NfsServer::new(vec![export], key).map_err(wrong)?;
    let options = ServerOptions {
        max_connections: connections,
        ..ServerOptions::default()
    };
    let mut server = Server::new(Box::new(service), options).map_err(wrong)?;
    let options = Options {
        max_connections: connections + SPARE,
        ..Options::default()
    };
    let receives = RdmaServerOptions::new(rpcrdma_protocols::base()).max_receive_memory;
    let pool = Pool::keeping(MEMORY + receives, KEPT);
    let device = Iwarp::new(options, pool).map_err(wrong)?;
    let budget = Budget::new(MEMORY, connections);
    let tcp = TcpOptions {
        budget: budget.clone(),
        max_connections: connections + SPARE,
        ..TcpOptions::default()
    };
    let mut options = RdmaServerOptions {
        budget,
        max_connections: connections + SPARE,
        give_back_after: Some(GIVE_BACK_AFTER),
        ..RdmaServerOptions::new(rpcrdma_protocols::base())
    };
    options.common.protocols = rpcrdma_protocols::standard(&"ddp+cont".parse().map_err(wrong)?);
    let mut rdma = RdmaServer::new(Box::new(device), options);
    let anywhere = (Ipv4Addr::LOCALHOST, 0).into();
    let address = rdma.listen(anywhere).map_err(wrong)?;
    server
        .add_transport(Rc::new(RefCell::new(rdma)))
        .map_err(wrong)?;
    let tcp = TcpServer::bind(anywhere, tcp).map_err(wrong)?;
    let tcp_address = tcp.local_addr();
    server
        .add_transport(Rc::new(RefCell::new(tcp)))
        .map_err(wrong)?;
    Ok((server, (address, tcp_address)))
}

/// The server process.
pub(crate) struct Child {
    pub(crate) address: SocketAddr,
    /// The address for TCP.
    pub(crate) tcp: SocketAddr,
    process: ServerProcess,
}

impl Child {
    /// Starts a server with this limit on connections.
    pub(crate) fn start(connections: usize) -> Result<Self, Wrong> {
        let mut process = ServerProcess::start([SERVE, &connections.to_string()])?;
        let [address, tcp] = process.values()?;
        Ok(Self {
            address,
            tcp,
            process,
        })
    }

    /// Returns the resident memory of the server, bytes.
    pub(crate) fn resident(&mut self) -> Result<usize, Wrong> {
        let [resident] = self.process.ask()?;
        Ok(resident)
    }
}
