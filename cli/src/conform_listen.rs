//! The `conform --listen` command: a judgement of a client of any make.

use std::net::{SocketAddr, TcpListener};

use rpcrdma_conform::client::case::Case;
use rpcrdma_conform::client::cases;
use rpcrdma_conform::client::judge::judge;
use rpcrdma_conform::client::performance::Judge;
use rpcrdma_conform::endpoint::Listen;
use rpcrdma_conform::judge::Selection;
use rpcrdma_conform::report::{Entry, Report};
use rpcrdma_conform::watch::Watcher;
use rpcrdma_setup::access::LinkOptions;
use rpcrdma_setup::device::DeviceChoice;
use rpcrdma_setup::{Context, Failure};

use crate::args::ConformArgs;
use crate::capture::{self, Clock};
use crate::conform_capture::CaptureOfCases;
use crate::conform_client::UnderTest;
use crate::conform_device::ConformDevice;
use crate::conform_loopback;
use crate::conform_report::{about, check_timeout, ended, not_tested};
use crate::conform_selection::{Address, Chosen};
use crate::interrupt::Interruptible;
use crate::output;

/// Prints the cases of a selection.
///
/// # Errors
/// Standard output.
pub(crate) fn list(selection: &Selection) -> Result<(), Failure> {
    let is_selected = |case: &Case| selection.names(&case.address(), case.dialect.group());
    for case in cases::all().into_iter().filter(is_selected) {
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
pub(crate) fn run(args: &ConformArgs, address: SocketAddr) -> Result<(), Failure> {
    let addresses: Vec<Address> = cases::all().iter().map(Address::of_client).collect();
    let chosen = Chosen::new(args, &addresses)?;
    if args.list {
        return list(&chosen.selection);
    }
    check_timeout(args)?;
    let mut about = about(args, format_args!("client at {address}"));
    let interruptible = Interruptible::new()?;
    let judged = judged(args, address, &chosen, &interruptible);
    let (mut report, shown, address) = match judged {
        Ok(judged) => judged,
        Err(failure) => return Err(not_tested(args, about, failure)),
    };
    about.target = format!("client at {address}");
    chosen.complete(&mut report, args.strict);
    let is_interrupted = interruptible.interrupt().is_set();
    if is_interrupted {
        // Nor has it failed to connect.
        report.untestable = None;
        report.lost = Some("interrupted before the last case".into());
    }
    report.about = Some(about);
    let gone = match is_interrupted {
        true => Err(interruptible.failure(address)),
        false => Ok(()),
    };
    let what = format!("client at {address}");
    ended(args, &what, &report, shown, gone)
}

/// Performs the cases. Also returns whether the results could be printed, and the address that the client connects to.
fn judged(
    args: &ConformArgs,
    address: SocketAddr,
    chosen: &Chosen,
    interruptible: &Interruptible,
) -> Result<(Report, Result<(), Failure>, SocketAddr), Failure> {
    if args.loopback {
        conform_loopback::check_listener(address)?;
    }
    let capture = capture::open(&args.capture, Clock::Real)?;
    let listener: Box<dyn Listen> = match args.listening(address.ip())? {
        Some(choice) => {
            let choice = DeviceChoice {
                capture: capture.clone(),
                ..choice
            };
            let device = ConformDevice::open(choice, LinkOptions::default())?;
            Box::new(device.listen(address)?)
        }
        None => Box::new(TcpListener::bind(address).context(address)?),
    };
    let mount = TcpListener::bind((address.ip(), 0)).context(address.ip())?;
    let address = listener.address().context(address)?;
    let mut client = UnderTest::new(args, address, &mount, interruptible.interrupt())?;
    output::note(format_args!("listening on {address}"));
    let the_judge = Judge {
        listener: &*listener,
        mount: Some(&mount),
        patience: args.timeout.0,
        watcher: capture.map(|it| Watcher::new(Box::new(CaptureOfCases::new(it)))),
    };
    let mut shown = Ok(());
    let interrupt = interruptible.interrupt();
    let mut each = |entry: &Entry| {
        // The client of an operation that was interrupted has not failed by itself.
        let goes_on = !interrupt.is_set();
        // A reader that has gone does not end the judgement, which has reports and a status.
        if shown.is_ok() && goes_on && !output::is_quiet() {
            shown = output::line(chosen.marked(entry));
        }
        goes_on
    };
    let selection = &chosen.selection;
    let report = judge(&cases::all(), selection, &the_judge, &mut client, &mut each);
    let report = report.context(address)?;
    Ok((report, shown, address))
}
