//! Real RDMA devices: `libibverbs` and `librdmacm`, loaded at run time.
//!
//! A program that has this starts on machines without the libraries; [`open()`] and
//! [`report::devices`] say what is missing. RoCE, InfiniBand and iWARP hardware should work alike;
//! tried are the kernel's soft devices, `rxe` and `siw`.
//!
//! From bottom to top: the crate [`rdma_core_sys`] declares the C interface and loads it; `context`, `objects` and `cm`
//! own its objects; `memory` registers the pool's arenas, `regions` what a peer may reach; `queue`
//! says who owns what is posted; `conn` is a connection, and the place where the order is that
//! makes taking one down memory-safe; `post`, `manager` and `progress` are the device's work,
//! `device` its face to the model, `open` its beginning.
//!
//! How memory is offered ([`Registration`]) follows from what the device can do ([`Capabilities`]),
//! or is chosen. What to know about devices:
//!
//! - Counts of bytes on the wire are of payload: no device tells of its framing.
//! - Private data arrives padded with zeroes to a fixed length, except over iWARP.
//! - On siw, and there alone, [`Device::poll`](rdma::Device::poll) blocks while TCP connects.
//! - On siw, a peer can read what it was offered for writing: the driver does not check that right.
//! - On rxe, a peer that invalidates a handle twice makes the kernel (6.12) follow a null pointer.
//!   This device never does it, and frees windows that the peer has not invalidated, lest a late
//!   answer does.
//!
//! ```
//! // Runs on any machine: without libraries, modules or devices it says what is missing.
//! let found = rdma_core::report::devices();
//! for device in &found.devices {
//!     println!("{}", device.name);
//! }
//! for problem in found.problems() {
//!     println!("{problem}");
//! }
//! ```
#![allow(unsafe_code)]

mod addresses;
mod caps;
mod cm;
mod conn;
mod context;
mod device;
mod manager;
mod memory;
mod objects;
mod open;
mod options;
mod post;
mod progress;
mod queue;
mod random;
mod regions;
pub mod report;
mod sysfs;

pub use caps::{Capabilities, Kind};
pub use device::Verbs;
pub use open::open;
pub use options::{OpenError, Options, Registration, UnknownRegistration};
pub use rdma_core_sys::LoadError;

use rdma_core_sys as sys;
