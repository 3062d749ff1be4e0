//! Tests of calls in both directions at the same time (RFC 8167).

use bytes::Bytes;

use super::rdma_support::{Pair, data, message, open, reply, room};
use super::{CLIENT, SERVER, VERSIONS, fakes, iwarp, options, sent};
use rdma::Time;
use rpc_transport::{ClientTransport, ServerTransport};
use rpcrdma_chunks::Fixed;

/// Section 2.4.1 of RFC 8167.
#[test]
fn rfc8167_s2_4_1_both_directions_may_use_the_same_xid() {
    for version in VERSIONS {
        let (_, mut pair) = fakes(options(version, 4, false));
        let conn = pair.ready();
        (pair.answer, pair.answer_back) = (None, None);
        pair.submit(conn, message(7, 0, &[]), &room(2, &[]));
        pair.submit_back(message(7, 0, &[]), &room(2, &[]));
        pair.until(|pair| !pair.held.is_empty() && !pair.held_back.is_empty());
        let (at, token, _) = pair.held.remove(0);
        pair.client_replies(0, reply(7, 1, &[]));
        pair.settle();
        assert!(!pair.ended.contains_key(&(conn, 7)), "{version}");
        pair.server
            .reply(at, token, Some(reply(7, 2, &[])), Time::ZERO);
        pair.until(|pair| !pair.ended.is_empty() && !pair.called_back.is_empty());
        let back = pair.called_back.remove(&(pair.at_server(), 7)).unwrap();
        assert_eq!(open(&back.reply()).1, 1);
        let forth = pair.ended.remove(&(conn, 7)).unwrap();
        assert_eq!(open(&forth.reply()).1, 2);
    }
}

/// Section 4.1 of RFC 8167: the credits of one direction do not limit the other.
#[test]
fn rfc8167_s4_1_each_direction_has_its_own_credits() {
    for version in VERSIONS {
        let (mut client, mut server) = options(version, 3, false);
        client.common.credits = 9;
        server.common.credits = 5;
        server.common.callbacks.credits = 7;
        let (_, mut pair) = fakes((client, server));
        let conn = pair.ready();
        (pair.answer, pair.answer_back) = (None, None);
        for xid in 1..=20 {
            pair.submit(conn, message(xid, 0, &[]), &room(0, &[]));
            pair.submit_back(message(xid, 0, &[]), &room(0, &[]));
        }
        pair.settle();
        // What the server grants, and what the client does.
        assert_eq!((pair.held.len(), pair.held_back.len()), (5, 3), "{version}");
        // One direction stands still, the other goes on.
        pair.echo_back();
        while !pair.held_back.is_empty() {
            let (xid, ..) = open(&pair.held_back[0].2);
            pair.client_replies(0, reply(xid, 0, &[]));
        }
        pair.until(|pair| pair.called_back.len() == 20);
        assert_eq!((pair.held.len(), pair.ended.len()), (5, 0));
    }
}

/// Section 4.3 of RFC 8167: receives are posted for calls and replies of both directions, and for
/// messages that use no credit.
#[test]
fn rfc8167_s4_3_every_call_and_reply_of_both_directions_finds_a_receive() {
    for version in VERSIONS {
        let (world, mut pair) = fakes(options(version, 16, false));
        let conn = pair.ready();
        world.borrow_mut().fewest_receives = None;
        (pair.answer, pair.answer_back) = (None, None);
        for xid in 1..=16 {
            pair.submit(conn, message(xid, 0, &[]), &room(0, &[]));
            pair.submit_back(message(xid, 0, &[]), &room(0, &[]));
        }
        pair.until(|pair| pair.held.len() == 16 && pair.held_back.len() == 16);
        // All replies of both directions at once, while both look away.
        for (at, token, call) in std::mem::take(&mut pair.held) {
            let answer = reply(open(&call).0, 0, &[]);
            pair.server.reply(at, token, Some(answer), Time::ZERO);
        }
        while !pair.held_back.is_empty() {
            let (xid, ..) = open(&pair.held_back[0].2);
            pair.client_replies(0, reply(xid, 0, &[]));
        }
        pair.until(|pair| pair.ended.len() == 16 && pair.called_back.len() == 16);
        let world = world.borrow();
        assert_eq!(world.overruns, 0, "{version}");
        assert!(world.fewest_receives.is_some_and(|fewest| fewest > 0));
    }
}

/// Sections 5.1 and 5.2 of RFC 8167: the headers of calls and replies in the reverse direction.
#[test]
fn rfc8167_s5_1_backward_calls_have_the_version_of_forward_calls() {
    for version in VERSIONS {
        let (world, mut pair) = fakes(options(version, 4, false));
        pair.ready();
        for by in [CLIENT, SERVER] {
            for message in sent(&world, by) {
                let fixed = Fixed::peek(&message).unwrap();
                assert_eq!(fixed.version, version.number());
            }
        }
    }
}

