//! Open devices and their asynchronous events.

use std::ffi::{CStr, c_int};
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::BorrowedFd;
use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};
use rustix::io::Errno;

use rdma::QpId;
use rdma_core_sys::{self as sys, Libraries};

/// The origin of a context, which determines how it is released.
enum Owner {
    /// The context was opened by `ibv_open_device`.
    Opened,
    /// The context is in the list of `rdma_get_devices`, which keeps it open. The connection
    /// manager's identifiers use it as well.
    Listed(*mut *mut sys::ibv_context),
}

/// An open device, which is closed when dropped. Every object made from the device holds an `Arc`
/// of it.
pub(super) struct Context {
    libraries: &'static Libraries,
    raw: NonNull<sys::ibv_context>,
    owner: Owner,
    /// Whether the device was removed, or must be reset.
    removed: AtomicBool,
}

// SAFETY: the libraries' calls on a context can be made from any thread (verbs are thread-safe by
// their specification), and the only state of this type is atomic.
unsafe impl Send for Context {}
// SAFETY: as above.
unsafe impl Sync for Context {}

/// The context of a completion queue in its channel: the queue pair, and which of its two queues it
/// is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct CqContext(pub(super) usize);

impl CqContext {
    pub(super) fn new(qp: QpId, receive: bool) -> Self {
        // Ids are far below 2^63 (`Membership::new_id`).
        Self((qp.0 as usize) << 1 | usize::from(receive))
    }

    pub(super) fn qp(self) -> QpId {
        QpId((self.0 >> 1) as u64)
    }

    pub(super) fn is_receive(self) -> bool {
        self.0 & 1 == 1
    }
}

/// An asynchronous event of a device or a queue pair.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum AsyncEvent {
    /// An event of a queue pair: its id, and the kind of event.
    QueuePair(u64, c_int),
    /// A shared receive queue holds fewer receives than its limit: its id.
    SharedReceivesLow(u64),
    /// A shared receive queue failed: its id.
    SharedReceivesFailed(u64),
    /// The device was removed or must be reset.
    DeviceFatal,
    /// A completion queue overflowed or cannot be written: the id of its queue pair or shared receive
    /// queue.
    CompletionQueue(u64),
    /// A port came up (true) or went down (false).
    Port(c_int, bool),
    /// An event that needs no action.
    Other(c_int),
}

impl Context {
    /// Opens every device, to query it.
    pub(super) fn open_all(
        libraries: &'static Libraries,
    ) -> io::Result<Vec<(String, Option<Self>)>> {
        let verbs = &libraries.verbs;
        let mut count = 0;
        // SAFETY: `count` is valid for the call.
        let list = unsafe { (verbs.ibv_get_device_list)(&mut count) };
        if list.is_null() {
            return Err(io::Error::last_os_error());
        }
        let mut all = Vec::new();
        for n in 0..usize::try_from(count).unwrap_or(0) {
            // SAFETY: the list has `count` valid entries until it is freed below.
            let device = unsafe { *list.add(n) };
            // SAFETY: a device of the list; the open context keeps the device beyond the list.
            let context = unsafe { (verbs.ibv_open_device)(device) };
            let opened = NonNull::new(context).map(|raw| Self {
                libraries,
                raw,
                owner: Owner::Opened,
                removed: AtomicBool::new(false),
            });
            // SAFETY: as above; not used after the list is freed.
            all.push((unsafe { device_name(device) }, opened));
        }
        // SAFETY: the list of above, which is not used any more.
        unsafe { (verbs.ibv_free_device_list)(list) };
        Ok(all)
    }

    /// Returns the connection manager's context of the first device for which `wanted` returns
    /// true.
    pub(super) fn find(
        libraries: &'static Libraries,
        mut wanted: impl FnMut(&Self) -> bool,
    ) -> io::Result<Option<Self>> {
        for n in 0.. {
            let mut count = 0;
            // SAFETY: `count` is valid for the call.
            let list = unsafe { (libraries.cm.rdma_get_devices)(&mut count) };
            if list.is_null() {
                return Err(io::Error::last_os_error());
            }
            // Each candidate holds a list of its own, which keeps it alive.
            let raw = match usize::try_from(count) {
                // SAFETY: the list has `count` valid entries until it is freed.
                Ok(count) if n < count => NonNull::new(unsafe { *list.add(n) }),
                _ => None,
            };
            let Some(raw) = raw else {
                // SAFETY: the list of above, which is not used any more.
                unsafe { (libraries.cm.rdma_free_devices)(list) };
                return Ok(None);
            };
            let context = Self {
                libraries,
                raw,
                owner: Owner::Listed(list),
                removed: AtomicBool::new(false),
            };
            if wanted(&context) {
                return Ok(Some(context));
            }
        }
        Ok(None)
    }

