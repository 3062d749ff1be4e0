//! Segments of a hostile server that access the memory of a real client (RFC 5041, section 7.1; RFC
//! 5040, section 7.2).

use super::ends::*;
use crate::End::{self, Closed, Left, Lives};
use crate::server::{Ask, Call, Case, Step, Step::*, Until, case};
use crate::wire::ddp::{ReadRequest, SEND_INVALIDATE, Tagged, Untagged};
use crate::wire::mpa::fpdu;
use crate::wire::rpc;
use crate::wire::v1;

/// The bytes of a segment.
const SEGMENT: usize = 4096;

/// Returns a case with an RDMA Write to memory that must not be written to, while a READ is
/// outstanding.
fn write(name: &'static str, ulpdu: fn(&Call) -> Vec<u8>, end: End) -> Case {
    case(
        name,
        "RFC 5041, 7.1",
        Ask::Read,
        vec![Hear, Segment(ulpdu)],
        end,
    )
}

/// Returns a case with a Read Request for memory that must not be read, while a call of this kind
/// is outstanding.
fn read(name: &'static str, ask: Ask, ulpdu: fn(&Call) -> Vec<u8>, end: End) -> Case {
    case(name, "RFC 5040, 7.2", ask, vec![Hear, Segment(ulpdu)], end)
}

/// Returns a case with any other invalid segment.
fn other(name: &'static str, section: &'static str, ulpdu: fn(&Call) -> Vec<u8>, end: End) -> Case {
    case(name, section, Ask::Read, vec![Hear, Segment(ulpdu)], end)
}

/// Returns an RDMA Write of `len` bytes at a distance of `shift` bytes from the start of the call's
/// first segment.
fn at(call: &Call, shift: i64, len: usize) -> Vec<u8> {
    let segment = call.segment();
    let offset = segment.offset.wrapping_add_signed(shift);
    Tagged::write(segment.handle, offset, &vec![0x66; len]).ulpdu()
}

/// Returns a Read Request of `length` bytes at a distance of `shift` bytes from the start of the
/// call's first segment.
fn from(call: &Call, shift: i64, length: u32) -> Vec<u8> {
    let segment = call.segment();
    read_request(
        segment.handle,
        segment.offset.wrapping_add_signed(shift),
        length,
    )
}

fn read_request(source: u32, source_offset: u64, length: u32) -> Vec<u8> {
    let request = whole(v1::segment(source, length, source_offset));
    Untagged::read_request(1, &request).ulpdu()
}

fn whole(segment: v1::Segment) -> ReadRequest {
    ReadRequest {
        sink: 9,
        sink_offset: 0,
        length: segment.length,
        source: segment.handle,
        source_offset: segment.offset,
    }
}

/// The MSN of the first message of the script, after three for mounting.
const FIRST: u32 = 4;

/// Returns a message that answers no call.
fn stray(_: &Call) -> Vec<u8> {
    v1::header(0x0bad_0bad).with(&rpc::accepted(0x0bad_0bad, 0, &[]))
}

