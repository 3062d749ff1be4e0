//! Calls and replies in several transmissions, placed data, and reports (draft-dnoveck-nfsv4-rpcrdma-rtrext-00).
//!
//! The document says what it requires in lower case: a case is a MUST where the other end could not go on otherwise.

use super::characteristics::{of_second, told};
use crate::case::{Case, Ground, Step};
use crate::cases::{content, nfs};
use crate::characteristics::Needed;
use crate::expect::{Expect, success};
use crate::operation::Operation;
use crate::wire::v2::{
    CALL, HEAD, RBSIZ, RTRSUPP, XMTCONT, XMTERR, XMTREQ, XMTRESP, everything, operation, plain,
};
use crate::wire::{rpc, v1};

/// The address of the simplest call.
const FIRST_REQUEST: &str = "rpcrdma2-01/rtrext-9.2/1";
/// The address of the simplest report.
const FIRST_REPORT: &str = "rpcrdma2-01/rtrext-9.5/1";

/// Bits of XCHAR_RTRSUPP.
const XREQ: u32 = 1;
const XRESP: u32 = 2;
const XCONT: u32 = 4;

/// Codes of ROPT_XMTERR.
const BADHMT: u32 = 1;
const BADCONT: u32 = 3;
const BADSEQ: u32 = 4;
const BADXID: u32 = 5;
const BADPL: u32 = 8;

/// Placement types.
const TBSN: u32 = 2;
const TOOSHORT: u32 = 5;

/// The bytes of NULL, and those of its first transmission.
const NULL: usize = 40;
const CUT: usize = 8;

/// The bytes that are placed.
const PLACED: usize = 4096;

/// Returns the cases.
pub(super) fn cases(ground: &Ground) -> Vec<Case> {
    [
        vec![whole(ground), continued(ground)],
        reports(ground),
        vec![interrupted(ground)],
        replies(ground),
        vec![placed(ground), placed_reply(ground)],
    ]
    .concat()
}

/// Characteristics that calls in one transmission need.
const ONE: Needed = Needed {
    operations: XREQ,
    request: 1,
    response: 1,
};

/// Characteristics that calls in two transmissions need.
const TWO: Needed = Needed {
    operations: XREQ | XCONT,
    request: 2,
    response: 1,
};

