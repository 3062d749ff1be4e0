//! Tests of the accounting of messages.

use rpcrdma_v2_wg::{Body, Header};

use super::super::GrantAll;
use super::*;
use crate::dialect::VersionTwoWg;

/// Otherwise an end could wait for ever for the reply to a call that it made in order to answer
/// the peer's calls.
#[test]
fn further_calls_leave_the_credits_for_replies() {
    for (side, without) in [(Side::Server, 9), (Side::Client, 7)] {
        let mut flow = MessageFlow::new(&VersionTwoWg, side, 2, 2, 8, 0);
        assert_eq!(flow.advertised(), 8);
        flow.call_began().unwrap();
        flow.set_further_calls(3);
        assert_eq!(flow.advertised(), 4);
        flow.set_further_calls(30);
        assert_eq!(flow.advertised(), 0);
        flow.call_sent();
        assert_eq!(flow.advertised(), 1);
        flow.call_sent();
        assert_eq!(flow.advertised(), 2);
        flow.set_further_calls(0);
        assert_eq!(flow.advertised(), without);
    }
}

/// Regression test: a server whose calls in progress wait for the reply to its own call never had it, if the
/// client's grants had used the credits that were left.
#[test]
fn a_client_without_credits_is_granted_one_for_its_reply() {
    for calls in [0, 1] {
        let mut flow = MessageFlow::new(&VersionTwoWg, Side::Server, 2, 2, 3, 0);
        for xid in [1, 2] {
            flow.received(&encoded_middle(xid, 20)).unwrap();
            flow.call_began().unwrap();
            if xid == 1 {
                flow.call_sent();
                assert!(
                    flow.due_grant(&GrantAll).is_some(),
                    "the first three credits"
                );
            }
        }
        if calls == 0 {
            flow.call_answered();
        }
        for _ in 0..2 {
            assert!(flow.due_grant(&GrantAll).is_none());
            let grant = VersionTwoWg.encode_grant(20);
            flow.received(&Segments::from_iter([grant])).unwrap();
        }
        assert_eq!(flow.advertised(), 1 + calls);
        // Without a call of the server, a reply carries the credit.
        assert_eq!(flow.due_grant(&GrantAll).is_some(), calls > 0);
        assert!(flow.due_grant(&GrantAll).is_none(), "once");
    }
}

/// Returns a server of which the client has used all credits for calls.
fn with_calls_in_progress(callbacks: u32, capacity: u32) -> MessageFlow {
    let own = callbacks;
    let mut flow = MessageFlow::new(&VersionTwoWg, Side::Server, own, callbacks, capacity, 0);
    for xid in 1..=capacity {
        call_arrives(&mut flow, xid);
        assert_eq!(flow.due_grant(&GrantAll).is_some(), xid == 1);
    }
    assert_eq!(flow.advertised(), 0);
    flow
}

fn call_arrives(flow: &mut MessageFlow, xid: u32) {
    flow.received(&encoded_middle(xid, 20)).unwrap();
    flow.call_began().unwrap();
}

/// Regression test: a client that had more calls in progress than the server grants by now got no credit for its reply,
/// nor one that had used the credit for a call, because it did not have the server's call yet.
#[test]
fn a_client_with_more_calls_than_are_granted_is_granted_one_for_its_reply() {
    let lowered: [fn(&mut MessageFlow); 3] = [
        |_| {},
        |flow| flow.limit_grant(3),
        |flow| flow.set_policy_choice(1),
    ];
    for lower in lowered {
        let mut flow = with_calls_in_progress(2, 8);
        lower(&mut flow);
        assert_eq!(flow.advertised(), 0);
        assert!(flow.due_grant(&GrantAll).is_none());
        flow.call_sent();
        for xid in [9, 10] {
            assert_eq!(flow.advertised(), 1);
            assert!(flow.due_grant(&GrantAll).is_some());
            assert!(flow.due_grant(&GrantAll).is_none(), "once");
            call_arrives(&mut flow, xid);
        }
        // No more calls than these are taken, and a surplus one.
        assert_eq!(flow.advertised(), 0);
        assert!(flow.due_grant(&GrantAll).is_none());
        call_arrives(&mut flow, 11);
        assert!(flow.call_began().is_err());
        // A client that keeps to its credits has one for a reply again when calls are answered.
        for _ in 0..2 {
            flow.call_ended();
        }
        assert_eq!(flow.advertised(), 1);
        flow.call_answered();
        assert_eq!(flow.advertised(), 0);
    }
}

