//! Changes of one field of a correct message, made from the `.x` files: the names of fields are those of the files, and
//! the values are those of a field's type ([`Word::others`]), so that a field that a file gains is changed as well, and
//! no case gets another name by it.

use rpcrdma_conform::dialect::Dialect;
pub(super) use rpcrdma_conform::fields::Limits;
use rpcrdma_conform::fields::{self, Word};
use rpcrdma_conform::vocabulary::Vocabulary;

use crate::wire::{v2, wg};

fn vocabulary(dialect: Dialect) -> &'static Vocabulary {
    let read = Vocabulary::shared(dialect);
    read.unwrap_or_else(|(name, error)| panic!("{name}: {error}"))
}

/// Returns the words of a structure of the extensions of version 2.
///
/// # Panics
/// The information is not correct, which is a mistake in a table.
pub(super) fn words_of(name: &str, info: &[u32]) -> Vec<Word<'static>> {
    let words = fields::words_of(vocabulary(Dialect::Two), name, &v2::bytes(info));
    words.unwrap_or_else(|what| panic!("{name}: {what}"))
}

/// Returns the words of the header of a message of the working group's version 2.
///
/// # Panics
/// The message is not correct, which is a mistake in a table.
pub(super) fn words_wg(message: &[u8]) -> Vec<Word<'static>> {
    let vocabulary = vocabulary(Dialect::Wg);
    let header = wg::htype(message).and_then(|htype| vocabulary.header_of(htype));
    let header = header.expect("a header type that the files have");
    let words = fields::words(vocabulary, header, message);
    words.unwrap_or_else(|what| panic!("{}: {what}", header.name))
}

/// Returns the word with this name.
///
/// # Panics
/// There is none, or several, which is a mistake in a table.
pub(super) fn called<'w, 'x>(words: &'w [Word<'x>], name: &str) -> &'w Word<'x> {
    let mut all = words.iter().filter(|word| word.is_called(name));
    match (all.next(), all.next()) {
        (Some(word), None) => word,
        (None, _) => panic!("no field is called {name}"),
        (Some(_), Some(_)) => panic!("several fields are called {name}"),
    }
}

/// Returns each of these words with each value that is tried in its place.
///
/// # Panics
/// A limit has a name that no word has, which is a mistake in a table.
pub(super) fn changes<'w, 'x>(
    words: &'w [Word<'x>],
    limits: Limits<'_>,
) -> Vec<(&'w Word<'x>, u32)> {
    let all = fields::changes(words, limits);
    all.unwrap_or_else(|name| panic!("no field is called {name}"))
}

/// Returns the words of a structure with another value in one of them.
pub(super) fn with_word(info: &[u32], word: &Word<'_>, value: u32) -> Vec<u32> {
    let mut changed = info.to_vec();
    changed[word.at / 4] = value;
    changed
}

/// Returns a message with another value in the place of a word.
pub(super) fn with(message: &[u8], word: &Word<'_>, value: u32) -> Vec<u8> {
    let mut changed = message.to_vec();
    changed[word.at..word.at + 4].copy_from_slice(&value.to_be_bytes());
    changed
}
