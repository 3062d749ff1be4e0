//! Calls in several messages (version-two-07, sections 6.3.6, 6.6.2 and 7.1.4).

use super::{
    Changed, FIRST_BAD_XDR, FIRST_INVAL_CONT, INVAL_CONT, Message, based, error, null, refused,
    reply, row, two_xids,
};
use crate::case::{Case, Ground, Level, Step};
use crate::expect::success;
use crate::wire::rpc;
use crate::wire::wg::{
    self, CALL_EXTERNAL, CALL_INLINE, CALL_MIDDLE, CONNPROP_MIDDLE, ERR_BAD_XDR, ERR_INVAL_CONT,
    ERR_INVAL_HTYPE,
};

const MIDDLE: &str = "version-two-07, 6.3.6";
/// The address of the plain call in two messages.
const FIRST_CONTINUED: &str = "rpcrdma2-07/6.3.6/1";

fn middle(xid: u32, remaining: u32, part: &[u8]) -> Vec<u8> {
    wg::message(xid, CALL_MIDDLE, &[remaining], part)
}

/// Returns the cases.
#[must_use]
pub fn cases(ground: &Ground) -> Vec<Case> {
    [whole(ground), counts(ground), interrupted(ground)].concat()
}

/// Calls that are answered.
fn whole(ground: &Ground) -> Vec<Case> {
    let parts = |cuts: &[usize]| {
        let xid = ground.xid();
        let call = rpc::null(xid).bytes();
        let (mut at, mut steps) = (0, Vec::new());
        for cut in cuts {
            let remaining = (call.len() - cut) as u32;
            steps.push(Step::Send(middle(xid, remaining, &call[at..*cut])));
            at = *cut;
        }
        steps.push(Step::Send(wg::call(xid, &call[at..])));
        steps.push(reply(success(xid, &[])));
        steps
    };
    // They have one reading of `rdma_remaining` (errata-07, 35).
    let should = |case: Case| case.level(Level::Should);
    let mut cases = vec![
        should(row(
            MIDDLE,
            1,
            "NULL in two messages",
            "a reply",
            parts(&[16]),
        )),
        should(row(
            MIDDLE,
            2,
            "NULL in three messages",
            "a reply",
            parts(&[16, 28]),
        ))
        .needs(FIRST_CONTINUED),
    ];
    // "Any convenient boundary", but the first word must be whole (errata-07, 36).
    for (number, cut) in (1..).zip([5, 7, 9, 17, 35]) {
        let sends = format!("NULL in two messages, with {cut} bytes in the first");
        let case = row(
            "version-two-07, 4.1",
            number,
            sends,
            "a reply",
            parts(&[cut]),
        );
        cases.push(case.level(Level::Should).needs(FIRST_CONTINUED));
    }
    cases
}

/// Returns the second of three messages of a NULL call.
fn second_of_three(xid: u32) -> Message {
    let call = rpc::null(xid).bytes();
    let word = u32::from_be_bytes([call[16], call[17], call[18], call[19]]);
    let fields = [("rdma_remaining", 12), ("rdma_rpc_first_word", word)];
    Message {
        rest: call[20..28].to_vec(),
        before: vec![middle(xid, 24, &call[..16])],
        after: vec![wg::call(xid, &call[28..])],
        ..Message::new("the second of three messages", xid, CALL_MIDDLE, &fields)
    }
}

/// Returns the first of two messages of a NULL call.
fn first_of_two(xid: u32) -> Message {
    let call = rpc::null(xid).bytes();
    let fields = [("rdma_remaining", 24), ("rdma_rpc_first_word", xid)];
    Message {
        rest: call[4..16].to_vec(),
        after: vec![wg::call(xid, &call[16..])],
        ..Message::new("the first of two messages", xid, CALL_MIDDLE, &fields)
    }
}

/// Returns the last of two messages of a NULL call.
fn last_of_two(xid: u32) -> Message {
    let call = rpc::null(xid).bytes();
    let fields = [
        ("rdma_inv_handle", 0),
        ("rdma_reads", 0),
        ("rdma_provisional_writes", 0),
        ("rdma_provisional_reply", 0),
    ];
    Message {
        rest: call[16..].to_vec(),
        before: vec![middle(xid, 24, &call[..16])],
        ..Message::new("the last of two messages", xid, CALL_INLINE, &fields)
    }
}

