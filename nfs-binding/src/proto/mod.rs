//! The arguments and results of all procedures of NFS version 3 and MOUNT version 3 (RFC 1813),
//! with encoding and decoding for both server and client.
//!
//! The types of crate `nfs3_types` are not used, because they allocate whatever length the wire
//! announces for a variable-length field, hold file data in a `Vec` (a copy each way), and mostly
//! can neither be compared nor cloned. Here every length is checked against a limit first, bulk
//! data stays in the [`bytes::Bytes`] in which it arrived, and each type knows the length of its
//! longest encoding. The tests decode with `nfs3_types` what these types encode, and the reverse.

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