pub(super) fn cases() -> Vec<Case> {
    let mut cases = vec![
        write(
            "a write to a handle one off",
            |call| Tagged::write(call.segment().handle ^ 1, call.segment().offset, b"x").ulpdu(),
            STAG,
        ),
        write(
            "a write to handle 0",
            |_| Tagged::write(0, 0, b"x").ulpdu(),
            STAG,
        ),
        write("a write one byte before", |call| at(call, -1, 1), BOUNDS),
        write(
            "a write that begins one byte before",
            |call| at(call, -1, SEGMENT),
            BOUNDS,
        ),
        write(
            "a write one byte behind",
            |call| at(call, SEGMENT as i64, 1),
            BOUNDS,
        ),
        write(
            "a write that ends one byte behind",
            |call| at(call, 1, SEGMENT),
            BOUNDS,
        ),
        write(
            "a write of one byte too many",
            |call| at(call, 0, SEGMENT + 1),
            BOUNDS,
        ),
        write(
            "a write to where memory may be",
            |call| at(call, 1 << 32, 64),
            BOUNDS,
        ),
        write(
            "a write to offset 0",
            |call| Tagged::write(call.segment().handle, 0, b"x").ulpdu(),
            BOUNDS,
        ),
        write(
            "a write that passes the address space",
            |call| Tagged::write(call.segment().handle, u64::MAX - 3, b"too long").ulpdu(),
            WRAP,
        ),
        case(
            "a write to what may be read",
            "RFC 5041, 7.1",
            Ask::Write,
            vec![Hear, Segment(|call| at(call, 0, 64))],
            STAG,
        ),
        case(
            "a write behind the answer",
            "RFC 8166, 4.4.1",
            Ask::Read,
            vec![
                Hear,
                Answer(|_| {}),
                // Its next call shows that the client has its memory back.
                Hear,
                SegmentOfEarlier(|call| at(call, 0, 64)),
            ],
            STAG,
        ),
        case(
            "a read behind the answer",
            "RFC 8166, 4.4.1",
            Ask::Write,
            vec![
                Hear,
                Answer(|_| {}),
                Hear,
                SegmentOfEarlier(|call| {
                    let segment = call.segment();
                    // Two Reads have fetched the data.
                    let request = ReadRequest {
                        length: 64,
                        ..whole(segment)
                    };
                    Untagged::read_request(3, &request).ulpdu()
                }),
            ],
            READ_STAG,
        ),
        case(
            "invalidation behind the answer",
            "RFC 8166, 4.4.1",
            Ask::Read,
            vec![
                Hear,
                Answer(|_| {}),
                Hear,
                SegmentOfEarlier(|call| {
                    let (opcode, word) = (SEND_INVALIDATE, call.segment().handle);
                    Untagged {
                        opcode,
                        word,
                        ..Untagged::send(FIRST + 1, &stray(call))
                    }
                    .ulpdu()
                }),
            ],
            INVALIDATE,
        ),
        read(
            "a read of what may be written",
            Ask::Read,
            |call| from(call, 0, 64),
            READ_RIGHTS,
        ),
        read(
            "a read of a reply chunk",
            Ask::List,
            |call| from(call, 0, 64),
            READ_RIGHTS,
        ),
        read(
            "a read of a handle one off",
            Ask::Write,
            |call| read_request(call.segment().handle ^ 1, call.segment().offset, 64),
            READ_STAG,
        ),
        read(
            "a read one byte before",
            Ask::Write,
            |call| from(call, -1, 1),
            READ_BOUNDS,
        ),
        read(
            "a read that ends one byte behind",
            Ask::Write,
            |call| from(call, 1, SEGMENT as u32),
            READ_BOUNDS,
        ),
        read(
            "a read of 4 GiB",
            Ask::Write,
            |call| from(call, 0, u32::MAX),
            READ_BOUNDS,
        ),
        read(
            "a read that passes the address space",
            Ask::Write,
            |call| read_request(call.segment().handle, u64::MAX, 64),
            READ_WRAP,
        ),
        read(
            "a read without anything offered",
            Ask::Null,
            |_| read_request(0, 0, 64),
            READ_STAG,
        ),
        case(
            "the same memory read again and again",
            "RFC 5040, 5.2",
            Ask::Write,
            vec![Hear, ReadAgain(100)],
            Lives,
        ),
        case(
            "more RDMA Reads than agreed on",
            "RFC 5041, 7.1",
            Ask::LongWrite(1 << 20),
            vec![
                Hear,
                // 32 are agreed on, and the first few may have been handed to TCP before the last
                // arrive.
                ReadAhead(60),
            ],
            NO_BUFFER,
        )
        .costing(8 << 20),
        other(
            "an MSN left out",
            "RFC 5041, 4.3",
            |call| Untagged::send(FIRST + 1, &stray(call)).ulpdu(),
            MSN,
        ),
        other(
            "an MSN used again",
            "RFC 5041, 4.3",
            |call| Untagged::send(FIRST - 1, &stray(call)).ulpdu(),
            MSN,
        ),
        other(
            "a message that begins in its middle",
            "RFC 5041, 7.1",
            |call| {
                Untagged {
                    offset: 8,
                    ..Untagged::send(FIRST, &stray(call))
                }
                .ulpdu()
            },
            OFFSET,
        ),
        other(
            "a message longer than the receives",
            "RFC 5041, 7.1",
            |_| Untagged::send(FIRST, &[0; 4097]).ulpdu(),
            TOO_LONG,
        ),
        other(
            "an unknown opcode",
            "RFC 5040, 4.1",
            |_| {
                Untagged {
                    opcode: 11,
                    ..Untagged::send(FIRST, &[])
                }
                .ulpdu()
            },
            OPCODE,
        ),
        other(
            "RDMAP version 0",
            "RFC 5040, 4.1",
            |_| {
                Untagged {
                    rdmap: 0,
                    ..Untagged::send(FIRST, &[])
                }
                .ulpdu()
            },
            RDMAP_VERSION,
        ),
        other(
            "DDP version 0",
            "RFC 5041, 4.1",
            |_| {
                Untagged {
                    ddp: 0,
                    ..Untagged::send(FIRST, &[])
                }
                .ulpdu()
            },
            UNTAGGED_VERSION,
        ),
        other(
            "queue 77",
            "RFC 5041, 7.1",
            |_| {
                Untagged {
                    queue: 77,
                    ..Untagged::send(FIRST, &[])
                }
                .ulpdu()
            },
            QUEUE,
        ),
        other(
            "a Read Response to nothing",
            "RFC 5040, 5.2.1",
            |_| Tagged::response(1, 0, b"data").ulpdu(),
            OPCODE,
        ),
        other("an empty ULPDU", "RFC 5044, 4", |_| Vec::new(), CATASTROPHE),
        other(
            "invalidation of a handle one off",
            "RFC 5040, 7.2",
            |call| {
                let word = call.segment().handle ^ 1;
                Untagged {
                    opcode: SEND_INVALIDATE,
                    word,
                    ..Untagged::send(FIRST, &stray(call))
                }
                .ulpdu()
            },
            INVALIDATE,
        ),
        case(
            "more messages in one go than there are receives",
            "RFC 5041, 7.1",
            Ask::Null,
            // They wait until there are receives, and are discarded.
            vec![Hear, Burst(200, stray)],
            Lives,
        )
        .costing(1 << 20),
        other(
            "a Terminate",
            "RFC 5040, 5.4",
            |_| Untagged::terminate(&[0x12, 1, 0, 0]).ulpdu(),
            Closed,
        ),
        case(
            "a storm of Terminates",
            "RFC 5040, 5.4",
            Ask::Read,
            vec![
                Hear,
                Bytes(fpdu(&Untagged::terminate(&[0x12, 1, 0, 0]).ulpdu(), false).repeat(1000)),
            ],
            Closed,
        ),
        case(
            "FIN instead of an answer",
            "RFC 5040, 6.2",
            Ask::Read,
            vec![Hear, Shut],
            Closed,
        ),
        case(
            "RST instead of an answer",
            "RFC 5040, 6.2",
            Ask::Read,
            vec![Hear, Abort],
            Left,
        ),
        case(
            "FIN in the middle of an FPDU",
            "RFC 5044, 4",
            Ask::Read,
            vec![Hear, Bytes(vec![0, 60, 0x41, 0x43, 0, 0]), Shut],
            Closed,
        ),
        case(
            "an answer one byte at a time",
            "RFC 5044, 4",
            Ask::Null,
            vec![Hear, TrickleAnswer],
            Lives,
        ),
        case(
            "a CRC that is wrong",
            "RFC 5044, 4.4",
            Ask::Read,
            vec![
                Hear,
                Bytes({
                    let mut bytes = fpdu(&Untagged::send(FIRST, b"x").ulpdu(), true);
                    let last = bytes.len() - 1;
                    bytes[last] ^= 0x80;
                    bytes
                }),
            ],
            BAD_CRC,
        )
        .honest(Until::CallWithCrc),
    ];
    cases.extend(invalidations());
    cases
}

