//! Runs of clients and a server with two relays between them, each hop in a version of its own or over TCP
//! ([`stream`]), and with the loss of either side of a relay at any moment. Some seeds have calls from the server to
//! clients, COMPOUNDs with several items, or a relay that has no memory for a while.
//!
//! Each client makes its calls again, over another connection, until they are answered. Checked are:
//!
//! * What arrives at either end is what the other one sent, the XID included, and it is of the same client.
//! * No connection to the server has the calls of two clients, or a call twice, and no call arrives more often
//!   than its client has made it.
//! * No call has a reply that the server has not given.
//! * A call of the server arrives once, at the client on whose connection it was made, and ends there once.
//! * When the server closes its connections gracefully, and no other kind of fault happens, each reply that it gave
//!   before arrives at the client, and then the client's connection ends.
//! * All calls are answered in the end. Those of the server fail only if their connection ends, by then or soon after it,
//!   or if a relay has no memory. When the clients have closed their connections, no relay, no device and no connection
//!   of TCP has anything left of them.
//!
//! The checks of every event in the fabric are those of other runs ([`Journal`]).

mod answerer;
mod callbacks;
mod caller;
mod calls;
mod compound;
mod hop;
mod plan;
mod relay;
mod start;
mod stream;
mod stream_client;
mod stream_ends;
mod stream_server;

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::net::{Ipv4Addr, SocketAddr};
use std::rc::Rc;
use std::time::Duration;

use rdma::{Buf, Time};
use rdma_sim::{Fabric, NodeId, Random, Turn};

use self::answerer::Answerer;
use self::caller::Caller;
use self::plan::{Fault, Plan};
use self::relay::{Place, RelayHost};
use self::stream::Network;
use crate::journal::{Conditions, Journal};
use crate::plan::Swarm;
use crate::pools::Pools;
use crate::report::{Report, Violation};

/// The number of the server's host.
const SERVER: usize = 0;
/// The numbers of the hosts of each relay: the device for clients, and the one for the server.
const RELAYS: [[usize; 2]; 2] = [[1, 2], [3, 4]];
/// The number of the first client's host.
const FIRST_CLIENT: usize = 5;
/// The maximum time from the end of a client's connection to that of the server's connection which belongs to it, or
/// back: the times for which both relays wait for replies to leave, and as much for the network.
const ENDS_WITHIN: Duration = Duration::from_secs(40);
/// The maximum time until all calls are answered.
const PATIENCE: Duration = Duration::from_secs(3_000);
/// The maximum time from then until all connections have ended.
const ENDED_AFTER: Duration = Duration::from_secs(60);
/// The block sizes in which a relay's memory is taken away.
const GREED: [usize; 3] = [1 << 20, 1 << 16, 4096];
/// The maximum number of turns; more indicate an endless loop.
const MOST_TURNS: u64 = 1_000_000;

/// A scheduled event.
#[derive(Clone, Copy, Debug)]
enum Alarm {
    /// The server answers a call.
    Answer(usize),
    /// The server calls the client that has made a call.
    CallClient(usize),
    Fault(Fault),
    /// A relay has a successor.
    Successor(usize),
    /// A relay has its memory back.
    Memory(usize),
    /// The client must have noticed by now that its connection with this number has ended.
    Noticed(usize, u64),
}

struct World {
    fabric: Fabric,
    plan: Plan,
    random: Random,
    journal: Rc<RefCell<Journal>>,
    places: [Place; 2],
    relays: [Option<RelayHost>; 2],
    /// The memory that was taken away from each relay.
    greedy: [Vec<Buf>; 2],
    network: Network,
    callers: Vec<Caller>,
    answerer: Answerer,
    alarms: Vec<Alarm>,
    /// The indexes of the replies that each client must have when its connection ends: those that the server
    /// had given when it began to close its own.
    given: Vec<BTreeSet<usize>>,
    turns: u64,
    /// The number of calls that waited for memory at relays that were killed.
    waits: u64,
}

fn address(host: usize) -> SocketAddr {
    (Ipv4Addr::new(10, 0, 1, host as u8 + 1), 20049).into()
}

/// Runs a seed with relays. With `explain`, the report contains a log.
pub(crate) fn simulate(seed: u64, swarm: &Swarm, explain: bool) -> Report {
    let plan = Plan::new(seed, swarm);
    let (mut pools, calls) = (Pools::default(), plan.calls.iter().sum::<usize>());
    let pairing = plan.pairing;
    let journal = Rc::new(RefCell::new(journal(&plan, explain)));
    let (took, callbacks, waits) = match World::new(seed, plan, &mut pools, &journal) {
        Ok(mut world) => {
            world.run();
            let called = world.answerer.called.as_ref();
            let answered = called.map_or(0, |it| it.answered);
            (world.fabric.now(), answered, world.waits())
        }
        Err(what) => {
            journal.borrow_mut().violation(Time::ZERO, what);
            (Time::ZERO, 0, 0)
        }
    };
    pools.give_back();
    let mut journal = journal.borrow_mut();
    let violations: Vec<Violation> = std::mem::take(&mut journal.violations);
    Report {
        seed,
        pairing,
        violations,
        happenings: journal.happenings,
        calls: calls as u64,
        callbacks,
        waits,
        faults: journal.faults,
        took,
        log: journal.take_text(),
        ..Report::default()
    }
}

