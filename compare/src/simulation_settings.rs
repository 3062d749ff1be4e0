//! Settings of simulations: what the link does, and what operations cost.
//!
//! No end of a connection has them, so [`Settings`] only holds their values. Here is which field of a
//! simulation each of them is.

use std::convert::identity;
use std::time::Duration;

use rdma_sim::Noise;
use rpcrdma_setup::Failure;
use rpcrdma_setup::catalog::{Catalog, Tuning};
use rpcrdma_setup::settings::{Effect, Field, Setting, Settings, Unit};
use rpcrdma_sim::{Cache, Setting as Simulated};

const MICROSECOND: u64 = 1_000;
const SECOND: u64 = 1_000_000 * MICROSECOND;
/// 1 kbit/s, in bytes per second.
const SLOWEST: u64 = 125;

/// A setting of simulations.
#[derive(Debug)]
pub(crate) struct SimulationSetting {
    /// The setting, as options know it.
    pub(crate) known: Setting,
    /// The field of a simulation.
    field: Field<Simulated>,
}

impl SimulationSetting {
    /// Returns the value in a simulation, as it is written.
    pub(crate) fn written(&self, simulated: &Simulated) -> String {
        self.known.unit.write((self.field.get)(simulated))
    }

    /// Gives it a value in a simulation.
    pub(crate) fn set(&self, simulated: &mut Simulated, value: u64) {
        (self.field.set)(simulated, value);
    }
}

/// Makes the setting of a field of simulations. `$effect` is one of [`Effect`]; `$get` returns the value of
/// the field, and `$set` makes a field of a value.
macro_rules! setting {
    ($name:expr, $unit:ident, $bounds:expr, $effect:ident, $($field:ident).+, $get:expr, $set:expr, $help:expr) => {
        SimulationSetting {
            known: Setting {
                name: $name,
                unit: Unit::$unit,
                bounds: $bounds,
                step: 1,
                help: $help,
                effect: Effect::$effect(|| $get(Simulated::default().$($field).+)),
            },
            field: Field {
                get: |simulated| $get(simulated.$($field).+),
                set: |simulated, value| simulated.$($field).+ = $set(value),
            },
        }
    };
}

/// Makes the setting of a time.
macro_rules! time {
    ($name:expr, $bounds:expr, $($field:ident).+, $help:expr) => {
        setting!($name, Time, $bounds, Simulation, $($field).+, nanos, Duration::from_nanos, $help)
    };
}

/// Makes the setting of a rate.
macro_rules! rate {
    ($name:expr, $effect:ident, $($field:ident).+, $help:expr) => {
        setting!($name, Rate, (SLOWEST, u64::MAX), $effect, $($field).+, identity, identity, $help)
    };
}

/// The name of the setting of the seed, and of those without which it has no effect.
const SEED: &str = "seed";
const JITTER: &str = "jitter";
const LOSS: &str = "loss";
/// The name of the setting without effect where nothing is lost.
const RETRANSMIT: &str = "retransmit-after";

/// The settings of the link.
pub(crate) static LINK: &[SimulationSetting] = &[
    time!(
        "up-delay",
        (0, 10 * SECOND),
        costs.up.delay,
        "Delay of the link from a client to the server"
    ),
    time!(
        "down-delay",
        (0, 10 * SECOND),
        costs.down.delay,
        "Delay of the link from the server to a client"
    ),
    rate!(
        "up-rate",
        Simulation,
        costs.up.rate,
        "Rate at which each client can send"
    ),
    rate!(
        "down-rate",
        Simulation,
        costs.down.rate,
        "Rate at which the server can send"
    ),
    time!(
        JITTER,
        (0, SECOND),
        costs.noise.jitter,
        "Most that a message or RDMA operation is delayed in addition, each way: at random, every shorter time being \
         as probable. Those of one connection stay in order"
    ),
    setting!(
        LOSS,
        Share,
        (0, Noise::MAX_LOSS as u64),
        Simulation,
        costs.noise.loss,
        u64::from,
        word,
        "Share of packets that the link loses, each way. The sender sends them again, and what follows waits for them"
    ),
    time!(
        RETRANSMIT,
        (MICROSECOND, 10 * SECOND),
        costs.noise.retransmit,
        "Time after which a lost packet is sent again"
    ),
    setting!(
        SEED,
        Number,
        (0, u64::MAX),
        Measurement,
        seed,
        identity,
        identity,
        "Number that decides jitter and losses: the same one, the same delays and losses"
    ),
];

