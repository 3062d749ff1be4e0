//! The C interface: declarations, and the libraries loaded at run time.
//!
//! Nothing is generated and nothing is linked; `.ci/run layout` holds the declarations against the
//! headers of the day.
#![allow(non_camel_case_types, missing_docs, unreachable_pub)]

pub mod cm;
mod interfaces;
pub mod load;
pub mod verbs;

pub use cm::*;
pub use interfaces::*;
pub use load::{Libraries, LoadError, library};
pub use verbs::*;
