//! Tests of invalid input and failing peers: each results in a clear message and exit status 1,
//! without a hang or a panic.
#![allow(
    clippy::unwrap_used,
    reason = "clippy takes helpers of tests for no tests"
)]

mod common;

use std::fs::{self, Permissions};
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Stdio;
use std::thread;
use std::time::{Duration, Instant};

use common::{
    BOTH, Proto, Running, Server, address, export, is_iwarp, options, patience, rpcrdma, run, tree,
};

/// Returns a port on which nothing listens.
fn free_port() -> u16 {
    let listener = TcpListener::bind((address(), 0)).unwrap();
    listener.local_addr().unwrap().port()
}

#[track_caller]
fn with(proto: Proto, args: &[&str]) -> common::Finished {
    Running::start(rpcrdma().args(args).args(options(proto, ""))).finish()
}

#[test]
fn wrong_host() {
    for proto in BOTH {
        with(proto, &["ls", "nfs://no-such-host.invalid/data"])
            .fails_with(&["no-such-host.invalid"]);
    }
}

#[test]
fn an_address_of_the_wrong_kind() {
    for proto in ["rdma6", "tcp6"] {
        let options = format!("proto={proto}");
        run(["ping", "-o", &options, "127.0.0.1"]).fails_with(&["127.0.0.1", "IPv6"]);
    }
}

#[test]
fn refused_port() {
    let port = free_port();
    for proto in BOTH {
        with(proto, &["ls", &format!("nfs://{}:{port}/data", address())]).fails_with(&[
            &address().to_string(),
            &port.to_string(),
            "refused",
        ]);
        with(proto, &["ping", &format!("{}:{port}", address())]).fails_with(&["refused"]);
    }
}

#[test]
fn a_port_where_something_else_answers() {
    let listener = TcpListener::bind((address(), 0)).unwrap();
    let port = listener.local_addr().unwrap().port();
    thread::spawn(move || {
        while let Ok((mut stream, _)) = listener.accept() {
            Write::write_all(&mut stream, b"220 mail.example ESMTP\r\n").ok();
            std::io::copy(&mut stream, &mut std::io::sink()).ok();
        }
    });
    for proto in BOTH {
        with(proto, &["ls", &format!("nfs://{}:{port}/data", address())])
            .fails_with(&[&address().to_string()]);
    }
}

/// The other transport's port accepts the connection and then closes it. A user who confuses the
/// two gets an error with advice within seconds. (Other devices than iwarp have separate ports and
/// refuse at once.)
#[test]
fn the_port_of_the_other_transport() {
    let dir = tempfile::tempdir().unwrap();
    let server = Server::of(dir.path());
    for (proto, listening, advice) in [
        (Proto::Tcp, Proto::Rdma, "-o proto=rdma"),
        (Proto::Rdma, Proto::Tcp, "-o proto=tcp"),
    ] {
        let start = Instant::now();
        let at = address().to_string();
        let advice = if is_iwarp() { advice } else { "" };
        with(proto, &["ls", &server.url(listening, "/data")]).fails_with(&[&at, advice]);
        assert!(start.elapsed() < Duration::from_secs(20), "{proto:?}");
    }
}

#[test]
fn not_an_export() {
    let dir = tempfile::tempdir().unwrap();
    let server = Server::of(dir.path());
    for proto in BOTH {
        with(proto, &["ls", &server.url(proto, "/other")]).fails_with(&["/other", "export"]);
    }
}

#[test]
fn read_only_export() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("file");
    fs::write(&file, "hello").unwrap();
    let data = dir.path().join("data");
    fs::create_dir(&data).unwrap();
    let server = Server::start(["--export", &export("data", &data, "ro,no_root_squash")]);
    for proto in BOTH {
        let url = server.url(proto, "/data/file");
        with(proto, &["put", file.to_str().unwrap(), &url]).fails_with(&["read-only"]);
        let url = server.url(proto, "/data/dir");
        with(proto, &["mkdir", &url]).fails_with(&["/data/dir", "read-only"]);
    }
    assert_eq!(fs::read_dir(&data).unwrap().count(), 0);
}

#[test]
fn full_disk() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("file");
    fs::write(&file, tree::noise(8 << 20, 1)).unwrap();
    let server = Server::start(["--memory=1M"]);
    for proto in BOTH {
        let url = server.url(proto, "/memory/file");
        with(proto, &["put", file.to_str().unwrap(), &url]).fails_with(&["no space"]);
        // The server continues to work, and has space again when the file is removed.
        with(proto, &["rm", "-f", &url]).ok();
        let small = dir.path().join("small");
        fs::write(&small, "fits").unwrap();
        with(proto, &["put", small.to_str().unwrap(), &url]).ok();
        with(proto, &["rm", &url]).ok();
    }
}

