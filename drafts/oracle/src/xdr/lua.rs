//! Generates the tables of the Wireshark dissector (`wireshark/rpcrdma/xdr.lua`): types and
//! constants, for a program that walks any message by the definition of its type, and the numbers that
//! select types.

use std::fmt::Write;

use super::{Body, Declaration, Shape, Specification, Type};
use crate::list::Code;

/// Returns the Lua source: a table of the constants, one of the types, and one of the numbers.
///
/// A type's `kind` is `enum`, `typedef`, `struct`, `list` (a linked list's element, without the
/// link) or `union`. A field has a name, a type, and a shape: `one`, `optional`, `array`, or `fixed`
/// with a length in bytes.
#[must_use]
pub fn emit_lua<'a>(all: &Specification, codes: impl IntoIterator<Item = &'a Code>) -> String {
    let mut lua = String::from(
        "-- Made from drafts/xdr and the list in drafts/oracle/src/list.rs by drafts/generate.\n\
         -- Do not edit: a test of xdr-oracle compares this file with what would be made.\n\
         local xdr = {}\n\nxdr.constants = {\n",
    );
    for (name, value) in &all.constants {
        // Writing to a String does not fail, here and below.
        let _ = writeln!(lua, "  {name} = {value},");
    }
    lua.push_str("}\n\nxdr.types = {\n");
    for (name, body) in &all.types {
        let _ = write!(lua, "  {name} = ");
        definition(all, name, body, &mut lua);
        lua.push_str(",\n");
    }
    lua.push_str("}\n\nxdr.codes = {\n");
    for code in codes {
        let Code { constant, of, .. } = code;
        let (role, number) = (code.role.name(), code.value);
        let _ = writeln!(
            lua,
            "  {{ role = \"{role}\", number = {number}, name = \"{constant}\",\n    type = \"{of}\" }},"
        );
    }
    lua.push_str("}\n\nreturn xdr\n");
    lua
}

fn definition(all: &Specification, name: &str, body: &Body, lua: &mut String) {
    match body {
        Body::Enum(values) => {
            lua.push_str("{ kind = \"enum\", names = {\n");
            for (value, number) in values {
                let _ = writeln!(lua, "    [{number}] = \"{value}\",");
            }
            lua.push_str("  } }");
        }
        Body::Typedef(declared) => {
            let _ = write!(
                lua,
                "{{ kind = \"typedef\",\n    of = {} }}",
                field(declared)
            );
        }
        Body::Struct(fields) => {
            let (kind, fields) = match all.linked(name) {
                Some((fields, _)) => ("list", fields),
                None => ("struct", &fields[..]),
            };
            let _ = writeln!(lua, "{{ kind = \"{kind}\", fields = {{");
            for declared in fields {
                let _ = writeln!(lua, "    {},", field(declared));
            }
            lua.push_str("  } }");
        }
        Body::Union(tag, arms) => {
            let _ = writeln!(
                lua,
                "{{ kind = \"union\",\n    tag = {},\n    arms = {{",
                field(tag)
            );
            for (cases, declared) in arms {
                let arm = declared.as_ref().map_or_else(|| "false".to_owned(), field);
                for case in cases {
                    // The parser has resolved the names of all cases.
                    let number = all.constants.get(case).copied().unwrap_or_default();
                    let _ = writeln!(lua, "    [{number}] = {arm},");
                }
                if cases.is_empty() {
                    let _ = writeln!(lua, "    default = {arm},");
                }
            }
            lua.push_str("  } }");
        }
    }
}

fn field(declared: &Declaration) -> String {
    let of = match &declared.of {
        Type::UnsignedInt => "uint32",
        Type::UnsignedHyper => "uint64",
        Type::Bool => "bool",
        Type::Opaque => "opaque",
        Type::Named(name) => name,
    };
    let shape = match declared.shape {
        Shape::One => "one",
        Shape::Optional => "optional",
        Shape::Array => "array",
        Shape::Fixed(_) => "fixed",
    };
    let name = &declared.name;
    if let Shape::Fixed(length) = declared.shape {
        return format!(
            "{{ name = \"{name}\", type = \"{of}\", shape = \"{shape}\", length = {length} }}"
        );
    }
    format!("{{ name = \"{name}\", type = \"{of}\", shape = \"{shape}\" }}")
}
