//! The empty directory in place of another file system.
//!
//! What is mounted below an export, and a subvolume or snapshot of btrfs, is not part of the
//! export without `crossmnt`. Clients see an empty directory there that nobody can change, as they
//! see the directory that a mount covers with other servers. Its identity says all there is to
//! know of it, so that nothing is kept and nothing need be found after a restart.

use super::*;

/// Mode of the directory.
const MODE: u32 = 0o555;
/// Size of the directory, as small ones have.
const SIZE: u64 = 4096;

/// Attributes of the placeholder directory. `number` is its file id.
fn attributes(number: u64) -> Attributes {
    Attributes {
        file_type: FileType::Directory,
        mode: MODE,
        nlink: 2,
        size: SIZE,
        used: SIZE,
        fileid: number,
        ..Attributes::default()
    }
}

/// The attributes of such a directory, if `id` is one's.
pub(super) fn find(id: &FileId) -> Option<Attributes> {
    key::covered_number(id).map(attributes)
}

/// The directory in place of the file system with the root `mounted`, as an entry of `dir`.
pub(super) fn object(dir: &Node, mounted: FileId) -> FsResult<Object> {
    let id = dir.volume.covered(&mounted);
    let attributes = find(&id).ok_or(FsError::BadHandle)?;
    Ok(Object {
        id,
        attributes: Attributes {
            fsid: dir.volume.shown,
            ..attributes
        },
        mounted: Some(mounted),
    })
}

/// LOOKUP in it: it has nothing but itself.
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
        // Nothing is remembered of where it is.
        b".." => Err(FsError::Access),
        _ => Err(FsError::NotFound),
    }
}

/// ACCESS to it.
pub(super) fn access(wanted: Access) -> Access {
    wanted & (Access::READ | Access::LOOKUP)
}

/// READDIR of it.
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
        let object = Object {
            id: *id,
            attributes: attributes.clone(),
            mounted: None,
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
