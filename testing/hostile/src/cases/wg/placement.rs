//! The extension for data placement (version-two-07, appendix B), sent to a server that has it: each
//! field of each header type changed, items that lie nowhere or twice, and parts that do not fit.

use super::*;
use crate::cases::{memory, segment_words};
use crate::client::Case;
use crate::rig::content;
use crate::wire::v2::{HEAD, TARGET};
use crate::wire::wg::{
    CALL_MIDDLE, CALL_PLACED, CALL_PLACED_MIDDLE, ERR_INVAL_CONT, ERR_INVAL_HTYPE, ERR_READ_CHUNKS,
    ERR_SYSTEM, REPLY_PLACED, REPLY_PLACED_MIDDLE,
};

const CALLS: &str = "version-two-07, B.2";
const PARTS: &str = "version-two-07, B.2";

/// The number of data bytes of a WRITE.
const LEN: u32 = 4096;
/// The file offset of WRITEs. Other cases read the bytes before.
const WRITTEN: u64 = 1 << 20;
/// The maximum length of a message that the server takes (`rig::SERVER`).
const MOST: u32 = 256 << 10;

/// Appends the target of a receive buffer behind a message, with this data in it.
fn placed(mut message: Vec<u8>, data: &[u8]) -> Vec<u8> {
    message.resize(HEAD, 0);
    message.extend(data);
    message
}

/// Returns a WRITE whose data is placed, with the data.
fn write(file: &[u8]) -> (Right, Vec<u8>) {
    let call = nfs(XID, 7, rpc::write_args(file, WRITTEN, LEN));
    let len = call.len() as u32;
    let data = content(8, LEN as usize);
    let fields = [0, 0, 0, 0, 1, len, LEN, 0, 0, len];
    let message = placed(wg::message(XID, CALL_PLACED, &fields, &call), &data);
    let good = vec![HearWords(wg::success(XID, &[0]), true)];
    let mut right = Right::new("WRITE with placed data", CALLS, message, good);
    right.properties = placing();
    (right, data)
}

/// Returns the properties of an end whose structure of receive buffers has no target, so that
/// results are not placed.
fn placing() -> Vec<u32> {
    wg::set(&[(1, 1 << 20), (2, 4096)])
}

/// Returns a WRITE of two targets in two parts: the first part, and the last.
fn in_two_parts(file: &[u8]) -> (Right, Right) {
    let length = TARGET as u32 + LEN;
    let call = nfs(XID, 7, rpc::write_args(file, WRITTEN, length));
    let data = content(9, length as usize);
    let cut = 40;
    let len = call.len() as u32;
    let good = vec![HearWords(wg::success(XID, &[0]), true)];
    let (begun, rest) = call.split_at(cut as usize);
    let fields = [1, len - cut, cut];
    let message = wg::message(XID, CALL_PLACED_MIDDLE, &fields, begun);
    let message = placed(message, &data[..TARGET]);
    let name = "the first part of WRITE with placed data";
    let mut first = Right::new(name, PARTS, message, good.clone());
    let fields = [0, 0, 0, 0, 1, len, length, 0, 0, len - cut];
    let message = placed(
        wg::message(XID, CALL_PLACED, &fields, rest),
        &data[TARGET..],
    );
    let mut last = Right::new(
        "the last part of WRITE with placed data",
        PARTS,
        message,
        good,
    );
    (first.properties, last.properties) = (placing(), placing());
    first.after = vec![last.message.clone()];
    last.before = vec![first.message.clone()];
    (first, last)
}

pub(in crate::cases) fn cases(file: &[u8]) -> Vec<Case> {
    let mut cases = items(file);
    cases.extend(chunks(file));
    cases.extend(parts(file));
    cases.extend(replies());
    cases
}

