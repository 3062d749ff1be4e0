//! Tests of calls and replies that an extension, defined outside the crate, has sent together, in both
//! versions 2.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test may panic")]

#[path = "../support/mod.rs"]
mod support;
mod toy;

use std::cell::RefCell;
use std::rc::Rc;

use rpcrdma_connection::{CallError, CallbackOptions, Event, Options, ReplyRoom};
use rpcrdma_negotiation::Version;
use support::{Endpoint, Pair, configs_with, data, echo, message, open, reply, room};
use toy::{BATCH, Toy};

const BOTH: [Version; 2] = [Version::TWO, Version::TWO_WG];

/// Returns an echoing pair in which the client and the server have these extensions.
fn pair(
    version: Version,
    (client, server): (Option<Toy>, Option<Toy>),
    change: impl FnOnce(&mut Options, &mut Options),
) -> Pair {
    let pair = Pair::echoing(configs_with(version, |ours, theirs| {
        client.into_iter().for_each(|toy| toy.add(version, ours));
        server.into_iter().for_each(|toy| toy.add(version, theirs));
        change(ours, theirs);
    }));
    assert_eq!(number_of_messages(&pair.client.sent, version).1, 0);
    pair
}

/// Returns a pair whose ends both have the extension with its defaults.
fn both(version: Version) -> Pair {
    let toy = Some(Toy::default());
    pair(version, (toy, toy), |_, _| {})
}

/// Returns how many of these messages carry one RPC message, and how many several.
fn number_of_messages<T>(sent: &[(bytes::Bytes, T)], version: Version) -> (usize, usize) {
    let (mut single, mut several) = (0, 0);
    for (sent, _) in sent {
        let word = |at: usize| u32::from_be_bytes(sent[4 * at..4 * at + 4].try_into().unwrap());
        match (version == Version::TWO_WG, word(3)) {
            (true, BATCH) => several += 1,
            // RDMA2_CALL_INLINE and RDMA2_REPLY_INLINE, with or without chunks.
            (true, htype) => single += usize::from([10, 13].contains(&htype)),
            // RDMA2_OPTIONAL with its number, RDMA2_MSG.
            (false, 5) => several += usize::from(word(5) == BATCH),
            (false, procedure) => single += usize::from(procedure == 0),
        }
    }
    (single, several)
}

/// Makes calls with these XIDs at once, and returns how many messages carried one call and several calls,
/// and one reply and several.
#[track_caller]
fn call_all(pair: &mut Pair, version: Version, xids: &[u32]) -> [(usize, usize); 2] {
    let before = [pair.client.sent.len(), pair.server.sent.len()];
    for &xid in xids {
        pair.client.call(message(xid, 4, &[]), &room(4, &[]));
    }
    pair.settle();
    let closed = (&pair.client.closed, &pair.server.closed);
    assert_eq!(closed, (&None, &None), "{version}");
    assert_answered(&mut pair.client, xids);
    [
        number_of_messages(&pair.client.sent[before[0]..], version),
        number_of_messages(&pair.server.sent[before[1]..], version),
    ]
}

/// Checks that these calls, and no others, have ended, each with its reply.
#[track_caller]
fn assert_answered(end: &mut Endpoint, xids: &[u32]) {
    let ended = std::mem::take(&mut end.finished);
    let mut replies: Vec<u32> = ended
        .iter()
        .map(|(xid, reply)| {
            assert_eq!(open(reply.as_ref().unwrap()).0, *xid);
            *xid
        })
        .collect();
    replies.sort_unstable();
    assert_eq!(replies, xids);
    assert_eq!(end.connection.unfinished_calls(), 0);
}

#[test]
fn calls_of_one_turn_go_together_and_so_do_their_replies() {
    for version in BOTH {
        let mut pair = both(version);
        for round in 0..3 {
            let xids: Vec<u32> = (1..=16).map(|n| 100 * round + n).collect();
            let sent = call_all(&mut pair, version, &xids);
            assert_eq!(sent, [(0, 1), (0, 1)], "{version}");
        }
        let sent = call_all(&mut pair, version, &[999]);
        assert_eq!(sent, [(1, 0), (1, 0)], "{version}: one call needs no batch");
    }
}

/// An extension that carries it alone may know what accompanies it.
#[test]
fn a_call_that_something_accompanies_goes_alone() {
    for version in BOTH {
        let mut pair = both(version);
        for xid in 1..=16 {
            let mut call = message(xid, 4, &[]);
            if xid == 5 {
                call.extras_mut().insert("for another extension");
            }
            pair.client.call(call, &room(4, &[]));
        }
        pair.settle();
        assert_answered(&mut pair.client, &(1..=16).collect::<Vec<u32>>());
        let sent = number_of_messages(&pair.client.sent, version);
        assert_eq!(sent, (1, 2), "{version}");
    }
}

