//! `compare --html`: a self-contained page with the rows and with figures for a paper.

mod bars;
mod figure;
mod figures;
mod lines;
mod receives;
mod runs;
mod scale;
mod svg;

use std::fmt::Write;

use serde::Serialize;

use crate::answer;
use crate::interval::{Difference, Shown};
use crate::json::rows_json;
use crate::ladders::LadderFigure;
use crate::receives::sentences;
use crate::reference::{Changes, Outcome};
use crate::rows::Row;
pub use figure::Figure;
use figures::{Group, Palette};
pub use runs::RunReport;
use scale::show;
use svg::escape;

/// The minimum difference of a ratio from 1 for it to be coloured.
const NOTABLE: f64 = 0.02;

/// The contents of the page.
pub struct Report<'a> {
    /// All results.
    pub rows: &'a [Row],
    /// Whether the rows are of `--receives`, whose page is about memory, however many lengths there are.
    pub of_receives: bool,
    /// A sentence that describes the measurement.
    pub summary: &'a str,
    /// A sentence about the machine and the build of this program.
    pub machine: &'a str,
    /// The conditions of the measurement, as names and values, so that it can be repeated.
    pub facts: &'a [(&'a str, String)],
    /// The reason why the figures may be inexact, if there is one.
    pub noise: Option<&'a str>,
    /// The changes against an earlier report, if one was given.
    pub changes: Option<&'a Changes>,
    /// The ladders of the operations, if they were simulated.
    pub ladders: &'a [LadderFigure],
}

impl Report<'_> {
    /// Returns all figures of the page, with their data.
    #[must_use]
    pub fn figures(&self) -> Vec<Figure> {
        let palette = Palette::of(self.rows);
        if self.of_receives {
            return receives::over_memory(self.rows, &palette);
        }
        let groups = figures::groups(self.rows);
        let mut all = figures::over_size(&groups, &palette);
        all.extend(figures::over_delay(&groups, &palette));
        all.extend(figures::distributions(&groups, &palette));
        all.extend(figures::split(&groups));
        all.extend(figures::counts(&groups));
        all
    }

    /// Renders the page.
    ///
    /// # Errors
    /// The rows cannot be written as JSON.
    pub fn render(&self) -> serde_json::Result<String> {
        if self.of_receives {
            return self.render_sweep();
        }
        let groups = figures::groups(self.rows);
        let palette = Palette::of(self.rows);
        let mut out = head(
            "What each way of carrying NFS costs",
            self.summary,
            self.machine,
        );
        out.push_str(&answer(self.rows));
        if let Some(noise) = self.noise {
            // Writing to a String does not fail, here and below.
            let _ = writeln!(out, "<p class=\"note\">{}</p>", escape(noise));
        }
        out.push_str(&latencies(&groups));
        if let Some(changes) = self.changes {
            out.push_str(&change_table(changes));
        }
        let simulated = self.rows.iter().any(|row| row.split.link_us.is_some());
        section(
            &mut out,
            "Latency over size",
            "One call at a time. Dashed: as many bytes each way over the TCP baseline.",
            &figures::over_size(&groups, &palette),
        );
        section(
            &mut out,
            "Latency over link delay",
            "The slope is the number of round trips: each takes twice the delay.",
            &figures::over_delay(&groups, &palette),
        );
        section(
            &mut out,
            "Distribution",
            "All calls of all rounds. Each point has at least ten calls beyond it. What else the machine did \
             is in the tail, for all transfer modes alike, as these take turns.",
            &figures::distributions(&groups, &palette),
        );
        section(
            &mut out,
            "What the time goes to",
            "Each part is what the call takes less in the same simulation when that costs nothing: \
             the link (no delay, any rate), interrupts, registration and invalidation, copies.",
            &figures::split(&groups),
        );
        let counted = match simulated {
            true => "Counted on the way of each reply: what it had to wait for.",
            false => {
                "For one operation, both sides together; round trips from time alone, the rest \
                 counted by the devices. Where there is no bar and no figure, none was measured."
            }
        };
        section(&mut out, "Costs", counted, &figures::counts(&groups));
        out.push_str(&ladders(self.ladders));
        out.push_str(&foot(self.facts, self.rows, &rows_json(self.rows))?);
        Ok(out)
    }

    /// Renders the page of `--receives`, which compares memory and not variants.
    fn render_sweep(&self) -> serde_json::Result<String> {
        let mut out = head(
            "What NFS gains from the memory for receives",
            self.summary,
            self.machine,
        );
        for sentence in sentences(self.rows) {
            let _ = writeln!(out, "<p>{}</p>", prose(&sentence));
        }
        if let Some(noise) = self.noise {
            let _ = writeln!(out, "<p class=\"note\">{}</p>", escape(noise));
        }
        section(
            &mut out,
            "Round trips and time over memory",
            "Each point is one length of receives, the same at both ends: at the client one receive for \
             each message that the credits which it asks for allow, at the server for those that it grants, \
             whether the messages are long or short.",
            &receives::over_memory(self.rows, &Palette::of(self.rows)),
        );
        out.push_str(&foot(self.facts, self.rows, &rows_json(self.rows))?);
        Ok(out)
    }
}

