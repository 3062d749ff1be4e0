//! One run: the hosts and their turns.

mod faults;
mod finish;

use std::cell::{Cell, RefCell};
use std::net::{Ipv4Addr, SocketAddr};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use rdma::{Attributes, Buf, SharedReceives, Tap, Time};
use rdma_sim::{Fabric, Faults, Host, NodeId, Random, SimDevice, Turn};
use rpc_transport::Retry;
use rpc_transport::rdma::{RdmaClientOptions, RdmaOptions, RdmaServerOptions, receive_memory};
use rpcrdma_programs::callbacks::Totals;

use crate::client::{ClientHost, Tally};
use crate::disk::Disk;
use crate::exports::Exports;
use crate::exposure::Exposing;
use crate::guests::{flood, idle, repeat};
use crate::history::History;
use crate::journal::{Conditions, Journal};
use crate::plan::{Plan, Role, are_shared};
use crate::pools::Pools;
use crate::report::Report;
use crate::server::{Programs, STEPS, ServerHost, Slice};
use crate::shared::Shared;
use crate::starve::{Starvation, starving};
use crate::tenant::hold;
use crate::trees::Trees;
use crate::work::life;

/// The port that the server listens on.
const PORT: u16 = 20049;
/// The stream of random numbers for the turns of a server's loops.
const LOOPS: u64 = 12;
/// The numbers of steps that a loop makes in one turn, if there are several loops.
const STEPS_AT_ONCE: [usize; 5] = [1, 1, 2, 5, STEPS];
/// The maximum pause between two turns of a loop, if there are several loops.
const INTERRUPTED: Duration = Duration::from_micros(20);
/// The maximum number of turns in one run; more indicate an endless loop.
const MOST_TURNS: u64 = 3_000_000;
/// The maximum time until the end after the last fault.
const PATIENCE: Duration = Duration::from_secs(3_000);
/// The stream of random numbers for the file system of the administered exports.
const TREES_INSTANCE: u64 = 14;
/// The maximum duration of an invalidation without faults.
const FENCE: Duration = Duration::from_secs(1);
/// The maximum time until a loop takes a reply that another one has handed to it. A loop runs at most a
/// millisecond after it was woken.
const TAKEN_WITHIN: Duration = Duration::from_millis(10);
/// The number of receives that are posted beyond the credits.
const EXTRA: usize = 8;

/// A scheduled event.
#[derive(Clone, Copy, Debug)]
enum Alarm {
    /// The server's disk has completed a job, for a loop of the server with this start number.
    Job { life: u64, at: usize },
    /// The start of the [`crate::Crash`] with this index in the plan.
    Crash(usize),
    /// The end of the [`crate::Crash`] with this index.
    Over(usize),
    /// The time after which no more faults happen.
    Heal,
}

/// Makes the observer of a server's traffic.
pub type TapMaker<'a> = &'a dyn Fn() -> Box<dyn Tap>;

struct World<'a> {
    fabric: Fabric,
    plan: Plan,
    random: Random,
    /// Decides how the loops of the server interleave.
    interleaving: Random,
    journal: Rc<RefCell<Journal>>,
    history: Rc<RefCell<History>>,
    shared: Rc<Shared>,
    disk: Arc<Disk>,
    /// The callbacks of all servers of the run.
    callbacks: Totals,
    server: Option<ServerHost>,
    /// The honest clients, and then the others.
    clients: Vec<Option<ClientHost<'static>>>,
    /// The part of each client.
    roles: Vec<Role>,
    alarms: Vec<Alarm>,
    /// The times until which hosts are stopped, by node: those of the server's loops, which join first,
    /// and each client's.
    paused: Vec<Time>,
    /// Since when hosts have memory registered for more calls than they have outstanding.
    exposed: Vec<Option<Time>>,
    /// For each of the server's loops, the time since which replies of other loops wait for it.
    handed: Vec<Option<Time>>,
    /// The numbers of hosts' outstanding calls at the last check.
    under_way: Vec<usize>,
    /// The memory that was taken away.
    greedy: Vec<Buf>,
    pools: Pools,
    turns: u64,
    tap: Option<TapMaker<'a>>,
}

