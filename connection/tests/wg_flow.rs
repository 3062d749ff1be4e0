//! Flow control in version 2 of the working group (version-two-07, section 4.2.1): every Send
//! counts, in both directions.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test may panic")]

mod support;

use std::net::Ipv4Addr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use onc_rpc::Message;
use rdma::Clock;
use rdma::trace::{self, End, Record, Sink, Trace, Track, Wait};
use rpcrdma_connection::{CallbackOptions, Options, REPOST_LATER, ReplyRoom};
use rpcrdma_negotiation::{Version, Versions};
use rpcrdma_v2_wg::header_type::GRANT;
use rpcrdma_v2_wg::{Body, Chunks, Direction, ErrorBody, Header, Prefix, Properties};
use support::{
    Endpoint, Pair, Sent, WgPeer, bytes, configs_with, encoded, inline_call, message, open, reply,
    room, server,
};

/// Returns a connection whose ends have these credits and transfer everything by Sends.
fn by_sends(client: u32, server: u32) -> Pair {
    Pair::echoing(configs_with(Version::TWO_WG, |ours, theirs| {
        (ours.credits, theirs.credits) = (client, server);
        ours.costs.registration = Duration::from_secs(1);
    }))
}

/// Returns a connection with these credits in both directions, over which a call has been made. Both
/// ends transfer everything by Sends.
fn called(client: u32, server: u32, callbacks: u32) -> Pair {
    let callbacks = CallbackOptions {
        credits: callbacks,
        chunks: false,
    };
    let mut pair = Pair::echoing(configs_with(Version::TWO_WG, |ours, theirs| {
        (ours.credits, theirs.credits) = (client, server);
        (ours.callbacks, theirs.callbacks) = (callbacks, callbacks);
        ours.costs.registration = Duration::from_secs(1);
        theirs.costs.registration = Duration::from_secs(1);
    }));
    call(&mut pair, 1, 1);
    pair
}

/// Makes a call with so many words, which is answered with so many.
fn call(pair: &mut Pair, words: usize, answer: usize) {
    pair.answer_with(move |call| Some(reply(open(call).0, answer, &[])));
    let xid = 1000 + pair.client.sent.len() as u32;
    let result = pair.call(message(xid, words, &[]), &ReplyRoom::default());
    assert_eq!(open(&result.unwrap()).1, answer);
}

fn prefixes(end: &Endpoint) -> impl Iterator<Item = Prefix> {
    end.sent.iter().map(|(sent, _)| Prefix::peek(sent).unwrap())
}

/// Returns how many grants both ends have sent.
fn grants(pair: &Pair) -> usize {
    let all = prefixes(&pair.client).chain(prefixes(&pair.server));
    all.filter(|prefix| prefix.header_type == GRANT).count()
}

fn is_grant(body: &Body) -> bool {
    matches!(body, Body::Grant)
}

/// Returns a server with three credits whose client grants none, after the exchange of properties.
fn server_without_credits() -> WgPeer {
    let mut peer = WgPeer::listening(|server| server.credits = 3);
    peer.advertised = 0;
    peer.exchanged(&Properties::default())
}

/// Makes a call of the peer without chunks.
fn send_call(peer: &mut WgPeer, xid: u32) {
    peer.send_rpc(inline_call(Chunks::default()), &message(xid, 1, &[]));
}

/// With the sum of the sent count, the side that sends more would be told too little, and the other
/// too much.
#[test]
fn wg_s4_2_1_uneven_traffic_neither_stalls_nor_overruns() {
    for (words, answer) in [(5000, 1), (1, 5000)] {
        let mut pair = by_sends(7, 8);
        for _ in 0..20 {
            call(&mut pair, words, answer);
        }
        let sent = (pair.client.sent.len(), pair.server.sent.len());
        assert!(sent.0.abs_diff(sent.1) > 50, "{sent:?} is even traffic");
        assert_eq!((&pair.client.closed, &pair.server.closed), (&None, &None));
    }
}

