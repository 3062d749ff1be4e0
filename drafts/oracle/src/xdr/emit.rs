//! Generates C code from definitions: functions that show values as JSON by the names of their
//! fields, and tables of types, enumerations and constants. `rpcgen` generates the encoders and
//! decoders.

use std::fmt::Write;

use super::{Body, Declaration, Shape, Specification, Type};

/// Returns the C code, for a program that also contains the output of `rpcgen` for the same files.
#[must_use]
pub fn emit(all: &Specification) -> String {
    let mut c = String::from(
        "/* Made from drafts/xdr by xdr-oracle. */\n#include \"all.h\"\n#include \"oracle.h\"\n\n",
    );
    for (name, body) in &all.types {
        // Writing to a String does not fail, here and below.
        let _ = writeln!(c, "static void show_{name}(const {name} *v)\n{{");
        show(all, name, body, &mut c);
        c.push_str("}\n\n");
    }
    tables(all, &mut c);
    c
}

fn show(all: &Specification, name: &str, body: &Body, c: &mut String) {
    match body {
        Body::Enum(values) => {
            c.push_str("\tswitch (*v) {\n");
            for (value, _) in values {
                let _ = writeln!(c, "\tcase {value}: put_text(\"\\\"{value}\\\"\"); return;");
            }
            c.push_str("\t}\n\tput_number((u_int)*v);\n");
        }
        Body::Typedef(declared) => one(all, declared, "v", c),
        Body::Struct(fields) => {
            let fields = all.linked(name).map_or(&fields[..], |(fields, _)| fields);
            structure(all, fields, c);
        }
        Body::Union(tag, arms) => {
            let _ = writeln!(c, "\tput_text(\"{{\\\"{}\\\":\");", tag.name);
            one(all, tag, &format!("(&v->{})", tag.name), c);
            let _ = writeln!(c, "\tswitch (v->{}) {{", tag.name);
            let mut has_default = false;
            for (cases, field) in arms {
                for case in cases {
                    let _ = writeln!(c, "\tcase {case}:");
                }
                if cases.is_empty() {
                    c.push_str("\tdefault:\n");
                    has_default = true;
                }
                if let Some(field) = field {
                    let _ = writeln!(c, "\tput_text(\",\\\"{}\\\":\");", field.name);
                    one(all, field, &format!("(&v->{name}_u.{})", field.name), c);
                }
                c.push_str("\tbreak;\n");
            }
            if !has_default {
                c.push_str("\tdefault: break;\n");
            }
            c.push_str("\t}\n\tput_text(\"}\");\n");
        }
    }
}

fn structure(all: &Specification, fields: &[Declaration], c: &mut String) {
    for (i, field) in fields.iter().enumerate() {
        let before = if i == 0 { "{" } else { "," };
        let _ = writeln!(c, "\tput_text(\"{before}\\\"{}\\\":\");", field.name);
        one(all, field, &format!("(&v->{})", field.name), c);
    }
    c.push_str("\tput_text(\"}\");\n");
}

/// Generates code that shows the field at `at`.
fn one(all: &Specification, field: &Declaration, at: &str, c: &mut String) {
    match field.shape {
        Shape::One => element(&field.of, at, c),
        Shape::Optional => {
            let Type::Named(of) = &field.of else {
                let _ = writeln!(c, "\tif (*{at}) {{");
                element(&field.of, &format!("(*{at})"), c);
                c.push_str("\t} else put_text(\"null\");\n");
                return;
            };
            match all.linked(of) {
                Some((_, next)) => {
                    let _ = writeln!(
                        c,
                        "\tput_text(\"[\");\n\tfor (const {of} *e = *{at}; e; e = e->{next}) {{\n\
                         \t\tif (e != *{at}) put_text(\",\");\n\t\tshow_{of}(e);\n\t}}\n\
                         \tput_text(\"]\");"
                    );
                }
                None => {
                    let _ = writeln!(c, "\tif (*{at}) show_{of}(*{at}); else put_text(\"null\");");
                }
            }
        }
        Shape::Array => {
            let (len, val) = (
                format!("{at}->{}_len", field.name),
                format!("{at}->{}_val", field.name),
            );
            if field.of == Type::Opaque {
                let _ = writeln!(c, "\tput_hex({val}, {len});");
                return;
            }
            let _ = writeln!(
                c,
                "\tput_text(\"[\");\n\tfor (u_int i = 0; i < {len}; i++) {{\n\
                 \t\tif (i) put_text(\",\");"
            );
            element(&field.of, &format!("(&{val}[i])"), c);
            c.push_str("\t}\n\tput_text(\"]\");\n");
        }
        Shape::Fixed(length) => {
            let _ = writeln!(c, "\tput_hex(*{at}, {length});");
        }
    }
}

fn element(of: &Type, at: &str, c: &mut String) {
    let _ = match of {
        Type::UnsignedInt => writeln!(c, "\tput_number(*{at});"),
        Type::UnsignedHyper => writeln!(c, "\tput_wide(*{at});"),
        Type::Bool => writeln!(c, "\tput_text(*{at} ? \"true\" : \"false\");"),
        // Opaque data is never one element.
        Type::Opaque => Ok(()),
        Type::Named(name) => writeln!(c, "\tshow_{name}({at});"),
    };
}

fn tables(all: &Specification, c: &mut String) {
    for (name, _) in &all.types {
        let _ = writeln!(
            c,
            "static void put_{name}(const void *v) {{ show_{name}(v); }}"
        );
    }
    c.push_str("\nconst struct type types[] = {\n");
    for (name, _) in &all.types {
        let _ = writeln!(
            c,
            "\t{{ \"{name}\", sizeof({name}), (xdrproc_t)xdr_{name}, put_{name} }},"
        );
    }
    c.push_str("\t{ 0 }\n};\n\nconst struct value values[] = {\n");
    for (name, body) in &all.types {
        if let Body::Enum(values) = body {
            for (value, _) in values {
                let _ = writeln!(c, "\t{{ \"xdr_{name}\", {value} }},");
            }
        }
    }
    c.push_str("\t{ 0 }\n};\n");
}
