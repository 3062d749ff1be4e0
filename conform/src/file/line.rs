//! Lines of a case file, and the errors in them.

use std::fmt;

/// An error in a file: where it is, what was expected, and what to write.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub struct Error {
    /// The name of the file.
    pub file: String,
    /// The line, from 1; 0 for the file as a whole.
    pub line: usize,
    /// The column, from 1, in characters; 0 for the file as a whole.
    pub column: usize,
    /// The difference from what was expected.
    pub what: String,
    /// A description of the right text.
    pub instead: String,
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.file)?;
        if self.line > 0 {
            write!(f, ":{}:{}", self.line, self.column)?;
        }
        write!(f, ": {}; write {}", self.what, self.instead)
    }
}

/// An error in a line of a file that its reader names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Wrong {
    pub(super) line: usize,
    pub(super) column: usize,
    pub(super) what: String,
    pub(super) instead: String,
}

impl Wrong {
    pub(super) fn of(self, file: &str) -> Error {
        Error {
            file: file.to_owned(),
            line: self.line,
            column: self.column,
            what: self.what,
            instead: self.instead,
        }
    }
}

/// A line that is not empty: its first word, and the rest.
#[derive(Clone, Copy, Debug)]
pub(super) struct Line<'a> {
    /// The number of the line, from 1.
    pub(super) number: usize,
    /// The column of its first word, from 1.
    indent: usize,
    /// The text, without blanks around it.
    pub(super) text: &'a str,
}

impl<'a> Line<'a> {
    /// Returns an error about the line as a whole.
    pub(super) fn wrong(&self, what: impl Into<String>, instead: impl Into<String>) -> Wrong {
        Wrong {
            line: self.number,
            column: self.indent,
            what: what.into(),
            instead: instead.into(),
        }
    }

    /// Returns an error about a word of the line.
    pub(super) fn wrong_at(
        &self,
        word: &str,
        what: impl Into<String>,
        instead: impl Into<String>,
    ) -> Wrong {
        Wrong {
            column: self.column(word),
            ..self.wrong(what, instead)
        }
    }

    /// Returns the column of a part of the text, which words are, or of the line if it is none.
    fn column(&self, word: &str) -> usize {
        let [text, word] = [self.text, word].map(|it| it.as_ptr().addr());
        let before = word.checked_sub(text);
        let before = before.and_then(|it| self.text.get(..it));
        self.indent + before.map_or(0, |it| it.chars().count())
    }

    /// Returns the text after the first word.
    pub(super) fn rest(&self) -> &'a str {
        let rest = self.text.split_once(char::is_whitespace);
        rest.map_or("", |(_, rest)| rest.trim())
    }

    /// Returns the second word, without a full stop.
    pub(super) fn address(&self) -> &'a str {
        let second = self.rest().split_whitespace().next();
        second.map_or("", |it| it.trim_end_matches('.'))
    }

    /// Splits the line into words at blanks outside quotation marks. A word that begins with `#` begins a comment.
    pub(super) fn words(&self) -> Result<Vec<&'a str>, Wrong> {
        let (mut words, mut rest) = (Vec::new(), self.text);
        loop {
            rest = rest.trim_start();
            if rest.is_empty() || rest.starts_with('#') {
                return Ok(words);
            }
            let mut quoted = false;
            let end = rest.find(|c: char| {
                quoted ^= c == '"';
                c.is_whitespace() && !quoted
            });
            let (word, after) = rest.split_at(end.unwrap_or(rest.len()));
            if word.matches('"').count() % 2 != 0 {
                let what = format!("{word} has no second quotation mark");
                return Err(self.wrong_at(word, what, format!("{word}\"")));
            }
            words.push(word);
            rest = after;
        }
    }
}

/// Returns the lines of a file without those that are empty or comments.
pub(super) fn lines(text: &str) -> impl Iterator<Item = Line<'_>> {
    let all = text.lines().enumerate().map(|(at, text)| {
        let blanks = text.chars().take_while(|it| it.is_whitespace());
        Line {
            number: at + 1,
            indent: blanks.count() + 1,
            text: text.trim(),
        }
    });
    all.filter(|line| !line.text.is_empty() && !line.text.starts_with('#'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_word_has_the_column_in_which_it_stands() {
        let text = "\n  \té x x \"a b\" # x\n";
        let line = lines(text).next().unwrap();
        let words = line.words().unwrap();
        let columns: Vec<usize> = words.iter().map(|it| line.column(it)).collect();
        // The same word twice has two columns.
        assert_eq!(columns, [4, 6, 8, 10]);
        assert_eq!((line.number, line.wrong("", "").column), (2, 4));
        // A word of another text is no part of the line.
        assert_eq!(line.column(&"x".repeat(3)), 4);
    }
}
