//! `--trace`: the file, and its end in whatever way the process ends.

use std::io::ErrorKind;
use std::path::PathBuf;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use nfs_binding::proto::{MOUNT_PROGRAM, MOUNT_VERSION, NFS_PROGRAM, NFS_VERSION, mnt, nfs};
use rdma::trace::Trace;
use rdma::{Clock, Time};
use rpcrdma_setup::{Context, Failure};
use rpcrdma_trace::{Options, Procedure, Stopped, TraceFile};

use crate::args::TraceArgs;
use crate::output;

/// The interval at which calls are written. What is recorded meanwhile is in memory.
const EVERY: Duration = Duration::from_millis(50);

/// The trace of this process.
static TRACE: OnceLock<Traced> = OnceLock::new();

/// Whether the file could not be written.
static FAILED: AtomicBool = AtomicBool::new(false);

struct Traced {
    file: TraceFile,
    path: PathBuf,
    clock: Clock,
}

/// Creates the file, if one is wanted, and writes to it regularly. The caller handles signals.
///
/// # Errors
/// The file exists already, or cannot be created.
pub(crate) fn open(args: &TraceArgs, clock: Clock) -> Result<Option<Trace>, Failure> {
    let trace = create(args, clock)?;
    write_regularly()?;
    Ok(trace)
}

/// Creates the file, if one is wanted. Starts no thread.
///
/// # Errors
/// The file exists already, or cannot be created.
pub(crate) fn create(args: &TraceArgs, clock: Clock) -> Result<Option<Trace>, Failure> {
    let Some(path) = &args.trace else {
        return Ok(None);
    };
    let options = Options {
        process: process(),
        virtual_time: clock.is_simulated(),
        size: args.size(),
        name,
    };
    let file = TraceFile::create(path, options).map_err(|error| {
        let why = match error.kind() {
            ErrorKind::AlreadyExists => "it exists: choose another name, or remove it".to_owned(),
            _ => format!("cannot create this file: {error}"),
        };
        Failure::Work(format!("--trace {}: {why}", path.display()))
    })?;
    let trace = Trace::new(file.sink(), clock.clone());
    // `mount` changes its working directory.
    let path = std::path::absolute(path).unwrap_or_else(|_| path.clone());
    TRACE.get_or_init(|| Traced { file, path, clock });
    Ok(Some(trace))
}

/// Starts the thread that writes the calls that have ended, if there is a trace.
///
/// # Errors
/// The error of the operating system.
pub(crate) fn write_regularly() -> Result<(), Failure> {
    let Some(traced) = TRACE.get() else {
        return Ok(());
    };
    let write = move || {
        loop {
            thread::sleep(EVERY);
            if let Err(stopped) = traced.file.flush() {
                return tell(&stopped);
            }
        }
    };
    let thread = thread::Builder::new().name("trace".into());
    thread.spawn(write).context("cannot start a thread")?;
    Ok(())
}

fn tell(stopped: &Stopped) {
    FAILED.fetch_or(matches!(stopped, Stopped::Failed(_)), Ordering::Relaxed);
    if let Some(traced) = TRACE.get() {
        output::complain(format_args!("--trace {}: {stopped}", traced.path.display()));
    }
}

/// Completes the file, before the process ends, and prints the sums of its calls. Returns whether all of it
/// could be written; if not, the user has been told.
pub(crate) fn finish() -> bool {
    if let Some(traced) = TRACE.get().filter(|traced| !traced.file.is_empty()) {
        let now = (!traced.clock.is_simulated()).then(Time::now);
        match traced.file.finish(now) {
            Ok(summary) => summary.to_string().lines().for_each(output::note),
            Err(stopped) => tell(&stopped),
        }
    }
    !FAILED.load(Ordering::Relaxed)
}

/// Removes the file of a command that has failed before there was anything to trace.
pub(crate) fn remove_empty() {
    if let Some(traced) = TRACE.get().filter(|traced| traced.file.is_empty()) {
        // The error that matters is the command's.
        let _ = std::fs::remove_file(&traced.path);
    }
}

/// Returns the program and its command, without what may be private.
fn process() -> String {
    let mut words = std::env::args_os();
    let program = words.next().unwrap_or_default();
    let program = std::path::Path::new(&program).file_name();
    let program = program.unwrap_or_default().to_string_lossy().into_owned();
    match words.next() {
        Some(command) => format!("{program} {}", command.to_string_lossy()),
        None => program,
    }
}

/// Returns the name of a procedure of NFS or MOUNT.
fn name((program, version, number): Procedure) -> Option<&'static str> {
    let names = match (program, u32::from(version)) {
        (NFS_PROGRAM, NFS_VERSION) => nfs::NAMES,
        (MOUNT_PROGRAM, MOUNT_VERSION) => mnt::NAMES,
        _ => return None,
    };
    names.get(number as usize).copied()
}
