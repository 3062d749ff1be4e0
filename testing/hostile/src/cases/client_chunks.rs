//! Invalid chunk lists, and valid ones that are not used (RFC 8166, sections 3.4 and 4.3).

use super::judged::judged;
use super::{accepted, after, memory, on};
use crate::End::Lives;
use crate::client::{Case, Step::*, case, success};
use crate::wire::mpa::Frame;
use crate::wire::rpc;
use crate::wire::v1::{self, Header, NOMSG, Segment};

/// The XID of the invalid call.
const XID: u32 = 0x0bad;
/// The position of the arguments of a call without credentials, which is the end of NULL.
const END: u32 = rpc::CALL_HEADER;
/// The length of the RPC reply header of a successful call, bytes.
const REPLY_HEADER: u32 = 24;

/// Encodes a NULL call with these chunk lists.
fn message(header: Header) -> Vec<u8> {
    header.with(&rpc::null(XID).bytes())
}

/// Returns a case with a NULL call with these chunk lists that is answered with ERR_CHUNK.
fn err_chunk(name: &'static str, section: &'static str, header: Header) -> Case {
    case(
        name,
        section,
        on(vec![Send(message(header)), ErrChunk(XID)]),
        Lives,
    )
}

/// Returns a case with a NULL call with this Read list that is answered with ERR_CHUNK.
fn reads(name: &'static str, list: &[(u32, Segment)]) -> Case {
    let reads = list.to_vec();
    err_chunk(
        name,
        "RFC 8166, 3.4.5",
        Header {
            reads,
            ..v1::header(XID)
        },
    )
}

/// Returns a case with an RDMA_NOMSG message with this Read list and payload that is answered with
/// ERR_CHUNK.
fn long(name: &'static str, list: &[(u32, Segment)], payload: &[u8]) -> Case {
    let header = Header {
        procedure: NOMSG,
        reads: list.to_vec(),
        ..v1::header(XID)
    };
    let steps = vec![Send(header.with(payload)), ErrChunk(XID)];
    case(name, "RFC 8166, 4.2.4", on(steps), Lives)
}

/// Encodes a READ of `count` bytes with these chunks.
fn read(file: &[u8], count: u32, writes: &[&[Segment]], reply: Option<Segment>) -> Vec<u8> {
    let mut call = rpc::nfs(XID, 6, rpc::read_args(file, 0, count));
    call.credential = rpc::root();
    let header = Header {
        writes: writes.iter().map(|chunk| chunk.to_vec()).collect(),
        reply: reply.map(|segment| vec![segment]),
        ..v1::header(XID)
    };
    header.with(&call.bytes())
}

fn of(segment: Segment, length: u32) -> Segment {
    Segment { length, ..segment }
}

pub(super) fn cases(file: &[u8]) -> Vec<Case> {
    let all = |length| memory(0, length);
    let header = || v1::header(XID);
    let mut cases = judged(rpcrdma_conform::cases::lists);
    cases.extend([
        reads(
            "a chunk one byte longer than any call",
            &[(END, all((256 << 10) - END + 1))],
        ),
        long(
            "a long call longer than any",
            &[(0, all((256 << 10) + 4))],
            &[],
        ),
        case(
            "more segments than a reply's header has room for",
            "RFC 8166, 4.5.3",
            after(
                Frame {
                    // The client receives 1024 bytes, and sends 4096.
                    private: vec![0xf6, 0xab, 0x0e, 0x18, 1, 1, 3, 0],
                    ..Frame::request()
                },
                accepted(),
                vec![
                    Send(message(Header {
                        writes: vec![vec![all(8); 70]],
                        ..header()
                    })),
                    ErrChunk(XID),
                ],
            ),
            Lives,
        ),
    ]);
    cases.extend(replies(file));
    cases
}

