//! Whole clients and servers, NFS binding and memory backend included, in one thread on a virtual
//! clock: the same code that runs over real devices, over [`rdma_sim`].
//!
//! [`simulate`] runs one seed: the seed chooses hosts, options, work and faults ([`Plan`]), and
//! every step is watched by checkers. [`measure`] runs single calls without faults, and says what
//! each had to wait for.

#![forbid(unsafe_code)]

mod client;
mod credits;
mod disk;
mod exposure;
mod history;
mod journal;
mod measure;
mod message;
mod pairing;
mod pattern;
mod plan;
mod pools;
mod probe;
mod report;
mod server;
mod starve;
mod sweep;
mod work;
mod world;

pub use measure::{CannotMeasure, Measured, Operation, Setting, consider, measure};
pub use pairing::{Pairing, UnknownPairing};
pub use plan::{Crash, FeaturesOf, Plan, Swarm, Victim};
pub use probe::{Long, Probe};
pub use report::{Report, Violation};
pub use sweep::{Summary, run, running, sweep};
pub use world::{simulate, simulate_plan};
