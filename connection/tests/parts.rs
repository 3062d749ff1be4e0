//! A test of an extension of version 2 of the working group, defined outside the crate, whose messages
//! have several parts: what becomes of them if one is refused, or if another message comes between
//! them (version-two-07, section 7.1.4).
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test may panic")]

mod support;

use std::time::Duration;

use bytes::{Bytes, BytesMut};
use onc_rpc::{Message, put_words};
use rdma::{Pool, Time};
use rpcrdma_chunks::{CallChunks, Direction};
use rpcrdma_connection::Options;
use rpcrdma_extension::{
    Extension, IncomingCall, Outbox, PeerError, ReceivedMessage, Refusal, Transferred, made_by,
};
use rpcrdma_host::{Budget, PER_CALL};
use rpcrdma_negotiation::{Version, Versions};
use rpcrdma_v2_wg::{Body, Chunks, ErrorBody, Properties, VERSION};
use support::{WgPeer, bytes, inline_call, message};

/// The header types: a part of a call that others follow, and the last part. Each has one word, the
/// number of the part.
const PART: u32 = 0xffff_ff91;
const LAST_PART: u32 = 0xffff_ff92;
/// The number of a part that the extension discards.
const DISCARDED: u32 = u32::MAX;

/// The extension at one end.
#[derive(Debug, Default)]
struct Numbered {
    /// Whether the header types do not tell the direction.
    says_no_direction: bool,
    parts: Vec<Bytes>,
}

impl Extension for Numbered {
    fn name(&self) -> &'static str {
        "numbered parts"
    }

    fn numbers(&self) -> &[u32] {
        &[PART, LAST_PART]
    }

    fn direction(&self, _: u32) -> Option<Direction> {
        (!self.says_no_direction).then_some(Direction::Call)
    }

    fn is_last_part(&self, number: u32) -> bool {
        number == LAST_PART
    }

    fn received(
        &mut self,
        received: &ReceivedMessage<'_>,
        out: &mut Outbox<'_>,
    ) -> Result<(), Refusal> {
        let (number, at) = received.read(|fields| fields.u32())?;
        if number == DISCARDED {
            return Err(Refusal::Discard("its number"));
        }
        if number as usize != self.parts.len() {
            return Err(Refusal::Answer(PeerError::System, "a part out of order"));
        }
        self.parts
            .push(Bytes::from(received.message.concat()).slice(at..));
        if received.number == PART {
            out.parts_follow();
            return Ok(());
        }
        let parts = std::mem::take(&mut self.parts);
        out.transferred(Transferred::BaseCall {
            call: IncomingCall {
                xid: received.xid,
                requested: received.credits,
                transmissions: parts.len() as u32,
                message: Message::from_payload(Bytes::from(parts.concat())),
                chunks: CallChunks::default(),
                context: Box::new(()),
            },
            handle: None,
        });
        Ok(())
    }

    fn parts_lost(&mut self, _: Direction, _: u32) {
        self.parts.clear();
    }

    fn collected_bytes(&self) -> usize {
        self.parts.iter().map(Bytes::len).sum()
    }
}

fn numbered(server: &mut Options) {
    let numbered = made_by(|_| Box::<Numbered>::default());
    server.protocols.add(Version::TWO_WG, numbered);
}

fn server() -> WgPeer {
    WgPeer::server(numbered)
}

/// Sends a part with this number and content.
fn send(peer: &mut WgPeer, xid: u32, kind: u32, number: u32, part: &[u8]) {
    let mut out = BytesMut::new();
    let credit = peer.flow.credit(peer.advertised);
    put_words(&mut out, [xid, VERSION, credit, kind, number]);
    out.extend_from_slice(part);
    peer.send_bytes(&out.freeze());
}

/// Returns a call, cut into two parts.
fn halves(xid: u32) -> (Vec<u8>, Vec<u8>) {
    let mut call = bytes(&message(xid, 4, &[])).to_vec();
    let rest = call.split_off(8);
    (call, rest)
}

/// Returns the XIDs of the calls that were delivered.
fn delivered(peer: &mut WgPeer) -> Vec<u32> {
    let calls = peer.end.delivered.drain(..);
    calls.map(|(_, call)| support::open(&call).0).collect()
}

fn whole(peer: &mut WgPeer, xid: u32) {
    let (first, rest) = halves(xid);
    send(peer, xid, PART, 0, &first);
    send(peer, xid, LAST_PART, 1, &rest);
}

#[test]
fn parts_are_joined_and_grants_may_come_between_them() {
    let mut peer = server();
    whole(&mut peer, 7);
    let (first, rest) = halves(8);
    send(&mut peer, 8, PART, 0, &first);
    peer.send(0, Body::Grant, &[]);
    send(&mut peer, 8, LAST_PART, 1, &rest);
    assert_eq!(peer.errors(), []);
    assert_eq!(delivered(&mut peer), [7, 8]);
}

