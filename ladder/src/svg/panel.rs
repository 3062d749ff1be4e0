//! One ladder.

use crate::group::{Group, groups};
use crate::model::{Arrow, ArrowKind, Ladder, Mark, MarkKind, Side};
use crate::scale::Scale;
use crate::words;

use super::canvas::{Anchor, Canvas, Font, Ink};
use super::place::{Drawn, Point, Rect, width, wrap};

/// Room beside the life lines: on the right for brackets and their labels.
const LEFT: f64 = 26.0;
const RIGHT: f64 = 50.0;
/// The thickness of lines that the results wait for, of others, and of such parts of life lines.
pub(super) const THICK: f64 = 2.4;
const THIN: f64 = 1.2;
pub(super) const LIFE: f64 = 3.4;
/// Half the width of a bar.
const BAR: f64 = 5.5;
const NAME: Font = Font(19.0, true);
const ABOUT: Font = Font(14.0, false);
const LABEL: Font = Font(15.0, true);
const DETAIL: Font = Font(14.0, false);
const TOOK: Font = Font(22.0, true);
/// The heights of lines of these.
const ABOUT_LINE: f64 = 18.0;
const LABEL_LINE: f64 = 18.0;
const TOTAL_LINE: f64 = 20.0;

/// A ladder at its place.
pub(super) struct Panel<'a> {
    ladder: &'a Ladder,
    scale: &'a Scale,
    /// The left edge, and the width.
    x: f64,
    wide: f64,
    about: Vec<String>,
}

/// Returns how arrows of a kind are drawn: the ink, and the dashes.
pub(super) fn line_of(kind: ArrowKind) -> (Ink, &'static str) {
    match kind {
        ArrowKind::Send | ArrowKind::SendWithInvalidate => (Ink::Send, ""),
        ArrowKind::ReadRequest | ArrowKind::ReadResponse => (Ink::Read, "7 4"),
        ArrowKind::Write => (Ink::Write, "10 3 2 3"),
    }
}

impl<'a> Panel<'a> {
    pub(super) fn new(ladder: &'a Ladder, scale: &'a Scale, x: f64, wide: f64) -> Self {
        let about = ladder
            .about
            .split("; ")
            .flat_map(|part| wrap(part, ABOUT.0, wide - 16.0))
            .collect();
        Self {
            ladder,
            scale,
            x,
            wide,
            about,
        }
    }

    /// Returns the height of what is above the life lines.
    pub(super) fn head_height(&self) -> f64 {
        26.0 + ABOUT_LINE * self.about.len() as f64 + 34.0
    }

    fn line(&self, side: Side) -> f64 {
        match side {
            Side::Left => self.x + LEFT,
            Side::Right => self.x + self.wide - RIGHT,
        }
    }

    /// Draws the ladder. Returns its lower edge, and the labels that have no room.
    pub(super) fn draw(&self, canvas: &mut Canvas, top: f64, begin: f64) -> (f64, Vec<String>) {
        let y = |time| begin + self.scale.at(time);
        self.head(canvas, top, begin);
        let end = y(self.ladder.end());
        for side in [Side::Left, Side::Right] {
            let x = self.line(side);
            canvas.line(&[(x, begin), (x, end)], Ink::LifeLine, 1.5, "");
        }
        for (side, start, end) in self.ladder.critical_parts() {
            let x = self.line(side);
            canvas.line(&[(x, y(start)), (x, y(end))], Ink::Strong, LIFE, "");
        }
        let mut drawn = Drawn::default();
        for arrow in &self.ladder.arrows {
            drawn.lines.push(self.ends(arrow, begin));
            self.arrow(canvas, arrow, begin);
        }
        let mut left_out = Vec::new();
        let mut leave_out = |time, text: &str| {
            left_out.push(format!(
                "{}, {}: {text}",
                self.ladder.name,
                words::time(time)
            ));
        };
        for mark in &self.ladder.marks {
            let (start, end) = (y(mark.start), y(mark.end));
            if mark.kind == MarkKind::RoundTrip {
                self.bracket(canvas, mark, (start, end), &mut drawn);
                continue;
            }
            self.bar(canvas, mark, (start, end));
            if !mark.name.is_empty() && !self.label_mark(canvas, mark, begin, &mut drawn) {
                leave_out(mark.start, &mark.name);
            }
        }
        for group in groups(&self.ladder.arrows) {
            if !self.label_arrows(canvas, &group, begin, &mut drawn)
                && let Some(arrow) = group.arrows.first()
            {
                leave_out(arrow.start, &group.label().join(", "));
            }
        }
        (self.foot(canvas, end), left_out)
    }

