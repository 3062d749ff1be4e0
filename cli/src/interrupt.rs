//! Signals: the first one ends the current operation gracefully, and then the process as the signal's default
//! action would.

use std::fs;
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use nfs_copy::Interrupt;
use rpcrdma_setup::{Context, Failure};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM, SIGXFSZ};
use signal_hook::iterator::Signals;
use signal_hook::low_level::emulate_default_handler;

/// The operation that the next signal interrupts.
static CURRENT: Mutex<Option<Interrupt>> = Mutex::new(None);
/// The signal that ended an operation.
static CAUGHT: AtomicI32 = AtomicI32::new(SIGINT);
/// Whether signals are handled.
static HANDLED: AtomicBool = AtomicBool::new(false);

/// While this lives, the first SIGINT, SIGTERM or SIGHUP interrupts the operation. A second signal, or one
/// without an operation, ends the process at once.
#[derive(Debug)]
pub(crate) struct Interruptible {
    interrupt: Interrupt,
}

impl Interruptible {
    /// Handles signals from now on. At most one may be in use: a new one replaces the last, and when either is
    /// dropped, signals find no operation.
    ///
    /// # Errors
    /// The error of the operating system.
    pub(crate) fn new() -> Result<Self, Failure> {
        handle()?;
        let interrupt = Interrupt::new();
        *current() = Some(interrupt.clone());
        Ok(Self { interrupt })
    }

    /// Returns the handle that a signal sets.
    pub(crate) fn interrupt(&self) -> Interrupt {
        self.interrupt.clone()
    }

    /// Returns the failure which reports that a signal ended `what`.
    pub(crate) fn failure(&self, what: impl std::fmt::Display) -> Failure {
        Failure::Interrupted(what.to_string())
    }
}

impl Drop for Interruptible {
    fn drop(&mut self) {
        *current() = None;
    }
}

fn current() -> std::sync::MutexGuard<'static, Option<Interrupt>> {
    CURRENT.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Handles signals as [`Interruptible`] says, also while there is no operation to interrupt. Has no effect if
/// signals are handled already: a second handler would get every signal as well, and could end the process
/// before the first one has done its work.
///
/// # Errors
/// The error of the operating system.
pub(crate) fn handle() -> Result<(), Failure> {
    if HANDLED.load(Ordering::SeqCst) {
        return Ok(());
    }
    on_signals(|signal| {
        CAUGHT.store(signal, Ordering::SeqCst);
        match current().take() {
            Some(interrupt) => interrupt.interrupt(),
            None => die(signal),
        }
    })
}

/// Calls `act` for every SIGINT and SIGTERM, on a thread of its own; also for every SIGHUP, unless the process
/// ignores it. `nohup` starts programs that way, and a handler would undo it.
///
/// # Errors
/// The error of the operating system.
pub(crate) fn on_signals(mut act: impl FnMut(i32) + Send + 'static) -> Result<(), Failure> {
    let hangup = (!ignores_hangup()).then_some(SIGHUP);
    let wanted = [SIGINT, SIGTERM].into_iter().chain(hangup);
    let mut signals = Signals::new(wanted).context("cannot handle signals")?;
    let thread = thread::Builder::new().name("signals".into());
    let mut last = None;
    let wait = move || {
        for signal in signals.forever() {
            if is_another_request(&mut last, Instant::now()) {
                act(signal);
            }
        }
    };
    thread.spawn(wait).context("cannot handle signals")?;
    HANDLED.store(true, Ordering::SeqCst);
    Ok(())
}

/// Signals that arrive within this time of the previous one repeat its request. For example, `timeout`
/// signals a process and then its process group, and a process in a terminal that is closed gets SIGHUP from
/// its shell and from the kernel.
const SAME_REQUEST: Duration = Duration::from_millis(200);

/// Returns whether a signal that arrives at `now` does not repeat the previous one's request. `last`: the time
/// of the previous request.
fn is_another_request(last: &mut Option<Instant>, now: Instant) -> bool {
    let repeats = last.is_some_and(|last| now.saturating_duration_since(last) < SAME_REQUEST);
    if !repeats {
        *last = Some(now);
    }
    !repeats
}

/// Keeps SIGXFSZ from ending the process: a write beyond the limit on file sizes (`ulimit -f`) then only fails
/// with EFBIG. A server answers such a WRITE with NFS3ERR_FBIG, and a copy names the file.
///
/// # Errors
/// The error of the operating system.
pub(crate) fn survive_file_size_limit() -> Result<(), Failure> {
    // Nothing reads the flag that the handler sets.
    let registered = signal_hook::flag::register(SIGXFSZ, Arc::default());
    registered.context("cannot handle signals")?;
    Ok(())
}

/// Returns whether the process ignores SIGHUP.
fn ignores_hangup() -> bool {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    ignored(&status) & (1 << (SIGHUP - 1)) != 0
}

/// Returns the mask of ignored signals (`SigIgn`) in the text of `/proc/PID/status`, or 0 if it has none.
/// Signal `n` is bit `n - 1`: proc_pid_status(5).
fn ignored(status: &str) -> u64 {
    let mut lines = status.lines();
    let set = lines.find_map(|line| line.strip_prefix("SigIgn:"));
    set.map_or(0, |set| {
        u64::from_str_radix(set.trim(), 16).unwrap_or_default()
    })
}

/// Ends the process as [`die`] does, by the signal that ended its operation.
pub(crate) fn die_of_caught() {
    die(CAUGHT.load(Ordering::SeqCst));
}

/// Ends the process like the signal's default action, so that its parent (such as a shell in a
/// loop) sees the signal. A capture or a trace is completed first.
pub(crate) fn die(signal: i32) {
    crate::capture::finish();
    crate::trace::finish();
    // This cannot fail for valid signals. If it did, the exit status would show the signal.
    if emulate_default_handler(signal).is_err() {
        std::process::exit(128 + signal);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn signals_soon_after_another_one_repeat_its_request() {
        let (mut last, start) = (None, Instant::now());
        let mut at = |millis| is_another_request(&mut last, start + Duration::from_millis(millis));
        assert!(at(0));
        assert!(!at(0) && !at(199));
        assert!(at(200));
        assert!(!at(300));
    }

    #[test]
    fn ignored_signals_are_found_in_the_status_of_a_process() {
        let status = "Name:\trpcrdma\nSigBlk:\t0000000000000002\nSigIgn:\t0000000000001001\n";
        assert_eq!(ignored(status), 0x1001);
        assert_eq!(ignored("Name:\trpcrdma\n"), 0);
    }
}
