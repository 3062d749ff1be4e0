//! Tests of `lint`: faults that are planted in captures of this project's own traffic are found, and
//! nothing is found where there is none. Counts are those that `compare` counts for the same calls.
#![allow(
    clippy::unwrap_used,
    reason = "a test may panic; the lint exempts test functions, but not their helpers"
)]

mod common;

use std::fs;
use std::path::{Path, PathBuf};

use common::{Proto, Server, options, run};
use pcap_parser::traits::PcapNGPacketBlock;
use pcap_parser::{Block, parse_block_le};
use rpcrdma_reading::{Collected, MessageKind, OperationKind, Outcome, Version, read};
use serde_json::Value;
use tempfile::TempDir;

/// Mount options, with the version that they lead to.
const WAYS: [(&str, Version); 6] = [
    ("rpcrdma=1", Version::One),
    ("rpcrdma=1,inline=64k", Version::One),
    ("rpcrdma=2,features=none", Version::Two),
    ("rpcrdma=2,features=ddp+cont", Version::Two),
    ("rpcrdma=2wg,features=cont", Version::TwoWg),
    ("rpcrdma=2wg,features=ddp+cont", Version::TwoWg),
];

fn text(path: &Path) -> String {
    path.to_str().expect("a name in UTF-8").to_owned()
}

/// Captures of a client's traffic: WRITE, READDIRPLUS, READ and GETATTR in each way, long and short.
struct Traffic {
    _folder: TempDir,
    captures: Vec<(PathBuf, Version)>,
}

impl Traffic {
    /// Makes captures with these options.
    fn new(ways: &[(&str, Version)]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: String| folder.path().join(name);
        let (long, short, back) = (at("long".into()), at("short".into()), at("back".into()));
        fs::write(&long, vec![7; 300_000]).unwrap();
        fs::write(&short, vec![8; 8192]).unwrap();
        let mut captures = Vec::new();
        for (n, &(way, version)) in ways.iter().enumerate() {
            let name = |what| at(format!("{n}-{what}.pcapng"));
            let inline = if way.contains("inline") { "64k" } else { "4k" };
            let server = Server::start(["--memory", ":insecure", "--inline", inline]);
            let [o, with] = options(Proto::Rdma, way);
            let url = |path: &str| server.url(Proto::Rdma, path);
            let commands = [
                ("put", vec![text(&long), text(&short), url("/memory/")]),
                (
                    "ping",
                    ["-c", "20", "--op", "getattr"]
                        .map(str::to_owned)
                        .into_iter()
                        .chain([url("/memory")])
                        .collect(),
                ),
                ("get", vec!["-r".into(), url("/memory"), text(&back)]),
            ];
            for (command, words) in commands {
                let file = name(command);
                let to = ["--capture".to_owned(), text(&file)];
                let args = [
                    vec![command.to_owned(), o.clone(), with.clone()],
                    to.to_vec(),
                    words,
                ];
                run(args.concat()).ok();
                captures.push((file, version));
            }
            fs::remove_dir_all(&back).unwrap();
        }
        Self {
            _folder: folder,
            captures,
        }
    }

    fn named<'a>(&'a self, name: &str) -> impl Iterator<Item = &'a Path> {
        let name = format!("{name}.pcapng");
        let captures = self.captures.iter().map(|(file, _)| file.as_path());
        captures.filter(move |file| text(file).ends_with(&name))
    }
}

fn collect(bytes: &[u8]) -> Collected {
    let mut all = Collected::up_to(100_000);
    read(bytes, &mut all).unwrap();
    all
}

#[test]
fn traffic_of_each_version_is_read_whole_and_breaks_no_rule() {
    let traffic = Traffic::new(&WAYS);
    for (file, version) in &traffic.captures {
        let all = collect(&fs::read(file).unwrap());
        let at = file.display();
        assert!(all.breaches.is_empty(), "{at}: {:#?}", all.breaches);
        assert!(all.lost.is_empty(), "{at}: {:?}", all.lost);
        assert_eq!(all.connections.len(), 1, "{at}");
        assert!(all.connections[0].is_set_up, "{at}");
        assert_eq!(all.connections[0].version, Some(*version), "{at}");
        assert!(all.calls.len() > 3, "{at}");
        for call in &all.calls {
            assert_eq!(call.outcome, Outcome::Replied, "{at}: {call:#?}");
            // Its grants count messages.
            if *version == Version::TwoWg {
                assert_eq!(call.granted, None, "{at}: {call:#?}");
            }
            assert!(
                call.procedure.is_some_and(|it| it.name().is_some()),
                "{at}: {call:#?}"
            );
            assert!(
                call.replied.is_some_and(|at| at > call.started),
                "{at}: {call:#?}"
            );
            assert!(
                call.operations.iter().all(|it| it.is_complete),
                "{at}: {call:#?}"
            );
            let kinds: Vec<MessageKind> = call.messages.iter().map(|it| it.kind).collect();
            assert_eq!(kinds.first(), Some(&MessageKind::Call), "{at}: {call:#?}");
            assert!(kinds.contains(&MessageKind::Reply), "{at}: {call:#?}");
        }
    }
}