/// Where calls are counted, each takes a credit of its own, so that a batch is no way around a limit.
#[test]
fn a_batch_takes_a_credit_for_each_call_where_calls_are_counted() {
    let toy = Some(Toy::default());
    let mut pair = pair(Version::TWO, (toy, toy), |_, server| server.credits = 5);
    let xids: Vec<u32> = (1..=12).collect();
    let sent = call_all(&mut pair, Version::TWO, &xids);
    assert_eq!(sent, [(0, 3), (0, 3)], "5, 5 and 2");
    let counters = pair.client.connection.requester_counters().unwrap();
    assert_eq!(counters.most_in_flight, 5);
    let counters = pair.server.connection.responder_counters().unwrap();
    assert_eq!(counters.most_outstanding, 5);
}

/// Where messages are counted, a batch is one of them: more calls are in flight than messages could be.
#[test]
fn a_batch_takes_one_credit_where_messages_are_counted() {
    let toy = Some(Toy::default());
    let mut pair = pair(Version::TWO_WG, (toy, toy), |client, server| {
        (client.credits, server.credits) = (40, 4);
    });
    // The credit value of a message is the number of messages that its receiver may have sent.
    let credit = |end: &Endpoint| {
        let (last, _) = end.sent.last().unwrap();
        u32::from_be_bytes(last[8..12].try_into().unwrap())
    };
    let mut before = None;
    for round in 1..=3 {
        let xids: Vec<u32> = (1..=30).map(|n| 100 * round + n).collect();
        assert_eq!(
            call_all(&mut pair, Version::TWO_WG, &xids),
            [(0, 1), (0, 1)]
        );
        let now = [credit(&pair.client), credit(&pair.server)];
        let more = before.map(|before: [u32; 2]| [now[0] - before[0], now[1] - before[1]]);
        assert!(more.is_none_or(|more| more == [1, 1]), "{more:?}");
        before = Some(now);
    }
    // The number of calls in flight is limited by the client's own credits all the same.
    let xids: Vec<u32> = (1001..=1100).collect();
    assert_eq!(
        call_all(&mut pair, Version::TWO_WG, &xids),
        [(0, 3), (0, 3)]
    );
    let counters = pair.client.connection.requester_counters().unwrap();
    assert_eq!(counters.most_in_flight, 40);
}

/// However many calls a client may have outstanding, and however many fit a message, it sends no more
/// together than its server takes.
#[test]
fn a_batch_has_no_more_calls_than_the_peer_takes_for_a_message() {
    let toy = Some(Toy::default());
    let mut pair = pair(Version::TWO_WG, (toy, toy), |client, server| {
        (client.credits, server.credits) = (512, 4);
    });
    let xids: Vec<u32> = (1..=400).collect();
    let [(_, calls), _] = call_all(&mut pair, Version::TWO_WG, &xids);
    assert!(calls >= 7, "{calls}: at most 65 in each");
}

/// No transmission is longer than the receives of the peer: 4096 bytes, of which a call of 516 bytes takes
/// four more for its length.
#[test]
fn more_calls_than_fit_a_receive_take_several_messages() {
    for version in BOTH {
        let mut pair = both(version);
        let xids: Vec<u32> = (1..=16).collect();
        for &xid in &xids {
            pair.client.call(message(xid, 125, &[]), &room(125, &[]));
        }
        let before = pair.client.sent.len();
        pair.settle();
        assert_answered(&mut pair.client, &xids);
        let sent = &pair.client.sent[before..];
        assert_eq!(
            number_of_messages(sent, version),
            (0, 3),
            "{version}: 7, 7 and 2"
        );
        let longest = sent.iter().map(|(sent, _)| sent.len()).max().unwrap();
        assert!((3600..=4096).contains(&longest), "{version}: {longest}");
    }
}

/// An end that sends at most three together.
#[test]
fn what_an_extension_leaves_over_is_offered_again_or_goes_alone() {
    for version in BOTH {
        let few = Some(Toy {
            sends: 3,
            ..Toy::default()
        });
        let none = Some(Toy {
            sends: 0,
            ..Toy::default()
        });
        let mut three = pair(version, (few, few), |_, _| {});
        let xids: Vec<u32> = (1..=7).collect();
        let sent = call_all(&mut three, version, &xids);
        assert_eq!(sent, [(1, 2), (1, 2)], "{version}");
        let mut single = pair(version, (none, Some(Toy::default())), |_, _| {});
        let sent = call_all(&mut single, version, &xids);
        assert_eq!(sent, [(7, 0), (0, 1)], "{version}");
    }
}

