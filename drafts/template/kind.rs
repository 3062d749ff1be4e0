//! The operation of @name@.

use quickcheck::Gen;
use rpcrdma_ext_@name@::Note;

use super::any::{number, opaque};
use super::optinfo::operation;
use super::{Kind, kind};
use crate::show::Fields;

pub(super) const KINDS: &[Kind] = &[kind!("@name@-note", Note, any_note, payload: false)];

fn any_note(g: &mut Gen) -> Note {
    Note {
        number: number(g),
        text: opaque(g),
    }
}

operation!(Note, "optinfo_@name@", |note: &Self, to: &mut Fields<'_>| {
    to.number("opt@name@_number", note.number)
        .field("opt@name@_text", |json| json.hex(&note.text));
});
