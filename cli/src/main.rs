//! The `rpcrdma` command. It contains only options and output; all functions are in library crates.

#![forbid(unsafe_code)]

mod args;
mod capture;
mod client_capture;
mod compare;
mod devices;
mod explain;
mod files;
mod interrupt;
mod logging;
mod mount;
mod output;
mod ping;
mod progress;
mod serve;
mod sim;

use std::process::ExitCode;

use clap::Parser;

use args::{Cli, Command};
use rpcrdma_setup::Failure;

fn main() -> ExitCode {
    let cli = Cli::parse_from(mount::arguments());
    // Before anything is written: the log of a server or of a mount may itself be beyond the limit.
    let survives = interrupt::survive_file_size_limit();
    // Warnings of simulated hosts are not warnings to the user.
    if cli.verbose > 0 || !matches!(cli.command, Command::Sim(_)) {
        // The log of a server or of a background mount may be read days later.
        let timed = match &cli.command {
            Command::Serve(_) => true,
            Command::Mount(args) => args.background && args.log.is_some(),
            _ => false,
        };
        logging::start(cli.verbose, timed);
    }
    let result = survives.and_then(|()| run(&cli.command, cli.verbose > 0));
    let captured = capture::finish();
    match result {
        Ok(()) if captured => ExitCode::SUCCESS,
        Ok(()) => ExitCode::FAILURE,
        Err(failure) => {
            capture::remove_empty();
            if !matches!(failure, Failure::OutputClosed | Failure::Told(_)) {
                output::complain(&failure);
            }
            if let Failure::Interrupted { signal, .. } = failure {
                interrupt::die(signal);
            }
            ExitCode::from(failure.exit_status())
        }
    }
}

fn run(command: &Command, verbose: bool) -> Result<(), Failure> {
    match command {
        Command::Compare(args) => compare::run(args),
        Command::Explain(args) => explain::run(args),
        Command::Sim(args) => sim::run(args),
        Command::Serve(args) => serve::run(args),
        Command::Devices(args) => devices::run(args),
        Command::Mount(args) => mount::mount(args, verbose),
        Command::Umount(args) => mount::umount(args),
        Command::Ping(args) => ping::run(args, verbose),
        Command::Exports(args) => files::exports(args),
        Command::Ls(args) => files::ls(args),
        Command::Stat(args) => files::stat(args),
        Command::Cat(args) => files::cat(args),
        Command::Get(args) => files::get(args),
        Command::Put(args) => files::put(args),
        Command::Rm(args) => files::rm(args),
        Command::Mkdir(args) => files::mkdir(args),
        Command::CompareChild(args) => rpcrdma_compare::serve_child(&args.served),
    }
}
