//! A client that lies about the memory that the server reads (RFC 5040, section 5.2; RFC 8166,
//! section 3.4.5).

use super::ends::*;
use super::{accepted, after, memory, on};
use crate::End::{self, Closed, Left, Lives, Reset};
use crate::client::{Case, Step, Step::*, case, refused, success};
use crate::rig::content;
use crate::wire::ddp::{ReadRequest, Tagged, Untagged};
use crate::wire::mpa::Frame;
use crate::wire::rpc;
use crate::wire::v1::{self, Segment};

/// The bytes of the WRITE whose data the server reads.
const LEN: u32 = 8192;

/// Encodes a WRITE of [`LEN`] bytes whose data is in these read segments.
pub(super) fn write(file: &[u8], xid: u32, segments: &[Segment]) -> Vec<u8> {
    write_of(file, xid, LEN, segments)
}

/// Encodes a WRITE of `len` bytes.
fn write_of(file: &[u8], xid: u32, len: u32, segments: &[Segment]) -> Vec<u8> {
    let mut call = rpc::nfs(xid, 7, rpc::write_args(file, 0x10_0000, len));
    call.credential = rpc::root();
    let payload = call.bytes();
    let position = payload.len() as u32;
    let mut header = v1::header(xid);
    header.reads = segments
        .iter()
        .map(|segment| (position, *segment))
        .collect();
    header.with(&payload)
}

/// Returns a case with a WRITE and an incorrect answer to the Read Request for its data.
fn lie(
    file: &[u8],
    name: &'static str,
    end: End,
    ulpdus: fn(&ReadRequest) -> Vec<Vec<u8>>,
) -> Case {
    let chunk = memory(0, LEN);
    let call = Send(write(file, 0x0bad_0000, &[chunk]));
    case(
        name,
        "RFC 5040, 5.2",
        on(vec![call, Cheat(chunk, ulpdus)]),
        end,
    )
}

fn right(request: &ReadRequest) -> Tagged {
    Tagged::response(request.sink, request.sink_offset, &content(1, LEN as usize))
}

