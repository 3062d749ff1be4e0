//! Derives the parameters of the cost model from latencies.
//!
//! Each parameter is a difference or slope of latencies that are measured in turns: READs, WRITEs
//! and long calls of a few sizes, by transfer modes of which one needs something that the other
//! does not. Where READ and WRITE give different values of a parameter that is the same for both,
//! such as the rate of Sends, the mean is used, and the competing parameters are shifted by the
//! same amount, because the difference between two modes decides. Effects that cannot be separated
//! are combined: the cost of registration per page is part of the rates of RDMA Reads and Writes,
//! and copies by a device are part of rates and messages.

use std::time::Duration;

use rpc_transport::rdma::CostModel;
use rpcrdma_programs::workload::LONG;

use crate::latency::median;

/// A number of data bytes that fit a message without chunks.
pub(crate) const PLAIN: u32 = 2 << 10;
/// A number of bytes that one Send can place. `LARGE`: one that takes many Sends.
pub(crate) const SHORT: u32 = 24 << 10;
pub(crate) const LARGE: u32 = 960 << 10;
/// The number of iterations that solve for the costs of a byte, a group and a message.
const STEPS: u32 = 8;

/// The latencies of READs or WRITEs in one round, microseconds.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Moved {
    /// The latency with [`PLAIN`] bytes in the payload stream.
    pub(crate) plain: f64,
    /// The latency with [`Round::continued`] bytes in the payload stream, which take two Sends.
    pub(crate) continued: f64,
    /// The latencies with [`SHORT`] and [`LARGE`] bytes placed by as many Sends as are needed.
    pub(crate) sent: [f64; 2],
    /// The latencies with [`SHORT`] and [`LARGE`] bytes placed by RDMA Write (for READ) or fetched
    /// by RDMA Read (for WRITE).
    pub(crate) explicit: [f64; 2],
}

/// The latencies of one round, microseconds.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Round {
    pub(crate) null: f64,
    /// The number of bytes that take two Sends without placement.
    pub(crate) continued: u32,
    pub(crate) read: Moved,
    pub(crate) write: Moved,
    /// The latency of a WRITE of [`SHORT`] bytes without remote invalidation.
    pub(crate) write_invalidated: f64,
    /// The latency of a call and a reply of [`LONG`] bytes each in many Sends, the number of these
    /// Sends (`many_sends`), and the latency of the same in as few Sends as possible (`few`).
    pub(crate) many: f64,
    pub(crate) many_sends: f64,
    pub(crate) few: f64,
    /// The latency of an exchange over the TCP baseline while both sides sleep (`asleep`), and
    /// while both spin.
    pub(crate) asleep: f64,
    pub(crate) awake: Option<f64>,
}

/// The differences between transfer modes, in microseconds or microseconds per byte. Noise can make
/// any of them negative.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Differences {
    null: f64,
    /// The cost of a byte by Sends, and the additional cost by RDMA Write and by RDMA Read.
    sent: f64,
    written_more: f64,
    read_more: f64,
    /// The additional cost of placing bulk data in one Send over a message without chunks, and the
    /// additional cost of a chunk over that.
    placement: f64,
    write_chunk: f64,
    read_chunk: f64,
    /// The additional cost of a message of two Sends over one, and of each further Send.
    group: f64,
    per_message: f64,
    invalidation: f64,
    interrupt: f64,
}

impl Differences {
    const EACH: [fn(&mut Self) -> &mut f64; 11] = [
        |of| &mut of.null,
        |of| &mut of.sent,
        |of| &mut of.written_more,
        |of| &mut of.read_more,
        |of| &mut of.placement,
        |of| &mut of.write_chunk,
        |of| &mut of.read_chunk,
        |of| &mut of.group,
        |of| &mut of.per_message,
        |of| &mut of.invalidation,
        |of| &mut of.interrupt,
    ];