#[test]
fn permission_denied() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("file");
    fs::write(&file, "hello").unwrap();
    let data = dir.path().join("data");
    fs::create_dir(&data).unwrap();
    fs::write(data.join("secret"), "x").unwrap();
    fs::set_permissions(data.join("secret"), Permissions::from_mode(0o000)).unwrap();
    fs::set_permissions(&data, Permissions::from_mode(0o555)).unwrap();
    // With all_squash, this applies to every user who runs the test, even to the local root.
    let server = Server::start(["--export", &export("data", &data, "rw,all_squash")]);
    for proto in BOTH {
        let url = server.url(proto, "/data/file");
        with(proto, &["put", file.to_str().unwrap(), &url]).fails_with(&["permission denied"]);
        let (url, back) = (server.url(proto, "/data/secret"), dir.path().join("back"));
        with(proto, &["get", &url, back.to_str().unwrap()])
            .fails_with(&["secret", "permission denied"]);
    }
    fs::set_permissions(&data, Permissions::from_mode(0o755)).unwrap();
}

#[test]
fn name_too_long() {
    let dir = tempfile::tempdir().unwrap();
    let server = Server::of(dir.path());
    let long = "x".repeat(256);
    for proto in BOTH {
        let url = server.url(proto, &format!("/data/{long}"));
        with(proto, &["mkdir", &url]).fails_with(&["name", "too long"]);
    }
}

#[test]
fn things_that_are_not_there_or_of_the_wrong_kind() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("file"), "x").unwrap();
    fs::create_dir_all(dir.path().join("dir/full")).unwrap();
    let server = Server::of(dir.path());
    let local = tempfile::tempdir().unwrap();
    let local = local.path().join("out");
    let local = local.to_str().unwrap();
    for proto in BOTH {
        let url = |path: &str| server.url(proto, path);
        with(proto, &["get", &url("/data/none"), local]).fails_with(&["none", "no such file"]);
        with(proto, &["put", "/no/such/file", &url("/data/x")])
            .fails_with(&["/no/such/file", "no such file"]);
        with(proto, &["get", &url("/data/dir"), local]).fails_with(&["directory", "-r"]);
        with(proto, &["rm", &url("/data/dir")]).fails_with(&["directory", "-r"]);
        with(proto, &["cat", &url("/data/dir")]).fails_with(&["directory"]);
        with(proto, &["ls", &url("/data/file/below")]).fails_with(&["not a directory"]);
        for command in ["ls", "stat"] {
            let advice = format!("`rpcrdma ls {}` lists what is there", url("/data/dir"));
            with(proto, &[command, &url("/data/dir/none")]).fails_with(&["no such file", &advice]);
        }
        with(proto, &["mkdir", &url("/data/dir")]).fails_with(&["exists"]);
        for command in ["mkdir", "rm"] {
            with(proto, &[command, &url("/data")]).fails_with(&["export's root"]);
            with(proto, &[command, &url("/data/dir/..")]).fails_with(&["`..`"]);
        }
        with(proto, &["ping", "--op", "read", &url("/data/dir")])
            .fails_with(&["/data/dir", "no regular file"]);
        with(proto, &["ping", "--op", "read", &url("/data/file")]).fails_with(&["1 bytes", "-s 1"]);
        with(proto, &["ping", "--op", "write", &url("/data/file")])
            .fails_with(&["not a directory"]);
    }
}

/// An operation on a file needs a URL, and the message names it as the option does.
#[test]
fn ping_of_a_file_on_no_file_at_all() {
    for op in ["getattr", "read", "write"] {
        let finished = run(["ping", "--op", op, "localhost:20049"]);
        assert_eq!(finished.status.code(), Some(2), "{finished:#?}");
        let wanted =
            format!("--op {op} needs an object on the server: nfs://localhost:20049/EXPORT/PATH");
        assert!(finished.stderr.contains(&wanted), "{finished:#?}");
    }
}

