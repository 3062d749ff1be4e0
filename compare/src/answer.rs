//! The answer of a comparison: a short table of version 1 and the best variant of version 2, beside
//! TCP, and sentences that are computed from it.

use rpc_transport::rdma::RdmaOptions;
use rpcrdma_setup::columns::Table;
use rpcrdma_setup::units::{show_amount, show_size};

use crate::interval::{Difference, Shown};
use crate::measurement::ROUNDS;
use crate::receives;
use crate::rows::{Mode, Row};
use crate::table;
use crate::table::number;
use crate::trips;
use crate::variant::Variant;

/// The variants of version 2, best first: the first one that was measured is compared with
/// version 1.
const BEST: [Variant; 4] = [
    Variant::V2DdpCont,
    Variant::V2Ddp,
    Variant::V2Cont,
    Variant::V2,
];
/// The length of the receives of Linux, in bytes.
const LINUX_RECEIVES: u32 = RdmaOptions::DEFAULT_INLINE;
/// The size of the WRITE that the first sentence is about, if it was measured: a small file, and
/// more than fits into the receives of version 1.
const USUAL_SIZE: u64 = 8 << 10;
/// The smallest ratio of times that is said to be longer: less is lost in the noise.
const LONGER: f64 = 1.05;
/// The largest distance from a whole number at which a measured count is shown as that number.
const WHOLE: f64 = 0.1;

/// The rows of one operation: by version 1, which is the baseline, by a variant of version 2, and, if
/// they were measured, by version 1 with receives as long as those of version 2, and over TCP.
struct Pair<'a> {
    v1: &'a Row,
    v2: &'a Row,
    v1_long: Option<&'a Row>,
    tcp: Option<&'a Row>,
}

impl<'a> Pair<'a> {
    /// Returns the pair of each operation that was measured by both, in the order of `rows`.
    fn all(rows: &'a [Row]) -> Vec<Self> {
        let rows = || rows.iter().filter(|row| row.mode == Mode::Blocking);
        let best = BEST
            .map(Variant::name)
            .into_iter()
            .find(|&name| rows().any(|row| row.conveyance == name));
        let Some(best) = best else {
            return Vec::new();
        };
        let v1 = rows().filter(|row| row.baseline == Some(row.conveyance));
        v1.filter_map(|v1| {
            let same = |name: &'static str| {
                rows().find(|row| row.conveyance == name && (row.op, row.size) == (v1.op, v1.size))
            };
            let [tcp, v1_long] =
                [Variant::Tcp, Variant::V1Long].map(|variant| same(variant.name()));
            same(best).map(|v2| Self {
                v1,
                v2,
                v1_long,
                tcp,
            })
        })
        .collect()
    }

    /// Returns version 1 with longer receives, if it sends other messages with them.
    fn differing_long(&self) -> Option<&'a Row> {
        let work = |row: &Row| {
            [
                row.sends,
                row.rdma_reads,
                row.rdma_writes,
                row.registrations,
            ]
            .map(count)
        };
        self.v1_long.filter(|long| work(long) != work(self.v1))
    }

    /// Returns the rows, in the order of the table.
    fn rows(&self) -> impl Iterator<Item = &'a Row> + use<'a> {
        let long = self.differing_long();
        let rows = [self.tcp, Some(self.v1), long, Some(self.v2)];
        rows.into_iter().flatten()
    }

    /// Returns the shortest delay, in microseconds, that is longer than that of the rows and was
    /// measured.
    fn link(&self) -> Option<f64> {
        let points = self.v1.latency_over_delay.iter().flatten();
        let delays = points.map(|point| point.delay_us);
        let longer = delays.filter(|&delay| delay > self.v1.delay_us);
        longer.min_by(f64::total_cmp)
    }

    /// Returns the ratio of one of the rows to the baseline over a link with that delay.
    fn over_link(&self, row: &Row) -> Option<Shown> {
        let delay = self.link()?;
        let mut points = row.latency_over_delay.iter().flatten();
        let point = points.find(|point| point.delay_us == delay)?;
        row.shown(point.baseline_ratio, point.baseline_ratio_interval)
    }
}

/// Formats a count per operation: without decimals if it is close to a whole number, so that the
/// disturbance of a few calls does not hide what the protocol needs.
fn count(value: Option<f64>) -> String {
    match value {
        None => "-".to_owned(),
        // Adding 0 makes 0 of -0.
        Some(value) if (value - value.round()).abs() < WHOLE => format!("{}", value.round() + 0.0),
        Some(value) => format!("{value:.1}"),
    }
}

