//! Values by family and labels.

use std::collections::BTreeMap;
use std::ops::AddAssign;

use rpc_transport::Latency;

/// The kind of a family of metrics.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A number that only grows.
    Counter,
    /// A number that goes up and down.
    Gauge,
    /// A histogram of durations.
    Histogram,
}

/// The unit of a family. It is the last part of the name before `_total`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// Bytes.
    Bytes,
    /// Seconds.
    Seconds,
}

/// A family of metrics: values with one name that differ in their labels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Family {
    /// The name without its unit and `_total`.
    pub stem: &'static str,
    /// The kind.
    pub kind: Kind,
    /// The unit, if it is not a number of things.
    pub unit: Option<Unit>,
    /// The names of the labels.
    pub labels: &'static [&'static str],
    /// The meaning, in one sentence.
    pub help: &'static str,
}

impl Family {
    /// Returns the name with its unit, as OpenMetrics has it.
    #[must_use]
    pub fn name(&self) -> String {
        match self.unit {
            None => self.stem.to_owned(),
            Some(Unit::Bytes) => format!("{}_bytes", self.stem),
            Some(Unit::Seconds) => format!("{}_seconds", self.stem),
        }
    }

    /// Returns the name by which queries know it.
    #[must_use]
    pub fn query_name(&self) -> String {
        match self.kind {
            Kind::Counter => format!("{}_total", self.name()),
            Kind::Gauge | Kind::Histogram => self.name(),
        }
    }
}

/// The value of a sample.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Value {
    Number(u64),
    Latency(Box<Latency>),
}

/// The values of labels, in the order of [`Family::labels`].
pub(crate) type Labels = Vec<String>;

/// Values by family and labels. Values with equal labels are added up.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Samples {
    pub(crate) families: BTreeMap<&'static str, (&'static Family, BTreeMap<Labels, Value>)>,
}

impl Samples {
    /// Adds a number to the sample with these labels.
    pub fn add(&mut self, family: &'static Family, labels: &[&str], number: u64) {
        debug_assert_ne!(family.kind, Kind::Histogram, "{}", family.stem);
        match self.value(family, labels, || Value::Number(0)) {
            Value::Number(sum) => *sum = sum.saturating_add(number),
            Value::Latency(_) => {}
        }
    }

    /// Adds latencies to the histogram with these labels.
    pub fn add_latency(&mut self, family: &'static Family, labels: &[&str], more: &Latency) {
        debug_assert_eq!(family.kind, Kind::Histogram, "{}", family.stem);
        match self.value(family, labels, || Value::Latency(Box::default())) {
            Value::Latency(sum) => sum.add_assign(*more),
            Value::Number(_) => {}
        }
    }

    /// Returns the number of a sample, or `None` if there is no such sample.
    #[must_use]
    pub fn number(&self, family: &Family, labels: &[&str]) -> Option<u64> {
        let labels: Labels = labels.iter().map(|&label| label.to_owned()).collect();
        match self.families.get(family.stem)?.1.get(&labels)? {
            Value::Number(number) => Some(*number),
            Value::Latency(latency) => Some(latency.count()),
        }
    }

    /// Returns the families that have samples.
    pub fn families(&self) -> impl Iterator<Item = &'static Family> {
        self.families.values().map(|(family, _)| *family)
    }

    fn value(
        &mut self,
        family: &'static Family,
        labels: &[&str],
        none: impl FnOnce() -> Value,
    ) -> &mut Value {
        debug_assert_eq!(family.labels.len(), labels.len(), "{}", family.stem);
        let (_, samples) = self
            .families
            .entry(family.stem)
            .or_insert_with(|| (family, BTreeMap::new()));
        let labels = labels.iter().map(|&label| label.to_owned()).collect();
        samples.entry(labels).or_insert_with(none)
    }
}
