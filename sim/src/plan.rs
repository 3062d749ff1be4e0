//! What a seed chooses: hosts, options, work, and which faults are on and how strong.

use std::fmt;
use std::time::Duration;

use rpc_transport::Retry;
use rpc_transport::rdma::{
    CallbackOptions, Choice, RdmaClientOptions, RdmaOptions, RoundTripFeatures, Version, Versions,
    Ways,
};
use verbs::Attributes;
use verbs::sim::{Costs, Faults, Random, attributes};

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

/// The random numbers that versions are chosen with.
const VERSIONS: u64 = 5;
/// Those that callbacks are chosen with.
const BACKWARD: u64 = 6;
/// Those for [`Plan::resizing`].
const RESIZING: u64 = 7;
/// Those that features are chosen with.
const FEATURES: u64 = 8;
/// Every so many seeds nothing at all goes wrong, and nothing may end a connection.
const CALM: u64 = 8;
/// A time-out that nothing reaches unless something is wrong.
const PATIENT: Duration = Duration::from_secs(60);
/// Longest chunk of a call or reply, and shortest segment of one, bytes.
const LONGEST_ITEM: u32 = 30_000;
const SHORTEST_SEGMENT: u32 = 512;
/// Receives can be made as long as this, bytes.
const LONGEST_RECEIVE: u32 = 32 << 10;
/// Memory that nobody runs out of, bytes.
const AMPLE: usize = 4 << 20;

