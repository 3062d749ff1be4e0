//! Benchmarks CRC32c over the content of one frame (RFC 5044, section 4.4), the only work that the
//! iwarp device does for every byte.

#![expect(missing_docs, reason = "criterion_group! makes public functions")]

use std::hint::black_box;

use criterion::{Criterion, criterion_group, criterion_main};
use rpcrdma_benches::against;

/// The frame lengths of Ethernet, of jumbo frames and of the loopback interface.
const FRAMES: [usize; 3] = [1448, 8948, 65_483];

fn crc(c: &mut Criterion) {
    for len in FRAMES {
        let data = vec![7; len];
        let mut copy = vec![0; len];
        against(
            c,
            &format!("frame of {len} bytes"),
            (&format!("copying {len} bytes"), || {
                black_box(&mut copy).copy_from_slice(&data)
            }),
            (&format!("CRC32c of {len} bytes"), || {
                crc32c::crc32c(black_box(&data))
            }),
        );
    }
}

criterion_group!(benches, crc);
criterion_main!(benches);
