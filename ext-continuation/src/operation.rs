//! The operations that carry RPC messages, as XDR (sections 9.2 to 9.4).

use bytes::{BufMut, Bytes, BytesMut};
use rpcrdma_ext_send_ddp::{
    DirectedSet, PlacedItem, get_items, get_sets, items_len, put_items, put_sets, sets_len,
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
/// Bytes of one that is explicit, without its segments.
pub(crate) const EXPLICIT_LEN: u64 = 16;
/// Bytes of an RDMA segment.
pub(crate) const SEGMENT_LEN: u64 = 16;

/// `optxmt_req`: the first transmission of a call.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Request {
    /// `optxrq_ddp`: where its bulk items are.
    pub items: Vec<PlacedItem>,
    /// `optxrq_rsd`: where those of its reply are wanted.
    pub directions: Vec<DirectedSet>,
    /// `optxrq_count`: transmissions of the group.
    pub count: u32,
    /// `optxrq_rsbuf`: further receives that are posted for the reply.
    pub reserved: u32,
    /// `optxrq_pslen`: bytes of payload that follow this header.
    pub payload: u32,
}

/// `optxmt_resp`: the first transmission of a reply.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Response {
    /// `optxrs_ddp`: what became of each direction in the request, in order.
    pub items: Vec<PlacedItem>,
    /// `optxrs_count`: transmissions of the group.
    pub count: u32,
    /// `optxrs_pslen`: bytes of payload that follow this header.
    pub payload: u32,
}

/// `optxmt_cont`: a further transmission.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Continuation {
    /// `optxc_xnum`: its number in the group; the first transmission has 0.
    pub number: u32,
    /// `optxc_itype`: the opttype of the group's first transmission.
    pub initial: u32,
    /// `optxc_pslen`: bytes of payload that follow this header.
    pub payload: u32,
}

/// A field of an operation.
trait Field: Sized {
    /// Bytes of its XDR.
    fn len(&self) -> usize;
    fn put(&self, out: &mut BytesMut);
    fn get(from: &mut Reader<'_>) -> Result<Self, Malformed>;
}

impl Field for u32 {
    fn len(&self) -> usize {
        4
    }

    fn put(&self, out: &mut BytesMut) {
        out.put_u32(*self);
    }

    fn get(from: &mut Reader<'_>) -> Result<Self, Malformed> {
        from.u32()
    }
}

impl Field for Vec<PlacedItem> {
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

impl Field for Vec<DirectedSet> {
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

/// Makes an operation's fields, in this order, its XDR in both directions.
macro_rules! operation {
    ($name:ident { $($field:ident),* }) => {
        impl $name {
            /// Bytes of a transport header with it.
            #[must_use]
            pub fn header_len(&self) -> u64 {
                (OPTIONAL_LEN $(+ Field::len(&self.$field))*) as u64
            }

            /// Its XDR, for `rdma_optinfo`.
            #[must_use]
            pub fn encode(&self) -> Bytes {
                let mut out = BytesMut::with_capacity(self.header_len() as usize);
                $(Field::put(&self.$field, &mut out);)*
                out.freeze()
            }

            /// Reads it.
            ///
            /// # Errors
            /// It is not what its definition says.
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

/// Bytes of a transport header whose request has items and directions of these lengths.
pub(crate) fn request_header(items: usize, directions: usize) -> u64 {
    (OPTIONAL_LEN + items + directions + 12) as u64
}

/// Bytes of a transport header whose response has items of this length.
pub(crate) fn response_header(items: usize) -> u64 {
    (OPTIONAL_LEN + items + 8) as u64
}

impl Continuation {
    /// Bytes of a transport header with it, which has the same length whatever it says.
    pub const HEADER_LEN: u64 = OPTIONAL_LEN as u64 + 12;
}
