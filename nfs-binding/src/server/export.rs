//! An export: a directory or other file system, its clients, and the identity mapping.

use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;

use onc_rpc::Credential;

use super::{HandleKey, Network};
use crate::fs::directory::DirectoryOptions;
use crate::fs::{Caller, FileSystem};

/// The user and group "nobody", as in exports(5).
const NOBODY: u32 = 65534;

/// The users whose identity is replaced by the anonymous user.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Squash {
    /// No user: the client's superuser is the superuser here (`no_root_squash`).
    None,
    /// The superuser (`root_squash`).
    Root,
    /// All users (`all_squash`).
    All,
}

/// The options of an export. Option names are those of exports(5).
///
/// The defaults depend on whether the server runs as root ([`ExportOptions::for_server`]). Unlike
/// with exports(5), an export is writable by default, and open to every client. AUTH_SYS lets a
/// client claim any identity, so `root_squash` alone protects nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExportOptions {
    /// Whether modifications are refused (`ro`).
    pub read_only: bool,
    /// The users that are squashed.
    pub squash: Squash,
    /// The user that squashed users, and all users of AUTH_NONE, are mapped to (`anonuid=`).
    pub anonymous_uid: u32,
    /// The group that they are mapped to (`anongid=`).
    pub anonymous_gid: u32,
    /// Whether other hosts may use TCP only from ports below 1024 (`secure`), which need privilege
    /// on most systems. This does not apply to RDMA connections.
    pub secure: bool,
    /// The clients that may use the export (`client=`, repeatable). Empty: all.
    pub clients: Vec<Network>,
    /// Whether data that must be stable is synced before the reply (`sync`).
    pub sync: bool,
    /// Whether file systems mounted below are part of the export (`crossmnt`).
    pub crossmnt: bool,
    /// Whether clients see this export where its directory is mounted below another export
    /// (`nohide`).
    pub nohide: bool,
    /// The number of the file system in file handles (`fsid=`), instead of the host's.
    pub fsid: Option<u64>,
    /// Whether to export a file system in which a later file cannot be distinguished from a removed
    /// one (`inode_reuse`).
    pub inode_reuse: bool,
}

impl Default for ExportOptions {
    /// Returns the defaults for a server that runs as this process's user.
    fn default() -> Self {
        Self::for_server(rustix::process::geteuid().is_root())
    }
}

impl ExportOptions {
    /// Returns the defaults for a server that runs as root or not. For root they include
    /// `root_squash` and `secure`, as in exports(5). Any other server has only the rights of its
    /// own user, so they are not needed.
    #[must_use]
    pub fn for_server(is_root: bool) -> Self {
        Self {
            read_only: false,
            squash: match is_root {
                true => Squash::Root,
                false => Squash::None,
            },
            secure: is_root,
            anonymous_uid: NOBODY,
            anonymous_gid: NOBODY,
            clients: Vec::new(),
            sync: true,
            crossmnt: false,
            nohide: false,
            fsid: None,
            inode_reuse: false,
        }
    }

    /// Returns the options of the exported directory. `key` hashes identities that do not fit into
    /// a handle.
    #[must_use]
    pub fn directory(&self, key: &HandleKey) -> DirectoryOptions {
        DirectoryOptions {
            sync: self.sync,
            fsid: self.fsid,
            crossmnt: self.crossmnt,
            inode_reuse: self.inode_reuse,
            most_open: None,
            direct_io: false,
            identity_key: key.identity_key(),
            #[cfg(test)]
            indexed: false,
        }
    }

    /// Returns whether a client may use the export.
    #[must_use]
    pub fn allows(&self, client: IpAddr) -> bool {
        self.clients.is_empty() || self.clients.iter().any(|network| network.contains(client))
    }

    /// Returns the identity under which a call is executed. AUTH_NONE and unsupported flavors
    /// become anonymous.
    #[must_use]
    pub fn caller(&self, credential: &Credential) -> Caller {
        self.caller_squashed(credential, self.squash)
    }

