//! Properties and credit limits of a hostile server (version-two-07, sections 4.2.1 and 5).

use super::XID;
use super::scripts::*;
use crate::End::{Left, Lives};
use crate::server::{Ask, Case, Outcome, Parts as Form, Step, Step::*, Until, case};
use crate::wire::rpc;
use crate::wire::wg::{
    self, CONNPROP_FINAL, CONNPROP_MIDDLE, CREDIT, ERR_BAD_PROPVAL, ERR_BAD_XDR, ERR_INVAL_CONT,
    INTRODUCTION, SMALLEST_RESULT, STRUCTURE, SUPPORT,
};

const PLACED: &str = "version-two-07, B.2";
const PROPERTIES: &str = "version-two-07, 5.1";
const LIMITS: &str = "version-two-07, 4.2.1";

pub(in crate::cases) fn cases() -> Vec<Case> {
    [properties(), credits()].concat()
}

/// Returns the cases of the properties of a server.
fn properties() -> Vec<Case> {
    let again = |name: &'static str, htype, words: &[u32], error| {
        let message = wg::message(XID, htype, words, &[]);
        answered(name, "version-two-07, 6.3.4", message, error)
    };
    let mut cases = vec![
        again(
            "RDMA2_CONNPROP_FINAL again",
            CONNPROP_FINAL,
            &[0],
            ERR_INVAL_CONT,
        ),
        again(
            "RDMA2_CONNPROP_MIDDLE behind the last",
            CONNPROP_MIDDLE,
            &[0],
            ERR_INVAL_CONT,
        ),
        again(
            "RDMA2_CONNPROP_FINAL that breaks off",
            CONNPROP_FINAL,
            &[1, 1],
            ERR_BAD_XDR,
        ),
        again(
            "RDMA2_CONNPROP_MIDDLE of 65 properties",
            CONNPROP_MIDDLE,
            &[65],
            ERR_BAD_XDR,
        ),
        again(
            "rdma_data longer than its message",
            CONNPROP_FINAL,
            &[1, 2, 8, 0],
            ERR_BAD_PROPVAL,
        ),
    ];
    // Values that make little sense: calls go on as well as they can.
    for (id, field) in (1..=5).zip(["SBSIZ", "RBSIZ", "RSSIZ", "RCSIZ", "BRS"]) {
        for value in [0, 1, 3, 1023, 1024, 1 << 20, 1 << 31, u32::MAX] {
            // Into receives of three bytes fits no call: the tests of the connection have those
            // (`wg_s5_2_2_a_receive_size_below_1024_is_not_exceeded`).
            if (id == 5 && value > 3) || (id == 2 && value <= 3) {
                continue;
            }
            let words = wg::set(&[(id, value)]);
            for (ask, what) in [
                (Ask::Read, "READ"),
                (Ask::Write, "WRITE"),
                (Ask::List, "READDIR"),
            ] {
                let name = format!("{field} is {value}, and {what}");
                cases.push(with(ask, name, PROPERTIES, vec![]).saying(words.clone()));
            }
        }
    }
    // Bad values: the message is refused, and the defaults hold (errata-07, 28).
    for (name, words, error) in [
        ("BRS is 4", vec![1, 5, 4, 4], ERR_BAD_PROPVAL),
        ("RBSIZ of 3 bytes", vec![1, 2, 3, 0], ERR_BAD_PROPVAL),
        ("SBSIZ of 8 bytes", vec![1, 1, 8, 0, 0], ERR_BAD_PROPVAL),
        (
            "RSSIZ of 4294967295 bytes",
            vec![1, 3, u32::MAX, 0],
            ERR_BAD_PROPVAL,
        ),
        ("RCSIZ of 1 byte", vec![1, 4, 1, 0], ERR_BAD_PROPVAL),
        (
            "HOSTAUTH of 5 bytes in 8",
            vec![1, 6, 8, 5, 0],
            ERR_BAD_PROPVAL,
        ),
        (
            "rdma_props is 2, and one follows",
            vec![2, 2, 4, 4096],
            ERR_BAD_XDR,
        ),
        (
            "rdma_props is 0, and one follows",
            vec![0, 2, 4, 4096],
            ERR_BAD_XDR,
        ),
        ("rdma_props missing", vec![], ERR_BAD_XDR),
        (
            "a structure of 4294967295 groups",
            vec![1, STRUCTURE, 4, u32::MAX],
            ERR_BAD_PROPVAL,
        ),
        (
            "support of 1 byte",
            vec![1, SUPPORT, 1, 0x0300_0000],
            ERR_BAD_PROPVAL,
        ),
    ] {
        let case = case(
            name,
            PROPERTIES,
            Ask::Null,
            introduction(&words, error),
            Lives,
        );
        cases.push(case.honest(Until::Start).costing(RECEIVES));
    }
    for (name, words) in [
        ("an empty set", vec![0]),
        (
            "properties nobody has",
            wg::set(&[(99, 1), (0xffff_ff80, 2), (0, 3)]),
        ),
        ("a structure of nothing", vec![1, STRUCTURE, 0]),
        ("support of all bits", wg::set(&[(SUPPORT, u32::MAX)])),
        (
            "a smallest result of a server",
            wg::set(&[(SMALLEST_RESULT, 0)]),
        ),
        ("HOSTAUTH", vec![1, 6, 8, 4, 0x6161_6161]),
    ] {
        cases.push(with(Ask::Write, name, PROPERTIES, vec![]).saying(words));
    }
    for (what, groups) in [
        (
            "with a target of 4294967292 bytes",
            [2, 1, 1024, 1, 0, 1, u32::MAX - 3, 4096, 1],
        ),
        (
            "with a target of 0 bytes",
            [2, 1, 1024, 1, 0, 1, 0, 4096, 1],
        ),
        (
            "with 4294967295 targets",
            [2, 1, 1024, 1, 0, u32::MAX, 65_536, 4096, 1],
        ),
        (
            "with an alignment of 0",
            [2, 1, 1024, 1, 0, 1, 65_536, 0, 1],
        ),
        (
            "with an alignment of 4294967295",
            [2, 1, 1024, 1, 0, 1, 65_536, u32::MAX, 1],
        ),
        (
            "that begins with the target",
            [2, 1, 1024, 1, 1, 1, 65_536, 4096, 0],
        ),
    ] {
        let mut words = wg::placing_properties();
        let at = words.len() - groups.len();
        words.splice(at.., groups);
        let name = format!("a structure {what}");
        cases.push(with(Ask::Write, name, PLACED, vec![]).saying(words));
    }
    cases
}

