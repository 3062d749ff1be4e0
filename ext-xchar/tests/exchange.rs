//! The requirements of xcharext-02 for an end of a connection. See MUSTS.md.

mod common;

use bytes::{BufMut, Bytes, BytesMut};
use common::{
    XID, call, config, deliver, end, error, exchange, init, operation, property, sent, settled,
    words,
};
use rpcrdma_ext_xchar::{
    BackwardRequestSupport, BackwardSupport, Characteristic, EXPERIMENTAL, Exchange, INITXCH, Init,
    REQXCH, RESPXCH, ReceiveBufferSize, Registry, Request, RequesterRemoteInvalidation, Response,
    Subset, UPDXCH, Update,
};
use rpcrdma_extension::{
    Action, Calls, Extension, Extensions, NotChanged, Outbox, PeerError, Property, ReceivedMessage,
    Refusal, ReverseDirection,
};
use rpcrdma_v2::limits::FIRST_MESSAGE_MAX;
use rpcrdma_v2::operations::{self, Routed};
use rpcrdma_v2::{Body, Chunks, Direction, ErrorBody, Header, Malformed, Reader, Side};

const SIDES: [Side; 2] = [Side::Client, Side::Server];

fn bad_header() -> Routed {
    Routed::Refused(PeerError::Chunk)
}

/// Returns the fields of the operations sent: XID, direction, type and information.
fn optional(end: &mut Extensions) -> Vec<(u32, Direction, u32, Bytes)> {
    let sent = sent(end).into_iter();
    sent.map(|op| (op.xid, op.direction, op.number, op.fields))
        .collect()
}

fn request(end: &mut Extensions, want: &[Property]) -> Result<(), NotChanged> {
    let want = want.to_vec();
    end.with(|exchange: &mut Exchange, out| exchange.request(want, out))
        .expect("it is there")
}

fn raise(end: &mut Extensions, to: u32) -> Result<(), NotChanged> {
    end.with(|exchange: &mut Exchange, out| exchange.raise_receive_size(to, out))
        .expect("it is there")
}

fn rpc() -> Header {
    Header {
        xid: 77,
        credits: 8,
        body: Body::Msg(Direction::Call, Chunks::default()),
    }
}

fn respond(end: &mut Extensions, xid: u32, response: Response) -> Routed {
    let header = Header {
        xid,
        ..operation(Direction::Reply, RESPXCH, response.encode())
    };
    deliver(end, &header)
}

fn update(end: &mut Extensions, now: Property, pending_cleared: bool) -> Routed {
    let update = Update {
        now,
        pending_cleared,
    };
    deliver(end, &call(UPDXCH, update.encode()))
}

fn only(element: usize) -> Subset {
    Subset::new([element])
}

#[test]
fn xchar_s2_1_a_value_that_is_beyond_the_message_is_an_xdr_error() {
    for side in SIDES {
        for info in [
            words(&[1, 1, 8, 4096]),
            words(&[1, 1, u32::MAX, 4096]),
            words(&[1, 0xffff_ff00, 5, 0]),
            words(&[2, 1, 4, 4096, 0]),
        ] {
            let mut end = end(side, config());
            assert_eq!(
                deliver(&mut end, &call(INITXCH, info.clone())),
                bad_header()
            );
            assert_eq!(deliver(&mut end, &call(REQXCH, info)), bad_header());
            assert_eq!(exchange(&end).supported(), None);
        }
        let info = words(&[1, 8, 4096, 1]);
        assert_eq!(
            deliver(&mut end(side, config()), &call(UPDXCH, info)),
            bad_header()
        );
    }
}

/// Returns invalid values: too short, not in the enumeration, and too long.
fn bad_values() -> Vec<Property> {
    let mut bad = Vec::new();
    for id in 1..=3 {
        bad.push(property(id, &[]));
        bad.push(property(id, &[1, 0]));
        bad.push(Property {
            id,
            value: Bytes::from_static(b"abc"),
        });
    }
    bad.extend([property(2, &[2]), property(2, &[u32::MAX])]);
    bad.extend([property(3, &[3]), property(3, &[u32::MAX])]);
    bad
}

