//! Cases of a hostile server of the working group's version 2, made of few words.

use super::{PREFIX_WORDS, XID};
use crate::End::Lives;
use crate::cases::vary::{Limits, changes, words_wg};
use crate::server::{Ask, Call, Case, LEN, Outcome, Parts as Form, Step, Step::*, case};
use crate::wire::wg::{self};

/// The memory of a client's receive buffers, at both ends of a case, and of its data.
pub(super) const RECEIVES: usize = 5 << 20;
/// The cost of a flood: a full send queue, and all socket buffers between the two, bytes.
pub(super) const FLOODED: usize = 10 << 20;

pub(super) fn with(
    ask: Ask,
    name: impl Into<String>,
    section: &'static str,
    script: Vec<Step>,
) -> Case {
    case(name, section, ask, script, Lives)
        .costing(RECEIVES)
        .saying(wg::plain_properties())
}

/// Returns a case with a message that arrives while the client waits for the reply to NULL, and the
/// client's answer.
pub(super) fn said(
    name: impl Into<String>,
    section: &'static str,
    message: Vec<u8>,
    answer: Option<Vec<u32>>,
) -> Case {
    let answer = answer.map_or(HearNothing, HearWords);
    with(Ask::Null, name, section, vec![Hear, Say(message), answer])
}

pub(super) fn silent(name: impl Into<String>, section: &'static str, message: Vec<u8>) -> Case {
    said(name, section, message, None)
}

pub(super) fn answered(
    name: impl Into<String>,
    section: &'static str,
    message: Vec<u8>,
    error: u32,
) -> Case {
    said(name, section, message, Some(wg::answer(XID, &[error])))
}

/// The end of a call whose reply has a changed field.
#[derive(Clone, Copy)]
pub(super) enum Comes {
    /// The reply is discarded, and the correct one is taken.
    Nothing,
    /// The call fails.
    Fails,
    /// The reply is taken. Only its status says that it is a lie.
    Taken,
    /// The reply is discarded and answered with this error.
    Error(u32),
}

pub(super) use self::Comes::{Error, Fails, Nothing, Taken};

/// Returns cases of a reply with changed words: part, word, name, value.
pub(super) fn rows(
    ask: Ask,
    form: Form,
    section: &'static str,
    all: &[(usize, usize, &str, u32, Comes)],
) -> Vec<Case> {
    let row = |&(part, word, field, value, comes): &(usize, usize, &str, u32, Comes)| {
        let name = format!("{field} ({word}) of part {part} is {value}");
        changed(ask, form, section, name, (part, word, value), comes)
    };
    all.iter().map(row).collect()
}

/// Returns the case of a reply with a changed word: part, word, value.
pub(super) fn changed(
    ask: Ask,
    form: Form,
    section: &'static str,
    name: String,
    change: (usize, usize, u32),
    comes: Comes,
) -> Case {
    let mut script = vec![Hear, Part(form, vec![change])];
    match comes {
        Fails | Taken => {}
        Nothing => script.push(HearNothing),
        Error(error) => script.push(HearRefusal(vec![error])),
    }
    let case = with(ask, name, section, script);
    match comes {
        Fails => case.ending(Outcome::Protocol),
        Taken => case.ending(Outcome::Refused),
        Nothing | Error(_) => case,
    }
}

/// Returns the parts of a reply, with the headers of that to the client's call, whose XID is another.
pub(super) fn replied(ask: Ask, form: Form) -> Vec<Vec<u8>> {
    let call = match ask {
        Ask::Read => Call::read(XID, LEN),
        Ask::LongRead(len) => Call::read(XID, len),
        _ => Call::null(XID),
    };
    call.parts(form, true)
}

/// Returns the cases of a part of a reply in which one field behind the prefix has each value that is tried in its
/// place. `comes` tells what comes of it, by the field's name without what is around it.
pub(super) fn varied(
    ask: Ask,
    form: Form,
    section: &'static str,
    part: usize,
    limits: Limits<'_>,
    comes: impl Fn(&str, u32) -> Comes,
) -> Vec<Case> {
    let words = words_wg(&replied(ask, form)[part]).split_off(PREFIX_WORDS);
    let all = changes(&words, limits).into_iter();
    all.map(|(word, value)| {
        let name = format!("{} of part {part} ({ask:?}) is {value}", word.place);
        let comes = comes(word.field(), value);
        changed(ask, form, section, name, (part, word.at / 4, value), comes)
    })
    .collect()
}

/// Returns a case with a changed reply that fails its call.
pub(super) fn fails(
    ask: Ask,
    form: Form,
    name: &str,
    section: &'static str,
    change: fn(&Call, &mut Vec<Vec<u8>>),
) -> Case {
    with(ask, name, section, vec![Hear, Parts(form, change)]).ending(Outcome::Protocol)
}

/// Returns a case with a message about the last call, which fails it.
pub(super) fn failing(name: &str, section: &'static str, message: fn(&Call) -> Vec<u8>) -> Case {
    with(Ask::Null, name, section, vec![Hear, Send(message)]).ending(Outcome::Protocol)
}
