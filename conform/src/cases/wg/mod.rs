//! Cases of the working group's version 2 (draft-ietf-nfsv4-rpcrdma-version-two-07).
//!
//! Where the text contradicts itself or is silent, a case has no level MUST, or allows every reading.
//! `drafts/errata-07.md` lists these places.

mod chunks;
mod continued;
mod credits;
mod data;
mod headers;
mod properties;

pub use chunks::cases as chunks;
pub use continued::cases as continued;
pub use headers::cases as headers;
pub use properties::cases as properties;

use crate::case::{Case, Ground, Step, case, opening};
use crate::dialect::Dialect;
use crate::expect::{Expect, Reply, success};
use crate::wire::wg::{self, CREDIT, VERSION};
use crate::wire::{mpa, v2};

/// The address of the simplest case of all: without credits, no other says anything new.
const FIRST: &str = "rpcrdma2-07/4.2.1.1/1";
/// The addresses of the simplest case of each error.
const FIRST_INVAL_HTYPE: &str = "rpcrdma2-07/6.1/1";
const FIRST_BAD_XDR: &str = "rpcrdma2-07/7.2.1/1";
const FIRST_BAD_PROPVAL: &str = "rpcrdma2-07/5.1/1";
const FIRST_INVAL_CONT: &str = "rpcrdma2-07/6.3.4/2";
const FIRST_ERR_VERS: &str = "rpcrdma2-07/7.1.1/1";

const SILENCE: &str = "nothing, and the next call is answered";
const BAD_XDR: &str = "RDMA2_ERROR with BAD_XDR, and the next call is answered";
const INVAL_CONT: &str = "RDMA2_ERROR with INVAL_CONT, and the next call is answered";

/// Returns all cases.
pub(super) fn all(ground: &Ground) -> Vec<Case> {
    [
        credits::cases(ground),
        headers(ground),
        credits::first_versions(ground),
        properties(ground),
        continued(ground),
        chunks(ground),
        data::cases(ground),
        credits::floods(ground),
    ]
    .concat()
}

/// Creates a case of level MUST on a connection whose client has told its properties.
fn row(
    section: &'static str,
    number: u32,
    sends: impl Into<String>,
    expects: &'static str,
    steps: Vec<Step>,
) -> Case {
    let script = [opening(Dialect::Wg), steps].concat();
    told(case(section, number, sends, expects, script))
}

/// Creates a case of level MUST whose client sends this as its first message.
fn first_row(
    section: &'static str,
    number: u32,
    sends: impl Into<String>,
    expects: &'static str,
    first: Vec<u8>,
    steps: Vec<Step>,
) -> Case {
    let connect = vec![Step::Connect(mpa::PRIVATE_DATA.to_vec()), Step::Send(first)];
    let script = [connect, steps].concat();
    told(case(section, number, sends, expects, script))
}

fn told(case: Case) -> Case {
    let case = case.speaking(Dialect::Wg);
    match case.address() == FIRST {
        true => case,
        false => case.needs(FIRST),
    }
}

/// Makes a case depend on the simplest one of its error, unless it is that.
fn based(case: Case, base: &'static str) -> Case {
    match case.address() == base {
        true => case,
        false => case.needs(base),
    }
}

/// Returns an RDMA2_ERROR with these words behind the header type.
fn error(xid: u32, words: &[u32]) -> Expect {
    Expect::Error(xid, VERSION, words.iter().copied().map(Some).collect())
}

/// Returns the step that expects this RDMA2_ERROR.
fn refused(xid: u32, words: &[u32]) -> Step {
    Step::Expect(vec![error(xid, words)])
}

fn reply(reply: Reply) -> Step {
    Step::Expect(vec![Expect::Reply(reply)])
}

/// Returns two different XIDs.
fn two_xids(ground: &Ground) -> (u32, u32) {
    let (one, two) = (ground.xid(), ground.xid());
    // The ground of a list has one XID.
    (one, if two == one { one.wrapping_add(1) } else { two })
}

fn null(xid: u32) -> Vec<u8> {
    wg::call(xid, &crate::wire::rpc::null(xid).bytes())
}