/// Returns the checks of what happens in the fabric.
fn journal(plan: &Plan, explain: bool) -> Journal {
    let conditions = Conditions {
        // No host is only a server, so that the check of registrations is off.
        loops: 0,
        offers: true,
        calm: plan.is_calm(),
        // A client that leaves unregisters memory of calls in progress.
        impatient: !plan.is_orderly(),
        first_message: 0,
        speaks_wg: true,
    };
    let mut journal = Journal::new(explain, conditions);
    journal.line(Time::ZERO, format_args!("{plan}"));
    journal
}

impl World {
    fn alarm(&mut self, at: Time, alarm: Alarm) {
        self.fabric.alarm(at, self.alarms.len() as u64);
        self.alarms.push(alarm);
    }

    fn violation(&self, what: String) {
        let now = self.fabric.now();
        self.journal.borrow_mut().violation(now, what);
    }

    fn has_failed(&self) -> bool {
        !self.journal.borrow().violations.is_empty()
    }

    /// Returns whether all calls are answered, or have ended with their connections.
    fn is_settled(&self) -> bool {
        self.callers.iter().all(Caller::is_done) && self.answerer.is_settled()
    }

    /// Returns the number of calls that waited for memory at relays.
    fn waits(&self) -> u64 {
        let present = self.relays.iter().flatten().map(RelayHost::waited);
        self.waits + present.sum::<u64>()
    }

    /// Takes turns until this is so or a check has failed. Returns whether it is so by this time.
    fn run_until(&mut self, until: Time, is_so: impl Fn(&Self) -> bool) -> bool {
        while !is_so(self) {
            if self.has_failed() || !self.take_turn(until) {
                return false;
            }
        }
        true
    }

    fn run(&mut self) {
        let patience = Time::ZERO + PATIENCE;
        if self.run_until(patience, Self::is_settled) {
            self.check_doubtful();
        }
        // The server may have called clients meanwhile.
        let settled = self.run_until(patience, Self::is_settled);
        if self.has_failed() {
            return;
        }
        if !settled {
            return self.violation("clients wait for ever".to_owned());
        }
        for caller in &mut self.callers {
            caller.close(&self.fabric);
        }
        // Everything that is planned may still happen.
        let until = self.fabric.now() + ENDED_AFTER;
        while !self.has_failed() && self.take_turn(until) {}
        if !self.has_failed() {
            self.check_ended();
        }
    }

    /// Checks that the connections on which calls to clients have failed end while the clients close nothing.
    fn check_doubtful(&mut self) {
        let until = self.fabric.now() + ENDS_WITHIN;
        if self.run_until(until, |world| world.answerer.doubtful.is_empty()) {
            return;
        }
        for what in self.answerer.doubtful.values() {
            self.violation(format!("server: {what}, and the connection lives on"));
        }
    }

    /// Takes the next turn. Returns whether there was one until this time.
    fn take_turn(&mut self, until: Time) -> bool {
        let Some(turn) = self.fabric.next(until) else {
            return false;
        };
        self.turns += 1;
        if self.turns > MOST_TURNS {
            self.violation("everybody is busy, and nothing gets done".to_owned());
            return false;
        }
        match turn {
            Turn::Host(node) => self.host(node),
            Turn::Alarm(mark) => {
                if let Some(&alarm) = self.alarms.get(mark as usize) {
                    self.ring(alarm);
                }
            }
        }
        true
    }

    fn host(&mut self, node: NodeId) {
        let client = self.callers.iter().position(|caller| caller.node == node);
        if let Some(client) = client {
            self.callers[client].turn(&self.fabric);
            self.check_caller(client);
        } else if node == self.answerer.node {
            self.answerer.turn(&self.fabric);
            self.check_answerer();
        } else {
            let mut relays = self.relays.iter_mut().flatten();
            if let Some(relay) = relays.find(|relay| relay.nodes.contains(&node)) {
                relay.turn(&self.fabric);
            }
        }
    }

    /// Checks what the server knows after a turn, and schedules its replies.
    fn check_answerer(&mut self) {
        for (at, call) in std::mem::take(&mut self.answerer.due) {
            self.alarm(at, Alarm::Answer(call));
        }
        for (at, call) in std::mem::take(&mut self.answerer.due_calls) {
            self.alarm(at, Alarm::CallClient(call));
        }
        for what in std::mem::take(&mut self.answerer.wrong) {
            self.violation(format!("server: {what}"));
        }
        for (&(client, index), &arrived) in self.answerer.arrived() {
            let made = self.callers[client].made(index);
            if arrived > made {
                self.violation(format!(
                    "call {index} of client {client} was made {made} times, and arrived {arrived} times"
                ));
            }
        }
    }

