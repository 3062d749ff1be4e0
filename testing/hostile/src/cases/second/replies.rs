//! A hostile server of version 2: unexpected operations and errors, and replies by ROPT_XMTRESP and
//! ROPT_XMTCONT with each field changed (version-two-01; xcharext-02; rtrext-00, sections 6 to 9).
//! The client continues, and gets the correct reply after the invalid one.

use rpcrdma_conform::client::changes::{Wrong, response as wrong_responses};
use rpcrdma_conform::fields::{Kind, Word};

use super::reports::CODES;
use crate::End::{Left, Lives};
use crate::cases::vary::{Limits, changes, with_word, words_of};
use crate::server::{Ask, Case, LEN, Outcome, Step, Step::*, case, response};
use crate::wire::rpc;
use crate::wire::v1::{self, Header, NOMSG, segment};
use crate::wire::v2::{
    self, CALL, INITXCH, REPLY, REQXCH, RESPXCH, TARGET, UPDXCH, XMTCONT, XMTERR, XMTREQ, XMTRESP,
};

const BASE: &str = "version-two-01, 4.2";
const EXCHANGE: &str = "xcharext-02, 5";
const RESPONSES: &str = "rtrext-00, 9.3";
const CONTINUED: &str = "rtrext-00, 9.4";
const REPORTS: &str = "rtrext-00, 9.5";
/// The XID of messages that belong to no call.
const XID: u32 = 0x0bad;
/// The bytes of a READ that takes four transmissions.
const LONG: u32 = 200_000;
/// The memory of a client's receive buffers for bulk data, at both ends of a case.
const RECEIVES: usize = 4 << 20;
/// The maximum length of a message that a client accepts
/// ([`rpc_transport::rdma::RdmaOptions::max_message`]).
const MOST: u32 = (4 << 20) + (64 << 10);
/// The bytes of READ results before the data.
const RESULTS: u32 = 44;

fn with(ask: Ask, name: impl Into<String>, section: &'static str, script: Vec<Step>) -> Case {
    case(name, section, ask, script, Lives).costing(RECEIVES)
}

/// Returns a case with a message that arrives while the client waits for the reply to NULL, and the
/// client's answer.
fn said(
    name: impl Into<String>,
    section: &'static str,
    message: Vec<u8>,
    answer: Option<Vec<u32>>,
) -> Case {
    let answer = answer.map_or(HearNothing, HearWords);
    with(Ask::Null, name, section, vec![Hear, Say(message), answer])
}

pub(in crate::cases) fn cases() -> Vec<Case> {
    let mut cases = vec![
        with(Ask::Null, "control: NULL", BASE, vec![]),
        with(Ask::Read, "control: READ, placed", RESPONSES, vec![]),
        with(
            Ask::Write,
            "control: WRITE, placed",
            "rtrext-00, 9.2",
            vec![],
        ),
        with(Ask::List, "control: READDIR", RESPONSES, vec![]),
        with(
            Ask::LongRead(LONG),
            "control: READ in four transmissions",
            CONTINUED,
            vec![],
        ),
    ];
    cases.extend(base());
    cases.extend(operations());
    cases.extend(responses());
    cases.extend(continued());
    cases.extend(reports());
    cases.extend(structures());
    cases
}

