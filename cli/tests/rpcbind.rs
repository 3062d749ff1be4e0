//! Tests of the registration with rpcbind. Each has an rpcbind of its own, in namespaces of its own for the
//! network and for mounts, and asks it with the stock tools (`rpcinfo`, `showmount`).
#![allow(
    clippy::unwrap_used,
    reason = "clippy takes the helpers here for no tests"
)]

mod common;

use std::cell::OnceCell;
use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::process::{Child, Command, Stdio};

use common::fuse::{left_out, until};
use common::{Finished, Running, Server, copy_program, rpcrdma};
use rustix::process::Signal;
use tempfile::TempDir;

/// The set-up of a machine with its own network in these tests: loopback, an address, and rpcbind.
const SCRIPT: &str = "mount -t tmpfs none /run && mkdir /run/rpcbind && chmod 755 /run \
    && ip link set lo up && ip address add 10.9.8.7/32 dev lo && ip address add fd00::987/128 dev lo \
    && exec rpcbind -f";

/// A machine of one test. Dropping it ends its rpcbind.
struct Machine {
    rpcbind: Child,
    /// A copy of the program, which every user can execute.
    copy: OnceCell<(TempDir, String)>,
}

impl Machine {
    /// Returns a machine whose rpcbind answers, or says why there can be none here.
    fn start() -> Option<Self> {
        for tool in [
            "rpcbind",
            "rpcinfo",
            "showmount",
            "ip",
            "unshare",
            "nsenter",
        ] {
            let found = Command::new("sh")
                .args(["-c", &format!("command -v {tool}")])
                .stdout(Stdio::null())
                .status();
            if !found.unwrap().success() {
                left_out(&format!(
                    "{tool} is missing (`apt install rpcbind nfs-common iproute2`)"
                ));
                return None;
            }
        }
        let tried = Command::new("unshare")
            .args(["-nm", "true"])
            .output()
            .unwrap();
        if !tried.status.success() {
            left_out(&format!(
                "it needs namespaces, which are for root: {}",
                String::from_utf8_lossy(&tried.stderr).trim()
            ));
            return None;
        }
        let mut script = Command::new("unshare");
        let script = script.args(["-nm", "sh", "-c", SCRIPT]);
        let rpcbind = script.stdin(Stdio::null()).spawn().unwrap();
        let copy = OnceCell::new();
        let machine = Self { rpcbind, copy };
        until("rpcbind answers", || {
            let asked = machine.output(&["rpcinfo", "-p"]);
            asked.status.success() && asked.stdout.contains("portmapper")
        });
        Some(machine)
    }

    /// Returns a command in the machine, by its first words.
    fn command(&self, words: &[&str]) -> Command {
        let mut command = Command::new("nsenter");
        let pid = self.rpcbind.id().to_string();
        command.args(["--net", "--mount", "--target", &pid, "--"]);
        command.args(words);
        command
    }

    fn output(&self, words: &[&str]) -> Finished {
        Running::start(&mut self.command(words)).finish()
    }

    /// Returns `rpcrdma` in the machine, as a user or, without one, as root.
    fn rpcrdma(&self, user: Option<u32>) -> Command {
        let plain = rpcrdma();
        let mut command = match user {
            None => self.command(&[plain.get_program().to_str().unwrap()]),
            Some(uid) => {
                let [uid, gid] = [format!("--reuid={uid}"), format!("--regid={uid}")];
                let (_, program) = self.copy.get_or_init(copy_for_everybody);
                self.command(&["setpriv", &uid, &gid, "--clear-groups", program])
            }
        };
        for (name, value) in plain.get_envs() {
            match value {
                Some(value) => command.env(name, value),
                None => command.env_remove(name),
            };
        }
        command.stdin(Stdio::null());
        command
    }

    /// Starts a server on the standard ports, or on others.
    fn serve(&self, user: Option<u32>, ports: (u16, u16), args: &[&str]) -> Server {
        let (rdma, tcp) = ports;
        let args = [&["--memory"], args].concat();
        Server::start_command(self.rpcrdma(user), rdma, tcp, args)
    }

    /// Runs a server that cannot start. Returns its message.
    fn refused(&self, user: Option<u32>, args: &[&str]) -> String {
        let mut command = self.rpcrdma(user);
        let command = command.args(["serve", "--memory"]).args(args);
        let finished = Running::start(command).finish();
        assert_eq!(finished.status.code(), Some(1), "{finished:#?}");
        finished.stderr
    }

