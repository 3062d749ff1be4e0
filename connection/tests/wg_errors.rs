//! Errors and chunks in version 2 of the working group (version-two-07, sections 4.5, 6.5, 6.6.3,
//! 6.6.4 and 7): what is refused and how, and what an error ends.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test may panic")]

mod support;

use std::time::Duration;

use bytes::Bytes;
use onc_rpc::{Bulk, BulkItem, Message, Position};
use rdma::{Pool, Stag};
use rpcrdma_connection::{CallbackOptions, Options, ReplyRoom};
use rpcrdma_negotiation::{Choice, Version, Versions};
use rpcrdma_v2_wg::{
    Body, Chunks, Direction, EXPERIMENTAL, ErrorBody, Header, Properties, ReadSegment, Segment,
    WriteChunk, unused,
};
use support::{
    Sent, WgPeer, bytes, data, encoded, inline_call, inline_reply, message, open, reply, room,
};

fn segment(handle: u32, length: u32) -> Segment {
    let offset = u64::from(handle) << 32;
    Segment {
        handle,
        length,
        offset,
    }
}

fn read(position: u32, length: u32) -> ReadSegment {
    let segment = segment(1 + position, length);
    ReadSegment { position, segment }
}

fn chunk(lengths: &[u32]) -> WriteChunk {
    let segments = lengths.iter().zip(1..);
    segments.map(|(&len, at)| segment(at, len)).collect()
}

fn reads(reads: Vec<ReadSegment>) -> Chunks {
    Chunks {
        reads,
        ..Chunks::default()
    }
}

fn writes(writes: Vec<WriteChunk>) -> Chunks {
    Chunks {
        writes,
        ..Chunks::default()
    }
}

fn reply_chunk(chunk: WriteChunk) -> Chunks {
    Chunks {
        reply: Some(chunk),
        ..Chunks::default()
    }
}

/// Returns a client whose messages cost so much that chunks are used.
fn chunking() -> WgPeer {
    WgPeer::client(|client| client.costs.per_message = Duration::from_secs(1))
}

/// Returns a client whose registrations cost so much that messages are continued.
fn continuing() -> WgPeer {
    WgPeer::client(|client| client.costs.registration = Duration::from_secs(1))
}

/// Returns a client that makes a call for which chunks of these lengths are offered, and the call's
/// chunks.
fn offering(items: &[usize]) -> (WgPeer, Chunks) {
    let mut peer = chunking();
    peer.end.call(message(1, 1, &[]), &room(1, items));
    let chunks = chunks_of(&peer.take());
    (peer, chunks)
}

fn chunks_of(sent: &[Sent]) -> Chunks {
    let last = &sent.last().expect("nothing was sent").header;
    last.body.chunks().expect("no chunks").clone()
}

/// Returns the only call that has finished.
#[track_caller]
fn finished(peer: &mut WgPeer) -> (u32, Option<Message>) {
    let (xid, result) = peer.end.finished.remove(0);
    assert!(peer.end.finished.is_empty());
    (xid, result.ok())
}

/// Returns a client that takes calls, with a call of its own with XID 5.
fn both_ways(chunks: bool) -> WgPeer {
    let mut peer = WgPeer::client(|client| {
        client.callbacks = CallbackOptions { credits: 4, chunks };
    });
    peer.end.call(message(5, 1, &[]), &room(1, &[]));
    let _ = peer.take();
    peer
}

#[test]
fn wg_s7_an_error_is_never_answered() {
    let error = |version: u32, code: u32| -> Bytes {
        let words = [5, version, 50, 4, code].map(u32::to_be_bytes);
        Bytes::from(words.concat())
    };
    for mut peer in [WgPeer::server(|_| {}), both_ways(true)] {
        // Another version, a code that is not known, one whose fields are missing, and no code.
        let bad = [
            error(3, 2),
            error(2, 77),
            error(2, 6),
            error(2, 2).slice(..16),
        ];
        for message in bad {
            peer.send_bytes(&message);
            assert_eq!(peer.taken(), []);
            assert_eq!((peer.end.finished.len(), &peer.end.closed), (0, &None));
        }
    }
}

/// A header type that this end does not know is answered under its XID, which need not be that of a call.
#[test]
fn wg_s6_1_an_unknown_header_type_is_answered_and_ends_no_call() {
    for header_type in [0, 14, *EXPERIMENTAL.start() - 1, *EXPERIMENTAL.end()] {
        let mut peer = both_ways(false);
        let credit = peer.flow.credit(100);
        let words = [5, 2, credit, header_type].map(u32::to_be_bytes);
        peer.send_bytes(&words.concat().into());
        let expected = [(5, ErrorBody::InvalidHeaderType)];
        assert_eq!(peer.errors(), expected, "{header_type}");
        assert!(peer.end.finished.is_empty(), "{header_type}");
        peer.send_rpc(inline_reply(Chunks::default()), &reply(5, 1, &[]));
        assert!(finished(&mut peer).1.is_some(), "{header_type}");
    }
}

#[test]
fn wg_s6_3_2_the_xid_of_a_grant_is_ignored() {
    let mut peer = both_ways(false);
    peer.send(5, Body::Grant, &[]);
    assert_eq!((peer.end.finished.len(), peer.taken()), (0, vec![]));
    peer.send_rpc(inline_reply(Chunks::default()), &reply(5, 1, &[]));
    assert!(finished(&mut peer).1.is_some());
    // Nor is it the XID of a call that arrives, or of one in progress.
    let mut peer = WgPeer::server(|_| {});
    peer.send(7, Body::Grant, &[]);
    peer.send_rpc(inline_call(Chunks::default()), &message(7, 1, &[]));
    peer.send(7, Body::Grant, &[]);
    peer.reply(Some(reply(7, 1, &[])));
    assert!(matches!(peer.taken()[..], [Body::Reply { .. }]));
}

#[test]
fn wg_s7_an_unrecognized_error_is_discarded() {
    let mut peer = both_ways(false);
    peer.send_error(5, ErrorBody::Other(77));
    assert_eq!((peer.end.finished.len(), peer.taken()), (0, vec![]));
    peer.send_rpc(inline_reply(Chunks::default()), &reply(5, 1, &[]));
    assert!(finished(&mut peer).1.is_some());
}

#[test]
fn wg_s7_3_an_error_for_no_call_is_discarded() {
    let mut peer = both_ways(false);
    for xid in [0, 6, u32::MAX] {
        peer.send_error(xid, ErrorBody::System);
    }
    assert_eq!((peer.end.finished.len(), peer.taken()), (0, vec![]));
    peer.send_error(5, ErrorBody::System);
    assert_eq!(finished(&mut peer), (5, None));
}

/// Both ends have a call with the same XID.
#[test]
fn wg_s7_an_error_is_about_a_call_of_its_receiver() {
    let mut peer = both_ways(false);
    peer.send_rpc(inline_call(Chunks::default()), &message(5, 1, &[]));
    peer.send_error(5, ErrorBody::BadXdr);
    assert_eq!(finished(&mut peer), (5, None));
    assert_eq!(peer.end.delivered.len(), 1);
    peer.reply(Some(reply(5, 1, &[])));
    let sent = peer.taken();
    assert!(matches!(sent[..], [Body::Reply { .. }]), "{sent:?}");
}

