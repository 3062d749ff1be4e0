//! Finds the commit that the program is built from, which `--version` and `compare` say: RPCRDMA_COMMIT
//! for the compiler, if it is known, and RPCRDMA_VERSION.
//!
//! The commit is the variable RPCRDMA_COMMIT of the environment, or else that of the package (cargo notes it
//! in the file that [`PACKAGED`] names), or else the one that git says. A commit changes nothing that was
//! built: the script runs again when sources are newer, not when there is a new commit.

use std::collections::BTreeSet;
use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// The file of a package in which cargo notes the commit.
const PACKAGED: &str = ".cargo_vcs_info.json";
/// The number of digits of a commit that are shown.
const DIGITS: usize = 12;
/// The folders whose sources are not in the program.
const APART: [&str; 4] = ["benches/", "drafts/", "examples/", "testing/"];

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-env-changed=RPCRDMA_COMMIT");
    let package = env::var_os("CARGO_MANIFEST_DIR").map(PathBuf::from);
    let given = env::var("RPCRDMA_COMMIT").ok();
    let found = || {
        let package = package.as_deref()?;
        packaged(package).or_else(|| checked_out(package))
    };
    let commit = given.filter(|commit| !commit.is_empty()).or_else(found);
    let version = env::var("CARGO_PKG_VERSION").unwrap_or_default();
    match commit {
        Some(commit) => {
            println!("cargo::rustc-env=RPCRDMA_COMMIT={commit}");
            println!("cargo::rustc-env=RPCRDMA_VERSION={version} (commit {commit})");
        }
        None => println!("cargo::rustc-env=RPCRDMA_VERSION={version} (commit unknown)"),
    }
}

/// Returns the commit that a package was made from.
fn packaged(package: &Path) -> Option<String> {
    let noted = fs::read_to_string(package.join(PACKAGED)).ok()?;
    let after = noted.split_once("\"sha1\"")?.1;
    let commit = after.split('"').nth(1)?.get(..DIGITS)?;
    let is_dirty = noted.contains("\"dirty\": true");
    Some(marked(commit, is_dirty))
}

/// Returns the commit that is checked out, if the package is a part of its own repository and not a
/// copy within another one.
fn checked_out(package: &Path) -> Option<String> {
    let top = PathBuf::from(git(package, &["rev-parse", "--show-toplevel"])?.trim_end());
    if top.join("cli").canonicalize().ok()? != package.canonicalize().ok()? {
        return None;
    }
    let sources = git(
        &top,
        &["ls-files", "*/src/*.rs", "Cargo.toml", "Cargo.lock"],
    )?;
    let sources: BTreeSet<&str> = sources
        .lines()
        .filter(|path| !APART.iter().any(|apart| path.starts_with(apart)))
        .map(|path| path.find("/src/").map_or(path, |end| &path[..end + 4]))
        .collect();
    for source in &sources {
        println!("cargo::rerun-if-changed={}", top.join(source).display());
    }
    let digits = format!("--short={DIGITS}");
    let commit = git(&top, &["rev-parse", &digits, "HEAD"])?;
    let compare = ["diff", "--quiet", "HEAD", "--"];
    let compare: Vec<&str> = compare.into_iter().chain(sources).collect();
    let is_dirty = run_git(&top, &compare)?.status.code() != Some(0);
    Some(marked(commit.trim_end(), is_dirty))
}

/// Returns the commit, with a mark if the sources are not those of the commit.
fn marked(commit: &str, is_dirty: bool) -> String {
    match is_dirty {
        true => format!("{commit}-modified"),
        false => commit.to_owned(),
    }
}

/// Returns what git prints, if it succeeds.
fn git(at: &Path, words: &[&str]) -> Option<String> {
    let output = run_git(at, words)?;
    let text = String::from_utf8(output.stdout).ok()?;
    output.status.success().then_some(text)
}

fn run_git(at: &Path, words: &[&str]) -> Option<Output> {
    let mut git = Command::new("git");
    git.arg("-C").arg(at).arg("--no-optional-locks").args(words);
    git.output().ok()
}