fn items(file: &[u8]) -> Vec<Case> {
    let (right, data) = write(file);
    let (len, header) = (right.value("rdma_payload_length"), right.header());
    let room = (HEAD - header) as u32 + LEN;
    let (target, length) = (TARGET as u32, "rdma_placed[0].rdma_length");
    let mut cases = vec![right.control()];
    cases.extend(right.rows(&[
        ("rdma_xid", XID + 1, bad()),
        ("rdma_vers", 3, Error(wg::unsupported())),
    ]));
    let limits: Limits<'_> = &[
        ("rdma_placed", &[17]),
        ("rdma_position", &[4, len - 2, u32::MAX - 3]),
        (length, &[target, target + 1, MOST]),
        ("rdma_segment", &[7]),
        ("rdma_placed[0].rdma_offset", &[target]),
        ("rdma_payload_length", &[room + 4, 0x7fff_fffc]),
    ];
    cases.extend(right.varied(limits, |field, value| {
        Some(match field {
            "rdma_length" if value >= MOST => Error(vec![ERR_SYSTEM]),
            // The items are whole, and the arguments are not.
            "rdma_length" if (1..LEN).contains(&value) => Accepted(GARBAGE_ARGS),
            "rdma_position" if value == len - 4 => Accepted(GARBAGE_ARGS),
            // What is behind the arguments is not looked at.
            "rdma_payload_length" if value == len + 4 => Good,
            _ => bad(),
        })
    }));
    // The server may send nothing until it is told more.
    let mut waits = right.clone();
    waits.good = [
        vec![HearNothing, Send(wg::grant(CREDIT))],
        right.good.clone(),
    ]
    .concat();
    let no_credit = right.set("rdma_credit", 0);
    cases.push(waits.instead("rdma_credit is 0", no_credit, &Good));
    cases.extend(right.broken_off(&bad()));
    let ends = [header + 8, HEAD, HEAD + 4, right.message.len() - 1];
    cases.extend(right.cut(&ends, &bad()));
    // Two items of one call that lie over each other, or over the payload.
    let two = |first: [u32; 4], second: [u32; 4]| {
        let call = nfs(XID, 7, rpc::write_args(file, WRITTEN, LEN));
        let fields = [&[0, 0, 0, 0, 2][..], &first, &second, &[call.len() as u32]];
        placed(
            wg::message(XID, CALL_PLACED, &fields.concat(), &call),
            &data,
        )
    };
    let half = LEN / 2;
    let mut refuse = |name: &str, message: Vec<u8>| {
        cases.push(right.instead(name, message, &bad()));
    };
    refuse(
        "two items in one place",
        two([len, half, 0, 0], [len + half, half, 0, 0]),
    );
    refuse(
        "two items that overlap",
        two([len, half, 0, 0], [len + half, half, 0, half - 4]),
    );
    refuse(
        "two items at one position",
        two([len, half, 0, 0], [len, half, 0, half]),
    );
    refuse(
        "two items whose positions decrease",
        two([len, half, 0, 0], [40, half, 0, half]),
    );
    refuse("two items whose positions overlap", {
        two([40, half, 0, 0], [40 + half - 4, half, 0, half])
    });
    refuse(
        "an item within the second word",
        two([4, 4, 0, 0], [len, half, 0, half]),
    );
    refuse("an item behind the end of the message", {
        two([len, half, 0, 0], [len + half + 4, half, 0, half])
    });
    // The payload reaches into the target.
    let over = right.set("rdma_payload_length", room & !3);
    cases.push(right.instead("an item that lies over the payload", over, &bad()));
    // 16 items of four bytes are taken, and 17 are not. The upper layer refuses the call.
    let many = |count: u32| {
        let call = nfs(XID, 0, vec![]);
        let at = call.len() as u32;
        let items = (0..count).flat_map(|n| [at + 4 * n, 4, 0, 4 * n]);
        let fields = [0, 0, 0, 0, count].into_iter().chain(items).chain([at]);
        let fields: Vec<u32> = fields.collect();
        placed(wg::message(XID, CALL_PLACED, &fields, &call), &data)
    };
    cases.push(right.instead("17 items", many(17), &bad()));
    let mut taken = right.clone();
    taken.good = vec![HearWords(
        [&wg::success(XID, &[])[..5], &[XID, 1, 0]].concat(),
        true,
    )];
    cases.push(taken.instead("16 items", many(16), &Good));
    cases
}

