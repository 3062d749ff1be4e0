//! The device model.

use std::collections::VecDeque;
use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use bytes::Bytes;
use smallvec::SmallVec;

use crate::{Buf, Carrier, Poller, Pool, Scatter, Time};

/// A queue pair of one device, and its connection. Not reused while the device lives.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct QpId(pub u64);

/// A listening address of one device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ListenerId(pub u64);

/// A connection request that waits for [`Device::accept`] or [`Device::reject`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct RequestId(pub u64);

/// The poster's own mark on a work request; comes back in its completion.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct WrId(pub u64);

/// A steering tag (iWARP) or rkey (InfiniBand): the handle of registered memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Stag(pub u32);

impl fmt::Display for Stag {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#010x}", self.0)
    }
}

/// Memory of a peer, as the peer named it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RemoteSegment {
    /// Its handle.
    pub stag: Stag,
    /// Bytes.
    pub length: u32,
    /// Tagged offset of its first byte.
    pub offset: u64,
}

/// Memory to register, with the right that a peer gets on it. The right follows from the kind of
/// memory: what others may be reading cannot be offered for writing.
#[derive(Debug)]
pub enum Region {
    /// The peer may read it (RDMA Read). Shared, because nobody writes to it.
    RemoteRead(Bytes),
    /// The peer may write it (RDMA Write). Out of reach until it is reclaimed.
    RemoteWrite(Buf),
}

impl Region {
    /// Bytes.
    #[must_use]
    pub fn len(&self) -> usize {
        match self {
            Self::RemoteRead(bytes) => bytes.len(),
            Self::RemoteWrite(buf) => buf.len(),
        }
    }

    /// True when there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// Bytes of a message, in order. Two pieces are the usual number, a transport header and what
/// it carries; each one more inline would make every request longer that is passed on by value.
pub type Gather = SmallVec<[Bytes; 2]>;

/// A request for a queue pair's send queue.
///
/// Local memory is not checked for membership in the device's pool by the model; a device that
/// needs it registered copies what is not, and counts that in [`Counters::copied_bytes`].
#[derive(Debug)]
pub enum SendWr {
    /// A message into the peer's next posted receive buffer.
    Send {
        /// Its bytes.
        gather: Gather,
        /// Handle of the peer's that the peer's device invalidates on arrival (Send With
        /// Invalidate).
        invalidate: Option<Stag>,
    },
    /// Puts bytes into the peer's memory.
    Write {
        /// The bytes.
        gather: Gather,
        /// The memory's handle.
        stag: Stag,
        /// Tagged offset of the first byte.
        offset: u64,
    },
    /// Gets bytes from the peer's memory.
    Read {
        /// Where they go; its length is the number of bytes.
        sink: Buf,
        /// The memory's handle.
        stag: Stag,
        /// Tagged offset of the first byte.
        offset: u64,
    },
    /// Invalidates memory registered here. When it completes, the peer can no longer reach the
    /// memory and [`Device::reclaim`] gives it back.
    Invalidate {
        /// The memory's handle.
        stag: Stag,
    },
}

/// What a finished work request gives back.
#[derive(Debug)]
pub enum Success {
    /// The Send's bytes are no longer needed here. (Not that they arrived.)
    Send,
    /// The Write's bytes are no longer needed here.
    Write,
    /// All bytes of the Read are in its sink.
    Read {
        /// The sink.
        sink: Buf,
    },
    /// The handle is invalid.
    Invalidate,
    /// A message arrived.
    Receive {
        /// The posted pieces, all of them, each cut to what it holds of the message.
        buf: Scatter,
        /// The handle that the sender's Send With Invalidate named; it is invalid now and
        /// [`Device::reclaim`] gives the memory back.
        invalidated: Option<Stag>,
    },
}

/// Why a work request failed. Any failure ends the connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum WorkError {
    /// The connection ended first.
    #[error("flushed: the connection ended")]
    Flushed,
    /// The message is longer than the receive it fell into, all pieces together.
    #[error("local length error: the message is longer than the receive buffer")]
    LocalLength,
    /// The peer refused the access (handle, bounds or rights).
    #[error("remote access error: the peer refused the access")]
    RemoteAccess,
    /// The peer's device reported another error.
    #[error("remote operation error")]
    RemoteOperation,
    /// A local handle was not valid.
    #[error("local protection error")]
    LocalProtection,
}

