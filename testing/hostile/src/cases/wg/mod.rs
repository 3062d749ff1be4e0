//! The working group's version 2 (version-two-07), and its extension for data placement, against
//! ends that have both. Where the document leaves something open, `drafts/errata-07.md` settles it.

pub(super) mod calls;
pub(super) mod continued;
pub(super) mod credits;
pub(super) mod headers;
pub(super) mod placed_replies;
pub(super) mod placement;
pub(super) mod properties;
pub(super) mod replies;
pub(super) mod reverse;
mod scripts;
pub(super) mod server_properties;

use rpcrdma_conform::fields::Word;

use super::on;
use super::vary::{self, Limits, called, changes, words_wg};
use crate::End::{self, Lives};
use crate::client::{self, Step, Step::*};
use crate::wire::rpc;
use crate::wire::wg::{self, CONNPROP_FINAL, CREDIT, VERSION};

/// The XID of the invalid message.
const XID: u32 = 0x0bad;
/// The memory of the receive buffers of both ends, and of a call's data.
pub(super) const RECEIVES: usize = 3 << 20;
/// The minimum length of a message, in bytes: shorter ones are discarded (errata-07, 11).
const PREFIX: usize = wg::PREFIX;

/// The words of the prefix, which each header begins with.
const PREFIX_WORDS: usize = PREFIX / 4;

/// Returns a script that establishes a connection, exchanges the properties of the base protocol,
/// and continues with `steps`.
fn on_wg(steps: Vec<Step>) -> Vec<Step> {
    introduced(&wg::plain_properties(), steps)
}

/// Like [`on_wg`], with these properties.
fn introduced(properties: &[u32], steps: Vec<Step>) -> Vec<Step> {
    beginning(wg::introduction(properties), steps)
}

/// Returns a script that establishes a connection with this first message, which the server answers
/// with its properties, and continues with `steps`.
pub(super) fn beginning(first: Vec<u8>, mut steps: Vec<Step>) -> Vec<Step> {
    let mut script = vec![Wg, Send(first), HearType(CONNPROP_FINAL)];
    script.append(&mut steps);
    on(script)
}

fn script(
    name: impl Into<String>,
    section: &'static str,
    steps: Vec<Step>,
    end: End,
) -> client::Case {
    client::case(name, section, steps, end).costing(RECEIVES)
}

/// Returns a case whose messages are answered with exactly these words. The connection lives: a
/// further call on it is the next to be answered.
fn row(
    name: impl Into<String>,
    section: &'static str,
    messages: Vec<Vec<u8>>,
    answers: Vec<Vec<u32>>,
) -> client::Case {
    let mut steps: Vec<Step> = messages.into_iter().map(Send).collect();
    steps.extend(answers.into_iter().map(|words| HearWords(words, false)));
    script(name, section, on_wg(steps), Lives)
}

/// Returns a case with a message that is answered with this error.
fn refused(
    name: impl Into<String>,
    section: &'static str,
    message: Vec<u8>,
    error: &[u32],
) -> client::Case {
    row(name, section, vec![message], vec![wg::answer(XID, error)])
}

/// Returns a case with a message that is silently discarded.
fn discarded(name: impl Into<String>, section: &'static str, message: Vec<u8>) -> client::Case {
    row(name, section, vec![message], vec![])
}

/// The result of a message with a changed field.
#[derive(Clone, Debug)]
enum Said {
    /// RDMA2_ERROR with these words.
    Error(Vec<u32>),
    /// A reply with this `accept_stat`, which is not SUCCESS: what is left is the upper layer's to refuse.
    Accepted(u32),
    /// The answer that the correct message gets.
    Good,
}

use self::Said::{Accepted, Error, Good};

/// `accept_stat` GARBAGE_ARGS (RFC 5531, section 9).
const GARBAGE_ARGS: u32 = 4;

/// Returns RDMA2_ERR_BAD_XDR.
fn bad() -> Said {
    Error(vec![wg::ERR_BAD_XDR])
}

/// A correct message, and the messages around it.
#[derive(Clone, Debug)]
struct Right {
    /// The message, in words.
    name: &'static str,
    section: &'static str,
    /// The properties that the hostile end tells.
    properties: Vec<u32>,
    /// Messages that are sent before it.
    before: Vec<Vec<u8>>,
    message: Vec<u8>,
    /// Messages that are sent after it. They are discarded if it is refused.
    after: Vec<Vec<u8>>,
    good: Vec<Step>,
}

impl Right {
    /// Creates a correct message, which has these consequences.
    fn new(name: &'static str, section: &'static str, message: Vec<u8>, good: Vec<Step>) -> Self {
        Self {
            name,
            section,
            properties: wg::plain_properties(),
            before: Vec::new(),
            message,
            after: Vec::new(),
            good,
        }
    }

