//! Operations that take names away.

use rustix::fs::AtFlags;

use super::*;

impl DirectoryFs {
    /// The entry `name`, which the caller wants to take out of a directory.
    fn victim(
        &self,
        dir: &Handle,
        now: &Attributes,
        who: &Caller,
        name: &[u8],
    ) -> FsResult<(Handle, Attributes)> {
        permission::require_search(now, who)?;
        name::check_old(name)?;
        let victim = self.child(dir, name)?;
        let attributes = victim.node.attributes()?;
        permission::require_change(now, who)?;
        permission::require_delete(now, &attributes, who)?;
        Ok((victim, attributes))
    }

    /// Notes that the entry `name` of `dir` is no more: with its last name, the object is gone.
    fn lost_name(&self, dir: &Node, name: &[u8], victim: &Node) {
        let gone = matches!(victim.attributes(), Err(FsError::Stale));
        let mut table = locked(&self.table);
        let closed = if gone {
            table.remove(victim.key)
        } else {
            table.left(&victim.key, &dir.key, name);
            None
        };
        drop(table);
        drop(closed);
    }

    /// REMOVE and RMDIR.
    pub(super) fn take_away(
        &self,
        who: &Caller,
        dir: &FileId,
        name: &[u8],
        directory: bool,
    ) -> Change<()> {
        self.change(dir, |dir, now, unstable| {
            let (victim, _) = self.victim(dir, now, who, name)?;
            let flags = match (victim.node.file_type, directory) {
                (FileType::Directory, true) => AtFlags::REMOVEDIR,
                (FileType::Directory, false) => return Err(FsError::IsDirectory),
                (_, true) => return Err(FsError::NotDirectory),
                (_, false) => AtFlags::empty(),
            };
            rustix::fs::unlinkat(&*dir.node, name, flags).map_err(not_empty)?;
            self.lost_name(&dir.node, name, &victim.node);
            unstable.push(Arc::clone(&dir.node));
            Ok(())
        })
    }

    /// RENAME.
    pub(super) fn move_name(
        &self,
        who: &Caller,
        from_dir: &FileId,
        from: &[u8],
        to_dir: &FileId,
        to: &[u8],
    ) -> Renamed {
        let dirs = self
            .find(from_dir)
            .and_then(|from| Ok((from, self.find(to_dir)?)));
        let (from_dir, to_dir) = match dirs {
            Ok(dirs) => dirs,
            Err(error) => return refused(error),
        };
        let held = self.hold_both(&from_dir.node, &to_dir.node);
        let before = from_dir
            .node
            .attributes()
            .and_then(|from| Ok((from, to_dir.node.attributes()?)));
        let (from_now, to_now) = match before {
            Ok(before) => before,
            Err(error) => return refused(error),
        };
        let result = self.move_held(who, (&from_dir, &from_now, from), (&to_dir, &to_now, to));
        let change = |dir: &Handle, now: &Attributes| WccData {
            before: Some(wcc(now)),
            after: dir.node.attributes().ok(),
        };
        let (from, to) = (change(&from_dir, &from_now), change(&to_dir, &to_now));
        drop(held);
        let result = result.and_then(|()| self.make_stable(&[to_dir.node, from_dir.node]));
        Renamed { from, to, result }
    }

    fn move_held(
        &self,
        who: &Caller,
        (from_dir, from_now, from): (&Handle, &Attributes, &[u8]),
        (to_dir, to_now, to): (&Handle, &Attributes, &[u8]),
    ) -> FsResult<()> {
        permission::require_search(to_now, who)?;
        name::check_old(from)?;
        name::check_old(to)?;
        let (source, attributes) = self.victim(from_dir, from_now, who, from)?;
        permission::require_change(to_now, who)?;
        let moves = from_dir.node.key != to_dir.node.key;
        if moves && source.node.file_type == FileType::Directory {
            // The entry ".." of the directory is changed.
            permission::require(&attributes, who, permission::WRITE)?;
        }
        let target = match self.child(to_dir, to) {
            Ok(target) => Some(target),
            Err(FsError::NotFound) => None,
            Err(error) => return Err(error),
        };
        if let Some(target) = &target {
            if target.node.key == source.node.key {
                // Two names of one object: nothing to do (RFC 1813, section 3.3.14).
                return Ok(());
            }
            permission::require_delete(to_now, &target.node.attributes()?, who)?;
        }
        rustix::fs::renameat(&*from_dir.node, from, &*to_dir.node, to).map_err(not_empty)?;
        if let Some(target) = &target {
            self.lost_name(&to_dir.node, to, &target.node);
        }
        let trail = self.trail_below(&to_dir.node, to_dir.trail);
        locked(&self.table).saw(source.node.key, to_dir.node.key, to, trail);
        Ok(())
    }
}

/// Some hosts say of a directory with entries that it exists.
fn not_empty(errno: rustix::io::Errno) -> FsError {
    match errno {
        rustix::io::Errno::EXIST => FsError::NotEmpty,
        other => other.into(),
    }
}

fn refused(error: FsError) -> Renamed {
    Renamed {
        from: WccData::default(),
        to: WccData::default(),
        result: Err(error),
    }
}
