//! Provokes each expert item of the dissector once.
//!
//! A case is a short conversation. Its last packet breaks a rule, and must be marked with it; those
//! before must not be marked. Every rule of `wireshark/rpcrdma/rules.lua` needs a case.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use super::fields::Codecs;
use super::frames::End::{Client, Server};
use super::frames::{End, Frames, Iwarp};
use super::vectors::{opaque, words};
use super::{Wireshark, root};
use crate::error::Error;

/// Something that an end sends.
enum Step {
    Send(End, Vec<u8>),
    SendWithInvalidate(End, Vec<u8>, u32),
    Write(End, (u32, u64), usize),
    /// A request to read so many bytes of the peer's memory.
    Read(End, (u32, u64), u32),
    /// The response to a read request.
    Response(End, usize),
}

use Step::{Read, Response, Send, SendWithInvalidate, Write};

/// `rdma_proc` and directions (RFC 8166, section 4.2; version-two-01, section 4.2).
pub(super) const MSG: u32 = 0;
const NOMSG: u32 = 1;
const DONE: u32 = 3;
pub(super) const CALL: u32 = 0;
pub(super) const REPLY: u32 = 1;
/// The sink of all RDMA Reads.
const SINK: (u32, u64) = (0x5151, 0);
/// The handle and the offset of memory that clients offer.
const HANDLE: u32 = 0x77;
const OFFSET: u64 = 0x1000;

/// Returns the RPC header of an NFS NULL call, or a reply that accepts it.
pub(super) fn rpc(xid: u32, direction: u32) -> Vec<u8> {
    match direction {
        CALL => words(&[xid, CALL, 2, 100_003, 3, 0, 0, 0, 0, 0]),
        _ => words(&[xid, REPLY, 0, 0, 0, 0]),
    }
}

fn segment(handle: u32, length: u32, offset: u64) -> Vec<u32> {
    vec![handle, length, (offset >> 32) as u32, offset as u32]
}

/// Returns chunk lists with one read segment.
fn read_list(position: u32, handle: u32, length: u32, offset: u64) -> Vec<u32> {
    let entry = [vec![1, position], segment(handle, length, offset)].concat();
    [entry, vec![0, 0, 0]].concat()
}

/// Returns chunk lists with one write chunk of one segment.
fn write_list(handle: u32, length: u32) -> Vec<u32> {
    [vec![0, 1, 1], segment(handle, length, OFFSET), vec![0, 0]].concat()
}

/// Encodes a message of version 1.
pub(super) fn v1(xid: u32, credit: u32, proc: u32, lists: &[u32], payload: &[u8]) -> Vec<u8> {
    [
        words(&[xid, 1, credit, proc]),
        words(lists),
        payload.to_vec(),
    ]
    .concat()
}

/// Encodes `RDMA2_MSG`.
pub(super) fn v2(xid: u32, direction: u32, lists: &[u32], payload: &[u8]) -> Vec<u8> {
    let header = words(&[xid, 2, 32, MSG, direction]);
    [header, words(lists), payload.to_vec()].concat()
}

/// Encodes `RDMA2_OPTIONAL`.
fn operation(xid: u32, direction: u32, number: u32, info: &[u8], payload: &[u8]) -> Vec<u8> {
    let mut message = words(&[xid, 2, 32, 5, direction, number]);
    opaque(&mut message, info);
    message.extend(payload);
    message
}

/// Encodes a message of the working group's version 2, which tells its receiver that it may send 32
/// messages.
fn wg(xid: u32, header_type: u32, fields: &[u32], payload: &[u8]) -> Vec<u8> {
    let header = words(&[xid, 2, 32, header_type]);
    [header, words(fields), payload.to_vec()].concat()
}

