//! The types of the values that opaque data holds, by the number beside it.

/// The operations and the types of their fields.
pub const OPERATIONS: &[(&str, &str)] = &[
    ("ROPT_INITXCH", "optinfo_initxch"),
    ("ROPT_REQXCH", "optinfo_reqxch"),
    ("ROPT_RESPXCH", "optinfo_respxch"),
    ("ROPT_UPDXCH", "optinfo_updxch"),
    ("ROPT_XMTREQ", "optxmt_req"),
    ("ROPT_XMTRESP", "optxmt_resp"),
    ("ROPT_XMTCONT", "optxmt_cont"),
    ("ROPT_XMTERR", "optxmt_err"),
    ("ROPT_BATCH", "optxmt_batch"),
];

/// The characteristics and the types of their values. That of `examples/batch` has none of its own.
pub const CHARACTERISTICS: &[(&str, &str)] = &[
    ("XCHAR_RBSIZ", "xchrbsiz"),
    ("XCHAR_REQREMINV", "xchrreqrem"),
    ("XCHAR_BRS", "xchrbrs"),
    ("XCHAR_RTRSUPP", "xchrrtrs"),
    ("XCHAR_RBSTRUCT", "xchrrbs"),
    ("XCHAR_REQRXLIM", "xchrqrxl"),
    ("XCHAR_RESPSXLIM", "xchrssxl"),
    ("XCHAR_BATCHMAX", "xchrbatchmax"),
];

/// The properties of the working group's version 2 and its placement extension, and the types of
/// their values.
pub const PROPERTIES: &[(&str, &str)] = &[
    ("RDMA2WG_PROPID_SBSIZ", "rpcrdma2wg_prop_sbsiz"),
    ("RDMA2WG_PROPID_RBSIZ", "rpcrdma2wg_prop_rbsiz"),
    ("RDMA2WG_PROPID_RSSIZ", "rpcrdma2wg_prop_rssiz"),
    ("RDMA2WG_PROPID_RCSIZ", "rpcrdma2wg_prop_rcsiz"),
    ("RDMA2WG_PROPID_BRS", "rpcrdma2wg_prop_brs"),
    ("RDMA2WG_PROPID_HOSTAUTH", "rpcrdma2wg_prop_hostauth"),
    ("RDMA2_PROPID_RBSTRUCT", "rpcrdma2_prop_rbstruct"),
    ("RDMA2_PROPID_PLACEMENT", "rpcrdma2_prop_placement"),
    ("RDMA2_PROPID_RESMIN", "rpcrdma2_prop_resmin"),
];
