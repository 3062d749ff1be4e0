//! Elements of SVG, in one of two styles.

use std::fmt::{Display, Write};

use super::place::{Point, Rect, width};

/// The looks of an SVG file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Style {
    /// Colours on a light or a dark ground, as the reader prefers, and dark on light in print.
    Screen,
    /// Black on white without a style sheet, from the elements that RFC 7996 allows.
    Plain,
}

/// The style sheet. No meaning is in a colour alone.
const SHEET: &str = include_str!("style.css");

/// Kinds of drawn things, on which colours depend.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ink {
    Ground,
    Grid,
    LifeLine,
    Strong,
    Soft,
    Send,
    Read,
    Write,
    /// A bar with an edge.
    Bar,
}

impl Ink {
    fn class(self) -> &'static str {
        match self {
            Self::Ground => "ld-ground",
            Self::Grid => "ld-grid",
            Self::LifeLine => "ld-life",
            Self::Strong => "ld-strong",
            Self::Soft => "ld-soft",
            Self::Send => "ld-send",
            Self::Read => "ld-read",
            Self::Write => "ld-write",
            Self::Bar => "ld-bar",
        }
    }
}

/// Where a text begins, relative to its position.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Anchor {
    Start,
    Middle,
    End,
}

/// A font: its size in pixels, and whether it is bold.
#[derive(Clone, Copy, Debug)]
pub(super) struct Font(pub(super) f64, pub(super) bool);

/// A drawing.
pub(super) struct Canvas {
    style: Style,
    out: String,
    /// The boxes of all texts.
    pub(super) texts: Vec<(Rect, String)>,
}

impl Canvas {
    pub(super) fn new(style: Style) -> Self {
        Self {
            style,
            out: String::new(),
            texts: Vec::new(),
        }
    }

    fn push(&mut self, element: impl Display) {
        // Writing to a String does not fail.
        let _ = writeln!(self.out, "{element}");
    }

    /// Returns the attributes of a line.
    fn stroke(&self, ink: Ink) -> String {
        match self.style {
            Style::Screen => format!(" class=\"{}\"", ink.class()),
            Style::Plain => " stroke=\"black\" fill=\"none\"".to_owned(),
        }
    }

    /// Returns the attributes of an area or a text.
    fn fill(&self, ink: Ink) -> String {
        match (self.style, ink) {
            (Style::Screen, _) => format!(" class=\"{}-fill\"", ink.class()),
            (Style::Plain, Ink::Ground | Ink::Bar) => " fill=\"white\"".to_owned(),
            (Style::Plain, _) => " fill=\"black\"".to_owned(),
        }
    }

    /// Draws a line through points; `dash` is empty for one without gaps.
    pub(super) fn line(&mut self, points: &[Point], ink: Ink, thick: f64, dash: &str) {
        let paint = self.stroke(ink);
        let dash = match dash {
            "" => String::new(),
            dash => format!(" stroke-dasharray=\"{dash}\""),
        };
        let points: Vec<String> = points
            .iter()
            .map(|(x, y)| format!("{},{}", px(*x), px(*y)))
            .collect();
        let points = points.join(" ");
        self.push(format_args!(
            "<polyline{paint} stroke-width=\"{thick}\"{dash} points=\"{points}\"/>"
        ));
    }

    /// Draws an area with corners.
    pub(super) fn area(&mut self, points: &[Point], ink: Ink) {
        let paint = self.fill(ink);
        let points: Vec<String> = points
            .iter()
            .map(|(x, y)| format!("{},{}", px(*x), px(*y)))
            .collect();
        self.push(format_args!(
            "<polygon{paint} points=\"{}\"/>",
            points.join(" ")
        ));
    }

    /// Draws the ground, below everything that is drawn already.
    pub(super) fn ground(&mut self, all: Rect) {
        let above = std::mem::take(&mut self.out);
        self.rect(all, Ink::Ground, 6.0);
        self.out.push_str(&above);
    }

