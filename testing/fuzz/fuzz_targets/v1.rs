//! See [`rpcrdma_fuzz::v1`].
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| rpcrdma_fuzz::v1::check(data));
