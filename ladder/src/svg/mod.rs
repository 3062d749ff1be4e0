//! Pictures as SVG.

mod canvas;
mod panel;
mod place;

use std::time::Duration;

use crate::bounded::bounded;
use crate::model::{ArrowKind, Ladder, Picture, Side};
use crate::scale::Scale;
use crate::words;
pub use canvas::Style;
use canvas::{Anchor, Canvas, Font, Ink};
use panel::Panel;
use place::{Rect, width, wrap};

/// Room for the times of the axis, and at the edges.
const GUTTER: f64 = 50.0;
const EDGE: f64 = 14.0;
/// The width of a ladder, by how many there are in a row.
const PANELS: [f64; 3] = [440.0, 350.0, 284.0];
/// The length of the longest ladder: on a linear scale, and if that does not suffice.
const LENGTHS: [f64; 3] = [470.0, 700.0, 1000.0];
/// On a scale that is not linear: pixels between two events.
const SQUEEZED: [(f64, f64); 3] = [(22.0, 110.0), (30.0, 110.0), (44.0, 120.0)];
/// Pixels from one time of the axis to the next.
const TICKS: f64 = 40.0;
const TITLE: Font = Font(20.0, true);
const SMALL: Font = Font(14.0, false);
/// The height of a line of small text.
const LINE: f64 = 19.0;

/// Draws a picture as SVG.
#[must_use]
pub fn svg(picture: &Picture, style: Style) -> String {
    let picture = &*bounded(picture);
    let (canvas, size) = draw(picture, style);
    canvas.finish(size, &picture.title, &description(picture))
}

/// The scale of a picture.
#[derive(Clone, Copy, Debug)]
enum Choice {
    /// Linear, with this length of the longest ladder.
    Linear(f64),
    /// Squeezed for each row of ladders, with these distances between two events.
    Squeezed((f64, f64)),
}

/// Returns the drawing and its size.
fn draw(picture: &Picture, style: Style) -> (Canvas, (f64, f64)) {
    let choices = LENGTHS.map(Choice::Linear).into_iter();
    let choices = choices.chain(SQUEEZED.map(Choice::Squeezed));
    let mut best: Option<Drawing<'_>> = None;
    for choice in choices {
        let mut drawing = Drawing::new(picture, style, choice);
        drawing.draw();
        let left_out = drawing.left_out.len();
        if best.as_ref().is_none_or(|it| left_out < it.left_out.len()) {
            best = Some(drawing);
        }
        if left_out == 0 {
            break;
        }
    }
    best.map_or_else(|| (Canvas::new(style), (0.0, 0.0)), Drawing::finish)
}

/// A picture that is being drawn on one scale.
struct Drawing<'a> {
    picture: &'a Picture,
    choice: Choice,
    longest: Duration,
    canvas: Canvas,
    wide: f64,
    /// The upper edge of what comes next.
    top: f64,
    /// The labels that have no room.
    left_out: Vec<String>,
}

impl<'a> Drawing<'a> {
    fn new(picture: &'a Picture, style: Style, choice: Choice) -> Self {
        let longest = picture.ladders.iter().map(Ladder::end).max();
        let count = picture.ladders.len().clamp(1, PANELS.len());
        Self {
            picture,
            choice,
            longest: longest.unwrap_or_default(),
            canvas: Canvas::new(style),
            wide: GUTTER + count as f64 * PANELS[count - 1] + EDGE,
            top: EDGE,
            left_out: Vec::new(),
        }
    }

