//! Peers that violate the protocol. Each gets the Terminate that the RFCs specify, and only its own
//! connection ends.

use std::time::Instant;

use iwarp::Options;
use rdma::{
    Carrier, Device, Disconnect, Ending, Event, Region, RemoteSegment, Scatter, Success, WorkError,
    WrId,
};

use crate::node::{Node, PATIENCE, Pair, next_completion};
use crate::raw::{
    Got, READ_REQUEST, READ_RESPONSE, Raw, SEND, SEND_INVALIDATE, TERMINATE, WRITE, idle, parts,
    read_request, send, tagged, untagged,
};

const LENGTH_AND_DDP: u16 = 0xc000;
const ALL_HEADERS: u16 = 0xe000;

/// A device with memory offered to the peer before that misbehaves.
struct Victim {
    node: Node,
    raw: Raw,
    qp: rdma::QpId,
    /// 100 bytes for RDMA Writes.
    sink: RemoteSegment,
    /// 100 bytes for RDMA Reads.
    source: RemoteSegment,
}

impl Victim {
    fn new(crc: bool) -> Self {
        let mut node = Node::new(Options::default());
        let (raw, qp) = Raw::set_up(&mut node, crc);
        let region = Region::RemoteWrite(node.buf(&[0xaa; 100]));
        let sink = node.device.register(qp, region).unwrap();
        let region = Region::RemoteRead(node.bytes(&[0xbb; 100]));
        let source = node.device.register(qp, region).unwrap();
        node.receive(qp, 1, 64);
        node.receive(qp, 2, 64);
        Self {
            node,
            raw,
            qp,
            sink,
            source,
        }
    }

    /// Sends `ulpdu` as the peer and checks that the device answers with this Terminate.
    fn expect(mut self, ulpdu: &[u8], layer_type: u8, code: u8, text: &str) {
        self.raw.send_ulpdu(ulpdu);
        self.terminated(ulpdu, layer_type, code, text);
    }

    fn terminated(mut self, ulpdu: &[u8], layer_type: u8, code: u8, text: &str) {
        let heard = self.raw.expect_terminate(&mut self.node);
        assert_eq!((heard.0, heard.1), (layer_type, code), "{text}");
        // RFC 5040, figure 10: the headers that the Terminate carries.
        let header = if ulpdu[0] & 0x80 == 0 { 18 } else { 14 };
        let mut copied = u16::try_from(ulpdu.len()).unwrap().to_be_bytes().to_vec();
        copied.extend(&ulpdu[..header.min(ulpdu.len())]);
        match layer_type >> 4 {
            0 if layer_type == 0x01 && ulpdu[1] == 0x40 | READ_REQUEST => {
                copied.extend(&ulpdu[header..]);
                assert_eq!((heard.2, heard.3), (ALL_HEADERS, copied), "{text}");
            }
            0 | 1 if code != 0x07 || layer_type != 0x02 => {
                assert_eq!((heard.2, heard.3), (LENGTH_AND_DDP, copied), "{text}");
            }
            // Errors of MPA carry no headers, nor does an FPDU that could not be parsed.
            _ => {}
        }
        for id in 1..=2 {
            let completion = self.node.next_completion();
            let failed = completion.result.unwrap_err();
            let blamed = id == 1 && (layer_type, code) == (0x12, 0x05);
            let error = if blamed {
                WorkError::LocalLength
            } else {
                WorkError::Flushed
            };
            assert_eq!((completion.id, failed.error), (WrId(id), error), "{text}");
        }
        match self.node.next() {
            Event::Disconnected { qp, reason } => {
                assert_eq!((qp, reason), (self.qp, Disconnect::PeerError(text.into())));
            }
            event => panic!("{event:?}"),
        }
        self.intact();
    }

    /// Checks that nothing was written and the memory can be reclaimed.
    fn intact(mut self) {
        match self.node.device.reclaim(self.qp, self.sink.stag).unwrap() {
            Region::RemoteWrite(buf) => assert_eq!(buf[..], [0xaa; 100]),
            other => panic!("{other:?}"),
        }
        self.node.device.destroy(self.qp);
        assert_eq!(self.node.pool.in_use(), 0);
    }
}

