//! Generates SVG. Figures are self-contained, so that they can be cut out of the page: colours are
//! attributes, which the page's style sheet overrides in dark mode.

use std::fmt::{Display, Write};

/// The anchor of a text.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Anchor {
    Start,
    Middle,
    End,
}

impl Anchor {
    fn name(self) -> &'static str {
        match self {
            Self::Start => "start",
            Self::Middle => "middle",
            Self::End => "end",
        }
    }
}

/// The colours of series on a light background; the style sheet has those for a dark one. The first
/// is for the reference.
const COLOURS: [&str; 12] = [
    "#6b7280", "#1f6fd6", "#0e8f9c", "#7a4fd0", "#c77800", "#c2368f", "#1d8f47", "#c0392b",
    "#111827", "#8c6d1f", "#3f51b5", "#6d8f0e",
];
/// The number of shapes of markers. It has no factor in common with the number of colours of series, so
/// that a colour comes back with another shape.
const SHAPES: usize = 5;
/// Half the width of a marker.
const MARKER: f64 = 3.4;

/// The height of a line of conditions below a figure.
const NOTE: f64 = 11.0;

/// Returns the number of the colour of a series. They repeat after the last one.
pub(crate) fn style(series: usize) -> usize {
    match series < COLOURS.len() {
        true => series,
        // The first is reserved for the reference.
        false => 1 + (series - 1) % (COLOURS.len() - 1),
    }
}

/// Returns the number of the shape of a series' markers.
fn shape(series: usize) -> usize {
    series % SHAPES
}

/// Escapes the characters of a text that have a meaning in markup.
pub(crate) fn escape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for letter in text.chars() {
        match letter {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            other => out.push(other),
        }
    }
    out
}

/// A figure under construction.
#[derive(Debug)]
pub(crate) struct Svg {
    width: f64,
    height: f64,
    label: String,
    out: String,
}

impl Svg {
    /// Returns an empty figure of `width` by `height` pixels. Screen readers read out `label`.
    pub(crate) fn new(width: f64, height: f64, label: &str) -> Self {
        Self {
            width,
            height,
            label: label.to_owned(),
            out: String::new(),
        }
    }

    /// Returns the text that screen readers read out, which is the title.
    pub(crate) fn label(&self) -> &str {
        &self.label
    }

    fn push(&mut self, text: impl Display) {
        // Writing to a String does not fail.
        let _ = writeln!(self.out, "{text}");
    }

    /// Draws a straight line of the frame or grid.
    pub(crate) fn rule(&mut self, (x1, y1): (f64, f64), (x2, y2): (f64, f64), class: &str) {
        let colour = if class == "axis" {
            "#6b7280"
        } else {
            "#e2e5ea"
        };
        self.push(format_args!(
            "<path class=\"{class}\" d=\"M{x1:.1} {y1:.1}L{x2:.1} {y2:.1}\" stroke=\"{colour}\"/>"
        ));
    }

    /// Draws a text; `class` is `title`, `label` or `value`.
    pub(crate) fn text(&mut self, (x, y): (f64, f64), anchor: Anchor, class: &str, text: &str) {
        let (colour, weight) = match class {
            "title" => ("#111827", " font-size=\"13\" font-weight=\"600\""),
            "value" => ("#111827", ""),
            _ => ("#4b5563", ""),
        };
        self.push(format_args!(
            "<text class=\"{class}\" x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"{}\" \
             fill=\"{colour}\"{weight}>{}</text>",
            anchor.name(),
            escape(text)
        ));
    }

    /// Draws a text that runs upwards.
    pub(crate) fn text_up(&mut self, (x, y): (f64, f64), text: &str) {
        self.push(format_args!(
            "<text class=\"label\" transform=\"translate({x:.1} {y:.1}) rotate(-90)\" \
             text-anchor=\"middle\" fill=\"#4b5563\">{}</text>",
            escape(text)
        ));
    }

    /// Draws a line through points.
    pub(crate) fn polyline(&mut self, points: &[(f64, f64)], series: usize, dashed: bool) {
        let points: Vec<String> = points
            .iter()
            .map(|(x, y)| format!("{x:.1},{y:.1}"))
            .collect();
        let dash = if dashed {
            " stroke-dasharray=\"4 3\""
        } else {
            ""
        };
        let style = style(series);
        self.push(format_args!(
            "<polyline class=\"s{style}\" points=\"{}\" fill=\"none\" stroke=\"{}\" \
             stroke-width=\"1.8\" stroke-linejoin=\"round\"{dash}/>",
            points.join(" "),
            COLOURS[style]
        ));
    }

