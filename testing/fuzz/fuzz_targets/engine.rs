//! See [`rpcrdma_fuzz::engine`].
#![no_main]

libfuzzer_sys::fuzz_target!(
    |script: rpcrdma_fuzz::engine::Script| rpcrdma_fuzz::engine::run(script)
);