    /// Returns what rpcbind knows of NFS and MOUNT: version, network identifier, address and owner of
    /// each.
    fn known(&self) -> Vec<String> {
        let all = self.output(&["rpcinfo"]).ok().stdout;
        let words = all.lines().map(|line| line.split_whitespace().collect());
        let ours = words.filter(|words: &Vec<_>| ["100003", "100005"].contains(&words[0]));
        let mut known: Vec<_> = ours
            .map(|words| [&words[..4], &words[words.len() - 1..]].concat().join(" "))
            .collect();
        known.sort();
        known
    }
}

fn copy_for_everybody() -> (TempDir, String) {
    let dir = tempfile::tempdir().unwrap();
    fs::set_permissions(dir.path(), Permissions::from_mode(0o755)).unwrap();
    let program = dir.path().join("rpcrdma");
    copy_program(&program);
    let program = program.to_str().unwrap().to_owned();
    (dir, program)
}

impl Drop for Machine {
    fn drop(&mut self) {
        self.rpcbind.kill().ok();
        self.rpcbind.wait().ok();
    }
}

const STANDARD: (u16, u16) = (20049, 2049);
const OTHER: (u16, u16) = (20051, 2051);

/// Returns what rpcbind should know of a server on all addresses of IPv4, with these ports as in universal
/// addresses.
fn over_ipv4(rdma: &str, tcp: &str, owner: &str) -> Vec<String> {
    let mut known = Vec::new();
    for prog in [100_003, 100_005] {
        known.push(format!("{prog} 3 rdma 0.0.0.0.{rdma} {owner}"));
        known.push(format!("{prog} 3 tcp 0.0.0.0.{tcp} {owner}"));
    }
    known
}

#[test]
fn stock_tools_find_a_server_that_other_hosts_can_reach() {
    let Some(machine) = Machine::start() else {
        return;
    };
    let listen = ["--listen", "0.0.0.0", "--threads", "2"];
    let server = machine.serve(None, STANDARD, &listen);
    let said = "registered tcp rdma with rpcbind".to_owned();
    assert!(server.lines.contains(&said), "{:?}", server.lines);
    assert_eq!(machine.known(), over_ipv4("78.81", "8.1", "superuser"));
    let ports = machine.output(&["rpcinfo", "-p", "10.9.8.7"]).ok().stdout;
    for program in [
        "100003    3   tcp   2049  nfs",
        "100005    3   tcp   2049  mountd",
    ] {
        assert!(ports.contains(program), "{ports}");
    }
    let exports = machine.output(&["showmount", "-e", "10.9.8.7"]).ok().stdout;
    assert!(exports.contains("/memory (everyone)"), "{exports}");
    // NULL of what is served is answered, and of what is not, refused with the versions that are.
    machine
        .output(&["rpcinfo", "-t", "10.9.8.7", "100003", "3"])
        .ok();
    let other = machine.output(&["rpcinfo", "-n", "2049", "-t", "10.9.8.7", "100003", "4"]);
    assert!(!other.status.success(), "{other:?}");
    let why = format!("{}{}", other.stdout, other.stderr);
    assert!(why.contains("low version = 3, high version = 3"), "{why}");
    assert!(server.terminate().success());
    assert_eq!(machine.known(), Vec::<String>::new());
}

#[test]
fn every_way_to_end_takes_the_registration_back() {
    let Some(machine) = Machine::start() else {
        return;
    };
    for signal in [Signal::INT, Signal::HUP, Signal::TERM] {
        let mut command = machine.rpcrdma(None);
        command.args(["serve", "--memory", "--listen", "::"]);
        let running = Running::start(&mut command);
        until("it is registered", || machine.known().len() == 8);
        rustix::process::kill_process(
            rustix::process::Pid::from_raw(running.pid() as i32).unwrap(),
            signal,
        )
        .unwrap();
        let finished = running.finish().ok();
        let last = finished.stdout.lines().last().unwrap();
        assert_eq!(last, "unregistered tcp tcp6 rdma rdma6 with rpcbind");
        assert_eq!(machine.known(), Vec::<String>::new());
    }
}

