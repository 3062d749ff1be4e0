//! The header fields at the same offsets in every protocol version (sections 4.2 and 4.2.1 to
//! 4.2.4).

use bytes::{Buf, BytesMut};
use onc_rpc::put_words;

/// Length in bytes of XID, version, credits and procedure.
pub const FIXED_LEN: usize = 16;

/// Values of `rdma_proc` with the same meaning in both versions.
pub mod proc {
    /// RDMA_MSG: the payload follows the header.
    pub const MSG: u32 = 0;
    /// RDMA_NOMSG: the payload is in a chunk.
    pub const NOMSG: u32 = 1;
    /// RDMA_ERROR. The same number in every version (section 4.1.2), so that a receiver never
    /// answers an error with an error, even across versions.
    pub const ERROR: u32 = 4;
}

/// The role of a message's receiver in the RPC transaction that the message belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// The receiver sent the call; it receives replies and errors.
    Requester,
    /// The receiver executes the call; it receives calls.
    Responder,
}

/// The fields with which a header of any version begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fixed {
    /// `rdma_xid`: XID of the RPC message.
    pub xid: u32,
    /// `rdma_vers`: protocol version.
    pub version: u32,
    /// `rdma_credit`: credits requested or granted.
    pub credits: u32,
    /// `rdma_proc`: header type.
    pub procedure: u32,
}

impl Fixed {
    /// Decodes the fields of a message. Returns `None` if it is shorter than [`FIXED_LEN`].
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

    /// Appends the encoded fields to `out`.
    pub fn encode_into(&self, out: &mut BytesMut) {
        put_words(out, [self.xid, self.version, self.credits, self.procedure]);
    }
}
