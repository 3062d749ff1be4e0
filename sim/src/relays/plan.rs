//! The choices of a seed with relays.

use std::fmt;
use std::time::Duration;

use rdma::Attributes;
use rdma_sim::{Costs, Faults, Random};
use rpc_transport::rdma::{CallbackOptions, Version};

use super::hop::Hop;
use crate::pairing::Pairing;
use crate::plan::{FeaturesOf, ROOMY, Swarm, VersionsOf, costs, device};

/// The stream of random numbers for runs with relays.
const RELAYS: u64 = 17;
/// The streams of random numbers for what some of the seeds have, so that each leaves the other choices of a seed
/// unchanged.
const BACKWARD: u64 = 18;
const STREAMS: u64 = 19;
const SCARCE: u64 = 20;
const COMPOUNDS: u64 = 21;
/// The memory of each process, bytes.
pub(super) const MEMORY: usize = 64 << 20;
/// The memory for calls and replies of a relay in which memory is short, bytes. The longest call has room in the smallest,
/// as a test of `calls.rs` checks: otherwise it would be refused. Its reply needs no room if the client has no other call
/// in progress, so that each call is passed on in the end.
pub(super) const SHORT: [usize; 3] = [512 << 10, 1 << 20, 4 << 20];
/// The fewest and the most calls of a client.
const CALLS: (u64, u64) = (3, 16);
/// The maximum number of faults.
const FAULTS: u64 = 3;
/// The place of the hop between the relays.
const MIDDLE: usize = 1;
/// The maximum times by which something may happen late.
const LATE: [Duration; 3] = [
    Duration::ZERO,
    Duration::from_micros(5),
    Duration::from_micros(300),
];

/// The kind of a fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fault {
    /// The server closes its connections gracefully.
    Finish,
    /// The network loses a connection.
    Lose,
    /// A client closes its connection with calls in progress, and connects again.
    Leave(usize),
    /// A relay ends as by SIGKILL, and has a successor after a while.
    Kill(usize),
    /// The host of a relay has no memory left for a while.
    Memory(usize),
}

/// The choices of a seed.
pub(super) struct Plan {
    /// The number of calls of each client.
    pub(super) calls: Vec<usize>,
    /// From clients to the first relay, to the second one, and to the server.
    pub(super) hops: [Hop; 3],
    pub(super) costs: Costs,
    pub(super) attributes: Attributes,
    pub(super) interrupt: Duration,
    /// The maximum time that the server takes for a call.
    pub(super) longest_job: Duration,
    /// Faults with their times.
    pub(super) faults: Vec<(Duration, Fault)>,
    /// The maximum time in which a killed relay has no successor, or a relay no memory.
    pub(super) absence: Duration,
    /// Whether the server calls clients.
    pub(super) callbacks: bool,
    /// Whether clients make COMPOUNDs with several items.
    pub(super) compounds: bool,
    /// The memory for calls and replies of each relay, bytes, if it is short.
    pub(super) budgets: [Option<usize>; 2],
    /// Whether clients over TCP have the same port for all of their connections.
    pub(super) same_port: bool,
    /// Faults that lose nothing: delays.
    pub(super) late: Faults,
    /// The number of the pairing of features between the relays, if the swarm chooses pairings.
    pub(super) pairing: Option<usize>,
    /// The source of all further choices.
    pub(super) random: Random,
}

impl Plan {
    pub(super) fn new(seed: u64, swarm: &Swarm) -> Self {
        let mut random = Random::new(seed).split(RELAYS);
        let clients = random.pick(&[1, 2, 2, 3]);
        let calls = (0..clients).map(|_| random.between(CALLS.0, CALLS.1) as usize);
        let calls = calls.collect();
        let mut hops: [Hop; 3] = std::array::from_fn(|_| Hop::new(&mut random));
        let (turn, middle) = (seed / Pairing::COUNT as u64, &mut hops[MIDDLE]);
        let pairing = match swarm.features {
            FeaturesOf::Seed => None,
            FeaturesOf::Turns => Some(Pairing::nth(seed)),
            FeaturesOf::Only(pairing) => Some(pairing),
        };
        if let Some(pairing) = pairing {
            middle.features = pairing;
            middle.version = [Version::TWO, Version::TWO_WG][(turn % 2) as usize];
        }
        if let VersionsOf::Only(version) = swarm.versions {
            middle.version = version;
        }
        let late = Faults {
            late_arrival: random.pick(&LATE),
            late_read: random.pick(&LATE),
            late_completion: random.pick(&LATE),
            late_wake: random.pick(&LATE),
            ..Faults::default()
        };
        let within = Duration::from_millis(random.pick(&[1, 10, 100]));
        let mut faults = faults(clients, within, &mut random);
        let of = |purpose| Random::new(seed).split(purpose);
        let same_port = streams(&mut hops, &mut of(STREAMS));
        let callbacks = backward(&mut hops, &mut of(BACKWARD));
        let budgets = scarcity(&mut faults, within, &mut of(SCARCE));
        let costs = costs(&mut random);
        let mut attributes = Attributes {
            shared_receives: random.pick(&[None, rdma_sim::attributes().shared_receives]),
            ..device(&mut random)
        };
        if callbacks {
            // The smallest queues leave no credits for callbacks.
            attributes.max_recv_wr = ROOMY;
        }
        Self {
            calls,
            hops,
            costs,
            attributes,
            callbacks,
            budgets,
            compounds: of(COMPOUNDS).below(2) == 0,
            same_port,
            interrupt: Duration::from_nanos(random.between(0, 20_000)),
            longest_job: random.pick(&[10, 500, 20_000].map(Duration::from_micros)),
            faults,
            absence: random.pick(&[1, 5, 500].map(Duration::from_millis)),
            late,
            pairing: pairing.and_then(|pairing| pairing.number()),
            random,
        }
    }

