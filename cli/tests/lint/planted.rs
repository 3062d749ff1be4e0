//! Faults that are planted in traffic are found in the packet that has them.

use std::fs;

use rpcrdma_reading::Version;

use crate::frames::{Fpdu, UNTAGGED, fpdus, header, opcode, seal, word};
use crate::traffic::{Traffic, WAYS, collect};

/// Where a fault is planted, and how.
struct Fault {
    rule: &'static str,
    /// The captures that have such an FPDU: version, and the name of the command.
    version: Version,
    command: &'static str,
    is_client: bool,
    fits: fn(&[u8]) -> bool,
    plant: fn(&mut [u8]),
}

/// Adds to a word of the header.
fn add(ulpdu: &mut [u8], index: usize, number: u32) {
    let at = UNTAGGED + 4 * index;
    let changed = word(ulpdu, at).unwrap().wrapping_add(number);
    ulpdu[at..at + 4].copy_from_slice(&changed.to_be_bytes());
}

/// A call of version 1 or a reply with no chunk: RDMA_MSG and three empty lists.
fn is_plain(ulpdu: &[u8]) -> bool {
    (3..7).all(|index| header(ulpdu, index) == Some(0)) && header(ulpdu, 1) == Some(1)
}

/// A call of version 1 with a read chunk.
fn has_read_chunk(ulpdu: &[u8]) -> bool {
    header(ulpdu, 1) == Some(1) && header(ulpdu, 3) == Some(0) && header(ulpdu, 4) == Some(1)
}

/// A reply of version 1 that returns a write chunk of one segment.
fn returns_chunk(ulpdu: &[u8]) -> bool {
    header(ulpdu, 1) == Some(1)
        && header(ulpdu, 3) == Some(0)
        && header(ulpdu, 4) == Some(0)
        && header(ulpdu, 5) == Some(1)
        && header(ulpdu, 6) == Some(1)
}

const FAULTS: [Fault; 16] = [
    Fault {
        rule: "xid",
        version: Version::One,
        command: "ping",
        is_client: true,
        fits: is_plain,
        plant: |ulpdu| add(ulpdu, 7, 1),
    },
    Fault {
        rule: "version",
        version: Version::One,
        command: "ping",
        is_client: true,
        fits: is_plain,
        plant: |ulpdu| add(ulpdu, 1, 8),
    },
    Fault {
        rule: "zero_credits",
        version: Version::One,
        command: "ping",
        is_client: false,
        fits: is_plain,
        plant: |ulpdu| ulpdu[UNTAGGED + 8..UNTAGGED + 12].fill(0),
    },
    Fault {
        rule: "form",
        version: Version::One,
        command: "ping",
        is_client: true,
        fits: is_plain,
        plant: |ulpdu| add(ulpdu, 4, 2),
    },
    Fault {
        rule: "retired",
        version: Version::One,
        command: "ping",
        is_client: true,
        fits: is_plain,
        plant: |ulpdu| add(ulpdu, 3, 2),
    },
    Fault {
        rule: "unmatched",
        version: Version::One,
        command: "ping",
        is_client: false,
        fits: is_plain,
        plant: |ulpdu| add(ulpdu, 0, 1 << 31),
    },
    Fault {
        rule: "position",
        version: Version::One,
        command: "put",
        is_client: true,
        fits: has_read_chunk,
        plant: |ulpdu| add(ulpdu, 5, 2),
    },
    Fault {
        rule: "unknown_handle",
        version: Version::One,
        command: "put",
        is_client: false,
        fits: |ulpdu| opcode(ulpdu) == 1,
        plant: |ulpdu| ulpdu[UNTAGGED + 16] ^= 1,
    },
    Fault {
        rule: "out_of_bounds",
        version: Version::One,
        command: "get",
        is_client: false,
        fits: |ulpdu| opcode(ulpdu) == 0,
        plant: |ulpdu| ulpdu[11] ^= 0x80,
    },
    Fault {
        rule: "invalidated",
        version: Version::One,
        command: "put",
        is_client: false,
        fits: |ulpdu| opcode(ulpdu) == 4,
        plant: |ulpdu| ulpdu[2] ^= 1,
    },
    Fault {
        rule: "returned_chunks",
        version: Version::One,
        command: "get",
        is_client: false,
        fits: returns_chunk,
        plant: |ulpdu| add(ulpdu, 7, 1),
    },
    Fault {
        rule: "message_number",
        version: Version::One,
        command: "ping",
        is_client: true,
        fits: |ulpdu| opcode(ulpdu) == 3,
        plant: |ulpdu| ulpdu[13] ^= 0x40,
    },
    Fault {
        rule: "rdmap_control",
        version: Version::One,
        command: "ping",
        is_client: true,
        fits: |ulpdu| opcode(ulpdu) == 3,
        plant: |ulpdu| ulpdu[1] = 0x4f,
    },
    Fault {
        rule: "sequence",
        version: Version::Two,
        command: "put",
        is_client: true,
        // ROPT_XMTCONT.
        fits: |ulpdu| header(ulpdu, 3) == Some(5) && header(ulpdu, 5) == Some(7),
        plant: |ulpdu| add(ulpdu, 7, 1),
    },
    Fault {
        rule: "remaining",
        version: Version::TwoWg,
        command: "put",
        is_client: true,
        // RDMA2_CALL_MIDDLE.
        fits: |ulpdu| header(ulpdu, 3) == Some(9),
        plant: |ulpdu| add(ulpdu, 4, 4),
    },
    Fault {
        rule: "credit_range",
        version: Version::TwoWg,
        command: "ping",
        is_client: false,
        // RDMA2_REPLY_INLINE.
        fits: |ulpdu| header(ulpdu, 3) == Some(13),
        plant: |ulpdu| add(ulpdu, 2, 1 << 31),
    },
];