/// Formats the beginning of a page.
fn head(title: &str, summary: &str, machine: &str) -> String {
    format!(
        "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <title>{title}</title>\n<style>\n{}</style>\n</head>\n<body>\n\
         <h1>{title}</h1>\n<p>{}<br>\n{}</p>\n",
        include_str!("style.css"),
        escape(summary),
        escape(machine)
    )
}

/// Formats the end of a page: how it was made, and all rows.
fn foot(
    facts: &[(&str, String)],
    rows: &[impl Serialize],
    json: &impl Serialize,
) -> serde_json::Result<String> {
    let mut out = String::from("<h2>How this was made</h2>\n<dl>\n");
    for (name, value) in facts {
        let _ = writeln!(out, "<dt>{}</dt><dd>{}</dd>", escape(name), escape(value));
    }
    out.push_str("</dl>\n");
    out.push_str(&all_rows(rows)?);
    // The page contains the rows for other programs. `</` would end the element; JSON allows
    // the slash to be escaped.
    let json = serde_json::to_string(json)?.replace("</", "<\\/");
    let _ = writeln!(
        out,
        "<script type=\"application/json\" id=\"rows\">{json}</script>\n</body>\n</html>"
    );
    Ok(out)
}

/// Formats the answer: sentences, and the table that they are computed from. It is empty if version
/// 1 or version 2 was not measured.
fn answer(rows: &[Row]) -> String {
    let Some(lines) = answer::cells(rows) else {
        return String::new();
    };
    let mut out = String::from("<h2>The answer</h2>\n");
    for sentence in answer::sentences(rows) {
        let _ = writeln!(out, "<p>{}</p>", prose(&sentence));
    }
    out.push_str(&table(&lines, answer::NAMES));
    for remark in answer::legend(rows) {
        let _ = writeln!(out, "<p class=\"note\">{}</p>", prose(&remark));
    }
    out
}

/// Returns a sentence as HTML. What stands between backticks is code.
fn prose(sentence: &str) -> String {
    let mut out = String::new();
    for (number, part) in sentence.split('`').enumerate() {
        match number % 2 {
            0 => out.push_str(&escape(part)),
            _ => {
                let _ = write!(out, "<code>{}</code>", escape(part));
            }
        }
    }
    out
}

/// Formats a table. The first line has the headings, and the first `names` columns have text.
fn table(lines: &[impl AsRef<[String]>], names: usize) -> String {
    let mut out = String::from("<div class=\"scroll\"><table>\n");
    for (number, line) in lines.iter().enumerate() {
        out.push_str("<tr>");
        for (column, cell) in line.as_ref().iter().enumerate() {
            let tag = if number == 0 { "th" } else { "td" };
            let class = match column < names {
                true => " class=\"name\"",
                false => "",
            };
            let _ = write!(out, "<{tag}{class}>{}</{tag}>", escape(cell));
        }
        out.push_str("</tr>\n");
    }
    out.push_str("</table></div>\n");
    out
}

