//! Tests of client and server over the software iWARP device and the loopback interface.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod rdma_support;

use std::cell::RefCell;
use std::net::{Ipv4Addr, SocketAddr};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc;
use std::thread;

use bytes::Bytes;
use futures_util::future::join_all;
use iwarp::{Iwarp, Options};
use onc_rpc::{Decoder, Encoder, Message};
use rdma::{Counters, Frame, Pool, QpId, Tap, Time};
use rdma_support::{End, POOL, Pair, data, message, open, options, reply, room};
use rpc_transport::rdma::{
    RdmaClient, RdmaClientOptions, RdmaServer, RdmaServerOptions, receive_memory,
};
use rpc_transport::{
    Call, CallError, Client, ClientOptions, ClientTransport, ClientTransportEvent, ConnectionId,
    PollLoop, PollSource, ReplyRoom, Runtime, ServerTransport, ServerTransportEvent,
};

fn anywhere() -> SocketAddr {
    (Ipv4Addr::LOCALHOST, 0).into()
}

fn device() -> Box<Iwarp> {
    Box::new(Iwarp::new(Options::default(), Pool::new(POOL)).unwrap())
}

fn pair_with(client: RdmaClientOptions, server: RdmaServerOptions) -> Pair {
    let mut pair = Pair::new(device(), client, device(), server, anywhere());
    pair.client.set_busy_poll(true);
    pair.server.set_busy_poll(true);
    pair
}

fn pair() -> Pair {
    let (client, server) = options();
    pair_with(client, server)
}

#[test]
fn items_from_nothing_to_a_mebibyte_travel_both_ways() {
    let mut pair = pair();
    pair.echo();
    let conn = pair.connect();
    for (xid, len) in [0, 1, 3, 4, 1023, 4096, 5000, 65_537, 1 << 20]
        .into_iter()
        .enumerate()
    {
        let items = [data(xid as u32, len)];
        let reply = pair.call(conn, message(xid as u32, 7, &items), &room(7, &[len]));
        assert_eq!(
            open(&reply.reply()),
            (xid as u32, 7, items.to_vec()),
            "{len} bytes"
        );
    }
    // The bulk was neither copied by the engine nor by the device: what was copied is less than
    // one of the longest items.
    let copied = |counters: Counters| counters.copied_bytes;
    assert!(copied(pair.client.device().counters()) < 1 << 20);
    assert!(copied(pair.server.device().counters()) < 1 << 20);
}

#[test]
fn chunks_of_many_segments_and_several_chunks_travel() {
    let (mut client, mut server) = options();
    client.common.max_segment = 10_000;
    server.common.outbound_reads = 3;
    let mut pair = pair_with(client, server);
    pair.echo();
    let conn = pair.connect();
    let lens = [70_001, 9999, 200_000];
    for xid in 0..5 {
        let items: Vec<Bytes> = lens.iter().map(|&len| data(xid, len)).collect();
        let reply = pair.call(conn, message(xid, 3, &items), &room(3, &lens));
        assert_eq!(open(&reply.reply()), (xid, 3, items));
    }
    // 8 + 1 + 20 segments are read and as many written, five times. Each of the three write chunks
    // has room for the longest item, 20 segments.
    let (client, server) = (
        pair.client.device().counters(),
        pair.server.device().counters(),
    );
    assert_eq!((server.rdma_reads, server.rdma_writes), (145, 145));
    assert_eq!(client.registrations, 5 * (29 + 60));
}

#[test]
fn long_calls_and_long_replies_travel() {
    let mut pair = pair();
    pair.echo();
    let conn = pair.connect();
    for (xid, words) in [1100, 5000, 100_000].into_iter().enumerate() {
        let xid = xid as u32;
        let items = [data(xid, 20_000)];
        let reply = pair.call(conn, message(xid, words, &items), &room(words, &[20_000]));
        assert_eq!(open(&reply.reply()), (xid, words, items.to_vec()));
    }
}

