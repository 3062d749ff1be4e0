//! The pool's memory, and its registration in protection domains.
//!
//! The pool takes memory from the system in large pieces, *arenas*, and tells [`Arenas`]. Each
//! domain registers an arena as a whole: the shared domain at once, a connection's own domain when
//! it first uses a part. Such a registration gives local rights only: what a peer may reach is a
//! matter of `regions.rs`.

use std::collections::BTreeMap;
use std::ffi::c_uint;
use std::io;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::objects::{Mr, Pd};
use super::report::memlock;
use super::sys;
use rdma::Registrar;

/// A protection domain, by a number that is not used twice.
pub(super) struct Domain {
    number: u64,
    pub(super) pd: Arc<Pd>,
}

impl Domain {
    pub(super) fn new(pd: Pd) -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        Self {
            number: NEXT.fetch_add(1, Ordering::Relaxed),
            pd: Arc::new(pd),
        }
    }
}

/// How to name a piece of the pool's memory to the device.
#[derive(Clone, Copy, Debug)]
pub(super) struct Key {
    /// For local use.
    pub(super) lkey: u32,
    /// The arena's registration, for windows. Valid while somebody has a part of the arena.
    pub(super) mr: *mut sys::ibv_mr,
}

struct Arena {
    len: usize,
    /// One for each domain that used it.
    registrations: Vec<(u64, Mr)>,
    /// Parts that were offered persistently.
    parts: Vec<Part>,
}

/// A part of an arena that stays registered for a peer.
struct Part {
    domain: u64,
    start: usize,
    len: usize,
    mr: Mr,
    /// It is being offered.
    leased: bool,
}

impl Arena {
    /// Ends all registrations. False when one goes on.
    fn deregister(self) -> bool {
        let parts = self.parts.into_iter().map(|part| part.mr);
        let all = parts.chain(self.registrations.into_iter().map(|(_, mr)| mr));
        deregister_all(all)
    }
}

/// Ends registrations. False when one goes on.
fn deregister_all(all: impl Iterator<Item = Mr>) -> bool {
    let mut done = true;
    for mr in all {
        if let Err(error) = mr.deregister() {
            tracing::error!(%error, "memory is not deregistered, and so never freed");
            done = false;
        }
    }
    done
}

#[derive(Default)]
struct State {
    /// By address.
    arenas: BTreeMap<usize, Arena>,
    /// Why an arena was refused last.
    refused: Option<io::Error>,
}

/// The memory of one pool.
pub(super) struct Arenas {
    state: Mutex<State>,
    /// In which all memory is registered at once.
    shared: Option<Arc<Domain>>,
    access: c_uint,
}