    /// Returns the words of its header, with the names of the `.x` files.
    fn words(&self) -> Vec<Word<'static>> {
        words_wg(&self.message)
    }

    /// Returns the length of its header, bytes.
    fn header(&self) -> usize {
        self.words().last().map_or(0, |word| word.at + 4)
    }

    /// Returns the value of a field.
    fn value(&self, field: &str) -> u32 {
        called(&self.words(), field).value
    }

    /// Returns the message with another value in a field.
    fn set(&self, field: &str, value: u32) -> Vec<u8> {
        vary::with(&self.message, called(&self.words(), field), value)
    }

    /// Returns the case of the correct message.
    fn control(&self) -> client::Case {
        let name = format!("control: {}", self.name);
        self.instead(name, self.message.clone(), &Good)
    }

    fn sent(&self, message: Vec<u8>) -> Vec<Step> {
        let all = self.before.iter().chain([&message]).chain(&self.after);
        all.cloned().map(Send).collect()
    }

    /// Returns a case with another message in the place of the correct one.
    fn instead(&self, name: impl Into<String>, message: Vec<u8>, said: &Said) -> client::Case {
        let word = |at: usize| {
            let bytes = message.get(at..at + 4)?.first_chunk()?;
            Some(u32::from_be_bytes(*bytes))
        };
        // An error has the XID and the version of the message that it is about (section 7).
        let (xid, version) = (word(0).unwrap_or_default(), word(4).unwrap_or_default());
        let mut steps = self.sent(message);
        match said {
            Error(error) => {
                let words = [&[xid, version, 0, wg::ERROR], &error[..]].concat();
                steps.push(HearWords(words, false));
            }
            Accepted(status) => {
                let reply = [&wg::success(xid, &[])[..10], &[*status]].concat();
                steps.push(HearWords(reply, false));
            }
            Good => steps.extend(self.good.iter().cloned()),
        }
        let steps = introduced(&self.properties, steps);
        script(name, self.section, steps, Lives)
    }

    /// Returns a case in which a word has another value.
    fn changed(&self, word: &Word<'_>, value: u32, said: &Said) -> client::Case {
        let name = format!("{}: {} is {value}", self.name, word.place);
        self.instead(name, vary::with(&self.message, word, value), said)
    }

    /// Returns a case in which one field has another value.
    fn with(&self, field: &str, value: u32, said: &Said) -> client::Case {
        self.changed(called(&self.words(), field), value, said)
    }

    fn rows(&self, rows: &[(&str, u32, Said)]) -> Vec<client::Case> {
        let row = |(field, value, said): &(&str, u32, Said)| self.with(field, *value, said);
        rows.iter().map(row).collect()
    }

    /// Returns the cases in which one field behind the prefix has each value that is tried in its place. `said` tells what
    /// comes of it, by the field's name without what is around it; if nothing, other cases have the field.
    fn varied(
        &self,
        limits: Limits<'_>,
        said: impl Fn(&str, u32) -> Option<Said>,
    ) -> Vec<client::Case> {
        let words = self.words().split_off(PREFIX_WORDS);
        let case = |(word, value): (&Word<'_>, u32)| {
            let said = said(word.field(), value)?;
            Some(self.changed(word, value, &said))
        };
        let all = changes(&words, limits).into_iter();
        all.filter_map(case).collect()
    }

    /// Returns the cases in which the message ends before each field behind the prefix, and within it.
    fn broken_off(&self, said: &Said) -> Vec<client::Case> {
        let words = self.words().split_off(PREFIX_WORDS);
        let both = words.iter().flat_map(|word| {
            let end = |end: usize, at: &str| {
                let name = format!("{} ends {at} {}", self.name, word.place);
                self.instead(name, self.message[..end].to_vec(), said)
            };
            [end(word.at, "before"), end(word.at + 2, "within")]
        });
        both.collect()
    }

    /// Returns the cases in which the message ends too early, after each of these numbers of bytes.
    fn cut(&self, ends: &[usize], said: &Said) -> Vec<client::Case> {
        let case = |&end: &usize| {
            let name = format!("{}, {end} bytes of it", self.name);
            self.instead(name, self.message[..end].to_vec(), said)
        };
        ends.iter().map(case).collect()
    }
}

/// Returns an RPC call of an NFS procedure by root.
fn nfs(xid: u32, procedure: u32, args: Vec<u8>) -> Vec<u8> {
    let mut call = rpc::nfs(xid, procedure, args);
    call.credential = rpc::root();
    call.bytes()
}
