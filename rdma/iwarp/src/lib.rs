//! A software RNIC: iWARP (MPA, DDP, RDMAP) over TCP, in user space.
//!
//! The bytes on the wire are those of RFC 5044, RFC 5041 and RFC 5040, with the set-up of RFC 6581,
//! so that a Linux host with `siw` or an iWARP card can be the peer. It needs no driver, no
//! privilege, and no thread switch for a message: the owner's thread does the work when it polls;
//! `progress.rs` describes what happens when it does not.
//!
//! From bottom to top, each without I/O: [`mpa`], [`ddp`], [`rdmap`] and [`terminate`] encode and
//! decode headers; `receive`, with `reading`, turns a byte stream into placed segments, and `transmit` turns
//! messages into a byte stream; `memory` and `regions` check every placement; `endpoint`, with
//! `outbound` and `inbound`, is the RDMAP state of one stream; `setup` negotiates with set-up
//! frames. Above them, `conn` is a connection with its socket (`handshake`, `stream`), and `state`
//! with `manager` is the device; `shared` has its shared receive queues.
//!
//! Payload is received into its destination and sent from its source. It is copied in three cases, and counted
//! then ([`Counters::copied_bytes`]): in writes of up to 512 bytes, if it arrives in the same read as the
//! headers around it, and if its place was predicted wrongly, as that of a message in longer segments, after
//! TCP's MSS has grown.
//!
//! Registered memory starts at a random tagged offset, and its handle is 32 random bits. A handle
//! is valid on its own queue pair only. Parts of a region offered for writing that the peer did not
//! write have undefined contents afterwards, because the device may have received other bytes into
//! them (`ahead`).
//!
//! The following example has two devices in one thread, which it busy-polls until the server
//! receives the connection request:
//!
//! ```
//! use std::collections::VecDeque;
//! use std::time::Duration;
//!
//! use bytes::Bytes;
//! use iwarp::{Iwarp, Options};
//! use rdma::{ConnectOptions, Device, Event, Pool, Time};
//!
//! let mut server = Iwarp::new(Options::default(), Pool::new(1 << 20))?;
//! let mut client = Iwarp::new(Options::default(), Pool::new(1 << 20))?;
//! let listener = server.listen("127.0.0.1:0".parse()?)?;
//! let options = ConnectOptions {
//!     private_data: Bytes::from_static(b"hello"),
//!     inbound_reads: 4,
//!     outbound_reads: 4,
//!     timeout: Duration::from_secs(10),
//!     shared_receives: None,
//! };
//! client.connect(server.local_address(listener)?, &options)?;
//! let mut events = VecDeque::new();
//! let request = loop {
//!     client.poll(Time::now(), &mut events);
//!     server.poll(Time::now(), &mut events);
//!     if let Some(Event::ConnectRequest(request)) = events.pop_front() {
//!         break request;
//!     }
//! };
//! assert_eq!(request.private_data, "hello");
//! # Ok::<_, Box<dyn std::error::Error>>(())
//! ```

#![forbid(unsafe_code)]

mod ahead;
mod conn;
pub mod ddp;
mod endpoint;
mod fault;
mod fpdu;
#[cfg(test)]
mod fuzz;
mod handshake;
#[cfg(any(test, feature = "fuzz"))]
#[doc(hidden)]
pub mod harness;
mod inbound;
mod manager;
mod memory;
pub mod mpa;
mod outbound;
mod pattern;
mod progress;
mod random;
pub mod rdmap;
mod reading;
mod receive;
mod regions;
mod setup;
mod shared;
mod shared_queue;
mod short;
mod socket;
mod state;
mod stream;
mod tap;
pub mod terminate;
mod train;
mod transmit;

use std::collections::VecDeque;
use std::fmt;
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::os::fd::AsFd;
use std::sync::{Arc, MutexGuard};
use std::thread::JoinHandle;
use std::time::Duration;

use mio::unix::pipe;

use endpoint::Limits;
use manager::system;
use progress::Shared;
use rdma::{
    AcceptOptions, Attributes, Carrier, ClassCosts, ConnectOptions, Counters, Device, DeviceError,
    Ending, Event, Interest, ListenerId, Poller, Pool, PostError, QpId, Region, RemoteSegment,
    RequestId, Scatter, SendWr, SharedReceives, SharedReceivesId, Stag, Tap, Time, WhenEmpty, WrId,
};
use regions::NotReclaimed;
use rpcrdma_host::{CongestionControl, LoopSeat};
use shared_queue::MAX_SHARED_WR;
use state::{State, WAKE_TOKEN};