#[test]
fn xchar_s2_1_a_value_that_is_not_of_its_type_is_an_xdr_error() {
    for bad in bad_values() {
        for direction in [Direction::Call, Direction::Reply] {
            let mut end = end(Side::Server, config());
            let said = init(&[property(1, &[65536]), bad.clone()]);
            let header = operation(direction, INITXCH, said.encode());
            assert_eq!(deliver(&mut end, &header), bad_header(), "{bad:?}");
            // No value of the rejected operation counts.
            assert_eq!(exchange(&end).peer().said::<ReceiveBufferSize>(), None);
        }
        let mut end = settled(Side::Client);
        let want = vec![bad.clone()];
        let info = Request { want }.encode();
        assert_eq!(deliver(&mut end, &call(REQXCH, info)), bad_header());
        assert_eq!(update(&mut end, bad.clone(), false), bad_header());
        assert!(sent(&mut end).is_empty(), "one error and nothing else");
    }
}

#[test]
fn xchar_s2_1_an_unknown_characteristic_is_no_error_and_the_next_is_processed() {
    let mut end = end(Side::Client, config());
    let unknown = [property(4, &[]), property(0xffff_ff00, &[1, 2, 3])];
    let all = [&unknown[..1], &[property(1, &[20480])], &unknown[1..]].concat();
    let said = init(&all);
    assert_eq!(
        deliver(&mut end, &call(INITXCH, said.encode())),
        Routed::Taken
    );
    let peer = exchange(&end).peer();
    assert_eq!(peer.get::<ReceiveBufferSize>(), 20480);
    let kept: Vec<_> = peer.properties().map(|property| property.id).collect();
    assert_eq!(kept, [1, 4, 0xffff_ff00]);
    let late = property(9, &[7; 9]);
    assert_eq!(update(&mut end, late.clone(), true), Routed::Taken);
    assert!(exchange(&end).peer().properties().any(|p| p == late));
}

#[test]
fn xchar_s2_1_of_two_values_for_one_characteristic_the_last_counts() {
    for (first, last) in [(20_480, 8192), (8192, 20_480)] {
        let mut end = end(Side::Client, config());
        let said = init(&[
            property(1, &[first]),
            property(2, &[1]),
            property(1, &[last]),
        ]);
        let routed = deliver(&mut end, &call(INITXCH, said.encode()));
        assert_eq!(routed, Routed::Taken);
        assert_eq!(exchange(&end).peer().get::<ReceiveBufferSize>(), last);
        assert_eq!(end.limits().inline_send, last);
    }
}

#[test]
fn xchar_s3_what_is_not_said_has_its_default() {
    let peer = rpcrdma_ext_xchar::Peer::default();
    assert_eq!(peer.get::<ReceiveBufferSize>(), 4096);
    assert!(!peer.get::<RequesterRemoteInvalidation>());
    let backward = peer.get::<BackwardRequestSupport>();
    assert_eq!(backward, BackwardSupport::Inline);
    let mut end = end(Side::Client, config());
    deliver(&mut end, &call(INITXCH, init(&[]).encode()));
    let limits = end.limits();
    assert_eq!((limits.inline_send, limits.may_invalidate), (4096, false));
    // A peer that does not announce its own receive size may not have understood this side's.
    assert_eq!(
        (limits.inline_receive, limits.reverse_direction),
        (4096, ReverseDirection::Inline)
    );
}

#[test]
fn xchar_s3_the_numbers_are_those_of_table_1() {
    let ids = (
        ReceiveBufferSize::ID,
        RequesterRemoteInvalidation::ID,
        BackwardRequestSupport::ID,
    );
    assert_eq!(ids, (1, 2, 3));
    assert_eq!((INITXCH, REQXCH, RESPXCH, UPDXCH), (1, 2, 3, 4));
    let brs = |value| BackwardRequestSupport::property(&value).value;
    assert_eq!(brs(BackwardSupport::None), words(&[0]));
    assert_eq!(brs(BackwardSupport::Inline), words(&[1]));
    assert_eq!(brs(BackwardSupport::General), words(&[2]));
}

#[test]
fn xchar_s3_1_what_the_peer_receives_limits_what_is_sent() {
    let mut end = settled(Side::Client);
    let limits = end.limits();
    assert_eq!(
        (limits.inline_send, limits.inline_receive),
        (32 << 10, 16 << 10)
    );
    assert_eq!(limits.reply_last_resort, Some(32 << 10));
    // This side's own limit applies as well.
    update(&mut end, property(1, &[1 << 20]), false);
    assert_eq!(end.limits().inline_send, 64 << 10);
    // No size may be smaller than the first message may need.
    update(&mut end, property(1, &[0]), false);
    assert_eq!(end.limits().inline_send, FIRST_MESSAGE_MAX);
}

