//! Shared receive queues.

use std::time::{Duration, Instant};

use bytes::Bytes;
use iwarp::{Iwarp, Options};
use rdma::{
    Completion, Device, DeviceError, Disconnect, Event, Pool, PostError, QpId, Region, Scatter,
    SendWr, SharedReceivesId, Success, WhenEmpty, WorkError, WrId,
};

use super::world::{CLIENT, SERVER, World, accept_options, connect_options, pattern};

/// Length of the receives in most tests.
const LEN: usize = 4096;

/// Returns the devices if they have shared receive queues. The iwarp device does.
fn world() -> Option<World> {
    let world = World::new();
    let attributes = world.sides[SERVER].device.attributes();
    attributes.shared_receives.is_some().then_some(world)
}

/// Returns the devices if they make senders wait for shared receives. The iwarp device does.
fn waiting_world() -> Option<World> {
    world().filter(|world| {
        let shared = world.sides[SERVER].device.attributes().shared_receives;
        shared.is_some_and(|shared| shared.when_empty != WhenEmpty::EndsConnection)
    })
}

#[test]
fn the_software_device_makes_senders_wait() {
    let device = Iwarp::new(Options::default(), Pool::new(1 << 20)).unwrap();
    let shared = device.attributes().shared_receives.unwrap();
    assert_eq!(shared.when_empty, WhenEmpty::Waits);
}

/// Returns the devices if an empty queue ends the connection of a message that arrives, as on siw.
fn ending_world() -> Option<World> {
    world().filter(|world| {
        let shared = world.sides[SERVER].device.attributes().shared_receives;
        shared.is_some_and(|shared| shared.when_empty == WhenEmpty::EndsConnection)
    })
}

/// Returns whether connections go on in the order in which they began to wait. On RoCE each tries
/// again by itself.
fn goes_in_turn(world: &World) -> bool {
    world.sides[SERVER].device.attributes().name == "iwarp"
}

/// Creates a shared receive queue at the server with receives of `LEN` bytes, whose `wr_id`s count
/// from 1000.
fn shared(world: &mut World, receives: u64) -> SharedReceivesId {
    let shared = world.device(SERVER).create_shared_receives().unwrap();
    for id in 0..receives {
        post(world, shared, id);
    }
    shared
}

/// Posts the receive with this number.
fn post(world: &mut World, shared: SharedReceivesId, number: u64) {
    let buf = world.device(SERVER).pool().alloc(LEN).unwrap();
    world
        .device(SERVER)
        .post_shared_receive(shared, WrId(1000 + number), buf.into())
        .unwrap();
}

/// Returns a connected pair of queue pairs, the client's first; the server's is bound to `shared`.
fn connected(world: &mut World, shared: SharedReceivesId) -> [QpId; 2] {
    let (client, side, request) = world.connecting(4, LEN);
    let prepared = world.device(side).prepare_accept(request, Some(shared));
    let server = prepared.unwrap();
    world.accept(client, side, server);
    [client, server]
}

/// Waits for the next message at the server: its queue pair, the number of its receive, and its
/// content.
fn arrived(world: &mut World) -> (QpId, u64, Bytes) {
    world.wait(SERVER, |event| match event {
        Event::Completion(Completion {
            qp,
            id,
            result: Ok(Success::Receive { buf, .. }),
        }) => Some((*qp, id.0 - 1000, Bytes::from(buf.to_vec()))),
        _ => None,
    })
}

/// Lets everything happen that can happen without another call.
fn settle(world: &mut World) {
    let end = Instant::now() + Duration::from_millis(50);
    let mut rounds = 0;
    // Several rounds even if this thread was not running for a while.
    while Instant::now() < end || rounds < 5 {
        world.step();
        world.sleep(end);
        rounds += 1;
    }
}

fn text(world: &mut World, qp: QpId, text: &'static [u8]) {
    world.send(CLIENT, qp, 1, &[Bytes::from_static(text)]);
}

/// Destroys the server's shared receive queue, whose queue pairs are gone, and checks that nothing is left.
fn finish(world: &mut World, shared: SharedReceivesId) {
    let device = world.device(SERVER);
    device.destroy_shared_receives(shared).unwrap();
    world.assert_nothing_held();
}

fn posted(world: &World, shared: SharedReceivesId) -> usize {
    world.sides[SERVER].device.posted_shared_receives(shared)
}

