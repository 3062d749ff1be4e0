//! Replies, errors and ends of connections that a client of version-two-07 must cope with (sections 4.5.2, 6.3, 6.5, 6.6
//! and 7).

use super::super::sends;
use super::keeps;
use crate::client::case::{Act, Case, Operation, Operation::*, Parts, StrayWg};
use crate::client::rules::Rule;
use crate::wire::wg;

/// NFS3ERR_IO.
const IO: u32 = 5;

/// Returns the cases.
pub(super) fn cases() -> Vec<Case> {
    [
        chunks(),
        continued(),
        strays(),
        reports(),
        errors(),
        ends(),
        memory(),
    ]
    .concat()
}

fn chunks() -> Vec<Case> {
    let copes = |section, number, (operation, act), does, expects| {
        sends(section, number, operation, does, expects, &[]).while_server(act)
    };
    vec![
        sends(
            "version-two-07, 4.5.2.1",
            1001,
            Read,
            "READs that return half of what they ask for, in the lengths of the Write chunk as well",
            "the rest is read, and the data is right",
            &[Rule::Covered],
        )
        .while_server(Act::Half),
        sends(
            "version-two-07, 4.5.2.1",
            1002,
            Read,
            "a READ that fails, and its Write chunk unused",
            "an end of the operation",
            &[],
        )
        .may_fail(Act::Status(IO))
        .robustness(),
        copes(
            "version-two-07, 6.6.4",
            1002,
            (List, Act::Crowd),
            "a folder of 150 names, in long replies",
            "all names",
        ),
        copes(
            "version-two-07, 6.5",
            1002,
            (Read, Act::Invalidate),
            "replies to READs that invalidate rdma_inv_handle",
            "success",
        ),
        copes(
            "version-two-07, 6.5",
            1003,
            (Write, Act::Invalidate),
            "replies to WRITEs that invalidate rdma_inv_handle",
            "success",
        ),
    ]
}

fn continued() -> Vec<Case> {
    const SECTION: &str = "version-two-07, 6.3.9";
    let row = |number, parts, does, expects| {
        let case = sends(SECTION, number, Read, does, expects, &[]);
        case.while_server(Act::Continue(parts))
    };
    let breaks = |number, parts, does| {
        let case = sends(SECTION, number, Read, does, "an end of the operation", &[]);
        case.may_fail(Act::Continue(parts)).robustness()
    };
    vec![
        row(
            1001,
            Parts::Plain,
            "replies to READs in several messages, with the data in them",
            "success, and the data is right",
        ),
        row(
            1002,
            Parts::Granting,
            "RDMA2_GRANT between the messages of a reply",
            "success, and the data is right",
        )
        .robustness(),
        breaks(
            1003,
            Parts::Miscounted,
            "a reply in several messages with a wrong rdma_remaining",
        ),
        breaks(
            1004,
            Parts::Interrupted,
            "a reply to no call between the messages of a reply",
        ),
    ]
}

/// Returns the cases of messages that a client discards.
fn strays() -> Vec<Case> {
    let row = |section, number, stray, does| {
        let expects = "it is discarded, and the reply that follows is taken";
        let case = sends(section, number, Read, does, expects, &[Rule::Discarded]);
        case.while_server(Act::StrayWg(stray))
    };
    vec![
        row(
            "version-two-07, 7",
            1002,
            StrayWg::Short,
            "15 bytes, which are less than a prefix",
        ),
        row(
            "version-two-07, 7",
            1003,
            StrayWg::UnknownCode,
            "RDMA2_ERROR with the XID of the call, and a code that there is not",
        ),
        row(
            "version-two-07, 7",
            1004,
            StrayWg::UnknownError,
            "RDMA2_ERROR with an XID that no call has",
        )
        .robustness(),
        row(
            "version-two-07, 6.1",
            1002,
            StrayWg::OtherType,
            "a header type that there is not, with the XID of the call",
        ),
        row(
            "version-two-07, 6.3.2",
            1002,
            StrayWg::GrantWithXid,
            "RDMA2_GRANT with the XID of the call",
        ),
        row(
            "version-two-07, 6.3.4",
            1004,
            StrayWg::Properties,
            "RDMA2_CONNPROP_FINAL once more",
        ),
        row(
            "version-two-07, 6.3.10",
            1001,
            StrayWg::UnknownXid,
            "a reply with an XID that no call has",
        )
        .robustness(),
        row(
            "version-two-07, 6.3.8",
            1001,
            StrayWg::NoReplyChunk,
            "a reply with an XID that no call has, in a Reply chunk that was not offered",
        )
        .robustness(),
        row(
            "version-two-07, 7.2.1",
            1001,
            StrayWg::CutList,
            "a reply with an XID that no call has, and a Write chunk of 4294967295 segments",
        )
        .robustness(),
        row(
            "version-two-07, 7.1.2",
            1001,
            StrayWg::OtherVersion,
            "a reply of version 1 with the XID of the call",
        )
        .robustness(),
        sends(
            "version-two-07, 6.3.10",
            1002,
            Read,
            "the reply to a READ twice",
            "it is discarded, and the reply that follows is taken",
            &[Rule::Discarded],
        )
        .while_server(Act::Twice)
        .robustness(),
        sends(
            "version-two-07, 4.6.3",
            1001,
            Read,
            "a call of the server, though it was told of no support for that",
            "an end of the operation",
            &[],
        )
        .may_fail(Act::StrayWg(StrayWg::Call))
        .robustness(),
    ]
}