/// Formats a delay in one direction.
fn delay(micros: f64) -> String {
    match micros >= 1000.0 {
        true => format!("{} ms", micros / 1000.0),
        false => format!("{micros} µs"),
    }
}

/// Returns "an" before a size that is spoken with a vowel first, else "a".
fn article(size: &str) -> &'static str {
    match size.starts_with('8') || size.starts_with("11 ") || size.starts_with("18 ") {
        true => "An",
        false => "A",
    }
}

/// Returns whether rows are from a simulation, which knows the bytes that are copied and no processor time.
fn is_simulated(rows: &[Row]) -> bool {
    rows.iter().all(Row::is_exact)
}

/// Returns the cells of the table, the headings first: one line for each operation and transfer mode.
/// Returns `None` if no operation was measured by version 1 and by version 2.
pub(crate) fn cells(rows: &[Row]) -> Option<Vec<[String; 10]>> {
    let pairs = Pair::all(rows);
    let over = match pairs.iter().find_map(Pair::link) {
        Some(micros) => format!("link of {}", delay(micros)),
        None => "link".to_owned(),
    };
    let against = table::against(rows);
    let work = if is_simulated(rows) {
        "copied B"
    } else {
        "CPU µs"
    };
    let headings = [
        "op", "size", "via", "trips", "intr c/s", "reg", work, "p50 µs", &against, &over,
    ];
    let mut lines = vec![headings.map(str::to_owned)];
    for pair in &pairs {
        for row in pair.rows() {
            lines.push([
                row.op.to_owned(),
                row.size.map_or_else(String::new, show_size),
                row.conveyance.to_owned(),
                count(row.round_trips),
                format!(
                    "{}/{}",
                    count(row.interrupts_requester),
                    count(row.interrupts_responder)
                ),
                count(row.registrations),
                number(match is_simulated(rows) {
                    true => row.copied_bytes,
                    false => row.cpu_us,
                }),
                number(row.p50_us),
                table::ratio(row.beside_baseline()),
                table::ratio(pair.over_link(row)),
            ]);
        }
    }
    (lines.len() > 1).then_some(lines)
}

/// The number of columns of the table that are flush left: those that name the row.
pub(crate) const NAMES: usize = 3;

/// Formats the table as text, if there is one.
pub(crate) fn table(rows: &[Row]) -> Option<String> {
    let mut lines = cells(rows)?.into_iter();
    let headings = lines.next()?;
    let mut table = Table::new(NAMES, headings.each_ref().map(String::as_str)).narrow();
    lines.for_each(|line| table.push(line));
    Some(table.render())
}

/// Returns sentences that are computed from the rows: what a WRITE of the usual size costs by each
/// version (or, without one, the first WRITE or operation), and which operations need fewer round trips by version
/// 2. There are none if no operation was measured by both.
pub(crate) fn sentences(rows: &[Row]) -> Vec<String> {
    let pairs = Pair::all(rows);
    let writes = || pairs.iter().filter(|pair| pair.v1.op == "write");
    let usual = writes().find(|pair| pair.v1.size == Some(USUAL_SIZE));
    let Some(headline) = usual.or(writes().next()).or(pairs.first()) else {
        return Vec::new();
    };
    let mut sentences = vec![times(headline)];
    sentences.extend(work(headline));
    sentences.extend(with_long_receives(headline));
    sentences.extend(over_tcp(headline));
    sentences.extend(fewer_round_trips(&pairs));
    sentences.extend(dearer(&pairs));
    sentences
}

/// Returns the name of the operation as in running text: "8 KiB WRITE".
fn name(row: &Row) -> String {
    let op = row.op.to_uppercase();
    match row.size {
        // The bytes of a tree are what it happens to have.
        Some(size) if row.op.ends_with("-tree") => format!("{} {op}", show_amount(size)),
        Some(size) => format!("{} {op}", show_size(size)),
        None => op,
    }
}

/// Returns what is said of the times of a row beside version 1: here, and over a longer link.
fn beside(pair: &Pair<'_>, row: &Row) -> String {
    let here = row.beside_baseline();
    let here = here.map(|shown| format!("{} here", shown.of_the_time()));
    let over_link = pair.over_link(row).zip(pair.link()).map(|(shown, micros)| {
        format!(
            "{} over a link of {} each way",
            shown.of_the_time(),
            delay(micros)
        )
    });
    let times: Vec<String> = here.into_iter().chain(over_link).collect();
    times.join(", ")
}

