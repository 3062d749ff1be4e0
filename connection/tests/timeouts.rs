//! Tests of time-outs, and of a client's decision when its first message in version 2 is not
//! answered.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test may panic")]

mod support;

use std::time::Duration;

use bytes::Bytes;
use rdma::Time;
use rpcrdma_chunks::Fixed;
use rpcrdma_connection::{Action, Connection, Event, Options};
use rpcrdma_negotiation::{
    Choice, Evidence, Shown, Version, VersionAction, VersionDecision, VersionReason, Versions,
};
use rpcrdma_v1::{Body, ErrorBody, Header, PrivateData};
use rpcrdma_v2::Answer;
use support::{
    Endpoint, PATIENCE, Pair, Posted, Seen, bytes, client_with, configs_with, data, evidence,
    message, open, room, version_of,
};

/// A moment after the start of the clock.
const START: Time = Time::from_nanos(7_000_000_000);

/// Returns a client that has asked its server for version 2 at [`START`], with two calls that wait.
fn asking(versions: Choice) -> Endpoint {
    let mut client = Endpoint::new(support::client(
        versions,
        Options::client(rpcrdma_protocols::base()),
    ));
    client.call(message(1, 5, &[]), &room(5, &[]));
    client.now = START;
    client.establish(None);
    client.call(message(2, 6, &[]), &room(6, &[]));
    client.run();
    assert_eq!(client.sent.len(), 1, "only the first message is sent");
    let first = &client.sent[0].0;
    let asked = match versions {
        Choice::Auto => Version::TWO_WG,
        Choice::Only(version) => version,
    };
    assert_eq!(version_of(first), asked);
    assert_eq!(client.connection.unfinished_calls(), 2);
    assert!(client.decisions.is_empty());
    client
}

fn decision(action: VersionAction, reason: VersionReason) -> VersionDecision {
    VersionDecision { action, reason }
}

/// Returns the decision of a client that may speak both versions, over a new connection to a server
/// that did not answer the earlier one (`evidence`).
fn over_a_new_connection(evidence: Evidence) -> VersionDecision {
    let action = VersionAction::Reconnect(Version::ONE);
    decision(action, VersionReason::ShownNow(evidence))
}

/// Moves the calls of `first` to a new connection with `evidence`, and checks that they are made
/// there in version 1 and in the same order.
fn calls_go_on(first: Endpoint, evidence: Evidence) {
    let calls = first.connection.into_pending_calls();
    assert_eq!((calls.len(), calls.is_empty()), (2, false));
    let config = client_with(
        Choice::Auto,
        Some(evidence),
        Options::client(rpcrdma_protocols::base()),
    );
    let (_, server) = configs_with(Version::ONE, |_, _| {});
    let mut pair = Pair::echoing((config, server));
    let remembered = decision(
        VersionAction::Use(Version::ONE),
        VersionReason::Remembered(evidence),
    );
    assert_eq!(pair.client.decisions, [remembered]);
    pair.client.connection.resume(calls);
    pair.settle();
    let ended = pair.client.finished.iter();
    let ended: Vec<_> = ended.map(|(_, end)| open(end.as_ref().unwrap())).collect();
    assert_eq!(ended, [(1, 5, vec![]), (2, 6, vec![])]);
}

#[test]
fn wg_s4_3_2_silence_means_version_1_on_a_new_connection() {
    let mut client = asking(Choice::Auto);
    let end = START + PATIENCE;
    assert_eq!(client.connection.poll_timeout(), Some(end));
    for early in [START, START + (PATIENCE - Duration::from_nanos(1))] {
        client.connection.handle_timeout(early);
        client.run();
        assert!(client.decisions.is_empty(), "{early:?}");
        assert_eq!(client.connection.poll_timeout(), Some(end));
    }
    client.connection.handle_timeout(end);
    client.run();
    let expected = over_a_new_connection(evidence(Shown::NoAnswer));
    assert_eq!(client.decisions, [expected]);
    assert_eq!(client.connection.decision(), Some(expected));
    assert_eq!(client.connection.poll_timeout(), None);
    client.connection.handle_timeout(end + PATIENCE);
    client.run();
    assert_eq!(client.decisions.len(), 1, "once");
    assert!(client.finished.is_empty() && client.sent.len() == 1);
    calls_go_on(client, evidence(Shown::NoAnswer));
}

