//! Transport properties (version-two-07, sections 5, 6.3.3 and 6.3.4): values, lengths, sets, and exchanges out of
//! order.

use super::{
    BAD_XDR, FIRST_BAD_PROPVAL, FIRST_BAD_XDR, FIRST_INVAL_CONT, INVAL_CONT, answered, based,
    error, first_row, null, refused, reply,
};
use crate::case::{Case, Ground, Level, Step};
use crate::cases::nfs;
use crate::expect::success;
use crate::wire::rpc;
use crate::wire::wg::{
    self, CALL_EXTERNAL, CALL_MIDDLE, CONNPROP_MIDDLE, ERR_BAD_PROPVAL, ERR_BAD_XDR,
    ERR_INVAL_CONT, INTRODUCTION, PROPERTIES, introduction, plain_properties,
};

const VALUES: &str = "version-two-07, 5.1";
const EXCHANGE: &str = "version-two-07, 6.3.4";
const PARTS: &str = "version-two-07, 6.3.3";
const TAKEN: &str = "no error, and the next calls are answered";
const BAD_PROPVAL: &str = "RDMA2_ERROR with BAD_PROPVAL, and the next call is answered";
/// The address of the plain exchange in two messages.
const FIRST_PARTS: &str = "rpcrdma2-07/6.3.3/1";
/// The address of a plain call between the two messages.
const FIRST_INTERRUPTED: &str = "rpcrdma2-07/6.3.3/2";

/// The names of the properties, in their XDR.
const NAMES: [&str; 6] = ["SBSIZ", "RBSIZ", "RSSIZ", "RCSIZ", "BRS", "HOSTAUTH"];

fn middle(words: &[u32]) -> Vec<u8> {
    wg::message(INTRODUCTION, CONNPROP_MIDDLE, words, &[])
}

/// Returns the cases.
#[must_use]
pub fn cases(ground: &Ground) -> Vec<Case> {
    [exchanges(ground), lengths(), numbers(ground), sets(ground)].concat()
}

/// Returns a case whose first message has properties that are taken: NULL and READ are answered.
fn taken(
    ground: &Ground,
    section: &'static str,
    number: u32,
    sends: impl Into<String>,
    words: &[u32],
) -> Case {
    let mut steps = answered(ground.xid());
    let (xid, read) = nfs::read(ground, 0, 4096, &[], None);
    steps.extend([Step::Send(wg::from_first(&read)), reply(success(xid, &[0]))]);
    first_row(section, number, sends, TAKEN, introduction(words), steps)
}

/// Returns a case whose first message has properties that are refused with one of these errors.
fn bad(
    section: &'static str,
    number: u32,
    sends: impl Into<String>,
    words: &[u32],
    codes: &[u32],
) -> Case {
    let (expects, base) = match codes {
        [ERR_BAD_XDR] => (BAD_XDR, FIRST_BAD_XDR),
        [ERR_BAD_PROPVAL] => (BAD_PROPVAL, FIRST_BAD_PROPVAL),
        _ => (
            "RDMA2_ERROR with BAD_PROPVAL or BAD_XDR, and the next call is answered",
            FIRST_BAD_PROPVAL,
        ),
    };
    let allowed = codes.iter().map(|code| error(INTRODUCTION, &[*code]));
    let steps = vec![Step::Expect(allowed.collect())];
    let case = first_row(section, number, sends, expects, introduction(words), steps);
    based(case, base)
}

/// Values of properties that are numbers.
fn numbers(ground: &Ground) -> Vec<Case> {
    const SECTION: &str = "version-two-07, 5.2";
    const NUMBERS: [u32; 11] = [
        4096,
        0,
        1,
        64,
        1023,
        1024,
        4095,
        4097,
        1 << 20,
        1 << 31,
        u32::MAX,
    ];
    let mut cases = Vec::new();
    for (id, name) in (1..=4).zip(NAMES) {
        for (at, value) in (0..).zip(NUMBERS) {
            // No reply fits such receives.
            if id == 2 && value < 64 {
                continue;
            }
            let sends = format!("{name} of {value}");
            let case = taken(
                ground,
                SECTION,
                20 * id + at,
                sends,
                &wg::set(&[(id, value)]),
            );
            cases.push(case.level(Level::Robustness));
        }
    }
    for level in 0..=3 {
        let sends = format!("BRS of {level}");
        let words = wg::set(&[(5, level)]);
        cases.push(taken(
            ground,
            "version-two-07, 5.2.5",
            1 + level,
            sends,
            &words,
        ));
    }
    cases
}

