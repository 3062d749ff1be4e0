//! Tests of the first Ctrl-C while a command still connects: it ends the command at once, by its signal, and leaves
//! nothing behind.

#![allow(
    clippy::unwrap_used,
    reason = "clippy takes helpers of tests for no tests"
)]

mod common;

use std::fs;
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsFd;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use common::{BOTH, Proto, Running, Server, is_iwarp, patience, rpcrdma};

/// The maximum time from the signal to the end. It takes milliseconds on an idle machine, and without the signal
/// ten seconds or for ever.
const AT_ONCE: Duration = Duration::from_secs(5);

/// The states of a socket in `/proc/net/tcp` (`include/net/tcp_states.h` of Linux).
const ESTABLISHED: &str = "01";
const SYN_SENT: &str = "02";

/// An address at which nobody answers.
struct Silent {
    listener: TcpListener,
    /// Connections that fill the queue of the listener.
    _filling: Vec<TcpStream>,
    /// The state in which sockets of clients stay.
    state: &'static str,
}

impl Silent {
    /// Returns a server that accepts connections, and never says anything.
    fn mute() -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        Self {
            listener,
            _filling: Vec::new(),
            state: ESTABLISHED,
        }
    }

    /// Returns a server that cannot be reached: the system drops what comes for it, as its queue is full.
    fn unreachable() -> Self {
        let mut mute = Self::mute();
        rustix::net::listen(mute.listener.as_fd(), 0).unwrap();
        let to = mute.address();
        let connect = || TcpStream::connect_timeout(&to, Duration::from_millis(500));
        mute._filling = std::iter::from_fn(|| connect().ok()).collect();
        mute.state = SYN_SENT;
        mute
    }

    fn address(&self) -> SocketAddr {
        self.listener.local_addr().unwrap()
    }

    /// Returns the number of sockets of clients that this server keeps waiting.
    fn waiting(&self) -> usize {
        let sockets = fs::read_to_string("/proc/net/tcp").unwrap();
        let server = format!("0100007F:{:04X}", self.address().port());
        let is_waiting = |line: &&str| {
            let words: Vec<&str> = line.split_whitespace().collect();
            words.get(2..4) == Some(&[&*server, self.state][..])
        };
        sockets.lines().filter(is_waiting).count()
    }

    /// Waits until a client connects.
    #[track_caller]
    fn wait_for_client(&self, client: &mut Running) {
        let start = Instant::now();
        while self.waiting() == 0 {
            assert!(start.elapsed() < patience(), "it does not connect");
            assert!(client.is_running(), "it has ended by itself");
            thread::sleep(Duration::from_millis(1));
        }
    }
}

/// Interrupts a command, which has to end by the signal: a shell shows that as status 130.
#[track_caller]
fn interrupt(client: Running, words: &[&str]) {
    let start = Instant::now();
    client.interrupt();
    let ended = client.finish();
    assert_eq!(ended.status.signal(), Some(2), "{words:?}: {ended:#?}");
    assert!(start.elapsed() < AT_ONCE, "{words:?}: {ended:#?}");
}

/// The commands, with their arguments. `URL` stands for an object on the server.
const COMMANDS: [&[&str]; 9] = [
    &["load", "URL"],
    &["load", "--threads", "2", "-c", "2", "URL"],
    &["ping", "URL"],
    &["ping", "--op", "getattr", "URL"],
    &["ls", "URL"],
    &["put", "FILE", "URL"],
    &["get", "URL", "DIR/new"],
    &["mount", "-f", "URL", "DIR"],
    &["mount", "URL", "DIR"],
];

fn command(words: &[&str], proto: Proto, address: SocketAddr, here: &Path) -> Running {
    let dir = here.to_str().unwrap();
    let url = format!("nfs://{address}/data");
    let file = here.join("file");
    fs::write(&file, "content").unwrap();
    let words = words.iter().map(|word| match *word {
        "URL" => url.clone(),
        "FILE" => file.to_str().unwrap().to_owned(),
        word => word.replace("DIR", dir),
    });
    let mut command = rpcrdma();
    command
        .args(words)
        .args(["-o", &format!("proto={}", proto.name())]);
    Running::start(&mut command)
}

/// Regression test: `load` went on until it gave up, or for ever.
#[test]
fn the_first_interrupt_ends_a_command_that_connects() {
    if !is_iwarp() {
        common::fuse::left_out("verbs devices have their own way to connect");
        return;
    }
    let here = tempfile::tempdir().unwrap();
    for server in [Silent::mute(), Silent::unreachable()] {
        for proto in BOTH {
            for words in COMMANDS {
                let mut client = command(words, proto, server.address(), here.path());
                server.wait_for_client(&mut client);
                interrupt(client, words);
                let start = Instant::now();
                while server.waiting() > 0 {
                    assert!(start.elapsed() < patience(), "{words:?}: a process is left");
                    thread::sleep(Duration::from_millis(1));
                }
            }
        }
    }
}

/// Folders that `load` has made on one server are removed if it is interrupted while it connects to another one.
#[test]
fn nothing_is_left_on_the_server_that_was_reached() {
    let place = tempfile::tempdir().unwrap();
    let server = Server::of(place.path());
    let url = server.url(Proto::Tcp, "/data");
    for silent in [Silent::mute(), Silent::unreachable()] {
        let beside = format!("other - proto=tcp nfs://{}/data", silent.address());
        let words = ["load", "-o", "proto=tcp", &url, "--beside", &beside];
        let mut client = Running::start(rpcrdma().args(words));
        silent.wait_for_client(&mut client);
        let entries = || fs::read_dir(place.path()).unwrap().count();
        assert_eq!(entries(), 1, "what the calls need is there");
        interrupt(client, &words);
        assert_eq!(entries(), 0);
    }
}
