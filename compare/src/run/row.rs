//! The results of `compare --run`: rows, their table, and sentences that are computed from them.

use std::collections::BTreeMap;
use std::time::Duration;

use rpcrdma_setup::Failure;
use serde::Serialize;

use super::workload::Workload;
use super::{Delays, Sample, Samples};
use crate::interval::{Interval, Shown};
use crate::options::Options;
use crate::rows::Conditions;
use crate::table::number;
use crate::targets::{Surroundings, conditions};
use crate::variant::Variant;

const MIB: f64 = 1_048_576.0;
/// The fewest runs of which the least and the greatest ratio are an interval: of 94 %.
const INTERVAL_RUNS: u64 = 5;
/// The number of procedures that a sentence names, those that were called most often.
const NAMED: usize = 6;

/// A row of results: the cost of a command over one transport or variant. Counts and processor times are medians over all
/// runs. A value that does not apply or was not measured is null.
#[derive(Clone, Debug, Serialize)]
pub struct RunRow {
    /// The preset's name, or the command.
    pub command: String,
    /// The transport or variant, as `--via` names it.
    #[serde(rename = "transfer_mode")]
    pub conveyance: &'static str,
    /// The device under RPC-over-RDMA; null for TCP.
    pub device: Option<String>,
    /// The added delay in each direction, in microseconds.
    pub delay_us: f64,
    /// The other conditions; in JSON, each is a key of the row.
    #[serde(flatten)]
    pub conditions: Conditions,
    /// The number of runs.
    pub runs: u64,
    /// The median time from the start of the command to its end, seconds.
    pub elapsed_s: f64,
    /// The shortest time.
    pub elapsed_min_s: f64,
    /// The longest time.
    pub elapsed_max_s: f64,
    /// The transfer mode that `baseline_ratio` is relative to.
    pub baseline: Option<&'static str>,
    /// The median, over the rounds, of the time divided by that over the baseline in the same round; null
    /// if version 1 was not measured.
    pub baseline_ratio: Option<f64>,
    /// The least of these ratios.
    pub baseline_ratio_min: Option<f64>,
    /// The greatest.
    pub baseline_ratio_max: Option<f64>,
    /// The ratio like `baseline_ratio`, relative to version 1 without remote invalidation.
    /// [`run_rows_json`](crate::run_rows_json) writes it for one release.
    #[serde(skip)]
    pub v1_ratio: Option<f64>,
    /// The least of these ratios.
    #[serde(skip)]
    pub v1_ratio_min: Option<f64>,
    /// The greatest.
    #[serde(skip)]
    pub v1_ratio_max: Option<f64>,
    /// The round trips that the command waited for: the median of the rounds' slopes of time over added
    /// delay.
    pub round_trips: Option<f64>,
    /// The least of these slopes.
    pub round_trips_min: Option<f64>,
    /// The greatest.
    pub round_trips_max: Option<f64>,
    /// RPC calls of the mount.
    pub operations: f64,
    /// RPC calls over the longer link minus those over the shorter one (median). A longer run lets
    /// more cached attributes expire, and `round_trips` includes the calls that fetch them again.
    pub operations_by_delay: Option<f64>,
    /// NFS calls that arrived at the server, by procedure.
    pub procedures: BTreeMap<String, f64>,
    /// Bytes of RPC messages, both directions, without what carries them.
    pub rpc_bytes: f64,
    /// Bytes on the wire, both directions; null for verbs devices.
    pub wire_bytes: Option<f64>,
    /// Sends, both sides.
    pub sends: Option<f64>,
    /// RDMA Reads, both sides.
    pub rdma_reads: Option<f64>,
    /// RDMA Writes, both sides.
    pub rdma_writes: Option<f64>,
    /// Memory registrations, both sides.
    pub registrations: Option<f64>,
    /// Invalidations, local and remote, both sides.
    pub invalidations: Option<f64>,
    /// Wake-ups of the process with the mount.
    pub interrupts_requester: f64,
    /// Wake-ups of the server.
    pub interrupts_responder: f64,
    /// Bytes copied in user space by the process with the mount and by the server.
    pub copied_bytes: f64,
    /// Processor time of the command and of all its child processes, seconds.
    pub cpu_command_s: f64,
    /// Processor time of the process with the mount, seconds.
    pub cpu_mount_s: f64,
    /// Processor time of the server process, seconds.
    pub cpu_server_s: f64,
}