/// Runs a seed. With `explain`, the report contains a log.
#[must_use]
pub fn simulate(seed: u64, explain: bool) -> Report {
    simulate_plan(Plan::new(seed), explain, None)
}

/// Runs a plan. With `tap`, a new one observes the server's traffic after each of its starts.
#[must_use]
pub fn simulate_plan(plan: Plan, explain: bool, tap: Option<TapMaker<'_>>) -> Report {
    let mut world = World::new(plan, explain, tap);
    world.run();
    let pools = std::mem::take(&mut world.pools);
    let report = world.finish();
    pools.give_back();
    report
}

/// Returns the address of a client's host, or of the server.
fn address(host: usize) -> SocketAddr {
    let ip = Ipv4Addr::new(10, 0, 0, host as u8 + 1);
    (ip, if host == 0 { PORT } else { 1000 }).into()
}

/// Returns the address of the host of a server's loop: the server's with a port of its own. All loops
/// listen on the server's address.
fn address_of_loop(at: usize) -> SocketAddr {
    SocketAddr::new(address(0).ip(), PORT + at as u16)
}

/// The bytes of a receive's segments in which bulk data is placed, unless settings ask for more.
const PLACING: usize = (64 << 10) + 4096;

/// Returns the memory that the receives of this many connections take, bytes.
fn receives(
    options: &RdmaOptions,
    connections: usize,
    resizes: bool,
    shares: Option<SharedReceives>,
) -> usize {
    let credits = options.credits + options.callbacks.credits + options.spare_receives;
    let count = connections * (credits as usize + EXTRA);
    if are_shared(shares) {
        return count * receive_memory(&options.longest_receives(|_| true));
    }
    let longest = match resizes {
        true => options.max_receive_size,
        false => options.inline_receive,
    };
    let plain = (longest as usize).next_power_of_two().max(4096);
    let placing = options.protocols.receives(|_| true, plain as u32);
    // Settings can make the segments longer than usual.
    let size = placing.map_or(plain, |wanted| receive_memory(&wanted).max(PLACING + plain));
    count * size
}

impl<'a> World<'a> {
    fn new(plan: Plan, explain: bool, tap: Option<TapMaker<'a>>) -> Self {
        let fabric = Fabric::new(plan.seed, plan.costs.clone(), plan.faults.clone());
        let journal = Rc::new(RefCell::new(Journal::new(explain, Conditions::of(&plan))));
        let history = Rc::new(RefCell::new(History::default()));
        fabric.watch(Rc::clone(&journal) as Rc<RefCell<_>>);
        if explain {
            let header = plan.to_string();
            journal
                .borrow_mut()
                .line(Time::ZERO, format_args!("{header}"));
        }
        let blocks = plan.disk.is_some();
        let disk = Disk::new(plan.seed, fabric.clock(), blocks, plan.write_back);
        let disk = Arc::new(disk);
        let roles = plan.roles();
        let trees = roles.contains(&Role::Tenant).then(|| {
            let instance = Random::new(plan.seed).split(TREES_INSTANCE).next();
            Arc::new(Trees::new(instance, fabric.clock(), blocks))
        });
        let exports = Exports {
            trees,
            ..Exports::only(Arc::clone(&disk) as Arc<_>)
        };
        let hosts = plan.loops + roles.len();
        let shared = Rc::new(Shared {
            plan: plan.clone(),
            exports,
            guests: Rc::default(),
            arrived: Cell::new(0),
            server: address(0),
            history: Rc::clone(&history),
            journal: Rc::clone(&journal),
            tally: Rc::new(Tally::default()),
            files: Rc::default(),
        });
        let mut world = Self {
            random: Random::new(plan.seed).split(3),
            interleaving: Random::new(plan.seed).split(LOOPS),
            paused: vec![Time::ZERO; hosts],
            exposed: vec![None; hosts],
            handed: vec![None; plan.loops],
            under_way: vec![0; hosts],
            clients: roles.iter().map(|_| None).collect(),
            roles,
            fabric,
            journal,
            history,
            shared,
            disk,
            callbacks: Totals::default(),
            server: None,
            alarms: Vec::new(),
            greedy: Vec::new(),
            pools: Pools::default(),
            turns: 0,
            tap,
            plan,
        };
        world.start_server();
        for client in 0..world.roles.len() {
            world.start_client(client);
        }
        for crash in 0..world.plan.crashes.len() {
            let at = Time::ZERO + world.plan.crashes[crash].at;
            world.alarm(at, Alarm::Crash(crash));
        }
        world.alarm(Time::ZERO + world.plan.heal_at, Alarm::Heal);
        world
    }

