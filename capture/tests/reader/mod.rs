//! Reads a capture: blocks, headers with their checksums, and TCP streams.
#![allow(
    clippy::unwrap_used,
    reason = "clippy takes helpers of tests for no tests"
)]

use std::collections::HashMap;
use std::path::Path;

use pcap_parser::traits::PcapNGPacketBlock;
use pcap_parser::{Block, OptionCode, PcapNGOption, parse_block_le};

/// A packet.
pub(crate) struct Packet {
    pub(crate) bytes: Vec<u8>,
    /// Length before it was shortened.
    pub(crate) length: usize,
    /// Nanoseconds since 1970.
    pub(crate) time: u64,
    pub(crate) comment: String,
}

/// A capture file.
pub(crate) struct File {
    pub(crate) packets: Vec<Packet>,
    pub(crate) snap: usize,
    pub(crate) resolution: u8,
}

/// A TCP connection. The end that sent the SYN is the first.
pub(crate) struct Stream {
    pub(crate) ports: [u16; 2],
    pub(crate) bytes: [Vec<u8>; 2],
    pub(crate) closed: bool,
    pub(crate) times: Vec<u64>,
    /// Sequence number of the SYN.
    pub(crate) first: u32,
    /// The most bytes that were sent and not acknowledged.
    pub(crate) unacknowledged: u32,
    /// Sequence number that each end sends next, once it has sent one.
    next: [Option<u32>; 2],
    acknowledged: [u32; 2],
    finished: [bool; 2],
}

fn comment(options: &[PcapNGOption<'_>]) -> String {
    let comments = options
        .iter()
        .filter(|option| option.code == OptionCode::Comment);
    comments
        .map(|option| option.as_str().unwrap().to_owned())
        .collect()
}

impl File {
    /// Reads a file, which must consist of whole blocks.
    pub(crate) fn read(path: &Path) -> Self {
        let content = std::fs::read(path).unwrap();
        let mut rest = &content[..];
        let mut file = Self {
            packets: Vec::new(),
            snap: 0,
            resolution: 0,
        };
        let mut blocks = 0;
        while !rest.is_empty() {
            let (after, block) = parse_block_le(rest).expect("a damaged block");
            rest = after;
            match block {
                Block::SectionHeader(section) => {
                    assert_eq!(blocks, 0);
                    assert!(comment(&section.options).contains("rpcrdma"));
                }
                Block::InterfaceDescription(interface) => {
                    file.snap = interface.snaplen as usize;
                    file.resolution = interface.if_tsresol;
                }
                Block::EnhancedPacket(packet) => file.packets.push(Packet {
                    bytes: packet.packet_data().to_vec(),
                    length: packet.origlen as usize,
                    time: u64::from(packet.ts_high) << 32 | u64::from(packet.ts_low),
                    comment: comment(&packet.options),
                }),
                other => panic!("{other:?}"),
            }
            blocks += 1;
        }
        file
    }

    /// Follows all connections. Every segment must be whole, in order, with right checksums, and
    /// acknowledge everything that the other end has sent.
    pub(crate) fn connections(&self) -> Vec<Stream> {
        let mut all: Vec<Stream> = Vec::new();
        let mut current: HashMap<(Vec<u8>, Vec<u8>), (usize, usize)> = HashMap::new();
        for packet in &self.packets {
            assert_eq!(packet.bytes.len(), packet.length);
            let segment = Segment::parse(&packet.bytes);
            let key = |segment: &Segment<'_>| (segment.from.clone(), segment.to.clone());
            if segment.flags == 0x02 {
                let (from, to) = key(&segment);
                current.insert((from.clone(), to.clone()), (all.len(), 0));
                current.insert((to, from), (all.len(), 1));
                all.push(Stream {
                    ports: segment.ports(),
                    bytes: Default::default(),
                    closed: false,
                    times: Vec::new(),
                    first: segment.sequence,
                    unacknowledged: 0,
                    next: [None; 2],
                    acknowledged: [0; 2],
                    finished: [false; 2],
                });
            }
            let &(number, end) = current.get(&key(&segment)).expect("no SYN before it");
            all[number].take(end, &segment);
            all[number].times.push(packet.time);
        }
        all
    }
}

impl Stream {
    fn take(&mut self, end: usize, segment: &Segment<'_>) {
        let counted = segment.payload.len() as u32 + u32::from(segment.flags & 0x03 != 0);
        let next = self.next[end].unwrap_or(segment.sequence);
        assert_eq!(segment.sequence, next, "not the next segment");
        assert!(!self.finished[end] || counted == 0, "data after a FIN");
        self.next[end] = Some(next.wrapping_add(counted));
        if segment.flags & 0x10 != 0 {
            let sent = self.next[1 - end].expect("an acknowledgement of nothing");
            assert_eq!(segment.acknowledged, sent);
            self.acknowledged[end] = sent;
            let mine = self.next[end].unwrap_or_default();
            let open = mine.wrapping_sub(self.acknowledged[1 - end]);
            if self.next[1 - end].is_some() && self.acknowledged[1 - end] != 0 {
                self.unacknowledged = self.unacknowledged.max(open);
            }
        }
        self.finished[end] |= segment.flags & 0x01 != 0;
        self.closed = self.finished == [true; 2];
        self.bytes[end].extend_from_slice(segment.payload);
    }

    /// Returns the RDMAP messages that an end sent, each with its kind, its other fields and its
    /// payload, without the division into segments. Every CRC must be right.
    pub(crate) fn messages(&self, end: usize) -> Vec<(u8, Vec<u8>, Vec<u8>)> {
        let stream = &self.bytes[end];
        let private = usize::from(u16::from_be_bytes([stream[18], stream[19]]));
        let mut rest = &stream[20 + private..];
        let mut messages: Vec<(u8, Vec<u8>, Vec<u8>)> = Vec::new();
        messages.push((0xff, Vec::new(), stream[..20 + private].to_vec()));
        let mut begins = true;
        while let Some(length) = rest.first_chunk() {
            let ulpdu = usize::from(u16::from_be_bytes(*length));
            let covered = (2 + ulpdu).next_multiple_of(4);
            let crc = crc32c::crc32c(&rest[..covered]).to_le_bytes();
            assert_eq!(rest[covered..covered + 4], crc, "a wrong CRC");
            let (header, payload) = match rest[2] & 0x80 {
                0 => (&rest[3..20], &rest[20..2 + ulpdu]),
                _ => (&rest[3..16], &rest[16..2 + ulpdu]),
            };
            if begins {
                messages.push((header[0], header.to_vec(), Vec::new()));
            }
            let last = messages.last_mut().expect("just added");
            // Where this segment's payload goes, relative to the first of its message.
            let offset = |header: &[u8]| {
                let at = header.len() - 4;
                u32::from_be_bytes([header[at], header[at + 1], header[at + 2], header[at + 3]])
            };
            assert_eq!(
                offset(header).wrapping_sub(offset(&last.1)) as usize,
                last.2.len()
            );
            last.2.extend_from_slice(payload);
            begins = rest[2] & 0x40 != 0;
            rest = &rest[covered + 4..];
        }
        messages
    }
}

struct Segment<'a> {
    from: Vec<u8>,
    to: Vec<u8>,
    flags: u8,
    sequence: u32,
    acknowledged: u32,
    payload: &'a [u8],
}

