//! The memory that the peer of one connection may access, for every registration strategy.
//!
//! Handles are partly unpredictable: the device chooses 24 of the 32 bits, by counting or at
//! random, and this side draws the other 8 for every window. Other connections are not protected by
//! that, but because a window is bound to its queue pair, and a registration per call is made in
//! the connection's own protection domain; a peer that guesses a foreign handle cannot use it. (rxe
//! of kernel 6.12 does not check the bounds of a window, only those of its registration, so on rxe
//! each region is registered by itself and has a window to that registration. siw does not check
//! the right to read: a peer can read memory that it was offered for writing.) A stale handle of
//! the peer's own is refused because the window was freed or rebound with another key, or because
//! the registration has ended. (The last handle of a window is always refused. An older one equals
//! that of a later binding with a probability of 1/255, and then names memory that this peer is offered.) Offsets are addresses of this process: a peer learns the addresses
//! of memory that was offered to it, but cannot access more memory with them.
//!
//! Where windows are missing, a connection has its own protection domain, because a plain
//! registration is valid for all queue pairs of a domain. The price is that the pool's memory is
//! registered once for each connection that uses it. On siw, sinks of RDMA Reads, whose handles the
//! peer learns, have registrations of their own, because the peer can read by any handle of the
//! connection.

use std::collections::HashMap;
use std::ffi::c_uint;
use std::io;
use std::sync::Arc;

use super::Registration;
use super::memory::{Arenas, Domain, Key};
use super::objects::{Mr, Mw};
use super::random::Keys;
use super::sys;
use rdma::{Buf, DeviceError, Pool, Region, RemoteSegment, Stag};

/// The object that makes a region accessible.
enum Grant {
    /// None: the region is empty or was invalidated.
    Nothing,
    /// A window; the number of the send queue request that binds it, once that is posted; and its
    /// registration, if that is not the arena's.
    Window(Mw, Option<u64>, Option<Mr>),
    Registration(Mr),
    /// A persistent registration, by its handle.
    Lease(u32),
    /// An object that could not be destroyed; the memory is never freed.
    Irrevocable,
}

/// A handle, the offset of its first byte, the object that makes the region accessible, and the
/// copy of the region, if there is one.
type Made = (u32, u64, Grant, Option<Buf>);

/// Registration fails after this many handles in a row that are already in use.
const HANDLES_TRIED: usize = 16;

struct Entry {
    hold: Grant,
    valid: bool,
    region: Region,
    /// Memory that the device uses instead, if the region is not in the pool's memory.
    copy: Option<Buf>,
}

/// A window to bind before the next request is posted.
pub(super) struct Bind {
    pub(super) mw: *mut sys::ibv_mw,
    /// The new handle of the window.
    pub(super) rkey: u32,
    pub(super) info: sys::ibv_mw_bind_info,
}

// SAFETY: the window and the registration that it names belong to the same `Regions`, and can be
// used from any thread.
unsafe impl Send for Bind {}

/// The method for invalidating a handle.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Invalidation {
    /// None: the handle is already invalid.
    Over,
    /// A request to the send queue.
    Request,
    /// A call, at any time.
    Now,
    /// A call, after the send queue request with this number is done.
    After(u64),
}

impl Invalidation {
    /// Returns whether the call can be made now. `first` is the oldest request that is not done.
    pub(super) fn is_due(self, first: u64) -> bool {
        match self {
            Self::Over | Self::Now => true,
            Self::Request => false,
            Self::After(number) => number < first,
        }
    }
}

/// The settings that all connections of a device share.
pub(super) struct Policy {
    pub(super) registration: Registration,
    /// Whether windows are invalidated by a work request; otherwise by freeing them.
    pub(super) invalidate_by_request: bool,
    /// Whether windows have a registration of the region alone, because the device does not check
    /// their bounds.
    pub(super) exact_windows: bool,
    pub(super) arenas: Arc<Arenas>,
    pub(super) pool: Pool,
    pub(super) keys: Keys,
    pub(super) max_region: usize,
}

/// The registrations of one connection.
pub(super) struct Regions {
    by_stag: HashMap<u32, Entry>,
    /// Windows that are not bound.
    unbound: Vec<Mw>,
    /// Windows to be bound, in order.
    binds: Vec<Bind>,
}

fn refused(what: &str, source: io::Error) -> DeviceError {
    let hint = super::memory::memory_hint(&source);
    DeviceError::System {
        what: format!("{what}{hint}"),
        source,
    }
}

/// Returns address and length of a region, or of its copy.
fn span(region: &mut Region, copy: &mut Option<Buf>) -> (*mut u8, usize) {
    match (copy, region) {
        (Some(copy), region) => (copy.as_mut_ptr(), region.len()),
        (None, Region::RemoteRead(bytes)) => (bytes.as_ptr().cast_mut(), bytes.len()),
        (None, Region::RemoteWrite(buf)) => (buf.as_mut_ptr(), buf.len()),
    }
}

