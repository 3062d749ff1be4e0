//! Refused messages of an extension, defined outside the crate, in both versions 2: a call is answered
//! with an error, and a reply that cannot be used ends its call and is not answered.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test may panic")]

mod support;

use bytes::{Bytes, BytesMut};
use onc_rpc::put_words;
use rpcrdma_chunks::{Chunks, Direction, Malformed};
use rpcrdma_connection::{CallError, CallbackOptions, Options};
use rpcrdma_extension::{Extension, Outbox, PeerError, ReceivedMessage, Refusal, made_by};
use rpcrdma_negotiation::{Choice, Version, Versions};
use rpcrdma_v2::{Body, ErrorBody, Header, Optional};
use rpcrdma_v2_wg::{ErrorBody as WgError, Properties, ReverseSupport, VERSION};
use support::{Endpoint, WgPeer, bytes, inline_reply, message, open, reply, room};

/// Messages of the extension: those of calls, of replies, and of either. Their field is the number of a
/// refusal.
const CALL: u32 = 0xffff_ff94;
const REPLY: u32 = 0xffff_ff95;
const EITHER: u32 = 0xffff_ff96;

/// The refusals, by their numbers, and whether each ends the call that a reply belongs to.
const REFUSALS: [(Refusal, bool); 4] = [
    (Refusal::Answer(PeerError::System, "no such part"), true),
    (Refusal::Malformed(Malformed::Truncated), true),
    (Refusal::Unusable("it was refused"), true),
    (Refusal::Discard("nobody waits for it"), false),
];

/// Refuses all messages.
#[derive(Debug)]
struct Refusing;

impl Extension for Refusing {
    fn name(&self) -> &'static str {
        "refusing"
    }

    fn numbers(&self) -> &[u32] {
        &[CALL, REPLY, EITHER]
    }

    fn direction(&self, number: u32) -> Option<Direction> {
        match number {
            CALL => Some(Direction::Call),
            REPLY => Some(Direction::Reply),
            _ => None,
        }
    }

    fn received(
        &mut self,
        received: &ReceivedMessage<'_>,
        _: &mut Outbox<'_>,
    ) -> Result<(), Refusal> {
        let (number, _) = received.read(|fields| fields.u32())?;
        Err(REFUSALS[number as usize].0)
    }
}

fn refusing(version: Version) -> impl Fn(&mut Options) {
    move |options| {
        let refusing = made_by(|_| Box::new(Refusing));
        options.protocols.add(version, refusing);
    }
}

/// Returns a message of the extension in version 2 of 2016.
fn operation(direction: Direction, xid: u32, refusal: usize) -> Bytes {
    let opttype = match direction {
        Direction::Call => CALL,
        Direction::Reply => REPLY,
    };
    let info = Bytes::copy_from_slice(&(refusal as u32).to_be_bytes());
    let header = Header {
        xid,
        credits: 1,
        body: Body::Optional(Optional {
            direction,
            opttype,
            info,
        }),
    };
    header.encode()
}

/// Sends a message of the extension in version 2 of the working group.
fn send(peer: &mut WgPeer, number: u32, xid: u32, refusal: usize) {
    let mut out = BytesMut::new();
    let credit = peer.flow.credit(peer.advertised);
    put_words(&mut out, [xid, VERSION, credit, number, refusal as u32]);
    peer.send_bytes(&out.freeze());
}

fn end_of_2016(is_client: bool) -> Endpoint {
    let base = rpcrdma_protocols::base();
    let mut options = match is_client {
        true => Options::client(base),
        false => Options::server(base),
    };
    refusing(Version::TWO)(&mut options);
    let mut end = Endpoint::new(match is_client {
        true => support::client(Choice::Only(Version::TWO), options),
        false => support::server(Versions::only(Version::TWO), options),
    });
    end.establish(None);
    end.run();
    end
}

/// Makes a call of a client whose reply is still to come.
fn call(end: &mut Endpoint, xid: u32) {
    end.call(message(xid, 4, &[]), &room(4, &[]));
    end.run();
}

/// Takes the outcomes of calls. Each ended by an error in the protocol.
fn failed(end: &mut Endpoint) -> Vec<u32> {
    let ended = end.finished.drain(..);
    ended
        .map(|(xid, result)| {
            assert!(matches!(result, Err(CallError::Protocol(_))), "{result:?}");
            xid
        })
        .collect()
}

