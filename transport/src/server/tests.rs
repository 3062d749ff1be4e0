//! Tests of servers and of groups of them, with transports that only record.

use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use onc_rpc::{Credential, Verifier};
use rdma::{Carrier, Ending, Poller, Pool};

use super::*;
use crate::{CallError, PollSource, ProgramVersions, ReplyRoom};

mod admission;
mod attempts;
mod draining;
mod statistics;

const PROG: u32 = 400_000;
/// Procedures: one that anybody may call, a job that must not be executed twice, and one that
/// counts as use.
const NULL: u32 = 0;
const JOB: u32 = 1;
const USE: u32 = 2;
/// Procedures that must not be executed twice either: one that changes nothing, one that is refused,
/// and one that fails on the way.
const VAIN: u32 = 3;
const DENIED: u32 = 4;
const BROKEN: u32 = 5;

/// A transport whose events the test makes.
#[derive(Default)]
struct Scripted {
    events: VecDeque<ServerTransportEvent>,
    /// The answers, with the tokens of the calls: true for a reply, false for none.
    answered: Vec<(u64, bool)>,
    closed: Vec<u64>,
    /// Places that the transport took before it accepted connections.
    places: Vec<(ConnectionId, Place)>,
    /// Whether clients take calls, which they never answer.
    takes_calls: bool,
    keeps_credentials: bool,
    /// Replies, and then bytes of ended connections, leave while the loop sleeps: the number of sleeps of a second
    /// that each takes, and the clock.
    slow: Option<(u32, u32, Clock)>,
}

impl PollSource for Scripted {
    fn attach(&mut self, _: Poller) -> io::Result<()> {
        Ok(())
    }

    fn ready(&mut self, _: usize, _: bool) {}

    fn poll(&mut self, _: Time) -> bool {
        !self.events.is_empty()
    }

    fn arm(&mut self) -> bool {
        if let Some((replies, ended, clock)) = &mut self.slow
            && self.events.is_empty()
        {
            clock.advance_to(clock.now() + Duration::from_secs(1));
            let busy = if *replies > 0 { replies } else { ended };
            *busy = busy.saturating_sub(1);
        }
        self.events.is_empty()
    }

    fn next_deadline(&self) -> Option<Time> {
        None
    }

    fn set_busy_poll(&mut self, _: bool) {}
}

impl ServerTransport for Scripted {
    fn reply(&mut self, _: ConnectionId, token: u64, message: Option<Message>, _: Time) {
        self.answered.push((token, message.is_some()));
    }

    fn call(
        &mut self,
        _: ConnectionId,
        _: u32,
        _: Message,
        _: &ReplyRoom,
        _: Time,
    ) -> Result<(), CallError> {
        match self.takes_calls {
            true => Ok(()),
            false => Err(CallError::Closed),
        }
    }

    fn cancel_call(&mut self, _: ConnectionId, _: u32) {}

    fn close(&mut self, conn: ConnectionId) {
        self.closed.push(conn.0);
    }

    fn finish(&mut self, conn: ConnectionId, _: Time) -> bool {
        if matches!(self.slow, Some((1.., ..))) {
            return false;
        }
        self.close(conn);
        let reason = "closed by this side".to_owned();
        let event = ServerTransportEvent::Disconnected { conn, reason };
        self.events.push_back(event);
        true
    }

    fn ending(&self) -> Ending {
        match self.slow {
            Some((0, 1.., _)) => Ending::Sending,
            _ => Ending::Ended,
        }
    }

    fn pool(&self, _: ConnectionId) -> Pool {
        Pool::new(1 << 20)
    }

    fn carrier(&self, _: ConnectionId) -> Carrier {
        // Clients are other hosts.
        Carrier::Device
    }

    fn is_rdma(&self) -> bool {
        false
    }

    fn keeps_credentials(&self) -> bool {
        self.keeps_credentials
    }

    fn take_place(&mut self, conn: ConnectionId) -> Option<Place> {
        let at = self.places.iter().position(|(of, _)| *of == conn)?;
        Some(self.places.remove(at).1)
    }

