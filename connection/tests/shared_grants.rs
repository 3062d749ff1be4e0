//! A policy of granting that shares its credits among connections: it is asked again when what other
//! connections do has changed its answer.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod support;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use rdma::Time;
use rpcrdma_connection::flow::{AskAgain, Demand, GrantEvent, GrantPolicy, MakeGrantPolicy};
use rpcrdma_connection::{Config, Side};
use rpcrdma_negotiation::Version;
use support::{Pair, configs_with, echo, message, room};

const VERSIONS: [Version; 3] = [Version::ONE, Version::TWO, Version::TWO_WG];
/// Credits of both ends.
const CREDITS: u32 = 16;

/// Grants each connection with calls in progress the same part of [`CREDITS`].
#[derive(Clone, Debug, Default)]
struct Parts {
    all: Arc<Mutex<All>>,
}

#[derive(Debug, Default)]
struct All {
    made: u64,
    /// The connections with calls in progress, with their answers.
    active: BTreeMap<u64, (u32, Option<AskAgain>)>,
    /// The events of all, with their times and answers.
    told: Vec<(u64, GrantEvent, Time, u32)>,
}

#[derive(Debug)]
struct Part {
    all: Arc<Mutex<All>>,
    number: u64,
    again: Option<AskAgain>,
}

impl Part {
    /// Records whether the connection has calls in progress. Returns its credits.
    fn note(&self, is_active: bool) -> u32 {
        let all = &mut *self.all.lock().unwrap();
        let before = all.active.len();
        match is_active {
            true => all
                .active
                .insert(self.number, (u32::MAX, self.again.clone())),
            false => all.active.remove(&self.number),
        };
        let others = all.active.len() as u32 - u32::from(is_active);
        if all.active.len() < before {
            let part = CREDITS / others.max(1);
            let fewer = all.active.values().filter(|(credits, _)| *credits < part);
            fewer.for_each(|(_, again)| again.as_ref().unwrap().ask());
        }
        let credits = CREDITS / (others + 1);
        if let Some(own) = all.active.get_mut(&self.number) {
            own.0 = credits;
        }
        credits
    }
}

impl GrantPolicy for Part {
    fn credits(&mut self, event: GrantEvent, demand: &Demand) -> u32 {
        let credits = self.note(demand.calls > 0);
        let told = (self.number, event, demand.now, credits);
        self.all.lock().unwrap().told.push(told);
        credits
    }

    fn set_ask_again(&mut self, again: AskAgain) {
        self.again = Some(again);
    }
}

impl Drop for Part {
    fn drop(&mut self) {
        self.note(false);
    }
}

impl MakeGrantPolicy for Parts {
    fn make(&self, _: Side) -> Box<dyn GrantPolicy> {
        let mut all = self.all.lock().unwrap();
        all.made += 1;
        Box::new(Part {
            all: Arc::clone(&self.all),
            number: all.made - 1,
            again: None,
        })
    }
}

/// The connections that a driver has noted, whose policies are to be asked again.
#[derive(Clone, Default)]
struct Driver(Arc<Mutex<Vec<u64>>>);

impl Driver {
    fn take(&self) -> Vec<u64> {
        std::mem::take(&mut self.0.lock().unwrap())
    }