impl RunRow {
    /// Returns whether the least and the greatest of the rounds are the ends of an interval.
    fn has_interval(&self) -> bool {
        self.runs >= INTERVAL_RUNS
    }

    /// Returns the ratio to the baseline as it is shown, between the least and the greatest of the
    /// rounds if there are enough.
    fn shown(&self) -> Option<Shown> {
        let ends = self.baseline_ratio_min.zip(self.baseline_ratio_max);
        let ends = ends.filter(|_| self.has_interval());
        self.baseline_ratio.map(|ratio| Shown {
            ratio,
            interval: ends.map(|(low, high)| Interval { low, high }),
            exact: false,
        })
    }
}

/// Returns the median, the least and the greatest of some values.
fn spread(values: impl Iterator<Item = f64>) -> Option<(f64, f64, f64)> {
    let mut values: Vec<f64> = values.collect();
    values.sort_unstable_by(f64::total_cmp);
    let (least, greatest) = (*values.first()?, *values.last()?);
    let middle = values.len() / 2;
    let median = match values.len() % 2 {
        0 => f64::midpoint(values[middle - 1], values[middle]),
        _ => values[middle],
    };
    Some((median, least, greatest))
}

/// Returns the rows of all samples, which are in the order of the options' variants.
///
/// # Errors
/// The receive size is not permitted.
pub(super) fn rows(
    workload: &Workload,
    options: &Options,
    surroundings: Surroundings<'_>,
    delays: Delays,
    samples: &[Samples],
) -> Result<Vec<RunRow>, Failure> {
    let of = |wanted| {
        let mut variants = options.via.iter().zip(samples);
        let found = variants.find(|(variant, _)| Some(**variant) == wanted);
        found
            .map(|(_, samples)| &samples.asked[..])
            .unwrap_or_default()
    };
    let against = [of(Variant::baseline(&options.via)), of(Some(Variant::V1))];
    let all = options.via.iter().zip(samples);
    let rows = all.filter_map(|(&variant, samples)| {
        let registration = samples.asked.first()?.registration;
        let conditions = conditions(options, surroundings, variant, registration);
        let row = |conditions| {
            row(
                workload, options, conditions, delays, variant, samples, against,
            )
        };
        conditions.map(row).transpose()
    });
    rows.collect()
}

fn row(
    workload: &Workload,
    options: &Options,
    conditions: Conditions,
    delays: Delays,
    variant: Variant,
    samples: &Samples,
    [baseline, v1]: [&[Sample]; 2],
) -> Option<RunRow> {
    let Samples { asked, trips } = samples;
    let seconds = |time: Duration| time.as_secs_f64();
    let of = |value: &dyn Fn(&Sample) -> f64| spread(asked.iter().map(value)).map(|it| it.0);
    let (elapsed_s, elapsed_min_s, elapsed_max_s) =
        spread(asked.iter().map(|sample| seconds(sample.elapsed)))?;
    let ratios = |others: &[Sample]| {
        let both = asked.iter().zip(others);
        spread(both.map(|(own, other)| seconds(own.elapsed) / seconds(other.elapsed)))
    };
    let (ratios, v1_ratios) = (ratios(baseline), ratios(v1));
    let longer = delays
        .trips
        .map_or(Duration::ZERO, |[near, far]| far - near);
    let slopes = trips.iter().map(|[near, far]| {
        // A round trip takes the delay of both directions longer.
        (seconds(far.elapsed) - seconds(near.elapsed)) / (2.0 * seconds(longer))
    });
    let slopes = spread(slopes);
    let more = trips
        .iter()
        .map(|[near, far]| far.mount.calls as f64 - near.mount.calls as f64);
    let rdma = variant.version().is_some();
    let device = |value: &dyn Fn(&Sample) -> f64| of(value).filter(|_| rdma);
    let nanos = |nanos: u64| nanos as f64 / 1e9;
    let counts_wire = !rdma || options.device == rpcrdma_setup::device::DeviceName::Iwarp;
    let names = asked.iter().flat_map(|sample| sample.procedures.keys());
    let procedures = names.map(|name| {
        let count = |sample: &Sample| sample.procedures.get(name).copied().unwrap_or(0) as f64;
        (name.clone(), of(&count).unwrap_or(0.0))
    });
    Some(RunRow {
        command: workload.name().to_owned(),
        conveyance: variant.name(),
        device: rdma.then(|| options.device.to_string()),
        delay_us: seconds(options.delay) * 1e6,
        conditions,
        runs: asked.len() as u64,
        elapsed_s,
        elapsed_min_s,
        elapsed_max_s,
        baseline: Variant::baseline(&options.via).map(Variant::name),
        baseline_ratio: ratios.map(|it| it.0),
        baseline_ratio_min: ratios.map(|it| it.1),
        baseline_ratio_max: ratios.map(|it| it.2),
        v1_ratio: v1_ratios.map(|it| it.0),
        v1_ratio_min: v1_ratios.map(|it| it.1),
        v1_ratio_max: v1_ratios.map(|it| it.2),
        round_trips: slopes.map(|it| it.0),
        round_trips_min: slopes.map(|it| it.1),
        round_trips_max: slopes.map(|it| it.2),
        operations: of(&|it| it.mount.calls as f64)?,
        operations_by_delay: spread(more).map(|it| it.0),
        procedures: procedures.collect(),
        rpc_bytes: of(&|it| it.mount.rpc_bytes as f64)?,
        wire_bytes: of(&|it| it.did().wire_bytes_sent as f64).filter(|_| counts_wire),
        sends: device(&|it| it.did().sends as f64),
        rdma_reads: device(&|it| it.did().rdma_reads as f64),
        rdma_writes: device(&|it| it.did().rdma_writes as f64),
        registrations: device(&|it| it.did().registrations as f64),
        invalidations: device(&|it| it.did().invalidations as f64),
        interrupts_requester: of(&|it| it.mount.process.interrupts as f64)?,
        interrupts_responder: of(&|it| it.server.interrupts as f64)?,
        copied_bytes: of(&|it| it.did().copied_bytes as f64)?,
        cpu_command_s: of(&|it| nanos(it.command_cpu_ns))?,
        cpu_mount_s: of(&|it| nanos(it.mount.process.cpu_ns))?,
        cpu_server_s: of(&|it| nanos(it.server.cpu_ns))?,
    })
}

