//! Short messages up to the inline thresholds (RFC 8166, sections 3.3.2, 3.5.1 and 4.2.4).

use super::nfs::{self, opaque_words};
use super::{content, expect};
use crate::case::{Case, Ground, Level, Step, case};
use crate::expect::{Expect, success};
use crate::wire::mpa::PRIVATE_DATA;
use crate::wire::v1;

/// Returns the cases.
pub(super) fn cases(ground: &Ground) -> Vec<Case> {
    let mut cases: Vec<Case> = [
        (1, 1),
        (2, 5),
        (3, 512),
        (4, 3000),
        (5, 12_000),
        (6, 60_000),
    ]
    .into_iter()
    .map(|(number, length)| written(ground, number, length))
    .collect();
    cases.extend([
        read(ground),
        too_long(ground, true),
        too_long(ground, false),
    ]);
    cases
}

/// Returns private data with both sizes of 64 KiB.
fn sizes_of_64k() -> Step {
    let mut private = PRIVATE_DATA.to_vec();
    private.splice(6.., [63, 63]);
    Step::Connect(private)
}

/// A WRITE without chunks, whose data is read back by a Write chunk.
fn written(ground: &Ground, number: u32, length: usize) -> Case {
    let data = content(100 + number, length);
    let before = content(200 + number, length.next_multiple_of(4));
    let mut script = vec![sizes_of_64k()];
    // Data that is lost cannot be right by accident.
    script.extend(nfs::stored(ground, 0, &before));
    let (xid, message) = nfs::whole_write(ground, 0, &data);
    script.extend([
        Step::Send(v1::header(xid).with(&message)),
        expect(Expect::Reply(success(xid, &[0]))),
    ]);
    script.extend(nfs::compared(ground, 0, &nfs::overlaid(&before, &data)));
    let sends = format!("WRITE of {length} bytes inline");
    case(
        "RFC 8166, 3.5.1",
        number,
        sends,
        "the file has these bytes",
        script,
    )
}

fn read(ground: &Ground) -> Case {
    let data = nfs::data(ground, 110, 701);
    let mut script = vec![sizes_of_64k()];
    script.extend(nfs::stored(ground, 0, &data));
    let (xid, message) = nfs::read(ground, 0, 701, &[], None);
    let reply = success(xid, &[0]).ends(&opaque_words(&data)).returning(&[]);
    script.extend([Step::Send(message), expect(Expect::Reply(reply))]);
    let sends = "READ of 701 bytes without chunks";
    case(
        "RFC 8166, 3.5.1",
        10,
        sends,
        "the data inline, with its round-up of zeroes",
        script,
    )
}

/// A reply that is longer than what the client receives, with private data that says so or without any.
fn too_long(ground: &Ground, has_private: bool) -> Case {
    let receives_1k = vec![0xf6, 0xab, 0x0e, 0x18, 1, 1, 3, 0];
    let data = nfs::data(ground, 111, 2000);
    let mut script = vec![Step::Connect(if has_private {
        receives_1k
    } else {
        Vec::new()
    })];
    script.extend(nfs::stored(ground, 0, &data));
    let (xid, message) = nfs::read(ground, 0, 2000, &[], None);
    let allowed = vec![Expect::ErrChunk(xid), Expect::Closed];
    script.extend([Step::Send(message), Step::Expect(allowed)]);
    let expects = "ERR_CHUNK (4.5.3) or the end of the connection, and no longer Send";
    let (section, sends) = match has_private {
        true => (
            "RFC 8166, 4.2.4",
            "READ of 2000 bytes without a chunk by a client that receives 1024",
        ),
        false => (
            "RFC 8166, 3.3.3",
            "READ of 2000 bytes without a chunk or private data",
        ),
    };
    let number = if has_private { 30 } else { 1 };
    case(section, number, sends, expects, script)
        .level(Level::Must)
        .may_close()
        .needs(super::FIRST_ERR_CHUNK)
}
