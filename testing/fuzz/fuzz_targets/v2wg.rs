//! See [`rpcrdma_fuzz::v2wg`].
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| rpcrdma_fuzz::v2wg::check(data));
