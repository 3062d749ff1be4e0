//! Benchmarks of NFS operations over all transports, with client and server on one thread, compared
//! with the same bytes over bare TCP.

#![expect(missing_docs, reason = "criterion_group! makes public functions")]

use criterion::{Criterion, criterion_group, criterion_main};
use rpcrdma_benches::against;
use rpcrdma_benches::calls::{Bare, Carrier, Outcomes};
use rpcrdma_benches::nfs::NfsEnds;

/// The bytes of a long READ and of a long listing.
const LONG: u32 = 64 << 10;
/// The bytes of a short READ.
const SHORT: u32 = 4 << 10;

const CARRIERS: [(&str, Carrier); 3] = [
    ("TCP", Carrier::Tcp),
    ("version 1", Carrier::V1),
    ("version 2 with placement", Carrier::V2_DDP_CONT),
];

type Operation = fn(&mut NfsEnds) -> Outcomes<()>;

fn operations(c: &mut Criterion) {
    let operations: [(&str, Operation); 4] = [
        ("GETATTR", |ends| ends.getattr()),
        ("READ of 4 KiB", |ends| ends.read(SHORT)),
        ("READ of 64 KiB", |ends| ends.read(LONG)),
        ("READDIRPLUS of 64 KiB", |ends| ends.readdirplus(LONG)),
    ];
    for (operation, run) in operations {
        for (carrier, by) in CARRIERS {
            let mut bare = Bare::new().expect("a loopback connection");
            let mut ends = NfsEnds::new(by, LONG as usize).expect("loopback connections");
            let (call, reply) = ends.lengths(run).expect("the operation succeeds");
            against(
                c,
                &format!("{operation} over {carrier}"),
                (
                    &format!("bare TCP, beside {operation} over {carrier}"),
                    || bare.exchange(call, reply).expect("TCP stays connected"),
                ),
                (&format!("{operation} over {carrier}"), || {
                    run(&mut ends).expect("the connection stays")
                }),
            );
        }
    }
}

criterion_group!(benches, operations);
criterion_main!(benches);
