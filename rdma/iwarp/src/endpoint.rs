//! The RDMAP state of one stream, without its socket: work queues, receive queue, registrations,
//! RDMA Reads in both directions. Consumes and produces bytes and reports completions; no I/O and
//! no clock.

use std::collections::VecDeque;
use std::io;

use bytes::Bytes;

use super::fault::Fault;
use super::fpdu::ShortFpdus;
use super::memory::{Memory, Receive};
use super::random::Random;
use super::rdmap::ReadRequest;
use super::receive::Receiver;
use super::regions::NotReclaimed;
use super::setup::Agreement;
use super::shared_queue::SharedQueues;
use super::terminate::{FaultySegment, Terminate};
use super::transmit::{Finishes, Outgoing, Transmitter};
use rdma::{
    Completion, Counters, Event, Failed, PostError, QpId, Region, RemoteSegment, Scatter, SendWr,
    Stag, Success, WorkError, WrId,
};

/// The parts of the device that an endpoint uses: the destination of its events and counts, and
/// the shared receive queues.
pub(super) struct Out<'a> {
    pub(super) events: &'a mut VecDeque<Event>,
    pub(super) counters: &'a mut Counters,
    /// The device's shared receive queues.
    pub(super) shared: &'a mut SharedQueues,
}

/// Maximum lengths of the queues.
#[derive(Clone, Copy, Debug)]
pub(super) struct Limits {
    pub(super) send_wr: usize,
    pub(super) recv_wr: usize,
    pub(super) gather: usize,
    pub(super) scatter: usize,
}

/// A request in the send queue that has not started.
pub(super) struct Work {
    pub(super) id: WrId,
    pub(super) wr: SendWr,
    pub(super) signaled: bool,
}

/// A Read Request of the peer that has not been answered completely.
pub(super) struct Response {
    pub(super) request: ReadRequest,
    pub(super) done: u32,
    /// Maximum payload of a segment, fixed when the response starts; as in [`Outgoing`].
    pub(super) most: u32,
    pub(super) faulty_segment: FaultySegment,
}

/// The message that is being divided into segments.
pub(super) enum Current {
    Nothing,
    Message(Outgoing),
    Response,
}

/// The state of one stream.
pub(super) struct Endpoint {
    pub(super) qp: QpId,
    pub(super) limits: Limits,
    pub(super) memory: Memory,
    pub(super) receiver: Receiver,
    pub(super) transmitter: Transmitter,
    /// Short Sends that are framed and come before everything that the transmitter has.
    pub(super) short: ShortFpdus,
    pub(super) work: VecDeque<Work>,
    /// Number of requests in the send queue: waiting, being sent, or Reads without a response.
    pub(super) outstanding: usize,
    pub(super) current: Current,
    pub(super) responses: VecDeque<Response>,
    /// Whether the last message was a response, so that a request is next if there is one.
    pub(super) request_next: bool,
    /// Next MSN of each queue.
    pub(super) msn: [u32; 3],
    pub(super) outbound_reads: usize,
    /// False while the peer must send first.
    pub(super) open: bool,
    /// Whether the peer has sent anything.
    pub(super) heard: bool,
    pub(super) random: Random,
}

impl Endpoint {
    pub(super) fn new(qp: QpId, limits: Limits) -> Self {
        Self {
            qp,
            limits,
            memory: Memory::new(),
            receiver: Receiver::new(),
            transmitter: Transmitter::new(),
            short: ShortFpdus::new(),
            work: VecDeque::new(),
            outstanding: 0,
            current: Current::Nothing,
            responses: VecDeque::new(),
            request_next: false,
            msn: [1; 3],
            outbound_reads: 0,
            open: false,
            heard: false,
            random: Random::new(),
        }
    }

    /// Ends set-up: from here on the stream consists of FPDUs.
    pub(super) fn start(&mut self, agreement: &Agreement, max_ulpdu: usize) {
        self.set_crc(agreement.crc);
        self.transmitter.set_max_ulpdu(max_ulpdu);
        self.memory.inbound_limit = agreement.inbound_reads;
        self.memory.empty_rtr = agreement.empty_rtr;
        self.outbound_reads = agreement.outbound_reads;
        self.open = !agreement.wait_for_peer;
    }

