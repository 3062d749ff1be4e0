//! The cost model of a connection: default, given or measured costs. It decides how messages are
//! transferred, and `explain` shows the source of each cost.

use std::fmt;
use std::fs;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use rdma::ClassCosts;
use rdma::middleware::{Delay, ParseLinkError, Rate};
use rpc_transport::rdma::CostModel;
use serde_json::{Map, Value};
use transfer_plan::{CostParameter, Figure};

use crate::Failure;
use crate::columns::Table;

/// The key in a file that is not a cost: the program and conditions that the costs come from.
const SOURCE: &str = "source";
/// The source of a cost that was not given, and of one that a file gave without a source.
const DEFAULT: &str = "default";
const FILE: &str = "file";
/// The source of a cost that the class of the device has.
const DEVICE: &str = "device";
/// The source of a rate that is limited to that of the link.
const LIMIT: &str = "--rate";
/// The source of a measured cost that was too small to be measured.
const UNFOUND: &str = "too little to tell";
/// The word for an unlimited rate.
const UNLIMITED: &str = "unlimited";

/// A cost model with the source of each cost.
#[derive(Clone, Debug)]
pub struct Costs {
    model: CostModel,
    /// The sources, in the order of [`CostParameter::ALL`].
    sources: [Arc<str>; CostParameter::ALL.len()],
    /// The file that costs came from, and its own description of the source.
    file: Option<String>,
}

impl Default for Costs {
    fn default() -> Self {
        Self::of(CostModel::default(), DEFAULT)
    }
}

/// The value of `--costs`: `NAME=VALUE,…`, or the name of a file, which is read later.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CostsArg(String);

impl CostsArg {
    /// Takes a value whose costs are checked later, because it depends on the device which there
    /// are.
    #[must_use]
    pub fn unchecked(text: &str) -> Self {
        Self(text.to_owned())
    }

    /// Returns the names and values in the list or file.
    ///
    /// # Errors
    /// The text is no list, or the file cannot be used.
    pub fn entries(&self) -> Result<Entries, String> {
        Entries::read(&self.0)
    }

    /// Parses the value on the command line.
    ///
    /// # Errors
    /// A text for the user that says what is wrong.
    pub fn parse(text: &str) -> Result<Self, String> {
        if text.contains('=') {
            Costs::parse(text)?;
        }
        Ok(Self(text.to_owned()))
    }

    /// Returns the costs, with defaults for missing ones.
    ///
    /// # Errors
    /// The file cannot be used.
    pub fn load(arg: Option<&Self>) -> Result<Costs, Failure> {
        let costs = arg.map(|arg| Costs::parse(&arg.0)).transpose();
        let costs = costs.map_err(|error| Failure::Usage(format!("--costs {error}")))?;
        Ok(costs.unwrap_or_default())
    }
}

impl From<&Costs> for CostsArg {
    fn from(costs: &Costs) -> Self {
        Self(costs.to_list())
    }
}

impl fmt::Display for CostsArg {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// The costs in a list or a file, before it is known which costs there are.
#[derive(Debug)]
pub struct Entries {
    /// Names and values, in their order.
    pub entries: Vec<(String, String)>,
    /// The file that they came from.
    pub file: Option<String>,
    /// The file's own description of its source.
    pub source: Option<String>,
}

impl Entries {
    fn read(text: &str) -> Result<Self, String> {
        match text.contains('=') {
            true => Self::listed(text),
            false => {
                let read = fs::read_to_string(text).map_err(|error| {
                    format!("{text}: neither NAME=VALUE,… nor a file that can be read: {error}")
                })?;
                Self::from_json(&read, text)
            }
        }
    }

    fn listed(text: &str) -> Result<Self, String> {
        let mut entries = Vec::new();
        for word in text.split(',') {
            let pair = word.split_once('=');
            let (name, value) = pair.ok_or_else(|| format!("`{word}` is not NAME=VALUE"))?;
            let name = name.trim();
            if entries.iter().any(|(other, _)| other == name) {
                return Err(format!("{name} is given twice"));
            }
            entries.push((name.to_owned(), value.to_owned()));
        }
        Ok(Self {
            entries,
            file: None,
            source: None,
        })
    }

