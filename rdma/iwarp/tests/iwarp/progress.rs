//! Which thread does the work, and when the owner is woken.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use bytes::Bytes;
use iwarp::Options;
use rdma::{Device, Disconnect, Ending, Event, Region, SendWr, Stag, Success, Time, WrId};
use smallvec::SmallVec;

use crate::node::{
    Node, PATIENCE, Pair, accept_options, connect_options, disconnected, failure, request, send,
    success,
};
use crate::raw::{
    Got, READ_RESPONSE, Raw, SEND, WRITE, fpdu, idle, read_request, tagged, untagged,
};

fn read(node: &Node, stag: Stag, offset: u64, len: usize) -> SendWr {
    SendWr::Read {
        sink: node.pool.alloc(len).unwrap(),
        stag,
        offset,
    }
}

#[test]
fn reads_and_writes_while_the_owner_is_away() {
    let mut pair = Pair::default();
    let Pair {
        client,
        server,
        c,
        s,
    } = &mut pair;
    let data: Vec<u8> = (0..3_000_000_u32).map(|i| (i / 7) as u8).collect();
    let region = Region::RemoteRead(server.bytes(&data));
    let source = server.device.register(*s, region).unwrap();
    let region = Region::RemoteWrite(server.pool.alloc(data.len()).unwrap());
    let target = server.device.register(*s, region).unwrap();
    server.receive(*s, 5, 64);
    // The server's thread does nothing from here on.
    client.post(*c, 1, read(client, source.stag, source.offset, data.len()));
    match client.next_completion().result.unwrap() {
        Success::Read { sink } => {
            assert_eq!(sink[..], data);
            let write = SendWr::Write {
                gather: SmallVec::from_iter([sink.freeze()]),
                stag: target.stag,
                offset: target.offset,
            };
            client.post(*c, 2, write);
        }
        other => panic!("{other:?}"),
    }
    client.send(*c, 3, b"written");
    for id in 2..=3 {
        assert_eq!(client.next_completion().id, WrId(id));
    }
    // Again, after the thread has had control for a while.
    thread::sleep(Duration::from_millis(20));
    client.post(*c, 4, read(client, source.stag, source.offset + 7, 100));
    assert!(matches!(
        client.next_completion().result,
        Ok(Success::Read { .. })
    ));
    // The owner returns and finds what arrived meanwhile.
    match success(server, client, 5) {
        Success::Receive { buf, .. } => assert_eq!(buf.to_vec(), *b"written"),
        other => panic!("{other:?}"),
    }
    server.post(*s, 6, SendWr::Invalidate { stag: target.stag });
    assert!(matches!(success(server, client, 6), Success::Invalidate));
    match server.device.reclaim(*s, target.stag).unwrap() {
        Region::RemoteWrite(buf) => assert_eq!(buf[..], data),
        other => panic!("{other:?}"),
    }
    // Only bytes that arrived with headers were copied.
    let copied = server.device.counters().copied_bytes;
    assert!(copied < data.len() as u64 / 100, "{copied} bytes copied");
    pair.finish();
}

/// The background thread took over before the connection was accepted.
#[test]
fn the_thread_serves_reads_of_a_connection_accepted_after_it_took_over() {
    let mut pair = Pair::default();
    let server = &mut pair.server;
    let (_, address) = server.listen();
    let mut client = Node::new(Options::default());
    let c = client.device.connect(address, &connect_options()).unwrap();
    let request = request(server, &mut client).request;
    let s = server.device.prepare_accept(request, None).unwrap();
    thread::sleep(Duration::from_millis(20));
    server.device.accept(s, &accept_options()).unwrap();
    let region = Region::RemoteRead(server.bytes(b"offered"));
    let source = server.device.register(s, region).unwrap();
    // The server's thread does nothing from here on.
    assert!(matches!(client.next(), Event::Established { .. }));
    client.post(c, 1, read(&client, source.stag, source.offset, 7));
    match client.next_completion().result.unwrap() {
        Success::Read { sink } => assert_eq!(sink[..], *b"offered"),
        other => panic!("{other:?}"),
    }
    drop(client);
    assert!(matches!(server.next(), Event::Established { .. }));
    assert!(matches!(server.next(), Event::Disconnected { .. }));
    server.device.destroy(s);
    pair.finish();
}

