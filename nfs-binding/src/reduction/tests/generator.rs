//! Random COMPOUNDs and their replies, encoded from the text of the RFCs by code that shares
//! nothing with the tables that it tests.

use std::ops::Range;

use quickcheck::{Arbitrary, Gen};

/// An XDR stream, and where its DDP-eligible data lies.
#[derive(Clone, Debug, Default)]
pub(super) struct Out {
    pub(super) bytes: Vec<u8>,
    pub(super) items: Vec<Range<usize>>,
}

impl Out {
    pub(super) fn u32(&mut self, value: u32) -> &mut Self {
        self.bytes.extend(value.to_be_bytes());
        self
    }

    pub(super) fn u64(&mut self, value: u64) -> &mut Self {
        self.bytes.extend(value.to_be_bytes());
        self
    }

    pub(super) fn fixed(&mut self, len: usize) -> &mut Self {
        for index in 0..len {
            self.bytes.push(index as u8 | 0x80);
        }
        self
    }

    pub(super) fn opaque(&mut self, len: usize) -> &mut Self {
        self.u32(len as u32).fixed(len);
        self.bytes.resize(self.bytes.len().next_multiple_of(4), 0);
        self
    }

    pub(super) fn item(&mut self, len: usize) -> &mut Self {
        let start = self.bytes.len() + 4;
        self.opaque(len);
        self.items.push(start..start + len);
        self
    }

    fn words(&mut self, count: usize) -> &mut Self {
        self.u32(count as u32).fixed(4 * count)
    }

    pub(super) fn append(&mut self, other: &Self) -> &mut Self {
        let by = self.bytes.len();
        self.bytes.extend(&other.bytes);
        let moved = other
            .items
            .iter()
            .map(|item| item.start + by..item.end + by);
        self.items.extend(moved);
        self
    }
}

/// Returns a number below `end`, often a small one or the last.
pub(super) fn below(g: &mut Gen, end: usize) -> usize {
    let any = u32::arbitrary(g) as usize;
    match u8::arbitrary(g) % 4 {
        0 => end.saturating_sub(1),
        1 => any % end.clamp(1, 9),
        _ => any % end.max(1),
    }
}

fn yes(g: &mut Gen) -> bool {
    bool::arbitrary(g)
}

/// Attributes that are asked for: the bitmap, and the values that answer it.
fn attributes(g: &mut Gen) -> (Out, Out) {
    let known: &[(u32, usize)] = &[
        (1, 4),
        (3, 8),
        (4, 8),
        (8, 16),
        (20, 8),
        (33, 4),
        (35, 4),
        (41, 8),
        (45, 8),
        (47, 12),
        (51, 12),
        (52, 12),
        (53, 12),
        (55, 8),
        (79, 4),
        (81, 8),
        (82, 4),
        (84, 12),
    ];
    let mut asked = [0u32; 3];
    let mut values = Vec::new();
    for number in 0..87u32 {
        if u8::arbitrary(g) % 4 != 0 {
            continue;
        }
        let mut value = Out::default();
        match number {
            0 | 75 => {
                let words = below(g, 4);
                value.words(words);
            }
            // Those without a limit.
            12 if u8::arbitrary(g) % 8 == 0 => {
                let aces = below(g, 10);
                value.u32(aces as u32);
                for _ in 0..aces {
                    let who = below(g, 99);
                    value.fixed(12).opaque(who);
                }
            }
            19 => {
                let len = below(g, 129);
                value.opaque(len);
            }
            36 | 37 => {
                let len = below(g, 513);
                value.opaque(len);
            }
            80 => {
                let len = below(g, 2049);
                value.fixed(8).opaque(len);
            }
            86 => {
                for _ in 0..5 {
                    let words = below(g, 4);
                    value.words(words);
                }
            }
            _ => match known.iter().find(|(known, _)| *known == number) {
                Some(&(_, len)) => {
                    value.fixed(len);
                }
                None => continue,
            },
        }
        asked[number as usize / 32] |= 1 << (number % 32);
        values.extend(value.bytes);
    }
    let words = match asked {
        [_, _, 0] if yes(g) => 2,
        _ => 3,
    };
    let (mut bitmap, mut fattr) = (Out::default(), Out::default());
    bitmap.u32(words);
    fattr.u32(3);
    for (index, word) in asked.into_iter().enumerate() {
        if index < words as usize {
            bitmap.u32(word);
        }
        fattr.u32(word);
    }
    fattr.u32(values.len() as u32);
    fattr.bytes.extend(values);
    (bitmap, fattr)
}

