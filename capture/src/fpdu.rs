//! FPDUs for messages of devices that have none: what an iWARP device would send (RFC 5040, 5041
//! and 5044).

use std::collections::VecDeque;

use rdma::{Frame, Stag};

/// Maximum length in bytes of an FPDU: what an Ethernet frame of 9000 bytes carries over IPv6.
const MAX_FPDU: usize = 8940;
/// Length in bytes of the length field and the CRC.
const FRAMING: usize = 6;
/// Lengths in bytes of DDP headers (RFC 5041, section 4).
const TAGGED: usize = 14;
const UNTAGGED: usize = 18;

/// Control bits of DDP: tagged, last, and version 1.
const TAGGED_BIT: u8 = 0x80;
const LAST: u8 = 0x40;
const DDP_VERSION: u8 = 1;

/// RDMAP's version with the opcode (RFC 5040, section 4).
const WRITE: u8 = 0x40;
const READ_REQUEST: u8 = 0x41;
const READ_RESPONSE: u8 = 0x42;
const SEND: u8 = 0x43;
const SEND_INVALIDATE: u8 = 0x44;

/// Queue numbers (RFC 5040, section 5.1).
const SEND_QUEUE: usize = 0;
const READ_QUEUE: usize = 1;

/// Flags of set-up frames: a CRC is used, and markers are not (RFC 5044, section 7.1.1).
const CRC_FLAG: u8 = 0x40;
const REVISION: u8 = 1;

/// The first handle for the sinks of RDMA Reads, which devices do not show.
const FIRST_SINK: u32 = 0x5eed_0001;

/// The state of the messages of a connection. Ends are 0 and 1.
#[derive(Debug)]
pub(crate) struct Messages {
    /// For each end and queue, the number of the next message.
    next: [[u32; 2]; 2],
    /// The handles of the sinks of each end's outstanding RDMA Reads.
    sinks: [VecDeque<u32>; 2],
    next_sink: u32,
}

impl Messages {
    pub(crate) fn new() -> Self {
        Self {
            next: [[1; 2]; 2],
            sinks: Default::default(),
            next_sink: FIRST_SINK,
        }
    }

    /// Passes the FPDUs of `frame`, which end `from` sends, to `each`, in pieces of the stream.
    pub(crate) fn emit(&mut self, from: usize, frame: Frame<'_>, mut each: impl FnMut(&[u8])) {
        match frame {
            // A device that shows its stream needs nothing from here.
            Frame::Stream { pieces, .. } => pieces.iter().for_each(|piece| each(piece)),
            Frame::Send {
                payload,
                invalidate,
            } => {
                let (opcode, word) = match invalidate {
                    Some(Stag(stag)) => (SEND_INVALIDATE, stag),
                    None => (SEND, 0),
                };
                self.untagged(from, (opcode, word), SEND_QUEUE, payload, &mut each);
            }
            Frame::ReadRequest {
                length,
                stag,
                offset,
            } => {
                let sink = self.next_sink;
                self.next_sink = sink.wrapping_add(1);
                self.sinks[from].push_back(sink);
                // RFC 5040, section 4.4. No RDMA Read is longer than a region, nor a region than
                // 32 bits say.
                let mut header = Vec::with_capacity(28);
                header.extend_from_slice(&sink.to_be_bytes());
                header.extend_from_slice(&0u64.to_be_bytes());
                header.extend_from_slice(&(length as u32).to_be_bytes());
                header.extend_from_slice(&stag.0.to_be_bytes());
                header.extend_from_slice(&offset.to_be_bytes());
                self.untagged(from, (READ_REQUEST, 0), READ_QUEUE, &header, &mut each);
            }
            Frame::ReadResponse { payload } => {
                let sink = self.sinks[1 - from].pop_front().unwrap_or(0);
                tagged(READ_RESPONSE, (sink, 0), payload, &mut each);
            }
            Frame::Write {
                payload,
                stag,
                offset,
            } => tagged(WRITE, (stag.0, offset), payload, &mut each),
            // Frames that later versions of the model add.
            _ => {}
        }
    }

    fn untagged(
        &mut self,
        from: usize,
        (opcode, word): (u8, u32),
        queue: usize,
        payload: &[u8],
        each: &mut impl FnMut(&[u8]),
    ) {
        let number = self.next[from][queue];
        self.next[from][queue] = number.wrapping_add(1);
        segments(payload, UNTAGGED, |at, part, last| {
            let mut header = [0; UNTAGGED];
            header[0] = if last { LAST } else { 0 } | DDP_VERSION;
            header[1] = opcode;
            header[2..6].copy_from_slice(&word.to_be_bytes());
            header[6..10].copy_from_slice(&(queue as u32).to_be_bytes());
            header[10..14].copy_from_slice(&number.to_be_bytes());
            header[14..18].copy_from_slice(&(at as u32).to_be_bytes());
            fpdu(&header, part, each);
        });
    }
}

fn tagged(opcode: u8, (stag, offset): (u32, u64), payload: &[u8], each: &mut impl FnMut(&[u8])) {
    segments(payload, TAGGED, |at, part, last| {
        let mut header = [0; TAGGED];
        header[0] = TAGGED_BIT | if last { LAST } else { 0 } | DDP_VERSION;
        header[1] = opcode;
        header[2..6].copy_from_slice(&stag.to_be_bytes());
        header[6..14].copy_from_slice(&offset.wrapping_add(at as u64).to_be_bytes());
        fpdu(&header, part, each);
    });
}

/// Divides a payload into those of segments with a header of this length: at least one.
fn segments(payload: &[u8], header: usize, mut each: impl FnMut(usize, &[u8], bool)) {
    let most = MAX_FPDU - FRAMING - header;
    let mut at = 0;
    loop {
        let end = (at + most).min(payload.len());
        each(at, &payload[at..end], end == payload.len());
        at = end;
        if at == payload.len() {
            return;
        }
    }
}

/// Passes an FPDU with a CRC (RFC 5044, section 4).
fn fpdu(header: &[u8], payload: &[u8], each: &mut impl FnMut(&[u8])) {
    let ulpdu = header.len() + payload.len();
    let mut head = Vec::with_capacity(2 + UNTAGGED);
    // At most MAX_FPDU.
    head.extend_from_slice(&(ulpdu as u16).to_be_bytes());
    head.extend_from_slice(header);
    let padding = &[0; 3][..(2 + ulpdu).next_multiple_of(4) - 2 - ulpdu];
    let crc = crc32c::crc32c_append(crc32c::crc32c(&head), payload);
    let crc = crc32c::crc32c_append(crc, padding);
    each(&head);
    each(payload);
    each(padding);
    each(&crc.to_le_bytes());
}

/// Returns a set-up frame (RFC 5044, section 7.1.1).
pub(crate) fn setup(request: bool, private_data: &[u8]) -> Vec<u8> {
    let key = match request {
        true => b"MPA ID Req Frame",
        false => b"MPA ID Rep Frame",
    };
    let mut frame = key.to_vec();
    // Private data of other devices can be longer than MPA's 512 bytes, but fits 16 bits.
    let len = u16::try_from(private_data.len()).unwrap_or(u16::MAX);
    frame.extend_from_slice(&[CRC_FLAG, REVISION]);
    frame.extend_from_slice(&len.to_be_bytes());
    frame.extend_from_slice(&private_data[..len.into()]);
    frame
}