/// Header types of the working group's version 2 (version-two-07, section 6.1).
mod wg_type {
    pub(super) const ERROR: u32 = 4;
    pub(super) const GRANT: u32 = 5;
    pub(super) const CONNPROP_MIDDLE: u32 = 6;
    pub(super) const CONNPROP_FINAL: u32 = 7;
    pub(super) const CALL_EXTERNAL: u32 = 8;
    pub(super) const CALL_MIDDLE: u32 = 9;
    pub(super) const CALL_INLINE: u32 = 10;
    pub(super) const REPLY_EXTERNAL: u32 = 11;
    pub(super) const REPLY_MIDDLE: u32 = 12;
    pub(super) const REPLY_INLINE: u32 = 13;
}

/// The properties of both ends.
fn begun_wg() -> Vec<Step> {
    let client = wg(0xffff, wg_type::CONNPROP_FINAL, &[0], &[]);
    let server = wg(0xfffe, wg_type::CONNPROP_FINAL, &[0], &[]);
    vec![Send(Client, client), Send(Server, server)]
}

/// The numbers of the placement extension of the working group's version 2 (`ext-wg-ddp`).
mod placed {
    pub(super) const CALL_MIDDLE: u32 = 0xffff_ff01;
    pub(super) const CALL: u32 = 0xffff_ff02;
    /// The length of the segment in front of those for data.
    pub(super) const HEAD: usize = 1024;
    /// Receives of 4096 bytes, of which the last three segments are for data, and all abilities of
    /// a server.
    pub(super) const PROPERTIES: &[u32] = &[
        3,
        2,
        4,
        4096,
        0xffff_ff01,
        36,
        2,
        1,
        HEAD as u32,
        0,
        0,
        3,
        1024,
        8,
        1,
        0xffff_ff02,
        4,
        3,
    ];
}

/// The properties of both ends, the server's with those of the placement extension.
fn begun_wg_placing() -> Vec<Step> {
    let client = wg(0xffff, wg_type::CONNPROP_FINAL, &[0], &[]);
    let server = wg(0xfffe, wg_type::CONNPROP_FINAL, placed::PROPERTIES, &[]);
    vec![Send(Client, client), Send(Server, server)]
}

/// Returns the cases of the placement extension.
fn cases_wg_placing() -> Vec<(&'static str, Vec<Step>)> {
    let part =
        |counts: &[u32], payload: &[u8]| Send(Client, wg(2, placed::CALL_MIDDLE, counts, payload));
    let call = |length: u32, items: &[[u32; 4]], rest: &[u8]| {
        let lists = [0, 0, 0, 0, items.len() as u32];
        let fields = [&lists[..], &items.concat(), &[length]].concat();
        Send(Client, wg(2, placed::CALL, &fields, rest))
    };
    // A call with one item of 64 bytes, whose bytes may not all be there.
    let one = |item: [u32; 4], present: usize, padding: u8| {
        let mut rest = rpc(2, CALL);
        let header = 16 + 4 * 10;
        rest.resize(placed::HEAD - header, padding);
        rest.resize(placed::HEAD - header + present, 1);
        vec![call(40, &[item], &rest)]
    };
    let begun = || part(&[2, 0, 40], &rpc(2, CALL));
    vec![
        ("placed_count", vec![part(&[0, 0, 40], &rpc(2, CALL))]),
        ("placed_count", vec![begun(), call(0, &[], &[])]),
        ("remaining", vec![begun(), part(&[1, 0, 4], &[0; 4])]),
        ("placed_credits", vec![part(&[32, 0, 40], &rpc(2, CALL))]),
        ("placed_position", one([40, 0, 0, 0], 64, 0)),
        ("placed_position", one([44, 64, 0, 0], 64, 0)),
        ("placed_overlap", {
            let mut rest = rpc(2, CALL);
            rest.resize(placed::HEAD + 64 - 56, 0);
            vec![call(placed::HEAD as u32 - 52, &[[40, 64, 0, 0]], &rest)]
        }),
        ("placed_padding", one([40, 64, 0, 0], 64, 1)),
        ("placed_padding", one([40, 64, 0, 0], 65, 0)),
        ("payload_length", vec![call(44, &[], &rpc(2, CALL))]),
        ("segment_number", one([40, 64, 3, 0], 64, 0)),
        ("segment_offset", one([40, 64, 0, 4], 64, 0)),
        ("not_placed", one([40, 64, 0, 0], 63, 0)),
        (
            "part_interrupted",
            vec![
                begun(),
                Send(Client, wg(2, wg_type::CALL_INLINE, &[0; 4], &[0; 4])),
            ],
        ),
    ]
}

