//! The `conform --listen` command: a judgement of a client of any make.

use std::net::{SocketAddr, TcpListener};

use rpcrdma_conform::client::case::Case;
use rpcrdma_conform::client::cases;
use rpcrdma_conform::client::judge::judge;
use rpcrdma_conform::client::performance::Judge;
use rpcrdma_conform::judge::Selection;
use rpcrdma_conform::report::Entry;
use rpcrdma_conform::watch::Watcher;
use rpcrdma_setup::{Context, Failure};

use crate::args::ConformArgs;
use crate::capture::{self, Clock};
use crate::conform_capture::CaptureOfCases;
use crate::conform_client::UnderTest;
use crate::conform_report::{check_timeout, nothing_selected, summary, untestable, written};
use crate::interrupt::Interruptible;
use crate::output;

/// Returns the cases of a selection.
pub(crate) fn selected(selection: &Selection) -> impl Iterator<Item = Case> {
    let cases = cases::all().into_iter();
    cases.filter(|case| selection.names(&case.address(), case.dialect.group()))
}

/// Prints the cases.
///
/// # Errors
/// Standard output.
pub(crate) fn list(selection: &Selection) -> Result<(), Failure> {
    for case in selected(selection) {
        output::line(format_args!(
            "{} {}: {} ({}): {}",
            case.address(),
            case.level,
            case.does,
            case.operation,
            case.expects
        ))?;
    }
    Ok(())
}

/// Judges a client.
///
/// # Errors
/// The client deviates, or cannot be tested.
pub(crate) fn run(
    args: &ConformArgs,
    address: SocketAddr,
    selection: &Selection,
) -> Result<(), Failure> {
    if selected(selection).next().is_none() {
        return Err(nothing_selected(args));
    }
    if args.list {
        return list(selection);
    }
    check_timeout(args)?;
    let listener = TcpListener::bind(address)
        .context(address)
        .map_err(untestable)?;
    let mount = TcpListener::bind((address.ip(), 0)).context(address.ip());
    let mount = mount.map_err(untestable)?;
    let address = listener.local_addr().context(address).map_err(untestable)?;
    let interruptible = Interruptible::new()?;
    let mut client = UnderTest::new(args, address, &mount, interruptible.interrupt())?;
    output::note(format_args!("listening on {address}"));
    let capture = capture::open(&args.capture, Clock::Real).map_err(untestable)?;
    let the_judge = Judge {
        listener: &listener,
        mount: Some(&mount),
        patience: args.timeout.0,
        watcher: capture.map(|it| Watcher::new(Box::new(CaptureOfCases::new(it)))),
    };
    let mut shown = Ok(());
    let interrupt = interruptible.interrupt();
    let mut each = |entry: &Entry| {
        // The client of an operation that was interrupted has not failed by itself.
        let goes_on = !interrupt.is_set();
        if goes_on && !output::is_quiet() {
            shown = output::line(entry);
        }
        shown.is_ok() && goes_on
    };
    let report = judge(&cases::all(), selection, &the_judge, &mut client, &mut each);
    let mut report = report.context(address).map_err(untestable)?;
    shown?;
    let is_interrupted = interruptible.interrupt().is_set();
    if is_interrupted {
        // Nor has it failed to connect.
        report.untestable = None;
        report.lost = Some("interrupted before the last case".into());
    }
    written(args, &report)?;
    summary(args, &format_args!("client at {address}"), &report)?;
    if is_interrupted {
        return Err(interruptible.failure(address));
    }
    match report.status(args.strict) {
        0 => Ok(()),
        status => Err(Failure::Told(status)),
    }
}