#[test]
fn messages_of_all_connections_take_receives_in_order_of_arrival() {
    let Some(mut world) = world() else {
        return;
    };
    let shared = shared(&mut world, 6);
    let (one, two) = (connected(&mut world, shared), connected(&mut world, shared));
    for (number, pair) in [one, two, two, one, two, one].into_iter().enumerate() {
        text(&mut world, pair[CLIENT], b"which?");
        let (qp, receive, content) = arrived(&mut world);
        assert_eq!((qp, receive), (pair[SERVER], number as u64));
        assert_eq!(content, b"which?"[..]);
        assert_eq!(posted(&world, shared), 5 - number);
    }
    world.close(one);
    world.close(two);
    finish(&mut world, shared);
}

#[test]
fn senders_wait_for_receives_and_go_on_in_turn() {
    let Some(mut world) = waiting_world() else {
        return;
    };
    let shared = shared(&mut world, 0);
    let pairs = [connected(&mut world, shared), connected(&mut world, shared)];
    for n in 0..8 {
        for pair in pairs {
            let message = world.filled(CLIENT, 300, n).freeze();
            world.send(CLIENT, pair[CLIENT], u64::from(n), &[message]);
            settle(&mut world);
        }
    }
    assert!(world.sides[SERVER].events.is_empty(), "nothing has arrived");
    // The connections take turns, although each has all of its messages there already.
    let mut count = [0; 2];
    for turn in 0..16_u64 {
        post(&mut world, shared, turn);
        let (qp, receive, content) = arrived(&mut world);
        let which = usize::from(qp == pairs[1][SERVER]);
        assert_eq!((qp, receive), (pairs[which][SERVER], turn));
        if goes_in_turn(&world) {
            assert_eq!(which, turn as usize % 2);
        }
        let seed = count[which];
        count[which] += 1;
        let expected: Vec<u8> = (0..300).map(|n| pattern(n, seed)).collect();
        assert_eq!(content, expected, "the next message of its connection");
        settle(&mut world);
        assert!(
            world.sides[SERVER].events.is_empty(),
            "one receive was posted"
        );
    }
    assert_eq!(count, [8, 8]);
    for pair in pairs {
        for n in 0..8 {
            assert!(world.done(CLIENT, pair[CLIENT], n).is_ok());
        }
        world.close(pair);
    }
    finish(&mut world, shared);
}

#[test]
fn receives_posted_at_once_serve_all_that_wait() {
    let Some(mut world) = waiting_world() else {
        return;
    };
    let shared = shared(&mut world, 0);
    let pairs: Vec<_> = (0..5).map(|_| connected(&mut world, shared)).collect();
    for pair in &pairs {
        text(&mut world, pair[CLIENT], b"one");
        text(&mut world, pair[CLIENT], b"two");
        settle(&mut world);
    }
    for number in 0..10 {
        post(&mut world, shared, number);
    }
    let mut count = [0; 5];
    let mut receives = Vec::new();
    for number in 0..10 {
        let (qp, receive, content) = arrived(&mut world);
        let which = pairs.iter().position(|pair| pair[SERVER] == qp).unwrap();
        if goes_in_turn(&world) {
            assert_eq!((which, receive), (number % 5, number as u64));
        }
        assert_eq!(content, [&b"one"[..], b"two"][count[which]]);
        count[which] += 1;
        receives.push(receive);
    }
    assert_eq!(count, [2; 5]);
    receives.sort_unstable();
    assert_eq!(receives, Vec::from_iter(0..10));
    assert_eq!(posted(&world, shared), 0);
    for pair in pairs {
        world.close(pair);
    }
    finish(&mut world, shared);
}

