//! A peer made of a plain socket, which can send anything. Its messages are built here from the
//! figures of the RFCs, not by the code under test.

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use bytes::Bytes;
use rdma::{Device, Event, QpId, RemoteSegment};

use crate::node::{Node, PATIENCE, accept_options};

pub(crate) const WRITE: u8 = 0;
pub(crate) const READ_REQUEST: u8 = 1;
pub(crate) const READ_RESPONSE: u8 = 2;
pub(crate) const SEND: u8 = 3;
pub(crate) const SEND_INVALIDATE: u8 = 4;
pub(crate) const SEND_SOLICITED: u8 = 5;
pub(crate) const SEND_SOLICITED_INVALIDATE: u8 = 6;
pub(crate) const TERMINATE: u8 = 7;

/// The result of a read by a raw peer.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Got {
    /// The next ULPDU.
    Ulpdu(Vec<u8>),
    /// The connection was closed with a FIN.
    End,
    /// The connection was reset.
    Reset,
}

pub(crate) struct Raw {
    pub(crate) socket: TcpStream,
    pub(crate) crc: bool,
}

/// Returns a tagged segment.
pub(crate) fn tagged(opcode: u8, last: bool, stag: u32, offset: u64, payload: &[u8]) -> Vec<u8> {
    let mut out = vec![0x81 | u8::from(last) << 6, 0x40 | opcode];
    out.extend(stag.to_be_bytes());
    out.extend(offset.to_be_bytes());
    out.extend(payload);
    out
}

/// Returns an untagged segment.
pub(crate) fn untagged(
    opcode: u8,
    last: bool,
    word: u32,
    (queue, msn, offset): (u32, u32, u32),
    payload: &[u8],
) -> Vec<u8> {
    let mut out = vec![0x01 | u8::from(last) << 6, 0x40 | opcode];
    for field in [word, queue, msn, offset] {
        out.extend(field.to_be_bytes());
    }
    out.extend(payload);
    out
}

/// Returns a Send in one segment.
pub(crate) fn send(msn: u32, payload: &[u8]) -> Vec<u8> {
    untagged(SEND, true, 0, (0, msn, 0), payload)
}

/// Returns a Read Request.
pub(crate) fn read_request(msn: u32, sink: u32, length: u32, stag: u32, offset: u64) -> Vec<u8> {
    let mut payload = Vec::new();
    payload.extend(sink.to_be_bytes());
    payload.extend(0x1000_u64.to_be_bytes());
    payload.extend(length.to_be_bytes());
    payload.extend(stag.to_be_bytes());
    payload.extend(offset.to_be_bytes());
    untagged(READ_REQUEST, true, 0, (1, msn, 0), &payload)
}

/// Returns the FPDU of a ULPDU.
pub(crate) fn fpdu(ulpdu: &[u8], crc: bool) -> Vec<u8> {
    let mut out = u16::try_from(ulpdu.len()).unwrap().to_be_bytes().to_vec();
    out.extend(ulpdu);
    while out.len() % 4 != 0 {
        out.push(0);
    }
    let sum = if crc { crc32c::crc32c(&out) } else { 0 };
    out.extend(sum.to_le_bytes());
    out
}

/// Returns a set-up frame.
pub(crate) fn frame(key: &[u8; 16], flags: u8, revision: u8, private: &[u8]) -> Vec<u8> {
    let mut out = key.to_vec();
    out.extend([flags, revision]);
    out.extend(u16::try_from(private.len()).unwrap().to_be_bytes());
    out.extend(private);
    out
}

pub(crate) const REQUEST: &[u8; 16] = b"MPA ID Req Frame";
pub(crate) const REPLY: &[u8; 16] = b"MPA ID Rep Frame";

impl Raw {
    pub(crate) fn over(socket: TcpStream) -> Self {
        socket.set_nodelay(true).unwrap();
        socket.set_nonblocking(true).unwrap();
        Self { socket, crc: false }
    }

    pub(crate) fn connect(address: SocketAddr) -> Self {
        Self::over(TcpStream::connect(address).unwrap())
    }

    pub(crate) fn write(&mut self, bytes: &[u8]) {
        // A device that has already closed must not fail a test that continues to write.
        let start = Instant::now();
        let mut rest = bytes;
        while !rest.is_empty() && start.elapsed() < PATIENCE {
            match self.socket.write(rest) {
                Ok(n) => rest = &rest[n..],
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                Err(_) => return,
            }
        }
    }

    pub(crate) fn send_ulpdu(&mut self, ulpdu: &[u8]) {
        let bytes = fpdu(ulpdu, self.crc);
        self.write(&bytes);
    }