/// Returns the cases of invalid headers of version 2, and of errors.
fn base() -> Vec<Case> {
    let message = |name, message: Vec<u8>| said(name, BASE, message, None);
    let bad = || Some(v2::bad_header(XID));
    let words = |version: u32, procedure: u32, rest: &[u32]| {
        v2::bytes(&[&[XID, version, 8, procedure], rest].concat())
    };
    let about = |name: &'static str, say: fn(&crate::server::Call) -> Vec<u8>| {
        with(Ask::Null, name, BASE, vec![Hear, Send(say), HearNothing])
    };
    let mut cases = vec![
        message("procedure 2", words(2, 2, &[REPLY, 0, 0, 0])),
        message("procedure 6", words(2, 6, &[REPLY, 0, 0, 0])),
        message(
            "procedure 4294967295",
            words(2, u32::MAX, &[REPLY, 0, 0, 0]),
        ),
        message("direction 2", words(2, 0, &[2, 0, 0, 0])),
        message("version 1 in mid-stream", words(1, 0, &[0, 0, 0])),
        message("version 3 in mid-stream", words(3, 0, &[REPLY, 0, 0, 0])),
        message(
            "an error of version 1 in mid-stream",
            words(1, 4, &[1, 1, 1]),
        ),
        message("an error that there is not", words(2, 4, &[77])),
        message("an error without a code", words(2, 4, &[])),
        message("RDMA2_ERR_INVAL_OPTION to nothing", words(2, 4, &[3])),
        message("RDMA2_ERR_BAD_HEADER to nothing", words(2, 4, &[2])),
        message("no message", vec![]),
        message("16 bytes", words(2, 0, &[])),
        message("a reply to a call never made", {
            v2::plain(XID, REPLY, &rpc::accepted(XID, 0, &[]))
        }),
        message(
            "a read list without end, in a reply",
            words(2, 0, &[REPLY, 1, 1]),
        ),
        said(
            "a read list without end, in a call",
            BASE,
            words(2, 0, &[CALL, 1, 1]),
            bad(),
        ),
        said(
            "a call to a client that takes none",
            "xcharext-02, 3.3",
            v2::plain(XID, CALL, &rpc::null(XID).bytes()),
            bad(),
        ),
        about("the answer to another call inside", |call| {
            let xid = call.header.xid;
            v2::plain(xid, REPLY, &rpc::accepted(xid.wrapping_sub(1), 5, &[]))
        }),
        about("a call inside, with the XID of the call", |call| {
            v2::plain(call.header.xid, REPLY, &call.rpc)
        }),
        about("a header alone", |call| {
            v2::plain(call.header.xid, REPLY, &[])
        }),
        about("a reply chunk that was not offered", |call| {
            let header = Header {
                procedure: NOMSG,
                reply: Some(vec![segment(0x51, 64, 0)]),
                ..v1::header(call.header.xid)
            };
            v2::with(&header, REPLY, &[])
        }),
    ];
    let error = |name: &'static str, say: fn(&crate::server::Call) -> Vec<u8>, outcome| {
        with(Ask::Null, name, BASE, vec![Hear, Send(say)]).ending(outcome)
    };
    cases.extend([
        error(
            "RDMA2_ERR_BAD_HEADER",
            |call| v2::bytes(&[call.header.xid, 2, 8, 4, 2]),
            Outcome::Chunk,
        ),
        error(
            "RDMA2_ERR_VERS",
            |call| v2::bytes(&[call.header.xid, 2, 8, 4, 1, 1, 1]),
            Outcome::Protocol,
        ),
    ]);
    // In answer to a call by ROPT_XMTREQ: the client sends it in another transfer mode.
    let refused = |name: &'static str, say: fn(&crate::server::Call) -> Vec<u8>| {
        let script = vec![Hear, Send(say), Hear, Settled];
        with(Ask::Write, name, "rtrext-00, 5.1", script)
    };
    cases.extend([
        refused("RDMA2_ERR_INVAL_OPTION to ROPT_XMTREQ", |call| {
            v2::bytes(&[call.header.xid, 2, 8, 4, 3])
        }),
        refused("RDMA2_ERR_BAD_HEADER to ROPT_XMTREQ", |call| {
            v2::bytes(&[call.header.xid, 2, 8, 4, 2])
        }),
    ]);
    cases
}

/// A description, the words of an operation, and the client's answer.
type Row<'a> = (&'static str, &'a [u32], Option<Vec<u32>>);

