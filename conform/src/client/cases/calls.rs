//! Cases of the messages that a client sends to a plain server: headers, credits, chunks (RFC 8166, sections 3 and 4).

use super::sends;
use crate::case::Level;
use crate::client::case::{Act, Case, Operation, Operation::*};
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
            "one in all messages of a connection after the first that has it",
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
        // The responder initiates both, as the text says without a MUST.
        passive(1001, Write),
        passive(1002, Read),
        sends(
            "RFC 5040, 4",
            1001,
            Write,
            "FPDUs, and the DDP segments and RDMAP messages in them",
            "as RFC 5044, 4, RFC 5041, 4 and RFC 5040, 4 define them",
            &[Rule::Framing],
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

/// Returns a case of a client that leaves RDMA Reads and RDMA Writes to the server. One that fetched results itself
/// would do so in READs.
fn passive(number: u32, operation: Operation) -> Case {
    let (does, expects) = ("what the requester does", "no RDMA Read and no RDMA Write");
    let case = sends(
        "RFC 8166, 4.5.3",
        number,
        operation,
        does,
        expects,
        &[Rule::Passive],
    );
    case.robustness()
}

fn credits() -> Vec<Case> {
    const SECTION: &str = "RFC 8166, 3.3.1";
    let limit = |number, act, does, expects| {
        let case = sends(SECTION, number, Read, does, expects, &[Rule::Credits]);
        case.while_server(act).rules_alone()
    };
    // The limit is the lower of what is asked for and what is granted, but a MUST NOT concerns the grant alone.
    let asked = |number, act, does| {
        let expects = "at most as many calls outstanding as it asks for";
        let case = sends(SECTION, number, Read, does, expects, &[Rule::Asked]);
        case.while_server(act).rules_alone().robustness()
    };
    vec![
        limit(
            1001,
            Act::Honest,
            "READs with 8 credits",
            "at most 8 calls outstanding",
        ),
        limit(
            1002,
            Act::Grant(1),
            "READs with one credit",
            "one call outstanding",
        ),
        asked(1003, Act::Grant(u32::MAX), "READs with 4294967295 credits"),
        asked(1007, Act::Honest, "READs with 8 credits"),
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
            "room for all data that the READ can return: what it asks for, and at most rtmax",
            &[Rule::WriteRoom],
        ),
        sends(
            "RFC 8166, 3.4.6.2",
            1001,
            Read,
            "the Write chunk of a READ of a count that is no multiple of four",
            "no room for the round-up of its data",
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
