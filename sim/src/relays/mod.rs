//! Runs of clients and a server with two relays between them, each hop in a version of its own, and with the loss of
//! either side of a relay at any moment.
//!
//! Each client makes its calls again, over another connection, until they are answered. Checked are:
//!
//! * What arrives at either end is what the other one sent, the XID included, and it is of the same client.
//! * No connection to the server has the calls of two clients, or a call twice, and no call arrives more often
//!   than its client has made it.
//! * No call has a reply that the server has not given.
//! * When the server closes its connections gracefully, and no other kind of fault happens, each reply that it gave
//!   before arrives at the client, and then the client's connection ends.
//! * All calls are answered in the end. When the clients have closed their connections, no relay and no device has
//!   anything left of them.
//!
//! The checks of every event in the fabric are those of other runs ([`Journal`]).

mod answerer;
mod caller;
mod calls;
mod plan;
mod relay;

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::fmt;
use std::net::{Ipv4Addr, SocketAddr};
use std::rc::Rc;
use std::time::Duration;

use rdma::Time;
use rdma_sim::{Fabric, Host, NodeId, Random, Turn};
use rpc_transport::ServerTransport;
use rpc_transport::rdma::{RdmaClient, RdmaServer};
use rpcrdma_gateway::RelayOptions;
use rpcrdma_gateway::reduction::{RELAYED_ARGUMENTS, ReducerOptions};

use self::answerer::Answerer;
use self::caller::Caller;
use self::calls::{Exchange, MAX_REPLY};
use self::plan::{Fault, MEMORY, Plan};
use self::relay::{Place, RelayHost};
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
/// The time in which a client's connection ends after the server has closed its own: the times for which both
/// relays wait for replies to leave, and as much for the network.
const ENDS_WITHIN: Duration = Duration::from_secs(40);
/// The maximum time until all calls are answered.
const PATIENCE: Duration = Duration::from_secs(3_000);
/// The maximum time from then until all connections have ended.
const ENDED_AFTER: Duration = Duration::from_secs(60);
/// The maximum number of turns; more indicate an endless loop.
const MOST_TURNS: u64 = 1_000_000;

/// A scheduled event.
#[derive(Clone, Copy, Debug)]
enum Alarm {
    /// The server answers a call.
    Answer(usize),
    Fault(Fault),
    /// A relay has a successor.
    Successor(usize),
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
    callers: Vec<Caller>,
    answerer: Answerer,
    alarms: Vec<Alarm>,
    /// The indexes of the replies that each client must have when its connection ends: those that the server
    /// had given when it began to close its own.
    given: Vec<BTreeSet<usize>>,
    turns: u64,
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
    let took = match World::new(seed, plan, &mut pools, &journal) {
        Ok(mut world) => {
            world.run();
            world.fabric.now()
        }
        Err(what) => {
            journal.borrow_mut().violation(Time::ZERO, what);
            Time::ZERO
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
    fn new(
        seed: u64,
        mut plan: Plan,
        pools: &mut Pools,
        journal: &Rc<RefCell<Journal>>,
    ) -> Result<Self, String> {
        let why = |error: &dyn fmt::Display| error.to_string();
        let mut random = plan.random.clone();
        let fabric = Fabric::new(seed, plan.costs.clone(), plan.late.clone());
        fabric.watch(Rc::clone(journal) as Rc<RefCell<_>>);
        let (attributes, interrupt) = (plan.attributes.clone(), plan.interrupt);
        let host = |at: usize, pool| Host {
            address: address(at),
            attributes: attributes.clone(),
            pool,
            interrupt,
        };
        let of_client = |(client, &count): (usize, &usize)| {
            let each = (0..count).map(|index| Exchange::nth(client, index, &mut random));
            each.collect::<Vec<_>>()
        };
        let exchanges: Vec<_> = plan.calls.iter().enumerate().map(of_client).collect();
        let device = fabric.host(host(SERVER, pools.take(MEMORY)));
        let device = device.map_err(|error| why(&error))?;
        let node = device.node();
        let mut port = RdmaServer::new(Box::new(device), plan.hops[2].server());
        port.set_reduced_arguments(RELAYED_ARGUMENTS);
        port.listen(address(SERVER)).map_err(|error| why(&error))?;
        let own = Random::new(random.next());
        let answerer = Answerer::new(node, port, exchanges.clone(), own, plan.longest_job);
        fabric.turn_at(node, Time::ZERO);
        let mut place = |at: usize| {
            let pool = pools.take(MEMORY);
            let server = [RELAYS[1][0], SERVER][at];
            Place {
                hosts: RELAYS[at].map(|it| host(it, pool.clone())),
                incoming: plan.hops[at].server(),
                outgoing: plan.hops[at + 1].client(),
                options: RelayOptions {
                    reducer: ReducerOptions {
                        max_reply: MAX_REPLY,
                        ..ReducerOptions::default()
                    },
                    ..RelayOptions::new(address(server))
                },
            }
        };
        let places = [place(0), place(1)];
        let start = |place: &Place| RelayHost::start(&fabric, place).map_err(|error| why(&error));
        let relays = [Some(start(&places[0])?), Some(start(&places[1])?)];
        let mut callers = Vec::new();
        for (client, exchanges) in exchanges.into_iter().enumerate() {
            let device = fabric.host(host(FIRST_CLIENT + client, pools.take(MEMORY)));
            let device = device.map_err(|error| why(&error))?;
            let node = device.node();
            let port = RdmaClient::new(Box::new(device), plan.hops[0].client());
            let (relay, own) = (address(RELAYS[0][0]), Random::new(random.next()));
            callers.push(Caller::new(node, port, relay, exchanges, own));
            fabric.turn_at(node, Time::ZERO);
        }
        let faults = std::mem::take(&mut plan.faults);
        let mut world = Self {
            given: vec![BTreeSet::new(); callers.len()],
            fabric,
            plan,
            random,
            journal: Rc::clone(journal),
            places,
            relays,
            callers,
            answerer,
            alarms: Vec::new(),
            turns: 0,
        };
        for &(after, fault) in &faults {
            world.alarm(Time::ZERO + after, Alarm::Fault(fault));
        }
        world.plan.faults = faults;
        Ok(world)
    }

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

    fn run(&mut self) {
        while !self.callers.iter().all(Caller::is_done) {
            if !self.take_turn(Time::ZERO + PATIENCE) {
                return self.violation("clients wait for ever".to_owned());
            }
            if self.has_failed() {
                return;
            }
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
            Fault::Lose => self.fabric.lose_one(),
            Fault::Leave(client) => self.callers[client].close(&self.fabric),
            Fault::Kill(at) => {
                let Some(gone) = self.relays[at].take() else {
                    return;
                };
                for node in gone.nodes {
                    self.fabric.crash(node);
                }
                let absence = self.random.duration(self.plan.absence);
                self.alarm(now + absence, Alarm::Successor(at));
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
            let (pairs, failed, held) = (relay.pairs(), relay.failed(), place.pool().in_use());
            if (pairs, failed, held) != (0, 0, 0) {
                self.violation(format!(
                    "relay {at} is left with {pairs} pairs and {held} bytes, and {failed} calls failed"
                ));
            }
            nodes.extend(relay.nodes);
        }
        for node in nodes {
            let pairs = self.fabric.queue_pairs(node);
            if pairs > 0 {
                self.violation(format!("{node} is left with {pairs} queue pairs"));
            }
        }
    }
}
