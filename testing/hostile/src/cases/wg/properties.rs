//! RDMA2_CONNPROP_MIDDLE and RDMA2_CONNPROP_FINAL (version-two-07, sections 5, 6.3.3 and 6.3.4), sent
//! to a server: the cases of `rpcrdma conform`, and those that depend on this server's limits and extensions.

use super::*;
use crate::cases::judged::judged_wg;
use crate::client::Case;
use crate::wire::wg::{
    CONNPROP_MIDDLE, ERR_BAD_PROPVAL, ERR_BAD_XDR, ERR_INVAL_CONT, ERR_REPLY_RESOURCE,
    INTRODUCTION, SMALLEST_RESULT, STRUCTURE, SUPPORT,
};

const VALUES: &str = "version-two-07, 5.1";
const EXCHANGE: &str = "version-two-07, 6.3.4";
const PARTS: &str = "version-two-07, 6.3.3";

fn last(words: &[u32]) -> Vec<u8> {
    wg::introduction(words)
}

fn middle(words: &[u32]) -> Vec<u8> {
    wg::message(INTRODUCTION, CONNPROP_MIDDLE, words, &[])
}

fn error(error: u32) -> Step {
    HearWords(wg::answer(INTRODUCTION, &[error]), false)
}

fn null(xid: u32) -> Vec<u8> {
    wg::call(xid, &rpc::null(xid).bytes())
}

fn success(xid: u32) -> Step {
    HearWords(wg::success(xid, &[]), false)
}

/// Returns a case whose first message has these properties, which are taken.
fn taken(name: impl Into<String>, section: &'static str, words: &[u32], file: &[u8]) -> Case {
    let mut steps = vec![Send(null(XID)), success(XID)];
    steps.extend(read_all(file));
    script(name, section, introduced(words, steps), Lives)
}

/// Returns a case whose first message announces receives in which no reply fits.
fn unanswerable(name: String, words: &[u32], file: &[u8]) -> Case {
    let error = || HearWords(wg::answer(XID, &[ERR_REPLY_RESOURCE, 0]), false);
    let read = nfs(XID, 6, rpc::read_args(file, 0, 4096));
    let steps = vec![
        Send(null(XID)),
        error(),
        Send(wg::call(XID, &read)),
        error(),
        Shut,
    ];
    script(
        name,
        "version-two-07, 5.2.2",
        introduced(words, steps),
        End::Closed,
    )
}

/// Returns a case whose first message has properties that are refused. The defaults hold then.
fn refused(name: impl Into<String>, words: &[u32], code: u32) -> Case {
    let steps = vec![error(code), Send(null(XID)), success(XID)];
    script(name, VALUES, introduced(words, steps), Lives)
}

/// Returns the steps of a READ of 4096 bytes without chunks, whose reply has several parts. The
/// last one is an RDMA2_REPLY_INLINE, whatever was announced.
fn read_all(file: &[u8]) -> Vec<Step> {
    let call = nfs(XID, 6, rpc::read_args(file, 0, 4096));
    vec![Send(wg::call(XID, &call)), HearParts(XID, vec![0])]
}

pub(in crate::cases) fn cases(file: &[u8]) -> Vec<Case> {
    let mut cases = judged_wg(rpcrdma_conform::cases::wg::properties, file);
    cases.extend(numbers(file));
    cases.extend(sets());
    cases.extend(exchanges());
    cases.extend(placement(file));
    cases
}

/// Returns the cases of numbers with which no reply fits, and of levels that are not defined.
fn numbers(file: &[u8]) -> Vec<Case> {
    let mut cases = Vec::new();
    for value in [0, 1] {
        let words = wg::set(&[(2, value)]);
        cases.push(unanswerable(format!("RBSIZ is {value}"), &words, file));
    }
    for level in [4, 5, 256, u32::MAX] {
        cases.push(refused(
            format!("BRS is {level}"),
            &wg::set(&[(5, level)]),
            ERR_BAD_PROPVAL,
        ));
    }
    cases
}

