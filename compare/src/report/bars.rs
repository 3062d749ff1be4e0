//! A bar chart: the composition of each variant's cost.

use super::figure::Figure;
use super::scale::{Scale, show};
use super::svg::{Anchor, Svg};

const WIDTH: f64 = 470.0;
const NAMES: f64 = 84.0;
const RIGHT: f64 = 14.0;
const GAP: f64 = 26.0;
const BAR: f64 = 13.0;
const ROW: f64 = 19.0;
const TITLE: f64 = 18.0;
const BOTTOM: f64 = 38.0;
/// The width for a value behind its bar, in pixels.
const VALUE: f64 = 34.0;

/// Stacked bars over one axis, one bar for each variant.
pub(crate) struct Panel {
    /// The label of the axis.
    pub(crate) label: String,
    /// For each variant the lengths of its parts, or `None` if they are unknown.
    pub(crate) bars: Vec<Option<Vec<f64>>>,
}

/// A figure: panels side by side.
pub(crate) struct BarChart<'a> {
    pub(crate) title: &'a str,
    /// The names of the bars.
    pub(crate) names: Vec<String>,
    /// The names of the parts, and the numbers of their colours.
    pub(crate) parts: &'a [(&'a str, usize)],
    pub(crate) panels: Vec<Panel>,
}

impl BarChart<'_> {
    /// Returns the figure, whose data has a line for each part of each bar.
    pub(crate) fn figure(&self) -> Figure {
        let mut lines = Vec::new();
        for panel in &self.panels {
            for (name, parts) in self.names.iter().zip(&panel.bars) {
                for (part, value) in parts.iter().flatten().enumerate() {
                    let what = self.parts.get(part).map_or(&*panel.label, |(part, _)| part);
                    lines.push(vec![name.clone(), what.to_owned(), value.to_string()]);
                }
            }
        }
        let headings = ["transfer_mode", "what", "value"];
        Figure::new(self.title, self.draw(), &headings, lines)
    }

    fn draw(&self) -> Svg {
        let top = TITLE + if self.parts.is_empty() { 12.0 } else { 30.0 };
        let bottom = top + ROW * self.names.len() as f64;
        let mut svg = Svg::new(WIDTH, bottom + BOTTOM, self.title);
        svg.text((NAMES, TITLE), Anchor::Start, "title", self.title);
        let mut x = NAMES;
        for (name, series) in self.parts {
            svg.bar((x, TITLE + 9.0), (11.0, 11.0), *series, name);
            svg.text((x + 15.0, TITLE + 18.0), Anchor::Start, "label", name);
            x += 26.0 + 6.1 * name.chars().count() as f64;
        }
        for (row, name) in self.names.iter().enumerate() {
            let middle = top + ROW * row as f64 + ROW / 2.0 + 4.0;
            svg.text((NAMES - 8.0, middle), Anchor::End, "label", name);
        }
        let count = self.panels.len().max(1) as f64;
        let wide = (WIDTH - NAMES - RIGHT - GAP * (count - 1.0)) / count;
        for (number, panel) in self.panels.iter().enumerate() {
            let left = NAMES + (wide + GAP) * number as f64;
            self.panel(&mut svg, panel, (left, left + wide), (top, bottom));
        }
        svg
    }

    fn panel(
        &self,
        svg: &mut Svg,
        panel: &Panel,
        (left, right): (f64, f64),
        (top, bottom): (f64, f64),
    ) {
        let sums = panel.bars.iter().flatten().map(|parts| parts.iter().sum());
        let scale = Scale::linear(sums, left, right - VALUE);
        let mut free = f64::NEG_INFINITY;
        for tick in scale.ticks() {
            let at = scale.at(tick);
            svg.rule((at, top), (at, bottom), "grid");
            let text = show(tick);
            let half = 3.2 * text.chars().count() as f64;
            if at - half > free {
                svg.text((at, bottom + 14.0), Anchor::Middle, "label", &text);
                free = at + half + 4.0;
            }
        }
        svg.rule((left, top), (left, bottom), "axis");
        for (row, parts) in panel.bars.iter().enumerate() {
            let y = top + ROW * row as f64 + (ROW - BAR) / 2.0;
            let Some(parts) = parts else {
                svg.text((left + 4.0, y + BAR - 3.0), Anchor::Start, "label", "none");
                continue;
            };
            let mut sum = 0.0;
            for (part, &value) in parts.iter().enumerate() {
                let (from, to) = (scale.at(sum), scale.at(sum + value));
                sum += value;
                let (name, series) = match self.parts.get(part) {
                    Some(&(name, series)) => (name, series),
                    None => (panel.label.as_str(), 1),
                };
                let says = format!("{}: {name} {}", self.names[row], show(value));
                svg.bar((from, y), (to - from, BAR), series, &says);
            }
            let end = (scale.at(sum) + 4.0, y + BAR - 2.5);
            svg.text(end, Anchor::Start, "value", &show(sum));
        }
        let middle = (left + right) / 2.0;
        svg.text(
            (middle, bottom + 30.0),
            Anchor::Middle,
            "label",
            &panel.label,
        );
    }
}
