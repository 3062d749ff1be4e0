//! `compare`: prints what `rpcrdma_compare` measures, and writes it to files.

mod gateway;
mod outputs;
mod runs;
pub(crate) mod server;

use rdma::Clock;
use rpcrdma_compare::{Comparison, Measured, Options, end_command, end_delay};
use rpcrdma_setup::Failure;
use rpcrdma_setup::catalog::Catalog;
use rpcrdma_setup::columns::wrap;
use rpcrdma_setup::device::DeviceName;

use crate::args::CompareArgs;
use crate::capture;
use crate::interrupt;
use crate::output;
use crate::progress::Status;
use crate::trace;
use outputs::{Outputs, Results};

/// The width of paragraphs, which is that of the tables.
const WIDTH: usize = 100;

/// Runs the measurements and prints the results.
///
/// # Errors
/// A process does not start, an operation fails, or the rows cannot be written.
pub(crate) fn run(args: &CompareArgs, catalog: &Catalog) -> Result<(), Failure> {
    args.check(catalog)?;
    let tuning = args.tuning.tuning_without_variants(catalog)?;
    if args.inline != Options::default().inline {
        tuning.check_beside_inline("--inline")?;
    }
    if let Some((options, run)) = args.run_options() {
        if args.trace.trace.is_some() {
            let text = "--trace: not with --run; `rpcrdma mount --trace FILE` traces a mount";
            return Err(Failure::usage(text));
        }
        return runs::run(args, Options { tuning, ..options }, run);
    }
    let server = args.server.as_deref().map(server::address);
    let mut options = Options {
        tuning,
        server: server.transpose()?,
        ..args.options()
    };
    if args.gateway {
        return gateway::run(args, options);
    }
    Comparison::new(options.clone())?;
    if options.device == DeviceName::Sim && args.capture.capture.is_some() {
        let text =
            "--capture: not with --device sim; `rpcrdma sim --seed N --capture FILE` shows one";
        return Err(Failure::usage(text));
    }
    // Before anything is measured: a file that cannot be written would waste it all.
    let outputs = Outputs::open(args)?;
    options.capture = capture::open(&args.capture, capture::Clock::Real)?;
    let clock = match options.device == DeviceName::Sim {
        true => Clock::simulated(),
        false => Clock::monotonic(),
    };
    options.trace = trace::open(&args.trace, clock)?;
    let has_file = options.capture.is_some() || options.trace.is_some();
    if has_file && args.set_delay.is_none() {
        interrupt::handle()?;
    }
    let comparison = Comparison::new(options)?;
    clean_up_on_signals(args)?;
    let status = (args.device != DeviceName::Sim).then(Status::every_update);
    let show = |what: &dyn std::fmt::Display| {
        if let Some(status) = &status {
            status.show(what);
        }
    };
    let details = outputs.has_files();
    let measured = comparison.measure(details, &show, |failure| output::complain(failure))?;
    drop(status);

    let checked = match args.check_explain {
        true => measured.check_predictions(),
        false => Ok(()),
    };
    let (tested, printed) = match outputs.write(&measured) {
        Ok(results) => {
            let printed = print(&measured, &results, args.explain);
            (results.check(), printed)
        }
        Err(failure) => (Ok(()), Err(failure)),
    };
    output::ended(checked.and(tested), printed)
}

/// Prints the results, with the plan of each operation if `explain` is set.
fn print(measured: &Measured, results: &Results, explain: bool) -> Result<(), Failure> {
    if results.tables {
        let conditions = format!("{} {}", measured.summary, measured.machine);
        output::line(format_args!("{}\n", wrap(&conditions, WIDTH)))?;
        measured.tables().iter().try_for_each(output::line)?;
        let paragraph = |text: &String| output::line(wrap(text, WIDTH));
        measured.answer().iter().try_for_each(paragraph)?;
        let legend = measured.legend();
        if !legend.is_empty() && !measured.is_of_receives() {
            output::line("")?;
            // Running text, so that all of the answer is seen at once on a terminal.
            paragraph(&legend.join(" "))?;
        }
        measured.noise.as_ref().map_or(Ok(()), output::line)?;
        results.print_changes()?;
        measured.predictions().iter().try_for_each(output::line)?;
        if let Some(costs) = measured.cost_table() {
            output::line(format_args!("Predictions went by:\n{costs}"))?;
        }
    }
    if results.tables && explain {
        measured.plans()?.iter().try_for_each(output::line)?;
    }
    Ok(())
}

/// Ends the command of `--run`, and removes the delay of the network, when a signal ends this program.
fn clean_up_on_signals(args: &CompareArgs) -> Result<(), Failure> {
    let set_delay = args.set_delay.clone();
    if set_delay.is_none() && args.run.is_none() {
        return Ok(());
    }
    interrupt::on_signals(move |signal| {
        end_command();
        if let Some(command) = &set_delay
            && let Err(failure) = end_delay(command)
        {
            output::complain(failure);
        }
        interrupt::die(signal);
    })
}
