//! Makes RoCE version 2 of a capture of iWARP: the same messages, RDMA Writes and RDMA Reads in
//! packets of a reliable connection, some of them sent again, and the rest of some reads asked for again. So
//! the dissector can be checked without such a device.

use std::collections::{BTreeMap, VecDeque};
use std::fs;
use std::path::Path;

use super::frames::{End, Frames};
use crate::error::Error;

/// The payload of a packet, bytes.
const MTU: usize = 4096;
/// The UDP port of RoCE.
const ROCE_PORT: u16 = 4791;
/// Bytes before the IP header on the loopback interface.
const ETHERNET: usize = 14;
/// Bytes of the headers of a capture file and of a packet in it.
const FILE_HEADER: usize = 24;
const PACKET_HEADER: usize = 16;

/// A TCP stream in one direction.
#[derive(Default)]
struct Stream {
    /// The sequence number of the next byte, once it is known.
    next: Option<u32>,
    /// Segments that came early.
    early: BTreeMap<u32, Vec<u8>>,
    /// Bytes that are not taken yet.
    bytes: Vec<u8>,
    /// Whether the set-up frame was taken.
    is_open: bool,
    /// The segments so far of an untagged message, and of a tagged one.
    untagged: Vec<u8>,
    tagged: Option<(u32, u64, Vec<u8>)>,
}

/// Writes the capture `to` with what is in the capture `from`, whose server has `port`.
pub(super) fn transcode(from: &Path, port: u16, to: &Path) -> Result<(), Error> {
    let file = fs::read(from).map_err(Error::ours("a capture"))?;
    let mut streams = [Stream::default(), Stream::default()];
    let mut roce = Roce {
        frames: Frames::new(),
        numbers: [1; 2],
        reads: Default::default(),
        unacknowledged: [Vec::new(), Vec::new()],
    };
    let mut at = FILE_HEADER;
    while let Some(header) = file.get(at..at + PACKET_HEADER) {
        let length = u32::from_le_bytes([header[8], header[9], header[10], header[11]]) as usize;
        at += PACKET_HEADER;
        let packet = file.get(at..at + length).unwrap_or(&[]);
        at += length;
        let Some((end, sequence, is_syn, data)) = tcp(packet, port) else {
            continue;
        };
        let stream = &mut streams[end as usize];
        stream.add(sequence, is_syn, data);
        while let Some(segment) = stream.segment() {
            stream.handle(&segment, end, &mut roce);
        }
    }
    roce.frames.write(to).map_err(Error::ours("a capture"))
}

/// Returns the sender, the sequence number, whether this begins the stream, and the data.
fn tcp(packet: &[u8], port: u16) -> Option<(End, u32, bool, &[u8])> {
    let ip = packet.get(ETHERNET..)?;
    let start = usize::from(ip.first()? & 15) * 4;
    let total = usize::from(u16::from_be_bytes([*ip.get(2)?, *ip.get(3)?]));
    // A segment longer than IP's length field can say.
    let total = if total == 0 { ip.len() } else { total };
    let tcp = ip.get(start..total)?;
    let offset = usize::from(tcp.get(12)? >> 4) * 4;
    let is_client = u16::from_be_bytes([tcp[2], tcp[3]]) == port;
    let end = if is_client { End::Client } else { End::Server };
    let sequence = u32::from_be_bytes([tcp[4], tcp[5], tcp[6], tcp[7]]);
    Some((end, sequence, tcp[13] & 2 != 0, tcp.get(offset..)?))
}

fn word(bytes: &[u8], at: usize) -> u32 {
    let four = bytes.get(at..at + 4).and_then(|four| four.try_into().ok());
    four.map_or(0, u32::from_be_bytes)
}

fn wide(bytes: &[u8], at: usize) -> u64 {
    u64::from(word(bytes, at)) << 32 | u64::from(word(bytes, at + 4))
}

impl Stream {
    fn add(&mut self, sequence: u32, is_syn: bool, data: &[u8]) {
        if is_syn {
            self.next = Some(sequence.wrapping_add(1));
        } else if !data.is_empty() {
            self.early.insert(sequence, data.to_vec());
        }
        while let Some(data) = self.next.and_then(|next| self.early.remove(&next)) {
            self.next = self.next.map(|next| next.wrapping_add(data.len() as u32));
            self.bytes.extend(data);
        }
    }

