//! Captures that are made here octet by octet: formats of files, headers below TCP, order and loss of
//! segments, and packets of RoCE.
#![allow(
    clippy::unwrap_used,
    reason = "clippy takes helpers of tests for no tests"
)]

use std::time::Duration;

use bytes::BytesMut;
use rpcrdma_reading::lint::Lint;
use rpcrdma_reading::{
    Carrier, Collected, List, OperationKind, Outcome, Side, Summary, Version, read,
};
use rpcrdma_v1::{Body, Chunks, Header, PrivateData, ReadSegment, Segment};
use transfer_plan::CostModel;

/// The format of a file: its endianness, whether times have nanoseconds, and whether it is pcapng.
#[derive(Clone, Copy, Debug)]
struct Format {
    big: bool,
    nanos: bool,
    ng: bool,
}

const USUAL: Format = Format {
    big: false,
    nanos: false,
    ng: false,
};

/// Link-layer header in front of an IP packet.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Link {
    Ethernet,
    Vlan,
    Cooked,
    CookedTwo,
    Raw,
}

struct File {
    format: Format,
    link: Link,
    bytes: Vec<u8>,
    packets: u32,
}

impl File {
    fn new(format: Format, link: Link) -> Self {
        let mut file = Self {
            format,
            link,
            bytes: Vec::new(),
            packets: 0,
        };
        let network = match link {
            Link::Ethernet | Link::Vlan => 1,
            Link::Cooked => 113,
            Link::CookedTwo => 276,
            Link::Raw => 101,
        };
        if format.ng {
            file.block(0x0a0d_0d0a, |file| {
                file.word(0x1a2b_3c4d);
                file.half(1);
                file.half(0);
                file.word(u32::MAX);
                file.word(u32::MAX);
            });
            // An interface that is not used, and blocks that are not known.
            file.interface(147);
            file.block(0x0bad, |file| file.word(7));
            file.interface(network);
            return file;
        }
        file.word(if format.nanos {
            0xa1b2_3c4d
        } else {
            0xa1b2_c3d4
        });
        file.half(2);
        file.half(4);
        for word in [0, 0, 0x0004_0000, network] {
            file.word(word);
        }
        file
    }

    fn interface(&mut self, network: u32) {
        self.interface_of(network, if self.format.nanos { 9 } else { 6 });
    }

    /// Adds an interface whose times have a resolution, in the code of pcapng.
    fn interface_of(&mut self, network: u32, resolution: u8) {
        self.block(1, |file| {
            file.half(network as u16);
            file.half(0);
            file.word(0);
            // if_tsresol.
            file.half(9);
            file.half(1);
            file.bytes.extend_from_slice(&[resolution, 0, 0, 0]);
            file.word(0);
        });
    }

    fn word(&mut self, word: u32) {
        self.bytes.extend_from_slice(&match self.format.big {
            true => word.to_be_bytes(),
            false => word.to_le_bytes(),
        });
    }

    fn half(&mut self, half: u16) {
        self.bytes.extend_from_slice(&match self.format.big {
            true => half.to_be_bytes(),
            false => half.to_le_bytes(),
        });
    }

    fn block(&mut self, kind: u32, content: impl FnOnce(&mut Self)) {
        let start = self.bytes.len();
        self.word(kind);
        self.word(0);
        content(self);
        let length = (self.bytes.len() - start + 4) as u32;
        self.word(length);
        let end = self.bytes.len();
        self.bytes.copy_within(end - 4..end, start + 4);
    }

    /// Adds a packet, a microsecond after the one before it.
    fn packet(&mut self, ip: &[u8]) {
        let version = ip[0] >> 4;
        let kind: [u8; 2] = if version == 6 { [0x86, 0xdd] } else { [8, 0] };
        let mut frame = match self.link {
            Link::Ethernet => vec![0; 12],
            Link::Vlan => [&[0; 12][..], &[0x81, 0, 0, 7]].concat(),
            Link::Cooked => vec![0; 14],
            Link::CookedTwo => [&kind[..], &[0; 18]].concat(),
            Link::Raw => Vec::new(),
        };
        if matches!(self.link, Link::Ethernet | Link::Vlan | Link::Cooked) {
            frame.extend_from_slice(&kind);
        }
        frame.extend_from_slice(ip);
        self.packets += 1;
        let length = frame.len() as u32;
        let micros = 10 + self.packets;
        let part = if self.format.nanos {
            1000 * micros
        } else {
            micros
        };
        if !self.format.ng {
            for word in [5, part, length, length] {
                self.word(word);
            }
            self.bytes.extend_from_slice(&frame);
            return;
        }
        let units = 5 * if self.format.nanos {
            1_000_000_000
        } else {
            1_000_000
        } + u64::from(part);
        self.enhanced(1, units, &frame);
    }

