//! Memory that devices and programs share.
//!
//! This is the only module of the crate with `unsafe` code. Its soundness rests on two facts: a
//! [`Block`] is a heap allocation or a part of one, which no other block overlaps; the allocation was
//! zeroed when it was made, and is divided anew or freed only when none of its blocks is in use. And
//! every [`Buf`] owns a range of a block that no other `Buf` overlaps, which only its owner reads or
//! writes.
//!
//! Memory is passed by value: posting or registering a [`Buf`] moves it into the device, and a
//! completion or [`crate::Device::reclaim`] moves it back. Aliasing between program and device
//! therefore cannot be expressed, and the iwarp device needs no `unsafe` code. Read-only sharing is
//! `bytes::Bytes` ([`Buf::freeze`]), which returns the memory to its pool when the last slice is
//! dropped. A pool can have a registrar that is told of each large piece of memory when it comes
//! from the system and before it goes back, so that a real device registers a few large pieces
//! instead of every buffer.
#![allow(unsafe_code)]

use std::alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error};
use std::fmt;
use std::mem;
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;
use std::slice;
use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;

use rpcrdma_host::{Account, PER_CALL};

/// Alignment in bytes of every buffer from a pool: a page.
pub const ALIGNMENT: usize = 4096;
/// Length in bytes of the smallest block.
const MIN_BLOCK: usize = ALIGNMENT;
/// Number of size classes: blocks of 4 KiB to 4 MiB are kept for reuse, in powers of two. Longer
/// blocks are not.
const CLASSES: usize = 11;
/// Maximum number of free bytes of one size class that are kept for reuse. [`Pool::keeping`] also
/// limits the sum over all classes.
const KEEP_PER_CLASS: usize = 64 << 20;
/// A pool with a [`Registrar`] takes memory for smaller blocks from the system in arenas of this
/// many bytes, so that one registration covers many blocks. An arena of which no block is in use is
/// divided into blocks of another size, or returned to the system, when the pool has obtained as much
/// as its limit or the registrar refuses more.
const ARENA: usize = 2 << 20;

/// The pool's limit is reached, or a pool cannot provide a buffer of that length.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("no buffer of {wanted} bytes: {in_use} of {limit} bytes are in use")]
pub struct PoolExhausted {
    /// Length requested, in bytes.
    pub wanted: usize,
    /// Bytes in use at that time.
    pub in_use: usize,
    /// The pool's limit in bytes.
    pub limit: usize,
}

/// The part of a device that must know the memory of its pool, for example to register it.
pub trait Registrar: Send + Sync {
    /// Returns whether the pool may obtain `len` bytes from the system now. False if they would be refused:
    /// to obtain and zero them only for that would cost more than the refusal.
    fn accepts(&self, len: usize) -> bool {
        let _ = len;
        true
    }

    /// Reports that the pool obtained `len` bytes from the system. Returns false if the pool must
    /// not use them.
    fn obtained(&self, start: NonNull<u8>, len: usize) -> bool;

    /// Reports that the pool returns this memory to the system, always as a whole. Returns false if
    /// the device may still use it; the memory is then never freed.
    fn released(&self, start: NonNull<u8>) -> bool;
}

/// A page-aligned heap allocation, or a page-aligned part of an arena.
struct Block {
    start: NonNull<u8>,
    size: usize,
    home: Arc<Shared>,
    /// The account to which the block is charged.
    account: Option<Account>,
}

// SAFETY: a block is plain memory; access to it is governed by `Buf`, whose ranges are disjoint.
unsafe impl Send for Block {}
// SAFETY: as above: `&Block` gives no access to the bytes.
unsafe impl Sync for Block {}

impl Drop for Block {
    fn drop(&mut self) {
        self.home.take_back(self.start, self.size);
        if let Some(account) = &self.account {
            account.release(self.size);
        }
    }
}

/// The address of a free block or of an arena.
struct Free(NonNull<u8>);

// SAFETY: nobody accesses the memory of a free block, or of an idle arena, by its address as long as it is
// in the lists of `State`, which are behind a lock.
unsafe impl Send for Free {}