/// Calls without arguments, and their replies: so that 32 credits are granted.
fn begun_v1() -> Vec<Step> {
    let call = v1(1, 32, MSG, &[0, 0, 0], &rpc(1, CALL));
    let reply = v1(1, 32, MSG, &[0, 0, 0], &rpc(1, REPLY));
    vec![Send(Client, call), Send(Server, reply)]
}

fn begun_v2() -> Vec<Step> {
    let call = v2(1, CALL, &[0, 0, 0], &rpc(1, CALL));
    let reply = v2(1, REPLY, &[0, 0, 0], &rpc(1, REPLY));
    vec![Send(Client, call), Send(Server, reply)]
}

/// The numbers of operations and characteristics, from the XDR files.
struct Numbers<'a>(&'a Codecs);

impl Numbers<'_> {
    fn of(&self, name: &str) -> u32 {
        self.0.constant(name)
    }

    /// Encodes ROPT_INITXCH.
    fn initxch(&self, properties: &[(&str, Vec<u32>)]) -> Vec<u8> {
        let mut info = words(&[properties.len() as u32]);
        for (name, value) in properties {
            // Numbers that no file has are written out.
            let which = name.parse().unwrap_or_else(|_| self.of(name));
            info.extend(words(&[which]));
            opaque(&mut info, &words(value));
        }
        info.extend(words(&[0]));
        operation(0xffff, CALL, self.of("ROPT_INITXCH"), &info, &[])
    }

    /// A server that takes everything of rtrext-00: receives of 4096 bytes, and then one segment of
    /// 8192 for placement.
    fn placing(&self) -> Vec<Step> {
        let structure = vec![12_288, 2, 1, 4096, 4, 0, 1, 8192, 4096, 1];
        let properties = [
            ("XCHAR_RTRSUPP", vec![7]),
            ("XCHAR_RBSTRUCT", structure),
            ("XCHAR_BATCHMAX", vec![4]),
        ];
        let mut steps = vec![Send(Server, self.initxch(&properties))];
        steps.extend(begun_v2());
        steps
    }

    /// Encodes ROPT_XMTREQ with an RPC message of 40 bytes, of which `pslen` are said.
    fn xmtreq(&self, count: u32, pslen: u32, items: &[u32]) -> Vec<u8> {
        let info = [items, &[0, count, 0, pslen]].concat();
        operation(
            9,
            CALL,
            self.of("ROPT_XMTREQ"),
            &words(&info),
            &rpc(9, CALL),
        )
    }

    /// Encodes ROPT_XMTCONT with four bytes of payload.
    fn xmtcont(&self, xid: u32, number: u32, lead: u32) -> Vec<u8> {
        let info = words(&[number, lead, 4]);
        operation(xid, CALL, self.of("ROPT_XMTCONT"), &info, &[0; 4])
    }

    /// Returns an item of 100 bytes at position 40, placed into a segment.
    fn item(&self, offset: u32, number: u32) -> Vec<u32> {
        vec![1, 40, 100, self.of("XMDTYPE_TBSN"), offset, 1, number]
    }

    fn batch(&self, lengths: [u32; 2]) -> Vec<u8> {
        let info = words(&[2, lengths[0], lengths[1]]);
        let payload = [rpc(5, CALL), rpc(6, CALL)].concat();
        operation(5, CALL, self.of("ROPT_BATCH"), &info, &payload)
    }
}

