//! Owners of a device's plain objects: protection domains, registrations, windows, completion
//! queues, shared receive queues. Each keeps the object alive from which it was made, so they can
//! be dropped in any order with one exception: an object that the device uses on behalf of another
//! one (a queue pair's completion queues and its shared receive queue, a window's registration)
//! must outlive that other one, which `conn.rs` and `shared.rs` ensure.

use std::ffi::{c_int, c_uint, c_void};
use std::io;
use std::os::fd::BorrowedFd;
use std::ptr::{self, NonNull};
use std::sync::Arc;

use super::context::{Context, errno, set_nonblocking};
use super::sys;

fn made<T>(raw: *mut T) -> io::Result<NonNull<T>> {
    NonNull::new(raw).ok_or_else(io::Error::last_os_error)
}

/// A protection domain.
pub(super) struct Pd {
    context: Arc<Context>,
    raw: NonNull<sys::ibv_pd>,
}

// SAFETY: calls on a protection domain can be made from any thread.
unsafe impl Send for Pd {}
// SAFETY: as above.
unsafe impl Sync for Pd {}

impl Pd {
    pub(super) fn new(context: &Arc<Context>) -> io::Result<Self> {
        // SAFETY: the context is open, and `context` keeps it so.
        let raw = unsafe { (context.libraries().verbs.ibv_alloc_pd)(context.raw()) };
        Ok(Self {
            context: Arc::clone(context),
            raw: made(raw)?,
        })
    }

    pub(super) fn raw(&self) -> *mut sys::ibv_pd {
        self.raw.as_ptr()
    }
}

impl Drop for Pd {
    fn drop(&mut self) {
        // SAFETY: made in `new`, and nothing made from it is left (such things hold an `Arc`) but what could
        // not be destroyed; then this fails.
        let status = unsafe { (self.context.libraries().verbs.ibv_dealloc_pd)(self.raw()) };
        if let Err(error) = self.context.destroyed(status) {
            tracing::warn!(%error, "protection domain not freed");
        }
    }
}

/// A memory registration.
pub(super) struct Mr {
    pd: Arc<Pd>,
    raw: NonNull<sys::ibv_mr>,
    given_up: bool,
}

// SAFETY: as for `Pd`. What the registration lets the device do with the memory does not depend on
// the thread that holds it.
unsafe impl Send for Mr {}

impl Mr {
    /// Registers memory.
    ///
    /// # Safety
    /// The memory must not be freed before it was deregistered. While it is registered:
    /// - with a right to write, nobody may hold a reference to memory that was announced to a peer
    ///   or named in a posted request (the registration alone does not let anybody write);
    /// - with a right to read, nobody may write to memory that was announced to a peer.
    pub(super) unsafe fn new(
        pd: &Arc<Pd>,
        start: *mut u8,
        len: usize,
        access: c_uint,
    ) -> io::Result<Self> {
        let reg = pd.context.libraries().verbs.ibv_reg_mr;
        // SAFETY: the domain is valid; the caller promises the rest.
        let raw = unsafe { reg(pd.raw(), start.cast::<c_void>(), len, access as c_int) };
        Ok(Self {
            pd: Arc::clone(pd),
            raw: made(raw)?,
            given_up: false,
        })
    }

    pub(super) fn raw(&self) -> *mut sys::ibv_mr {
        self.raw.as_ptr()
    }

    pub(super) fn lkey(&self) -> u32 {
        // SAFETY: valid until `deregister`.
        unsafe { self.raw.as_ref().lkey }
    }

    pub(super) fn rkey(&self) -> u32 {
        // SAFETY: as above.
        unsafe { self.raw.as_ref().rkey }
    }

    /// Ends the registration, after which the device cannot access the memory through it.
    ///
    /// # Errors
    /// The error of the system if the registration remains. The memory must then never be freed.
    pub(super) fn deregister(mut self) -> io::Result<()> {
        self.give_up()
    }

    fn give_up(&mut self) -> io::Result<()> {
        if std::mem::replace(&mut self.given_up, true) {
            return Ok(());
        }
        // SAFETY: made in `new`, and given up here, once.
        let status = unsafe { (self.pd.context.libraries().verbs.ibv_dereg_mr)(self.raw()) };
        self.pd.context.destroyed(status)
    }
}

