//! Captures one port of the loopback interface with tcpdump.

use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use std::process::{Child, ChildStderr, Command, Stdio};
use std::thread;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};

use crate::error::Error;

const TOOL: &str = "tcpdump";
/// The pause between the last packet and the end of the capture.
const SETTLE: Duration = Duration::from_millis(500);

/// A running capture.
pub(crate) struct Capture {
    child: Child,
    says: BufReader<ChildStderr>,
}

impl Capture {
    /// Starts to capture `port` into `file`. Returns as soon as every further packet will be
    /// captured.
    pub(crate) fn start(port: u16, file: &Path) -> Result<Self, Error> {
        let start = |source| Error::Start { tool: TOOL, source };
        let mut child = Command::new(TOOL)
            // As root, tcpdump would change to another user, who may not write here.
            .args([
                "-i",
                "lo",
                "--immediate-mode",
                "-s",
                "0",
                "-B",
                "65536",
                "-Z",
                "root",
                "-w",
            ])
            .arg(file)
            .arg(format!("tcp port {port}"))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .map_err(start)?;
        let Some(stderr) = child.stderr.take() else {
            unreachable!("it was asked for");
        };
        let mut says = BufReader::new(stderr);
        let (mut all, mut line) = (String::new(), String::new());
        while says.read_line(&mut line).map_err(start)? > 0 {
            if line.contains("listening on") {
                return Ok(Self { child, says });
            }
            all.push_str(&line);
            line.clear();
        }
        let _ = child.wait();
        Err(Error::Tool {
            tool: TOOL,
            said: all,
        })
    }

    /// Ends the capture. Fails if a packet was missed.
    pub(crate) fn stop(mut self) -> Result<(), Error> {
        thread::sleep(SETTLE);
        let start = |source| Error::Start { tool: TOOL, source };
        kill_process(Pid::from_child(&self.child), Signal::INT)
            .map_err(|error| start(error.into()))?;
        let mut said = String::new();
        self.says.read_to_string(&mut said).map_err(start)?;
        self.child.wait().map_err(start)?;
        let count = |what: &str| {
            said.lines()
                .find_map(|line| line.strip_suffix(what)?.trim().parse::<u64>().ok())
        };
        let captured = count("packets captured");
        // On loopback the filter sees every packet twice, so the two numbers cannot be compared.
        if captured.is_none_or(|n| n == 0) || count("packets dropped by kernel") != Some(0) {
            return Err(Error::Tool { tool: TOOL, said });
        }
        Ok(())
    }
}

impl Drop for Capture {
    /// Ends the capture if a check ends early.
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
