//! The device model: the trait [`Device`], its requests, completions, events and errors.
//!
//! A device has one owner thread and never blocks. It joins the owner's poll loop
//! ([`Device::attach`]), is polled, and is armed before the owner sleeps. [`Counters::interrupts`]
//! counts the armed wake-ups, which is what the documents about round trips call an interrupt.

use std::collections::VecDeque;
use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use bytes::Bytes;
use smallvec::SmallVec;

use crate::{Buf, Carrier, ClassCosts, Poller, Pool, Scatter, Time};

/// Identifies a queue pair of a device, and with it a connection. Not reused while the device
/// exists.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct QpId(pub u64);

/// Identifies a listener of a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ListenerId(pub u64);

/// Identifies a connection request that waits for [`Device::accept`] or [`Device::reject`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct RequestId(pub u64);

/// Identifies a shared receive queue of a device. Not reused while the device exists.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SharedReceivesId(pub u64);

/// Work request identifier (`wr_id`) that the poster chooses and its completion returns.
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

/// A range of the peer's memory, as the peer announced it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RemoteSegment {
    /// Handle of the memory.
    pub stag: Stag,
    /// Length in bytes.
    pub length: u32,
    /// Tagged offset of the first byte.
    pub offset: u64,
}

/// Memory to register, with the access right for the peer. The kind of memory determines the right:
/// memory that others may be reading cannot be offered for RDMA Writes.
#[derive(Debug)]
pub enum Region {
    /// Memory that the peer may read (RDMA Read). It is shared, because nobody writes to it.
    RemoteRead(Bytes),
    /// Memory that the peer may write (RDMA Write). The program cannot access it until it is
    /// reclaimed.
    RemoteWrite(Buf),
}

impl Region {
    /// Returns the length in bytes.
    #[must_use]
    pub fn len(&self) -> usize {
        match self {
            Self::RemoteRead(bytes) => bytes.len(),
            Self::RemoteWrite(buf) => buf.len(),
        }
    }

    /// Returns whether the length is zero.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// Gather list of a message, in order. Two elements are usual, a transport header and its payload;
/// more inline elements would enlarge every request that is passed by value.
pub type Gather = SmallVec<[Bytes; 2]>;

/// A work request for the send queue.
///
/// The model does not check whether local memory comes from the device's pool. A device that needs
/// registered memory copies any other memory and counts it in [`Counters::copied_bytes`].
#[derive(Debug)]
pub enum SendWr {
    /// Sends a message into the peer's next posted receive.
    Send {
        /// The bytes of the message.
        gather: Gather,
        /// Handle of the peer's memory that the peer's device invalidates when the message arrives
        /// (Send With Invalidate).
        invalidate: Option<Stag>,
    },
    /// Writes bytes to the peer's memory.
    Write {
        /// The bytes to write.
        gather: Gather,
        /// Handle of the peer's memory.
        stag: Stag,
        /// Tagged offset of the first byte.
        offset: u64,
    },
    /// Reads bytes from the peer's memory.
    Read {
        /// Destination of the bytes; its length is the number of bytes to read.
        sink: Buf,
        /// Handle of the peer's memory.
        stag: Stag,
        /// Tagged offset of the first byte.
        offset: u64,
    },
    /// Invalidates memory that is registered at this side. After its completion the peer can no
    /// longer access the memory, and [`Device::reclaim`] returns it.
    Invalidate {
        /// Handle of the memory.
        stag: Stag,
    },
}

/// The result of a successful work request.
#[derive(Debug)]
pub enum Success {
    /// A Send completed: the device no longer needs its bytes. The message may not have arrived
    /// yet.
    Send,
    /// An RDMA Write completed: the device no longer needs its bytes.
    Write,
    /// An RDMA Read completed: all bytes are in its sink.
    Read {
        /// Destination of the bytes.
        sink: Buf,
    },
    /// A Local Invalidate completed: the handle is invalid now.
    Invalidate,
    /// A message was received.
    Receive {
        /// All buffers of the posted receive, each shortened to the part of the message that it
        /// holds.
        buf: Scatter,
        /// The handle named by the sender's Send With Invalidate. It is invalid now, and
        /// [`Device::reclaim`] returns the memory.
        invalidated: Option<Stag>,
    },
}

/// The reason why a work request failed. Any failure ends the connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum WorkError {
    /// The connection ended before the request was executed.
    #[error("flushed: the connection ended")]
    Flushed,
    /// The message is longer than all buffers of the receive together.
    #[error("local length error: the message is longer than the receive buffer")]
    LocalLength,
    /// The peer refused the access because of the handle, the bounds or the rights.
    #[error("remote access error: the peer refused the access")]
    RemoteAccess,
    /// The peer's device reported another error.
    #[error("remote operation error")]
    RemoteOperation,
    /// A local handle was not valid.
    #[error("local protection error")]
    LocalProtection,
}