/// Otherwise the client might use the credit for a call, before it has the call for whose reply it is.
#[test]
fn the_credit_for_a_reply_comes_with_its_call_and_not_before() {
    for is_withdrawn in [false, true] {
        let mut flow = with_calls_in_progress(1, 8);
        let mut actions = VecDeque::new();
        // The client lowers its own limit to what the server has sent, so that the call waits.
        let grant = VersionTwoWg.encode_grant(flow.counts.sent());
        flow.received(&Segments::from_iter([grant])).unwrap();
        flow.call_sent();
        assert_eq!(flow.advertised(), 1, "for the call itself");
        let call = encoded_middle(100, flow.credit());
        flow.send(&mut actions, Direction::Call, call.clone(), None, false);
        assert!(actions.is_empty());
        assert_eq!(flow.advertised(), 0);
        assert!(flow.due_grant(&GrantAll).is_none());
        if is_withdrawn {
            let (xid, header_type) = VersionTwoWg.xid_and_type(&call).unwrap();
            assert_eq!(flow.withdraw_calls(header_type), [xid]);
            flow.call_answered();
            flow.call_sent();
            assert_eq!(flow.advertised(), 1, "for the next call");
            continue;
        }
        let limit = flow.counts.sent().wrapping_add(1);
        flow.received(&encoded_middle(9, limit)).unwrap();
        flow.release_queued(&mut actions);
        let told = actions.iter().map(|action| match action {
            Action::Send { gather, .. } => VersionTwoWg.credit(gather).unwrap().credit,
            other => panic!("{other:?}"),
        });
        let with_reply = flow.counts.received().wrapping_add(1);
        assert_eq!(told.collect::<Vec<_>>(), [with_reply], "the call leaves");
        assert_eq!(flow.advertised(), 1);
    }
}

/// A client keeps a message for the reply to each call of its server, of which several may have
/// come in one message.
#[test]
fn calls_of_a_client_leave_messages_for_the_replies_to_further_calls() {
    let mut flow = MessageFlow::new(&VersionTwoWg, Side::Client, 4, 4, 8, 0);
    let message = encoded_middle(1, 8);
    flow.received(&message).unwrap();
    assert_eq!(flow.unreserved(), 4);
    flow.call_began().unwrap();
    flow.set_further_calls(5);
    assert_eq!(flow.unreserved(), 2);
    flow.set_further_calls(50);
    assert!(!flow.may_begin_call());
}

/// Returns a part of a call with this credit value.
fn encoded_middle(xid: u32, credit: u32) -> Segments {
    let body = Body::Middle {
        direction: Direction::Call,
        remaining: 100,
    };
    Segments::from_iter([Header { xid, credit, body }.encode()])
}

/// Regression test: beyond the limit, the number of messages that may still arrive wrapped to
/// almost 2^32, so that replies in several messages were planned as if none of them waited.
#[test]
fn beyond_the_limit_no_message_is_receivable() {
    let mut flow = MessageFlow::new(&VersionTwoWg, Side::Client, 1, 0, 1, 0);
    flow.call_began().unwrap();
    assert_eq!(flow.receivable(), 1);
    for (xid, left) in [(1, 0), (2, 0)] {
        flow.received(&encoded_middle(xid, 1)).unwrap();
        assert_eq!(flow.receivable(), left, "{xid}");
    }
}