/// Returns the cases of operations, known and unknown.
fn operations() -> Vec<Case> {
    let bad = || Some(v2::bad_header(XID));
    // A client takes no calls in operations, whatever is in them.
    let invalid = || Some(v2::invalid_option(XID));
    let response = |subsets: &[u32]| {
        let len = 4 * subsets.len() as u32;
        let header = [XID, v2::VERSION, 0, v2::OPTIONAL, REPLY, RESPXCH, len];
        Some([&header[..], subsets].concat())
    };
    let mut cases = Vec::new();
    for opttype in [0, 9, 99, u32::MAX] {
        for direction in [CALL, REPLY] {
            cases.push(said(
                format!("operation {opttype}, direction {direction}"),
                "version-two-01, 4.2.4",
                v2::operation(XID, direction, opttype, &[1, 2, 3], &[]),
                Some(v2::invalid_option(XID)),
            ));
        }
    }
    let mut op = |direction, opttype, rows: &[Row<'_>]| {
        for (name, info, answer) in rows {
            let message = v2::operation(XID, direction, opttype, info, &[]);
            cases.push(said(*name, EXCHANGE, message, answer.clone()));
        }
    };
    let everything = v2::everything();
    op(
        CALL,
        INITXCH,
        &[
            ("ROPT_INITXCH again", &everything, None),
            ("optixch_start cut off", &[], bad()),
            ("optixch_start of 65", &[65, 0], bad()),
            ("optixch_nochg cut off", &[0], bad()),
            ("xchv_data of the size, empty", &[1, 1, 0, 0], bad()),
            ("xchv_which 2 with a bool of 2", &[1, 2, 4, 2, 0], bad()),
        ],
    );
    let (unknown, largest) = (&[2, 99, 0, 4_294_967_040, 0], &[1, 1, 4, u32::MAX]);
    let (none, both) = (response(&[0, 0, 0]), response(&[0, 1, 0b11, 0]));
    let one = response(&[0, 1, 1, 0]);
    op(
        CALL,
        REQXCH,
        &[
            ("optreqxch_want nothing", &[0], none),
            ("optreqxch_want what nobody knows", unknown, both),
            ("optreqxch_want a size of 4294967295", largest, one),
            ("optreqxch_want cut off", &[1, 1, 4], bad()),
            ("optreqxch_want a bool of 7", &[1, 2, 4, 7], bad()),
        ],
    );
    op(REPLY, REQXCH, &[("ROPT_REQXCH in a reply", &[0], None)]);
    op(
        REPLY,
        RESPXCH,
        &[
            ("optrespxch_done to no request", &[1, 1, 0, 0], None),
            ("optrespxch_rej to no request", &[0, 1, 1, 0], None),
            ("optrespxch_pend to no request", &[0, 0, 1, 1], None),
        ],
    );
    let in_call = ("ROPT_RESPXCH in a call", &[0, 0, 0][..], bad());
    op(CALL, RESPXCH, &[in_call]);
    op(
        CALL,
        UPDXCH,
        &[
            ("optupdxch_now unknown", &[99, 4, 9, 0], None),
            ("optupdxch_now a size of 0", &[1, 4, 0, 0], None),
            ("optupdxch_now a bool of 9", &[2, 4, 9, 0], bad()),
            ("optupdxch_now cut off", &[], bad()),
            ("optupdxch_pendclr of 2", &[1, 4, 8192, 2], bad()),
        ],
    );
    op(
        CALL,
        XMTREQ,
        &[
            ("a call by ROPT_XMTREQ", &[0, 0, 1, 0, 0], invalid()),
            ("ROPT_XMTREQ cut off", &[0], invalid()),
        ],
    );
    let in_reply = ("ROPT_XMTREQ in a reply", &[0, 0, 1, 0, 0][..], invalid());
    op(REPLY, XMTREQ, &[in_reply]);
    op(
        REPLY,
        XMTRESP,
        &[
            ("ROPT_XMTRESP to no call", &[0, 1, 0], None),
            ("ROPT_XMTRESP cut off", &[0], None),
        ],
    );
    op(
        CALL,
        XMTRESP,
        &[("ROPT_XMTRESP in a call", &[0, 1, 0], None)],
    );
    for (direction, first) in [(REPLY, XMTRESP), (CALL, XMTREQ)] {
        let name = match direction {
            REPLY => "ROPT_XMTCONT of nothing",
            _ => "ROPT_XMTCONT of nothing, in a call",
        };
        let report = v2::report(XID, direction, &[XID, direction, 1, 0, 3]);
        op(direction, XMTCONT, &[(name, &[1, first, 0], Some(report))]);
    }
    let (call, reply) = (&[XID, CALL, 0, 0, 3], &[XID, REPLY, 0, 0, 3]);
    op(
        REPLY,
        XMTERR,
        &[
            ("ROPT_XMTERR about a call never made", call, None),
            ("ROPT_XMTERR cut off", &[XID], None),
        ],
    );
    let never = ("ROPT_XMTERR about a reply never sent", &reply[..], None);
    op(CALL, XMTERR, &[never]);
    let null = rpc::null(XID).bytes();
    cases.push(said(
        "a whole call by ROPT_XMTREQ",
        "xcharext-02, 3.3",
        v2::operation(XID, CALL, XMTREQ, &[0, 0, 1, 0, 40], &null),
        invalid(),
    ));
    // The limit of the specification on messages without credit is far below this.
    let message = v2::operation(XID, CALL, UPDXCH, &[99, 4, 9, 0], &[]);
    let mut script = vec![Hear];
    for _ in 0..50 {
        script.extend([Say(message.clone()), Say(message.clone()), HearNothing]);
    }
    cases.push(with(Ask::Null, "a hundred updates", EXCHANGE, script));
    cases.push(
        case(
            "a flood of operations nobody has, by a server that does not read",
            "version-two-01, 4.2.4",
            Ask::Null,
            vec![
                Hear,
                Flood(200_000, |_| v2::operation(XID, CALL, 99, &[], &[])),
            ],
            Left,
        )
        .costing(2 * RECEIVES),
    );
    cases
}

