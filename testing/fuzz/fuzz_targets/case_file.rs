//! See [`rpcrdma_fuzz::case_file`].
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| rpcrdma_fuzz::case_file::check(data));
