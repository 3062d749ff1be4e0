//! Tests of the first messages of a connection, while its version is not known.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test may panic")]

mod support;

use bytes::Bytes;
use onc_rpc::Segments;
use rpcrdma_connection::{Event, Options, Side};
use rpcrdma_negotiation::{
    Choice, Evidence, Version, VersionAction, VersionDecision, VersionReason, Versions,
};
use rpcrdma_v2::extension::{Extension, Operation, Outbox, Refusal, Start};
use rpcrdma_v2::{Body, Header};
use support::{Endpoint, Pair, bytes, message, open, reply, room};

/// The operation of the extension [`Talker`]: from the range that nobody has assigned.
const TALK: u32 = 0x7fff_0002;

/// An extension whose client sends an operation as soon as the connection begins.
#[derive(Debug)]
struct Talker;

impl Extension for Talker {
    fn name(&self) -> &'static str {
        "talker"
    }

    fn opttypes(&self) -> &[u32] {
        &[TALK]
    }

    fn connected(&mut self, start: &Start<'_>, out: &mut Outbox<'_>) {
        if start.side == Side::Client {
            out.call(TALK, Bytes::new());
        }
    }

    fn received(&mut self, op: &Operation<'_>, out: &mut Outbox<'_>) -> Result<(), Refusal> {
        out.answered(op.xid);
        Ok(())
    }
}

/// Returns a client that may speak both versions and has asked its server for version 2, with the
/// given options.
fn asking(options: Options) -> Endpoint {
    let mut client = Endpoint::new(support::client(Choice::Auto, options));
    client.establish(None);
    client
}

fn talking() -> Options {
    Options {
        extensions: vec![|_: Side| Box::new(Talker)],
        ..Options::client()
    }
}

/// Joins a client that is asking with a server that accepts these versions.
fn join(client: Endpoint, versions: Versions) -> Pair {
    let mut server = Endpoint::new(support::server(versions, Options::server()));
    server.establish(None);
    Pair {
        client,
        server,
        answer: Some(Box::new(support::echo)),
        answer_back: None,
    }
}

/// Returns the version and `rdma_opttype` of each message of the client.
fn sent(client: &Endpoint) -> Vec<(u32, Option<u32>)> {
    let seen = client.sent.iter().map(|(message, _)| {
        let version = u32::from_be_bytes(message[4..8].try_into().unwrap());
        let operation = (version == 2).then(|| Header::decode(message).unwrap().0.body);
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
    const INIT: u32 = 1;
    let client = asking(talking());
    assert_eq!(sent(&client), [(2, Some(INIT))]);
    let mut pair = join(client, Versions::default());
    pair.settle();
    assert_eq!(sent(&pair.client), [(2, Some(INIT)), (2, Some(TALK))]);
    assert_eq!(
        open(&pair.call(message(1, 3, &[]), &room(3, &[])).unwrap()).1,
        3
    );
    // A server of version 1 gets the first operation, and calls.
    let mut pair = join(asking(talking()), Versions::only(Version::One));
    pair.settle();
    assert_eq!(
        open(&pair.call(message(1, 3, &[]), &room(3, &[])).unwrap()).1,
        3
    );
    assert_eq!(sent(&pair.client), [(2, Some(INIT)), (1, None)]);
}

/// A message of version 1 that decides the version is a message of the connection: it is counted.
#[test]
fn a_message_that_decides_version_1_is_handled_in_it() {
    let mut client = asking(Options::client());
    let header = rpcrdma_v1::Header {
        xid: 77,
        credits: 9,
        body: rpcrdma_v1::Body::Msg(rpcrdma_v1::Chunks::default()),
    };
    let answer = [&header.encode()[..], &bytes(&reply(77, 0, &[]))].concat();
    client.receive(&answer.into(), None).unwrap();
    client.run();
    let expected = VersionDecision {
        action: VersionAction::Use(Version::One),
        reason: VersionReason::ShownNow(Evidence::AnsweredVersion1),
    };
    assert_eq!(client.decisions, [expected]);
    let counters = client.connection.requester_counters().unwrap();
    assert_eq!(counters.unknown_xid, 1);
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
    for at in [0, 1, 4, 6, 11, 12, 27] {
        let mut client = asking(Options::client());
        let mut server = Endpoint::new(support::server(Versions::default(), Options::server()));
        server.establish(None);
        let (first, _) = client.sent[0].clone();
        server.handle(pieces(&first, at));
        server.run();
        assert_eq!(server.decisions.len(), 1, "server, {at}");
        let (answer, _) = server.sent[0].clone();
        client.handle(pieces(&answer, at));
        client.run();
        assert_eq!(client.decisions.len(), 1, "client, {at}");
        assert_eq!(client.decisions[0].action, VersionAction::Use(Version::Two));
    }
}
