//! Impersonation: the thread takes the caller's identity, and the kernel checks permissions.
//!
//! If the server runs as root, an operation runs with the same rights as in the kernel's NFS server
//! (`nfsd_setuser`): the caller's user and group for file access (`fsuid`, `fsgid`) and
//! supplementary groups, and none of the capabilities for file access; for user 0, those of
//! `CAP_NFSD_SET`. So access control lists, quotas, reserved blocks, immutable files and security
//! modules apply as to a local program of the caller. Without that privilege, all operations run as
//! the server's own user.
//!
//! Identities are per thread: the code uses system calls directly, because the functions of the C
//! library would change all threads. The effective user stays root, so that local users cannot
//! signal the thread or lower its priority. The effective capabilities are set as well, because the
//! change of `fsuid` alone would leave `CAP_SYS_RESOURCE` and with it the use of reserved blocks.
//! Three capabilities that do not concern files remain: `CAP_IPC_LOCK`, with which a verbs device
//! registers memory for a reply, and `CAP_SETUID` and `CAP_SETGID`, with which the thread takes the
//! identity of the next caller. So a change from one ordinary user to another needs no change of
//! capabilities.
//!
//! A thread that called [`keep_identity`] keeps the caller's identity after an operation, which
//! saves system calls while the caller stays the same. Every other thread returns to the server's
//! identity at the end of an operation. A worker keeps identities for good; a loop of the server
//! keeps them during a batch of attempts, and then calls [`return_to_server`].

use std::cell::{Cell, RefCell};
use std::io;
use std::sync::{Arc, Once};

use linux_file_handle::{set_file_group, set_file_ids, set_file_user};
use rustix::io::Errno;
use rustix::process::Gid;
use rustix::thread::{
    CapabilitySet, CapabilitySets, capabilities, set_capabilities, set_thread_groups,
};

use super::batch;
use super::keeps::{KEEPS, Keeps};
use crate::fs::{Caller, FsError, FsResult};

/// A caller whose identity a thread has, and the identity to return to.
struct Impersonated {
    caller: Caller,
    server: Arc<Server>,
}

thread_local! {
    /// The caller whose identity this thread has, or `None` if it has the server's own.
    static IMPERSONATED: RefCell<Option<Impersonated>> = const { RefCell::new(None) };
    /// The capabilities that this thread was given last, unless something else has changed them since.
    static GIVEN: Cell<Option<CapabilitySets>> = const { Cell::new(None) };
}

/// Makes this thread keep the caller's identity between operations on exported directories. For
/// threads that do nothing else, such as a server's workers.
pub fn keep_identity() {
    KEEPS.set(Keeps::Always);
}

/// Makes this thread keep the caller's identity between operations until [`return_to_server`]. The calls
/// of these operations must all have arrived.
pub(crate) fn keep_identity_in_batch() {
    KEEPS.set(Keeps::Batch);
}

/// Returns whether this thread keeps the caller's identity between operations.
pub(crate) fn keeps_identity() -> bool {
    KEEPS.get() != Keeps::Operation
}

/// Returns this thread to the server's identity, and ends the effect of [`keep_identity_in_batch`].
pub(crate) fn return_to_server() {
    KEEPS.set(Keeps::Operation);
    batch::end();
    become_server();
}

/// Returns the capabilities that a thread keeps under every identity: they give no access to files.
fn of_every_thread() -> CapabilitySet {
    CapabilitySet::IPC_LOCK | CapabilitySet::SETUID | CapabilitySet::SETGID
}

/// Returns the capabilities for a client's root user that is not squashed: Linux's `CAP_NFSD_SET`.
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

/// Returns the capabilities that a server uses for its exported directories: it opens files by
/// their handles, and as root it takes the identities of its callers and acts for a client's root
/// user.
pub(crate) fn capabilities_to_serve() -> CapabilitySet {
    match rustix::process::geteuid().is_root() {
        true => of_root() | CapabilitySet::SETUID | CapabilitySet::SETGID,
        // Its callers' operations are its own user's, with what the administrator gave it for them.
        false => of_root(),
    }
}

