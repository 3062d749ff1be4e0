//! Identities of operations: the thread takes the caller's identity, and the kernel decides.
//!
//! With the privilege, an operation has what the kernel's own server gives it (`nfsd_setuser`):
//! the caller's user and group for files (`fsuid`, `fsgid`) and further groups, and none of the
//! capabilities that have to do with files; for user 0, those of `CAP_NFSD_SET`. So access control lists, quotas, reserved blocks, immutable files and security
//! modules count as for a program of the caller's on this host. Without the privilege everything is
//! done as the server's own user, whoever calls.
//!
//! Identities are per thread: the calls go to the kernel directly, as the C library's would change
//! all threads. The effective user stays root, so that users of this host cannot signal the thread
//! or lower its priority. The effective capabilities are set as well, because the change of `fsuid`
//! alone would leave `CAP_SYS_RESOURCE`, and with that the reserved blocks. Three stay that have
//! nothing to do with files: `CAP_IPC_LOCK`, with which a verbs device registers memory for a reply,
//! and `CAP_SETUID` and `CAP_SETGID`, with which the thread becomes its next caller. So a change from
//! one ordinary user to another needs no change of capabilities.
//!
//! A thread that said [`keep_identity`] stays who it is after an operation, so that nothing is paid
//! while the caller stays the same. Every other thread is itself again when an operation ends.

use std::cell::{Cell, RefCell};
use std::io;

use linux_file_handle::set_file_ids;
use rustix::io::Errno;
use rustix::process::Gid;
use rustix::thread::{
    CapabilitySet, CapabilitySets, capabilities, set_capabilities, set_thread_groups,
};

use crate::fs::{Caller, FsError, FsResult};

thread_local! {
    /// The caller whose identity this thread has; `None` if it has the server's own.
    static ASSUMED: RefCell<Option<Caller>> = const { RefCell::new(None) };
    /// Whether this thread stays who it is between operations.
    static KEEPS: Cell<bool> = const { Cell::new(false) };
}

/// Lets this thread stay who it is between operations of directories that are served: for threads
/// that do nothing else, such as a server's workers.
pub fn keep_identity() {
    KEEPS.set(true);
}

/// Capabilities that a thread keeps whoever it stands for: they give no access to files.
fn of_every_thread() -> CapabilitySet {
    CapabilitySet::IPC_LOCK | CapabilitySet::SETUID | CapabilitySet::SETGID
}

/// Capabilities for a client's root that is not squashed: `CAP_NFSD_SET` of Linux.
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

/// The identity with which a server runs operations.
#[derive(Debug)]
pub(super) enum Authority {
    /// The server's own user, whoever calls.
    Own(Caller),
    /// The caller's.
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
    /// Determines from this process's user and capabilities which of both is possible.
    ///
    /// # Errors
    /// It runs as root without the capabilities to become its callers: it would do everything as
    /// root, whoever calls.
    pub(super) fn find() -> io::Result<Self> {
        let user = rustix::process::geteuid();
        let gid = rustix::process::getegid();
        let groups = rustix::process::getgroups()?;
        if !user.is_root() {
            tracing::warn!(
                uid = user.as_raw(),
                "not the superuser: every client's operations are done as this user",
            );
            return Ok(Self::Own(Caller {
                uid: user.as_raw(),
                gid: gid.as_raw(),
                gids: groups.iter().map(|gid| gid.as_raw()).collect(),
            }));
        }
        let server = Server {
            gid,
            groups,
            capabilities: capabilities(None)?,
        };
        // On a thread of its own: devices may be bound to the identity that opened them.
        let probe = || server.probe();
        let probed = std::thread::scope(|scope| scope.spawn(probe).join());
        probed.unwrap_or(Err(Errno::PERM)).map_err(|error| {
            io::Error::new(
                io::ErrorKind::PermissionDenied,
                format!(
                    "root without CAP_SETUID and CAP_SETGID ({error}) would do everything as root, \
                     whoever calls: give the server these, or start it as an ordinary user"
                ),
            )
        })?;
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
        server.become_server();
        let result = work();
        // Nothing may go on as the server that was to be done as the caller.
        must(server.become_caller(&who));
        result
    }
}

/// Ends the process if a thread could not become who it has to be: it would go on with rights that
/// are not those of its work. The kernel refuses this only for want of memory.
fn must<E: std::fmt::Display>(result: Result<(), E>) {
    if let Err(error) = result {
        tracing::error!(%error, "a thread could not change its identity: ending the process");
        std::process::abort();
    }
}

impl Server {
    /// Whether a thread can take the identity of a caller. Changes the calling thread.
    fn probe(&self) -> Result<(), Errno> {
        self.take(None, &Caller::new(65534, 65534))
    }

    /// Makes this thread the server again: root, with all its capabilities.
    fn become_server(&self) {
        if ASSUMED.take().is_some() {
            must(set_capabilities(None, self.capabilities));
            must(set_file_ids(0, self.gid.as_raw()));
            must(set_thread_groups(&self.groups));
        }
    }

