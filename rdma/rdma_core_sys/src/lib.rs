//! C declarations of `libibverbs` and `librdmacm`, and both libraries loaded at run time.
//!
//! Nothing is generated and nothing is linked: a program with this crate builds without C compiler,
//! headers or libraries, and starts where the libraries are missing. Names, layouts and values are those
//! of the headers, where they are documented; only what `rdma-core-device`, the safe device on top,
//! needs is declared. A test (feature `layout-check`) holds everything against the installed headers.
//!
//! Inline functions of the headers, such as `ibv_post_send`, are called through the table of operations
//! in the `ibv_context`.
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
//!     // Which library is missing, and which packages have it.
//!     Err(error) => println!("{error}"),
//! }
//! ```
#![allow(unsafe_code, non_camel_case_types, missing_docs)]

pub mod cm;
mod interfaces;
pub mod load;
pub mod verbs;

pub use cm::*;
pub use interfaces::*;
pub use load::{Libraries, LoadError, library};
pub use verbs::*;
