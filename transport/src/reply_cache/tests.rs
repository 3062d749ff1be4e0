//! Tests of the reply cache.

use std::net::IpAddr;

use bytes::Bytes;
use onc_rpc::{AuthSys, CallHeader, Credential, Decoder, Encoder, Verifier};
use quickcheck::quickcheck;

use super::*;
use crate::PeerOrigin;

const NOW: Time = Time::ZERO;

fn call(xid: u32, args: Message) -> (CallHeader, Message, u64) {
    call_by(Credential::None, xid, args)
}

fn call_by(cred: Credential, xid: u32, args: Message) -> (CallHeader, Message, u64) {
    let header = CallHeader {
        xid,
        prog: 1,
        vers: 1,
        proc: 1,
        cred,
        verf: Verifier::default(),
    };
    let mut message = args;
    message.prepend(header.encode());
    let mut decoder = Decoder::new(&message);
    let header = CallHeader::decode(&mut decoder).unwrap();
    let at = decoder.position();
    (header, message, at)
}

fn key(xid: u32, args: &[u8]) -> CallKey {
    let mut encoder = Encoder::new();
    encoder.opaque(args);
    let (header, message, at) = call(xid, encoder.finish());
    CallKey::new(IpAddr::from([127, 0, 0, 1]), &header, &message, at)
}

fn reply(len: usize) -> Message {
    Message::from_payload(Bytes::from(vec![7; len]))
}

#[test]
fn a_key_is_of_the_call_and_not_of_how_it_was_conveyed() {
    let data = Bytes::from(vec![5; 100]);
    let mut apart = Encoder::new();
    apart.u32(9).bulk(data.clone()).u32(10);
    let mut inline = Encoder::new();
    inline.u32(9).opaque(&data).u32(10);
    let peer = IpAddr::from([127, 0, 0, 1]);
    let [apart, inline] = [apart, inline].map(|encoder| {
        let (header, message, at) = call(1, encoder.finish());
        CallKey::new(peer, &header, &message, at)
    });
    assert_eq!(apart, inline);
    assert_ne!(key(1, b"one"), key(1, b"two"));
    assert_ne!(key(1, b"one"), key(2, b"one"));
    assert_ne!(key(1, &[0; 300]), key(1, &[0; 304]));
}

/// Returns the key of a call whose data comes in pieces of `piece` bytes.
fn key_of_pieces(data: &[u8], piece: usize) -> CallKey {
    let mut args = Encoder::new();
    let pieces = data.chunks(piece).map(Bytes::copy_from_slice);
    args.u32(9).bulk(pieces.collect::<onc_rpc::Bulk>()).u32(10);
    let (header, message, at) = call(1, args.finish());
    CallKey::new(IpAddr::from([127, 0, 0, 1]), &header, &message, at)
}

/// Regression test: a WRITE whose data differed from those of an earlier one with the same XID
/// after byte 256 was answered as its retransmission, and never executed.
#[test]
fn calls_that_differ_at_their_beginning_their_end_or_in_between_are_told_apart() {
    for len in [100, 500, 600, 4 << 10, 8 << 10, 1 << 20] {
        let data = vec![5; len];
        let whole = key_of_pieces(&data, len);
        let pieces = [7, 1 << 10, 3000];
        for piece in pieces {
            assert_eq!(key_of_pieces(&data, piece), whole);
        }
        let differs_in = |range: std::ops::Range<usize>, piece| {
            let mut other = data.clone();
            other[range].fill(6);
            key_of_pieces(&other, piece) != whole
        };
        let ends = (0..len.min(240)).chain(len - len.min(240)..len);
        for at in ends.step_by(3) {
            assert!(differs_in(at..at + 1, len), "byte {at} of {len}");
        }
        let gap = (len / 32).max(8);
        for at in (0..len.saturating_sub(gap)).step_by(gap / 2) {
            let piece = pieces[at % 3];
            assert!(differs_in(at..at + gap, piece), "byte {at} of {len}");
        }
    }
    // It would cost too much to read all.
    let mut other = vec![5; 8 << 10];
    let key = key_of_pieces(&other, 1 << 13);
    other[1000] = 6;
    assert_eq!(key_of_pieces(&other, 1 << 13), key);
}