/// A peer that refuses a batch, whatever the error, gets each of its calls by itself, and executes each
/// once.
#[test]
fn each_call_of_a_refused_batch_is_sent_alone() {
    for version in BOTH {
        let unsupported = Some(Toy {
            unsupported: true,
            ..Toy::default()
        });
        let too_many = Some(Toy {
            takes: 2,
            ..Toy::default()
        });
        let midway = Some(Toy {
            refuses_after: Some(2),
            ..Toy::default()
        });
        for server in [None, unsupported, too_many, midway] {
            let mut pair = pair(version, (Some(Toy::default()), server), |_, _| {});
            let executed = Rc::new(RefCell::new(Vec::new()));
            let seen = Rc::clone(&executed);
            pair.answer_with(move |call| {
                seen.borrow_mut().push(open(call).0);
                echo(call)
            });
            let sent = call_all(&mut pair, version, &[1, 2, 3, 4, 5]);
            assert_eq!(sent[0], (5, 1), "{version} {server:?}");
            assert_eq!(*executed.borrow(), [1, 2, 3, 4, 5], "{version} {server:?}");
            let counters = pair.client.connection.requester_counters().unwrap();
            assert_eq!(
                (counters.unknown_xid, counters.discarded),
                (0, 0),
                "{version}"
            );
            // The extension makes no more batches, and all credits are back.
            let sent = call_all(&mut pair, version, &[6, 7, 8]);
            assert_eq!(sent[0], (3, 0), "{version} {server:?}");
        }
    }
}

/// Several batches are in flight when the first is refused: the error of each is about its own calls.
#[test]
fn every_batch_in_flight_can_be_refused() {
    for version in BOTH {
        let few = Some(Toy {
            sends: 2,
            ..Toy::default()
        });
        let mut pair = pair(version, (few, None), |_, _| {});
        let sent = call_all(&mut pair, version, &[1, 2, 3, 4, 5, 6]);
        assert_eq!(sent, [(6, 3), (6, 0)], "{version}");
    }
}

/// An error about one call of a batch, here because its reply does not fit, ends that call alone. None is
/// made again: all were executed.
#[test]
fn an_error_about_one_call_of_a_batch_ends_that_call_alone() {
    let mut pair = both(Version::TWO);
    let executed = Rc::new(RefCell::new(0));
    let count = Rc::clone(&executed);
    pair.answer_with(move |call| {
        *count.borrow_mut() += 1;
        let (xid, words, _) = open(call);
        let words = if xid == 1 { 2000 } else { words };
        Some(reply(xid, words, &[]))
    });
    for xid in [1, 2, 3] {
        pair.client.call(message(xid, 4, &[]), &room(4, &[]));
    }
    pair.settle();
    let first = pair.client.finished.iter().position(|(xid, _)| *xid == 1);
    let (_, failed) = pair.client.finished.remove(first.unwrap());
    assert!(matches!(failed, Err(CallError::Chunk(_))), "{failed:?}");
    assert_answered(&mut pair.client, &[2, 3]);
    assert_eq!(*executed.borrow(), 3);
}

/// Cancelling one call of a batch leaves the others alone. Its credit comes back with its reply, or when
/// the batch is refused, after which it is not sent again.
#[test]
fn a_call_of_a_batch_can_be_cancelled() {
    for version in BOTH {
        for server in [Some(Toy::default()), None] {
            let mut pair = pair(version, (Some(Toy::default()), server), |_, _| {});
            for xid in [1, 2, 3] {
                pair.client.call(message(xid, 4, &[]), &room(4, &[]));
            }
            pair.client.run();
            let before = pair.client.sent.len();
            pair.client.connection.cancel(2);
            pair.settle();
            assert_answered(&mut pair.client, &[1, 3]);
            let counters = pair.client.connection.requester_counters().unwrap();
            assert_eq!(counters.cancelled_replies, 1, "{version}");
            let again = if server.is_some() { 0 } else { 2 };
            let sent = number_of_messages(&pair.client.sent[before..], version);
            assert_eq!(sent, (again, 0), "{version}");
        }
    }
}

/// A lost connection ends the calls of a batch like others: no outcome is reported, so that the owner of
/// the connection repeats each.
#[test]
fn calls_of_a_batch_end_with_the_connection() {
    for version in BOTH {
        let mut pair = both(version);
        for xid in [1, 2, 3] {
            pair.client.call(message(xid, 4, &[]), &room(4, &[]));
        }
        pair.client.run();
        assert_eq!(pair.client.connection.unfinished_calls(), 3, "{version}");
        pair.client.handle(Event::Closed);
        pair.client.run();
        assert!(pair.client.finished.is_empty(), "{version}");
        assert_eq!(pair.client.connection.unfinished_calls(), 0, "{version}");
    }
}

