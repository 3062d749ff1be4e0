//! Tests of the memory that all connections of a server share: calls of one connection wait when it
//! has used its share.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test may panic")]

mod support;

use bytes::Bytes;
use onc_rpc::{CALL, Encoder, Message, REPLY, Segments};
use rdma::{Pool, Time};
use rpcrdma_connection::{Action, CallId, Connection, Event, Options};
use rpcrdma_ext_continuation::{Continuation, Request, XMTCONT, XMTREQ};
use rpcrdma_host::{Account, Budget, Charge, GUARANTEED, PER_CALL};
use rpcrdma_negotiation::{Version, Versions};
use rpcrdma_v1::{Body, Chunks, Header, PrivateData, ReadSegment, Segment};
use rpcrdma_v2::{Body as TwoBody, Header as TwoHeader, Optional};
use rpcrdma_v2_wg::{Body as WgBody, Direction, ErrorBody, Properties};
use support::{Endpoint, WgPeer, bytes, configs_with, inline_call, message};

const MIB: usize = 1 << 20;
/// Length in bytes of a receive.
const RECEIVE: usize = 4096;

/// Returns a server's connection that shares 4 MiB with seven others, and its account.
fn server() -> (Connection, Account) {
    let account = Budget::new(4 * MIB, 8).account();
    assert_eq!(account.guaranteed(), GUARANTEED);
    let (_, mut config) = configs_with(Version::ONE, |_, server| {
        server.credits = 8;
        server.outbound_reads = 4;
        server.remote_invalidation = false;
        server.max_message = 64 << 20;
    });
    config.pool = Pool::new(64 * MIB).charged_to(&account);
    let mut server = Connection::new(config);
    let Some(Action::PostReceives { id, .. }) = next(&mut server) else {
        panic!("receives come first");
    };
    let posted = true;
    handle(&mut server, Event::ReceivesPosted { id, posted });
    let peer = Some(PrivateData::new(4096, 4096, false));
    handle(&mut server, Event::Established { peer });
    // The first call says which version is spoken.
    receive(&mut server, call(0, 0));
    assert!(matches!(next(&mut server), Some(Action::Decided(_))));
    let id = delivered(&mut server).unwrap();
    server.reply(Time::ZERO, id, None);
    assert!(next(&mut server).is_none() && account.held() == 0);
    (server, account)
}

fn next(server: &mut Connection) -> Option<Action> {
    server.poll_action(usize::MAX)
}

fn handle(server: &mut Connection, event: Event) {
    server.handle(Time::ZERO, event);
}

fn receive(server: &mut Connection, message: Bytes) {
    let message = Segments::from_iter([message]);
    let invalidated = None;
    handle(
        server,
        Event::Received {
            message,
            invalidated,
        },
    );
}

/// Returns a call, with a read chunk of `fetched` bytes unless that is zero.
fn call(xid: u32, fetched: u32) -> Bytes {
    let mut chunks = Chunks::default();
    let payload = [xid, CALL, 0].map(u32::to_be_bytes).concat();
    if fetched > 0 {
        chunks.reads.push(ReadSegment {
            position: payload.len() as u32,
            segment: Segment {
                handle: xid,
                length: fetched,
                offset: 0,
            },
        });
    }
    let header = Header {
        xid,
        credits: 8,
        body: Body::Msg(chunks),
    };
    [&header.encode()[..], &payload].concat().into()
}

/// Returns a reply with `len` bytes of payload.
fn reply(xid: u32, len: usize) -> Message {
    let mut encoder = Encoder::new();
    encoder.u32(xid);
    encoder.u32(REPLY);
    for _ in 0..len / 4 {
        encoder.u32(7);
    }
    encoder.finish()
}

fn delivered(server: &mut Connection) -> Option<CallId> {
    match next(server)? {
        Action::Deliver { id, .. } => Some(id),
        other => panic!("{other:?}"),
    }
}