/// Maximum number of outstanding requests on a send queue.
const MAX_SEND_WR: usize = 4096;
/// Maximum number of outstanding receives of a queue pair.
const MAX_RECV_WR: usize = 4096;
/// Maximum number of elements of a gather list.
const MAX_GATHER: usize = 64;
/// Maximum number of buffers of a receive.
const MAX_SCATTER: usize = 64;

/// Whether this side asks for a CRC in FPDUs. Both sides use one if either side asks for it (RFC
/// 5044, section 7.1.1).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CrcPolicy {
    /// Use a CRC only if the peer asks for it.
    #[default]
    IfAsked,
    /// Ask for a CRC, and so always use one.
    Request,
}

/// The options of an [`Iwarp`] device.
#[derive(Clone, Debug)]
pub struct Options {
    /// Whether to ask for CRCs.
    pub crc: CrcPolicy,
    /// Number of RDMA Reads that a peer may have outstanding on a connection (IRD), 1 to 16382.
    /// Linux `siw` supports up to 128.
    pub inbound_reads: u32,
    /// Number of RDMA Reads that this side may have outstanding on a connection (ORD), 1 to 16382.
    pub outbound_reads: u32,
    /// Maximum number of connections, including those being set up.
    /// At the limit, a new one takes the place of the oldest that is over except for its last
    /// bytes, or else of the oldest that waits for its peer's Request Frame. With a `seat`,
    /// connections that all its loops have accepted, by all transports, count.
    pub max_connections: usize,
    /// Maximum time for a peer to send its set-up frame.
    pub setup_timeout: Duration,
    /// Upper limit for the TCP MSS, to which segments are fitted; for tests and experiments.
    pub mss_limit: Option<u16>,
    /// The congestion control of all TCP connections; `None`: the system's.
    pub congestion: Option<CongestionControl>,
    /// Sockets that listen already, and do not block. [`Device::listen`] takes the one with its
    /// address, if there is one, so that the devices of several loops can listen together.
    pub sockets: Vec<Arc<TcpListener>>,
    /// The place of the device's loop among those that listen together.
    pub seat: Option<LoopSeat>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            crc: CrcPolicy::IfAsked,
            inbound_reads: 128,
            outbound_reads: 128,
            max_connections: 1024,
            setup_timeout: Duration::from_secs(10),
            mss_limit: None,
            congestion: None,
            sockets: Vec::new(),
            seat: None,
        }
    }
}

/// Limits a number of RDMA Reads to 14 bits, of which the highest value is reserved (RFC 6581,
/// sections 9 and 9.1).
fn depth(reads: u32) -> u16 {
    let most = mpa::DEPTH_UNSPECIFIED - 1;
    u16::try_from(reads).unwrap_or(most).clamp(1, most)
}

/// The device. See the [module](self).
///
/// Posting is cheap. What was posted is written to TCP by the next [`Device::poll`], [`Device::arm`] or
/// [`Device::flush`], with one system call for each connection; by the device's background thread, if the
/// owner does none of these for some milliseconds.
///
/// Dropping the device closes its sockets, whatever is queued on them, and ends its background
/// thread.
pub struct Iwarp {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
    woken: pipe::Receiver,
    /// Whether a request was posted since posted requests were written. Kept beside the shared state, so that
    /// a flush with nothing to write takes no lock.
    posted: bool,
    attributes: Attributes,
    pool: Pool,
}

/// What operations cost here, over the loopback interface: measured on a machine with two processors
/// by `rpcrdma compare --save-costs`, and rounded. This device invalidates memory at once.
fn costs() -> ClassCosts {
    ClassCosts {
        registration: Duration::from_nanos(500),
        invalidation: Duration::from_nanos(200),
        invalidation_wait: Duration::ZERO,
        ..ClassCosts::software()
    }
}

