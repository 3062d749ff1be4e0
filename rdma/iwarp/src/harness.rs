//! One end of a stream without a socket, for tests and for the fuzz target. Bytes are put and taken
//! as `stream.rs` exchanges them with TCP. Errors have the same effect as there: all requests
//! complete, and a Terminate remains to be sent.
//!
//! This module is built for tests and for the fuzz targets only.

use std::collections::VecDeque;

use super::endpoint::{Endpoint, FailedRequest, Limits, Out, Stop};
use super::fault::{Ending, Fault};
use super::reading::Buffers;
use super::regions::NotReclaimed;
use super::setup::Agreement;
use super::shared_queue::SharedQueues;
use super::terminate::Code;
use super::transmit::Slices;
use rdma::{
    Buf, Counters, DeviceError, Event, Pool, PostError, QpId, Region, RemoteSegment, Scatter,
    SendWr, SharedReceiveQueue, SharedReceivesId, Stag, WrId,
};

/// Maximum number of outstanding requests, and of posted receives, of a [`Side`].
pub const QUEUE: usize = 1 << 10;
/// Maximum number of elements of a gather list.
pub const GATHER: usize = 8;
/// Maximum number of buffers of a receive.
pub const SCATTER: usize = 8;

/// The result of connection set-up.
#[derive(Clone, Copy, Debug)]
pub struct SetUp {
    /// Whether FPDUs carry a CRC.
    pub crc: bool,
    /// Maximum number of outstanding RDMA Reads in each direction.
    pub reads: usize,
    /// Whether the peer's first FPDU must arrive before anything is sent.
    pub wait_for_peer: bool,
    /// Whether the peer may begin with an FPDU or a Send without payload (RFC 6581, section 9.2).
    pub empty_rtr: bool,
    /// MULPDU in bytes.
    pub max_ulpdu: usize,
}

/// The reason for the end of a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    /// The peer made a protocol error, which is answered with a Terminate.
    PeerError,
    /// The peer sent a Terminate.
    Terminated,
    /// A request of this side cannot be executed.
    LocalError,
}

/// One end of a stream.
pub struct Side {
    endpoint: Endpoint,
    /// Events, in order.
    pub events: VecDeque<Event>,
    /// Counters.
    pub counters: Counters,
    /// Pool of its memory.
    pub pool: Pool,
    /// Number of receives posted so far.
    pub receives: usize,
    /// Number of reads from the stream so far, which a device makes by a system call each.
    pub reads: usize,
    shared: SharedQueues,
    /// Bytes that TCP keeps because a message before them waits for a receive.
    unread: Vec<u8>,
}

/// The shared receive queue to which a [`Side`] may be bound.
const SHARED: SharedReceivesId = SharedReceivesId(1);

impl Side {
    /// Creates an end after set-up, with a pool of `memory` bytes.
    #[must_use]
    pub fn new(set_up: &SetUp, memory: usize) -> Self {
        let limits = Limits {
            send_wr: QUEUE,
            recv_wr: QUEUE,
            gather: GATHER,
            scatter: SCATTER,
        };
        let agreement = Agreement {
            crc: set_up.crc,
            inbound_reads: set_up.reads,
            outbound_reads: set_up.reads,
            empty_rtr: set_up.empty_rtr,
            wait_for_peer: set_up.wait_for_peer,
        };
        let mut endpoint = Endpoint::new(QpId(1), limits);
        endpoint.start(&agreement, set_up.max_ulpdu);
        Self {
            endpoint,
            events: VecDeque::new(),
            counters: Counters::default(),
            pool: Pool::new(memory),
            receives: 0,
            reads: 0,
            shared: SharedQueues::default(),
            unread: Vec::new(),
        }
    }

    /// Binds the end to a shared receive queue, which gets all receives that are posted afterwards.
    #[must_use]
    pub fn bound(mut self) -> Self {
        let queue = SharedReceiveQueue::new(QUEUE, SCATTER);
        self.endpoint.bind(SHARED, queue.head());
        self.shared.insert(SHARED, queue);
        self
    }

    /// Returns the number of receives in the shared receive queue.
    #[must_use]
    pub fn shared_receives(&self) -> usize {
        let queue = self.shared.get(SHARED);
        queue.map_or(0, SharedReceiveQueue::len)
    }

    /// Returns whether a message waits for a receive.
    #[must_use]
    pub fn is_waiting(&self) -> bool {
        self.endpoint.is_waiting()
    }

    /// Goes on with the message that waits, if there is a receive now, and with everything behind
    /// it.
    ///
    /// # Errors
    /// [`Ended`] if the stream ended.
    ///
    /// # Panics
    /// Panics if the endpoint has no room for a byte.
    pub fn resume(&mut self) -> Result<(), Ended> {
        let mut out = Out {
            events: &mut self.events,
            counters: &mut self.counters,
            shared: &mut self.shared,
        };
        let resumed = self.endpoint.resume(&mut out);
        resumed.map_err(|ending| self.ending(ending))?;
        let unread = std::mem::take(&mut self.unread);
        self.put(&unread)
    }

    /// Sets the path's MULPDU.
    pub fn set_max_ulpdu(&mut self, max: usize) {
        self.endpoint.set_max_ulpdu(max);
    }

    /// Returns a buffer filled with `fill`.
    ///
    /// # Panics
    /// Panics if the pool is exhausted.
    #[must_use]
    pub fn buf(&self, len: usize, fill: u8) -> Buf {
        let mut buf = self.pool.alloc(len).expect("the pool is large enough");
        buf.fill(fill);
        buf
    }

