//! Parses definitions.

use super::words::Words;
use super::{Arm, Body, Declaration, Error, Shape, Specification, Type};

/// Adds a file's definitions to those of the files that it depends on.
///
/// # Errors
/// The first element that is not XDR, is not supported here, or is already defined.
pub fn parse(text: &str, into: &mut Specification) -> Result<(), Error> {
    let mut words = Words::new(text);
    while let Some(word) = words.next()? {
        match word {
            "const" => {
                let name = words.name()?;
                words.expect("=")?;
                let value = words.number()?;
                constant(&words, into, name, value)?;
            }
            "typedef" => {
                let declared = declaration(&mut words, into, None)?;
                let name = declared.name.clone();
                define(&words, into, name, Body::Typedef(declared))?;
            }
            "enum" => enumeration(&mut words, into)?,
            "struct" => structure(&mut words, into)?,
            "union" => union(&mut words, into)?,
            other => return Err(words.error(format!("{other} defines nothing"))),
        }
        words.expect(";")?;
    }
    Ok(())
}

fn define(
    words: &Words<'_>,
    into: &mut Specification,
    name: String,
    body: Body,
) -> Result<(), Error> {
    match into.body(&name) {
        // A document repeats definitions of the one that it extends.
        Some(known) if *known == body => return Ok(()),
        Some(_) => return Err(words.error(format!("{name} is defined twice"))),
        None => {}
    }
    into.define(name, body);
    Ok(())
}

fn constant(
    words: &Words<'_>,
    into: &mut Specification,
    name: String,
    value: u64,
) -> Result<(), Error> {
    match into.constants.insert(name.clone(), value) {
        None => Ok(()),
        Some(known) if known == value => Ok(()),
        Some(_) => Err(words.error(format!("{name} is defined twice"))),
    }
}

fn enumeration(words: &mut Words<'_>, into: &mut Specification) -> Result<(), Error> {
    let name = words.name()?;
    let mut values = Vec::new();
    words.expect("{")?;
    loop {
        let value_name = words.name()?;
        words.expect("=")?;
        let value = words.number()?;
        let number = u32::try_from(value).map_err(|_| words.error("more than 32 bits"))?;
        constant(words, into, value_name.clone(), value)?;
        values.push((value_name, number));
        if !words.accept(",")? {
            break;
        }
    }
    words.expect("}")?;
    define(words, into, name, Body::Enum(values))
}

fn structure(words: &mut Words<'_>, into: &mut Specification) -> Result<(), Error> {
    let name = words.name()?;
    let mut fields = Vec::new();
    words.expect("{")?;
    while !words.accept("}")? {
        fields.push(declaration(words, into, Some(&name))?);
        words.expect(";")?;
    }
    define(words, into, name, Body::Struct(fields))
}

fn union(words: &mut Words<'_>, into: &mut Specification) -> Result<(), Error> {
    let name = words.name()?;
    words.expect("switch")?;
    words.expect("(")?;
    let tag = declaration(words, into, None)?;
    words.expect(")")?;
    words.expect("{")?;
    let known = discriminant(words, into, &tag.of)?;
    let mut arms: Vec<Arm> = Vec::new();
    while !words.accept("}")? {
        let mut cases = Vec::new();
        while words.accept("case")? {
            let case = words.name()?;
            let is_known = match known {
                Cases::Constants => into.constants.contains_key(&case),
                Cases::Of(_, values) => values.iter().any(|(name, _)| *name == case),
            };
            if !is_known {
                return Err(words.error(format!("{case} is not of {known}")));
            }
            cases.push(case);
            words.expect(":")?;
        }
        let is_default = cases.is_empty() && words.accept("default")?;
        if is_default {
            words.expect(":")?;
        } else if cases.is_empty() {
            return Err(words.error("an arm without a case"));
        }
        if arms.last().is_some_and(|(cases, _)| cases.is_empty()) {
            return Err(words.error("an arm after the default"));
        }
        let body = match words.accept("void")? {
            true => None,
            false => Some(declaration(words, into, None)?),
        };
        words.expect(";")?;
        arms.push((cases, body));
    }
    define(words, into, name, Body::Union(tag, arms))
}

