//! An extension that carries RPC messages, through the engine: a small one, of this test's own, which
//! cuts messages into pieces. What it cannot carry, and what its peer does not take, goes as ever.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod rdma_support;

use std::collections::VecDeque;
use std::fmt;

use bytes::Bytes;
use onc_rpc::{Message, Segments};
use rdma_support::fabric::{FakeDevice, Traffic, World, address, attributes};
use rdma_support::{End, Pair, data, message, open, reply, room, speaking};
use rpc_transport::ClientPort;
use rpc_transport::rdma::{Choice, RdmaClientOptions, RdmaServerOptions, Version, Versions};
use rpcrdma_chunks::{CallChunks, Chunks};
use rpcrdma_v2::extension::{
    CallCandidate, CallToPlan, Conveyed, Conveyor, Cost, Extension, IncomingCall, IncomingReply,
    NotConveyed, Operation, Outbox, Planned, Refusal, ReplyCandidate, ReplyToPlan, Transmission,
    Transmissions,
};
use rpcrdma_v2::{Body, Direction, ErrorBody, Header, Reader};
use smallvec::SmallVec;
use verbs::Pool;

const CLIENT: usize = 0;
const SERVER: usize = 1;

/// From the range that nobody has assigned.
const PIECE: u32 = 0x7fff_0010;
/// Instead of a piece's number: the call that had one of several was not taken.
const NOT_TAKEN: u32 = u32::MAX;
/// Bytes of a piece: with its header, it fits every receive.
const LEN: u64 = 4000;

/// Cuts messages. Each piece says which of how many it is, and, in calls, in how many the reply may
/// come.
#[derive(Debug, Default)]
struct Cutter {
    arriving: Vec<Bytes>,
    /// The peer does not know it.
    refused: bool,
    /// It takes no message of several pieces, and says so as soon as the first is there.
    takes_one: bool,
}

#[derive(Debug)]
struct Cut {
    pieces: u32,
    reply_pieces: u32,
}

impl fmt::Display for Cut {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} pieces, {} back", self.pieces, self.reply_pieces)
    }
}

fn pieces(len: u64) -> u32 {
    len.div_ceil(LEN) as u32
}

fn cut(message: &Message, plan: &dyn Planned) -> Transmissions {
    let cut: &Cut = (plan as &dyn std::any::Any).downcast_ref().unwrap();
    let mut rest: VecDeque<Bytes> = message.gather(|_| true).into_iter().collect();
    let transmissions = (0..cut.pieces).map(|index| {
        let (mut payload, mut room) = (Segments::new(), LEN as usize);
        while room > 0
            && let Some(mut piece) = rest.pop_front()
        {
            let taken = piece.split_to(room.min(piece.len()));
            room -= taken.len();
            payload.push(taken);
            if !piece.is_empty() {
                rest.push_front(piece);
            }
        }
        let words = [index, cut.pieces, cut.reply_pieces];
        Transmission {
            opttype: PIECE,
            info: words.iter().flat_map(|word| word.to_be_bytes()).collect(),
            payload,
        }
    });
    transmissions.collect()
}

impl Extension for Cutter {
    fn name(&self) -> &'static str {
        "cutter"
    }

    fn opttypes(&self) -> &[u32] {
        &[PIECE]
    }

    fn received(&mut self, op: &Operation<'_>, out: &mut Outbox<'_>) -> Result<(), Refusal> {
        let mut info = Reader::new(op.info);
        let (index, count, reply_pieces) = (info.u32()?, info.u32()?, info.u32()?);
        info.end()?;
        if index == NOT_TAKEN {
            out.conveyed(Conveyed::Rejected {
                xid: op.xid,
                direction: Direction::Call,
                reason: "several pieces".to_owned(),
            });
            return Ok(());
        }
        if self.takes_one && count > 1 {
            if index == 0 {
                let words = [NOT_TAKEN, 0, 0].map(u32::to_be_bytes).concat();
                out.about(op.xid, Direction::Reply, PIECE, words.into());
            }
            return Ok(());
        }
        if index as usize == 0 {
            self.arriving.clear();
        }
        let mut skip = op.payload_at;
        for piece in op.message {
            let begin = skip.min(piece.len());
            skip -= begin;
            if begin < piece.len() {
                self.arriving.push(piece.slice(begin..));
            }
        }
        if index + 1 < count {
            return Ok(());
        }
        let payload: Segments = std::mem::take(&mut self.arriving).into_iter().collect();
        let message = Message::new(payload, []);
        out.conveyed(match op.direction {
            Direction::Call => Conveyed::Call(IncomingCall {
                xid: op.xid,
                requested: op.credits,
                transmissions: count,
                message,
                chunks: CallChunks::default(),
                context: Box::new(reply_pieces),
            }),
            Direction::Reply => Conveyed::Reply(IncomingReply {
                xid: op.xid,
                granted: op.credits,
                transmissions: count,
                message,
                writes: SmallVec::new(),
            }),
        });
        Ok(())
    }

    fn conveyor(&mut self) -> Option<&mut dyn Conveyor> {
        Some(self)
    }
}

