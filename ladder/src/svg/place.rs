//! Room for labels: boxes that overlap nothing.

/// A point in pixels.
pub(super) type Point = (f64, f64);

/// A box in pixels.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Rect {
    pub(super) left: f64,
    pub(super) top: f64,
    pub(super) right: f64,
    pub(super) bottom: f64,
}

impl Rect {
    /// Returns the box of this size around a point.
    pub(super) fn around((x, y): Point, width: f64, height: f64) -> Self {
        Self {
            left: x - width / 2.0,
            top: y - height / 2.0,
            right: x + width / 2.0,
            bottom: y + height / 2.0,
        }
    }

    pub(super) fn overlaps(&self, other: &Self) -> bool {
        self.left < other.right
            && other.left < self.right
            && self.top < other.bottom
            && other.top < self.bottom
    }

    /// Returns whether a part of a straight line is inside.
    pub(super) fn is_crossed(&self, ((x1, y1), (x2, y2)): (Point, Point)) -> bool {
        // The part of the line, from 0 to 1, that each pair of edges leaves (Liang and Barsky).
        let (mut first, mut last) = (0.0_f64, 1.0_f64);
        for (from, by, least, most) in [
            (x1, x2 - x1, self.left, self.right),
            (y1, y2 - y1, self.top, self.bottom),
        ] {
            if by.abs() < 1e-9 {
                if from < least || from > most {
                    return false;
                }
                continue;
            }
            let (one, other) = ((least - from) / by, (most - from) / by);
            first = first.max(one.min(other));
            last = last.min(one.max(other));
        }
        first < last
    }
}

/// Lines and labels drawn already, where further labels look for room.
#[derive(Debug, Default)]
pub(super) struct Drawn {
    pub(super) boxes: Vec<Rect>,
    pub(super) lines: Vec<(Point, Point)>,
}

impl Drawn {
    /// Returns the first box that overlaps no other box and that no line crosses, and keeps it.
    pub(super) fn place(&mut self, mut boxes: impl Iterator<Item = Rect>) -> Option<Rect> {
        let free = boxes.find(|it| self.is_free(it, |_| false))?;
        self.boxes.push(free);
        Some(free)
    }

    /// Returns whether a box has room. Lines for which `ignored` holds may cross it.
    pub(super) fn is_free(&self, it: &Rect, ignored: impl Fn(&(Point, Point)) -> bool) -> bool {
        let mut lines = self.lines.iter().filter(|line| !ignored(line));
        !self.boxes.iter().any(|other| it.overlaps(other))
            && !lines.any(|line| it.is_crossed(*line))
    }
}

/// Returns an estimate of the width of a text that is greater than that of common fonts.
pub(super) fn width(text: &str, size: f64, bold: bool) -> f64 {
    let letter = |letter: char| match letter {
        'i' | 'j' | 'l' | '.' | ',' | ':' | ';' | '\'' | '|' | '!' | ' ' => 0.35,
        'f' | 't' | 'r' | '(' | ')' | '-' | '/' => 0.43,
        'm' | 'w' | 'M' | 'W' | '%' | '@' => 1.0,
        letter if letter.is_ascii_uppercase() => 0.75,
        letter if letter.is_ascii() => 0.64,
        _ => 0.7,
    };
    let all: f64 = text.chars().map(letter).sum();
    all * size * if bold { 1.1 } else { 1.0 }
}

/// Returns a text in lines of at most `most` pixels, if its words are not longer.
pub(super) fn wrap(text: &str, size: f64, most: f64) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for word in text.split_whitespace() {
        match lines.last_mut() {
            Some(line) if width(&format!("{line} {word}"), size, false) <= most => {
                line.push(' ');
                line.push_str(word);
            }
            _ => lines.push(word.to_owned()),
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_cross_boxes() {
        let it = Rect::around((10.0, 10.0), 10.0, 4.0);
        for (line, crossed) in [
            (((0.0, 10.0), (20.0, 10.0)), true),
            (((0.0, 0.0), (20.0, 20.0)), true),
            (((9.0, 9.0), (11.0, 11.0)), true),
            (((0.0, 0.0), (4.0, 20.0)), false),
            (((0.0, 13.0), (20.0, 13.0)), false),
            (((0.0, 0.0), (4.0, 4.0)), false),
        ] {
            assert_eq!(it.is_crossed(line), crossed, "{line:?}");
        }
    }

    #[test]
    fn a_label_moves_out_of_the_way() {
        let mut drawn = Drawn {
            lines: vec![((0.0, 0.0), (100.0, 0.0))],
            ..Drawn::default()
        };
        let boxes = || {
            [0.0, 10.0, 20.0]
                .into_iter()
                .map(|y| Rect::around((50.0, y), 20.0, 8.0))
        };
        assert_eq!(drawn.place(boxes()).map(|it| it.top), Some(6.0));
        assert_eq!(drawn.place(boxes()).map(|it| it.top), Some(16.0));
        assert_eq!(drawn.place(boxes()), None);
    }
}
