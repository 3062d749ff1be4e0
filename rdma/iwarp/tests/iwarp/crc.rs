//! FPDUs with a wrong CRC. Their payload may already be in memory, which nobody reads before a
//! message announces it. Neither they nor anything after them is delivered (RFC 5044, sections 6
//! and 8).

use iwarp::Options;
use rdma::{
    Device, Disconnect, Event, QpId, Region, RemoteSegment, Scatter, SendWr, Success, WorkError,
    WrId,
};

use crate::node::Node;
use crate::raw::{
    Got, READ_REQUEST, READ_RESPONSE, Raw, SEND, SEND_INVALIDATE, TERMINATE, WRITE, fpdu, idle,
    parts, read_request, send, tagged, untagged,
};

const REGION: usize = 8000;

/// A device whose peer uses CRCs, with memory for the peer and three receives.
struct Victim {
    node: Node,
    raw: Raw,
    qp: QpId,
    sink: RemoteSegment,
    receives: u64,
}

/// Returns the FPDU of a ULPDU, with one bit flipped if `at` is given.
fn damaged(ulpdu: &[u8], at: Option<usize>) -> Vec<u8> {
    let mut bytes = fpdu(ulpdu, true);
    if let Some(at) = at {
        bytes[at] ^= 0x04;
    }
    bytes
}

impl Victim {
    fn new() -> Self {
        Self::with_receives(3, &[4000])
    }

    /// Returns a victim with this number of receives, each of buffers of these lengths.
    fn with_receives(receives: u64, lengths: &[usize]) -> Self {
        let mut node = Node::new(Options::default());
        let (raw, qp) = Raw::set_up(&mut node, true);
        let region = Region::RemoteWrite(node.buf(&[0xaa; REGION]));
        let sink = node.device.register(qp, region).unwrap();
        for id in 1..=receives {
            let mut buffers = lengths.iter().map(|&len| node.pool.alloc(len).unwrap());
            let receive = Scatter::new(buffers.next().unwrap(), buffers);
            let posted = node.device.post_receive(qp, WrId(id), receive);
            assert!(posted.is_ok());
        }
        Self {
            node,
            raw,
            qp,
            sink,
            receives,
        }
    }

    /// Checks that the peer gets a CRC error and nothing else, and that all requests and receives
    /// that have not completed, from `first` on, are flushed. Returns the memory that was offered.
    fn ends(mut self, first: u64) -> Vec<u8> {
        let heard = self.raw.expect_terminate(&mut self.node);
        // Layer 2 (LLP), type 0 (MPA), code 2 (CRC); without headers, as they cannot be trusted.
        assert_eq!(heard, (0x20, 0x02, 0, Vec::new()));
        for id in first..=self.receives {
            let completion = self.node.next_completion();
            let failed = completion.result.unwrap_err();
            assert_eq!(
                (completion.id, failed.error),
                (WrId(id), WorkError::Flushed)
            );
        }
        match self.node.next() {
            Event::Disconnected { qp, reason } => {
                let expected = Disconnect::PeerError("MPA: CRC error".into());
                assert_eq!((qp, reason), (self.qp, expected));
            }
            event => panic!("{event:?}"),
        }
        assert_eq!(self.node.device.counters().remote_invalidations, 0);
        let region = self.node.device.reclaim(self.qp, self.sink.stag).unwrap();
        let memory = match region {
            Region::RemoteWrite(buf) => buf.to_vec(),
            other => panic!("{other:?}"),
        };
        self.node.device.destroy(self.qp);
        assert_eq!(self.node.pool.in_use(), 0);
        memory
    }
}

/// A Write and the Send that announces it, in one piece and in two.
#[test]
fn a_write_with_a_wrong_crc_ends_the_connection_before_its_message_is_delivered() {
    const AT: u64 = 100;
    const LEN: usize = 40;
    let head = 2 + 14;
    let whole = head + LEN + 4;
    // In the payload; in the tagged offset, which then names another place in the same region; in
    // the handle; in the padding or the CRC.
    for at in [head, head + LEN - 1, head - 1, 5, whole - 1] {
        for torn in [false, true] {
            let mut victim = Victim::new();
            let (stag, offset) = parts(&victim.sink);
            let ulpdu = tagged(WRITE, true, stag, offset + AT, &[7; LEN]);
            let bytes = [damaged(&ulpdu, Some(at)), fpdu(&send(1, b"done"), true)].concat();
            if torn {
                victim.raw.write(&bytes[..head + 10]);
                for _ in 0..5 {
                    idle(&mut victim.node);
                }
                assert!(victim.node.events.is_empty());
                victim.raw.write(&bytes[head + 10..]);
            } else {
                victim.raw.write(&bytes);
            }
            let memory = victim.ends(1);
            // A wrong offset differs by four. Memory beyond that must not change.
            let touched = AT as usize - 4..AT as usize + LEN + 4;
            let beyond = |at: &usize| !touched.contains(at) && memory[*at] != 0xaa;
            assert_eq!((0..REGION).find(beyond), None);
        }
    }
}

