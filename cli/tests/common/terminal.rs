//! Runs the command on a terminal.

use std::process::{Command, Stdio};

use super::{Finished, Running, rpcrdma};

/// Runs the command on a terminal. Returns what the terminal shows.
#[track_caller]
pub fn on_terminal(set: &[(&str, &str)], words: &[&str]) -> String {
    ended_on_terminal(set, words).ok().stdout
}

/// Runs the command on a terminal, with these environment variables.
#[track_caller]
pub fn ended_on_terminal(set: &[(&str, &str)], words: &[&str]) -> Finished {
    let plain = rpcrdma();
    let program = plain.get_program().to_str().expect("a path in UTF-8");
    let words = [&[program], words].concat();
    let line: String = words.iter().map(|word| format!("'{word}' ")).collect();
    let mut terminal = Command::new("script");
    terminal
        .args(["-qefc", &line, "/dev/null"])
        .stdin(Stdio::null());
    // Machines that test changes set CI, which counts as a terminal with colors.
    for name in ["RUST_LOG", "NO_COLOR", "CLICOLOR", "CLICOLOR_FORCE", "CI"] {
        terminal.env_remove(name);
    }
    terminal.env("TERM", "xterm").envs(set.iter().copied());
    Running::start(&mut terminal).finish()
}
