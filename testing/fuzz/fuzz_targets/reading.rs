//! See [`rpcrdma_fuzz::reading`].
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| rpcrdma_fuzz::reading::check(data));