/// Returns the sentence about round trips and times.
fn times(pair: &Pair<'_>) -> String {
    let &Pair { v1, v2, .. } = pair;
    let name = name(v1);
    let article = article(&name);
    let times = beside(pair, v2);
    match v1.round_trips.is_some() && v2.round_trips.is_some() {
        true => format!(
            "{article} {name} takes {} by version 1{} and {} by version 2{}: {times}.",
            plural(v1.round_trips, "round trip"),
            with_receives(v1),
            count(v2.round_trips),
            with_receives(v2)
        ),
        false => format!("{article} {name} by version 2 takes, beside version 1, {times}."),
    }
}

/// Returns the sentence about version 1 with receives as long as those of version 2, if that was measured: whether
/// version 2 is better or only has more memory for receives.
fn with_long_receives(pair: &Pair<'_>) -> Option<String> {
    let &Pair { v1, v2, .. } = pair;
    let long = pair.v1_long?;
    let length = long.conditions.inline_bytes?;
    if v2.conditions.inline_bytes != Some(length) {
        return None;
    }
    let trips = match long.round_trips {
        Some(_) => format!(" {} and", plural(long.round_trips, "round trip")),
        None => String::new(),
    };
    let memory = receives::memory(long).zip(receives::memory(v1));
    let memory = memory.map(|(long, usual)| {
        let [long, usual] = [long, usual].map(show_amount);
        format!(", which are {long} for a connection instead of {usual}")
    });
    Some(format!(
        "With receives of {}{}, version 1 takes{trips} {}.",
        show_size(length.into()),
        memory.unwrap_or_default(),
        beside(pair, long),
    ))
}

/// Returns the sentence about the same operation over TCP, if that was measured.
fn over_tcp(pair: &Pair<'_>) -> Option<String> {
    let tcp = pair.tcp?;
    let trips = match tcp.round_trips {
        Some(_) => format!(" {} and", plural(tcp.round_trips, "round trip")),
        None => String::new(),
    };
    let times = beside(pair, tcp);
    Some(format!(
        "Over TCP it takes{trips}, beside version 1, {times}."
    ))
}

/// Returns a phrase with the length of the receives, on which round trips depend in each version.
fn with_receives(row: &Row) -> String {
    let length = row.conditions.inline_bytes;
    length.map_or_else(String::new, |length| {
        format!(" with receives of {}", show_size(length.into()))
    })
}

/// Returns "1 round trip" or "2 round trips".
fn plural(value: Option<f64>, what: &str) -> String {
    let count = count(value);
    let ending = if count == "1" { "" } else { "s" };
    format!("{count} {what}{ending}")
}

/// Returns the sentence about interrupts and registrations, if they were counted.
fn work(Pair { v1, v2, .. }: &Pair<'_>) -> Option<String> {
    let of = |row: &Row| {
        Some([
            row.interrupts_responder?,
            row.interrupts_requester?,
            row.registrations?,
        ])
    };
    let ([server, client, registered], by_v2) = (of(v1)?, of(v2)?.map(|value| count(Some(value))));
    Some(format!(
        "For it, version 1 needs {} at the server, {} at the client and {}; version 2 needs {}, {} \
         and {}.",
        plural(Some(server), "interrupt"),
        count(Some(client)),
        plural(Some(registered), "memory registration"),
        by_v2[0],
        by_v2[1],
        by_v2[2],
    ))
}