/// Returns the cases that begin with a call and a reply of version 1.
fn cases_v1() -> Vec<(&'static str, Vec<Step>)> {
    let call = |lists: &[u32]| Send(Client, v1(2, 32, MSG, lists, &rpc(2, CALL)));
    let reply = |lists: &[u32]| Send(Server, v1(2, 32, MSG, lists, &rpc(2, REPLY)));
    let raw = |all: &[u32]| Send(Client, words(all));
    let offered = || call(&write_list(HANDLE, 100));
    vec![
        ("form", vec![raw(&[2, 1, 1, MSG, 1, 0, 5])]),
        ("short", vec![raw(&[2, 1, 1, MSG, 0])]),
        ("version", vec![raw(&[2, 3, 1, MSG, 0, 0, 0])]),
        ("retired", vec![raw(&[2, 1, 1, DONE, 0, 0, 0])]),
        ("too_long", {
            let long = [rpc(2, CALL), vec![0; 1200]].concat();
            vec![Send(Client, v1(2, 32, MSG, &[0, 0, 0], &long))]
        }),
        (
            "zero_credits",
            vec![Send(Client, v1(2, 0, MSG, &[0, 0, 0], &rpc(2, CALL)))],
        ),
        ("duplicate_xid", vec![call(&[0, 0, 0]), call(&[0, 0, 0])]),
        ("unmatched", vec![reply(&[0, 0, 0])]),
        (
            "xid",
            vec![Send(Client, v1(2, 32, MSG, &[0, 0, 0], &rpc(3, CALL)))],
        ),
        (
            "error_reported",
            vec![call(&[0, 0, 0]), Send(Server, words(&[2, 1, 32, 4, 2]))],
        ),
        (
            "unknown_handle",
            vec![offered(), Write(Server, (HANDLE + 1, OFFSET), 100)],
        ),
        (
            "unknown_handle",
            vec![offered(), Read(Server, (HANDLE + 1, OFFSET), 100)],
        ),
        // Memory may not be used after the reply.
        ("unknown_handle", {
            let used = reply(&write_list(HANDLE, 0));
            vec![offered(), used, Write(Server, (HANDLE, OFFSET), 100)]
        }),
        (
            "out_of_bounds",
            vec![offered(), Write(Server, (HANDLE, OFFSET), 101)],
        ),
        (
            "out_of_bounds",
            vec![offered(), Write(Server, (HANDLE, OFFSET - 1), 4)],
        ),
        (
            "wrong_access",
            vec![offered(), Read(Server, (HANDLE, OFFSET), 100)],
        ),
        (
            "unrequested",
            vec![
                call(&read_list(40, HANDLE, 100, OFFSET)),
                Response(Client, 100),
            ],
        ),
        ("position", vec![call(&read_list(6, HANDLE, 100, OFFSET))]),
        ("position", vec![call(&read_list(44, HANDLE, 100, OFFSET))]),
        (
            "no_payload",
            vec![Send(Client, v1(2, 32, NOMSG, &[0, 0, 0], &[]))],
        ),
        (
            "segment_wraps",
            vec![call(&read_list(40, HANDLE, 100, u64::MAX))],
        ),
        ("reply_reads", {
            let reads = read_list(0, HANDLE, 100, OFFSET);
            vec![call(&[0, 0, 0]), reply(&reads)]
        }),
        (
            "returned_chunks",
            vec![offered(), reply(&write_list(HANDLE + 1, 0))],
        ),
        (
            "wrong_length",
            vec![offered(), reply(&write_list(HANDLE, 101))],
        ),
        // More is said than was written.
        ("wrong_length", {
            let write = Write(Server, (HANDLE, OFFSET), 60);
            vec![offered(), write, reply(&write_list(HANDLE, 61))]
        }),
        ("invalidated", {
            let message = v1(2, 32, MSG, &write_list(HANDLE, 0), &rpc(2, REPLY));
            vec![offered(), SendWithInvalidate(Server, message, HANDLE + 1)]
        }),
    ]
}

