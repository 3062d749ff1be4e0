//! What a call to an exported directory costs the server, beside one to the file system in memory: switches
//! of threads, which are counted and limited, and processor time, which is printed.
#![allow(clippy::unwrap_used, reason = "tests")]

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::fs;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::mpsc::channel;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use nfs_binding::fs::directory::DirectoryOptions;
use nfs_binding::fs::{DirectoryFs, FileSystem, MemoryFs};
use nfs_binding::server::{Export, ExportOptions, HandleKey, NfsServer, Squash};
use rpc_transport::{Server, ServerOptions, Stop, TcpOptions, TcpServer};
use rpcrdma_benches::load::{self, Op, Plan};

/// How often the servers take turns.
const TURNS: usize = 5;
/// The maximum number of switches of threads for each call.
const MOST_SWITCHES: f64 = 0.3;

/// A server on threads of this process.
struct Running {
    address: SocketAddr,
    /// The numbers of its threads.
    threads: Vec<u32>,
    stop: Stop,
    thread: JoinHandle<()>,
}

fn threads() -> BTreeSet<u32> {
    let tasks = fs::read_dir("/proc/self/task").unwrap();
    tasks
        .filter_map(|task| task.ok()?.file_name().to_str()?.parse().ok())
        .collect()
}

impl Running {
    fn start(backend: Arc<dyn FileSystem>) -> Self {
        let before = threads();
        let stop = Stop::new();
        let (tell, told) = channel();
        let until = stop.clone();
        let thread = thread::spawn(move || {
            let export = Export {
                path: "/export".to_owned(),
                backend,
                options: ExportOptions {
                    squash: Squash::None,
                    secure: false,
                    ..ExportOptions::default()
                },
            };
            let service = NfsServer::new(vec![export], HandleKey::random().unwrap()).unwrap();
            let mut server = Server::new(Box::new(service), ServerOptions::default()).unwrap();
            let any_port = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
            let tcp = TcpServer::bind(any_port, TcpOptions::default()).unwrap();
            let address = tcp.local_addr();
            server.add_transport(Rc::new(RefCell::new(tcp))).unwrap();
            tell.send(address).unwrap();
            server.run(&until).unwrap();
        });
        let address = told.recv().unwrap();
        Self {
            address,
            threads: threads().difference(&before).copied().collect(),
            stop,
            thread,
        }
    }

    /// Returns the number of switches to and from its threads, and their processor time in nanoseconds.
    fn used(&self) -> (u64, u64) {
        let mut used = (0, 0);
        for thread in &self.threads {
            let read = |file: &str| fs::read_to_string(format!("/proc/self/task/{thread}/{file}"));
            let status = read("status").unwrap();
            let switches = status
                .lines()
                .find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"));
            used.0 += switches.unwrap().trim().parse::<u64>().unwrap();
            let schedule = read("schedstat").unwrap();
            let time = schedule.split_whitespace().next().unwrap();
            used.1 += time.parse::<u64>().unwrap();
        }
        used
    }

    /// Makes calls, 16 at a time. Returns the switches of threads and the nanoseconds of processor time
    /// that each took.
    fn load(&self, op: Op) -> (f64, f64) {
        let target = format!("x - proto=tcp nfs://{}/export", self.address);
        let plan = Plan {
            targets: vec![target.parse().unwrap()],
            ops: vec![op],
            connections: 1,
            in_flight: 16,
            threads: 1,
            time: Duration::from_millis(20),
            rounds: 5,
        };
        let before = self.used();
        let outcome = load::run(&plan).unwrap();
        let after = self.used();
        let calls = outcome.rows.iter().map(|row| row.calls_made).sum::<u64>() as f64;
        let each = |before: u64, after: u64| (after - before) as f64 / calls;
        (each(before.0, after.0), each(before.1, after.1))
    }

    fn end(self) {
        self.stop.stop();
        self.thread.join().unwrap();
    }
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

#[test]
fn calls_to_a_directory_cost_no_switches_of_threads() {
    let memory = Running::start(Arc::new(MemoryFs::new(64 << 20).unwrap()));
    for parent in [Path::new("/dev/shm"), &std::env::temp_dir()] {
        let Ok(host) = tempfile::tempdir_in(parent) else {
            continue;
        };
        let fs = DirectoryFs::open(host.path(), DirectoryOptions::default()).unwrap();
        if fs.nonblocking().unwrap().getattr(&fs.root()).is_none() {
            eprintln!(
                "left out, for a file system that is not known to answer at once: {parent:?}"
            );
            continue;
        }
        let directory = Running::start(Arc::new(fs));
        for op in [Op::Getattr, Op::Read] {
            let (mut switches, mut ratios) = (Vec::new(), Vec::new());
            for _ in 0..TURNS {
                let floor = memory.load(op).1;
                let (switched, time) = directory.load(op);
                switches.push(switched);
                ratios.push(time / floor);
            }
            let (switches, ratio) = (median(switches), median(ratios));
            let what = format!(
                "{} in {}: {switches:.3} switches and {ratio:.2} of the time in memory",
                op.name(),
                parent.display()
            );
            println!("{what}");
            assert!(switches <= MOST_SWITCHES, "{what}");
        }
        directory.end();
    }
    memory.end();
}
