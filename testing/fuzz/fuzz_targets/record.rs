//! See [`rpcrdma_fuzz::record`].
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| rpcrdma_fuzz::record::check(data));
