//! The requirements of RFC 8166 and RFC 8797 that the connection engine keeps, each tested on the
//! wire under the number of its section. What headers and chunk lists must look like is tested with
//! the protocol version that writes and reads them.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod rdma_support;

use std::cell::RefCell;
use std::rc::Rc;

use bytes::Bytes;
use conveyance::Limits;
use onc_rpc::{Message, Segments};
use rdma::{Pool, Region, RemoteSegment, Stag, Time};
use rdma_support::fabric::{FakeDevice, Traffic, World, address, attributes};
use rdma_support::{End, POOL, Pair, data, message, open, options, room};
use rpc_transport::rdma::{
    Requester, RequesterAction, RequesterConfig, Responder, ResponderAction, ResponderConfig,
    Version, header_len,
};
use rpc_transport::{CallError, ReplyRoom, ServerPort};
use rpcrdma_v1::{Body, Chunks, ErrorBody, Header, ReadSegment, Segment, WriteChunk};

const CLIENT: usize = 0;
const SERVER: usize = 1;

fn limits() -> Limits {
    Limits {
        inline_send: 4096,
        inline_receive: 4096,
        max_segment: 1 << 30,
        max_message: 1 << 20,
        header_len: header_len(Version::One),
    }
}

/// Headers and payloads that one side sent, in order.
fn sent(world: &Rc<RefCell<World>>, by: usize) -> Vec<(Header, Bytes)> {
    let world = world.borrow();
    let sends = world
        .traffic
        .iter()
        .filter_map(|(from, traffic)| match traffic {
            Traffic::Send(bytes, _) if *from == by => Some(bytes.clone()),
            _ => None,
        });
    sends
        .map(|bytes| {
            let (header, at) = Header::decode(&bytes).unwrap();
            (header, bytes.slice(at..))
        })
        .collect()
}

fn chunks(header: &Header) -> &Chunks {
    match &header.body {
        Body::Msg(chunks) | Body::NoMsg(chunks) => chunks,
        Body::Error(error) => panic!("{error:?}"),
    }
}

/// A requester alone, with whatever it registers registered at once.
struct Alone {
    requester: Requester,
    pool: Pool,
    registered: Vec<(Stag, Region)>,
    sent: Vec<Bytes>,
    invalidated: Vec<Stag>,
    ended: Vec<(u32, Result<Message, CallError>)>,
}

impl Alone {
    fn new(credits: u32) -> Self {
        let pool = Pool::new(POOL);
        let mut requester = Requester::new(RequesterConfig {
            credits,
            pool: pool.clone(),
        });
        requester.connected(Version::One, limits());
        Self {
            requester,
            pool,
            registered: Vec::new(),
            sent: Vec::new(),
            invalidated: Vec::new(),
            ended: Vec::new(),
        }
    }

    fn submit(&mut self, xid: u32, call: Message, room: &ReplyRoom) {
        self.requester.submit(xid, call, room);
        self.run();
    }

    fn take(&mut self, stag: Stag) -> Region {
        let at = self
            .registered
            .iter()
            .position(|(other, _)| *other == stag)
            .unwrap();
        self.registered.remove(at).1
    }

    fn run(&mut self) {
        while let Some(action) = self.requester.next_action() {
            match action {
                RequesterAction::Register { id, region } => {
                    let stag = Stag(100 + self.registered.len() as u32);
                    let length = region.len() as u32;
                    self.registered.push((stag, region));
                    let segment = RemoteSegment {
                        stag,
                        length,
                        offset: 4096,
                    };
                    self.requester.registered(id, Ok(segment));
                }
                RequesterAction::Reserve { .. } | RequesterAction::Release { .. } => {
                    panic!("nobody conveys")
                }
                RequesterAction::Send { gather } => self.sent.push(gather.concat().into()),
                RequesterAction::Invalidate { id, stag } => {
                    self.invalidated.push(stag);
                    let region = self.take(stag);
                    self.requester.reclaimed(id, region);
                }
                RequesterAction::Reclaim { id, stag } => {
                    let region = self.take(stag);
                    self.requester.reclaimed(id, region);
                }
                RequesterAction::Deliver { xid, message } => self.ended.push((xid, Ok(message))),
                RequesterAction::Fail { xid, error } => self.ended.push((xid, Err(error))),
            }
        }
    }

    fn receive(&mut self, header: &Header, payload: &[u8]) {
        let message = [&header.encode()[..], payload].concat();
        self.requester.received(message.into(), None);
        self.run();
    }

    /// The chunks that the last call offered.
    fn offered(&self) -> Chunks {
        let (header, _) = Header::decode(self.sent.last().unwrap()).unwrap();
        chunks(&header).clone()
    }
}

fn reply(xid: u32, credits: u32, chunks: Chunks) -> Header {
    let body = Body::Msg(chunks);
    Header { xid, credits, body }
}

fn plain(xid: u32) -> Message {
    message(xid, 0, &[])
}

