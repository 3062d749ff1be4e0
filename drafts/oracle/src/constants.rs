//! Compares constants of the XDR files that no structure uses with those of the crates.

use std::collections::BTreeSet;

use rpcrdma_ext_send_ddp as ddp;
use rpcrdma_ext_wg_ddp as placed;
use rpcrdma_ext_xchar as xchar;
use rpcrdma_extension::layout::SegmentFlags;
use rpcrdma_v2_wg::{ErrorBody, ReverseSupport, header_type};

use crate::list::FILES;
use crate::xdr::{Body, Specification};

/// Returns each constant of the files that is not part of an enumeration, with its value in its
/// crate. The enumerations are compared with every value that is encoded.
#[must_use]
pub fn of_crates() -> Vec<(&'static str, u64)> {
    let narrow = [
        ("XCHAR_EXPERIMENTAL_FIRST", *xchar::EXPERIMENTAL.start()),
        ("XCHAR_EXPERIMENTAL_LAST", *xchar::EXPERIMENTAL.end()),
        ("RTRS_XREQ", ddp::Support::XREQ.bits()),
        ("RTRS_XRESP", ddp::Support::XRESP.bits()),
        ("RTRS_XCONT", ddp::Support::XCONT.bits()),
        ("XMRSFLAG_DDP", SegmentFlags::DDP.bits()),
        ("RDMA2WG_ERROR", header_type::ERROR),
        ("RDMA2WG_GRANT", header_type::GRANT),
        ("RDMA2WG_CONNPROP_MIDDLE", header_type::CONNPROP_MIDDLE),
        ("RDMA2WG_CONNPROP_FINAL", header_type::CONNPROP_FINAL),
        ("RDMA2WG_CALL_EXTERNAL", header_type::CALL_EXTERNAL),
        ("RDMA2WG_CALL_MIDDLE", header_type::CALL_MIDDLE),
        ("RDMA2WG_CALL_INLINE", header_type::CALL_INLINE),
        ("RDMA2WG_REPLY_EXTERNAL", header_type::REPLY_EXTERNAL),
        ("RDMA2WG_REPLY_MIDDLE", header_type::REPLY_MIDDLE),
        ("RDMA2WG_REPLY_INLINE", header_type::REPLY_INLINE),
        ("RDMA2WG_RVRSDIR_NONE", ReverseSupport::None.number()),
        ("RDMA2WG_RVRSDIR_SIMPLE", ReverseSupport::Simple.number()),
        ("RDMA2WG_RVRSDIR_CONT", ReverseSupport::Continued.number()),
        ("RDMA2WG_RVRSDIR_GENL", ReverseSupport::General.number()),
        (
            "RDMA2WG_ERR_VERS",
            ErrorBody::Version { low: 0, high: 0 }.code(),
        ),
        ("RDMA2WG_ERR_BAD_XDR", ErrorBody::BadXdr.code()),
        (
            "RDMA2WG_ERR_BAD_PROPVAL",
            ErrorBody::BadPropertyValue.code(),
        ),
        (
            "RDMA2WG_ERR_INVAL_HTYPE",
            ErrorBody::InvalidHeaderType.code(),
        ),
        (
            "RDMA2WG_ERR_INVAL_CONT",
            ErrorBody::InvalidContinuation.code(),
        ),
        (
            "RDMA2WG_ERR_READ_CHUNKS",
            ErrorBody::ReadChunks { max: 0 }.code(),
        ),
        (
            "RDMA2WG_ERR_WRITE_CHUNKS",
            ErrorBody::WriteChunks { max: 0 }.code(),
        ),
        (
            "RDMA2WG_ERR_SEGMENTS",
            ErrorBody::Segments { max: 0 }.code(),
        ),
        (
            "RDMA2WG_ERR_WRITE_RESOURCE",
            ErrorBody::WriteResource {
                chunk: 0,
                needed: 0,
            }
            .code(),
        ),
        (
            "RDMA2WG_ERR_REPLY_RESOURCE",
            ErrorBody::ReplyResource { needed: 0 }.code(),
        ),
        (
            "RDMA2WG_ERR_VERS_MISMATCH",
            ErrorBody::VersionMismatch.code(),
        ),
        ("RDMA2WG_ERR_SYSTEM", ErrorBody::System.code()),
        ("RDMA2_RBUF_TARGET", SegmentFlags::DDP.bits()),
        ("RDMA2_PLACE_CALLS", placed::Support::CALLS.bits()),
        ("RDMA2_PLACE_RESULTS", placed::Support::RESULTS.bits()),
        ("RDMA2_RESMIN_NONE", placed::NO_RESULTS),
    ];
    let codes = FILES.iter().flat_map(|file| file.codes);
    let codes = codes.map(|code| (code.constant, code.value));
    codes
        .chain(narrow)
        .map(|(name, value)| (name, u64::from(value)))
        .collect()
}

/// Returns the differences between files and crates, a line each.
#[must_use]
pub fn differences(all: &Specification) -> Vec<String> {
    let crates = of_crates();
    let enumerated: BTreeSet<_> = all
        .types
        .iter()
        .flat_map(|(_, body)| match body {
            Body::Enum(values) => values.iter().map(|(name, _)| name.as_str()).collect(),
            _ => Vec::new(),
        })
        .collect();
    let mut wrong = Vec::new();
    for (name, value) in &all.constants {
        if enumerated.contains(name.as_str()) {
            continue;
        }
        match crates.iter().find(|(known, _)| known == name) {
            Some((_, same)) if same == value => {}
            Some((_, other)) => {
                wrong.push(format!("{name} is {value} in XDR, {other} in its crate"))
            }
            None => wrong.push(format!("{name} is compared with nothing")),
        }
    }
    for (name, _) in crates {
        if !all.constants.contains_key(name) || enumerated.contains(name) {
            wrong.push(format!("{name} is no constant of the XDR files"));
        }
    }
    wrong
}
