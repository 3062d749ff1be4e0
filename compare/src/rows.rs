//! The results of `compare`: one row for each operation, size, variant and mode, for tables and the
//! JSON file.

use serde::Serialize;

use crate::environment::Environment;
use crate::interval::{Interval, Shown};

/// How the two sides wait for messages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Mode {
    /// Both sides sleep until something arrives.
    #[default]
    Blocking,
    /// Both sides spin.
    Busy,
}

impl Mode {
    /// Returns whether both sides spin.
    pub fn is_busy(self) -> bool {
        self == Self::Busy
    }
}

/// Receives of equal length at both ends of one connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Least {
    /// The length of each, in bytes.
    pub length: u32,
    /// The credits that the responder grants.
    pub credits: u32,
    /// The receives of the responder that one call takes, and with them credits.
    pub taken: u32,
    /// The bytes of all receives of the requester.
    pub requester: u64,
    /// The bytes of all receives of the responder.
    pub responder: u64,
}

/// The conditions of a measurement, besides mode and delay.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Conditions {
    /// The receive size of both sides in bytes, which is also the length of the longest message
    /// without chunks. Null for TCP.
    pub inline_bytes: Option<u32>,
    /// The rate of the link in each direction, in bits per second; null if no limit was added.
    pub rate_bits_per_s: Option<u64>,
    /// Whether iWARP frames carry CRC32c; null where there are no such frames.
    pub crc: Option<bool>,
    /// The congestion control of the TCP connections under the transport; null where there are
    /// none.
    pub congestion_control: Option<String>,
    /// The method by which the requester's device registers memory: `windows`, `per-call` or
    /// `persistent-unsafe`. For `auto`, the method that was chosen. Null for TCP.
    pub registration: Option<&'static str>,
    /// The processor to which the requester was pinned; null if it was not.
    pub processor_requester: Option<usize>,
    /// The processor to which the responder and the baseline's server were pinned; null if they
    /// were not.
    pub processor_responder: Option<usize>,
    /// The kind of device under RPC-over-RDMA; null for TCP.
    pub device_kind: Option<&'static str>,
    /// Whether client and server are connected by the loopback interface, as two processes on one
    /// machine are over TCP, whatever their addresses are. False if the server is on another host. Null for verbs devices, which reach
    /// themselves in their own ways, and in a simulation.
    pub loopback: Option<bool>,
    /// The cause of an added delay: the two processes, or the command that has the
    /// network do it. Null where no delay is.
    pub delayed_by: Option<String>,
    /// The costs that were given, which decide transfer modes; in a simulation all costs, which decide
    /// times as well. As on the command line. Null for TCP, and where none were given.
    pub costs: Option<String>,
    /// The policy of granting credits and the settings that both ends have instead of their defaults, as on
    /// the command line. Null for TCP, and where none were given.
    pub settings: Option<String>,
    /// The machine and the program; in JSON, each is a key of the row.
    #[serde(flatten)]
    pub environment: Environment,
}

/// The latency at one delay of the link.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct OverDelay {
    /// The link's delay each way.
    pub delay_us: f64,
    /// The median latency with that delay.
    pub p50_us: f64,
    /// The latency divided by that of the baseline with that delay: the median over turns, of a few
    /// calls each. Null if the baseline was not measured.
    pub baseline_ratio: Option<f64>,
    /// The confidence interval of that ratio; null in a simulation, and with fewer than six turns.
    pub baseline_ratio_interval: Option<Interval>,
}

/// The composition of a latency: each part is the time that the operation would save if this cost
/// nothing. Known in simulations only.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub struct Split {
    /// The link: its delay, and the time that bytes take at its rate.
    pub link_us: Option<f64>,
    /// Interrupts of both sides.
    pub interrupts_us: Option<f64>,
    /// Registration and invalidation of memory.
    pub registration_us: Option<f64>,
    /// Copies by the processors of both sides.
    pub copies_us: Option<f64>,
}

