//! Permission checks with an object's permission bits and a caller.
//!
//! For the memory file system, these are all checks. For a directory of the host the kernel
//! decides; it uses only the rules on owners and groups from here, so that a SETATTR or CREATE that
//! the kernel would refuse half-way is refused at once.

use super::{Caller, FsError, FsResult};
use crate::proto::{Access, Attributes, FileType, NfsTime, SetAttributes, SetTime};

/// The set-user-id bit.
pub(super) const SET_UID: u32 = 0o4000;
/// The set-group-id bit.
pub(super) const SET_GID: u32 = 0o2000;
/// The sticky bit.
const STICKY: u32 = 0o1000;
/// All mode bits that exist on the wire.
pub(super) const MODE_BITS: u32 = 0o7777;
const GROUP_EXECUTE: u32 = 0o010;
const ANY_EXECUTE: u32 = 0o111;
/// The number of nanoseconds in a second: the nanoseconds of a time must be less.
const SECOND: u32 = 1_000_000_000;

/// Read permission.
pub(super) const READ: u32 = 4;
/// Write permission.
pub(super) const WRITE: u32 = 2;
/// Execute permission; for a directory, permission to look up names.
pub(super) const EXECUTE: u32 = 1;

/// Returns which of the three permissions the caller has.
pub(super) fn granted(attributes: &Attributes, who: &Caller) -> u32 {
    if who.is_root() {
        // As with the kernel's CAP_DAC_OVERRIDE, root may not execute a file without any execute
        // bit.
        let directory = attributes.file_type == FileType::Directory;
        return if directory || attributes.mode & ANY_EXECUTE != 0 {
            READ | WRITE | EXECUTE
        } else {
            READ | WRITE
        };
    }
    let class = if who.uid == attributes.uid {
        attributes.mode >> 6
    } else if who.in_group(attributes.gid) {
        attributes.mode >> 3
    } else {
        attributes.mode
    };
    class & (READ | WRITE | EXECUTE)
}

/// Checks that the caller has all of `wanted`.
pub(super) fn require(attributes: &Attributes, who: &Caller, wanted: u32) -> FsResult<()> {
    if granted(attributes, who) & wanted == wanted {
        Ok(())
    } else {
        Err(FsError::Access)
    }
}

/// Checks that the caller may read or write the content of a file.
///
/// The owner always may: it may have opened the file before it removed the permission, and the
/// server does not see opens (RFC 1813, section 4.4). For the same reason, a caller that may
/// execute a file may read it.
pub(super) fn require_io(attributes: &Attributes, who: &Caller, wanted: u32) -> FsResult<()> {
    if who.uid == attributes.uid {
        return Ok(());
    }
    if wanted == READ && granted(attributes, who) & EXECUTE != 0 {
        return Ok(());
    }
    require(attributes, who, wanted)
}

/// Checks that the object is a directory and the caller may look up names in it.
pub(super) fn require_search(dir: &Attributes, who: &Caller) -> FsResult<()> {
    require_directory(dir)?;
    require(dir, who, EXECUTE)
}

/// Checks that the object is a directory and the caller may change its entries.
pub(super) fn require_change(dir: &Attributes, who: &Caller) -> FsResult<()> {
    require_directory(dir)?;
    require(dir, who, WRITE | EXECUTE)
}

/// Checks that the object is a directory.
pub(super) fn require_directory(object: &Attributes) -> FsResult<()> {
    if object.file_type == FileType::Directory {
        Ok(())
    } else {
        Err(FsError::NotDirectory)
    }
}

/// Checks that the caller may remove `victim` from `dir`, whose entries it may change: in a sticky
/// directory, only the owner of either may.
pub(super) fn require_delete(dir: &Attributes, victim: &Attributes, who: &Caller) -> FsResult<()> {
    let owner = who.is_root() || who.uid == dir.uid || who.uid == victim.uid;
    if dir.mode & STICKY != 0 && !owner {
        return Err(FsError::Perm);
    }
    Ok(())
}