/// Returns the steps of a server whose only message with properties is refused, and that is honest
/// afterwards.
fn introduction(words: &[u32], error: u32) -> Vec<Step> {
    vec![
        HearFrame,
        Frame(crate::wire::mpa::Frame::reply()),
        HearProperties,
        Say(wg::message(INTRODUCTION, CONNPROP_FINAL, words, &[])),
        HearWords(wg::answer(INTRODUCTION, &[error])),
    ]
}

/// Returns the cases of credit limits of a server.
fn credits() -> Vec<Case> {
    let mut cases = Vec::new();
    // One message of the client is outstanding when the limit is lowered; it waits for the next.
    for limit in [0, 1, 5, 0x8000_0100, u32::MAX] {
        let name = format!("rdma_credit is {limit} in RDMA2_GRANT");
        // The reply has the limit, too: the client may send nothing until it is told another.
        let script = vec![
            Hear,
            Say(wg::grant(limit)),
            HearNothing,
            Part(Form::Plain, vec![(0, 2, limit)]),
            HearNothing,
            Say(wg::grant(CREDIT)),
        ];
        cases.push(with(Ask::Null, name, LIMITS, script).ending(Outcome::Refused));
    }
    cases.extend([
        with(
            Ask::Nulls(8),
            "rdma_credit allows one message at a time",
            LIMITS,
            vec![Hear, Say(wg::grant(CREDIT))],
        ),
        case(
            "replies beyond the limit of the client",
            LIMITS,
            Ask::Null,
            vec![
                Hear,
                Burst(300, |call| {
                    wg::reply(
                        call.header.xid + 1,
                        &rpc::accepted(call.header.xid + 1, 0, &[]),
                    )
                }),
            ],
            Left,
        )
        .saying(wg::plain_properties())
        .costing(FLOODED),
        case(
            "grants beyond the limit of the client",
            "version-two-07, 4.2.1.1",
            Ask::Null,
            vec![Hear, Burst(300, |_| wg::grant(CREDIT))],
            Left,
        )
        .saying(wg::plain_properties())
        .costing(FLOODED),
    ]);
    cases
}
