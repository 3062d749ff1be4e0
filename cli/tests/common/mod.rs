//! Runs the built command: servers that end with the test, and clients with a time-out.
#![allow(
    dead_code,
    unreachable_pub,
    clippy::unwrap_used,
    reason = "each test binary uses a part of this module; clippy takes helpers for no tests"
)]

pub mod conform;
pub mod fuse;
pub mod gateway;
pub mod terminal;
pub mod tree;

use std::io::{BufRead, BufReader, Read};
use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

/// Returns the time-out of one command. Only a hanging command takes this long, also beside a load of eight
/// processes and a build.
pub fn patience() -> Duration {
    let seconds = variable("PATIENCE").map(|text| text.parse().unwrap());
    Duration::from_secs(seconds.unwrap_or(240))
}

/// Returns an environment variable that redirects the tests to other devices or hosts (README.md).
fn variable(name: &str) -> Option<String> {
    std::env::var(format!("RPCRDMA_TEST_{name}")).ok()
}

/// Returns the built command.
pub fn rpcrdma() -> Command {
    let built = env!("CARGO_BIN_EXE_rpcrdma");
    let mut command = Command::new(variable("BIN").unwrap_or_else(|| built.to_owned()));
    command.env_remove("RUST_LOG").stdin(Stdio::null());
    // The test must not leave files in the user's home directory.
    let built = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let state = match built.is_dir() {
        true => built.to_owned(),
        false => std::env::temp_dir().join("rpcrdma-tests"),
    };
    command.env("XDG_STATE_HOME", state);
    command
}

/// Returns the clients' device.
pub fn device() -> String {
    variable("DEVICE").unwrap_or_else(|| "iwarp".to_owned())
}

/// Returns whether the default device is under test, for which more is checked.
pub fn is_iwarp() -> bool {
    device() == "iwarp" && variable("SERVER_DEVICE").is_none()
}

/// Returns the address that servers listen on.
pub fn address() -> Ipv4Addr {
    variable("SERVER").map_or(Ipv4Addr::LOCALHOST, |text| text.parse().unwrap())
}

/// Returns the options that select a server's device.
pub fn server_place() -> Vec<String> {
    device_words(server_device())
}

/// Returns the servers' device.
fn server_device() -> String {
    variable("SERVER_DEVICE").unwrap_or_else(device)
}

/// Returns the device of both sides of `compare`. If the sides have different devices, each selects
/// its own.
pub fn compare_device() -> String {
    match (device(), server_device()) {
        (client, server) if client == server => client,
        (client, _) => client.split(':').take(1).collect(),
    }
}

/// Returns `--device` with its options.
fn device_words(device: String) -> Vec<String> {
    let mut words = vec!["--device".to_owned(), device];
    words.extend(variable("REGISTRATION").map(|how| format!("--registration={how}")));
    words
}

/// Returns the options for the address and device of `compare`.
pub fn compare_place() -> Vec<String> {
    let mut words = device_words(compare_device());
    words.extend(["--address".to_owned(), address().to_string()]);
    words
}

/// Returns the costs, if they are known, so that `compare` need not measure them each time.
pub fn compare_costs() -> Vec<String> {
    variable("COSTS").map_or_else(Vec::new, |file| vec!["--costs".to_owned(), file])
}

/// The result of a finished command.
#[derive(Debug)]
pub struct Finished {
    pub status: ExitStatus,
    pub stdout: String,
    pub stderr: String,
}

impl Finished {
    /// Asserts success.
    #[track_caller]
    pub fn ok(self) -> Self {
        assert!(self.status.success(), "{self:#?}");
        self
    }

    /// Asserts that the command failed with exit status 1, one `rpcrdma: ` message that contains
    /// all of `words`, and no panic.
    #[track_caller]
    pub fn fails_with(self, words: &[&str]) -> Self {
        assert_eq!(self.status.code(), Some(1), "{self:#?}");
        let message = self
            .stderr
            .lines()
            .find(|line| line.starts_with("rpcrdma: "));
        let message = message.unwrap_or_else(|| panic!("no message in {self:#?}"));
        for word in words {
            assert!(
                message.to_lowercase().contains(&word.to_lowercase()),
                "no {word:?} in {message:?}"
            );
        }
        assert!(!self.stderr.contains("panicked"), "{self:#?}");
        self
    }
}

/// A command that runs in parallel with the test.
pub struct Running {
    child: Child,
    what: String,
    output: [thread::JoinHandle<String>; 2],
}

