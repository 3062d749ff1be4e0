//! A small Debian guest under QEMU's software emulation with software verbs devices (`rdma_rxe` and
//! `siw`) and Linux's own NFS over RDMA, and *lanes*: scripts of named checks that run in it.
//!
//! [`build`] builds the guest from nothing on a Debian 12 machine. [`run`] boots it and runs a
//! [`lane::Lane`]. [`protocol`] parses the guest's output, and [`report`] collects the results.
//! [`watch`] decides when to give up and whether to boot again; it has no clock of its own.
//! Processes on the host that a lane needs are declared in the lane and managed by [`service`].

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
