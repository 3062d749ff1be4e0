//! See [`rpcrdma_fuzz::iwarp`].
#![no_main]

libfuzzer_sys::fuzz_target!(|script: rpcrdma_fuzz::iwarp::Script| rpcrdma_fuzz::iwarp::run(script));
