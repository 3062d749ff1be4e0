//! What everything costs, in virtual time.

use std::time::Duration;

/// Bytes of a page, for the cost of registration.
pub const PAGE: usize = 4096;

/// The cost model of a [`Fabric`](super::Fabric). All of it is taken literally: an operation costs
/// what stands here, plus what it waits for.
///
/// The defaults are round figures of the order that 100 Gb/s adapters and current hosts show, with
/// the delay of a short path; whoever cares sets his own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Costs {
    /// From the last bit leaving one device to the last bit arriving at the other.
    pub delay: Duration,
    /// Bytes a second that a device can send.
    pub rate: u64,
    /// Framing of each packet, bytes.
    pub header: usize,
    /// Payload of a packet at most, bytes.
    pub packet: usize,
    /// Processor time for posting one work request.
    pub post: Duration,
    /// Processor time for taking one completion.
    pub completion: Duration,
    /// Processor time for registering a region, whatever its length.
    pub register: Duration,
    /// The same, for each page of it.
    pub register_page: Duration,
    /// Device time for a local invalidation, whatever the region's length.
    pub invalidate: Duration,
    /// The same, for each page of it.
    pub invalidate_page: Duration,
    /// Device time between an RDMA Read's arrival and its response.
    pub read_response: Duration,
    /// Whether a Send or Write is done when the peer's device has acknowledged it (InfiniBand), or
    /// when the last bit has left (iWARP).
    pub acknowledged: bool,
    /// How long a device takes at most to notice that its peer is gone.
    pub detection: Duration,
}

impl Default for Costs {
    fn default() -> Self {
        Self {
            delay: Duration::from_micros(5),
            rate: 12_500_000_000,
            header: 58,
            packet: 4096,
            post: Duration::from_nanos(150),
            completion: Duration::from_nanos(200),
            register: Duration::from_nanos(1_000),
            register_page: Duration::from_nanos(20),
            invalidate: Duration::from_nanos(500),
            invalidate_page: Duration::from_nanos(5),
            read_response: Duration::from_nanos(500),
            acknowledged: true,
            detection: Duration::from_secs(2),
        }
    }
}

impl Costs {
    /// Bytes on the wire of `len` bytes of payload, framing included.
    pub(super) fn framed(&self, len: usize) -> usize {
        len + self.header * len.div_ceil(self.packet.max(1)).max(1)
    }

    /// How long so many bytes take to leave.
    pub(super) fn sending(&self, bytes: usize) -> Duration {
        let nanos = bytes as u128 * 1_000_000_000 / u128::from(self.rate.max(1));
        Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
    }

    /// What registering so many bytes costs.
    pub(super) fn registering(&self, bytes: usize) -> Duration {
        self.register + self.register_page * pages(bytes)
    }

    /// What invalidating so many bytes costs.
    pub(super) fn invalidating(&self, bytes: usize) -> Duration {
        self.invalidate + self.invalidate_page * pages(bytes)
    }
}

fn pages(bytes: usize) -> u32 {
    u32::try_from(bytes.div_ceil(PAGE)).unwrap_or(u32::MAX)
}

/// What goes wrong by itself, and how often. Probabilities are in parts per million.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Faults {
    /// That a connection's being made, a request's being posted, a registration, an arrival or a
    /// completion is the moment at which the connection is lost.
    pub lose: u32,
    /// That a connection request is not answered.
    pub ignore_request: u32,
    /// That a registration fails.
    pub fail_registration: u32,
    /// The longest that something arrives late. Order on a connection is kept.
    pub late_arrival: Duration,
    /// The longest that an RDMA Read's response waits; Sends of that side overtake it.
    pub late_read: Duration,
    /// The longest that a completion becomes visible late. The order of each queue is kept; the
    /// send queue's and the receive queue's completions overtake each other.
    pub late_completion: Duration,
    /// The longest that the owner of a device sleeps on after its interrupt.
    pub late_wake: Duration,
}
