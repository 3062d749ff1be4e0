//! The pool's memory, and its registration in protection domains.
//!
//! The pool takes memory from the system in large pieces, *arenas*, and reports them to [`Arenas`].
//! Each domain registers an arena as a whole: the shared domain at once, a connection's own domain
//! when it first uses a part. Such a registration gives local rights only; `regions.rs` manages the
//! memory that a peer may access.

use std::collections::BTreeMap;
use std::ffi::c_uint;
use std::io;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::objects::{Mr, Pd};
use super::refusals::Refusals;
use super::report::memlock;
use super::sys;
use rdma::{Registrar, Time};

/// A protection domain with a number that is never reused.
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

/// The keys for using a part of the pool's memory.
#[derive(Clone, Copy, Debug)]
pub(super) struct Key {
    /// Key for local use.
    pub(super) lkey: u32,
    /// The arena's registration, to which windows are bound. Valid while any part of the arena is
    /// in use.
    pub(super) mr: *mut sys::ibv_mr,
}

struct Arena {
    len: usize,
    /// One registration for each domain that has used the arena.
    registrations: Vec<(u64, Mr)>,
    /// Parts that were offered with [`super::Registration::PersistentUnsafe`].
    parts: Vec<Part>,
    /// Whether a registration could not be ended, so that the memory must never be freed. It is used on: the queue
    /// pair of that registration's domain is destroyed.
    stays: bool,
}

/// A part of an arena that stays registered for a peer.
struct Part {
    domain: u64,
    start: usize,
    len: usize,
    mr: Mr,
    /// Whether the memory is being offered now.
    leased: bool,
}

impl Arena {
    /// Ends all registrations. Returns false if one could not be ended.
    fn deregister(self) -> bool {
        let parts = self.parts.into_iter().map(|part| part.mr);
        let all = parts.chain(self.registrations.into_iter().map(|(_, mr)| mr));
        deregister_all(all)
    }
}

/// Ends registrations. Returns false if one could not be ended.
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
    /// Arenas by address.
    arenas: BTreeMap<usize, Arena>,
    /// The reason why an arena was refused last.
    refused: Option<io::Error>,
    /// Arenas that were refused because memory is short.
    refusals: Refusals,
}

/// The memory of one pool.
pub(super) struct Arenas {
    state: Mutex<State>,
    /// The domain in which all memory is registered at once.
    shared: Option<Arc<Domain>>,
    access: c_uint,
}

impl Arenas {
    /// Creates an empty map. Without a shared domain, each connection has its own.
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

    /// Returns the keys of the memory from `start` in a domain, or `None` if it is not the pool's
    /// memory.
    ///
    /// # Errors
    /// The error of the system if the memory cannot be registered in the domain.
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
        // The sum cannot wrap in 64 bits, because both are in the address space.
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

    /// Registers a part of the pool's memory for the peer with all rights, or reuses the
    /// registration from the last time it was offered, and returns its handle. `None` if it is not
    /// the pool's memory.
    ///
    /// # Safety
    /// The peer can use the handle even after [`Arenas::give_back`], when the memory may have
    /// another use. Only allowed for `PersistentUnsafe`, whose documentation warns of this.
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

    /// Records that the handle is no longer offered. (It stays usable: see [`Arenas::lease`].)
    pub(super) fn give_back(&self, domain: &Domain, rkey: u32) {
        let mut state = self.state();
        let mut parts = state.arenas.values_mut().flat_map(|arena| &mut arena.parts);
        let of = |part: &&mut Part| part.domain == domain.number && part.mr.rkey() == rkey;
        if let Some(part) = parts.find(of) {
            part.leased = false;
        }
    }

    /// Ends the registrations in a domain that is no longer used.
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
                arena.stays = true;
            }
        }
        state.refusals.freed();
    }

    /// Returns the reason why the last arena was refused, once.
    pub(super) fn refused(&self) -> Option<io::Error> {
        self.state().refused.take()
    }
}

impl Registrar for Arenas {
    fn accepts(&self, len: usize) -> bool {
        !self.state().refusals.cover(len, Time::now())
    }

    fn obtained(&self, start: NonNull<u8>, len: usize) -> bool {
        // `key` converts the address back to a pointer.
        let base = start.as_ptr().expose_provenance();
        let registrations = match &self.shared {
            None => Vec::new(),
            Some(domain) => {
                // SAFETY: as in `key`.
                match unsafe { Mr::new(&domain.pd, start.as_ptr(), len, self.access) } {
                    Ok(mr) => {
                        self.state().refusals.succeeded(len);
                        vec![(domain.number, mr)]
                    }
                    Err(error) => {
                        let hint = memory_hint(&error);
                        rpcrdma_host::limited!(error, %error, len, "cannot register memory{hint}");
                        let mut state = self.state();
                        state.refusals.refused(len, &error, Time::now());
                        state.refused = Some(error);
                        return false;
                    }
                }
            }
        };
        let arena = Arena {
            len,
            registrations,
            parts: Vec::new(),
            stays: false,
        };
        self.state().arenas.insert(base, arena);
        true
    }

    fn released(&self, start: NonNull<u8>) -> bool {
        let arena = self.state().arenas.remove(&start.as_ptr().addr());
        arena.is_none_or(|arena| {
            let stays = arena.stays;
            let freed = arena.deregister() && !stays;
            self.state().refusals.freed();
            freed
        })
    }
}

/// Returns a hint for the user about memory that cannot be registered.
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
