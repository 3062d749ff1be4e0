//! Values as JSON, by the names of the fields in `drafts/xdr`.
//!
//! The C program writes the same from its own structures, so that a field in the wrong place is
//! found although each side by itself decodes what it encoded.

use std::fmt::Write;

/// JSON that is being written, without blanks.
#[derive(Debug, Default)]
pub struct Json(String);

impl Json {
    /// One value.
    #[must_use]
    pub fn of(value: impl FnOnce(&mut Self)) -> String {
        let mut json = Self::default();
        value(&mut json);
        json.0
    }

    /// A number.
    pub fn number(&mut self, value: u32) {
        // Writing to a string does not fail, here and below.
        let _ = write!(self.0, "{value}");
    }

    /// A number of 64 bits, in quotes: readers may take bare ones for floating point.
    pub fn wide(&mut self, value: u64) {
        let _ = write!(self.0, "\"{value}\"");
    }

    /// A boolean.
    pub fn boolean(&mut self, value: bool) {
        let _ = write!(self.0, "{value}");
    }

    /// The name of an enumeration's value.
    pub fn name(&mut self, name: &str) {
        let _ = write!(self.0, "\"{name}\"");
    }

    /// Opaque data, in hexadecimal.
    pub fn hex(&mut self, bytes: &[u8]) {
        self.0.push('"');
        for byte in bytes {
            let _ = write!(self.0, "{byte:02x}");
        }
        self.0.push('"');
    }

    /// An array.
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

    /// Optional data.
    pub fn option<T>(&mut self, of: Option<T>, one: impl FnOnce(&mut Self, T)) {
        match of {
            Some(value) => one(self, value),
            None => self.0.push_str("null"),
        }
    }

    /// A structure, or a union: its discriminant, then its arm if that has a field.
    pub fn object(&mut self, fields: impl FnOnce(&mut Fields<'_>)) {
        self.0.push('{');
        fields(&mut Fields {
            json: self,
            is_first: true,
        });
        self.0.push('}');
    }
}

/// Fields of a structure that is being written.
#[derive(Debug)]
pub struct Fields<'a> {
    json: &'a mut Json,
    is_first: bool,
}

impl Fields<'_> {
    /// A field.
    pub fn field(&mut self, name: &str, value: impl FnOnce(&mut Json)) -> &mut Self {
        if !self.is_first {
            self.json.0.push(',');
        }
        self.is_first = false;
        let _ = write!(self.json.0, "\"{name}\":");
        value(self.json);
        self
    }

    /// A number.
    pub fn number(&mut self, name: &str, value: u32) -> &mut Self {
        self.field(name, |json| json.number(value))
    }

    /// The name of an enumeration's value.
    pub fn name(&mut self, name: &str, value: &str) -> &mut Self {
        self.field(name, |json| json.name(value))
    }
}