impl Conveyor for Cutter {
    fn plan_call(&self, call: &CallToPlan<'_>) -> Vec<CallCandidate> {
        let (len, back) = (call.shape.stream_len(), call.need.stream_len());
        let (count, reply_pieces) = (pieces(len), pieces(back));
        if self.refused || count > call.credits || reply_pieces - 1 > call.reservable {
            return Vec::new();
        }
        vec![CallCandidate {
            cost: Cost {
                transmissions: count,
                wire_bytes: len,
                receives: reply_pieces - 1,
                reply_transmissions: reply_pieces,
                reply_wire_bytes: back,
                ..Cost::default()
            },
            reads: SmallVec::new(),
            write_chunks: SmallVec::new(),
            reply_chunk: None,
            plan: Box::new(Cut {
                pieces: count,
                reply_pieces,
            }),
        }]
    }

    fn send_call(
        &mut self,
        _: u32,
        plan: Box<dyn Planned>,
        message: &Message,
        _: &Chunks,
    ) -> Result<Transmissions, NotConveyed> {
        Ok(cut(message, &*plan))
    }

    fn plan_reply(&self, reply: &ReplyToPlan<'_>) -> Vec<ReplyCandidate> {
        let count = pieces(reply.shape.stream_len());
        let &most: &u32 = reply.context.downcast_ref().unwrap();
        if count > most {
            return Vec::new();
        }
        vec![ReplyCandidate {
            cost: Cost {
                transmissions: count,
                wire_bytes: reply.shape.stream_len(),
                ..Cost::default()
            },
            writes: SmallVec::new(),
            plan: Box::new(Cut {
                pieces: count,
                reply_pieces: 0,
            }),
        }]
    }

    fn send_reply(
        &mut self,
        _: u32,
        plan: Box<dyn Planned>,
        message: &Message,
    ) -> Result<Transmissions, NotConveyed> {
        Ok(cut(message, &*plan))
    }

    fn call_refused(&mut self, _: u32, error: ErrorBody) {
        assert_eq!(error, ErrorBody::InvalidOption);
        self.refused = true;
    }
}

fn options(client: bool, server: bool) -> (RdmaClientOptions, RdmaServerOptions) {
    let (mut ours, mut theirs) = speaking(Choice::Only(Version::Two), Versions::only(Version::Two));
    for (has, common) in [(client, &mut ours.common), (server, &mut theirs.common)] {
        if has {
            common.extensions = vec![|_| Box::new(Cutter::default())];
        }
    }
    (ours, theirs)
}

/// The pieces that one side sent, each with its number and how many there are; nothing for any other
/// message.
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

fn explicit(world: &World) -> usize {
    let traffic = world.traffic.iter();
    let explicit = traffic.filter(|(_, what)| !matches!(what, Traffic::Send(..)));
    explicit.count()
}

/// Every piece is followed by the next of its group.
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
    let (world, mut pair) = Pair::fake_with(client, server, attributes());
    pair.echo();
    let conn = pair.connect();
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
    // The first message, which holds the characteristics, and two short calls without items.
    assert_eq!(
        plain, 3,
        "nobody is asked about what one plain Send carries"
    );
    assert!(pair.client_pool.in_use() <= before.0 + 300 * 8192);
    // Nothing but short messages, all of each in the first piece of its receive.
    let lengths = world.traffic.iter().map(|(_, what)| match what {
        Traffic::Send(bytes, _) => bytes.len(),
        _ => 0,
    });
    let short: usize = lengths.filter(|&len| len <= 256).sum();
    let copied = pair.client.copied_bytes() + pair.server.copied_bytes();
    assert!(copied <= short as u64, "{copied} bytes of {short}");
}

/// Receives for a reply in many transmissions that is short in the end are used by the replies after it,
/// and not replaced; nor does anything else keep their memory.
#[test]
fn receives_for_replies_that_were_shorter_do_not_pile_up() {
    let (client, server) = options(true, true);
    let (_world, mut pair) = Pair::fake_with(client, server, attributes());
    pair.echo();
    let conn = pair.connect();
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
    let (world, mut pair) = Pair::fake_with(client, server, attributes());
    pair.echo();
    let conn = pair.connect();
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
    let (world, mut pair) = Pair::fake_with(client, server, attributes());
    pair.echo();
    let conn = pair.connect();
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
        let (world, mut pair) = Pair::fake_with(client, server, attributes());
        pair.echo();
        let conn = pair.connect();
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
        rpc_transport::ServerPort::reply(
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

/// What follows the first piece is still on its way when the call is refused: until something that was
/// sent after it is answered, nobody knows that it does not take receives any more.
#[test]
fn the_rest_of_a_refused_group_counts_until_it_must_have_arrived() {
    const CREDITS: u32 = 8;
    let (mut client, mut server) = options(true, false);
    (client.common.credits, server.common.credits) = (2 * CREDITS, CREDITS);
    server.common.extensions = vec![|_| {
        Box::new(Cutter {
            takes_one: true,
            ..Cutter::default()
        })
    }];
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
