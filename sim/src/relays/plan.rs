//! The choices of a seed with relays.

use std::fmt;
use std::time::Duration;

use rdma::Attributes;
use rdma_sim::{Costs, Faults, Random};
use rpc_transport::rdma::{
    Choice, RdmaClientOptions, RdmaOptions, RdmaServerOptions, Version, Versions,
};

use crate::pairing::Pairing;
use crate::plan::{FeaturesOf, Swarm, VersionsOf, costs, device, options};

/// The stream of random numbers for runs with relays.
const RELAYS: u64 = 17;
/// The memory of each process, bytes.
pub(super) const MEMORY: usize = 64 << 20;
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
}

/// The connections from one process to the next.
#[derive(Clone, Debug)]
pub(super) struct Hop {
    version: Version,
    /// The features of both ends.
    pub(super) features: Pairing,
    requester: RdmaOptions,
    responder: RdmaOptions,
}

impl Hop {
    fn new(random: &mut Random) -> Self {
        // A Read list of small segments might not fit into a header.
        let segments = |side: RdmaOptions| RdmaOptions {
            max_segment: side.max_segment.max(4096),
            ..side
        };
        Self {
            version: random.pick(&[Version::ONE, Version::TWO, Version::TWO_WG]),
            features: Pairing::nth(random.below(Pairing::COUNT as u64)),
            requester: segments(options(random, false)),
            responder: segments(options(random, true)),
        }
    }

    /// Returns the options of the end that connects.
    pub(super) fn client(&self) -> RdmaClientOptions {
        let protocols = rpcrdma_protocols::standard(&self.features.client);
        RdmaClientOptions {
            common: RdmaOptions {
                protocols: protocols.clone(),
                ..self.requester.clone()
            },
            version: Choice::Only(self.version),
            ..RdmaClientOptions::new(protocols)
        }
    }

    /// Returns the options of the end that listens.
    pub(super) fn server(&self) -> RdmaServerOptions {
        let protocols = rpcrdma_protocols::standard(&self.features.server);
        RdmaServerOptions {
            common: RdmaOptions {
                protocols: protocols.clone(),
                ..self.responder.clone()
            },
            versions: Versions::only(self.version),
            max_receive_memory: MEMORY / 4,
            ..RdmaServerOptions::new(protocols)
        }
    }
}

impl fmt::Display for Hop {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (client, server) = (&self.requester, &self.responder);
        write!(
            f,
            "version {} ({}), credits {} and {}, inline {}:{} and {}:{}, segments of {} and {}",
            self.version,
            self.features,
            client.credits,
            server.credits,
            client.inline_send,
            client.inline_receive,
            server.inline_send,
            server.inline_receive,
            client.max_segment,
            server.max_segment,
        )
    }
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
    /// The maximum time in which a killed relay has no successor.
    pub(super) absence: Duration,
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
        let faults = faults(clients, within, &mut random);
        Self {
            calls,
            hops,
            costs: costs(&mut random),
            attributes: Attributes {
                shared_receives: random.pick(&[None, rdma_sim::attributes().shared_receives]),
                ..device(&mut random)
            },
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

    /// Returns whether a lost reply would be a bug: the only faults are graceful closes by the server.
    pub(super) fn is_orderly(&self) -> bool {
        self.faults.iter().all(|(_, fault)| *fault == Fault::Finish)
    }
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
            "{:?}\n{:?}\n{:?}",
            self.costs, self.attributes, self.late
        )?;
        for (at, fault) in &self.faults {
            writeln!(f, "at {at:?}: {fault:?}")?;
        }
        Ok(())
    }
}