#[test]
fn calls_wait_while_replies_that_nobody_takes_fill_the_share() {
    let (mut server, account) = server();
    let mut untaken = Vec::new();
    let mut xid = 0;
    // As many replies as there may be; the device lets go of none.
    loop {
        xid += 1;
        receive(&mut server, call(xid, 0));
        let Some(id) = delivered(&mut server) else {
            break;
        };
        assert!(xid < 10_000, "no end of it");
        server.reply(Time::ZERO, id, Some(reply(xid, 3000)));
        untaken.extend(next(&mut server));
    }
    assert!(server.waits_for_memory());
    assert!(!server.calls_wait_for_memory(), "no call of this end does");
    assert!(
        account.beyond_guaranteed() > 0 && account.held() < 3 * MIB,
        "{}",
        account.held()
    );
    server.retry();
    assert!(delivered(&mut server).is_none(), "nothing has changed");
    drop(untaken);
    assert_eq!(account.held(), 0);
    server.retry();
    assert!(delivered(&mut server).is_some() && !server.waits_for_memory());
    assert_eq!(account.held(), PER_CALL);
}

#[test]
fn a_fetch_waits_for_its_share_and_short_calls_pass_it() {
    let (mut server, account) = server();
    receive(&mut server, call(1, MIB as u32));
    let Some(Action::Read { id, sink, .. }) = next(&mut server) else {
        panic!("there is room for the first");
    };
    assert_eq!(account.held(), MIB);
    receive(&mut server, call(2, 2 * MIB as u32));
    assert!(next(&mut server).is_none() && server.waits_for_memory());
    receive(&mut server, call(3, 0));
    let short = delivered(&mut server).expect("it needs no memory to be fetched");
    server.reply(Time::ZERO, short, None);
    handle(&mut server, Event::ReadDone { id, sink });
    let first = delivered(&mut server).expect("it was fetched");
    assert!(next(&mut server).is_none() && server.waits_for_memory());
    // The call's message was dropped above; the rest of its memory is released by the reply.
    server.reply(Time::ZERO, first, None);
    assert!(matches!(next(&mut server), Some(Action::Read { .. })));
    assert!(!server.waits_for_memory());
}

/// RFC 8166, section 4.5.3: a call that can never be transferred is answered with an error.
#[test]
fn a_call_that_is_longer_than_any_share_is_refused() {
    let (mut server, account) = server();
    receive(&mut server, call(1, 4 * MIB as u32));
    let Some(Action::Send { gather, .. }) = next(&mut server) else {
        panic!("it is answered");
    };
    let (header, _) = Header::decode(&gather.concat().into()).unwrap();
    assert!(matches!(header.body, Body::Error(_)), "{header:?}");
    assert_eq!((account.held(), server.waits_for_memory()), (0, false));
    assert_eq!(server.unanswered_calls(), 0);
}

/// The fetched chunks of all unanswered calls together stay within the server's limit.
#[test]
fn calls_wait_while_fetched_chunks_hold_all_that_they_may() {
    let (_, mut config) = configs_with(Version::ONE, |_, server| server.max_message = 1 << 20);
    config.max_fetched = 100_000;
    let mut server = Endpoint::new(config);
    server.establish(Some(PrivateData::new(4096, 4096, false)));
    for xid in 1..=3 {
        server.receive(&call(xid, 40_000), None).unwrap();
    }
    server.run();
    assert_eq!(server.reads.len(), 2, "the third would hold too much");
    assert!(server.connection.waits_for_memory());
    let read = server.reads.remove(0);
    server.read_done(read);
    server.run();
    assert_eq!(server.reads.len(), 1, "the first holds its chunk still");
    let (id, _) = server.delivered.pop_front().unwrap();
    server.reply(id, None);
    server.run();
    assert_eq!(server.reads.len(), 2);
    assert!(!server.connection.waits_for_memory());
}

/// Returns the client of a server with draft -07 that shares 4 MiB with seven others, and the account of its
/// connection. The driver of the server counts the memory of messages that are longer than `longest_uncounted`.
fn wg_client(longest_uncounted: Option<usize>) -> (WgPeer, Account) {
    let account = Budget::new(4 * MIB, 8).account();
    let options = Options::server(rpcrdma_protocols::base());
    let mut config = support::server(Versions::only(Version::TWO_WG), options);
    config.pool = Pool::new(64 * MIB).charged_to(&account);
    config.longest_uncounted = longest_uncounted;
    let client = WgPeer::new(config).exchanged(&Properties::default());
    (client, account)
}

