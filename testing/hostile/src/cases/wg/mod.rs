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

use super::on;
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

/// Words with the names of their fields in the XDR of the specification.
pub(super) type Fields = Vec<(&'static str, u32)>;

fn values(fields: &[(&'static str, u32)]) -> Vec<u32> {
    fields.iter().map(|(_, value)| *value).collect()
}

/// Returns the named words of a prefix.
fn prefix(xid: u32, htype: u32) -> Fields {
    vec![
        ("rdma_xid", xid),
        ("rdma_vers", VERSION),
        ("rdma_credit", CREDIT),
        ("rdma_htype", htype),
    ]
}

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
    /// The answer that the correct message gets.
    Good,
}

use self::Said::{Error, Good};

/// Returns RDMA2_ERR_BAD_XDR.
fn bad() -> Said {
    Error(vec![wg::ERR_BAD_XDR])
}

/// A correct message, with its named words, and the messages around it.
#[derive(Clone, Debug)]
struct Right {
    section: &'static str,
    /// The properties that the hostile end tells.
    properties: Vec<u32>,
    /// Messages that are sent before it.
    before: Vec<Vec<u8>>,
    fields: Fields,
    rest: Vec<u8>,
    /// Messages that are sent after it. They are discarded if it is refused.
    after: Vec<Vec<u8>>,
    good: Vec<Step>,
}

impl Right {
    /// Creates a correct message, which has these consequences.
    fn new(section: &'static str, fields: Fields, rest: Vec<u8>, good: Vec<Step>) -> Self {
        Self {
            section,
            properties: wg::plain_properties(),
            before: Vec::new(),
            fields,
            rest,
            after: Vec::new(),
            good,
        }
    }

    fn message(&self) -> Vec<u8> {
        let words = crate::wire::v2::bytes(&values(&self.fields));
        [&words[..], &self.rest].concat()
    }

    /// Returns the case of the correct message.
    fn control(&self, name: &str) -> client::Case {
        let mut steps = self.sent(self.message());
        steps.extend(self.good.iter().cloned());
        let steps = introduced(&self.properties, steps);
        script(format!("control: {name}"), self.section, steps, Lives)
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
            Good => steps.extend(self.good.iter().cloned()),
        }
        let steps = introduced(&self.properties, steps);
        script(name, self.section, steps, Lives)
    }

    /// Returns a case in which one field has another value.
    fn with(&self, at: usize, value: u32, said: &Said) -> client::Case {
        let mut changed = self.clone();
        changed.fields[at].1 = value;
        let name = format!("{} ({at}) is {value}", self.fields[at].0);
        self.instead(name, changed.message(), said)
    }

    fn rows(&self, rows: &[(usize, u32, Said)]) -> Vec<client::Case> {
        let row = |(at, value, said): &(usize, u32, Said)| self.with(*at, *value, said);
        rows.iter().map(row).collect()
    }

    /// Returns the cases in which the message ends too early, after each of these numbers of bytes.
    fn cut(&self, what: &str, ends: &[usize], said: &Said) -> Vec<client::Case> {
        let whole = self.message();
        let case = |&end: &usize| {
            let name = format!("{what}, {end} bytes of it");
            self.instead(name, whole[..end].to_vec(), said)
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
