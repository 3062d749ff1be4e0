//! Tests of when operations begin, on a clock of the test's own.

use std::cell::{Cell, RefCell};
use std::future::{Future, pending, ready};
use std::time::Duration;

use futures_util::FutureExt;
use nfs_binding::client::RpcClient;
use nfs_binding::proto::FileHandle;
use rpc_transport::{Call, CallError, Reply};
use rpcrdma_programs::workload::{Op, Pace, Until, drive};

/// A client whose calls are never answered. Sleeping advances the clock.
#[derive(Default)]
struct Unanswered {
    now: Cell<Duration>,
    calls: RefCell<Vec<Duration>>,
}

impl RpcClient for Unanswered {
    fn call(&self, _: Call) -> impl Future<Output = Result<Reply, CallError>> {
        self.calls.borrow_mut().push(self.now.get());
        pending()
    }

    fn sleep(&self, duration: Duration) -> impl Future<Output = ()> {
        self.now.set(self.now.get() + duration);
        ready(())
    }
}

/// Drives NULL until nothing moves any more. Returns the times of calls, and the error if there was
/// one.
fn driven(pace: Pace, until: Until) -> (Vec<Duration>, Option<String>) {
    let client = Unanswered::default();
    let null = Op::Null.on(None::<FileHandle>).expect("NULL needs no file");
    let now = || client.now.get();
    let driving = drive(&client, &null, (pace, until), 0, &now, |_| ()).now_or_never();
    let error = driving.and_then(Result::err);
    (client.calls.take(), error.map(|error| error.to_string()))
}

#[test]
fn so_many_are_in_flight() {
    for (calls, count, begun) in [(1, 9, 1), (16, 100, 16), (16, 5, 5)] {
        let (times, error) = driven(Pace::InFlight(calls), Until::Count(count));
        assert_eq!((times.len(), error), (begun, None));
    }
}

#[test]
fn operations_arrive_whether_others_have_ended_or_not() {
    let (times, error) = driven(Pace::Arrivals(1000.0), Until::Count(1000));
    assert_eq!((times.len(), error), (1000, None));
    let last = times.last().unwrap().as_secs_f64();
    assert!((0.8..1.2).contains(&last), "{last}");
    assert!(times.is_sorted());
    let (within, _) = driven(
        Pace::Arrivals(1000.0),
        Until::Elapsed(Duration::from_millis(500)),
    );
    assert!(within.iter().zip(&times).all(|(one, other)| one == other));
    assert!((400..600).contains(&within.len()), "{}", within.len());
}

#[test]
fn operations_that_arrive_faster_than_they_end_are_an_error() {
    let (_, error) = driven(Pace::Arrivals(1e9), Until::Count(1 << 20));
    let error = error.expect("none of them ends");
    assert!(error.contains("faster than they end"), "{error}");
}
