//! One end of a connection with its queues and registrations.

use std::collections::{BTreeMap, VecDeque};
use std::net::SocketAddr;

use bytes::Bytes;

use super::{Access, End, Path, StepKind};
use rdma::{Buf, Frame, Region, Scatter, SendWr, SharedReceivesId, Stag, Time, WrId};

/// The state of a queue pair.
#[derive(Debug)]
pub(super) enum Stage {
    /// [`rdma::Device::connect`] was called.
    Connecting(Request),
    /// [`rdma::Device::prepare_accept`] was called.
    Prepared(Request),
    /// [`rdma::Device::accept`] was called.
    Accepted,
    /// The connection is established.
    Up,
    /// The connection is over.
    Down,
}

/// A connection request.
#[derive(Clone, Debug)]
pub(super) struct Request {
    pub(super) from: End,
    /// The listener's address.
    pub(super) to: SocketAddr,
    pub(super) private_data: Bytes,
    pub(super) inbound_reads: u32,
    pub(super) outbound_reads: u32,
}

/// Memory registered for a queue pair's peer.
#[derive(Debug)]
pub(super) struct Registered {
    pub(super) region: Region,
    pub(super) base: u64,
    pub(super) valid: bool,
}

impl Registered {
    /// Returns the offset in the region at which an access starts, if the access is allowed.
    pub(super) fn allows(&self, access: &Access) -> Option<usize> {
        let right = match self.region {
            Region::RemoteRead(_) => !access.write,
            Region::RemoteWrite(_) => access.write,
        };
        let start = usize::try_from(access.offset.checked_sub(self.base)?).ok()?;
        let inside = start.checked_add(access.len)? <= self.region.len();
        (self.valid && right && inside).then_some(start)
    }
}

/// The state of a request in a send queue.
#[derive(Debug)]
pub(super) enum Progress {
    /// The request has not been started.
    Waiting(SendWr),
    /// The request is in flight.
    Started,
    /// An RDMA Read in progress.
    Reading(Buf),
    /// A completed RDMA Read.
    Read(Buf),
    /// A completed invalidation.
    Invalidated,
    /// A completed Send.
    Sent,
    /// A completed Write.
    Written,
}

impl Progress {
    /// Returns the memory that the request has taken from the program, which a failed completion
    /// gives back.
    pub(super) fn memory(self) -> Option<Scatter> {
        match self {
            Self::Waiting(SendWr::Read { sink, .. }) | Self::Reading(sink) | Self::Read(sink) => {
                Some(sink.into())
            }
            _ => None,
        }
    }
}

/// A request in a send queue.
#[derive(Debug)]
pub(super) struct Entry {
    pub(super) id: WrId,
    pub(super) signaled: bool,
    pub(super) progress: Progress,
    /// Whether the request is done, and waits for the ones before it.
    pub(super) done: bool,
    /// Whether the peer refused the request, so that it will never be done.
    pub(super) refused: bool,
    /// Whether the request waits at the peer for a receive, so that it is not acknowledged yet.
    pub(super) held: bool,
    /// Time until which the poster's processor was busy posting the request.
    pub(super) posted: Time,
    pub(super) path: Path,
}

/// One end of a connection.
#[derive(Debug)]
pub(super) struct QueuePair {
    pub(super) stage: Stage,
    pub(super) peer: Option<End>,
    /// Whether the network has stopped carrying packets between the two ends, which these may not
    /// have noticed.
    pub(super) cut: bool,
    /// Whether the owner wants the connection closed as soon as the send queue is empty.
    pub(super) closing: bool,
    pub(super) receives: VecDeque<(WrId, Scatter)>,
    /// The shared receive queue to which the queue pair is bound, if there is one.
    pub(super) shared: Option<SharedReceivesId>,
    /// Packets that have arrived and wait, in order: a message for a receive of the shared receive
    /// queue, and everything behind it.
    pub(super) held: VecDeque<Arrival>,
    pub(super) queue: VecDeque<Entry>,
    /// Number of the first entry in the queue.
    pub(super) first: u64,
    /// Number of entries at the front that have been started.
    pub(super) started: usize,
    /// Time at which the first unstarted entry is examined again, if that is scheduled.
    pub(super) look: Option<Time>,
    /// Slots in use: requests whose slot no signaled completion has freed.
    pub(super) slots: usize,
    /// The part of `slots` that belongs to completed unsignaled requests.
    pub(super) silent: usize,
    /// RDMA Reads in progress, and their maximum number.
    pub(super) reading: u32,
    pub(super) max_reading: u32,
    pub(super) memory: BTreeMap<Stag, Registered>,
    /// Packets from this end arrive in order, not before this time.
    pub(super) arrival: Time,
    /// Reads served by this end are answered in order, not before this time.
    pub(super) answered: Time,
    /// The responses to them arrive in order, not before this time.
    pub(super) responded: Time,
    /// Completions of each queue become visible in order, not before these times.
    pub(super) told_sent: Time,
    pub(super) told_received: Time,
}

