//! Tests of the link: directions, jitter and losses.

use std::cell::RefCell;
use std::rc::Rc;

use super::*;

/// The times at which messages and the responses to RDMA Reads arrive, with their lengths.
#[derive(Default)]
struct Arrivals(Vec<(Time, usize)>);

impl Observer for Arrivals {
    fn event(&mut self, at: Time, what: &FabricEvent<'_>) {
        if let FabricEvent::Arrived(_, len, _) | FabricEvent::Fetched(_, len) = what {
            self.0.push((at, *len));
        }
    }
}

/// Costs of nothing but the delays, of 7 and of 11 µs.
fn delays_alone() -> Costs {
    let link = |delay| Link {
        delay: Duration::from_micros(delay),
        rate: u64::MAX,
    };
    Costs {
        up: link(7),
        down: link(11),
        post: Duration::ZERO,
        completion: Duration::ZERO,
        register: Duration::ZERO,
        register_page: Duration::ZERO,
        read_response: Duration::ZERO,
        ..Costs::default()
    }
}

/// Has both ends of a connection send `count` messages of `len` bytes. Returns how long after that each
/// arrived at the server and at the client, and how many packets were sent again.
fn arrivals(seed: u64, noise: Noise, count: u64, len: usize) -> ([Vec<Duration>; 2], u64) {
    let costs = Costs {
        noise,
        ..delays_alone()
    };
    let mut pair = Pair::seeded(seed, costs, Faults::default());
    for id in 0..count {
        pair.receive(0, id, len);
        pair.receive(1, id, len);
    }
    let arrived = [0, 1].map(|from| {
        let arrivals = Rc::new(RefCell::new(Arrivals::default()));
        pair.fabric
            .watch(Rc::clone(&arrivals) as Rc<RefCell<dyn Observer>>);
        let start = pair.fabric.now();
        for id in 0..count {
            let mut payload = vec![0; len];
            payload[..8].copy_from_slice(&id.to_be_bytes());
            let gather = smallvec![payload.into()];
            let invalidate = None;
            pair.post(from, count + id, SendWr::Send { gather, invalidate });
        }
        let received = pair.completions(1 - from);
        let messages = received.iter().filter_map(|done| match &done.result {
            Ok(Success::Receive { buf, .. }) => Some(buf.to_vec()),
            _ => None,
        });
        let ids = messages.map(|buf| u64::from_be_bytes(buf[..8].try_into().unwrap()));
        assert!(ids.eq(0..count), "all arrive, in order");
        let arrivals = arrivals.borrow();
        arrivals.0.iter().map(|(at, _)| *at - start).collect()
    });
    (arrived, pair.fabric.retransmissions())
}

#[test]
fn each_direction_has_its_own_delay() {
    let micros = |n| vec![Duration::from_micros(n); 3];
    let (arrived, again) = arrivals(7, Noise::default(), 3, 100);
    assert_eq!((arrived, again), ([micros(7), micros(11)], 0));
    // An RDMA Read crosses the link in both.
    let mut pair = Pair::new(delays_alone(), Faults::default());
    for (reader, source) in [(0, 1), (1, 0)] {
        let segment = pair.register(source, Region::RemoteRead(Bytes::from_static(&[5; 100])));
        let arrivals = Rc::new(RefCell::new(Arrivals::default()));
        pair.fabric
            .watch(Rc::clone(&arrivals) as Rc<RefCell<dyn Observer>>);
        let (start, sink) = (pair.fabric.now(), pair.buf(reader, 100));
        pair.post(reader, 9, read(sink, segment.stag, segment.offset));
        pair.completions(reader);
        let fetched = start + Duration::from_micros(7 + 11);
        assert_eq!(arrivals.borrow().0, [(fetched, 100)]);
    }
}

