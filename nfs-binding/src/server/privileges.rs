//! The privileges of a server process: what it needs to serve, and no more.

use std::io;

use rustix::io::Errno;
use rustix::thread::{
    CapabilitySet, CapabilitySets, capabilities, capability_is_in_bounding_set,
    clear_ambient_capability_set, remove_capability_from_bounding_set, set_capabilities,
    set_no_new_privs,
};

use crate::fs::directory::capabilities_to_serve;

/// The privileges that a server needs while it serves. None are needed to serve files in memory
/// over sockets that listen already.
///
/// ```no_run
/// # fn main() -> std::io::Result<()> {
/// // First what only the administrator may do, such as listening on a port below 1024.
/// let privileges = nfs_binding::server::Privileges { directories: true, ..Default::default() };
/// privileges.drop_others()?;
/// // Then the exports, and everything else that starts threads.
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Privileges {
    /// Whether directories of the host are exported: files are opened by their handles, and a
    /// server that runs as root acts as its callers, root included.
    pub directories: bool,
    /// Whether memory is locked beyond the limit of an ordinary user, as verbs devices do.
    pub locked_memory: bool,
    /// Whether ports below 1024 are bound later, as on a verbs device.
    pub low_ports: bool,
}

impl Privileges {
    /// Drops all capabilities except those for these privileges, and sets `no_new_privs`. The
    /// calling thread, and threads that it starts afterwards, can never regain the others, whatever
    /// they execute. Other threads of the process keep theirs, so call this before any is started.
    /// Also call it before a directory is exported, because an export returns to the capabilities
    /// that its opener had.
    ///
    /// Capabilities that the process lacks are not added. Without `CAP_SETPCAP` the bounding set
    /// stays unchanged; then `no_new_privs` alone keeps executed programs from gaining
    /// capabilities.
    ///
    /// # Errors
    /// The error of the operating system. The thread may then have kept some of the other
    /// capabilities.
    pub fn drop_others(self) -> io::Result<()> {
        set_no_new_privs(true)?;
        let own = capabilities(None)?;
        let kept = self.capabilities() & own.permitted;
        if own.effective.contains(CapabilitySet::SETPCAP) {
            limit_bounding_set(kept)?;
        }
        clear_ambient_capability_set()?;
        let sets = CapabilitySets {
            effective: kept,
            permitted: kept,
            inheritable: CapabilitySet::empty(),
        };
        set_capabilities(None, sets)?;
        tracing::debug!(capabilities = %names(kept), "all others are dropped");
        Ok(())
    }

    /// Returns the capabilities that serve these purposes.
    fn capabilities(self) -> CapabilitySet {
        let when = |needed: bool, capabilities: CapabilitySet| match needed {
            true => capabilities,
            false => CapabilitySet::empty(),
        };
        when(self.directories, capabilities_to_serve())
            | when(self.locked_memory, CapabilitySet::IPC_LOCK)
            | when(self.low_ports, CapabilitySet::NET_BIND_SERVICE)
    }
}

/// Drops all but these from the bounding set, also those that are too new to have a name here.
fn limit_bounding_set(kept: CapabilitySet) -> io::Result<()> {
    for number in 0..u64::BITS {
        let capability = CapabilitySet::from_bits_retain(1 << number);
        match capability_is_in_bounding_set(capability) {
            Ok(true) if !kept.contains(capability) => {
                remove_capability_from_bounding_set(capability)?;
            }
            Ok(_) => {}
            // The kernel has no further ones.
            Err(Errno::INVAL) => break,
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}

/// Returns the names of the capabilities, without `CAP_`.
fn names(capabilities: CapabilitySet) -> String {
    let names: Vec<&str> = capabilities.iter_names().map(|(name, _)| name).collect();
    names.join(" ")
}

#[cfg(test)]
mod tests {
    use std::thread;

    use rustix::thread::no_new_privs;

    use super::*;

    /// On a thread of its own, so that the rest of the tests keep theirs.
    fn after(privileges: Privileges) -> CapabilitySets {
        let thread = thread::spawn(move || {
            privileges.drop_others().unwrap();
            assert!(no_new_privs().unwrap());
            let left = capabilities(None).unwrap();
            assert_eq!(left.effective, left.permitted);
            assert!(left.inheritable.is_empty());
            // It can be done again, with what is left.
            privileges.drop_others().unwrap();
            assert_eq!(capabilities(None).unwrap(), left);
            // No thread that this one starts has more.
            thread::spawn(|| capabilities(None).unwrap())
                .join()
                .unwrap()
        });
        thread.join().unwrap()
    }

    #[test]
    fn nothing_is_kept_that_is_not_needed() {
        let own = capabilities(None).unwrap().permitted;
        let kept = after(Privileges::default()).permitted;
        assert!(kept.is_empty(), "{kept:?}");
        let low_ports = Privileges {
            low_ports: true,
            ..Privileges::default()
        };
        let expected = own & CapabilitySet::NET_BIND_SERVICE;
        assert_eq!(after(low_ports).permitted, expected);
        let all = Privileges {
            directories: true,
            locked_memory: true,
            low_ports: true,
        };
        let kept = after(all).permitted;
        assert!(!kept.intersects(CapabilitySet::SYS_ADMIN | CapabilitySet::SETPCAP));
        assert!(own.contains(kept), "{kept:?}");
        assert_eq!(kept, own & all.capabilities());
    }
}
