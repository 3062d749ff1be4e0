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
use nfs_binding::server::{Export, ExportOptions, HandleKey, NfsServer, Privileges, Squash};
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
    /// Starts a server, with the privileges of `rpcrdma serve`.
    fn start(backend: impl FnOnce() -> Arc<dyn FileSystem> + Send + 'static) -> Self {
        let before = threads();
        let stop = Stop::new();
        let (tell, told) = channel();
        let until = stop.clone();
        let thread = thread::spawn(move || {
            let privileges = Privileges {
                directories: true,
                ..Privileges::default()
            };
            privileges.drop_others().unwrap();
            let export = Export {
                path: "/export".to_owned(),
                backend: backend(),
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
        // The file is made and checked in both runs, so that the difference has only the calls.
        let (few, many) = (self.load_in_rounds(op, 1), self.load_in_rounds(op, 6));
        let calls = many.2.saturating_sub(few.2).max(1) as f64;
        let each = |few: u64, many: u64| many.saturating_sub(few) as f64 / calls;
        (each(few.0, many.0), each(few.1, many.1))
    }

    /// Makes calls in this number of rounds. Returns the switches of threads, the nanoseconds of processor
    /// time, and the number of calls.
    fn load_in_rounds(&self, op: Op, rounds: u32) -> (u64, u64, u64) {
        let target = format!("x - proto=tcp nfs://{}/export", self.address);
        let plan = Plan {
            targets: vec![target.parse().unwrap()],
            ops: vec![op],
            connections: 1,
            in_flight: 16,
            threads: 1,
            time: Duration::from_millis(20),
            rounds,
        };
        let before = self.used();
        let outcome = load::run(&plan).unwrap();
        let after = self.used();
        let calls = outcome.rows.iter().map(|row| row.calls_made).sum();
        (after.0 - before.0, after.1 - before.1, calls)
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
    let memory = Running::start(|| Arc::new(MemoryFs::new(64 << 20).unwrap()));
    for parent in [Path::new("/dev/shm"), &std::env::temp_dir()] {
        let Ok(host) = tempfile::tempdir_in(parent) else {
            continue;
        };
        let path = host.path().to_owned();
        let open = move || DirectoryFs::open(&path, DirectoryOptions::default()).unwrap();
        let fs = open();
        if fs.nonblocking().unwrap().getattr(&fs.root()).is_none() {
            eprintln!(
                "left out, for a file system that is not known to answer at once: {parent:?}"
            );
            continue;
        }
        let is_tmpfs = fs.nonblocking().unwrap().is_in_memory();
        drop(fs);
        let directory = Running::start(move || Arc::new(open()));
        let ops = [Op::Getattr, Op::Read].into_iter();
        for op in ops.chain(is_tmpfs.then_some(Op::Write)) {
            let (mut switches, mut times) = (Vec::new(), [f64::INFINITY; 2]);
            for _ in 0..TURNS {
                let in_memory = memory.load(op).1;
                let (switched, time) = directory.load(op);
                switches.push(switched);
                times = [times[0].min(in_memory), times[1].min(time)];
            }
            // A turn costs several times as much if the client sends its calls one by one, and the server
            // takes each of them alone. On a busy machine, this happens to one server and not to the other.
            let (switches, ratio) = (median(switches), times[1] / times[0]);
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
