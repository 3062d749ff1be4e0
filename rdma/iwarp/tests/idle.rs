//! A connection that waits for a receive of a shared receive queue costs no processor time while
//! its device's owner is away. This test has a process of its own, because it measures that time.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use bytes::Bytes;
use iwarp::{Iwarp, Options};
use rdma::{
    AcceptOptions, Completion, ConnectOptions, Device, Event, Pool, SendWr, Success, Time, WrId,
};
use smallvec::SmallVec;

/// Returns the processor time that this process has used, in ticks of 10 ms.
fn ticks() -> u64 {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap();
    // User and system time are the 14th and 15th field; the second one is in parentheses.
    let (_, fields) = stat.rsplit_once(')').unwrap();
    let fields: Vec<&str> = fields.split_whitespace().collect();
    fields[11].parse::<u64>().unwrap() + fields[12].parse::<u64>().unwrap()
}

struct Side {
    device: Iwarp,
    events: VecDeque<Event>,
}

impl Side {
    fn new() -> Self {
        let device = Iwarp::new(Options::default(), Pool::new(1 << 24)).unwrap();
        let events = VecDeque::new();
        Self { device, events }
    }

    fn poll(&mut self) {
        self.device.poll(Time::now(), &mut self.events);
    }
}

/// Polls both sides until `found` returns a value.
fn wait<T>(sides: &mut [Side; 2], mut found: impl FnMut(&mut [Side; 2]) -> Option<T>) -> T {
    let start = Instant::now();
    loop {
        sides.iter_mut().for_each(Side::poll);
        if let Some(found) = found(sides) {
            return found;
        }
        assert!(start.elapsed() < Duration::from_secs(20), "nothing came");
    }
}

#[test]
#[cfg_attr(miri, ignore = "opens sockets")]
fn a_connection_that_waits_costs_no_processor_time_while_the_owner_is_away() {
    const AWAY: Duration = Duration::from_millis(1000);
    let mut sides = [Side::new(), Side::new()];
    let server = &mut sides[1].device;
    let shared = server.create_shared_receives().unwrap();
    let listener = server.listen("127.0.0.1:0".parse().unwrap()).unwrap();
    let address = server.local_address(listener).unwrap();
    let options = ConnectOptions {
        private_data: Bytes::new(),
        inbound_reads: 1,
        outbound_reads: 1,
        timeout: Duration::from_secs(10),
        shared_receives: None,
    };
    let client = sides[0].device.connect(address, &options).unwrap();
    let request = wait(&mut sides, |sides| match sides[1].events.pop_front() {
        Some(Event::ConnectRequest(request)) => Some(request.request),
        _ => None,
    });
    let server = &mut sides[1].device;
    let bound = server.prepare_accept(request, Some(shared)).unwrap();
    let options = AcceptOptions {
        private_data: Bytes::new(),
        inbound_reads: 1,
        outbound_reads: 1,
    };
    server.accept(bound, &options).unwrap();
    let mut established = 0;
    wait(&mut sides, |sides| {
        for side in sides {
            established += side.events.drain(..).count();
        }
        (established == 2).then_some(())
    });
    // More than the device reads ahead, so that the socket stays readable.
    for id in 0..50 {
        let wr = SendWr::Send {
            gather: SmallVec::from_iter([Bytes::from(vec![1; 1000])]),
            invalidate: None,
        };
        let device = &mut sides[0].device;
        device.post_send(client, WrId(id), wr, false).unwrap();
        sides.iter_mut().for_each(Side::poll);
    }
    assert!(sides[1].events.is_empty());
    // The background thread has taken over by the middle of this.
    std::thread::sleep(AWAY / 10);
    let before = ticks();
    std::thread::sleep(AWAY);
    let used = ticks() - before;
    assert!(used <= 10, "{used} ticks of 10 ms");
    // Nothing was lost.
    for id in 0..50 {
        let buf = sides[1].device.pool().alloc(1000).unwrap();
        let posted = sides[1]
            .device
            .post_shared_receive(shared, WrId(id), buf.into());
        posted.unwrap();
    }
    let mut next = 0;
    wait(&mut sides, |sides| {
        for event in sides[1].events.drain(..) {
            let Event::Completion(Completion { id, result, .. }) = event else {
                panic!("{event:?}")
            };
            assert_eq!(id, WrId(next));
            assert!(matches!(result, Ok(Success::Receive { .. })));
            next += 1;
        }
        (next == 50).then_some(())
    });
}
