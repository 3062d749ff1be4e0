//! Invalid transport headers of version 2, and versions that change in the middle of a connection
//! (version-two-01, sections 3 to 5).

use super::*;
use crate::cases::memory;
use crate::client::{Case, case};
use crate::wire::rpc;
use crate::wire::v1::{self, Header, NOMSG};
use crate::wire::v2::{OPTIONAL, REPLY, VERSION};

const RULES: &str = "version-two-01, 4.2";
const VERSIONS: &str = "version-two-01, 5.2";

/// Returns a case with an invalid first message of a connection.
fn first(name: &'static str, message: Vec<u8>, answer: Vec<u32>) -> Case {
    let script = beginning(message, vec![HearWords(answer, false)]);
    case(name, RULES, script, Lives).costing(RECEIVES)
}

/// Returns a case with another version in the middle of a connection.
fn version(version: u32) -> Case {
    let message = Header {
        version,
        ..v1::header(XID)
    };
    let answer = v2::err_vers(XID, version, [2, 2]);
    let message = message.with(&rpc::null(XID).bytes());
    row(
        format!("version {version} in mid-stream"),
        VERSIONS,
        vec![message],
        vec![answer],
    )
}

/// Returns a message without chunks, with this procedure and direction.
fn plain(procedure: u32, direction: u32, payload: &[u8]) -> Vec<u8> {
    [
        words(VERSION, procedure, &[direction, 0, 0, 0]),
        payload.to_vec(),
    ]
    .concat()
}

pub(in crate::cases) fn cases() -> Vec<Case> {
    let call = rpc::null(XID).bytes();
    let honest = plain(0, CALL, &call);
    let success = || v2::success(XID, &[]);
    let mut cases = vec![
        row(
            "control: NULL",
            RULES,
            vec![honest.clone()],
            vec![success()],
        ),
        first(
            "control: NULL before anything else",
            honest.clone(),
            success(),
        ),
        bad_header("direction 2", RULES, plain(0, 2, &call)),
        bad_header("direction 4294967295", RULES, plain(0, u32::MAX, &call)),
        bad_header("procedure 2", RULES, plain(2, CALL, &call)),
        bad_header("procedure 3", RULES, plain(3, CALL, &call)),
        bad_header("procedure 6", RULES, plain(6, CALL, &call)),
        bad_header("procedure 4294967295", RULES, plain(u32::MAX, CALL, &call)),
        first(
            // From 6 on they are header types of the working group's version 2.
            "procedure 3 before anything else",
            plain(3, CALL, &call),
            v2::bad_header(XID),
        ),
        first(
            "direction 2 before anything else",
            plain(0, 2, &call),
            v2::bad_header(XID),
        ),
        discarded(
            "a reply to a server",
            RULES,
            plain(0, REPLY, &rpc::accepted(XID, 0, &[])),
        ),
        discarded("a long reply to a server", RULES, plain(1, REPLY, &[])),
        bad_header(
            "the XID of another call",
            RULES,
            plain(0, CALL, &rpc::null(7).bytes()),
        ),
        bad_header("a reply that says it is a call", RULES, {
            plain(0, CALL, &rpc::accepted(XID, 0, &[]))
        }),
        bad_header("a header alone", RULES, honest[..32].to_vec()),
        bad_header("a header and an XID", RULES, honest[..36].to_vec()),
        bad_header("RDMA2_NOMSG without a chunk", RULES, plain(1, CALL, &[])),
        bad_header("RDMA2_NOMSG with a payload", RULES, {
            let header = Header {
                procedure: NOMSG,
                reads: vec![(0, memory(0, 40))],
                ..v1::header(XID)
            };
            v2::with(&header, CALL, &call)
        }),
        discarded("an error without a code", RULES, words(VERSION, 4, &[])),
        discarded(
            "an error that there is not",
            RULES,
            words(VERSION, 4, &[77, 0, 0]),
        ),
        discarded(
            "RDMA2_ERR_VERS to a server",
            RULES,
            words(VERSION, 4, &[1, 1, 1]),
        ),
        discarded(
            "RDMA2_ERR_VERS without versions",
            RULES,
            words(VERSION, 4, &[1]),
        ),
        discarded(
            "RDMA2_ERR_BAD_HEADER to nothing",
            RULES,
            words(VERSION, 4, &[2]),
        ),
        discarded(
            "RDMA2_ERR_INVAL_OPTION to nothing",
            RULES,
            words(VERSION, 4, &[3]),
        ),
        discarded("one byte", RULES, honest[..1].to_vec()),
        discarded("15 bytes", RULES, honest[..15].to_vec()),
        discarded("16 bytes", RULES, honest[..16].to_vec()),
        discarded("24 bytes", RULES, honest[..24].to_vec()),
        bad_header(
            "a read list that goes on with 2",
            RULES,
            words(2, 0, &[CALL, 2, 0, 0]),
        ),
        bad_header(
            "a write list that goes on with 2",
            RULES,
            words(2, 0, &[CALL, 0, 2, 0]),
        ),
        bad_header(
            "a reply chunk twice over",
            RULES,
            words(2, 0, &[CALL, 0, 0, 2]),
        ),
        bad_header("a read list that does not end", RULES, {
            words(2, 0, &[CALL, 1, 40, 0x51, 8, 0, 0])
        }),
        bad_header("a write chunk of 2^28 segments", RULES, {
            words(2, 0, &[CALL, 0, 1, 1 << 28, 0])
        }),
        bad_header("a reply chunk of 4294967295 segments", RULES, {
            words(2, 0, &[CALL, 0, 0, 1, u32::MAX])
        }),
        bad_header("a header of ones", RULES, {
            let mut ones = [1; 1000];
            ones[0] = CALL;
            words(2, 0, &ones)
        }),
        version(0),
        version(1),
        version(3),
        version(u32::MAX),
        discarded(
            "an error of version 1 in mid-stream",
            VERSIONS,
            words(1, 4, &[2]),
        ),
        case(
            "version 3 before anything else",
            VERSIONS,
            on(vec![
                Send(words(3, 0, &[0, 0, 0])),
                HearWords(v2::err_vers(XID, 3, [1, 2]), false),
            ]),
            Lives,
        )
        .costing(RECEIVES),
        case(
            "version 3 again and again",
            VERSIONS,
            on_second(vec![Repeat(
                20,
                vec![
                    Send(words(3, 0, &[CALL, 0, 0, 0])),
                    HearWords(v2::err_vers(XID, 3, [2, 2]), false),
                    Send(honest.clone()),
                    HearWords(success(), false),
                ],
            )]),
            Lives,
        )
        .costing(RECEIVES),
    ];
    let chunk = memory(0, call.len() as u32);
    let long = Header {
        procedure: NOMSG,
        reads: vec![(0, chunk)],
        ..v1::header(XID)
    };
    cases.push(
        case(
            "control: a long call",
            RULES,
            on_second(vec![
                Send(v2::with(&long, CALL, &[])),
                Serve(chunk, call),
                HearWords(success(), false),
            ]),
            Lives,
        )
        .costing(RECEIVES),
    );
    cases.extend(operations());
    cases
}