#[test]
fn a_waiting_owner_is_woken_by_events_of_the_thread() {
    // The owner goes away, is replaced, returns and waits at once, again and again, with messages
    // that arrive at any of these moments. All must be delivered.
    let mut server = Node::new(Options::default());
    let (_, address) = server.listen();
    let stop = Arc::new(AtomicBool::new(false));
    let stopped = Arc::clone(&stop);
    let client = thread::spawn(move || {
        let mut client = Node::new(Options::default());
        let qp = client.device.connect(address, &connect_options()).unwrap();
        assert!(matches!(client.next(), Event::Established { .. }));
        let mut rounds = 0_u64;
        while !stopped.load(Ordering::Relaxed) {
            client.receive(qp, 1, 64);
            client
                .device
                .post_send(qp, WrId(2), send(Bytes::from_static(b"ping")), false)
                .unwrap();
            let start = Instant::now();
            match client.next() {
                Event::Completion(completion) => assert!(completion.result.is_ok()),
                event => panic!("{event:?}"),
            }
            assert!(
                start.elapsed() < Duration::from_secs(5),
                "a message lay about"
            );
            rounds += 1;
            // Pauses of all lengths around the tick.
            thread::sleep(Duration::from_micros(rounds * 97 % 2500));
        }
        client.device.disconnect(qp);
        assert!(matches!(client.next(), Event::Disconnected { .. }));
        rounds
    });
    let request = match server.next() {
        Event::ConnectRequest(request) => request.request,
        event => panic!("{event:?}"),
    };
    let qp = server.device.prepare_accept(request, None).unwrap();
    for _ in 0..4 {
        server.receive(qp, 1, 64);
    }
    server.device.accept(qp, &accept_options()).unwrap();
    let start = Instant::now();
    let mut pause = 0;
    loop {
        match server.next() {
            Event::Established { .. } => {}
            Event::Completion(completion) => match completion.result {
                Ok(Success::Receive { buf, .. }) => {
                    server.receive(qp, 1, 64);
                    let wr = send(buf.into_first().freeze());
                    server.device.post_send(qp, WrId(2), wr, false).unwrap();
                    pause += 1;
                    // Absences of up to 3.5 ms, at any time.
                    thread::sleep(Duration::from_micros(pause * 131 % 3500));
                }
                Ok(other) => panic!("{other:?}"),
                Err(_) => {}
            },
            Event::Disconnected { .. } => break,
            event => panic!("{event:?}"),
        }
        if start.elapsed() > Duration::from_millis(1500) {
            stop.store(true, Ordering::Relaxed);
        }
    }
    let rounds = client.join().unwrap();
    assert!(rounds > 50, "{rounds} round trips in 1.5 s");
}

#[test]
fn a_fin_that_came_with_the_last_bytes() {
    // Both are in the socket before the owner reads: one edge reports both, and the read that takes
    // the bytes is not filled.
    let mut node = Node::new(Options::default());
    let (mut raw, qp) = Raw::set_up(&mut node, false);
    node.receive(qp, 1, 64);
    node.receive(qp, 2, 64);
    raw.send_ulpdu(&crate::raw::send(1, b"bye"));
    raw.socket.shutdown(std::net::Shutdown::Write).unwrap();
    assert!(node.next_completion().result.is_ok());
    assert!(node.next_completion().result.is_err());
    match node.next() {
        Event::Disconnected { reason, .. } => assert_eq!(reason, Disconnect::Remote),
        event => panic!("{event:?}"),
    }
}

