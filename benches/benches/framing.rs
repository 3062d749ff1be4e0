//! Benchmarks FPDUs: a Send is segmented, framed, decoded and placed, compared with copies of the
//! same number of bytes. One copy stands for the socket in between, another for the way into it.

#![expect(missing_docs, reason = "criterion_group! makes public functions")]

use bytes::Bytes;
use criterion::{Criterion, criterion_group, criterion_main};
use iwarp::harness::{SetUp, Side};
use rdma::SendWr;
use rpcrdma_benches::against;
use smallvec::smallvec;

/// The lengths of a small call, and of a typical item.
const LENGTHS: [usize; 2] = [128, 64 << 10];
/// The ULPDU lengths of standard Ethernet frames, and the maximum.
const ULPDUS: [(&str, usize); 2] = [("1500", 1440), ("65536", 65_476)];
/// The memory of each side, bytes.
const MEMORY: usize = 1 << 20;

fn side(max_ulpdu: usize, crc: bool) -> Side {
    let set_up = SetUp {
        crc,
        reads: 1,
        wait_for_peer: false,
        empty_rtr: false,
        max_ulpdu,
    };
    Side::new(&set_up, MEMORY)
}

fn fpdus(c: &mut Criterion) {
    for len in LENGTHS {
        for (mtu, max_ulpdu) in ULPDUS {
            for crc in [false, true] {
                let (mut one, mut two) = (side(max_ulpdu, crc), side(max_ulpdu, crc));
                let message = Bytes::from(vec![7; len]);
                let with = if crc { "with CRC" } else { "without CRC" };
                let what = format!("{len} bytes in FPDUs, MTU {mtu}, {with}");
                against(
                    c,
                    &what,
                    (&format!("two copies, beside {what}"), || {
                        let first = message.to_vec();
                        first.clone()
                    }),
                    (&what, || {
                        let buffer = two.pool.alloc(len).expect("memory for a message");
                        two.receive(0, buffer).expect("room for a receive");
                        let wr = SendWr::Send {
                            gather: smallvec![message.clone()],
                            invalidate: None,
                        };
                        one.post(0, wr).expect("room for a Send");
                        loop {
                            let bytes = one.take(usize::MAX).expect("the stream goes on");
                            if bytes.is_empty() {
                                break;
                            }
                            two.put(&bytes).expect("the stream goes on");
                        }
                        one.events.clear();
                        two.events.pop_front()
                    }),
                );
            }
        }
    }
}

criterion_group!(benches, fpdus);
criterion_main!(benches);
