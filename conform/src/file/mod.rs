//! Cases in files: a small language for plain exchanges, with a line for each message, as in a ladder diagram
//! (docs/conform-language.md).
//!
//! [`parse`] makes [`crate::case::Case`]s of a file, which are performed like the built-in ones. [`load()`] reads files
//! and folders. [`Recording`] makes cases of exchanges that were captured.

mod draft;
mod line;
mod load;
mod message;
mod recorded;
#[cfg(test)]
mod tests;
mod value;

use crate::case::{Case, Ground};
use crate::dialect::Dialect;
use draft::Draft;
use line::{Line, Wrong, lines};
use message::Budget;

pub use line::Error;
pub use load::{Vocabularies, load};
pub use recorded::{Left, MOST_CASES, Recorded, Recording, Written};

/// The words that begin a line.
const WORDS: &str = "--> TYPE, <-- TYPE, or <-- TYPE, FIELD = VALUE, rpc = VALUE, offer, room, holds, connect, end, \
     case, speaks, sends, expects, needs, or hostile";

/// Makes cases of a file, on this ground.
///
/// # Errors
/// The first line that is none of the language.
pub fn parse(
    name: &str,
    text: &str,
    vocabularies: &Vocabularies,
    ground: &Ground,
) -> Result<Vec<Case>, Error> {
    let mut cases = Vec::new();
    let mut draft: Option<Draft<'_>> = None;
    let mut budget = Budget::of_file();
    for line in lines(text) {
        let first = line.text.split_whitespace().next().unwrap_or_default();
        if first == "case" {
            if let Some(done) = draft.take() {
                let (case, left) = done.finish().map_err(|wrong| wrong.of(name))?;
                cases.push(case);
                budget = left;
            }
            let begun = Draft::begin(line, ground, budget).map_err(|wrong| wrong.of(name))?;
            draft = Some(begun);
            continue;
        }
        let Some(draft) = &mut draft else {
            let instead = "case rpcrdma2-07/6.1/901 MUST: document, section, number, level";
            let what = format!("{first} before the first case");
            return Err(line.wrong(what, instead).of(name));
        };
        step(draft, line, first, vocabularies, name)?;
    }
    if let Some(done) = draft {
        let (case, _) = done.finish().map_err(|wrong| wrong.of(name))?;
        cases.push(case);
    }
    match cases.is_empty() {
        false => Ok(cases),
        true => Err(Error {
            file: name.to_owned(),
            line: 0,
            column: 0,
            what: "there is no case in it".into(),
            instead: "case rpcrdma2-07/6.1/901 MUST, and what is sent and expected".into(),
        }),
    }
}

/// Takes a line of a case.
fn step<'a>(
    draft: &mut Draft<'a>,
    line: Line<'a>,
    first: &str,
    vocabularies: &Vocabularies,
    name: &str,
) -> Result<(), Error> {
    let of = |wrong: Wrong| wrong.of(name);
    if draft.told(line, first) {
        return Ok(());
    }
    // Not before this: the lines that `told` takes have free text, in which a quotation mark may stand alone.
    let words = line.words().map_err(of)?;
    if first == "speaks" {
        let mut all = Dialect::ALL.into_iter();
        let dialect = all.find(|it| Some(&it.group()) == words.get(1));
        let wrong = || {
            line.wrong_at(
                words.get(1).copied().unwrap_or_default(),
                format!("{} is no version", line.rest()),
                "speaks rpcrdma1, speaks rpcrdma2-07, or speaks rpcrdma2-01",
            )
        };
        let dialect = dialect.ok_or_else(|| of(wrong()))?;
        return draft.speak(line, dialect).map_err(of);
    }
    let dialect = draft.dialect(line).map_err(of)?;
    let vocabulary = vocabularies.of(dialect)?;
    draft.step(line, &words, &vocabulary).map_err(of)
}