/// Returns the cases of chunks beside placed items.
fn chunks(file: &[u8]) -> Vec<Case> {
    let (right, data) = write(file);
    let call = nfs(XID, 7, rpc::write_args(file, WRITTEN, LEN));
    let len = call.len() as u32;
    let message = |handle: u32, chunks: &[u32]| {
        let fields = [&[handle], chunks, &[1, len, LEN, 0, 0, len]].concat();
        placed(wg::message(XID, CALL_PLACED, &fields, &call), &data)
    };
    let at = memory(0, 4096);
    let segment = segment_words(at);
    let read = |position| [&[1, position][..], &segment, &[0, 0, 0]].concat();
    let written = [&[0, 1, 1][..], &segment, &[0, 0]].concat();
    let replied = [&[0, 0, 1, 1][..], &segment].concat();
    let wrapping = [0, 1, 1, 0x5100_0000, 8, u32::MAX, u32::MAX - 3, 0, 0];
    let unused = {
        let chunk = [segment[0], 0, segment[2], segment[3]];
        let header = [XID, VERSION, 0, wg::REPLY_INLINE, 1, 1];
        [&header[..], &chunk, &[0, XID, 1, 0, 0, 0, 0, 0]].concat()
    };
    let mut returned = right.clone();
    returned.good = vec![HearWords(unused, true)];
    let zero = Error(vec![ERR_READ_CHUNKS, 0]);
    vec![
        right.instead(
            "a read chunk beside placed items",
            message(0, &read(len)),
            &zero,
        ),
        right.instead(
            "position zero beside placed items",
            message(0, &read(0)),
            &bad(),
        ),
        returned.instead(
            "a write chunk beside placed items",
            message(0, &written),
            &Good,
        ),
        returned.instead(
            "a handle beside placed items",
            message(at.handle, &written),
            &Good,
        ),
        right.instead(
            "a reply chunk beside placed items",
            message(0, &replied),
            &Good,
        ),
        right.instead(
            "a handle of no chunk",
            message(at.handle + 1, &written),
            &bad(),
        ),
        right.instead(
            "a write segment that passes the address space beside placed items",
            message(0, &wrapping),
            &bad(),
        ),
    ]
}

