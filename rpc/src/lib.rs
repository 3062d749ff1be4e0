//! XDR (RFC 4506) and ONC RPC (RFC 5531), without I/O, and the messages of rpcbind (RFC 1833).
//!
//! The unit of work above every transport is a [`Message`]: an XDR stream whose bulk data items
//! are kept apart, each at its position in the stream. [`Encoder`] makes one, [`Decoder`] reads
//! one, and neither copies a bulk item.
//! A call with a number and a bulk data item, as the client encodes and the server decodes it:
//!
//! ```
//! use bytes::Bytes;
//! use onc_rpc::{CallHeader, Credential, Decoder, Encoder, Verifier};
//!
//! let mut arguments = Encoder::new();
//! arguments.u32(42).bulk(Bytes::from_static(b"hello"));
//! let mut call = arguments.finish();
//! let (cred, verf) = (Credential::None, Verifier::default());
//! let header = CallHeader { xid: 7, prog: 100_003, vers: 3, proc: 1, cred, verf };
//! call.prepend(header.encode());
//! // 40 bytes of header, the number and the length of the item. The item is apart from them.
//! assert_eq!((call.payload_len(), call.items().len()), (48, 1));
//!
//! let mut decoder = Decoder::new(&call);
//! assert_eq!(CallHeader::decode(&mut decoder)?, header);
//! assert_eq!(decoder.u32()?, 42);
//! assert_eq!(decoder.bulk(1024)?.to_bytes(), "hello");
//! decoder.finish()?;
//! # Ok::<_, Box<dyn std::error::Error>>(())
//! ```

#![forbid(unsafe_code)]

mod auth;
mod bulk;
mod decode;
mod encode;
mod extras;
mod header;
mod message;
pub mod record;
mod reduction;
pub mod rpcbind;

pub use auth::{
    AUTH_NONE, AUTH_SHORT, AUTH_SYS, AuthStat, AuthSys, Credential, MAX_AUTH_BYTES, MAX_GIDS,
    MAX_MACHINE_NAME, Verifier,
};
pub use bulk::{Bulk, Segments, total_len};
pub use decode::{Cursor, DecodeError, Decoder};
pub use encode::{Encoder, put_words};
pub use extras::Extras;
pub use header::{
    AcceptStatus, CALL, CallDecodeError, CallHeader, REPLY, RPC_VERSION, ReplyBody, ReplyHeader,
    peek_start, peek_xid,
};
pub use message::{BulkItem, Message, Position};
pub use reduction::Reduction;

/// Returns the number of zero bytes that bring `len` to a multiple of four (RFC 4506, section 3).
#[must_use]
pub const fn pad(len: u64) -> u64 {
    (4 - len % 4) % 4
}

/// Returns the big-endian word at `index`, counted in words, of `bytes`; zero if `bytes` is too
/// short.
#[inline]
fn word(bytes: &[u8], index: usize) -> u32 {
    let word = bytes.get(4 * index..).and_then(|rest| rest.first_chunk());
    word.map_or(0, |word| u32::from_be_bytes(*word))
}

/// Returns `len` rounded up to a multiple of four: the space that an opaque's bytes take in an XDR
/// stream. Computed in 64 bits, so that a `u32` from the wire cannot wrap.
#[must_use]
pub const fn padded(len: u64) -> u64 {
    len + pad(len)
}