/// Returns the cases that begin with a call and a reply of version 2.
fn cases_v2(numbers: &Numbers<'_>) -> Vec<(&'static str, Vec<Step>)> {
    let send = |message| vec![Send(Client, message)];
    let many = (0..33).map(|n| v2(20 + n, CALL, &[0, 0, 0], &rpc(20 + n, CALL)));
    vec![
        (
            "credits_exceeded",
            many.map(|call| Send(Client, call)).collect(),
        ),
        ("boolean", send(v2(2, CALL, &[0, 0, 2, 0], &rpc(2, CALL)))),
        (
            "round_up",
            send(words(&[2, 2, 1, 5, 0, 99, 1, 0x0102_0304])),
        ),
        ("direction", send(v2(2, REPLY, &[0, 0, 0], &rpc(2, CALL)))),
        ("unknown_operation", send(operation(2, CALL, 99, &[], &[]))),
        ("no_invalidation", {
            let call = v2(2, CALL, &write_list(HANDLE, 100), &rpc(2, CALL));
            let reply = v2(2, REPLY, &write_list(HANDLE, 0), &rpc(2, REPLY));
            vec![
                Send(Client, call),
                SendWithInvalidate(Server, reply, HANDLE),
            ]
        }),
        ("unsupported", send(numbers.xmtreq(1, 40, &[0]))),
        (
            "no_group",
            send(numbers.xmtcont(9, 1, numbers.of("ROPT_XMTREQ"))),
        ),
        ("batch_count", send(numbers.batch([40, 40]))),
        // Not the first message.
        (
            "initxch",
            send(numbers.initxch(&[("XCHAR_RBSIZ", vec![4096])])),
        ),
    ]
}

/// Returns the cases that begin with the characteristics of a server that takes everything, and
/// those in which the client's are wrong.
fn cases_placing(numbers: &Numbers<'_>) -> Vec<(&'static str, Vec<Step>)> {
    let send = |message| vec![Send(Client, message)];
    let lead = numbers.of("ROPT_XMTREQ");
    let resp = numbers.of("ROPT_XMTRESP");
    let begun = |next| {
        vec![
            Send(Client, numbers.xmtreq(3, 40, &[0])),
            Send(Client, next),
        ]
    };
    vec![
        ("group_count", send(numbers.xmtreq(0, 40, &[0]))),
        ("interrupted", begun(v2(2, CALL, &[0, 0, 0], &rpc(2, CALL)))),
        ("sequence", begun(numbers.xmtcont(9, 2, lead))),
        ("group_type", begun(numbers.xmtcont(9, 1, resp))),
        ("group_xid", begun(numbers.xmtcont(8, 1, lead))),
        ("payload_length", send(numbers.xmtreq(1, 44, &[0]))),
        (
            "segment_number",
            send(numbers.xmtreq(1, 40, &numbers.item(0, 1))),
        ),
        (
            "segment_offset",
            send(numbers.xmtreq(1, 40, &numbers.item(2, 0))),
        ),
        (
            "not_placed",
            send(numbers.xmtreq(1, 40, &numbers.item(0, 0))),
        ),
        ("batch_lengths", send(numbers.batch([40, 36]))),
    ]
}

fn cases_first(numbers: &Numbers<'_>) -> Vec<(&'static str, Vec<Step>)> {
    let send = |properties: &[_]| vec![Send(Client, numbers.initxch(properties))];
    let size = || ("XCHAR_RBSIZ", vec![4096]);
    vec![
        ("unknown_property", send(&[("77", vec![0])])),
        ("duplicate_property", send(&[size(), size()])),
        (
            "buffer_structure",
            send(&[("XCHAR_RBSTRUCT", vec![4096, 1, 1, 4092, 4, 0])]),
        ),
    ]
}