#[test]
fn interrupts_are_counted_for_waits_that_events_ended() {
    let mut pair = Pair::default();
    let Pair {
        client,
        server,
        c,
        s,
    } = &mut pair;
    let before = server.device.counters().interrupts;
    for round in 1..=10 {
        server.receive(*s, round, 64);
        server.step(Duration::ZERO);
        server.step(Duration::ZERO);
        client
            .device
            .post_send(*c, WrId(0), send(Bytes::from_static(b"x")), false)
            .unwrap();
        assert_eq!(server.next_completion().id, WrId(round));
    }
    assert_eq!(server.device.counters().interrupts - before, 10);
    // RDMA Writes are placed without an interrupt.
    let region = Region::RemoteWrite(server.pool.alloc(100).unwrap());
    let target = server.device.register(*s, region).unwrap();
    let write = SendWr::Write {
        gather: SmallVec::from_iter([Bytes::from_static(b"quiet")]),
        stag: target.stag,
        offset: target.offset,
    };
    client.post(*c, 1, write);
    assert!(matches!(
        client.next_completion().result,
        Ok(Success::Write)
    ));
    for _ in 0..20 {
        server.step(Duration::from_millis(1));
    }
    assert_eq!(server.device.counters().interrupts - before, 10);
    server.post(*s, 11, SendWr::Invalidate { stag: target.stag });
    server.next_completion();
    match server.device.reclaim(*s, target.stag).unwrap() {
        Region::RemoteWrite(buf) => assert_eq!(buf[..5], *b"quiet"),
        other => panic!("{other:?}"),
    }
    pair.finish();
}

#[test]
fn busy_polling_needs_no_readiness() {
    let mut pair = Pair::default();
    let Pair {
        client,
        server,
        c,
        s,
    } = &mut pair;
    server.device.set_busy_poll(true);
    for round in 1..=100 {
        server.receive(*s, round, 64);
        client
            .device
            .post_send(*c, WrId(0), send(Bytes::from_static(b"x")), false)
            .unwrap();
        let start = Instant::now();
        while server.events.is_empty() {
            server.device.poll(Time::now(), &mut server.events);
            assert!(start.elapsed() < PATIENCE);
        }
        assert_eq!(server.next_completion().id, WrId(round));
    }
    assert_eq!(server.device.counters().receives, 100);
    // A new connection is noticed as well, and after the end of busy-polling no event is lost.
    let (_, address) = server.listen();
    let mut raw = Raw::connect(address);
    let private = [0, 4, 0, 4];
    raw.write(&crate::raw::frame(crate::raw::REQUEST, 0x10, 2, &private));
    let start = Instant::now();
    while server.events.is_empty() {
        server.device.poll(Time::now(), &mut server.events);
        assert!(start.elapsed() < PATIENCE);
    }
    raw.wait_request(server);
    let mut late = Raw::connect(address);
    // Enough polls for the connection to be accepted.
    for _ in 0..200 {
        server.device.poll(Time::now(), &mut server.events);
    }
    server.receive(*s, 7, 64);
    client.send(*c, 1, b"last");
    thread::sleep(Duration::from_millis(5));
    server.device.set_busy_poll(false);
    assert_eq!(server.next_completion().id, WrId(7));
    // Connections that existed before or were made during busy-polling are watched from now on.
    idle(server);
    server.receive(*s, 8, 64);
    client.send(*c, 2, b"watched");
    assert_eq!(server.next_completion().id, WrId(8));
    late.write(&crate::raw::frame(crate::raw::REQUEST, 0x10, 2, &private));
    late.wait_request(server);
    client.events.clear();
    pair.finish();
}