impl Iwarp {
    /// Creates a device whose program takes its memory from `pool`.
    ///
    /// # Errors
    /// The error of the system if it cannot create a pipe or a thread.
    pub fn new(options: Options, pool: Pool) -> io::Result<Self> {
        let limits = Limits {
            send_wr: MAX_SEND_WR,
            recv_wr: MAX_RECV_WR,
            gather: MAX_GATHER,
            scatter: MAX_SCATTER,
        };
        let attributes = Attributes {
            name: "iwarp".into(),
            max_send_wr: limits.send_wr,
            max_recv_wr: limits.recv_wr,
            max_gather: limits.gather,
            max_scatter: limits.scatter,
            max_region: u32::MAX as usize,
            max_inbound_reads: u32::from(depth(options.inbound_reads)),
            max_outbound_reads: u32::from(depth(options.outbound_reads)),
            max_private_data: mpa::MAX_PRIVATE_DATA - mpa::ENHANCED,
            remote_invalidation: true,
            shared_receives: Some(SharedReceives {
                max_wr: MAX_SHARED_WR,
                when_empty: WhenEmpty::Waits,
            }),
            keeps_credentials: false,
            costs: costs(),
        };
        let (wake, woken) = pipe::new()?;
        let shared = Arc::new(Shared::new(State::new(options, limits), wake)?);
        let thread = progress::spawn(&shared)?;
        Ok(Self {
            shared,
            thread: Some(thread),
            woken,
            posted: false,
            attributes,
            pool,
        })
    }

    /// Shows all bytes that are sent and received from now on to `tap`, as [`Frame::Stream`]s:
    /// set-up frames and FPDUs of all connections. Data that a peer sends after a connection has
    /// ended is dropped and not shown.
    ///
    /// [`Frame::Stream`]: rdma::Frame::Stream
    pub fn set_tap(&mut self, tap: Box<dyn Tap>) {
        self.shared.state().tap = Some(tap);
    }

    /// Ends the program's use of the state for now.
    #[inline]
    fn leave(&self, mut state: MutexGuard<'_, State>) {
        let parked = self.shared.leave(&mut state);
        drop(state);
        if parked && let Some(thread) = &self.thread {
            thread.thread().unpark();
        }
    }
}

impl fmt::Debug for Iwarp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Iwarp").finish_non_exhaustive()
    }
}

impl Drop for Iwarp {
    fn drop(&mut self) {
        if let Some(thread) = self.thread.take() {
            self.shared.stop(thread.thread());
            if thread.join().is_err() {
                tracing::error!("the background thread of an iwarp device panicked");
            }
        }
        let mut state = self.shared.state();
        state.close_listeners();
        state.end_tap();
    }
}

impl Device for Iwarp {
    fn attributes(&self) -> &Attributes {
        &self.attributes
    }

    fn pool(&self) -> &Pool {
        &self.pool
    }

    fn counters(&self) -> Counters {
        self.shared.state().counters
    }

    fn attach(&mut self, poller: Poller) -> io::Result<()> {
        poller.watch(self.woken.as_fd(), WAKE_TOKEN, Interest::Readable)?;
        self.shared.state().attach(poller)
    }

    fn ready(&mut self, local: usize, closed: bool) {
        if local == WAKE_TOKEN {
            let reads = progress::drain_pipe(&self.woken);
            self.shared.state().counters.system_calls += reads;
        } else {
            self.shared.state().ready(local, closed);
        }
    }

    fn set_busy_poll(&mut self, on: bool) {
        self.shared.state().set_busy_poll(on);
    }

    fn poll(&mut self, now: Time, events: &mut VecDeque<Event>) {
        self.posted = false;
        self.shared.present(false);
        let mut state = self.shared.state();
        self.shared.interrupt(&mut state);
        state.poll(now, events);
        self.leave(state);
    }

    fn flush(&mut self) {
        if std::mem::take(&mut self.posted) {
            self.shared.state().flush();
        }
    }

    fn arm(&mut self) -> bool {
        self.posted = false;
        let mut state = self.shared.state();
        let armed = state.arm();
        if armed {
            self.shared.present(true);
            self.shared.interrupt(&mut state);
        }
        armed
    }

    fn next_deadline(&self) -> Option<Time> {
        self.shared.state().next_deadline()
    }

    fn listen(&mut self, address: SocketAddr) -> Result<ListenerId, DeviceError> {
        let listener = self.shared.state().listen(address);
        listener.map_err(|source| system(&format!("cannot listen on {address}"), source))
    }

    fn local_address(&self, listener: ListenerId) -> Result<SocketAddr, DeviceError> {
        self.shared.state().local_address(listener)
    }

    fn carrier(&self, qp: QpId) -> Carrier {
        self.shared.state().carrier(qp)
    }

    fn close_listener(&mut self, listener: ListenerId) {
        self.shared.state().close_listener(listener);
    }

    fn connect(
        &mut self,
        remote: SocketAddr,
        options: &ConnectOptions,
    ) -> Result<QpId, DeviceError> {
        self.shared.state().connect(remote, options)
    }

