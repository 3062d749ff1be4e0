//! Taking an export into use.

use std::cell::Cell;

use super::error::{DisplayPath, NfsError, Op, checked};
use super::mount::{Limits, Mount};
use super::nfs3::{Mount3, Nfs3};
use super::options::{AttachOptions, DEFAULT_IO, MIN_IO};
use super::path::{components, strip_prefix};
use super::rpc::RpcClient;
use crate::proto::{Flavors, FsinfoOk, MAX_DATA, MountArgs, MountOk, MountPath, Status};

/// Least and most bytes of one READDIR or READDIRPLUS. The most is what a client has to set aside
/// for every listing under way.
const LIST: (u32, u32) = (4 << 10, 64 << 10);

impl<C: RpcClient> Mount<C> {
    /// Takes the export into use that holds `path`, an absolute path on the server. Gives the
    /// mount, and the part of the path that is below the export's root. `mountd` is where MOUNT
    /// answers; it may be the same as `nfs`.
    ///
    /// Which part of the path is the export only the server knows. So: the longest path in its
    /// list of exports (EXPORT) that `path` starts with; failing that, since a server may keep its
    /// list to itself, whichever of `path`, its parent, and so on to `/` the server lets be
    /// mounted. (Mounting `path` itself would not do where it is a file, or yet to be made.)
    ///
    /// # Errors
    /// [`NfsError::NotExported`], [`NfsError::Security`], or what MNT and FSINFO said.
    pub async fn attach<M: RpcClient>(
        nfs: C,
        mountd: M,
        path: &[u8],
        options: &AttachOptions,
    ) -> Result<(Self, Vec<u8>), NfsError> {
        let mountd = Mount3::new(mountd);
        let (export, ok) = find_export(&mountd, path).await?;
        let usable = |&flavor: &u32| flavor == Flavors::SYS || flavor == Flavors::NONE;
        if !ok.flavors.0.is_empty() && !ok.flavors.0.iter().any(usable) {
            return Err(NfsError::Security {
                path: export.as_slice().into(),
                flavors: ok.flavors.0,
            });
        }
        let rest = strip_prefix(path, &export).unwrap_or_default();
        let mut mount = Self {
            nfs: Nfs3::new(nfs),
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

    /// Tells the server that the export is no longer in use (UMNT). A courtesy: it keeps the
    /// server's list of mounts right, and nothing else depends on it.
    ///
    /// # Errors
    /// The call got no reply.
    pub async fn detach<M: RpcClient>(self, mountd: M) -> Result<(), NfsError> {
        let path = MountPath::from(self.export.as_slice());
        let outcome = Mount3::new(mountd).unmount(&MountArgs { path }).await;
        checked::<(), ()>(outcome.map(Ok), Op::Mount, &self.export)
    }
}

/// A size the user asked for, or the usual one, cut to what both sides can do. A server that says
/// nothing (0) leaves it to the client.
fn limits(info: &FsinfoOk, options: &AttachOptions) -> Limits {
    let size = |asked: Option<u32>, server: u32| {
        let server = if server == 0 { MAX_DATA } else { server };
        asked.unwrap_or(DEFAULT_IO).min(server).clamp(1, MAX_DATA)
    };
    let multiple = |size: u32| {
        if size > MIN_IO {
            size - size % MIN_IO
        } else {
            size
        }
    };
    Limits {
        rsize: multiple(size(options.rsize, info.read_max)),
        wsize: multiple(size(options.wsize, info.write_max)),
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

async fn find_export<M: RpcClient>(
    mountd: &Mount3<M>,
    path: &[u8],
) -> Result<(Vec<u8>, MountOk), NfsError> {
    let listed = match checked::<_, ()>(mountd.export(&()).await.map(Ok), Op::Mount, path) {
        Ok(list) => list.exports,
        Err(error) if error.is_fatal() => return Err(error),
        // It has no list, or none that fits a reply.
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
        let mut candidate = b"/".to_vec();
        candidate.extend(parts[..end].join(&b'/'));
        match mount(mountd, &candidate).await {
            Ok(ok) => return Ok((candidate, ok)),
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

/// What servers say of a path that is no export: Linux says that permission is denied.
fn try_shorter(status: Status) -> bool {
    matches!(
        status,
        Status::NOENT | Status::NOTDIR | Status::ACCES | Status::INVAL | Status::NAMETOOLONG
    )
}
