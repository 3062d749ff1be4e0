//! A server in a process of its own, for benchmarks: the same program, started again with arguments
//! that make it serve. It answers each line of its standard input with a line, and ends with that
//! input.

use std::ffi::OsStr;
use std::io::{self, BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use crate::{Wrong, wrong};

/// The server process, as the program that started it sees it. Dropping this ends it.
#[derive(Debug)]
pub struct ServerProcess {
    process: Child,
    input: Option<ChildStdin>,
    output: BufReader<ChildStdout>,
}

impl ServerProcess {
    /// Starts this program with these arguments.
    ///
    /// # Errors
    /// If it cannot be started.
    pub fn start<A: AsRef<OsStr>>(args: impl IntoIterator<Item = A>) -> Result<Self, Wrong> {
        let program = std::env::current_exe().map_err(wrong)?;
        let mut process = Command::new(program)
            .args(args)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .map_err(wrong)?;
        let ends = (process.stdin.take(), process.stdout.take());
        let (Some(input), Some(output)) = ends else {
            return Err(wrong("a process without pipes"));
        };
        Ok(Self {
            process,
            input: Some(input),
            output: BufReader::new(output),
        })
    }

    /// Returns the values in its next line, which are separated by blanks.
    ///
    /// # Errors
    /// If the line has another number of values, or other ones.
    pub fn values<T: std::str::FromStr<Err: std::fmt::Display>, const N: usize>(
        &mut self,
    ) -> Result<[T; N], Wrong> {
        let mut line = String::new();
        self.output.read_line(&mut line).map_err(wrong)?;
        let values = line.split_whitespace().map(str::parse);
        let values: Result<Vec<T>, _> = values.collect();
        let values = values.map_err(|error| wrong(format!("the server says {line:?}: {error}")))?;
        let number = values.len();
        let said = |_| {
            wrong(format!(
                "the server says {number} values, not {N}: {line:?}"
            ))
        };
        values.try_into().map_err(said)
    }

    /// Asks it for a line of values; see [`ServerProcess::values`].
    ///
    /// # Errors
    /// As for [`ServerProcess::values`], or if the process has ended.
    pub fn ask<T: std::str::FromStr<Err: std::fmt::Display>, const N: usize>(
        &mut self,
    ) -> Result<[T; N], Wrong> {
        let input = self.input.as_mut().ok_or_else(|| wrong("it has ended"))?;
        writeln!(input).map_err(wrong)?;
        self.values()
    }
}

impl Drop for ServerProcess {
    fn drop(&mut self) {
        // Closing its standard input ends the server.
        self.input = None;
        drop(self.process.wait());
    }
}

/// Says a line, and then answers each line of standard input until that ends: the part of the server.
///
/// # Errors
/// The errors of `answer`, and those of the pipes.
pub fn answer_lines(
    first: &str,
    mut answer: impl FnMut() -> Result<String, Wrong>,
) -> Result<(), Wrong> {
    let say = |line: &str| {
        let mut out = io::stdout();
        writeln!(out, "{line}").map_err(wrong)?;
        out.flush().map_err(wrong)
    };
    say(first)?;
    for line in io::stdin().lines() {
        line.map_err(wrong)?;
        say(&answer()?)?;
    }
    Ok(())
}