/// Values of the wrong length.
fn lengths() -> Vec<Case> {
    let mut cases = Vec::new();
    // The first case of the table is the one that the others need.
    for (id, name) in PROPERTIES.into_iter().zip(NAMES) {
        for (at, len) in (1..).zip([1_u32, 2, 3, 5, 8, 12]) {
            let value = vec![0; len.div_ceil(4) as usize];
            let words = [&[1, id, len][..], &value].concat();
            let sends = format!("{name} of {len} bytes");
            let number = 20 * (id - 1) + at;
            cases.push(bad(VALUES, number, sends, &words, &[ERR_BAD_PROPVAL]));
        }
        // The text has both errors for these (errata-07, 27).
        for (at, len) in (10..).zip([5_u32, 4096, 4097, u32::MAX - 3, u32::MAX]) {
            let sends = format!("{name} of {len} bytes in a message that ends before");
            let words = [1, id, len, 0];
            let codes = [ERR_BAD_PROPVAL, ERR_BAD_XDR];
            cases.push(bad(VALUES, 20 * (id - 1) + at, sends, &words, &codes));
        }
    }
    let mut number = 200;
    for id in [0, 7, 99, 0xffff_fe00, 0xffff_ff00, 0xffff_ff80, u32::MAX] {
        for len in [8_u32, u32::MAX] {
            let sends = format!("property {id} of {len} bytes in a message that ends before");
            let words = [1, id, len, 0];
            let codes = [ERR_BAD_PROPVAL, ERR_BAD_XDR];
            cases.push(bad(VALUES, number, sends, &words, &codes));
            number += 1;
        }
    }
    // HOSTAUTH has a length of its own inside.
    for (at, (inner, len)) in (1..).zip([(1, 4), (5, 8), (u32::MAX, 8), (0, 8), (4, 12)]) {
        let value = vec![0; (len as usize - 4) / 4];
        let words = [&[1, 6, len, inner][..], &value].concat();
        let sends = format!("HOSTAUTH of {inner} bytes in {len}");
        let section = "version-two-07, 5.2.6";
        cases.push(bad(section, at, sends, &words, &[ERR_BAD_PROPVAL]));
    }
    cases
}

/// Sets of properties: their counts, and repeated and unknown ones.
fn sets(ground: &Ground) -> Vec<Case> {
    let right = plain_properties();
    let counted = |count: u32| [&[count], &right[1..]].concat();
    let ok = |number, sends: &str, words: &[u32]| taken(ground, VALUES, number, sends, words);
    let broken = |number, sends: &str, words: &[u32]| {
        bad(
            "version-two-07, 7.2.1",
            number,
            sends,
            words,
            &[ERR_BAD_XDR],
        )
    };
    let many: Vec<(u32, u32)> = (0..60).map(|n| (99 + n, n)).collect();
    let odd = [&[3, 99, 0, 98, 3, 0, 97, 40][..], &[0xa5; 10]].concat();
    vec![
        ok(300, "the default properties", &right),
        ok(301, "no property", &[0]),
        ok(
            302,
            // HOSTAUTH has no default that an empty value could stand for (errata-07, 30).
            "every property but HOSTAUTH with an empty value",
            &[5, 1, 0, 2, 0, 3, 0, 4, 0, 5, 0],
        ),
        ok(303, "RBSIZ twice", &wg::set(&[(2, 1024), (2, 4096)])).level(Level::Robustness),
        ok(304, "HOSTAUTH of 4 bytes", &[1, 6, 8, 4, 0x6161_6161]),
        ok(305, "HOSTAUTH of 1 byte", &[1, 6, 8, 1, 0x6100_0000]),
        ok(306, "HOSTAUTH of 0 bytes", &[1, 6, 4, 0]),
        ok(307, "60 unknown properties", &wg::set(&many)),
        ok(308, "unknown properties of 0, 3 and 40 bytes", &odd),
        broken(
            300,
            "rdma_props that counts one more than there are",
            &counted(6),
        ),
        broken(301, "rdma_props that counts 65 of 5", &counted(65)),
        broken(
            302,
            "rdma_props that counts 4294967295 of 5",
            &counted(u32::MAX),
        ),
        broken(303, "RDMA2_CONNPROP_FINAL without rdma_props", &[]),
        broken(304, "a property without rdma_which", &[1]),
        broken(305, "a property without rdma_data", &[1, 2]),
    ]
}

