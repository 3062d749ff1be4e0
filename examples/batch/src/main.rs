//! Measures the benefit of the example extension: the same calls one by one and batched, over the
//! simulated device, whose counts and times are exact.

#![forbid(unsafe_code)]

mod end;

use std::time::Duration;

use end::End;
use rdma::Counters;
use rdma_sim::{Costs, Fabric, Faults, Turn};
use rpcrdma_v2::Side;

/// The number of calls that wait together.
const CALLS: u32 = 8;
/// The limit of virtual time.
const PATIENCE: Duration = Duration::from_secs(1);

/// The cost of all calls together.
#[derive(Clone, Copy, Debug)]
struct Cost {
    /// The time from the first call to the last reply.
    time: Duration,
    client: Counters,
    server: Counters,
}

/// Makes the calls at once, between two ends that accept `takes` messages in one transmission.
fn measure(takes: [u32; 2]) -> Cost {
    let fabric = Fabric::new(1, Costs::default(), Faults::default());
    let mut client = End::new(&fabric, Side::Client, takes[0]);
    let mut server = End::new(&fabric, Side::Server, takes[1]);
    server.listen();
    client.connect();
    run(&fabric, &mut client, &mut server);
    let counters = || [&client, &server].map(|end| fabric.counters(end.node()));
    let (start, before) = (fabric.now(), counters());
    client.call(CALLS);
    run(&fabric, &mut client, &mut server);
    let after = [&client, &server].map(|end| fabric.counters(end.node()));
    assert_eq!(client.answered(), CALLS, "calls were answered");
    let since = |side: usize| Counters {
        sends: after[side].sends - before[side].sends,
        interrupts: after[side].interrupts - before[side].interrupts,
        wire_bytes_sent: after[side].wire_bytes_sent - before[side].wire_bytes_sent,
        ..Counters::default()
    };
    Cost {
        time: client.last_reply().since(start),
        client: since(0),
        server: since(1),
    }
}

/// Runs both ends until no event is left.
fn run(fabric: &Fabric, client: &mut End, server: &mut End) {
    client.turn();
    server.turn();
    let until = fabric.now() + PATIENCE;
    while let Some(turn) = fabric.next(until) {
        match turn {
            Turn::Host(node) if node == client.node() => client.turn(),
            Turn::Host(_) => server.turn(),
            Turn::Alarm(_) => {}
        }
    }
}

#[expect(clippy::print_stdout, reason = "what this program is for")]
fn main() {
    println!("{CALLS} NULL calls at once      time    Sends  interrupts  wire bytes");
    for (name, takes) in [
        ("one by one", [1, 1]),
        ("calls batched", [1, 16]),
        ("calls and replies batched", [16, 16]),
    ] {
        let Cost {
            time,
            client,
            server,
        } = measure(takes);
        println!(
            "{name:<25} {:>8.3} µs {:>4}  {:>10}  {:>10}",
            time.as_secs_f64() * 1e6,
            client.sends + server.sends,
            client.interrupts + server.interrupts,
            client.wire_bytes_sent + server.wire_bytes_sent,
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_batch_takes_one_send_and_less_of_everything() {
        let single = measure([1, 1]);
        let both = measure([16, 16]);
        assert_eq!(single.client.sends, u64::from(CALLS));
        assert_eq!(single.server.sends, u64::from(CALLS));
        assert_eq!((both.client.sends, both.server.sends), (1, 1));
        assert!(both.time < single.time, "{both:?} {single:?}");
        assert!(both.client.wire_bytes_sent < single.client.wire_bytes_sent);
        assert!(both.client.interrupts + both.server.interrupts <= 2);
    }

    /// Each direction is batched as its receiver has announced.
    #[test]
    fn only_what_the_receiver_takes_is_batched() {
        let calls = measure([1, 16]);
        assert_eq!(
            (calls.client.sends, calls.server.sends),
            (1, u64::from(CALLS))
        );
        let replies = measure([16, 1]);
        assert_eq!(replies.client.sends, u64::from(CALLS));
        // At most three at a time: 3, 3 and 2.
        assert_eq!(measure([1, 3]).client.sends, 3);
    }
}
