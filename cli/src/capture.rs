//! `--capture`: the file, and its end in whatever way the process ends.

use std::io::ErrorKind;
use std::path::PathBuf;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rdma::Time;
use rdma_capture::{Capture, Stopped};
use rpcrdma_setup::{Context, Failure};

use crate::args::CaptureArgs;
use crate::output;

/// The interval at which packets are written that do not fill a buffer, so that the file of a
/// running server can be looked at.
const EVERY: Duration = Duration::from_millis(500);
/// The number of attempts of an ending process to complete a file that a device still uses, and the
/// time between two. They are limited, because a file system that does not answer must not keep the
/// process alive.
const TRIES: u32 = 100;
const BETWEEN: Duration = Duration::from_millis(10);

/// The capture of this process, and its file.
static CAPTURE: OnceLock<(Capture, PathBuf)> = OnceLock::new();

/// Whether the file could not be written.
static FAILED: AtomicBool = AtomicBool::new(false);

/// The clock of a capture.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Clock {
    /// The devices' monotonic clock, with the offset of the present time.
    Real,
    /// The virtual clock of a simulation, which begins in 1970.
    Virtual,
}

/// Creates the file, if one is wanted, and writes to it regularly.
///
/// # Errors
/// The file exists already, or cannot be created.
pub(crate) fn open(args: &CaptureArgs, clock: Clock) -> Result<Option<Capture>, Failure> {
    let capture = create(args, clock)?;
    write_regularly(capture.as_ref())?;
    Ok(capture)
}

/// Creates the file, if one is wanted. Starts no thread.
///
/// # Errors
/// The file exists already, or cannot be created.
pub(crate) fn create(args: &CaptureArgs, clock: Clock) -> Result<Option<Capture>, Failure> {
    let Some(path) = &args.capture else {
        return Ok(None);
    };
    let name = path.display().to_string();
    let epoch = match clock {
        Clock::Real => epoch(),
        Clock::Virtual => 0,
    };
    let told = name.clone();
    let on_stop = Box::new(move |why: &Stopped| {
        FAILED.fetch_or(matches!(why, Stopped::Failed(_)), Ordering::Relaxed);
        output::complain(format_args!("--capture {told}: {why}"));
    });
    let capture = Capture::create(path, args.limits(), epoch, on_stop).map_err(|error| {
        let why = match error.kind() {
            ErrorKind::AlreadyExists => "it exists: choose another name, or remove it".to_owned(),
            _ => format!("cannot create this file: {error}"),
        };
        Failure::Work(format!("--capture {name}: {why}"))
    })?;
    // `mount` changes its working directory.
    let path = std::path::absolute(path).unwrap_or_else(|_| path.clone());
    let (capture, _) = CAPTURE.get_or_init(|| (capture, path));
    Ok(Some(capture.clone()))
}

/// Starts the thread that writes what fills no buffer, if there is a capture.
///
/// # Errors
/// The error of the operating system.
pub(crate) fn write_regularly(capture: Option<&Capture>) -> Result<(), Failure> {
    let Some(capture) = capture.cloned() else {
        return Ok(());
    };
    let flush = move || loop {
        thread::sleep(EVERY);
        capture.flush(Time::now());
    };
    let thread = thread::Builder::new().name("capture".into());
    thread.spawn(flush).context("cannot start a thread")?;
    Ok(())
}

/// Completes the file, before the process ends. Returns whether all of it could be written; if not,
/// the user has been told.
pub(crate) fn finish() -> bool {
    if let Some((capture, _)) = CAPTURE.get() {
        for _ in 0..TRIES {
            if capture.try_finish() {
                break;
            }
            thread::sleep(BETWEEN);
        }
    }
    !FAILED.load(Ordering::Relaxed)
}

/// Removes the file of a command that has failed before there was anything to capture. Otherwise the same
/// command would be refused once its user has corrected it, because the file exists.
pub(crate) fn remove_empty() {
    if let Some((capture, path)) = CAPTURE.get()
        && capture.is_empty()
    {
        // The error that matters is the command's.
        let _ = std::fs::remove_file(path);
    }
}

/// Returns the time in nanoseconds since 1970 at which the monotonic clock was zero.
fn epoch() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    let nanos = now.map_or(0, |now| u64::try_from(now.as_nanos()).unwrap_or(u64::MAX));
    nanos.saturating_sub(Time::now().as_nanos())
}