/// Exchanges out of order.
fn exchanges(ground: &Ground) -> Vec<Case> {
    let (all, one) = (plain_properties(), wg::set(&[(99, 0)]));
    let last = || introduction(&all);
    let after = |number, sends: &str, first, steps| {
        let case = first_row(EXCHANGE, number, sends, INVAL_CONT, first, steps);
        based(case, FIRST_INVAL_CONT)
    };
    let again = || refused(INTRODUCTION, &[ERR_INVAL_CONT]);
    let xid = ground.xid();
    let interrupted = |number, name: &str, message: Vec<u8>| {
        let sends = format!("{name} between RDMA2_CONNPROP_MIDDLE and RDMA2_CONNPROP_FINAL");
        let steps = vec![
            Step::Send(message),
            refused(xid, &[ERR_INVAL_CONT]),
            Step::Send(last()),
        ];
        let case = first_row(PARTS, number, sends, INVAL_CONT, middle(&one), steps);
        case.needs(if number == 2 {
            FIRST_PARTS
        } else {
            FIRST_INTERRUPTED
        })
    };
    let external = [0, 1, 0, 0x51, 40, 0, 0, 0, 0, 0, 0];
    let mut answered_first = answered(xid);
    let first = null(xid);
    answered_first.remove(0);
    answered_first.push(Step::Send(last()));
    vec![
        after(
            2,
            "RDMA2_CONNPROP_FINAL twice",
            last(),
            vec![Step::Send(last()), again()],
        ),
        after(
            4,
            "RDMA2_CONNPROP_MIDDLE after RDMA2_CONNPROP_FINAL",
            last(),
            vec![Step::Send(middle(&one)), again()],
        ),
        first_row(
            EXCHANGE,
            3,
            "a call, and then RDMA2_CONNPROP_FINAL",
            "a reply, and the next call is answered",
            first,
            answered_first,
        )
        .level(Level::Robustness),
        // The first message must be answered before the last can be sent (errata-07, 12).
        first_row(
            PARTS,
            1,
            "properties in two messages",
            "credit after the first, and the next call is answered",
            middle(&one),
            vec![Step::Send(last())],
        )
        .level(Level::Robustness),
        interrupted(2, "a call", null(xid)),
        interrupted(
            3,
            "RDMA2_CALL_MIDDLE",
            wg::message(xid, CALL_MIDDLE, &[36], &rpc::null(xid).bytes()[..4]),
        ),
        interrupted(
            4,
            "RDMA2_CALL_EXTERNAL",
            wg::message(xid, CALL_EXTERNAL, &external, &[]),
        ),
        first_row(
            PARTS,
            5,
            "RDMA2_CONNPROP_MIDDLE whose properties break off",
            "RDMA2_ERROR with BAD_XDR, and the next call is answered",
            middle(&one),
            vec![
                Step::Send(middle(&[7])),
                refused(INTRODUCTION, &[ERR_BAD_XDR]),
                Step::Send(last()),
            ],
        )
        .needs(FIRST_PARTS),
    ]
}
