//! The real server with the real device, on a thread of its own.

use std::cell::RefCell;
use std::net::{Ipv4Addr, SocketAddr};
use std::rc::Rc;
use std::sync::{Arc, mpsc};
use std::thread::JoinHandle;
use std::time::Duration;

use iwarp::{Iwarp, Options};
use nfs_binding::fs::MemoryFs;
use nfs_binding::server::{Export, ExportOptions, HandleKey, NfsServer};
use rdma::Pool;
use rpc_transport::rdma::RdmaServer;
use rpc_transport::{Server, ServerOptions, ServerTransport, Stop, TcpServer};

use super::{Form, SERVER};
use crate::{Wrong, wrong};

/// The path of the export.
pub const EXPORT: &str = "/honest";
/// The time-out in cases of silence. It suffices for connection setup on a busy machine; if not,
/// another attempt follows.
const SHORT: Duration = Duration::from_millis(1500);

/// The server's time-outs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timeouts {
    /// The time-out for a setup frame ([`Options::setup_timeout`]).
    pub setup: Duration,
    /// The time-out for a call ([`ServerOptions::idle_timeout`]).
    pub idle: Duration,
    /// The time-out for data that the server reads, and for replies to be read
    /// ([`rpc_transport::rdma::RdmaServerOptions::progress_timeout`],
    /// [`rpc_transport::TcpOptions::reply_timeout`]).
    pub progress: Duration,
}

impl Timeouts {
    /// Time-outs that never expire.
    pub const LONG: Self = Self {
        setup: Duration::from_secs(600),
        idle: Duration::from_secs(600),
        progress: Duration::from_secs(600),
    };
    /// Short time-outs, for silent peers.
    pub const SHORT: Self = Self {
        setup: SHORT,
        idle: SHORT,
        progress: Duration::from_secs(600),
    };
    /// A short progress timeout and a long idle timeout: stalled peers are closed soon, idle peers
    /// are not.
    pub const NO_PROGRESS: Self = Self {
        progress: SHORT,
        ..Self::LONG
    };

    /// Returns whether the time-outs are short enough to wait for.
    #[must_use]
    pub fn are_short(self) -> bool {
        self == Self::SHORT
    }
}

/// A running server.
#[derive(Debug)]
pub struct Served {
    /// The address for RDMA.
    pub address: SocketAddr,
    /// The address for TCP.
    pub tcp: SocketAddr,
    /// The memory pool.
    pub pool: Pool,
    stop: Stop,
    thread: Option<JoinHandle<Result<(), Wrong>>>,
}

impl Served {
    /// Starts the server.
    ///
    /// # Errors
    /// The error of the operating system.
    pub fn start(timeouts: Timeouts, form: Form) -> Result<Self, Wrong> {
        let (pool, stop) = (Pool::new(SERVER.pool), Stop::new());
        let (ready, addresses) = mpsc::channel();
        let (its_pool, its_stop) = (pool.clone(), stop.clone());
        let thread = std::thread::spawn(move || {
            let server = listen(its_pool, timeouts, form);
            match server {
                Ok((mut server, addresses)) => {
                    ready.send(Ok(addresses)).map_err(wrong)?;
                    server.run(&its_stop).map_err(wrong)
                }
                Err(error) => ready.send(Err(error)).map_err(wrong),
            }
        });
        let (address, tcp) = addresses.recv().map_err(wrong)??;
        Ok(Self {
            address,
            tcp,
            pool,
            stop,
            thread: Some(thread),
        })
    }
}

/// A server, with its addresses for RDMA and for TCP.
type Listening = (Server, (SocketAddr, SocketAddr));

fn listen(pool: Pool, timeouts: Timeouts, form: Form) -> Result<Listening, Wrong> {
    let export = Export {
        path: EXPORT.to_owned(),
        backend: Arc::new(MemoryFs::new(SERVER.files).map_err(wrong)?),
        options: ExportOptions::for_server(false),
    };
    let key = HandleKey::random().map_err(wrong)?;
    let service = NfsServer::new(vec![export], key).map_err(wrong)?;
    let options = ServerOptions {
        idle_timeout: timeouts.idle,
        ..SERVER.server()
    };
    let mut server = Server::new(Box::new(service), options).map_err(wrong)?;
    let options = Options {
        setup_timeout: timeouts.setup,
        max_connections: SERVER.sockets,
        ..Options::default()
    };
    let (budget, progress) = (SERVER.budget(), timeouts.progress);
    let anywhere = (Ipv4Addr::LOCALHOST, 0).into();
    let tcp = SERVER.tcp(pool.clone(), budget.clone(), progress);
    let tcp = TcpServer::bind(anywhere, tcp).map_err(wrong)?;
    let tcp_address = tcp.local_addr();
    server
        .add_transport(Rc::new(RefCell::new(tcp)))
        .map_err(wrong)?;
    let device = Iwarp::new(options, pool).map_err(wrong)?;
    let mut port = RdmaServer::new(Box::new(device), SERVER.rdma(form, budget, progress));
    let address = port.listen(anywhere).map_err(wrong)?;
    let port: Rc<RefCell<dyn ServerTransport>> = Rc::new(RefCell::new(port));
    server.add_transport(port).map_err(wrong)?;
    Ok((server, (address, tcp_address)))
}

impl Served {
    /// Returns whether the server is still running. It ends or panics only because of a bug.
    #[must_use]
    pub fn runs(&self) -> bool {
        self.thread
            .as_ref()
            .is_some_and(|thread| !thread.is_finished())
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        self.stop.stop();
        if let Some(thread) = self.thread.take() {
            // If the thread had ended before, the case in which that happened has reported it.
            drop(thread.join());
        }
    }
}
