//! The `lab` command: builds the guest, and runs lanes of checks in it.

#![forbid(unsafe_code)]

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::thread::{self, ScopedJoinHandle};
use std::time::Duration;

use clap::{Args, Parser, Subcommand};
use rpcrdma_lab::build::pins::Pins;
use rpcrdma_lab::build::{self, Scripts};
use rpcrdma_lab::cache::Lock;
use rpcrdma_lab::lane::{self, Lane};
use rpcrdma_lab::log::Screen;
use rpcrdma_lab::report::Verdict;
use rpcrdma_lab::{Cache, Error, Log, Stop, echo, machine, run, versions};

/// Build a small Debian guest with RDMA and NFS, and run lanes of checks in it.
///
/// Exit status: 0 all checks passed, 1 the product failed, 2 wrong usage, 3 the lab failed, 130
/// interrupted.
#[derive(Debug, Parser)]
#[command(name = "lab", version)]
struct Cli {
    /// Directory for downloads, build results and logs [default: target/lab of the checkout]
    #[arg(long, global = true, value_name = "DIR")]
    cache: Option<PathBuf>,
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Build the parts of the guest that are not current
    Build {
        /// Fetch package lists again and take the newest versions
        #[arg(long)]
        refresh: bool,
    },
    /// Boot the guest and run a lane in it; several lanes run at the same time, each in a guest of
    /// its own
    Run(RunArgs),
    /// Boot the guest with a shell on this terminal; `exit` ends it
    Shell {
        /// Provide this lane's programs and functions
        #[arg(default_value = "control")]
        lane: String,
        /// NAME=PATH of a program that the lane copies
        #[arg(long = "bin", value_name = "NAME=PATH", value_parser = bin)]
        bins: Vec<(String, PathBuf)>,
    },
    /// List the lanes
    List,
    /// Print the versions of the guest's parts
    Versions,
    /// A TCP echo service, for the smoke lane
    #[command(hide = true, subcommand)]
    Echo(Echo),
}

#[derive(Debug, Args)]
struct RunArgs {
    /// Lanes from `lab list`
    #[arg(required = true, value_name = "LANE")]
    lanes: Vec<String>,
    /// Keep logs and captures even if the lane passed
    #[arg(long)]
    keep: bool,
    /// Time-out of each lane, from user space on [default: that of the lane]
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u32).range(1..))]
    timeout: Option<u32>,
    /// NAME=PATH of a program to use instead of the one beside `lab` (repeatable)
    #[arg(long = "bin", value_name = "NAME=PATH", value_parser = bin)]
    bins: Vec<(String, PathBuf)>,
}

#[derive(Debug, Subcommand)]
enum Echo {
    /// Answer each line with itself
    Serve {
        /// Address to listen on
        address: String,
    },
    /// Send a line, print the answer
    Ask {
        /// Address to connect to
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
    // The lanes and scripts are those of the checkout that this program was built in.
    let home = Path::new(env!("CARGO_MANIFEST_DIR"));
    let lanes = home.join("lanes");
    match &cli.command {
        Command::Build { refresh } => {
            let log = Log::new(Screen::On);
            let (cache, stop) = (cache(cli, home)?, Stop::on_signals()?);
            let _lock = cache.lock()?;
            let pins = build(home, &cache, *refresh, &stop, &log)?;
            print!("{}", versions::text(&pins));
        }
        Command::Run(args) => {
            return beside_each_other(cli, home, &lanes, args);
        }
        Command::Shell { lane, bins } => {
            let lane = lane::find(&lanes, lane)?;
            let args = RunArgs {
                lanes: vec![lane.name.clone()],
                keep: false,
                timeout: None,
                bins: bins.clone(),
            };
            let guest = Guest::built(cli, home)?;
            run::shell(&guest.order(&lane, &args, Screen::On, 1))?;
        }
        Command::List => {
            for lane in lane::all(&lanes)? {
                println!("{:<16} {}", lane.name, lane.about);
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

/// Runs lanes, all at the same time. The combined verdict is the worst of them.
#[expect(clippy::print_stderr, reason = "the complaint of a command")]
fn beside_each_other(
    cli: &Cli,
    home: &Path,
    lanes: &Path,
    args: &RunArgs,
) -> Result<Verdict, Error> {
    let mut found: Vec<Lane> = Vec::new();
    for name in &args.lanes {
        let lane = lane::find(lanes, name)?;
        // Each lane runs once, because its logs and results have one place.
        if found.iter().all(|other| other.name != lane.name) {
            found.push(lane);
        }
    }
    let guest = Guest::built(cli, home)?;
    let width = found.iter().map(|lane| lane.name.len()).max().unwrap_or(0);
    let screen = |lane: &Lane| match found.len() {
        1 => Screen::On,
        _ => Screen::Named(format!("{:width$}", lane.name)),
    };
    let one = |lane: &Lane| match run::run(&guest.order(lane, args, screen(lane), found.len())) {
        Ok(report) => Ok(report.verdict),
        Err(Error::Interrupted) => Ok(Verdict::Interrupted),
        Err(error) if found.len() > 1 => {
            eprintln!("lab: {}: {error}", lane.name);
            Ok(Verdict::Lab)
        }
        Err(error) => Err(error),
    };
    let verdicts = thread::scope(|scope| {
        let running: Vec<_> = found.iter().map(|lane| scope.spawn(|| one(lane))).collect();
        let ended = running.into_iter().map(ScopedJoinHandle::join);
        ended
            .map(|ended| ended.unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
            .collect::<Result<Vec<_>, _>>()
    })?;
    Ok(verdicts.into_iter().max().unwrap_or(Verdict::Passed))
}

/// A guest that is current, with the lock of the cache directory.
struct Guest<'a> {
    home: &'a Path,
    scripts: PathBuf,
    cache: Cache,
    pins: Pins,
    stop: Stop,
    _lock: Lock,
}

impl<'a> Guest<'a> {
    /// Builds the parts of the guest that are not current.
    fn built(cli: &Cli, home: &'a Path) -> Result<Self, Error> {
        let (cache, stop) = (cache(cli, home)?, Stop::on_signals()?);
        let lock = cache.lock()?;
        let pins = build(home, &cache, false, &stop, &Log::new(Screen::On))?;
        Ok(Self {
            home,
            scripts: home.join("guest"),
            cache,
            pins,
            stop,
            _lock: lock,
        })
    }

    /// Returns the order of a lane that runs at the same time as the other `guests`.
    fn order<'b>(
        &'b self,
        lane: &'b Lane,
        args: &RunArgs,
        screen: Screen,
        guests: usize,
    ) -> run::Order<'b> {
        run::Order {
            cache: &self.cache,
            pins: &self.pins,
            lane,
            scripts: &self.scripts,
            workspace: workspace(self.home),
            timeout: args
                .timeout
                .map(|seconds| Duration::from_secs(seconds.into())),
            keep: args.keep,
            bins: args.bins.iter().cloned().collect::<BTreeMap<_, _>>(),
            screen,
            processors: machine::processors(guests),
            stop: &self.stop,
        }
    }
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

/// Returns the root of the checkout, two folders above this crate's own.
fn workspace(home: &Path) -> &Path {
    home.ancestors().nth(2).unwrap_or(home)
}

fn cache(cli: &Cli, home: &Path) -> Result<Cache, Error> {
    let default = || workspace(home).join("target/lab");
    Cache::new(&cli.cache.clone().unwrap_or_else(default))
}
