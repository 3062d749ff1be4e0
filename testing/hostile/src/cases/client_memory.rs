//! A hostile client that accesses memory which was not offered: RDMA Writes, RDMA Reads and
//! invalidations (RFC 5041, section 7.1; RFC 5040, section 7.2).

use super::client_segments::{request, untagged};
use super::ends::*;
use super::{null, on};
use crate::End::{self, Lives};
use crate::client::{Case, Step::*, case};
use crate::wire::ddp::{
    READ_REQUEST, SEND, SEND_INVALIDATE, SEND_SOLICITED_INVALIDATE, Tagged, Untagged,
};

/// Returns a case with one invalid tagged segment.
fn tagged(name: &'static str, section: &'static str, segment: Tagged, end: End) -> Case {
    case(name, section, on(vec![Segment(segment.ulpdu())]), end)
}

pub(super) fn cases() -> Vec<Case> {
    let read = || Untagged::read_request(1, &request(0xdead, 1));
    let write = |stag| Tagged::write(stag, 0x1000, b"overwritten");
    vec![
        tagged(
            "a tagged Send",
            "RFC 5040, 4.1",
            Tagged {
                opcode: SEND,
                ..write(0)
            },
            OPCODE,
        ),
        tagged(
            "a tagged Read Request",
            "RFC 5040, 4.1",
            Tagged {
                opcode: READ_REQUEST,
                ..write(0)
            },
            OPCODE,
        ),
        tagged(
            "tagged opcode 9",
            "RFC 5040, 4.1",
            Tagged {
                opcode: 9,
                ..write(0)
            },
            OPCODE,
        ),
        case(
            "invalidation of a handle nobody gave",
            "RFC 5040, 7.2",
            on(vec![SendAs(SEND_INVALIDATE, 0xdead, null(1))]),
            INVALIDATE,
        ),
        case(
            "invalidation of handle 0",
            "RFC 5040, 7.2",
            on(vec![SendAs(SEND_INVALIDATE, 0, null(1))]),
            INVALIDATE,
        ),
        case(
            "the same with Solicited Event",
            "RFC 5040, 7.2",
            on(vec![SendAs(SEND_SOLICITED_INVALIDATE, u32::MAX, null(1))]),
            INVALIDATE,
        ),
        tagged(
            "an RDMA Write to a handle nobody gave",
            "RFC 5041, 7.1",
            write(0xdead),
            STAG,
        ),
        tagged("an RDMA Write to handle 0", "RFC 5041, 7.1", write(0), STAG),
        tagged(
            "an RDMA Write that passes the address space",
            "RFC 5041, 7.1",
            Tagged {
                offset: u64::MAX,
                ..write(7)
            },
            STAG,
        ),
        case(
            "a thousand RDMA Writes of nothing",
            "RFC 5041, 5.2",
            on(vec![Repeat(
                1000,
                vec![Segment(Tagged::write(0xdead, u64::MAX, &[]).ulpdu())],
            )]),
            Lives,
        ),
        untagged(
            "an RDMA Read of a handle nobody gave",
            "RFC 5040, 7.2",
            read(),
            READ_STAG,
        ),
        case(
            "an RDMA Read of nothing of a handle nobody gave",
            "RFC 5040, 5.2.1",
            on(vec![
                Segment(Untagged::read_request(1, &request(0xdead, 0)).ulpdu()),
                HearNothingRead(1),
            ]),
            Lives,
        ),
        untagged(
            "an RDMA Read of 4 GiB",
            "RFC 5040, 7.2",
            Untagged::read_request(1, &request(0, u32::MAX)),
            READ_STAG,
        ),
        untagged(
            "a Read Request at offset 4",
            "RFC 5041, 7.1",
            Untagged {
                offset: 4,
                ..read()
            },
            OFFSET,
        ),
        untagged(
            "a Read Request with MSN 2",
            "RFC 5041, 4.3",
            Untagged { msn: 2, ..read() },
            MSN,
        ),
        untagged(
            "a Read Request of 29 bytes",
            "RFC 5040, 4.4",
            Untagged {
                payload: vec![0; 29],
                ..read()
            },
            TOO_LONG,
        ),
        untagged(
            "a Read Request of 27 bytes",
            "RFC 5040, 4.4",
            Untagged {
                payload: vec![0; 27],
                ..read()
            },
            CATASTROPHE,
        ),
        untagged(
            "a Read Request that goes on",
            "RFC 5040, 4.4",
            Untagged {
                last: false,
                ..read()
            },
            CATASTROPHE,
        ),
        tagged(
            "a Read Response to nothing",
            "RFC 5040, 5.2.1",
            Tagged::response(1, 0, b"data"),
            OPCODE,
        ),
        tagged(
            "an empty Read Response to nothing",
            "RFC 5040, 5.2.1",
            Tagged::response(1, 0, &[]),
            OPCODE,
        ),
        tagged(
            "DDP version 0 of a tagged segment",
            "RFC 5041, 4.1",
            Tagged { ddp: 0, ..write(0) },
            TAGGED_VERSION,
        ),
    ]
}