#[test]
fn users_of_one_machine_do_not_get_each_others_replies() {
    let key = |cred| {
        let mut args = Encoder::new();
        args.opaque(b"the same");
        let (header, message, at) = call_by(cred, 1, args.finish());
        CallKey::new(IpAddr::from([127, 0, 0, 1]), &header, &message, at)
    };
    let sys = AuthSys {
        stamp: 1,
        machine_name: "one".into(),
        uid: 10,
        gid: 20,
        gids: [30].into_iter().collect(),
    };
    let again = AuthSys {
        stamp: 2,
        ..sys.clone()
    };
    let same = key(Credential::Sys(sys.clone()));
    assert_eq!(same, key(Credential::Sys(again)));
    let others = [
        AuthSys {
            uid: 11,
            ..sys.clone()
        },
        AuthSys {
            gid: 21,
            ..sys.clone()
        },
        AuthSys {
            gids: [31].into_iter().collect(),
            ..sys.clone()
        },
        AuthSys {
            machine_name: "two".into(),
            ..sys
        },
    ];
    for other in others {
        assert_ne!(same, key(Credential::Sys(other)));
    }
    assert_ne!(same, key(Credential::None));
}

#[test]
fn a_user_of_this_host_does_not_get_or_make_the_reply_to_a_call_that_claims_anothers_identity() {
    let this_host = |user| key(1, b"x").with_origin(PeerOrigin::ThisHost { user });
    let keys = [Some(0), Some(1000), None].map(this_host);
    assert_ne!(keys[0], keys[1]);
    assert_ne!(keys[0], keys[2]);
    let elsewhere = |origin| key(1, b"x").with_origin(origin);
    assert_ne!(keys[2], elsewhere(PeerOrigin::OverTcp));
    assert_eq!(
        elsewhere(PeerOrigin::OverRdma),
        elsewhere(PeerOrigin::OverTcp)
    );
}

#[test]
fn a_call_is_new_then_in_progress_then_done() {
    let cache = ReplyCache::new(10, 1 << 20);
    let key = key(1, b"x");
    let look_up = |job| cache.look_up(key, JobId { member: 0, job }, 0, NOW);
    assert!(matches!(look_up(3), Known::New));
    assert!(matches!(look_up(4), Known::InProgress(3, None)));
    assert_eq!(cache.finish(key, reply(8), true, NOW), None);
    assert!(matches!(look_up(5), Known::Done(message) if message == reply(8)));
}

#[test]
fn the_reply_of_another_loop_is_for_the_last_transmission() {
    let cache = ReplyCache::new(10, 1 << 20);
    let key = key(1, b"x");
    let look_up = |member, ticket| cache.look_up(key, JobId { member, job: 9 }, ticket, NOW);
    let waiter = |member, ticket| Waiter { member, ticket };
    assert!(matches!(look_up(0, 0), Known::New));
    assert!(matches!(look_up(1, 5), Known::Elsewhere(None)));
    // Of several retransmissions the last one is answered, wherever it arrived.
    assert!(matches!(look_up(2, 6), Known::Elsewhere(Some(earlier)) if earlier == waiter(1, 5)));
    assert!(
        matches!(look_up(0, 0), Known::InProgress(9, Some(earlier)) if earlier == waiter(2, 6))
    );
    assert!(matches!(look_up(1, 7), Known::Elsewhere(None)));
    assert_eq!(cache.finish(key, reply(8), true, NOW), Some(waiter(1, 7)));
    assert!(matches!(look_up(2, 8), Known::Done(_)));
    // The same holds for a reply that is too long to be stored.
    let cache = ReplyCache::new(10, 1000);
    for member in [0, 1] {
        cache.look_up(key, JobId { member, job: 1 }, 3, NOW);
    }
    assert_eq!(
        cache.finish(key, reply(8000), true, NOW),
        Some(waiter(1, 3))
    );
}

#[test]
fn many_threads_agree_on_who_executes_a_call() {
    let cache = ReplyCache::new(64 << 10, 64 << 20);
    assert_eq!(cache.parts.len(), MOST_PARTS);
    let (calls, threads) = (2000, 4);
    let executed: usize = std::thread::scope(|scope| {
        let work = |member| {
            let cache = &cache;
            move || {
                let mut executed = 0;
                for xid in 0..calls {
                    let key = key(xid, b"x");
                    let asking = JobId { member, job: 1 };
                    if matches!(cache.look_up(key, asking, 0, NOW), Known::New) {
                        executed += 1;
                        cache.finish(key, reply(8), true, NOW);
                    }
                }
                executed
            }
        };
        let threads: Vec<_> = (0..threads).map(|at| scope.spawn(work(at))).collect();
        threads
            .into_iter()
            .map(|thread| thread.join().unwrap())
            .sum()
    });
    assert_eq!(executed, calls as usize);
    let kept = cache.parts.iter().map(|part| part.lock().done.len());
    assert!(kept.clone().all(|kept| kept == calls as usize / MOST_PARTS));
}

