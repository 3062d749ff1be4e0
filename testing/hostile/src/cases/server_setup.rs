//! Invalid setup frames of a hostile responder (RFC 5044, section 7.1; RFC 6581).

use super::ends::*;
use crate::End::{self, Closed, Left, Lives};
use crate::server::{Ask, Case, Outcome, Step::*, Until, case};
use crate::wire::ddp::Untagged;
use crate::wire::mpa::{
    CRC, ENHANCED, Frame, MARKERS, PEER_TO_PEER, REJECT, REQUEST_KEY, RTR_EMPTY, RTR_WRITE, fpdu,
};
use crate::wire::v1;

/// Returns the steps of an answer by a setup frame with this change.
fn reply(change: fn(&mut Frame)) -> Vec<crate::server::Step> {
    let mut frame = Frame::reply();
    change(&mut frame);
    vec![HearFrame, Frame(frame)]
}

/// Returns a case with a reply frame that cannot be used.
fn frame(name: &'static str, section: &'static str, change: fn(&mut Frame), end: End) -> Case {
    failing(name, section, reply(change), end)
}

/// Returns a case in which no connection is established.
fn failing(
    name: &'static str,
    section: &'static str,
    script: Vec<crate::server::Step>,
    end: End,
) -> Case {
    let case = case(name, section, Ask::Null, script, end).honest(Until::Start);
    case.ending(Outcome::NoConnection)
}

/// Returns a case in which the device tries MPA revision 1 after its peer has gone without an answer.
/// The server is honest then.
fn retried(name: &'static str, script: Vec<crate::server::Step>, end: End) -> Case {
    let case = case(name, "RFC 5044, 7.1", Ask::Null, script, end).honest(Until::Start);
    case.tries_again()
}

/// Returns a case in which the connection works.
fn working(name: &'static str, section: &'static str, script: Vec<crate::server::Step>) -> Case {
    case(name, section, Ask::Null, script, Lives).honest(Until::Start)
}

pub(super) fn cases() -> Vec<Case> {
    let honest = Frame::reply;
    let depths = |inbound, outbound| Frame {
        depths: Some((inbound | PEER_TO_PEER, outbound | RTR_WRITE)),
        ..honest()
    };
    vec![
        frame(
            "a request frame from a responder",
            "RFC 5044, 7.1.1",
            |it| it.key = REQUEST_KEY,
            Closed,
        ),
        failing(
            "another protocol",
            "RFC 5044, 7.1.1",
            vec![HearFrame, Bytes(b"SSH-2.0-nothing\r\n".to_vec())],
            Closed,
        ),
        frame(
            "513 bytes of private data claimed",
            "RFC 5044, 7.1.1",
            |it| {
                it.length = Some(513);
                it.private = vec![7; 508];
            },
            Closed,
        ),
        frame(
            "private data of 65535 bytes claimed",
            "RFC 5044, 7.1.1",
            |it| it.length = Some(0xffff),
            Closed,
        ),
        frame(
            "revision 0",
            "RFC 5044, 7.1.1",
            |it| it.revision = 0,
            Closed,
        ),
        working(
            "control: revision 1",
            "RFC 5044, 7.1",
            reply(|it| {
                it.flags = 0;
                it.revision = 1;
                it.depths = None;
            }),
        ),
        frame("revision 3", "RFC 6581, 6", |it| it.revision = 3, Closed),
        frame(
            "no IRD and ORD",
            "RFC 6581, 10",
            |it| {
                it.flags = 0;
                it.depths = None;
            },
            Closed,
        ),
        frame(
            "half an IRD",
            "RFC 6581, 9",
            |it| {
                it.depths = None;
                it.private = vec![0; 3];
            },
            Closed,
        ),
        frame(
            "markers demanded",
            "RFC 5044, 7.1.1",
            |it| it.flags = ENHANCED | MARKERS,
            Closed,
        ),
        frame(
            "rejected",
            "RFC 5044, 7.1.1",
            |it| it.flags = ENHANCED | REJECT,
            Closed,
        ),
        frame(
            "rejected with every flag",
            "RFC 5044, 7.1.1",
            |it| it.flags = 0xff,
            Closed,
        ),
        frame(
            "an ORD over every IRD",
            "RFC 6581, 9.1",
            |it| it.depths = Some((16 | PEER_TO_PEER, 0x3ffe | RTR_WRITE)),
            INSUFFICIENT_IRD,
        ),
        frame(
            "a ready-to-receive message that was not offered",
            "RFC 6581, 9.2",
            |it| it.depths = Some((16 | PEER_TO_PEER | RTR_EMPTY, 16)),
            NO_MATCHING_RTR,
        ),
        retried("FIN instead of a frame", vec![HearFrame, Shut], Closed),
        retried("FIN at once", vec![Shut], Left),
        retried("RST instead of a frame", vec![HearFrame, Abort], Left),
        failing(
            "half a frame and FIN",
            "RFC 5044, 7.1",
            vec![HearFrame, Bytes(honest().bytes()[..19].to_vec()), Shut],
            Closed,
        ),
        failing(
            "half a frame and RST",
            "RFC 5044, 7.1",
            vec![HearFrame, Bytes(honest().bytes()[..19].to_vec()), Abort],
            Left,
        ),
        working(
            "a frame one byte at a time",
            "RFC 5044, 7.1",
            vec![HearFrame, Trickle(honest().bytes())],
        ),
        working(
            "a frame before the client's",
            "RFC 5044, 7.1.2",
            vec![Frame(honest()), HearFrame],
        ),
        working(
            "no private data",
            "RFC 8797, 5.1",
            reply(|it| it.private = Vec::new()),
        ),
        working(
            "private data cut off",
            "RFC 8797, 5.2",
            reply(|it| it.private = vec![0xf6, 0xab, 0x0e, 0x18, 1, 1, 3]),
        ),
        working(
            "IRD and ORD left to others",
            "RFC 6581, 9.1",
            vec![HearFrame, Frame(depths(0x3fff, 0x3fff))],
        ),
        working(
            "IRD and ORD of zero",
            "RFC 6581, 9.1",
            vec![HearFrame, Frame(depths(0, 0))],
        ),
        working(
            "no peer-to-peer set-up",
            "RFC 6581, 9.2",
            reply(|it| it.depths = Some((16, 16))),
        ),
        working(
            "reserved flags",
            "RFC 5044, 7.1.1",
            reply(|it| it.flags = ENHANCED | 0x0f),
        ),
        working(
            "a message behind the reply frame",
            "RFC 5044, 7.1.2",
            vec![
                HearFrame,
                Bytes({
                    let message =
                        v1::header(0x0bad).with(&crate::wire::rpc::accepted(0x0bad, 0, &[]));
                    let first = fpdu(&Untagged::send(1, &message).ulpdu(), false);
                    [honest().bytes(), first].concat()
                }),
                Said(1),
            ],
        ),
        failing(
            "silence instead of a frame",
            "RFC 5044, 7.1.2",
            vec![HearFrame],
            Closed,
        )
        .ending(Outcome::NoAnswer),
        failing(
            "silence in the middle of a frame",
            "RFC 5044, 7.1.2",
            vec![HearFrame, Bytes(honest().bytes()[..19].to_vec())],
            Closed,
        )
        .ending(Outcome::NoAnswer),
        working(
            "CRCs wanted, and used",
            "RFC 5044, 7.1.1",
            vec![
                HearFrame,
                Frame(Frame {
                    flags: ENHANCED | CRC,
                    ..honest()
                }),
                Crc,
            ],
        ),
    ]
}
