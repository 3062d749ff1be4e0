//! Makes capture files of iWARP connections, without a device: for messages that no device of this
//! project would send.

use std::path::Path;
use std::{fs, io};

/// The server's port.
const SERVER_PORT: u16 = 20_049;
/// The port of the first client: these ports belong to no protocol that tshark knows.
const FIRST_PORT: u16 = 49_200;
/// The payload of one DDP segment, bytes: longer messages take several.
const SEGMENT: usize = 1400;
/// The file's link type: packets begin with an IP header.
const LINKTYPE_RAW: u32 = 101;
/// TCP's flags (RFC 9293, section 3.1).
const SYN: u8 = 0x02;
const PSH: u8 = 0x08;
const ACK: u8 = 0x10;
/// The initial sequence number of a connection that has the addresses and ports of an earlier one.
const AGAIN: u32 = 1 << 20;
/// The time between two packets, microseconds.
const INTERVAL: u32 = 1000;

/// One end of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    /// The end that established the connection.
    Client,
    /// The other one.
    Server,
}

impl End {
    fn index(self) -> usize {
        match self {
            Self::Client => 0,
            Self::Server => 1,
        }
    }

    pub(super) fn address(self) -> [u8; 4] {
        [10, 0, 0, 1 + self.index() as u8]
    }

    pub(super) fn peer(self) -> Self {
        match self {
            Self::Client => Self::Server,
            Self::Server => Self::Client,
        }
    }
}

/// A capture file in memory.
pub(crate) struct Frames {
    bytes: Vec<u8>,
    count: u32,
}

impl Frames {
    /// Creates a file without packets.
    pub(crate) fn new() -> Self {
        let mut bytes = Vec::new();
        for word in [0xa1b2_c3d4, 0x0004_0002, 0, 0, 262_144, LINKTYPE_RAW] {
            bytes.extend(u32::to_le_bytes(word));
        }
        Self { bytes, count: 0 }
    }

    /// Returns the number of the last packet, from 1.
    pub(crate) fn last(&self) -> usize {
        self.count as usize
    }

    /// Adds an IP packet of a transport protocol.
    pub(super) fn packet(&mut self, from: End, protocol: u8, payload: &[u8]) {
        let mut packet = vec![0x45, 0];
        packet.extend(u16::to_be_bytes(20 + payload.len() as u16));
        packet.extend([0, 0, 0, 0, 64, protocol, 0, 0]);
        packet.extend(from.address());
        packet.extend(from.peer().address());
        packet.extend(payload);
        let (seconds, micros) = (self.count / 1000, self.count % 1000 * INTERVAL);
        let length = packet.len() as u32;
        for word in [1_000_000_000 + seconds, micros, length, length] {
            self.bytes.extend(u32::to_le_bytes(word));
        }
        self.bytes.extend(packet);
        self.count += 1;
    }

    /// Writes the file.
    ///
    /// # Errors
    /// The errors of the file system.
    pub(crate) fn write(&self, path: &Path) -> io::Result<()> {
        fs::write(path, &self.bytes)
    }
}

/// A connection, whose packets are added to a file.
pub(crate) struct Iwarp {
    port: u16,
    /// The initial sequence number of both ends.
    initial: u32,
    /// For each end, the number of bytes of its TCP stream.
    sent: [u32; 2],
    /// For each end, the numbers of untagged messages in the queues of Sends and Read Requests.
    numbers: [[u32; 2]; 2],
}

/// RDMAP opcodes (RFC 5040, section 4.3).
mod opcode {
    pub(super) const WRITE: u8 = 0;
    pub(super) const READ_REQUEST: u8 = 1;
    pub(super) const READ_RESPONSE: u8 = 2;
    pub(super) const SEND: u8 = 3;
    pub(super) const SEND_WITH_INVALIDATE: u8 = 4;
}

impl Iwarp {
    /// Opens connection `number` with the private data that both ends send.
    pub(crate) fn open(frames: &mut Frames, number: u16, private: [&[u8]; 2]) -> Self {
        let mut opened = Self::new(number, 0);
        opened.set_up(frames, private);
        opened
    }

    /// Opens another connection with the addresses and ports of connection `number`, with TCP's
    /// handshake.
    pub(crate) fn open_again(frames: &mut Frames, number: u16, private: [&[u8]; 2]) -> Self {
        let mut opened = Self::new(number, AGAIN);
        opened.segment(frames, End::Client, SYN, &[]);
        opened.segment(frames, End::Server, SYN | ACK, &[]);
        opened.set_up(frames, private);
        opened
    }

    fn new(number: u16, initial: u32) -> Self {
        Self {
            port: FIRST_PORT + number,
            initial,
            sent: [0; 2],
            numbers: [[0; 2]; 2],
        }
    }

