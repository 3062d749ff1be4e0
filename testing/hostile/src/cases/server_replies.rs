//! Invalid transport headers of a hostile server (RFC 8166, sections 4.2 to 4.5). A requester
//! silently discards what it cannot use, and accepts the correct reply that follows.

use crate::End::Lives;
use crate::server::{Answer, Ask, Call, Case, Outcome, Step::*, Until, case};
use crate::wire::rpc;
use crate::wire::v1::{self, DONE, ERR_CHUNK, ERR_VERS, Header, MSG, MSGP, NOMSG, segment};

/// Returns a case with a reply to a READ that is discarded.
fn read(name: &'static str, section: &'static str, lie: fn(&mut Answer)) -> Case {
    case(name, section, Ask::Read, vec![Hear, Mislead(lie)], Lives)
}

/// Returns a case with a reply to a NULL that is discarded.
fn null(name: &'static str, section: &'static str, lie: fn(&mut Answer)) -> Case {
    case(name, section, Ask::Null, vec![Hear, Mislead(lie)], Lives)
}

/// Returns a case with a reply by Reply chunk that is discarded.
fn list(name: &'static str, section: &'static str, lie: fn(&mut Answer)) -> Case {
    case(name, section, Ask::List, vec![Hear, Mislead(lie)], Lives)
}

/// Returns a case with a message that is discarded while a NULL is outstanding.
fn message(name: &'static str, section: &'static str, message: fn(&Call) -> Vec<u8>) -> Case {
    case(name, section, Ask::Null, vec![Hear, Send(message)], Lives)
}

/// Encodes the reply to NULL with a changed header. Its status is SYSTEM_ERR, so accepting it is
/// detected.
fn with(call: &Call, change: impl Fn(&mut Header)) -> Vec<u8> {
    let xid = call.header.xid;
    let mut header = v1::header(xid);
    change(&mut header);
    header.with(&rpc::accepted(xid, 5, &[]))
}

pub(super) fn cases() -> Vec<Case> {
    let mut cases = vec![
        case("control: NULL", "RFC 8166, 3.3", Ask::Null, vec![], Lives),
        case("control: READ", "RFC 8166, 4.3.2", Ask::Read, vec![], Lives),
        case(
            "control: WRITE",
            "RFC 8166, 4.3.1",
            Ask::Write,
            vec![],
            Lives,
        ),
        case(
            "control: READDIR",
            "RFC 8166, 4.3.3",
            Ask::List,
            vec![],
            Lives,
        ),
        message("version 0", "RFC 8166, 4.5", |call| {
            with(call, |header| header.version = 0)
        }),
        message("version 2", "RFC 8166, 4.5", |call| {
            with(call, |header| header.version = 2)
        }),
        message("version 4294967295", "RFC 8166, 4.5", |call| {
            with(call, |h| h.version = u32::MAX)
        }),
        message("RDMA_MSGP", "RFC 8166, 4.6.1", |call| {
            with(call, |header| header.procedure = MSGP)
        }),
        message("RDMA_DONE", "RFC 8166, 4.6.2", |call| {
            with(call, |header| header.procedure = DONE)
        }),
        message("procedure 99", "RFC 8166, 4.5", |call| {
            with(call, |header| header.procedure = 99)
        }),
        message("no message", "RFC 8166, 4.5", |_| Vec::new()),
        message("an XID alone", "RFC 8166, 4.5", |call| {
            call.header.xid.to_be_bytes().to_vec()
        }),
        message("27 bytes", "RFC 8166, 4.5", |call| {
            with(call, |_| {})[..27].to_vec()
        }),
        message("a list that goes on with 2", "RFC 8166, 4.5", |call| {
            let mut message = with(call, |_| {});
            message[19] = 2;
            message
        }),
        message("a write chunk of 2^32 segments", "RFC 8166, 4.5", |call| {
            let mut message = with(call, |header| header.writes = vec![vec![]]);
            message[24..28].fill(0xff);
            message
        }),
        message("an answer to a call never made", "RFC 8166, 4.5", |call| {
            with(call, |header| header.xid ^= 0x8000_0000)
        }),
        message("an error to a call never made", "RFC 8166, 4.5", |call| {
            v1::error(call.header.xid ^ 0x8000_0000, 1, &[ERR_CHUNK])
        }),
        message(
            "the answer to another call inside",
            "RFC 8166, 4.2.1",
            |call| {
                let xid = call.header.xid;
                v1::header(xid).with(&rpc::accepted(xid.wrapping_sub(1), 0, &[]))
            },
        ),
        message("a call", "RFC 8167", |_| {
            v1::header(0x0bad).with(&rpc::null(0x0bad).bytes())
        }),
        // A call of the server, which has XIDs of its own.
        message("the call sent back", "RFC 8167, 2.4.1", |call| {
            call.header.with(&call.rpc)
        }),
        message("a header without a message", "RFC 8166, 4.2.1", |call| {
            v1::header(call.header.xid).with(&[])
        }),
        message("ERR_CHUNK of version 2", "RFC 8166, 4.5", |call| {
            v1::error(call.header.xid, 2, &[ERR_CHUNK])
        }),
        message("an error that there is not", "RFC 8166, 4.5", |call| {
            v1::error(call.header.xid, 1, &[3, 0, 0])
        }),
        message("ERR_VERS without versions", "RFC 8166, 4.5", |call| {
            v1::error(call.header.xid, 1, &[ERR_VERS])
        }),
        message("ERR_CHUNK", "RFC 8166, 4.5.3", |call| {
            v1::error(call.header.xid, 1, &[ERR_CHUNK])
        })
        .ending(Outcome::Chunk),
        message("ERR_VERS for versions 2 to 3", "RFC 8166, 4.5.1", |call| {
            v1::error(call.header.xid, 1, &[ERR_VERS, 2, 3])
        })
        .ending(Outcome::Protocol),
        message("ERR_VERS for versions 9 to 1", "RFC 8166, 4.5.1", |call| {
            v1::error(call.header.xid, 1, &[ERR_VERS, 9, 1])
        })
        .ending(Outcome::Protocol),
        message(
            "ERR_VERS for the version that was spoken",
            "RFC 8166, 4.5.1",
            |call| v1::error(call.header.xid, 1, &[ERR_VERS, 1, 1]),
        )
        .ending(Outcome::Protocol),
        case(
            "an answer twice",
            "RFC 8166, 4.5",
            Ask::Null,
            vec![Hear, Answer(|answer| answer.repeat = 2)],
            Lives,
        ),
        case(
            "an answer with chunks twice",
            "RFC 8166, 4.5",
            Ask::Read,
            vec![Hear, Answer(|answer| answer.repeat = 2)],
            Lives,
        ),
        case(
            "ten answers to calls never made",
            "RFC 8166, 4.5",
            Ask::Null,
            vec![
                Hear,
                Burst(10, |call| with(call, |header| header.xid ^= 0x4000_0000)),
            ],
            Lives,
        ),
    ];
    cases.extend(credits());
    cases.extend(chunks());
    cases
}

