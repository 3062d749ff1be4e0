//! Private data (RFC 8797), and its absence (RFC 8166, section 3.3.3).

use super::{expect, nfs};
use crate::case::{Case, Ground, Level, Step, case, memory};
use crate::expect::{Expect, success};
use crate::wire::mpa::PRIVATE_DATA;
use crate::wire::{rpc, v1};

const ANSWER: &str = "a connection, and an answer to the first call";

/// Returns the cases.
pub(super) fn cases(ground: &Ground) -> Vec<Case> {
    let row = |section, number, sends: &str, private: &[u8]| {
        let xid = ground.xid();
        let script = vec![
            Step::Connect(private.to_vec()),
            Step::Send(v1::header(xid).with(&rpc::null(xid).bytes())),
            expect(Expect::Reply(success(xid, &[]))),
        ];
        case(section, number, sends, ANSWER, script)
    };
    let with = |at: usize, value: u8| {
        let mut private = PRIVATE_DATA;
        private[at] = value;
        private
    };
    let longest = [0xf6, 0xab, 0x0e, 0x18, 1, 1, 255, 255];
    vec![
        row("RFC 8797, 5.1", 1, "no private data", &[]),
        row("RFC 8797, 4", 1, "private data", &PRIVATE_DATA),
        row("RFC 8797, 4", 2, "all reserved flags", &with(5, 0xff)),
        row("RFC 8797, 4.2", 1, "sizes of 256 KiB", &longest),
        row(
            "RFC 8797, 4.2",
            2,
            "sizes of 1 KiB",
            &[0xf6, 0xab, 0x0e, 0x18, 1, 1, 0, 0],
        ),
        row(
            "RFC 8797, 5.2",
            1,
            "another format identifier",
            &with(0, 0xf7),
        ),
        row("RFC 8797, 5.2", 2, "version 2 of the format", &with(4, 2)),
        row(
            "RFC 8797, 5.2",
            3,
            "six bytes of private data",
            &PRIVATE_DATA[..6],
        ),
        row("RFC 8797, 5.2", 4, "the format behind five other bytes", &{
            [&[1, 2, 3, 4, 5][..], &PRIVATE_DATA].concat()
        }),
        row(
            "RFC 8797, 5.2",
            5,
            "200 bytes without the identifier",
            &[0xf6; 200],
        )
        .level(Level::Robustness),
        plain_sends(ground),
    ]
}

/// A client without remote invalidation. [`crate::run`] checks that no message invalidates.
fn plain_sends(ground: &Ground) -> Case {
    let data = super::content(1, 4096);
    let room = memory(0, 4096);
    let mut script = vec![Step::Connect(vec![0xf6, 0xab, 0x0e, 0x18, 1, 0, 3, 3])];
    script.extend(nfs::stored(ground, 0, &data));
    let (xid, message) = nfs::read(ground, 0, room.length, &[&[room]], None);
    script.extend([
        Step::Room(room),
        Step::Send(message),
        expect(Expect::Reply(success(xid, &[0]))),
        Step::Holds(room.handle, data),
    ]);
    let sends = "WRITE and READ with chunks by a client without remote invalidation";
    case("RFC 8797, 4.1", 1, sends, "replies in plain Sends", script)
}