#[test]
fn what_ends_a_process_of_compare_is_said_once() {
    let args = [
        "compare",
        "--address",
        "192.0.2.1",
        "--ops",
        "null",
        "--via",
        "tcp",
    ];
    let finished = run(args).fails_with(&["192.0.2.1"]);
    let once = |finished: common::Finished| {
        let said = finished.stderr.matches("rpcrdma: ").count();
        assert_eq!(said, 1, "{finished:#?}");
    };
    once(finished);
    let args = ["compare", "--set-delay", "false", "--ops", "null"];
    once(run(args).fails_with(&["--set-delay"]));
}

#[test]
fn less_memory_than_one_connection_takes_is_refused() {
    let ports = ["--port", "0", "--tcp-port", "0"];
    let least = |more: &[&str]| {
        let serve = ["serve", "--memory", "--receive-memory", "1"];
        let finished = run([&serve, &ports[..], more].concat());
        assert_eq!(finished.status.code(), Some(2), "{finished:#?}");
        let (_, said) = finished.stderr.split_once("take at least ").unwrap();
        said.split(' ').next().unwrap().to_owned()
    };
    let plain: usize = least(&["--features", "cont"]).parse().unwrap();
    let placing: usize = least(&["--features", "ddp"]).parse().unwrap();
    assert!(plain < placing, "{plain} {placing}");
    if is_iwarp() {
        // The minimum that the message names suffices.
        let server = Server::start([
            "--memory",
            "--receive-memory",
            &plain.to_string(),
            "--features",
            "cont",
        ]);
        with(Proto::Rdma, &["ls", &server.url(Proto::Rdma, "/memory")]).ok();
    }
}

#[test]
fn usage_errors_have_exit_status_2() {
    for args in [
        &["ls"][..],
        &["ls", "http://server/export"],
        &["ls", "-o", "proto=pigeon", "nfs://server/export"],
        &["ls", "-o", "frobnicate=1", "nfs://server/export"],
        &["serve"],
        &["serve", "--export", "data=/nonexistent:frobnicate"],
        &["serve", "--memory=lots"],
        &["serve", "--memory", "lots"],
        &["serve", "--memory=0"],
        &["serve", "--memory", "--direct-io"],
        &["serve", "--memory", "--memory-limit", "1M"],
        &["ls", "-o", "features=ddp,cont", "nfs://server/export"],
        &[
            "ls",
            "-o",
            "features=ddp",
            "-o",
            "features=cont",
            "nfs://server/export",
        ],
        &["ping", "-s", "4k", "localhost"],
        &["compare", "--ops", "sing"],
        &["compare", "--time", "0"],
        &["compare", "--via", "v9"],
        &[
            "compare",
            "--reference",
            "/dev/null",
            "--device",
            "sim",
            "--busy-poll",
        ],
        &["ping", "-o", "proto=tcp,rpcrdma=2", "localhost"],
        &["ls", "-o", "tcp,device=iwarp", "nfs://server/export"],
        &[
            "ls",
            "-o",
            "registration=windows,proto=tcp6",
            "nfs://server/export",
        ],
        &["ls", "-o", "clientaddr=10.0.0.1,tcp", "nfs://server/export"],
        &["ls", "-o", "clientaddr=10.0.0.1", "nfs://server/export"],
        &["compare", "--html", "-", "--device", "sim"],
        &["compare", "--save-costs", "-"],
        &["compare", "--save-costs", "costs", "--delay", "1ms"],
        &["compare", "--save-costs", "costs", "--rate", "10g"],
        &[
            "compare",
            "--save-costs",
            "costs",
            "--set-delay",
            "true",
            "--delay",
            "1ms",
        ],
        &["frobnicate"],
    ] {
        let finished = run(args);
        assert_eq!(finished.status.code(), Some(2), "{args:?}: {finished:#?}");
        assert!(!finished.stderr.contains("panicked"), "{finished:#?}");
        assert!(!finished.stderr.is_empty(), "{args:?}");
    }
}

#[test]
fn serving_what_cannot_be_served() {
    run(["serve", "--export", "data=/no/such/directory"]).fails_with(&["/no/such/directory"]);
    let taken = TcpListener::bind((address(), 0)).unwrap();
    let port = taken.local_addr().unwrap().port().to_string();
    for flag in ["--port", "--tcp-port"] {
        let other = if flag == "--port" {
            "--tcp-port"
        } else {
            "--port"
        };
        let at = address().to_string();
        let message = run([
            "serve", "--memory", "--listen", &at, flag, &port, other, "0",
        ])
        .fails_with(&[&port, "in use", flag])
        .stderr;
        let said = message.matches("cannot listen").count();
        assert_eq!(said, 1, "{message}");
    }
    let nowhere = ["serve", "--memory", "--listen", "no-such-host.invalid"];
    run(nowhere).fails_with(&["--listen", "no-such-host.invalid"]);
    let elsewhere = ["serve", "--memory", "--listen", "192.0.2.1"];
    run(elsewhere).fails_with(&["192.0.2.1", "this machine does not have that address"]);
}