/// Messages that do not fit each other. The text names no check of the counts.
fn counts(ground: &Ground) -> Vec<Case> {
    let should = |cases: Vec<Case>| {
        let all = cases.into_iter();
        all.map(|case| case.level(Level::Should))
            .collect::<Vec<_>>()
    };
    let invalid = |make| Changed {
        ground,
        make,
        section: "version-two-07, 7.1.4",
        errors: &[ERR_INVAL_CONT],
        expects: INVAL_CONT,
        base: FIRST_INVAL_CONT,
    };
    let bad = |make| Changed {
        errors: &[ERR_BAD_XDR, ERR_INVAL_CONT],
        expects: "RDMA2_ERROR with BAD_XDR or INVAL_CONT, and the next call is answered",
        base: FIRST_BAD_XDR,
        ..invalid(make)
    };
    let mut cases = should(invalid(&second_of_three).fields(
        10,
        &[
            (4, 0),
            (4, 8),
            (4, 11),
            (4, 13),
            (4, 16),
            (4, 24),
            (4, 0x8000_0000),
            (4, u32::MAX),
        ],
    ));
    cases.extend(should(
        invalid(&first_of_two).fields(30, &[(4, 20), (4, 23), (4, 25), (4, 28), (4, 0)]),
    ));
    cases.extend(bad(&first_of_two).other_xids(50, &[5]));
    cases.extend(bad(&last_of_two).fields(60, &[(5, 1), (5, 2), (6, 2), (7, 2)]));
    cases.extend(bad(&last_of_two).cut(70, &[20]));
    cases.extend(bad(&second_of_three).cut(80, &[20, 23]));
    for (number, what, change) in [
        (90, "shorter", -4_isize),
        (91, "longer", 4),
        (92, "much longer", 400),
    ] {
        let xid = ground.xid();
        let mut message = last_of_two(xid);
        let len = message.rest.len().saturating_add_signed(change);
        message.rest.resize(len, 0);
        let mut steps = message.steps(message.bytes());
        steps.push(refused(xid, &[ERR_INVAL_CONT]));
        let sends = format!("a last message that is {what} than what remains");
        let case = row("version-two-07, 7.1.4", number, sends, INVAL_CONT, steps);
        cases.push(based(case, FIRST_INVAL_CONT).level(Level::Should));
    }
    cases
}

/// Returns a call by a Read chunk.
fn external(xid: u32) -> Vec<u8> {
    let fields = [0, 1, 0, 0x5100_0000, 40, 0, 0, 0, 0, 0, 0];
    wg::message(xid, CALL_EXTERNAL, &fields, &[])
}

/// Messages between those of a call. The text lets the incoming message be dropped, and does not say what becomes
/// of the call (errata-07, 38).
fn interrupted(ground: &Ground) -> Vec<Case> {
    const EXPECTS: &str =
        "RDMA2_ERROR about what stands between, and a reply to the call when it is complete";
    let within = |number, sends: &str, code: Option<u32>, between: &dyn Fn(u32) -> Vec<u8>| {
        let (xid, other) = two_xids(ground);
        let call = rpc::null(xid).bytes();
        let mut steps = vec![
            Step::Send(middle(xid, 24, &call[..16])),
            Step::Send(between(other)),
        ];
        steps.extend(code.map(|code| refused(other, &[code])));
        steps.extend([
            Step::Send(wg::call(xid, &call[16..])),
            reply(success(xid, &[])),
        ]);
        let case = row(MIDDLE, number, sends, EXPECTS, steps);
        based(case, FIRST_INVAL_CONT).level(Level::Should)
    };
    let invalid = Some(ERR_INVAL_CONT);
    let part = |other| rpc::null(other).bytes();
    let dropped = {
        let (xid, other) = two_xids(ground);
        let steps = vec![
            Step::Send(middle(xid, 24, &rpc::null(xid).bytes()[..16])),
            // RDMA2_CALL_INLINE may follow by the letter of 6.3.6.
            Step::Send(external(other)),
            Step::Expect([other, xid].map(|it| error(it, &[ERR_INVAL_CONT])).to_vec()),
        ];
        let sends = "RDMA2_CALL_EXTERNAL after RDMA2_CALL_MIDDLE";
        let expects = "RDMA2_ERROR with INVAL_CONT about either call";
        let case = row(MIDDLE, 10, sends, expects, steps);
        based(case, FIRST_INVAL_CONT).incomplete()
    };
    vec![
        dropped,
        within(
            11,
            "a call between the messages of another, which is completed",
            invalid,
            &null,
        ),
        within(
            12,
            "RDMA2_CALL_MIDDLE between the messages of another call",
            invalid,
            &|other| middle(other, 24, &part(other)[..16]),
        ),
        within(
            13,
            "RDMA2_CALL_EXTERNAL between the messages of another call",
            invalid,
            &external,
        ),
        within(
            14,
            "RDMA2_CONNPROP_MIDDLE between the messages of a call",
            invalid,
            &|other| wg::message(other, CONNPROP_MIDDLE, &wg::set(&[(99, 0)]), &[]),
        ),
        within(
            15,
            "a header type that there is not between the messages of a call",
            Some(ERR_INVAL_HTYPE),
            &|other| wg::message(other, 99, &[], &[]),
        ),
        within(
            16,
            "15 bytes between the messages of a call",
            None,
            &|other| null(other)[..15].to_vec(),
        ),
        within(
            17,
            "RDMA2_CALL_INLINE that breaks off between the messages of a call",
            Some(ERR_BAD_XDR),
            &|other| null(other)[..20].to_vec(),
        ),
    ]
}
