//! Replies and other messages of a hostile server (version-two-07, sections 5 to 7, and appendix B)
//! to a client. A bad reply fails its call, and is not reported (errata-07, 54); other messages
//! leave the call alone, and the correct reply follows.

use super::scripts::*;
use super::{PREFIX, PREFIX_WORDS, XID};
use crate::End::Left;
use crate::cases::vary::{Limits, words_wg};
use crate::server::{Ask, Call, Case, Outcome, Parts as Form, Step, Step::*, case};
use crate::wire::rpc;
use crate::wire::wg::{
    self, CALL_MIDDLE, CONNPROP_FINAL, CREDIT, ERR_BAD_XDR, ERR_INVAL_CONT, ERR_INVAL_HTYPE, GRANT,
    REPLY_EXTERNAL, REPLY_INLINE, REPLY_MIDDLE,
};

const REPLIES: &str = "version-two-07, 6.3.10";
const EXTERNAL: &str = "version-two-07, 6.3.8";
const CONTINUED: &str = "version-two-07, 6.3.9";
const ERRORS: &str = "version-two-07, 7";
const HANDLES: &str = "version-two-07, 6.5";
/// The bytes of a READ that takes two segments, and too many parts without a write chunk.
const SEGMENTS: u32 = 1_100_000;
/// The bytes of a READ that takes four targets.
const LONG: u32 = 200_000;

pub(in crate::cases) fn cases() -> Vec<Case> {
    let mut cases = vec![
        with(Ask::Null, "control: NULL", REPLIES, vec![]),
        with(Ask::Read, "control: READ", REPLIES, vec![]),
        with(Ask::Write, "control: WRITE", REPLIES, vec![]),
        with(Ask::List, "control: READDIR", REPLIES, vec![]),
        with(Ask::LongRead(LONG), "control: a long READ", REPLIES, vec![]),
        with(
            Ask::LongWrite(LONG),
            "control: a long WRITE",
            REPLIES,
            vec![],
        ),
        with(Ask::Nulls(6), "control: calls at once", REPLIES, vec![]),
    ];
    cases.extend(inline());
    cases.extend(chunks());
    cases.extend(continued());
    cases.extend(errors());
    cases.extend(others());
    cases.extend(handles());
    cases
}

