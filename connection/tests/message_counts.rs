//! Counted messages (version-two-07, section 4.2.1): the figures, the wrap of the counts, and two ends
//! that keep to the rules.

use quickcheck::{TestResult, quickcheck};
use rpcrdma_connection::flow::{MAX_CREDITS, MIN_CREDITS, MessageCounts, Overrun};

/// Counts at which a connection starts: the first one, and some from which the counts, or
/// differences of 2^31, wrap soon.
const STARTS: [u32; 6] = [
    0,
    i32::MAX as u32 - 1,
    i32::MAX as u32,
    u32::MAX - 2,
    u32::MAX - 1,
    u32::MAX,
];

#[test]
fn wg_s4_2_1_counts_start_at_zero_and_one_message_may_be_sent() {
    let mut flow = MessageCounts::new();
    assert_eq!((flow.sent(), flow.received(), flow.may_send()), (0, 0, 1));
    assert_eq!(flow, MessageCounts::default());
    assert!(flow.take_send());
    assert_eq!((flow.sent(), flow.received(), flow.may_send()), (1, 0, 0));
}

#[test]
fn wg_s4_2_1_the_credit_field_is_received_messages_and_advertised_credits() {
    for start in STARTS {
        let mut flow = MessageCounts::starting_at(start);
        assert_eq!(flow.credit(1), start.wrapping_add(1));
        assert_eq!(flow.credit(10), start.wrapping_add(10));
        flow.take_received(0, false).unwrap();
        flow.take_received(0, false).unwrap();
        assert_eq!(flow.credit(10), start.wrapping_add(12));
        assert_eq!(flow.received(), start.wrapping_add(2));
    }
}

#[test]
fn wg_s4_2_1_no_message_is_sent_beyond_the_limit() {
    for start in STARTS {
        let mut flow = MessageCounts::starting_at(start);
        flow.take_received(start.wrapping_add(5), false).unwrap();
        for left in (0..5).rev() {
            assert!(flow.take_send());
            assert_eq!(flow.may_send(), left);
        }
        assert!(!flow.take_send(), "the limit is reached");
        assert_eq!(
            flow.sent(),
            start.wrapping_add(5),
            "and nothing was counted"
        );
    }
}

#[test]
fn wg_s4_2_1_1_one_grant_may_be_sent_at_the_limit() {
    for start in STARTS {
        let mut flow = MessageCounts::starting_at(start);
        assert!(flow.take_send());
        assert_eq!((flow.may_send(), flow.may_grant()), (0, true));
        assert!(flow.take_grant());
        assert!(!flow.may_grant());
        assert!(
            !flow.take_grant(),
            "there is one more receive and no second"
        );
        // The grant counted: the peer's new limit is that much higher.
        flow.take_received(start.wrapping_add(2), false).unwrap();
        assert_eq!((flow.may_send(), flow.may_grant()), (0, true));
        assert!(!flow.take_send());
    }
}

#[test]
fn wg_s4_2_1_advertised_credits_may_be_zero_and_may_shrink() {
    for start in STARTS {
        let mut flow = MessageCounts::starting_at(start);
        assert_eq!(flow.credit(8), start.wrapping_add(8));
        flow.take_received(0, false).unwrap();
        // Seven messages may be on the way, so the limit stays until they have arrived.
        for advertised in [0, 1, 7] {
            assert_eq!(flow.credit(advertised), start.wrapping_add(8));
        }
        for _ in 0..7 {
            flow.take_received(0, false).unwrap();
        }
        assert_eq!(
            flow.credit(0),
            start.wrapping_add(8),
            "the peer has none left"
        );
        assert_eq!(flow.credit(2), start.wrapping_add(10));
    }
}

#[test]
fn wg_s4_2_1_the_limit_is_that_of_the_last_message_even_if_it_is_lower() {
    for start in STARTS {
        let mut flow = MessageCounts::starting_at(start);
        let _ = flow.credit(8);
        flow.take_received(start.wrapping_add(8), false).unwrap();
        assert!(flow.take_send() && flow.take_send());
        assert_eq!(flow.may_send(), 6);
        flow.take_received(start.wrapping_add(2), false).unwrap();
        assert_eq!((flow.may_send(), flow.may_grant()), (0, true));
        flow.take_received(start.wrapping_add(1), false).unwrap();
        assert_eq!((flow.may_send(), flow.may_grant()), (0, false));
        flow.take_received(start.wrapping_add(3), false).unwrap();
        assert_eq!(flow.may_send(), 1);
    }
}

