//! Tests of the limit on connections where clients connect over RDMA: the server takes a place for a
//! connection before it accepts it, so that it can still say that there is no room.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod rdma_support;

use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;

use onc_rpc::Message;
use rdma::{Clock, ConnectError, Device, Ending, Event, Pool, Time};
use rdma_support::fabric::{FakeDevice, World, address, attributes};
use rdma_support::{POOL, bare};
use rpc_transport::rdma::{RdmaServer, RdmaServerOptions};
use rpc_transport::{
    PollSource, ProgramVersions, Request, Server, ServerOptions, Service, ServiceOutcome,
};

/// The index of the server's device.
const SERVER: usize = 0;
/// More steps than setting up and ending a connection takes.
const STEPS: usize = 10;

/// A service without programs.
struct Nothing;

impl Service for Nothing {
    fn programs(&self) -> &[ProgramVersions] {
        &[]
    }

    fn call(&mut self, _: Request) -> ServiceOutcome {
        ServiceOutcome::Done(Ok(Message::default()))
    }

    fn remember_reply(&self, _: u32, _: u32, _: u32) -> bool {
        false
    }
}

/// A server over a fake device, on a clock that the test advances. All clients are one host.
struct Fixture {
    world: Rc<RefCell<World>>,
    transport: Rc<RefCell<RdmaServer>>,
    server: Server,
    clock: Clock,
}

impl Fixture {
    fn new(max_connections: usize) -> Self {
        let (world, clock) = (World::new(), Clock::simulated());
        let device = FakeDevice::new(&world, attributes(), Pool::new(POOL));
        let mut transport = RdmaServer::new(
            Box::new(device),
            RdmaServerOptions::new(rpcrdma_protocols::base()),
        );
        transport.listen(address()).unwrap();
        let transport = Rc::new(RefCell::new(transport));
        let options = ServerOptions {
            max_connections,
            ..ServerOptions::default()
        };
        let mut server = Server::simulated(Box::new(Nothing), options, clock.clone());
        server.add_transport(Rc::clone(&transport) as _).unwrap();
        Self {
            world,
            transport,
            server,
            clock,
        }
    }

    /// Starts to connect a client, five seconds after what was before.
    fn connect(&mut self) -> Client {
        let now = self.clock.now();
        self.clock.advance_to(now + Duration::from_secs(5));
        self.connect_at_once()
    }

    fn connect_at_once(&mut self) -> Client {
        let (device, _) = bare(&self.world);
        Client { device }
    }

    /// Lets the transport see its events, of which the server takes none.
    fn poll_transport(&mut self) {
        for _ in 0..STEPS {
            self.transport.borrow_mut().poll(self.clock.now());
        }
    }

    fn settle(&mut self) {
        for _ in 0..STEPS {
            self.server.step();
        }
    }

    fn made_room(&self) -> u64 {
        self.server.stats().made_room
    }
}

struct Client {
    device: FakeDevice,
}

/// The state of a client's connection.
#[derive(Debug, PartialEq, Eq)]
enum State {
    Connected,
    Ended,
    /// The server has rejected the request with these words.
    Rejected(String),
}

impl Client {
    /// Returns what the events since the last call have led to.
    fn state(&mut self) -> Option<State> {
        let mut events = Default::default();
        self.device.poll(Time::ZERO, &mut events);
        let state = events.into_iter().filter_map(|event| match event {
            Event::Established { .. } => Some(State::Connected),
            Event::Disconnected { .. } => Some(State::Ended),
            Event::ConnectFailed { error, .. } => match error {
                ConnectError::Rejected { private_data } => {
                    let words = String::from_utf8(private_data.to_vec());
                    Some(State::Rejected(words.unwrap()))
                }
                error => panic!("{error}"),
            },
            _ => None,
        });
        state.last()
    }
}

#[test]
fn a_client_for_which_there_is_no_place_is_told_so_before_it_is_connected() {
    let mut fixture = Fixture::new(1);
    let mut first = fixture.connect();
    fixture.settle();
    assert_eq!(first.state(), Some(State::Connected));
    // Of the same host, and so soon.
    let mut second = fixture.connect_at_once();
    fixture.settle();
    let no_room = State::Rejected("rpcrdma: no room".to_owned());
    assert_eq!((first.state(), second.state()), (None, Some(no_room)));
    let mut third = fixture.connect();
    fixture.settle();
    assert_eq!(first.state(), Some(State::Ended));
    assert_eq!(third.state(), Some(State::Connected));
    assert_eq!(fixture.made_room(), 1);
}

/// Regression test: the server asked for a place for a connection that had ended before it took the
/// event, and another one had to give way again.
#[test]
fn a_connection_that_ends_unreported_takes_the_place_of_one_other_at_most() {
    let mut fixture = Fixture::new(2);
    let mut clients = [fixture.connect(), fixture.connect()];
    fixture.settle();
    let mut brief = fixture.connect();
    fixture.poll_transport();
    assert_eq!(brief.state(), Some(State::Connected));
    let own = fixture.world.borrow().queue_pairs(SERVER)[2];
    fixture.world.borrow_mut().lose_one(SERVER, own.0);
    fixture.poll_transport();
    // Another one gets its place before the server takes the events.
    let mut next = fixture.connect();
    fixture.poll_transport();
    fixture.settle();
    let states = clients.each_mut().map(Client::state);
    assert_eq!(states, [Some(State::Ended), Some(State::Connected)]);
    assert_eq!(next.state(), Some(State::Connected));
    assert_eq!(fixture.made_room(), 1);
}

/// A server that has too many jobs takes no events. Connections that it has not heard of must not
/// keep others out meanwhile.
#[test]
fn a_connection_that_is_not_reported_yet_makes_room() {
    let mut fixture = Fixture::new(1);
    let mut clients = [(); 3].map(|()| {
        let client = fixture.connect();
        fixture.poll_transport();
        client
    });
    for client in &mut clients {
        assert_eq!(client.state(), Some(State::Connected));
    }
    fixture.settle();
    let states = clients.each_mut().map(Client::state);
    assert_eq!(states, [Some(State::Ended), Some(State::Ended), None]);
}

/// Regression test: a server that was ending closed a connection which it had accepted before, as if there were no
/// place for it.
#[test]
fn a_connection_that_was_accepted_before_the_end_began_ends_like_the_others() {
    let mut fixture = Fixture::new(1);
    let mut accepted = fixture.connect();
    fixture.poll_transport();
    fixture.server.begin_drain();
    fixture.settle();
    assert_eq!(accepted.state(), Some(State::Connected));
    let mut late = fixture.connect();
    fixture.settle();
    let no_room = State::Rejected("rpcrdma: no room".to_owned());
    assert_eq!(late.state(), Some(no_room));
    let now = fixture.clock.now();
    assert_eq!(fixture.server.close_answered(now), Ending::WaitsForPeers);
    fixture.settle();
    assert_eq!(accepted.state(), Some(State::Ended));
    assert_eq!(fixture.server.close_answered(now), Ending::Ended);
}
