//! The flags of a mount that the kernel itself heeds, which can be changed while it is mounted
//! (`mount -o remount`).

use std::path::Path;

use rustix::mount::{MountFlags, mount_remount};

use crate::error::MountError;
use crate::mount_table::{self, MountEntry};
use crate::options::Options;

/// Changes of a mount's flags. `None` leaves a flag as it is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Remount {
    /// Whether the kernel refuses all changes (`ro`).
    pub read_only: Option<bool>,
    /// Whether set-id bits have an effect (`suid`).
    pub set_id: Option<bool>,
    /// Whether device files work (`dev`).
    pub devices: Option<bool>,
    /// Whether programs can be executed (`exec`).
    pub execute: Option<bool>,
    /// Whether symbolic links are followed (`symfollow`).
    pub follow_symlinks: Option<bool>,
    /// Whether the kernel has each write of a file that is opened from now on brought to the
    /// server's stable storage (`sync`). A mount that was begun with [`Options::sync`] does so in
    /// any case.
    pub sync: Option<bool>,
}

impl Remount {
    /// Returns the flags after the change, each with the option by which the table of mounts shows
    /// it.
    fn flags(&self, entry: &MountEntry) -> MountFlags {
        let no = |on: Option<bool>| on.map(|on| !on);
        let flags = [
            ("ro", MountFlags::RDONLY, self.read_only),
            ("nosuid", MountFlags::NOSUID, no(self.set_id)),
            ("nodev", MountFlags::NODEV, no(self.devices)),
            ("noexec", MountFlags::NOEXEC, no(self.execute)),
            (
                "nosymfollow",
                MountFlags::NOSYMFOLLOW,
                no(self.follow_symlinks),
            ),
            ("sync", MountFlags::SYNCHRONOUS, self.sync),
            // Access times are the server's.
            ("noatime", MountFlags::NOATIME, None),
        ];
        let set = flags
            .into_iter()
            .filter(|(option, _, changed)| changed.unwrap_or_else(|| entry.has_option(option)));
        set.map(|(_, flag, _)| flag).collect()
    }
}

/// Changes the flags of what a program of this kind has mounted at a directory. Only root may.
///
/// # Errors
/// [`MountError::NotMounted`], [`MountError::MountPoint`], or [`MountError::Remount`], for instance
/// as files are open for writing that should become read-only.
pub fn remount(at: &Path, changes: &Remount) -> Result<(), MountError> {
    let entry = mount_table::ours_at(at)?;
    change(&entry.path, changes.flags(&entry))
}

/// Sets the flags of a new mount that cannot be given to FUSE when it is mounted.
///
/// # Errors
/// [`MountError::Remount`]
pub(crate) fn complete(path: &Path, options: &Options) -> Result<(), MountError> {
    if options.follow_symlinks {
        return Ok(());
    }
    let changes = Remount {
        follow_symlinks: Some(false),
        ..Remount::default()
    };
    // The path is that of the table: nothing below it answers yet.
    let entry = mount_table::find(path).ok().flatten();
    let entry = entry
        .filter(MountEntry::is_ours)
        .ok_or_else(|| MountError::NotMounted {
            path: path.to_owned(),
            what: "has been unmounted".to_owned(),
        })?;
    change(path, changes.flags(&entry))
}

fn change(path: &Path, flags: MountFlags) -> Result<(), MountError> {
    mount_remount(path, flags, "").map_err(|error| MountError::Remount {
        path: path.to_owned(),
        source: error.into(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_stay_unless_they_are_changed() {
        let entry = MountEntry {
            path: "/mnt".into(),
            device: "0:57".into(),
            file_system: mount_table::TYPE.into(),
            source: "nfs://h/x".into(),
            options: vec![
                "rw".into(),
                "nosuid".into(),
                "nodev".into(),
                "noatime".into(),
            ],
        };
        let usual = MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOATIME;
        assert_eq!(Remount::default().flags(&entry), usual);
        let changed = Remount {
            read_only: Some(true),
            set_id: Some(true),
            follow_symlinks: Some(false),
            ..Remount::default()
        };
        let wanted =
            MountFlags::RDONLY | MountFlags::NODEV | MountFlags::NOATIME | MountFlags::NOSYMFOLLOW;
        assert_eq!(changed.flags(&entry), wanted);
    }
}
