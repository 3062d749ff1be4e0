//! Tests of which connection makes room at the limit.

use std::net::IpAddr;

use super::*;

const HERE: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(10, 0, 0, 1));

/// Returns the host with this number.
fn host(number: u8) -> IpAddr {
    IpAddr::from([10, 0, 1, number])
}

impl World {
    fn limited(loops: usize, connections: usize) -> Self {
        let options = ServerOptions {
            max_connections: connections,
            ..ServerOptions::default()
        };
        Self::new(loops, &options)
    }

    /// Advances the clock by a second, so that what follows is later than what was.
    fn later(&mut self) {
        let now = self.clock.now();
        self.clock.advance_to(now + Duration::from_secs(1));
    }

    fn connect_later(&mut self, at: usize, conn: u64, host: IpAddr) {
        self.later();
        self.connect_from(at, conn, host);
    }

    fn call_later(&mut self, at: usize, conn: u64, proc: u32) {
        self.later();
        // Calls are told apart by their time.
        let xid = self.clock.now().as_nanos() / 1_000_000_000;
        self.event(at, call_of(proc, conn, xid as u32, xid));
    }

    fn closed(&self, at: usize) -> Vec<u64> {
        self.transports[at].borrow().closed.clone()
    }
}

/// Regression test: connections with one NULL each kept everybody else out.
#[test]
fn clients_that_only_send_null_keep_nobody_out() {
    let mut world = World::limited(1, 3);
    for conn in 1..=3 {
        world.connect_later(0, conn, HERE);
        world.call_later(0, conn, NULL);
    }
    // NULL buys no time.
    world.call_later(0, 1, NULL);
    for conn in 4..=8 {
        world.connect_later(0, conn, HERE);
        assert_eq!(world.closed(0), (1..=conn - 3).collect::<Vec<_>>());
    }
    assert_eq!(world.servers[0].stats().made_room, 5);
    assert_eq!(world.servers[0].transports[0].peers.len(), 3);
}

#[test]
fn connections_without_use_go_before_those_whose_use_was_long_ago() {
    let mut world = World::limited(1, 4);
    for conn in 1..=4 {
        world.connect_later(0, conn, HERE);
    }
    for conn in [2, 1, 4] {
        world.call_later(0, conn, USE);
    }
    world.connect_later(0, 5, HERE);
    assert_eq!(world.closed(0), [3]);
    world.call_later(0, 5, USE);
    // Then those with use, by the time of their last one.
    world.call_later(0, 2, USE);
    world.call_later(0, 1, NULL);
    for (conn, goes) in [(6, 1), (7, 6), (8, 7)] {
        world.connect_later(0, conn, HERE);
        assert_eq!(world.closed(0).last(), Some(&goes));
    }
    for (conn, goes) in [(8, 4), (9, 5), (10, 2), (11, 8)] {
        world.call_later(0, conn, USE);
        world.connect_later(0, conn + 1, HERE);
        assert_eq!(world.closed(0).last(), Some(&goes));
    }
}

#[test]
fn a_host_with_most_of_the_connections_gives_way_first() {
    let mut world = World::limited(1, 5);
    // The others came first.
    world.connect_later(0, 1, host(1));
    world.connect_later(0, 2, host(2));
    for conn in 3..=5 {
        world.connect_later(0, conn, HERE);
    }
    world.connect_later(0, 6, host(3));
    assert_eq!(world.closed(0), [3]);
    // It has two of five now.
    world.connect_later(0, 7, host(4));
    assert_eq!(world.closed(0), [3, 1]);
    // Connections without use go first whatever their host has.
    for conn in [4, 5] {
        world.call_later(0, conn, USE);
    }
    for (conn, goes) in [(8, 2), (9, 6), (10, 7)] {
        world.connect_later(0, conn, HERE);
        world.call_later(0, conn, USE);
        assert_eq!(world.closed(0).last(), Some(&goes));
    }
    world.connect_later(0, 11, host(5));
    assert_eq!(world.closed(0).last(), Some(&4));
}