/// Returns the cases of RDMA2_REPLY_INLINE.
fn inline() -> Vec<Case> {
    let mut cases = rows(
        Ask::Null,
        Form::Plain,
        REPLIES,
        &[
            (0, 0, "rdma_xid", XID, Nothing),
            (0, 0, "rdma_xid", 0, Nothing),
            (0, 1, "rdma_vers", 0, Nothing),
            (0, 1, "rdma_vers", 1, Nothing),
            (0, 1, "rdma_vers", 3, Nothing),
            (0, 1, "rdma_vers", u32::MAX, Nothing),
            (0, 3, "rdma_htype", 0, Error(ERR_INVAL_HTYPE)),
            (0, 3, "rdma_htype", 3, Error(ERR_INVAL_HTYPE)),
            (0, 3, "rdma_htype", 14, Error(ERR_INVAL_HTYPE)),
            (0, 3, "rdma_htype", 0xffff_ff00, Error(ERR_INVAL_HTYPE)),
            (0, 3, "rdma_htype", u32::MAX, Error(ERR_INVAL_HTYPE)),
            (0, 3, "rdma_htype", GRANT, Error(ERR_BAD_XDR)),
            (0, 3, "rdma_htype", REPLY_EXTERNAL, Fails),
            (0, 5, "rdma_rpc_first_word", XID, Fails),
            (0, 6, "msg_type", 0, Fails),
            (0, 6, "msg_type", 2, Fails),
        ],
    );
    cases.extend(varied(Ask::Null, Form::Plain, REPLIES, 0, &[], |_, _| {
        Fails
    }));
    cases.extend([
        failing("a reply of 16 bytes", REPLIES, |call| {
            wg::message(call.header.xid, REPLY_INLINE, &[], &[])
        }),
        failing("a reply of 20 bytes", REPLIES, |call| {
            wg::reply(call.header.xid, &[])
        }),
        failing("a reply of 23 bytes", REPLIES, |call| {
            wg::reply(call.header.xid, &[0; 3])
        }),
        failing("a reply with a word of payload", REPLIES, |call| {
            wg::reply(call.header.xid, &call.header.xid.to_be_bytes())
        }),
        failing("the call itself as a reply", REPLIES, |call| {
            wg::reply(call.header.xid, &call.rpc)
        }),
        failing(
            "a reply with a write chunk that was not offered",
            REPLIES,
            |call| {
                let fields = [1, 1, 0x51, 0, 0, 0, 0];
                let payload = rpc::accepted(call.header.xid, 5, &[]);
                wg::message(call.header.xid, REPLY_INLINE, &fields, &payload)
            },
        ),
        failing(
            "a reply with a write chunk of 4294967295 segments",
            REPLIES,
            |call| wg::message(call.header.xid, REPLY_INLINE, &[1, u32::MAX], &[0; 64]),
        ),
        failing("a reply with 17 write chunks", REPLIES, |call| {
            let fields: Vec<u32> = [1, 0].repeat(17).into_iter().chain([0]).collect();
            let payload = rpc::accepted(call.header.xid, 5, &[]);
            wg::message(call.header.xid, REPLY_INLINE, &fields, &payload)
        }),
        failing(
            "a reply with a reply chunk that was not offered",
            EXTERNAL,
            |call| {
                let fields = [0, 1, 1, 0x51, 64, 0, 0];
                wg::message(call.header.xid, REPLY_EXTERNAL, &fields, &[])
            },
        ),
        failing(
            "RDMA2_REPLY_EXTERNAL without a reply chunk",
            EXTERNAL,
            |call| wg::message(call.header.xid, REPLY_EXTERNAL, &[0, 0], &[]),
        ),
        failing(
            "RDMA2_REPLY_EXTERNAL with an empty reply chunk",
            EXTERNAL,
            |call| wg::message(call.header.xid, REPLY_EXTERNAL, &[0, 1, 0], &[]),
        ),
        failing(
            "RDMA2_REPLY_EXTERNAL whose rdma_writes is 4294967295",
            EXTERNAL,
            |call| wg::message(call.header.xid, REPLY_EXTERNAL, &[u32::MAX, 0], &[]),
        ),
        failing("RDMA2_REPLY_EXTERNAL of nothing", EXTERNAL, |call| {
            wg::message(call.header.xid, REPLY_EXTERNAL, &[], &[])
        }),
        silent("a reply to a call never made", REPLIES, {
            wg::reply(XID, &rpc::accepted(XID, 0, &[]))
        }),
        silent("RDMA2_REPLY_EXTERNAL to a call never made", EXTERNAL, {
            wg::message(XID, REPLY_EXTERNAL, &[0, 1, 1, 0x51, 64, 0, 0], &[])
        }),
        silent("a reply to a call never made that breaks off", REPLIES, {
            wg::message(XID, REPLY_INLINE, &[1], &[])
        }),
        with(
            Ask::Null,
            "the reply twice",
            REPLIES,
            vec![Hear, Answer(|a| a.repeat = 2)],
        ),
    ]);
    for len in [0, 1, 4, 12, PREFIX - 1] {
        let whole = wg::reply(XID, &rpc::accepted(XID, 0, &[]));
        cases.push(silent(
            format!("{len} bytes of a reply"),
            ERRORS,
            whole[..len].to_vec(),
        ));
    }
    cases
}

