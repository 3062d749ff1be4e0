//! Compares the workspace's codecs with C that `rpcgen` made. `drafts/build` says in which order.
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "a command")]
#![forbid(unsafe_code)]

use std::io;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{Parser, Subcommand};
use xdr_oracle::program::Program;
use xdr_oracle::run::Tally;
use xdr_oracle::xdr::{FILES, Specification, emit};
use xdr_oracle::{constants, kind, run, vectors};

/// Holds the codecs of this workspace against C that rpcgen made of drafts/xdr.
#[derive(Parser)]
struct Args {
    #[command(subcommand)]
    what: What,
}

#[derive(Subcommand)]
enum What {
    /// Writes what the C program is made of: all.x, which rpcgen takes, and describe.c.
    Emit {
        /// Where to.
        folder: PathBuf,
    },
    /// Compares values of every kind, and as many damaged ones.
    Compare {
        /// The C program.
        program: PathBuf,
        /// Values of each kind.
        #[arg(long, default_value_t = 10_000)]
        count: u64,
        /// Where the values come from.
        #[arg(long, default_value_t = 1)]
        seed: u64,
        /// Writes a summary there, as JSON: the fewest values of a kind, and all disagreements.
        #[arg(long)]
        summary: Option<PathBuf>,
    },
    /// Writes the test vectors, after both sides agreed about them.
    Vectors {
        /// The C program.
        program: PathBuf,
        /// Where to.
        folder: PathBuf,
        /// Only says whether the files there are the same.
        #[arg(long)]
        check: bool,
    },
    /// Answers the runner of the vectors (drafts/vectors/run) with this workspace's codecs.
    Answer,
}

fn main() -> ExitCode {
    match work(Args::parse()) {
        Ok(code) => code,
        Err(error) => {
            eprintln!("xdr-oracle: {error}");
            ExitCode::FAILURE
        }
    }
}

fn work(args: Args) -> io::Result<ExitCode> {
    let all = Specification::of_files()
        .map_err(|(file, error)| io::Error::other(format!("drafts/xdr/{file}: {error}")))?;
    match args.what {
        What::Emit { folder } => {
            std::fs::create_dir_all(&folder)?;
            let text: String = FILES.iter().map(|(_, text)| *text).collect();
            std::fs::write(folder.join("all.x"), text)?;
            std::fs::write(folder.join("describe.c"), emit(&all))?;
            Ok(ExitCode::SUCCESS)
        }
        What::Compare {
            program,
            count,
            seed,
            summary,
        } => {
            let differences = constants::differences(&all);
            for difference in &differences {
                println!("{difference}");
            }
            let kinds = kind::all();
            let tallies = run::run(&program, &all, &kinds, count, seed)?;
            let disagreed = report(&kinds, &tallies);
            if let Some(path) = summary {
                let values = tallies.iter().map(|tally| tally.values).min().unwrap_or(0);
                let text = format!("{{\"values\": {values}, \"disagreements\": {disagreed}}}\n");
                std::fs::write(path, text)?;
            }
            Ok(match disagreed == 0 && differences.is_empty() {
                true => ExitCode::SUCCESS,
                false => ExitCode::FAILURE,
            })
        }
        What::Vectors {
            program,
            folder,
            check,
        } => write_vectors(&mut Program::start(&program, &all)?, &folder, check),
        What::Answer => {
            let kinds = kind::all();
            for line in io::stdin().lines() {
                let line = line?;
                let Some(answer) = vectors::answer(&kinds, &line) else {
                    return Err(io::Error::other(format!("not understood: {line}")));
                };
                println!("{answer}");
            }
            Ok(ExitCode::SUCCESS)
        }
    }
}

/// Writes a file for each kind, or says which would change.
fn write_vectors(program: &mut Program, folder: &Path, check: bool) -> io::Result<ExitCode> {
    let mut code = ExitCode::SUCCESS;
    let (mut count, mut names) = (0, Vec::new());
    for kind in kind::all() {
        let text = vectors::file(&kind, program)?;
        count += text.matches("\"bytes\"").count();
        let name = format!("{}.json", kind.name);
        let path = folder.join(&name);
        names.push(name);
        if !check {
            std::fs::write(path, text)?;
        } else if std::fs::read_to_string(&path).ok().as_ref() != Some(&text) {
            eprintln!("{} is not what the codecs make now", path.display());
            code = ExitCode::FAILURE;
        }
    }
    for entry in std::fs::read_dir(folder)? {
        let path = entry?.path();
        let is_vectors = path
            .extension()
            .is_some_and(|extension| extension == "json");
        if is_vectors && !names.iter().any(|name| path.ends_with(name)) {
            eprintln!("{} is of no kind", path.display());
            code = ExitCode::FAILURE;
        }
    }
    println!("{count} vectors of {} kinds", names.len());
    Ok(code)
}

/// Prints a line for each kind, and disagreements; says how many there are.
fn report(kinds: &[kind::Kind], tallies: &[Tally]) -> u64 {
    println!(
        "{:<16} {:>8} {:>9} {:>9} {:>9}  forbidden by a rule beyond XDR",
        "kind", "values", "damaged:", "accepted", "refused"
    );
    let (mut values, mut damaged, mut disagreed) = (0, 0, 0);
    for (kind, tally) in kinds.iter().zip(tallies) {
        let Tally {
            accepted,
            refused,
            shortened,
            ..
        } = tally;
        let stricter: u64 = tally.stricter.values().sum();
        let all = accepted + refused + shortened + stricter;
        let rules = tally.stricter.iter().map(|(name, n)| format!("{name} {n}"));
        let shorter = (*shortened > 0).then(|| format!("(superfluous zeros {shortened})"));
        let rules: Vec<_> = rules.chain(shorter).collect();
        println!(
            "{:<16} {:>8} {all:>9} {:>9} {refused:>9}  {}",
            kind.name,
            tally.values,
            accepted + shortened,
            rules.join(", ")
        );
        for (bytes, why) in &tally.disagreements {
            println!("  DISAGREEMENT about {bytes}: {why}");
        }
        values += tally.values;
        damaged += all;
        disagreed += tally.disagreed;
    }
    println!(
        "{} kinds: {values} values encoded the same both ways, {damaged} damaged ones judged the \
         same, {disagreed} disagreements",
        kinds.len()
    );
    disagreed
}