/// The result of a failed work request.
#[derive(Debug)]
pub struct Failed {
    /// The reason.
    pub error: WorkError,
    /// The buffers of the receive, or the sink of the RDMA Read, if there are any. Their contents
    /// are undefined.
    pub buf: Option<Scatter>,
}

/// The completion of a work request.
#[derive(Debug)]
pub struct Completion {
    /// The queue pair.
    pub qp: QpId,
    /// The `wr_id` of the work request.
    pub id: WrId,
    /// The result of the work request.
    pub result: Result<Success, Failed>,
}

/// A connection request from a peer.
#[derive(Debug)]
pub struct ConnectRequest {
    /// The listener at which it arrived.
    pub listener: ListenerId,
    /// Identifies the request at this device.
    pub request: RequestId,
    /// Address of the peer.
    pub peer: SocketAddr,
    /// Private data of the peer.
    pub private_data: Bytes,
}

/// The reason why a connection could not be established.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ConnectError {
    /// Nothing listens at that address.
    #[error("connection refused: nothing listens on that address and port")]
    Refused,
    /// The address cannot be reached.
    #[error("{0}")]
    Unreachable(String),
    /// The peer did not answer in time.
    #[error("no answer in time")]
    TimedOut,
    /// The peer's program rejected the request; its private data may say why.
    #[error("rejected by the peer")]
    Rejected {
        /// Private data of the peer.
        private_data: Bytes,
    },
    /// The peer does not implement the device's connection protocol, or no version of it that this
    /// device supports.
    #[error("connection set-up failed: {0}")]
    Protocol(String),
}

/// The state of the connections that this end has disconnected ([`Device::ending`]).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// Nothing.
    Ended,
    /// All was sent. At least one waits for its peer, which may not have received the last of it.
    WaitsForPeers,
    /// At least one sends what was posted.
    Sending,
}

/// The reason why a connection ended.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Disconnect {
    /// This side closed the connection.
    #[error("closed by this side")]
    Local,
    /// The peer closed the connection gracefully.
    #[error("closed by the peer")]
    Remote,
    /// The network lost the connection.
    #[error("connection lost: {0}")]
    Lost(String),
    /// The peer violated the device's protocol, or accessed memory without permission.
    #[error("peer error: {0}")]
    PeerError(String),
    /// The peer reports that this side violated the protocol.
    #[error("terminated by the peer: {0}")]
    Terminated(String),
}