#[test]
fn wg_s4_2_1_a_grant_counts_as_a_message() {
    // Grants that are sent: one reply passes the limit of four, after the properties and two grants.
    let mut peer = WgPeer::listening(|server| server.credits = 4);
    peer.advertised = 4;
    peer = peer.exchanged(&Properties::default());
    peer.advertised = 0;
    let parts = bytes(&message(7, 16, &[]));
    for (at, part) in parts[..16].chunks(4).enumerate() {
        let left = parts.len() - 4 * (at + 1);
        peer.send_middle(Direction::Call, 7, part, left);
    }
    peer.send(7, inline_call(Chunks::default()), &parts[16..]);
    let grants = peer.taken();
    assert!(grants.iter().all(is_grant));
    assert_eq!(grants.len(), 2, "each after two messages");
    peer.reply(Some(reply(7, 1, &[])));
    send_call(&mut peer, 8);
    peer.reply(Some(reply(8, 1, &[])));
    let replies = peer.taken();
    let replies: Vec<_> = replies.iter().filter(|body| !is_grant(body)).collect();
    assert_eq!(
        replies.len(),
        1,
        "properties, two grants and a reply are four"
    );
    // Grants that are received: those of the peer count in the next credit field.
    let mut peer = WgPeer::client(|client| client.credits = 8);
    peer.send(0, Body::Grant, &[]);
    peer.send(0, Body::Grant, &[]);
    peer.end.call(message(1, 1, &[]), &room(1, &[]));
    let sent = peer.take();
    assert_eq!(sent[0].header.credit, 3 + 8);
}

/// Both ends have used up their credits. A call counts until its reply has left, so the server has
/// nothing to grant. The client's grant, for which the server keeps a receive, lets the reply pass,
/// and the reply grants one more call.
#[test]
fn wg_s4_2_1_1_both_ends_at_zero_go_on() {
    let mut peer = server_without_credits();
    for xid in 1..=3 {
        send_call(&mut peer, xid);
    }
    assert_eq!(peer.end.delivered.len(), 3);
    assert_eq!(peer.flow.may_send(), 0);
    assert!(peer.taken().is_empty(), "it has no credit and grants none");
    peer.reply(Some(reply(1, 1, &[])));
    assert_eq!(peer.taken(), [], "the reply waits, and its call counts");
    peer.advertised = 10;
    peer.send(0, Body::Grant, &[]);
    let sent = peer.taken();
    assert!(matches!(sent[..], [Body::Reply { .. }]), "{sent:?}");
    assert_eq!(peer.flow.may_send(), 1);
    // And the other way round: the server's second reply tells the client more.
    peer.reply(Some(reply(2, 1, &[])));
    let sent = peer.taken();
    assert!(matches!(sent[..], [Body::Reply { .. }]), "{sent:?}");
    assert_eq!(peer.flow.may_send(), 2);
}

#[test]
fn wg_s4_2_1_1_a_grant_is_never_useless() {
    // While nothing can be taken, nothing is granted.
    let mut peer = server_without_credits();
    for xid in 1..=3 {
        send_call(&mut peer, xid);
        assert_eq!(peer.taken(), []);
    }
    // In any traffic, each grant is ahead of all values before it.
    for credits in 1..12 {
        let mut pair = by_sends(credits, 13 - credits);
        for (words, answer) in [(9000, 1), (1, 9000), (2500, 2500), (1, 1)] {
            call(&mut pair, words, answer);
        }
        let mut grants = 0;
        for end in [&pair.client, &pair.server] {
            let mut told = 0;
            for prefix in prefixes(end) {
                if prefix.header_type == GRANT {
                    assert!(prefix.credit > told, "{credits}: {prefix:?} after {told}");
                    grants += 1;
                }
                told = told.max(prefix.credit);
            }
        }
        assert!(grants > 0, "{credits}");
    }
}