/// Returns the cases of ROPT_XMTRESP with each field changed: those that `conform` judges clients by, with the report
/// of this project's client.
fn responses() -> Vec<Case> {
    let fields = response(LEN as usize).into_iter();
    let info: Vec<u32> = fields.map(|(_, value)| value).collect();
    let header = (v2::OPERATION + 4 * info.len()) as u32;
    let (room, target) = (1024 + LEN - header, TARGET as u32);
    let missing: &[u32] = &[7, 0, 0, 0];
    let row = |wrong: &Wrong| {
        let (word, value) = (&wrong.word, wrong.value);
        let fault = match (word.field(), value) {
            ("xmdmi_disp", _) => vec![6, value, 8, RESULTS],
            ("xmdmi_length", 0) => vec![7, 1, 0, 0],
            ("xmdmi_length", u32::MAX) => vec![8, value, 0, MOST],
            ("xmdmi_length", _) if value > target => vec![7, 1, 2, 1024],
            ("xmdmi_length", _) | ("xmdl_offset", 4) => missing.to_vec(),
            ("xmdl_offset", _) => vec![6, value, 0, target - 1],
            ("xmdl_bsnum[0]", _) => vec![7, value, 0, 0],
            ("optxrs_count", _) => vec![4, 1, value],
            ("optxrs_pslen", 0 | 40) => vec![6, RESULTS, 8, value],
            ("optxrs_pslen", _) if value == room => missing.to_vec(),
            ("optxrs_pslen", _) => vec![8, value, 0, room],
            // It cannot be decoded, and is discarded.
            _ => Vec::new(),
        };
        let hear = match fault.is_empty() {
            true => HearNothing,
            false => HearReport(0, false, fault),
        };
        let script = vec![Hear, Patched(vec![(0, word.at / 4, value)]), hear];
        let name = format!("{} is {value}", word.place);
        with(Ask::Read, name, RESPONSES, script)
    };
    let all = wrong_responses(&info, room, target).expect("a correct response");
    // What is whole is for the upper layer.
    let mut cases: Vec<Case> = all.iter().filter(|it| !it.is_whole).map(row).collect();
    let changed =
        |name: &'static str, change: fn(&crate::server::Call, &mut Vec<Vec<u8>>), hear| {
            let script = vec![Hear, Transmissions(change), hear];
            with(Ask::Read, name, RESPONSES, script)
        };
    cases.extend([
        changed(
            "ROPT_XMTRESP without its data",
            |_, all| all[0].truncate(1024),
            HearReport(0, false, missing.to_vec()),
        ),
        changed(
            "ROPT_XMTRESP with another XID inside",
            |_, all| all[0][64 + 3] ^= 1,
            HearNothing,
        ),
        changed(
            "ROPT_XMTRESP with a call inside",
            |_, all| all[0][64 + 7] = 0,
            HearNothing,
        ),
        changed(
            "ROPT_XMTRESP to another call",
            |_, all| all[0][0] ^= 0x80,
            HearNothing,
        ),
        changed(
            "ROPT_XMTRESP in a call",
            |_, all| all[0][19] = 0,
            HearNothing,
        ),
    ]);
    // The correct reply comes twice. The second is discarded, because no call waits for it.
    cases.push(with(
        Ask::Null,
        "NULL answered by ROPT_XMTRESP",
        RESPONSES,
        vec![
            Hear,
            Send(|call| {
                let xid = call.header.xid;
                let payload = rpc::accepted(xid, 5, &[]);
                let info = [0, 1, payload.len() as u32];
                v2::operation(xid, REPLY, XMTRESP, &info, &payload)
            }),
            HearNothing,
        ],
    ));
    cases
}

