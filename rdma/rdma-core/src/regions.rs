//! What the peer of one connection may reach, whatever the strategy.
//!
//! How far handles are unpredictable: 24 of a handle's 32 bits are the device's choice, and devices
//! count up or draw them; this side draws the other 8 for every window. That is not what protects
//! other connections: a window is bound to its queue pair, and a registration per call is made in
//! its connection's own protection domain, so that a peer that guesses a foreign handle has
//! nothing. (Kernel 6.12's rxe does not check the bounds of a window, only those of what it is a
//! window of: there each region is registered by itself, and its window is one of that. And siw
//! does not check the right to read: a peer can read what it was offered for writing.) A stale
//! handle of its own is refused because the window was freed or rebound with
//! another key, or the registration is gone. Offsets are addresses of this process: a peer learns
//! where memory that was offered to it lies, and can reach no more of it for that.

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

/// What makes a region reachable.
enum Hold {
    /// Nothing does: it is empty, or it was invalidated.
    Nothing,
    /// A window, the number of the request to the send queue that binds it once that is posted, and
    /// what it is a window of if that is not the arena's registration.
    Window(Mw, Option<u64>, Option<Mr>),
    Registration(Mr),
    /// A lasting registration, by its handle.
    Lease(u32),
    /// Something that could not be ended: the memory is never freed.
    Stuck,
}

/// A handle, the offset of its first byte, what makes the region reachable, and what stands in for
/// the region.
type Made = (u32, u64, Hold, Option<Buf>);

/// Handles that are taken of the device in a row, each of which names something already.
const HANDLES_TRIED: usize = 16;

struct Entry {
    hold: Hold,
    valid: bool,
    region: Region,
    /// What the device uses instead, when the region's memory is not the pool's.
    copy: Option<Buf>,
}

/// A window to bind before the next request goes out.
pub(super) struct Bind {
    pub(super) mw: *mut sys::ibv_mw,
    /// Its next handle.
    pub(super) rkey: u32,
    pub(super) info: sys::ibv_mw_bind_info,
}

// SAFETY: the window and the registration that it names belong to the same `Regions`, and can be
// used from any thread.
unsafe impl Send for Bind {}

/// How a handle's validity can be ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ending {
    /// It has ended already.
    Over,
    /// By a request to the send queue.
    Request,
    /// By a call, at any time.
    Now,
    /// By a call, once the given request of the send queue is done.
    After(u64),
}

impl Ending {
    /// Whether the call can be made, when `first` is the oldest request that is not done.
    pub(super) fn is_due(self, first: u64) -> bool {
        match self {
            Self::Over | Self::Now => true,
            Self::Request => false,
            Self::After(number) => number < first,
        }
    }
}

/// What all connections of a device have in common.
pub(super) struct Policy {
    pub(super) registration: Registration,
    /// Windows are ended by a work request; otherwise by freeing them.
    pub(super) invalidate_by_request: bool,
    /// Windows are of a registration of the region alone: the device does not check their bounds.
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
    spare: Vec<Mw>,
    /// To be bound, in order.
    binds: Vec<Bind>,
}

fn refused(what: &str, source: io::Error) -> DeviceError {
    let hint = super::memory::memory_hint(&source);
    DeviceError::System {
        what: format!("{what}{hint}"),
        source,
    }
}

/// First byte and length of a region, or of what stands in for it.
fn span(region: &mut Region, copy: &mut Option<Buf>) -> (*mut u8, usize) {
    match (copy, region) {
        (Some(copy), region) => (copy.as_mut_ptr(), region.len()),
        (None, Region::RemoteRead(bytes)) => (bytes.as_ptr().cast_mut(), bytes.len()),
        (None, Region::RemoteWrite(buf)) => (buf.as_mut_ptr(), buf.len()),
    }
}

/// The peer's right.
fn right(region: &Region) -> c_uint {
    match region {
        Region::RemoteRead(_) => sys::IBV_ACCESS_REMOTE_READ,
        Region::RemoteWrite(_) => sys::IBV_ACCESS_REMOTE_WRITE,
    }
}

