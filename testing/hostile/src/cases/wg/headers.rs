//! Prefixes, header types, versions and errors (version-two-07, sections 6.1 to 6.4 and 7), sent to
//! a server: those of `rpcrdma conform`, and those that depend on this server and its extensions.

use super::*;
use crate::cases::judged::judged_wg;
use crate::client::{Case, case};
use crate::wire::wg::{
    CALL_INLINE, ERR_INVAL_HTYPE, ERR_VERS_MISMATCH, ERROR, GRANT, REPLY_INLINE, unsupported,
};

const PREFIXES: &str = "version-two-07, 6.2.1";
const TYPES: &str = "version-two-07, 6.1";
const ERRORS: &str = "version-two-07, 7";

/// Returns RDMA2_CALL_INLINE with a NULL call.
fn null() -> Right {
    let good = vec![HearWords(wg::success(XID, &[]), false)];
    let message = wg::call(XID, &rpc::null(XID).bytes());
    Right::new("NULL", "version-two-07, 6.3.7", message, good)
}

pub(in crate::cases) fn cases() -> Vec<Case> {
    let right = null();
    let payload = rpc::null(XID).bytes();
    let mut cases = judged_wg(rpcrdma_conform::cases::wg::headers, &[0; 32]);
    let again = Right {
        name: "NULL again",
        ..null()
    };
    cases.extend([right.control(), again.control()]);
    cases.extend(right.rows(&[
        ("rdma_xid", 0, bad()),
        ("rdma_vers", 1, Error(vec![ERR_VERS_MISMATCH])),
        ("rdma_credit", CREDIT + 7, Good),
        ("rdma_credit", 0x7fff_ffff, Good),
        ("rdma_inv_handle", 1, bad()),
        ("rdma_inv_handle", u32::MAX, bad()),
        // The word behind it is the number of segments then.
        (
            "rdma_provisional_reply",
            1,
            Error(vec![wg::ERR_SEGMENTS, 256]),
        ),
    ]));
    cases.extend(types(&right));
    cases.extend(right.cut(&[16, 17, 33, 35, 36, 39], &bad()));
    cases.extend([
        right.instead(
            "a reply that says it is a call",
            wg::call(XID, &rpc::accepted(XID, 0, &[])),
            &bad(),
        ),
        right.instead(
            "a header of ones",
            wg::message(XID, 10, &[1; 250], &[]),
            &bad(),
        ),
        discarded(
            "RDMA2_REPLY_INLINE of nothing",
            TYPES,
            wg::message(XID, REPLY_INLINE, &[], &[]),
        ),
    ]);
    cases.extend(errors());
    cases.extend(first_messages(&payload));
    cases
}

/// Returns the cases of header types that do not exist, and of those that this body does not fit.
fn types(right: &Right) -> Vec<Case> {
    let unknown = Error(vec![ERR_INVAL_HTYPE]);
    let mut rows = Vec::new();
    // Experimental numbers that no extension has.
    for htype in [0xffff_ff00, 0xffff_ff05] {
        rows.push(("rdma_htype", htype, unknown.clone()));
    }
    // RDMA2_GRANT is the prefix alone.
    rows.push(("rdma_htype", GRANT, bad()));
    let mut cases = right.rows(&rows);
    cases.push(refused(
        "rdma_htype 4294967045 without more",
        TYPES,
        wg::message(XID, 0xffff_ff05, &[], &[]),
        &[ERR_INVAL_HTYPE],
    ));
    cases.push(script(
        "a header type nobody has, again and again",
        "version-two-07, 7.1.3",
        on_wg(vec![Repeat(
            30,
            vec![
                Send(wg::message(XID, 99, &[], &[])),
                HearWords(wg::answer(XID, &[ERR_INVAL_HTYPE]), false),
                Send(right.message.clone()),
                HearWords(wg::success(XID, &[]), false),
            ],
        )]),
        Lives,
    ));
    cases
}

/// Returns the cases of RDMA2_ERROR, which a server that has called nobody discards.
fn errors() -> Vec<Case> {
    let version = |version: u32| {
        let words = [XID, version, CREDIT, ERROR, ERR_VERS_MISMATCH];
        let name = format!("RDMA2_ERR_VERS_MISMATCH in version {version}");
        discarded(
            name,
            "version-two-07, 7.1.2",
            crate::wire::v2::bytes(&words),
        )
    };
    let mut cases = vec![version(0), version(1), version(3), version(u32::MAX)];
    cases.push(script(
        "RDMA2_ERROR of each code for each of the first XIDs",
        ERRORS,
        on_wg(vec![Repeat(
            4,
            (0..12)
                .flat_map(|code| [Send(wg::error(code, &[code, 0, 0])), Turn])
                .collect(),
        )]),
        Lives,
    ));
    cases
}

/// Returns the cases of first messages.
fn first_messages(payload: &[u8]) -> Vec<Case> {
    const FIRST: &str = "version-two-07, 4.3";
    let success = || HearWords(wg::success(XID, &[]), false);
    let wrong = |version: u32| {
        let words = [XID, version, CREDIT, CALL_INLINE, 0, 0, 0, 0];
        crate::wire::v2::bytes(&words)
    };
    vec![
        script(
            "control: NULL before anything else",
            FIRST,
            beginning(wg::call(XID, payload), vec![success()]),
            Lives,
        ),
        // The refused messages count, and the client may go on after each.
        script(
            "versions 3 and 9 before anything else, and then its properties",
            "version-two-07, 4.3.2",
            on(vec![
                Wg,
                Send(wrong(3)),
                HearWords(crate::wire::v2::err_vers(XID, 3, [1, 2]), false),
                HasCredit,
                Send(wrong(9)),
                HearWords(crate::wire::v2::err_vers(XID, 9, [1, 2]), false),
                HasCredit,
                Send(wg::introduction(&wg::plain_properties())),
                HearType(CONNPROP_FINAL),
                HasCredit,
            ]),
            Lives,
        ),
        script(
            "version 3 after the properties, again and again",
            "version-two-07, 7.1.1",
            on_wg(vec![Repeat(
                30,
                vec![
                    Send(wrong(3)),
                    HearWords([vec![XID, 3, 0, ERROR], unsupported()].concat(), false),
                    Send(wg::call(XID, payload)),
                    success(),
                ],
            )]),
            Lives,
        ),
        script(
            "RDMA2_OPTIONAL of 2016 after the properties",
            "version-two-07, 6.1",
            on_wg(vec![
                Send(crate::wire::v2::operation(XID, 0, 1, &[0, 0], &[])),
                HearWords(wg::answer(XID, &[wg::ERR_BAD_XDR]), false),
            ]),
            Lives,
        ),
        case(
            "version 1 at first, and then its properties",
            PREFIXES,
            on(vec![
                Send(crate::wire::v1::header(XID).with(payload)),
                HearAnyReply(XID),
                Send(wg::introduction(&wg::plain_properties())),
                ErrVers(wg::INTRODUCTION, 2),
            ]),
            Lives,
        )
        .costing(RECEIVES),
    ]
}