#[test]
fn wg_s7_1_2_another_version_is_answered_with_vers_mismatch() {
    let mut peer = WgPeer::server(|_| {});
    let (xid, credit) = (9, 100);
    let body = inline_call(Chunks::default());
    let mut call = encoded(&Header { xid, credit, body }, &bytes(&message(9, 1, &[]))).to_vec();
    call[7] = 1;
    peer.send_bytes(&Bytes::from(call));
    peer.end.run();
    let answer = &peer.end.sent.last().unwrap().0;
    let words: Vec<u32> = answer
        .chunks(4)
        .map(|word| u32::from_be_bytes(word.try_into().unwrap()))
        .collect();
    assert_eq!((words[0], words[1], words[3], words[4]), (9, 1, 4, 11));
    assert_eq!(words.len(), 5);
    assert!(peer.end.delivered.is_empty());
}

#[test]
fn wg_s7_3_errors_end_the_call() {
    let errors = [
        ErrorBody::BadXdr,
        ErrorBody::InvalidContinuation,
        ErrorBody::ReadChunks { max: 0 },
        ErrorBody::WriteChunks { max: 1 },
        ErrorBody::Segments { max: 1 },
        ErrorBody::WriteResource {
            chunk: 1,
            needed: 500_000,
        },
        ErrorBody::ReplyResource { needed: 9000 },
        ErrorBody::VersionMismatch,
        ErrorBody::System,
    ];
    for error in errors {
        let (mut peer, _) = offering(&[400_000]);
        peer.send_error(1, error);
        assert_eq!(finished(&mut peer), (1, None), "{error}");
        assert_eq!(peer.taken(), [], "{error}");
        assert!(peer.end.registered.is_empty(), "{error}");
    }
}

#[test]
fn wg_s7_3_4_a_zero_means_that_the_call_is_not_repeated() {
    // Nor are an index that the call does not have, a length that it has provided, and one that
    // would take too much memory.
    let too_much = (4 << 20) + 1;
    for (chunk, needed) in [
        (0, 0),
        (0, 500_000),
        (1, 0),
        (2, 500_000),
        (1, 400_000),
        (1, too_much),
    ] {
        let mut peer = repeatable(1, &[400_000]);
        let _ = peer.take();
        peer.send_error(1, ErrorBody::WriteResource { chunk, needed });
        assert_eq!(finished(&mut peer), (1, None), "{chunk} {needed}");
        assert_eq!(peer.taken(), []);
    }
    for needed in [0, 12_000, too_much, u32::MAX] {
        let mut peer = repeatable(3000, &[]);
        let _ = peer.take();
        peer.send_error(1, ErrorBody::ReplyResource { needed });
        assert_eq!(finished(&mut peer), (1, None), "{needed}");
        assert_eq!(peer.taken(), []);
    }
}

/// Returns the room for the reply to an idempotent call, of whose results `words` are in the payload.
fn idempotent(words: usize, items: &[usize]) -> ReplyRoom {
    ReplyRoom {
        idempotent: true,
        ..room(words, items)
    }
}

/// Returns a client that has made an idempotent call by chunks, of whose results `words` are in the payload.
fn repeatable(words: usize, items: &[usize]) -> WgPeer {
    let mut peer = chunking();
    peer.end.call(message(1, 1, &[]), &idempotent(words, items));
    peer
}

fn offered(chunk: &WriteChunk) -> u64 {
    chunk.iter().map(|part| u64::from(part.length)).sum()
}

/// The call has been executed, but once more makes no difference: it is made again with the length
/// that the responder needs.
#[test]
fn wg_s6_6_4_only_idempotent_calls_are_repeated() {
    let item = ErrorBody::WriteResource {
        chunk: 2,
        needed: 500_000,
    };
    let mut peer = repeatable(1, &[400_000, 300_000]);
    let _ = peer.take();
    peer.send_error(1, item);
    let lengths = |peer: &mut WgPeer| -> Vec<u64> {
        let writes = chunks_of(&peer.take()).writes;
        writes.iter().map(offered).collect()
    };
    assert_eq!(lengths(&mut peer), [500_000, 500_000]);
    assert!(peer.end.finished.is_empty());
    // The result has grown since: twice more, and not for ever.
    for needed in [600_000, 700_000] {
        peer.send_error(1, ErrorBody::WriteResource { chunk: 2, needed });
        assert_eq!(lengths(&mut peer)[1], u64::from(needed));
    }
    let needed = 800_000;
    peer.send_error(1, ErrorBody::WriteResource { chunk: 2, needed });
    assert_eq!(finished(&mut peer), (1, None));
    assert!(peer.end.registered.is_empty());

    let mut peer = repeatable(3000, &[]);
    let _ = peer.take();
    peer.send_error(1, ErrorBody::ReplyResource { needed: 20_000 });
    let chunk = chunks_of(&peer.take()).reply.expect("no reply chunk");
    assert!((20_000..20_100).contains(&offered(&chunk)), "{chunk:?}");
    peer.send_rpc(inline_reply(Chunks::default()), &reply(1, 1, &[]));
    assert!(finished(&mut peer).1.is_some());

    let (mut peer, _) = offering(&[400_000, 300_000]);
    peer.send_error(1, item);
    let (_, result) = peer.end.finished.remove(0);
    let error = result.unwrap_err().to_string();
    assert!(error.contains("has been executed"), "{error}");
    assert_eq!(peer.taken(), []);
}

