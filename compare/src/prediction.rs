//! Checks whether the predictions of `explain` agree with the measurements.

use rpcrdma_setup::Failure;

use crate::rows::Row;

/// The relative difference within which two variants count as equal if no standard error is known.
const SAME: f64 = 0.05;
/// The minimum of that difference: measurements are never more exact.
const RESOLUTION: f64 = 0.02;
/// The number of standard errors within which two medians count as equal. More would happen by
/// chance in one of twenty cases.
const ERRORS: f64 = 2.0;
/// An operation whose medians have a larger relative error than this is not counted.
const TOO_NOISY: f64 = 0.25;
/// The tolerance for simulated or predicted times, which are exact.
const EXACT: f64 = 0.01;
/// The required share of correct predictions.
const WANTED: f64 = 0.9;

/// The number of operations whose fastest variant was predicted correctly, the number of all that
/// can be judged, and descriptions of the others.
#[derive(Debug, Default)]
struct Score {
    right: usize,
    all: usize,
    wrong: Vec<String>,
    unjudged: Vec<String>,
}

/// Returns sentences that say how often the prediction was right.
///
/// # Errors
/// Nothing can be printed.
pub(crate) fn report(rows: &[Row]) -> Vec<String> {
    let mut lines = Vec::new();
    let Score {
        right,
        all,
        wrong,
        unjudged,
    } = score(rows);
    if all > 0 {
        let but = match wrong.is_empty() {
            true => String::new(),
            false => format!(" (not {})", wrong.join("; ")),
        };
        lines.push(format!(
            "explain predicts the best transfer mode of {right} of {all} operations{but}."
        ));
    }
    if !unjudged.is_empty() {
        let unjudged = unjudged.join(", ");
        lines.push(format!("Too noisy to judge predictions: {unjudged}."));
    }
    lines
}

/// Checks that enough predictions were right.
///
/// # Errors
/// Fewer than [`WANTED`] of the predictions were right, or more operations were too noisy to judge
/// than not.
pub(crate) fn check(rows: &[Row]) -> Result<(), Failure> {
    let score = score(rows);
    let (right, all, unjudged) = (score.right, score.all, score.unjudged.len());
    if unjudged > all {
        let text =
            format!("--check-explain: {unjudged} operations are too noisy to judge, {all} not");
        return Err(Failure::Work(text));
    }
    if all == 0 {
        let text = "--check-explain: there is no operation that more than one transfer mode was \
                    predicted and measured for";
        return Err(Failure::work(text));
    }
    match (right as f64) < WANTED * all as f64 {
        true => Err(Failure::Work(format!(
            "--check-explain: {right} of {all} is not nine of ten"
        ))),
        false => Ok(()),
    }
}

/// A transfer mode of an operation: one or several variants that send the same messages.
#[derive(Debug)]
struct Way<'a> {
    variants: Vec<&'a str>,
    plan: &'a Option<String>,
    cost: f64,
    /// The time relative to the baseline from interleaved turns, or the median itself, with its
    /// standard error.
    time: f64,
    error: Option<f64>,
}

/// A time and its standard error.
type Taken = (f64, Option<f64>);

