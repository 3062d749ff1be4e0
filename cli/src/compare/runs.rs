//! `compare --run`: prints what a command cost over each transport.

use rpcrdma_compare::{Options, RunOptions, RunReport, Runs, run_rows_json};
use rpcrdma_setup::Failure;
use rpcrdma_setup::columns::wrap;

use super::outputs::{JSON, Place, facts};
use super::{WIDTH, clean_up_on_signals};
use crate::args::CompareArgs;
use crate::output;
use crate::progress::Status;

/// Runs the command and prints the results.
///
/// # Errors
/// A process does not start, the command fails, or the rows cannot be written.
pub(super) fn run(args: &CompareArgs, options: Options, run: RunOptions) -> Result<(), Failure> {
    let runs = Runs::new(options, run)?;
    // Before anything is measured: a file that cannot be written would waste it all.
    let json = Place::of(JSON, args.json.as_deref())?;
    let html = Place::of("--html", args.html.as_deref())?;
    clean_up_on_signals(args)?;
    let status = Status::every_update();
    let show = |what: &dyn std::fmt::Display| status.show(what);
    let measured = runs.measure(&show, |failure| output::complain(failure))?;
    drop(status);

    let legend = measured.legend();
    if let Some(html) = html {
        let report = RunReport {
            rows: &measured.rows,
            summary: &measured.summary,
            machine: &measured.machine,
            legend: &legend,
            facts: &facts(),
        };
        html.write(&report.render().map_err(Failure::work)?)?;
    }
    let tables = !matches!(json, Some(Place::Stdout));
    if let Some(json) = json {
        json.write(
            &serde_json::to_string_pretty(&run_rows_json(&measured.rows)).map_err(Failure::work)?,
        )?;
    }
    if tables {
        output::line(wrap(&measured.summary, WIDTH))?;
        output::line(format_args!("{}\n", wrap(&measured.machine, WIDTH)))?;
        output::line(measured.table())?;
        let paragraph = |text: &String| output::line(wrap(text, WIDTH));
        measured.answer().iter().try_for_each(paragraph)?;
        output::line("")?;
        legend.iter().try_for_each(paragraph)?;
    }
    Ok(())
}