/// An event that a device reports.
#[derive(Debug)]
pub enum Event {
    /// A connection request arrived.
    ConnectRequest(ConnectRequest),
    /// [`Device::connect`] or [`Device::accept`] succeeded. Precedes every completion of a receive
    /// on the connection.
    Established {
        /// The queue pair.
        qp: QpId,
        /// Private data in the peer's answer; empty at the accepting side.
        private_data: Bytes,
    },
    /// [`Device::connect`] or [`Device::accept`] failed. Completions of posted receives precede
    /// this event, and the queue pair no longer exists.
    ConnectFailed {
        /// The queue pair.
        qp: QpId,
        /// The reason.
        error: ConnectError,
    },
    /// The connection ended. All its work requests completed before this event, and all its
    /// registrations are invalid. Their memory can be reclaimed until [`Device::destroy`].
    Disconnected {
        /// The queue pair.
        qp: QpId,
        /// The reason.
        reason: Disconnect,
    },
    /// A work request completed.
    Completion(Completion),
    /// Fewer receives are posted to a shared receive queue than
    /// [`Device::arm_shared_receives`] named. Occurs once for each call.
    SharedReceivesLow {
        /// The shared receive queue.
        id: SharedReceivesId,
    },
    /// The device was removed, by unplugging it or by an administrator. Its connections have ended,
    /// and its listeners receive no more requests. The system may wait until the program releases
    /// the device, which it does at the latest when it exits.
    Removed,
}

/// An error that a call of the device model returned at once.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DeviceError {
    /// The operating system refused the operation.
    #[error("{what}: {source}")]
    System {
        /// The operation.
        what: String,
        /// The error of the operating system.
        source: io::Error,
    },
    /// The queue pair, listener, connection request or handle does not exist, or no longer exists.
    #[error("no such {0}")]
    Unknown(&'static str),
    /// The handle is still valid and must be invalidated first.
    #[error("memory of {0} is still registered")]
    StillRegistered(Stag),
    /// The private data is longer than the device supports.
    #[error("private data of {len} bytes, the device carries {max}")]
    PrivateDataTooLong {
        /// The length of the private data in bytes.
        len: usize,
        /// The limit in bytes.
        max: usize,
    },
    /// A limit of the device is reached.
    #[error("device limit reached: {0}")]
    Limit(&'static str),
    /// Queue pairs are bound to the shared receive queue and must be destroyed first.
    #[error("queue pairs are bound to the shared receive queue")]
    Bound,
}

/// The reason why a work request was not accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PostError {
    /// The queue is full, or the device has no memory for a copy that it needs. A completion may make room; if
    /// none is to come, the request can be posted again after a while.
    #[error("queue full")]
    QueueFull,
    /// The queue pair is not connected yet, or no longer.
    #[error("not connected")]
    NotConnected,
    /// The queue pair or shared receive queue does not exist.
    #[error("no such queue")]
    Unknown,
    /// The request has more elements than [`Attributes::max_gather`] or
    /// [`Attributes::max_scatter`].
    #[error("too many gather or scatter elements")]
    TooManyElements,
    /// The queue pair takes its receives from a shared receive queue.
    #[error("the queue pair is bound to a shared receive queue")]
    Bound,
    /// The buffers of the receive have other lengths than those of the receives posted to the
    /// shared receive queue before.
    #[error("another structure than that of the shared receive queue")]
    Structure,
}

/// The capabilities of a device's shared receive queues.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SharedReceives {
    /// Maximum number of receives that can be posted to one shared receive queue.
    pub max_wr: usize,
    /// What happens to a message that finds no receive.
    pub when_empty: WhenEmpty,
}

/// The fate of a message that finds its shared receive queue empty. Only with [`WhenEmpty::Waits`] may a program
/// promise its peers more messages in total than it has posted receives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WhenEmpty {
    /// The message waits until a receive is posted, and with it everything behind it on its
    /// connection. Nothing is lost.
    ///
    /// The iwarp device stops reading the connection's TCP stream, and connections go on in the
    /// order in which they began to wait. An InfiniBand or RoCE adapter answers with a negative
    /// acknowledgement (RNR NAK), and the sender tries again after a while, without end if the
    /// connection's RNR retry count is 7; the first one that does so when there is a receive gets
    /// it.
    Waits,
    /// The sender waits as with [`WhenEmpty::Waits`], but its connection may end with an error.
    ///
    /// Linux's rxe does this as a sender (kernel 6.12), and the peers of an rxe device are usually rxe
    /// devices. After an RNR NAK it goes back to the rejected message, and executes again the local work
    /// requests that followed it: binding a memory window, registering memory, local invalidation. The
    /// second execution fails, and the sender's queue pair enters the error state. So a receiver needs a
    /// receive for each message that its peers may send.
    MayEndConnection,
    /// The connection ends with an error.
    ///
    /// iWARP adapters and Linux's siw treat the message as an error of the sender: the DDP queue
    /// has no buffer for it (RFC 5041, section 7.1).
    EndsConnection,
}

