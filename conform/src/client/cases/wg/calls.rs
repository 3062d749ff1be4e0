//! Cases of the messages that a client of version-two-07 sends: headers, credits, chunks (sections 4 and 6).

use super::super::sends;
use super::keeps;
use crate::case::Level;
use crate::client::case::{Act, Case, Operation::*};
use crate::client::rules::Rule;
use crate::wire::wg::ERR_READ_CHUNKS;

/// Returns the cases.
pub(super) fn cases() -> Vec<Case> {
    [plain(), headers(), first_messages(), credits(), chunks()].concat()
}

/// Returns a case for each operation: it succeeds. Without that, other cases of it would say nothing.
fn plain() -> Vec<Case> {
    let rows = [
        ("version-two-07, 6.6.1", 1001, Ping, "short messages"),
        ("version-two-07, 6.6.1.1", 1001, Read, "READs of a file"),
        (
            "version-two-07, 6.6.1.1",
            1002,
            Write,
            "a WRITE of 6001 bytes",
        ),
        (
            "version-two-07, 6.6.4",
            1001,
            List,
            "the listing of a folder",
        ),
    ];
    let row = |(section, number, operation, does)| {
        let case = sends(section, number, operation, does, "success", &[]);
        case.while_server(Act::Honest).robustness()
    };
    rows.into_iter().map(row).collect()
}

fn headers() -> Vec<Case> {
    vec![
        sends(
            "version-two-07, 6.3.7",
            1001,
            Write,
            "headers of calls",
            "whole and valid XDR",
            &[Rule::Header],
        ),
        sends(
            "version-two-07, 6.3.7",
            1002,
            Write,
            "rdma_xid",
            "the XID of the RPC message",
            &[Rule::Xid],
        ),
        sends(
            "version-two-07, 4.3.3",
            1001,
            Write,
            "rdma_vers",
            "two in every message of the connection",
            &[Rule::Version],
        ),
        sends(
            "version-two-07, 6.1",
            1001,
            Write,
            "header types",
            "those of the table that a requester sends, as nothing else was announced",
            &[Rule::HeaderType],
        ),
        sends(
            "version-two-07, 7",
            1001,
            Write,
            "messages of the requester",
            "no RDMA2_ERROR, as nothing is wrong",
            &[Rule::Error],
        )
        .robustness(),
        sends(
            "version-two-07, 6.3.5",
            1001,
            Write,
            "RDMA2_CALL_EXTERNAL",
            "a Call chunk, and nothing behind the header",
            &[Rule::NoMsg],
        ),
        sends(
            "version-two-07, 6.5",
            1001,
            Read,
            "rdma_inv_handle",
            "zero, or a handle of the header",
            &[Rule::InvalidHandle],
        ),
        keeps(
            "version-two-07, 6.3.6",
            1001,
            (Write, Act::Error(&[ERR_READ_CHUNKS, 0])),
            "a WRITE that is continued after RDMA2_ERR_READ_CHUNKS",
            "its messages in a row, with the count of what remains",
            &[Rule::Continued],
        ),
        keeps(
            "version-two-07, 6.3.2",
            1001,
            (Read, Act::Starve),
            "RDMA2_GRANT of a client",
            "XID zero",
            &[Rule::GrantXid],
        ),
        sends(
            "version-two-07, 7.3",
            1001,
            Write,
            "what the requester does",
            "no RDMA Read and no RDMA Write",
            &[Rule::Passive],
        )
        .robustness(),
        sends(
            "version-two-07, 3.1.3",
            1001,
            Read,
            "the XIDs of outstanding calls",
            "all different",
            &[Rule::DistinctXids],
        )
        .robustness(),
    ]
}

