//! `compare --reference` and `--against`: changes against an earlier report, row by row, and whether
//! they are more than chance.

mod change;

use std::fs;
use std::path::Path;

use rpcrdma_setup::columns::Table;
use rpcrdma_setup::units::show_size;
use rpcrdma_setup::{Context, Failure};
use serde_json::{Map, Value};

use crate::json::OLD_KEYS;
use crate::rows::Row;
use change::change;
pub(crate) use change::{Change, Outcome};

/// The keys by which a row is matched with an earlier one.
const SAME: [&str; 5] = ["op", "size", "transfer_mode", "device", "mode"];
/// The keys of the measurement conditions. A difference is reported, because it alone can change
/// the figures, and the row is not tested.
const CONDITIONS: [&str; 9] = [
    "delay_us",
    "inline_bytes",
    "rate_bits_per_s",
    "crc",
    "registration",
    "congestion_control",
    "optimized",
    "costs",
    "settings",
];
/// The key of what delays messages. It decides nothing in a row without delays, where it is null.
const DELAYED_BY: &str = "delayed_by";
/// The keys of processors. Whether there is one is a condition; which one it is, is none.
const PINNED: [&str; 2] = ["processor_requester", "processor_responder"];
/// The keys of conditions whose difference is only reported.
const REMARKS: [&str; 5] = ["kernel", "processor", "processors", "version", "commit"];

type Fields = Map<String, Value>;

/// An earlier report to compare with.
#[derive(Debug)]
pub struct Reference {
    name: String,
    rows: Vec<Fields>,
}

/// The changes of all rows.
#[derive(Debug)]
pub struct Changes {
    /// The file name of the earlier report.
    pub(crate) name: String,
    pub(crate) rows: Vec<Change>,
    /// Remarks, for example on different measurement conditions.
    pub(crate) notes: Vec<String>,
}

impl Reference {
    /// Reads an earlier report.
    ///
    /// # Errors
    /// The file cannot be read, or is no report.
    pub fn open(path: &Path) -> Result<Self, Failure> {
        let name = path.display().to_string();
        let text = fs::read(path).context(format_args!("cannot read {name}"))?;
        let rows: Vec<Fields> = serde_json::from_slice(&text).context(format_args!(
            "{name} is no report: `rpcrdma compare --json {name}` writes one"
        ))?;
        Ok(Self { name, rows })
    }

    /// Returns the changes.
    ///
    /// # Errors
    /// The rows cannot be converted to JSON objects, which does not happen.
    pub fn changes(&self, rows: &[Row]) -> Result<Changes, Failure> {
        let mut changes = Changes {
            name: self.name.clone(),
            rows: Vec::new(),
            notes: Vec::new(),
        };
        let mut alone = Vec::new();
        let mut conditions = Vec::new();
        let mut remarks = Vec::new();
        let mut met = 0;
        for row in rows {
            let Value::Object(now) = serde_json::to_value(row).map_err(Failure::work)? else {
                continue;
            };
            let same =
                |then: &&Fields| SAME.iter().all(|&key| value(then, key) == value(&now, key));
            let Some(then) = self.rows.iter().find(same) else {
                alone.push(format!(
                    "{} {}",
                    describe(&now),
                    text(&now, "transfer_mode")
                ));
                continue;
            };
            met += 1;
            let differ = |keys: &[&str], same: fn(&Value, &Value) -> bool, notes: &mut _| {
                differ(then, &now, keys, same, notes)
            };
            let different = [
                differ(&CONDITIONS, |was, is| was == is, &mut conditions),
                differ(
                    &[DELAYED_BY],
                    |was, is| was.is_null() || is.is_null() || was == is,
                    &mut conditions,
                ),
                differ(
                    &PINNED,
                    |was, is| was.is_null() == is.is_null(),
                    &mut conditions,
                ),
            ];
            let alike = !different.contains(&true);
            differ(&REMARKS, |was, is| was == is, &mut remarks);
            changes.rows.push(change(then, &now, alike));
        }
        let among = changes.rows.len();
        changes
            .rows
            .iter_mut()
            .for_each(|change| change.among = among);
        if !remarks.is_empty() {
            changes.notes.push(format!("{}.", remarks.join("; ")));
        }
        if !conditions.is_empty() {
            let what = conditions.join("; ");
            changes.notes.push(format!("Not measured alike: {what}."));
        }
        if !alone.is_empty() {
            let what = alone.join(", ");
            changes.notes.push(format!("Not in {}: {what}.", self.name));
        }
        let gone = self.rows.len().saturating_sub(met);
        if gone > 0 {
            let note = format!("{gone} rows of {} were not measured now.", self.name);
            changes.notes.push(note);
        }
        Ok(changes)
    }
}

