//! Tests of replacing receives by ones of another size (xcharext-02, section 3.1).
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test may panic")]

mod support;

use rpcrdma_connection::Options;
use rpcrdma_negotiation::Version;
use support::{Endpoint, Pair, configs_with, message, room};

/// Returns the number of receives of `size` bytes.
fn receives_of(end: &Endpoint, size: usize) -> usize {
    let receives = end.receives.iter();
    receives.filter(|receive| receive.size() == size).count()
}

/// A receive size is announced only when every receive has it. The end of an earlier replacement,
/// reported after a new one was requested, does not announce the new size.
#[test]
fn a_size_is_told_only_when_every_receive_has_it() {
    let change = |client: &mut Options, server: &mut Options| {
        (client.credits, client.inline_receive) = (1, 8192);
        server.inline_send = 8192;
    };
    let mut pair = Pair::echoing(configs_with(Version::TWO, change));
    assert_eq!(pair.server.connection.request_receive_size(4096), Ok(()));
    pair.settle();
    // Replies consume all of the old receives but one.
    let mut xid = 0;
    while receives_of(&pair.client, 8192) > 1 {
        xid += 1;
        pair.call(message(xid, 0, &[]), &room(0, &[])).unwrap();
    }
    // The request for long receives again consumes that one.
    let sent = pair.client.sent.len();
    assert_eq!(pair.server.connection.request_receive_size(8192), Ok(()));
    pair.settle();
    let short = receives_of(&pair.client, 4096);
    assert!(short > 0);
    assert_eq!(
        pair.client.sent.len(),
        sent + 1,
        "the client says that it will, and not that it has"
    );
    // A long reply has a chunk as long as there are short receives, and none afterwards.
    for _ in 0..short {
        assert!(receives_of(&pair.client, 4096) > 0);
        xid += 1;
        let before = pair.client.registrations;
        pair.call(message(xid, 0, &[]), &room(1500, &[])).unwrap();
        assert!(pair.client.registrations > before);
    }
    assert_eq!(receives_of(&pair.client, 4096), 0);
    pair.settle();
    pair.call(message(xid + 1, 0, &[]), &room(0, &[])).unwrap();
    let before = pair.client.registrations;
    pair.call(message(xid + 2, 0, &[]), &room(1500, &[]))
        .unwrap();
    assert_eq!(pair.client.registrations, before);
}

/// A call that waits for a send-queue entry is planned again if the server's receives become
/// shorter meanwhile.
#[test]
fn a_call_that_is_ready_and_too_long_by_now_is_planned_again() {
    let change = |client: &mut Options, server: &mut Options| {
        (client.inline_send, server.inline_receive) = (8192, 8192);
    };
    let mut pair = Pair::echoing(configs_with(Version::TWO, change));
    pair.client.room = 0;
    pair.client.call(message(1, 1500, &[]), &room(0, &[]));
    pair.client.run();
    let before = pair.client.sent.len();
    assert_eq!(pair.client.connection.request_receive_size(4096), Ok(()));
    pair.client.run();
    pair.client.room = usize::MAX;
    pair.answer_with(|call| Some(support::reply(support::open(call).0, 0, &[])));
    pair.settle();
    assert!(matches!(pair.client.finished[..], [(1, Ok(_))]));
    assert_eq!(pair.client.registrations, 1, "it went by a read chunk");
    let mut sent = pair.client.sent[before..].iter();
    assert!(sent.all(|(bytes, _)| bytes.len() <= 4096));
}
