//! Arbitrary and hand-made headers for tests.
#![allow(dead_code, reason = "each test binary uses only a part of this module")]

use bytes::Bytes;
use onc_rpc::{Encoder, Message};
use quickcheck::{Arbitrary, Gen};
use rpcrdma_v2_wg::{
    Body, Chunks, Direction, ErrorBody, Header, Property, ReadSegment, Segment, WriteChunk,
};

/// XID of every hand-made header.
pub(crate) const XID: u32 = 0x1234_5678;
/// Credit field of every hand-made header.
pub(crate) const CREDIT: u32 = 32;

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