#[test]
fn write_to_an_unknown_handle() {
    let victim = Victim::new(false);
    let (stag, offset) = parts(&victim.sink);
    let ulpdu = tagged(WRITE, true, stag ^ 1, offset, b"x");
    victim.expect(&ulpdu, 0x11, 0x00, "DDP: invalid STag");
}

#[test]
fn write_out_of_bounds() {
    for (shift, len) in [
        (0_i64, 101_usize),
        (100, 1),
        (1, 100),
        (-1, 1),
        (-1, 102),
        (1 << 40, 1),
    ] {
        let victim = Victim::new(false);
        let (stag, offset) = parts(&victim.sink);
        let ulpdu = tagged(
            WRITE,
            true,
            stag,
            offset.wrapping_add_signed(shift),
            &vec![1; len],
        );
        victim.expect(&ulpdu, 0x11, 0x01, "DDP: base or bounds violation");
    }
}

#[test]
fn write_that_wraps() {
    let victim = Victim::new(false);
    let ulpdu = tagged(WRITE, true, victim.sink.stag.0, u64::MAX - 3, &[1; 5]);
    victim.expect(&ulpdu, 0x11, 0x03, "DDP: tagged offset wraps");
}

#[test]
fn write_to_memory_that_may_only_be_read() {
    let victim = Victim::new(false);
    let (stag, offset) = parts(&victim.source);
    let ulpdu = tagged(WRITE, true, stag, offset, b"x");
    victim.expect(&ulpdu, 0x11, 0x00, "DDP: invalid STag");
}

#[test]
fn write_to_an_invalidated_handle() {
    let mut victim = Victim::new(false);
    let (stag, offset) = parts(&victim.sink);
    let wr = rdma::SendWr::Invalidate {
        stag: victim.sink.stag,
    };
    victim.node.post(victim.qp, 9, wr);
    assert!(victim.node.next_completion().result.is_ok());
    let ulpdu = tagged(WRITE, true, stag, offset, b"x");
    victim.expect(&ulpdu, 0x11, 0x00, "DDP: invalid STag");
}

#[test]
fn a_write_without_payload_is_not_checked() {
    // RFC 5041, section 5.2.
    let mut victim = Victim::new(false);
    victim
        .raw
        .send_ulpdu(&tagged(WRITE, true, 0xdead, 0xbeef, b""));
    let ulpdu = tagged(WRITE, true, victim.sink.stag.0, u64::MAX, b"x");
    victim.expect(&ulpdu, 0x11, 0x03, "DDP: tagged offset wraps");
}

#[test]
fn handle_of_another_connection() {
    let mut victim = Victim::new(false);
    let (other, other_qp) = Raw::set_up(&mut victim.node, false);
    let region = Region::RemoteWrite(victim.node.buf(&[0xcc; 100]));
    let segment = victim.node.device.register(other_qp, region).unwrap();
    let ulpdu = tagged(WRITE, true, segment.stag.0, segment.offset, b"x");
    // The other connection is not affected.
    victim.raw.send_ulpdu(&ulpdu);
    let heard = victim.raw.expect_terminate(&mut victim.node);
    assert_eq!((heard.0, heard.1), (0x11, 0x00));
    let mut other = other;
    victim.node.receive(other_qp, 7, 64);
    other.send_ulpdu(&tagged(WRITE, true, segment.stag.0, segment.offset, b"x"));
    other.send_ulpdu(&send(1, b"still here"));
    let mut completions = 0;
    loop {
        match victim.node.next() {
            Event::Completion(completion) if completion.id == WrId(7) => {
                assert!(matches!(completion.result, Ok(Success::Receive { .. })));
                break;
            }
            Event::Completion(_) => completions += 1,
            Event::Disconnected { qp, .. } => assert_eq!(qp, victim.qp),
            event => panic!("{event:?}"),
        }
    }
    assert_eq!(completions, 2);
    victim.node.events.clear();
    victim.node.device.destroy(other_qp);
    victim.intact();
}

