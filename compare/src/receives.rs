//! `compare --receives`: what each transfer mode costs with receives of several lengths, over the
//! memory that these take.
//!
//! Longer receives alone spare chunks: in every version, a message that fits into a receive needs
//! neither a registration nor, for a WRITE, the round trip of an RDMA Read. So a mode is worth what
//! it saves beside version 1 with as much memory, and the memory is what counts: a receive for
//! each message that credits allow, at both ends, whether the messages are long or short.

use rpcrdma_setup::Failure;
use rpcrdma_setup::columns::Table;
use rpcrdma_setup::units::{show_amount, show_size};

use crate::options::{INLINE, Options, is_permitted};
use crate::rows::Row;
use crate::table::{self, number};
use crate::variant::Variant;

/// The settings of the lengths that a sweep varies.
const LENGTHS: [&str; 3] = ["inline-send", "inline-receive", "max-receive"];

/// Checks the options of a sweep, and leaves out what means nothing in one: predictions, and version
/// 1 with the receives of version 2, which has all lengths here as the other variants do.
///
/// # Errors
/// A length is not permitted, or an option contradicts `--receives`.
pub(crate) fn prepare(options: &mut Options) -> Result<(), Failure> {
    if options.receives.is_empty() {
        return Ok(());
    }
    let (low, high) = (INLINE.start(), INLINE.end());
    if let Some(size) = options.receives.iter().find(|&&size| !is_permitted(size)) {
        let text = format!("--receives {size}: not from {low} to {high} in steps of {low}");
        return Err(Failure::Usage(text));
    }
    let contradicting = [
        ("--inline", options.inline != Options::default().inline),
        ("--save-costs", options.save_costs),
        ("--check-explain", options.exact),
    ];
    if let Some((name, _)) = contradicting.into_iter().find(|(_, given)| *given) {
        return Err(Failure::Usage(format!("--receives: not with {name}")));
    }
    let settings = options.tuning.settings.to_string();
    let mut names = settings.split([' ', '=']);
    if let Some(name) = names.find(|name| LENGTHS.contains(name)) {
        let text =
            format!("--receives: not with --set {name}, as all ends have each of these lengths");
        return Err(Failure::Usage(text));
    }
    if options.via == Variant::ALL {
        options.via = Variant::EQUAL.to_vec();
    }
    let has_none = |via: &&Variant| via.version().is_none() || via.is_like(Variant::V1Long);
    if let Some(via) = options.via.iter().find(has_none) {
        let text = match via.version() {
            None => "--receives: not with --via tcp, which has no receives",
            Some(_) => {
                "--receives: not with --via v1-long: v1-inv has receives of each of these lengths"
            }
        };
        return Err(Failure::usage(text));
    }
    options.predict = false;
    let has_any = |&size: &u32| options.via.iter().any(|via| via.can_have(size));
    if !options.receives.iter().any(has_any) {
        let text =
            "--receives: those of version 2 have at least 4k, and --via has no other version";
        return Err(Failure::usage(text));
    }
    Ok(())
}

/// Calls `measure` once, or once for each length of receives, with the options for it. Returns all
/// rows.
///
/// # Errors
/// The first error of `measure`.
pub(crate) fn in_turn(
    options: &Options,
    mut measure: impl FnMut(&Options) -> Result<Vec<Row>, Failure>,
) -> Result<Vec<Row>, Failure> {
    if options.receives.is_empty() {
        return measure(options);
    }
    let mut rows = Vec::new();
    for &size in &options.receives {
        let mut step = Options {
            receives: vec![size],
            ..options.clone()
        };
        step.via.retain(|via| via.can_have(size));
        if !step.via.is_empty() {
            rows.extend(measure(&step)?);
        }
    }
    Ok(rows)
}

/// Returns the name of a step, for progress messages.
pub(crate) fn name(step: &Options) -> String {
    let size = step.receives.first().copied().unwrap_or_default();
    format!("receives of {}", show_size(size.into()))
}

/// Returns the bytes of receives at both ends.
pub(crate) fn memory(row: &Row) -> Option<u64> {
    Some(row.receive_memory_requester? + row.receive_memory_responder?)
}

/// The rows of one operation of one size.
pub(crate) struct Swept<'a> {
    pub(crate) op: &'static str,
    pub(crate) size: Option<u64>,
    pub(crate) rows: Vec<&'a Row>,
}

