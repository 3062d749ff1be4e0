//! The cost of each operation in virtual time.

use std::time::Duration;

/// Page size in bytes, for the cost of registration.
pub const PAGE: usize = 4096;

/// The link in one direction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Link {
    /// Time from the last bit leaving one device to the last bit arriving at the other.
    pub delay: Duration,
    /// Bytes per second that a device can send.
    pub rate: u64,
}

/// The irregularities of the link, in both directions. They are random, from the seed of the fabric, and
/// end no connection: a device delivers what it sends in order, whatever it takes.
///
/// Connections are set up without them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Noise {
    /// Maximum additional delay of a Send, an RDMA Write, or a request or response of an RDMA Read. All
    /// shorter times are equally probable. Those of one connection in one direction stay in order.
    pub jitter: Duration,
    /// Probability that a packet is lost, in parts per million, up to [`Noise::MAX_LOSS`]; each packet is
    /// lost or not by itself. Acknowledgements are not, as a later one stands for those before it.
    pub loss: u32,
    /// Time after which the sender of a packet that was lost sends it once more, alone, and as often as
    /// needed. What was sent behind it waits at the receiver.
    pub retransmit: Duration,
}

impl Noise {
    /// The greatest probability of a loss, in parts per million.
    pub const MAX_LOSS: u32 = 500_000;
}

impl Default for Noise {
    /// No noise. A retransmission would be after 67 ms, 4.096 µs times 2^14: a usual Local ACK Timeout of
    /// InfiniBand and RoCE (TCP waits for 200 ms in Linux, or until later packets have arrived).
    fn default() -> Self {
        Self {
            jitter: Duration::ZERO,
            loss: 0,
            retransmit: Duration::from_nanos(4096 << 14),
        }
    }
}

/// The cost model of a [`Fabric`](super::Fabric). An operation takes exactly the time given here,
/// plus the time that it waits.
///
/// The defaults are round figures of the order seen on 100 Gb/s adapters and current hosts over a
/// short path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Costs {
    /// The link on which hosts send that listen nowhere: from clients to servers.
    pub up: Link,
    /// The link on which hosts send that listen: from servers to clients.
    pub down: Link,
    /// The irregularities of the link.
    pub noise: Noise,
    /// Framing of each packet in bytes.
    pub header: usize,
    /// Maximum payload of a packet in bytes.
    pub packet: usize,
    /// Processor time to post one work request.
    pub post: Duration,
    /// Processor time to handle one completion.
    pub completion: Duration,
    /// Processor time to register a region, without the cost per page.
    pub register: Duration,
    /// Processor time that each page adds to a registration.
    pub register_page: Duration,
    /// Device time of a local invalidation, without the cost per page.
    pub invalidate: Duration,
    /// Device time that each page adds to a local invalidation.
    pub invalidate_page: Duration,
    /// Time that a device takes to respond to an RDMA Read.
    pub read_response: Duration,
    /// Whether a Send or Write completes when the peer's device has acknowledged it (InfiniBand),
    /// or when the last bit has left (iWARP).
    pub acknowledged: bool,
    /// Maximum time after which a device notices that its peer is gone.
    pub detection: Duration,
}

impl Default for Costs {
    fn default() -> Self {
        let link = Link {
            delay: Duration::from_micros(5),
            rate: 12_500_000_000,
        };
        Self {
            up: link,
            down: link,
            noise: Noise::default(),
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
    /// Sets the delay of both directions.
    pub fn set_delay(&mut self, delay: Duration) {
        (self.up.delay, self.down.delay) = (delay, delay);
    }

    /// Sets the rate of both directions, bytes per second.
    pub fn set_rate(&mut self, rate: u64) {
        (self.up.rate, self.down.rate) = (rate, rate);
    }

    /// Returns the delay of a message and of the answer to it.
    #[must_use]
    pub fn round_trip(&self) -> Duration {
        self.up.delay + self.down.delay
    }

    /// Returns the number of packets of `len` bytes of payload.
    pub(super) fn packets(&self, len: usize) -> usize {
        len.div_ceil(self.packet.max(1)).max(1)
    }

    /// Returns the number of bytes on the wire for `len` bytes of payload, framing included.
    pub(super) fn framed(&self, len: usize) -> usize {
        len + self.header * self.packets(len)
    }

    /// Returns the cost of registering `bytes`.
    pub(super) fn registering(&self, bytes: usize) -> Duration {
        self.register + self.register_page * pages(bytes)
    }

    /// Returns the cost of invalidating a region of `bytes`.
    pub(super) fn invalidating(&self, bytes: usize) -> Duration {
        self.invalidate + self.invalidate_page * pages(bytes)
    }
}

impl Link {
    /// Returns the time to transmit `bytes`.
    pub(super) fn sending(&self, bytes: usize) -> Duration {
        let nanos = bytes as u128 * 1_000_000_000 / u128::from(self.rate.max(1));
        Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
    }
}

fn pages(bytes: usize) -> u32 {
    u32::try_from(bytes.div_ceil(PAGE)).unwrap_or(u32::MAX)
}

/// Spontaneous faults. Probabilities are in parts per million.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Faults {
    /// Probability that a connection is lost at each of these moments: its establishment, a post, a
    /// registration, an arrival, a completion.
    pub lose: u32,
    /// Probability that a connection request is not answered.
    pub ignore_request: u32,
    /// Probability that a registration fails.
    pub fail_registration: u32,
    /// Maximum delay of an arrival. Packets of a connection stay in order.
    pub late_arrival: Duration,
    /// Maximum delay of the response to an RDMA Read. Sends of the same side may overtake it.
    pub late_read: Duration,
    /// Maximum delay until a completion becomes visible. Each queue stays in order, but the
    /// completions of the send queue and the receive queue may overtake each other.
    pub late_completion: Duration,
    /// Maximum delay between a device's interrupt and the wake-up of its owner.
    pub late_wake: Duration,
}
