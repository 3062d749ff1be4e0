//! Arbitrary and hand-made headers for tests.
#![allow(dead_code, reason = "each test binary uses only a part of this module")]

#[path = "../../../v1/tests/lists/mod.rs"]
mod lists;

use bytes::Bytes;
use quickcheck::{Arbitrary, Gen};
use rpcrdma_v2_wg::{Body, Chunks, Direction, ErrorBody, Header, Property, ReadSegment};

pub(crate) use lists::*;

/// XID of every hand-made header.
pub(crate) const XID: u32 = 0x1234_5678;
/// Credit field of every hand-made header.
pub(crate) const CREDIT: u32 = 32;

fn any_reads(g: &mut Gen, external: bool) -> Vec<ReadSegment> {
    let mut positions = few(g, 5, |g| {
        // Short positions repeat more often, so that chunks have several segments.
        (u32::arbitrary(g) >> (u8::arbitrary(g) % 32)).max(1)
    });
    positions.sort_unstable();
    let call_chunk = match external {
        true => vec![0; 1 + usize::arbitrary(g) % 3],
        false => vec![],
    };
    let positions = call_chunk.into_iter().chain(positions);
    let read = |position| ReadSegment {
        position,
        segment: any_segment(g),
    };
    positions.map(read).collect()
}

fn any_call(g: &mut Gen) -> Body {
    let external = bool::arbitrary(g);
    let chunks = Chunks {
        reads: any_reads(g, external),
        writes: few(g, 3, any_chunk),
        reply: bool::arbitrary(g).then(|| any_chunk(g)),
    };
    let handles: Vec<_> = chunks.handles().collect();
    let inv_handle = match bool::arbitrary(g) {
        true => g.choose(&handles).copied().unwrap_or(0),
        false => 0,
    };
    Body::Call {
        external,
        inv_handle,
        chunks,
    }
}

fn any_reply(g: &mut Gen) -> Body {
    let external = bool::arbitrary(g);
    let chunks = Chunks {
        reads: vec![],
        writes: few(g, 3, any_chunk),
        reply: external.then(|| any_chunk(g)),
    };
    Body::Reply { external, chunks }
}

pub(crate) fn any_error(g: &mut Gen) -> ErrorBody {
    let value = u32::arbitrary(g);
    match u8::arbitrary(g) % 13 {
        0 => ErrorBody::Version {
            low: value,
            high: u32::arbitrary(g),
        },
        1 => ErrorBody::BadXdr,
        2 => ErrorBody::BadPropertyValue,
        3 => ErrorBody::InvalidHeaderType,
        4 => ErrorBody::InvalidContinuation,
        5 => ErrorBody::ReadChunks { max: value },
        6 => ErrorBody::WriteChunks { max: value },
        7 => ErrorBody::Segments { max: value },
        8 => ErrorBody::WriteResource {
            chunk: value,
            needed: u32::arbitrary(g),
        },
        9 => ErrorBody::ReplyResource { needed: value },
        10 => ErrorBody::VersionMismatch,
        11 => ErrorBody::System,
        _ => ErrorBody::Other(value.max(101)),
    }
}

pub(crate) fn any_property(g: &mut Gen) -> Property {
    Property {
        id: u32::arbitrary(g) >> (u8::arbitrary(g) % 32),
        value: Vec::<u8>::arbitrary(g).into(),
    }
}

/// Any encodable header.
#[derive(Clone, Debug)]
pub(crate) struct AnyHeader(pub(crate) Header);

impl Arbitrary for AnyHeader {
    fn arbitrary(g: &mut Gen) -> Self {
        let body = match u8::arbitrary(g) % 10 {
            0 => Body::Grant,
            1 | 2 => Body::Error(any_error(g)),
            3 => Body::Properties {
                last: bool::arbitrary(g),
                properties: few(g, 6, any_property),
            },
            4 => Body::Middle {
                direction: match bool::arbitrary(g) {
                    true => Direction::Call,
                    false => Direction::Reply,
                },
                remaining: u32::arbitrary(g),
            },
            5..8 => any_call(g),
            _ => any_reply(g),
        };
        Self(Header {
            xid: u32::arbitrary(g),
            credit: u32::arbitrary(g),
            body,
        })
    }
}

/// Returns a header followed by this payload, if a payload belongs behind it.
pub(crate) fn message(header: &Header, payload: &[u8]) -> Bytes {
    let payload = match header.body.has_payload() {
        true => payload,
        false => &[],
    };
    Bytes::from([&header.encode()[..], payload].concat())
}

pub(crate) fn header(body: Body) -> Header {
    Header {
        xid: XID,
        credit: CREDIT,
        body,
    }
}

/// Returns a call with no handle to invalidate.
pub(crate) fn call(external: bool, chunks: Chunks) -> Body {
    Body::Call {
        external,
        inv_handle: 0,
        chunks,
    }
}

/// Returns a message of version 2 with this header type and these further words.
pub(crate) fn wire(header_type: u32, rest: &[u32]) -> Bytes {
    words(&[&[XID, 2, CREDIT, header_type], rest].concat())
}