/// Returns the transfer modes of one operation.
fn ways<'a>(rows: &[&'a Row]) -> Vec<Way<'a>> {
    // Ratios of medians from interleaved turns are more exact than medians.
    let in_turns = rows.iter().all(|row| row.baseline_ratio.is_some());
    let mut ways: Vec<(Way<'a>, Vec<Taken>)> = Vec::new();
    for row in rows {
        let time = match in_turns {
            true => row.baseline_ratio,
            false => row.p50_us,
        };
        let (Some(cost), Some(time)) = (row.predicted_us, time) else {
            continue;
        };
        let measured = (time, row.baseline_ratio_error.filter(|_| in_turns));
        let same = |way: &(Way<'_>, _)| row.plan.is_some() && *way.0.plan == row.plan;
        match ways.iter_mut().find(|way| same(way)) {
            Some((way, all)) => {
                way.variants.push(row.conveyance);
                all.push(measured);
            }
            None => {
                let way = Way {
                    variants: vec![row.conveyance],
                    plan: &row.plan,
                    cost,
                    time,
                    error: measured.1,
                };
                ways.push((way, vec![measured]));
            }
        }
    }
    let ways = ways.into_iter().map(|(mut way, all)| {
        let count = all.len() as f64;
        way.time = all.iter().map(|(time, _)| time).sum::<f64>() / count;
        let errors: Option<Vec<f64>> = all.iter().map(|(_, error)| *error).collect();
        let squares = errors.map(|errors| errors.iter().map(|error| error * error).sum::<f64>());
        way.error = squares.map(|sum| sum.sqrt() / count);
        way
    });
    ways.collect()
}

/// The verdict on a prediction.
#[derive(Debug, PartialEq)]
enum Judged {
    Right,
    /// The predicted mode was slower than the best one: says which, and by how much.
    Wrong(String),
    TooNoisy,
}

/// Judges a prediction. The best modes are the fastest one and all that are not significantly
/// slower. The prediction is right if the mode with the lowest cost, or any of the same cost, is
/// among them.
fn judge(ways: &[Way<'_>], simulated: bool) -> Option<Judged> {
    let best = ways.iter().min_by(|a, b| a.time.total_cmp(&b.time))?;
    let cost = ways
        .iter()
        .map(|way| way.cost)
        .fold(f64::INFINITY, f64::min);
    let slack = |way: &Way<'_>| match (way.error, best.error) {
        _ if simulated => EXACT * best.time,
        (Some(a), Some(b)) => (ERRORS * a.hypot(b)).max(RESOLUTION * best.time),
        _ => SAME * best.time,
    };
    let predicted = ways.iter().filter(|way| way.cost <= cost * (1.0 + EXACT));
    let predicted = predicted.min_by(|a, b| a.time.total_cmp(&b.time))?;
    let slack = slack(predicted);
    Some(if predicted.time <= best.time + slack {
        match slack > TOO_NOISY * best.time {
            true => Judged::TooNoisy,
            false => Judged::Right,
        }
    } else {
        let more = (predicted.time / best.time - 1.0) * 100.0;
        Judged::Wrong(format!(
            "{} {} {more:.0} % more than {}",
            predicted.variants.join(" and "),
            if predicted.variants.len() == 1 {
                "takes"
            } else {
                "take"
            },
            best.variants.join(" and ")
        ))
    })
}

fn score(rows: &[Row]) -> Score {
    let mut score = Score::default();
    let mut seen = Vec::new();
    for first in rows {
        let cell = |row: &Row| (row.op, row.size, row.mode);
        if seen.contains(&cell(first)) {
            continue;
        }
        seen.push(cell(first));
        let of_cell = rows.iter().filter(|row| cell(row) == cell(first));
        let predicted = of_cell.filter(|row| row.predicted_us.is_some());
        let predicted: Vec<&Row> = predicted.collect();
        if predicted.len() < 2 {
            continue;
        }
        let simulated = predicted
            .iter()
            .all(|row| row.device.as_deref() == Some("sim"));
        let size = first.size.map(rpcrdma_setup::units::show_size);
        let size = size.map_or_else(String::new, |size| format!(" {size}"));
        let name = format!("{}{size}", first.op);
        let ways = ways(&predicted);
        if ways.len() < 2 {
            // All variants send the same messages, so there is nothing to choose.
            continue;
        }
        match judge(&ways, simulated) {
            None => {}
            Some(Judged::TooNoisy) => score.unjudged.push(name),
            Some(judged) => {
                score.all += 1;
                match judged {
                    Judged::Wrong(why) => score.wrong.push(format!("{name}: {why}")),
                    _ => score.right += 1,
                }
            }
        }
    }
    score
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rows::tests::sample;

    fn row(conveyance: &'static str, predicted: f64, p50: f64) -> Row {
        Row {
            conveyance,
            predicted_us: Some(predicted),
            p50_us: Some(p50),
            baseline_ratio: None,
            ..sample()
        }
    }

    fn in_turns(conveyance: &'static str, predicted: f64, ratio: f64, error: f64) -> Row {
        Row {
            baseline_ratio: Some(ratio),
            baseline_ratio_error: Some(error),
            ..row(conveyance, predicted, 1000.0)
        }
    }

    #[test]
    fn the_best_that_is_predicted_is_the_best_that_is_measured() {
        let right = [row("v1", 30.0, 60.0), row("v2", 10.0, 40.0)];
        assert_eq!((score(&right).right, score(&right).all), (1, 1));
        let wrong = [row("v1", 30.0, 30.0), row("v2", 10.0, 40.0)];
        assert_eq!((score(&wrong).right, score(&wrong).all), (0, 1));
        assert!(score(&wrong).wrong[0].contains("v2 takes 33 % more than v1"));
        assert!(check(&wrong).is_err());
        assert!(check(&right).is_ok());
        assert!(check(&[]).is_err(), "nothing was looked at");
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

    #[test]
    fn modes_whose_difference_could_be_noise_are_as_good() {
        let differ = |error| {
            let rows = [
                in_turns("v1", 30.0, 1.0, error),
                in_turns("v2", 10.0, 1.06, error),
            ];
            (score(&rows).right, score(&rows).all)
        };
        assert_eq!(differ(0.001), (0, 1), "no noise");
        assert_eq!(differ(0.03), (1, 1));
        assert_eq!(differ(0.2), (0, 0), "anything could be as good");
        let noisy = [("v1", 30.0), ("v2", 10.0)].map(|(via, cost)| in_turns(via, cost, 1.0, 0.2));
        let failure = check(&noisy).unwrap_err().to_string();
        assert!(
            failure.contains("1 operations are too noisy to judge, 0 not"),
            "{failure}"
        );
        // A difference that exceeds all noise is wrong, however large the noise is.
        let rows = [
            in_turns("v1", 30.0, 1.0, 0.2),
            in_turns("v2", 10.0, 9.0, 0.2),
        ];
        assert_eq!((score(&rows).right, score(&rows).all), (0, 1));
    }

    #[test]
    fn the_same_messages_are_one_way() {
        let with = |mut row: Row, plan: &str| {
            row.plan = Some(plan.to_owned());
            row
        };
        // One of two equal variants was fast by chance: together they are not the best.
        let rows = [
            with(in_turns("v2-ddp", 10.0, 0.90, 0.001), "placed"),
            with(in_turns("v2-ddp-cont", 10.0, 1.10, 0.001), "placed"),
            with(in_turns("v2", 12.0, 0.95, 0.001), "chunk"),
        ];
        assert_eq!((score(&rows).right, score(&rows).all), (0, 1));
        let all: Vec<&Row> = rows.iter().collect();
        let ways = ways(&all);
        assert_eq!(ways.len(), 2);
        assert_eq!(ways[0].time, 1.0);
        assert_eq!(ways[0].variants, ["v2-ddp", "v2-ddp-cont"]);
    }
}