impl Arenas {
    /// None yet. Without a shared domain, connections have their own.
    pub(super) fn new(shared: Option<Arc<Domain>>, access: c_uint) -> Self {
        Self {
            state: Mutex::default(),
            shared,
            access,
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How to name the memory from `start` in a domain. Nothing when it is not the pool's.
    ///
    /// # Errors
    /// It is, and cannot be registered in the domain.
    pub(super) fn key(
        &self,
        domain: &Domain,
        start: *const u8,
        len: usize,
    ) -> io::Result<Option<Key>> {
        let start = start.addr();
        let mut state = self.state();
        let Some((&base, arena)) = state.arenas.range_mut(..=start).next_back() else {
            return Ok(None);
        };
        // An end in 64 bits cannot wrap: both are in the address space.
        if start + len > base + arena.len {
            return Ok(None);
        }
        let number = domain.number;
        let known = arena.registrations.iter().position(|(n, _)| *n == number);
        let at = match known {
            Some(at) => at,
            None => {
                let start = std::ptr::with_exposed_provenance_mut(base);
                // SAFETY: the pool does not free the arena before `released` says so, which ends
                // this registration first. The rights are local: the device touches only what a
                // posted request names, which that request owns (`queue.rs`).
                let mr = unsafe { Mr::new(&domain.pd, start, arena.len, self.access) };
                arena.registrations.push((number, mr?));
                arena.registrations.len() - 1
            }
        };
        let (_, mr) = &arena.registrations[at];
        Ok(Some(Key {
            lkey: mr.lkey(),
            mr: mr.raw(),
        }))
    }

    /// Registers a part of the pool's memory for the peer, with all rights, or takes the
    /// registration that was made when it was last offered; gives its handle. Nothing when the
    /// memory is not the pool's.
    ///
    /// # Safety
    /// The peer can go on using the handle after [`Arenas::give_back`], when the memory may be in
    /// other use: only for `PersistentUnsafe`, whose user has been told so.
    pub(super) unsafe fn lease(
        &self,
        domain: &Domain,
        start: *mut u8,
        len: usize,
    ) -> io::Result<Option<u32>> {
        let mut state = self.state();
        let Some((base, arena)) = state.arenas.range_mut(..=start.addr()).next_back() else {
            return Ok(None);
        };
        if start.addr() + len > base + arena.len {
            return Ok(None);
        }
        let wanted = (domain.number, start.addr(), len);
        let fits = |part: &&mut Part| !part.leased && (part.domain, part.start, part.len) == wanted;
        if let Some(part) = arena.parts.iter_mut().find(fits) {
            part.leased = true;
            return Ok(Some(part.mr.rkey()));
        }
        let access = sys::IBV_ACCESS_LOCAL_WRITE
            | sys::IBV_ACCESS_REMOTE_READ
            | sys::IBV_ACCESS_REMOTE_WRITE;
        // SAFETY: not freed while registered, as in `key`; for the rest see above.
        let mr = unsafe { Mr::new(&domain.pd, start, len, access) }?;
        let rkey = mr.rkey();
        arena.parts.push(Part {
            domain: domain.number,
            start: start.addr(),
            len,
            mr,
            leased: true,
        });
        Ok(Some(rkey))
    }

    /// The handle is not offered any more. (It stays usable: see [`Arenas::lease`].)
    pub(super) fn give_back(&self, domain: &Domain, rkey: u32) {
        let mut state = self.state();
        let mut parts = state.arenas.values_mut().flat_map(|arena| &mut arena.parts);
        let of = |part: &&mut Part| part.domain == domain.number && part.mr.rkey() == rkey;
        if let Some(part) = parts.find(of) {
            part.leased = false;
        }
    }

    /// Ends the registrations in a domain that is not used any more.
    pub(super) fn leave(&self, domain: &Domain) {
        let mut state = self.state();
        for arena in state.arenas.values_mut() {
            let parts = arena
                .parts
                .extract_if(.., |part| part.domain == domain.number);
            let parts: Vec<Mr> = parts.map(|part| part.mr).collect();
            let wholes = &mut arena.registrations;
            let wholes = wholes.extract_if(.., |(number, _)| *number == domain.number);
            let all = parts.into_iter().chain(wholes.map(|(_, mr)| mr));
            if !deregister_all(all) {
                // It stays in the map, and `released` never lets go of it.
                arena.len = 0;
            }
        }
    }

    /// Why the last arena was refused, once.
    pub(super) fn refused(&self) -> Option<io::Error> {
        self.state().refused.take()
    }
}

impl Registrar for Arenas {
    fn obtained(&self, start: NonNull<u8>, len: usize) -> bool {
        // The address is turned into a pointer again in `key`.
        let base = start.as_ptr().expose_provenance();
        let registrations = match &self.shared {
            None => Vec::new(),
            Some(domain) => {
                // SAFETY: as in `key`.
                match unsafe { Mr::new(&domain.pd, start.as_ptr(), len, self.access) } {
                    Ok(mr) => vec![(domain.number, mr)],
                    Err(error) => {
                        let hint = memory_hint(&error);
                        tracing::error!(%error, len, "cannot register memory{hint}");
                        self.state().refused = Some(error);
                        return false;
                    }
                }
            }
        };
        let arena = Arena {
            len,
            registrations,
            parts: Vec::new(),
        };
        self.state().arenas.insert(base, arena);
        true
    }

    fn released(&self, start: NonNull<u8>) -> bool {
        let arena = self.state().arenas.remove(&start.as_ptr().addr());
        // An arena without length had a registration that goes on.
        arena.is_none_or(|arena| {
            let whole = arena.len > 0;
            arena.deregister() && whole
        })
    }
}

/// What to do about memory that cannot be registered.
pub(super) fn memory_hint(error: &io::Error) -> String {
    if error.raw_os_error() != Some(rustix::io::Errno::NOMEM.raw_os_error()) {
        return String::new();
    }
    match memlock().soft {
        Some(limit) => format!(
            ": this process may lock {limit} bytes of memory; raise that (ulimit -l, \
             LimitMEMLOCK= of systemd)"
        ),
        None => ": the device or the machine has no more".to_owned(),
    }
}
