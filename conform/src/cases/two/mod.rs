//! Cases of version 2 of 2016 (draft-cel-nfsv4-rpcrdma-version-two-01) and of its extensions (xcharext-02, rtrext-00).
//!
//! Most of its rules are those of version 1, by reference. So most of its cases are those of version 1, with other
//! headers: their addresses name the section of RFC 8166 behind the document, as `rpcrdma2-01/rfc8166-4.5.2/30`. Cases
//! of extensions name the extension's document and its section there, as `rpcrdma2-01/rtrext-9.5/1`.

mod characteristics;
mod headers;
mod translated;
mod transmissions;

pub use headers::cases as headers;

use crate::case::{Case, Ground, Step, case, opening};
use crate::dialect::Dialect;
use crate::expect::Expect;
use crate::wire::v2::{ERR_BAD_HEADER, VERSION};

/// The address of the simplest case of all.
const FIRST: &str = "rpcrdma2-01/5.1/1";
/// The address of the simplest case of RDMA2_ERR_BAD_HEADER.
const FIRST_BAD_HEADER: &str = "rpcrdma2-01/4.2/1";

/// Returns all cases.
pub(super) fn all(ground: &Ground) -> Vec<Case> {
    let reply = "a reply in version 2 with the XID of the call";
    let first = row(
        "version-two-01, 5.1",
        1,
        "a call as the first message",
        reply,
        vec![],
    );
    [
        vec![first],
        headers(ground),
        translated::cases(ground),
        characteristics::cases(ground),
        transmissions::cases(ground),
    ]
    .concat()
}

/// Creates a case of level MUST on a connection of version 2.
fn row(
    section: &'static str,
    number: u32,
    sends: impl Into<String>,
    expects: &'static str,
    steps: Vec<Step>,
) -> Case {
    let script = [opening(Dialect::Two), steps].concat();
    let case = case(section, number, sends, expects, script).speaking(Dialect::Two);
    match case.address() == FIRST {
        true => case,
        false => case.needs(FIRST),
    }
}

/// Returns an RDMA2_ERROR with this code.
fn error(xid: u32, code: u32) -> Expect {
    Expect::Error(xid, VERSION, vec![Some(code)])
}

fn bad_header(xid: u32) -> Expect {
    error(xid, ERR_BAD_HEADER)
}