#[test]
fn a_connection_that_is_lost_while_a_client_asks_is_made_again_in_version_1() {
    let mut client = asking(Choice::Auto);
    client.handle(Event::Closed);
    client.run();
    assert_eq!(
        client.decisions,
        [over_a_new_connection(evidence(Shown::Dropped))]
    );
    // A call that is made before there is a new connection goes with the others, or is cancelled.
    client.call(message(3, 0, &[]), &room(0, &[]));
    client.connection.cancel(3);
    calls_go_on(client, evidence(Shown::Dropped));
}

#[test]
fn a_client_that_wants_version_2_only_gives_up_and_keeps_its_calls() {
    let mut client = asking(Choice::Only(Version::TWO));
    client.connection.handle_timeout(START + PATIENCE);
    client.run();
    let reason = VersionReason::OtherOnly(Evidence {
        asked: Version::TWO,
        ..evidence(Shown::NoAnswer)
    });
    assert_eq!(client.decisions, [decision(VersionAction::GiveUp, reason)]);
    assert_eq!(client.connection.unfinished_calls(), 2);
    assert_eq!(client.connection.into_pending_calls().len(), 2);
}

/// Returns an ERR_VERS message of version 1 with the server's lowest and highest version.
fn refusal(xid: u32, low: u32, high: u32) -> Bytes {
    let body = Body::Error(ErrorBody::Version { low, high });
    let credits = 1;
    Header { xid, credits, body }.encode()
}

#[test]
fn a_server_that_refuses_version_2_gets_the_calls_in_version_1() {
    let mut client = asking(Choice::Auto);
    let xid = Fixed::peek(&client.sent[0].0).unwrap().xid;
    // An error for another message decides nothing.
    client.receive(&refusal(xid + 1, 1, 1), None).unwrap();
    client.run();
    assert!(client.decisions.is_empty());
    let counters = client.connection.requester_counters().unwrap();
    assert_eq!(counters.discarded, 1);
    client.receive(&refusal(xid, 1, 1), None).unwrap();
    client.run();
    let expected = decision(
        VersionAction::Use(Version::ONE),
        VersionReason::ShownNow(evidence(Shown::Refused)),
    );
    assert_eq!(client.decisions, [expected]);
    assert_eq!(client.connection.poll_timeout(), None);
    let counters = client.connection.requester_counters().unwrap();
    assert_eq!(counters.discarded, 1, "counts go on");
    let calls: Vec<Seen> = client.sent[1..]
        .iter()
        .map(|(bytes, _)| Seen::new(bytes).unwrap())
        .collect();
    assert_eq!(calls.len(), 1, "one credit until a reply says more");
    assert_eq!((calls[0].version, calls[0].xid), (1, 1));
    assert_eq!(client.connection.unfinished_calls(), 2);
}

/// A server of version 1 alone may answer with the version of the message that it refuses, and with
/// a credit of version 1 (drafts/errata-07.md, 16).
#[test]
fn wg_s4_3_2_the_credit_of_a_refused_version_is_ignored() {
    for version in [1, 2] {
        let mut client = asking(Choice::Auto);
        let answer = Answer {
            xid: Fixed::peek(&client.sent[0].0).unwrap().xid,
            version,
            error: rpcrdma_v2::ErrorBody::Version { low: 1, high: 1 },
        };
        client.receive(&answer.encode(77), None).unwrap();
        client.run();
        assert_eq!(client.sent.len(), 2, "one call until a reply says more");
    }
}