#[test]
fn a_sender_of_much_data_is_stopped_without_loss() {
    /// Maximum number of outstanding Sends.
    const OUTSTANDING: u64 = 200;
    /// More messages than sockets and devices hold: 400 MB.
    const MANY: u64 = 100_000;
    let Some(mut world) = waiting_world() else {
        return;
    };
    let shared = shared(&mut world, 1);
    let [client, server] = connected(&mut world, shared);
    let (mut sent, mut ended, mut before) = (0, 0, None);
    // One message is received. The others fill the way to the server, until no Send completes.
    while before != Some(ended) {
        before = Some(ended);
        while sent - ended < OUTSTANDING {
            let message = world.filled(CLIENT, LEN, sent as u8).freeze();
            world.send(CLIENT, client, sent, &[message]);
            sent += 1;
        }
        assert!(sent < MANY, "nobody stops the sender");
        settle(&mut world);
        for event in std::mem::take(&mut world.sides[CLIENT].events) {
            let Event::Completion(Completion { result, .. }) = event else {
                panic!("{event:?}")
            };
            assert!(matches!(result, Ok(Success::Send)), "{result:?}");
            ended += 1;
        }
    }
    let mut posted = 1;
    for number in 0..sent {
        // Few at a time, so that the sender is stopped again and again.
        if posted == number {
            for _ in 0..16 {
                post(&mut world, shared, posted);
                posted += 1;
            }
        }
        let (qp, receive, content) = arrived(&mut world);
        assert_eq!((qp, receive), (server, number));
        let expected: Vec<u8> = (0..LEN).map(|n| pattern(n, number as u8)).collect();
        assert!(content == expected, "message {number}");
    }
    world.close([client, server]);
    finish(&mut world, shared);
}

#[test]
fn memory_is_read_and_invalidated_on_bound_queue_pairs() {
    let Some(mut world) = world() else {
        return;
    };
    let shared = shared(&mut world, 3);
    let qps @ [client, server] = connected(&mut world, shared);
    let data = world.filled(CLIENT, 50_000, 7).freeze();
    let source = world.register(CLIENT, client, Region::RemoteRead(data.clone()));
    let room = world.filled(SERVER, 100, 0);
    let offered = world.register(SERVER, server, Region::RemoteWrite(room));
    text(&mut world, client, b"read it");
    assert_eq!(arrived(&mut world).1, 0);
    world.read(SERVER, server, 1, source);
    let Ok(Success::Read { sink }) = world.done(SERVER, server, 1) else {
        panic!("not read")
    };
    assert_eq!(sink[..], data[..]);
    world.write(CLIENT, client, 2, data.slice(..100), offered);
    if world.sides[SERVER].device.attributes().remote_invalidation {
        world.send_invalidating(CLIENT, client, offered.stag);
        let (content, invalidated) = world.receive_with(SERVER, server);
        assert_eq!(content, b"done with it"[..]);
        assert_eq!(invalidated, Some(offered.stag));
    } else {
        text(&mut world, client, b"written");
        assert_eq!(arrived(&mut world).1, 1);
        let wr = SendWr::Invalidate { stag: offered.stag };
        let device = world.device(SERVER);
        device.post_send(server, WrId(3), wr, true).unwrap();
        world.done(SERVER, server, 3).unwrap();
    }
    let reclaimed = world.device(SERVER).reclaim(server, offered.stag);
    let Ok(Region::RemoteWrite(buf)) = reclaimed else {
        panic!("another region")
    };
    assert_eq!(buf[..], data[..100]);
    drop((data, sink, buf));
    world.close(qps);
    finish(&mut world, shared);
}

#[test]
fn the_owner_is_told_once_that_receives_are_low() {
    let Some(mut world) = world() else {
        return;
    };
    let shared = shared(&mut world, 5);
    let qps = connected(&mut world, shared);
    let low = |world: &mut World| {
        settle(world);
        let events = &mut world.sides[SERVER].events;
        let before = events.len();
        events.retain(|event| {
            let low = matches!(event, Event::SharedReceivesLow { id } if *id == shared);
            !low
        });
        before - events.len()
    };
    world.device(SERVER).arm_shared_receives(shared, 4).unwrap();
    assert_eq!(low(&mut world), 0, "there are five");
    text(&mut world, qps[CLIENT], b"one");
    assert_eq!(low(&mut world), 0, "there are four");
    text(&mut world, qps[CLIENT], b"two");
    assert_eq!(low(&mut world), 1, "there are three");
    text(&mut world, qps[CLIENT], b"three");
    assert_eq!(low(&mut world), 0, "it was told");
    world.device(SERVER).arm_shared_receives(shared, 3).unwrap();
    assert_eq!(low(&mut world), 1, "there are two already");
    world.device(SERVER).arm_shared_receives(shared, 2).unwrap();
    world.device(SERVER).arm_shared_receives(shared, 0).unwrap();
    text(&mut world, qps[CLIENT], b"four");
    assert_eq!(low(&mut world), 0, "it was cancelled");
    for number in 0..4 {
        assert_eq!(arrived(&mut world).1, number);
    }
    world.close(qps);
    // No event of a queue follows its end.
    let device = world.device(SERVER);
    device.arm_shared_receives(shared, 2).unwrap();
    device.destroy_shared_receives(shared).unwrap();
    settle(&mut world);
    assert!(world.sides[SERVER].events.is_empty());
    world.assert_nothing_held();
}