    fn alarm(&mut self, at: Time, alarm: Alarm) {
        self.fabric.alarm(at, self.alarms.len() as u64);
        self.alarms.push(alarm);
    }

    fn violation(&self, what: String) {
        let now = self.fabric.now();
        self.journal.borrow_mut().violation(now, what);
    }

    fn start_server(&mut self) {
        let connections = self
            .roles
            .iter()
            .map(|&role| self.plan.connections_of(role));
        let connections = 2 * connections.sum::<usize>();
        let (plan, shares) = (&self.plan, self.plan.server_shares);
        let for_receives = receives(&plan.responder, connections, plan.resizes, shares);
        // Each loop has a shared receive queue of its own.
        let queues = if are_shared(shares) { plan.loops } else { 1 };
        let memory = queues * for_receives + plan.server_memory;
        let pool = self.pools.take(memory);
        let hosts = (0..self.plan.loops).map(|at| Host {
            address: address_of_loop(at),
            attributes: self.attributes(shares),
            pool: pool.clone(),
            interrupt: self.plan.interrupt,
        });
        let hosts = hosts.collect();
        let mut options = RdmaServerOptions {
            common: self.plan.responder.clone(),
            versions: self.plan.accepted(),
            ..RdmaServerOptions::new(rpcrdma_protocols::base())
        };
        if are_shared(shares) {
            // Calls have the rest.
            options.max_receive_memory = for_receives;
        }
        self.history.borrow_mut().lives += 1;
        let programs = Programs {
            callbacks: self.plan.callbacks.then(|| self.callbacks.clone()),
            trace: self.plan.trace.clone(),
            ..Programs::default()
        };
        let mut starve: Vec<Starvation> = (0..self.plan.loops).map(|_| self.starvation()).collect();
        let wrap = |mut device: SimDevice| {
            if let Some(tap) = self.tap {
                device.set_tap(tap());
            }
            match starve.pop() {
                Some(starve) => starving(device, &self.fabric, starve),
                None => Box::new(device),
            }
        };
        match ServerHost::start(
            &self.fabric,
            hosts,
            &options,
            &self.shared.exports,
            self.plan.hostile.as_ref(),
            programs,
            wrap,
        ) {
            Ok(server) => self.server = Some(server),
            Err(error) => self.violation(error.to_string()),
        }
    }

    /// Returns the attributes of a device that has these shared receive queues.
    fn attributes(&self, shares: Option<SharedReceives>) -> Attributes {
        Attributes {
            shared_receives: shares,
            ..self.plan.attributes.clone()
        }
    }

    /// Returns the credit starvation for a host that starts now.
    fn starvation(&mut self) -> Starvation {
        Starvation {
            parts: self.plan.starve,
            heal_at: Time::ZERO + self.plan.heal_at,
            random: Random::new(self.random.next()),
        }
    }

