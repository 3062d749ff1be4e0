//! The folder and the file that `conform --read-only` finds in an export, for its cases to read.

use nfs_binding::client::{Follow, Mount, NfsError, RpcClient};
use nfs_binding::proto::{FileHandle, FileType};
use rpcrdma_conform::read_only::{LONGEST, Objects};
use rpcrdma_setup::access::Mounted;

use crate::output;

/// The most entries of the folder that are looked at.
const MOST_ENTRIES: usize = 1000;
/// The most files that are tried.
const MOST_FILES: usize = 8;

/// Finds the folder of the URL, and a regular file in it: the first one that is long enough for all cases, or else the
/// longest that can be read.
///
/// # Errors
/// The folder cannot be read.
pub(crate) fn objects(mounted: &Mounted, user: (u32, u32), xid: u32) -> Result<Objects, NfsError> {
    let (mount, path) = (&mounted.mount, &mounted.path[..]);
    let (folder, found) = mounted.reached.runtime.block_on(async {
        let folder = mount.resolve(path, Follow::Yes).await?.handle;
        let mut files = files(mount, folder, path).await?;
        // Stable: those that are long enough stay in the order of the folder.
        files.sort_by_key(|it| std::cmp::Reverse(it.size.min(LONGEST.into())));
        for file in files.into_iter().take(MOST_FILES) {
            match first_bytes(mount, file.handle, path).await {
                Ok(bytes) if !bytes.is_empty() => return Ok((folder, Some((file, bytes)))),
                // Another one may be readable.
                Ok(_) | Err(_) => {}
            }
        }
        Ok::<_, NfsError>((folder, None))
    })?;
    if let Some((file, _)) = &found {
        let name = String::from_utf8_lossy(&file.name);
        output::note(format_args!("cases read {name}"));
    }
    let file = found.map(|(file, bytes)| (file.handle.as_bytes().to_vec(), bytes));
    Ok(Objects {
        folder: folder.as_bytes().to_vec(),
        file,
        user,
        xid,
    })
}

/// A regular file.
struct Found {
    name: Vec<u8>,
    handle: FileHandle,
    size: u64,
}

/// Returns the regular files of a folder that are not empty.
async fn files<C: RpcClient>(
    mount: &Mount<C>,
    folder: FileHandle,
    path: &[u8],
) -> Result<Vec<Found>, NfsError> {
    let mut found = Vec::new();
    let mut left = MOST_ENTRIES;
    let mut listing = mount.list(folder);
    while left > 0
        && let Some(entries) = listing.next(path).await?
    {
        for entry in entries.into_iter().take(left) {
            left -= 1;
            let name = entry.name.0.to_vec();
            let (handle, attributes) = match (entry.handle, entry.attributes) {
                (Some(handle), Some(attributes)) => (handle, attributes),
                // READDIR has none.
                _ => match mount.lookup(folder, &name, path).await {
                    Ok(object) => (object.handle, object.attributes),
                    Err(_) => continue,
                },
            };
            if attributes.file_type == FileType::Regular && attributes.size > 0 {
                let size = attributes.size;
                found.push(Found { name, handle, size });
            }
        }
    }
    Ok(found)
}

/// Reads the first bytes of a file.
async fn first_bytes<C: RpcClient>(
    mount: &Mount<C>,
    file: FileHandle,
    path: &[u8],
) -> Result<Vec<u8>, NfsError> {
    let mut bytes = Vec::new();
    loop {
        let left = LONGEST.saturating_sub(bytes.len() as u32);
        let read = mount.read(file, bytes.len() as u64, left, path).await?;
        bytes.extend_from_slice(&read.data.0.to_bytes());
        if read.eof || bytes.len() >= LONGEST as usize {
            return Ok(bytes);
        }
    }
}