#[test]
fn many_calls_in_flight_each_get_their_own_reply_and_all_memory_comes_back() {
    let (client, mut server) = options();
    server.common.credits = 128;
    // Shared receives have become as many as arrived at once.
    let receives = 128 * receive_memory(&client.common.longest_receives(|_| true));
    let mut pair = pair_with(client, server);
    pair.echo();
    let conn = pair.connect();
    pair.call(conn, message(u32::MAX, 0, &[]), &room(0, &[]))
        .reply();
    for xid in 0..512 {
        let len = (xid as usize * 137) % 30_000;
        let item = [data(xid, len)];
        pair.submit(conn, message(xid, 2, &item), &room(2, &[len]));
    }
    pair.until(|pair| pair.ended.len() == 512);
    for ((_, xid), end) in std::mem::take(&mut pair.ended) {
        let len = (xid as usize * 137) % 30_000;
        assert_eq!(open(&end.reply()), (xid, 2, vec![data(xid, len)]));
    }
    let most = pair.client.requester_counters(conn).unwrap().most_in_flight;
    assert_eq!(most, 128);
    pair.until(|pair| {
        pair.client_pool.in_use() <= receives && pair.server_pool.in_use() <= receives
    });
    pair.client.close(conn);
    pair.until(|pair| (pair.client_pool.in_use(), pair.server_pool.in_use()) == (0, 0));
}

#[test]
fn a_server_that_goes_away_in_the_middle_ends_every_call() {
    let (client, server) = options();
    let mut pair = pair_with(client, server.clone());
    let conn = pair.connect();
    for xid in 0..100 {
        let item = [data(xid, 9000)];
        pair.submit(conn, message(xid, 2, &item), &room(2, &[9000]));
    }
    pair.until(|pair| !pair.held.is_empty());
    pair.held.clear();
    pair.server = RdmaServer::new(device(), server);
    pair.until(|pair| !pair.down.is_empty());
    let lost = &pair.down[0].1;
    assert!(lost.was_established && lost.retry, "{lost:?}");
    assert!(pair.ended.is_empty());
    assert_eq!(pair.client_pool.in_use(), 0);
}

#[test]
fn a_client_that_goes_away_in_the_middle_leaves_nothing_on_the_server() {
    let (client, server) = options();
    let mut pair = pair_with(client.clone(), server);
    let conn = pair.connect();
    for xid in 0..100 {
        let item = [data(xid, 9000)];
        pair.submit(conn, message(xid, 2, &item), &room(2, &[9000]));
    }
    pair.until(|pair| !pair.held.is_empty());
    pair.client = RdmaClient::new(device(), client);
    pair.until(|pair| !pair.server_down.is_empty());
    // Replies to a client that is gone go nowhere.
    for (at, token, call) in std::mem::take(&mut pair.held) {
        pair.server.reply(at, token, Some(call), Time::ZERO);
    }
    assert_eq!(pair.server_pool.in_use(), 0);
    assert_eq!(pair.client_pool.in_use(), 0);
}

#[test]
fn nobody_listening_is_said_at_once() {
    let mut pair = pair();
    let mut nowhere = pair.address;
    nowhere.set_port(1);
    let conn = pair.client.open(nowhere, 0, Time::ZERO);
    pair.until(|pair| !pair.down.is_empty());
    let (at, lost) = &pair.down[0];
    assert_eq!((*at, lost.was_established, lost.retry), (conn, false, true));
    assert!(lost.reason.contains("refused"), "{}", lost.reason);
}

#[test]
fn an_error_reply_leaves_the_connection_alone() {
    let mut pair = pair();
    pair.answer_with(|call| Some(reply(open(call).0, 0, &[data(1, 100_000)])));
    let conn = pair.connect();
    let error = pair
        .call(conn, message(1, 0, &[]), &room(0, &[99_999]))
        .error();
    assert!(matches!(error, CallError::Chunk(_)), "{error:?}");
    pair.call(conn, message(2, 0, &[]), &room(0, &[100_000]))
        .reply();
    assert!(pair.down.is_empty());
}

/// Returns the reply to a call of a transport's test.
fn echoed(call: &Message) -> Message {
    let (xid, words, items) = open(call);
    reply(xid, words, &items)
}

/// Returns the reply, without results, to an RPC call.
fn accepted(call: &Message) -> Message {
    let xid = Decoder::new(call).u32().unwrap();
    let mut reply = Encoder::new();
    // A reply, accepted, with an empty verifier, and successful (RFC 5531, section 9).
    for word in [xid, 1, 0, 0, 0, 0] {
        reply.u32(word);
    }
    reply.finish()
}