    fn start_client(&mut self, client: usize) {
        let (plan, shares) = (&self.plan, self.plan.client_shares);
        let role = self.roles[client];
        let connections = plan.connections_of(role);
        let for_receives = receives(&plan.requester, connections, plan.resizes, shares);
        let host = Host {
            address: address(client + 1),
            attributes: self.attributes(shares),
            pool: self.pools.take(for_receives + self.plan.client_memory),
            interrupt: self.plan.interrupt,
        };
        let options = RdmaClientOptions {
            common: self.plan.requester.clone(),
            connect_timeout: self.plan.connect_timeout(),
            version: self.plan.version,
            ..RdmaClientOptions::new(rpcrdma_protocols::base())
        };
        let shared = Rc::clone(&self.shared);
        let random = Random::new(self.random.next());
        let seed = match role {
            Role::Repeating => self.plan.seed,
            _ => self.random.next(),
        };
        let starve = self.starvation();
        let wrap = |device| starving(device, &self.fabric, starve);
        let started = ClientHost::start(&self.fabric, host, options, seed, wrap, |desk| {
            let Some(hostile) = shared.plan.hostile.clone() else {
                return Box::pin(life(shared, desk, random));
            };
            match (role, hostile.flood) {
                (Role::Tenant, _) => Box::pin(hold(shared, desk, random)),
                (Role::Repeating, _) => Box::pin(repeat(shared, desk)),
                (Role::Quiet, _) => Box::pin(idle(shared, desk, hostile.quiet)),
                (Role::Flood, Some(content)) => Box::pin(flood(shared, desk, content)),
                _ => Box::pin(life(shared, desk, random)),
            }
        });
        match started {
            Ok(host) => self.clients[client] = Some(host),
            Err(error) => self.violation(format!("no client: {error}")),
        }
    }

    fn run(&mut self) {
        let until = Time::ZERO + self.plan.heal_at + PATIENCE;
        while !self.is_done() {
            let Some(turn) = self.fabric.next(until) else {
                let waiting: Vec<usize> = (0..self.clients.len())
                    .filter(|&client| self.roles[client].is_honest() && !self.client_done(client))
                    .collect();
                return self.violation(format!("clients {waiting:?} wait for ever"));
            };
            self.turns += 1;
            if self.turns > MOST_TURNS {
                return self.violation("everybody is busy, and nothing gets done".to_owned());
            }
            self.take(turn);
        }
    }

    fn client_done(&self, client: usize) -> bool {
        self.clients[client]
            .as_ref()
            .is_some_and(ClientHost::is_done)
    }

    fn is_done(&self) -> bool {
        let healed = self.fabric.now() >= Time::ZERO + self.plan.heal_at;
        let done = |client: usize| !self.roles[client].is_honest() || self.client_done(client);
        healed && (0..self.clients.len()).all(done)
    }

    fn take(&mut self, turn: Turn) {
        self.check_handed();
        match turn {
            Turn::Host(node) if self.paused[node.0] > self.fabric.now() => {
                self.fabric.turn_at(node, self.paused[node.0]);
            }
            Turn::Host(node) if node.0 < self.plan.loops => self.server_turn(node.0),
            Turn::Host(node) => self.client_turn(node),
            Turn::Alarm(mark) => {
                if let Some(&alarm) = self.alarms.get(mark as usize) {
                    self.ring(alarm);
                }
            }
        }
    }

    fn server_turn(&mut self, at: usize) {
        let slice = self.slice();
        let Some(turning) = self.server.as_mut().map(|server| &mut server.loops[at]) else {
            return;
        };
        let jobs = turning.turn(&self.fabric, slice);
        let lives = self.history.borrow().lives;
        for _ in 0..jobs {
            let longest = self.plan.disk.unwrap_or_default();
            let when = self.fabric.now() + self.random.duration(longest);
            self.alarm(when, Alarm::Job { life: lives, at });
        }
        self.wake_loops(at);
        for number in self.disk.take_repeated() {
            self.violation(format!("WRITE {number} was executed twice"));
        }
        let trees = self.shared.exports.trees.iter();
        for what in trees.flat_map(|trees| trees.take_trespasses()) {
            self.violation(what);
        }
    }