    /// Records that the device was removed, or must be reset.
    pub(super) fn set_removed(&self) {
        self.removed.store(true, Ordering::Relaxed);
    }

    /// Returns the result of a call that destroys an object of the device. After the removal of a device the
    /// kernel has destroyed its objects, and such calls fail with EIO.
    pub(super) fn destroyed(&self, status: c_int) -> io::Result<()> {
        errno(status).or_else(|error| self.forgiven(error))
    }

    /// Returns the error of a call that destroys an object, unless it means that the object is gone; see
    /// [`Context::destroyed`].
    pub(super) fn forgiven(&self, error: io::Error) -> io::Result<()> {
        let is_io = error.raw_os_error() == Some(Errno::IO.raw_os_error());
        match is_io && self.removed.load(Ordering::Relaxed) {
            true => Ok(()),
            false => Err(error),
        }
    }

    pub(super) fn libraries(&self) -> &'static Libraries {
        self.libraries
    }

    pub(super) fn raw(&self) -> *mut sys::ibv_context {
        self.raw.as_ptr()
    }

    /// Returns the table of operations that the header's inline functions call.
    pub(super) fn ops(&self) -> &sys::ibv_context_ops {
        // SAFETY: the context is open while `self` lives, and its table is not written to after
        // it was opened.
        unsafe { &(*self.raw.as_ptr()).ops }
    }

    /// Returns the device's name.
    pub(super) fn name(&self) -> String {
        // SAFETY: an open context's device is valid.
        unsafe { device_name((*self.raw.as_ptr()).device) }
    }

    /// Returns whether the device implements iWARP.
    pub(super) fn is_iwarp(&self) -> bool {
        // SAFETY: as in `name`.
        let transport = unsafe { (*(*self.raw.as_ptr()).device).transport_type };
        transport == sys::IBV_TRANSPORT_IWARP
    }

    /// Returns the number of completion vectors, at least 1.
    pub(super) fn completion_vectors(&self) -> usize {
        // SAFETY: the context is open.
        let count = unsafe { self.raw.as_ref().num_comp_vectors };
        usize::try_from(count).unwrap_or(1).max(1)
    }

    /// Queries the device's limits, and the first of its ports that is active, or its first port if none
    /// is. Of two ports of an adapter, often only one is connected.
    pub(super) fn query(&self) -> io::Result<(sys::ibv_device_attr, sys::ibv_port_attr)> {
        let verbs = &self.libraries.verbs;
        let mut attr = MaybeUninit::<sys::ibv_device_attr>::zeroed();
        // SAFETY: the context is open, and there is room for the answer.
        let status = unsafe { (verbs.ibv_query_device)(self.raw(), attr.as_mut_ptr()) };
        errno(status)?;
        // SAFETY: all bit patterns are valid for it, zeroes to begin with.
        let attr = unsafe { attr.assume_init() };
        let first = self.query_port(1)?;
        let is_active = |port: &sys::ibv_port_attr| port.state == sys::IBV_PORT_ACTIVE;
        let mut others = (2..=attr.phys_port_cnt).filter_map(|port| self.query_port(port).ok());
        let port = match is_active(&first) {
            true => first,
            false => others.find(is_active).unwrap_or(first),
        };
        Ok((attr, port))
    }

    fn query_port(&self, number: u8) -> io::Result<sys::ibv_port_attr> {
        let mut port = sys::ibv_port_attr::default();
        let query = self.libraries.verbs.ibv_query_port;
        // SAFETY: the context is open; the function fills at most what the structure had when it got its
        // name, which is less than it has now.
        errno(unsafe { query(self.raw(), number, &mut port) })?;
        Ok(port)
    }

    /// Returns the descriptor that signals [`AsyncEvent`]s.
    pub(super) fn async_fd(&self) -> BorrowedFd<'_> {
        // SAFETY: the context is open, and its descriptor with it.
        unsafe { BorrowedFd::borrow_raw((*self.raw.as_ptr()).async_fd) }
    }

    /// Returns the next event, if there is one. The descriptor must be non-blocking.
    pub(super) fn next_async_event(&self) -> Option<AsyncEvent> {
        let verbs = &self.libraries.verbs;
        let mut event = sys::ibv_async_event {
            element: ptr::null_mut(),
            event_type: 0,
        };
        // SAFETY: the context is open, and there is room for the event.
        if unsafe { (verbs.ibv_get_async_event)(self.raw(), &mut event) } != 0 {
            return None;
        }
        let kind = event.event_type;
        let told = match kind {
            sys::IBV_EVENT_QP_FATAL
            | sys::IBV_EVENT_QP_REQ_ERR
            | sys::IBV_EVENT_QP_ACCESS_ERR
            | sys::IBV_EVENT_QP_LAST_WQE_REACHED
            | sys::IBV_EVENT_COMM_EST => {
                let qp = event.element.cast::<sys::ibv_qp>();
                // SAFETY: for these events the element is a queue pair, which is not destroyed
                // before the event is acknowledged: destroying it waits for that.
                AsyncEvent::QueuePair(unsafe { (*qp).qp_context.addr() } as u64, kind)
            }
            sys::IBV_EVENT_DEVICE_FATAL => AsyncEvent::DeviceFatal,
            sys::IBV_EVENT_CQ_ERR => {
                let cq = event.element.cast::<sys::ibv_cq>();
                // SAFETY: as above, of a completion queue.
                let context = CqContext(unsafe { (*cq).cq_context.addr() });
                AsyncEvent::CompletionQueue(context.qp().0)
            }
            sys::IBV_EVENT_SRQ_LIMIT_REACHED | sys::IBV_EVENT_SRQ_ERR => {
                let srq = event.element.cast::<sys::ibv_srq>();
                // SAFETY: as above, of a shared receive queue.
                let id = unsafe { (*srq).srq_context.addr() } as u64;
                match kind {
                    sys::IBV_EVENT_SRQ_ERR => AsyncEvent::SharedReceivesFailed(id),
                    _ => AsyncEvent::SharedReceivesLow(id),
                }
            }
            // The element is a port number, in the lower half of the union.
            sys::IBV_EVENT_PORT_ACTIVE => AsyncEvent::Port(event.element.addr() as c_int, true),
            sys::IBV_EVENT_PORT_ERR => AsyncEvent::Port(event.element.addr() as c_int, false),
            other => AsyncEvent::Other(other),
        };
        // SAFETY: the event of above, once.
        unsafe { (verbs.ibv_ack_async_event)(&mut event) };
        Some(told)
    }
}

