//! The fields of a message: those that the codecs say, and those that tshark shows.
//!
//! The codecs say a value by the names of its fields (`xdr_oracle::vectors`), and the XDR files say
//! their order; the dissector shows lines. Both become a list of names and values in the order of
//! the wire, with opaque data that holds XDR followed by its fields.

use std::collections::BTreeSet;
use std::fmt;

use serde_json::Value;
use xdr_oracle::kind::Kind;
use xdr_oracle::list::{self, Role, codes};
use xdr_oracle::vectors;
use xdr_oracle::xdr::{Body, Declaration, Shape, Specification, Type, of_files};

use super::pdml::Layer;
use crate::error::Error;

/// The fields that the dissector adds by itself.
const GENERATED: &[&str] = &[
    "request_in",
    "response_in",
    "time",
    "reassembled_in",
    "call_in",
    "sent",
    "peer_sent",
    "peer_may_send",
    "unknown",
];

/// The lists of bits whose words of zero at the end have no meaning (xcharext-02, section 3.2).
const SUBSETS: &[&str] = &[
    "optixch_nochg",
    "optrespxch_done",
    "optrespxch_rej",
    "optrespxch_pend",
];

/// A field's value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Shown {
    /// A structure, a union, or an element of a list.
    Group,
    /// A number, an enumeration or a boolean.
    Number(u64),
    /// Opaque data, in hexadecimal.
    Bytes(String),
}

/// A field in its place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Field {
    /// The nesting, from 0.
    pub(crate) depth: usize,
    /// The name in the XDR files.
    pub(crate) name: String,
    /// The value.
    pub(crate) value: Shown,
    /// Whether this is opaque data whose content no codec accepts, so that nothing is said of it.
    pub(crate) is_opaque: bool,
}

impl fmt::Display for Field {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}@{}={:?}", self.name, self.depth, self.value)
    }
}

/// The codecs and the XDR files.
pub(crate) struct Codecs {
    all: Specification,
    kinds: Vec<Kind>,
    /// The names of the fields that are opaque data.
    opaque: BTreeSet<String>,
}

/// The result of decoding bytes with this project's codecs.
pub(crate) enum Said {
    /// The fields.
    Fields(Vec<Field>),
    /// The codecs refuse the bytes.
    Refused,
}

impl Codecs {
    /// Reads the XDR files.
    pub(crate) fn new() -> Result<Self, Error> {
        let all = of_files();
        let all =
            all.map_err(|(file, error)| Error::ours("drafts/xdr")(format!("{file}: {error}")))?;
        let kinds = list::kinds();
        let opaque = all.types.iter().flat_map(|(_, body)| opaque_fields(body));
        let opaque = opaque.collect();
        Ok(Self { all, kinds, opaque })
    }

    /// Returns the content of a header, without a line for itself.
    pub(crate) fn header(&self, xdr: &str, bytes: &[u8]) -> Said {
        let Some(value) = self.decode(xdr, &hex(bytes)) else {
            return Said::Refused;
        };
        Said::Fields(self.header_fields(xdr, &value))
    }

    /// Returns the fields of a header that a vector has as JSON.
    pub(crate) fn header_fields(&self, xdr: &str, value: &Value) -> Vec<Field> {
        let mut fields = Vec::new();
        self.body(xdr, value, 0, &mut fields);
        fields
    }

    /// Returns the fields of a value that opaque data holds, with a line for itself.
    pub(crate) fn value_fields(&self, xdr: &str, value: &Value, depth: usize) -> Vec<Field> {
        let mut fields = Vec::new();
        self.named(xdr, xdr, value, depth, &mut fields);
        fields
    }

    /// Decodes with the workspace's codec.
    fn decode(&self, xdr: &str, hexadecimal: &str) -> Option<Value> {
        let answer = vectors::answer(&self.kinds, &format!("{xdr} {hexadecimal}"))?;
        let json = answer.strip_prefix("accept ")?.splitn(3, ' ').nth(2)?;
        serde_json::from_str(json).ok()
    }

