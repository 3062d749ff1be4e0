//! Metrics of servers and mounts, for monitoring.
//!
//! The parts that count know nothing of this crate: they hand over copies of their counters
//! (`rpc_transport::LoopStatistics`, `nfs_mount::MountStatistics`). Here they become samples of the
//! families in [`families::ALL`], which is the only list of names, units and labels.
//!
//! * [`Samples`]: values by family and labels; values with equal labels are added up, so that those of
//!   several loops become one.
//! * [`Samples::to_text`]: OpenMetrics, or the text format 0.0.4 of Prometheus.
//! * [`Endpoint`]: answers HTTP requests for it, on TCP or on a socket of the file system.
//! * [`serve`] and [`mount`]: the samples of a server and of a mount.
//! * [`mountstats`]: the format of Linux's `/proc/self/mountstats`.

#![forbid(unsafe_code)]

mod calls;
mod endpoint;
pub mod families;
pub mod mount;
pub mod mountstats;
mod request;
mod samples;
pub mod serve;
mod socket;
mod text;
mod transport;

pub use endpoint::{Answer, Endpoint, Listener, NoAnswer};
pub use request::Format;
pub use samples::{Family, Kind, Samples, Unit};
pub use socket::{ask, listen, path_for};