/// Starts a server on its own thread, which sleeps in its poll loop and ends when `stop` is set.
fn serve(
    stop: &Arc<AtomicBool>,
    answer: fn(&Message) -> Message,
) -> (SocketAddr, thread::JoinHandle<Counters>) {
    let (address, ready) = mpsc::channel();
    let stop = Arc::clone(stop);
    let server = thread::spawn(move || {
        let mut server = RdmaServer::new(device(), options().1);
        address.send(server.listen(anywhere()).unwrap()).unwrap();
        let server = Rc::new(RefCell::new(server));
        let mut poll = PollLoop::new().unwrap();
        poll.add(Rc::clone(&server) as Rc<RefCell<dyn PollSource>>)
            .unwrap();
        while !stop.load(Ordering::Acquire) {
            let mut busy = poll.turn(Time::now());
            loop {
                let Some(event) = server.borrow_mut().next_event() else {
                    break;
                };
                busy = true;
                if let ServerTransportEvent::Call {
                    conn,
                    token,
                    message: call,
                } = event
                {
                    let reply = Some(answer(&call));
                    server.borrow_mut().reply(conn, token, reply, Time::now());
                }
            }
            if !busy {
                poll.wait(Some(Time::now() + std::time::Duration::from_millis(50)));
            }
        }
        server.borrow().device().counters()
    });
    (ready.recv().unwrap(), server)
}

/// A client that sleeps whenever there is nothing to do.
struct Sleeper {
    client: Rc<RefCell<RdmaClient>>,
    poll: PollLoop,
    conn: ConnectionId,
}

impl Sleeper {
    fn new(address: SocketAddr) -> Self {
        let client = RdmaClient::new(device(), options().0);
        let client = Rc::new(RefCell::new(client));
        let mut poll = PollLoop::new().unwrap();
        poll.add(Rc::clone(&client) as Rc<RefCell<dyn PollSource>>)
            .unwrap();
        let conn = client.borrow_mut().open(address, 0, Time::now());
        let mut sleeper = Self { client, poll, conn };
        assert!(matches!(sleeper.next(), ClientTransportEvent::Connected(_)));
        sleeper
    }

    fn next(&mut self) -> ClientTransportEvent {
        loop {
            if let Some(event) = self.client.borrow_mut().next_event() {
                return event;
            }
            if !self.poll.turn(Time::now()) {
                self.poll.wait(None);
            }
        }
    }

    fn call(&mut self, xid: u32, items: &[Bytes], lens: &[usize]) -> End {
        let call = message(xid, 0, items);
        let mut client = self.client.borrow_mut();
        client.submit(self.conn, xid, call, &room(0, lens), Time::now());
        drop(client);
        match self.next() {
            ClientTransportEvent::Reply { message, .. } => End::Reply(message),
            ClientTransportEvent::Failed { error, .. } => End::Failed(error),
            other => panic!("{other:?}"),
        }
    }
}

/// When both sides sleep until something arrives, a call takes one interrupt on each side.
#[test]
fn a_call_takes_one_interrupt_on_each_side_and_a_chunked_one_as_few_as_can_be() {
    const CALLS: u64 = 50;
    let stop = Arc::new(AtomicBool::new(false));
    let (address, server) = serve(&stop, echoed);
    let mut sleeper = Sleeper::new(address);
    sleeper.call(0, &[], &[]).reply();
    let interrupts = |sleeper: &Sleeper| sleeper.client.borrow().device().counters().interrupts;
    let mut xid = 0;
    let mut cost = |items: &[Bytes], lens: &[usize]| {
        let before = interrupts(&sleeper);
        for _ in 0..CALLS {
            xid += 1;
            let reply = sleeper.call(xid, items, lens).reply();
            assert_eq!(open(&reply).0, xid);
        }
        interrupts(&sleeper) - before
    };
    // Now and then an answer is there before the caller sleeps: that saves one.
    let null = cost(&[], &[]);
    let write = cost(&[data(1, 8192)], &[8192]);
    assert!(
        null <= CALLS + 1,
        "{null} interrupts for {CALLS} NULL calls"
    );
    assert!(
        write <= 2 * CALLS + 2,
        "{write} interrupts for {CALLS} calls with chunks"
    );
    stop.store(true, Ordering::Release);
    let served = server.join().unwrap();
    assert_eq!(served.sends, 2 * CALLS + 1);
    assert!(served.interrupts <= 4 * CALLS + 10, "{}", served.interrupts);
}