/// A responder alone.
fn responder(pool: &Pool) -> Responder {
    Responder::new(ResponderConfig {
        version: Version::One,
        credits: 4,
        max_fetched: 1 << 20,
        outbound_reads: 4,
        remote_invalidation: true,
        limits: limits(),
        pool: pool.clone(),
    })
}

fn encoded(xid: u32, body: Body, payload: &[u8]) -> Bytes {
    let header = Header {
        xid,
        credits: 4,
        body,
    };
    [&header.encode()[..], payload].concat().into()
}

fn bytes(message: &Message) -> Vec<u8> {
    let inline: Segments = message.gather(|_| true);
    inline.concat()
}

fn error_in(action: Option<ResponderAction>) -> Option<Header> {
    let Some(ResponderAction::Send {
        gather, invalidate, ..
    }) = action
    else {
        return None;
    };
    assert!(invalidate.is_none(), "an error invalidates nothing");
    let (header, _) = Header::decode(&gather.concat().into()).unwrap();
    matches!(header.body, Body::Error(_)).then_some(header)
}

/// A call that waited in a full send queue could not be held back when the grant is lowered meanwhile.
#[test]
fn s3_3_1_calls_without_room_in_the_send_queue_heed_a_grant_that_is_lowered() {
    let mut alone = Alone::new(8);
    let none = Chunks::default;
    alone.submit(0, plain(0), &room(0, &[]));
    alone.receive(&reply(0, 4, none()), &bytes(&plain(0)));
    alone.requester.set_room(1);
    for xid in 1..=4 {
        // Every other one has memory registered.
        let reply_room = room(0, if xid % 2 == 0 { &[8192] } else { &[] });
        alone.submit(xid, plain(xid), &reply_room);
    }
    assert_eq!(alone.sent.len(), 2, "one has room");
    alone.receive(&reply(1, 1, none()), &bytes(&plain(1)));
    assert_eq!((alone.sent.len(), alone.requester.in_flight()), (2, 0));
    alone.requester.set_room(8);
    alone.run();
    assert_eq!(alone.sent.len(), 3, "one credit is left");
}

#[test]
fn s3_3_1_calls_over_the_grant_wait_and_none_gets_lost() {
    let mut alone = Alone::new(8);
    for xid in 0..20 {
        alone.submit(xid, plain(xid), &room(0, &[]));
    }
    assert_eq!(alone.sent.len(), 1, "one credit until a reply says more");
    let mut answered = 0;
    // Grants go up, down and beyond what was asked for.
    for granted in [3, 3, 1, 1, 1, 100, 8, 2] {
        let before = alone.sent.len();
        let granted_reply = reply(answered, granted, Chunks::default());
        alone.receive(&granted_reply, &bytes(&plain(answered)));
        answered += 1;
        let outstanding = alone.sent.len() as u32 - answered;
        assert_eq!(outstanding, alone.requester.in_flight());
        // A lower grant takes nothing back; it only lets nothing follow.
        let grew = alone.sent.len() > before;
        assert!(
            !grew || outstanding <= granted.min(8),
            "{outstanding} with {granted} granted"
        );
        assert!(
            outstanding >= granted.min(8) || alone.sent.len() == 20,
            "credits are used"
        );
    }
    while answered < 20 {
        alone.receive(
            &reply(answered, 2, Chunks::default()),
            &bytes(&plain(answered)),
        );
        answered += 1;
    }
    let xids: Vec<u32> = alone.ended.iter().map(|(xid, _)| *xid).collect();
    assert_eq!(
        xids,
        (0..20).collect::<Vec<u32>>(),
        "in order, and each once"
    );
}

#[test]
fn s3_3_1_a_grant_of_zero_serialises_and_does_not_stop_the_client() {
    let mut alone = Alone::new(8);
    for xid in 0..5 {
        alone.submit(xid, plain(xid), &room(0, &[]));
    }
    for xid in 0..5 {
        assert_eq!(alone.sent.len() as u32, xid + 1, "one at a time");
        alone.receive(&reply(xid, 0, Chunks::default()), &bytes(&plain(xid)));
    }
    assert_eq!(alone.ended.len(), 5);
}

#[test]
fn s3_3_1_receives_are_posted_again_before_replies_go_out() {
    let (client, mut server) = options();
    server.common.credits = 2;
    let (world, mut pair) = Pair::fake_with(client, server, attributes());
    pair.echo();
    let conn = pair.connect();
    // The client sends the next call as soon as it sees a reply. Were the receive posted after
    // that, the four extra ones would soon be used up.
    for xid in 0..100 {
        pair.submit(conn, plain(xid), &room(0, &[]));
    }
    pair.until(|pair| pair.ended.len() == 100);
    let world = world.borrow();
    assert_eq!(world.overruns, 0);
    assert!(
        world.fewest_receives >= Some(4),
        "{:?}",
        world.fewest_receives
    );
}