impl Changes {
    /// Formats the changes as a table for the terminal.
    pub fn table(&self) -> String {
        let headings = [
            "op", "via", "then µs", "now µs", "change", "outcome", "counts",
        ];
        let mut table = Table::new(2, headings);
        let time = |value: Option<f64>| value.map_or_else(|| "-".into(), |us| format!("{us:.2}"));
        for change in &self.rows {
            table.push([
                change.what.clone(),
                change.conveyance.clone(),
                time(change.then_us),
                time(change.now_us),
                change.percent(),
                change.verdict().to_owned(),
                change.counts.join(", "),
            ]);
        }
        let notes: String = self.notes.iter().map(|note| format!("{note}\n")).collect();
        let summary = self.summary();
        format!(
            "Against {}:\n\n{}{notes}{summary}",
            self.name,
            table.render()
        )
    }

    fn names(&self, wanted: impl Fn(&Change) -> bool) -> Vec<String> {
        let found = self.rows.iter().filter(|change| wanted(change));
        let name = |change: &Change| format!("{} {}", change.what, change.conveyance);
        found.map(name).collect()
    }

    /// Returns a sentence that says which rows changed by more than chance.
    #[must_use]
    pub fn summary(&self) -> String {
        let of = |outcome| self.names(|change| change.outcome() == outcome);
        let parts = [
            ("slower", of(Outcome::Slower)),
            ("faster", of(Outcome::Faster)),
            ("not tested", of(Outcome::Untested)),
            ("costing more", self.names(|change| change.costs_more)),
        ];
        let parts: Vec<String> = parts
            .into_iter()
            .map(|(what, names)| match names.len() {
                0 => format!("none {what}"),
                count => format!("{count} {what} ({})", names.join(", ")),
            })
            .collect();
        format!("Of {} rows: {}.", self.rows.len(), parts.join("; "))
    }

    /// Tests the run against the earlier one.
    ///
    /// # Errors
    /// A row is slower than before by more than chance, or has a greater count; or no row could be
    /// tested.
    pub fn check(&self) -> Result<(), Failure> {
        let bad = |change: &Change| change.outcome() == Outcome::Slower || change.costs_more;
        let is_tested = |change: &Change| change.outcome() != Outcome::Untested;
        let summary = self.summary();
        match self.rows.iter().any(is_tested) {
            _ if self.rows.iter().any(bad) => {
                Err(Failure::Work(format!("--against {}: {summary}", self.name)))
            }
            false => Err(Failure::Work(format!(
                "--against {}: no row could be tested: {}",
                self.name,
                self.notes.join(" ")
            ))),
            true => Ok(()),
        }
    }
}

/// Returns whether the values of some of `keys` are not the `same` in both rows, and adds a note for
/// each of these.
fn differ(
    then: &Fields,
    now: &Fields,
    keys: &[&str],
    same: fn(&Value, &Value) -> bool,
    notes: &mut Vec<String>,
) -> bool {
    let mut any = false;
    for key in keys {
        // Reports of earlier releases lack some.
        let Some(was) = then.get(*key) else {
            continue;
        };
        let is = now.get(*key);
        if same(was, is.unwrap_or(&Value::Null)) {
            continue;
        }
        any = true;
        let note = format!("{key} was {} and is {}", show(Some(was)), show(is));
        if !notes.contains(&note) {
            notes.push(note);
        }
    }
    any
}

/// Returns the value of a key, also in reports that have its old name.
fn value<'a>(row: &'a Fields, key: &str) -> Option<&'a Value> {
    let old = OLD_KEYS.iter().find(|(new, _)| *new == key);
    row.get(key)
        .or_else(|| old.and_then(|(_, old)| row.get(*old)))
}

fn text<'a>(row: &'a Fields, key: &str) -> &'a str {
    value(row, key).and_then(Value::as_str).unwrap_or_default()
}

fn number(row: &Fields, key: &str) -> Option<f64> {
    value(row, key)?.as_f64()
}

fn show(value: Option<&Value>) -> String {
    match value {
        None => "not said".to_owned(),
        Some(Value::Null) => "none".to_owned(),
        Some(Value::String(text)) => text.clone(),
        Some(other) => other.to_string(),
    }
}

