//! One end of a connection, and what it holds.

use std::collections::{BTreeMap, VecDeque};

use bytes::Bytes;

use super::{Access, End, Path};
use rdma::{Buf, Frame, Region, Scatter, SendWr, Stag, Time, WrId};

/// Where a queue pair stands.
#[derive(Debug)]
pub(super) enum Stage {
    /// [`rdma::Device::connect`] was called.
    Connecting,
    /// [`rdma::Device::prepare_accept`] was called.
    Prepared(Request),
    /// [`rdma::Device::accept`] was called.
    Accepted,
    /// Connected.
    Up,
    /// Over.
    Down,
}

/// A connection request.
#[derive(Clone, Debug)]
pub(super) struct Request {
    pub(super) from: End,
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
    /// Where in the region an access starts, if it is allowed.
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

/// What has become of a request in a send queue.
#[derive(Debug)]
pub(super) enum Progress {
    /// Its turn has not come.
    Waiting(SendWr),
    /// On its way.
    Started,
    /// An RDMA Read under way.
    Reading(Buf),
    /// A Read that is done.
    Read(Buf),
    /// An invalidation that is done.
    Invalidated,
    /// A Send that is done.
    Sent,
    /// A Write that is done.
    Written,
}

/// A request in a send queue.
#[derive(Debug)]
pub(super) struct Entry {
    pub(super) id: WrId,
    pub(super) signaled: bool,
    pub(super) progress: Progress,
    /// It is over, and waits for those before it.
    pub(super) done: bool,
    /// It will not be: its acknowledgement says that the peer refused it.
    pub(super) refused: bool,
    /// The poster's processor was busy with it until then.
    pub(super) posted: Time,
    pub(super) path: Path,
}

/// One end of a connection.
#[derive(Debug)]
pub(super) struct QueuePair {
    pub(super) stage: Stage,
    pub(super) peer: Option<End>,
    /// The network carries nothing between the two ends any more; one or both have not noticed.
    pub(super) cut: bool,
    /// The owner wants it closed as soon as the send queue is empty.
    pub(super) closing: bool,
    pub(super) receives: VecDeque<(WrId, Scatter)>,
    pub(super) queue: VecDeque<Entry>,
    /// Number of the queue's first entry.
    pub(super) first: u64,
    /// Entries at the front that have been started.
    pub(super) started: usize,
    /// When the first entry that has not been started is looked at again, if that is planned.
    pub(super) look: Option<Time>,
    /// Slots in use: requests that no signaled completion has given back.
    pub(super) slots: usize,
    /// Of those, unsignaled ones that are done.
    pub(super) silent: usize,
    /// RDMA Reads under way, and how many may be.
    pub(super) reading: u32,
    pub(super) max_reading: u32,
    pub(super) memory: BTreeMap<Stag, Registered>,
    /// What was sent from here arrives in order: not before this.
    pub(super) arrival: Time,
    /// Reads served here are answered in order: not before this.
    pub(super) answered: Time,
    /// Completions of each queue become visible in order: not before these.
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
            told_sent: Time::ZERO,
            told_received: Time::ZERO,
        }
    }

    pub(super) fn is_up(&self) -> bool {
        matches!(self.stage, Stage::Up)
    }

    /// The entry with this number, if it has not been retired.
    pub(super) fn entry(&mut self, number: u64) -> Option<&mut Entry> {
        let index = usize::try_from(number.checked_sub(self.first)?).ok()?;
        self.queue.get_mut(index)
    }
}

/// What travels.
#[derive(Debug)]
pub(super) enum Packet {
    /// A Send.
    Message {
        bytes: Bytes,
        invalidate: Option<Stag>,
    },
    /// An RDMA Write.
    Write { access: Access, bytes: Bytes },
    /// An RDMA Read's request.
    ReadRequest { access: Access },
    /// Its response.
    ReadResponse { bytes: Bytes },
    /// The sender will send no more.
    Fin,
    /// Nor will the one that got a `Fin`.
    FinAck,
    /// The sender has dropped the connection.
    Reset,
}

impl Packet {
    /// The packet as a tap is shown it. `None` for the fabric's own packets.
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