#[test]
fn wrong_uses_are_refused() {
    let Some(mut world) = world() else {
        return;
    };
    let unknown = SharedReceivesId(u64::MAX);
    let shared = shared(&mut world, 1);
    let buf = |world: &mut World, len| world.device(SERVER).pool().alloc(len).unwrap();
    let refused = |refused: Result<(), (PostError, Scatter)>| refused.unwrap_err().0;
    // Another structure.
    for len in [LEN - 1, LEN + 1] {
        let other = buf(&mut world, len).into();
        let result = world
            .device(SERVER)
            .post_shared_receive(shared, WrId(0), other);
        assert_eq!(refused(result), PostError::Structure);
    }
    let two = Scatter::new(buf(&mut world, LEN), vec![buf(&mut world, 1)]);
    let result = world
        .device(SERVER)
        .post_shared_receive(shared, WrId(0), two);
    assert_eq!(refused(result), PostError::Structure);
    // Receives for one queue pair that is bound to the queue.
    let qps = connected(&mut world, shared);
    let own = buf(&mut world, LEN).into();
    let result = world.device(SERVER).post_receive(qps[SERVER], WrId(0), own);
    assert_eq!(refused(result), PostError::Bound);
    // Queues that do not exist.
    let receive = buf(&mut world, LEN).into();
    let device = world.device(SERVER);
    let result = device.post_shared_receive(unknown, WrId(0), receive);
    assert_eq!(refused(result), PostError::Unknown);
    let is_unknown = |result: Result<(), DeviceError>| {
        assert!(matches!(result, Err(DeviceError::Unknown(_))), "{result:?}");
    };
    is_unknown(device.arm_shared_receives(unknown, 1));
    is_unknown(device.destroy_shared_receives(unknown));
    assert_eq!(device.posted_shared_receives(unknown), 0);
    let mut options = connect_options(b"");
    options.shared_receives = Some(unknown);
    let address = world.address;
    is_unknown(world.device(CLIENT).connect(address, &options).map(drop));
    // A queue with queue pairs, also after their connection has ended.
    let bound = |world: &mut World| {
        let result = world.device(SERVER).destroy_shared_receives(shared);
        assert!(matches!(result, Err(DeviceError::Bound)), "{result:?}");
    };
    bound(&mut world);
    world.device(CLIENT).disconnect(qps[CLIENT]);
    world.disconnected(SERVER, qps[SERVER]);
    bound(&mut world);
    world.device(SERVER).destroy(qps[SERVER]);
    world.device(CLIENT).destroy(qps[CLIENT]);
    assert_eq!(
        posted(&world, shared),
        1,
        "the receive is not the connection's"
    );
    finish(&mut world, shared);
}

#[test]
fn an_initiator_can_be_bound_too() {
    let Some(mut world) = world() else {
        return;
    };
    let device = world.device(CLIENT);
    let shared = device.create_shared_receives().unwrap();
    let buf = device.pool().alloc(LEN).unwrap();
    device
        .post_shared_receive(shared, WrId(1000), buf.into())
        .unwrap();
    let mut options = connect_options(b"");
    options.shared_receives = Some(shared);
    let address = world.address;
    let client = world.device(CLIENT).connect(address, &options).unwrap();
    let request = world.requested().request;
    let server = world.device(SERVER).prepare_accept(request, None).unwrap();
    world
        .device(SERVER)
        .accept(server, &accept_options(b""))
        .unwrap();
    world.established(CLIENT, client);
    world.established(SERVER, server);
    world.message(SERVER, [client, server], b"to the initiator");
    world.close([client, server]);
    world
        .device(CLIENT)
        .destroy_shared_receives(shared)
        .unwrap();
    world.assert_nothing_held();
}