/// The names that the cases of a union may have.
#[derive(Clone, Copy)]
enum Cases<'a> {
    /// All constants: the discriminant is a number.
    Constants,
    /// The values of an enumeration with this name.
    Of(&'a str, &'a [(String, u32)]),
}

impl std::fmt::Display for Cases<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Constants => "the constants",
            Self::Of(name, _) => name,
        })
    }
}

/// Returns the names that the cases of a union with this discriminant may have.
fn discriminant<'a>(
    words: &Words<'_>,
    into: &'a Specification,
    mut of: &'a Type,
) -> Result<Cases<'a>, Error> {
    loop {
        match of {
            Type::UnsignedInt => return Ok(Cases::Constants),
            Type::Named(name) => match into.body(name) {
                Some(Body::Enum(values)) => return Ok(Cases::Of(name, values)),
                // A type is defined before it is used, so that this ends.
                Some(Body::Typedef(other)) if other.shape == Shape::One => of = &other.of,
                _ => {
                    let what = format!("{name} is neither an enumeration nor a number");
                    return Err(words.error(what));
                }
            },
            _ => {
                let what = "a discriminant that is neither an enumeration nor a number";
                return Err(words.error(what));
            }
        }
    }
}

/// Parses a number or a constant.
fn value(words: &mut Words<'_>, into: &Specification) -> Result<u64, Error> {
    let constant = match words.peek()? {
        Some(word) => into.constants.get(word).copied(),
        None => None,
    };
    match constant {
        Some(value) => {
            words.word()?;
            Ok(value)
        }
        None => words.number(),
    }
}

/// Parses the length of fixed opaque data, and the bracket behind it.
fn length(words: &mut Words<'_>, into: &Specification) -> Result<u32, Error> {
    let length = value(words, into)?;
    words.expect("]")?;
    match u32::try_from(length) {
        Ok(length @ 1..) => Ok(length),
        _ => Err(words.error("no length of opaque data")),
    }
}

/// Parses a declaration. `within` is the structure that is being defined, which its last field may
/// point to.
fn declaration(
    words: &mut Words<'_>,
    into: &Specification,
    within: Option<&str>,
) -> Result<Declaration, Error> {
    let first = match words.word()? {
        // The kind of a type may stand before its name.
        "struct" | "union" | "enum" => words.word()?,
        other => other,
    };
    let of = match first {
        "unsigned" => match words.word()? {
            "int" => Type::UnsignedInt,
            "hyper" => Type::UnsignedHyper,
            other => return Err(words.error(format!("unsigned {other}"))),
        },
        "int" | "uint32" | "uint32_t" => Type::UnsignedInt,
        "hyper" | "uint64" | "uint64_t" => Type::UnsignedHyper,
        "bool" => Type::Bool,
        "opaque" | "string" => Type::Opaque,
        name if into.body(name).is_some() || within == Some(name) => Type::Named(name.to_owned()),
        name => return Err(words.error(format!("{name} is not defined"))),
    };
    let optional = words.accept("*")?;
    let name = words.name()?;
    let array = words.accept("<")?;
    if array && !words.accept(">")? {
        value(words, into)?;
        words.expect(">")?;
    }
    let fixed = match !array && words.accept("[")? {
        true => Some(length(words, into)?),
        false => None,
    };
    let shape = match (optional, array, fixed) {
        (false, false, None) => Shape::One,
        (true, false, None) => Shape::Optional,
        (false, true, _) => Shape::Array,
        (false, false, Some(length)) if of == Type::Opaque => Shape::Fixed(length),
        (false, false, Some(_)) => return Err(words.error("a fixed length, but not of opaque")),
        (true, ..) => return Err(words.error("a pointer to an array")),
    };
    let is_itself = within.is_some_and(|within| of == Type::Named(within.to_owned()));
    match (&of, shape) {
        (Type::Opaque, Shape::One | Shape::Optional) => Err(words.error("opaque without length")),
        (_, Shape::One | Shape::Array) if is_itself => Err(words.error("a type within itself")),
        _ => Ok(Declaration { name, of, shape }),
    }
}
