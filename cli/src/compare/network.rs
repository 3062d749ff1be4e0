//! A network whose delay somebody else makes, by a command of the user's.

use std::process::{Command, Stdio};
use std::time::Duration;

use rdma::middleware::Delay;

use crate::interrupt;
use crate::output;
use rpcrdma_setup::{Context, Failure};

/// Sets the delay of the network by a shell command; back to none when dropped, and when a signal
/// ends the process.
#[derive(Debug)]
pub(crate) struct Network {
    command: String,
}

impl Network {
    /// Takes the command into use: sets `delay` now.
    ///
    /// # Errors
    /// The command fails.
    pub(crate) fn new(command: &str, delay: Duration) -> Result<Self, Failure> {
        let text = command.to_owned();
        interrupt::on_signals(move |signal| {
            report(run(&text, Duration::ZERO));
            interrupt::die(signal);
        })?;
        if let Err(failure) = run(command, delay) {
            // It may have got halfway. What this says, if it fails as well, is no other cause.
            drop(run(command, Duration::ZERO));
            return Err(failure);
        }
        Ok(Self {
            command: command.to_owned(),
        })
    }

    /// Has the network delay everything by `delay` each way.
    ///
    /// # Errors
    /// The command fails.
    pub(crate) fn set(&self, delay: Duration) -> Result<(), Failure> {
        run(&self.command, delay)
    }
}

impl Drop for Network {
    fn drop(&mut self) {
        report(run(&self.command, Duration::ZERO));
    }
}

fn report(result: Result<(), Failure>) {
    if let Err(failure) = result {
        output::complain(failure);
    }
}

fn run(command: &str, delay: Duration) -> Result<(), Failure> {
    let delay = match delay.is_zero() {
        // tc(8) wants a unit.
        true => "0ms".to_owned(),
        false => Delay(delay).to_string(),
    };
    let what = format!("--set-delay {command:?} with {delay}");
    let mut shell = Command::new("/bin/sh");
    // $0 is the shell's own name, $1 the time.
    shell.args(["-c", command, "sh", &delay]);
    let status = shell
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .status()
        .context(&what)?;
    match status.success() {
        true => Ok(()),
        false => Err(Failure::Work(format!("{what}: {status}"))),
    }
}
