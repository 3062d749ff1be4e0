//! As whom operations run: the calling thread takes the caller's identity, and the kernel decides.
//!
//! With the privilege, an operation has what the kernel's own server gives it (`nfsd_setuser`):
//! user, group and further groups of the caller, and of the capabilities none; for user 0, those of
//! `CAP_NFSD_SET`. So access control lists, quotas, reserved blocks, immutable files and security
//! modules count as for a program of the caller's on this host. Without the privilege everything is
//! done as the server's own user, whoever calls.
//!
//! Identities are per thread: the calls go to the kernel directly, as the C library's would change
//! all threads. A thread that takes another effective user than root loses its effective
//! capabilities with the same system call, and has them again when it returns to root. (A change
//! of the file system user alone would leave it `CAP_SYS_RESOURCE`, and with that the reserved
//! blocks.)
//!
//! A thread that said [`keep_identity`] stays who it is after an operation, so that nothing is paid
//! while the caller stays the same. Every other thread is itself again when an operation ends.

use std::cell::{Cell, RefCell};
use std::io;

use rustix::io::Errno;
use rustix::process::{Gid, Uid};
use rustix::thread::{
    CapabilitySet, CapabilitySets, capabilities, set_capabilities, set_thread_groups,
    set_thread_res_gid, set_thread_res_uid,
};

use crate::fs::{Caller, FsError, FsResult};

thread_local! {
    /// Whom this thread stands for; nobody: it is the server itself.
    static ASSUMED: RefCell<Option<Caller>> = const { RefCell::new(None) };
    /// Whether this thread stays who it is between operations.
    static KEEPS: Cell<bool> = const { Cell::new(false) };
}

/// Lets this thread stay who it is between operations of directories that are served: for threads
/// that do nothing else, such as a server's workers.
pub fn keep_identity() {
    KEEPS.set(true);
}

/// What the superuser of a client can do that is not squashed: `CAP_NFSD_SET` of Linux.
fn of_root() -> CapabilitySet {
    CapabilitySet::CHOWN
        | CapabilitySet::MKNOD
        | CapabilitySet::DAC_OVERRIDE
        | CapabilitySet::DAC_READ_SEARCH
        | CapabilitySet::FOWNER
        | CapabilitySet::FSETID
        | CapabilitySet::MAC_OVERRIDE
        | CapabilitySet::SYS_RESOURCE
}

/// As whom a server can run operations.
#[derive(Debug)]
pub(super) enum Authority {
    /// As its own user, whoever calls.
    Own(Caller),
    /// As the caller.
    Callers(Server),
}

/// The server's own identity.
#[derive(Debug)]
pub(super) struct Server {
    gid: Gid,
    groups: Vec<Gid>,
    capabilities: CapabilitySets,
}

/// An operation that runs as its caller. When it ends, the thread is the server again, or stays
/// who it is until the next operation.
#[must_use]
pub(super) struct Assumed<'a>(Option<&'a Server>);

impl Authority {
    /// What this process can do.
    ///
    /// # Errors
    /// It runs as root and may change its user, but would keep capabilities then
    /// (`SECBIT_NO_SETUID_FIXUP` is set).
    pub(super) fn find() -> io::Result<Self> {
        let user = rustix::process::geteuid();
        let gid = rustix::process::getegid();
        let groups = rustix::process::getgroups()?;
        let own = Caller {
            uid: user.as_raw(),
            gid: gid.as_raw(),
            gids: groups.iter().map(|gid| gid.as_raw()).collect(),
        };
        let needed = CapabilitySet::SETUID | CapabilitySet::SETGID | CapabilitySet::DAC_READ_SEARCH;
        let capabilities = capabilities(None)?;
        if !user.is_root() {
            tracing::warn!(
                uid = user.as_raw(),
                "not the superuser: every client's operations are done as this user",
            );
            return Ok(Self::Own(own));
        }
        if !capabilities.effective.contains(needed) {
            tracing::warn!(
                "without CAP_SETUID, CAP_SETGID and CAP_DAC_READ_SEARCH: every client's operations \
                 are done as this restricted superuser",
            );
            return Ok(Self::Own(own));
        }
        let server = Server {
            gid,
            groups,
            capabilities,
        };
        server.probe()?;
        Ok(Self::Callers(server))
    }