#[test]
fn read_with_bad_source() {
    let cases: [(u32, i64, u32, u8, &str); 5] = [
        (1, 0, 1, 0x00, "RDMAP: invalid STag"),
        (0, 0, 101, 0x01, "RDMAP: base or bounds violation"),
        (0, 100, 1, 0x01, "RDMAP: base or bounds violation"),
        (0, -1, 2, 0x01, "RDMAP: base or bounds violation"),
        (0, 0, u32::MAX, 0x01, "RDMAP: base or bounds violation"),
    ];
    for (flip, shift, length, code, text) in cases {
        let victim = Victim::new(false);
        let (stag, offset) = parts(&victim.source);
        let offset = offset.wrapping_add_signed(shift);
        let ulpdu = read_request(1, 5, length, stag ^ flip, offset);
        victim.expect(&ulpdu, 0x01, code, text);
    }
}

#[test]
fn read_that_wraps_and_read_of_write_only_memory() {
    let victim = Victim::new(false);
    let ulpdu = read_request(1, 5, 9, victim.source.stag.0, u64::MAX - 7);
    victim.expect(&ulpdu, 0x01, 0x04, "RDMAP: tagged offset wraps");
    let victim = Victim::new(false);
    let (stag, offset) = parts(&victim.sink);
    let ulpdu = read_request(1, 5, 9, stag, offset);
    victim.expect(&ulpdu, 0x01, 0x02, "RDMAP: access rights violation");
}

#[test]
fn a_read_without_payload_is_not_checked() {
    // RFC 5040, section 5.2.1.
    let mut victim = Victim::new(false);
    victim
        .raw
        .send_ulpdu(&read_request(1, 0x77, 0, 0xdead, 0xbeef));
    let response = tagged(READ_RESPONSE, true, 0x77, 0x1000, b"");
    assert_eq!(victim.raw.read_fpdu(&mut victim.node), Got::Ulpdu(response));
    let ulpdu = read_request(1, 5, 0, 0, 0);
    victim.expect(&ulpdu, 0x12, 0x03, "DDP: invalid MSN, out of range");
}

#[test]
fn more_reads_than_agreed() {
    // The peer's ORD, and so this side's IRD, is 4. The responses cannot be sent, because the peer
    // does not read.
    let mut victim = Victim::new(false);
    let big = vec![0xcc; 64 << 20];
    let region = Region::RemoteRead(victim.node.bytes(&big));
    let segment = victim.node.device.register(victim.qp, region).unwrap();
    let request = |msn| read_request(msn, 5, 64 << 20, segment.stag.0, segment.offset);
    for msn in 1..=4 {
        victim.raw.send_ulpdu(&request(msn));
    }
    for _ in 0..20 {
        idle(&mut victim.node);
    }
    assert!(victim.node.events.is_empty(), "four are within the limit");
    let ulpdu = request(5);
    victim.raw.send_ulpdu(&ulpdu);
    for _ in 1..=2 {
        assert!(victim.node.next_completion().result.is_err());
    }
    match victim.node.next() {
        Event::Disconnected { reason, .. } => {
            let text = "DDP: invalid MSN, no buffer available";
            assert_eq!(reason, Disconnect::PeerError(text.into()));
        }
        event => panic!("{event:?}"),
    }
    // The Terminate follows the FPDU that was being sent.
    loop {
        match victim.raw.read_fpdu(&mut victim.node) {
            Got::Ulpdu(ulpdu) if ulpdu[1] == 0x40 | READ_RESPONSE => {}
            Got::Ulpdu(ulpdu) => {
                assert_eq!(ulpdu[1], 0x40 | TERMINATE);
                assert_eq!(ulpdu[18..20], [0x12, 0x02]);
                break;
            }
            other => panic!("{other:?}"),
        }
    }
    victim.intact();
}