    /// Adds a packet of an interface to a pcapng file.
    fn enhanced(&mut self, interface: u32, units: u64, frame: &[u8]) {
        let length = frame.len() as u32;
        let (high, low) = ((units >> 32) as u32, units as u32);
        self.block(6, |file| {
            for word in [interface, high, low, length, length] {
                file.word(word);
            }
            file.bytes.extend_from_slice(frame);
            file.bytes.resize(file.bytes.len().next_multiple_of(4), 0);
        });
    }
}

/// Returns an IP packet from one of two hosts to the other.
fn ip(version: u8, from: usize, protocol: u8, payload: &[u8]) -> Vec<u8> {
    let hosts = [from as u8 + 1, 2 - from as u8];
    if version == 6 {
        let length = (payload.len() as u16).to_be_bytes();
        let mut packet = vec![0x60, 0, 0, 0, length[0], length[1], protocol, 64];
        hosts.iter().for_each(|host| {
            packet.extend_from_slice(&[0xfd; 15]);
            packet.push(*host);
        });
        packet.extend_from_slice(payload);
        return packet;
    }
    let length = (20 + payload.len() as u16).to_be_bytes();
    let mut packet = vec![
        0x45, 0, length[0], length[1], 0, 0, 0x40, 0, 64, protocol, 0, 0,
    ];
    hosts
        .iter()
        .for_each(|host| packet.extend_from_slice(&[10, 0, 0, *host]));
    packet.extend_from_slice(payload);
    packet
}

// -------------------------------------------------------------------------------------------------
// iWARP

/// The segments of a connection, as IP packets.
#[derive(Default)]
struct Iwarp {
    version: u8,
    sequence: [u32; 2],
    messages: [u32; 2],
    packets: Vec<Vec<u8>>,
}

impl Iwarp {
    fn segment(&mut self, from: usize, flags: u8, bytes: &[u8]) {
        let ports = [4000u16, 20049];
        let mut tcp = [ports[from], ports[1 - from]]
            .map(u16::to_be_bytes)
            .concat();
        tcp.extend_from_slice(&self.sequence[from].to_be_bytes());
        tcp.extend_from_slice(&self.sequence[1 - from].to_be_bytes());
        tcp.extend_from_slice(&[0x50, flags, 0xff, 0xff, 0, 0, 0, 0]);
        tcp.extend_from_slice(bytes);
        let syn = u32::from(flags & 2 != 0);
        self.sequence[from] = self.sequence[from].wrapping_add(bytes.len() as u32 + syn);
        let version = if self.version == 6 { 6 } else { 4 };
        self.packets.push(ip(version, from, 6, &tcp));
    }

    fn set_up(&mut self) {
        // Sequence numbers wrap soon.
        self.sequence = [u32::MAX - 100, 7];
        self.segment(0, 0x02, &[]);
        self.segment(1, 0x12, &[]);
        for (from, key) in [b"MPA ID Req Frame", b"MPA ID Rep Frame"]
            .into_iter()
            .enumerate()
        {
            let mut frame = key.to_vec();
            frame.extend_from_slice(&[0x40, 1, 0, 8]);
            frame.extend_from_slice(&PrivateData::new(4096, 4096, true).encode());
            self.segment(from, 0x18, &frame);
        }
    }

    fn send(&mut self, from: usize, message: &[u8]) {
        self.messages[from] += 1;
        let mut ulpdu = vec![0x41, 0x43, 0, 0, 0, 0, 0, 0, 0, 0];
        ulpdu.extend_from_slice(&self.messages[from].to_be_bytes());
        ulpdu.extend_from_slice(&[0; 4]);
        ulpdu.extend_from_slice(message);
        self.fpdu(from, &ulpdu);
    }

