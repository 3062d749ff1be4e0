//! See [`rpcrdma_fuzz::session`].
#![no_main]

libfuzzer_sys::fuzz_target!(
    |script: rpcrdma_fuzz::session::Script| rpcrdma_fuzz::session::run(script)
);
