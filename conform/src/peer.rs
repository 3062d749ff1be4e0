//! One end of an iWARP connection that follows all rules unless a case makes it break one.

use std::net::SocketAddr;

use crate::stream::{Gone, Meanwhile, Stream};
use crate::wire::ddp::{self, Arrived, Code, ReadRequest, Tagged, Untagged};
use crate::wire::mpa::{self, Frame};
use crate::wire::v2;

/// The longest Send that is reassembled, bytes. No inline threshold of RFC 8797 is beyond 256 KiB.
const LONGEST: usize = 1 << 20;
/// The segments of RDMA Writes, of at most 64 KiB each, that are kept until somebody looks at them.
const MOST_PLACED: usize = 4096;

/// The payload of one segment of a message, bytes.
const CUT: usize = 16 << 10;

/// Something received from the honest peer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Heard {
    /// A complete Send.
    Message {
        /// The bytes of the message.
        bytes: Vec<u8>,
        /// The handle that it invalidates.
        invalidate: Option<u32>,
    },
    /// A Read Request.
    Read(ReadRequest),
    /// A segment of a Read Response.
    Response {
        /// The handle of the sink.
        stag: u32,
        /// The bytes.
        payload: Vec<u8>,
        /// Whether this is the last segment of the message (L flag).
        last: bool,
    },
    /// A Terminate.
    Terminate(Code),
}

/// Data that the honest peer placed with an RDMA Write.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Placed {
    /// The handle.
    pub stag: u32,
    /// The tagged offset.
    pub offset: u64,
    /// The bytes.
    pub bytes: Vec<u8>,
}

/// The hostile end of a connection.
#[derive(Debug)]
pub struct Peer {
    /// The byte stream, for sending bytes that are not FPDUs.
    pub stream: Stream,
    /// The RDMA Writes received from the peer. This end offers handles without real memory.
    pub placed: Vec<Placed>,
    crc: bool,
    /// The MSNs of the next Send, of the next Read Request, and of the peer's next Send.
    sends: u32,
    reads: u32,
    heard: u32,
    partial: Vec<u8>,
    /// The segments of RDMA Writes that are kept until somebody looks at them.
    most_placed: usize,
    /// If present, messages are translated to version 2, with this direction.
    translated: Option<u32>,
}

impl Peer {
    /// Creates the end of a fresh TCP connection.
    #[must_use]
    pub fn new(stream: Stream) -> Self {
        Self {
            stream,
            placed: Vec::new(),
            crc: false,
            sends: 1,
            reads: 1,
            heard: 1,
            partial: Vec::new(),
            most_placed: MOST_PLACED,
            translated: None,
        }
    }

    /// Sets how many segments of RDMA Writes may come before something else does.
    pub fn keep_placed(&mut self, most: usize) {
        self.most_placed = most;
    }

    /// Switches to version 2: messages that are sent are translated to it ([`v2::from_first`]), and
    /// received ones to version 1. The exchange of characteristics is automatic.
    #[must_use]
    pub fn translated(mut self, direction: u32) -> Self {
        self.translated = Some(direction);
        self
    }

    /// Converts a message of a script to the protocol version of this connection.
    #[must_use]
    pub fn form(&self, message: &[u8]) -> Vec<u8> {
        match self.translated {
            Some(direction) => v2::from_first(message, direction),
            None => message.to_vec(),
        }
    }

    /// Translates a received message to the version of the scripts. Returns `None` if the message
    /// is not for them.
    fn understood(&mut self, message: Vec<u8>) -> Option<Vec<u8>> {
        let Some(direction) = self.translated else {
            return Some(message);
        };
        if v2::parse(&message).is_some_and(|heard| heard.opttype == v2::INITXCH) {
            if direction == v2::REPLY {
                self.send(&v2::operation(
                    0x0f00_0001,
                    v2::CALL,
                    v2::INITXCH,
                    &[0, 0],
                    &[],
                ));
            }
            return None;
        }
        Some(v2::to_first(&message, 1 - direction).unwrap_or(message))
    }

