//! Version 1 (RFC 8166, section 4).

use bytes::Bytes;
use quickcheck::{Arbitrary, Gen};
use rpcrdma_v1::{Body, Chunks, ErrorBody, Header, HeaderError, VERSION};

use super::chunks::{any_chunks, show_chunks, show_versions};
use super::{Codec, Kind, Refused, kind};
use crate::show::Json;

pub(crate) const KINDS: &[Kind] = &[
    kind!("v1-msg", V1, |g| header(g, |g| Body::Msg(any_chunks(g))), payload: true),
    kind!("v1-nomsg", V1, |g| header(g, |g| Body::NoMsg(any_chunks(g))), payload: true),
    kind!("v1-error", V1, |g| header(g, any_error), payload: true),
];

/// The type `rpcrdma1_xprt_hdr`.
enum V1 {}

fn header(g: &mut Gen, body: fn(&mut Gen) -> Body) -> Header {
    Header {
        xid: u32::arbitrary(g),
        credits: u32::arbitrary(g),
        body: body(g),
    }
}

fn any_error(g: &mut Gen) -> Body {
    Body::Error(match bool::arbitrary(g) {
        true => ErrorBody::Chunk,
        false => ErrorBody::Version {
            low: u32::arbitrary(g),
            high: u32::arbitrary(g),
        },
    })
}

impl Codec for V1 {
    type Value = Header;
    const XDR: &'static str = "rpcrdma1_xprt_hdr";

    fn encode(value: &Header) -> Bytes {
        value.encode()
    }

    fn decode(bytes: &Bytes) -> Result<(Header, usize), Refused> {
        Header::decode(bytes).map_err(|error| match error {
            HeaderError::Version { .. } => Refused::Version,
            HeaderError::Msgp { .. } | HeaderError::Done { .. } => Refused::Retired,
            HeaderError::Malformed { reason, .. } | HeaderError::BadError { reason, .. } => {
                reason.into()
            }
            HeaderError::TooShort(_) => Refused::Short,
        })
    }

    fn show(value: &Header, json: &mut Json) {
        let chunks = |json: &mut Json, chunks: &Chunks| json.object(|to| show_chunks(to, chunks));
        json.object(|to| {
            to.number("rdma_xid", value.xid)
                .number("rdma_vers", VERSION)
                .number("rdma_credit", value.credits)
                .field("rdma_body", |json| {
                    json.object(|to| match &value.body {
                        Body::Msg(lists) => {
                            to.name("rdma_proc", "RDMA_MSG")
                                .field("rdma_chunks", |json| chunks(json, lists));
                        }
                        Body::NoMsg(lists) => {
                            to.name("rdma_proc", "RDMA_NOMSG")
                                .field("rdma_chunks_only", |json| chunks(json, lists));
                        }
                        Body::Error(error) => {
                            to.name("rdma_proc", "RDMA_ERROR")
                                .field("rdma_error", |json| show_error(json, *error));
                        }
                    });
                });
        });
    }
}

fn show_error(json: &mut Json, error: ErrorBody) {
    json.object(|to| match error {
        ErrorBody::Version { low, high } => {
            show_versions(to.name("rdma_err", "ERR_VERS"), low, high);
        }
        ErrorBody::Chunk => {
            to.name("rdma_err", "ERR_CHUNK");
        }
    });
}
