//! Checks of the XDR files that need no C: lines that an Internet-Draft can include, and the names of
//! the fields of structures.

use crate::kind::Kind;
use crate::list::FILES;
use crate::xdr::{Body, Specification};

/// The maximum length of a line, so that an Internet-Draft can include it.
const COLUMNS: usize = 69;

/// Returns what is wrong with the files, a line each.
#[must_use]
pub fn differences(all: &Specification) -> Vec<String> {
    let of_file = |file: &crate::list::File| {
        let mut wrong = lines(file.name, file.text);
        for kinds in file.kinds {
            wrong.extend(names(file.name, all, kinds));
        }
        wrong
    };
    FILES.iter().flat_map(of_file).collect()
}

/// Returns the lines of a file that no Internet-Draft can include.
#[must_use]
pub fn lines(file: &str, text: &str) -> Vec<String> {
    let mut wrong = Vec::new();
    for (number, line) in (1..).zip(text.lines()) {
        let columns = line.chars().count();
        if columns > COLUMNS {
            wrong.push(format!(
                "{file}: line {number} has {columns} columns; an Internet-Draft has {COLUMNS} for it"
            ));
        }
        if !line.is_ascii() {
            wrong.push(format!("{file}: line {number} is not ASCII"));
        }
    }
    wrong
}

/// Compares the names of the fields of structures whose codec `rpcrdma_extension::xdr_struct!` makes
/// with those in the file. The other codecs are compared by their values alone.
#[must_use]
pub fn names(file: &str, all: &Specification, kinds: &[Kind]) -> Vec<String> {
    let mut wrong = Vec::new();
    for kind in kinds {
        let (Some(made), Some(Body::Struct(fields))) = (kind.made, all.body(kind.xdr)) else {
            continue;
        };
        let (name, ours) = made();
        let theirs: Vec<_> = fields.iter().map(|field| field.name.as_str()).collect();
        if ours != theirs {
            let (theirs, ours) = (theirs.join(", "), ours.join(", "));
            wrong.push(format!(
                "{file} has {theirs} in {}; {name} has {ours}",
                kind.xdr
            ));
        }
    }
    wrong
}
