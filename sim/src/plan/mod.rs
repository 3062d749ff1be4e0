//! The plan of a run: hosts, options, workload, and the kinds and rates of faults.

mod choose;
mod hostile;

use std::fmt;
use std::time::Duration;

use rdma::trace::Trace;
use rdma::{Attributes, SharedReceives, WhenEmpty};
use rdma_sim::{Costs, Faults, Noise};
use rpc_transport::Retry;
use rpc_transport::rdma::{Choice, RdmaOptions, Version, Versions};

use crate::pairing::Pairing;
pub(crate) use choose::{costs, device, options};
pub use hostile::{ExportChange, Flood, FloodOf, Hostile};
pub(crate) use hostile::{Role, TREES};

/// A time-out that never expires without faults.
const PATIENT: Duration = Duration::from_secs(60);
/// Sufficient memory, bytes.
const AMPLE: usize = 4 << 20;
/// The size of a receive queue that is always sufficient.
pub(crate) const ROOMY: usize = 1024;
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
    /// The versions of both sides. Not used if [`Swarm::resizing`] or [`Swarm::features`] demand
    /// version 2 of 2016.
    pub versions: VersionsOf,
    /// Whether every seed has an administrator, a client at the server's limits, or one that floods,
    /// beside honest clients. Otherwise one seed in [`Swarm::HOSTILE`] has.
    pub hostile: bool,
    /// Whether seeds are runs with two relays between clients and a server. These have choices of their own:
    /// [`Swarm::features`] and [`Swarm::versions`] are then those of the connections between the relays, and
    /// the other settings have no effect.
    pub relays: bool,
    /// The change of the plan of every seed.
    pub change: Option<Change>,
}

/// A change of plans, after all choices of their seeds: for instance, extensions or a policy of granting of
/// a program's own. A change that depends on nothing but the plan keeps seeds repeatable.
#[derive(Clone, Copy)]
pub struct Change(
    /// Changes a plan.
    pub &'static (dyn Fn(&mut Plan) + Send + Sync),
);

impl fmt::Debug for Change {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Change")
    }
}

impl PartialEq for Change {
    fn eq(&self, other: &Self) -> bool {
        std::ptr::addr_eq(self.0, other.0)
    }
}

impl Eq for Change {}

/// The rule by which seeds choose the versions of both sides. The server accepts any set of
/// versions that contains one the clients ask for, as nothing would happen otherwise.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum VersionsOf {
    /// A quarter of the seeds use version 1. Half of these choose between version 1 and the working
    /// group's version 2 instead. The others use version 2 of 2016, as [`FeaturesOf`] says.
    #[default]
    Seed,
    /// Every seed chooses freely: half of them the working group's version 2, the others version 1,
    /// version 2 of 2016 or the higher of the two.
    Free,
    /// Every seed uses this version: one of this project, or one of [`Plan::added`].
    Only(Version),
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
    /// One loop of the server stops for a while.
    LoopPause(usize),
    /// Something else allocates all free memory of the server.
    ServerMemory,
    /// A random connection breaks.
    Connection,
    /// The server is restarted with other exports.
    Administrator(ExportChange),
}