#[test]
fn a_region_that_is_invalidated_while_it_is_read() {
    let mut victim = Victim::new(false);
    let big = vec![0xcc; 64 << 20];
    let region = Region::RemoteRead(victim.node.bytes(&big));
    let segment = victim.node.device.register(victim.qp, region).unwrap();
    let ulpdu = read_request(1, 5, 64 << 20, segment.stag.0, segment.offset);
    victim.raw.send_ulpdu(&ulpdu);
    for _ in 0..20 {
        idle(&mut victim.node);
    }
    let wr = rdma::SendWr::Invalidate { stag: segment.stag };
    victim.node.post(victim.qp, 9, wr);
    let mut done = 0_u64;
    let terminate = loop {
        match victim.raw.read_fpdu(&mut victim.node) {
            Got::Ulpdu(ulpdu) if ulpdu[1] == 0x40 | READ_RESPONSE => {
                assert_eq!(ulpdu[6..14], (0x1000 + done).to_be_bytes());
                done += ulpdu.len() as u64 - 14;
            }
            Got::Ulpdu(ulpdu) => break ulpdu,
            other => panic!("{other:?}"),
        }
    };
    // The copied header shows how far the Read got (RFC 5040, section 4.8).
    assert!(done < 64 << 20);
    assert_eq!(terminate[18..20], [0x01, 0x00]);
    let read = &terminate[terminate.len() - 28..];
    assert_eq!(read[4..12], (0x1000 + done).to_be_bytes());
    assert_eq!(read[12..16], ((64 << 20) - done as u32).to_be_bytes());
    assert_eq!(read[20..28], (segment.offset + done).to_be_bytes());
    victim.node.events.clear();
    victim.intact();
}

#[test]
fn sends_out_of_order() {
    let text = "DDP: invalid MSN, out of range";
    for msn in [0, 2, u32::MAX] {
        Victim::new(false).expect(&send(msn, b"x"), 0x12, 0x03, text);
    }
    for offset in [1, 64, u32::MAX] {
        let ulpdu = untagged(SEND, true, 0, (0, 1, offset), b"x");
        Victim::new(false).expect(&ulpdu, 0x12, 0x04, "DDP: invalid MO");
    }
    // A gap within a message.
    let mut victim = Victim::new(false);
    victim
        .raw
        .send_ulpdu(&untagged(SEND, false, 0, (0, 1, 0), b"1234"));
    let ulpdu = untagged(SEND, true, 0, (0, 1, 5), b"x");
    victim.expect(&ulpdu, 0x12, 0x04, "DDP: invalid MO");
}

#[test]
fn sends_that_do_not_fit() {
    let text = "DDP: message too long for the buffer";
    Victim::new(false).expect(&send(1, &[0; 65]), 0x12, 0x05, text);
    let mut victim = Victim::new(false);
    victim
        .raw
        .send_ulpdu(&untagged(SEND, false, 0, (0, 1, 0), &[0; 64]));
    victim.expect(&untagged(SEND, true, 0, (0, 1, 64), b"x"), 0x12, 0x05, text);
}

/// Returns a node whose receives have buffers of these lengths, with its peer.
fn scattered(pieces: &[usize], crc: bool) -> (Node, Raw, rdma::QpId) {
    let mut node = Node::new(Options::default());
    let (raw, qp) = Raw::set_up(&mut node, crc);
    for id in 1..=2 {
        let mut bufs: Vec<_> = pieces
            .iter()
            .map(|&len| node.buf(&vec![0xee; len]))
            .collect();
        let first = bufs.remove(0);
        let receive = Scatter::new(first, bufs);
        node.device.post_receive(qp, WrId(id), receive).unwrap();
    }
    (node, raw, qp)
}

fn received(node: &mut Node, id: u64) -> Scatter {
    let completion = node.next_completion();
    assert_eq!(completion.id, WrId(id));
    match completion.result.unwrap() {
        Success::Receive { buf, .. } => buf,
        other => panic!("{other:?}"),
    }
}

