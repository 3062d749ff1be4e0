//! `compare --device sim`: exact counts of what each operation had to wait for, in a simulation.

use rpcrdma_sim::{Measured, Operation, Setting, measure};
use verbs::Counters;

use crate::args::units::show_size;
use crate::args::{CompareArgs, Conveyance};
use crate::columns::Table;
use crate::compare::op::Op;
use crate::compare::rows::{Conditions, Mode, Row};
use crate::compare::set::inline;
use crate::failure::{Context, Failure};
use crate::output;

/// What is simulated: the cost model with what the options say.
fn setting(args: &CompareArgs) -> Setting {
    let mut setting = Setting::default();
    if !args.delay.0.is_zero() {
        setting.costs.delay = args.delay.0;
    }
    if let Some(rate) = args.rate {
        setting.costs.rate = (rate.0 / 8).max(1);
    }
    setting
}

fn operation(op: Op) -> Operation {
    match op {
        Op::Null => Operation::Null,
        Op::Getattr => Operation::Getattr,
        Op::Read(len) => Operation::Read(len),
        Op::Write(len) => Operation::Write(len),
        Op::Readdirplus(len) => Operation::Readdirplus(len),
        Op::LongCall(call) => Operation::Long { call, reply: 4 },
        Op::LongBoth(len) => Operation::Long {
            call: len,
            reply: len,
        },
    }
}

/// Simulates each operation once.
///
/// # Errors
/// An operation cannot be simulated.
pub(crate) fn rows(args: &CompareArgs, ops: &[Op]) -> Result<Vec<Row>, Failure> {
    let mut rows = Vec::new();
    for &op in ops {
        for &via in &args.via {
            let Some(version) = via.version() else {
                continue;
            };
            let mut setting = setting(args);
            setting.version = version;
            for options in [&mut setting.requester, &mut setting.responder] {
                via.configure(options, inline(args)?);
            }
            let what = measure(&setting, operation(op)).context(op)?;
            rows.push(row(op, via, &setting, &what));
        }
    }
    Ok(rows)
}

fn row(op: Op, via: Conveyance, setting: &Setting, what: &Measured) -> Row {
    let Measured {
        requester,
        responder,
        ..
    } = what;
    let both = |of: fn(&Counters) -> u64| Some((of(requester) + of(responder)) as f64);
    Row {
        op: op.name(),
        size: op.size().map(u64::from),
        conveyance: via.name(),
        device: Some("sim".to_owned()),
        mode: Mode::Blocking,
        delay_us: setting.costs.delay.as_secs_f64() * 1e6,
        conditions: Conditions {
            inline_bytes: Some(setting.requester.inline_send),
            rate_bits_per_s: setting.costs.rate.checked_mul(8),
            ..Conditions::default()
        },
        count: 1,
        p50_us: Some(what.latency.as_secs_f64() * 1e6),
        p99_us: None,
        mib_per_s: None,
        ops_per_s: None,
        cpu_us: None,
        round_trips: Some(what.round_trips),
        sends: both(|counters| counters.sends),
        rdma_reads: both(|counters| counters.rdma_reads),
        rdma_writes: both(|counters| counters.rdma_writes),
        registrations: Some(f64::from(what.registrations)),
        invalidations: both(|counters| {
            counters.local_invalidations + counters.remote_invalidations
        }),
        interrupts_requester: Some(f64::from(what.requester_interrupts)),
        interrupts_responder: Some(f64::from(what.responder_interrupts)),
        copied_bytes: both(|counters| counters.copied_bytes),
        wire_bytes: both(|counters| counters.wire_bytes_sent),
        floor_p50_us: None,
        floor_spread: None,
        floor_ratio: None,
        raw_stream_mib_per_s: None,
        raw_stream_spread: None,
        stream_ratio: None,
    }
}

/// Prints the rows as a table.
///
/// # Errors
/// Standard output cannot be written to.
pub(crate) fn print(args: &CompareArgs, rows: &[Row]) -> Result<(), Failure> {
    let setting = setting(args);
    output::line(format_args!(
        "NFS over RPC-over-RDMA versions 1 and 2, simulated (device sim): {:?} each way, {} Gbit/s, \
         interrupts of {:?}.\n",
        setting.costs.delay,
        setting.costs.rate as f64 * 8.0 / 1e9,
        setting.interrupt
    ))?;
    let mut table = Table::new(
        3,
        [
            "op", "size", "via", "trips", "intr cl", "intr srv", "reg", "inval", "Sends", "Reads",
            "Writes", "copied B", "wire B", "time µs",
        ],
    );
    for row in rows {
        let count =
            |value: Option<f64>| value.map_or_else(|| "-".into(), |value| value.to_string());
        table.push([
            row.op.to_owned(),
            row.size.map_or_else(String::new, show_size),
            row.conveyance.to_owned(),
            count(row.round_trips),
            count(row.interrupts_requester),
            count(row.interrupts_responder),
            count(row.registrations),
            count(row.invalidations),
            count(row.sends),
            count(row.rdma_reads),
            count(row.rdma_writes),
            count(row.copied_bytes),
            count(row.wire_bytes),
            row.p50_us
                .map_or_else(String::new, |time| format!("{time:.3}")),
        ]);
    }
    output::line(table.render())?;
    output::line(
        "Counted on the way of each reply: round trips, interrupts and registrations that it had to \
         wait for; the rest is what both devices did. Time is virtual.",
    )
}
