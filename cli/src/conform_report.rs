//! Reports of `conform`: files, the summary, and failures.

use std::fmt::Display;
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use rpcrdma_conform::about::About;
use rpcrdma_conform::report::Report;
use rpcrdma_setup::units::{count, show_date};
use rpcrdma_setup::{Context, Failure};

use crate::args::ConformArgs;
use crate::output;

/// The exit status if nothing could be tested.
const UNTESTABLE: u8 = 2;

/// Returns the circumstances of a judgement of `target` that begins now.
pub(crate) fn about(args: &ConformArgs, target: impl Display) -> About {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    let date = show_date(now.map_or(0, |now| now.as_secs()));
    let cases = args.cases.iter().map(|it| it.display().to_string());
    About {
        version: env!("RPCRDMA_VERSION").into(),
        target: target.to_string(),
        device: args.device.as_ref().map(ToString::to_string),
        date: format!("{}Z", date.replace(' ', "T")),
        strict: args.strict,
        hostile: args.hostile,
        read_only: args.read_only,
        timeout: args.timeout.0.as_secs_f64(),
        only: args.only.clone(),
        skip: args.skip.clone(),
        cases: cases.collect(),
    }
}

/// Writes the reports that options ask for.
fn written(args: &ConformArgs, report: &Report) -> Result<(), Failure> {
    let write = |path: &Path, text: String| std::fs::write(path, text).context(path.display());
    if let Some(path) = &args.junit {
        write(path, report.junit(args.strict))?;
    }
    if let Some(path) = &args.json {
        let text = serde_json::to_string_pretty(report).map_err(Failure::work)?;
        write(path, text + "\n")?;
    }
    Ok(())
}

/// Prints how many cases ended how, and why the others are missing. `what` was judged.
fn summary(args: &ConformArgs, what: &impl Display, report: &Report) -> Result<(), Failure> {
    let tally = report.tally(args.strict);
    if let Some(why) = &report.untestable {
        output::complain(format_args!("{what}: {why}"));
    }
    if let Some(lost) = &report.lost {
        output::complain(format_args!("{what}: {lost}"));
    }
    if let Some(known) = &report.known {
        for (what, addresses) in [
            ("new deviations", &known.new),
            ("known deviations that pass now", &known.passed),
            (
                "known deviations that were not tested",
                &known.not_performed,
            ),
        ] {
            if !addresses.is_empty() {
                output::line(format_args!("{what}: {}", addresses.join(" ")))?;
            }
        }
    }
    let number = |of: usize, one, many| count(of as u64, one, many);
    let mut text = format!(
        "{what}: {} passed, {}",
        number(tally.passed, "case", "cases"),
        number(tally.deviations, "deviation", "deviations")
    );
    let skipped = match report.left_out {
        0 => "skipped, as a simpler case failed",
        _ => "skipped, as a simpler case failed or was left out",
    };
    for (of, kind) in [
        (tally.known, "known"),
        (tally.remarks, "from a SHOULD (--strict counts them)"),
        (tally.not_applicable, "not applicable"),
        (tally.not_tested, skipped),
        (report.left_out, "left out (--skip)"),
    ] {
        if of > 0 {
            text.push_str(&format!(", {of} {kind}"));
        }
    }
    output::line(text)
}

/// Ends a judgement of `what`: writes the reports that options ask for, prints the summary, and returns the exit status.
/// `shown` is what became of the output so far, and `gone` why the judgement is not complete, or what else went wrong.
pub(crate) fn ended(
    args: &ConformArgs,
    what: &impl Display,
    report: &Report,
    shown: Result<(), Failure>,
    gone: Result<(), Failure>,
) -> Result<(), Failure> {
    let written = written(args, report);
    let printed = shown.and_then(|()| summary(args, what, report));
    let judged = gone.and_then(|()| match report.status(args.strict) {
        0 => Ok(()),
        status => Err(Failure::Told(status)),
    });
    output::ended(output::ended(judged, printed), written)
}

/// Checks the wait for messages.
pub(crate) fn check_timeout(args: &ConformArgs) -> Result<(), Failure> {
    match args.timeout.0.is_zero() {
        true => Err(Failure::usage("--timeout 0: nothing comes in no time")),
        false => Ok(()),
    }
}

/// Reports a failure that kept the server or client from being tested, also in the files that options ask for, so that
/// a program that reads these does not take them for those of a test without cases.
pub(crate) fn not_tested(args: &ConformArgs, about: About, failure: Failure) -> Failure {
    match failure {
        Failure::Work(_) | Failure::Usage(_) => {
            let report = Report {
                about: Some(about),
                untestable: Some(failure.to_string()),
                ..Report::default()
            };
            output::complain(&failure);
            if let Err(unwritten) = written(args, &report) {
                output::complain(unwritten);
            }
            Failure::Told(UNTESTABLE)
        }
        other => other,
    }
}