#[test]
fn a_slash_at_the_end_means_a_directory() {
    let dir = tempfile::tempdir().unwrap();
    let (data, file) = (dir.path().join("data"), dir.path().join("file"));
    let tree = dir.path().join("tree");
    fs::create_dir_all(data.join("there")).unwrap();
    fs::create_dir(&tree).unwrap();
    fs::write(tree.join("leaf"), "y").unwrap();
    fs::write(&file, "x").unwrap();
    let server = Server::of(&data);
    let file = file.to_str().unwrap();
    for proto in BOTH {
        let url = |path: &str| server.url(proto, path);
        with(proto, &["put", file, &url("/data/none/")])
            .fails_with(&["none/", "no such directory"]);
        assert!(!data.join("none").exists());
        with(proto, &["put", file, &url("/data/there/")]).ok();
        assert!(data.join("there/file").exists());
        let none = format!("{}/none/", dir.path().display());
        with(proto, &["get", &url("/data/there/file"), &none])
            .fails_with(&["none/", "not a directory"]);
        let new = format!("/data/new-{}/", proto.name());
        with(proto, &["put", "-r", tree.to_str().unwrap(), &url(&new)]).ok();
        let made = dir.path().join(&new[1..]);
        assert!(made.join("leaf").exists(), "a directory can be made so");
    }
}

#[test]
fn a_slip_in_an_option_is_understood() {
    let finished = run(["ls", "-o", "nconect=4", "nfs://server/export"]);
    assert_eq!(finished.status.code(), Some(2));
    assert!(
        finished.stderr.contains("did you mean nconnect="),
        "{finished:#?}"
    );
    for (args, meant) in [
        (&["compare", "--device", "simulator"][..], "or sim"),
        (
            &["compare", "--save-costs", "costs", "--delay", "1ms"],
            "--save-costs: not with --delay or --rate",
        ),
        (
            &["compare", "--json", "x", "--html", "x"],
            "--json and --html name one file",
        ),
        (
            &["compare", "--via", "v1,tcp", "--inline", "32k"],
            "--inline: of version 2",
        ),
        (
            &["compare", "--via", "tcp", "--capture", "x"],
            "only for NFS over RDMA",
        ),
        (
            &["ls", "-o", "port=1", "nfs://server:2/export"],
            "server:2 is at another port",
        ),
        (
            &["ls", "server:5:/export"],
            "did you mean nfs://server:5/export?",
        ),
        (&["sim", "--seeds", "5..5"], "after the last"),
        (
            &["serve", "--memory", "--inline", "300k"],
            "`300k` is not from 1k to 256k in steps of 1k",
        ),
        (
            &["ls", "-o", "inline=4k:1000", "nfs://server/export"],
            "mount option inline=4k:1000: 1k to 256k in steps of 1k",
        ),
        (
            &["ls", "-o", "proto=tcp,inline=8k", "nfs://server/export"],
            "mount option inline: only for NFS over RDMA",
        ),
    ] {
        let finished = run(args);
        assert_eq!(finished.status.code(), Some(2), "{finished:#?}");
        assert!(finished.stderr.contains(meant), "{finished:#?}");
    }
}

/// Waits until `done` returns true while `client` runs.
#[track_caller]
fn while_running(client: &mut Running, done: impl Fn() -> bool) {
    let start = Instant::now();
    while !done() {
        assert!(client.is_running(), "it ended too early");
        assert!(start.elapsed() < patience(), "nothing happens");
        thread::sleep(Duration::from_millis(2));
    }
}

#[track_caller]
fn died_of_interrupt(finished: common::Finished) -> common::Finished {
    let signal = std::os::unix::process::ExitStatusExt::signal(&finished.status);
    assert_eq!(signal, Some(2), "{finished:#?}");
    assert!(finished.stderr.contains(": interrupted"), "{finished:#?}");
    finished
}