/// The identity under which a server runs operations.
#[derive(Debug)]
pub(super) enum Authority {
    /// The server's own user, for all callers.
    Own(Caller),
    /// The identity of each caller.
    Callers(Arc<Server>),
}

/// The server's own identity, to return to.
#[derive(Debug)]
pub(super) struct Server {
    gid: Gid,
    groups: Vec<Gid>,
    capabilities: CapabilitySets,
}

/// A guard for an operation that runs under its caller's identity. When it is dropped, the thread
/// returns to the server's identity, or keeps the caller's until the next operation.
#[must_use]
pub(super) struct Impersonation {
    /// Whether the thread may have a caller's identity now.
    impersonated: bool,
}

impl Authority {
    /// Determines from this process's user and capabilities whether it can impersonate its callers.
    ///
    /// # Errors
    /// The process runs as root without the capabilities to impersonate callers: it would do
    /// everything as root for all callers.
    pub(super) fn find() -> io::Result<Self> {
        let user = rustix::process::geteuid();
        let gid = rustix::process::getegid();
        let groups = rustix::process::getgroups()?;
        if !user.is_root() {
            // Each exported directory has its own authority.
            static WARNED: Once = Once::new();
            WARNED.call_once(|| {
                tracing::warn!(
                    uid = user.as_raw(),
                    "not the superuser: every client's operations are done as this user",
                );
            });
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
        // The probe runs on a thread of its own, because devices may be bound to the identity that
        // opened them.
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
        Ok(Self::Callers(Arc::new(server)))
    }

    /// Returns the identity under which an operation for `who` actually runs.
    pub(super) fn identity<'a>(&'a self, who: &'a Caller) -> &'a Caller {
        match self {
            Self::Own(own) => own,
            Self::Callers(_) => who,
        }
    }

    /// Takes the identity of `who` until the result is dropped.
    ///
    /// # Errors
    /// [`FsError::Access`] if the uid or gid is -1 or not mapped in this user namespace. The thread
    /// then has the server's identity.
    pub(super) fn impersonate(&self, who: &Caller) -> FsResult<Impersonation> {
        let Self::Callers(server) = self else {
            return Ok(Impersonation {
                impersonated: false,
            });
        };
        let same =
            IMPERSONATED.with_borrow(|now| now.as_ref().is_some_and(|now| now.caller == *who));
        if !same {
            server.become_caller(who)?;
        }
        Ok(Impersonation { impersonated: true })
    }

    /// Runs `work` under the server's identity, in the middle of an operation that runs as a
    /// caller.
    ///
    /// # Errors
    /// Those of `work`, and [`FsError::Host`] if the thread cannot change its identity.
    pub(super) fn as_server<T>(&self, work: impl FnOnce() -> FsResult<T>) -> FsResult<T> {
        let Self::Callers(server) = self else {
            return work();
        };
        let who = IMPERSONATED.with_borrow(|now| now.as_ref().map(|now| now.caller.clone()));
        let Some(who) = who else {
            return work();
        };
        become_server();
        let result = work();
        // The rest of the caller's operation must not continue under the server's identity.
        must(server.become_caller(&who));
        result
    }
}

/// Ends the process if a thread could not change its identity, because it would continue with wrong
/// rights. The kernel refuses the change only for lack of memory.
fn must<E: std::fmt::Display>(result: Result<(), E>) {
    if let Err(error) = result {
        tracing::error!(%error, "a thread could not change its identity: ending the process");
        std::process::abort();
    }
}

#[cfg(test)]
thread_local! {
    /// The number of times that this thread has set its capabilities.
    static SETS: Cell<usize> = const { Cell::new(0) };
}

/// Gives this thread these capabilities, unless it was given the same before. A server that has dropped
/// what it does not use has those of a client's root user already.
fn give_capabilities(sets: CapabilitySets) -> Result<(), Errno> {
    if GIVEN.get() == Some(sets) {
        return Ok(());
    }
    #[cfg(test)]
    SETS.set(SETS.get() + 1);
    GIVEN.set(None);
    set_capabilities(None, sets)?;
    GIVEN.set(Some(sets));
    Ok(())
}

/// Sets the user of this thread for file access. From or to 0, this changes some capabilities
/// (capabilities(7)).
fn set_user(uid: u32) -> Result<(), Errno> {
    GIVEN.set(None);
    set_file_user(uid)
}

/// Returns this thread to the server's identity: root with all its capabilities.
fn become_server() {
    let Some(Impersonated { caller, server }) = IMPERSONATED.take() else {
        return;
    };
    batch::forget_readable();
    must(give_capabilities(server.capabilities));
    if caller.gid != server.gid.as_raw() {
        must(set_file_group(server.gid.as_raw()));
    }
    if caller.uid != 0 {
        must(set_user(0));
    }
    if !server.has_groups(&caller) {
        must(set_thread_groups(&server.groups));
    }
}

impl Server {
    /// Tests whether a thread can take the identity of a caller. Changes the calling thread.
    fn probe(&self) -> Result<(), Errno> {
        self.take(None, &Caller::new(65534, 65534))
    }