/// A grant takes a credit itself, so with one or two credits a grant would be answered by another.
#[test]
fn wg_s4_2_1_1_idle_ends_send_no_grants() {
    for credits in 1..5 {
        let mut pair = by_sends(credits, credits);
        for words in [1, 3000, 1] {
            // `settle` fails if the ends do not come to rest.
            call(&mut pair, words, words);
        }
        // Calls and replies of one message say all that there is to say.
        let before = grants(&pair);
        for _ in 0..20 {
            call(&mut pair, 1, 1);
        }
        assert_eq!(grants(&pair), before, "{credits}");
    }
    // Grants alone are not answered before half of the credits are used.
    let mut peer = WgPeer::server(|server| server.credits = 1);
    peer.send(0, Body::Grant, &[]);
    assert_eq!(peer.taken(), [], "two of three credits are left");
}

/// A host that runs short of receives grants fewer credits. It does not revoke credits already granted, and it
/// grants the full number again later.
#[test]
fn wg_s4_2_1_credits_follow_the_receives_of_the_host() {
    let mut peer = WgPeer::listening(|server| server.credits = 16);
    peer.advertised = 16;
    peer = peer.exchanged(&Properties::default());
    let answered = |peer: &mut WgPeer, xid| {
        send_call(peer, xid);
        peer.reply(Some(reply(xid, 1, &[])));
        peer.taken();
        peer.flow.may_send()
    };
    assert_eq!(answered(&mut peer, 0), 16);
    peer.end.connection.limit_grant(1);
    let left: Vec<u32> = (1..=20).map(|xid| answered(&mut peer, xid)).collect();
    let down = (3..16).rev();
    assert_eq!(left[..13], down.collect::<Vec<_>>());
    assert!(left[13..].iter().all(|left| *left == 3), "{left:?}");
    peer.end.connection.limit_grant(u32::MAX);
    assert_eq!(answered(&mut peer, 21), 16);
}

/// Sends a message of the peer, whatever its credits are.
fn send_anyway(peer: &mut WgPeer, xid: u32, credit: u32, body: Body) {
    let payload = match body {
        Body::Grant => Vec::new(),
        Body::Call { .. } => bytes(&message(xid, 1, &[])),
        _ => vec![0; 4],
    };
    peer.send_bytes(&encoded(&Header { xid, credit, body }, &payload));
}

/// A peer may keep to the letter of the draft: it posts while its sent count is not greater than
/// the limit, which is one message too many. A grant has a receive of its own.
#[test]
fn wg_s4_2_1_a_surplus_message_and_a_grant_are_taken_together() {
    for grant_first in [false, true] {
        let mut peer = server_without_credits();
        for xid in 1..=3 {
            send_call(&mut peer, xid);
        }
        assert_eq!(peer.flow.may_send(), 0);
        // No device gets to replace a receive between the two.
        let posted = peer.end.receives.len();
        assert!(posted >= peer.end.connection.expected_messages() as usize);
        let call = inline_call(Chunks::default());
        let both = match grant_first {
            false => [(4, call), (0, Body::Grant)],
            true => [(0, Body::Grant), (4, call)],
        };
        for ((xid, body), credit) in both.into_iter().zip([1, 20]) {
            assert!(peer.flow.record_told(credit));
            send_anyway(&mut peer, xid, credit, body);
        }
        assert_eq!(peer.end.closed, None);
        assert_eq!(peer.end.connection.expected_messages(), 0);
        assert_eq!(peer.end.delivered.len(), 4);
        assert_eq!(peer.taken(), [], "the server has nothing to tell");
        for xid in 1..=4 {
            peer.reply(Some(reply(xid, 1, &[])));
        }
        let sent = peer.take();
        let replies = sent.iter().filter(|sent| !is_grant(&sent.header.body));
        let xids: Vec<u32> = replies.map(|sent| sent.header.xid).collect();
        assert_eq!(xids, [1, 2, 3, 4]);
        // The properties, four calls and a grant, and three more.
        assert_eq!(sent.last().unwrap().header.credit, 6 + 3);
    }
}

