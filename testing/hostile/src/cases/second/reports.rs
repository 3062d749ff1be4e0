//! ROPT_XMTERR from a hostile client (rtrext-00, section 9.5): each code about a reply that it got,
//! and each field about messages that never existed.

use rpcrdma_conform::fields::Word;

use super::*;
use crate::cases::vary::{with_word, words_of};
use crate::client::{Case, case};
use crate::wire::rpc;
use crate::wire::v2::{REPLY, XMTCONT, XMTERR, XMTREQ, XMTRESP};

const SECTION: &str = "rtrext-00, 9.5";

/// The codes, with the words of each.
pub(super) const CODES: [(&str, u32, &[u32]); 8] = [
    ("OPTXERR_BADHMT", 1, &[5, 0]),
    ("OPTXERR_BADOMT", 2, &[7, 4]),
    ("OPTXERR_BADCONT", 3, &[]),
    ("OPTXERR_BADSEQ", 4, &[1, 2]),
    ("OPTXERR_BADXID", 5, &[1, 2]),
    ("OPTXERR_BADOFF", 6, &[4, 8, 64]),
    ("OPTXERR_BADTBSN", 7, &[9, 0, 0]),
    ("OPTXERR_BADPL", 8, &[64, 0, 0]),
];

/// Returns a READ by ROPT_XMTREQ with data to be placed, and its reply.
fn answered(file: &[u8], xid: u32) -> Vec<Step> {
    const LEN: u32 = 4096;
    let mut call = rpc::nfs(xid, 6, rpc::read_args(file, 4096, LEN));
    call.credential = rpc::root();
    let payload = call.bytes();
    let len = payload.len() as u32;
    let info = [0, 1, 0, len, 1, 0, 2, 1, 0, len];
    vec![
        Send(v2::operation(xid, CALL, XMTREQ, &info, &payload)),
        HearOperation(XMTRESP),
    ]
}

/// Returns a READ of more data than one transmission carries, and its reply. The file is extended
/// first.
fn answered_at_length(file: &[u8]) -> Vec<Step> {
    const LONG: u32 = 96 << 10;
    let call = |procedure, args| {
        let mut call = rpc::nfs(XID, procedure, args);
        call.credential = rpc::root();
        call.bytes()
    };
    let mut write = call(7, rpc::write_args(file, 1 << 20, 4));
    write.extend([1, 2, 3, 4]);
    let payload = call(6, rpc::read_args(file, 0, LONG));
    let len = payload.len() as u32;
    let info = [0, 1, 0, len, 1, 0, 2, 1, 3, len];
    vec![
        Send(v2::plain(XID, CALL, &write)),
        HearWords(v2::success(XID, &[0]), true),
        Send(v2::operation(XID, CALL, XMTREQ, &info, &payload)),
        HearOperation(XMTRESP),
        HearOperation(XMTCONT),
    ]
}

/// Returns the cases of an invalid message without a reply that interrupts a reply: both parts must
/// agree.
fn broken_into(file: &[u8]) -> Vec<Case> {
    const OTHER: u32 = XID + 1;
    let rows: [(&str, [u32; 3], &[u32], bool); 7] = [
        ("first", [XID, REPLY, 0], &[5, XID, OTHER], true),
        (
            "last, behind which nothing comes",
            [XID, REPLY, 1],
            &[5, XID, OTHER],
            false,
        ),
        ("call", [XID, CALL, 0], &[5, XID, OTHER], false),
        (
            "first, with optxi_expect of another",
            [XID, REPLY, 0],
            &[5, OTHER, OTHER],
            false,
        ),
        (
            "first, with optxi_current of another",
            [XID, REPLY, 0],
            &[5, XID, XID],
            false,
        ),
        ("first, for its number", [XID, REPLY, 0], &[4, 1, 2], false),
        (
            "first, for another operation",
            [XID, REPLY, 0],
            &[2, 7, 4],
            true,
        ),
    ];
    let row = |(what, lead, fault, is_taken): (&str, [u32; 3], &[u32], bool)| {
        let info = [&[OTHER, REPLY, 1, 1], &lead[..], fault].concat();
        let mut steps = answered_at_length(file);
        steps.push(report(OTHER, CALL, &info));
        if is_taken {
            steps.push(HearWords(v2::bad_header(XID), false));
        }
        let name = format!("in the middle of a reply's group: {what}");
        case(name, SECTION, on_second(steps), Lives).costing(RECEIVES)
    };
    rows.map(row).into()
}

