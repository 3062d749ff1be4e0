//! An NFS version 3 client over any RPC transport.
//!
//! [`Nfs3`] and [`Mount3`] are the raw procedures. [`Mount`] is a mounted export. It resolves names
//! and paths, lists directories, and sends single READs and WRITEs; the caller keeps to
//! [`Mount::limits`]. Errors name the operation and the path. It caches no attributes and no data.

mod attach;
mod error;
mod listing;
mod mount;
mod names;
mod nfs3;
mod options;
mod path;
mod rpc;
mod url;

#[cfg(test)]
mod tests;

pub use error::{DisplayPath, NfsError, Op, Place};
pub use listing::{CookieCircle, Listing, MAX_ENTRIES, MAX_KEPT};
pub use mount::{Limits, Mount, Object};
pub use nfs3::{Mount3, Nfs3};
pub use options::{AttachOptions, DEFAULT_IO, MIN_IO};
pub use path::{Follow, MAX_LINKS, components};
pub use rpc::{ClientAs, RpcClient, call, encoded, results};
pub use url::{NfsUrl, UrlError};
