//! The option `remount`: the kernel changes some flags of an existing mount.
//!
//! mount(8) collects the options in the table of mounts and in fstab, and passes all of them to its
//! helper together with the new ones. The helper cannot tell which are new. So an option that
//! cannot be changed is not an error; it is returned so that the caller can print a note.

use nfs_mount::Remount;

use crate::without_effect::changes_nothing;

/// File system options that appear in the kernel's table of mounts, and that users can neither give
/// nor change. `=` marks those with a value.
const OF_TABLE: &[&str] = &["group_id=", "max_read=", "user_id="];
/// Options that a remount leaves as they are, without a note: they too are in the table of mounts.
const KEPT: &[&str] = &["allow_other", "default_permissions"];

/// Returns the options of a list, without those of the kernel's table of mounts if it has
/// `remount`.
pub(crate) fn without_table(text: &str) -> impl Iterator<Item = &str> {
    let remounts = text.split(',').any(|option| option == "remount");
    let of_table = |option: &str| OF_TABLE.iter().any(|known| option.starts_with(known));
    text.split(',')
        .filter(move |option| !(remounts && of_table(option)))
}

/// Returns the changes that a list of options asks for, and those of the options that do not take
/// effect. Of contradicting options the last one applies.
#[must_use]
pub fn changes(text: &str) -> (Remount, Vec<&str>) {
    let mut changes = Remount::default();
    let mut left = Vec::new();
    for option in without_table(text).filter(|option| !option.is_empty()) {
        match option {
            "remount" => {}
            "ro" => changes.read_only = Some(true),
            "rw" => changes.read_only = Some(false),
            "suid" => changes.set_id = Some(true),
            "nosuid" => changes.set_id = Some(false),
            "dev" => changes.devices = Some(true),
            "nodev" => changes.devices = Some(false),
            "exec" => changes.execute = Some(true),
            "noexec" => changes.execute = Some(false),
            "symfollow" => changes.follow_symlinks = Some(true),
            "nosymfollow" => changes.follow_symlinks = Some(false),
            "sync" => changes.sync = Some(true),
            "async" => changes.sync = Some(false),
            "user" | "users" => {
                (changes.set_id, changes.devices) = (Some(false), Some(false));
                changes.execute = Some(false);
            }
            "owner" | "group" => (changes.set_id, changes.devices) = (Some(false), Some(false)),
            _ if KEPT.contains(&option) || changes_nothing(option) => {}
            _ => left.push(option),
        }
    }
    (changes, left)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mount_options::MountOptions;

    #[test]
    fn the_last_of_contradicting_options_applies() {
        let given = "rw,remount,nosuid,nodev,noatime,user_id=0,group_id=0,allow_other,ro";
        assert!(MountOptions::parse(given).unwrap().remount);
        let wanted = Remount {
            read_only: Some(true),
            set_id: Some(false),
            devices: Some(false),
            ..Remount::default()
        };
        assert_eq!(changes(given), (wanted, vec![]));
        let (changed, left) = changes("user,exec,symfollow,rsize=4096,_netdev,x-a=b,remount");
        assert_eq!((changed.set_id, changed.execute), (Some(false), Some(true)));
        assert_eq!(changed.follow_symlinks, Some(true));
        assert_eq!(left, ["rsize=4096"]);
    }

    #[test]
    fn the_options_of_the_table_of_mounts_cannot_be_given_to_a_new_mount() {
        for option in ["user_id=0", "group_id=0", "max_read=131072"] {
            MountOptions::parse(option).unwrap_err();
            MountOptions::parse(&format!("{option},remount")).unwrap();
        }
    }
}
