//! Invalid transport headers of version 2, and versions that change in the middle of a connection
//! (version-two-01, sections 3 to 5): those of `rpcrdma conform`, and those of first messages.

use super::*;
use crate::cases::judged::judged_second;
use crate::cases::memory;
use crate::client::{Case, case};
use crate::wire::rpc;
use crate::wire::v1::{self, Header, NOMSG};
use crate::wire::v2::VERSION;

const RULES: &str = "version-two-01, 4.2";
const VERSIONS: &str = "version-two-01, 5.2";

/// Returns a case with an invalid first message of a connection.
fn first(name: &'static str, message: Vec<u8>, answer: Vec<u32>) -> Case {
    let script = beginning(message, vec![HearWords(answer, false)]);
    case(name, RULES, script, Lives).costing(RECEIVES)
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
    let mut cases = judged_second(rpcrdma_conform::cases::two::headers);
    cases.extend([
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
    ]);
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
    cases
}