#[test]
fn addresses_of_one_subscriber_count_as_one_host() {
    let mut world = World::limited(1, 3);
    let address = |last: u16| IpAddr::from([0x2001, 0xdb8, 0, 7, 0, 0, 0, last]);
    world.connect_later(0, 1, host(1));
    world.connect_later(0, 2, address(1));
    world.connect_later(0, 3, address(2));
    world.connect_later(0, 4, host(2));
    assert_eq!(world.closed(0), [2]);
    let mapped: IpAddr = "::ffff:10.0.1.1".parse().unwrap();
    world.connect_later(0, 5, mapped);
    assert_eq!(world.closed(0), [2, 1], "no host has most");
}

#[test]
fn connections_with_jobs_stay_and_a_new_one_is_refused_if_there_are_no_others() {
    let mut world = World::limited(1, 2);
    for conn in [1, 2] {
        world.connect_later(0, conn, HERE);
        world.call_later(0, conn, JOB);
    }
    world.connect_later(0, 3, HERE);
    assert_eq!(world.closed(0), [3], "the new one");
    assert!(world.servers[0].run_job());
    world.settle();
    world.connect_later(0, 4, HERE);
    assert_eq!(world.closed(0), [3, 1]);
    assert_eq!(world.answered(0).len(), 1);
}

#[test]
fn a_host_takes_no_fresh_connection_from_itself() {
    let mut world = World::limited(1, 2);
    for conn in [1, 2] {
        world.connect_later(0, conn, HERE);
        world.call_later(0, conn, USE);
    }
    world.call_later(0, 1, USE);
    world.event(0, call_of(USE, 2, 50, 50));
    world.connect_from(0, 3, HERE);
    assert_eq!(world.closed(0), [3], "the new one");
    world.connect_from(0, 4, host(1));
    assert_eq!(world.closed(0), [3, 1]);
    world.connect_later(0, 5, HERE);
    assert_eq!(world.closed(0), [3, 1, 4]);
    world.connect_from(0, 6, HERE);
    assert_eq!(world.closed(0), [3, 1, 4, 6], "the new one");
    world.connect_later(0, 7, HERE);
    assert_eq!(world.closed(0), [3, 1, 4, 6, 5]);
}

#[test]
fn a_job_follows_its_retransmission_to_another_connection() {
    let mut world = World::limited(1, 2);
    for conn in [1, 2] {
        world.connect_later(0, conn, HERE);
    }
    world.event(0, call(1, 77, 1));
    world.event(0, call(2, 77, 2));
    world.connect_later(0, 3, HERE);
    assert_eq!(world.closed(0), [1]);
}

#[test]
fn a_connection_of_another_loop_makes_room() {
    let mut world = World::limited(2, 2);
    world.connect_later(0, 1, HERE);
    world.connect_later(1, 2, HERE);
    world.connect_later(1, 3, HERE);
    assert_eq!((world.closed(0), world.closed(1)), (vec![], vec![]));
    assert!(world.servers[0].is_woken());
    world.settle();
    assert_eq!((world.closed(0), world.closed(1)), (vec![1], vec![]));
    assert_eq!(world.servers[0].stats().made_room, 1);
}

#[test]
fn a_job_that_begins_before_its_connection_has_made_room_is_not_lost() {
    let mut world = World::limited(2, 2);
    world.connect_later(0, 1, HERE);
    world.connect_later(1, 2, HERE);
    world.call_later(0, 1, NULL);
    {
        // The call is there before the loop has its next step.
        let mut transport = world.transports[0].borrow_mut();
        transport.events.push_back(call(1, 5, 5));
    }
    world.servers[0].take_events(Time::ZERO);
    world.connect_later(1, 3, HERE);
    assert_eq!(world.closed(1), [2]);
    assert!(world.servers[0].run_job());
    // Told, and busy before it is closed.
    world.settle();
    world.connect_later(1, 4, HERE);
    world.servers[0].handle(0, call(1, 6, 6), Time::ZERO);
    world.settle();
    assert_eq!(world.closed(0), []);
    assert_eq!(world.closed(1), [2, 3]);
}

