//! Tests of the first messages of a connection, while its version is not known.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test may panic")]

mod support;

use bytes::Bytes;
use onc_rpc::Segments;
use rpcrdma_connection::flow::MessageCounts;
use rpcrdma_connection::{Event, Options, Side};
use rpcrdma_extension::{Extension, Outbox, ReceivedMessage, Refusal, Start, made_by};
use rpcrdma_negotiation::{
    Choice, Evidence, Shown, Version, VersionAction, VersionDecision, VersionReason, Versions,
};
use rpcrdma_v2::{Body, Header};
use rpcrdma_v2_wg::{Header as WgHeader, Prefix};
use support::{Endpoint, Pair, bytes, evidence, message, open, reply, room, version_of};

/// The operation of the extension [`Talker`]: from the range that nobody has assigned.
const TALK: u32 = 0x7fff_0002;

/// An extension whose client sends an operation as soon as the connection begins.
#[derive(Debug)]
struct Talker;

impl Extension for Talker {
    fn name(&self) -> &'static str {
        "talker"
    }

    fn numbers(&self) -> &[u32] {
        &[TALK]
    }

    fn connected(&mut self, start: &Start<'_>, out: &mut Outbox<'_>) {
        if start.side == Side::Client {
            out.call(TALK, Bytes::new());
        }
    }

    fn received(&mut self, op: &ReceivedMessage<'_>, out: &mut Outbox<'_>) -> Result<(), Refusal> {
        out.answered(op.xid);
        Ok(())
    }
}

/// Returns a client that may speak these versions and has asked its server for the highest, with
/// the given options.
fn asking(choice: Choice, options: Options) -> Endpoint {
    let mut client = Endpoint::new(support::client(choice, options));
    client.establish(None);
    client
}

fn talking() -> Options {
    let mut protocols = rpcrdma_protocols::base();
    for version in [Version::TWO, Version::TWO_WG] {
        protocols.add(version, made_by(|_| Box::new(Talker)));
    }
    Options::client(protocols)
}

/// Joins a client that is asking with a server that accepts these versions.
fn join(client: Endpoint, versions: Versions) -> Pair {
    let mut server = Endpoint::new(support::server(
        versions,
        Options::server(rpcrdma_protocols::base()),
    ));
    server.establish(None);
    Pair {
        client,
        server,
        answer: Some(Box::new(support::echo)),
        answer_back: None,
    }
}

/// Returns the version of each message of the client, and the `rdma_opttype` of version 2 of 2016.
fn sent(client: &Endpoint) -> Vec<(Version, Option<u32>)> {
    let seen = client.sent.iter().map(|(message, _)| {
        let version = version_of(message);
        let operation = (version == Version::TWO).then(|| Header::decode(message).unwrap().0.body);
        match operation {
            Some(Body::Optional(optional)) => (version, Some(optional.opttype)),
            _ => (version, None),
        }
    });
    seen.collect()
}

/// RFC 8166, section 3.3.3: until a server has granted more, it may have one receive.
#[test]
fn rfc8166_s3_3_3_one_operation_is_sent_before_the_version_is_known() {
    const PROPERTIES: (Version, Option<u32>) = (Version::TWO_WG, None);
    const INIT: (Version, Option<u32>) = (Version::TWO, Some(1));
    const TALKED: (Version, Option<u32>) = (Version::TWO, Some(TALK));
    const CALL: (Version, Option<u32>) = (Version::ONE, None);
    let ones = Versions::only(Version::ONE);
    let of_2016 = ones.clone().with(Version::TWO);
    for (choice, versions, expected) in [
        (
            Choice::Only(Version::TWO),
            Versions::default(),
            &[INIT, TALKED][..],
        ),
        // A server of 2016 is asked for its own version, again by one operation.
        (Choice::Auto, of_2016, &[PROPERTIES, INIT, TALKED]),
        // A server of version 1 gets the first operation, and calls.
        (Choice::Auto, ones, &[PROPERTIES, CALL]),
    ] {
        let client = asking(choice, talking());
        assert_eq!(sent(&client), expected[..1], "{choice}");
        let mut pair = join(client, versions.clone());
        pair.settle();
        let before = expected.len() - usize::from(expected.ends_with(&[CALL]));
        assert_eq!(
            sent(&pair.client),
            expected[..before],
            "{choice} {versions}"
        );
        let reply = pair.call(message(1, 3, &[]), &room(3, &[])).unwrap();
        assert_eq!(open(&reply).1, 3);
        assert_eq!(
            sent(&pair.client)[..expected.len()],
            *expected,
            "{choice} {versions}"
        );
    }
}