/// The costs of operations.
pub(crate) static COSTS: &[SimulationSetting] = &[
    time!(
        "post",
        (0, SECOND),
        costs.post,
        "Time to post a work request"
    ),
    time!(
        "completion",
        (0, SECOND),
        costs.completion,
        "Time to handle a completion"
    ),
    time!(
        "interrupt",
        (0, SECOND),
        interrupt,
        "Time from a completion to the program that waits for it"
    ),
    time!(
        "registration",
        (0, SECOND),
        costs.register,
        "Time to register a piece of memory"
    ),
    time!(
        "registration-page",
        (0, SECOND),
        costs.register_page,
        "Time that each page of that memory adds"
    ),
    time!(
        "invalidation",
        (0, SECOND),
        costs.invalidate,
        "Time to invalidate a registration, by the requester itself"
    ),
    time!(
        "invalidation-page",
        (0, SECOND),
        costs.invalidate_page,
        "Time that each page of that memory adds"
    ),
    time!(
        "read-turnaround",
        (0, SECOND),
        costs.read_response,
        "Time from an RDMA Read's arrival to its response"
    ),
    rate!(
        "sender-copy-rate",
        Measurement,
        copies.sender.warm,
        "Rate of copies before sending, from a warm cache"
    ),
    rate!(
        "sender-copy-rate-cold",
        Measurement,
        copies.sender.cold,
        "The same from a cold cache"
    ),
    rate!(
        "receiver-copy-rate",
        Measurement,
        copies.receiver.warm,
        "Rate of copies of what was not placed, from a warm cache"
    ),
    rate!(
        "receiver-copy-rate-cold",
        Measurement,
        copies.receiver.cold,
        "The same from a cold cache"
    ),
    setting!(
        "cold-cache",
        Switch,
        (0, 1),
        Measurement,
        copies.cache,
        is_cold,
        cache,
        "Whether copies are from a cold cache"
    ),
];

/// Converts a time to nanoseconds.
fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

/// Converts a value within bounds of 32 bits.
fn word(value: u64) -> u32 {
    u32::try_from(value).unwrap_or(u32::MAX)
}

fn is_cold(cache: Cache) -> u64 {
    u64::from(cache == Cache::Cold)
}

fn cache(is_cold: u64) -> Cache {
    match is_cold {
        0 => Cache::Warm,
        _ => Cache::Cold,
    }
}

fn all() -> impl Iterator<Item = &'static SimulationSetting> {
    LINK.iter().chain(COSTS)
}

/// Returns what there is in this project, with the settings of simulations.
#[must_use]
pub fn catalog() -> Catalog {
    let known = all().map(|setting| &setting.known);
    known.fold(Catalog::standard(), Catalog::with_setting)
}

/// Changes a simulation by those settings that are for simulations.
pub fn change_simulation(settings: &Settings, simulated: &mut Simulated) {
    for setting in all() {
        if let Some(value) = settings.given(&setting.known) {
            setting.set(simulated, value);
        }
    }
}

/// Checks that each setting has an effect on both ends of a simulation, or on the simulation.
///
/// # Errors
/// A setting is for one end only, or without effect.
pub fn check_for_simulation(tuning: &Tuning) -> Result<(), Failure> {
    tuning.check_for_both()?;
    match without_noise(&tuning.settings) {
        Some((name, missing)) => Err(Failure::Usage(format!(
            "--set {name}: without effect unless {missing} is set"
        ))),
        None => Ok(()),
    }
}

