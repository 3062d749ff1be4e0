//! Simulation of complete clients and servers, including the NFS binding and the memory file
//! system, in one thread on a virtual clock: the same code as with real devices, over [`rdma_sim`].
//!
//! [`simulate`] runs one seed. The seed determines hosts, options, workload and faults ([`Plan`]),
//! and checkers watch every step. [`measure`] runs single calls without faults, and reports the
//! events that each had to wait for; [`ladder`] draws one; [`load`] runs many, with several in flight.
//!
//! ```
//! use rpcrdma_programs::workload::Op;
//! use rpcrdma_sim::{Setting, measure, simulate};
//!
//! // A run of clients and servers, with the faults of seed 7.
//! let report = simulate(7, false);
//! assert_eq!(report.violations, []);
//! println!("{} calls and {} faults in {}", report.calls, report.faults, report.took);
//!
//! // The cost of one call, which is the same in every run.
//! let write = measure(&Setting::default(), &Op::Write(8192))?;
//! assert_eq!(write.round_trips, 2.0);
//! # Ok::<_, Box<dyn std::error::Error>>(())
//! ```

#![forbid(unsafe_code)]

mod client;
mod credits;
mod disk;
mod exports;
mod exposure;
mod grants;
mod guests;
mod history;
mod joining;
mod journal;
mod measure;
mod message;
mod pairing;
mod plan;
mod pools;
mod receives;
mod relays;
mod report;
mod sends;
mod server;
mod shared;
mod starve;
mod sweep;
mod tenant;
mod trees;
mod work;
mod world;

pub use measure::{
    Cache, CannotMeasure, Copied, CopyCosts, CopyRate, Grants, Load, Loaded, MOST_CLIENTS,
    Measured, Setting, consider, ladder, load, measure,
};
pub use pairing::{Pairing, UnknownPairing};
pub use plan::{
    Change, Crash, ExportChange, FeaturesOf, Flood, FloodOf, Hostile, Plan, Swarm, VersionsOf,
    Victim,
};
pub use report::{Report, Violation};
pub use sweep::{Summary, run, run_observed, running, sweep};
pub use world::{TapMaker, simulate, simulate_plan};
