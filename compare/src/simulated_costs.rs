//! The costs of the simulation by name, for `--costs` of `compare --device sim`.

use std::fmt::Write;
use std::time::Duration;

use rpcrdma_setup::Failure;
use rpcrdma_setup::costs::{Amount, CostsArg, Entries};
use rpcrdma_sim::{Cache, Setting};

/// The name of the cost that says which rates of copies apply, and its values.
const CACHE: &str = "cache";
const CACHES: [(&str, Cache); 2] = [("warm", Cache::Warm), ("cold", Cache::Cold)];

/// The place of a cost in the setting.
enum Field<'a> {
    Time(&'a mut Duration),
    /// A rate in bytes per second.
    Rate(&'a mut u64),
}

type Find = fn(&mut Setting) -> Field<'_>;

/// All costs but [`CACHE`]: the name, what costs that, and its place.
const COSTS: [(&str, &str, Find); 14] = [
    ("link-delay", "of the link, each way", |setting| {
        Field::Time(&mut setting.costs.delay)
    }),
    ("rate", "of the link", |setting| {
        Field::Rate(&mut setting.costs.rate)
    }),
    ("post", "of posting a work request", |setting| {
        Field::Time(&mut setting.costs.post)
    }),
    ("completion", "of handling a completion", |setting| {
        Field::Time(&mut setting.costs.completion)
    }),
    (
        "interrupt",
        "from a completion to the program that waits for it",
        |setting| Field::Time(&mut setting.interrupt),
    ),
    ("registration", "of a piece of memory", |setting| {
        Field::Time(&mut setting.costs.register)
    }),
    (
        "registration-page",
        "of each page of that memory",
        |setting| Field::Time(&mut setting.costs.register_page),
    ),
    (
        "invalidation",
        "of a registration, by the requester itself",
        |setting| Field::Time(&mut setting.costs.invalidate),
    ),
    (
        "invalidation-page",
        "of each page of that memory",
        |setting| Field::Time(&mut setting.costs.invalidate_page),
    ),
    (
        "read-turnaround",
        "from an RDMA Read's arrival to its response",
        |setting| Field::Time(&mut setting.costs.read_response),
    ),
    (
        "sender-copy-rate",
        "of copies before sending, from a warm cache",
        |setting| Field::Rate(&mut setting.copies.sender.warm),
    ),
    (
        "sender-copy-rate-cold",
        "the same from a cold cache",
        |setting| Field::Rate(&mut setting.copies.sender.cold),
    ),
    (
        "receiver-copy-rate",
        "of copies of what was not placed, from a warm cache",
        |setting| Field::Rate(&mut setting.copies.receiver.warm),
    ),
    (
        "receiver-copy-rate-cold",
        "the same from a cold cache",
        |setting| Field::Rate(&mut setting.copies.receiver.cold),
    ),
];

/// Sets the costs of `given`. Returns the names of those that it has.
///
/// # Errors
/// The file cannot be used, or a cost is unknown or has no such value.
pub(crate) fn set(setting: &mut Setting, given: &CostsArg) -> Result<Vec<String>, Failure> {
    let wrong = |error: String| Failure::Usage(format!("--device sim: --costs {error}"));
    let Entries { entries, file, .. } = given.entries().map_err(wrong)?;
    let place = file.map_or_else(String::new, |file| format!("{file}: "));
    for (name, value) in &entries {
        let put = put(setting, name, value);
        put.map_err(|error| wrong(format!("{place}{error}")))?;
    }
    Ok(entries.into_iter().map(|(name, _)| name).collect())
}

fn put(setting: &mut Setting, name: &str, value: &str) -> Result<(), String> {
    if name == CACHE {
        let known = CACHES.iter().find(|(word, _)| *word == value);
        let (_, cache) = known.ok_or_else(|| format!("{CACHE}: `{value}` is not warm or cold"))?;
        setting.copies.cache = *cache;
        return Ok(());
    }
    let Some((.., find)) = COSTS.iter().find(|cost| cost.0 == name) else {
        let names = COSTS.map(|cost| cost.0).join(", ");
        return Err(format!(
            "`{name}` is no cost of the simulation: there are {names}, {CACHE}"
        ));
    };
    let wrong = |error| format!("{name}: {error}");
    match find(setting) {
        Field::Time(time) => {
            if let Amount::Time(given) = Amount::time(value).map_err(wrong)? {
                *time = given;
            }
        }
        Field::Rate(rate) => {
            if let Amount::Rate(given) = Amount::rate(value).map_err(wrong)? {
                *rate = given;
            }
        }
    }
    Ok(())
}

/// Returns the names and values of all costs.
fn all(setting: &Setting) -> impl Iterator<Item = (&'static str, String)> {
    let mut setting = setting.clone();
    let cache = CACHES
        .iter()
        .find(|(_, cache)| *cache == setting.copies.cache);
    let cache = cache.map(|(word, _)| (CACHE, (*word).to_owned()));
    let costs = COSTS.map(|(name, _, find)| {
        let amount = match find(&mut setting) {
            Field::Time(time) => Amount::Time(*time),
            Field::Rate(rate) => Amount::Rate(*rate),
        };
        (name, amount.to_string())
    });
    costs.into_iter().chain(cache)
}

/// Formats all costs as on the command line.
pub(crate) fn list(setting: &Setting) -> String {
    let all: Vec<String> = all(setting)
        .map(|(name, value)| format!("{name}={value}"))
        .collect();
    all.join(",")
}

/// Describes the costs of the simulation with their defaults, a line each, for the help.
#[must_use]
pub fn help() -> String {
    let mut text = String::new();
    let meanings = COSTS.iter().map(|(_, meaning, _)| *meaning);
    let cache = "whether copies are from a warm or a cold cache";
    for ((name, value), meaning) in all(&Setting::default()).zip(meanings.chain([cache])) {
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
        for (number, (name, _, find)) in (1u32..).zip(COSTS) {
            let value = match find(&mut setting) {
                Field::Time(_) => format!("{number}us"),
                Field::Rate(_) => format!("{number}g"),
            };
            wanted.push(format!("{name}={value}"));
        }
        wanted.push("cache=cold".to_owned());
        let given = wanted.join(",");
        let names = set(&mut setting, &CostsArg::unchecked(&given)).expect("they are all known");
        assert_eq!(names.len(), wanted.len());
        assert_eq!(list(&setting), given);
        assert_eq!(help().lines().count(), wanted.len());
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
            ("cache=hot", "cache: `hot` is not warm or cold"),
            ("post=1us,post=2us", "post is given twice"),
            ("/no/such/file", "neither NAME=VALUE"),
        ] {
            let error = set(&mut Setting::default(), &CostsArg::unchecked(text));
            let error = error.expect_err(text).to_string();
            assert!(error.contains(what), "{text}: {error}");
        }
    }
}