#[test]
fn wg_s4_3_2_a_refused_call_is_sent_in_the_version_chosen() {
    let versions = Versions::only(Version::ONE);
    let mut server = Endpoint::new(support::server(
        versions,
        Options::server(rpcrdma_protocols::base()),
    ));
    server.establish(None);
    let mut pair = Pair {
        client: asking(Choice::Auto),
        server,
        answer: Some(Box::new(support::echo)),
        answer_back: None,
    };
    pair.settle();
    let ended = pair.client.finished.iter();
    let ended: Vec<_> = ended.map(|(_, end)| open(end.as_ref().unwrap())).collect();
    assert_eq!(ended, [(1, 5, vec![]), (2, 6, vec![])]);
    let calls = pair.client.sent[1..].iter();
    assert!(
        calls
            .clone()
            .all(|(sent, _)| Seen::new(sent).unwrap().version == 1)
    );
    assert_eq!(calls.len(), 2);
}

#[test]
fn a_server_that_speaks_neither_version_ends_the_matter() {
    let mut client = asking(Choice::Auto);
    let xid = Fixed::peek(&client.sent[0].0).unwrap().xid;
    client.receive(&refusal(xid, 3, 4), None).unwrap();
    client.run();
    let reason = VersionReason::NoneInCommon {
        asked: 2,
        low: 3,
        high: 4,
    };
    assert_eq!(client.decisions, [decision(VersionAction::GiveUp, reason)]);
    assert_eq!(client.sent.len(), 1);
    assert_eq!(client.connection.into_pending_calls().len(), 2);
}

#[test]
fn an_answer_in_version_2_ends_the_wait() {
    let mut client = asking(Choice::Only(Version::TWO));
    let xid = Seen::new(&client.sent[0].0).unwrap().xid;
    // The server has no characteristics, which it says in version 2.
    let answer = Answer {
        xid,
        version: 2,
        error: rpcrdma_v2::ErrorBody::InvalidOption,
    };
    client.receive(&answer.encode(1), None).unwrap();
    client.run();
    let expected = decision(VersionAction::Use(Version::TWO), VersionReason::Answered);
    assert_eq!(client.decisions, [expected]);
    assert_eq!(client.connection.poll_timeout(), None);
    assert_eq!(client.sent.len(), 2);
    assert_eq!(Seen::new(&client.sent[1].0).unwrap().version, 2);
}

/// A client chose version 1 because its server did not answer in version 2. The server then reports
/// that it speaks version 2 and not 1.
#[test]
fn a_client_that_misjudged_its_server_has_the_connection_made_again() {
    for (evidence, low, high, misjudged) in [
        (evidence(Shown::NoAnswer), 2, 2, true),
        (evidence(Shown::Dropped), 2, 3, true),
        // The server speaks version 1 as well, or not version 2.
        (evidence(Shown::Dropped), 1, 2, false),
        (evidence(Shown::Dropped), 3, 3, false),
        // The server itself said that it does not speak version 2.
        (evidence(Shown::Refused), 2, 2, false),
        (evidence(Shown::Answered), 2, 2, false),
    ] {
        let config = client_with(
            Choice::Auto,
            Some(evidence),
            Options::client(rpcrdma_protocols::base()),
        );
        let mut client = Endpoint::new(config);
        client.establish(Some(PrivateData::new(4096, 4096, true)));
        client.call(message(1, 0, &[]), &room(0, &[]));
        client.run();
        client.receive(&refusal(1, low, high), None).unwrap();
        client.run();
        assert_eq!(client.misjudged, misjudged, "{evidence:?} {low} {high}");
        // The call is to be made again, so that it has not ended.
        assert_eq!(client.finished.is_empty(), misjudged);
        assert_eq!(client.connection.unfinished_calls(), 0);
    }
}

/// Returns both ends of a connection on which the first message of a continued call has arrived at
/// the server at [`START`].
fn half_a_call(timeout: Duration) -> Pair {
    let mut pair = Pair::new(configs_with(Version::TWO, |client, server| {
        for options in [client, &mut *server] {
            options.protocols = rpcrdma_protocols::standard(&"cont".parse().unwrap());
        }
        server.group_timeout = timeout;
    }));
    // Credits for more than one message come with a reply.
    pair.answer_with(support::echo);
    pair.call(message(1, 0, &[]), &room(0, &[])).unwrap();
    pair.answer = None;
    pair.client.call(message(2, 4000, &[]), &room(0, &[]));
    pair.client.run();
    assert!(pair.client.posted.len() > 2, "{:?}", pair.client.posted);
    assert_eq!(pair.server.connection.poll_timeout(), None);
    pair.server.now = START;
    let first = pair.client.posted.pop_front();
    arrives(&mut pair, first);
    pair
}