/// Several segments of one message arrive in one read, received in predicted places.
#[test]
fn a_wrong_crc_in_the_middle_of_a_message_that_is_read_ahead() {
    const SEGMENT: usize = 1000;
    for bad in 0..6 {
        let mut victim = Victim::new();
        let (stag, offset) = parts(&victim.sink);
        let mut bytes = Vec::new();
        for segment in 0..6 {
            let last = segment == 5;
            let at = offset + (segment * SEGMENT) as u64;
            let ulpdu = tagged(WRITE, last, stag, at, &[segment as u8; SEGMENT]);
            bytes.extend(damaged(&ulpdu, (segment == bad).then_some(500)));
        }
        bytes.extend(fpdu(&send(1, b"done"), true));
        victim.raw.write(&bytes);
        let memory = victim.ends(1);
        for segment in 0..bad {
            let place = &memory[segment * SEGMENT..][..SEGMENT];
            assert!(place.iter().all(|byte| *byte == segment as u8));
        }
        assert!(memory[6 * SEGMENT..].iter().all(|byte| *byte == 0xaa));
    }
}

#[test]
fn a_send_with_a_wrong_crc_is_not_delivered_whole_or_in_part() {
    // A complete Send.
    let mut victim = Victim::new();
    victim.raw.send_ulpdu(&send(1, b"fine"));
    assert!(victim.node.next_completion().result.is_ok());
    victim.raw.write(&damaged(&send(2, b"damaged"), Some(21)));
    victim.raw.send_ulpdu(&send(3, b"after"));
    victim.ends(2);
    // The second of three segments.
    let mut victim = Victim::new();
    for (part, at) in [(0, None), (1, Some(700)), (2, None)] {
        let ulpdu = untagged(SEND, part == 2, 0, (0, 1, part * 1000), &[part as u8; 1000]);
        victim.raw.write(&damaged(&ulpdu, at));
    }
    victim.ends(1);
    // A Send With Invalidate. `ends` checks that nothing was invalidated.
    let mut victim = Victim::new();
    let stag = victim.sink.stag.0;
    let ulpdu = untagged(SEND_INVALIDATE, true, stag, (0, 1, 0), b"damaged");
    victim.raw.write(&damaged(&ulpdu, Some(25)));
    victim.ends(1);
}

/// Messages of one length, of which the later ones are received in predicted places.
#[test]
fn a_predicted_send_with_a_wrong_crc_is_not_delivered() {
    const FIRST: usize = 100;
    const LEN: usize = 998;
    const HEAD: usize = 2 + 18;
    // In the part that is copied, in the other one, in the padding, and in the CRC.
    for at in [
        HEAD,
        HEAD + FIRST - 1,
        HEAD + FIRST,
        HEAD + LEN - 1,
        HEAD + LEN,
        HEAD + LEN + 2 + 3,
    ] {
        let mut victim = Victim::with_receives(5, &[FIRST, 4000]);
        for msn in 1..=4 {
            let payload = [msn as u8; LEN];
            victim.raw.send_ulpdu(&send(msn, &payload));
            let Ok(Success::Receive { buf, .. }) = victim.node.next_completion().result else {
                panic!("message {msn}");
            };
            assert_eq!(buf.to_vec(), payload);
        }
        victim.raw.write(&damaged(&send(5, &[5; LEN]), Some(at)));
        victim.ends(5);
    }
}

#[test]
fn read_requests_and_terminates_with_a_wrong_crc_are_ignored() {
    // A Read Request is not answered.
    let mut victim = Victim::new();
    let ulpdu = read_request(1, 5, 1, victim.sink.stag.0, victim.sink.offset);
    victim.raw.write(&damaged(&ulpdu, Some(30)));
    victim.ends(1);
    // A Terminate is ignored: with another bit flipped it would report another error.
    let mut victim = Victim::new();
    let ulpdu = untagged(TERMINATE, true, 0, (2, 1, 0), &[0x11, 0x01, 0, 0]);
    victim.raw.write(&damaged(&ulpdu, Some(21)));
    victim.ends(1);
}

#[test]
fn a_response_with_a_wrong_crc_does_not_complete_the_read() {
    let mut victim = Victim::new();
    victim.raw.send_ulpdu(&tagged(WRITE, true, 0, 0, b""));
    let sink = victim.node.pool.alloc(10).unwrap();
    let read = SendWr::Read {
        sink,
        stag: rdma::Stag(1),
        offset: 2,
    };
    victim.node.post(victim.qp, 0, read);
    let Got::Ulpdu(request) = victim.raw.read_fpdu(&mut victim.node) else {
        panic!("no request")
    };
    assert_eq!(request[1], 0x40 | READ_REQUEST);
    let stag = u32::from_be_bytes(request[18..22].try_into().unwrap());
    let ulpdu = tagged(READ_RESPONSE, true, stag, 0, &[1; 10]);
    victim.raw.write(&damaged(&ulpdu, Some(18)));
    victim.raw.send_ulpdu(&send(1, b"after"));
    let memory = victim.ends(0);
    assert!(memory.iter().all(|byte| *byte == 0xaa));
}