    /// Returns whether the supplementary groups of `who` are the server's.
    fn has_groups(&self, who: &Caller) -> bool {
        who.gids
            .iter()
            .copied()
            .eq(self.groups.iter().map(|gid| gid.as_raw()))
    }

    /// Gives this thread the identity of `who`.
    fn become_caller(self: &Arc<Self>, who: &Caller) -> FsResult<()> {
        // To the kernel, all ones means "do not change", and no user has that number.
        if who.uid == u32::MAX || who.gid == u32::MAX {
            become_server();
            return Err(FsError::Access);
        }
        batch::forget_readable();
        // Even if a step fails, the thread no longer has the server's identity from here on.
        let now = Impersonated {
            caller: who.clone(),
            server: Arc::clone(self),
        };
        let before = IMPERSONATED.replace(Some(now));
        let before = before.map(|before| before.caller);
        self.take(before.as_ref(), who).map_err(|error| {
            tracing::debug!(uid = who.uid, gid = who.gid, %error, "not a user of this host");
            become_server();
            // The change may have failed before it set these.
            must(set_file_ids(0, self.gid.as_raw()));
            GIVEN.set(None);
            must(give_capabilities(self.capabilities));
            must(set_thread_groups(&self.groups));
            match error {
                // The number is not mapped in this user namespace.
                Errno::INVAL | Errno::PERM => FsError::Access,
                other => other.into(),
            }
        })
    }

    /// Makes the system calls for [`Server::become_caller`]. The thread has the identity of
    /// `before`, or of the server.
    fn take(&self, before: Option<&Caller>, who: &Caller) -> Result<(), Errno> {
        let has_groups = match before {
            Some(before) => before.gids == who.gids,
            None => self.has_groups(who),
        };
        if !has_groups {
            let groups: Vec<Gid> = who.gids.iter().map(|&gid| Gid::from_raw(gid)).collect();
            set_thread_groups(&groups)?;
        }
        // A system call that changes nothing takes half the time of one that does.
        if before.map_or(self.gid.as_raw(), |before| before.gid) != who.gid {
            set_file_group(who.gid)?;
        }
        if before.map_or(0, |before| before.uid) != who.uid {
            set_user(who.uid)?;
        }
        let is_user = |caller: &Caller| caller.uid != 0;
        if before.is_some_and(is_user) && is_user(who) {
            return Ok(());
        }
        // The capabilities come last, because changing the user changes some of them.
        let effective = match is_user(who) {
            false => of_root() | of_every_thread(),
            true => of_every_thread(),
        };
        let sets = CapabilitySets {
            effective: self.capabilities.permitted & effective,
            ..self.capabilities
        };
        give_capabilities(sets)
    }
}

impl Drop for Impersonation {
    fn drop(&mut self) {
        if self.impersonated && !keeps_identity() {
            become_server();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use linux_file_handle::file_ids;
    use rustix::process::{geteuid, getgroups};

    /// Returns the authority of this process if it can impersonate callers.
    fn callers() -> Option<Authority> {
        let authority = Authority::find().unwrap();
        match authority {
            Authority::Own(_) => crate::fs::tests::privileged().then_some(authority),
            Authority::Callers(_) => Some(authority),
        }
    }

    /// Returns the effective capabilities, except those that do not concern files.
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
            let _as_caller = authority.impersonate(&member()).unwrap();
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
        let _as_root = authority.impersonate(&Caller::root()).unwrap();
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
            drop(authority.impersonate(&member()).unwrap());
            assert_eq!((file_ids().0, effective()), (1001, CapabilitySet::empty()));
            drop(authority.impersonate(&Caller::root()).unwrap());
            assert_eq!((file_ids().0, getgroups().unwrap()), (0, vec![]));
            drop(authority.impersonate(&Caller::new(1002, 5)).unwrap());
            assert_eq!(file_ids(), (1002, 5));
            assert!(effective().is_empty());
            // From user to user, the groups change as well.
            drop(authority.impersonate(&member()).unwrap());
            assert_eq!(getgroups().unwrap(), [7, 8].map(Gid::from_raw));
            drop(authority.impersonate(&Caller::new(1003, 2001)).unwrap());
            assert_eq!((file_ids(), getgroups().unwrap()), ((1003, 2001), vec![]));
            assert!(effective().is_empty());
            // This change fails, and the next operation must not run as the previous caller either.
            assert!(authority.impersonate(&Caller::new(u32::MAX, 5)).is_err());
            assert_eq!(file_ids(), (0, 0));
        });
        thread.join().unwrap();
    }