impl Drop for Mr {
    fn drop(&mut self) {
        if let Err(error) = self.give_up() {
            // The memory cannot be kept from being freed here, and the device may still write it.
            tracing::error!(%error, "memory is still registered, and about to be freed");
            std::process::abort();
        }
    }
}

/// A memory window of type 2.
pub(super) struct Mw {
    pd: Arc<Pd>,
    raw: NonNull<sys::ibv_mw>,
    given_up: bool,
}

// SAFETY: as for `Mr`.
unsafe impl Send for Mw {}

impl Mw {
    pub(super) fn new(pd: &Arc<Pd>) -> io::Result<Self> {
        let alloc = pd.context.ops().alloc_mw.ok_or_else(unsupported)?;
        // SAFETY: the domain is valid.
        let raw = unsafe { alloc(pd.raw(), sys::IBV_MW_TYPE_2) };
        Ok(Self {
            pd: Arc::clone(pd),
            raw: made(raw)?,
            given_up: false,
        })
    }

    pub(super) fn raw(&self) -> *mut sys::ibv_mw {
        self.raw.as_ptr()
    }

    pub(super) fn rkey(&self) -> u32 {
        // SAFETY: valid until dropped.
        unsafe { self.raw.as_ref().rkey }
    }

    /// Frees the window, bound or not, after which the peer cannot use it.
    ///
    /// # Errors
    /// The error of the system if the window remains.
    pub(super) fn free(mut self) -> io::Result<()> {
        self.give_up()
    }

    fn give_up(&mut self) -> io::Result<()> {
        if std::mem::replace(&mut self.given_up, true) {
            return Ok(());
        }
        let dealloc = self.pd.context.ops().dealloc_mw.ok_or_else(unsupported)?;
        // SAFETY: made in `new`, and given up here, once.
        self.pd.context.destroyed(unsafe { dealloc(self.raw()) })
    }
}

impl Drop for Mw {
    fn drop(&mut self) {
        if let Err(error) = self.give_up() {
            tracing::warn!(%error, "memory window not freed");
        }
    }
}

pub(super) fn unsupported() -> io::Error {
    io::Error::new(io::ErrorKind::Unsupported, "the provider lacks it")
}

/// A completion channel: a descriptor that signals events of armed completion queues.
pub(super) struct Channel {
    context: Arc<Context>,
    raw: NonNull<sys::ibv_comp_channel>,
    /// The completion vector, and with it the processor, that gets the interrupts of the queues.
    vector: c_int,
}

// SAFETY: calls on a channel can be made from any thread.
unsafe impl Send for Channel {}
// SAFETY: as above.
unsafe impl Sync for Channel {}

impl Channel {
    /// Creates a channel with a non-blocking descriptor. Channels with consecutive indices use
    /// different completion vectors, as far as the device has them.
    pub(super) fn new(context: &Arc<Context>, index: usize) -> io::Result<Self> {
        let create = context.libraries().verbs.ibv_create_comp_channel;
        // SAFETY: the context is open, and `context` keeps it so.
        let raw = made(unsafe { create(context.raw()) })?;
        let channel = Self {
            context: Arc::clone(context),
            raw,
            vector: (index % context.completion_vectors()) as c_int,
        };
        set_nonblocking(channel.fd())?;
        Ok(channel)
    }

    pub(super) fn fd(&self) -> BorrowedFd<'_> {
        // SAFETY: valid until dropped, and the descriptor is open as long.
        unsafe { BorrowedFd::borrow_raw(self.raw.as_ref().fd) }
    }

    /// Returns the context of the next queue with an event, if there is one. The event must be
    /// acknowledged.
    pub(super) fn next(&self) -> Option<usize> {
        let (mut cq, mut mark) = (ptr::null_mut(), ptr::null_mut());
        let get = self.context.libraries().verbs.ibv_get_cq_event;
        // SAFETY: the channel is valid and there is room for both answers.
        let status = unsafe { get(self.raw.as_ptr(), &mut cq, &mut mark) };
        (status == 0).then(|| mark.addr())
    }
}

