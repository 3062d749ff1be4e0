//! A parser of the XDR language (RFC 4506, section 6.3), as far as descriptions of headers need it.
//!
//! Beyond the RFC, `uint32` and `uint64` are types, as drafts write them. Upper bounds of arrays are read and not
//! kept: a case may break them.

mod parse;
mod words;

use std::collections::BTreeMap;

pub use parse::parse;

/// An error in a file.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("line {line}, column {column}: {what}")]
pub struct Error {
    /// The line, from 1.
    pub line: usize,
    /// The column, from 1, in characters.
    pub column: usize,
    /// The description.
    pub what: String,
}

/// The type of a field, or of an array's elements.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Type {
    /// `unsigned int`, and `int`, which has the same octets.
    UnsignedInt,
    /// `unsigned hyper`, and `hyper`, which has the same octets.
    UnsignedHyper,
    /// `bool`.
    Bool,
    /// Bytes, always as an array or of a fixed length: `opaque`, and `string`, which has the same octets.
    Opaque,
    /// A type that is defined in the files.
    Named(String),
}

/// The multiplicity of a field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shape {
    /// Exactly one.
    One,
    /// Optional data: `*name`.
    Optional,
    /// Any number: `name<>`.
    Array,
    /// This number, of bytes alone: `name[N]`.
    Fixed(u32),
}

/// A field, or the definition of a typedef.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Declaration {
    /// The field's name.
    pub name: String,
    /// The field's type.
    pub of: Type,
    /// The multiplicity.
    pub shape: Shape,
}

/// An arm of a union: the values that select it, and its field, if it has one. No value selects the
/// default arm, which comes last.
pub type Arm = (Vec<String>, Option<Declaration>);

/// The definition of a name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Body {
    /// An enumeration's names and numbers.
    Enum(Vec<(String, u32)>),
    /// Another name for a type.
    Typedef(Declaration),
    /// A structure's fields.
    Struct(Vec<Declaration>),
    /// A union's discriminant and arms.
    Union(Declaration, Vec<Arm>),
}

/// The content of files: types in the order of their definitions, and constants.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Specification {
    /// Types.
    pub types: Vec<(String, Body)>,
    /// Constants, including those of enumerations.
    pub constants: BTreeMap<String, u64>,
    /// The places of types among all, by their names.
    places: BTreeMap<String, usize>,
}

impl Specification {
    /// Returns the definition of a type.
    #[must_use]
    pub fn body(&self, name: &str) -> Option<&Body> {
        let place = self.places.get(name)?;
        self.types.get(*place).map(|(_, body)| body)
    }

    /// Adds the definition of a type that is not defined.
    fn define(&mut self, name: String, body: Body) {
        self.places.insert(name.clone(), self.types.len());
        self.types.push((name, body));
    }

    /// Returns the fields of a linked structure, whose last field is a pointer to the next, without
    /// that field; and that field's name.
    #[must_use]
    pub fn linked(&self, name: &str) -> Option<(&[Declaration], &str)> {
        let Some(Body::Struct(fields)) = self.body(name) else {
            return None;
        };
        let (last, others) = fields.split_last()?;
        let is_link = last.shape == Shape::Optional && last.of == Type::Named(name.to_owned());
        is_link.then_some((others, last.name.as_str()))
    }
}
