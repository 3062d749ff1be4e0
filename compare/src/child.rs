//! A child process of this program that serves one transport while `compare` measures it.
//!
//! The child's standard input and output are the control channel, with one line per request and
//! answer. The child ends when its standard input ends, so it never outlives its parent. If it is
//! suspended (SIGSTOP) when its parent dies, it gets SIGCONT and then sees the end of its input.

use std::env;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::process::CommandExt;
use std::process::{Child, ChildStdin, ChildStdout, Command, ExitStatus, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use serde::de::DeserializeOwned;

use rpcrdma_setup::{Context, FAILURE, Failure, USAGE};

use crate::served::Task;

/// The time that a child has to end after its standard input was closed; then it is killed.
const GRACE: Duration = Duration::from_secs(3);

/// A running child process. Dropping it ends it.
pub(crate) struct ChildProcess {
    name: String,
    child: Child,
    orders: Option<ChildStdin>,
    answers: BufReader<ChildStdout>,
}

impl ChildProcess {
    /// Starts this program again, with the arguments `words` and, after them, `task` as JSON.
    ///
    /// # Errors
    /// The error of the operating system.
    pub(crate) fn start(name: &str, words: &[String], task: &Task) -> Result<Self, Failure> {
        let text = serde_json::to_string(task).map_err(Failure::work)?;
        let program = env::current_exe().context("cannot find this program's own file")?;
        let mut command = Command::new(program);
        if matches!(task, Task::Mount(_)) {
            // Ctrl-C is for the others: a mount whose process is gone would stay behind.
            command.process_group(0);
        }
        let mut child = command
            .args(words)
            .arg(text)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .context(format_args!("cannot start the {name} process"))?;
        let (Some(orders), Some(answers)) = (child.stdin.take(), child.stdout.take()) else {
            return Err(Failure::Work(format!("the {name} process has no pipes")));
        };
        Ok(Self {
            name: name.to_owned(),
            child,
            orders: Some(orders),
            answers: BufReader::new(answers),
        })
    }

    /// Reads the next line as JSON.
    ///
    /// # Errors
    /// The child ended, or wrote something else.
    pub(crate) fn answer<T: DeserializeOwned>(&mut self) -> Result<T, Failure> {
        let mut line = String::new();
        let read = self.answers.read_line(&mut line);
        if read.context(format_args!("the {} process", self.name))? == 0 {
            return Err(self.ended_early());
        }
        serde_json::from_str(&line)
            .context(format_args!("the {} process answered oddly", self.name))
    }

    /// Returns the error for a child that ended early. If the child failed, it has already printed
    /// the reason.
    fn ended_early(&mut self) -> Failure {
        let status = self.end();
        let code = status.and_then(|status| u8::try_from(status.code()?).ok());
        match (code, status) {
            (Some(code @ (FAILURE | USAGE)), _) => Failure::Told(code),
            (_, Some(status)) => {
                Failure::Work(format!("the {} process ended early: {status}", self.name))
            }
            (_, None) => Failure::Work(format!("the {} process fell silent", self.name)),
        }
    }

    /// Ends the child and waits for that. Returns `None` if it had to be killed.
    fn end(&mut self) -> Option<ExitStatus> {
        // Once it was waited for, its process id may belong to another process.
        if let Ok(Some(status)) = self.child.try_wait() {
            return Some(status);
        }
        drop(self.orders.take());
        // A stopped child would not notice the end of its input. If the child is gone, the signal
        // fails, which is harmless.
        drop(self.resume());
        let start = Instant::now();
        loop {
            match self.child.try_wait() {
                Ok(None) if start.elapsed() <= GRACE => thread::sleep(Duration::from_millis(1)),
                Ok(None) => {
                    tracing::warn!(
                        name = self.name,
                        "the child process does not end: killing it"
                    );
                    drop(self.child.kill());
                    drop(self.child.wait());
                    return None;
                }
                ended => return ended.ok().flatten(),
            }
        }
    }

    /// Sends a request line and reads the answer.
    ///
    /// # Errors
    /// The errors of [`ChildProcess::answer`].
    pub(crate) fn ask<T: DeserializeOwned>(&mut self, order: &str) -> Result<T, Failure> {
        let sent = match &mut self.orders {
            Some(orders) => writeln!(orders, "{order}").and_then(|()| orders.flush()),
            None => Ok(()),
        };
        sent.context(format_args!("the {} process", self.name))?;
        self.answer()
    }

    fn signal(&self, signal: Signal) -> Result<(), Failure> {
        let pid = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw);
        let Some(pid) = pid else {
            return Err(Failure::Work(format!(
                "the {} process has no number",
                self.name
            )));
        };
        kill_process(pid, signal).context(format_args!("cannot signal the {} process", self.name))
    }

    /// Stops the child (SIGSTOP), so that a spinning server takes no processor time from other
    /// measurements.
    ///
    /// # Errors
    /// The error of the operating system.
    pub(crate) fn pause(&self) -> Result<(), Failure> {
        self.signal(Signal::STOP)
    }

    /// Continues the child (SIGCONT).
    ///
    /// # Errors
    /// The error of the operating system.
    pub(crate) fn resume(&self) -> Result<(), Failure> {
        self.signal(Signal::CONT)
    }
}

impl Drop for ChildProcess {
    fn drop(&mut self) {
        self.end();
    }
}
