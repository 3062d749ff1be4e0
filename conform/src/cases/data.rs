//! Data of NFS calls and replies in chunks (RFC 8166, sections 3.4, 3.5 and 4.3; RFC 8267, section 4).

use super::nfs::{self, compared, opaque_words, overlaid, padded, stored};
use super::{FIRST_ERR_CHUNK, content, expect, on};
use crate::case::{Case, Ground, Level, Step, case, memory};
use crate::expect::{Expect, refused, success};
use crate::wire::v1::{self, Header, NOMSG, Segment};
use crate::wire::{Xdr, rpc};

/// `accept_stat` GARBAGE_ARGS.
const GARBAGE_ARGS: u32 = 4;
/// The address of the plain READ by a Write chunk.
const FIRST_READ: &str = "rfc8166/4.3.2/1";

fn of(segment: Segment, length: u32) -> Segment {
    Segment { length, ..segment }
}

/// Returns the cases.
pub(super) fn cases(ground: &Ground) -> Vec<Case> {
    [
        write_chunks(ground),
        unused(ground),
        reply_chunks(ground),
        too_short(ground),
        read_chunks(ground),
        long_calls(ground),
        names(ground),
    ]
    .concat()
}

/// Stores data, reads it by a Write chunk of these segments, and checks what is returned and written.
fn read_into(ground: &Ground, seed: u32, length: u32, rooms: &[Segment]) -> Vec<Step> {
    let data = content(seed, length as usize);
    let (xid, message) = nfs::read(ground, 0, length, &[rooms], None);
    let mut steps = stored(ground, 0, &data);
    steps.extend(rooms.iter().map(|room| Step::Room(*room)));
    let (mut returned, mut holds, mut rest) = (Vec::new(), Vec::new(), &data[..]);
    for room in rooms {
        let (here, after) = rest.split_at(rest.len().min(room.length as usize));
        returned.push(of(*room, here.len() as u32));
        holds.push(Step::Holds(room.handle, here.to_vec()));
        rest = after;
    }
    let reply = success(xid, &[0]).ends(&[length]).returning(&[&returned]);
    steps.extend([Step::Send(message), expect(Expect::Reply(reply))]);
    steps.extend(holds);
    on(steps)
}

fn write_chunks(ground: &Ground) -> Vec<Case> {
    let row = |section, number, sends: &str, expects, length, rooms: &[Segment]| {
        let script = read_into(ground, number, length, rooms);
        case(section, number, sends, expects, script)
    };
    let whole = "the data in the chunk, and its length returned";
    let exact = "exactly the data in the chunk, and its length returned";
    vec![
        row(
            "RFC 8166, 4.3.2",
            1,
            "READ of 8192 bytes by a Write chunk",
            whole,
            8192,
            &[memory(0, 8192)],
        ),
        row(
            "RFC 8166, 3.4.6",
            10,
            "READ of 8192 bytes by a Write chunk of 3000 and 6000 bytes",
            "segments filled in order, and 3000 and 5192 returned",
            8192,
            &[memory(0, 3000), memory(1, 6000)],
        )
        .needs(FIRST_READ),
        row(
            "RFC 8166, 3.4.6",
            11,
            "READ of 4096 bytes by a Write chunk of two times 4096",
            "the first segment filled, and 4096 and 0 returned",
            4096,
            &[memory(0, 4096), memory(1, 4096)],
        )
        .needs(FIRST_READ),
        row(
            "RFC 8166, 3.4.6",
            12,
            "READ of 4096 bytes by a Write chunk of 64 KiB",
            "4096 returned",
            4096,
            &[memory(0, 65_536)],
        )
        .needs(FIRST_READ),
        row(
            "RFC 8166, 3.4.6.2",
            1,
            "READ of 8191 bytes by a Write chunk of 8192",
            exact,
            8191,
            &[memory(0, 8192)],
        )
        .needs(FIRST_READ),
        row(
            "RFC 8166, 3.4.6.2",
            2,
            "READ of 4097 bytes by a Write chunk of 8192",
            exact,
            4097,
            &[memory(0, 8192)],
        )
        .needs(FIRST_READ),
    ]
}