/// Returns the right of the peer.
fn right(region: &Region) -> c_uint {
    match region {
        Region::RemoteRead(_) => sys::IBV_ACCESS_REMOTE_READ,
        Region::RemoteWrite(_) => sys::IBV_ACCESS_REMOTE_WRITE,
    }
}

/// Returns the rights for a separate registration of the region: the right to write remotely
/// requires the right to write locally.
fn rights(region: &Region) -> c_uint {
    match region {
        Region::RemoteRead(_) => right(region),
        Region::RemoteWrite(_) => right(region) | sys::IBV_ACCESS_LOCAL_WRITE,
    }
}

impl Regions {
    pub(super) fn new() -> Self {
        Self {
            by_stag: HashMap::new(),
            unbound: Vec::new(),
            binds: Vec::new(),
        }
    }

    /// Registers a region. A window must still be bound ([`Regions::waiting`]). Adds the number of
    /// copied bytes to `copied`.
    pub(super) fn register(
        &mut self,
        policy: &mut Policy,
        domain: &Domain,
        region: Region,
        copied: &mut u64,
    ) -> Result<RemoteSegment, (DeviceError, Region)> {
        let mut region = region;
        if region.len() > policy.max_region {
            return Err((DeviceError::Limit("longest region"), region));
        }
        match self.make_unique(policy, domain, &mut region, copied) {
            Ok((stag, offset, hold, copy)) => {
                let length = region.len() as u32;
                let valid = true;
                let entry = Entry {
                    hold,
                    valid,
                    region,
                    copy,
                };
                self.by_stag.insert(stag, entry);
                Ok(RemoteSegment {
                    stag: Stag(stag),
                    length,
                    offset,
                })
            }
            Err(error) => Err((error, region)),
        }
    }

    /// Calls `make` until it returns a handle that is not in use here. The device may reuse a
    /// handle as soon as it is invalid, when the memory that it named may not have been reclaimed
    /// yet.
    fn make_unique(
        &mut self,
        policy: &mut Policy,
        domain: &Domain,
        region: &mut Region,
        copied: &mut u64,
    ) -> Result<Made, DeviceError> {
        // Kept until there is another handle, so that the device does not return the same one
        // again.
        let mut taken = Vec::new();
        let made = loop {
            let made = self.make(policy, domain, region, copied);
            match made {
                Ok((stag, _, hold, _)) if self.by_stag.contains_key(&stag) => taken.push(hold),
                made => break made,
            }
            if taken.len() == HANDLES_TRIED {
                break Err(DeviceError::Limit("handles"));
            }
        };
        for hold in taken {
            // No request names the handle and it was not announced. A registration that cannot be ended aborts
            // the process when it is dropped, and a window that cannot be freed is only logged (`objects.rs`).
            if let Grant::Window(mw, _, _) = &hold {
                self.binds.retain(|bind| bind.mw != mw.raw());
            }
            if let Grant::Lease(rkey) = hold {
                policy.arenas.give_back(domain, rkey);
            }
        }
        made
    }