/// The measured costs of one operation. A value that does not apply or is unknown is null.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Row {
    /// The operation: see docs/compare-rows.md.
    pub op: &'static str,
    /// The bytes of data that one operation moves.
    pub size: Option<u64>,
    /// The transport or variant, as `--via` names it.
    #[serde(rename = "transfer_mode")]
    pub conveyance: &'static str,
    /// The device under RPC-over-RDMA; null for TCP.
    pub device: Option<String>,
    /// Blocking or busy.
    pub mode: Mode,
    /// The added delay in each direction, in microseconds, for all columns except `round_trips`.
    pub delay_us: f64,
    /// The other conditions; in JSON, each is a key of the row.
    #[serde(flatten)]
    pub conditions: Conditions,
    /// The number of clients. Null for rows of one operation at a time, as `in_flight` and the two
    /// that follow.
    pub clients: Option<u32>,
    /// The number of operations that each client has in flight; null with arrivals.
    pub in_flight: Option<u32>,
    /// The number of operations of all clients together that begin in a second.
    pub arrivals_per_s: Option<f64>,
    /// The most credits that a connection took at the same time; null for TCP.
    pub credits: Option<u32>,
    /// The number of operations, performed one at a time unless `clients` is there, from which the
    /// latency and cost columns are computed.
    pub count: u64,
    /// The median latency.
    pub p50_us: Option<f64>,
    /// The confidence interval of the median, from the medians of rounds; null in a simulation and
    /// for trees.
    pub p50_interval_us: Option<Interval>,
    /// 99th percentile of latency.
    pub p99_us: Option<f64>,
    /// Percentile 99.9 of latency. Of fewer than 1000 operations it is the longest time.
    pub p999_us: Option<f64>,
    /// All latencies in nanoseconds, in the encoding of HdrHistogram: V2, compressed, base64. Null in
    /// a simulation.
    pub histogram: Option<String>,
    /// The transfer mode that `baseline_ratio` is relative to.
    pub baseline: Option<&'static str>,
    /// The median latency divided by the baseline's, computed like `floor_ratio`.
    pub baseline_ratio: Option<f64>,
    /// The confidence interval of `baseline_ratio`; null in a simulation, where the ratio is exact.
    pub baseline_ratio_interval: Option<Interval>,
    /// The number of rounds that the interval is computed from; null in a simulation and for trees.
    pub rounds: Option<u32>,
    /// The number of turns, of several calls each, whose ratios `baseline_ratio` is the median of.
    pub turns: Option<u32>,
    /// The standard error of `baseline_ratio`, estimated from the variation between rounds.
    pub baseline_ratio_error: Option<f64>,
    /// The median latency divided by that of version 1 without remote invalidation, computed like
    /// `floor_ratio`; null if that was not measured. [`rows_json`](crate::rows_json) writes it for one
    /// release.
    #[serde(skip)]
    pub v1_ratio: Option<f64>,
    /// The standard error of `v1_ratio`, estimated from the variation between rounds.
    #[serde(skip)]
    pub v1_ratio_error: Option<f64>,
    /// The median latency divided by that of version 1 with receives as long as those for placement
    /// (`v1-long`), computed like `floor_ratio`; null if that was not measured.
    pub v1_long_ratio: Option<f64>,
    /// The confidence interval of `v1_long_ratio`; null in a simulation, where the ratio is exact.
    pub v1_long_ratio_interval: Option<Interval>,
    /// The least receives with which the operation takes one round trip by this transfer mode, for
    /// modes that are compared by it.
    #[serde(skip)]
    pub least_receives: Option<Least>,
    /// The latency that `rpcrdma explain` predicts with the measured or given costs. Null for TCP
    /// and trees.
    pub predicted_us: Option<f64>,
    /// The plan to which `predicted_us` belongs. Rows with the same plan send the same messages.
    #[serde(skip)]
    pub plan: Option<String>,
    /// The median latency at each delay with which round trips were measured, and at `delay_us`.
    pub latency_over_delay: Option<Vec<OverDelay>>,
    /// The composition of the latency; in JSON, each part is a key of the row.
    #[serde(flatten)]
    pub split: Split,
    /// Data moved per second with several operations in flight.
    pub mib_per_s: Option<f64>,
    /// Operations per second with several in flight.
    pub ops_per_s: Option<f64>,
    /// Processor time of both processes per operation, one at a time.
    pub cpu_us: Option<f64>,
    /// Round trips per operation: the slope of the fastest tenth's latency over added delay. Null
    /// for the busy rows of a run that is otherwise blocking: these are measured in one mode. Null
    /// also if the standard error of the slope exceeds 0.25.
    pub round_trips: Option<f64>,
    /// Standard error of the slope in `round_trips`. Also present if `round_trips` is null because the
    /// error exceeds 0.25. Null in a simulation, for trees and for the busy rows of a blocking run, and
    /// if there were too few calls.
    pub round_trips_error: Option<f64>,
    /// Sends per operation, both sides.
    pub sends: Option<f64>,
    /// RDMA Reads per operation, both sides.
    pub rdma_reads: Option<f64>,
    /// RDMA Writes per operation, both sides.
    pub rdma_writes: Option<f64>,
    /// Memory registrations per operation, both sides.
    pub registrations: Option<f64>,
    /// Invalidations per operation, local and remote, both sides.
    pub invalidations: Option<f64>,
    /// Wake-ups of the requester per operation.
    pub interrupts_requester: Option<f64>,
    /// Wake-ups of the responder per operation.
    pub interrupts_responder: Option<f64>,
    /// Messages per operation that only grant credits, both sides. They are in `sends` as well.
    /// Null for versions without such messages, and where they are not counted.
    pub grants: Option<f64>,
    /// Wake-ups per operation at which nothing but such messages had arrived, both sides.
    pub grant_interrupts: Option<f64>,
    /// System calls of the requester per operation by which bytes were sent, received or waited for. Null for
    /// verbs devices and in a simulation.
    pub system_calls_requester: Option<f64>,
    /// System calls of the responder per operation, counted like those of the requester.
    pub system_calls_responder: Option<f64>,
    /// Packets per operation that the link lost and either side sent again. Null unless a simulation has a
    /// link that loses packets.
    pub retransmissions: Option<f64>,
    /// Bytes of receives that the requester promises its responder at most: one receive for each message
    /// that its credits allow, and those beyond. Null for TCP.
    pub receive_memory_requester: Option<u64>,
    /// Bytes of receives that the responder promises the requester of this connection at most.
    pub receive_memory_responder: Option<u64>,
    /// Bytes that the receives of the responder took at most, posted or with messages that were in use,
    /// for all connections. Null for rows of one operation at a time, and for TCP.
    pub receives_taken_responder: Option<u64>,
    /// Bytes copied in user space per operation, both sides.
    pub copied_bytes: Option<f64>,
    /// Bytes on the wire per operation, both directions; null for verbs devices.
    pub wire_bytes: Option<f64>,
    /// The median of a raw TCP exchange with the same number of bytes in each direction.
    #[serde(rename = "tcp_baseline_p50_us")]
    pub floor_p50_us: Option<f64>,
    /// The variation of `floor_p50_us` between rounds: the interquartile range of the rounds'
    /// medians, divided by their median. More than a few percent indicate other work on the
    /// machine.
    #[serde(rename = "tcp_baseline_spread")]
    pub floor_spread: Option<f64>,
    /// The median latency divided by the baseline's, for slices of a few milliseconds that take
    /// turns: the median over pairs of slices, each weighted by its number of calls. (A slice that
    /// other work cut short has few.)
    #[serde(rename = "tcp_baseline_ratio")]
    pub floor_ratio: Option<f64>,
    /// The confidence interval of `floor_ratio`.
    #[serde(rename = "tcp_baseline_ratio_interval")]
    pub floor_ratio_interval: Option<Interval>,
    /// The throughput of a raw TCP stream in the same direction with messages of the same size, for
    /// comparison. Operations can exceed it.
    #[serde(rename = "tcp_stream_mib_per_s")]
    pub raw_stream_mib_per_s: Option<f64>,
    /// The variation of `raw_stream_mib_per_s` between rounds, computed like `floor_spread`.
    #[serde(rename = "tcp_stream_spread")]
    pub raw_stream_spread: Option<f64>,
    /// The operation's throughput divided by the raw stream's: the median over rounds.
    #[serde(rename = "tcp_stream_ratio")]
    pub stream_ratio: Option<f64>,
    /// The confidence interval of `stream_ratio`.
    #[serde(rename = "tcp_stream_ratio_interval")]
    pub stream_ratio_interval: Option<Interval>,
}

