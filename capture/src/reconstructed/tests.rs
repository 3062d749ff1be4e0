use std::mem::take;
use std::time::Duration;

use rdma::Pool;
use rdma_sim::{Costs, Fabric, Faults, Host, SimDevice, attributes};
use smallvec::smallvec;

use super::*;

const QP: QpId = QpId(1);
const XID: [u8; 4] = [1, 2, 3, 4];

/// The names of the frames that were shown.
#[derive(Default)]
struct Names(Vec<&'static str>);

impl Tap for Names {
    fn sent(&mut self, _: Time, _: QpId, frame: Frame<'_>) {
        self.0.push(match frame {
            Frame::Send { .. } => "sends",
            _ => "sends something else",
        });
    }

    fn received(&mut self, _: Time, _: QpId, frame: Frame<'_>) {
        self.0.push(match frame {
            Frame::Send { .. } => "receives",
            Frame::Write { .. } => "is written",
            _ => "receives something else",
        });
    }
}

const CLIENT: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::new(10, 0, 0, 1)), 1);
const SERVER: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::new(10, 0, 0, 2)), 20049);

/// Returns a client and a server that listens, on a simulated fabric.
fn hosts() -> (Fabric, SimDevice, SimDevice) {
    let fabric = Fabric::new(1, Costs::default(), Faults::default());
    let host = |address| {
        fabric
            .host(Host {
                address,
                attributes: attributes(),
                pool: Pool::new(1 << 20),
                interrupt: Duration::ZERO,
            })
            .unwrap()
    };
    let (client, mut server) = (host(CLIENT), host(SERVER));
    server.listen(SERVER).unwrap();
    (fabric, client, server)
}

/// Returns what happens at a device in the next second.
fn events(fabric: &Fabric, device: &mut impl Device) -> VecDeque<Event> {
    let end = fabric.now() + Duration::from_secs(1);
    while fabric.next(end).is_some() {}
    let mut events = VecDeque::new();
    let mut before = 1;
    // The device hands out one event at a time.
    while before != events.len() {
        before = events.len();
        device.poll(fabric.now(), &mut events);
    }
    events
}

fn connect_options() -> ConnectOptions {
    ConnectOptions {
        private_data: Bytes::new(),
        inbound_reads: 1,
        outbound_reads: 1,
        timeout: Duration::from_secs(10),
        shared_receives: None,
    }
}

fn accept_options() -> AcceptOptions {
    AcceptOptions {
        private_data: Bytes::new(),
        inbound_reads: 1,
        outbound_reads: 1,
    }
}

/// Returns a connection that has received a reply which says that memory was written, and the
/// memory.
fn replied(tap: &mut Names) -> (Pair, Region) {
    let end = SocketAddr::from((Ipv4Addr::LOCALHOST, 1));
    let mut pair = Pair::new(true, [end, end], Bytes::new());
    let registered = Registered {
        length: 8,
        offset: 7,
        readable: None,
        announced: Some((XID, 0)),
    };
    pair.regions.insert(Stag(9), registered);
    let pool = Pool::new(1 << 16);
    let mut buf = pool.alloc(20).unwrap();
    buf[..4].copy_from_slice(&XID);
    buf[4..8].copy_from_slice(&9u32.to_be_bytes());
    buf[8..12].copy_from_slice(&8u32.to_be_bytes());
    buf[12..20].copy_from_slice(&7u64.to_be_bytes());
    let reply = pair.received(&buf.into(), None);
    pair.add(tap, QP, Time::ZERO, reply);
    (pair, Region::RemoteWrite(pool.alloc(8).unwrap()))
}

fn send(len: usize) -> Item {
    Item::Posted(Posted::Send {
        gather: smallvec![Bytes::from(vec![0; len])],
        invalidate: None,
    })
}

