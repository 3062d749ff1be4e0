//! Tests of attempts, which run in batches on the loop.

use std::cell::Cell;

use super::*;

/// Procedures: an attempt that succeeds, one that becomes a job, and one that panics.
const SUCCEEDS: u32 = 1;
const BLOCKS: u32 = 2;
const PANICS: u32 = 3;

thread_local! {
    /// Whether this thread is in the state that attempts leave it in.
    static CHANGED: Cell<bool> = const { Cell::new(false) };
    /// The number of times that the state was restored.
    static RESTORED: Cell<usize> = const { Cell::new(0) };
}

fn restore() {
    CHANGED.set(false);
    RESTORED.set(RESTORED.get() + 1);
}

struct Attempts;

impl Service for Attempts {
    fn programs(&self) -> &[ProgramVersions] {
        &[ProgramVersions {
            prog: PROG,
            low: 1,
            high: 1,
        }]
    }

    fn call(&mut self, request: Request) -> ServiceOutcome {
        assert!(!CHANGED.get(), "the transports are used");
        if request.proc == NULL {
            return ServiceOutcome::Done(Ok(Message::default()));
        }
        ServiceOutcome::Attempt(Box::new(move || {
            if !CHANGED.replace(true) {
                assert!(after_attempts(restore));
            }
            match request.proc {
                SUCCEEDS => Attempted::Done(Ok(Message::default())),
                BLOCKS => Attempted::Later(Box::new(|| Ok(Message::default()))),
                _ => panic!("on purpose"),
            }
        }))
    }

    fn remember_reply(&self, _: u32, _: u32, _: u32) -> bool {
        true
    }
}

/// A transport that checks that it is used by the loop as itself.
#[derive(Default)]
struct Checked(Scripted);

impl PollSource for Checked {
    fn attach(&mut self, _: Poller) -> io::Result<()> {
        Ok(())
    }

    fn ready(&mut self, _: usize, _: bool) {}

    fn poll(&mut self, now: Time) -> bool {
        assert!(!CHANGED.get());
        self.0.poll(now)
    }

    fn arm(&mut self) -> bool {
        self.0.arm()
    }

    fn next_deadline(&self) -> Option<Time> {
        None
    }

    fn set_busy_poll(&mut self, _: bool) {}
}

impl ServerTransport for Checked {
    fn reply(&mut self, conn: ConnectionId, token: u64, message: Option<Message>, now: Time) {
        assert!(!CHANGED.get());
        self.0.reply(conn, token, message, now);
    }

    fn call(
        &mut self,
        conn: ConnectionId,
        xid: u32,
        message: Message,
        room: &ReplyRoom,
        now: Time,
    ) -> Result<(), CallError> {
        self.0.call(conn, xid, message, room, now)
    }

    fn cancel_call(&mut self, _: ConnectionId, _: u32) {}

    fn close(&mut self, conn: ConnectionId) {
        self.0.close(conn);
    }

    fn finish(&mut self, _: ConnectionId, _: Time) -> bool {
        true
    }

    fn pool(&self, _: ConnectionId) -> Pool {
        assert!(!CHANGED.get());
        Pool::new(1 << 20)
    }

    fn carrier(&self, _: ConnectionId) -> Carrier {
        Carrier::Device
    }

    fn is_rdma(&self) -> bool {
        false
    }

    fn next_event(&mut self) -> Option<ServerTransportEvent> {
        assert!(!CHANGED.get());
        self.0.next_event()
    }
}

/// Lets a server with this limit on jobs receive these calls at once. Returns it with its transport.
fn received(max_jobs: usize, procedures: &[u32]) -> (Server, Rc<RefCell<Checked>>) {
    let options = ServerOptions {
        max_jobs,
        ..ServerOptions::default()
    };
    let mut server = Server::simulated(Box::new(Attempts), options, Clock::simulated());
    let transport = Rc::new(RefCell::new(Checked::default()));
    server.add_transport(Rc::clone(&transport) as _).unwrap();
    let (conn, peer) = (ConnectionId(1), ([10, 0, 0, 1], 700).into());
    let connected = ServerTransportEvent::Connected { conn, peer };
    let calls = procedures.iter().zip(0..);
    let calls = calls.map(|(&proc, xid)| call_of(proc, 1, xid, u64::from(xid)));
    let events = std::iter::once(connected).chain(calls);
    transport.borrow_mut().0.events.extend(events);
    RESTORED.set(0);
    while server.step() {}
    (server, transport)
}

fn tokens(transport: &Rc<RefCell<Checked>>) -> Vec<u64> {
    let answered = &transport.borrow().0.answered;
    answered.iter().map(|(token, _)| *token).collect()
}

#[test]
fn attempts_run_together_and_the_loop_is_itself_before_it_answers() {
    let (server, transport) = received(100, &[SUCCEEDS; 10]);
    assert_eq!(tokens(&transport), Vec::from_iter(0..10));
    assert_eq!((RESTORED.get(), server.stats().jobs), (1, 0));
    // Replies do not wait for a whole crowd.
    let (_, transport) = received(100, &[SUCCEEDS; 33]);
    assert_eq!(tokens(&transport), Vec::from_iter(0..33));
    assert_eq!(RESTORED.get(), 3);
}