/// RFC 5041, section 5.3: payload is placed by MO, whatever the boundaries of segments and of the
/// receive's buffers.
#[test]
fn segments_that_end_a_byte_before_at_and_behind_a_piece() {
    let pieces = [64, 5000, 4096];
    let all: usize = pieces.iter().sum();
    let message: Vec<u8> = (0..all).map(|n| (n * 7 % 251) as u8).collect();
    for crc in [false, true] {
        for cut in [1, 63, 64, 65, 2500, 5063, 5064, 5065, all - 1, all] {
            let (mut node, mut raw, qp) = scattered(&pieces, crc);
            let mut at = 0;
            while at < all {
                let end = all.min(at + cut.max(40));
                let offset = at as u32;
                let part = &message[at..end];
                raw.send_ulpdu(&untagged(SEND, end == all, 0, (0, 1, offset), part));
                at = end;
            }
            let whole = received(&mut node, 1);
            assert_eq!(whole.to_vec(), message, "in segments of {cut}");
            let lengths: Vec<_> = whole.pieces().map(|piece| piece.len()).collect();
            assert_eq!(lengths, pieces);
            // The next message starts in the next receive, and ends in its first buffer.
            raw.send_ulpdu(&send(2, b"next"));
            let next = received(&mut node, 2);
            let lengths: Vec<_> = next.pieces().map(|piece| piece.len()).collect();
            assert_eq!((next.to_vec(), lengths), (b"next".to_vec(), vec![4, 0, 0]));
            drop((whole, next));
            node.device.destroy(qp);
            assert_eq!(node.pool.in_use(), 0);
        }
    }
}

#[test]
fn a_message_one_byte_longer_than_the_receive_is_refused() {
    let pieces = [64, 5000, 4096];
    let all: usize = pieces.iter().sum();
    for first in [1, 64, 5064, all] {
        let (mut node, mut raw, qp) = scattered(&pieces, false);
        let (part, offset) = (vec![1; first], first as u32);
        raw.send_ulpdu(&untagged(SEND, false, 0, (0, 1, 0), &part));
        let rest = vec![2; all - first + 1];
        raw.send_ulpdu(&untagged(SEND, true, 0, (0, 1, offset), &rest));
        let heard = raw.expect_terminate(&mut node);
        assert_eq!((heard.0, heard.1), (0x12, 0x05), "{first} and the rest");
        for (id, error) in [(1, WorkError::LocalLength), (2, WorkError::Flushed)] {
            let completion = node.next_completion();
            let failed = completion.result.unwrap_err();
            assert_eq!((completion.id, failed.error), (WrId(id), error));
            let buf = failed.buf.unwrap();
            assert_eq!((buf.count(), buf.len()), (3, all), "all pieces, whole");
        }
        node.device.destroy(qp);
    }
}

#[test]
fn sends_without_a_receive() {
    let mut victim = Victim::new(false);
    victim.raw.send_ulpdu(&send(1, b"one"));
    victim.raw.send_ulpdu(&send(2, b"two"));
    let ulpdu = send(3, b"three");
    victim.raw.send_ulpdu(&ulpdu);
    let heard = victim.raw.expect_terminate(&mut victim.node);
    assert_eq!((heard.0, heard.1, heard.2), (0x12, 0x02, LENGTH_AND_DDP));
    for (id, text) in [(1, &b"one"[..]), (2, b"two")] {
        let completion = victim.node.next_completion();
        assert_eq!(completion.id, WrId(id));
        match completion.result.unwrap() {
            Success::Receive { buf, .. } => assert_eq!(buf.to_vec(), *text),
            other => panic!("{other:?}"),
        }
    }
    assert!(matches!(victim.node.next(), Event::Disconnected { .. }));
    victim.intact();
}