#[test]
fn s3_3_1_a_requester_has_receives_for_all_replies_it_expects() {
    let (world, mut pair) = Pair::fake();
    let conn = pair.connect();
    pair.echo();
    pair.call(conn, plain(1000), &room(0, &[])).reply();
    pair.answer = None;
    for xid in 0..64 {
        pair.submit(conn, plain(xid), &room(0, &[]));
    }
    pair.until(|pair| pair.held.len() == 64);
    world.borrow_mut().fewest_receives = None;
    // All replies at once, while the client looks away.
    for (at, token, call) in std::mem::take(&mut pair.held) {
        let reply = Some(rdma_support::reply(open(&call).0, 0, &[]));
        pair.server.reply(at, token, reply, Time::ZERO);
    }
    pair.until(|pair| pair.ended.len() == 64 || !pair.down.is_empty());
    assert_eq!(world.borrow().overruns, 0);
}

#[test]
fn s3_3_1_a_peer_that_exceeds_its_grant_loses_its_connection() {
    let pool = Pool::new(POOL);
    let mut responder = responder(&pool);
    for xid in 0..4 {
        responder.received(encoded(
            xid,
            Body::Msg(Chunks::default()),
            &bytes(&plain(xid)),
        ));
        let action = responder.next_action();
        assert!(
            matches!(action, Some(ResponderAction::Deliver { .. })),
            "{action:?}"
        );
    }
    responder.received(encoded(4, Body::Msg(Chunks::default()), &bytes(&plain(4))));
    let action = responder.next_action();
    assert!(
        matches!(action, Some(ResponderAction::Close { .. })),
        "{action:?}"
    );
}

#[test]
fn s3_3_2_receives_are_as_long_as_was_advertised() {
    for size in [1024, 4096, 262_144] {
        let (mut client, mut server) = options();
        (client.common.credits, server.common.credits) = (4, 4);
        client.common.inline_receive = size;
        server.common.inline_receive = size;
        (client.common.inline_send, server.common.inline_send) = (size, size);
        let (world, mut pair) = Pair::fake_with(client, server, attributes());
        pair.echo();
        let conn = pair.connect();
        assert!(world.borrow().shortest_receive >= Some(size as usize));
        // Exactly at the threshold, both ways: 28 bytes of header, 16 of message.
        let words = (size as usize - 28 - 16) / 4;
        pair.call(conn, message(1, words, &[]), &room(words, &[]))
            .reply();
        let longest = sent(&world, CLIENT)
            .iter()
            .map(|(_, payload)| payload.len())
            .max();
        assert_eq!(longest, Some(size as usize - 28));
        assert_eq!(pair.client.device().counters().registrations, 0, "{size}");
    }
}

#[test]
fn s3_3_3_the_first_call_fits_1024_bytes_without_another_agreement() {
    let (mut client, server) = options();
    client.common.private_data = false;
    let (world, mut pair) = Pair::fake_with(client, server, attributes());
    pair.echo();
    let conn = pair.connect();
    let items = [data(1, 1500)];
    pair.call(conn, message(1, 0, &items), &room(0, &[1500]))
        .reply();
    for side in [CLIENT, SERVER] {
        for (header, payload) in sent(&world, side) {
            assert!(header.encoded_len() + payload.len() <= 1024);
        }
    }
}

#[test]
fn s3_4_5_read_chunks_of_any_number_and_segmentation_are_fetched_and_put_in_place() {
    let (mut client, server) = options();
    client.common.max_segment = 4096;
    let (world, mut pair) = Pair::fake_with(client, server, attributes());
    pair.echo();
    let conn = pair.connect();
    let items = [data(1, 10_001), data(2, 4096), data(3, 70_000)];
    let reply = pair
        .call(
            conn,
            message(1, 2, &items),
            &room(2, &[10_001, 4096, 70_000]),
        )
        .reply();
    assert_eq!(open(&reply), (1, 2, items.to_vec()));
    let call = sent(&world, CLIENT).remove(0).0;
    let positions: Vec<u32> = chunks(&call)
        .reads
        .iter()
        .map(|read| read.position)
        .collect();
    // Counted from the start of the unreduced stream: 16 bytes, the count, and each length.
    let (first, second) = (24, 24 + 10_004 + 4);
    let third = second + 4096 + 4;
    assert_eq!(positions[..4], [first, first, first, second]);
    assert_eq!(positions[4..], [third; 18]);
}

#[test]
fn s3_4_6_write_chunks_are_long_enough_and_returned_with_what_is_in_them() {
    let (mut client, server) = options();
    client.common.max_segment = 4096;
    let (world, mut pair) = Pair::fake_with(client, server, attributes());
    let item = data(5, 5001);
    let answer = item.clone();
    pair.answer_with(move |call| {
        Some(rdma_support::reply(
            open(call).0,
            0,
            std::slice::from_ref(&answer),
        ))
    });
    let conn = pair.connect();
    let reply = pair.call(conn, plain(1), &room(0, &[10_000])).reply();
    assert_eq!(open(&reply).2, [item]);
    let (call, reply) = (
        sent(&world, CLIENT).remove(0).0,
        sent(&world, SERVER).remove(0).0,
    );
    let lengths = |header: &Header| -> Vec<u32> {
        chunks(header).writes[0]
            .iter()
            .map(|segment| segment.length)
            .collect()
    };
    assert_eq!(lengths(&call), [4096, 4096, 1808]);
    assert_eq!(
        lengths(&reply),
        [4096, 905, 0],
        "in order, without round-up"
    );
    let handles = |header: &Header| -> Vec<(u32, u64)> {
        chunks(header).writes[0]
            .iter()
            .map(|segment| (segment.handle, segment.offset))
            .collect()
    };
    assert_eq!(handles(&call), handles(&reply));
}