/// Returns a client as [`wg_client`] does, and what a call in progress holds: all that the connection may take, as for
/// its reply in a relay.
fn with_a_call_in_progress(longest_uncounted: Option<usize>) -> (WgPeer, Account, Charge) {
    let (mut client, account) = wg_client(longest_uncounted);
    client.send_rpc(inline_call(Default::default()), &message(1, 20, &[]));
    assert_eq!(client.end.delivered.len(), 1);
    let mut of_reply = Charge::new(Some(account.clone()));
    of_reply.add(account.room());
    (client, account, of_reply)
}

/// Sends the parts of a call but the last one, each with so many bytes of it. Returns the last one.
fn send_begun<'a>(client: &mut WgPeer, xid: u32, call: &'a [u8], each: usize) -> &'a [u8] {
    let mut rest = call;
    while let Some((part, after)) = rest.split_at_checked(each) {
        rest = after;
        client.send_middle(Direction::Call, xid, part, rest.len());
    }
    rest
}

/// Sends a call in parts of so many bytes.
fn send_in_parts(client: &mut WgPeer, xid: u32, call: &[u8], each: usize) {
    let last = send_begun(client, xid, call, each);
    client.send(xid, inline_call(Default::default()), last);
}

/// Otherwise the client would lose the connection for a call that it had credits for, and the replies to the others
/// with it. It would make all of them again over the next connection, and lose that in the same way.
#[test]
fn calls_in_progress_do_not_end_the_connection_of_one_that_comes_in_parts() {
    let (mut client, account, of_reply) = with_a_call_in_progress(None);
    let calls = [2, 3].map(|xid| bytes(&message(xid, 25_000, &[])));
    for (xid, call) in (2..).zip(&calls) {
        let before = account.held();
        let last = send_begun(&mut client, xid, call, 4000);
        let with_parts = account.held();
        assert_eq!(with_parts - before, call.len() / 4000 * RECEIVE);
        client.send(xid, inline_call(Default::default()), last);
        assert_eq!(client.end.closed, None);
        assert_eq!(client.end.delivered.len(), 1, "the others wait");
        // The receives are charged as long as they are held.
        assert_eq!(account.held(), with_parts);
    }
    drop(of_reply);
    client.reply(None);
    client.end.connection.retry();
    client.end.run();
    assert_eq!(account.held(), 2 * PER_CALL);
    for call in calls {
        let (id, arrived) = client.end.delivered.pop_front().unwrap();
        assert_eq!(bytes(&arrived), call);
        client.end.reply(id, None);
    }
    assert_eq!(account.held(), 0);
}

/// A call that came in parts is charged while it waits for memory, and does not wait for its own.
#[test]
fn a_waiting_call_is_executed_when_its_connection_holds_nothing_else() {
    let (mut client, account, of_reply) = with_a_call_in_progress(None);
    let call = bytes(&message(2, 25_000, &[]));
    send_in_parts(&mut client, 2, &call, 4000);
    // Whatever is released, others take.
    client.reply(None);
    assert_eq!(client.end.delivered.len(), 0);
    assert!(client.end.connection.waits_for_memory());
    let mut others = Charge::new(Some(account.common()));
    others.add(4 * MIB);
    drop(of_reply);
    let of_parts = call.len() / 4000 * RECEIVE;
    assert_eq!((account.held(), account.room()), (of_parts, 0));
    client.end.connection.retry();
    client.end.run();
    assert_eq!(client.end.delivered.len(), 1);
    assert_eq!(account.held(), PER_CALL);
}

/// A call whose parts hold more than the guaranteed memory is executed, although others hold the rest.
#[test]
fn a_call_in_parts_does_not_wait_for_its_own_parts() {
    let (mut client, account) = wg_client(None);
    let call = bytes(&message(1, 25_000, &[]));
    let last = send_begun(&mut client, 1, &call, 4000);
    let mut others = Charge::new(Some(account.common()));
    others.add(4 * MIB);
    assert!(account.held() > account.guaranteed() && account.room() == 0);
    client.send(1, inline_call(Default::default()), last);
    assert!(!client.end.connection.waits_for_memory());
    assert_eq!(client.end.delivered.len(), 1);
}