#[test]
fn a_connection_that_was_not_made_is_forgotten() {
    let (fabric, client, mut server) = hosts();
    let mut client = Reconstructed::new(client, Names::default(), None);
    client.connect(SERVER, &connect_options()).unwrap();
    for event in events(&fabric, &mut server) {
        if let Event::ConnectRequest(request) = event {
            server.reject(request.request, b"no").unwrap();
        }
    }
    assert_eq!(client.pairs.len(), 1);
    let events = events(&fabric, &mut client);
    assert!(matches!(events[0], Event::ConnectFailed { .. }));
    assert!(client.pairs.is_empty());
}

#[test]
fn an_accept_that_failed_is_forgotten() {
    let (fabric, mut client, server) = hosts();
    let mut server = Reconstructed::new(server, Names::default(), None);
    let gone = client.connect(SERVER, &connect_options()).unwrap();
    let Some(Event::ConnectRequest(request)) = events(&fabric, &mut server).pop_front() else {
        panic!("nobody asks for a connection");
    };
    assert_eq!(server.requests.len(), 1);
    client.destroy(gone);
    let qp = server.prepare_accept(request.request, None).unwrap();
    assert_eq!(server.pairs.len(), 1);
    server.accept(qp, &accept_options()).unwrap();
    let events = events(&fabric, &mut server);
    assert!(matches!(events[0], Event::ConnectFailed { .. }));
    assert!(server.pairs.is_empty() && server.requests.is_empty());
}

#[test]
fn a_reply_and_what_follows_it_wait_for_written_memory() {
    let mut tap = Names::default();
    let (mut pair, memory) = replied(&mut tap);
    pair.add(&mut tap, QP, Time::ZERO, send(1));
    assert!(tap.0.is_empty(), "{:?}", tap.0);
    pair.reclaimed(Stag(9), &memory);
    pair.release(&mut tap, QP, false);
    assert_eq!(tap.0, ["is written", "receives", "sends"]);
}

#[test]
fn what_waits_is_bounded_by_its_number_and_by_its_length() {
    for (len, most) in [(1, HELD_ITEMS), (1 << 20, HELD_BYTES >> 20)] {
        let mut tap = Names::default();
        let (mut pair, _) = replied(&mut tap);
        let mut waiting = 1;
        while tap.0.is_empty() {
            assert!(waiting <= most, "{waiting} messages of {len} bytes");
            pair.add(&mut tap, QP, Time::ZERO, send(len));
            waiting += 1;
        }
        assert!(waiting >= most, "{waiting} messages of {len} bytes");
        // The reply comes without the write that nobody knows of, then everything else.
        let shown = take(&mut tap.0);
        assert_eq!(shown[..2], ["receives", "sends"]);
        assert_eq!(shown.len(), waiting);
        assert_eq!(pair.held_bytes, 0);
    }
}

#[test]
fn a_request_has_the_time_at_which_it_is_posted() {
    struct Sent(Vec<Time>);
    impl Tap for Sent {
        fn sent(&mut self, at: Time, _: QpId, _: Frame<'_>) {
            self.0.push(at);
        }

        fn received(&mut self, _: Time, _: QpId, _: Frame<'_>) {}
    }
    let (fabric, client, mut server) = hosts();
    let mut client = Reconstructed::new(client, Sent(Vec::new()), None);
    let qp = client.connect(SERVER, &connect_options()).unwrap();
    for event in events(&fabric, &mut server) {
        if let Event::ConnectRequest(request) = event {
            let accepted = server.prepare_accept(request.request, None).unwrap();
            server.accept(accepted, &accept_options()).unwrap();
        }
    }
    events(&fabric, &mut client);
    let wr = SendWr::Send {
        gather: smallvec![Bytes::from_static(b"x")],
        invalidate: None,
    };
    let start = Time::now();
    client.post_send(qp, WrId(1), wr, false).unwrap();
    assert!(client.tap.0[0] >= start, "{:?} {start:?}", client.tap.0);
}

#[test]
fn the_end_of_a_connection_shows_what_waits() {
    let mut tap = Names::default();
    let (mut pair, _) = replied(&mut tap);
    pair.release(&mut tap, QP, true);
    assert_eq!(tap.0, ["receives"]);
}
