//! Calls with chunks (version-two-07, sections 4.5, 6.3.5, 6.3.7, 6.5 and 7.3), sent to a server:
//! the cases of `rpcrdma conform`, and those that depend on this server's limits or transfer data.

use super::*;
use crate::cases::judged::judged_wg;
use crate::cases::{memory, segment_words as words};
use crate::client::Case;
use crate::rig::content;
use crate::wire::v1::Segment;
use crate::wire::wg::{
    CALL_EXTERNAL, CALL_INLINE, ERR_BAD_XDR, ERR_READ_CHUNKS, ERR_SEGMENTS, ERR_SYSTEM,
    ERR_WRITE_CHUNKS, REPLY_EXTERNAL, REPLY_INLINE,
};

const READS: &str = "version-two-07, 4.5.1";
const WRITES: &str = "version-two-07, 4.5.2";
const EXTERNAL: &str = "version-two-07, 6.3.5";

/// The number of data bytes of a WRITE and of a READ.
const LEN: u32 = 4096;
/// The file offset of WRITEs. Other cases read the bytes before.
const WRITTEN: u64 = 1 << 20;
/// The bytes of an RPC reply and READ results before the data.
const RESULTS: u32 = 24 + 4 + 4 + 84 + 4 + 4 + 4;

/// Returns a WRITE whose data is in a read chunk.
fn write(file: &[u8]) -> Right {
    let call = nfs(XID, 7, rpc::write_args(file, WRITTEN, LEN));
    let source = memory(0, LEN);
    let fields = [&[0, 1, call.len() as u32][..], &words(source), &[0, 0, 0]].concat();
    let message = wg::message(XID, CALL_INLINE, &fields, &call);
    let good = vec![
        Serve(source, content(5, LEN as usize)),
        HearWords(wg::success(XID, &[0]), true),
    ];
    Right::new("WRITE with a read chunk", READS, message, good)
}

/// Returns the steps that expect the results of a READ with one write chunk, in which `len` bytes
/// are.
fn returned(sink: Segment, len: u32) -> Vec<Step> {
    let used = Segment {
        length: len,
        ..sink
    };
    let header = [XID, VERSION, 0, REPLY_INLINE, 1, 1];
    let reply = [0, XID, 1, 0, 0, 0, 0, 0];
    vec![
        HearWords([&header[..], &words(used), &reply].concat(), true),
        PlacedLength(sink.handle, sink.offset, len as usize),
    ]
}

/// Returns a READ with a write chunk and a reply chunk, which the reply does not need.
fn read(file: &[u8]) -> Right {
    let call = nfs(XID, 6, rpc::read_args(file, 0, LEN));
    let (sink, long) = (memory(1, LEN), memory(2, 8192));
    let writes = [&[1, 1][..], &words(sink), &[0]].concat();
    let fields = [&[0, 0][..], &writes, &[1, 1], &words(long)].concat();
    let message = wg::message(XID, CALL_INLINE, &fields, &call);
    Right::new(
        "READ with a write chunk",
        WRITES,
        message,
        returned(sink, LEN),
    )
}

/// Returns a NULL call in a call chunk, with a reply chunk that its reply does not need.
fn external() -> Right {
    let call = rpc::null(XID).bytes();
    let (source, long) = (memory(0, call.len() as u32), memory(2, 8192));
    let chunk = [&[1, 0][..], &words(source), &[0]].concat();
    let fields = [&[0][..], &chunk, &[0, 0, 1, 1], &words(long)].concat();
    let message = wg::message(XID, CALL_EXTERNAL, &fields, &[]);
    let good = vec![Serve(source, call), HearWords(wg::success(XID, &[]), false)];
    Right::new("a call in a call chunk", EXTERNAL, message, good)
}

pub(in crate::cases) fn cases(file: &[u8]) -> Vec<Case> {
    let mut cases = judged_wg(rpcrdma_conform::cases::wg::chunks, file);
    cases.extend(read_chunks(file));
    cases.extend(write_chunks(file));
    cases.extend(external_calls());
    cases.extend(many(file));
    cases.extend(handles(file));
    cases
}