/// While calls are in progress, a peer that sends one message beyond each limit has one call more
/// than there are credits, and no more.
#[test]
fn wg_s4_2_1_surplus_messages_do_not_add_up() {
    let mut peer = WgPeer::listening(|server| server.credits = 3).exchanged(&Properties::default());
    let (mut sent, mut most) = (1, Vec::new());
    assert!(peer.flow.record_told(100));
    for _ in 0..20 {
        // A grant may follow the last reply.
        let _ = peer.take();
        while sent <= prefixes(&peer.end).last().unwrap().credit {
            sent += 1;
            send_anyway(&mut peer, sent, 100, inline_call(Chunks::default()));
            let _ = peer.take();
        }
        assert_eq!(peer.end.closed, None);
        most.push(peer.end.delivered.len());
        let xid = open(&peer.end.delivered[0].1).0;
        peer.reply(Some(reply(xid, 1, &[])));
    }
    assert_eq!(most.iter().max(), Some(&4));
}

/// Whatever credits an end has, what is posted covers the messages that may arrive, though some
/// consumed receives may not be posted again yet.
#[test]
fn wg_s4_2_1_1_receives_cover_a_surplus_message_and_a_grant() {
    for credits in 1..10 {
        let server = WgPeer::listening(|server| server.credits = credits);
        let client = WgPeer::client(|client| client.credits = credits);
        for peer in [server.exchanged(&Properties::default()), client] {
            let posted = peer.end.receives.len() as u32;
            let expected = peer.end.connection.expected_messages();
            assert!(
                posted >= expected + REPOST_LATER,
                "{credits}: {posted} for {expected}"
            );
        }
    }
}

/// More receives are posted than credits are granted, so the device accepts the excess message and the
/// connection itself must notice it.
#[test]
fn wg_s4_2_1_a_peer_that_exceeds_its_limit_loses_the_connection() {
    // A call too many would end the connection for itself, a part of one does not.
    let part = || Body::Middle {
        direction: Direction::Call,
        remaining: 100,
    };
    // One grant and one other message are taken beyond the limit.
    let beyond = [
        (vec![part(), part()], 1),
        (vec![Body::Grant, Body::Grant], 1),
        (vec![part(), Body::Grant, part()], 2),
        (vec![part(), Body::Grant, Body::Grant], 2),
        (vec![Body::Grant, part(), part()], 2),
    ];
    for (messages, taken) in beyond {
        let mut peer = server_without_credits();
        for xid in 1..=3 {
            send_call(&mut peer, xid);
        }
        for (more, body) in messages.iter().enumerate() {
            assert_eq!(peer.end.closed, None, "{more} of {messages:?}");
            let xid = if is_grant(body) { 0 } else { 9 };
            send_anyway(&mut peer, xid, 1, body.clone());
            assert_eq!(peer.end.closed.is_some(), more == taken, "{messages:?}");
        }
        assert_eq!(peer.end.delivered.len(), 3);
    }
}

/// A peer that grants nothing and goes on sending bad messages does not fill the memory of this
/// end, and the errors arrive as soon as it grants something.
#[test]
fn wg_s7_errors_wait_for_credits_and_not_without_bound() {
    let bad = || inline_call(Chunks::default());
    let mut peer = server_without_credits();
    for xid in 1..=3 {
        peer.send(xid, bad(), &[0; 8]);
    }
    let sent = peer.taken();
    assert!(sent.iter().all(is_grant), "errors wait: {sent:?}");
    peer.advertised = 10;
    peer.send(0, Body::Grant, &[]);
    let errors: Vec<_> = (1..=3).map(|xid| (xid, ErrorBody::BadXdr)).collect();
    assert_eq!(peer.errors(), errors);

    // With one credit for each three bad messages, errors pile up.
    let mut peer = server_without_credits();
    let mut xid = 0;
    while peer.end.closed.is_none() {
        assert!(xid < 100, "there is no bound");
        xid += 1;
        peer.advertised = u32::from(xid % 3 == 0);
        peer.send(xid, bad(), &[0; 8]);
    }
    let reason = peer.end.closed.as_ref().unwrap();
    assert!(reason.starts_with("3 errors"), "{reason}");
    assert!((4..=8).contains(&xid), "closed after {xid} messages");
}

