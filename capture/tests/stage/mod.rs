//! A requester and a responder on simulated devices, who exchange messages that announce memory as
//! those of RPC-over-RDMA do.
#![allow(
    clippy::unwrap_used,
    reason = "clippy takes helpers of tests for no tests"
)]

use std::collections::VecDeque;
use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use bytes::Bytes;
use rdma::{
    AcceptOptions, ConnectOptions, Device, Event, Pool, QpId, Region, RemoteSegment, SendWr,
    Success, Tap, WrId,
};
use rdma_sim::{Costs, Fabric, Faults, Host, SimDevice, attributes};
use smallvec::smallvec;

/// A call: memory that the responder reads, memory that it fills, with the lengths of both and how
/// much it fills, and whether its reply invalidates the first of them.
#[derive(Clone, Debug, Default)]
pub(crate) struct Call {
    pub(crate) offered: Vec<usize>,
    pub(crate) filled: Vec<(usize, usize)>,
    pub(crate) invalidate: bool,
}

/// The side to observe, 0 for the requester, and the observer of its device.
pub(crate) struct Exchange {
    pub(crate) side: usize,
    pub(crate) tap: Box<dyn Tap>,
}

struct World {
    fabric: Fabric,
    devices: [Box<dyn Device>; 2],
    qps: [QpId; 2],
}

fn address(host: u8) -> SocketAddr {
    (Ipv4Addr::new(10, 0, 0, host), 20049).into()
}

fn device(fabric: &Fabric, host: u8) -> SimDevice {
    let host = Host {
        address: address(host),
        attributes: attributes(),
        pool: Pool::new(1 << 24),
        interrupt: Duration::from_micros(3),
    };
    fabric.host(host).unwrap()
}

/// Makes the calls, one after the other, and closes the connection.
pub(crate) fn exchange<D: Device + 'static>(
    observed: Exchange,
    wrap: impl FnOnce(SimDevice) -> D,
    calls: &[Call],
) {
    let fabric = Fabric::new(7, Costs::default(), Faults::default());
    let [client, server] = [1, 2].map(|host| device(&fabric, host));
    let mut world = World {
        fabric,
        devices: match observed.side {
            0 => [observe(client, observed.tap, wrap), Box::new(server)],
            _ => [Box::new(client), observe(server, observed.tap, wrap)],
        },
        qps: [QpId(0); 2],
    };
    world.connect();
    for (number, call) in calls.iter().enumerate() {
        world.call(number as u32 + 1, call);
    }
    let qp = world.qps[0];
    world.devices[0].disconnect(qp);
    for side in [0, 1] {
        let events = world.events(side);
        assert!(
            events
                .iter()
                .any(|event| matches!(event, Event::Disconnected { .. }))
        );
    }
}

fn observe<D: Device + 'static>(
    mut device: SimDevice,
    tap: Box<dyn Tap>,
    wrap: impl FnOnce(SimDevice) -> D,
) -> Box<dyn Device> {
    device.set_tap(tap);
    Box::new(wrap(device))
}

impl World {
    fn events(&mut self, side: usize) -> Vec<Event> {
        let until = self.fabric.now() + Duration::from_secs(1);
        while self.fabric.next(until).is_some() {}
        let mut events = VecDeque::new();
        let now = self.fabric.now();
        loop {
            let before = events.len();
            self.devices[side].poll(now, &mut events);
            if events.len() == before {
                return events.into();
            }
        }
    }

    fn connect(&mut self) {
        self.devices[1].listen(address(2)).unwrap();
        let options = ConnectOptions {
            private_data: Bytes::from_static(b"hello"),
            inbound_reads: 4,
            outbound_reads: 4,
            timeout: Duration::from_secs(100),
            shared_receives: None,
        };
        self.qps[0] = self.devices[0].connect(address(2), &options).unwrap();
        let [Event::ConnectRequest(request)] = &self.events(1)[..] else {
            panic!("no request");
        };
        self.qps[1] = self.devices[1]
            .prepare_accept(request.request, None)
            .unwrap();
        let options = AcceptOptions {
            private_data: Bytes::from_static(b"welcome"),
            inbound_reads: 4,
            outbound_reads: 4,
        };
        let qp = self.qps[1];
        self.devices[1].accept(qp, &options).unwrap();
        for side in [0, 1] {
            assert!(matches!(self.events(side)[..], [Event::Established { .. }]));
        }
    }

