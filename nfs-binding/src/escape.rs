//! Escaping of untrusted text for a terminal.
//!
//! Names, link targets and paths come from a server or from the creator of a file. They may contain
//! anything but a zero byte and (in names) a slash. Characters that would move the cursor, change a
//! terminal's state, begin a line that looks like another message, or reverse the reading order are
//! shown as Rust escapes, and so are bytes that are not UTF-8. Everything that the command prints
//! for people goes through [`escape`]; output for programs (`cat`, JSON files) does not.

use std::fmt::{self, Write};

/// Escapes bytes so that a terminal does nothing but print them.
#[must_use]
pub fn escape(bytes: &[u8]) -> Escaped<'_> {
    Escaped { bytes, layout: "" }
}

/// Escapes a text of several lines or columns like [`escape`], but keeps line feeds and tabs. Names
/// in such a text must already be escaped.
#[must_use]
pub fn escape_lines(text: &str) -> Escaped<'_> {
    Escaped {
        bytes: text.as_bytes(),
        layout: "\n\t",
    }
}

/// Escaped text, as returned by [`escape`].
#[derive(Clone, Copy, Debug)]
pub struct Escaped<'a> {
    bytes: &'a [u8],
    /// The control characters that are kept.
    layout: &'static str,
}

/// Returns whether a terminal would not simply print the character.
fn acts(c: char) -> bool {
    c.is_control()
        || matches!(
            c,
            // Unicode's Bidi_Control: marks, embeddings, overrides and isolates, which can make one
            // name look like another.
            '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}'
            // Line and paragraph separators.
            | '\u{2028}' | '\u{2029}'
            // Tags, which are invisible.
            | '\u{e0000}'..='\u{e007f}'
        )
}

impl fmt::Display for Escaped<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for chunk in self.bytes.utf8_chunks() {
            let mut rest = chunk.valid();
            while let Some(at) = rest.find(|c| acts(c) && !self.layout.contains(c)) {
                let (plain, from) = rest.split_at(at);
                f.write_str(plain)?;
                let mut chars = from.chars();
                if let Some(c) = chars.next() {
                    write!(f, "{}", c.escape_default())?;
                }
                rest = chars.as_str();
            }
            f.write_str(rest)?;
            write!(f, "{}", chunk.invalid().escape_ascii())?;
        }
        Ok(())
    }
}

/// A writer that escapes text like [`escape`].
#[derive(Debug)]
pub struct Escaping<W>(pub W);

impl<W: Write> Write for Escaping<W> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        write!(self.0, "{}", escape(text.as_bytes()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_acts_on_a_terminal_is_shown_instead() {
        for (name, shown) in [
            (&b"plain name"[..], "plain name"),
            ("ünïcode, 世界 👩‍🚀".as_bytes(), "ünïcode, 世界 👩‍🚀"),
            (
                b"\x1b]0;title\x07\x1b[2J",
                "\\u{1b}]0;title\\u{7}\\u{1b}[2J",
            ),
            (b"a\nrpcrdma: b\r\tc\x7f", "a\\nrpcrdma: b\\r\\tc\\u{7f}"),
            ("\u{9b}31m".as_bytes(), "\\u{9b}31m"),
            (b"\x9b31m \xff", "\\x9b31m \\xff"),
            ("gpj.\u{202e}exe".as_bytes(), "gpj.\\u{202e}exe"),
            (
                "\u{2066}\u{200f}\u{2028}".as_bytes(),
                "\\u{2066}\\u{200f}\\u{2028}",
            ),
        ] {
            assert_eq!(escape(name).to_string(), shown);
            // Escaping an escaped text changes nothing.
            assert_eq!(escape(shown.as_bytes()).to_string(), shown);
            let mut out = String::new();
            write!(Escaping(&mut out), "{}", String::from_utf8_lossy(name)).unwrap();
            assert!(!out.contains(acts), "{out:?}");
        }
    }

    #[test]
    fn lines_and_columns_are_kept_where_they_are_the_texts_own() {
        let text = "a\tb\n\u{1b}[1mc\r\n";
        assert_eq!(escape_lines(text).to_string(), "a\tb\n\\u{1b}[1mc\\r\n");
    }
}
