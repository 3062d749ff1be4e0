//! Forged messages, built word by word. Their chunks name memory that is registered, if there is
//! any.

use rdma::Stag;

use super::script::{Body, Item, Lie, Said, Wanted};
use super::{CALLS, CALLS_BACK};

/// The 32-bit words of a message.
pub(super) type Words = Vec<u32>;

/// Registered memory of the (supposed) caller: handle, first offset and length.
pub(super) type Memory = [(Stag, u64, usize)];

/// Maps small bytes to themselves, and large ones to numbers near the maximum of 32 bits.
pub(super) fn wide(value: u8) -> u32 {
    match value {
        0..200 => u32::from(value),
        _ => u32::MAX - u32::from(u8::MAX - value),
    }
}

pub(super) fn segment(out: &mut Words, memory: &Memory, at: u8) {
    let known = usize::from(at / 4).checked_rem(memory.len());
    let (stag, offset, len) = known.map_or((Stag(u32::from(at)), 0, 64), |at| memory[at]);
    let (offset, len) = match at % 4 {
        0 | 1 => (offset, len as u32),
        2 => (offset, len as u32 / 2),
        _ => (offset.wrapping_neg(), u32::MAX - u32::from(at)),
    };
    out.extend([stag.0, len, (offset >> 32) as u32, offset as u32]);
}

fn lists(out: &mut Words, body: &Body, memory: &Memory) {
    let Body::Lists {
        reads,
        writes,
        reply,
        ..
    } = body
    else {
        return;
    };
    read_list(out, reads, memory);
    write_list(out, writes, memory);
    reply_chunk(out, *reply, memory);
}

fn read_list(out: &mut Words, reads: &[(u8, u8)], memory: &Memory) {
    for (position, at) in reads.iter().filter(|(_, at)| *at != 0) {
        out.extend([1, wide(*position)]);
        segment(out, memory, *at);
    }
    out.push(0);
}

fn write_list(out: &mut Words, writes: &[u8], memory: &Memory) {
    for at in writes.iter().filter(|at| **at != 0) {
        out.extend([1, 2]);
        segment(out, memory, *at);
        segment(out, memory, at.rotate_left(3));
    }
    out.push(0);
}

fn reply_chunk(out: &mut Words, reply: u8, memory: &Memory) {
    match reply {
        0 => out.push(0),
        at => {
            out.extend([1, 1]);
            segment(out, memory, at);
        }
    }
}

/// Appends the lists of a header of version-two-07 (sections 6.3.5 to 6.3.10): replies have no read
/// list, external calls have a call chunk besides, and inline replies have no reply chunk.
pub(super) fn words_of_lists(
    out: &mut Words,
    body: &Body,
    memory: &Memory,
    (is_reply, external): (bool, bool),
) {
    let Body::Lists {
        reads,
        writes,
        reply,
        ..
    } = body
    else {
        return;
    };
    if !is_reply {
        match external {
            true => {
                read_list(out, &reads[..1], memory);
                read_list(out, &reads[1..], memory);
            }
            false => read_list(out, reads, memory),
        }
    }
    write_list(out, writes, memory);
    if !is_reply || external {
        reply_chunk(out, *reply, memory);
    }
}

fn said(out: &mut Words, said: &Said) -> u32 {
    match said {
        Said::Nothing => return 0,
        Said::Word { id, value } => {
            out.extend([u32::from(id % 10), 4]);
            out.push(match id % 10 {
                1 => u32::from(*value) << 8,
                _ => wide(*value),
            });
        }
        Said::Structure { head, count, len } => {
            let (head, count) = (u32::from(*head) << 5, wide(*count));
            let len = u32::from(*len) << 9;
            let sum = head.wrapping_add(count.wrapping_mul(len));
            out.extend([5, 4 * 10, sum, 2, 1, head, 1, 0, count, len, 4096, 1]);
        }
    }
    1
}

fn several(out: &mut Words, all: &[Said]) {
    let at = out.len();
    out.push(0);
    for one in all {
        let count = said(out, one);
        out[at] += count;
    }
}

fn items(out: &mut Words, all: &[Item], memory: &Memory) {
    let there = all.iter().filter(|item| item.kind != 0);
    out.push(there.clone().count() as u32);
    for item in there {
        let kind = u32::from(item.kind % 8);
        out.extend([wide(item.position), u32::from(item.len) * 16, kind]);
        match kind {
            1 => {
                out.push(1);
                segment(out, memory, item.at);
            }
            2 => out.extend([u32::from(item.at) % 16 * 4, 1, wide(item.at / 16)]),
            _ => {}
        }
    }
}

fn wanted(out: &mut Words, all: &[Wanted], memory: &Memory) {
    let there = all.iter().filter(|one| one.kind != 0);
    let count = there.clone().count() as u32;
    out.push(count.min(1));
    if count == 0 {
        return;
    }
    out.extend([0, u32::MAX, count]);
    for one in there {
        let kind = u32::from(one.kind % 6);
        out.extend([wide(one.least), kind]);
        match kind {
            1 | 3 => {
                out.push(1);
                segment(out, memory, one.at);
            }
            4 => {
                out.extend([wide(one.at), 1]);
                segment(out, memory, one.at);
            }
            _ => {}
        }
    }
}

