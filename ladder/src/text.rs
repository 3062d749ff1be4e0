//! Pictures as text.

mod panel;

use std::time::Duration;

use crate::bounded::bounded;
use crate::model::{Ladder, Picture};
use crate::scale::{Scale, nanos, round_up};
use crate::words;
use panel::{Glyphs, Panel};

/// Columns for the times.
const GUTTER: usize = 6;
/// The least and the greatest columns of a ladder.
const LEAST: usize = 31;
const MOST: usize = 58;
/// The rows that the longest ladder has at most on a linear scale.
const ROWS: u64 = 36;
/// On a scale that is not linear: rows of all of the time, and between two events.
const SQUEEZED: (f64, (f64, f64)) = (30.0, (2.0, 8.0));
/// Rows from one time of the axis to the next.
const TICKS: f64 = 4.5;

/// Options for drawing a picture as text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TextOptions {
    /// The width in columns.
    pub width: usize,
    /// Whether only characters of ASCII are used.
    pub ascii: bool,
}

impl Default for TextOptions {
    fn default() -> Self {
        Self {
            width: 100,
            ascii: false,
        }
    }
}

/// Draws a picture as text, with a line feed at the end of each line.
#[must_use]
pub fn text(picture: &Picture, options: &TextOptions) -> String {
    let picture = &*bounded(picture);
    let room = options.width.saturating_sub(GUTTER);
    let count = (room / LEAST).clamp(1, picture.ladders.len().max(1));
    let width = (room / count).min(MOST);
    let longest = picture.ladders.iter().map(Ladder::end).max();
    let longest = longest.unwrap_or_default();
    let step = round_up(nanos(longest) as f64 / ROWS as f64);
    let linear = Scale::linear(Duration::from_nanos(step), 1.0);
    let glyphs = Glyphs::new(options.ascii);
    let draw = |scale: Scale, ladders: &[Ladder]| {
        let draw = |ladder| Panel::new(ladder, &scale, width, &glyphs);
        let panels: Vec<Panel> = ladders.iter().map(draw).collect();
        (scale, panels)
    };
    let left_out = |rows: &[Row]| {
        rows.iter()
            .map(|(_, it)| left_out_of(it).count())
            .sum::<usize>()
    };
    let ladders = || picture.ladders.chunks(count);
    let mut rows: Vec<Row> = ladders().map(|it| draw(linear.clone(), it)).collect();
    if left_out(&rows) > 0 {
        let (length, limits) = SQUEEZED;
        // Each row has its own scale, so that none is longer than its events are.
        let squeezed = |ladders: &[Ladder]| {
            let times = ladders.iter().flat_map(Ladder::times);
            draw(Scale::squeezed(times, length, limits), ladders)
        };
        let squeezed: Vec<Row> = ladders().map(squeezed).collect();
        if left_out(&squeezed) < left_out(&rows) {
            rows = squeezed;
        }
    }

    let mut lines = vec![picture.title.clone()];
    for (scale, panels) in &rows {
        lines.push(String::new());
        lines.extend(side_by_side(panels, scale, longest, width));
    }
    let mut notes = picture.notes.clone();
    if rows.iter().any(|(scale, _)| !scale.is_linear) {
        notes.insert(
            0,
            "Time is not to scale: long pauses are cut short.".to_owned(),
        );
    }
    notes.extend(rows.iter().flat_map(|(_, it)| left_out_of(it).cloned()));
    for note in notes {
        lines.push(String::new());
        lines.extend(words::wrap(&note, options.width));
    }
    let mut out = String::new();
    for line in lines {
        let line = match options.ascii {
            true => words::ascii(&line),
            false => line,
        };
        out.push_str(line.trim_end());
        out.push('\n');
    }
    out
}

/// Panels side by side, with their scale.
type Row = (Scale, Vec<Panel>);

/// Returns the labels of some panels that have no room.
fn left_out_of(panels: &[Panel]) -> impl Iterator<Item = &String> {
    panels.iter().flat_map(|panel| &panel.left_out)
}

/// Joins the lines of some panels, with the times before them.
fn side_by_side(panels: &[Panel], scale: &Scale, longest: Duration, width: usize) -> Vec<String> {
    let heads = panels
        .iter()
        .map(|panel| panel.head.len())
        .max()
        .unwrap_or(0);
    let rows = panels
        .iter()
        .map(|panel| panel.rows.len())
        .max()
        .unwrap_or(0);
    let own = panels
        .iter()
        .map(|panel| panel.end)
        .max()
        .unwrap_or_default();
    let mut gutter = vec![String::new(); heads + rows];
    if let Some(last) = heads.checked_sub(1) {
        gutter[last] = words::tick_unit(longest).to_owned();
    }
    let mut before = String::new();
    for tick in scale.ticks(own, TICKS) {
        let row = heads + scale.at(tick).round() as usize;
        let text = words::tick(tick, longest);
        if let Some(cell) = gutter.get_mut(row)
            && text != before
        {
            cell.clone_from(&text);
            before = text;
        }
    }
    let mut lines = Vec::new();
    for (number, time) in gutter.iter().enumerate() {
        let mut line = format!("{time:>4}  ");
        for panel in panels {
            let text: String = match number.checked_sub(heads) {
                // Heads stand at the bottom of their room.
                None => (number + panel.head.len())
                    .checked_sub(heads)
                    .map_or_else(String::new, |at| panel.head[at].clone()),
                Some(row) => panel
                    .rows
                    .get(row)
                    .map_or_else(String::new, |row| row.iter().collect()),
            };
            line.push_str(&format!("{text:<width$}"));
        }
        lines.push(line);
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::tests::{long, random, sample};

    #[test]
    fn three_ladders_fit_a_terminal() {
        let drawn = text(&sample(), &TextOptions::default());
        assert!(
            drawn.lines().all(|line| line.chars().count() <= 100),
            "{drawn}"
        );
        for words in [
            "v1-inv",
            "v2-cont",
            "v2-ddp",
            "RDMA Read",
            "of 8 KiB",
            "29.1 µs",
            "3 Sends",
            "interrupt",
        ] {
            assert!(drawn.contains(words), "{words}: {drawn}");
        }
        assert!(!drawn.contains("not to scale"), "{drawn}");
    }

    /// Calls can have thousands of RDMA operations, of which each takes some rows.
    #[test]
    fn drawings_of_long_calls_are_bounded() {
        let drawn = text(&long(12, 3_000), &TextOptions::default());
        let (rows, each) = (12 / 3, 200 * 2 * 8);
        let lines = drawn.lines().count();
        assert!(lines < rows * each, "{lines}");
        assert_eq!(
            drawn
                .matches("2800 of its 3000 arrows are left out")
                .count(),
            12
        );
    }

    #[test]
    fn what_has_no_room_is_listed() {
        let mut random_numbers = fastrand::Rng::with_seed(1);
        for _ in 0..200 {
            let picture = random(&mut random_numbers);
            for (width, ascii) in [(100, false), (69, true)] {
                let drawn = text(&picture, &TextOptions { width, ascii });
                assert!(
                    drawn.lines().all(|line| line.chars().count() <= width),
                    "{drawn}"
                );
                assert!(!ascii || drawn.is_ascii(), "{drawn}");
                // Every label is there, whole.
                for arrow in picture.ladders.iter().flat_map(|ladder| &ladder.arrows) {
                    assert!(drawn.contains(&arrow.name), "{}: {drawn}", arrow.name);
                }
            }
        }
    }
}
