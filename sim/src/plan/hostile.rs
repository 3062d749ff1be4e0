//! Disturbances of honest clients other than faults: an administrator who changes the exports, a
//! client that takes all connections and does nothing, and one that floods what all clients share.

use std::fmt;
use std::time::Duration;

use rdma_sim::{Faults, Random};
use rpc_transport::{Retry, ServerOptions};

use super::{AMPLE, Crash, PATIENT, Plan, Victim};

/// The directory trees of the host that can be exported.
pub(crate) const TREES: usize = 4;
/// The maximum numbers of loops and of honest clients: a fabric has few hosts.
const MOST_LOOPS: usize = 2;
const MOST_CLIENTS: usize = 2;
/// The maximum number of workers of an honest client. The few entries of the reply cache hold the
/// replies of all calls that the honest clients can have outstanding.
const MOST_WORKERS: usize = 4;
/// The number of replies that the reply cache keeps, if somebody floods it.
const REPLIES: usize = 128;
/// The calls of a burst that is to push all other replies out of the cache.
const REPLIES_BURST: usize = 160;
/// The calls of a burst of data, and the number of connections of a burst of connections.
const DATA_BURST: usize = 24;
const CONNECTIONS_BURST: usize = 12;
/// The maximum number of credits of a connection, if there are many connections.
const MOST_CREDITS: u32 = 8;
/// The time in which the administrator changes exports.
const ADMINISTERED: Duration = Duration::from_millis(200);
/// The time within which floods come and connections are lost meanwhile.
const FLOODED: Duration = Duration::from_millis(20);
/// The maximum time that passes from the start until honest clients arrive.
const ARRIVAL: Duration = Duration::from_millis(100);

/// A change of the exports. The server is restarted for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExportChange {
    /// The changed export shows this directory tree from now on. If it was removed, it is there again.
    Repoint(usize),
    /// The two exports exchange their trees.
    Swap,
    /// The changed export is removed.
    Remove,
    /// The changed export becomes read-only, or writable again.
    ReadOnly,
    /// The key of file handles is replaced.
    Key,
}

impl fmt::Display for ExportChange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Repoint(tree) => write!(f, "the export now shows tree {tree}"),
            Self::Swap => f.write_str("the exports exchange their trees"),
            Self::Remove => f.write_str("the export is removed"),
            Self::ReadOnly => f.write_str("the export becomes read-only or writable"),
            Self::Key => f.write_str("the handle key is replaced"),
        }
    }
}

/// The kind of calls or connections of a flood.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FloodOf {
    /// Calls of another user that fail, whose replies a server keeps.
    Refusals,
    /// Calls of another user that succeed, whose replies a server keeps.
    Changes,
    /// Long WRITEs, as many at once as the credits allow.
    Data,
    /// New connections.
    Connections,
}

/// A client that floods what all clients share, in bursts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Flood {
    /// The content.
    pub of: FloodOf,
    /// The number of calls or connections of a burst.
    pub count: usize,
    /// The beginnings of the bursts.
    pub bursts: Vec<Duration>,
}

/// Everything besides faults that disturbs honest clients, and the limits of a server that is small
/// enough to be disturbed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hostile {
    /// Whether there is a client that holds handles of the exports that the administrator changes.
    /// The changes are among [`Plan::crashes`].
    pub tenant: bool,
    /// Whether there is a client that restarts with the XIDs that it had before. Its restarts are among
    /// [`Plan::crashes`].
    pub repeating: bool,
    /// The number of connections of a client that only sends NULL, or 0 if there is none.
    pub quiet: usize,
    /// The client that floods.
    pub flood: Option<Flood>,
    /// The maximum time until honest clients arrive.
    pub arrival: Duration,
    /// The server's limit on connections.
    pub connections: usize,
    /// The server's limit on cached replies.
    pub replies: usize,
    /// The limit on jobs of each loop.
    pub jobs: usize,
}

/// The part of a client in a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    /// An honest client whose files nobody else changes.
    Worker,
    /// See [`Hostile::tenant`].
    Tenant,
    /// See [`Hostile::repeating`].
    Repeating,
    /// See [`Hostile::quiet`].
    Quiet,
    /// See [`Hostile::flood`].
    Flood,
}

impl Role {
    /// Returns whether the run waits for such a client.
    pub(crate) fn is_honest(self) -> bool {
        matches!(self, Self::Worker | Self::Tenant | Self::Repeating)
    }
}

