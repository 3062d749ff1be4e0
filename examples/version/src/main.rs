//! The `rpcrdma` command with one more version.

#![forbid(unsafe_code)]

use std::process::ExitCode;

fn main() -> ExitCode {
    rpcrdma::Program::standard()
        .version(&third::Third)
        .run(std::env::args_os())
}
