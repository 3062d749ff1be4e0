//! Captures that are made here octet by octet: formats of files, headers below TCP, order and loss of
//! segments, and packets of RoCE.
#![allow(
    clippy::unwrap_used,
    reason = "clippy takes helpers of tests for no tests"
)]

#[path = "made_here/files.rs"]
mod files;
#[path = "made_here/iwarp.rs"]
mod iwarp;
#[path = "made_here/roce.rs"]
mod roce;

use std::time::Duration;

use files::{File, Format, Link, USUAL};
use iwarp::{Iwarp, call, reply};
use rpcrdma_reading::lint::Lint;
use rpcrdma_reading::{Collected, Outcome, Side, Summary, Version, read};
use rpcrdma_v1::{Chunks, ReadSegment, Segment};
use transfer_plan::CostModel;

fn collect(bytes: &[u8]) -> (Collected, Summary) {
    let mut all = Collected::up_to(1000);
    let summary = read(bytes, &mut all).unwrap();
    (all, summary)
}

/// Returns what a capture of these packets shows.
fn packets<'a>(packets: impl IntoIterator<Item = &'a Vec<u8>>) -> (Collected, Summary) {
    let mut file = File::new(USUAL, Link::Ethernet);
    packets.into_iter().for_each(|packet| file.packet(packet));
    collect(&file.bytes)
}

fn xids(all: &Collected) -> Vec<u32> {
    all.calls.iter().map(|call| call.xid).collect()
}

#[test]
fn files_and_links_of_each_kind_show_the_same_call() {
    for version in [4, 6] {
        let mut iwarp = Iwarp {
            version,
            ..Iwarp::default()
        };
        iwarp.set_up();
        iwarp.exchange(9);
        for (big, nanos, ng) in (0..8).map(|n| (n & 1 != 0, n & 2 != 0, n & 4 != 0)) {
            for link in [
                Link::Ethernet,
                Link::Vlan,
                Link::Cooked,
                Link::CookedTwo,
                Link::Raw,
            ] {
                let format = Format { big, nanos, ng };
                let at = format!("{format:?} {link:?} IPv{version}");
                let mut file = File::new(format, link);
                iwarp.packets.iter().for_each(|packet| file.packet(packet));
                let (all, summary) = collect(&file.bytes);
                assert_eq!((summary.packets, summary.skipped), (6, 0), "{at}");
                assert!(all.breaches.is_empty(), "{at}: {:?}", all.breaches);
                let [call] = &all.calls[..] else {
                    panic!("{at}: {all:?}");
                };
                assert_eq!((call.xid, call.version), (9, Version::One), "{at}");
                let times = [call.started, call.replied.unwrap()].map(|at| (at.packet, at.time));
                let micros = |number| Duration::from_secs(5) + Duration::from_micros(number);
                assert_eq!(times, [(5, micros(15)), (6, micros(16))], "{at}");
                assert_eq!(call.caller, Side::Client, "{at}");
                assert_eq!(call.procedure.unwrap().to_string(), "NFS3 GETATTR", "{at}");
            }
        }
    }
}

/// Resolutions of pcapng are powers of ten or, with the highest bit, of two.
#[test]
fn times_of_each_resolution_are_those_of_the_file() {
    let mut iwarp = Iwarp::default();
    iwarp.set_up();
    iwarp.exchange(9);
    let ng = Format { ng: true, ..USUAL };
    let secs = Duration::from_secs;
    for (code, units, time) in [
        (0, u64::MAX, secs(u64::MAX)),
        (3, 5_250, Duration::from_millis(5_250)),
        (19, 10_u64.pow(19) / 2, Duration::from_millis(500)),
        (0x80, 7, secs(7)),
        (0x80 | 10, 5 << 10 | 1 << 8, Duration::from_millis(5_250)),
        (0x80 | 63, 1 << 62, Duration::from_millis(500)),
    ] {
        let mut file = File::new(ng, Link::Raw);
        file.interface_of(101, code);
        for packet in &iwarp.packets {
            file.enhanced(2, units, packet);
        }
        let (all, _) = collect(&file.bytes);
        assert_eq!(all.calls[0].started.time, time, "{code:#x}");
    }
    for code in [20, 0x7f, 0x80 | 64, 0xff] {
        let mut file = File::new(ng, Link::Raw);
        file.interface_of(101, code);
        let error = read(&file.bytes[..], &mut Collected::up_to(1)).unwrap_err();
        let ended = error.to_string();
        assert!(
            ended.contains(&format!("resolution {code:#04x}")),
            "{ended}"
        );
    }
}