/// A WRITE of version 1 has its data fetched, and a READ has it written.
#[test]
fn a_call_has_its_messages_operations_and_memory() {
    let traffic = Traffic::new(&WAYS[..1]);
    let calls = |name: &str, procedure: &str| {
        let file = traffic.named(name).next().unwrap();
        let calls = collect(&fs::read(file).unwrap()).calls;
        let calls = calls.into_iter().filter(|call| {
            call.procedure.is_some_and(|it| it.to_string() == procedure)
                && !call.segments.is_empty()
        });
        calls.collect::<Vec<_>>()
    };
    for (name, procedure, kind) in [
        ("put", "NFS3 WRITE", OperationKind::Read),
        ("get", "NFS3 READ", OperationKind::Write),
    ] {
        let calls = calls(name, procedure);
        assert!(!calls.is_empty(), "{name}");
        let mut moved = 0;
        for call in &calls {
            assert!(
                call.operations.iter().all(|it| it.kind == kind),
                "{call:#?}"
            );
            moved += call.operations.iter().map(|it| it.octets).sum::<u64>();
            let rounds = 1 + u32::from(kind == OperationKind::Read);
            assert_eq!(call.round_trips(), rounds, "{call:#?}");
            assert_eq!(call.registrations(), 1, "{call:#?}");
            let [segment] = call.segments[..] else {
                panic!("{call:#?}");
            };
            assert_eq!(call.operations[0].handle, segment.handle, "{call:#?}");
            let reply = call.messages.last().unwrap();
            assert_eq!(reply.invalidates, Some(segment.handle), "{call:#?}");
        }
        // The round-up may be moved as well.
        assert!((308_192..=308_292).contains(&moved), "{name}: {moved}");
    }
}

// -------------------------------------------------------------------------------------------------
// Planted faults

/// Bytes in front of the ULPDU of an FPDU.
const LENGTH: usize = 2;
/// Bytes of DDP's header in an untagged segment.
const UNTAGGED: usize = 18;

/// An FPDU in a capture: where its ULPDU lies in the file, and its packet.
#[derive(Clone, Copy, Debug)]
struct Fpdu {
    at: usize,
    len: usize,
    packet: u64,
    is_from_client: bool,
}

/// Returns the FPDUs of a capture of one connection, each of which has a segment of its own.
fn fpdus(bytes: &[u8]) -> Vec<Fpdu> {
    let mut rest = bytes;
    let (mut found, mut packet, mut client) = (Vec::new(), 0, None);
    while !rest.is_empty() {
        let (after, block) = parse_block_le(rest).expect("a damaged block");
        rest = after;
        let Block::EnhancedPacket(block) = block else {
            continue;
        };
        packet += 1;
        let frame = block.packet_data();
        let ip = match frame[12..14] {
            [0x08, 0x00] => 20,
            _ => 40,
        };
        let tcp = 14 + ip;
        let port = [frame[tcp], frame[tcp + 1]];
        client = client.or(Some(port));
        let start = tcp + 4 * usize::from(frame[tcp + 12] >> 4);
        let payload = &frame[start..];
        if payload.len() < LENGTH + UNTAGGED || payload.starts_with(b"MPA ") {
            continue;
        }
        found.push(Fpdu {
            at: payload.as_ptr() as usize - bytes.as_ptr() as usize + LENGTH,
            len: usize::from(u16::from_be_bytes([payload[0], payload[1]])),
            packet,
            is_from_client: client == Some(port),
        });
    }
    found
}

/// A word of a ULPDU.
fn word(ulpdu: &[u8], at: usize) -> Option<u32> {
    let word = ulpdu.get(at..)?.first_chunk()?;
    Some(u32::from_be_bytes(*word))
}

