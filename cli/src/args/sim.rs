//! Options of `sim`.

use std::ops::Range;
use std::sync::Arc;

use clap::Args;
use rpc_transport::rdma::{RdmaOptions, Version};
use rpcrdma_compare::{change_simulation, check_for_simulation};
use rpcrdma_setup::Failure;
use rpcrdma_setup::catalog::{Catalog, Features};
use rpcrdma_sim::{Change, FeaturesOf, Plan, Swarm, VersionsOf};

use super::tuning::{self, TuningArgs};
use super::{CaptureArgs, TraceArgs};
use crate::granted::{Granted, Recorded};

/// Run clients and servers in a simulation, with faults derived from a seed, and check them.
#[derive(Debug, Args)]
#[command(after_help = "\
Each seed is a run of its own: a server and up to three clients, with NFS and a file system in
memory, connected by a simulated network on a virtual clock. The seed determines the hosts, their
options, the workload and the faults. The same seed gives the same run, byte for byte, on any
machine.

Of 64 consecutive seeds starting at a multiple of 64, the first 16 use version 1 or, some of
them, version 2 of the working group (2wg), the next 16 use version 2 with features that a side
may only send or only receive, and the last 32 use version 2 with each of the sixteen
combinations of features twice (each side has ddp, cont, both or none).

One seed in sixteen is hostile, and every one with --hostile: an administrator re-points, removes or
changes exports while clients hold handles; a client takes every connection that the server has and
sends only NULL; another one floods the server with calls, data or connections; or one restarts with
the XIDs that it had before. Old handles must reach nothing but what they were issued for, honest
clients must get in and be answered in time, and no call of theirs may be executed twice.

With --relays, clients reach the server through two gateways, each hop in a version of its own or,
at the clients and at the server, over TCP. What arrives at either end must be what the other one
sent, XIDs included, and nothing may arrive twice or on another client's connection: calls and
replies, COMPOUNDs with several items, and calls from the server to clients. Replies that the server
gave before it closed a connection must reach the client. All calls must be answered in the end,
also if a gateway has little memory, or none for a while, and nothing may be left of connections
that have ended.

At every step, the simulation checks that no peer is overrun, that memory is accessed only as it
was offered and only during its call, that credits are not exceeded, and that nothing stands
between the parts of a continued message. At the end, it checks that every call has ended, that all
resources were released, and that the files have the content that clients were told.

The totals are: calls that ended; those that ended \"without results\", that is with an error at
the client; and faults: connections lost, hosts crashed and registrations refused. Some of the
faults that --explain lists as planned do not happen, because their target is already down or the
run has ended. Pauses and shortages of memory are not counted.

With --seed, --capture shows the server's connections as iWARP over TCP, with virtual times that
begin in 1970. A connection that the network loses is closed in it when the server notices.

A seed that fails is printed with the command that repeats it.")]
pub(crate) struct SimArgs {
    /// Run this seed
    #[arg(long, value_name = "N", value_parser = seed, conflicts_with_all = ["seeds", "threads"])]
    pub(crate) seed: Option<u64>,

    /// Run the seeds from A up to B, excluding B
    #[arg(long, value_name = "A..B", value_parser = range, default_value = "0..1000")]
    pub(crate) seeds: Range<u64>,

    /// Use version 2 in every seed, with receive sizes that change while calls go both ways
    #[arg(long)]
    pub(crate) resizing: bool,

    /// Use version 2 in every seed, with these features: SERVER/CLIENT, each as in `-o features=`,
    /// for instance ddp+cont/none; or `all` for each of the sixteen combinations in turn
    #[arg(long, value_name = "PAIRING", value_parser = features)]
    pub(crate) features: Option<FeaturesOf>,

