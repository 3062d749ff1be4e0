//! The operations that a call and its reply take, and their estimated time.
//!
//! [`Effort`] is counted from plans and lengths, and [`CostModel`] estimates the time that it
//! takes. The choice between the possible plans of a message is a comparison of such estimates
//! ([`CostModel::cheapest`]). Lengths matter in three other places, which determine what the
//! possible plans are: the inline thresholds of the connection, which the peers agree on
//! ([`Limits`]); the base protocol's plan, which sends inline what fits and moves the longest items
//! to chunks otherwise ([`plan_call`](crate::plan_call)); and [`CostModel::min_placed_len`], which
//! leaves out plans that place short items by Sends. The model leaves out costs that are the same
//! for all transfer modes.
//!
//! Each end has one cost model, with the round figures of its device's class or those given by
//! `--costs`. Of transfer modes whose estimates differ by 2 % or less, which no measurement tells
//! apart, the one with the fewest registrations is taken, and then the one that leaves the fewest bytes unplaced. Bulk data
//! is thus placed wherever that costs no more than padding, copies or nothing.

use std::fmt;
use std::time::Duration;

use crate::{CallItem, CallPayload, CallPlan, Limits, ReplyNeed};

/// Page size in bytes, for the cost of registration.
const PAGE: u64 = 4096;

/// The operations that a call and its longest possible reply take.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Effort {
    /// Sends, in both directions.
    pub sends: u64,
    /// RDMA Reads and RDMA Writes.
    pub explicit: u64,
    /// Number of times that the responder waits for RDMA Reads, a round trip each. The reads of one
    /// message are started together and count once.
    pub turnarounds: u64,
    /// Number of times that a sender waits until its peer can receive more messages, a round trip
    /// each.
    pub waits: u64,
    /// Number of messages that are sent while these round trips last.
    pub during_waits: u64,
    /// Bytes of all these operations, in both directions.
    pub bytes: u64,
    /// The part of `bytes` that RDMA Reads fetch.
    pub read_bytes: u64,
    /// The part of `bytes` that RDMA Writes place.
    pub write_bytes: u64,
    /// Number of memory registrations.
    pub registrations: u64,
    /// Number of pages in the registered memory.
    pub pages: u64,
    /// Number of registrations that the requester must invalidate itself.
    pub invalidations: u64,
    /// Bytes of bulk items that arrive inside a payload stream, so that their receiver must copy
    /// them.
    pub unplaced: u64,
    /// Number of messages, of call and reply, that take several Sends.
    pub groups: u64,
    /// Number of messages, of call and reply, with bulk items placed by Sends.
    pub placed: u64,
}

impl Effort {
    /// Counts a call and a reply. Each pair is a number of Sends and their total length in bytes.
    #[must_use]
    pub fn of(calls: (u64, u64), replies: (u64, u64)) -> Self {
        Self {
            sends: calls.0 + replies.0,
            bytes: calls.1 + replies.1,
            groups: u64::from(calls.0 > 1) + u64::from(replies.0 > 1),
            ..Self::default()
        }
    }

    /// Adds `len` bytes that are transferred through memory registered by the requester.
    fn registered(&mut self, len: u64, limits: &Limits) {
        let segments = limits.segments(len);
        self.explicit += segments;
        self.registrations += segments;
        self.pages += len.div_ceil(PAGE);
        self.invalidations += segments;
    }

    /// Adds `len` bytes fetched by RDMA Read.
    pub fn read(&mut self, len: u64, limits: &Limits) {
        self.registered(len, limits);
        self.read_bytes += len;
        self.turnarounds = 1;
    }

    /// Adds up to `len` bytes placed by RDMA Write.
    pub fn write(&mut self, len: u64, limits: &Limits) {
        self.registered(len, limits);
        self.write_bytes += len;
    }

    /// Adds the waits of a message in `sends` Sends, of which the peer can receive `credits` now. A
    /// peer grants more when half of what it can receive is used, and again when the other half is
    /// (version-two-07, section 4.2.1.1). So after each wait for the first of two grants, the second
    /// one comes in time, and there is a wait for each `credits` messages. It lasts from the message
    /// that uses up the first half; the sender uses the other half meanwhile.
    pub fn wait_for_credits(&mut self, sends: u32, credits: u32) {
        let (missing, half) = (sends.saturating_sub(credits), u64::from(credits / 2));
        let waits = u64::from(missing.div_ceil(credits.max(1)));
        self.waits += waits;
        self.during_waits += waits * half;
    }