/// Returns the cases of RDMA2_REPLY_EXTERNAL and of returned write chunks.
fn chunks() -> Vec<Case> {
    // Too long for parts, so that the client provides a reply chunk.
    let ask = Ask::Room(1 << 20);
    let list = |name: &'static str, lie: fn(&mut crate::server::Answer)| {
        let script = vec![Hear, Mislead(lie)];
        with(ask, name, EXTERNAL, script)
            .ending(Outcome::Protocol)
            .plain()
    };
    let read = |name: &'static str, lie: fn(&mut crate::server::Answer)| {
        let script = vec![Hear, Mislead(lie)];
        let case = with(
            Ask::LongRead(SEGMENTS),
            name,
            "version-two-07, 4.5.2",
            script,
        );
        case.ending(Outcome::Protocol).plain().costing(FLOODED)
    };
    // The transport takes these; the RPC message says that the call was not executed.
    let taken = |name, lie| read(name, lie).ending(Outcome::Refused);
    let mut cases = vec![
        list("a reply chunk with another handle", |answer| {
            answer
                .header
                .reply
                .iter_mut()
                .flatten()
                .for_each(|s| s.handle += 1);
        }),
        list("a reply chunk at another offset", |answer| {
            answer
                .header
                .reply
                .iter_mut()
                .flatten()
                .for_each(|s| s.offset += 4);
        }),
        list(
            "a reply chunk with more bytes than were offered",
            |answer| {
                answer
                    .header
                    .reply
                    .iter_mut()
                    .flatten()
                    .for_each(|s| s.length = 1 << 20);
            },
        ),
        list("a reply chunk of 4294967295 bytes", |answer| {
            answer
                .header
                .reply
                .iter_mut()
                .flatten()
                .for_each(|s| s.length = u32::MAX);
        }),
        list("a reply chunk with a segment more", |answer| {
            let reply = answer.header.reply.get_or_insert_default();
            reply.push(crate::wire::v1::segment(0x51, 4, 0));
        }),
        list("a reply chunk of nothing", |answer| {
            answer
                .header
                .reply
                .iter_mut()
                .flatten()
                .for_each(|s| s.length = 0);
        }),
        list("a reply chunk and a payload", |answer| {
            answer
                .header
                .writes
                .push(vec![crate::wire::v1::segment(0x51, 4, 0)]);
        }),
        list(
            "a reply chunk with less of a message than there is",
            |answer| {
                answer
                    .header
                    .reply
                    .iter_mut()
                    .flatten()
                    .for_each(|s| s.length = 4);
            },
        ),
    ];
    cases.push(
        with(
            ask,
            "one word behind RDMA2_REPLY_EXTERNAL",
            "version-two-07, 6.1",
            vec![Hear, Parts(Form::Plain, |_, parts| parts[0].extend([0; 4]))],
        )
        .ending(Outcome::Protocol)
        .plain(),
    );
    cases.extend([
        with(
            ask,
            "control: a reply chunk",
            EXTERNAL,
            vec![Hear, Answer(|_| {})],
        )
        .plain(),
        with(
            ask,
            "control: the reply without the reply chunk",
            "version-two-07, 6.6.4",
            vec![Hear, AnswerIn(Form::Continued)],
        )
        .plain(),
        with(
            Ask::LongRead(SEGMENTS),
            "control: a write chunk",
            "version-two-07, 4.5.2",
            vec![],
        )
        .plain()
        .costing(FLOODED),
        read("a write chunk with another handle", |answer| {
            answer.header.writes[0][0].handle += 1;
        }),
        read("a write chunk at another offset", |answer| {
            answer.header.writes[0][0].offset += 4;
        }),
        read(
            "a write chunk with more bytes than were offered",
            |answer| {
                answer.header.writes[0][0].length += 1;
            },
        ),
        read("a write chunk of 4294967295 bytes", |answer| {
            answer.header.writes[0][0].length = u32::MAX;
        }),
        taken("a write chunk whose last segment is unused", |answer| {
            answer.header.writes[0][1].length = 0
        }),
        read("a write chunk with a segment more", |answer| {
            let more = answer.header.writes[0][0];
            answer.header.writes[0].push(more);
        }),
        read("a write chunk with a segment less", |answer| {
            answer.header.writes[0].pop();
        }),
        read("a write chunk more", |answer| {
            let more = answer.header.writes[0].clone();
            answer.header.writes.push(more);
        }),
        taken("a write chunk with less than the results say", |answer| {
            answer.header.writes[0]
                .iter_mut()
                .for_each(|segment| segment.length = 0);
        }),
        taken(
            "no write chunk, where the results say that there is one",
            |answer| {
                answer.header.writes.clear();
            },
        ),
    ]);
    cases
}

