//! Mounting and unmounting an export.

use std::cell::Cell;

use super::error::{DisplayPath, NfsError, Op, checked};
use super::mount::{Limits, Mount};
use super::nfs3::{Mount3, Nfs3};
use super::options::{AttachOptions, DEFAULT_IO, MIN_IO};
use super::path::{components, strip_prefix};
use super::rpc::RpcClient;
use crate::proto::{
    DirOp, DirOpArgs, Flavors, FsinfoOk, MAX_DATA, MountArgs, MountOk, MountPath, Name, Status,
};

/// The minimum and maximum bytes of one READDIR or READDIRPLUS reply. A client has to reserve the
/// maximum for every listing in progress.
const LIST: (u32, u32) = (4 << 10, 64 << 10);

impl<C: RpcClient> Mount<C> {
    /// Mounts the export that contains `path`, an absolute path on the server. Returns the mount
    /// and the part of the path below the export's root. `mountd` is the RPC client for MOUNT,
    /// which may be the same as `nfs`.
    ///
    /// Only the server knows which part of the path is the export. So this function takes the
    /// longest path in the server's list of exports (EXPORT) that is a prefix of `path`. A server
    /// may hide its list or parts of it; then the function tries to mount `path`, its parent, and
    /// so on up to `/`. (Mounting `path` itself fails if it does not exist yet.)
    ///
    /// Servers also accept MNT of a directory below an export; Linux accepts it of a regular file.
    /// Such an object is not the root of the export: it can be removed, and `..` leads out of it.
    /// So this function goes up from the object that it could mount. It continues while the parent
    /// can be mounted too and a LOOKUP in the parent returns the same file handle. It does so within one
    /// export, and where the server shows one export within another (`nohide`), whose root is then reached
    /// from the outer one.
    ///
    /// # Errors
    /// [`NfsError::NotExported`], [`NfsError::Security`], or the error of MNT or FSINFO.
    pub async fn attach<M: RpcClient>(
        nfs: C,
        mountd: M,
        path: &[u8],
        options: &AttachOptions,
    ) -> Result<(Self, Vec<u8>), NfsError> {
        let (nfs, mountd) = (Nfs3::new(nfs), Mount3::new(mountd));
        let (export, ok) = find_export(&nfs, &mountd, path).await?;
        let usable = |&flavor: &u32| flavor == Flavors::SYS || flavor == Flavors::NONE;
        if !ok.flavors.0.is_empty() && !ok.flavors.0.iter().any(usable) {
            return Err(NfsError::Security {
                path: export.as_slice().into(),
                flavors: ok.flavors.0,
            });
        }
        let rest = strip_prefix(path, &export).unwrap_or_default();
        let mut mount = Self {
            nfs,
            root: ok.handle,
            export,
            limits: limits(&FsinfoOk::default(), options),
            readdirplus: Cell::new(options.readdirplus),
            read_only: options.read_only,
        };
        let info = mount.fsinfo(mount.root, b"".as_slice()).await?;
        mount.limits = limits(&info, options);
        Ok((mount, rest))
    }

    /// Tells the server that the export is no longer in use (UMNT). This only keeps the server's
    /// list of mounts correct.
    ///
    /// # Errors
    /// The error of the call if it got no reply.
    pub async fn detach<M: RpcClient>(self, mountd: M) -> Result<(), NfsError> {
        unmount(&Mount3::new(mountd), &self.export).await
    }
}

/// Returns the limits of an export in use. Transfer sizes are those that the user requested, or those
/// that the server prefers, as in Linux (`nfs_server_set_fsinfo`), or the defaults. They are reduced to
/// what both sides support. A server that reports 0, or prefers less than any client can want, leaves the
/// choice to the client.
fn limits(info: &FsinfoOk, options: &AttachOptions) -> Limits {
    let given = |size: u32| Some(size).filter(|&size| size != 0);
    let size = |asked: Option<u32>, preferred: u32, most: u32| {
        let preferred = Some(preferred).filter(|&size| size >= MIN_IO);
        let size = asked.and_then(given).or(preferred).unwrap_or(DEFAULT_IO);
        size.min(given(most).unwrap_or(MAX_DATA)).clamp(1, MAX_DATA)
    };
    let multiple = |size: u32| {
        if size > MIN_IO {
            size - size % MIN_IO
        } else {
            size
        }
    };
    Limits {
        rsize: multiple(size(options.rsize, info.read_preferred, info.read_max)),
        wsize: multiple(size(options.wsize, info.write_preferred, info.write_max)),
        write_multiple: info.write_multiple,
        list: info.readdir_preferred.clamp(LIST.0, LIST.1),
        max_file_size: match info.max_file_size {
            0 => u64::MAX,
            size => size,
        },
    }
}

async fn mount<M: RpcClient>(mountd: &Mount3<M>, path: &[u8]) -> Result<MountOk, NfsError> {
    let args = MountArgs {
        path: MountPath::from(path),
    };
    checked(mountd.mount(&args).await, Op::Mount, path)
}

