//! The samples of calls.

use nfs_binding::proto::{MOUNT_PROGRAM, NFS_PROGRAM, Status, mnt, nfs};
use rpc_transport::{CallResult, ProcedureCounts};

use crate::samples::{Family, Samples};

/// The label of what has no name of its own.
const OTHER: &str = "other";

/// Returns the names of a program and of a procedure: those of RFC 1813, and numbers for others.
fn names(counts: &ProcedureCounts) -> (String, String, String) {
    let (prog, vers) = counts.program;
    let (program, procedures): (String, &[&str]) = match prog {
        NFS_PROGRAM => ("nfs".to_owned(), nfs::NAMES),
        MOUNT_PROGRAM => ("mount".to_owned(), mnt::NAMES),
        0 => (OTHER.to_owned(), &[]),
        prog => (prog.to_string(), &[]),
    };
    let procedure = counts.procedure.map_or_else(
        || OTHER.to_owned(),
        |number| {
            let name = procedures.get(number as usize);
            name.map_or_else(|| number.to_string(), |name| (*name).to_owned())
        },
    );
    (program, vers.to_string(), procedure)
}

/// Returns the name of a result.
fn result_name(result: CallResult) -> String {
    match result {
        CallResult::Status(status) => {
            let name = Status(status).name();
            name.map_or_else(|| status.to_string(), str::to_owned)
        }
        CallResult::Refused(name) => name.to_owned(),
        CallResult::NoReply => "no_reply".to_owned(),
        CallResult::Other => OTHER.to_owned(),
    }
}

/// Adds the counts of procedures.
pub(crate) fn add(
    samples: &mut Samples,
    (calls, times): (&'static Family, &'static Family),
    procedures: &[ProcedureCounts],
) {
    for counts in procedures {
        let (program, version, procedure) = names(counts);
        let mut add = |result: &str, count: u64| {
            samples.add(calls, &[&program, &version, &procedure, result], count);
        };
        if counts.succeeded > 0 {
            add("ok", counts.succeeded);
        }
        for (result, count) in &counts.failed {
            add(&result_name(*result), *count);
        }
        samples.add_latency(times, &[&program, &version, &procedure], &counts.latency);
    }
}
