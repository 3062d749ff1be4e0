//! Arbitrary and hand-made headers for tests.
#![allow(dead_code, reason = "each test binary uses only a part of this module")]

#[path = "../../../v1/tests/lists/mod.rs"]
mod lists;

use bytes::Bytes;
use quickcheck::{Arbitrary, Gen};
use rpcrdma_v2::{
    Body, Chunks, Direction, ErrorBody, Header, Optional, ReplyViolation, ReturnedChunks,
    check_returned,
};

pub(crate) use lists::*;

/// XID of every hand-made header.
pub(crate) const XID: u32 = 0x1234_5678;

fn any_direction(g: &mut Gen) -> Direction {
    match bool::arbitrary(g) {
        true => Direction::Call,
        false => Direction::Reply,
    }
}

/// Any encodable header.
#[derive(Clone, Debug)]
pub(crate) struct AnyHeader(pub(crate) Header);

impl Arbitrary for AnyHeader {
    fn arbitrary(g: &mut Gen) -> Self {
        let body = match u8::arbitrary(g) % 8 {
            0 => Body::Error(ErrorBody::BadHeader),
            1 => Body::Error(ErrorBody::InvalidOption),
            2 => Body::Error(ErrorBody::Version {
                low: u32::arbitrary(g),
                high: u32::arbitrary(g),
            }),
            3 | 4 => Body::Optional(Optional {
                direction: any_direction(g),
                opttype: u32::arbitrary(g),
                info: Vec::<u8>::arbitrary(g).into(),
            }),
            5 => Body::NoMsg(any_direction(g), any_chunks(g)),
            _ => Body::Msg(any_direction(g), any_chunks(g)),
        };
        Self(Header {
            xid: u32::arbitrary(g),
            credits: u32::arbitrary(g),
            body,
        })
    }
}

pub(crate) fn header(body: Body) -> Header {
    Header {
        xid: XID,
        credits: 32,
        body,
    }
}

pub(crate) fn optional(direction: Direction, opttype: u32, info: &[u8]) -> Header {
    header(Body::Optional(Optional {
        direction,
        opttype,
        info: Bytes::copy_from_slice(info),
    }))
}

/// Checks a reply's chunks against those offered. The body must be a reply.
pub(crate) fn check_reply(
    header: &Header,
    inline: u64,
    offered: &Chunks,
) -> Result<ReturnedChunks, ReplyViolation> {
    match &header.body {
        Body::Msg(Direction::Reply, chunks) => check_returned(chunks, false, inline, offered),
        Body::NoMsg(Direction::Reply, chunks) => check_returned(chunks, true, inline, offered),
        other => panic!("not a reply: {other:?}"),
    }
}