    fn field(&self, declared: &Declaration, value: &Value, depth: usize, to: &mut Vec<Field>) {
        let name = &declared.name;
        let mut each = |value: &Value| match &declared.of {
            Type::Named(of) => self.named(name, of, value, depth, to),
            Type::UnsignedInt | Type::UnsignedHyper | Type::Bool | Type::Opaque => {
                push(to, depth, name, Shown::Number(number(value)));
            }
        };
        match (declared.shape, value) {
            (Shape::Optional, Value::Null) => {}
            (Shape::Array, Value::String(data)) if declared.of == Type::Opaque => {
                push(to, depth, name, Shown::Bytes(data.clone()));
            }
            (Shape::Array | Shape::Optional, Value::Array(values)) => values.iter().for_each(each),
            _ => each(value),
        }
    }

    /// Adds a value of a type that the files define.
    fn named(&self, name: &str, of: &str, value: &Value, depth: usize, to: &mut Vec<Field>) {
        match self.all.body(of) {
            Some(Body::Enum(_)) => {
                let known = value.as_str().and_then(|text| self.all.constants.get(text));
                push(
                    to,
                    depth,
                    name,
                    Shown::Number(known.copied().unwrap_or(u64::MAX)),
                );
            }
            Some(Body::Typedef(declared)) => {
                let declared = Declaration {
                    name: name.to_owned(),
                    ..declared.clone()
                };
                self.field(&declared, value, depth, to);
            }
            _ => {
                push(to, depth, name, Shown::Group);
                self.body(of, value, depth + 1, to);
            }
        }
    }

    /// Adds the fields of a structure or union.
    fn body(&self, of: &str, value: &Value, depth: usize, to: &mut Vec<Field>) {
        match self.all.body(of) {
            Some(Body::Struct(fields)) => {
                let fields = self
                    .all
                    .linked(of)
                    .map_or(&fields[..], |(fields, _)| fields);
                for declared in fields {
                    self.field(declared, &value[&declared.name], depth, to);
                    self.inside(declared, value, depth + 1, to);
                }
            }
            Some(Body::Union(tag, arms)) => {
                self.field(tag, &value[&tag.name], depth, to);
                let arm = arms.iter().filter_map(|(_, arm)| arm.as_ref());
                let mut arm = arm.filter(|arm| value.get(&arm.name).is_some());
                if let Some(declared) = arm.next() {
                    self.field(declared, &value[&declared.name], depth, to);
                }
            }
            _ => {}
        }
    }

    /// Adds the fields of what opaque data holds, if a number beside it says its type.
    fn inside(&self, declared: &Declaration, around: &Value, depth: usize, to: &mut Vec<Field>) {
        let number = match declared.name.as_str() {
            "rdma_optinfo" => &around["rdma_opttype"],
            "xchv_data" => &around["xchv_which"],
            // No bytes at all stand for the default (version-two-07, section 5.1).
            "rdma_data" if around["rdma_data"] != "" => &around["rdma_which"],
            _ => return,
        };
        let Some(xdr) = self.inside_type(&declared.name, number.as_u64().unwrap_or(u64::MAX))
        else {
            return;
        };
        let text = around[&declared.name].as_str().unwrap_or("");
        match self.decode(xdr, text) {
            Some(value) => to.extend(self.value_fields(xdr, &value, depth)),
            None => {
                if let Some(field) = to.last_mut() {
                    field.is_opaque = true;
                }
            }
        }
    }