/// Counts the writes of a device to TCP.
#[derive(Clone, Default)]
struct Writes(Arc<AtomicUsize>);

impl Tap for Writes {
    fn sent(&mut self, _: Time, _: QpId, _: Frame<'_>) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }

    fn received(&mut self, _: Time, _: QpId, _: Frame<'_>) {}
}

impl Writes {
    /// Returns the number of writes since the last call.
    fn take(&self) -> usize {
        self.0.swap(0, Ordering::Relaxed)
    }

    /// Returns a device whose writes are counted.
    fn device(&self) -> Box<Iwarp> {
        let mut device = device();
        device.set_tap(Box::new(self.clone()));
        device
    }
}

/// Calls that are made in one turn leave with one gathered write, and so do the replies that are made in one.
#[test]
fn calls_of_one_turn_leave_with_one_write_and_so_do_their_replies() {
    let (client, server) = (Writes::default(), Writes::default());
    let ((client_options, server_options), nowhere) = (options(), anywhere());
    let mut pair = Pair::new(
        client.device(),
        client_options,
        server.device(),
        server_options,
        nowhere,
    );
    pair.client.set_busy_poll(true);
    pair.server.set_busy_poll(true);
    let conn = pair.connect();
    // The first reply grants all credits.
    pair.echo();
    pair.call(conn, message(0, 0, &[]), &room(0, &[])).reply();
    pair.answer = None;
    for count in [1, 2, 16] {
        client.take();
        server.take();
        for xid in 1..=count {
            pair.submit(conn, message(100 * count + xid, 0, &[]), &room(0, &[]));
        }
        let now = pair.now();
        pair.client.poll(now);
        assert_eq!(client.take(), 1, "{count} calls");
        pair.until(|pair| pair.held.len() == count as usize);
        for (at, token, call) in std::mem::take(&mut pair.held) {
            pair.server.reply(at, token, Some(echoed(&call)), now);
        }
        assert_eq!(server.take(), 0, "{count} replies");
        pair.server.poll(now);
        assert_eq!(server.take(), 1, "{count} replies");
        pair.until(|pair| pair.ended.len() == count as usize);
        pair.ended.clear();
    }
}

/// A call that is made outside of its runtime leaves at once, as nobody may poll for long; so do calls that are made by
/// a future which then ends. Those of one turn leave together.
#[test]
fn calls_leave_at_once_unless_more_may_be_made_in_the_same_turn() {
    let stop = Arc::new(AtomicBool::new(false));
    let (address, server) = serve(&stop, accepted);
    let writes = Writes::default();
    let runtime = Runtime::new().unwrap();
    let transport = RdmaClient::new(writes.device(), options().0);
    let transport = Rc::new(RefCell::new(transport));
    let connecting = Client::connect(&runtime, address, transport, ClientOptions::default());
    let client = runtime.block_on(connecting).unwrap();
    let call = || {
        client.call(Call {
            prog: 100_003,
            vers: 3,
            proc: 0,
            args: Message::default(),
            reply: ReplyRoom::default(),
        })
    };
    runtime.block_on(call()).unwrap();
    for round in 0..3 {
        writes.take();
        let alone = call();
        assert_eq!(writes.take(), 1, "round {round}");
        let left = runtime.block_on(async { [call(), call()] });
        assert_eq!(writes.take(), 1, "round {round}");
        let all = join_all((0..16).map(|_| async { call().await }));
        let ended = runtime.block_on(async {
            let all = all.await;
            assert_eq!(writes.take(), 1, "round {round}");
            all
        });
        assert!(ended.iter().all(Result::is_ok));
        let left = runtime.block_on(join_all(left));
        assert!(left.iter().all(Result::is_ok));
        runtime.block_on(alone).unwrap();
    }
    drop(client);
    stop.store(true, Ordering::Release);
    server.join().unwrap();
}
