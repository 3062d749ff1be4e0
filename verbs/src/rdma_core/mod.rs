//! Real RDMA devices: `libibverbs` and `librdmacm`, loaded at run time.
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
#[cfg(not(feature = "layout-check"))]
mod sys;
#[cfg(feature = "layout-check")]
#[doc(hidden)]
pub mod sys;

pub use caps::{Capabilities, Kind};
pub use device::Verbs;
pub use open::open;
pub use options::{OpenError, Options, Registration, UnknownRegistration};
pub use sys::LoadError;
