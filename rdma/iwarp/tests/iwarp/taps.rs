//! Tests of the tap: the bytes of a stream that it is shown.

use std::sync::{Arc, Mutex};

use iwarp::{Options, mpa};
use rdma::{Carrier, Device, Frame, QpId, Region, SendWr, Success, Tap, Time};
use smallvec::SmallVec;

use crate::node::{Node, Pair, accept_options, connect_options, success};

#[derive(Debug, Default)]
struct Shown {
    sent: Vec<u8>,
    received: Vec<u8>,
    carrier: Option<Carrier>,
    qp: Option<QpId>,
}

struct Recorder(Arc<Mutex<Shown>>);

impl Recorder {
    fn show(&self, qp: QpId, frame: Frame<'_>, received: bool) {
        let Frame::Stream { carrier, pieces } = frame else {
            panic!("{frame:?}");
        };
        let mut shown = self.0.lock().unwrap();
        assert_eq!(*shown.carrier.get_or_insert(carrier), carrier);
        assert_eq!(*shown.qp.get_or_insert(qp), qp);
        let bytes = match received {
            true => &mut shown.received,
            false => &mut shown.sent,
        };
        pieces
            .iter()
            .for_each(|piece| bytes.extend_from_slice(piece));
    }
}

impl Tap for Recorder {
    fn sent(&mut self, _: Time, qp: QpId, frame: Frame<'_>) {
        self.show(qp, frame, false);
    }

    fn received(&mut self, _: Time, qp: QpId, frame: Frame<'_>) {
        self.show(qp, frame, true);
    }
}

fn tapped() -> (Node, Arc<Mutex<Shown>>) {
    let mut node = Node::new(Options::default());
    let shown = Arc::new(Mutex::new(Shown::default()));
    node.device.set_tap(Box::new(Recorder(Arc::clone(&shown))));
    (node, shown)
}

/// Returns the lengths of the ULPDUs that follow a set-up frame with private data of this length.
fn ulpdus(stream: &[u8], private_data: usize) -> Vec<usize> {
    let mut rest = &stream[mpa::FRAME_HEADER + private_data..];
    let mut found = Vec::new();
    while let Some((length, _)) = rest.split_first_chunk() {
        let ulpdu = usize::from(u16::from_be_bytes(*length));
        found.push(ulpdu);
        rest = &rest[mpa::LENGTH_FIELD + ulpdu + mpa::padding(ulpdu) + mpa::CRC_FIELD..];
    }
    found
}

/// Short and long messages and RDMA operations take different paths through the device; a tap sees
/// all of them.
#[test]
fn a_tap_sees_every_byte_of_both_directions() {
    let ((client, near), (server, far)) = (tapped(), tapped());
    let (connect, accept) = (connect_options(), accept_options());
    let mut pair = Pair::connect(client, server, &connect, &accept);
    let Pair {
        client,
        server,
        c,
        s,
    } = &mut pair;
    for len in [0, 5, 500, 4000, 150_000] {
        server.receive(*s, 1, len);
        client.send(*c, 2, &vec![0x5a; len]);
        success(client, server, 2);
        success(server, client, 1);
    }
    let region = Region::RemoteRead(client.bytes(&vec![0xa5; 100_000]));
    let segment = client.device.register(*c, region).unwrap();
    let sink = server.pool.alloc(100_000).unwrap();
    let (stag, offset) = (segment.stag, segment.offset);
    server.post(*s, 3, SendWr::Read { sink, stag, offset });
    assert!(matches!(success(server, client, 3), Success::Read { .. }));
    let region = Region::RemoteWrite(server.buf(&[0; 3000]));
    let segment = server.device.register(*s, region).unwrap();
    let write = SendWr::Write {
        gather: SmallVec::from_iter([client.bytes(&[7; 3000])]),
        stag: segment.stag,
        offset: segment.offset,
    };
    client.post(*c, 4, write);
    success(client, server, 4);
    server.receive(*s, 5, 16);
    client.send(*c, 6, b"last");
    success(client, server, 6);
    success(server, client, 5);
    let counters = [&*client, &*server].map(|node| node.device.counters());
    let (near, far) = (near.lock().unwrap(), far.lock().unwrap());
    assert_eq!((near.qp, far.qp), (Some(*c), Some(*s)));
    assert_eq!(near.carrier, Some(client.device.carrier(*c)));
    assert!(
        near.sent == far.received,
        "the two ends saw different bytes"
    );
    assert!(
        far.sent == near.received,
        "the two ends saw different bytes"
    );
    assert_eq!(near.sent.len() as u64, counters[0].wire_bytes_sent);
    assert_eq!(near.received.len() as u64, counters[0].wire_bytes_received);
    assert_eq!(far.sent.len() as u64, counters[1].wire_bytes_sent);
    // Complete FPDUs follow the set-up frames.
    assert!(near.sent.starts_with(b"MPA ID Req Frame"));
    assert!(far.sent.starts_with(b"MPA ID Rep Frame"));
    let enhanced = mpa::ENHANCED;
    let lengths = ulpdus(&near.sent, enhanced + connect.private_data.len());
    assert_eq!(lengths.last(), Some(&(18 + b"last".len())));
    let lengths = ulpdus(&far.sent, enhanced + accept.private_data.len());
    // Only the Read Request.
    assert_eq!(lengths, [18 + 28]);
}
