//! Benchmarks a server under a crowd of hostile connections, beside which an honest client works:
//! the memory of the server, the latency of GETATTR, and whether a copy succeeds. Ends with an
//! error if a bound does not hold.
//!
//! The server is a process of its own, configured like `rpcrdma serve --threads 1 --memory-limit 256M`, and
//! counts its allocations. Members of the crowd reconnect whenever they are disconnected. Most of them
//! come over RDMA, or with the argument `tcp` over TCP.

#![allow(clippy::print_stdout, reason = "it is its own harness")]

mod honest;
mod mob;
mod served;

use std::process::ExitCode;
use std::thread;
use std::time::{Duration, Instant};

use hostile::{Wrong, wrong};
use peak_alloc::PeakAlloc;
use rpc_transport::limits;

#[global_allocator]
static MEMORY: PeakAlloc = PeakAlloc;

/// The memory limit of the server, bytes.
const LIMIT: usize = 256 << 20;
/// The numbers of hostile connections over the one transport and over the other.
const MANY: usize = 1024;
const FEW: usize = 64;
/// The bytes that the honest client copies.
const COPY: usize = 1 << 30;

/// The bounds that must hold: the memory that the server allocates, in bytes, and the latency of
/// GETATTR (`SLOWEST_GETATTR`).
const MOST_ALLOCATED: usize = 320 << 20;
const SLOWEST_GETATTR: Duration = Duration::from_millis(50);
/// The minimum duration. The server's time-outs of inactive peers are at most 30 s.
const AT_LEAST: Duration = Duration::from_secs(35);
/// The maximum duration, after which the benchmark fails.
const AT_MOST: Duration = Duration::from_secs(115);

fn main() -> ExitCode {
    let mut args = std::env::args().skip(1);
    let result = match (args.next().as_deref(), args.next()) {
        (Some(served::SERVE), Some(directory)) => served::serve(directory.as_ref(), LIMIT, &MEMORY),
        _ => match std::env::args().any(|arg| arg == "tcp") {
            true => run(MANY, FEW),
            false => run(FEW, MANY),
        },
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(what) => {
            println!("FAILED: {what}");
            ExitCode::FAILURE
        }
    }
}

fn mib(bytes: usize) -> f64 {
    bytes as f64 / f64::from(1 << 20)
}

/// Runs the benchmark with so many hostile connections over TCP and over RDMA.
fn run(tcp: usize, rdma: usize) -> Result<(), Wrong> {
    thread::spawn(|| {
        thread::sleep(AT_MOST);
        println!("FAILED: not done within {AT_MOST:?}");
        std::process::exit(1);
    });
    limits::raise_descriptors().1.map_err(wrong)?;
    let directory = tempfile::tempdir().map_err(wrong)?;
    let mut server = served::Child::start(directory.path())?;
    let (address, file) = (server.addresses, honest::prepare(server.addresses)?);
    let start = Instant::now();
    let copying = honest::copy_connected(address, COPY)?;
    let looking = honest::look_connected(address)?;
    let mob = mob::Mob::gather(address, file, tcp, rdma)?;
    let figures = server.figures()?;
    println!(
        "{tcp} hostile connections over TCP, {rdma} over RDMA: receives take {:.1} MiB before they \
         say anything",
        mib(figures.receives)
    );
    mob.begin();
    let looking = looking.begin();
    // The crowd should have its full effect when the copy begins.
    thread::sleep(Duration::from_secs(3));
    let copied = copying.run()?;
    while start.elapsed() < AT_LEAST {
        thread::sleep(Duration::from_millis(100));
    }
    let waits = looking.end()?;
    let thrown_out = mob.end()?;
    let last = server.figures()?;
    let intact = honest::is_intact(directory.path(), COPY)?;
    println!("thrown out, and back again: {thrown_out} times");
    println!(
        "the server allocated at most {:.1} MiB, all told (bound {:.0})",
        mib(last.peak),
        mib(MOST_ALLOCATED)
    );
    println!(
        "GETATTR beside it: {} calls, median {:.2} ms, p99 {:.2} ms (bound {}), longest {:.2} ms",
        waits.calls,
        waits.median.as_secs_f64() * 1e3,
        waits.p99.as_secs_f64() * 1e3,
        SLOWEST_GETATTR.as_millis(),
        waits.longest.as_secs_f64() * 1e3
    );
    println!(
        "copy of {:.0} MiB beside it: {:.1} s, intact: {intact}",
        mib(COPY),
        copied.as_secs_f64()
    );
    let held = [
        (last.peak < MOST_ALLOCATED, "memory"),
        (waits.p99 < SLOWEST_GETATTR, "GETATTR"),
        (intact, "the copy"),
    ];
    for (holds, what) in held {
        if !holds {
            return Err(wrong(format!("the bound on {what} does not hold")));
        }
    }
    Ok(())
}