impl<'a> Swept<'a> {
    /// Returns the rows by operation and size, in the order in which these are measured.
    pub(crate) fn all(rows: &'a [Row]) -> Vec<Self> {
        let mut all: Vec<Self> = Vec::new();
        for row in rows {
            match all
                .iter_mut()
                .find(|of| (of.op, of.size) == (row.op, row.size))
            {
                Some(of) => of.rows.push(row),
                None => all.push(Self {
                    op: row.op,
                    size: row.size,
                    rows: vec![row],
                }),
            }
        }
        all
    }

    /// Returns the name in headings and sentences.
    pub(crate) fn name(&self) -> String {
        let op = self.op.to_uppercase();
        match self.size {
            Some(size) => format!("{op} of {}", show_size(size)),
            None => op,
        }
    }

    /// Returns the transfer modes, in the order in which they were measured.
    pub(crate) fn modes(&self) -> Vec<&'static str> {
        let mut modes = Vec::new();
        for row in &self.rows {
            if !modes.contains(&row.conveyance) {
                modes.push(row.conveyance);
            }
        }
        modes
    }

    /// Returns the rows of a transfer mode.
    pub(crate) fn of(&self, mode: &'static str) -> impl Iterator<Item = &'a Row> {
        let rows = self.rows.iter().copied();
        rows.filter(move |row| row.conveyance == mode)
    }

    /// Returns the least number of round trips of all modes.
    fn least_trips(&self) -> Option<f64> {
        let trips = self.rows.iter().filter_map(|row| row.round_trips);
        trips.map(f64::round).min_by(f64::total_cmp)
    }

    /// Returns the row with the least memory among those of a mode that take no more than `trips`
    /// round trips.
    fn smallest(&self, mode: &'static str, trips: f64) -> Option<&'a Row> {
        let few = |row: &&Row| row.round_trips.is_some_and(|taken| taken.round() <= trips);
        self.of(mode).filter(few).min_by_key(|row| memory(row))
    }
}

/// Returns the rows of several lengths of receives as tables, the figure as text in front.
pub(crate) fn tables(rows: &[Row]) -> Vec<String> {
    let all = Swept::all(rows);
    let mut parts = Vec::new();
    for swept in &all {
        parts.push(over_memory(swept, "round trips", |row| {
            row.round_trips.map(|trips| format!("{trips:.1}"))
        }));
        parts.push(over_memory(swept, "time, µs,", |row| {
            row.p50_us.map(|time| number(Some(time)))
        }));
    }
    parts.push(listed(&all));
    parts.push(
        "memory: of the receives for one connection, client and server. The client has one for each\n\
         message that the credits which it asks for allow, the server for those that it grants. Where\n\
         connections share receives, fewer are posted while there is less traffic. ≤: the fastest length\n\
         with at most that memory."
            .to_owned(),
    );
    parts
}

/// Draws a value over the memory as text: a line for each transfer mode, a column for each power of
/// two. Of the rows with at most that memory, the fastest one counts.
fn over_memory(swept: &Swept<'_>, what: &str, value: impl Fn(&Row) -> Option<String>) -> String {
    let power = |row: &Row| Some(memory(row)?.max(1).next_power_of_two());
    let mut columns: Vec<u64> = swept.rows.iter().filter_map(|row| power(row)).collect();
    columns.sort_unstable();
    columns.dedup();
    let heads = columns
        .iter()
        .map(|&bytes| format!("≤ {}", show_size(bytes)));
    let heads = ["via".to_owned()].into_iter().chain(heads).collect();
    let mut table = Table::with_columns(1, heads);
    for mode in swept.modes() {
        let cells = columns.iter().map(|&column| {
            let rows = swept
                .of(mode)
                .filter(|row| power(row).is_some_and(|bytes| bytes <= column));
            let fastest = rows.min_by(|a, b| {
                let time = |row: &Row| row.p50_us.unwrap_or(f64::INFINITY);
                time(a).total_cmp(&time(b))
            });
            fastest.and_then(&value).unwrap_or_default()
        });
        table.push_line([mode.to_owned()].into_iter().chain(cells).collect());
    }
    format!(
        "{}: {what} over memory for receives\n{}",
        swept.name(),
        table.render()
    )
}

/// Formats all rows as one table.
fn listed(all: &[Swept<'_>]) -> String {
    let mut table = Table::new(
        3,
        [
            "op", "size", "via", "receives", "memory", "trips", "time µs", "reg", "copied B",
            "wire B",
        ],
    )
    .narrow();
    for swept in all {
        for row in swept.modes().into_iter().flat_map(|mode| swept.of(mode)) {
            table.push([
                row.op.to_owned(),
                row.size.map_or_else(String::new, show_size),
                row.conveyance.to_owned(),
                length(row),
                memory(row).map_or_else(|| "-".to_owned(), show_amount),
                number(row.round_trips),
                number(row.p50_us),
                table::count(row.registrations),
                number(row.copied_bytes),
                number(row.wire_bytes),
            ]);
        }
    }
    table.render()
}

/// Formats the length of the receives of a row.
pub(crate) fn length(row: &Row) -> String {
    let length = row.conditions.inline_bytes;
    length.map_or_else(String::new, |size| show_size(size.into()))
}

/// Returns, for each operation, the least memory with which each mode takes the fewest round trips.
pub(crate) fn sentences(rows: &[Row]) -> Vec<String> {
    Swept::all(rows).iter().filter_map(sentence).collect()
}

fn sentence(swept: &Swept<'_>) -> Option<String> {
    let trips = swept.least_trips()?;
    // Modes that take as much with receives of the same length are named together.
    let mut found: Vec<(u64, String, Vec<&str>)> = Vec::new();
    let (mut without, mut unknown) = (Vec::new(), Vec::new());
    for mode in swept.modes() {
        let smallest = swept.smallest(mode, trips);
        let Some((bytes, length)) = smallest.and_then(|row| Some((memory(row)?, length(row))))
        else {
            // Rows without a figure may take as few.
            match swept.of(mode).all(|row| row.round_trips.is_some()) {
                true => without.push(mode),
                false => unknown.push(mode),
            }
            continue;
        };
        match found
            .iter_mut()
            .find(|one| (one.0, &one.1) == (bytes, &length))
        {
            Some((_, _, modes)) => modes.push(mode),
            None => found.push((bytes, length, vec![mode])),
        }
    }
    found.sort_by_key(|(bytes, ..)| *bytes);
    let list: Vec<String> = found
        .into_iter()
        .map(|(bytes, length, modes)| {
            let bytes = show_amount(bytes);
            format!("{bytes} by {} (receives of {length})", modes.join(", "))
        })
        .collect();
    let rest = [
        ("more round trips with all of them by", without),
        ("not all was measured by", unknown),
    ];
    let rest = rest.into_iter().filter(|(_, modes)| !modes.is_empty());
    let rest: String = rest
        .map(|(what, modes)| format!("; {what} {}", modes.join(", ")))
        .collect();
    let plural = if trips == 1.0 { "" } else { "s" };
    Some(format!(
        "{} in {trips} round trip{plural} takes, of the lengths measured, at least {}{rest}.",
        swept.name(),
        list.join("; ")
    ))
}

#[cfg(test)]
mod tests {
    use rpcrdma_setup::catalog::{Catalog, Tuning};

    use super::*;
    use crate::rows::Conditions;

    fn row(conveyance: &'static str, size: u32, trips: f64) -> Row {
        Row {
            op: "write",
            size: Some(64 << 10),
            conveyance,
            conditions: Conditions {
                inline_bytes: Some(size),
                ..Conditions::default()
            },
            round_trips: Some(trips),
            p50_us: Some(1000.0 * trips),
            receive_memory_requester: Some(134 * u64::from(size)),
            receive_memory_responder: Some(70 * u64::from(size)),
            ..Row::default()
        }
    }

    fn swept() -> Vec<Row> {
        vec![
            row("v1-inv", 4096, 2.02),
            row("v2-cont", 4096, 0.98),
            row("v2", 4096, 2.0),
            row("v1-inv", 128 << 10, 1.0),
            row("v2-cont", 128 << 10, 1.0),
        ]
    }

    #[test]
    fn the_least_memory_of_each_mode_is_said() {
        assert_eq!(
            sentences(&swept()),
            [
                "WRITE of 64 KiB in 1 round trip takes, of the lengths measured, at least 816.0 KiB by \
                 v2-cont (receives of 4 KiB); 25.5 MiB by v1-inv (receives of 128 KiB); more round trips \
                 with all of them by v2."
            ]
        );
        // A figure that is too inexact to be shown is not a greater one.
        let unknown = Row {
            round_trips: None,
            ..row("wg", 4096, 0.0)
        };
        let with = |more: &[Row]| sentences(&[&swept(), more].concat()).concat();
        let said = with(std::slice::from_ref(&unknown));
        assert!(
            said.ends_with("by v2; not all was measured by wg."),
            "{said}"
        );
        assert_eq!(with(&[unknown, row("wg", 8192, 2.0)]), said);
        assert!(sentences(&[]).is_empty());
    }

    #[test]
    fn the_figure_as_text_has_a_column_for_each_power_of_two() {
        let rows = swept();
        let text = over_memory(&Swept::all(&rows)[0], "round trips", |row| {
            row.round_trips.map(|trips| format!("{trips:.1}"))
        });
        let words =
            |line: &str| -> Vec<String> { line.split_whitespace().map(str::to_owned).collect() };
        let lines: Vec<_> = text.lines().map(words).collect();
        assert_eq!(lines[1], ["via", "≤", "1", "MiB", "≤", "32", "MiB"]);
        assert_eq!(lines[2], ["v1-inv", "2.0", "1.0"]);
        assert_eq!(lines[3], ["v2-cont", "1.0", "1.0"]);
        // What 1 MiB does, 32 MiB do as well.
        assert_eq!(lines[4], ["v2", "2.0", "2.0"]);
        let mut longer = row("v2-cont", 256 << 10, 2.0);
        longer.p50_us = Some(2000.0);
        let rows: Vec<Row> = rows.into_iter().chain([longer]).collect();
        let text = over_memory(&Swept::all(&rows)[0], "round trips", |row| {
            row.round_trips.map(|trips| format!("{trips:.1}"))
        });
        let line = text.lines().nth(3).map(words).unwrap();
        assert_eq!(line, ["v2-cont", "1.0", "1.0", "1.0"]);
    }

    #[test]
    fn only_version_1_has_receives_shorter_than_4_kib() {
        let mut options = Options {
            receives: vec![1024, 4096],
            ..Options::full()
        };
        prepare(&mut options).unwrap();
        let mut seen = Vec::new();
        in_turn(&options, |step| {
            seen.push((step.receives.clone(), step.via.clone()));
            Ok(Vec::new())
        })
        .unwrap();
        let expected = [
            (vec![1024], vec![Variant::V1Inv]),
            (vec![4096], Variant::EQUAL.to_vec()),
        ];
        assert_eq!(seen, expected);
    }

    #[test]
    fn what_contradicts_a_sweep_is_refused() {
        let refused = |options: Options| prepare(&mut { options }).unwrap_err().to_string();
        let sweep = |receives: &[u32]| Options {
            receives: receives.to_vec(),
            ..Options::full()
        };
        assert!(refused(sweep(&[512])).contains("not from 1024 to 262144"));
        assert!(refused(sweep(&[5000])).contains("in steps of 1024"));
        let inline = Options {
            inline: 8192,
            ..sweep(&[4096])
        };
        assert!(refused(inline).contains("--inline"));
        let long = Options {
            via: vec![Variant::V1Long],
            ..sweep(&[4096])
        };
        assert!(refused(long).contains("v1-long"));
        let catalog = Catalog::standard();
        let with_policy = Options {
            via: vec![Variant::parse(&catalog, "v1-long:all").unwrap()],
            ..sweep(&[4096])
        };
        assert!(refused(with_policy).contains("v1-long"));
        let short = Options {
            via: vec![Variant::V2],
            ..sweep(&[1024])
        };
        assert!(refused(short).contains("at least 4k"));
        for name in LENGTHS {
            let catalog = Catalog::standard();
            let set = [catalog.parse_assignment(&format!("{name}=16k")).unwrap()];
            let set = Options {
                tuning: Tuning::new(catalog, None, &set).unwrap(),
                ..sweep(&[4096])
            };
            assert!(refused(set).contains(&format!("not with --set {name}")));
        }
    }
}