    fn fpdu(&mut self, from: usize, ulpdu: &[u8]) {
        let mut fpdu = (ulpdu.len() as u16).to_be_bytes().to_vec();
        fpdu.extend_from_slice(ulpdu);
        fpdu.resize(fpdu.len().next_multiple_of(4), 0);
        let crc = crc32c::crc32c(&fpdu).to_le_bytes();
        fpdu.extend_from_slice(&crc);
        self.segment(from, 0x18, &fpdu);
    }

    /// A GETATTR with its reply.
    fn exchange(&mut self, xid: u32) {
        self.send(0, &call(xid, Chunks::default(), 1));
        self.send(1, &reply(xid));
    }
}

/// Returns a call of a procedure of NFS version 3.
fn call(xid: u32, chunks: Chunks, procedure: u32) -> Vec<u8> {
    let body = Body::Msg(chunks);
    let credits = 32;
    let mut message = BytesMut::new();
    Header { xid, credits, body }.encode_into(&mut message);
    for word in [xid, 0, 2, 100_003, 3, procedure, 0, 0, 0, 0, 4, 0xabcd] {
        message.extend_from_slice(&word.to_be_bytes());
    }
    message.to_vec()
}

fn reply(xid: u32) -> Vec<u8> {
    let body = Body::Msg(Chunks::default());
    let credits = 32;
    let mut message = BytesMut::new();
    Header { xid, credits, body }.encode_into(&mut message);
    for word in [xid, 1, 0, 0, 0, 0, 0] {
        message.extend_from_slice(&word.to_be_bytes());
    }
    message.to_vec()
}

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

// -------------------------------------------------------------------------------------------------
// RoCE

/// The queue pairs of client and server.
const QUEUE_PAIRS: [u32; 2] = [0x11, 0x12];

#[derive(Default)]
struct Roce {
    numbers: [u32; 2],
    packets: Vec<Vec<u8>>,
}

impl Roce {
    fn datagram(&mut self, from: usize, opcode: u8, queue_pair: u32, number: u32, rest: &[u8]) {
        let mut udp = vec![0xc0, 0, 0x12, 0xb7, 0, 0, 0, 0];
        // The payload is filled up to whole words.
        let pad = rest.len().next_multiple_of(4) - rest.len();
        udp.extend_from_slice(&[opcode, (pad as u8) << 4, 0xff, 0xff]);
        udp.extend_from_slice(&queue_pair.to_be_bytes());
        udp.extend_from_slice(&number.to_be_bytes());
        udp.extend_from_slice(rest);
        udp.resize(udp.len() + pad + 4, 0);
        let length = udp.len() as u16;
        udp[4..6].copy_from_slice(&length.to_be_bytes());
        self.packets.push(ip(4, from, 17, &udp));
    }

    /// Sends a request with these headers and payload.
    fn request(&mut self, from: usize, opcode: u8, rest: &[u8]) -> u32 {
        let number = self.numbers[from];
        self.numbers[from] += 1;
        self.datagram(from, opcode, QUEUE_PAIRS[1 - from], number, rest);
        number
    }

    fn managed(&mut self, from: usize, attribute: u16, body: &[u8]) {
        let mut rest = vec![0; 8];
        rest.extend_from_slice(&[1, 7, 2, 3]);
        rest.resize(8 + 16, 0);
        rest.extend_from_slice(&attribute.to_be_bytes());
        rest.resize(8 + 24, 0);
        rest.extend_from_slice(body);
        self.datagram(from, 0x64, 1, 0, &rest);
    }

    fn set_up(&mut self) {
        let private = PrivateData::new(4096, 4096, true).encode();
        let mut request = vec![0; 232];
        request[..4].copy_from_slice(&[0, 0, 0, 5]);
        request[32..36].copy_from_slice(&(QUEUE_PAIRS[0] << 8).to_be_bytes());
        // Behind the header of the RDMA connection manager.
        request[140 + 36..140 + 44].copy_from_slice(&private);
        self.managed(0, 0x0010, &request);
        let mut reply = vec![0; 232];
        reply[4..8].copy_from_slice(&[0, 0, 0, 5]);
        reply[12..16].copy_from_slice(&(QUEUE_PAIRS[1] << 8).to_be_bytes());
        reply[36..44].copy_from_slice(&private);
        self.managed(1, 0x0013, &reply);
    }

