//! Captures of RPC-over-RDMA traffic of any implementation, as calls with their messages and RDMA
//! operations.
//!
//! [`read`] takes a pcap or pcapng file of iWARP or RoCE version 2, with Ethernet, Linux cooked or raw
//! IP headers, and passes to a [`Sink`] each [`Call`] with its times, packet numbers, octets and
//! handles, and each place where traffic breaks a rule of the documents ([`rules`]). It understands
//! version 1 and both versions 2 with their extensions.
//!
//! ```no_run
//! use std::fs::File;
//!
//! use rpcrdma_reading::{Collected, read};
//!
//! let mut all = Collected::up_to(10_000);
//! read(File::open("all.pcapng")?, &mut all)?;
//! for call in &all.calls {
//!     println!("{:#010x} {} round trips", call.xid, call.round_trips());
//! }
//! # Ok::<_, Box<dyn std::error::Error>>(())
//! ```
//!
//! Memory is bounded whatever a file holds: connections, calls in progress, data out of order, and
//! messages have limits each ([`limits`]). What goes beyond is left out and counted.

#![forbid(unsafe_code)]

mod call;
mod conversation;
mod file;
mod iwarp;
pub mod limits;
mod link;
pub mod lint;
mod read;
mod roce;
pub mod rules;
mod sink;
mod span;
mod tcp;

pub use call::{
    At, Call, Carrier, Connection, ConnectionId, EndName, List, Message, MessageKind, Operation,
    OperationKind, Outcome, Procedure, Segment, Version,
};
pub use file::Error;
pub use read::{Summary, read};
pub use rpcrdma_chunks::Side;
pub use sink::{Collected, Lost, Sink};