#[test]
fn copies_that_are_interrupted_leave_nothing_unsaid() {
    let dir = tempfile::tempdir().unwrap();
    let (data, big) = (dir.path().join("data"), dir.path().join("big"));
    fs::create_dir(&data).unwrap();
    // Without holes, which are not copied.
    for long in [&big, &data.join("there")] {
        fs::write(long, vec![7; 64 << 20]).unwrap();
    }
    let server = Server::start([
        "--export",
        &export("data", &data, "no_root_squash"),
        "--rate",
        "160m",
    ]);
    for proto in BOTH {
        let name = proto.name();
        let url = server.url(proto, &format!("/data/{name}"));
        let mut put = rpcrdma();
        put.args(["put", "--rate", "160m"]).args(options(proto, ""));
        let mut put = Running::start(put.arg(&big).arg(&url));
        let sent = data.join(name);
        while_running(&mut put, || fs::metadata(&sent).is_ok_and(|m| m.len() > 0));
        put.interrupt();
        let finished = died_of_interrupt(put.finish());
        let told = format!("not complete on the server: {name} ");
        assert!(finished.stderr.contains(&told), "{finished:#?}");

        let back = dir.path().join(format!("back-{name}"));
        fs::create_dir(&back).unwrap();
        let mut get = rpcrdma();
        get.arg("get").args(options(proto, ""));
        let mut get = Running::start(get.arg(server.url(proto, "/data/there")).arg(&back));
        while_running(&mut get, || fs::read_dir(&back).unwrap().count() > 0);
        get.interrupt();
        died_of_interrupt(get.finish());
        assert_eq!(
            fs::read_dir(&back).unwrap().count(),
            0,
            "half a file is left"
        );
    }
}

/// The server dies in the middle of a copy and is restarted: the copy continues.
#[track_caller]
fn server_restart(proto: Proto, command: &str) {
    let dir = tempfile::tempdir().unwrap();
    let (source, data) = (dir.path().join("source"), dir.path().join("data"));
    tree::make_flat(&source, 40, 256 << 10);
    fs::create_dir(&data).unwrap();
    let export = [
        "--export".to_owned(),
        export("data", &data, "no_root_squash"),
    ];
    let rate = ["--rate".to_owned(), "40m".to_owned()];
    let slow = [&export[..], &rate[..]].concat();
    let server = Server::start(&slow);
    let (rdma, tcp) = (server.rdma.port(), server.tcp.port());
    let url = server.url(proto, "/data/tree");
    let back = dir.path().join("back");
    if command == "get" {
        // Getting needs only the tree itself.
        tree::make_flat(&data.join("tree"), 40, 256 << 10);
    }
    let mut client = rpcrdma();
    client
        .args([command, "-r"])
        .args(options(proto, ""))
        .args(&rate);
    match command {
        "put" => client.arg(&source).arg(&url),
        _ => client.arg(&url).arg(&back),
    };
    let mut client = Running::start(&mut client);

    // 10 MiB at 5 MB/s take two seconds.
    let copied_to = if command == "put" {
        data.join("tree")
    } else {
        back.clone()
    };
    let start = Instant::now();
    while fs::read_dir(&copied_to).map_or(0, Iterator::count) < 10 {
        assert!(start.elapsed() < patience(), "the copy does not start");
        thread::sleep(Duration::from_millis(2));
    }
    assert!(
        client.is_running(),
        "the copy is over before the server can be killed"
    );
    server.kill();
    thread::sleep(Duration::from_millis(300));
    assert!(client.is_running(), "the client gave up");
    let server = Server::start_on(rdma, tcp, &export);
    client.finish().ok();
    if command == "put" {
        tree::assert_same(&source, &data.join("tree"));
    } else {
        tree::assert_same(&data.join("tree"), &back);
    }
    drop(server);
}

#[test]
fn server_restart_during_put_over_rdma() {
    server_restart(Proto::Rdma, "put");
}

#[test]
fn server_restart_during_put_over_tcp() {
    server_restart(Proto::Tcp, "put");
}

#[test]
fn server_restart_during_get_over_rdma() {
    server_restart(Proto::Rdma, "get");
}

#[test]
fn server_restart_during_get_over_tcp() {
    server_restart(Proto::Tcp, "get");
}

/// Counts the sockets of a process. (Files may stay open for a while, because the server caches
/// some.)
#[cfg(target_os = "linux")]
fn sockets(pid: u32) -> usize {
    let descriptors = fs::read_dir(Path::new("/proc").join(pid.to_string()).join("fd")).unwrap();
    let targets = descriptors.filter_map(|entry| fs::read_link(entry.unwrap().path()).ok());
    targets
        .filter(|target| target.to_string_lossy().starts_with("socket:"))
        .count()
}