fn section(out: &mut String, heading: &str, note: &str, figures: &[Figure]) {
    if figures.is_empty() {
        return;
    }
    let _ = writeln!(
        out,
        "<h2>{heading}</h2>\n<p class=\"note\">{note}</p>\n<div class=\"figures\">"
    );
    for figure in figures {
        let _ = writeln!(out, "<figure>{}</figure>", figure.within_page());
    }
    out.push_str("</div>\n");
}

/// Formats the ladders. The first one is open.
fn ladders(figures: &[LadderFigure]) -> String {
    if figures.is_empty() {
        return String::new();
    }
    let mut out = String::from(
        "<h2>One call, step by step</h2>\n<p class=\"note\">From the call to its results, to scale. What the \
         results wait for is thick.</p>\n",
    );
    for (number, figure) in figures.iter().enumerate() {
        let open = if number == 0 { " open" } else { "" };
        let _ = writeln!(
            out,
            "<details{open}><summary>{}</summary>\n<figure>{}</figure></details>",
            escape(&figure.picture.title),
            figure.svg()
        );
    }
    out
}

/// Formats a table of the median latencies of all operations and variants, with ratios to version
/// 1.
fn latencies(groups: &[Group<'_>]) -> String {
    let mut variants: Vec<&str> = Vec::new();
    for row in groups.iter().flat_map(|group| &group.rows) {
        if !variants.contains(&row.conveyance) {
            variants.push(row.conveyance);
        }
    }
    let mut out = String::from(
        "<h2>Median latency, µs</h2>\n<p class=\"note\">In brackets: over that of the baseline (version \
         1, with remote invalidation if that was measured, or else the first column), taken in each turn by itself, with its \
         confidence interval of 95 %. ?: the interval includes 1, so that either can be faster; no \
         colour.</p>\n<div class=\"scroll\"><table>\n<tr><th class=\"name\">operation</th>",
    );
    for name in &variants {
        let _ = write!(out, "<th>{}</th>", escape(name));
    }
    out.push_str("</tr>\n");
    for group in groups {
        let _ = write!(out, "<tr><td class=\"name\">{}</td>", escape(&group.name()));
        for &name in &variants {
            let row = group.rows.iter().find(|row| row.conveyance == name);
            let Some((row, p50)) = row.and_then(|row| Some((row, row.p50_us?))) else {
                out.push_str("<td>–</td>");
                continue;
            };
            let shown = row.beside_baseline();
            match shown.filter(|_| row.baseline != Some(name)) {
                Some(shown) => {
                    let class = notable(shown);
                    let cell = shown.cell();
                    let cell = match shown.interval {
                        Some(_) => cell,
                        None => format!("({cell})"),
                    };
                    let _ = write!(
                        out,
                        "<td class=\"{class}\">{} <small>{cell}</small></td>",
                        show(p50)
                    );
                }
                None => {
                    let _ = write!(out, "<td>{}</td>", show(p50));
                }
            }
        }
        out.push_str("</tr>\n");
    }
    out.push_str("</table></div>\n");
    out
}

/// Returns the colour of a ratio, as a class: none for a difference that is small, or that is not
/// certain.
fn notable(shown: Shown) -> &'static str {
    match shown.difference() {
        _ if (shown.ratio - 1.0).abs() <= NOTABLE => "",
        Difference::Less => "good",
        Difference::More => "bad",
        Difference::None | Difference::Unknown => "",
    }
}

