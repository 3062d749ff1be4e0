//! Calls in several parts (version-two-07, sections 6.3.6, 6.6.2 and 7.1.4), sent to a server: the cases of
//! `rpcrdma conform`, those that depend on this server's limits and extensions, and parts that never end.

use super::*;
use crate::cases::judged::judged_wg;
use crate::cases::{memory, segment_words};
use crate::client::Case;
use crate::rig::content;
use crate::wire::wg::{CALL_INLINE, CALL_MIDDLE, ERR_INVAL_CONT, ERR_SYSTEM, REPLY_MIDDLE};

const MIDDLE: &str = "version-two-07, 6.3.6";
const ORDER: &str = "version-two-07, 7.1.4";
/// The maximum length of a message that the server takes (`rig::SERVER`).
const MOST: u32 = 256 << 10;

fn middle(xid: u32, remaining: u32, part: &[u8]) -> Vec<u8> {
    wg::message(xid, CALL_MIDDLE, &[remaining], part)
}

fn last(xid: u32, part: &[u8]) -> Vec<u8> {
    wg::call(xid, part)
}

fn refusal(xid: u32, code: u32) -> Step {
    HearWords(wg::answer(xid, &[code]), false)
}

fn success(xid: u32) -> Step {
    HearWords(wg::success(xid, &[]), false)
}

/// Returns a NULL call in three parts, of which the second is the one to change.
fn second_of_three() -> Right {
    let call = rpc::null(XID).bytes();
    let mut right = Right::new(
        "the second part of a call",
        MIDDLE,
        middle(XID, 12, &call[16..28]),
        vec![success(XID)],
    );
    right.before = vec![middle(XID, 24, &call[..16])];
    right.after = vec![last(XID, &call[28..])];
    right
}

/// Returns a NULL call in two parts, of which the first is the one to change.
fn first_of_two() -> Right {
    let call = rpc::null(XID).bytes();
    let message = middle(XID, 24, &call[..16]);
    let good = vec![success(XID)];
    let mut right = Right::new("the first part of a call", MIDDLE, message, good);
    right.after = vec![last(XID, &call[16..])];
    right
}

/// Returns a NULL call in two parts, of which the last is the one to change.
fn last_of_two() -> Right {
    let call = rpc::null(XID).bytes();
    let message = last(XID, &call[16..]);
    let good = vec![success(XID)];
    let mut right = Right::new("the last part of a call", MIDDLE, message, good);
    right.before = vec![middle(XID, 24, &call[..16])];
    right
}

pub(in crate::cases) fn cases(file: &[u8]) -> Vec<Case> {
    let (first, second, end) = (first_of_two(), second_of_three(), last_of_two());
    let mut cases = judged_wg(rpcrdma_conform::cases::wg::continued, file);
    // What follows the first part is not what it promised: the last part is refused.
    cases.extend(first.rows(&[
        ("rdma_remaining", MOST - 16, Error(vec![ERR_INVAL_CONT])),
        ("rdma_remaining", MOST - 15, Error(vec![ERR_SYSTEM])),
        ("rdma_remaining", 0x7fff_ffff, Error(vec![ERR_SYSTEM])),
        ("rdma_remaining", u32::MAX, Error(vec![ERR_SYSTEM])),
    ]));
    cases.extend(end.rows(&[("rdma_inv_handle", 1, bad())]));
    cases.extend(end.cut(&[16, 32, 35], &bad()));
    // The parts that follow one that cannot be used are discarded.
    cases.extend(second.cut(&[16], &bad()));
    cases.extend(interrupted());
    cases.extend(endless());
    cases.extend(odd(file));
    cases
}

/// Returns the cases of messages between the parts of a call, which is complete in the end.
fn interrupted() -> Vec<Case> {
    let call = rpc::null(XID).bytes();
    let other = XID + 1;
    let within = |name: &str, message: Vec<u8>, said: Vec<Step>| {
        let steps = vec![Send(middle(XID, 24, &call[..16])), Send(message)];
        let end = vec![Send(last(XID, &call[16..])), success(XID)];
        script(name, ORDER, on_wg([steps, said, end].concat()), Lives)
    };
    let refused =
        |name: &str, message: Vec<u8>| within(name, message, vec![refusal(other, ERR_INVAL_CONT)]);
    let null = rpc::null(other).bytes();
    let placed = wg::message(other, wg::CALL_PLACED, &[0, 0, 0, 0, 0, 40], &null);
    vec![
        refused(
            "RDMA2_CALL_PLACED between the parts of a call",
            placed.clone(),
        ),
        within(
            "RDMA2_GRANT between the parts of a call",
            wg::grant(CREDIT),
            vec![],
        ),
        within(
            "RDMA2_ERROR between the parts of a call",
            wg::error(other, &[2]),
            vec![],
        ),
        within(
            "a version nobody has between the parts of a call",
            crate::wire::v2::bytes(&[other, 3, CREDIT, CALL_INLINE]),
            vec![HearWords(
                [vec![other, 3, 0, wg::ERROR], wg::unsupported()].concat(),
                false,
            )],
        ),
        within(
            "a part of a reply between the parts of a call",
            wg::message(other, REPLY_MIDDLE, &[4], &null),
            vec![],
        ),
        script(
            "two calls whose parts alternate",
            ORDER,
            on_wg(vec![
                Send(middle(XID, 24, &call[..16])),
                Send(middle(other, 24, &null[..16])),
                refusal(other, ERR_INVAL_CONT),
                Send(middle(XID, 12, &call[16..28])),
                Send(middle(other, 12, &null[16..28])),
                Send(last(XID, &call[28..])),
                success(XID),
                // This is the last part of what was refused; the call can be made again.
                Send(last(other, &null)),
                Send(last(other, &null)),
                success(other),
            ]),
            Lives,
        ),
        script(
            "the XID of a call that was refused, again",
            ORDER,
            on_wg(vec![
                Send(middle(XID, 24, &call[..16])),
                Send(middle(XID, 9, &call[16..28])),
                refusal(XID, ERR_INVAL_CONT),
                Send(last(XID, &call[28..])),
                Repeat(
                    20,
                    vec![
                        Send(last(XID, &call)),
                        success(XID),
                        Send(middle(XID, 24, &call[..16])),
                        Send(last(XID, &call[16..])),
                        success(XID),
                    ],
                ),
            ]),
            Lives,
        ),
    ]
}