fn describe(row: &Fields) -> String {
    let size = row.get("size").and_then(Value::as_u64);
    let size = size.map_or_else(String::new, |size| format!(" {}", show_size(size)));
    let busy = if text(row, "mode") == "busy" {
        " (busy)"
    } else {
        ""
    };
    format!("{}{busy}{size}", text(row, "op"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::interval::Interval;
    use crate::rows::Conditions;
    use crate::rows::tests::sample;

    fn reference(rows: &[Row]) -> Reference {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("then.json");
        fs::write(&path, serde_json::to_vec(rows).unwrap()).unwrap();
        Reference::open(&path).unwrap()
    }

    #[test]
    fn latency_and_counts_are_held_against_the_same_row() {
        let then = sample();
        let now = Row {
            p50_us: Some(256.0),
            floor_ratio: Some(0.64),
            floor_ratio_interval: Some(Interval {
                low: 0.62,
                high: 0.65,
            }),
            registrations: Some(0.0),
            sends: Some(2.01),
            ..sample()
        };
        let changes = reference(&[then]).changes(&[now]).unwrap();
        let [change] = &changes.rows[..] else {
            panic!("{changes:?}");
        };
        assert!(change.percent().starts_with("-50.0 % (-5"), "{changes:?}");
        assert_eq!(change.outcome(), Outcome::Faster);
        assert!(changes.check().is_ok());
        assert_eq!(change.counts, ["registrations 1.00 → 0.00"]);
        assert!(changes.notes.is_empty(), "{changes:?}");
        assert!(changes.table().contains("-50.0 %"));
    }

    #[test]
    fn a_row_is_slower_only_if_its_interval_is_beyond_what_runs_differ_by() {
        let of = |ratio: f64, width: f64| Row {
            floor_ratio: Some(ratio),
            floor_ratio_interval: Some(Interval {
                low: ratio - width,
                high: ratio + width,
            }),
            ..sample()
        };
        let outcome = |then: Row, now: Row| {
            let changes = reference(&[then]).changes(&[now]).unwrap();
            (changes.rows[0].outcome(), changes.check().is_ok())
        };
        let base = || of(2.0, 0.02);
        assert_eq!(outcome(base(), of(2.0, 0.02)), (Outcome::Same, true));
        assert_eq!(outcome(base(), of(2.3, 0.02)), (Outcome::Slower, false));
        assert_eq!(outcome(base(), of(2.3, 0.4)), (Outcome::Same, true));
        assert_eq!(outcome(base(), of(2.08, 0.001)), (Outcome::Same, true));
        assert_eq!(outcome(base(), of(1.6, 0.02)), (Outcome::Faster, true));
        // Of a hundred rows, one that is as far away by chance is to be expected.
        let now = of(2.3, 0.12);
        assert_eq!(outcome(base(), now.clone()).0, Outcome::Slower);
        let many = |row: Row| {
            let rows = 1..=100;
            let row = |size| Row {
                size: Some(size),
                ..row.clone()
            };
            rows.map(row).collect::<Vec<_>>()
        };
        let changes = reference(&many(base())).changes(&many(now)).unwrap();
        assert_eq!(changes.rows[0].outcome(), Outcome::Same);
        // More work is told from the counts, however fast it is done.
        let more = Row {
            rdma_reads: Some(1.0),
            ..base()
        };
        let changes = reference(&[base()]).changes(&[more]).unwrap();
        let failure = changes.check().unwrap_err().to_string();
        assert!(
            failure.contains("1 costing more (read 1 MiB v1)"),
            "{failure}"
        );
        // Other conditions are no test.
        let mut other = of(2.3, 0.02);
        other.conditions.crc = Some(true);
        assert_eq!(outcome(base(), other), (Outcome::Untested, false));
        let few = Row {
            floor_ratio_interval: None,
            p50_interval_us: None,
            ..base()
        };
        assert_eq!(outcome(base(), few), (Outcome::Untested, false));
    }

    #[test]
    fn round_trips_by_the_clock_change_only_beyond_their_errors() {
        let of = |device: Option<&str>, trips: f64, error: Option<f64>| Row {
            device: device.map(str::to_owned),
            round_trips: Some(trips),
            round_trips_error: error,
            ..sample()
        };
        let costs_more = |then: Row, now: Row| {
            let changes = reference(&[then]).changes(&[now]).unwrap();
            changes.rows[0].costs_more
        };
        for device in [Some("iwarp"), None] {
            let of = |trips, error| of(device, trips, error);
            let base = || of(1.0, Some(0.02));
            assert!(!costs_more(base(), of(1.4, Some(0.02))), "less than half");
            assert!(costs_more(base(), of(1.6, Some(0.02))));
            assert!(!costs_more(base(), of(1.6, Some(0.24))), "within the error");
            assert!(
                !costs_more(of(1.0, None), of(1.7, None)),
                "no error is said"
            );
            assert!(costs_more(of(1.0, Some(0.24)), of(2.2, Some(0.24))));
        }
        let exact = |trips| of(Some("sim"), trips, None);
        assert!(costs_more(exact(1.0), exact(1.2)));
    }

    #[test]
    fn conditions_that_decide_the_result_must_be_the_same() {
        let alike = |change: fn(&mut Conditions), other: fn(&mut Conditions)| {
            let (mut then, mut now) = (sample(), sample());
            change(&mut then.conditions);
            other(&mut now.conditions);
            let changes = reference(&[then]).changes(&[now]).unwrap();
            assert_eq!(changes.rows[0].alike, changes.notes.is_empty());
            changes.rows[0].alike
        };
        let none = |_: &mut Conditions| ();
        assert!(alike(none, none));
        assert!(!alike(none, |now| now.costs = Some("post=1us".to_owned())));
        assert!(!alike(none, |now| {
            now.settings = Some("--set credits=8".to_owned());
        }));
        assert!(!alike(none, |now| now.processor_requester = None));
        assert!(!alike(none, |now| now.processor_responder = Some(1)));
        assert!(alike(none, |now| now.processor_requester = Some(7)));
        let by_ends = |row: &mut Conditions| row.delayed_by = Some("client and server".to_owned());
        assert!(alike(none, by_ends), "nothing was delayed");
        assert!(!alike(by_ends, |now| now.delayed_by = Some("tc".to_owned())));
    }

    #[test]
    fn simulated_rows_need_no_interval() {
        let of = |p50_us: f64| Row {
            device: Some("sim".to_owned()),
            p50_us: Some(p50_us),
            p50_interval_us: None,
            floor_ratio: None,
            floor_ratio_interval: None,
            ..sample()
        };
        let outcome = |now| {
            let changes = reference(&[of(100.0)]).changes(&[of(now)]).unwrap();
            changes.rows[0].outcome()
        };
        assert_eq!(outcome(100.0), Outcome::Same);
        assert_eq!(outcome(100.5), Outcome::Slower);
        assert_eq!(outcome(99.5), Outcome::Faster);
    }

    #[test]
    fn reports_with_the_old_keys_are_read() {
        let then = serde_json::json!([{
            "op": "read", "size": 1 << 20, "conveyance": "v1", "device": "iwarp",
            "mode": "blocking", "floor_ratio": 2.56, "p50_us": 100.0, "delay_us": 0.0,
        }]);
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("then.json");
        fs::write(&path, then.to_string()).unwrap();
        let changes = Reference::open(&path)
            .unwrap()
            .changes(&[sample()])
            .unwrap();
        assert_eq!(changes.rows[0].percent(), "-50.0 %");
        assert_eq!(changes.rows[0].verdict(), "not tested");
    }

    #[test]
    fn without_a_floor_latencies_are_compared() {
        let slow = |p50_us| Row {
            p50_us: Some(p50_us),
            p50_interval_us: None,
            floor_ratio: None,
            ..sample()
        };
        let changes = reference(&[slow(100.0)]).changes(&[slow(110.0)]).unwrap();
        assert_eq!(changes.rows[0].percent(), "+10.0 %");
    }

    #[test]
    fn what_is_not_alike_or_not_there_is_said() {
        let mut then = sample();
        then.conditions.crc = Some(true);
        let other = Row {
            conveyance: "v2",
            ..sample()
        };
        let now = [sample(), other];
        let gone = Row {
            op: "write",
            ..sample()
        };
        let changes = reference(&[then, gone]).changes(&now).unwrap();
        assert_eq!(changes.rows.len(), 1);
        let notes = changes.notes.join("\n");
        for part in ["crc was true and is false", "read 1 MiB v2", "1 rows of"] {
            assert!(notes.contains(part), "{part}: {notes}");
        }
    }

    #[test]
    fn what_is_no_report_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("then.json");
        for text in ["", "{}", "[1]", "no"] {
            fs::write(&path, text).unwrap();
            let error = Reference::open(&path).unwrap_err().to_string();
            assert!(error.contains("is no report"), "{error}");
        }
        assert!(Reference::open(&dir.path().join("missing")).is_err());
    }
}