#[test]
fn connections_that_end_leave_the_receives_to_others() {
    let Some(mut world) = world() else {
        return;
    };
    let shared = shared(&mut world, 2);
    let pairs = [connected(&mut world, shared), connected(&mut world, shared)];
    let [first, second] = pairs;
    text(&mut world, first[CLIENT], b"one");
    assert_eq!(arrived(&mut world).1, 0);
    world.device(CLIENT).abort(first[CLIENT]);
    world.disconnected(SERVER, first[SERVER]);
    assert!(world.sides[SERVER].events.is_empty(), "nothing was flushed");
    text(&mut world, second[CLIENT], b"two");
    assert_eq!(arrived(&mut world).1, 1);
    for pair in pairs {
        world.device(CLIENT).destroy(pair[CLIENT]);
        world.device(SERVER).destroy(pair[SERVER]);
    }
    finish(&mut world, shared);
}

#[test]
fn a_connection_that_ends_while_it_waits_makes_way_for_the_next() {
    let Some(mut world) = waiting_world() else {
        return;
    };
    let shared = shared(&mut world, 0);
    let pairs = [connected(&mut world, shared), connected(&mut world, shared)];
    let [first, second] = pairs;
    for pair in pairs {
        text(&mut world, pair[CLIENT], b"waits");
        settle(&mut world);
    }
    world.device(SERVER).abort(first[SERVER]);
    assert_eq!(world.disconnected(SERVER, first[SERVER]), Disconnect::Local);
    post(&mut world, shared, 0);
    assert_eq!(arrived(&mut world).0, second[SERVER]);
    for pair in pairs {
        world.device(CLIENT).destroy(pair[CLIENT]);
        world.device(SERVER).destroy(pair[SERVER]);
    }
    finish(&mut world, shared);
}

#[test]
fn a_graceful_end_at_this_side_does_not_wait_for_receives() {
    let Some(mut world) = waiting_world() else {
        return;
    };
    let shared = shared(&mut world, 0);
    let [client, server] = connected(&mut world, shared);
    text(&mut world, client, b"waits");
    settle(&mut world);
    world.device(SERVER).disconnect(server);
    assert_eq!(world.disconnected(SERVER, server), Disconnect::Local);
    world.disconnected(CLIENT, client);
    world.device(CLIENT).destroy(client);
    world.device(SERVER).destroy(server);
    finish(&mut world, shared);
}

#[test]
fn a_message_longer_than_a_shared_receive_ends_its_connection_only() {
    let Some(mut world) = world() else {
        return;
    };
    let shared = shared(&mut world, 2);
    let pairs = [connected(&mut world, shared), connected(&mut world, shared)];
    let [first, second] = pairs;
    let message = world.filled(CLIENT, LEN + 1, 1).freeze();
    world.send(CLIENT, first[CLIENT], 1, &[message]);
    let (id, result) = world.completed(SERVER, first[SERVER]);
    let failed = result.unwrap_err();
    assert_eq!((id, failed.error), (WrId(1000), WorkError::LocalLength));
    assert!(failed.buf.is_some());
    world.disconnected(SERVER, first[SERVER]);
    text(&mut world, second[CLIENT], b"goes on");
    assert_eq!(arrived(&mut world).1, 1);
    drop(failed);
    for pair in pairs {
        world.device(CLIENT).destroy(pair[CLIENT]);
        world.device(SERVER).destroy(pair[SERVER]);
    }
    finish(&mut world, shared);
}

#[test]
fn reads_of_this_side_wait_behind_a_message_that_waits() {
    let Some(mut world) = waiting_world() else {
        return;
    };
    let shared = shared(&mut world, 1);
    let qps @ [client, server] = connected(&mut world, shared);
    let data = world.filled(CLIENT, 9000, 5).freeze();
    let source = world.register(CLIENT, client, Region::RemoteRead(data.clone()));
    text(&mut world, client, b"takes the receive");
    assert_eq!(arrived(&mut world).1, 0);
    text(&mut world, client, b"waits");
    settle(&mut world);
    world.read(SERVER, server, 1, source);
    settle(&mut world);
    post(&mut world, shared, 1);
    assert_eq!(arrived(&mut world).1, 1);
    let Ok(Success::Read { sink }) = world.done(SERVER, server, 1) else {
        panic!("not read")
    };
    assert_eq!(sink[..], data[..]);
    let wr = SendWr::Invalidate { stag: source.stag };
    world
        .device(CLIENT)
        .post_send(client, WrId(4), wr, true)
        .unwrap();
    world.done(CLIENT, client, 4).unwrap();
    drop((data, sink));
    world.close(qps);
    finish(&mut world, shared);
}

