//! Tests that existing connections keep working beside many peers that take all the memory they can
//! get.
#![allow(
    clippy::unwrap_used,
    reason = "clippy takes helpers of tests for no tests"
)]

mod common;

use std::fs;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use common::{
    BOTH, Proto, Running, Server, address, is_iwarp, patience, rpcrdma, rpcrdma_within, run,
    server_place,
};

/// The limit on descriptors of the server's process.
const DESCRIPTORS: u64 = 256;
/// The number of idle connections, nearly the limit.
const CROWD: usize = 250;
/// The number of files, in directories of a hundred. The server opens each, and keeps some tens
/// open.
const FILES: usize = 3000;

/// Regression test: 1,015 idle connections with `ulimit -n 1024` left no descriptors for files.
#[test]
fn idle_connections_leave_descriptors_for_files() {
    let (here, there) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let content = |file: usize| format!("content of {file}");
    let path = |file: usize| format!("tree/{:02}/{file}", file / 100);
    for file in 0..FILES {
        let path = here.path().join(path(file));
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, content(file)).unwrap();
    }
    let export = common::export("data", there.path(), "no_root_squash");
    let server = Server::start_within(DESCRIPTORS, ["--export", &export]);
    let mut put = rpcrdma();
    put.args(["put", "-r", "-o", "proto=tcp"])
        .arg(here.path().join("tree"))
        .arg(server.url(Proto::Tcp, "/data"));
    let mut put = Running::start(&mut put);
    let start = Instant::now();
    while !there.path().join("tree").exists() {
        assert!(
            put.is_running() && start.elapsed() < patience(),
            "nothing is copied"
        );
        thread::sleep(Duration::from_millis(1));
    }
    let crowd: Vec<_> = (0..CROWD)
        .map(|_| TcpStream::connect(server.tcp).unwrap())
        .collect();
    assert!(put.is_running(), "the copy was over before the crowd came");
    put.finish().ok();
    for file in 0..FILES {
        let copied = fs::read_to_string(there.path().join(path(file))).unwrap();
        assert_eq!(copied, content(file));
    }
    drop(crowd);
}

/// Writes a file with a content of its own.
fn write_at(dir: &Path, name: usize) {
    fs::create_dir_all(dir).unwrap();
    let file = dir.join(name.to_string());
    let content = file.to_str().unwrap().to_owned();
    fs::write(file, content).unwrap();
}

/// Asserts that each file of a tree has the content of the one with the same name below `like`, and
/// returns their number.
fn check_tree(tree: &Path, like: &Path) -> usize {
    let (mut files, mut todo) = (0, vec![std::path::PathBuf::new()]);
    while let Some(below) = todo.pop() {
        for entry in fs::read_dir(tree.join(&below)).unwrap() {
            let name = below.join(entry.unwrap().file_name());
            let [copy, original] = [tree, like].map(|top| top.join(&name));
            if copy.is_dir() {
                todo.push(name);
                continue;
            }
            files += 1;
            assert_eq!(fs::read(copy).unwrap(), fs::read(original).unwrap());
        }
    }
    files
}

/// Regression test: a copy kept a descriptor for each directory in progress and for each file in
/// flight, and failed where there were too few.
#[test]
fn trees_are_copied_with_few_descriptors() {
    let dir = tempfile::tempdir().unwrap();
    let tree = dir.path().join("tree");
    // A deep one, a wide one, and large directories in each other, each of which takes several
    // reads.
    let mut deep = tree.join("deep");
    for level in 0..100 {
        write_at(&deep, level);
        deep.push("d");
    }
    for wide in 0..100 {
        let path = format!("wide/{}/{}", wide / 10, wide % 10);
        write_at(&tree.join(&path), wide);
    }
    let mut large = tree.join("large");
    for _ in 0..2 {
        (0..520).for_each(|name| write_at(&large, name));
        large.push("l");
    }
    let files = 100 + 100 + 2 * 520;
    let there = dir.path().join("there");
    fs::create_dir(&there).unwrap();
    let export = common::export("data", &there, "no_root_squash,async");
    let server = Server::start(["--export", &export]);
    for (descriptors, proto) in [(64, Proto::Tcp), (256, Proto::Rdma)] {
        if proto == Proto::Rdma && !is_iwarp() {
            continue;
        }
        let copy = |words: &[&str]| {
            let mut copy = rpcrdma_within(descriptors);
            copy.args(
                [
                    words,
                    &common::options(proto, "")
                        .iter()
                        .map(String::as_str)
                        .collect::<Vec<_>>(),
                ]
                .concat(),
            );
            Running::start(&mut copy).finish().ok();
        };
        let name = format!("copy-{descriptors}");
        let url = server.url(proto, &format!("/data/{name}"));
        copy(&["put", "-r", tree.to_str().unwrap(), &url]);
        assert_eq!(check_tree(&there.join(&name), &tree), files);
        let back = dir.path().join(format!("back-{descriptors}"));
        copy(&["get", "-r", &url, back.to_str().unwrap()]);
        assert_eq!(check_tree(&back, &tree), files);
    }
}

