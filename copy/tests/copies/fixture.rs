//! A server on threads of its own, and clients of it.

use std::cell::RefCell;
use std::net::SocketAddr;
use std::path::Path;
use std::rc::Rc;
use std::sync::{Arc, mpsc};
use std::thread::JoinHandle;
use std::time::Duration;

use iwarp::{Iwarp, Options};
use nfs_binding::client::Mount;
use nfs_binding::fs::DirectoryFs;
use nfs_binding::fs::directory::DirectoryOptions;
use nfs_binding::server::{Export, ExportOptions, HandleKey, NfsServer};
use nfs_copy::{CopyOptions, Report, Totals};
use rdma::Pool;
use rpc_transport::rdma::{RdmaClient, RdmaClientOptions, RdmaServer, RdmaServerOptions};
use rpc_transport::{
    Client, ClientOptions, ClientTransport, Runtime, Server, ServerOptions, ServerTransport, Stop,
    TcpClient, TcpOptions, TcpServer,
};
use rpcrdma_setup::mount_options::{MountOptions, Proto};

use crate::tree::Scratch;
use onc_rpc::{AuthSys, Credential};

/// The memory of each end, bytes.
const POOL: usize = 512 << 20;

/// The number of objects that each server keeps open.
const MOST_OPEN: usize = 32;

/// The addresses of a server.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Addresses {
    tcp: SocketAddr,
    rdma: SocketAddr,
}

/// A directory that is served over TCP and RDMA.
pub(crate) struct Served {
    directory: Scratch,
    options: ServerOptions,
    addresses: Addresses,
    stop: Stop,
    thread: Option<JoinHandle<()>>,
}

impl Served {
    pub(crate) fn start() -> Self {
        Self::with(ServerOptions::default())
    }

    pub(crate) fn with(options: ServerOptions) -> Self {
        let directory = Scratch::new();
        let any = SocketAddr::from(([127, 0, 0, 1], 0));
        let anywhere = Addresses {
            tcp: any,
            rdma: any,
        };
        let (addresses, stop, thread) = serve(directory.path(), anywhere, options.clone());
        Self {
            directory,
            options,
            addresses,
            stop,
            thread: Some(thread),
        }
    }

    /// Stops the server and starts another one at the same addresses, which shares with the first
    /// only the key of file handles.
    pub(crate) fn restart(&mut self) {
        self.stop.stop();
        self.thread.take().unwrap().join().unwrap();
        let (addresses, stop, thread) =
            serve(self.directory.path(), self.addresses, self.options.clone());
        self.addresses = addresses;
        self.stop = stop;
        self.thread = Some(thread);
    }

    pub(crate) fn path(&self) -> &Path {
        self.directory.path()
    }

    pub(crate) fn tcp(&self) -> SocketAddr {
        self.addresses.tcp
    }

    pub(crate) fn addresses(&self) -> Addresses {
        self.addresses
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        self.stop.stop();
        if let Some(thread) = self.thread.take() {
            let ended = thread.join();
            // A second panic would end all tests, and leave their files behind.
            assert!(
                ended.is_ok() || std::thread::panicking(),
                "the server panicked"
            );
        }
    }
}