    /// Posts a receive.
    ///
    /// # Errors
    /// [`PostError`] if the queue is full, or if it is shared and the receive has another structure
    /// than those before it.
    pub fn receive(&mut self, id: u64, receive: impl Into<Scatter>) -> Result<(), PostError> {
        let posted = match self.shared.get_mut(SHARED) {
            Some(queue) => {
                let posted = queue.post(WrId(id), receive.into());
                if let Some(binding) = &mut self.endpoint.memory.binding {
                    binding.head = queue.head();
                }
                posted
            }
            None => self.endpoint.post_receive(WrId(id), receive.into()),
        };
        posted.map_err(|(error, _)| error)?;
        self.receives += 1;
        Ok(())
    }

    /// Posts a signaled request.
    ///
    /// # Errors
    /// [`PostError`] if the queue is full or the gather list is too long.
    pub fn post(&mut self, id: u64, wr: SendWr) -> Result<(), PostError> {
        let (id, counters) = (WrId(id), &mut self.counters);
        if self.endpoint.post_short(id, &wr, true, counters) {
            return Ok(());
        }
        let posted = self.endpoint.post_send(id, wr, true, counters);
        posted.map_err(|(error, _)| error)
    }

    /// Registers memory for the peer.
    ///
    /// # Panics
    /// Panics if the system provides no random numbers.
    pub fn register(&mut self, region: Region) -> RemoteSegment {
        let registered = self.endpoint.register(region);
        registered
            .map_err(|(error, _)| error)
            .expect("random numbers for a handle")
    }

    /// Reclaims memory.
    ///
    /// # Errors
    /// [`DeviceError`] if the handle is unknown or still valid.
    pub fn reclaim(&mut self, stag: Stag) -> Result<Region, DeviceError> {
        self.endpoint.reclaim(stag).map_err(|why| match why {
            NotReclaimed::Unknown => DeviceError::Unknown("handle"),
            NotReclaimed::StillValid => DeviceError::StillRegistered(stag),
        })
    }

    /// Returns at most `most` bytes to send.
    ///
    /// # Errors
    /// [`Ended`] if the stream ended.
    pub fn take(&mut self, most: usize) -> Result<Vec<u8>, Ended> {
        let mut out = Out {
            events: &mut self.events,
            counters: &mut self.counters,
            shared: &mut self.shared,
        };
        let mut bytes = Vec::new();
        let gathered = {
            let mut slices = Slices::new();
            let invalidated = self.endpoint.invalidate(&mut out);
            let gathered = invalidated.and_then(|()| self.endpoint.gather(&mut slices, &mut out));
            for slice in &slices {
                bytes.extend_from_slice(slice);
            }
            gathered
        };
        if let Err(stop) = gathered {
            return Err(self.stopped(stop));
        }
        bytes.truncate(most);
        self.endpoint.sent(bytes.len(), &mut out);
        Ok(bytes)
    }

    /// Handles received bytes.
    ///
    /// # Errors
    /// [`Ended`] if the stream ended.
    ///
    /// # Panics
    /// Panics if the endpoint has no room for a byte.
    pub fn put(&mut self, bytes: &[u8]) -> Result<(), Ended> {
        self.receive_bytes(bytes)
            .map_err(|ending| self.ending(ending))
    }

    fn ending(&mut self, ending: Ending) -> Ended {
        match ending {
            Ending::Fault(fault) => self.refuse(&fault),
            Ending::Terminated(terminate) => {
                self.end_with(&FailedRequest::of(&terminate));
                Ended::Terminated
            }
        }
    }

    fn receive_bytes(&mut self, mut bytes: &[u8]) -> Result<(), Ending> {
        let mut out = Out {
            events: &mut self.events,
            counters: &mut self.counters,
            shared: &mut self.shared,
        };
        while !bytes.is_empty() {
            if self.endpoint.is_waiting() {
                self.unread.extend_from_slice(bytes);
                return Ok(());
            }
            self.reads += 1;
            let mut n = 0;
            let mut buffers = Buffers::new();
            self.endpoint.buffers(out.shared, &mut buffers)?;
            for buffer in &mut buffers {
                let now = bytes.len().min(buffer.len());
                buffer[..now].copy_from_slice(&bytes[..now]);
                bytes = &bytes[now..];
                n += now;
            }
            drop(buffers);
            assert!(n > 0, "no room for more");
            self.endpoint.received(n, &mut out)?;
        }
        Ok(())
    }

    fn stopped(&mut self, stop: Stop) -> Ended {
        match stop {
            Stop::Fault(fault) => self.refuse(&fault),
            Stop::Local(error) => {
                self.end_with(&FailedRequest::Head(error));
                let fault = Fault::bare(Code::LOCAL_CATASTROPHIC);
                self.endpoint.send_terminate(&fault.terminate());
                Ended::LocalError
            }
        }
    }

    fn refuse(&mut self, fault: &Fault) -> Ended {
        self.end_with(match fault.overran_receive() {
            true => &FailedRequest::Receive,
            false => &FailedRequest::Nobody,
        });
        self.endpoint.send_terminate(&fault.terminate());
        Ended::PeerError
    }

    fn end_with(&mut self, blame: &FailedRequest) {
        let mut out = Out {
            events: &mut self.events,
            counters: &mut self.counters,
            shared: &mut self.shared,
        };
        self.endpoint.end(blame, &mut out);
    }

    /// Ends the stream: all requests complete.
    pub fn end(&mut self) {
        self.unread.clear();
        self.end_with(&FailedRequest::Nobody);
    }
}
