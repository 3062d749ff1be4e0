//! Versions, header types, headers that break off, and errors (version-two-07, sections 6.1, 7, 7.1 and 7.2).

use super::{
    BAD_XDR, Changed, FIRST_BAD_XDR, FIRST_ERR_VERS, FIRST_INVAL_HTYPE, Message, SILENCE, based,
    null, refused, row,
};
use crate::case::{Case, Ground, Level, Step};
use crate::expect::Expect;
use crate::wire::wg::{
    self, CALL_EXTERNAL, CALL_INLINE, CALL_MIDDLE, CREDIT, ERR_BAD_XDR, ERR_INVAL_HTYPE, ERR_VERS,
    ERR_VERS_MISMATCH, REPLY_EXTERNAL, REPLY_INLINE, REPLY_MIDDLE,
};
use crate::wire::{rpc, v1, v2};

/// Returns the cases.
#[must_use]
pub fn cases(ground: &Ground) -> Vec<Case> {
    [
        versions(ground),
        types(ground),
        inline(ground),
        short(ground),
        errors(ground),
        replies(ground),
    ]
    .concat()
}

/// Returns RDMA2_CALL_INLINE with a NULL call.
fn call_inline(xid: u32) -> Message {
    let fields = [
        ("rdma_inv_handle", 0),
        ("rdma_reads", 0),
        ("rdma_provisional_writes", 0),
        ("rdma_provisional_reply", 0),
        ("rdma_rpc_first_word", xid),
    ];
    Message {
        rest: rpc::null(xid).bytes()[4..].to_vec(),
        ..Message::new("RDMA2_CALL_INLINE", xid, CALL_INLINE, &fields)
    }
}

fn versions(ground: &Ground) -> Vec<Case> {
    const EXPECTS: &str =
        "RDMA2_ERROR with VERS (or VERS_MISMATCH), the XID and the version of the call";
    let of = |xid, version| v2::bytes(&[xid, version, CREDIT, CALL_INLINE, 0, 0, 0, 0]);
    let unsupported = |number, sends: &str, version: u32| {
        let xid = ground.xid();
        let mismatch = Expect::Error(xid, version, vec![Some(ERR_VERS_MISMATCH)]);
        let steps = vec![
            Step::Send(of(xid, version)),
            Step::Expect(vec![Expect::ErrVers(xid, version), mismatch]),
        ];
        let case = row("version-two-07, 7.1.1", number, sends, EXPECTS, steps);
        based(case, FIRST_ERR_VERS)
    };
    let version_1 = {
        let xid = ground.xid();
        let message = v1::header(xid).with(&rpc::null(xid).bytes());
        let mismatch = Expect::Error(xid, 1, vec![Some(ERR_VERS_MISMATCH)]);
        let any = vec![Some(ERR_VERS), None, None];
        let steps = vec![
            Step::Send(message),
            Step::Expect(vec![mismatch, Expect::Error(xid, 1, any)]),
        ];
        row(
            "version-two-07, 7.1.2",
            1,
            "a call of version 1 after messages of version 2",
            "RDMA2_ERROR with VERS_MISMATCH (or VERS), the XID and the version of the call",
            steps,
        )
        .needs(FIRST_ERR_VERS)
    };
    vec![
        unsupported(1, "version 3", 3),
        unsupported(2, "version 0", 0),
        unsupported(3, "version 4294967295", u32::MAX),
        version_1,
    ]
}

/// Header types that there are not.
fn types(ground: &Ground) -> Vec<Case> {
    const TYPES: [u32; 10] = [99, 0, 1, 2, 3, 14, 15, 0x7fff_ffff, 0xffff_feff, u32::MAX];
    const EXPECTS: &str = "RDMA2_ERROR with INVAL_HTYPE, and the next call is answered";
    let unknown = Changed {
        ground,
        make: &call_inline,
        section: "version-two-07, 6.1",
        errors: &[ERR_INVAL_HTYPE],
        expects: EXPECTS,
        base: FIRST_INVAL_HTYPE,
    };
    let mut cases = unknown.fields(1, &TYPES.map(|htype| (3, htype)));
    for (number, htype) in (20..).zip([0, 14, 99]) {
        let xid = ground.xid();
        let sends = format!("header type {htype} without more");
        let steps = vec![
            Step::Send(wg::message(xid, htype, &[], &[])),
            refused(xid, &[ERR_INVAL_HTYPE]),
        ];
        let case = row("version-two-07, 6.1", number, sends, EXPECTS, steps);
        cases.push(based(case, FIRST_INVAL_HTYPE));
    }
    let xid = ground.xid();
    let of_2016 = vec![
        Step::Send(v2::plain(xid, v2::CALL, &rpc::null(xid).bytes())),
        refused(xid, &[ERR_INVAL_HTYPE]),
    ];
    let sends = "a call of version-two-01 after messages of version-two-07";
    let case = row("version-two-07, 7.1.3", 1, sends, EXPECTS, of_2016);
    cases.push(based(case, FIRST_INVAL_HTYPE));
    cases
}