    fn next_event(&mut self) -> Option<ServerTransportEvent> {
        self.events.pop_front()
    }
}

/// A service that counts its jobs.
struct Jobs(Arc<AtomicUsize>);

impl Service for Jobs {
    fn programs(&self) -> &[ProgramVersions] {
        &[ProgramVersions {
            prog: PROG,
            low: 1,
            high: 1,
        }]
    }

    fn call(&mut self, request: Request) -> ServiceOutcome {
        if request.proc == USE {
            request.count_as_use();
        }
        let error = match request.proc {
            JOB => None,
            DENIED => Some(AcceptStatus::GarbageArgs),
            BROKEN => Some(AcceptStatus::SystemErr),
            _ => return ServiceOutcome::Done(Ok(Message::default())),
        };
        if let Some(error) = error {
            return ServiceOutcome::Done(Err(ErrorReply::Accepted(error)));
        }
        let executed = Arc::clone(&self.0);
        ServiceOutcome::Later(Box::new(move || {
            executed.fetch_add(1, Relaxed);
            Ok(Message::default())
        }))
    }

    fn remember_reply(&self, _: u32, _: u32, proc: u32) -> bool {
        matches!(proc, JOB | VAIN | DENIED | BROKEN)
    }

    fn has_changed(&self, _: u32, _: u32, proc: u32, _: &Message) -> bool {
        proc != VAIN
    }
}

/// A group of loops, each with one transport.
struct World {
    servers: Vec<Server>,
    transports: Vec<Rc<RefCell<Scripted>>>,
    executed: Arc<AtomicUsize>,
    clock: Clock,
}

impl World {
    fn new(loops: usize, options: &ServerOptions) -> Self {
        let (group, executed) = (ServerGroup::new(loops, options), Arc::default());
        let clock = Clock::simulated();
        let (mut servers, mut transports) = (Vec::new(), Vec::new());
        for index in 0..loops {
            let service = Box::new(Jobs(Arc::clone(&executed)));
            let clock = clock.clone();
            let mut server =
                Server::simulated_in_group(&group, index, service, options.clone(), clock);
            let transport = Rc::new(RefCell::new(Scripted::default()));
            server.add_transport(Rc::clone(&transport) as _).unwrap();
            servers.push(server);
            transports.push(transport);
        }
        Self {
            servers,
            transports,
            executed,
            clock,
        }
    }

    fn event(&mut self, at: usize, event: ServerTransportEvent) {
        self.transports[at].borrow_mut().events.push_back(event);
        while self.servers[at].step() {}
    }

    fn connect(&mut self, at: usize, conn: u64) {
        self.connect_from(at, conn, [10, 0, 0, 1].into());
    }

    fn connect_from(&mut self, at: usize, conn: u64, host: std::net::IpAddr) {
        let (conn, peer) = (ConnectionId(conn), SocketAddr::new(host, 700));
        self.event(at, ServerTransportEvent::Connected { conn, peer });
    }

    /// Lets a loop receive a transmission of the call with this XID.
    fn call(&mut self, at: usize, xid: u32, token: u64) {
        self.event(at, call(1, xid, token));
    }

    /// Lets every loop do what it can.
    fn settle(&mut self) {
        while self
            .servers
            .iter_mut()
            .fold(false, |progress, server| progress | server.step())
        {}
    }

    /// Lets the first loop call the client of a connection, which does not answer.
    fn start_callback(&mut self, conn: u64) {
        let peer = SocketAddr::from(([10, 0, 0, 1], 700));
        let callee = self.servers[0].callee((0, ConnectionId(conn)), peer);
        let callback = crate::Call {
            prog: PROG,
            vers: 1,
            proc: 1,
            args: Message::default(),
            reply: ReplyRoom::default(),
        };
        callee
            .unwrap()
            .call(callback, Duration::from_secs(60), |_| {});
        self.settle();
    }

    fn answered(&self, at: usize) -> Vec<(u64, bool)> {
        self.transports[at].borrow().answered.clone()
    }
}

/// Returns the event of a call of [`JOB`] on a connection.
fn call(conn: u64, xid: u32, token: u64) -> ServerTransportEvent {
    call_of(JOB, conn, xid, token)
}