#[test]
fn wg_s4_2_1_advertised_credits_are_less_than_2_to_the_31_minus_1() {
    for start in STARTS {
        let mut flow = MessageCounts::starting_at(start);
        for advertised in [MAX_CREDITS, MAX_CREDITS + 1, u32::MAX] {
            assert_eq!(flow.credit(advertised), start.wrapping_add(MAX_CREDITS));
        }
        assert_eq!(flow.receives_needed(), MAX_CREDITS + 2);
        let mut peer = MessageCounts::starting_at(start);
        let credit = flow.credit(MAX_CREDITS);
        peer.take_received(credit, false).unwrap();
        assert_eq!(peer.may_send(), MAX_CREDITS);
    }
    assert_eq!(MAX_CREDITS, 0x7fff_fffe);
}

/// One ordinary message and one grant may be beyond the limit, in either order, and no other.
#[test]
fn a_peer_that_sends_more_than_it_was_told_overruns_the_receives() {
    for start in STARTS {
        for order in [[false, true], [true, false]] {
            let mut flow = MessageCounts::starting_at(start);
            assert_eq!(flow.credit(3), start.wrapping_add(3));
            for credit in 0..3 {
                flow.take_received(credit, false).unwrap();
            }
            let overrun = |more: u32| Overrun {
                count: start.wrapping_add(3 + more),
                limit: start.wrapping_add(3),
            };
            flow.take_received(9, order[0]).unwrap();
            let before = flow;
            assert_eq!(flow.take_received(9, order[0]), Err(overrun(2)));
            assert_eq!(flow, before, "nothing was taken over");
            flow.take_received(9, order[1]).unwrap();
            assert_eq!(flow.receives_needed(), 0);
            for is_grant in [true, false] {
                assert_eq!(flow.take_received(9, is_grant), Err(overrun(3)));
            }
            // The next limit counts both.
            assert_eq!(flow.credit(3), start.wrapping_add(8));
            flow.take_received(9, false).unwrap();
        }
    }
}

/// A sender that keeps to the letter of section 4.2.1 sends one message beyond each limit. A limit
/// that moves on with it would let it go on for ever.
#[test]
fn wg_s4_2_1_a_surplus_message_does_not_advance_the_limit_of_an_end_that_advertises_nothing() {
    for start in STARTS {
        let mut flow = MessageCounts::starting_at(start);
        let told = flow.credit(3);
        for _ in 0..4 {
            flow.take_received(9, false).unwrap();
        }
        assert!(!flow.limit_is_due(0));
        assert_eq!(flow.credit(0), told);
        // The receive for a grant is promised again when one has used it.
        flow.take_received(9, true).unwrap();
        assert!(!flow.limit_is_due(0));
        assert_eq!(flow.credit(0), told.wrapping_add(1));
        flow.take_received(9, true).unwrap();
        assert!(flow.take_received(9, false).is_err());
        assert_eq!(flow.credit(1), start.wrapping_add(7));
    }
}

/// One receive for a grant, and one for a surplus message.
#[test]
fn wg_s4_2_1_1_one_receive_more_than_advertised_is_needed() {
    for start in STARTS {
        let mut flow = MessageCounts::starting_at(start);
        assert_eq!(flow.receives_needed(), 3);
        let _ = flow.credit(8);
        assert_eq!(flow.receives_needed(), 10);
        let _ = flow.credit(2);
        assert_eq!(flow.receives_needed(), 10, "messages may be on the way");
        for left in (2..10).rev() {
            flow.take_received(0, false).unwrap();
            assert_eq!(flow.receives_needed(), left);
        }
        flow.take_received(0, false).unwrap();
        flow.take_received(0, true).unwrap();
        assert_eq!(flow.receives_needed(), 0);
        let _ = flow.credit(8);
        assert_eq!(flow.receives_needed(), 10);
    }
}

/// Messages that came before the version was known count (section 4.2.1: all Sends and Receives).
#[test]
fn wg_s4_2_1_messages_before_the_version_was_known_count() {
    let mut flow = MessageCounts::continuing(1, 2);
    assert_eq!((flow.sent(), flow.received(), flow.may_send()), (1, 2, 1));
    flow.take_received(9, false).unwrap();
    assert_eq!((flow.may_send(), flow.credit(5)), (8, 8));
}

