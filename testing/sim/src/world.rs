//! One run: the hosts and their turns, the faults, and the final checks.

use std::cell::RefCell;
use std::net::{Ipv4Addr, SocketAddr};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use nfs_binding::fs::FileSystem;
use rdma::{Attributes, Buf, SharedReceives, Tap, Time};
use rdma_sim::{Fabric, Faults, Host, NodeId, Random, SimDevice, Turn};
use rpc_transport::Retry;
use rpc_transport::rdma::{RdmaClientOptions, RdmaOptions, RdmaServerOptions};
use rpcrdma_callbacks::Totals;

use crate::client::{ClientHost, Tally};
use crate::disk::Disk;
use crate::exposure::Exposing;
use crate::history::{History, SlotId};
use crate::journal::Journal;
use crate::pattern;
use crate::plan::{Plan, Victim, are_shared};
use crate::pools::Pools;
use crate::report::Report;
use crate::server::{STEPS, ServerHost, Slice};
use crate::starve::{Starvation, starving};
use crate::work::{Shared, life};

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
/// The maximum time for connections to end after the clients are done.
const SETTLE: Duration = Duration::from_secs(30);
/// The maximum duration of an invalidation without faults.
const FENCE: Duration = Duration::from_secs(1);
/// The maximum time until a loop takes a reply that another one has handed to it. A loop runs at most a
/// millisecond after it was woken.
const TAKEN_WITHIN: Duration = Duration::from_millis(10);
/// The number of receives that are posted beyond the credits.
const EXTRA: usize = 8;
/// The block sizes in which a server's memory is taken away.
const GREED: [usize; 3] = [1 << 20, 1 << 16, 4096];

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
    clients: Vec<Option<ClientHost>>,
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

/// The bytes of a receive's segments in which bulk data is placed.
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
        return count * options.longest_receives(true).memory();
    }
    let longest = match resizes {
        true => options.max_receive_size,
        false => options.inline_receive,
    };
    let plain = (longest as usize).next_power_of_two().max(4096);
    let size = match options.features.ddp.receive {
        true => PLACING + plain,
        false => plain,
    };
    count * size
}

