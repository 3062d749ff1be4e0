//! Arguments of NFS calls in Read chunks, and long calls (RFC 8166, sections 3.4.5 and 3.5.3; RFC 8267, section 4).

use super::nfs::{self, compared, overlaid, padded, stored};
use super::{content, expect, on};
use crate::case::{Case, Ground, Level, Step, case, memory};
use crate::expect::{Expect, refused, success};
use crate::wire::v1::{self, Header, NOMSG};
use crate::wire::{Xdr, rpc};

/// `accept_stat` GARBAGE_ARGS.
const GARBAGE_ARGS: u32 = 4;

/// Returns the cases.
pub(super) fn cases(ground: &Ground) -> Vec<Case> {
    [read_chunks(ground), long_calls(ground), names(ground)].concat()
}

fn read_chunks(ground: &Ground) -> Vec<Case> {
    let row = |section, number, sends: &str, length: usize, parts: &[usize], extra: usize| {
        let data = content(50 + number, length);
        let source = [&data[..], &[0; 4][..extra]].concat();
        let before = content(60 + number, length.next_multiple_of(4));
        let mut steps = stored(ground, 0, &before);
        let (mut segments, mut at) = (Vec::new(), 0);
        for (n, part) in (0..).zip(parts) {
            let segment = memory(n, *part as u32);
            let end = (at + part).min(source.len());
            steps.push(Step::Offer(segment, source[at..end].to_vec()));
            segments.push(segment);
            at = end;
        }
        let (xid, message) = nfs::write(ground, 0, length as u32, &segments);
        steps.extend([
            Step::Send(message),
            expect(Expect::Reply(success(xid, &[0]))),
        ]);
        steps.extend(compared(ground, 0, &overlaid(&before, &data)));
        case(
            section,
            number,
            sends,
            "the file has these bytes",
            on(steps),
        )
    };
    let mismatch = {
        let segment = memory(0, 4096);
        let (xid, message) = nfs::write(ground, 0, 8192, &[segment]);
        let allowed = vec![
            Expect::Reply(refused(xid, &[GARBAGE_ARGS])),
            Expect::ErrChunk(xid),
        ];
        let steps = vec![
            Step::Offer(segment, vec![1; 4096]),
            Step::Send(message),
            Step::Expect(allowed),
        ];
        let sends = "WRITE of 8192 bytes whose Read chunk has 4096";
        case(
            "RFC 8166, 4.5.2",
            32,
            sends,
            "GARBAGE_ARGS or ERR_CHUNK",
            on(steps),
        )
        .level(Level::Should)
    };
    vec![
        row(
            "RFC 8166, 3.4.5",
            20,
            "WRITE of 8192 bytes by a Read chunk",
            8192,
            &[8192],
            0,
        ),
        row(
            "RFC 8166, 3.4.5",
            21,
            "WRITE of 8192 bytes by a Read chunk of three segments",
            8192,
            &[1, 4096, 4095],
            0,
        ),
        row(
            "RFC 8166, 3.4.5.2",
            1,
            "WRITE of 5 bytes by a Read chunk without round-up",
            5,
            &[5],
            0,
        ),
        row(
            "RFC 8166, 3.4.5.2",
            2,
            "WRITE of 5 bytes by a Read chunk with its round-up",
            5,
            &[8],
            3,
        ),
        row(
            "RFC 8166, 3.4.5.2",
            3,
            "WRITE of 4097 bytes by a Read chunk without round-up",
            4097,
            &[4097],
            0,
        ),
        mismatch,
    ]
}

/// Calls whose message is in a position-zero Read chunk (RFC 8166, section 3.5.3).
fn long_calls(ground: &Ground) -> Vec<Case> {
    let long = |xid, message: &[u8], parts: usize| {
        let each = message.len().div_ceil(parts).next_multiple_of(4);
        let mut steps = Vec::new();
        let mut reads = Vec::new();
        for (n, piece) in (0..).zip(message.chunks(each)) {
            let segment = memory(n, piece.len() as u32);
            steps.push(Step::Offer(segment, piece.to_vec()));
            reads.push((0, segment));
        }
        let header = Header {
            procedure: NOMSG,
            reads,
            ..v1::header(xid)
        };
        steps.push(Step::Send(header.with(&[])));
        steps
    };
    let null = {
        let xid = ground.xid();
        let mut steps = long(xid, &rpc::null(xid).bytes(), 1);
        steps.push(expect(Expect::Reply(success(xid, &[]))));
        on(steps)
    };
    let write = |seed, parts| {
        let data = content(seed, 6001);
        let (xid, message) = nfs::whole_write(ground, 0, &data);
        let before = content(seed + 1, 6004);
        let mut steps = stored(ground, 0, &before);
        steps.extend(long(xid, &message, parts));
        steps.push(expect(Expect::Reply(success(xid, &[0]))));
        steps.extend(compared(ground, 0, &overlaid(&before, &data)));
        on(steps)
    };
    let bytes = "the file has these bytes";
    vec![
        case(
            "RFC 8166, 3.5.3",
            20,
            "NULL as a long call",
            "a reply",
            null,
        ),
        case(
            "RFC 8166, 3.5.3",
            21,
            "WRITE of 6001 bytes as a long call",
            bytes,
            write(70, 1),
        ),
        case(
            "RFC 8166, 3.5.3",
            22,
            "WRITE of 6001 bytes as a long call in three segments",
            bytes,
            write(72, 3),
        ),
    ]
}

/// Items that are eligible and items that are not (RFC 8267, section 4).
fn names(ground: &Ground) -> Vec<Case> {
    let reduced = |procedure, args: Vec<u8>, item: &[u8]| {
        let xid = ground.xid();
        let segment = memory(0, item.len() as u32);
        let payload = nfs::call(ground, xid, procedure, args);
        let header = Header {
            reads: vec![(payload.len() as u32, segment)],
            ..v1::header(xid)
        };
        let steps = vec![
            Step::Offer(segment, item.to_vec()),
            Step::Send(header.with(&payload)),
        ];
        (xid, steps)
    };
    let length = |item: &[u8]| item.len() as u32;
    let target = b"a/target/of/a/link";
    let name = format!("link-{}", ground.xid());
    // Where, attributes that set nothing, and the length of the path.
    let args = Xdr::new().opaque(&ground.folder).opaque(name.as_bytes());
    let args = args.words(&[0; 6]).word(length(target)).done();
    let (link_xid, mut link) = reduced(nfs::SYMLINK, args, target);
    link.push(expect(Expect::Reply(success(link_xid, &[0]))));
    let name = padded(b"name");
    let args = Xdr::new().opaque(&ground.folder).word(length(&name)).done();
    let (name_xid, mut lookup) = reduced(nfs::LOOKUP, args, &name);
    lookup.push(Step::Expect(vec![
        Expect::Reply(refused(name_xid, &[GARBAGE_ARGS])),
        Expect::ErrChunk(name_xid),
    ]));
    vec![
        case(
            "RFC 8267, 4",
            1,
            "SYMLINK whose path is in a Read chunk",
            "NFS3_OK",
            on(link),
        ),
        case(
            "RFC 8166, 6.1",
            10,
            "LOOKUP whose name is in a Read chunk, which is not eligible",
            "GARBAGE_ARGS or ERR_CHUNK",
            on(lookup),
        ),
    ]
}