/// A call that provided for a continued reply, or for an inline one beside a write chunk, had no
/// Reply chunk. The responder says how long one must be: the call is made again with one that has
/// the room of the binding or more.
#[test]
fn wg_s7_3_5_a_call_without_a_reply_chunk_is_repeated_with_one() {
    for (words, items, needed) in [
        (3000, &[][..], 8000),
        (3000, &[], 20_000),
        (1, &[400_000], 2000),
        (1, &[400_000], 20_000),
    ] {
        let mut peer = match items.is_empty() {
            true => continuing(),
            false => chunking(),
        };
        peer.end.call(message(1, 1, &[]), &idempotent(words, items));
        let first = chunks_of(&peer.take());
        assert_eq!((first.reply, first.writes.len()), (None, items.len()));
        peer.send_error(1, ErrorBody::ReplyResource { needed });
        assert!(peer.end.finished.is_empty(), "{words} {needed}");
        let again = chunks_of(&peer.take());
        let room = offered(&again.reply.expect("no reply chunk"));
        let least = u64::from(needed).max(4 * words as u64);
        assert!((least..least + 4096).contains(&room), "{room} {needed}");
        assert_eq!(again.writes.len(), items.len());
        // What was offered this time was enough.
        peer.send_error(1, ErrorBody::ReplyResource { needed });
        assert_eq!(finished(&mut peer), (1, None), "{words} {needed}");
        assert_eq!(peer.taken(), []);
    }
    // The reply of which the responder tells the length includes the item, which has a write chunk the
    // next time.
    let mut peer = continuing();
    let long = idempotent(1, &[20_000]);
    peer.end.call(message(1, 1, &[]), &long);
    let first = chunks_of(&peer.take());
    assert_eq!((first.reply, first.writes.len()), (None, 0));
    let needed = 20_200;
    peer.send_error(1, ErrorBody::ReplyResource { needed });
    let again = chunks_of(&peer.take());
    assert_eq!(again.writes.iter().map(offered).sum::<u64>(), 20_000);
    let room_again = again.reply.as_ref().map_or(0, offered);
    assert!(room_again < 10_000, "{room_again}");
    // The next call of that kind offers chunks at once.
    peer.end.call(message(2, 1, &[]), &long);
    assert_eq!(chunks_of(&peer.take()).writes.len(), 1);
    // A call without chunks that names no length, or too much, is not repeated.
    for needed in [0, (4 << 20) + 1] {
        let mut peer = continuing();
        peer.end.call(message(1, 1, &[]), &idempotent(3000, &[]));
        assert_eq!(chunks_of(&peer.take()).reply, None);
        peer.send_error(1, ErrorBody::ReplyResource { needed });
        assert_eq!(finished(&mut peer), (1, None), "{needed}");
        assert_eq!(peer.taken(), []);
    }
}

/// The responder has not executed the call, which is sent again with no more than it takes.
#[test]
fn wg_s7_3_a_call_is_sent_again_with_fewer_chunks() {
    let items = [data(1, 90_000), data(2, 70_000), data(3, 50_000)];
    let room = room(1, &[100_000, 80_000]);
    let (reads, writes, segments) = (
        |max| ErrorBody::ReadChunks { max },
        |max| ErrorBody::WriteChunks { max },
        |max| ErrorBody::Segments { max },
    );
    for errors in [
        vec![reads(2)],
        vec![reads(0)],
        vec![writes(1)],
        vec![writes(0)],
        vec![segments(4)],
        vec![segments(1)],
        vec![reads(1), writes(0), segments(1)],
    ] {
        let mut peer = chunking();
        peer.end.call(message(1, 1, &items), &room);
        let first = chunks_of(&peer.take());
        assert_eq!((first.reads.len(), first.writes.len()), (3, 2));
        for (at, error) in errors.iter().enumerate() {
            peer.send_error(1, *error);
            assert!(peer.end.finished.is_empty(), "{error}");
            let body = peer.taken().pop().unwrap_or_else(|| panic!("{error}"));
            let sent = body.chunks().unwrap();
            // A call chunk does not count, unless there may be no read chunks.
            let listed = sent.reads.iter().filter(|read| read.position > 0);
            let listed = (listed.count(), sent.writes.len(), sent.handles().count());
            for error in &errors[..=at] {
                let kept = match *error {
                    ErrorBody::ReadChunks { max: 0 } => sent.reads.is_empty(),
                    ErrorBody::ReadChunks { max } => listed.0 <= max as usize,
                    ErrorBody::WriteChunks { max } => listed.1 <= max as usize,
                    ErrorBody::Segments { max } => listed.2 <= max as usize,
                    _ => false,
                };
                assert!(kept, "{error}: {listed:?}");
            }
        }
        // The same once more is a responder that does not say what it takes.
        peer.send_error(1, errors[errors.len() - 1]);
        assert_eq!(finished(&mut peer), (1, None), "{errors:?}");
        assert_eq!(peer.taken(), []);
        assert!(peer.end.registered.is_empty());
    }
}

/// A call that was sent, and whose chunks the peer refuses, would be sent again without them.
#[test]
fn no_call_is_sent_after_those_that_were_not_sent_were_cancelled() {
    let mut peer = chunking();
    peer.end
        .call(message(1, 1, &[data(1, 90_000)]), &room(1, &[]));
    assert_eq!(chunks_of(&peer.take()).reads.len(), 1);
    assert!(!peer.end.connection.cancel_unsent(), "it was sent");
    peer.send_error(1, ErrorBody::ReadChunks { max: 0 });
    assert_eq!(peer.taken(), []);
    assert!(peer.end.finished.is_empty() && peer.end.registered.is_empty());
    assert_eq!(peer.end.connection.unfinished_calls(), 0);
    // Nor is one that is made now.
    peer.end.call(message(2, 1, &[]), &room(1, &[]));
    assert_eq!(finished(&mut peer), (2, None));
    assert_eq!(peer.taken(), []);
}

/// A responder that reads nothing at all gets a continued call.
#[test]
fn wg_s7_3_1_a_call_is_continued_instead_of_having_chunks() {
    // With a read chunk and with a call chunk, and each without any chunk or any segment.
    for (call, external) in [
        (message(1, 1, &[data(1, 90_000)]), false),
        (message(1, 2500, &[]), true),
    ] {
        for error in [
            ErrorBody::ReadChunks { max: 0 },
            ErrorBody::Segments { max: 0 },
        ] {
            let mut peer = chunking();
            peer.end.call(call.clone(), &room(1, &[]));
            let sent = peer.taken();
            let [
                Body::Call {
                    external: is,
                    chunks,
                    ..
                },
            ] = &sent[..]
            else {
                panic!("{sent:?}");
            };
            assert_eq!((*is, chunks.reads.is_empty()), (external, false));
            peer.send_error(1, error);
            let sent = peer.taken();
            let (last, parts) = sent.split_last().unwrap();
            assert!(!parts.is_empty(), "{error}");
            assert!(parts.iter().all(|part| matches!(part, Body::Middle { .. })));
            assert!(last.chunks().is_some_and(Chunks::is_empty), "{last:?}");
            peer.send_rpc(inline_reply(Chunks::default()), &reply(1, 1, &[]));
            assert!(finished(&mut peer).1.is_some());
            assert!(peer.end.registered.is_empty());
        }
    }
}

/// The type of a continued call is that of its first part. The call is sent again by other types,
/// and the type is not used any more.
#[test]
fn wg_s7_1_3_the_refused_type_is_that_of_the_first_message() {
    let mut peer = WgPeer::client(|_| {});
    let call = message(1, 2500, &[]);
    peer.end.call(call, &room(1, &[]));
    let sent = peer.taken();
    assert!(matches!(sent[0], Body::Middle { .. }));
    peer.send_error(1, ErrorBody::InvalidHeaderType);
    let sent = peer.taken();
    assert!(matches!(sent[..], [Body::Call { external: true, .. }]));
    // It is also the type of the second part, and what is left of the call begins with no XID.
    for error in [ErrorBody::InvalidHeaderType, ErrorBody::BadXdr] {
        peer.send_error(1, error);
        assert_eq!(peer.taken(), []);
        assert!(peer.end.finished.is_empty());
        assert_eq!(peer.end.registered.len(), 1, "the call can be read");
    }
    peer.send_rpc(inline_reply(Chunks::default()), &reply(1, 1, &[]));
    assert!(finished(&mut peer).1.is_some());
    peer.end.call(message(2, 2500, &[]), &room(1, &[]));
    let sent = peer.taken();
    assert!(matches!(sent[..], [Body::Call { external: true, .. }]));
    // An error with XID zero, or for no call, changes nothing.
    let mut peer = WgPeer::client(|_| {});
    peer.send_error(0, ErrorBody::InvalidHeaderType);
    peer.send_error(1, ErrorBody::InvalidHeaderType);
    peer.end.call(message(1, 2500, &[]), &room(1, &[]));
    assert!(matches!(peer.taken()[0], Body::Middle { .. }));
}