    /// Choose the versions of both ends freely in every seed (`any`), or use version 2 of the
    /// working group in every seed (`2wg`)
    #[arg(long, value_name = "VERSION", value_parser = |text: &str| versions(text, &[]),
          conflicts_with_all = ["resizing", "features"])]
    pub(crate) rpcrdma: Option<VersionsOf>,

    /// Disturb honest clients in every seed: by changes of the exports, by clients that take every
    /// connection or flood the server, or by several of these
    #[arg(long)]
    pub(crate) hostile: bool,

    /// Put two gateways between one to three clients and a server. The server closes connections,
    /// the network loses them, clients leave, and gateways are killed. --features and --rpcrdma are
    /// then those of the connections between the gateways
    #[arg(long, conflicts_with_all = ["resizing", "hostile", "with", "credits", "settings", "capture",
          "trace"])]
    pub(crate) relays: bool,

    /// Print the choices of the seed, and all events
    #[arg(long, requires = "seed")]
    pub(crate) explain: bool,

    /// Number of seeds to run at the same time. Default: the number of processors
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=256))]
    pub(crate) threads: Option<u16>,

    /// Give both ends of every seed features that this program has beside those of the project
    #[arg(long, value_name = "FEATURES", value_parser = tuning::features)]
    pub(crate) with: Option<Features>,

    #[command(flatten)]
    pub(crate) tuning: TuningArgs,

    #[command(flatten)]
    pub(crate) capture: CaptureArgs,

    #[command(flatten)]
    pub(crate) trace: TraceArgs,
}

impl SimArgs {
    /// Returns the settings that all seeds share. With a policy of granting, what it grants is recorded in
    /// `granted`.
    ///
    /// # Errors
    /// A setting is set twice, or is of one end only.
    pub(crate) fn swarm(
        &self,
        catalog: &Catalog,
        granted: &Arc<Granted>,
    ) -> Result<Swarm, Failure> {
        Ok(Swarm {
            resizing: self.resizing,
            features: self.features.unwrap_or_default(),
            versions: self.rpcrdma.unwrap_or_default(),
            hostile: self.hostile,
            relays: self.relays,
            change: self.change(catalog, granted)?,
        })
    }

    /// Returns the change of every plan by what is selected of the catalog.
    fn change(&self, catalog: &Catalog, granted: &Arc<Granted>) -> Result<Option<Change>, Failure> {
        let tuning = self.tuning.tuning(catalog)?;
        check_for_simulation(&tuning)?;
        if let Some(name) = tuning.settings.of_measurements() {
            let text =
                format!("--set {name}: without effect on seeds, only for compare --device sim");
            return Err(Failure::Usage(text));
        }
        let features = self.with.clone().unwrap_or_default();
        if !features.round_trips().is_none() {
            let text = "--with: features of this program; --features selects those of the project";
            return Err(Failure::usage(text));
        }
        let versions: Vec<Version> = catalog.added_versions().collect();
        if tuning.given().is_none() && features.is_none() && versions.is_empty() {
            return Ok(None);
        }
        let granted = self.has_policy().then(|| Arc::clone(granted));
        let record = move |end: &mut RdmaOptions| {
            if let Some(granted) = &granted {
                let maker = Arc::clone(&end.grants);
                let granted = Arc::clone(granted);
                end.grants = Arc::new(Recorded { maker, granted });
            }
        };
        let change = move |plan: &mut Plan| {
            for (end, round_trips) in [
                (&mut plan.requester, plan.features.client),
                (&mut plan.responder, plan.features.server),
            ] {
                end.protocols = tuning.protocols(&features.with_round_trips(round_trips));
                tuning.apply(end);
                record(end);
            }
            plan.change_costs(|simulated| change_simulation(&tuning.settings, simulated));
            plan.add_versions(&versions);
        };
        // Seeds share it for as long as the program runs.
        Ok(Some(Change(Box::leak(Box::new(change)))))
    }

    /// Returns whether a policy of granting is selected.
    pub(crate) fn has_policy(&self) -> bool {
        !self.tuning.credits.is_empty()
    }