/// Returns the cases of grants (RFC 8166, section 3.3.1).
fn credits() -> Vec<Case> {
    let section = "RFC 8166, 3.3.1";
    let calls = |name, granted| {
        case(name, section, Ask::Nulls(100), vec![], Lives).honest(Until::Granting(granted))
    };
    vec![
        calls("0 credits granted", 0),
        calls("1 credit granted", 1),
        calls("4294967295 credits granted", u32::MAX),
        case(
            "no more calls than the client has receives for",
            section,
            Ask::Nulls(100),
            {
                // 4294967295 credits granted, 8 requested: the ninth call waits for a reply.
                let mut script = vec![Hear; 8];
                script.push(HearNothing);
                script
            },
            Lives,
        )
        .honest(Until::Granting(u32::MAX)),
        case(
            "a grant taken back",
            section,
            Ask::Nulls(20),
            {
                let mut script = vec![Hear; 8];
                script.push(Answer(|answer| answer.header.credits = 1));
                script.push(HearNothing);
                script
            },
            Lives,
        ),
    ]
}

/// Returns the cases of chunks that differ from those that were offered.
fn chunks() -> Vec<Case> {
    let mut cases = vec![
        read("a read list in a reply", "RFC 8166, 4.3.1", |answer| {
            answer.header.reads = vec![(40, segment(1, 8, 0))];
        }),
        read(
            "a segment longer than offered",
            "RFC 8166, 3.4.6",
            |answer| {
                answer.header.writes[0][0].length += 1;
            },
        ),
        read("a segment of 4 GiB", "RFC 8166, 3.4.6", |answer| {
            answer.header.writes[0][0].length = u32::MAX;
        }),
        read("segments of 4 GiB each", "RFC 8166, 3.4.6", |answer| {
            for segment in &mut answer.header.writes[0] {
                segment.length = u32::MAX;
            }
        }),
        read("another handle", "RFC 8166, 3.4.6", |answer| {
            answer.header.writes[0][0].handle ^= 1;
        }),
        read("another offset", "RFC 8166, 3.4.6", |answer| {
            answer.header.writes[0][0].offset += 4;
        }),
        read("segments in another order", "RFC 8166, 3.4.6", |answer| {
            answer.header.writes[0].reverse();
        }),
        read("a segment left out", "RFC 8166, 3.4.6", |answer| {
            answer.header.writes[0].truncate(1);
        }),
        read("a segment too many", "RFC 8166, 3.4.6", |answer| {
            let last = answer.header.writes[0][1];
            answer.header.writes[0].push(last);
        }),
        read("a chunk of no segments", "RFC 8166, 4.3.2.2", |answer| {
            answer.header.writes[0].clear();
        }),
        read(
            "data behind a segment that is not full",
            "RFC 8166, 3.4.6",
            |answer| {
                answer.header.writes[0][0].length = 8;
            },
        ),
        read("a write chunk too many", "RFC 8166, 4.3.2", |answer| {
            let first = answer.header.writes[0].clone();
            answer.header.writes.push(first);
        }),
        read("16 write chunks too many", "RFC 8166, 4.3.2", |answer| {
            let first = answer.header.writes[0].clone();
            answer.header.writes = vec![first; 17];
        }),
        null(
            "a write chunk that was not offered",
            "RFC 8166, 4.3.2",
            |answer| {
                answer.header.writes = vec![vec![segment(0x51, 64, 0)]];
            },
        ),
        null(
            "a reply chunk that was not offered",
            "RFC 8166, 4.3.3",
            |answer| {
                answer.header.reply = Some(vec![segment(0x51, 64, 0)]);
            },
        ),
        read(
            "a reply chunk where a write chunk was offered",
            "RFC 8166, 4.3.3",
            |answer| {
                answer.header.reply = answer.header.writes.pop();
            },
        ),
        null(
            "a long reply without a reply chunk",
            "RFC 8166, 4.2.4",
            |answer| {
                answer.header.procedure = NOMSG;
                answer.payload.clear();
            },
        ),
        null(
            "a long reply with its message inline",
            "RFC 8166, 4.2.4",
            |answer| {
                answer.header.procedure = NOMSG;
            },
        ),
        list(
            "a long reply with a message besides",
            "RFC 8166, 4.2.4",
            |answer| {
                answer.payload = rpc::accepted(answer.header.xid, 0, &[]);
            },
        ),
        list(
            "a reply chunk in use, and a message inline",
            "RFC 8166, 4.2.4",
            |answer| {
                answer.header.procedure = MSG;
                answer.payload = rpc::accepted(answer.header.xid, 0, &[]);
            },
        ),
        list(
            "a reply chunk with nothing in it",
            "RFC 8166, 4.2.4",
            |answer| {
                for segment in answer.header.reply.iter_mut().flatten() {
                    segment.length = 0;
                }
            },
        ),
        list("a reply chunk of 41 bytes", "RFC 8166, 3.5.3", |answer| {
            for segment in answer.header.reply.iter_mut().flatten().take(1) {
                segment.length = 41;
            }
        }),
        list(
            "a reply chunk longer than offered",
            "RFC 8166, 3.4.6",
            |answer| {
                for segment in answer.header.reply.iter_mut().flatten() {
                    segment.length = 1 << 20;
                }
            },
        ),
        list("a reply chunk of 64 GiB", "RFC 8166, 3.4.6", |answer| {
            let all = segment(0x51, u32::MAX, 0);
            answer.header.reply = Some(vec![all; 16]);
        }),
    ];
    // The header is correct, so the reply counts. Its content may still be invalid.
    let taken = |ask, name, section, lie| case(name, section, ask, vec![Hear, Answer(lie)], Lives);
    let wrong = |case: Case| case.ending(Outcome::Protocol);
    cases.extend([
        wrong(taken(
            Ask::Read,
            "less data in the chunk than the reply says",
            "RFC 8166, 3.4.6",
            |answer| {
                answer.header.writes[0][1].length -= 4;
            },
        )),
        wrong(taken(
            Ask::Read,
            "no data in the chunk, and a reply that says so",
            "RFC 8166, 4.3.2.2",
            |answer| {
                for segment in &mut answer.header.writes[0] {
                    segment.length = 0;
                }
            },
        ))
        // A reply without data is one that a gateway passes on.
        .relayed(Outcome::Protocol),
        wrong(taken(
            Ask::Read,
            "the write list left out, and no data",
            "RFC 8166, 4.3.2.2",
            |answer| {
                answer.header.writes.clear();
            },
        ))
        .relayed(Outcome::Protocol),
        wrong(taken(
            Ask::List,
            "another call's answer in the reply chunk",
            "RFC 8166, 4.2.1",
            |answer| {
                answer.places[0].2[3] ^= 1;
            },
        )),
        wrong(taken(
            Ask::List,
            "zeroes in the reply chunk",
            "RFC 8166, 4.2.1",
            |answer| {
                answer.places[0].2.fill(0);
            },
        )),
    ]);
    cases
}
