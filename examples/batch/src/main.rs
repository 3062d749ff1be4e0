//! The `rpcrdma` command with batches: `--features batch` at clients and servers, `--via wg+batch`,
//! `sim --with batch`.

use std::process::ExitCode;

use rpcrdma::Program;

/// The number of messages that each end accepts in one transmission.
const TAKES: u32 = 64;

fn main() -> ExitCode {
    let help = "several small messages in one transmission";
    let add = |protocols, _: &_| batch::extend(protocols, TAKES);
    let program = Program::standard().feature("batch", help, add);
    program.run(std::env::args_os())
}