/// Returns the cases of ROPT_XMTCONT with each field changed, and of transmissions in other orders.
fn continued() -> Vec<Case> {
    let room = (TARGET + 1024 - v2::OPERATION - 12) as u32;
    let top = u32::MAX;
    let limits: Limits<'_> = &[
        ("optxc_xnum", &[3]),
        ("optxc_pslen", &[2, room + 4, top - 3]),
    ];
    let long = |name: String, script| with(Ask::LongRead(LONG), name, CONTINUED, script);
    let row = |(word, value): (&Word<'_>, u32)| {
        let (number, fault) = match (word.field(), value) {
            ("optxc_xnum", _) => (value, vec![4, 1, value]),
            ("optxc_itype", _) => (1, vec![2, XMTRESP, value]),
            // Data is taken for the payload, as below.
            ("optxc_pslen", 4) => return None,
            _ => (1, vec![8, value, 0, room]),
        };
        let script = vec![
            Hear,
            Patched(vec![(1, word.at / 4, value)]),
            HearReport(number, true, fault),
        ];
        Some(long(format!("{} is {value}", word.place), script))
    };
    let words = words_of("optxmt_cont", &[1, XMTRESP, 0]);
    let all = changes(&words, limits).into_iter();
    let mut cases: Vec<Case> = all.filter_map(row).collect();
    // The payload is in the place of the data.
    cases.push(long(
        "optxc_pslen of what is data".to_owned(),
        vec![
            Hear,
            Patched(vec![(1, 2, room)]),
            HearReport(1, true, vec![7, 1, 0, 3]),
        ],
    ));
    let changed =
        |name: &str, change: fn(&crate::server::Call, &mut Vec<Vec<u8>>), hear: Vec<Step>| {
            let mut script = vec![Hear, Transmissions(change)];
            script.extend(hear);
            long(name.to_owned(), script)
        };
    let report = |number, lead, fault: &[u32]| HearReport(number, lead, fault.to_vec());
    cases.extend([
        changed(
            "the first transmission alone, twice",
            |_, all| {
                all.truncate(1);
                all.push(all[0].clone());
                all.push(v2::operation(XID, CALL, UPDXCH, &[99, 4, 9, 0], &[]));
            },
            vec![report(1, true, &[2, 7, 6]), report(1, true, &[2, 7, 4])],
        ),
        changed(
            "a transmission in a call",
            |_, all| all[1][19] = 0,
            vec![HearBadXid(1)],
        ),
        changed(
            "the second transmission left out",
            |_, all| drop(all.remove(1)),
            vec![report(2, true, &[4, 1, 2])],
        ),
        changed(
            "the second transmission twice",
            |_, all| {
                let second = all[1].clone();
                all.insert(1, second);
            },
            vec![report(1, true, &[4, 2, 1])],
        ),
        changed(
            "transmissions in another order",
            |_, all| all.swap(1, 2),
            vec![report(2, true, &[4, 1, 2])],
        ),
        changed(
            "the first transmission left out",
            |_, all| drop(all.remove(0)),
            vec![report(1, false, &[3])],
        ),
        changed(
            "the last transmission cut short",
            |_, all| {
                all[3].truncate(2000);
            },
            vec![report(3, true, &[7, 3, 0, 3])],
        ),
        changed(
            "an update between",
            |_, all| {
                all.insert(1, v2::operation(XID, CALL, UPDXCH, &[99, 4, 9, 0], &[]));
            },
            vec![report(1, true, &[2, 7, 4])],
        ),
        changed(
            "an error between",
            |_, all| {
                all.insert(1, v2::bytes(&[XID, 2, 8, 4, 2]));
            },
            vec![report(1, true, &[1, 5, 4])],
        ),
        changed(
            "more transmissions than there is room for",
            |_, all| {
                let at = v2::OPERATION + 4 * (response(LONG as usize).len() - 2);
                all[0][at..at + 4].copy_from_slice(&64_u32.to_be_bytes());
                all.truncate(1);
            },
            vec![report(0, false, &[4, 4, 64])],
        ),
        changed(
            "a transmission behind the last",
            |_, all| {
                // The group is complete with wrong data, so only the rest of it is sent, with
                // another call's XID.
                all.clear();
                all.push(v2::operation(XID, REPLY, XMTCONT, &[4, 6, 0], &[]));
            },
            vec![HearWords(v2::report(XID, REPLY, &[XID, REPLY, 4, 0, 3]))],
        ),
    ]);
    // Transmissions for which the client has no receives. Either the device ends the connection, or
    // the client, whose answers are not read; this depends on timing.
    cases.push(
        case(
            "more transmissions than receives",
            CONTINUED,
            Ask::Null,
            vec![
                Hear,
                Burst(400, |_| {
                    v2::operation(XID, REPLY, XMTCONT, &[1, 6, 0], &[0; 40])
                }),
            ],
            Left,
        )
        .costing(RECEIVES),
    );
    cases
}

