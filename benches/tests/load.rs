//! The load generator against servers in this process, which count what arrives.
#![allow(clippy::unwrap_used, reason = "tests")]

use std::cell::RefCell;
use std::net::{Ipv4Addr, SocketAddr};
use std::process::{Command, Output};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::channel;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use bytes::Bytes;
use iwarp::Iwarp;
use nfs_binding::fs::MemoryFs;
use nfs_binding::proto::{NFS_PROGRAM, Procedure, ReadArgs, Xdr, nfs};
use nfs_binding::server::{Export, ExportOptions, HandleKey, NfsServer, Squash};
use onc_rpc::{Encoder, Message};
use rdma::Pool;
use rpc_transport::rdma::{RdmaServer, RdmaServerOptions};
use rpc_transport::{
    ProgramVersions, Request, Server, ServerOptions, ServerStats, Service, ServiceOutcome, Stop,
    TcpOptions, TcpServer,
};
use rpcrdma_benches::load::{self, FIXTURE_CALLS, Op, Outcome, Plan, READ_SIZE, Target};
use rpcrdma_protocols::RoundTripFeatures;
use rpcrdma_setup::Failure;

/// NFS3ERR_IO.
const IO: u32 = 5;
/// Procedures of NFS version 3.
const PROCEDURES: usize = 22;

/// The number of calls of each procedure.
type Counts = Arc<[AtomicU64; PROCEDURES]>;

/// What is wrong with a server.
#[derive(Clone, Copy)]
enum Fault {
    /// It answers the calls of an operation with an error, from a certain one on.
    Status(Op, u64),
    /// It returns zeroes to READs that are longer than those which are measured.
    Zeroes,
}

/// An NFS server that counts calls, and that may have a fault.
struct Counting {
    inner: NfsServer,
    counts: Counts,
    fault: Option<Fault>,
}

/// Returns the results of a READ of as many zeroes as were asked for.
fn zeroes(args: &ReadArgs) -> Encoder {
    let mut results = Encoder::new();
    // NFS3_OK, and no attributes.
    results.u32(0).u32(0).u32(args.count).bool(false);
    results.bulk(Bytes::from(vec![0; args.count as usize]));
    results
}

impl Service for Counting {
    fn programs(&self) -> &[ProgramVersions] {
        self.inner.programs()
    }

    fn call(&mut self, request: Request) -> ServiceOutcome {
        if request.prog == NFS_PROGRAM {
            let before = self.counts[request.proc as usize].fetch_add(1, Ordering::SeqCst);
            match self.fault {
                Some(Fault::Status(op, after))
                    if op.number() == request.proc && before >= after =>
                {
                    let mut results = Encoder::new();
                    results.u32(IO);
                    // No attributes before and after.
                    match op {
                        Op::Getattr => {}
                        Op::Read => drop(results.u32(0)),
                        Op::Write => drop(results.u32(0).u32(0)),
                    }
                    return ServiceOutcome::Done(Ok(results.finish()));
                }
                Some(Fault::Zeroes) if request.proc == Op::Read.number() => {
                    let args = ReadArgs::decode(&mut request.args()).unwrap();
                    if args.count > READ_SIZE {
                        return ServiceOutcome::Done(Ok(zeroes(&args).finish()));
                    }
                }
                _ => {}
            }
        }
        self.inner.call(request)
    }

    fn remember_reply(&self, prog: u32, vers: u32, proc: u32) -> bool {
        self.inner.remember_reply(prog, vers, proc)
    }

    fn has_changed(&self, prog: u32, vers: u32, proc: u32, results: &Message) -> bool {
        self.inner.has_changed(prog, vers, proc, results)
    }
}

/// A server on a thread of this process.
struct Running {
    tcp: SocketAddr,
    rdma: SocketAddr,
    counts: Counts,
    stop: Stop,
    thread: JoinHandle<ServerStats>,
}

impl Running {
    fn start(fault: Option<Fault>) -> Self {
        let counts = Counts::default();
        let stop = Stop::new();
        let (tell, told) = channel();
        let (counting, until) = (Arc::clone(&counts), stop.clone());
        let thread = thread::spawn(move || {
            let options = ExportOptions {
                squash: Squash::None,
                secure: false,
                ..ExportOptions::default()
            };
            let export = Export {
                path: "/memory".to_owned(),
                backend: Arc::new(MemoryFs::new(8 << 20).unwrap()),
                options,
            };
            let key = HandleKey::random().unwrap();
            let service = Counting {
                inner: NfsServer::new(vec![export], key).unwrap(),
                counts: counting,
                fault,
            };
            let mut server = Server::new(Box::new(service), ServerOptions::default()).unwrap();
            let any_port = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
            let tcp = TcpServer::bind(any_port, TcpOptions::default()).unwrap();
            let tcp_address = tcp.local_addr();
            server.add_transport(Rc::new(RefCell::new(tcp))).unwrap();
            let device = Iwarp::new(iwarp::Options::default(), Pool::new(64 << 20)).unwrap();
            let mut options = RdmaServerOptions::new(rpcrdma_protocols::base());
            options.common.protocols = rpcrdma_protocols::standard(&RoundTripFeatures::ALL);
            let mut rdma = RdmaServer::new(Box::new(device), options);
            let rdma_address = rdma.listen(any_port).unwrap();
            server.add_transport(Rc::new(RefCell::new(rdma))).unwrap();
            tell.send((tcp_address, rdma_address)).unwrap();
            server.run(&until).unwrap();
            server.stats()
        });
        let (tcp, rdma) = told.recv().unwrap();
        Self {
            tcp,
            rdma,
            counts,
            stop,
            thread,
        }
    }