async fn find_export<C: RpcClient, M: RpcClient>(
    nfs: &Nfs3<C>,
    mountd: &Mount3<M>,
    path: &[u8],
) -> Result<(Vec<u8>, MountOk), NfsError> {
    let listed = match checked::<_, ()>(mountd.export(&()).await.map(Ok), Op::Mount, path) {
        Ok(list) => list.exports,
        Err(error) if error.is_fatal() => return Err(error),
        // The server has no list, or none that fits a reply.
        Err(_) => Vec::new(),
    };
    let holding = listed
        .iter()
        .map(|export| &export.path.0)
        .filter(|export| strip_prefix(path, export).is_some());
    if let Some(export) = holding.max_by_key(|export| components(export).count()) {
        let ok = mount(mountd, export).await?;
        return Ok((export.to_vec(), ok));
    }
    let parts: Vec<&[u8]> = components(path).collect();
    for end in (0..=parts.len()).rev() {
        let candidate = absolute(&parts[..end]);
        match mount(mountd, &candidate).await {
            Ok(ok) => return outermost(nfs, mountd, &parts[..end], ok).await,
            Err(error) if error.status().is_some_and(try_shorter) => {}
            Err(error) => return Err(error),
        }
    }
    let exports = listed
        .iter()
        .map(|export| DisplayPath::from(&export.path.0[..]));
    Err(NfsError::NotExported {
        path: path.into(),
        exports: exports.collect(),
    })
}

fn absolute(parts: &[&[u8]]) -> Vec<u8> {
    [b"/", &parts.join(&b'/')[..]].concat()
}

/// Returns the outermost object above `parts`, or that itself, from which lookups lead to it.
/// `ok` is the result of mounting `parts`.
async fn outermost<C: RpcClient, M: RpcClient>(
    nfs: &Nfs3<C>,
    mountd: &Mount3<M>,
    mut parts: &[&[u8]],
    mut ok: MountOk,
) -> Result<(Vec<u8>, MountOk), NfsError> {
    // `..` in a URL's path goes back along the path, as elsewhere in this client.
    while let Some((&name, above)) = parts.split_last()
        && name != b".."
    {
        let path = absolute(above);
        let parent = match mount(mountd, &path).await {
            Ok(parent) => parent,
            Err(error) if error.is_fatal() => return Err(error),
            Err(_) => break,
        };
        let place = DirOpArgs {
            what: DirOp {
                dir: parent.handle,
                name: Name::from(name),
            },
        };
        let found = checked(nfs.lookup(&place).await, Op::Find, &path);
        // The server's list of mounts should have only what remains mounted.
        let unused = match found {
            Ok(found) if found.object == ok.handle => {
                let unused = absolute(parts);
                (parts, ok) = (above, parent);
                unused
            }
            Err(error) if error.is_fatal() => return Err(error),
            _ => {
                release(mountd, &path).await?;
                break;
            }
        };
        release(mountd, &unused).await?;
    }
    Ok((absolute(parts), ok))
}

/// Tells the server that a path that was mounted on the way is not in use. That is advice, which a
/// server may not understand.
async fn release<M: RpcClient>(mountd: &Mount3<M>, path: &[u8]) -> Result<(), NfsError> {
    match unmount(mountd, path).await {
        Err(error) if error.is_fatal() => Err(error),
        _ => Ok(()),
    }
}

/// Tells the server that a path is not in use.
async fn unmount<M: RpcClient>(mountd: &Mount3<M>, path: &[u8]) -> Result<(), NfsError> {
    let args = MountArgs {
        path: MountPath::from(path),
    };
    checked::<(), ()>(mountd.unmount(&args).await.map(Ok), Op::Mount, path)
}

/// Returns whether MNT failed with a status that servers return for a path that is no export. Linux
/// returns "permission denied".
fn try_shorter(status: Status) -> bool {
    matches!(
        status,
        Status::NOENT | Status::NOTDIR | Status::ACCES | Status::INVAL | Status::NAMETOOLONG
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_those_asked_for_or_preferred() {
        let (none, some) = (None, Some(8 << 10));
        for (asked, preferred, most, size) in [
            (none, 64 << 10, 256 << 10, 64 << 10),
            (some, 64 << 10, 256 << 10, 8 << 10),
            (Some(0), 64 << 10, 256 << 10, 64 << 10),
            (Some(128 << 10), 64 << 10, 256 << 10, 128 << 10),
            (none, 512 << 10, 256 << 10, 256 << 10),
            (none, 2 << 20, 4 << 20, 2 << 20),
            (none, u32::MAX, u32::MAX, MAX_DATA),
            (none, 64 << 10, 0, 64 << 10),
            (none, 0, 256 << 10, 256 << 10),
            (none, 0, 4 << 20, DEFAULT_IO),
            (none, 0, 0, DEFAULT_IO),
            (none, 5000, 0, 4096),
            (none, 1024, 0, 1024),
            (none, 1023, 0, DEFAULT_IO),
            (none, 1, 64 << 10, 64 << 10),
            (none, 1, 512, 512),
        ] {
            // One direction must not get the size of the other.
            let (read, write) = (
                FsinfoOk {
                    read_preferred: preferred,
                    read_max: most,
                    ..FsinfoOk::default()
                },
                FsinfoOk {
                    write_preferred: preferred,
                    write_max: most,
                    ..FsinfoOk::default()
                },
            );
            let options = AttachOptions {
                rsize: asked,
                wsize: asked,
                ..AttachOptions::default()
            };
            let text = format!("{asked:?}, {preferred} of {most}");
            assert_eq!(limits(&read, &options).rsize, size, "{text}");
            assert_eq!(limits(&write, &options).wsize, size, "{text}");
        }
    }
}
