//! A client that is not ours in its flow control: it follows version-two-07, section 4.2.1, to the
//! letter and sends one message more than the server's limit, beside a grant. On any device, as what
//! the device does with a message for which there is no receive differs.
#![allow(
    clippy::unwrap_used,
    reason = "clippy takes helpers of tests for no tests"
)]

mod common;

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use bytes::Bytes;
use common::{Server, device, patience};
use rdma::{ConnectOptions, Event, QpId, SendWr, Success, Time, WrId};
use rpc_transport::MioReadiness;
use rpcrdma_setup::device::{AnyDevice, DeviceChoice};

/// The version of version-two-07 on the wire.
const VERSION: u32 = 2;
/// RDMA2_GRANT.
const GRANT: u32 = 5;
/// RDMA2_CONNPROP_FINAL.
const CONNPROP_FINAL: u32 = 7;
/// RDMA2_CALL_INLINE.
const CALL_INLINE: u32 = 10;
/// RDMA2_REPLY_INLINE.
const REPLY_INLINE: u32 = 13;
/// Receives that this client posts, more than what any server sends here.
const RECEIVES: u32 = 300;
/// The length of each receive in bytes: the default inline threshold.
const LENGTH: usize = 4096;

fn message(words: &[u32]) -> Bytes {
    words.iter().flat_map(|word| word.to_be_bytes()).collect()
}

/// Encodes a NULL call of NFS with this credit limit.
fn null(xid: u32, credit: u32) -> Bytes {
    let header = [xid, VERSION, credit, CALL_INLINE, 0, 0, 0, 0];
    let call = [xid, 0, 2, 100_003, 3, 0, 0, 0, 0, 0];
    message(&[&header[..], &call].concat())
}

/// A queue pair on a device of the machine.
struct Peer {
    poll: mio::Poll,
    device: AnyDevice,
    qp: QpId,
    events: VecDeque<Event>,
    sent: u32,
}

impl Peer {
    fn connect(to: SocketAddr) -> Self {
        let choice = DeviceChoice {
            name: device().parse().unwrap(),
            ..DeviceChoice::default()
        };
        let mut device = choice.towards(to).open(None, false, None).unwrap().device;
        let poll = mio::Poll::new().unwrap();
        let poller = MioReadiness::poller(poll.registry(), 0).unwrap();
        device.attach(poller).unwrap();
        let options = ConnectOptions {
            private_data: Bytes::new(),
            inbound_reads: 1,
            outbound_reads: 1,
            timeout: patience() / 2,
            shared_receives: None,
        };
        let qp = device.connect(to, &options).unwrap();
        for id in 0..RECEIVES {
            let buf = device.pool().alloc(LENGTH).unwrap();
            device
                .post_receive(qp, WrId(id.into()), buf.into())
                .unwrap();
        }
        let mut peer = Self {
            poll,
            device,
            qp,
            events: VecDeque::new(),
            sent: 0,
        };
        peer.next(|event| match event {
            Event::Established { .. } => Some(()),
            other => panic!("{other:?}"),
        });
        peer
    }

    /// Waits for the next event for which `take` has a value.
    fn next<T>(&mut self, take: impl Fn(Event) -> Option<T>) -> T {
        let deadline = Instant::now() + patience();
        loop {
            self.device.poll(Time::now(), &mut self.events);
            while let Some(event) = self.events.pop_front() {
                if let Some(taken) = take(event) {
                    return taken;
                }
            }
            assert!(Instant::now() < deadline, "nothing came");
            if !self.device.arm() {
                continue;
            }
            let mut ready = mio::Events::with_capacity(64);
            let longest = Duration::from_millis(100);
            self.poll.poll(&mut ready, Some(longest)).unwrap();
            for event in &ready {
                let closed = event.is_read_closed() || event.is_error();
                self.device.ready(event.token().0, closed);
            }
        }
    }

    fn send(&mut self, bytes: Bytes) {
        let wr = SendWr::Send {
            gather: [bytes].into_iter().collect(),
            invalidate: None,
        };
        let id = WrId((RECEIVES + self.sent).into());
        self.device.post_send(self.qp, id, wr, true).unwrap();
        self.sent += 1;
    }

    /// Waits for the next message, and returns its words.
    fn hear(&mut self) -> Vec<u32> {
        let bytes = self.next(|event| match event {
            Event::Completion(done) => match done.result.unwrap() {
                Success::Receive { buf, .. } => Some(buf.to_vec()),
                _ => None,
            },
            other => panic!("{other:?}"),
        });
        let words = bytes.chunks_exact(4);
        words
            .map(|word| u32::from_be_bytes(word.try_into().unwrap()))
            .collect()
    }

    /// Waits for the next reply, and returns its XID.
    fn hear_reply(&mut self) -> u32 {
        loop {
            let words = self.hear();
            match words[3] {
                REPLY_INLINE => return words[0],
                GRANT => {}
                other => panic!("header type {other}: {words:x?}"),
            }
        }
    }
}

/// Sends as many calls as section 4.2.1 lets a client that posts "while sent is not greater than
/// received credits", which is one too many, and a grant before or after the last one. While it
/// grants the server nothing, the server cannot raise its limit.
fn beyond_the_limit(grant_first: bool) {
    let server = Server::start(["--memory"]);
    let mut peer = Peer::connect(server.rdma);
    // It allows one message, the server's properties.
    peer.send(message(&[0, VERSION, 1, CONNPROP_FINAL, 0]));
    let properties = peer.hear();
    assert_eq!(properties[3], CONNPROP_FINAL, "{properties:x?}");
    let limit = properties[2];
    assert!(limit + 2 < RECEIVES, "a limit of {limit}");
    while peer.sent < limit {
        peer.send(null(peer.sent, 1));
    }
    let grant = message(&[0, VERSION, RECEIVES, GRANT]);
    // The calls before and the surplus one.
    let calls = limit;
    if grant_first {
        peer.send(grant);
        // The last limit counts.
        peer.send(null(calls, RECEIVES));
    } else {
        peer.send(null(calls, 1));
        peer.send(grant);
    }
    let mut xids: Vec<u32> = (0..calls).map(|_| peer.hear_reply()).collect();
    xids.sort_unstable();
    assert_eq!(xids, (1..=calls).collect::<Vec<_>>());
    // The connection goes on.
    peer.send(null(999, RECEIVES));
    assert_eq!(peer.hear_reply(), 999);
}

#[test]
fn wg_s4_2_1_a_surplus_message_and_then_a_grant_are_taken() {
    beyond_the_limit(false);
}

#[test]
fn wg_s4_2_1_a_grant_and_then_a_surplus_message_are_taken() {
    beyond_the_limit(true);
}