/// Version-two-07, section 7.4.1: there is no room for what more of them would hold, at any time.
#[test]
fn calls_that_wait_hold_no_more_than_one_connection_can_ever_have() {
    let (mut client, account, of_reply) = with_a_call_in_progress(None);
    let of_calls = account.held();
    let calls = [2, 3, 4].map(|xid| bytes(&message(xid, 250_000, &[])));
    for (xid, call) in (2..).zip(&calls) {
        send_in_parts(&mut client, xid, call, 4000);
        assert_eq!(client.end.closed, None);
        let waiting = account.held() - of_calls;
        assert!(waiting <= account.largest(), "{waiting} bytes held");
    }
    let sent = client.taken();
    let is_error = |body: &&WgBody| matches!(body, WgBody::Error(_));
    let errors: Vec<_> = sent.iter().filter(is_error).collect();
    assert!(
        matches!(errors[..], [WgBody::Error(ErrorBody::System)]),
        "{errors:?}"
    );
    drop(of_reply);
    client.reply(None);
    client.end.connection.retry();
    client.end.run();
    for call in &calls[..2] {
        let (id, arrived) = client.end.delivered.pop_front().unwrap();
        assert_eq!(bytes(&arrived), *call);
        client.end.reply(id, None);
    }
    assert_eq!((client.end.delivered.len(), account.held()), (0, 0));
}

/// A call that waits is charged for copies of its short parts alone: the driver counts the rest.
#[test]
fn calls_that_wait_are_not_charged_for_what_the_driver_counts() {
    let longest_uncounted = Some(1024);
    let (mut client, account, of_reply) = with_a_call_in_progress(longest_uncounted);
    let of_calls = account.held();
    let call = bytes(&message(2, 25_000, &[]));
    send_in_parts(&mut client, 2, &call, 4000);
    assert!(client.end.connection.waits_for_memory());
    assert_eq!(account.held(), of_calls);
    for (xid, each) in [(3, 1000), (4, 1400)] {
        let call = bytes(&message(xid, 2000, &[]));
        let before = account.held();
        send_in_parts(&mut client, xid, &call, each);
        let copied = call.len() / each * each;
        let charged = account.held() - before;
        assert!((copied..2 * copied).contains(&charged), "{each}: {charged}");
    }
    drop((client, of_reply));
    assert_eq!(account.held(), 0);
}

/// A server with continued messages (rtrext-00) that shares 4 MiB with seven others, while a call in progress holds all
/// that the connection may take.
struct Continuing {
    server: Endpoint,
    account: Account,
    of_reply: Charge,
    /// Bytes that the account held before the calls of the test.
    of_calls: usize,
}

impl Continuing {
    /// The driver of the server counts the memory of messages that are longer than `longest_uncounted`.
    fn new(longest_uncounted: Option<usize>) -> Self {
        let account = Budget::new(4 * MIB, 8).account();
        let (_, mut config) = configs_with(Version::TWO, |_, server| {
            server.protocols = rpcrdma_protocols::standard(&"cont".parse().unwrap());
            server.credits = 64;
        });
        config.pool = Pool::new(64 * MIB).charged_to(&account);
        config.longest_uncounted = longest_uncounted;
        let mut server = Endpoint::new(config);
        server.establish(None);
        let mut of_reply = Charge::new(Some(account.clone()));
        let mut this = Self {
            server,
            of_calls: 0,
            of_reply: Charge::default(),
            account,
        };
        this.base(1);
        assert_eq!(this.server.delivered.len(), 1);
        of_reply.add(this.account.room());
        this.of_reply = of_reply;
        this.of_calls = this.account.held();
        this
    }

    fn receive(&mut self, xid: u32, body: TwoBody, payload: &[u8]) {
        let header = TwoHeader {
            xid,
            credits: 64,
            body,
        };
        let message = [&header.encode()[..], payload].concat();
        self.server.receive(&message.into(), None).unwrap();
        self.server.run();
    }

