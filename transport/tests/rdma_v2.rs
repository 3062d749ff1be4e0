//! Tests of version 2 and its negotiation, over fake devices in one process and over the software
//! iWARP device. Tests that are named after a section are in a list of requirements: v2/MUSTS.md or
//! ext-xchar/MUSTS.md.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod rdma_support;

use std::net::Ipv4Addr;
use std::sync::Arc;

use bytes::Bytes;
use iwarp::{Iwarp, Options};
use rdma::Pool;
use rdma_support::fabric::{Traffic, World, attributes};
use rdma_support::{POOL, Pair, data, message, open, reply, room, speaking};
use rpc_transport::rdma::{
    Choice, RdmaClientOptions, RdmaServerOptions, Version, VersionAction, Versions, agreed,
};
use rpc_transport::{ClientTransport, PollSource};
use rpcrdma_chunks::Fixed;
use rpcrdma_extension::{
    Extension, ExtensionFactory, FeatureValue, Outbox, ReceivedMessage, Refusal, Start, made_by,
};
use rpcrdma_v2::{Body, Direction, ErrorBody, Header};

const CLIENT: usize = 0;
const SERVER: usize = 1;

fn only(version: Version) -> Choice {
    Choice::Only(version)
}

fn both() -> (RdmaClientOptions, RdmaServerOptions) {
    speaking(only(Version::TWO), Versions::default())
}

fn iwarp(client: RdmaClientOptions, server: RdmaServerOptions) -> Pair {
    let device = || Box::new(Iwarp::new(Options::default(), Pool::new(POOL)).unwrap());
    let address = (Ipv4Addr::LOCALHOST, 0).into();
    let mut pair = Pair::new(device(), client, device(), server, address);
    pair.client.set_busy_poll(true);
    pair.server.set_busy_poll(true);
    pair
}

/// Returns all messages that one side sent.
fn sent(world: &World, by: usize) -> Vec<Bytes> {
    let sends = world.traffic.iter().filter_map(|(from, what)| match what {
        Traffic::Send(bytes, _) if *from == by => Some(bytes.clone()),
        _ => None,
    });
    sends.collect()
}

fn versions(messages: &[Bytes]) -> Vec<u32> {
    let fixed = messages.iter().map(|message| Fixed::peek(message).unwrap());
    fixed.map(|fixed| fixed.version).collect()
}