impl Drop for Channel {
    fn drop(&mut self) {
        // SAFETY: made in `new`; its queues, which hold an `Arc` of it, are gone, or else this fails.
        unsafe { (self.context.libraries().verbs.ibv_destroy_comp_channel)(self.raw.as_ptr()) };
    }
}

/// Number of a queue's events to acknowledge at once, because each acknowledgement takes a lock.
const ACK_EVERY: c_uint = 64;

/// A completion queue.
pub(super) struct Cq {
    channel: Arc<Channel>,
    raw: NonNull<sys::ibv_cq>,
    unacknowledged: c_uint,
    /// Whether the next completion generates an event.
    armed: bool,
    /// Whether there were completions since the queue was armed, so that there may be an event
    /// already.
    fired: bool,
    /// The error of a failed attempt to arm the queue, until it is reported.
    broken: Option<io::Error>,
}

// SAFETY: calls on a queue can be made from any thread.
unsafe impl Send for Cq {}

impl Cq {
    /// Creates a queue with room for `entries`. [`Channel::next`] returns `mark` when the queue has
    /// an event.
    pub(super) fn new(channel: &Arc<Channel>, entries: u32, mark: usize) -> io::Result<Self> {
        let context = &channel.context;
        let entries = c_int::try_from(entries).unwrap_or(c_int::MAX);
        let mark = ptr::without_provenance_mut(mark);
        let create = context.libraries().verbs.ibv_create_cq;
        let (to, vector) = (channel.raw.as_ptr(), channel.vector);
        // SAFETY: context and channel are valid, and kept so by `channel`. The mark is only ever
        // handed back.
        let raw = unsafe { create(context.raw(), entries, mark, to, vector) };
        Ok(Self {
            channel: Arc::clone(channel),
            raw: made(raw)?,
            unacknowledged: 0,
            armed: false,
            fired: false,
            broken: None,
        })
    }

    pub(super) fn raw(&self) -> *mut sys::ibv_cq {
        self.raw.as_ptr()
    }

    pub(super) fn is_armed(&self) -> bool {
        self.armed
    }

    /// Returns whether the queue is armed and the completion channel may hold an event that has not
    /// been read.
    pub(super) fn may_have_fired(&self) -> bool {
        self.armed && self.fired
    }

    /// Polls completions, as many as fit `room`.
    ///
    /// # Errors
    /// The error of the library if the queue can no longer be used, which may have been noticed
    /// when it was armed.
    pub(super) fn poll<'a>(
        &mut self,
        room: &'a mut [sys::ibv_wc],
    ) -> io::Result<&'a [sys::ibv_wc]> {
        if let Some(error) = self.broken.take() {
            return Err(error);
        }
        let poll = self.channel.context.ops().poll_cq.ok_or_else(unsupported)?;
        let most = c_int::try_from(room.len()).unwrap_or(c_int::MAX);
        // SAFETY: the queue is valid, and there is room for `most` completions.
        let count = unsafe { poll(self.raw(), most, room.as_mut_ptr()) };
        let Ok(count) = usize::try_from(count) else {
            return Err(io::Error::from_raw_os_error(count.saturating_abs()));
        };
        self.fired |= count > 0;
        Ok(&room[..count.min(room.len())])
    }

    /// Requests an event for the next completion. Earlier completions generate none, so the caller
    /// must poll once more, which also reports a failure of this call.
    pub(super) fn arm(&mut self) {
        let notify = self.channel.context.ops().req_notify_cq;
        let done = notify.ok_or_else(unsupported).and_then(|notify| {
            // SAFETY: the queue is valid.
            errno(unsafe { notify(self.raw(), 0) })
        });
        match done {
            Ok(()) => (self.armed, self.fired) = (true, false),
            Err(error) => self.broken = Some(error),
        }
    }

    /// Records that an event of this queue was read from the completion channel.
    pub(super) fn told(&mut self) {
        self.armed = false;
        self.unacknowledged += 1;
        if self.unacknowledged >= ACK_EVERY {
            self.acknowledge();
        }
    }

    fn acknowledge(&mut self) {
        let ack = self.channel.context.libraries().verbs.ibv_ack_cq_events;
        // SAFETY: the queue is valid; so many of its events were taken.
        unsafe { ack(self.raw(), self.unacknowledged) };
        self.unacknowledged = 0;
    }
}