/// Returns the cells of the table: the headings, and a line for each row.
pub(crate) fn cells(rows: &[RunRow]) -> Vec<[String; 13]> {
    let baseline = rows.iter().find_map(|row| row.baseline);
    let against = format!("x {}", baseline.unwrap_or("v1-inv"));
    let headings = [
        "via",
        "seconds",
        "least",
        "most",
        &against,
        "trips",
        "NFS ops",
        "MiB",
        "Reads",
        "Writes",
        "reg",
        "CPU cmd",
        "mount+srv",
    ];
    let mut lines = vec![headings.map(str::to_owned)];
    let whole = |value: Option<f64>| value.map_or_else(|| "-".to_owned(), |it| format!("{it:.0}"));
    for row in rows {
        lines.push([
            row.conveyance.to_owned(),
            number(Some(row.elapsed_s)),
            number(Some(row.elapsed_min_s)),
            number(Some(row.elapsed_max_s)),
            row.shown()
                .map_or_else(|| "-".to_owned(), |shown| shown.cell()),
            whole(row.round_trips),
            whole(Some(row.operations)),
            number(Some(row.rpc_bytes / MIB)),
            whole(row.rdma_reads),
            whole(row.rdma_writes),
            whole(row.registrations),
            number(Some(row.cpu_command_s)),
            format!(
                "{}+{}",
                number(Some(row.cpu_mount_s)),
                number(Some(row.cpu_server_s))
            ),
        ]);
    }
    lines
}

/// Returns what was found: times and round trips beside version 1, and which calls were made.
pub(crate) fn sentences(rows: &[RunRow]) -> Vec<String> {
    let mut out = Vec::new();
    let is_baseline = |row: &&RunRow| row.baseline == Some(row.conveyance);
    if let Some(v1) = rows.iter().find(is_baseline) {
        for row in rows.iter().filter(|row| !is_baseline(row)) {
            out.extend(beside(row, v1));
        }
    }
    if let Some(row) = rows.first() {
        // Others were made in fewer than half of the runs.
        let usual = row.procedures.iter().filter(|(_, count)| **count >= 1.0);
        let mut calls: Vec<(&String, &f64)> = usual.collect();
        calls.sort_by(|a, b| b.1.total_cmp(a.1));
        let named = calls.iter().take(NAMED);
        let named: Vec<String> = named
            .map(|(name, count)| format!("{name} {count:.0}"))
            .collect();
        let rest: f64 = calls.iter().skip(NAMED).map(|(_, count)| **count).sum();
        let others = match rest {
            0.0 => String::new(),
            rest => format!(", others {rest:.0}"),
        };
        let named = match named.is_empty() {
            true => "none".to_owned(),
            false => named.join(", "),
        };
        out.push(format!(
            "NFS calls over {}: {named}{others}.",
            row.conveyance
        ));
    }
    out
}