/// Returns the cases of ROPT_XMTERR about a call, with each code and each field changed. The client
/// sends the call in another transfer mode, once.
fn reports() -> Vec<Case> {
    let mut cases = Vec::new();
    for (name, code, words) in CODES {
        for ask in [Ask::Write, Ask::Read] {
            let script = vec![Hear, Reject([&[0, 0, code], words].concat()), Hear, Settled];
            cases.push(with(ask, format!("{name} about {ask:?}"), REPORTS, script));
        }
    }
    let discarded = |name: &str, words: &[u32]| {
        let script = vec![Hear, Reject(words.to_vec()), HearNothing];
        with(Ask::Write, name, REPORTS, script)
    };
    let taken = |name: &str, words: &[u32]| {
        let script = vec![Hear, Reject(words.to_vec()), Hear, Settled];
        with(Ask::Write, name, REPORTS, script)
    };
    cases.extend([
        taken("xmsi_seq is 4294967295", &[u32::MAX, 0, 3]),
        taken("optxe_lead about another", &[0, 1, 7, REPLY, 9, 3]),
        discarded("optxe_lead is 2", &[0, 2, 3]),
        discarded("optxe_lead is cut off", &[0, 1, 7]),
        discarded("xmsi_dir of the lead is 2", &[0, 1, 7, 2, 0, 3]),
        discarded("optxe_which is 0", &[0, 0, 0]),
        discarded("optxe_which is 9", &[0, 0, 9]),
        discarded("optxe_which is 4294967295", &[0, 0, u32::MAX]),
        discarded("optxi_expect is left out", &[0, 0, 1]),
        discarded("optxi_current is left out", &[0, 0, 4, 1]),
        discarded("optxi_value is left out", &[0, 0, 6]),
        discarded("optxi_min is left out", &[0, 0, 7, 1]),
        discarded("optxi_max is left out", &[0, 0, 8, 1, 2]),
        discarded("a word more", &[0, 0, 3, 0]),
        taken("optxi_min above optxi_max", &[0, 0, 6, 4, 64, 8]),
        taken("optxi_expect the same as optxi_current", &[0, 0, 5, 7, 7]),
    ]);
    let other = |name: &str, xid: fn(u32) -> u32, direction: u32| {
        let script = match (xid(0), direction) {
            (0, _) => vec![
                Hear,
                Send(|call| wrong_direction(call.header.xid)),
                HearNothing,
            ],
            _ => vec![Hear, Send(|call| other_call(call.header.xid)), HearNothing],
        };
        with(Ask::Write, name, REPORTS, script)
    };
    cases.push(other("xmsi_xid of another call", |xid| xid + 1, CALL));
    cases.push(other("xmsi_dir is REPLY", |xid| xid, REPLY));
    // A call in one transmission is not a group that another message could interrupt.
    let within = vec![Hear, Send(|call| within(call.header.xid)), HearNothing];
    let name = "in the middle of a call that came in one transmission";
    cases.push(with(Ask::Write, name, REPORTS, within));
    cases
}