fn first_messages() -> Vec<Case> {
    const SECTION: &str = "version-two-07, 4.3";
    vec![
        sends(
            SECTION,
            1001,
            Ping,
            "the first message of a connection",
            "at most 1024 bytes",
            &[Rule::FirstLength],
        ),
        sends(
            SECTION,
            1002,
            Read,
            "the beginning of a connection",
            "one message before the first of the server",
            &[Rule::FirstMessage],
        ),
        keeps(
            SECTION,
            1003,
            (Read, Act::Close),
            "a connection that closes while calls are outstanding",
            "one message before the first of the server on each connection",
            &[Rule::FirstMessage],
        ),
        sends(
            "version-two-07, 4.3.2",
            1001,
            Ping,
            "RDMA2_ERR_VERS for versions 1 to 1 as the first answer",
            "no further message of version 2 on the connection",
            &[Rule::Version],
        )
        .may_fail(Act::RefuseVersion),
    ]
}

fn credits() -> Vec<Case> {
    const SECTION: &str = "version-two-07, 4.2.1";
    vec![
        sends(
            SECTION,
            1001,
            Read,
            "READs with credits for 16 messages",
            "no message beyond the limit, but one by the letter, and RDMA2_GRANT",
            &[Rule::CountedCredits],
        ),
        keeps(
            SECTION,
            1002,
            (Read, Act::Grant(1)),
            "READs with credits for one message",
            "no message beyond the limit, but one by the letter, and RDMA2_GRANT",
            &[Rule::CountedCredits],
        ),
        keeps(
            SECTION,
            1003,
            (Read, Act::Grant(1)),
            "READs with credits for one message",
            "as many messages as there are receives, and RDMA2_GRANT",
            &[Rule::NoSurplus],
        )
        .level(Level::Should),
        sends(
            SECTION,
            1004,
            Write,
            "rdma_credit",
            "a limit of less than 2147483647",
            &[Rule::CreditLimit],
        ),
        sends(
            SECTION,
            1005,
            Read,
            "credits for one message",
            "success",
            &[],
        )
        .while_server(Act::Grant(1)),
        sends(
            "version-two-07, 4.2.1.1",
            1001,
            Read,
            "replies that leave no credits, and RDMA2_GRANT later",
            "success, and no message beyond the limit, but one by the letter, and RDMA2_GRANT",
            &[Rule::CountedCredits],
        )
        .while_server(Act::Starve),
    ]
}

fn chunks() -> Vec<Case> {
    let read_chunk = "the Read chunk of a WRITE of 6001 bytes";
    let write_chunk = "the Write chunk of a READ";
    vec![
        sends(
            "version-two-07, 4.4.2",
            1001,
            Write,
            "items in Read chunks",
            "the data of WRITE and SYMLINK alone",
            &[Rule::Eligible],
        ),
        sends(
            "version-two-07, 4.5.1",
            1001,
            Write,
            "the positions of Read chunks",
            "multiples of four",
            &[Rule::Aligned],
        ),
        sends(
            "version-two-07, 4.5.1",
            1002,
            Write,
            "the position of the Read chunk of a WRITE",
            "that of its data in the unreduced message",
            &[Rule::Position],
        ),
        sends(
            "version-two-07, 6.3.7",
            1003,
            Write,
            "position zero",
            "in Call chunks alone",
            &[Rule::CallChunk],
        ),
        sends(
            "version-two-07, 4.5.3.1",
            1001,
            Write,
            read_chunk,
            "the length of the data",
            &[Rule::ReadLength],
        ),
        sends(
            "version-two-07, 4.5.3.1",
            1002,
            Write,
            read_chunk,
            "no round-up in it",
            &[Rule::ReadRoundUp],
        ),
        sends(
            "version-two-07, 4.5.2",
            1001,
            Read,
            write_chunk,
            "room for all data that the READ asks for",
            &[Rule::WriteRoom],
        ),
        sends(
            "version-two-07, 4.5.2.4",
            1001,
            Read,
            write_chunk,
            "no room for the round-up of its data",
            &[Rule::WriteRoundUp],
        ),
        sends(
            "version-two-07, 4.5.3",
            1001,
            Write,
            "a Call chunk",
            "a length that is a multiple of four",
            &[Rule::LongRoundUp],
        ),
    ]
}
