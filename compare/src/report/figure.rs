//! A figure with the data that it shows.

use rpcrdma_setup::columns::wrap;

use super::svg::Svg;

/// The width of a line of conditions below a figure, in characters.
const WIDTH: usize = 92;

/// A figure of a report, with its data.
#[derive(Debug)]
pub struct Figure {
    /// A name for files, without extension.
    pub name: String,
    chart: Svg,
    /// The columns of the data, and its lines.
    headings: Vec<&'static str>,
    lines: Vec<Vec<String>>,
}

impl Figure {
    /// Returns a figure. The name is made of a title, of which only letters and digits are left.
    pub(super) fn new(
        title: &str,
        chart: Svg,
        headings: &[&'static str],
        lines: Vec<Vec<String>>,
    ) -> Self {
        let words = title.split(|letter: char| !letter.is_ascii_alphanumeric());
        let words: Vec<&str> = words.filter(|word| !word.is_empty()).collect();
        Self {
            name: words.join("-").to_lowercase(),
            chart,
            headings: headings.to_vec(),
            lines,
        }
    }

    /// Renders the figure as it is in a page, which has the conditions elsewhere.
    pub(super) fn within_page(&self) -> String {
        self.chart.render(&[])
    }

    /// Renders the figure as an SVG file, with the conditions of the measurement below.
    #[must_use]
    pub fn svg(&self, conditions: &[&str]) -> String {
        let lines = conditions.iter().flat_map(|text| {
            let wrapped = wrap(text, WIDTH);
            wrapped.lines().map(str::to_owned).collect::<Vec<_>>()
        });
        self.chart.render(&lines.collect::<Vec<_>>())
    }

    /// Returns the data as tab-separated values. Lines with the title and the conditions come first,
    /// each after a `#`.
    #[must_use]
    pub fn tsv(&self, conditions: &[&str]) -> String {
        let remarks = [self.chart.label()]
            .into_iter()
            .chain(conditions.iter().copied());
        let remarks = remarks.map(|text| format!("# {}\n", text.replace('\n', " ")));
        let headings = [self.headings.join("\t")];
        let lines = self.lines.iter().map(|line| line.join("\t"));
        let lines = headings.into_iter().chain(lines).map(|line| line + "\n");
        remarks.chain(lines).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_figure_has_its_conditions_and_its_data() {
        let chart = Svg::new(470.0, 100.0, "WRITE 8 KiB: latency over link delay");
        let title = "WRITE 8 KiB: latency over link delay";
        let lines = vec![vec!["v1".to_owned(), "1000".to_owned(), "4.5".to_owned()]];
        let figure = Figure::new(
            title,
            chart,
            &["transfer_mode", "delay_us", "p50_us"],
            lines,
        );
        assert_eq!(figure.name, "write-8-kib-latency-over-link-delay");
        let conditions = ["device <iwarp>", "Linux 6.1"];
        assert_eq!(
            figure.tsv(&conditions),
            "# WRITE 8 KiB: latency over link delay\n# device <iwarp>\n# Linux 6.1\n\
             transfer_mode\tdelay_us\tp50_us\nv1\t1000\t4.5\n"
        );
        let (alone, within) = (figure.svg(&conditions), figure.within_page());
        assert!(alone.contains("device &lt;iwarp&gt;") && alone.contains("Linux 6.1"));
        assert!(!within.contains("iwarp"));
        assert!(within.contains("viewBox=\"0 0 470 100\""), "{within}");
        assert!(
            !alone.contains("viewBox=\"0 0 470 100\""),
            "room for the conditions"
        );
    }
}