#[test]
fn only_so_many_connections_beyond_the_limit_wait_for_others_to_close() {
    let most = SPARE as u64;
    let mut world = World::limited(2, SPARE * 2);
    for conn in 0..most * 2 {
        world.connect_later(0, conn, HERE);
    }
    for conn in 0..most + 5 {
        world.connect_later(1, conn, HERE);
    }
    // The first loop has had no step.
    assert_eq!(world.closed(1), (most..most + 5).collect::<Vec<_>>());
    world.settle();
    assert_eq!(world.closed(0), (0..most).collect::<Vec<_>>());
    world.connect_later(1, most + 5, HERE);
    assert_eq!(world.closed(1).len(), 5);
}

#[test]
fn among_connections_with_use_a_host_with_most_of_them_gives_way_first() {
    let mut world = World::limited(1, 4);
    world.connect_later(0, 1, host(1));
    world.call_later(0, 1, USE);
    for conn in 2..=4 {
        world.connect_later(0, conn, HERE);
        world.call_later(0, conn, USE);
    }
    // The other host's use is the longest ago.
    world.connect_later(0, 5, host(2));
    assert_eq!(world.closed(0), [2]);
    // Half of the connections is not most of them.
    world.call_later(0, 5, USE);
    world.connect_later(0, 6, host(3));
    assert_eq!(world.closed(0), [2, 1]);
}

#[test]
fn a_connection_that_is_not_accepted_yet_does_not_make_room() {
    let world = World::limited(1, 1);
    let admission = world.servers[0].transports[0].admission.clone();
    let later = Time::ZERO + Duration::from_secs(5);
    let place = admission.admit(host(1), Time::ZERO).unwrap();
    assert!(admission.admit(host(2), later).is_none());
    place.belongs_to(ConnectionId(1));
    assert!(admission.admit(host(2), later).is_some());
}

/// Regression test: a connection that ended before the server took its event had to make room, and
/// the server counted it, or its place was never given back.
#[test]
fn connections_that_the_server_does_not_know_yet_make_room() {
    let mut world = World::limited(1, 1);
    let admission = world.servers[0].transports[0].admission.clone();
    let admit = |world: &World, conn: u64, last: u8| {
        let place = admission.admit(host(last), world.clock.now()).unwrap();
        let conn = ConnectionId(conn);
        place.belongs_to(conn);
        let mut transport = world.transports[0].borrow_mut();
        transport.places.push((conn, place));
    };
    admit(&world, 1, 1);
    admit(&world, 2, 2);
    world.settle();
    assert_eq!(world.closed(0), [1]);
    assert_eq!(world.servers[0].stats().made_room, 0, "nobody used it");
    // The transport drops the place of the first one, and reports the second one, which has its
    // place already.
    world.transports[0].borrow_mut().places.remove(0);
    world.connect_from(0, 2, host(2));
    assert_eq!(world.closed(0), [1]);
    assert!(world.transports[0].borrow().places.is_empty());
    assert_eq!(world.servers[0].member.shared.places.taken(), 1);
}

/// Regression test: each connection that had to stay because of a job left the limit exceeded by
/// one, for ever.
#[test]
fn a_limit_that_is_exceeded_because_of_calls_is_reached_again() {
    let mut world = World::limited(2, 2);
    for conn in [1, 2] {
        world.connect_later(0, conn, HERE);
    }
    // Both are chosen, and busy before the loop of theirs looks.
    for conn in [3, 4] {
        world.connect_later(1, conn, host(conn as u8));
        world.call_later(1, conn, JOB);
    }
    for conn in [1, 2] {
        let call = call(conn, 50 + conn as u32, 50 + conn);
        world.servers[0].handle(0, call, Time::ZERO);
    }
    world.settle();
    let shared = Arc::clone(&world.servers[0].member.shared);
    assert_eq!((world.closed(0), world.closed(1)), (vec![], vec![]));
    assert_eq!(shared.places.taken(), 4, "all are busy");
    // Their calls end, and the next one is one too many no longer.
    for at in [0, 0, 1, 1] {
        assert!(world.servers[at].run_job());
        world.settle();
    }
    world.connect_later(0, 5, host(5));
    world.settle();
    assert_eq!(shared.places.taken(), 2);
    assert_eq!((world.closed(0), world.closed(1)), (vec![1, 2], vec![3]));
}

