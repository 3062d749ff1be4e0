//! Reports of `conform`: files, the summary, and failures.

use std::fmt::Display;
use std::path::Path;

use rpcrdma_conform::report::Report;
use rpcrdma_setup::units::count;
use rpcrdma_setup::{Context, Failure};

use crate::args::ConformArgs;
use crate::output;

/// The exit status if nothing could be tested.
const UNTESTABLE: u8 = 2;

/// Writes the reports that options ask for.
pub(crate) fn written(args: &ConformArgs, report: &Report) -> Result<(), Failure> {
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
pub(crate) fn summary(
    args: &ConformArgs,
    what: &impl Display,
    report: &Report,
) -> Result<(), Failure> {
    let tally = report.tally(args.strict);
    if let Some(why) = &report.untestable {
        output::complain(format_args!("{what}: {why}"));
    }
    if let Some(lost) = &report.lost {
        output::complain(format_args!("{what}: {lost}"));
    }
    let number = |of: usize, one, many| count(of as u64, one, many);
    let mut text = format!(
        "{what}: {} passed, {}",
        number(tally.passed, "case", "cases"),
        number(tally.deviations, "deviation", "deviations")
    );
    for (of, kind) in [
        (tally.remarks, "from a SHOULD (--strict counts them)"),
        (tally.not_applicable, "not applicable"),
        (tally.not_tested, "skipped, as a simpler case failed"),
    ] {
        if of > 0 {
            text.push_str(&format!(", {of} {kind}"));
        }
    }
    output::line(text)
}

/// Returns the failure of a selection without cases.
pub(crate) fn nothing_selected(args: &ConformArgs) -> Failure {
    Failure::Usage(format!(
        "--only {}: no case has such an address (--list has all)",
        args.only.join(" --only ")
    ))
}

/// Checks the wait for messages.
pub(crate) fn check_timeout(args: &ConformArgs) -> Result<(), Failure> {
    match args.timeout.0.is_zero() {
        true => Err(Failure::usage("--timeout 0: nothing comes in no time")),
        false => Ok(()),
    }
}

/// Reports a failure that kept the server or client from being tested.
pub(crate) fn untestable(failure: Failure) -> Failure {
    match failure {
        Failure::Work(_) | Failure::Usage(_) => {
            output::complain(&failure);
            Failure::Told(UNTESTABLE)
        }
        other => other,
    }
}