/// Returns the type of an operation and the words of its body.
fn operation(body: &Body, xid: u32, direction: u32, len: u32, memory: &Memory) -> (u32, Words) {
    let mut out = Words::new();
    let opttype = match body {
        Body::Begin(all) => {
            several(&mut out, all);
            out.push(0);
            1
        }
        Body::Want(all) => {
            several(&mut out, all);
            2
        }
        Body::Done(sets) => {
            for set in sets {
                match set {
                    0 => out.push(0),
                    set => out.extend([1, u32::from(*set) << 24]),
                }
            }
            3
        }
        Body::Update { said: one, cleared } => {
            said(&mut out, one);
            out.push(u32::from(cleared % 3));
            4
        }
        Body::Transmit {
            items: all,
            wanted: rest,
            count,
            reserved,
        } => {
            items(&mut out, all, memory);
            wanted(&mut out, rest, memory);
            out.extend([wide(*count), wide(*reserved), len]);
            5
        }
        Body::Respond { items: all, count } => {
            items(&mut out, all, memory);
            out.extend([wide(*count), len]);
            6
        }
        Body::Continue { number, initial } => {
            out.extend([wide(*number), u32::from(*initial % 8), len]);
            7
        }
        Body::Report { number, lead, code } => {
            let about = 1 - direction;
            out.extend([xid, about, wide(*number), u32::from(*lead)]);
            if *lead {
                out.extend([xid, about, 0]);
            }
            let code = u32::from(code % 10);
            out.push(code);
            let fields = match code {
                3 => 0,
                6..9 => 3,
                _ => 2,
            };
            out.extend(vec![1; fields]);
            8
        }
        _ => 9,
    };
    (opttype, out)
}

/// Returns the XID of a forged message, which is usually that of an earlier call.
pub(super) fn message_xid(lie: &Lie, last: [u32; 2]) -> u32 {
    let back = u32::from(lie.xid / 8);
    match lie.xid % 8 {
        0..4 => CALLS + last[0].saturating_sub(back),
        4..6 => CALLS_BACK + last[1].saturating_sub(back),
        6 => u32::MAX - back,
        _ => (1 << 31) + back,
    }
}

/// Returns the RPC message of a forged message.
pub(super) fn rpc_message(lie: &Lie, xid: u32) -> Words {
    let mut rpc = vec![xid, u32::from(lie.reply)];
    match lie.rpc {
        1 => rpc[0] ^= 1,
        2 => rpc[1] ^= 1,
        3 => rpc.clear(),
        4 => rpc.truncate(1),
        words => rpc.extend((0..u32::from(lie.words)).map(|n| n ^ u32::from(words))),
    }
    rpc
}

/// Returns a forged message of these words, with the bytes that the lie adds or cuts off.
pub(super) fn finished(lie: &Lie, mut out: Words, rpc: &[u32]) -> Vec<u8> {
    out.extend(rpc);
    let mut bytes: Vec<u8> = out.iter().flat_map(|word| word.to_be_bytes()).collect();
    let behind = usize::from(lie.behind) << 6;
    bytes.resize(bytes.len() + behind, 0x5a);
    let cut = usize::from(lie.cut.saturating_sub(128)).min(bytes.len());
    bytes.truncate(bytes.len() - cut);
    bytes
}

/// Returns the forged message.
pub(super) fn encode(lie: &Lie, last: [u32; 2], memory: &Memory) -> Vec<u8> {
    let xid = message_xid(lie, last);
    let version = match lie.version % 8 {
        0 | 1 => 1,
        7 => u32::from(lie.version / 8),
        _ => 2,
    };
    let direction = u32::from(lie.reply);
    let mut rpc = rpc_message(lie, xid);
    let payload = 4 * rpc.len() as u32;
    let mut out = vec![xid, version, wide(lie.credits)];
    match &lie.body {
        Body::Lists { long, .. } => {
            out.push(u32::from(*long));
            out.extend((version != 1).then_some(direction));
            lists(&mut out, &lie.body, memory);
            if *long {
                rpc.clear();
            }
        }
        Body::Error { code, versions } => {
            out.extend([4, u32::from(code % 5)]);
            if code % 5 == 1 {
                out.extend(versions.map(u32::from));
            }
            rpc.clear();
        }
        Body::Words { procedure, words } => {
            out.push(u32::from(procedure % 8));
            out.extend(words.map(wide));
        }
        body => {
            let (opttype, info) = operation(body, xid, direction, payload, memory);
            out.extend([5, direction, opttype, 4 * info.len() as u32]);
            out.extend(info);
            if opttype < 5 || opttype == 8 {
                rpc.clear();
            }
        }
    }
    finished(lie, out, &rpc)
}