#[test]
fn s3_4_6_2_round_up_is_not_written() {
    let (world, mut pair) = Pair::fake();
    pair.answer_with(|call| Some(rdma_support::reply(open(call).0, 0, &[data(1, 5001)])));
    let conn = pair.connect();
    pair.call(conn, plain(1), &room(0, &[8192])).reply();
    let world = world.borrow();
    let mut written = world
        .traffic
        .iter()
        .filter_map(|(_, traffic)| match traffic {
            Traffic::Write(len) => Some(*len),
            _ => None,
        });
    assert_eq!(written.next(), Some(5001));
    assert_eq!(written.next(), None);
}

#[test]
fn s3_5_3_long_calls_and_replies_travel_by_chunks() {
    let (world, mut pair) = Pair::fake();
    pair.echo();
    let conn = pair.connect();
    let reply = pair
        .call(conn, message(1, 5000, &[]), &room(5000, &[]))
        .reply();
    assert_eq!(open(&reply).1, 5000);
    let (call, payload) = sent(&world, CLIENT).remove(0);
    assert!(matches!(call.body, Body::NoMsg(_)) && payload.is_empty());
    assert!(chunks(&call).reads.iter().all(|read| read.position == 0));
    let (reply, payload) = sent(&world, SERVER).remove(0);
    assert!(matches!(reply.body, Body::NoMsg(_)) && payload.is_empty());
    assert_eq!(chunks(&reply).reply.as_ref().unwrap()[0].length, 20_016);
}

#[test]
fn s4_2_1_a_call_whose_header_has_another_xid_is_refused() {
    let pool = Pool::new(POOL);
    let mut responder = responder(&pool);
    responder.received(encoded(1, Body::Msg(Chunks::default()), &bytes(&plain(2))));
    let error = error_in(responder.next_action()).unwrap();
    assert_eq!((error.xid, error.body), (1, Body::Error(ErrorBody::Chunk)));
    // In a Long Call the RPC message can be looked at only when it is here.
    let segment = Segment {
        handle: 5,
        length: 16,
        offset: 0,
    };
    let position = 0;
    let mut long = Chunks::default();
    long.reads.push(ReadSegment { position, segment });
    responder.received(encoded(3, Body::NoMsg(long), &[]));
    let Some(ResponderAction::Read { id, mut sink, .. }) = responder.next_action() else {
        panic!("nothing is read");
    };
    sink.copy_from_slice(&bytes(&plain(4)));
    responder.read_done(id, sink);
    assert_eq!(error_in(responder.next_action()).unwrap().xid, 3);
    assert_eq!(responder.outstanding(), 0);
}

#[test]
fn s4_2_4_no_send_exceeds_the_inline_threshold() {
    let (mut client, mut server) = options();
    client.common.inline_receive = 2048;
    server.common.inline_receive = 1024;
    let (world, mut pair) = Pair::fake_with(client, server, attributes());
    pair.echo();
    let conn = pair.connect();
    for (xid, words) in (200..520).enumerate() {
        pair.call(conn, message(xid as u32, words, &[]), &room(words, &[]))
            .reply();
    }
    let longest = |side| {
        let sends = sent(&world, side).into_iter();
        sends
            .map(|(header, payload)| header.encoded_len() + payload.len())
            .max()
    };
    assert_eq!((longest(CLIENT), longest(SERVER)), (Some(1024), Some(2048)));
}

#[test]
fn s4_3_2_2_unused_write_chunks_are_returned_and_released() {
    let (world, mut pair) = Pair::fake();
    pair.answer_with(|call| Some(rdma_support::reply(open(call).0, 0, &[])));
    let conn = pair.connect();
    let base = pair.client_pool.in_use();
    let reply = pair.call(conn, plain(1), &room(0, &[9000, 9000])).reply();
    assert!(reply.items().iter().all(|item| item.data.is_empty()));
    let reply_header = sent(&world, SERVER).remove(0).0;
    let writes = &chunks(&reply_header).writes;
    assert_eq!(writes.len(), 2);
    assert!(writes.iter().flatten().all(|segment| segment.length == 0));
    drop(reply);
    pair.settle();
    assert_eq!(pair.client_pool.in_use(), base, "both chunks are back");
}