#[test]
fn a_call_that_would_wait_becomes_a_job_and_holds_up_no_other() {
    let (mut server, transport) = received(100, &[BLOCKS, SUCCEEDS, NULL, BLOCKS, SUCCEEDS]);
    assert_eq!(tokens(&transport), [2, 1, 4]);
    assert_eq!(server.stats().jobs, 2);
    while server.run_job() {}
    while server.step() {}
    assert_eq!(tokens(&transport), [2, 1, 4, 0, 3]);
    assert!(!after_attempts(restore), "this is no batch");
}

#[test]
fn an_attempt_that_panics_fails_its_call_alone() {
    let (_, transport) = received(100, &[SUCCEEDS, PANICS, SUCCEEDS]);
    assert_eq!(tokens(&transport), [0, 1, 2]);
    assert!(!CHANGED.get());
}

/// Attempts count as jobs, and their calls are found by retransmissions.
#[test]
fn attempts_are_bounded_and_their_replies_remembered() {
    let (mut server, transport) = received(1, &[SUCCEEDS, SUCCEEDS, SUCCEEDS]);
    assert_eq!(tokens(&transport), [0, 1, 2]);
    let again = call_of(SUCCEEDS, 1, 1, 9);
    transport.borrow_mut().0.events.push_back(again);
    while server.step() {}
    assert_eq!(tokens(&transport), [0, 1, 2, 9]);
    assert_eq!((server.stats().replayed, RESTORED.get()), (1, 3));
}

/// While callbacks are outstanding, calls beyond the job limit are held.
#[test]
fn attempts_of_calls_that_were_held_run_in_batches_as_well() {
    let options = ServerOptions {
        max_jobs: 40,
        callbacks: true,
        ..ServerOptions::default()
    };
    let mut server = Server::simulated(Box::new(Attempts), options, Clock::simulated());
    let transport = Rc::new(RefCell::new(Checked::default()));
    transport.borrow_mut().0.takes_calls = true;
    server.add_transport(Rc::clone(&transport) as _).unwrap();
    let (conn, peer) = (ConnectionId(1), ([10, 0, 0, 1], 700).into());
    let connected = ServerTransportEvent::Connected { conn, peer };
    let jobs = (0..40).map(|xid| call_of(BLOCKS, 1, xid, u64::from(xid)));
    let events = std::iter::once(connected).chain(jobs);
    transport.borrow_mut().0.events.extend(events);
    while server.step() {}
    let callback = crate::Call {
        prog: PROG,
        vers: 1,
        proc: 1,
        args: Message::default(),
        reply: ReplyRoom::default(),
    };
    let callee = server.callee((0, conn), peer).unwrap();
    callee.call(callback, Duration::from_secs(60), |_| {});
    let held = (40..80).map(|xid| call_of(SUCCEEDS, 1, xid, u64::from(xid)));
    transport.borrow_mut().0.events.extend(held);
    while server.step() {}
    assert_eq!(server.held.len(), 40);
    while server.run_job() {}
    RESTORED.set(0);
    while server.step() {}
    assert_eq!(tokens(&transport), Vec::from_iter(0..80));
    assert_eq!(RESTORED.get(), 3);
}

/// The loop has one thread for all of its transports.
#[test]
fn a_service_learns_that_any_transport_of_the_loop_needs_the_credentials_of_the_thread() {
    struct Told(Arc<AtomicUsize>);

    impl Service for Told {
        fn programs(&self) -> &[ProgramVersions] {
            Attempts.programs()
        }

        fn call(&mut self, request: Request) -> ServiceOutcome {
            let keeps = request.keeps_credentials();
            self.0.fetch_add(usize::from(keeps), Relaxed);
            ServiceOutcome::Done(Ok(Message::default()))
        }

        fn remember_reply(&self, _: u32, _: u32, _: u32) -> bool {
            false
        }
    }

    fn scripted(keeps_credentials: bool) -> Rc<RefCell<Scripted>> {
        Rc::new(RefCell::new(Scripted {
            keeps_credentials,
            ..Scripted::default()
        }))
    }

    for (keeping, expected) in [(None, 0), (Some(0), 2), (Some(1), 2)] {
        let told = Arc::default();
        let service = Box::new(Told(Arc::clone(&told)));
        let options = ServerOptions::default();
        let mut server = Server::simulated(service, options, Clock::simulated());
        for at in 0..2 {
            let transport = scripted(keeping == Some(at));
            server.add_transport(Rc::clone(&transport) as _).unwrap();
            let (conn, peer) = (ConnectionId(1), ([10, 0, 0, 1], 700).into());
            let connected = ServerTransportEvent::Connected { conn, peer };
            transport
                .borrow_mut()
                .events
                .extend([connected, call_of(SUCCEEDS, 1, 1, 1)]);
        }
        while server.step() {}
        assert_eq!(told.load(Relaxed), expected, "{keeping:?}");
    }
}
