//! RDMA devices of the machine: `libibverbs` and `librdmacm`, loaded at run time.
//!
//! A program with this crate starts on machines without the libraries; [`open()`] and
//! [`report::devices`] then say what is missing. RoCE, InfiniBand and iWARP hardware should work
//! alike; it was tested with the kernel's soft devices, `rxe` and `siw`.
//!
//! From bottom to top: the crate [`rdma_core_sys`] declares and loads the C interface; `context`,
//! `objects` and `cm` own its objects; `memory` registers the pool's arenas, `regions` the memory
//! that a peer may access; `queue` owns posted requests; `conn` is a connection, and implements the
//! teardown order on which memory safety rests; `shared_queue` is a shared receive queue, and `shared`
//! what the device does with such queues; `siblings` coordinates the devices of a process on one
//! context; `post`, `manager` and `progress` do the device's work, `device` implements the device
//! model, and `open` creates the device.
//!
//! The strategy for offering memory ([`Registration`]) is chosen by the program or follows from the
//! device's capabilities ([`Capabilities`]). Some properties of devices:
//!
//! - Asynchronous events of a context are read here for the whole process: another user of
//!   `librdmacm` in it does not get its own.
//! - Counts of bytes on the wire are of payload, because no device reports its framing.
//! - Private data arrives padded with zeroes to a fixed length, except over iWARP.
//! - Only on siw, [`Device::poll`](rdma::Device::poll) blocks while TCP connects.
//! - On siw, a peer can read memory that it was offered for writing, because the driver does not
//!   check that right.
//! - On rxe, there are shared receive queues with [`Registration::Windows`] only.
//! - On rxe, the sender's connection may be lost if a message finds no receive in a shared receive queue, or
//!   if a packet is lost: it retransmits, and executes local work requests (binds, invalidations) twice
//!   ([`rdma::WhenEmpty::MayEndConnection`]).
//! - On rxe, a connection that ends in the middle of a message keeps the receive that the message
//!   took, until a later message on each other connection of the shared receive queue shows that it
//!   is gone. Until any later message has arrived, the receive counts as posted.
//! - [`Device::destroy`](rdma::Device::destroy) of a connection that is not over may keep the
//!   receives that it took from a shared receive queue until the queue is destroyed, because the
//!   device may not have completed them yet. It frees them on rxe and siw.
//! - On rxe, a peer that invalidates a handle twice makes the kernel (6.12) dereference a null
//!   pointer. This device never does so, and frees windows that the peer has not invalidated, so
//!   that a late reply cannot do so either.
//!
//! ```
//! // Runs on any machine: reports missing libraries, modules and devices.
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
mod refusals;
mod regions;
pub mod report;
mod shared;
mod shared_queue;
mod siblings;
mod sysfs;

pub use caps::{Capabilities, Kind};
pub use device::RdmaCore;
pub use open::open;
pub use options::{OpenError, Options, Registration, UnknownRegistration};
pub use rdma_core_sys::LoadError;

use rdma_core_sys as sys;