/// A failed work request.
#[derive(Debug)]
pub struct Failed {
    /// Why.
    pub error: WorkError,
    /// The receive or sink it had, if any; the bytes in it mean nothing.
    pub buf: Option<Scatter>,
}

/// A work request's end.
#[derive(Debug)]
pub struct Completion {
    /// Its queue pair.
    pub qp: QpId,
    /// Its mark.
    pub id: WrId,
    /// How it ended.
    pub result: Result<Success, Failed>,
}

/// A peer wants to connect.
#[derive(Debug)]
pub struct ConnectRequest {
    /// Where it arrived.
    pub listener: ListenerId,
    /// Its name here.
    pub request: RequestId,
    /// The peer's address.
    pub peer: SocketAddr,
    /// The peer's private data.
    pub private_data: Bytes,
}

/// Why a connection could not be made.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ConnectError {
    /// Nobody listens there.
    #[error("connection refused: nothing listens on that address and port")]
    Refused,
    /// There is no way there.
    #[error("{0}")]
    Unreachable(String),
    /// No answer in time.
    #[error("no answer in time")]
    TimedOut,
    /// The listening program said no; it may have said why in private data.
    #[error("rejected by the peer")]
    Rejected {
        /// The peer's private data.
        private_data: Bytes,
    },
    /// The peer does not speak the device's connection protocol, or not a version of it that we
    /// can speak.
    #[error("connection set-up failed: {0}")]
    Protocol(String),
}

/// Why a connection ended.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Disconnect {
    /// This side closed it.
    #[error("closed by this side")]
    Local,
    /// The peer closed it in order.
    #[error("closed by the peer")]
    Remote,
    /// The network lost it.
    #[error("connection lost: {0}")]
    Lost(String),
    /// The peer broke the device's protocol, or reached for memory it may not reach.
    #[error("peer error: {0}")]
    PeerError(String),
    /// The peer says that we broke it.
    #[error("terminated by the peer: {0}")]
    Terminated(String),
}

/// Something happened.
#[derive(Debug)]
pub enum Event {
    /// A peer wants to connect.
    ConnectRequest(ConnectRequest),
    /// [`Device::connect`] or [`Device::accept`] succeeded. Comes before every completion of what
    /// arrives over the connection.
    Established {
        /// The queue pair.
        qp: QpId,
        /// The peer's private data in its answer; empty on the accepting side.
        private_data: Bytes,
    },
    /// [`Device::connect`] or [`Device::accept`] failed. Completions of posted receives come
    /// before it; the queue pair is gone.
    ConnectFailed {
        /// The queue pair.
        qp: QpId,
        /// Why.
        error: ConnectError,
    },
    /// The connection ended. All its work requests have completed before this event, and all its
    /// registrations are invalid: their memory can be reclaimed until [`Device::destroy`].
    Disconnected {
        /// The queue pair.
        qp: QpId,
        /// Why.
        reason: Disconnect,
    },
    /// A work request ended.
    Completion(Completion),
    /// The device is gone: unplugged, or taken away by an administrator. Its connections have ended,
    /// its listeners hear nothing any more. The system may wait for the program to let go of it, which
    /// a program does for certain by ending.
    Removed,
}

/// A call of the model that failed at once.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DeviceError {
    /// The operating system refused.
    #[error("{what}: {source}")]
    System {
        /// What was tried.
        what: String,
        /// What it said.
        source: io::Error,
    },
    /// The queue pair, listener, request or handle is not there (any more).
    #[error("no such {0}")]
    Unknown(&'static str),
    /// The handle still is valid: invalidate it first.
    #[error("memory of {0} is still registered")]
    StillRegistered(Stag),
    /// Private data is longer than the device can carry.
    #[error("private data of {len} bytes, the device carries {max}")]
    PrivateDataTooLong {
        /// Its length.
        len: usize,
        /// The limit.
        max: usize,
    },
    /// A limit of the device is reached.
    #[error("device limit reached: {0}")]
    Limit(&'static str),
}

/// A work request that was not accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PostError {
    /// The queue is full; completions make room.
    #[error("queue full")]
    QueueFull,
    /// There is no connection (yet, or any more).
    #[error("not connected")]
    NotConnected,
    /// The queue pair is not there.
    #[error("no such queue pair")]
    Unknown,
    /// More pieces than [`Attributes::max_gather`] or [`Attributes::max_scatter`].
    #[error("too many gather or scatter elements")]
    TooManyElements,
}

