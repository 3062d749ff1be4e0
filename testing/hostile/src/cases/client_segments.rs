//! Invalid untagged segments of a hostile client (RFC 5041, sections 4 and 7.1; RFC 5040, section
//! 4).

use super::ends::*;
use super::{null, on};
use crate::End::{self, Left, Lives};
use crate::client::{Case, Step::*, case, success};
use crate::wire::ddp::{READ_RESPONSE, ReadRequest, SEND_SOLICITED, TERMINATE, Untagged, WRITE};
use crate::wire::mpa::fpdu;

/// Returns a case with one invalid untagged segment.
pub(super) fn untagged(
    name: &'static str,
    section: &'static str,
    segment: Untagged,
    end: End,
) -> Case {
    case(name, section, on(vec![Segment(segment.ulpdu())]), end)
}

pub(super) fn cases() -> Vec<Case> {
    let send = || Untagged::send(1, &null(1));
    let read = || Untagged::read_request(1, &request(0xdead, 1));
    let whole = send().ulpdu();
    vec![
        untagged(
            "queue 3",
            "RFC 5041, 7.1",
            Untagged { queue: 3, ..send() },
            QUEUE,
        ),
        untagged(
            "queue 4294967295",
            "RFC 5041, 7.1",
            Untagged {
                queue: u32::MAX,
                ..send()
            },
            QUEUE,
        ),
        untagged(
            "a Send on the queue of Reads",
            "RFC 5040, 4.1",
            Untagged { queue: 1, ..send() },
            OPCODE,
        ),
        untagged(
            "a Send on the queue of Terminates",
            "RFC 5040, 4.1",
            Untagged { queue: 2, ..send() },
            OPCODE,
        ),
        untagged(
            "a Read Request on the queue of Sends",
            "RFC 5040, 4.1",
            Untagged { queue: 0, ..read() },
            OPCODE,
        ),
        untagged(
            "a Terminate on the queue of Sends",
            "RFC 5040, 4.1",
            Untagged {
                opcode: TERMINATE,
                ..Untagged::send(1, &[0; 4])
            },
            OPCODE,
        ),
        untagged(
            "an untagged RDMA Write",
            "RFC 5040, 4.1",
            Untagged {
                opcode: WRITE,
                ..send()
            },
            OPCODE,
        ),
        untagged(
            "an untagged Read Response",
            "RFC 5040, 4.1",
            Untagged {
                opcode: READ_RESPONSE,
                ..send()
            },
            OPCODE,
        ),
        untagged(
            "opcode 8",
            "RFC 5040, 4.1",
            Untagged {
                opcode: 8,
                ..send()
            },
            OPCODE,
        ),
        untagged(
            "opcode 15",
            "RFC 5040, 4.1",
            Untagged {
                opcode: 15,
                ..send()
            },
            OPCODE,
        ),
        untagged("MSN 0", "RFC 5041, 4.3", Untagged { msn: 0, ..send() }, MSN),
        untagged(
            "an MSN left out",
            "RFC 5041, 4.3",
            Untagged { msn: 2, ..send() },
            MSN,
        ),
        untagged(
            "MSN 4294967295",
            "RFC 5041, 4.3",
            Untagged {
                msn: u32::MAX,
                ..send()
            },
            MSN,
        ),
        case(
            "an MSN used twice",
            "RFC 5041, 4.3",
            on(vec![
                Send(null(1)),
                Hear(success(1, &[])),
                Segment(send().ulpdu()),
            ]),
            MSN,
        ),
        case(
            "the next message before the last has ended",
            "RFC 5041, 4.3",
            on(vec![
                Segment(
                    Untagged {
                        last: false,
                        ..Untagged::send(1, b"begun")
                    }
                    .ulpdu(),
                ),
                Segment(Untagged::send(2, b"next").ulpdu()),
            ]),
            MSN,
        ),
        untagged(
            "a message that begins at offset 4",
            "RFC 5041, 7.1",
            Untagged {
                offset: 4,
                ..send()
            },
            OFFSET,
        ),
        untagged(
            "offset 4294967295",
            "RFC 5041, 7.1",
            Untagged {
                offset: u32::MAX,
                ..send()
            },
            OFFSET,
        ),
        case(
            "a gap within a message",
            "RFC 5041, 7.1",
            on(vec![
                Segment(
                    Untagged {
                        last: false,
                        ..Untagged::send(1, b"1234")
                    }
                    .ulpdu(),
                ),
                Segment(
                    Untagged {
                        offset: 8,
                        ..Untagged::send(1, b"9")
                    }
                    .ulpdu(),
                ),
            ]),
            OFFSET,
        ),
        case(
            "a message that overwrites its beginning",
            "RFC 5041, 7.1",
            on(vec![
                Segment(
                    Untagged {
                        last: false,
                        ..Untagged::send(1, b"1234")
                    }
                    .ulpdu(),
                ),
                Segment(
                    Untagged {
                        offset: 0,
                        ..Untagged::send(1, b"x")
                    }
                    .ulpdu(),
                ),
            ]),
            OFFSET,
        ),
        case(
            "a message that changes its kind",
            "RFC 5040, 5.3",
            on(vec![
                Segment(
                    Untagged {
                        last: false,
                        ..Untagged::send(1, b"1234")
                    }
                    .ulpdu(),
                ),
                Segment(
                    Untagged {
                        offset: 4,
                        opcode: SEND_SOLICITED,
                        ..Untagged::send(1, b"5678")
                    }
                    .ulpdu(),
                ),
            ]),
            OPCODE,
        ),
        untagged(
            "a Send longer than its receive",
            "RFC 5041, 7.1",
            Untagged::send(1, &[1; 4097]),
            TOO_LONG,
        ),
        untagged(
            "a Send of 64 KiB",
            "RFC 5041, 7.1",
            Untagged::send(1, &[1; 65_000]),
            TOO_LONG,
        ),
        case(
            "a Send that grows too long",
            "RFC 5041, 7.1",
            on(vec![
                Segment(
                    Untagged {
                        last: false,
                        ..Untagged::send(1, &[1; 4096])
                    }
                    .ulpdu(),
                ),
                Segment(
                    Untagged {
                        offset: 4096,
                        ..Untagged::send(1, b"x")
                    }
                    .ulpdu(),
                ),
            ]),
            TOO_LONG,
        ),
        case(
            "more Sends in one go than there are receives",
            "RFC 5041, 7.1",
            // The stream stops until there are receives. Whether more calls than granted are in
            // progress then depends on how soon the first are answered.
            on(vec![Burst(100, null(1))]),
            Left,
        )
        .costing(1 << 20),
        case(
            "a Send cut into single bytes",
            "RFC 5041, 5.1",
            on(vec![SendCut(1, null(1)), Hear(success(1, &[]))]),
            Lives,
        ),
        case(
            "a Send one byte at a time",
            "RFC 5044, 4",
            on(vec![
                Trickle(fpdu(&whole, false)),
                Said(1),
                Hear(success(1, &[])),
            ]),
            Lives,
        ),
        case(
            "a thousand segments of nothing",
            "RFC 5041, 5.1",
            on(vec![
                Repeat(
                    1000,
                    vec![Segment(
                        Untagged {
                            last: false,
                            ..Untagged::send(1, &[])
                        }
                        .ulpdu(),
                    )],
                ),
                Send(null(1)),
                Hear(success(1, &[])),
            ]),
            Lives,
        ),
        case(
            "a Send with Solicited Event is a Send",
            "RFC 5040, 5.3",
            on(vec![
                SendAs(SEND_SOLICITED, 0, null(1)),
                Hear(success(1, &[])),
            ]),
            Lives,
        ),
        untagged(
            "DDP version 0",
            "RFC 5041, 4.1",
            Untagged { ddp: 0, ..send() },
            UNTAGGED_VERSION,
        ),
        untagged(
            "DDP version 2",
            "RFC 5041, 4.1",
            Untagged { ddp: 2, ..send() },
            UNTAGGED_VERSION,
        ),
        untagged(
            "DDP version 3",
            "RFC 5041, 4.1",
            Untagged { ddp: 3, ..send() },
            UNTAGGED_VERSION,
        ),
        untagged(
            "RDMAP version 0",
            "RFC 5040, 4.1",
            Untagged { rdmap: 0, ..send() },
            RDMAP_VERSION,
        ),
        untagged(
            "RDMAP version 2",
            "RFC 5040, 4.1",
            Untagged { rdmap: 2, ..send() },
            RDMAP_VERSION,
        ),
        untagged(
            "RDMAP version 3",
            "RFC 5040, 4.1",
            Untagged { rdmap: 3, ..send() },
            RDMAP_VERSION,
        ),
    ]
}

/// Returns a Read Request for `length` bytes of a handle.
pub(super) fn request(source: u32, length: u32) -> ReadRequest {
    ReadRequest {
        sink: 1,
        sink_offset: 0,
        length,
        source,
        source_offset: 0,
    }
}