pub(super) fn cases(file: &[u8]) -> Vec<Case> {
    let chunk = memory(0, LEN);
    let halves = [memory(0, 4096), memory(1, 4096)];
    let half = content(2, 4096);
    let begin = |xid| -> Step { Send(write(file, xid, &[chunk])) };
    vec![
        case(
            "control: a WRITE by read chunk",
            "RFC 8166, 3.4.5",
            on(vec![
                begin(0x0bad_0001),
                Serve(chunk, content(1, LEN as usize)),
                Hear(success(0x0bad_0001, &[0])),
            ]),
            Lives,
        ),
        case(
            "control: the same in two segments, answered in turn",
            "RFC 8166, 3.4.5",
            on(vec![
                Send(write(file, 0x0bad_0002, &halves)),
                Serve(halves[0], half.clone()),
                Serve(halves[1], half.clone()),
                Hear(success(0x0bad_0002, &[0])),
            ]),
            Lives,
        ),
        lie(file, "a response to another handle", STAG, |request| {
            vec![
                Tagged {
                    stag: request.sink ^ 1,
                    ..right(request)
                }
                .ulpdu(),
            ]
        }),
        lie(file, "a response to another offset", BOUNDS, |request| {
            vec![
                Tagged {
                    offset: request.sink_offset + 1,
                    ..right(request)
                }
                .ulpdu(),
            ]
        }),
        lie(file, "a response to an offset below", BOUNDS, |request| {
            vec![
                Tagged {
                    offset: request.sink_offset.wrapping_sub(1),
                    ..right(request)
                }
                .ulpdu(),
            ]
        }),
        lie(file, "a response that ends too soon", BOUNDS, |request| {
            let payload = vec![1; LEN as usize - 1];
            vec![
                Tagged {
                    payload,
                    ..right(request)
                }
                .ulpdu(),
            ]
        }),
        lie(file, "a response of nothing", BOUNDS, |request| {
            vec![
                Tagged {
                    payload: Vec::new(),
                    ..right(request)
                }
                .ulpdu(),
            ]
        }),
        lie(file, "a response one byte too long", BOUNDS, |request| {
            let payload = vec![1; LEN as usize + 1];
            vec![
                Tagged {
                    payload,
                    ..right(request)
                }
                .ulpdu(),
            ]
        }),
        lie(file, "a response that does not end", BOUNDS, |request| {
            vec![
                Tagged {
                    last: false,
                    ..right(request)
                }
                .ulpdu(),
            ]
        }),
        lie(
            file,
            "a response with its second half first",
            BOUNDS,
            |request| {
                let half = Tagged::response(request.sink, request.sink_offset + 4096, &[1; 4096]);
                vec![
                    Tagged {
                        last: false,
                        ..half
                    }
                    .ulpdu(),
                ]
            },
        ),
        lie(
            file,
            "a response with its first half twice",
            BOUNDS,
            |request| {
                let half = Tagged::response(request.sink, request.sink_offset, &[1; 4096]);
                let half = Tagged {
                    last: false,
                    ..half
                }
                .ulpdu();
                vec![half.clone(), half]
            },
        ),
        case(
            "a response twice",
            "RFC 5040, 5.2",
            on(vec![
                Send(write(file, 0x0bad_0003, &[memory(0, LEN)])),
                Cheat(chunk, |request| vec![right(request).ulpdu()]),
                Hear(success(0x0bad_0003, &[0])),
                Segment(Tagged::response(1, 0, &[1; 64]).ulpdu()),
            ]),
            OPCODE,
        ),
        case(
            "responses in the wrong order",
            "RFC 5040, 5.5",
            on(vec![
                Send(write(file, 0x0bad_0004, &halves)),
                // The server requests both before the first is answered; this answers the second.
                Cheat(halves[0], |_| vec![]),
                Cheat(halves[1], |request| {
                    vec![Tagged::response(request.sink, request.sink_offset, &[1; 4096]).ulpdu()]
                }),
            ]),
            STAG,
        ),
        lie(
            file,
            "a Read answered with an RDMA Write to its sink",
            STAG,
            |request| vec![Tagged::write(request.sink, request.sink_offset, &[1; 64]).ulpdu()],
        ),
        lie(file, "a Read refused", Closed, |_| {
            vec![Untagged::terminate(&[0x01, 0x00, 0, 0]).ulpdu()]
        }),
        case(
            "FIN instead of an answer",
            "RFC 5040, 6.2",
            on(vec![begin(0x0bad_0005), Cheat(chunk, |_| vec![]), Shut]),
            Closed,
        ),
        case(
            "RST instead of an answer",
            "RFC 5040, 6.2",
            on(vec![begin(0x0bad_0006), Cheat(chunk, |_| vec![]), Abort]),
            Left,
        ),
        case(
            "RST in the middle of an answer",
            "RFC 5040, 6.2",
            on(vec![
                begin(0x0bad_0007),
                Cheat(chunk, |request| {
                    vec![
                        Tagged {
                            last: false,
                            ..Tagged::response(request.sink, request.sink_offset, &[1; 100])
                        }
                        .ulpdu(),
                    ]
                }),
                Abort,
            ]),
            Left,
        ),
        case(
            "a Send in the middle of an answer",
            "RFC 5041, 5.1",
            on(vec![
                begin(0x0bad_0008),
                Cheat(chunk, |request| {
                    let at = request.sink_offset;
                    let first = Tagged::response(request.sink, at, &[1; 4096]);
                    let second = Tagged::response(request.sink, at + 4096, &[2; 4096]);
                    vec![
                        Tagged {
                            last: false,
                            ..first
                        }
                        .ulpdu(),
                        Untagged::send(2, &super::null(9)).ulpdu(),
                        second.ulpdu(),
                    ]
                }),
                Said(1),
                Hear(success(9, &[])),
                Hear(success(0x0bad_0008, &[0])),
            ]),
            Lives,
        ),
        case(
            "no RDMA Reads allowed, and a call that needs one",
            "RFC 6581, 9.1",
            after(
                Frame {
                    depths: Some((0, 1)),
                    ..Frame::request()
                },
                Frame {
                    depths: Some((1, 0)),
                    ..accepted()
                },
                vec![begin(0x0bad_0009)],
            ),
            LOCAL,
        ),
        case(
            "a chunk of 100 segments of one byte",
            "RFC 8166, 3.4.5",
            on({
                let segment = |n: u32| v1::segment(0x5100_0000 + n, 1, u64::from(n) << 33);
                let segments: Vec<Segment> = (0..100).map(segment).collect();
                let call = write_of(file, 0x0bad_000a, 100, &segments);
                let mut steps = vec![Send(call)];
                steps.extend((0..100).map(|n| Serve(segment(n), vec![n as u8])));
                steps.push(Hear(success(0x0bad_000a, &[0])));
                steps
            }),
            Lives,
        ),
        case(
            "a chunk of the same segment a hundred times",
            "RFC 8166, 3.4.5",
            on({
                let same = memory(0, 1000);
                vec![
                    Send(write_of(file, 0x0bad_000b, 100_000, &[same; 100])),
                    Repeat(100, vec![Serve(same, vec![3; 1000])]),
                    Hear(success(0x0bad_000b, &[0])),
                ]
            }),
            Lives,
        ),
        case(
            "a chunk shorter than the item it holds",
            "RFC 8166, 3.4.5",
            on(vec![
                Send(write(file, 0x0bad_000c, &[memory(0, 8)])),
                Serve(memory(0, 8), vec![1; 8]),
                Hear(refused(0x0bad_000c, &[4])),
            ]),
            Lives,
        ),
        case(
            "a chunk longer than the item it holds",
            "RFC 8166, 3.4.5",
            on(vec![
                Send(write(file, 0x0bad_000d, &[memory(0, LEN + 4)])),
                Serve(memory(0, LEN + 4), vec![1; LEN as usize + 4]),
                Hear(refused(0x0bad_000d, &[4])),
            ]),
            Lives,
        ),
        case(
            "a long call of another XID",
            "RFC 8166, 4.2.1",
            on({
                let call = rpc::null(1).bytes();
                vec![
                    long(2, call.len() as u32),
                    Serve(memory(2, 40), call),
                    ErrChunk(2),
                ]
            }),
            Lives,
        ),
        case(
            "a long call of zeroes",
            "RFC 8166, 4.2.1",
            on(vec![
                long(2, 400),
                Serve(memory(2, 400), vec![0; 400]),
                ErrChunk(2),
            ]),
            Lives,
        ),
        case(
            "a long call that is a reply",
            "RFC 5531, 9",
            on({
                let reply = rpc::accepted(2, 0, &[]);
                vec![long(2, reply.len() as u32), Serve(memory(2, 24), reply)]
            }),
            Closed,
        ),
        case(
            "more calls than granted, while their data is awaited",
            "RFC 8166, 3.3.1",
            on(vec![Repeat(17, vec![begin(0x0bad_000e)])]),
            Reset,
        )
        .costing(1 << 20),
        case(
            "as many calls as granted, and no data",
            "RFC 8166, 3.3.1",
            on(vec![
                Repeat(16, vec![begin(0x0bad_000f)]),
                Repeat(16, vec![Cheat(chunk, |_| vec![])]),
                Shut,
            ]),
            Closed,
        )
        .costing(1 << 20),
        case(
            "more data asked to be fetched than the server has room for",
            "RFC 8166, 3.4.5",
            on({
                // 16 calls of 255 KiB each, whose data the server reads one after the other.
                let mut header = v1::header(0x0bad_0010);
                header.reads = vec![(40, memory(0, 255 << 10))];
                let call = header.with(&rpc::nfs(0x0bad_0010, 7, Vec::new()).bytes());
                vec![
                    Repeat(16, vec![Send(call)]),
                    Cheat(memory(0, 255 << 10), |_| vec![]),
                    Turn,
                    Shut,
                ]
            }),
            Closed,
        ),
    ]
}

/// Sends RDMA_NOMSG with a Position Zero Read chunk of `len` bytes.
fn long(xid: u32, len: u32) -> Step {
    let mut header = v1::header(xid);
    header.procedure = v1::NOMSG;
    header.reads = vec![(0, memory(2, len))];
    Send(header.with(&[]))
}
