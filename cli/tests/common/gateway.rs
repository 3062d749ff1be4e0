//! Gateways as processes.

use std::io::{BufRead, BufReader, Read};
use std::net::SocketAddr;
use std::process::{Child, ChildStdout, Command, Stdio};

use rustix::process::{Pid, Signal, kill_process};

use super::rpcrdma;

/// `rpcrdma gateway` on a free port. Dropping it kills the process.
pub struct Gateway {
    pub child: Child,
    output: BufReader<ChildStdout>,
    pub address: SocketAddr,
    /// Where it listens, as an argument of another gateway.
    pub listen: String,
}

impl Gateway {
    #[track_caller]
    pub fn start(listen: &str, to: &str, args: &[&str]) -> Self {
        Self::run(
            listen,
            rpcrdma()
                .args(["gateway", "--listen", listen, "--to", to])
                .args(args),
        )
    }

    /// Starts it with `-v`. Its log is in the standard error of [`Gateway::child`].
    #[track_caller]
    pub fn start_logged(listen: &str, to: &str, args: &[&str]) -> Self {
        let mut command = rpcrdma();
        command
            .args(["-v", "gateway", "--listen", listen, "--to", to])
            .args(args);
        Self::run(listen, command.stderr(Stdio::piped()))
    }

    #[track_caller]
    fn run(listen: &str, command: &mut Command) -> Self {
        let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
        let mut output = BufReader::new(child.stdout.take().unwrap());
        let mut line = String::new();
        output.read_line(&mut line).unwrap();
        let words: Vec<&str> = line.trim().split(' ').collect();
        let proto = listen.split(':').next().unwrap();
        assert_eq!(words[..2], ["listening", proto], "{line}");
        let address: SocketAddr = words[2].parse().unwrap();
        Self {
            child,
            output,
            address,
            listen: format!("{proto}:{address}"),
        }
    }

    /// Sends SIGTERM. Returns what was printed since the gateway was ready.
    pub fn end(mut self) -> String {
        kill_process(Pid::from_child(&self.child), Signal::TERM).unwrap();
        let mut text = String::new();
        self.output.read_to_string(&mut text).unwrap();
        assert!(self.child.wait().unwrap().success());
        text
    }
}

impl Drop for Gateway {
    fn drop(&mut self) {
        self.child.kill().ok();
        self.child.wait().ok();
    }
}