    fn post(&mut self, side: usize, wr: SendWr) {
        let qp = self.qps[side];
        self.devices[side].post_send(qp, WrId(9), wr, true).unwrap();
    }

    fn receive(&mut self, side: usize) {
        let (qp, buf) = (
            self.qps[side],
            self.devices[side].pool().alloc(4096).unwrap(),
        );
        self.devices[side]
            .post_receive(qp, WrId(8), buf.into())
            .unwrap();
    }

    fn register(&mut self, region: Region) -> RemoteSegment {
        let qp = self.qps[0];
        self.devices[0].register(qp, region).unwrap()
    }

    /// Sends a message that begins with the XID and lists memory.
    fn send(
        &mut self,
        side: usize,
        xid: u32,
        lists: &[(RemoteSegment, u32)],
        invalidate: Option<rdma::Stag>,
    ) {
        let mut message = xid.to_be_bytes().to_vec();
        message.extend_from_slice(&[0; 12]);
        for (segment, length) in lists {
            message.extend_from_slice(&segment.stag.0.to_be_bytes());
            message.extend_from_slice(&length.to_be_bytes());
            message.extend_from_slice(&segment.offset.to_be_bytes());
        }
        message.extend_from_slice(&[0xee; 5]);
        let gather = smallvec![Bytes::from(message)];
        self.receive(1 - side);
        self.post(side, SendWr::Send { gather, invalidate });
    }

    fn call(&mut self, xid: u32, call: &Call) {
        let content = |len: usize| -> Bytes {
            (0..len)
                .map(|at| (at as u32 * 7 + xid) as u8)
                .collect::<Vec<_>>()
                .into()
        };
        let offered: Vec<RemoteSegment> = call
            .offered
            .iter()
            .map(|&len| self.register(Region::RemoteRead(content(len))))
            .collect();
        let filled: Vec<(RemoteSegment, usize)> = call
            .filled
            .iter()
            .map(|&(len, fill)| {
                let buf = self.devices[0].pool().alloc(len).unwrap();
                (self.register(Region::RemoteWrite(buf)), fill)
            })
            .collect();
        let whole = |segment: &RemoteSegment| (*segment, segment.length);
        let lists: Vec<_> = offered
            .iter()
            .map(whole)
            .chain(filled.iter().map(|(segment, _)| whole(segment)))
            .collect();
        self.send(0, xid, &lists, None);
        assert_eq!(self.received(1).len(), 1);
        for segment in &offered {
            let sink = self.devices[1]
                .pool()
                .alloc(segment.length as usize)
                .unwrap();
            let (stag, offset) = (segment.stag, segment.offset);
            self.post(1, SendWr::Read { sink, stag, offset });
            self.events(1);
        }
        for (segment, fill) in filled.iter().filter(|(_, fill)| *fill > 0) {
            let (stag, offset) = (segment.stag, segment.offset);
            let gather = smallvec![content(*fill)];
            self.post(
                1,
                SendWr::Write {
                    gather,
                    stag,
                    offset,
                },
            );
        }
        let said: Vec<_> = filled
            .iter()
            .map(|&(segment, fill)| (segment, fill as u32))
            .collect();
        let stags: Vec<_> = lists.iter().map(|(segment, _)| segment.stag).collect();
        let remote = stags.first().copied().filter(|_| call.invalidate);
        self.send(1, xid, &said, remote);
        let invalidated = self.received(0);
        assert_eq!(invalidated, [remote]);
        self.events(1);
        // Some of the memory comes back late, after other messages.
        for &stag in stags.iter().filter(|stag| Some(**stag) != remote) {
            self.post(0, SendWr::Invalidate { stag });
        }
        self.events(0);
        self.send(0, 0x7700 + xid, &[], None);
        self.received(1);
        self.events(0);
        let qp = self.qps[0];
        for stag in stags {
            self.devices[0].reclaim(qp, stag).unwrap();
        }
    }

    /// Returns the handles that the messages received by a side have invalidated.
    fn received(&mut self, side: usize) -> Vec<Option<rdma::Stag>> {
        let events = self.events(side).into_iter();
        events
            .filter_map(|event| match event {
                Event::Completion(completion) => match completion.result.unwrap() {
                    Success::Receive { invalidated, .. } => Some(invalidated),
                    _ => None,
                },
                _ => None,
            })
            .collect()
    }
}