#[test]
fn a_killed_servers_registration_is_replaced_and_a_live_ones_is_not() {
    let Some(machine) = Machine::start() else {
        return;
    };
    let listen = ["--listen", "10.9.8.7", "--rpcbind", "yes"];
    machine.serve(None, OTHER, &listen).kill();
    assert_eq!(machine.known().len(), 4, "nobody took it back");
    let any = ["--listen", "0.0.0.0"];
    machine.serve(None, STANDARD, &any).kill();
    assert_eq!(machine.known(), over_ipv4("78.81", "8.1", "superuser"));
    // The same address, which is its own now.
    let server = machine.serve(None, STANDARD, &any);
    let other = [
        "--listen",
        "10.9.8.7",
        "--port",
        "20051",
        "--tcp-port",
        "2051",
    ];
    let message = machine.refused(None, &[&other[..], &["--rpcbind", "yes"]].concat());
    for word in [
        "NFS version 3 over tcp at 0.0.0.0:2049",
        "superuser",
        "--rpcbind no",
    ] {
        assert!(message.contains(word), "{message}");
    }
    assert_eq!(machine.known(), over_ipv4("78.81", "8.1", "superuser"));
    // On ports of its own it does not register unless it is told to.
    for rpcbind in [&[][..], &["--rpcbind", "no"]] {
        let server = machine.serve(None, OTHER, &[&["--listen", "10.9.8.7"], rpcbind].concat());
        assert!(server.lines.iter().all(|line| !line.contains("rpcbind")));
        server.terminate();
    }
    server.terminate();
    assert_eq!(machine.known(), Vec::<String>::new());
}

#[test]
fn a_server_for_this_host_registers_only_if_it_is_told_to() {
    let Some(machine) = Machine::start() else {
        return;
    };
    for (args, count) in [(&[][..], 0), (&["--rpcbind", "yes"][..], 4)] {
        let listen = ["--listen", "127.0.0.1"];
        let server = machine.serve(None, STANDARD, &[&listen, args].concat());
        assert_eq!(machine.known().len(), count, "{args:?}");
        assert!(server.terminate().success());
    }
}

#[test]
fn an_ordinary_user_registers_and_removes_what_is_its_own() {
    let Some(machine) = Machine::start() else {
        return;
    };
    let (ann, bob) = (Some(12346), Some(12347));
    let listen = ["--listen", "0.0.0.0"];
    let server = machine.serve(ann, STANDARD, &listen);
    assert_eq!(machine.known(), over_ipv4("78.81", "8.1", "12346"));
    server.terminate();
    assert_eq!(machine.known(), Vec::<String>::new());
    let always = [&listen[..], &["--rpcbind", "yes"]].concat();
    machine.serve(ann, OTHER, &always).kill();
    let message = machine.refused(bob, &listen);
    for word in ["is gone", "owner 12346", "rpcinfo -d 100003 3"] {
        assert!(message.contains(word), "{message}");
    }
    let server = machine.serve(ann, STANDARD, &listen);
    assert_eq!(machine.known(), over_ipv4("78.81", "8.1", "12346"));
    server.terminate();
}

/// Words before a command that give it one more namespace, and prepare that.
fn in_another<'a>(namespace: &'a str, script: &'a str) -> [&'a str; 5] {
    ["unshare", namespace, "sh", "-c", script]
}

#[test]
fn the_rpcbind_of_another_network_is_left_alone() {
    let Some(machine) = Machine::start() else {
        return;
    };
    // The file is there, but leads to the rpcbind of a network that this server is not in.
    let script = r#"test -S /run/rpcbind.sock && ip link set lo up && exec "$0" "$@""#;
    let within = in_another("--net", script);
    let program = rpcrdma().get_program().to_str().unwrap().to_owned();
    let start = || machine.command(&[&within[..], &[&program]].concat());
    let listen = ["--memory", "--listen", "0.0.0.0"];
    let server = Server::start_command(start(), 20049, 2049, listen);
    assert_eq!(machine.known(), Vec::<String>::new());
    assert!(server.terminate().success());
    let mut command = start();
    command.arg("serve").args(listen).args(["--rpcbind", "yes"]);
    let refused = Running::start(&mut command).finish();
    refused.fails_with(&["no rpcbind runs here", "systemctl start rpcbind"]);
}

#[test]
fn a_server_with_files_of_its_own_registers_over_loopback() {
    let Some(machine) = Machine::start() else {
        return;
    };
    // As in a container that shares the host's network.
    let script = r#"mount -t tmpfs none /run && exec "$0" "$@""#;
    let within = in_another("--mount", script);
    let program = rpcrdma().get_program().to_str().unwrap().to_owned();
    let command = machine.command(&[&within[..], &[&program]].concat());
    let listen = ["--memory", "--listen", "0.0.0.0"];
    let server = Server::start_command(command, 20049, 2049, listen);
    assert_eq!(machine.known(), over_ipv4("78.81", "8.1", "superuser"));
    assert!(server.terminate().success());
    assert_eq!(machine.known(), Vec::<String>::new());
}