/// RDMA2_CALL_INLINE whose header cannot be decoded.
fn inline(ground: &Ground) -> Vec<Case> {
    let bad = Changed {
        ground,
        make: &call_inline,
        section: "version-two-07, 7.2.1",
        errors: &[ERR_BAD_XDR],
        expects: BAD_XDR,
        base: FIRST_BAD_XDR,
    };
    // The first case of the table is the one that the others need.
    let mut cases = bad.cut(1, &[20, 24, 28, 32]);
    cases.extend(bad.fields(
        10,
        &[
            (5, 1),
            (5, 2),
            (5, u32::MAX),
            (6, 1),
            (6, 2),
            (6, u32::MAX),
            (7, 2),
            (7, u32::MAX),
            (8, 0),
        ],
    ));
    cases.extend(bad.other_xids(30, &[0, 8]));
    let rows: [(u32, &str, u32, &[u32]); 3] = [
        (40, "RDMA2_CALL_EXTERNAL of nothing", CALL_EXTERNAL, &[]),
        (41, "RDMA2_CALL_MIDDLE of nothing", CALL_MIDDLE, &[]),
        (
            42,
            "RDMA2_CALL_MIDDLE without a payload",
            CALL_MIDDLE,
            &[40],
        ),
    ];
    for (number, sends, htype, fields) in rows {
        let xid = ground.xid();
        let steps = vec![
            Step::Send(wg::message(xid, htype, fields, &[])),
            refused(xid, &[ERR_BAD_XDR]),
        ];
        let case = row(bad.section, number, sends, BAD_XDR, steps);
        cases.push(based(case, FIRST_BAD_XDR));
    }
    cases
}

/// Messages that are shorter than the prefix, whose XID cannot be trusted. The text gives the prefix 20 octets, and
/// its structure has 16 (errata-07, 11).
fn short(ground: &Ground) -> Vec<Case> {
    let cut = |(number, end): (u32, usize)| {
        let message = null(ground.xid())[..end].to_vec();
        let sends = format!("{end} bytes of a call");
        let steps = vec![Step::Send(message)];
        row("version-two-07, 7", number, sends, SILENCE, steps)
    };
    (1..).zip([0, 1, 4, 8, 12, 15]).map(cut).collect()
}

/// RDMA2_ERROR to a server that has called nobody.
fn errors(ground: &Ground) -> Vec<Case> {
    const CODES: [u32; 17] = [
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
    ];
    let discarded = |number, sends: String, words: &[u32]| {
        let steps = vec![Step::Send(wg::error(ground.xid(), words))];
        row("version-two-07, 7", number, sends, SILENCE, steps)
    };
    let mut cases = Vec::new();
    for (at, code) in (0..).zip(CODES) {
        let most = match code {
            1 | 9 => 2,
            6..=8 | 10 => 1,
            _ => 0,
        };
        // An unknown code MUST be discarded. For a known one there is no call that it could be about.
        let level = match wg::error_name(code) {
            Some(_) => Level::Robustness,
            None => Level::Must,
        };
        for words in 0..=most {
            let fields = [&[code], &[2, 3][..words]].concat();
            let sends = format!("RDMA2_ERROR with code {code} and {words} words");
            let number = 100 + 10 * at + words as u32;
            cases.push(discarded(number, sends, &fields).level(level));
        }
        let long = [&[code][..], &[u32::MAX; 40]].concat();
        let sends = format!("RDMA2_ERROR with code {code} and 40 words");
        cases.push(discarded(109 + 10 * at, sends, &long).level(Level::Robustness));
    }
    cases.push(discarded(10, "RDMA2_ERROR without a code".into(), &[]).level(Level::Robustness));
    let sends = "RDMA2_ERROR about the properties of the server";
    let steps = vec![Step::Send(wg::error(1, &[wg::ERR_BAD_PROPVAL]))];
    let about = row("version-two-07, 7", 11, sends, SILENCE, steps);
    cases.push(about.level(Level::Robustness));
    cases
}

/// Replies to a server that has called nobody.
fn replies(ground: &Ground) -> Vec<Case> {
    let rows: [(u32, &str, u32, &[u32]); 3] = [
        (1, "RDMA2_REPLY_INLINE", REPLY_INLINE, &[0]),
        (2, "RDMA2_REPLY_MIDDLE", REPLY_MIDDLE, &[4]),
        (
            3,
            "RDMA2_REPLY_EXTERNAL",
            REPLY_EXTERNAL,
            &[0, 1, 1, 0x51, 64, 0, 0],
        ),
    ];
    let one = |(number, name, htype, fields): (u32, &str, u32, &[u32])| {
        let xid = ground.xid();
        let payload = match htype {
            REPLY_EXTERNAL => Vec::new(),
            _ => rpc::accepted(xid, 0, &[]),
        };
        let sends = format!("{name} to no call");
        let steps = vec![Step::Send(wg::message(xid, htype, fields, &payload))];
        let case = row("version-two-07, 4.6", number, sends, SILENCE, steps);
        case.level(Level::Robustness)
    };
    rows.into_iter().map(one).collect()
}