/// A registration of its own: the right to write remotely needs the one to write locally.
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
            spare: Vec::new(),
            binds: Vec::new(),
        }
    }

    /// Registers a region. A window waits to be bound ([`Regions::waiting`]). Adds to `copied` what
    /// had to be copied.
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

    /// As `make`, with a handle that names nothing here. The device may use one again as soon as its
    /// validity has ended, when the memory that it named was not reclaimed yet.
    fn make_unique(
        &mut self,
        policy: &mut Policy,
        domain: &Domain,
        region: &mut Region,
        copied: &mut u64,
    ) -> Result<Made, DeviceError> {
        // Kept until there is another, lest the device gives them out again.
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
            // Nobody was told of it, and no request names it. What cannot be ended is let go of by
            // the owners of these objects (`objects.rs`).
            if let Hold::Window(mw, _, _) = &hold {
                self.binds.retain(|bind| bind.mw != mw.raw());
            }
            if let Hold::Lease(rkey) = hold {
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
            // No device registers nothing, and nothing need be reachable.
            let stag = loop {
                let stag = policy.keys.handle().map_err(|e| refused("no handle", e))?;
                if !self.by_stag.contains_key(&stag) {
                    break stag;
                }
            };
            return Ok((stag, 0, Hold::Nothing, None));
        }
        if policy.registration == Registration::PerCall {
            let access = rights(region);
            let (start, len) = span(region, &mut None);
            // SAFETY: the region is held here, out of everybody's reach if it can be written and
            // shared for reading otherwise, until the registration has ended (`end`, `release`);
            // if it does not end, the region is never dropped.
            let mr = unsafe { Mr::new(&domain.pd, start, len, access) };
            let mr = mr.map_err(|error| refused("cannot register memory", error))?;
            return Ok((mr.rkey(), start.addr() as u64, Hold::Registration(mr), None));
        }
        if policy.registration == Registration::Windows && policy.exact_windows {
            let (start, len) = span(region, &mut None);
            let access = rights(region) & sys::IBV_ACCESS_LOCAL_WRITE | sys::IBV_ACCESS_MW_BIND;
            // SAFETY: as above; the window gives the peer its right.
            let mr = unsafe { Mr::new(&domain.pd, start, len, access) };
            let mr = mr.map_err(|error| refused("cannot register memory", error))?;
            let (offset, raw) = (start.addr() as u64, mr.raw());
            return match self.window(policy, domain, raw, (offset, len), right(region)) {
                Ok((rkey, mw)) => Ok((rkey, offset, Hold::Window(mw, None, Some(mr)), None)),
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
                // Not the pool's memory: the peer gets memory that is.
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
            Handle::Leased(rkey) => return Ok((rkey, offset, Hold::Lease(rkey), copy)),
            Handle::Arena(key) => key,
        };
        let of = (offset, len);
        let (rkey, mw) = self.window(policy, domain, key.mr, of, right(region))?;
        Ok((rkey, offset, Hold::Window(mw, None, None), copy))
    }

    /// Has a window bound before the next request, and gives its handle.
    fn window(
        &mut self,
        policy: &mut Policy,
        domain: &Domain,
        mr: *mut sys::ibv_mr,
        (addr, len): (u64, usize),
        access: c_uint,
    ) -> Result<(u32, Mw), DeviceError> {
        let mw = match self.spare.pop() {
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

    /// Windows that wait to be bound.
    pub(super) fn waiting(&self) -> usize {
        self.binds.len()
    }

    /// Takes the first `count` windows that wait, which are to be bound by the requests from number
    /// `first` on. Only now have they numbers: one that was given up before it was bound takes none.
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
                if let Some(Hold::Window(_, posted, _)) = entry.map(|entry| &mut entry.hold) {
                    *posted = Some(*number);
                }
            })
    }

    /// How the validity of a handle can be ended; nothing when there is no such handle.
    pub(super) fn ending(&self, policy: &Policy, stag: Stag) -> Option<Ending> {
        let entry = self.by_stag.get(&stag.0)?;
        Some(match &entry.hold {
            Hold::Nothing => Ending::Over,
            _ if !entry.valid => Ending::Over,
            Hold::Stuck => Ending::Now,
            // It waits to be bound, and then never is.
            Hold::Window(_, None, _) => Ending::Now,
            Hold::Window(..) if policy.invalidate_by_request => Ending::Request,
            // A window that is bound after it was freed would fail the queue pair.
            Hold::Window(_, Some(number), _) => Ending::After(*number),
            Hold::Registration(_) | Hold::Lease(_) => Ending::Now,
        })
    }

    /// Ends a handle's validity by a call.
    ///
    /// # Errors
    /// It goes on; only the end of the connection can end it.
    pub(super) fn end(&mut self, arenas: &Arenas, domain: &Domain, stag: Stag) -> io::Result<()> {
        let Some(entry) = self.by_stag.get_mut(&stag.0) else {
            return Ok(());
        };
        // It stays stuck if what follows fails.
        match std::mem::replace(&mut entry.hold, Hold::Stuck) {
            Hold::Nothing => {}
            Hold::Stuck => return Err(io::Error::other("it could not be ended before")),
            Hold::Window(mw, _, mr) => {
                let waiting = self.binds.iter().position(|bind| bind.mw == mw.raw());
                match waiting {
                    // It was never bound.
                    Some(at) => {
                        self.binds.remove(at);
                        self.spare.push(mw);
                    }
                    None if entry.valid => {
                        if let Err(error) = mw.free() {
                            // What it is a window of cannot be deregistered either.
                            std::mem::forget(mr);
                            return Err(error);
                        }
                    }
                    None => self.spare.push(mw),
                }
                mr.map_or(Ok(()), Mr::deregister)?;
            }
            Hold::Registration(mr) => mr.deregister()?,
            Hold::Lease(rkey) => arenas.give_back(domain, rkey),
        }
        entry.hold = Hold::Nothing;
        entry.valid = false;
        Ok(())
    }

    /// The device has ended a handle's validity: by a request to the send queue, or because the
    /// peer's Send named it. False when there is no such handle.
    pub(super) fn ended(&mut self, stag: Stag) -> bool {
        let entry = self.by_stag.get_mut(&stag.0);
        entry.map(|entry| entry.valid = false).is_some()
    }

    /// Gives a region back whose handle is not valid any more.
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
            // The device may still reach the memory: nobody else ever does.
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

    /// Ends all registrations: the connection is over, and its queue pair in error. The memory can
    /// be reclaimed.
    pub(super) fn release(&mut self, arenas: &Arenas, domain: &Domain) {
        self.binds.clear();
        let stags: Vec<u32> = self.by_stag.keys().copied().collect();
        for stag in stags {
            if let Err(error) = self.end(arenas, domain, Stag(stag)) {
                tracing::error!(%error, "memory is still registered, and so never freed");
                std::mem::forget(self.by_stag.remove(&stag));
            }
        }
        for mw in self.spare.drain(..) {
            if let Err(error) = mw.free() {
                tracing::warn!(%error, "memory window not freed");
            }
        }
    }

    /// Windows and registrations that the device holds for this connection.
    pub(super) fn held(&self) -> usize {
        let all = self.by_stag.values();
        all.filter(|entry| !matches!(entry.hold, Hold::Nothing))
            .count()
            + self.spare.len()
    }
}

/// How to name memory to the peer.
enum Handle {
    Arena(Key),
    Leased(u32),
}

/// The handle of a region's memory, or of what stands in for it, if that is the pool's.
fn key_of(
    policy: &Policy,
    domain: &Domain,
    region: &mut Region,
    copy: &mut Option<Buf>,
) -> Result<Option<Handle>, DeviceError> {
    let (start, len) = span(region, copy);
    let found = if policy.registration == Registration::PersistentUnsafe {
        // SAFETY: it is `PersistentUnsafe`.
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
    fn what_the_first_request_binds_is_not_ended_before_that_is_done() {
        assert!(!Ending::After(0).is_due(0), "request 0 is not done");
        assert!(Ending::After(0).is_due(1));
        assert!(!Ending::After(7).is_due(7));
        assert!(Ending::Now.is_due(0), "nothing to wait for");
        assert!(!Ending::Request.is_due(9), "no call ends it");
    }
}