/// Returns the event of a call of this procedure on a connection.
fn call_of(proc: u32, conn: u64, xid: u32, token: u64) -> ServerTransportEvent {
    let header = CallHeader {
        xid,
        prog: PROG,
        vers: 1,
        proc,
        cred: Credential::None,
        verf: Verifier::default(),
    };
    let (conn, message) = (ConnectionId(conn), Message::from_payload(header.encode()));
    ServerTransportEvent::Call {
        conn,
        token,
        message,
    }
}

#[test]
fn a_call_that_is_sent_again_to_another_loop_is_executed_once_and_answered_there() {
    let mut world = World::new(2, &ServerOptions::default());
    world.connect(0, 1);
    world.connect(1, 1);
    world.call(0, 5, 50);
    world.call(1, 5, 51);
    world.settle();
    assert!(world.answered(0).is_empty() && world.answered(1).is_empty());
    assert!(world.servers[0].run_job() && !world.servers[1].run_job());
    world.settle();
    assert_eq!(world.answered(0), [(50, false)]);
    assert_eq!(world.answered(1), [(51, true)]);
    // A third transmission finds the reply, wherever it arrives.
    world.call(1, 5, 52);
    world.call(0, 5, 53);
    assert_eq!(world.answered(0), [(50, false), (53, true)]);
    assert_eq!(world.answered(1), [(51, true), (52, true)]);
    assert_eq!(world.executed.load(Relaxed), 1);
    let stats: Vec<_> = world.servers.iter().map(Server::stats).collect();
    assert_eq!((stats[0].jobs, stats[1].jobs), (1, 0));
    assert_eq!((stats[0].joined, stats[1].joined), (0, 1));
}

#[test]
fn of_transmissions_at_several_loops_the_last_one_gets_the_reply_and_each_is_answered_once() {
    let mut world = World::new(3, &ServerOptions::default());
    for at in 0..3 {
        world.connect(at, 1);
    }
    // The last entry is the loop at which the reply is due.
    for (xid, order) in [[0, 1, 2], [0, 1, 0], [1, 0, 0], [2, 1, 1], [0, 2, 1]]
        .iter()
        .enumerate()
    {
        let before: Vec<usize> = (0..3).map(|at| world.answered(at).len()).collect();
        for (nth, &at) in order.iter().enumerate() {
            world.call(at, xid as u32, (xid * 10 + nth) as u64);
        }
        world.settle();
        assert!(world.servers[order[0]].run_job());
        world.settle();
        let mut answers: Vec<(u64, usize, bool)> = (0..3)
            .flat_map(|at| {
                let new = world.answered(at).split_off(before[at]);
                new.into_iter()
                    .map(move |(token, reply)| (token, at, reply))
            })
            .collect();
        answers.sort_unstable();
        let expected: Vec<(u64, usize, bool)> = order
            .iter()
            .enumerate()
            .map(|(nth, &at)| ((xid * 10 + nth) as u64, at, nth == 2))
            .collect();
        assert_eq!(answers, expected, "{order:?}");
    }
    assert!(world.servers.iter().all(|server| server.waiting.is_empty()));
}

/// Regression test: one client emptied the reply cache of all, and the calls of others were
/// executed twice.
#[test]
fn a_client_that_makes_many_calls_does_not_evict_the_replies_of_another() {
    let options = ServerOptions {
        reply_cache_entries: 64,
        ..ServerOptions::default()
    };
    let mut world = World::new(1, &options);
    world.connect_from(0, 1, [10, 0, 0, 1].into());
    world.connect_from(0, 2, [10, 0, 0, 2].into());
    world.call(0, 5, 0);
    for xid in 0..1000 {
        world.event(0, call(2, xid, 1));
        while world.servers[0].run_job() {}
    }
    world.settle();
    let executed = world.executed.load(Relaxed);
    assert_eq!(executed, 1001);
    world.call(0, 5, 2);
    assert_eq!(world.executed.load(Relaxed), executed);
    assert_eq!(world.servers[0].stats().replayed, 1);
    assert_eq!(world.answered(0).last(), Some(&(2, true)));
}

