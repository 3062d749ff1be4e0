//! Derives a plan from a seed.

use std::sync::Arc;
use std::time::Duration;

use rdma::{Attributes, SharedReceives, WhenEmpty};
use rdma_sim::{Costs, Faults, Link, Random, attributes};
use rpc_transport::Retry;
use rpc_transport::rdma::{
    CallbackOptions, Choice, RdmaClientOptions, RdmaOptions, Version, Versions,
};
use rpcrdma_protocols::{Directions, RoundTripFeatures};

use super::hostile::disturb;
use super::{AMPLE, Change, Crash, FeaturesOf, PATIENT, Plan, ROOMY, Swarm, VersionsOf, Victim};
use crate::grants::{ByQueueDepth, Shared};
use crate::measure::Setting;
use crate::pairing::Pairing;

/// The stream of random numbers for versions.
const VERSIONS: u64 = 5;
/// The stream of random numbers for callbacks.
const BACKWARD: u64 = 6;
/// The stream of random numbers for [`Swarm::resizing`].
const RESIZING: u64 = 7;
/// The stream of random numbers for features.
const FEATURES: u64 = 8;
/// The stream of random numbers for versions that are chosen freely, and for message counts.
const FREE_VERSIONS: u64 = 9;
/// The stream of random numbers for shared receives.
const SHARES: u64 = 10;
/// The stream of random numbers for the number of the server's loops, and for their faults.
const LOOPS: u64 = 11;
/// The stream of random numbers for what disturbs honest clients besides faults.
const HOSTILE: u64 = 13;
/// The stream of random numbers for what the server grants.
const GRANTS: u64 = 15;
/// The stream of random numbers for versions of a program's own.
const ADDED: u64 = 16;
/// One seed in this many has a server without the versions of a program's own, so that clients that ask
/// for them have to use another one.
const WITHOUT_ADDED: u64 = 4;
/// One seed in this many has no faults, and nothing that may end a connection.
const CALM: u64 = 8;
/// The maximum length of a chunk of a call or reply, and the minimum length of a segment, bytes.
const LONGEST_ITEM: u32 = 30_000;
const SHORTEST_SEGMENT: u32 = 512;
/// The sets of versions that a server may accept.
const VERSIONS_OF_SERVERS: [&[Version]; 7] = [
    &[Version::ONE],
    &[Version::TWO],
    &[Version::TWO_WG],
    &[Version::ONE, Version::TWO],
    &[Version::ONE, Version::TWO_WG],
    &[Version::TWO, Version::TWO_WG],
    &[Version::ONE, Version::TWO, Version::TWO_WG],
];
/// The maximum number of pieces of a Send.
const LONGEST_GATHER: usize = 8;
/// The maximum size of receive buffers, bytes.
const LONGEST_RECEIVE: u32 = 32 << 10;

impl Swarm {
    /// One seed in this many has disturbers of honest clients, whatever the settings are.
    pub const HOSTILE: u64 = 16;

