//! The policy on identities: which peers may claim which users and groups.
//!
//! With AUTH_SYS a client claims an identity, and nothing proves it. For other hosts, exports(5) is
//! the policy: which hosts may use an export, from which ports, and whose identities they may
//! claim. For a peer on this host the kernel knows the user ([`PeerOrigin::ThisHost`]). Root may
//! act for all users, like the kernel's client, and so may users who are trusted (`--trust-uid`). All other
//! users may only act for themselves. A peer with an unknown user is mapped to the anonymous user.

use std::net::SocketAddr;
use std::sync::Arc;

use onc_rpc::Credential;
use rdma::Time;
use rpc_transport::PeerOrigin;

use super::users::{Groups, Users};
use super::{ExportOptions, Squash};
use crate::fs::Caller;
use crate::proto::Status;

/// The lowest unprivileged port (`IPPORT_RESERVED`).
const FIRST_UNRESERVED: u16 = 1024;

/// The policy that decides as which user a call is executed.
#[derive(Debug)]
pub struct IdentityPolicy {
    /// The server's own effective user. As root it impersonates its callers; otherwise it acts as
    /// itself.
    own: u32,
    /// Other users who may act for all users.
    trusted_users: Vec<u32>,
    users: Users,
}

/// The peer that sent a call.
#[derive(Clone, Copy, Debug)]
pub(super) struct Peer {
    pub(super) address: SocketAddr,
    pub(super) origin: PeerOrigin,
}

impl IdentityPolicy {
    /// Returns the policy of a server that runs as this process's user.
    #[must_use]
    pub fn of_this_process() -> Self {
        Self::of_user(rustix::process::geteuid().as_raw())
    }

    /// Returns the policy of a server that runs as user `own`.
    #[must_use]
    pub fn of_user(own: u32) -> Self {
        Self {
            own,
            trusted_users: Vec::new(),
            users: Users::default(),
        }
    }

    /// Adds a user who may act for all users, such as the user of a gateway.
    #[must_use]
    pub fn with_trusted_user(mut self, uid: u32) -> Self {
        self.trusted_users.push(uid);
        self
    }

    fn speaks_for_others(&self, uid: u32) -> bool {
        uid == 0 || uid == self.own || self.trusted_users.contains(&uid)
    }

    /// Checks whether a peer may use an export at all.
    ///
    /// # Errors
    /// The status for NFS. (MOUNT returns MNT3ERR_ACCES in all cases.)
    pub(super) fn admit(&self, peer: Peer, options: &ExportOptions) -> Result<(), Status> {
        let Peer { address, origin } = peer;
        match origin {
            // RDMA clients are exempt, as with knfsd, because they cannot choose their ports.
            PeerOrigin::OverTcp if options.secure && address.port() >= FIRST_UNRESERVED => {
                rpcrdma_host::limited!(warn, peer = %address,
                        "refused: the export is for ports below {FIRST_UNRESERVED}, which take \
                         privilege to use; with the export option `insecure` it is for all");
                Err(Status::PERM)
            }
            PeerOrigin::ThisHost { user } if self.own != 0 => match user {
                Some(uid) if self.speaks_for_others(uid) => Ok(()),
                _ => {
                    let own = self.own;
                    let user = user.map_or("unknown".to_owned(), |uid| uid.to_string());
                    rpcrdma_host::limited!(warn, peer = %address, %user,
                            "refused: this server does everything as user {own}, and another user of \
                             this host calls; let it with `serve --trust-uid UID`, or serve as root");
                    Err(Status::ACCES)
                }
            },
            _ => Ok(()),
        }
    }

    /// Returns the identity under which a call is executed.
    ///
    /// # Errors
    /// The errors of [`IdentityPolicy::admit`].
    pub(super) fn caller(
        &self,
        peer: Peer,
        credential: &Credential,
        options: &ExportOptions,
    ) -> Result<Caller, Status> {
        self.caller_of(peer, credential, options, |uid| {
            Ok(self.users.groups(uid, Time::now()))
        })
    }