/// Replies of calls that have changed nothing evict no others, beyond an eighth of the cache.
#[test]
fn calls_that_have_changed_nothing_do_not_evict_the_reply_to_one_that_has() {
    for (proc, is_kept) in [(VAIN, true), (DENIED, true), (BROKEN, false)] {
        let options = ServerOptions {
            reply_cache_entries: 64,
            ..ServerOptions::default()
        };
        let mut world = World::new(1, &options);
        world.connect(0, 1);
        world.call(0, 5, 0);
        assert!(world.servers[0].run_job());
        for xid in 10..200 {
            world.event(0, call_of(proc, 1, xid, 1));
        }
        world.call(0, 5, 2);
        let replayed = world.servers[0].stats().replayed;
        assert_eq!(replayed == 1, is_kept, "procedure {proc}");
    }
}

#[test]
fn a_reply_for_a_connection_that_has_ended_meanwhile_is_dropped() {
    let mut world = World::new(2, &ServerOptions::default());
    world.connect(0, 1);
    world.connect(1, 1);
    world.call(0, 5, 50);
    world.call(1, 5, 51);
    let (conn, reason) = (ConnectionId(1), "gone".to_owned());
    world.event(1, ServerTransportEvent::Disconnected { conn, reason });
    world.servers[0].run_job();
    world.settle();
    // What becomes of a reply for a connection that is gone is the transport's matter.
    assert_eq!(world.answered(0), [(50, false)]);
    assert!(world.servers[1].waiting.is_empty());
}

#[test]
fn a_loop_that_ends_leaves_no_call_in_progress() {
    let mut world = World::new(2, &ServerOptions::default());
    world.connect(0, 1);
    world.connect(1, 1);
    for xid in [5, 6] {
        world.call(1, xid, u64::from(xid) * 10);
        world.call(0, xid, u64::from(xid) * 10 + 1);
    }
    // One of the two calls was executed, but the loop has not noticed.
    assert!(world.servers[1].run_job());
    world.servers.truncate(1);
    world.settle();
    assert_eq!(world.answered(1), [], "its connections end with it");
    assert_eq!(world.answered(0), [(51, true), (61, false)]);
    assert!(world.servers[0].waiting.is_empty());
    // The other one is executed when it is sent again.
    world.call(0, 6, 62);
    assert!(world.servers[0].run_job());
    world.settle();
    assert_eq!(world.answered(0)[2..], [(62, true)]);
    assert_eq!(world.executed.load(Relaxed), 2);
}

#[test]
fn the_limit_on_connections_holds_for_all_loops_together() {
    let options = ServerOptions {
        max_connections: 3,
        ..ServerOptions::default()
    };
    let mut world = World::new(2, &options);
    let busy = |world: &mut World, at: usize, conn: u64| {
        world.connect(at, conn);
        let xid = (at * 100) as u32 + conn as u32;
        world.event(at, call(conn, xid, xid.into()));
    };
    for conn in 0..2 {
        busy(&mut world, 0, conn);
        busy(&mut world, 1, conn);
    }
    let closed = |world: &World, at: usize| world.transports[at].borrow().closed.len();
    assert_eq!((closed(&world, 0), closed(&world, 1)), (0, 1));
    let (conn, reason) = (ConnectionId(0), "gone".to_owned());
    world.event(0, ServerTransportEvent::Disconnected { conn, reason });
    busy(&mut world, 1, 5);
    assert_eq!(closed(&world, 1), 1);
    // A loop that ends gives its connections back.
    world.servers.truncate(1);
    for conn in 6..9 {
        busy(&mut world, 0, conn);
    }
    assert_eq!(closed(&world, 0), 1);
}

