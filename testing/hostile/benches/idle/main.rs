//! Measures what connections without calls cost a server: its memory for each, whether that is given
//! back when they have ended, and what calls take beside them and on many connections in turn. Ends
//! with an error if a bound does not hold.
//!
//! The server is a process of its own, configured like `rpcrdma serve --threads 1`, because client and server
//! have a descriptor for each connection. Memory is what the server's process has in user space:
//! its resident pages. With an argument, see [`full`].

#![allow(clippy::print_stdout, reason = "it is its own harness")]

mod client;
mod full;
mod served;

use std::process::ExitCode;
use std::thread;
use std::time::{Duration, Instant};

use hostile::{Wrong, wrong};
use rpc_transport::limits;

use client::Client;
use served::Child;

/// The number of idle connections.
const IDLE: usize = 10_000;
/// The number of connections on which calls are made in turn.
const ACTIVE: usize = 1_000;
/// The number of descriptors that each process needs beside those of connections.
const OTHERS: u64 = 100;
/// The number of calls in each measurement, and of measurements. Their medians are compared.
const CALLS: usize = 4_000;
const ROUNDS: usize = 7;

/// The bounds that must hold: user-space memory of the server for each connection, in bytes; how
/// much longer a call takes beside idle connections, and with calls on many connections in turn;
/// how long memory may take to come back, and the part of it that may stay.
const MOST_EACH: usize = 64 << 10;
const MOST_BESIDE: f64 = 1.2;
const MOST_IN_TURN: f64 = 1.3;
const GIVEN_BACK_WITHIN: Duration = Duration::from_secs(60);
const KEPT_PART: usize = 10;

/// The maximum duration, after which the benchmark fails.
const AT_MOST: Duration = Duration::from_secs(230);

fn main() -> ExitCode {
    let mut args = std::env::args().skip(1);
    let (first, second) = (args.next(), args.next());
    let mode = [&first, &second].into_iter().flatten();
    let mode = mode.filter_map(|arg| full::Mode::parse(arg)).next();
    let result = match (first.as_deref(), second) {
        (Some(served::SERVE), Some(count)) => count.parse().map_err(wrong).and_then(served::serve),
        _ => mode.map_or_else(run, full::run),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(what) => {
            println!("FAILED: {what}");
            ExitCode::FAILURE
        }
    }
}

fn kib(bytes: usize) -> f64 {
    bytes as f64 / 1024.0
}

/// Makes the benchmark fail after the maximum duration, and raises the limit on descriptors.
fn prepare() -> Result<(), Wrong> {
    thread::spawn(|| {
        thread::sleep(AT_MOST);
        println!("FAILED: not done within {AT_MOST:?}");
        std::process::exit(1);
    });
    let (descriptors, raised) = limits::raise_descriptors();
    raised.map_err(wrong)?;
    let needed = IDLE as u64 + OTHERS;
    if descriptors < needed {
        let what = format!("{descriptors} descriptors are possible, {needed} are needed");
        return Err(wrong(what));
    }
    Ok(())
}

fn run() -> Result<(), Wrong> {
    prepare()?;
    let mut server = Child::start(IDLE + ACTIVE)?;
    let mut alone = Client::connect(server.address, 1)?;
    let before = server.resident()?;
    let without = alone.median(CALLS, ROUNDS)?;

    let start = Instant::now();
    let mut idle = Client::connect(server.address, IDLE)?;
    let connected = start.elapsed();
    let with = server.resident()?;
    let each = with.saturating_sub(before) / IDLE;
    let beside = alone.median(CALLS, ROUNDS)?;
    println!(
        "{IDLE} idle connections, made in {:.1} s: {:.1} KiB of the server's memory each (bound \
         {:.0})",
        connected.as_secs_f64(),
        kib(each),
        kib(MOST_EACH)
    );

    // The same client makes calls on one connection and on many in turn, so that it has as many
    // connections in both cases.
    idle.in_turn(1);
    let one = idle.median(CALLS, ROUNDS)?;
    idle.in_turn(ACTIVE);
    let many = idle.median(CALLS, ROUNDS)?;

    drop(idle);
    let start = Instant::now();
    let most_kept = before + with.saturating_sub(before) / KEPT_PART;
    let mut left = server.resident()?;
    while left > most_kept && start.elapsed() < GIVEN_BACK_WITHIN {
        thread::sleep(Duration::from_millis(500));
        left = server.resident()?;
    }
    println!(
        "given back: {:.1} of {:.1} MiB within {:.0} s of their end",
        kib(with.saturating_sub(left)) / 1024.0,
        kib(with.saturating_sub(before)) / 1024.0,
        start.elapsed().as_secs_f64()
    );
    // What of that is the network's: the same calls over TCP.
    let mut over_tcp = Client::connect_tcp(server.tcp, ACTIVE)?;
    over_tcp.in_turn(1);
    let tcp_one = over_tcp.median(CALLS, ROUNDS)?;
    over_tcp.in_turn(ACTIVE);
    let tcp_many = over_tcp.median(CALLS, ROUNDS)?;
    let ratio = |of: Duration, to: Duration| of.as_secs_f64() / to.as_secs_f64();
    let (beside_ratio, in_turn) = (ratio(beside, without), ratio(many, one));
    println!(
        "a call takes {:.1} us alone and {:.1} us beside them: {beside_ratio:.3} (bound \
         {MOST_BESIDE})",
        without.as_secs_f64() * 1e6,
        beside.as_secs_f64() * 1e6
    );
    println!(
        "a call takes {:.1} us on one of them and {:.1} us on {ACTIVE} in turn: {in_turn:.3} (bound \
         {MOST_IN_TURN})",
        one.as_secs_f64() * 1e6,
        many.as_secs_f64() * 1e6
    );
    println!(
        "over TCP, for comparison: {:.1} us on one of {ACTIVE} and {:.1} us on all in turn: {:.3}",
        tcp_one.as_secs_f64() * 1e6,
        tcp_many.as_secs_f64() * 1e6,
        ratio(tcp_many, tcp_one)
    );
    let held = [
        (each <= MOST_EACH, "memory"),
        (left <= most_kept, "memory given back"),
        (beside_ratio <= MOST_BESIDE, "calls beside idle connections"),
        (in_turn <= MOST_IN_TURN, "calls on connections in turn"),
    ];
    for (holds, what) in held {
        if !holds {
            return Err(wrong(format!("the bound on {what} does not hold")));
        }
    }
    Ok(())
}
