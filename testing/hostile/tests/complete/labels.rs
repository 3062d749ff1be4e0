//! Labels the words of an operation's information with their fields in the XDR of the specification
//! (`drafts/xdr`).

use std::collections::BTreeSet;

use xdr_oracle::xdr::{
    Body, CHARACTERISTICS, Declaration, FILES, OPERATIONS, Shape, Specification, Type, parse,
};

/// The files whose fields must have cases.
const COVERED: [&str; 2] = ["xchar.x", "rtr.x"];
/// The files of the working group's version 2, and of its extension for data placement. Their fields
/// must have cases as well.
const WG: [&str; 2] = ["rpcrdma2wg.x", "wg-ddp.x"];
/// The properties of data placement in the working group's version 2, and the types of their values.
const PLACEMENT: [(&str, &str); 3] = [
    ("RDMA2_PROPID_RBSTRUCT", "rpcrdma2_prop_rbstruct"),
    ("RDMA2_PROPID_PLACEMENT", "rpcrdma2_prop_placement"),
    ("RDMA2_PROPID_RESMIN", "rpcrdma2_prop_resmin"),
];

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
    /// The structure or union that declares the innermost of them.
    pub(crate) bad_of: String,
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
        for (name, text) in FILES {
            let before = all.types.len();
            parse(text, &mut all).expect("XDR");
            if WG.contains(name) {
                for (of, body) in &all.types[before..] {
                    let own = declarations(body).into_iter();
                    let own = own.filter(|field| !is_composed(&all, field));
                    wg.push((of.clone(), own.map(|field| field.name.clone()).collect()));
                }
            }
            if COVERED.contains(name) {
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

    /// Returns the numbers of the header types of data placement in the working group's version 2.
    pub(crate) fn placed_types(&self) -> BTreeSet<u32> {
        let types = ["RDMA2_CALL_PLACED", "RDMA2_REPLY_PLACED"];
        let all = types.iter().flat_map(|prefix| self.constants(prefix));
        all.map(|(_, number)| number).collect()
    }

    /// Labels the header of a message of the working group's version 2, or of its extension.
    pub(crate) fn label_wg(&self, message: &[u32]) -> Labelled {
        let mut walk = Walk::new(&self.all, message, &PLACEMENT);
        let placed = message
            .get(3)
            .is_some_and(|number| self.placed_types().contains(number));
        let bad = walk.named(if placed {
            "rpcrdma2_placed_msg"
        } else {
            "rpcrdma2wg_msg"
        });
        walk.labelled(bad)
    }

    /// Labels information. Returns `None` if the operation does not exist.
    pub(crate) fn label(&self, opttype: u32, info: &[u32]) -> Option<Labelled> {
        let number = Some(u64::from(opttype));
        let (_, of) = OPERATIONS
            .iter()
            .find(|(name, _)| self.all.constants.get(*name).copied() == number)?;
        let mut walk = Walk::new(&self.all, info, CHARACTERISTICS);
        let bad = walk.whole(of);
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
    /// The properties whose values have a type, with it. Others are bytes.
    properties: &'a [(&'a str, &'a str)],
}

impl<'a> Walk<'a> {
    fn new(all: &'a Specification, left: &'a [u32], properties: &'a [(&'a str, &'a str)]) -> Self {
        Self {
            all,
            left,
            fields: Vec::new(),
            inside: Vec::new(),
            words: Vec::new(),
            properties,
        }
    }

    fn labelled(self, result: Result<(), Bad>) -> Labelled {
        let of = self.inside.last().cloned().unwrap_or_default();
        Labelled {
            bad: result.err().map(|Bad| self.fields),
            bad_of: of,
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
            self.inside.push(last.of.clone());
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
        let known = self.properties.iter().find(|(name, _)| {
            let number = self.all.constants.get(*name).copied();
            number == which.map(u64::from)
        });
        if let Some((name, _)) = known {
            self.fields.push((*name).to_owned());
        }
        let inside = self.left.get(..len.div_ceil(4)).ok_or(Bad)?;
        let behind = &self.left[inside.len()..];
        self.left = inside;
        match known {
            Some((_, of)) => self.whole(of)?,
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
