//! The client that `conform --listen` judges: a command for each operation, or somebody who is told what to do.

use std::collections::HashMap;
use std::fs::{self, OpenOptions};
use std::io::{ErrorKind, Read, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener};
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use nfs_copy::Interrupt;
use rpcrdma_conform::client::case::Operation;
use rpcrdma_conform::client::under_test::{Client, Ended, Task};
use rpcrdma_conform::dialect::Dialect;
use rpcrdma_setup::device::DeviceName;
use rpcrdma_setup::{Context, Failure};
use rustix::process::{Pid, Signal, kill_process_group};

use crate::args::{ConformArgs, Run};
use crate::output;

/// The command line that stands for this program's own client.
const OWN: &str = "own";
/// The placeholder for the version of RPC-over-RDMA.
const VERSION: &str = "{version}";
/// The exit status of this program when it panics.
const PANICKED: i32 = 101;
/// The most bytes of a command's output that are kept.
const KEPT: usize = 1 << 20;
/// The longest time of a command, in terms of the wait for one message.
const PATIENCE: u32 = 12;
/// The longest wait for more output of a command that has ended: a process that left its group may keep the pipe open.
const OUTPUT: Duration = Duration::from_secs(1);
/// The time between two looks whether a command has ended.
const GLANCE: Duration = Duration::from_millis(10);
/// The time without a connection after which an operation by hand has ended, if the server closes none itself.
const QUIET: Duration = Duration::from_secs(1);

/// The client under test.
pub(crate) struct UnderTest {
    runs: Vec<Run>,
    address: SocketAddr,
    mount_port: u16,
    /// The file that the operation `write` copies.
    file: Option<PathBuf>,
    /// The longest time of a command.
    patience: Duration,
    /// The longest wait for a client by hand that comes back after the server has closed its connection.
    away: Duration,
    interrupt: Interrupt,
    /// The mount option for a device, with a comma before it, where this program's own client needs one.
    device: &'static str,
    /// The operations that were explained, for somebody who performs them by hand.
    explained: HashMap<(Dialect, Operation), u32>,
}

impl UnderTest {
    /// Creates the client that the options name.
    ///
    /// # Errors
    /// The options name no command for an operation; the error of the operating system.
    pub(crate) fn new(
        args: &ConformArgs,
        address: SocketAddr,
        mount: &TcpListener,
        interrupt: Interrupt,
    ) -> Result<Self, Failure> {
        let mount_port = mount.local_addr().context("MOUNT over TCP")?.port();
        Ok(Self {
            runs: args.run.clone(),
            address: reached(address),
            mount_port,
            file: None,
            patience: args.timeout.0.saturating_mul(PATIENCE),
            away: args.timeout.0.max(QUIET),
            interrupt,
            // The device that leads to the address; that of the judge can be another one.
            device: match args.device {
                Some(DeviceName::Verbs(_)) => ",device=verbs",
                Some(DeviceName::Iwarp | DeviceName::Sim) | None => "",
            },
            explained: HashMap::new(),
        })
    }

    /// Returns the option with the command for an operation: the last one that names it, or all.
    fn run_of(&self, operation: Operation) -> Option<&Run> {
        let is_for = |it: &&Run| it.operation.is_none_or(|its| its == operation);
        self.runs.iter().rev().find(is_for)
    }

    /// Returns the command for an operation, its placeholders replaced.
    fn command(&self, task: &Task<'_>, file: &Path) -> Option<Command> {
        let run = self.run_of(task.operation)?;
        if run.command == OWN {
            let mut command = Command::new(std::env::current_exe().ok()?);
            command.args(self.own_words(task, file));
            return Some(command);
        }
        let mut command = Command::new("sh");
        command.arg("-c").arg(self.filled(&run.command, task, file));
        Some(command)
    }