    /// Reads `len` bytes while it steps the node.
    pub(crate) fn read(&mut self, len: usize, node: &mut Node) -> Result<Vec<u8>, Got> {
        let (start, mut bytes, mut done) = (Instant::now(), vec![0; len], 0);
        while done < len {
            assert!(start.elapsed() < PATIENCE, "{done} of {len} bytes came");
            match self.socket.read(&mut bytes[done..]) {
                Ok(0) => return Err(Got::End),
                Ok(n) => done += n,
                Err(error) if error.kind() == ErrorKind::WouldBlock => idle(node),
                Err(error) if error.kind() == ErrorKind::ConnectionReset => {
                    return Err(Got::Reset);
                }
                Err(error) => panic!("{error}"),
            }
        }
        Ok(bytes)
    }

    /// Reads a set-up frame, and returns its flags, revision and private data.
    pub(crate) fn read_frame(&mut self, key: &[u8; 16], node: &mut Node) -> (u8, u8, Vec<u8>) {
        let header = self.read(20, node).unwrap();
        assert_eq!(&header[..16], key);
        let len = u16::from_be_bytes([header[18], header[19]]);
        let private = self.read(usize::from(len), node).unwrap();
        (header[16], header[17], private)
    }

    /// Reads the next FPDU.
    pub(crate) fn read_fpdu(&mut self, node: &mut Node) -> Got {
        let length = match self.read(2, node) {
            Ok(length) => length,
            Err(end) => return end,
        };
        let ulpdu = usize::from(u16::from_be_bytes([length[0], length[1]]));
        let pad = (ulpdu + 2).wrapping_neg() % 4;
        let rest = match self.read(ulpdu + pad + 4, node) {
            Ok(rest) => rest,
            Err(end) => return end,
        };
        let whole = [&length[..], &rest[..ulpdu]].concat();
        let expected = fpdu(&whole[2..], self.crc);
        assert_eq!(expected[2..], rest[..], "padding and CRC");
        Got::Ulpdu(whole[2..].to_vec())
    }

    /// Checks that the next FPDU is a Terminate, after which the connection ends. Returns layer and
    /// type, code, and the bytes that follow the control field.
    pub(crate) fn expect_terminate(&mut self, node: &mut Node) -> (u8, u8, u16, Vec<u8>) {
        let Got::Ulpdu(ulpdu) = self.read_fpdu(node) else {
            panic!("no Terminate")
        };
        assert_eq!(ulpdu[..2], [0x41, 0x40 | TERMINATE], "{ulpdu:x?}");
        let fields = [0_u32, 2, 1, 0].map(u32::to_be_bytes).concat();
        assert_eq!(ulpdu[2..18], fields, "queue 2, MSN 1");
        assert_eq!(
            self.read_fpdu(node),
            Got::End,
            "the connection ends in order"
        );
        let flags = u16::from_be_bytes([ulpdu[20], ulpdu[21]]);
        (ulpdu[18], ulpdu[19], flags, ulpdu[22..].to_vec())
    }

    /// Establishes a connection as Linux's NFS client does, with some IRD and ORD.
    pub(crate) fn set_up(node: &mut Node, crc: bool) -> (Self, QpId) {
        let (_, address) = node.listen();
        let mut raw = Self::connect(address);
        let flags = 0x10 | u8::from(crc) << 6;
        raw.write(&frame(REQUEST, flags, 2, &[0, 16, 0, 4, b'h', b'i']));
        let request = raw.wait_request(node);
        assert_eq!(request.1, b"hi"[..]);
        let qp = node.device.prepare_accept(request.0, None).unwrap();
        node.device.accept(qp, &accept_options()).unwrap();
        let (flags, revision, private) = raw.read_frame(REPLY, node);
        assert_eq!((flags & !0x40, revision), (0x10, 2));
        assert_eq!(flags & 0x40 != 0, crc);
        assert_eq!(
            private[..4],
            [0, 4, 0, 16],
            "our IRD is its ORD, our ORD is its IRD"
        );
        assert_eq!(private[4..], *b"welcome");
        raw.crc = crc;
        assert!(matches!(node.next(), Event::Established { .. }));
        (raw, qp)
    }

    pub(crate) fn wait_request(&mut self, node: &mut Node) -> (rdma::RequestId, Bytes) {
        match node.next() {
            Event::ConnectRequest(request) => (request.request, request.private_data),
            event => panic!("{event:?}"),
        }
    }
}

/// Steps a node and keeps its events for later.
pub(crate) fn idle(node: &mut Node) {
    let mut waiting = std::mem::take(&mut node.events);
    node.step(Duration::from_millis(1));
    waiting.append(&mut node.events);
    node.events = waiting;
}

/// Returns handle and offset of a segment.
pub(crate) fn parts(segment: &RemoteSegment) -> (u32, u64) {
    (segment.stag.0, segment.offset)
}
