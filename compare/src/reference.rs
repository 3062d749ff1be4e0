//! `compare --reference`: changes against an earlier report.

use std::fs;
use std::path::Path;

use rpcrdma_setup::columns::Table;
use rpcrdma_setup::units::show_size;
use rpcrdma_setup::{Context, Failure};
use serde_json::{Map, Value};

use crate::rows::Row;

/// The keys by which a row is matched with an earlier one.
const SAME: [&str; 5] = ["op", "size", "conveyance", "device", "mode"];
/// The keys of the measurement conditions. A difference is reported, because it alone can change
/// the figures.
const CONDITIONS: [&str; 5] = [
    "delay_us",
    "inline_bytes",
    "rate_bits_per_s",
    "crc",
    "registration",
];
/// The counts that are compared.
const COUNTS: [&str; 9] = [
    "round_trips",
    "sends",
    "rdma_reads",
    "rdma_writes",
    "registrations",
    "invalidations",
    "interrupts_requester",
    "interrupts_responder",
    "copied_bytes",
];
/// The maximum difference of a count, relative to the greater value, or absolute.
const SLACK: f64 = 0.1;

type Fields = Map<String, Value>;

/// An earlier report to compare with.
#[derive(Debug)]
pub struct Reference {
    name: String,
    rows: Vec<Fields>,
}

/// The change of one row.
#[derive(Debug)]
pub(crate) struct Change {
    /// Operation, size and mode.
    pub(crate) what: String,
    pub(crate) conveyance: String,
    pub(crate) then_us: Option<f64>,
    pub(crate) now_us: Option<f64>,
    /// The new value divided by the earlier one: of the ratios to the baseline if both reports have
    /// them, otherwise of the latencies.
    pub(crate) ratio: Option<f64>,
    /// Counts that changed, in words.
    pub(crate) counts: Vec<String>,
}

impl Change {
    /// Formats the change for a table.
    pub(crate) fn percent(&self) -> String {
        self.ratio.map_or_else(
            || "-".to_owned(),
            |ratio| format!("{:+.1} %", (ratio - 1.0) * 100.0),
        )
    }
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
        let mut met = 0;
        for row in rows {
            let Value::Object(now) = serde_json::to_value(row).map_err(Failure::work)? else {
                continue;
            };
            let same = |then: &&Fields| SAME.iter().all(|&key| then.get(key) == now.get(key));
            let Some(then) = self.rows.iter().find(same) else {
                alone.push(format!("{} {}", describe(&now), text(&now, "conveyance")));
                continue;
            };
            met += 1;
            for key in CONDITIONS {
                let values = (then.get(key), now.get(key));
                let note = format!("{key} was {} and is {}", show(values.0), show(values.1));
                if values.0 != values.1 && !conditions.contains(&note) {
                    conditions.push(note);
                }
            }
            changes.rows.push(change(then, &now));
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
        let mut table = Table::new(2, ["op", "via", "then µs", "now µs", "change", "counts"]);
        let time = |value: Option<f64>| value.map_or_else(|| "-".into(), |us| format!("{us:.2}"));
        for change in &self.rows {
            table.push([
                change.what.clone(),
                change.conveyance.clone(),
                time(change.then_us),
                time(change.now_us),
                change.percent(),
                change.counts.join(", "),
            ]);
        }
        let notes: String = self.notes.iter().map(|note| format!("{note}\n")).collect();
        format!("Against {}:\n\n{}{notes}", self.name, table.render())
    }
}

fn text<'a>(row: &'a Fields, key: &str) -> &'a str {
    row.get(key).and_then(Value::as_str).unwrap_or_default()
}

fn number(row: &Fields, key: &str) -> Option<f64> {
    row.get(key)?.as_f64()
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

fn change(then: &Fields, now: &Fields) -> Change {
    let both = |key| number(then, key).zip(number(now, key));
    let (then_us, now_us) = (number(then, "p50_us"), number(now, "p50_us"));
    let ratio = both("floor_ratio").or_else(|| both("p50_us"));
    let counts = COUNTS.iter().filter_map(|&key| {
        let (was, is) = both(key)?;
        let slack = (was.abs().max(is.abs()) * SLACK).max(SLACK);
        ((was - is).abs() > slack).then(|| format!("{key} {was:.2} → {is:.2}"))
    });
    Change {
        what: describe(now),
        conveyance: text(now, "conveyance").to_owned(),
        then_us,
        now_us,
        ratio: ratio
            .filter(|(was, _)| *was > 0.0)
            .map(|(was, is)| is / was),
        counts: counts.collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
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
            registrations: Some(0.0),
            sends: Some(2.01),
            ..sample()
        };
        let changes = reference(&[then]).changes(&[now]).unwrap();
        let [change] = &changes.rows[..] else {
            panic!("{changes:?}");
        };
        assert_eq!(change.percent(), "-50.0 %");
        assert_eq!(change.counts, ["registrations 1.00 → 0.00"]);
        assert!(changes.notes.is_empty(), "{changes:?}");
        assert!(changes.table().contains("-50.0 %"));
    }

    #[test]
    fn without_a_floor_latencies_are_compared() {
        let slow = |p50_us| Row {
            p50_us: Some(p50_us),
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