/// Passes an error to the end, whose actions are not executed yet.
fn pass_error(peer: &mut WgPeer, xid: u32, error: ErrorBody) {
    assert!(peer.flow.take_send());
    let (credit, body) = (peer.flow.credit(peer.advertised), Body::Error(error));
    let message = encoded(&Header { xid, credit, body }, &[]);
    peer.end.receive(&message, None).unwrap();
}

/// As many errors as there were messages are about the call by the refused type, whether they
/// arrive before it is sent again or after. The next one is about the call that was sent again.
#[test]
fn wg_s7_1_3_a_refused_call_ends_with_the_error_about_its_repetition() {
    let about_parts = [
        ErrorBody::InvalidHeaderType,
        ErrorBody::InvalidHeaderType,
        ErrorBody::BadXdr,
    ];
    for at_once in [1, 2, 3] {
        for last in [
            ErrorBody::InvalidHeaderType,
            ErrorBody::BadXdr,
            ErrorBody::System,
        ] {
            let mut peer = WgPeer::client(|_| {});
            peer.end.call(message(1, 2500, &[]), &room(1, &[]));
            assert_eq!(peer.take().len(), 3);
            let (before, after) = about_parts.split_at(at_once);
            for &about in before {
                pass_error(&mut peer, 1, about);
            }
            let sent = peer.taken();
            assert!(matches!(sent[..], [Body::Call { external: true, .. }]));
            for &about in after {
                pass_error(&mut peer, 1, about);
            }
            assert_eq!(peer.taken(), []);
            assert!(peer.end.finished.is_empty());
            pass_error(&mut peer, 1, last);
            assert_eq!(peer.taken(), []);
            assert_eq!(finished(&mut peer), (1, None), "{at_once} {last}");
        }
    }
}

/// Parts that wait for credits when their type is refused are not sent: neither those of the call
/// that was refused nor those of another one. Each message that was sent is answered with an error.
#[test]
fn wg_s7_1_3_parts_of_a_refused_type_that_wait_are_not_sent() {
    for others in [0, 1] {
        let mut peer = continuing();
        // One after another, so that only the last one waits.
        let mut parts = Vec::new();
        for xid in 1..=others {
            peer.end.call(message(xid, 2500, &[]), &room(1, &[]));
            parts.push((xid, peer.take().len()));
        }
        let last = others + 1;
        peer.end.call(message(last, 120_000, &[]), &room(1, &[]));
        let sent = peer.take();
        assert!(!sent.is_empty() && sent.len() <= 100);
        let is_part = |sent: &Sent| matches!(sent.header.body, Body::Middle { .. });
        assert!(sent.iter().all(is_part), "the last part waits");
        parts.push((last, sent.len()));
        for (xid, parts) in parts {
            for at in 0..parts {
                peer.send_error(xid, ErrorBody::InvalidHeaderType);
                let mut sent = peer.taken();
                sent.retain(|body| *body != Body::Grant);
                match at {
                    0 => assert!(matches!(sent[..], [Body::Call { external: true, .. }])),
                    _ => assert_eq!(sent, []),
                }
                assert!(peer.end.finished.is_empty(), "{xid} {at}");
            }
        }
        peer.send_error(last, ErrorBody::System);
        assert_eq!(finished(&mut peer), (last, None));
    }
}

/// A call is planned in parts and waits for the registration of a chunk while the type is refused.
#[test]
fn wg_s7_1_3_a_planned_call_is_not_sent_by_a_type_refused_meanwhile() {
    let mut peer = WgPeer::client(|_| {});
    peer.end.call(message(1, 2500, &[]), &room(1, &[]));
    assert_eq!(peer.take().len(), 3);
    let call = message(2, 2500, &[data(1, 300_000)]);
    peer.end.call(call, &room(1, &[]));
    peer.end.poll();
    assert_eq!(peer.end.registering.len(), 1);
    pass_error(&mut peer, 1, ErrorBody::InvalidHeaderType);
    let sent = peer.take();
    let external = |sent: &Sent| matches!(sent.header.body, Body::Call { external: true, .. });
    assert!(sent.iter().all(external), "{sent:?}");
    let mut xids: Vec<u32> = sent.iter().map(|sent| sent.header.xid).collect();
    xids.sort_unstable();
    assert_eq!(xids, [1, 2]);
}

/// How many more errors there are after this one cannot be known, so the call is not sent again.
#[test]
fn wg_s7_2_1_a_continued_call_that_cannot_be_parsed_ends() {
    let mut peer = WgPeer::client(|_| {});
    peer.end.call(message(1, 2500, &[]), &room(1, &[]));
    assert_eq!(peer.take().len(), 3);
    peer.send_error(1, ErrorBody::BadXdr);
    assert_eq!(peer.taken(), []);
    assert_eq!(finished(&mut peer), (1, None));
}

/// A call whose payload is a chunk is sent again in several parts, and no other is sent by this type
/// any more: neither one that is registered already, nor a later one.
#[test]
fn wg_s7_1_3_calls_are_continued_if_external_ones_are_refused() {
    let mut peer = chunking();
    let long = |xid| message(xid, 2500, &[]);
    peer.end.call(long(1), &room(1, &[]));
    let external = |sent: &[Body]| matches!(sent[..], [Body::Call { external: true, .. }]);
    assert!(external(&peer.taken()));
    peer.end.room = 0;
    peer.end.call(long(2), &room(1, &[]));
    assert_eq!(peer.taken(), []);
    assert_eq!(
        peer.end.registered.len(),
        2,
        "it is to be sent like the first"
    );
    peer.send_error(1, ErrorBody::InvalidHeaderType);
    peer.end.room = usize::MAX;
    peer.end.call(long(3), &room(1, &[]));
    let sent = peer.take();
    let mut ends = Vec::new();
    for part in &sent {
        match part.header.body {
            Body::Middle { .. } => {}
            Body::Call {
                external: false, ..
            } => ends.push(part.header.xid),
            _ => panic!("{part:?}"),
        }
    }
    ends.sort_unstable();
    assert_eq!(ends, [1, 2, 3]);
    assert!(peer.end.registered.is_empty() && peer.end.finished.is_empty());
    for xid in 1..=3 {
        peer.send_rpc(inline_reply(Chunks::default()), &reply(xid, 1, &[]));
        assert!(finished(&mut peer).1.is_some());
    }
}