    /// Connects to a server without sending anything.
    ///
    /// # Errors
    /// The error of the operating system.
    pub fn connect(server: SocketAddr) -> std::io::Result<Self> {
        Stream::connect(server).map(Self::new)
    }

    /// Sets whether FPDUs have CRCs from here on.
    pub fn set_crc(&mut self, on: bool) {
        self.crc = on;
    }

    /// Receives the peer's MPA Request or Reply Frame.
    ///
    /// # Errors
    /// The peer sent no whole frame, or one that does not begin with `key`.
    pub fn hear_frame(&mut self, key: [u8; 16], meanwhile: Meanwhile<'_>) -> Result<Frame, Gone> {
        let header = self.stream.read(20, true, meanwhile)?;
        if header[..16] != key {
            return Err(Gone::Nonsense(format!("no set-up frame: {header:x?}")));
        }
        let (flags, revision) = (header[16], header[17]);
        let length = usize::from(u16::from_be_bytes([header[18], header[19]]));
        let mut private = self.stream.read(length, false, meanwhile)?;
        let mut depths = None;
        if flags & mpa::ENHANCED != 0 && length >= 4 {
            let rest = private.split_off(4);
            let word = |at: usize| u16::from_be_bytes([private[at], private[at + 1]]);
            depths = Some((word(0), word(2)));
            private = rest;
        }
        Ok(Frame {
            key,
            flags,
            revision,
            length: None,
            depths,
            private,
        })
    }

    /// Sends a ULPDU in a correct FPDU.
    pub fn say(&mut self, ulpdu: &[u8]) {
        self.stream.write(&mpa::fpdu(ulpdu, self.crc));
    }

    /// Returns the MSN that the next Send must have.
    #[must_use]
    pub fn next_msn(&self) -> u32 {
        self.sends
    }

    /// Adds `sends` to the message sequence number of Sends, after a script has sent them in
    /// another way.
    pub fn said(&mut self, sends: u32) {
        self.sends = self.sends.wrapping_add(sends);
    }

    /// Sends a message with this opcode and this RDMAP-specific word (the handle to invalidate).
    pub fn send_as(&mut self, opcode: u8, word: u32, message: &[u8]) {
        self.send_cut(opcode, word, message, CUT);
    }

    /// Sends a message.
    pub fn send(&mut self, message: &[u8]) {
        self.send_as(ddp::SEND, 0, message);
    }

    /// Sends a message in segments of at most `most` bytes of payload.
    pub fn send_cut(&mut self, opcode: u8, word: u32, message: &[u8], most: usize) {
        let message = self.form(message);
        let mut pieces = message.chunks(most).peekable();
        let mut segment = Untagged {
            opcode,
            word,
            ..Untagged::send(self.sends, &[])
        };
        loop {
            segment.payload = pieces.next().unwrap_or_default().to_vec();
            segment.last = pieces.peek().is_none();
            self.say(&segment.ulpdu());
            if segment.last {
                break;
            }
            segment.offset += segment.payload.len() as u32;
        }
        self.said(1);
    }

    /// Writes to memory of the peer by RDMA Write. The offset is what the peer has said: it may wrap.
    pub fn write(&mut self, stag: u32, offset: u64, bytes: &[u8]) {
        let (mut at, mut pieces) = (offset, bytes.chunks(CUT).peekable());
        while let Some(piece) = pieces.next() {
            let last = pieces.peek().is_none();
            let whole = Tagged::write(stag, at, piece);
            self.say(&Tagged { last, ..whole }.ulpdu());
            at = at.wrapping_add(piece.len() as u64);
        }
    }

    /// Sends a Read Request for memory of the peer.
    pub fn read(&mut self, request: &ReadRequest) {
        self.say(&Untagged::read_request(self.reads, request).ulpdu());
        self.reads = self.reads.wrapping_add(1);
    }

    /// Answers a Read Request. The offset of its sink may wrap.
    pub fn respond(&mut self, request: &ReadRequest, bytes: &[u8]) {
        let mut at = request.sink_offset;
        let mut pieces = bytes.chunks(CUT).peekable();
        loop {
            let piece = pieces.next().unwrap_or_default();
            let last = pieces.peek().is_none();
            let whole = Tagged::response(request.sink, at, piece);
            self.say(&Tagged { last, ..whole }.ulpdu());
            at = at.wrapping_add(piece.len() as u64);
            if last {
                return;
            }
        }
    }

