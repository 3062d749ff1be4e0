//! C declarations of `libibverbs` and `librdmacm`, and the loading of both libraries at run time.
//!
//! Nothing is generated and nothing is linked: a program with this crate builds without C compiler,
//! headers or libraries, and starts on machines without the libraries. Names, layouts and values
//! are those of the headers, which document them. Only what the safe device `rdma-core-device`
//! needs is declared. A test (feature `layout-check`) compares everything with the installed
//! headers.
//!
//! Inline functions of the headers, such as `ibv_post_send`, are called through the table of
//! operations in the `ibv_context`.
//!
//! ```
//! match rdma_core_sys::library() {
//!     Ok(libraries) => {
//!         let mut count = 0;
//!         // SAFETY: the function fills `count`; the list it returns is freed by the next call.
//!         unsafe {
//!             let list = (libraries.verbs.ibv_get_device_list)(&mut count);
//!             if !list.is_null() {
//!                 (libraries.verbs.ibv_free_device_list)(list);
//!             }
//!         }
//!         println!("{count} devices");
//!     }
//!     // The error says which library is missing, and which packages contain it.
//!     Err(error) => println!("{error}"),
//! }
//! ```
//!
//! The declarations are written by hand because generated ones would need libclang, and the
//! published crates need CMake or a vendored copy of rdma-core. About a hundred are enough.
#![allow(unsafe_code, non_camel_case_types, missing_docs)]

pub mod cm;
mod interfaces;
pub mod load;
pub mod verbs;

pub use cm::*;
pub use interfaces::*;
pub use load::{Libraries, LoadError, library};
pub use verbs::*;