impl Plan {
    /// Returns the parts of all clients, in the order of their hosts.
    pub(crate) fn roles(&self) -> Vec<Role> {
        let mut roles = vec![Role::Worker; self.clients];
        if let Some(hostile) = &self.hostile {
            let guests = [
                (hostile.tenant, Role::Tenant),
                (hostile.repeating, Role::Repeating),
                (hostile.quiet > 0, Role::Quiet),
                (hostile.flood.is_some(), Role::Flood),
            ];
            roles.extend(guests.iter().filter(|guest| guest.0).map(|guest| guest.1));
        }
        roles
    }

    /// Returns the number of connections that a client in this part makes.
    pub(crate) fn connections_of(&self, role: Role) -> usize {
        match (role, &self.hostile) {
            (Role::Quiet, Some(hostile)) => hostile.quiet,
            (Role::Flood, _) => 1,
            _ => self.nconnect,
        }
    }

    /// Returns the time-out of establishing a connection. A server that restarts does not answer, and
    /// other clients are to be the reason why one has to wait for long.
    pub(crate) fn connect_timeout(&self) -> Duration {
        match self.hostile {
            Some(_) => Duration::from_millis(300),
            None => Duration::from_secs(5),
        }
    }

    /// Returns whether honest clients are disturbed by others alone, and by lost connections and
    /// restarts: then their calls have to end soon.
    pub(crate) fn is_spared(&self) -> bool {
        let Faults {
            lose,
            ignore_request,
            fail_registration,
            ..
        } = self.faults;
        let short = |crash: &Crash| match crash.victim {
            Victim::Connection | Victim::Administrator(_) => true,
            Victim::Client(client) | Victim::ClientPause(client) => client >= self.clients,
            _ => false,
        };
        self.hostile.is_some()
            && lose + ignore_request + fail_registration == 0
            && self.crashes.iter().all(short)
            && self.timeout >= PATIENT
            && self.retry == Retry::Hard
    }
}

/// Chooses what disturbs the honest clients of a plan.
pub(super) fn disturb(plan: &mut Plan, random: &mut Random) {
    make_room(plan);
    // In half of the seeds nothing else happens, so that the effect on others can be told.
    if random.below(2) == 0 {
        spare(plan);
    }
    let defaults = ServerOptions::default();
    let mut hostile = Hostile {
        tenant: false,
        repeating: false,
        quiet: 0,
        flood: None,
        arrival: Duration::ZERO,
        connections: defaults.max_connections,
        replies: defaults.reply_cache_entries,
        jobs: defaults.max_jobs,
    };
    // At least one kind.
    let [one, two, three, four] = loop {
        let kinds = [3, 3, 2, 5].map(|part| random.below(part) == 0);
        if kinds.contains(&true) {
            break kinds;
        }
    };
    if one {
        hostile.tenant = true;
        administer(plan, random);
    }
    if two {
        plan.nconnect = 1;
        plan.responder.credits = plan.responder.credits.min(MOST_CREDITS);
        hostile.quiet = random.between(4, 12) as usize;
        hostile.arrival = ARRIVAL;
        // The honest ones would have room by themselves, with as many connections that are lost and
        // have not ended yet.
        hostile.connections = hostile.quiet;
    }
    if three {
        hostile.flood = Some(flood(plan, &mut hostile, random));
    }
    let is_stopped = |crash: &Crash| {
        matches!(
            crash.victim,
            Victim::ServerPause | Victim::LoopPause(_) | Victim::ServerMemory
        )
    };
    // A server that stops may execute a call long after its client has restarted.
    if four && !plan.crashes.iter().any(is_stopped) {
        hostile.repeating = true;
    }
    plan.hostile = Some(hostile);
    restarts(plan, random);
    stops(plan, random);
    plan.crashes.sort_by_key(|crash| crash.at);
    let last = plan.crashes.iter().map(|crash| crash.at + crash.lasts);
    let last = last.max().unwrap_or_default();
    plan.heal_at = plan.heal_at.max(last);
}

/// Makes room for further hosts, and limits what the honest clients need.
fn make_room(plan: &mut Plan) {
    plan.loops = plan.loops.min(MOST_LOOPS);
    plan.clients = plan.clients.min(MOST_CLIENTS);
    plan.workers = plan.workers.min(MOST_WORKERS);
    let (loops, clients) = (plan.loops, plan.clients);
    plan.crashes.retain(|crash| match crash.victim {
        Victim::Client(client) | Victim::ClientPause(client) => client < clients,
        Victim::LoopPause(at) => at < loops,
        _ => true,
    });
}

/// Takes all faults away but delays.
fn spare(plan: &mut Plan) {
    plan.faults = Faults {
        lose: 0,
        ignore_request: 0,
        fail_registration: 0,
        ..plan.faults.clone()
    };
    plan.crashes.clear();
    plan.starve = 0;
    plan.timeout = PATIENT;
    plan.retry = Retry::Hard;
    plan.client_memory = AMPLE;
    plan.server_memory = 4 * AMPLE;
}

