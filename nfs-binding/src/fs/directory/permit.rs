//! Permission checks on open objects: the kernel's decision, and the exceptions that NFS makes.

use std::time::UNIX_EPOCH;

use linux_file_handle::may_access;
use rustix::fs::{Access as Wanted, Statx, StatxAttributes};
use rustix::io::Errno;

use super::*;

/// Asks the kernel whether this thread may access an object.
pub(super) fn ask(node: &Node, wanted: Wanted) -> Result<(), Errno> {
    may_access(node, wanted)
}

/// Returns whether an object is executable and has not changed for `complete`: the kernel does not
/// execute a file that is open for writing. Every WRITE changes the ctime, and clients cannot set it.
pub(super) fn is_program(node: &Node, complete: Duration) -> bool {
    node.stat().is_ok_and(|stat| {
        let changed = Duration::from_secs(stat.stx_ctime.tv_sec.try_into().unwrap_or(0));
        let since = (UNIX_EPOCH + changed).elapsed();
        u32::from(stat.stx_mode) & 0o111 != 0 && since.is_ok_and(|since| since >= complete)
    })
}

impl Served {
    /// Checks that the caller may read or write the content of a file. The thread must already run
    /// with the caller's identity.
    ///
    /// The owner may always do so as far as permission bits are concerned: it may have opened the
    /// file before it removed the permission, and the server does not see opens (RFC 1813, section
    /// 4.4). For the same reason, a caller that may execute a file may read it. These exceptions do
    /// not cover immutable files and read-only mounts.
    pub(super) fn may_io(&self, node: &Node, who: &Caller, wanted: Wanted) -> FsResult<()> {
        let (answer, uid) = (ask(node, wanted), self.authority.identity(who).uid);
        if answer.is_ok() && node.knows_access(uid) {
            return Ok(());
        }
        let owner = node.stat()?.stx_uid;
        node.record_access(uid, owner);
        match answer {
            Err(Errno::ACCESS) => {}
            other => return Ok(other?),
        }
        let owner = uid == owner;
        let executes = || wanted == Wanted::READ_OK && ask(node, Wanted::EXEC_OK).is_ok();
        if owner || executes() {
            return Ok(());
        }
        Err(FsError::Access)
    }

    /// Returns the content of a file that the caller may access. It is opened as the caller, or as
    /// the server where NFS allows more than the kernel. If neither may read a file that is to be
    /// written, it is opened for writing alone.
    pub(super) fn content(&self, node: &Node, purpose: Purpose) -> FsResult<Arc<node::Content>> {
        let open = || node.content(&self.files, purpose);
        match open().or_else(|error| match error {
            FsError::Access => self.authority.as_server(open),
            other => Err(other),
        }) {
            Err(FsError::Access) if purpose == Purpose::Write => {
                node.content(&self.files, Purpose::WriteOnly)
            }
            other => other,
        }
    }

    /// Returns whether an object must stay open. Without privilege, a file that is open for writing
    /// could not be opened again if its mode does not allow that, but its owner may still write to
    /// it (RFC 1813, section 4.4).
    ///
    /// This ends with a restart, when the table of open objects is full of such files, and for a
    /// program when it counts as complete. It does not help if the mode is lowered only after a
    /// COMMIT or a stable WRITE has closed the file.
    pub(super) fn must_stay_open(&self, node: &Node) -> bool {
        let needed = match node.is_write_only() {
            true => Wanted::WRITE_OK,
            false => Wanted::READ_OK | Wanted::WRITE_OK,
        };
        matches!(self.authority, Authority::Own(_))
            && node.is_writable()
            && ask(node, needed).is_err()
            && !node.is_gone()
    }

    /// Closes the content of a file that its client is probably done with, because a file that is
    /// open for writing cannot be executed. It stays open if another call has written unstable data
    /// meanwhile; the COMMIT for that, or the idle closer, then closes it.
    pub(super) fn close_writable(&self, node: &Node) {
        if !self.must_stay_open(node) {
            node.close_stable();
        }
    }

    /// Executes ACCESS (RFC 1813, section 3.3.4).
    pub(super) fn allowed_access(
        &self,
        who: &Caller,
        file: &FileId,
        wanted: Access,
    ) -> FsResult<(Access, Attributes)> {
        let node = self.find(file)?;
        let stat = node.stat()?;
        let allowed = self.allowed_access_to(&node, &stat, who, wanted)?;
        Ok((allowed, node.to_client(&stat)))
    }

    /// Executes ACCESS of an open object with these metadata.
    pub(super) fn allowed_access_to(
        &self,
        node: &Node,
        stat: &Statx,
        who: &Caller,
        wanted: Access,
    ) -> FsResult<Access> {
        let _as_caller = self.authority.impersonate(who)?;
        let mut allowed = Access::empty();
        for (bits, how) in meanings(node.file_type) {
            if wanted.intersects(bits) {
                if is_allowed(ask(node, how))? {
                    allowed |= bits;
                }
                node.record_access(self.authority.identity(who).uid, stat.stx_uid);
            }
        }
        // The kernel allows opening the file nevertheless, for appending.
        if stat.stx_attributes.contains(StatxAttributes::APPEND) {
            allowed -= Access::MODIFY | Access::DELETE;
        }
        Ok(allowed & wanted)
    }
}

/// Returns the permissions that each bit of ACCESS requires, as in the Linux server.
fn meanings(file_type: FileType) -> [(Access, Wanted); 3] {
    let changes = Access::MODIFY | Access::EXTEND;
    match file_type {
        FileType::Directory => [
            (Access::READ, Wanted::READ_OK),
            (Access::LOOKUP, Wanted::EXEC_OK),
            (changes | Access::DELETE, Wanted::WRITE_OK | Wanted::EXEC_OK),
        ],
        _ => [
            (Access::READ, Wanted::READ_OK),
            (Access::EXECUTE, Wanted::EXEC_OK),
            (changes, Wanted::WRITE_OK),
        ],
    }
}

/// Converts a permission error to false. ACCESS reports it as a result, not as a failure.
fn is_allowed(answer: Result<(), Errno>) -> FsResult<bool> {
    match answer {
        Ok(()) => Ok(true),
        Err(Errno::ACCESS | Errno::PERM | Errno::ROFS) => Ok(false),
        Err(error) => Err(error.into()),
    }
}
