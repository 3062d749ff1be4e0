//! The `exercise` command: the library's exercises, for scripts. It says on standard output what is
//! to be compared, on standard error what is wrong, and exits with 1 then.

#![forbid(unsafe_code)]

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use clap::{Args, Parser, Subcommand};
use exercise::fsx::{self, MountedFile};
use exercise::{Failure, content, ledger, names, tree, writers};

/// Work on a file system, checked against models.
#[derive(Debug, Parser)]
#[command(name = "exercise", version)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Random operations on one new file; prints the checksum of what it has to hold
    Fsx {
        /// The file
        file: PathBuf,
        /// Operations
        #[arg(long, default_value_t = 20_000)]
        count: u64,
        /// What all choices are made from [default: another each time]
        #[arg(long)]
        seed: Option<u64>,
        /// The longest that the file gets, bytes
        #[arg(long, default_value_t = 256 << 10, value_parser = size)]
        max_size: usize,
        /// The longest read or write, bytes
        #[arg(long, default_value_t = 64 << 10, value_parser = size)]
        max_len: usize,
        /// Some reads and writes with O_DIRECT
        #[arg(long)]
        direct: bool,
    },
    /// Make a tree of files of all sorts in a new folder
    MakeTree {
        /// The folder
        folder: PathBuf,
        /// Files
        #[arg(long, default_value_t = 1000)]
        count: usize,
        /// What contents and attributes are made from
        #[arg(long, default_value_t = 1)]
        seed: u64,
    },
    /// Print all that a copy of a tree has to keep: one line for each entry, and a checksum of them
    ListTree {
        /// The folder
        folder: PathBuf,
        /// Only the checksum
        #[arg(long)]
        sum: bool,
    },
    /// Print the checksum of a file
    Sum {
        /// The file
        file: PathBuf,
    },
    /// Rename and unlink open files, and what else programs do to names, in a new folder
    Names {
        /// The folder
        folder: PathBuf,
    },
    /// Several writers at once, in a new folder
    Write(Writers),
    /// Check what they have written
    CheckWritten(Writers),
    /// Write, sync, and note what was promised
    Ledger {
        /// Where to write
        folder: PathBuf,
        /// Where to note
        ledger: PathBuf,
        /// Writes
        #[arg(long, default_value_t = 400)]
        count: u64,
        /// Milliseconds to wait after each sync
        #[arg(long, default_value_t = 0)]
        pause: u64,
        /// What all choices are made from
        #[arg(long, default_value_t = 1)]
        seed: u64,
    },
    /// Check that what was promised is there
    CheckLedger {
        /// Where it was written
        folder: PathBuf,
        /// Where it was noted
        ledger: PathBuf,
    },
}

/// What is written, and by how many.
#[derive(Debug, Args)]
struct Writers {
    /// The folder
    folder: PathBuf,
    /// Writers
    #[arg(long, default_value_t = 8)]
    count: usize,
    /// Bytes each writes to a file of its own
    #[arg(long, default_value_t = 2 << 20)]
    size: usize,
    /// Records each writes to the shared file
    #[arg(long, default_value_t = 200)]
    records: usize,
    /// What contents are made from
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

/// A size that is not zero, and small enough to keep a model in memory.
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
            ledger::write(&folder, &ledger, &order)?;
        }
        Command::CheckLedger { folder, ledger } => {
            println!("{} writes were promised", ledger::check(&folder, &ledger)?);
        }
    }
    Ok(())
}

/// Says the seed before it begins, so that it is known of a run that hangs.
#[expect(clippy::print_stderr, reason = "what is needed to do it again")]
fn random_work(path: &Path, order: &fsx::Order) -> Result<String, Failure> {
    eprintln!("fsx: {} operations of seed {}", order.count, order.seed);
    let mut file = MountedFile::create(path, order.direct).map_err(Failure::at("make", path))?;
    let begun = Instant::now();
    let model = fsx::run(order, &mut file)?;
    eprintln!("fsx: done in {:.1} s", begun.elapsed().as_secs_f64());
    Ok(content::sum(model.bytes()))
}
