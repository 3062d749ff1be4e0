//! Invalid headers, operations that there are not, and other versions (version-two-01, sections 3.1, 4.2 and 5).

use super::{FIRST_BAD_HEADER, bad_header, error, row};
use crate::case::{Case, Ground, Level, Step, memory};
use crate::expect::Expect;
use crate::wire::rpc;
use crate::wire::v1::{self, Header, NOMSG};
use crate::wire::v2::{self, CALL, CREDITS, ERR_INVAL_OPTION, OPTIONAL, REPLY, VERSION, bytes};

const SILENCE: &str = "nothing, and the next call is answered";
const REFUSAL: &str = "RDMA2_ERROR with BAD_HEADER, and the next call is answered";
const INVALID_OPTION: &str = "RDMA2_ERROR with INVAL_OPTION, and the next call is answered";

/// Returns the cases.
#[must_use]
pub fn cases(ground: &Ground) -> Vec<Case> {
    [
        refused(ground),
        discarded(ground),
        versions(ground),
        operations(ground),
    ]
    .concat()
}

/// Encodes the four fixed fields, followed by these words.
fn words(xid: u32, version: u32, procedure: u32, rest: &[u32]) -> Vec<u8> {
    bytes(&[&[xid, version, CREDITS, procedure], rest].concat())
}

/// Returns a message without chunks, with this procedure and direction.
fn plain(xid: u32, procedure: u32, direction: u32, payload: &[u8]) -> Vec<u8> {
    let header = words(xid, VERSION, procedure, &[direction, 0, 0, 0]);
    [&header[..], payload].concat()
}

/// Headers that cannot be parsed, and messages that contradict themselves.
fn refused(ground: &Ground) -> Vec<Case> {
    let one = |number, sends: &str, level, message: &dyn Fn(u32, &[u8]) -> Vec<u8>| {
        let xid = ground.xid();
        let steps = vec![
            Step::Send(message(xid, &rpc::null(xid).bytes())),
            Step::Expect(vec![bad_header(xid)]),
        ];
        let case = row("version-two-01, 4.2", number, sends, REFUSAL, steps).level(level);
        match number {
            1 => case,
            _ => case.needs(FIRST_BAD_HEADER),
        }
    };
    let list = |number, sends, rest: &[u32]| {
        one(number, sends, Level::Must, &|xid, _| {
            words(xid, VERSION, 0, rest)
        })
    };
    let mut ones = [1; 1000];
    ones[0] = CALL;
    let must = Level::Must;
    vec![
        one(1, "procedure 2", must, &|xid, call| {
            plain(xid, 2, CALL, call)
        }),
        one(2, "procedure 3", must, &|xid, call| {
            plain(xid, 3, CALL, call)
        }),
        one(3, "procedure 6", must, &|xid, call| {
            plain(xid, 6, CALL, call)
        }),
        one(4, "procedure 4294967295", must, &|xid, call| {
            plain(xid, u32::MAX, CALL, call)
        }),
        one(5, "direction 2", must, &|xid, call| plain(xid, 0, 2, call)),
        one(6, "direction 4294967295", must, &|xid, call| {
            plain(xid, 0, u32::MAX, call)
        }),
        list(10, "a Read list that goes on with 2", &[CALL, 2, 0, 0]),
        list(11, "a Write list that goes on with 2", &[CALL, 0, 2, 0]),
        list(12, "a Reply chunk that is present with 2", &[CALL, 0, 0, 2]),
        list(
            13,
            "a Read list that does not end",
            &[CALL, 1, 40, 0x51, 8, 0, 0],
        ),
        list(
            14,
            "a Write chunk of 2^28 segments",
            &[CALL, 0, 1, 1 << 28, 0],
        ),
        list(
            15,
            "a Reply chunk of 4294967295 segments",
            &[CALL, 0, 0, 1, u32::MAX],
        ),
        list(16, "a header of ones", &ones),
        one(17, "RDMA2_NOMSG without a chunk", must, &|xid, _| {
            plain(xid, 1, CALL, &[])
        }),
        // The text names no error for these.
        one(
            20,
            "RDMA2_NOMSG with a payload besides",
            Level::Robustness,
            &|xid, call| {
                let header = Header {
                    procedure: NOMSG,
                    reads: vec![(0, memory(0, 40))],
                    ..v1::header(xid)
                };
                v2::with(&header, CALL, call)
            },
        ),
        one(21, "the XID of another call", Level::Should, &|xid, _| {
            plain(xid, 0, CALL, &rpc::null(xid ^ 0x0100_0000).bytes())
        }),
        one(
            22,
            "a reply that says it is a call",
            Level::Should,
            &|xid, _| plain(xid, 0, CALL, &rpc::accepted(xid, 0, &[])),
        ),
        one(23, "a header alone", Level::Robustness, &|xid, call| {
            plain(xid, 0, CALL, call)[..32].to_vec()
        }),
        one(
            24,
            "a header and an XID",
            Level::Robustness,
            &|xid, call| plain(xid, 0, CALL, call)[..36].to_vec(),
        ),
    ]
}

