//! Groups of transmissions of a hostile client: ROPT_XMTCONT with each field changed (rtrext-00,
//! sections 4, 5.4 and 9.4), and groups that are abandoned, interrupted, repeated, too long, or
//! exceed the credits.

use rpcrdma_conform::fields::Word;

use super::*;
use crate::cases::vary::{Limits, changes, with_word, words_of};
use crate::client::{Case, case};
use crate::wire::rpc;
use crate::wire::v2::{OPERATION, REPLY, UPDXCH, XMTCONT, XMTREQ};

const SECTION: &str = "rtrext-00, 9.4";
const GROUPS: &str = "rtrext-00, 4.2";

/// The number of bytes in the first transmission of NULL, which has 40 bytes.
const FIRST: usize = 8;

/// Returns the first of `count` transmissions of NULL, with its first bytes.
fn first(xid: u32, count: u32) -> Vec<u8> {
    let payload = rpc::null(xid).bytes();
    let info = [0, 0, count, 0, FIRST as u32];
    v2::operation(xid, CALL, XMTREQ, &info, &payload[..FIRST])
}

/// Returns the words of a continuation with the rest of NULL.
fn info(number: u32) -> [u32; 3] {
    [number, XMTREQ, 40 - FIRST as u32]
}

fn continued(xid: u32, direction: u32, info: &[u32]) -> Vec<u8> {
    let rest = &rpc::null(xid).bytes()[FIRST..];
    v2::operation(xid, direction, XMTCONT, info, rest)
}

fn second(xid: u32, number: u32) -> Vec<u8> {
    continued(xid, CALL, &info(number))
}

/// Returns the words of ROPT_XMTERR about transmission `number` of the group that `XID` began.
fn report(number: u32, lead: bool, fault: &[u32]) -> Vec<u32> {
    let lead = match lead {
        true => vec![1, XID, CALL, 0],
        false => vec![0],
    };
    v2::report(
        XID,
        CALL,
        &[&[XID, CALL, number], &lead[..], fault].concat(),
    )
}

fn success(xid: u32) -> Vec<u32> {
    v2::success(xid, &[])
}

fn null(xid: u32) -> Vec<u8> {
    v2::plain(xid, CALL, &rpc::null(xid).bytes())
}