    fn head(&self, canvas: &mut Canvas, top: f64, begin: f64) {
        // Texts stand on the life lines, however long the other ladders' are.
        let lines = self.about.len() as f64;
        let mut at = (begin - 34.0 - ABOUT_LINE * lines - 13.0).max(top);
        let x = self.line(Side::Left) - 8.0;
        canvas.text((x, at), Anchor::Start, Ink::Strong, NAME, &self.ladder.name);
        at += 21.0;
        for line in &self.about {
            canvas.text((x, at), Anchor::Start, Ink::Soft, ABOUT, line);
            at += ABOUT_LINE;
        }
        let [left, right] = &self.ladder.ends;
        let own = |text: &str| width(text, DETAIL.0, true) / 2.0;
        let font = Font(DETAIL.0, true);
        let left_x = self.line(Side::Left).max(self.x + own(left));
        canvas.text(
            (left_x, begin - 15.0),
            Anchor::Middle,
            Ink::Strong,
            font,
            left,
        );
        let right_x = self.line(Side::Right).min(self.x + self.wide - own(right));
        canvas.text(
            (right_x, begin - 15.0),
            Anchor::Middle,
            Ink::Strong,
            font,
            right,
        );
    }

    fn foot(&self, canvas: &mut Canvas, end: f64) -> f64 {
        let x = self.line(Side::Left) - 8.0;
        let took = words::time(self.ladder.took);
        let totals: Vec<String> = self
            .ladder
            .totals
            .iter()
            .flat_map(|total| wrap(total, LABEL.0, self.wide - LEFT))
            .collect();
        // Lines of the axis end before it.
        let ground = Rect {
            left: x - 4.0,
            top: end + 13.0,
            right: self.x + self.wide - LEFT,
            bottom: end + 40.0 + TOTAL_LINE * totals.len() as f64,
        };
        canvas.rect(ground, Ink::Ground, 0.0);
        canvas.text((x, end + 26.0), Anchor::Start, Ink::Strong, TOOK, &took);
        let mut at = end + 50.0;
        for (number, total) in totals.iter().enumerate() {
            let font = Font(LABEL.0, number == 0);
            canvas.text((x, at), Anchor::Start, Ink::Strong, font, total);
            at += TOTAL_LINE;
        }
        at
    }

    /// Returns whether a box is between the life lines, and neither above nor below them.
    fn is_inside(&self, it: &Rect, begin: f64) -> bool {
        let end = begin + self.scale.at(self.ladder.end());
        it.left > self.line(Side::Left)
            && it.right < self.line(Side::Right)
            && it.top > begin - 7.0
            && it.bottom < end + 12.0
    }

    fn ends(&self, arrow: &Arrow, begin: f64) -> (Point, Point) {
        let y = |time| begin + self.scale.at(time);
        let (from, to) = (self.line(arrow.from), self.line(arrow.from.other()));
        ((from, y(arrow.start)), (to, y(arrow.end)))
    }

    fn arrow(&self, canvas: &mut Canvas, arrow: &Arrow, begin: f64) {
        let ((x1, y1), (x2, y2)) = self.ends(arrow, begin);
        let long = (x2 - x1).hypot(y2 - y1).max(1.0);
        let (along_x, along_y) = ((x2 - x1) / long, (y2 - y1) / long);
        // The tip touches the life line's edge, and the line ends within the head.
        let back = |by: f64, aside: f64| {
            (
                x2 - along_x * by - along_y * aside,
                y2 - along_y * by + along_x * aside,
            )
        };
        let thick = if arrow.critical { THICK } else { THIN };
        let (ink, dash) = line_of(arrow.kind);
        canvas.line(&[(x1, y1), back(8.0, 0.0)], ink, thick, dash);
        let half = if arrow.critical { 4.8 } else { 3.6 };
        canvas.area(&[back(1.5, 0.0), back(13.0, half), back(13.0, -half)], ink);
    }

    fn bar(&self, canvas: &mut Canvas, mark: &Mark, (start, end): (f64, f64)) {
        if mark.name.is_empty() && end - start < 2.0 {
            return;
        }
        let x = self.line(mark.at);
        let it = Rect {
            left: x - BAR,
            top: start,
            right: x + BAR,
            bottom: end.max(start + 2.0),
        };
        let edge = [
            (it.left, it.top),
            (it.right, it.top),
            (it.right, it.bottom),
            (it.left, it.bottom),
            (it.left, it.top),
        ];
        match mark.kind {
            MarkKind::Interrupt => canvas.rect(it, Ink::Strong, 1.0),
            MarkKind::Work => {
                canvas.rect(it, Ink::Soft, 1.0);
                canvas.line(&edge, Ink::Bar, 1.2, "");
            }
            // Stripes, and of waits dots.
            kind => {
                canvas.rect(it, Ink::Bar, 0.0);
                let step = match kind {
                    MarkKind::CreditWait | MarkKind::MemoryWait => 8.0,
                    _ => 4.5,
                };
                let mut at = it.top + step;
                while at < it.bottom {
                    canvas.line(
                        &[(it.left, at), (it.right, (at - 3.5).max(it.top))],
                        Ink::Bar,
                        1.2,
                        "",
                    );
                    at += step;
                }
                canvas.line(&edge, Ink::Bar, 1.2, "");
            }
        }
    }

