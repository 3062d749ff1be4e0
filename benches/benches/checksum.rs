//! CRC32c over what one frame carries (RFC 5044, section 4.4): the one thing the iwarp device does
//! with every byte.

#![expect(missing_docs, reason = "criterion_group! makes public functions")]

use std::hint::black_box;

use criterion::{Criterion, criterion_group, criterion_main};
use rpcrdma_benches::against;

/// Frames of an Ethernet, of a jumbo and of a loopback path.
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