#[test]
fn xchar_s3_1_a_raised_size_is_told_when_all_receives_have_it_and_used_when_it_is_understood() {
    let mut end = settled(Side::Client);
    deliver(&mut end, &rpc());
    assert_eq!(raise(&mut end, 48 << 10), Ok(()));
    assert_eq!(raise(&mut end, 50 << 10), Err(NotChanged::NotPossible));
    let actions: Vec<_> = std::iter::from_fn(|| end.next_action()).collect();
    assert!(matches!(
        actions[..],
        [Action::ReplaceReceives { size: 49152 }]
    ));
    assert_eq!(end.limits().inline_receive, 16 << 10);
    // Some receives have the new size, but not all.
    end.receives_replaced(16 << 10);
    assert!(end.next_action().is_none());
    end.receives_replaced(48 << 10);
    let Some(Action::Send(op)) = end.next_action() else {
        panic!("an update");
    };
    let told = Update {
        now: property(1, &[48 << 10]),
        pending_cleared: false,
    };
    let expected = (Direction::Call, UPDXCH, told.encode());
    assert_eq!((op.direction, op.number, op.fields), expected);
    let next = end.next_action();
    assert!(matches!(next, Some(Action::AwaitReplies(Calls::Next))));
    assert_eq!(end.limits().inline_receive, 16 << 10);
    end.replies_arrived(Calls::Next);
    assert_eq!(end.limits().inline_receive, 48 << 10);
    assert_eq!(raise(&mut end, 50 << 10), Ok(()));
}

#[test]
fn xchar_s3_1_a_peer_that_does_not_understand_updates_goes_by_what_it_knows() {
    let mut end = settled(Side::Client);
    deliver(&mut end, &rpc());
    raise(&mut end, 48 << 10).expect("possible");
    end.receives_replaced(48 << 10);
    let [(xid, ..)] = optional(&mut end)[..] else {
        panic!("an update");
    };
    let refused = error(xid, ErrorBody::InvalidOption);
    assert_eq!(deliver(&mut end, &refused), Routed::Taken);
    end.replies_arrived(Calls::Next);
    assert_eq!(end.limits().inline_receive, 16 << 10);
    assert_eq!(raise(&mut end, 50 << 10), Err(NotChanged::NotSupported));
    // The peer then asks for that size and learns that it is in effect.
    let want = vec![property(1, &[48 << 10])];
    deliver(&mut end, &call(REQXCH, Request { want }.encode()));
    assert_eq!(end.limits().inline_receive, 48 << 10);
}

/// Only INVAL_OPTION says that the peer does not support an operation. Another error is about one
/// request or update.
#[test]
fn xchar_s4_one_that_was_refused_for_its_content_is_dropped_and_the_next_is_sent() {
    let mut end = settled(Side::Client);
    for error_body in [ErrorBody::BadHeader, ErrorBody::Version { low: 1, high: 2 }] {
        let want = [property(1, &[8 << 10])];
        request(&mut end, &want).expect("possible");
        let [(xid, ..)] = optional(&mut end)[..] else {
            panic!("a request");
        };
        assert_eq!(deliver(&mut end, &error(xid, error_body)), Routed::Taken);
        assert_eq!(end.limits().inline_send, 32 << 10);
    }
    for size in [40 << 10, 48 << 10] {
        assert_eq!(raise(&mut end, size), Ok(()));
        end.receives_replaced(size);
        let [(xid, ..)] = optional(&mut end)[..] else {
            panic!("an update");
        };
        deliver(&mut end, &error(xid, ErrorBody::BadHeader));
        assert_eq!(end.limits().inline_receive, 16 << 10);
    }
    assert_eq!(raise(&mut end, 50 << 10), Ok(()));
}

/// A peer that sends a request supports updates, so that a size that was announced to it is in use.
#[test]
fn xchar_s4_a_peer_that_makes_requests_understands_updates() {
    let mut end = settled(Side::Server);
    deliver(&mut end, &rpc());
    raise(&mut end, 48 << 10).expect("possible");
    end.receives_replaced(48 << 10);
    assert_eq!(sent(&mut end).len(), 1);
    assert_eq!(end.limits().inline_receive, 16 << 10);
    let response = asked(&mut end, &[property(1, &[20 << 10])]);
    assert_eq!(
        (response.pending, response.rejected),
        (only(0), Subset::default())
    );
    end.replies_arrived(Calls::Earlier);
    let _ = sent(&mut end);
    // The next size is in use as soon as it is announced.
    assert_eq!(raise(&mut end, 24 << 10), Ok(()));
    end.receives_replaced(24 << 10);
    deliver(&mut end, &rpc());
    assert_eq!(sent(&mut end).len(), 1);
    assert_eq!(end.limits().inline_receive, 24 << 10);
}