/// Returns pairings of ends that speak version 1 only or several versions, each with the expected
/// version.
fn pairings() -> [(Choice, Versions, Version, &'static str); 5] {
    let (one, two) = (Version::ONE, Version::TWO);
    [
        (only(one), Versions::only(one), one, "as asked for"),
        (only(one), Versions::default(), one, "as asked for"),
        (
            Choice::Auto,
            Versions::only(one),
            one,
            "refused version 2 and speaks 1",
        ),
        (
            Choice::Auto,
            Versions::default(),
            Version::TWO_WG,
            "the server answered in it",
        ),
        (
            Choice::Auto,
            Versions::only(one).with(two),
            two,
            "the server answered in it",
        ),
    ]
}

#[track_caller]
fn paired(mut pair: Pair, version: Version, why: &str) -> Pair {
    pair.echo();
    let conn = pair.connect();
    let decision = pair.client.decision(conn).unwrap();
    assert_eq!(decision.action, VersionAction::Use(version));
    assert!(decision.to_string().contains(why), "{decision}");
    pair.every_shape(conn);
    let served = pair.server.decision(pair.server_up[0]).unwrap();
    assert_eq!(served.action, VersionAction::Use(version));
    assert!(
        pair.down.is_empty() && pair.server_down.is_empty(),
        "one connection did it all"
    );
    assert_eq!(pair.server_up.len(), 1);
    pair
}

#[test]
fn all_pairings_of_versions_carry_every_shape_of_call() {
    for (client, server, version, why) in pairings() {
        let (client, server) = speaking(client, server);
        let (world, pair) = Pair::fake_with(client, server, attributes());
        paired(pair, version, why);
        assert_eq!(world.borrow().overruns, 0);
    }
}

#[test]
fn all_pairings_of_versions_work_over_iwarp() {
    for (client, server, version, why) in pairings() {
        let (client, server) = speaking(client, server);
        paired(iwarp(client, server), version, why);
    }
}

#[test]
fn version_2_alone_is_spoken_and_refuses_who_does_not() {
    let two = Version::TWO;
    let (client, server) = speaking(only(two), Versions::only(two));
    let (_, pair) = Pair::fake_with(client, server, attributes());
    paired(pair, two, "the server answered in it");
    let (client, server) = speaking(only(two), Versions::only(Version::ONE));
    let (_, mut pair) = Pair::fake_with(client, server, attributes());
    let conn = pair.client.open(pair.address, 0, pair.now());
    pair.until(|pair| !pair.down.is_empty());
    let (at, lost) = &pair.down[0];
    assert_eq!(
        (*at, lost.was_established, lost.retry),
        (conn, false, false)
    );
    assert!(
        lost.reason.contains("no version in common"),
        "{}",
        lost.reason
    );
    assert!(pair.up.is_empty());
    // A client of version 1 learns from its first call that there is no version in common.
    let (client, server) = speaking(only(Version::ONE), Versions::only(two));
    let (_, mut pair) = Pair::fake_with(client, server, attributes());
    let conn = pair.connect();
    let error = pair.call(conn, message(1, 0, &[]), &room(0, &[])).error();
    assert!(error.to_string().contains("version 2 only"), "{error}");
}

/// In version 1, a client that speaks both versions sends the same bytes as one that speaks only
/// version 1.
#[test]
fn version_1_on_the_wire_is_the_same_with_version_2_at_hand() {
    let traffic = |versions: Versions| {
        let (client, server) = speaking(only(Version::ONE), versions);
        let (world, mut pair, conn) = Pair::echoing(client, server);
        pair.every_shape(conn);
        let world = world.borrow();
        (
            sent(&world, CLIENT),
            sent(&world, SERVER),
            world.private_data.clone(),
        )
    };
    let alone = traffic(Versions::only(Version::ONE));
    assert!(alone == traffic(Versions::default()));
    assert!(
        versions(&alone.0)
            .iter()
            .chain(&versions(&alone.1))
            .all(|&v| v == 1)
    );
}

#[test]
fn v2_s5_requests_wait_until_the_version_is_known() {
    let one = Versions::only(Version::ONE);
    // What each client asks first, by the version of its messages and of the calls.
    for (choice, versions_there, asked, spoken) in [
        (only(Version::TWO), Versions::default(), &[2][..], 2),
        (Choice::Auto, one.clone().with(Version::TWO), &[2, 2], 2),
        (Choice::Auto, one, &[2], 1),
    ] {
        let (client, server) = speaking(choice, versions_there);
        let (world, mut pair) = Pair::fake_with(client, server, attributes());
        pair.echo();
        let conn = pair.client.open(pair.address, 0, pair.now());
        for xid in 1..=20 {
            let items = [data(xid, 5000)];
            pair.submit(conn, message(xid, 0, &items), &room(0, &[5000]));
        }
        pair.until(|pair| pair.ended.len() == 20);
        let calls = sent(&world.borrow(), CLIENT);
        let expected = [asked, &[spoken; 20]].concat();
        assert_eq!(
            versions(&calls),
            expected,
            "asked, then each call was sent once"
        );
        let answers = sent(&world.borrow(), SERVER);
        let answer = |at: usize| Header::decode(&answers[at]).unwrap().0.body;
        let error = match spoken {
            1 => Some(ErrorBody::Version { low: 1, high: 1 }),
            _ => (asked.len() == 2).then_some(ErrorBody::BadHeader),
        };
        match error {
            Some(error) => assert!((0..2).any(|at| answer(at) == Body::Error(error))),
            None => assert!(matches!(answer(0), Body::Optional(_))),
        }
        for (_, end) in std::mem::take(&mut pair.ended) {
            end.reply();
        }
        assert_eq!(
            (pair.up.len(), pair.server_up.len()),
            (1, 1),
            "on the same connection"
        );
        assert_eq!(world.borrow().overruns, 0);
    }
}

#[test]
fn v2_s5_the_first_message_is_at_most_1024_bytes() {
    let (client, server) = both();
    let (world, mut pair, conn) = Pair::echoing(client, server);
    pair.call(conn, message(1, 900, &[]), &room(900, &[]))
        .reply();
    let sent = sent(&world.borrow(), CLIENT);
    assert!(sent[0].len() <= 1024 && sent[1].len() > 1024);
    let header = Header::decode(&sent[0]).unwrap().0;
    assert!(matches!(header.body, Body::Optional(_)));
}

#[test]
fn v2_s2_3_receives_are_4096_bytes_at_least() {
    let (mut client, mut server) = both();
    client.common.inline_receive = 1024;
    server.common.inline_receive = 1024;
    let (world, mut pair, conn) = Pair::echoing(client, server);
    pair.every_shape(conn);
    assert_eq!(world.borrow().shortest_receive, Some(4096));
}

#[test]
fn v2_s4_2_1_every_rdma2_msg_has_a_payload() {
    let (client, server) = both();
    let (world, pair) = Pair::fake_with(client, server, attributes());
    paired(pair, Version::TWO, "");
    let world = world.borrow();
    let mut messages = 0;
    for bytes in sent(&world, CLIENT).into_iter().chain(sent(&world, SERVER)) {
        let (header, at) = Header::decode(&bytes).unwrap();
        if let Body::Msg(..) = header.body {
            messages += 1;
            assert!(bytes.len() >= at + 8, "XID and type at least");
        }
    }
    assert!(messages >= 20, "{messages}");
}

#[test]
fn v2_s5_3_replies_have_the_version_of_their_calls() {
    for (client, server, version, _) in pairings() {
        let (client, server) = speaking(client, server);
        let (world, mut pair, conn) = Pair::echoing(client, server);
        for xid in 1..=5 {
            pair.call(conn, message(xid, 0, &[]), &room(0, &[])).reply();
        }
        let world = world.borrow();
        for from in [CLIENT, SERVER] {
            let fixed = sent(&world, from);
            let fixed = fixed.iter().map(|message| Fixed::peek(message).unwrap());
            let calls: Vec<_> = fixed.filter(|fixed| (1..=5).contains(&fixed.xid)).collect();
            assert_eq!(calls.len(), 5);
            assert!(calls.iter().all(|fixed| fixed.version == version.number()));
        }
    }
}

#[test]
fn v2_s4_2_2_operations_ask_for_credits_or_grant_them_as_their_direction_says() {
    let (mut client, mut server) = both();
    client.common.credits = 20;
    server.common.credits = 16;
    let (world, mut pair) = Pair::fake_with(client, server, attributes());
    let conn = pair.connect();
    let init = |by| Header::decode(&sent(&world.borrow(), by)[0]).unwrap().0;
    let (asked, granted) = (init(CLIENT), init(SERVER));
    assert_eq!((asked.direction(), asked.credits), (Direction::Call, 20));
    assert_eq!(
        (granted.direction(), granted.credits),
        (Direction::Reply, 16)
    );
    // The grant counts for the first calls already.
    for xid in 1..=30 {
        pair.submit(conn, message(xid, 0, &[]), &room(0, &[]));
    }
    pair.settle();
    assert_eq!(pair.held.len(), 16);
}

#[test]
fn v2_s4_2_3_a_reply_that_fits_nowhere_is_bad_header() {
    let (client, server) = both();
    let (world, mut pair) = Pair::fake_with(client, server, attributes());
    pair.answer_with(|call| Some(reply(open(call).0, 0, &[data(7, 10_000)])));
    let conn = pair.connect();
    let error = pair
        .call(conn, message(1, 0, &[]), &room(0, &[9_999]))
        .error();
    assert!(
        matches!(error, rpc_transport::CallError::Chunk(_)),
        "{error:?}"
    );
    let last = sent(&world.borrow(), SERVER).pop().unwrap();
    let header = Header::decode(&last).unwrap().0;
    assert_eq!(
        (header.xid, header.body),
        (1, Body::Error(ErrorBody::BadHeader))
    );
    pair.call(conn, message(2, 0, &[]), &room(0, &[10_000]))
        .reply();
    assert!(pair.down.is_empty());
}

#[test]
fn xchar_s3_2_replies_invalidate_a_handle_of_their_own_call() {
    let (client, server) = both();
    let (_, mut pair, conn) = Pair::echoing(client, server);
    for xid in 1..=10 {
        let items = [data(xid, 8000)];
        pair.call(conn, message(xid, 0, &items), &room(0, &[8000]))
            .reply();
    }
    let (client, server) = (pair.client.counters(), pair.server.counters());
    assert_eq!(server.sends_with_invalidate, 10);
    // The other handle of each call.
    assert_eq!(client.local_invalidations, 10);
    let features = pair.client.features(conn).unwrap();
    let invalidated = features.value(agreed::INVALIDATED_HERE);
    assert_eq!(invalidated, Some(FeatureValue::InUse(true)));
}

#[test]
fn xchar_s3_2_replies_are_plain_sends_unless_the_requester_takes_invalidation() {
    let (mut client, server) = both();
    client.common.remote_invalidation = false;
    let (_, mut pair, conn) = Pair::echoing(client, server);
    for xid in 1..=10 {
        let items = [data(xid, 8000)];
        pair.call(conn, message(xid, 0, &items), &room(0, &[8000]))
            .reply();
    }
    assert_eq!(pair.server.counters().sends_with_invalidate, 0);
    assert_eq!(pair.client.counters().local_invalidations, 20);
}

#[test]
fn xchar_s3_1_no_message_is_longer_than_the_receive_it_meets() {
    for (client_size, server_size) in [(4096, 32_768), (32_768, 4096), (8192, 16_384)] {
        let (mut client, mut server) = both();
        for options in [&mut client.common, &mut server.common] {
            options.inline_send = 32_768;
            options.private_data = false;
        }
        client.common.inline_receive = client_size;
        server.common.inline_receive = server_size;
        let (world, pair) = Pair::fake_with(client, server, attributes());
        paired(pair, Version::TWO, "");
        let world = world.borrow();
        let longest = |by| sent(&world, by).iter().map(Bytes::len).max().unwrap();
        assert!(longest(CLIENT) <= server_size as usize, "a long call");
        assert!(longest(SERVER) <= client_size as usize, "a long reply");
        // And what may be used, is.
        assert!(longest(CLIENT) > server_size as usize / 2);
        assert_eq!(world.overruns, 0);
    }
}

/// A reply that needs a chunk with receives of 4096 bytes is sent inline with larger ones.
#[test]
fn a_reply_of_16_kib_goes_inline_with_receives_of_32_kib() {
    let cost = |size: u32| {
        let (mut client, mut server) = both();
        client.common.inline_receive = size;
        server.common.inline_send = size;
        let mut pair = iwarp(client, server);
        pair.answer_with(|call| Some(reply(open(call).0, 0, &[data(7, 16_384)])));
        let conn = pair.connect();
        let end = pair.call(conn, message(1, 0, &[]), &room(0, &[16_384]));
        assert_eq!(open(&end.reply()), (1, 0, vec![data(7, 16_384)]));
        let (client, server) = (pair.client.counters(), pair.server.counters());
        (client.registrations, server.rdma_writes, server.sends)
    };
    assert_eq!(cost(4096), (1, 1, 2));
    assert_eq!(cost(32_768), (0, 0, 2));
}

/// The receive size changes while calls that depend on the old or the new size are outstanding.
#[test]
fn v2_s5_2_the_inline_threshold_changes_and_the_connection_lives() {
    let (mut client, mut server) = both();
    for options in [&mut client.common, &mut server.common] {
        options.inline_send = 32_768;
        options.credits = 16;
    }
    let (world, mut pair, conn) = Pair::echoing(client, server);
    let lens = [0, 1000, 3900, 5000, 8000, 12_000, 16_000, 30_000];
    let mut xid = 0;
    let mut sizes = Vec::new();
    for size in [16_384, 4096, 32_768, 8192, 4096, 12_288] {
        for _ in 0..60 {
            xid += 1;
            let len = lens[xid as usize % lens.len()];
            let items = [data(xid, len)];
            pair.submit(conn, message(xid, 0, &items), &room(0, &[len]));
            if xid % 60 == 20 {
                pair.client.request_receive_size(conn, size).unwrap();
            }
            if xid % 7 == 0 {
                pair.step();
            }
        }
        pair.until(|pair| pair.ended.len() == xid as usize);
        // Whatever is used up by now is replaced; idle ones are not.
        for _ in 0..60 {
            xid += 1;
            pair.call(conn, message(xid, 0, &[]), &room(0, &[])).reply();
            pair.ended
                .insert((conn, xid), rdma_support::End::Reply(reply(xid, 0, &[])));
        }
        let features = pair.client.features(conn).unwrap();
        sizes.push(features.value(agreed::INLINE_SEND));
    }
    let announced = [16_384, 4096, 32_768, 8192, 4096, 12_288];
    assert_eq!(sizes, announced.map(|size| Some(FeatureValue::Bytes(size))));
    assert!(
        pair.ended
            .drain()
            .all(|(_, end)| matches!(end, rdma_support::End::Reply(_)))
    );
    assert!(pair.down.is_empty() && pair.server_down.is_empty());
    assert_eq!(world.borrow().overruns, 0);
    pair.client.close(conn);
    pair.settle();
    assert_eq!(
        (pair.client_pool.in_use(), pair.server_pool.in_use()),
        (0, 0)
    );
}

#[test]
fn xchar_s3_1_receives_are_replaced_as_they_are_used() {
    let (mut client, mut server) = both();
    client.common.credits = 8;
    server.common.inline_send = 32_768;
    let (world, mut pair, conn) = Pair::echoing(client, server);
    let call = |pair: &mut Pair, xid: u32| {
        let items = [data(xid, 6000)];
        pair.call(conn, message(xid, 0, &items), &room(0, &[6000]))
            .reply();
    };
    call(&mut pair, 1);
    pair.client.raise_receive_size(conn, 16_384).unwrap();
    let writes = |pair: &Pair| pair.server.counters().rdma_writes;
    assert_eq!(writes(&pair), 1);
    // One by one, twelve receives; then the server is told, and answers one call to show that it
    // has understood.
    for xid in 2..=20 {
        call(&mut pair, xid);
    }
    let before = writes(&pair);
    assert!((10..18).contains(&before), "{before} replies by RDMA Write");
    call(&mut pair, 21);
    assert_eq!(writes(&pair), before, "inline from now on");
    let features = pair.client.features(conn).unwrap();
    let receive = features.value(agreed::INLINE_RECEIVE);
    assert_eq!(receive, Some(FeatureValue::Bytes(16_384)));
    assert_eq!(world.borrow().overruns, 0);
}

/// Regression test: a full server that closed a connection before its first answer, to make room for another client,
/// got version 1.
#[test]
fn a_server_that_drops_one_connection_in_version_2_is_asked_again() {
    let (client, server) = speaking(Choice::Auto, Versions::default());
    let warning = client.fallback_warning.clone();
    let (world, mut pair) = Pair::fake_with(client, server, attributes());
    pair.echo();
    world.borrow_mut().lose_at = Some(0);
    let conn = pair.client.open(pair.address, 0, pair.now());
    pair.submit(conn, message(9, 0, &[]), &room(0, &[]));
    pair.until(|pair| pair.server_down.len() == 1);
    world.borrow_mut().lose_at = None;
    pair.until(|pair| !pair.ended.is_empty());
    pair.ended.remove(&(conn, 9)).unwrap().reply();
    let action = pair.client.decision(conn).unwrap().action;
    assert_eq!(action, VersionAction::Use(Version::TWO_WG));
    assert!(!warning.was_logged());
    assert!(pair.down.is_empty(), "its user sees one connection");
    // The next connection may be dropped once, too.
    world.borrow_mut().lose_all();
    pair.until(|pair| !pair.down.is_empty());
    let sent = world.borrow().traffic.len();
    world.borrow_mut().lose_at = Some(sent);
    let conn = pair.client.open(pair.address, 0, pair.now());
    pair.until(|pair| pair.server_down.len() == 3);
    world.borrow_mut().lose_at = None;
    pair.until(|pair| pair.up.contains(&conn));
    let action = pair.client.decision(conn).unwrap().action;
    assert_eq!(action, VersionAction::Use(Version::TWO_WG));
}

/// If a server drops two connections in version 2, the client uses version 1, and tries version 2
/// again after a connection has worked.
#[test]
fn a_server_that_drops_version_2_gets_version_1_on_a_new_connection() {
    let (client, server) = speaking(Choice::Auto, Versions::default());
    let warning = client.fallback_warning.clone();
    let (world, mut pair) = Pair::fake_with(client, server, attributes());
    pair.echo();
    world.borrow_mut().lose_at = Some(0);
    let conn = pair.client.open(pair.address, 0, pair.now());
    // Nobody need wait for the event that says that the connection is there.
    pair.submit(conn, message(9, 0, &[]), &room(0, &[]));
    pair.until(|pair| pair.server_down.len() == 2);
    world.borrow_mut().lose_at = None;
    pair.until(|pair| !pair.up.is_empty());
    pair.until(|pair| !pair.ended.is_empty());
    pair.ended.remove(&(conn, 9)).unwrap().reply();
    let decision = pair.client.decision(conn).unwrap();
    assert_eq!(decision.action, VersionAction::Use(Version::ONE));
    assert!(
        decision.to_string().contains("dropped the connection"),
        "{decision}"
    );
    assert!(warning.was_logged());
    pair.call(conn, message(1, 0, &[]), &room(0, &[])).reply();
    assert!(pair.down.is_empty(), "its user sees one connection");
    world.borrow_mut().lose_all();
    pair.until(|pair| !pair.down.is_empty());
    let conn = pair.connect();
    let verdict = pair.client.decision(conn).unwrap().action;
    assert_eq!(verdict, VersionAction::Use(Version::TWO_WG));
}

/// The number of an operation that no document assigns.
const UNKNOWN: u32 = 0x7fff_0001;

/// An extension that the peer does not have. At a client, it sends an operation at the beginning.
#[derive(Debug)]
struct Stranger;

impl Extension for Stranger {
    fn name(&self) -> &'static str {
        "stranger"
    }

    fn numbers(&self) -> &[u32] {
        &[UNKNOWN]
    }

    fn connected(&mut self, _: &Start<'_>, out: &mut Outbox<'_>) {
        out.call(UNKNOWN, Bytes::from_static(&[1, 2, 3, 4]));
    }

    fn received(&mut self, op: &ReceivedMessage<'_>, out: &mut Outbox<'_>) -> Result<(), Refusal> {
        if op.direction == Direction::Call {
            out.reply(op.xid, UNKNOWN, Bytes::copy_from_slice(op.delimited()?.0));
        }
        Ok(())
    }
}

