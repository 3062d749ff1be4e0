//! The checks of the fuzz targets, one module for each target.
//!
//! Decoders: for any input, decoding ends, takes no more memory than the input justifies, and a
//! decoded value is encoded to the same bytes. State machines: for any sequence of events, every
//! call and every work request ends once, and no memory stays registered.
//!
//! Connections are tested against each other, or against a peer that sends invalid messages,
//! through their public interface; the iwarp endpoint is driven through its `harness`; whole
//! clients and servers use the fakes of `transport/tests`. The compiler flags are in
//! `.cargo/config.toml`, so that the ordinary toolchain builds the targets. This excludes
//! AddressSanitizer; the crate with `unsafe` code is tested with Miri instead.

#![forbid(unsafe_code)]

pub mod case_file;
mod chunks;
pub mod ddp;
pub mod engine;
pub mod iwarp;
pub mod mpa;
pub mod nfs;
pub mod pair;
pub mod private_data;
pub mod reading;
pub mod record;
pub mod reduction;
pub mod rpc;
pub mod rtr;
pub mod session;
pub mod v1;
pub mod v2;
pub mod v2wg;
pub mod wgddp;

/// Runs `work` and checks that it never holds more than `most` bytes of heap.
///
/// # Panics
/// It holds more, which is a finding.
pub fn within<T>(most: usize, work: impl FnOnce() -> T) -> T {
    let mut result = None;
    let used = allocation_counter::measure(|| result = Some(work()));
    assert!(
        used.bytes_max <= most as u64,
        "{} bytes of memory for an input that justifies {most}",
        used.bytes_max
    );
    result.expect("the work was done")
}