    /// For whom an operation is really done.
    pub(super) fn identity<'a>(&'a self, who: &'a Caller) -> &'a Caller {
        match self {
            Self::Own(own) => own,
            Self::Callers(_) => who,
        }
    }

    /// Runs what follows as `who`, until the result is dropped.
    ///
    /// # Errors
    /// [`FsError::Access`] if the uid or gid is -1 or not mapped in this user namespace. The thread then has
    /// the server's identity.
    pub(super) fn assume(&self, who: &Caller) -> FsResult<Assumed<'_>> {
        let Self::Callers(server) = self else {
            return Ok(Assumed(None));
        };
        let same = ASSUMED.with_borrow(|assumed| assumed.as_ref() == Some(who));
        if !same {
            server.become_caller(who)?;
        }
        Ok(Assumed(Some(server)))
    }

    /// Runs `work` as the server itself, in the middle of what runs as a caller.
    ///
    /// # Errors
    /// Those of `work`; and [`FsError::Host`] when the thread cannot change who it is.
    pub(super) fn as_server<T>(&self, work: impl FnOnce() -> FsResult<T>) -> FsResult<T> {
        let Self::Callers(server) = self else {
            return work();
        };
        let Some(who) = ASSUMED.with_borrow(Clone::clone) else {
            return work();
        };
        server.become_server()?;
        let result = work();
        // Nothing may go on as the server that was to be done as the caller.
        server.become_caller(&who)?;
        result
    }
}

impl Server {
    /// Takes nobody's identity for once, and looks what is left.
    fn probe(&self) -> io::Result<()> {
        let nobody = Caller::new(65534, 65534);
        let left = self.become_caller(&nobody).map(|()| capabilities(None));
        self.become_server().map_err(io::Error::other)?;
        let left = left.map_err(io::Error::other)??;
        if !left.effective.is_empty() {
            return Err(io::Error::new(
                io::ErrorKind::Unsupported,
                "a thread that is no longer root keeps capabilities here: start the server without \
                 SECBIT_NO_SETUID_FIXUP, or as an ordinary user",
            ));
        }
        Ok(())
    }

    /// Makes this thread the server again: root, with all its capabilities.
    fn become_server(&self) -> FsResult<()> {
        let Some(other) = ASSUMED.take() else {
            return Ok(());
        };
        self.regain(&other)?;
        set_thread_res_gid(None, self.gid, None)?;
        Ok(set_thread_groups(&self.groups)?)
    }

    /// Has this thread's capabilities again, which stood for `other`.
    fn regain(&self, other: &Caller) -> Result<(), Errno> {
        match other.uid {
            0 => set_capabilities(None, self.capabilities),
            // With the effective user 0, those that are permitted become effective.
            _ => set_thread_res_uid(None, Uid::ROOT, None),
        }
    }

    /// Makes this thread stand for `who`.
    fn become_caller(&self, who: &Caller) -> FsResult<()> {
        // All ones means "as it is" to the kernel, and nobody has that number.
        if who.uid == u32::MAX || who.gid == u32::MAX {
            return Err(FsError::Access);
        }
        if let Some(other) = ASSUMED.take() {
            self.regain(&other)?;
        }
        match self.take(who) {
            Ok(()) => {
                ASSUMED.set(Some(who.clone()));
                Ok(())
            }
            Err(error) => {
                tracing::debug!(uid = who.uid, gid = who.gid, %error, "nobody here has that number");
                // Some of the system calls may have succeeded. Mark the thread as `who`, so that
                // `become_server` undoes all of them.
                ASSUMED.set(Some(who.clone()));
                self.become_server()?;
                Err(match error {
                    // No such number in this user namespace.
                    Errno::INVAL => FsError::Access,
                    other => other.into(),
                })
            }
        }
    }

