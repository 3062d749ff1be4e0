//! Tests of replies that had arrived when the connection ended, and whose calls still had registered memory.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test may panic")]

mod support;

use rdma::Region;
use rpcrdma_connection::{Action, Event};
use rpcrdma_negotiation::Version;
use support::{Pair, Posted, configs_with, data, message, open, reply, room};

/// The versions in which a reply of this length goes into a chunk, not into several Sends.
const BOTH: [Version; 2] = [Version::ONE, Version::TWO];
const LEN: usize = 9000;

/// Returns a connection on which handles are invalidated by their own end alone, and which has carried a call.
fn pair(version: Version) -> Pair {
    let mut pair = Pair::echoing(configs_with(version, |ours, theirs| {
        (ours.remote_invalidation, theirs.remote_invalidation) = (false, false);
    }));
    pair.call(message(1, 0, &[]), &room(0, &[])).unwrap();
    pair.answer = None;
    pair
}

/// Has the client make calls with these XIDs whose results go into chunks, and the server answer them.
/// Returns when the replies have arrived and no handle has been invalidated.
fn answered(pair: &mut Pair, xids: &[u32]) {
    for &xid in xids {
        pair.client.call(message(xid, 0, &[]), &room(0, &[LEN]));
    }
    pair.settle();
    while let Some((id, call)) = pair.server.delivered.pop_front() {
        let (xid, ..) = open(&call);
        pair.server
            .reply(id, Some(reply(xid, 0, &[data(xid, LEN)])));
    }
    pair.server.run();
    while let Some(posted) = pair.server.posted.pop_front() {
        match posted {
            Posted::Write(bytes, stag, offset) => {
                pair.client.remote_write(stag, offset, &bytes).unwrap();
            }
            Posted::Send(bytes, invalidate) => {
                pair.client.receive(&bytes, invalidate).unwrap();
            }
        }
    }
    pair.client.poll();
    assert!(pair.client.finished.is_empty(), "their memory is in reach");
    assert_eq!(pair.client.invalidating.len(), xids.len());
}

#[test]
fn replies_that_had_arrived_are_reported_when_the_connection_ends() {
    for version in BOTH {
        let mut pair = pair(version);
        answered(&mut pair, &[2, 3]);
        let sent = pair.client.sent.len();
        // Its reply has not arrived.
        pair.client.call(message(4, 0, &[]), &room(0, &[LEN]));
        let received = pair.client.connection.moved().received.chunk;
        pair.client.close();
        assert_eq!(pair.client.connection.unfinished_calls(), 2, "{version}");
        pair.client.poll();
        assert_eq!(pair.client.sent.len(), sent, "{version}: nothing is sent");
        assert!(
            pair.client.invalidating.is_empty(),
            "{version}: no work request"
        );
        let mut finished = std::mem::take(&mut pair.client.finished);
        finished.sort_by_key(|(xid, _)| *xid);
        let xids: Vec<_> = finished.iter().map(|(xid, _)| *xid).collect();
        assert_eq!(xids, [2, 3], "{version}");
        for (xid, result) in finished {
            let items = open(&result.unwrap()).2;
            assert_eq!(items, [data(xid, LEN)], "{version}");
        }
        assert_eq!(pair.client.connection.unfinished_calls(), 0, "{version}");
        let moved = pair.client.connection.moved().received.chunk;
        assert_eq!(moved, received + 2 * LEN as u64, "{version}");
        drop(pair.client.connection);
        assert_eq!(pair.client.pool.in_use(), 0, "{version}");
    }
}

/// The reply is read only after the driver has said that the memory is out of reach, and that once.
#[test]
fn a_last_reply_waits_for_its_memory() {
    let mut pair = pair(Version::ONE);
    answered(&mut pair, &[2]);
    let client = &mut pair.client;
    client.handle(Event::Closed);
    let Some(Action::Reclaim { id, stag }) = client.connection.poll_action(usize::MAX) else {
        panic!("the memory is taken back first");
    };
    assert!(client.connection.poll_action(usize::MAX).is_none());
    let region = client.registered.remove(&stag).unwrap().region;
    assert!(matches!(region, Region::RemoteWrite(_)));
    client.handle(Event::Reclaimed { id, region });
    let action = client.connection.poll_action(usize::MAX);
    assert!(
        matches!(
            action,
            Some(Action::Finished {
                xid: 2,
                result: Ok(_)
            })
        ),
        "{action:?}"
    );
    // A driver that answers once more does no harm.
    let region = Region::RemoteRead(data(1, 8));
    client.handle(Event::Reclaimed { id, region });
    assert!(client.connection.poll_action(usize::MAX).is_none());
}

#[test]
fn a_call_that_was_cancelled_is_not_reported_at_the_end() {
    for cancelled_first in [true, false] {
        let mut pair = pair(Version::ONE);
        answered(&mut pair, &[2, 3]);
        if cancelled_first {
            pair.client.connection.cancel(2);
        }
        pair.client.close();
        if !cancelled_first {
            pair.client.connection.cancel(2);
        }
        pair.client.poll();
        let finished = pair.client.finished.iter();
        let xids: Vec<_> = finished.map(|(xid, _)| *xid).collect();
        assert_eq!(xids, [3], "{cancelled_first}");
    }
}