/// A `fattr4` of a request.
fn set(g: &mut Gen, out: &mut Out) {
    let (words, values) = (below(g, 4), below(g, 9));
    out.words(words).opaque(4 * values);
}

fn delegation(g: &mut Gen, out: &mut Out) {
    let who = below(g, 513);
    match u8::arbitrary(g) % 7 {
        0 => out.u32(0),
        1 => out.u32(1).fixed(16 + 4).fixed(12).opaque(who),
        2 => out.u32(2).fixed(16 + 4).u32(1).u64(7).fixed(12).opaque(who),
        3 => out.u32(2).fixed(16 + 4).u32(2).u64(7).fixed(12).opaque(who),
        4 => out.u32(3).u32(1).u32(0),
        5 => out.u32(3).u32(8),
        _ => out.u32(5).fixed(16 + 4).u32(2).u64(7).fixed(12).opaque(who),
    };
}

fn denied(g: &mut Gen, out: &mut Out) {
    let owner = below(g, 1025);
    out.u32(10_010).fixed(20 + 8).opaque(owner);
}

fn channel(g: &mut Gen, out: &mut Out) {
    let words = below(g, 2);
    out.fixed(8).u32(1 << 20).u32(4096).fixed(8).words(words);
}

fn security(g: &mut Gen, out: &mut Out) {
    let count = below(g, 3);
    out.u32(count as u32);
    for _ in 0..count {
        let (name, groups) = (below(g, 20), below(g, 5));
        match u8::arbitrary(g) % 3 {
            0 => out.u32(0),
            1 => out.u32(1).u32(5).opaque(name).u64(0).words(groups),
            _ => out.u32(6).u32(1).opaque(name).opaque(groups),
        };
    }
}

fn location(g: &mut Gen, out: &mut Out) {
    let len = below(g, 50);
    match yes(g) {
        true => out.u32(1).opaque(len),
        false => out.u32(3).opaque(3).opaque(len),
    };
}

fn written(g: &mut Gen, out: &mut Out) {
    match yes(g) {
        true => out.u32(1).fixed(16),
        false => out.u32(0),
    };
    out.fixed(8 + 4 + 8);
}

/// All operations, by number.
pub(super) const OPERATIONS: Range<u32> = 3..76;