    /// Receives a short call by RDMA_MSG.
    fn base(&mut self, xid: u32) {
        let body = TwoBody::Msg(Direction::Call, Chunks::default());
        self.receive(xid, body, &bytes(&message(xid, 4, &[])));
    }

    fn operation(&mut self, xid: u32, opttype: u32, info: Bytes, payload: &[u8]) {
        let direction = Direction::Call;
        let optional = Optional {
            direction,
            opttype,
            info,
        };
        self.receive(xid, TwoBody::Optional(optional), payload);
    }

    /// Receives the first of `count` transmissions of a call.
    fn request(&mut self, xid: u32, count: u32, payload: &[u8]) {
        let request = Request {
            count,
            payload: payload.len() as u32,
            ..Request::default()
        };
        self.operation(xid, XMTREQ, request.encode(), payload);
    }

    fn continuation(&mut self, xid: u32, number: u32, payload: &[u8]) {
        let next = Continuation {
            number,
            initial: XMTREQ,
            payload: payload.len() as u32,
        };
        self.operation(xid, XMTCONT, next.encode(), payload);
    }

    /// Receives the first three of four transmissions of a call, which hold a receive each.
    fn begin(&mut self, xid: u32) {
        self.request(xid, 4, &bytes(&message(xid, 500, &[])));
        for number in 1..3 {
            self.continuation(xid, number, &[0; 2000]);
        }
        assert_eq!(self.server.connection.unanswered_calls(), 1);
    }

    /// Receives a call in two transmissions with `each` bytes and a few more.
    fn in_two(&mut self, xid: u32, each: usize) {
        let call = bytes(&message(xid, each / 2, &[]));
        let (first, last) = call.split_at(each);
        self.request(xid, 2, first);
        self.continuation(xid, 1, last);
    }

    /// Returns what the calls of the test hold, which wait for memory.
    fn charged(&self) -> usize {
        assert_eq!(self.server.closed, None);
        assert!(self.server.connection.waits_for_memory());
        assert_eq!(self.server.delivered.len(), 1);
        self.account.held() - self.of_calls
    }
}

/// Regression test: a call that ended a group of transmissions (rtrext-00, section 4.2) was charged for these while it
/// waited for memory, although they were gone.
#[test]
fn calls_that_wait_are_not_charged_for_parts_that_they_displaced() {
    let (group, other) = (2, 3);
    for xid in [group, other] {
        let mut end = Continuing::new(None);
        end.begin(group);
        assert_eq!(end.account.held() - end.of_calls, 3 * RECEIVE);
        end.base(xid);
        assert_eq!(end.charged(), 0, "{xid}: RDMA2_MSG");
        let mut end = Continuing::new(None);
        end.begin(group);
        end.request(xid, 1, &bytes(&message(xid, 4, &[])));
        assert_eq!(end.charged(), 0, "{xid}: one transmission");
        let mut end = Continuing::new(None);
        end.begin(group);
        end.in_two(xid, 2000);
        assert_eq!(end.charged(), RECEIVE, "{xid}: two transmissions");
        let Continuing {
            server,
            account,
            of_reply,
            ..
        } = end;
        drop((server, of_reply));
        assert_eq!(account.held(), 0);
    }
}

/// Regression test: a short call was refused because calls before it had displaced so many parts.
#[test]
fn a_short_call_is_not_refused_for_parts_that_are_gone() {
    let mut end = Continuing::new(None);
    let most = end.account.largest() / RECEIVE;
    let (transmissions, calls) = (64, 20);
    assert!((transmissions as usize - 1) * calls as usize > most);
    for call in 0..calls {
        let group = 1000 + call;
        end.request(group, transmissions, &bytes(&message(group, 500, &[])));
        for number in 1..transmissions - 1 {
            end.continuation(group, number, &[0; 2000]);
        }
        end.base(2000 + call);
    }
    assert_eq!(end.charged(), 0);
    let unanswered = end.server.connection.unanswered_calls();
    assert_eq!(unanswered, 1 + calls as usize, "none is refused");
}

