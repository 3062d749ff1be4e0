//! The `rpcrdma` command with one policy of granting credits more: `--credits by-queue`.

#![forbid(unsafe_code)]

use std::process::ExitCode;

use credits::{ByQueue, LENGTH};
use rpcrdma::Program;

fn main() -> ExitCode {
    let help = "clients that make calls share a queue (--set queue=)";
    Program::standard()
        .setting(&LENGTH)
        .grants("by-queue", help, |settings| {
            ByQueue::new(settings.value(&LENGTH) as u32)
        })
        .run(std::env::args_os())
}