/// What a device can do.
#[derive(Clone, Debug)]
pub struct Attributes {
    /// Kind and name, for messages: `iwarp`.
    pub name: String,
    /// Outstanding work requests on a send queue.
    pub max_send_wr: usize,
    /// Outstanding receives on a receive queue.
    pub max_recv_wr: usize,
    /// Elements of one gather list.
    pub max_gather: usize,
    /// Pieces of one receive.
    pub max_scatter: usize,
    /// Longest region one registration can cover, bytes.
    pub max_region: usize,
    /// RDMA Reads that a peer may have outstanding towards this device (IRD), at most.
    pub max_inbound_reads: u32,
    /// RDMA Reads that this device can have outstanding (ORD), at most.
    pub max_outbound_reads: u32,
    /// Private data bytes it can carry.
    pub max_private_data: usize,
    /// Whether a peer's Send With Invalidate can end what is registered here, and is told of. If
    /// not, it must not be asked for: some devices end the connection instead.
    pub remote_invalidation: bool,
}

/// How to connect.
#[derive(Clone, Debug)]
pub struct ConnectOptions {
    /// For the peer's connection request.
    pub private_data: Bytes,
    /// RDMA Reads that the peer may have outstanding towards us; cut to the device's limit.
    pub inbound_reads: u32,
    /// RDMA Reads that we want to have outstanding.
    pub outbound_reads: u32,
    /// Give up after this long.
    pub timeout: Duration,
}

/// How to accept.
#[derive(Clone, Debug)]
pub struct AcceptOptions {
    /// For our answer.
    pub private_data: Bytes,
    /// As in [`ConnectOptions`].
    pub inbound_reads: u32,
    /// As in [`ConnectOptions`].
    pub outbound_reads: u32,
}

/// Counts since the device was made. All only grow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Sends posted, with or without invalidation.
    pub sends: u64,
    /// Of those, with invalidation.
    pub sends_with_invalidate: u64,
    /// RDMA Reads posted.
    pub rdma_reads: u64,
    /// RDMA Writes posted.
    pub rdma_writes: u64,
    /// Messages received.
    pub receives: u64,
    /// Regions registered for remote access.
    pub registrations: u64,
    /// Local invalidations posted.
    pub local_invalidations: u64,
    /// Invalidations a peer's Send With Invalidate did.
    pub remote_invalidations: u64,
    /// Times an armed completion queue had to wake its owner ([`Device::arm`]).
    pub interrupts: u64,
    /// Bytes copied in user space between the program's buffers and the wire: bulk or not.
    pub copied_bytes: u64,
    /// Bytes put on the wire by this device, all framing of its own included.
    pub wire_bytes_sent: u64,
    /// Bytes taken from the wire, likewise.
    pub wire_bytes_received: u64,
}

/// A device: an RNIC, real or in software.
///
/// Nothing here blocks. Calls take effect at once or answer by [`Event`]s, which
/// [`Device::poll`] collects. To sleep: [`Device::arm`]; when it says that nothing is waiting,
/// wait in the poll loop (at most until [`Device::next_deadline`]); hand the device's readiness events to
/// [`Device::ready`]; poll again. To busy-poll: [`Device::set_busy_poll`] and poll.
pub trait Device {
    /// What it can do.
    fn attributes(&self) -> &Attributes;

    /// Memory that the device can use without a copy.
    fn pool(&self) -> &Pool;

    /// Counts so far.
    fn counters(&self) -> Counters;

    /// Joins the owner's poll loop. Once, before anything is waited for.
    ///
    /// # Errors
    /// What the operating system refused.
    fn attach(&mut self, poller: Poller) -> io::Result<()>;

    /// A readiness event whose token is `first_token + local`; `closed` when it says that the peer
    /// closed its side or that the descriptor is in error. Events tell of changes only, and one may
    /// tell of bytes and of the end behind them: a read that took all the bytes there are is then
    /// not the last.
    fn ready(&mut self, local: usize, closed: bool);