    fn from_json(text: &str, file: &str) -> Result<Self, String> {
        let map: Map<String, Value> = serde_json::from_str(text)
            .map_err(|error| format!("{file} is no JSON object: {error}"))?;
        let source = match map.get(SOURCE) {
            None => None,
            Some(Value::String(source)) => Some(source.clone()),
            Some(_) => return Err(format!("{file}: {SOURCE} is no string")),
        };
        let entries = map.into_iter().filter(|(name, _)| name != SOURCE);
        let entries = entries.map(|(name, value)| match value {
            Value::String(text) => Ok((name, text)),
            _ => Err(format!("{file}: {name}: a string is wanted, like \"5us\"")),
        });
        Ok(Self {
            entries: entries.collect::<Result<_, String>>()?,
            file: Some(file.to_owned()),
            source,
        })
    }
}

/// The value of a single cost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Amount {
    /// A duration.
    Time(Duration),
    /// A rate in bytes per second.
    Rate(u64),
}

impl Amount {
    /// Parses a duration, like `5us`.
    ///
    /// # Errors
    /// The reason why it is none.
    pub fn time(text: &str) -> Result<Self, ParseLinkError> {
        Delay::from_str(text).map(|time| Self::Time(time.0))
    }

    /// Parses a rate in bits per second, like `100g`, or `unlimited`.
    ///
    /// # Errors
    /// The reason why it is none.
    pub fn rate(text: &str) -> Result<Self, ParseLinkError> {
        match text {
            UNLIMITED => Ok(Self::Rate(CostModel::UNLIMITED)),
            _ => Rate::from_str(text).map(|rate| Self::Rate((rate.0 / 8).max(1))),
        }
    }
}

impl fmt::Display for Amount {
    /// Formats the value as on the command line.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Time(time) => Delay(time).fmt(f),
            Self::Rate(CostModel::UNLIMITED) => f.write_str(UNLIMITED),
            Self::Rate(rate) => Rate(rate.saturating_mul(8)).fmt(f),
        }
    }
}

impl Costs {
    /// Returns the costs of `model`, all with the same source.
    pub fn of(model: CostModel, source: &str) -> Self {
        let source: Arc<str> = source.into();
        Self {
            model,
            sources: std::array::from_fn(|_| Arc::clone(&source)),
            file: None,
        }
    }

    /// Marks each measured cost of zero: it is too small to be measured here.
    pub fn with_unfound(mut self) -> Self {
        let unfound: Arc<str> = UNFOUND.into();
        for parameter in CostParameter::ALL {
            if matches!(self.amount(parameter), Amount::Time(Duration::ZERO)) {
                self.sources[place(parameter)] = Arc::clone(&unfound);
            }
        }
        self
    }

    /// Parses a list, or a file that [`Costs::to_json`] or a user wrote. Costs may be missing.
    fn parse(text: &str) -> Result<Self, String> {
        Self::from_entries(Entries::read(text)?)
    }

    fn from_entries(read: Entries) -> Result<Self, String> {
        let (source, place) = match &read.file {
            Some(file) => (FILE, format!("{file}: ")),
            None => ("--costs", String::new()),
        };
        let mut costs = Self::default();
        for (name, value) in read.entries {
            let set = named(&name).and_then(|parameter| costs.set(parameter, &value, source));
            set.map_err(|error| format!("{place}{error}"))?;
        }
        let file = match (read.file, read.source) {
            (Some(file), Some(source)) => Some(format!("{file}: {source}")),
            (file, _) => file,
        };
        Ok(Self { file, ..costs })
    }

