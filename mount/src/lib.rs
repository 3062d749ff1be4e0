//! Mounts an export of an NFS version 3 server through FUSE, over any RPC transport of
//! `rpc_transport`.
//!
//! Any program then uses the server's files, and their reads and writes travel as this project's
//! client sends them. FUSE's device (`/dev/fuse`) and, for users other than root, the program
//! `fusermount3` are needed at run time; nothing is linked.
//!
//! ```no_run
//! use std::path::Path;
//!
//! use nfs_binding::client::{Follow, Mount};
//! use nfs_mount::{MountError, Options};
//! use rdma::Pool;
//! use rpc_transport::Client;
//!
//! /// Serves the mount until somebody unmounts it.
//! fn serve(export: &Mount<Client>, pool: &Pool) -> Result<(), MountError> {
//!     let runtime = export.nfs().rpc().runtime().clone();
//!     let root = runtime.block_on(export.resolve(b"", Follow::Yes))?;
//!     let options = Options::new("nfs://server/export");
//!     nfs_mount::mount(export, root, pool, Path::new("/mnt"), &options)?.run()
//! }
//! ```
//!
//! Programs get the guarantees of Linux's own NFS client: close-to-open consistency, cached attributes
//! ([`AttributeTimes`]), data on stable storage after `fsync` and `close`. The server checks permissions:
//! each call is made with the user and groups of the process that caused it.

#![forbid(unsafe_code)]

mod access;
mod attributes;
mod bridge;
mod convert;
mod copies;
mod core;
mod direct;
mod dirty;
mod engine;
mod errno;
mod files;
mod find;
mod hide;
mod inodes;
mod interrupts;
mod invalidations;
mod kernel;
mod listing;
mod mount_table;
mod names;
mod node;
mod notify;
mod options;
mod prefetch;
mod read_ahead;
mod read_memory;
mod remount;
mod resent;
mod session;
mod status;
mod transfer;
mod users;
mod write_behind;

#[cfg(test)]
#[path = "../../nfs-binding/tests/support/in_process.rs"]
mod in_process;
#[cfg(test)]
mod tests;

pub use copies::Copies;
pub use mount_table::{MountEntry, all as all_mounts};
pub use options::{AttributeTimes, LookupCache, Options};
pub use remount::{Remount, remount};
pub use session::{MountError, Mounted, Umount, mount, umount};