#[test]
fn wrong_queues_opcodes_and_versions() {
    let opcode = "RDMAP: unexpected opcode";
    let cases: [(Vec<u8>, u8, u8, &str); 9] = [
        (
            untagged(SEND, true, 0, (3, 1, 0), b""),
            0x12,
            0x01,
            "DDP: invalid queue number",
        ),
        (untagged(SEND, true, 0, (1, 1, 0), b""), 0x02, 0x06, opcode),
        (
            untagged(READ_REQUEST, true, 0, (0, 1, 0), &[0; 28]),
            0x02,
            0x06,
            opcode,
        ),
        (untagged(WRITE, true, 0, (0, 1, 0), b""), 0x02, 0x06, opcode),
        (untagged(9, true, 0, (0, 1, 0), b""), 0x02, 0x06, opcode),
        (tagged(SEND, true, 0, 0, b""), 0x02, 0x06, opcode),
        // A response without a request.
        (tagged(READ_RESPONSE, true, 0, 0, b""), 0x02, 0x06, opcode),
        {
            let mut ulpdu = send(1, b"x");
            ulpdu[0] = ulpdu[0] & !3 | 2;
            (ulpdu, 0x12, 0x06, "DDP: invalid version (untagged)")
        },
        {
            let mut ulpdu = send(1, b"x");
            ulpdu[1] = 0x80 | SEND;
            (ulpdu, 0x02, 0x05, "RDMAP: invalid version")
        },
    ];
    for (ulpdu, layer_type, code, text) in cases {
        Victim::new(false).expect(&ulpdu, layer_type, code, text);
    }
    let mut ulpdu = tagged(WRITE, true, 0, 0, b"");
    ulpdu[0] &= !3;
    let text = "DDP: invalid version (tagged)";
    Victim::new(false).expect(&ulpdu, 0x11, 0x04, text);
}

#[test]
fn lengths_that_no_header_fits() {
    let text = "RDMAP: catastrophic error, localized to the stream";
    let whole = send(1, b"");
    for len in [1, 2, 13, 17] {
        Victim::new(false).expect(&whole[..len], 0x02, 0x07, text);
    }
    // An FPDU without a ULPDU, although that was not agreed on.
    Victim::new(false).expect_empty(text);
    // Read Requests shorter and longer than their header.
    let whole = read_request(1, 5, 1, 0, 0);
    Victim::new(false).expect(&whole[..whole.len() - 1], 0x02, 0x07, text);
    let long = [&whole[..], &[0]].concat();
    let text = "DDP: message too long for the buffer";
    let mut victim = Victim::new(false);
    victim.raw.send_ulpdu(&long);
    let heard = victim.raw.expect_terminate(&mut victim.node);
    assert_eq!((heard.0, heard.1), (0x12, 0x05), "{text}");
    // The message was too long for its queue, not for the receive that waits for a Send.
    for _ in 1..=2 {
        let failed = victim.node.next_completion().result.unwrap_err();
        assert_eq!(failed.error, WorkError::Flushed);
    }
}

impl Victim {
    fn expect_empty(mut self, text: &str) {
        self.raw.send_ulpdu(&[]);
        let heard = self.raw.expect_terminate(&mut self.node);
        assert_eq!((heard.0, heard.1, heard.2), (0x02, 0x07, 0), "{text}");
        self.node.events.clear();
        self.intact();
    }
}

#[test]
fn invalidation_of_an_unknown_handle() {
    let victim = Victim::new(false);
    let stag = victim.sink.stag.0 ^ 1;
    let ulpdu = untagged(SEND_INVALIDATE, true, stag, (0, 1, 0), b"x");
    victim.expect(&ulpdu, 0x01, 0x09, "RDMAP: STag cannot be invalidated");
}

#[test]
fn a_wrong_crc_is_found_before_anything_else() {
    // In the payload; in the header, which alone would be another error; in the CRC.
    for at in [25, 12, 43] {
        let mut victim = Victim::new(true);
        let mut bytes = crate::raw::fpdu(&send(1, &[7; 20]), true);
        bytes[at] ^= 0x10;
        victim.raw.write(&bytes);
        let heard = victim.raw.expect_terminate(&mut victim.node);
        assert_eq!((heard.0, heard.1, heard.2), (0x20, 0x02, 0), "byte {at}");
        for _ in 1..=2 {
            assert!(victim.node.next_completion().result.is_err());
        }
        match victim.node.next() {
            Event::Disconnected { reason, .. } => {
                assert_eq!(reason, Disconnect::PeerError("MPA: CRC error".into()));
            }
            event => panic!("{event:?}"),
        }
        victim.intact();
    }
    // With the right CRC, the other error is reported.
    Victim::new(true).expect(&send(7, b"x"), 0x12, 0x03, "DDP: invalid MSN, out of range");
}

