//! Credits per call: the accounts of requester and responder (RFC 8166, section 3.3.1).
#![allow(clippy::unwrap_used, reason = "a test may panic")]

use quickcheck::quickcheck;
use rpcrdma_connection::flow::{RequesterCredits, ResponderCredits};

quickcheck! {
    fn s3_3_1_a_requester_has_no_more_calls_outstanding_than_granted(
        requested: u32,
        replies: Vec<Option<u32>>
    ) -> bool {
        let mut credits = RequesterCredits::new(requested);
        replies.into_iter().all(|reply| {
            let before = credits.in_flight();
            match reply {
                Some(granted) if before > 0 => {
                    credits.replied(granted);
                    credits.in_flight() == before - 1
                }
                // No call is sent over the present limit, whatever was granted earlier.
                _ if credits.take() => credits.in_flight() <= credits.limit(),
                _ => credits.in_flight() == before && before >= credits.limit(),
            }
        })
    }

    fn s3_3_1_a_grant_is_never_zero(capacity: u32, requested: u32) -> bool {
        let mut credits = ResponderCredits::new(capacity);
        let called = credits.called(requested);
        credits.ended();
        let granted = credits.grant();
        called.is_ok() && granted >= 1 && granted <= capacity.max(1) && granted <= requested.max(1)
    }
}

#[test]
fn s3_3_1_the_limit_is_the_lower_of_requested_and_granted() {
    let mut credits = RequesterCredits::new(4);
    assert!(credits.take());
    credits.replied(100);
    assert_eq!((credits.requested(), credits.available()), (4, 4));
    assert!(credits.take() && credits.take() && credits.take());
    credits.replied(2);
    assert_eq!((credits.in_flight(), credits.available()), (2, 0));
    assert!(!credits.take());
    credits.replied(3);
    assert_eq!(credits.available(), 2);
}

#[test]
fn s3_3_1_a_grant_of_zero_is_no_deadlock() {
    let mut credits = RequesterCredits::new(4);
    assert!(credits.take());
    credits.replied(0);
    assert!(credits.take());
    assert!(!credits.take());
    assert_eq!(RequesterCredits::new(0).requested(), 1);
}

#[test]
fn s3_3_1_more_is_granted_only_after_more_can_be_received() {
    let mut credits = ResponderCredits::new(2);
    credits.called(8).unwrap();
    credits.ended();
    assert_eq!(credits.grant(), 2);
    credits.raise(8);
    assert_eq!(credits.grant(), 8);
    // A grant cannot be revoked, because calls under it may be in flight.
    credits.raise(1);
    assert_eq!(credits.grant(), 8);
}

#[test]
fn s3_3_1_fewer_may_be_granted_and_calls_by_the_earlier_grant_are_taken() {
    let mut credits = ResponderCredits::new(4);
    for _ in 0..4 {
        credits.called(8).unwrap();
    }
    credits.limit(2);
    credits.ended();
    assert_eq!(credits.grant(), 2);
    credits.called(8).unwrap();
    credits.limit(0);
    assert_eq!(credits.grant(), 1);
    credits.limit(u32::MAX);
    assert_eq!(credits.grant(), 4);
}

#[test]
fn s3_3_1_a_requester_that_exceeds_its_grant_is_found_out() {
    let mut credits = ResponderCredits::new(2);
    credits.called(2).unwrap();
    credits.called(2).unwrap();
    let overrun = credits.called(2).unwrap_err();
    assert_eq!((overrun.outstanding, overrun.capacity), (3, 2));
    credits.ended();
    assert_eq!(credits.grant(), 2);
    assert_eq!(credits.outstanding(), 1);
    credits.called(2).unwrap();
}

#[test]
fn s3_3_3_one_call_before_the_first_reply() {
    let mut credits = RequesterCredits::new(32);
    assert!(credits.take());
    assert!(!credits.take());
    credits.replied(32);
    assert_eq!(credits.available(), 32);
}

#[test]
fn v2_s5_one_call_until_a_reply_grants_more() {
    let mut credits = RequesterCredits::new(32);
    assert!(credits.take());
    assert!(!credits.take());
    // An error returns its credit, but its grant is ignored.
    credits.replied_group(1, None);
    assert_eq!((credits.limit(), credits.available()), (1, 1));
    assert!(credits.take());
    credits.replied_group(1, Some(20));
    assert_eq!(credits.available(), 20);
    assert!(!credits.take_group(21) && credits.take_group(20));
    assert!(!credits.take());
    // A reply returns the credits of all transmissions of a call; a grant may also come without a
    // call.
    credits.replied_group(20, Some(0));
    assert_eq!((credits.limit(), credits.in_flight()), (1, 0));
    credits.apply_grant(5);
    assert_eq!(credits.available(), 5);
}

#[test]
fn a_call_takes_a_credit_for_each_of_its_transmissions() {
    let mut credits = ResponderCredits::new(4);
    assert_eq!(credits.called_group(9, 3), Ok(()));
    let overrun = credits.called_group(9, 2).expect_err("one too many");
    assert_eq!((overrun.outstanding, overrun.capacity), (5, 4));
    assert!(credits.called_group(9, u32::MAX).is_err());
    assert_eq!((credits.called(9), credits.outstanding()), (Ok(()), 4));
    credits.ended_group(3);
    assert_eq!((credits.grant(), credits.outstanding()), (4, 1));
    credits.ended();
    assert_eq!((credits.grant(), credits.outstanding()), (4, 0));
}