/// Returns the cases of RDMA2_OPTIONAL: unknown operations, and missing information.
fn operations() -> Vec<Case> {
    const OPERATIONS: &str = "version-two-01, 4.2.4";
    let mut cases = Vec::new();
    for opttype in [0, 9, 10, 99, 0x7fff_ffff, u32::MAX] {
        for direction in [CALL, REPLY] {
            for info in [&[][..], &[1, 2, 3], &[0; 200]] {
                cases.push(row(
                    format!(
                        "operation {opttype}, direction {direction}, {} words",
                        info.len()
                    ),
                    OPERATIONS,
                    vec![v2::operation(XID, direction, opttype, info, &[])],
                    vec![v2::invalid_option(XID)],
                ));
            }
        }
    }
    cases.extend([
        bad_header("operation of direction 9", OPERATIONS, {
            words(2, OPTIONAL, &[9, 99, 0])
        }),
        bad_header("information longer than the message", OPERATIONS, {
            words(2, OPTIONAL, &[CALL, 99, 1000, 0])
        }),
        bad_header("information of 4294967295 bytes", OPERATIONS, {
            words(2, OPTIONAL, &[CALL, 99, u32::MAX, 0])
        }),
        bad_header(
            "information of one byte without its round-up",
            OPERATIONS,
            {
                let mut message = words(2, OPTIONAL, &[CALL, 99, 1]);
                message.push(1);
                message
            },
        ),
        bad_header("round-up of information that is not zero", OPERATIONS, {
            words(2, OPTIONAL, &[CALL, 99, 1, 1])
        }),
        discarded("information that is not there, in a reply", OPERATIONS, {
            words(2, OPTIONAL, &[REPLY, 3, 4])
        }),
        row(
            "an operation nobody has with a call behind it",
            OPERATIONS,
            vec![v2::operation(XID, CALL, 99, &[], &rpc::null(XID).bytes())],
            vec![v2::invalid_option(XID)],
        ),
    ]);
    cases
}