/// Returns the cases of the server's use of Write chunks and Reply chunks.
fn replies(file: &[u8]) -> Vec<Case> {
    let all = |length| memory(0, length);
    let most = all(u32::MAX);
    let data = || crate::rig::content(0, 0);
    vec![
        case(
            "a write chunk of 4 GiB, and no result for it",
            "RFC 8166, 4.3.2.2",
            on(vec![
                Send(message(Header {
                    writes: vec![vec![most; 16]],
                    ..v1::header(XID)
                })),
                Hear(success(XID, &[]).returning(&[&[all(0); 16]])),
            ]),
            Lives,
        ),
        case(
            "a reply chunk of 64 GiB, and a short reply",
            "RFC 8166, 4.3.3",
            on(vec![
                Send(message(Header {
                    reply: Some(vec![most; 16]),
                    ..v1::header(XID)
                })),
                Hear(success(XID, &[]).with_reply_chunk(&[all(0); 16])),
            ]),
            Lives,
        ),
        case(
            "the same memory in every list",
            "RFC 8166, 3.4",
            on({
                let payload = rpc::Call {
                    credential: rpc::root(),
                    ..rpc::nfs(XID, 7, rpc::write_args(file, 0x10_0000, 8))
                };
                let payload = payload.bytes();
                let header = Header {
                    reads: vec![(payload.len() as u32, all(8))],
                    writes: vec![vec![all(8)], vec![all(8)]],
                    reply: Some(vec![all(8)]),
                    ..v1::header(XID)
                };
                let reply = success(XID, &[0]).returning(&[&[all(0)], &[all(0)]]);
                vec![
                    Send(header.with(&payload)),
                    Serve(all(8), vec![0; 8]),
                    Hear(reply.with_reply_chunk(&[all(0)])),
                ]
            }),
            Lives,
        ),
        case(
            "control: a READ of nothing, by write chunk",
            "RFC 8166, 4.3.2",
            on(vec![
                Send(read(file, 0, &[&[all(64)]], None)),
                Hear(success(XID, &[0]).returning(&[&[all(0)]])),
                Placed(all(0).handle, all(0).offset, data()),
            ]),
            Lives,
        ),
        case(
            "control: a READ by write chunk",
            "RFC 8166, 4.3.2",
            on(vec![
                Send(super::client_reads::write(file, XID + 1, &[all(8192)])),
                Serve(all(8192), crate::rig::content(3, 8192)),
                Hear(success(XID + 1, &[0])),
                Send(read_there(file, &[memory(1, 3000), memory(2, 6000)])),
                Hear(
                    success(XID, &[0]).returning(&[&[memory(1, 3000), of(memory(2, 6000), 5192)]]),
                ),
            ]),
            Lives,
        ),
        case(
            "a write chunk one byte too short",
            "RFC 8166, 4.5.3",
            on(vec![
                Send(super::client_reads::write(file, XID + 2, &[all(8192)])),
                Serve(all(8192), crate::rig::content(3, 8192)),
                Hear(success(XID + 2, &[0])),
                Send(read_there(file, &[all(8191)])),
                ErrChunk(XID),
                Placed(0, 0, Vec::new()),
            ]),
            Lives,
        ),
        case(
            "a write chunk of empty segments",
            "RFC 8166, 4.5.3",
            on(vec![
                Send(read_there(file, &[all(0); 4])),
                ErrChunk(XID),
                Placed(0, 0, Vec::new()),
            ]),
            Lives,
        ),
        case(
            "no chunk for a reply that is too long",
            "RFC 8166, 4.5.3",
            on(vec![Send(read_there(file, &[])), ErrChunk(XID)]),
            Lives,
        ),
        case(
            "a reply chunk that is too short",
            "RFC 8166, 4.5.3",
            on(vec![
                Send(read_at(file, &[], Some(all(8192)))),
                ErrChunk(XID),
                Placed(0, 0, Vec::new()),
            ]),
            Lives,
        ),
        case(
            "control: a READ by reply chunk",
            "RFC 8166, 3.5.3",
            on(vec![
                Send(read_at(file, &[], Some(all(9000)))),
                Hear(success(XID, &[]).long().with_reply_chunk(&[
                    // RPC header, status, attributes, count, eof, length, data.
                    all(REPLY_HEADER + 4 + 88 + 12 + 8192),
                ])),
            ]),
            Lives,
        ),
        case(
            "a READ of 4 GiB into 4 GiB",
            "RFC 8166, 4.3.2",
            on(vec![
                Send(read(file, u32::MAX, &[&[most]], None)),
                // The length of the file.
                HearAnyReply(XID),
            ]),
            Lives,
        )
        .costing(3 << 20),
    ]
}

/// Encodes a READ of the data that the cases write.
fn read_there(file: &[u8], chunk: &[Segment]) -> Vec<u8> {
    match chunk {
        [] => read_at(file, &[], None),
        _ => read_at(file, &[chunk], None),
    }
}

fn read_at(file: &[u8], writes: &[&[Segment]], reply: Option<Segment>) -> Vec<u8> {
    let mut call = rpc::nfs(XID, 6, rpc::read_args(file, 0x10_0000, 8192));
    call.credential = rpc::root();
    let header = Header {
        writes: writes.iter().map(|chunk| chunk.to_vec()).collect(),
        reply: reply.map(|segment| vec![segment]),
        ..v1::header(XID)
    };
    header.with(&call.bytes())
}
