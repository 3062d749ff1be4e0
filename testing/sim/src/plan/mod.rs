//! What a seed chooses: hosts, options, work, and which faults are on and how strong.

mod choose;

use std::fmt;
use std::time::Duration;

use rdma::Attributes;
use rdma_sim::{Costs, Faults};
use rpc_transport::Retry;
use rpc_transport::rdma::{Choice, RdmaOptions, Version, Versions};

use crate::pairing::Pairing;

/// A time-out that nothing reaches unless something is wrong.
const PATIENT: Duration = Duration::from_secs(60);
/// Memory that nobody runs out of, bytes.
const AMPLE: usize = 4 << 20;
/// Room in a receive queue for whatever is wanted of it.
const ROOMY: usize = 1024;
/// A receive queue with room for one reply and what takes no credits.
const SHORTEST_QUEUE: usize = 7;

/// What all seeds of a run have in common. The rest each seed chooses for itself.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Swarm {
    /// Version 2 in every seed, and receives that change all the time, with callbacks.
    pub resizing: bool,
    /// Features of both sides.
    pub features: FeaturesOf,
}

/// What seeds take the features of both sides from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum FeaturesOf {
    /// Every second seed speaks version 2 with one of the sixteen pairings, each in turn. Of the
    /// others, some speak version 1, and some have features that a side only sends or only receives.
    #[default]
    Seed,
    /// Every seed speaks version 2 with one of the sixteen pairings, each in turn.
    Turns,
    /// Every seed speaks version 2 with this one.
    Only(Pairing),
}

/// A host that goes down.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Victim {
    /// The server's process: what it had in memory is gone, its disk's cache is not.
    ServerProcess,
    /// The server's power: what was not on stable storage may be gone as well.
    ServerPower,
    /// A client, with all it had in memory. It comes back as a new one.
    Client(usize),
    /// A client stands still, and goes on.
    ClientPause(usize),
    /// The server stands still, and goes on.
    ServerPause,
    /// All of the server's free memory is taken by somebody else.
    ServerMemory,
    /// One connection, any.
    Connection,
}

/// Something that happens to a host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Crash {
    /// When.
    pub at: Duration,
    /// To whom.
    pub victim: Victim,
    /// How long until it is back.
    pub lasts: Duration,
}

/// What a seed chooses.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The seed.
    pub seed: u64,
    /// What things cost.
    pub costs: Costs,
    /// What goes wrong by itself, until [`Plan::heal_at`].
    pub faults: Faults,
    /// What goes wrong at a certain time.
    pub crashes: Vec<Crash>,
    /// From here on nothing goes wrong any more.
    pub heal_at: Duration,
    /// Clients.
    pub clients: usize,
    /// Calls each keeps under way.
    pub workers: usize,
    /// Calls each worker makes.
    pub calls: usize,
    /// Bytes of one write.
    pub slot: usize,
    /// Connections of each client.
    pub nconnect: usize,
    /// How long a client waits for a reply.
    pub timeout: Duration,
    /// What it does then.
    pub retry: Retry,
    /// The clients' side of connections.
    pub requester: RdmaOptions,
    /// The server's.
    pub responder: RdmaOptions,
    /// Which version the clients want.
    pub version: Choice,
    /// Which versions the server accepts.
    pub versions: Versions,
    /// Whether clients have receives made longer and shorter, in version 2.
    pub resizes: bool,
    /// Whether clients have the server call them; how many calls at a time, and with which data, is in
    /// [`Plan::requester`] and [`Plan::responder`] and the orders.
    pub callbacks: bool,
    /// Of a million messages that grant credits, so many grant fewer than their sender meant to.
    pub starve: u32,
    /// The devices' limits.
    pub attributes: Attributes,
    /// Memory of each client's device beyond what receives take, bytes.
    pub client_memory: usize,
    /// Likewise the server's.
    pub server_memory: usize,
    /// The server's disk keeps unstable writes in its cache.
    pub write_back: bool,
    /// How long the disk takes at most; nothing: it answers at once.
    pub disk: Option<Duration>,
    /// From an interrupt to its host's turn.
    pub interrupt: Duration,
}

impl Plan {
    /// What `seed` chooses when nothing is asked for.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Swarm::default().plan(seed)
    }

    /// What both sides do to spare round trips, where they speak version 2.
    #[must_use]
    pub fn pairing(&self) -> Option<Pairing> {
        self.speaks_two().then_some(Pairing {
            server: self.responder.features,
            client: self.requester.features,
        })
    }

    /// Whether clients take calls, as far as their server's upper layer knows: in version 2 the
    /// transport knows, too.
    #[must_use]
    pub fn takes_callbacks(&self) -> bool {
        self.callbacks && (self.callback_credits() > 0 || self.speaks_only_two())
    }

    /// Calls that a client takes from its server at a time: its receives are for replies first.
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

    /// Whether version 2 is spoken.
    #[must_use]
    pub fn speaks_two(&self) -> bool {
        self.version.allows(Version::Two) && self.versions.contains(Version::Two)
    }

    /// Whether clients wait for every reply, and have memory for every call.
    #[must_use]
    pub fn is_patient(&self) -> bool {
        self.retry == Retry::Hard
            && self.faults.fail_registration == 0
            && self.client_memory >= AMPLE
    }

    /// Whether nothing is planned that could end a connection before its owner does.
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
