//! Operations that make objects and names.

use std::os::fd::OwnedFd;

use rustix::fs::makedev;

use super::*;
use crate::proto::DeviceNumber;

/// Mode of what is made without one being given.
const FILE_MODE: u32 = 0o600;
/// The same for directories.
const DIRECTORY_MODE: u32 = 0o700;
/// Of a verifier's halves, the bits that a time's seconds can hold on every host.
const VERIFIER_BITS: u32 = 0x7fff_ffff;

/// Where an exclusive CREATE keeps its verifier: in the file's times, which the client sets after
/// that (RFC 1813, section 3.3.8). So a repeated CREATE is known for one after a restart, too.
fn verifier_times(verifier: Verifier) -> SetAttributes {
    let verifier = u64::from_be_bytes(verifier);
    let time = |half: u32| {
        SetTime::To(NfsTime {
            seconds: half & VERIFIER_BITS,
            nanos: 0,
        })
    };
    SetAttributes {
        mtime: time((verifier >> 32) as u32),
        atime: time(verifier as u32),
        ..SetAttributes::default()
    }
}

/// Opens what was just made as the entry `name`.
///
/// Nothing when somebody on the host has put another object there meanwhile, which must neither be
/// given to the caller nor taken away. What was made belongs to us, and is of the right type.
fn open_made(dir: &Handle, name: &[u8], file_type: FileType) -> FsResult<Option<OwnedFd>> {
    let path = host::open_child(&dir.node, name)?;
    let stat = host::stat(&path)?;
    let ours = stat.stx_uid == rustix::process::geteuid().as_raw();
    Ok((ours && host::file_type(&stat) == file_type).then_some(path))
}

impl DirectoryFs {
    /// Checks that `who` may add `name` to a directory. Whether the name exists comes first, as
    /// everywhere.
    fn may_add(&self, dir: &Handle, now: &Attributes, who: &Caller, name: &[u8]) -> FsResult<()> {
        permission::require_search(now, who)?;
        name::check_new(name)?;
        match host::stat_child(&dir.node, name) {
            Ok(_) => return Err(FsError::Exists),
            Err(FsError::NotFound) => {}
            Err(error) => return Err(error),
        }
        permission::require_change(now, who)
    }

    /// What is to be set of something new: who owns it is not up to us unless privileged.
    fn plan_new(
        &self,
        dir: &Attributes,
        set: &SetAttributes,
        who: &Caller,
        default_mode: u32,
    ) -> FsResult<SetAttributes> {
        let mut plan = permission::plan_new(dir, set, who, default_mode)?;
        if self.identity.is_some() {
            plan.uid = None;
            plan.gid = set.gid;
        }
        Ok(plan)
    }

    /// Makes an entry with `make`, and completes it. If that fails the entry is taken away again.
    fn make(
        &self,
        who: &Caller,
        dir: &FileId,
        name: &[u8],
        (set, default_mode, file_type): (&SetAttributes, u32, FileType),
        make: impl FnOnce(&Node) -> Result<(), rustix::io::Errno>,
    ) -> Change<Object> {
        self.change(dir, |dir, now, unstable| {
            self.may_add(dir, now, who, name)?;
            let mut plan = self.plan_new(now, set, who, default_mode)?;
            if file_type == FileType::Directory {
                // The bit that makes new files inherit the group is itself inherited.
                let inherited = now.mode & permission::SET_GID;
                plan.mode = plan.mode.map(|mode| mode | inherited);
            }
            make(&dir.node)?;
            let result = match open_made(dir, name, file_type) {
                Ok(Some(path)) => self.adopt(dir, name, path, &plan, unstable),
                Ok(None) => return Err(FsError::Later),
                Err(error) => Err(error),
            };
            if result.is_err() {
                let flags = match file_type {
                    FileType::Directory => rustix::fs::AtFlags::REMOVEDIR,
                    _ => rustix::fs::AtFlags::empty(),
                };
                let _ = rustix::fs::unlinkat(&*dir.node, name, flags);
            }
            result
        })
    }

    /// Completes what was just made, and opened as `path`.
    fn adopt(
        &self,
        dir: &Handle,
        name: &[u8],
        path: OwnedFd,
        plan: &SetAttributes,
        unstable: &mut Unstable,
    ) -> FsResult<Object> {
        let handle = self.keep(&dir.node, dir.trail, name, path)?;
        self.apply(&handle.node, plan)?;
        if handle.node.file_type == FileType::Directory {
            unstable.push(Arc::clone(&handle.node));
        }
        unstable.push(Arc::clone(&dir.node));
        self.object(&handle)
    }

    /// CREATE.
    pub(super) fn create_file(
        &self,
        who: &Caller,
        dir: &FileId,
        name: &[u8],
        how: &HowToCreate,
    ) -> Change<Object> {
        let times;
        let set = match how {
            HowToCreate::Unchecked(set) | HowToCreate::Guarded(set) => set,
            HowToCreate::Exclusive(verifier) => {
                times = verifier_times(*verifier);
                &times
            }
        };
        self.change(dir, |dir, now, unstable| {
            match self.may_add(dir, now, who, name) {
                Err(FsError::Exists) => return self.existing(who, dir, name, how, unstable),
                other => other?,
            }
            let plan = self.plan_new(now, set, who, FILE_MODE)?;
            let fd = match host::create_file(&dir.node, name) {
                // Somebody on the host was faster.
                Err(FsError::Exists) => return self.existing(who, dir, name, how, unstable),
                other => other?,
            };
            let made = self
                .files
                .reopen(fd.as_fd(), OFlags::PATH)
                .map_err(FsError::from)
                .and_then(|path| {
                    let handle = self.keep(&dir.node, dir.trail, name, path)?;
                    handle.node.keep_content(fd);
                    self.apply(&handle.node, &plan)?;
                    unstable.extend([Arc::clone(&handle.node), Arc::clone(&dir.node)]);
                    self.object(&handle)
                });
            if made.is_err() {
                let _ = rustix::fs::unlinkat(&*dir.node, name, rustix::fs::AtFlags::empty());
            }
            made
        })
    }