#[test]
fn s4_3_3_the_reply_chunk_is_returned_when_the_reply_fits_inline() {
    let (world, mut pair) = Pair::fake();
    pair.echo();
    let conn = pair.connect();
    let base = pair.client_pool.in_use();
    drop(pair.call(conn, plain(1), &room(5000, &[])));
    let reply = sent(&world, SERVER).remove(0).0;
    assert!(matches!(reply.body, Body::Msg(_)));
    assert_eq!(chunks(&reply).reply.as_ref().unwrap()[0].length, 0);
    pair.settle();
    assert_eq!(pair.client_pool.in_use(), base);
}

/// Section 4.4.1: what is delivered is out of the responder's reach first.
#[test]
fn s4_4_1_memory_is_fenced_before_it_is_looked_at() {
    let mut alone = Alone::new(4);
    let items = [data(1, 9000)];
    alone.submit(1, message(1, 0, &items), &room(5000, &[7000]));
    let offered = alone.offered();
    assert_eq!(alone.registered.len(), 3);
    alone.receive(
        &reply(
            1,
            4,
            Chunks {
                reads: vec![],
                ..unused(&offered)
            },
        ),
        &bytes(&plain(1)),
    );
    assert_eq!(alone.ended.len(), 1);
    assert_eq!(alone.invalidated.len(), 3);
    assert!(
        alone.registered.is_empty(),
        "nothing stays registered after its call"
    );
}

/// Section 4.2.1, for a payload that can be looked at only when it is fenced.
#[test]
fn s4_2_1_a_long_reply_with_the_xid_of_another_call_is_not_delivered() {
    for inside in [1, 2] {
        let mut alone = Alone::new(4);
        alone.submit(1, plain(1), &room(5000, &[]));
        let offered = alone.offered();
        let payload = bytes(&message(inside, 5000, &[]));
        let Region::RemoteWrite(memory) = &mut alone.registered[0].1 else {
            panic!("no reply chunk")
        };
        memory[..payload.len()].copy_from_slice(&payload);
        let mut chunks = unused(&offered);
        chunks.reply.as_mut().unwrap()[0].length = payload.len() as u32;
        let body = Body::NoMsg(chunks);
        let header = Header {
            xid: 1,
            credits: 4,
            body,
        };
        alone.receive(&header, &[]);
        let (xid, end) = alone.ended.remove(0);
        assert_eq!(xid, 1);
        match end {
            Ok(reply) => assert_eq!((inside, open(&reply).1), (1, 5000)),
            Err(error) => assert!(inside == 2 && matches!(error, CallError::Protocol(_))),
        }
    }
}

fn unused(offered: &Chunks) -> Chunks {
    Chunks {
        reads: vec![],
        writes: offered
            .writes
            .iter()
            .map(|chunk| rpcrdma_v1::unused(chunk))
            .collect(),
        reply: offered
            .reply
            .as_ref()
            .map(|chunk| rpcrdma_v1::unused(chunk)),
    }
}

#[test]
fn s4_5_replies_with_a_bad_header_are_discarded() {
    let mut alone = Alone::new(4);
    alone.submit(1, plain(1), &room(0, &[8192]));
    let offered = alone.offered();
    let good = unused(&offered);
    let mut longer = good.clone();
    longer.writes[0][0].length = 8193;
    let mut other = good.clone();
    other.writes[0][0].handle += 1;
    let mut more = good.clone();
    more.writes.push(WriteChunk::new());
    let segment = good.writes[0][0];
    let mut reading = good.clone();
    reading.reads.push(ReadSegment {
        position: 4,
        segment,
    });
    for bad in [longer, other, more, reading] {
        alone.receive(&reply(1, 4, bad), &bytes(&plain(1)));
    }
    alone.receive(&reply(1, 4, good.clone()), &bytes(&plain(2)));
    for noise in [&[][..], &[0; 27], &[0xff; 40]] {
        alone
            .requester
            .received(Bytes::copy_from_slice(noise), None);
        alone.run();
    }
    assert!(
        alone.ended.is_empty() && alone.sent.len() == 1,
        "no answer, no end"
    );
    assert!(
        alone.requester.counters().discarded >= 7,
        "{:?}",
        alone.requester.counters()
    );
    // The call is still there for the right reply.
    alone.receive(&reply(1, 4, good), &bytes(&plain(1)));
    assert_eq!(alone.ended.len(), 1);
}

#[test]
fn s4_5_an_rdma_error_ends_its_call_for_good() {
    let mut alone = Alone::new(4);
    alone.submit(1, message(1, 0, &[data(1, 9000)]), &room(0, &[]));
    let body = Body::Error(ErrorBody::Chunk);
    let header = Header {
        xid: 1,
        credits: 4,
        body,
    };
    alone.receive(&header, &[]);
    assert!(
        matches!(alone.ended[..], [(1, Err(CallError::Chunk(_)))]),
        "{:?}",
        alone.ended
    );
    assert!(alone.registered.is_empty());
    assert_eq!(alone.requester.in_flight(), 0);
    alone.receive(&header, &[]);
    assert_eq!(
        (alone.ended.len(), alone.sent.len()),
        (1, 1),
        "once, and not sent again"
    );
    assert_eq!(alone.requester.counters().unknown_xid, 1);

    alone.submit(2, plain(2), &room(0, &[]));
    let body = Body::Error(ErrorBody::Version { low: 2, high: 3 });
    let header = Header {
        xid: 2,
        credits: 4,
        body,
    };
    alone.receive(&header, &[]);
    let (_, Err(CallError::Protocol(reason))) = &alone.ended[1] else {
        panic!("{:?}", alone.ended);
    };
    assert!(reason.contains("2 to 3"), "{reason}");
}