#[test]
fn xchar_s3_1_the_size_is_lowered_only_when_the_peer_asks() {
    let mut end = settled(Side::Client);
    let lower = raise(&mut end, 8 << 10);
    assert_eq!(lower, Err(NotChanged::NotPossible));
    let want = vec![property(1, &[8 << 10])];
    deliver(&mut end, &call(REQXCH, Request { want }.encode()));
    // The peer sends no longer message from now on, so this side does not rely on more.
    assert_eq!(end.limits().inline_receive, 8 << 10);
    let Some(Action::Send(op)) = end.next_action() else {
        panic!("a response");
    };
    let pending = Response {
        pending: only(0),
        ..Response::default()
    };
    assert_eq!((op.xid, op.direction), (XID, Direction::Reply));
    assert_eq!(op.fields, pending.encode());
    // First the calls that relied on the old size are answered, then the new size is announced, and
    // last the receives are replaced.
    let rest: Vec<_> = std::iter::from_fn(|| end.next_action()).collect();
    assert!(matches!(
        rest[..],
        [Action::AwaitReplies(Calls::Earlier), Action::LimitsChanged]
    ));
    end.replies_arrived(Calls::Earlier);
    let rest: Vec<_> = std::iter::from_fn(|| end.next_action()).collect();
    let [Action::Send(op), .., Action::ReplaceReceives { size: 8192 }] = &rest[..] else {
        panic!("{rest:?}");
    };
    let told = Update {
        now: property(1, &[8 << 10]),
        pending_cleared: true,
    };
    assert_eq!(op.fields, told.encode());
}

#[test]
fn xchar_s3_1_who_asked_for_a_lower_size_keeps_to_it() {
    let lower = [property(1, &[8 << 10])];
    // The limit holds until the request is rejected,
    let mut end = settled(Side::Server);
    assert_eq!(request(&mut end, &lower), Ok(()));
    let limits = end.limits();
    assert_eq!(
        (limits.inline_send, limits.reply_last_resort),
        (8 << 10, None)
    );
    let rejected = Response {
        rejected: only(0),
        ..Response::default()
    };
    assert_eq!(respond(&mut end, 1999, rejected), Routed::Taken);
    assert_eq!(end.limits().inline_send, 32 << 10);
    // is done,
    let mut end = settled(Side::Server);
    request(&mut end, &lower).expect("possible");
    let done = Response {
        done: only(0),
        ..Response::default()
    };
    assert_eq!(respond(&mut end, 1999, done), Routed::Taken);
    let limits = end.limits();
    let eight = (8 << 10, Some(8 << 10));
    assert_eq!((limits.inline_send, limits.reply_last_resort), eight);
    // or is completed at another size.
    let mut end = settled(Side::Server);
    request(&mut end, &lower).expect("possible");
    let pending = Response {
        pending: only(0),
        ..Response::default()
    };
    assert_eq!(respond(&mut end, 1999, pending), Routed::Taken);
    let limits = end.limits();
    // The peer will announce when it has lowered the size; replies to calls that relied on the old
    // size still fit.
    let meanwhile = (8 << 10, Some(32 << 10));
    assert_eq!((limits.inline_send, limits.reply_last_resort), meanwhile);
    update(&mut end, property(1, &[24 << 10]), false);
    assert_eq!(end.limits().inline_send, 8 << 10);
    assert_eq!(request(&mut end, &lower), Err(NotChanged::NotPossible));
    update(&mut end, property(1, &[12 << 10]), true);
    assert_eq!(end.limits().inline_send, 12 << 10);
    assert_eq!(request(&mut end, &lower), Ok(()));
}

#[test]
fn xchar_s3_1_the_lower_size_stays_while_it_is_not_known_what_the_peer_did() {
    let mut end = settled(Side::Server);
    request(&mut end, &[property(1, &[8 << 10])]).expect("possible");
    // The response marks the same element as done and as rejected.
    let both = Response {
        done: only(0),
        rejected: only(0),
        pending: Subset::default(),
    };
    assert_eq!(respond(&mut end, 1999, both), Routed::Taken);
    let limits = end.limits();
    let eight = (8 << 10, Some(8 << 10));
    assert_eq!((limits.inline_send, limits.reply_last_resort), eight);
    // A request for another characteristic does not lift the limit.
    request(&mut end, &[property(9, &[1])]).expect("possible");
    let done = Response {
        done: only(0),
        ..Response::default()
    };
    assert_eq!(respond(&mut end, 1998, done), Routed::Taken);
    assert_eq!(end.limits().inline_send, 8 << 10);
}

