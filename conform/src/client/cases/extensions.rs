//! Cases of the extensions of version-two-01: characteristics (xcharext-02), and messages in several transmissions with
//! data that Sends place (rtrext-00).

use super::sends;
use crate::client::case::{Act, Case, Operation, Operation::*, StrayTwo, Transmitting};
use crate::client::rules::Rule;
use crate::dialect::Dialect;

/// Characteristics that there are not, around the size of receives.
const UNKNOWN: &[u32] = &[3, 99, 4, 1, 1, 4, 4096, 0xffff_ff00, 0, 0];
/// Receives of 2 KiB.
const SHORT: &[u32] = &[1, 1, 4, 2048, 0];

/// Returns the cases.
pub(super) fn cases() -> Vec<Case> {
    let all = [told(), exchanged(), calls(), refused(), replies(), strays()].concat();
    all.into_iter()
        .map(|case| case.speaking(Dialect::Two))
        .collect()
}

/// Returns a case of one rule that a client keeps while the server does what `act` says, whatever becomes of the
/// operation.
fn keeps(
    section: &'static str,
    number: u32,
    (operation, act): (Operation, Act),
    does: &'static str,
    expects: &'static str,
    rules: &'static [Rule],
) -> Case {
    let case = sends(section, number, operation, does, expects, rules);
    case.while_server(act).rules_alone()
}

/// Cases of the client's characteristics, and of a server that tells nothing.
fn told() -> Vec<Case> {
    vec![
        sends(
            "xcharext-02, 4.1",
            1001,
            Ping,
            "ROPT_INITXCH of the client",
            "the first message of the connection, and no other one",
            &[Rule::InitialOnce],
        ),
        sends(
            "xcharext-02, 4.1",
            1002,
            Ping,
            "ROPT_INITXCH of the client",
            "at most 1024 bytes, as nothing is known of the server",
            &[Rule::FirstLength],
        ),
        sends(
            "xcharext-02, 2.1",
            1001,
            Ping,
            "the client's characteristics",
            "values of the types of their characteristics",
            &[Rule::Characteristics],
        ),
        // A client may find out by an attempt as well.
        sends(
            "rtrext-00, 5.1",
            1001,
            Write,
            "calls to a server that tells nothing of ROPT_XMTREQ",
            "no ROPT_XMTREQ and no ROPT_XMTCONT",
            &[Rule::Unsupported],
        )
        .robustness(),
    ]
}

/// Cases of the server's characteristics.
fn exchanged() -> Vec<Case> {
    vec![
        sends(
            "xcharext-02, 4.1",
            1003,
            Write,
            "characteristics that there are not, among others",
            "success, and no message of more than 4096 bytes",
            &[Rule::Threshold],
        )
        .while_server(Act::Tell(UNKNOWN)),
        // No end may have such receives (version-two-01, 2.3).
        sends(
            "xcharext-02, 3.1",
            1001,
            Write,
            "receives of 2048 bytes",
            "success, and no message of more than 2048 bytes",
            &[Rule::Threshold],
        )
        .while_server(Act::Tell(SHORT))
        .robustness(),
    ]
}

/// Calls by ROPT_XMTREQ.
fn calls() -> Vec<Case> {
    let row = |section, number, transmitting, does, expects, rules| {
        let act = Act::Transmit(transmitting);
        keeps(section, number, (Write, act), does, expects, rules)
    };
    let item = "the placed data of a WRITE of 6001 bytes";
    vec![
        sends(
            "rtrext-00, 9.2",
            1001,
            Write,
            "support for ROPT_XMTREQ, and receives with a target",
            "success",
            &[],
        )
        .while_server(Act::Transmit(Transmitting::Plain))
        .robustness(),
        row(
            "rtrext-00, 7.3",
            1001,
            Transmitting::Plain,
            item,
            "its position in the whole message, and its length without round-up",
            &[Rule::PlacedItem],
        ),
        row(
            "rtrext-00, 7.3",
            1002,
            Transmitting::Plain,
            item,
            "its bytes in the targets and at the offset of its entry, behind header and payload",
            &[Rule::PlacedLayout],
        ),
        row(
            "rtrext-00, 3.3",
            1001,
            Transmitting::Plain,
            "placed items",
            "the data of WRITE and SYMLINK alone",
            &[Rule::PlacedEligible],
        ),
        row(
            "rtrext-00, 7.2",
            1001,
            Transmitting::Plain,
            "bytes that are neither header, payload nor data",
            "zeroes",
            &[Rule::PlacedPadding],
        )
        .robustness(),
        row(
            "rtrext-00, 4.2",
            1001,
            Transmitting::OneShortTarget,
            "a WRITE of 6001 bytes to receives with one target of 4096",
            "ROPT_XMTREQ and ROPT_XMTCONT in a row, with their numbers",
            &[Rule::Group],
        ),
        row(
            "rtrext-00, 7.3",
            1003,
            Transmitting::OneShortTarget,
            "placed data in several transmissions",
            "its bytes in the targets of its entry, one after the other",
            &[Rule::PlacedLayout],
        ),
        sends(
            "rtrext-00, 5.2",
            1001,
            Write,
            "a limit of one transmission for a call, and receives with one target of 4096 bytes",
            "success, and no call in more transmissions",
            &[Rule::Transmissions],
        )
        .while_server(Act::Transmit(Transmitting::OneTransmission)),
    ]
}