    fn draw(&mut self) {
        if !self.picture.title.is_empty() {
            for line in wrap(&self.picture.title, TITLE.0 * 1.1, self.wide - 2.0 * EDGE) {
                let at = (EDGE + 4.0, self.top + 14.0);
                self.canvas
                    .text(at, Anchor::Start, Ink::Strong, TITLE, &line);
                self.top += 28.0;
            }
            self.top += 8.0;
        }
        let count = self.picture.ladders.len().clamp(1, PANELS.len());
        for ladders in self.picture.ladders.chunks(count) {
            self.row(ladders, PANELS[count - 1]);
        }
        self.legend();
        let mut notes = self.picture.notes.clone();
        if matches!(self.choice, Choice::Squeezed(_)) {
            notes.insert(
                0,
                "Time is not to scale: long pauses are cut short.".to_owned(),
            );
        }
        notes.extend(self.left_out.iter().cloned());
        for note in notes {
            for line in wrap(&note, SMALL.0, self.wide - 2.0 * EDGE - 4.0) {
                let at = (EDGE + 4.0, self.top + LINE / 2.0);
                self.canvas.text(at, Anchor::Start, Ink::Soft, SMALL, &line);
                self.top += LINE;
            }
        }
        self.top += EDGE;
    }

    /// Draws some ladders side by side.
    fn row(&mut self, ladders: &[Ladder], wide: f64) {
        let scale = match self.choice {
            Choice::Linear(length) => Scale::linear(self.longest, length),
            Choice::Squeezed(limits) => {
                let times = ladders.iter().flat_map(Ladder::times);
                Scale::squeezed(times, LENGTHS[0], limits)
            }
        };
        let panels: Vec<Panel<'_>> = ladders
            .iter()
            .enumerate()
            .map(|(at, ladder)| Panel::new(ladder, &scale, GUTTER + at as f64 * wide, wide))
            .collect();
        let head = panels.iter().map(Panel::head_height).fold(0.0, f64::max);
        let begin = self.top + head;
        let own = ladders.iter().map(Ladder::end).max().unwrap_or_default();
        let right = GUTTER + panels.len() as f64 * wide;
        let mut before = String::new();
        for tick in scale.ticks(own, TICKS) {
            let y = begin + scale.at(tick);
            self.canvas
                .line(&[(GUTTER - 4.0, y), (right - EDGE, y)], Ink::Grid, 1.0, "");
            let mut label = words::tick(tick, self.longest);
            if label == before {
                continue;
            }
            before.clone_from(&label);
            if tick.is_zero() {
                label = format!("{label} {}", words::tick_unit(self.longest));
            }
            let at = (GUTTER - 8.0, y);
            self.canvas.text(at, Anchor::End, Ink::Soft, SMALL, &label);
        }
        let mut bottom = begin;
        for panel in &panels {
            let (end, left_out) = panel.draw(&mut self.canvas, self.top, begin);
            bottom = bottom.max(end);
            self.left_out.extend(left_out);
        }
        self.top = bottom + 16.0;
    }

    /// Explains the kinds of lines that there are.
    fn legend(&mut self) {
        let arrows = || {
            self.picture
                .ladders
                .iter()
                .flat_map(|ladder| &ladder.arrows)
        };
        let has = |wanted: &[ArrowKind]| arrows().any(|it| wanted.contains(&it.kind));
        let mut entries = Vec::new();
        use ArrowKind::{ReadRequest, ReadResponse, Send, SendWithInvalidate, Write};
        for (kinds, name) in [
            (&[Send, SendWithInvalidate][..], "Send"),
            (&[ReadRequest, ReadResponse], "RDMA Read"),
            (&[Write], "RDMA Write"),
        ] {
            if has(kinds) {
                let (ink, dash) = panel::line_of(kinds[0]);
                entries.push((name, ink, dash, panel::THICK));
            }
        }
        if arrows().any(|it| it.critical) {
            entries.push((
                "thick: the results wait for it",
                Ink::Strong,
                "",
                panel::LIFE,
            ));
        }
        let mut x = EDGE + 4.0;
        for (name, ink, dash, thick) in entries {
            let wide = 44.0 + width(name, SMALL.0, false) + 22.0;
            if x + wide > self.wide && x > 2.0 * EDGE {
                (x, self.top) = (EDGE + 4.0, self.top + LINE);
            }
            let y = self.top + LINE / 2.0;
            self.canvas.line(&[(x, y), (x + 36.0, y)], ink, thick, dash);
            self.canvas
                .text((x + 44.0, y), Anchor::Start, Ink::Soft, SMALL, name);
            x += wide;
        }
        self.top += LINE + 5.0;
    }

