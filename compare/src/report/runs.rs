//! The page of `compare --run --html`.

use std::fmt::Write;

use super::bars::{BarChart, Panel};
use super::figure::Figure;
use super::svg::escape;
use super::{foot, head, section, table};
use crate::json::run_rows_json;
use crate::run::{RunRow, cells, sentences};

/// The contents of the page.
pub struct RunReport<'a> {
    /// All results.
    pub rows: &'a [RunRow],
    /// A sentence that describes the measurement.
    pub summary: &'a str,
    /// A sentence about the machine and the build of this program.
    pub machine: &'a str,
    /// Remarks on how to read the table.
    pub legend: &'a [String],
    /// The conditions of the measurement, as names and values, so that it can be repeated.
    pub facts: &'a [(&'a str, String)],
}

impl RunReport<'_> {
    /// Renders the page.
    ///
    /// # Errors
    /// The rows cannot be written as JSON.
    pub fn render(&self) -> serde_json::Result<String> {
        let mut out = head("What an application gains", self.summary, self.machine);
        for sentence in sentences(self.rows) {
            // Writing to a String does not fail.
            let _ = writeln!(out, "<p>{}</p>", escape(&sentence));
        }
        out.push_str(&table(&cells(self.rows), 1));
        for remark in self.legend {
            let _ = writeln!(out, "<p class=\"note\">{}</p>", escape(remark));
        }
        section(
            &mut out,
            "Time and round trips",
            "Medians over all runs; round trips are the slope of time over delay.",
            &[self.figure("Time and round trips of the command", &TIMES)],
        );
        section(
            &mut out,
            "Costs",
            "Counted by the devices of both sides; processor times by the system.",
            &[
                self.figure("Work of the devices", &COUNTS),
                self.figure("Processor time", &PROCESSORS),
            ],
        );
        out.push_str(&foot(self.facts, self.rows, &run_rows_json(self.rows))?);
        Ok(out)
    }

    fn figure(&self, title: &str, figures: &[(&str, Value)]) -> Figure {
        let panels = figures.iter().map(|(label, of)| Panel {
            label: (*label).to_owned(),
            bars: self
                .rows
                .iter()
                .map(|row| of(row).map(|it| vec![it]))
                .collect(),
        });
        let names = self.rows.iter().map(|row| row.conveyance.to_owned());
        BarChart {
            title,
            names: names.collect(),
            parts: &[],
            panels: panels.collect(),
        }
        .figure()
    }
}

/// A value of a row.
type Value = fn(&RunRow) -> Option<f64>;

const TIMES: [(&str, Value); 2] = [
    ("seconds", |row| Some(row.elapsed_s)),
    // A slope can be below zero, where there are few round trips and much noise.
    ("round trips", |row| row.round_trips.map(|it| it.max(0.0))),
];
const COUNTS: [(&str, Value); 3] = [
    ("NFS operations", |row| Some(row.operations)),
    ("RDMA Reads, Writes", |row| {
        Some(row.rdma_reads? + row.rdma_writes?)
    }),
    ("registrations", |row| row.registrations),
];
const PROCESSORS: [(&str, Value); 3] = [
    ("command, s", |row| Some(row.cpu_command_s)),
    ("mount, s", |row| Some(row.cpu_mount_s)),
    ("server, s", |row| Some(row.cpu_server_s)),
];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::run::tests::two;

    #[test]
    fn the_page_has_the_answer_the_table_figures_and_rows() {
        let mut rows = two();
        rows[0].command = "</script>".to_owned();
        let report = RunReport {
            rows: &rows,
            summary: "a <test>",
            machine: "on a <machine>",
            legend: &["read & see".to_owned()],
            facts: &[("command", "x".to_owned())],
        };
        let page = report.render().unwrap();
        assert!(page.contains("a &lt;test&gt;") && page.contains("read &amp; see"));
        assert!(page.contains("ratios is 0.50 (0.50 to 0.60)") && page.contains("<th>trips</th>"));
        assert_eq!(page.matches("<svg").count(), 3);
        let start = page.find("id=\"rows\">").unwrap() + "id=\"rows\">".len();
        let end = start + page[start..].find("</script>").unwrap();
        let json = serde_json::to_string(&run_rows_json(&rows)).unwrap();
        assert_eq!(page[start..end].replace("<\\/", "</"), json);
    }
}