/// Returns the cases of RDMA2_REPLY_MIDDLE.
fn continued() -> Vec<Case> {
    let mut cases = vec![
        with(Ask::Null, "control: a reply in parts", CONTINUED, {
            vec![Hear, AnswerIn(Form::Continued)]
        }),
        with(
            Ask::LongRead(20_000),
            "control: a long reply in parts",
            CONTINUED,
            vec![Hear, AnswerIn(Form::Continued)],
        ),
        with(
            Ask::LongRead(LONG),
            "control: a reply in more parts than 64",
            CONTINUED,
            vec![Hear, AnswerIn(Form::Continued)],
        ),
    ];
    // Three parts of 8 bytes each.
    let (ask, form) = (Ask::Null, Form::Continued);
    let limits: [Limits<'_>; 3] = [
        &[("rdma_remaining", &[5 << 20])],
        &[("rdma_remaining", &[16])],
        &[],
    ];
    for (part, limits) in limits.into_iter().enumerate() {
        cases.extend(varied(ask, form, CONTINUED, part, limits, |_, _| Fails));
    }
    cases.extend(rows(
        ask,
        form,
        CONTINUED,
        &[
            (0, 5, "rdma_rpc_first_word", XID, Fails),
            (0, 6, "msg_type", 0, Fails),
            (1, 1, "rdma_vers", 3, Fails),
        ],
    ));
    let null = |name, change| fails(Ask::Null, Form::Continued, name, CONTINUED, change);
    cases.extend([
        null(
            "a last part that is shorter than what remains",
            |_, parts| {
                parts[2].truncate(24);
            },
        ),
        null(
            "a last part that is longer than what remains",
            |_, parts| {
                parts[2].extend([0; 4]);
            },
        ),
        null("a part twice", |_, parts| {
            let again = parts[1].clone();
            parts.insert(1, again);
        }),
        null("the second part missing", |_, parts| drop(parts.remove(1))),
        null("the first part missing", |_, parts| drop(parts.remove(0))),
        null("a part without a payload", |_, parts| parts[1].truncate(20)),
        null("a part of 16 bytes", |_, parts| parts[1].truncate(16)),
        null(
            "RDMA2_REPLY_EXTERNAL in the place of the last part",
            |call, parts| {
                let fields = [0, 1, 1, 0x51, 64, 0, 0];
                parts[2] = wg::message(call.header.xid, REPLY_EXTERNAL, &fields, &[]);
            },
        ),
    ]);
    let between = |name: &'static str, change: fn(&Call, &mut Vec<Vec<u8>>), hear: Vec<Step>| {
        // The reply is complete: only its status says that it is a lie.
        let mut script = vec![Hear, Parts(Form::Continued, change)];
        script.extend(hear);
        with(Ask::Null, name, CONTINUED, script).ending(Outcome::Refused)
    };
    cases.extend([
        between(
            "RDMA2_GRANT between the parts of a reply",
            |_, parts| {
                parts.insert(1, wg::grant(CREDIT));
            },
            vec![],
        ),
        between(
            "an error between the parts of a reply",
            |_, parts| {
                parts.insert(1, wg::error(XID, &[2]));
            },
            vec![],
        ),
        between(
            "a reply to no call between the parts of a reply",
            |_, parts| {
                parts.insert(1, wg::reply(XID, &rpc::accepted(XID, 0, &[])));
            },
            vec![],
        ),
        between(
            "a part of no reply between the parts of a reply",
            |_, parts| {
                parts.insert(1, wg::message(XID, REPLY_MIDDLE, &[4], &[0; 4]));
            },
            vec![],
        ),
        between(
            "a call between the parts of a reply",
            |_, parts| {
                parts.insert(1, wg::call(XID, &rpc::null(XID).bytes()));
            },
            vec![HearWords(wg::answer(XID, &[ERR_INVAL_HTYPE]))],
        ),
        between(
            "a part of a call between the parts of a reply",
            |_, parts| {
                parts.insert(1, wg::message(XID, CALL_MIDDLE, &[4], &[0; 4]));
            },
            vec![HearWords(wg::answer(XID, &[ERR_INVAL_HTYPE]))],
        ),
        between(
            "properties between the parts of a reply",
            |_, parts| {
                parts.insert(1, wg::message(XID, CONNPROP_FINAL, &[0], &[]));
            },
            vec![HearWords(wg::answer(XID, &[ERR_INVAL_CONT]))],
        ),
        // The call fails, as its reply is interrupted; the other message goes on to its end.
        with(
            Ask::Null,
            "rdma_xid of the first part is that of no call",
            CONTINUED,
            vec![
                Hear,
                Part(Form::Continued, vec![(0, 0, XID)]),
                Say(wg::reply(XID, &[0; 16])),
            ],
        )
        .ending(Outcome::Protocol),
        with(
            Ask::Null,
            "parts of a reply to a call never made",
            CONTINUED,
            vec![
                Hear,
                Say(wg::message(XID, REPLY_MIDDLE, &[16], &[0; 8])),
                Say(wg::message(XID, REPLY_MIDDLE, &[8], &[0; 8])),
                Say(wg::reply(XID, &[0; 8])),
                HearNothing,
            ],
        ),
        with(
            Ask::Null,
            "first parts of replies longer than any",
            CONTINUED,
            (0..20)
                .flat_map(|n| {
                    let first = wg::message(XID + n, REPLY_MIDDLE, &[u32::MAX], &[0; 8]);
                    [Say(first), HearNothing]
                })
                .fold(vec![Hear], |mut all, step| {
                    all.push(step);
                    all
                }),
        ),
    ]);
    cases
}

