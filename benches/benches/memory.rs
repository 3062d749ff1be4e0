//! Benchmarks the memory pool, which provides a buffer for every received message and every bulk
//! data item.

#![expect(missing_docs, reason = "criterion_group! makes public functions")]

use criterion::{Criterion, criterion_group, criterion_main};
use rdma::Pool;
use rpcrdma_benches::against;

/// The sizes of a receive buffer, of a typical and of a large item.
const SIZES: [(&str, usize); 3] = [("4 KiB", 4096), ("64 KiB", 64 << 10), ("1 MiB", 1 << 20)];

/// Benchmarks allocating and freeing a used buffer, whose pages were touched before, compared with
/// new pages.
fn pool(c: &mut Criterion) {
    let pool = Pool::new(64 << 20);
    for (size, len) in SIZES {
        against(
            c,
            &format!("buffer of {size}"),
            (&format!("zeroed {size} from the allocator"), || {
                vec![0u8; len].into_boxed_slice()
            }),
            (&format!("{size} from the pool"), || pool.alloc(len)),
        );
    }
}

/// Benchmarks allocating and freeing a buffer of which every byte is written, as a device does.
fn filled(c: &mut Criterion) {
    let pool = Pool::new(64 << 20);
    for (size, len) in SIZES {
        let data = vec![7; len];
        against(
            c,
            &format!("filled buffer of {size}"),
            (
                &format!("{size} copied into zeroed memory from the allocator"),
                || {
                    let mut buf = vec![0u8; len];
                    buf.copy_from_slice(&data);
                    buf
                },
            ),
            (&format!("{size} copied into a buffer of the pool"), || {
                let mut buf = pool.alloc(len);
                if let Ok(buf) = &mut buf {
                    buf.copy_from_slice(&data);
                }
                buf
            }),
        );
    }
}

criterion_group!(benches, pool, filled);
criterion_main!(benches);