/// One error answers all parts of a message. What the extension held of it is gone, so that the next
/// message begins with its first part.
#[test]
fn the_parts_of_a_refused_message_are_answered_once() {
    let mut peer = server();
    let (first, rest) = halves(7);
    send(&mut peer, 7, PART, 0, &first);
    send(&mut peer, 7, PART, 5, &first);
    send(&mut peer, 7, PART, 1, &first);
    send(&mut peer, 7, LAST_PART, 2, &rest);
    assert_eq!(peer.errors(), [(7, ErrorBody::System)]);
    assert_eq!(delivered(&mut peer), []);
    // The last part has arrived, so that the XID can be used again.
    whole(&mut peer, 7);
    assert_eq!(peer.errors(), []);
    assert_eq!(delivered(&mut peer), [7]);
}

/// A header that the extension cannot decode refuses its message, too.
#[test]
fn an_undecodable_part_gives_up_its_message() {
    let mut peer = server();
    let (first, rest) = halves(7);
    send(&mut peer, 7, PART, 0, &first);
    let credit = peer.flow.credit(peer.advertised);
    let mut short = BytesMut::new();
    put_words(&mut short, [7, VERSION, credit, PART]);
    peer.send_bytes(&short.freeze());
    send(&mut peer, 7, LAST_PART, 1, &rest);
    assert_eq!(peer.errors(), [(7, ErrorBody::BadXdr)]);
    assert_eq!(delivered(&mut peer), []);
    whole(&mut peer, 8);
    assert_eq!(delivered(&mut peer), [8]);
}

/// A message of the base protocol between the parts is refused, and the parts go on, unless it has
/// their XID: then one error answers all of them.
#[test]
fn a_message_between_the_parts_is_refused_and_ends_those_with_its_xid() {
    let mut peer = server();
    let misplaced = ErrorBody::InvalidContinuation;
    let (first, rest) = halves(7);
    send(&mut peer, 7, PART, 0, &first);
    let other = bytes(&message(8, 4, &[]));
    peer.send(8, inline_call(Chunks::default()), &other);
    assert_eq!(peer.errors(), [(8, misplaced)]);
    send(&mut peer, 7, LAST_PART, 1, &rest);
    assert_eq!(delivered(&mut peer), [7]);

    send(&mut peer, 9, PART, 0, &first);
    let same = bytes(&message(9, 4, &[]));
    peer.send(9, inline_call(Chunks::default()), &same);
    send(&mut peer, 9, LAST_PART, 1, &rest);
    assert_eq!(peer.errors(), [(9, misplaced)]);
    assert_eq!(delivered(&mut peer), []);
    whole(&mut peer, 10);
    assert_eq!(peer.errors(), []);
    assert_eq!(delivered(&mut peer), [10]);
}

/// Parts of the extension between those of a message of the base protocol are answered once, and that
/// message goes on.
#[test]
fn parts_between_those_of_another_message_are_answered_once() {
    let mut peer = server();
    let call = bytes(&message(7, 4, &[]));
    peer.send_middle(Direction::Call, 7, &call[..8], call.len() - 8);
    whole(&mut peer, 8);
    assert_eq!(peer.errors(), [(8, ErrorBody::InvalidContinuation)]);
    peer.send(7, inline_call(Chunks::default()), &call[8..]);
    assert_eq!(delivered(&mut peer), [7]);
}

/// When another message begins, no further part of those that were refused follows (drafts/errata-07.md,
/// 38): the peer may use the XID for a repeated call.
#[test]
fn a_refused_message_is_forgotten_when_another_begins() {
    for by_extension in [false, true] {
        let mut peer = server();
        let (first, _) = halves(7);
        send(&mut peer, 7, PART, 3, &first);
        assert_eq!(peer.errors(), [(7, ErrorBody::System)]);
        match by_extension {
            true => whole(&mut peer, 8),
            false => {
                let call = bytes(&message(8, 4, &[]));
                peer.send(8, inline_call(Chunks::default()), &call);
            }
        }
        whole(&mut peer, 7);
        assert_eq!(peer.errors(), []);
        assert_eq!(delivered(&mut peer), [8, 7], "{by_extension}");
    }
}

/// Regression test: what is in progress has the direction of messages for this end, and the next part had
/// none, so that it was refused as one of another message.
#[test]
fn an_extension_whose_header_types_tell_no_direction_may_have_parts() {
    let mut peer = WgPeer::server(|server| {
        let numbered = made_by(|_| {
            Box::new(Numbered {
                says_no_direction: true,
                parts: Vec::new(),
            })
        });
        server.protocols.add(Version::TWO_WG, numbered);
    });
    whole(&mut peer, 7);
    whole(&mut peer, 8);
    assert_eq!(peer.errors(), []);
    assert_eq!(delivered(&mut peer), [7, 8]);
    let call = bytes(&message(9, 4, &[]));
    peer.send(9, inline_call(Chunks::default()), &call);
    assert_eq!(delivered(&mut peer), [9]);
}