/// Returns the cases of RDMA2_ERROR about an outstanding call, and about none.
fn errors() -> Vec<Case> {
    use Outcome::{Chunk, Protocol};
    let about = |name: &str, words: &[u32], outcome| {
        let script = vec![Hear, Refuse(words.to_vec())];
        with(Ask::Null, name, ERRORS, script).ending(outcome)
    };
    let left_alone = |name: String, words: &[u32]| {
        let script = vec![Hear, Refuse(words.to_vec()), HearNothing];
        with(Ask::Null, name, ERRORS, script)
    };
    let errors: [(&str, &[u32], Outcome); 12] = [
        ("RDMA2_ERR_VERS", &[1, 1, 1], Protocol),
        ("RDMA2_ERR_BAD_XDR", &[2], Chunk),
        ("RDMA2_ERR_BAD_PROPVAL", &[3], Protocol),
        ("RDMA2_ERR_INVAL_HTYPE", &[4], Protocol),
        ("RDMA2_ERR_INVAL_CONT", &[5], Protocol),
        ("RDMA2_ERR_READ_CHUNKS", &[6, 0], Chunk),
        ("RDMA2_ERR_WRITE_CHUNKS", &[7, u32::MAX], Chunk),
        ("RDMA2_ERR_SEGMENTS", &[8, 0], Chunk),
        ("RDMA2_ERR_WRITE_RESOURCE", &[9, 1, u32::MAX], Chunk),
        ("RDMA2_ERR_REPLY_RESOURCE", &[10, u32::MAX], Chunk),
        ("RDMA2_ERR_VERS_MISMATCH", &[11], Protocol),
        ("RDMA2_ERR_SYSTEM", &[100], Protocol),
    ];
    let mut cases = Vec::new();
    for (name, right, outcome) in errors {
        cases.push(about(name, right, outcome));
        // The code is the next word behind the prefix, and the fields of its arm follow.
        let words = words_wg(&wg::error(XID, right)).split_off(PREFIX_WORDS);
        for (at, word) in words.iter().enumerate().skip(1) {
            let missing = format!("{name} without {}", word.place);
            cases.push(left_alone(missing, &right[..at]));
            // What the other end can take, or needs, may be any number.
            for value in word.others() {
                let mut changed = right.to_vec();
                changed[at] = value;
                let name = format!("{name}: {} is {value}", word.place);
                cases.push(about(&name, &changed, outcome));
            }
        }
    }
    let more = "RDMA2_ERR_SYSTEM with words behind it";
    cases.push(about(more, &[100, 1, 2, 3], Protocol));
    for code in [0, 12, u32::MAX] {
        cases.push(left_alone(format!("rdma_err is {code}"), &[code]));
    }
    cases.push(left_alone("rdma_err missing".to_owned(), &[]));
    for code in (0..=12).chain([99, 100, 101, u32::MAX]) {
        let name = format!("rdma_err is {code}, about no call");
        cases.push(silent(name, ERRORS, wg::error(XID, &[code, 1, 2])));
        let name = format!("rdma_err is {code}, about XID zero");
        cases.push(silent(name, ERRORS, wg::error(0, &[code, 1, 2])));
    }
    for (ask, name) in [(Ask::Write, "WRITE"), (Ask::List, "READDIR")] {
        let script = vec![Hear, Refuse(vec![9, 1, 1 << 30])];
        let name = format!("RDMA2_ERR_WRITE_RESOURCE to {name}");
        cases.push(with(ask, name, "version-two-07, 7.3.4", script).ending(Chunk));
    }
    cases.push(with(
        Ask::Null,
        "errors about no call, without end",
        ERRORS,
        (0..60).fold(vec![Hear], |mut all, n| {
            all.extend([Say(wg::error(n << 16, &[n % 12, 0, 0])), HearNothing]);
            all
        }),
    ));
    cases
}