struct State {
    free: [Vec<Free>; CLASSES],
    /// Blocks from an earlier use ([`Pool::renewed`]), which must be zeroed before they are used.
    stale: [Vec<Free>; CLASSES],
    /// Arenas obtained from the system, which are divided into blocks.
    arenas: Vec<Free>,
    /// Arenas that are not divided at present. They are in `arenas` as well.
    idle: Vec<Free>,
    /// Number of bytes obtained from the system from which on it is worth while to look for free memory
    /// again, after a search that found none.
    look_at: usize,
    /// Whether a block was returned to the pool since a search found no free memory. Without one, another
    /// search finds none either.
    returned: bool,
    /// Number of bytes obtained from the system for blocks outside arenas, in use or free.
    whole: usize,
    in_use: usize,
    /// Number of free bytes in `free` that count against `Shared::keep`. Blocks inside arenas do
    /// not count.
    kept: usize,
}

/// The result of a search for memory that is obtained and not in use.
enum Found {
    /// An arena of which no block is in use.
    Arena(NonNull<u8>),
    /// Other memory, which was returned to the system so that new memory can be obtained.
    Room,
    Nothing,
}

impl State {
    /// Takes the blocks of arenas of which no block is in use out of `free`, and adds these arenas to `idle`.
    /// For a pool with a registrar.
    fn gather_idle(&mut self) {
        let address = |block: &Free| block.0.as_ptr().addr();
        let mut starts: Vec<usize> = self.arenas.iter().map(address).collect();
        starts.sort_unstable();
        // Every block of these sizes lies in an arena.
        let arena_of = |block: &Free| {
            let behind = starts.partition_point(|&start| start <= address(block));
            behind.saturating_sub(1)
        };
        let mut is_idle = vec![false; starts.len()];
        for (class, free) in self.free.iter_mut().enumerate() {
            let blocks = ARENA / (MIN_BLOCK << class);
            if blocks < 2 {
                break;
            }
            let mut counts = vec![0; starts.len()];
            for block in &*free {
                counts[arena_of(block)] += 1;
            }
            free.retain(|block| counts[arena_of(block)] < blocks);
            for (idle, count) in is_idle.iter_mut().zip(counts) {
                *idle |= count == blocks;
            }
        }
        for arena in &self.arenas {
            if is_idle[arena_of(arena)] {
                self.idle.push(Free(arena.0));
            }
        }
    }
}

struct Shared {
    limit: usize,
    /// Maximum number of free bytes of all classes together that are kept for reuse, without blocks
    /// inside arenas.
    keep: usize,
    state: Mutex<State>,
    registrar: Option<Arc<dyn Registrar>>,
}

/// Returns free memory of the heap to the system, where the C library can.
fn trim_heap() {
    #[cfg(all(target_os = "linux", target_env = "gnu", not(miri)))]
    {
        unsafe extern "C" {
            /// malloc_trim(3): `pad` bytes are kept at the top of the heap.
            fn malloc_trim(pad: usize) -> std::ffi::c_int;
        }
        // SAFETY: malloc_trim only returns pages to the system that no allocation uses, and may be
        // called by any thread at any time.
        unsafe { malloc_trim(0) };
    }
}

fn layout(size: usize) -> Layout {
    Layout::from_size_align(size, MIN_BLOCK).expect("block sizes are far below isize::MAX")
}

fn class(size: usize) -> Option<usize> {
    let class = (size.trailing_zeros() - MIN_BLOCK.trailing_zeros()) as usize;
    (size.is_power_of_two() && class < CLASSES).then_some(class)
}