/// The refused type is the only other way to send such a call, so it waits for memory that others have.
#[test]
fn wg_s7_1_3_a_continued_call_waits_for_memory_if_external_ones_are_refused() {
    let dear = Duration::from_secs(1);
    let mut config = support::client(
        Choice::Only(Version::TWO_WG),
        Options::client(rpcrdma_protocols::base()),
    );
    config.pool = Pool::new(64 << 10);
    let pool = config.pool.clone();
    config.options.costs.per_message = dear;
    let mut peer = WgPeer::new(config).exchanged(&Properties::default());
    let item = || message(1, 2500, &[]);
    peer.end.call(item(), &room(1, &[]));
    let _ = peer.take();
    peer.send_error(1, ErrorBody::InvalidHeaderType);
    peer.send_rpc(inline_reply(Chunks::default()), &reply(1, 1, &[]));
    assert!(finished(&mut peer).1.is_some());
    let _ = peer.take();
    let taken = pool.alloc(60 << 10).unwrap();
    peer.end.call(message(2, 2500, &[]), &room(1, &[40_000]));
    assert_eq!((peer.taken(), peer.end.finished.len()), (Vec::new(), 0));
    drop(taken);
    peer.end.connection.retry();
    peer.end.run();
    assert!(peer.taken().len() > 1, "it was not continued");
}

/// Every peer has the type, and a call cannot be sent without it.
#[test]
fn wg_s7_1_3_a_call_ends_if_a_type_that_every_peer_has_is_refused() {
    let mut peer = WgPeer::client(|_| {});
    // The reply may be continued, so that the call is one of the extensible ones.
    peer.end.call(message(1, 1, &[]), &room(2500, &[]));
    assert!(matches!(
        peer.taken()[..],
        [Body::Call {
            external: false,
            ..
        }]
    ));
    peer.send_error(1, ErrorBody::InvalidHeaderType);
    assert_eq!(peer.taken(), []);
    assert_eq!(finished(&mut peer), (1, None));
}

#[test]
fn wg_s7_1_3_a_call_by_an_unknown_type_is_sent_by_the_base() {
    // A server that has announced the extension, and refuses its types all the same.
    let placing = |options: &mut Options| {
        options.protocols = rpcrdma_protocols::standard(&"ddp".parse().unwrap());
    };
    let announced = WgPeer::announced_by_server(placing);
    let mut peer = WgPeer::client_announced(&announced, placing);
    peer.end
        .call(message(1, 1, &[data(1, 8192)]), &room(1, &[]));
    peer.end.run();
    let placed = peer.end.sent.len();
    assert_eq!(peer.end.sent.last().unwrap().0[12], 0xff, "experimental");
    peer.skip(placed);
    peer.send_error(1, ErrorBody::InvalidHeaderType);
    let sent = peer.take();
    assert!(matches!(
        sent.last().unwrap().header.body,
        Body::Call { .. }
    ));
    peer.send_rpc(inline_reply(Chunks::default()), &reply(1, 1, &[]));
    assert!(finished(&mut peer).1.is_some());
    // Nor is the type used again.
    peer.end
        .call(message(2, 1, &[data(1, 8192)]), &room(1, &[]));
    let sent = peer.take();
    assert!(matches!(
        sent.last().unwrap().header.body,
        Body::Call { .. }
    ));
}

/// A responder that does not know the type of the parts refuses each of them, while the call is on
/// its way again.
#[test]
fn further_errors_of_a_refused_placed_call_are_ignored() {
    let placing = |options: &mut Options| {
        options.protocols = rpcrdma_protocols::standard(&"ddp".parse().unwrap());
    };
    let announced = WgPeer::announced_by_server(placing);
    let mut peer = WgPeer::client_announced(&announced, placing);
    peer.end
        .call(message(1, 1, &[data(1, 1 << 20)]), &room(1, &[]));
    peer.end.run();
    assert_eq!(peer.end.sent.len(), 1 + 16, "properties and a placed call");
    peer.skip(1 + 16);
    peer.send_error(1, ErrorBody::InvalidHeaderType);
    let sent = peer.take();
    assert_eq!(sent.len(), 1);
    assert!(matches!(sent[0].header.body, Body::Call { .. }));
    for _ in 1..16 {
        peer.send_error(1, ErrorBody::InvalidHeaderType);
        assert_eq!(peer.taken(), []);
        assert!(peer.end.finished.is_empty());
    }
    peer.send_rpc(inline_reply(Chunks::default()), &reply(1, 1, &[]));
    assert!(finished(&mut peer).1.is_some());
}

/// A responder that knows the types answers a placed call once, whatever its number of messages. So an error with
/// another code is about the call that was sent again.
#[test]
fn another_error_ends_a_refused_placed_call_at_once() {
    let placing = |options: &mut Options| {
        options.protocols = rpcrdma_protocols::standard(&"ddp".parse().unwrap());
    };
    let announced = WgPeer::announced_by_server(placing);
    let mut peer = WgPeer::client_announced(&announced, placing);
    peer.end
        .call(message(1, 1, &[data(1, 1 << 20)]), &room(1, &[]));
    peer.end.run();
    peer.skip(1 + 16);
    peer.send_error(1, ErrorBody::InvalidHeaderType);
    assert!(matches!(peer.taken()[..], [Body::Call { .. }]));
    peer.send_error(1, ErrorBody::System);
    assert_eq!(finished(&mut peer), (1, None));
}

/// The responder refuses the type by which the call is sent again as well.
#[test]
fn a_placed_call_ends_with_the_error_about_its_repetition() {
    let placing = |options: &mut Options| {
        options.protocols = rpcrdma_protocols::standard(&"ddp".parse().unwrap());
    };
    let announced = WgPeer::announced_by_server(placing);
    // Of a call in one message, there are no further errors.
    for (len, parts) in [(8192, 1), (1 << 20, 16)] {
        let mut peer = WgPeer::client_announced(&announced, placing);
        peer.end.call(message(1, 1, &[data(1, len)]), &room(1, &[]));
        peer.end.run();
        assert_eq!(peer.end.sent.len(), 1 + parts);
        peer.skip(1 + parts);
        for _ in 0..parts {
            peer.send_error(1, ErrorBody::InvalidHeaderType);
            assert!(peer.end.finished.is_empty());
        }
        let sent = peer.taken();
        assert!(matches!(sent.last(), Some(Body::Call { .. })));
        peer.send_error(1, ErrorBody::InvalidHeaderType);
        assert_eq!(peer.taken(), []);
        assert_eq!(finished(&mut peer), (1, None), "{parts}");
    }
}

