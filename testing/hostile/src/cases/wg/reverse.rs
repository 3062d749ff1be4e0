//! Calls from a hostile server (version-two-07, section 5.2.5) to a client that takes calls without
//! chunks: the level CONT. A call that needs more is refused (errata-07, 25).

use super::XID;
use crate::End::{Left, Lives};
use crate::cases::CALLED;
use crate::server::{Ask, Case, Step, Step::*, case};
use crate::wire::rpc;
use crate::wire::wg::{
    self, CALL_EXTERNAL, CALL_INLINE, CALL_MIDDLE, ERR_BAD_XDR, ERR_INVAL_CONT, ERR_INVAL_HTYPE,
    ERR_READ_CHUNKS, ERR_SYSTEM, ERR_VERS_MISMATCH, ERR_WRITE_CHUNKS, REPLY_INLINE,
};

const LEVEL: &str = "version-two-07, 5.2.5";
const CALLS: &str = "version-two-07, 6.3.7";
const MIDDLE: &str = "version-two-07, 6.3.6";
/// The cost of a flood, bytes.
const FLOODED: usize = 10 << 20;
const RECEIVES: usize = 4 << 20;

fn callback(xid: u32) -> Vec<u8> {
    let call = rpc::Call {
        procedure: (CALLED, 1, 0),
        ..rpc::null(xid)
    };
    call.bytes()
}

fn plain() -> Vec<u8> {
    wg::call(XID, &callback(XID))
}

fn called(name: impl Into<String>, section: &'static str, script: Vec<Step>) -> Case {
    case(name, section, Ask::Null, script, Lives)
        .called()
        .costing(RECEIVES)
        .saying(wg::plain_properties())
}

/// Returns a case with a message that the client answers with these words while it waits for the
/// reply to its own NULL.
fn said(name: impl Into<String>, section: &'static str, message: Vec<u8>, words: Vec<u32>) -> Case {
    called(name, section, vec![Hear, Say(message), HearWords(words)])
}

fn refused(name: &str, section: &'static str, message: Vec<u8>, error: &[u32]) -> Case {
    said(name, section, message, wg::answer(XID, error))
}

