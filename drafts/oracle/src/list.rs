//! The one list of what is registered: each XDR file with the numbers that it assigns and the codecs that
//! are compared with it. An extension is a row here. Constants, vectors, the dissector's table of numbers,
//! its check with `tshark` and the fields that need hostile cases follow from it and from the file.

use rpcrdma_ext_continuation as cont;
use rpcrdma_ext_send_ddp as ddp;
use rpcrdma_ext_wg_ddp::{header_type, property_id as placed_id};
use rpcrdma_ext_xchar as xchar;
use rpcrdma_ext_xchar::Characteristic as _;
use rpcrdma_v2_wg::property_id;

use crate::kind::{self, Kind};

/// An XDR file.
#[derive(Clone, Copy, Debug)]
pub struct File {
    /// The name in `drafts/xdr`.
    pub name: &'static str,
    /// The content.
    pub text: &'static str,
    /// The tables that must have a case for each field of the file.
    pub cases: Cases,
    /// The numbers that the file assigns.
    pub codes: &'static [Code],
    /// The types to compare.
    pub kinds: &'static [&'static [Kind]],
}

/// The tables of `testing/hostile` that must have a case for each field of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cases {
    /// There are none: no command has the extension, or its messages are no operations.
    None,
    /// The tables of version 2 of 2016.
    Two,
    /// The tables of the working group's version 2.
    WorkingGroup,
}

/// A number that selects the type of what is beside it.
#[derive(Clone, Copy, Debug)]
pub struct Code {
    /// The use of the number.
    pub role: Role,
    /// The name of the constant in the XDR file.
    pub constant: &'static str,
    /// The XDR type.
    pub of: &'static str,
    /// The number, as the crate has it.
    pub value: u32,
}

/// The use of a number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// An optional operation of version 2 of 2016: `rdma_opttype`, for `rdma_optinfo`.
    Operation,
    /// A characteristic of it: `xchv_which`, for `xchv_data`.
    Characteristic,
    /// A header type of an extension of the working group's version 2: `rdma_htype`, for the fields after
    /// the prefix.
    HeaderType,
    /// A property of it: `rdma_which`, for `rdma_data`.
    Property,
}

impl Role {
    /// Returns the name in the dissector's table.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Operation => "operation",
            Self::Characteristic => "characteristic",
            Self::HeaderType => "header type",
            Self::Property => "property",
        }
    }
}

/// Defines a [`File`].
macro_rules! xdr_file {
    (
        $name:literal, cases: $cases:ident, kinds: [$($kinds:expr),*],
        $($role:ident $constant:literal $of:literal = $value:expr;)*
    ) => {
        File {
            name: $name,
            text: include_str!(concat!("../xdr/", $name)),
            cases: Cases::$cases,
            codes: &[$(Code {
                role: Role::$role,
                constant: $constant,
                of: $of,
                value: $value,
            }),*],
            kinds: &[$($kinds),*],
        }
    };
}

