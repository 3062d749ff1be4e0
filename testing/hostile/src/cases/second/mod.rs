//! Version 2 (version-two-01) and the operations of its extensions (xcharext-02, rtrext-00),
//! against ends that have all of them.

pub(super) mod callbacks;
pub(super) mod characteristics;
pub(super) mod groups;
pub(super) mod headers;
pub(super) mod replies;
pub(super) mod reports;
pub(super) mod requests;

use super::on;
use crate::End::Lives;
use crate::client::{self, Step, Step::*};
use crate::wire::v2::{self, CALL, INITXCH, bytes};

/// The XID of the invalid message.
const XID: u32 = 0x0bad;
/// The XID of the hostile end's characteristics.
const INIT: u32 = 0x0f00_0001;
/// The credits that the server grants.
const GRANT: u32 = 16;
/// The memory of 22 receive buffers of 66,560 bytes, and of a call's data.
pub(super) const RECEIVES: usize = 3 << 20;

/// Returns a script that establishes a connection of version 2, exchanges the characteristics of
/// both ends, and continues with `steps`.
fn on_second(steps: Vec<Step>) -> Vec<Step> {
    let first = v2::operation(INIT, CALL, INITXCH, &v2::everything(), &[]);
    beginning(first, steps)
}

/// Returns a script that establishes a connection of version 2 with this first message, and
/// continues with `steps`.
pub(super) fn beginning(first: Vec<u8>, mut steps: Vec<Step>) -> Vec<Step> {
    let mut script = vec![Second, Send(first), HearOperation(INITXCH)];
    script.append(&mut steps);
    on(script)
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
    client::case(name, section, on_second(steps), Lives).costing(RECEIVES)
}

/// Returns a case with a message that is silently discarded.
fn discarded(name: &'static str, section: &'static str, message: Vec<u8>) -> client::Case {
    row(name, section, vec![message], vec![])
}

/// Returns a case with a message that is answered with RDMA2_ERR_BAD_HEADER.
fn bad_header(name: &'static str, section: &'static str, message: Vec<u8>) -> client::Case {
    row(name, section, vec![message], vec![v2::bad_header(XID)])
}

/// Encodes the four fixed fields, followed by these words.
fn words(version: u32, procedure: u32, rest: &[u32]) -> Vec<u8> {
    bytes(&[&[XID, version, v2::CREDITS, procedure], rest].concat())
}
