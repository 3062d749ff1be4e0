//! Calls from a hostile server in version 2 to a client that accepts calls without chunks (RFC
//! 8167; version-two-01, section 4.2.2; xcharext-02, section 3.3).

use super::XID;
use crate::End::{Left, Lives};
use crate::cases::CALLED;
use crate::server::{Ask, Case, Step::*, case};
use crate::wire::rpc;
use crate::wire::v1::{self, Header, NOMSG, Segment, segment};
use crate::wire::v2::{self, CALL, REPLY, XMTCONT, XMTREQ, XMTRESP, bytes};

/// The maximum cost of a flood: a full send queue, and all socket buffers between the two, bytes.
const FLOODED: usize = 8 << 20;
const RECEIVES: usize = 4 << 20;

fn callback(xid: u32) -> rpc::Call {
    rpc::Call {
        procedure: (CALLED, 1, 0),
        ..rpc::null(xid)
    }
}

fn plain() -> Vec<u8> {
    v2::plain(XID, CALL, &callback(XID).bytes())
}

fn chunked(change: impl Fn(&mut Header)) -> Vec<u8> {
    let mut header = v1::header(XID);
    change(&mut header);
    v2::with(&header, CALL, &callback(XID).bytes())
}

fn memory() -> Segment {
    segment(0x5100_0000, 4096, 0x1_0000_0000)
}

/// Returns a case with a message to which the client answers in this way, while it waits for the
/// reply to its own NULL.
fn said(
    name: &'static str,
    section: &'static str,
    message: Vec<u8>,
    answer: Option<Vec<u32>>,
) -> Case {
    let answer = answer.map_or(HearNothing, HearWords);
    let script = vec![Hear, Say(message), answer];
    case(name, section, Ask::Null, script, Lives)
        .called()
        .costing(RECEIVES)
}

