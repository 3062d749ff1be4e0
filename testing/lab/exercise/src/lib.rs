//! Typical file system workloads of programs, each with a model that defines the expected results.
//! The lab's lanes run them on NFS mounts, and compare with the server's own disk.
//!
//! Everything is derived from a seed, which is printed, so that a failure can be repeated.

#![forbid(unsafe_code)]

mod error;

pub mod content;
pub mod fsx;
pub mod ledger;
pub mod names;
pub mod proxy;
pub mod tree;
pub mod writers;

pub use error::Failure;