/// Returns the arguments of an operation and the results of its success, or of a failure that has
/// results.
pub(super) fn operation(g: &mut Gen, number: u32) -> (Out, Out) {
    let (mut args, mut res) = (Out::default(), Out::default());
    let a = &mut args;
    let name = below(g, 70);
    let bits = below(g, 4);
    let count = below(g, 3000);
    // Most results begin with NFS4_OK.
    let mut r = Out::default();
    r.u32(0);
    match number {
        3 => (a.u32(1), r.fixed(8)),
        4 => (a.fixed(4 + 16), r.fixed(16)),
        5 => (a.fixed(12), r.fixed(8)),
        6 => {
            match u8::arbitrary(g) % 3 {
                0 => a.u32(5).item(count),
                1 => a.u32(4).fixed(8),
                _ => a.u32(2),
            };
            a.opaque(name);
            set(g, a);
            (a, r.fixed(20).words(bits))
        }
        7 | 30 | 57 => (a.fixed(8), &mut r),
        8 | 45 | 66 => (a.fixed(16), &mut r),
        9 => {
            let (asked, answer) = attributes(g);
            (a.append(&asked), r.append(&answer))
        }
        10 => (a, r.opaque(128.min(2 * name))),
        11 | 28 => (a.opaque(name), r.fixed(20)),
        12 => {
            a.fixed(24);
            match yes(g) {
                true => a.u32(1).fixed(24 + 8).opaque(name),
                false => a.u32(0).fixed(20),
            };
            if yes(g) {
                r = Out::default();
                denied(g, &mut r);
            } else {
                r.fixed(16);
            }
            (a, &mut r)
        }
        13 => {
            if yes(g) {
                r = Out::default();
                denied(g, &mut r);
            }
            (a.fixed(20 + 8).opaque(name), &mut r)
        }
        14 => (a.fixed(8 + 16 + 16), r.fixed(16)),
        15 => (a.opaque(name), &mut r),
        16 | 23 | 24 | 31 | 32 => (a, &mut r),
        17 | 37 => {
            set(g, a);
            (a, &mut r)
        }
        18 => {
            a.fixed(12 + 8).opaque(name);
            match u8::arbitrary(g) % 4 {
                0 => {
                    a.u32(0);
                }
                1 => {
                    a.u32(1).u32(1);
                    set(g, a);
                }
                2 => {
                    a.u32(1).u32(2).u64(5);
                }
                _ => {
                    a.u32(1).u32(3).u64(5);
                    set(g, a);
                }
            }
            match u8::arbitrary(g) % 7 {
                0 => a.u32(0).opaque(name),
                1 => a.u32(1).u32(2),
                2 => a.u32(2).fixed(16).opaque(name),
                3 => a.u32(3).opaque(name),
                4 => a.u32(4),
                5 => a.u32(5).fixed(16),
                _ => a.u32(6),
            };
            r.fixed(16 + 20 + 4).words(bits);
            delegation(g, &mut r);
            (a, &mut r)
        }
        19 | 58 => (a.u32(0), &mut r),
        20 => (a.fixed(16 + 4), r.fixed(16)),
        21 => (a.fixed(16 + 12), r.fixed(16)),
        22 => (a.opaque(128.min(2 * name)), &mut r),
        25 => {
            let read = below(g, count + 1);
            (a.fixed(16 + 8).u32(count as u32), r.u32(1).item(read))
        }
        26 => {
            let (asked, _) = attributes(g);
            a.fixed(16).u32(100).u32(count as u32).append(&asked);
            // As many entries as fit the count: verifier, entries, their end, and eof.
            let mut left = count.saturating_sub(16);
            r.fixed(8);
            loop {
                let (name, values) = (below(g, 30), below(g, 50));
                let mut entry = Out::default();
                entry.u32(1).u64(3).opaque(name).words(2).opaque(4 * values);
                if entry.bytes.len() > left {
                    break;
                }
                left -= entry.bytes.len();
                r.append(&entry);
            }
            (a, r.u32(0).u32(1))
        }
        27 => {
            let text = below(g, 4096);
            (a, r.item(text))
        }
        29 => (a.opaque(name).opaque(name), r.fixed(40)),
        33 | 52 => {
            match number {
                33 => a.opaque(name),
                _ => a.u32(0),
            };
            let flavors = below(g, 12);
            r.u32(flavors as u32);
            for _ in 0..flavors {
                match yes(g) {
                    true => r.u32(6).opaque(11).u32(0).u32(1),
                    false => r.u32(1),
                };
            }
            (a, &mut r)
        }
        34 => {
            a.fixed(16);
            set(g, a);
            (a, r.words(bits))
        }
        35 => {
            a.fixed(8).opaque(name).u32(7).opaque(3).opaque(name).u32(1);
            if yes(g) {
                r = Out::default();
                r.u32(10_017).opaque(4).opaque(name);
            } else {
                r.fixed(16);
            }
            (a, &mut r)
        }
        36 => (a.fixed(16), &mut r),
        38 => (a.fixed(16 + 8 + 4).item(count), r.fixed(16)),
        39 => (a.fixed(8).opaque(name), &mut r),
        40 => {
            a.u32(0x4000_0000);
            security(g, a);
            (a, &mut r)
        }
        41 => (a.fixed(24), r.fixed(24)),
        42 => {
            a.fixed(8).opaque(name).u32(0);
            match u8::arbitrary(g) % 3 {
                0 => a.u32(0),
                1 => a.u32(1).words(bits).words(1),
                _ => a
                    .u32(2)
                    .words(1)
                    .words(bits)
                    .u32(1)
                    .opaque(9)
                    .u32(2)
                    .opaque(1)
                    .opaque(2)
                    .u64(1),
            };
            match yes(g) {
                true => a.u32(1).opaque(name).opaque(name).fixed(12),
                false => a.u32(0),
            };
            r.fixed(16);
            match u8::arbitrary(g) % 3 {
                0 => r.u32(0),
                1 => r.u32(1).words(bits).words(1),
                _ => r.u32(2).words(1).words(bits).fixed(16).u32(1).opaque(name),
            };
            let scope = below(g, 1025);
            r.u64(0).opaque(scope).opaque(scope);
            match yes(g) {
                true => r.u32(1).opaque(name).opaque(scope).fixed(12),
                false => r.u32(0),
            };
            (a, &mut r)
        }
        43 => {
            a.fixed(16);
            channel(g, a);
            channel(g, a);
            a.u32(0x4000_0000);
            security(g, a);
            r.fixed(24);
            channel(g, &mut r);
            channel(g, &mut r);
            (a, &mut r)
        }
        44 => (a.fixed(16), &mut r),
        46 => {
            a.u32(0).words(bits).fixed(24).words(1).words(bits);
            match yes(g) {
                true => r.u32(0).fixed(8 + 16).words(1).words(bits).words(bits),
                false => r.u32(1).u32(0),
            };
            (a, &mut r)
        }
        47 => {
            a.fixed(20).u32(count as u32).words(bits);
            // The type and the length of the address count.
            let address = below(g, (count + 1).saturating_sub(12));
            match yes(g) && count > 12 {
                true => r.u32(1).opaque(address).words(bits),
                false => {
                    r = Out::default();
                    r.u32(10_005).u32(99)
                }
            };
            (a, &mut r)
        }
        48 => {
            let devices = below(g, 20);
            let answer = below(g, devices + 1);
            a.u32(1).u32(devices as u32).fixed(16);
            (a, r.fixed(16).u32(answer as u32).fixed(16 * answer).u32(1))
        }
        49 => {
            a.fixed(20 + 16);
            match yes(g) {
                true => a.u32(1).u64(9).u32(0),
                false => a.u32(0).u32(1).fixed(12),
            };
            match yes(g) {
                true => r.u32(1).u64(9),
                false => r.u32(0),
            };
            (a.u32(1).opaque(name), &mut r)
        }
        50 => {
            a.fixed(12 + 24 + 16).u32(count as u32);
            if yes(g) {
                let body = below(g, (count + 1).saturating_sub(40));
                r.u32(1).fixed(16).u32(1).fixed(24).opaque(body);
            } else {
                r = Out::default();
                r.u32(10_058).u32(1);
            }
            (a, &mut r)
        }
        51 => {
            a.fixed(12);
            match yes(g) {
                true => a.u32(1).fixed(16 + 16).opaque(name),
                false => a.u32(3),
            };
            match yes(g) {
                true => r.u32(1).fixed(16),
                false => r.u32(0),
            };
            (a, &mut r)
        }
        53 => (a.fixed(16 + 12).u32(u32::from(yes(g))), r.fixed(36)),
        54 => (a.opaque(name).opaque(name), r.opaque(name)),
        55 => {
            let ids = below(g, 20);
            (
                a.u32(ids as u32).fixed(16 * ids),
                r.u32(ids as u32).fixed(4 * ids),
            )
        }
        56 => {
            match yes(g) {
                true => a.u32(0).u32(1).u32(2),
                false => a.u32(0).u32(4),
            };
            delegation(g, &mut r);
            (a, &mut r)
        }
        59 | 62 => (a.fixed(16 + 16), &mut r),
        60 => {
            a.fixed(32 + 24 + 8);
            let servers = below(g, 3);
            a.u32(servers as u32);
            for _ in 0..servers {
                location(g, a);
            }
            if yes(g) {
                written(g, &mut r);
                r.fixed(8);
            } else {
                r = Out::default();
                r.u32(10_094).fixed(8);
            }
            (a, &mut r)
        }
        61 => {
            a.fixed(16);
            location(g, a);
            let servers = below(g, 5);
            r.fixed(12 + 16).u32(servers as u32);
            for _ in 0..servers {
                location(g, &mut r);
            }
            (a, &mut r)
        }
        63 => (a.fixed(32).words(bits), r.words(bits)),
        64 => (a.fixed(32).u32(2).fixed(48), &mut r),
        65 => (a.fixed(32 + 32 + 16 + 4).opaque(name), &mut r),
        67 => {
            let done = below(g, 2);
            (a.fixed(16), r.u64(7).words(done))
        }
        68 => {
            a.fixed(16 + 8).u32(count as u32);
            // Data and holes of 32 bytes, by turns.
            let segments = below(g, count / 32 + 1);
            r.u32(1).u32(segments as u32);
            for segment in 0..segments {
                match segment % 2 {
                    0 => r.u32(0).u64(0).opaque(32),
                    _ => r.u32(1).u64(0).u64(32),
                };
            }
            (a, &mut r)
        }
        69 => (a.fixed(16 + 12), r.fixed(12)),
        70 => {
            a.fixed(16 + 4 + 44).opaque(name);
            written(g, &mut r);
            (a, &mut r)
        }
        71 => (a.fixed(32 + 24), &mut r),
        72 => (a.opaque(name), r.opaque(count)),
        73 => (a.u32(0).opaque(name).opaque(count), r.fixed(20)),
        74 => {
            a.u64(0).u32(count as u32);
            let mut left = count.saturating_sub(16);
            let mut names = Out::default();
            let mut number = 0;
            loop {
                let len = below(g, 40);
                if 4 + len.next_multiple_of(4) > left {
                    break;
                }
                left -= 4 + len.next_multiple_of(4);
                names.opaque(len);
                number += 1;
            }
            (a, r.u64(9).u32(number).append(&names).u32(1))
        }
        75 => (a.opaque(name), r.fixed(20)),
        _ => unreachable!("operation {number}"),
    };
    res.append(&r);
    (args, res)
}