    /// Checks what a client knows after a turn.
    fn check_caller(&mut self, client: usize) {
        for what in std::mem::take(&mut self.callers[client].wrong) {
            self.violation(format!("client {client}: {what}"));
        }
        let made = self.answerer.called.as_ref();
        let made = made.map_or(0, |called| called.made(client));
        if let Some(last) = self.callers[client].called.last().filter(|it| **it >= made) {
            self.violation(format!(
                "client {client} has callback {last}, which the server has not made"
            ));
        }
        let answered = self.callers[client].answered();
        for &index in &answered {
            if !self.answerer.has_executed((client, index)) {
                self.violation(format!(
                    "client {client} has a reply to call {index}, which the server has not given"
                ));
            }
        }
        if std::mem::take(&mut self.callers[client].has_lost) {
            let given = std::mem::take(&mut self.given[client]);
            let lost: Vec<_> = given.difference(&answered).collect();
            if self.plan.is_orderly() && !lost.is_empty() {
                self.violation(format!(
                    "client {client} lost replies that were given before the server closed its connection: {lost:?}"
                ));
            }
        }
    }

    fn ring(&mut self, alarm: Alarm) {
        match alarm {
            Alarm::Answer(call) => self.answerer.answer(call, &self.fabric),
            Alarm::CallClient(call) => {
                self.answerer.call_client(call, &self.fabric);
                self.check_answerer();
            }
            Alarm::Fault(fault) => {
                let now = self.fabric.now();
                self.journal
                    .borrow_mut()
                    .line(now, format_args!("fault: {fault:?}"));
                self.fail(fault);
            }
            Alarm::Successor(at) => match RelayHost::start(&self.fabric, &self.places[at]) {
                Ok(relay) => self.relays[at] = Some(relay),
                Err(error) => self.violation(format!("no successor: {error}")),
            },
            Alarm::Memory(at) => {
                self.greedy[at].clear();
                for node in self.relays[at].iter().flat_map(|relay| relay.nodes) {
                    self.fabric.turn_at(node, self.fabric.now());
                }
            }
            Alarm::Noticed(client, number) => {
                let caller = &self.callers[client];
                if caller.connections == number && caller.is_connected() {
                    self.violation(format!(
                        "the connection of client {client} outlives the server's"
                    ));
                }
            }
        }
    }

    fn fail(&mut self, fault: Fault) {
        let now = self.fabric.now();
        match fault {
            Fault::Finish => {
                for (client, given) in self.answerer.finish(&self.fabric) {
                    self.given[client].extend(given);
                    if self.plan.is_orderly() && self.callers[client].is_connected() {
                        let number = self.callers[client].connections;
                        self.alarm(now + ENDS_WITHIN, Alarm::Noticed(client, number));
                    }
                }
            }
            Fault::Lose => {
                let is_tcp = self.plan.hops.iter().any(|hop| hop.is_tcp);
                if !(is_tcp && self.random.below(2) == 0 && self.network.lose_one()) {
                    self.fabric.lose_one();
                }
            }
            Fault::Leave(client) => self.callers[client].close(&self.fabric),
            Fault::Kill(at) => {
                let Some(gone) = self.relays[at].take() else {
                    return;
                };
                self.waits += gone.waited();
                for node in gone.nodes {
                    self.fabric.crash(node);
                }
                let absence = self.random.duration(self.plan.absence);
                self.alarm(now + absence, Alarm::Successor(at));
            }
            Fault::Memory(at) => {
                for block in GREED {
                    while let Ok(buf) = self.places[at].pool().alloc(block) {
                        self.greedy[at].push(buf);
                    }
                }
                let absence = self.random.duration(self.plan.absence);
                self.alarm(now + absence, Alarm::Memory(at));
            }
        }
    }

    /// Checks that nothing is left of connections that clients have closed.
    fn check_ended(&self) {
        let mut nodes: Vec<_> = self.callers.iter().map(|caller| caller.node).collect();
        nodes.push(self.answerer.node);
        for (at, (relay, place)) in self.relays.iter().zip(&self.places).enumerate() {
            let Some(relay) = relay else {
                self.violation(format!("relay {at} has no successor"));
                continue;
            };
            let (pairs, held, refused) = (relay.pairs(), place.pool().in_use(), relay.refused());
            let failed = match self.plan.may_refuse() {
                true => 0,
                false => relay.failed(),
            };
            if (pairs, failed, held, refused) != (0, 0, 0, 0) {
                self.violation(format!(
                    "relay {at} is left with {pairs} pairs and {held} bytes, {failed} calls failed, and {refused} \
                     messages were refused"
                ));
            }
            nodes.extend(relay.nodes);
        }
        let ends = self.network.ends();
        if ends > 0 {
            self.violation(format!("{ends} ends of connections of TCP are left"));
        }
        for node in nodes {
            let pairs = self.fabric.queue_pairs(node);
            if pairs > 0 {
                self.violation(format!("{node} is left with {pairs} queue pairs"));
            }
        }
    }
}
