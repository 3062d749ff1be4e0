//! An export: what is served, to whom, and as whom.

use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;

use onc_rpc::Credential;

use super::{HandleKey, Network};
use crate::fs::directory::DirectoryOptions;
use crate::fs::{Caller, FileSystem};

/// User and group "nobody", as exports(5) has it.
const NOBODY: u32 = 65534;

/// Whose identity is not believed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Squash {
    /// Nobody's: the client's superuser is the superuser here (`no_root_squash`).
    None,
    /// The superuser's (`root_squash`).
    Root,
    /// Everybody's (`all_squash`).
    All,
}

/// How an export is served. Names of options are those of exports(5).
///
/// The defaults depend on whether the server runs as root ([`ExportOptions::for_server`]). Other than
/// with exports(5), an export is writable unless it says otherwise, and open to every client. AUTH_SYS
/// lets a client claim any identity, so `root_squash` alone keeps nobody out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExportOptions {
    /// Nothing is changed through it (`ro`).
    pub read_only: bool,
    /// Whose identity is not believed.
    pub squash: Squash,
    /// The user that those are taken for (`anonuid=`), and everybody who uses AUTH_NONE.
    pub anonymous_uid: u32,
    /// The group that those are taken for (`anongid=`).
    pub anonymous_gid: u32,
    /// Whether other hosts can use it over TCP from ports below 1024 only (`secure`), which on most
    /// systems take privilege to use. RDMA connections are not asked for that.
    pub secure: bool,
    /// The clients it is for (`client=`, repeatable); empty: all.
    pub clients: Vec<Network>,
    /// Whether what has to be stable is, before the reply (`sync`).
    pub sync: bool,
    /// Whether file systems that are mounted below are part of the export (`crossmnt`).
    pub crossmnt: bool,
    /// Whether this export is seen where its directory is mounted below another one (`nohide`).
    pub nohide: bool,
    /// The number of the file system in file handles (`fsid=`), instead of the host's.
    pub fsid: Option<u64>,
    /// Whether a file system is exported whose removed files cannot be told from later ones
    /// (`inode_reuse`).
    pub inode_reuse: bool,
}

impl Default for ExportOptions {
    /// The defaults of a server that runs as this process's user.
    fn default() -> Self {
        Self::for_server(rustix::process::geteuid().is_root())
    }
}

impl ExportOptions {
    /// Defaults for a server that does or does not run as root. As root an export has `root_squash`
    /// and `secure`, as in exports(5); any other server can do no more than its own user, whoever
    /// calls.
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

    /// How a directory is served that is exported so. `key` hashes what does not fit into a handle.
    #[must_use]
    pub fn directory(&self, key: &HandleKey) -> DirectoryOptions {
        DirectoryOptions {
            sync: self.sync,
            fsid: self.fsid,
            crossmnt: self.crossmnt,
            inode_reuse: self.inode_reuse,
            most_open: None,
            identity_key: key.identity_key(),
            #[cfg(test)]
            indexed: false,
        }
    }

    /// Whether a client may use the export.
    #[must_use]
    pub fn allows(&self, client: IpAddr) -> bool {
        self.clients.is_empty() || self.clients.iter().any(|network| network.contains(client))
    }

    /// For whom a call is done. AUTH_NONE, and what is not implemented, is anonymous.
    #[must_use]
    pub fn caller(&self, credential: &Credential) -> Caller {
        self.caller_squashed(credential, self.squash)
    }

    /// The caller of a call, squashed by `squash` instead of the export's option.
    pub(super) fn caller_squashed(&self, credential: &Credential, squash: Squash) -> Caller {
        let Credential::Sys(claimed) = credential else {
            return self.anonymous();
        };
        // All ones stand for nobody on every host.
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

    /// The caller that others are squashed to.
    pub(super) fn anonymous(&self) -> Caller {
        Caller::new(self.anonymous_uid, self.anonymous_gid)
    }

    /// Squashes a caller.
    pub(super) fn squashed(&self, mut caller: Caller, squash: Squash) -> Caller {
        match squash {
            Squash::All => self.anonymous(),
            Squash::None => caller,
            Squash::Root => {
                // Group 0 is squashed apart from user 0, as Linux does.
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

/// A file system under a path.
#[derive(Clone)]
pub struct Export {
    /// What clients mount: a path ("/srv/data") or just a name ("data"). Leading, trailing and
    /// repeated slashes do not count when a client asks for it.
    pub path: String,
    /// What is served.
    pub backend: Arc<dyn FileSystem>,
    /// How.
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