/// A rate of 1 GB/s in one direction, and of 100 MB/s in the other.
#[test]
fn each_direction_has_its_own_rate() {
    let mut costs = Costs {
        header: 0,
        ..delays_alone()
    };
    (costs.up.rate, costs.down.rate) = (1_000_000_000, 100_000_000);
    let mut pair = Pair::new(costs, Faults::default());
    for (from, nanos) in [(0, 7_000 + 1_000), (1, 11_000 + 10_000)] {
        pair.receive(1 - from, 1, 1_000);
        let arrivals = Rc::new(RefCell::new(Arrivals::default()));
        pair.fabric
            .watch(Rc::clone(&arrivals) as Rc<RefCell<dyn Observer>>);
        let start = pair.fabric.now();
        pair.post(from, 2, send(&[0; 1_000]));
        pair.completions(1 - from);
        let arrived = start + Duration::from_nanos(nanos);
        assert_eq!(arrivals.borrow().0, [(arrived, 1_000)]);
    }
}

#[test]
fn jitter_is_evenly_distributed_and_the_same_for_the_same_seed() {
    let noise = Noise {
        jitter: Duration::from_micros(100),
        ..Noise::default()
    };
    // One message at a time, so that none waits for the one before it.
    let late = |seed| arrivals(seed, noise, 1, 100).0.map(|times| times[0]);
    let all: Vec<_> = (0..400).map(late).collect();
    assert_eq!(all, (0..400).map(late).collect::<Vec<_>>());
    for (direction, delay) in [(0, 7), (1, 11)] {
        let micros = all
            .iter()
            .map(|late| late[direction].as_secs_f64() * 1e6 - f64::from(delay));
        let micros: Vec<f64> = micros.collect();
        assert!(micros.iter().all(|late| (0.0..100.0).contains(late)));
        let below = |most: f64| micros.iter().filter(|late| **late < most).count();
        for quarter in 1..4_u8 {
            let (most, expected) = (25.0 * f64::from(quarter), 100 * usize::from(quarter));
            assert!(
                below(most).abs_diff(expected) < 40,
                "{quarter}: {}",
                below(most)
            );
        }
    }
    // Many at a time stay in order, which this checks.
    arrivals(7, noise, 50, 100);
}

#[test]
fn packets_that_are_lost_are_sent_again_after_a_time_out_and_are_counted() {
    let noise = Noise {
        loss: 500_000,
        retransmit: Duration::from_millis(1),
        ..Noise::default()
    };
    let (mut again, mut times) = (0, Vec::new());
    for seed in 0..100 {
        let (arrived, count) = arrivals(seed, noise, 1, 3 * 4096);
        again += count;
        times.extend(
            arrived[0]
                .iter()
                .map(|time| *time - Duration::from_micros(7)),
        );
    }
    // Each packet is lost once on the average, and there are six for each seed.
    assert!((450..750).contains(&again), "{again}");
    let millis = Duration::from_millis;
    assert!(times.contains(&Duration::ZERO) && times.contains(&millis(3)));
    assert!(
        times
            .iter()
            .all(|time| time.subsec_nanos() % 1_000_000 == 0),
        "{times:?}"
    );
    // None overtakes one that was lost, which this checks.
    let ([up, _], _) = arrivals(7, noise, 50, 100);
    assert!(up.is_sorted() && *up.last().unwrap() > millis(1));
    // Bytes that are sent again are on the wire.
    let bytes = |noise| {
        let mut pair = Pair::seeded(
            3,
            Costs {
                noise,
                ..delays_alone()
            },
            Faults::default(),
        );
        pair.receive(1, 1, 10 * 4096);
        pair.post(0, 2, send(&[0; 10 * 4096]));
        pair.completions(1);
        (
            pair.devices[0].counters().wire_bytes_sent,
            pair.fabric.retransmissions(),
        )
    };
    let (sent, lost) = bytes(noise);
    assert_eq!(sent - bytes(Noise::default()).0, lost * (4096 + 58));
    assert!(lost > 0);
}

/// Noise that is off draws no random number, so that the rest of a seed stays as it is.
#[test]
fn without_noise_seeds_are_alike() {
    let all = (0..5).map(|seed| arrivals(seed, Noise::default(), 20, 100));
    let all: Vec<_> = all.collect();
    assert!(all.windows(2).all(|two| two[0] == two[1]));
}