#[test]
fn s4_5_replies_to_no_call_are_dropped_and_counted() {
    let mut alone = Alone::new(4);
    alone.submit(1, plain(1), &room(0, &[]));
    for xid in [0, 2, u32::MAX] {
        alone.receive(&reply(xid, 100, Chunks::default()), &bytes(&plain(xid)));
    }
    assert_eq!(alone.requester.counters().unknown_xid, 3);
    assert_eq!(alone.requester.in_flight(), 1, "they free no credit");
    alone.submit(2, plain(2), &room(0, &[]));
    assert_eq!(alone.sent.len(), 1, "and grant none");
}

#[test]
fn s4_5_1_and_s4_5_2_bad_calls_are_answered_and_not_executed() {
    let pool = Pool::new(POOL);
    let mut responder = responder(&pool);
    let good = encoded(7, Body::Msg(Chunks::default()), &bytes(&plain(7)));
    let with = |at: usize, word: u32| {
        let mut bytes = good.to_vec();
        bytes[at..at + 4].copy_from_slice(&word.to_be_bytes());
        Bytes::from(bytes)
    };
    responder.received(with(4, 9));
    // The error has the version of what it answers, so it is looked at word by word.
    let Some(ResponderAction::Send { gather, .. }) = responder.next_action() else {
        panic!("no answer");
    };
    let answer: Vec<u32> = gather
        .concat()
        .chunks_exact(4)
        .map(|word| u32::from_be_bytes(word.try_into().unwrap()))
        .collect();
    assert_eq!(
        (answer[0], answer[1], &answer[3..]),
        (7, 9, &[4, 1, 1, 1][..])
    );
    for (at, word) in [(12, 77), (16, 2), (24, 3)] {
        responder.received(with(at, word));
        let error = error_in(responder.next_action()).unwrap();
        assert_eq!((error.xid, error.body), (7, Body::Error(ErrorBody::Chunk)));
        assert!(error.credits > 0);
    }
    for silent in [with(12, 3), with(12, 4), good.slice(..27)] {
        responder.received(silent);
        assert!(responder.next_action().is_none());
    }
    assert_eq!(
        (responder.outstanding(), responder.counters().discarded),
        (0, 3)
    );
}

/// A call that claims gigabytes gets an answer, and no memory.
#[test]
fn s4_5_3_chunks_that_are_too_long_are_refused_before_memory_is_taken() {
    let pool = Pool::new(POOL);
    let mut responder = responder(&pool);
    let segment = |length| Segment {
        handle: 1,
        length,
        offset: 0,
    };
    for lengths in [&[u32::MAX][..], &[u32::MAX, u32::MAX, 10], &[(1 << 20) + 1]] {
        let mut chunks = Chunks::default();
        for &length in lengths {
            chunks.reads.push(ReadSegment {
                position: 8,
                segment: segment(length),
            });
        }
        responder.received(encoded(1, Body::Msg(chunks), &bytes(&plain(1))));
        let error = error_in(responder.next_action()).unwrap();
        assert_eq!(error.body, Body::Error(ErrorBody::Chunk));
        assert!(responder.next_action().is_none() && pool.in_use() == 0);
    }
    assert_eq!(responder.outstanding(), 0);
}

/// Xcharext-02, section 3.1: a call was sent when its reply could be longer than it can now.
#[test]
fn xchar_s3_1_a_reply_waits_while_it_is_not_known_what_fits() {
    // What is found out in the end, and how long the reply then is; or an error.
    for (last_resort, fits) in [(4096, true), (1024, false)] {
        let pool = Pool::new(POOL);
        let mut responder = responder(&pool);
        let call = encoded(7, Body::Msg(Chunks::default()), &bytes(&plain(7)));
        responder.received(call);
        let Some(ResponderAction::Deliver { token, .. }) = responder.next_action() else {
            panic!("no call");
        };
        let less = Limits {
            inline_send: 1024,
            ..limits()
        };
        responder.limits_changed(less, true, None);
        let reply = rdma_support::reply(7, 500, &[]);
        let len = bytes(&reply).len();
        assert!((1024..4096).contains(&len));
        responder.reply(token, Some(reply));
        assert!(responder.next_action().is_none(), "it waits");
        responder.limits_changed(less, true, Some(last_resort));
        let Some(ResponderAction::Send { gather, .. }) = responder.next_action() else {
            panic!("no answer");
        };
        let answer = Bytes::from(gather.concat());
        let (header, at) = Header::decode(&answer).unwrap();
        let sent = answer.len() - at;
        let (body, expected) = match fits {
            true => (Body::Msg(Chunks::default()), len),
            false => (Body::Error(ErrorBody::Chunk), 0),
        };
        assert_eq!((header.xid, header.body, sent), (7, body, expected));
        assert!(responder.next_action().is_none());
    }
}