impl<'a> Segment<'a> {
    fn parse(frame: &'a [u8]) -> Self {
        let (addresses, tcp) = match frame[12..14] {
            [0x08, 0x00] => {
                assert_eq!(sum(&frame[14..34]), 0xffff, "the checksum of IPv4");
                let total = usize::from(u16::from_be_bytes([frame[16], frame[17]]));
                assert_eq!(total, frame.len() - 14);
                (&frame[26..34], &frame[34..])
            }
            [0x86, 0xdd] => {
                let length = usize::from(u16::from_be_bytes([frame[18], frame[19]]));
                assert_eq!(length, frame.len() - 54);
                (&frame[22..54], &frame[54..])
            }
            _ => panic!("neither version of IP"),
        };
        let mut checked = addresses.to_vec();
        checked.extend_from_slice(&(tcp.len() as u32 + 6).to_be_bytes());
        // The protocol, 6, was added to the length: the sum is the same.
        checked.extend_from_slice(tcp);
        assert_eq!(sum(&checked), 0xffff, "the checksum of TCP");
        let word = |at: usize| u32::from_be_bytes([tcp[at], tcp[at + 1], tcp[at + 2], tcp[at + 3]]);
        let (from, to) = addresses.split_at(addresses.len() / 2);
        Self {
            from: [from, &tcp[..2]].concat(),
            to: [to, &tcp[2..4]].concat(),
            flags: tcp[13] & 0x17,
            sequence: word(4),
            acknowledged: word(8),
            payload: &tcp[usize::from(tcp[12] >> 4) * 4..],
        }
    }

    fn ports(&self) -> [u16; 2] {
        [port(&self.from), port(&self.to)]
    }
}

fn port(end: &[u8]) -> u16 {
    u16::from_be_bytes([end[end.len() - 2], end[end.len() - 1]])
}

/// The sum of RFC 1071, word by word.
fn sum(bytes: &[u8]) -> u64 {
    let words = bytes
        .chunks(2)
        .map(|word| u64::from(word[0]) << 8 | u64::from(word.get(1).copied().unwrap_or(0)));
    let mut sum: u64 = words.sum();
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    sum
}
