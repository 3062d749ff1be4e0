//! The plan of a run: hosts, options, workload, and the kinds and rates of faults.

mod choose;

use std::fmt;
use std::time::Duration;

use rdma::Attributes;
use rdma_sim::{Costs, Faults};
use rpc_transport::Retry;
use rpc_transport::rdma::{Choice, RdmaOptions, Version, Versions};

use crate::pairing::Pairing;

/// A time-out that never expires without faults.
const PATIENT: Duration = Duration::from_secs(60);
/// Sufficient memory, bytes.
const AMPLE: usize = 4 << 20;
/// The size of a receive queue that is always sufficient.
const ROOMY: usize = 1024;
/// The size of a receive queue for one reply and the messages that take no credits.
const SHORTEST_QUEUE: usize = 7;

/// The settings that all seeds of a run share. Each seed chooses the rest.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Swarm {
    /// Whether every seed uses version 2, with receive sizes that change all the time, and with
    /// callbacks.
    pub resizing: bool,
    /// The features of both sides.
    pub features: FeaturesOf,
}

/// The rule by which seeds choose the features of both sides.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum FeaturesOf {
    /// Every second seed uses version 2 with one of the sixteen combinations, each in turn. Of the
    /// others, some use version 1, and some have features that a side only sends or only receives.
    #[default]
    Seed,
    /// Every seed uses version 2 with one of the sixteen combinations, each in turn.
    Turns,
    /// Every seed uses version 2 with this combination.
    Only(Pairing),
}

/// The target of a planned fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Victim {
    /// The server process crashes: its memory is lost, but not its disk's cache.
    ServerProcess,
    /// The server's power fails: data that is not on stable storage may be lost as well.
    ServerPower,
    /// A client crashes and loses its memory. It restarts as a new one.
    Client(usize),
    /// A client stops for a while.
    ClientPause(usize),
    /// The server stops for a while.
    ServerPause,
    /// Something else allocates all free memory of the server.
    ServerMemory,
    /// A random connection breaks.
    Connection,
}

/// A planned fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Crash {
    /// The time at which it begins.
    pub at: Duration,
    /// The target.
    pub victim: Victim,
    /// The duration for which the victim is down.
    pub lasts: Duration,
}

/// The plan of a run.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The seed.
    pub seed: u64,
    /// The simulated costs.
    pub costs: Costs,
    /// The rates of random faults until [`Plan::heal_at`].
    pub faults: Faults,
    /// The planned faults.
    pub crashes: Vec<Crash>,
    /// The time after which no more faults happen.
    pub heal_at: Duration,
    /// The number of clients.
    pub clients: usize,
    /// The number of concurrent workers of each client.
    pub workers: usize,
    /// The number of calls of each worker.
    pub calls: usize,
    /// The bytes of one write.
    pub slot: usize,
    /// The number of connections of each client.
    pub nconnect: usize,
    /// The time-out of a client's calls.
    pub timeout: Duration,
    /// The clients' action after a time-out.
    pub retry: Retry,
    /// The options of the clients' side of connections.
    pub requester: RdmaOptions,
    /// The options of the server's side.
    pub responder: RdmaOptions,
    /// The versions that the clients ask for.
    pub version: Choice,
    /// The versions that the server accepts.
    pub versions: Versions,
    /// Whether each client changes the receive sizes of both ends during the run. Only version 2
    /// can.
    pub resizes: bool,
    /// Whether clients make the server call them. The number of concurrent calls is in
    /// [`Plan::requester`] and [`Plan::responder`], and the data in the orders.
    pub callbacks: bool,
    /// The number of messages per million granting messages whose grant is replaced by a smaller
    /// one.
    pub starve: u32,
    /// The limits of the devices.
    pub attributes: Attributes,
    /// The memory of each client's device beyond that of receives, bytes.
    pub client_memory: usize,
    /// The memory of the server's device beyond that of receives, bytes.
    pub server_memory: usize,
    /// Whether the server's disk keeps unstable writes in its cache.
    pub write_back: bool,
    /// The maximum duration of a disk access. `None`: the disk answers at once.
    pub disk: Option<Duration>,
    /// The time from an interrupt to the host's turn.
    pub interrupt: Duration,
}

impl Plan {
    /// Derives the plan of `seed` with default settings.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Swarm::default().plan(seed)
    }

    /// Returns the features of both sides if they use version 2.
    #[must_use]
    pub fn pairing(&self) -> Option<Pairing> {
        self.speaks_two().then_some(Pairing {
            server: self.responder.features,
            client: self.requester.features,
        })
    }

    /// Returns whether clients accept calls, as far as the server's upper layer knows. In version 2
    /// the transport knows too.
    #[must_use]
    pub fn takes_callbacks(&self) -> bool {
        self.callbacks && (self.callback_credits() > 0 || self.speaks_only_two())
    }

    /// Returns the number of calls that a client accepts from its server at a time. Receives for
    /// replies have priority.
    #[must_use]
    pub fn callback_credits(&self) -> u32 {
        match self.attributes.max_recv_wr {
            ROOMY.. => self.requester.callbacks.credits,
            short => self
                .requester
                .callbacks
                .credits
                .min((short - SHORTEST_QUEUE) as u32),
        }
    }

    fn speaks_only_two(&self) -> bool {
        self.version == Choice::Only(Version::Two)
    }

    /// Returns whether version 2 is used.
    #[must_use]
    pub fn speaks_two(&self) -> bool {
        self.version.allows(Version::Two) && self.versions.contains(Version::Two)
    }

    /// Returns whether clients wait for every reply, and have memory for every call.
    #[must_use]
    pub fn is_patient(&self) -> bool {
        self.retry == Retry::Hard
            && self.faults.fail_registration == 0
            && self.client_memory >= AMPLE
    }

    /// Returns whether no fault is planned that could end a connection.
    #[must_use]
    pub fn is_calm(&self) -> bool {
        let Faults {
            lose,
            ignore_request,
            fail_registration,
            ..
        } = self.faults;
        self.crashes.is_empty()
            && lose + ignore_request + fail_registration == 0
            && self.timeout >= PATIENT
            && self.client_memory >= AMPLE
            && self.server_memory >= AMPLE
    }
}

impl fmt::Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "seed {}: {} client{}, workers each: {}, calls each: {}, writes of {} bytes, nconnect {}",
            self.seed,
            self.clients,
            if self.clients == 1 { "" } else { "s" },
            self.workers,
            self.calls,
            self.slot,
            self.nconnect
        )?;
        writeln!(
            f,
            "time-out {:?}, {:?}; memory {} and {}; disk {:?}, write-back {}; interrupt {:?}; \
             grants cut {}",
            self.timeout,
            self.retry,
            self.client_memory,
            self.server_memory,
            self.disk,
            self.write_back,
            self.interrupt,
            self.starve
        )?;
        writeln!(f, "{:?}", self.costs)?;
        writeln!(f, "{:?}", self.faults)?;
        writeln!(f, "requester: {:?}", self.requester)?;
        writeln!(f, "responder: {:?}", self.responder)?;
        writeln!(
            f,
            "versions: {} wanted, {} accepted; sizes change: {}; callbacks: {}",
            self.version, self.versions, self.resizes, self.callbacks
        )?;
        writeln!(f, "{:?}", self.attributes)?;
        for crash in &self.crashes {
            writeln!(
                f,
                "at {:?}: {:?}, for {:?}",
                crash.at, crash.victim, crash.lasts
            )?;
        }
        writeln!(f, "healed at {:?}", self.heal_at)
    }
}