/// A word of the RPC-over-RDMA header of a Send that begins and ends in this ULPDU, by its index.
fn header(ulpdu: &[u8], index: usize) -> Option<u32> {
    let is_send = matches!(ulpdu.get(..2)?, [0x41, 0x43..=0x46]);
    is_send.then(|| word(ulpdu, UNTAGGED + 4 * index))?
}

fn opcode(ulpdu: &[u8]) -> u8 {
    ulpdu[1] & 0x0f
}

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

/// Writes the CRC behind a ULPDU that was changed.
fn seal(bytes: &mut [u8], fpdu: &Fpdu) {
    let start = fpdu.at - LENGTH;
    let end = start + (LENGTH + fpdu.len).next_multiple_of(4);
    let crc = crc32c::crc32c(&bytes[start..end]);
    bytes[end..end + 4].copy_from_slice(&crc.to_le_bytes());
}

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

// -------------------------------------------------------------------------------------------------
// The command

fn lint(file: &Path, more: &[&str]) -> (Option<i32>, String, String) {
    let file = text(file);
    let finished = run([&["lint"], more, &[&file]].concat());
    (finished.status.code(), finished.stdout, finished.stderr)
}

#[test]
fn the_command_tells_what_is_broken_by_its_status() {
    let traffic = Traffic::new(&WAYS[..1]);
    let file = traffic.named("put").next().unwrap();
    let (status, said, _) = lint(file, &[]);
    assert_eq!(status, Some(0), "{said}");
    assert!(said.contains("No rule is broken."), "{said}");
    assert!(said.contains("longer receives"), "{said}");
    assert!(
        said.lines().all(|line| line.chars().count() <= 100),
        "{said}"
    );

    let mut bytes = fs::read(file).unwrap();
    let all = fpdus(&bytes);
    let reads = all.iter().filter(|it| opcode(&bytes[it.at..]) == 1);
    let reads: Vec<Fpdu> = reads.copied().collect();
    for fpdu in &reads {
        bytes[fpdu.at + UNTAGGED + 16] ^= 1;
        seal(&mut bytes, fpdu);
    }
    let damaged = file.with_extension("damaged");
    fs::write(&damaged, &bytes).unwrap();
    let (status, said, _) = lint(&damaged, &[]);
    assert_eq!(status, Some(1), "{said}");
    assert!(
        said.contains("error unknown_handle (RFC 8166, 3.4.5)"),
        "{said}"
    );

    let (status, said, _) = lint(&damaged, &["--json", "--all"]);
    assert_eq!(status, Some(1), "{said}");
    let json: Value = serde_json::from_str(&said).unwrap();
    let broken = json["report"]["broken"].as_array().unwrap();
    let found = broken
        .iter()
        .find(|it| it["id"] == "unknown_handle")
        .unwrap();
    assert_eq!(found["count"], reads.len());
    let packets = found["places"].as_array().unwrap().iter();
    let packets: Vec<u64> = packets.map(|it| it["packet"].as_u64().unwrap()).collect();
    let planted: Vec<u64> = reads.iter().map(|it| it.packet).collect();
    assert_eq!(packets, planted);

    let other = file.with_extension("txt");
    for content in ["", "no capture"] {
        fs::write(&other, content).unwrap();
        let (status, _, said) = lint(&other, &[]);
        assert_eq!(status, Some(2), "{said}");
        assert!(said.contains("neither a pcap nor a pcapng file"), "{said}");
    }
    let (status, _, said) = lint(Path::new("no/such/file"), &[]);
    assert_eq!(status, Some(2), "{said}");
}

/// Longer receives make the table's first alternative, and a capture with them has nothing to save.
#[test]
fn longer_receives_save_what_a_capture_with_them_does_not_take() {
    let traffic = Traffic::new(&WAYS[..2]);
    let mut seen = Vec::new();
    for file in traffic.named("put") {
        let (_, said, _) = lint(file, &["--json"]);
        let json: Value = serde_json::from_str(&said).unwrap();
        let savings = &json["report"]["savings"];
        let number = |of: &Value, key: &str| of["counts"][key].as_u64().unwrap();
        let longer = savings["alternatives"].as_array().unwrap().iter();
        let longer = longer.filter(|it| it["name"] == "longer receives");
        let longer = longer.map(|it| number(it, "round_trips")).next();
        seen.push((number(savings, "round_trips"), longer));
    }
    let [(plain, longer), (long, _)] = seen[..] else {
        panic!("{seen:?}");
    };
    assert!(longer.is_some_and(|longer| longer < plain), "{seen:?}");
    assert!(long < plain, "{seen:?}");
}