    fn make(
        &mut self,
        policy: &mut Policy,
        domain: &Domain,
        region: &mut Region,
        copied: &mut u64,
    ) -> Result<Made, DeviceError> {
        if region.is_empty() {
            // No device can register an empty region, and nothing needs to be accessible.
            let stag = loop {
                let stag = policy.keys.handle().map_err(|e| refused("no handle", e))?;
                if !self.by_stag.contains_key(&stag) {
                    break stag;
                }
            };
            return Ok((stag, 0, Grant::Nothing, None));
        }
        if policy.registration == Registration::PerCall {
            let access = rights(region);
            let (start, len) = span(region, &mut None);
            // SAFETY: the region is held here, out of everybody's reach if it can be written and
            // shared for reading otherwise, until the registration has ended (`end`, `release`);
            // if it does not end, the region is never dropped.
            let mr = unsafe { Mr::new(&domain.pd, start, len, access) };
            let mr = mr.map_err(|error| refused("cannot register memory", error))?;
            return Ok((
                mr.rkey(),
                start.addr() as u64,
                Grant::Registration(mr),
                None,
            ));
        }
        if policy.registration == Registration::Windows && policy.exact_windows {
            let (start, len) = span(region, &mut None);
            let access = rights(region) & sys::IBV_ACCESS_LOCAL_WRITE | sys::IBV_ACCESS_MW_BIND;
            // SAFETY: as above; the window gives the peer its right.
            let mr = unsafe { Mr::new(&domain.pd, start, len, access) };
            let mr = mr.map_err(|error| refused("cannot register memory", error))?;
            let (offset, raw) = (start.addr() as u64, mr.raw());
            return match self.window(policy, domain, raw, (offset, len), right(region)) {
                Ok((rkey, mw)) => Ok((rkey, offset, Grant::Window(mw, None, Some(mr)), None)),
                Err(error) => match mr.deregister() {
                    Ok(()) => Err(error),
                    // The right is local, and no request names it.
                    Err(source) => Err(refused("cannot end a registration", source)),
                },
            };
        }
        let mut copy = None;
        let key = match key_of(policy, domain, region, &mut copy)? {
            Some(key) => key,
            None => {
                // The region is not in the pool's memory, so the peer gets a copy that is.
                let buf = policy.pool.alloc(region.len());
                let mut buf = buf.map_err(|_| DeviceError::Limit("memory of the pool"))?;
                if let Region::RemoteRead(bytes) = region {
                    buf.copy_from_slice(bytes);
                    *copied += bytes.len() as u64;
                }
                copy = Some(buf);
                let key = key_of(policy, domain, region, &mut copy)?;
                key.ok_or(DeviceError::Limit("memory of the pool"))?
            }
        };
        let (start, len) = span(region, &mut copy);
        let offset = start.addr() as u64;
        let key = match key {
            Handle::Leased(rkey) => return Ok((rkey, offset, Grant::Lease(rkey), copy)),
            Handle::Arena(key) => key,
        };
        let of = (offset, len);
        let (rkey, mw) = self.window(policy, domain, key.mr, of, right(region))?;
        Ok((rkey, offset, Grant::Window(mw, None, None), copy))
    }

    /// Queues a window to be bound before the next request, and returns its handle.
    fn window(
        &mut self,
        policy: &mut Policy,
        domain: &Domain,
        mr: *mut sys::ibv_mr,
        (addr, len): (u64, usize),
        access: c_uint,
    ) -> Result<(u32, Mw), DeviceError> {
        let mw = match self.unbound.pop() {
            Some(mw) => mw,
            None => Mw::new(&domain.pd).map_err(|error| refused("no memory window", error))?,
        };
        let old = mw.rkey();
        let drawn = policy.keys.key(old as u8);
        let fresh = drawn.map_err(|error| refused("no handle", error))?;
        let rkey = old & !0xff | u32::from(fresh);
        self.binds.push(Bind {
            mw: mw.raw(),
            rkey,
            info: sys::ibv_mw_bind_info {
                mr,
                addr,
                length: len as u64,
                mw_access_flags: access,
            },
        });
        Ok((rkey, mw))
    }

    /// Returns the number of windows that wait to be bound.
    pub(super) fn waiting(&self) -> usize {
        self.binds.len()
    }

