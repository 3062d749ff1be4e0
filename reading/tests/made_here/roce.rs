//! Packets of RoCE show the calls in them.

use rpcrdma_reading::{Carrier, Collected, List, OperationKind, Outcome};
use rpcrdma_v1::{Chunks, PrivateData, ReadSegment, Segment};

use crate::iwarp::{call, ip, reply};
use crate::{packets, xids};

/// The queue pairs of client and server.
const QUEUE_PAIRS: [u32; 2] = [0x11, 0x12];

#[derive(Default)]
struct Roce {
    numbers: [u32; 2],
    packets: Vec<Vec<u8>>,
}

impl Roce {
    fn datagram(&mut self, from: usize, opcode: u8, queue_pair: u32, number: u32, rest: &[u8]) {
        let mut udp = vec![0xc0, 0, 0x12, 0xb7, 0, 0, 0, 0];
        // The payload is filled up to whole words.
        let pad = rest.len().next_multiple_of(4) - rest.len();
        udp.extend_from_slice(&[opcode, (pad as u8) << 4, 0xff, 0xff]);
        udp.extend_from_slice(&queue_pair.to_be_bytes());
        udp.extend_from_slice(&number.to_be_bytes());
        udp.extend_from_slice(rest);
        udp.resize(udp.len() + pad + 4, 0);
        let length = udp.len() as u16;
        udp[4..6].copy_from_slice(&length.to_be_bytes());
        self.packets.push(ip(4, from, 17, &udp));
    }

    /// Sends a request with these headers and payload.
    fn request(&mut self, from: usize, opcode: u8, rest: &[u8]) -> u32 {
        let number = self.numbers[from];
        self.numbers[from] += 1;
        self.datagram(from, opcode, QUEUE_PAIRS[1 - from], number, rest);
        number
    }

    fn managed(&mut self, from: usize, attribute: u16, body: &[u8]) {
        let mut rest = vec![0; 8];
        rest.extend_from_slice(&[1, 7, 2, 3]);
        rest.resize(8 + 16, 0);
        rest.extend_from_slice(&attribute.to_be_bytes());
        rest.resize(8 + 24, 0);
        rest.extend_from_slice(body);
        self.datagram(from, 0x64, 1, 0, &rest);
    }

    fn set_up(&mut self) {
        let private = PrivateData::new(4096, 4096, true).encode();
        let mut request = vec![0; 232];
        request[..4].copy_from_slice(&[0, 0, 0, 5]);
        request[32..36].copy_from_slice(&(QUEUE_PAIRS[0] << 8).to_be_bytes());
        // Behind the header of the RDMA connection manager.
        request[140 + 36..140 + 44].copy_from_slice(&private);
        self.managed(0, 0x0010, &request);
        let mut reply = vec![0; 232];
        reply[4..8].copy_from_slice(&[0, 0, 0, 5]);
        reply[12..16].copy_from_slice(&(QUEUE_PAIRS[1] << 8).to_be_bytes());
        reply[36..44].copy_from_slice(&private);
        self.managed(1, 0x0013, &reply);
    }

    /// A WRITE of 5,000 octets, with packets of 1,024.
    fn write(&mut self, xid: u32, handle: u32) {
        const LENGTH: u32 = 5000;
        let segment = Segment {
            handle,
            length: LENGTH,
            offset: 0x1000,
        };
        let reads = vec![ReadSegment {
            position: 48,
            segment,
        }];
        let message = call(
            xid,
            Chunks {
                reads,
                ..Chunks::default()
            },
            7,
        );
        // In a first and a last packet.
        let (first, last) = message.split_at(64);
        self.request(0, 0x00, first);
        self.request(0, 0x02, last);
        let mut target = 0x1000u64.to_be_bytes().to_vec();
        target.extend_from_slice(&handle.to_be_bytes());
        target.extend_from_slice(&LENGTH.to_be_bytes());
        let number = self.request(1, 0x0c, &target);
        let data = vec![3; LENGTH as usize];
        let pieces: Vec<&[u8]> = data.chunks(1024).collect();
        for (index, piece) in pieces.iter().enumerate() {
            let (opcode, has_header) = match index {
                0 => (0x0d, true),
                4 => (0x0f, true),
                _ => (0x0e, false),
            };
            let header: &[u8] = if has_header { &[0; 4] } else { &[] };
            let rest = [header, piece].concat();
            self.datagram(0, opcode, QUEUE_PAIRS[1], number + index as u32, &rest);
        }
        self.numbers[1] = number + pieces.len() as u32;
        // Send With Invalidate.
        let rest = [&handle.to_be_bytes()[..], &reply(xid)].concat();
        self.request(1, 0x17, &rest);
    }
}

fn check_writes(all: &Collected, handles: &[u32]) {
    assert!(all.breaches.is_empty(), "{:?}", all.breaches);
    assert_eq!(all.calls.len(), handles.len(), "{all:#?}");
    for (call, handle) in all.calls.iter().zip(handles) {
        assert_eq!(call.outcome, Outcome::Replied);
        assert_eq!(call.procedure.unwrap().to_string(), "NFS3 WRITE");
        assert_eq!((call.round_trips(), call.registrations()), (2, 1));
        assert_eq!(call.messages[0].packets, 2);
        assert_eq!(call.messages[1].invalidates, Some(*handle));
        let [read] = &call.operations[..] else {
            panic!("{call:#?}");
        };
        assert_eq!(
            (read.kind, read.list),
            (OperationKind::Read, List::Read(48))
        );
        assert_eq!((read.octets, read.packets), (5000, 5));
        assert!(read.is_complete && read.request.unwrap() < read.first && read.first < read.last);
        assert_eq!(call.segments[0].moved, 5000);
        assert_eq!(call.call_length, Some(48 + 5000));
    }
}

#[test]
fn packets_of_roce_show_calls() {
    let mut roce = Roce::default();
    roce.set_up();
    roce.write(1, 0x700);
    roce.write(2, 0x701);
    let (all, summary) = packets(&roce.packets);
    check_writes(&all, &[0x700, 0x701]);
    let connection = &all.connections[0];
    assert_eq!(connection.carrier, Carrier::Roce);
    assert!(connection.is_set_up);
    assert_eq!(connection.receive_size, [Some(4096), Some(4096)]);
    assert_eq!(connection.ends[1].to_string(), "10.0.0.2 QP 0x12");
    assert_eq!(summary.repeated, 0);

    // Without the set-up, the directions are joined by what they name.
    let (all, _) = packets(&roce.packets[2..]);
    check_writes(&all, &[0x700, 0x701]);
    assert!(!all.connections[0].is_set_up);

    // Packets that come again are counted once.
    let twice = roce.packets.iter().flat_map(|packet| [packet, packet]);
    let (all, summary) = packets(twice);
    check_writes(&all, &[0x700, 0x701]);
    assert_eq!(summary.repeated, 2 * 9);

    // The capture lacks a packet with data of the first.
    let lacking = roce
        .packets
        .iter()
        .enumerate()
        .filter(|(at, _)| *at != 2 + 5);
    let (all, _) = packets(lacking.map(|(_, packet)| packet));
    assert_eq!(xids(&all), [1, 2]);
    assert!(all.calls[0].is_incomplete && !all.calls[1].is_incomplete);
    assert!(all.breaches.is_empty(), "{:?}", all.breaches);
}