/// Returns the cases of sets of properties: more than the server takes, and words behind them.
fn sets() -> Vec<Case> {
    let right = wg::plain_properties();
    let counted = |count: u32| [&[count], &right[1..]].concat();
    let many: Vec<(u32, u32)> = (0..65).map(|n| (99 + n, n)).collect();
    vec![
        refused(
            "rdma_props one less than there are",
            &counted(4),
            ERR_BAD_XDR,
        ),
        refused("rdma_props is 0, and five follow", &counted(0), ERR_BAD_XDR),
        refused(
            "one bad value among good ones",
            &wg::set(&[(2, 1), (5, 4)]),
            ERR_BAD_PROPVAL,
        ),
        refused("65 properties", &wg::set(&many), ERR_BAD_XDR),
    ]
}

/// Returns the cases of exchanges out of order.
fn exchanges() -> Vec<Case> {
    let (all, one) = (wg::plain_properties(), wg::set(&[(99, 0)]));
    let interrupted = |xid| HearWords(wg::answer(xid, &[ERR_INVAL_CONT]), false);
    let with = |name: &str, section, first: Vec<u8>, steps: Vec<Step>| {
        script(name, section, beginning(first, steps), Lives)
    };
    let on_middle = |name: &str, steps: Vec<Step>| {
        with(
            name,
            PARTS,
            middle(&one),
            [steps, vec![Send(last(&all))]].concat(),
        )
    };
    let crowded = wg::set(&(0..40).map(|n| (99 + n, 0)).collect::<Vec<_>>());
    vec![
        with(
            "RDMA2_CONNPROP_FINAL a hundred times",
            EXCHANGE,
            last(&all),
            vec![Repeat(100, vec![Send(last(&all)), error(ERR_INVAL_CONT)])],
        ),
        with(
            "RDMA2_CONNPROP_FINAL between the parts of a call, and again",
            EXCHANGE,
            null(XID),
            {
                let (next, call) = (XID + 1, rpc::null(XID + 1).bytes());
                vec![
                    success(XID),
                    Send(wg::message(next, wg::CALL_MIDDLE, &[24], &call[..16])),
                    Send(last(&all)),
                    error(ERR_INVAL_CONT),
                    Send(wg::call(next, &call[16..])),
                    success(next),
                    Send(last(&all)),
                    error(ERR_INVAL_CONT),
                ]
            },
        ),
        with(
            "RDMA2_CONNPROP_FINAL again after a bad one",
            "version-two-07, 7.2.2",
            last(&wg::set(&[(5, 9)])),
            vec![
                error(ERR_BAD_PROPVAL),
                Send(last(&all)),
                error(ERR_INVAL_CONT),
            ],
        ),
        with(
            "RDMA2_CONNPROP_FINAL again after one that breaks off",
            "version-two-07, 7.2.1",
            last(&[7]),
            vec![error(ERR_BAD_XDR), Send(last(&all)), error(ERR_INVAL_CONT)],
        ),
        on_middle(
            "RDMA2_CALL_PLACED between RDMA2_CONNPROP_MIDDLE and RDMA2_CONNPROP_FINAL",
            vec![
                Send(wg::message(
                    XID,
                    wg::CALL_PLACED,
                    &[0, 0, 0, 0, 0, 40],
                    &rpc::null(XID).bytes(),
                )),
                interrupted(XID),
            ],
        ),
        on_middle(
            "grants and errors between RDMA2_CONNPROP_MIDDLE and RDMA2_CONNPROP_FINAL",
            vec![Send(wg::grant(CREDIT)), Send(wg::error(XID, &[2]))],
        ),
        on_middle(
            "RDMA2_CONNPROP_MIDDLE with another XID",
            vec![Send(wg::message(XID, CONNPROP_MIDDLE, &one, &[]))],
        ),
        on_middle(
            "RDMA2_CONNPROP_MIDDLE with a bad value",
            vec![Send(middle(&wg::set(&[(5, 9)]))), error(ERR_BAD_PROPVAL)],
        ),
        on_middle(
            "RDMA2_CONNPROP_MIDDLE with words behind it",
            vec![Send(middle(&[0, 0])), error(ERR_BAD_XDR)],
        ),
        with(
            "RDMA2_CONNPROP_MIDDLE, and no end",
            PARTS,
            middle(&one),
            vec![
                Repeat(63, vec![Send(middle(&one)), Turn]),
                Repeat(40, vec![Send(middle(&one)), error(ERR_INVAL_CONT)]),
                Send(last(&[0])),
            ],
        ),
        with(
            "RDMA2_CONNPROP_FINAL with the 80th property",
            PARTS,
            middle(&crowded),
            // A refused FINAL ends the exchange (errata-07, 28).
            vec![Send(last(&crowded)), error(ERR_INVAL_CONT)],
        ),
        script(
            "RDMA2_CONNPROP_MIDDLE, and a FIN",
            PARTS,
            beginning(middle(&one), vec![Shut]),
            End::Closed,
        ),
    ]
}