/// Returns the sentence that lists the operations by whether version 2 needs fewer round trips.
/// Counts that are closer than half a round trip are the same.
fn fewer_round_trips(pairs: &[Pair<'_>]) -> Option<String> {
    let saved = |pair: &Pair<'_>| Some(pair.v1.round_trips? - pair.v2.round_trips?);
    let names = |wanted: fn(f64) -> bool| {
        let pairs = pairs.iter().filter(|pair| saved(pair).is_some_and(wanted));
        let names: Vec<String> = pairs.map(|pair| name(pair.v1)).collect();
        (!names.is_empty()).then(|| names.join(", "))
    };
    let lists = [
        ("fewer round trips for", names(|saved| saved > 0.5)),
        ("as many for", names(|saved| saved.abs() <= 0.5)),
        ("more for", names(|saved| saved < -0.5)),
    ];
    let lists = lists
        .into_iter()
        .filter_map(|(what, names)| Some(format!("{what} {}", names?)));
    let lists: Vec<String> = lists.collect();
    (!lists.is_empty()).then(|| format!("Version 2 needs {}.", lists.join("; ")))
}

/// Returns the sentences about what version 2 costs: the operations that take longer by it, and
/// those that interrupt more, which are those whose messages take several Sends.
fn dearer(pairs: &[Pair<'_>]) -> Vec<String> {
    let list = |cost: &dyn Fn(&Pair<'_>) -> Option<String>| {
        let found = pairs.iter().filter_map(|pair| {
            let cost = cost(pair)?;
            Some(format!("{} ({cost})", name(pair.v1)))
        });
        let found: Vec<String> = found.collect();
        (!found.is_empty()).then(|| found.join(", "))
    };
    let longer = list(&|pair| {
        let shown = pair.v2.beside_baseline()?;
        let is_longer = shown.difference() == Difference::More && shown.ratio >= LONGER;
        is_longer.then(|| format!("{:.2} of the time", shown.ratio))
    });
    let interrupts = |row: &Row| Some(row.interrupts_requester? + row.interrupts_responder?);
    let more = list(&|pair| {
        let (v1, v2) = (interrupts(pair.v1)?, interrupts(pair.v2)?);
        let sends = count(Some(pair.v2.sends?));
        (v2 - v1 > 0.5).then(|| format!("{sends} Sends"))
    });
    let longer = longer.map(|list| format!("Version 2 takes longer for {list}."));
    let more = more
        .map(|list| format!("It interrupts more for {list}, each of which can wake its receiver."));
    longer.into_iter().chain(more).collect()
}

/// Returns remarks on how to read the table, for the variants and delays in `rows`.
pub(crate) fn legend(rows: &[Row]) -> Vec<String> {
    let pairs = Pair::all(rows);
    let Some(first) = pairs.first() else {
        return Vec::new();
    };
    let with = match first.v2.conveyance {
        "v2-ddp-cont" => ", with data placed by Sends (ddp) and messages in several Sends (cont)",
        "v2-ddp" => ", with data placed by Sends (ddp)",
        "v2-cont" => ", with messages in several Sends (cont)",
        _ => ", without extensions",
    };
    let long = match pairs.iter().any(|pair| pair.v1_long.is_some()) {
        true => format!(
            "; v1-long the same with receives as long as those of {}, shown where its messages differ",
            first.v2.conveyance
        ),
        false => String::new(),
    };
    let mut lines = vec![format!(
        "via: {} is RPC-over-RDMA version 1 {}{long}; {} is version 2 of 2016{with}.",
        first.v1.conveyance,
        match first.v1.conveyance == Variant::V1Inv.name() {
            // With other receives, it is not what Linux has.
            true if first.v1.conditions.inline_bytes == Some(LINUX_RECEIVES) =>
                "with remote invalidation, as Linux uses it",
            true => "with remote invalidation",
            false => "without remote invalidation",
        },
        first.v2.conveyance
    )];
    let link = first.link().map(|micros| {
        let delay = delay(micros);
        format!("; link of {delay}: the same ratio with {delay} added each way")
    });
    lines.push(format!(
        "trips: round trips. intr: wake-ups of client and server. reg: memory registrations. {}, both \
         together. {}: time over that of {}{}.",
        match is_simulated(rows) {
            true => "copied B: bytes copied",
            false => "CPU: processor time",
        },
        table::against(rows),
        first.v1.conveyance,
        link.unwrap_or_default(),
    ));
    if !first.v1.is_exact() {
        lines.push(format!(
            "In brackets: confidence interval of 95 %, from the medians of {ROUNDS} rounds (over a link: from \
             turns of a few calls); none: a difference that it does not exclude; ~: too few for one."
        ));
    }
    lines.extend(trips::remark(rows));
    lines
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::interval::Interval;
    use crate::rows::OverDelay;
    use crate::rows::tests::sample;

    fn point(delay_us: f64, p50_us: f64, low: f64, high: f64) -> OverDelay {
        OverDelay {
            delay_us,
            p50_us,
            baseline_ratio: Some(f64::midpoint(low, high)),
            baseline_ratio_interval: Some(Interval { low, high }),
        }
    }

    /// Returns the rows of a WRITE as they would be measured: with small deviations from whole
    /// numbers.
    fn write() -> Vec<Row> {
        let v1 = Row {
            op: "write",
            size: Some(8 << 10),
            round_trips: Some(1.98),
            interrupts_responder: Some(2.03),
            interrupts_requester: Some(1.0),
            registrations: Some(1.0),
            conveyance: "v1-inv",
            baseline: Some("v1-inv"),
            p50_us: Some(40.2),
            latency_over_delay: Some(vec![
                point(0.0, 40.2, 1.0, 1.0),
                point(2000.0, 8100.0, 1.0, 1.0),
                point(1000.0, 4100.0, 1.0, 1.0),
            ]),
            ..sample()
        };
        let v2 = Row {
            conveyance: "v2-ddp-cont",
            round_trips: Some(1.01),
            interrupts_responder: Some(0.98),
            registrations: Some(0.0),
            p50_us: Some(22.9),
            baseline_ratio: Some(0.57),
            baseline_ratio_interval: Some(Interval {
                low: 0.55,
                high: 0.58,
            }),
            latency_over_delay: Some(vec![point(1000.0, 2050.0, 0.49, 0.51)]),
            ..v1.clone()
        };
        vec![v1, v2]
    }

    #[test]
    fn the_sentences_say_what_was_measured() {
        assert_eq!(
            sentences(&write()),
            [
                "An 8 KiB WRITE takes 2 round trips by version 1 with receives of 4 KiB and 1 by version \
                 2 with receives of 4 KiB: 0.57 of the time (0.55 to 0.58) here, 0.50 of the time (0.49 \
                 to 0.51) over a link of 1 ms each way.",
                "For it, version 1 needs 2 interrupts at the server, 1 at the client and 1 memory \
                 registration; version 2 needs 1, 1 and 0.",
                "Version 2 needs fewer round trips for 8 KiB WRITE.",
            ]
        );
    }

    #[test]
    fn counts_that_are_not_whole_stay_so() {
        let mut rows = write();
        rows[1].round_trips = Some(1.48);
        rows[1].interrupts_responder = Some(1.31);
        let said = sentences(&rows).join("\n");
        assert!(
            said.contains("by version 1 with receives of 4 KiB and 1.5 by version 2"),
            "{said}"
        );
        assert!(said.contains("version 2 needs 1.3, 1 and 0."), "{said}");
        assert!(said.contains("as many for 8 KiB WRITE."), "{said}");
        rows[1].round_trips = Some(3.0);
        assert!(sentences(&rows)[2].contains("more for 8 KiB WRITE."));
    }

    #[test]
    fn a_count_keeps_its_sign() {
        assert_eq!(count(Some(-2.95)), "-3");
        assert_eq!(count(Some(-0.04)), "0");
    }

    #[test]
    fn round_trips_that_are_too_inexact_are_not_told() {
        let mut rows = write();
        rows[0].round_trips = None;
        let said = sentences(&rows).join(" ");
        assert!(!said.contains("round trip"), "{said}");
        assert!(legend(&rows).concat().contains("standard error"));
        assert!(legend(&rows)[0].contains("as Linux uses it"));
        rows[0].conditions.inline_bytes = Some(16 << 10);
        assert!(!legend(&rows)[0].contains("Linux"));
    }

    #[test]
    fn what_version_2_costs_is_said_as_well() {
        let mut rows = write();
        rows[1].baseline_ratio = Some(1.13);
        rows[1].baseline_ratio_interval = Some(Interval {
            low: 1.08,
            high: 1.2,
        });
        rows[1].interrupts_responder = Some(12.3);
        rows[1].sends = Some(18.0);
        let said = sentences(&rows);
        assert_eq!(
            said[3..],
            [
                "Version 2 takes longer for 8 KiB WRITE (1.13 of the time).",
                "It interrupts more for 8 KiB WRITE (18 Sends), each of which can wake its receiver.",
            ]
        );
    }

    #[test]
    fn without_round_trips_or_delays_only_what_is_known_is_said() {
        let mut rows = write();
        for row in &mut rows {
            row.round_trips = None;
            row.latency_over_delay = None;
            row.interrupts_responder = None;
        }
        let alone = "An 8 KiB WRITE by version 2 takes, beside version 1, 0.57 of the time \
                     (0.55 to 0.58) here.";
        assert_eq!(sentences(&rows), [alone]);
        assert!(table(&rows).unwrap().contains(" -"));
    }

    /// A link of 1 ms once had 0.78 of version 1's time for NULL, which was noise.
    #[test]
    fn a_difference_that_the_interval_does_not_exclude_is_said_to_be_none() {
        let mut rows = write();
        let wide = Some(Interval {
            low: 0.6,
            high: 1.1,
        });
        rows[1].baseline_ratio = Some(0.78);
        rows[1].baseline_ratio_interval = wide;
        let point = &mut rows[1].latency_over_delay.as_mut().unwrap()[0];
        (point.baseline_ratio, point.baseline_ratio_interval) = (Some(0.78), wide);
        let text = table(&rows).unwrap();
        assert_eq!(text.matches("none (0.60-1.10)").count(), 2, "{text}");
        let said = sentences(&rows).concat();
        assert!(
            !text.contains("0.78") && !said.contains("0.78"),
            "{text}{said}"
        );
        assert!(said.contains("the same time within the interval (0.60 to 1.10) here"));
    }

    #[test]
    fn tcp_has_a_row_and_a_sentence_where_it_was_measured() {
        let mut rows = write();
        let tcp = Row {
            conveyance: "tcp",
            round_trips: Some(1.0),
            ..rows[1].clone()
        };
        rows.insert(0, tcp);
        assert_eq!(table(&rows).unwrap().lines().count(), 4);
        assert_eq!(
            sentences(&rows)[2],
            "Over TCP it takes 1 round trip and, beside version 1, 0.57 of the time (0.55 to \
             0.58) here, 0.50 of the time (0.49 to 0.51) over a link of 1 ms each way."
        );
    }

    /// Version 2 with placement has longer receives than Linux's version 1, and readers ask what those alone
    /// save.
    #[test]
    fn what_receives_as_long_save_in_version_1_is_said_and_shown() {
        let mut rows = write();
        rows[1].conditions.inline_bytes = Some(65 << 10);
        rows[0].receive_memory_requester = Some(134 << 12);
        rows[0].receive_memory_responder = Some(70 << 12);
        let mut long = Row {
            conveyance: "v1-long",
            receive_memory_requester: Some(134 * (65 << 10)),
            receive_memory_responder: Some(70 * (65 << 10)),
            ..rows[1].clone()
        };
        rows.insert(1, long.clone());
        assert_eq!(
            sentences(&rows)[2],
            "With receives of 65 KiB, which are 12.9 MiB for a connection instead of 816.0 KiB, version 1 \
             takes 1 round trip and 0.57 of the time (0.55 to 0.58) here, 0.50 of the time (0.49 to 0.51) \
             over a link of 1 ms each way."
        );
        assert!(table(&rows).unwrap().contains("v1-long"));
        assert!(
            legend(&rows)[0]
                .contains("; v1-long the same with receives as long as those of v2-ddp-cont")
        );
        // With the same messages, there is nothing to show.
        long.registrations = rows[0].registrations;
        rows[1] = long;
        assert!(!table(&rows).unwrap().contains("v1-long"));
        // Receives of another length do not answer the question.
        rows[1].conditions.inline_bytes = Some(32 << 10);
        assert!(!sentences(&rows).concat().contains("With receives of"));
        assert!(!legend(&write())[0].contains("v1-long"));
    }

    #[test]
    fn an_operation_by_one_version_has_no_answer() {
        let rows = write();
        assert_eq!(table(&rows[..1]), None);
        assert!(sentences(&rows[1..]).is_empty());
    }

    /// There is no processor time in a simulation.
    #[test]
    fn the_table_of_a_simulation_has_copied_bytes() {
        let mut rows = write();
        for row in &mut rows {
            row.device = Some("sim".into());
            row.cpu_us = None;
            row.copied_bytes = Some(360.0);
        }
        let text = table(&rows).unwrap();
        assert!(
            text.contains(" copied B ") && text.contains(" 360 "),
            "{text}"
        );
        assert!(legend(&rows)[1].contains("copied B: bytes copied, both together."));
    }

    /// Other operations than those of the answer have the tables of `--full`.
    #[test]
    fn the_table_has_both_versions_and_fits() {
        let mut rows = write();
        let mut busy = rows[1].clone();
        busy.mode = Mode::Busy;
        rows.push(busy);
        let mut long = write();
        for row in &mut long {
            row.size = Some(1 << 20);
            row.p50_us = Some(1_234_567.0);
            row.interrupts_requester = Some(123.4);
        }
        rows.extend(long);
        let text = table(&rows).unwrap();
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines.len(), 5, "{text}");
        assert!(lines[0].ends_with("link of 1 ms"), "{text}");
        assert!(lines[0].contains(" CPU µs "), "{text}");
        let line = lines[2].split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(
            line.ends_with("0.57 (0.55-0.58) 0.50 (0.49-0.51)"),
            "{text}"
        );
        assert!(
            lines.iter().all(|line| line.chars().count() <= 100),
            "{text}"
        );
    }
}