    fn set(&mut self, parameter: CostParameter, text: &str, source: &str) -> Result<(), String> {
        let amount = match parameter.of(&mut self.model) {
            Figure::Time(_) => Amount::time(text),
            Figure::Rate(_) => Amount::rate(text),
        };
        let amount = amount.map_err(|error| format!("{}: {error}", parameter.name()))?;
        self.put(parameter, amount, &source.into());
        Ok(())
    }

    fn put(&mut self, parameter: CostParameter, amount: Amount, source: &Arc<str>) {
        match (parameter.of(&mut self.model), amount) {
            (Figure::Time(to), Amount::Time(time)) => *to = time,
            (Figure::Rate(to), Amount::Rate(rate)) => *to = rate,
            // The parameter determines the kind of both, so they cannot differ.
            (Figure::Time(_), Amount::Rate(_)) | (Figure::Rate(_), Amount::Time(_)) => return,
        }
        self.sources[place(parameter)] = Arc::clone(source);
    }

    fn amount(&self, parameter: CostParameter) -> Amount {
        let mut model = self.model;
        match parameter.of(&mut model) {
            Figure::Time(time) => Amount::Time(*time),
            Figure::Rate(rate) => Amount::Rate(*rate),
        }
    }

    /// Returns whether this cost was given or measured, rather than taken from the defaults or those
    /// of the device.
    pub fn is_given(&self, parameter: CostParameter) -> bool {
        !matches!(&*self.sources[place(parameter)], DEFAULT | DEVICE)
    }

    /// Replaces default costs by those of the device's class. Those of the program, of copies and of
    /// a call, are no matter of the device.
    #[must_use]
    pub fn or_of(mut self, device: &ClassCosts) -> Self {
        let ClassCosts {
            link_delay,
            rate,
            read_rate,
            write_rate,
            per_message,
            registration,
            registration_page,
            invalidation,
            invalidation_wait,
            interrupt,
            read_turnaround,
            group,
            placement,
        } = *device;
        let own = CostModel::default();
        let mut of_device = Self::of(
            CostModel {
                link_delay,
                rate,
                read_rate,
                write_rate,
                per_message,
                registration,
                registration_page,
                invalidation,
                invalidation_wait,
                interrupt,
                read_turnaround,
                copy_rate: own.copy_rate,
                group,
                placement,
                call: own.call,
            },
            DEVICE,
        );
        for parameter in [CostParameter::CopyRate, CostParameter::Call] {
            of_device.sources[place(parameter)] = DEFAULT.into();
        }
        for parameter in CostParameter::ALL {
            // A link that is faster than the device makes nothing faster.
            let is_limit = &*self.sources[place(parameter)] == LIMIT;
            let is_less = matches!(
                (self.amount(parameter), of_device.amount(parameter)),
                (Amount::Rate(own), Amount::Rate(device)) if device < own
            );
            if !self.is_given(parameter) || (is_limit && is_less) {
                let source = &of_device.sources[place(parameter)];
                self.put(parameter, of_device.amount(parameter), source);
            }
        }
        self
    }

    /// Returns the cost model without the sources.
    pub fn model(&self) -> CostModel {
        self.model
    }

    /// Replaces default costs by those of `other`.
    pub fn or(mut self, other: &Self) -> Self {
        for parameter in CostParameter::ALL {
            if !self.is_given(parameter) {
                let source = &other.sources[place(parameter)];
                self.put(parameter, other.amount(parameter), source);
            }
        }
        self
    }

    /// Sets the delay of the link, unless one is given, and limits all rates to `rate`.
    pub fn on_link(mut self, delay: Duration, rate: Option<u64>) -> Self {
        if !delay.is_zero() && !self.is_given(CostParameter::LinkDelay) {
            self.put(
                CostParameter::LinkDelay,
                Amount::Time(delay),
                &"--delay".into(),
            );
        }
        self.limited(rate)
    }

    /// Adds to the delay of the link, and limits all rates to `rate`.
    pub fn with_added(mut self, delay: Duration, rate: Option<u64>) -> Self {
        self.model.link_delay += delay;
        self.limited(rate)
    }