/// During busy-polling, the next receive is prefetched before its message arrives, but not in the
/// middle of a message.
#[test]
fn busy_polling_does_not_prefetch_in_the_middle_of_a_message() {
    let mut node = Node::new(Options::default());
    let (mut raw, qp) = Raw::set_up(&mut node, false);
    node.device.set_busy_poll(true);
    let spin = |node: &mut Node| {
        let start = Instant::now();
        while start.elapsed() < Duration::from_millis(2) {
            node.device.poll(Time::now(), &mut node.events);
        }
    };
    let payload: Vec<u8> = (1..=200).collect();
    let region = Region::RemoteWrite(node.pool.alloc(100).unwrap());
    let target = node.device.register(qp, region).unwrap();
    for msn in 1..=4 {
        node.receive(qp, u64::from(msn), 512);
        if msn > 2 {
            spin(&mut node);
        }
        let first = untagged(SEND, false, 0, (0, msn, 0), &payload[..120]);
        let rest = untagged(SEND, true, 0, (0, msn, 120), &payload[120..]);
        raw.send_ulpdu(&first);
        // Wait until everything has arrived.
        thread::sleep(Duration::from_millis(2));
        spin(&mut node);
        // The beginning of the second half's header, with another operation before it.
        if msn % 2 == 0 {
            raw.send_ulpdu(&tagged(
                WRITE,
                true,
                target.stag.0,
                target.offset,
                b"between",
            ));
            spin(&mut node);
        }
        let bytes = fpdu(&rest, false);
        raw.write(&bytes[..9]);
        spin(&mut node);
        raw.write(&bytes[9..]);
        let start = Instant::now();
        while node.events.is_empty() {
            spin(&mut node);
            assert!(start.elapsed() < PATIENCE);
        }
        match node.next_completion().result.unwrap() {
            Success::Receive { buf, .. } => assert_eq!(buf.to_vec(), payload, "message {msn}"),
            other => panic!("{other:?}"),
        }
    }
}

/// After a wait of several ticks the background thread parks. An owner that is woken and goes away
/// at once must find it running.
#[test]
fn an_owner_that_goes_away_after_a_long_wait_is_replaced() {
    let mut pair = Pair::default();
    let Pair {
        client,
        server,
        c,
        s,
    } = &mut pair;
    let data: Vec<u8> = (0..1000_u32).map(|i| i as u8).collect();
    let region = Region::RemoteRead(server.bytes(&data));
    let source = server.device.register(*s, region).unwrap();
    for round in 0..30_u64 {
        server.receive(*s, round, 64);
        // Waits around the number of ticks after which the thread parks, in fractions of a tick.
        let wait = Duration::from_micros(2500 + round * 117);
        let start = Instant::now();
        while start.elapsed() < wait {
            server.step(wait.saturating_sub(start.elapsed()));
        }
        client
            .device
            .post_send(*c, WrId(1000), send(Bytes::from_static(b"up")), false)
            .unwrap();
        assert_eq!(server.next_completion().id, WrId(round));
        // The server's thread does nothing from here on.
        let start = Instant::now();
        client.post(
            *c,
            round,
            read(client, source.stag, source.offset, data.len()),
        );
        match client.next_completion().result.unwrap() {
            Success::Read { sink } => assert_eq!(sink[..], data),
            other => panic!("{other:?}"),
        }
        assert!(start.elapsed() < Duration::from_secs(1), "round {round}");
    }
    pair.finish();
}

#[test]
fn reads_beyond_the_ord_wait() {
    let mut accept = accept_options();
    accept.inbound_reads = 2;
    let (client, server) = (Node::new(Options::default()), Node::new(Options::default()));
    let mut pair = Pair::connect(client, server, &connect_options(), &accept);
    let Pair {
        client,
        server,
        c,
        s,
    } = &mut pair;
    let data: Vec<u8> = (0..200_000_u32).map(|i| (i / 3) as u8).collect();
    let region = Region::RemoteRead(server.bytes(&data));
    let source = server.device.register(*s, region).unwrap();
    server.receive(*s, 99, 64);
    for id in 0..50 {
        let at = id as usize * 1000;
        client.post(
            *c,
            id,
            read(client, source.stag, source.offset + at as u64, 150_000),
        );
    }
    // A Send behind the reads keeps its place.
    client.send(*c, 50, b"after the reads have started");
    let mut reads = 0;
    loop {
        match crate::node::next_completion(client, server) {
            completion if completion.id == WrId(50) => break,
            completion => {
                assert_eq!(completion.id, WrId(reads), "in order");
                let at = reads as usize * 1000;
                match completion.result.unwrap() {
                    Success::Read { sink } => assert!(sink[..] == data[at..at + 150_000]),
                    other => panic!("{other:?}"),
                }
                reads += 1;
            }
        }
    }
    assert!(reads >= 48, "the Send overtook {} Reads", 50 - reads);
    for id in reads..50 {
        assert!(matches!(success(client, server, id), Success::Read { .. }));
    }
    assert!(matches!(
        success(server, client, 99),
        Success::Receive { .. }
    ));
    pair.finish();
}