#[test]
fn wg_s5_2_4_the_segment_count_is_that_of_a_header() {
    let header = |read_segments: u32, reply_segments: usize| Chunks {
        reads: (0..read_segments).map(|_| read(8, 4)).collect(),
        writes: vec![chunk(&[8; 100])],
        reply: Some(chunk(&vec![8; reply_segments])),
    };
    let mut peer = WgPeer::server(|server| server.inline_receive = 16 << 10);
    peer.send(7, inline_call(header(100, 57)), &bytes(&message(7, 1, &[])));
    assert_eq!(peer.errors(), [(7, ErrorBody::Segments { max: 256 })]);
    assert!(peer.end.reads.is_empty() && peer.end.delivered.is_empty());
    peer.send(8, inline_call(header(100, 56)), &bytes(&message(8, 1, &[])));
    assert_eq!(peer.taken(), []);
    assert!(!peer.end.reads.is_empty());
}

#[test]
fn wg_s7_3_2_too_many_write_chunks_are_refused_before_the_call_is_executed() {
    for (count, taken) in [(16, true), (17, false)] {
        let mut peer = WgPeer::server(|_| {});
        let chunks = writes(vec![chunk(&[100]); count]);
        peer.send(7, inline_call(chunks), &bytes(&message(7, 1, &[])));
        assert_eq!(peer.end.delivered.len(), usize::from(taken));
        let expected = [(7, ErrorBody::WriteChunks { max: 16 })];
        assert_eq!(peer.errors(), expected[usize::from(taken)..]);
    }
}

/// The maximum length of a message of the servers of [`brief`], bytes.
const LONGEST: u32 = 20_000;

/// Returns a server that continues no reply longer than [`LONGEST`], to which a call with these chunks was
/// delivered.
fn brief(chunks: Chunks) -> WgPeer {
    let mut peer = WgPeer::server(|server| server.max_message = LONGEST);
    peer.send(7, inline_call(chunks), &bytes(&message(7, 1, &[])));
    assert_eq!(peer.taken(), []);
    peer
}

#[test]
fn wg_s7_3_5_a_reply_that_is_too_long_for_everything_is_answered_with_reply_resource() {
    // Without chunks, with a chunk that is too short, and with one that is long enough.
    let chunks = [
        (Chunks::default(), false),
        (reply_chunk(chunk(&[10_000, 11_000])), false),
        (reply_chunk(chunk(&[10_000, 15_000])), true),
    ];
    for (chunks, fits) in chunks {
        let mut peer = brief(chunks.clone());
        let answer = reply(7, 6000, &[]);
        let needed = answer.payload_len() as u32;
        assert!((21_001..25_000).contains(&needed), "{needed}");
        peer.reply(Some(answer));
        if fits {
            assert!(matches!(
                peer.taken()[..],
                [Body::Reply { external: true, .. }]
            ));
        } else {
            let error = ErrorBody::ReplyResource { needed };
            assert_eq!(peer.errors(), [(7, error)], "{chunks:?}");
        }
    }
    // A result for which the call has no write chunk counts as well.
    let mut peer = brief(Chunks::default());
    let answer = reply(7, 1, &[data(1, 30_000)]);
    let needed = bytes(&answer).len() as u32;
    peer.reply(Some(answer));
    assert_eq!(peer.errors(), [(7, ErrorBody::ReplyResource { needed })]);
    // One that is not too long to be continued.
    let mut peer = brief(Chunks::default());
    peer.reply(Some(reply(7, 4900, &[])));
    assert!(matches!(peer.taken()[0], Body::Middle { .. }));
}

/// Whether the reply fits one message or is continued, the second result takes the only chunk.
#[test]
fn wg_s4_5_2_1_a_result_without_bytes_leaves_its_write_chunk_to_the_next() {
    for words in [1, 2500] {
        let mut peer = WgPeer::server(|_| {});
        let offered = writes(vec![chunk(&[9000])]);
        peer.send(7, inline_call(offered), &bytes(&message(7, 1, &[])));
        let answer = reply(7, words, &[Bytes::new(), data(1, 9000)]);
        let item = answer.items()[0].clone();
        // The position of the empty item: behind the head of the reply, its words, and the item's length.
        let empty = BulkItem {
            position: Position::At(16 + 4 * words as u32),
            data: Bulk::new(),
        };
        peer.reply(Some(Message::new(answer.into_payload(), [empty, item])));
        let sent = peer.taken();
        assert_eq!(sent.len() > 1, words > 1, "{sent:?}");
        let returned = sent.iter().find_map(Body::chunks).unwrap();
        assert_eq!(returned.writes, [chunk(&[9000])], "{words}");
        assert_eq!(peer.end.written, [9000], "{words}");
    }
}

#[test]
fn wg_s7_3_4_a_result_too_long_for_its_chunk_is_answered_with_write_resource() {
    let cases = [
        (&[29_999, 300][..], 1, 30_000),
        (&[30_000, 299], 2, 300),
        (&[29_999, 299], 1, 30_000),
    ];
    for (lengths, chunk, needed) in cases {
        let offered = lengths.iter().map(|&len| self::chunk(&[len])).collect();
        let mut peer = brief(writes(offered));
        peer.reply(Some(reply(7, 1, &[data(1, 30_000), data(2, 300)])));
        let error = ErrorBody::WriteResource { chunk, needed };
        assert_eq!(peer.errors(), [(7, error)], "{lengths:?}");
        assert!(peer.end.written.is_empty(), "{lengths:?}");
    }
    let mut peer = brief(writes(vec![chunk(&[29_000, 1000]), chunk(&[300])]));
    peer.reply(Some(reply(7, 1, &[data(1, 30_000), data(2, 300)])));
    assert!(matches!(peer.taken()[..], [Body::Reply { .. }]));
}

#[test]
fn wg_s6_5_errors_grants_and_properties_invalidate_nothing() {
    let mut peer = WgPeer::listening(|server| server.max_message = LONGEST);
    peer.properties(Properties::default().encode(), true);
    let call = |handle: u32, position: u32| Body::Call {
        external: false,
        inv_handle: handle,
        chunks: reads(vec![ReadSegment {
            position,
            segment: segment(handle, 8),
        }]),
    };
    // Two calls whose data the server has read, and which it has not answered.
    for (xid, handle) in [(7, 50), (8, 60)] {
        let call_message = message(xid, 1, &[data(1, 8)]);
        let payload = call_message.gather(|_| false).concat();
        peer.send(xid, call(handle, 20), &payload);
        for mut read in std::mem::take(&mut peer.end.reads) {
            read.sink.copy_from_slice(&data(1, 8));
            peer.end.read_done(read);
        }
    }
    // Meanwhile, a call in so many parts that they need further credits.
    let parts = bytes(&message(9, 4000, &[]));
    let (last, middle) = (&parts[parts.len() - 500..], &parts[..parts.len() - 500]);
    let mut sent = middle.len();
    let mut left = parts.len();
    while sent > 0 {
        let part = &middle[middle.len() - sent..][..sent.min(500)];
        sent -= part.len();
        left -= part.len();
        peer.send_middle(Direction::Call, 9, part, left);
    }
    peer.send(9, inline_call(Chunks::default()), last);
    peer.reply(Some(reply(7, 6000, &[])));
    peer.reply(Some(reply(8, 1, &[])));
    let sent = peer.take();
    let kinds = |wanted: fn(&Body) -> bool| {
        let sent = sent.iter().filter(|sent| wanted(&sent.header.body));
        sent.map(|sent| sent.invalidate).collect::<Vec<_>>()
    };
    assert_eq!(
        kinds(|body| matches!(body, Body::Properties { .. })),
        [None]
    );
    assert_eq!(kinds(|body| matches!(body, Body::Error(_))), [None]);
    let grants = kinds(|body| matches!(body, Body::Grant));
    assert!(!grants.is_empty() && grants.iter().all(Option::is_none));
    let replies = kinds(|body| matches!(body, Body::Reply { .. }));
    assert_eq!(replies, [Some(Stag(60))]);
}