fn arrives(pair: &mut Pair, posted: Option<Posted>) {
    let Some(Posted::Send(bytes, None)) = posted else {
        panic!("not a Send");
    };
    pair.server.receive(&bytes, None).unwrap();
    pair.server.run();
}

#[test]
fn a_message_that_stays_incomplete_closes_the_connection_after_its_time_and_not_before() {
    let timeout = Duration::from_secs(9);
    let mut pair = half_a_call(timeout);
    let end = START + timeout;
    assert_eq!(pair.server.connection.poll_timeout(), Some(end));
    // Further parts do not give the message more time.
    pair.server.now = START + Duration::from_secs(5);
    let second = pair.client.posted.pop_front();
    arrives(&mut pair, second);
    assert_eq!(pair.server.connection.poll_timeout(), Some(end));
    let just_before = START + (timeout - Duration::from_nanos(1));
    pair.server.connection.handle_timeout(just_before);
    pair.server.run();
    assert_eq!(pair.server.closed, None);
    pair.server.connection.handle_timeout(end);
    pair.server.run();
    let reason = pair.server.closed.as_deref().unwrap();
    assert!(reason.contains("not finished within 9s"), "{reason}");
    assert_eq!(pair.server.connection.poll_timeout(), None);
    assert!(pair.server.delivered.is_empty());
}

#[test]
fn a_message_that_is_complete_has_no_time_out() {
    let mut pair = half_a_call(Duration::from_secs(9));
    pair.settle();
    assert_eq!(pair.server.delivered.len(), 1);
    assert_eq!(pair.server.connection.poll_timeout(), None);
    let late = START + Duration::from_secs(100);
    pair.server.connection.handle_timeout(late);
    pair.server.run();
    assert_eq!(pair.server.closed, None);
    // The next one has its own time.
    let (id, _) = pair.server.delivered.pop_front().unwrap();
    pair.server.reply(id, None);
    pair.client.call(message(3, 4000, &[]), &room(0, &[]));
    pair.client.run();
    pair.server.now = late;
    let first = pair.client.posted.pop_front();
    arrives(&mut pair, first);
    let end = late + Duration::from_secs(9);
    assert_eq!(pair.server.connection.poll_timeout(), Some(end));
}

#[test]
fn calls_made_before_the_connection_is_there_wait_for_it_in_order() {
    let (client, server) = configs_with(Version::ONE, |_, _| {});
    let mut first = Connection::new(client.clone());
    for xid in 1..=3 {
        first
            .call(xid, message(xid, 0, &[]), &room(0, &[]))
            .unwrap();
    }
    first.cancel(2);
    assert_eq!(first.unfinished_calls(), 2);
    // The connection is never established. Another one gets its calls, after its own.
    let mut second = Endpoint::new(client);
    second.call(message(9, 0, &[]), &room(0, &[]));
    second.connection.resume(first.into_pending_calls());
    let peer = server.options.private_data();
    second.establish(peer);
    assert_eq!(second.connection.unfinished_calls(), 3);
    for xid in [9, 1, 3] {
        let seen = Seen::new(&second.sent.last().unwrap().0).unwrap();
        assert_eq!(seen.xid, xid);
        let header = Header {
            xid,
            credits: 1,
            body: Body::Msg(rpcrdma_v1::Chunks::default()),
        };
        let reply = support::reply(xid, 0, &[]);
        let message = [&header.encode()[..], &bytes(&reply)].concat().into();
        second.receive(&message, None).unwrap();
        second.run();
    }
    assert_eq!(second.finished.len(), 3);
}

#[test]
fn receives_that_cannot_be_posted_close_the_connection() {
    let (client, _) = configs_with(Version::ONE, |_, _| {});
    let mut connection = Connection::new(client);
    let Some(Action::PostReceives { id, count }) = connection.poll_action(usize::MAX) else {
        panic!("receives come first");
    };
    assert!(count > 128);
    let posted = false;
    connection.handle(Time::ZERO, Event::ReceivesPosted { id, posted });
    let action = connection.poll_action(usize::MAX);
    assert!(matches!(action, Some(Action::Close { .. })), "{action:?}");
}

