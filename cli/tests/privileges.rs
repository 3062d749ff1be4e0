//! Tests of the privileges that a server keeps, as the kernel shows them, and of what it does with
//! them.
#![allow(
    clippy::unwrap_used,
    reason = "clippy takes the helpers here for no tests"
)]

mod common;

use std::fs::{self, Permissions};
use std::net::{Ipv4Addr, TcpListener};
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt, chown};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;

use common::{BOTH, Proto, Running, Server, copy_program, export, is_iwarp, options, rpcrdma};
use rustix::fs::{CWD, FileType, Mode, mknodat};
use rustix::thread::{CapabilitySet, capabilities};

/// A local user that is not in /etc/passwd.
const ANN: u32 = 12346;

/// Returns a value of /proc/PID/status for each thread of the server.
fn statuses(server: &Server, name: &str) -> Vec<String> {
    let tasks = format!("/proc/{}/task", server.pid());
    let status = |task: std::io::Result<fs::DirEntry>| {
        // A thread may end meanwhile.
        let text = fs::read_to_string(task.unwrap().path().join("status")).ok()?;
        let value = |line: &str| {
            let (key, value) = line.split_once(':')?;
            (key == name).then(|| value.trim().to_owned())
        };
        Some(text.lines().find_map(value).unwrap())
    };
    let statuses: Vec<_> = fs::read_dir(tasks).unwrap().filter_map(status).collect();
    assert!(!statuses.is_empty());
    statuses
}

/// Returns a set of capabilities for each thread of the server.
fn sets(server: &Server, name: &str) -> Vec<CapabilitySet> {
    let set = |text: String| u64::from_str_radix(&text, 16).unwrap();
    let sets = statuses(server, name).into_iter().map(set);
    sets.map(CapabilitySet::from_bits_retain).collect()
}

/// Checks that no thread of the server has, or can come by, other capabilities than `allowed`.
#[track_caller]
fn assert_at_most(server: &Server, allowed: CapabilitySet) {
    for no_new in statuses(server, "NoNewPrivs") {
        assert_eq!(no_new, "1");
    }
    let mut names = vec!["CapPrm", "CapEff"];
    // Nothing can be taken out of the bounding set without this, and nothing need be.
    if capabilities(None)
        .unwrap()
        .effective
        .contains(CapabilitySet::SETPCAP)
    {
        names.push("CapBnd");
    }
    for name in names {
        for set in sets(server, name) {
            assert!(allowed.contains(set), "{name}: {:?}", set - allowed);
        }
    }
    for name in ["CapInh", "CapAmb"] {
        assert!(sets(server, name).iter().all(CapabilitySet::is_empty));
    }
}

fn privileged() -> bool {
    let root = rustix::process::geteuid().is_root();
    if !root {
        common::fuse::left_out("it needs root");
    }
    root
}

/// Returns what the server's device keeps.
fn of_device() -> CapabilitySet {
    match is_iwarp() {
        true => CapabilitySet::empty(),
        false => CapabilitySet::IPC_LOCK,
    }
}

fn run(command: &str, proto: Proto, more: &[&str], from: &str, to: &str) {
    let mut running = rpcrdma();
    running
        .args([command, "-r"])
        .args(options(proto, &more.join(",")));
    Running::start(running.args([from, to])).finish().ok();
}

#[test]
fn a_server_of_files_in_memory_has_no_capabilities() {
    for threads in ["1", "3"] {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("file"), "content").unwrap();
        let capture = dir.path().join("capture").display().to_string();
        let capture = ["--capture", &capture];
        let capture = if is_iwarp() { &capture[..] } else { &[] };
        let args = [&["--memory", "--threads", threads], capture].concat();
        let server = Server::start(args);
        assert_at_most(&server, of_device());
        for proto in BOTH {
            let url = server.url(proto, &format!("/memory/{}", proto.name()));
            let file = dir.path().join("file").display().to_string();
            run("put", proto, &[], &file, &url);
        }
        // Threads that were started for the calls included.
        assert_at_most(&server, of_device());
    }
}

/// Makes a tree with everything that only root may make: files of others, and of every mode.
fn make_tree(at: &Path) {
    fs::create_dir(at).unwrap();
    let make = |name: &str, mode: u32, owner: u32| {
        let path = at.join(name);
        fs::write(&path, name).unwrap();
        chown(&path, Some(owner), Some(owner)).unwrap();
        fs::set_permissions(&path, Permissions::from_mode(mode)).unwrap();
    };
    make("of-ann", 0o4755, ANN);
    make("unreadable", 0o000, ANN);
    make("of-root", 0o600, 0);
    mknodat(
        CWD,
        at.join("null"),
        FileType::CharacterDevice,
        Mode::from(0o644),
        0x103,
    )
    .unwrap();
}