// -------------------------------------------------------------------------------------------------
// The same calls, counted by the simulation

/// The calls of a capture by the clock take what the simulation counts for them.
#[test]
fn counts_are_those_of_compare() {
    let folder = tempfile::tempdir().unwrap();
    let modes = ["v1-inv", "v1-long", "v2-cont", "v2-ddp", "wg-ddp"];
    let what = ["--ops", "read,write", "--sizes", "8k"];
    let simulated = run([
        &["compare", "--device", "sim", "--json", "-", "--via"][..],
        &[&modes.join(",")],
        &what,
    ]
    .concat())
    .ok();
    let rows: Vec<Value> = serde_json::from_str(&simulated.stdout).unwrap();
    for mode in modes {
        let file = folder.path().join(format!("{mode}.pcapng"));
        let capture = ["--no-trips", "--time", "5ms", "--count", "5", "--capture"];
        let via = ["compare", "--via", mode];
        run([&via[..], &what, &capture, &[&text(&file)]].concat()).ok();
        let all = collect(&fs::read(&file).unwrap());
        assert!(all.breaches.is_empty(), "{mode}: {:#?}", all.breaches);
        for (op, procedure) in [("read", "NFS3 READ"), ("write", "NFS3 WRITE")] {
            // By the costs of this device, a READ may be written into memory although it could be
            // continued.
            if (mode, op) == ("v2-cont", "read") {
                continue;
            }
            let row = rows
                .iter()
                .find(|row| row["transfer_mode"] == mode && row["op"] == op);
            let row = row.unwrap_or_else(|| panic!("{mode}: no {op}"));
            let calls = all.calls.iter().filter(|call| {
                let length = call.call_length.max(call.reply_length);
                call.procedure.is_some_and(|it| it.to_string() == procedure)
                    && length.is_some_and(|length| length > 8192)
            });
            let mut seen = 0;
            for call in calls {
                seen += 1;
                assert_eq!(
                    row["round_trips"],
                    f64::from(call.round_trips()),
                    "{mode}: {call:#?}"
                );
                let registrations = f64::from(call.registrations());
                assert_eq!(row["registrations"], registrations, "{mode}: {call:#?}");
            }
            assert!(seen >= 5, "{mode}: {seen} calls of {op}");
        }
    }
}

/// Calls of each kind, 100,000 in all. It takes long: `.ci/long lint`.
#[test]
#[ignore = "takes a minute"]
fn a_hundred_thousand_clean_calls_break_no_rule() {
    let folder = tempfile::tempdir().unwrap();
    let mut calls = 0;
    for (n, (way, _)) in WAYS.iter().enumerate() {
        let server = Server::start(["--memory", ":insecure"]);
        let [o, with] = options(Proto::Rdma, way);
        let file = folder.path().join("file");
        fs::write(&file, vec![7; 8192]).unwrap();
        run(["put", &text(&file), &server.url(Proto::Rdma, "/memory/")]).ok();
        // A WRITE goes to a file that is made there.
        for (op, path, size) in [
            ("getattr", "/memory/file", &[][..]),
            ("write", "/memory", &["-s", "8k"]),
            ("read", "/memory/file", &["-s", "8k"]),
        ] {
            let file = text(&folder.path().join(format!("{n}-{op}.pcapng")));
            let url = server.url(Proto::Rdma, path);
            let ping = [
                "ping",
                &o,
                &with,
                "-c",
                "5600",
                "-q",
                "--op",
                op,
                "--capture",
                &file,
                &url,
            ];
            run([&ping[..], size].concat()).ok();
            let (status, said, _) = lint(Path::new(&file), &["--json"]);
            assert_eq!(status, Some(0), "{way} {op}: {said}");
            let json: Value = serde_json::from_str(&said).unwrap();
            assert_eq!(
                json["report"]["notes"],
                Value::Array(Vec::new()),
                "{way} {op}"
            );
            calls += json["report"]["calls"].as_u64().unwrap();
            fs::remove_file(&file).unwrap();
        }
    }
    assert!(calls >= 100_000, "{calls}");
}