/// Returns the cases of the working group's version 2 that begin with the properties of both ends.
fn cases_wg() -> Vec<(&'static str, Vec<Step>)> {
    const NONE: &[u32] = &[0, 0, 0, 0];
    let send = |header_type, fields: &[u32], payload: &[u8]| {
        Send(Client, wg(2, header_type, fields, payload))
    };
    let one = |header_type, fields: &[u32]| vec![send(header_type, fields, &[])];
    let call = |lists: &[u32]| send(wg_type::CALL_INLINE, lists, &rpc(2, CALL));
    // A handle to invalidate, and one write chunk of 100 bytes.
    let offered = || call(&[&[HANDLE], &write_list(HANDLE, 100)[..]].concat());
    let part = || send(wg_type::CALL_MIDDLE, &[8], &rpc(2, CALL));
    let reply = |header_type, lists: &[u32]| wg(2, header_type, lists, &rpc(2, REPLY));
    let unused: Vec<u32> = write_list(HANDLE, 0)[1..8].to_vec();
    let failed = |fields: &[u32]| Send(Server, wg(2, wg_type::ERROR, fields, &[]));
    let other = |xid, header_type, fields: &[u32], payload: &[u8]| {
        Send(Client, wg(xid, header_type, fields, payload))
    };
    let read_segment = |position| [vec![1, position], segment(HANDLE, 40, OFFSET)].concat();
    let external = |position| [vec![0], read_segment(position), vec![0, 0, 0, 0]].concat();
    let many = (0..33).map(|n| other(20 + n, wg_type::CALL_INLINE, NONE, &rpc(20 + n, CALL)));
    vec![
        ("limit_exceeded", many.take(32).collect()),
        (
            "credit_range",
            vec![Send(Client, words(&[0, 2, u32::MAX, wg_type::GRANT]))],
        ),
        (
            "version_changed",
            vec![Send(Client, v1(2, 32, MSG, &[0, 0, 0], &rpc(2, CALL)))],
        ),
        ("header_type", one(14, &[])),
        ("header_type", one(MSG, NONE)),
        ("form", vec![other(0, wg_type::GRANT, &[0], &[])]),
        ("grant_xid", one(wg_type::GRANT, &[])),
        (
            "too_long",
            vec![send(
                wg_type::CALL_INLINE,
                NONE,
                &[rpc(2, CALL), vec![0; 4100]].concat(),
            )],
        ),
        ("xid", vec![send(wg_type::CALL_INLINE, NONE, &rpc(3, CALL))]),
        (
            "direction",
            vec![send(wg_type::CALL_INLINE, NONE, &rpc(2, REPLY))],
        ),
        (
            "two_payloads",
            vec![send(wg_type::CALL_EXTERNAL, &external(0), &rpc(2, CALL))],
        ),
        (
            "part_interrupted",
            vec![part(), other(3, wg_type::CALL_INLINE, NONE, &rpc(3, CALL))],
        ),
        (
            "remaining",
            vec![part(), send(wg_type::CALL_INLINE, NONE, &[0; 4])],
        ),
        (
            "remaining",
            vec![
                call(NONE),
                Send(Server, wg(2, wg_type::REPLY_MIDDLE, &[0], &rpc(2, REPLY))),
            ],
        ),
        ("properties_again", one(wg_type::CONNPROP_FINAL, &[0])),
        (
            "reverse",
            vec![Send(
                Server,
                wg(2, wg_type::CALL_INLINE, NONE, &rpc(2, CALL)),
            )],
        ),
        ("segment_size", {
            let chunk = write_list(HANDLE, (1 << 20) + 1);
            vec![call(&[&[0], &chunk[..]].concat())]
        }),
        ("segment_count", {
            let segments = vec![0; 17 * 4];
            vec![call(&[vec![0, 0, 1, 17], segments, vec![0, 0]].concat())]
        }),
        ("read_order", {
            let reads = [read_segment(40), read_segment(36)].concat();
            vec![call(&[vec![0], reads, vec![0, 0, 0]].concat())]
        }),
        (
            "position_zero",
            vec![call(&[vec![0], read_segment(0), vec![0, 0, 0]].concat())],
        ),
        ("position_zero", one(wg_type::CALL_EXTERNAL, &external(4))),
        ("body_chunk", one(wg_type::CALL_EXTERNAL, &[0; 5])),
        (
            "body_chunk",
            vec![
                call(NONE),
                Send(Server, wg(2, wg_type::REPLY_EXTERNAL, &[0, 0], &[])),
            ],
        ),
        ("inv_handle", vec![call(&[HANDLE, 0, 0, 0])]),
        ("invalidated", {
            let message = reply(wg_type::REPLY_INLINE, &unused);
            vec![offered(), SendWithInvalidate(Server, message, HANDLE + 1)]
        }),
        ("invalidated", {
            let grant = wg(0, wg_type::GRANT, &[], &[]);
            vec![offered(), SendWithInvalidate(Server, grant, HANDLE)]
        }),
        ("no_invalidation", {
            let message = reply(wg_type::REPLY_INLINE, &[0]);
            vec![call(NONE), SendWithInvalidate(Server, message, HANDLE)]
        }),
        ("error_reported", vec![call(NONE), failed(&[2])]),
        ("unmatched", vec![failed(&[2])]),
        ("contradiction", vec![offered(), failed(&[9, 2, 200])]),
        // The responder must not write bytes that fill the data up.
        ("wrong_length", {
            let used: Vec<u32> = write_list(HANDLE, 97)[1..8].to_vec();
            let message = reply(wg_type::REPLY_INLINE, &used);
            let write = Write(Server, (HANDLE, OFFSET), 100);
            vec![offered(), write, Send(Server, message)]
        }),
    ]
}