    /// CREATE of a name that exists.
    fn existing(
        &self,
        who: &Caller,
        dir: &Handle,
        name: &[u8],
        how: &HowToCreate,
        unstable: &mut Unstable,
    ) -> FsResult<Object> {
        name::check_new(name)?;
        let handle = self.child(dir, name)?;
        if handle.node.file_type != FileType::Regular {
            return Err(FsError::Exists);
        }
        let now = handle.node.attributes()?;
        match how {
            HowToCreate::Guarded(_) => return Err(FsError::Exists),
            HowToCreate::Unchecked(set) => {
                let set = SetAttributes {
                    size: set.size,
                    ..SetAttributes::default()
                };
                if set.size.is_some() {
                    let plan = permission::plan_setattr(&now, &set, who)?;
                    self.apply(&handle.node, &plan)?;
                    unstable.push(Arc::clone(&handle.node));
                }
            }
            HowToCreate::Exclusive(verifier) => {
                let times = verifier_times(*verifier);
                let same =
                    SetTime::To(now.mtime) == times.mtime && SetTime::To(now.atime) == times.atime;
                if !same || now.size != 0 {
                    return Err(FsError::Exists);
                }
            }
        }
        self.object(&handle)
    }

    /// MKDIR.
    pub(super) fn make_directory(
        &self,
        who: &Caller,
        dir: &FileId,
        name: &[u8],
        set: &SetAttributes,
    ) -> Change<Object> {
        let plan = (set, DIRECTORY_MODE, FileType::Directory);
        self.make(who, dir, name, plan, |dir| {
            rustix::fs::mkdirat(dir, name, Mode::RWXU)
        })
    }

    /// SYMLINK.
    pub(super) fn make_symlink(
        &self,
        who: &Caller,
        dir: &FileId,
        name: &[u8],
        target: &[u8],
        set: &SetAttributes,
    ) -> Change<Object> {
        if target.is_empty() || target.contains(&0) {
            return Change::refused(FsError::Invalid);
        }
        let plan = (set, 0o777, FileType::Symlink);
        self.make(who, dir, name, plan, |dir| {
            rustix::fs::symlinkat(target, dir, name)
        })
    }

    /// MKNOD.
    pub(super) fn make_special(
        &self,
        who: &Caller,
        dir: &FileId,
        name: &[u8],
        what: Special,
        set: &SetAttributes,
    ) -> Change<Object> {
        use rustix::fs::FileType as Host;
        let none = DeviceNumber::default();
        let (host, file_type, rdev) = match what {
            Special::Character(rdev) => (Host::CharacterDevice, FileType::Character, rdev),
            Special::Block(rdev) => (Host::BlockDevice, FileType::Block, rdev),
            Special::Socket => (Host::Socket, FileType::Socket, none),
            Special::Fifo => (Host::Fifo, FileType::Fifo, none),
        };
        let device = matches!(what, Special::Character(_) | Special::Block(_));
        if device && !who.is_root() {
            return Change::refused(FsError::Perm);
        }
        let plan = (set, FILE_MODE, file_type);
        self.make(who, dir, name, plan, |dir| {
            let rdev = makedev(rdev.major, rdev.minor);
            rustix::fs::mknodat(dir, name, host, Mode::RUSR | Mode::WUSR, rdev)
        })
    }

    /// LINK.
    pub(super) fn add_link(
        &self,
        who: &Caller,
        file: &FileId,
        dir: &FileId,
        name: &[u8],
    ) -> Change<Attributes> {
        let target = self.find(file);
        self.change(dir, |dir, now, unstable| {
            let target = target?.node;
            permission::require_search(now, who)?;
            name::check_new(name)?;
            if target.file_type == FileType::Directory {
                return Err(FsError::IsDirectory);
            }
            target.attributes()?;
            self.may_add(dir, now, who, name)?;
            self.files.link(target.as_fd(), &dir.node, name)?;
            unstable.push(Arc::clone(&dir.node));
            target.attributes()
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_somebody_else_put_in_the_new_ones_place_is_left_alone() {
        let dir = tempfile::tempdir().unwrap();
        let served = DirectoryFs::open(dir.path(), DirectoryOptions::default()).unwrap();
        let (who, path) = (Caller::root(), dir.path().join("name"));
        let set = SetAttributes::default();
        let what = (&set, 0o600, FileType::Fifo);
        let who = served.identity(&who);
        let made = served.make(who, &served.root(), b"name", what, |_| {
            std::fs::write(&path, "another's").unwrap();
            Ok(())
        });
        assert!(matches!(made.result, Err(FsError::Later)), "{made:?}");
        assert_eq!(std::fs::read(&path).unwrap(), b"another's");
    }
}
