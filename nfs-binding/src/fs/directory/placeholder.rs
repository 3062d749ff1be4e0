//! The empty placeholder directory in place of another file system.
//!
//! Without `crossmnt`, a file system mounted below an export, and a subvolume or snapshot of btrfs,
//! is not part of the export. Clients see an empty, unmodifiable directory in its place, as they
//! see the mount point with other servers. The directory's identity contains everything about it,
//! so no table is kept and nothing has to be found after a restart.

use super::*;

/// The mode of a placeholder directory.
const MODE: u32 = 0o555;
/// The size of a placeholder directory in bytes, typical of small directories.
const SIZE: u64 = 4096;

/// Returns the attributes of a placeholder directory if `id` identifies one. `own` is the file
/// system of the exported directory.
pub(super) fn find(own: &Volume, id: &FileId) -> Option<Attributes> {
    let (fsid, number) = key::decode_placeholder(id)?;
    Some(Attributes {
        file_type: FileType::Directory,
        mode: MODE,
        nlink: 2,
        size: SIZE,
        used: SIZE,
        fsid: own.shown_of(fsid),
        fileid: number,
        ..Attributes::default()
    })
}

/// Returns the placeholder for the file system with the root `mounted`, as the entry `name` of `dir`.
pub(super) fn object(own: &Volume, dir: &Node, name: &[u8], mounted: FileId) -> FsResult<Object> {
    let id = dir.volume.placeholder(&dir.id, name);
    Ok(Object {
        id,
        attributes: find(own, &id).ok_or(FsError::BadHandle)?,
        mounted: Some(mounted),
    })
}

/// Executes LOOKUP in a placeholder: only `.` exists.
pub(super) fn lookup(id: &FileId, directory: Attributes, name: &[u8]) -> FsResult<Found> {
    name::check(name)?;
    match name {
        b"." => Ok(Found {
            object: Object {
                id: *id,
                attributes: directory.clone(),
                mounted: None,
            },
            directory,
        }),
        // The parent is not recorded.
        b".." => Err(FsError::Access),
        _ => Err(FsError::NotFound),
    }
}

/// Executes ACCESS on a placeholder.
pub(super) fn access(wanted: Access) -> Access {
    wanted & (Access::READ | Access::LOOKUP)
}

/// Executes READDIR of a placeholder.
pub(super) fn list(
    id: &FileId,
    attributes: Attributes,
    cookie: u64,
    objects: bool,
    take: &mut dyn FnMut(&DirEntry<'_>) -> bool,
) -> Listing {
    let names: [&[u8]; 2] = [b".", b".."];
    let rest = names.iter().zip(1..).filter(|(_, number)| *number > cookie);
    let mut eof = true;
    for (name, number) in rest {
        let object = ObjectRef {
            id: *id,
            attributes: &attributes,
            mounted: None,
            mac: None,
        };
        let taken = take(&DirEntry {
            fileid: attributes.fileid,
            name,
            cookie: number,
            object: (objects && *name == b".").then_some(object),
        });
        if !taken {
            eof = false;
            break;
        }
    }
    Listing {
        verifier: Verifier::default(),
        eof,
        attributes,
    }
}