#[test]
fn a_peer_that_never_reads_costs_no_memory() {
    let mut node = Node::new(Options::default());
    let (mut raw, qp) = Raw::set_up(&mut node, false);
    raw.send_ulpdu(&tagged(WRITE, true, 0, 0, b""));
    let region = Region::RemoteRead(node.bytes(&vec![1; 1 << 20]));
    let source = node.device.register(qp, region).unwrap();
    // As many Reads as the peer may have, and more Sends than the socket can take.
    for msn in 1..=4 {
        raw.send_ulpdu(&read_request(msn, 5, 1 << 20, source.stag.0, source.offset));
    }
    let message = node.bytes(&vec![2; 1 << 20]);
    let limit = node.device.attributes().max_send_wr;
    let mut posted = 0;
    let refused = loop {
        match node
            .device
            .post_send(qp, WrId(0), send(message.clone()), false)
        {
            Ok(()) => posted += 1,
            Err((error, _)) => break error,
        }
        if posted % 256 == 0 {
            idle(&mut node);
        }
        assert!(posted < 3 * limit, "it takes no end");
    };
    assert_eq!(refused, rdma::PostError::QueueFull);
    assert!(posted >= limit);
    // Only the program's memory is in use: one region and one message.
    assert!(node.pool.in_use() <= 2 << 20);
    node.device.disconnect(qp);
    idle(&mut node);
    // The requests cannot be flushed; an abort returns everything.
    node.device.abort(qp);
    let mut flushed = 0;
    loop {
        match node.next() {
            Event::Completion(completion) => {
                assert!(completion.result.is_err());
                flushed += 1;
            }
            Event::Disconnected { reason, .. } => {
                assert_eq!(reason, Disconnect::Local);
                break;
            }
            event => panic!("{event:?}"),
        }
    }
    assert_eq!(flushed, limit);
    drop(message);
    node.device.destroy(qp);
    assert_eq!(node.pool.in_use(), 0);
}

#[test]
fn an_orderly_close_sends_what_was_posted() {
    let mut pair = Pair::default();
    let Pair {
        client,
        server,
        c,
        s,
    } = &mut pair;
    let big = vec![3; 8 << 20];
    let region = Region::RemoteWrite(server.pool.alloc(big.len()).unwrap());
    let target = server.device.register(*s, region).unwrap();
    server.receive(*s, 1, 64);
    server.receive(*s, 2, 64);
    let write = SendWr::Write {
        gather: SmallVec::from_iter([client.bytes(&big)]),
        stag: target.stag,
        offset: target.offset,
    };
    client.post(*c, 1, write);
    client.send(*c, 2, b"all of it");
    client.device.disconnect(*c);
    assert!(matches!(success(client, server, 1), Success::Write));
    assert!(matches!(success(client, server, 2), Success::Send));
    assert_eq!(disconnected(client, server), Disconnect::Local);
    assert!(matches!(
        success(server, client, 1),
        Success::Receive { .. }
    ));
    failure(server, client, 2);
    assert_eq!(disconnected(server, client), Disconnect::Remote);
    match server.device.reclaim(*s, target.stag).unwrap() {
        Region::RemoteWrite(buf) => assert!(buf[..] == big),
        other => panic!("{other:?}"),
    }
    pair.finish();
}