fn report(xid: u32, direction: u32, info: &[u32]) -> Step {
    Send(v2::operation(xid, direction, XMTERR, info, &[]))
}

/// Returns whether a report with this value in this word is acted upon. A report of the right form about the reply is,
/// and everything else is discarded.
fn is_taken(word: &Word<'_>, value: u32, kind: &str) -> bool {
    let is_of_lead = word.place.starts_with("optxe_lead.");
    match word.field() {
        "xmsi_xid" => is_of_lead,
        "xmsi_dir" => is_of_lead && value == CALL,
        "optxe_lead" => false,
        "optxe_which" => kind == "mismatch" && (value == 1 || value == 2),
        _ => true,
    }
}

pub(in crate::cases) fn cases(file: &[u8]) -> Vec<Case> {
    let mut cases = Vec::new();
    for (name, code, fields) in CODES {
        let info = [&[XID, REPLY, 0, 0, code], fields].concat();
        let mut steps = answered(file, XID);
        steps.push(report(XID, CALL, &info));
        // The reply cannot be sent again: the call fails, and its requester gets an error.
        steps.push(HearWords(v2::bad_header(XID), false));
        // A second report about the same reply refers to nothing that is still outstanding.
        steps.push(report(XID, CALL, &info));
        let heard = case(
            format!("{name} about a reply"),
            SECTION,
            on_second(steps),
            Lives,
        );
        cases.push(heard.costing(RECEIVES));
        let never = [&[XID, CALL, 0, 0, code], fields].concat();
        cases.push(row(
            format!("{name} about a call that was never made"),
            SECTION,
            vec![v2::operation(XID, REPLY, XMTERR, &never, &[])],
            vec![],
        ));
    }
    // No report is answered with another.
    let rights: [(&str, &[u32]); 2] = [
        ("range", &[XID, REPLY, 0, 1, XID, REPLY, 0, 7, 1, 0, 0]),
        ("mismatch", &[XID, REPLY, 0, 0, 4, 1, 2]),
    ];
    for (kind, right) in rights {
        for word in words_of("optxmt_err", right) {
            for value in [0, 1, 2, 3, 9, u32::MAX] {
                if value == word.value {
                    continue;
                }
                let mut steps = answered(file, XID);
                steps.push(report(XID, CALL, &with_word(right, &word, value)));
                if is_taken(&word, value, kind) {
                    steps.push(HearWords(v2::bad_header(XID), false));
                }
                let name = format!("{} ({kind}) is {value}", word.place);
                cases.push(case(name, SECTION, on_second(steps), Lives).costing(RECEIVES));
            }
        }
    }
    cases.extend(broken_into(file));
    let mut steps = Vec::new();
    for xid in XID..XID + 6 {
        steps.extend(answered(file, xid));
        steps.push(report(xid, CALL, &[xid, REPLY, 0, 0, 3]));
        steps.push(HearWords(v2::bad_header(xid), false));
    }
    cases.push(case("every reply is reported", SECTION, on_second(steps), Lives).costing(RECEIVES));
    cases.push(row(
        "ROPT_XMTERR of nothing",
        SECTION,
        vec![v2::operation(XID, REPLY, XMTERR, &[], &[])],
        vec![],
    ));
    cases.push(row(
        "eight reports of nothing",
        SECTION,
        vec![v2::operation(XID, REPLY, XMTERR, &[XID, CALL, 0, 0, 3], &[]); 8],
        vec![],
    ));
    cases
}