/// Returns the cases of the properties of data placement. A structure that can be decoded and makes
/// no sense is ignored.
fn placement(file: &[u8]) -> Vec<Case> {
    const SECTION: &str = "version-two-07, B.3";
    let base = wg::set(&[(1, 1 << 20), (2, 66_560)]);
    let structure = |groups: &[u32]| {
        let mut words = base.clone();
        words[0] += 3;
        words.extend([SUPPORT, 4, 3, SMALLEST_RESULT, 4, 1024]);
        words.extend([STRUCTURE, 4 * groups.len() as u32]);
        words.extend(groups);
        words
    };
    let (head, page) = (1024, 4096);
    let rows: [(&str, &[u32]); 14] = [
        ("of the product", &[2, 1, head, 1, 0, 1, 65_536, page, 1]),
        ("of nothing", &[]),
        ("of no groups", &[0]),
        ("with a count of 0", &[2, 0, head, 1, 0, 1, 65_536, page, 1]),
        (
            "with a count of 4294967295",
            &[2, 1, head, 1, 0, u32::MAX, 65_536, page, 1],
        ),
        ("with a length of 0", &[2, 1, head, 1, 0, 1, 0, page, 1]),
        (
            "with a length of 4294967295",
            &[2, 1, head, 1, 0, 1, u32::MAX, page, 1],
        ),
        (
            "that is longer than the receives",
            &[2, 1, head, 1, 0, 1, 65_540, page, 1],
        ),
        (
            "that is shorter than the receives",
            &[2, 1, head, 1, 0, 1, 65_532, page, 1],
        ),
        (
            "with an alignment of 0",
            &[2, 1, head, 1, 0, 1, 65_536, 0, 1],
        ),
        (
            "with an alignment of 3",
            &[2, 1, head, 1, 0, 1, 65_536, 3, 1],
        ),
        (
            "with an alignment of 4294967295",
            &[2, 1, head, 1, 0, 1, 65_536, u32::MAX, 1],
        ),
        (
            "with unknown flags",
            &[2, 1, head, 1, u32::MAX, 1, 65_536, page, u32::MAX],
        ),
        ("of 1040 segments of 64 bytes", &[1, 1040, 64, 1, 1]),
    ];
    let undecodable: [(&str, &[u32]); 6] = [
        ("of one group that is missing", &[1]),
        ("cut off in a group", &[1, 1, head, 1]),
        ("of 65 groups that are missing", &[65]),
        ("of 4294967295 groups", &[u32::MAX, 1, head, 1, 0]),
        (
            "that counts one less",
            &[1, 1, head, 1, 0, 1, 65_536, page, 1],
        ),
        (
            "that counts one more",
            &[3, 1, head, 1, 0, 1, 65_536, page, 1],
        ),
    ];
    let mut cases = Vec::new();
    for (what, groups) in undecodable {
        let name = format!("structure {what}");
        cases.push(refused(name, &structure(groups), ERR_BAD_PROPVAL));
    }
    for (what, groups) in rows {
        let mut case = taken(
            format!("structure {what}"),
            SECTION,
            &structure(groups),
            &[],
        );
        // Results are placed, or not, as the structure allows; NULL has none.
        case.script.truncate(case.script.len() - 2);
        cases.push(case);
    }
    for (id, name) in [(SUPPORT, "support"), (SMALLEST_RESULT, "smallest result")] {
        for value in [0, 1, 3, 4, u32::MAX] {
            let words = wg::set(&[(id, value)]);
            cases.push(taken(format!("{name} is {value}"), SECTION, &words, file));
        }
        for len in [0_u32, 1, 3, 5, 8] {
            let value = vec![0; len.div_ceil(4) as usize];
            let words = [&[1, id, len][..], &value].concat();
            let name = format!("{name} of {len} bytes");
            cases.push(match len {
                0 => taken(name, SECTION, &words, file),
                _ => refused(name, &words, ERR_BAD_PROPVAL),
            });
        }
    }
    cases
}