/// No time, offset or length of a file is too great for what reads it.
#[test]
fn the_greatest_values_are_read() {
    let mut iwarp = Iwarp::default();
    iwarp.set_up();
    iwarp.exchange(1);
    // A grant that is lower than the one before it.
    iwarp.send(0, &call(2, Chunks::default(), 1));
    let mut lower = reply(2);
    lower[11] -= 1;
    iwarp.send(1, &lower);
    iwarp.exchange(3);
    // An RDMA Read of the server to its offset 0, and data for the last byte of all.
    let mut request = vec![0x41, 0x41, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 1, 0, 0, 0, 0];
    for word in [5, 0, 0, 4, 7, 0, 0_u32] {
        request.extend_from_slice(&word.to_be_bytes());
    }
    iwarp.fpdu(1, &request);
    let mut response = vec![0xc1, 0x42, 0, 0, 0, 5];
    response.extend_from_slice(&u64::MAX.to_be_bytes());
    response.extend_from_slice(&[1; 4]);
    iwarp.fpdu(0, &response);
    let mut file = File::new(Format { ng: true, ..USUAL }, Link::Raw);
    file.interface_of(101, 0);
    for packet in &iwarp.packets {
        file.enhanced(2, u64::MAX, packet);
    }
    let (all, summary) = collect(&file.bytes);
    assert!(summary.ended.is_none(), "{summary:?}");
    assert_eq!(xids(&all), [1, 2, 3]);
    let rules: Vec<&str> = all.breaches.iter().map(|it| it.rule.id).collect();
    assert_eq!(rules, ["unknown_handle", "unrequested"]);
}

/// The header of a call without read chunks has the numbers of its other chunks and of their segments.
#[test]
fn a_read_chunk_is_needed_where_the_header_leaves_no_room() {
    let segment = |length| Segment {
        handle: 7,
        length,
        offset: 0,
    };
    let segments = || [100, 200].map(segment);
    let advised = |writes: usize, reply: bool, length: u32| {
        let mut iwarp = Iwarp::default();
        iwarp.set_up();
        let chunks = Chunks {
            reads: vec![ReadSegment {
                position: 48,
                segment: segment(length),
            }],
            writes: (0..writes)
                .map(|_| segments().into_iter().collect())
                .collect(),
            reply: reply.then(|| segments().into_iter().collect()),
        };
        // The same call without the read chunk, and with its data.
        let mut inline = call(
            1,
            Chunks {
                reads: Vec::new(),
                ..chunks.clone()
            },
            7,
        );
        inline.resize(inline.len() + length as usize, 0);
        iwarp.send(0, &call(1, chunks, 7));
        let mut file = File::new(USUAL, Link::Raw);
        iwarp.packets.iter().for_each(|packet| file.packet(packet));
        let mut lint = Lint::new(9, &CostModel::default());
        read(&file.bytes[..], &mut lint).unwrap();
        let needless = lint.report().needless;
        let is_advised = needless.iter().any(|it| it.id == "read_chunk_not_needed");
        (inline.len(), is_advised)
    };
    for (writes, reply) in [(0, false), (0, true), (1, false), (2, true)] {
        let (rest, _) = advised(writes, reply, 0);
        let room = 4096 - rest as u32;
        assert_eq!(
            advised(writes, reply, room),
            (4096, true),
            "{writes} {reply}"
        );
        assert_eq!(
            advised(writes, reply, room + 4),
            (4100, false),
            "{writes} {reply}"
        );
    }
}

