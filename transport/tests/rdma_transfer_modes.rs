//! Tests of connections with an extension that carries RPC messages. It is a small one of this
//! test, which cuts messages into pieces. Messages that it cannot carry, or that the peer does not
//! accept from it, are sent by the base protocol.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

#[path = "../../v2/tests/cutter/mod.rs"]
mod cutter;
mod rdma_support;

use bytes::Bytes;
use cutter::{Cutter, PIECE};
use rdma::Pool;
use rdma_support::fabric::{FakeDevice, Traffic, World, address, attributes};
use rdma_support::{End, Pair, data, explicit, message, open, reply, room, short, speaking};
use rpc_transport::ClientTransport;
use rpc_transport::rdma::{Choice, RdmaClientOptions, RdmaServerOptions, Version, Versions};
use rpcrdma_extension::made_by;
use rpcrdma_v2::{Body, Header, Reader};

const CLIENT: usize = 0;
const SERVER: usize = 1;

fn options(client: bool, server: bool) -> (RdmaClientOptions, RdmaServerOptions) {
    let (mut ours, mut theirs) = speaking(Choice::Only(Version::TWO), Versions::only(Version::TWO));
    for (has, common) in [(client, &mut ours.common), (server, &mut theirs.common)] {
        if has {
            let cutter = made_by(|_| Box::new(Cutter::default()));
            common.protocols.add(Version::TWO, cutter);
        }
    }
    (ours, theirs)
}

/// Returns, for each message that one side sent, the number of the piece and of all pieces of its
/// group, or `None` for any other message.
fn sent(world: &World, by: usize) -> Vec<Option<(u32, u32)>> {
    let sends = world.traffic.iter().filter_map(|(from, what)| match what {
        Traffic::Send(bytes, _) if *from == by => Some(bytes),
        _ => None,
    });
    let piece = |bytes: &Bytes| match Header::decode(bytes).unwrap().0.body {
        Body::Optional(optional) if optional.opttype == PIECE => {
            let mut info = Reader::new(&optional.info);
            Some((info.u32().unwrap(), info.u32().unwrap()))
        }
        _ => None,
    };
    sends.map(piece).collect()
}

/// Checks that every piece is followed by the next of its group.
#[track_caller]
fn groups_are_whole(world: &World, by: usize) {
    let sent = sent(world, by);
    let mut pieces = sent.iter();
    while let Some(piece) = pieces.next() {
        if let Some((index, count)) = piece {
            assert_eq!(*index, 0, "a group begins with its first");
            for next in 1..*count {
                assert_eq!(pieces.next().unwrap(), &Some((next, *count)));
            }
        }
    }
}

fn shapes() -> impl Iterator<Item = (usize, Vec<usize>)> {
    let words = [0, 900, 1020, 5000];
    let items = [&[][..], &[1], &[4096], &[100_000], &[5000, 3, 70_000]];
    words
        .into_iter()
        .flat_map(move |words| items.into_iter().map(move |lens| (words, lens.to_vec())))
}

#[test]
fn messages_of_every_shape_go_in_pieces_without_any_rdma() {
    let (client, server) = options(true, true);
    let (world, mut pair, conn) = Pair::echoing(client, server);
    let before = (pair.client_pool.in_use(), pair.server_pool.in_use());
    for (xid, (words, lens)) in shapes().enumerate() {
        let xid = xid as u32 + 1;
        let items: Vec<Bytes> = lens.iter().map(|&len| data(xid, len)).collect();
        let end = pair.call(conn, message(xid, words, &items), &room(words, &lens));
        assert_eq!(open(&end.reply()), (xid, words, items));
    }
    let world = world.borrow();
    assert_eq!(explicit(&world), 0);
    assert_eq!(world.overruns, 0);
    for by in [CLIENT, SERVER] {
        groups_are_whole(&world, by);
        let most = sent(&world, by)
            .into_iter()
            .flatten()
            .map(|(_, count)| count);
        assert!(most.max().unwrap() > 20, "long ones go in many");
    }
    let plain = sent(&world, CLIENT)
        .iter()
        .filter(|piece| piece.is_none())
        .count();
    // The first message, which holds the characteristics, and the calls of 0 and 900 words, each
    // without items and with one of a single byte, which is not worth a placement.
    assert_eq!(
        plain, 5,
        "nobody is asked about what one plain Send carries"
    );
    assert!(pair.client_pool.in_use() <= before.0 + 300 * 8192);
    // Nothing but short messages, and of these not those that came in receives which are not used
    // again.
    let (copied, short) = (
        pair.client.copied_bytes() + pair.server.copied_bytes(),
        short(&world),
    );
    assert!(copied <= short, "{copied} bytes of {short}");
}