#[test]
fn the_least_recently_used_goes_first() {
    let mut cache = Part::new(2, 1 << 20);
    let keys: Vec<_> = (0..3).map(|xid| key(xid, b"x")).collect();
    for key in &keys[..2] {
        look_up(&mut cache, *key, 0, NOW);
        cache.finish(*key, reply(8), true, NOW);
    }
    assert!(matches!(
        look_up(&mut cache, keys[0], 0, NOW),
        Known::Done(_)
    ));
    look_up(&mut cache, keys[2], 0, NOW);
    cache.finish(keys[2], reply(8), true, NOW);
    assert!(matches!(
        look_up(&mut cache, keys[0], 0, NOW),
        Known::Done(_)
    ));
    assert!(matches!(look_up(&mut cache, keys[1], 0, NOW), Known::New));
}

#[test]
fn bytes_are_bounded_and_running_calls_stay() {
    let mut cache = Part::new(100, 3500);
    let running = key(1000, b"x");
    look_up(&mut cache, running, 77, NOW);
    for xid in 0..50 {
        look_up(&mut cache, key(xid, b"x"), 0, NOW);
        cache.finish(key(xid, b"x"), reply(1000), true, NOW);
        assert!(cache.changes.bytes <= 3500);
    }
    assert_eq!(cache.done.len(), 2);
    assert_eq!(cache.entries.len(), 3);
    assert!(matches!(
        look_up(&mut cache, running, 0, NOW),
        Known::InProgress(77, None)
    ));
    // A reply that exceeds the limit by itself is not stored and evicts nothing.
    cache.finish(running, reply(5000), true, NOW);
    assert_eq!((cache.done.len(), cache.entries.len()), (2, 2));
    assert!(matches!(look_up(&mut cache, running, 0, NOW), Known::New));
}

#[test]
fn what_is_old_is_forgotten_unless_it_was_asked_for() {
    let mut cache = Part::new(10, 1 << 20);
    let (old, asked, running) = (key(1, b"x"), key(2, b"x"), key(3, b"x"));
    // The one that is asked for is the first one, and must not hide that the other one is old.
    for key in [asked, old] {
        look_up(&mut cache, key, 0, NOW);
        cache.finish(key, reply(8), true, NOW);
    }
    look_up(&mut cache, running, 7, NOW);
    let later = NOW + MAX_AGE;
    assert!(matches!(
        look_up(&mut cache, asked, 0, later),
        Known::Done(_)
    ));
    let late = later + Duration::from_secs(1);
    assert!(matches!(look_up(&mut cache, old, 0, late), Known::New));
    assert!(matches!(
        look_up(&mut cache, asked, 0, late),
        Known::Done(_)
    ));
    assert!(matches!(
        look_up(&mut cache, running, 0, late),
        Known::InProgress(7, None)
    ));
    cache.finish(old, reply(8), true, late);
    assert!(matches!(look_up(&mut cache, old, 0, late), Known::Done(_)));
    let much_later = late + MAX_AGE + Duration::from_secs(1);
    look_up(&mut cache, key(4, b"x"), 0, much_later);
    assert_eq!((cache.changes.bytes, cache.done.len()), (0, 0));
    assert_eq!(cache.entries.len(), 2, "what runs stays");
}

/// Looks up a call in the only loop.
fn look_up(cache: &mut Part, key: CallKey, job: usize, now: Time) -> Known {
    cache.look_up(key, JobId { member: 0, job }, 0, now)
}

/// Tests the claim of the module documentation about the default limits.
#[test]
fn the_default_limits_hold_the_replies_of_every_call_that_can_be_outstanding() {
    let options = crate::ServerOptions::default();
    let credits = crate::rdma::RdmaServerOptions::new(rpcrdma_protocols::base())
        .common
        .credits as usize;
    let outstanding = options.max_connections * credits;
    assert!(options.reply_cache_entries >= 2 * outstanding);
    let cache = ReplyCache::new(options.reply_cache_entries, options.reply_cache_bytes);
    for xid in 0..2 * outstanding as u32 {
        let key = key(xid, b"x");
        cache.look_up(key, JobId { member: 0, job: 0 }, 0, NOW);
        cache.finish(key, reply(250), true, NOW);
    }
    let kept = cache.parts.iter().map(|part| part.lock().done.len());
    assert_eq!(kept.sum::<usize>(), 2 * outstanding);
    // The overhead that is counted is at least what an entry takes in the tables.
    let entry = size_of::<(CallKey, State)>() + size_of::<Done>();
    assert!(OVERHEAD >= entry, "{entry}");
}