    /// Takes the next DDP segment.
    fn segment(&mut self) -> Option<Vec<u8>> {
        if !self.is_open {
            // The set-up frame: its key, flags, revision, and private data with its length.
            let private = self.bytes.get(18..20)?;
            let length = 20 + usize::from(u16::from_be_bytes([private[0], private[1]]));
            if self.bytes.len() < length {
                return None;
            }
            self.bytes.drain(..length);
            self.is_open = true;
        }
        let first = self.bytes.get(..2)?;
        let length = usize::from(u16::from_be_bytes([first[0], first[1]]));
        let whole = (2 + length).next_multiple_of(4) + 4;
        if self.bytes.len() < whole {
            return None;
        }
        let fpdu: Vec<u8> = self.bytes.drain(..whole).collect();
        Some(fpdu[2..2 + length].to_vec())
    }

    fn handle(&mut self, segment: &[u8], from: End, roce: &mut Roce) {
        let (control, opcode) = (segment[0], segment[1] & 15);
        let is_last = control & 0x40 != 0;
        if control & 0x80 == 0 {
            self.untagged.extend(&segment[18..]);
            if !is_last {
                return;
            }
            let message = std::mem::take(&mut self.untagged);
            match opcode {
                1 => roce.read_request(
                    from,
                    wide(&message, 20),
                    word(&message, 16),
                    word(&message, 12),
                ),
                3 | 5 => roce.send(from, &message, None),
                4 | 6 => roce.send(from, &message, Some(word(segment, 2))),
                _ => {}
            }
            return;
        }
        let (stag, offset) = (word(segment, 2), wide(segment, 6));
        let (_, _, data) = self.tagged.get_or_insert((stag, offset, Vec::new()));
        data.extend(&segment[14..]);
        if let Some((stag, offset, data)) = self.tagged.take_if(|_| is_last) {
            match opcode {
                // Connection set-up ends with an RDMA Write of no bytes.
                0 if !data.is_empty() => roce.write(from, offset, stag, &data),
                2 => roce.read_response(from, &data),
                _ => {}
            }
        }
    }
}

/// An RDMA Read that is not answered.
struct Read {
    /// The number of the request, and of the first response.
    number: u32,
    address: u64,
    handle: u32,
}

struct Roce {
    frames: Frames,
    /// The number of each end's next request.
    numbers: [u32; 2],
    /// The reads of each end.
    reads: [VecDeque<Read>; 2],
    /// The last packets of each end, which it sends again.
    unacknowledged: [Vec<Vec<u8>>; 2],
}

/// After so many packets, an end misses an acknowledgement and sends them again.
const AGAIN: usize = 5;

/// Opcodes for the first, a middle, the last and the only packet.
type Opcodes = [u8; 4];
const SEND: Opcodes = [0, 1, 2, 4];
const SEND_WITH_INVALIDATE: Opcodes = [0, 1, 22, 23];
const WRITE: Opcodes = [6, 7, 8, 10];
const READ_RESPONSE: Opcodes = [13, 14, 15, 16];
const READ_REQUEST: u8 = 12;

impl Roce {
    /// Takes the numbers of this many packets, and returns the first.
    fn take(&mut self, from: End, packets: usize) -> u32 {
        let next = &mut self.numbers[from as usize];
        let first = *next;
        *next += packets as u32;
        first
    }

    fn packet(&mut self, from: End, number: u32, opcode: u8, header: &[u8], data: &[u8]) {
        let pad = data.len().next_multiple_of(4) - data.len();
        let queue_pair: u32 = match from {
            End::Client => 0x12,
            End::Server => 0x11,
        };
        let mut packet = u16::to_be_bytes(0xc000).to_vec();
        packet.extend(u16::to_be_bytes(ROCE_PORT));
        let length = 8 + 12 + header.len() + data.len() + pad + 4;
        packet.extend(u16::to_be_bytes(length as u16));
        packet.extend([0, 0, opcode, 0x40 | (pad as u8) << 4, 0xff, 0xff]);
        packet.extend(queue_pair.to_be_bytes());
        packet.extend(number.to_be_bytes());
        packet.extend(header);
        packet.extend(data);
        packet.resize(packet.len() + pad + 4, 0);
        self.frames.packet(from, 17, &packet);
        let unacknowledged = &mut self.unacknowledged[from as usize];
        unacknowledged.push(packet);
        if unacknowledged.len() == AGAIN {
            for packet in unacknowledged.drain(..) {
                self.frames.packet(from, 17, &packet);
            }
        }
    }

