//! Tests of the orderly end of a server.

use super::*;

impl World {
    /// Lets the first loop do what it can, as [`Server::drain`] does. Returns whether its connections have ended.
    fn drains(&mut self) -> bool {
        self.settle();
        let now = self.clock.now();
        let ended = self.servers[0].close_answered(now);
        self.settle();
        ended == Ending::Ended
    }

    fn closed_in_order(&self) -> Vec<u64> {
        self.transports[0].borrow().closed.clone()
    }
}

#[test]
fn calls_that_have_begun_are_answered_and_no_others_begin() {
    let mut world = World::new(1, &ServerOptions::default());
    for conn in [1, 2] {
        world.connect(0, conn);
    }
    world.call(0, 5, 50);
    world.servers[0].begin_drain();
    assert!(!world.drains() && !world.servers[0].has_answered());
    assert_eq!(
        world.closed_in_order(),
        [2],
        "the other has a call in progress"
    );
    // Neither a call nor a connection that comes now is taken.
    world.call(0, 6, 60);
    world.connect(0, 3);
    assert!(!world.drains());
    assert_eq!(world.answered(0), [(60, false)]);
    assert_eq!(world.closed_in_order(), [2, 3]);
    assert!(world.servers[0].run_job() && !world.servers[0].run_job());
    assert!(!world.drains() && world.servers[0].has_answered());
    assert_eq!(world.answered(0), [(60, false), (50, true)]);
    assert_eq!(world.closed_in_order(), [2, 3, 1]);
    assert!(world.drains(), "no connection is left");
    assert_eq!(world.executed.load(Relaxed), 1);
}

/// Calls that were taken from their transport, but had to wait for a job, have not begun.
#[test]
fn calls_that_were_held_are_dropped() {
    let options = ServerOptions {
        max_jobs: 1,
        callbacks: true,
        ..ServerOptions::default()
    };
    let mut world = World::new(1, &options);
    world.transports[0].borrow_mut().takes_calls = true;
    for conn in [1, 2] {
        world.connect(0, conn);
    }
    world.start_callback(1);
    for conn in [1, 2] {
        world.event(0, call(conn, conn as u32, conn));
    }
    assert_eq!(world.servers[0].held.len(), 1, "one is a job");
    world.servers[0].begin_drain();
    assert!(!world.drains());
    assert_eq!(world.closed_in_order(), [2]);
    assert!(world.servers[0].run_job());
    assert!(!world.drains() && world.drains());
    assert_eq!(world.answered(0), [(2, false), (1, true)]);
    assert_eq!(world.executed.load(Relaxed), 1);
}

/// Over RDMA, a connection gets its place before it is reported. The transport may have accepted it before
/// the end began, and is told to finish it in order like the others.
#[test]
fn a_connection_that_was_accepted_before_the_end_is_a_peer() {
    let mut world = World::new(1, &ServerOptions::default());
    let admission = world.servers[0].transports[0].admission.clone();
    let conn = ConnectionId(1);
    let place = admission.admit([10, 0, 0, 1].into(), Time::ZERO).unwrap();
    place.belongs_to(conn);
    world.transports[0].borrow_mut().places.push((conn, place));
    world.servers[0].begin_drain();
    world.connect(0, 1);
    assert_eq!(world.closed_in_order(), []);
    assert!(world.servers[0].transports[0].peers.contains_key(&conn));
    assert!(!world.drains() && world.drains());
    assert_eq!(world.closed_in_order(), [1]);
}

#[test]
fn no_connection_is_admitted_any_more() {
    let mut world = World::new(1, &ServerOptions::default());
    let admission = world.servers[0].transports[0].admission.clone();
    let admit = |now| admission.admit([10, 0, 0, 1].into(), now).is_some();
    assert!(admit(Time::ZERO));
    world.servers[0].begin_drain();
    assert!(!admit(Time::ZERO));
}

/// Regression test: a queued reply counted as answered, and clients had a second from then on.
#[test]
fn replies_have_the_time_that_they_need_to_leave() {
    for (replies, ended, within, expected) in [
        (0, 0, 30, (true, 0)),
        (9, 0, 30, (true, 9)),
        (9, 9, 30, (true, 18)),
        (9, 0, 5, (false, 5)),
        (3, 9, 5, (false, 5)),
    ] {
        let mut world = World::new(1, &ServerOptions::default());
        world.connect(0, 1);
        let slow = Some((replies, ended, world.clock.clone()));
        world.transports[0].borrow_mut().slow = slow;
        let answered = world.servers[0].drain(Duration::from_secs(within)).unwrap();
        let taken = world.clock.now().since(Time::ZERO).as_secs();
        assert_eq!((answered, taken), expected, "{replies} {ended} {within}");
    }
}

/// A call in progress may need a callback. One that nobody waits for would only delay the end.
#[test]
fn a_server_without_calls_in_progress_makes_no_callbacks_any_more() {
    let options = ServerOptions {
        callbacks: true,
        ..ServerOptions::default()
    };
    let mut world = World::new(1, &options);
    world.transports[0].borrow_mut().takes_calls = true;
    world.connect(0, 1);
    world.call(0, 5, 50);
    world.servers[0].begin_drain();
    world.start_callback(1);
    assert_eq!(world.servers[0].stats().callbacks, 1);
    assert!(world.servers[0].run_job());
    world.settle();
    world.start_callback(1);
    assert_eq!(world.servers[0].stats().callbacks, 1);
}