fn within(xid: u32) -> Vec<u8> {
    let other = xid ^ 0x8000_0000;
    let info = [other, CALL, 1, 1, xid, CALL, 0, 5, xid, other];
    v2::operation(other, REPLY, XMTERR, &info, &[])
}

fn wrong_direction(xid: u32) -> Vec<u8> {
    v2::operation(xid, REPLY, XMTERR, &[xid, REPLY, 0, 0, 3], &[])
}

fn other_call(xid: u32) -> Vec<u8> {
    v2::operation(xid, REPLY, XMTERR, &[xid ^ 0x8000_0000, CALL, 0, 0, 3], &[])
}

/// Returns the cases of a server with impossible receive buffers: nothing is placed in them, and
/// the call succeeds nevertheless.
fn structures() -> Vec<Case> {
    let right = [66_560, 2, 1, 1024, 1, 0, 1, 65_536, 4096, 1];
    let words = words_of("xchrrbs", &right);
    // A structure with another count of groups cannot be decoded. With its flag, the first segment is a target as well.
    let is_possible = |word: &Word<'_>| word.field() == "xmrseg_flags" && word.value == 0;
    let numbers = words
        .iter()
        .filter(|word| word.kind != Kind::Count && !is_possible(word));
    let row = |word: &Word<'_>, value: u32| {
        let mut said = vec![5, 1, 4, 66_560, 4, 4, 7, 5, 4 * right.len() as u32];
        said.extend(with_word(&right, word, value));
        said.extend([6, 4, 16, 7, 4, 64, 0]);
        let name = format!("XCHAR_RBSTRUCT: {} is {value}", word.place);
        with(Ask::Write, name, "rtrext-00, 8.3", vec![]).saying(said)
    };
    let mut cases = Vec::new();
    for word in numbers {
        let ends = [0, u32::MAX]
            .into_iter()
            .filter(|value| *value != word.value);
        cases.extend(ends.map(|value| row(word, value)));
    }
    let saying = |name: &str, id: u32, value: u32| {
        let mut said = v2::everything();
        let at = said.windows(2).position(|pair| pair == [id, 4]);
        said[at.expect("it is there") + 2] = value;
        with(Ask::Write, name, "rtrext-00, 8", vec![]).saying(said)
    };
    cases.extend([
        saying("XCHAR_RTRSUPP of 0", 4, 0),
        saying("XCHAR_RTRSUPP of all bits", 4, u32::MAX),
        saying("XCHAR_REQRXLIM of 0", 6, 0),
        saying("XCHAR_REQRXLIM of 4294967295", 6, u32::MAX),
        saying("XCHAR_RESPSXLIM of 0", 7, 0),
        saying("XCHAR_RESPSXLIM of 4294967295", 7, u32::MAX),
    ]);
    cases
}
