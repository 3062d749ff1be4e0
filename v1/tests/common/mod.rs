//! Arbitrary and hand-made headers for tests.
#![allow(dead_code, reason = "each test binary uses only a part of this module")]

#[path = "../lists/mod.rs"]
mod lists;

use quickcheck::{Arbitrary, Gen};
use rpcrdma_v1::{
    Body, Chunks, ErrorBody, Header, ReplyViolation, ReturnedChunks, WriteChunk, check_returned,
};

pub(crate) use lists::*;

/// XID of every hand-made header.
pub(crate) const XID: u32 = 0x1234_5678;

/// Any encodable header.
#[derive(Clone, Debug)]
pub(crate) struct AnyHeader(pub(crate) Header);

impl Arbitrary for AnyHeader {
    fn arbitrary(g: &mut Gen) -> Self {
        let body = match u8::arbitrary(g) % 6 {
            0 => Body::Error(ErrorBody::Chunk),
            1 => Body::Error(ErrorBody::Version {
                low: u32::arbitrary(g),
                high: u32::arbitrary(g),
            }),
            2 | 3 => Body::NoMsg(any_chunks(g)),
            _ => Body::Msg(any_chunks(g)),
        };
        Self(Header {
            xid: u32::arbitrary(g),
            credits: u32::arbitrary(g),
            body,
        })
    }
}

/// A write chunk.
#[derive(Clone, Debug)]
pub(crate) struct AnyChunk(pub(crate) WriteChunk);

impl Arbitrary for AnyChunk {
    fn arbitrary(g: &mut Gen) -> Self {
        Self(any_chunk(g))
    }
}

pub(crate) fn header(body: Body) -> Header {
    Header {
        xid: XID,
        credits: 32,
        body,
    }
}

pub(crate) fn msg(chunks: Chunks) -> Header {
    header(Body::Msg(chunks))
}

pub(crate) fn nomsg(chunks: Chunks) -> Header {
    header(Body::NoMsg(chunks))
}

/// Checks a reply's chunks against those offered. The body must be a reply.
pub(crate) fn check_reply(
    header: &Header,
    inline: u64,
    offered: &Chunks,
) -> Result<ReturnedChunks, ReplyViolation> {
    match &header.body {
        Body::Msg(chunks) => check_returned(chunks, false, inline, offered),
        Body::NoMsg(chunks) => check_returned(chunks, true, inline, offered),
        Body::Error(error) => panic!("not a reply: {error:?}"),
    }
}
