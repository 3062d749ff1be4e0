//! The text formats: OpenMetrics 1.0, and Prometheus' 0.0.4.
//!
//! `prometheus-client` writes OpenMetrics. The older format has the same lines, except that a counter
//! has its suffix in its header as well, and that there are neither units nor an end.

use std::fmt;
use std::fmt::Write as _;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, MetricEncoder, NoLabelSet, text};
use prometheus_client::metrics::MetricType;
use prometheus_client::registry::{Registry, Unit as TextUnit};
use rpc_transport::LATENCY_BOUNDS;

use crate::request::Format;
use crate::samples::{Family, Kind, Samples, Unit, Value};

const NANOS: f64 = 1e9;

impl Samples {
    /// Returns the samples as text.
    ///
    /// # Errors
    /// Something cannot be written in the format.
    pub fn to_text(&self, format: Format) -> Result<String, fmt::Error> {
        let mut registry = Registry::default();
        registry.register_collector(Box::new(self.clone()));
        let mut out = String::new();
        text::encode(&mut out, &registry)?;
        Ok(match format {
            Format::OpenMetrics => out,
            Format::Prometheus => self.to_prometheus(&out),
        })
    }

    /// Turns OpenMetrics into the older format.
    fn to_prometheus(&self, text: &str) -> String {
        let counters: Vec<String> = self
            .families()
            .filter(|family| family.kind == Kind::Counter)
            .map(Family::name)
            .collect();
        let mut out = String::with_capacity(text.len());
        for line in text.lines() {
            let Some(comment) = line.strip_prefix("# ") else {
                let _ = writeln!(out, "{line}");
                continue;
            };
            let mut words = comment.splitn(3, ' ');
            let (Some(what @ ("HELP" | "TYPE")), Some(name), Some(rest)) =
                (words.next(), words.next(), words.next())
            else {
                continue;
            };
            let is_counter = counters.iter().any(|counter| counter == name);
            let suffix = if is_counter { "_total" } else { "" };
            let _ = writeln!(out, "# {what} {name}{suffix} {rest}");
        }
        out
    }
}

impl Collector for Samples {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        for (family, samples) in self.families.values() {
            let unit = family.unit.map(|unit| match unit {
                Unit::Bytes => TextUnit::Bytes,
                Unit::Seconds => TextUnit::Seconds,
            });
            let kind = match family.kind {
                Kind::Counter => MetricType::Counter,
                Kind::Gauge => MetricType::Gauge,
                Kind::Histogram => MetricType::Histogram,
            };
            let mut metric =
                encoder.encode_descriptor(family.stem, family.help, unit.as_ref(), kind)?;
            for (labels, value) in samples {
                let labels = labels.iter().map(|label| escaped(label));
                let labels: Vec<(&str, String)> =
                    family.labels.iter().copied().zip(labels).collect();
                match labels.is_empty() {
                    true => encode(&mut metric, family.kind, value)?,
                    false => encode(&mut metric.encode_family(&labels)?, family.kind, value)?,
                }
            }
        }
        Ok(())
    }
}

/// Returns the value of a label as it stands between quotation marks. `prometheus-client` does not escape
/// values.
fn escaped(label: &str) -> String {
    let mut out = String::with_capacity(label.len());
    for c in label.chars() {
        match c {
            '\\' => out.push_str("\\\\"),
            '"' => out.push_str("\\\""),
            '\n' => out.push_str("\\n"),
            c => out.push(c),
        }
    }
    out
}

