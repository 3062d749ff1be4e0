//! The costs of the simulation by name, for `--costs` of `compare --device sim`.

use std::fmt::Write;

use rpcrdma_setup::Failure;
use rpcrdma_setup::costs::{CostsArg, Entries};
use rpcrdma_setup::settings::Unit;
use rpcrdma_sim::Setting;

use crate::simulation_settings::{COSTS, LINK, SimulationSetting};

/// The costs of both directions of the link, each with what it is and the settings of the directions.
const BOTH: [(&str, &str, [&str; 2]); 2] = [
    (
        "link-delay",
        "Delay of the link, each way",
        ["up-delay", "down-delay"],
    ),
    (
        "rate",
        "Rate of the link, each way",
        ["up-rate", "down-rate"],
    ),
];
/// The cost that is a switch among the settings: which rates of copies apply, with its values.
const CACHE: &str = "cache";
const CACHES: [&str; 2] = ["warm", "cold"];

/// Returns the settings that are costs: of the directions of the link, and of operations.
fn costs() -> impl Iterator<Item = &'static SimulationSetting> {
    let is_cost = |name: &str| BOTH.iter().any(|(_, _, each)| each.contains(&name));
    let link = LINK.iter().filter(move |it| is_cost(it.known.name));
    link.chain(COSTS).filter(|it| it.known.unit != Unit::Switch)
}

/// Returns the setting that is a switch among the costs of operations.
fn switch() -> Option<&'static SimulationSetting> {
    COSTS.iter().find(|it| it.known.unit == Unit::Switch)
}

/// Sets the costs of `given`. Returns the names of the settings that it sets, each with that of the
/// cost which does so.
///
/// # Errors
/// The file cannot be used, or a cost is unknown, has no such value, or is part of another one.
pub(crate) fn set(
    setting: &mut Setting,
    given: &CostsArg,
) -> Result<Vec<(&'static str, String)>, Failure> {
    let wrong = |error: String| Failure::Usage(format!("--device sim: --costs {error}"));
    let Entries { entries, file, .. } = given.entries().map_err(wrong)?;
    let place = file.map_or_else(String::new, |file| format!("{file}: "));
    let mut set: Vec<(&'static str, String)> = Vec::new();
    for (name, value) in &entries {
        let put = put(setting, name, value);
        for of in put.map_err(|error| wrong(format!("{place}{error}")))? {
            if let Some((_, other)) = set.iter().find(|(known, _)| *known == of) {
                let error = format!("{place}{name}: not with {other}, which sets the same");
                return Err(wrong(error));
            }
            set.push((of, name.clone()));
        }
    }
    Ok(set)
}

/// Returns the settings of both directions of the link that a cost is.
pub(crate) fn directions(cost: &str) -> Option<[&'static str; 2]> {
    let both = BOTH.iter().find(|(both, ..)| *both == cost)?;
    Some(both.2)
}

/// Sets one cost. Returns the names of the settings that it is.
fn put(setting: &mut Setting, name: &str, value: &str) -> Result<Vec<&'static str>, String> {
    if name == CACHE {
        let known = CACHES.iter().position(|word| *word == value);
        let cold = known.ok_or_else(|| format!("{CACHE}: `{value}` is not warm or cold"))?;
        let switch = switch().inspect(|it| it.set(setting, cold as u64));
        return Ok(switch.map(|it| it.known.name).into_iter().collect());
    }
    let both = directions(name);
    let is_meant = |it: &&SimulationSetting| match both {
        Some(each) => each.contains(&it.known.name),
        None => it.known.name == name,
    };
    let mut meant = costs().filter(is_meant).peekable();
    if meant.peek().is_none() {
        let both = BOTH.iter().map(|(both, ..)| *both);
        let names: Vec<_> = both.chain(costs().map(|it| it.known.name)).collect();
        return Err(format!(
            "`{name}` is no cost of the simulation: there are {}, {CACHE}",
            names.join(", ")
        ));
    }
    let mut set = Vec::new();
    for it in meant {
        let value = it.known.parse(value);
        let value = value.map_err(|error| error.replacen(it.known.name, name, 1))?;
        it.set(setting, value);
        set.push(it.known.name);
    }
    Ok(set)
}