fn parts(file: &[u8]) -> Vec<Case> {
    let invalid = || Error(vec![ERR_INVAL_CONT]);
    let system = || Error(vec![ERR_SYSTEM]);
    let (first, last) = in_two_parts(file);
    let cut = first.value("rdma_payload_length");
    let target = TARGET as u32;
    let mut cases = vec![first.control(), last.control()];
    let limits: Limits<'_> = &[
        ("rdma_messages", &[127, 128]),
        ("rdma_remaining", &[MOST]),
        ("rdma_payload_length", &[HEAD as u32 + target]),
    ];
    cases.extend(first.varied(limits, |field, value| {
        Some(match field {
            "rdma_messages" if value > 127 => system(),
            "rdma_remaining" if value >= MOST => system(),
            "rdma_payload_length" if value == u32::MAX => system(),
            // Four bytes more are in the middle of the arguments.
            "rdma_payload_length" if value == cut + 4 => Accepted(GARBAGE_ARGS),
            "rdma_payload_length" => bad(),
            _ => invalid(),
        })
    }));
    let limits: Limits<'_> = &[
        ("rdma_placed[0].rdma_length", &[2 * target, 2 * target + 1]),
        ("rdma_segment", &[2]),
        ("rdma_placed[0].rdma_offset", &[target]),
    ];
    let (position, length) = (last.value("rdma_position"), target + LEN);
    cases.extend(last.varied(limits, |field, value| {
        Some(match field {
            // With another number of items, another word is the length of the payload.
            "rdma_payload_length" => invalid(),
            "rdma_placed" if value == 0 || value == 2 => invalid(),
            "rdma_length" if value == u32::MAX => system(),
            "rdma_length" if (1..length).contains(&value) => Accepted(GARBAGE_ARGS),
            "rdma_position" if value == position - 4 => Accepted(GARBAGE_ARGS),
            _ => bad(),
        })
    }));
    let one = |messages: u32, remaining: u32, payload: u32| {
        let fields = [messages, remaining, payload];
        wg::message(XID, CALL_PLACED_MIDDLE, &fields, &rpc::null(XID).bytes())
    };
    let mut alone = first.clone();
    alone.after.clear();
    cases.extend(alone.broken_off(&bad()));
    let end =
        |payload: u32, rest: &[u8]| wg::message(XID, CALL_PLACED, &[0, 0, 0, 0, 0, payload], rest);
    let (null, other) = (rpc::null(XID).bytes(), XID + 1);
    let refusal = |xid: u32, code: u32| HearWords(wg::answer(xid, &[code]), false);
    let success = |xid: u32| HearWords(wg::success(xid, &[]), false);
    let within = |name: &str, message: Vec<u8>, said: Vec<Step>| {
        let start = wg::message(XID, CALL_PLACED_MIDDLE, &[1, 24, 16], &null[..16]);
        let steps = vec![Send(start), Send(message)];
        let rest = vec![Send(end(24, &null[16..])), success(XID)];
        let steps = introduced(&placing(), [steps, said, rest].concat());
        script(name, PARTS, steps, Lives)
    };
    let refused =
        |name: &str, message: Vec<u8>| within(name, message, vec![refusal(other, ERR_INVAL_CONT)]);
    let their = rpc::null(other).bytes();
    cases.extend([
        refused(
            "a call between parts with placed data",
            wg::call(other, &their),
        ),
        refused("a part of a call between parts with placed data", {
            wg::message(other, CALL_MIDDLE, &[24], &their[..16])
        }),
        refused("properties between parts with placed data", {
            wg::message(other, CONNPROP_FINAL, &[0], &[])
        }),
        refused("RDMA2_CALL_EXTERNAL between parts with placed data", {
            let fields = [0, 1, 0, 0x5100_0000, 40, 0, 0, 0, 0, 0, 0];
            wg::message(other, wg::CALL_EXTERNAL, &fields, &[])
        }),
        refused("a part of another call between parts with placed data", {
            wg::message(other, CALL_PLACED_MIDDLE, &[1, 24, 16], &their[..16])
        }),
        refused("RDMA2_CALL_PLACED between the parts of another", {
            wg::message(other, CALL_PLACED, &[0, 0, 0, 0, 0, 40], &their)
        }),
        within(
            "RDMA2_GRANT between parts with placed data",
            wg::grant(CREDIT),
            vec![],
        ),
        within(
            "RDMA2_ERROR between parts with placed data",
            wg::error(other, &[2]),
            vec![],
        ),
    ]);
    let repeated =
        |name: &str, steps: Vec<Step>, end| script(name, PARTS, introduced(&placing(), steps), end);
    cases.extend([
        repeated(
            "first parts with placed data, again and again",
            {
                vec![Repeat(
                    40,
                    vec![
                        Send(one(1, 0, 40)),
                        Send(one(1, 0, 40)),
                        refusal(XID, ERR_INVAL_CONT),
                        Send(end(40, &null)),
                    ],
                )]
            },
            Lives,
        ),
        repeated(
            "parts of both kinds with one XID, again and again",
            {
                let continued = wg::message(XID, CALL_MIDDLE, &[24], &null[..16]);
                let parts = [continued, one(1, 0, 40)];
                let either = |first: usize| {
                    vec![
                        Send(parts[first].clone()),
                        Send(parts[1 - first].clone()),
                        refusal(XID, ERR_INVAL_CONT),
                        Send(end(40, &null)),
                        Send(wg::call(XID, &null[16..])),
                        Send(wg::call(XID, &null)),
                        success(XID),
                    ]
                };
                vec![Repeat(10, [either(0), either(1)].concat())]
            },
            Lives,
        ),
        repeated(
            "a last part of nothing",
            vec![Send(end(0, &[])), refusal(XID, wg::ERR_BAD_XDR)],
            Lives,
        ),
        repeated(
            "the XID of placed data that was refused, again",
            {
                vec![Repeat(
                    20,
                    vec![
                        Send(one(1, 0, 41)),
                        refusal(XID, wg::ERR_BAD_XDR),
                        Send(end(40, &null)),
                        Send(end(40, &null)),
                        success(XID),
                    ],
                )]
            },
            Lives,
        ),
        repeated(
            "128 parts with placed data, of which the last does not come",
            {
                let part = |n: u32| {
                    let fields = [127 - n, 4 * (127 - n), 4];
                    Send(wg::message(XID, CALL_PLACED_MIDDLE, &fields, &[0; 4]))
                };
                (0..127)
                    .flat_map(|n| [part(n), Turn])
                    .chain([Shut])
                    .collect()
            },
            End::Closed,
        ),
    ]);
    cases
}

/// Returns the cases of placed replies, which a server does not take.
fn replies() -> Vec<Case> {
    let mut cases = Vec::new();
    for (name, htype, fields) in [
        ("RDMA2_REPLY_PLACED", REPLY_PLACED, &[0, 0, 24][..]),
        (
            "RDMA2_REPLY_PLACED_MIDDLE",
            REPLY_PLACED_MIDDLE,
            &[1, 4, 24],
        ),
    ] {
        let reply = rpc::accepted(XID, 0, &[]);
        for rest in [&reply[..], &[]] {
            let name = format!("{name} to a server, with {} bytes", rest.len());
            let message = wg::message(XID, htype, fields, rest);
            cases.push(refused(
                name,
                "version-two-07, 6.1",
                message,
                &[ERR_INVAL_HTYPE],
            ));
        }
        let message = wg::message(XID, htype, &[], &[]);
        let name = format!("{name} of nothing to a server");
        cases.push(refused(
            name,
            "version-two-07, 6.1",
            message,
            &[ERR_INVAL_HTYPE],
        ));
    }
    cases
}