fn stranger() -> Arc<dyn ExtensionFactory> {
    made_by(|_| Box::new(Stranger))
}

#[test]
fn v2_s3_1_an_unknown_operation_is_answered_and_the_connection_lives() {
    let (mut client, server) = both();
    client.common.protocols.add(Version::TWO, stranger());
    let (world, pair) = Pair::fake_with(client, server, attributes());
    paired(pair, Version::TWO, "");
    let world = world.borrow();
    let is_unknown = |bytes: &&Bytes| {
        let header = Header::decode(bytes).unwrap().0;
        matches!(header.body, Body::Optional(op) if op.opttype == UNKNOWN)
    };
    let asked = sent(&world, CLIENT);
    let asked = Header::decode(asked.iter().find(is_unknown).unwrap())
        .unwrap()
        .0;
    let answers = sent(&world, SERVER);
    let headers = answers.iter().map(|bytes| Header::decode(bytes).unwrap().0);
    let answers: Vec<Header> = headers.filter(|header| header.xid == asked.xid).collect();
    assert_eq!(answers.len(), 1);
    assert_eq!(answers[0].body, Body::Error(ErrorBody::InvalidOption));
}

/// If both ends have a second extension, their operations reach each other.
#[test]
fn an_extension_of_a_crate_outside_talks_to_its_peer() {
    let (mut client, mut server) = both();
    client.common.protocols.add(Version::TWO, stranger());
    server.common.protocols.add(Version::TWO, stranger());
    let (world, pair) = Pair::fake_with(client, server, attributes());
    paired(pair, Version::TWO, "");
    let world = world.borrow();
    let operations = |by| {
        let headers = sent(&world, by)
            .into_iter()
            .map(|bytes| Header::decode(&bytes).unwrap().0);
        let of_it =
            |header: &Header| matches!(&header.body, Body::Optional(op) if op.opttype == UNKNOWN);
        headers
            .filter(of_it)
            .map(|header| header.direction())
            .collect::<Vec<_>>()
    };
    let mut expected = [Direction::Call, Direction::Reply];
    for by in [CLIENT, SERVER] {
        let mut sent = operations(by);
        sent.sort_by_key(|direction| direction.number());
        expected.sort_by_key(|direction| direction.number());
        assert_eq!(sent, expected);
    }
}

#[test]
fn extensions_that_do_not_go_together_are_told_of() {
    let (mut client, server) = both();
    for _ in 0..2 {
        client.common.protocols.add(Version::TWO, stranger());
    }
    let (_, mut pair) = Pair::fake_with(client, server, attributes());
    let conn = pair.client.open(pair.address, 0, pair.now());
    pair.until(|pair| !pair.down.is_empty());
    let (at, lost) = &pair.down[0];
    assert_eq!((*at, lost.retry), (conn, false));
    assert!(lost.reason.contains("both own message"), "{}", lost.reason);
}

/// A server whose own inline limit is 1024 bytes sends a longer inline reply if the call offered no
/// chunk for it.
#[test]
fn a_call_counts_on_what_its_end_can_receive_whatever_the_server_likes_to_send() {
    let (mut client, mut server) = both();
    client.common.inline_receive = 16_384;
    server.common.inline_send = 1024;
    let (_, mut pair, conn) = Pair::echoing(client, server);
    pair.every_shape(conn);
}
