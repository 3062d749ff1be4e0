//! The `rpcrdma` command with batches: `--features batch` at clients and servers, `--via wg+batch`,
//! `sim --with batch`.

#![forbid(unsafe_code)]

use std::process::ExitCode;

use rpcrdma::Program;

/// The number of messages that each end accepts in one transmission.
const TAKES: u32 = 64;

fn main() -> ExitCode {
    let help = "several small messages in one transmission";
    Program::standard()
        .feature("batch", help, |protocols, _| {
            batch::extend(protocols, TAKES)
        })
        .run(std::env::args_os())
}