/// Returns the cases of messages that a client must report.
fn reports() -> Vec<Case> {
    vec![
        keeps(
            "version-two-07, 6.1",
            1003,
            (Read, Act::StrayWg(StrayWg::OtherType)),
            "a header type that there is not",
            "RDMA2_ERROR with INVAL_HTYPE",
            &[Rule::Reported],
        ),
        keeps(
            "version-two-07, 6.3.4",
            1005,
            (Read, Act::StrayWg(StrayWg::Properties)),
            "RDMA2_CONNPROP_FINAL once more",
            "RDMA2_ERROR with INVAL_CONT",
            &[Rule::Reported],
        ),
    ]
}

fn errors() -> Vec<Case> {
    let row = |(section, number), operation: Operation, words, does| {
        let expects = "an end of the operation, and the call does not come again in the same form";
        let case = sends(section, number, operation, does, expects, &[Rule::Ended]);
        case.may_fail(Act::Error(words))
    };
    vec![
        row(
            ("version-two-07, 7.1.2", 1002),
            Read,
            &[wg::ERR_VERS_MISMATCH],
            "RDMA2_ERR_VERS_MISMATCH instead of a READ's reply",
        ),
        row(
            ("version-two-07, 7.1.3", 1001),
            Read,
            &[wg::ERR_INVAL_HTYPE],
            "RDMA2_ERR_INVAL_HTYPE instead of a READ's reply",
        ),
        row(
            ("version-two-07, 7.1.4", 1001),
            Write,
            &[wg::ERR_INVAL_CONT],
            "RDMA2_ERR_INVAL_CONT instead of a WRITE's reply",
        ),
        row(
            ("version-two-07, 7.2.1", 1002),
            Read,
            &[wg::ERR_BAD_XDR],
            "RDMA2_ERR_BAD_XDR instead of a READ's reply",
        ),
        row(
            ("version-two-07, 7.3.1", 1001),
            Write,
            &[wg::ERR_READ_CHUNKS, 0],
            "RDMA2_ERR_READ_CHUNKS, which allows none, instead of a WRITE's reply",
        ),
        row(
            ("version-two-07, 7.3.2", 1001),
            Read,
            &[wg::ERR_WRITE_CHUNKS, 0],
            "RDMA2_ERR_WRITE_CHUNKS, which allows none, instead of a READ's reply",
        ),
        row(
            ("version-two-07, 7.3.3", 1001),
            Write,
            &[wg::ERR_SEGMENTS, 0],
            "RDMA2_ERR_SEGMENTS, which allows none, instead of a WRITE's reply",
        ),
        row(
            ("version-two-07, 7.3.4", 1001),
            Read,
            &[wg::ERR_WRITE_RESOURCE, 0, 0],
            "RDMA2_ERR_WRITE_RESOURCE without a length instead of a READ's reply",
        ),
        row(
            ("version-two-07, 7.3.5", 1001),
            List,
            &[wg::ERR_REPLY_RESOURCE, 0],
            "RDMA2_ERR_REPLY_RESOURCE without a length instead of a listing",
        ),
        row(
            ("version-two-07, 7.4.1", 1001),
            Read,
            &[wg::ERR_SYSTEM],
            "RDMA2_ERR_SYSTEM instead of a READ's reply",
        ),
        row(
            ("version-two-07, 7.4.1", 1002),
            Write,
            &[wg::ERR_SYSTEM],
            "RDMA2_ERR_SYSTEM instead of a WRITE's reply",
        ),
    ]
}

/// Returns the cases of connections that end, and of replies in another order.
fn ends() -> Vec<Case> {
    const SECTION: &str = "version-two-07, 3.1.5.1";
    let again = |number, act, does| {
        let expects = "the same call with the same XID on a new connection, and success";
        let case = sends(SECTION, number, Write, does, expects, &[Rule::Again]);
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
            "version-two-07, 3.1.3",
            1002,
            Read,
            "the last of the outstanding calls answered first",
            "success",
            &[],
        )
        .while_server(Act::Reverse)
        .robustness(),
    ]
}

/// Returns the cases of memory that a client must protect. The text says so for memory of calls that have ended.
fn memory() -> Vec<Case> {
    let refuses = |section, number, (operation, act), does, rules| {
        let expects = "an end of the connection";
        let case = sends(section, number, operation, does, expects, rules);
        case.may_fail(act).robustness()
    };
    vec![
        refuses(
            "version-two-07, 11.1.3",
            1001,
            (Write, Act::ReadAgain),
            "an RDMA Read of the memory of a WRITE after its reply, when the next call has come",
            &[Rule::OutOfReach],
        ),
        refuses(
            "version-two-07, 11.1",
            1001,
            (Write, Act::ReadBeyond),
            "an RDMA Read behind the end of the memory of a WRITE",
            &[Rule::Bounds],
        ),
        refuses(
            "version-two-07, 11.1",
            1002,
            (Write, Act::WriteToRead),
            "an RDMA Write to the memory of a WRITE",
            &[Rule::Bounds],
        ),
        refuses(
            "version-two-07, 11.1",
            1003,
            (Read, Act::WriteBeyond),
            "an RDMA Write behind the end of the memory of a READ",
            &[Rule::Bounds],
        ),
    ]
}
