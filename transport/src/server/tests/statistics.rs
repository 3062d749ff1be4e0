//! Statistics of loops, and the counts of their calls.

use super::*;
use crate::{CallResult, LoopStatistics, ProcedureCounts};

/// Results have no status in this program.
fn no_status(_: u32, _: u32, _: u32, _: &mut onc_rpc::Decoder<'_>) -> Option<u32> {
    None
}

fn counting() -> ServerOptions {
    ServerOptions {
        count_calls: Some(no_status),
        ..ServerOptions::default()
    }
}

/// Returns the counts of a procedure.
fn of(statistics: &LoopStatistics, proc: u32) -> ProcedureCounts {
    let found = statistics.procedures.iter();
    let found = found.filter(|counts| counts.procedure == Some(proc));
    let [only] = &found.collect::<Vec<_>>()[..] else {
        panic!("{statistics:?}");
    };
    (*only).clone()
}

#[test]
fn calls_are_counted_by_procedure_and_result_when_they_end() {
    let mut world = World::new(1, &counting());
    world.connect(0, 1);
    world.event(0, call_of(NULL, 1, 1, 10));
    world.event(0, call_of(DENIED, 1, 2, 11));
    world.event(0, call_of(JOB, 1, 3, 12));
    // No such program.
    let header = CallHeader {
        xid: 4,
        prog: PROG + 1,
        vers: 1,
        proc: 0,
        cred: Credential::None,
        verf: Verifier::default(),
    };
    world.event(
        0,
        ServerTransportEvent::Call {
            conn: ConnectionId(1),
            token: 13,
            message: Message::from_payload(header.encode()),
        },
    );
    let early = world.servers[0].statistics();
    assert_eq!((early.jobs, early.procedures.len()), (1, 2), "{early:?}");
    let later = world.clock.now() + Duration::from_millis(3);
    world.clock.advance_to(later);
    assert!(world.servers[0].run_job());
    world.settle();
    // The same call again is answered from the cache, and not counted again.
    world.event(0, call_of(JOB, 1, 3, 14));
    let found = world.servers[0].statistics();
    let (null, denied, job) = (of(&found, NULL), of(&found, DENIED), of(&found, JOB));
    assert_eq!(null.program, (PROG, 1));
    assert_eq!((null.succeeded, null.failed()), (1, 0));
    assert_eq!(denied.failed, [(CallResult::Refused("garbage_args"), 1)]);
    assert_eq!((job.calls(), job.latency.count()), (1, 1));
    assert_eq!(job.latency.nanos, 3_000_000);
    assert_eq!(null.latency.nanos, 0);
    assert_eq!(found.refusals, [("prog_unavail", 1)]);
    assert_eq!((found.server.replayed, found.jobs, found.held), (1, 0, 0));
}

/// Regression test: the time for which a call was held was not in its latency.
#[test]
fn the_latency_of_a_call_has_the_time_for_which_it_was_held() {
    let options = ServerOptions {
        max_jobs: 1,
        callbacks: true,
        ..counting()
    };
    let mut world = World::new(1, &options);
    world.transports[0].borrow_mut().takes_calls = true;
    world.connect(0, 1);
    world.start_callback(1);
    world.event(0, call_of(JOB, 1, 1, 10));
    world.event(0, call_of(JOB, 1, 2, 11));
    assert_eq!(world.servers[0].held.len(), 1);
    for millis in [3, 2] {
        let later = world.clock.now() + Duration::from_millis(millis);
        world.clock.advance_to(later);
        assert!(world.servers[0].run_job());
        world.settle();
    }
    let job = of(&world.servers[0].statistics(), JOB);
    assert_eq!((job.calls(), job.latency.nanos), (2, 8_000_000));
}

#[test]
fn nothing_is_counted_by_procedure_unless_it_was_asked_for() {
    let mut world = World::new(1, &ServerOptions::default());
    world.connect(0, 1);
    world.event(0, call_of(NULL, 1, 1, 10));
    let found = world.servers[0].statistics();
    assert!(found.procedures.is_empty() && found.refusals.is_empty());
    assert_eq!(found.server.calls, 1);
}

#[test]
fn each_loop_tells_its_own_statistics_and_one_that_does_not_answer_delays_nobody_for_ever() {
    let options = counting();
    let group = ServerGroup::new(3, &options);
    let stop = Stop::new();
    std::thread::scope(|scope| {
        for index in 0..2 {
            let (group, options, stop) = (group.clone(), options.clone(), stop.clone());
            scope.spawn(move || {
                let service = Box::new(Jobs(Arc::default()));
                let mut server = Server::in_group(&group, index, service, options).unwrap();
                let transport = Rc::new(RefCell::new(Scripted::default()));
                let (conn, peer) = (ConnectionId(1), SocketAddr::from(([10, 0, 0, 1], 700)));
                let mut calls = VecDeque::new();
                calls.push_back(ServerTransportEvent::Connected { conn, peer });
                for xid in 0..=index as u32 {
                    calls.push_back(call_of(NULL, 1, xid, 10));
                }
                transport.borrow_mut().events = calls;
                server.add_transport(transport as _).unwrap();
                server.run(&stop).unwrap();
            });
        }
        // The third loop was never made. The others answer as soon as they run.
        let begun = std::time::Instant::now();
        let found = loop {
            let found = group.statistics(Duration::from_millis(200));
            let calls = |at: usize| found[at].as_ref().map(|it| it.server.calls);
            if (calls(0), calls(1)) == (Some(1), Some(2)) {
                break found;
            }
            assert!(begun.elapsed().as_secs() < 60, "{found:?}");
        };
        stop.stop();
        assert!(found[2].is_none());
        let null = of(found[1].as_ref().unwrap(), NULL);
        assert_eq!((null.calls(), null.latency.count()), (2, 2));
    });
    let cache = group.reply_cache();
    assert_eq!((cache.entries, cache.bytes), (0, 0));
    assert!(cache.most_entries >= options.reply_cache_entries);
    assert!(cache.most_bytes <= options.reply_cache_bytes && cache.most_bytes > 0);
}

#[test]
fn the_reply_cache_tells_its_size() {
    let mut world = World::new(1, &counting());
    world.connect(0, 1);
    for xid in 0..3 {
        world.call(0, xid, u64::from(xid));
        assert!(world.servers[0].run_job());
        world.settle();
    }
    let cache = &world.servers[0].member.shared.cache;
    let (entries, bytes) = cache.size();
    assert_eq!(entries, 3);
    assert!(bytes > 0 && bytes < cache.limits().1);
}