    /// Derives the plan of a seed. As in swarm testing, most seeds have only a few kinds of faults,
    /// so that rare combinations are not hidden by common ones.
    #[must_use]
    pub fn plan(&self, seed: u64) -> Plan {
        let mut random = Random::new(seed).split(1);
        let calm = random.below(CALM) == 0;
        let clients = random.pick(&[1, 1, 2, 3]);
        let mut plan = Plan {
            seed,
            costs: costs(&mut random),
            trace: None,
            faults: Faults::default(),
            crashes: Vec::new(),
            heal_at: Duration::from_millis(random.between(5, 3_000)),
            loops: 1,
            clients,
            workers: random.between(1, 6) as usize,
            calls: random.between(2, 14) as usize,
            slot: random.pick(&[16, 100, 1000, 4096, 8192, 20_000]),
            nconnect: random.pick(&[1, 1, 1, 2, 3]),
            timeout: PATIENT,
            retry: Retry::Hard,
            requester: options(&mut random, false),
            responder: options(&mut random, true),
            features: Pairing::default(),
            version: Choice::Only(Version::ONE),
            versions: all_versions(),
            added: Vec::new(),
            resizes: false,
            callbacks: false,
            starve: 0,
            attributes: device(&mut random),
            client_shares: None,
            server_shares: None,
            client_memory: AMPLE,
            server_memory: 4 * AMPLE,
            write_back: random.below(3) > 0,
            disk: None,
            interrupt: Duration::from_nanos(random.between(0, 20_000)),
            hostile: None,
        };
        if random.below(2) == 0 {
            plan.disk = Some(Duration::from_micros(random.pick(&[10, 200, 5_000])));
        }
        lateness(&mut plan, &mut random);
        if !calm {
            failures(&mut plan, &mut random);
        }
        // Separate streams keep the other choices of a seed unchanged.
        let two_only = self.resizing || self.features != FeaturesOf::Seed;
        speech(&mut plan, two_only, &mut Random::new(seed).split(VERSIONS));
        if !two_only {
            let random = &mut Random::new(seed).split(FREE_VERSIONS);
            free_versions(&mut plan, self.versions, random);
        }
        backward(&mut plan, &mut Random::new(seed).split(BACKWARD));
        let mut random = Random::new(seed).split(FEATURES);
        round_trips(&mut plan, self.features, &mut random);
        let random = &mut Random::new(seed).split(SHARES);
        plan.client_shares = shares(random);
        plan.server_shares = shares(random);
        loops(&mut plan, calm, &mut Random::new(seed).split(LOOPS));
        match Random::new(seed).split(GRANTS).below(4) {
            0 => plan.responder.grants = Arc::new(ByQueueDepth),
            1 => plan.responder.grants = Arc::new(Shared::default()),
            _ => {}
        }
        if self.resizing {
            plan.resizes = true;
            backward(&mut plan, &mut Random::new(seed).split(RESIZING));
        }
        if self.hostile || seed % Self::HOSTILE == Self::HOSTILE - 2 {
            disturb(&mut plan, &mut Random::new(seed).split(HOSTILE));
        }
        if let Some(Change(change)) = self.change {
            change(&mut plan);
        }
        plan
    }
}

impl Plan {
    /// Changes the link, the costs and the interrupts, which are those of the setting. Time-outs of calls
    /// grow with them.
    pub fn change_costs(&mut self, change: impl FnOnce(&mut Setting)) {
        let before = slowest(self);
        let mut setting = Setting {
            costs: self.costs.clone(),
            interrupt: self.interrupt,
            ..Setting::default()
        };
        change(&mut setting);
        (self.costs, self.interrupt) = (setting.costs, setting.interrupt);
        if self.timeout < PATIENT {
            self.timeout += slowest(self).saturating_sub(before);
        }
    }

    /// Adds versions of a program's own, which the protocols of both sides have to know. Most servers
    /// accept them.
    pub fn add_versions(&mut self, added: &[Version]) {
        let mut random = Random::new(self.seed).split(ADDED);
        let asks = added
            .iter()
            .any(|&added| self.version == Choice::Only(added));
        if asks || random.below(WITHOUT_ADDED) > 0 {
            self.added.extend(added);
        }
    }
}

/// Returns the times of devices and their link.
pub(crate) fn costs(random: &mut Random) -> Costs {
    let link = Link {
        delay: Duration::from_nanos(random.pick(&[300, 5_000, 100_000, 2_000_000])),
        rate: random.pick(&[100_000_000, 1_250_000_000, 12_500_000_000]),
    };
    Costs {
        up: link,
        down: link,
        acknowledged: random.below(2) == 0,
        detection: Duration::from_millis(random.pick(&[1, 50, 500])),
        post: Duration::from_nanos(random.between(0, 500)),
        completion: Duration::from_nanos(random.between(0, 500)),
        ..Costs::default()
    }
}

/// Returns options of one side, without extensions.
pub(crate) fn options(random: &mut Random, server: bool) -> RdmaOptions {
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
        ..RdmaClientOptions::new(rpcrdma_protocols::base()).common
    }
}