    /// Returns the server as a target, over TCP or by a version of RPC-over-RDMA.
    fn target(&self, name: &str) -> Target {
        let (options, address) = match name {
            "tcp" => ("proto=tcp".to_owned(), self.tcp),
            version => (format!("rpcrdma={version}"), self.rdma),
        };
        let pid = std::process::id();
        format!("{name} {pid} {options} nfs://{address}/memory")
            .parse()
            .unwrap()
    }

    fn count(&self, proc: u32) -> u64 {
        self.counts[proc as usize].load(Ordering::SeqCst)
    }

    fn end(self) -> ServerStats {
        self.stop.stop();
        self.thread.join().unwrap()
    }
}

fn plan(targets: Vec<Target>) -> Plan {
    Plan {
        targets,
        ops: Op::ALL.to_vec(),
        connections: 3,
        in_flight: 5,
        threads: 2,
        time: Duration::from_millis(10),
        rounds: 5,
    }
}

fn made(outcome: &Outcome, op: Op) -> u64 {
    let rows = outcome.rows.iter().filter(|row| row.op == op);
    rows.map(|row| row.calls_made).sum()
}

/// Every call that the generator counts arrived at the server once, and no other call did.
#[test]
fn the_counts_are_those_of_the_server() {
    for way in ["tcp", "1", "2", "2wg"] {
        let server = Running::start(None);
        let outcome = load::run(&plan(vec![server.target(way)])).unwrap();
        // Every call of a round is counted even in the shortest one.
        assert!(
            outcome.rows.iter().all(|row| row.calls >= 5 * 15),
            "{way}: {outcome:?}"
        );
        assert!(
            outcome.rows.iter().all(|row| row.calls_made > row.calls),
            "{way}: {outcome:?}"
        );
        // The root of the export is asked for its attributes to find the directory of the file.
        assert_eq!(
            server.count(Op::Getattr.number()),
            made(&outcome, Op::Getattr) + 1,
            "{way}"
        );
        for op in [Op::Read, Op::Write] {
            assert_eq!(
                server.count(op.number()),
                made(&outcome, op) + FIXTURE_CALLS,
                "{way}"
            );
        }
        assert_eq!(server.count(nfs::Create::NUMBER), 1, "{way}");
        assert_eq!(server.count(nfs::Remove::NUMBER), 1, "{way}");
        let arrived: u64 = (0..PROCEDURES as u32).map(|proc| server.count(proc)).sum();
        let stats = server.end();
        // The rest are calls of MOUNT and of NULL.
        assert!(
            stats.calls >= arrived && stats.calls < arrived + 50,
            "{way}: {stats:?}"
        );
        assert_eq!(
            (stats.replayed, stats.joined, stats.garbage),
            (0, 0, 0),
            "{way}"
        );
    }
}

/// Servers that take turns have their own figures, and ratios to the first one.
#[test]
fn servers_take_turns() {
    let (one, other) = (Running::start(None), Running::start(None));
    let mut targets = vec![one.target("tcp"), other.target("2")];
    let plan = Plan {
        rounds: 6,
        ..plan(targets.clone())
    };
    let outcome = load::run(&plan).unwrap();
    assert_eq!(outcome.rows.len(), 6);
    for rows in outcome.rows.chunks(2) {
        let [first, second] = rows else {
            unreachable!()
        };
        assert_eq!((&*first.target, &*second.target), ("tcp", "2"));
        assert_eq!((first.ratio, first.rate_ratio), (Some(1.0), 1.0));
        let (low, high) = second.ratio_interval.unwrap();
        let ratio = second.ratio.unwrap();
        assert!(low <= ratio && ratio <= high && low > 0.0, "{second:?}");
        assert!(second.server_us.unwrap() > 0.0, "{second:?}");
    }
    let text = load::text(&plan, &outcome);
    assert!(
        text.lines().all(|line| line.chars().count() <= 100),
        "{text}"
    );
    // A second server by the same name could not be told from the first one.
    targets[1].name = targets[0].name.clone();
    let same = load::run(&self::plan(targets)).unwrap_err();
    assert!(matches!(same, Failure::Usage(_)), "{same}");
    for server in [one, other] {
        assert_eq!(server.count(nfs::Create::NUMBER), 1);
        server.end();
    }
}