    /// Returns a text with its placeholders replaced.
    fn filled(&self, text: &str, task: &Task<'_>, file: &Path) -> String {
        let ip = self.address.ip();
        [
            ("{address}", self.address.to_string()),
            ("{host}", ip.to_string()),
            ("{port}", self.address.port().to_string()),
            ("{mountport}", self.mount_port.to_string()),
            ("{operation}", task.operation.to_string()),
            (VERSION, task.dialect.option().to_owned()),
            ("{file}", file.display().to_string()),
        ]
        .into_iter()
        .fold(text.to_owned(), |text, (from, to)| text.replace(from, &to))
    }

    /// Returns the arguments of this program for an operation.
    fn own_words(&self, task: &Task<'_>, file: &Path) -> Vec<String> {
        let address = self.address;
        let url = |path: &str| format!("nfs://{address}/conform/{path}");
        let of_operation = match task.operation {
            Operation::Ping => vec!["ping".into(), "--count=2".into(), address.to_string()],
            Operation::Read => vec!["cat".into(), url("file")],
            Operation::Write => vec!["put".into(), file.display().to_string(), url("new")],
            Operation::List => vec!["ls".into(), url("folder")],
        };
        let (version, device) = (task.dialect.option(), self.device);
        let options = [
            "-o".into(),
            format!("rpcrdma={version},soft,timeo=200,retrans=1{device}"),
        ];
        [of_operation, options.to_vec()].concat()
    }

    /// Returns the file that the operation `write` copies, after making it.
    fn file(&mut self, content: &[u8]) -> std::io::Result<PathBuf> {
        if let Some(file) = &self.file {
            return Ok(file.clone());
        }
        let name = format!("rpcrdma-conform-{}", std::process::id());
        let path = std::env::temp_dir().join(name);
        let mut options = OpenOptions::new();
        options.write(true).create_new(true).mode(0o600);
        let mut file = options.open(&path)?;
        self.file = Some(path.clone());
        file.write_all(content)?;
        Ok(path)
    }

    /// Says what to do, and waits until it was done.
    fn by_hand(&mut self, task: &Task<'_>, file: &Path) -> Ended {
        let operation = task.operation;
        let times = self.explained.entry((task.dialect, operation)).or_default();
        *times += 1;
        let number = *times;
        let own: Vec<String> = self.own_words(task, file);
        output::tell(format_args!(
            "{operation}, number {number}: rpcrdma {}",
            own.join(" ")
        ));
        if number == 1 && task.dialect == Dialect::One {
            let text = self.filled(&by_kernel(operation), task, file);
            output::tell(format_args!("  or, on Linux: {text}"));
        }
        let mut since = Instant::now();
        loop {
            let progress = (task.progress)();
            if progress.connections == 0 || progress.open > 0 {
                since = Instant::now();
            }
            let is_awaited = task.closes && !progress.is_complete;
            let quiet = if is_awaited { self.away } else { QUIET };
            if since.elapsed() > quiet || self.interrupt.is_set() {
                return Ended::Unknown;
            }
            std::thread::sleep(GLANCE);
        }
    }

    /// Runs a command until it ends, or for too long.
    fn run(&self, mut command: Command) -> Ended {
        command.stdin(Stdio::null()).process_group(0);
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = match command.spawn() {
            Ok(child) => child,
            Err(error) => return Ended::Failed(format!("the command cannot be started: {error}")),
        };
        let output = child.stdout.take().map(kept);
        let errors = child.stderr.take().map(kept);
        let status = self.waited(&mut child);
        // What the command has left behind would keep the pipes open, and the port busy.
        kill(&child);
        let [output, errors] = [output, errors].map(|pieces| {
            let whole = pieces.map(|it| self.whole(&it));
            whole.unwrap_or_default()
        });
        match status {
            None => Ended::Late,
            Some(status) => ended(status, output, &errors),
        }
    }

    /// Returns the output of a command that has ended.
    fn whole(&self, pieces: &Receiver<Vec<u8>>) -> Vec<u8> {
        let mut whole = Vec::new();
        let mut since = Instant::now();
        loop {
            match pieces.recv_timeout(GLANCE) {
                Ok(piece) => {
                    whole.extend(piece);
                    since = Instant::now();
                }
                Err(RecvTimeoutError::Timeout)
                    if since.elapsed() < OUTPUT && !self.interrupt.is_set() => {}
                Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => return whole,
            }
        }
    }

