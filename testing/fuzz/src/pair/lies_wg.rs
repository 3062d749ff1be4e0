//! Forged messages of the working group's version 2 (version-two-07) and of its extension for data
//! placement, built word by word from the same lies as those of the other versions.

use super::lies::{Memory, Words, message_xid, rpc_message, segment, wide, words_of_lists};
use super::script::{Body, Item, Lie, Said};

/// The numbers of the header types (version-two-07, section 6.1), and of the extension.
const ERROR: u32 = 4;
const GRANT: u32 = 5;
const CONNPROP_MIDDLE: u32 = 6;
const CONNPROP_FINAL: u32 = 7;
const CALL_EXTERNAL: u32 = 8;
const CALL_MIDDLE: u32 = 9;
const CALL_INLINE: u32 = 10;
const REPLY_EXTERNAL: u32 = 11;
const REPLY_MIDDLE: u32 = 12;
const REPLY_INLINE: u32 = 13;
const CALL_PLACED_MIDDLE: u32 = 0xffff_ff01;
const CALL_PLACED: u32 = 0xffff_ff02;
const REPLY_PLACED_MIDDLE: u32 = 0xffff_ff03;
const REPLY_PLACED: u32 = 0xffff_ff04;

/// Chooses between the numbers for calls and for replies.
fn of(reply: bool, call_and_reply: [u32; 2]) -> u32 {
    call_and_reply[usize::from(reply)]
}

/// Appends a property. Returns how many were appended.
fn property(out: &mut Words, said: &Said) -> u32 {
    match said {
        Said::Nothing => return 0,
        Said::Word { id, value } => {
            let id = match id % 12 {
                known @ 0..8 => u32::from(known),
                experimental => 0xffff_ff00 | u32::from(experimental - 8),
            };
            let value = match id {
                1..=3 => u32::from(*value) << 8,
                _ => wide(*value),
            };
            out.extend([id, 4, value]);
        }
        Said::Structure { head, count, len } => {
            let (head, len) = (u32::from(*head) << 5, u32::from(*len) << 9);
            out.extend([
                0xffff_ff01,
                36,
                2,
                1,
                head,
                1,
                0,
                wide(*count),
                len,
                4096,
                1,
            ]);
        }
    }
    1
}

fn properties(out: &mut Words, all: &[Said]) {
    let at = out.len();
    out.push(0);
    for one in all {
        let count = property(out, one);
        out[at] += count;
    }
}

fn placed(out: &mut Words, items: &[Item]) {
    let there = items.iter().filter(|item| item.kind != 0);
    out.push(there.clone().count() as u32);
    for item in there {
        let (segment, offset) = (item.at / 16, item.at % 16);
        let len = u32::from(item.len) * 16 + u32::from(item.kind % 4);
        out.extend([
            wide(item.position),
            len,
            wide(segment),
            u32::from(offset) * 4,
        ]);
    }
}

/// Returns the header type, the words of the header behind the prefix, and whether an RPC message
/// follows. `len` is its length in bytes.
fn header(lie: &Lie, len: u32, memory: &Memory) -> (u32, Words, bool) {
    let (mut out, reply) = (Words::new(), lie.reply);
    let (number, followed) = match &lie.body {
        Body::Lists { long, reads, .. } => {
            if !reply {
                // The handle of the first read chunk is a right one now and then.
                let mut first = Words::new();
                segment(&mut first, memory, reads[0].1);
                out.push(if reads[1].0 % 2 == 1 { first[0] } else { 0 });
            }
            words_of_lists(&mut out, &lie.body, memory, (reply, *long));
            let number = match (reply, long) {
                (false, false) => CALL_INLINE,
                (false, true) => CALL_EXTERNAL,
                (true, false) => REPLY_INLINE,
                (true, true) => REPLY_EXTERNAL,
            };
            (number, !long)
        }
        Body::Error { code, versions } => {
            let code = match code % 14 {
                13 => 100,
                code => u32::from(code),
            };
            out.push(code);
            let fields = match code {
                1 | 9 => 2,
                6..=8 | 10 => 1,
                _ => 0,
            };
            out.extend(versions.map(wide).iter().take(fields));
            (ERROR, false)
        }
        Body::Begin(all) => {
            properties(&mut out, all);
            (CONNPROP_FINAL, false)
        }
        Body::Want(all) => {
            properties(&mut out, all);
            (CONNPROP_MIDDLE, false)
        }
        Body::Done(_) => (GRANT, false),
        Body::Update { said, cleared } => {
            properties(&mut out, std::slice::from_ref(said));
            (CONNPROP_MIDDLE + u32::from(cleared % 2), false)
        }
        Body::Transmit {
            items,
            count,
            reserved,
            ..
        } => {
            if !reply {
                let mut lent = Words::new();
                segment(&mut lent, memory, *reserved);
                match count % 4 {
                    0 => out.extend([0, 0, 0, 0]),
                    1 => out.extend([lent[0], 0, 0, 1, 1].iter().chain(&lent)),
                    2 => out.extend([0, 0, 1, 1].iter().chain(&lent).chain(&[0, 0])),
                    _ => out.extend([0, 1, 64].iter().chain(&lent).chain(&[0, 0, 0])),
                }
            } else {
                out.push(0);
            }
            placed(&mut out, items);
            out.push(len);
            (of(reply, [CALL_PLACED, REPLY_PLACED]), true)
        }
        Body::Respond { items, count } => {
            match reply {
                true => out.push(u32::from(count % 3 == 2)),
                false => out.extend([0, 0, 0, 0]),
            }
            placed(&mut out, items);
            out.push(len.wrapping_add(wide(*count) & !3));
            (of(reply, [CALL_PLACED, REPLY_PLACED]), true)
        }
        Body::Continue { number, initial } => {
            out.push(wide(*number).wrapping_mul(u32::from(initial % 8) + 1) % 2048);
            (of(reply, [CALL_MIDDLE, REPLY_MIDDLE]), true)
        }
        Body::Report { number, lead, code } => {
            let remaining = if *lead { wide(*number) } else { len };
            out.extend([wide(*code), remaining, len]);
            (of(reply, [CALL_PLACED_MIDDLE, REPLY_PLACED_MIDDLE]), true)
        }
        Body::Words { procedure, words } => {
            out.extend(words.map(wide));
            let number = match procedure % 24 {
                known @ 0..16 => u32::from(known),
                experimental => 0xffff_ff00 | u32::from(experimental - 16),
            };
            (number, true)
        }
    };
    (number, out, followed)
}

/// Returns the forged message. Its XID is usually that of an earlier call.
pub(super) fn encode(lie: &Lie, last: [u32; 2], memory: &Memory) -> Vec<u8> {
    let xid = message_xid(lie, last);
    let version = match lie.version % 16 {
        15 => u32::from(lie.version / 16),
        _ => 2,
    };
    let mut rpc = rpc_message(lie, xid);
    let (number, fields, followed) = header(lie, 4 * rpc.len() as u32, memory);
    if !followed {
        rpc.clear();
    }
    let mut out = vec![xid, version, wide(lie.credits), number];
    out.extend(fields);
    super::lies::finished(lie, out, &rpc)
}