/// Returns the cases of the working group's version 2 in the exchange of properties.
fn cases_wg_first() -> Vec<(&'static str, Vec<Step>)> {
    let properties =
        |from, header_type, fields: &[u32]| Send(from, wg(0xffff, header_type, fields, &[]));
    let last = |from, fields: &[u32]| properties(from, wg_type::CONNPROP_FINAL, fields);
    let call = || {
        let message = wg(2, wg_type::CALL_INLINE, &[0, 0, 0, 0], &rpc(2, CALL));
        Send(Client, message)
    };
    vec![
        ("first_too_long", {
            let long = [rpc(2, CALL), vec![0; 1024]].concat();
            let message = wg(2, wg_type::CALL_INLINE, &[0, 0, 0, 0], &long);
            vec![Send(Client, message)]
        }),
        (
            "limit_exceeded",
            vec![
                last(Client, &[0]),
                Send(Client, wg(0, wg_type::GRANT, &[], &[])),
                Send(Client, wg(0, wg_type::GRANT, &[], &[])),
            ],
        ),
        (
            "send_size",
            vec![last(Client, &[1, 1, 4, 60]), last(Server, &[0]), call()],
        ),
        (
            "properties_interrupted",
            vec![
                properties(Client, wg_type::CONNPROP_MIDDLE, &[0]),
                last(Server, &[0]),
                call(),
            ],
        ),
        ("property_value", vec![last(Client, &[1, 5, 4, 4])]),
        (
            "buffer_structure",
            vec![last(
                Client,
                &[2, 2, 4, 4100, 0xffff_ff01, 20, 1, 1, 4096, 0, 1],
            )],
        ),
        (
            "unsupported",
            vec![
                last(Client, &[0]),
                last(Server, &[0]),
                Send(
                    Client,
                    wg(2, placed::CALL, &[0, 0, 0, 0, 0, 40], &rpc(2, CALL)),
                ),
            ],
        ),
        ("unknown_property", vec![last(Client, &[1, 77, 0])]),
    ]
}