#[test]
fn planted_faults_are_found_in_the_packet_that_has_them() {
    let ways = [
        ("rpcrdma=1", Version::One),
        ("rpcrdma=2,features=cont", Version::Two),
        ("rpcrdma=2wg,features=cont", Version::TwoWg),
    ];
    let traffic = Traffic::new(&ways);
    for fault in &FAULTS {
        let captures = traffic.named(fault.command);
        let mut planted = 0;
        for file in captures {
            let clean = fs::read(file).unwrap();
            if collect(&clean).connections[0].version != Some(fault.version) {
                continue;
            }
            let all = fpdus(&clean);
            let fits = |fpdu: &&Fpdu| {
                fpdu.is_from_client == fault.is_client
                    && (fault.fits)(&clean[fpdu.at..fpdu.at + fpdu.len])
            };
            let found: Vec<&Fpdu> = all.iter().filter(fits).collect();
            let Some(fpdu) = found.get(found.len() / 2) else {
                continue;
            };
            planted += 1;
            let mut damaged = clean.clone();
            (fault.plant)(&mut damaged[fpdu.at..fpdu.at + fpdu.len]);
            seal(&mut damaged, fpdu);
            let breaches = collect(&damaged).breaches;
            let is_found = breaches
                .iter()
                .any(|it| it.rule.id == fault.rule && it.at.packet == fpdu.packet);
            assert!(is_found, "{} in {fpdu:?}: {breaches:#?}", fault.rule);
        }
        assert_eq!(planted, 1, "{}", fault.rule);
    }
}

/// The octets of an FPDU are changed, and its CRC is not.
#[test]
fn damaged_octets_are_found_by_their_crc() {
    let traffic = Traffic::new(&WAYS[..1]);
    let file = traffic.named("ping").next().unwrap();
    let mut bytes = fs::read(file).unwrap();
    let all = fpdus(&bytes);
    let fpdu = all[all.len() / 2];
    bytes[fpdu.at + UNTAGGED] ^= 1;
    let breaches = collect(&bytes).breaches;
    let [breach] = &breaches[..] else {
        panic!("{breaches:#?}");
    };
    assert_eq!((breach.rule.id, breach.at.packet), ("crc", fpdu.packet));
}
