//! Arbitrary and hand-made chunk lists, and bytes, for the tests of every version.
#![allow(dead_code, reason = "each version uses only a part of this module")]

use bytes::Bytes;
use onc_rpc::{Encoder, Message};
use quickcheck::{Arbitrary, Gen};
use rpcrdma_chunks::{Chunks, ReadSegment, Segment, WriteChunk};

pub(crate) fn few<T>(g: &mut Gen, max: usize, mut one: impl FnMut(&mut Gen) -> T) -> Vec<T> {
    let n = usize::arbitrary(g) % (max + 1);
    (0..n).map(|_| one(g)).collect()
}

pub(crate) fn any_segment(g: &mut Gen) -> Segment {
    Segment {
        handle: u32::arbitrary(g),
        // A mix of short and long segments, so that some fit and some do not.
        length: u32::arbitrary(g) >> (u8::arbitrary(g) % 32),
        offset: u64::arbitrary(g) >> (u8::arbitrary(g) % 64),
    }
}

pub(crate) fn any_chunk(g: &mut Gen) -> WriteChunk {
    few(g, 4, any_segment).into()
}

pub(crate) fn any_chunks(g: &mut Gen) -> Chunks {
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