    /// The system calls of that, from root.
    fn take(&self, who: &Caller) -> Result<(), Errno> {
        let groups: Vec<Gid> = who.gids.iter().map(|&gid| Gid::from_raw(gid)).collect();
        set_thread_groups(&groups)?;
        set_thread_res_gid(None, Gid::from_raw(who.gid), None)?;
        // The capabilities last: the other calls need them.
        if who.uid == 0 {
            let effective = self.capabilities.permitted & of_root();
            let sets = CapabilitySets {
                effective,
                ..self.capabilities
            };
            return set_capabilities(None, sets);
        }
        // This takes the effective capabilities away, too.
        set_thread_res_uid(None, Uid::from_raw(who.uid), None)
    }
}

impl Drop for Assumed<'_> {
    fn drop(&mut self) {
        if let Some(server) = self.0
            && !KEEPS.get()
            && let Err(error) = server.become_server()
        {
            // Usually the thread still has the caller's user id: its next privileged call fails, and nothing
            // is done with more rights than the caller has.
            tracing::error!(%error, "a thread could not become the server again");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::process::{getegid, geteuid, getgroups};

    /// What this process can do, if that is to run operations as their callers.
    fn callers() -> Option<Authority> {
        let authority = Authority::find().unwrap();
        match authority {
            Authority::Own(_) => crate::fs::tests::privileged().then_some(authority),
            Authority::Callers(_) => Some(authority),
        }
    }

    fn effective() -> CapabilitySet {
        capabilities(None).unwrap().effective
    }

    fn member() -> Caller {
        let mut who = Caller::new(1001, 2001);
        who.gids.extend([7, 8]);
        who
    }

    #[test]
    fn a_thread_is_its_caller_during_an_operation_and_itself_afterwards() {
        let Some(authority) = callers() else { return };
        let before = (geteuid(), getegid(), getgroups().unwrap(), effective());
        {
            let _as_caller = authority.assume(&member()).unwrap();
            assert_eq!((geteuid().as_raw(), getegid().as_raw()), (1001, 2001));
            assert_eq!(getgroups().unwrap(), [7, 8].map(Gid::from_raw));
            assert!(effective().is_empty(), "CAP_SYS_RESOURCE included");
            let inside = authority.as_server(|| Ok((geteuid(), effective())));
            assert_eq!(inside, Ok((Uid::ROOT, before.3)));
            assert_eq!(
                (geteuid().as_raw(), effective()),
                (1001, CapabilitySet::empty())
            );
        }
        let after = (geteuid(), getegid(), getgroups().unwrap(), effective());
        assert_eq!(after, before);
    }

    #[test]
    fn an_unsquashed_root_has_what_the_kernels_server_leaves_it() {
        let Some(authority) = callers() else { return };
        let _as_root = authority.assume(&Caller::root()).unwrap();
        let permitted = capabilities(None).unwrap().permitted;
        assert_eq!(effective(), permitted & of_root());
        assert!(!effective().contains(CapabilitySet::LINUX_IMMUTABLE));
        assert!(!effective().contains(CapabilitySet::SYS_ADMIN));
    }

    #[test]
    fn a_thread_that_keeps_its_identity_changes_it_with_the_caller_alone() {
        let Some(authority) = callers() else { return };
        let thread = std::thread::spawn(move || {
            keep_identity();
            drop(authority.assume(&member()).unwrap());
            assert_eq!(
                (geteuid().as_raw(), effective()),
                (1001, CapabilitySet::empty())
            );
            drop(authority.assume(&Caller::root()).unwrap());
            assert_eq!((geteuid(), getgroups().unwrap()), (Uid::ROOT, vec![]));
            drop(authority.assume(&Caller::new(1002, 5)).unwrap());
            assert_eq!((geteuid().as_raw(), getegid().as_raw()), (1002, 5));
            assert!(effective().is_empty());
        });
        thread.join().unwrap();
    }

    #[test]
    fn a_number_that_stands_for_nobody_is_refused_and_leaves_the_server() {
        let Some(authority) = callers() else { return };
        for who in [Caller::new(u32::MAX, 5), Caller::new(5, u32::MAX)] {
            assert!(matches!(authority.assume(&who), Err(FsError::Access)));
            assert_eq!((geteuid(), getegid().as_raw()), (Uid::ROOT, 0));
        }
    }
}