    fn finish(mut self) -> (Canvas, (f64, f64)) {
        let size = (self.wide, self.top);
        let all = Rect {
            left: 0.0,
            top: 0.0,
            right: size.0.ceil(),
            bottom: size.1.ceil(),
        };
        self.canvas.ground(all);
        (self.canvas, size)
    }
}

/// Describes a picture in words: what happens in each ladder, in the order of time.
fn description(picture: &Picture) -> String {
    let mut sentences = Vec::new();
    for ladder in &picture.ladders {
        let end = |side: Side| &ladder.ends[usize::from(side == Side::Right)];
        let mut events: Vec<(Duration, String)> = Vec::new();
        for arrow in &ladder.arrows {
            let what = format!(
                "{}, {}, from the {} to the {}, there after {}",
                arrow.name,
                words::octets(arrow.octets),
                end(arrow.from),
                end(arrow.from.other()),
                words::time(arrow.end)
            );
            events.push((arrow.start, what));
        }
        for mark in ladder.marks.iter().filter(|mark| !mark.name.is_empty()) {
            let what = format!(
                "{}, at the {}, until {}",
                mark.name,
                end(mark.at),
                words::time(mark.end)
            );
            events.push((mark.start, what));
        }
        events.sort_by_key(|(time, _)| *time);
        let events: Vec<String> = events
            .into_iter()
            .map(|(time, what)| format!("{}: {what}", words::time(time)))
            .collect();
        sentences.push(format!(
            "{} ({}) takes {}: {}. {}.",
            ladder.name,
            ladder.about,
            words::time(ladder.took),
            ladder.totals.join(", "),
            events.join("; ")
        ));
    }
    sentences.join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::tests::{long, random, sample};

    fn check(picture: &Picture) {
        for style in [Style::Screen, Style::Plain] {
            let (canvas, (wide, high)) = draw(picture, style);
            for (number, (one, text)) in canvas.texts.iter().enumerate() {
                let inside =
                    one.left >= 0.0 && one.top >= 0.0 && one.right <= wide && one.bottom <= high;
                assert!(inside, "{text} at {one:?} is outside of {wide} x {high}");
                for (other, beside) in &canvas.texts[number + 1..] {
                    assert!(
                        !one.overlaps(other),
                        "{text} at {one:?} and {beside} at {other:?}"
                    );
                }
            }
        }
    }

    #[test]
    fn no_text_overlaps_another() {
        check(&sample());
        let mut numbers = fastrand::Rng::with_seed(2);
        for _ in 0..100 {
            check(&random(&mut numbers));
        }
    }

    #[test]
    fn drawings_of_long_calls_are_bounded() {
        let picture = long(6, 1_000);
        let drawn = svg(&picture, Style::Screen);
        assert!(drawn.contains("write-99,") && drawn.contains("write-999,"));
        assert!(!drawn.contains("write-500"));
        assert_eq!(drawn.matches("800 of its 1000 arrows").count(), 6);
        let (_, (_, high)) = draw(&bounded(&picture), Style::Screen);
        assert!(high <= 2.0 * (400.0 * 120.0 + 500.0), "{high}");
    }

    #[test]
    fn every_label_has_room_and_time_is_to_scale() {
        let drawn = svg(&sample(), Style::Screen);
        assert!(!drawn.contains("not to scale"));
        for words in [
            ">call, read chunk<",
            ">of 8 KiB<",
            ">29.1 µs<",
            ">one more round trip<",
            ">3 Sends, 8432 B<",
        ] {
            assert!(drawn.contains(words), "{words}: {drawn}");
        }
    }

    #[test]
    fn screens_have_two_schemes_and_plain_files_have_none() {
        let (screen, plain) = (svg(&sample(), Style::Screen), svg(&sample(), Style::Plain));
        assert!(screen.contains("prefers-color-scheme: dark") && screen.contains("role=\"img\""));
        assert!(screen.contains("<title>One WRITE of 8 KiB</title>"));
        for words in ["<style", "class=", "#"] {
            assert!(!plain.contains(words), "{words}");
        }
    }
}
