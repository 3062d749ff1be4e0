//! `compare --gateway`: prints what two gateways cost, and what passes between them.

use rpcrdma_compare::{GatewayComparison, Options};
use rpcrdma_setup::Failure;
use rpcrdma_setup::columns::wrap;

use super::WIDTH;
use super::outputs::{JSON, Place};
use crate::args::CompareArgs;
use crate::output;
use crate::progress::Status;

/// Performs the measurements and prints the results.
///
/// # Errors
/// A process does not start, an operation fails, or the rows cannot be written.
pub(super) fn run(args: &CompareArgs, options: Options) -> Result<(), Failure> {
    let comparison = GatewayComparison::new(options)?;
    // Before anything is measured: a file that cannot be written would waste it all.
    let json = Place::of(JSON, args.json.as_deref())?;
    let status = Status::every_update();
    let measured = comparison.measure(&|what| status.show(what))?;
    drop(status);

    let tables = !matches!(json, Some(Place::Stdout));
    if let Some(json) = json {
        json.write(&serde_json::to_string_pretty(&measured.rows).map_err(Failure::work)?)?;
    }
    if tables {
        let conditions = format!("{} {}", measured.summary, measured.machine);
        output::line(format_args!("{}\n", wrap(&conditions, WIDTH)))?;
        measured.tables().iter().try_for_each(output::line)?;
        let paragraph = |text: &String| output::line(wrap(text, WIDTH));
        measured.answer().iter().try_for_each(paragraph)?;
    }
    Ok(())
}
