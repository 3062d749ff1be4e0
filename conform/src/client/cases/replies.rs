//! Replies, errors and ends of connections that a client must cope with (RFC 8166, sections 3.4.6, 4.3 to 4.6, 8.1).

use super::sends;
use crate::case::Level;
use crate::client::case::{Act, Case, Operation::*, Stray};
use crate::client::rules::Rule;
use crate::wire::v1::{ERR_CHUNK, ERR_VERS};

/// The answer to an access that the client must prevent.
const REFUSED: &str = "a Terminate, or the end of the connection at once";

/// NFS3ERR_IO.
const IO: u32 = 5;

/// The behaviour of the server with [`Act::Half`].
const HALF: &str =
    "READs that return half of what they ask for, in the lengths of the Write chunk as well";

/// Returns the cases.
pub(super) fn cases() -> Vec<Case> {
    [chunks(), strays(), errors(), ends(), memory()].concat()
}

fn chunks() -> Vec<Case> {
    let copes = |section, number, operation, act, does, expects| {
        sends(section, number, operation, does, expects, &[]).while_server(act)
    };
    vec![
        // A client that takes a chunk for full, whatever length is returned, takes bytes that nobody wrote for data.
        sends(
            "RFC 8166, 3.4.6.1",
            1001,
            Read,
            HALF,
            "no wrong data",
            &[Rule::Content],
        )
        .may_fail(Act::Half)
        .robustness(),
        sends(
            "RFC 1813, 3.3.6",
            1001,
            Read,
            HALF,
            "the rest is read by other READs",
            &[Rule::Covered],
        )
        .may_fail(Act::Half)
        .level(Level::Should),
        sends(
            "RFC 8166, 4.3.2.2",
            1001,
            Read,
            "a READ that fails, and its Write chunk unused",
            "an end of the operation",
            &[],
        )
        .may_fail(Act::Status(IO))
        .robustness(),
        copes(
            "RFC 8166, 4.3.3",
            1003,
            List,
            Act::Crowd,
            "a folder of 150 names, in long replies",
            "all names",
        ),
        copes(
            "RFC 8797, 4.1",
            1001,
            Read,
            Act::Invalidate,
            "replies to READs that invalidate a handle of the call",
            "success",
        )
        .robustness(),
        copes(
            "RFC 8797, 4.1",
            1002,
            Write,
            Act::Invalidate,
            "replies to WRITEs that invalidate a handle of the call",
            "success",
        )
        .robustness(),
    ]
}

/// Returns the cases of messages that a client discards.
fn strays() -> Vec<Case> {
    const SECTION: &str = "RFC 8166, 4.5";
    let discards = |section, number, act, does| {
        let expects = "it is discarded, and the reply that follows is taken";
        sends(section, number, Read, does, expects, &[Rule::Discarded]).while_server(act)
    };
    let row = |section, number, stray, does| discards(section, number, Act::Stray(stray), does);
    vec![
        row(
            SECTION,
            1001,
            Stray::UnknownXid,
            "a reply with an XID that no call has",
        ),
        row(SECTION, 1002, Stray::Short, "a message of 24 bytes"),
        row(SECTION, 1003, Stray::OtherVersion, "a reply of version 2"),
        row(
            SECTION,
            1004,
            Stray::OtherProcedure,
            "a reply of procedure 99",
        ),
        row(
            SECTION,
            1005,
            Stray::CutList,
            "a reply with a Write chunk of 4294967295 segments",
        ),
        row(
            SECTION,
            1006,
            Stray::UnknownError,
            "ERR_CHUNK with an XID that no call has",
        ),
        row(
            SECTION,
            1007,
            Stray::NoReplyChunk,
            "a reply in a Reply chunk that was not offered",
        )
        .robustness(),
        discards(SECTION, 1008, Act::Twice, "the reply to a READ twice").robustness(),
        row("RFC 8166, 4.6.1", 1001, Stray::Msgp, "RDMA_MSGP"),
        row("RFC 8166, 4.6.2", 1001, Stray::Done, "RDMA_DONE"),
    ]
}

fn errors() -> Vec<Case> {
    let expects = "an end of the operation, and the call does not come again";
    // The text says without a MUST that the error completes the call.
    let cases = vec![
        sends(
            "RFC 8166, 4.5",
            1009,
            Read,
            "ERR_CHUNK instead of a READ's reply",
            expects,
            &[Rule::Ended],
        )
        .may_fail(Act::Error(&[ERR_CHUNK])),
        sends(
            "RFC 8166, 4.5",
            1010,
            Write,
            "ERR_CHUNK instead of a WRITE's reply",
            expects,
            &[Rule::Ended],
        )
        .may_fail(Act::Error(&[ERR_CHUNK])),
        sends(
            "RFC 8166, 4.5.1",
            1002,
            Read,
            "ERR_VERS for versions 2 to 3 instead of a READ's reply",
            expects,
            &[Rule::Ended],
        )
        .may_fail(Act::Error(&[ERR_VERS, 2, 3])),
    ];
    cases.into_iter().map(Case::robustness).collect()
}

/// Returns the cases of connections that end, and of replies in another order.
fn ends() -> Vec<Case> {
    let again = |number, act, does| {
        let expects = "the same call with the same XID on a new connection, and success";
        let case = sends("RFC 5531, 5", number, Write, does, expects, &[Rule::Again]);
        // The text says what a retransmission is, but not that there must be one.
        case.while_server(act).robustness()
    };
    vec![
        again(
            1001,
            Act::Close,
            "a connection that closes instead of a WRITE's reply",
        ),
        again(
            1002,
            Act::Reset,
            "a connection that is reset instead of a WRITE's reply",
        ),
        sends(
            "RFC 8166, 3.3.1",
            1008,
            Read,
            "the last of the outstanding calls answered first",
            "success",
            &[],
        )
        .while_server(Act::Reverse)
        .robustness(),
        sends(
            "RFC 8166, 4.2.2",
            1002,
            Write,
            "a connection that closes instead of a WRITE's reply",
            "version one on the next connection, at the latest after ERR_VERS",
            &[Rule::VersionAgain],
        )
        .while_server(Act::Close)
        .rules_alone()
        .robustness(),
    ]
}

/// Returns the cases of memory that a client must protect.
fn memory() -> Vec<Case> {
    const SECTION: &str = "RFC 8166, 8.1";
    let refuses = |number, operation, act, does| {
        sends(SECTION, number, operation, does, REFUSED, &[Rule::Bounds]).may_fail(act)
    };
    vec![
        sends(
            "RFC 8166, 4.4.1",
            1001,
            Write,
            "an RDMA Read of the memory of a WRITE after its reply, when the next call has come",
            REFUSED,
            &[Rule::OutOfReach],
        )
        .may_fail(Act::ReadAgain)
        .robustness(),
        refuses(
            1001,
            Write,
            Act::ReadBeyond,
            "an RDMA Read behind the end of the memory of a WRITE",
        ),
        refuses(
            1002,
            Write,
            Act::WriteToRead,
            "an RDMA Write to the memory of a WRITE",
        ),
        refuses(
            1003,
            Read,
            Act::WriteBeyond,
            "an RDMA Write behind the end of the memory of a READ",
        ),
    ]
}
