//! What operations cost on devices of a class.

use std::time::Duration;

/// What operations cost on devices of a class, by which transfers are planned where nothing more
/// exact is known. Round figures suffice: a plan depends on which of two ways is cheaper, not on by
/// how much.
///
/// The defaults are of the order seen on 100 Gb/s adapters and current hosts over a short path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClassCosts {
    /// Time from the last bit leaving one device to the last bit arriving at the other, on the
    /// shortest path.
    pub link_delay: Duration,
    /// Throughput of Sends in bytes per second.
    pub rate: u64,
    /// Throughput of RDMA Reads in bytes per second.
    pub read_rate: u64,
    /// Throughput of RDMA Writes in bytes per second.
    pub write_rate: u64,
    /// Processor and device time of one message or RDMA operation, for both ends together.
    pub per_message: Duration,
    /// Time to register a piece of memory, without the cost per page.
    pub registration: Duration,
    /// Time that each page adds to a registration.
    pub registration_page: Duration,
    /// Time of an invalidation by the owner of the memory.
    pub invalidation: Duration,
    /// Time until the owner learns that its invalidations have completed, whatever their number.
    pub invalidation_wait: Duration,
    /// Time from a completion until the waiting program runs.
    pub interrupt: Duration,
    /// Time that a device takes to respond to an RDMA Read.
    pub read_turnaround: Duration,
    /// Additional time of a message in several Sends, whose receiver wakes up more than once.
    pub group: Duration,
    /// Additional time of a message whose receive has several segments.
    pub placement: Duration,
}

impl Default for ClassCosts {
    fn default() -> Self {
        Self {
            link_delay: Duration::from_micros(5),
            rate: 12_500_000_000,
            read_rate: 12_500_000_000,
            write_rate: 12_500_000_000,
            per_message: Duration::from_nanos(350),
            registration: Duration::from_nanos(1_000),
            registration_page: Duration::from_nanos(20),
            invalidation: Duration::from_nanos(500),
            invalidation_wait: Duration::from_micros(3),
            interrupt: Duration::from_micros(3),
            read_turnaround: Duration::from_nanos(500),
            group: Duration::ZERO,
            placement: Duration::ZERO,
        }
    }
}

impl ClassCosts {
    /// The costs of a device that is software and whose bytes pass through TCP or UDP of the
    /// kernel, which copies them: there is no adapter that registration would have to tell, and no
    /// operation that the processor would be spared.
    #[must_use]
    pub fn software() -> Self {
        Self {
            rate: 3_000_000_000,
            read_rate: 3_000_000_000,
            write_rate: 3_000_000_000,
            per_message: Duration::from_micros(1),
            registration_page: Duration::ZERO,
            invalidation_wait: Duration::from_micros(8),
            interrupt: Duration::from_micros(8),
            read_turnaround: Duration::from_micros(8),
            group: Duration::from_micros(8),
            placement: Duration::from_micros(1),
            ..Self::default()
        }
    }
}