    /// Returns the exit status, if the command ends in time.
    fn waited(&self, child: &mut Child) -> Option<ExitStatus> {
        let until = Instant::now() + self.patience;
        while Instant::now() < until && !self.interrupt.is_set() {
            if let Ok(Some(status)) = child.try_wait() {
                return Some(status);
            }
            std::thread::sleep(GLANCE);
        }
        kill(child);
        // A process that was killed can be waited for.
        drop(child.wait());
        None
    }
}

impl Client for UnderTest {
    fn is_told(&self, operation: Operation) -> bool {
        let run = self.run_of(operation);
        run.is_some_and(|it| it.command == OWN || it.command.contains(VERSION))
    }

    fn perform(&mut self, task: &Task<'_>) -> Ended {
        if self.interrupt.is_set() {
            return Ended::Unknown;
        }
        let file = match self.file(task.content) {
            Ok(file) => file,
            Err(error) => return Ended::Failed(format!("the file to write: {error}")),
        };
        if self.runs.is_empty() {
            return self.by_hand(task, &file);
        }
        match self.command(task, &file) {
            Some(command) => self.run(command),
            None => Ended::Unable(format!("no --run has a command for {}", task.operation)),
        }
    }
}

impl Drop for UnderTest {
    fn drop(&mut self) {
        if let Some(file) = &self.file {
            // Nobody is left to be told.
            drop(fs::remove_file(file));
        }
    }
}

/// Returns an address at which a listener is reached from this machine.
fn reached(address: SocketAddr) -> SocketAddr {
    let ip = match address.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => Ipv4Addr::LOCALHOST.into(),
        IpAddr::V6(ip) if ip.is_unspecified() => Ipv6Addr::LOCALHOST.into(),
        ip => ip,
    };
    SocketAddr::new(ip, address.port())
}

/// Returns the command line for Linux's client, with placeholders.
fn by_kernel(operation: Operation) -> String {
    let options = "vers=3,rdma,nolock,port={port},mountproto=tcp,mountport={mountport}";
    let what = match operation {
        Operation::Ping => "true",
        Operation::Read => "cat /mnt/file",
        Operation::Write => "cp {file} /mnt/new",
        Operation::List => "ls /mnt/folder",
    };
    format!("mount -t nfs -o {options} {{host}}:/conform /mnt && {what}; umount /mnt")
}

/// Reads all of a pipe. What comes is the beginning, in pieces.
fn kept(mut pipe: impl Read + Send + 'static) -> Receiver<Vec<u8>> {
    let (pieces, kept) = channel();
    std::thread::spawn(move || {
        let (mut room, mut left) = ([0; 8192], KEPT);
        while left > 0 {
            let most = left.min(room.len());
            match pipe.read(&mut room[..most]) {
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                // What was read before an error is what there is.
                Ok(0) | Err(_) => return,
                Ok(n) => {
                    left -= n;
                    if pieces.send(room[..n].to_vec()).is_err() {
                        break;
                    }
                }
            }
        }
        drop(pieces);
        drop(std::io::copy(&mut pipe, &mut std::io::sink()));
    });
    kept
}

/// Ends a command and everything that it has started.
fn kill(child: &Child) {
    let group = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
    if let Some(group) = group {
        // The group may have ended.
        let _ = kill_process_group(group, Signal::KILL);
    }
}

/// Returns the end of a command with this status and output.
fn ended(status: ExitStatus, output: Vec<u8>, errors: &[u8]) -> Ended {
    const SIGNALS: std::ops::RangeInclusive<i32> = 129..=192;
    let errors = String::from_utf8_lossy(errors);
    let last = errors.lines().rev().find(|line| !line.trim().is_empty());
    let why = last.map(|line| format!(": {line}")).unwrap_or_default();
    match status.code() {
        Some(0) => Ended::Succeeded((!output.is_empty()).then_some(output)),
        Some(PANICKED) => Ended::Crashed(format!("exit status {PANICKED}{why}")),
        // The shell says so where its command was killed.
        Some(code) if SIGNALS.contains(&code) => {
            Ended::Crashed(format!("signal {}{why}", code - 128))
        }
        Some(code) => Ended::Failed(format!("exit status {code}{why}")),
        None => Ended::Crashed(format!("signal {}{why}", status.signal().unwrap_or(0))),
    }
}

