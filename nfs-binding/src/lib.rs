//! NFS version 3 and MOUNT version 3 over any RPC transport: wire types, upper-layer binding,
//! server, client.
//!
//! This crate does not depend on how bytes are transferred: calls and replies are messages whose
//! bulk data items are held apart (`onc_rpc::Message`), and the transport decides how to send them.
//!
//! This example runs a server of a file system in memory, and a client that writes a file there and reads it. With
//! `RdmaServer` and `RdmaClient` in place of `TcpServer` and `TcpClient`, they talk over an RDMA device
//! (the documentation of `rpc-transport` has an example).
//!
//! ```
//! use std::{cell::RefCell, rc::Rc, sync::Arc, thread};
//!
//! use bytes::Bytes;
//! use nfs_binding::client::{AttachOptions, Mount};
//! use nfs_binding::fs::MemoryFs;
//! use nfs_binding::proto::{SetAttributes, Stable};
//! use nfs_binding::server::{Export, ExportOptions, HandleKey, NfsServer};
//! use rpc_transport::{
//!     Client, ClientOptions, Runtime, Server, ServerOptions, Stop, TcpClient, TcpOptions, TcpServer,
//! };
//!
//! # type Outcome<T> = Result<T, Box<dyn std::error::Error + Send + Sync>>;
//! # fn main() -> Outcome<()> {
//! let export = Export {
//!     path: "/memory".to_owned(),
//!     backend: Arc::new(MemoryFs::new(64 << 20)?),
//!     // Clients need no privileged port.
//!     options: ExportOptions { secure: false, ..ExportOptions::default() },
//! };
//! let service = NfsServer::new(vec![export], HandleKey::random()?)?;
//! let (stop, (listening, address)) = (Stop::new(), std::sync::mpsc::channel());
//! let serving = thread::spawn({
//!     let stop = stop.clone();
//!     move || -> Outcome<()> {
//!         let transport = TcpServer::bind("127.0.0.1:0".parse()?, TcpOptions::default())?;
//!         listening.send(transport.local_addr())?;
//!         let mut server = Server::new(Box::new(service), ServerOptions::default())?;
//!         server.add_transport(Rc::new(RefCell::new(transport)))?;
//!         Ok(server.run(&stop)?)
//!     }
//! });
//!
//! let runtime = Runtime::new()?;
//! let transport = Rc::new(RefCell::new(TcpClient::new(TcpOptions::default())));
//! let options = ClientOptions::default();
//! let data = runtime.block_on(async {
//!     let client = Client::connect(&runtime, address.recv()?, transport, options).await?;
//!     let options = AttachOptions::default();
//!     // MOUNT is served on the same port.
//!     let (mount, _) = Mount::attach(&client, &client, b"/memory", &options).await?;
//!     // The last argument of each call is the path that errors name.
//!     let (name, path) = (b"file".as_slice(), b"/memory/file".as_slice());
//!     let file = mount.create(mount.root(), name, SetAttributes::default(), path).await?;
//!     let data = Bytes::from_static(b"some data");
//!     mount.write(file.handle, 0, data, Stable::FileSync, path).await?;
//!     let found = mount.lookup(mount.root(), name, path).await?;
//!     let read = mount.read(found.handle, 0, 1000, path).await?;
//!     Outcome::Ok(read.data.0.to_bytes())
//! })?;
//! assert_eq!(data, "some data");
//! stop.stop();
//! serving.join().map_err(|_| "the server's thread panicked")??;
//! # Ok(())
//! # }
//! ```

#![forbid(unsafe_code)]

// The test support that other crates share refers to this crate as `nfs_binding`.
#[cfg(test)]
extern crate self as nfs_binding;

pub mod client;
pub mod escape;
pub mod fs;
pub mod overrides;
pub mod proto;
pub mod reduction;
pub mod server;
pub mod ulb;
mod v4;

#[cfg(test)]
#[path = "../tests/support/in_process.rs"]
mod in_process;
