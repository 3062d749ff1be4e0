//! The `rpcrdma` command. It is thin: whatever it does, another program can do with the crates.

#![forbid(unsafe_code)]

mod args;
mod compare;
mod failure;
mod logging;
mod output;

fn main() {}