#[cfg(test)]
mod tests {
    use rpcrdma_conform::client::under_test::Progress;

    use super::*;

    #[test]
    fn a_command_that_a_signal_has_killed_has_crashed() {
        let end = |code: i32| ended(ExitStatus::from_raw(code), Vec::new(), b"why\n\n");
        assert_eq!(end(0), Ended::Succeeded(None));
        assert_eq!(end(1 << 8), Ended::Failed("exit status 1: why".into()));
        assert_eq!(end(139 << 8), Ended::Crashed("signal 11: why".into()));
        assert_eq!(end(6), Ended::Crashed("signal 6: why".into()));
    }

    fn client() -> UnderTest {
        UnderTest {
            runs: Vec::new(),
            address: "127.0.0.1:7".parse().unwrap(),
            mount_port: 0,
            file: None,
            patience: Duration::from_secs(30),
            away: QUIET,
            interrupt: Interrupt::new(),
            device: "",
            explained: HashMap::new(),
        }
    }

    #[test]
    fn a_client_by_hand_has_time_to_come_back_where_the_server_closes() {
        let lasts = |closes, is_complete, away| {
            let progress = || Progress {
                connections: 1,
                open: 0,
                is_complete,
            };
            let mut client = client();
            client.away = away;
            let task = Task {
                dialect: Dialect::One,
                operation: Operation::Write,
                address: client.address,
                closes,
                content: &[],
                progress: &progress,
            };
            let started = Instant::now();
            client.by_hand(&task, Path::new("file"));
            started.elapsed() > away
        };
        let long = Duration::from_secs(60);
        assert!(lasts(true, false, QUIET + QUIET / 2));
        assert!(!lasts(false, false, long));
        assert!(!lasts(true, true, long));
    }

    #[test]
    fn output_that_a_process_outside_the_group_keeps_open_is_not_waited_for() {
        let dir = tempfile::tempdir().unwrap();
        let ready = dir.path().join("ready");
        let ready = ready.display();
        let script = format!(
            "setsid sh -c 'touch {ready}; exec sleep 40' & \
             until [ -e {ready} ]; do sleep 0.01; done; echo done"
        );
        let mut command = Command::new("sh");
        command.args(["-c", &script]);
        let started = Instant::now();
        let ended = client().run(command);
        assert_eq!(ended, Ended::Succeeded(Some(b"done\n".to_vec())));
        assert!(started.elapsed() < Duration::from_secs(30));
    }

    #[test]
    fn a_command_is_told_the_version_if_it_names_it() {
        let mut client = client();
        let told = |client: &UnderTest| Operation::ALL.map(|it| client.is_told(it));
        assert_eq!(told(&client), [false; 4]);
        let run = |operation, command: &str| Run {
            operation,
            command: command.into(),
        };
        client.runs = vec![
            run(None, "mine {address}"),
            run(Some(Operation::Read), "mine -v {version} {address}"),
        ];
        let read_alone = Operation::ALL.map(|it| it == Operation::Read);
        assert_eq!(told(&client), read_alone);
        // The last command for an operation is the one that is run.
        client.runs.push(run(None, OWN));
        assert_eq!(told(&client), [true; 4]);
    }

    #[test]
    fn a_listener_on_all_addresses_is_reached_by_the_loopback() {
        let reached = |text: &str| reached(text.parse().unwrap()).to_string();
        assert_eq!(reached("0.0.0.0:7"), "127.0.0.1:7");
        assert_eq!(reached("[::]:7"), "[::1]:7");
        assert_eq!(reached("192.0.2.1:7"), "192.0.2.1:7");
    }
}
