//! Hostile clients that fall silent at some point. The server has time-outs and must close the
//! connection.

use super::{accepted, after, memory, null, on};
use crate::End::Closed;
use crate::client::{Case, Step::*, case, success};
use crate::wire::ddp::Untagged;
use crate::wire::mpa::{Frame, PEER_TO_PEER, RTR_WRITE, fpdu};

pub(super) fn cases(file: &[u8]) -> Vec<Case> {
    let request = Frame::request();
    let chunk = memory(0, 8192);
    let call = super::client_reads::write(file, 0x0bad_2000, &[chunk]);
    let whole = fpdu(&Untagged::send(1, &null(1)).ulpdu(), false);
    vec![
        case(
            "silence after connecting",
            "RFC 5044, 7.1.2",
            vec![Connect],
            Closed,
        ),
        case(
            "silence in the middle of the set-up",
            "RFC 5044, 7.1.2",
            vec![Connect, Bytes(request.bytes()[..19].to_vec())],
            Closed,
        ),
        case(
            "silence where a first message was promised",
            "RFC 6581, 9.2",
            after(
                Frame {
                    depths: Some((16 | PEER_TO_PEER, 4 | RTR_WRITE)),
                    ..request
                },
                Frame {
                    depths: Some((1 | PEER_TO_PEER, 16 | RTR_WRITE)),
                    ..accepted()
                },
                vec![],
            ),
            Closed,
        ),
        case(
            "silence once connected",
            "RFC 8166, 3.3",
            on(vec![]),
            Closed,
        ),
        case(
            "silence after a call",
            "RFC 8166, 3.3",
            on(vec![Send(null(1)), Hear(success(1, &[]))]),
            Closed,
        ),
        case(
            "silence in the middle of an FPDU",
            "RFC 5044, 4",
            on(vec![Bytes(whole[..whole.len() / 2].to_vec())]),
            Closed,
        ),
        case(
            "silence in the middle of a message",
            "RFC 5041, 5.1",
            on(vec![Segment(
                Untagged {
                    last: false,
                    ..Untagged::send(1, b"begun")
                }
                .ulpdu(),
            )]),
            Closed,
        ),
        case(
            "silence where a Read Response is due",
            "RFC 5040, 5.2",
            on(vec![Send(call), Cheat(chunk, |_| vec![])]),
            Closed,
        ),
    ]
}