    fn set_up(&mut self, frames: &mut Frames, private: [&[u8]; 2]) {
        let ends = [
            (End::Client, "MPA ID Req Frame"),
            (End::Server, "MPA ID Rep Frame"),
        ];
        for ((from, key), data) in ends.into_iter().zip(private) {
            // Neither markers nor CRC; revision 1 (RFC 5044, section 7.1).
            let mut bytes = [key.as_bytes(), &[0, 1]].concat();
            bytes.extend(u16::to_be_bytes(data.len() as u16));
            bytes.extend(data);
            self.stream(frames, from, &bytes);
        }
    }

    fn stream(&mut self, frames: &mut Frames, from: End, bytes: &[u8]) {
        self.segment(frames, from, PSH | ACK, bytes);
        self.sent[from.index()] += bytes.len() as u32;
    }

    fn segment(&self, frames: &mut Frames, from: End, flags: u8, bytes: &[u8]) {
        let ports = match from {
            End::Client => [self.port, SERVER_PORT],
            End::Server => [SERVER_PORT, self.port],
        };
        let mut segment: Vec<u8> = ports.into_iter().flat_map(u16::to_be_bytes).collect();
        // A SYN has the number before that of the first byte.
        let first = self.initial + u32::from(flags & SYN == 0);
        let sequence = first + self.sent[from.index()];
        let acknowledged = match flags & ACK {
            0 => 0,
            _ => self.initial + 1 + self.sent[from.peer().index()],
        };
        segment.extend(u32::to_be_bytes(sequence));
        segment.extend(u32::to_be_bytes(acknowledged));
        segment.extend([0x50, flags, 0xff, 0xff, 0, 0, 0, 0]);
        segment.extend(bytes);
        frames.packet(from, 6, &segment);
    }

    fn fpdu(&mut self, frames: &mut Frames, from: End, segment: &[u8]) {
        let mut bytes = u16::to_be_bytes(segment.len() as u16).to_vec();
        bytes.extend(segment);
        bytes.resize(bytes.len().next_multiple_of(4), 0);
        // The place of the CRC.
        bytes.extend([0; 4]);
        self.stream(frames, from, &bytes);
    }

    /// Adds an untagged message, in segments.
    fn untagged(&mut self, frames: &mut Frames, from: End, opcode: u8, rest: u32, message: &[u8]) {
        let queue = usize::from(opcode == opcode::READ_REQUEST);
        self.numbers[from.index()][queue] += 1;
        let number = self.numbers[from.index()][queue];
        let mut offset = 0;
        loop {
            let cut = &message[offset..message.len().min(offset + SEGMENT)];
            let last = offset + cut.len() == message.len();
            let mut segment = vec![if last { 0x41 } else { 0x01 }, 0x40 | opcode];
            for word in [rest, queue as u32, number, offset as u32] {
                segment.extend(u32::to_be_bytes(word));
            }
            segment.extend(cut);
            self.fpdu(frames, from, &segment);
            offset += cut.len();
            if last {
                return;
            }
        }
    }

    fn tagged(&mut self, frames: &mut Frames, from: End, opcode: u8, to: (u32, u64), data: &[u8]) {
        let pieces = data.chunks(SEGMENT).count();
        for (n, cut) in data.chunks(SEGMENT).enumerate() {
            let last = n + 1 == pieces;
            let mut segment = vec![if last { 0xc1 } else { 0x81 }, 0x40 | opcode];
            segment.extend(u32::to_be_bytes(to.0));
            segment.extend(u64::to_be_bytes(to.1 + (n * SEGMENT) as u64));
            segment.extend(cut);
            self.fpdu(frames, from, &segment);
        }
    }

    /// Adds a Send, which may invalidate a handle.
    pub(crate) fn send(
        &mut self,
        frames: &mut Frames,
        from: End,
        message: &[u8],
        invalidate: Option<u32>,
    ) {
        let opcode = match invalidate {
            Some(_) => opcode::SEND_WITH_INVALIDATE,
            None => opcode::SEND,
        };
        self.untagged(frames, from, opcode, invalidate.unwrap_or(0), message);
    }

    /// Adds an RDMA Write to a handle and offset of the peer.
    pub(crate) fn write(&mut self, frames: &mut Frames, from: End, to: (u32, u64), data: &[u8]) {
        self.tagged(frames, from, opcode::WRITE, to, data);
    }

    /// Adds an RDMA Read Request for `length` bytes of the peer.
    pub(crate) fn read_request(
        &mut self,
        frames: &mut Frames,
        from: End,
        sink: (u32, u64),
        source: (u32, u64),
        length: u32,
    ) {
        let mut message = u32::to_be_bytes(sink.0).to_vec();
        message.extend(u64::to_be_bytes(sink.1));
        message.extend(u32::to_be_bytes(length));
        message.extend(u32::to_be_bytes(source.0));
        message.extend(u64::to_be_bytes(source.1));
        self.untagged(frames, from, opcode::READ_REQUEST, 0, &message);
    }

    /// Adds the response to an RDMA Read of the peer.
    pub(crate) fn read_response(
        &mut self,
        frames: &mut Frames,
        from: End,
        sink: (u32, u64),
        data: &[u8],
    ) {
        self.tagged(frames, from, opcode::READ_RESPONSE, sink, data);
    }
}
