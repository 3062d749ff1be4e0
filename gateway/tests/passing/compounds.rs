//! COMPOUNDs of NFS version 4 with several DDP-eligible items in one.

use rpc_transport::rdma::Version;
use rpcrdma_protocols::RoundTripFeatures;

use crate::support::{Over, Rest, words};
use crate::{Ends, ends};

/// An operation with so many bytes of data.
#[derive(Clone, Copy, Debug)]
enum Op {
    Read(usize),
    Write(usize),
}

use Op::{Read, Write};

pub(crate) fn opaque(out: &mut Vec<u8>, len: usize, from: u32) {
    out.extend((len as u32).to_be_bytes());
    out.extend((0..len).map(|n| (n as u32).wrapping_mul(from) as u8));
    out.resize(out.len().next_multiple_of(4), 0);
}

/// Returns a COMPOUND of version 4.0 and its reply, octet by octet.
fn compound(xid: u32, operations: &[Op]) -> [Vec<u8>; 2] {
    let count = operations.len() as u32 + 1;
    let mut call = words(&[xid, 0, 2, 100_003, 4, 1, 0, 0, 0, 0, 0, 0, count]);
    let mut reply = words(&[xid, 1, 0, 0, 0, 0, 0, 0, count]);
    // PUTFH.
    call.extend(words(&[22]));
    opaque(&mut call, 28, 3);
    reply.extend(words(&[22, 0]));
    for operation in operations {
        // The state, and the offset.
        let at = [1, 2, 3, 4, 0, 4096];
        match *operation {
            Read(len) => {
                call.extend(words(&[25]));
                call.extend(words(&at));
                call.extend(words(&[len as u32]));
                reply.extend(words(&[25, 0, 0]));
                opaque(&mut reply, len, 5);
            }
            Write(len) => {
                call.extend(words(&[38]));
                call.extend(words(&at));
                call.extend(words(&[2]));
                opaque(&mut call, len, 7);
                reply.extend(words(&[38, 0, len as u32, 2, 8, 9]));
            }
        }
    }
    [call, reply]
}

/// One COMPOUND of each kind.
const CASES: [&[Op]; 5] = [
    &[Read(40_000), Read(70_001)],
    &[Write(40_000), Read(70_001)],
    &[Write(70_001), Write(40_000)],
    &[Read(60_000), Write(60_000), Read(9_000), Write(9_001)],
    &[
        Write(300),
        Write(50_000),
        Read(300),
        Read(50_000),
        Read(50_001),
    ],
];

/// The names of kinds of [`CASES`].
const READ_READ: &str = "NFSv4.0 PUTFH READ READ";
const WRITE_READ: &str = "NFSv4.0 PUTFH WRITE READ";
const WRITE_WRITE: &str = "NFSv4.0 PUTFH WRITE WRITE";
const MIXED: &str = "NFSv4.0 PUTFH WRITE WRITE READ READ READ";

