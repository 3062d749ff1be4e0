//! The `rpcrdma` command with what this crate adds to it.

#![forbid(unsafe_code)]

use std::process::ExitCode;
use std::sync::Arc;

use greeting::{Greet, Greeting, Half, LENGTH};
use rpcrdma::{Program, Version};

fn main() -> ExitCode {
    Program::standard()
        .setting(&LENGTH)
        .feature(
            "greeting",
            "each end greets the other",
            |protocols, settings| {
                let length = settings.value(&LENGTH) as usize;
                protocols.with(Version::TWO_WG, Arc::new(Greeting { length }))
            },
        )
        .grants("half", "half of that", |_| Half)
        .workload(Greet)
        .run(std::env::args_os())
}
