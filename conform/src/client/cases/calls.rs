//! Cases of the messages that a client sends to a plain server: headers, credits, chunks (RFC 8166, sections 3 and 4).

use super::sends;
use crate::case::Level;
use crate::client::case::{Act, Case, Operation::*};
use crate::client::rules::Rule;

/// Returns the cases.
pub(super) fn cases() -> Vec<Case> {
    [plain(), headers(), credits(), chunks()].concat()
}

/// Returns a case for each operation: it succeeds. Without that, other cases of it would say nothing.
fn plain() -> Vec<Case> {
    let rows = [
        ("RFC 8166, 3.5.1", Ping, "short messages"),
        ("RFC 8166, 4.3.2", Read, "READs of a file"),
        ("RFC 8166, 4.3.1", Write, "6001 bytes written"),
        ("RFC 8166, 4.3.3", List, "the listing of a folder"),
    ];
    let row = |(section, operation, does)| {
        let case = sends(section, 1001, operation, does, "success", &[]);
        case.while_server(Act::Honest).robustness()
    };
    rows.into_iter().map(row).collect()
}

fn headers() -> Vec<Case> {
    vec![
        sends(
            "RFC 8166, 4",
            1001,
            Write,
            "headers of calls",
            "whole and valid XDR",
            &[Rule::Header],
        ),
        sends(
            "RFC 8166, 4.2.1",
            1001,
            Write,
            "rdma_xid",
            "the XID of the RPC message",
            &[Rule::Xid],
        ),
        sends(
            "RFC 8166, 4.2.2",
            1001,
            Ping,
            "rdma_vers",
            "one, at the latest after ERR_VERS for versions 1 to 1",
            &[Rule::Version],
        ),
        sends(
            "RFC 8166, 4.2.4",
            1001,
            Write,
            "calls to a server whose receives have 4096 bytes",
            "none longer than the inline threshold",
            &[Rule::Threshold],
        ),
        sends(
            "RFC 8166, 4.2.4",
            1002,
            Write,
            "messages of the requester",
            "no RDMA_ERROR",
            &[Rule::Error],
        ),
        sends(
            "RFC 8166, 4.2.4",
            1003,
            Write,
            "RDMA_NOMSG",
            "a position-zero Read chunk, and nothing behind the header",
            &[Rule::NoMsg],
        ),
        sends(
            "RFC 8166, 4.5.1",
            1001,
            Ping,
            "a first call of another version, which ERR_VERS for versions 1 to 1 answers",
            "a call of version 1",
            &[Rule::OtherVersion],
        )
        .robustness(),
        sends(
            "RFC 8166, 4.6",
            1001,
            Write,
            "messages of the requester",
            "no RDMA_MSGP and no RDMA_DONE",
            &[Rule::Obsolete],
        ),
        sends(
            "RFC 8166, 3.1",
            1001,
            Write,
            "what the requester does",
            "no RDMA Read and no RDMA Write",
            &[Rule::Passive],
        )
        .robustness(),
        sends(
            "RFC 5531, 9",
            1001,
            Read,
            "the XIDs of outstanding calls",
            "all different",
            &[Rule::DistinctXids],
        )
        .robustness(),
    ]
}

fn credits() -> Vec<Case> {
    const SECTION: &str = "RFC 8166, 3.3.1";
    let limit = |number, act, does, expects| {
        let case = sends(SECTION, number, Read, does, expects, &[Rule::Credits]);
        case.while_server(act).rules_alone()
    };
    vec![
        limit(
            1001,
            Act::Honest,
            "READs with 8 credits",
            "at most 8 calls outstanding, and at most as many as it asks for",
        ),
        limit(
            1002,
            Act::Grant(1),
            "READs with one credit",
            "one call outstanding",
        ),
        limit(
            1003,
            Act::Grant(u32::MAX),
            "READs with 4294967295 credits",
            "at most as many calls outstanding as it asks for",
        ),
        sends(
            SECTION,
            1004,
            Read,
            "a grant of one while four calls are outstanding",
            "no other call before all but one are answered",
            &[Rule::LoweredCredits],
        )
        .while_server(Act::Lower),
        sends(
            SECTION,
            1005,
            Read,
            "a grant of one in every reply",
            "success",
            &[],
        )
        .while_server(Act::Grant(1))
        .robustness(),
        // A responder must not grant none; a client that has none for ever would hang.
        sends(SECTION, 1006, Read, "a grant of zero", "success", &[])
            .while_server(Act::Grant(0))
            .robustness(),
        sends(
            "RFC 8166, 3.3.3",
            1001,
            Read,
            "the beginning of a connection",
            "one call before the first reply",
            &[Rule::FirstCall],
        ),
        sends(
            "RFC 8166, 3.3.3",
            1002,
            Read,
            "a connection that closes while calls are outstanding",
            "one call before the first reply on each connection",
            &[Rule::FirstCall],
        )
        .while_server(Act::Close)
        .rules_alone(),
    ]
}

fn chunks() -> Vec<Case> {
    vec![
        sends(
            "RFC 8166, 3.4.2",
            1001,
            Write,
            "items in Read chunks",
            "the data of WRITE and SYMLINK alone",
            &[Rule::Eligible],
        ),
        sends(
            "RFC 8166, 3.4.5",
            1001,
            Write,
            "the positions of Read chunks",
            "multiples of four",
            &[Rule::Aligned],
        ),
        sends(
            "RFC 8166, 3.4.5",
            1002,
            Write,
            "the position of the Read chunk of a WRITE",
            "that of its data in the unreduced message",
            &[Rule::Position],
        ),
        sends(
            "RFC 8166, 3.4.5.2",
            1001,
            Write,
            "the Read chunk of a WRITE of 6001 bytes",
            "the length of the data, with its round-up or without",
            &[Rule::ReadLength],
        ),
        sends(
            "RFC 8166, 3.4.5.2",
            1002,
            Write,
            "the Read chunk of a WRITE of 6001 bytes",
            "no round-up in it",
            &[Rule::ReadRoundUp],
        )
        .level(Level::Should),
        sends(
            "RFC 8166, 3.4.6",
            1001,
            Read,
            "the Write chunk of a READ",
            "room for all data that the READ asks for",
            &[Rule::WriteRoom],
        ),
        sends(
            "RFC 8166, 3.4.6.2",
            1001,
            Read,
            "the Write chunk of a READ",
            "no room for round-up",
            &[Rule::WriteRoundUp],
        )
        .level(Level::Should),
        sends(
            "RFC 8166, 3.5.3",
            1001,
            Write,
            "a position-zero Read chunk",
            "a length that is a multiple of four",
            &[Rule::LongRoundUp],
        ),
        sends(
            "RFC 8166, 4.3.3",
            1002,
            List,
            "READDIR or READDIRPLUS whose reply may be longer than the inline threshold",
            "a Reply chunk with room for the longest reply",
            &[Rule::ReplyRoom],
        ),
    ]
}