/// Returns the key of a call from here by a user of this host.
fn key_by(user: u32, xid: u32) -> CallKey {
    key(xid, b"x").with_origin(PeerOrigin::ThisHost { user: Some(user) })
}

/// Executes a call.
fn execute(cache: &mut Part, key: CallKey, changed: bool) {
    assert!(matches!(look_up(cache, key, 0, NOW), Known::New));
    cache.finish(key, reply(200), changed, NOW);
}

/// Returns whether the reply to a call is still there, without using it.
fn is_kept(cache: &Part, key: &CallKey) -> bool {
    matches!(cache.entries.get(key), Some(State::Done(_)))
}

/// Regression test: one client emptied the cache of all others.
#[test]
fn a_client_that_makes_many_changes_evicts_its_own_replies() {
    let mut cache = Part::new(100, 1 << 20);
    let quiet: Vec<_> = (0..30).map(|xid| key_by(0, xid)).collect();
    for key in &quiet {
        execute(&mut cache, *key, true);
    }
    for xid in 0..1000 {
        execute(&mut cache, key_by(1000, xid), true);
    }
    assert!(quiet.iter().all(|key| is_kept(&cache, key)));
    assert!((930..1000).all(|xid| is_kept(&cache, &key_by(1000, xid))));
    // A third client gets its fair share from the one that has the most.
    for xid in 0..1000 {
        execute(&mut cache, key_by(1001, xid), true);
    }
    assert!(quiet.iter().all(|key| is_kept(&cache, key)));
    let kept = |user| {
        let of = |xid: &u32| is_kept(&cache, &key_by(user, *xid));
        (0..1000).filter(of).count()
    };
    assert_eq!((kept(1000), kept(1001)), (37, 33));
}

/// Regression test: 140,000 failing REMOVEs evicted the reply to another user's REMOVE, which was
/// then executed again.
#[test]
fn failures_evict_no_more_than_an_eighth_of_the_changes() {
    let mut cache = Part::new(80, 1 << 20);
    for xid in 0..80 {
        execute(&mut cache, key_by(0, xid), true);
    }
    for xid in 1000..2000 {
        execute(&mut cache, key_by(1000 + xid % 3, xid), false);
    }
    assert_eq!((cache.changes.entries, cache.others.entries), (70, 10));
    assert!((10..80).all(|xid| is_kept(&cache, &key_by(0, xid))));
    // They are kept as well, and leave first.
    assert!((1991..2000).all(|xid| is_kept(&cache, &key_by(1000 + xid % 3, xid))));
    let mut cache = Part::new(80, 1 << 20);
    for xid in 0..1000 {
        execute(&mut cache, key_by(0, xid), false);
    }
    assert_eq!(cache.others.entries, 80);
    for xid in 1000..1080 {
        execute(&mut cache, key_by(0, xid), true);
    }
    assert_eq!((cache.changes.entries, cache.others.entries), (70, 10));
    // The same holds for bytes, where these are the limit: a reply takes 712 with its overhead.
    let mut cache = Part::new(1000, 80 * (OVERHEAD + 200));
    for xid in 0..80 {
        execute(&mut cache, key_by(0, xid), true);
    }
    for xid in 1000..1100 {
        execute(&mut cache, key_by(1000, xid), false);
    }
    assert_eq!((cache.changes.entries, cache.others.entries), (70, 10));
}

/// Replies to calls that have changed nothing leave a part of the cache to replies of the other
/// kind, and take the eighth that is theirs also from other clients' changes.
#[test]
fn failures_have_an_eighth_of_the_cache_beside_changes() {
    let mut cache = Part::new(80, 1 << 20);
    for xid in 0..5 {
        execute(&mut cache, key_by(1000, xid), false);
    }
    for xid in 10..200 {
        execute(&mut cache, key_by(0, xid), true);
    }
    assert_eq!((cache.changes.entries, cache.others.entries), (75, 5));
    assert!((0..5).all(|xid| is_kept(&cache, &key_by(1000, xid))));
}