    /// Receives the next message. RDMA Writes are recorded in [`Peer::placed`].
    ///
    /// # Errors
    /// The end of the connection, or data that no honest device sends.
    pub fn hear(&mut self, meanwhile: Meanwhile<'_>) -> Result<Heard, Gone> {
        loop {
            let ulpdu = self.hear_ulpdu(meanwhile)?;
            let nonsense = || Gone::Nonsense(format!("not a segment: {ulpdu:x?}"));
            match ddp::parse(&ulpdu).ok_or_else(nonsense)? {
                Arrived::Write {
                    stag,
                    offset,
                    payload,
                } => {
                    let bytes = payload;
                    if self.placed.len() >= self.most_placed {
                        let text = format!("more than {} RDMA Writes", self.most_placed);
                        return Err(Gone::Nonsense(text));
                    }
                    if !bytes.is_empty() {
                        self.placed.push(Placed {
                            stag,
                            offset,
                            bytes,
                        });
                    }
                }
                Arrived::Response {
                    stag,
                    payload,
                    last,
                } => {
                    return Ok(Heard::Response {
                        stag,
                        payload,
                        last,
                    });
                }
                Arrived::Read(request) => return Ok(Heard::Read(request)),
                Arrived::Terminate(code) => return Ok(Heard::Terminate(code)),
                Arrived::Send {
                    invalidate,
                    msn,
                    offset,
                    last,
                    payload,
                } => {
                    if msn != self.heard || offset as usize != self.partial.len() {
                        return Err(nonsense());
                    }
                    if self.partial.len() + payload.len() > LONGEST {
                        let text = format!("a Send of more than {LONGEST} bytes");
                        return Err(Gone::Nonsense(text));
                    }
                    self.partial.extend(payload);
                    if last {
                        self.heard = self.heard.wrapping_add(1);
                        let bytes = std::mem::take(&mut self.partial);
                        if let Some(bytes) = self.understood(bytes) {
                            return Ok(Heard::Message { bytes, invalidate });
                        }
                    }
                }
            }
        }
    }

    fn hear_ulpdu(&mut self, meanwhile: Meanwhile<'_>) -> Result<Vec<u8>, Gone> {
        let length = self.stream.read(2, true, meanwhile)?;
        let ulpdu = usize::from(u16::from_be_bytes([length[0], length[1]]));
        let rest = ulpdu + mpa::padding(ulpdu) + 4;
        let mut rest = self.stream.read(rest, false, meanwhile)?;
        let whole = mpa::fpdu(&rest[..ulpdu], self.crc);
        if self.crc && whole[2..] != rest[..] {
            return Err(Gone::Nonsense("a wrong CRC".into()));
        }
        rest.truncate(ulpdu);
        Ok(rest)
    }
}

#[cfg(test)]
mod tests {
    use std::net::{Ipv4Addr, TcpListener};

    use super::*;

    /// Two ends of a connection.
    fn pair() -> [Peer; 2] {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let one = Peer::connect(listener.local_addr().unwrap()).unwrap();
        let (other, _) = listener.accept().unwrap();
        [one, Peer::new(Stream::new(other).unwrap())]
    }

    #[test]
    fn offsets_at_the_end_of_the_range_wrap() {
        const NEAR: u64 = u64::MAX - 10;
        let bytes = [7; CUT + 1];
        let [mut one, mut other] = pair();
        one.write(1, NEAR, &bytes);
        let request = ReadRequest {
            sink: 2,
            sink_offset: NEAR,
            length: bytes.len() as u32,
            source: 3,
            source_offset: 0,
        };
        one.respond(&request, &bytes);
        let response = other.hear(&mut || true);
        assert!(matches!(response, Ok(Heard::Response { stag: 2, .. })));
        let offsets: Vec<u64> = other.placed.iter().map(|it| it.offset).collect();
        assert_eq!(offsets, [NEAR, CUT as u64 - 11]);
    }
}