impl Drop for Context {
    fn drop(&mut self) {
        match self.owner {
            Owner::Opened => {
                // SAFETY: opened by `open_all`, and nothing made from it is left: such things hold
                // an `Arc` of this.
                unsafe { (self.libraries.verbs.ibv_close_device)(self.raw()) };
            }
            Owner::Listed(list) => {
                // SAFETY: the list that this context came from, freed once.
                unsafe { (self.libraries.cm.rdma_free_devices)(list) };
            }
        }
    }
}

/// Returns a device's name.
///
/// # Safety
/// `device` must be valid.
unsafe fn device_name(device: *const sys::ibv_device) -> String {
    // SAFETY: as promised; the library ends the name with a zero within its field.
    let name = unsafe { CStr::from_ptr((*device).name.as_ptr()) };
    name.to_string_lossy().into_owned()
}

/// Converts the result of a function that returns zero, an error number, or a negative error
/// number, depending on the provider.
pub(super) fn errno(status: c_int) -> io::Result<()> {
    match status {
        0 => Ok(()),
        -1 => Err(io::Error::last_os_error()),
        status => Err(io::Error::from_raw_os_error(status.saturating_abs())),
    }
}

/// Makes a descriptor of the library non-blocking.
pub(super) fn set_nonblocking(fd: BorrowedFd<'_>) -> io::Result<()> {
    Ok(fcntl_setfl(fd, fcntl_getfl(fd)? | OFlags::NONBLOCK)?)
}
