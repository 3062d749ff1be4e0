//! Prefixes, header types, versions and errors (version-two-07, sections 6.1 to 6.4 and 7), sent to
//! a server.

use super::*;
use crate::client::{Case, case};
use crate::wire::wg::{
    CALL_EXTERNAL, CALL_INLINE, CALL_MIDDLE, ERR_INVAL_HTYPE, ERR_VERS_MISMATCH, ERROR, GRANT,
    REPLY_EXTERNAL, REPLY_INLINE, REPLY_MIDDLE, unsupported,
};

const PREFIXES: &str = "version-two-07, 6.2.1";
const TYPES: &str = "version-two-07, 6.1";
const ERRORS: &str = "version-two-07, 7";

/// Returns RDMA2_CALL_INLINE with a NULL call.
fn null() -> Right {
    let mut fields = prefix(XID, CALL_INLINE);
    fields.extend([
        ("rdma_inv_handle", 0),
        ("rdma_reads", 0),
        ("rdma_provisional_writes", 0),
        ("rdma_provisional_reply", 0),
        ("rdma_rpc_first_word", XID),
    ]);
    let rest = rpc::null(XID).bytes()[4..].to_vec();
    let good = vec![HearWords(wg::success(XID, &[]), false)];
    Right::new("version-two-07, 6.3.7", fields, rest, good)
}

pub(in crate::cases) fn cases() -> Vec<Case> {
    let right = null();
    let payload = rpc::null(XID).bytes();
    let mut cases = vec![right.control("NULL"), right.control("NULL again")];
    cases.extend(right.rows(&[
        (0, XID + 1, bad()),
        (0, 0, bad()),
        (1, 0, Error(unsupported())),
        (1, 1, Error(vec![ERR_VERS_MISMATCH])),
        (1, 3, Error(unsupported())),
        (1, u32::MAX, Error(unsupported())),
        (2, CREDIT + 7, Good),
        (2, 0x7fff_ffff, Good),
        (4, 1, bad()),
        (4, u32::MAX, bad()),
        (5, 1, bad()),
        (5, 2, bad()),
        (5, u32::MAX, bad()),
        (6, 1, bad()),
        (6, 2, bad()),
        (6, u32::MAX, bad()),
        // The word behind it is the number of segments then.
        (7, 1, Error(vec![wg::ERR_SEGMENTS, 256])),
        (7, 2, bad()),
        (7, u32::MAX, bad()),
        (8, XID + 1, bad()),
        (8, 0, bad()),
    ]));
    cases.extend(types(&right));
    cases.extend(right.cut("RDMA2_CALL_INLINE", &[0, 1, 4, 8, 12, 15], &Silence));
    let short = [16, 17, 20, 24, 28, 32, 33, 35, 36, 39];
    cases.extend(right.cut("RDMA2_CALL_INLINE", &short, &bad()));
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
            "RDMA2_REPLY_INLINE to a server that calls nobody",
            TYPES,
            wg::reply(XID, &rpc::accepted(XID, 0, &[])),
        ),
        discarded(
            "RDMA2_REPLY_MIDDLE to a server that calls nobody",
            TYPES,
            wg::message(XID, REPLY_MIDDLE, &[4], &payload),
        ),
        discarded(
            "RDMA2_REPLY_EXTERNAL to a server that calls nobody",
            TYPES,
            wg::message(XID, REPLY_EXTERNAL, &[0, 1, 1, 0x51, 64, 0, 0], &[]),
        ),
        discarded(
            "RDMA2_REPLY_INLINE of nothing",
            TYPES,
            wg::message(XID, REPLY_INLINE, &[], &[]),
        ),
        refused(
            "RDMA2_CALL_EXTERNAL of nothing",
            TYPES,
            wg::message(XID, CALL_EXTERNAL, &[], &[]),
            &[wg::ERR_BAD_XDR],
        ),
        refused(
            "RDMA2_CALL_MIDDLE of nothing",
            TYPES,
            wg::message(XID, CALL_MIDDLE, &[], &[]),
            &[wg::ERR_BAD_XDR],
        ),
        refused(
            "RDMA2_CALL_MIDDLE without a payload",
            TYPES,
            wg::message(XID, CALL_MIDDLE, &[40], &[]),
            &[wg::ERR_BAD_XDR],
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
    for htype in [0, 1, 2, 3, 14, 15, 99, 0x7fff_ffff, 0xffff_feff] {
        rows.push((3, htype, unknown.clone()));
    }
    // Experimental numbers that no extension has.
    for htype in [0xffff_ff00, 0xffff_ff05, u32::MAX] {
        rows.push((3, htype, unknown.clone()));
    }
    // RDMA2_GRANT is the prefix alone.
    rows.push((3, GRANT, bad()));
    let mut cases = right.rows(&rows);
    for htype in [0, 14, 0xffff_ff05] {
        let name = format!("rdma_htype {htype} without more");
        let message = wg::message(XID, htype, &[], &[]);
        cases.push(refused(name, TYPES, message, &[ERR_INVAL_HTYPE]));
    }
    cases.push(script(
        "a header type nobody has, again and again",
        "version-two-07, 7.1.3",
        on_wg(vec![Repeat(
            30,
            vec![
                Send(wg::message(XID, 99, &[], &[])),
                HearWords(wg::answer(XID, &[ERR_INVAL_HTYPE]), false),
                Send(right.message()),
                HearWords(wg::success(XID, &[]), false),
            ],
        )]),
        Lives,
    ));
    cases
}