#[test]
fn xchar_s3_2_send_with_invalidate_only_where_the_requester_takes_it() {
    let mut end = end(Side::Server, config());
    assert!(!end.limits().may_invalidate);
    deliver(
        &mut end,
        &call(INITXCH, init(&[property(2, &[0])]).encode()),
    );
    assert!(!end.limits().may_invalidate);
    update(&mut end, property(2, &[1]), false);
    assert!(end.limits().may_invalidate);
    let cannot = rpcrdma_ext_xchar::Config {
        can_invalidate: false,
        ..config()
    };
    let mut end = common::end(Side::Server, cannot);
    deliver(
        &mut end,
        &call(INITXCH, init(&[property(2, &[1])]).encode()),
    );
    assert!(!end.limits().may_invalidate);
}

#[test]
fn xchar_s3_3_backward_calls_are_what_the_client_takes() {
    for (number, backward) in [
        (0, ReverseDirection::None),
        (1, ReverseDirection::Inline),
        (2, ReverseDirection::General),
    ] {
        let mut end = end(Side::Server, config());
        let said = init(&[property(3, &[number])]);
        deliver(&mut end, &call(INITXCH, said.encode()));
        assert_eq!(end.limits().reverse_direction, backward);
    }
    // Only a client's announcement has a meaning.
    for side in SIDES {
        let mut end = end(side, config());
        end.connected(None);
        let [(_, _, _, ref info)] = optional(&mut end)[..] else {
            panic!("one operation");
        };
        let init = Init::decode(info).expect("well formed");
        let told = init.start.iter().any(|property| property.id == 3);
        assert_eq!(told, side == Side::Client);
    }
}

#[test]
fn xchar_s4_an_operation_that_is_not_supported_is_answered_with_inval_option() {
    for side in SIDES {
        let mut without = Extensions::new(side, 0, vec![]).expect("none");
        for opttype in [INITXCH, REQXCH, RESPXCH, UPDXCH] {
            let routed = deliver(&mut without, &call(opttype, Bytes::new()));
            assert_eq!(routed, Routed::Refused(PeerError::UnsupportedType));
        }
    }
}

#[test]
fn xchar_s4_1_initxch_is_the_first_message_of_each_side_and_sent_once() {
    let mut client = end(Side::Client, config());
    client.connected(None);
    let [(xid, Direction::Call, INITXCH, ref info)] = optional(&mut client)[..] else {
        panic!("ROPT_INITXCH alone");
    };
    let init = Init::decode(info).expect("well formed");
    let ids: Vec<_> = init.start.iter().map(|property| property.id).collect();
    assert_eq!(
        (ids, init.start[0].clone()),
        (vec![1, 2, 3], property(1, &[16384]))
    );
    // Every characteristic but the size is fixed.
    assert_eq!(init.no_change, Subset::new([1, 2]));
    let opening = Header {
        xid,
        ..call(INITXCH, info.clone())
    };
    // The server replies with its own INITXCH under the client's XID, before anything else.
    let mut server = end(Side::Server, config());
    server.connected(Some(operations::heard(&opening)));
    assert_eq!(deliver(&mut server, &opening), Routed::Taken);
    let [(replied, Direction::Reply, INITXCH, ref info)] = optional(&mut server)[..] else {
        panic!("ROPT_INITXCH alone");
    };
    assert_eq!(replied, xid);
    let answer = Header {
        xid,
        ..operation(Direction::Reply, INITXCH, info.clone())
    };
    assert_eq!(deliver(&mut client, &answer), Routed::Taken);
    assert!(sent(&mut client).is_empty() && sent(&mut server).is_empty());
    assert!(client.all_know_peer() && server.all_know_peer());
    // Each end knows the other's size.
    assert_eq!(client.limits().inline_send, 16 << 10);
    assert_eq!(server.limits().inline_send, 16 << 10);
    assert!(server.limits().may_invalidate);
    // A second INITXCH is ignored.
    let again = common::init(&[property(1, &[4096])]).encode();
    let routed = deliver(&mut client, &call(INITXCH, again));
    assert!(matches!(routed, Routed::Discarded(Refusal::Discard(_))));
    assert_eq!(client.limits().inline_send, 16 << 10);
}

#[test]
fn xchar_s4_1_a_server_that_was_called_first_sends_its_own_unasked() {
    let mut server = end(Side::Server, config());
    server.connected(Some(operations::heard(&rpc())));
    assert_eq!(deliver(&mut server, &rpc()), Routed::Base);
    let [(2000, Direction::Call, INITXCH, _)] = optional(&mut server)[..] else {
        panic!("ROPT_INITXCH alone");
    };
    assert!(!server.all_know_peer());
    // The peer does not support the extension.
    let refused = error(2000, ErrorBody::InvalidOption);
    assert_eq!(deliver(&mut server, &refused), Routed::Taken);
    assert!(server.all_know_peer());
    assert_eq!(exchange(&server).supported(), Some(false));
    assert_eq!(
        server.limits(),
        rpcrdma_extension::ConnectionLimits::default()
    );
    let want = [property(1, &[8192])];
    assert_eq!(request(&mut server, &want), Err(NotChanged::NotSupported));
    assert_eq!(raise(&mut server, 65536), Err(NotChanged::NotSupported));
}