/// A server that has shown to speak version 2 of 2016 may be lost before it answers in it.
#[test]
fn a_client_that_asks_again_waits_no_longer_for_it() {
    let mut client = asking(Choice::Auto, Options::client(rpcrdma_protocols::base()));
    let deadline = client.connection.poll_timeout();
    let xid = u32::from_be_bytes(client.sent[0].0[..4].try_into().unwrap());
    let refused = rpcrdma_v2::Answer {
        xid,
        version: 2,
        error: rpcrdma_v2::ErrorBody::BadHeader,
    };
    client.receive(&refused.encode(1), None).unwrap();
    client.run();
    assert_eq!(client.sent.len(), 2);
    assert!(client.decisions.is_empty());
    assert_eq!(client.connection.poll_timeout(), deadline);
    client.handle(Event::Closed);
    client.run();
    let expected = VersionDecision {
        action: VersionAction::Reconnect(Version::ONE),
        reason: VersionReason::ShownNow(Evidence {
            asked: Version::TWO,
            ..evidence(Shown::Dropped)
        }),
    };
    assert_eq!(client.decisions, [expected]);
}

/// A message of version 1 that decides the version is a message of the connection: it is counted.
#[test]
fn a_message_that_decides_version_1_is_handled_in_it() {
    let mut client = asking(Choice::Auto, Options::client(rpcrdma_protocols::base()));
    let header = rpcrdma_v1::Header {
        xid: 77,
        credits: 9,
        body: rpcrdma_v1::Body::Msg(rpcrdma_v1::Chunks::default()),
    };
    let answer = [&header.encode()[..], &bytes(&reply(77, 0, &[]))].concat();
    client.receive(&answer.into(), None).unwrap();
    client.run();
    let expected = VersionDecision {
        action: VersionAction::Use(Version::ONE),
        reason: VersionReason::ShownNow(evidence(Shown::Answered)),
    };
    assert_eq!(client.decisions, [expected]);
    let counters = client.connection.requester_counters().unwrap();
    assert_eq!(counters.unknown_xid, 1);
}

/// Messages whose version is refused count like all others, so the error that refuses one allows
/// the client another (version-two-07, sections 4.2.1 and 4.3.2: "To continue operation, the client
/// selects a protocol version in that range for subsequent messages on this connection").
#[test]
fn wg_s4_3_2_a_client_whose_first_version_is_refused_can_continue() {
    for first in [0, u32::MAX, 2_u32.wrapping_neg()] {
        let mut options = Options::server(rpcrdma_protocols::base());
        options.initial_message_count = first;
        let mut server = Endpoint::new(support::server(Versions::default(), options));
        server.establish(None);
        let mut peer = MessageCounts::starting_at(first);
        let credit = |peer: &mut MessageCounts, server: &Endpoint| {
            let sent = &server.sent.last().unwrap().0;
            let prefix = Prefix::peek(sent).unwrap();
            peer.take_received(prefix.credit, false).unwrap();
            prefix
        };
        for version in [3, 9] {
            assert!(peer.take_send(), "version {version}");
            let words = [7, version, peer.credit(10), 7, 0, 0, 0].map(u32::to_be_bytes);
            server.receive(&words.concat().into(), None).unwrap();
            server.run();
            let answer = credit(&mut peer, &server);
            assert_eq!((answer.version, answer.header_type), (version, 4));
            assert_eq!(peer.may_send(), 1, "one message at a time (section 4.3)");
        }
        assert!(peer.take_send());
        let properties = WgHeader {
            xid: 8,
            credit: peer.credit(10),
            body: rpcrdma_v2_wg::Body::Properties {
                last: true,
                properties: Vec::new(),
            },
        };
        server.receive(&properties.encode(), None).unwrap();
        server.run();
        assert_eq!(server.sent.len(), 3);
        assert_eq!(credit(&mut peer, &server).header_type, 7);
        // The server has counted all three messages, so its whole credit limit is available now.
        assert_eq!(peer.may_send(), server.config.credits);
    }
}

/// Hosts may divide a message anywhere, also where negotiation looks.
#[test]
fn the_first_messages_may_be_divided_anywhere() {
    let pieces = |message: &Bytes, at: usize| -> Event {
        let pieces = [message.slice(..at), message.slice(at..)];
        Event::Received {
            message: pieces.into_iter().collect::<Segments>(),
            invalidated: None,
        }
    };
    let versions = [Version::TWO, Version::TWO_WG];
    let ats = [0, 1, 4, 6, 11, 12, 27];
    for (version, at) in versions
        .into_iter()
        .flat_map(|version| ats.map(|at| (version, at)))
    {
        let mut client = asking(
            Choice::Only(version),
            Options::client(rpcrdma_protocols::base()),
        );
        let mut server = Endpoint::new(support::server(
            Versions::default(),
            Options::server(rpcrdma_protocols::base()),
        ));
        server.establish(None);
        let (first, _) = client.sent[0].clone();
        server.handle(pieces(&first, at));
        server.run();
        assert_eq!(server.decisions.len(), 1, "server, {at}");
        let (answer, _) = server.sent[0].clone();
        client.handle(pieces(&answer, at));
        client.run();
        assert_eq!(client.decisions.len(), 1, "client, {at}");
        assert_eq!(client.decisions[0].action, VersionAction::Use(version));
    }
}