    /// Returns the number of round trips beside that of call and reply.
    #[must_use]
    pub fn round_trips(&self) -> u64 {
        self.turnarounds + self.waits
    }

    /// Records that the reply invalidates one of the registrations remotely.
    pub fn remotely_invalidated(&mut self) {
        self.invalidations = self.invalidations.saturating_sub(1);
    }
}

impl fmt::Display for Effort {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} sends, {} B", self.sends, self.bytes)?;
        let counts = [
            (self.explicit, "RDMA operation", ""),
            (self.turnarounds, "turn-around", ""),
            (self.waits, "wait", " for credits"),
            (self.registrations, "registration", ""),
            (self.invalidations, "local invalidation", ""),
        ];
        for (count, name, rest) in counts.into_iter().filter(|(count, ..)| *count > 0) {
            let s = if count > 1 { "s" } else { "" };
            write!(f, ", {count} {name}{s}{rest}")?;
        }
        match self.unplaced {
            0 => Ok(()),
            unplaced => write!(f, ", {unplaced} B unplaced"),
        }
    }
}

impl CallPlan {
    /// Returns whether call and reply each are one Send without chunks and items, which no other
    /// transfer mode can beat.
    #[must_use]
    pub fn is_plain(&self, need: &ReplyNeed) -> bool {
        self.payload == CallPayload::Inline
            && self.items.is_empty()
            && self.write_chunks.is_empty()
            && self.reply_chunk.is_none()
            && need.items.is_empty()
    }

    /// Counts the operations of the plan. `may_invalidate` says whether the responder may
    /// invalidate one registration with its reply.
    #[must_use]
    pub fn effort(&self, need: &ReplyNeed, limits: &Limits, may_invalidate: bool) -> Effort {
        let mut effort = Effort::of(
            (1, self.header_len + self.payload_len),
            (1, self.header_len + need.stream_len()),
        );
        if self.payload == CallPayload::PositionZero {
            effort.read(self.payload_len, limits);
        }
        for (item, how) in &self.items {
            match how {
                CallItem::InPayload => effort.unplaced += item.len,
                CallItem::ReadChunk => {
                    effort.bytes += item.len;
                    effort.read(item.len, limits);
                }
            }
        }
        if self.write_chunks.is_empty() {
            effort.unplaced += need.items.iter().sum::<u64>();
        }
        for &len in self.write_chunks.iter().chain(&self.reply_chunk) {
            effort.write(len, limits);
        }
        if may_invalidate {
            effort.remotely_invalidated();
        }
        effort
    }
}

/// The cost of each operation on a connection. The defaults are round figures of the order seen on
/// 100 Gb/s adapters and current hosts over a short path; measured values can be set with
/// [`CostParameter`](crate::CostParameter).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CostModel {
    /// Time from the last bit leaving one device to the last bit arriving at the other.
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
    /// Time of an invalidation by the requester itself.
    pub invalidation: Duration,
    /// Time until the requester learns that its invalidations have completed, whatever their
    /// number. Includes an interrupt if the device signals the completion with one.
    pub invalidation_wait: Duration,
    /// Time from a completion until the waiting program runs.
    pub interrupt: Duration,
    /// Time that a device takes to respond to an RDMA Read.
    pub read_turnaround: Duration,
    /// Throughput in bytes per second at which a receiver copies data that was not placed;
    /// [`CostModel::UNLIMITED`] if it uses the data where it was received.
    pub copy_rate: u64,
    /// Additional time of a message in several Sends, whose receiver wakes up more than once.
    pub group: Duration,
    /// Additional time of a message with bulk items placed by Sends, whose receive has several
    /// segments.
    pub placement: Duration,
    /// Time that both ends spend on every call, whatever its transfer mode.
    pub call: Duration,
}

