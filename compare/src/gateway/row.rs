//! The rows of `compare --gateway`.

use serde::Serialize;

use crate::interval::{Interval, Shown};
use crate::rows::Conditions;

/// The most that all processes together may use, as a multiple of what they use at the hops alone.
pub(super) const MOST: f64 = 1.25;

/// Costs of one call, summed over all processes.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct CostOfCall {
    /// Processor time, microseconds.
    pub cpu_us: f64,
    /// System calls by which bytes were sent, received or waited for.
    pub system_calls: f64,
    /// Bytes copied in user space.
    pub copied_bytes: f64,
}

/// A row of results: an operation through two gateways, with one version of RPC-over-RDMA between them. The *hops* are those
/// that a call passes: TCP to the first gateway, RPC-over-RDMA, and TCP to the server. Each was measured alone, with a
/// client and a server of its own. A value that does not apply or was not measured is null.
#[derive(Clone, Debug, Default, Serialize)]
pub struct GatewayRow {
    /// The operation.
    pub op: &'static str,
    /// The bytes of data that one operation moves.
    pub size: Option<u64>,
    /// The variant between the gateways, as `--via` names it.
    pub transfer_mode: &'static str,
    /// The device under it.
    pub device: String,
    /// The conditions between the gateways; in JSON, each is a key of the row.
    #[serde(flatten)]
    pub conditions: Conditions,
    /// The number of calls, one at a time, of which latency and costs are.
    pub count: u64,
    /// The median latency through the gateways, without delay.
    pub p50_us: Option<f64>,
    /// Its confidence interval.
    pub p50_interval_us: Option<Interval>,
    /// 99th percentile of latency.
    pub p99_us: Option<f64>,
    /// The median latency of TCP alone: a client and a server.
    pub tcp_p50_us: Option<f64>,
    /// The median latency of the variant alone.
    pub rdma_p50_us: Option<f64>,
    /// The latency divided by the sum of the hops' (twice TCP, and the variant): the median over turns.
    pub hops_ratio: Option<f64>,
    /// The confidence interval of `hops_ratio`.
    pub hops_ratio_interval: Option<Interval>,
    /// Operations per second with several in flight.
    pub ops_per_s: Option<f64>,
    /// Operations per second over TCP alone, with several in flight.
    pub tcp_ops_per_s: Option<f64>,
    /// Operations per second by the variant alone, with several in flight.
    pub rdma_ops_per_s: Option<f64>,
    /// Data moved per second through the gateways, with several operations in flight.
    pub mib_per_s: Option<f64>,
    /// Processor time per operation, of client, gateways and server.
    pub cpu_us: f64,
    /// Sum of the hops'.
    pub hops_cpu_us: f64,
    /// System calls per operation, of client, gateways and server; null for verbs devices, of which what a library does
    /// is not known.
    pub system_calls: Option<f64>,
    /// Sum of the hops'.
    pub hops_system_calls: Option<f64>,
    /// Bytes copied in user space per operation, by client, gateways and server.
    pub copied_bytes: f64,
    /// Sum of the hops'.
    pub hops_copied_bytes: f64,
    /// Sends per operation between the gateways, both sides.
    pub sends: f64,
    /// RDMA Reads per operation between the gateways.
    pub rdma_reads: f64,
    /// RDMA Writes per operation between the gateways.
    pub rdma_writes: f64,
    /// Memory registrations per operation, of both gateways.
    pub registrations: f64,
    /// The added delay between the gateways in each direction, of what follows.
    pub delay_us: Option<f64>,
    /// The median latency through the gateways with that delay between them.
    pub delayed_p50_us: Option<f64>,
    /// The median latency over TCP from client to server with that delay.
    pub delayed_tcp_p50_us: Option<f64>,
    /// The quotient of the two: the median over turns.
    pub delayed_tcp_ratio: Option<f64>,
    /// The confidence interval of `delayed_tcp_ratio`.
    pub delayed_tcp_ratio_interval: Option<Interval>,
    /// Round trips per operation between the gateways by the clock: the slope of the fastest tenth's latency over added
    /// delay. Null if its standard error exceeds 0.25.
    pub round_trips: Option<f64>,
    /// The standard error of `round_trips`.
    pub round_trips_error: Option<f64>,
    /// Round trips per operation over TCP from client to server, by the clock.
    pub tcp_round_trips: Option<f64>,
    /// Round trips per operation between the gateways by count, in a capture of their traffic. Null if an operation is
    /// several calls.
    pub counted_round_trips: Option<f64>,
}