    /// Draws a box without an edge.
    pub(super) fn rect(&mut self, it: Rect, ink: Ink, round: f64) {
        let paint = self.fill(ink);
        self.push(format_args!(
            "<rect{paint} x=\"{}\" y=\"{}\" width=\"{}\" height=\"{}\" rx=\"{round}\"/>",
            px(it.left),
            px(it.top),
            px(it.right - it.left),
            px(it.bottom - it.top)
        ));
    }

    /// Writes a text whose middle height is at a point.
    pub(super) fn text(&mut self, (x, y): Point, anchor: Anchor, ink: Ink, font: Font, text: &str) {
        let Font(size, bold) = font;
        let wide = width(text, size, bold);
        let middle = match anchor {
            Anchor::Start => x + wide / 2.0,
            Anchor::Middle => x,
            Anchor::End => x - wide / 2.0,
        };
        let own = Rect::around((middle, y), wide, size);
        self.texts.push((own, text.to_owned()));
        let at = format!(" x=\"{}\" y=\"{}\"", px(x), px(y + 0.35 * size));
        self.write(&at, anchor, ink, font, text);
    }

    /// Writes a text that runs upwards, with its middle at a point.
    pub(super) fn text_up(&mut self, (x, y): Point, ink: Ink, font: Font, text: &str) {
        let Font(size, bold) = font;
        let own = Rect::around((x, y), size, width(text, size, bold));
        self.texts.push((own, text.to_owned()));
        let (x, y) = (px(x + 0.35 * size), px(y));
        let at = format!(" transform=\"translate({x} {y}) rotate(-90)\"");
        self.write(&at, Anchor::Middle, ink, font, text);
    }

    fn write(&mut self, at: &str, anchor: Anchor, ink: Ink, Font(size, bold): Font, text: &str) {
        let paint = self.fill(ink);
        let anchor = match anchor {
            Anchor::Start => "",
            Anchor::Middle => " text-anchor=\"middle\"",
            Anchor::End => " text-anchor=\"end\"",
        };
        let weight = if bold { " font-weight=\"bold\"" } else { "" };
        let text = escape(text);
        self.push(format_args!(
            "<text{paint}{at}{anchor} font-size=\"{size}\"{weight}>{text}</text>"
        ));
    }

    /// Returns the file: a drawing of this size, with a name and a description for those who do not see
    /// it.
    pub(super) fn finish(&self, (wide, high): Point, name: &str, description: &str) -> String {
        let (wide, high) = (wide.ceil(), high.ceil());
        let (name, description) = (escape(name), escape(description));
        let size = match self.style {
            Style::Screen => format!(" width=\"{wide}\" height=\"{high}\""),
            // It takes the width of the page.
            Style::Plain => " version=\"1.2\" baseProfile=\"tiny\"".to_owned(),
        };
        let label = match self.style {
            Style::Screen => format!(" role=\"img\" aria-label=\"{name}\""),
            Style::Plain => String::new(),
        };
        let (font, sheet) = match self.style {
            Style::Screen => (
                "system-ui, sans-serif",
                format!("<style>\n{SHEET}</style>\n"),
            ),
            Style::Plain => ("sans-serif", String::new()),
        };
        format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\"{label} \
             viewBox=\"0 0 {wide} {high}\"{size} font-family=\"{font}\">\n<title>{name}</title>\n\
             <desc>{description}</desc>\n{sheet}{}</svg>\n",
            self.out
        )
    }
}

/// Formats a length with a tenth of a pixel at most.
fn px(value: f64) -> String {
    let text = format!("{value:.1}");
    let short = text.strip_suffix(".0").unwrap_or(&text);
    if short == "-0" {
        "0".to_owned()
    } else {
        short.to_owned()
    }
}

/// Escapes the characters of a text that have a meaning in markup.
fn escape(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
        .replace('"', "&quot;")
}