fn read_chunks(file: &[u8]) -> Vec<Case> {
    const HANDLE: &str = "rdma_reads[0].rdma_handle";
    const LENGTH: &str = "rdma_reads[0].rdma_length";
    const OFFSET: &str = "rdma_reads[0].rdma_offset";
    let right = write(file);
    let mut cases = vec![right.control()];
    cases.extend(right.rows(&[
        ("rdma_inv_handle", 1, bad()),
        (LENGTH, u32::MAX, Error(vec![ERR_SYSTEM])),
        (LENGTH, (256 << 10) + 1, Error(vec![ERR_SYSTEM])),
    ]));
    // Another handle and another offset are as good as these.
    let elsewhere = |handle: u32, offset: u64| {
        let source = Segment {
            handle,
            length: LEN,
            offset,
        };
        let mut other = right.clone();
        other.good[0] = Serve(source, content(5, LEN as usize));
        other
    };
    let at = memory(0, LEN);
    for handle in [at.handle + 1, u32::MAX] {
        cases.push(elsewhere(handle, at.offset).with(HANDLE, handle, &Good));
    }
    cases.push(elsewhere(at.handle, at.offset + 4).with(OFFSET, at.offset as u32 + 4, &Good));
    // A data item that is shorter or longer than the call says is the upper layer's to refuse.
    cases.extend(right.cut(&[16], &bad()));
    cases
}

fn write_chunks(file: &[u8]) -> Vec<Case> {
    const SEGMENTS: &str = "rdma_provisional_writes[0].rdma_target";
    const REPLY: &str = "rdma_provisional_reply.rdma_target";
    const REPLY_LENGTH: &str = "rdma_provisional_reply.rdma_length";
    let right = read(file);
    let mut cases = vec![right.control()];
    cases.extend(right.rows(&[
        // The reply chunk then has the number of segments that is the XID.
        (
            "rdma_provisional_writes[0]",
            0,
            Error(vec![ERR_SEGMENTS, 256]),
        ),
        (SEGMENTS, 257, bad()),
        (SEGMENTS, u32::MAX, Error(vec![ERR_SEGMENTS, 256])),
        (REPLY, u32::MAX, Error(vec![ERR_SEGMENTS, 256])),
        ("rdma_provisional_reply.rdma_handle", 0x5f00_0001, Good),
        (REPLY_LENGTH, 0, Good),
        (REPLY_LENGTH, u32::MAX, Good),
        ("rdma_provisional_reply.rdma_offset", 4, Good),
    ]));
    // Data that does not fit its chunk comes within the reply, which is continued (errata-07, 48).
    for length in [0, 1, LEN - 1] {
        let mut short = right.clone();
        let sink = memory(1, length);
        let unused = Segment { length: 0, ..sink };
        let chunk = [&[1, 1][..], &words(unused), &[0]].concat();
        short.good = vec![HearParts(XID, chunk)];
        let name = format!("a write chunk of {length} bytes for {LEN}");
        let message = right.set("rdma_provisional_writes[0].rdma_length", length);
        cases.push(short.instead(name, message, &Good));
    }
    // The reply needs the reply chunk if there is no write chunk.
    let long = memory(2, 8192);
    let call = nfs(XID, 6, rpc::read_args(file, 0, LEN));
    let whole = RESULTS + LEN;
    let used = Segment {
        length: whole,
        ..long
    };
    let fields = [&[0, 0, 0, 1, 1][..], &words(long)].concat();
    let external = [
        &[XID, VERSION, 0, REPLY_EXTERNAL, 0, 1, 1][..],
        &words(used),
    ]
    .concat();
    cases.push(row(
        "control: READ into a reply chunk",
        "version-two-07, 6.6.3",
        vec![wg::message(XID, CALL_INLINE, &fields, &call)],
        vec![external],
    ));
    let last = cases.len() - 1;
    let placed = PlacedLength(long.handle, long.offset, whole as usize);
    cases[last].script.push(placed);
    for length in [0, whole - 1] {
        let short = memory(2, length);
        let fields = [&[0, 0, 0, 1, 1][..], &words(short)].concat();
        cases.push(script(
            format!("a reply chunk of {length} bytes for {whole}"),
            "version-two-07, 6.6.4",
            on_wg(vec![
                Send(wg::message(XID, CALL_INLINE, &fields, &call)),
                HearParts(XID, vec![0]),
            ]),
            Lives,
        ));
    }
    cases
}