/// Chunks that the reply does not use.
fn unused(ground: &Ground) -> Vec<Case> {
    let null = |writes: &[&[Segment]], reply: Option<&[Segment]>, rooms: &[Segment]| {
        let xid = ground.xid();
        let header = Header {
            writes: writes.iter().map(|chunk| chunk.to_vec()).collect(),
            reply: reply.map(<[Segment]>::to_vec),
            ..v1::header(xid)
        };
        let empty = |chunk: &[Segment]| chunk.iter().map(|it| of(*it, 0)).collect::<Vec<_>>();
        let emptied: Vec<Vec<Segment>> = writes.iter().map(|chunk| empty(chunk)).collect();
        let emptied: Vec<&[Segment]> = emptied.iter().map(Vec::as_slice).collect();
        let mut expected = success(xid, &[]).returning(&emptied);
        if let Some(chunk) = reply {
            expected = expected.with_chunk(&empty(chunk));
        }
        let mut steps: Vec<Step> = rooms.iter().map(|it| Step::Room(*it)).collect();
        steps.push(Step::Send(header.with(&rpc::null(xid).bytes())));
        steps.push(expect(Expect::Reply(expected)));
        steps.extend(rooms.iter().map(|it| Step::Holds(it.handle, Vec::new())));
        on(steps)
    };
    let returned = "the chunk returned with lengths of zero";
    let (one, two, long) = (memory(0, 4096), memory(1, 4096), memory(0, 2 << 20));
    let data = content(20, 4096);
    let second = {
        let (xid, message) = nfs::read(ground, 0, 4096, &[&[one], &[two]], None);
        let reply = success(xid, &[0])
            .ends(&[4096])
            .returning(&[&[one], &[of(two, 0)]]);
        let mut steps = stored(ground, 0, &data);
        steps.extend([
            Step::Room(one),
            Step::Room(two),
            Step::Send(message),
            expect(Expect::Reply(reply)),
        ]);
        steps.extend([
            Step::Holds(one.handle, data.clone()),
            Step::Holds(two.handle, Vec::new()),
        ]);
        on(steps)
    };
    let short = content(21, 301);
    let inline = {
        let (xid, message) = nfs::read(ground, 0, 301, &[&[]], None);
        let reply = success(xid, &[0])
            .ends(&opaque_words(&short))
            .returning(&[&[]]);
        let mut steps = stored(ground, 0, &short);
        steps.extend([Step::Send(message), expect(Expect::Reply(reply))]);
        on(steps)
    };
    vec![
        case(
            "RFC 8166, 4.3.2.2",
            1,
            "NULL with a Write chunk",
            returned,
            null(&[&[one]], None, &[one]),
        ),
        case(
            "RFC 8166, 4.3.2.2",
            2,
            "READ with two Write chunks",
            "the data in the first, and the second returned with a length of zero",
            second,
        )
        .needs(FIRST_READ),
        case(
            "RFC 8166, 4.3.2.3",
            1,
            "READ with an empty Write chunk",
            "the data inline, and the chunk empty",
            inline,
        ),
        case(
            "RFC 8166, 4.3.3",
            1,
            "NULL with a Reply chunk",
            returned,
            null(&[], Some(&[one, two]), &[one, two]),
        ),
        case(
            "RFC 8166, 4.3.3",
            2,
            "NULL with a Reply chunk of 2 MiB",
            returned,
            null(&[], Some(&[long]), &[long]),
        )
        .needs("rfc8166/4.3.3/1"),
    ]
}

fn reply_chunks(ground: &Ground) -> Vec<Case> {
    let row = |number, sends: &str, length: u32, rooms: &[Segment]| {
        let data = content(30 + number, length as usize);
        let (xid, message) = nfs::read(ground, 0, length, &[], Some(rooms));
        let mut steps = stored(ground, 0, &data);
        steps.extend(rooms.iter().map(|room| Step::Room(*room)));
        let handles = rooms.iter().map(|room| room.handle).collect();
        let inner = success(xid, &[0]).ends(&opaque_words(&data));
        steps.extend([
            Step::Send(message),
            expect(Expect::Reply(success(xid, &[]).long())),
            Step::Message(handles, inner),
        ]);
        let expects =
            "RDMA_NOMSG, the reply in the chunk with its round-up, and its length returned";
        case("RFC 8166, 3.5.3", number, sends, expects, on(steps))
    };
    vec![
        row(
            10,
            "READ of 8192 bytes by a Reply chunk",
            8192,
            &[memory(0, 9000)],
        ),
        row(
            11,
            "READ of 8191 bytes by a Reply chunk",
            8191,
            &[memory(0, 9000)],
        ),
        row(
            12,
            "READ of 8192 bytes by a Reply chunk of 3000 and 6000 bytes",
            8192,
            &[memory(0, 3000), memory(1, 6000)],
        ),
        row(
            13,
            "READ of 8192 bytes by a Reply chunk of 2 MiB",
            8192,
            &[memory(0, 2 << 20)],
        ),
    ]
}

/// Chunks without room for the reply (RFC 8166, section 4.5.3).
fn too_short(ground: &Ground) -> Vec<Case> {
    let row = |number,
               sends: &str,
               writes: &[&[Segment]],
               reply: Option<&[Segment]>,
               rooms: &[Segment]| {
        let data = content(40 + number, 8192);
        let (xid, message) = nfs::read(ground, 0, 8192, writes, reply);
        let mut steps = stored(ground, 0, &data);
        steps.extend(rooms.iter().map(|room| Step::Room(*room)));
        let allowed = vec![Expect::ErrChunk(xid), Expect::Closed];
        steps.extend([Step::Send(message), Step::Expect(allowed)]);
        let expects = "ERR_CHUNK or the end of the connection, and no RDMA Write beyond the chunk";
        let case = case("RFC 8166, 4.5.3", number, sends, expects, on(steps));
        case.level(Level::Robustness)
            .may_close()
            .needs(FIRST_ERR_CHUNK)
    };
    let (short, empty) = (memory(0, 8191), memory(0, 0));
    vec![
        row(
            1,
            "READ of 8192 bytes by a Write chunk of 8191",
            &[&[short]],
            None,
            &[short],
        ),
        row(
            2,
            "READ of 8192 bytes by a Write chunk of empty segments",
            &[&[empty; 4]],
            None,
            &[empty],
        ),
        row(
            3,
            "READ of 8192 bytes by a Reply chunk of 8191",
            &[],
            Some(&[short]),
            &[short],
        ),
    ]
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
