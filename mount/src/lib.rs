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

mod attributes;
mod bridge;
mod convert;
mod copies;
mod core;
mod counts;
mod direct_run;
mod dirty;
mod engine;
mod errno;
mod error;
mod hull;
mod inodes;
mod interrupts;
mod invalidations;
mod kernel;
mod lookups;
mod mount_table;
mod node;
mod notifications;
mod notify;
mod options;
mod read_ahead;
mod read_memory;
mod remount;
mod session;
mod statistics;
mod users;

#[cfg(test)]
#[path = "../../nfs-binding/tests/support/in_process.rs"]
mod in_process;
#[cfg(test)]
mod tests;

pub use copies::Copies;
pub use counts::RequestKind;
pub use error::MountError;
pub use mount_table::{MountEntry, all as all_mounts, ours_at as mount_at};
pub use options::{AttributeTimes, LookupCache, Options};
pub use remount::{Remount, remount};
pub use session::{Mounted, Umount, mount, umount};
pub use statistics::{MountStatistics, StatisticsHandle};
