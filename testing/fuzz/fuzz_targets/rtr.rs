//! See [`rpcrdma_fuzz::rtr`].
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| rpcrdma_fuzz::rtr::check(data));