impl Default for CostModel {
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
            copy_rate: 10_000_000_000,
            group: Duration::ZERO,
            placement: Duration::ZERO,
            call: Duration::ZERO,
        }
    }
}

impl CostModel {
    /// A rate that stands for no time at all.
    pub const UNLIMITED: u64 = u64::MAX;
    /// The lowest cost over the difference up to which another cost counts as equal, because a smaller difference
    /// cannot be measured.
    pub const ALIKE: u32 = 50;

    /// Returns the length in bytes from which placing an item by Sends is considered, if placement
    /// adds `padding` bytes to a transmission. Copying an item of that length takes as long as
    /// sending the padding, but the result is at most four fifths of `padding`. Whether a longer
    /// item is placed depends on the cost of the whole message.
    #[must_use]
    pub fn min_placed_len(&self, padding: u32) -> u32 {
        let worth = u128::from(padding) * u128::from(self.copy_rate) / u128::from(self.rate.max(1));
        let most = padding - padding / 5;
        u32::try_from(worth).map_or(most, |worth| worth.min(most))
    }

    /// Returns the index of the transfer mode to use. Costs that exceed the lowest by at most one part in
    /// [`CostModel::ALIKE`] count as equal; among those modes, the one with the fewest registrations is chosen, then
    /// the one that leaves the fewest bytes to copy, then the one with the lowest cost.
    #[must_use]
    pub fn cheapest(modes: &[(Effort, Duration)]) -> Option<usize> {
        let least = modes.iter().map(|&(_, cost)| cost).min()?;
        let alike = least + least / Self::ALIKE;
        let ways = modes.iter().enumerate();
        let best = ways.filter(|(_, (_, cost))| *cost <= alike);
        best.min_by_key(|(_, (effort, cost))| (effort.registrations, effort.unplaced, *cost))
            .map(|(index, _)| index)
    }

