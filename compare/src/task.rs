//! The work of the processes that measuring ones start.

use rpcrdma_setup::catalog::Catalog;
use rpcrdma_setup::{Context, Failure};
use rustix::process::{Signal, set_parent_process_death_signal};

use crate::gateway;
use crate::run;
use crate::served::Task;
use crate::server_process::serve;

/// Does the work of a process that [`Comparison::measure`](crate::Comparison::measure) or
/// [`Runs::measure`](crate::Runs::measure) started, mostly until standard input ends. `task`
/// describes it: the last argument of such a process. `catalog` has what that of [`Options::tuning`](crate::Options::tuning) had.
///
/// # Errors
/// `task` is invalid, or the work fails.
pub fn serve_child(task: &str, catalog: &Catalog) -> Result<(), Failure> {
    // The parent may be killed while this process is suspended (`ChildProcess::pause`). SIGCONT then lets
    // it see the end of its input.
    set_parent_process_death_signal(Some(Signal::CONT))
        .context("cannot watch the parent process")?;
    match serde_json::from_str(task) {
        Ok(Task::Serve(served)) => serve(&served, catalog),
        Ok(Task::Relay(relayed)) => gateway::serve_relay(&relayed, catalog),
        Ok(Task::Mount(attach)) => run::serve_mount(&attach, catalog),
        Ok(Task::Preset(preset, phase)) => run::perform(preset, phase),
        Err(error) => Err(Failure::Usage(format!("{task}: {error}"))),
    }
}