#[test]
fn the_crc_field_is_ignored_without_crcs() {
    let mut victim = Victim::new(false);
    let mut bytes = crate::raw::fpdu(&send(1, b"fine"), false);
    let len = bytes.len();
    bytes[len - 4..].fill(0x5a);
    victim.raw.write(&bytes);
    assert!(victim.node.next_completion().result.is_ok());
}

#[test]
fn a_stream_that_ends_within_an_fpdu() {
    let mut victim = Victim::new(false);
    let bytes = crate::raw::fpdu(&send(1, &[1; 40]), false);
    victim.raw.write(&bytes[..30]);
    victim
        .raw
        .socket
        .shutdown(std::net::Shutdown::Write)
        .unwrap();
    for _ in 1..=2 {
        assert!(victim.node.next_completion().result.is_err());
    }
    match victim.node.next() {
        Event::Disconnected { reason, .. } => assert_eq!(
            reason,
            Disconnect::Lost("the peer closed it in the middle of an FPDU".into())
        ),
        event => panic!("{event:?}"),
    }
    victim.intact();
}

#[test]
fn a_terminate_of_the_peer() {
    for (control, text) in [
        ([0x11, 0x01, 0, 0], "DDP: base or bounds violation"),
        ([0x20, 0x02, 0, 0], "MPA: CRC error"),
        ([0x35, 0x77, 0, 0], "layer 3, error type 5, error code 0x77"),
        // Flags that announce headers which are missing.
        ([0x01, 0x00, 0xe0, 0], "RDMAP: invalid STag"),
    ] {
        let mut victim = Victim::new(false);
        victim
            .raw
            .send_ulpdu(&untagged(TERMINATE, true, 0, (2, 1, 0), &control));
        for _ in 1..=2 {
            assert!(victim.node.next_completion().result.is_err());
        }
        match victim.node.next() {
            Event::Disconnected { reason, .. } => {
                assert_eq!(reason, Disconnect::Terminated(text.into()));
            }
            event => panic!("{event:?}"),
        }
        assert_eq!(victim.raw.read_fpdu(&mut victim.node), Got::End);
        victim.intact();
    }
}

#[test]
fn responses_that_do_not_match_the_read_request() {
    type Answer = fn(u32) -> Vec<u8>;
    let cases: [(Answer, u8); 5] = [
        (
            |stag| tagged(READ_RESPONSE, true, stag + 1, 0, &[1; 10]),
            0x00,
        ),
        (|stag| tagged(READ_RESPONSE, true, stag, 1, &[1; 10]), 0x01),
        (|stag| tagged(READ_RESPONSE, true, stag, 0, &[1; 9]), 0x01),
        (|stag| tagged(READ_RESPONSE, true, stag, 0, &[1; 11]), 0x01),
        (|stag| tagged(READ_RESPONSE, false, stag, 0, &[1; 10]), 0x01),
    ];
    for (answer, code) in cases {
        let mut victim = Victim::new(false);
        victim.raw.send_ulpdu(&tagged(WRITE, true, 0, 0, b""));
        let sink = victim.node.pool.alloc(10).unwrap();
        let read = rdma::SendWr::Read {
            sink,
            stag: rdma::Stag(1),
            offset: 2,
        };
        victim.node.post(victim.qp, 9, read);
        let Got::Ulpdu(request) = victim.raw.read_fpdu(&mut victim.node) else {
            panic!("no request")
        };
        assert_eq!(request[1], 0x40 | READ_REQUEST);
        let stag = u32::from_be_bytes(request[18..22].try_into().unwrap());
        victim.raw.send_ulpdu(&answer(stag));
        let heard = victim.raw.expect_terminate(&mut victim.node);
        assert_eq!((heard.0, heard.1), (0x11, code));
        let failed = victim.node.next_completion();
        assert_eq!(failed.id, WrId(9));
        assert!(
            failed.result.unwrap_err().buf.is_some(),
            "the sink comes back"
        );
        victim.node.events.clear();
        victim.intact();
    }
}

