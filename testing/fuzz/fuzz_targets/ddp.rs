//! See [`rpcrdma_fuzz::ddp`].
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| rpcrdma_fuzz::ddp::check(data));
