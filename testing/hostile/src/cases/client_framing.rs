//! Invalid FPDUs of a hostile client (RFC 5044, section 4), and its Terminates (RFC 5040, section
//! 4.8).

use super::client_segments::untagged;
use super::ends::*;
use super::{accepted, after, null, on};
use crate::End::{self, Closed, Left, Lives};
use crate::client::{Case, Step::*, case, success};
use crate::wire::ddp::{Tagged, Untagged};
use crate::wire::mpa::{CRC, ENHANCED, Frame, fpdu, fpdu_of_length};

/// Returns a case that sends invalid bytes.
fn bytes(name: &'static str, section: &'static str, bytes: Vec<u8>, end: End) -> Case {
    case(name, section, on(vec![Bytes(bytes)]), end)
}

/// Returns a case that sends these bytes on a connection with CRCs.
fn checked(name: &'static str, bytes: Vec<u8>, end: End) -> Case {
    let (request, reply) = (Frame::request(), accepted());
    let crc = |frame| Frame {
        flags: ENHANCED | CRC,
        ..frame
    };
    let steps = vec![Crc, Bytes(bytes)];
    case(
        name,
        "RFC 5044, 4.4",
        after(crc(request), crc(reply), steps),
        end,
    )
}

/// Returns an FPDU with a correct CRC, of which one bit is then flipped.
fn damaged(ulpdu: &[u8], at: usize) -> Vec<u8> {
    let mut bytes = fpdu(ulpdu, true);
    bytes[at] ^= 0x10;
    bytes
}

pub(super) fn cases() -> Vec<Case> {
    let whole = Untagged::send(1, &null(1)).ulpdu();
    let mut cases = framing(&whole);
    cases.extend(checksums(&whole));
    cases.extend(terminates());
    cases
}

fn terminates() -> Vec<Case> {
    let terminate = Untagged::terminate;
    vec![
        untagged(
            "a Terminate",
            "RFC 5040, 5.4",
            terminate(&[0x11, 1, 0, 0]),
            Closed,
        ),
        untagged(
            "a Terminate of codes that there are not",
            "RFC 5040, 5.4",
            terminate(&[0xff, 0xff, 0, 0]),
            Closed,
        ),
        untagged(
            "a Terminate that promises headers",
            "RFC 5040, 4.8",
            terminate(&[0x11, 1, 0xff, 0]),
            Closed,
        ),
        untagged(
            "a Terminate of 3 bytes",
            "RFC 5040, 4.8",
            terminate(&[0x11, 1, 0]),
            CATASTROPHE,
        ),
        untagged(
            "a Terminate of nothing",
            "RFC 5040, 4.8",
            terminate(&[]),
            CATASTROPHE,
        ),
        untagged(
            "a Terminate of 200 bytes",
            "RFC 5040, 4.8",
            terminate(&[0; 200]),
            TOO_LONG,
        ),
        untagged(
            "a Terminate with MSN 2",
            "RFC 5041, 4.3",
            Untagged {
                msn: 2,
                ..terminate(&[0; 4])
            },
            MSN,
        ),
        untagged(
            "a Terminate that goes on",
            "RFC 5040, 4.8",
            Untagged {
                last: false,
                ..terminate(&[0; 4])
            },
            CATASTROPHE,
        ),
        case(
            "a storm of Terminates",
            "RFC 5040, 5.4",
            on(vec![Bytes(
                fpdu(&terminate(&[0x11, 1, 0, 0]).ulpdu(), false).repeat(10_000),
            )]),
            Closed,
        ),
        case(
            "calls behind a Terminate",
            "RFC 5040, 5.4",
            on(vec![
                Segment(terminate(&[0x11, 1, 0, 0]).ulpdu()),
                Flood(100, null(1)),
            ]),
            Closed,
        ),
        case(
            "a Terminate answered with a Terminate",
            "RFC 5040, 5.4",
            on(vec![
                Segment(Tagged::write(0, 0, b"x").ulpdu()),
                Segment(terminate(&[0x11, 1, 0, 0]).ulpdu()),
            ]),
            STAG,
        ),
    ]
}

