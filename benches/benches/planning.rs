//! Benchmarks the choice of a message's transfer mode, before anything is transferred: plans,
//! layouts, headers.

#![expect(missing_docs, reason = "criterion_group! makes public functions")]

use std::hint::black_box;

use bytes::Bytes;
use criterion::{Criterion, criterion_group, criterion_main};
use rpcrdma_benches::against;
use rpcrdma_connection::dialect::{Dialect, VersionTwo};
use rpcrdma_extension::layout::{BufferStructure, Frame, Headers, lay_out};
use rpcrdma_v2::{Body, Chunks, Direction, Header, Optional, ReadSegment, Segment};
use transfer_plan::{ChunkLimits, CostModel, Item, Limits, ReplyNeed, Shape, plan_call};

/// The number of bytes whose copy is the yardstick of all benchmarks here: a transport header.
const YARD: usize = 64;

fn yard(data: &[u8]) -> Bytes {
    Bytes::copy_from_slice(black_box(data))
}

/// Benchmarks the planning of a WRITE of 8 KiB, which needs a chunk, and its cost.
fn plans(c: &mut Criterion) {
    let limits = Limits {
        inline_send: 4096,
        inline_receive: 4096,
        max_segment: 1 << 30,
        max_message: 4 << 20,
        chunks: ChunkLimits::default(),
        call_chunk: false,
        header_len: VersionTwo.header_len(),
    };
    let item = Item {
        position: 152,
        len: 8192,
    };
    let (shape, need) = (Shape::new(156, [item]), ReplyNeed::new(240, []));
    let model = CostModel::default();
    let data = [7; YARD];
    against(
        c,
        "plan of a WRITE",
        ("copying 64 bytes into new memory", || yard(&data)),
        ("planning a WRITE of 8 KiB and pricing it", || {
            let plan = plan_call(black_box(&shape), &need, &limits).ok();
            plan.map(|plan| model.estimate(&plan.effort(&need, &limits, true)))
        }),
    );
}

/// Benchmarks the layout of 1 MiB in Sends into receive buffers with segments of 1 KiB and 64 KiB.
fn layouts(c: &mut Criterion) {
    let frame = Frame::new(&BufferStructure::with_placement(1024, 1, 65_536));
    let frame = frame.expect("a structure with room");
    let headers = Headers {
        first: 100,
        next: 60,
    };
    let data = [7; YARD];
    for (name, len) in [("8 KiB", 8192), ("1 MiB", 1 << 20)] {
        against(
            c,
            &format!("layout of {name}"),
            ("copying 64 bytes into new memory", || yard(&data)),
            (&format!("laying out a WRITE of {name}"), || {
                lay_out(black_box(&frame), &headers, 156, &[len], 32)
            }),
        );
    }
}

/// Benchmarks headers of version 2: with a chunk, and of an optional operation.
fn headers(c: &mut Criterion) {
    let segment = Segment {
        handle: 0x1234_5678,
        length: 8192,
        offset: 0,
    };
    let chunks = Chunks {
        reads: vec![ReadSegment {
            position: 152,
            segment,
        }],
        ..Chunks::default()
    };
    let optional = Optional {
        direction: Direction::Call,
        opttype: 5,
        info: Bytes::from_static(&[1; 40]),
    };
    let bodies = [
        ("a read chunk", Body::Msg(Direction::Call, chunks)),
        ("an operation", Body::Optional(optional)),
    ];
    for (name, body) in bodies {
        let header = Header {
            xid: 1,
            credits: 32,
            body,
        };
        let encoded = header.encode();
        let words = encoded.to_vec();
        against(
            c,
            &format!("version 2 header with {name}, encode"),
            ("copying the header into new memory", || yard(&words)),
            (&format!("encoding {name}"), || black_box(&header).encode()),
        );
        against(
            c,
            &format!("version 2 header with {name}, decode"),
            ("copying the header into new memory", || yard(&words)),
            (&format!("decoding {name}"), || {
                Header::decode(black_box(&encoded))
            }),
        );
    }
}

criterion_group!(benches, plans, layouts, headers);
criterion_main!(benches);