impl Row {
    /// Returns whether the row was computed by a simulation and not measured.
    pub(crate) fn is_exact(&self) -> bool {
        self.device.as_deref() == Some("sim")
    }

    /// Returns a ratio of this row as it is shown, with its interval.
    pub(crate) fn shown(&self, ratio: Option<f64>, interval: Option<Interval>) -> Option<Shown> {
        ratio.map(|ratio| Shown {
            ratio,
            interval,
            exact: self.is_exact(),
        })
    }

    /// Returns the ratio to the baseline as it is shown.
    pub(crate) fn beside_baseline(&self) -> Option<Shown> {
        self.shown(self.baseline_ratio, self.baseline_ratio_interval)
    }

    /// Returns the ratio to version 1 with receives as long as those for placement.
    pub(crate) fn beside_v1_long(&self) -> Option<Shown> {
        self.shown(self.v1_long_ratio, self.v1_long_ratio_interval)
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    pub(crate) fn sample() -> Row {
        Row {
            op: "read",
            size: Some(1 << 20),
            conveyance: "v1",
            device: Some("iwarp".into()),
            mode: Mode::Blocking,
            delay_us: 0.0,
            conditions: Conditions {
                inline_bytes: Some(4096),
                rate_bits_per_s: Some(10_000_000_000),
                crc: Some(false),
                congestion_control: Some("reno".into()),
                registration: Some("per-call"),
                processor_requester: Some(0),
                processor_responder: None,
                device_kind: Some("software iWARP in user space over kernel TCP"),
                loopback: Some(true),
                delayed_by: None,
                settings: None,
                costs: None,
                environment: Environment::default(),
            },
            clients: None,
            in_flight: None,
            arrivals_per_s: None,
            credits: None,
            count: 100,
            p50_us: Some(512.25),
            p50_interval_us: Some(Interval {
                low: 500.0,
                high: 520.0,
            }),
            p99_us: Some(1234.5),
            p999_us: Some(2345.5),
            histogram: None,
            baseline: Some("v1"),
            baseline_ratio: Some(1.0),
            baseline_ratio_interval: Some(Interval {
                low: 1.0,
                high: 1.0,
            }),
            rounds: Some(9),
            turns: Some(54),
            baseline_ratio_error: Some(0.0),
            v1_ratio: Some(1.0),
            v1_ratio_error: Some(0.0),
            v1_long_ratio: None,
            v1_long_ratio_interval: None,
            least_receives: None,
            predicted_us: Some(18.0),
            plan: None,
            latency_over_delay: Some(vec![OverDelay {
                delay_us: 1000.0,
                p50_us: 2512.25,
                baseline_ratio: Some(1.0),
                baseline_ratio_interval: None,
            }]),
            split: Split::default(),
            mib_per_s: Some(2048.0),
            ops_per_s: Some(2048.0),
            cpu_us: Some(700.0),
            round_trips: Some(1.002),
            round_trips_error: Some(0.01),
            sends: Some(2.0),
            rdma_reads: Some(0.0),
            rdma_writes: Some(1.0),
            registrations: Some(1.0),
            invalidations: Some(1.0),
            interrupts_requester: Some(1.0),
            interrupts_responder: Some(1.0),
            grants: None,
            grant_interrupts: None,
            system_calls_requester: Some(5.5),
            system_calls_responder: Some(4.25),
            retransmissions: None,
            receive_memory_requester: Some(134 << 12),
            receive_memory_responder: Some(70 << 12),
            receives_taken_responder: None,
            copied_bytes: Some(0.0),
            wire_bytes: Some(1_050_000.0),
            floor_p50_us: Some(400.0),
            floor_spread: Some(0.02),
            floor_ratio: Some(1.28),
            floor_ratio_interval: Some(Interval {
                low: 1.25,
                high: 1.31,
            }),
            raw_stream_mib_per_s: Some(1900.0),
            raw_stream_spread: Some(0.05),
            stream_ratio: None,
            stream_ratio_interval: None,
        }
    }

    #[test]
    fn json_has_every_promised_key_and_null_where_nothing_applies() {
        let json = serde_json::to_value([sample()]).unwrap();
        for key in [
            "op",
            "size",
            "transfer_mode",
            "device",
            "delay_us",
            "p50_us",
            "p99_us",
            "p999_us",
            "histogram",
            "mib_per_s",
            "cpu_us",
            "round_trips",
            "round_trips_error",
            "sends",
            "rdma_reads",
            "rdma_writes",
            "registrations",
            "invalidations",
            "interrupts_requester",
            "interrupts_responder",
            "system_calls_requester",
            "system_calls_responder",
            "retransmissions",
            "copied_bytes",
            "wire_bytes",
            "tcp_baseline_p50_us",
            "baseline",
            "baseline_ratio",
            "baseline_ratio_interval",
            "latency_over_delay",
            "link_us",
            "interrupts_us",
            "registration_us",
            "copies_us",
        ] {
            assert!(json[0].get(key).is_some(), "{key}");
        }
        assert!(json[0]["tcp_stream_ratio"].is_null());
        assert_eq!(
            json[0]["tcp_baseline_ratio_interval"],
            serde_json::json!([1.25, 1.31])
        );
        assert_eq!(json[0]["mode"], "blocking");
    }

    #[test]
    fn json_says_what_a_row_was_made_with() {
        let json = serde_json::to_value(sample()).unwrap();
        assert_eq!(json["rate_bits_per_s"], 10_000_000_000_u64);
        assert_eq!(json["crc"], false);
        assert_eq!(json["inline_bytes"], 4096);
        assert_eq!(json["registration"], "per-call");
        assert_eq!(json["processor_requester"], 0);
        assert!(
            json.as_object()
                .unwrap()
                .contains_key("processor_responder")
        );
        assert!(json["processor_responder"].is_null());
    }

    /// The page with the keys of operations' rows.
    const OPERATIONS: &str = "compare-rows.md";
    /// The page with the keys of the rows of `--run`.
    pub(crate) const RUNS: &str = "compare-run.md";

    /// Asserts that a page of `docs/` has a line for each key, and none for a key that does not exist.
    #[track_caller]
    pub(crate) fn assert_documented(json: &serde_json::Value, page: &str) {
        let path = format!("{}/../docs/{page}", env!("CARGO_MANIFEST_DIR"));
        let text = std::fs::read_to_string(path).unwrap();
        let mut documented: Vec<&str> = text
            .lines()
            .filter_map(|line| line.strip_prefix("| `")?.split_once('|'))
            .flat_map(|(keys, _)| keys.split('`'))
            .filter(|key| !matches!(key.trim(), "" | ","))
            .collect();
        documented.sort_unstable();
        let mut keys: Vec<&String> = json.as_object().unwrap().keys().collect();
        keys.sort_unstable();
        assert_eq!(documented, keys);
    }

    #[test]
    fn every_key_of_the_json_is_documented() {
        let json = serde_json::to_value(sample()).unwrap();
        assert_documented(&json, OPERATIONS);
    }
}
