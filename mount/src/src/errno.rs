//! Error numbers for the programs that use a mount.

use nfs_binding::proto::Status;
use rpc_transport::CallError;
use rustix::io::Errno;

/// Returns the error number that Linux's own client has for a status.
pub(crate) fn of_status(status: Status) -> Errno {
    match status {
        Status::PERM => Errno::PERM,
        Status::NOENT => Errno::NOENT,
        Status::NXIO => Errno::NXIO,
        Status::ACCES => Errno::ACCESS,
        Status::EXIST => Errno::EXIST,
        Status::XDEV => Errno::XDEV,
        Status::NODEV => Errno::NODEV,
        Status::NOTDIR => Errno::NOTDIR,
        Status::ISDIR => Errno::ISDIR,
        Status::INVAL | Status::BADTYPE | Status::TOOSMALL => Errno::INVAL,
        Status::FBIG => Errno::FBIG,
        Status::NOSPC => Errno::NOSPC,
        Status::ROFS => Errno::ROFS,
        Status::MLINK => Errno::MLINK,
        Status::NAMETOOLONG => Errno::NAMETOOLONG,
        Status::NOTEMPTY => Errno::NOTEMPTY,
        Status::DQUOT => Errno::DQUOT,
        Status::STALE | Status::BADHANDLE => Errno::STALE,
        Status::REMOTE => Errno::REMOTE,
        Status::NOTSUPP => Errno::OPNOTSUPP,
        _ => Errno::IO,
    }
}

/// Returns the error number of a call that got no results, as Linux's own client has it: one that was
/// given up is EIO or, with `softerr`, ETIMEDOUT. The log says more.
pub(crate) fn of_call(error: &CallError, softerr: bool) -> Errno {
    match error {
        CallError::TooLarge(_) => Errno::MSGSIZE,
        CallError::TimedOut { .. } | CallError::Connect { .. } if softerr => Errno::TIMEDOUT,
        _ => Errno::IO,
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_call_that_was_given_up_has_the_error_of_its_mount() {
        let timed_out = CallError::TimedOut {
            server: "h".to_owned(),
            after: Duration::from_secs(1),
        };
        let unreachable = CallError::Connect {
            server: "h".to_owned(),
            reason: "refused".to_owned(),
        };
        for error in [timed_out, unreachable] {
            assert_eq!(of_call(&error, false), Errno::IO);
            assert_eq!(of_call(&error, true), Errno::TIMEDOUT);
        }
        let other = CallError::Protocol("odd".to_owned());
        assert_eq!(of_call(&other, true), Errno::IO);
    }
}
