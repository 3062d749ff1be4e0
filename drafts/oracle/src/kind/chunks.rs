//! Chunk lists, which both versions share.

use quickcheck::{Arbitrary, Gen};
use rpcrdma_v2::{Chunks, ReadSegment, Segment, WriteChunk};

use super::any::{few, number, wide};
use crate::show::{Fields, Json};

pub(super) fn any_segment(g: &mut Gen) -> Segment {
    Segment {
        handle: u32::arbitrary(g),
        length: number(g),
        offset: wide(g),
    }
}

pub(super) fn any_chunk(g: &mut Gen) -> WriteChunk {
    few(g, 4, any_segment).into()
}

pub(super) fn any_chunks(g: &mut Gen) -> Chunks {
    Chunks {
        reads: few(g, 5, |g| ReadSegment {
            position: number(g),
            segment: any_segment(g),
        }),
        writes: few(g, 3, any_chunk),
        reply: bool::arbitrary(g).then(|| any_chunk(g)),
    }
}

pub(super) fn show_segment(json: &mut Json, segment: &Segment) {
    json.object(|to| {
        to.number("rdma_handle", segment.handle)
            .number("rdma_length", segment.length)
            .field("rdma_offset", |json| json.wide(segment.offset));
    });
}

pub(super) fn show_chunk(json: &mut Json, chunk: &WriteChunk) {
    json.object(|to| {
        to.field("rdma_target", |json| json.list(chunk, show_segment));
    });
}

fn show_entry(json: &mut Json, show: impl FnOnce(&mut Json)) {
    json.object(|to| {
        to.field("rdma_entry", show);
    });
}

pub(super) fn show_reads<'a>(json: &mut Json, reads: impl IntoIterator<Item = &'a ReadSegment>) {
    json.list(reads, |json, read| {
        show_entry(json, |json| {
            json.object(|to| {
                to.number("rdma_position", read.position)
                    .field("rdma_target", |json| show_segment(json, &read.segment));
            });
        });
    });
}

pub(super) fn show_writes(json: &mut Json, chunks: &[WriteChunk]) {
    json.list(chunks, |json, chunk| {
        show_entry(json, |json| show_chunk(json, chunk));
    });
}

pub(super) fn show_chunks(to: &mut Fields<'_>, chunks: &Chunks) {
    to.field("rdma_reads", |json| show_reads(json, &chunks.reads));
    to.field("rdma_writes", |json| show_writes(json, &chunks.writes));
    to.field("rdma_reply", |json| {
        json.option(chunks.reply.as_ref(), show_chunk);
    });
}

/// Shows the fields of a version error, which both versions share.
pub(super) fn show_versions(to: &mut Fields<'_>, low: u32, high: u32) {
    to.field("rdma_vrange", |json| {
        json.object(|to| {
            to.number("rdma_vers_low", low)
                .number("rdma_vers_high", high);
        });
    });
}
