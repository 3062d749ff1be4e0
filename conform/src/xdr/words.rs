//! Splits the XDR language into words.

use super::Error;

/// The remaining words of a file.
#[derive(Debug)]
pub(super) struct Words<'a> {
    text: &'a str,
    /// The place behind the last word.
    at: usize,
    /// The place of the last word, which errors name.
    last: usize,
}

impl<'a> Words<'a> {
    pub(super) fn new(text: &'a str) -> Self {
        Self {
            text,
            at: 0,
            last: 0,
        }
    }

    /// Returns an error at the last word.
    pub(super) fn error(&self, what: impl Into<String>) -> Error {
        let before = &self.text[..self.last];
        let of_line = before.rsplit('\n').next().unwrap_or_default();
        Error {
            line: before.matches('\n').count() + 1,
            column: of_line.chars().count() + 1,
            what: what.into(),
        }
    }

    fn skip_blanks(&mut self) -> Result<(), Error> {
        loop {
            let rest = &self.text[self.at..];
            let trimmed = rest.trim_start();
            self.at += rest.len() - trimmed.len();
            if !trimmed.starts_with("/*") {
                return Ok(());
            }
            match trimmed.find("*/") {
                Some(end) => self.at += end + 2,
                None => {
                    self.last = self.at;
                    return Err(self.error("a comment that does not end"));
                }
            }
        }
    }

    /// Returns the next word, which is a name, a number or a punctuation mark, or `None` at the
    /// end.
    pub(super) fn next(&mut self) -> Result<Option<&'a str>, Error> {
        self.skip_blanks()?;
        self.last = self.at;
        let rest = &self.text[self.at..];
        let Some(first) = rest.chars().next() else {
            return Ok(None);
        };
        let is_part = |c: char| c.is_ascii_alphanumeric() || c == '_';
        let len = match is_part(first) {
            true => rest.find(|c| !is_part(c)).unwrap_or(rest.len()),
            false => first.len_utf8(),
        };
        self.at += len;
        Ok(Some(&rest[..len]))
    }

    /// Returns the next word without consuming it.
    pub(super) fn peek(&mut self) -> Result<Option<&'a str>, Error> {
        let (at, last) = (self.at, self.last);
        let word = self.next()?;
        (self.at, self.last) = (at, last);
        Ok(word)
    }

    pub(super) fn word(&mut self) -> Result<&'a str, Error> {
        self.next()?.ok_or_else(|| self.error("the file ends here"))
    }

    /// Consumes a word that must be `wanted`.
    pub(super) fn expect(&mut self, wanted: &str) -> Result<(), Error> {
        match self.word()? {
            word if word == wanted => Ok(()),
            word => Err(self.error(format!("{word} where {wanted} should be"))),
        }
    }

    /// Consumes the next word if it is `wanted`.
    pub(super) fn accept(&mut self, wanted: &str) -> Result<bool, Error> {
        let comes = self.peek()? == Some(wanted);
        if comes {
            self.next()?;
        }
        Ok(comes)
    }

    pub(super) fn name(&mut self) -> Result<String, Error> {
        let word = self.word()?;
        match word.starts_with(|c: char| c.is_ascii_alphabetic()) {
            true => Ok(word.to_owned()),
            false => Err(self.error(format!("{word} is no name"))),
        }
    }

    pub(super) fn number(&mut self) -> Result<u64, Error> {
        let word = self.word()?;
        let parsed = match word.strip_prefix("0x") {
            Some(digits) => u64::from_str_radix(digits, 16),
            None => word.parse(),
        };
        parsed.map_err(|_| self.error(format!("{word} is no number")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_names_the_line_and_the_column_of_its_word() {
        let at = |text: &str| {
            let mut words = Words::new(text);
            let error = loop {
                match words.expect("a") {
                    Ok(()) => {}
                    Err(error) => break error,
                }
            };
            (error.line, error.column)
        };
        assert_eq!(at("a a b"), (1, 5));
        assert_eq!(at("a /* b\n */ a\n  b"), (3, 3));
        // Columns count characters.
        assert_eq!(at("/* ü */ b"), (1, 9));
        assert_eq!(at("a\n a /* without end"), (2, 4));
        // The end of the file.
        assert_eq!(at("a\na "), (2, 3));
    }
}
