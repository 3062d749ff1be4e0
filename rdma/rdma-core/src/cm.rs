//! The connection manager: identifiers, their queue pairs, and events.

use std::ffi::{c_int, c_void};
use std::io;
use std::net::SocketAddr;
use std::os::fd::BorrowedFd;
use std::ptr::{self, NonNull};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;

use super::addresses::{from_storage, to_storage};
use super::context::{errno, set_nonblocking};
use super::objects::{Cq, Pd, Srq, unsupported};
use rdma_core_sys::{self as sys, Libraries};

/// Number of retransmissions of an unacknowledged packet. Only the connecting side sets it, for both. One below
/// the maximum, which rxe treats as unlimited.
const RETRIES: u8 = 6;
/// Number of times that each side asks the other to send a message again that found no receive (RNR
/// NAK). Seven means without end: a side whose connections share receives may promise more of them
/// than it has posted, and a sender must then wait and not end the connection.
const RECEIVER_RETRIES: u8 = 7;
/// Time after which a sender tries again whose message found no receive in a shared receive queue,
/// in the encoding of the InfiniBand specification (table 45): 0.64 ms. Without it, the connection
/// manager's value applies, which is 0 and stands for 655 ms. A queue is empty for as long as
/// requests take, so the time is of that order; and a sender that waits costs no more than 1,600
/// attempts a second, each of at most one window of packets.
const RECEIVER_TIMER: u8 = 12;

fn done(status: c_int) -> io::Result<()> {
    // These functions always set `errno` and return -1.
    errno(status)
}

/// An event channel of the connection manager.
pub(super) struct EventChannel {
    libraries: &'static Libraries,
    raw: NonNull<sys::rdma_event_channel>,
}

// SAFETY: calls on a channel can be made from any thread.
unsafe impl Send for EventChannel {}
// SAFETY: as above.
unsafe impl Sync for EventChannel {}

/// Identifies a connection manager identifier. The number is unique while the identifier exists.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct IdKey(usize);

/// Maximum numbers of outstanding RDMA Reads towards this side and from it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Depths {
    pub(super) inbound: u8,
    pub(super) outbound: u8,
}

/// The kind of a connection manager event.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum CmEventKind {
    AddressResolved,
    RouteResolved,
    /// A connection request at this listener. The event carries a new identifier.
    ConnectRequest(IdKey),
    Established,
    /// The peer rejected the connection.
    Rejected,
    /// The peer cannot be reached or does not answer.
    Unreachable,
    /// Another failure of connection set-up, with the name of the step.
    Failed(&'static str),
    Disconnected,
    DeviceRemoved,
    /// No action is needed.
    Other(c_int),
}

/// A connection manager event.
pub(super) struct CmEvent {
    pub(super) id: IdKey,
    /// The identifier itself, if it is a new one.
    pub(super) new: Option<Id>,
    pub(super) kind: CmEventKind,
    /// A negative error number, or a reason code of the protocol.
    pub(super) status: c_int,
    pub(super) private_data: Bytes,
    /// The numbers of RDMA Reads that the peer requests, from this side's point of view.
    pub(super) depths: Depths,
}

impl EventChannel {
    /// Creates a channel with a non-blocking descriptor.
    pub(super) fn new(libraries: &'static Libraries) -> io::Result<Self> {
        // SAFETY: no arguments.
        let raw = unsafe { (libraries.cm.rdma_create_event_channel)() };
        let raw = NonNull::new(raw).ok_or_else(io::Error::last_os_error)?;
        let channel = Self { libraries, raw };
        set_nonblocking(channel.fd())?;
        Ok(channel)
    }

