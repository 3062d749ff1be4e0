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

/// A description, a change of one field of a Send of one segment, and the end of the connection.
type Row = (&'static str, fn(&mut Untagged), End);

/// Returns the cases of a segment with one invalid field.
fn fields() -> Vec<Case> {
    let of = |section: &'static str, rows: &[Row]| -> Vec<Case> {
        let row = |&(name, change, end): &Row| {
            let mut segment = Untagged::send(1, &null(1));
            change(&mut segment);
            untagged(name, section, segment, end)
        };
        rows.iter().map(row).collect()
    };
    let places = of(
        "RFC 5041, 7.1",
        &[
            ("queue 3", |it| it.queue = 3, QUEUE),
            ("queue 4294967295", |it| it.queue = u32::MAX, QUEUE),
            (
                "a message that begins at offset 4",
                |it| it.offset = 4,
                OFFSET,
            ),
            ("offset 4294967295", |it| it.offset = u32::MAX, OFFSET),
        ],
    );
    let opcodes = of(
        "RFC 5040, 4.1",
        &[
            ("a Send on the queue of Reads", |it| it.queue = 1, OPCODE),
            (
                "a Send on the queue of Terminates",
                |it| it.queue = 2,
                OPCODE,
            ),
            ("an untagged RDMA Write", |it| it.opcode = WRITE, OPCODE),
            (
                "an untagged Read Response",
                |it| it.opcode = READ_RESPONSE,
                OPCODE,
            ),
            ("opcode 8", |it| it.opcode = 8, OPCODE),
            ("opcode 15", |it| it.opcode = 15, OPCODE),
            ("RDMAP version 0", |it| it.rdmap = 0, RDMAP_VERSION),
            ("RDMAP version 2", |it| it.rdmap = 2, RDMAP_VERSION),
            ("RDMAP version 3", |it| it.rdmap = 3, RDMAP_VERSION),
        ],
    );
    let numbers = of(
        "RFC 5041, 4.3",
        &[
            ("MSN 0", |it| it.msn = 0, MSN),
            ("an MSN left out", |it| it.msn = 2, MSN),
            ("MSN 4294967295", |it| it.msn = u32::MAX, MSN),
        ],
    );
    let versions = of(
        "RFC 5041, 4.1",
        &[
            ("DDP version 0", |it| it.ddp = 0, UNTAGGED_VERSION),
            ("DDP version 2", |it| it.ddp = 2, UNTAGGED_VERSION),
            ("DDP version 3", |it| it.ddp = 3, UNTAGGED_VERSION),
        ],
    );
    [places, opcodes, numbers, versions].concat()
}

pub(super) fn cases() -> Vec<Case> {
    let send = || Untagged::send(1, &null(1));
    let read = || Untagged::read_request(1, &request(0xdead, 1));
    let whole = send().ulpdu();
    let mut cases = fields();
    cases.extend([
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
    ]);
    cases
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