    /// Returns the words that select it once more.
    pub(crate) fn selection(&self) -> String {
        let with = self.with.iter().map(|with| format!(" --with {with}"));
        let grants = self.tuning.credits.iter();
        let grants = grants.map(|grants| format!(" --credits {grants}"));
        let settings = self.tuning.settings.iter();
        let settings = settings.map(|setting| format!(" --set {setting}"));
        with.chain(grants).chain(settings).collect()
    }
}

fn seed(text: &str) -> Result<u64, String> {
    text.parse()
        .map_err(|_| format!("`{text}` is no seed: write a number from 0 to {}", u64::MAX))
}

/// The value of `--features` that stands for the sixteen combinations in turn.
pub(crate) const ALL: &str = "all";

fn features(text: &str) -> Result<FeaturesOf, String> {
    match text {
        ALL => Ok(FeaturesOf::Turns),
        _ => match text.parse() {
            Ok(pairing) => Ok(FeaturesOf::Only(pairing)),
            Err(error) => Err(error.to_string()),
        },
    }
}

/// The value of `--rpcrdma` with which seeds choose freely.
pub(crate) const ANY: &str = "any";

/// Parses a value of `--rpcrdma`, which may be a version that a program adds.
pub(super) fn versions(text: &str, added: &[Version]) -> Result<VersionsOf, String> {
    if text == ANY {
        return Ok(VersionsOf::Free);
    }
    let known = || std::iter::once(Version::TWO_WG).chain(added.iter().copied());
    let found = known().find(|version| version.name() == text);
    found.map(VersionsOf::Only).ok_or_else(|| {
        let names: Vec<_> = known().map(Version::name).collect();
        let names = names.join("`, `");
        format!("`{text}` is none of `{ANY}`, `{names}`")
    })
}

fn range(text: &str) -> Result<Range<u64>, String> {
    let numbers = text.split_once("..");
    let numbers = numbers.and_then(|(a, b)| Some((a.parse().ok()?, b.parse().ok()?)));
    match numbers {
        Some((first, end)) if first < end => Ok(first..end),
        _ => Err(format!(
            "`{text}` is no range: write the first seed and one that is after the last, like 0..1000"
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn features_are_of_two_sides_or_all() {
        assert_eq!(features("all"), Ok(FeaturesOf::Turns));
        let pairing = "ddp:send/none".parse().unwrap();
        assert_eq!(features("ddp:send/none"), Ok(FeaturesOf::Only(pairing)));
        let error = features("ddp").unwrap_err();
        assert!(error.contains("SERVER/CLIENT"), "{error}");
        let error = features("ddp/tcp").unwrap_err();
        assert!(error.contains("no feature \"tcp\""), "{error}");
    }

    #[test]
    fn versions_are_any_or_those_of_the_working_group_or_of_the_program() {
        let own = Version::new(9, "nine");
        assert_eq!(versions("any", &[]), Ok(VersionsOf::Free));
        let wg = Ok(VersionsOf::Only(Version::TWO_WG));
        assert_eq!(versions("2wg", &[own]), wg);
        assert_eq!(versions("nine", &[own]), Ok(VersionsOf::Only(own)));
        let refused = versions("nine", &[]).unwrap_err();
        assert_eq!(refused, "`nine` is none of `any`, `2wg`");
        assert!(versions("2", &[own]).is_err());
    }

    #[test]
    fn a_seed_is_any_number_of_64_bits() {
        assert_eq!(seed("18446744073709551615"), Ok(u64::MAX));
        for wrong in ["", "abc", "-1", "18446744073709551616"] {
            let said = seed(wrong).unwrap_err();
            assert!(said.contains("is no seed"), "{said}");
        }
    }

    #[test]
    fn a_range_has_a_first_seed_and_an_end_after_it() {
        assert_eq!(range("3..10"), Ok(3..10));
        for wrong in ["", "3", "3..", "..3", "3..3", "10..3", "a..b", "-1..3"] {
            assert!(range(wrong).is_err(), "{wrong}");
        }
    }
}