/// A COMPOUND and its reply, behind the headers of RPC.
#[derive(Clone, Debug)]
pub(super) struct Exchange {
    pub(super) call: Out,
    pub(super) reply: Out,
}

/// Appends the header of a call with AUTH_SYS.
pub(super) fn call_header(out: &mut Out, program: u32, version: u32, procedure: u32) {
    out.u32(7)
        .u32(0)
        .u32(2)
        .u32(program)
        .u32(version)
        .u32(procedure);
    out.u32(1).u32(20).u32(1).u32(0).u64(0).u32(0);
    out.u32(0).u32(0);
}

/// Appends the header of a reply with results.
pub(super) fn reply_header(out: &mut Out) {
    out.u32(7).u32(1).u32(0).u32(0).u32(0).u32(0);
}

impl Exchange {
    /// Returns a COMPOUND of these operations. Those from `failing` on have no results, and that
    /// one has an error.
    pub(super) fn of(g: &mut Gen, minor: u32, operations: &[u32], failing: usize) -> Self {
        let (mut call, mut reply) = (Out::default(), Out::default());
        let tag = below(g, 20);
        call_header(&mut call, 100_003, 4, 1);
        call.opaque(tag).u32(minor).u32(operations.len() as u32);
        reply_header(&mut reply);
        let done = operations.len().min(failing + 1);
        reply.u32(0).opaque(tag).u32(done as u32);
        for (index, &number) in operations.iter().enumerate() {
            let (args, results) = operation(g, number);
            call.u32(number).append(&args);
            if index < failing {
                reply.u32(number).append(&results);
            } else if index == failing {
                reply.u32(number).u32(13);
                if number == 34 {
                    // SETATTR says in any case what it has set.
                    reply.words(2);
                }
            }
        }
        Self { call, reply }
    }
}

impl Arbitrary for Exchange {
    fn arbitrary(g: &mut Gen) -> Self {
        let minor = u32::arbitrary(g) % 3;
        let last = [39, 58, 75][minor as usize];
        let mut operations: Vec<u32> = match minor {
            0 => Vec::new(),
            _ => vec![53],
        };
        for _ in 0..below(g, 9) {
            // Half of them have items.
            let any = OPERATIONS.start + u32::arbitrary(g) % (last + 1 - OPERATIONS.start);
            let items = [25, 27, 38, 6];
            let number = *g.choose(&items).unwrap_or(&25);
            operations.push(if yes(g) { number } else { any });
        }
        let failing = match yes(g) {
            true => operations.len(),
            false => below(g, operations.len() + 1),
        };
        Self::of(g, minor, &operations, failing)
    }
}