    /// Whether [`Device::poll`] should look for arrivals by itself, without waiting for
    /// [`Device::ready`].
    fn set_busy_poll(&mut self, on: bool);

    /// Makes progress and appends what happened to `events`. `now` never goes back.
    fn poll(&mut self, now: Time, events: &mut VecDeque<Event>);

    /// Asks to be woken, through the poll loop, at the next event. Returns false when events are
    /// waiting already: poll instead of sleeping. One request covers one wake-up.
    fn arm(&mut self) -> bool;

    /// When [`Device::poll`] must run next even if nothing becomes ready.
    fn next_deadline(&self) -> Option<Time>;

    /// Listens on `address`.
    ///
    /// # Errors
    /// What the operating system refused.
    fn listen(&mut self, address: SocketAddr) -> Result<ListenerId, DeviceError>;

    /// The address a listener has (its port, when 0 was asked for).
    ///
    /// # Errors
    /// No such listener.
    fn local_address(&self, listener: ListenerId) -> Result<SocketAddr, DeviceError>;

    /// The lower-layer connection beneath a queue pair now; [`Carrier::Ended`] if there is none.
    fn carrier(&self, qp: QpId) -> Carrier;

    /// Stops listening.
    fn close_listener(&mut self, listener: ListenerId);

    /// Starts connecting; ends in [`Event::Established`] or [`Event::ConnectFailed`]. Receives can
    /// be posted at once.
    ///
    /// # Errors
    /// What could be refused without asking the peer.
    fn connect(
        &mut self,
        remote: SocketAddr,
        options: &ConnectOptions,
    ) -> Result<QpId, DeviceError>;

    /// Prepares a queue pair for a connection request, so that receives can be posted before the
    /// peer may send. [`Device::accept`] or [`Device::destroy`] follows.
    ///
    /// # Errors
    /// The request is gone.
    fn prepare_accept(&mut self, request: RequestId) -> Result<QpId, DeviceError>;

    /// Answers the connection request of a prepared queue pair; ends in [`Event::Established`] or
    /// [`Event::ConnectFailed`].
    ///
    /// # Errors
    /// The queue pair is gone, or the options are refused.
    fn accept(&mut self, qp: QpId, options: &AcceptOptions) -> Result<(), DeviceError>;

    /// Says no to a connection request.
    ///
    /// # Errors
    /// The request is gone.
    fn reject(&mut self, request: RequestId, private_data: &[u8]) -> Result<(), DeviceError>;

    /// Ends the connection in order: what was posted goes out first. [`Event::Disconnected`]
    /// follows.
    fn disconnect(&mut self, qp: QpId);

    /// Ends the connection at once; [`Event::Disconnected`] follows.
    fn abort(&mut self, qp: QpId);

    /// Frees the queue pair and everything it still holds. No event of it follows.
    fn destroy(&mut self, qp: QpId);

    /// Registers memory that the peer of `qp`, and nobody else, may then use. The handle is
    /// unpredictable, the bounds exact.
    ///
    /// # Errors
    /// Gives the memory back.
    fn register(
        &mut self,
        qp: QpId,
        region: Region,
    ) -> Result<RemoteSegment, (DeviceError, Region)>;

    /// Takes back memory whose handle was invalidated, locally or by the peer's Send With
    /// Invalidate, or whose connection ended.
    ///
    /// # Errors
    /// The handle is unknown, or still valid.
    fn reclaim(&mut self, qp: QpId, stag: Stag) -> Result<Region, DeviceError>;

    /// Posts a receive: memory for one message, in one piece or several, which it fills in their
    /// order. Messages use receives in the order in which they were posted.
    ///
    /// # Errors
    /// Gives the memory back.
    fn post_receive(
        &mut self,
        qp: QpId,
        id: WrId,
        receive: Scatter,
    ) -> Result<(), (PostError, Scatter)>;

    /// Posts to the send queue. Requests start in order. An unsignaled request that succeeds has
    /// no completion; one that fails always has. Reads and invalidations are always signaled.
    ///
    /// # Errors
    /// Gives the request back.
    fn post_send(
        &mut self,
        qp: QpId,
        id: WrId,
        wr: SendWr,
        signaled: bool,
    ) -> Result<(), (PostError, SendWr)>;
}