    fn limited(mut self, rate: Option<u64>) -> Self {
        let Some(rate) = rate.map(|bits| (bits / 8).max(1)) else {
            return self;
        };
        for parameter in [
            CostParameter::Rate,
            CostParameter::ReadRate,
            CostParameter::WriteRate,
        ] {
            if matches!(self.amount(parameter), Amount::Rate(own) if own > rate) {
                self.put(parameter, Amount::Rate(rate), &LIMIT.into());
            }
        }
        self
    }

    fn text(&self, parameter: CostParameter) -> String {
        self.amount(parameter).to_string()
    }

    /// Formats the costs as on the command line.
    pub fn to_list(&self) -> String {
        let all = CostParameter::ALL.iter();
        let all = all.map(|&parameter| format!("{}={}", parameter.name(), self.text(parameter)));
        all.collect::<Vec<_>>().join(",")
    }

    /// Converts the costs to the JSON of a file, with `source` as their source.
    pub fn to_json(&self, source: &str) -> Value {
        let all = CostParameter::ALL.iter();
        let all = all.map(|&parameter| (parameter.name().to_owned(), self.text(parameter).into()));
        let source = (SOURCE.to_owned(), source.into());
        Value::Object(std::iter::once(source).chain(all).collect())
    }

    /// Formats a table with the value, source and meaning of each cost, followed by a file's
    /// description of its source.
    pub fn table(&self) -> String {
        let mut table = Table::new(3, ["cost", "what", "from", "value"]);
        for parameter in CostParameter::ALL {
            let value = match self.amount(parameter) {
                Amount::Time(time) => format!("{:.3} µs", time.as_secs_f64() * 1e6),
                Amount::Rate(CostModel::UNLIMITED) => UNLIMITED.to_owned(),
                Amount::Rate(rate) => format!("{:.3} Gbit/s", rate as f64 * 8.0 / 1e9),
            };
            table.push([
                parameter.name().to_owned(),
                parameter.meaning().to_owned(),
                self.sources[place(parameter)].to_string(),
                value,
            ]);
        }
        let mut text = table.render();
        if let Some(file) = &self.file {
            text.push_str(&format!("\n{FILE}: {file}\n"));
        }
        text
    }
}

fn place(parameter: CostParameter) -> usize {
    let found = CostParameter::ALL
        .iter()
        .position(|&other| other == parameter);
    found.unwrap_or_default()
}