    fn prepare_accept(
        &mut self,
        request: RequestId,
        receives: Option<SharedReceivesId>,
    ) -> Result<QpId, DeviceError> {
        self.shared.state().prepare_accept(request, receives)
    }

    fn accept(&mut self, qp: QpId, options: &AcceptOptions) -> Result<(), DeviceError> {
        let mut state = self.shared.state();
        let accepted = state.accept(qp, options);
        // From now on the peer may access memory. If the background thread has taken over, it does
        // not watch this connection yet.
        self.shared.interrupt(&mut state);
        self.leave(state);
        accepted
    }

    fn reject(&mut self, request: RequestId, private_data: &[u8]) -> Result<(), DeviceError> {
        self.shared.state().reject(request, private_data)
    }

    fn disconnect(&mut self, qp: QpId) {
        self.shared.state().disconnect(qp);
    }

    fn abort(&mut self, qp: QpId) {
        self.shared.state().abort(qp);
    }

    fn destroy(&mut self, qp: QpId) {
        self.shared.state().destroy(qp);
    }

    fn ending(&self) -> Ending {
        self.shared.state().ending()
    }

    fn give_back(&mut self, quiet: &[QpId]) -> usize {
        self.shared.state().give_back(quiet)
    }

    fn register(
        &mut self,
        qp: QpId,
        region: Region,
    ) -> Result<RemoteSegment, (DeviceError, Region)> {
        let mut state = self.shared.state();
        let Some((conn, counters)) = state.qp_mut(qp).filter(|(conn, _)| conn.can_receive()) else {
            return Err((DeviceError::Unknown("queue pair"), region));
        };
        match conn.endpoint.register(region) {
            Ok(segment) => {
                counters.registrations += 1;
                Ok(segment)
            }
            Err((source, region)) => Err((system("cannot register memory", source), region)),
        }
    }

    fn reclaim(&mut self, qp: QpId, stag: Stag) -> Result<Region, DeviceError> {
        let mut state = self.shared.state();
        let (conn, _) = state.qp_mut(qp).ok_or(DeviceError::Unknown("queue pair"))?;
        conn.endpoint.reclaim(stag).map_err(|why| match why {
            NotReclaimed::Unknown => DeviceError::Unknown("handle"),
            NotReclaimed::StillValid => DeviceError::StillRegistered(stag),
        })
    }

    fn post_receive(
        &mut self,
        qp: QpId,
        id: WrId,
        receive: Scatter,
    ) -> Result<(), (PostError, Scatter)> {
        let mut state = self.shared.state();
        match state.qp_mut(qp) {
            None => Err((PostError::Unknown, receive)),
            Some((conn, _)) if !conn.can_receive() => Err((PostError::NotConnected, receive)),
            Some((conn, _)) => conn.endpoint.post_receive(id, receive),
        }
    }

    fn create_shared_receives(&mut self) -> Result<SharedReceivesId, DeviceError> {
        Ok(self.shared.state().create_shared_receives())
    }

    fn post_shared_receive(
        &mut self,
        receives: SharedReceivesId,
        id: WrId,
        receive: Scatter,
    ) -> Result<(), (PostError, Scatter)> {
        let mut state = self.shared.state();
        state.post_shared_receive(receives, id, receive)
    }

    fn arm_shared_receives(
        &mut self,
        receives: SharedReceivesId,
        below: usize,
    ) -> Result<(), DeviceError> {
        self.shared.state().arm_shared_receives(receives, below)
    }

    fn posted_shared_receives(&self, receives: SharedReceivesId) -> usize {
        self.shared.state().posted_shared_receives(receives)
    }

    fn withdraw_shared_receive(&mut self, receives: SharedReceivesId) -> Option<Scatter> {
        self.shared.state().withdraw_shared_receive(receives)
    }

    fn receiving(&self, receives: SharedReceivesId, qps: &mut Vec<QpId>) {
        self.shared.state().receiving(receives, qps);
    }

    fn destroy_shared_receives(&mut self, receives: SharedReceivesId) -> Result<(), DeviceError> {
        self.shared.state().destroy_shared_receives(receives)
    }

    fn post_send(
        &mut self,
        qp: QpId,
        id: WrId,
        wr: SendWr,
        signaled: bool,
    ) -> Result<(), (PostError, SendWr)> {
        self.posted = true;
        self.shared.state().post_send(qp, id, wr, signaled)
    }
}
