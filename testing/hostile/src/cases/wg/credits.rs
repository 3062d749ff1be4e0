//! Credits (version-two-07, sections 4.2.1, 4.2.1.1 and 6.3.2): limits that a hostile client tells,
//! messages beyond the limit of the server, and RDMA2_GRANT.

use super::*;
use crate::client::Case;
use crate::rig::SERVER;

const LIMITS: &str = "version-two-07, 4.2.1";
const GRANTS: &str = "version-two-07, 4.2.1.1";

fn null(xid: u32) -> Vec<u8> {
    wg::call(xid, &rpc::null(xid).bytes())
}

fn success(xid: u32) -> Step {
    HearWords(wg::success(xid, &[]), false)
}

fn errors(count: usize) -> Vec<Step> {
    let one = vec![
        Send(wg::message(XID, 99, &[], &[])),
        HearWords(wg::answer(XID, &[wg::ERR_INVAL_HTYPE]), false),
    ];
    vec![Repeat(count, one)]
}

pub(in crate::cases) fn cases() -> Vec<Case> {
    let with =
        |name: &str, section, steps: Vec<Step>, end| script(name, section, on_wg(steps), end);
    let mut cases = vec![
        with(
            "control: a hundred calls",
            LIMITS,
            vec![Repeat(100, vec![Send(null(XID)), success(XID)])],
            Lives,
        ),
        with(
            "control: RDMA2_GRANT",
            "version-two-07, 6.3.2",
            vec![Send(wg::grant(CREDIT))],
            Lives,
        ),
        with(
            "RDMA2_GRANT with an XID",
            "version-two-07, 6.3.2",
            vec![Send(wg::message(XID, wg::GRANT, &[], &[]))],
            Lives,
        ),
    ];
    // RDMA2_OPTIONAL of 2016 has the same number, and more words.
    for words in [1_usize, 3, 10] {
        cases.push(refused(
            format!("RDMA2_GRANT with {words} words behind it"),
            "version-two-07, 6.3.2",
            wg::message(XID, wg::GRANT, &vec![0; words], &[]),
            &[wg::ERR_BAD_XDR],
        ));
    }
    // The server has sent one message, its properties. Limits behind that, by any distance, let it
    // send nothing; the next limit counts.
    for limit in [0, 1, 0x8000_0001, 0xc000_0000, u32::MAX] {
        cases.push(with(
            &format!("rdma_credit is {limit} in a call"),
            LIMITS,
            vec![
                Send(wg::with_credit(null(XID), limit)),
                HearNothing,
                Send(wg::grant(CREDIT)),
                success(XID),
            ],
            Lives,
        ));
    }
    // One message is allowed, and no more.
    cases.push(with(
        "rdma_credit is 2 in two calls",
        LIMITS,
        vec![
            Send(wg::with_credit(null(XID), 2)),
            Send(wg::with_credit(null(XID + 1), 2)),
            success(XID),
            HearNothing,
            Send(wg::grant(CREDIT)),
            success(XID + 1),
        ],
        Lives,
    ));
    cases.push(with(
        "rdma_credit is lowered while calls are in progress",
        LIMITS,
        vec![
            Send(wg::with_credit(null(XID), 1)),
            Send(wg::with_credit(null(XID + 1), CREDIT)),
            success(XID),
            success(XID + 1),
            Send(wg::with_credit(null(XID + 2), 1)),
            HearNothing,
            Send(wg::with_credit(null(XID + 3), 0)),
            HearNothing,
            Send(wg::grant(CREDIT)),
            success(XID + 2),
            success(XID + 3),
        ],
        Lives,
    ));
    cases.push(with(
        "rdma_credit of 0 in the first message",
        LIMITS,
        vec![],
        Lives,
    ));
    let zero = wg::with_credit(wg::introduction(&wg::plain_properties()), 0);
    let last = cases.len() - 1;
    // The server may send nothing at all: the initial credit is taken back.
    cases[last].script = on(vec![
        Wg,
        Send(zero),
        HearNothing,
        Send(wg::grant(CREDIT)),
        HearType(CONNPROP_FINAL),
    ]);
    cases.extend(beyond());
    cases
}

