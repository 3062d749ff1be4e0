//! Version 2 (version-two-01, section 4.2).

use bytes::Bytes;
use quickcheck::{Arbitrary, Gen};
use rpcrdma_v2::{Body, Chunks, Direction, ErrorBody, Header, HeaderError, Optional, VERSION};

use super::any::{number, opaque};
use super::chunks::{any_chunks, show_chunks, show_versions};
use super::{Codec, Kind, Refused, kind};
use crate::show::Json;

pub(crate) const KINDS: &[Kind] = &[
    kind!("v2-msg", V2, |g| header(g, |g| Body::Msg(any_direction(g), any_chunks(g))), payload: true),
    kind!("v2-nomsg", V2, |g| header(g, |g| Body::NoMsg(any_direction(g), any_chunks(g))), payload: true),
    kind!("v2-error", V2, |g| header(g, any_error), payload: true),
    kind!("v2-optional", V2, |g| header(g, any_optional), payload: true),
];

/// The type `rpcrdma2_xprt_hdr`.
enum V2 {}

fn header(g: &mut Gen, body: fn(&mut Gen) -> Body) -> Header {
    Header {
        xid: u32::arbitrary(g),
        credits: u32::arbitrary(g),
        body: body(g),
    }
}

pub(super) fn any_direction(g: &mut Gen) -> Direction {
    match bool::arbitrary(g) {
        true => Direction::Call,
        false => Direction::Reply,
    }
}

pub(super) fn direction_name(direction: Direction) -> &'static str {
    match direction {
        Direction::Call => "RDMA2_CALL",
        Direction::Reply => "RDMA2_REPLY",
    }
}

fn any_error(g: &mut Gen) -> Body {
    Body::Error(match u8::arbitrary(g) % 3 {
        0 => ErrorBody::BadHeader,
        1 => ErrorBody::InvalidOption,
        _ => ErrorBody::Version {
            low: u32::arbitrary(g),
            high: u32::arbitrary(g),
        },
    })
}

fn any_optional(g: &mut Gen) -> Body {
    Body::Optional(Optional {
        direction: any_direction(g),
        opttype: number(g),
        info: opaque(g),
    })
}

impl Codec for V2 {
    type Value = Header;
    const XDR: &'static str = "rpcrdma2_xprt_hdr";

    fn encode(value: &Header) -> Bytes {
        value.encode()
    }

    fn decode(bytes: &Bytes) -> Result<(Header, usize), Refused> {
        Header::decode(bytes).map_err(|error| match error {
            HeaderError::Version { .. } => Refused::Version,
            HeaderError::Malformed { reason, .. } | HeaderError::BadError { reason, .. } => {
                reason.into()
            }
            HeaderError::TooShort(_) => Refused::Short,
        })
    }

    fn show(value: &Header, json: &mut Json) {
        json.object(|to| {
            to.number("rdma_xid", value.xid)
                .number("rdma_vers", VERSION)
                .number("rdma_credit", value.credits)
                .field("rdma_body", |json| show_body(json, &value.body));
        });
    }
}

fn show_body(json: &mut Json, body: &Body) {
    let chunks = |json: &mut Json, direction, chunks: &Chunks| {
        json.object(|to| {
            to.name("rdma_direction", direction_name(direction));
            show_chunks(to, chunks);
        });
    };
    json.object(|to| match body {
        Body::Msg(direction, lists) => {
            to.name("rdma_proc", "RDMA2_MSG")
                .field("rdma_chunks", |json| chunks(json, *direction, lists));
        }
        Body::NoMsg(direction, lists) => {
            to.name("rdma_proc", "RDMA2_NOMSG")
                .field("rdma_chunks_only", |json| chunks(json, *direction, lists));
        }
        Body::Error(error) => {
            to.name("rdma_proc", "RDMA2_ERROR")
                .field("rdma_error", |json| show_error(json, *error));
        }
        Body::Optional(optional) => {
            to.name("rdma_proc", "RDMA2_OPTIONAL")
                .field("rdma_optional", |json| {
                    json.object(|to| {
                        to.name("rdma_optdir", direction_name(optional.direction))
                            .number("rdma_opttype", optional.opttype)
                            .field("rdma_optinfo", |json| json.hex(&optional.info));
                    });
                });
        }
    });
}

fn show_error(json: &mut Json, error: ErrorBody) {
    json.object(|to| match error {
        ErrorBody::Version { low, high } => {
            show_versions(to.name("rdma_err", "RDMA2_ERR_VERS"), low, high);
        }
        ErrorBody::BadHeader => {
            to.name("rdma_err", "RDMA2_ERR_BAD_HEADER");
        }
        ErrorBody::InvalidOption => {
            to.name("rdma_err", "RDMA2_ERR_INVAL_OPTION");
        }
    });
}