    /// Adds a message in packets with numbers of the sender's own. `first` and `last` are the headers of these
    /// packets.
    fn message(&mut self, from: End, opcodes: Opcodes, first: &[u8], last: &[u8], data: &[u8]) {
        let number = self.take(from, packets(data.len()));
        self.numbered(from, number, opcodes, (first, last), data);
    }

    /// Adds a message in packets with numbers from `number` on.
    fn numbered(
        &mut self,
        from: End,
        number: u32,
        opcodes: Opcodes,
        (first, last): (&[u8], &[u8]),
        data: &[u8],
    ) {
        let pieces: Vec<&[u8]> = match data {
            [] => vec![data],
            _ => data.chunks(MTU).collect(),
        };
        for (n, piece) in pieces.iter().enumerate() {
            let (opcode, header) = match (n == 0, n + 1 == pieces.len()) {
                (true, true) => (opcodes[3], [first, last].concat()),
                (true, false) => (opcodes[0], first.to_vec()),
                (false, true) => (opcodes[2], last.to_vec()),
                (false, false) => (opcodes[1], Vec::new()),
            };
            self.packet(from, number + n as u32, opcode, &header, piece);
        }
    }

    fn send(&mut self, from: End, message: &[u8], invalidate: Option<u32>) {
        match invalidate {
            None => self.message(from, SEND, &[], &[], message),
            Some(handle) => {
                let last = handle.to_be_bytes();
                self.message(from, SEND_WITH_INVALIDATE, &[], &last, message);
            }
        }
    }

    fn write(&mut self, from: End, address: u64, handle: u32, data: &[u8]) {
        let header = memory(address, handle, data.len() as u32);
        self.message(from, WRITE, &header, &[], data);
    }

    /// Adds a request, which takes as many numbers as its responses have.
    fn read_request(&mut self, from: End, address: u64, handle: u32, length: u32) {
        let number = self.take(from, packets(length as usize));
        let header = memory(address, handle, length);
        self.packet(from, number, READ_REQUEST, &header, &[]);
        self.reads[from as usize].push_back(Read {
            number,
            address,
            handle,
        });
    }

    /// Adds the responses to the oldest read of the peer. If there are several, the peer has missed those after
    /// the first, and asks for the rest again.
    fn read_response(&mut self, from: End, data: &[u8]) {
        let Some(read) = self.reads[from.peer() as usize].pop_front() else {
            return;
        };
        self.responses(from, read.number, data);
        let Some((_, rest @ [_, ..])) = data.split_at_checked(MTU) else {
            return;
        };
        let (number, address) = (read.number + 1, read.address + MTU as u64);
        let header = memory(address, read.handle, rest.len() as u32);
        self.packet(from.peer(), number, READ_REQUEST, &header, &[]);
        self.responses(from, number, rest);
    }

    fn responses(&mut self, from: End, number: u32, data: &[u8]) {
        // The first and the last packet acknowledge; one that is both does it once.
        let first: &[u8] = &[0; 4];
        let last: &[u8] = match data.len() <= MTU {
            true => &[],
            false => first,
        };
        self.numbered(from, number, READ_RESPONSE, (first, last), data);
    }
}

/// Returns the number of packets of a message.
fn packets(length: usize) -> usize {
    length.div_ceil(MTU).max(1)
}

/// Encodes an RDMA extended transport header.
fn memory(address: u64, handle: u32, length: u32) -> Vec<u8> {
    let mut header = address.to_be_bytes().to_vec();
    header.extend(handle.to_be_bytes());
    header.extend(length.to_be_bytes());
    header
}