#[cfg(target_os = "linux")]
#[test]
fn a_killed_client_leaves_nothing_behind_on_the_server() {
    let dir = tempfile::tempdir().unwrap();
    let (source, data) = (dir.path().join("source"), dir.path().join("data"));
    tree::make_flat(&source, 40, 256 << 10);
    fs::create_dir(&data).unwrap();
    let mut server = Server::of(&data);
    for proto in BOTH {
        // The first client makes the server allocate what it keeps permanently.
        let root = server.url(proto, "/data");
        with(proto, &["ls", &root]).ok();
        let tree = data.join(proto.name());
        let url = server.url(proto, &format!("/data/{}", proto.name()));
        thread::sleep(Duration::from_millis(100));
        let before = sockets(server.pid());
        let mut client = Running::start(
            rpcrdma()
                .args(["put", "-r", "--rate", "20m"])
                .args(options(proto, "nconnect=4"))
                .args([source.to_str().unwrap(), &url]),
        );
        let start = Instant::now();
        while fs::read_dir(&tree).map_or(0, Iterator::count) < 5 {
            assert!(start.elapsed() < patience(), "the copy does not start");
            thread::sleep(Duration::from_millis(2));
        }
        assert!(client.is_running());
        // Connections of other devices are not sockets.
        assert!(sockets(server.pid()) > before || !(is_iwarp() || proto == Proto::Tcp));
        client.kill();
        let start = Instant::now();
        while sockets(server.pid()) > before {
            assert!(
                start.elapsed() < patience(),
                "connections of the dead client stay open"
            );
            thread::sleep(Duration::from_millis(10));
        }
        assert!(server.is_running());
        // The server still executes the calls that it has received, so files may still appear.
        let start = Instant::now();
        loop {
            let removal = with(proto, &["rm", "-r", &url]);
            if removal.status.success() {
                break;
            }
            let late = removal.stderr.contains("NFS3ERR_NOTEMPTY");
            assert!(late && start.elapsed() < patience(), "{removal:?}");
        }
    }
    assert!(server.terminate().success());
}

/// Names that would set a terminal's title, clear it, reverse text, or look like another message.
const NASTY: [&[u8]; 5] = [
    b"title\x1b]0;owned\x07\x1b[2J",
    b"bytes \x9b31m\xff",
    "gpj.\u{202e}exe\u{2066}".as_bytes(),
    b"line\nrpcrdma: all is well\r",
    "c1 \u{9b}31m\u{85}".as_bytes(),
];

#[track_caller]
fn is_plain(said: &common::Finished) {
    for text in [&said.stdout, &said.stderr] {
        let acts = |c: char| {
            let bidi =
                ('\u{202a}'..='\u{202e}').contains(&c) || ('\u{2066}'..='\u{2069}').contains(&c);
            (c.is_control() && c != '\n') || bidi
        };
        assert!(!text.contains(acts), "{text:?}");
        assert!(
            !text
                .lines()
                .any(|line| line.starts_with("rpcrdma: all is well")),
            "{text:?}"
        );
    }
}