/// The capabilities and limits of a device.
#[derive(Clone, Debug)]
pub struct Attributes {
    /// Kind and name of the device, for messages, such as `iwarp`.
    pub name: String,
    /// Maximum number of outstanding work requests on a send queue.
    pub max_send_wr: usize,
    /// Maximum number of outstanding receives on a receive queue.
    pub max_recv_wr: usize,
    /// Maximum number of elements of a gather list.
    pub max_gather: usize,
    /// Maximum number of buffers of a receive.
    pub max_scatter: usize,
    /// Maximum length in bytes of a registration.
    pub max_region: usize,
    /// Maximum number of RDMA Reads that a peer may have outstanding towards this device (IRD).
    pub max_inbound_reads: u32,
    /// Maximum number of RDMA Reads that this device can have outstanding (ORD).
    pub max_outbound_reads: u32,
    /// Maximum length in bytes of private data.
    pub max_private_data: usize,
    /// Whether a peer's Send With Invalidate can invalidate registrations of this device, and the
    /// device reports it. If not, remote invalidation must not be announced to peers: some devices
    /// end the connection instead.
    pub remote_invalidation: bool,
    /// The capabilities of shared receive queues, or `None` if the device has none.
    pub shared_receives: Option<SharedReceives>,
    /// Whether the device works only as long as its owner thread never changes its credentials (user,
    /// groups and capabilities): not even if it restores them before it uses the device again.
    pub keeps_credentials: bool,
    /// What operations cost on devices of this class.
    pub costs: ClassCosts,
}

/// The options for [`Device::connect`].
#[derive(Clone, Debug)]
pub struct ConnectOptions {
    /// Private data for the connection request.
    pub private_data: Bytes,
    /// Number of RDMA Reads that the peer may have outstanding towards this side; reduced to the
    /// device's limit.
    pub inbound_reads: u32,
    /// Maximum number of outstanding RDMA Reads that this side requests (ORD).
    pub outbound_reads: u32,
    /// Time after which the attempt fails.
    pub timeout: Duration,
    /// The shared receive queue to which the queue pair is bound
    /// ([`Device::create_shared_receives`]), or `None` if it has receives of its own.
    pub shared_receives: Option<SharedReceivesId>,
}

/// The options for [`Device::accept`].
#[derive(Clone, Debug)]
pub struct AcceptOptions {
    /// Private data for the answer.
    pub private_data: Bytes,
    /// Number of RDMA Reads that the peer may have outstanding, as in [`ConnectOptions`].
    pub inbound_reads: u32,
    /// Maximum number of outstanding RDMA Reads that this side requests (ORD), as in
    /// [`ConnectOptions`].
    pub outbound_reads: u32,
}

/// Counters since the device was created. They never decrease.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Sends posted, with or without invalidation.
    pub sends: u64,
    /// The part of `sends` with invalidation.
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
    /// Invalidations by a peer's Send With Invalidate.
    pub remote_invalidations: u64,
    /// Number of times that an armed completion queue woke its owner ([`Device::arm`]).
    pub interrupts: u64,
    /// Bytes copied in user space between the program's buffers and the wire, bulk data or not.
    pub copied_bytes: u64,
    /// Bytes sent by this device, including all its framing.
    pub wire_bytes_sent: u64,
    /// Bytes received by this device, including all framing.
    pub wire_bytes_received: u64,
    /// System calls by which a device that is software moved bytes, or found that it could not. Waiting for
    /// readiness is the poll loop's.
    pub system_calls: u64,
}

