//! Timelines of RPC calls at both ends, as trace files for Perfetto.
//!
//! A [`TraceFile`] takes the events that clients, servers and their connections record ([`rdma::trace`]), and
//! writes each call as a slice whose parts follow each other without gaps ([`Part`]): what it waited for, and
//! how long. Each client, and each connection of a server, has a track of its calls, with counters of credits.
//! Arrows lead from the call at one end to the same call at the other, if both ends are in the trace.
//!
//! ```
//! use std::net::SocketAddr;
//!
//! use rdma::Clock;
//! use rdma::trace::{End, Event, Trace};
//! use rpcrdma_trace::{Options, Part, TraceFile};
//!
//! # let dir = tempfile::tempdir()?;
//! # let path = dir.path().join("calls.pftrace");
//! let options = Options {
//!     process: "example".to_owned(),
//!     virtual_time: false,
//!     size: 1 << 30,
//!     name: |_| None,
//! };
//! let file = TraceFile::create(&path, options)?;
//! let trace = Trace::new(file.sink(), Clock::monotonic());
//! // Clients and servers with this `trace` among their options do the following.
//! let server: SocketAddr = ([127, 0, 0, 1], 20049).into();
//! let tracer = trace.open(End::Requester, server);
//! let (program, version, procedure, bytes) = (100_003, 3, 0, 0);
//! tracer.record(7, Event::Called { program, version, procedure, bytes });
//! tracer.record(7, Event::Sent { in_flight: 1, granted: 32 });
//! tracer.record(7, Event::Ended { failed: false });
//! let summary = file.finish(None)?;
//! assert_eq!(summary.of(End::Requester).calls, 1);
//! println!("{:?} of network and server", summary.of(End::Requester).time(Part::Remote));
//! # Ok::<_, Box<dyn std::error::Error>>(())
//! ```
//!
//! The crate has no thread: [`TraceFile::flush`] writes what was recorded, and has to be called regularly.

#![forbid(unsafe_code)]

mod calls;
mod file;
mod packets;
mod part;
mod proto;
pub mod read;
mod summary;

pub use file::{Options, Stopped, TraceFile};
pub use part::Part;
pub use summary::{EndSummary, Summary};

/// A procedure: the numbers of program, version and procedure.
pub type Procedure = (u32, u16, u32);