    /// Draws a bracket beside the right life line, with its label running upwards if that has room.
    fn bracket(
        &self,
        canvas: &mut Canvas,
        mark: &Mark,
        (start, end): (f64, f64),
        drawn: &mut Drawn,
    ) {
        if mark.at == Side::Left {
            return;
        }
        let x = self.line(Side::Right) + 11.0;
        canvas.line(
            &[(x, start), (x + 7.0, start), (x + 7.0, end), (x, end)],
            Ink::Read,
            1.6,
            "",
        );
        let long = width(&mark.name, LABEL.0, true);
        let own = Rect::around((x + 20.0, (start + end) / 2.0), LABEL.0, long);
        if long <= end - start && drawn.place([own].into_iter()).is_some() {
            canvas.text_up(
                (x + 20.0, (start + end) / 2.0),
                Ink::Read,
                LABEL,
                &mark.name,
            );
        }
    }

    fn label_mark(&self, canvas: &mut Canvas, mark: &Mark, begin: f64, drawn: &mut Drawn) -> bool {
        let long = width(&mark.name, DETAIL.0, false);
        let x = match mark.at {
            Side::Left => self.line(Side::Left) + BAR + 5.0,
            Side::Right => self.line(Side::Right) - BAR - 5.0 - long,
        };
        let y = |time| begin + self.scale.at(time);
        let middle = (y(mark.start) + y(mark.end)) / 2.0;
        let offsets = (0..8).flat_map(|step| [f64::from(step) * 3.0, f64::from(step) * -3.0]);
        let boxes =
            offsets.map(|by| Rect::around((x + long / 2.0, middle + by), long, DETAIL.0 + 1.0));
        let Some(it) = drawn.place(boxes.filter(|it| self.is_inside(it, begin))) else {
            return false;
        };
        let at = (x, (it.top + it.bottom) / 2.0);
        canvas.text(at, Anchor::Start, Ink::Strong, DETAIL, &mark.name);
        true
    }

    /// Writes the label of some arrows on the middle between them, or beside them.
    fn label_arrows(
        &self,
        canvas: &mut Canvas,
        group: &Group<'_>,
        begin: f64,
        drawn: &mut Drawn,
    ) -> bool {
        let [name, details] = group.label();
        let own: Vec<(Point, Point)> = group.arrows.iter().map(|it| self.ends(it, begin)).collect();
        let count = own.len().max(1) as f64;
        let mean = |of: fn(&(Point, Point)) -> f64| own.iter().map(of).sum::<f64>() / count;
        let (x1, y1, x2, y2) = (
            mean(|it| it.0.0),
            mean(|it| it.0.1),
            mean(|it| it.1.0),
            mean(|it| it.1.1),
        );
        let wide = width(&name, LABEL.0, LABEL.1).max(width(&details, DETAIL.0, DETAIL.1)) + 9.0;
        let high = 2.0 * LABEL_LINE;
        let (left, right) = (self.line(Side::Left) + 4.0, self.line(Side::Right) - 4.0);
        let parts = [
            0.5, 0.44, 0.56, 0.38, 0.62, 0.3, 0.7, 0.22, 0.78, 0.14, 0.86,
        ];
        let steep = (y2 - y1).abs() >= 0.25 * (x2 - x1).abs();
        let on = parts.map(|part| (part, 0.0));
        // Beside a line that is nearly level, and would be hidden.
        let beside = [-1.0, 1.0].map(|by| by * (high / 2.0 + 5.0 + (y2 - y1).abs() / 2.0));
        let beside = beside
            .into_iter()
            .flat_map(|by| parts.map(|part| (part, by)));
        let places: Vec<(f64, f64)> = match steep {
            true => on.into_iter().chain(beside).collect(),
            false => beside.chain(on).collect(),
        };
        for (part, by) in places {
            let x = (x1 + (x2 - x1) * part).clamp(
                left + wide / 2.0,
                (right - wide / 2.0).max(left + wide / 2.0),
            );
            let at = (x, y1 + (y2 - y1) * part + by);
            let it = Rect::around(at, wide, high);
            let is_own = |line: &(Point, Point)| by == 0.0 && own.contains(line);
            if !self.is_inside(&it, begin) || !drawn.is_free(&it, is_own) {
                continue;
            }
            drawn.boxes.push(it);
            let (above, below) = (at.1 - LABEL_LINE / 2.0, at.1 + LABEL_LINE / 2.0);
            for (text, y, Font(size, bold)) in [(&name, above, LABEL), (&details, below, DETAIL)] {
                // Widths are estimated generously, so that less of the line is hidden.
                let long = 0.93 * width(text, size, bold) + 9.0;
                canvas.rect(
                    Rect::around((at.0, y), long, LABEL_LINE + 0.5),
                    Ink::Ground,
                    3.0,
                );
            }
            canvas.text((at.0, above), Anchor::Middle, Ink::Strong, LABEL, &name);
            canvas.text((at.0, below), Anchor::Middle, Ink::Soft, DETAIL, &details);
            return true;
        }
        false
    }
}