    /// Returns the identity as [`IdentityPolicy::caller`] does, without reading a file.
    ///
    /// # Errors
    /// [`Status::JUKEBOX`] if the files of users and groups have to be read, and the errors of
    /// [`IdentityPolicy::admit`].
    pub(super) fn caller_if_known(
        &self,
        peer: Peer,
        credential: &Credential,
        options: &ExportOptions,
    ) -> Result<Caller, Status> {
        self.caller_of(peer, credential, options, |uid| {
            let groups = self.users.groups_if_known(uid, Time::now());
            groups.ok_or(Status::JUKEBOX)
        })
    }

    /// Returns the identity under which a call is executed. `groups` finds the groups of a local user.
    fn caller_of(
        &self,
        peer: Peer,
        credential: &Credential,
        options: &ExportOptions,
        groups: impl FnOnce(u32) -> Result<Arc<Groups>, Status>,
    ) -> Result<Caller, Status> {
        self.admit(peer, options)?;
        let PeerOrigin::ThisHost { user } = peer.origin else {
            return Ok(options.caller(credential));
        };
        Ok(match user {
            // `root_squash` does not apply to the local root, who has full access to the files
            // anyway.
            Some(0) if options.squash == Squash::Root => {
                options.caller_squashed(credential, Squash::None)
            }
            Some(uid) if self.speaks_for_others(uid) => options.caller(credential),
            Some(uid) => user_for_itself(uid, peer.address, credential, options, groups)?,
            None => {
                rpcrdma_host::limited!(warn, peer = %peer.address,
                        "it is on this host, but no user has its end of the connection open: it is \
                         taken for nobody");
                options.anonymous()
            }
        })
    }

    /// Returns the identity as which the path of MNT is looked up. A client mounts on behalf of all its
    /// users, so that is the superuser; but a local user who acts for itself alone must not pass directories
    /// that it cannot pass by itself.
    ///
    /// # Errors
    /// The errors of [`IdentityPolicy::admit`].
    pub(super) fn mounter(&self, peer: Peer, options: &ExportOptions) -> Result<Caller, Status> {
        self.admit(peer, options)?;
        let PeerOrigin::ThisHost { user } = peer.origin else {
            return Ok(Caller::root());
        };
        Ok(match user {
            Some(uid) if self.speaks_for_others(uid) => Caller::root(),
            // The kernel knows the user, so that the credential does not matter, which is often AUTH_NONE.
            Some(uid) => {
                let groups = self.users.groups(uid, Time::now());
                let gid = groups.primary.unwrap_or(options.anonymous_gid);
                local_caller(uid, gid, &groups, options)
            }
            None => options.anonymous(),
        })
    }
}

/// Returns the identity for a local user who may only act for itself.
fn user_for_itself(
    uid: u32,
    peer: SocketAddr,
    credential: &Credential,
    options: &ExportOptions,
    groups: impl FnOnce(u32) -> Result<Arc<Groups>, Status>,
) -> Result<Caller, Status> {
    let Credential::Sys(claimed) = credential else {
        return Ok(options.anonymous());
    };
    if claimed.uid != uid {
        rpcrdma_host::limited!(warn, %peer, uid, claimed = claimed.uid,
                "a user of this host claims to be another: it is taken for nobody; if it speaks \
                 for others, as a gateway does, say so with `serve --trust-uid {uid}`");
        return Ok(options.anonymous());
    }
    let groups = groups(uid)?;
    let gid = match groups.contains(claimed.gid) {
        true => claimed.gid,
        false => groups.primary.unwrap_or(options.anonymous_gid),
    };
    if gid != claimed.gid {
        rpcrdma_host::limited!(warn, %peer, uid, claimed = claimed.gid, instead = gid,
                "a user of this host claims a group that /etc/passwd and /etc/group do not give it");
    }
    Ok(local_caller(uid, gid, &groups, options))
}

/// Returns the identity of a local user with one of its groups as the primary one. It has all its groups, like
/// a local program: membership in a group can also deny access.
fn local_caller(uid: u32, gid: u32, groups: &Groups, options: &ExportOptions) -> Caller {
    let gids = groups.all().filter(|further| *further != gid).collect();
    options.squashed(Caller { uid, gid, gids }, options.squash)
}

#[cfg(test)]
mod tests;
