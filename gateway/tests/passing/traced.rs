//! The events that gateways record of calls in both directions.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use rdma::Clock;
use rdma::trace::{End, Event, Record, Sink, Trace, Track, Wait};
use rpcrdma_gateway::RelayOptions;

use super::support::{Gateway, Over, PATIENCE, Raw, call, reply};
use super::{everywhere, listener};

/// The events of each call, in order: of the end of its track, of its own end, and with its XID.
#[derive(Default)]
struct Events {
    tracks: Mutex<Vec<Track>>,
    records: Mutex<HashMap<(End, End, u32), Vec<Event>>>,
}

impl Sink for Events {
    fn open(&self, track: Track) -> u32 {
        let mut tracks = self.tracks.lock().unwrap();
        tracks.push(track);
        tracks.len() as u32 - 1
    }

    fn close(&self, _: u32) {}

    fn record(&self, record: Record) {
        let track = self.tracks.lock().unwrap()[record.track as usize].end;
        let key = (track, record.event.end(), record.xid);
        let mut records = self.records.lock().unwrap();
        records.entry(key).or_default().push(record.event);
    }
}

impl Events {
    /// Returns the events of a call.
    fn of(&self, track: End, end: End, xid: u32) -> Vec<Event> {
        let records = self.records.lock().unwrap();
        records.get(&(track, end, xid)).cloned().unwrap_or_default()
    }

    /// Checks that a call arrived on a track and was answered there, with this in between.
    fn check_served(&self, track: End, xid: u32) {
        let events = self.of(track, End::Responder, xid);
        assert_eq!(events.first(), Some(&Event::Arrived), "{events:?}");
        assert_eq!(events.last(), Some(&Event::Replied), "{events:?}");
        let relayed = events.iter().position(|it| {
            let procedure = 11;
            let (program, version) = (0x3000_0000 | xid, 7);
            *it == Event::Relayed {
                program,
                version,
                procedure,
            }
        });
        let done = events.iter().position(|it| *it == Event::Done);
        assert!(relayed.is_some() && relayed < done, "{events:?}");
        assert_eq!(events.iter().filter(|it| **it == Event::Arrived).count(), 1);
    }

    /// Checks that a call was made on a track, sent, and ended with its reply.
    fn check_made(&self, track: End, xid: u32) {
        let events = self.of(track, End::Requester, xid);
        assert!(
            matches!(events.first(), Some(Event::Called { .. })),
            "{events:?}"
        );
        let sent = events
            .iter()
            .position(|it| matches!(it, Event::Sent { .. }));
        let back = events
            .iter()
            .position(|it| matches!(it, Event::Answered { .. }));
        assert!(sent.is_some() && sent < back, "{events:?}");
        assert_eq!(
            events.last(),
            Some(&Event::Ended { failed: false }),
            "{events:?}"
        );
    }
}

fn traced(from: Over, to: Over, server: SocketAddr) -> (Gateway, Arc<Events>) {
    traced_with(from, to, RelayOptions::new(server))
}

fn traced_with(from: Over, to: Over, mut options: RelayOptions) -> (Gateway, Arc<Events>) {
    let events = Arc::new(Events::default());
    options.trace = Some(Trace::new(Arc::clone(&events) as _, Clock::monotonic()));
    (Gateway::start_with(from, to, options), events)
}

/// A gateway between TCP and TCP to which a call has come, and which has passed it on.
struct Called {
    gateway: Gateway,
    events: Arc<Events>,
    client: Raw,
    server: Raw,
}

impl Called {
    /// Makes the call of a client, with XID 3, through a gateway with this linger time.
    fn lingering(linger: Duration) -> Self {
        let (listener, address) = listener();
        let mut options = RelayOptions::new(address);
        options.linger = linger;
        let (gateway, events) = traced_with(Over::Tcp, Over::Tcp, options);
        let mut client = Raw::connect(gateway.address);
        client.send(&call(3, 4));
        let mut server = Raw::accept(&listener);
        server.expect(&call(3, 4));
        Self {
            gateway,
            events,
            client,
            server,
        }
    }

