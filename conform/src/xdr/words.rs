//! Splits the XDR language into words.

use super::Error;

/// The remaining words of a file.
#[derive(Debug)]
pub(super) struct Words<'a> {
    text: &'a str,
    line: usize,
}

impl<'a> Words<'a> {
    pub(super) fn new(text: &'a str) -> Self {
        Self { text, line: 1 }
    }

    pub(super) fn error(&self, what: impl Into<String>) -> Error {
        Error {
            line: self.line,
            what: what.into(),
        }
    }

    fn skip(&mut self, bytes: usize) {
        let (skipped, rest) = self.text.split_at(bytes);
        self.line += skipped.matches('\n').count();
        self.text = rest;
    }

    fn skip_blanks(&mut self) -> Result<(), Error> {
        loop {
            let blanks = self.text.len() - self.text.trim_start().len();
            self.skip(blanks);
            if !self.text.starts_with("/*") {
                return Ok(());
            }
            let Some(end) = self.text.find("*/") else {
                return Err(self.error("a comment that does not end"));
            };
            self.skip(end + 2);
        }
    }

    /// Returns the next word, which is a name, a number or a punctuation mark, or `None` at the
    /// end.
    pub(super) fn next(&mut self) -> Result<Option<&'a str>, Error> {
        self.skip_blanks()?;
        let Some(first) = self.text.chars().next() else {
            return Ok(None);
        };
        let is_part = |c: char| c.is_ascii_alphanumeric() || c == '_';
        let len = match is_part(first) {
            true => self.text.find(|c| !is_part(c)).unwrap_or(self.text.len()),
            false => first.len_utf8(),
        };
        let word = &self.text[..len];
        self.skip(len);
        Ok(Some(word))
    }

    /// Returns the next word without consuming it.
    pub(super) fn peek(&mut self) -> Result<Option<&'a str>, Error> {
        let (text, line) = (self.text, self.line);
        let word = self.next();
        (self.text, self.line) = (text, line);
        word
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