/// The part of all calls that can be more over the longer link without a remark.
const MORE: f64 = 0.02;

/// Returns a remark on round trips that are there because the longer link made the command slower.
pub(crate) fn remark(rows: &[RunRow]) -> Option<String> {
    let more = |row: &RunRow| row.operations_by_delay.unwrap_or(0.0) / row.operations.max(1.0);
    let worst = rows.iter().max_by(|a, b| more(a).total_cmp(&more(b)))?;
    (more(worst) > MORE).then(|| {
        format!(
            "The longer link made {:.0} calls more over {}, for attributes that expired meanwhile, and \
             trips contains these. Mount options such as `-o actimeo=600` avoid that.",
            worst.operations_by_delay.unwrap_or(0.0),
            worst.conveyance
        )
    })
}

/// Returns the round trips of two rows in words; with those of the rounds, unless all rounds of one waited for fewer
/// than any of the other.
fn trips_beside(row: &RunRow, v1: &RunRow) -> Option<String> {
    let known = |row: &RunRow| Some((row.round_trips?, row.round_trips_min?, row.round_trips_max?));
    let ((own, least, most), (v1, v1_least, v1_most)) = (known(row)?, known(v1)?);
    Some(match most < v1_least || v1_most < least {
        true => format!(". It waits for {own:.0} round trips instead of {v1:.0}"),
        false => format!(
            ". It waits for {own:.0} round trips ({least:.0} to {most:.0}) instead of {v1:.0} ({v1_least:.0} to \
             {v1_most:.0}), which the rounds do not tell apart"
        ),
    })
}