/// A peer that grants nothing and goes on calling does not fill the memory of this end with replies:
/// it may not send another call before a reply has left. The replies arrive as soon as it grants
/// something.
#[test]
fn wg_s4_2_1_1_replies_wait_for_credits_and_not_without_bound() {
    for (words, parts) in [(1, 1), (3000, 3)] {
        let mut peer = server_without_credits();
        let mut calls = 0;
        for _ in 0..50 {
            while peer.flow.may_send() > 0 {
                calls += 1;
                send_call(&mut peer, calls);
            }
            while let Some((_, call)) = peer.end.delivered.front() {
                let xid = open(call).0;
                peer.reply(Some(reply(xid, words, &[])));
            }
            assert_eq!(peer.taken(), [], "{words}");
        }
        assert_eq!(calls, 3, "{words}");
        assert!(peer.end.connection.replies_wait_for_credits());
        let released = peer.end.connection.released_by_credits();
        peer.advertised = 10;
        peer.send(0, Body::Grant, &[]);
        let sent = peer.take();
        let ends = sent.iter().filter_map(|sent| match sent.header.body {
            Body::Reply { .. } => Some(sent.header.xid),
            _ => None,
        });
        assert_eq!(ends.collect::<Vec<_>>(), [1, 2, 3], "{words}");
        assert_eq!(sent.len(), 3 * parts);
        assert!(!peer.end.connection.replies_wait_for_credits());
        let released = peer.end.connection.released_by_credits() - released;
        assert_eq!(released, sent.len() as u64);
        assert_eq!(peer.flow.may_send(), 3, "all three calls have ended");
        send_call(&mut peer, 4);
        assert_eq!(peer.end.delivered.len(), 1);
    }
}

/// The observed events of a responder, in order.
#[derive(Default)]
struct Events(Mutex<Vec<(u32, trace::Event)>>);

impl Sink for Events {
    fn open(&self, _: Track) -> u32 {
        0
    }

    fn close(&self, _: u32) {}

    fn record(&self, record: Record) {
        self.0.lock().unwrap().push((record.xid, record.event));
    }
}

/// A reply that waits for credits is not said to be sent before its last message is, whatever its length.
#[test]
fn a_trace_tells_that_a_reply_waits_for_credits_and_when_it_leaves() {
    for (words, parts) in [(1, 1), (3000, 3)] {
        let events = Arc::new(Events::default());
        let traced = Trace::new(Arc::clone(&events) as _, Clock::simulated());
        let mut options = Options::server(rpcrdma_protocols::base());
        options.credits = 3;
        let mut config = server(Versions::only(Version::TWO_WG), options);
        let address = (Ipv4Addr::LOCALHOST, 1).into();
        config.trace = Some(traced.open(End::Responder, address));
        let mut peer = WgPeer::new(config);
        peer.advertised = 0;
        let mut peer = peer.exchanged(&Properties::default());
        let last = |xid| {
            let events = events.0.lock().unwrap();
            let mut of_call = events.iter().rev().filter(|(of, _)| *of == xid);
            of_call.next().map(|(_, event)| *event)
        };
        for xid in [1, 2] {
            send_call(&mut peer, xid);
            peer.reply(Some(reply(xid, words, &[])));
            assert_eq!(last(xid), Some(trace::Event::Held(Wait::Credit)), "{words}");
        }
        for (advertised, left) in [(2 * parts - 1, true), (2 * parts, false)] {
            peer.advertised = advertised;
            peer.send(0, Body::Grant, &[]);
            let _ = peer.take();
            assert_eq!(last(1), Some(trace::Event::Replied), "{words}");
            let second = last(2) == Some(trace::Event::Held(Wait::Credit));
            assert_eq!(second, left, "{words}");
        }
    }
}