#[test]
fn wg_s4_2_1_1_a_refresh_is_due_before_half_of_the_limit_is_exceeded() {
    for start in STARTS {
        for capacity in [1, 2, 7, 8] {
            let mut flow = MessageCounts::starting_at(start);
            let _ = flow.credit(capacity);
            for received in 1..=capacity {
                flow.take_received(0, false).unwrap();
                let left = capacity - received;
                assert_eq!(flow.limit_is_due(capacity), 2 * left <= capacity);
                // What would not advance the limit is never due.
                assert!(!flow.limit_is_due(left));
            }
            assert!(
                flow.limit_is_due(1),
                "one more is news for a peer without credits"
            );
            assert!(!flow.limit_is_due(0));
            let _ = flow.credit(capacity);
            assert!(!flow.limit_is_due(capacity), "it has been told");
        }
    }
}

#[test]
fn a_grant_is_not_answered_with_a_grant() {
    let table = [
        (1, false),
        (2, false),
        (MIN_CREDITS, false),
        (64, false),
        (u32::MAX, false),
    ];
    for (capacity, answered) in table {
        let mut flow = MessageCounts::new();
        let _ = flow.credit(capacity);
        flow.take_received(9, true).unwrap();
        assert_eq!(flow.limit_is_due(capacity), answered, "{capacity}");
    }
}

/// Credits that the peer's grants have used count as left, until there is none: then the peer is told more, if
/// that is enough to end the exchange of grants (drafts/errata-07.md, 10).
#[test]
fn a_peer_whose_grants_have_used_all_its_credits_is_told_more() {
    for (capacity, told) in [(2, false), (MIN_CREDITS, true), (64, true)] {
        let mut flow = MessageCounts::new();
        let _ = flow.credit(capacity);
        for left in (0..capacity).rev() {
            flow.take_received(9, true).unwrap();
            let due = flow.limit_is_due(capacity);
            assert_eq!(due, told && left == 0, "{left} of {capacity}");
        }
    }
}

/// One end of a simulated connection: messages on their way to it are limits and whether they are
/// grants.
struct End {
    flow: MessageCounts,
    incoming: std::collections::VecDeque<(u32, bool)>,
    advertised: u32,
}

quickcheck! {
    // Whatever two ends send, receive and advertise in any order: nobody is ever overrun, receives
    // cover what is on the way, and two ends that both have no credits open each other again.
    fn two_ends_never_overrun_each_other_and_never_stop(start: u32, near_wrap: bool, steps: Vec<(u8, u8)>) -> TestResult {
        let start = if near_wrap { start % 8 } else { start }.wrapping_sub(4);
        let end = || End { flow: MessageCounts::starting_at(start), incoming: Default::default(), advertised: 1 };
        let mut ends = [end(), end()];
        for (action, advertised) in steps {
            let at = usize::from(action & 1);
            match action >> 1 & 3 {
                0 => ends[at].advertised = u32::from(advertised % 8),
                1 => step_receive(&mut ends, at),
                2 => step_send(&mut ends, at, false),
                _ => step_send(&mut ends, at, true),
            }
            for end in &ends {
                let arriving = end.incoming.len() as u32;
                if arriving > end.flow.receives_needed() {
                    return TestResult::error(format!("{arriving} messages for {:?}", end.flow));
                }
            }
        }
        // All that is on the way arrives, and both ends can take messages again.
        for at in [0, 1] {
            while !ends[at].incoming.is_empty() {
                step_receive(&mut ends, at);
            }
            ends[at].advertised = MIN_CREDITS;
        }
        // Grants are sent while they are due, and soon none is.
        for _ in 0..3 {
            for at in [0, 1] {
                if ends[at].flow.limit_is_due(MIN_CREDITS) {
                    step_send(&mut ends, at, true);
                    step_receive(&mut ends, 1 - at);
                }
            }
        }
        let is_open = |end: &End| end.flow.may_send() > 0 && !end.flow.limit_is_due(MIN_CREDITS);
        match ends.iter().all(is_open) {
            true => TestResult::passed(),
            false => TestResult::error(format!("stuck: {:?} {:?}", ends[0].flow, ends[1].flow)),
        }
    }
}

