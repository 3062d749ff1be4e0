//! The answer of a comparison: a short table of version 1 and the best variant of version 2, and
//! sentences that are computed from it.

use rpcrdma_setup::columns::Table;
use rpcrdma_setup::units::{show_amount, show_size};

use crate::rows::{Mode, Row};
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
/// The size of the WRITE that the first sentence is about, if it was measured: a small file, and
/// more than fits into the receives of version 1.
const USUAL_SIZE: u64 = 8 << 10;
/// The smallest ratio of times that is said to be longer: less is lost in the noise.
const LONGER: f64 = 1.05;
/// The largest distance from a whole number at which a measured count is shown as that number.
const WHOLE: f64 = 0.1;

/// Two rows of one operation, measured by version 1 and by a variant of version 2.
struct Pair<'a> {
    v1: &'a Row,
    v2: &'a Row,
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
        let v1 = rows().filter(|row| row.conveyance == Variant::V1.name());
        v1.filter_map(|v1| {
            let same =
                |row: &&Row| row.conveyance == best && (row.op, row.size) == (v1.op, v1.size);
            rows().find(same).map(|v2| Self { v1, v2 })
        })
        .collect()
    }

    /// Returns the shortest delay, in microseconds, that is longer than that of the rows and was
    /// measured by both versions, with the ratio of the latencies there.
    fn over_link(&self) -> Option<(f64, f64)> {
        let points = |row: &'a Row| row.latency_over_delay.iter().flatten();
        let longer = points(self.v1).filter(|point| point.delay_us > self.v1.delay_us);
        let v1 = longer.min_by(|a, b| a.delay_us.total_cmp(&b.delay_us))?;
        let v2 = points(self.v2).find(|point| point.delay_us == v1.delay_us)?;
        Some((v1.delay_us, v2.p50_us / v1.p50_us))
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

fn ratio(value: Option<f64>) -> String {
    value.map_or_else(|| "-".to_owned(), |value| format!("{value:.2}"))
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

/// Returns the cells of the table, the headings first: one line for each operation and version.
/// Returns `None` if no operation was measured by version 1 and by version 2.
pub(crate) fn cells(rows: &[Row]) -> Option<Vec<[String; 10]>> {
    let pairs = Pair::all(rows);
    let link = pairs.iter().find_map(Pair::over_link);
    let over = match link {
        Some((micros, _)) => format!("link of {}", delay(micros)),
        None => "link".to_owned(),
    };
    let headings = [
        "op",
        "size",
        "via",
        "round trips",
        "intr client",
        "server",
        "registered",
        "p50 µs",
        "x v1",
        &over,
    ];
    let mut lines = vec![headings.map(str::to_owned)];
    for pair in &pairs {
        let over = pair.over_link().map(|(_, ratio)| ratio);
        for (row, over) in [(pair.v1, over.map(|_| 1.0)), (pair.v2, over)] {
            lines.push([
                row.op.to_owned(),
                row.size.map_or_else(String::new, show_size),
                row.conveyance.to_owned(),
                count(row.round_trips),
                count(row.interrupts_requester),
                count(row.interrupts_responder),
                count(row.registrations),
                number(row.p50_us),
                ratio(row.v1_ratio),
                ratio(over),
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
    let mut table = Table::new(NAMES, headings.each_ref().map(String::as_str));
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

/// Returns the sentence about round trips and times.
fn times(Pair { v1, v2 }: &Pair<'_>) -> String {
    let name = name(v1);
    let article = article(&name);
    let over_link = Pair { v1, v2 }
        .over_link()
        .map(|(micros, ratio)| format!("{ratio:.2} over a link of {} each way", delay(micros)));
    let here = v2
        .v1_ratio
        .map(|ratio| format!("{ratio:.2} of the time here"));
    let times: Vec<String> = here.into_iter().chain(over_link).collect();
    let times = times.join(", ");
    match v1.round_trips.is_some() && v2.round_trips.is_some() {
        true => format!(
            "{article} {name} takes {} by version 1 and {} by version 2: {times}.",
            plural(v1.round_trips, "round trip"),
            count(v2.round_trips)
        ),
        false => format!("{article} {name} by version 2 takes, beside version 1, {times}."),
    }
}

/// Returns "1 round trip" or "2 round trips".
fn plural(value: Option<f64>, what: &str) -> String {
    let count = count(value);
    let ending = if count == "1" { "" } else { "s" };
    format!("{count} {what}{ending}")
}

/// Returns the sentence about interrupts and registrations, if they were counted.
fn work(Pair { v1, v2 }: &Pair<'_>) -> Option<String> {
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
        let ratio = pair.v2.v1_ratio.filter(|ratio| *ratio >= LONGER)?;
        Some(format!("{ratio:.2} of the time"))
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
    let mut lines = vec![
        format!(
            "via: v1 is RPC-over-RDMA version 1 without remote invalidation; {} is version 2{with}.",
            first.v2.conveyance
        ),
        "intr: how often client and server are woken up. registered: pieces of memory. x v1: time divided by version 1's, the median of pairs of turns."
            .to_owned(),
    ];
    lines.extend(first.over_link().map(|(micros, _)| {
        let delay = delay(micros);
        format!("link of {delay}: the same ratio with {delay} added each way.")
    }));
    lines.extend(trips::remark(rows));
    lines
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rows::OverDelay;
    use crate::rows::tests::sample;

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
            p50_us: Some(40.2),
            v1_ratio: Some(1.0),
            latency_over_delay: Some(vec![
                OverDelay {
                    delay_us: 0.0,
                    p50_us: 40.2,
                },
                OverDelay {
                    delay_us: 2000.0,
                    p50_us: 8100.0,
                },
                OverDelay {
                    delay_us: 1000.0,
                    p50_us: 4100.0,
                },
            ]),
            ..sample()
        };
        let v2 = Row {
            conveyance: "v2-ddp-cont",
            round_trips: Some(1.01),
            interrupts_responder: Some(0.98),
            registrations: Some(0.0),
            p50_us: Some(22.9),
            v1_ratio: Some(0.57),
            latency_over_delay: Some(vec![OverDelay {
                delay_us: 1000.0,
                p50_us: 2050.0,
            }]),
            ..v1.clone()
        };
        vec![v1, v2]
    }

    #[test]
    fn the_sentences_say_what_was_measured() {
        assert_eq!(
            sentences(&write()),
            [
                "An 8 KiB WRITE takes 2 round trips by version 1 and 1 by version 2: 0.57 of the \
                 time here, 0.50 over a link of 1 ms each way.",
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
        assert!(said.contains("by version 1 and 1.5 by version 2"), "{said}");
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
    }

    #[test]
    fn what_version_2_costs_is_said_as_well() {
        let mut rows = write();
        rows[1].v1_ratio = Some(1.13);
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
        let alone = "An 8 KiB WRITE by version 2 takes, beside version 1, 0.57 of the time here.";
        assert_eq!(sentences(&rows), [alone]);
        assert!(table(&rows).unwrap().contains(" -"));
    }

    #[test]
    fn an_operation_by_one_version_has_no_answer() {
        let rows = write();
        assert_eq!(table(&rows[..1]), None);
        assert!(sentences(&rows[1..]).is_empty());
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
        assert!(lines[2].ends_with("0.57          0.50"), "{text}");
        assert!(
            lines.iter().all(|line| line.chars().count() <= 100),
            "{text}"
        );
    }
}