/// Chooses the features for fewer round trips of each end.
fn round_trips(plan: &mut Plan, wanted: FeaturesOf, random: &mut Random) {
    plan.requester.spare_receives = random.pick(&[0, 3, 32]);
    plan.responder.spare_receives = random.pick(&[0, 3, 32]);
    let mut some = || {
        let mut ways = || Directions {
            send: random.below(3) > 0,
            receive: random.below(3) > 0,
        };
        RoundTripFeatures {
            ddp: ways(),
            cont: ways(),
        }
    };
    let pairing = match wanted {
        FeaturesOf::Only(pairing) => pairing,
        FeaturesOf::Seed if Speech::of(plan.seed) == Speech::Halves => Pairing {
            server: some(),
            client: some(),
        },
        FeaturesOf::Seed | FeaturesOf::Turns => Pairing::nth(plan.seed),
    };
    plan.features = pairing;
    plan.requester.protocols = rpcrdma_protocols::standard(&pairing.client);
    plan.responder.protocols = rpcrdma_protocols::standard(&pairing.server);
}

/// Returns the limits of devices.
pub(crate) fn device(random: &mut Random) -> Attributes {
    Attributes {
        max_send_wr: random.pick(&[2, 3, 8, 256]),
        // Six receives are for messages that take no credit. The smallest value leaves one credit,
        // and none for callbacks.
        max_recv_wr: random.pick(&[7, 9, ROOMY, ROOMY, ROOMY]),
        max_gather: random.pick(&[1, 2, 3, 8]),
        max_inbound_reads: random.pick(&[1, 4, 32]),
        max_outbound_reads: random.pick(&[1, 4, 32]),
        ..attributes()
    }
}

/// Chooses the shared receive queues of a device. The smallest have just the receives that must
/// be posted, so that nearly every message of a busy host waits for one.
fn shares(random: &mut Random) -> Option<SharedReceives> {
    let when_empty = random.pick(&[
        None,
        Some(WhenEmpty::EndsConnection),
        Some(WhenEmpty::MayEndConnection),
        Some(WhenEmpty::Waits),
    ]);
    let max_wr = random.pick(&[4, 5, 16, 4096]);
    when_empty.map(|when_empty| SharedReceives { max_wr, when_empty })
}

/// Chooses the number of the server's loops, and faults that only one of them has.
fn loops(plan: &mut Plan, calm: bool, random: &mut Random) {
    plan.loops = random.pick(&[1, 1, 2, 2, 3, 4]);
    if plan.loops == 1 || calm {
        return;
    }
    for crash in &mut plan.crashes {
        if crash.victim == Victim::ServerPause && random.below(2) == 0 {
            crash.victim = Victim::LoopPause(random.below(plan.loops as u64) as usize);
        }
    }
    if random.below(2) == 0 {
        for _ in 0..random.between(1, 4) {
            let victim = Victim::LoopPause(random.below(plan.loops as u64) as usize);
            plan.crashes.push(crash(victim, plan.heal_at, random));
        }
        plan.crashes.sort_by_key(|crash| crash.at);
    }
}

/// The version and features of a seed's connections. Seeds take turns, so that each combination of
/// features runs equally often.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Speech {
    /// Version 1, even if version 2 was wanted.
    One,
    /// Version 2 with features that a side may only send or only receive.
    Halves,
    /// Version 2 with one of the sixteen combinations.
    Two,
}

impl Speech {
    fn of(seed: u64) -> Self {
        match seed / Pairing::COUNT as u64 % 4 {
            0 => Self::One,
            1 => Self::Halves,
            _ => Self::Two,
        }
    }
}

/// Returns all versions of this project.
fn all_versions() -> Versions {
    let set = Versions::only(Version::ONE).with(Version::TWO);
    set.with(Version::TWO_WG)
}

/// Chooses the versions. There is always a common one, as nothing would happen otherwise.
fn speech(plan: &mut Plan, two_only: bool, random: &mut Random) {
    let (one, two) = (Version::ONE, Version::TWO);
    // Servers of 2016, which such clients ask for the working group's version first.
    let of_2016 = Versions::only(one).with(two);
    (plan.version, plan.versions) = match Speech::of(plan.seed) {
        Speech::One if !two_only => random.pick(&[
            (Choice::Only(one), Versions::only(one)),
            (Choice::Only(one), all_versions()),
            (Choice::Auto, Versions::only(one)),
        ]),
        _ => random.pick(&[
            (Choice::Auto, of_2016.clone()),
            (Choice::Auto, of_2016),
            (Choice::Only(two), all_versions()),
        ]),
    };
    plan.resizes = random.below(2) == 0;
}