impl Shared {
    fn state(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn take_back(&self, start: NonNull<u8>, size: usize) {
        let mut state = self.state();
        state.in_use -= size;
        state.returned = true;
        if let Some(class) = class(size) {
            let parted = self.is_parted(size);
            let few = (state.free[class].len() + 1) * size <= KEEP_PER_CLASS.max(size);
            if parted || (few && state.kept + size <= self.keep) {
                state.kept += if parted { 0 } else { size };
                state.free[class].push(Free(start));
                return;
            }
        }
        state.whole -= size;
        drop(state);
        if self.may_free(start) {
            // SAFETY: `start` came from `alloc_zeroed` with this layout, it is not a part of an
            // arena, and the block that had it is being dropped, so nothing refers to it.
            unsafe { dealloc(start.as_ptr(), layout(size)) };
        }
    }

    /// Returns whether blocks of this size lie inside arenas.
    fn is_parted(&self, size: usize) -> bool {
        self.registrar.is_some() && size < ARENA && size.is_power_of_two()
    }

    fn may_free(&self, start: NonNull<u8>) -> bool {
        let registrar = self.registrar.as_ref();
        registrar.is_none_or(|registrar| registrar.released(start))
    }

    /// Obtains a block from the system. Returns `None` if the registrar refuses the memory.
    #[cold]
    fn obtain(&self, size: usize) -> Option<NonNull<u8>> {
        let stale = class(size).and_then(|class| self.state().stale[class].pop());
        if let Some(Free(start)) = stale {
            // SAFETY: the list held a block of its class, `size` bytes long, that nothing else
            // refers to.
            unsafe { start.write_bytes(0, size) };
            return Some(start);
        }
        let parted = self.is_parted(size);
        let whole = if parted { ARENA } else { size };
        let start = match self.find_free(whole, parted, false) {
            Found::Arena(start) => start,
            Found::Room | Found::Nothing => match self.obtain_new(whole, parted) {
                Some(start) => start,
                None => match self.find_free(whole, parted, true) {
                    Found::Arena(start) => start,
                    Found::Room => self.obtain_new(whole, parted)?,
                    Found::Nothing => return None,
                },
            },
        };
        if parted && let Some(class) = class(size) {
            // SAFETY: offsets below `whole` are within the allocation.
            let part = |offset| Free(unsafe { start.add(offset) });
            let parts = (size..whole).step_by(size).map(part);
            self.state().free[class].extend(parts);
        }
        Some(start)
    }

    /// Obtains an arena or another block from the system. Returns `None` if the registrar refuses it.
    fn obtain_new(&self, len: usize, arena: bool) -> Option<NonNull<u8>> {
        let registrar = self.registrar.as_ref();
        if registrar.is_some_and(|registrar| !registrar.accepts(len)) {
            return None;
        }
        // SAFETY: blocks and arenas have at least `MIN_BLOCK` bytes, so the layout's size is not zero.
        let start = unsafe { alloc_zeroed(layout(len)) };
        let start = NonNull::new(start).unwrap_or_else(|| handle_alloc_error(layout(len)));
        if let Some(registrar) = &self.registrar
            && !registrar.obtained(start, len)
        {
            // SAFETY: it was allocated above with this layout, and nothing refers to it.
            unsafe { dealloc(start.as_ptr(), layout(len)) };
            return None;
        }
        let mut state = self.state();
        match arena {
            true => state.arenas.push(Free(start)),
            false => state.whole += len,
        }
        Some(start)
    }

    /// Looks for registered memory that is not in use, if with `len` further bytes the pool would have
    /// obtained more than its limit, or if these were refused. Unless it finds an idle arena and one is
    /// wanted, returns what is free to the system, so that other memory can be registered.
    fn find_free(&self, len: usize, wanted: bool, refused: bool) -> Found {
        if self.registrar.is_none() {
            return Found::Nothing;
        }
        let mut state = self.state();
        if wanted && let Some(Free(start)) = state.idle.pop() {
            return Found::Arena(start);
        }
        let obtained = state.whole + state.arenas.len() * ARENA;
        let beyond = obtained.saturating_add(len) > self.limit && obtained >= state.look_at;
        // Those who wait for memory try again every millisecond, and the free lists of a large pool are
        // long, so they are not searched each time.
        if !state.returned || !refused && !beyond {
            return Found::Nothing;
        }
        state.gather_idle();
        state.look_at = 0;
        if wanted && let Some(Free(start)) = state.idle.pop() {
            return Found::Arena(start);
        }
        let freed = self.take_free(&mut state);
        if freed.is_empty() {
            state.look_at = obtained + obtained / 8 + 1;
            state.returned = false;
            return Found::Nothing;
        }
        drop(state);
        self.give_back(freed);
        Found::Room
    }

    /// Takes the free memory that can be returned to the system out of the lists, with the length of each piece:
    /// blocks outside arenas, and idle arenas.
    fn take_free(&self, state: &mut State) -> Vec<(Free, usize)> {
        let mut freed = Vec::new();
        for class in 0..CLASSES {
            let size = MIN_BLOCK << class;
            if !self.is_parted(size) {
                let blocks = state.free[class].drain(..);
                freed.extend(blocks.map(|block| (block, size)));
            }
        }
        let bytes: usize = freed.iter().map(|(_, size)| size).sum();
        state.kept -= bytes;
        state.whole -= bytes;
        let mut idle = mem::take(&mut state.idle);
        idle.sort_unstable_by_key(|arena| arena.0);
        let is_idle = |arena: &Free| idle.binary_search_by_key(&arena.0, |one| one.0).is_ok();
        state.arenas.retain(|arena| !is_idle(arena));
        freed.extend(idle.into_iter().map(|arena| (arena, ARENA)));
        freed
    }

    /// Returns the memory that [`Shared::take_free`] took out of the lists to the system.
    fn give_back(&self, freed: Vec<(Free, usize)>) {
        for (Free(start), len) in freed {
            if self.may_free(start) {
                // SAFETY: blocks outside arenas, and arenas, come from `alloc_zeroed` with the layout of
                // their length. The lists, which had the only reference to this one, have given it up; of
                // an idle arena, no block is in use or in a list.
                unsafe { dealloc(start.as_ptr(), layout(len)) };
            }
        }
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        let state = self.state.get_mut().unwrap_or_else(PoisonError::into_inner);
        let (free, arenas) = (mem::take(&mut state.free), mem::take(&mut state.arenas));
        let stale = mem::take(&mut state.stale);
        for (class, free) in free
            .into_iter()
            .enumerate()
            .chain(stale.into_iter().enumerate())
        {
            let size = MIN_BLOCK << class;
            for block in free {
                if !self.is_parted(size) && self.may_free(block.0) {
                    // SAFETY: the free list holds addresses from `alloc_zeroed` with the layout of
                    // their class, unless they are parts of arenas, and has given up this one.
                    unsafe { dealloc(block.0.as_ptr(), layout(size)) };
                }
            }
        }
        for arena in arenas {
            if self.may_free(arena.0) {
                // SAFETY: arenas come from `alloc_zeroed` with this layout. All blocks that are
                // parts of one are gone: each that was handed out had an `Arc` of this, and the
                // free lists, which had the others, are gone.
                unsafe { dealloc(arena.0.as_ptr(), layout(ARENA)) };
            }
        }
    }
}

/// A pool of buffers, to which they return when they are dropped on any thread. Clones are handles
/// to the same pool.
#[derive(Clone)]
pub struct Pool {
    shared: Arc<Shared>,
    /// The account to which buffers are charged.
    account: Option<Account>,
}

impl Pool {
    /// Creates a pool of which at most `limit` bytes are in use at a time.
    #[must_use]
    pub fn new(limit: usize) -> Self {
        Self::of(limit, usize::MAX, None)
    }

