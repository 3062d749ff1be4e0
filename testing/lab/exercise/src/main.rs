//! The `exercise` command, which runs the library's exercises for scripts. It prints results for
//! comparison on standard output and errors on standard error, and exits with 1 after an error.

#![forbid(unsafe_code)]

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use clap::{Args, Parser, Subcommand};
use exercise::fsx::{self, MountedFile};
use exercise::{Failure, content, ledger, names, proxy, tree, writers};

/// Run workloads on a file system, checked against models.
#[derive(Debug, Parser)]
#[command(name = "exercise", version)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Random operations on one new file; prints the checksum of its expected content
    Fsx {
        /// The file
        file: PathBuf,
        /// Number of operations
        #[arg(long, default_value_t = 20_000)]
        count: u64,
        /// Seed of all choices [default: another one each time]
        #[arg(long)]
        seed: Option<u64>,
        /// Maximum size of the file, bytes
        #[arg(long, default_value_t = 256 << 10, value_parser = size)]
        max_size: usize,
        /// Maximum length of a read or write, bytes
        #[arg(long, default_value_t = 64 << 10, value_parser = size)]
        max_len: usize,
        /// Use O_DIRECT for some reads and writes
        #[arg(long)]
        direct: bool,
    },
    /// Create a tree of files of all kinds in a new directory
    MakeTree {
        /// The directory
        folder: PathBuf,
        /// Number of files
        #[arg(long, default_value_t = 1000)]
        count: usize,
        /// Seed of contents and attributes
        #[arg(long, default_value_t = 1)]
        seed: u64,
    },
    /// Print everything that a copy of a tree has to keep: one line for each entry, and a checksum
    /// of the lines
    ListTree {
        /// The directory
        folder: PathBuf,
        /// Print only the checksum
        #[arg(long)]
        sum: bool,
    },
    /// Print the checksum of a file
    Sum {
        /// The file
        file: PathBuf,
    },
    /// Rename and unlink open files, and other operations on names, in a new directory
    Names {
        /// The directory
        folder: PathBuf,
    },
    /// Several concurrent writers in a new directory
    Write(Writers),
    /// Check what the writers have written
    CheckWritten(Writers),
    /// Write, sync, and record the acknowledged data in a ledger
    Ledger {
        /// Directory to write to
        folder: PathBuf,
        /// File of the ledger
        ledger: PathBuf,
        /// Number of writes
        #[arg(long, default_value_t = 400)]
        count: u64,
        /// Milliseconds to wait after each sync
        #[arg(long, default_value_t = 0)]
        pause: u64,
        /// Seed of all choices
        #[arg(long, default_value_t = 1)]
        seed: u64,
    },
    /// Pass TCP connections on to another address, and cut them at random moments, until killed;
    /// print the address to connect to and, at each cut, the number of connections
    Proxy {
        /// Address of the server
        to: SocketAddr,
        /// Maximum milliseconds between two cuts
        #[arg(long, default_value_t = 1000)]
        every: u64,
        /// Number of cuts [default: no limit]
        #[arg(long)]
        cuts: Option<u64>,
        /// Seed of the moments
        #[arg(long, default_value_t = 1)]
        seed: u64,
    },
    /// Check that the acknowledged data in a ledger is there
    CheckLedger {
        /// Directory that was written to
        folder: PathBuf,
        /// File of the ledger
        ledger: PathBuf,
    },
}

/// The parameters of concurrent writers.
#[derive(Debug, Args)]
struct Writers {
    /// The directory
    folder: PathBuf,
    /// Number of writers
    #[arg(long, default_value_t = 8)]
    count: usize,
    /// Bytes that each writes to a file of its own
    #[arg(long, default_value_t = 2 << 20)]
    size: usize,
    /// Records that each writes to the shared file
    #[arg(long, default_value_t = 200)]
    records: usize,
    /// Seed of contents
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

impl Writers {
    fn order(&self) -> writers::Order {
        writers::Order {
            seed: self.seed,
            count: self.count,
            size: self.size,
            records: self.records,
        }
    }
}

/// Parses a size that is not zero, and small enough for a model in memory.
fn size(word: &str) -> Result<usize, String> {
    let size = word
        .parse()
        .ok()
        .filter(|size| (1..=1 << 30).contains(size));
    size.ok_or(format!("`{word}` is no size from 1 to 2^30"))
}

#[expect(clippy::print_stderr, reason = "the complaint of a command")]
fn main() -> ExitCode {
    match work(Cli::parse().command) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            eprintln!("exercise: {failure}");
            ExitCode::FAILURE
        }
    }
}

#[expect(clippy::print_stdout, reason = "what was asked for")]
fn work(command: Command) -> Result<(), Failure> {
    match command {
        Command::Fsx {
            file,
            count,
            seed,
            max_size,
            max_len,
            direct,
        } => {
            let order = fsx::Order {
                seed: seed.unwrap_or_else(|| fastrand::u64(..)),
                count,
                max_size,
                max_len,
                direct,
            };
            println!("{}", random_work(&file, &order)?);
        }
        Command::MakeTree {
            folder,
            count,
            seed,
        } => tree::make(&folder, count, seed)?,
        Command::ListTree { folder, sum } => {
            let lines = tree::list(&folder)?;
            if !sum {
                println!("{}", lines.join("\n"));
            }
            println!("{}", tree::sum_of_list(&lines));
        }
        Command::Sum { file } => println!("{}", content::sum_of_file(&file)?),
        Command::Names { folder } => names::run(&folder)?,
        Command::Write(args) => writers::write(&args.folder, &args.order())?,
        Command::CheckWritten(args) => writers::check(&args.folder, &args.order())?,
        Command::Ledger {
            folder,
            ledger,
            count,
            pause,
            seed,
        } => {
            let order = ledger::Order {
                seed,
                count,
                files: 6,
                pause: Duration::from_millis(pause),
            };
            let longest = ledger::write(&folder, &ledger, &order)?;
            println!("the longest call took {} ms", longest.as_millis());
        }
        Command::Proxy {
            to,
            every,
            cuts,
            seed,
        } => {
            let order = proxy::Order {
                to,
                every: Duration::from_millis(every),
                cuts,
                seed,
            };
            proxy::run(&order, &mut |line| println!("{line}"))?;
        }
        Command::CheckLedger { folder, ledger } => {
            println!("{} writes were promised", ledger::check(&folder, &ledger)?);
        }
    }
    Ok(())
}

/// Prints the seed before the run, so that it is known even if the run hangs.
#[expect(clippy::print_stderr, reason = "what is needed to do it again")]
fn random_work(path: &Path, order: &fsx::Order) -> Result<String, Failure> {
    eprintln!("fsx: {} operations of seed {}", order.count, order.seed);
    let mut file = MountedFile::create(path, order.direct).map_err(Failure::at("make", path))?;
    let begun = Instant::now();
    let model = fsx::run(order, &mut file)?;
    eprintln!("fsx: done in {:.1} s", begun.elapsed().as_secs_f64());
    Ok(content::sum(model.bytes()))
}