/// Regression test: after ten seconds, what was left was dropped, and the end reported as an orderly one.
#[test]
fn an_orderly_close_takes_as_long_as_the_peer_takes_to_accept_what_was_posted() {
    let mut node = Node::new(Options::default());
    let (mut raw, qp) = Raw::set_up(&mut node, false);
    raw.send_ulpdu(&tagged(WRITE, true, 0, 0, b""));
    let message = vec![7; 24 << 20];
    node.send(qp, 1, &message);
    let first = raw.read_fpdu(&mut node);
    node.device.disconnect(qp);
    let hour = Duration::from_secs(3600);
    node.device.poll(Time::now() + hour, &mut node.events);
    assert!(node.events.is_empty(), "{:?}", node.events);
    assert_eq!(node.device.ending(), Ending::Sending);
    let (mut got, mut taken) = (first, 0);
    while let Got::Ulpdu(ulpdu) = got {
        taken += ulpdu.len() - 18;
        got = raw.read_fpdu(&mut node);
    }
    assert_eq!(taken, message.len());
    assert!(node.next_completion().result.is_ok());
    match node.next() {
        Event::Disconnected { reason, .. } => assert_eq!(reason, Disconnect::Local),
        event => panic!("{event:?}"),
    }
}

#[test]
fn requests_that_are_impossible_end_the_connection() {
    let mut pair = Pair::default();
    let Pair {
        client, server, c, ..
    } = &mut pair;
    client.receive(*c, 1, 64);
    client.post(*c, 2, SendWr::Invalidate { stag: Stag(7) });
    assert_eq!(
        failure(client, server, 2).error,
        rdma::WorkError::LocalProtection
    );
    assert_eq!(failure(client, server, 1).error, rdma::WorkError::Flushed);
    assert_eq!(disconnected(client, server), Disconnect::Local);
    match disconnected(server, client) {
        Disconnect::Terminated(text) => assert_eq!(text, "local catastrophic error"),
        other => panic!("{other:?}"),
    }
    pair.finish();
}

#[test]
fn invalidating_twice_is_no_error() {
    // The peer's Send With Invalidate and the local invalidation may cross.
    let mut pair = Pair::default();
    let Pair {
        client,
        server,
        c,
        s,
    } = &mut pair;
    let region = Region::RemoteWrite(client.pool.alloc(10).unwrap());
    let segment = client.device.register(*c, region).unwrap();
    client.receive(*c, 1, 64);
    let gather = SmallVec::from_iter([Bytes::from_static(b"done")]);
    let invalidate = Some(segment.stag);
    server.post(*s, 2, SendWr::Send { gather, invalidate });
    assert!(matches!(
        success(client, server, 1),
        Success::Receive { .. }
    ));
    client.post(*c, 3, SendWr::Invalidate { stag: segment.stag });
    assert!(matches!(success(client, server, 3), Success::Invalidate));
    assert!(client.device.reclaim(*c, segment.stag).is_ok());
    assert!(client.device.reclaim(*c, segment.stag).is_err());
    assert!(matches!(success(server, client, 2), Success::Send));
    pair.finish();
}

#[test]
fn an_abort_is_seen_as_a_loss() {
    let mut pair = Pair::default();
    let Pair {
        client,
        server,
        c,
        s,
    } = &mut pair;
    server.receive(*s, 1, 64);
    client.device.abort(*c);
    assert_eq!(disconnected(client, server), Disconnect::Local);
    failure(server, client, 1);
    assert!(matches!(disconnected(server, client), Disconnect::Lost(_)));
    pair.finish();
}