/// A call that an extension delivers begins as one of the base protocol does, whether or not the
/// extension has a transfer mode for calls of this end.
#[test]
fn a_refused_call_of_the_base_is_forgotten_when_an_extension_delivers_one() {
    let mut peer = server();
    let call = bytes(&message(7, 4, &[]));
    peer.send_middle(Direction::Call, 7, &call[..8], call.len() - 8);
    // It says that more remains than before.
    peer.send_middle(Direction::Call, 7, &call[8..16], call.len());
    let errors = peer.errors();
    assert!(matches!(errors[..], [(7, _)]), "{errors:?}");
    let single = bytes(&message(8, 4, &[]));
    send(&mut peer, 8, LAST_PART, 0, &single);
    assert_eq!(delivered(&mut peer), [8]);
    peer.send_middle(Direction::Call, 7, &call[..8], call.len() - 8);
    peer.send(7, inline_call(Chunks::default()), &call[8..]);
    assert_eq!(peer.errors(), []);
    assert_eq!(delivered(&mut peer), [7]);
}

/// A part that the extension discards is not answered, nor are those that follow it.
#[test]
fn the_parts_after_a_discarded_one_are_discarded() {
    let mut peer = server();
    let (first, rest) = halves(7);
    send(&mut peer, 7, PART, 0, &first);
    send(&mut peer, 7, PART, DISCARDED, &first);
    send(&mut peer, 7, PART, 1, &first);
    send(&mut peer, 7, LAST_PART, 2, &rest);
    assert_eq!(peer.errors(), []);
    assert_eq!(delivered(&mut peer), []);
    whole(&mut peer, 7);
    assert_eq!(peer.errors(), []);
    assert_eq!(delivered(&mut peer), [7]);
}

/// Parts of an unfinished message that an extension holds are charged to the connection, and released with it.
#[test]
fn parts_of_an_extension_beyond_the_memory_of_their_connection_end_it() {
    const MIB: usize = 1 << 20;
    let account = Budget::new(2 * MIB, 1).account();
    let server = || {
        let mut options = Options::server(rpcrdma_protocols::base());
        numbered(&mut options);
        let mut config = support::server(Versions::only(Version::TWO_WG), options);
        config.pool = Pool::new(64 * MIB).charged_to(&account);
        WgPeer::new(config).exchanged(&Properties::default())
    };
    let mut peer = server();
    let part = [0; 4000];
    let (mut number, mut held) = (0, 0);
    while peer.end.closed.is_none() {
        assert!((number as usize) < 3 * MIB / part.len(), "nothing ends it");
        held = account.held();
        send(&mut peer, 1, PART, number, &part);
        number += 1;
    }
    let reason = peer.end.closed.as_ref().unwrap();
    assert!(reason.contains("no memory"), "{reason}");
    assert!((MIB / 2..2 * MIB).contains(&held), "{held} bytes held");
    drop(peer);
    assert_eq!(account.held(), 0);

    // Parts of a message that comes to its end, or is given up, are not counted any more.
    let mut peer = server();
    for ends in [true, false] {
        let call = bytes(&message(1, 1000, &[]));
        let (first, last) = call.split_at(4000);
        send(&mut peer, 1, PART, 0, first);
        let held = account.held();
        assert!(held >= 4000, "{held}");
        match ends {
            true => send(&mut peer, 1, LAST_PART, 1, last),
            false => send(&mut peer, 1, LAST_PART, 5, last),
        }
        assert_eq!(peer.end.delivered.len(), usize::from(ends));
        assert!(account.held() < PER_CALL + 4000, "{}", account.held());
        if ends {
            peer.reply(None);
        }
    }
    assert_eq!(account.held(), 0);
}

/// Further parts do not give a message more time, and one that ends in time leaves no time-out.
#[test]
fn parts_of_an_extension_that_stay_incomplete_close_the_connection_after_their_time() {
    let timeout = Duration::from_secs(9);
    let start = Time::ZERO + Duration::from_secs(100);
    let mut peer = WgPeer::server(|server| {
        numbered(server);
        server.group_timeout = timeout;
    });
    let (first, rest) = halves(7);
    for ends in [true, false] {
        peer.end.now = start;
        assert_eq!(peer.end.connection.poll_timeout(), None);
        send(&mut peer, 7, PART, 0, &first);
        assert_eq!(peer.end.connection.poll_timeout(), Some(start + timeout));
        peer.end.now = start + Duration::from_secs(5);
        match ends {
            true => send(&mut peer, 7, LAST_PART, 1, &rest),
            false => send(&mut peer, 7, PART, 1, &first),
        }
    }
    assert_eq!(peer.end.connection.poll_timeout(), Some(start + timeout));
    let just_before = start + (timeout - Duration::from_nanos(1));
    peer.end.connection.handle_timeout(just_before);
    peer.end.run();
    assert_eq!(peer.end.closed, None);
    peer.end.connection.handle_timeout(start + timeout);
    peer.end.run();
    let reason = peer.end.closed.as_ref().unwrap();
    assert!(reason.contains("not finished within 9s"), "{reason}");
}