#[test]
fn a_refused_read_fails_at_both_ends() {
    // Two devices: a refused RDMA Read fails with the reason, and everything else is flushed.
    let mut pair = Pair::default();
    let Pair {
        client, server, c, ..
    } = &mut pair;
    client.receive(*c, 1, 64);
    let sink = client.pool.alloc(10).unwrap();
    let read = rdma::SendWr::Read {
        sink,
        stag: rdma::Stag(1),
        offset: 2,
    };
    client.post(*c, 2, read);
    let failed = next_completion(client, server);
    assert_eq!(failed.id, WrId(2));
    assert_eq!(failed.result.unwrap_err().error, WorkError::RemoteAccess);
    assert_eq!(next_completion(client, server).id, WrId(1));
    match crate::node::disconnected(client, server) {
        Disconnect::Terminated(text) => assert_eq!(text, "RDMAP: invalid STag"),
        other => panic!("{other:?}"),
    }
    match crate::node::disconnected(server, client) {
        Disconnect::PeerError(text) => assert_eq!(text, "RDMAP: invalid STag"),
        other => panic!("{other:?}"),
    }
    pair.finish();
}

/// A peer that does not close its side after a Terminate leaves a connection that drains. Of too many,
/// the newest keeps its time, so that its Terminate arrives.
#[test]
fn of_too_many_connections_that_drain_the_oldest_is_closed() {
    const MOST: usize = 64;
    let mut node = Node::new(Options::default());
    let mut victims: Vec<_> = (0..=MOST).map(|_| Raw::set_up(&mut node, false)).collect();
    for (raw, _) in &mut victims {
        raw.send_ulpdu(&send(1, b"no receive"));
    }
    let start = Instant::now();
    while node.events.len() <= MOST {
        assert!(start.elapsed() < PATIENCE, "not all have ended");
        idle(&mut node);
    }
    let drains = |node: &Node, qp| matches!(node.device.carrier(qp), Carrier::Tcp { .. });
    let (oldest, newest) = (victims[0].1, victims[MOST].1);
    assert!(!drains(&node, oldest) && drains(&node, newest));
    for (raw, _) in &mut victims {
        let heard = raw.expect_terminate(&mut node);
        assert_eq!((heard.0, heard.1), (0x12, 0x02));
    }
}

/// Regression test: a program that disconnected many connections at once lost the last messages on some, because
/// the oldest were closed although bytes of their peers had not been read. A program that ends had no means to
/// wait for them.
#[test]
fn connections_that_the_program_has_disconnected_have_their_time() {
    const MOST: usize = 64;
    let mut node = Node::new(Options::default());
    let mut peers: Vec<_> = (0..=MOST).map(|_| Raw::set_up(&mut node, false)).collect();
    for (_, qp) in &peers {
        node.device.disconnect(*qp);
    }
    let ended = |node: &Node| {
        let events = node.events.iter();
        let ended = |event: &&Event| matches!(event, Event::Disconnected { .. });
        events.filter(ended).count()
    };
    let start = Instant::now();
    while ended(&node) <= MOST {
        assert!(start.elapsed() < PATIENCE, "not all have ended");
        idle(&mut node);
    }
    for (raw, qp) in &mut peers {
        node.device.destroy(*qp);
        raw.send_ulpdu(&send(1, b"late"));
    }
    assert_eq!(node.device.ending(), Ending::WaitsForPeers);
    for (raw, _) in &mut peers {
        assert_eq!(raw.read_fpdu(&mut node), Got::End);
    }
    drop(peers);
    while node.device.ending() != Ending::Ended {
        assert!(start.elapsed() < PATIENCE, "not all are gone");
        idle(&mut node);
    }
}