/// Returns the result of ACCESS (RFC 1813, section 3.3.4).
pub(super) fn access(attributes: &Attributes, who: &Caller, wanted: Access) -> Access {
    let granted = granted(attributes, who);
    let mut out = Access::empty();
    if granted & READ != 0 {
        out |= Access::READ;
    }
    if granted & WRITE != 0 {
        out |= Access::MODIFY | Access::EXTEND;
        if attributes.file_type == FileType::Directory {
            out |= Access::DELETE;
        }
    }
    if granted & EXECUTE != 0 {
        out |= match attributes.file_type {
            FileType::Directory => Access::LOOKUP,
            _ => Access::EXECUTE,
        };
    }
    out & wanted
}

/// Returns the group of a new object of `who` in `dir`. The group of a set-group-id directory is
/// inherited.
pub(super) fn group_of_new(dir: &Attributes, who: &Caller) -> u32 {
    if dir.mode & SET_GID != 0 {
        dir.gid
    } else {
        who.gid
    }
}

/// Returns the mode without set-id bits. They are cleared when a user other than root writes to a
/// file, or when its owner changes.
pub(super) fn without_set_id(mode: u32) -> u32 {
    // Without group-execute, the bit once meant mandatory locking, and grants no privilege.
    let group = if mode & GROUP_EXECUTE != 0 {
        SET_GID
    } else {
        0
    };
    mode & !(SET_UID | group)
}

/// Checks that the nanoseconds of times are less than a second.
pub(super) fn check_times(set: &SetAttributes) -> FsResult<()> {
    for time in [set.atime, set.mtime] {
        if let SetTime::To(NfsTime { nanos, .. }) = time
            && nanos >= SECOND
        {
            return Err(FsError::Invalid);
        }
    }
    Ok(())
}

/// Checks that the caller may change owner, group, mode and times of an existing object as
/// requested, as far as that depends on ownership (compare `setattr_prepare` of Linux).
///
/// Setting the owner to the present owner counts as a change, because it clears set-id bits: only
/// the owner and root may do it.
pub(super) fn check_ownership(now: &Attributes, set: &SetAttributes, who: &Caller) -> FsResult<()> {
    let root = who.is_root();
    let owner = root || who.uid == now.uid;
    let gives = set
        .uid
        .is_some_and(|uid| !(root || owner && uid == now.uid));
    let may_have = |gid| root || owner && (gid == now.gid || who.in_group(gid));
    let regroups = set.gid.is_some_and(|gid| !may_have(gid));
    let to_a_time = [set.atime, set.mtime]
        .iter()
        .any(|time| matches!(time, SetTime::To(_)));
    if gives || regroups || !owner && (set.mode.is_some() || to_a_time) {
        return Err(FsError::Perm);
    }
    Ok(())
}

/// Checks a SETATTR of an existing object. Returns the attributes to set, with set-id bits cleared
/// where required.
pub(super) fn plan_setattr(
    now: &Attributes,
    set: &SetAttributes,
    who: &Caller,
) -> FsResult<SetAttributes> {
    let owner = who.is_root() || who.uid == now.uid;
    let mut plan = set.clone();
    check_times(set)?;
    if set.size.is_some() {
        match now.file_type {
            FileType::Regular => require_io(now, who, WRITE)?,
            FileType::Directory => return Err(FsError::IsDirectory),
            _ => return Err(FsError::Invalid),
        }
    }
    let touches = |time| time == SetTime::ServerTime;
    if !owner && (touches(set.atime) || touches(set.mtime)) {
        require(now, who, WRITE)?;
    }
    check_ownership(now, set, who)?;
    let changes_owner = set.uid.is_some() || set.gid.is_some();
    let regular = now.file_type == FileType::Regular;
    plan.mode = match set.mode {
        Some(mode) => {
            let gid = set.gid.unwrap_or(now.gid);
            let keeps_group = who.is_root() || who.in_group(gid);
            Some(mode & MODE_BITS & if keeps_group { !0 } else { !SET_GID })
        }
        None if regular && (changes_owner || (set.size.is_some() && !who.is_root())) => {
            Some(without_set_id(now.mode)).filter(|&mode| mode != now.mode)
        }
        None => None,
    };
    Ok(plan)
}