/// Serves `path` as `/data`. Returns the addresses as soon as the server is ready.
fn serve(path: &Path, at: Addresses, options: ServerOptions) -> (Addresses, Stop, JoinHandle<()>) {
    let (stop, path) = (Stop::new(), path.to_path_buf());
    let (ready, addresses) = mpsc::channel();
    let stopped = stop.clone();
    let thread = std::thread::spawn(move || {
        let backend = DirectoryFs::open(
            path,
            DirectoryOptions {
                sync: false,
                // Servers and clients of several tests share the descriptors of this process.
                most_open: Some(MOST_OPEN),
                ..DirectoryOptions::default()
            },
        )
        .unwrap();
        let export = Export {
            path: "/data".into(),
            backend: Arc::new(backend),
            options: ExportOptions::for_server(false),
        };
        let service = NfsServer::new(vec![export], HandleKey::from_bytes([3; 16])).unwrap();
        let mut server = Server::new(Box::new(service), options).unwrap();
        let tcp = TcpServer::bind(at.tcp, TcpOptions::default()).unwrap();
        let tcp_address = tcp.local_addr();
        server.add_transport(Rc::new(RefCell::new(tcp))).unwrap();
        let device = Iwarp::new(Options::default(), Pool::new(POOL)).unwrap();
        let mut rdma = RdmaServer::new(
            Box::new(device),
            RdmaServerOptions::new(rpcrdma_protocols::base()),
        );
        let rdma_address = rdma.listen(at.rdma).unwrap();
        let rdma: Rc<RefCell<dyn ServerTransport>> = Rc::new(RefCell::new(rdma));
        server.add_transport(rdma).unwrap();
        let addresses = Addresses {
            tcp: tcp_address,
            rdma: rdma_address,
        };
        ready.send(addresses).unwrap();
        server.run(&stopped).unwrap();
    });
    (addresses.recv().unwrap(), stop, thread)
}

/// A client that has mounted the export.
pub(crate) struct Mounted {
    runtime: Runtime,
    mount: Mount<Client>,
    pool: Pool,
}

impl Mounted {
    pub(crate) fn new(served: &Served, options: &str) -> Self {
        Self::at(served.addresses, options)
    }

    pub(crate) fn at(addresses: Addresses, options: &str) -> Self {
        let options = MountOptions::parse(options).unwrap();
        let runtime = Runtime::new().unwrap();
        let pool = Pool::new(POOL);
        let (remote, port): (_, Rc<RefCell<dyn ClientTransport>>) = match options.proto {
            Proto::Tcp => {
                let tcp = TcpOptions {
                    pool: pool.clone(),
                    ..TcpOptions::default()
                };
                (addresses.tcp, Rc::new(RefCell::new(TcpClient::new(tcp))))
            }
            Proto::Rdma => {
                let device = Iwarp::new(Options::default(), pool.clone()).unwrap();
                let client = RdmaClient::new(
                    Box::new(device),
                    RdmaClientOptions::new(rpcrdma_protocols::base()),
                );
                (addresses.rdma, Rc::new(RefCell::new(client)))
            }
        };
        let client_options = ClientOptions {
            credential: Credential::Sys(AuthSys {
                uid: rustix::process::geteuid().as_raw(),
                gid: rustix::process::getegid().as_raw(),
                ..AuthSys::default()
            }),
            nconnect: options.nconnect as usize,
            give_up_after: Duration::from_secs(60),
            ..ClientOptions::default()
        };
        let mount = runtime.block_on(async {
            let client = Client::connect(&runtime, remote, port, client_options)
                .await
                .unwrap();
            let (mount, rest) = Mount::attach(client.clone(), client, b"/data", &options.attach)
                .await
                .unwrap();
            assert_eq!(rest, b"");
            mount
        });
        Self {
            runtime,
            mount,
            pool,
        }
    }

    pub(crate) fn put(
        &self,
        local: &Path,
        remote: &str,
        progress: &mut dyn FnMut(&Totals),
    ) -> Report {
        let options = everything();
        let (mount, pool, remote) = (&self.mount, &self.pool, remote.as_bytes());
        let put = nfs_copy::put(mount, pool, local, remote, &options, progress);
        self.runtime.block_on(put)
    }

    pub(crate) fn get(&self, remote: &str, local: &Path) -> Report {
        let (options, progress) = (everything(), &mut |_: &_| {});
        let get = nfs_copy::get(&self.mount, remote.as_bytes(), local, &options, progress);
        self.runtime.block_on(get)
    }

    pub(crate) fn remove(&self, remote: &str) -> Report {
        let (options, progress) = (everything(), &mut |_: &_| {});
        let remove = nfs_copy::remove(&self.mount, remote.as_bytes(), &options, progress);
        self.runtime.block_on(remove)
    }
}

/// Returns the options of a copy that keeps set-id bits and devices as well.
fn everything() -> CopyOptions {
    CopyOptions {
        set_id: true,
        devices: true,
        ..CopyOptions::default()
    }
}