#[test]
fn the_first_message_settles_the_version_of_a_server() {
    let config = support::server(
        Versions::only(Version::TWO),
        Options::server(rpcrdma_protocols::base()),
    );
    let mut server = Endpoint::new(config);
    server.establish(None);
    let header = Header {
        xid: 5,
        credits: 1,
        body: Body::Msg(rpcrdma_v1::Chunks::default()),
    };
    let call = [&header.encode()[..], &bytes(&message(5, 0, &[]))].concat();
    server.receive(&call.into(), None).unwrap();
    server.receive(&data(1, 27), None).unwrap();
    server.run();
    let (answer, _) = Header::decode(&server.sent[0].0).unwrap();
    let refused = ErrorBody::Version { low: 2, high: 2 };
    assert_eq!((answer.xid, answer.body), (5, Body::Error(refused)));
    let counters = server.connection.responder_counters().unwrap();
    assert_eq!((counters.errors_sent, counters.discarded), (1, 1));
    assert!(server.decisions.is_empty() && server.delivered.is_empty());
    // The client asks again in version 2, which is spoken from then on.
    let (client, _) = configs_with(Version::TWO, |_, _| {});
    let mut client = Endpoint::new(client);
    client.establish(None);
    let (first, _) = client.sent[0].clone();
    server.receive(&first, None).unwrap();
    server.run();
    let expected = decision(VersionAction::Use(Version::TWO), VersionReason::ClientBegan);
    assert_eq!(server.decisions, [expected]);
    let counters = server.connection.responder_counters().unwrap();
    assert_eq!((counters.errors_sent, counters.discarded), (1, 1));
}

/// A client that changes the version later gets a version error that names the version of the
/// connection only, and the connection goes on (version-two-01, section 5.2).
#[test]
fn rfc8167_s5_1_the_version_stays_what_it_is() {
    for (version, others) in [(Version::TWO, [1, 3]), (Version::ONE, [2, 3])] {
        let (client, _) = configs_with(version, |_, _| {});
        let server = support::server(
            Versions::default(),
            Options::server(rpcrdma_protocols::base()),
        );
        let mut pair = Pair::echoing((client, server));
        pair.call(message(1, 0, &[]), &room(0, &[])).unwrap();
        let decisions = pair.server.decisions.clone();
        assert_eq!(decisions.len(), 1);
        for number in others {
            let words = [9, number, 32, 0, 0, 0, 0, 0];
            let call: Bytes = words.into_iter().flat_map(u32::to_be_bytes).collect();
            let sent = pair.server.sent.len();
            pair.server.receive(&call, None).unwrap();
            pair.server.run();
            assert_eq!(pair.server.sent.len(), sent + 1);
            let (answer, _) = &pair.server.sent[sent];
            let word = |at: usize| u32::from_be_bytes(answer[at..at + 4].try_into().unwrap());
            assert_eq!([word(0), word(4), word(12)], [9, number, 4]);
            let only = version.number();
            assert_eq!([word(16), word(20), word(24)], [1, only, only]);
            pair.server.posted.clear();
        }
        // A message that is too short is discarded.
        let sent = pair.server.sent.len();
        pair.server.receive(&data(1, 12), None).unwrap();
        pair.server.run();
        assert_eq!(pair.server.sent.len(), sent);
        // Neither end is lost to it, and a client's loss does not change what was decided.
        pair.call(message(2, 0, &[]), &room(0, &[])).unwrap();
        for end in [&mut pair.client, &mut pair.server] {
            end.handle(Event::Closed);
            end.run();
            assert_eq!(end.decisions.len(), 1);
            assert_eq!(end.connection.decision(), Some(end.decisions[0]));
            assert_eq!(end.decisions[0].action, VersionAction::Use(version));
        }
        assert_eq!(pair.server.decisions, decisions);
    }
}