fn change_table(changes: &Changes) -> String {
    let mut out = format!(
        "<h2>Against {}</h2>\n<p class=\"note\">Latency then and now; the change is of the ratio to \
         the TCP baseline where both runs have one, which another day's machine disturbs less.</p>\n",
        escape(&changes.name)
    );
    for note in &changes.notes {
        let _ = writeln!(out, "<p class=\"note\">{}</p>", escape(note));
    }
    out.push_str(
        "<div class=\"scroll\"><table>\n<tr><th class=\"name\">operation</th>\
         <th class=\"name\">via</th><th>then, µs</th><th>now, µs</th><th>change</th>\
         <th class=\"name\">outcome</th><th class=\"name\">counts that changed</th></tr>\n",
    );
    for change in &changes.rows {
        let class = match change.outcome() {
            Outcome::Slower => "bad",
            Outcome::Faster => "good",
            Outcome::Same | Outcome::Untested => "",
        };
        let _ = writeln!(
            out,
            "<tr><td class=\"name\">{}</td><td class=\"name\">{}</td><td>{}</td><td>{}</td>\
             <td class=\"{class}\">{}</td><td class=\"name\">{}</td><td class=\"name\">{}</td></tr>",
            escape(&change.what),
            escape(&change.conveyance),
            change.then_us.map_or_else(|| "–".to_owned(), show),
            change.now_us.map_or_else(|| "–".to_owned(), show),
            change.percent(),
            change.verdict(),
            escape(&change.counts.join(", "))
        );
    }
    out.push_str("</table></div>\n");
    out
}