/// Errors and replies to a server that has called nobody, and messages that are shorter than any header.
fn discarded(ground: &Ground) -> Vec<Case> {
    let one = |section, number, sends: &str, message: &dyn Fn(u32) -> Vec<u8>| {
        let steps = vec![Step::Send(message(ground.xid()))];
        row(section, number, sends, SILENCE, steps)
    };
    let sent = |number, sends, rest: &[u32]| {
        one("version-two-01, 4.2.3", number, sends, &|xid| {
            words(xid, VERSION, 4, rest)
        })
    };
    let cut = |number, sends, end: usize| {
        one("version-two-01, 4.2.3", number, sends, &|xid| {
            plain(xid, 0, CALL, &rpc::null(xid).bytes())[..end].to_vec()
        })
    };
    let robust = |case: Case| case.level(Level::Robustness);
    vec![
        sent(1, "RDMA2_ERROR without a code", &[]),
        sent(
            2,
            "RDMA2_ERROR with an error that there is not",
            &[77, 0, 0],
        ),
        sent(3, "RDMA2_ERR_VERS from a requester", &[1, 1, 1]),
        sent(4, "RDMA2_ERR_VERS without versions", &[1]),
        sent(5, "RDMA2_ERR_BAD_HEADER from a requester", &[2]),
        sent(6, "RDMA2_ERR_INVAL_OPTION from a requester", &[3]),
        cut(10, "one byte", 1),
        cut(11, "15 bytes", 15),
        cut(12, "16 bytes", 16),
        cut(13, "24 bytes", 24),
        robust(one(
            "version-two-01, 4.2.2",
            1,
            "a reply to no call",
            &|xid| plain(xid, 0, REPLY, &rpc::accepted(xid, 0, &[])),
        )),
        robust(one(
            "version-two-01, 4.2.2",
            2,
            "a long reply to no call",
            &|xid| plain(xid, 1, REPLY, &[]),
        )),
        robust(one(
            "version-two-01, 5.2",
            10,
            "an error of version 1 after messages of version 2",
            &|xid| words(xid, 1, 4, &[2]),
        )),
    ]
}

fn versions(ground: &Ground) -> Vec<Case> {
    let expects = "RDMA2_ERROR with VERS, the XID and the version of the call";
    let one = |(number, version): (u32, u32)| {
        let xid = ground.xid();
        let header = Header {
            version,
            ..v1::header(xid)
        };
        let steps = vec![
            Step::Send(header.with(&rpc::null(xid).bytes())),
            Step::Expect(vec![Expect::ErrVers(xid, version)]),
        ];
        let sends = format!("version {version} after messages of version 2");
        row("version-two-01, 5.2", number, sends, expects, steps)
    };
    let mut cases: Vec<Case> = (1..).zip([3, 0, u32::MAX]).map(one).collect();
    // A server may speak version 1, too.
    cases.push(one((4, 1)).level(Level::Should));
    cases
}

/// RDMA2_OPTIONAL: unknown operations, and missing information.
fn operations(ground: &Ground) -> Vec<Case> {
    const SECTION: &str = "version-two-01, 3.1";
    const FIRST_INVAL_OPTION: &str = "rpcrdma2-01/3.1/1";
    let mut cases = Vec::new();
    let mut number = 1;
    for opttype in [99, 0, 9, 10, 0x7fff_ffff, u32::MAX] {
        for direction in [CALL, REPLY] {
            for info in [&[][..], &[1, 2, 3], &[0; 200]] {
                let xid = ground.xid();
                let steps = vec![
                    Step::Send(v2::operation(xid, direction, opttype, info, &[])),
                    Step::Expect(vec![error(xid, ERR_INVAL_OPTION)]),
                ];
                let sends = format!(
                    "operation {opttype} of direction {direction} with {} words",
                    info.len()
                );
                let case = row(SECTION, number, sends, INVALID_OPTION, steps);
                // An error is always from a responder (section 4.2.2), and a reply has none.
                let case = match direction {
                    CALL => case,
                    _ => case.level(Level::Should),
                };
                cases.push(match number {
                    1 => case,
                    _ => case.needs(FIRST_INVAL_OPTION),
                });
                number += 1;
            }
        }
    }
    let xid = ground.xid();
    let behind = v2::operation(xid, CALL, 99, &[], &rpc::null(xid).bytes());
    let steps = vec![
        Step::Send(behind),
        Step::Expect(vec![error(xid, ERR_INVAL_OPTION)]),
    ];
    let sends = "operation 99 with a call behind it";
    cases.push(row(SECTION, 50, sends, INVALID_OPTION, steps).needs(FIRST_INVAL_OPTION));
    let refused = |number, sends: &str, rest: &[u32], end: &[u8]| {
        let xid = ground.xid();
        let message = [words(xid, VERSION, OPTIONAL, rest), end.to_vec()].concat();
        let steps = vec![Step::Send(message), Step::Expect(vec![bad_header(xid)])];
        row("version-two-01, 4.2", number, sends, REFUSAL, steps).needs(FIRST_BAD_HEADER)
    };
    cases.extend([
        refused(30, "operation 99 of direction 9", &[9, 99, 0], &[]),
        refused(
            31,
            "information longer than the message",
            &[CALL, 99, 1000, 0],
            &[],
        ),
        refused(
            32,
            "information of 4294967295 bytes",
            &[CALL, 99, u32::MAX, 0],
            &[],
        ),
        refused(
            33,
            "information of one byte without its round-up",
            &[CALL, 99, 1],
            &[1],
        ),
        refused(
            34,
            "round-up of information that is not zero",
            &[CALL, 99, 1, 1],
            &[],
        )
        .level(Level::Should),
    ]);
    let steps = vec![Step::Send(words(
        ground.xid(),
        VERSION,
        OPTIONAL,
        &[REPLY, 3, 4],
    ))];
    let sends = "information that is not there, in a reply";
    let case = row("version-two-01, 4.2", 40, sends, SILENCE, steps);
    cases.push(case.level(Level::Robustness));
    cases
}
