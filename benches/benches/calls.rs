//! Benchmarks of whole calls, with client and server on one thread: NULL compared with the same
//! bytes over bare TCP, and 1 MiB that is sent in groups of Sends and reassembled, compared with 1
//! MiB that the server reads by RDMA.

#![expect(missing_docs, reason = "criterion_group! makes public functions")]

use bytes::Bytes;
use criterion::{Criterion, criterion_group, criterion_main};
use rpcrdma_benches::against;
use rpcrdma_benches::calls::{Bare, Carrier, Ends};

/// The bytes of a long item.
const LONG: usize = 1 << 20;

fn ends(carrier: Carrier) -> Ends {
    Ends::new(carrier).expect("loopback connections")
}

fn null(c: &mut Criterion) {
    for (name, carrier) in [
        ("TCP", Carrier::Tcp),
        ("version 1", Carrier::V1),
        ("version 2", Carrier::V2),
    ] {
        let mut bare = Bare::new().expect("a loopback connection");
        let mut ends = ends(carrier);
        against(
            c,
            &format!("NULL over {name}"),
            (&format!("bare TCP, beside {name}"), || {
                bare.call().expect("TCP stays connected")
            }),
            (&format!("NULL over {name}"), || {
                ends.call().expect("the connection stays")
            }),
        );
    }
}

fn reassembly(c: &mut Criterion) {
    let data = Bytes::from(vec![7; LONG]);
    let mut read = ends(Carrier::V1);
    let mut sent = ends(Carrier::V2_DDP_CONT);
    against(
        c,
        "1 MiB to the server",
        ("1 MiB by RDMA Read", || {
            read.write(&data).expect("the connection stays")
        }),
        ("1 MiB in groups of Sends", || {
            sent.write(&data).expect("the connection stays")
        }),
    );
}

criterion_group!(benches, null, reassembly);
criterion_main!(benches);
