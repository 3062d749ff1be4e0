//! `compare` on one host with the servers on another: two network namespaces, joined by a cable of the
//! kernel.
#![allow(
    clippy::unwrap_used,
    reason = "clippy takes the helpers here for no tests"
)]

mod common;

use std::io::{BufRead, BufReader};
use std::process::{Child, ChildStdout, Command, Stdio};

use common::fuse::left_out;
use common::{Finished, Running, rpcrdma, run};

const FAR: &str = "10.9.9.2";

/// Makes the near end of the cable in a namespace of its own, and the far end in that of the process `$1`.
/// Says so, and stays until its input ends.
const CABLE: &str = "ip link set lo up && ip link add near type veth peer name far netns $1 \
    && ip address add 10.9.9.1/24 dev near && ip link set near up \
    && nsenter --net --target $1 sh -c 'ip address add 10.9.9.2/24 dev far && ip link set far up' \
    && echo ready && exec cat";

/// Two hosts, each a process that keeps a network namespace. They end with the test.
struct Hosts {
    near: Child,
    far: Child,
}

/// Starts a shell in a network namespace of its own, and waits until it is ready.
fn namespace(script: &str, words: &[&str]) -> Option<Child> {
    let mut command = Command::new("unshare");
    command
        .args(["--net", "sh", "-c", script, "sh"])
        .args(words);
    let mut child = command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .ok()?;
    let mut line = String::new();
    let mut said = BufReader::new(child.stdout.take()?);
    said.read_line(&mut line).ok()?;
    match line.trim() {
        "ready" => Some(child),
        _ => {
            child.wait().ok();
            None
        }
    }
}

impl Hosts {
    /// Returns two hosts, or says why there can be none here.
    fn new() -> Option<Self> {
        let far = namespace("ip link set lo up && echo ready && exec cat", &[]);
        let Some(far) = far else {
            left_out("it needs network namespaces (root, unshare(1), ip(8))");
            return None;
        };
        match namespace(CABLE, &[&far.id().to_string()]) {
            Some(near) => Some(Self { near, far }),
            None => {
                left_out("this kernel joins no namespaces (veth)");
                None
            }
        }
    }

    /// Returns `rpcrdma` on one of the hosts.
    fn on(host: &Child) -> Command {
        let plain = rpcrdma();
        let mut command = Command::new("nsenter");
        let pid = host.id().to_string();
        command.args(["--net", "--target", &pid, "--"]);
        command.arg(plain.get_program()).stdin(Stdio::null());
        command
    }

    /// Starts `compare-server` on the far host, and waits until it listens.
    fn serve(&self, args: &[&str]) -> Server {
        let mut command = Self::on(&self.far);
        command.args(["compare-server", "--listen", FAR]).args(args);
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let mut said = BufReader::new(child.stdout.take().unwrap());
        let mut line = String::new();
        said.read_line(&mut line).unwrap();
        assert_eq!(line, "listening compare 10.9.9.2:20047 iwarp\n");
        Server { child, _said: said }
    }

    fn compare(&self, args: &[&str]) -> Finished {
        let mut command = Self::on(&self.near);
        command.args(["compare", "--server", FAR]).args(args);
        Running::start(&mut command).finish()
    }
}

impl Drop for Hosts {
    fn drop(&mut self) {
        for host in [&mut self.near, &mut self.far] {
            host.kill().ok();
            host.wait().ok();
        }
    }
}

/// A running `compare-server`. Dropping it ends it.
struct Server {
    child: Child,
    _said: BufReader<ChildStdout>,
}

impl Drop for Server {
    fn drop(&mut self) {
        self.child.kill().ok();
        self.child.wait().ok();
    }
}

#[test]
fn a_comparison_has_its_servers_on_another_host() {
    let Some(hosts) = Hosts::new() else {
        return;
    };
    let server = hosts.serve(&["--client", "10.9.9.0/24"]);
    let files = tempfile::tempdir().unwrap();
    let file = |name: &str| files.path().join(name).display().to_string();
    let (json, page) = (file("kit.json"), file("kit.html"));
    let measured = hosts.compare(&[
        "--via=tcp,v1-inv,v2-ddp-cont,wg-ddp",
        "--ops=null,write",
        "--sizes=8k",
        "--count=9",
        "--json",
        &json,
        "--html",
        &page,
    ]);
    let said = measured.ok().stdout.replace('\n', " ");
    for part in [
        "over the network, servers on the host 10.9.9.2",
        "servers on another machine: ",
        "nothing pinned to a processor",
    ] {
        assert!(said.contains(part), "{part}: {said}");
    }
    let rows: Vec<serde_json::Value> =
        serde_json::from_slice(&std::fs::read(&json).unwrap()).unwrap();
    // NULL is measured spinning as well.
    assert_eq!(rows.len(), 12);
    for row in &rows {
        let server = row["server"].as_str().unwrap();
        assert!(
            server.contains("Linux ") && server.contains("rpcrdma "),
            "{row}"
        );
        assert_eq!(row["loopback"], false, "{row}");
        assert!(row["p50_us"].as_f64().unwrap() > 0.0, "{row}");
        assert!(row["baseline_ratio"].as_f64().unwrap() > 0.0, "{row}");
        // What the server counts arrives from there.
        let calls = row["system_calls_responder"].as_f64().unwrap();
        assert!(calls >= 1.0, "{row}");
    }
    let write = |mode: &str| {
        let mut rows = rows.iter();
        let is = |row: &&serde_json::Value| row["transfer_mode"] == mode && row["op"] == "write";
        rows.find(is).unwrap()
    };
    assert_eq!(write("v1-inv")["rdma_reads"], 1.0);
    assert_eq!(write("v2-ddp-cont")["rdma_reads"], 0.0);
    assert_eq!(write("wg-ddp")["rdma_reads"], 0.0);
    let page = std::fs::read_to_string(&page).unwrap();
    assert!(page.contains("servers on another machine"));
    // Spinning servers are suspended while it is another one's turn.
    let spinning = ["--via=tcp,v1-inv", "--ops=null", "--count=9", "--busy-poll"];
    hosts.compare(&spinning).ok();
    drop(server);
    let gone = hosts.compare(&["--ops=null"]);
    gone.fails_with(&[
        "10.9.9.2:20047",
        "refused",
        "compare-server --listen",
        "firewall",
    ]);
}

#[test]
fn hosts_that_are_not_admitted_are_refused() {
    let Some(hosts) = Hosts::new() else {
        return;
    };
    let _server = hosts.serve(&["--client", "10.9.9.7"]);
    let refused = hosts.compare(&["--ops=null"]);
    refused.fails_with(&["compare-server at 10.9.9.2:20047", "does not greet"]);
}

#[test]
fn a_listener_of_something_else_is_no_host() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let other = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        std::io::Write::write_all(&mut stream, b"SSH-2.0\r\n").unwrap();
    });
    let refused = run(["compare", "--ops=null", "--server", &address]);
    refused.fails_with(&["does not greet as one does"]);
    other.join().unwrap();
    let wrong = run(["compare", "--device=sim", "--server", "127.0.0.1"]);
    assert_eq!(wrong.status.code(), Some(2), "{wrong:?}");
}