impl<'a> World<'a> {
    fn new(plan: Plan, explain: bool, tap: Option<TapMaker<'a>>) -> Self {
        let fabric = Fabric::new(plan.seed, plan.costs.clone(), plan.faults.clone());
        let journal = Rc::new(RefCell::new(Journal::new(explain, &plan)));
        let history = Rc::new(RefCell::new(History::default()));
        fabric.watch(Rc::clone(&journal) as Rc<RefCell<_>>);
        if explain {
            let header = plan.to_string();
            journal
                .borrow_mut()
                .line(Time::ZERO, format_args!("{header}"));
        }
        let shared = Rc::new(Shared {
            plan: plan.clone(),
            server: address(0),
            history: Rc::clone(&history),
            journal: Rc::clone(&journal),
            tally: Rc::new(Tally::default()),
            files: Rc::default(),
        });
        let blocks = plan.disk.is_some();
        let disk = Disk::new(plan.seed, fabric.clock(), blocks, plan.write_back);
        let mut world = Self {
            random: Random::new(plan.seed).split(3),
            interleaving: Random::new(plan.seed).split(LOOPS),
            paused: vec![Time::ZERO; plan.loops + plan.clients],
            exposed: vec![None; plan.loops + plan.clients],
            handed: vec![None; plan.loops],
            under_way: vec![0; plan.loops + plan.clients],
            clients: (0..plan.clients).map(|_| None).collect(),
            fabric,
            journal,
            history,
            shared,
            disk: Arc::new(disk),
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
        for client in 0..world.plan.clients {
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
        let connections = 2 * self.plan.clients * self.plan.nconnect;
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
            versions: self.plan.versions,
            ..RdmaServerOptions::default()
        };
        if are_shared(shares) {
            // Calls have the rest.
            options.max_receive_memory = for_receives;
        }
        let disk = Arc::clone(&self.disk) as Arc<dyn FileSystem>;
        self.history.borrow_mut().lives += 1;
        let callbacks = self.plan.callbacks.then(|| self.callbacks.clone());
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
            address(0),
            &options,
            disk,
            callbacks,
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
        let for_receives = receives(&plan.requester, plan.nconnect, plan.resizes, shares);
        let host = Host {
            address: address(client + 1),
            attributes: self.attributes(shares),
            pool: self.pools.take(for_receives + self.plan.client_memory),
            interrupt: self.plan.interrupt,
        };
        let options = RdmaClientOptions {
            common: self.plan.requester.clone(),
            connect_timeout: Duration::from_secs(5),
            version: self.plan.version,
            ..RdmaClientOptions::default()
        };
        let shared = Rc::clone(&self.shared);
        let random = Random::new(self.random.next());
        let seed = self.random.next();
        let starve = self.starvation();
        let wrap = |device| starving(device, &self.fabric, starve);
        let started = ClientHost::start(&self.fabric, host, options, seed, wrap, |desk| {
            Box::pin(life(shared, desk, random))
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
                    .filter(|&client| !self.client_done(client))
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
        healed && (0..self.clients.len()).all(|client| self.client_done(client))
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

    fn crash(&mut self, number: usize) {
        let crash = self.plan.crashes[number];
        let now = self.fabric.now();
        let line = format_args!("fault: {:?} for {:?}", crash.victim, crash.lasts);
        self.journal.borrow_mut().line(now, line);
        let until = now + crash.lasts;
        match crash.victim {
            Victim::ServerProcess | Victim::ServerPower => {
                if self.server.is_none() {
                    return;
                }
                for at in 0..self.plan.loops {
                    self.fabric.crash(NodeId(at));
                }
                self.server = None;
                self.handed.fill(None);
                self.greedy.clear();
                if crash.victim == Victim::ServerPower {
                    self.disk.power_failed(&mut self.random);
                    self.history.borrow_mut().power_failed();
                }
                self.disk.restarted();
            }
            Victim::Client(client) => {
                let Some(gone) = self.clients[client].take() else {
                    return;
                };
                self.fabric.crash(gone.node);
            }
            Victim::ClientPause(client) => {
                return self.pause(NodeId(self.plan.loops + client), until);
            }
            Victim::ServerPause => {
                for at in 0..self.plan.loops {
                    self.pause(NodeId(at), until);
                }
                return;
            }
            Victim::LoopPause(at) => return self.pause(NodeId(at), until),
            Victim::ServerMemory => {
                let Some(server) = &self.server else { return };
                for block in GREED {
                    while let Ok(buf) = server.pool.alloc(block) {
                        self.greedy.push(buf);
                    }
                }
            }
            Victim::Connection => return self.fabric.lose_one(),
        }
        self.alarm(until, Alarm::Over(number));
    }

    /// Stops a host until this time.
    fn pause(&mut self, node: NodeId, until: Time) {
        self.paused[node.0] = self.paused[node.0].max(until);
    }

    fn recover(&mut self, number: usize) {
        match self.plan.crashes[number].victim {
            Victim::ServerProcess | Victim::ServerPower if self.server.is_none() => {
                self.start_server();
            }
            Victim::Client(client) if self.clients[client].is_none() => self.start_client(client),
            Victim::ServerMemory => self.greedy.clear(),
            _ => {}
        }
    }

    /// Performs the final checks.
    fn finish(mut self) -> Report {
        let done = self.is_done();
        let until = self.fabric.now() + SETTLE;
        while let Some(turn) = self.fabric.next(until) {
            self.turns += 1;
            if self.turns > MOST_TURNS {
                break;
            }
            self.take(turn);
        }
        if done {
            self.check_callbacks();
            self.check_resources();
            self.check_disk();
        }
        let took = self.fabric.now();
        let mut journal = self.journal.borrow_mut();
        Report {
            seed: self.plan.seed,
            pairing: self.plan.pairing().and_then(|pairing| pairing.number()),
            violations: std::mem::take(&mut journal.violations),
            happenings: journal.happenings,
            calls: self.shared.tally.ended.get(),
            failures: self.shared.tally.failed.get(),
            faults: journal.faults,
            callbacks: u64::from(self.callbacks.tally().made),
            took,
            log: journal.take_text(),
        }
    }

    /// Checks that every callback has ended, and that none was answered with data of another.
    fn check_callbacks(&self) {
        let tally = self.callbacks.tally();
        if !tally.done || tally.wrong > 0 {
            self.violation(format!(
                "callbacks have not all ended, or not well: {tally:?}"
            ));
        }
    }

    fn check_resources(&self) {
        let loops = self.server.iter().flat_map(|server| {
            let nodes = server.loops.iter().map(|at| at.node);
            nodes.map(|node| (node, &server.pool))
        });
        let waiting = self
            .server
            .as_ref()
            .map_or(0, ServerHost::waiting_for_others);
        if waiting > 0 {
            self.violation(format!(
                "{waiting} retransmissions still wait for replies of other loops"
            ));
        }
        let handed = self.server.iter().flat_map(ServerHost::handed_replies);
        if handed.sum::<usize>() > 0 {
            self.violation("replies of other loops were never taken".to_owned());
        }
        let clients = self.clients.iter().flatten();
        let clients = clients.map(|client| (client.node, &client.pool));
        for (node, pool) in loops.chain(clients) {
            let (pairs, bytes) = (self.fabric.queue_pairs(node), pool.in_use());
            if pairs > 0 || bytes > 0 {
                let text = format!("{node} is left with {pairs} queue pairs and {bytes} bytes");
                self.violation(text);
            }
        }
    }

    /// Simulates a final power failure, and checks that every slot contains what its clients rely
    /// on.
    fn check_disk(&mut self) {
        self.disk.power_failed(&mut self.random);
        let (slots, losses) = {
            let mut history = self.history.borrow_mut();
            history.power_failed();
            (history.slots(), history.losses)
        };
        for id in slots {
            let got = self.read_slot(id);
            let checked = self.history.borrow_mut().read(id, got, losses);
            if let Err(what) = checked {
                self.violation(format!("at the end, {what}"));
            }
        }
    }

    /// Returns the version that a slot on the disk contains, or `None` if it is not the content of
    /// a single write.
    fn read_slot(&self, (number, slot): SlotId) -> Option<u64> {
        let len = self.plan.slot;
        let files = self.shared.files.borrow();
        let file = files.iter().find(|file| file.number == number)?;
        let mut data = vec![0; len];
        let offset = slot as u64 * len as u64;
        let count = self.disk.read_file(file.dir, number, offset, &mut data);
        match count {
            Ok(count) => pattern::number(&data[..count], len),
            Err(error) => {
                self.violation(format!("file {number} cannot be read: {error}"));
                None
            }
        }
    }
}