/// Chooses freely among all versions, if the seed is to do so.
fn free_versions(plan: &mut Plan, wanted: VersionsOf, random: &mut Random) {
    let half_of_version_1 = random.below(2) == 0 && Speech::of(plan.seed) == Speech::One;
    let wg = Choice::Only(Version::TWO_WG);
    plan.version = match wanted {
        VersionsOf::Seed if !half_of_version_1 => return,
        VersionsOf::Seed => random.pick(&[Choice::Only(Version::ONE), wg]),
        VersionsOf::Free => {
            let (one, two) = (Choice::Only(Version::ONE), Choice::Only(Version::TWO));
            random.pick(&[one, two, Choice::Auto, wg, wg, wg])
        }
        VersionsOf::Only(version) => Choice::Only(version),
    };
    let is_added = matches!(plan.version, Choice::Only(only) if !all_versions().contains(only));
    let common = VERSIONS_OF_SERVERS
        .into_iter()
        // Of a program's own version there is no set. The server accepts that beside any of them.
        .filter(|set| is_added || set.iter().any(|&version| plan.version.allows(version)))
        .map(|set| {
            let more = set[1..].iter();
            more.fold(Versions::only(set[0]), |set, &version| set.with(version))
        });
    plan.versions = random.pick(&common.collect::<Vec<_>>());
    // Half of the seeds see the counts of messages wrap. Each end sends a few messages before.
    let before_the_wrap = random.pick(&[0, 0, 0, 1, 5, 40]);
    let count = 0u32.wrapping_sub(before_the_wrap);
    plan.requester.initial_message_count = count;
    plan.responder.initial_message_count = count;
}

/// Chooses the parameters of calls from server to client.
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

/// Chooses delays that real devices and hosts have in normal operation.
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

/// Returns the maximum duration of a call without faults. With a shorter time-out, retransmissions
/// would never end.
fn slowest(plan: &Plan) -> Duration {
    let late = &plan.faults;
    let noise = &plan.costs.noise;
    // More than one loss in a row is rare.
    let lost = match noise.loss {
        0 => Duration::ZERO,
        _ => noise.retransmit,
    };
    let step = plan.costs.round_trip()
        + (noise.jitter + lost + late.late_arrival + late.late_completion) * 2
        + late.late_read
        + late.late_wake
        + plan.interrupt
        + plan.disk.unwrap_or_default();
    // One RDMA Read after the other, in segments of minimum length, for each call before.
    let reads = LONGEST_ITEM.div_ceil(SHORTEST_SEGMENT);
    step * reads * plan.workers as u32
}

fn failures(plan: &mut Plan, random: &mut Random) {
    let mut rate = |of: &[u32]| match random.below(2) {
        0 => 0,
        _ => random.pick(of),
    };
    plan.faults.lose = rate(&[100, 1_000, 8_000]);
    plan.faults.ignore_request = rate(&[10_000, 300_000]);
    plan.faults.fail_registration = rate(&[1_000, 50_000]);
    plan.starve = rate(&[50_000, 700_000]);
    if random.below(3) == 0 {
        // Memory for the longest call but not for many, or not even for that.
        plan.client_memory = random.between(16, 256) as usize * 1024;
        // A device that cannot gather has the pieces of Sends copied together. Without memory for
        // that, the connection ends again and again.
        plan.attributes.max_gather = LONGEST_GATHER;
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
    // Most of the work is done at the beginning, so most faults happen then.
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
            plan.crashes.push(crash(victim, plan.heal_at, random));
        }
    }
    plan.crashes.sort_by_key(|crash| crash.at);
}

/// Chooses when a fault begins, and how long it lasts.
fn crash(victim: Victim, heal_at: Duration, random: &mut Random) -> Crash {
    let span = random.pick(&[1_000_000, 20_000_000, 500_000_000]);
    Crash {
        at: random.duration(Duration::from_nanos(span).min(heal_at)),
        victim,
        lasts: Duration::from_micros(random.pick(&[100, 10_000, 300_000, 10_000_000])),
    }
}