/// Returns the steps of a NULL call and its reply.
fn answered(xid: u32) -> Vec<Step> {
    vec![Step::Send(null(xid)), reply(success(xid, &[]))]
}

/// A correct message, with its words by the names of their fields, and the messages around it.
#[derive(Clone)]
struct Message {
    name: &'static str,
    /// Messages that are sent before it.
    before: Vec<Vec<u8>>,
    fields: Vec<(&'static str, u32)>,
    rest: Vec<u8>,
    /// Messages that are sent after it. They are discarded where it is refused.
    after: Vec<Vec<u8>>,
}

impl Message {
    /// Creates a message with these fields behind the prefix.
    fn new(name: &'static str, xid: u32, htype: u32, fields: &[(&'static str, u32)]) -> Self {
        let prefix = [
            ("rdma_xid", xid),
            ("rdma_vers", VERSION),
            ("rdma_credit", CREDIT),
            ("rdma_htype", htype),
        ];
        Self {
            name,
            before: Vec::new(),
            fields: [&prefix[..], fields].concat(),
            rest: Vec::new(),
            after: Vec::new(),
        }
    }

    fn bytes(&self) -> Vec<u8> {
        let words: Vec<u32> = self.fields.iter().map(|(_, value)| *value).collect();
        [&v2::bytes(&words)[..], &self.rest].concat()
    }

    fn steps(&self, message: Vec<u8>) -> Vec<Step> {
        let before = self.before.iter().cloned();
        let all = before.chain([message]).chain(self.after.iter().cloned());
        all.map(Step::Send).collect()
    }
}

/// Cases of one message that is changed in one place, all with the same error.
struct Changed<'a> {
    ground: &'a Ground,
    /// Creates the correct message with this XID.
    make: &'a dyn Fn(u32) -> Message,
    section: &'static str,
    /// The allowed error codes. The first is what the text prefers.
    errors: &'a [u32],
    expects: &'static str,
    base: &'static str,
}

impl Changed<'_> {
    /// Returns a case with a word of this message changed, for each of these words and values. The cases have
    /// consecutive numbers: new ones are added at the end.
    fn fields(&self, first: u32, rows: &[(usize, u32)]) -> Vec<Case> {
        let one = |(number, (at, value)): (u32, &(usize, u32))| {
            let mut message = (self.make)(self.ground.xid());
            let name = message.fields[*at].0;
            message.fields[*at].1 = *value;
            let sends = format!("{} whose {name} (word {at}) is {value}", message.name);
            self.case(number, sends, &message, message.bytes())
        };
        (first..).zip(rows).map(one).collect()
    }

    /// Returns a case with a word of this message changed to another XID, for each of these words.
    fn other_xids(&self, first: u32, words: &[usize]) -> Vec<Case> {
        let one = |(number, at): (u32, &usize)| {
            let mut message = (self.make)(self.ground.xid());
            let name = message.fields[*at].0;
            message.fields[*at].1 ^= 0x0100_0000;
            let sends = format!("{} whose {name} (word {at}) is another XID", message.name);
            self.case(number, sends, &message, message.bytes())
        };
        (first..).zip(words).map(one).collect()
    }

    /// Returns a case in which the message ends too early, after each of these numbers of bytes.
    fn cut(&self, first: u32, ends: &[usize]) -> Vec<Case> {
        let one = |(number, end): (u32, &usize)| {
            let message = (self.make)(self.ground.xid());
            let sends = format!("{end} bytes of {}", message.name);
            self.case(number, sends, &message, message.bytes()[..*end].to_vec())
        };
        (first..).zip(ends).map(one).collect()
    }

    fn case(&self, number: u32, sends: String, message: &Message, bytes: Vec<u8>) -> Case {
        // An error has the XID of the message that it is about (section 7).
        let xid = bytes
            .first_chunk()
            .map_or(0, |xid| u32::from_be_bytes(*xid));
        let mut steps = message.steps(bytes);
        let allowed = self.errors.iter().map(|code| error(xid, &[*code]));
        steps.push(Step::Expect(allowed.collect()));
        let case = row(self.section, number, sends, self.expects, steps);
        based(case, self.base)
    }
}