    /// Sets whether FPDUs have CRCs, in both directions.
    pub(super) fn set_crc(&mut self, on: bool) {
        self.receiver.set_check_crc(on);
        self.transmitter.set_crc(on);
    }

    /// Sets the path's MULPDU, which may change. Returns whether it has changed.
    pub(super) fn set_max_ulpdu(&mut self, max: usize) -> bool {
        self.transmitter.set_max_ulpdu(max)
    }

    /// Returns whether this side may send: the peer's first FPDU has arrived, if it had to come
    /// first.
    pub(super) fn is_open(&self) -> bool {
        self.open
    }

    /// Returns whether anything has arrived from the peer.
    pub(super) fn has_heard(&self) -> bool {
        self.heard
    }

    /// Queues a set-up frame.
    pub(super) fn send_setup_frame(&mut self, frame: Bytes) {
        self.transmitter.raw(frame, 0, Finishes::Nothing);
    }

    /// Discards what TCP has not taken of a set-up frame.
    pub(super) fn discard_setup_frame(&mut self) {
        self.transmitter.clear();
    }

    // ---- registration ----

    pub(super) fn register(
        &mut self,
        region: Region,
    ) -> Result<RemoteSegment, (io::Error, Region)> {
        self.memory.regions.register(&mut self.random, region)
    }

    pub(super) fn reclaim(&mut self, stag: Stag) -> Result<Region, NotReclaimed> {
        self.memory.regions.reclaim(stag.0)
    }

    // ---- posting ----

    pub(super) fn post_receive(
        &mut self,
        id: WrId,
        buf: Scatter,
    ) -> Result<(), (PostError, Scatter)> {
        if self.memory.binding.is_some() {
            return Err((PostError::Bound, buf));
        }
        if self.memory.receives.len() >= self.limits.recv_wr {
            return Err((PostError::QueueFull, buf));
        }
        if buf.count() > self.limits.scatter {
            return Err((PostError::TooManyElements, buf));
        }
        self.memory.receives.push_back(Receive { id, buf });
        Ok(())
    }

    pub(super) fn post_send(
        &mut self,
        id: WrId,
        wr: SendWr,
        signaled: bool,
        counters: &mut Counters,
    ) -> Result<(), (PostError, SendWr)> {
        if self.outstanding >= self.limits.send_wr {
            return Err((PostError::QueueFull, wr));
        }
        if let SendWr::Send { gather, .. } | SendWr::Write { gather, .. } = &wr
            && gather.len() > self.limits.gather
        {
            return Err((PostError::TooManyElements, wr));
        }
        match &wr {
            SendWr::Send { invalidate, .. } => {
                counters.sends += 1;
                counters.sends_with_invalidate += u64::from(invalidate.is_some());
            }
            SendWr::Write { .. } => counters.rdma_writes += 1,
            SendWr::Read { .. } => counters.rdma_reads += 1,
            SendWr::Invalidate { .. } => counters.local_invalidations += 1,
        }
        self.outstanding += 1;
        self.work.push_back(Work { id, wr, signaled });
        Ok(())
    }

    /// Frees memory of queues that earlier traffic needed, and returns the number of bytes freed.
    pub(super) fn give_back(&mut self) -> usize {
        let Memory {
            receives, reads, ..
        } = &mut self.memory;
        rdma::shrink(&mut self.work)
            + rdma::shrink(&mut self.responses)
            + rdma::shrink(receives)
            + rdma::shrink(reads)
            + self.transmitter.give_back()
            + self.short.give_back()
            + self.receiver.give_back()
    }

    // ---- the end ----

    /// Releases all memory except bytes that are being sent.
    pub(super) fn release(&mut self, out: &mut Out<'_>) {
        self.stop_waiting(out);
        self.memory = Memory::new();
        self.work.clear();
        self.responses.clear();
        self.current = Current::Nothing;
    }

