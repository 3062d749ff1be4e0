//! The `rpcrdma` command with a key-value store.

fn main() -> std::process::ExitCode {
    let [both, puts, gets] = kv::Kv::all();
    let program = rpcrdma::Program::standard().workload(both);
    let program = program.workload(puts).workload(gets);
    program.run(std::env::args_os())
}
