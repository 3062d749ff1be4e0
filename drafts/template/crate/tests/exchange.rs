//! Tests of a client and a server with the extension, and of one with a peer that does not have it.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

#[path = "../../connection/tests/support/mod.rs"]
mod support;

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;

use bytes::Bytes;
use quickcheck::quickcheck;
use rpcrdma_chunks::{Direction, Reader, Side};
use rpcrdma_ext_@name@::{@CODE@, @PROP@, Accepts, End, Factory, @Name@, MOST};
use rpcrdma_extension::xdr::{Structure as _, Xdr as _};
use rpcrdma_extension::{Action, Extensions, Fields, Property, ReceivedMessage};
use rpcrdma_negotiation::Version;
use support::{Pair, configs_with, data, echo, message, open, room};

/// The count of calls whose caller gives none.
const DEFAULT: u32 = 7;

/// Returns fields of arbitrary values, all of which a server accepts.
fn accepted(seed: u32) -> @Name@ {
    let mut fields = arbitrary(seed);
    fields.count = 1 + fields.count % MOST;
    fields
}

/// Returns fields of any values.
fn arbitrary(seed: u32) -> @Name@ {
    let mut next = seed;
    @Name@::arbitrary(&mut || {
        next = next.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        next
    })
}

/// Returns a client and a server, which have the extension or do not.
fn pair(client: bool, server: bool) -> Pair {
    Pair::echoing(configs_with(Version::@VERSION@, |ours, theirs| {
        for (has, options) in [(client, ours), (server, theirs)] {
            if has {
                options.protocols.add(Version::@VERSION@, Arc::new(Factory { default: @Name@::new(DEFAULT) }));
            }
        }
    }))
}

/// Makes small calls, one for each of these fields that a caller may give, and one with a bulk item. All are
/// answered.
fn call(pair: &mut Pair, given: &[Option<@Name@>]) {
    for (xid, given) in (1..).zip(given) {
        let mut message = message(xid, 4, &[]);
        if let Some(fields) = given.clone() {
            message.extras_mut().insert(fields);
        }
        let reply = pair.call(message, &room(4, &[])).unwrap();
        assert_eq!(open(&reply).0, xid);
    }
    let item = data(99, 8192);
    let long = message(99, 4, std::slice::from_ref(&item));
    let reply = pair.call(long, &room(4, &[8192])).unwrap();
    assert_eq!(open(&reply).2.concat(), item);
    assert_eq!((&pair.client.closed, &pair.server.closed), (&None, &None));
}

/// Returns the fields of the messages of the extension that the client has sent.
fn sent(pair: &Pair) -> Vec<@Name@> {
    let sent = pair.client.sent.iter().map(|(message, _)| message);
    let ours = sent.filter(|message| message.get(@number_at@..@number_end@) == Some(&@CODE@.to_be_bytes()));
    ours.map(|message| @Name@::decode_from(&mut Reader::new(&message[@fields_at@..])).unwrap())
        .collect()
}

#[test]
fn the_service_sees_the_fields_that_the_caller_gives() {
    let mut pair = pair(true, true);
    let seen = Rc::new(RefCell::new(Vec::new()));
    let to = Rc::clone(&seen);
    pair.answer_with(move |call| {
        to.borrow_mut().extend(call.extras().get::<@Name@>().cloned());
        echo(call)
    });
    let mut given: Vec<_> = (0..16).map(accepted).map(Some).collect();
    given.push(None);
    call(&mut pair, &given);
    let default = @Name@::new(DEFAULT);
    let expected: Vec<_> = given.into_iter().map(|fields| fields.unwrap_or_else(|| default.clone())).collect();
    assert_eq!(sent(&pair), expected);
    assert_eq!(*seen.borrow(), expected);
}

#[test]
fn a_peer_without_the_extension_gets_calls_as_ever() {
    for (client, server) in [(true, false), (false, true)] {
        let mut pair = pair(client, server);
        call(&mut pair, &[Some(accepted(1)), None]);
        assert_eq!(sent(&pair), []);
    }
}

#[test]
fn a_count_that_the_server_does_not_accept_is_not_sent() {
    let mut pair = pair(true, true);
    call(&mut pair, &[0, MOST + 1, u32::MAX].map(|count| Some(@Name@::new(count))));
    assert_eq!(sent(&pair), []);
}

#[test]
fn a_property_that_is_cut_is_not_valid() {
    let end = Box::new(End::new(Side::Client, @Name@::default()));
    let client = Extensions::new(Side::Client, 100, vec![end]).unwrap();
    let announced = Property {
        id: @PROP@,
        value: Accepts::new(2).encode(),
    };
    assert!(client.is_valid(&announced));
    let cut = Property {
        value: announced.value.slice(..3),
        ..announced
    };
    assert!(!client.is_valid(&cut));
}

/// Returns whether a server takes a message of the extension with these bytes, and delivers its call.
fn is_taken(bytes: &[u8]) -> bool {
    let end = Box::new(End::new(Side::Server, @Name@::default()));
    let mut server = Extensions::new(Side::Server, 100, vec![end]).unwrap();
    server.connected(None);
    let received = ReceivedMessage {
        number: @CODE@,
        xid: 7,
        direction: Direction::Call,
        credits: 1,
        message: &[Bytes::copy_from_slice(bytes)],
        fields: Fields::Open { at: 0 },
    };
    let taken = server.received(&received).is_ok();
    let delivered = matches!(server.next_action(), Some(Action::Transferred { .. }));
    assert_eq!(taken, delivered);
    taken
}

/// Returns these fields and the beginning of a call or, with another kind, of a reply.
fn with_call(fields: &@Name@, xid: u32, kind: u32) -> Vec<u8> {
    let call = [xid, kind, 2].map(u32::to_be_bytes).concat();
    [&fields.encode()[..], &call].concat()
}

/// Each field and what follows them: nothing that is wrong is executed.
#[test]
fn a_message_that_is_wrong_is_refused() {
    let first = accepted(1);
    let right = with_call(&first, 7, 0);
    assert!(is_taken(&right));
    for (count, taken) in [(MOST, true), (0, false), (MOST + 1, false), (u32::MAX, false)] {
        let mut fields = first.clone();
        fields.count = count;
        assert_eq!(is_taken(&with_call(&fields, 7, 0)), taken, "{fields:?}");
    }
    assert!(!is_taken(&with_call(&first, 8, 0)), "the XID of another call");
    assert!(!is_taken(&with_call(&first, 7, 1)), "a reply");
    let call_at = right.len() - 4;
    for len in 0..call_at {
        assert!(!is_taken(&right[..len]), "cut at {len}");
    }
}

quickcheck! {
    fn fields_come_back(number: u32) -> bool {
        let fields = arbitrary(number);
        @Name@::decode(&fields.encode()) == Ok(fields)
    }

    fn whatever_arrives_nothing_panics(bytes: Vec<u8>) -> bool {
        is_taken(&bytes);
        Accepts::decode(&bytes).map_or(true, |accepts| accepts.encode() == bytes)
    }
}