impl Drop for Cq {
    fn drop(&mut self) {
        // Destroying a queue waits for its acknowledgements. An event that is still in the channel
        // is discarded.
        self.acknowledge();
        let verbs = &self.channel.context.libraries().verbs;
        // SAFETY: made in `new`; the queue pair that used it is gone (`conn.rs`), or else this fails.
        let status = unsafe { (verbs.ibv_destroy_cq)(self.raw()) };
        if let Err(error) = self.channel.context.destroyed(status) {
            tracing::warn!(%error, "completion queue not destroyed");
        }
    }
}

/// A shared receive queue.
pub(super) struct Srq {
    pd: Arc<Pd>,
    raw: NonNull<sys::ibv_srq>,
    given_up: bool,
}

// SAFETY: as for `Cq`.
unsafe impl Send for Srq {}

impl Srq {
    /// Creates a queue for `receives` of at most `pieces` buffers each. Its asynchronous events
    /// carry `mark`.
    pub(super) fn new(pd: &Arc<Pd>, receives: u32, pieces: u32, mark: usize) -> io::Result<Self> {
        let mut init = sys::ibv_srq_init_attr {
            srq_context: ptr::without_provenance_mut(mark),
            attr: sys::ibv_srq_attr {
                max_wr: receives,
                max_sge: pieces,
                srq_limit: 0,
            },
        };
        // SAFETY: the domain is valid, and kept so by `pd`. The mark is only ever handed back.
        let raw = unsafe { (pd.context.libraries().verbs.ibv_create_srq)(pd.raw(), &mut init) };
        Ok(Self {
            pd: Arc::clone(pd),
            raw: made(raw)?,
            given_up: false,
        })
    }

    pub(super) fn raw(&self) -> *mut sys::ibv_srq {
        self.raw.as_ptr()
    }

    /// Posts a receive.
    ///
    /// # Safety
    /// The memory that the request names must stay valid and out of everybody's reach until the
    /// receive has completed, or until neither this queue nor the queue pair that has taken the
    /// receive from it exists any more.
    ///
    /// # Errors
    /// The error of the device, which may have accepted the receive nevertheless.
    pub(super) unsafe fn post(&self, request: &mut sys::ibv_recv_wr) -> io::Result<()> {
        let post = self.pd.context.ops().post_srq_recv;
        let post = post.ok_or_else(unsupported)?;
        let mut bad = ptr::null_mut();
        // SAFETY: the queue is valid, and the request is until the call returns; the caller
        // promises the rest.
        errno(unsafe { post(self.raw(), request, &mut bad) })
    }

    /// Requests an asynchronous event for the moment when fewer than `below` receives are left,
    /// once; zero cancels that.
    pub(super) fn set_limit(&self, below: u32) -> io::Result<()> {
        let mut attr = sys::ibv_srq_attr {
            srq_limit: below,
            ..sys::ibv_srq_attr::default()
        };
        let modify = self.pd.context.libraries().verbs.ibv_modify_srq;
        // SAFETY: the queue is valid; the mask selects only the limit.
        errno(unsafe { modify(self.raw(), &mut attr, sys::IBV_SRQ_LIMIT) })
    }

    /// Destroys the queue, after which the device takes no receive from it.
    ///
    /// # Errors
    /// The error of the system if the queue remains. The memory of its receives must then never be
    /// freed.
    pub(super) fn destroy(mut self) -> io::Result<()> {
        self.give_up()
    }

    fn give_up(&mut self) -> io::Result<()> {
        if std::mem::replace(&mut self.given_up, true) {
            return Ok(());
        }
        let destroy = self.pd.context.libraries().verbs.ibv_destroy_srq;
        // SAFETY: made in `new`, and given up here, once; the queue pairs that used it are gone
        // (`shared.rs`).
        self.pd.context.destroyed(unsafe { destroy(self.raw()) })
    }
}

impl Drop for Srq {
    fn drop(&mut self) {
        if let Err(error) = self.give_up() {
            tracing::warn!(%error, "shared receive queue not destroyed");
        }
    }
}