    /// Returns whether nothing ends a connection before its client has closed it.
    pub(super) fn is_calm(&self) -> bool {
        self.faults.is_empty()
    }

    /// Returns whether a relay may answer a call with SYSTEM_ERR, so that the client has to make it again.
    pub(super) fn may_refuse(&self) -> bool {
        let memory = |fault: &Fault| matches!(fault, Fault::Memory(_));
        self.faults.iter().any(|(_, fault)| memory(fault))
    }

    /// Returns whether a lost reply would be a bug: the only faults are graceful closes by the server.
    pub(super) fn is_orderly(&self) -> bool {
        self.faults.iter().all(|(_, fault)| *fault == Fault::Finish)
    }
}

/// Chooses the hops of TCP: none in half of the seeds, else those to the first relay, from the last one, or both.
/// Returns whether clients over TCP have the same port for all of their connections.
fn streams(hops: &mut [Hop; 3], random: &mut Random) -> bool {
    let (first, last) = random.pick(&[
        (false, false),
        (false, false),
        (false, false),
        (true, false),
        (false, true),
        (true, true),
    ]);
    (hops[0].is_tcp, hops[2].is_tcp) = (first, last);
    random.below(2) == 0
}

/// Chooses calls from server to client. Returns whether there are any. They may have chunks: relays offer room for
/// replies of any length to programs that they do not know.
fn backward(hops: &mut [Hop; 3], random: &mut Random) -> bool {
    if random.below(2) == 0 {
        return false;
    }
    for hop in hops {
        hop.callbacks = std::array::from_fn(|_| CallbackOptions {
            credits: random.pick(&[1, 2, 5, 16]),
            chunks: true,
        });
    }
    true
}

/// Chooses whether memory is short: in an eighth of the seeds, the host of a relay has none left for a while, so that
/// it refuses calls. In a quarter of the others, a relay has so little for its calls that they have to wait for one
/// another. Returns how much each relay has in this case.
fn scarcity(
    faults: &mut Vec<(Duration, Fault)>,
    within: Duration,
    random: &mut Random,
) -> [Option<usize>; 2] {
    let relay = random.below(2) as usize;
    if random.below(8) == 0 {
        for _ in 0..random.between(1, FAULTS) {
            faults.push((random.duration(within), Fault::Memory(relay)));
        }
        faults.sort_by_key(|(at, _)| *at);
        return [None; 2];
    }
    let is_short = random.below(4) == 0;
    std::array::from_fn(|at| {
        let each = random.pick(&SHORT);
        // Both relays, or one of them.
        (is_short && (at == relay || random.below(2) == 0)).then_some(each)
    })
}

/// Chooses what goes wrong. As in swarm testing, most seeds have only one kind of faults, so that what one does is
/// not hidden by another.
fn faults(clients: usize, within: Duration, random: &mut Random) -> Vec<(Duration, Fault)> {
    let leave = Fault::Leave(random.below(clients as u64) as usize);
    let kill = Fault::Kill(random.below(2) as usize);
    let kinds: &[Fault] = match random.below(8) {
        0 => return Vec::new(),
        1..=3 => &[Fault::Finish],
        4 => &[Fault::Lose],
        5 => &[leave],
        6 => &[kill],
        _ => &[
            leave,
            Fault::Kill(0),
            Fault::Kill(1),
            Fault::Lose,
            Fault::Finish,
        ],
    };
    let count = random.between(1, FAULTS);
    let mut faults: Vec<_> = (0..count)
        .map(|_| (random.duration(within), random.pick(kinds)))
        .collect();
    faults.sort_by_key(|(at, _)| *at);
    faults
}

impl fmt::Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "relays: calls of each client {:?}", self.calls)?;
        let names = [
            "clients to relay 0",
            "relay 0 to relay 1",
            "relay 1 to the server",
        ];
        for (name, hop) in names.iter().zip(&self.hops) {
            writeln!(f, "{name}: {hop}")?;
        }
        writeln!(
            f,
            "jobs of up to {:?}; absence of up to {:?}; interrupt {:?}",
            self.longest_job, self.absence, self.interrupt
        )?;
        writeln!(
            f,
            "callbacks {}; COMPOUNDs {}; one port for each client {}; memory of relays {:?}",
            self.callbacks, self.compounds, self.same_port, self.budgets
        )?;
        writeln!(
            f,
            "{:?}\n{:?}\n{:?}",
            self.costs, self.attributes, self.late
        )?;
        for (at, fault) in &self.faults {
            writeln!(f, "at {at:?}: {fault:?}")?;
        }
        Ok(())
    }
}