fn external_calls() -> Vec<Case> {
    const LENGTH: &str = "rdma_call[0].rdma_length";
    let right = external();
    let len = rpc::null(XID).bytes().len() as u32;
    let mut cases = vec![right.control()];
    cases.extend(right.rows(&[
        ("rdma_xid", XID, Good),
        ("rdma_inv_handle", memory(0, 0).handle, Good),
        (LENGTH, 0, bad()),
        (LENGTH, u32::MAX, bad()),
        (LENGTH, (256 << 10) + 1, bad()),
        (LENGTH, (256 << 10) + 4, Error(vec![ERR_SYSTEM])),
        (LENGTH, u32::MAX - 3, Error(vec![ERR_SYSTEM])),
        (
            "rdma_provisional_reply.rdma_target",
            u32::MAX,
            Error(vec![ERR_SEGMENTS, 256]),
        ),
    ]));
    cases.extend(right.varied(&[("rdma_inv_handle", &[9])], |field, value| {
        let is_bad = match field {
            "rdma_inv_handle" => true,
            // FALSE is the end of a list, and TRUE another element, of which some are `conform`'s cases.
            "rdma_reads[0]" | "rdma_provisional_writes[0]" | "rdma_provisional_reply" => value > 1,
            _ => false,
        };
        is_bad.then(bad)
    }));
    cases.extend(right.cut(&[16], &bad()));
    let whole = &right.message;
    let behind = |bytes: &[u8]| [&whole[..], bytes].concat();
    let source = memory(0, len);
    let list = |position: u32, at: Segment| [&[1, position][..], &words(at)].concat();
    let call = |fields: &[&[u32]]| wg::message(XID, CALL_EXTERNAL, &fields.concat(), &[]);
    cases.extend([
        right.instead(
            "a payload in two places",
            behind(&rpc::null(XID).bytes()),
            &bad(),
        ),
        right.instead("one byte behind RDMA2_CALL_EXTERNAL", behind(&[0]), &bad()),
        right.instead(
            "position zero in the read list of RDMA2_CALL_EXTERNAL",
            call(&[
                &[0],
                &list(0, source),
                &[0],
                &list(0, memory(1, 8)),
                &[0, 0, 0],
            ]),
            &bad(),
        ),
        right.instead(
            "position zero in the read list of RDMA2_CALL_INLINE",
            {
                let fields = [&[0][..], &list(0, source), &[0, 0, 0]].concat();
                wg::message(XID, CALL_INLINE, &fields, &rpc::null(XID).bytes())
            },
            &bad(),
        ),
        right.instead(
            "an item behind the call chunk",
            call(&[
                &[0],
                &list(0, source),
                &[0],
                &list(len + 4, memory(1, 8)),
                &[0, 0, 0],
            ]),
            &bad(),
        ),
        right.instead(
            "call chunks of 4 GiB together",
            call(&[
                &[0],
                &list(0, memory(0, 1 << 31)),
                &list(0, memory(1, 1 << 31)),
                &[0, 0, 0, 0],
            ]),
            &Error(vec![ERR_SYSTEM]),
        ),
        script(
            "a call chunk with another call",
            "version-two-07, 7.2",
            on_wg(vec![
                Send(right.message.clone()),
                Serve(source, rpc::null(XID + 1).bytes()),
                HearWords(wg::answer(XID, &[ERR_BAD_XDR]), false),
            ]),
            Lives,
        ),
        script(
            "a call chunk with a reply",
            "version-two-07, 7.2",
            on_wg(vec![
                Send(right.message.clone()),
                Serve(source, [rpc::accepted(XID, 0, &[]), vec![0; 16]].concat()),
                HearWords(wg::answer(XID, &[ERR_BAD_XDR]), false),
            ]),
            Lives,
        ),
        script(
            "a call chunk that is not answered",
            EXTERNAL,
            on_wg(vec![Send(right.message.clone()), Turn, Abort]),
            End::Left,
        ),
    ]);
    cases
}