/// The call is well-formed and no longer than this end takes, but its chunks have no room in the
/// pool at any time.
#[test]
fn wg_s7_4_1_a_call_that_the_host_never_has_memory_for_is_a_system_error() {
    let mut config = support::server(
        Versions::only(Version::TWO_WG),
        Options::server(rpcrdma_protocols::base()),
    );
    config.pool = Pool::new(64 << 10);
    let mut peer = WgPeer::new(config).exchanged(&Properties::default());
    let whole = message(7, 1, &[data(1, 100_000)]);
    let payload = whole.gather(|_| false).concat();
    peer.send(7, inline_call(reads(vec![read(20, 100_000)])), &payload);
    assert_eq!(peer.errors(), [(7, ErrorBody::System)]);
    let long = Body::Call {
        external: true,
        inv_handle: 0,
        chunks: reads(vec![read(0, 100_000)]),
    };
    peer.send(8, long, &[]);
    assert_eq!(peer.errors(), [(8, ErrorBody::System)]);
    assert!(peer.end.reads.is_empty() && peer.end.delivered.is_empty());
    // A shorter one is executed.
    peer.send_rpc(inline_call(Chunks::default()), &message(9, 1, &[]));
    peer.reply(Some(reply(9, 1, &[])));
    assert!(matches!(peer.taken()[..], [Body::Reply { .. }]));
}

#[test]
fn wg_ulb_s5_4_2_several_chunks_are_taken_within_the_segment_count() {
    let mut peer = WgPeer::server(|_| {});
    let items = [data(1, 8), data(2, 12)];
    let whole = message(7, 1, &items);
    let lists = Chunks {
        reads: vec![read(20, 8), read(32, 4), read(32, 8)],
        writes: vec![chunk(&[8]), chunk(&[4, 4])],
        reply: None,
    };
    let payload = whole.gather(|_| false).concat();
    peer.send(7, inline_call(lists), &payload);
    let mut parts = [&items[0][..], &items[1][..4], &items[1][4..]].into_iter();
    for mut read in std::mem::take(&mut peer.end.reads) {
        read.sink.copy_from_slice(parts.next().unwrap());
        peer.end.read_done(read);
    }
    peer.end.run();
    assert_eq!(open(&peer.end.delivered[0].1).2, items);
    peer.reply(Some(reply(7, 1, &[data(3, 8), data(4, 7)])));
    let lengths: Vec<Vec<u32>> = chunks_of(&peer.take())
        .writes
        .iter()
        .map(|chunk| chunk.iter().map(|segment| segment.length).collect())
        .collect();
    assert_eq!(lengths, [vec![8], vec![4, 3]]);
}

#[test]
fn wg_s4_5_1_chunks_that_overlap_or_lie_beyond_the_payload_are_refused() {
    // The payload of the call has 20 bytes, and its first chunk reaches to position 24.
    let payload = bytes(&message(7, 1, &[]));
    assert_eq!(payload.len(), 20);
    let cases = [
        (vec![read(12, 9), read(20, 4)], false),
        (vec![read(12, 9), read(24, 4)], true),
        (vec![read(24, 4)], false),
        (vec![read(20, 4)], true),
        (vec![read(16, 4), read(28, 4)], false),
        (vec![read(16, 4), read(24, 4)], true),
    ];
    for (list, taken) in cases {
        let mut peer = WgPeer::server(|_| {});
        peer.send(7, inline_call(reads(list.clone())), &payload);
        let expected = [(7, ErrorBody::BadXdr)];
        assert_eq!(peer.errors(), expected[usize::from(taken)..], "{list:?}");
        assert_eq!(peer.end.reads.is_empty(), !taken, "{list:?}");
    }
}

#[test]
fn wg_s5_2_5_a_call_beyond_the_announced_support_is_refused() {
    let external = Body::Call {
        external: true,
        inv_handle: 0,
        chunks: reads(vec![read(0, 40)]),
    };
    let cases = [
        (external, ErrorBody::ReadChunks { max: 0 }),
        (
            inline_call(reads(vec![read(8, 4)])),
            ErrorBody::ReadChunks { max: 0 },
        ),
        (
            inline_call(writes(vec![chunk(&[8])])),
            ErrorBody::WriteChunks { max: 0 },
        ),
    ];
    let payload = bytes(&message(7, 1, &[]));
    for (body, error) in cases {
        let mut peer = both_ways(false);
        let external = matches!(body, Body::Call { external: true, .. });
        peer.send(7, body, if external { &[] } else { &payload });
        assert_eq!(peer.errors(), [(7, error)]);
        assert!(peer.end.reads.is_empty() && peer.end.delivered.is_empty());
    }
    // A reply chunk is left unused.
    let mut peer = both_ways(false);
    peer.send(7, inline_call(reply_chunk(chunk(&[9000]))), &payload);
    peer.reply(Some(reply(7, 1500, &[])));
    let sent = peer.taken();
    assert!(matches!(
        sent[..],
        [
            Body::Middle { .. },
            Body::Reply {
                external: false,
                ..
            }
        ]
    ));
    // A client without support takes no call at all.
    let mut peer = WgPeer::client(|_| {});
    peer.send(7, inline_call(Chunks::default()), &payload);
    peer.send_middle(Direction::Call, 8, &payload, 8);
    let refused = [7, 8].map(|xid| (xid, ErrorBody::InvalidHeaderType));
    assert_eq!(peer.errors(), refused);
}

#[test]
fn wg_s4_5_2_1_unused_chunks_come_back_with_zero_lengths() {
    let offered = vec![chunk(&[100, 50]), chunk(&[200])];
    let mut peer = WgPeer::server(|_| {});
    let call = inline_call(writes(offered.clone()));
    peer.send(7, call, &bytes(&message(7, 1, &[])));
    peer.reply(Some(reply(7, 1, &[])));
    let expected: Vec<_> = offered.iter().map(|chunk| unused(chunk)).collect();
    assert_eq!(chunks_of(&peer.take()).writes, expected);
}

