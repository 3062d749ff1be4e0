//! The threads that make the calls.

use std::net::SocketAddr;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;
use std::time::Instant;

use bytes::Bytes;
use nfs_binding::proto::FileHandle;
use rpcrdma_setup::{Context, Failure};

use super::figures::Latency;
use super::library::LibraryConnections;
use super::op::Op;
use super::processor_time::{ThreadTime, of_this_thread};
use super::target::Target;
use super::tcp::TcpConnections;

/// The server and the connections of a worker.
pub(super) struct Job {
    /// The server.
    pub(super) target: Target,
    /// Its address, which the name in the URL had when the test file was made.
    pub(super) server: SocketAddr,
    /// The test file.
    pub(super) file: FileHandle,
    /// The data of WRITEs.
    pub(super) data: Bytes,
    /// The first XID of each of the connections.
    pub(super) first_xids: Vec<u32>,
    /// Calls in flight on each connection.
    pub(super) in_flight: usize,
}

/// The work of one worker in a round.
#[derive(Default)]
pub(super) struct Part {
    /// Calls that succeeded.
    pub(super) calls: u64,
    /// Their latencies.
    pub(super) latency: Latency,
    /// The time of the thread.
    pub(super) time: ThreadTime,
}

/// A round: this operation, until then.
type Order = (Op, Instant);

/// A thread with connections to one server. It ends when it is dropped.
pub(super) struct Worker {
    orders: Sender<Order>,
    parts: Receiver<Result<Part, Failure>>,
}

impl Worker {
    /// Starts a thread, which connects.
    ///
    /// # Errors
    /// The error of the operating system.
    pub(super) fn start(job: Job) -> Result<Self, Failure> {
        let (orders, taken) = channel();
        let (given, parts) = channel();
        thread::Builder::new()
            .name(format!("load {}", job.target.name))
            .spawn(move || work(&job, &taken, &given))
            .context("cannot start a thread")?;
        Ok(Self { orders, parts })
    }

    /// Starts a round.
    ///
    /// # Errors
    /// The thread has ended.
    pub(super) fn order(&self, op: Op, until: Instant) -> Result<(), Failure> {
        self.orders.send((op, until)).map_err(|_| gone())
    }

    /// Waits until the thread has connected, or for the end of a round.
    ///
    /// # Errors
    /// A connection or a call failed.
    pub(super) fn part(&self) -> Result<Part, Failure> {
        self.parts.recv().unwrap_or_else(|_| Err(gone()))
    }
}

fn gone() -> Failure {
    Failure::work("a thread ended early")
}

/// Connections of either kind.
enum Connections {
    Tcp(TcpConnections),
    Library(LibraryConnections),
}

impl Connections {
    fn new(job: &Job) -> Result<Self, Failure> {
        let Job {
            target, first_xids, ..
        } = job;
        if target.is_tcp()? {
            let (file, data) = (job.file, &job.data);
            let made = TcpConnections::new(job.server, first_xids, job.in_flight, file, data);
            return made.map(Self::Tcp);
        }
        let count = first_xids.len();
        LibraryConnections::new(target, count, job.in_flight, job.file, &job.data)
            .map(Self::Library)
    }

    fn round(&mut self, (op, until): Order) -> Result<Part, Failure> {
        let mut latency = Latency::default();
        let before = of_this_thread()?;
        let calls = match self {
            Self::Tcp(connections) => connections.run(op, until, &mut latency),
            Self::Library(connections) => connections.run(op, until, &mut latency),
        };
        let time = of_this_thread()?.since(before);
        Ok(Part {
            calls: calls?,
            latency,
            time,
        })
    }
}

/// Connects, and works until there are no more orders or a call fails.
fn work(job: &Job, orders: &Receiver<Order>, parts: &Sender<Result<Part, Failure>>) {
    let mut connections = match Connections::new(job) {
        Ok(connections) => connections,
        Err(failure) => {
            // Nobody waits for the failure of a thread that was dropped.
            drop(parts.send(Err(failure)));
            return;
        }
    };
    if parts.send(Ok(Part::default())).is_err() {
        return;
    }
    for order in orders {
        let part = connections.round(order);
        let failed = part.is_err();
        if parts.send(part).is_err() || failed {
            return;
        }
    }
}