#[test]
fn names_never_reach_a_terminal_raw() {
    use std::ffi::OsStr;
    use std::os::unix::ffi::OsStrExt;
    let dir = tempfile::tempdir().unwrap();
    let data = dir.path().join("data");
    fs::create_dir(&data).unwrap();
    for (n, name) in NASTY.iter().enumerate() {
        let path = data.join(OsStr::from_bytes(name));
        fs::create_dir(&path).unwrap();
        fs::write(path.join(OsStr::from_bytes(name)), "x").unwrap();
        let link = data.join(format!("link-{n}"));
        std::os::unix::fs::symlink(OsStr::from_bytes(name), link).unwrap();
    }
    let server = Server::of(&data);
    let url = server.url(Proto::Tcp, "/data");
    let log = |args: &[&str]| {
        let mut command = rpcrdma();
        // Log messages are escaped, too.
        command
            .env("RUST_LOG", "debug")
            .args(args)
            .args(options(Proto::Tcp, ""));
        Running::start(&mut command).finish()
    };
    for words in [&["ls", &url][..], &["ls", "-l", &url]] {
        let said = log(words).ok();
        is_plain(&said);
        for shown in [
            "\\u{1b}]0;owned\\u{7}",
            "\\x9b31m\\xff",
            "\\u{202e}exe",
            "line\\nrpcrdma",
        ] {
            assert!(said.stdout.contains(shown), "{shown}: {}", said.stdout);
        }
    }
    for n in 0..NASTY.len() {
        let said = log(&["stat", &format!("{url}/link-{n}")]).ok();
        is_plain(&said);
    }
    // A file is in the place of a directory, and the reverse: each is reported.
    let back = dir.path().join("back");
    fs::create_dir_all(back.join("data")).unwrap();
    for (n, name) in NASTY.iter().enumerate() {
        let here = back.join("data").join(OsStr::from_bytes(name));
        match n % 2 {
            0 => fs::write(here, "in the way").unwrap(),
            _ => fs::create_dir_all(here.join(OsStr::from_bytes(name))).unwrap(),
        }
    }
    let said = log(&["get", "-r", &url, back.to_str().unwrap()]);
    is_plain(&said);
    for shown in [
        "is not a directory",
        "is a directory",
        "\\u{1b}]0;owned",
        "\\u{202e}exe",
    ] {
        assert!(said.stderr.contains(shown), "{shown}: {}", said.stderr);
    }
    // Errors of the operating system are escaped, too.
    let missing = dir.path().join(OsStr::from_bytes(NASTY[0])).join("copy");
    let said = log(&["get", "-r", &url, missing.to_str().unwrap()]);
    is_plain(&said);
    said.fails_with(&["No such file", "\\u{1b}]0;owned"]);
    for name in NASTY {
        let path: String = name.iter().map(|byte| format!("%{byte:02x}")).collect();
        is_plain(&log(&["rm", &format!("{url}/{path}")]));
        is_plain(&log(&["cat", &format!("{url}/{path}")]));
    }
}

/// A hostile server offers programs that run as their owner, and devices. Both are copied only if
/// the options of mount(8) say so. What was lost is reported.
#[test]
fn a_server_plants_set_id_bits_and_devices_only_where_it_is_trusted() {
    let dir = tempfile::tempdir().unwrap();
    let data = dir.path().join("data");
    fs::create_dir(&data).unwrap();
    fs::write(data.join("shell"), "x").unwrap();
    fs::set_permissions(data.join("shell"), Permissions::from_mode(0o6755)).unwrap();
    let root = rustix::process::geteuid().is_root();
    if root {
        let kind = rustix::fs::FileType::CharacterDevice;
        let mode = rustix::fs::Mode::RUSR;
        rustix::fs::mknodat(rustix::fs::CWD, data.join("null"), kind, mode, 0x103).unwrap();
    } else {
        use std::io::Write;
        let line = b"left out, for it needs root: devices\n";
        std::io::stderr().write_all(line).unwrap();
    }
    let server = Server::of(&data);
    let url = server.url(Proto::Tcp, "/data");
    let back = dir.path().join("back");
    let get = |more: &str| {
        let to = back.to_str().unwrap();
        run([
            &["get", "-r", &url, to].map(str::to_owned)[..],
            &options(Proto::Tcp, more),
        ]
        .concat())
    };
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o7777;
    for (more, kept, set_id) in [
        ("", "(-o suid would keep", 0o755),
        ("dev", "(-o suid would keep", 0o755),
        ("suid", "", 0o6755),
        ("suid,dev", "", 0o6755),
        ("nosuid,nodev", "(-o nosuid)", 0o755),
    ] {
        let said = get(more);
        assert_eq!(mode(&back.join("shell")), set_id, "{more}");
        let lost = said.stderr.contains("1 file copied without set-id bits");
        assert_eq!(lost, !kept.is_empty(), "{more}: {}", said.stderr);
        assert!(said.stderr.contains(kept), "{more}: {}", said.stderr);
        assert_eq!(
            back.join("null").exists(),
            root && more.ends_with("dev") && more != "nosuid,nodev"
        );
        match more {
            // Something is missing that nobody has excluded.
            "" | "suid" if root => {
                drop(said.fails_with(&["not complete: 1 device left out", "-o dev"]))
            }
            "nosuid,nodev" if root => {
                assert!(said.ok().stderr.contains("1 device left out (-o nodev)"));
            }
            _ => drop(said.ok()),
        }
        fs::remove_dir_all(&back).unwrap();
    }
    // One's own files keep their bits on the way to a server.
    let own = dir.path().join("own");
    fs::write(&own, "x").unwrap();
    fs::set_permissions(&own, Permissions::from_mode(0o4711)).unwrap();
    run(["put", "-o", "proto=tcp", own.to_str().unwrap(), &url]).ok();
    assert_eq!(mode(&data.join("own")), 0o4711);
}

