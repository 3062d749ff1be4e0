//! Data of NFS replies in chunks (RFC 8166, sections 3.4.6, 3.5.3 and 4.3).

use super::nfs::{self, opaque_words, stored};
use super::{FIRST_ERR_CHUNK, arguments, expect, on};
use crate::case::{Case, Ground, Level, Step, case, memory};
use crate::expect::{Expect, Reply, refused, success};
use crate::wire::rpc;
use crate::wire::v1::{self, Header, Segment};

/// `accept_stat` SYSTEM_ERR.
const SYSTEM_ERR: u32 = 5;
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
        arguments::cases(ground),
    ]
    .concat()
}

/// Stores data, reads it by a Write chunk of these segments, and checks what is returned and written.
fn read_into(ground: &Ground, seed: u32, length: u32, rooms: &[Segment]) -> Vec<Step> {
    let data = nfs::data(ground, seed, length as usize);
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

/// Returns a chunk none of which is used.
fn emptied(chunk: &[Segment]) -> Vec<Segment> {
    chunk.iter().map(|it| of(*it, 0)).collect()
}

/// Returns the reply with these chunks, none of which is used.
fn unused_by(reply: Reply, writes: &[&[Segment]], chunk: Option<&[Segment]>) -> Expect {
    let writes: Vec<Vec<Segment>> = writes.iter().map(|it| emptied(it)).collect();
    let writes: Vec<&[Segment]> = writes.iter().map(Vec::as_slice).collect();
    let reply = reply.returning(&writes);
    Expect::Reply(match chunk {
        Some(chunk) => reply.with_chunk(&emptied(chunk)),
        None => reply,
    })
}

/// Chunks that the reply need not use.
fn unused(ground: &Ground) -> Vec<Case> {
    let null = |writes: &[&[Segment]], reply: Option<&[Segment]>, rooms: &[Segment]| {
        let xid = ground.xid();
        let header = Header {
            writes: writes.iter().map(|chunk| chunk.to_vec()).collect(),
            reply: reply.map(<[Segment]>::to_vec),
            ..v1::header(xid)
        };
        let mut steps: Vec<Step> = rooms.iter().map(|it| Step::Room(*it)).collect();
        steps.push(Step::Send(header.with(&rpc::null(xid).bytes())));
        let mut allowed = vec![unused_by(success(xid, &[]), writes, reply)];
        match reply {
            None => {
                steps.push(Step::Expect(allowed));
                steps.extend(rooms.iter().map(|it| Step::Holds(it.handle, Vec::new())));
            }
            // "The Responder MAY return the RPC Reply message as a Short message rather than using the
            // Requester-provided Reply chunk" (section 4.3.3).
            Some(chunk) => {
                allowed.push(Expect::Reply(success(xid, &[]).long()));
                steps.push(Step::Expect(allowed));
                let handles = chunk.iter().map(|it| it.handle).collect();
                steps.push(Step::Message(handles, success(xid, &[])));
            }
        }
        on(steps)
    };
    let returned = "the chunk returned with lengths of zero";
    let either =
        "the reply inline, or in the chunk, and the chunk returned with the lengths that are used";
    let (one, two, long) = (memory(0, 4096), memory(1, 4096), memory(0, 2 << 20));
    let data = nfs::data(ground, 20, 4096);
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
    let short = nfs::data(ground, 21, 301);
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
            either,
            null(&[], Some(&[one, two]), &[one, two]),
        ),
        case(
            "RFC 8166, 4.3.3",
            2,
            "NULL with a Reply chunk of 2 MiB",
            either,
            null(&[], Some(&[long]), &[long]),
        )
        .needs("rfc8166/4.3.3/1"),
    ]
}

fn reply_chunks(ground: &Ground) -> Vec<Case> {
    let row = |number, sends: &str, length: u32, rooms: &[Segment]| {
        let data = nfs::data(ground, 30 + number, length as usize);
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
        let data = nfs::data(ground, 40 + number, 8192);
        let (xid, message) = nfs::read(ground, 0, 8192, writes, reply);
        let mut steps = stored(ground, 0, &data);
        steps.extend(rooms.iter().map(|room| Step::Room(*room)));
        // ERR_CHUNK is for calls for which "no RPC-level reply is possible": this is one.
        let no_result = unused_by(refused(xid, &[SYSTEM_ERR]), writes, reply);
        let allowed = vec![Expect::ErrChunk(xid), no_result, Expect::Closed];
        steps.extend([Step::Send(message), Step::Expect(allowed)]);
        let expects = "ERR_CHUNK, SYSTEM_ERR with the chunk unused, or the end of the connection, and no RDMA Write \
                       beyond the chunk";
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