#[test]
fn an_empty_queue_ends_the_connection_where_nobody_waits() {
    let Some(mut world) = ending_world() else {
        return;
    };
    let shared = shared(&mut world, 1);
    let pairs = [connected(&mut world, shared), connected(&mut world, shared)];
    let [first, second] = pairs;
    text(&mut world, first[CLIENT], b"one");
    assert_eq!(arrived(&mut world).1, 0);
    text(&mut world, first[CLIENT], b"finds no receive");
    let reason = world.disconnected(SERVER, first[SERVER]);
    let seen = world.disconnected(CLIENT, first[CLIENT]);
    assert_ne!((&reason, &seen), (&Disconnect::Local, &Disconnect::Local));
    // The message was not received, and the other connection does not notice.
    assert!(world.sides[SERVER].events.is_empty());
    post(&mut world, shared, 1);
    text(&mut world, second[CLIENT], b"two");
    let (qp, receive, content) = arrived(&mut world);
    assert_eq!((qp, receive), (second[SERVER], 1));
    assert_eq!(content, b"two"[..]);
    for pair in pairs {
        world.device(CLIENT).destroy(pair[CLIENT]);
        world.device(SERVER).destroy(pair[SERVER]);
    }
    finish(&mut world, shared);
}

#[test]
fn thousands_of_messages_pass_through_a_small_queue() {
    const EACH: u64 = 2000;
    const RECEIVES: u64 = 8;
    let Some(mut world) = world() else {
        return;
    };
    let attributes = world.sides[SERVER].device.attributes();
    let window = match attributes.shared_receives.unwrap().when_empty {
        WhenEmpty::Waits | WhenEmpty::MayEndConnection => 40,
        // No more may be in flight than is posted.
        WhenEmpty::EndsConnection => RECEIVES / 2,
    };
    let shared = shared(&mut world, RECEIVES);
    let pairs = [connected(&mut world, shared), connected(&mut world, shared)];
    let length = |number: u64| 1 + number as usize * 37 % LEN;
    let (mut sent, mut got, mut next) = ([0; 2], [0; 2], RECEIVES);
    while got != [EACH; 2] {
        for (which, pair) in pairs.iter().enumerate() {
            while sent[which] < EACH.min(got[which] + window) {
                let (number, seed) = (sent[which], sent[which] as u8 ^ which as u8);
                let message = world.filled(CLIENT, length(number), seed).freeze();
                world.send(CLIENT, pair[CLIENT], number, &[message]);
                sent[which] += 1;
            }
        }
        let (qp, _, content) = arrived(&mut world);
        let which = usize::from(qp == pairs[1][SERVER]);
        assert_eq!(qp, pairs[which][SERVER]);
        let (number, seed) = (got[which], got[which] as u8 ^ which as u8);
        assert_eq!(content.len(), length(number));
        let mut bytes = content.iter().enumerate();
        assert!(bytes.all(|(n, byte)| *byte == pattern(n, seed)), "{number}");
        got[which] += 1;
        post(&mut world, shared, next);
        next += 1;
        // Sends that completed.
        world.sides[CLIENT].events.clear();
    }
    assert_eq!(posted(&world, shared), RECEIVES as usize);
    for pair in pairs {
        world.close(pair);
    }
    finish(&mut world, shared);
}