fn framing(whole: &[u8]) -> Vec<Case> {
    let long = whole.len() as u16;
    let good = fpdu(whole, false);
    let mut crc_field = good.clone();
    let at = crc_field.len() - 4;
    crc_field[at..].fill(0x5a);
    vec![
        bytes(
            "a ULPDU length of 0",
            "RFC 5044, 4",
            vec![0; 8],
            CATASTROPHE,
        ),
        bytes(
            "a ULPDU length of 1",
            "RFC 5044, 4",
            fpdu(&whole[..1], false),
            CATASTROPHE,
        ),
        bytes(
            "a ULPDU one byte shorter than its header",
            "RFC 5041, 4",
            fpdu(&whole[..17], false),
            CATASTROPHE,
        ),
        bytes(
            "a tagged ULPDU of 13 bytes",
            "RFC 5041, 4",
            fpdu(&[0x81; 13], false),
            CATASTROPHE,
        ),
        case(
            "a Send of no bytes",
            "RFC 8166, 4.5",
            on(vec![Send(Vec::new())]),
            Lives,
        ),
        bytes(
            "a ULPDU length of 65535",
            "RFC 5044, 4",
            fpdu_of_length(0xffff, whole, false),
            TOO_LONG,
        ),
        case(
            "a ULPDU length shorter than its ULPDU",
            "RFC 5044, 4",
            on(vec![
                // The rest of it is interpreted as the next FPDU, with an invalid version.
                Bytes(fpdu_of_length(long - 4, whole, false)),
            ]),
            CATASTROPHE,
        ),
        case(
            "FIN in the middle of an FPDU",
            "RFC 5044, 4",
            on(vec![Bytes(good[..good.len() / 2].to_vec()), Shut]),
            Closed,
        ),
        case(
            "FIN in the middle of a message",
            "RFC 5041, 5.1",
            on(vec![
                Segment(
                    Untagged {
                        last: false,
                        ..Untagged::send(1, b"begun")
                    }
                    .ulpdu(),
                ),
                Shut,
            ]),
            Closed,
        ),
        case(
            "RST in the middle of an FPDU",
            "RFC 5044, 4",
            on(vec![Bytes(good[..good.len() / 2].to_vec()), Turn, Abort]),
            Left,
        ),
        case(
            "FIN behind an answer",
            "RFC 5040, 6.2",
            on(vec![Send(null(1)), Hear(success(1, &[])), Shut]),
            Closed,
        ),
        bytes(
            "markers where none were agreed on",
            "RFC 5044, 4.3",
            [&[0, 0, 0, 0][..], &good].concat(),
            CATASTROPHE,
        ),
        case(
            "a CRC where none was agreed on",
            "RFC 5044, 4.4",
            on(vec![Bytes(crc_field), Said(1), Hear(success(1, &[]))]),
            Lives,
        ),
        case(
            "random bytes",
            "RFC 5044, 4",
            on(vec![Bytes(crate::rig::content(9, 4096))]),
            UNTAGGED_VERSION,
        ),
    ]
}

/// Returns the cases on connections with CRCs (RFC 5044, section 4.4).
fn checksums(whole: &[u8]) -> Vec<Case> {
    vec![
        checked("a damaged payload", damaged(whole, 40), BAD_CRC),
        checked("a damaged header", damaged(whole, 12), BAD_CRC),
        checked(
            "a damaged length that stays within the FPDU",
            {
                let mut bytes = fpdu(whole, true);
                bytes[1] ^= 1;
                bytes.extend([0; 4]);
                bytes
            },
            BAD_CRC,
        ),
        checked(
            "a damaged CRC",
            damaged(whole, 2 + whole.len() + 2),
            BAD_CRC,
        ),
        checked("a CRC left out", fpdu(whole, false), BAD_CRC),
        checked(
            "padding that is not covered",
            {
                // 19 bytes and the length field are padded by three.
                let segment = Untagged::send(1, b"x").ulpdu();
                let mut bytes = fpdu(&segment, true);
                bytes[2 + segment.len()] = 0xff;
                bytes
            },
            BAD_CRC,
        ),
        checked(
            "a bad header with a right CRC",
            fpdu(&Untagged::send(7, b"x").ulpdu(), true),
            MSN,
        ),
        checked(
            "a bad handle with a wrong CRC",
            damaged(&Tagged::write(0xdead, 0, b"overwritten").ulpdu(), 20),
            BAD_CRC,
        ),
    ]
}