#[test]
fn s4_5_3_a_reply_that_fits_nowhere_is_err_chunk() {
    let (world, mut pair) = Pair::fake();
    pair.answer_with(|call| Some(rdma_support::reply(open(call).0, 3000, &[])));
    let conn = pair.connect();
    let error = pair.call(conn, plain(1), &room(1500, &[])).error();
    assert!(matches!(error, CallError::Chunk(_)), "{error:?}");
    let (reply, payload) = sent(&world, SERVER).remove(0);
    assert_eq!((reply.xid, reply.body), (1, Body::Error(ErrorBody::Chunk)));
    assert!(payload.is_empty());
    let world = world.borrow();
    let written = |(_, traffic): &(usize, Traffic)| matches!(traffic, Traffic::Write(_));
    assert!(
        !world.traffic.iter().any(written),
        "nothing is written of a reply that does not fit"
    );
}

#[test]
fn s4_5_4_a_requester_that_cannot_invalidate_closes_the_connection() {
    let (mut client, server) = options();
    client.common.remote_invalidation = false;
    let (world, mut pair) = Pair::fake_with(client, server, attributes());
    pair.echo();
    let conn = pair.connect();
    world.borrow_mut().fail_invalidate = true;
    pair.submit(conn, message(1, 0, &[data(1, 9000)]), &room(0, &[9000]));
    pair.until(|pair| !pair.down.is_empty());
    assert!(
        pair.ended.is_empty(),
        "its memory is not fenced off by an invalidation"
    );
    assert!(
        pair.down[0].1.reason.contains("local protection error"),
        "{:?}",
        pair.down
    );
    pair.settle();
    assert_eq!(
        (pair.client_pool.in_use(), pair.server_pool.in_use()),
        (0, 0)
    );
}

#[test]
fn s4_5_4_a_responder_that_cannot_send_closes_the_connection() {
    // Three pieces do not fit the device's gather list, and there is no memory to join them in.
    let (mut client, mut server) = options();
    (client.common.credits, server.common.credits) = (1, 1);
    let world = World::new();
    let narrow = rdma::Attributes {
        max_gather: 2,
        ..attributes()
    };
    // Seven receives each; a used one waits to be replaced while its message is in use.
    let a = FakeDevice::new(&world, attributes(), Pool::new(POOL));
    let b = FakeDevice::new(&world, narrow, Pool::new(7 * 4096));
    let mut pair = Pair::new(Box::new(a), client, Box::new(b), server, address());
    let conn = pair.connect();
    pair.submit(conn, plain(1), &room(1000, &[]));
    pair.until(|pair| !pair.held.is_empty());
    let (at, token, _call) = pair.held.remove(0);
    let pieces: Segments = [data(1, 8), data(2, 8), data(3, 8)].into_iter().collect();
    pair.server
        .reply(at, token, Some(Message::new(pieces, [])), Time::ZERO);
    pair.until(|pair| !pair.down.is_empty() && !pair.server_down.is_empty());
    assert!(
        pair.server_down[0].1.contains("reply not sent"),
        "{:?}",
        pair.server_down
    );
}

#[test]
fn rfc8797_s4_settings_may_change_with_a_new_connection() {
    let (client, server) = options();
    let world = World::new();
    let device = |pool| FakeDevice::new(&world, attributes(), Pool::new(pool));
    let mut pair = Pair::new(
        Box::new(device(POOL)),
        client,
        Box::new(device(POOL)),
        server.clone(),
        address(),
    );
    pair.echo();
    let conn = pair.connect();
    let call = || message(1, 500, &[]);
    pair.call(conn, call(), &room(500, &[])).reply();
    assert_eq!(pair.client.device().counters().registrations, 0);
    // The server comes back with the smallest sizes and without remote invalidation.
    world.borrow_mut().lose_all();
    world.borrow_mut().stop_listening();
    pair.until(|pair| !pair.down.is_empty());
    let mut smaller = server;
    (smaller.common.inline_receive, smaller.common.inline_send) = (1024, 1024);
    smaller.common.remote_invalidation = false;
    pair.server = rpc_transport::rdma::RdmaServer::new(Box::new(device(POOL)), smaller);
    pair.server.listen(address()).unwrap();
    let conn = pair.connect();
    pair.call(conn, call(), &room(500, &[])).reply();
    let counters = pair.client.device().counters();
    assert_eq!(
        (counters.registrations, counters.local_invalidations),
        (2, 2)
    );
}