    /// Takes the first `count` waiting windows, which the requests from number `first` on will
    /// bind. They get their numbers only now, so a window that was released before it was bound
    /// uses none.
    pub(super) fn post_binds(
        &mut self,
        count: usize,
        first: u64,
    ) -> impl Iterator<Item = (Bind, u64)> + '_ {
        let by_stag = &mut self.by_stag;
        self.binds
            .drain(..count)
            .zip(first..)
            .inspect(move |(bind, number)| {
                let entry = by_stag.get_mut(&bind.rkey);
                if let Some(Grant::Window(_, posted, _)) = entry.map(|entry| &mut entry.hold) {
                    *posted = Some(*number);
                }
            })
    }

    /// Returns the method for invalidating a handle, or `None` if there is no such handle.
    pub(super) fn ending(&self, policy: &Policy, stag: Stag) -> Option<Invalidation> {
        let entry = self.by_stag.get(&stag.0)?;
        Some(match &entry.hold {
            Grant::Nothing => Invalidation::Over,
            _ if !entry.valid => Invalidation::Over,
            Grant::Irrevocable => Invalidation::Now,
            // A waiting window that is freed is never bound.
            Grant::Window(_, None, _) => Invalidation::Now,
            Grant::Window(..) if policy.invalidate_by_request => Invalidation::Request,
            // A window that is bound after it was freed would fail the queue pair.
            Grant::Window(_, Some(number), _) => Invalidation::After(*number),
            Grant::Registration(_) | Grant::Lease(_) => Invalidation::Now,
        })
    }

    /// Invalidates a handle by a call.
    ///
    /// # Errors
    /// The error of the system if the handle remains valid. Only the end of the connection can then
    /// invalidate it.
    pub(super) fn end(&mut self, arenas: &Arenas, domain: &Domain, stag: Stag) -> io::Result<()> {
        let Some(entry) = self.by_stag.get_mut(&stag.0) else {
            return Ok(());
        };
        // The entry stays `Irrevocable` if a following step fails.
        match std::mem::replace(&mut entry.hold, Grant::Irrevocable) {
            Grant::Nothing => {}
            Grant::Irrevocable => return Err(io::Error::other("it could not be ended before")),
            Grant::Window(mw, _, mr) => {
                let waiting = self.binds.iter().position(|bind| bind.mw == mw.raw());
                match waiting {
                    // The window was never bound.
                    Some(at) => {
                        self.binds.remove(at);
                        self.unbound.push(mw);
                    }
                    None if entry.valid => {
                        if let Err(error) = mw.free() {
                            // The registration of the window cannot be ended either.
                            std::mem::forget(mr);
                            return Err(error);
                        }
                    }
                    None => self.unbound.push(mw),
                }
                mr.map_or(Ok(()), Mr::deregister)?;
            }
            Grant::Registration(mr) => mr.deregister()?,
            Grant::Lease(rkey) => arenas.give_back(domain, rkey),
        }
        entry.hold = Grant::Nothing;
        entry.valid = false;
        Ok(())
    }

    /// Records that the device has invalidated a handle, by a send queue request or because the
    /// peer's Send named it. Returns false if there is no such handle.
    pub(super) fn ended(&mut self, stag: Stag) -> bool {
        let entry = self.by_stag.get_mut(&stag.0);
        entry.map(|entry| entry.valid = false).is_some()
    }

    /// Returns a region whose handle is no longer valid.
    pub(super) fn reclaim(
        &mut self,
        arenas: &Arenas,
        domain: &Domain,
        stag: Stag,
        copied: &mut u64,
    ) -> Result<Region, DeviceError> {
        let entry = self.by_stag.get(&stag.0);
        let entry = entry.ok_or(DeviceError::Unknown("handle"))?;
        if entry.valid {
            return Err(DeviceError::StillRegistered(stag));
        }
        let ended = self.end(arenas, domain, stag);
        let Some(Entry {
            mut region, copy, ..
        }) = self.by_stag.remove(&stag.0)
        else {
            return Err(DeviceError::Unknown("handle"));
        };
        if let Err(source) = ended {
            // The device may still access the memory, so nobody else may ever use it.
            std::mem::forget((region, copy));
            return Err(refused("cannot end a registration", source));
        }
        if let (Region::RemoteWrite(buf), Some(copy)) = (&mut region, copy) {
            let len = buf.len();
            buf.copy_from_slice(&copy[..len]);
            *copied += len as u64;
        }
        Ok(region)
    }

    /// Ends all registrations, after the connection is over and its queue pair is in the error
    /// state. The memory can then be reclaimed.
    pub(super) fn release(&mut self, arenas: &Arenas, domain: &Domain) {
        self.binds.clear();
        let stags: Vec<u32> = self.by_stag.keys().copied().collect();
        for stag in stags {
            if let Err(error) = self.end(arenas, domain, Stag(stag)) {
                tracing::error!(%error, "memory is still registered, and so never freed");
                std::mem::forget(self.by_stag.remove(&stag));
            }
        }
        for mw in self.unbound.drain(..) {
            if let Err(error) = mw.free() {
                tracing::warn!(%error, "memory window not freed");
            }
        }
    }

    /// Returns the number of windows and registrations that the device holds for this connection.
    pub(super) fn held(&self) -> usize {
        let all = self.by_stag.values();
        all.filter(|entry| !matches!(entry.hold, Grant::Nothing))
            .count()
            + self.unbound.len()
    }
}

/// The handle of memory for the peer.
enum Handle {
    Arena(Key),
    Leased(u32),
}

/// Returns the handle of a region's memory, or of its copy, if that is the pool's memory.
fn key_of(
    policy: &Policy,
    domain: &Domain,
    region: &mut Region,
    copy: &mut Option<Buf>,
) -> Result<Option<Handle>, DeviceError> {
    let (start, len) = span(region, copy);
    let found = if policy.registration == Registration::PersistentUnsafe {
        // SAFETY: the strategy is `PersistentUnsafe`, which allows this.
        let rkey = unsafe { policy.arenas.lease(domain, start, len) };
        rkey.map(|rkey| rkey.map(Handle::Leased))
    } else {
        let key = policy.arenas.key(domain, start, len);
        key.map(|key| key.map(Handle::Arena))
    };
    found.map_err(|error| refused("cannot register memory", error))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_window_is_not_freed_before_its_binding_is_done() {
        assert!(!Invalidation::After(0).is_due(0), "request 0 is not done");
        assert!(Invalidation::After(0).is_due(1));
        assert!(!Invalidation::After(7).is_due(7));
        assert!(Invalidation::Now.is_due(0), "nothing to wait for");
        assert!(!Invalidation::Request.is_due(9), "no call ends it");
    }
}