#[test]
fn wg_s4_5_2_1_empty_and_unused_chunks_are_taken_alike() {
    let answer = reply(1, 1, &[]);
    let (_, offered) = offering(&[400_000, 300_000]);
    assert_eq!(offered.writes.len(), 2);
    let zeroes: Vec<_> = offered.writes.iter().map(|chunk| unused(chunk)).collect();
    let empty = WriteChunk::new();
    let returned = [
        vec![],
        vec![empty.clone()],
        vec![empty.clone(), empty.clone()],
        zeroes.clone(),
        zeroes[..1].to_vec(),
        vec![empty.clone(), zeroes[1].clone()],
    ];
    for list in returned {
        let (mut peer, _) = offering(&[400_000, 300_000]);
        peer.send_rpc(inline_reply(writes(list.clone())), &answer);
        assert!(finished(&mut peer).1.is_some(), "{list:?}");
    }
    // More than was offered fails the call.
    let mut longer = zeroes[0].clone();
    longer.push(segment(77, 0));
    let more = [
        vec![zeroes[0].clone(), zeroes[1].clone(), empty],
        vec![longer, zeroes[1].clone()],
    ];
    for list in more {
        let (mut peer, _) = offering(&[400_000, 300_000]);
        peer.send_rpc(inline_reply(writes(list.clone())), &answer);
        assert_eq!(finished(&mut peer), (1, None), "{list:?}");
        assert_eq!(peer.taken(), []);
    }
}

#[test]
fn wg_s6_6_3_a_reply_chunk_is_used_if_it_is_long_enough() {
    let answer = reply(7, 1500, &[]);
    let len = bytes(&answer).len() as u32;
    for (offered, external) in [(len, true), (len - 4, false)] {
        let mut peer = WgPeer::server(|_| {});
        let call = inline_call(reply_chunk(chunk(&[offered])));
        peer.send(7, call, &bytes(&message(7, 1, &[])));
        peer.reply(Some(answer.clone()));
        let sent = peer.taken();
        match external {
            true => assert!(matches!(sent[..], [Body::Reply { external: true, .. }])),
            false => assert!(matches!(
                sent[..],
                [
                    Body::Middle { .. },
                    Body::Reply {
                        external: false,
                        ..
                    }
                ]
            )),
        }
    }
}

/// Returns a client that has offered a reply chunk.
fn with_reply_chunk() -> (WgPeer, WriteChunk) {
    let mut peer = chunking();
    peer.end.call(message(1, 1, &[]), &room(3000, &[]));
    let chunk = chunks_of(&peer.take()).reply.expect("no reply chunk");
    (peer, chunk)
}

#[test]
fn wg_s6_6_4_a_reply_in_any_format_is_taken() {
    let answer = bytes(&reply(1, 500, &[]));
    let (mut peer, _) = with_reply_chunk();
    peer.send(1, inline_reply(Chunks::default()), &answer);
    assert!(finished(&mut peer).1.is_some(), "simple");
    let (mut peer, _) = with_reply_chunk();
    peer.send_middle(Direction::Reply, 1, &answer[..100], answer.len() - 100);
    peer.send(1, inline_reply(Chunks::default()), &answer[100..]);
    assert!(finished(&mut peer).1.is_some(), "continued");
    let (mut peer, mut chunk) = with_reply_chunk();
    let to = chunk[0];
    peer.end
        .remote_write(Stag(to.handle), to.offset, &answer)
        .unwrap();
    chunk[0].length = answer.len() as u32;
    let body = Body::Reply {
        external: true,
        chunks: reply_chunk(chunk),
    };
    peer.send(1, body, &[]);
    let (_, result) = finished(&mut peer);
    assert_eq!(open(&result.unwrap()).1, 500, "special");
}

#[test]
fn wg_s6_3_10_a_reply_chunk_that_does_not_come_back_was_not_used() {
    let (mut peer, chunk) = with_reply_chunk();
    let handle = Stag(chunk[0].handle);
    assert!(peer.end.registered.contains_key(&handle));
    peer.send_rpc(inline_reply(Chunks::default()), &reply(1, 1, &[]));
    assert!(finished(&mut peer).1.is_some());
    assert_eq!(peer.end.invalidated, [handle]);
    assert!(peer.end.registered.is_empty());
}

#[test]
fn wg_s6_5_a_handle_in_the_call_allows_invalidation_in_both_directions() {
    let mut forward = WgPeer::server(|_| {});
    let mut reverse = both_ways(true);
    for peer in [&mut forward, &mut reverse] {
        for handle in [1, 0] {
            let call = Body::Call {
                external: false,
                inv_handle: handle,
                chunks: writes(vec![chunk(&[100])]),
            };
            peer.send(7, call, &bytes(&message(7, 1, &[])));
            peer.reply(Some(reply(7, 1, &[])));
            let sent = peer.take();
            let invalidated = sent[0].invalidate.map(|stag| stag.0);
            assert_eq!(invalidated, Some(handle).filter(|&handle| handle != 0));
        }
    }
}

/// The item goes without its padding, and neither end takes the padding from its buffers.
#[test]
fn wg_s4_5_3_1_padding_of_a_reduced_item_is_put_back_as_zeroes() {
    let item = data(1, 5);
    let whole = message(7, 1, std::slice::from_ref(&item));
    let mut peer = WgPeer::server(|_| {});
    let payload = whole.gather(|_| false).concat();
    peer.send(7, inline_call(reads(vec![read(20, 5)])), &payload);
    let mut read = peer.end.reads.remove(0);
    assert_eq!(read.sink.len(), 5);
    read.sink.copy_from_slice(&item);
    peer.end.read_done(read);
    peer.end.run();
    let delivered = bytes(&peer.end.delivered[0].1);
    assert_eq!(delivered, bytes(&whole));
    assert_eq!(delivered[20..28], [&item[..], &[0; 3]].concat());
    // What is continued has it as well.
    let mut client = WgPeer::client(|_| {});
    let items = [data(2, 4999), data(3, 5)];
    client.end.call(message(1, 1, &items), &room(1, &[]));
    let sent: Vec<u8> = client
        .take()
        .iter()
        .flat_map(|part| part.payload.to_vec())
        .collect();
    assert_eq!(sent, bytes(&message(1, 1, &items)));
    assert_eq!(
        (sent[20 + 4999], sent[24 + 5000 + 5..][..3] == [0; 3]),
        (0, true)
    );
}

#[test]
fn wg_s7_1_1_a_version_that_is_not_supported_is_answered_with_err_vers() {
    for version in [0, 3, 255] {
        let mut peer = WgPeer::server(|_| {});
        let body = inline_call(Chunks::default());
        let header = Header {
            xid: 9,
            credit: 100,
            body,
        };
        let mut call = encoded(&header, &bytes(&message(9, 1, &[]))).to_vec();
        call[7] = version;
        peer.send_bytes(&Bytes::from(call));
        let answer = &peer.end.sent.last().unwrap().0;
        let words = answer
            .chunks(4)
            .map(|word| u32::from_be_bytes(word.try_into().unwrap()));
        let words: Vec<u32> = words.collect();
        assert_eq!((words[0], words[1]), (9, u32::from(version)));
        assert_eq!(words[3..], [4, 1, 2, 2]);
        assert!(peer.end.delivered.is_empty());
    }
}
