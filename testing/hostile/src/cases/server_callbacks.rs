//! Calls from a hostile server (RFC 8167) to clients that accept or do not accept calls, and
//! invalid replies.

use crate::End::{Left, Lives, Reset};
use crate::server::{Ask, Call, Case, Step::*, case};
use crate::wire::rpc;
use crate::wire::v1::{self, ERR_CHUNK, ERR_VERS, Header, NOMSG, segment};

/// The XIDs of the first callback and of the next.
const XID: u32 = 0x0bac_0001;

/// Returns a call to the client's own program (`server::victim`), which has only NULL.
fn callback(xid: u32) -> rpc::Call {
    rpc::Call {
        procedure: (super::CALLED, 1, 0),
        ..rpc::null(xid)
    }
}

/// Returns a callback with a changed header.
fn with(xid: u32, change: impl Fn(&mut Header)) -> Vec<u8> {
    let mut header = v1::header(xid);
    change(&mut header);
    header.with(&callback(xid).bytes())
}

fn plain(_: &Call) -> Vec<u8> {
    with(XID, |_| {})
}

/// Returns a segment that the hostile server offers. There is no real memory behind its handle.
fn memory() -> v1::Segment {
    segment(0x5100_0000, 4096, 0x1_0000_0000)
}

/// Returns a case with a callback to which the client, which accepts calls, answers in this way
/// while it waits for the reply to its own NULL.
fn said(name: &'static str, section: &'static str, say: fn(&Call) -> Vec<u8>, hear: Said) -> Case {
    let script = vec![Hear, Send(say), hear.step()];
    case(name, section, Ask::Null, script, Lives).called()
}

/// The client's answer.
enum Said {
    Reply,
    ErrChunk,
    ErrVers,
    Nothing,
}

impl Said {
    fn step(&self) -> crate::server::Step {
        match self {
            Self::Reply => HearReply(XID),
            Self::ErrChunk => HearError(XID, vec![ERR_CHUNK]),
            Self::ErrVers => HearError(XID, vec![ERR_VERS, 1, 1]),
            Self::Nothing => HearNothing,
        }
    }
}

/// Returns a case with a client that accepts no calls, and does not answer.
fn none(name: &'static str, section: &'static str, say: fn(&Call) -> Vec<u8>) -> Case {
    let script = vec![Hear, Send(say), HearNothing];
    case(name, section, Ask::Null, script, Lives)
}

