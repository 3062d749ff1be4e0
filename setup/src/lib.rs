//! Converts the options of users to devices, links, costs, and connections to NFS servers.
//!
//! A program that speaks NFS over RDMA to a server that its user names needs the same few steps
//! each time: read the mount options, choose and open a device, look up the server, connect, and
//! take the export into use. They are here, so that every program accepts the same options and
//! reports the same errors.
//!
//! * [`mount_options`]: the options of `mount -o`, as nfs(5) has them, and those of this project
//!   about devices and versions of RPC-over-RDMA;
//! * [`mount_use`]: those of them that matter to a mounted export alone; [`fuse`]: what they mean to
//!   a mount through FUSE;
//! * [`remount`]: the changes to a mount that `-o remount` asks for;
//! * [`catalog`]: the versions, features and policies of granting that options name, with those that a program
//!   adds; [`settings`]: the fields of options that `--set NAME=VALUE` changes;
//! * [`device`]: names of devices and how one is opened;
//! * [`access`]: connecting to a server, and mounting an export of it;
//! * [`costs`]: the cost model of a connection, given or measured;
//! * [`inline`]: the longest messages without chunks that an end sends and receives;
//! * [`units`] and [`columns`]: sizes and tables as people read and write them;
//! * [`Failure`]: an error for the user, with its exit status.
//!
//! ```no_run
//! use nfs_binding::client::NfsUrl;
//! use rpcrdma_setup::access::{Access, LinkOptions};
//! use rpcrdma_setup::mount_options::MountOptions;
//! use rpcrdma_setup::{Context, Failure};
//!
//! fn names_of(url: &str) -> Result<(), Failure> {
//!     let url: NfsUrl = url.parse().context(url)?;
//!     let options = MountOptions::parse("proto=tcp,nconnect=2").map_err(Failure::work)?;
//!     let mounted = Access::new(options, LinkOptions::default(), None)?.mount(&url)?;
//!     println!("the rest of the path is {:?}", mounted.path);
//!     Ok(())
//! }
//! ```

#![forbid(unsafe_code)]

pub mod access;
pub mod catalog;
pub mod columns;
pub mod congestion;
pub mod costs;
pub mod device;
mod failure;
pub mod fuse;
pub mod inline;
pub mod mount_options;
pub mod mount_use;
mod option_list;
mod reached;
pub mod remount;
pub mod settings;
pub mod units;
mod without_effect;

pub use failure::{Context, FAILURE, Failure, USAGE};
