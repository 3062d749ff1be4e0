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
use std::time::{Duration, Instant};

use nfs_binding::client::NfsUrl;
use nfs_binding::fs::directory::DirectoryOptions;
use nfs_binding::fs::{DirectoryFs, FileSystem, MemoryFs};
use nfs_binding::server::{Export, ExportOptions, HandleKey, NfsServer, Privileges, Squash};
use rpc_transport::{Server, ServerOptions, Stop, TcpOptions, TcpServer};
use rpcrdma_programs::workload::{Op, Pace, Prepared, Server as Place, Until, drive};
use rpcrdma_setup::access::{Access, LinkOptions};
use rpcrdma_setup::mount_options::MountOptions;

/// How often the servers take turns.
const TURNS: usize = 5;
/// The time of calls in a turn.
const TIME: Duration = Duration::from_millis(100);
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
        let url: NfsUrl = format!("nfs://{}/export", self.address).parse().unwrap();
        let mount = MountOptions::parse("proto=tcp").unwrap();
        let access = Access::new(mount, LinkOptions::default(), None).unwrap();
        let mounted = access.mount(&url).unwrap();
        let (runtime, client) = (&mounted.reached.runtime, &mounted.reached.client);
        let server = Place::new(client, Some(mounted.mount.root()), 0);
        let prepared = runtime.block_on(Prepared::new(&op, server)).unwrap();
        let start = Instant::now();
        let now = || start.elapsed();
        let before = self.used();
        let pace = (Pace::InFlight(16), Until::Elapsed(TIME));
        let calls = runtime.block_on(drive(client, &prepared, pace, 0, &now, |_| ()));
        let (after, calls) = (self.used(), calls.unwrap() as f64);
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
        let ops = [Op::Getattr, Op::Read(4096)].into_iter();
        for op in ops.chain(is_tmpfs.then_some(Op::Write(8192))) {
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
                "{op} in {}: {switches:.3} switches and {ratio:.2} of the time in memory",
                parent.display()
            );
            println!("{what}");
            assert!(switches <= MOST_SWITCHES, "{what}");
        }
        directory.end();
    }
    memory.end();
}