/// Returns those of the attributes for a new object that `who` may choose. Only root may choose owner and
/// group; clients that send them all the same, such as Irix with the group, get the usual ones, as from
/// knfsd.
pub(super) fn allowed_for_new(set: &SetAttributes, who: &Caller) -> SetAttributes {
    let root = |id: Option<u32>| id.filter(|_| who.is_root());
    SetAttributes {
        uid: root(set.uid),
        gid: root(set.gid),
        ..set.clone()
    }
}

/// Checks the attributes of a new object of `who` in `dir`. In the result, mode, owner and group
/// are all set.
pub(super) fn plan_new(
    dir: &Attributes,
    set: &SetAttributes,
    who: &Caller,
    default_mode: u32,
) -> FsResult<SetAttributes> {
    check_times(set)?;
    let set = allowed_for_new(set, who);
    let uid = set.uid.unwrap_or(who.uid);
    let gid = set.gid.unwrap_or_else(|| group_of_new(dir, who));
    let mut mode = set.mode.unwrap_or(default_mode) & MODE_BITS;
    if !who.is_root() && !who.in_group(gid) {
        mode &= !SET_GID;
    }
    Ok(SetAttributes {
        mode: Some(mode),
        uid: Some(uid),
        gid: Some(gid),
        ..set
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn object(file_type: FileType, mode: u32) -> Attributes {
        Attributes {
            file_type,
            mode,
            uid: 10,
            gid: 20,
            ..Attributes::default()
        }
    }

    #[test]
    fn the_first_class_that_applies_decides() {
        let file = object(FileType::Regular, 0o074);
        assert_eq!(granted(&file, &Caller::new(10, 20)), 0);
        assert_eq!(granted(&file, &Caller::new(11, 20)), 7);
        let mut by_list = Caller::new(11, 1);
        by_list.gids.push(20);
        assert_eq!(granted(&file, &by_list), 7);
        assert_eq!(granted(&file, &Caller::new(11, 21)), 4);
    }

    #[test]
    fn root_executes_only_what_somebody_may() {
        let plain = object(FileType::Regular, 0o600);
        assert_eq!(granted(&plain, &Caller::root()), READ | WRITE);
        let dir = object(FileType::Directory, 0);
        assert_eq!(granted(&dir, &Caller::root()), READ | WRITE | EXECUTE);
    }

    #[test]
    fn a_change_of_owner_takes_set_id_bits() {
        let file = object(FileType::Regular, 0o6755);
        let chown = SetAttributes {
            uid: Some(11),
            ..SetAttributes::default()
        };
        let plan = plan_setattr(&file, &chown, &Caller::root()).unwrap();
        assert_eq!(plan.mode, Some(0o755));
        let owner = Caller::new(10, 20);
        assert_eq!(plan_setattr(&file, &chown, &owner), Err(FsError::Perm));
    }

    #[test]
    fn a_stranger_cannot_keep_the_group_bit() {
        let file = object(FileType::Regular, 0o755);
        let chmod = SetAttributes {
            mode: Some(0o2755),
            ..SetAttributes::default()
        };
        let outsider = Caller::new(10, 1);
        let plan = plan_setattr(&file, &chmod, &outsider).unwrap();
        assert_eq!(plan.mode, Some(0o755));
        let member = Caller::new(10, 20);
        let plan = plan_setattr(&file, &chmod, &member).unwrap();
        assert_eq!(plan.mode, Some(0o2755));
    }
}
