//! The `rpcrdma` command.

#![forbid(unsafe_code)]

use std::process::ExitCode;

fn main() -> ExitCode {
    rpcrdma::Program::standard().run(std::env::args_os())
}
