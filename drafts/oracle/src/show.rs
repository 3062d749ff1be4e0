//! Shows values as JSON by the names of the fields in `drafts/xdr`.
//!
//! The C program writes the same from its own structures, so that a misplaced field is found even
//! though each side decodes what it encoded.

use std::fmt::Write;

/// A JSON writer without blanks.
#[derive(Debug, Default)]
pub struct Json(String);

impl Json {
    /// Returns the JSON of one value.
    #[must_use]
    pub fn of(value: impl FnOnce(&mut Self)) -> String {
        let mut json = Self::default();
        value(&mut json);
        json.0
    }

    /// Writes a number.
    pub fn number(&mut self, value: u32) {
        // Writing to a String does not fail, here and below.
        let _ = write!(self.0, "{value}");
    }

    /// Writes a 64-bit number in quotes, because readers may treat bare ones as floating point.
    pub fn wide(&mut self, value: u64) {
        let _ = write!(self.0, "\"{value}\"");
    }

    /// Writes a boolean.
    pub fn boolean(&mut self, value: bool) {
        let _ = write!(self.0, "{value}");
    }

    /// Writes the name of an enumeration's value.
    pub fn name(&mut self, name: &str) {
        let _ = write!(self.0, "\"{name}\"");
    }

    /// Writes opaque data in hexadecimal.
    pub fn hex(&mut self, bytes: &[u8]) {
        self.0.push('"');
        for byte in bytes {
            let _ = write!(self.0, "{byte:02x}");
        }
        self.0.push('"');
    }

    /// Writes an array.
    pub fn list<T>(&mut self, of: impl IntoIterator<Item = T>, one: impl Fn(&mut Self, T)) {
        self.0.push('[');
        for (i, element) in of.into_iter().enumerate() {
            if i > 0 {
                self.0.push(',');
            }
            one(self, element);
        }
        self.0.push(']');
    }

    /// Writes optional data.
    pub fn option<T>(&mut self, of: Option<T>, one: impl FnOnce(&mut Self, T)) {
        match of {
            Some(value) => one(self, value),
            None => self.0.push_str("null"),
        }
    }

    /// Writes a structure, or a union: its discriminant, and its arm if that has a field.
    pub fn object(&mut self, fields: impl FnOnce(&mut Fields<'_>)) {
        self.0.push('{');
        fields(&mut Fields {
            json: self,
            is_first: true,
        });
        self.0.push('}');
    }
}

/// A writer for the fields of a structure.
#[derive(Debug)]
pub struct Fields<'a> {
    json: &'a mut Json,
    is_first: bool,
}

impl Fields<'_> {
    /// Writes a field.
    pub fn field(&mut self, name: &str, value: impl FnOnce(&mut Json)) -> &mut Self {
        if !self.is_first {
            self.json.0.push(',');
        }
        self.is_first = false;
        let _ = write!(self.json.0, "\"{name}\":");
        value(self.json);
        self
    }

    /// Writes a number field.
    pub fn number(&mut self, name: &str, value: u32) -> &mut Self {
        self.field(name, |json| json.number(value))
    }

    /// Writes a field with the name of an enumeration's value.
    pub fn name(&mut self, name: &str, value: &str) -> &mut Self {
        self.field(name, |json| json.name(value))
    }
}
