//! Encoding and decoding of the operations that carry RPC messages (sections 9.2 to 9.4).

use bytes::{Bytes, BytesMut};
use onc_rpc::put_words;
use rpcrdma_ext_send_ddp::{
    DirectedSets, Items, get_items, get_sets, items_len, put_items, put_sets, sets_len,
};
use rpcrdma_v2::limits::OPTIONAL_LEN;
use rpcrdma_v2::{Malformed, Reader};

/// `rdma_opttype` of ROPT_XMTREQ.
pub const XMTREQ: u32 = 5;
/// `rdma_opttype` of ROPT_XMTRESP.
pub const XMTRESP: u32 = 6;
/// `rdma_opttype` of ROPT_XMTCONT.
pub const XMTCONT: u32 = 7;
/// `rdma_opttype` of ROPT_XMTERR.
pub const XMTERR: u32 = 8;

/// Bytes of a `xmddp_mitem` that is placed, without the numbers of segments.
pub(crate) const PLACED_LEN: u64 = 20;
/// Bytes of a `xmddp_mitem` that is transferred by RDMA Read or Write, without its segments.
pub(crate) const EXPLICIT_LEN: u64 = 16;
/// Bytes of an RDMA segment.
pub(crate) const SEGMENT_LEN: u64 = 16;

/// `optxmt_req`: the first transmission of a call.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Request {
    /// `optxrq_ddp`: the places of the call's bulk items.
    pub items: Items,
    /// `optxrq_rsd`: the directions for the bulk items of the reply.
    pub directions: DirectedSets,
    /// `optxrq_count`: number of transmissions in the group.
    pub count: u32,
    /// `optxrq_rsbuf`: number of additional receives posted for the reply.
    pub reserved: u32,
    /// `optxrq_pslen`: number of payload bytes that follow this header.
    pub payload: u32,
}

/// `optxmt_resp`: the first transmission of a reply.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Response {
    /// `optxrs_ddp`: the outcome of each direction in the call, in order.
    pub items: Items,
    /// `optxrs_count`: number of transmissions in the group.
    pub count: u32,
    /// `optxrs_pslen`: number of payload bytes that follow this header.
    pub payload: u32,
}

/// `optxmt_cont`: a further transmission.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Continuation {
    /// `optxc_xnum`: number of this transmission in the group; the first one has 0.
    pub number: u32,
    /// `optxc_itype`: the `rdma_opttype` of the group's first transmission.
    pub initial: u32,
    /// `optxc_pslen`: number of payload bytes that follow this header.
    pub payload: u32,
}

/// A field of an operation that can be encoded and decoded.
trait Field: Sized {
    /// Returns the encoded length in bytes.
    fn len(&self) -> usize;
    fn put(&self, out: &mut BytesMut);
    fn get(from: &mut Reader<'_>) -> Result<Self, Malformed>;
}

impl Field for u32 {
    fn len(&self) -> usize {
        4
    }

    fn put(&self, out: &mut BytesMut) {
        put_words(out, [*self]);
    }

    fn get(from: &mut Reader<'_>) -> Result<Self, Malformed> {
        from.u32()
    }
}

impl Field for Items {
    fn len(&self) -> usize {
        items_len(self)
    }

    fn put(&self, out: &mut BytesMut) {
        put_items(out, self);
    }

    fn get(from: &mut Reader<'_>) -> Result<Self, Malformed> {
        get_items(from)
    }
}

impl Field for DirectedSets {
    fn len(&self) -> usize {
        sets_len(self)
    }

    fn put(&self, out: &mut BytesMut) {
        put_sets(out, self);
    }

    fn get(from: &mut Reader<'_>) -> Result<Self, Malformed> {
        get_sets(from)
    }
}

/// Implements encoding and decoding of an operation with these fields, in this order.
macro_rules! operation {
    ($name:ident { $($field:ident),* }) => {
        impl $name {
            /// Returns the length in bytes of a transport header with this operation.
            #[must_use]
            pub fn header_len(&self) -> u64 {
                (OPTIONAL_LEN $(+ Field::len(&self.$field))*) as u64
            }

            /// Encodes the operation as XDR, for `rdma_optinfo`.
            #[must_use]
            pub fn encode(&self) -> Bytes {
                // Exactly as long as needed, so that freezing takes no allocation of its own.
                let len = self.header_len() as usize - OPTIONAL_LEN;
                let mut out = BytesMut::with_capacity(len);
                $(Field::put(&self.$field, &mut out);)*
                out.freeze()
            }

            /// Decodes the operation.
            ///
            /// # Errors
            /// [`Malformed`] if `info` does not match the XDR definition.
            pub fn decode(info: &[u8]) -> Result<Self, Malformed> {
                Reader::whole(info, |from| Ok(Self { $($field: Field::get(from)?),* }))
            }
        }
    };
}

operation!(Request {
    items,
    directions,
    count,
    reserved,
    payload
});
operation!(Response {
    items,
    count,
    payload
});
operation!(Continuation {
    number,
    initial,
    payload
});

/// Returns the length in bytes of the transport header of a request whose items and directions have
/// these lengths.
pub(crate) fn request_header(items: usize, directions: usize) -> u64 {
    (OPTIONAL_LEN + items + directions + 12) as u64
}

/// Returns the length in bytes of the transport header of a response whose items have this length.
pub(crate) fn response_header(items: usize) -> u64 {
    (OPTIONAL_LEN + items + 8) as u64
}

impl Continuation {
    /// Length in bytes of a transport header with a continuation, which does not depend on its
    /// values.
    pub const HEADER_LEN: u64 = OPTIONAL_LEN as u64 + 12;
}
