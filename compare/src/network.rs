//! A network whose delay is set by a command of the user.

use std::fmt;
use std::net::{SocketAddr, TcpStream};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use rdma::middleware::Delay;
use rpcrdma_setup::{Context, Failure};

/// Sets the delay of the network by a shell command, and removes the delay when dropped.
#[derive(Debug)]
pub(crate) struct Network {
    command: String,
    /// The function that is called if the delay could not be removed.
    complain: fn(&Failure),
}

impl Network {
    /// Sets `delay` with the command of the options.
    ///
    /// # Errors
    /// The command fails.
    pub(crate) fn new(
        command: &str,
        delay: Duration,
        complain: fn(&Failure),
    ) -> Result<Self, Failure> {
        if let Err(failure) = run(command, delay) {
            // The command may have succeeded partly. If the reset fails as well, the first error is
            // the one to report.
            drop(run(command, Duration::ZERO));
            return Err(failure);
        }
        Ok(Self {
            command: command.to_owned(),
            complain,
        })
    }

    /// Sets the delay of the network in each direction.
    ///
    /// # Errors
    /// The command fails.
    pub(crate) fn set(&self, delay: Duration) -> Result<(), Failure> {
        run(&self.command, delay)
    }

    /// Checks that something which takes a round trip at least was delayed. A network that delays
    /// one direction alone fails as well.
    ///
    /// # Errors
    /// The operation took less than three quarters of the delay of both directions.
    pub(crate) fn check(
        &self,
        what: impl fmt::Display,
        took_us: f64,
        delay: Duration,
    ) -> Result<(), Failure> {
        if took_us >= 1.5 * delay.as_secs_f64() * 1e6 {
            return Ok(());
        }
        Err(Failure::Work(format!(
            "--set-delay {:?}: {what} took {took_us:.0} µs with {delay:?} each way: the command does \
             not delay this traffic",
            self.command
        )))
    }

    /// Checks that a TCP connection to `server` is delayed, whether it is accepted or refused.
    ///
    /// # Errors
    /// The connection was not delayed.
    pub(crate) fn check_connecting(
        &self,
        server: SocketAddr,
        delay: Duration,
    ) -> Result<(), Failure> {
        let begun = Instant::now();
        drop(TcpStream::connect(server));
        let took_us = begun.elapsed().as_secs_f64() * 1e6;
        self.check("a TCP connection", took_us, delay)
    }
}

impl Drop for Network {
    fn drop(&mut self) {
        if let Err(failure) = end_delay(&self.command) {
            (self.complain)(&failure);
        }
    }
}

/// Removes the delay by `command`, the command of
/// [`Options::set_delay`](crate::Options::set_delay). A program that is ended by a signal calls
/// this.
///
/// # Errors
/// The command fails.
pub fn end_delay(command: &str) -> Result<(), Failure> {
    run(command, Duration::ZERO)
}

fn run(command: &str, delay: Duration) -> Result<(), Failure> {
    let delay = match delay.is_zero() {
        // tc(8) needs a unit.
        true => "0ms".to_owned(),
        false => Delay(delay).to_string(),
    };
    let what = format!("--set-delay {command:?} with {delay}");
    let mut shell = Command::new("/bin/sh");
    // $0 is the name of the shell, $1 the delay.
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