    /// Creates a pool like [`Pool::new`] that keeps at most `keep` free bytes for reuse.
    #[must_use]
    pub fn keeping(limit: usize, keep: usize) -> Self {
        Self::of(limit, keep, None)
    }

    /// Creates a pool that reports its memory to a device.
    #[must_use]
    pub fn with_registrar(limit: usize, registrar: Arc<dyn Registrar>) -> Self {
        Self::of(limit, usize::MAX, Some(registrar))
    }

    /// Returns a handle to the same pool that charges its buffers to `account`.
    #[must_use]
    pub fn charged_to(&self, account: &Account) -> Self {
        Self {
            shared: Arc::clone(&self.shared),
            account: Some(account.clone()),
        }
    }

    /// Returns the account to which buffers are charged.
    #[must_use]
    pub fn account(&self) -> Option<&Account> {
        self.account.as_ref()
    }

    /// Returns the maximum length in bytes of a result of the call being executed: the reserve for
    /// a call ([`PER_CALL`]), or more if the account has room. Unlimited without an account.
    #[must_use]
    pub fn room(&self) -> usize {
        let account = self.account.as_ref();
        account.map_or(usize::MAX, |account| account.room().max(PER_CALL))
    }

    /// Returns the part of `len` for which there is room ([`Pool::room`]), taking into account the
    /// size of its block.
    #[must_use]
    pub fn room_for(&self, len: usize) -> usize {
        let room = self.room();
        match Self::block_size(len) <= room {
            true => len,
            // Blocks are powers of two, except for very long buffers, which are rare.
            false => len.min(1 << room.ilog2()),
        }
    }