pub(in crate::cases) fn cases() -> Vec<Case> {
    let call = callback(XID);
    let good = || wg::success(XID, &[]);
    let segment = [0x5100_0000, 4096, 1, 0];
    let read = [&[0, 1, 40][..], &segment, &[0, 0, 0]].concat();
    let write = [&[0, 0, 1, 1][..], &segment, &[0, 0]].concat();
    let reply = [&[0, 0, 0, 1, 1][..], &segment].concat();
    let external = [&[0, 1, 0][..], &segment, &[0, 0, 0, 0]].concat();
    let inline = |fields: &[u32]| wg::message(XID, CALL_INLINE, fields, &call);
    let mut cases = vec![
        said("control: a callback", LEVEL, plain(), good()),
        refused("a read chunk", LEVEL, inline(&read), &[ERR_READ_CHUNKS, 0]),
        refused(
            "a write chunk",
            LEVEL,
            inline(&write),
            &[ERR_WRITE_CHUNKS, 0],
        ),
        refused(
            "an empty write chunk",
            LEVEL,
            inline(&[0, 0, 1, 0, 0, 0]),
            &[ERR_WRITE_CHUNKS, 0],
        ),
        said(
            "a reply chunk, which is left alone",
            LEVEL,
            inline(&reply),
            good(),
        ),
        refused(
            "RDMA2_CALL_EXTERNAL",
            LEVEL,
            wg::message(XID, CALL_EXTERNAL, &external, &[]),
            &[ERR_READ_CHUNKS, 0],
        ),
        refused(
            "rdma_inv_handle of no chunk",
            "version-two-07, 6.5",
            inline(&[0x5100_0000, 0, 0, 0]),
            &[ERR_BAD_XDR],
        ),
        refused(
            "rdma_rpc_first_word of another call",
            "version-two-07, 7.2",
            wg::call(XID, &callback(XID + 1)),
            &[ERR_BAD_XDR],
        ),
        refused(
            "a reply that says it is a call",
            "version-two-07, 7.2",
            wg::call(XID, &rpc::accepted(XID, 0, &[])),
            &[ERR_BAD_XDR],
        ),
        refused(
            "cut off behind its XID",
            CALLS,
            wg::call(XID, &XID.to_be_bytes()),
            &[ERR_BAD_XDR],
        ),
        refused(
            "cut off in its header",
            CALLS,
            plain()[..28].to_vec(),
            &[ERR_BAD_XDR],
        ),
        refused("of 16 bytes", CALLS, plain()[..16].to_vec(), &[ERR_BAD_XDR]),
        refused(
            "a read list that goes on with 2",
            CALLS,
            inline(&[0, 2, 0, 0]),
            &[ERR_BAD_XDR],
        ),
        refused(
            "a read list that goes on with 2 behind its first entry",
            CALLS,
            inline(&[&[0, 1, 40][..], &segment, &[2, 0, 0]].concat()),
            &[ERR_BAD_XDR],
        ),
        refused(
            "a write list that goes on with 2",
            CALLS,
            inline(&[0, 0, 2, 0]),
            &[ERR_BAD_XDR],
        ),
        refused(
            "a write list that goes on with 2 behind its first chunk",
            CALLS,
            inline(&[&[0, 0, 1, 1][..], &segment, &[2, 0]].concat()),
            &[ERR_BAD_XDR],
        ),
        refused(
            "a reply chunk twice over",
            CALLS,
            inline(&[0, 0, 0, 2]),
            &[ERR_BAD_XDR],
        ),
        refused(
            "a header type nobody has",
            "version-two-07, 7.1.3",
            wg::message(XID, 99, &[0; 4], &call),
            &[ERR_INVAL_HTYPE],
        ),
        refused(
            "RDMA2_CALL_PLACED",
            "version-two-07, B.2",
            wg::message(XID, wg::CALL_PLACED, &[0, 0, 0, 0, 0, 40], &call),
            &[ERR_INVAL_HTYPE],
        ),
        said(
            "of version 3",
            "version-two-07, 7.1.1",
            crate::wire::v2::bytes(&[XID, 3, wg::CREDIT, CALL_INLINE, 0, 0, 0, 0]),
            [vec![XID, 3, 0, wg::ERROR], wg::unsupported()].concat(),
        ),
        said(
            "of version 1",
            "version-two-07, 7.1.2",
            crate::wire::v1::header(XID).with(&call),
            vec![XID, 1, 0, wg::ERROR, ERR_VERS_MISMATCH],
        ),
        said(
            "another program",
            "RFC 5531, 9",
            wg::call(XID, &rpc::null(XID).bytes()),
            [&[XID, 2, 0, REPLY_INLINE, 0][..], &[XID, 1, 0, 0, 0, 1]].concat(),
        ),
        called("a reply to a callback that was none", CALLS, {
            vec![
                Hear,
                Say(wg::reply(XID, &rpc::accepted(XID, 0, &[]))),
                HearNothing,
            ]
        }),
    ];
    cases.extend(continued());
    cases.extend(several());
    cases
}

