//! A process of this program that serves one transport while `compare` measures it: a child, or one that
//! `compare-server` has started on another host.
//!
//! The child's standard input and output are the control channel, with one line per request and
//! answer. The child ends when its standard input ends, so it never outlives its parent. If it is
//! suspended (SIGSTOP) when its parent dies, it gets SIGCONT and then sees the end of its input.

use std::env;
use std::io::{BufRead, BufReader, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use serde::de::DeserializeOwned;

use rpcrdma_setup::{Context, FAILURE, Failure, USAGE};

use crate::greeting;
use crate::served::{PAUSE, RESUME, Task};

/// The time that a child has to end after its standard input was closed; then it is killed.
const GRACE: Duration = Duration::from_secs(3);

/// Where a process runs.
enum Place {
    Here(Child),
    /// On another host, at the other end of this connection.
    There(TcpStream),
}

/// A running process. Dropping it ends it.
pub(crate) struct ChildProcess {
    name: String,
    place: Place,
    orders: Option<Box<dyn Write + Send>>,
    answers: Box<dyn BufRead + Send>,
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
            place: Place::Here(child),
            orders: Some(Box::new(orders)),
            answers: Box::new(BufReader::new(answers)),
        })
    }

    /// Lets `compare-server` at `host` start a process for `task`.
    ///
    /// # Errors
    /// The host cannot be reached, or is not what it should be.
    pub(crate) fn start_on(host: SocketAddr, name: &str, task: &Task) -> Result<Self, Failure> {
        let text = serde_json::to_string(task).map_err(Failure::work)?;
        let (_, answers) = greeting::connect(host)?;
        let lost = format!("the connection to {host}");
        let stream = answers.get_ref().try_clone().context(&lost)?;
        let mut orders = stream.try_clone().context(&lost)?;
        writeln!(orders, "{text}").context(&lost)?;
        Ok(Self {
            name: format!("{name} (on {})", host.ip()),
            place: Place::There(stream),
            orders: Some(Box::new(orders)),
            answers: Box::new(answers),
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
        if let Place::There(_) = self.place {
            return Failure::Work(format!(
                "the {} process ended early: compare-server there says why",
                self.name
            ));
        }
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
        let child = match &mut self.place {
            Place::Here(child) => child,
            Place::There(stream) => {
                // It ends with the connection, of which there are several handles here.
                drop(stream.shutdown(Shutdown::Both));
                return None;
            }
        };
        // Once it was waited for, its process id may belong to another process.
        if let Ok(Some(status)) = child.try_wait() {
            return Some(status);
        }
        drop(self.orders.take());
        // A stopped child would not notice the end of its input. If the child is gone, the signal
        // fails, which is harmless.
        drop(signal(child, &self.name, Signal::CONT));
        let start = Instant::now();
        loop {
            match child.try_wait() {
                Ok(None) if start.elapsed() <= GRACE => thread::sleep(Duration::from_millis(1)),
                Ok(None) => {
                    tracing::warn!(
                        name = self.name,
                        "the child process does not end: killing it"
                    );
                    drop(child.kill());
                    drop(child.wait());
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

    /// Stops the process (SIGSTOP), so that a spinning server takes no processor time from other
    /// measurements.
    ///
    /// # Errors
    /// The error of the operating system.
    pub(crate) fn pause(&self) -> Result<(), Failure> {
        self.switch(Signal::STOP, PAUSE)
    }

    /// Continues the process (SIGCONT).
    ///
    /// # Errors
    /// The error of the operating system.
    pub(crate) fn resume(&self) -> Result<(), Failure> {
        self.switch(Signal::CONT, RESUME)
    }

    fn switch(&self, with: Signal, order: &str) -> Result<(), Failure> {
        match &self.place {
            Place::Here(child) => signal(child, &self.name, with),
            Place::There(stream) => {
                let mut stream = stream;
                writeln!(stream, "{order}").context(format_args!("the {} process", self.name))
            }
        }
    }
}

fn signal(child: &Child, name: &str, signal: Signal) -> Result<(), Failure> {
    let pid = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
    let Some(pid) = pid else {
        return Err(Failure::Work(format!("the {name} process has no number")));
    };
    kill_process(pid, signal).context(format_args!("cannot signal the {name} process"))
}

impl Drop for ChildProcess {
    fn drop(&mut self) {
        self.end();
    }
}