/// The description, the messages that are sent, and the words of the answers.
type Row = (&'static str, Vec<Vec<u8>>, Vec<Vec<u32>>);

pub(in crate::cases) fn cases() -> Vec<Case> {
    let mut cases = every_field();
    let rows: [Row; 16] = [
        (
            "control: two transmissions",
            vec![first(XID, 2), second(XID, 1)],
            vec![success(XID)],
        ),
        (
            "a continuation of nothing",
            vec![second(XID, 1)],
            vec![report(1, false, &[3])],
        ),
        (
            "the same continuation twice",
            vec![first(XID, 3), second(XID, 1), second(XID, 1)],
            vec![report(1, true, &[4, 2, 1])],
        ),
        (
            "continuations in another order",
            vec![first(XID, 3), second(XID, 2), second(XID, 1)],
            vec![report(2, true, &[4, 1, 2])],
        ),
        (
            "a call between",
            vec![first(XID, 2), null(5), second(XID, 1)],
            vec![report(1, true, &[1, 5, 0]), success(5)],
        ),
        (
            "an update between",
            vec![
                first(XID, 2),
                v2::operation(5, CALL, UPDXCH, &[99, 4, 7, 0], &[]),
                second(XID, 1),
            ],
            vec![report(1, true, &[2, 7, 4])],
        ),
        (
            "an operation nobody has between",
            vec![
                first(XID, 2),
                v2::operation(5, CALL, 99, &[], &[]),
                second(XID, 1),
            ],
            vec![report(1, true, &[2, 7, 99]), v2::invalid_option(5)],
        ),
        (
            "an error between",
            vec![first(XID, 2), bytes(&[5, 2, 8, 4, 2]), second(XID, 1)],
            vec![report(1, true, &[1, 5, 4])],
        ),
        (
            "another group between",
            vec![first(XID, 2), first(5, 2), second(5, 1)],
            vec![report(1, true, &[2, 7, 5]), success(5)],
        ),
        (
            "the same group anew",
            vec![first(XID, 2), first(XID, 2), second(XID, 1)],
            vec![report(1, true, &[2, 7, 5]), success(XID)],
        ),
        (
            "a group that is abandoned, and begun again",
            vec![first(XID, 3), null(5), first(XID, 2), second(XID, 1)],
            vec![report(1, true, &[1, 5, 0]), success(5), success(XID)],
        ),
        (
            "optxrq_count of more than credits, all of them",
            vec![first(XID, GRANT + 1), second(XID, 1), second(XID, 2)],
            vec![report(0, false, &[4, GRANT, GRANT + 1])],
        ),
        (
            "a continuation cut short",
            vec![
                first(XID, 2),
                v2::operation(XID, CALL, XMTCONT, &[1, 5], &[]),
                second(XID, 1),
            ],
            vec![v2::bad_header(XID)],
        ),
        (
            "a continuation with a word more",
            vec![
                first(XID, 2),
                v2::operation(XID, CALL, XMTCONT, &[1, 5, 0, 0], &[]),
                second(XID, 1),
            ],
            vec![v2::bad_header(XID)],
        ),
        (
            "a continuation in a reply",
            vec![
                first(XID, 2),
                continued(XID, REPLY, &info(1)),
                second(XID, 1),
            ],
            vec![v2::report(
                XID,
                REPLY,
                &[XID, REPLY, 1, 1, XID, CALL, 0, 5, XID, XID],
            )],
        ),
        (
            "a continuation of another call",
            vec![first(XID, 2), second(5, 1), second(XID, 1), second(5, 2)],
            vec![v2::report(
                5,
                CALL,
                &[5, CALL, 1, 1, XID, CALL, 0, 5, XID, 5],
            )],
        ),
    ];
    cases.extend(rows.map(|(name, messages, answers)| row(name, GROUPS, messages, answers)));
    cases.extend(many());
    cases
}

fn every_field() -> Vec<Case> {
    let len = 40 - FIRST as u32;
    let words = words_of("optxmt_cont", &info(1));
    let limits: Limits<'_> = &[("optxc_itype", &[7]), ("optxc_pslen", &[1 << 31])];
    let case = |(word, value): (&Word<'_>, u32)| {
        let fault = match word.field() {
            "optxc_xnum" => [4, 1, value].to_vec(),
            "optxc_itype" => [2, XMTREQ, value].to_vec(),
            // A transmission with less of the payload is whole.
            _ if value < len && value.is_multiple_of(4) => return None,
            _ => [8, value, 0, len].to_vec(),
        };
        let changed = with_word(&info(1), word, value);
        // If the number becomes 0, the changed transmission itself is the first one, and invalid.
        let number = changed[0];
        Some(row(
            format!("{} is {value}", word.place),
            SECTION,
            vec![
                first(XID, 3),
                continued(XID, CALL, &changed),
                second(XID, 1),
            ],
            vec![report(number, true, &fault)],
        ))
    };
    changes(&words, limits)
        .into_iter()
        .filter_map(case)
        .collect()
}

/// Returns the cases of many groups, and of long ones.
fn many() -> Vec<Case> {
    // All the transmissions that the credits allow, each as long as a receive buffer.
    let long = |most: u32| -> Vec<Step> {
        let rest = vec![0; v2::HEAD + v2::TARGET - OPERATION - 12];
        let header = [0, 0, most, 0, FIRST as u32];
        let first = v2::operation(XID, CALL, XMTREQ, &header, &rpc::null(XID).bytes()[..FIRST]);
        let mut steps = vec![Send(first)];
        for number in 1..most {
            let len = rest.len() as u32 / 4 * 4;
            let info = [number, XMTREQ, len];
            steps.push(Send(v2::operation(XID, CALL, XMTCONT, &info, &rest)));
        }
        steps
    };
    let mut too_long = long(GRANT);
    // More than the maximum message length, which is detected when the group is complete.
    let room = (v2::HEAD + v2::TARGET - OPERATION - 12) as u32 / 4 * 4;
    let sum = FIRST as u32 + (GRANT - 1) * room;
    too_long.push(HearWords(report(0, false, &[8, sum, 0, 256 << 10]), false));
    vec![
        case(
            "a continuation behind its group",
            GROUPS,
            on_second(vec![
                Send(first(XID, 2)),
                Send(second(XID, 1)),
                HearWords(success(XID), false),
                Send(second(XID, 2)),
                HearWords(report(2, false, &[3]), false),
            ]),
            Lives,
        )
        .costing(RECEIVES),
        case(
            "a message too long, in as many transmissions as there are credits",
            GROUPS,
            on_second(too_long),
            Lives,
        )
        .costing(2 * RECEIVES),
        case(
            "a hundred groups that are abandoned",
            GROUPS,
            on_second(vec![
                Send(first(XID, 3)),
                Send(second(XID, 1)),
                Repeat(
                    100,
                    vec![
                        Send(first(XID, 3)),
                        HearWords(report(2, true, &[2, 7, 5]), false),
                        Send(second(XID, 1)),
                    ],
                ),
                Send(null(5)),
                HearWords(report(2, true, &[1, 5, 0]), false),
                HearWords(success(5), false),
            ]),
            Lives,
        )
        .costing(RECEIVES),
        case(
            "a long group that its connection ends in",
            GROUPS,
            on_second({
                let mut steps = long(GRANT);
                steps.pop();
                steps.extend([Turn, Works, Abort]);
                steps
            }),
            crate::End::Left,
        )
        .costing(2 * RECEIVES),
        case(
            "long groups on four connections, none complete",
            GROUPS,
            {
                let mut script = Vec::new();
                for _ in 0..4 {
                    let mut steps = long(GRANT);
                    steps.pop();
                    script.extend(on_second(steps));
                }
                script.push(Works);
                script
            },
            crate::End::Left,
        )
        .costing(8 * RECEIVES),
    ]
}