    pub(super) fn fd(&self) -> BorrowedFd<'_> {
        // SAFETY: valid until dropped, and the descriptor is open as long.
        unsafe { BorrowedFd::borrow_raw(self.raw.as_ref().fd) }
    }

    /// Returns the next event, if there is one. It has been acknowledged.
    pub(super) fn next(self: &Arc<Self>) -> Option<CmEvent> {
        let mut raw = ptr::null_mut();
        // SAFETY: the channel is valid and there is room for the answer.
        if unsafe { (self.libraries.cm.rdma_get_cm_event)(self.raw.as_ptr(), &mut raw) } != 0 {
            let error = io::Error::last_os_error();
            if error.kind() != io::ErrorKind::WouldBlock {
                rpcrdma_host::limited!(warn, %error, "the connection manager reports no events");
            }
            return None;
        }
        // SAFETY: the event is valid until it is acknowledged, and so is its private data. For
        // connections on reliable queue pairs, and there are no others here, `conn` is the
        // member of the union in use.
        let event = unsafe {
            let event = &*raw;
            let (data, len) = (event.conn.private_data, event.conn.private_data_len);
            let private_data = match data.is_null() {
                true => Bytes::new(),
                false => {
                    Bytes::copy_from_slice(std::slice::from_raw_parts(data.cast(), len.into()))
                }
            };
            let is_request = event.event == sys::RDMA_CM_EVENT_CONNECT_REQUEST;
            let listener = IdKey(event.listen_id.addr());
            CmEvent {
                id: IdKey(event.id.addr()),
                new: NonNull::new(event.id)
                    .filter(|_| is_request)
                    .map(|raw| Id::owned(self, raw)),
                kind: kind(event.event, listener),
                status: event.status,
                private_data,
                depths: Depths {
                    inbound: event.conn.responder_resources,
                    outbound: event.conn.initiator_depth,
                },
            }
        };
        // SAFETY: the event of above, once.
        unsafe { (self.libraries.cm.rdma_ack_cm_event)(raw) };
        Some(event)
    }
}

fn kind(event: c_int, listener: IdKey) -> CmEventKind {
    match event {
        sys::RDMA_CM_EVENT_ADDR_RESOLVED => CmEventKind::AddressResolved,
        sys::RDMA_CM_EVENT_ADDR_ERROR => CmEventKind::Failed("the address cannot be resolved"),
        sys::RDMA_CM_EVENT_ROUTE_RESOLVED => CmEventKind::RouteResolved,
        sys::RDMA_CM_EVENT_ROUTE_ERROR => CmEventKind::Failed("no route"),
        sys::RDMA_CM_EVENT_CONNECT_REQUEST => CmEventKind::ConnectRequest(listener),
        sys::RDMA_CM_EVENT_CONNECT_ERROR => CmEventKind::Failed("connecting failed"),
        sys::RDMA_CM_EVENT_UNREACHABLE => CmEventKind::Unreachable,
        sys::RDMA_CM_EVENT_REJECTED => CmEventKind::Rejected,
        sys::RDMA_CM_EVENT_ESTABLISHED => CmEventKind::Established,
        sys::RDMA_CM_EVENT_DISCONNECTED => CmEventKind::Disconnected,
        sys::RDMA_CM_EVENT_DEVICE_REMOVAL => CmEventKind::DeviceRemoved,
        other => CmEventKind::Other(other),
    }
}

impl Drop for EventChannel {
    fn drop(&mut self) {
        // SAFETY: made in `new`; its identifiers, which hold an `Arc` of it, are gone, and events
        // are acknowledged as they are taken.
        unsafe { (self.libraries.cm.rdma_destroy_event_channel)(self.raw.as_ptr()) };
    }
}

/// A connection manager identifier: a listener, or a connection with its queue pair.
pub(super) struct Id {
    channel: Arc<EventChannel>,
    raw: NonNull<sys::rdma_cm_id>,
}

// SAFETY: calls on an identifier can be made from any thread.
unsafe impl Send for Id {}

/// Sizes of a queue pair.
pub(super) type Sizes = sys::ibv_qp_cap;

impl Id {
    /// Creates an identifier whose events arrive at `channel`.
    pub(super) fn new(channel: &Arc<EventChannel>) -> io::Result<Self> {
        let (mut raw, create) = (ptr::null_mut(), channel.libraries.cm.rdma_create_id);
        // SAFETY: the channel is valid, and kept so by `channel`; there is room for the answer.
        let status = unsafe {
            create(
                channel.raw.as_ptr(),
                &mut raw,
                ptr::null_mut(),
                sys::RDMA_PS_TCP,
            )
        };
        done(status)?;
        let raw = NonNull::new(raw).ok_or_else(unsupported)?;
        Ok(Self::owned(channel, raw))
    }

    fn owned(channel: &Arc<EventChannel>, raw: NonNull<sys::rdma_cm_id>) -> Self {
        Self {
            channel: Arc::clone(channel),
            raw,
        }
    }