    fn new() -> Self {
        Self::lingering(PATIENCE)
    }

    /// Ends one side, waits for the end of the other, and checks that a call which was received on one track and made
    /// again on the other has ended on both without results.
    #[track_caller]
    fn loses(mut self, client: bool, xid: u32, received: End, made: End) {
        if client {
            drop(self.client);
            assert_eq!(self.server.receive(), None);
        } else {
            drop(self.server);
            assert_eq!(self.client.receive(), None);
        }
        self.gateway.end();
        let made = self.events.of(made, End::Requester, xid);
        let failed = Event::Ended { failed: true };
        assert_eq!(made.last(), Some(&failed), "{client}: {made:?}");
        let served = self.events.of(received, End::Responder, xid);
        assert_eq!(served.last(), Some(&Event::Dropped), "{client}: {served:?}");
    }
}

/// A call of the client and a call of the server, each at both connections of each gateway.
#[test]
fn calls_of_both_directions_are_on_the_tracks_of_both_connections() {
    const FORWARD: u32 = 5;
    const BACKWARD: u32 = 9;
    for between in everywhere() {
        let (listener, address) = listener();
        let last = traced(between, Over::Tcp, address);
        let first = traced(Over::Tcp, between, last.0.address);
        let mut client = Raw::connect(first.0.address);
        client.send(&call(FORWARD, 70_000));
        let mut server = Raw::accept(&listener);
        server.expect(&call(FORWARD, 70_000));
        server.send(&call(BACKWARD, 400));
        client.expect(&call(BACKWARD, 400));
        client.send(&reply(BACKWARD, 400));
        server.expect(&reply(BACKWARD, 400));
        server.send(&reply(FORWARD, 4));
        client.expect(&reply(FORWARD, 4));
        drop(client);
        assert_eq!(server.receive(), None);
        for (gateway, events) in [first, last] {
            gateway.end();
            events.check_served(End::Responder, FORWARD);
            events.check_made(End::Requester, FORWARD);
            events.check_served(End::Requester, BACKWARD);
            events.check_made(End::Responder, BACKWARD);
        }
    }
}

/// A call whose server has gone has ended without results, at both connections.
#[test]
fn a_call_without_an_answer_ends_on_both_tracks() {
    Called::new().loses(false, 3, End::Responder, End::Requester);
}

/// A call whose client has gone is waited for until the linger time is over.
#[test]
fn a_call_that_is_not_answered_in_the_linger_time_ends_on_both_tracks() {
    let called = Called::lingering(Duration::from_millis(100));
    called.loses(true, 3, End::Responder, End::Requester);
}

/// A call of the server has ended without results at both connections, whichever side has gone.
#[test]
fn a_call_of_the_server_without_an_answer_ends_on_both_tracks() {
    for loses_client in [false, true] {
        let mut called = Called::new();
        called.server.send(&reply(3, 4));
        called.client.expect(&reply(3, 4));
        called.server.send(&call(9, 4));
        called.client.expect(&call(9, 4));
        called.loses(loses_client, 9, End::Requester, End::Responder);
    }
}

/// A call waits for the connection to a server that takes connections and does not speak MPA.
#[test]
fn a_call_waits_for_a_connection_that_is_not_established() {
    let (listener, address) = listener();
    let version_one = Over::all_rdma()[0];
    let (gateway, events) = traced(Over::Tcp, version_one, address);
    let mut client = Raw::connect(gateway.address);
    client.send(&call(3, 4));
    let server = listener.accept().unwrap();
    let until = Instant::now() + PATIENCE;
    let made = loop {
        let made = events.of(End::Requester, End::Requester, 3);
        if made.len() > 1 {
            break made;
        }
        assert!(Instant::now() < until, "{made:?}");
        std::thread::sleep(Duration::from_millis(1));
    };
    assert_eq!(made[1..], [Event::Waits(Wait::Connection)]);
    drop((client, server));
    gateway.end();
}