/// The first message of a reply already returns the credit of its call, also while the others must wait. So a
/// peer that grants one message at a time gets one call more, not one more for each reply.
#[test]
fn wg_s4_2_1_1_parts_of_replies_do_not_wait_without_bound() {
    let mut peer = server_without_credits();
    let mut calls = 0;
    for turn in 0..50 {
        peer.advertised = u32::from(turn == 0);
        while peer.flow.may_send() > 0 {
            calls += 1;
            send_call(&mut peer, calls);
        }
        while let Some((_, call)) = peer.end.delivered.front() {
            let xid = open(call).0;
            peer.reply(Some(reply(xid, 3000, &[])));
        }
        let _ = peer.take();
    }
    assert_eq!(calls, 4);
}

/// Ends whose calls in progress leave few credits tell each other so once.
#[test]
fn wg_s4_2_1_1_ends_with_calls_in_progress_send_no_grants_for_ever() {
    for credits in 3..8 {
        for held in 0..=2 * credits {
            let mut pair = called(credits, credits, credits);
            (pair.answer, pair.answer_back) = (None, None);
            for xid in 0..held {
                let (ours, theirs) = (message(10 + xid, 1, &[]), message(10 + xid, 1, &[]));
                pair.client.call(ours, &ReplyRoom::default());
                pair.server.call(theirs, &ReplyRoom::default());
                pair.settle();
            }
            let before = grants(&pair);
            // `settle` fails if the ends do not come to rest.
            while let Some((id, call)) = pair.client.delivered.pop_front() {
                pair.client.reply(id, support::echo(&call));
                pair.settle();
            }
            while let Some((id, call)) = pair.server.delivered.pop_front() {
                pair.server.reply(id, support::echo(&call));
                pair.settle();
            }
            let more = grants(&pair) - before;
            assert!(more <= 2 * held as usize, "{credits} {held}: {more} grants");
            assert_eq!(pair.client.closed, None);
            assert_eq!(pair.server.closed, None);
        }
    }
}

/// All credits of the client are taken by calls that the server does not answer before it has the
/// reply of the client. It tells the client of one more with its call, even if it grants fewer by then.
#[test]
fn a_client_can_reply_whatever_calls_of_its_own_are_in_progress() {
    const ALL: u32 = u32::MAX;
    for (client, server, callbacks) in [(128, 64, 1), (3, 3, 1), (1, 1, 1), (16, 4, 8)] {
        for (words, limit) in [(1, ALL), (5000, ALL), (1, 3), (5000, 3)] {
            let mut pair = called(client, server, callbacks);
            pair.answer = None;
            pair.answer_back = Some(Box::new(move |call| Some(reply(open(call).0, words, &[]))));
            for xid in 0..client {
                pair.client
                    .call(message(1000 + xid, 1, &[]), &ReplyRoom::default());
            }
            pair.settle();
            let taken = pair.server.delivered.len();
            assert!(taken as u32 >= server.min(client), "{taken} calls");
            pair.server.connection.limit_grant(limit);
            for xid in 0..callbacks {
                pair.server
                    .call(message(5000 + xid, 1, &[]), &ReplyRoom::default());
            }
            pair.settle();
            let replies = pair.server.finished.iter();
            let replies = replies.filter(|(_, result)| open(result.as_ref().unwrap()).1 == words);
            assert_eq!(replies.count() as u32, callbacks, "{client} {server}");
            // The calls were not lost.
            pair.answer = Some(Box::new(support::echo));
            pair.settle();
            assert_eq!(pair.client.finished.len() as u32, client);
        }
    }
}