    fn of(limit: usize, keep: usize, registrar: Option<Arc<dyn Registrar>>) -> Self {
        let state = State {
            free: [const { Vec::new() }; CLASSES],
            stale: [const { Vec::new() }; CLASSES],
            arenas: Vec::new(),
            idle: Vec::new(),
            look_at: 0,
            returned: false,
            whole: 0,
            in_use: 0,
            kept: 0,
        };
        Self {
            shared: Arc::new(Shared {
                limit,
                keep,
                state: Mutex::new(state),
                registrar,
            }),
            account: None,
        }
    }

    /// Returns whether the pool's memory is registered with a device that must copy any other
    /// memory before it can send it.
    #[must_use]
    pub fn is_registered(&self) -> bool {
        self.shared.registrar.is_some()
    }

    /// Returns a pool that behaves like a new one, with zeroed buffers, but reuses the memory of
    /// this one. Useful for a caller that needs many pools in succession and would otherwise make
    /// the system clear pages each time. Returns `None` if buffers or other handles of this pool
    /// are left, or if its memory is registered with a device.
    #[must_use]
    pub fn renewed(mut self, limit: usize) -> Option<Self> {
        let shared = Arc::get_mut(&mut self.shared)?;
        if shared.registrar.is_some() {
            return None;
        }
        shared.limit = limit;
        let state = shared
            .state
            .get_mut()
            .unwrap_or_else(PoisonError::into_inner);
        for (free, stale) in state.free.iter_mut().zip(&mut state.stale) {
            stale.append(free);
        }
        state.kept = 0;
        Some(self)
    }

    /// Returns the free memory that is kept for reuse to the system, and free memory of the heap. Arenas
    /// of which a block is in use stay. This takes milliseconds; it is for the time when much less is
    /// needed than before.
    pub fn give_back(&self) {
        let mut state = self.shared.state();
        if self.shared.registrar.is_some() {
            state.gather_idle();
            state.look_at = 0;
        }
        let freed = self.shared.take_free(&mut state);
        drop(state);
        self.shared.give_back(freed);
        trim_heap();
    }

    /// Copies pieces, one after the other, into a new buffer.
    ///
    /// # Errors
    /// [`PoolExhausted`] as for [`Pool::alloc`].
    pub fn concat(&self, pieces: &[Bytes]) -> Result<Buf, PoolExhausted> {
        let mut buf = self.alloc(pieces.iter().map(Bytes::len).sum())?;
        let mut at = 0;
        for piece in pieces {
            buf[at..at + piece.len()].copy_from_slice(piece);
            at += piece.len();
        }
        Ok(buf)
    }

    /// Returns a buffer of `len` bytes that begins at a multiple of [`ALIGNMENT`]. Its content is
    /// unspecified (zeroes, or what an earlier user left).
    ///
    /// # Errors
    /// [`PoolExhausted`] if the pool's limit would be exceeded, or if the pool's device cannot
    /// register more memory.
    pub fn alloc(&self, len: usize) -> Result<Buf, PoolExhausted> {
        let size = Self::block_size(len);
        let mut state = self.shared.state();
        if size > self.shared.limit - state.in_use {
            let (in_use, limit) = (state.in_use, self.shared.limit);
            return Err(PoolExhausted {
                wanted: len,
                in_use,
                limit,
            });
        }
        state.in_use += size;
        let reused = class(size).and_then(|class| state.free[class].pop());
        if reused.is_some() && !self.shared.is_parted(size) {
            state.kept -= size;
        }
        drop(state);
        let start = match reused {
            Some(Free(start)) => start,
            None => match self.shared.obtain(size) {
                Some(start) => start,
                None => {
                    let mut state = self.shared.state();
                    state.in_use -= size;
                    return Err(PoolExhausted {
                        wanted: len,
                        in_use: state.in_use,
                        limit: self.shared.limit,
                    });
                }
            },
        };
        if let Some(account) = &self.account {
            account.charge(size);
        }
        let block = Arc::new(Block {
            start,
            size,
            home: Arc::clone(&self.shared),
            account: self.account.clone(),
        });
        Ok(Buf {
            block,
            offset: 0,
            len,
        })
    }

