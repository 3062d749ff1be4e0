//! RPC programs beside NFS that the command serves and calls, and that measurements, the simulation
//! and tests use.
//!
//! * [`callbacks`]: calls from server to client on the client's connection (RFC 8167), which
//!   `serve --callbacks` and `ping --callbacks` make.
//! * [`Probe`]: calls and replies of any length without DDP-eligible items, which NFS version 3
//!   hardly has ([`Long`]), and with items ([`Echo`]). It is added to another service.
//! * [`workload`]: kinds of calls whose cost is measured, those of NFS and others; [`Beside`] adds the
//!   programs of such calls to a service.
//! * [`pattern`]: content that says where it comes from.
//!
//! ```
//! use rpcrdma_programs::Long;
//!
//! // A call with 100 bytes that asks for a reply with 64 KiB, neither of them DDP-eligible.
//! let long = Long::new(100, 65536);
//! assert!(long.call().reply.payload > 65536);
//! ```

#![forbid(unsafe_code)]

mod beside;
pub mod callbacks;
pub mod pattern;
mod probe;
pub mod workload;

pub use beside::Beside;
pub use probe::{Echo, Long, Probe};