/// Formats a table with every key of every row.
fn all_rows(rows: &[impl Serialize]) -> serde_json::Result<String> {
    let mut out = String::from(
        "<h2>All rows</h2>\n<p class=\"note\">The keys are explained in docs/compare-rows.md.</p>\n\
         <details><summary>Show</summary><div class=\"scroll\"><table>\n",
    );
    for (number, row) in rows.iter().enumerate() {
        let serde_json::Value::Object(mut row) = serde_json::to_value(row)? else {
            continue;
        };
        // It is for programs, which find it in the JSON of the page.
        row.remove("histogram");
        if number == 0 {
            let keys: String = row.keys().map(|key| format!("<th>{key}</th>")).collect();
            let _ = writeln!(out, "<tr>{keys}</tr>");
        }
        out.push_str("<tr>");
        for value in row.values() {
            let text = match value {
                serde_json::Value::Null => "–".to_owned(),
                serde_json::Value::String(text) => text.clone(),
                serde_json::Value::Number(number) => number.as_f64().map_or_else(String::new, show),
                other => other.to_string(),
            };
            let _ = write!(out, "<td>{}</td>", escape(&text));
        }
        out.push_str("</tr>\n");
    }
    out.push_str("</table></div></details>\n");
    Ok(out)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rows::OverDelay;
    use crate::rows::tests::sample;

    fn page(rows: &[Row]) -> String {
        page_of(rows, false)
    }

    fn page_of(rows: &[Row], of_receives: bool) -> String {
        let report = Report {
            rows,
            of_receives,
            summary: "a <test>",
            machine: "on a <machine>",
            facts: &[("command", "rpcrdma compare </script>".to_owned())],
            noise: None,
            changes: None,
            ladders: &[],
        };
        report.render().unwrap()
    }

    fn rows() -> Vec<Row> {
        let mut rows = Vec::new();
        for op in ["read", "write"] {
            for size in [1024, 8192, 1 << 20] {
                for conveyance in ["tcp", "v1", "v9-new"] {
                    let points = [0.0, 1000.0, 2000.0].map(|delay_us| OverDelay {
                        delay_us,
                        p50_us: 50.0 + 2.0 * delay_us,
                        baseline_ratio: Some(1.0),
                        baseline_ratio_interval: None,
                    });
                    rows.push(Row {
                        op,
                        size: Some(size),
                        conveyance,
                        latency_over_delay: Some(points.to_vec()),
                        ..sample()
                    });
                }
            }
        }
        rows
    }

    #[test]
    fn a_page_has_its_figures_and_needs_nothing_else() {
        let page = page(&rows());
        // Two figures of latency over size; and for the short and the long READ and WRITE, one each
        // of latency over delay and of counts.
        assert_eq!(page.matches("<svg").count(), 2 + 4 + 4);
        assert_eq!(page.matches("<svg").count(), page.matches("</svg>").count());
        for outside in ["http:", "https:", "src=", "href=", "url(", "@import"] {
            let page = page.replace("http://www.w3.org/2000/svg", "");
            assert!(!page.contains(outside), "{outside}");
        }
        // An unknown variant is shown like any other.
        assert!(page.matches("v9-new").count() > 20);
        assert!(page.contains("a &lt;test&gt;") && page.contains("&lt;/script&gt;"));
    }

    #[test]
    fn receives_of_several_lengths_are_drawn_over_their_memory() {
        let mut rows = Vec::new();
        for (size, trips) in [(4096, 2.0), (65_536, 1.0)] {
            let mut row = sample();
            row.conditions.inline_bytes = Some(size);
            row.round_trips = Some(trips);
            row.receive_memory_requester = Some(134 * u64::from(size));
            rows.push(row);
        }
        for rows in [&rows[..], &rows[1..]] {
            let page = page_of(rows, true);
            assert_eq!(page.matches("<svg").count(), 2);
            assert!(page.contains("READ of 1 MiB: round trips over memory"));
            assert!(page.contains("READ of 1 MiB in 1 round trip takes"));
            assert!(!page.contains("Latency over size"));
        }
    }

    #[test]
    fn the_page_begins_with_the_answer() {
        let mut rows = rows();
        assert!(!page(&rows).contains("The answer"), "there is no version 2");
        for row in &mut rows {
            if row.conveyance == "v9-new" {
                row.conveyance = "v2-ddp-cont";
            }
        }
        let page = page(&rows);
        let answer = page.find("<p>An 8 KiB WRITE takes 1 round trip").unwrap();
        assert!(answer < page.find("Median latency").unwrap());
        assert!(page.contains("<th>trips</th>"));
    }

    #[test]
    fn options_in_sentences_are_code() {
        assert_eq!(
            prose("`--receives 65k` < 2, see `compare`."),
            "<code>--receives 65k</code> &lt; 2, see <code>compare</code>."
        );
        assert_eq!(prose("a & b"), "a &amp; b");
    }

    #[test]
    fn the_rows_go_with_the_page() {
        let rows = rows();
        let page = page(&rows);
        let start = page.find("id=\"rows\">").unwrap() + "id=\"rows\">".len();
        let end = start + page[start..].find("</script>").unwrap();
        let embedded: serde_json::Value = serde_json::from_str(&page[start..end]).unwrap();
        assert_eq!(embedded, serde_json::to_value(rows_json(&rows)).unwrap());
    }

    #[test]
    fn rows_without_figures_make_a_page_too() {
        let bare = Row {
            p50_us: None,
            round_trips: None,
            floor_p50_us: None,
            latency_over_delay: None,
            baseline_ratio: None,
            ..sample()
        };
        for rows in [vec![], vec![bare]] {
            assert!(page(&rows).ends_with("</html>\n"));
        }
    }

    #[test]
    fn the_distribution_is_drawn_where_calls_were_timed() {
        let mut latency = crate::latency::Latency::new();
        for micros in 1..=1000 {
            latency.record(std::time::Duration::from_micros(micros));
        }
        let mut row = sample();
        row.histogram = latency.encoded();
        let rows = [row];
        let page = page(&rows);
        assert!(page.contains("distribution of latency"));
        // Its name, the latency and the part of the calls, when the mouse is over the point.
        let marked = |text: &str| page.contains(&format!("{}, {text}", rows[0].conveyance));
        assert!(
            marked("500 at 50 %") && marked("900 at 90 %") && marked("990 at 99 %"),
            "{page}"
        );
        assert!(!page.contains("at 99.9 %"), "one call is beyond it");
        let figures = figures::distributions(&figures::groups(&rows), &Palette::of(&rows));
        assert_eq!(figures.len(), 1);
        assert!(
            figures[0]
                .tsv(&[])
                .contains("transfer_mode\texceeded_by_one_in\tlatency_us\n")
        );
    }

    #[test]
    fn what_the_time_goes_to_is_shown_where_it_is_known() {
        let mut row = sample();
        assert!(!page(std::slice::from_ref(&row)).contains("what its time is made of"));
        row.split.link_us = Some(20.0);
        row.split.interrupts_us = Some(4.0);
        row.split.registration_us = Some(1.0);
        row.split.copies_us = Some(2.0);
        let page = page(&[row]);
        assert!(page.contains("what its time is made of"));
        // The total is 512.25.
        assert!(page.contains("the rest 485"), "{page}");
    }
}
