//! Policies of the test's own, which decide how many credits the peer is granted, and when.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod support;

use std::sync::{Arc, Mutex};
use std::time::Duration;

use rdma::Time;
use rpcrdma_connection::flow::{
    Demand, GrantEvent, GrantPolicy, MIN_CREDITS, MakeGrantPolicy, MessageCounts,
};
use rpcrdma_connection::{Config, Options, Side};
use rpcrdma_negotiation::Version;
use support::{Pair, configs_with, echo, message, open, reply, room};

const VERSIONS: [Version; 3] = [Version::ONE, Version::TWO, Version::TWO_WG];
/// Credits of both ends.
const CREDITS: u32 = 16;

/// Grants fewer credits the more calls are in progress.
#[derive(Clone, Copy, Debug)]
struct ByDepth;

impl ByDepth {
    fn credits(calls: u32, most: u32) -> u32 {
        most.saturating_sub(2 * calls)
    }
}

impl GrantPolicy for ByDepth {
    fn credits(&mut self, _: GrantEvent, demand: &Demand) -> u32 {
        Self::credits(demand.calls, demand.most)
    }
}

impl MakeGrantPolicy for ByDepth {
    fn make(&self, _: Side) -> Box<dyn GrantPolicy> {
        Box::new(*self)
    }
}

/// The facts that a policy was told: the event, the time, the calls in progress, and the most credits.
type Told = (GrantEvent, Time, u32, u32);

/// Always has the same answers, and remembers what it was told.
#[derive(Clone, Debug)]
struct Stubborn {
    credits: u32,
    refreshes: bool,
    told: Arc<Mutex<Vec<Told>>>,
}

impl Stubborn {
    fn new(credits: u32, refreshes: bool) -> Self {
        Self {
            credits,
            refreshes,
            told: Arc::default(),
        }
    }

    fn take_told(&self) -> Vec<Told> {
        std::mem::take(&mut self.told.lock().unwrap())
    }
}

impl GrantPolicy for Stubborn {
    fn credits(&mut self, event: GrantEvent, demand: &Demand) -> u32 {
        let told = (event, demand.now, demand.calls, demand.most);
        self.told.lock().unwrap().push(told);
        self.credits
    }

    fn refreshes(&self, _: u32, _: u32) -> bool {
        self.refreshes
    }
}

impl MakeGrantPolicy for Stubborn {
    fn make(&self, _: Side) -> Box<dyn GrantPolicy> {
        Box::new(self.clone())
    }
}