/// Returns the cases of RDMA2_ERROR, which a server that has called nobody discards.
fn errors() -> Vec<Case> {
    let mut cases = Vec::new();
    for code in [
        0,
        1,
        2,
        3,
        4,
        5,
        6,
        7,
        8,
        9,
        10,
        11,
        12,
        99,
        100,
        101,
        u32::MAX,
    ] {
        let most = match code {
            1 | 9 => 2,
            6..=8 | 10 => 1,
            _ => 0,
        };
        for words in 0..=most {
            let fields = [&[code], &[2, 3][..words]].concat();
            let name = format!("rdma_err is {code}, with {words} words");
            cases.push(discarded(name, ERRORS, wg::error(XID, &fields)));
        }
        let long = [&[code][..], &[u32::MAX; 40]].concat();
        let name = format!("rdma_err is {code}, with 40 words");
        cases.push(discarded(name, ERRORS, wg::error(XID, &long)));
    }
    let version = |version: u32| {
        let words = [XID, version, CREDIT, ERROR, ERR_VERS_MISMATCH];
        let name = format!("RDMA2_ERR_VERS_MISMATCH in version {version}");
        discarded(
            name,
            "version-two-07, 7.1.2",
            crate::wire::v2::bytes(&words),
        )
    };
    cases.extend([version(0), version(1), version(3), version(u32::MAX)]);
    cases.push(discarded("rdma_err missing", ERRORS, wg::error(XID, &[])));
    cases.push(discarded(
        "an error about the properties of the server",
        ERRORS,
        wg::error(1, &[wg::ERR_BAD_PROPVAL]),
    ));
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
            "version 1 after the properties",
            "version-two-07, 7.1.2",
            on_wg(vec![
                Send(crate::wire::v1::header(XID).with(payload)),
                HearWords(vec![XID, 1, 0, ERROR, ERR_VERS_MISMATCH], false),
            ]),
            Lives,
        ),
        script(
            "version 2 of 2016 after the properties",
            "version-two-07, 7.1.3",
            on_wg(vec![
                Send(crate::wire::v2::plain(XID, crate::wire::v2::CALL, payload)),
                HearWords(wg::answer(XID, &[ERR_INVAL_HTYPE]), false),
            ]),
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