    fn cm(&self) -> &'static sys::load::Cm {
        &self.channel.libraries.cm
    }

    fn raw(&self) -> *mut sys::rdma_cm_id {
        self.raw.as_ptr()
    }

    pub(super) fn key(&self) -> IdKey {
        IdKey(self.raw().addr())
    }

    /// Returns the context of the device to which the identifier is bound, or null if it is not
    /// bound.
    pub(super) fn context(&self) -> *mut sys::ibv_context {
        // SAFETY: the identifier is valid until dropped, here and in all that follows.
        unsafe { (*self.raw()).verbs }
    }

    pub(super) fn local_address(&self) -> Option<SocketAddr> {
        // SAFETY: see `context`.
        from_storage(unsafe { &(*self.raw()).route.addr.src })
    }

    pub(super) fn peer_address(&self) -> Option<SocketAddr> {
        // SAFETY: see `context`.
        from_storage(unsafe { &(*self.raw()).route.addr.dst })
    }

    /// Makes later events of the identifier, and those that have not been taken, arrive at
    /// `channel`.
    pub(super) fn migrate(&mut self, channel: &Arc<EventChannel>) -> io::Result<()> {
        // SAFETY: see `context`; the new channel is valid, and `self.channel` keeps it so. The call
        // blocks until all events that were taken for the identifier are acknowledged, which
        // `EventChannel::next` does before it returns.
        done(unsafe { (self.cm().rdma_migrate_id)(self.raw(), channel.raw.as_ptr()) })?;
        self.channel = Arc::clone(channel);
        Ok(())
    }

    pub(super) fn bind(&self, address: SocketAddr) -> io::Result<()> {
        let address = to_storage(address);
        // SAFETY: see `context`; the address is longer than any that is looked at.
        done(unsafe { (self.cm().rdma_bind_addr)(self.raw(), &address) })
    }

    pub(super) fn listen(&self, backlog: u16) -> io::Result<()> {
        // SAFETY: see `context`.
        done(unsafe { (self.cm().rdma_listen)(self.raw(), backlog.into()) })
    }

    pub(super) fn resolve_address(
        &self,
        from: Option<SocketAddr>,
        to: SocketAddr,
        timeout: Duration,
    ) -> io::Result<()> {
        let (from, to) = (from.map(to_storage), to_storage(to));
        let from = from.as_ref().map_or(ptr::null(), ptr::from_ref);
        // SAFETY: as in `bind`; the source may be null.
        let status =
            unsafe { (self.cm().rdma_resolve_addr)(self.raw(), from, &to, millis(timeout)) };
        done(status)
    }

    pub(super) fn resolve_route(&self, timeout: Duration) -> io::Result<()> {
        // SAFETY: see `context`.
        done(unsafe { (self.cm().rdma_resolve_route)(self.raw(), millis(timeout)) })
    }

    /// Creates the queue pair, to which receives can then be posted. Its asynchronous events carry
    /// `context`. Updates `sizes` to the actual sizes.
    ///
    /// The caller must keep the completion queues and the shared receive queue alive until
    /// [`Id::destroy_queue_pair`] (`conn.rs`, `shared.rs`).
    pub(super) fn create_queue_pair(
        &self,
        context: usize,
        pd: &Pd,
        send: &Cq,
        receive: &Cq,
        shared: Option<&Srq>,
        sizes: &mut Sizes,
    ) -> io::Result<()> {
        let mut init = sys::ibv_qp_init_attr {
            // Neither the libraries nor the driver dereference it.
            qp_context: ptr::without_provenance_mut(context),
            send_cq: send.raw(),
            recv_cq: receive.raw(),
            srq: shared.map_or(ptr::null_mut(), Srq::raw),
            cap: *sizes,
            qp_type: sys::IBV_QPT_RC,
            sq_sig_all: 0,
        };
        // SAFETY: see `context`; domain and queues are valid.
        done(unsafe { (self.cm().rdma_create_qp)(self.raw(), pd.raw(), &mut init) })?;
        *sizes = init.cap;
        Ok(())
    }

    /// Destroys the queue pair. Afterwards the device neither reads nor writes memory on its
    /// behalf.
    ///
    /// # Errors
    /// The error of the system if the queue pair remains. Its memory must then never be used again.
    pub(super) fn destroy_queue_pair(&self) -> io::Result<()> {
        let qp = self.queue_pair();
        if qp.is_null() {
            return Ok(());
        }
        // `rdma_destroy_qp` reports no failure. Besides this it only destroys completion queues that it made
        // itself, and these are the program's.
        let destroy = self.channel.libraries.verbs.ibv_destroy_qp;
        // SAFETY: the identifier has it, and forgets it now.
        let status = unsafe { destroy(qp) };
        // SAFETY: see `context`.
        unsafe { (*self.raw()).qp = ptr::null_mut() };
        errno(status)
    }

    /// Returns the queue pair, or null if there is none.
    pub(super) fn queue_pair(&self) -> *mut sys::ibv_qp {
        // SAFETY: see `context`.
        unsafe { (*self.raw()).qp }
    }

    /// Returns the device's number of the queue pair.
    pub(super) fn queue_pair_number(&self) -> Option<u32> {
        // SAFETY: the queue pair is valid while the identifier has it.
        unsafe { self.queue_pair().as_ref() }.map(|qp| qp.qp_num)
    }

    /// Moves the queue pair to the error state: all posted requests are flushed, and requests of
    /// the peer are no longer served.
    pub(super) fn fail_queue_pair(&self) -> io::Result<()> {
        let qp = self.queue_pair();
        if qp.is_null() {
            return Ok(());
        }
        let mut attr = sys::ibv_qp_attr {
            qp_state: sys::IBV_QPS_ERR,
            ..sys::ibv_qp_attr::default()
        };
        let modify = self.channel.libraries.verbs.ibv_modify_qp;
        // SAFETY: the queue pair is valid; the mask selects only the state.
        errno(unsafe { modify(qp, &mut attr, sys::IBV_QP_STATE) })
    }

    /// Sets the time after which the peer sends a message again that found no receive
    /// ([`RECEIVER_TIMER`]). The queue pair must be connected.
    pub(super) fn set_receiver_timer(&self) -> io::Result<()> {
        let qp = self.queue_pair();
        if qp.is_null() {
            return Err(unsupported());
        }
        let mut attr = sys::ibv_qp_attr {
            min_rnr_timer: RECEIVER_TIMER,
            ..sys::ibv_qp_attr::default()
        };
        let modify = self.channel.libraries.verbs.ibv_modify_qp;
        // SAFETY: the queue pair is valid; the mask selects only the timer.
        errno(unsafe { modify(qp, &mut attr, sys::IBV_QP_MIN_RNR_TIMER) })
    }

    fn with_parameters(
        &self,
        private_data: &[u8],
        depths: Depths,
        call: unsafe extern "C" fn(*mut sys::rdma_cm_id, *mut sys::rdma_conn_param) -> c_int,
    ) -> io::Result<()> {
        let mut param = sys::rdma_conn_param {
            private_data: private_data.as_ptr().cast::<c_void>(),
            private_data_len: u8::try_from(private_data.len()).unwrap_or(u8::MAX),
            responder_resources: depths.inbound,
            initiator_depth: depths.outbound,
            flow_control: 1,
            retry_count: RETRIES,
            rnr_retry_count: RECEIVER_RETRIES,
            srq: 0,
            qp_num: 0,
        };
        // SAFETY: see `context`; the private data is copied by the call.
        done(unsafe { call(self.raw(), &mut param) })
    }

    pub(super) fn connect(&self, private_data: &[u8], depths: Depths) -> io::Result<()> {
        self.with_parameters(private_data, depths, self.cm().rdma_connect)
    }

    pub(super) fn accept(&self, private_data: &[u8], depths: Depths) -> io::Result<()> {
        self.with_parameters(private_data, depths, self.cm().rdma_accept)
    }

    pub(super) fn reject(&self, private_data: &[u8]) -> io::Result<()> {
        let len = u8::try_from(private_data.len()).unwrap_or(u8::MAX);
        let data = private_data.as_ptr().cast::<c_void>();
        // SAFETY: see `context`; the data is at least `len` bytes and copied by the call.
        done(unsafe { (self.cm().rdma_reject)(self.raw(), data, len) })
    }

    /// Reports that a message has arrived, which proves that the peer considers the connection
    /// established.
    pub(super) fn communicating(&self) {
        // SAFETY: see `context`. It fails on iWARP, where there is no such case.
        unsafe { (self.cm().rdma_notify)(self.raw(), sys::IBV_EVENT_COMM_EST) };
    }

    pub(super) fn disconnect(&self) -> io::Result<()> {
        // SAFETY: see `context`.
        done(unsafe { (self.cm().rdma_disconnect)(self.raw()) })
    }
}

impl Drop for Id {
    fn drop(&mut self) {
        if let Err(error) = self.destroy_queue_pair() {
            tracing::error!(%error, "queue pair not destroyed");
        }
        // SAFETY: nothing uses it after this. It waits for events to be acknowledged, and all are.
        let status = unsafe { (self.cm().rdma_destroy_id)(self.raw()) };
        if let Err(error) = done(status) {
            tracing::warn!(%error, "connection identifier not destroyed");
        }
    }
}

fn millis(timeout: Duration) -> c_int {
    c_int::try_from(timeout.as_millis()).unwrap_or(c_int::MAX)
}