fn beside(row: &RunRow, v1: &RunRow) -> Option<String> {
    let link = match row.delay_us {
        0.0 => String::new(),
        delay => format!(
            " over a link of {:?} each way",
            Duration::from_secs_f64(delay / 1e6)
        ),
    };
    let trips = trips_beside(row, v1).unwrap_or_default();
    let (least, most) = (row.baseline_ratio_min?, row.baseline_ratio_max?);
    let none = match (least..=most).contains(&1.0) {
        _ if !row.has_interval() => ", too few runs for an interval",
        true => ", which includes 1",
        false => "",
    };
    Some(format!(
        "`{}` takes {} s by {} and {} s by {}{link}; the median of the rounds' ratios is {:.2} \
         ({least:.2} to {most:.2}{none}){trips}.",
        row.command,
        number(Some(row.elapsed_s)),
        row.conveyance,
        number(Some(v1.elapsed_s)),
        v1.conveyance,
        row.baseline_ratio?,
    ))
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::environment::Environment;
    use crate::usage::Usage;

    fn sample(millis: u64, reads: u64) -> Sample {
        Sample {
            elapsed: Duration::from_millis(millis),
            command_cpu_ns: 30_000_000,
            mount: super::super::MountUsage {
                process: Usage {
                    registrations: reads,
                    ..Usage::default()
                },
                calls: 100,
                rpc_bytes: 3 << 20,
            },
            server: Usage {
                rdma_reads: reads,
                ..Usage::default()
            },
            procedures: [("WRITE".to_owned(), 60), ("READ".to_owned(), 40)].into(),
            registration: Some("per-call"),
        }
    }

    pub(crate) fn two() -> Vec<RunRow> {
        let workload = Workload::new("log", None).unwrap();
        let options = Options {
            via: vec![Variant::V1, Variant::V2DdpCont],
            delay: Duration::from_millis(1),
            ..Options::default()
        };
        // Version 1 waits for 200 round trips in all rounds but a disturbed one, version 2 for 100.
        let samples = |asked: [u64; 5], far: [u64; 5], reads| Samples {
            asked: asked.map(|ms| sample(ms, reads)).to_vec(),
            trips: asked
                .into_iter()
                .zip(far)
                .map(|(near, far)| [near, far].map(|ms| sample(ms, reads)))
                .collect(),
        };
        let v1 = samples([500, 500, 520, 900, 900], [900, 900, 920, 1000, 1000], 60);
        let v2 = samples([300, 300, 260, 450, 450], [500, 500, 460, 660, 660], 0);
        let delays = Delays::new(options.delay, true);
        let surroundings = Surroundings {
            processors: None,
            congestion: Some("cubic"),
            environment: &Environment::default(),
        };
        rows(&workload, &options, surroundings, delays, &[v1, v2]).unwrap()
    }

    #[test]
    fn calls_that_a_longer_link_adds_are_remarked_on() {
        let mut rows = two();
        assert_eq!(remark(&rows), None);
        rows[1].operations_by_delay = Some(2.0);
        assert_eq!(remark(&rows), None);
        rows[1].operations_by_delay = Some(30.0);
        let said = remark(&rows).unwrap();
        assert!(
            said.starts_with("The longer link made 30 calls more over v2-ddp-cont"),
            "{said}"
        );
    }

    #[test]
    fn medians_ratios_and_slopes_are_those_of_rounds() {
        let rows = two();
        let v2 = &rows[1];
        assert_eq!(
            (v2.elapsed_s, v2.elapsed_min_s, v2.elapsed_max_s),
            (0.3, 0.26, 0.45)
        );
        assert_eq!((v2.baseline, v2.baseline_ratio), (Some("v1"), Some(0.5)));
        assert_eq!(v2.v1_ratio, Some(0.5));
        let trips = |row: &RunRow| row.round_trips.map(f64::round);
        assert_eq!((trips(&rows[0]), trips(v2)), (Some(200.0), Some(100.0)));
        assert_eq!(
            (v2.registrations, rows[0].registrations),
            (Some(0.0), Some(60.0))
        );
        assert_eq!(v2.procedures["WRITE"], 60.0);
    }

    #[test]
    fn sentences_say_what_is_in_the_rows() {
        assert_eq!(
            sentences(&two()),
            [
                "`log` takes 0.30 s by v2-ddp-cont and 0.52 s by v1 over a link of 1ms each way; the \
                 median of the rounds' ratios is 0.50 (0.50 to 0.60). It waits for 100 round trips (100 \
                 to 105) instead of 200 (50 to 200), which the rounds do not tell apart.",
                "NFS calls over v1: WRITE 60, READ 40.",
            ]
        );
        assert_eq!(
            sentences(&two()[1..]),
            ["NFS calls over v2-ddp-cont: WRITE 60, READ 40."]
        );
        assert!(sentences(&[]).is_empty());
        let mut steady = two();
        steady[0].round_trips_min = Some(198.0);
        let said = sentences(&steady).concat();
        assert!(
            said.contains("It waits for 100 round trips instead of 200."),
            "{said}"
        );
        let mut noise = two();
        noise[1].baseline_ratio_max = Some(1.1);
        assert_eq!(cells(&noise)[2][4], "0.50? (0.50-1.10)");
        let said = sentences(&noise).concat();
        assert!(said.contains("(0.50 to 1.10, which includes 1)"), "{said}");
        let mut few = two();
        few[1].runs = 4;
        assert_eq!(cells(&few)[2][4], "~0.50");
        let said = sentences(&few).concat();
        assert!(
            said.contains("(0.50 to 0.60, too few runs for an interval)"),
            "{said}"
        );
        let mut rare = two();
        rare[0].procedures.insert("FSSTAT".to_owned(), 0.0);
        assert_eq!(sentences(&rare), sentences(&two()));
        rare[0].procedures.clear();
        assert_eq!(sentences(&rare[..1]), ["NFS calls over v1: none."]);
    }

    #[test]
    fn a_line_of_the_table_has_each_figure_in_its_column() {
        let cells = cells(&two());
        assert_eq!(cells[0][5], "trips");
        assert_eq!(cells[1][..6], ["v1", "0.52", "0.50", "0.90", "1", "200"]);
        assert_eq!(
            cells[1][6..],
            ["100", "3.00", "60", "0", "60", "0.03", "0.00+0.00"]
        );
    }

    /// docs/compare-run.md must have a line for each key, and none for a key that does not exist.
    #[test]
    fn every_key_of_the_json_is_documented() {
        let json = serde_json::to_value(&two()[0]).unwrap();
        crate::rows::tests::assert_documented(&json, crate::rows::tests::RUNS);
    }
}
