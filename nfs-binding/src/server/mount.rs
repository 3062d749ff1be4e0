//! The MOUNT program (RFC 1813, section 5).

use std::borrow::Cow;
use std::collections::VecDeque;
use std::net::{IpAddr, SocketAddr};
use std::sync::PoisonError;

use super::identity_policy::Peer;
use super::{Exported, Shared};
use crate::fs::FileId;
use crate::proto::{
    Export, ExportList, FileType, Flavors, MountEntry, MountList, MountName, MountOk, MountPath,
    MountResult, Status,
};

/// The maximum number of mounts that are remembered for DUMP. Clients do not have to unmount, so
/// the oldest entry is dropped.
const MAX_MOUNTS: usize = 1024;

/// The mounts that clients reported; for information only (RFC 1813, section 5.1.1).
#[derive(Debug, Default)]
pub(super) struct Mounts {
    entries: VecDeque<(IpAddr, MountPath)>,
}

impl Mounts {
    fn add(&mut self, client: IpAddr, path: &MountPath) {
        self.remove(client, path);
        if self.entries.len() == MAX_MOUNTS {
            self.entries.pop_front();
        }
        // The path is copied, because it is a slice of the call, which would otherwise be kept in
        // memory.
        self.entries
            .push_back((client, MountPath::from(path.as_ref())));
    }

    fn remove(&mut self, client: IpAddr, path: &MountPath) {
        self.entries
            .retain(|entry| entry.0 != client || entry.1 != *path);
    }
}

/// Returns a path as text for logs.
fn shown(path: &MountPath) -> Cow<'_, str> {
    String::from_utf8_lossy(path.as_ref())
}

/// Returns the components of a path, without "." and empty ones, joined by single slashes.
pub(super) fn normalise(path: &[u8]) -> Vec<u8> {
    let components = path
        .split(|&byte| byte == b'/')
        .filter(|component| !component.is_empty() && *component != b".");
    components.collect::<Vec<_>>().join(&b'/')
}

impl Shared {
    fn mounts(&self) -> std::sync::MutexGuard<'_, Mounts> {
        self.mounts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the innermost export that contains a path, and the part of the path below it.
    fn find_export<'p>(&self, path: &'p [u8]) -> Option<(&Exported, &'p [u8])> {
        let below = |exported: &Exported| -> Option<&'p [u8]> {
            let name = normalise(exported.export.path.as_bytes());
            let rest = path.strip_prefix(&name[..])?;
            match rest {
                [] => Some(rest),
                _ if name.is_empty() => Some(rest),
                [b'/', rest @ ..] => Some(rest),
                _ => None,
            }
        };
        let found = self.exports.iter().filter_map(|exported| {
            let rest = below(exported)?;
            Some((exported, rest))
        });
        found.min_by_key(|(_, rest)| rest.len())
    }

    /// Returns the directory at a path below the root of an export, and the export that it is in. As with
    /// LOOKUP, the path can lead into an export that is visible below another one. In each export, `sender`
    /// has the identity that the export's options give it.
    fn walk<'s>(
        &'s self,
        mut exported: &'s Exported,
        path: &[u8],
        sender: Peer,
    ) -> Result<(&'s Exported, FileId), Status> {
        let mounter = |exported: &Exported| self.policy.mounter(sender, &exported.export.options);
        let mut who = mounter(exported)?;
        let mut at = exported.export.backend.root();
        for name in path
            .split(|&byte| byte == b'/')
            .filter(|name| !name.is_empty())
        {
            if name == b".." {
                return Err(Status::INVAL);
            }
            let found = exported.export.backend.lookup(&who, &at, name)?.object;
            let mounted = found.mounted.as_ref();
            let inner = mounted.and_then(|mounted| self.visible_root(exported, mounted, sender));
            if let Some((inner, root, _)) = inner {
                who = mounter(inner)?;
                (exported, at) = (inner, root);
            } else {
                at = found.id;
            }
        }
        match exported.export.backend.getattr(&at)?.file_type {
            FileType::Directory => Ok((exported, at)),
            _ => Err(Status::NOTDIR),
        }
    }

    /// Executes MNT (section 5.2.1). A directory below an export can be mounted, too.
    pub(super) fn mnt(&self, sender: Peer, path: &MountPath) -> MountResult {
        let peer = sender.address;
        let name = normalise(path.as_ref());
        let found = self.find_export(&name).ok_or(Status::NOENT);
        let allowed = found.and_then(|(exported, rest)| {
            let options = &exported.export.options;
            match self.policy.admit(sender, options) {
                Ok(()) if options.allows(peer.ip()) => Ok((exported, rest)),
                // The status is the same for every reason, as with Linux's mountd.
                _ => Err(Status::ACCES),
            }
        });
        match allowed.and_then(|(exported, rest)| self.walk(exported, rest, sender)) {
            Ok((exported, id)) => {
                tracing::info!(%peer, path = &*shown(path), "mounted");
                self.mounts().add(peer.ip().to_canonical(), path);
                Ok(MountOk {
                    handle: exported.handles.issue(&id, None),
                    flavors: Flavors(vec![Flavors::SYS, Flavors::NONE]),
                })
            }
            Err(status) => {
                tracing::info!(%peer, path = &*shown(path), %status, "not mounted");
                // Not all NFS statuses exist in MOUNT (RFC 1813, section 5.1.5).
                let status = match status {
                    Status::PERM
                    | Status::NOENT
                    | Status::IO
                    | Status::ACCES
                    | Status::NOTDIR
                    | Status::INVAL
                    | Status::NAMETOOLONG
                    | Status::NOTSUPP => status,
                    Status::STALE => Status::NOENT,
                    _ => Status::SERVERFAULT,
                };
                Err(status.into())
            }
        }
    }

    /// Executes DUMP (section 5.2.2).
    pub(super) fn dump(&self) -> MountList {
        let mounts = self.mounts();
        let entries = mounts.entries.iter().map(|(client, path)| MountEntry {
            host: MountName::from(client.to_string().as_bytes()),
            path: path.clone(),
        });
        MountList {
            mounts: entries.collect(),
        }
    }

    /// Executes UMNT (section 5.2.3).
    pub(super) fn umnt(&self, peer: SocketAddr, path: &MountPath) {
        self.mounts().remove(peer.ip().to_canonical(), path);
    }

    /// Executes UMNTALL (section 5.2.4).
    pub(super) fn umntall(&self, peer: SocketAddr) {
        let client = peer.ip().to_canonical();
        self.mounts().entries.retain(|entry| entry.0 != client);
    }

    /// Executes EXPORT (section 5.2.5).
    pub(super) fn export_list(&self) -> ExportList {
        let exports = self.exports.iter().map(|exported| {
            let clients = exported.export.options.clients.iter();
            Export {
                path: MountPath::from(exported.export.path.as_bytes()),
                groups: clients
                    .map(|client| MountName::from(client.to_string().as_bytes()))
                    .collect(),
            }
        });
        ExportList {
            exports: exports.collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slashes_do_not_count() {
        for path in ["a/b", "/a/b", "//a///b/", "/a/./b/."] {
            assert_eq!(normalise(path.as_bytes()), b"a/b");
        }
        assert_eq!(normalise(b"/"), b"");
    }
}