impl std::iter::Sum for Counters {
    /// Returns the counters of several devices together.
    fn sum<I: Iterator<Item = Self>>(each: I) -> Self {
        each.fold(Self::default(), |sum, one| Self {
            sends: sum.sends + one.sends,
            sends_with_invalidate: sum.sends_with_invalidate + one.sends_with_invalidate,
            rdma_reads: sum.rdma_reads + one.rdma_reads,
            rdma_writes: sum.rdma_writes + one.rdma_writes,
            receives: sum.receives + one.receives,
            registrations: sum.registrations + one.registrations,
            local_invalidations: sum.local_invalidations + one.local_invalidations,
            remote_invalidations: sum.remote_invalidations + one.remote_invalidations,
            interrupts: sum.interrupts + one.interrupts,
            copied_bytes: sum.copied_bytes + one.copied_bytes,
            wire_bytes_sent: sum.wire_bytes_sent + one.wire_bytes_sent,
            wire_bytes_received: sum.wire_bytes_received + one.wire_bytes_received,
            system_calls: sum.system_calls + one.system_calls,
        })
    }
}

/// An RDMA device (RNIC), in hardware or in software.
///
/// No method blocks. Calls take effect at once or are answered by [`Event`]s, which
/// [`Device::poll`] collects. To sleep, call [`Device::arm`]; if it reports that no events are
/// waiting, wait in the poll loop, at most until [`Device::next_deadline`]; pass the device's
/// readiness events to [`Device::ready`]; then poll again. To busy-poll, call
/// [`Device::set_busy_poll`] and poll.
pub trait Device {
    /// Returns the capabilities and limits of the device.
    fn attributes(&self) -> &Attributes;

    /// Returns the pool of memory that the device can use without a copy.
    fn pool(&self) -> &Pool;

    /// Returns the counters.
    fn counters(&self) -> Counters;

    /// Attaches the device to its owner's poll loop. Must be called once, before waiting.
    ///
    /// # Errors
    /// The error of the operating system.
    fn attach(&mut self, poller: Poller) -> io::Result<()>;

    /// Handles a readiness event whose token is `first_token + local`. `closed` says that the peer
    /// closed its side or that the descriptor has an error. Events report changes only, and one
    /// event may report both bytes and the end of the stream behind them, so a read that returned
    /// all bytes need not be the last.
    fn ready(&mut self, local: usize, closed: bool);

    /// Sets whether [`Device::poll`] looks for arrivals by itself, without waiting for
    /// [`Device::ready`].
    fn set_busy_poll(&mut self, on: bool);

    /// Makes progress, and appends what happened to `events`. `now` must not decrease.
    fn poll(&mut self, now: Time, events: &mut VecDeque<Event>);

    /// Hands over what was posted to send queues and the device keeps: those of one turn of its owner
    /// leave together, with one system call or one doorbell for each queue pair. [`Device::poll`] and
    /// [`Device::arm`] begin with this, so only an owner that posts and does neither soon has to call it.
    /// Does nothing by default, for a device that keeps no requests.
    fn flush(&mut self) {}

    /// Requests a wake-up through the poll loop at the next event. Returns false if events are
    /// waiting already; the caller must then poll instead of sleeping. Each request covers one
    /// wake-up.
    fn arm(&mut self) -> bool;

    /// Returns the time at which [`Device::poll`] must run next, even if no descriptor becomes
    /// ready.
    fn next_deadline(&self) -> Option<Time>;

    /// Listens on `address`.
    ///
    /// # Errors
    /// [`DeviceError::System`] with the error of the operating system.
    fn listen(&mut self, address: SocketAddr) -> Result<ListenerId, DeviceError>;

    /// Returns the address of a listener, with the actual port if port 0 was requested.
    ///
    /// # Errors
    /// [`DeviceError::Unknown`] if there is no such listener.
    fn local_address(&self, listener: ListenerId) -> Result<SocketAddr, DeviceError>;

    /// Returns the lower-layer connection under a queue pair, or [`Carrier::Ended`] if there is
    /// none now.
    fn carrier(&self, qp: QpId) -> Carrier;

    /// Stops listening.
    fn close_listener(&mut self, listener: ListenerId);

