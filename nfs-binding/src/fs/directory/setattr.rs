//! SETATTR.
//!
//! knfsd changes the size first, and then everything else in one step, which the kernel checks
//! before it changes anything. A user-space server needs one system call for the owner, one for the
//! mode and one for the times, so a later call could fail after an earlier one has taken effect. To
//! avoid that, `permission::check_times` and `permission::check_ownership` refuse beforehand what
//! the kernel would refuse. The kernel still checks each call.

use rustix::fs::Access as Wanted;

use super::*;

impl Served {
    /// Executes SETATTR.
    pub(super) fn set_attributes(
        &self,
        who: &Caller,
        file: &FileId,
        set: &SetAttributes,
        guard: Option<NfsTime>,
    ) -> Change<()> {
        self.change(who, file, |node, now, unstable| {
            if guard.is_some_and(|guard| guard != now.ctime) {
                return Err(FsError::NotSync);
            }
            self.set(who, node, now, set)?;
            unstable.push(Arc::clone(node));
            Ok(())
        })
    }

    /// Sets the requested attributes of an existing object as the caller.
    pub(super) fn set(
        &self,
        who: &Caller,
        node: &Node,
        now: &Attributes,
        set: &SetAttributes,
    ) -> FsResult<()> {
        let who = self.authority.identity(who);
        permission::check_times(set)?;
        if set.size.is_some() {
            match node.file_type {
                FileType::Regular => self.may_io(node, who, Wanted::WRITE_OK)?,
                FileType::Directory => return Err(FsError::IsDirectory),
                _ => return Err(FsError::Invalid),
            }
        }
        let touches = |time| time == SetTime::ServerTime;
        if touches(set.atime) || touches(set.mtime) {
            self.may_io(node, who, Wanted::WRITE_OK)?;
        }
        permission::check_ownership(now, set, who)?;
        if let Some(size) = set.size {
            self.set_size(node, size)?;
        }
        self.set_rest(who, node, now, set)
    }

    /// Truncates or extends a file. The caller's permission was checked.
    pub(super) fn set_size(&self, node: &Node, size: u64) -> FsResult<()> {
        if size > host::MAX_OFFSET {
            return Err(FsError::FileTooLarge);
        }
        // A COMMIT by another client must not close the file before this change of it is synced.
        let _writing = node.begin_write();
        rustix::fs::ftruncate(&self.content(node, Purpose::Write)?.fd, size)?;
        node.written();
        Ok(())
    }

    /// Sets everything but the size.
    pub(super) fn set_rest(
        &self,
        who: &Caller,
        node: &Node,
        now: &Attributes,
        set: &SetAttributes,
    ) -> FsResult<()> {
        // The owner comes first, because changing it clears set-id bits, which the mode then sets
        // again if requested.
        if set.uid.is_some() || set.gid.is_some() {
            host::chown(node, set.uid, set.gid)?;
        }
        // A symbolic link has no mode of its own.
        if let Some(mode) = set.mode
            && node.file_type != FileType::Symlink
        {
            self.files
                .chmod(node.as_fd(), mode & permission::MODE_BITS)?;
        }
        if set.atime == SetTime::Keep && set.mtime == SetTime::Keep {
            return Ok(());
        }
        let one_of_both = (set.atime == SetTime::Keep) != (set.mtime == SetTime::Keep);
        if one_of_both && !who.is_root() && who.uid != now.uid {
            // A caller with write permission may set both times to now, and NFS also allows one
            // alone; the kernel allows only the former. The write permission was checked above.
            return self
                .authority
                .as_server(|| host::set_times(node, set.atime, set.mtime));
        }
        host::set_times(node, set.atime, set.mtime)
    }
}