#[test]
fn busy_connections_hide_no_other_one_of_the_same_time() {
    let mut world = World::limited(1, 3);
    for conn in 1..=3 {
        world.connect_from(0, conn, HERE);
    }
    for conn in [1, 2] {
        world.event(0, call(conn, conn as u32, conn));
    }
    world.connect_later(0, 4, HERE);
    assert_eq!(world.closed(0), [3]);
}

/// The connections of a crowd that arrives in one step find room one after the other.
#[test]
fn a_crowd_finds_room_at_once() {
    let mut world = World::limited(1, 50);
    for conn in 0..50 {
        world.connect_later(0, conn, HERE);
    }
    world.later();
    let crowd = (50..100).map(|conn| ServerTransportEvent::Connected {
        conn: ConnectionId(conn),
        peer: SocketAddr::new(host(conn as u8), 700),
    });
    world.transports[0].borrow_mut().events.extend(crowd);
    world.settle();
    assert_eq!(world.closed(0), (0..50).collect::<Vec<_>>());
}

/// Regression test: a call that waited for another loop's reply, or was held for lack of workers,
/// did not protect its connection. Then the search chose such connections in turn, and their loop
/// woke itself without end until their calls had ended.
#[test]
fn connections_whose_calls_are_held_or_wait_do_not_make_room() {
    let mut world = World::limited(2, 3);
    for (at, conn) in [(0, 1), (1, 2), (1, 3)] {
        world.connect_later(at, conn, HERE);
    }
    world.event(0, call(1, 7, 1));
    for (conn, token) in [(2, 2), (3, 3)] {
        world.event(1, call(conn, 7, token));
        assert_eq!(world.answered(1).len(), conn as usize - 2, "the last waits");
    }
    world.connect_later(0, 4, host(1));
    // Of the two at the second loop, the one whose call has been sent again later elsewhere.
    world.settle();
    assert_eq!((world.closed(0), world.closed(1)), (vec![], vec![2]));
    world.connect_later(0, 5, host(1));
    world.settle();
    assert_eq!((world.closed(0), world.closed(1)), (vec![4], vec![2]));
    assert!(!world.servers[1].step(), "nothing is to be done");
    // The reply ends it.
    assert!(world.servers[0].run_job());
    world.settle();
    assert_eq!(world.answered(1), [(2, false), (3, true)]);
    world.call_later(0, 5, USE);
    world.connect_later(0, 6, host(2));
    world.settle();
    assert_eq!((world.closed(0), world.closed(1)), (vec![4, 1], vec![2]));
    world.connect_later(0, 7, host(3));
    world.settle();
    assert_eq!((world.closed(0), world.closed(1)), (vec![4, 1], vec![2, 3]));
}

#[test]
fn connections_whose_calls_are_held_stay() {
    let options = ServerOptions {
        max_connections: 3,
        max_jobs: 1,
        callbacks: true,
        ..ServerOptions::default()
    };
    let mut world = World::new(1, &options);
    world.transports[0].borrow_mut().takes_calls = true;
    for conn in 1..=3 {
        world.connect_later(0, conn, HERE);
    }
    world.start_callback(3);
    for conn in [1, 2, 3] {
        world.event(0, call(conn, conn as u32, conn));
    }
    assert_eq!(world.servers[0].held.len(), 2, "one is a job");
    world.connect_later(0, 4, host(1));
    assert_eq!(world.closed(0), [4], "the new one");
    for ended in 0..3 {
        assert!(world.servers[0].run_job(), "{ended}");
        world.settle();
    }
    assert_eq!(world.answered(0), [(1, true), (2, true), (3, true)]);
    // No call is in progress any more.
    for (conn, goes) in [(5, 1), (6, 2), (7, 3)] {
        world.connect_later(0, conn, host(conn as u8));
        assert_eq!(world.closed(0).last(), Some(&goes));
    }
}