    /// Draws the marker of a point, with a text that is shown when the mouse is over it.
    pub(crate) fn marker(&mut self, (x, y): (f64, f64), series: usize, says: &str) {
        let (style, m) = (style(series), MARKER);
        let colour = COLOURS[style];
        let shape = match shape(series) {
            0 => format!("<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"{m}\""),
            1 => format!(
                "<rect x=\"{:.1}\" y=\"{:.1}\" width=\"{:.1}\" height=\"{:.1}\"",
                x - m * 0.9,
                y - m * 0.9,
                m * 1.8,
                m * 1.8
            ),
            2 => format!(
                "<path d=\"M{x:.1} {:.1}L{:.1} {:.1}H{:.1}Z\"",
                y - m * 1.2,
                x + m * 1.2,
                y + m,
                x - m * 1.2
            ),
            3 => format!(
                "<path d=\"M{x:.1} {:.1}L{:.1} {:.1}H{:.1}Z\"",
                y + m * 1.2,
                x - m * 1.2,
                y - m,
                x + m * 1.2
            ),
            _ => format!(
                "<path d=\"M{x:.1} {:.1}L{:.1} {y:.1}L{x:.1} {:.1}L{:.1} {y:.1}Z\"",
                y - m * 1.3,
                x + m * 1.3,
                y + m * 1.3,
                x - m * 1.3
            ),
        };
        let name = shape[1..].split(' ').next().unwrap_or_default();
        self.push(format_args!(
            "{shape} class=\"f{style}\" fill=\"{colour}\"><title>{}</title></{name}>",
            escape(says)
        ));
    }

    /// Draws a filled bar, with a text that is shown when the mouse is over it.
    pub(crate) fn bar(
        &mut self,
        (x, y): (f64, f64),
        (width, height): (f64, f64),
        series: usize,
        says: &str,
    ) {
        let style = style(series);
        self.push(format_args!(
            "<rect class=\"f{style}\" x=\"{x:.1}\" y=\"{y:.1}\" width=\"{:.1}\" \
             height=\"{height:.1}\" fill=\"{}\"><title>{}</title></rect>",
            width.max(0.0),
            COLOURS[style],
            escape(says)
        ));
    }

    /// Draws the names of the series from a position on, in as many lines as are needed. Returns
    /// the height used.
    pub(crate) fn legend(
        &mut self,
        (left, top): (f64, f64),
        width: f64,
        entries: &[(String, usize, bool)],
    ) -> f64 {
        let (mut x, mut y) = (left, top);
        for (name, series, dashed) in entries {
            let wide = 30.0 + 6.1 * name.chars().count() as f64;
            if x > left && x + wide > left + width {
                (x, y) = (left, y + LEGEND_LINE);
            }
            self.polyline(&[(x, y - 4.0), (x + 18.0, y - 4.0)], *series, *dashed);
            if !dashed {
                self.marker((x + 9.0, y - 4.0), *series, name);
            }
            self.text((x + 22.0, y), Anchor::Start, "label", name);
            x += wide + 6.0;
        }
        y - top + LEGEND_LINE
    }

    /// Returns the figure as SVG text, with lines of small text below it.
    pub(crate) fn render(&self, notes: &[String]) -> String {
        let Self {
            width,
            height: own,
            label,
            out,
        } = self;
        let room = if notes.is_empty() { 0.0 } else { 2.0 * NOTE };
        let height = own + room + NOTE * notes.len() as f64;
        let label = escape(label);
        let mut text = format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" role=\"img\" aria-label=\"{label}\" \
             viewBox=\"0 0 {width:.0} {height:.0}\" width=\"{width:.0}\" height=\"{height:.0}\" \
             font-family=\"system-ui, sans-serif\" font-size=\"11\">\n{out}"
        );
        for (number, note) in notes.iter().enumerate() {
            let y = own + NOTE * (number as f64 + 1.5);
            // Writing to a String does not fail.
            let _ = writeln!(
                text,
                "<text class=\"label\" x=\"8\" y=\"{y:.1}\" font-size=\"8.5\" fill=\"#4b5563\">{}</text>",
                escape(note)
            );
        }
        text.push_str("</svg>\n");
        text
    }
}

/// The height of a line of a legend.
const LEGEND_LINE: f64 = 15.0;

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn no_text_is_taken_for_markup() {
        let mut svg = Svg::new(10.0, 10.0, "a \"b\" <c>");
        svg.text((0.0, 0.0), Anchor::Start, "label", "<script>&");
        let out = svg.render(&[]);
        assert!(out.contains("&lt;script&gt;&amp;"), "{out}");
        assert!(out.contains("a &quot;b&quot; &lt;c&gt;"), "{out}");
    }

    #[test]
    fn there_is_a_style_for_any_number_of_series_and_the_first_stays_special() {
        assert_eq!(style(0), 0);
        for series in 1..100 {
            assert!((1..COLOURS.len()).contains(&style(series)));
        }
        // Version 1 and the ninth transfer mode once looked alike.
        let looks: BTreeSet<_> = (0..56)
            .map(|series| (style(series), shape(series)))
            .collect();
        assert_eq!(looks.len(), 56);
        let colours: BTreeSet<_> = (0..COLOURS.len())
            .map(|series| COLOURS[style(series)])
            .collect();
        assert_eq!(colours.len(), COLOURS.len());
        // The style sheet has a colour on a dark ground for each.
        for series in 0..COLOURS.len() {
            let style = format!(".s{series} {{ stroke:");
            assert!(include_str!("style.css").contains(&style), "{style}");
        }
    }
}