/// The client's reply to a callback has the version and XID of the callback.
#[test]
fn rfc8167_s5_2_backward_replies_have_the_version_of_their_calls() {
    for version in VERSIONS {
        let (world, mut pair) = fakes(options(version, 4, false));
        pair.ready();
        pair.call_back(message(0x777, 0, &[]), &room(0, &[]))
            .reply();
        let last = sent(&world, CLIENT).pop().unwrap();
        let fixed = Fixed::peek(&last).unwrap();
        assert_eq!((fixed.version, fixed.xid), (version.number(), 0x777));
        // XID and type of the payload: it ends with what `reply` puts there.
        let payload = &last[last.len() - 16..];
        assert_eq!(payload[..8], [0, 0, 7, 0x77, 0, 0, 0, 1]);
    }
}

/// A client answers calls from its server (version-two-01, section 4.2.2); the same is tested in
/// version 1 (RFC 8167).
#[test]
fn v2_s4_2_2_a_client_answers_backward_calls() {
    for version in VERSIONS {
        let (world, mut pair) = fakes(options(version, 4, true));
        pair.ready();
        let mut xid = 0;
        for words in [0, 1, 900, 1020, 5000] {
            for lens in [&[][..], &[1], &[4096], &[1 << 20], &[5000, 3, 70_000]] {
                xid += 1;
                let items: Vec<Bytes> = lens.iter().map(|&len| data(xid, len)).collect();
                let end = pair.call_back(message(xid, words, &items), &room(words, lens));
                assert_eq!(open(&end.reply()), (xid, words, items));
            }
        }
        assert!(pair.down.is_empty() && pair.server_down.is_empty());
        assert_eq!(world.borrow().overruns, 0);
        let counters = pair.client.callback_counters(pair.up[0]).unwrap();
        assert_eq!((counters.errors_sent, counters.discarded), (0, 0));
    }
}

const MANY: u32 = 1000;

/// Makes a thousand calls in both directions at the same time, some with chunks.
#[track_caller]
fn thousand(mut pair: Pair) {
    let conn = pair.ready();
    let at = pair.at_server();
    let items = |xid: u32| match xid % 10 {
        0 => vec![data(xid, 9000)],
        1 => vec![data(xid, 300)],
        _ => Vec::new(),
    };
    for xid in 1..=MANY {
        let items = items(xid);
        let lens: Vec<usize> = items.iter().map(Bytes::len).collect();
        pair.submit(conn, message(xid, 1, &items), &room(1, &lens));
        pair.submit_back(message(xid, 2, &items), &room(2, &lens));
    }
    let all = MANY as usize;
    // Each ends once: `Pair` asserts that none ends a second time.
    pair.until(|pair| pair.ended.len() == all && pair.called_back.len() == all);
    for xid in 1..=MANY {
        let forth = pair.ended.remove(&(conn, xid)).unwrap().reply();
        assert_eq!(open(&forth), (xid, 1, items(xid)));
        let back = pair.called_back.remove(&(at, xid)).unwrap().reply();
        assert_eq!(open(&back), (xid, 2, items(xid)));
    }
    for _ in 0..100 {
        pair.step();
    }
    assert!(pair.ended.is_empty() && pair.called_back.is_empty());
    assert!(pair.down.is_empty() && pair.server_down.is_empty());
}

#[test]
fn a_thousand_callbacks_against_a_thousand_calls_are_each_answered_once() {
    for version in VERSIONS {
        let (world, pair) = fakes(options(version, 64, true));
        thousand(pair);
        assert_eq!(world.borrow().overruns, 0);
    }
}

#[test]
fn a_thousand_callbacks_against_a_thousand_calls_are_each_answered_once_over_iwarp() {
    for version in VERSIONS {
        thousand(iwarp(options(version, 64, true)));
    }
}

/// Results of callbacks are written to the server's memory, which is invalidated before the server
/// gets the results.
#[test]
fn memory_of_callbacks_is_given_back() {
    for version in VERSIONS {
        let (_, mut pair) = fakes(options(version, 4, true));
        pair.ready();
        let before = pair.server.device().counters();
        let item = [data(3, 50_000)];
        pair.call_back(message(3, 0, &item), &room(0, &[50_000]))
            .reply();
        let after = pair.server.device().counters();
        let made = after.registrations - before.registrations;
        let ended = after.local_invalidations - before.local_invalidations;
        assert_eq!((made, ended), (2, 2), "{version}");
    }
}

impl Pair {
    /// Makes the client answer a callback that it has received.
    fn client_replies(&mut self, nth: usize, answer: onc_rpc::Message) {
        let (conn, token, _) = self.held_back.remove(nth);
        let now = self.now();
        self.client.reply(conn, token, Some(answer), now);
    }
}