/// A key file that is empty, as after a power cut, or readable by other users.
#[test]
fn keys_that_are_no_secret() {
    let dir = tempfile::tempdir().unwrap();
    let key = dir.path().join("key");
    fs::write(&key, "").unwrap();
    let serve = |key: &Path| {
        let mut command = rpcrdma();
        let key = key.to_str().unwrap();
        command.args([
            "serve",
            "--memory",
            "--handle-key",
            key,
            "--port",
            "0",
            "--tcp-port",
            "0",
        ]);
        Running::start(command.args(common::server_place())).finish()
    };
    let path = key.to_str().unwrap();
    fs::set_permissions(&key, Permissions::from_mode(0o600)).unwrap();
    serve(&key).fails_with(&[path, "is empty", "remove the file"]);
    fs::write(&key, "0123456789abcdef").unwrap();
    for mode in [0o644, 0o640, 0o620] {
        fs::set_permissions(&key, Permissions::from_mode(mode)).unwrap();
        serve(&key).fails_with(&[path, "others than its owner", "chmod 600"]);
    }
}

/// Regression test: the set-up of an RDMA connection took ten seconds, whatever the mount options were.
#[test]
fn a_soft_mount_gives_up_a_silent_server_in_its_own_time() {
    let silent = TcpListener::bind((address(), 0)).unwrap();
    let target = silent.local_addr().unwrap().to_string();
    // Connection managers of verbs devices refuse at once where nobody listens.
    let silent_to = BOTH
        .into_iter()
        .filter(|&proto| is_iwarp() || proto == Proto::Tcp);
    for proto in silent_to {
        let start = Instant::now();
        let options = options(proto, "soft,timeo=5,retrans=1");
        let mut ping = rpcrdma();
        ping.args(["ping", "-c", "1", &target]).args(options);
        Running::start(&mut ping).finish().fails_with(&["no "]);
        let took = start.elapsed();
        let limits = Duration::from_secs(1)..Duration::from_secs(9);
        assert!(limits.contains(&took), "{took:?}");
    }
}

/// Answers RPC calls over TCP as a server whose callbacks were all answered with wrong data.
fn answer_that_callbacks_went_wrong(mut stream: TcpStream) -> std::io::Result<()> {
    /// The procedure that asks for the results of ordered callbacks.
    const STATE: u32 = 3;
    loop {
        let mut mark = [0; 4];
        stream.read_exact(&mut mark)?;
        let len = u32::from_be_bytes(mark) & 0x7fff_ffff;
        let mut call = vec![0; len as usize];
        stream.read_exact(&mut call)?;
        let word = |at: usize| u32::from_be_bytes(call[4 * at..4 * at + 4].try_into().unwrap());
        // A reply that is accepted, without a verifier, and successful (RFC 5531, section 9).
        let mut reply = vec![word(0), 1, 0, 0, 0, 0];
        if word(5) == STATE {
            // Made, answered, wrong, failed, and done.
            reply.extend([20, 0, 20, 0, 1]);
        }
        let mark = 0x8000_0000 | u32::try_from(4 * reply.len()).unwrap();
        let words = std::iter::once(mark).chain(reply);
        let record: Vec<u8> = words.flat_map(u32::to_be_bytes).collect();
        stream.write_all(&record)?;
    }
}

#[test]
fn callbacks_that_go_wrong_are_a_failure_also_if_nobody_reads_the_output() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let target = listener.local_addr().unwrap().to_string();
    thread::spawn(move || {
        for stream in listener.incoming().map_while(Result::ok) {
            thread::spawn(|| answer_that_callbacks_went_wrong(stream));
        }
    });
    for closed in [false, true] {
        let (reader, writer) = std::io::pipe().unwrap();
        let reader = (!closed).then_some(reader);
        let mut ping = rpcrdma();
        ping.args(["ping", "--callbacks", "-c", "20", "-v", &target])
            .args(options(Proto::Tcp, ""))
            .stdout(writer)
            .stderr(Stdio::piped());
        let pinged = ping.spawn().unwrap().wait_with_output().unwrap();
        drop(reader);
        let said = String::from_utf8_lossy(&pinged.stderr);
        assert_eq!(pinged.status.code(), Some(1), "{closed}: {said}");
        assert!(said.contains("not all of 20 callbacks went well"), "{said}");
    }
}