fn collect(mut from: impl Read + Send + 'static) -> thread::JoinHandle<String> {
    thread::spawn(move || {
        let mut bytes = Vec::new();
        from.read_to_end(&mut bytes).ok();
        String::from_utf8_lossy(&bytes).into_owned()
    })
}

impl Running {
    /// Starts the command.
    pub fn start(command: &mut Command) -> Self {
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let output = [
            collect(child.stdout.take().unwrap()),
            collect(child.stderr.take().unwrap()),
        ];
        Self {
            child,
            what: format!("{command:?}"),
            output,
        }
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Returns whether the command is still running.
    pub fn is_running(&mut self) -> bool {
        self.child.try_wait().unwrap().is_none()
    }

    /// Sends SIGINT, like Ctrl-C.
    pub fn interrupt(&self) {
        let pid = rustix::process::Pid::from_child(&self.child);
        rustix::process::kill_process(pid, rustix::process::Signal::INT).unwrap();
    }

    /// Kills the command.
    pub fn kill(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// Waits until the command ends. Fails the test on a time-out.
    #[track_caller]
    pub fn finish(mut self) -> Finished {
        let start = Instant::now();
        let status = loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                break status;
            }
            if start.elapsed() > patience() {
                self.child.kill().ok();
                let output = self.output.map(|output| output.join().unwrap());
                panic!("hangs: {}\n{output:#?}", self.what);
            }
            thread::sleep(Duration::from_millis(5));
        };
        let [stdout, stderr] = self.output.map(|output| output.join().unwrap());
        Finished {
            status,
            stdout,
            stderr,
        }
    }
}

/// Copies the program to where every user can execute it.
///
/// Another process makes the copy. If this one did, a child that another test is just starting could
/// have the copy open for writing, and executing it would fail with ETXTBSY.
pub fn copy_program(to: &Path) {
    let mut copy = Command::new("cp");
    copy.arg(rpcrdma().get_program()).arg(to);
    assert!(copy.status().unwrap().success());
}

/// Returns the command with a limit on its file descriptors.
pub fn rpcrdma_within(descriptors: u64) -> Command {
    rpcrdma_limited(&format!("-n {descriptors}"))
}

/// Returns the command with a limit in the words of the shell's `ulimit`.
pub fn rpcrdma_limited(limit: &str) -> Command {
    let plain = rpcrdma();
    let mut limited = Command::new("sh");
    let script = format!("ulimit {limit} && exec \"$0\" \"$@\"");
    limited.arg("-c").arg(script).arg(plain.get_program());
    for (name, value) in plain.get_envs() {
        match value {
            Some(value) => limited.env(name, value),
            None => limited.env_remove(name),
        };
    }
    limited.stdin(Stdio::null());
    limited
}

/// Runs the command with `args` to its end.
#[track_caller]
pub fn run<S: AsRef<std::ffi::OsStr>>(args: impl IntoIterator<Item = S>) -> Finished {
    Running::start(rpcrdma().args(args)).finish()
}

/// A transport of the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Proto {
    Rdma,
    Tcp,
}

pub const BOTH: [Proto; 2] = [Proto::Rdma, Proto::Tcp];

impl Proto {
    pub fn name(self) -> &'static str {
        match self {
            Self::Rdma => "rdma",
            Self::Tcp => "tcp",
        }
    }
}

/// `rpcrdma serve` on free ports. Dropping it kills the process.
pub struct Server {
    child: Child,
    pub lines: Vec<String>,
    pub rdma: SocketAddr,
    pub tcp: SocketAddr,
}

impl Server {
    /// Starts a server on free ports and waits until it listens.
    #[track_caller]
    pub fn start<S: AsRef<std::ffi::OsStr>>(args: impl IntoIterator<Item = S>) -> Self {
        Self::start_on(0, 0, args)
    }

    /// Starts a server with one export of `dir` under the name `/data`, with the calling user's
    /// rights.
    #[track_caller]
    pub fn of(dir: &Path) -> Self {
        Self::start(["--export", &export("data", dir, "no_root_squash")])
    }

    /// Starts a server whose process has a hard limit of `descriptors` file descriptors.
    #[track_caller]
    pub fn start_within<S: AsRef<std::ffi::OsStr>>(
        descriptors: u64,
        args: impl IntoIterator<Item = S>,
    ) -> Self {
        Self::start_command(rpcrdma_within(descriptors), 0, 0, args)
    }

