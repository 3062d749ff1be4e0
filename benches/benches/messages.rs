//! Benchmarks encoding messages and headers: the cost of a call before it reaches a device.

#![expect(missing_docs, reason = "criterion_group! makes public functions")]

use std::hint::black_box;

use bytes::Bytes;
use criterion::{Criterion, criterion_group, criterion_main};
use onc_rpc::{AuthSys, CallHeader, Credential, Decoder, Encoder, Message, Verifier};
use rpcrdma_benches::against;
use rpcrdma_v1::{Body, Chunks, Header, ReadSegment, Segment};
use smallvec::smallvec;

const MIB: usize = 1 << 20;

/// Benchmarks a call with bulk data. Its bytes are not copied, so the cost does not depend on their
/// number.
fn bulk(c: &mut Criterion) {
    let data = Bytes::from(vec![1; MIB]);
    let head = [0; 64];
    against(
        c,
        "bulk",
        ("copying 1 MiB", || black_box(&data).to_vec()),
        (
            "encoding, gathering and decoding a message with 1 MiB of bulk data",
            || {
                let mut out = Encoder::with_capacity(128);
                out.opaque_fixed(&head).bulk(data.clone());
                let message = out.finish();
                let gathered = message.gather(|_| true);
                let mut from = Decoder::new(&message);
                let head = from.opaque_fixed(64);
                (gathered, head, from.bulk(MIB as u32))
            },
        ),
    );
}

fn header() -> Header {
    let segment = Segment {
        handle: 0x1234_5678,
        length: MIB as u32,
        offset: 0,
    };
    let chunks = Chunks {
        reads: vec![ReadSegment {
            position: 172,
            segment,
        }],
        writes: vec![smallvec![segment]],
        reply: Some(smallvec![segment]),
    };
    Header {
        xid: 1,
        credits: 32,
        body: Body::Msg(chunks),
    }
}

/// Benchmarks a version 1 header with all three chunk lists, compared with the minimum for a
/// message: allocating memory and copying as many bytes.
fn transport_header(c: &mut Criterion) {
    let header = header();
    let encoded = header.encode();
    let words = encoded.to_vec();
    against(
        c,
        "transport header, encode",
        ("copying the header into new memory", || {
            Bytes::copy_from_slice(black_box(&words))
        }),
        ("encoding the header", || black_box(&header).encode()),
    );
    against(
        c,
        "transport header, decode",
        ("copying the header into new memory", || {
            Bytes::copy_from_slice(black_box(&words))
        }),
        ("decoding the header", || {
            Header::decode(black_box(&encoded))
        }),
    );
}

/// Benchmarks an RPC call header with AUTH_SYS, compared with allocating memory and copying as many
/// bytes.
fn rpc_header(c: &mut Criterion) {
    let call = CallHeader {
        xid: 1,
        prog: 100_003,
        vers: 3,
        proc: 6,
        cred: Credential::Sys(AuthSys {
            machine_name: Bytes::from_static(b"client.example"),
            gids: smallvec![0, 4, 24, 27, 100],
            ..AuthSys::default()
        }),
        verf: Verifier::default(),
    };
    let encoded = call.encode();
    let words = encoded.to_vec();
    let message = Message::from_payload(encoded);
    against(
        c,
        "RPC call header, encode",
        ("copying the header into new memory", || {
            Bytes::copy_from_slice(black_box(&words))
        }),
        ("encoding the header", || black_box(&call).encode()),
    );
    against(
        c,
        "RPC call header, decode",
        ("copying the header into new memory", || {
            Bytes::copy_from_slice(black_box(&words))
        }),
        ("decoding the header", || {
            CallHeader::decode(&mut Decoder::new(black_box(&message)))
        }),
    );
}

criterion_group!(benches, bulk, transport_header, rpc_header);
criterion_main!(benches);
