//! Chunk lists that cannot be decoded, and lists that do not fit a call (version-two-07, sections 4.5, 6.3.5, 6.3.7
//! and 7.2.1). Nothing of them is read or written.

use super::{BAD_XDR, Changed, FIRST_BAD_XDR, Message, based, error, row};
use crate::case::{Case, Ground, Level, Step, memory};
use crate::cases::nfs;
use crate::expect::{Expect, refused};
use crate::wire::rpc;
use crate::wire::v1::Segment;
use crate::wire::wg::{self, CALL_EXTERNAL, CALL_INLINE, ERR_BAD_XDR, ERR_READ_CHUNKS, VERSION};

const READS: &str = "version-two-07, 4.5.1";
/// `accept_stat` GARBAGE_ARGS.
const GARBAGE_ARGS: u32 = 4;
/// The bytes of data of a WRITE and of a READ.
const LEN: u32 = 4096;

/// Returns the cases.
#[must_use]
pub fn cases(ground: &Ground) -> Vec<Case> {
    [
        undecodable(ground),
        positions(ground),
        beyond(ground),
        lists(ground),
    ]
    .concat()
}

fn segment(at: Segment) -> [(&'static str, u32); 4] {
    [
        ("rdma_handle", at.handle),
        ("rdma_length", at.length),
        ("rdma_offset", (at.offset >> 32) as u32),
        ("rdma_offset", at.offset as u32),
    ]
}

fn words(at: Segment) -> [u32; 4] {
    segment(at).map(|(_, value)| value)
}

/// Returns a message with an RPC call, of which the first word is a part of the header.
fn with(
    name: &'static str,
    xid: u32,
    htype: u32,
    mut fields: Vec<(&'static str, u32)>,
    call: &[u8],
) -> Message {
    fields.push(("rdma_rpc_first_word", xid));
    Message {
        rest: call[4..].to_vec(),
        ..Message::new(name, xid, htype, &fields)
    }
}

/// Returns a WRITE whose data is in a Read chunk.
fn write(ground: &Ground, xid: u32) -> Message {
    let args = rpc::write_args(&ground.file, 1 << 20, LEN);
    let call = nfs::call(ground, xid, nfs::WRITE, args);
    let mut fields = vec![
        ("rdma_inv_handle", 0),
        ("rdma_reads", 1),
        ("rdma_position", call.len() as u32),
    ];
    fields.extend(segment(memory(0, LEN)));
    fields.extend([
        ("rdma_next", 0),
        ("rdma_provisional_writes", 0),
        ("rdma_provisional_reply", 0),
    ]);
    with("WRITE with a Read chunk", xid, CALL_INLINE, fields, &call)
}

/// Returns a READ with a Write chunk and a Reply chunk.
fn read(ground: &Ground, xid: u32) -> Message {
    let args = rpc::read_args(&ground.file, 0, LEN);
    let call = nfs::call(ground, xid, nfs::READ, args);
    let mut fields = vec![
        ("rdma_inv_handle", 0),
        ("rdma_reads", 0),
        ("rdma_provisional_writes", 1),
        ("rdma_target", 1),
    ];
    fields.extend(segment(memory(1, LEN)));
    fields.extend([
        ("rdma_next", 0),
        ("rdma_provisional_reply", 1),
        ("rdma_target", 1),
    ]);
    fields.extend(segment(memory(2, 8192)));
    with(
        "READ with a Write chunk and a Reply chunk",
        xid,
        CALL_INLINE,
        fields,
        &call,
    )
}

/// Returns a NULL call in a Call chunk, with a Reply chunk.
fn external(xid: u32) -> Message {
    let len = rpc::null(xid).bytes().len() as u32;
    let mut fields = vec![
        ("rdma_inv_handle", 0),
        ("rdma_call", 1),
        ("rdma_position", 0),
    ];
    fields.extend(segment(memory(0, len)));
    fields.extend([
        ("rdma_next", 0),
        ("rdma_reads", 0),
        ("rdma_provisional_writes", 0),
        ("rdma_provisional_reply", 1),
        ("rdma_target", 1),
    ]);
    fields.extend(segment(memory(2, 8192)));
    Message::new("RDMA2_CALL_EXTERNAL", xid, CALL_EXTERNAL, &fields)
}

fn bad<'a>(ground: &'a Ground, make: &'a dyn Fn(u32) -> Message) -> Changed<'a> {
    Changed {
        ground,
        make,
        section: "version-two-07, 7.2.1",
        errors: &[ERR_BAD_XDR],
        expects: BAD_XDR,
        base: FIRST_BAD_XDR,
    }
}

/// Headers that are not of their XDR.
fn undecodable(ground: &Ground) -> Vec<Case> {
    let write = |xid| write(ground, xid);
    let read = |xid| read(ground, xid);
    let (write, read, external) = (
        bad(ground, &write),
        bad(ground, &read),
        bad(ground, &external),
    );
    const MAX: u32 = u32::MAX;
    let ends = |first: usize, last: usize| (first..=last).step_by(4).collect::<Vec<_>>();
    [
        write.fields(
            400,
            &[
                (5, 0),
                (5, 2),
                (5, MAX),
                (11, 1),
                (11, 2),
                (11, MAX),
                (12, 2),
                (13, 2),
            ],
        ),
        write.other_xids(420, &[0, 14]),
        write.cut(430, &ends(20, 56)),
        read.fields(
            500,
            &[
                (5, 2),
                (6, 2),
                (6, MAX),
                (7, 0),
                (7, 2),
                (12, 1),
                (12, 2),
                (12, MAX),
                (13, 2),
                (13, MAX),
                (14, 2),
            ],
        ),
        read.other_xids(520, &[19]),
        read.cut(530, &ends(24, 76)),
        external.fields(
            600,
            &[
                (5, 0),
                (5, 2),
                (5, MAX),
                (11, 1),
                (11, 2),
                (12, 1),
                (12, 2),
                (13, 1),
                (13, 2),
                (14, 2),
                (15, 2),
            ],
        ),
        external.cut(630, &ends(20, 76)),
    ]
    .concat()
}

/// Positions for which the text has rules but no error (errata-07, 50, 51 and 68).
fn positions(ground: &Ground) -> Vec<Case> {
    let end = write(ground, 0).fields[6].1;
    let write = |xid| write(ground, xid);
    let read = |xid| read(ground, xid);
    let of = |make, section| Changed {
        section,
        ..bad(ground, make)
    };
    let should = [
        of(&write, READS).fields(1, &[(6, 2), (6, end - 2), (6, u32::MAX)]),
        of(&read, READS).fields(10, &[(5, 1)]),
        of(&write, "version-two-07, 6.3.7").fields(1, &[(6, 0)]),
        of(&external, "version-two-07, 6.6.3").fields(1, &[(6, 4), (6, u32::MAX)]),
    ];
    let should = should.concat().into_iter();
    let robust = of(&write, READS).fields(20, &[(6, end + 4), (6, 0xffff_fffc)]);
    let robust = robust.into_iter();
    should
        .map(|case| case.level(Level::Should))
        .chain(robust.map(|case| case.level(Level::Robustness)))
        .collect()
}

/// Segments that go beyond the end of the address space.
fn beyond(ground: &Ground) -> Vec<Case> {
    let rows: [(u32, &str, Message, usize); 3] = [
        (1, "a Read segment", write(ground, ground.xid()), 9),
        (2, "a Write segment", read(ground, ground.xid()), 10),
        (
            3,
            "a segment of a Reply chunk",
            read(ground, ground.xid()),
            17,
        ),
    ];
    let one = |(number, what, mut message, at): (u32, &str, Message, usize)| {
        message.fields[at].1 = u32::MAX;
        message.fields[at + 1].1 = u32::MAX - 7;
        let xid = message.fields[0].1;
        let mut steps = message.steps(message.bytes());
        steps.push(Step::Expect(vec![error(xid, &[ERR_BAD_XDR])]));
        let sends = format!("{what} that passes the address space");
        let case = row("version-two-07, 11.1.4", number, sends, BAD_XDR, steps);
        based(case, FIRST_BAD_XDR).level(Level::Robustness)
    };
    rows.into_iter().map(one).collect()
}

/// Read lists of NULL calls, which have no arguments.
fn lists(ground: &Ground) -> Vec<Case> {
    let end = rpc::CALL_HEADER;
    let message = |xid, chunks: &[(u32, u32)]| {
        let mut fields = vec![0];
        for (n, (position, len)) in (0..).zip(chunks) {
            fields.extend([1, *position]);
            fields.extend(words(memory(n, *len)));
        }
        fields.extend([0, 0, 0]);
        wg::message(xid, CALL_INLINE, &fields, &rpc::null(xid).bytes())
    };
    let list = |section, number, sends: &str, chunks: &[(u32, u32)]| {
        let xid = ground.xid();
        let steps = vec![
            Step::Send(message(xid, chunks)),
            Step::Expect(vec![error(xid, &[ERR_BAD_XDR])]),
        ];
        based(row(section, number, sends, BAD_XDR, steps), FIRST_BAD_XDR)
    };
    let robust = |case: Case| case.level(Level::Robustness);
    let xid = ground.xid();
    let one = message(xid, &[(end, 8)]);
    let not_eligible = vec![
        Step::Send(one),
        Step::Expect(vec![
            error(xid, &[ERR_READ_CHUNKS, 0]),
            Expect::Error(xid, VERSION, vec![Some(ERR_READ_CHUNKS), None]),
            Expect::Reply(refused(xid, &[GARBAGE_ARGS])),
        ]),
    ];
    vec![
        list(
            "version-two-07, 4.5.1.1",
            1,
            "positions that decrease",
            &[(end, 8), (8, 8)],
        ),
        robust(list(
            READS,
            30,
            "Read chunks that overlap",
            &[(8, 16), (16, 8)],
        )),
        robust(list(
            READS,
            31,
            "Read chunks that overlap in their round-up",
            &[(8, 5), (12, 8)],
        )),
        robust(list(
            READS,
            32,
            "a second Read chunk behind the payload",
            &[(end, 8), (end + 12, 8)],
        )),
        row(
            "version-two-07, A.1",
            1,
            "NULL with a Read chunk, which cannot be eligible",
            "RDMA2_ERROR with READ_CHUNKS, or GARBAGE_ARGS, and no RDMA Read",
            not_eligible,
        )
        .level(Level::Should),
    ]
}