    /// Starts a server on these ports.
    #[track_caller]
    pub fn start_on<S: AsRef<std::ffi::OsStr>>(
        rdma: u16,
        tcp: u16,
        args: impl IntoIterator<Item = S>,
    ) -> Self {
        Self::start_command(rpcrdma(), rdma, tcp, args)
    }

    /// Starts a server with the given command.
    #[track_caller]
    pub fn start_command<S: AsRef<std::ffi::OsStr>>(
        mut command: Command,
        rdma: u16,
        tcp: u16,
        args: impl IntoIterator<Item = S>,
    ) -> Self {
        let args: Vec<_> = args
            .into_iter()
            .map(|arg| arg.as_ref().to_owned())
            .collect();
        let listen = match args.iter().any(|arg| arg == "--listen") {
            true => Vec::new(),
            false => vec!["--listen".to_owned(), address().to_string()],
        };
        let mut child = command
            .arg("serve")
            .args(listen)
            .args(["--port", &rdma.to_string()])
            .args(["--tcp-port", &tcp.to_string()])
            .args(server_place())
            .args(args)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let stdout = BufReader::new(child.stdout.take().unwrap());
        let (sender, lines) = mpsc::channel();
        thread::spawn(move || {
            for line in stdout.lines().map_while(Result::ok) {
                if sender.send(line).is_err() {
                    break;
                }
            }
        });
        let mut server = Self {
            child,
            lines: Vec::new(),
            rdma: SocketAddr::from(([0, 0, 0, 0], 0)),
            tcp: SocketAddr::from(([0, 0, 0, 0], 0)),
        };
        while server.rdma.port() == 0 || server.tcp.port() == 0 {
            let line = lines
                .recv_timeout(patience())
                .expect("the server says that it listens");
            let words: Vec<&str> = line.split(' ').collect();
            match words[..] {
                ["listening", "rdma", address, ..] => server.rdma = address.parse().unwrap(),
                ["listening", "tcp", address, ..] => server.tcp = address.parse().unwrap(),
                _ => {}
            }
            server.lines.push(line);
        }
        server
    }

    /// Returns the `nfs://` URL of `path` (which starts with its export's path), with the right
    /// port.
    pub fn url(&self, proto: Proto, path: &str) -> String {
        let address = match proto {
            Proto::Rdma => self.rdma,
            Proto::Tcp => self.tcp,
        };
        format!("nfs://{address}{path}")
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    pub fn is_running(&mut self) -> bool {
        self.child.try_wait().unwrap().is_none()
    }

    /// Kills the server.
    pub fn kill(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// Kills the server and starts another one on its ports.
    #[track_caller]
    pub fn restart<S: AsRef<std::ffi::OsStr>>(&mut self, args: impl IntoIterator<Item = S>) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
        *self = Self::start_on(self.rdma.port(), self.tcp.port(), args);
    }

    /// Sends SIGTERM, as a service manager does. Returns the exit status.
    #[track_caller]
    pub fn terminate(self) -> ExitStatus {
        self.end_by(rustix::process::Signal::TERM)
    }

    /// Sends a signal that ends the server. Returns the exit status.
    #[track_caller]
    pub fn end_by(mut self, signal: rustix::process::Signal) -> ExitStatus {
        let pid = rustix::process::Pid::from_child(&self.child);
        rustix::process::kill_process(pid, signal).unwrap();
        let start = Instant::now();
        while start.elapsed() < patience() {
            if let Some(status) = self.child.try_wait().unwrap() {
                return status;
            }
            thread::sleep(Duration::from_millis(5));
        }
        panic!("the server does not end");
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.child.kill().ok();
        self.child.wait().ok();
    }
}

/// Formats an `--export` argument.
pub fn export(name: &str, dir: &Path, options: &str) -> String {
    format!("{name}={}:{options}", dir.display())
}

/// Returns `-o` with a value for `proto` and more options.
pub fn options(proto: Proto, more: &str) -> [String; 2] {
    let mut options = vec![format!("proto={}", proto.name())];
    if proto == Proto::Rdma {
        options.push(format!("device={}", device()));
        options.extend(variable("REGISTRATION").map(|how| format!("registration={how}")));
        options.extend(variable("CLIENT").map(|address| format!("clientaddr={address}")));
    }
    options.extend([more.to_owned()]);
    ["-o".into(), options.join(",")]
}