    /// Completes all outstanding requests, and invalidates all registrations. `blame` names the
    /// request that gets an error other than "flushed".
    pub(super) fn end(&mut self, blame: &FailedRequest, out: &mut Out<'_>) {
        let qp = self.qp;
        self.short
            .cut(|id| out.fail(qp, id, WorkError::Flushed, None));
        self.transmitter.cut(|finishes| {
            if let Finishes::Work { id, .. } = finishes {
                out.fail(qp, id, WorkError::Flushed, None);
            }
        });
        if let Current::Message(Outgoing {
            finishes: Finishes::Work { id, .. },
            ..
        }) = self.current
        {
            out.fail(qp, id, WorkError::Flushed, None);
        }
        self.current = Current::Nothing;
        self.responses.clear();
        for read in self.memory.reads.drain(..) {
            let error = match blame {
                FailedRequest::Read(stag, error) if *stag == read.stag => *error,
                _ => WorkError::Flushed,
            };
            out.fail(qp, read.id, error, Some(read.sink.into()));
        }
        let mut head = match blame {
            FailedRequest::Head(error) => Some(*error),
            _ => None,
        };
        for Work { id, wr, .. } in self.work.drain(..) {
            let error = head.take().unwrap_or(WorkError::Flushed);
            let buf = match wr {
                SendWr::Read { sink, .. } => Some(sink.into()),
                _ => None,
            };
            out.fail(qp, id, error, buf);
        }
        let mut too_long = *blame == FailedRequest::Receive;
        for Receive { id, buf } in self.memory.receives.drain(..) {
            let first = std::mem::take(&mut too_long);
            let error = if first {
                WorkError::LocalLength
            } else {
                WorkError::Flushed
            };
            out.fail(qp, id, error, Some(buf));
        }
        self.outstanding = 0;
        self.memory.regions.invalidate_all();
        self.stop_waiting(out);
    }
}

/// The request that an error is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FailedRequest {
    /// No request in particular.
    Nobody,
    /// The request at the head of the send queue.
    Head(WorkError),
    /// The RDMA Read whose sink has this handle.
    Read(u32, WorkError),
    /// The receive that was too short for a message.
    Receive,
}

impl FailedRequest {
    /// Returns the request that a Terminate of the peer concerns. For a refused Read Request, the
    /// Terminate contains the header of the request.
    pub(super) fn of(terminate: &Terminate) -> Self {
        let read = terminate
            .faulty_segment
            .as_ref()
            .and_then(|faulty_segment| faulty_segment.read);
        match read {
            Some(read) if (terminate.code.layer, terminate.code.kind) == (0, 1) => {
                Self::Read(read.sink_stag, WorkError::RemoteAccess)
            }
            Some(read) => Self::Read(read.sink_stag, WorkError::RemoteOperation),
            None => Self::Nobody,
        }
    }
}

/// An error that ends the stream while this side sends.
#[derive(Clone, Debug)]
pub(super) enum Stop {
    /// A Read Request of the peer can no longer be answered.
    Fault(Fault),
    /// The request at the head of the send queue cannot be executed.
    Local(WorkError),
}

impl From<Fault> for Stop {
    fn from(fault: Fault) -> Self {
        Self::Fault(fault)
    }
}

impl Out<'_> {
    pub(super) fn complete(&mut self, qp: QpId, id: WrId, result: Result<Success, Failed>) {
        let completion = Completion { qp, id, result };
        self.events.push_back(Event::Completion(completion));
    }

    pub(super) fn fail(&mut self, qp: QpId, id: WrId, error: WorkError, buf: Option<Scatter>) {
        self.complete(qp, id, Err(Failed { error, buf }));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_many_requests_needed_is_given_back() {
        let limits = Limits {
            send_wr: 1000,
            recv_wr: 1000,
            gather: 4,
            scatter: 4,
        };
        let mut endpoint = Endpoint::new(QpId(1), limits);
        let (mut events, mut counters) = (VecDeque::new(), Counters::default());
        for number in 0..1000 {
            let wr = SendWr::Invalidate { stag: Stag(1) };
            let posted = endpoint.post_send(WrId(number), wr, true, &mut counters);
            assert!(posted.is_ok());
            let frame = Bytes::from_static(b"frame");
            endpoint.transmitter.raw(frame, 0, Finishes::Nothing);
        }
        assert!(endpoint.give_back() < 1000 * size_of::<Work>());
        assert_eq!(endpoint.work.len(), 1000, "they are still posted");
        let mut out = Out {
            events: &mut events,
            counters: &mut counters,
            shared: &mut SharedQueues::default(),
        };
        endpoint.end(&FailedRequest::Nobody, &mut out);
        endpoint.transmitter.clear();
        let freed = endpoint.give_back();
        assert!(freed > 900 * (size_of::<Work>() + 100), "{freed}");
        assert_eq!(endpoint.give_back(), 0);
    }
}