fn named(name: &str) -> Result<CostParameter, String> {
    CostParameter::named(name.trim()).ok_or_else(|| {
        let names: Vec<&str> = CostParameter::ALL.iter().map(|all| all.name()).collect();
        format!("`{name}` is no cost: there are {}", names.join(", "))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn us(costs: &Costs, parameter: CostParameter) -> f64 {
        match costs.amount(parameter) {
            Amount::Time(time) => time.as_secs_f64() * 1e6,
            Amount::Rate(rate) => rate as f64,
        }
    }

    fn from_json(text: &str, file: &str) -> Result<Costs, String> {
        Costs::from_entries(Entries::from_json(text, file)?)
    }

    #[test]
    fn costs_are_read_as_they_are_written() {
        let costs =
            Costs::parse("link-delay=7us,rate=80g,call=1500ns,copy-rate=unlimited").unwrap();
        assert_eq!(us(&costs, CostParameter::LinkDelay), 7.0);
        assert_eq!(us(&costs, CostParameter::Rate), 1e10);
        assert_eq!(us(&costs, CostParameter::Call), 1.5);
        assert_eq!(
            us(&costs, CostParameter::CopyRate),
            CostModel::UNLIMITED as f64
        );
        assert!(costs.is_given(CostParameter::Call) && !costs.is_given(CostParameter::Interrupt));
        let again = Costs::parse(&costs.to_list()).unwrap();
        assert_eq!(again.model(), costs.model());
        assert!(again.is_given(CostParameter::Interrupt));
        let json = costs.to_json("measured").to_string();
        let again = from_json(&json, "costs.json").unwrap();
        assert_eq!(again.model(), costs.model());
        let table = again.table();
        assert!(table.ends_with("\nfile: costs.json: measured\n"), "{table}");
        assert_eq!(table.matches(" file ").count(), CostParameter::ALL.len());
    }

    #[test]
    fn what_is_wrong_is_said() {
        for (text, what) in [
            ("speed=1g", "`speed` is no cost: there are link-delay,"),
            ("rate=fast", "rate: "),
            ("call=5", "call: "),
            ("call=1us,call=2us", "call is given twice"),
            ("call=1us,", "`` is not NAME=VALUE"),
            ("/no/such/file", "/no/such/file: neither NAME=VALUE"),
        ] {
            let error = Costs::parse(text).unwrap_err();
            assert!(error.contains(what), "{text}: {error}");
        }
        for (text, what) in [
            ("[]", "no JSON object"),
            (r#"{"call": 5}"#, "a string is wanted"),
            (r#"{"source": 5}"#, "source is no string"),
            (r#"{"speed": "5us"}"#, "f: `speed` is no cost"),
        ] {
            let error = from_json(text, "f").unwrap_err();
            assert!(error.contains(what), "{text}: {error}");
        }
    }

    #[test]
    fn what_was_not_found_is_told_apart() {
        let model = CostModel {
            call: Duration::ZERO,
            interrupt: Duration::from_micros(40),
            ..CostModel::default()
        };
        let table = Costs::of(model, "measured").with_unfound().table();
        let from = |name: &str| {
            let line = table.lines().find(|line| line.starts_with(name));
            line.is_some_and(|line| line.contains(UNFOUND))
        };
        assert!(from("call ") && !from("interrupt "), "{table}");
    }

    #[test]
    fn the_device_decides_what_is_not_given() {
        let class = ClassCosts {
            rate: 3_000_000_000,
            interrupt: Duration::from_micros(8),
            ..ClassCosts::default()
        };
        let costs = Costs::parse("interrupt=2us").unwrap().or_of(&class);
        assert_eq!(us(&costs, CostParameter::Interrupt), 2.0);
        assert_eq!(us(&costs, CostParameter::Rate), 3e9);
        assert!(!costs.is_given(CostParameter::Rate));
        let table = costs.table();
        let from = |name: &str, source: &str| {
            let line = table.lines().find(|line| line.starts_with(name));
            assert!(line.is_some_and(|line| line.contains(source)), "{table}");
        };
        from("interrupt ", " --costs ");
        from("rate ", " device ");
        from("copy-rate ", " default ");
        // The slower one of link and device counts.
        for (link, wanted) in [(1_000_000_000, 1e9), (5_000_000_000, 3e9)] {
            let costs = Costs::default().on_link(Duration::ZERO, Some(8 * link));
            assert_eq!(us(&costs.or_of(&class), CostParameter::Rate), wanted);
        }
    }

    #[test]
    fn what_is_given_stands_before_what_is_known_otherwise() {
        let given = Costs::parse("call=9us").unwrap();
        let measured = Costs::of(
            CostModel {
                call: Duration::from_micros(5),
                interrupt: Duration::from_micros(40),
                ..CostModel::default()
            },
            "measured",
        );
        let both = given.or(&measured);
        assert_eq!(us(&both, CostParameter::Call), 9.0);
        assert_eq!(us(&both, CostParameter::Interrupt), 40.0);
        let ms = Duration::from_millis(1);
        let far = Costs::default().on_link(ms, Some(8_000_000));
        assert_eq!(us(&far, CostParameter::LinkDelay), 1000.0);
        assert_eq!(us(&far, CostParameter::ReadRate), 1e6);
        let given = Costs::parse("link-delay=3us").unwrap().on_link(ms, None);
        assert_eq!(us(&given, CostParameter::LinkDelay), 3.0);
        assert_eq!(
            us(&given.with_added(ms, None), CostParameter::LinkDelay),
            1003.0
        );
    }
}
