//! NFS calls of a case's user, with and without chunks (RFC 8267, section 4).

use super::content;
use crate::case::{Ground, Step, memory};
use crate::expect::{Expect, success};
use crate::wire::rpc;
use crate::wire::v1::{self, Header, Segment};

/// Procedure numbers of NFS version 3.
pub(super) const LOOKUP: u32 = 3;
pub(super) const READ: u32 = 6;
pub(super) const WRITE: u32 = 7;
pub(super) const CREATE: u32 = 8;
pub(super) const SYMLINK: u32 = 10;
/// The memory that [`stored`] offers.
const STORE: u32 = 14;

/// Returns an RPC call of the user, encoded.
pub(super) fn call(ground: &Ground, xid: u32, procedure: u32, args: Vec<u8>) -> Vec<u8> {
    let mut call = rpc::nfs(xid, procedure, args);
    call.credential = ground.credential();
    call.bytes()
}

/// Returns a READ of the file with these chunks: its XID and its message.
pub(super) fn read(
    ground: &Ground,
    offset: u64,
    count: u32,
    writes: &[&[Segment]],
    reply: Option<&[Segment]>,
) -> (u32, Vec<u8>) {
    let xid = ground.xid();
    let header = Header {
        writes: writes.iter().map(|chunk| chunk.to_vec()).collect(),
        reply: reply.map(<[Segment]>::to_vec),
        ..v1::header(xid)
    };
    let args = rpc::read_args(&ground.file, offset, count);
    (xid, header.with(&call(ground, xid, READ, args)))
}

/// Returns a WRITE to the file whose data is in a Read chunk of these segments: its XID and its message.
pub(super) fn write(ground: &Ground, offset: u64, count: u32, chunk: &[Segment]) -> (u32, Vec<u8>) {
    let xid = ground.xid();
    let payload = call(
        ground,
        xid,
        WRITE,
        rpc::write_args(&ground.file, offset, count),
    );
    let position = payload.len() as u32;
    let header = Header {
        reads: chunk.iter().map(|segment| (position, *segment)).collect(),
        ..v1::header(xid)
    };
    (xid, header.with(&payload))
}

/// Returns a WRITE to the file with its data inline, as an RPC message: its XID and the message.
pub(super) fn whole_write(ground: &Ground, offset: u64, data: &[u8]) -> (u32, Vec<u8>) {
    let xid = ground.xid();
    let mut args = rpc::write_args(&ground.file, offset, data.len() as u32);
    args.extend(padded(data));
    (xid, call(ground, xid, WRITE, args))
}

/// Returns bytes with their round-up.
pub(super) fn padded(data: &[u8]) -> Vec<u8> {
    let mut out = data.to_vec();
    out.resize(data.len().next_multiple_of(4), 0);
    out
}

/// Returns bytes with their round-up as words, after the word for their length.
pub(super) fn opaque_words(data: &[u8]) -> Vec<u32> {
    let mut words = vec![data.len() as u32];
    let padded = padded(data);
    let chunks = padded.chunks_exact(4);
    words.extend(chunks.map(|it| it.iter().fold(0, |word, byte| word << 8 | u32::from(*byte))));
    words
}

/// Returns data for [`stored`]: what a file begins with that may only be read, or bytes that depend on a seed.
pub(super) fn data(ground: &Ground, seed: u32, len: usize) -> Vec<u8> {
    let held = ground.held.get(..len).filter(|it| !it.is_empty());
    held.map_or_else(|| content(seed, len), <[u8]>::to_vec)
}

/// Returns the steps that write `data` into the file by a Read chunk: none, if the file begins with it already.
pub(super) fn stored(ground: &Ground, offset: u64, data: &[u8]) -> Vec<Step> {
    if offset == 0 && !data.is_empty() && ground.held.starts_with(data) {
        return Vec::new();
    }
    let segment = memory(STORE, data.len() as u32);
    let (xid, message) = write(ground, offset, data.len() as u32, &[segment]);
    vec![
        Step::Offer(segment, data.to_vec()),
        Step::Send(message),
        Step::Expect(vec![Expect::Reply(success(xid, &[0]))]),
    ]
}

/// Returns content of the file with `data` written over its beginning. It ends where an XDR unit ends, so that
/// cases about other things than round-up read it without any.
pub(super) fn overlaid(before: &[u8], data: &[u8]) -> Vec<u8> {
    [data, &before[data.len()..]].concat()
}

/// Returns the steps that read `data` from the file by a Write chunk of just its length.
pub(super) fn compared(ground: &Ground, offset: u64, data: &[u8]) -> Vec<Step> {
    let room = memory(STORE - 1, data.len() as u32);
    let (xid, message) = read(ground, offset, room.length, &[&[room]], None);
    let reply = success(xid, &[0]).ends(&[room.length]);
    vec![
        Step::Room(room),
        Step::Send(message),
        Step::Expect(vec![Expect::Reply(reply)]),
        Step::Holds(room.handle, data.to_vec()),
    ]
}
