//! See [`rpcrdma_fuzz::reduction`].
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| rpcrdma_fuzz::reduction::check(data));
