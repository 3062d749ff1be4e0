//! IP packets, and the segments of an iWARP connection with calls of version 1.

use bytes::BytesMut;
use rpcrdma_v1::{Body, Chunks, Header, PrivateData};

/// Returns an IP packet from one of two hosts to the other.
pub(super) fn ip(version: u8, from: usize, protocol: u8, payload: &[u8]) -> Vec<u8> {
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

/// The segments of a connection, as IP packets.
#[derive(Default)]
pub(super) struct Iwarp {
    pub(super) version: u8,
    pub(super) sequence: [u32; 2],
    pub(super) messages: [u32; 2],
    pub(super) packets: Vec<Vec<u8>>,
}

impl Iwarp {
    pub(super) fn segment(&mut self, from: usize, flags: u8, bytes: &[u8]) {
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

    pub(super) fn set_up(&mut self) {
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

    pub(super) fn send(&mut self, from: usize, message: &[u8]) {
        self.messages[from] += 1;
        let mut ulpdu = vec![0x41, 0x43, 0, 0, 0, 0, 0, 0, 0, 0];
        ulpdu.extend_from_slice(&self.messages[from].to_be_bytes());
        ulpdu.extend_from_slice(&[0; 4]);
        ulpdu.extend_from_slice(message);
        self.fpdu(from, &ulpdu);
    }

    pub(super) fn fpdu(&mut self, from: usize, ulpdu: &[u8]) {
        let mut fpdu = (ulpdu.len() as u16).to_be_bytes().to_vec();
        fpdu.extend_from_slice(ulpdu);
        fpdu.resize(fpdu.len().next_multiple_of(4), 0);
        let crc = crc32c::crc32c(&fpdu).to_le_bytes();
        fpdu.extend_from_slice(&crc);
        self.segment(from, 0x18, &fpdu);
    }

    /// A GETATTR with its reply.
    pub(super) fn exchange(&mut self, xid: u32) {
        self.send(0, &call(xid, Chunks::default(), 1));
        self.send(1, &reply(xid));
    }
}

/// Returns a call of a procedure of NFS version 3.
pub(super) fn call(xid: u32, chunks: Chunks, procedure: u32) -> Vec<u8> {
    let body = Body::Msg(chunks);
    let credits = 32;
    let mut message = BytesMut::new();
    Header { xid, credits, body }.encode_into(&mut message);
    for word in [xid, 0, 2, 100_003, 3, procedure, 0, 0, 0, 0, 4, 0xabcd] {
        message.extend_from_slice(&word.to_be_bytes());
    }
    message.to_vec()
}

pub(super) fn reply(xid: u32) -> Vec<u8> {
    let body = Body::Msg(Chunks::default());
    let credits = 32;
    let mut message = BytesMut::new();
    Header { xid, credits, body }.encode_into(&mut message);
    for word in [xid, 1, 0, 0, 0, 0, 0] {
        message.extend_from_slice(&word.to_be_bytes());
    }
    message.to_vec()
}