pub(in crate::cases) fn cases() -> Vec<Case> {
    let bad = || Some(v2::bad_header(XID));
    // A client takes calls by the base protocol only.
    let invalid = || Some(v2::invalid_option(XID));
    let good = || Some(v2::success(XID, &[]));
    let long = |payload: &[u8]| {
        let header = Header {
            procedure: NOMSG,
            reads: vec![(0, memory())],
            ..v1::header(XID)
        };
        v2::with(&header, CALL, payload)
    };
    let first = |count: u32| {
        let call = callback(XID).bytes();
        v2::operation(XID, CALL, XMTREQ, &[0, 0, count, 0, 8], &call[..8])
    };
    let rest = {
        let call = callback(XID).bytes();
        v2::operation(XID, CALL, XMTCONT, &[1, XMTREQ, 32], &call[8..])
    };
    let mut cases = vec![
        said("control: a callback", "RFC 8167, 5.2", plain(), good()),
        said(
            "another program",
            "RFC 5531, 9",
            v2::plain(XID, CALL, &rpc::null(XID).bytes()),
            Some([&[XID, 2, 0, 0, REPLY, 0, 0, 0][..], &[XID, 1, 0, 0, 0, 1]].concat()),
        ),
        said(
            "a read chunk",
            "xcharext-02, 3.3",
            chunked(|header| header.reads = vec![(40, memory())]),
            bad(),
        ),
        said(
            "a write chunk",
            "xcharext-02, 3.3",
            chunked(|header| header.writes = vec![vec![memory()]]),
            bad(),
        ),
        said(
            "an empty write chunk",
            "xcharext-02, 3.3",
            chunked(|header| header.writes = vec![vec![]]),
            bad(),
        ),
        said(
            "a reply chunk",
            "xcharext-02, 3.3",
            chunked(|header| header.reply = Some(vec![memory()])),
            bad(),
        ),
        said("a long call", "xcharext-02, 3.3", long(&[]), bad()),
        said(
            "a long call in a payload",
            "version-two-01, 4.2",
            long(&callback(XID).bytes()),
            bad(),
        ),
        said(
            "another XID inside",
            "version-two-01, 4.2",
            v2::plain(XID, CALL, &callback(XID + 1).bytes()),
            bad(),
        ),
        said(
            "a reply that says it is a call",
            "version-two-01, 4.2.2",
            v2::plain(XID, CALL, &rpc::accepted(XID, 0, &[])),
            bad(),
        ),
        said(
            "a call that says it is a reply",
            "version-two-01, 4.2.2",
            v2::plain(XID, REPLY, &callback(XID).bytes()),
            None,
        ),
        said(
            "neither call nor reply",
            "version-two-01, 4.2.2",
            {
                let call = rpc::Call {
                    kind: 2,
                    ..callback(XID)
                };
                v2::plain(XID, CALL, &call.bytes())
            },
            bad(),
        ),
        said(
            "a reply to a callback that was none",
            "RFC 8166, 4.5",
            v2::plain(XID, REPLY, &rpc::accepted(XID, 0, &[])),
            None,
        ),
        said(
            "cut off behind its XID",
            "version-two-01, 4.2",
            v2::plain(XID, CALL, &XID.to_be_bytes()),
            bad(),
        ),
        said(
            "cut off in its header",
            "version-two-01, 4.2",
            bytes(&[XID, 2, 8, 0, CALL, 0, 0]),
            bad(),
        ),
        said(
            "of version 1",
            "version-two-01, 5.2",
            v1::header(XID).with(&callback(XID).bytes()),
            None,
        ),
        said(
            "by ROPT_XMTREQ",
            "rtrext-00, 9.2",
            {
                let call = callback(XID).bytes();
                v2::operation(XID, CALL, XMTREQ, &[0, 0, 1, 0, 40], &call)
            },
            invalid(),
        ),
        said(
            "by ROPT_XMTREQ, with nothing in it",
            "rtrext-00, 9.2",
            v2::operation(XID, CALL, XMTREQ, &[0, 0, 1, 0, 0], &[]),
            invalid(),
        ),
        said(
            "ROPT_XMTRESP to a callback that was none",
            "rtrext-00, 9.3",
            {
                v2::operation(
                    XID,
                    REPLY,
                    XMTRESP,
                    &[0, 1, 24],
                    &rpc::accepted(XID, 0, &[]),
                )
            },
            None,
        ),
    ];
    cases.push(
        case(
            "in two transmissions",
            "rtrext-00, 9.4",
            Ask::Null,
            vec![
                Hear,
                Say(first(2)),
                HearWords(v2::invalid_option(XID)),
                Say(rest.clone()),
                HearNothing,
            ],
            Lives,
        )
        .called()
        .costing(RECEIVES),
    );
    cases.push(
        case(
            "in more transmissions than are taken",
            "rtrext-00, 5.2",
            Ask::Null,
            vec![
                Hear,
                Say(first(1000)),
                HearWords(v2::invalid_option(XID)),
                Say(rest),
                HearNothing,
            ],
            Lives,
        )
        .called()
        .costing(RECEIVES),
    );
    cases.extend(several());
    cases
}

fn several() -> Vec<Case> {
    let called = |name, ask, script, end| {
        case(name, "RFC 8167, 2.4.1", ask, script, end)
            .called()
            .costing(FLOODED)
    };
    let good = || HearWords(v2::success(XID, &[]));
    vec![
        called(
            "a callback again, with its XID",
            Ask::Null,
            vec![Hear, Say(plain()), Say(plain()), good(), good()],
            Lives,
        ),
        called(
            "the XID of the call",
            Ask::Null,
            vec![
                Hear,
                Send(|call| {
                    let xid = call.header.xid;
                    v2::plain(xid, CALL, &callback(xid).bytes())
                }),
                HearReplyToCall,
            ],
            Lives,
        ),
        called(
            "more at once than granted",
            Ask::Null,
            // The device or the client ends the connection, whichever is faster.
            vec![Hear, Burst(400, |_| plain())],
            Left,
        ),
        called(
            "a flood, by a server that does not read",
            Ask::Null,
            vec![Hear, Flood(200_000, |_| plain())],
            Left,
        ),
        called(
            "a flood that is refused, by a server that does not read",
            Ask::Null,
            vec![
                Hear,
                Flood(200_000, |_| {
                    chunked(|header| header.reply = Some(vec![memory()]))
                }),
            ],
            Left,
        ),
        called("NULL beside callbacks", Ask::Null, vec![], Lives),
        called("READ beside callbacks", Ask::Read, vec![], Lives),
        called("WRITE beside callbacks", Ask::Write, vec![], Lives),
    ]
}