/// An extension with many properties.
#[derive(Debug)]
struct Talkative;

impl Extension for Talkative {
    fn name(&self) -> &'static str {
        "talkative"
    }

    fn numbers(&self) -> &[u32] {
        &[]
    }

    fn properties(&self) -> Vec<Property> {
        let long = |id| Property {
            id,
            value: Bytes::from(vec![7; 300]),
        };
        (10..20).map(long).collect()
    }

    fn received(&mut self, _: &ReceivedMessage<'_>, _: &mut Outbox<'_>) -> Result<(), Refusal> {
        Err(Refusal::Unsupported)
    }
}

#[test]
fn xchar_s4_1_initxch_fits_what_a_peer_receives_that_is_not_known() {
    let exchange = Box::new(Exchange::new(config()));
    let mut end = Extensions::new(Side::Client, 1000, vec![exchange, Box::new(Talkative)])
        .expect("no operation in common");
    end.connected(None);
    let first = operations::header(sent(&mut end).remove(0), 1);
    let message = first.encode();
    assert!(message.len() <= FIRST_MESSAGE_MAX as usize && message.len() > 900);
    // The rest is announced by updates, one after each message from the peer.
    let said = init(&[]).encode();
    deliver(&mut end, &call(INITXCH, said));
    for id in 13..20 {
        let [(_, Direction::Call, UPDXCH, ref info)] = optional(&mut end)[..] else {
            panic!("one update");
        };
        let update = Update::decode(info).expect("well formed");
        assert_eq!((update.now.id, update.pending_cleared), (id, false));
        deliver(&mut end, &rpc());
    }
    assert!(sent(&mut end).is_empty());
}

#[test]
fn xchar_s4_1_what_is_not_known_is_ignored_without_error() {
    let mut end = end(Side::Server, config());
    let start: Vec<_> = (100..164).map(|id| property(id, &[id])).collect();
    assert_eq!(
        deliver(&mut end, &call(INITXCH, init(&start).encode())),
        Routed::Taken
    );
    assert_eq!(exchange(&end).peer().properties().count(), 64);
    // Further characteristics are not kept, nor are values longer than any defined one.
    assert_eq!(update(&mut end, property(9, &[1]), false), Routed::Taken);
    assert_eq!(
        update(&mut end, property(100, &[0; 2000]), false),
        Routed::Taken
    );
    let kept = exchange(&end).peer().properties();
    assert!(kept.map(|p| p.value.len()).max() == Some(4));
}

#[test]
fn xchar_s4_2_one_request_at_a_time() {
    let mut end = settled(Side::Client);
    let want = [property(1, &[64 << 10]), property(9, &[1])];
    assert_eq!(request(&mut end, &want), Ok(()));
    let [(999, Direction::Call, REQXCH, ref info)] = optional(&mut end)[..] else {
        panic!("ROPT_REQXCH alone");
    };
    assert_eq!(
        Request::decode(info),
        Ok(Request {
            want: want.to_vec()
        })
    );
    assert_eq!(request(&mut end, &want), Err(NotChanged::NotPossible));
    let response = Response {
        done: only(0),
        rejected: only(1),
        pending: Subset::default(),
    };
    // A response with another XID belongs to no request.
    let unknown = respond(&mut end, 998, response);
    assert!(matches!(unknown, Routed::Discarded(_)));
    assert_eq!(respond(&mut end, 999, response), Routed::Taken);
    assert_eq!(end.limits().inline_send, 64 << 10);
    let again = respond(&mut end, 999, response);
    assert!(matches!(again, Routed::Discarded(_)));
    assert_eq!(request(&mut end, &want), Ok(()));
}

#[test]
fn xchar_s4_2_a_peer_without_requests_rejects_them_all() {
    let mut end = settled(Side::Client);
    request(&mut end, &[property(1, &[8 << 10])]).expect("possible");
    let _ = sent(&mut end);
    let refused = error(999, ErrorBody::InvalidOption);
    assert_eq!(deliver(&mut end, &refused), Routed::Taken);
    assert_eq!(end.limits().inline_send, 32 << 10);
    let want = [property(1, &[64 << 10])];
    assert_eq!(request(&mut end, &want), Err(NotChanged::NotSupported));
}