    /// Computes the differences from the latencies of one round.
    pub(crate) fn of(round: &Round) -> Self {
        let span = f64::from(LARGE - SHORT);
        let mean = |of: &dyn Fn(&Moved) -> f64| (of(&round.read) + of(&round.write)) / 2.0;
        let further = (round.many_sends - 2.0).max(2.0);
        let sent = |moved: &Moved, group: f64| {
            // With this, the result is exact for `LARGE`.
            (moved.sent[1] - moved.sent[0] - group.max(0.0)) / span
        };
        let (mut group, mut per_message) = (0.0, 0.0);
        // Rate, group and message each depend on the others; a few iterations converge.
        for _ in 0..STEPS {
            let rate = mean(&|moved| sent(moved, group));
            // The cost of many Sends over few. The model overlaps the cost of messages with that of
            // their bytes and counts the longer; the bytes of `few` are included in it.
            let many = round.many - round.few + 2.0 * f64::from(LONG) * rate;
            // The cost of the second Send, or of its bytes, is included in the same way.
            let two = mean(&|moved| moved.continued - moved.plain) + rate * f64::from(PLAIN);
            let message = (many - 2.0 * two) / (further - 2.0).max(1.0);
            group = two - message.max(rate * f64::from(round.continued));
            per_message = (many - 2.0 * group.max(0.0)) / further;
        }
        let sent = |moved: &Moved| sent(moved, group);
        let plain = |moved: &Moved| moved.plain - mean(&sent) * f64::from(PLAIN);
        let one = |moved: &Moved| moved.sent[0] - sent(moved) * f64::from(SHORT);
        let explicit = |moved: &Moved| (moved.explicit[1] - moved.explicit[0]) / span;
        let more = |moved: &Moved| explicit(moved) - sent(moved);
        let chunk =
            |moved: &Moved| moved.explicit[0] - explicit(moved) * f64::from(SHORT) - one(moved);
        Self {
            null: round.null,
            sent: mean(&sent),
            written_more: more(&round.read),
            read_more: more(&round.write),
            placement: mean(&|moved| one(moved) - plain(moved)),
            write_chunk: chunk(&round.read),
            read_chunk: chunk(&round.write),
            group,
            per_message,
            invalidation: round.write_invalidated - round.write.explicit[0],
            interrupt: round
                .awake
                .map_or(0.0, |awake| (round.asleep - awake) / 2.0),
        }
    }

    /// Returns the median of each difference over all rounds.
    pub(crate) fn medians(all: &[Self]) -> Self {
        let mut found = Self::default();
        for each in Self::EACH {
            let values = all.iter().map(|&(mut of)| *each(&mut of));
            *each(&mut found) = median(values.collect()).unwrap_or(0.0);
        }
        found
    }

