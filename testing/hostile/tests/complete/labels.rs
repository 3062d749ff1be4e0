//! Labels the words of an operation's information with their fields in the XDR of the specification
//! (`drafts/xdr`).

use std::collections::BTreeSet;

use xdr_oracle::list::{Cases, Code, FILES, File, Role, codes};
use xdr_oracle::xdr::{Body, Declaration, Shape, Specification, Type, parse};

/// The name of the file of the working group's version 2 itself.
const WG: &str = "rpcrdma2wg.x";

/// Returns the numbers of the extensions of the working group's version 2 that must have cases.
pub(crate) fn extensions_of_wg(role: Role) -> impl Iterator<Item = &'static Code> {
    let of_extensions = |file: &&File| file.cases == Cases::WorkingGroup && file.name != WG;
    let all = FILES.iter().filter(of_extensions);
    all.flat_map(|file| file.codes)
        .filter(move |code| code.role == role)
}

/// A word of a message, and the XDR fields that contain it, innermost last. The count of an array
/// belongs to the array; the name of a characteristic is a field around its value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Word {
    pub(crate) fields: Vec<String>,
    /// The structure or union that declares the innermost field.
    pub(crate) of: String,
    pub(crate) value: u32,
}

/// Labelled information, up to the first deviation from its type.
#[derive(Clone, Debug)]
pub(crate) struct Labelled {
    pub(crate) words: Vec<Word>,
    /// The fields at the deviation, if there is one.
    pub(crate) bad: Option<Vec<String>>,
}

/// The XDR of the specifications.
pub(crate) struct Xdr {
    all: Specification,
    /// Fields that are not structures or unions with fields of their own.
    pub(crate) fields: BTreeSet<String>,
    /// Such fields of the working group's version 2 and of its extension, with the structure that
    /// declares them.
    pub(crate) wg: Vec<(String, BTreeSet<String>)>,
}

impl Xdr {
    pub(crate) fn new() -> Self {
        let (mut all, mut fields) = (Specification::default(), BTreeSet::new());
        let mut wg = Vec::new();
        for file in FILES {
            let before = all.types.len();
            parse(file.text, &mut all).expect("XDR");
            if file.cases == Cases::WorkingGroup {
                for (of, body) in &all.types[before..] {
                    let own = declarations(body).into_iter();
                    let own = own.filter(|field| !is_composed(&all, field));
                    wg.push((of.clone(), own.map(|field| field.name.clone()).collect()));
                }
            }
            if file.cases == Cases::Two {
                let bodies = all.types[before..].iter().map(|(_, body)| body);
                let declared = bodies.flat_map(declarations);
                let own = declared.filter(|field| !is_composed(&all, field));
                fields.extend(own.map(|field| field.name.clone()));
            }
        }
        Self { all, fields, wg }
    }

    /// Returns the constants whose names begin with `prefix`, and their values.
    pub(crate) fn constants(&self, prefix: &str) -> Vec<(String, u32)> {
        let all = self.all.constants.iter();
        let some = all.filter(|(name, _)| name.starts_with(prefix));
        some.map(|(name, value)| (name.clone(), u32::try_from(*value).expect("32 bits")))
            .collect()
    }

    /// Returns the numbers of the header types of extensions of the working group's version 2.
    pub(crate) fn placed_types() -> BTreeSet<u32> {
        extensions_of_wg(Role::HeaderType)
            .map(|code| code.value)
            .collect()
    }

    /// Labels the header of a message of the working group's version 2, or of its extension.
    pub(crate) fn label_wg(&self, message: &[u32]) -> Labelled {
        let mut walk = Walk::new(&self.all, message, extensions_of_wg(Role::Property));
        let placed = message
            .get(3)
            .is_some_and(|number| Self::placed_types().contains(number));
        let bad = walk.named(if placed {
            "rpcrdma2_placed_msg"
        } else {
            "rpcrdma2wg_msg"
        });
        walk.labelled(bad)
    }

    /// Labels information. Returns `None` if the operation does not exist.
    pub(crate) fn label(&self, opttype: u32, info: &[u32]) -> Option<Labelled> {
        let operation = codes(Role::Operation).find(|code| code.value == opttype)?;
        let mut walk = Walk::new(&self.all, info, codes(Role::Characteristic));
        let bad = walk.whole(operation.of);
        Some(walk.labelled(bad))
    }
}

/// The information deviates from its type, in the fields of the current position.
struct Bad;

struct Walk<'a> {
    all: &'a Specification,
    left: &'a [u32],
    fields: Vec<String>,
    /// The structures and unions around the current position, innermost last.
    inside: Vec<String>,
    words: Vec<Word>,
    /// The properties whose values have a type. Others are bytes.
    properties: Vec<&'static Code>,
}

impl<'a> Walk<'a> {
    fn new(
        all: &'a Specification,
        left: &'a [u32],
        properties: impl Iterator<Item = &'static Code>,
    ) -> Self {
        Self {
            all,
            left,
            fields: Vec::new(),
            inside: Vec::new(),
            words: Vec::new(),
            properties: properties.collect(),
        }
    }