    /// Returns the identity under which a call is executed, squashed by `squash` instead of the
    /// export's option.
    pub(super) fn caller_squashed(&self, credential: &Credential, squash: Squash) -> Caller {
        let Credential::Sys(claimed) = credential else {
            return self.anonymous();
        };
        // All ones is no valid user or group on any host.
        if claimed.uid == u32::MAX || claimed.gid == u32::MAX {
            return self.anonymous();
        }
        let caller = Caller {
            uid: claimed.uid,
            gid: claimed.gid,
            gids: claimed.gids.clone(),
        };
        self.squashed(caller, squash)
    }

    /// Returns the identity that squashed callers get.
    pub(super) fn anonymous(&self) -> Caller {
        Caller::new(self.anonymous_uid, self.anonymous_gid)
    }

    /// Squashes a caller.
    pub(super) fn squashed(&self, mut caller: Caller, squash: Squash) -> Caller {
        match squash {
            Squash::All => self.anonymous(),
            Squash::None => caller,
            Squash::Root => {
                // Group 0 is squashed independently of user 0, as in Linux.
                let (uid, gid) = (self.anonymous_uid, self.anonymous_gid);
                let group = |claimed| if claimed == 0 { gid } else { claimed };
                caller.uid = if caller.uid == 0 { uid } else { caller.uid };
                caller.gid = group(caller.gid);
                caller.gids.iter_mut().for_each(|gid| *gid = group(*gid));
                caller
            }
        }
    }
}

impl fmt::Display for ExportOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.read_only { "ro" } else { "rw" })?;
        f.write_str(match self.squash {
            Squash::None => ",no_root_squash",
            Squash::Root => ",root_squash",
            Squash::All => ",all_squash",
        })?;
        f.write_str(if self.secure { ",secure" } else { ",insecure" })?;
        f.write_str(if self.sync { ",sync" } else { ",async" })?;
        for (is_on, name) in [
            (self.crossmnt, ",crossmnt"),
            (self.nohide, ",nohide"),
            (self.inode_reuse, ",inode_reuse"),
        ] {
            f.write_str(if is_on { name } else { "" })?;
        }
        if let Some(fsid) = self.fsid {
            write!(f, ",fsid={fsid}")?;
        }
        if self.anonymous_uid != NOBODY {
            write!(f, ",anonuid={}", self.anonymous_uid)?;
        }
        if self.anonymous_gid != NOBODY {
            write!(f, ",anongid={}", self.anonymous_gid)?;
        }
        for client in &self.clients {
            write!(f, ",client={client}")?;
        }
        Ok(())
    }
}

/// A file system, its path and its options.
#[derive(Clone)]
pub struct Export {
    /// The path that clients mount, such as "/srv/data", or a simple name such as "data". Leading,
    /// trailing and repeated slashes in a client's request are ignored.
    pub path: String,
    /// The file system.
    pub backend: Arc<dyn FileSystem>,
    /// The options.
    pub options: ExportOptions,
}

impl fmt::Debug for Export {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Export")
            .field("path", &self.path)
            .field("options", &self.options)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use onc_rpc::AuthSys;

    use super::*;

    fn claim(uid: u32, gid: u32, gids: &[u32]) -> Credential {
        Credential::Sys(AuthSys {
            uid,
            gid,
            gids: gids.iter().copied().collect(),
            ..AuthSys::default()
        })
    }

    #[test]
    fn identities_are_squashed() {
        let caller = |squash, credential: &Credential| {
            let options = ExportOptions {
                squash,
                anonymous_uid: 100,
                anonymous_gid: 200,
                ..ExportOptions::default()
            };
            let caller = options.caller(credential);
            (caller.uid, caller.gid, caller.gids.to_vec())
        };
        let (root, user) = (claim(0, 0, &[0, 5]), claim(7, 8, &[9, 0]));
        assert_eq!(caller(Squash::None, &root), (0, 0, vec![0, 5]));
        assert_eq!(caller(Squash::Root, &root), (100, 200, vec![200, 5]));
        assert_eq!(caller(Squash::Root, &user), (7, 8, vec![9, 200]));
        assert_eq!(caller(Squash::All, &user), (100, 200, vec![]));
        let nobody = [claim(u32::MAX, 5, &[]), claim(5, u32::MAX, &[])];
        for claimed in &nobody {
            assert_eq!(caller(Squash::None, claimed), (100, 200, vec![]));
        }
        for squash in [Squash::None, Squash::Root, Squash::All] {
            assert_eq!(caller(squash, &Credential::None), (100, 200, vec![]));
        }
    }
}
