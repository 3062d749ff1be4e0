//! What the device counts: interrupts.

use std::time::{Duration, Instant};

use rdma::{Device, Region, SendWr, Time};
use smallvec::SmallVec;

use crate::node::{Node, PATIENCE, Pair};

fn interrupts(node: &Node) -> u64 {
    node.device.counters().interrupts
}

/// Arms the device after it has done everything that there is to do.
fn arm(node: &mut Node) {
    // Readiness of earlier data must not end the next sleep.
    node.sleep(Duration::ZERO);
    let start = Instant::now();
    while !node.device.arm() {
        assert!(start.elapsed() < PATIENCE, "always busy");
        node.device.poll(Time::now(), &mut node.events);
    }
}

/// Another thread has woken the owner of an armed device to post requests. Their completions do not
/// wake it; a message that arrives meanwhile would have.
#[test]
fn completions_of_what_an_owner_posts_that_is_awake_are_no_interrupts() {
    let mut pair = Pair::default();
    let Pair {
        client,
        server,
        c,
        s,
    } = &mut pair;
    let region = Region::RemoteWrite(server.buf(&[0; 3000]));
    let target = server.device.register(*s, region).unwrap();
    for id in 0..3 {
        server.receive(*s, id, 3000);
    }
    let write = |client: &Node| SendWr::Write {
        gather: SmallVec::from_iter([client.bytes(&[1; 3000])]),
        stag: target.stag,
        offset: target.offset,
    };
    // A short Send, a long one, and a Write, which is sent by the next poll.
    for wr in [None, Some(3000), Some(0)] {
        arm(client);
        let before = interrupts(client);
        match wr {
            None => client.send(*c, 7, b"short"),
            Some(0) => {
                let wr = write(client);
                client.post(*c, 7, wr);
            }
            Some(len) => client.send(*c, 7, &vec![2; len]),
        }
        client.device.poll(Time::now(), &mut client.events);
        assert!(client.next_completion().result.is_ok());
        assert_eq!(interrupts(client), before, "{wr:?}");
    }
    client.receive(*c, 8, 64);
    arm(client);
    let before = interrupts(client);
    server.send(*s, 9, b"wake up");
    client.sleep(PATIENCE);
    client.send(*c, 10, b"while it is awake");
    client.device.poll(Time::now(), &mut client.events);
    assert_eq!(client.events.len(), 2);
    assert_eq!(interrupts(client), before + 1);
    // Each interrupt needs a new wait.
    client.events.clear();
    client.send(*c, 10, b"again");
    client.sleep(Duration::ZERO);
    client.device.poll(Time::now(), &mut client.events);
    assert_eq!(interrupts(client), before + 1);
}
