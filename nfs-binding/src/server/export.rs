//! An export: what is served, to whom, and as whom.

use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;

use onc_rpc::Credential;

use super::Network;
use crate::fs::{Caller, FileSystem};

/// User and group "nobody", as exports(5) has it.
const NOBODY: u32 = 65534;

/// Whose identity is not believed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Squash {
    /// Nobody's: the client's superuser is the superuser here (`no_root_squash`).
    #[default]
    None,
    /// The superuser's (`root_squash`).
    Root,
    /// Everybody's (`all_squash`).
    All,
}

/// How an export is served. Names of options are those of exports(5).
///
/// The defaults are what a fresh experiment wants, not what exports(5) has: writable, identities
/// believed, open to every client. AUTH_SYS lets a client claim any identity, so `root_squash`
/// alone keeps nobody out.
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
    /// The clients it is for (`client=`, repeatable); empty: all.
    pub clients: Vec<Network>,
    /// Whether what has to be stable is, before the reply (`sync`).
    pub sync: bool,
}

impl Default for ExportOptions {
    fn default() -> Self {
        Self {
            read_only: false,
            squash: Squash::None,
            anonymous_uid: NOBODY,
            anonymous_gid: NOBODY,
            clients: Vec::new(),
            sync: true,
        }
    }
}

impl ExportOptions {
    /// Whether a client may use the export.
    #[must_use]
    pub fn allows(&self, client: IpAddr) -> bool {
        self.clients.is_empty() || self.clients.iter().any(|network| network.contains(client))
    }

    /// For whom a call is done. AUTH_NONE, and what is not implemented, is anonymous.
    #[must_use]
    pub fn caller(&self, credential: &Credential) -> Caller {
        let (uid, gid) = (self.anonymous_uid, self.anonymous_gid);
        let Credential::Sys(claimed) = credential else {
            return Caller::new(uid, gid);
        };
        match self.squash {
            Squash::All => Caller::new(uid, gid),
            Squash::None => Caller {
                uid: claimed.uid,
                gid: claimed.gid,
                gids: claimed.gids.clone(),
            },
            Squash::Root => {
                // Group 0 is squashed apart from user 0, as Linux does.
                let group = |claimed| if claimed == 0 { gid } else { claimed };
                Caller {
                    uid: if claimed.uid == 0 { uid } else { claimed.uid },
                    gid: group(claimed.gid),
                    gids: claimed.gids.iter().map(|&gid| group(gid)).collect(),
                }
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
        f.write_str(if self.sync { ",sync" } else { ",async" })?;
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
        for squash in [Squash::None, Squash::Root, Squash::All] {
            assert_eq!(caller(squash, &Credential::None), (100, 200, vec![]));
        }
    }
}
