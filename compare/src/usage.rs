//! Resource usage of a process and its device: totals, and differences between two points in time.

use std::ops::{Add, Sub};

use rdma::Counters;
use rustix::time::{ClockId, clock_gettime};
use serde::{Deserialize, Serialize};

/// Counters that only grow. A server process also sends them over its control channel.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Usage {
    /// CPU time of all threads, user and system, nanoseconds.
    pub(crate) cpu_ns: u64,
    /// Sends posted.
    pub(crate) sends: u64,
    /// RDMA Reads posted.
    pub(crate) rdma_reads: u64,
    /// RDMA Writes posted.
    pub(crate) rdma_writes: u64,
    /// Sends posted that only granted credits, on the connections that exist now.
    pub(crate) grants: u64,
    /// Regions registered.
    pub(crate) registrations: u64,
    /// Regions invalidated, by this side or by the peer's Send With Invalidate.
    pub(crate) invalidations: u64,
    /// Wake-ups of this side from sleep by an arrival.
    pub(crate) interrupts: u64,
    /// Bytes of receives that this side promises its peer at most. It is no sum: differences and sums
    /// have the greater of two values.
    pub(crate) receive_memory: u64,
    /// Bytes that receives of this side, a server, have taken at most, posted or with messages that were
    /// in use. It is no sum either.
    #[serde(default)]
    pub(crate) receives_taken: u64,
    /// Bytes copied in user space.
    pub(crate) copied_bytes: u64,
    /// Bytes put on the wire.
    pub(crate) wire_bytes_sent: u64,
    /// System calls of the device or of TCP, and of waiting for events.
    pub(crate) system_calls: u64,
}

/// Returns the CPU time that this process has used, nanoseconds.
fn cpu_ns() -> u64 {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
    seconds * 1_000_000_000 + u64::try_from(time.tv_nsec).unwrap_or(0)
}

impl Usage {
    /// Returns the usage of this process now, with these counters of its device and of its
    /// connections, and the system calls of its poll loop.
    pub(crate) fn now(device: &Counters, grants: u64, waits: u64) -> Self {
        Self {
            grants,
            cpu_ns: cpu_ns(),
            sends: device.sends,
            rdma_reads: device.rdma_reads,
            rdma_writes: device.rdma_writes,
            registrations: device.registrations,
            invalidations: device.local_invalidations + device.remote_invalidations,
            interrupts: device.interrupts,
            copied_bytes: device.copied_bytes,
            receive_memory: 0,
            receives_taken: 0,
            wire_bytes_sent: device.wire_bytes_sent,
            system_calls: device.system_calls + waits,
        }
    }

    fn zip(self, other: Self, f: impl Fn(u64, u64) -> u64) -> Self {
        Self {
            cpu_ns: f(self.cpu_ns, other.cpu_ns),
            sends: f(self.sends, other.sends),
            grants: f(self.grants, other.grants),
            rdma_reads: f(self.rdma_reads, other.rdma_reads),
            rdma_writes: f(self.rdma_writes, other.rdma_writes),
            registrations: f(self.registrations, other.registrations),
            invalidations: f(self.invalidations, other.invalidations),
            interrupts: f(self.interrupts, other.interrupts),
            copied_bytes: f(self.copied_bytes, other.copied_bytes),
            receive_memory: self.receive_memory.max(other.receive_memory),
            receives_taken: self.receives_taken.max(other.receives_taken),
            wire_bytes_sent: f(self.wire_bytes_sent, other.wire_bytes_sent),
            system_calls: f(self.system_calls, other.system_calls),
        }
    }
}

impl Add for Usage {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        self.zip(other, u64::saturating_add)
    }
}

impl Sub for Usage {
    type Output = Self;

    fn sub(self, earlier: Self) -> Self {
        self.zip(earlier, u64::saturating_sub)
    }
}

/// The usage of both processes of a target.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Both {
    /// The usage of the requester, which is this process.
    pub(crate) client: Usage,
    /// The usage of the responder, which is the child process.
    pub(crate) server: Usage,
}

impl Both {
    /// Returns the sum of both sides.
    pub(crate) fn total(self) -> Usage {
        self.client + self.server
    }
}

impl Add for Both {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self {
            client: self.client + other.client,
            server: self.server + other.server,
        }
    }
}

impl Sub for Both {
    type Output = Self;

    fn sub(self, earlier: Self) -> Self {
        Self {
            client: self.client - earlier.client,
            server: self.server - earlier.server,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::hint::black_box;

    #[test]
    fn processor_time_grows_with_work() {
        let before = Usage::now(&Counters::default(), 0, 0);
        let mut sum = 0u64;
        for n in 0..3_000_000u64 {
            sum = black_box(sum.wrapping_add(n));
        }
        let used = Usage::now(&Counters::default(), 0, 0) - before;
        assert!(used.cpu_ns > 100_000, "{used:?}");
    }

    #[test]
    fn invalidations_of_both_kinds_count() {
        let device = Counters {
            local_invalidations: 2,
            remote_invalidations: 3,
            wire_bytes_sent: 70,
            system_calls: 5,
            ..Counters::default()
        };
        let usage = Usage::now(&device, 0, 6);
        assert_eq!(usage.system_calls, 11);
        assert_eq!(usage.invalidations, 5);
        assert_eq!((usage + usage - usage).wire_bytes_sent, 70);
    }
}
