//! Operations that remove names.

use rustix::fs::AtFlags;

use super::*;

impl Served {
    /// Records that the entry `name` of `dir` was removed. If it was the last name, the object is
    /// gone.
    pub(super) fn lost_name(&self, dir: &Node, name: &[u8], victim: &Node) {
        match victim.is_gone() {
            true => self.forget(victim),
            false => self
                .tables
                .of(&victim.id)
                .forget_place(&victim.id, &dir.id, name),
        }
    }

    /// Executes REMOVE and RMDIR.
    pub(super) fn remove_entry(
        &self,
        who: &Caller,
        dir: &FileId,
        name: &[u8],
        directory: bool,
    ) -> Change<()> {
        self.change(who, dir, |dir, now, unstable| {
            permission::require_directory(now)?;
            name::check_old(name)?;
            let victim = self.child(dir, name)?;
            let flags = match (victim.file_type, directory) {
                (FileType::Directory, true) => AtFlags::REMOVEDIR,
                (FileType::Directory, false) => return Err(FsError::IsDirectory),
                (_, true) => return Err(FsError::NotDirectory),
                (_, false) => AtFlags::empty(),
            };
            rustix::fs::unlinkat(&**dir, name, flags).map_err(not_empty)?;
            self.lost_name(dir, name, &victim);
            unstable.push(Arc::clone(dir));
            Ok(())
        })
    }

    /// Executes RENAME.
    pub(super) fn rename_entry(
        &self,
        who: &Caller,
        from_dir: &FileId,
        from: &[u8],
        to_dir: &FileId,
        to: &[u8],
    ) -> Renamed {
        let found = self
            .find(from_dir)
            .and_then(|from| Ok((from, self.find(to_dir)?)))
            .and_then(|(from, to)| Ok((from, to, self.authority.impersonate(who)?)));
        let (from_dir, to_dir, _as_caller) = match found {
            Ok(dirs) => dirs,
            Err(error) => return refused(error),
        };
        let held = self.hold_both(&from_dir, &to_dir);
        let before = from_dir
            .attributes()
            .and_then(|from| Ok((from, to_dir.attributes()?)));
        let (from_now, to_now) = match before {
            Ok(before) => before,
            Err(error) => return refused(error),
        };
        let result = self.move_held((&from_dir, &from_now, from), (&to_dir, &to_now, to));
        let change = |dir: &Node, now: &Attributes| WccData {
            before: Some(wcc(now)),
            after: dir.attributes().ok(),
        };
        let (from, to) = (change(&from_dir, &from_now), change(&to_dir, &to_now));
        drop(held);
        let result = result.and_then(|()| self.make_stable(&[to_dir, from_dir]));
        Renamed { from, to, result }
    }

    fn move_held(
        &self,
        (from_dir, from_now, from): (&Node, &Attributes, &[u8]),
        (to_dir, to_now, to): (&Node, &Attributes, &[u8]),
    ) -> FsResult<()> {
        permission::require_directory(from_now)?;
        permission::require_directory(to_now)?;
        name::check_old(from)?;
        name::check_old(to)?;
        let source = self.child(from_dir, from)?;
        let target = match self.child(to_dir, to) {
            Ok(target) => Some(target),
            Err(FsError::NotFound) => None,
            Err(error) => return Err(error),
        };
        rustix::fs::renameat(from_dir, from, to_dir, to).map_err(not_empty)?;
        if let Some(target) = &target {
            if target.id == source.id {
                // Both names refer to one object, so the host did nothing (RFC 1813, section
                // 3.3.14).
                return Ok(());
            }
            self.lost_name(to_dir, to, target);
        }
        self.record_place(to_dir, to, &source);
        Ok(())
    }
}

/// Converts the error of removing or replacing a directory. Some file systems return EEXIST for a
/// directory with entries.
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
