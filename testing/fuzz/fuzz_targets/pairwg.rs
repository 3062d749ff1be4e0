//! See [`rpcrdma_fuzz::pair`].
#![no_main]

libfuzzer_sys::fuzz_target!(
    |script: rpcrdma_fuzz::pair::Script| rpcrdma_fuzz::pair::run_wg(script)
);