    /// Returns the configurations of a connection with this number, whose server has this policy.
    fn configs(
        &self,
        version: Version,
        grants: &(impl MakeGrantPolicy + Clone + 'static),
        number: u64,
    ) -> (Config, Config) {
        let (client, mut server) = configs_with(version, |client, server| {
            (client.credits, server.credits) = (2 * CREDITS, CREDITS);
            server.grants = Arc::new(grants.clone());
        });
        let noted = Arc::clone(&self.0);
        let note = move |connection| noted.lock().unwrap().push(connection);
        server.ask_again = Some(AskAgain::new(Arc::new(note), number));
        (client, server)
    }

    /// Returns connections whose servers have this policy.
    fn pairs(
        &self,
        version: Version,
        grants: &(impl MakeGrantPolicy + Clone + 'static),
        count: u64,
    ) -> Vec<Pair> {
        let configs = (0..count).map(|number| self.configs(version, grants, number));
        configs.map(Pair::new).collect()
    }

    /// Asks the policies that are to be asked again, until there are none.
    fn ask(&self, pairs: &mut [Pair]) -> usize {
        let mut asked = 0;
        loop {
            let noted = self.take();
            if noted.is_empty() {
                return asked;
            }
            for number in noted {
                asked += 1;
                assert!(asked < 1000, "policies ask each other for ever");
                let pair = &mut pairs[number as usize];
                pair.server.connection.ask_policy_again(pair.server.now);
                pair.settle();
            }
        }
    }
}

/// Makes calls of the client, which the server does not answer yet.
fn begin(pair: &mut Pair, xids: std::ops::Range<u32>) {
    for xid in xids {
        pair.client.call(message(xid, 0, &[]), &room(0, &[]));
    }
    pair.settle();
}

/// Answers the oldest call that the server has.
fn answer_one(pair: &mut Pair) {
    let (id, call) = pair.server.delivered.pop_front().unwrap();
    pair.server.reply(id, echo(&call));
    pair.settle();
}

/// Makes a call that is answered at once, by which the client learns what it is granted.
fn warm_up(pair: &mut Pair) {
    pair.answer = Some(Box::new(echo));
    pair.call(message(1, 0, &[]), &room(0, &[])).unwrap();
    pair.answer = None;
}

/// One connection is busy while another one begins, which gets half. Once the first is idle, the other
/// one has all: by a message that only grants where there is one, and by its next reply otherwise.
#[test]
fn a_client_that_waits_gets_more_when_another_becomes_idle() {
    for version in VERSIONS {
        let (driver, parts) = (Driver::default(), Parts::default());
        let mut pairs = driver.pairs(version, &parts, 1);
        begin(&mut pairs[0], 1..2);
        pairs.push(Pair::new(driver.configs(version, &parts, 1)));
        warm_up(&mut pairs[1]);
        assert_eq!(driver.ask(&mut pairs), 0, "{version}: nobody has more");
        begin(&mut pairs[1], 10..40);
        let half = CREDITS as usize / 2;
        assert_eq!(pairs[1].server.delivered.len(), half, "{version}");
        answer_one(&mut pairs[0]);
        let sent = pairs[1].server.sent.len();
        assert_eq!(driver.ask(&mut pairs), 1, "{version}: the other is asked");
        let waiting = &mut pairs[1];
        match version {
            Version::TWO_WG => {
                assert_eq!(waiting.server.sent.len(), sent + 1, "a grant");
                assert_eq!(waiting.server.delivered.len(), 2 * half);
            }
            _ => {
                assert_eq!(
                    waiting.server.sent.len(),
                    sent,
                    "there is no message for it"
                );
                assert_eq!(waiting.server.delivered.len(), half);
            }
        }
        answer_one(waiting);
        assert_eq!(waiting.server.delivered.len(), 2 * half, "{version}");
        waiting.answer = Some(Box::new(echo));
        waiting.settle();
        assert_eq!(waiting.client.finished.len(), 30, "{version}");
    }
}

/// A connection that ends leaves its part to the others.
#[test]
fn a_connection_that_ends_leaves_its_credits_to_others() {
    let (driver, parts) = (Driver::default(), Parts::default());
    let mut pairs = driver.pairs(Version::TWO_WG, &parts, 1);
    begin(&mut pairs[0], 1..2);
    pairs.push(Pair::new(driver.configs(Version::TWO_WG, &parts, 1)));
    begin(&mut pairs[1], 10..40);
    let gone = pairs.remove(0);
    drop(gone);
    assert_eq!(driver.take(), [1]);
    let pair = &mut pairs[0];
    pair.server.connection.ask_policy_again(pair.server.now);
    pair.settle();
    assert_eq!(pair.server.delivered.len(), CREDITS as usize);
}

/// A policy learns why it is asked, and when. One that cannot be asked again is asked all the same, and
/// a connection that has not begun or has ended has none to ask.
#[test]
fn a_policy_that_is_asked_again_learns_the_reason_and_the_time() {
    let (driver, parts) = (Driver::default(), Parts::default());
    let mut pairs = driver.pairs(Version::TWO_WG, &parts, 1);
    let server = &mut pairs[0].server;
    let at = Time::ZERO + Duration::from_secs(5);
    parts.all.lock().unwrap().told.clear();
    server.connection.ask_policy_again(at);
    let told = parts.all.lock().unwrap().told.clone();
    assert_eq!(told, [(0, GrantEvent::AskedAgain, at, CREDITS)]);
    assert!(
        server.connection.poll_action(8).is_none(),
        "nothing has changed"
    );
    let mut unbegun =
        rpcrdma_connection::Connection::new(driver.configs(Version::ONE, &parts, 9).1);
    unbegun.ask_policy_again(at);
    assert_eq!(parts.all.lock().unwrap().told.len(), 1);
}

/// Answers whatever it likes, and has all others asked again now and then.
#[derive(Clone, Debug, Default)]
struct Erratic {
    all: Arc<Mutex<(u64, BTreeMap<u64, AskAgain>)>>,
}

#[derive(Debug)]
struct ErraticPart(Erratic);

/// Returns the next of a sequence of random numbers.
fn next(state: &mut u64) -> u64 {
    *state = state
        .wrapping_mul(6_364_136_223_846_793_005)
        .wrapping_add(1_442_695_040_888_963_407);
    *state >> 33
}

impl GrantPolicy for ErraticPart {
    fn credits(&mut self, event: GrantEvent, demand: &Demand) -> u32 {
        let (random, others) = &mut *self.0.all.lock().unwrap();
        if event == GrantEvent::CallEnded && next(random).is_multiple_of(3) {
            others.values().for_each(AskAgain::ask);
        }
        match next(random) % 5 {
            0 => 0,
            1 => u32::MAX,
            _ => (next(random) % u64::from(2 * demand.most)) as u32,
        }
    }

    fn refreshes(&self, left: u32, _: u32) -> bool {
        left.is_multiple_of(2)
    }

    fn set_ask_again(&mut self, again: AskAgain) {
        let all = &mut *self.0.all.lock().unwrap();
        all.1.insert(all.1.len() as u64, again);
    }
}

impl MakeGrantPolicy for Erratic {
    fn make(&self, _: Side) -> Box<dyn GrantPolicy> {
        Box::new(ErraticPart(self.clone()))
    }
}

/// Whatever policies answer when they are asked again, no client is granted more than there are receives
/// for (the test's device has no other ones), none is left without a credit, and all calls end.
#[test]
fn policies_that_are_asked_again_overrun_no_receives_and_stop_nobody() {
    for version in VERSIONS {
        for seed in 0..20 {
            let driver = Driver::default();
            let policy = Erratic::default();
            policy.all.lock().unwrap().0 = seed;
            let mut pairs = driver.pairs(version, &policy, 4);
            let (mut random, mut calls) = (seed + 1000, [0; 4]);
            for _ in 0..200 {
                let at = (next(&mut random) % 4) as usize;
                let pair = &mut pairs[at];
                match next(&mut random) % 3 {
                    0 => {
                        let more = (next(&mut random) % 12) as u32;
                        begin(pair, calls[at]..calls[at] + more);
                        calls[at] += more;
                    }
                    _ if !pair.server.delivered.is_empty() => answer_one(pair),
                    _ => {}
                }
                driver.ask(&mut pairs);
                for pair in &pairs {
                    let client = &pair.client;
                    assert_eq!((&client.closed, &pair.server.closed), (&None, &None));
                    let unfinished = client.connection.unfinished_calls() > 0;
                    assert!(
                        !unfinished || !pair.server.delivered.is_empty(),
                        "{version}, seed {seed}: a client waits, and the server has none of its calls"
                    );
                    let delivered = pair.server.delivered.len();
                    assert!(delivered <= CREDITS as usize, "{version}: {delivered}");
                }
            }
            for (pair, calls) in pairs.iter_mut().zip(calls) {
                while !pair.server.delivered.is_empty() {
                    answer_one(pair);
                }
                assert_eq!(
                    pair.client.finished.len(),
                    calls as usize,
                    "{version}, {seed}"
                );
                assert!(
                    pair.client
                        .finished
                        .iter()
                        .all(|(_, result)| result.is_ok())
                );
            }
        }
    }
}