    /// Starts a connection attempt, which ends with [`Event::Established`] or
    /// [`Event::ConnectFailed`]. Receives can be posted at once.
    ///
    /// # Errors
    /// [`DeviceError`] if the attempt fails without asking the peer.
    fn connect(
        &mut self,
        remote: SocketAddr,
        options: &ConnectOptions,
    ) -> Result<QpId, DeviceError>;

    /// Prepares a queue pair for a connection request, so that receives can be posted before the
    /// peer may send. Must be followed by [`Device::accept`] or [`Device::destroy`]. `receives` is
    /// the shared receive queue to which the queue pair is bound for its life, or `None` if it has
    /// receives of its own.
    ///
    /// # Errors
    /// [`DeviceError::Unknown`] if the request or the shared receive queue does not exist;
    /// [`DeviceError::System`]. A request that exists still waits for its answer then.
    fn prepare_accept(
        &mut self,
        request: RequestId,
        receives: Option<SharedReceivesId>,
    ) -> Result<QpId, DeviceError>;

    /// Accepts the connection request of a prepared queue pair. Ends with [`Event::Established`] or
    /// [`Event::ConnectFailed`].
    ///
    /// # Errors
    /// [`DeviceError`] if the queue pair no longer exists or the options are invalid.
    fn accept(&mut self, qp: QpId, options: &AcceptOptions) -> Result<(), DeviceError>;

    /// Rejects a connection request.
    ///
    /// # Errors
    /// [`DeviceError`] if the request no longer exists or the private data is too long.
    fn reject(&mut self, request: RequestId, private_data: &[u8]) -> Result<(), DeviceError>;

    /// Ends the connection gracefully: posted requests are sent first. [`Event::Disconnected`]
    /// follows. That takes as long as the peer takes to accept them; [`Device::abort`] ends it before.
    fn disconnect(&mut self, qp: QpId);

    /// Ends the connection at once. [`Event::Disconnected`] follows.
    fn abort(&mut self, qp: QpId);

    /// Frees the queue pair and all resources that it still holds. No event of it follows. Receives
    /// that it took from a shared receive queue and that no completion has returned are freed with
    /// it; [`Device::posted_shared_receives`] tells how many are left.
    fn destroy(&mut self, qp: QpId);

    /// Returns what the connections that this end has disconnected still do. A program that drops the device
    /// before they have [`Ending::Ended`] may cut off what it sent last. `Ended` by default, for a device
    /// that reports [`Event::Disconnected`] only then.
    fn ending(&self) -> Ending {
        Ending::Ended
    }

    /// Frees memory that the device needed for earlier traffic of these queue pairs, which have been quiet for a
    /// while, and of all together. Returns the number of bytes freed. Does nothing by default, for a device whose
    /// queues do not grow.
    fn give_back(&mut self, quiet: &[QpId]) -> usize {
        let _ = quiet;
        0
    }

    /// Registers memory for the peer of `qp` and for no other peer. The handle is unpredictable,
    /// and the bounds are exact.
    ///
    /// # Errors
    /// Returns the memory with a [`DeviceError`].
    fn register(
        &mut self,
        qp: QpId,
        region: Region,
    ) -> Result<RemoteSegment, (DeviceError, Region)>;

    /// Returns memory whose handle was invalidated locally or by the peer's Send With Invalidate,
    /// or whose connection ended.
    ///
    /// # Errors
    /// [`DeviceError::Unknown`] if there is no such handle, [`DeviceError::StillRegistered`] if it
    /// is still valid.
    fn reclaim(&mut self, qp: QpId, stag: Stag) -> Result<Region, DeviceError>;

    /// Posts a receive: one or several buffers for one message, which fills them in order. Messages
    /// consume receives in the order in which they were posted.
    ///
    /// # Errors
    /// Returns the memory with a [`PostError`], which is [`PostError::Bound`] if the queue pair is
    /// bound to a shared receive queue.
    fn post_receive(
        &mut self,
        qp: QpId,
        id: WrId,
        receive: Scatter,
    ) -> Result<(), (PostError, Scatter)>;