#[test]
fn an_owner_that_posts_only_when_it_is_told_serves_everybody() {
    const EACH: u64 = 500;
    const FULL: usize = 32;
    const BELOW: usize = 16;
    let Some(mut world) = world() else {
        return;
    };
    let attributes = world.sides[SERVER].device.attributes();
    let (window, least) = match attributes.shared_receives.unwrap().when_empty {
        // More than there are receives, so that the queue runs dry now and then.
        WhenEmpty::Waits | WhenEmpty::MayEndConnection => (30, 0),
        // The report of few receives may come only after all messages in flight have arrived. A message
        // without a receive ends the connection, so the client sends nothing while fewer are posted.
        WhenEmpty::EndsConnection => (6, BELOW),
    };
    let shared = shared(&mut world, FULL as u64);
    world
        .device(SERVER)
        .arm_shared_receives(shared, BELOW)
        .unwrap();
    let pairs = [connected(&mut world, shared), connected(&mut world, shared)];
    let (mut sent, mut got, mut next, mut told) = ([0; 2], [0; 2], FULL as u64, 0);
    while got != [EACH; 2] {
        let may_send = posted(&world, shared) >= least;
        for (which, pair) in pairs.iter().enumerate().filter(|_| may_send) {
            while sent[which] < EACH.min(got[which] + window) {
                let message = world.filled(CLIENT, LEN, sent[which] as u8).freeze();
                world.send(CLIENT, pair[CLIENT], sent[which], &[message]);
                sent[which] += 1;
            }
        }
        // The queue pair of a message, or nothing if receives are low.
        let arrived = world.wait(SERVER, |event| match event {
            Event::Completion(Completion {
                qp,
                result: Ok(Success::Receive { buf, .. }),
                ..
            }) => Some(Some((*qp, buf.to_vec()))),
            Event::SharedReceivesLow { id } if *id == shared => Some(None),
            _ => None,
        });
        world.sides[CLIENT].events.clear();
        if let Some((qp, content)) = arrived {
            let which = usize::from(qp == pairs[1][SERVER]);
            let mut bytes = content.iter().enumerate();
            assert!(bytes.all(|(n, byte)| *byte == pattern(n, got[which] as u8)));
            got[which] += 1;
            continue;
        }
        told += 1;
        while posted(&world, shared) < FULL {
            post(&mut world, shared, next);
            next += 1;
        }
        let device = world.device(SERVER);
        device.arm_shared_receives(shared, BELOW).unwrap();
    }
    // Once for each time that the queue was filled, or nearly so: receives are taken while it is.
    assert!(told <= 2 * EACH as usize / (FULL - BELOW) * 2, "{told}");
    assert!(next >= 2 * EACH, "each message took one");
    for pair in pairs {
        world.close(pair);
    }
    finish(&mut world, shared);
}

/// Puts the receives that events returned back into the queue, and drops the other events. Returns
/// how many were flushed.
fn post_again(world: &mut World, shared: SharedReceivesId) -> usize {
    let mut flushed = 0;
    for event in std::mem::take(&mut world.sides[SERVER].events) {
        let Event::Completion(Completion { id, result, .. }) = event else {
            continue;
        };
        assert!(id.0 >= 1000, "the server sends nothing");
        if let Err(failed) = result {
            assert_eq!(failed.error, WorkError::Flushed);
            assert_eq!(failed.buf.unwrap().len(), LEN);
            flushed += 1;
        }
        post(world, shared, id.0 - 1000);
    }
    flushed
}

#[test]
fn connections_that_are_torn_down_under_load_cost_no_receive() {
    const RECEIVES: u64 = 24;
    let Some(mut world) = world() else {
        return;
    };
    let shared = shared(&mut world, RECEIVES);
    let steady = connected(&mut world, shared);
    let mut flushed = 0;
    for round in 0..32 {
        let [client, server] = connected(&mut world, shared);
        for number in 0..RECEIVES / 2 {
            let message = world.filled(CLIENT, LEN, round).freeze();
            world.send(CLIENT, client, number, &[message]);
        }
        // Some way into the messages.
        for _ in 0..u32::from(round) * 3 {
            world.step();
        }
        match round % 4 {
            0 => world.device(SERVER).abort(server),
            1 => world.device(CLIENT).abort(client),
            2 => world.device(CLIENT).destroy(client),
            _ => {}
        }
        if round % 4 < 3 {
            world.disconnected(SERVER, server);
        }
        // In the fourth case, with all that it has taken.
        flushed += post_again(&mut world, shared);
        world.device(SERVER).destroy(server);
        world.device(CLIENT).destroy(client);
        assert!(posted(&world, shared) <= RECEIVES as usize);
        while posted(&world, shared) < RECEIVES as usize {
            post(&mut world, shared, 999);
        }
        text(&mut world, steady[CLIENT], b"goes on");
        let (qp, number, content) = arrived(&mut world);
        assert_eq!((qp, content), (steady[SERVER], Bytes::from("goes on")));
        post(&mut world, shared, number);
    }
    println!("{flushed} receives were flushed");
    // All memory that is still in use is that of the receives that are still posted.
    world.device(SERVER).arm_shared_receives(shared, 1).unwrap();
    let device = &world.sides[SERVER].device;
    let posted = device.posted_shared_receives(shared);
    assert_eq!(device.pool().in_use(), posted * LEN);
    world.close(steady);
    finish(&mut world, shared);
}