    /// A loop of the server keeps identities during a batch of calls.
    #[test]
    fn a_thread_that_has_kept_an_identity_returns_to_the_servers() {
        let Some(authority) = callers() else { return };
        let thread = std::thread::spawn(move || {
            let before = (file_ids(), getgroups().unwrap(), effective());
            for who in [member(), Caller::root(), Caller::new(1002, 5)] {
                keep_identity_in_batch();
                drop(authority.impersonate(&who).unwrap());
                assert_eq!(file_ids(), (who.uid, who.gid));
                assert!(keeps_identity());
                return_to_server();
                let after = (file_ids(), getgroups().unwrap(), effective());
                assert_eq!(after, before);
                // The next operation is none of a batch.
                drop(authority.impersonate(&who).unwrap());
                assert_eq!(file_ids(), before.0);
            }
        });
        thread.join().unwrap();
    }

    /// In a server that has no more privileges than it needs.
    #[test]
    fn batches_of_root_change_no_capabilities() {
        if callers().is_none() {
            return;
        }
        let thread = std::thread::spawn(move || {
            let kept = capabilities_to_serve() & capabilities(None).unwrap().permitted;
            let sets = CapabilitySets {
                effective: kept,
                permitted: kept,
                inheritable: CapabilitySet::empty(),
            };
            set_capabilities(None, sets).unwrap();
            let authority = Authority::find().unwrap();
            for (who, sets) in [
                // The first time in any case, as the thread could have had others.
                (Caller::root(), 1),
                (Caller::root(), 0),
                (Caller::root(), 0),
                // Once as the user, and once back.
                (member(), 2),
                (Caller::root(), 1),
                (Caller::root(), 0),
            ] {
                SETS.set(0);
                keep_identity_in_batch();
                for _ in 0..2 {
                    drop(authority.impersonate(&who).unwrap());
                    let wanted = if who.uid == 0 {
                        kept & of_root()
                    } else {
                        CapabilitySet::empty()
                    };
                    assert_eq!((file_ids().0, effective()), (who.uid, wanted));
                }
                return_to_server();
                assert_eq!((file_ids().0, effective()), (0, kept & of_root()));
                assert_eq!(SETS.get(), sets, "{who:?}");
            }
        });
        thread.join().unwrap();
    }

    #[test]
    fn a_number_that_stands_for_nobody_is_refused_and_leaves_the_server() {
        let Some(authority) = callers() else { return };
        for who in [Caller::new(u32::MAX, 5), Caller::new(5, u32::MAX)] {
            assert!(matches!(authority.impersonate(&who), Err(FsError::Access)));
            assert_eq!(file_ids(), (0, 0));
        }
    }

    /// A root process that cannot impersonate its callers would act as root for everybody,
    /// regardless of the export options.
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