#[test]
fn a_server_of_directories_keeps_what_its_callers_and_their_root_need() {
    if !privileged() {
        return;
    }
    let allowed = CapabilitySet::CHOWN
        | CapabilitySet::DAC_OVERRIDE
        | CapabilitySet::DAC_READ_SEARCH
        | CapabilitySet::FOWNER
        | CapabilitySet::FSETID
        | CapabilitySet::MKNOD
        | CapabilitySet::MAC_OVERRIDE
        | CapabilitySet::SYS_RESOURCE
        | CapabilitySet::SETUID
        | CapabilitySet::SETGID
        | of_device();
    let dir = tempfile::tempdir().unwrap();
    fs::set_permissions(dir.path(), Permissions::from_mode(0o755)).unwrap();
    let [tree, data] = ["tree", "data"].map(|name| dir.path().join(name));
    make_tree(&tree);
    fs::create_dir(&data).unwrap();
    let key = dir.path().join("key").display().to_string();
    let args = [
        "--export",
        &export("data", &data, "no_root_squash"),
        "--handle-key",
        &key,
    ];
    let server = Server::start(args);
    assert_at_most(&server, allowed);
    for proto in BOTH {
        let name = proto.name();
        let url = server.url(proto, &format!("/data/{name}"));
        run("put", proto, &["suid", "dev"], tree.to_str().unwrap(), &url);
        for (file, mode, owner) in [
            ("of-ann", 0o4755, ANN),
            ("unreadable", 0, ANN),
            ("of-root", 0o600, 0),
            ("null", 0o644, 0),
        ] {
            let made = fs::symlink_metadata(data.join(name).join(file)).unwrap();
            let found = (made.mode() & 0o7777, made.uid());
            assert_eq!(found, (mode, owner), "{name}: {file}");
        }
        let null = fs::symlink_metadata(data.join(name).join("null")).unwrap();
        assert!(null.file_type().is_char_device() && null.rdev() == 0x103);
        // Read by root, whose access does not depend on modes.
        let back = dir.path().join(format!("back-{name}"));
        run("get", proto, &["suid", "dev"], &url, back.to_str().unwrap());
        assert_eq!(
            fs::read_to_string(back.join("unreadable")).unwrap(),
            "unreadable"
        );
        let mut rm = rpcrdma();
        rm.args(["rm", "-r"]).args(options(proto, "")).arg(&url);
        Running::start(&mut rm).finish().ok();
    }
    assert_at_most(&server, allowed);
}

#[test]
fn a_port_that_only_root_may_bind_leaves_no_privilege_behind() {
    if !privileged() {
        return;
    }
    let is_free = |port: &u16| TcpListener::bind((Ipv4Addr::LOCALHOST, *port)).is_ok();
    let mut free = (700..1024).filter(is_free);
    let (rdma, tcp) = (free.next().unwrap(), free.next().unwrap());
    let rdma = if is_iwarp() { rdma } else { 0 };
    for threads in ["1", "2"] {
        let server = Server::start_on(rdma, tcp, ["--memory", "--threads", threads]);
        assert_eq!(server.tcp.port(), tcp);
        assert_at_most(&server, of_device());
    }
}

#[test]
fn a_server_of_an_ordinary_user_gains_no_privileges() {
    if !privileged() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    fs::set_permissions(dir.path(), Permissions::from_mode(0o755)).unwrap();
    let [program, home] = ["rpcrdma", "home"].map(|name| dir.path().join(name));
    copy_program(&program);
    fs::create_dir(&home).unwrap();
    chown(&home, Some(ANN), Some(ANN)).unwrap();
    let mut command = Command::new(program);
    command
        .uid(ANN)
        .gid(ANN)
        .current_dir("/")
        .env_remove("RUST_LOG");
    let key = home.join("key").display().to_string();
    let args = [
        "--export",
        &export("data", &home, "sync"),
        "--handle-key",
        &key,
    ];
    let server = Server::start_command(command, 0, 0, args);
    for name in ["CapPrm", "CapEff", "CapInh", "CapAmb"] {
        assert!(sets(&server, name).iter().all(CapabilitySet::is_empty));
    }
    for no_new in statuses(&server, "NoNewPrivs") {
        assert_eq!(no_new, "1");
    }
}

/// Some algorithms are for privileged processes alone, and listening sockets have them before the
/// privileges are gone.
#[test]
fn a_server_has_any_congestion_control_that_its_user_may_choose() {
    let list = match rustix::process::geteuid().is_root() {
        true => "available",
        false => "allowed",
    };
    let list = format!("/proc/sys/net/ipv4/tcp_{list}_congestion_control");
    let names = fs::read_to_string(list).unwrap();
    for name in names.split_whitespace() {
        let server = Server::start(["--memory", "--congestion", name]);
        assert_at_most(&server, of_device());
    }
}