/// Returns the name of a setting of what the noise of a simulated link does, if that has no such noise, and
/// of the setting without which it has none.
fn without_noise(settings: &Settings) -> Option<(&'static str, &'static str)> {
    let given = |name: &str| {
        let setting = LINK.iter().find(|setting| setting.known.name == name);
        setting.and_then(|setting| settings.given(&setting.known))
    };
    let is_on = |name: &str| given(name).is_some_and(|value| value > 0);
    let (jitter, loss) = (is_on(JITTER), is_on(LOSS));
    match () {
        () if given(RETRANSMIT).is_some() && !loss => Some((RETRANSMIT, LOSS)),
        () if given(SEED).is_some() && !loss && !jitter => Some((SEED, JITTER)),
        () => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn setting(name: &str) -> &'static Setting {
        let found = all().find(|setting| setting.known.name == name);
        &found.unwrap().known
    }

    #[test]
    fn names_differ() {
        assert!(catalog().check().is_ok());
    }

    /// Each is set to both bounds, which come back from the simulation, and what it is by default is within them.
    #[test]
    fn what_is_set_is_in_the_simulation() {
        for setting in all() {
            let known = &setting.known;
            let default = setting.written(&Simulated::default());
            let parsed = known.parse(&default);
            assert_eq!(parsed, Ok(Settings::default().value(known)), "{default}");
            let (least, most) = known.bounds;
            for value in [least, most] {
                let mut settings = Settings::default();
                let text = known.unit.write(value);
                settings.set(known, &text).unwrap();
                assert_eq!(settings.to_string(), format!("{}={text}", known.name));
                let mut simulated = Simulated::default();
                change_simulation(&settings, &mut simulated);
                assert_eq!((setting.field.get)(&simulated), value, "{}", known.name);
                assert_eq!(setting.written(&simulated), text);
            }
        }
    }

    #[test]
    fn impossible_values_are_refused_with_the_bounds() {
        for (name, text, said) in [
            (
                "loss",
                "51%",
                "loss: `51%` is not possible: write 0% to 50%",
            ),
            (
                "loss",
                "0.5",
                "loss: `0.5` is not a share: write one like 1% or 0.05%: write 0% to 50%",
            ),
            (
                "down-delay",
                "11s",
                "down-delay: `11s` is not possible: write 0s to 10s",
            ),
        ] {
            assert_eq!(setting(name).parse(text).unwrap_err(), said);
        }
        let refused = setting("up-rate").parse("fast").unwrap_err();
        assert!(refused.ends_with("write 1k to unlimited"), "{refused}");
    }

    #[test]
    fn what_only_simulations_have_is_told_apart() {
        let mut settings = Settings::default();
        settings.set(setting("jitter"), "5us").unwrap();
        assert_eq!(
            (settings.of_simulations(), settings.of_measurements()),
            (Some("jitter"), None)
        );
        assert_eq!((settings.of_clients(), settings.of_servers()), (None, None));
        settings.set(setting("cold-cache"), "on").unwrap();
        assert_eq!(settings.of_measurements(), Some("cold-cache"));
    }

    #[test]
    fn what_needs_noise_is_without_effect_elsewhere() {
        let without = |set: &[(&str, &str)]| {
            let mut settings = Settings::default();
            for (name, value) in set {
                settings.set(setting(name), value).unwrap();
            }
            without_noise(&settings)
        };
        let seed = ("seed", "7");
        let after = ("retransmit-after", "1ms");
        assert_eq!(without(&[seed]), Some(("seed", "jitter")));
        assert_eq!(without(&[seed, ("jitter", "0s")]), Some(("seed", "jitter")));
        assert_eq!(without(&[seed, ("jitter", "1us")]), None);
        assert_eq!(without(&[seed, after, ("loss", "1%")]), None);
        assert_eq!(
            without(&[after, ("jitter", "1us")]),
            Some(("retransmit-after", "loss"))
        );
    }
}
