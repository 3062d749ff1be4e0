//! The values of tshark's fields, in the order of the wire.

use std::collections::BTreeMap;
use std::fmt;

/// The direction of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Direction {
    /// Messages from the client to the server.
    Call,
    /// Messages from the server to the client.
    Reply,
}

impl fmt::Display for Direction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Call => "client to server",
            Self::Reply => "server to client",
        })
    }
}

/// For each direction and field, all its values, in the order of the messages.
#[derive(Clone, Debug, Default)]
pub(crate) struct Columns(BTreeMap<(Direction, &'static str), Vec<String>>);

impl Columns {
    /// Adds a field that may have no value.
    pub(crate) fn expect(&mut self, direction: Direction, field: &'static str) {
        self.0.entry((direction, field)).or_default();
    }

    /// Adds the field's next value.
    pub(crate) fn push(&mut self, direction: Direction, field: &'static str, value: impl ToString) {
        let value = value.to_string();
        self.0.entry((direction, field)).or_default().push(value);
    }

    /// Returns the values of a field.
    pub(crate) fn values(&self, direction: Direction, field: &'static str) -> &[String] {
        self.0.get(&(direction, field)).map_or(&[], Vec::as_slice)
    }

    /// Returns the values of a field as numbers.
    pub(crate) fn numbers(&self, direction: Direction, field: &'static str) -> Vec<u64> {
        let values = self.values(direction, field).iter();
        values.filter_map(|value| value.parse().ok()).collect()
    }

    /// Returns all fields.
    pub(crate) fn fields(&self) -> impl Iterator<Item = (Direction, &'static str)> {
        self.0.keys().copied()
    }
}