/// Returns the cases of messages that are no replies.
fn others() -> Vec<Case> {
    const TYPES: &str = "version-two-07, 6.1";
    let mut cases = Vec::new();
    for htype in [
        0,
        1,
        2,
        3,
        14,
        99,
        0x7fff_ffff,
        0xffff_feff,
        0xffff_ff00,
        0xffff_ff05,
        u32::MAX,
    ] {
        let name = format!("rdma_htype is {htype}");
        cases.push(answered(
            name,
            TYPES,
            wg::message(XID, htype, &[], &[]),
            ERR_INVAL_HTYPE,
        ));
    }
    // The client has told that it takes no calls, which is the default (errata-07, 25).
    let null = rpc::null(XID).bytes();
    let call = |name, htype, fields: &[u32], payload: &[u8]| {
        let message = wg::message(XID, htype, fields, payload);
        answered(name, "version-two-07, 5.2.5", message, ERR_INVAL_HTYPE)
    };
    let external = [0, 1, 0, 0x51, 40, 0, 0, 0, 0, 0, 0];
    cases.extend([
        call(
            "RDMA2_CALL_INLINE to a client that takes none",
            wg::CALL_INLINE,
            &[0; 4],
            &null,
        ),
        call(
            "RDMA2_CALL_MIDDLE to a client that takes none",
            CALL_MIDDLE,
            &[24],
            &null[..16],
        ),
        call(
            "RDMA2_CALL_EXTERNAL to a client that takes none",
            8,
            &external,
            &[],
        ),
        call(
            "RDMA2_CALL_PLACED to a client",
            wg::CALL_PLACED,
            &[0, 0, 0, 0, 0, 40],
            &null,
        ),
        call(
            "RDMA2_CALL_PLACED of nothing to a client",
            wg::CALL_PLACED,
            &[],
            &[],
        ),
        call(
            "RDMA2_CALL_PLACED_MIDDLE to a client",
            wg::CALL_PLACED_MIDDLE,
            &[1, 0, 40],
            &null,
        ),
        silent("version 1 in mid-stream", "version-two-07, 7.1.2", {
            crate::wire::v1::header(XID).with(&rpc::accepted(XID, 0, &[]))
        }),
        silent("version 3 in mid-stream", "version-two-07, 7.1.2", {
            crate::wire::v2::bytes(&[XID, 3, CREDIT, REPLY_INLINE, 0, XID, 1])
        }),
        silent(
            "an error of version 1 in mid-stream",
            "version-two-07, 7.1.2",
            crate::wire::v1::error(XID, 1, &[1, 1, 1]),
        ),
        silent(
            "an error of version 3 in mid-stream",
            "version-two-07, 7.1.2",
            crate::wire::v1::error(XID, 3, &[1, 1, 1]),
        ),
        silent("RDMA2_GRANT", "version-two-07, 6.3.2", wg::grant(CREDIT)),
        silent("RDMA2_GRANT with an XID", "version-two-07, 6.3.2", {
            wg::message(XID, GRANT, &[], &[])
        }),
        answered(
            "RDMA2_GRANT with a word behind it",
            "version-two-07, 6.3.2",
            wg::message(XID, GRANT, &[0], &[]),
            ERR_BAD_XDR,
        ),
        case(
            "a flood of header types nobody has, by a server that does not read",
            TYPES,
            Ask::Null,
            vec![Hear, Flood(200_000, |_| wg::message(XID, 99, &[], &[]))],
            Left,
        )
        .saying(wg::plain_properties())
        .costing(FLOODED),
        case(
            "a flood of replies to calls never made, by a server that does not read",
            REPLIES,
            Ask::Null,
            vec![
                Hear,
                Flood(200_000, |_| wg::reply(XID, &rpc::accepted(XID, 0, &[]))),
            ],
            Left,
        )
        .saying(wg::plain_properties())
        .costing(FLOODED),
    ]);
    cases
}

