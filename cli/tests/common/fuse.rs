//! Helpers for tests that mount exports.

use std::fs::{self, OpenOptions};
use std::path::Path;
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use super::{Finished, Running, patience};

/// Returns whether this process may mount through FUSE. Says so if it may not, and the test leaves out
/// what it cannot do.
pub fn is_usable() -> bool {
    let device = OpenOptions::new().read(true).write(true).open("/dev/fuse");
    match device {
        Ok(_) => true,
        Err(error) => left_out(&format!("/dev/fuse: {error}")),
    }
}

/// Returns whether this process is root and can have a table of mounts of its own. Says so otherwise.
pub fn has_namespaces() -> bool {
    if !rustix::process::geteuid().is_root() {
        return left_out("this is for root");
    }
    let tried = Command::new("unshare").args(["-m", "true"]).status();
    tried.is_ok_and(|status| status.success()) || left_out("unshare(1) does not work")
}

/// Says that a test cannot run, and returns false.
#[allow(clippy::print_stderr, reason = "the reason why a test is left out")]
pub fn left_out(why: &str) -> bool {
    eprintln!("left out: {why}");
    false
}

/// Runs a script in a table of mounts of its own, to which it can add what it likes.
#[track_caller]
pub fn in_namespace(script: &str, words: &[&Path]) -> Finished {
    let mut command = Command::new("unshare");
    let script = format!("set -e; {script}");
    command.args(["-m", "sh", "-c", &script, "sh"]).args(words);
    Running::start(&mut command).finish()
}

/// Returns the type of what is mounted at a directory, without touching it.
pub fn mounted(at: &Path) -> Option<String> {
    let table = fs::read_to_string("/proc/self/mountinfo").unwrap();
    let at = at.to_str().unwrap();
    let line = table
        .lines()
        .rfind(|line| line.split(' ').nth(4) == Some(at))?;
    let (_, kind) = line.split_once(" - ")?;
    kind.split(' ').next().map(str::to_owned)
}

/// Waits until something holds.
#[track_caller]
pub fn until(what: &str, holds: impl Fn() -> bool) {
    let start = Instant::now();
    while !holds() {
        assert!(start.elapsed() < patience(), "never: {what}");
        thread::sleep(Duration::from_millis(5));
    }
}