/// Each end is in the middle of a message that is longer than the credits of the other.
#[test]
fn wg_two_continued_messages_without_credits_are_completed() {
    let mut pair = called(2, 3, 1);
    let long = |call: &Message| Some(reply(open(call).0, 20_000, &[]));
    pair.answer_with(long);
    pair.answer_back = Some(Box::new(long));
    for xid in 1..20 {
        pair.client
            .call(message(xid, 1, &[]), &ReplyRoom::default());
        pair.server
            .call(message(xid, 1, &[]), &ReplyRoom::default());
        pair.settle();
    }
    for end in [&pair.client, &pair.server] {
        assert_eq!(end.closed, None);
        for (_, result) in &end.finished {
            assert_eq!(open(result.as_ref().unwrap()).1, 20_000);
        }
        assert_eq!(end.finished.len(), 19);
    }
    // A grant between the parts of one message lets the other go on, at both ends.
    let mut peer = WgPeer::listening(|server| server.credits = 3);
    peer.advertised = 3;
    peer = peer.exchanged(&Properties::default());
    send_call(&mut peer, 1);
    peer.advertised = 0;
    let answer = reply(1, 5000, &[]);
    peer.reply(Some(answer.clone()));
    let parts = peer.take();
    let is_part = |sent: &Sent| matches!(sent.header.body, Body::Middle { .. });
    assert!(parts.len() < 4 && parts.iter().all(is_part));
    let call = bytes(&message(2, 20, &[]));
    peer.send_middle(Direction::Call, 2, &call[..8], call.len() - 8);
    peer.send_middle(Direction::Call, 2, &call[8..16], call.len() - 16);
    assert_eq!(
        peer.taken(),
        [Body::Grant],
        "between the parts of the reply"
    );
    peer.advertised = 10;
    peer.send(0, Body::Grant, &[]);
    let rest = peer.take();
    assert!(matches!(
        rest.last().unwrap().header.body,
        Body::Reply { .. }
    ));
    let whole: Vec<u8> = parts
        .iter()
        .chain(&rest)
        .flat_map(|sent| sent.payload.clone())
        .collect();
    assert_eq!(whole, bytes(&answer));
    peer.send(2, inline_call(Chunks::default()), &call[16..]);
    assert_eq!(open(&peer.end.delivered[0].1).1, 20);
}

/// The answer begins with the server's properties, which carry the credits for the next call.
#[test]
fn wg_s4_3_a_call_may_be_the_first_message() {
    let mut peer = WgPeer::listening(|server| server.credits = 3);
    send_call(&mut peer, 1);
    peer.reply(Some(reply(1, 1, &[])));
    let sent = peer.take();
    let [properties, answer] = &sent[..] else {
        panic!("{sent:?}");
    };
    assert!(matches!(
        properties.header.body,
        Body::Properties { last: true, .. }
    ));
    assert_eq!(answer.payload, bytes(&reply(1, 1, &[])));
    // The client's properties may follow, once.
    let properties = Properties::default().encode();
    peer.properties(properties.clone(), true);
    assert_eq!(peer.taken(), []);
    send_call(&mut peer, 2);
    peer.reply(Some(reply(2, 1, &[])));
    let sent = peer.taken();
    assert!(matches!(sent.last(), Some(Body::Reply { .. })), "{sent:?}");
    peer.properties(properties, true);
    let errors = peer.errors();
    assert!(matches!(errors[..], [(_, ErrorBody::InvalidContinuation)]));
}

/// The answer carries the credits with which the client goes on.
#[test]
fn wg_s4_3_a_middle_as_the_first_message_is_answered() {
    let mut peer = WgPeer::listening(|server| server.credits = 3);
    let mut properties = Properties::default().encode();
    let rest = properties.split_off(2);
    peer.properties(properties, false);
    let sent = peer.taken();
    assert!(matches!(sent[..], [Body::Properties { last: true, .. }]));
    assert!(peer.flow.may_send() > 0);
    peer.properties(rest, true);
    send_call(&mut peer, 1);
    assert_eq!(peer.end.delivered.len(), 1);
}