impl fmt::Display for Victim {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::ServerProcess => f.write_str("the server crashes"),
            Self::ServerPower => f.write_str("the server's power fails"),
            Self::Client(client) => write!(f, "client {client} crashes"),
            Self::ClientPause(client) => write!(f, "client {client} stops"),
            Self::ServerPause => f.write_str("the server stops"),
            Self::LoopPause(number) => write!(f, "loop {number} of the server stops"),
            Self::ServerMemory => f.write_str("the server has no memory left"),
            Self::Connection => f.write_str("a random connection breaks"),
            Self::Administrator(change) => write!(f, "the server restarts: {change}"),
        }
    }
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
    /// The observer of calls at all hosts, if they are traced. Its clock is not used.
    pub trace: Option<Trace>,
    /// The rates of random faults until [`Plan::heal_at`].
    pub faults: Faults,
    /// The planned faults.
    pub crashes: Vec<Crash>,
    /// The time after which no more faults happen.
    pub heal_at: Duration,
    /// The number of the server's loops.
    pub loops: usize,
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
    /// The features for fewer round trips of both sides, which their protocols have.
    pub features: Pairing,
    /// The versions that the clients ask for.
    pub version: Choice,
    /// The versions of this project that the server accepts.
    pub versions: Versions,
    /// The versions of a program's own that the server accepts beside them, and that both sides have in
    /// their protocols.
    pub added: Vec<Version>,
    /// Whether each client changes the receive sizes of both ends during the run. Only version 2
    /// can.
    pub resizes: bool,
    /// Whether clients make the server call them. The number of concurrent calls is in
    /// [`Plan::requester`] and [`Plan::responder`], and the data in the orders.
    pub callbacks: bool,
    /// The number of messages per million granting messages whose grant is replaced by a smaller
    /// one.
    pub starve: u32,
    /// The limits of the devices, except those of shared receive queues.
    pub attributes: Attributes,
    /// The shared receive queues of the clients' devices. Connections share receives if a message
    /// that finds none waits.
    pub client_shares: Option<SharedReceives>,
    /// The shared receive queues of the server's device.
    pub server_shares: Option<SharedReceives>,
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
    /// Disturbances of honest clients other than faults, and the limits that the server then has.
    pub hostile: Option<Hostile>,
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
        self.speaks_two().then_some(self.features)
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
            _ if are_shared(self.client_shares) && are_shared(self.server_shares) => {
                self.requester.callbacks.credits
            }
            ROOMY.. => self.requester.callbacks.credits,
            short => self
                .requester
                .callbacks
                .credits
                .min((short - SHORTEST_QUEUE) as u32),
        }
    }

    fn speaks_only_two(&self) -> bool {
        self.version == Choice::Only(Version::TWO) || self.speaks_wg()
    }

    /// Returns whether version 2 of 2016 is used.
    #[must_use]
    pub fn speaks_two(&self) -> bool {
        self.have_common(Version::TWO) && !self.speaks_wg()
    }

    /// Returns whether the working group's version 2 is used.
    #[must_use]
    pub fn speaks_wg(&self) -> bool {
        self.have_common(Version::TWO_WG)
    }

    /// Returns whether both sides have a version of this project, and none of a program's own, which
    /// clients ask for first.
    fn have_common(&self, version: Version) -> bool {
        let added = self.added.iter().any(|&added| self.version.allows(added));
        self.version.allows(version) && self.versions.contains(version) && !added
    }

    /// Returns all versions that the server accepts.
    #[must_use]
    pub fn accepted(&self) -> Versions {
        let added = self.added.iter();
        added.fold(self.versions.clone(), |all, &version| all.with(version))
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
            && self.hostile.is_none()
            && lose + ignore_request + fail_registration == 0
            && self.timeout >= PATIENT
            && self.client_memory >= AMPLE
            && self.server_memory >= AMPLE
    }
}

/// Returns whether connections share the receives of a device with such queues.
pub(crate) fn are_shared(shares: Option<SharedReceives>) -> bool {
    shares.is_some_and(|shares| shares.when_empty != WhenEmpty::EndsConnection)
}

impl fmt::Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "seed {}: {} server loop{}, {} client{}, workers each: {}, calls each: {}, writes of {} bytes, nconnect {}",
            self.seed,
            self.loops,
            if self.loops == 1 { "" } else { "s" },
            self.clients,
            if self.clients == 1 { "" } else { "s" },
            self.workers,
            self.calls,
            self.slot,
            self.nconnect
        )?;
        writeln!(
            f,
            "time-out {:?}, {}; memory {} and {}; disk {}, write-back {}; interrupt {:?}; \
             grants cut {}",
            self.timeout,
            match self.retry {
                Retry::Hard => "hard".to_owned(),
                Retry::Soft { retransmissions } =>
                    format!("soft with {retransmissions} retransmissions"),
            },
            self.client_memory,
            self.server_memory,
            match self.disk {
                Some(time) => format!("{time:?}"),
                None => "at once".to_owned(),
            },
            self.write_back,
            self.interrupt,
            self.starve
        )?;
        write_costs(f, &self.costs)?;
        write_faults(f, &self.faults)?;
        write_options(f, "requester", &self.requester)?;
        write_options(f, "responder", &self.responder)?;
        writeln!(
            f,
            "versions: {} wanted, {} accepted; sizes change: {}; callbacks: {}",
            self.version,
            self.accepted(),
            self.resizes,
            self.callbacks
        )?;
        write_attributes(f, &self.attributes)?;
        writeln!(
            f,
            "shared receives: client {}, server {}",
            shares_text(self.client_shares),
            shares_text(self.server_shares)
        )?;
        if let Some(hostile) = &self.hostile {
            write!(f, "{hostile}")?;
        }
        for crash in &self.crashes {
            writeln!(
                f,
                "at {:?}: {}, for {:?}",
                crash.at, crash.victim, crash.lasts
            )?;
        }
        writeln!(f, "healed at {:?}", self.heal_at)
    }
}

/// Returns a description of a device's shared receive queues.
fn shares_text(shares: Option<SharedReceives>) -> String {
    let Some(SharedReceives { max_wr, when_empty }) = shares else {
        return "none".to_owned();
    };
    let when_empty = match when_empty {
        WhenEmpty::Waits => "senders wait",
        WhenEmpty::MayEndConnection => "senders wait, but should not have to",
        WhenEmpty::EndsConnection => "an empty queue ends the connection",
    };
    format!("up to {max_wr}, {when_empty}")
}

// All fields are listed below, so that a new one cannot be forgotten there.

