//! Arbitrary and hand-made headers for tests.
#![allow(dead_code, reason = "each test binary uses only a part of this module")]

use bytes::Bytes;
use onc_rpc::{Encoder, Message};
use quickcheck::{Arbitrary, Gen};
use rpcrdma_v2::{
    Body, Chunks, Direction, ErrorBody, Header, Optional, ReadSegment, ReplyViolation,
    ReturnedChunks, Segment, WriteChunk, check_returned,
};

/// XID of every hand-made header.
pub(crate) const XID: u32 = 0x1234_5678;

fn few<T>(g: &mut Gen, max: usize, mut one: impl FnMut(&mut Gen) -> T) -> Vec<T> {
    let n = usize::arbitrary(g) % (max + 1);
    (0..n).map(|_| one(g)).collect()
}

fn any_segment(g: &mut Gen) -> Segment {
    Segment {
        handle: u32::arbitrary(g),
        // A mix of short and long segments, so that some fit and some do not.
        length: u32::arbitrary(g) >> (u8::arbitrary(g) % 32),
        offset: u64::arbitrary(g) >> (u8::arbitrary(g) % 64),
    }
}

fn any_chunk(g: &mut Gen) -> WriteChunk {
    few(g, 4, any_segment).into()
}

fn any_chunks(g: &mut Gen) -> Chunks {
    let read = |g: &mut Gen| ReadSegment {
        position: u32::arbitrary(g) >> (u8::arbitrary(g) % 32),
        segment: any_segment(g),
    };
    Chunks {
        reads: few(g, 5, read),
        writes: few(g, 3, any_chunk),
        reply: bool::arbitrary(g).then(|| any_chunk(g)),
    }
}

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

pub(crate) fn flip(bytes: &[u8], flips: &[usize]) -> Bytes {
    let mut bytes = bytes.to_vec();
    for flip in flips {
        let bit = flip % (bytes.len() * 8);
        bytes[bit / 8] ^= 1 << (bit % 8);
    }
    Bytes::from(bytes)
}

pub(crate) fn words(words: &[u32]) -> Bytes {
    words.iter().flat_map(|word| word.to_be_bytes()).collect()
}

/// Returns an RPC message of these words.
pub(crate) fn rpc(words: &[u32]) -> Message {
    let mut out = Encoder::new();
    for word in words {
        out.u32(*word);
    }
    out.finish()
}

/// Returns a segment whose offset is derived from its handle.
pub(crate) fn segment(handle: u32, length: u32) -> Segment {
    Segment {
        handle,
        length,
        offset: u64::from(handle) << 32 | 0x40,
    }
}

pub(crate) fn read(position: u32, handle: u32, length: u32) -> ReadSegment {
    ReadSegment {
        position,
        segment: segment(handle, length),
    }
}

/// Returns a chunk with segments of these lengths.
pub(crate) fn chunk(lengths: &[u32]) -> WriteChunk {
    let segments = lengths.iter().enumerate();
    segments
        .map(|(i, len)| segment(i as u32 + 1, *len))
        .collect()
}

pub(crate) fn reads(list: &[ReadSegment]) -> Chunks {
    Chunks {
        reads: list.to_vec(),
        ..Chunks::default()
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