    /// Returns the XDR type of an operation, a characteristic or a property.
    fn inside_type(&self, field: &str, number: u64) -> Option<&'static str> {
        let role = match field {
            "rdma_optinfo" => Role::Operation,
            "rdma_data" => Role::Property,
            _ => Role::Characteristic,
        };
        let code = codes(role).find(|code| u64::from(code.value) == number);
        code.map(|code| code.of)
    }

    /// Returns the fields that tshark shows of a message.
    pub(crate) fn shown(&self, layer: &Layer) -> Vec<Field> {
        let mut fields = Vec::new();
        for line in &layer.lines {
            let Some((protocol, name)) = line.name.split_once('.') else {
                continue;
            };
            let is_other = name.starts_with("rule.") || GENERATED.contains(&name);
            if is_other || protocol != layer.protocol {
                continue;
            }
            let number = match line.show.strip_prefix("0x") {
                Some(digits) => u64::from_str_radix(digits, 16).ok(),
                None => line.show.parse().ok(),
            };
            let value = match number {
                // Shown as its bytes with colons, which can look like a number.
                _ if self.opaque.contains(name) => Shown::Bytes(line.value.clone()),
                Some(number) => Shown::Number(number),
                None => Shown::Group,
            };
            push(&mut fields, line.depth, name, value);
        }
        fields
    }

    /// Returns a constant of the XDR files.
    pub(crate) fn constant(&self, name: &str) -> u32 {
        let value = self.all.constants.get(name).copied();
        value
            .and_then(|value| u32::try_from(value).ok())
            .unwrap_or(u32::MAX)
    }
}

fn push(to: &mut Vec<Field>, depth: usize, name: &str, value: Shown) {
    to.push(Field {
        depth,
        name: name.to_owned(),
        value,
        is_opaque: false,
    });
}

fn number(value: &Value) -> u64 {
    match value {
        Value::Bool(value) => u64::from(*value),
        Value::String(digits) => digits.parse().unwrap_or(u64::MAX),
        other => other.as_u64().unwrap_or(u64::MAX),
    }
}

/// Returns bytes in hexadecimal.
pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Returns the names of the fields of a type that are opaque data.
fn opaque_fields(body: &Body) -> Vec<String> {
    let fields: Vec<&Declaration> = match body {
        Body::Enum(_) => Vec::new(),
        Body::Typedef(declared) => vec![declared],
        Body::Struct(fields) => fields.iter().collect(),
        Body::Union(_, arms) => arms.iter().filter_map(|(_, arm)| arm.as_ref()).collect(),
    };
    let opaque = fields.into_iter().filter(|field| field.of == Type::Opaque);
    opaque.map(|field| field.name.clone()).collect()
}

/// Returns the rules that tshark says a message violates.
pub(crate) fn rules(layer: &Layer) -> Vec<String> {
    let names = layer
        .lines
        .iter()
        .filter_map(|line| line.name.split_once('.'));
    let rules = names.filter_map(|(_, name)| name.strip_prefix("rule."));
    rules.map(str::to_owned).collect()
}

/// Removes words of zero from the ends of lists of bits.
fn without_zeros(fields: &[Field]) -> Vec<Field> {
    let mut kept: Vec<Field> = Vec::new();
    for (at, field) in fields.iter().enumerate() {
        let is_zero = |field: &Field| field.value == Shown::Number(0);
        let rest = fields[at..]
            .iter()
            .take_while(|next| next.name == field.name);
        let is_end = SUBSETS.contains(&field.name.as_str()) && rest.into_iter().all(is_zero);
        if !is_end {
            kept.push(field.clone());
        }
    }
    kept
}

/// Compares what the codecs say with what is shown. Returns the first difference.
pub(crate) fn difference(said: &[Field], shown: &[Field]) -> Option<String> {
    let (said, mut shown) = (without_zeros(said), without_zeros(shown));
    // What no codec accepts, the dissector shows as far as it can.
    let mut at = 0;
    while at < said.len() && at < shown.len() {
        if said[at].is_opaque {
            let depth = said[at].depth;
            while shown.get(at + 1).is_some_and(|next| next.depth > depth) {
                shown.remove(at + 1);
            }
        }
        at += 1;
    }
    let same = |a: &Field, b: &Field| (a.depth, &a.name, &a.value) == (b.depth, &b.name, &b.value);
    let at = said.iter().zip(&shown).position(|(a, b)| !same(a, b));
    let at = at.or_else(|| (said.len() != shown.len()).then_some(said.len().min(shown.len())))?;
    let show = |fields: &[Field]| {
        fields
            .get(at)
            .map_or("nothing".to_owned(), Field::to_string)
    };
    Some(format!(
        "field {at}: codecs say {}, tshark {}",
        show(&said),
        show(&shown)
    ))
}