/// Writes the times of the simulated devices and their link.
fn write_costs(f: &mut fmt::Formatter<'_>, costs: &Costs) -> fmt::Result {
    let Costs {
        up,
        down,
        noise: Noise {
            jitter,
            loss,
            retransmit,
        },
        header,
        packet,
        post,
        completion,
        register,
        register_page,
        invalidate,
        invalidate_page,
        read_response,
        acknowledged,
        detection,
    } = costs;
    writeln!(
        f,
        "link: delay {:?} up and {:?} down, {} and {} bytes/s, {header} bytes of headers per packet of \
         {packet}; end noticed after {detection:?}",
        up.delay, down.delay, up.rate, down.rate
    )?;
    writeln!(
        f,
        "link: jitter {jitter:?}, {loss} packets in a million lost and sent again after {retransmit:?}"
    )?;
    writeln!(
        f,
        "device: post {post:?}, completion {completion:?}, register {register:?} and \
         {register_page:?} per page, invalidate {invalidate:?} and {invalidate_page:?} per page"
    )?;
    writeln!(
        f,
        "device: RDMA Read answered after {read_response:?}; Sends complete when acknowledged: \
         {acknowledged}"
    )
}

/// Writes the rates and times of the faults that may happen at any moment.
fn write_faults(f: &mut fmt::Formatter<'_>, faults: &Faults) -> fmt::Result {
    let Faults {
        lose,
        ignore_request,
        fail_registration,
        late_arrival,
        late_read,
        late_completion,
        late_wake,
    } = faults;
    writeln!(
        f,
        "faults per million: {lose} connections lost at each step, {ignore_request} connection requests ignored, \
         {fail_registration} registrations failed"
    )?;
    writeln!(
        f,
        "late by at most: arrival {late_arrival:?}, RDMA Read {late_read:?}, completion \
         {late_completion:?}, wake-up {late_wake:?}"
    )
}

/// Writes the options of one end, a line for each group.
fn write_options(f: &mut fmt::Formatter<'_>, end: &str, options: &RdmaOptions) -> fmt::Result {
    let RdmaOptions {
        credits,
        inline_send,
        inline_receive,
        private_data,
        remote_invalidation,
        inbound_reads,
        outbound_reads,
        max_message,
        max_segment,
        short_items,
        callbacks,
        max_receive_size,
        spare_receives,
        group_timeout,
        initial_message_count,
        costs,
        protocols,
        grants,
    } = options;
    writeln!(
        f,
        "{end}: {credits} credits, inline {inline_send} out and {inline_receive} in, private data \
         {private_data}, remote invalidation {remote_invalidation}"
    )?;
    writeln!(
        f,
        "{end}: RDMA Reads {inbound_reads} in and {outbound_reads} out, messages up to \
         {max_message}, segments up to {max_segment}, items up to {short_items} inline"
    )?;
    writeln!(
        f,
        "{end}: callbacks with {} credits, chunks in them {}",
        callbacks.credits, callbacks.chunks
    )?;
    writeln!(
        f,
        "{end}: version 2: features {protocols}, receives up to {max_receive_size}, \
         {spare_receives} spare, groups within {group_timeout:?}"
    )?;
    writeln!(
        f,
        "{end}: messages counted from {initial_message_count}, credits by {grants:?}"
    )?;
    writeln!(
        f,
        "{end}: modes chosen by: delay {:?}, rates {}, {}, {}, message {:?}, registration {:?} \
         and {:?} per page",
        costs.link_delay,
        costs.rate,
        costs.read_rate,
        costs.write_rate,
        costs.per_message,
        costs.registration,
        costs.registration_page
    )?;
    writeln!(
        f,
        "{end}: modes chosen by: invalidation {:?} and {:?} of waiting, interrupt {:?}, \
         turn-around {:?}, copies {}, group {:?}, placement {:?}, call {:?}",
        costs.invalidation,
        costs.invalidation_wait,
        costs.interrupt,
        costs.read_turnaround,
        costs.copy_rate,
        costs.group,
        costs.placement,
        costs.call
    )
}

/// Writes the limits of the simulated devices.
fn write_attributes(f: &mut fmt::Formatter<'_>, attributes: &Attributes) -> fmt::Result {
    let Attributes {
        name,
        max_send_wr,
        max_recv_wr,
        max_gather,
        max_scatter,
        max_region,
        max_inbound_reads,
        max_outbound_reads,
        max_private_data,
        remote_invalidation,
        // Simulated clients and servers do not use them.
        shared_receives: _,
        keeps_credentials: _,
        costs: _,
    } = attributes;
    writeln!(
        f,
        "device {name}: queues of {max_send_wr} and {max_recv_wr}, {max_gather} gather and \
         {max_scatter} scatter entries, regions up to {max_region}"
    )?;
    writeln!(
        f,
        "device {name}: RDMA Reads {max_inbound_reads} in and {max_outbound_reads} out, private \
         data {max_private_data}, remote invalidation {remote_invalidation}"
    )
}