    /// Returns the estimated time from submitting the call until its reply is there. Server work is
    /// included only as far as it is in [`CostModel::call`].
    #[must_use]
    pub fn estimate(&self, effort: &Effort) -> Duration {
        // In nanoseconds of 64 bits, which last for centuries. Arithmetic with 128 bits takes longer than
        // the rest of an estimate.
        let nanos = |time: Duration| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        let times = |each: Duration, count: u64| nanos(each).saturating_mul(count);
        let at = |rate: u64, bytes: u64| match bytes.checked_mul(1_000_000_000) {
            Some(scaled) => scaled.div_ceil(rate.max(1)),
            None => {
                let scaled = u128::from(bytes) * 1_000_000_000;
                u64::try_from(scaled.div_ceil(u128::from(rate.max(1)))).unwrap_or(u64::MAX)
            }
        };
        let sum = |terms: &[u64]| terms.iter().copied().fold(0, u64::saturating_add);
        // Consecutive messages overlap: one is processed while the next is in flight.
        let messages = effort.sends + effort.explicit;
        let ends = messages.min(2);
        let by_sends = effort
            .bytes
            .saturating_sub(effort.read_bytes + effort.write_bytes);
        let bytes = sum(&[
            at(self.rate, by_sends),
            at(self.read_rate, effort.read_bytes),
            at(self.write_rate, effort.write_bytes),
        ]);
        let stream = times(self.per_message, messages - ends).max(bytes);
        let turnaround = 2 * self.link_delay + self.read_turnaround + self.interrupt;
        // A message to the receiver, and its grant.
        let waited = times(2 * (self.link_delay + self.interrupt), effort.waits);
        let meanwhile = stream.saturating_mul(effort.during_waits) / messages.max(1);
        Duration::from_nanos(sum(&[
            nanos(self.call),
            times(self.per_message, ends),
            stream,
            at(self.copy_rate, effort.unplaced),
            times(self.registration, effort.registrations),
            times(self.registration_page, effort.pages),
            times(self.invalidation, effort.invalidations),
            times(self.group, effort.groups),
            times(self.placement, effort.placed),
            // One round trip, and one interrupt at each end.
            times(self.link_delay, 2),
            times(self.interrupt, 2),
            times(turnaround, effort.turnarounds),
            waited.saturating_sub(meanwhile),
            // The requester waits once for all invalidations.
            times(self.invalidation_wait, u64::from(effort.invalidations > 0)),
        ]))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{ChunkCounts, ChunkLimits, Item, Shape, plan_call};

    fn limits(max_segment: u64) -> Limits {
        Limits {
            inline_send: 4096,
            inline_receive: 4096,
            max_segment,
            max_message: 1 << 22,
            chunks: ChunkLimits::default(),
            call_chunk: false,
            header_len: |chunks: &ChunkCounts| 28 + 24 * chunks.read_segments,
        }
    }

    fn write(len: u64, max_segment: u64, may_invalidate: bool) -> Effort {
        let (limits, need) = (limits(max_segment), ReplyNeed::new(240, []));
        let shape = Shape::new(156, [Item { position: 152, len }]);
        let plan = plan_call(&shape, &need, &limits).unwrap_or_else(|error| panic!("{error}"));
        assert!(!plan.is_plain(&need), "it has an item");
        plan.effort(&need, &limits, may_invalidate)
    }

    #[test]
    fn a_write_with_a_read_chunk_costs_a_turnaround_and_registrations() {
        let effort = write(8192, 1 << 30, true);
        assert_eq!(
            effort,
            Effort {
                sends: 2,
                explicit: 1,
                turnarounds: 1,
                waits: 0,
                during_waits: 0,
                bytes: 52 + 156 + 8192 + 52 + 240,
                read_bytes: 8192,
                write_bytes: 0,
                registrations: 1,
                pages: 2,
                invalidations: 0,
                unplaced: 0,
                groups: 0,
                placed: 0,
            }
        );
        let pieces = write(8192, 3000, false);
        assert_eq!((pieces.registrations, pieces.invalidations), (3, 3));
        assert_eq!((pieces.explicit, pieces.turnarounds), (3, 1));
        let plain = write(2000, 1 << 30, true);
        assert_eq!((plain.registrations, plain.turnarounds), (0, 0));
        assert_eq!(plain.unplaced, 2000);
    }

    /// The arithmetic for lengths that fit 64 bits has the results of that for all lengths.
    #[test]
    fn the_time_of_bytes_is_their_number_over_the_rate() {
        let model = CostModel {
            rate: 1 << 30,
            ..CostModel::default()
        };
        let with = |bytes| model.estimate(&Effort::of((1, bytes), (0, 0)));
        for (bytes, nanos) in [
            (1, 1),
            (1 << 30, 1_000_000_000),
            ((1 << 30) + 1, 1_000_000_001),
        ] {
            assert_eq!(
                with(bytes) - with(0),
                Duration::from_nanos(nanos),
                "{bytes}"
            );
        }
        for bits in 30..50 {
            let seconds = Duration::from_secs(1 << (bits - 30));
            assert_eq!(with(1 << bits) - with(0), seconds, "2^{bits} bytes");
        }
    }

    #[test]
    fn many_messages_cost_no_more_than_the_link_needs_for_them() {
        let model = CostModel::default();
        let mebibyte = 1 << 20;
        let one = model.estimate(&Effort::of((1, mebibyte), (1, 100)));
        let effort = Effort::of((16, mebibyte), (1, 100));
        assert_eq!(effort.groups, 1);
        let many = model.estimate(&effort);
        assert_eq!(one, many);
        let tiny = model.estimate(&Effort::of((1000, mebibyte), (1, 100)));
        assert!(tiny > many, "unless there are very many");
    }

    #[test]
    fn among_modes_of_equal_cost_the_one_with_fewest_registrations_is_chosen() {
        let us = Duration::from_micros;
        let way = |registrations, unplaced, cost| {
            let effort = Effort {
                registrations,
                unplaced,
                ..Effort::default()
            };
            (effort, us(cost))
        };
        let (chunk, placed, stream) = (way(1, 0, 1000), way(0, 0, 1019), way(0, 9, 1001));
        assert_eq!(CostModel::cheapest(&[]), None);
        assert_eq!(CostModel::cheapest(&[chunk, stream]), Some(1));
        assert_eq!(CostModel::cheapest(&[stream, chunk, placed]), Some(2));
        let dearer = way(0, 0, 1021);
        assert_eq!(CostModel::cheapest(&[dearer, chunk]), Some(1));
        assert_eq!(CostModel::cheapest(&[dearer, placed]), Some(1));
    }

    #[test]
    fn a_message_waits_for_the_credits_that_it_lacks() {
        let waits = |sends, credits| {
            let mut effort = Effort::default();
            effort.wait_for_credits(sends, credits);
            effort.waits
        };
        for (sends, credits, expected) in [
            (1, 1, 0),
            (16, 16, 0),
            (17, 16, 1),
            (24, 16, 1),
            (25, 16, 1),
            (32, 16, 1),
            (33, 16, 2),
            (3, 0, 3),
            (4, 1, 3),
            (u32::MAX, u32::MAX, 0),
        ] {
            assert_eq!(waits(sends, credits), expected, "{sends} {credits}");
        }
        let mut effort = Effort::of((17, 60_000), (1, 100));
        let model = CostModel::default();
        let without = model.estimate(&effort);
        effort.wait_for_credits(17, 16);
        // All messages take 5.6 us, and half of the credits 2.5 us of that. The round trip takes
        // 16.
        let wait = model.estimate(&effort) - without;
        assert!((13..15).contains(&wait.as_micros()), "{wait:?}");
        assert!(
            effort.to_string().ends_with(", 1 wait for credits"),
            "{effort}"
        );
        effort.wait_for_credits(17, 4);
        assert!(
            effort.to_string().ends_with(", 5 waits for credits"),
            "{effort}"
        );
    }

    #[test]
    fn items_shorter_than_their_padding_are_not_placed() {
        let model = CostModel::default();
        assert_eq!(model.min_placed_len(1000), 800);
        let free = CostModel {
            copy_rate: CostModel::UNLIMITED,
            ..model
        };
        assert_eq!(free.min_placed_len(1000), 800);
        let slow = CostModel { rate: 1, ..model };
        assert_eq!(slow.min_placed_len(1000), 800);
        let dear = CostModel {
            copy_rate: 1,
            ..model
        };
        assert_eq!(dear.min_placed_len(1000), 0);
    }

    #[test]
    fn each_parameter_affects_its_own_cost() {
        let zero = CostModel {
            link_delay: Duration::ZERO,
            rate: u64::MAX,
            read_rate: u64::MAX,
            write_rate: u64::MAX,
            call: Duration::ZERO,
            per_message: Duration::ZERO,
            registration: Duration::ZERO,
            registration_page: Duration::ZERO,
            invalidation: Duration::ZERO,
            invalidation_wait: Duration::ZERO,
            interrupt: Duration::ZERO,
            read_turnaround: Duration::ZERO,
            copy_rate: CostModel::UNLIMITED,
            group: Duration::ZERO,
            placement: Duration::ZERO,
        };
        let mut effort = write(8192, 3000, false);
        (effort.groups, effort.placed, effort.waits) = (1, 2, 3);
        let effort = effort;
        let us = Duration::from_micros(1);
        let price = |change: fn(&mut CostModel)| {
            let mut model = zero;
            change(&mut model);
            // A byte takes a nanosecond at most with any rate here.
            model.estimate(&effort).as_nanos() / us.as_nanos()
        };
        const US: Duration = Duration::from_micros(1);
        assert_eq!(price(|model| model.link_delay = US), 10);
        assert_eq!(price(|model| model.per_message = US), 5);
        assert_eq!(price(|model| model.registration = US), 3);
        assert_eq!(price(|model| model.registration_page = US), 2);
        assert_eq!(price(|model| model.invalidation = US), 3);
        assert_eq!(price(|model| model.invalidation_wait = US), 1);
        assert_eq!(price(|model| model.interrupt = US), 9);
        assert_eq!(price(|model| model.read_turnaround = US), 1);
        assert_eq!(price(|model| model.call = US), 1);
        assert_eq!(price(|model| model.group = US), 1);
        assert_eq!(price(|model| model.placement = US), 2);
        assert_eq!(
            price(|model| model.rate = 1_000_000),
            u128::from(effort.bytes - 8192)
        );
        assert_eq!(price(|model| model.read_rate = 1_000_000), 8192);
        assert_eq!(price(|model| model.write_rate = 1_000_000), 0);
    }
}