impl GatewayRow {
    /// Returns the latency over the sum of the hops' as it is shown.
    pub(super) fn beside_hops(&self) -> Option<Shown> {
        shown(self.hops_ratio, self.hops_ratio_interval)
    }

    /// Returns the latency over TCP's with a delay as it is shown.
    pub(super) fn beside_tcp(&self) -> Option<Shown> {
        shown(self.delayed_tcp_ratio, self.delayed_tcp_ratio_interval)
    }

    /// Returns the costs with their names, each with the sum of the hops'.
    pub(super) fn costs(&self) -> [(&'static str, Option<(f64, f64)>); 3] {
        [
            ("processor time", Some((self.cpu_us, self.hops_cpu_us))),
            (
                "system calls",
                self.system_calls.zip(self.hops_system_calls),
            ),
            (
                "copied bytes",
                Some((self.copied_bytes, self.hops_copied_bytes)),
            ),
        ]
    }
}

fn shown(ratio: Option<f64>, interval: Option<Interval>) -> Option<Shown> {
    ratio.map(|ratio| Shown {
        ratio,
        interval,
        exact: false,
    })
}

/// Returns a cost as a multiple of the hops' sum. It is 1 where neither has any.
pub(super) fn multiple((own, hops): (f64, f64)) -> f64 {
    match hops > 0.0 {
        true => own / hops,
        false if own > 0.0 => f64::INFINITY,
        false => 1.0,
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    pub(crate) fn sample() -> GatewayRow {
        GatewayRow {
            op: "write",
            size: Some(1 << 20),
            transfer_mode: "v1-inv",
            device: "iwarp".to_owned(),
            count: 1000,
            p50_us: Some(4321.0),
            p50_interval_us: Some(Interval {
                low: 4300.0,
                high: 4400.0,
            }),
            p99_us: Some(6000.0),
            tcp_p50_us: Some(1500.0),
            rdma_p50_us: Some(1700.0),
            hops_ratio: Some(0.92),
            hops_ratio_interval: Some(Interval {
                low: 0.91,
                high: 0.93,
            }),
            ops_per_s: Some(431.2),
            tcp_ops_per_s: Some(1234.5),
            rdma_ops_per_s: Some(1034.5),
            mib_per_s: Some(431.2),
            cpu_us: 6543.2,
            hops_cpu_us: 8765.4,
            system_calls: Some(9.0),
            hops_system_calls: Some(10.0),
            copied_bytes: 2_097_352.0,
            hops_copied_bytes: 3_145_928.0,
            sends: 2.0,
            rdma_reads: 17.0,
            registrations: 1.0,
            delay_us: Some(1000.0),
            delayed_p50_us: Some(9876.0),
            delayed_tcp_p50_us: Some(5432.0),
            delayed_tcp_ratio: Some(1.82),
            delayed_tcp_ratio_interval: Some(Interval {
                low: 1.81,
                high: 1.83,
            }),
            round_trips: Some(2.01),
            round_trips_error: Some(0.02),
            tcp_round_trips: Some(1.0),
            counted_round_trips: Some(2.0),
            ..GatewayRow::default()
        }
    }

    #[test]
    fn a_cost_is_compared_with_that_of_the_hops() {
        assert_eq!(multiple((5.0, 4.0)), 1.25);
        assert_eq!(multiple((0.0, 0.0)), 1.0);
        assert_eq!(multiple((1.0, 0.0)), f64::INFINITY);
    }

    #[test]
    fn every_key_of_the_json_is_documented() {
        let json = serde_json::to_value(sample()).unwrap();
        crate::rows::tests::assert_documented(&json, "compare-gateway.md");
    }
}