#[test]
fn rfc8797_s4_1_replies_invalidate_a_handle_of_their_own_call() {
    let (world, mut pair) = Pair::fake();
    pair.echo();
    let conn = pair.connect();
    for xid in 0..50 {
        let lens = [9000, 9000];
        let items = [data(xid, 9000), data(xid, 9000)];
        pair.submit(conn, message(xid, 0, &items), &room(0, &lens));
    }
    pair.until(|pair| pair.ended.len() == 50);
    let calls = sent(&world, CLIENT);
    let world = world.borrow();
    let mut invalidated = 0;
    for (from, traffic) in &world.traffic {
        let Traffic::Send(bytes, invalidate) = traffic else {
            continue;
        };
        if *from == SERVER {
            let (reply, _) = Header::decode(bytes).unwrap();
            let (call, _) = calls
                .iter()
                .find(|(call, _)| call.xid == reply.xid)
                .unwrap();
            let handle = invalidate.expect("every one of these calls has chunks").0;
            assert!(chunks(call).handles().any(|offered| offered == handle));
            invalidated += 1;
        }
    }
    assert_eq!(invalidated, 50);
    let counters = pair.client.device().counters();
    assert_eq!(counters.registrations, 200);
    assert_eq!(
        counters.local_invalidations, 150,
        "each handle is invalidated once, by one side"
    );
}

/// A requester copes with any handle of its own, even one of another call.
#[test]
fn rfc8797_s4_1_any_handle_may_have_been_invalidated() {
    let mut alone = Alone::new(4);
    alone.submit(1, plain(1), &room(0, &[]));
    alone.receive(&reply(1, 4, Chunks::default()), &bytes(&plain(1)));
    alone.submit(2, message(2, 0, &[data(1, 9000)]), &room(0, &[]));
    let stag = Stag(alone.offered().reads[0].segment.handle);
    alone.submit(3, plain(3), &room(0, &[]));
    let header = reply(3, 4, Chunks::default());
    let bytes_of_3: Bytes = [&header.encode()[..], &bytes(&plain(3))].concat().into();
    alone.requester.received(bytes_of_3, Some(stag));
    alone.run();
    assert!(
        alone.registered.is_empty(),
        "call 2's memory was taken back"
    );
    alone.receive(&reply(2, 4, Chunks::default()), &bytes(&plain(2)));
    assert!(alone.invalidated.is_empty(), "and is not invalidated again");
    assert_eq!(alone.ended.len(), 3);
    alone.ended.clear();
    assert_eq!(alone.pool.in_use(), 0);
}

#[test]
fn rfc8797_s4_1_without_both_flags_replies_are_plain_sends() {
    for (client_wants, server_wants) in [(true, false), (false, true), (false, false)] {
        let (mut client, mut server) = options();
        client.common.remote_invalidation = client_wants;
        server.common.remote_invalidation = server_wants;
        let (_, mut pair) = Pair::fake_with(client, server, attributes());
        pair.echo();
        let conn = pair.connect();
        pair.call(conn, message(1, 0, &[data(1, 9000)]), &room(0, &[9000]))
            .reply();
        assert_eq!(pair.server.device().counters().sends_with_invalidate, 0);
        assert_eq!(pair.client.device().counters().local_invalidations, 2);
    }
}

#[test]
fn rfc8797_s4_2_thresholds_are_the_smaller_of_what_both_sides_said() {
    let (mut client, mut server) = options();
    client.common.inline_send = 8192;
    server.common.inline_receive = 3072;
    server.common.inline_send = 2048;
    client.common.inline_receive = 16_384;
    let (world, mut pair) = Pair::fake_with(client, server, attributes());
    pair.echo();
    let conn = pair.connect();
    for (xid, words) in (400..800).step_by(3).enumerate() {
        pair.call(conn, message(xid as u32, words, &[]), &room(words, &[]))
            .reply();
    }
    let longest = |side| {
        let sends = sent(&world, side).into_iter();
        sends
            .map(|(header, payload)| header.encoded_len() + payload.len())
            .max()
            .unwrap()
    };
    assert!(
        (3060..=3072).contains(&longest(CLIENT)),
        "{}",
        longest(CLIENT)
    );
    assert!(
        (2036..=2048).contains(&longest(SERVER)),
        "{}",
        longest(SERVER)
    );
    let format = |data: &Bytes| data[..5] == [0xf6, 0xab, 0x0e, 0x18, 1];
    assert!(world.borrow().private_data.iter().all(format));
}

/// Every reply in a burst is whole and in its own call: what a client's user sees.
#[test]
fn s3_3_1_credits_are_asked_for_in_every_call_and_granted_in_every_reply() {
    let (world, mut pair) = Pair::fake();
    pair.echo();
    let conn = pair.connect();
    for xid in 0..10 {
        pair.submit(conn, plain(xid), &room(0, &[]));
    }
    pair.until(|pair| pair.ended.len() == 10);
    assert!(pair.ended.values().all(|end| matches!(end, End::Reply(_))));
    assert!(
        sent(&world, CLIENT)
            .iter()
            .all(|(call, _)| call.credits == 128)
    );
    assert!(
        sent(&world, SERVER)
            .iter()
            .all(|(reply, _)| reply.credits == 64)
    );
}
