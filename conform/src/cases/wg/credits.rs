//! Credits and first messages (version-two-07, sections 4.2.1, 4.3 and 6.3.2).

use super::{FIRST_ERR_VERS, SILENCE, answered, first_row, null, reply, row, two_xids};
use crate::case::{Case, Ground, Level, Step};
use crate::expect::{Expect, success};
use crate::wire::v2;
use crate::wire::wg::{self, CALL_INLINE, CREDIT, GRANT};

const LIMITS: &str = "version-two-07, 4.2.1";
const GRANTS: &str = "version-two-07, 4.2.1.1";
/// The most calls that are made at once.
const AT_ONCE: u32 = 64;
/// More messages than any server has credits.
const MANY: usize = 4096;
/// The address of the plain case of a limit that is used up.
const FIRST_LIMIT: &str = "rpcrdma2-07/4.2.1/3";

/// Returns the cases.
pub(super) fn cases(ground: &Ground) -> Vec<Case> {
    [
        progress(ground),
        limits(ground),
        grants(ground),
        first_messages(ground),
    ]
    .concat()
}

/// Credits of the server.
fn progress(ground: &Ground) -> Vec<Case> {
    let robust = |case: Case| case.level(Level::Robustness);
    let turns = (0..100).flat_map(|_| answered(ground.xid()));
    vec![
        robust(row(
            GRANTS,
            1,
            "properties",
            "credit for another message, at once or by RDMA2_GRANT",
            vec![],
        )),
        robust(row(
            LIMITS,
            1,
            "as many calls at once as the credits allow, at most 64",
            "a reply to each",
            [answered(ground.xid()), vec![Step::Burst(AT_ONCE)]].concat(),
        )),
        robust(row(
            LIMITS,
            2,
            "a hundred calls, one after the other",
            "a reply to each, and credit for the next call in time",
            turns.collect(),
        )),
    ]
}

/// Credits of this client, which limit what the server sends. The text allows one message more than it means
/// (errata-07, 2), so that only a limit behind what has come is free of doubt.
fn limits(ground: &Ground) -> Vec<Case> {
    let limited = |more: i32| {
        let (before, xid) = two_xids(ground);
        let mut steps = answered(before);
        steps.extend([
            Step::Quiet,
            Step::SendGranting(more, null(xid)),
            Step::Quiet,
            Step::Send(wg::grant(CREDIT)),
            reply(success(xid, &[])),
        ]);
        steps
    };
    let waits = "nothing until RDMA2_GRANT raises the limit, and then the reply";
    let two = {
        let (one, two) = two_xids(ground);
        let either = [one, two].map(|xid| Expect::Reply(success(xid, &[])));
        vec![
            Step::Quiet,
            Step::SendGranting(1, null(one)),
            Step::SendGranting(1, null(two)),
            Step::Expect(either.to_vec()),
            Step::Quiet,
            Step::Send(wg::grant(CREDIT)),
            Step::Expect(either.to_vec()),
        ]
    };
    vec![
        row(
            LIMITS,
            3,
            "a call whose credit limit is one less than the messages that have come",
            waits,
            limited(-1),
        ),
        row(
            LIMITS,
            4,
            "a call whose credit limit is the number of messages that have come",
            waits,
            limited(0),
        )
        .level(Level::Should)
        .needs(FIRST_LIMIT),
        row(
            LIMITS,
            5,
            "two calls whose credit limit allows one message",
            "one reply, and the other after RDMA2_GRANT raises the limit",
            two,
        )
        .level(Level::Should)
        .needs(FIRST_LIMIT),
    ]
}

fn grants(ground: &Ground) -> Vec<Case> {
    const SECTION: &str = "version-two-07, 6.3.2";
    let many = (0..20).flat_map(|_| [Step::Send(wg::grant(CREDIT))]);
    vec![
        row(
            SECTION,
            1,
            "RDMA2_GRANT",
            SILENCE,
            vec![Step::Send(wg::grant(CREDIT))],
        ),
        row(
            SECTION,
            2,
            "RDMA2_GRANT with an XID",
            SILENCE,
            vec![Step::Send(wg::message(ground.xid(), GRANT, &[], &[]))],
        ),
        row(
            GRANTS,
            2,
            "twenty times RDMA2_GRANT, without need",
            "credit for each, and the next call is answered",
            many.collect(),
        )
        .level(Level::Robustness),
    ]
}

fn first_messages(ground: &Ground) -> Vec<Case> {
    let xid = ground.xid();
    vec![
        first_row(
            "version-two-07, 4.3",
            1,
            "a call as the first message",
            "a reply in version 2",
            null(xid),
            vec![reply(success(xid, &[]))],
        ),
        row(
            "version-two-07, 6.3.4",
            1,
            "RDMA2_CONNPROP_FINAL",
            "RDMA2_CONNPROP_FINAL of the server",
            vec![Step::Properties],
        )
        .level(Level::Should),
    ]
}

/// Returns the cases of first messages of a version that there is not.
pub(super) fn first_versions(ground: &Ground) -> Vec<Case> {
    let xid = ground.xid();
    let first = v2::bytes(&[xid, 3, CREDIT, CALL_INLINE, 0, 0, 0, 0]);
    let case = first_row(
        "version-two-07, 4.3.2",
        1,
        "version 3 as the first message, and then properties",
        "RDMA2_ERROR with VERS, and then the next call is answered",
        first,
        vec![
            Step::Expect(vec![Expect::ErrVers(xid, 3)]),
            Step::Send(wg::introduction(&wg::plain_properties())),
        ],
    );
    // Whether the refused message counts is not said (errata-07, 66).
    vec![case.level(Level::Should).needs(FIRST_ERR_VERS)]
}

/// Messages beyond the credits of the server, which only `--hostile` sends.
pub(super) fn floods(ground: &Ground) -> Vec<Case> {
    let xid = ground.xid();
    let row = |number, sends, message: Vec<u8>| {
        let expects = "the end of the connection, and the next connection is served";
        let flood = vec![Step::Flood(MANY, message)];
        let case = row(GRANTS, number, sends, expects, flood);
        case.level(Level::Robustness).may_close().hostile()
    };
    vec![
        row(20, "RDMA2_GRANT, 4096 times at once", wg::grant(CREDIT)),
        row(
            21,
            "a call without credits for its reply, 4096 times at once",
            wg::with_credit(null(xid), 0),
        ),
    ]
}
