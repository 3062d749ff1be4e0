//! Whether what `explain` predicts comes true.

use crate::compare::rows::Row;
use crate::failure::Failure;
use crate::output;

/// How much more than the least may be called as good, of what is measured: rounds differ by that.
const SAME: f64 = 0.05;
/// The same of what is simulated or predicted, which is exact.
const EXACT: f64 = 0.01;
/// Share of operations for which the prediction is to be right.
const WANTED: f64 = 0.9;

/// Operations for which the best conveyance was predicted, and all that can be judged; what the others
/// are.
#[derive(Debug, Default)]
struct Score {
    right: usize,
    all: usize,
    wrong: Vec<String>,
}

/// Says how often the prediction was right; fails if `wanted` and that is too seldom.
///
/// # Errors
/// It is, or nothing can be printed.
pub(super) fn report(rows: &[Row], wanted: bool) -> Result<(), Failure> {
    let score = score(rows);
    if score.all > 0 {
        let Score { right, all, wrong } = &score;
        let but = match wrong.is_empty() {
            true => String::new(),
            false => format!(" (not {})", wrong.join(", ")),
        };
        output::line(format_args!(
            "explain predicts the best conveyance of {right} of {all} operations{but}."
        ))?;
    }
    match wanted && (score.right as f64) < WANTED * score.all as f64 {
        true => Err(Failure::work("--check-explain: that is not nine of ten")),
        false => Ok(()),
    }
}

/// Each operation's best conveyance is the one with the least latency, or any that is as good; it is
/// predicted if the one with the least cost, or any that costs the same, is among them.
fn score(rows: &[Row]) -> Score {
    let mut score = Score::default();
    let mut seen = Vec::new();
    for first in rows {
        let cell = |row: &Row| (row.op, row.size, row.mode);
        if seen.contains(&cell(first)) {
            continue;
        }
        seen.push(cell(first));
        let both = rows
            .iter()
            .filter(|row| cell(row) == cell(first))
            .filter_map(|row| Some((row.predicted_us?, row.p50_us?)));
        let both: Vec<(f64, f64)> = both.collect();
        if both.len() < 2 {
            continue;
        }
        let simulated = first.device.as_deref() == Some("sim");
        let slack = if simulated { EXACT } else { SAME };
        let least = |of: fn(&(f64, f64)) -> f64| both.iter().map(of).fold(f64::INFINITY, f64::min);
        let (cost, time) = (least(|it| it.0), least(|it| it.1));
        let right = both
            .iter()
            .any(|it| it.0 <= cost * (1.0 + EXACT) && it.1 <= time * (1.0 + slack));
        score.all += 1;
        match right {
            true => score.right += 1,
            false => {
                let size = first.size.map(crate::args::units::show_size);
                let size = size.map_or_else(String::new, |size| format!(" {size}"));
                score.wrong.push(format!("{}{size}", first.op));
            }
        }
    }
    score
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::compare::rows::tests::sample;

    fn row(conveyance: &'static str, predicted: f64, p50: f64) -> Row {
        Row {
            conveyance,
            predicted_us: Some(predicted),
            p50_us: Some(p50),
            ..sample()
        }
    }

    #[test]
    fn the_best_that_is_predicted_is_the_best_that_is_measured() {
        let right = [row("v1", 30.0, 60.0), row("v2", 10.0, 40.0)];
        assert_eq!((score(&right).right, score(&right).all), (1, 1));
        let wrong = [row("v1", 30.0, 30.0), row("v2", 10.0, 40.0)];
        assert_eq!((score(&wrong).right, score(&wrong).all), (0, 1));
        assert!(report(&wrong, false).is_ok());
        assert!(report(&wrong, true).is_err());
        assert!(report(&right, true).is_ok());
    }

    #[test]
    fn what_is_as_good_counts_and_what_cannot_be_judged_does_not() {
        let same = [row("v1", 10.0, 40.9), row("v2", 10.05, 40.0)];
        assert_eq!(score(&same).right, 1);
        let alone = [row("v1", 10.0, 40.0)];
        assert_eq!(score(&alone).all, 0);
        let mut tcp = row("tcp", 1.0, 1.0);
        tcp.predicted_us = None;
        assert_eq!(score(&[tcp, row("v1", 10.0, 40.0)]).all, 0);
    }
}