#[test]
fn a_refused_call_is_answered_and_an_unusable_reply_ends_its_call_in_version_2_of_2016() {
    let mut server = end_of_2016(false);
    // The first message is followed by the characteristics of the server.
    for (refusal, answered) in [(3, false), (0, true), (1, true), (2, false), (3, false)] {
        let before = server.sent.len();
        let message = operation(Direction::Call, 7, refusal);
        server.receive(&message, None).unwrap();
        server.run();
        let answers: Vec<_> = server.sent[before..]
            .iter()
            .map(|(sent, _)| Header::decode(sent).unwrap().0)
            .map(|header| (header.xid, header.body))
            .filter(|(_, body)| !matches!(body, Body::Optional(_)))
            .collect();
        let error = (7, Body::Error(ErrorBody::BadHeader));
        assert_eq!(
            answers,
            Vec::from_iter(answered.then_some(error)),
            "{refusal}"
        );
        assert_eq!(server.closed, None, "{refusal}");
    }

    // Only `Unusable` is about a reply in this version.
    let mut client = end_of_2016(true);
    // Calls wait for the first message of the server.
    let first = operation(Direction::Reply, 99, 3);
    client.receive(&first, None).unwrap();
    call(&mut client, 7);
    let sent = client.sent.len();
    let discarded = operation(Direction::Reply, 7, 3);
    client.receive(&discarded, None).unwrap();
    client.run();
    assert_eq!(failed(&mut client), []);
    let unusable = operation(Direction::Reply, 7, 2);
    client.receive(&unusable, None).unwrap();
    client.run();
    assert_eq!(failed(&mut client), [7]);
    assert_eq!(client.sent.len(), sent, "a reply is not answered");
    assert_eq!(client.closed, None);
    // Its credit is free.
    call(&mut client, 8);
    assert_eq!(client.sent.len(), sent + 1);
}

/// An error has no direction (drafts/errata-07.md, 54): one about a reply could end a call of the peer
/// with the same XID.
#[test]
fn a_refused_reply_ends_its_call_without_an_error_in_the_working_group_s_version() {
    for (number, (refusal, ends)) in REFUSALS.into_iter().enumerate() {
        let mut peer = WgPeer::client(refusing(Version::TWO_WG));
        call(&mut peer.end, 7);
        assert_eq!(peer.take().len(), 1);
        send(&mut peer, REPLY, 7, number);
        let expected = Vec::from_iter(ends.then_some(7));
        assert_eq!(failed(&mut peer.end), expected, "{refusal}");
        assert_eq!(peer.errors(), [], "{refusal}");
        // A reply to no call is not answered either.
        send(&mut peer, REPLY, 99, number);
        assert_eq!(peer.errors(), [], "{refusal}");
        assert_eq!(peer.end.closed, None, "{refusal}");
        call(&mut peer.end, 8);
        assert_eq!(peer.take().len(), 1);
        let answer = bytes(&reply(8, 4, &[]));
        peer.send(8, inline_reply(Chunks::default()), &answer);
        let (xid, result) = peer.end.finished.pop().unwrap();
        assert_eq!((xid, open(&result.unwrap()).0), (8, 8), "{refusal}");
    }
}

/// A client that gets a call with the XID of its own, which is an error of the extension, goes on waiting
/// for the reply.
#[test]
fn a_call_that_is_called_an_unusable_reply_ends_no_call() {
    let unusable = 2;
    let mut client = end_of_2016(true);
    let first = operation(Direction::Reply, 99, 3);
    client.receive(&first, None).unwrap();
    call(&mut client, 7);
    let message = operation(Direction::Call, 7, unusable);
    client.receive(&message, None).unwrap();
    client.run();
    assert_eq!(failed(&mut client), []);

    let mut peer = WgPeer::client(refusing(Version::TWO_WG));
    call(&mut peer.end, 7);
    assert_eq!(peer.take().len(), 1);
    send(&mut peer, CALL, 7, unusable);
    assert_eq!(failed(&mut peer.end), []);
    assert_eq!(peer.errors(), []);
}

/// The extension says that it was a reply, where the header type does not.
#[test]
fn an_unusable_reply_ends_a_call_of_a_server_whatever_its_header_type() {
    for number in [REPLY, EITHER] {
        let mut peer = WgPeer::listening(|server| {
            refusing(Version::TWO_WG)(server);
            server.callbacks = CallbackOptions {
                credits: 4,
                chunks: true,
            };
        });
        peer = peer.exchanged(&Properties {
            reverse: ReverseSupport::General,
            ..Properties::default()
        });
        call(&mut peer.end, 7);
        assert_eq!(peer.take().len(), 1);
        send(&mut peer, number, 7, 2);
        assert_eq!(failed(&mut peer.end), [7], "{number:x}");
        assert_eq!(peer.errors(), [], "{number:x}");
    }
}

#[test]
fn a_refused_call_is_answered_in_the_working_group_s_version() {
    for (number, error) in [
        (0, Some(WgError::System)),
        (1, Some(WgError::BadXdr)),
        (2, None),
        (3, None),
    ] {
        let mut peer = WgPeer::server(refusing(Version::TWO_WG));
        send(&mut peer, CALL, 7, number);
        let expected = Vec::from_iter(error.map(|error| (7, error)));
        assert_eq!(peer.errors(), expected, "{number}");
        assert_eq!(peer.end.closed, None, "{number}");
    }
}
