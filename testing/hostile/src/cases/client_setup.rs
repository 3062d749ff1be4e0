//! Invalid setup frames of a hostile initiator (RFC 5044, section 7.1; RFC 6581).

use super::ends::*;
use super::{accepted, after, null};
use crate::End::{Closed, Left, Lives};
use crate::client::{Case, Step::*, case, success};
use crate::wire::ddp::{ReadRequest, Tagged, Untagged};
use crate::wire::mpa::{
    CRC, ENHANCED, Frame, MARKERS, PEER_TO_PEER, REJECT, REPLY_KEY, RTR_EMPTY, RTR_READ, RTR_WRITE,
    fpdu,
};

/// Returns a case that sends bytes right after connecting.
fn says(name: &'static str, section: &'static str, bytes: Vec<u8>) -> Case {
    case(name, section, vec![Connect, Bytes(bytes)], Closed)
}

/// Returns a setup frame with this change.
fn request(change: fn(&mut Frame)) -> Frame {
    let mut frame = Frame::request();
    change(&mut frame);
    frame
}

/// Returns a case that sends a frame which cannot be accepted.
fn frame(name: &'static str, section: &'static str, change: fn(&mut Frame)) -> Case {
    says(name, section, request(change).bytes())
}

/// Returns a case with an unusual frame that is accepted.
fn taken(name: &'static str, section: &'static str, change: fn(&mut Frame)) -> Case {
    case(
        name,
        section,
        after(request(change), accepted(), vec![]),
        Lives,
    )
}

fn peer_to_peer(bits: (u16, u16)) -> Frame {
    Frame {
        depths: Some((16 | PEER_TO_PEER | bits.0, 4 | bits.1)),
        ..Frame::request()
    }
}

/// Returns the server's setup frame with its choice of a ready-to-receive message.
fn chosen(bits: (u16, u16)) -> Frame {
    Frame {
        depths: Some((1 | PEER_TO_PEER | bits.0, 16 | bits.1)),
        ..accepted()
    }
}