#[test]
fn segments_out_of_order_and_again_make_no_difference() {
    let mut iwarp = Iwarp::default();
    iwarp.set_up();
    let grant = [call(1, Chunks::default(), 0), reply(1)];
    (0..2).for_each(|from| iwarp.send(from, &grant[from]));
    for xid in (2..20).step_by(2) {
        (xid..xid + 2).for_each(|xid| iwarp.send(0, &call(xid, Chunks::default(), 1)));
        (xid..xid + 2).for_each(|xid| iwarp.send(1, &reply(xid)));
    }
    let wanted: Vec<u32> = (1..20).collect();
    let set_up = 6;
    // Neighbours of one direction change places, and every third comes again.
    let mut order = iwarp.packets.clone();
    for at in (set_up..order.len() - 1).step_by(2) {
        order.swap(at, at + 1);
    }
    for at in (0..order.len()).rev().step_by(3) {
        let again = order[at].clone();
        order.insert(at + 1, again);
    }
    let (all, summary) = packets(&order);
    assert!(all.lost.is_empty(), "{:?}", all.lost);
    let mut found = xids(&all);
    found.sort_unstable();
    assert_eq!(found, wanted);
    assert!(summary.repeated > 5, "{summary:?}");
}

/// A capture can lack segments, and begin within a connection.
#[test]
fn what_a_capture_lacks_is_said_and_the_rest_is_read() {
    let mut iwarp = Iwarp::default();
    iwarp.set_up();
    (1..10).for_each(|xid| iwarp.exchange(xid));
    let all_packets = iwarp.packets.clone();
    // The call 3.
    let lacking = all_packets
        .iter()
        .enumerate()
        .filter(|(at, _)| *at != 4 + 4);
    let (all, _) = packets(lacking.map(|(_, packet)| packet));
    assert_eq!(xids(&all), [1, 2, 4, 5, 6, 7, 8, 9], "{:?}", all.lost);
    assert!(!all.lost.is_empty());
    assert!(all.breaches.is_empty(), "{:?}", all.breaches);
    // Without the set-up, and from the middle of the first segment.
    let (all, _) = packets(&all_packets[7..]);
    let answered = all.calls.iter().filter(|it| it.outcome == Outcome::Replied);
    let answered: Vec<u32> = answered.map(|call| call.xid).collect();
    assert_eq!(answered, [3, 4, 5, 6, 7, 8, 9]);
    assert!(!all.connections[0].is_set_up);
    assert!(all.breaches.is_empty(), "{:?}", all.breaches);
    // Cut frames: headers are there, and the last octets of messages are not.
    let mut file = File::new(USUAL, Link::Raw);
    for packet in &all_packets {
        let length = packet.len().min(20 + 20 + 20 + 28 + 30);
        file.packet(&packet[..length]);
    }
    let (all, _) = collect(&file.bytes);
    assert_eq!(xids(&all), (1..10).collect::<Vec<u32>>(), "{:?}", all.lost);
    assert!(all.breaches.is_empty(), "{:?}", all.breaches);
}

/// Files that are no captures, and captures that end within a packet.
#[test]
fn damaged_files_are_read_up_to_the_damage() {
    for bytes in [
        &b""[..],
        b"\x0a",
        b"GET / HTTP/1.0\r\n\r\n and more of this",
    ] {
        assert!(read(bytes, &mut Collected::up_to(1)).is_err(), "{bytes:?}");
    }
    let mut iwarp = Iwarp::default();
    iwarp.set_up();
    iwarp.exchange(1);
    for ng in [false, true] {
        let mut file = File::new(Format { ng, ..USUAL }, Link::Ethernet);
        iwarp.packets.iter().for_each(|packet| file.packet(packet));
        let cut = &file.bytes[..file.bytes.len() - 3];
        let (all, summary) = collect(cut);
        assert_eq!((summary.packets, all.calls.len()), (5, 1), "{ng}");
        assert_eq!(all.calls[0].outcome, Outcome::Unanswered);
        let ended = summary.ended.unwrap().to_string();
        assert!(ended.contains("after packet 5"), "{ended}");
    }
}