/// Returns the cases of calls that do not end.
fn endless() -> Vec<Case> {
    let call = rpc::null(XID).bytes();
    let parts = |count: u32| {
        let mut steps = Vec::new();
        for n in 0..count {
            steps.push(Send(middle(XID, 4 * (count - n) + 36, &[0; 4])));
            if n % 8 == 7 {
                steps.push(Turn);
            }
        }
        steps
    };
    let mut cases = vec![
        script(
            "parts of a call, and a FIN",
            MIDDLE,
            on_wg([parts(30), vec![Shut]].concat()),
            End::Closed,
        ),
        script(
            "parts of a call, and a RST",
            MIDDLE,
            on_wg([parts(30), vec![Abort]].concat()),
            End::Left,
        ),
        script(
            "one part again and again",
            MIDDLE,
            on_wg(vec![
                Send(middle(XID, 24, &call[..16])),
                Send(middle(XID, 24, &call[..16])),
                refusal(XID, ERR_INVAL_CONT),
                Repeat(100, vec![Send(middle(XID, 24, &call[..16])), Turn]),
                Send(last(XID, &call)),
            ]),
            Lives,
        ),
        script(
            "first parts of calls longer than any, again and again",
            MIDDLE,
            on_wg(
                (0..60)
                    .flat_map(|n| {
                        let first = middle(XID + n, u32::MAX, &[0; 4]);
                        [Send(first), refusal(XID + n, ERR_SYSTEM)]
                    })
                    .collect(),
            ),
            Lives,
        ),
    ];
    // 1000 parts of four bytes are taken, as parts are not counted; the call is no message.
    let whole = [call.clone(), vec![0; 4 * 1000]].concat();
    let mut steps = Vec::new();
    let mut at = 0;
    while whole.len() - at > 40 {
        steps.push(Send(middle(
            XID,
            (whole.len() - at - 4) as u32,
            &whole[at..at + 4],
        )));
        at += 4;
        if at % 32 == 0 {
            steps.push(Turn);
        }
    }
    steps.push(Send(last(XID, &whole[at..])));
    steps.push(HearWords(wg::success(XID, &[]), false));
    cases.push(script(
        "a call in a thousand parts",
        MIDDLE,
        on_wg(steps),
        Lives,
    ));
    cases
}

/// Returns the cases of parts of odd lengths, and of chunks of the last part.
fn odd(file: &[u8]) -> Vec<Case> {
    const LEN: u32 = 4096;
    let call = rpc::null(XID).bytes();
    let mut cases = Vec::new();
    for cut in [0, 1, 2, 3] {
        // Without a first word it is no message of its type (errata-07, 36).
        let name = format!("a part of {cut} bytes, and the whole call");
        let remaining = (call.len() - cut) as u32;
        cases.push(row(
            name,
            "version-two-07, 6.1",
            vec![middle(XID, remaining, &call[..cut]), last(XID, &call)],
            vec![wg::answer(XID, &[wg::ERR_BAD_XDR]), wg::success(XID, &[])],
        ));
    }
    // Positions count in the whole payload (errata-07, 34).
    let args = nfs(XID, 7, rpc::write_args(file, 1 << 20, LEN));
    let (source, end) = (memory(0, LEN), args.len() as u32);
    let chunk = |position: u32| {
        let fields = [&[0, 1, position][..], &segment_words(source), &[0, 0, 0]].concat();
        wg::message(XID, CALL_INLINE, &fields, &args[40..])
    };
    let first = middle(XID, end - 40, &args[..40]);
    let written = vec![
        Send(first.clone()),
        Send(chunk(end)),
        Serve(source, content(6, LEN as usize)),
        HearWords(wg::success(XID, &[0]), true),
    ];
    cases.push(script(
        "control: a read chunk of the whole call",
        MIDDLE,
        on_wg(written),
        Lives,
    ));
    cases.push(row(
        format!("rdma_position is {}, behind the whole call", end + 4),
        MIDDLE,
        vec![first, chunk(end + 4)],
        vec![wg::answer(XID, &[wg::ERR_BAD_XDR])],
    ));
    cases
}