impl Plan {
    /// What `seed` chooses. Swarm testing: most seeds have a few kinds of faults only, so that
    /// rare combinations are not drowned by common ones.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        let mut random = Random::new(seed).split(1);
        let calm = random.below(CALM) == 0;
        let clients = random.pick(&[1, 1, 2, 3]);
        let mut plan = Self {
            seed,
            costs: costs(&mut random),
            faults: Faults::default(),
            crashes: Vec::new(),
            heal_at: Duration::from_millis(random.between(5, 3_000)),
            clients,
            workers: random.between(1, 6) as usize,
            calls: random.between(4, 24) as usize,
            slot: random.pick(&[16, 100, 1000, 4096, 8192, 20_000]),
            nconnect: random.pick(&[1, 1, 1, 2, 3]),
            timeout: PATIENT,
            retry: Retry::Hard,
            requester: options(&mut random, false),
            responder: options(&mut random, true),
            version: Choice::Only(Version::One),
            versions: Versions::default(),
            resizes: false,
            callbacks: false,
            attributes: device(&mut random),
            client_memory: AMPLE,
            server_memory: 4 * AMPLE,
            write_back: random.below(3) > 0,
            disk: None,
            interrupt: Duration::from_nanos(random.between(0, 20_000)),
        };
        if random.below(2) == 0 {
            plan.disk = Some(Duration::from_micros(random.pick(&[10, 200, 5_000])));
        }
        lateness(&mut plan, &mut random);
        if !calm {
            failures(&mut plan, &mut random);
        }
        // Apart, so that whatever else a seed chooses stays what it was.
        speech(&mut plan, &mut Random::new(seed).split(VERSIONS));
        backward(&mut plan, &mut Random::new(seed).split(BACKWARD));
        round_trips(&mut plan, &mut Random::new(seed).split(FEATURES));
        plan
    }

    /// The same, but for version 2 and receives that change all the time, with callbacks.
    #[must_use]
    pub fn resizing(seed: u64) -> Self {
        let mut plan = Self::new(seed);
        let mut random = Random::new(seed).split(RESIZING);
        plan.version = random.pick(&[Choice::Auto, Choice::Only(Version::Two)]);
        plan.versions = Versions::default();
        plan.resizes = true;
        backward(&mut plan, &mut random);
        plan
    }

    /// Whether clients take calls, as far as their server's upper layer knows: in version 2 the
    /// transport knows, too.
    #[must_use]
    pub fn takes_callbacks(&self) -> bool {
        self.callbacks && (self.requester.callbacks.credits > 0 || self.speaks_only_two())
    }

    fn speaks_only_two(&self) -> bool {
        self.version == Choice::Only(Version::Two)
    }

    /// Whether version 2 is spoken.
    #[must_use]
    pub fn speaks_two(&self) -> bool {
        self.version.allows(Version::Two) && self.versions.contains(Version::Two)
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

fn costs(random: &mut Random) -> Costs {
    Costs {
        delay: Duration::from_nanos(random.pick(&[300, 5_000, 100_000, 2_000_000])),
        rate: random.pick(&[100_000_000, 1_250_000_000, 12_500_000_000]),
        acknowledged: random.below(2) == 0,
        detection: Duration::from_millis(random.pick(&[1, 50, 500])),
        post: Duration::from_nanos(random.between(0, 500)),
        completion: Duration::from_nanos(random.between(0, 500)),
        ..Costs::default()
    }
}

fn options(random: &mut Random, server: bool) -> RdmaOptions {
    let inline = random.pick(&[1024, 4096, 4096, 8192]);
    RdmaOptions {
        credits: random.pick(&[1, 2, 3, 8, 32]),
        inline_send: inline,
        inline_receive: random.pick(&[1024, inline, inline]),
        private_data: random.below(4) > 0,
        remote_invalidation: random.below(3) > 0,
        inbound_reads: if server { 1 } else { random.pick(&[1, 2, 16]) },
        outbound_reads: if server { random.pick(&[1, 2, 16]) } else { 1 },
        max_message: (4 << 20) + (64 << 10),
        max_segment: random.pick(&[512, 4096, 1 << 30]),
        callbacks: CallbackOptions::default(),
        max_receive_size: LONGEST_RECEIVE,
        ..RdmaClientOptions::default().common
    }
}

/// What either end does to spare round trips: any part of it, and nothing every fourth time.
fn round_trips(plan: &mut Plan, random: &mut Random) {
    for end in [&mut plan.requester, &mut plan.responder] {
        end.spare_receives = random.pick(&[0, 3, 32]);
        if random.below(4) == 0 {
            continue;
        }
        let mut ways = || Ways {
            send: random.below(3) > 0,
            receive: random.below(3) > 0,
        };
        end.features = RoundTripFeatures {
            ddp: ways(),
            cont: ways(),
        };
    }
}

fn device(random: &mut Random) -> Attributes {
    Attributes {
        max_send_wr: random.pick(&[2, 3, 8, 256]),
        max_gather: random.pick(&[1, 2, 3, 8]),
        max_inbound_reads: random.pick(&[1, 4, 32]),
        max_outbound_reads: random.pick(&[1, 4, 32]),
        ..attributes()
    }
}

/// Who speaks what. There is a version in common: where there is none, nothing happens.
fn speech(plan: &mut Plan, random: &mut Random) {
    let (one, two) = (Version::One, Version::Two);
    (plan.version, plan.versions) = random.pick(&[
        (Choice::Only(one), Versions::only(one)),
        (Choice::Only(one), Versions::default()),
        (Choice::Auto, Versions::only(one)),
        (Choice::Auto, Versions::default()),
        (Choice::Auto, Versions::default()),
        (Choice::Only(two), Versions::default()),
    ]);
    plan.resizes = random.below(2) == 0;
}

/// Calls from server to client.
fn backward(plan: &mut Plan, random: &mut Random) {
    plan.callbacks = random.below(2) == 0;
    if !plan.callbacks {
        return;
    }
    let chunks = random.below(2) == 0;
    plan.requester.callbacks = CallbackOptions {
        credits: random.pick(&[0, 1, 2, 5, 16]),
        chunks,
    };
    plan.responder.callbacks = CallbackOptions {
        credits: random.pick(&[1, 2, 4, 16]),
        chunks,
    };
}

/// What real devices and hosts do without anything being wrong.
fn lateness(plan: &mut Plan, random: &mut Random) {
    let mut late = |most: u64| match random.below(2) {
        0 => Duration::ZERO,
        _ => Duration::from_nanos(random.between(1, most)),
    };
    plan.faults.late_arrival = late(200_000);
    plan.faults.late_read = late(500_000);
    plan.faults.late_completion = late(100_000);
    plan.faults.late_wake = late(1_000_000);
}

/// How long a call can take without anything being wrong: a time-out shorter than that would be
/// for ever.
fn slowest(plan: &Plan) -> Duration {
    let late = &plan.faults;
    let step = (plan.costs.delay + late.late_arrival + late.late_completion) * 2
        + late.late_read
        + late.late_wake
        + plan.interrupt
        + plan.disk.unwrap_or_default();
    // One RDMA Read after the other, in the shortest segments there are, for each call before.
    let reads = LONGEST_ITEM.div_ceil(SHORTEST_SEGMENT);
    step * reads * plan.workers as u32
}

fn failures(plan: &mut Plan, random: &mut Random) {
    let mut rate = |of: &[u32]| match random.below(2) {
        0 => 0,
        _ => random.pick(of),
    };
    plan.faults.lose = rate(&[500, 5_000, 30_000]);
    plan.faults.ignore_request = rate(&[10_000, 300_000]);
    plan.faults.fail_registration = rate(&[1_000, 50_000]);
    if random.below(3) == 0 {
        // Enough for the longest call, and not for many.
        plan.client_memory = random.between(160, 512) as usize * 1024;
    }
    if random.below(3) == 0 {
        plan.server_memory = random.between(64, 512) as usize * 1024;
    }
    if random.below(3) == 0 {
        plan.timeout = Duration::from_millis(random.between(2, 400));
        plan.timeout += slowest(plan);
        if random.below(3) == 0 {
            let retransmissions = random.between(0, 4) as u32;
            plan.retry = Retry::Soft { retransmissions };
        }
    }
    // Most of the work is done in the first moments; so most of what goes wrong goes wrong then.
    let kinds = [
        Victim::ServerProcess,
        Victim::ServerPower,
        Victim::Client(random.below(plan.clients as u64) as usize),
        Victim::ClientPause(random.below(plan.clients as u64) as usize),
        Victim::ServerPause,
        Victim::ServerMemory,
        Victim::Connection,
    ];
    for victim in kinds {
        if random.below(4) > 0 {
            continue;
        }
        for _ in 0..random.between(1, 3) {
            let span = random.pick(&[1_000_000, 20_000_000, 500_000_000]);
            plan.crashes.push(Crash {
                at: random.duration(Duration::from_nanos(span).min(plan.heal_at)),
                victim,
                lasts: Duration::from_micros(random.pick(&[100, 10_000, 300_000, 10_000_000])),
            });
        }
    }
    plan.crashes.sort_by_key(|crash| crash.at);
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
            "time-out {:?}, {:?}; memory {} and {}; disk {:?}, write-back {}; interrupt {:?}",
            self.timeout,
            self.retry,
            self.client_memory,
            self.server_memory,
            self.disk,
            self.write_back,
            self.interrupt
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