fn encode(sample: &mut MetricEncoder<'_>, kind: Kind, value: &Value) -> fmt::Result {
    match value {
        Value::Number(number) if kind == Kind::Counter => {
            sample.encode_counter::<NoLabelSet, u64, u64>(number, None)
        }
        Value::Number(number) => {
            // `prometheus-client` refuses more, for example a limit that means no limit.
            sample.encode_gauge(&i64::try_from(*number).unwrap_or(i64::MAX))
        }
        Value::Latency(latency) => {
            let bounds = LATENCY_BOUNDS.iter().map(|bound| *bound as f64 / NANOS);
            let buckets = bounds.chain([f64::MAX]).zip(latency.buckets);
            let buckets: Vec<(f64, u64)> = buckets.collect();
            let (sum, count) = (latency.nanos as f64 / NANOS, latency.count());
            sample.encode_histogram::<NoLabelSet>(sum, count, &buckets, None)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    static CALLS: Family = Family {
        stem: "x_calls",
        kind: Kind::Counter,
        unit: None,
        labels: &["result"],
        help: "Calls.",
    };
    static MOVED: Family = Family {
        stem: "x_moved",
        kind: Kind::Counter,
        unit: Some(Unit::Bytes),
        labels: &[],
        help: "Bytes.",
    };
    static TIMES: Family = Family {
        stem: "x_times",
        kind: Kind::Histogram,
        unit: Some(Unit::Seconds),
        labels: &[],
        help: "Times.",
    };
    static NOW: Family = Family {
        stem: "x_now",
        kind: Kind::Gauge,
        unit: None,
        labels: &[],
        help: "At present.",
    };

    fn samples() -> Samples {
        let mut samples = Samples::default();
        samples.add(&CALLS, &["a \"word\"\\\n"], 3);
        samples.add(&CALLS, &["b"], 1);
        samples.add(&CALLS, &["b"], 4);
        samples.add(&MOVED, &[], 1 << 40);
        samples.add(&NOW, &[], 7);
        let mut latency = rpc_transport::Latency::default();
        latency.buckets[0] = 2;
        latency.buckets[1] = 1;
        latency.buckets[LATENCY_BOUNDS.len()] = 1;
        latency.nanos = 11_000_031_000;
        samples.add_latency(&TIMES, &[], &latency);
        samples
    }

    #[test]
    fn openmetrics_has_units_and_an_end() {
        let text = samples().to_text(Format::OpenMetrics).unwrap();
        for line in [
            "# TYPE x_calls counter",
            "x_calls_total{result=\"a \\\"word\\\"\\\\\\n\"} 3",
            "x_calls_total{result=\"b\"} 5",
            "# TYPE x_moved_bytes counter",
            "# UNIT x_moved_bytes bytes",
            "x_moved_bytes_total 1099511627776",
            "x_now 7",
            "# UNIT x_times_seconds seconds",
            "x_times_seconds_sum 11.000031",
            "x_times_seconds_count 4",
            "x_times_seconds_bucket{le=\"0.00001\"} 2",
            "x_times_seconds_bucket{le=\"0.00002\"} 3",
            "x_times_seconds_bucket{le=\"10.0\"} 3",
            "x_times_seconds_bucket{le=\"+Inf\"} 4",
        ] {
            assert!(text.lines().any(|it| it == line), "{line}\n{text}");
        }
        assert!(text.ends_with("# EOF\n"));
    }

    #[test]
    fn a_gauge_beyond_the_format_is_shown_as_its_maximum() {
        let mut samples = Samples::default();
        samples.add(&NOW, &[], u64::MAX);
        let text = samples.to_text(Format::Prometheus).unwrap();
        assert!(text.ends_with("x_now 9223372036854775807\n"), "{text}");
    }

    #[test]
    fn the_older_format_names_counters_in_full_and_has_no_units() {
        let text = samples().to_text(Format::Prometheus).unwrap();
        for line in [
            "# HELP x_calls_total Calls.",
            "# TYPE x_calls_total counter",
            "# TYPE x_moved_bytes_total counter",
            "# TYPE x_now gauge",
            "# TYPE x_times_seconds histogram",
            "x_calls_total{result=\"b\"} 5",
        ] {
            assert!(text.lines().any(|it| it == line), "{line}\n{text}");
        }
        assert!(!text.contains("# UNIT") && !text.contains("# EOF"));
    }
}