/// Regression test: the first transmission of a group was not charged to a call that waits if the driver counted the
/// group that it displaced.
#[test]
fn what_the_driver_counts_of_a_displaced_group_is_not_counted_for_the_next() {
    let (group, other) = (2, 3);
    for xid in [group, other] {
        let mut end = Continuing::new(Some(1024));
        end.request(group, 4, &bytes(&message(group, 500, &[])));
        end.in_two(xid, 400);
        assert_eq!(end.charged(), RECEIVE, "{xid}");
    }
}

/// Returns the header of a call with an item of so many bytes at this position, in a chunk.
fn with_chunk(position: usize, length: u32) -> WgBody {
    let segment = Segment {
        handle: 1,
        length,
        offset: 0,
    };
    let position = position as u32;
    inline_call(Chunks {
        reads: vec![ReadSegment { position, segment }],
        ..Default::default()
    })
}

/// A call in parts is charged while its chunks are fetched: its peer decides how long that takes.
#[test]
fn calls_in_parts_are_charged_while_their_chunks_are_fetched() {
    const CHUNK: u32 = 8192;
    let (mut client, account) = wg_client(None);
    let call = bytes(&message(1, 25_000, &[]));
    let last = send_begun(&mut client, 1, &call, 4000);
    let of_parts = account.held();
    assert_eq!(of_parts, call.len() / 4000 * RECEIVE);
    client.send(1, with_chunk(call.len(), CHUNK), last);
    assert_eq!(client.end.reads.len(), 1);
    let of_chunk = Pool::block_size(CHUNK as usize);
    assert_eq!(account.held(), of_parts + of_chunk);
    // Others hold the rest. A short call is executed all the same.
    let mut others = Charge::new(Some(account.common()));
    others.add(4 * MIB);
    client.send_rpc(inline_call(Default::default()), &message(2, 20, &[]));
    let (short, _) = client.end.delivered.pop_front().unwrap();
    client.end.reply(short, None);
    let read = client.end.reads.remove(0);
    client.end.read_done(read);
    client.end.run();
    let (id, arrived) = client.end.delivered.pop_front().unwrap();
    assert_eq!(arrived.items().len(), 1);
    assert_eq!(account.held(), of_chunk + PER_CALL);
    client.end.reply(id, None);
    drop(arrived);
    assert_eq!(account.held(), 0);
}

/// Calls whose chunks are being fetched hold, together, no more than one connection can ever have, like calls that wait
/// for memory.
#[test]
fn calls_whose_chunks_are_fetched_hold_no_more_than_one_connection_can_ever_have() {
    let (mut client, account) = wg_client(None);
    for xid in 1..=3 {
        let call = bytes(&message(xid, 250_000, &[]));
        let last = send_begun(&mut client, xid, &call, 4000);
        client.send(xid, with_chunk(call.len(), 4), last);
        assert_eq!(client.end.closed, None);
        let most = account.largest() + 3 * PER_CALL;
        assert!(account.held() <= most, "{} bytes held", account.held());
    }
    let sent = client.taken();
    let errors = sent.iter().filter_map(|body| match body {
        WgBody::Error(error) => Some(error),
        _ => None,
    });
    let errors: Vec<_> = errors.collect();
    assert!(matches!(errors[..], [ErrorBody::System]), "{errors:?}");
    drop(client);
    assert_eq!(account.held(), 0);
}

/// The parts have a limit of their own.
#[test]
fn parts_beyond_the_share_end_their_connection_whatever_its_calls_hold() {
    let (mut client, account, of_reply) = with_a_call_in_progress(None);
    let (of_calls, mut remaining) = (account.held(), 4 * MIB);
    let mut held = 0;
    while client.end.closed.is_none() {
        assert!(remaining > 4000, "nothing ends it");
        held = account.held() - of_calls;
        remaining -= 4000;
        client.send_middle(Direction::Call, 2, &[0; 4000], remaining);
    }
    let reason = client.end.closed.as_deref().unwrap();
    assert!(reason.contains("no memory"), "{reason}");
    assert!((MIB..2 * MIB).contains(&held), "{held} bytes of parts");
    drop((client, of_reply));
    assert_eq!(account.held(), 0);
}