    /// Checks that no loop leaves a reply of another loop untaken for longer than [`TAKEN_WITHIN`].
    fn check_handed(&mut self) {
        // One loop has nobody to hand replies to.
        let Some(server) = self.server.as_ref().filter(|_| self.plan.loops > 1) else {
            return;
        };
        let (now, mut late) = (self.fabric.now(), None);
        for (at, count) in server.handed_replies().enumerate() {
            if count == 0 {
                self.handed[at] = None;
                continue;
            }
            let since = self.handed[at].get_or_insert(now);
            *since = (*since).max(self.paused[at]);
            if now > *since + TAKEN_WITHIN {
                *since = now;
                late = Some((at, count));
            }
        }
        if let Some((at, count)) = late {
            self.violation(format!(
                "loop {at} sleeps and does not take replies that other loops have handed to it: {count}"
            ));
        }
    }

    /// Returns how far a loop of the server gets in its next turn. Where there are several, others go
    /// on between its steps, as threads do.
    fn slice(&mut self) -> Slice {
        match self.plan.loops {
            1 => Slice::default(),
            _ => Slice {
                steps: self.interleaving.pick(&STEPS_AT_ONCE),
                pause: self.interleaving.duration(INTERRUPTED),
            },
        }
    }

    /// Schedules a turn of every loop that loop `current` has woken, after the delay of an interrupt: a
    /// thread that sleeps wakes no sooner.
    fn wake_loops(&mut self, current: usize) {
        let Some(server) = &self.server else { return };
        for node in server.woken(current) {
            let late = self.interleaving.duration(self.plan.faults.late_wake);
            let at = self.fabric.now() + self.plan.interrupt + late;
            self.fabric.turn_at(node, at);
        }
    }

    fn client_turn(&mut self, node: NodeId) {
        let mut clients = self.clients.iter_mut().flatten();
        let Some(client) = clients.find(|client| client.node == node) else {
            return;
        };
        client.turn(&self.fabric);
        let under_way = client.under_way.get();
        // Only the end of a call can make the number of calls with registered memory exceed that of
        // outstanding calls.
        let before = std::mem::replace(&mut self.under_way[node.0], under_way);
        if under_way >= before && self.exposed[node.0].is_none() {
            return;
        }
        let Exposing {
            answered,
            unanswered,
        } = self.journal.borrow().exposing(node);
        // The responder may invalidate the memory of a call that was given up with its reply, if
        // both sides have agreed to that. Invalidating the memory earlier would cost the
        // connection.
        let outlived = match self.plan.requester.remote_invalidation {
            true if self.plan.retry != Retry::Hard => answered,
            _ => answered + unanswered,
        };
        if outlived <= under_way {
            self.exposed[node.0] = None;
            return;
        }
        let now = self.fabric.now();
        let since = *self.exposed[node.0].get_or_insert(now);
        if now - since >= self.fence() {
            self.violation(format!(
                "{node} has {under_way} calls under way, and memory exposed for {outlived}"
            ));
        }
    }

    /// Returns how long memory may stay registered after its call. Normally not at all, because the
    /// result is reported when the memory has been invalidated. But a call that is given up ends at
    /// once, and its memory is invalidated afterwards, behind the entries of the send queue, or at
    /// the end of the connection.
    fn fence(&self) -> Duration {
        match self.plan.retry {
            Retry::Hard => Duration::ZERO,
            Retry::Soft { .. } => self.plan.costs.detection + FENCE,
        }
    }

    fn ring(&mut self, alarm: Alarm) {
        match alarm {
            Alarm::Job { life, at } => {
                let current = self.history.borrow().lives == life;
                if let Some(server) = self.server.as_mut().filter(|_| current) {
                    server.loops[at].finish_job(&self.fabric);
                    self.wake_loops(at);
                }
            }
            Alarm::Crash(crash) => self.crash(crash),
            Alarm::Over(crash) => self.recover(crash),
            Alarm::Heal => {
                self.greedy.clear();
                self.fabric.set_faults(Faults::default());
            }
        }
    }
}