/// Receives that were posted for a reply in many transmissions, which then takes only a few, are
/// used by later replies and not replaced. Nothing else keeps their memory.
#[test]
fn receives_for_replies_that_were_shorter_do_not_pile_up() {
    let (client, server) = options(true, true);
    let (_world, mut pair, conn) = Pair::echoing(client, server);
    let mut xid = 0;
    let mut in_use = Vec::new();
    for _ in 0..60 {
        xid += 1;
        let long = room(5000, &[]);
        pair.call(conn, message(xid, 0, &[]), &long).reply();
        for _ in 0..8 {
            xid += 1;
            pair.call(conn, message(xid, 0, &[]), &room(0, &[])).reply();
        }
        in_use.push(pair.client_pool.in_use());
    }
    assert_eq!(in_use[20], in_use[59], "{in_use:?}");
}

#[test]
fn many_calls_at_once_never_take_more_than_the_credits() {
    let (mut client, mut server) = options(true, true);
    (client.common.credits, server.common.credits) = (16, 8);
    client.common.spare_receives = 12;
    let (world, mut pair, conn) = Pair::echoing(client, server);
    let lens = [10, 9000, 30_000, 100_000, 4000];
    for xid in 1..=100 {
        let len = lens[xid as usize % lens.len()];
        let (there, back) = (data(xid, len), lens[(xid as usize / 5) % lens.len()]);
        let asked = message(xid, back / 4, &[there]);
        pair.submit(conn, asked, &room(back / 4, &[len]));
    }
    pair.until(|pair| pair.ended.len() == 100);
    for (_, end) in pair.ended.drain() {
        let (xid, words, items) = open(&end.reply());
        assert_eq!(items, [data(xid, lens[xid as usize % lens.len()])]);
        assert_eq!(words, lens[(xid as usize / 5) % lens.len()] / 4);
    }
    let world = world.borrow();
    assert_eq!(world.overruns, 0);
    assert!(world.fewest_receives.unwrap() >= 4);
    assert!(
        explicit(&world) > 0,
        "what credits do not suffice for goes by RDMA"
    );
    for by in [CLIENT, SERVER] {
        groups_are_whole(&world, by);
        assert!(
            sent(&world, by)
                .iter()
                .flatten()
                .any(|(_, count)| *count > 1)
        );
    }
    assert!(pair.client.requester_counters(conn).unwrap().most_in_flight <= 8);
}

#[test]
fn a_server_without_the_extension_gets_the_call_as_ever() {
    let (client, server) = options(true, false);
    let (world, mut pair, conn) = Pair::echoing(client, server);
    for xid in 1..=3 {
        let item = data(xid, 50_000);
        let end = pair.call(
            conn,
            message(xid, 2, std::slice::from_ref(&item)),
            &room(2, &[50_000]),
        );
        assert_eq!(open(&end.reply()).2, [item]);
    }
    let world = world.borrow();
    // The one credit that there is before the first grant is not enough for a group, so the first
    // call may go as ever at once.
    let tried = sent(&world, CLIENT)
        .into_iter()
        .flatten()
        .filter(|(index, _)| *index == 0);
    assert!(tried.count() <= 1, "it is told once");
    assert!(explicit(&world) >= 6);
    assert!(pair.down.is_empty());
}

#[test]
fn a_lost_connection_ends_groups_wherever_they_are() {
    for lose_at in 2..70 {
        let (client, server) = options(true, true);
        let (world, mut pair, conn) = Pair::echoing(client, server);
        world.borrow_mut().lose_at = Some(lose_at);
        for xid in 1..=2 {
            pair.submit(
                conn,
                message(xid, 2, &[data(xid, 60_000)]),
                &room(2, &[60_000]),
            );
        }
        pair.until(|pair| pair.down.len() == 1 || pair.ended.len() == 2);
        pair.settle();
        if pair.down.len() == 1 {
            assert_eq!(pair.client.connections().count(), 0);
        } else {
            pair.client.close(conn);
            pair.settle();
        }
        pair.ended.clear();
        pair.held.clear();
        assert_eq!(pair.client_pool.in_use(), 0, "lost at {lose_at}");
        assert_eq!(pair.server_pool.in_use(), 0, "lost at {lose_at}");
    }
}