/// Regression test: a WRITE beyond the limit on file sizes ended the server (SIGXFSZ), and so did a line of its
/// log that was beyond the limit. When that signal was handled, a thread panicked at the line.
#[test]
fn a_limit_on_file_sizes_fails_the_call_that_exceeds_it() {
    let (here, there) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let [large, small] = [("large", 1 << 20), ("small", 1 << 10)].map(|(name, size)| {
        let path = here.path().join(name);
        fs::write(&path, vec![7; size]).unwrap();
        path
    });
    let export = common::export("data", there.path(), "no_root_squash");
    // 32 or 64 KiB: the unit depends on the shell.
    let mut limited = common::rpcrdma_limited("-f 64");
    let log = fs::File::options()
        .append(true)
        .open(here.path().join("large"))
        .unwrap();
    limited.env("RUST_LOG", "debug").stderr(log);
    let mut server = Server::start_command(limited, 0, 0, ["--export", &export]);
    let url = server.url(Proto::Tcp, "/data");
    let put = |path: &Path| run(["put", "-o", "proto=tcp", path.to_str().unwrap(), &url]);
    put(&large).fails_with(&["too large"]);
    assert!(server.is_running());
    put(&small).ok();
    let copied = fs::read(there.path().join("small")).unwrap();
    assert_eq!(copied, vec![7; 1 << 10]);
    let log = fs::read(here.path().join("large")).unwrap();
    assert_eq!(log, vec![7; 1 << 20], "the log was below the limit");
}

/// Regression test: a server of several threads closed established connections beyond its limit, and clients
/// took that for a sign that it does not speak version 2.
#[test]
fn a_full_server_is_not_taken_for_one_of_another_version() {
    if !is_iwarp() {
        return;
    }
    let server = Server::start_within(150, ["--memory", "--threads", "2"]);
    let target = server.rdma.to_string();
    let ping = |options: &str, count: &str| {
        let mut ping = rpcrdma();
        ping.args(["ping", "-v", "-c", count, &target])
            .args(common::options(Proto::Rdma, options));
        ping
    };
    // More connections than there is room for.
    let mut crowd = Running::start(&mut ping("nconnect=16", "100000000"));
    for _ in 0..5 {
        let tried = Running::start(&mut ping("rpcrdma=2", "1")).finish();
        let said = &tried.stderr;
        assert!(tried.status.success() || said.contains("no room"), "{said}");
        assert!(!said.contains("version in common"), "{said}");
        assert!(crowd.is_running());
    }
    crowd.kill();
}

/// A call of NFSv3's NULL as a record.
fn null() -> Vec<u8> {
    let words: [u32; 11] = [0x8000_0028, 1, 0, 2, 100_003, 3, 0, 0, 0, 0, 0];
    words.iter().flat_map(|word| word.to_be_bytes()).collect()
}

/// Connects over TCP and makes a call of NULL.
fn call_null(server: &Server) -> TcpStream {
    let mut socket = TcpStream::connect(server.tcp).unwrap();
    socket.set_read_timeout(Some(patience())).unwrap();
    socket.write_all(&null()).unwrap();
    socket.read_exact(&mut [0; 28]).unwrap();
    socket
}