#[test]
fn destroyed_queue_pairs_are_silent() {
    let mut pair = Pair::default();
    let Pair {
        client,
        server,
        c,
        s,
    } = &mut pair;
    server.receive(*s, 1, 64);
    client.receive(*c, 1, 64);
    server.send(*s, 2, b"too late");
    client.device.destroy(*c);
    for _ in 0..10 {
        idle(client);
        idle(server);
    }
    assert!(client.events.is_empty(), "{:?}", client.events);
    let is_end = |event: &Event| matches!(event, Event::Disconnected { .. });
    assert!(server.events.iter().any(is_end), "{:?}", server.events);
    pair.finish();
}

#[test]
fn many_connections() {
    const MANY: usize = 200;
    /// Fewer than a listener's backlog, which `net.core.somaxconn` may limit to 128. The system would drop
    /// further SYNs, and their handshakes would run a second later on another processor while the client
    /// already sends. Linux can reset such a connection (until commit 1532ed0d0753).
    const AT_ONCE: usize = 50;
    let (mut client, mut server) = (Node::new(Options::default()), Node::new(Options::default()));
    let (_, address) = server.listen();
    for made in 1..=MANY {
        client.device.connect(address, &connect_options()).unwrap();
        if made % AT_ONCE == 0 {
            idle(&mut server);
        }
    }
    let mut up = 0;
    let mut echoed = 0;
    let start = Instant::now();
    while echoed < MANY {
        assert!(
            start.elapsed() < PATIENCE,
            "{up} connections, {echoed} answers"
        );
        server.step(Duration::from_millis(1));
        for event in std::mem::take(&mut server.events) {
            match event {
                Event::ConnectRequest(request) => {
                    let qp = server.device.prepare_accept(request.request, None).unwrap();
                    server.receive(qp, 1, 64);
                    server.device.accept(qp, &accept_options()).unwrap();
                }
                Event::Completion(completion) => {
                    if let Ok(Success::Receive { buf, .. }) = completion.result {
                        let wr = send(buf.into_first().freeze());
                        server
                            .device
                            .post_send(completion.qp, WrId(2), wr, false)
                            .unwrap();
                    }
                }
                Event::Established { .. } => {}
                event => panic!("{event:?}"),
            }
        }
        client.step(Duration::from_millis(1));
        for event in std::mem::take(&mut client.events) {
            match event {
                Event::Established { qp, .. } => {
                    up += 1;
                    client.receive(qp, 1, 64);
                    let own = qp.0.to_be_bytes();
                    let wr = send(client.bytes(&own));
                    client.device.post_send(qp, WrId(2), wr, false).unwrap();
                }
                Event::Completion(completion) => match completion.result.unwrap() {
                    Success::Receive { buf, .. } => {
                        assert_eq!(buf.to_vec(), completion.qp.0.to_be_bytes());
                        echoed += 1;
                    }
                    other => panic!("{other:?}"),
                },
                event => panic!("{event:?}"),
            }
        }
    }
    assert_eq!(up, MANY);
}

#[test]
fn responses_take_turns_with_requests() {
    // A peer that reads without end does not hold back this side's messages.
    let mut node = Node::new(Options::default());
    let (mut raw, qp) = Raw::set_up(&mut node, false);
    let region = Region::RemoteRead(node.bytes(&vec![1; 8 << 20]));
    let source = node.device.register(qp, region).unwrap();
    for msn in 1..=4 {
        raw.send_ulpdu(&read_request(msn, 5, 8 << 20, source.stag.0, source.offset));
    }
    for _ in 0..5 {
        idle(&mut node);
    }
    node.send(qp, 1, b"me too");
    let mut whole = 0;
    loop {
        match raw.read_fpdu(&mut node) {
            Got::Ulpdu(ulpdu) if ulpdu[1] == 0x40 | READ_RESPONSE => {
                whole += usize::from(ulpdu[0] & 0x40 != 0);
            }
            Got::Ulpdu(ulpdu) => {
                assert_eq!(ulpdu, crate::raw::send(1, b"me too"));
                break;
            }
            other => panic!("{other:?}"),
        }
    }
    assert!(whole < 4, "it waited for {whole} responses");
}
