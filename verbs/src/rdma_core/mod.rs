//! Real RDMA devices: `libibverbs` and `librdmacm`, loaded at run time.
#![allow(unsafe_code)]
#![allow(dead_code, unused_imports)]

mod addresses;
mod caps;
mod context;
mod options;
pub mod report;
mod sys;
mod verbs_early;

pub use caps::{Capabilities, Kind};
pub use options::{OpenError, Options, Registration, UnknownRegistration};
pub use sys::LoadError;
pub use verbs_early::{Verbs, open};