/// Regression test: as many connections as there may be, of one NULL each, kept everybody else out.
#[test]
fn idle_connections_keep_no_client_out() {
    const CONNECTIONS: usize = 20;
    for threads in ["1", "2"] {
        let connections = CONNECTIONS.to_string();
        let limits = ["--connections", &connections, "--threads", threads];
        let server = Server::start([&["--memory"], &limits[..]].concat());
        let crowd: Vec<_> = (0..CONNECTIONS).map(|_| call_null(&server)).collect();
        for proto in BOTH {
            let command = ["ls".to_owned(), server.url(proto, "/memory")];
            run([&command[..], &common::options(proto, "")[..]].concat()).ok();
        }
        // Those that are left are served.
        let mut last = crowd.last().unwrap();
        last.write_all(&null()).unwrap();
        last.read_exact(&mut [0; 28]).unwrap();
    }
}

/// `--connections` must leave at least 32 descriptors for files.
#[test]
fn connections_that_there_is_no_room_for_are_refused_with_advice() {
    let serve = |limits: &[&str]| {
        let mut serve = rpcrdma_within(DESCRIPTORS);
        serve
            .args(["serve", "--memory", "--threads", "1"])
            .args(limits);
        // This machine does not have that address.
        serve.args(["--listen", "192.0.2.1"]);
        Running::start(&mut serve).finish().stderr
    };
    let said = serve(&["--connections", "161"]);
    for word in [
        "--connections 161",
        "256 open files",
        "for 160",
        "ulimit -n",
    ] {
        assert!(said.contains(word), "{said}");
    }
    let said = serve(&["--connections", "160"]);
    assert!(said.contains("cannot listen"), "{said}");
    let said = serve(&["--connections", "105", "--memory-limit", "24M"]);
    for word in ["--connections 105", "24 MiB", "--memory-limit"] {
        assert!(said.contains(word), "{said}");
    }
    assert!(serve(&["--connections", "0"]).contains("from 1"));
}

/// Regression test: if the connection ended before any answer, the client reported that the server
/// lacks the version. The server may only lack room for another client.
#[test]
fn a_connection_that_is_closed_at_once_does_not_tell_the_version() {
    if !is_iwarp() {
        return;
    }
    let listener = TcpListener::bind((address(), 0)).unwrap();
    let target = listener.local_addr().unwrap().to_string();
    let accepted = thread::spawn(move || {
        let mut accepted = 0;
        // Until the client gives up.
        while let Ok((mut socket, _)) = listener.accept() {
            let mut head = [0; 20];
            if socket.read_exact(&mut head).is_err() {
                break;
            }
            let mut private = vec![0; usize::from(u16::from_be_bytes([head[18], head[19]]))];
            socket.read_exact(&mut private).unwrap();
            // RFC 5044, section 7.1, and RFC 6581, section 9: a Reply Frame without CRCs and
            // markers.
            let mut reply = *b"MPA ID Rep Frame\x10\x02\x00\x04\x00\x04\x00\x04";
            reply[16] |= head[16] & 0x40;
            socket.write_all(&reply).unwrap();
            accepted += 1;
        }
        accepted
    });
    let mut ping = rpcrdma();
    ping.args(["ping", "-c", "1", &target]);
    ping.args(common::options(Proto::Rdma, "rpcrdma=2"));
    let said = Running::start(&mut ping).finish();
    TcpStream::connect(&target).unwrap();
    assert!(accepted.join().unwrap() > 1, "it tries again");
    assert!(!said.status.success());
    for word in ["dropped the connection", "or has no room"] {
        assert!(said.stderr.contains(word), "{said:#?}");
    }
    assert!(!said.stderr.contains("version in common"), "{said:#?}");
}

