//! The `lab` command.

#![forbid(unsafe_code)]

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use clap::{Args, Parser, Subcommand};
use rpcrdma_lab::build::pins::Pins;
use rpcrdma_lab::build::{self, Scripts};
use rpcrdma_lab::lane::{self, Lane};
use rpcrdma_lab::report::Verdict;
use rpcrdma_lab::{Cache, Error, Log, Stop, echo, run, versions};

/// Build a small Debian guest with RDMA and NFS, and run lanes of checks in it.
///
/// Exit status: 0 all checks passed, 1 the product failed, 2 wrong usage, 3 the lab failed, 130
/// interrupted.
#[derive(Debug, Parser)]
#[command(name = "lab", version)]
struct Cli {
    /// Where everything is downloaded, built and logged [default: target/lab of the checkout]
    #[arg(long, global = true, value_name = "DIR")]
    cache: Option<PathBuf>,
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Build the guest, or what of it is not current
    Build {
        /// Fetch package lists again and take the newest versions
        #[arg(long)]
        refresh: bool,
    },
    /// Boot the guest and run a lane in it
    Run(RunArgs),
    /// Boot the guest with a shell on this terminal; `exit` ends it
    Shell {
        /// With this lane's programs and functions
        #[arg(default_value = "control")]
        lane: String,
        /// NAME=PATH of a program that the lane copies
        #[arg(long = "bin", value_name = "NAME=PATH", value_parser = bin)]
        bins: Vec<(String, PathBuf)>,
    },
    /// Say which lanes there are
    List,
    /// Say what the guest is made of
    Versions,
    /// A TCP echo, for the smoke lane
    #[command(hide = true, subcommand)]
    Echo(Echo),
}

#[derive(Debug, Args)]
struct RunArgs {
    /// One of `lab list`
    lane: String,
    /// Keep logs and captures of a lane that passed, too
    #[arg(long)]
    keep: bool,
    /// Time for the lane, from user space on [default: what the lane says]
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u32).range(1..))]
    timeout: Option<u32>,
    /// A program that the lane uses, instead of the one beside `lab` (repeatable)
    #[arg(long = "bin", value_name = "NAME=PATH", value_parser = bin)]
    bins: Vec<(String, PathBuf)>,
}

#[derive(Debug, Subcommand)]
enum Echo {
    /// Answer each line with itself
    Serve {
        /// Where to listen
        address: String,
    },
    /// Send a line, print the answer
    Ask {
        /// Where to connect
        address: String,
        /// The line
        text: String,
    },
}

fn bin(argument: &str) -> Result<(String, PathBuf), String> {
    let (name, path) = argument.split_once('=').ok_or("NAME=PATH is wanted")?;
    Ok((name.to_owned(), path.into()))
}

#[expect(clippy::print_stderr, reason = "the complaint of a command")]
fn main() -> ExitCode {
    let cli = Cli::parse();
    match work(&cli) {
        Ok(verdict) => ExitCode::from(verdict.exit_status()),
        Err(error) => {
            eprintln!("lab: {error}");
            let verdict = match error {
                Error::Interrupted => Verdict::Interrupted,
                _ => Verdict::Lab,
            };
            ExitCode::from(verdict.exit_status())
        }
    }
}

#[expect(clippy::print_stdout, reason = "what was asked for")]
fn work(cli: &Cli) -> Result<Verdict, Error> {
    // Lanes and scripts are those of the checkout that this was built in.
    let home = Path::new(env!("CARGO_MANIFEST_DIR"));
    let lanes = home.join("lanes");
    match &cli.command {
        Command::Build { refresh } => {
            let log = Log::new(true);
            let (cache, stop) = (cache(cli, home)?, Stop::on_signals()?);
            let _lock = cache.lock()?;
            let pins = build(home, &cache, *refresh, &stop, &log)?;
            print!("{}", versions::text(&pins));
        }
        Command::Run(args) => {
            let lane = lane::find(&lanes, &args.lane)?;
            return in_guest(cli, home, &lane, args, run::run).map(|report| report.verdict);
        }
        Command::Shell { lane, bins } => {
            let lane = lane::find(&lanes, lane)?;
            let args = RunArgs {
                lane: lane.name.clone(),
                keep: false,
                timeout: None,
                bins: bins.clone(),
            };
            in_guest(cli, home, &lane, &args, run::shell)?;
        }
        Command::List => {
            for lane in lane::all(&lanes)? {
                println!("{:<10} {}", lane.name, lane.about);
            }
        }
        Command::Versions => match Pins::read(&cache(cli, home)?) {
            Some(pins) => print!("{}", versions::text(&pins)),
            None => println!("nothing is built yet"),
        },
        Command::Echo(Echo::Serve { address }) => echo::serve(address)?,
        Command::Echo(Echo::Ask { address, text }) => println!("{}", echo::ask(address, text)?),
    }
    Ok(Verdict::Passed)
}

/// Does something with a guest that is built first, if it is not current.
fn in_guest<T>(
    cli: &Cli,
    home: &Path,
    lane: &Lane,
    args: &RunArgs,
    work: impl FnOnce(&run::Order<'_>) -> Result<T, Error>,
) -> Result<T, Error> {
    let (cache, stop) = (cache(cli, home)?, Stop::on_signals()?);
    let _lock = cache.lock()?;
    let pins = build(home, &cache, false, &stop, &Log::new(true))?;
    work(&run::Order {
        cache: &cache,
        pins: &pins,
        lane,
        scripts: &home.join("guest"),
        workspace: home.parent().unwrap_or(home),
        timeout: args
            .timeout
            .map(|seconds| Duration::from_secs(seconds.into())),
        keep: args.keep,
        bins: args.bins.iter().cloned().collect::<BTreeMap<_, _>>(),
        screen: true,
        stop: &stop,
    })
}

fn build(home: &Path, cache: &Cache, refresh: bool, stop: &Stop, log: &Log) -> Result<Pins, Error> {
    build::build(&build::Order {
        cache,
        scripts: Scripts::read(&home.join("guest"))?,
        refresh,
        stop,
        log,
    })
}

fn cache(cli: &Cli, home: &Path) -> Result<Cache, Error> {
    let default = || home.with_file_name("target").join("lab");
    Cache::new(&cli.cache.clone().unwrap_or_else(default))
}
