//! NFS version 3 and MOUNT version 3 (RFC 1813): arguments and results of all their procedures,
//! encoded and decoded in both directions, so that server and client share them.
//!
//! The types are our own, not those of crate `nfs3_types`: those read a variable-length field by
//! allocating whatever length the wire says, hold file data in a `Vec` (a copy each way), and most
//! can neither be compared nor cloned. Here every length has a limit that is checked first, bulk
//! data stays the [`bytes::Bytes`] it came as, and each type knows its longest encoding. The tests
//! decode what these types encode with `nfs3_types`, and the other way round.

mod directory;
mod file;
mod filesystem;
mod mount;
mod procedure;
mod status;
mod types;
#[macro_use]
mod xdr;

#[cfg(test)]
mod tests;

pub use directory::*;
pub use file::*;
pub use filesystem::*;
pub use mount::*;
pub use procedure::*;
pub use status::{Failed, NfsResult, Status};
pub use types::*;
pub use xdr::{Xdr, encoded_len};