/// Text of `--explain` at the first of two gateways for one kind of COMPOUND.
type Said = (&'static str, &'static [&'static str]);

/// Passes the cases by two gateways, and checks every octet at both ends, what the first gateway says, and whether the
/// last one has read and written chunks.
fn check(between: Over, said: &[Said], (reads, writes): (bool, bool)) {
    let mut ends: Ends = ends(between);
    for (case, operations) in CASES.iter().enumerate() {
        for again in 0..3 {
            let [call, reply] = compound(10 * case as u32 + 100 + again, operations);
            ends.client.send(&call);
            ends.server.expect(&call);
            ends.server.send(&reply);
            ends.client.expect(&reply);
        }
    }
    let rests: [Rest; 2] = ends.end().try_into().unwrap();
    for rest in &rests {
        assert_eq!((rest.stats.failed, rest.stats.misplaced), (0, 0));
    }
    let [first, last] = rests;
    for (name, words) in said {
        let kinds: Vec<_> = first
            .kinds
            .iter()
            .filter(|(kind, _)| kind == name)
            .collect();
        let [(_, treatment)] = kinds[..] else {
            panic!("{name}: {:?}", first.kinds);
        };
        assert_eq!((treatment.calls, treatment.whole), (3, None));
        let text = treatment.to_string();
        for word in *words {
            assert!(
                text.contains(word),
                "{between:?} {name}: no {word:?} in: {text}"
            );
        }
    }
    let counters = last.counters[0];
    let found = (counters.rdma_reads > 0, counters.rdma_writes > 0);
    assert_eq!(found, (reads, writes), "{between:?}");
}

/// One chunk in each list, and the other items with the payload (RFC 8267, section 6.4.2).
#[test]
fn rfc8267_s6_4_2_compounds_of_several_items_use_one_chunk_of_each_list_over_version_1() {
    let said: [Said; 4] = [
        (
            READ_READ,
            &[
                "reply: reply chunk",
                "item 0 by write chunk (<= 70001 B)",
                "apart at most [70001]",
            ],
        ),
        (
            WRITE_READ,
            &[
                "item 0 by read chunk at 124 (40000 B)",
                "item 0 by write chunk (<= 70001 B)",
            ],
        ),
        (
            WRITE_WRITE,
            &[
                "position-zero read chunk (40160 B)",
                "item 0 by read chunk at 124 (70001 B)",
            ],
        ),
        (
            MIXED,
            &["reply: reply chunk", "item 0 by write chunk (<= 50001 B)"],
        ),
    ];
    let none = RoundTripFeatures::default();
    check(Over::Rdma(Version::ONE, none), &said, (true, true));
}

#[test]
fn compounds_of_several_items_use_a_chunk_for_each_over_version_2() {
    let none = RoundTripFeatures::default();
    let two: [Said; 4] = [
        (
            READ_READ,
            &[
                "item 0 by write chunk (<= 70001 B)",
                "item 1 by write chunk (<= 70001 B)",
            ],
        ),
        (
            WRITE_READ,
            &[
                "item 0 by read chunk at 124 (40000 B)",
                "item 0 by write chunk (<= 70001 B)",
            ],
        ),
        (
            WRITE_WRITE,
            &["item 0 by read chunk at 124 (70001 B), item 1 by read chunk at 70164 (40000 B)"],
        ),
        (
            MIXED,
            &[
                "item 0 in it (300 B), item 1 by read chunk",
                "item 2 by write chunk (<= 50001 B)",
            ],
        ),
    ];
    check(Over::Rdma(Version::TWO, none), &two, (true, true));
    // Calls are continued in several messages there.
    check(Over::Rdma(Version::TWO_WG, none), &two[..1], (false, true));
}

/// Items of both directions in one COMPOUND are placed, and short ones stay in the payload beside them.
#[test]
fn compounds_of_several_items_are_placed_over_version_2_with_all_features() {
    let two: [Said; 4] = [
        (
            READ_READ,
            &[
                "item 0 placed, item 1 placed",
                "apart at most [70001, 70001]",
            ],
        ),
        (
            WRITE_READ,
            &[
                "item 0 placed at 124 (40000 B); reply: up to 2 transmissions",
                "item 0 placed;",
            ],
        ),
        (
            WRITE_WRITE,
            &["item 0 placed at 124 (70001 B), item 1 placed at 70164 (40000 B)"],
        ),
        (
            MIXED,
            &[
                "item 0 in it at 124 (300 B), item 1 placed at 460 (50000 B)",
                "item 2 placed",
            ],
        ),
    ];
    let all = RoundTripFeatures::ALL;
    check(Over::Rdma(Version::TWO, all), &two, (false, false));
    let working_group: [Said; 4] = [
        (
            READ_READ,
            &["its items placed", "apart at most [70001, 70001]"],
        ),
        (
            WRITE_READ,
            &["call: 1 message, item 0 placed; reply:", "its items placed"],
        ),
        (WRITE_WRITE, &["item 0 placed, item 1 placed"]),
        (
            MIXED,
            &["call: 1 message, item 1 placed", "its items placed"],
        ),
    ];
    check(
        Over::Rdma(Version::TWO_WG, all),
        &working_group,
        (false, false),
    );
}
