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

/// Returns the error number of a call that got no results. The log says more.
pub(crate) fn of_call(error: &CallError) -> Errno {
    match error {
        CallError::TooLarge(_) => Errno::MSGSIZE,
        _ => Errno::IO,
    }
}
