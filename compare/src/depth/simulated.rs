//! The rows of a simulation.

use std::sync::Arc;
use std::time::Duration;

use rdma::Counters;
use rpcrdma_programs::workload::{Pace, Workload};
use rpcrdma_setup::{Context, Failure};
use rpcrdma_sim::{Load, Loaded, Setting, load};

use super::{Point, points, row};
use crate::options::Options;
use crate::rows::Row;
use crate::simulated::{compare, conditions, configured, delay_us};
use crate::variant::Variant;

/// The least number of operations of all clients together. A grant of the working group's version 2
/// is due once in many messages.
const OPERATIONS: u64 = 256;
/// The number of operations for each in flight.
const TIMES: u64 = 16;

/// Performs each operation in simulations, one for each variant and pace.
///
/// # Errors
/// An operation cannot be simulated.
pub(crate) fn rows(options: &Options, ops: &[Arc<dyn Workload>]) -> Result<Vec<Row>, Failure> {
    let mut rows = Vec::new();
    for op in ops.iter().map(|op| &**op) {
        for point in points(options) {
            let Point { clients, pace } = point;
            let of_point = rows.len();
            for &via in &options.via {
                let Some(setting) = configured(options, via)? else {
                    continue;
                };
                let in_flight = match pace {
                    Pace::InFlight(calls) => u64::from(calls),
                    Pace::Arrivals(_) => TIMES,
                };
                let least = OPERATIONS.div_ceil(u64::from(clients));
                let asked = Load {
                    clients,
                    pace,
                    operations: least.max(in_flight * TIMES),
                };
                let loaded = load(&setting, op, &asked).context(op)?;
                let what = filled(row(op, point), via, &setting, &loaded);
                rows.push(with_conditions(what, options, &setting));
            }
            compare(&mut rows[of_point..], Variant::baseline(&options.via));
        }
    }
    Ok(rows)
}

fn with_conditions(row: Row, options: &Options, setting: &Setting) -> Row {
    Row {
        device: Some("sim".to_owned()),
        delay_us: delay_us(setting),
        conditions: conditions(options, setting),
        ..row
    }
}

/// Fills in what was measured and counted, for each operation.
fn filled(row: Row, via: Variant, setting: &Setting, loaded: &Loaded) -> Row {
    let operations = loaded.latencies.len() as f64;
    let each = |count: u64| Some(count as f64 / operations);
    let both = |of: fn(&Counters) -> u64| each(of(&loaded.requester) + of(&loaded.responder));
    let mut latencies = loaded.latencies.clone();
    latencies.sort_unstable();
    let percentile = |percent: f64| {
        let rank = (percent / 100.0 * operations).ceil() as usize;
        let time = latencies.get(rank.saturating_sub(1));
        time.map(|time: &Duration| time.as_secs_f64() * 1e6)
    };
    let ops_per_s = operations / loaded.elapsed.as_secs_f64();
    let mib = row.size.map(|size| size as f64 / 1_048_576.0);
    Row {
        conveyance: via.name(),
        count: loaded.latencies.len() as u64,
        p50_us: percentile(50.0),
        p99_us: percentile(99.0),
        p999_us: percentile(99.9),
        ops_per_s: Some(ops_per_s),
        mib_per_s: mib.map(|mib| mib * ops_per_s),
        sends: both(|counters| counters.sends),
        rdma_reads: both(|counters| counters.rdma_reads),
        rdma_writes: both(|counters| counters.rdma_writes),
        registrations: both(|counters| counters.registrations),
        invalidations: both(|counters| {
            counters.local_invalidations + counters.remote_invalidations
        }),
        interrupts_requester: each(loaded.requester.interrupts),
        interrupts_responder: each(loaded.responder.interrupts),
        grants: loaded.grants.map(|grants| grants.messages),
        grant_interrupts: loaded.grants.map(|grants| grants.interrupts),
        credits: Some(loaded.credits),
        retransmissions: each(loaded.retransmissions).filter(|_| setting.costs.noise.loss > 0),
        receives_taken_responder: Some(loaded.receives_taken),
        copied_bytes: both(|counters| counters.copied_bytes),
        wire_bytes: both(|counters| counters.wire_bytes_sent),
        ..row
    }
}