#[test]
fn xchar_s4_2_what_does_not_change_is_not_asked_for() {
    let mut end = end(Side::Client, config());
    let want = [property(2, &[1])];
    assert_eq!(request(&mut end, &want), Err(NotChanged::NotSettled));
    let said = Init {
        start: vec![property(1, &[8192]), property(2, &[0])],
        no_change: only(1),
    };
    deliver(&mut end, &call(INITXCH, said.encode()));
    assert_eq!(request(&mut end, &want), Err(NotChanged::Fixed(2)));
}

/// Returns the response of `end` to a request.
fn asked(end: &mut Extensions, want: &[Property]) -> Response {
    let want = want.to_vec();
    let routed = deliver(end, &call(REQXCH, Request { want }.encode()));
    assert_eq!(routed, Routed::Taken);
    let mut actions = std::iter::from_fn(|| end.next_action());
    let Some(Action::Send(op)) = actions.find(|action| !matches!(action, Action::LimitsChanged))
    else {
        panic!("a response");
    };
    assert_eq!((op.xid, op.number), (XID, RESPXCH));
    assert_eq!(op.direction, Direction::Reply);
    Response::decode(&op.fields).expect("well formed")
}

#[test]
fn xchar_s4_3_a_response_has_the_xid_of_its_request_and_covers_it() {
    let mut end = settled(Side::Server);
    let want = [
        property(9, &[1]),
        property(1, &[16 << 10]),
        property(2, &[0]),
        property(3, &[0]),
        property(0xffff_ffff, &[]),
    ];
    let response = asked(&mut end, &want);
    assert!(response.covers(want.len()));
    // Only for the size is the wanted value in effect.
    assert_eq!(response.done, only(1));
    assert!(response.pending.is_empty());
    // An empty list has an empty response.
    assert!(asked(&mut end, &[]).covers(0));
}

#[test]
fn xchar_s4_3_what_cannot_be_is_rejected_and_what_can_in_part_is_done_in_part() {
    let size = |end: &mut Extensions, bytes: u32| asked(end, &[property(1, &[bytes])]);
    let pending = Response {
        pending: only(0),
        ..Response::default()
    };
    // Longer than this side allows.
    let mut end = settled(Side::Server);
    assert_eq!(size(&mut end, u32::MAX), pending);
    let next = end.next_action();
    assert!(matches!(
        next,
        Some(Action::ReplaceReceives { size: 262_144 })
    ));
    // Only one change at a time.
    let rejected = Response {
        rejected: only(0),
        ..Response::default()
    };
    assert_eq!(size(&mut end, 8 << 10), rejected);
    end.receives_replaced(256 << 10);
    let [(_, _, UPDXCH, ref info)] = optional(&mut end)[..] else {
        panic!("an update");
    };
    let told = Update {
        now: property(1, &[256 << 10]),
        pending_cleared: true,
    };
    assert_eq!(*info, told.encode());
    // The peer that asked has understood.
    assert_eq!(end.limits().inline_receive, 256 << 10);
    // Never less than every receiver has.
    let mut end = settled(Side::Server);
    assert_eq!(size(&mut end, 0), pending);
    assert_eq!(end.limits().inline_receive, 4096);
}

#[test]
fn xchar_s4_3_directions_are_those_of_a_call_and_its_reply() {
    let mut end = settled(Side::Client);
    let response = Response::default().encode();
    assert_eq!(
        deliver(&mut end, &call(RESPXCH, response.clone())),
        bad_header()
    );
    // Errors in a reply are not reported.
    let malformed = operation(Direction::Reply, RESPXCH, words(&[9]));
    assert!(matches!(
        deliver(&mut end, &malformed),
        Routed::Discarded(_)
    ));
    let want = Request::default().encode();
    let as_reply = operation(Direction::Reply, REQXCH, want);
    assert!(matches!(deliver(&mut end, &as_reply), Routed::Discarded(_)));
    assert!(sent(&mut end).is_empty());
}

#[test]
fn xchar_s4_4_at_most_one_update_between_two_messages_of_the_peer() {
    let mut end = settled(Side::Client);
    deliver(&mut end, &rpc());
    raise(&mut end, 20 << 10).expect("possible");
    end.receives_replaced(20 << 10);
    assert_eq!(sent(&mut end).len(), 1);
    end.replies_arrived(Calls::Next);
    raise(&mut end, 24 << 10).expect("possible");
    end.receives_replaced(24 << 10);
    assert!(sent(&mut end).is_empty());
    // A malformed message counts as a message, too.
    assert_eq!(deliver(&mut end, &call(UPDXCH, Bytes::new())), bad_header());
    assert_eq!(sent(&mut end).len(), 1);
}