/// Calls by ROPT_XMTREQ that the server refuses.
fn refused() -> Vec<Case> {
    let row = |section, number, transmitting, does, expects| {
        let case = sends(
            section,
            number,
            Write,
            does,
            expects,
            &[Rule::PlacedRefused],
        );
        case.may_fail(Act::Transmit(transmitting))
    };
    vec![
        row(
            "rtrext-00, 5.1",
            1002,
            Transmitting::Refuse,
            "RDMA2_ERR_INVAL_OPTION in answer to ROPT_XMTREQ",
            "no ROPT_XMTREQ again on the connection",
        ),
        row(
            "rtrext-00, 5.4",
            1001,
            Transmitting::Report,
            "ROPT_XMTERR with BADTBSN about a call",
            "this call does not come by ROPT_XMTREQ again",
        ),
    ]
}

/// Replies by ROPT_XMTRESP.
fn replies() -> Vec<Case> {
    let wrong = |number, field, does| {
        let expects = "its data is not taken: the call fails, or the right reply behind it counts";
        let case = sends(
            "rtrext-00, 9.3",
            number,
            Read,
            does,
            expects,
            &[Rule::Untaken],
        );
        case.may_fail(Act::Transmit(Transmitting::Field(field)))
    };
    vec![
        sends(
            "rtrext-00, 9.3",
            1001,
            Read,
            "the placed data of READs in ROPT_XMTRESP",
            "success, and the data is right",
            &[],
        )
        .while_server(Act::Transmit(Transmitting::Plain)),
        wrong(
            1002,
            "optxrs_ddp",
            "ROPT_XMTRESP with another number of items",
        ),
        wrong(
            1003,
            "xmdmi_disp",
            "ROPT_XMTRESP whose item is behind the end of the message",
        ),
        wrong(
            1004,
            "xmdmi_length",
            "ROPT_XMTRESP whose item has more bytes than came",
        ),
        wrong(
            1005,
            "xmdl_type",
            "ROPT_XMTRESP whose item is of another type, or none",
        ),
        wrong(
            1006,
            "xmdl_offset",
            "ROPT_XMTRESP whose item begins where its bytes do not all fit",
        ),
        wrong(
            1007,
            "xmdl_bsnum",
            "ROPT_XMTRESP whose item is in a target that there is not",
        ),
        wrong(
            1008,
            "optxrs_count",
            "ROPT_XMTRESP that says there are more transmissions",
        ),
        wrong(
            1009,
            "optxrs_pslen",
            "ROPT_XMTRESP whose payload is longer than the message, or shorter than the results",
        ),
    ]
}

/// Messages that no call asked for.
fn strays() -> Vec<Case> {
    let answered = |section, number, stray, does, expects| {
        let act = Act::StrayTwo(stray);
        keeps(
            section,
            number,
            (Read, act),
            does,
            expects,
            &[Rule::Reported],
        )
    };
    let discarded = |section, number, stray, does| {
        let expects = "it is discarded, and the reply that follows is taken";
        let case = sends(section, number, Read, does, expects, &[Rule::Discarded]);
        case.while_server(Act::StrayTwo(stray))
    };
    vec![
        answered(
            "version-two-01, 4.2.4",
            1001,
            StrayTwo::UnknownOperation,
            "an operation that there is not",
            "RDMA2_ERROR with INVAL_OPTION",
        ),
        discarded(
            "version-two-01, 4.2.4",
            1002,
            StrayTwo::UnknownOperation,
            "an operation that there is not",
        ),
        answered(
            "xcharext-02, 2.1",
            1002,
            StrayTwo::BadUpdate,
            "ROPT_UPDXCH with a bool of 9",
            "RDMA2_ERROR with BAD_HEADER",
        ),
        answered(
            "xcharext-02, 4.3",
            1001,
            StrayTwo::Request,
            "ROPT_REQXCH for characteristics that there are not",
            "ROPT_RESPXCH with its XID, or RDMA2_ERROR with INVAL_OPTION",
        ),
        answered(
            "rtrext-00, 9.5",
            1001,
            StrayTwo::Continuation,
            "ROPT_XMTCONT of nothing",
            "ROPT_XMTERR with BADCONT, or RDMA2_ERROR with INVAL_OPTION",
        ),
        discarded(
            "xcharext-02, 4.4",
            1001,
            StrayTwo::UnknownUpdate,
            "ROPT_UPDXCH of a characteristic that there is not",
        ),
        discarded(
            "xcharext-02, 4.1",
            1004,
            StrayTwo::Again,
            "ROPT_INITXCH once more",
        )
        .robustness(),
        discarded(
            "xcharext-02, 4.3",
            1002,
            StrayTwo::Response,
            "ROPT_RESPXCH to no request",
        )
        .robustness(),
        discarded(
            "rtrext-00, 9.5",
            1002,
            StrayTwo::Report,
            "ROPT_XMTERR about a call that was never made",
        )
        .robustness(),
    ]
}
