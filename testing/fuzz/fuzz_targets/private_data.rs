//! See [`rpcrdma_fuzz::private_data`].
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| rpcrdma_fuzz::private_data::check(data));