impl QueuePair {
    pub(super) fn new(stage: Stage) -> Self {
        Self {
            stage,
            peer: None,
            cut: false,
            closing: false,
            receives: VecDeque::new(),
            shared: None,
            held: VecDeque::new(),
            queue: VecDeque::new(),
            first: 0,
            started: 0,
            look: None,
            slots: 0,
            silent: 0,
            reading: 0,
            max_reading: 1,
            memory: BTreeMap::new(),
            arrival: Time::ZERO,
            answered: Time::ZERO,
            responded: Time::ZERO,
            told_sent: Time::ZERO,
            told_received: Time::ZERO,
        }
    }

    pub(super) fn is_up(&self) -> bool {
        matches!(self.stage, Stage::Up)
    }

    /// Returns the entry with this number, if it has not been retired.
    pub(super) fn entry(&mut self, number: u64) -> Option<&mut Entry> {
        let index = usize::try_from(number.checked_sub(self.first)?).ok()?;
        self.queue.get_mut(index)
    }
}

/// A packet that has arrived.
#[derive(Debug)]
pub(super) struct Arrival {
    pub(super) from: End,
    /// Number of the work request to which the packet belongs: of the receiver in the response to an
    /// RDMA Read, and of the sender otherwise.
    pub(super) number: u64,
    pub(super) packet: Packet,
    pub(super) path: Path,
}

/// A packet on the network.
#[derive(Clone, Debug)]
pub(super) enum Packet {
    /// A Send.
    Message {
        bytes: Bytes,
        invalidate: Option<Stag>,
    },
    /// An RDMA Write.
    Write { access: Access, bytes: Bytes },
    /// The request of an RDMA Read.
    ReadRequest { access: Access },
    /// The response to an RDMA Read.
    ReadResponse { bytes: Bytes },
    /// The sender will send no more.
    Fin,
    /// The receiver of a `Fin` will send no more either.
    FinAck,
    /// The sender has dropped the connection.
    Reset,
}

impl Packet {
    /// Returns whether the packet is a Send or an RDMA Write, which devices acknowledge where
    /// [`Costs::acknowledged`](super::Costs::acknowledged) is set. A Read Request is answered by its
    /// response instead, whose number is that of the receiver's request.
    pub(super) fn is_acknowledged(&self) -> bool {
        matches!(self, Self::Message { .. } | Self::Write { .. })
    }

    /// Returns the packet as a step of a path, or `None` for the fabric's own packets.
    pub(super) fn step(&self) -> Option<StepKind> {
        Some(match self {
            Self::Message { bytes, invalidate } => StepKind::Send {
                bytes: bytes.clone(),
                invalidates: invalidate.is_some(),
            },
            Self::Write { bytes, .. } => StepKind::Write(bytes.len()),
            Self::ReadRequest { access } => StepKind::ReadRequest(access.len),
            Self::ReadResponse { bytes } => StepKind::ReadResponse(bytes.len()),
            Self::Fin | Self::FinAck | Self::Reset => return None,
        })
    }

    /// Returns the packet in the form for a tap, or `None` for the fabric's own packets.
    pub(super) fn frame(&self) -> Option<Frame<'_>> {
        Some(match self {
            Self::Message { bytes, invalidate } => Frame::Send {
                payload: bytes,
                invalidate: *invalidate,
            },
            Self::Write { access, bytes } => Frame::Write {
                payload: bytes,
                stag: access.stag,
                offset: access.offset,
            },
            Self::ReadRequest { access } => Frame::ReadRequest {
                length: access.len,
                stag: access.stag,
                offset: access.offset,
            },
            Self::ReadResponse { bytes } => Frame::ReadResponse { payload: bytes },
            Self::Fin | Self::FinAck | Self::Reset => return None,
        })
    }
}
