//! A small Debian guest under QEMU's software emulation, in which real verbs devices (`rdma_rxe`
//! and `siw`) and Linux's own NFS over RDMA run, and *lanes*: scripts of named checks run in it.
//!
//! [`build`] makes the guest from nothing on a Debian 12 machine; [`run`] boots it and runs a
//! [`lane::Lane`]. What a guest says is read by [`protocol`] and gathered by [`report`]; when to
//! give up, and whether to boot again, is decided by [`watch`], which has no clock of its own.
//! Processes on the host that a lane needs are declared in the lane and live in [`service`].

#![forbid(unsafe_code)]

pub mod apt;
pub mod build;
pub mod cache;
pub mod command;
pub mod echo;
pub mod error;
pub mod lane;
pub mod log;
pub mod machine;
pub mod ports;
pub mod protocol;
pub mod report;
pub mod run;
pub mod service;
pub mod stop;
pub mod suite;
pub mod versions;
pub mod watch;

pub use cache::Cache;
pub use error::Error;
pub use log::Log;
pub use stop::Stop;