/// Regression test: a transport whose clients always had another call took every job that became free, and
/// the other transport was not looked at.
#[test]
fn a_transport_that_always_has_calls_does_not_keep_the_others_waiting() {
    let options = ServerOptions {
        max_jobs: 1,
        ..ServerOptions::default()
    };
    let mut world = World::new(1, &options);
    let other = Rc::new(RefCell::new(Scripted::default()));
    world.servers[0]
        .add_transport(Rc::clone(&other) as _)
        .unwrap();
    world.connect(0, 1);
    for xid in 0..50 {
        world.call(0, xid, xid.into());
    }
    let peer = SocketAddr::from(([10, 0, 0, 2], 700));
    let conn = ConnectionId(7);
    let connected = ServerTransportEvent::Connected { conn, peer };
    other
        .borrow_mut()
        .events
        .extend([connected, call(7, 100, 100), call(7, 101, 101)]);
    for _ in 0..6 {
        world.settle();
        assert!(world.servers[0].run_job());
    }
    world.settle();
    assert_eq!(other.borrow().answered, [(100, true), (101, true)]);
    assert_eq!(world.answered(0).len(), 4);
}

#[test]
fn a_connection_whose_calls_wait_for_the_job_limit_is_not_idle() {
    let options = ServerOptions {
        max_jobs: 1,
        idle_timeout: Duration::from_secs(1),
        ..ServerOptions::default()
    };
    let mut world = World::new(1, &options);
    world.connect(0, 1);
    world.connect(0, 2);
    world.call(0, 1, 1);
    world.event(0, call(2, 2, 2));
    let seconds = |seconds| Time::ZERO + Duration::from_secs(seconds);
    world.clock.advance_to(seconds(5));
    world.settle();
    assert_eq!(world.transports[0].borrow().closed, []);
    // The search is long due when the first job ends.
    world.clock.advance_to(seconds(9));
    for _ in 0..2 {
        assert!(world.servers[0].run_job());
        world.settle();
        assert_eq!(world.transports[0].borrow().closed, []);
    }
    assert_eq!(world.answered(0), [(1, true), (2, true)]);
    // Then both connections are idle.
    for second in 10..=12 {
        world.clock.advance_to(seconds(second));
        world.settle();
    }
    assert_eq!(world.transports[0].borrow().closed.len(), 2);
}

/// Regression test: while callbacks are outstanding, calls beyond the job limit are held, and those of a
/// connection that had ended were held too.
#[test]
fn calls_that_are_held_go_with_their_connection() {
    let options = ServerOptions {
        max_jobs: 1,
        callbacks: true,
        ..ServerOptions::default()
    };
    let mut world = World::new(1, &options);
    world.transports[0].borrow_mut().takes_calls = true;
    world.connect(0, 1);
    world.connect(0, 2);
    world.start_callback(1);
    for xid in 0..4 {
        world.event(0, call(1 + u64::from(xid % 2), xid, xid.into()));
    }
    assert_eq!(world.servers[0].held.len(), 3, "one is a job");
    let (conn, reason) = (ConnectionId(2), "gone".to_owned());
    world.event(0, ServerTransportEvent::Disconnected { conn, reason });
    assert_eq!(world.servers[0].held.len(), 1);
    for _ in 0..2 {
        assert!(world.servers[0].run_job());
        world.settle();
    }
    assert_eq!(world.answered(0), [(0, true), (2, true)]);
}

#[test]
fn calls_beyond_the_job_limit_stay_in_their_transport() {
    let options = ServerOptions {
        max_jobs: 3,
        ..ServerOptions::default()
    };
    let mut world = World::new(1, &options);
    world.connect(0, 1);
    for xid in 0..10 {
        world.call(0, xid, xid.into());
    }
    for ended in 0..=10 {
        let left = world.transports[0].borrow().events.len();
        assert_eq!(
            left,
            7_usize.saturating_sub(ended),
            "{ended} jobs have ended"
        );
        assert_eq!(world.servers[0].run_job(), ended < 10);
        world.settle();
    }
}

/// Regression test: a stop during a step wakes the loop, and the step consumes the wake-up. The loop must
/// check the stop before it sleeps, or it sleeps for ever.
#[test]
fn a_stop_during_a_step_is_looked_at_before_sleeping() {
    let service = Box::new(Jobs(Arc::default()));
    let mut server = Server::new(service, ServerOptions::default()).unwrap();
    let stop = Stop::new();
    stop.register(&server.wake);
    assert!(!server.step());
    stop.stop();
    assert!(server.step());
    assert!(!server.step());
}