/// Defines the [`File`] of an extension whose fields are structures of `rpcrdma_extension::xdr_struct!`.
/// Each number has a constant of the same name in the crate, the structure that it selects, and the name
/// of that in reports and vectors.
#[allow(unused_macros, reason = "rows that drafts/new adds use it")]
macro_rules! extension {
    ($name:literal, $from:ident, $($role:ident $constant:ident = $of:ident $kind:literal;)*) => {
        File {
            name: $name,
            text: include_str!(concat!("../xdr/", $name)),
            cases: Cases::None,
            codes: &[$(Code {
                role: Role::$role,
                constant: stringify!($constant),
                of: <$from::$of as rpcrdma_extension::xdr::Structure>::NAME,
                value: $from::$constant,
            }),*],
            kinds: &[&[$(kind::made::kind::<$from::$of>(
                $kind,
                matches!(Role::$role, Role::HeaderType),
            )),*]],
        }
    };
}
/// All files, in the order of their dependencies. `drafts/new` adds a row at the end.
#[rustfmt::skip]
pub const FILES: &[File] = &[
    xdr_file!("rpcrdma1.x", cases: None, kinds: [kind::v1::KINDS],),
    xdr_file!("rpcrdma2.x", cases: None, kinds: [kind::v2::KINDS],),
    xdr_file!("xchar.x", cases: Two, kinds: [kind::xchar::KINDS],
        Operation "ROPT_INITXCH" "optinfo_initxch" = xchar::INITXCH;
        Operation "ROPT_REQXCH" "optinfo_reqxch" = xchar::REQXCH;
        Operation "ROPT_RESPXCH" "optinfo_respxch" = xchar::RESPXCH;
        Operation "ROPT_UPDXCH" "optinfo_updxch" = xchar::UPDXCH;
        Characteristic "XCHAR_RBSIZ" "xchrbsiz" = xchar::ReceiveBufferSize::ID;
        Characteristic "XCHAR_REQREMINV" "xchrreqrem" = xchar::RequesterRemoteInvalidation::ID;
        Characteristic "XCHAR_BRS" "xchrbrs" = xchar::BackwardRequestSupport::ID;
    ),
    xdr_file!("rtr.x", cases: Two, kinds: [kind::rtr::KINDS],
        Operation "ROPT_XMTREQ" "optxmt_req" = cont::XMTREQ;
        Operation "ROPT_XMTRESP" "optxmt_resp" = cont::XMTRESP;
        Operation "ROPT_XMTCONT" "optxmt_cont" = cont::XMTCONT;
        Operation "ROPT_XMTERR" "optxmt_err" = cont::XMTERR;
        Characteristic "XCHAR_RTRSUPP" "xchrrtrs" = ddp::RoundTripSupport::ID;
        Characteristic "XCHAR_RBSTRUCT" "xchrrbs" = ddp::ReceiveBufferStructure::ID;
        Characteristic "XCHAR_REQRXLIM" "xchrqrxl" = cont::RequestReceiveLimit::ID;
        Characteristic "XCHAR_RESPSXLIM" "xchrssxl" = cont::ResponseSendLimit::ID;
    ),
    xdr_file!("batch.x", cases: None, kinds: [kind::batch::KINDS],
        Operation "ROPT_BATCH" "optxmt_batch" = batch::ROPT_BATCH;
        Characteristic "XCHAR_BATCHMAX" "xchrbatchmax" = batch::XCHAR_BATCHMAX;
    ),
    xdr_file!("rpcrdma2wg.x", cases: WorkingGroup,
        kinds: [kind::v2_wg::KINDS, kind::wg_property::KINDS],
        Property "RDMA2WG_PROPID_SBSIZ" "rpcrdma2wg_prop_sbsiz" = property_id::SEND_SIZE;
        Property "RDMA2WG_PROPID_RBSIZ" "rpcrdma2wg_prop_rbsiz" = property_id::RECEIVE_SIZE;
        Property "RDMA2WG_PROPID_RSSIZ" "rpcrdma2wg_prop_rssiz" = property_id::SEGMENT_SIZE;
        Property "RDMA2WG_PROPID_RCSIZ" "rpcrdma2wg_prop_rcsiz" = property_id::SEGMENT_COUNT;
        Property "RDMA2WG_PROPID_BRS" "rpcrdma2wg_prop_brs" = property_id::REVERSE;
        Property "RDMA2WG_PROPID_HOSTAUTH" "rpcrdma2wg_prop_hostauth" = property_id::HOST_AUTH;
    ),
    xdr_file!("wg-ddp.x", cases: WorkingGroup, kinds: [kind::wg_ddp::KINDS],
        HeaderType "RDMA2_CALL_PLACED_MIDDLE" "rpcrdma2_hdr_placed_middle"
            = header_type::CALL_PLACED_MIDDLE;
        HeaderType "RDMA2_CALL_PLACED" "rpcrdma2_hdr_call_placed" = header_type::CALL_PLACED;
        HeaderType "RDMA2_REPLY_PLACED_MIDDLE" "rpcrdma2_hdr_placed_middle"
            = header_type::REPLY_PLACED_MIDDLE;
        HeaderType "RDMA2_REPLY_PLACED" "rpcrdma2_hdr_reply_placed" = header_type::REPLY_PLACED;
        Property "RDMA2_PROPID_RBSTRUCT" "rpcrdma2_prop_rbstruct" = placed_id::STRUCTURE;
        Property "RDMA2_PROPID_PLACEMENT" "rpcrdma2_prop_placement" = placed_id::SUPPORT;
        Property "RDMA2_PROPID_RESMIN" "rpcrdma2_prop_resmin" = placed_id::SMALLEST_RESULT;
    ),
];

/// Returns the numbers of this role.
pub fn codes(role: Role) -> impl Iterator<Item = &'static Code> {
    let all = FILES.iter().flat_map(|file| file.codes);
    all.filter(move |code| code.role == role)
}

/// Returns every type to compare.
#[must_use]
pub fn kinds() -> Vec<Kind> {
    let all = FILES.iter().flat_map(|file| file.kinds);
    all.copied().flatten().copied().collect()
}