/// Returns the configurations of two ends that have the same number of credits, and whose server
/// has this policy.
fn configs(
    version: Version,
    credits: u32,
    policy: &(impl MakeGrantPolicy + Clone + 'static),
) -> (Config, Config) {
    configs_with(version, |client, server| {
        (client.credits, server.credits) = (credits, credits);
        server.grants = Arc::new(policy.clone());
    })
}

/// Returns how many calls, or in the working group's version 2 messages, the client may have
/// outstanding by the last message of the server. All messages have arrived.
fn granted(pair: &Pair, version: Version) -> u32 {
    let (last, _) = pair.server.sent.last().unwrap();
    let credit = u32::from_be_bytes(last[8..12].try_into().unwrap());
    match version {
        Version::TWO_WG => credit.wrapping_sub(pair.client.sent.len() as u32),
        _ => credit,
    }
}

/// The server of this policy grants by the depth of its queue, and the client keeps to it.
#[test]
fn credits_follow_the_depth_of_the_queue() {
    for version in VERSIONS {
        let mut pair = Pair::echoing(configs(version, CREDITS, &ByDepth));
        pair.call(message(1, 0, &[]), &room(0, &[])).unwrap();
        assert_eq!(
            granted(&pair, version),
            CREDITS,
            "{version}: nothing is in progress"
        );
        pair.answer = None;
        for xid in 2..=5 {
            pair.client.call(message(xid, 0, &[]), &room(0, &[]));
        }
        pair.settle();
        assert_eq!(pair.server.delivered.len(), 4);
        for left in (0..4).rev() {
            let (id, call) = pair.server.delivered.pop_front().unwrap();
            pair.server.reply(id, echo(&call));
            pair.settle();
            let credits = ByDepth::credits(left, CREDITS);
            let expected = match version {
                // Each call in progress takes a credit as well, and what the calls left of the
                // earlier limit is not taken back.
                Version::TWO_WG => (credits - left).max(CREDITS - 4),
                _ => credits,
            };
            assert_eq!(granted(&pair, version), expected, "{version}: {left} left");
        }
    }
}

/// More calls than are granted wait at the client, so that a deep queue does not become deeper.
#[test]
fn calls_wait_at_the_client_while_the_queue_is_deep() {
    for version in VERSIONS {
        let mut pair = Pair::echoing(configs(version, CREDITS, &ByDepth));
        pair.call(message(1, 0, &[]), &room(0, &[])).unwrap();
        pair.answer = None;
        for xid in 2..60 {
            pair.client.call(message(xid, 0, &[]), &room(0, &[]));
        }
        pair.settle();
        let (mut answered, mut deepest) = (0, 0);
        while let Some((id, call)) = pair.server.delivered.pop_front() {
            pair.server.reply(id, echo(&call));
            pair.settle();
            answered += 1;
            if answered > CREDITS {
                deepest = pair.server.connection.unanswered_calls().max(deepest);
            }
        }
        assert_eq!(answered, 58, "{version}");
        // 6 are granted while 5 are in progress, and 4 while 6 are.
        assert!((1..=6).contains(&deepest), "{version}: {deepest}");
    }
}

/// Whatever a policy says, at least one credit is granted and no more than there are receives for
/// (the test's device has no other ones), and all calls end.
#[test]
fn no_policy_overruns_receives_or_stops_a_connection() {
    for version in VERSIONS {
        for credits in [0, 1, 2, u32::MAX] {
            for refreshes in [false, true] {
                let policy = Stubborn::new(credits, refreshes);
                let change = |client: &mut Options, server: &mut Options| {
                    (client.credits, server.credits) = (CREDITS, CREDITS);
                    client.grants = Arc::new(policy.clone());
                    server.grants = Arc::new(policy.clone());
                    client.costs.registration = Duration::from_secs(1);
                    server.costs.registration = Duration::from_secs(1);
                };
                let mut pair = Pair::echoing(configs_with(version, change));
                // Long calls and replies go in several messages where they can.
                let lengths = [(1, 1), (9000, 1), (1, 9000), (2500, 2500)];
                for (round, (words, answer)) in (0..).zip(lengths) {
                    pair.answer_with(move |call| Some(reply(open(call).0, answer, &[])));
                    for xid in 20 * round..20 * (round + 1) {
                        let call = message(xid, words, &[]);
                        pair.client.call(call, &room(answer, &[]));
                    }
                    pair.settle();
                    let granted = granted(&pair, version);
                    assert!((1..=CREDITS).contains(&granted), "{version}: {granted}");
                }
                let case = format!("{version}, {credits}, {refreshes}");
                assert_eq!(pair.client.finished.len(), 80, "{case}");
                assert!(
                    pair.client
                        .finished
                        .iter()
                        .all(|(_, result)| result.is_ok())
                );
                assert_eq!((&pair.client.closed, &pair.server.closed), (&None, &None));
                if credits < 2 && version != Version::TWO_WG {
                    let most = pair
                        .client
                        .connection
                        .requester_counters()
                        .map(|c| c.most_in_flight);
                    assert_eq!(most, Some(1), "{case}: one call at a time");
                }
            }
        }
    }
}

/// Calls of a server that wait at its client for a call of the client leave credits for the reply to
/// that, whatever the client's policy.
#[test]
fn a_policy_of_a_client_does_not_keep_its_replies_from_arriving() {
    const CALLBACKS: u32 = 8;
    for refreshes in [false, true] {
        let policy = Stubborn::new(0, refreshes);
        let mut pair = Pair::echoing(configs_with(Version::TWO_WG, |client, server| {
            (client.callbacks.credits, server.callbacks.credits) = (CALLBACKS, CALLBACKS);
            client.grants = Arc::new(policy.clone());
        }));
        pair.call(message(1, 0, &[]), &room(0, &[])).unwrap();
        for xid in 100..100 + CALLBACKS {
            pair.server.call(message(xid, 0, &[]), &room(0, &[]));
        }
        pair.settle();
        assert!(
            !pair.client.delivered.is_empty(),
            "they are not answered yet"
        );
        pair.call(message(2, 0, &[]), &room(0, &[])).unwrap();
        pair.answer_back = Some(Box::new(echo));
        pair.settle();
        assert_eq!(pair.server.finished.len(), CALLBACKS as usize);
    }
}

/// A policy that always refreshes is not asked about credits that grants alone have used, so that
/// idle ends do not answer grants with grants. A peer without credits is told without a policy.
#[test]
fn grants_are_not_answered_with_grants_and_a_peer_without_credits_is_told() {
    let mut ends = [MessageCounts::new(), MessageCounts::new()];
    let always = |_: u32, _: u32| true;
    let never = |_: u32, _: u32| false;
    let advertised = MIN_CREDITS;
    for end in &mut ends {
        let _ = end.credit(advertised);
    }
    // Both know of each other's credits, and one has used one.
    for at in [0, 1] {
        assert!(ends[at].take_send());
        let credit = ends[at].credit(advertised);
        ends[1 - at].take_received(credit, false).unwrap();
    }
    assert!(ends[0].limit_is_due_by(advertised, always));
    assert!(!ends[0].limit_is_due_by(advertised, never), "two are left");
    assert!(ends[0].take_grant());
    let credit = ends[0].credit(advertised);
    ends[1].take_received(credit, true).unwrap();
    assert!(
        !ends[1].limit_is_due_by(advertised, always),
        "for a grant alone"
    );
    while ends[0].take_send() {
        let credit = ends[0].credit(advertised);
        ends[1].take_received(credit, false).unwrap();
    }
    assert!(ends[1].limit_is_due_by(advertised, never), "none is left");
}

/// A policy learns when calls begin and end, how many are in progress, the time, and the most that
/// it can grant.
#[test]
fn a_policy_is_told_of_calls_time_and_limits() {
    for version in VERSIONS {
        let policy = Stubborn::new(u32::MAX, false);
        let mut pair = Pair::new(configs(version, CREDITS, &policy));
        let at = |seconds: u64| Time::ZERO + Duration::from_secs(seconds);
        let calls = |told: Vec<Told>| -> Vec<Told> {
            let of_calls = [GrantEvent::CallBegan, GrantEvent::CallEnded];
            told.into_iter()
                .filter(|told| of_calls.contains(&told.0))
                .collect()
        };
        pair.server.now = at(5);
        pair.client.call(message(1, 0, &[]), &room(0, &[]));
        pair.settle();
        let told = policy.take_told();
        assert_eq!(told[0].0, GrantEvent::Opened, "{version}: {told:?}");
        let told = calls(told);
        assert_eq!(
            told,
            [(GrantEvent::CallBegan, at(5), 1, CREDITS)],
            "{version}"
        );
        // The host is short of receives.
        pair.server.connection.limit_grant(4);
        let limited = (GrantEvent::MostChanged, at(5), 1, 4);
        assert_eq!(policy.take_told(), [limited], "{version}");
        pair.server.connection.limit_grant(4);
        assert_eq!(policy.take_told(), [], "{version}: nothing has changed");
        pair.server.now = at(9);
        let (id, call) = pair.server.delivered.pop_front().unwrap();
        pair.server.reply(id, echo(&call));
        assert_eq!(
            policy.take_told(),
            [(GrantEvent::CallEnded, at(9), 0, 4)],
            "{version}"
        );
        pair.settle();
        // A call that gets no reply ends as well.
        pair.client.call(message(2, 0, &[]), &room(0, &[]));
        pair.settle();
        let (id, _) = pair.server.delivered.pop_front().unwrap();
        pair.server.reply(id, None);
        let told: Vec<_> = calls(policy.take_told())
            .iter()
            .map(|told| (told.0, told.2))
            .collect();
        assert_eq!(
            told,
            [(GrantEvent::CallBegan, 1), (GrantEvent::CallEnded, 0)],
            "{version}"
        );
    }
}

/// A policy of either end that chooses nothing has the fewest credits granted that it is told of.
#[test]
fn a_policy_is_told_the_fewest_credits() {
    #[derive(Clone, Debug, Default)]
    struct Least(Arc<Mutex<Vec<u32>>>);

    impl GrantPolicy for Least {
        fn credits(&mut self, _: GrantEvent, demand: &Demand) -> u32 {
            self.0.lock().unwrap().push(demand.least);
            0
        }
    }

    impl MakeGrantPolicy for Least {
        fn make(&self, _: Side) -> Box<dyn GrantPolicy> {
            Box::new(self.clone())
        }
    }

    const CALLBACKS: u32 = 8;
    for version in VERSIONS {
        let (of_client, of_server) = (Least::default(), Least::default());
        let mut pair = Pair::echoing(configs_with(version, |client, server| {
            (client.callbacks.credits, server.callbacks.credits) = (CALLBACKS, CALLBACKS);
            client.grants = Arc::new(of_client.clone());
            server.grants = Arc::new(of_server.clone());
        }));
        pair.call(message(1, 0, &[]), &room(0, &[])).unwrap();
        pair.call(message(2, 0, &[]), &room(0, &[])).unwrap();
        let told = |of: &Least| of.0.lock().unwrap().last().copied();
        let counts_messages = version == Version::TWO_WG;
        let least = if counts_messages { MIN_CREDITS } else { 1 };
        assert_eq!(told(&of_server), Some(least), "{version}");
        if !counts_messages {
            assert_eq!(granted(&pair, version), least, "{version}");
        }
        let beside_callbacks = least + if counts_messages { CALLBACKS } else { 0 };
        assert_eq!(told(&of_client), Some(beside_callbacks), "{version}");
        // Fewer cannot be granted than there are receives for.
        pair.server.connection.limit_grant(1);
        assert_eq!(told(&of_server), Some(least), "{version}");
    }
}
