//! Work such as programs do on a file system, each piece with a model that says what has to come of
//! it. The lab's lanes run it on NFS mounts, and on the server's own disk to see the same there.
//!
//! Everything is made from a seed, which is printed: with the same seed a failure is made again.

#![forbid(unsafe_code)]

mod error;

pub mod content;
pub mod fsx;
pub mod ledger;
pub mod names;
pub mod tree;
pub mod writers;

pub use error::Failure;
