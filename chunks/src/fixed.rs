//! The fields at the same place in every version (sections 4.2 and 4.2.1 to 4.2.4).

use bytes::{Buf, BytesMut};
use onc_rpc::put_words;

/// Bytes of XID, version, credits and procedure.
pub const FIXED_LEN: usize = 16;

/// Values of `rdma_proc` that mean the same in both versions.
pub mod proc {
    /// The payload follows the header.
    pub const MSG: u32 = 0;
    /// The payload is in a chunk.
    pub const NOMSG: u32 = 1;
    /// An error, in every version (section 4.2.4): errors must never answer errors, not even across
    /// versions.
    pub const ERROR: u32 = 4;
}

/// The part a receiver plays in the transaction that a header belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// It sent the call, and receives replies and errors.
    Requester,
    /// It receives calls.
    Responder,
}

/// The fields with which a header of every version begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fixed {
    /// `rdma_xid`.
    pub xid: u32,
    /// `rdma_vers`.
    pub version: u32,
    /// `rdma_credit`.
    pub credits: u32,
    /// `rdma_proc`.
    pub procedure: u32,
}

impl Fixed {
    /// The fields of a message; nothing when it is shorter than they are.
    #[must_use]
    #[inline]
    pub fn peek(message: &[u8]) -> Option<Self> {
        let mut fields: &[u8] = message.first_chunk::<FIXED_LEN>()?;
        Some(Self {
            xid: fields.get_u32(),
            version: fields.get_u32(),
            credits: fields.get_u32(),
            procedure: fields.get_u32(),
        })
    }

    /// Appends the fields to `out`.
    pub fn encode_into(&self, out: &mut BytesMut) {
        put_words(out, [self.xid, self.version, self.credits, self.procedure]);
    }
}
