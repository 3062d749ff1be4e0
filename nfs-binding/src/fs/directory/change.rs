//! How an object is changed: noted before and after, and made stable.

use super::*;

impl DirectoryFs {
    fn stripe(&self, node: &Node) -> usize {
        usize::from(key::step_of(node.key.ino)) % STRIPES
    }

    /// Keeps other operations of this server from changing the object: what is noted of it before
    /// and after a change is then exact.
    pub(super) fn hold(&self, node: &Node) -> MutexGuard<'_, ()> {
        locked(&self.stripes[self.stripe(node)])
    }

    /// The same for two objects.
    pub(super) fn hold_both(&self, one: &Node, other: &Node) -> impl Sized {
        let (one, other) = (self.stripe(one), self.stripe(other));
        let first = locked(&self.stripes[one.min(other)]);
        let second = (one != other).then(|| locked(&self.stripes[one.max(other)]));
        (first, second)
    }

    /// Changes an object, noting its attributes before and after, and then brings to stable
    /// storage what `change` says.
    pub(super) fn change<T>(
        &self,
        id: &FileId,
        change: impl FnOnce(&Handle, &Attributes, &mut Unstable) -> FsResult<T>,
    ) -> Change<T> {
        let handle = match self.find(id) {
            Ok(handle) => handle,
            Err(error) => return Change::refused(error),
        };
        let held = self.hold(&handle.node);
        let now = match handle.node.attributes() {
            Ok(now) => now,
            Err(error) => return Change::refused(error),
        };
        let mut unstable = Unstable::new();
        let result = change(&handle, &now, &mut unstable);
        let wcc = WccData {
            before: Some(wcc(&now)),
            after: handle.node.attributes().ok(),
        };
        // Not under the lock: operations on the same directory then share the wait for the disk.
        drop(held);
        let result = result.and_then(|value| {
            self.make_stable(&unstable)?;
            Ok(value)
        });
        Change { wcc, result }
    }

    /// Sets what is planned of an object that exists.
    pub(super) fn apply(&self, node: &Node, plan: &SetAttributes) -> FsResult<()> {
        // The owner first: that takes set-id bits away, which the mode then has or has not.
        if plan.uid.is_some() || plan.gid.is_some() {
            host::chown(node, plan.uid, plan.gid)?;
        }
        // A symbolic link has no mode of its own.
        if let Some(mode) = plan.mode
            && node.file_type != FileType::Symlink
        {
            self.files.chmod(node.as_fd(), mode)?;
        }
        if let Some(size) = plan.size {
            if size > MAX_FILE_SIZE {
                return Err(FsError::FileTooLarge);
            }
            rustix::fs::ftruncate(&node.content(&self.files, true)?.fd, size)?;
        }
        if plan.atime != SetTime::Keep || plan.mtime != SetTime::Keep {
            host::set_times(node, plan.atime, plan.mtime)?;
        }
        Ok(())
    }
}
