//! The JSON of rows: with standard names, and in release 0.2 also with the names of release 0.1.

use serde::Serialize;

use crate::rows::Row;
use crate::run::RunRow;

/// Keys of rows, and their names in release 0.1. Files of release 0.2 have both.
pub(crate) const OLD_KEYS: [(&str, &str); 7] = [
    ("transfer_mode", "conveyance"),
    ("tcp_baseline_p50_us", "floor_p50_us"),
    ("tcp_baseline_spread", "floor_spread"),
    ("tcp_baseline_ratio", "floor_ratio"),
    ("tcp_stream_mib_per_s", "raw_stream_mib_per_s"),
    ("tcp_stream_spread", "raw_stream_spread"),
    ("tcp_stream_ratio", "stream_ratio"),
];

/// The keys that a row had before, with their values.
#[derive(Debug, Serialize)]
struct OldKeys {
    conveyance: &'static str,
    floor_p50_us: Option<f64>,
    floor_spread: Option<f64>,
    floor_ratio: Option<f64>,
    raw_stream_mib_per_s: Option<f64>,
    raw_stream_spread: Option<f64>,
    stream_ratio: Option<f64>,
    v1_ratio: Option<f64>,
    v1_ratio_error: Option<f64>,
}

/// The keys that a row of `--run` had before.
#[derive(Debug, Serialize)]
struct OldRunKeys {
    conveyance: &'static str,
    v1_ratio: Option<f64>,
    v1_ratio_min: Option<f64>,
    v1_ratio_max: Option<f64>,
}

#[derive(Debug, Serialize)]
struct Written<'a, R, O> {
    #[serde(flatten)]
    row: &'a R,
    #[serde(flatten)]
    old: O,
}

/// Returns the rows as they are written to JSON: with the keys of [`Row`], and for one release with
/// those that they had before.
pub fn rows_json(rows: &[Row]) -> impl Serialize + use<'_> {
    rows.iter().map(written).collect::<Vec<_>>()
}

fn written(row: &Row) -> impl Serialize + use<'_> {
    let Row {
        conveyance,
        floor_p50_us,
        floor_spread,
        floor_ratio,
        raw_stream_mib_per_s,
        raw_stream_spread,
        stream_ratio,
        v1_ratio,
        v1_ratio_error,
        ..
    } = *row;
    let old = OldKeys {
        conveyance,
        floor_p50_us,
        floor_spread,
        floor_ratio,
        raw_stream_mib_per_s,
        raw_stream_spread,
        stream_ratio,
        v1_ratio,
        v1_ratio_error,
    };
    Written { row, old }
}

/// Returns the rows of `--run` as they are written to JSON, like [`rows_json`].
pub fn run_rows_json(rows: &[RunRow]) -> impl Serialize + use<'_> {
    rows.iter().map(written_run).collect::<Vec<_>>()
}

fn written_run(row: &RunRow) -> impl Serialize + use<'_> {
    let &RunRow {
        conveyance,
        v1_ratio,
        v1_ratio_min,
        v1_ratio_max,
        ..
    } = row;
    let old = OldRunKeys {
        conveyance,
        v1_ratio,
        v1_ratio_min,
        v1_ratio_max,
    };
    Written { row, old }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rows::tests::sample;

    #[test]
    fn a_file_has_each_renamed_key_under_both_names() {
        let rows = [sample()];
        let json = serde_json::to_value(rows_json(&rows)).unwrap();
        let own = serde_json::to_value(sample()).unwrap();
        for (new, old) in OLD_KEYS {
            assert_eq!(json[0][new], json[0][old], "{old}");
            assert!(own.get(old).is_none(), "{old}");
            assert!(json[0].get(new).is_some(), "{new}");
        }
        assert_eq!(json[0]["v1_ratio"], 1.0);
        let rows = crate::run::tests::two();
        let json = serde_json::to_value(run_rows_json(&rows)).unwrap();
        assert_eq!(json[1]["conveyance"], "v2-ddp-cont");
        assert_eq!(json[1]["transfer_mode"], "v2-ddp-cont");
        assert_eq!(json[1]["v1_ratio"], 0.5);
    }
}