/// Returns the names of the rules.
fn rules() -> Result<BTreeSet<String>, Error> {
    let file = root().join("wireshark/rpcrdma/rules.lua");
    let text = fs::read_to_string(file).map_err(Error::ours("the dissector's rules"))?;
    let rows = text
        .lines()
        .filter_map(|line| line.trim().strip_prefix("{ \""));
    Ok(rows
        .filter_map(|row| row.split('"').next())
        .map(str::to_owned)
        .collect())
}

/// Makes the cases. Returns how many rules there are, and the differences.
pub(super) fn check(
    wireshark: &Wireshark,
    codecs: &Codecs,
    folder: &Path,
) -> Result<(usize, Vec<String>), Error> {
    let numbers = Numbers(codecs);
    let mut cases = Vec::new();
    let mut add = |begun: &dyn Fn() -> Vec<Step>, rows: Vec<(&'static str, Vec<Step>)>| {
        for (rule, steps) in rows {
            cases.push((rule, begun().into_iter().chain(steps).collect::<Vec<_>>()));
        }
    };
    add(&begun_v1, cases_v1());
    add(&begun_v2, cases_v2(&numbers));
    add(&|| numbers.placing(), cases_placing(&numbers));
    add(&Vec::new, cases_first(&numbers));
    add(&begun_wg, cases_wg());
    add(&begun_wg_placing, cases_wg_placing());
    add(&Vec::new, cases_wg_first());

    let mut frames = Frames::new();
    let mut ranges = Vec::new();
    for (n, (_, steps)) in cases.iter().enumerate() {
        let first = frames.last() + 1;
        // Segments take several packets: the last step begins behind the others.
        let mut before = first;
        let mut connection = Iwarp::open(&mut frames, n as u16, [&[], &[]]);
        for step in steps {
            before = frames.last();
            play(&mut connection, &mut frames, step);
        }
        ranges.push((first, before, frames.last()));
    }
    let file = folder.join("hostile.pcap");
    frames.write(&file).map_err(Error::ours("a capture"))?;
    let layers = wireshark.layers(&file)?;
    let marks = |from: usize, to: usize| -> BTreeSet<&str> {
        let of = layers
            .iter()
            .filter(|layer| (from..=to).contains(&layer.packet));
        let lines = of.flat_map(|layer| &layer.lines);
        lines
            .filter_map(|line| line.name.split_once(".rule.").map(|(_, rule)| rule))
            .collect()
    };
    let mut wrong = Vec::new();
    let mut missing = rules()?;
    let count = missing.len();
    for ((rule, _), (first, before, last)) in cases.iter().zip(ranges) {
        let (early, found) = (marks(first, before), marks(before + 1, last));
        if !early.is_empty() {
            wrong.push(format!("{rule}: marked before: {early:?}"));
        }
        if found.contains(rule) {
            missing.remove(*rule);
        } else {
            wrong.push(format!("{rule}: packet {last} has {found:?}"));
        }
    }
    wrong.extend(
        missing
            .into_iter()
            .map(|rule| format!("{rule}: never provoked")),
    );
    Ok((count, wrong))
}

fn play(connection: &mut Iwarp, frames: &mut Frames, step: &Step) {
    match step {
        Send(from, message) => connection.send(frames, *from, message, None),
        SendWithInvalidate(from, message, handle) => {
            connection.send(frames, *from, message, Some(*handle));
        }
        Write(from, to, length) => connection.write(frames, *from, *to, &vec![0; *length]),
        Read(from, source, length) => {
            connection.read_request(frames, *from, SINK, *source, *length);
        }
        Response(from, length) => connection.read_response(frames, *from, SINK, &vec![0; *length]),
    }
}