/// Returns the cases of invalid invalidations of handles.
fn invalidations() -> Vec<Case> {
    let section = "RFC 8797, 4.1";
    let with = |name, script: Vec<Step>, end| case(name, section, Ask::Read, script, end);
    vec![
        with(
            "control: an answer that invalidates a handle of its call",
            vec![
                Hear,
                Answer(|answer| {
                    answer.invalidate = Some(answer.header.writes[0][0].handle);
                }),
            ],
            Lives,
        ),
        with(
            "a handle invalidated twice",
            vec![
                Hear,
                Answer(|answer| {
                    answer.invalidate = Some(answer.header.writes[0][0].handle);
                    answer.repeat = 2;
                }),
            ],
            INVALIDATE,
        ),
        with(
            "the last handle instead of the first",
            vec![
                Hear,
                Answer(|answer| {
                    answer.invalidate = Some(answer.header.writes[0][1].handle);
                }),
            ],
            Lives,
        ),
        with(
            "a handle invalidated before its memory is written",
            vec![
                Hear,
                Segment(|call| {
                    let word = call.segment().handle;
                    let send = Untagged::send(FIRST, &stray(call));
                    Untagged {
                        opcode: SEND_INVALIDATE,
                        word,
                        ..send
                    }
                    .ulpdu()
                }),
                Said(1),
                Answer(|_| {}),
            ],
            STAG,
        ),
    ]
}