/// Returns the names, values and meanings of all costs. What is the same in both directions is there
/// once.
fn all(setting: &Setting) -> Vec<(&'static str, String, &'static str)> {
    let as_itself = |it: &SimulationSetting| (it.known.name, it.written(setting), it.known.help);
    let mut all = Vec::new();
    let mut rest: Vec<&SimulationSetting> = costs().collect();
    for (name, meaning, each) in BOTH {
        let (link, others) = rest
            .into_iter()
            .partition::<Vec<_>, _>(|it| each.contains(&it.known.name));
        rest = others;
        match &link[..] {
            [up, down] if up.written(setting) == down.written(setting) => {
                all.push((name, up.written(setting), meaning));
            }
            _ => all.extend(link.into_iter().map(as_itself)),
        }
    }
    all.extend(rest.into_iter().map(as_itself));
    all.extend(switch().map(|it| {
        let cold = usize::from(it.written(setting) == "on");
        (
            CACHE,
            CACHES[cold].to_owned(),
            "Whether copies are from a warm or a cold cache",
        )
    }));
    all
}

/// Formats all costs as on the command line.
pub(crate) fn list(setting: &Setting) -> String {
    let all = all(setting).into_iter();
    let all: Vec<String> = all
        .map(|(name, value, _)| format!("{name}={value}"))
        .collect();
    all.join(",")
}

/// Describes the costs of the simulation with their defaults, a line each, for the help.
#[must_use]
pub fn help() -> String {
    let mut text = String::new();
    for (name, value, meaning) in all(&Setting::default()) {
        // Writing to a string does not fail.
        let _ = writeln!(text, "  {name:<23}  {value:<6}  {meaning}");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_cost_has_its_own_field() {
        let mut setting = Setting::default();
        let mut wanted = Vec::new();
        for (number, it) in (1u32..).zip(costs()) {
            let value = match it.known.unit {
                Unit::Rate => format!("{number}g"),
                _ => format!("{number}us"),
            };
            wanted.push(format!("{}={value}", it.known.name));
        }
        wanted.push("cache=cold".to_owned());
        let given = wanted.join(",");
        let names = set(&mut setting, &CostsArg::unchecked(&given)).expect("they are all known");
        assert_eq!(names.len(), wanted.len());
        assert!(names.contains(&("cold-cache", "cache".to_owned())));
        assert_eq!(list(&setting), given);
    }

    #[test]
    fn what_is_the_same_in_both_directions_is_given_and_listed_once() {
        let mut setting = Setting::default();
        let given = "link-delay=30us,rate=25g,post=0s";
        set(&mut setting, &CostsArg::unchecked(given)).expect("they are all known");
        assert!(
            list(&setting).starts_with(&format!("{given},")),
            "{}",
            list(&setting)
        );
        let costs = &setting.costs;
        let micros = [&costs.up, &costs.down].map(|link| link.delay.as_micros());
        assert_eq!(micros, [30, 30]);
        set(&mut setting, &CostsArg::unchecked("down-delay=1us")).expect("it is known");
        let listed = list(&setting);
        assert!(
            listed.starts_with("up-delay=30us,down-delay=1us,rate=25g,"),
            "{listed}"
        );
        assert!(
            help().lines().all(|line| line.chars().count() <= 100),
            "{}",
            help()
        );
    }

    #[test]
    fn what_is_wrong_is_said() {
        for (text, what) in [
            (
                "per-message=1us",
                "`per-message` is no cost of the simulation: there are link-delay,",
            ),
            ("post=1g", "post: "),
            ("rate=1us", "rate: "),
            (
                "link-delay=11s",
                "link-delay: `11s` is not possible: write 0s to 10s",
            ),
            ("cache=hot", "cache: `hot` is not warm or cold"),
            ("post=1us,post=2us", "post is given twice"),
            (
                "link-delay=1ms,up-delay=2ms",
                "up-delay: not with link-delay, which sets the same",
            ),
            (
                "down-rate=1g,rate=2g",
                "rate: not with down-rate, which sets the same",
            ),
            ("/no/such/file", "neither NAME=VALUE"),
        ] {
            let error = set(&mut Setting::default(), &CostsArg::unchecked(text));
            let error = error.expect_err(text).to_string();
            assert!(error.contains(what), "{text}: {error}");
        }
    }
}