/// A peer that keeps to the letter of sections 4.2.1 and 4.2.1.1: it posts an ordinary message
/// while its sent count is not greater than the limit, and one grant more. It sends no second grant
/// before the limit covers the first one, which has used the receive that is kept for grants.
#[derive(Clone, Copy)]
struct ByTheLetter {
    sent: i64,
    limit: i64,
    /// The number of the last grant.
    granted_at: i64,
}

quickcheck! {
    // Whatever a peer sends that keeps to the letter of the draft, it is never refused, and the
    // receives cover what is on the way.
    fn a_peer_that_keeps_to_the_letter_is_never_refused(start: u32, near_wrap: bool, steps: Vec<(u8, u8)>) -> TestResult {
        let start = if near_wrap { start % 8 } else { start }.wrapping_sub(4);
        let mut flow = MessageCounts::starting_at(start);
        let mut peer = ByTheLetter { sent: 0, limit: 1, granted_at: 0 };
        let mut on_the_way = std::collections::VecDeque::new();
        for (action, advertised) in steps {
            let spare = peer.sent <= peer.limit;
            let beyond = i64::from(peer.granted_at <= peer.limit);
            match action % 4 {
                0 => {
                    if let Some(is_grant) = on_the_way.pop_front() {
                        let taken = flow.take_received(start, is_grant);
                        if taken.is_err() {
                            return TestResult::error(format!("{taken:?} with {flow:?}"));
                        }
                    }
                }
                1 if spare => {
                    peer.sent += 1;
                    on_the_way.push_back(false);
                }
                2 if peer.sent <= peer.limit + beyond && peer.sent >= peer.limit => {
                    peer.sent += 1;
                    peer.granted_at = peer.sent;
                    on_the_way.push_back(true);
                }
                3 => {
                    // A message to the peer, which arrives at once.
                    let credit = flow.credit(u32::from(advertised % 8));
                    let limit = i64::from(credit.wrapping_sub(start).cast_signed());
                    peer.limit = limit;
                }
                _ => {}
            }
            if on_the_way.len() as u32 > flow.receives_needed() {
                return TestResult::error(format!("{} messages for {flow:?}", on_the_way.len()));
            }
        }
        TestResult::passed()
    }
}

fn step_receive(ends: &mut [End; 2], at: usize) {
    if let Some((credit, is_grant)) = ends[at].incoming.pop_front() {
        let taken = ends[at].flow.take_received(credit, is_grant);
        assert_eq!(taken, Ok(()));
    }
}

/// Sends an ordinary message, or a grant if it has news, from `at` to the other end.
fn step_send(ends: &mut [End; 2], at: usize, grant: bool) {
    let (flow, advertised) = (&mut ends[at].flow, ends[at].advertised);
    let sent = match grant {
        true => flow.limit_is_due(advertised) && flow.take_grant(),
        false => flow.take_send(),
    };
    if sent {
        let credit = flow.credit(advertised);
        ends[1 - at].incoming.push_back((credit, grant));
    }
}

/// Two ends go on as before when their counts pass 2^32, in both directions, and the value of a
/// credit field may be any number.
#[test]
fn wg_s4_2_1_counters_wrap() {
    for start in STARTS {
        let mut ends = [
            MessageCounts::starting_at(start),
            MessageCounts::starting_at(start),
        ];
        for round in 0..10_u32 {
            for from in [0, 1] {
                let is_grant = round % 3 == 2;
                let taken = match is_grant {
                    true => ends[from].take_grant(),
                    false => ends[from].take_send(),
                };
                assert!(taken, "{start}: round {round}");
                let credit = ends[from].credit(5);
                ends[1 - from].take_received(credit, is_grant).unwrap();
            }
        }
        for end in &ends {
            assert_eq!(end.sent(), start.wrapping_add(10));
            assert_eq!(end.received(), start.wrapping_add(10));
        }
        // The second has heard the last word, the first has one message more to hear of.
        assert_eq!((ends[0].may_send(), ends[1].may_send()), (5, 4));
        // A limit that is 2^31 or more ahead counts as behind.
        let beyond = ends[1].sent().wrapping_add(1 << 31);
        ends[1].take_received(beyond, false).unwrap();
        assert_eq!((ends[1].may_send(), ends[1].may_grant()), (0, false));
    }
}
