//! This project's own server, and a file in its export for the cases.

#![allow(
    unreachable_pub,
    clippy::unwrap_used,
    reason = "helpers of tests, which clippy takes for none"
)]

use std::cell::RefCell;
use std::net::{Ipv4Addr, SocketAddr};
use std::rc::Rc;
use std::sync::{Arc, mpsc};
use std::thread::JoinHandle;
use std::time::Duration;

use iwarp::{Iwarp, Options};
use nfs_binding::client::{AttachOptions, Mount};
use nfs_binding::fs::MemoryFs;
use nfs_binding::proto::SetAttributes;
use nfs_binding::server::{Export, ExportOptions, HandleKey, NfsServer};
use onc_rpc::{AuthSys, Credential};
use rdma::Pool;
use rpc_transport::rdma::{RdmaClient, RdmaClientOptions, RdmaServer, RdmaServerOptions};
use rpc_transport::{
    Client, ClientOptions, ClientTransport, Runtime, Server, ServerOptions, ServerTransport, Stop,
};
use rpcrdma_conform::case::Ground;

const EXPORT: &str = "/judged";
const MIB: usize = 1 << 20;

/// A running server.
pub struct Served {
    pub address: SocketAddr,
    stop: Stop,
    thread: Option<JoinHandle<()>>,
}

impl Served {
    /// Starts a server of all versions whose receives have `inline` bytes.
    pub fn start(inline: u32) -> Self {
        Self::with(inline, |_| {})
    }

    /// Starts a server whose receives have `inline` bytes, with changed options.
    pub fn with(inline: u32, change: impl FnOnce(&mut RdmaServerOptions) + Send + 'static) -> Self {
        let stop = Stop::new();
        let (ready, address) = mpsc::channel();
        let its_stop = stop.clone();
        let thread = std::thread::spawn(move || {
            let export = Export {
                path: EXPORT.to_owned(),
                backend: Arc::new(MemoryFs::new(16 * MIB as u64).unwrap()),
                options: ExportOptions::for_server(false),
            };
            let service = NfsServer::new(vec![export], HandleKey::random().unwrap()).unwrap();
            let mut server = Server::new(Box::new(service), ServerOptions::default()).unwrap();
            let device = Iwarp::new(Options::default(), Pool::new(64 * MIB)).unwrap();
            let mut options = RdmaServerOptions::new(rpcrdma_protocols::base());
            options.common.inline_send = inline;
            options.common.inline_receive = inline;
            options.common.max_receive_size = inline;
            change(&mut options);
            let mut port = RdmaServer::new(Box::new(device), options);
            let address = port.listen((Ipv4Addr::LOCALHOST, 0).into()).unwrap();
            let port: Rc<RefCell<dyn ServerTransport>> = Rc::new(RefCell::new(port));
            server.add_transport(port).unwrap();
            ready.send(address).unwrap();
            server.run(&its_stop).unwrap();
        });
        Self {
            address: address.recv().unwrap(),
            stop,
            thread: Some(thread),
        }
    }

    /// Makes a folder and a file in the export.
    pub fn ground(&self) -> Ground {
        let runtime = Runtime::new().unwrap();
        let device = Iwarp::new(Options::default(), Pool::new(8 * MIB)).unwrap();
        let port = RdmaClient::new(
            Box::new(device),
            RdmaClientOptions::new(rpcrdma_protocols::base()),
        );
        let port: Rc<RefCell<dyn ClientTransport>> = Rc::new(RefCell::new(port));
        let options = ClientOptions {
            credential: Credential::Sys(AuthSys::default()),
            timeout: Duration::from_secs(30),
            ..ClientOptions::default()
        };
        let (folder, file) = runtime.block_on(async {
            let client = Client::connect(&runtime, self.address, port, options);
            let client = client.await.unwrap();
            let path = EXPORT.as_bytes();
            let options = AttachOptions::default();
            let attached = Mount::attach(client.clone(), client.clone(), path, &options).await;
            let (mount, _) = attached.unwrap();
            let attributes = SetAttributes::default;
            let made = mount
                .mkdir(mount.root(), b"folder", attributes(), &b"folder"[..])
                .await;
            let folder = made.unwrap().handle;
            let made = mount
                .create(folder, b"file", attributes(), &b"file"[..])
                .await;
            (folder, made.unwrap().handle)
        });
        let bytes = |handle: nfs_binding::proto::FileHandle| handle.as_bytes().to_vec();
        Ground::new(bytes(folder), bytes(file), (0, 0), 0x1000)
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        self.stop.stop();
        if let Some(thread) = self.thread.take() {
            thread.join().unwrap();
        }
    }
}