pub(super) fn cases() -> Vec<Case> {
    let honest = Frame::request;
    let empty = fpdu(&[], false);
    let rejected = Frame {
        flags: ENHANCED | REJECT,
        depths: Some((0, 0)),
        private: Vec::new(),
        ..accepted()
    };
    vec![
        says(
            "another protocol",
            "RFC 5044, 7.1.1",
            b"GET / HTTP/1.1\r\n\r\n".to_vec(),
        ),
        frame("a reply frame from an initiator", "RFC 5044, 7.1.1", |it| {
            it.key = REPLY_KEY
        }),
        frame("a key with a wrong last byte", "RFC 5044, 7.1.1", |it| {
            it.key = *b"MPA ID Req Framf"
        }),
        says("a key of zeroes", "RFC 5044, 7.1.1", vec![0; 20]),
        frame(
            "513 bytes of private data claimed",
            "RFC 5044, 7.1.1",
            |it| {
                it.length = Some(513);
                it.private = vec![7; 508];
            },
        ),
        frame(
            "private data of 65535 bytes claimed",
            "RFC 5044, 7.1.1",
            |it| it.length = Some(0xffff),
        ),
        frame("revision 0", "RFC 5044, 7.1.1", |it| it.revision = 0),
        frame("revision 3", "RFC 6581, 6", |it| it.revision = 3),
        frame("revision 255", "RFC 6581, 6", |it| it.revision = 255),
        frame("enhanced set-up without IRD and ORD", "RFC 6581, 9", |it| {
            it.depths = None;
            it.private = Vec::new();
        }),
        frame("enhanced set-up with half an IRD", "RFC 6581, 9", |it| {
            it.depths = None;
            it.private = vec![0; 3];
        }),
        says("an FPDU behind the request frame", "RFC 5044, 7.1.2", {
            let first = fpdu(&Untagged::send(1, &null(1)).ulpdu(), false);
            [honest().bytes(), first].concat()
        }),
        says(
            "the request frame twice",
            "RFC 5044, 7.1.2",
            honest().bytes().repeat(2),
        ),
        case(
            "half a frame and FIN",
            "RFC 5044, 7.1",
            vec![Connect, Bytes(honest().bytes()[..13].to_vec()), Shut],
            Closed,
        ),
        case(
            "half a frame and RST",
            "RFC 5044, 7.1",
            vec![Connect, Bytes(honest().bytes()[..13].to_vec()), Turn, Abort],
            Left,
        ),
        case("FIN at once", "RFC 5044, 7.1", vec![Connect, Shut], Closed),
        case("RST at once", "RFC 5044, 7.1", vec![Connect, Abort], Left),
        case(
            "FIN once connected",
            "RFC 5044, 7.1",
            after(honest(), accepted(), vec![Shut]),
            Closed,
        ),
        case(
            "RST behind the request frame",
            "RFC 5044, 7.1",
            vec![Connect, Bytes(honest().bytes()), Abort],
            Left,
        ),
        case(
            "markers demanded",
            "RFC 5044, 7.1.1",
            vec![
                Connect,
                Bytes(
                    Frame {
                        flags: ENHANCED | MARKERS,
                        ..honest()
                    }
                    .bytes(),
                ),
                HearFrame(rejected.clone()),
            ],
            Closed,
        ),
        case(
            "every flag set",
            "RFC 5044, 7.1.1",
            vec![
                Connect,
                Bytes(
                    Frame {
                        flags: 0xff,
                        ..honest()
                    }
                    .bytes(),
                ),
                HearFrame(Frame {
                    flags: rejected.flags | CRC,
                    ..rejected
                }),
            ],
            Closed,
        ),
        taken(
            "the reject flag in a request is not looked at",
            "RFC 5044, 7.1.1",
            |it| it.flags = ENHANCED | REJECT,
        ),
        taken(
            "reserved flags are not looked at",
            "RFC 5044, 7.1.1",
            |it| it.flags = ENHANCED | 0x0f,
        ),
        case(
            "revision 1 is answered as such",
            "RFC 6581, 6",
            after(
                Frame {
                    flags: 0,
                    revision: 1,
                    depths: None,
                    ..honest()
                },
                Frame {
                    flags: 0,
                    revision: 1,
                    depths: None,
                    ..accepted()
                },
                vec![],
            ),
            Lives,
        ),
        case(
            "revision 1 with the flag of revision 2",
            "RFC 6581, 6",
            after(
                Frame {
                    revision: 1,
                    ..honest()
                },
                Frame {
                    flags: 0,
                    revision: 1,
                    depths: None,
                    ..accepted()
                },
                vec![],
            ),
            Lives,
        ),
        taken("no private data", "RFC 8797, 5.1", |it| {
            it.private = Vec::new()
        }),
        taken("private data cut off", "RFC 8797, 5.2", |it| {
            it.private = vec![0xf6, 0xab, 0x0e, 0x18, 1]
        }),
        taken(
            "508 bytes of private data, none for us",
            "RFC 8797, 5.2",
            |it| it.private = vec![0xf6; 508],
        ),
        taken("private data of version 200", "RFC 8797, 5.2", |it| {
            it.private = vec![0xf6, 0xab, 0x0e, 0x18, 200, 255, 255, 255]
        }),
        case(
            "IRD and ORD left to others",
            "RFC 6581, 9.1",
            after(
                Frame {
                    depths: Some((0x3fff, 0x3fff)),
                    ..honest()
                },
                Frame {
                    depths: Some((0x3fff, 0x3fff)),
                    ..accepted()
                },
                vec![],
            ),
            Lives,
        ),
        case(
            "IRD and ORD of zero",
            "RFC 6581, 9.1",
            after(
                Frame {
                    depths: Some((0, 0)),
                    ..honest()
                },
                Frame {
                    depths: Some((1, 0)),
                    ..accepted()
                },
                vec![],
            ),
            Lives,
        ),
        case(
            "a set-up frame one byte at a time",
            "RFC 5044, 7.1",
            vec![Connect, Trickle(honest().bytes()), HearFrame(accepted())],
            Lives,
        ),
        case(
            "peer-to-peer set-up without a way to begin",
            "RFC 6581, 9.2",
            after(peer_to_peer((0, 0)), chosen((0, RTR_WRITE)), vec![]),
            Lives,
        ),
        case(
            "a Send where an RDMA Write was promised",
            "RFC 6581, 9.2",
            after(
                peer_to_peer((0, RTR_WRITE)),
                chosen((0, RTR_WRITE)),
                vec![Send(null(1)), Hear(success(1, &[]))],
            ),
            Lives,
        ),
        case(
            "an empty FPDU where an RDMA Write was promised",
            "RFC 6581, 9.2",
            after(
                peer_to_peer((0, RTR_WRITE)),
                chosen((0, RTR_WRITE)),
                vec![Bytes(empty.clone())],
            ),
            CATASTROPHE,
        ),
        case(
            "a bad first FPDU",
            "RFC 6581, 9.2",
            after(
                peer_to_peer((0, RTR_WRITE)),
                chosen((0, RTR_WRITE)),
                vec![Segment(Tagged::write(0xdead, 0, b"x").ulpdu())],
            ),
            STAG,
        ),
        case(
            "an empty FPDU as agreed",
            "RFC 6581, 9.2",
            after(
                peer_to_peer((RTR_EMPTY, 0)),
                chosen((RTR_EMPTY, 0)),
                vec![Bytes(empty.clone())],
            ),
            Lives,
        ),
        case(
            "a second empty FPDU",
            "RFC 6581, 9.2",
            after(
                peer_to_peer((RTR_EMPTY, 0)),
                chosen((RTR_EMPTY, 0)),
                vec![Bytes(empty.repeat(2))],
            ),
            CATASTROPHE,
        ),
        case(
            "an RDMA Read of nothing as agreed",
            "RFC 6581, 9.2",
            after(
                peer_to_peer((0, RTR_READ)),
                chosen((0, RTR_READ)),
                vec![Segment(nothing_read()), HearNothingRead(1)],
            ),
            Lives,
        ),
        case(
            "an RDMA Write of something as first message",
            "RFC 6581, 9.2",
            after(
                peer_to_peer((0, RTR_WRITE)),
                chosen((0, RTR_WRITE)),
                vec![Segment(Tagged::write(0, 0, &[1; 8]).ulpdu())],
            ),
            STAG,
        ),
    ]
}

/// Returns an RDMA Read of 0 bytes into handle 1.
fn nothing_read() -> Vec<u8> {
    let request = ReadRequest {
        sink: 1,
        sink_offset: 0,
        length: 0,
        source: 2,
        source_offset: 0,
    };
    Untagged::read_request(1, &request).ulpdu()
}
