//! What a crowd that takes all there is leaves to those who were there before.

mod common;

use std::fs;
use std::net::TcpStream;
use std::thread;
use std::time::{Duration, Instant};

use common::{Proto, Running, Server, patience, rpcrdma};

/// What the server's process may have.
const DESCRIPTORS: u64 = 256;
/// Connections that do nothing: nearly as many.
const CROWD: usize = 250;
/// Files, in folders of a hundred. Each is opened at the server, and some tens are kept open.
const FILES: usize = 3000;

/// 1,015 idle connections under `ulimit -n 1024` left no descriptor for files.
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
