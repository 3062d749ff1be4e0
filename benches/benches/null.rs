//! A NULL call and its reply, whole client and server, beside the same bytes over bare TCP.

#![expect(missing_docs, reason = "criterion_group! makes public functions")]

use criterion::{Criterion, criterion_group, criterion_main};
use rpc_transport::rdma::Version;
use rpcrdma_benches::against;
use rpcrdma_benches::null::{Bare, Carrier, Ends};

fn null(c: &mut Criterion) {
    for (name, carrier) in [
        ("TCP", Carrier::Tcp),
        ("version 1", Carrier::Rdma(Version::One)),
        ("version 2", Carrier::Rdma(Version::Two)),
    ] {
        let mut bare = Bare::new().expect("a loopback connection");
        let mut ends = Ends::new(carrier).expect("loopback connections");
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

criterion_group!(benches, null);
criterion_main!(benches);