    /// Returns the cost model with these differences. Negative costs become zero; the costs of
    /// placement and registration are then raised together, so that the difference between these
    /// modes is preserved.
    pub(crate) fn model(&self) -> CostModel {
        let rate = |slope: f64| (1e6 / slope.max(1e-6)) as u64;
        let registration = self.placement + self.write_chunk;
        let up = (-self.placement).max(-registration).max(0.0);
        let (placement, registration) = (self.placement + up, registration + up);
        let turnaround = (placement + self.read_chunk - registration).max(0.0);
        let interrupt = self.interrupt.clamp(0.0, turnaround);
        let per_message = self.per_message.max(0.0);
        // The part of a turnaround that neither the link nor an interrupt can explain is the
        // device's.
        let link_delay = (self.null / 2.0 - interrupt - per_message).max(0.0);
        let link_delay = link_delay.min((turnaround - interrupt) / 2.0);
        let invalidation = self.invalidation.max(0.0);
        let invalidation_wait = invalidation.min(interrupt);
        let call = self.null - 2.0 * (link_delay + interrupt + per_message);
        let time = |us: f64| Duration::from_nanos((us.max(0.0) * 1e3) as u64);
        CostModel {
            link_delay: time(link_delay),
            rate: rate(self.sent),
            read_rate: rate(self.sent + self.read_more),
            write_rate: rate(self.sent + self.written_more),
            per_message: time(per_message),
            registration: time(registration),
            registration_page: Duration::ZERO,
            invalidation: time(invalidation - invalidation_wait),
            invalidation_wait: time(invalidation_wait),
            interrupt: time(interrupt),
            read_turnaround: time(turnaround - interrupt - 2.0 * link_delay),
            // The ends read all data from where it arrived, without a copy.
            copy_rate: CostModel::UNLIMITED,
            group: time(self.group),
            placement: time(placement),
            call: time(call),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Latencies computed from known costs must yield these costs.
    #[test]
    fn a_round_is_solved_for_what_it_was_made_of() {
        let (sent, read, written) = (0.0001, 0.0005, 0.0004);
        let (delay, interrupt, per_message, registration, call) = (4.0, 15.0, 2.0, 6.0, 20.0);
        let (placement, group) = (9.0, 11.0);
        let null = call + 2.0 * (delay + interrupt + per_message);
        let at = |fixed: f64, slope: f64, size: u32| fixed + slope * f64::from(size);
        let turnaround = 2.0 * delay + interrupt;
        // The server's work is the same in all modes: 5 for READ, 8 for WRITE.
        let moved = |work: f64, explicit: f64, more: f64| Moved {
            plain: at(null + work, sent, PLAIN),
            continued: null + work + group + per_message,
            sent: [
                at(null + work + placement, sent, SHORT),
                at(null + work + placement + group, sent, LARGE),
            ],
            explicit: [SHORT, LARGE].map(|size| at(null + work + more, explicit, size)),
        };
        let long = 2.0 * f64::from(LONG) * sent;
        let write = moved(8.0, read, registration + turnaround);
        let round = Round {
            null,
            continued: 6144,
            read: moved(5.0, written, registration),
            write,
            write_invalidated: write.explicit[0] + 3.0 + interrupt,
            // Its bytes are transferred at the same time.
            many: null + (34.0 - 2.0) * per_message + 2.0 * group,
            many_sends: 34.0,
            few: null + long,
            asleep: 50.0,
            awake: Some(20.0),
        };
        let solved = |round: &Round| Differences::of(round).model();
        let model = solved(&round);
        let near = |time: Duration, us: f64| (time.as_secs_f64() * 1e6 - us).abs() < 0.01;
        assert!(near(model.link_delay, delay), "{model:?}");
        assert!(near(model.interrupt, interrupt), "{model:?}");
        assert!(near(model.read_turnaround, 0.0), "{model:?}");
        assert!(near(model.registration, registration), "{model:?}");
        assert!(near(model.placement, placement), "{model:?}");
        assert!(near(model.group, group), "{model:?}");
        assert!(near(model.per_message, per_message), "{model:?}");
        assert!(near(model.invalidation, 3.0), "{model:?}");
        assert!(near(model.invalidation_wait, interrupt), "{model:?}");
        assert!(near(model.call, call), "{model:?}");
        let rates = [model.rate, model.read_rate, model.write_rate];
        let mega = rates.map(|rate| (rate as f64 / 1e6).round());
        assert_eq!(mega, [10_000.0, 2000.0, 2500.0]);
        let still = Round {
            awake: None,
            ..round
        };
        let model = solved(&still);
        assert!(near(model.link_delay, turnaround / 2.0), "one processor");
        assert!(near(model.invalidation, 3.0 + interrupt), "{model:?}");
        // A device that waits before it answers an RDMA Read.
        let mut slow = round;
        for time in slow
            .write
            .explicit
            .iter_mut()
            .chain([&mut slow.write_invalidated])
        {
            *time += 70.0;
        }
        let model = solved(&slow);
        let link = null / 2.0 - interrupt - per_message;
        assert!(near(model.link_delay, link), "{model:?}");
        let read_turnaround = turnaround + 70.0 - interrupt - 2.0 * link;
        assert!(near(model.read_turnaround, read_turnaround), "{model:?}");
        // If noise makes a chunk cheaper than a message without chunks in this round, the
        // difference to Sends must be preserved.
        let mut noisy = round;
        let less = 10.0;
        for time in &mut noisy.read.explicit {
            *time -= less;
        }
        let model = solved(&noisy);
        assert!(near(model.registration, 0.0), "{model:?}");
        let more = placement + less - registration;
        assert!(near(model.placement, more), "{model:?}");
        // Latencies that consist of noise only.
        let flat = Round {
            null: 10.0,
            ..Round::default()
        };
        let model = solved(&flat);
        assert_eq!((model.registration, model.link_delay), Default::default());
        assert!(near(model.call, 10.0), "{model:?}");
        let [flat, right] = [flat, round].map(|round| Differences::of(&round));
        let among = Differences::medians(&[flat, right, flat]);
        assert_eq!(among.model(), flat.model());
    }

    /// READ and WRITE need not agree: the difference between their modes must be preserved, because
    /// it decides.
    #[test]
    fn ways_differ_as_they_did_where_read_and_write_do_not_agree() {
        let moved = |sent: f64, explicit: f64, fixed: f64, chunk: f64| Moved {
            plain: fixed + sent * f64::from(PLAIN),
            continued: fixed + sent * f64::from(PLAIN),
            sent: [SHORT, LARGE].map(|size| fixed + 30.0 + sent * f64::from(size)),
            explicit: [SHORT, LARGE].map(|size| fixed + chunk + explicit * f64::from(size)),
        };
        let round = Round {
            null: 100.0,
            read: moved(0.0008, 0.0007, 100.0, 12.0),
            write: moved(0.0004, 0.0005, 130.0, 90.0),
            ..Round::default()
        };
        let model = Differences::of(&round).model();
        let us = |time: Duration| time.as_secs_f64() * 1e6;
        let at = |rate: u64| f64::from(LARGE) * 1e6 / rate as f64;
        // The difference to Sends for `LARGE` is as measured.
        let chunk = us(model.registration) + at(model.write_rate);
        let sends = us(model.placement) + at(model.rate);
        let read = round.read;
        assert!(
            (chunk - sends - (read.explicit[1] - read.sent[1])).abs() < 0.01,
            "{model:?}"
        );
        let turnaround =
            2.0 * us(model.link_delay) + us(model.interrupt) + us(model.read_turnaround);
        let chunk = us(model.registration) + turnaround + at(model.read_rate);
        let write = round.write;
        let more = write.explicit[1] - write.sent[1];
        assert!((chunk - sends - more).abs() < 0.01, "{model:?}");
    }
}