/// Creates a case on a connection on which this client has told that it supports everything.
fn row(
    address: (&'static str, u32),
    sends: &str,
    expects: &'static str,
    needed: Needed,
    steps: Vec<Step>,
) -> Case {
    told(address, sends, expects, &everything(), needed, steps)
}

fn expected(operation: Operation) -> Expect {
    Expect::Operation(Box::new(operation))
}

/// Returns the ROPT_XMTREQ of a call without bulk data in `count` transmissions, for whose reply `reserved` further
/// receives wait.
fn request(xid: u32, (count, reserved): (u32, u32), part: &[u8]) -> Vec<u8> {
    let info = [0, 0, count, reserved, part.len() as u32];
    operation(xid, CALL, XMTREQ, &info, part)
}

/// Returns the first of `count` transmissions of NULL.
fn first(xid: u32, count: u32) -> Vec<u8> {
    request(xid, (count, 0), &rpc::null(xid).bytes()[..CUT])
}

/// Returns the transmission with this number and the rest of NULL, which says that it has `length` bytes of it.
fn second(xid: u32, number: u32, length: u32) -> Vec<u8> {
    let rest = &rpc::null(xid).bytes()[CUT..];
    operation(xid, CALL, XMTCONT, &[number, XMTREQ, length], rest)
}

const REST: u32 = (NULL - CUT) as u32;

/// Returns the replies to a call by ROPT_XMTREQ whose results begin with these words: nothing says that it must be
/// ROPT_XMTRESP.
fn answered(xid: u32, results: &[u32]) -> Step {
    let payload = rpc::accepted(xid, 0, &crate::wire::v2::bytes(results));
    let transmitted = Operation {
        begins: payload,
        ..Operation::new(xid, XMTRESP, &[Some(0), Some(1), None])
    };
    let reply = Expect::Reply(success(xid, results));
    Step::Expect(vec![reply, expected(transmitted)])
}

/// Returns the reports about the transmission of a call with this number: whether they name the group's first
/// transmission, and how, and which direction they have, is up to the server.
fn report(xid: u32, number: u32, lead: Option<u32>, fault: &[Option<u32>]) -> Vec<Expect> {
    let none = vec![Some(0)];
    let lead = lead.map(|lead| vec![Some(1), Some(lead), Some(CALL), None]);
    let leads = lead.into_iter().chain([none]);
    let about = |lead: Vec<Option<u32>>| {
        let bad = [Some(xid), Some(CALL), Some(number)];
        let info = [&bad[..], &lead, fault].concat();
        expected(Operation {
            direction: None,
            ..Operation::new(xid, XMTERR, &info)
        })
    };
    leads.map(about).collect()
}

fn whole(ground: &Ground) -> Case {
    let xid = ground.xid();
    let call = request(xid, (1, 0), &rpc::null(xid).bytes());
    row(
        ("version-two-01, rtrext-9.2", 1),
        "a call by ROPT_XMTREQ in one transmission",
        "the reply",
        ONE,
        vec![Step::Send(call), answered(xid, &[])],
    )
}

fn continued(ground: &Ground) -> Case {
    let xid = ground.xid();
    let steps = vec![
        Step::Send(first(xid, 2)),
        Step::Send(second(xid, 1, REST)),
        answered(xid, &[]),
    ];
    let case = row(
        ("version-two-01, rtrext-9.4", 1),
        "a call in two transmissions",
        "the reply",
        TWO,
        steps,
    );
    case.needs(FIRST_REQUEST)
}

/// Transmissions that are not the next one of their group.
fn reports(ground: &Ground) -> Vec<Case> {
    let xid = ground.xid();
    let nothing = row(
        ("version-two-01, rtrext-9.5", 1),
        "ROPT_XMTCONT of no call",
        "ROPT_XMTERR with BADCONT, and the next call is answered",
        TWO,
        vec![
            Step::Send(second(xid, 1, REST)),
            Step::Expect(report(xid, 1, None, &[Some(BADCONT)])),
        ],
    );
    // A function makes the message after the first of two transmissions, and the reports that may be its answer.
    let one = |address, sends, expects, of: &dyn Fn(u32) -> (Vec<u8>, Vec<Expect>)| {
        let xid = ground.xid();
        let (message, reports) = of(xid);
        let steps = vec![
            Step::Send(first(xid, 2)),
            Step::Send(message),
            Step::Expect(reports),
        ];
        row(address, sends, expects, TWO, steps).needs(FIRST_REPORT)
    };
    let other = ground.xid() ^ 0x0100_0000;
    vec![
        nothing.needs(FIRST_REQUEST),
        one(
            ("version-two-01, rtrext-9.5", 2),
            "the third transmission of a call after the first",
            "ROPT_XMTERR with BADSEQ: 1 expected, 2 found",
            &|xid| {
                let fault = [Some(BADSEQ), Some(1), Some(2)];
                let reports = report(xid, 2, Some(xid), &fault);
                (second(xid, 2, REST), reports)
            },
        ),
        one(
            ("version-two-01, rtrext-9.5", 3),
            "a transmission of another call after the first of two",
            "ROPT_XMTERR with BADXID, the XID expected and the one found",
            &|xid| {
                let fault = [Some(BADXID), Some(xid), Some(other)];
                let reports = report(other, 1, Some(xid), &fault);
                (second(other, 1, REST), reports)
            },
        ),
        one(
            ("version-two-01, rtrext-9.4", 2),
            "a transmission that says it has four bytes of the call more than it has",
            "ROPT_XMTERR with BADPL and the length that it says",
            &|xid| {
                let fault = [Some(BADPL), Some(REST + 4), None, None];
                let reports = report(xid, 1, Some(xid), &fault);
                (second(xid, 1, REST + 4), reports)
            },
        ),
    ]
}

/// A call between the transmissions of another one, which is given up.
fn interrupted(ground: &Ground) -> Case {
    const OPTIONAL: u32 = 5;
    let (xid, between) = (ground.xid(), ground.xid() ^ 0x0100_0000);
    let null = plain(between, CALL, &rpc::null(between).bytes());
    let fault = [Some(BADHMT), Some(OPTIONAL), Some(v1::MSG)];
    let steps = vec![
        Step::Send(first(xid, 2)),
        Step::Send(null),
        Step::Expect(report(xid, 1, Some(xid), &fault)),
        Step::Expect(vec![Expect::Reply(success(between, &[]))]),
        Step::Send(second(xid, 1, REST)),
        Step::Perhaps(report(xid, 1, Some(xid), &[Some(BADCONT)])),
    ];
    let case = row(
        ("version-two-01, rtrext-4.2", 1),
        "the first of two transmissions of a call, another call, and the second transmission",
        "ROPT_XMTERR with BADHMT, the reply to the other call, and none to the one that was given up",
        TWO,
        steps,
    );
    case.needs(FIRST_REPORT)
}

/// A reply that is longer than one receive, and shorter than two.
fn replies(ground: &Ground) -> Vec<Case> {
    const LONG: usize = 6000;
    // Section 4.3 counts the receives beyond one in `optxrq_rsbuf`, and section 5.2 all.
    const RESERVED: u32 = 2;
    const FIRST_RESPONSE: &str = "rpcrdma2-01/rtrext-9.3/1";
    let own = [2, RBSIZ, 4, 4096, RTRSUPP, 4, XREQ | XRESP | XCONT, 0];
    let needed = Needed {
        operations: XREQ | XRESP | XCONT,
        request: 1,
        response: 2,
    };
    let data = content(501, LONG);
    // `count` and `number` are compared in one case each.
    let one = |address, expects, count: Option<u32>, number: Option<u32>| {
        let xid = ground.xid();
        let args = rpc::read_args(&ground.file, 0, LONG as u32);
        let call = nfs::call(ground, xid, nfs::READ, args);
        let leads = Operation {
            begins: rpc::accepted(xid, 0, &[0; 4]),
            ..Operation::new(xid, XMTRESP, &[Some(0), count, None])
        };
        let itype = number.map(|_| XMTRESP);
        let follows = Operation {
            ends: data[LONG - 64..].to_vec(),
            ..Operation::new(xid, XMTCONT, &[number, itype, None])
        };
        let steps = [
            of_second(nfs::stored(ground, 0, &data)),
            vec![
                Step::Send(request(xid, (1, RESERVED), &call)),
                Step::Expect(vec![expected(leads)]),
                Step::Expect(vec![expected(follows)]),
            ],
        ];
        let sends = "READ of 6000 bytes by ROPT_XMTREQ, from a client with several receives of 4096 bytes for the reply";
        told(address, sends, expects, &own, needed, steps.concat())
    };
    let counted = one(
        ("version-two-01, rtrext-9.3", 1),
        "ROPT_XMTRESP that says there are two transmissions, and ROPT_XMTCONT",
        Some(2),
        None,
    );
    let numbered = one(
        ("version-two-01, rtrext-9.4", 3),
        "ROPT_XMTRESP, and ROPT_XMTCONT with the number 1 and the type of ROPT_XMTRESP",
        None,
        Some(1),
    );
    vec![counted.needs(FIRST_REQUEST), numbered.needs(FIRST_RESPONSE)]
}

/// Returns content whose last byte is not zero, so that a byte that was not placed shows.
fn shown(seed: u32) -> Vec<u8> {
    let mut data = content(seed, PLACED);
    data[PLACED - 1] |= 1;
    data
}

/// A WRITE whose data is placed, and a READ of its end.
fn placed(ground: &Ground) -> Case {
    const END: usize = 64;
    let data = shown(502);
    let xid = ground.xid();
    let args = rpc::write_args(&ground.file, 0, PLACED as u32);
    let call = nfs::call(ground, xid, nfs::WRITE, args);
    let length = call.len() as u32;
    let item = [1, length, PLACED as u32, TBSN, 0, 1, 0];
    let info = [&item[..], &[0, 1, 0, length]].concat();
    let message = operation(xid, CALL, XMTREQ, &info, &call);
    let (reading, read) = nfs::read(ground, (PLACED - END) as u64, END as u32, &[], None);
    let end = nfs::opaque_words(&data[PLACED - END..]);
    let reply = Expect::Reply(success(reading, &[0]).ends(&end));
    let mut steps = vec![Step::SendPlaced(message, data), answered(xid, &[0])];
    steps.extend(of_second(vec![Step::Send(read), Step::Expect(vec![reply])]));
    let case = row(
        ("version-two-01, rtrext-7.3", 1),
        "WRITE of 4096 bytes that are placed in the first segment for bulk data, and READ of the last 64",
        "the replies, and the bytes that were placed",
        ONE,
        steps,
    );
    case.needs(FIRST_REQUEST)
}

/// A READ whose data is to be placed.
fn placed_reply(ground: &Ground) -> Case {
    let data = shown(503);
    let xid = ground.xid();
    let args = rpc::read_args(&ground.file, 0, PLACED as u32);
    let call = nfs::call(ground, xid, nfs::READ, args);
    let length = call.len() as u32;
    let set = [1, 0, length, 1, 0, TBSN];
    let info = [&[0][..], &set, &[1, 0, length]].concat();
    let message = operation(xid, CALL, XMTREQ, &info, &call);
    let begins = rpc::accepted(xid, 0, &[0; 4]);
    let (ends, item) = (data.clone(), PLACED as u32);
    let placed = [1, item, TBSN, 0, 1, 0, 1].map(Some);
    let placed = Operation {
        begins: begins.clone(),
        ends: ends.clone(),
        length: Some(HEAD + PLACED),
        ..Operation::new(
            xid,
            XMTRESP,
            &[&placed[..1], &[None], &placed[1..], &[None]].concat(),
        )
    };
    // A server that cannot place the data says so. RDMA2_MSG is no answer: "In all cases, each xmddp_rsdloc sent as part
    // of a request has a corresponding xmddp_loc in the associated response" (7.4).
    let in_stream = [Some(1), None, Some(item), Some(TOOSHORT), Some(1), None];
    let in_stream = Operation {
        begins,
        ends,
        ..Operation::new(xid, XMTRESP, &in_stream)
    };
    let steps = [
        of_second(nfs::stored(ground, 0, &data)),
        vec![
            Step::Send(message),
            Step::Expect(vec![expected(placed), expected(in_stream)]),
        ],
    ];
    let needed = Needed {
        operations: XREQ | XRESP,
        ..ONE
    };
    let case = row(
        ("version-two-01, rtrext-7.4", 1),
        "READ of 4096 bytes that are to be placed in this client's segment for bulk data",
        "ROPT_XMTRESP with the data there, or with XMDTYPE_TOOSHORT and the data in the reply",
        needed,
        steps.concat(),
    );
    case.needs(FIRST_REQUEST)
}