    fn labelled(self, result: Result<(), Bad>) -> Labelled {
        Labelled {
            bad: result.err().map(|Bad| self.fields),
            words: self.words,
        }
    }

    /// Labels a value of this type, with nothing behind it.
    fn whole(&mut self, name: &str) -> Result<(), Bad> {
        self.named(name)?;
        if self.left.is_empty() {
            return Ok(());
        }
        if let Some(last) = self.words.last() {
            self.fields.clone_from(&last.fields);
        }
        Err(Bad)
    }

    fn word(&mut self) -> Result<u32, Bad> {
        let (&value, rest) = self.left.split_first().ok_or(Bad)?;
        self.left = rest;
        self.words.push(Word {
            fields: self.fields.clone(),
            of: self.inside.last().cloned().unwrap_or_default(),
            value,
        });
        Ok(value)
    }

    fn named(&mut self, name: &str) -> Result<(), Bad> {
        match self.all.body(name).expect("it is defined") {
            Body::Enum(values) => {
                let value = self.word()?;
                let known = values.iter().any(|(_, known)| *known == value);
                known.then_some(()).ok_or(Bad)
            }
            Body::Typedef(declared) => self.shaped(declared),
            Body::Struct(fields) => {
                self.inside.push(name.to_owned());
                fields.iter().try_for_each(|field| self.field(field))?;
                self.inside.pop();
                Ok(())
            }
            Body::Union(tag, arms) => {
                self.inside.push(name.to_owned());
                self.field(tag)?;
                let value = self.words.last().map(|word| u64::from(word.value));
                let is = |case: &String| self.all.constants.get(case).copied() == value;
                let arm = arms.iter().find(|(cases, _)| cases.iter().any(is));
                if let (_, Some(field)) = arm.ok_or(Bad)? {
                    self.field(field)?;
                }
                self.inside.pop();
                Ok(())
            }
        }
    }

    fn field(&mut self, field: &Declaration) -> Result<(), Bad> {
        self.fields.push(field.name.clone());
        self.shaped(field)?;
        self.fields.pop();
        Ok(())
    }

    fn shaped(&mut self, field: &Declaration) -> Result<(), Bad> {
        match field.shape {
            Shape::One => self.element(&field.of),
            Shape::Optional => match self.word()? {
                0 => Ok(()),
                1 => self.element(&field.of),
                _ => Err(Bad),
            },
            Shape::Fixed(bytes) => (0..bytes.div_ceil(4)).try_for_each(|_| self.word().map(drop)),
            Shape::Array => {
                let count = self.word()?;
                match field.of {
                    Type::Opaque => self.value(count as usize),
                    _ => (0..count).try_for_each(|_| self.element(&field.of)),
                }
            }
        }
    }

    fn element(&mut self, of: &Type) -> Result<(), Bad> {
        match of {
            Type::UnsignedInt => self.word().map(drop),
            Type::UnsignedHyper => self.word().and_then(|_| self.word()).map(drop),
            Type::Bool => match self.word()? {
                0 | 1 => Ok(()),
                _ => Err(Bad),
            },
            Type::Opaque => panic!("bytes are in arrays"),
            Type::Named(name) => self.named(name),
        }
    }

    /// Labels the value of a characteristic or property, `len` bytes long. Its type is named by the
    /// word before its length.
    fn value(&mut self, len: usize) -> Result<(), Bad> {
        let which = self.words.iter().rev().nth(1).map(|word| word.value);
        let mut properties = self.properties.iter().copied();
        let known = properties.find(|code| Some(code.value) == which);
        if let Some(code) = known {
            self.fields.push(code.constant.to_owned());
        }
        let inside = self.left.get(..len.div_ceil(4)).ok_or(Bad)?;
        let behind = &self.left[inside.len()..];
        self.left = inside;
        match known {
            Some(code) => self.whole(code.of)?,
            None => inside.iter().try_for_each(|_| self.word().map(drop))?,
        }
        self.left = behind;
        if known.is_some() {
            self.fields.pop();
        }
        Ok(())
    }
}

fn declarations(body: &Body) -> Vec<&Declaration> {
    match body {
        Body::Enum(_) | Body::Typedef(_) => Vec::new(),
        Body::Struct(fields) => fields.iter().collect(),
        Body::Union(tag, arms) => {
            let fields = arms.iter().filter_map(|(_, field)| field.as_ref());
            std::iter::once(tag).chain(fields).collect()
        }
    }
}

/// Returns whether a field consists of other fields, and has no word of its own.
fn is_composed(all: &Specification, field: &Declaration) -> bool {
    match (&field.of, field.shape) {
        (Type::Named(name), Shape::One) => match all.body(name) {
            Some(Body::Struct(_) | Body::Union(..)) => true,
            Some(Body::Typedef(declared)) => is_composed(all, declared),
            _ => false,
        },
        _ => false,
    }
}