/// Returns the cases of more chunks and segments than the server takes.
fn many(file: &[u8]) -> Vec<Case> {
    let null = rpc::null(XID).bytes();
    let call = nfs(XID, 6, rpc::read_args(file, 0, LEN));
    let end = null.len() as u32;
    let inline = |fields: Vec<u32>, payload: &[u8]| wg::message(XID, CALL_INLINE, &fields, payload);
    let reads = |count: u32, position: &dyn Fn(u32) -> u32, length: u32| {
        let mut fields = vec![0];
        for n in 0..count {
            fields.extend([1, position(n)]);
            fields.extend(words(memory(n % 8, length)));
        }
        fields.extend([0, 0, 0]);
        inline(fields, &null)
    };
    let writes = |count: u32, segments: u32| {
        let mut fields = vec![0, 0];
        for _ in 0..count {
            fields.extend([1, segments]);
            for n in 0..segments {
                fields.extend(words(memory(n % 8, 8)));
            }
        }
        fields.extend([0, 0]);
        inline(fields, &null)
    };
    let bad = &[ERR_BAD_XDR][..];
    let unused = |segments: u32| {
        let all = (0..segments).flat_map(|n| words(memory(n % 8, 0)));
        [1, segments].into_iter().chain(all).chain([0]).collect()
    };
    vec![
        refused(
            "a read list of 255 segments of 4 GiB",
            READS,
            reads(255, &|_| end, u32::MAX),
            &[ERR_SYSTEM],
        ),
        refused(
            "a read list of 257 segments",
            "version-two-07, 7.3.3",
            reads(257, &|_| end, 4),
            &[ERR_SEGMENTS, 256],
        ),
        refused(
            "a read list of 1000 segments",
            "version-two-07, 7.3.3",
            reads(1000, &|_| end, 4),
            &[ERR_SEGMENTS, 256],
        ),
        refused(
            "257 segments in three write chunks",
            "version-two-07, 7.3.3",
            writes(3, 86),
            &[ERR_SEGMENTS, 256],
        ),
        refused(
            "a write list of 17 chunks",
            "version-two-07, 7.3.2",
            writes(17, 1),
            &[ERR_WRITE_CHUNKS, 16],
        ),
        refused(
            "a write list of 200 empty chunks",
            "version-two-07, 7.3.2",
            writes(200, 0),
            &[ERR_WRITE_CHUNKS, 16],
        ),
        refused(
            "placed items and a read chunk",
            "version-two-07, 7.3.1",
            {
                let fields = [&[0, 1, 40][..], &words(memory(0, 8)), &[0, 0, 0, 0, 40]].concat();
                wg::message(XID, wg::CALL_PLACED, &fields, &null)
            },
            &[ERR_READ_CHUNKS, 0],
        ),
        script(
            "a list of segments that ends with the message, a thousand times",
            "version-two-07, 7.2.1",
            on_wg(vec![Repeat(
                1000,
                vec![
                    Send(wg::message(XID, CALL_INLINE, &[0, 0, 1, 200], &[0; 64])),
                    HearWords(wg::answer(XID, bad), false),
                ],
            )]),
            Lives,
        ),
        script(
            "READ for a chunk of segments of one byte",
            WRITES,
            on_wg(vec![
                Send({
                    let mut fields = vec![0, 0, 1, 200];
                    for n in 0..200 {
                        fields.extend(words(memory(n % 8, 1)));
                    }
                    fields.extend([0, 0]);
                    inline(fields, &call)
                }),
                HearParts(XID, unused(200)),
            ]),
            Lives,
        ),
    ]
}

/// Returns the cases of `rdma_inv_handle`.
fn handles(file: &[u8]) -> Vec<Case> {
    const SECTION: &str = "version-two-07, 6.5";
    const HANDLE: &str = "rdma_inv_handle";
    let (mut right, mut read) = (write(file), read(file));
    (right.section, read.section) = (SECTION, SECTION);
    let (source, sink, long) = (memory(0, LEN), memory(1, LEN), memory(2, 8192));
    let mut cases = vec![
        right.with(HANDLE, source.handle, &Good),
        right.with(HANDLE, source.handle + 1, &bad()),
        right.with(HANDLE, sink.handle, &bad()),
        right.with(HANDLE, u32::MAX, &bad()),
        read.with(HANDLE, sink.handle, &Good),
        read.with(HANDLE, long.handle, &Good),
        read.with(HANDLE, source.handle, &bad()),
    ];
    // The same handle is offered by two calls at once: each reply invalidates its own.
    let (one, two) = (nfs(XID, 0, vec![]), nfs(XID + 1, 0, vec![]));
    let fields = [&[sink.handle, 0, 1, 1][..], &words(sink), &[0, 0]].concat();
    cases.push(script(
        "one handle for two calls at once",
        SECTION,
        on_wg(vec![
            Send(wg::message(XID, CALL_INLINE, &fields, &one)),
            Send(wg::message(XID + 1, CALL_INLINE, &fields, &two)),
            HearType(REPLY_INLINE),
            HearType(REPLY_INLINE),
        ]),
        Lives,
    ));
    cases
}