/// A call with bulk items, or room for them, is planned as ever, and those around it go together.
#[test]
fn calls_with_items_go_alone_in_their_order() {
    for version in BOTH {
        let mut pair = both(version);
        let item = data(4, 64 << 10);
        let before = pair.client.sent.len();
        for xid in [1, 2] {
            pair.client.call(message(xid, 4, &[]), &room(4, &[]));
        }
        let large = room(4, &[item.len()]);
        pair.client
            .call(message(3, 4, std::slice::from_ref(&item)), &large);
        for xid in [4, 5, 6] {
            pair.client.call(message(xid, 4, &[]), &room(4, &[]));
        }
        pair.settle();
        let third = pair.client.finished.iter().position(|(xid, _)| *xid == 3);
        let (_, third) = pair.client.finished.remove(third.unwrap());
        assert_eq!(open(&third.unwrap()).2.concat(), item);
        assert_answered(&mut pair.client, &[1, 2, 4, 5, 6]);
        let (_, several) = number_of_messages(&pair.client.sent[before..], version);
        assert_eq!(several, 2, "{version}");
    }
}

/// A Send can invalidate one handle: a reply that does goes alone, and the others together.
#[test]
fn a_reply_that_invalidates_a_handle_goes_alone() {
    for version in BOTH {
        let mut pair = both(version);
        // Its data is fetched, and the reply is short.
        let item = data(4, 1 << 20);
        pair.answer_with(|call| Some(reply(open(call).0, 2, &[])));
        pair.client.call(message(1, 4, &[item]), &room(4, &[]));
        let small: Vec<u32> = (2..=4).collect();
        for &xid in &small {
            pair.client.call(message(xid, 4, &[]), &room(4, &[]));
        }
        // All replies are given in one turn, although the call with data is complete later.
        let answer = pair.answer.take();
        pair.settle();
        assert_eq!(pair.server.delivered.len(), 4, "{version}");
        let before = pair.server.sent.len();
        pair.answer = answer;
        pair.settle();
        assert_answered(&mut pair.client, &[1, 2, 3, 4]);
        let sent = &pair.server.sent[before..];
        assert_eq!(number_of_messages(sent, version), (1, 1), "{version}");
        let invalidating = sent.iter().filter(|(_, handle)| handle.is_some()).count();
        assert_eq!(invalidating, 1, "{version}");
    }
}

/// Calls that wait for room in the send queue go together when there is some.
#[test]
fn calls_that_wait_for_the_send_queue_go_together() {
    for version in BOTH {
        let mut pair = both(version);
        pair.client.room = 0;
        let before = pair.client.sent.len();
        for xid in [1, 2, 3] {
            pair.client.call(message(xid, 4, &[]), &room(4, &[]));
            pair.client.run();
        }
        assert_eq!(pair.client.sent.len(), before, "{version}");
        pair.client.room = 1;
        pair.settle();
        assert_answered(&mut pair.client, &[1, 2, 3]);
        let sent = number_of_messages(&pair.client.sent[before..], version);
        assert_eq!(sent, (0, 1), "{version}");
    }
}

/// Calls from server to client go together where extensions carry them, which those of 2016 do not.
#[test]
fn callbacks_go_together_in_version_two_of_the_working_group() {
    for (version, expected) in [(Version::TWO, (3, 0)), (Version::TWO_WG, (0, 1))] {
        let toy = Some(Toy::default());
        let mut pair = pair(version, (toy, toy), |client, server| {
            let callbacks = CallbackOptions {
                credits: 8,
                chunks: false,
            };
            (client.callbacks, server.callbacks) = (callbacks, callbacks);
        });
        pair.answer_back = Some(Box::new(echo));
        // One call that is answered grants the server its credits.
        pair.server.call(message(100, 4, &[]), &room(4, &[]));
        pair.settle();
        let before = [pair.client.sent.len(), pair.server.sent.len()];
        for xid in [101, 102, 103] {
            pair.server.call(message(xid, 4, &[]), &room(4, &[]));
        }
        pair.settle();
        assert_answered(&mut pair.server, &[100, 101, 102, 103]);
        let sent = [
            number_of_messages(&pair.server.sent[before[1]..], version),
            number_of_messages(&pair.client.sent[before[0]..], version),
        ];
        assert_eq!(sent, [expected, expected], "{version}");
    }
}

/// Without an extension that sends several together, nothing is kept for a later message.
#[test]
fn nothing_is_gathered_where_no_extension_sends_several_together() {
    for version in BOTH {
        let mut pair = pair(version, (None, None), |_, _| {});
        let sent = call_all(&mut pair, version, &[1, 2, 3]);
        assert_eq!(sent, [(3, 0), (3, 0)], "{version}");
        let call = message(4, 4, &[]);
        assert_eq!(open(&pair.call(call, &ReplyRoom::default()).unwrap()).0, 4);
    }
}
