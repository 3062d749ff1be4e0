//! Identity of callers: which peers may claim which users and groups.
//!
//! A client says with AUTH_SYS who calls, and nothing proves it. From another host, that is what
//! exports(5) is about: which hosts may use an export, from which ports, and whom they may speak for.
//! Of a peer on this host the kernel says which user it is ([`PeerOrigin::ThisHost`]). Root may speak
//! for everybody, as the kernel's client does for its users, and so may users who were named; others
//! speak for themselves. A peer of unknown user is nobody.

use std::net::SocketAddr;

use onc_rpc::Credential;
use rdma::Time;
use rpc_transport::PeerOrigin;

use super::users::Users;
use super::{ExportOptions, Squash};
use crate::fs::Caller;
use crate::proto::Status;

/// The lowest port that every program may use (`IPPORT_RESERVED`).
const FIRST_UNRESERVED: u16 = 1024;

/// Policy that decides as which user a call is executed.
#[derive(Debug)]
pub struct Trust {
    /// The server's own effective user. As root it acts for its callers, otherwise as itself.
    own: u32,
    /// Further users who may speak for others.
    named: Vec<u32>,
    users: Users,
}

/// The peer that sent a call.
#[derive(Clone, Copy, Debug)]
pub(super) struct Peer {
    pub(super) address: SocketAddr,
    pub(super) origin: PeerOrigin,
}

impl Trust {
    /// The policy of a server that runs as this process's user.
    #[must_use]
    pub fn of_this_process() -> Self {
        Self::of_user(rustix::process::geteuid().as_raw())
    }

    /// The policy of a server that runs as user `own`.
    #[must_use]
    pub fn of_user(own: u32) -> Self {
        Self {
            own,
            named: Vec::new(),
            users: Users::default(),
        }
    }

    /// The same, with a user who may speak for others as well: one whom a gateway runs as.
    #[must_use]
    pub fn and(mut self, uid: u32) -> Self {
        self.named.push(uid);
        self
    }

    fn speaks_for_others(&self, uid: u32) -> bool {
        uid == 0 || uid == self.own || self.named.contains(&uid)
    }

    /// Whether a peer may use an export, whoever calls.
    ///
    /// # Errors
    /// What NFS answers. (MOUNT has ACCES for all of it.)
    pub(super) fn admit(&self, peer: Peer, options: &ExportOptions) -> Result<(), Status> {
        let Peer { address, origin } = peer;
        match origin {
            // As knfsd, which has no such check for RDMA: clients cannot choose ports there.
            PeerOrigin::OverTcp if options.secure && address.port() >= FIRST_UNRESERVED => {
                rdma::limited!(warn, peer = %address,
                        "refused: the export is for ports below {FIRST_UNRESERVED}, which take \
                         privilege to use; with the export option `insecure` it is for all");
                Err(Status::PERM)
            }
            PeerOrigin::ThisHost { user } if self.own != 0 => match user {
                Some(uid) if self.speaks_for_others(uid) => Ok(()),
                _ => {
                    let own = self.own;
                    rdma::limited!(warn, peer = %address, ?user,
                            "refused: this server does everything as user {own}, and another user of \
                             this host calls; let it with `serve --trust-uid UID`, or serve as root");
                    Err(Status::ACCES)
                }
            },
            _ => Ok(()),
        }
    }

    /// For whom a call is done.
    ///
    /// # Errors
    /// As [`Trust::admit`].
    pub(super) fn caller(
        &self,
        peer: Peer,
        credential: &Credential,
        options: &ExportOptions,
    ) -> Result<Caller, Status> {
        self.admit(peer, options)?;
        let PeerOrigin::ThisHost { user } = peer.origin else {
            return Ok(options.caller(credential));
        };
        Ok(match user {
            // `root_squash` does not apply to root of this host, who has full access to the files anyway.
            Some(0) if options.squash == Squash::Root => {
                options.caller_squashed(credential, Squash::None)
            }
            Some(uid) if self.speaks_for_others(uid) => options.caller(credential),
            Some(uid) => self.user(uid, peer.address, credential, options),
            None => {
                rdma::limited!(warn, peer = %peer.address,
                        "it is on this host, but no user has its end of the connection open: it is \
                         taken for nobody");
                options.anonymous()
            }
        })
    }

    /// The caller when a user of this host calls who may speak for nobody else.
    fn user(
        &self,
        uid: u32,
        peer: SocketAddr,
        credential: &Credential,
        options: &ExportOptions,
    ) -> Caller {
        let Credential::Sys(claimed) = credential else {
            return options.anonymous();
        };
        if claimed.uid != uid {
            rdma::limited!(warn, %peer, uid, claimed = claimed.uid,
                    "a user of this host claims to be another: it is taken for nobody; if it speaks \
                     for others, as a gateway does, say so with `serve --trust-uid {uid}`");
            return options.anonymous();
        }
        let groups = self.users.groups(uid, Time::now());
        let gid = match groups.contains(claimed.gid) {
            true => claimed.gid,
            false => groups.primary.unwrap_or(options.anonymous_gid),
        };
        if gid != claimed.gid {
            rdma::limited!(warn, %peer, uid, claimed = claimed.gid, instead = gid,
                    "a user of this host claims a group that /etc/passwd and /etc/group do not give it");
        }
        // All of them, as for a program of the user's: a group can also be what takes access away.
        let caller = Caller {
            uid,
            gid,
            gids: groups.all().filter(|further| *further != gid).collect(),
        };
        options.squashed(caller, options.squash)
    }
}

#[cfg(test)]
mod tests;