/// Regression test: the server said that it lowers the number of connections, and then that it has too many
/// open files. Without `--threads`, it made as many threads as would leave 3 connections.
#[test]
fn threads_leave_descriptors_for_connections() {
    let mut refused = rpcrdma_within(150);
    refused.args(["serve", "--memory", "--threads", "64"]);
    let refused = Running::start(&mut refused).finish();
    assert_eq!(refused.status.code(), Some(2), "{refused:#?}");
    for word in [
        "--threads 64",
        "150 open files",
        "use --threads 2",
        "ulimit -n",
    ] {
        assert!(refused.stderr.contains(word), "{refused:#?}");
    }
    let server = Server::start_within(150, ["--memory"]);
    // With a second thread, there would be room for 3.
    let held: Vec<_> = (0..8)
        .map(|_| TcpStream::connect(server.tcp).unwrap())
        .collect();
    run(["ls", "-o", "proto=tcp", &server.url(Proto::Tcp, "/memory")]).ok();
    drop(held);
}

/// Regression test: only a log of `-v` said that there are fewer connections than were asked for; and over TCP,
/// such a server was sometimes given up.
#[test]
fn a_server_without_room_for_all_connections_serves_those_that_it_has() {
    let server = Server::start_within(150, ["--memory", "--threads", "2"]);
    for proto in BOTH {
        if proto == Proto::Rdma && !is_iwarp() {
            continue;
        }
        let mut ping = rpcrdma();
        let target = match proto {
            Proto::Rdma => server.rdma,
            Proto::Tcp => server.tcp,
        };
        ping.args(["ping", "-c", "5000", &target.to_string()]);
        ping.args(common::options(proto, "nconnect=16"));
        let said = Running::start(&mut ping).finish();
        assert!(said.status.success(), "{said:#?}");
        let warning = "not all connections can be made";
        assert!(said.stderr.contains(warning), "{said:#?}");
        assert!(said.stderr.contains("nconnect=16"), "{said:#?}");
    }
}

#[test]
fn memory_that_the_machine_does_not_have_is_noted() {
    let said = |limit| {
        // This machine does not have that address.
        let serve = ["serve", "--memory", "--listen", "192.0.2.1"];
        run([&serve[..], &["--memory-limit", limit]].concat()).stderr
    };
    assert!(said("1000T").contains("--memory-limit"));
    assert!(!said("256M").contains("--memory-limit"));
}

/// Regression test: it was lowered silently.
#[test]
fn receive_memory_beyond_its_part_is_lowered_with_a_note() {
    let said = |receives: &[&str]| {
        // This machine does not have that address.
        let serve = ["serve", "--memory", "--listen", "192.0.2.1"];
        let serve = [&serve[..], &["--memory-limit", "256M"], receives].concat();
        let said = run(serve).stderr;
        assert!(said.contains("cannot listen"), "{said}");
        said
    };
    let note = said(&["--receive-memory", "200M"]);
    assert!(note.contains("lowered to about 69 MiB"), "{note}");
    for fits in [&["--receive-memory", "64M"][..], &[]] {
        let said = said(fits);
        assert!(!said.contains("lowered"), "{said}");
    }
}

/// Regression test: each bad request once logged a line.
#[test]
fn bad_requests_do_not_fill_the_log() {
    const BAD: usize = 200;
    let port = {
        let free = TcpListener::bind((address(), 0)).unwrap();
        free.local_addr().unwrap().port()
    };
    let mut serve = rpcrdma();
    serve
        .args([
            "serve",
            "--memory",
            "--port",
            "0",
            "--tcp-port",
            &port.to_string(),
        ])
        .args(["--listen", &address().to_string()])
        .args(server_place());
    let mut serve = Running::start(&mut serve);
    let start = Instant::now();
    let connect = || TcpStream::connect((address(), port));
    while connect().is_err() {
        assert!(serve.is_running() && start.elapsed() < patience());
        thread::sleep(Duration::from_millis(5));
    }
    for _ in 0..BAD {
        let mut socket = connect().unwrap();
        socket.set_read_timeout(Some(patience())).unwrap();
        // A record of four bytes is not a call, so its connection is closed.
        socket.write_all(&[0x80, 0, 0, 4, 0, 0, 0, 7]).unwrap();
        assert_eq!(socket.read(&mut [0; 1]).unwrap_or(0), 0);
    }
    serve.interrupt();
    let said = serve.finish().stderr;
    let lines = said
        .lines()
        .filter(|line| line.contains("not an RPC call"))
        .count();
    assert!((1..=10).contains(&lines), "{lines} lines:\n{said}");
}
