//! Tests of the counters: interrupts and copied bytes.

use std::time::{Duration, Instant};

use iwarp::Options;
use rdma::{Device, Region, SendWr, Time};
use smallvec::SmallVec;

use crate::node::{Node, PATIENCE, Pair};
use crate::raw::{Got, Raw, WRITE, idle, tagged};

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

fn copied(node: &Node) -> u64 {
    node.device.counters().copied_bytes
}

#[test]
fn frames_of_the_set_up_are_no_copied_data() {
    let mut pair = Pair::default();
    let Pair {
        client,
        server,
        c,
        s,
    } = &mut pair;
    assert_eq!((copied(client), copied(server)), (0, 0));
    server.receive(*s, 1, 64);
    client.send(*c, 2, b"ten  bytes");
    assert!(server.next_completion().result.is_ok());
    assert_eq!((copied(client), copied(server)), (10, 10));
}

/// TCP takes no more because the peer does not read, so a part of the last Send is queued.
#[test]
fn a_short_send_that_was_queued_counts_once() {
    const LEN: usize = 400;
    let mut node = Node::new(Options::default());
    let (mut raw, qp) = Raw::set_up(&mut node, false);
    // A responder sends after the first message of the initiator.
    let before = node.device.counters().wire_bytes_received;
    raw.send_ulpdu(&tagged(WRITE, true, 1, 0, b""));
    let start = Instant::now();
    while node.device.counters().wire_bytes_received == before {
        assert!(start.elapsed() < PATIENCE, "nothing arrives");
        idle(&mut node);
    }
    let mut sends = 0;
    loop {
        let before = node.device.counters().wire_bytes_sent;
        node.send(qp, sends, &[0x5a; LEN]);
        sends += 1;
        if node.device.counters().wire_bytes_sent - before < LEN as u64 {
            break;
        }
    }
    for _ in 0..sends {
        assert!(matches!(raw.read_fpdu(&mut node), Got::Ulpdu(_)));
    }
    assert_eq!(copied(&node), sends * LEN as u64);
}

#[test]
fn a_terminate_is_no_copied_data() {
    let mut node = Node::new(Options::default());
    let (mut raw, _) = Raw::set_up(&mut node, false);
    // An RDMA Write to a handle that does not exist.
    raw.send_ulpdu(&tagged(WRITE, true, 5, 0, b"data"));
    raw.expect_terminate(&mut node);
    assert_eq!(copied(&node), 0);
}
