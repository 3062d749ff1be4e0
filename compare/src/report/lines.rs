//! A line chart of latencies.

use super::figure::Figure;
use super::scale::{Scale, show};
use super::svg::{Anchor, Svg};

const WIDTH: f64 = 470.0;
const PLOT_HEIGHT: f64 = 230.0;
const LEFT: f64 = 56.0;
const RIGHT: f64 = 14.0;
const BOTTOM: f64 = 40.0;
const TITLE: f64 = 18.0;

/// One line of a line chart.
#[derive(Clone, Debug)]
pub(crate) struct Line {
    /// The name in the legend.
    pub(crate) name: String,
    /// The number of the line's colour and marker.
    pub(crate) series: usize,
    /// Whether the line is a reference, which is drawn dashed.
    pub(crate) dashed: bool,
    /// The points (x, y), ordered by x.
    pub(crate) points: Vec<(f64, f64)>,
}

/// A line chart with its axes.
pub(crate) struct LineChart<'a> {
    pub(crate) title: &'a str,
    pub(crate) x_label: &'a str,
    pub(crate) y_label: &'a str,
    /// Formats the labels of the horizontal axis; both axes are then logarithmic. `None`: both axes
    /// are linear.
    pub(crate) word: Option<fn(f64) -> String>,
    pub(crate) lines: Vec<Line>,
}

impl LineChart<'_> {
    /// Returns the figure. `columns` are the names of the two values of a point in its data.
    pub(crate) fn figure(&self, columns: [&'static str; 2]) -> Figure {
        let lines = self.lines.iter().flat_map(|line| {
            let point = |(x, y): &(f64, f64)| vec![line.name.clone(), x.to_string(), y.to_string()];
            line.points.iter().map(point).collect::<Vec<_>>()
        });
        let [x, y] = columns;
        let headings = ["transfer_mode", x, y];
        Figure::new(self.title, self.draw(), &headings, lines.collect())
    }

    fn draw(&self) -> Svg {
        let entries: Vec<_> = self
            .lines
            .iter()
            .map(|line| (line.name.clone(), line.series, line.dashed))
            .collect();
        let xs = || self.points().map(|(x, _)| x);
        let ys = || self.points().map(|(_, y)| y);
        // The legend is laid out twice: first to determine its height, then in its place.
        let room = WIDTH - LEFT - RIGHT;
        let legend = Svg::new(0.0, 0.0, "").legend((LEFT, 0.0), room, &entries);
        let top = TITLE + 12.0 + legend;
        let bottom = top + PLOT_HEIGHT;
        let mut svg = Svg::new(WIDTH, bottom + BOTTOM, self.title);
        svg.text((LEFT, TITLE), Anchor::Start, "title", self.title);
        svg.legend((LEFT, TITLE + 18.0), room, &entries);
        let (x, y) = match self.word {
            Some(_) => (
                Scale::logarithmic(xs(), LEFT, WIDTH - RIGHT),
                Scale::logarithmic(ys(), bottom, top),
            ),
            None => (
                Scale::linear(xs(), LEFT, WIDTH - RIGHT),
                Scale::linear(ys(), bottom, top),
            ),
        };
        for tick in y.ticks() {
            let at = y.at(tick);
            svg.rule((LEFT, at), (WIDTH - RIGHT, at), "grid");
            svg.text((LEFT - 6.0, at + 4.0), Anchor::End, "label", &show(tick));
        }
        let ticks: Vec<(f64, String)> = match self.word {
            Some(word) => {
                let mut values: Vec<f64> = xs().collect();
                values.sort_by(f64::total_cmp);
                values.dedup();
                values
                    .into_iter()
                    .map(|value| (value, word(value)))
                    .collect()
            }
            None => x
                .ticks()
                .into_iter()
                .map(|value| (value, show(value)))
                .collect(),
        };
        let mut free = f64::NEG_INFINITY;
        for (value, text) in ticks {
            let at = x.at(value);
            svg.rule((at, bottom), (at, bottom + 4.0), "axis");
            let half = 3.2 * text.chars().count() as f64;
            if at - half > free {
                svg.text((at, bottom + 16.0), Anchor::Middle, "label", &text);
                free = at + half + 4.0;
            }
        }
        svg.rule((LEFT, bottom), (WIDTH - RIGHT, bottom), "axis");
        let middle = (LEFT + WIDTH - RIGHT) / 2.0;
        svg.text(
            (middle, bottom + 33.0),
            Anchor::Middle,
            "label",
            self.x_label,
        );
        svg.text_up((13.0, (top + bottom) / 2.0), self.y_label);
        for line in &self.lines {
            let places: Vec<(f64, f64)> = line
                .points
                .iter()
                .map(|&(a, b)| (x.at(a), y.at(b)))
                .collect();
            svg.polyline(&places, line.series, line.dashed);
            if line.dashed {
                continue;
            }
            for (&place, &(a, b)) in places.iter().zip(&line.points) {
                let at = self.word.map_or_else(|| show(a), |word| word(a));
                let says = format!("{}, {} at {at}", line.name, show(b));
                svg.marker(place, line.series, &says);
            }
        }
        svg
    }

    fn points(&self) -> impl Iterator<Item = (f64, f64)> {
        self.lines
            .iter()
            .flat_map(|line| line.points.iter().copied())
    }
}