    /// Creates a shared receive queue. The queue pairs that are bound to it take their receives
    /// from it and have none of their own. They are bound when they are made ([`Device::connect`],
    /// [`Device::prepare_accept`]).
    ///
    /// A message takes a receive when it begins, in the order in which receives were posted. The
    /// completion names the queue pair on which the message arrived, and returns the receive; no
    /// other completion does. If the connection ends in the middle of the message, its receive
    /// completes with [`WorkError::Flushed`], or another error, before [`Event::Disconnected`] or
    /// [`Event::ConnectFailed`]. All other receives stay in the queue.
    ///
    /// [`WhenEmpty`] says what happens to a message that finds no receive. While it waits, so does
    /// everything behind it on its connection: Sends, RDMA Writes, Read Requests, the Responses to
    /// RDMA Reads of this side, and a graceful end. So nothing that is needed to post the next
    /// receive may depend on them. A connection that is lost or aborted ends at once, and the
    /// message is lost with it.
    ///
    /// # Errors
    /// [`DeviceError::Limit`] if the device has no shared receive queues
    /// ([`Attributes::shared_receives`]) or cannot have another one; [`DeviceError::System`].
    fn create_shared_receives(&mut self) -> Result<SharedReceivesId, DeviceError>;

    /// Posts a receive to a shared receive queue. All receives of one queue have the same
    /// structure, that is, buffers of the same lengths; the first one determines it.
    ///
    /// # Errors
    /// Returns the memory with a [`PostError`].
    fn post_shared_receive(
        &mut self,
        receives: SharedReceivesId,
        id: WrId,
        receive: Scatter,
    ) -> Result<(), (PostError, Scatter)>;

    /// Requests one [`Event::SharedReceivesLow`] as soon as fewer than `below` receives are posted
    /// to a shared receive queue, which may be now. Replaces an earlier request; zero cancels it.
    ///
    /// # Errors
    /// [`DeviceError::Unknown`] if there is no such queue; [`DeviceError::System`].
    fn arm_shared_receives(
        &mut self,
        receives: SharedReceivesId,
        below: usize,
    ) -> Result<(), DeviceError>;

    /// Returns the number of receives that are posted to a shared receive queue and that no message
    /// has taken. Zero if there is no such queue.
    fn posted_shared_receives(&self, receives: SharedReceivesId) -> usize;

    /// Removes the receive that was posted last to a shared receive queue, and returns its memory.
    /// Never removes the first one, into which a device may be receiving already. No event reports
    /// that the queue is low for this reason.
    ///
    /// Returns `None` if at most one receive is posted, or if the device cannot take back receives.
    fn withdraw_shared_receive(&mut self, receives: SharedReceivesId) -> Option<Scatter>;

    /// Adds to `qps` the queue pairs on which a message has taken a receive from a shared receive
    /// queue and is incomplete. A device whose messages arrive as a whole, or that cannot tell, adds
    /// none.
    fn receiving(&self, receives: SharedReceivesId, qps: &mut Vec<QpId>);

    /// Frees a shared receive queue with the receives that are posted to it. No event of it
    /// follows.
    ///
    /// # Errors
    /// [`DeviceError::Bound`] if a queue pair that is bound to it exists; a queue pair exists until
    /// [`Device::destroy`] or [`Event::ConnectFailed`]. [`DeviceError::Unknown`] if there is no
    /// such queue.
    fn destroy_shared_receives(&mut self, receives: SharedReceivesId) -> Result<(), DeviceError>;

    /// Posts a work request to the send queue. The device may keep it until the next
    /// [`Device::flush`]. Requests start in order. An unsignaled request that
    /// succeeds has no completion; one that fails always has one. Reads and invalidations are
    /// always signaled.
    ///
    /// # Errors
    /// Returns the request with a [`PostError`].
    fn post_send(
        &mut self,
        qp: QpId,
        id: WrId,
        wr: SendWr,
        signaled: bool,
    ) -> Result<(), (PostError, SendWr)>;
}