#[test]
fn a_cancelled_call_holds_its_credits_until_its_reply() {
    let (mut client, mut server) = options(true, true);
    (client.common.credits, server.common.credits) = (20, 20);
    let (world, mut pair) = Pair::fake_with(client, server, attributes());
    let conn = pair.connect();
    pair.echo();
    assert!(matches!(
        pair.call(conn, message(1, 2, &[]), &room(2, &[])),
        End::Reply(_)
    ));
    pair.answer = None;
    pair.submit(conn, message(2, 2, &[data(2, 60_000)]), &room(2, &[60_000]));
    pair.until(|pair| !pair.held.is_empty());
    pair.client.cancel(conn, 2);
    // 16 of 20 credits are still taken: a second one goes by RDMA Read.
    pair.submit(conn, message(3, 2, &[data(3, 60_000)]), &room(2, &[0]));
    pair.until(|pair| pair.held.len() == 2);
    assert!(explicit(&world.borrow()) > 0);
    for (conn, token, call) in std::mem::take(&mut pair.held) {
        let (xid, words, items) = open(&call);
        let items = if xid == 2 { items } else { vec![Bytes::new()] };
        let now = pair.now();
        rpc_transport::ServerTransport::reply(
            &mut pair.server,
            conn,
            token,
            Some(reply(xid, words, &items)),
            now,
        );
    }
    pair.until(|pair| pair.ended.contains_key(&(conn, 3)));
    pair.settle();
    assert!(!pair.ended.contains_key(&(conn, 2)));
    assert_eq!(
        pair.client
            .requester_counters(conn)
            .unwrap()
            .cancelled_replies,
        1
    );
    let before = explicit(&world.borrow());
    pair.echo();
    let end = pair.call(conn, message(4, 2, &[data(4, 60_000)]), &room(2, &[60_000]));
    assert_eq!(open(&end.reply()).2, [data(4, 60_000)]);
    assert_eq!(explicit(&world.borrow()), before, "the credits are back");
}

/// When the first piece of a call is refused, the others are still in transit. They count against
/// the credits until a message sent after them is answered, because only then is it known that they
/// need no receives.
#[test]
fn the_rest_of_a_refused_group_counts_until_it_must_have_arrived() {
    const CREDITS: u32 = 8;
    let (mut client, mut server) = options(true, false);
    (client.common.credits, server.common.credits) = (2 * CREDITS, CREDITS);
    let cutter = made_by(|_| Box::new(Cutter::of_one()));
    server.common.protocols = rpcrdma_protocols::base().with(Version::TWO, cutter);
    let (world, mut pair) = Pair::fake_with(client, server, attributes());
    pair.answer_with(|call| {
        let (xid, words, _) = open(call);
        Some(reply(xid, words, &[]))
    });
    let conn = pair.connect();
    pair.call(conn, message(1, 2, &[]), &room(2, &[])).reply();
    // All credits, and more calls than there are.
    pair.submit(conn, message(2, 2, &[data(2, 31_000)]), &room(2, &[]));
    for xid in 3..30 {
        pair.submit(conn, message(xid, 2, &[]), &room(2, &[]));
    }
    world.borrow_mut().slow = Some(CLIENT);
    let mut most = 0;
    pair.until(|pair| {
        most = most.max(world.borrow().posted(CLIENT));
        pair.ended.len() == 28
    });
    assert!(
        most > 5,
        "the group is under way while it is refused: {most}"
    );
    assert!(
        most <= CREDITS as usize,
        "{most} where {CREDITS} are granted"
    );
    let world = world.borrow();
    let pieces: Vec<_> = sent(&world, CLIENT).into_iter().flatten().collect();
    assert_eq!(
        pieces.len(),
        CREDITS as usize,
        "the group went once, and whole"
    );
    assert_eq!(explicit(&world), 1, "and then by an RDMA Read");
    assert_eq!(world.overruns, 0);
    for xid in 2..30 {
        pair.ended.remove(&(conn, xid)).unwrap().reply();
    }
    // Nothing is held any more.
    assert_eq!(
        pair.client.requester_counters(conn).unwrap().most_in_flight,
        CREDITS
    );
}

#[test]
fn without_memory_for_receives_the_reply_comes_in_chunks() {
    let (mut client, server) = options(true, true);
    client.common.inline_receive = 8192;
    client.common.credits = 8;
    let world = World::new();
    let pool = Pool::new(4 << 20);
    let device = FakeDevice::new(&world, attributes(), pool.clone());
    let other = FakeDevice::new(&world, attributes(), Pool::new(rdma_support::POOL));
    let mut pair = Pair::new(Box::new(device), client, Box::new(other), server, address());
    pair.echo();
    let conn = pair.connect();
    // Enough for one chunk, and not for 30 receives of 8 KiB.
    let mut held = Vec::new();
    while pool.limit() - pool.in_use() > (180 << 10) {
        held.push(pool.alloc(16 << 10).unwrap());
    }
    let end = pair.call(conn, message(1, 2, &[]), &room(2, &[120_000]));
    assert_eq!(open(&end.reply()).0, 1);
    drop(held);
    assert!(
        sent(&world.borrow(), CLIENT).iter().all(Option::is_none),
        "no call went in pieces"
    );
}