pub(super) fn cases() -> Vec<Case> {
    let mut cases = vec![
        none("none taken: a callback", "RFC 8167, 6", plain),
        none(
            "none taken: the XID of the call",
            "RFC 8167, 2.4.1",
            |call| with(call.header.xid, |_| {}),
        ),
        none("none taken: a read chunk", "RFC 8167, 6", |_| {
            with(XID, |header| header.reads = vec![(40, memory())])
        }),
        none("none taken: a long call", "RFC 8167, 6", |_| {
            let mut header = v1::header(XID);
            (header.procedure, header.reads) = (NOMSG, vec![(0, memory())]);
            header.with(&[])
        }),
        said("a callback", "RFC 8167, 5.2", plain, Said::Reply),
        said(
            "another program",
            "RFC 5531, 9",
            |_| {
                let call = rpc::null(XID).bytes();
                v1::header(XID).with(&call)
            },
            Said::Reply,
        ),
        said(
            "a read chunk",
            "RFC 8167, 5.3",
            |_| with(XID, |header| header.reads = vec![(40, memory())]),
            Said::ErrChunk,
        ),
        said(
            "a write chunk",
            "RFC 8167, 5.3",
            |_| with(XID, |header| header.writes = vec![vec![memory()]]),
            Said::ErrChunk,
        ),
        said(
            "an empty write chunk",
            "RFC 8167, 5.3",
            |_| with(XID, |header| header.writes = vec![vec![]]),
            Said::ErrChunk,
        ),
        said(
            "a reply chunk",
            "RFC 8167, 5.3",
            |_| with(XID, |header| header.reply = Some(vec![memory()])),
            Said::ErrChunk,
        ),
        said(
            "a long call",
            "RFC 8167, 5.3",
            |_| {
                let mut header = v1::header(XID);
                (header.procedure, header.reads) = (NOMSG, vec![(0, memory())]);
                header.with(&[])
            },
            Said::ErrChunk,
        ),
        said(
            "a long call in a payload",
            "RFC 8166, 4.5.2",
            |_| {
                with(XID, |header| {
                    (header.procedure, header.reads) = (NOMSG, vec![(0, memory())]);
                })
            },
            Said::ErrChunk,
        ),
        said(
            "another XID inside",
            "RFC 8167, 5.1",
            |_| v1::header(XID).with(&callback(XID + 1).bytes()),
            Said::ErrChunk,
        ),
        said(
            "neither call nor reply",
            "RFC 8167, 4.1",
            |_| {
                let call = rpc::Call {
                    kind: 2,
                    ..callback(XID)
                };
                v1::header(XID).with(&call.bytes())
            },
            Said::Nothing,
        ),
        said(
            "neither, to the call",
            "RFC 8167, 4.1",
            |call| {
                let xid = call.header.xid;
                let neither = rpc::Call {
                    kind: 7,
                    ..callback(xid)
                };
                let mut header = v1::header(xid);
                header.credits = 4096;
                header.with(&neither.bytes())
            },
            Said::Nothing,
        ),
        said(
            "a reply to a callback that was none",
            "RFC 8166, 4.5",
            |_| v1::header(XID).with(&rpc::accepted(XID, 0, &[])),
            Said::Nothing,
        ),
        said(
            "cut off after its XID",
            "RFC 8167, 4.1",
            |_| v1::header(XID).with(&XID.to_be_bytes()),
            Said::Nothing,
        ),
        said(
            "of version 2",
            "RFC 8166, 4.5.1",
            |_| with(XID, |header| header.version = 2),
            Said::ErrVers,
        ),
    ];
    cases.extend(several());
    cases
}

/// Returns the cases of several callbacks.
fn several() -> Vec<Case> {
    let twice = vec![
        Hear,
        Send(plain),
        Send(plain),
        HearReply(XID),
        HearReply(XID),
    ];
    let shared = vec![
        Hear,
        Send(|call| with(call.header.xid, |_| {})),
        HearReplyToCall,
        Send(|call| with(call.header.xid, |_| {})),
        HearReplyToCall,
    ];
    vec![
        case(
            "a callback again, with its XID",
            "RFC 8167, 2.4.1",
            Ask::Null,
            twice,
            Lives,
        )
        .called(),
        case(
            "the XID of the call",
            "RFC 8167, 2.4.1",
            Ask::Null,
            shared,
            Lives,
        )
        .called(),
        case(
            "more at once than granted",
            "RFC 8166, 3.3.1",
            Ask::Null,
            vec![Hear, Burst(12, plain)],
            Reset,
        )
        .called(),
        // The receives or the credits are used up, or too many answers are not read; timing decides
        // which of them ends the connection. Errors take no credit, so only the last two apply if
        // there are enough receives. The cost is bounded in any case.
        case(
            "a flood that is refused, by a server that does not read",
            "RFC 8167, 5.3",
            Ask::Null,
            vec![
                Hear,
                Flood(200_000, |_| {
                    with(XID, |header| header.reply = Some(vec![memory()]))
                }),
            ],
            Left,
        )
        .called()
        .costing(FLOODED),
        case(
            "a flood, by a server that does not read",
            "RFC 8166, 3.3.1",
            Ask::Null,
            vec![Hear, Flood(200_000, plain)],
            Left,
        )
        .called()
        .costing(FLOODED),
        case(
            "NULL beside callbacks",
            "RFC 8167, 4.1",
            Ask::Null,
            vec![],
            Lives,
        )
        .called(),
        case(
            "READ beside callbacks",
            "RFC 8167, 5.3",
            Ask::Read,
            vec![],
            Lives,
        )
        .called(),
    ]
}

/// The maximum cost of a flood: a full send queue, and all socket buffers between the two, bytes.
const FLOODED: usize = 4 << 20;