/// The search for a client that has its fair share begins where the last one ended, and must also
/// find those before that place.
#[test]
fn the_search_for_a_client_with_a_fair_share_goes_round() {
    let mut cache = Part::new(30, 1 << 20);
    let mut xids = 0..;
    // Executes calls of a user. Returns how many replies of the first three users are kept.
    let mut calls = |user: u32, count: usize| {
        for xid in xids.by_ref().take(count) {
            execute(&mut cache, key_by(user, xid), true);
        }
        [0, 1, 2].map(|user| {
            let client = key_by(user, 0).client();
            let of = |done: &Done| done.key.client() == client;
            cache.done.iter().filter(|(_, done)| of(done)).count()
        })
    };
    calls(0, 10);
    calls(1, 20);
    assert_eq!(calls(2, 2), [10, 18, 2]);
    // The average falls with each further client. The second one gives way first, and then the third
    // one, until they have less than the average.
    for user in 3..21 {
        calls(user, 1);
    }
    assert_eq!(calls(21, 1), [9, 1, 1], "the first one is found again");
}

#[test]
fn users_of_this_host_are_clients_and_other_hosts_are_clients() {
    let host = |last| IpAddr::from([10, 0, 0, last]);
    let client = |peer, origin| {
        let (header, message, at) = call(1, Message::default());
        let key = CallKey::new(peer, &header, &message, at);
        key.with_origin(origin).client()
    };
    let user = |user| PeerOrigin::ThisHost { user };
    // A user can connect from any address of the loopback network.
    assert_eq!(
        client(host(1), user(Some(7))),
        client(host(2), user(Some(7)))
    );
    assert_ne!(
        client(host(1), user(Some(7))),
        client(host(1), user(Some(8)))
    );
    assert_ne!(client(host(1), user(None)), client(host(1), user(Some(8))));
    let elsewhere = PeerOrigin::OverTcp;
    assert_ne!(client(host(1), elsewhere), client(host(2), elsewhere));
    // An IPv6 subscriber has 2^64 addresses.
    let subscriber = |net, last| IpAddr::from([0x2001, 0xdb8, 0, net, 0, 0, 0, last]);
    assert_eq!(
        client(subscriber(1, 1), elsewhere),
        client(subscriber(1, 2), elsewhere)
    );
    assert_ne!(
        client(subscriber(1, 1), elsewhere),
        client(subscriber(2, 1), elsewhere)
    );
    assert_eq!(
        client(host(1), elsewhere),
        client(host(1), PeerOrigin::OverRdma)
    );
}

quickcheck! {
    /// Nobody who has less than the average loses a reply to another client, and all that is
    /// counted is there.
    fn shares_are_fair(calls: Vec<(u8, bool, u8)>) -> bool {
        let mut cache = Part::new(24, 24 * (OVERHEAD + 100));
        // The bytes of a user's replies to changes or to other calls.
        let bytes = |cache: &Part, user: u32, changed| -> usize {
            let client = key_by(user, 0).client();
            let done = cache.done.iter().map(|(_, done)| done);
            let own = done.filter(|done| done.changed == changed && done.key.client() == client);
            own.map(|done| done.cost).sum()
        };
        for (xid, (client, changed, len)) in calls.into_iter().enumerate() {
            let user = u32::from(client % 5);
            let before = [false, true].map(|kind| [0, 1, 2, 3, 4].map(|user| bytes(&cache, user, kind)));
            let new = key_by(user, xid as u32);
            look_up(&mut cache, new, 0, NOW);
            cache.finish(new, reply(len.into()), changed, NOW);
            for (before, (kind, shares)) in before
                .iter()
                .zip([(false, &cache.others), (true, &cache.changes)])
            {
                let clients = before.iter().filter(|bytes| **bytes > 0).count() + 1;
                for other in (0..5).filter(|other| *other != user) {
                    let had = before[other as usize];
                    assert!(bytes(&cache, other, kind) == had || had * clients >= shares.bytes);
                }
            }
            let (changes, others) = (&cache.changes, &cache.others);
            assert_eq!(changes.entries + others.entries, cache.done.len());
            assert_eq!(cache.entries.len(), cache.done.len());
            let cost: usize = cache.done.iter().map(|(_, done)| done.cost).sum();
            assert_eq!(changes.bytes + others.bytes, cost);
            assert!(cost <= cache.max_bytes && cache.done.len() <= cache.max_entries);
        }
        cache.forget_old(NOW + MAX_AGE + Duration::from_secs(1));
        cache.entries.is_empty() && cache.done.is_empty() && cache.others.bytes == 0
    }
}
