//! A server at its limit on connections: the memory of each, also after a burst of calls on all,
//! and how soon a new client gets in while all others only send NULL. The argument says over what:
//! `tcp`, `1` or `2` (a version of RPC-over-RDMA).

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use hostile::{Wrong, wrong};
use rpc_transport::rdma::Version;

use crate::client::Client;
use crate::served::Child;
use crate::{IDLE, MOST_EACH, kib, prepare};

/// The number of calls of a burst on each connection, and of connections that have theirs at the
/// same time.
const BURST: usize = 100;
const TOGETHER: usize = 500;
/// The number of clients that come when the server is full.
const NEWCOMERS: usize = 20;
/// How soon each must have its first reply.
const SOON: Duration = Duration::from_secs(1);
/// How long a client that was refused waits before it tries again.
const PAUSE: Duration = Duration::from_millis(20);
/// How long the server has to give memory back after the burst.
const GIVEN_BACK_WITHIN: Duration = Duration::from_secs(30);

/// The transport of the connections.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Mode {
    Tcp,
    Rdma(Version),
}

impl Mode {
    pub(crate) fn parse(text: &str) -> Option<Self> {
        match text {
            "tcp" => Some(Self::Tcp),
            "1" => Some(Self::Rdma(Version::ONE)),
            "2" => Some(Self::Rdma(Version::TWO)),
            _ => None,
        }
    }

    fn connect(self, rdma: SocketAddr, tcp: SocketAddr, count: usize) -> Result<Client, Wrong> {
        match self {
            Self::Tcp => Client::connect_tcp(tcp, count),
            Self::Rdma(version) => Client::connect_speaking(version, rdma, count),
        }
    }
}

/// Runs the benchmark.
pub(crate) fn run(mode: Mode) -> Result<(), Wrong> {
    prepare()?;
    let mut server = Child::start(IDLE)?;
    let (rdma, tcp) = (server.address, server.tcp);
    let before = server.resident()?;
    let mut crowd = mode.connect(rdma, tcp, IDLE)?;
    let mut each = || -> Result<usize, Wrong> {
        let resident = server.resident()?;
        Ok(resident.saturating_sub(before) / IDLE)
    };
    let idle = each()?;
    let start = Instant::now();
    crowd.burst(BURST, TOGETHER)?;
    let took = start.elapsed();
    let (start, at_once) = (Instant::now(), each()?);
    let mut left = at_once;
    while left > MOST_EACH && start.elapsed() < GIVEN_BACK_WITHIN {
        thread::sleep(Duration::from_millis(100));
        left = each()?;
    }
    println!(
        "{IDLE} connections, {mode:?}: {:.1} KiB each; {:.1} KiB after {BURST} calls on each in {:.1} s, {:.1} KiB \
         after another {:.1} s (bound {:.0})",
        kib(idle),
        kib(at_once),
        took.as_secs_f64(),
        kib(left),
        start.elapsed().as_secs_f64(),
        kib(MOST_EACH)
    );
    let done = AtomicBool::new(false);
    let (longest, (calls, stayed)) = thread::scope(|scope| {
        let newcomers = scope.spawn(|| {
            let longest = newcomers(mode, rdma, tcp);
            done.store(true, Ordering::Relaxed);
            longest
        });
        let called = crowd.call_until(|| done.load(Ordering::Relaxed));
        let longest = newcomers.join().map_err(|_| wrong("a newcomer panicked"))?;
        Ok::<_, Wrong>((longest?, called?))
    })?;
    println!(
        "{NEWCOMERS} new clients, beside {calls} NULLs: the first reply within {:.1} ms (bound {}); {stayed} \
         connections stayed",
        longest.as_secs_f64() * 1e3,
        SOON.as_millis()
    );
    let held = [
        (idle <= MOST_EACH, "memory"),
        (left <= MOST_EACH, "memory after a burst"),
        (longest <= SOON, "new clients"),
        (stayed + NEWCOMERS >= IDLE, "connections that stay"),
    ];
    for (holds, what) in held {
        if !holds {
            return Err(wrong(format!("the bound on {what} does not hold")));
        }
    }
    Ok(())
}

/// Lets clients come one after the other, each of which stays. Returns how long one took at most to
/// its first reply.
fn newcomers(mode: Mode, rdma: SocketAddr, tcp: SocketAddr) -> Result<Duration, Wrong> {
    let mut longest = Duration::ZERO;
    let mut stay = Vec::new();
    for _ in 0..NEWCOMERS {
        let start = Instant::now();
        let client = loop {
            let client = mode.connect(rdma, tcp, 1);
            match client.and_then(|mut client| client.call_once().map(|()| client)) {
                Ok(client) => break client,
                Err(_) if start.elapsed() < SOON => thread::sleep(PAUSE),
                Err(error) => return Err(error),
            }
        };
        longest = longest.max(start.elapsed());
        stay.push(client);
    }
    Ok(longest)
}