/// Returns the case of a client that never grants the credits that its replies need. The server must end
/// the connection.
pub(in crate::cases) fn without_progress() -> Vec<Case> {
    let calls = wg::with_credit(null(XID), 1);
    let steps = vec![Send(calls), HearNothing, LetsGo];
    vec![script(
        "replies that wait for credits for ever",
        LIMITS,
        on_wg(steps),
        End::Left,
    )]
}

/// Returns the case of a client that follows the rule of section 4.2.1 as printed: it posts a call
/// while its sent count is not greater than the limit. That call and a grant are both beyond the
/// limit, because the server cannot raise the limit before it gets the credits for its replies.
fn surplus(name: &str, grant_first: bool) -> Case {
    let introduction = wg::introduction(&wg::plain_properties());
    let xids = || (1..=SERVER.credits + 1).map(|at| XID + at);
    let mut steps: Vec<Step> = xids()
        .map(|xid| Send(wg::with_credit(null(xid), 1)))
        .collect();
    let at = steps.len() - usize::from(grant_first);
    steps.insert(at, Send(wg::grant(CREDIT)));
    if grant_first {
        // The server uses the credit value of the last message, so the call carries CREDIT.
        steps.pop();
        steps.push(Send(null(XID + SERVER.credits + 1)));
    }
    steps.extend(xids().map(success));
    script(
        name,
        LIMITS,
        beginning(wg::with_credit(introduction, 1), steps),
        Lives,
    )
}

/// Returns the cases of messages beyond what the server allows, and of useless grants.
fn beyond() -> Vec<Case> {
    let with =
        |name: &str, section, steps: Vec<Step>, end| script(name, section, on_wg(steps), end);
    let bad = wg::with_credit(wg::message(XID, 99, &[], &[]), 0);
    vec![
        surplus("one call too many, and a grant", false),
        surplus("a grant beyond the limit, and then one call too many", true),
        with(
            "errors that wait for credits, and are taken in the end",
            "version-two-07, 7",
            {
                vec![
                    Burst(12, bad.clone()),
                    HearNothing,
                    Send(wg::grant(CREDIT)),
                    Repeat(
                        12,
                        vec![HearWords(wg::answer(XID, &[wg::ERR_INVAL_HTYPE]), false)],
                    ),
                ]
            },
            Lives,
        ),
        with(
            "errors that wait for credits without end",
            "version-two-07, 7",
            vec![Flood(400, bad), LetsGo],
            End::Left,
        ),
        with(
            "grants without end, each with the same limit",
            GRANTS,
            {
                // They are paid for like any message, and the server refreshes the credits.
                vec![Repeat(200, vec![Send(wg::grant(CREDIT)), Turn])]
            },
            Lives,
        ),
        with(
            "errors without end, each of them answered",
            LIMITS,
            errors(300),
            Lives,
        ),
        script(
            "two messages before the properties of the server",
            "version-two-07, 4.3",
            // The first one is answered with credits before the second is taken.
            on(vec![
                Wg,
                Burst(2, wg::introduction(&wg::plain_properties())),
                HearType(CONNPROP_FINAL),
                HearWords(wg::answer(wg::INTRODUCTION, &[wg::ERR_INVAL_CONT]), false),
            ]),
            Lives,
        ),
        script(
            "a hundred calls at once",
            LIMITS,
            on_wg(vec![Burst(100, null(XID)), LetsGo]),
            End::Left,
        ),
        script(
            "two calls too many",
            LIMITS,
            beginning(
                wg::with_credit(wg::introduction(&wg::plain_properties()), 1),
                vec![
                    Burst(SERVER.credits as usize + 2, wg::with_credit(null(XID), 1)),
                    LetsGo,
                ],
            ),
            End::Left,
        ),
        script(
            "a hundred grants at once",
            LIMITS,
            on_wg(vec![Burst(100, wg::grant(CREDIT)), LetsGo]),
            End::Left,
        ),
        script(
            "a hundred parts of a call at once",
            LIMITS,
            on_wg(vec![
                Burst(100, wg::message(XID, wg::CALL_MIDDLE, &[4000], &[0; 4])),
                LetsGo,
            ]),
            End::Left,
        ),
        script(
            "calls of a client that takes no replies, without end",
            LIMITS,
            on_wg(vec![Flood(400, wg::with_credit(null(XID), 0)), LetsGo]),
            End::Left,
        ),
    ]
}
