//! What runs in the processes that `compare` starts.

use std::io::{self, BufRead};
use std::net::{Ipv4Addr, TcpListener};
use std::thread;

use rustix::time::{ClockId, clock_gettime};
use serde::{Deserialize, Serialize};
use verbs::Counters;

use crate::args::{ChildArgs, Serves};
use crate::compare::floor;
use crate::failure::{Context, Failure};
use crate::output;

/// The first line of a child.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(crate) struct Listening {
    /// Port on the loopback address.
    pub(crate) port: u16,
}

/// What a process has used so far, and its device has done.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Usage {
    /// Processor time of all its threads, user and system, nanoseconds.
    pub(crate) cpu_ns: u64,
    pub(crate) sends: u64,
    pub(crate) rdma_reads: u64,
    pub(crate) rdma_writes: u64,
    pub(crate) registrations: u64,
    pub(crate) invalidations: u64,
    pub(crate) interrupts: u64,
    pub(crate) copied_bytes: u64,
    pub(crate) wire_bytes_sent: u64,
    pub(crate) wire_bytes_received: u64,
}

/// Processor time that this process has used, nanoseconds.
pub(crate) fn cpu_ns() -> u64 {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
    seconds * 1_000_000_000 + u64::try_from(time.tv_nsec).unwrap_or(0)
}