/// Returns the cases of handles that the server invalidates.
fn handles() -> Vec<Case> {
    let read = |name: &'static str, ask, lie: fn(&mut crate::server::Answer)| {
        let script = vec![Hear, Answer(lie)];
        case(name, HANDLES, ask, script, Left)
            .saying(wg::plain_properties())
            .costing(RECEIVES)
    };
    vec![
        read("a handle that was never offered", Ask::Null, |a| {
            a.invalidate = Some(0xdead_0000)
        }),
        read("handle zero", Ask::Null, |a| a.invalidate = Some(0)),
        with(
            Ask::Read,
            "control: a handle of the call",
            HANDLES,
            vec![
                Hear,
                Answer(|a| {
                    let chunks = a.header.writes.iter().chain(&a.header.reply).flatten();
                    a.invalidate = chunks.map(|segment| segment.handle).next();
                }),
            ],
        ),
        with(
            Ask::List,
            "control: the handle of a reply chunk",
            HANDLES,
            vec![
                Hear,
                Answer(|a| {
                    a.invalidate = a
                        .header
                        .reply
                        .iter()
                        .flatten()
                        .map(|segment| segment.handle)
                        .next();
                }),
            ],
        ),
        read("a handle of the call twice", Ask::List, |a| {
            a.invalidate = a
                .header
                .reply
                .iter()
                .flatten()
                .map(|segment| segment.handle)
                .next();
            a.repeat = 2;
        }),
    ]
}