    /// Returns the size in bytes of the block for a buffer of `len` bytes.
    #[must_use]
    pub const fn block_size(len: usize) -> usize {
        if len <= MIN_BLOCK {
            MIN_BLOCK
        } else if len <= MIN_BLOCK << (CLASSES - 1) {
            len.next_power_of_two()
        } else {
            match len.checked_next_multiple_of(MIN_BLOCK) {
                Some(size) => size,
                None => usize::MAX,
            }
        }
    }

    /// Returns the number of bytes in use, rounded up to block sizes.
    #[must_use]
    pub fn in_use(&self) -> usize {
        self.shared.state().in_use
    }

    /// Returns the limit in bytes.
    #[must_use]
    pub fn limit(&self) -> usize {
        self.shared.limit
    }
}

impl fmt::Debug for Pool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pool")
            .field("in_use", &self.in_use())
            .field("limit", &self.limit())
            .finish()
    }
}

/// A buffer from a [`Pool`]: a range of memory that only this value can read and write. Returns to
/// its pool when dropped.
pub struct Buf {
    block: Arc<Block>,
    offset: usize,
    len: usize,
}

impl Buf {
    /// Splits the buffer: this value keeps the first `at` bytes, and the rest is returned.
    ///
    /// # Panics
    /// Panics if `at` is greater than the length.
    #[must_use]
    pub fn split_off(&mut self, at: usize) -> Self {
        assert!(
            at <= self.len,
            "split at {at} of a {} byte buffer",
            self.len
        );
        let rest = Self {
            block: Arc::clone(&self.block),
            offset: self.offset + at,
            len: self.len - at,
        };
        self.len = at;
        rest
    }

    /// Joins two buffers that [`Buf::split_off`] separated.
    ///
    /// # Errors
    /// Returns `next` if it does not directly follow this buffer.
    pub fn unsplit(&mut self, next: Self) -> Result<(), Self> {
        if !Arc::ptr_eq(&self.block, &next.block) || self.offset + self.len != next.offset {
            return Err(next);
        }
        self.len += next.len;
        Ok(())
    }

    /// Shortens the buffer to its first `len` bytes. Has no effect if it is not longer than that.
    pub fn truncate(&mut self, len: usize) {
        self.len = self.len.min(len);
    }

    /// Undoes [`Buf::truncate`]: makes the buffer `len` bytes long. Returns false without effect if
    /// the buffer is longer than that, if another buffer uses part of the same block, or if the
    /// block is too small.
    #[must_use]
    pub fn regrow(&mut self, len: usize) -> bool {
        // No other buffer refers to the block, so no other buffer can have the range behind this
        // one.
        let alone = Arc::get_mut(&mut self.block).is_some();
        let fits = (self.len..=self.block.size - self.offset).contains(&len);
        if alone && fits {
            self.len = len;
        }
        alone && fits
    }

    /// Returns the size in bytes of the block that the buffer keeps in use, whatever its own length.
    #[must_use]
    pub fn block_size(&self) -> usize {
        self.block.size
    }

    /// Makes the buffer read-only and shareable, without a copy. The memory returns to the pool
    /// when the last slice is dropped.
    #[must_use]
    pub fn freeze(self) -> Bytes {
        Bytes::from_owner(self)
    }
}

impl Deref for Buf {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // SAFETY: `offset + len` is within the block (`alloc`, `split_off`, `unsplit` and `regrow`
        // keep it so), the block was zeroed when made so every byte is initialised, it lives while
        // `self.block` does, and no other `Buf` has this range, so nobody writes to it meanwhile.
        unsafe { slice::from_raw_parts(self.block.start.as_ptr().add(self.offset), self.len) }
    }
}

impl DerefMut for Buf {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as in `deref`; and `&mut self` is the only way to this range.
        unsafe { slice::from_raw_parts_mut(self.block.start.as_ptr().add(self.offset), self.len) }
    }
}

impl AsRef<[u8]> for Buf {
    fn as_ref(&self) -> &[u8] {
        self
    }
}

impl fmt::Debug for Buf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Buf")
            .field("len", &self.len)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