/// Returns the cases of callbacks in parts.
fn continued() -> Vec<Case> {
    let call = callback(XID);
    let part = |remaining: u32, part: &[u8]| wg::message(XID, CALL_MIDDLE, &[remaining], part);
    let last = |part: &[u8]| wg::call(XID, part);
    let refusal = |error: u32| HearWords(wg::answer(XID, &[error]));
    let mut cases = vec![called(
        "control: in two parts",
        MIDDLE,
        vec![
            Hear,
            Say(part(24, &call[..16])),
            Say(last(&call[16..])),
            HearWords(wg::success(XID, &[])),
        ],
    )];
    let other = callback(XID + 1);
    cases.push(called(
        "rdma_rpc_first_word of another call in two parts",
        "version-two-07, 7.2",
        vec![
            Hear,
            Say(part(24, &other[..16])),
            Say(last(&call[16..])),
            refusal(ERR_BAD_XDR),
        ],
    ));
    for remaining in [0, 20, 28, 100] {
        let name = format!("rdma_remaining is {remaining} in two parts");
        cases.push(called(
            name,
            MIDDLE,
            vec![
                Hear,
                Say(part(remaining, &call[..16])),
                Say(last(&call[16..])),
                refusal(ERR_INVAL_CONT),
            ],
        ));
    }
    for remaining in [0x7fff_ffff, u32::MAX] {
        let name = format!("rdma_remaining is {remaining} in two parts");
        cases.push(called(
            name,
            MIDDLE,
            vec![
                Hear,
                Say(part(remaining, &call[..16])),
                refusal(ERR_SYSTEM),
                Say(last(&call[16..])),
                HearNothing,
            ],
        ));
    }
    for (name, message) in [
        (
            "a reply between the parts of a callback",
            wg::reply as fn(u32, &[u8]) -> Vec<u8>,
        ),
        (
            "a part of a reply between the parts of a callback",
            |xid, reply| wg::message(xid, wg::REPLY_MIDDLE, &[4], &reply[..reply.len() - 4]),
        ),
        ("an error between the parts of a callback", |xid, _| {
            wg::error(xid, &[2])
        }),
    ] {
        // It answers no call of the client.
        let other = XID + 1;
        cases.push(called(
            name,
            MIDDLE,
            vec![
                Hear,
                Say(part(24, &call[..16])),
                Say(message(other, &rpc::accepted(other, 0, &[]))),
                Say(last(&call[16..])),
                HearWords(wg::success(XID, &[])),
            ],
        ));
    }
    let segment = [0x5100_0000, 4096, 1, 0];
    let read = [&[0, 1, 8][..], &segment, &[0, 0, 0]].concat();
    let write = [&[0, 0, 1, 1][..], &segment, &[0, 0]].concat();
    for (name, chunk, error) in [
        ("a read chunk", read, ERR_READ_CHUNKS),
        ("a write chunk", write, ERR_WRITE_CHUNKS),
    ] {
        // The client can be called afterwards, and its own call is answered.
        cases.push(called(
            format!("{name} with the last part of a callback"),
            LEVEL,
            vec![
                Hear,
                Say(part(24, &call[..16])),
                Say(wg::message(XID, CALL_INLINE, &chunk, &call[16..])),
                HearWords(wg::answer(XID, &[error, 0])),
                Say(plain()),
                HearWords(wg::success(XID, &[])),
            ],
        ));
    }
    cases.push(called(
        "another callback between the parts of one",
        MIDDLE,
        vec![
            Hear,
            Say(part(24, &call[..16])),
            Say(wg::call(XID + 1, &callback(XID + 1))),
            HearWords(wg::answer(XID + 1, &[ERR_INVAL_CONT])),
            Say(last(&call[16..])),
            HearWords(wg::success(XID, &[])),
        ],
    ));
    cases
}

fn several() -> Vec<Case> {
    let good = || HearWords(wg::success(XID, &[]));
    let flood = |name, script| {
        case(name, "version-two-07, 4.2.1", Ask::Null, script, Left)
            .called()
            .costing(FLOODED)
            .saying(wg::plain_properties())
    };
    vec![
        called("a callback again, with its XID", CALLS, {
            vec![Hear, Say(plain()), good(), Say(plain()), good()]
        }),
        called(
            "the XID of the call",
            CALLS,
            vec![
                Hear,
                Send(|call| wg::call(call.header.xid, &callback(call.header.xid))),
                HearReplyToCall,
            ],
        ),
        flood(
            "more at once than granted",
            vec![Hear, Burst(400, |_| plain())],
        ),
        flood("a flood, by a server that does not read", {
            vec![Hear, Flood(200_000, |_| plain())]
        }),
        flood("a flood that is refused, by a server that does not read", {
            vec![Hear, Flood(200_000, |_| wg::call(XID, &[0; 4]))]
        }),
    ]
}