/// Chooses the changes of the exports.
fn administer(plan: &mut Plan, random: &mut Random) {
    for _ in 0..random.between(1, 5) {
        let tree = random.below(TREES as u64) as usize;
        let change = random.pick(&[
            ExportChange::Repoint(tree),
            ExportChange::Repoint(tree),
            ExportChange::Swap,
            ExportChange::Remove,
            ExportChange::ReadOnly,
            ExportChange::Key,
        ]);
        plan.crashes.push(Crash {
            at: random.duration(ADMINISTERED),
            victim: Victim::Administrator(change),
            lasts: Duration::from_micros(random.pick(&[100, 10_000, 100_000])),
        });
    }
}

/// Chooses a flood, and makes the server small enough for it.
fn flood(plan: &mut Plan, hostile: &mut Hostile, random: &mut Random) -> Flood {
    let of = random.pick(&[
        FloodOf::Refusals,
        FloodOf::Refusals,
        FloodOf::Changes,
        FloodOf::Data,
        FloodOf::Connections,
    ]);
    let bursts = (0..random.between(1, 3)).map(|_| random.duration(FLOODED));
    let bursts: Vec<Duration> = bursts.collect();
    let count = match of {
        FloodOf::Refusals | FloodOf::Changes => {
            plan.nconnect = 1;
            hostile.replies = REPLIES;
            // Clients whose connections are lost meanwhile ask for their replies again.
            for at in &bursts {
                for _ in 0..3 {
                    plan.crashes.push(Crash {
                        at: *at + random.duration(Duration::from_millis(1)),
                        victim: Victim::Connection,
                        lasts: Duration::ZERO,
                    });
                }
            }
            REPLIES_BURST
        }
        FloodOf::Data => {
            plan.server_memory = plan.server_memory.min(AMPLE);
            hostile.jobs = random.pick(&[2, 8, hostile.jobs]);
            DATA_BURST
        }
        FloodOf::Connections => {
            plan.nconnect = 1;
            let honest = plan.clients + usize::from(hostile.tenant);
            hostile.connections = hostile.connections.min(2 * honest + 4);
            CONNECTIONS_BURST
        }
    };
    Flood { of, count, bursts }
}

/// Chooses the restarts of the client that has the same XIDs again.
fn restarts(plan: &mut Plan, random: &mut Random) {
    let at = plan
        .roles()
        .iter()
        .position(|role| *role == Role::Repeating);
    let Some(client) = at else { return };
    for _ in 0..random.between(1, 3) {
        plan.crashes.push(Crash {
            at: random.duration(ADMINISTERED),
            victim: Victim::Client(client),
            lasts: Duration::from_millis(random.between(30, 60)),
        });
    }
}

/// Chooses whether the client that floods stops in a burst, so that it takes no more replies.
fn stops(plan: &mut Plan, random: &mut Random) {
    let at = plan.roles().iter().position(|role| *role == Role::Flood);
    let flood = plan
        .hostile
        .as_ref()
        .and_then(|hostile| hostile.flood.as_ref());
    let (Some(client), Some(flood)) = (at, flood) else {
        return;
    };
    let begins = random.pick(&flood.bursts);
    if random.below(3) == 0 {
        plan.crashes.push(Crash {
            at: begins + random.duration(Duration::from_millis(1)),
            victim: Victim::ClientPause(client),
            lasts: Duration::from_secs(10),
        });
    }
}

impl fmt::Display for Hostile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            tenant,
            repeating,
            quiet,
            flood,
            arrival,
            connections,
            replies,
            jobs,
        } = self;
        writeln!(
            f,
            "the server takes {connections} connections, {jobs} jobs, and keeps {replies} replies; \
             clients arrive within {arrival:?}"
        )?;
        if *tenant {
            writeln!(f, "a client holds handles of exports that are changed")?;
        }
        if *repeating {
            writeln!(f, "a client restarts with the XIDs that it had before")?;
        }
        if *quiet > 0 {
            writeln!(f, "a client has {quiet} connections and sends only NULL")?;
        }
        let Some(Flood { of, count, bursts }) = flood else {
            return Ok(());
        };
        let of = match of {
            FloodOf::Refusals => "calls that fail",
            FloodOf::Changes => "calls that change something",
            FloodOf::Data => "long WRITEs",
            FloodOf::Connections => "new connections",
        };
        writeln!(
            f,
            "a client floods the server with {count} {of} at {bursts:?}"
        )
    }
}