/// A server that answers with an error ends the run, and the test file is removed all the same.
#[test]
fn an_error_of_the_server_is_a_failure() {
    for way in ["tcp", "2"] {
        for op in Op::ALL {
            let server = Running::start(Some(Fault::Status(op, FIXTURE_CALLS + 40)));
            let failure = load::run(&plan(vec![server.target(way)])).unwrap_err();
            let text = failure.to_string();
            assert!(
                text.contains(op.procedure()) && text.contains("IO"),
                "{way}: {text}"
            );
            assert_eq!(server.count(nfs::Remove::NUMBER), 1, "{way} {op}");
            server.end();
        }
    }
}

/// Data that is not what was written is found when the calls have been made.
#[test]
fn wrong_data_is_a_failure() {
    let server = Running::start(Some(Fault::Zeroes));
    let failure = load::run(&plan(vec![server.target("tcp")])).unwrap_err();
    assert!(
        failure
            .to_string()
            .contains("not the bytes that were written"),
        "{failure}"
    );
    assert_eq!(server.count(nfs::Remove::NUMBER), 1);
    server.end();
}

/// A server that ends during the run is a failure and no endless wait.
#[test]
fn a_server_that_ends_is_a_failure() {
    let server = Running::start(None);
    let target = server.target("tcp");
    let plan = Plan {
        time: Duration::from_secs(5),
        ..plan(vec![Target {
            // The file cannot be removed from a server that has gone.
            options: format!("{},soft,timeo=1,retrans=1", target.options),
            ..target
        }])
    };
    let running = thread::spawn(move || load::run(&plan).unwrap_err().to_string());
    while server.count(Op::Getattr.number()) < 100 && !running.is_finished() {
        thread::sleep(Duration::from_millis(1));
    }
    server.end();
    let text = running.join().unwrap();
    assert!(text.contains("connection"), "{text}");
}

fn command(args: &[&str]) -> Output {
    let output = Command::new(env!("CARGO_BIN_EXE_load"))
        .args(args)
        .output()
        .unwrap();
    assert!(
        !String::from_utf8_lossy(&output.stderr).contains("panicked"),
        "{output:?}"
    );
    output
}

#[test]
fn the_program_prints_tables_and_writes_json() {
    let server = Running::start(None);
    let target = server.target("tcp");
    let url = format!("nfs://{}/memory", server.tcp);
    let pid = std::process::id().to_string();
    let beside = format!("v1 - rpcrdma=1 nfs://{}/memory", server.rdma);
    let mut args = vec![
        "-o",
        &target.options,
        "--server-pid",
        &pid,
        "--beside",
        &beside,
    ];
    args.extend([
        "-t",
        "5ms",
        "-r",
        "6",
        "--ops",
        "read,getattr",
        "--name",
        "a name of 20 letters",
    ]);
    args.push(&url);
    let printed = command(&args);
    assert!(printed.status.success(), "{printed:?}");
    let text = String::from_utf8(printed.stdout).unwrap();
    assert!(
        text.lines().all(|line| line.chars().count() <= 100),
        "{text}"
    );
    assert!(text.find("read 4 KiB") < text.find("getattr"), "{text}");
    assert!(text.contains("latency includes queueing"), "{text}");
    args.extend(["--json", "-"]);
    let written = command(&args);
    let json: serde_json::Value = serde_json::from_slice(&written.stdout).unwrap();
    assert_eq!(json["rounds"], 6);
    let rows = json["rows"].as_array().unwrap();
    assert_eq!(rows.len(), 4);
    assert!(rows[0]["server_us"].as_f64().unwrap() > 0.0);
    assert!(rows[1]["server_us"].is_null() && rows[1]["ratio"].is_null());
    assert!(rows[1]["rate_ratio"].as_f64().unwrap() > 0.0);
    server.end();
}

#[test]
fn wrong_input_is_explained() {
    let url = "nfs://127.0.0.1:1/memory";
    for (args, status, said) in [
        (&["-o", "proto=tcp", url][..], 1, "cannot connect"),
        (&["-o", "proto=tpc", url], 2, "proto=tpc"),
        (&["-o", "nconnect=2", url], 2, "--connections"),
        (&["-r", "4", url], 2, "--rounds"),
        (&["-c", "0", url], 2, "--connections"),
        (&["-c", "1", "--threads", "2", url], 2, "threads"),
        (&["-t", "0", url], 2, "time"),
        (&["--ops", "null", url], 2, "getattr, read or write"),
        (&["--ops", "read,read", url], 2, "twice"),
        (&["--server-pid", "0", url], 2, "--server-pid"),
        (&["--server-pid", "8388609", url], 1, "8388609"),
        (&["--beside", "x y", url], 2, "NAME PID OPTIONS URL"),
        (&["127.0.0.1"], 2, "nfs://"),
        (&[], 2, "nfs://"),
    ] {
        let output = command(args);
        assert_eq!(output.status.code(), Some(status), "{args:?}: {output:?}");
        let text = String::from_utf8_lossy(&output.stderr);
        assert!(text.contains(said), "{args:?}: {text}");
    }
}