#[test]
fn xchar_s4_4_an_update_is_believed_asked_for_or_not() {
    let mut end = settled(Side::Server);
    for (bytes, cleared) in [(20 << 10, false), (24 << 10, true)] {
        let now = property(1, &[bytes]);
        assert_eq!(update(&mut end, now, cleared), Routed::Taken);
        assert_eq!(end.limits().inline_send, bytes);
    }
    let as_reply = Update {
        now: property(1, &[28 << 10]),
        pending_cleared: false,
    };
    let header = operation(Direction::Reply, UPDXCH, as_reply.encode());
    assert_eq!(deliver(&mut end, &header), Routed::Taken);
    assert_eq!(end.limits().inline_send, 28 << 10);
}

/// A characteristic of another crate: a list of lengths.
enum Lengths {}

impl Characteristic for Lengths {
    type Value = Vec<u32>;
    const ID: u32 = 5;
    const NAME: &'static str = "lengths";

    fn default_value() -> Vec<u32> {
        vec![4096]
    }

    fn encode(value: &Vec<u32>, out: &mut BytesMut) {
        out.put_u32(value.len() as u32);
        value.iter().for_each(|len| out.put_u32(*len));
    }

    fn decode(from: &mut Reader<'_>) -> Result<Vec<u32>, Malformed> {
        let count = from.u32()? as usize;
        if from.left() / 4 < count {
            return Err(Malformed::Truncated);
        }
        (0..count).map(|_| from.u32()).collect()
    }
}

/// An extension that records what the peer announces.
#[derive(Debug, Default)]
struct Listener {
    heard: Vec<Property>,
}

impl Extension for Listener {
    fn name(&self) -> &'static str {
        "listener"
    }

    fn numbers(&self) -> &[u32] {
        &[]
    }

    fn properties(&self) -> Vec<Property> {
        vec![Lengths::property(&vec![1024, 65536])]
    }

    fn received(&mut self, _: &ReceivedMessage<'_>, _: &mut Outbox<'_>) -> Result<(), Refusal> {
        Err(Refusal::Unsupported)
    }

    fn property_received(&mut self, property: &Property, _: &mut Outbox<'_>) {
        self.heard.push(property.clone());
    }
}

#[test]
fn xchar_s6_1_other_crates_register_characteristics_with_types() {
    let mut registry = Registry::default();
    registry.register::<Lengths>().expect("nobody else has it");
    let taken = registry.register::<Lengths>().unwrap_err();
    assert_eq!((taken.id, taken.first), (5, "lengths"));
    assert!(registry.knows(5) && !registry.knows(4));
    let with = || {
        let config = rpcrdma_ext_xchar::Config {
            registry: registry.clone(),
            ..config()
        };
        let exchange = Box::new(Exchange::new(config));
        let list: Vec<Box<dyn Extension>> = vec![exchange, Box::new(Listener::default())];
        Extensions::new(Side::Client, 1000, list).expect("no operation in common")
    };
    let mut one = with();
    one.connected(None);
    let told = operations::header(sent(&mut one).remove(0), 1);
    let mut other = with();
    assert_eq!(deliver(&mut other, &told), Routed::Taken);
    let lengths = exchange(&other).peer().get::<Lengths>();
    assert_eq!(lengths, [1024, 65536]);
    let heard = &other.find::<Listener>().expect("it is there").heard;
    assert!(heard.contains(&Lengths::property(&vec![1024, 65536])));
    // The value of a registered characteristic must be valid.
    let mut third = with();
    let bad = init(&[property(5, &[2, 1])]);
    assert_eq!(
        deliver(&mut third, &call(INITXCH, bad.encode())),
        bad_header()
    );
}

#[test]
fn xchar_s6_2_the_experimental_range() {
    assert_eq!(*EXPERIMENTAL.start(), 4_294_967_040);
    assert_eq!(*EXPERIMENTAL.end(), u32::MAX);
    let registry = Registry::default();
    let describe = |id, value: &[u32]| registry.describe(&property(id, value));
    assert_eq!(describe(1, &[4096]), "receive buffer size 4096");
    assert_eq!(describe(3, &[2]), "backward request support General");
    assert_eq!(describe(8, &[1]), "unknown characteristic 8 (4 B)");
    let experimental = "experimental characteristic 4294967040 (0 B)";
    assert_eq!(describe(4_294_967_040, &[]), experimental);
}