    /// Makes this thread stand for `who`.
    fn become_caller(&self, who: &Caller) -> FsResult<()> {
        // All ones means "as it is" to the kernel, and nobody has that number.
        if who.uid == u32::MAX || who.gid == u32::MAX {
            self.become_server();
            return Err(FsError::Access);
        }
        // Whatever of it fails, the thread is somebody else than the server from here on.
        let before = ASSUMED.replace(Some(who.clone()));
        self.take(before.as_ref(), who).map_err(|error| {
            tracing::debug!(uid = who.uid, gid = who.gid, %error, "not a user of this host");
            self.become_server();
            match error {
                // No such number in this user namespace.
                Errno::INVAL | Errno::PERM => FsError::Access,
                other => other.into(),
            }
        })
    }

    /// The system calls of that, for a thread that stands for `before`, or is the server.
    fn take(&self, before: Option<&Caller>, who: &Caller) -> Result<(), Errno> {
        if before.is_none_or(|before| before.gids != who.gids) {
            let groups: Vec<Gid> = who.gids.iter().map(|&gid| Gid::from_raw(gid)).collect();
            set_thread_groups(&groups)?;
        }
        set_file_ids(who.uid, who.gid)?;
        let is_user = |caller: &Caller| caller.uid != 0;
        if before.is_some_and(is_user) && is_user(who) {
            return Ok(());
        }
        // Last: a change of the user for files from or to 0 changes some of them (capabilities(7)).
        let effective = match is_user(who) {
            false => of_root() | of_every_thread(),
            true => of_every_thread(),
        };
        let sets = CapabilitySets {
            effective: self.capabilities.permitted & effective,
            ..self.capabilities
        };
        set_capabilities(None, sets)
    }
}

impl Drop for Assumed<'_> {
    fn drop(&mut self) {
        if let Some(server) = self.0
            && !KEEPS.get()
        {
            server.become_server();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use linux_file_handle::file_ids;
    use rustix::process::{geteuid, getgroups};

    /// What this process can do, if that is to run operations as their callers.
    fn callers() -> Option<Authority> {
        let authority = Authority::find().unwrap();
        match authority {
            Authority::Own(_) => crate::fs::tests::privileged().then_some(authority),
            Authority::Callers(_) => Some(authority),
        }
    }

    /// Effective capabilities, but for those that have nothing to do with files.
    fn effective() -> CapabilitySet {
        capabilities(None).unwrap().effective - of_every_thread()
    }

    fn member() -> Caller {
        let mut who = Caller::new(1001, 2001);
        who.gids.extend([7, 8]);
        who
    }

    #[test]
    fn a_thread_is_its_caller_during_an_operation_and_itself_afterwards() {
        let Some(authority) = callers() else { return };
        let before = (file_ids(), getgroups().unwrap(), effective());
        {
            let _as_caller = authority.assume(&member()).unwrap();
            assert_eq!(file_ids(), (1001, 2001));
            assert!(
                geteuid().is_root(),
                "users of this host must not reach the thread"
            );
            assert_eq!(getgroups().unwrap(), [7, 8].map(Gid::from_raw));
            assert!(effective().is_empty(), "CAP_SYS_RESOURCE included");
            let inside = authority.as_server(|| Ok((file_ids().0, effective())));
            assert_eq!(inside, Ok((0, before.2)));
            assert_eq!((file_ids().0, effective()), (1001, CapabilitySet::empty()));
        }
        let after = (file_ids(), getgroups().unwrap(), effective());
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
            assert_eq!((file_ids().0, effective()), (1001, CapabilitySet::empty()));
            drop(authority.assume(&Caller::root()).unwrap());
            assert_eq!((file_ids().0, getgroups().unwrap()), (0, vec![]));
            drop(authority.assume(&Caller::new(1002, 5)).unwrap());
            assert_eq!(file_ids(), (1002, 5));
            assert!(effective().is_empty());
            // From user to user: the groups go as well.
            drop(authority.assume(&member()).unwrap());
            assert_eq!(getgroups().unwrap(), [7, 8].map(Gid::from_raw));
            drop(authority.assume(&Caller::new(1003, 2001)).unwrap());
            assert_eq!((file_ids(), getgroups().unwrap()), ((1003, 2001), vec![]));
            assert!(effective().is_empty());
            // Not this time, and the caller before is not the caller of the next operation either.
            assert!(authority.assume(&Caller::new(u32::MAX, 5)).is_err());
            assert_eq!(file_ids(), (0, 0));
        });
        thread.join().unwrap();
    }

    #[test]
    fn a_number_that_stands_for_nobody_is_refused_and_leaves_the_server() {
        let Some(authority) = callers() else { return };
        for who in [Caller::new(u32::MAX, 5), Caller::new(5, u32::MAX)] {
            assert!(matches!(authority.assume(&who), Err(FsError::Access)));
            assert_eq!(file_ids(), (0, 0));
        }
    }

    /// Root that cannot become its callers would serve everybody as root, whatever the export says.
    #[test]
    fn root_that_cannot_become_its_callers_serves_nobody() {
        if !crate::fs::tests::privileged() {
            return;
        }
        for lost in [CapabilitySet::SETUID, CapabilitySet::SETGID] {
            let thread = std::thread::spawn(move || {
                let own = capabilities(None).unwrap();
                let fewer = CapabilitySets {
                    effective: own.effective - lost,
                    permitted: own.permitted - lost,
                    ..own
                };
                set_capabilities(None, fewer).unwrap();
                let error = Authority::find().unwrap_err().to_string();
                assert!(error.contains("CAP_SETUID"), "{error}");
            });
            thread.join().unwrap();
        }
    }
}