    /// A WRITE of 5,000 octets, with packets of 1,024.
    fn write(&mut self, xid: u32, handle: u32) {
        const LENGTH: u32 = 5000;
        let segment = Segment {
            handle,
            length: LENGTH,
            offset: 0x1000,
        };
        let reads = vec![ReadSegment {
            position: 48,
            segment,
        }];
        let message = call(
            xid,
            Chunks {
                reads,
                ..Chunks::default()
            },
            7,
        );
        // In a first and a last packet.
        let (first, last) = message.split_at(64);
        self.request(0, 0x00, first);
        self.request(0, 0x02, last);
        let mut target = 0x1000u64.to_be_bytes().to_vec();
        target.extend_from_slice(&handle.to_be_bytes());
        target.extend_from_slice(&LENGTH.to_be_bytes());
        let number = self.request(1, 0x0c, &target);
        let data = vec![3; LENGTH as usize];
        let pieces: Vec<&[u8]> = data.chunks(1024).collect();
        for (index, piece) in pieces.iter().enumerate() {
            let (opcode, has_header) = match index {
                0 => (0x0d, true),
                4 => (0x0f, true),
                _ => (0x0e, false),
            };
            let header: &[u8] = if has_header { &[0; 4] } else { &[] };
            let rest = [header, piece].concat();
            self.datagram(0, opcode, QUEUE_PAIRS[1], number + index as u32, &rest);
        }
        self.numbers[1] = number + pieces.len() as u32;
        // Send With Invalidate.
        let rest = [&handle.to_be_bytes()[..], &reply(xid)].concat();
        self.request(1, 0x17, &rest);
    }
}

fn check_writes(all: &Collected, handles: &[u32]) {
    assert!(all.breaches.is_empty(), "{:?}", all.breaches);
    assert_eq!(all.calls.len(), handles.len(), "{all:#?}");
    for (call, handle) in all.calls.iter().zip(handles) {
        assert_eq!(call.outcome, Outcome::Replied);
        assert_eq!(call.procedure.unwrap().to_string(), "NFS3 WRITE");
        assert_eq!((call.round_trips(), call.registrations()), (2, 1));
        assert_eq!(call.messages[0].packets, 2);
        assert_eq!(call.messages[1].invalidates, Some(*handle));
        let [read] = &call.operations[..] else {
            panic!("{call:#?}");
        };
        assert_eq!(
            (read.kind, read.list),
            (OperationKind::Read, List::Read(48))
        );
        assert_eq!((read.octets, read.packets), (5000, 5));
        assert!(read.is_complete && read.request.unwrap() < read.first && read.first < read.last);
        assert_eq!(call.segments[0].moved, 5000);
        assert_eq!(call.call_length, Some(48 + 5000));
    }
}

#[test]
fn packets_of_roce_show_calls() {
    let mut roce = Roce::default();
    roce.set_up();
    roce.write(1, 0x700);
    roce.write(2, 0x701);
    let (all, summary) = packets(&roce.packets);
    check_writes(&all, &[0x700, 0x701]);
    let connection = &all.connections[0];
    assert_eq!(connection.carrier, Carrier::Roce);
    assert!(connection.is_set_up);
    assert_eq!(connection.receive_size, [Some(4096), Some(4096)]);
    assert_eq!(connection.ends[1].to_string(), "10.0.0.2 QP 0x12");
    assert_eq!(summary.repeated, 0);

    // Without the set-up, the directions are joined by what they name.
    let (all, _) = packets(&roce.packets[2..]);
    check_writes(&all, &[0x700, 0x701]);
    assert!(!all.connections[0].is_set_up);

    // Packets that come again are counted once.
    let twice = roce.packets.iter().flat_map(|packet| [packet, packet]);
    let (all, summary) = packets(twice);
    check_writes(&all, &[0x700, 0x701]);
    assert_eq!(summary.repeated, 2 * 9);

    // The capture lacks a packet with data of the first.
    let lacking = roce
        .packets
        .iter()
        .enumerate()
        .filter(|(at, _)| *at != 2 + 5);
    let (all, _) = packets(lacking.map(|(_, packet)| packet));
    assert_eq!(xids(&all), [1, 2]);
    assert!(all.calls[0].is_incomplete && !all.calls[1].is_incomplete);
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
